//! Pending locks, the events that end them, and the effect of locks on other requests ([MS-FSA]
//! 2.1.5.8, 2.1.5.9, 2.1.4.10, [MS-SMB2] 3.3.5.14; the cases of smb2.lock). Formats and conflicts
//! are tested in `lock.rs`.

use smb_client::{CreateArgs, File, Tree};
use smb_tests::{DATA, HoldfastServer, MEANWHILE, PASSWORD, USER, status};
use smb_wire::Status;
use smb_wire::ids::MessageId;
use smb_wire::msg::{LockElement, LockFlags, WriteFlags};

const EXCLUSIVE: LockFlags = LockFlags(0x12);
const SHARED: LockFlags = LockFlags(0x11);

/// A file of 1000 bytes, opened by two clients.
struct Two {
    server: HoldfastServer,
    held: File,
    waits: File,
}

fn open(tree: &Tree) -> File {
    tree.create(&CreateArgs::open("f")).unwrap()
}

impl Two {
    fn new() -> Self {
        let server = HoldfastServer::new();
        let (first, second) = (server.tree(), server.tree());
        first.write_file("f", &[7; 1000]).unwrap();
        Self {
            held: open(&first),
            waits: open(&second),
            server,
        }
    }

    /// The first client holds a lock; the second one waits for it.
    fn waiting() -> (Self, MessageId) {
        let two = Self::new();
        two.held.lock(0, 10, EXCLUSIVE).unwrap();
        let id = wait_for(&two.waits, 0, LockFlags::EXCLUSIVE);
        (two, id)
    }
}

/// Sends a lock that becomes pending.
fn wait_for(file: &File, offset: u64, flags: LockFlags) -> MessageId {
    let element = LockElement {
        offset,
        length: 10,
        flags,
    };
    let id = file.tree().send(file.lock_request(0, &[element])).unwrap();
    let pending = file.tree().client().wait_pending(id).unwrap();
    assert!(pending.is_some(), "answered at once");
    id
}

fn end(file: &File, id: MessageId) -> Status {
    file.tree().client().wait(id).unwrap().status()
}

fn answered(file: &File, id: MessageId) -> bool {
    let mut connection = file.tree().client().connection();
    connection.answered(id, MEANWHILE / 3).unwrap()
}

#[test]
fn a_close_of_the_holder_grants_the_lock() {
    let (two, id) = Two::waiting();
    two.held.close().unwrap();
    assert_eq!(end(&two.waits, id), Status::SUCCESS);
    two.waits.unlock(0, 10).unwrap();
}

#[test]
fn the_loss_of_the_holders_connection_grants_the_lock() {
    let (two, id) = Two::waiting();
    two.server.lose(two.held.tree());
    assert_eq!(end(&two.waits, id), Status::SUCCESS);
}

#[test]
fn a_logoff_of_the_holder_grants_the_lock() {
    let (two, id) = Two::waiting();
    two.held.tree().session().logoff().unwrap();
    assert_eq!(end(&two.waits, id), Status::SUCCESS);
}

#[test]
fn a_tree_disconnect_of_the_waiting_client_ends_the_request() {
    // smb2.lock.cancel-tdis
    let (two, id) = Two::waiting();
    two.waits.tree().disconnect().unwrap();
    let end = end(&two.waits, id);
    assert!(
        [Status::RANGE_NOT_LOCKED, Status::CANCELLED].contains(&end),
        "{end}"
    );
    // The range was not locked for the ended open.
    two.held.unlock(0, 10).unwrap();
    two.held.lock(0, 10, EXCLUSIVE).unwrap();
}

#[test]
fn a_logoff_of_the_waiting_client_ends_the_request() {
    // smb2.lock.cancel-logoff
    let (two, id) = Two::waiting();
    two.waits.tree().session().logoff().unwrap();
    let end = end(&two.waits, id);
    assert!(
        [
            Status::RANGE_NOT_LOCKED,
            Status::CANCELLED,
            Status::USER_SESSION_DELETED
        ]
        .contains(&end),
        "{end}"
    );
    two.held.unlock(0, 10).unwrap();
    two.held.lock(0, 10, EXCLUSIVE).unwrap();
    let client = two.waits.tree().client();
    let session = client.login(USER, PASSWORD, "").unwrap();
    session.tree(DATA).unwrap();
}

#[test]
fn the_loss_of_the_waiting_client_leaves_no_lock() {
    let (two, _id) = Two::waiting();
    two.server.lose(two.waits.tree());
    two.held.unlock(0, 10).unwrap();
    two.held.lock(0, 10, EXCLUSIVE).unwrap();
}

#[test]
fn the_release_of_one_of_two_ranges_does_not_suffice() {
    let two = Two::new();
    two.held.lock(0, 5, EXCLUSIVE).unwrap();
    two.held.lock(5, 5, EXCLUSIVE).unwrap();
    let id = wait_for(&two.waits, 0, LockFlags::EXCLUSIVE);
    two.held.unlock(0, 5).unwrap();
    assert!(!answered(&two.waits, id));
    two.held.unlock(5, 5).unwrap();
    assert_eq!(end(&two.waits, id), Status::SUCCESS);
}

#[test]
fn pending_shared_locks_are_granted_together() {
    let two = Two::new();
    two.held.lock(0, 10, EXCLUSIVE).unwrap();
    let others: Vec<(File, MessageId)> = (0..4)
        .map(|_| {
            let file = open(&two.server.tree());
            let id = wait_for(&file, 0, LockFlags::SHARED);
            (file, id)
        })
        .collect();
    two.held.unlock(0, 10).unwrap();
    for (file, id) in &others {
        assert_eq!(end(file, *id), Status::SUCCESS);
    }
    assert_eq!(
        status(two.held.lock(0, 10, EXCLUSIVE)),
        Status::LOCK_NOT_GRANTED
    );
}

#[test]
fn pending_exclusive_locks_are_granted_one_at_a_time() {
    let two = Two::new();
    two.held.lock(0, 10, EXCLUSIVE).unwrap();
    let mut others: Vec<(File, MessageId)> = (0..4)
        .map(|_| {
            let file = open(&two.server.tree());
            let id = wait_for(&file, 0, LockFlags::EXCLUSIVE);
            (file, id)
        })
        .collect();
    two.held.unlock(0, 10).unwrap();
    while !others.is_empty() {
        let mut granted = Vec::new();
        others.retain(|(file, id)| {
            let has = answered(file, *id);
            if has {
                granted.push((file.clone(), *id));
            }
            !has
        });
        assert!(granted.len() <= 1, "{}", granted.len());
        for (file, id) in granted {
            assert_eq!(end(&file, id), Status::SUCCESS);
            file.unlock(0, 10).unwrap();
        }
    }
}

#[test]
fn one_handle_can_wait_for_several_ranges() {
    let two = Two::new();
    for n in 0..5 {
        two.held.lock(n * 100, 10, EXCLUSIVE).unwrap();
    }
    let ids: Vec<MessageId> = (0..5)
        .map(|n| wait_for(&two.waits, n * 100, LockFlags::EXCLUSIVE))
        .collect();
    // The ranges are released in another order.
    for n in [3, 0, 4, 1, 2] {
        two.held.unlock(n * 100, 10).unwrap();
        let n = usize::try_from(n).unwrap();
        assert_eq!(end(&two.waits, ids[n]), Status::SUCCESS);
    }
}

#[test]
fn a_deadlock_of_two_clients_can_be_cancelled() {
    let two = Two::new();
    two.held.lock(0, 10, EXCLUSIVE).unwrap();
    two.waits.lock(100, 10, EXCLUSIVE).unwrap();
    let first = wait_for(&two.held, 100, LockFlags::EXCLUSIVE);
    let second = wait_for(&two.waits, 0, LockFlags::EXCLUSIVE);
    let tree = two.held.tree();
    let session = tree.session().id();
    tree.client().connection().cancel(first, session).unwrap();
    assert_eq!(end(&two.held, first), Status::CANCELLED);
    two.held.unlock(0, 10).unwrap();
    assert_eq!(end(&two.waits, second), Status::SUCCESS);
}

#[test]
fn an_empty_read_conflicts_with_no_lock() {
    // smb2.lock.zerobyteread
    let two = Two::new();
    two.held.lock(0, 10, EXCLUSIVE).unwrap();
    assert_eq!(status(two.waits.read(5, 1)), Status::FILE_LOCK_CONFLICT);
    assert_eq!(two.waits.read(5, 0).unwrap(), b"");
}

#[test]
fn writes_conflict_with_shared_locks_even_of_the_same_handle() {
    // smb2.lock.rw-shared; [MS-FSA] 2.1.4.10
    let two = Two::new();
    two.held.lock(0, 10, SHARED).unwrap();
    let write = |file: &File, offset| status(file.write(offset, b"x", WriteFlags::empty()));
    assert_eq!(write(&two.waits, 9), Status::FILE_LOCK_CONFLICT);
    assert_eq!(write(&two.held, 9), Status::FILE_LOCK_CONFLICT);
    assert_eq!(write(&two.waits, 10), Status::SUCCESS);
    assert_eq!(two.waits.read(0, 10).unwrap(), [7; 10]);
    assert_eq!(two.held.read(0, 10).unwrap(), [7; 10]);
}

#[test]
fn an_exclusive_lock_excludes_all_other_handles() {
    // smb2.lock.rw-exclusive
    let two = Two::new();
    two.held.lock(0, 10, EXCLUSIVE).unwrap();
    let write = |file: &File, offset| status(file.write(offset, b"x", WriteFlags::empty()));
    assert_eq!(write(&two.held, 0), Status::SUCCESS);
    assert_eq!(write(&two.waits, 0), Status::FILE_LOCK_CONFLICT);
    assert_eq!(status(two.waits.read(0, 1)), Status::FILE_LOCK_CONFLICT);
    // Another handle of the same connection does not own the lock.
    let second = open(two.held.tree());
    assert_eq!(write(&second, 0), Status::FILE_LOCK_CONFLICT);
    assert_eq!(status(second.read(0, 1)), Status::FILE_LOCK_CONFLICT);
}

#[test]
fn a_refused_write_writes_nothing() {
    let two = Two::new();
    two.held.lock(500, 10, EXCLUSIVE).unwrap();
    let end = two.waits.write(400, &[9; 200], WriteFlags::empty());
    assert_eq!(status(end), Status::FILE_LOCK_CONFLICT);
    assert_eq!(std::fs::read(two.server.path("f")).unwrap(), [7; 1000]);
}

#[test]
fn locks_do_not_prevent_truncation() {
    // smb2.lock.truncate; [MS-FSA] 2.1.5.15.5 examines no locks.
    let two = Two::new();
    two.held.lock(0, 1000, EXCLUSIVE).unwrap();
    two.waits.set_end_of_file(10).unwrap();
    assert_eq!(std::fs::read(two.server.path("f")).unwrap(), [7; 10]);
    assert_eq!(
        status(two.waits.lock(0, 1, EXCLUSIVE)),
        Status::LOCK_NOT_GRANTED
    );
}

#[test]
fn a_stream_has_locks_of_its_own() {
    let two = Two::new();
    let tree = two.waits.tree();
    tree.write_file("f:s", &[1; 100]).unwrap();
    two.held.lock(0, 100, EXCLUSIVE).unwrap();
    let stream = tree.create(&CreateArgs::open("f:s")).unwrap();
    stream.lock(0, 100, EXCLUSIVE).unwrap();
    stream.write_all(0, &[2; 10]).unwrap();
}

#[test]
fn stacked_locks_are_released_one_by_one_the_exclusive_first() {
    // smb2.lock.stacking; [MS-FSA] 2.1.5.9
    let two = Two::new();
    two.held.lock(0, 10, EXCLUSIVE).unwrap();
    two.held.lock(0, 10, SHARED).unwrap();
    two.held.lock(0, 10, SHARED).unwrap();
    two.held.unlock(0, 10).unwrap();
    // The remaining lock is a shared one.
    two.waits.lock(0, 10, SHARED).unwrap();
    two.waits.unlock(0, 10).unwrap();
    assert_eq!(
        status(two.waits.lock(0, 10, EXCLUSIVE)),
        Status::LOCK_NOT_GRANTED
    );
    two.held.unlock(0, 10).unwrap();
    two.held.unlock(0, 10).unwrap();
    assert_eq!(status(two.held.unlock(0, 10)), Status::RANGE_NOT_LOCKED);
    two.waits.lock(0, 10, EXCLUSIVE).unwrap();
}

#[test]
fn a_copy_conflicts_with_locks_on_source_and_target() {
    // [MS-SMB2] 3.3.5.15.6
    use smb_wire::fsctl::FsctlCode;
    let two = Two::new();
    let tree = two.waits.tree();
    let target = tree.create(&CreateArgs::create("g")).unwrap();
    let code = FsctlCode::SRV_REQUEST_RESUME_KEY;
    let key = two.waits.ioctl(code, &[], 64).unwrap();
    let copy = || {
        let mut input = key[..24].to_vec();
        input.extend_from_slice(&1u32.to_le_bytes());
        input.extend_from_slice(&[0; 4]);
        input.extend_from_slice(&0u64.to_le_bytes());
        input.extend_from_slice(&0u64.to_le_bytes());
        input.extend_from_slice(&100u32.to_le_bytes());
        input.extend_from_slice(&[0; 4]);
        status(target.ioctl(FsctlCode::SRV_COPYCHUNK, &input, 12))
    };
    two.held.lock(50, 10, EXCLUSIVE).unwrap();
    assert_eq!(copy(), Status::FILE_LOCK_CONFLICT);
    two.held.unlock(50, 10).unwrap();
    let other = two.held.tree().create(&CreateArgs::open("g")).unwrap();
    other.lock(50, 10, SHARED).unwrap();
    assert_eq!(copy(), Status::FILE_LOCK_CONFLICT);
    other.unlock(50, 10).unwrap();
    assert_eq!(copy(), Status::SUCCESS);
    assert_eq!(std::fs::read(two.server.path("g")).unwrap(), [7; 100]);
}
