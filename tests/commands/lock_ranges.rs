//! Lists of locks, empty ranges, and the rights to lock ([MS-SMB2] 3.3.5.14, [MS-FSA] 2.1.4.10, 2.1.5.8).

use smb_client::{CreateArgs, File, Tree};
use smb_tests::{HoldfastServer, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::msg::{LockElement, LockFlags, WriteFlags};

const NOW: LockFlags = LockFlags::FAIL_IMMEDIATELY;
const EXCLUSIVE: LockFlags = LockFlags::EXCLUSIVE.union(NOW);
const SHARED: LockFlags = LockFlags::SHARED.union(NOW);

fn element(offset: u64, length: u64, flags: LockFlags) -> LockElement {
    LockElement {
        offset,
        length,
        flags,
    }
}

/// Two handles of a file of 100 bytes.
fn two(tree: &Tree) -> (File, File) {
    tree.write_file("f", &[0; 100]).unwrap();
    let open = || tree.create(&CreateArgs::open("f")).unwrap();
    (open(), open())
}

/// Returns whether a range can be locked by a handle, and unlocks it again.
fn is_free(file: &File, offset: u64, length: u64) -> bool {
    let end = status(file.lock(offset, length, EXCLUSIVE));
    if end == Status::SUCCESS {
        file.unlock(offset, length).unwrap();
    } else {
        assert_eq!(end, Status::LOCK_NOT_GRANTED, "{offset} {length}");
    }
    end == Status::SUCCESS
}

/// [MS-SMB2] 3.3.5.14.2: a single lock may wait, and is granted at once where the range is free.
#[test]
fn a_single_lock_that_may_wait_is_granted_at_once() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (file, other) = two(&tree);
    for flags in [LockFlags::EXCLUSIVE, LockFlags::SHARED] {
        file.lock(0, 10, flags).unwrap();
        assert!(!is_free(&other, 0, 10), "{flags}");
        file.unlock(0, 10).unwrap();
    }
}

/// [MS-SMB2] 2.2.26, 3.3.5.2.6: LockCount elements follow, and none of fewer is locked.
#[test]
fn a_list_with_fewer_elements_than_it_counts_locks_nothing() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (file, other) = two(&tree);
    for count in [2_u16, 3, 0xffff] {
        let request = file.lock_request(0, &[element(0, 10, EXCLUSIVE)]);
        let request = request.mutate(|m| m[66..68].copy_from_slice(&count.to_le_bytes()));
        let refused = tree.reply(request).unwrap().status();
        assert_eq!(refused, Status::INVALID_PARAMETER, "{count}");
        assert!(is_free(&other, 0, 10), "{count}");
    }
}

/// [MS-SMB2] 3.3.5.14.2: a list may have as many elements as fit into the message.
#[test]
fn a_list_of_many_elements_is_granted_and_released() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (file, other) = two(&tree);
    let list = |flags| -> Vec<_> { (0..300).map(|at| element(at * 10, 10, flags)).collect() };
    tree.call(file.lock_request(0, &list(EXCLUSIVE))).unwrap();
    assert!(!is_free(&other, 2990, 10));
    tree.call(file.lock_request(0, &list(LockFlags::UNLOCK)))
        .unwrap();
    assert!(is_free(&other, 0, 3000));
}

/// [MS-SMB2] 3.3.5.14.2: locks that are taken back were none of earlier requests.
#[test]
fn a_list_that_fails_releases_only_its_own_locks() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (file, other) = two(&tree);
    file.lock(0, 10, SHARED).unwrap();
    other.lock(50, 10, EXCLUSIVE).unwrap();
    let list = [element(0, 10, SHARED), element(50, 1, SHARED)];
    let refused = status(tree.call(file.lock_request(0, &list)));
    assert_eq!(refused, Status::LOCK_NOT_GRANTED);
    assert!(!is_free(&other, 0, 10), "the lock before the request");
    file.unlock(0, 10).unwrap();
    let again = status(file.unlock(0, 10));
    assert_eq!(again, Status::RANGE_NOT_LOCKED);
}

/// [MS-FSA] 2.1.4.10: the empty range at the beginning overlaps with nothing, not even with locks around it.
#[test]
fn the_empty_range_at_the_beginning_conflicts_with_nothing() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (file, other) = two(&tree);
    file.lock(0, 10, EXCLUSIVE).unwrap();
    for handle in [&other, &file, &other] {
        handle.lock(0, 0, EXCLUSIVE).unwrap();
    }
    file.unlock(0, 10).unwrap();
    assert!(is_free(&file, 0, 10) && is_free(&other, 0, 10));
}

/// [MS-FSA] 2.1.4.10: an empty range within another overlaps with it, whichever of both is locked first.
#[test]
fn a_locked_empty_range_conflicts_with_ranges_around_it() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (file, other) = two(&tree);
    file.lock(15, 0, EXCLUSIVE).unwrap();
    for (offset, length, expected) in [
        (10, 10, false),
        (14, 2, false),
        (10, 5, true),
        (15, 5, true),
        (15, 0, true),
        (14, 0, true),
        (16, 0, true),
    ] {
        assert_eq!(
            is_free(&other, offset, length),
            expected,
            "{offset} {length}"
        );
    }
    // Data that are read or written around it overlap as well.
    assert_eq!(status(other.read(10, 10)), Status::FILE_LOCK_CONFLICT);
    assert_eq!(status(other.read(15, 10)), Status::SUCCESS);
    assert_eq!(file.read(10, 10).unwrap().len(), 10);
}

/// [MS-FSA] 2.1.4.10: a handle's own shared lock bars its exclusive one, and its own exclusive lock no shared one.
#[test]
fn a_handle_is_barred_by_its_own_shared_lock() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (file, _other) = two(&tree);
    file.lock(0, 10, SHARED).unwrap();
    file.lock(5, 10, SHARED).unwrap();
    let refused = status(file.lock(9, 1, EXCLUSIVE));
    assert_eq!(refused, Status::LOCK_NOT_GRANTED);
    let written = status(file.write(9, b"x", WriteFlags::empty()));
    assert_eq!(written, Status::FILE_LOCK_CONFLICT);
    file.lock(50, 10, EXCLUSIVE).unwrap();
    file.lock(55, 1, SHARED).unwrap();
}

/// [MS-FSA] 2.1.5.8 asks for no certain right: a reader locks exclusively, and a writer shares.
#[test]
fn a_lock_of_either_kind_needs_either_right() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (_file, other) = two(&tree);
    for access in [
        AccessMask::FILE_READ_DATA,
        AccessMask::FILE_WRITE_DATA,
        AccessMask::FILE_EXECUTE,
    ] {
        let file = tree.create(&CreateArgs::open("f").access(access)).unwrap();
        for flags in [EXCLUSIVE, SHARED] {
            assert_eq!(status(file.lock(0, 10, flags)), Status::SUCCESS, "{access}");
            assert!(!is_free(&other, 0, 10), "{access} {flags}");
            file.unlock(0, 10).unwrap();
        }
        file.close().unwrap();
    }
}

/// [MS-FSA] 2.1.5.9: an unlock finds only a lock of its own handle.
#[test]
fn an_unlock_names_the_handle_and_the_whole_range() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (file, other) = two(&tree);
    file.lock(0, 10, SHARED).unwrap();
    other.lock(0, 10, SHARED).unwrap();
    file.unlock(0, 10).unwrap();
    assert_eq!(status(file.unlock(0, 10)), Status::RANGE_NOT_LOCKED);
    // The other handle's lock of the same range is still there.
    assert!(!is_free(&file, 0, 10));
    other.unlock(0, 10).unwrap();
    assert!(is_free(&file, 0, 10));
}
