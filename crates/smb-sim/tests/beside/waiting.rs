//! Changes of a name, or moves above it, while a rename or link to it waits; a FLUSH while a change of data waits; a
//! lease that is granted while a LOCK waits; a lock that is granted while a change of data waits; a rename to a name
//! whose removal waits.

use bytes::BytesMut;
use durability::Policy;
use smb_client::{CreateArgs, Created, Request};
use smb_sim::{MemoryOptions, Message, SimClient, write_request};
use smb_wire::{
    Status,
    access_mask::AccessMask,
    create_context::LeaseState,
    fscc::{DispositionFlags, FileBasicInformation, FileInformationClass},
    fsctl::{DuplicateExtents, FsctlCode, SetZeroData},
    ids::{FileId, FileTime, LeaseKey, MessageId},
    msg::{CreateOptions, FlushRequest, LockElement, LockFlags, LockRequest, OplockLevel},
};
use std::{sync::Arc, time::Duration};
use vfs::{
    Contents, Env, Identity, IoAccess, Paths,
    posix::{PosixOptions, PosixVfs},
    sim::{Cut, Profile, SimDisk, SimOp},
};

use crate::{
    held::Holds,
    world::{World, close, link, rename, set},
};

const PAUSE: Duration = Duration::from_millis(1);

/// Somebody holds the name by an oplock, moves away while others wait for it, and another one
/// comes there.
fn comes_meanwhile(by: fn(FileId, &str, bool) -> Request) {
    let mut world = World::new(6);
    world.play(async |world| {
        world.make("a").await;
        world.make("b").await;
        let holds = CreateArgs::open("b").oplock(OplockLevel::BATCH);
        let holder = world.first().create(&holds).await.unwrap();
        let file = world.second().create(&CreateArgs::open("a")).await.unwrap();
        let waits = world.second().send(by(file, "b", true)).unwrap();
        world.env.sleep(PAUSE).await;
        let away = rename(holder, "c", false);
        world.first().call(away).await.unwrap();
        let mut third = world.third();
        let came = third.create(&CreateArgs::create("b")).await.unwrap();
        third.write_at(came, 0, b"mine").await.unwrap();
        third.flush(came).await.unwrap();
        world.first().close(holder).await.unwrap();
        let answer = world.second().wait(waits).await.unwrap();
        assert_eq!(answer.status(), Status::ACCESS_DENIED, "it is open");
        let found = third.create(&CreateArgs::open("b")).await.unwrap();
        assert_eq!(third.read_at(found, 0, 4).await.unwrap(), b"mine");
        third.close(found).await.unwrap();
        third.close(came).await.unwrap();
        world.second().call(by(file, "b", true)).await.unwrap();
    });
}

#[test]
fn a_rename_replaces_nothing_that_came_while_it_waited() {
    comes_meanwhile(rename);
}

#[test]
fn a_link_replaces_nothing_that_came_while_it_waited() {
    comes_meanwhile(link);
}

/// The handle knows where its file is: what is acknowledged to go by it goes.
async fn goes_by(world: &World, file: FileId, names: &[&str]) {
    let mark = set(file, FileInformationClass::DISPOSITION, &[1]);
    world.second().call(mark).await.unwrap();
    world.second().close(file).await.unwrap();
    for name in names {
        let looks = CreateArgs::open(name).access(AccessMask::FILE_READ_ATTRIBUTES);
        let left = world.third().create(&looks).await.map(drop);
        assert!(left.is_err(), "{name} stays");
    }
}

async fn moves_directory(world: &World, from: &str, to: &str) {
    let opens = CreateArgs::open(from)
        .access(AccessMask::DELETE | AccessMask::FILE_READ_ATTRIBUTES)
        .options(CreateOptions::DIRECTORY_FILE);
    let mut third = world.third();
    let directory = third.create(&opens).await.unwrap();
    third.call(rename(directory, to, false)).await.unwrap();
    third.close(directory).await.unwrap();
}

#[test]
fn a_rename_into_a_directory_that_moves_while_it_waits() {
    let mut world = World::new(7);
    world.play(async |world| {
        let made = CreateArgs::create_directory("d");
        let made = world.first().create(&made).await.unwrap();
        world.first().close(made).await.unwrap();
        world.make("a").await;
        world.make("d\\b").await;
        let holds = CreateArgs::open("d\\b").oplock(OplockLevel::BATCH);
        let holder = world.first().create(&holds).await.unwrap();
        let file = world.second().create(&CreateArgs::open("a")).await.unwrap();
        let waits = world.second().send(rename(file, "d\\b", true)).unwrap();
        world.env.sleep(PAUSE).await;
        let away = rename(holder, "c", false);
        world.first().call(away).await.unwrap();
        moves_directory(world, "d", "e").await;
        world.first().close(holder).await.unwrap();
        let answer = world.second().wait(waits).await.unwrap();
        assert_eq!(answer.status(), Status::OBJECT_PATH_NOT_FOUND);
        goes_by(world, file, &["a", "e\\b"]).await;
    });
}

/// The directory moves when the rename is on its way to the disk already. Where renames are not atomic,
/// the move of a directory would be made stable before its answer, and wait for the other to end.
fn moves_beneath(what: CreateArgs) {
    let options = MemoryOptions {
        profile: Profile::Journal,
        ..MemoryOptions::default()
    };
    let mut world = World::under(8, options);
    world.play(async |world| {
        let made = CreateArgs::create_directory("d");
        let made = world.first().create(&made).await.unwrap();
        world.first().close(made).await.unwrap();
        let file = world.second().create(&what).await.unwrap();
        let holds = Holds::begin(world, &[SimOp::Change]);
        let waits = world.second().send(rename(file, "d\\b", false)).unwrap();
        holds.held(world, 1).await;
        moves_directory(world, "d", "e").await;
        holds.release();
        let answer = world.second().wait(waits).await.unwrap();
        assert_eq!(answer.status(), Status::SUCCESS);
        goes_by(world, file, &["a", "e\\b"]).await;
    });
}

#[test]
fn a_rename_of_a_file_into_a_directory_that_moves_beneath_it() {
    moves_beneath(CreateArgs::create("a"));
}

#[test]
fn a_rename_of_a_directory_into_one_that_moves_beneath_it() {
    let access = AccessMask::DELETE | AccessMask::FILE_READ_ATTRIBUTES;
    moves_beneath(CreateArgs::create_directory("a").access(access));
}

async fn content(disk: SimDisk, path: &[&str]) -> Option<BytesMut> {
    let (me, options) = (Identity::Service, PosixOptions::default());
    let vfs = PosixVfs::new(disk, options).await.unwrap();
    let path: Vec<String> = path.iter().map(|&name| name.to_owned()).collect();
    let (node, _) = vfs.lookup(&me, &path).await.ok()?.found?;
    let access = IoAccess {
        read: true,
        write: false,
    };
    let node = vfs.open(&me, &node, access).await.unwrap();
    Some(vfs.read(&node, 0, 4, BytesMut::new()).await.unwrap())
}

/// t was flushed in b, and has another name in a that is not on disk; a link replaces that in b
/// while b is being synced.
#[test]
fn what_a_link_replaces_beside_a_sync_of_its_directory_keeps_its_other_name() {
    let mut world = World::new(9);
    world.play(async |world| {
        for name in ["a", "b"] {
            let made = CreateArgs::create_directory(name);
            let made = world.first().create(&made).await.unwrap();
            world.first().close(made).await.unwrap();
        }
        world.make("g").await;
        let mut first = world.first();
        let kept = first.create(&CreateArgs::create("b\\t")).await.unwrap();
        first.write_at(kept, 0, b"kept").await.unwrap();
        first.flush(kept).await.unwrap();
        first.call(link(kept, "a\\t", false)).await.unwrap();
        first.close(kept).await.unwrap();
        let other = first.create(&CreateArgs::open("g")).await.unwrap();
        let mut third = world.third();
        let beside = third.create(&CreateArgs::create("b\\h")).await.unwrap();
        third.write_at(beside, 0, b"here").await.unwrap();
        let holds = Holds::begin(world, &[SimOp::Sync, SimOp::Sync]);
        let flush = FlushRequest {
            reserved: 0,
            file_id: beside,
        };
        let flush = third.send(Request::new(&flush)).unwrap();
        holds.held(world, 1).await;
        // The file itself; then its directory.
        holds.release();
        holds.held(world, 2).await;
        let links = first.send(link(other, "b\\t", true)).unwrap();
        world.env.sleep(PAUSE).await;
        holds.release();
        third.wait(flush).await.unwrap().ok().unwrap();
        let answer = first.wait(links).await.unwrap();
        assert_eq!(answer.status(), Status::SUCCESS);
        let left = world.server.cut_power(Cut::Nothing);
        let (old, new) = (
            content(left.clone(), &["b", "t"]).await,
            content(left, &["a", "t"]).await,
        );
        let is_kept = |found: Option<BytesMut>| found.is_some_and(|found| &found[..] == b"kept");
        assert!(is_kept(old) || is_kept(new), "what was flushed is lost");
    });
}

/// A rename replaces t while a close that removes this name waits for its turn.
#[test]
fn a_close_whose_name_a_rename_takes_is_answered_when_it_is_gone_for_good() {
    let memory = MemoryOptions {
        policy: Policy::StrictSync,
        ..MemoryOptions::default()
    };
    World::under(12, memory).play(async |world| {
        world.make("t").await;
        let (mut first, mut second) = (world.first(), world.second());
        let file = first.create(&CreateArgs::create("g")).await.unwrap();
        first.write_at(file, 0, b"kept").await.unwrap();
        // The rename itself, then the sync that makes it stable.
        let holds = Holds::begin(world, &[SimOp::Change, SimOp::Sync]);
        let renames = first.send(rename(file, "t", true)).unwrap();
        holds.held(world, 1).await;
        let closes = deletes(&mut second, "t").await;
        world.env.sleep(PAUSE).await;
        holds.release();
        holds.held(world, 2).await;
        let released = released_later(world, &holds);
        let closed = second.wait(closes).await.unwrap();
        assert_eq!(closed.status(), Status::SUCCESS);
        let left = world.server.cut_power(Cut::Nothing);
        let found = content(left, &["t"]).await;
        assert_ne!(found.as_deref(), Some(&b"none"[..]), "the file is back");
        released.await;
        let renamed = first.wait(renames).await.unwrap();
        assert_eq!(renamed.status(), Status::SUCCESS);
    });
}

/// Sends the close that is to delete a name with POSIX semantics.
async fn deletes(client: &mut SimClient, name: &str) -> MessageId {
    let deletes = CreateArgs::open(name).access(AccessMask::DELETE);
    let marked = client.create(&deletes).await.unwrap();
    let posix = DispositionFlags::DELETE | DispositionFlags::POSIX_SEMANTICS;
    let mark = posix.bits().to_le_bytes();
    let mark = set(marked, FileInformationClass::DISPOSITION_EX, &mark);
    client.call(mark).await.unwrap();
    client.send(close(marked)).unwrap()
}

/// The file t, which is also u, loses the name t to g while a close that is to remove this name is under way. `kinds`
/// are the operations of the request by which g gets the name that are held, one after the other.
fn closes_beside_its_replacement(by: fn(FileId, &str, bool) -> Request, kinds: &[SimOp]) {
    World::new(15).play(async |world| {
        world.make("t").await;
        let (mut first, mut second) = (world.first(), world.second());
        let file = first.create(&CreateArgs::open("t")).await.unwrap();
        first.call(link(file, "u", false)).await.unwrap();
        first.close(file).await.unwrap();
        let file = first.create(&CreateArgs::create("g")).await.unwrap();
        let holds = Holds::begin(world, kinds);
        let replaces = first.send(by(file, "t", true)).unwrap();
        holds.held(world, 1).await;
        let closes = deletes(&mut second, "t").await;
        for number in 1..=kinds.len() {
            holds.held(world, number).await;
            world.env.sleep(PAUSE).await;
            holds.release();
        }
        let closed = second.wait(closes).await.unwrap();
        assert_eq!(closed.status(), Status::SUCCESS);
        let replaced = first.wait(replaces).await.unwrap();
        assert_eq!(replaced.status(), Status::SUCCESS);
        let left = content(world.server.disk.clone(), &["u"]).await;
        assert_eq!(left.as_deref(), Some(&b"none"[..]));
    });
}

#[test]
fn a_close_has_nothing_left_to_remove_where_a_rename_takes_the_name_of_a_file_with_two() {
    closes_beside_its_replacement(rename, &[SimOp::Change]);
}

/// The link and the rename over the old name, then looks, until the name is another file's and only the disk knows.
#[test]
fn a_close_has_nothing_left_to_remove_where_a_link_takes_the_name_of_a_file_with_two() {
    let kinds = [SimOp::Change, SimOp::Answer, SimOp::Look, SimOp::Look];
    closes_beside_its_replacement(link, &kinds);
}

/// The second client opens `t` by a handle that keeps the times of the file, so that changes take turns.
async fn keeps_times(world: &World) -> FileId {
    let all = CreateArgs::open("t").access(AccessMask::FILE_ALL_ACCESS);
    let keeper = world.second().create(&all).await.unwrap();
    let mut times = BytesMut::new();
    FileBasicInformation {
        last_write_time: FileTime(133_000_000_000_000_000),
        ..FileBasicInformation::default()
    }
    .encode(&mut times);
    let keep = set(keeper, FileInformationClass::BASIC, &times);
    world.second().call(keep).await.unwrap();
    keeper
}

/// `change` is sent and then a FLUSH, while a write of "have" has the turn. `left` is the content that the FLUSH
/// promises.
fn flush_covers(change: fn(FileId) -> Request, left: &'static [u8]) {
    let mut world = World::new(10);
    world.play(async |world| {
        world.make("t").await;
        let keeper = keeps_times(world).await;
        let mut third = world.third();
        let file = third.create(&CreateArgs::open("t")).await.unwrap();
        // The write that has the turn, and its times.
        let holds = Holds::begin(world, &[SimOp::Write, SimOp::Change]);
        let before = write_request(keeper, 0, b"have");
        let before = world.second().send(before).unwrap();
        holds.held(world, 1).await;
        let waits = third.send(change(file)).unwrap();
        world.env.sleep(PAUSE).await;
        let flush = FlushRequest {
            reserved: 0,
            file_id: file,
        };
        let flush = third.send(Request::new(&flush)).unwrap();
        holds.release();
        holds.held(world, 2).await;
        let released = released_later(world, &holds);
        third.wait(flush).await.unwrap().ok().unwrap();
        released.await;
        third.wait(waits).await.unwrap().ok().unwrap();
        let answer = world.second().wait(before).await.unwrap();
        assert_eq!(answer.status(), Status::SUCCESS);
        let disk = world.server.cut_power(Cut::Nothing);
        let found = content(disk, &["t"]).await.unwrap();
        assert_eq!(&found[..], left);
    });
}

#[test]
fn a_flush_covers_a_write_that_waits_for_its_turn() {
    flush_covers(|file| write_request(file, 0, b"kept"), b"kept");
}

#[test]
fn a_flush_covers_a_truncation_that_waits_for_its_turn() {
    let two = |file| set(file, FileInformationClass::END_OF_FILE, &2u64.to_le_bytes());
    flush_covers(two, b"ha");
}

fn locks(file_id: FileId, flags: LockFlags) -> Request {
    let (offset, length) = (0, 10);
    Request::new(&LockRequest {
        lock_sequence: 0,
        file_id,
        locks: vec![LockElement {
            offset,
            length,
            flags,
        }],
    })
}

/// `change` of the first file, which may read the second one, is sent while a write of "have" has the turn, and then
/// the range is locked.
fn locked_out(change: fn(FileId, FileId) -> Request) {
    let mut world = World::new(11);
    world.play(async |world| {
        world.make("t").await;
        world.make("g").await;
        let keeper = keeps_times(world).await;
        let mut third = world.third();
        let file = third.create(&CreateArgs::open("t")).await.unwrap();
        let source = third.create(&CreateArgs::open("g")).await.unwrap();
        let holds = Holds::begin(world, &[SimOp::Write]);
        let before = write_request(keeper, 0, b"have");
        let before = world.second().send(before).unwrap();
        holds.held(world, 1).await;
        let waits = third.send(change(file, source)).unwrap();
        world.env.sleep(PAUSE).await;
        let mut first = world.first();
        let locked = first.create(&CreateArgs::open("t")).await.unwrap();
        let lock = locks(locked, LockFlags::EXCLUSIVE);
        first.call(lock).await.unwrap();
        holds.release();
        let written = world.second().wait(before).await.unwrap();
        assert_eq!(written.status(), Status::SUCCESS);
        let refused = third.wait(waits).await.unwrap();
        assert_eq!(refused.status(), Status::FILE_LOCK_CONFLICT);
        assert_eq!(first.read_at(locked, 0, 4).await.unwrap(), b"have");
    });
}

#[test]
fn a_lock_keeps_out_a_write_that_waits_for_its_turn() {
    locked_out(|file, _| write_request(file, 0, b"late"));
}

#[test]
fn a_lock_keeps_out_zeros_that_wait_for_their_turn() {
    locked_out(|file, _| {
        let mut input = BytesMut::new();
        SetZeroData {
            file_offset: 0,
            beyond_final_zero: 4,
        }
        .encode(&mut input);
        Request::ioctl(file, FsctlCode::SET_ZERO_DATA, &input, 0)
    });
}

#[test]
fn a_lock_keeps_out_shared_extents_that_wait_for_their_turn() {
    locked_out(|file, source_file_id| {
        let mut input = BytesMut::new();
        DuplicateExtents {
            source_file_id,
            source_file_offset: 0,
            target_file_offset: 0,
            byte_count: 4,
        }
        .encode(&mut input);
        Request::ioctl(file, FsctlCode::DUPLICATE_EXTENTS_TO_FILE, &input, 0)
    });
}

#[test]
fn a_lock_breaks_what_was_cached_while_it_waited() {
    let mut world = World::new(25);
    world.play(async |world| {
        let (mut first, mut second) = (world.first(), world.second());
        let file = first.create(&CreateArgs::create("t")).await.unwrap();
        first.call(locks(file, LockFlags::EXCLUSIVE)).await.unwrap();
        let other = second.create(&CreateArgs::open("t")).await.unwrap();
        let waits = second.send(locks(other, LockFlags::EXCLUSIVE)).unwrap();
        world.env.sleep(PAUSE).await;
        // The file is empty, so the range that is locked keeps nobody from caching it.
        let mut third = world.third();
        let reads = CreateArgs::open("t")
            .access(AccessMask::FILE_GENERIC_READ)
            .lease(LeaseKey([3; 16]), LeaseState::READ);
        let opened = third.call(reads.request()).await.unwrap();
        let lease = Created::read(&opened.message).unwrap().lease().unwrap();
        assert_eq!(lease.lease_state, LeaseState::READ);
        first.call(locks(file, LockFlags::UNLOCK)).await.unwrap();
        let locked = second.wait(waits).await.unwrap();
        assert_eq!(locked.status(), Status::SUCCESS);
        world.env.sleep(PAUSE).await;
        let broken = third.next_message().unwrap();
        assert!(matches!(broken, Some(Message::Break(_))));
    });
}

/// Releases what is held after a while; completes then.
fn released_later(world: &World, holds: &Holds) -> impl Future<Output = ()> + use<> {
    let (later, env) = (holds.clone(), Arc::clone(&world.env));
    world.env.start(async move {
        env.sleep(PAUSE * 10).await;
        later.release();
    })
}
