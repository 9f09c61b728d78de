//! Tables of oplocks: the breaks that a second opener causes, and the level that it is granted
//! ([MS-FSA] 2.1.4.12, 2.1.5.18, [MS-SMB2] 3.3.4.6, 3.3.5.9; the cases of smb2.oplock).
//! Acknowledgments and their errors are tested in `oplock_break.rs`.

use smb_client::{Break, CreateArgs, File, Request, Tree};
use smb_tests::{HoldfastServer, MEANWHILE, SOON, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::fscc::FileInformationClass;
use smb_wire::msg::{
    CreateDisposition, InfoType, LockElement, LockFlags, OplockLevel, ShareAccess, WriteFlags,
};

use crate::checks;

const NONE: OplockLevel = OplockLevel::NONE;
const II: OplockLevel = OplockLevel::II;
const EXCLUSIVE: OplockLevel = OplockLevel::EXCLUSIVE;
const BATCH: OplockLevel = OplockLevel::BATCH;

fn held(tree: &Tree, level: OplockLevel) -> File {
    let file = tree
        .create(&CreateArgs::open_if("f").oplock(level))
        .unwrap();
    assert_eq!(file.created().oplock_level, level);
    file
}

#[track_caller]
fn next(tree: &Tree, file: &File) -> OplockLevel {
    let broken = tree.client().next_break(SOON).unwrap();
    let Some(Break::Oplock { file_id, level }) = broken else {
        panic!("{broken:?}");
    };
    assert_eq!(file_id, file.id());
    level
}

#[track_caller]
fn none(tree: &Tree) {
    assert_eq!(tree.client().next_break(MEANWHILE / 3).unwrap(), None);
}

/// Asserts that the open of a second client breaks the oplock to a level, and ends with a status.
fn assert_broken(level: OplockLevel, args: &CreateArgs, to: OplockLevel, expected: Status) {
    let server = HoldfastServer::new();
    let (holder, other) = (server.tree(), server.tree());
    let file = held(&holder, level);
    let id = other.send(args.request()).unwrap();
    assert_eq!(next(&holder, &file), to, "{level:?} {args:?}");
    let mut connection = other.client().connection();
    assert!(!connection.answered(id, MEANWHILE / 3).unwrap());
    drop(connection);
    file.acknowledge_oplock(to).unwrap();
    let end = other.client().wait(id).unwrap().status();
    assert_eq!(end, expected, "{level:?} {args:?}");
    none(&holder);
}

/// Asserts that the open of a second client breaks nothing, and ends with a status.
fn assert_unbroken(level: OplockLevel, args: &CreateArgs, expected: Status) {
    let server = HoldfastServer::new();
    let (holder, other) = (server.tree(), server.tree());
    let _file = held(&holder, level);
    let end = other.reply(args.request()).unwrap().status();
    assert_eq!(end, expected, "{level:?} {args:?}");
    none(&holder);
}

#[test]
fn an_open_breaks_to_level_ii_and_an_overwrite_to_none() {
    for level in [EXCLUSIVE, BATCH] {
        for (disposition, to) in [
            (CreateDisposition::OPEN, II),
            (CreateDisposition::OPEN_IF, II),
            (CreateDisposition::OVERWRITE, NONE),
            (CreateDisposition::OVERWRITE_IF, NONE),
            (CreateDisposition::SUPERSEDE, NONE),
        ] {
            let args = CreateArgs::new("f", disposition);
            assert_broken(level, &args, to, Status::SUCCESS);
        }
    }
}

#[test]
fn an_open_that_collides_breaks_nothing() {
    for level in [EXCLUSIVE, BATCH] {
        let args = CreateArgs::create("f");
        assert_unbroken(level, &args, Status::OBJECT_NAME_COLLISION);
    }
}

#[test]
fn a_sharing_conflict_breaks_batch_alone() {
    // smb2.oplock.exclusive1, batch10 and similar tests: batch is broken before sharing is checked.
    let alone = CreateArgs::open("f").share(ShareAccess::empty());
    assert_unbroken(EXCLUSIVE, &alone, Status::SHARING_VIOLATION);
    assert_unbroken(II, &alone, Status::SHARING_VIOLATION);
    assert_broken(BATCH, &alone, II, Status::SHARING_VIOLATION);
}

#[test]
fn a_batch_holder_that_closes_resolves_the_conflict() {
    let server = HoldfastServer::new();
    let (holder, other) = (server.tree(), server.tree());
    let file = held(&holder, BATCH);
    let alone = CreateArgs::open("f").share(ShareAccess::empty());
    let id = other.send(alone.request()).unwrap();
    assert_eq!(next(&holder, &file), II);
    file.close().unwrap();
    other.client().wait(id).unwrap().ok().unwrap();
}

#[test]
fn an_attribute_only_open_breaks_nothing() {
    let stat = AccessMask::FILE_READ_ATTRIBUTES
        | AccessMask::FILE_WRITE_ATTRIBUTES
        | AccessMask::SYNCHRONIZE;
    for level in [II, EXCLUSIVE, BATCH] {
        let args = CreateArgs::open("f").access(stat);
        assert_unbroken(level, &args, Status::SUCCESS);
    }
}

#[test]
fn reading_the_descriptor_breaks_an_oplock() {
    // [MS-FSA] 2.1.4.12: READ_CONTROL is a stat open only beside leases.
    let args = CreateArgs::open("f").access(AccessMask::READ_CONTROL);
    for level in [EXCLUSIVE, BATCH] {
        assert_broken(level, &args, II, Status::SUCCESS);
    }
}

#[test]
fn a_second_opener_is_granted_level_ii_at_most() {
    for first in [NONE, II] {
        for (asked, given) in [(NONE, NONE), (II, II), (EXCLUSIVE, II), (BATCH, II)] {
            let server = HoldfastServer::new();
            let (holder, other) = (server.tree(), server.tree());
            held(&holder, first);
            let second = other.create(&CreateArgs::open("f").oplock(asked)).unwrap();
            assert_eq!(
                second.created().oplock_level,
                given,
                "{first:?}, then {asked:?}"
            );
        }
    }
}

/// Returns the open of `other`, which breaks the oplock of `file` to level II; its holder
/// acknowledges with `left`.
fn broken_by(holder: &Tree, file: &File, other: &Tree, left: OplockLevel) -> File {
    let id = other
        .send(CreateArgs::open("f").oplock(BATCH).request())
        .unwrap();
    assert_eq!(next(holder, file), II);
    file.acknowledge_oplock(left).unwrap();
    let reply = other.client().wait(id).unwrap().ok().unwrap();
    let second = other.file(&reply).unwrap();
    assert_eq!(second.created().oplock_level, II);
    second
}

fn a_third_writes(server: &HoldfastServer) {
    let third = server.tree();
    let writer = third.create(&CreateArgs::open("f")).unwrap();
    writer.write_all(0, b"x").unwrap();
}

#[test]
fn after_a_break_both_have_level_ii() {
    for level in [EXCLUSIVE, BATCH] {
        let server = HoldfastServer::new();
        let (holder, other) = (server.tree(), server.tree());
        let file = held(&holder, level);
        let second = broken_by(&holder, &file, &other, II);
        // A write of a third client breaks both without waiting.
        a_third_writes(&server);
        assert_eq!(next(&holder, &file), NONE);
        assert_eq!(next(&other, &second), NONE);
    }
}

#[test]
fn an_acknowledgement_with_none_leaves_the_second_level_ii() {
    let server = HoldfastServer::new();
    let (holder, other) = (server.tree(), server.tree());
    let file = held(&holder, BATCH);
    let second = broken_by(&holder, &file, &other, NONE);
    // The first client holds no oplock: a write of the third is reported only to the second.
    a_third_writes(&server);
    assert_eq!(next(&other, &second), NONE);
    none(&holder);
}

/// Asserts whether an operation of another handle breaks level II.
fn assert_level_ii(broken: bool, act: impl Fn(&File) -> Request) {
    let server = HoldfastServer::new();
    let (holder, other) = (server.tree(), server.tree());
    holder.write_file("f", &[7; 8192]).unwrap();
    let file = held(&holder, II);
    let theirs = other.create(&CreateArgs::open("f")).unwrap();
    none(&holder);
    // The operation never waits.
    other.call(act(&theirs)).unwrap();
    if broken {
        assert_eq!(next(&holder, &file), NONE);
        // There is nothing to acknowledge: OplockState is not Breaking (3.3.5.22.1 specifies the
        // first status, Windows and Samba return the second).
        let end = status(file.acknowledge_oplock(NONE));
        let refused = [
            Status::INVALID_DEVICE_STATE,
            Status::INVALID_OPLOCK_PROTOCOL,
        ];
        assert!(refused.contains(&end), "{end}");
    }
    none(&holder);
}

#[test]
fn changes_break_level_ii() {
    assert_level_ii(true, |file| {
        file.write_request(0, b"x", WriteFlags::empty())
    });
    assert_level_ii(true, |file| {
        let size = 100u64.to_le_bytes();
        let class = FileInformationClass::END_OF_FILE;
        file.set_info_request(InfoType::FILE, class.0, 0, &size)
    });
    assert_level_ii(true, |file| {
        let element = LockElement {
            offset: 0,
            length: 10,
            flags: LockFlags(0x12),
        };
        file.lock_request(0, &[element])
    });
}

#[test]
fn queries_do_not_break_level_ii() {
    assert_level_ii(false, |file| file.read_request(0, 10, 0));
    assert_level_ii(false, |file| file.flush_request(false));
    assert_level_ii(false, |file| {
        let class = FileInformationClass::DISPOSITION;
        file.set_info_request(InfoType::FILE, class.0, 0, &[1])
    });
    assert_level_ii(false, checks::hide);
}

#[test]
fn a_lock_that_is_refused_whatever_is_locked_breaks_nothing() {
    let server = HoldfastServer::new();
    let (holder, other) = (server.tree(), server.tree());
    holder.write_file("f", &[7; 8192]).unwrap();
    let _file = held(&holder, II);
    let theirs = other.create(&CreateArgs::open("f")).unwrap();
    none(&holder);
    let both = LockFlags::SHARED | LockFlags::EXCLUSIVE;
    let now = LockFlags::SHARED | LockFlags::FAIL_IMMEDIATELY;
    for (offset, flags, expected) in [
        (0, both, Status::INVALID_PARAMETER),
        (u64::MAX, now, Status::INVALID_LOCK_RANGE),
    ] {
        assert_eq!(status(theirs.lock(offset, 10, flags)), expected);
        none(&holder);
    }
}

#[test]
fn operations_of_the_holder_break_nothing() {
    let server = HoldfastServer::new();
    let holder = server.tree();
    for level in [EXCLUSIVE, BATCH] {
        let file = held(&holder, level);
        file.write_all(0, b"content").unwrap();
        file.read_all().unwrap();
        file.set_end_of_file(3).unwrap();
        file.lock(0, 10, LockFlags(0x12)).unwrap();
        file.unlock(0, 10).unwrap();
        file.flush(false).unwrap();
        file.rename("g", false).unwrap();
        file.rename("f", false).unwrap();
        none(&holder);
        file.close().unwrap();
    }
}

#[test]
fn another_handle_of_the_same_connection_breaks_it() {
    // An oplock has no key, so the second handle counts as another opener.
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = held(&tree, BATCH);
    let id = tree.send(CreateArgs::open("f").request()).unwrap();
    assert_eq!(next(&tree, &file), II);
    file.acknowledge_oplock(II).unwrap();
    tree.client().wait(id).unwrap().ok().unwrap();
}

#[test]
fn a_stream_has_an_oplock_of_its_own() {
    // smb2.oplock.stream1
    let server = HoldfastServer::new();
    let (holder, other) = (server.tree(), server.tree());
    holder.write_file("f:s", b"stream").unwrap();
    let base = held(&holder, BATCH);
    let args = CreateArgs::open("f:s").oplock(BATCH);
    let stream = other.create(&args).unwrap();
    assert_eq!(stream.created().oplock_level, BATCH);
    none(&holder);
    let id = holder.send(CreateArgs::open("f:s").request()).unwrap();
    assert_eq!(next(&other, &stream), II);
    none(&holder);
    stream.acknowledge_oplock(II).unwrap();
    holder.client().wait(id).unwrap().ok().unwrap();
    base.close().unwrap();
}

#[test]
fn directories_get_no_oplock() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.mkdir("d").unwrap();
    for level in [II, EXCLUSIVE, BATCH] {
        let args = CreateArgs::directory("d").oplock(level);
        let open = tree.create(&args).unwrap();
        assert_eq!(open.created().oplock_level, NONE, "{level:?}");
        open.close().unwrap();
    }
}

#[test]
fn several_waiting_opens_continue_together() {
    let server = HoldfastServer::new();
    let holder = server.tree();
    let file = held(&holder, BATCH);
    let others: Vec<_> = (0..4)
        .map(|_| {
            let tree = server.tree();
            let id = tree.send(CreateArgs::open("f").request()).unwrap();
            (tree, id)
        })
        .collect();
    assert_eq!(next(&holder, &file), II);
    file.acknowledge_oplock(II).unwrap();
    for (tree, id) in others {
        tree.client().wait(id).unwrap().ok().unwrap();
    }
    none(&holder);
}

#[test]
fn a_deeper_break_follows() {
    // An overwrite arrives while the break to level II is in progress.
    let server = HoldfastServer::new();
    let (holder, other, third) = (server.tree(), server.tree(), server.tree());
    let file = held(&holder, BATCH);
    let opening = other.send(CreateArgs::open("f").request()).unwrap();
    assert_eq!(next(&holder, &file), II);
    let overwrite = CreateArgs::new("f", CreateDisposition::OVERWRITE);
    let overwriting = third.send(overwrite.request()).unwrap();
    let mut connection = third.client().connection();
    assert!(!connection.answered(overwriting, MEANWHILE / 3).unwrap());
    drop(connection);
    // Level II was offered; meanwhile the server may require an acknowledgment with none.
    let end = status(file.acknowledge_oplock(II));
    assert!(
        [Status::SUCCESS, Status::REQUEST_NOT_ACCEPTED].contains(&end),
        "{end}"
    );
    other.client().wait(opening).unwrap().ok().unwrap();
    third.client().wait(overwriting).unwrap().ok().unwrap();
}
