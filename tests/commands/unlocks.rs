//! Lists of unlocks and mixed lists of LOCK, which are carried out one element after the other ([MS-SMB2] 3.3.5.14.1,
//! 3.3.5.14.2, [MS-FSA] 2.1.5.9).

use smb_client::{CreateArgs, File};
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::msg::{LockElement, LockFlags};

const EXCLUSIVE: LockFlags = LockFlags::EXCLUSIVE.union(LockFlags::FAIL_IMMEDIATELY);
const UNLOCK: LockFlags = LockFlags::UNLOCK;

/// Elements of ten bytes at these offsets.
fn list(elements: &[(u64, LockFlags)]) -> Vec<LockElement> {
    let element = |&(offset, flags): &(u64, LockFlags)| LockElement {
        offset,
        length: 10,
        flags,
    };
    elements.iter().map(element).collect()
}

fn call(file: &File, elements: &[(u64, LockFlags)]) -> Status {
    let request = file.lock_request(0, &list(elements));
    status(file.tree().call(request))
}

/// Two handles of a file, and a server that runs as long as they do.
fn two() -> (HoldfastServer, File, File) {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", &[0; 100]).unwrap();
    let open = || tree.create(&CreateArgs::open("f")).unwrap();
    let (first, second) = (open(), open());
    (server, first, second)
}

/// Returns whether ten bytes at an offset are free for a handle without locks.
fn is_free(other: &File, offset: u64) -> bool {
    let free = call(other, &[(offset, EXCLUSIVE)]) == Status::SUCCESS;
    if free {
        other.unlock(offset, 10).unwrap();
    }
    free
}

/// [MS-SMB2] 3.3.5.14.1: the elements before the failure are done, those behind it are not.
#[test]
fn a_list_of_unlocks_stops_at_a_range_that_is_not_locked() {
    let (_server, file, other) = two();
    let locks = [(0, EXCLUSIVE), (20, EXCLUSIVE), (40, EXCLUSIVE)];
    assert_eq!(call(&file, &locks), Status::SUCCESS);
    let unlocks = [(0, UNLOCK), (60, UNLOCK), (20, UNLOCK)];
    assert_eq!(call(&file, &unlocks), Status::RANGE_NOT_LOCKED);
    assert!(is_free(&other, 0));
    assert!(!is_free(&other, 20) && !is_free(&other, 40));
    assert_eq!(call(&file, &[(20, UNLOCK), (40, UNLOCK)]), Status::SUCCESS);
    assert!(is_free(&other, 20) && is_free(&other, 40));
}

/// [MS-SMB2] 3.3.5.14.1: the unlocks before a lock are not rolled back.
#[test]
fn a_lock_in_a_list_of_unlocks_is_refused_after_them() {
    let (_server, file, other) = two();
    let locks = [(0, EXCLUSIVE), (20, EXCLUSIVE)];
    assert_eq!(call(&file, &locks), Status::SUCCESS);
    let mixed = [(0, UNLOCK), (40, EXCLUSIVE), (20, UNLOCK)];
    assert_eq!(call(&file, &mixed), Status::INVALID_PARAMETER);
    assert!(is_free(&other, 0));
    assert!(!is_free(&other, 20));
    assert!(is_free(&other, 40));
}

/// [MS-SMB2] 3.3.5.14.2: the locks before an unlock are not rolled back.
#[test]
fn an_unlock_in_a_list_of_locks_is_refused_after_them() {
    let (_server, file, other) = two();
    // None of several may wait, or the list is refused as a whole.
    let unlock = UNLOCK | LockFlags::FAIL_IMMEDIATELY;
    let mixed = [(0, EXCLUSIVE), (0, unlock), (20, EXCLUSIVE)];
    assert_eq!(call(&file, &mixed), Status::INVALID_PARAMETER);
    assert!(!is_free(&other, 0));
    assert!(is_free(&other, 20));
    file.unlock(0, 10).unwrap();
}

/// [MS-FSA] 2.1.5.9.
#[test]
fn a_range_beyond_64_bits_is_not_unlocked() {
    let (_server, file, _other) = two();
    for (offset, length) in [(u64::MAX, 2), (2, u64::MAX), (1 << 63, (1 << 63) + 1)] {
        let end = status(file.unlock(offset, length));
        assert_eq!(end, Status::INVALID_LOCK_RANGE, "{offset:#x} {length:#x}");
    }
    let end = status(file.unlock(u64::MAX, 1));
    assert_eq!(end, Status::RANGE_NOT_LOCKED);
}

/// [MS-FSA] 2.1.5.9: an empty range is one like any other.
#[test]
fn an_empty_range_is_unlocked_by_its_offset() {
    let (_server, file, other) = two();
    file.lock(10, 0, EXCLUSIVE).unwrap();
    for (handle, offset, length) in [(&file, 10, 1), (&file, 11, 0), (&other, 10, 0)] {
        let end = status(handle.unlock(offset, length));
        assert_eq!(end, Status::RANGE_NOT_LOCKED, "{offset} {length}");
    }
    file.unlock(10, 0).unwrap();
    let again = status(file.unlock(10, 0));
    assert_eq!(again, Status::RANGE_NOT_LOCKED);
}
