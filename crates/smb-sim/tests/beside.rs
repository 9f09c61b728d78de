//! A CREATE concurrent with a request that takes, moves or replaces the name that it opens.
//!
//! The disk answers after random times, so that the two meet in every order. In every order an open that was
//! granted has the object of that name, or one that is marked for deletion; data written through it are found by
//! the name; a deletion that was acknowledged happens.
//!
//! `SEED=n cargo test -p smb-sim --test beside` plays one seed.

// A client is used by one at a time, or the borrow panics.
#![allow(clippy::await_holding_refcell_ref)]

#[path = "beside/held.rs"]
mod held;
#[path = "beside/outside.rs"]
mod outside;
#[path = "beside/refused.rs"]
mod refused;
#[path = "beside/removals.rs"]
mod removals;
#[path = "beside/renames.rs"]
mod renames;
#[path = "beside/waiting.rs"]
mod waiting;
#[path = "beside/world.rs"]
mod world;

use smb_client::CreateArgs;
use smb_wire::{
    Status,
    access_mask::AccessMask,
    create_context::LeaseState,
    ids::LeaseKey,
    msg::{CreateDisposition, CreateOptions},
};

use world::{Outcome, World, link, rename};

/// Seeds of each test; each is a world of its own.
const SEEDS: u64 = 150;

/// Plays `round` for every seed; how often the open beside was granted.
fn seeds(round: impl Fn(&mut World) -> bool) -> u64 {
    let only = std::env::var("SEED").ok();
    let only: Option<u64> = only.map(|seed| seed.parse().unwrap());
    let seeds = only.map_or(0..SEEDS, |seed| seed..seed + 1);
    let mut granted = 0;
    for seed in seeds {
        let mut world = World::new(seed);
        let run = std::panic::AssertUnwindSafe(|| round(&mut world));
        match std::panic::catch_unwind(run) {
            Ok(was) => granted += u64::from(was),
            Err(_) => panic!("SEED={seed}"),
        }
    }
    granted
}

fn goes(name: &str) -> CreateArgs {
    CreateArgs::open(name).options(CreateOptions::DELETE_ON_CLOSE)
}

fn looks(name: &str) -> CreateArgs {
    CreateArgs::open(name).access(AccessMask::FILE_READ_ATTRIBUTES)
}

/// Granted, refused because the name goes or is gone, or because somebody has it.
fn beside(world: &mut World, args: CreateArgs) -> impl Future<Output = Outcome> + use<> {
    world.beside(
        args,
        &[
            Status::OBJECT_NAME_NOT_FOUND,
            Status::OBJECT_PATH_NOT_FOUND,
            Status::DELETE_PENDING,
            Status::SHARING_VIOLATION,
        ],
    )
}

/// A granted open has the object of that name, or one that is to be deleted.
async fn has_a_name(world: &World, outcome: &Outcome, name: &str) {
    if outcome.file.is_some() {
        let found = world.third().create(&looks(name)).await;
        let status = found.err().map(|error| error.status().unwrap());
        assert!(
            matches!(status, None | Some(Status::DELETE_PENDING)),
            "granted what has no name: {status:?}"
        );
    }
}

/// An open beside the last close of what goes, which has a stream; how often it was granted.
fn beside_the_last_close(open: fn() -> CreateArgs) -> u64 {
    seeds(|world| {
        world.play(async |world| {
            for name in ["f", "f:s"] {
                world.make(name).await;
            }
            let file = world.first().create(&goes("f")).await.unwrap();
            let opens = beside(world, open());
            let closes = world.apart(async move |mut client, _| {
                client.close(file).await.unwrap();
                client
            });
            let outcome = opens.await;
            world.back(closes.await);
            has_a_name(world, &outcome, "f").await;
            outcome.file.is_some()
        })
    })
}

#[test]
fn an_open_beside_the_last_close_of_what_goes() {
    let granted = beside_the_last_close(|| CreateArgs::open("f"));
    assert!(granted > 0 || std::env::var("SEED").is_ok());
}

#[test]
fn an_overwriting_open_beside_the_last_close_of_what_goes() {
    beside_the_last_close(|| CreateArgs::new("f", CreateDisposition::OVERWRITE_IF));
}

#[test]
fn an_open_of_a_stream_beside_the_last_close_of_its_file() {
    beside_the_last_close(|| CreateArgs::open("f:s"));
}

#[test]
fn an_open_beside_a_refused_creation_finds_nothing() {
    let granted = seeds(|world| {
        world.play(async |world| {
            // A lease stays with its file: for another one it is refused, and nothing is made.
            let key = LeaseKey([7; 16]);
            let state = LeaseState::READ;
            let other = CreateArgs::create("other").lease_v2(key, state, 0);
            world.first().create(&other).await.unwrap();
            let opens = beside(world, CreateArgs::open("f"));
            let creates = world.apart(async move |mut client, world| {
                let args = CreateArgs::create("f").lease_v2(key, state, 0);
                let refused = client.create(&args).await.unwrap_err();
                assert_eq!(refused.status(), Some(Status::INVALID_PARAMETER));
                drop(world);
                client
            });
            let outcome = opens.await;
            world.back(creates.await);
            assert!(outcome.file.is_none(), "the refused CREATE made a file");
            let left = world.third().create(&looks("f")).await;
            let left = left.unwrap_err().status();
            assert_eq!(left, Some(Status::OBJECT_NAME_NOT_FOUND), "it stays");
            false
        })
    });
    assert_eq!(granted, 0);
}

/// Data written through an open beside a replacement are found by the name.
fn replaced(by: fn(&World, smb_wire::ids::FileId) -> smb_client::Request) {
    let granted = seeds(|world| {
        world.play(async |world| {
            world.make("f").await;
            world.make("g").await;
            let file = world.first().create(&CreateArgs::open("g")).await.unwrap();
            let request = by(world, file);
            let opens = beside(world, CreateArgs::open("f"));
            let replaces = world.apart(async move |mut client, _| {
                // Refused while it is open.
                let _ = client.call(request).await;
                client
            });
            let outcome = opens.await;
            if let Some(file) = outcome.file {
                let mut second = world.second();
                second.write_at(file, 0, b"mine").await.unwrap();
                second.flush(file).await.unwrap();
            }
            world.back(replaces.await);
            if outcome.file.is_some() {
                let mut third = world.third();
                let found = third.create(&CreateArgs::open("f")).await.unwrap();
                assert_eq!(third.read_at(found, 0, 4).await.unwrap(), b"mine");
            }
            outcome.file.is_some()
        })
    });
    assert!(granted > 0 || std::env::var("SEED").is_ok());
}

#[test]
fn an_open_beside_a_rename_that_replaces_it() {
    replaced(|_, file| rename(file, "f", true));
}

#[test]
fn an_open_beside_a_link_that_replaces_it() {
    replaced(|_, file| link(file, "f", true));
}

/// A file that is deleted with its open below a renamed directory is deleted, wherever it is then.
fn below(args: fn() -> CreateArgs) {
    let granted = seeds(|world| {
        world.play(async |world| {
            let first = CreateArgs::create_directory("a");
            let directory = world.first().create(&first).await.unwrap();
            world.make("a\\f").await;
            let opens = beside(world, args().options(CreateOptions::DELETE_ON_CLOSE));
            let renames = world.apart(async move |mut client, world| {
                world.pause().await;
                // Refused while something below is open.
                let _ = client.call(rename(directory, "b", false)).await;
                client
            });
            let outcome = opens.await;
            world.back(renames.await);
            if let Some(file) = outcome.file {
                world.second().close(file).await.unwrap();
            }
            let mut third = world.third();
            for name in ["a\\f", "b\\f", "a\\new", "b\\new"] {
                let is_gone = outcome.file.is_some() && outcome.name.ends_with(&name[2..]);
                // A creation that was refused leaves nothing behind.
                let is_none = outcome.file.is_none() && name.ends_with("new");
                if is_gone || is_none {
                    let left = third.create(&looks(name)).await.map(drop);
                    assert!(left.is_err(), "{name} stays");
                }
            }
            outcome.file.is_some()
        })
    });
    assert!(granted > 0 || std::env::var("SEED").is_ok());
}

#[test]
fn an_open_beside_the_rename_of_a_directory_above() {
    below(|| CreateArgs::open("a\\f"));
}

#[test]
fn a_creation_beside_the_rename_of_a_directory_above() {
    below(|| CreateArgs::create("a\\new"));
}

#[test]
fn a_rename_by_an_open_beside_the_rename_of_its_file() {
    // The request that opened it knows its place: it can be moved again.
    seeds(|world| {
        world.play(async |world| {
            world.make("f").await;
            let file = world.first().create(&CreateArgs::open("f")).await.unwrap();
            let opens = beside(world, CreateArgs::open("f"));
            let renames = world.apart(async move |mut client, world| {
                world.pause().await;
                client.call(rename(file, "g", false)).await.unwrap();
                client
            });
            let outcome = opens.await;
            world.back(renames.await);
            if let Some(file) = outcome.file {
                world.second().call(rename(file, "h", false)).await.unwrap();
                world.third().create(&looks("h")).await.unwrap();
            }
            outcome.file.is_some()
        })
    });
}
