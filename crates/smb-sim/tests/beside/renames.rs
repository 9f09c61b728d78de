//! Renames beside each other: each is of what its handle has open, wherever that is by then, and
//! none stands in the way of who has to do with neither of its names.

use smb_client::CreateArgs;
use smb_wire::ids::FileId;

use crate::{
    seeds,
    world::{World, rename},
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

#[test]
fn a_file_and_directories_elsewhere() {
    seeds(|world| {
        world.play(async |world| {
            let args = CreateArgs::create_directory("d");
            let mine = world.first().create(&args).await.unwrap();
            let theirs = world
                .second()
                .create(&CreateArgs::create("f"))
                .await
                .unwrap();
            both(world, [mine, theirs], [&["e", "d"], &["g", "f"]]).await;
            true
        })
    });
}
