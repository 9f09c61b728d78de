//! A CREATE or a list of attributes that is refused after it changed the disk: nothing of it stays, and what others did
//! meanwhile does.

use std::time::Duration;

use smb_client::{CreateArgs, Request};
use smb_sim::SHARE;
use smb_wire::{
    Status,
    access_mask::AccessMask,
    create_context::name,
    fscc::{EaEntry, FileInformationClass, encode_ea_list},
    ids::{FileId, MessageId},
    msg::{CreateDisposition, TreeDisconnectRequest},
};
use vfs::{
    ClientAttributes, Env, Identity, Paths,
    sim::{Fault, FaultAction, SimOp},
};

use crate::{
    held::{Holds, gets_second_name},
    looks,
    world::{World, link, set},
};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// The change of the disk after so many others fails.
fn fails(world: &World, after: u64, errno: i32) {
    assert!(world.server.disk.inject(Fault {
        on: SimOp::Change,
        after,
        action: FaultAction::Fail(errno),
    }));
}

#[test]
fn a_file_made_on_a_tree_that_ends_meanwhile_is_removed() {
    let mut world = World::new(31);
    world.play(async |world| {
        let holds = Holds::begin(world, &[SimOp::Change]);
        let mut second = world.second();
        let opens = second.send(CreateArgs::create("f").request()).unwrap();
        holds.held(world, 1).await;
        let ends = Request::new(&TreeDisconnectRequest);
        second.call(ends).await.unwrap();
        holds.release();
        let opened = second.wait(opens).await.unwrap();
        assert_eq!(opened.status(), Status::NETWORK_NAME_DELETED);
        let left = world.third().create(&looks("f")).await.unwrap_err();
        assert_eq!(left.status(), Some(Status::OBJECT_NAME_NOT_FOUND));
    });
}

#[test]
fn a_link_that_would_only_change_the_case_of_its_name_fails_with_the_disk() {
    let mut world = World::new(37);
    world.play(async |world| {
        world.make("f").await;
        let mut first = world.first();
        let file = first.create(&CreateArgs::open("f")).await.unwrap();
        fails(world, 0, EIO);
        let refused = first.call(link(file, "F", true)).await;
        assert!(
            refused.is_err(),
            "clients would list a name that is not there"
        );
        first.call(link(file, "F", true)).await.unwrap();
    });
}

#[test]
fn a_file_made_on_a_tree_that_ends_meanwhile_stays_with_the_data_of_others() {
    let mut world = World::new(34);
    world.play(async |world| {
        // The creation itself, then the look after it.
        let holds = Holds::begin(world, &[SimOp::Change, SimOp::Look]);
        let mut second = world.second();
        let opens = second.send(CreateArgs::create("f").request()).unwrap();
        holds.held(world, 1).await;
        holds.release();
        holds.held(world, 2).await;
        let mut third = world.third();
        assert!(gets_second_name(world, "f").await);
        let file = third.create(&CreateArgs::open("u")).await.unwrap();
        third.write_at(file, 0, b"mine").await.unwrap();
        third.close(file).await.unwrap();
        let ends = Request::new(&TreeDisconnectRequest);
        second.call(ends).await.unwrap();
        holds.release();
        let opened = second.wait(opens).await.unwrap();
        assert_ne!(opened.status(), Status::SUCCESS);
        let there = third.create(&CreateArgs::open("f")).await.unwrap();
        assert_eq!(third.read_at(there, 0, 4).await.unwrap(), b"mine");
    });
}

#[test]
fn a_stream_that_fails_leaves_no_file_made_for_it() {
    let mut world = World::new(32);
    world.play(async |world| {
        let mut refused = 0;
        // Each change of the disk fails once, the last ones after the file was made.
        for after in 0..16 {
            let name = format!("f{after}");
            fails(world, after, EIO);
            let args = CreateArgs::create(&format!("{name}:s"));
            let made = world.second().create(&args).await;
            world.server.disk.clear_faults();
            if let Ok(file) = made {
                world.second().close(file).await.unwrap();
                continue;
            }
            refused += 1;
            let left = world.third().create(&looks(&name)).await.unwrap_err();
            assert_eq!(
                left.status(),
                Some(Status::OBJECT_NAME_NOT_FOUND),
                "{after}"
            );
        }
        assert!(refused > 1, "{refused}");
    });
}

#[test]
fn an_overwrite_that_finds_no_space_leaves_the_file_as_it_was() {
    let mut world = World::new(33);
    world.play(async |world| {
        let mut emptied = 0;
        // Each change of the disk fails once, the last ones after the file was emptied.
        for after in 0..8 {
            let file = format!("f{after}");
            world.make(&file).await;
            fails(world, after, ENOSPC);
            let size = 8192_u64.to_le_bytes();
            let args = CreateArgs::new(&file, CreateDisposition::OVERWRITE)
                .context(name::ALLOCATION_SIZE, &size);
            let opened = world.second().create(&args).await;
            world.server.disk.clear_faults();
            if let Ok(opened) = opened {
                emptied += 1;
                world.second().close(opened).await.unwrap();
                continue;
            }
            let mut third = world.third();
            let there = third.create(&CreateArgs::open(&file)).await.unwrap();
            assert_eq!(
                third.read_at(there, 0, 4).await.unwrap(),
                b"none",
                "{after}"
            );
            third.close(there).await.unwrap();
        }
        assert!((1..8).contains(&emptied), "{emptied}");
    });
}

/// The list is refused after its first attribute was stored, which another client sets meanwhile: through the file, or
/// through a stream of it.
#[test]
fn a_list_of_attributes_that_is_refused_takes_nothing_of_others_along() {
    for through in ["t", "t:s"] {
        let mut world = World::new(35);
        world.play(async |world| refuse_a_list(world, through).await);
    }
}

async fn refuse_a_list(world: &World, through: &str) {
    world.make("t").await;
    let all = |name: &str| CreateArgs::open_if(name).access(AccessMask::FILE_ALL_ACCESS);
    let mine = world.second().create(&all("t")).await.unwrap();
    let other = world.third().create(&all(through)).await.unwrap();
    let holds = Holds::begin(world, &[SimOp::Change, SimOp::Change]);
    let refused = set(mine, FileInformationClass::FULL_EA, &too_long());
    let refused = world.second().send(refused).unwrap();
    holds.held(world, 1).await;
    holds.release();
    holds.held(world, 2).await;
    set_beside(world, other, &holds, refused).await;
}

/// A list of two attributes; the inode has no room for the second one.
fn too_long() -> Vec<u8> {
    let list = [EaEntry::new("X", "1"), EaEntry::new("Y", vec![0; 5000])];
    encode_ea_list(&list, 8192).0.to_vec()
}

/// Another client sets an attribute while a list that will be `refused` is held at its last change: its value stays.
async fn set_beside(world: &World, other: FileId, holds: &Holds, refused: MessageId) {
    let (short, _) = encode_ea_list(&[EaEntry::new("X", "2")], 8192);
    let kept = set(other, FileInformationClass::FULL_EA, &short);
    let kept = world.third().send(kept).unwrap();
    world.env.sleep(Duration::from_millis(1)).await;
    holds.release();
    let answer = world.second().wait(refused).await.unwrap();
    assert_eq!(answer.status(), Status::EA_TOO_LARGE);
    let answer = world.third().wait(kept).await.unwrap();
    assert_eq!(answer.status(), Status::SUCCESS);
    assert_eq!(values(world).await, [b"2".to_vec()]);
}

/// The same with the list of a CREATE that overwrites, which stores the DOS attributes before it.
#[test]
fn an_overwrite_that_is_refused_takes_no_attribute_of_others_along() {
    let mut world = World::new(36);
    world.play(async |world| {
        world.make("t").await;
        let all = CreateArgs::open("t").access(AccessMask::FILE_ALL_ACCESS);
        let other = world.third().create(&all).await.unwrap();
        let holds = Holds::begin(world, &[SimOp::Change; 3]);
        let refused = CreateArgs::new("t", CreateDisposition::OVERWRITE)
            .context(name::EXTENDED_ATTRIBUTES, &too_long());
        let refused = world.second().send(refused.request()).unwrap();
        for number in 1..3 {
            holds.held(world, number).await;
            holds.release();
        }
        holds.held(world, 3).await;
        set_beside(world, other, &holds, refused).await;
    });
}

/// The values of the extended attributes of `t`.
async fn values(world: &World) -> Vec<Vec<u8>> {
    let shares = world.server.server.shares();
    let share = shares.find(SHARE).unwrap();
    let path = ["t".to_owned()];
    let found = share.vfs.lookup(&Identity::Service, &path).await.unwrap();
    let (node, _) = found.found.unwrap();
    let eas = share.vfs.eas(&node).await.unwrap();
    eas.into_iter().map(|(_, value)| value).collect()
}
