//! A name that the last close removes, beside the rename of a directory above it: what is
//! acknowledged to go goes, wherever it is by then, and a failure leaves nothing behind.

use smb_client::CreateArgs;
use smb_wire::{
    Status,
    access_mask::AccessMask,
    fscc::FileInformationClass,
    ids::FileId,
    msg::{CreateDisposition, CreateOptions},
};
use vfs::sim::{Fault, FaultAction, SimOp};

use crate::{
    held::Holds,
    looks, seeds,
    world::{World, rename, set},
};

async fn directory(world: &World) -> FileId {
    let args = CreateArgs::create_directory("d");
    world.first().create(&args).await.unwrap()
}

fn fails(world: &World) {
    assert!(world.server.disk.inject(Fault {
        on: SimOp::Change,
        after: 0,
        action: FaultAction::Fail(5),
    }));
}

/// While the name below is looked up to be removed, its directory stays; afterwards it moves, and
/// nothing is left in the tables.
async fn stays_until_it_is_gone(world: &World, directory: FileId, holds: &Holds, number: usize) {
    holds.held(world, number).await;
    let refused = world.first().call(rename(directory, "e", false)).await;
    let status = refused.err().and_then(|error| error.status());
    assert_eq!(status, Some(Status::ACCESS_DENIED), "beside a removal");
    holds.release();
}

async fn nothing_is_left(world: &World, directory: FileId, name: &str) {
    let left = world.third().create(&looks(name)).await.unwrap_err();
    assert_eq!(left.status(), Some(Status::OBJECT_NAME_NOT_FOUND));
    let mut first = world.first();
    first.call(rename(directory, "e", false)).await.unwrap();
    first.close(directory).await.unwrap();
}

fn paths(world: &World) -> usize {
    let sizes = world.server.server.table_sizes();
    sizes
        .iter()
        .find(|(name, _)| *name == "engine_paths")
        .unwrap()
        .1
}

async fn marks(world: &World, name: &str) {
    let args = CreateArgs::open(name).access(AccessMask::DELETE);
    let mut third = world.third();
    let marked = third.create(&args).await.unwrap();
    let mark = set(marked, FileInformationClass::DISPOSITION, &[1]);
    third.call(mark).await.unwrap();
    third.close(marked).await.unwrap();
}

#[test]
fn a_directory_stays_while_a_close_removes_a_name_below() {
    let mut world = World::new(11);
    world.play(async |world| {
        let directory = directory(world).await;
        let args = CreateArgs::create("d\\f").options(CreateOptions::DELETE_ON_CLOSE);
        let file = world.second().create(&args).await.unwrap();
        let holds = Holds::begin(world, &[SimOp::Look]);
        let mut second = world.second();
        let closes = second.send(crate::world::close(file)).unwrap();
        stays_until_it_is_gone(world, directory, &holds, 1).await;
        let closed = second.wait(closes).await.unwrap();
        assert_eq!(closed.status(), Status::SUCCESS);
        nothing_is_left(world, directory, "d\\f").await;
        assert_eq!(paths(world), 0);
    });
}

#[test]
fn a_removal_that_fails_holds_no_directory() {
    let mut world = World::new(12);
    world.play(async |world| {
        let directory = directory(world).await;
        let args = CreateArgs::create("d\\f").options(CreateOptions::DELETE_ON_CLOSE);
        let file = world.second().create(&args).await.unwrap();
        fails(world);
        let closed = world.second().close(file).await;
        assert!(closed.is_err(), "the disk refused");
        let mut first = world.first();
        first.call(rename(directory, "e", false)).await.unwrap();
        first.close(directory).await.unwrap();
        assert_eq!(paths(world), 0);
    });
}

#[test]
fn a_directory_stays_while_a_creation_that_fails_removes_what_others_marked() {
    let mut world = World::new(13);
    world.play(async |world| {
        let directory = directory(world).await;
        let args = CreateArgs::create("d\\f");
        let file = world.second().create(&args).await.unwrap();
        world.second().close(file).await.unwrap();
        let holds = Holds::begin(world, &[SimOp::Change, SimOp::Look]);
        fails(world);
        let args = CreateArgs::new("d\\f", CreateDisposition::OVERWRITE);
        let mut second = world.second();
        let opens = second.send(args.request()).unwrap();
        holds.held(world, 1).await;
        marks(world, "d\\f").await;
        holds.release();
        stays_until_it_is_gone(world, directory, &holds, 2).await;
        let opened = second.wait(opens).await.unwrap();
        assert_ne!(opened.status(), Status::SUCCESS, "the disk refused");
        nothing_is_left(world, directory, "d\\f").await;
        assert_eq!(paths(world), 0);
    });
}

#[test]
fn a_directory_stays_while_a_rename_that_fails_removes_what_others_marked() {
    let mut world = World::new(14);
    world.play(async |world| {
        let directory = directory(world).await;
        let mut second = world.second();
        let there = second.create(&CreateArgs::create("d\\f")).await.unwrap();
        second.close(there).await.unwrap();
        let file = second.create(&CreateArgs::create("g")).await.unwrap();
        let first = world.first().close(directory).await;
        first.unwrap();
        let holds = Holds::begin(world, &[SimOp::Change, SimOp::Change]);
        fails(world);
        let renames = second.send(rename(file, "d\\f", true)).unwrap();
        holds.held(world, 1).await;
        marks(world, "d\\f").await;
        let args = CreateArgs::open("d").options(CreateOptions::DIRECTORY_FILE);
        let directory = world.first().create(&args).await.unwrap();
        holds.release();
        stays_until_it_is_gone(world, directory, &holds, 2).await;
        let renamed = second.wait(renames).await.unwrap();
        assert_ne!(renamed.status(), Status::SUCCESS, "the disk refused");
        second.close(file).await.unwrap();
        nothing_is_left(world, directory, "d\\f").await;
        assert_eq!(paths(world), 0);
    });
}

/// How often the directory moves in one seed.
const MOVES: usize = 8;

#[test]
fn what_goes_with_its_close_goes_beside_the_moves_of_its_directory() {
    let removed = seeds(|world| {
        world.play(async |world| {
            let directory = directory(world).await;
            world.slow();
            let moves = world.apart(async move |mut client, world| {
                for number in 0..MOVES {
                    world.pause().await;
                    let to = ["e", "d"][number % 2];
                    // Refused while something below is open.
                    let _ = client.call(rename(directory, to, false)).await;
                }
                client
            });
            let mut removed = 0;
            for number in 0..2 * MOVES {
                let name = format!("{}\\f{number}", ["d", "e"][number / 2 % 2]);
                let args = CreateArgs::create(&name).options(CreateOptions::DELETE_ON_CLOSE);
                let made = world.second().create(&args).await;
                if let Ok(file) = made {
                    world.second().close(file).await.unwrap();
                    removed += 1;
                }
            }
            world.back(moves.await);
            for number in 0..2 * MOVES {
                for directory in ["d", "e"] {
                    let name = format!("{directory}\\f{number}");
                    let left = world.third().create(&looks(&name)).await;
                    assert!(left.is_err(), "{name} stays");
                }
            }
            world.first().close(directory).await.unwrap();
            assert_eq!(paths(world), 0);
            removed > 0
        })
    });
    assert!(removed > 0 || std::env::var("SEED").is_ok());
}
