//! Renames beside each other: each is of what its handle has open, wherever that is by then, and
//! none stands in the way of who has to do with neither of its names.

use durability::Policy;
use smb_client::{CreateArgs, Request};
use smb_sim::MemoryOptions;
use smb_wire::{Status, ids::FileId};
use vfs::sim::{Fault, FaultAction, SimOp};

use crate::{
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
