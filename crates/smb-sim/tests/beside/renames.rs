//! Renames beside each other: each is of what its handle has open, wherever that is by then, and
//! none stands in the way of who has to do with neither of its names.

use durability::Policy;
use smb_client::{CreateArgs, Request};
use smb_sim::MemoryOptions;
use smb_wire::{
    Status,
    access_mask::AccessMask,
    ids::FileId,
    msg::{ChangeNotifyFlags, ChangeNotifyRequest, CreateOptions, NotifyFilter},
};
use std::time::Duration;
use vfs::{
    Env,
    sim::{Fault, FaultAction, Profile, SimOp},
};

use crate::{
    held::Holds,
    seeds,
    world::{World, link, rename, watch_names},
};

/// How many renames each of two makes in one seed.
const RENAMES: usize = 8;

/// The first client and the second rename what they have open, each to its names in turn.
async fn both(world: &mut World, files: [FileId; 2], names: [&'static [&'static str]; 2]) {
    let ([mine, theirs], [my_names, their_names]) = (files, names);
    world.slow();
    let renames = world.apart(async move |mut client, _| {
        for name in my_names.iter().cycle().take(RENAMES) {
            client.call(rename(mine, name, false)).await.unwrap();
        }
        client
    });
    for name in their_names.iter().cycle().take(RENAMES) {
        let mut second = world.second();
        let renamed = second.call(rename(theirs, name, false)).await;
        renamed.unwrap_or_else(|error| panic!("to {name}: {error:?}"));
    }
    world.back(renames.await);
}

#[test]
fn two_handles_rename_the_same_file() {
    seeds(|world| {
        world.play(async |world| {
            world.make("f").await;
            let mine = world.first().create(&CreateArgs::open("f")).await.unwrap();
            let theirs = world.second().create(&CreateArgs::open("f")).await.unwrap();
            both(world, [mine, theirs], [&["a", "b"], &["c", "d"]]).await;
            true
        })
    });
}

/// How many directories move at the same time.
const DIRECTORIES: usize = 24;
/// Enough of them that once there are too many of them in a row.
const WORLDS: u64 = 4;

#[test]
fn directories_elsewhere_are_in_nobodys_way() {
    for seed in 0..WORLDS {
        World::new(seed).play(async |world| {
            let mut directories = Vec::new();
            for number in 0..DIRECTORIES {
                let args = CreateArgs::create_directory(&format!("d{number}"));
                directories.push(world.first().create(&args).await.unwrap());
            }
            let args = CreateArgs::create("f");
            let file = world.second().create(&args).await.unwrap();
            world.slow();
            let moves = world.apart(async move |mut client, _| {
                for name in ["e", "d"].iter().cycle().take(RENAMES) {
                    let moves = directories.iter().enumerate();
                    let moves = moves.map(|(number, directory)| {
                        let request = rename(*directory, &format!("{name}{number}"), false);
                        client.send(request).unwrap()
                    });
                    for moving in moves.collect::<Vec<_>>() {
                        let moved = client.wait(moving).await.unwrap();
                        assert_eq!(moved.status(), Status::SUCCESS);
                    }
                }
                client
            });
            for number in 0..RENAMES {
                let mut second = world.second();
                let name = ["g", "f"][number % 2];
                second.call(rename(file, name, false)).await.unwrap();
                let to = link(file, &format!("l{number}"), false);
                second.call(to).await.unwrap();
            }
            world.back(moves.await);
        });
    }
}

/// A change that cannot be made stable has happened all the same, and watchers are notified.
fn reported_although_the_sync_fails(change: fn(FileId) -> Request) {
    let memory = MemoryOptions {
        policy: Policy::StrictSync,
        ..MemoryOptions::default()
    };
    World::under(1, memory).play(async |world| {
        world.make("f").await;
        let file = world.first().create(&CreateArgs::open("f")).await.unwrap();
        let mut third = world.third();
        let watches = watch_names(&mut third).await;
        assert!(world.server.disk.inject(Fault {
            on: SimOp::Sync,
            after: 0,
            action: FaultAction::Fail(5),
        }));
        let changed = world.first().call(change(file)).await.unwrap_err();
        assert_eq!(changed.status(), Some(Status::IO_DEVICE_ERROR));
        let told = third.wait(watches).await.unwrap();
        assert_eq!(told.status(), Status::SUCCESS);
    });
}

#[test]
fn who_watches_is_notified_of_a_rename_that_cannot_be_made_stable() {
    reported_although_the_sync_fails(|file| rename(file, "g", false));
}

#[test]
fn who_watches_is_notified_of_a_link_that_cannot_be_made_stable() {
    reported_although_the_sync_fails(|file| link(file, "g", false));
}

/// A file leaves a directory, and while that is made stable, a directory above moves: those who watch it and all below
/// see the file leave.
#[test]
fn who_watches_is_notified_although_the_directory_moves_before_the_rename_is_stable() {
    const PAUSE: Duration = Duration::from_millis(1);
    let memory = MemoryOptions {
        policy: Policy::StrictSync,
        profile: Profile::Journal,
        ..MemoryOptions::default()
    };
    World::under(2, memory).play(async |world| {
        let (mut first, mut second, mut third) = (world.first(), world.second(), world.third());
        for name in ["d", "d\\s"] {
            let made = CreateArgs::create_directory(name);
            let made = first.create(&made).await.unwrap();
            first.close(made).await.unwrap();
        }
        let file = CreateArgs::create("d\\s\\f");
        let file = first.create(&file).await.unwrap();
        let watched = third.create(&CreateArgs::directory("d")).await.unwrap();
        let watches = Request::new(&ChangeNotifyRequest {
            flags: ChangeNotifyFlags::WATCH_TREE,
            output_buffer_length: 1024,
            file_id: watched,
            completion_filter: NotifyFilter::FILE_NAME,
        });
        let watches = third.send(watches).unwrap();
        let moves = CreateArgs::open("d")
            .access(AccessMask::DELETE | AccessMask::FILE_READ_ATTRIBUTES)
            .options(CreateOptions::DIRECTORY_FILE);
        let moves = second.create(&moves).await.unwrap();
        world.env.sleep(PAUSE).await;
        let holds = Holds::begin(world, &[SimOp::Sync]);
        let leaves = first.send(rename(file, "g", false)).unwrap();
        holds.held(world, 1).await;
        let moved = second.send(rename(moves, "e", false)).unwrap();
        world.env.sleep(PAUSE).await;
        holds.release();
        let left = first.wait(leaves).await.unwrap();
        let moved = second.wait(moved).await.unwrap();
        let seen = third.wait(watches).await.unwrap();
        for answer in [left, moved, seen] {
            assert_eq!(answer.status(), Status::SUCCESS);
        }
    });
}
