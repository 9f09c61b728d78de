//! LOCK ([MS-SMB2] 3.3.5.14, [MS-FSA] 2.1.5.8, 2.1.5.9).

use smb_client::{CreateArgs, File, Request, Tree};
use smb_tests::{HoldfastServer, MEANWHILE, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::ids::FileId;
use smb_wire::msg::{LockElement, LockFlags, LockRequest, LockResponse};

const NOW: LockFlags = LockFlags::FAIL_IMMEDIATELY;

fn element(offset: u64, length: u64, flags: LockFlags) -> LockElement {
    LockElement {
        offset,
        length,
        flags,
    }
}

fn two(server: &HoldfastServer) -> (Tree, File, File) {
    let tree = server.tree();
    tree.write_file("f", &[0; 200]).unwrap();
    let first = tree.create(&CreateArgs::open("f")).unwrap();
    let second = tree.create(&CreateArgs::open("f")).unwrap();
    (tree, first, second)
}

/// Asserts that a lock which is there stands in the way of this one.
#[track_caller]
fn assert_barred(file: &File, offset: u64, length: u64, flags: LockFlags) {
    let end = status(file.lock(offset, length, flags));
    assert_eq!(end, Status::LOCK_NOT_GRANTED);
}

#[test]
fn ranges_are_locked_and_unlocked() {
    let server = HoldfastServer::new();
    let (tree, first, second) = two(&server);
    let exclusive = LockFlags::EXCLUSIVE | NOW;
    let request = first.lock_request(0, &[element(0, 10, exclusive)]);
    LockResponse::read(&tree.call(request).unwrap().message).unwrap();
    assert_barred(&second, 9, 1, exclusive);
    second.lock(10, 5, exclusive).unwrap();
    first.unlock(0, 10).unwrap();
    second.lock(9, 1, exclusive).unwrap();
}

#[test]
fn shared_locks_coexist_and_exclusive_ones_conflict() {
    let server = HoldfastServer::new();
    let (_tree, first, second) = two(&server);
    let (shared, exclusive) = (LockFlags::SHARED | NOW, LockFlags::EXCLUSIVE | NOW);
    first.lock(0, 10, shared).unwrap();
    second.lock(5, 10, shared).unwrap();
    assert_barred(&second, 0, 1, exclusive);
    // Two exclusive locks conflict even on the same handle.
    assert_barred(&first, 0, 1, exclusive);
    first.lock(100, 10, exclusive).unwrap();
    assert_barred(&first, 100, 10, exclusive);
    // A shared lock can be added to the handle's own exclusive one.
    first.lock(100, 10, shared).unwrap();
    assert_barred(&second, 100, 1, shared);
}

#[test]
fn only_a_locked_range_can_be_unlocked() {
    let server = HoldfastServer::new();
    let (_tree, first, second) = two(&server);
    first.lock(0, 10, LockFlags::EXCLUSIVE | NOW).unwrap();
    for (file, offset, length) in [
        (&first, 0, 9),
        (&first, 1, 9),
        (&first, 0, 11),
        (&second, 0, 10),
    ] {
        assert_eq!(
            status(file.unlock(offset, length)),
            Status::RANGE_NOT_LOCKED,
            "{offset} {length}"
        );
    }
    first.unlock(0, 10).unwrap();
    assert_eq!(status(first.unlock(0, 10)), Status::RANGE_NOT_LOCKED);
}

#[test]
fn undefined_flags_are_refused() {
    let server = HoldfastServer::new();
    let (_tree, first, _second) = two(&server);
    for flags in [
        LockFlags::empty(),
        NOW,
        LockFlags::SHARED | LockFlags::EXCLUSIVE,
        LockFlags::SHARED | LockFlags::EXCLUSIVE | NOW,
        LockFlags::UNLOCK | LockFlags::SHARED,
        LockFlags::UNLOCK | LockFlags::EXCLUSIVE,
        LockFlags::UNLOCK | NOW,
        LockFlags(0x20),
        LockFlags(0xffff_ffff),
    ] {
        assert_eq!(
            status(first.lock(0, 1, flags)),
            Status::INVALID_PARAMETER,
            "{flags}"
        );
    }
}

#[test]
fn ranges_beyond_64_bits_are_refused() {
    let server = HoldfastServer::new();
    let (_tree, first, second) = two(&server);
    let exclusive = LockFlags::EXCLUSIVE | NOW;
    for (offset, length) in [(u64::MAX, 2), (2, u64::MAX), (1 << 63, (1 << 63) + 1)] {
        assert_eq!(
            status(first.lock(offset, length, exclusive)),
            Status::INVALID_LOCK_RANGE,
            "{offset:#x} {length:#x}"
        );
    }
    first.lock(u64::MAX, 1, exclusive).unwrap();
    assert_barred(&second, u64::MAX, 1, exclusive);
    second.lock(1 << 62, 10, exclusive).unwrap();
}

#[test]
fn empty_ranges_conflict_only_with_ranges_around_them() {
    let server = HoldfastServer::new();
    let (_tree, first, second) = two(&server);
    let exclusive = LockFlags::EXCLUSIVE | NOW;
    first.lock(10, 10, exclusive).unwrap();
    for (offset, expected) in [
        (10, Status::SUCCESS),
        (11, Status::LOCK_NOT_GRANTED),
        (19, Status::LOCK_NOT_GRANTED),
        (20, Status::SUCCESS),
    ] {
        assert_eq!(
            status(second.lock(offset, 0, exclusive)),
            expected,
            "{offset}"
        );
    }
}

#[test]
fn a_list_is_granted_entirely_or_not_at_all() {
    let server = HoldfastServer::new();
    let (tree, first, second) = two(&server);
    let exclusive = LockFlags::EXCLUSIVE | NOW;
    second.lock(50, 10, exclusive).unwrap();
    let list = [
        element(0, 10, exclusive),
        element(20, 10, exclusive),
        element(55, 1, exclusive),
    ];
    assert_eq!(
        status(tree.call(first.lock_request(0, &list))),
        Status::LOCK_NOT_GRANTED
    );
    // The locks acquired before the failure were released.
    second.lock(0, 30, exclusive).unwrap();
    second.unlock(0, 30).unwrap();
    tree.call(first.lock_request(0, &list[..2])).unwrap();
    let unlock = [
        element(0, 10, LockFlags::UNLOCK),
        element(20, 10, LockFlags::UNLOCK),
    ];
    tree.call(first.lock_request(0, &unlock)).unwrap();
    second.lock(0, 30, exclusive).unwrap();
}

#[test]
fn lists_with_waiting_or_mixed_elements_are_refused() {
    let server = HoldfastServer::new();
    let (tree, first, _second) = two(&server);
    let call = |list: &[LockElement]| status(tree.call(first.lock_request(0, list)));
    // [MS-SMB2] 3.3.5.14.2: several locks must not wait.
    let waiting = [
        element(0, 1, LockFlags::EXCLUSIVE),
        element(5, 1, LockFlags::EXCLUSIVE),
    ];
    assert_eq!(call(&waiting), Status::INVALID_PARAMETER);
    // [MS-SMB2] 3.3.5.14.1: a list of unlocks contains nothing else.
    first.lock(0, 1, LockFlags::EXCLUSIVE | NOW).unwrap();
    let mixed = [
        element(0, 1, LockFlags::UNLOCK),
        element(5, 1, LockFlags::EXCLUSIVE | NOW),
    ];
    assert_eq!(call(&mixed), Status::INVALID_PARAMETER);
    let mixed = [
        element(5, 1, LockFlags::EXCLUSIVE | NOW),
        element(5, 1, LockFlags::UNLOCK),
    ];
    assert_eq!(call(&mixed), Status::INVALID_PARAMETER);
    assert_eq!(call(&[]), Status::INVALID_PARAMETER);
}

#[test]
fn a_pending_lock_is_granted_when_the_range_is_released() {
    let server = HoldfastServer::new();
    let (_tree, first, _) = two(&server);
    let other = server.tree();
    let second = other.create(&CreateArgs::open("f")).unwrap();
    first.lock(0, 10, LockFlags::EXCLUSIVE | NOW).unwrap();
    let waiting = other
        .send(second.lock_request(0, &[element(0, 10, LockFlags::EXCLUSIVE)]))
        .unwrap();
    assert!(other.client().wait_pending(waiting).unwrap().is_some());
    let mut connection = other.client().connection();
    assert!(!connection.answered(waiting, MEANWHILE).unwrap());
    drop(connection);
    first.unlock(0, 10).unwrap();
    other.client().wait(waiting).unwrap().ok().unwrap();
    assert_barred(&first, 0, 1, LockFlags::SHARED | NOW);
}

#[test]
fn locks_end_with_their_handle() {
    let server = HoldfastServer::new();
    let (_tree, first, second) = two(&server);
    first.lock(0, 10, LockFlags::EXCLUSIVE | NOW).unwrap();
    first.close().unwrap();
    second.lock(0, 10, LockFlags::EXCLUSIVE | NOW).unwrap();
    // They also end with the connection.
    let gone = server.tree();
    let file = gone.create(&CreateArgs::open("f")).unwrap();
    file.lock(100, 10, LockFlags::EXCLUSIVE | NOW).unwrap();
    drop((file, gone));
    let waiting = second.lock_request(0, &[element(100, 10, LockFlags::EXCLUSIVE)]);
    second.tree().call(waiting).unwrap();
}

#[test]
fn a_pending_lock_ends_with_its_handle() {
    let server = HoldfastServer::new();
    let (tree, first, second) = two(&server);
    first.lock(0, 10, LockFlags::EXCLUSIVE | NOW).unwrap();
    let waiting = tree
        .send(second.lock_request(0, &[element(0, 10, LockFlags::EXCLUSIVE)]))
        .unwrap();
    tree.client().wait_pending(waiting).unwrap().unwrap();
    second.close().unwrap();
    let end = tree.client().wait(waiting).unwrap();
    assert_eq!(end.status(), Status::RANGE_NOT_LOCKED);
}

#[test]
fn unknown_handles_and_directories_are_refused() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let request = Request::new(&LockRequest {
        lock_sequence: 0,
        file_id: FileId::ANY,
        locks: vec![element(0, 1, LockFlags::SHARED | NOW)],
    });
    assert_eq!(status(tree.call(request)), Status::FILE_CLOSED);
    let directory = tree.create(&CreateArgs::directory("")).unwrap();
    assert_eq!(
        status(directory.lock(0, 1, LockFlags::SHARED | NOW)),
        Status::INVALID_PARAMETER
    );
}

#[test]
fn who_may_not_use_the_data_may_not_lock_them() {
    let server = HoldfastServer::new();
    let (tree, _first, _second) = two(&server);
    let with = |access| {
        let args = CreateArgs::open("f").access(access);
        tree.create(&args).unwrap()
    };
    let blind = with(AccessMask::FILE_READ_ATTRIBUTES | AccessMask::SYNCHRONIZE);
    for flags in [LockFlags::SHARED | NOW, LockFlags::EXCLUSIVE | NOW] {
        assert_eq!(status(blind.lock(0, 10, flags)), Status::ACCESS_DENIED);
    }
    let appender = with(AccessMask::FILE_APPEND_DATA);
    appender.lock(0, 10, LockFlags::EXCLUSIVE | NOW).unwrap();
}

#[test]
fn a_repeated_sequence_number_is_not_executed_again() {
    // [MS-SMB2] 3.3.5.14: verified on 3.x with multichannel, and for durable opens.
    let server = HoldfastServer::new();
    let (tree, first, _second) = two(&server);
    let sequence = (3 << 4) | 5;
    let lock = [element(0, 10, LockFlags::EXCLUSIVE | NOW)];
    tree.call(first.lock_request(sequence, &lock)).unwrap();
    // The same request again is answered without being executed; a second execution would conflict
    // with the first.
    tree.call(first.lock_request(sequence, &lock)).unwrap();
    // Another number is a new request.
    assert_eq!(
        status(tree.call(first.lock_request(sequence + 1, &lock))),
        Status::LOCK_NOT_GRANTED
    );
    // Index 0 means that the sequence is not recorded.
    first.unlock(0, 10).unwrap();
    tree.call(first.lock_request(5, &lock)).unwrap();
    assert_eq!(
        status(tree.call(first.lock_request(5, &lock))),
        Status::LOCK_NOT_GRANTED
    );
}
