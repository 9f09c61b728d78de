//! Repeated lock requests ([MS-SMB2] 3.3.5.14, .1, .2): the opens for which LockSequenceNumber is
//! verified, and the numbers that are recorded.

use bytes::BytesMut;
use smb_client::{CreateArgs, File, Options, Tree};
use smb_tests::durable::{granted_v1, v1, v2, v2_again};
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::fsctl::{FsctlCode, LmrRequestResiliency};
use smb_wire::ids::Guid;
use smb_wire::msg::{Capabilities, Dialect, LockElement, LockFlags, OplockLevel};

const CREATE_GUID: Guid = Guid([0x44; 16]);
const EXCLUSIVE: LockFlags = LockFlags(0x12);

/// Connects a client with a dialect; each ClientGuid is limited to one dialect (3.3.5.5.3).
fn of(server: &HoldfastServer, dialect: Dialect) -> Tree {
    let guid = Guid([dialect.0.to_le_bytes()[0]; 16]);
    server.tree_with(Options::dialect(dialect).guid(guid))
}

fn modern(server: &HoldfastServer) -> Tree {
    of(server, Dialect::SMB_3_1_1)
}

fn open(tree: &Tree) -> File {
    tree.create(&CreateArgs::open_if("f")).unwrap()
}

/// Returns the LockSequence of an index and a number.
fn at(index: u32, number: u32) -> u32 {
    (index << 4) | number
}

fn act(file: &File, sequence: u32, flags: LockFlags) -> Status {
    let element = LockElement {
        offset: 0,
        length: 10,
        flags,
    };
    status(file.tree().call(file.lock_request(sequence, &[element])))
}

/// Sends an exclusive lock of one range; a second execution conflicts with the first.
fn lock(file: &File, sequence: u32) -> Status {
    act(file, sequence, EXCLUSIVE)
}

/// Sends the unlock of the range; a second execution finds nothing to unlock.
fn unlock(file: &File, sequence: u32) -> Status {
    act(file, sequence, LockFlags::UNLOCK)
}

const DONE: Status = Status::SUCCESS;
const LOCKED: Status = Status::LOCK_NOT_GRANTED;
const UNLOCKED: Status = Status::RANGE_NOT_LOCKED;

#[test]
fn a_repeated_lock_is_not_executed_again() {
    let server = HoldfastServer::new();
    let file = open(&modern(&server));
    assert_eq!(lock(&file, at(1, 1)), DONE);
    for _ in 0..3 {
        assert_eq!(lock(&file, at(1, 1)), DONE);
    }
    // It was executed once: one unlock releases the range.
    assert_eq!(unlock(&file, at(2, 1)), DONE);
    assert_eq!(unlock(&file, 0), UNLOCKED);
}

#[test]
fn a_repeated_unlock_is_not_executed_again() {
    let server = HoldfastServer::new();
    let file = open(&modern(&server));
    assert_eq!(lock(&file, at(1, 1)), DONE);
    assert_eq!(unlock(&file, at(1, 2)), DONE);
    assert_eq!(unlock(&file, at(1, 2)), DONE);
    assert_eq!(unlock(&file, at(1, 3)), UNLOCKED);
}

#[test]
fn another_number_is_another_request() {
    let server = HoldfastServer::new();
    let file = open(&modern(&server));
    assert_eq!(lock(&file, at(1, 1)), DONE);
    assert_eq!(lock(&file, at(1, 2)), LOCKED);
    // This replaced the entry, so the first number counts as new again.
    assert_eq!(lock(&file, at(1, 1)), LOCKED);
}

#[test]
fn a_failed_request_is_not_recorded() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let (file, other) = (open(&tree), open(&tree));
    assert_eq!(lock(&other, 0), DONE);
    assert_eq!(lock(&file, at(5, 5)), LOCKED);
    assert_eq!(lock(&file, at(5, 5)), LOCKED);
    assert_eq!(unlock(&other, 0), DONE);
    assert_eq!(lock(&file, at(5, 5)), DONE);
    assert_eq!(lock(&file, at(5, 5)), DONE);
    assert_eq!(lock(&other, 0), LOCKED);
}

#[test]
fn every_index_from_1_to_64_is_recorded_separately() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let file = open(&tree);
    let element = |index: u32| LockElement {
        offset: u64::from(index) * 100,
        length: 10,
        flags: EXCLUSIVE,
    };
    let locks = |index: u32, number: u32| {
        let request = file.lock_request(at(index, number), &[element(index)]);
        status(tree.call(request))
    };
    for round in 0..2 {
        for index in 1..=64 {
            assert_eq!(locks(index, index % 16), DONE, "{index} in round {round}");
        }
    }
}

#[test]
fn index_0_and_indexes_beyond_64_are_not_recorded() {
    let server = HoldfastServer::new();
    let file = open(&modern(&server));
    for index in [0, 65, 66, 0x0fff_ffff] {
        assert_eq!(lock(&file, at(index, 3)), DONE, "{index}");
        assert_eq!(lock(&file, at(index, 3)), LOCKED, "{index}");
        assert_eq!(unlock(&file, at(index, 3)), DONE, "{index}");
        assert_eq!(unlock(&file, at(index, 3)), UNLOCKED, "{index}");
    }
}

#[test]
fn every_open_has_its_own_sequences() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let (file, other) = (open(&tree), open(&tree));
    assert_eq!(lock(&file, at(1, 1)), DONE);
    assert_eq!(lock(&other, at(1, 1)), LOCKED);
}

#[test]
fn without_multichannel_a_plain_open_has_no_sequences() {
    // 2.1 has no multichannel capability, and a server of 3.x need not announce it.
    let server = HoldfastServer::new();
    let tree = of(&server, Dialect::SMB_2_1);
    let file = open(&tree);
    assert_eq!(lock(&file, at(1, 1)), DONE);
    assert_eq!(lock(&file, at(1, 1)), LOCKED);
    drop((file, tree));
    let options = Options {
        capabilities: Capabilities::LARGE_MTU,
        ..Options::default()
    };
    let tree = server.tree_with(options);
    let capabilities = tree.client().negotiated().capabilities;
    assert!(!capabilities.contains(Capabilities::MULTI_CHANNEL));
    let file = tree.create(&CreateArgs::open_if("g")).unwrap();
    assert_eq!(lock(&file, at(1, 1)), DONE);
    assert_eq!(lock(&file, at(1, 1)), LOCKED);
}

#[test]
fn a_durable_open_has_sequences_on_2_1() {
    let server = HoldfastServer::new();
    let tree = of(&server, Dialect::SMB_2_1);
    let batch = CreateArgs::open_if("f").oplock(OplockLevel::BATCH);
    let file = tree.create(&v1(batch)).unwrap();
    assert!(granted_v1(&file));
    assert_eq!(lock(&file, at(1, 1)), DONE);
    assert_eq!(lock(&file, at(1, 1)), DONE);
    assert_eq!(lock(&file, at(1, 2)), LOCKED);
}

#[test]
fn a_resilient_open_has_sequences_on_2_1() {
    let server = HoldfastServer::new();
    let tree = of(&server, Dialect::SMB_2_1);
    let file = open(&tree);
    let mut input = BytesMut::new();
    LmrRequestResiliency { timeout_ms: 1000 }.encode(&mut input);
    file.ioctl(FsctlCode::LMR_REQUEST_RESILIENCY, &input, 0)
        .unwrap();
    assert_eq!(lock(&file, at(1, 1)), DONE);
    assert_eq!(lock(&file, at(1, 1)), DONE);
    assert_eq!(lock(&file, at(1, 2)), LOCKED);
}

#[test]
fn smb_2_0_2_has_no_sequences() {
    let server = HoldfastServer::new();
    let tree = of(&server, Dialect::SMB_2_0_2);
    let batch = CreateArgs::open_if("f").oplock(OplockLevel::BATCH);
    let file = tree.create(&v1(batch)).unwrap();
    assert!(granted_v1(&file));
    assert_eq!(lock(&file, at(1, 1)), DONE);
    assert_eq!(lock(&file, at(1, 1)), LOCKED);
}

#[test]
fn a_sequence_survives_a_lost_connection() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let batch = || CreateArgs::open_if("f").oplock(OplockLevel::BATCH);
    let file = tree.create(&v2(batch(), CREATE_GUID, 0)).unwrap();
    assert_eq!(lock(&file, at(9, 4)), DONE);
    server.lose(&tree);
    let tree = modern(&server);
    let again = v2_again(batch(), file.id(), CREATE_GUID);
    let file = tree.create(&again).unwrap();
    assert_eq!(lock(&file, at(9, 4)), DONE);
    assert_eq!(unlock(&file, at(9, 5)), DONE);
    assert_eq!(unlock(&file, 0), UNLOCKED);
}

#[test]
fn several_locks_of_one_request_have_one_sequence() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let (file, other) = (open(&tree), open(&tree));
    let element = |offset, flags| LockElement {
        offset,
        length: 10,
        flags,
    };
    let both = [element(0, EXCLUSIVE), element(100, EXCLUSIVE)];
    tree.call(file.lock_request(at(1, 1), &both)).unwrap();
    tree.call(file.lock_request(at(1, 1), &both)).unwrap();
    // The content of a repeated request is ignored.
    let one = [element(500, EXCLUSIVE)];
    tree.call(file.lock_request(at(1, 1), &one)).unwrap();
    other.lock(500, 10, EXCLUSIVE).unwrap();
}

#[test]
fn a_lock_that_was_pending_is_recorded() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let (file, other) = (open(&tree), open(&tree));
    assert_eq!(lock(&other, 0), DONE);
    let waits = LockElement {
        offset: 0,
        length: 10,
        flags: LockFlags::EXCLUSIVE,
    };
    let id = tree.send(file.lock_request(at(3, 3), &[waits])).unwrap();
    assert!(tree.client().wait_pending(id).unwrap().is_some());
    assert_eq!(unlock(&other, 0), DONE);
    tree.client().wait(id).unwrap().ok().unwrap();
    assert_eq!(lock(&file, at(3, 3)), DONE);
    assert_eq!(unlock(&file, 0), DONE);
    assert_eq!(unlock(&file, 0), UNLOCKED);
}

/// [MS-SMB2] 3.3.5.14.1: an unlock is recorded when all of its elements are done.
#[test]
fn a_failed_unlock_is_not_recorded() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let file = open(&tree);
    assert_eq!(unlock(&file, at(5, 5)), UNLOCKED);
    assert_eq!(lock(&file, 0), DONE);
    let element = |offset| LockElement {
        offset,
        length: 10,
        flags: LockFlags::UNLOCK,
    };
    let list = [element(0), element(100)];
    let half = status(tree.call(file.lock_request(at(5, 5), &list)));
    assert_eq!(half, UNLOCKED);
    assert_eq!(lock(&file, 0), DONE);
    assert_eq!(unlock(&file, at(5, 5)), DONE);
    assert_eq!(lock(&file, 0), DONE);
    // Now it is a repeated request.
    assert_eq!(unlock(&file, at(5, 5)), DONE);
    assert_eq!(lock(&file, 0), LOCKED);
}

/// [MS-SMB2] 3.3.5.14.2, 3.3.5.16: a lock that was cancelled while it waited is not recorded, and waits once more.
#[test]
fn a_cancelled_lock_is_not_recorded() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let (file, other) = (open(&tree), open(&tree));
    assert_eq!(lock(&other, 0), DONE);
    let waits = LockElement {
        offset: 0,
        length: 10,
        flags: LockFlags::EXCLUSIVE,
    };
    let send = || {
        let id = tree.send(file.lock_request(at(3, 3), &[waits])).unwrap();
        assert!(tree.client().wait_pending(id).unwrap().is_some());
        id
    };
    let id = send();
    let session = tree.session().id();
    tree.client().connection().cancel(id, session).unwrap();
    assert_eq!(tree.client().wait(id).unwrap().status(), Status::CANCELLED);
    let id = send();
    assert_eq!(unlock(&other, 0), DONE);
    tree.client().wait(id).unwrap().ok().unwrap();
    assert_eq!(lock(&other, 0), LOCKED);
}
