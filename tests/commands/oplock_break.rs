//! Oplocks and leases and their breaks ([MS-SMB2] 3.3.4.6, 3.3.4.7, 3.3.5.22).

use smb_client::{Break, CreateArgs, File, Options, Tree};
use smb_tests::{DATA, HoldfastServer, MEANWHILE, SOON, status};
use smb_wire::Status;
use smb_wire::create_context::LeaseState;
use smb_wire::ids::{LeaseKey, MessageId};
use smb_wire::msg::{CreateDisposition, Dialect, LockFlags, OplockLevel, WriteFlags};

const KEY: LeaseKey = LeaseKey([0x11; 16]);
const OTHER_KEY: LeaseKey = LeaseKey([0x22; 16]);

fn next(tree: &Tree) -> Break {
    let broken = tree.client().next_break(SOON).unwrap();
    broken.expect("no break came")
}

fn none(tree: &Tree) {
    assert_eq!(tree.client().next_break(MEANWHILE).unwrap(), None);
}

fn opened(tree: &Tree, id: MessageId) -> File {
    let reply = tree.client().wait(id).unwrap().ok().unwrap();
    tree.file(&reply).unwrap()
}

/// Opens a file with a batch oplock, and again on another connection, whose request waits for the break.
fn breaking(holder: &Tree, other: &Tree) -> (File, MessageId) {
    let args = CreateArgs::open_if("f").oplock(OplockLevel::BATCH);
    let file = holder.create(&args).unwrap();
    let id = other.send(CreateArgs::open("f").request()).unwrap();
    next(holder);
    (file, id)
}

fn lease_break(broken: Break) -> (LeaseState, LeaseState, bool) {
    match broken {
        Break::Lease {
            key,
            current,
            new,
            ack_required,
            ..
        } => {
            assert_eq!(key, KEY);
            (current, new, ack_required)
        }
        Break::Oplock { .. } => panic!("{broken:?}"),
    }
}

#[test]
fn another_open_waits_for_the_acknowledgement() {
    let server = HoldfastServer::new();
    let (holder, other) = (server.tree(), server.tree());
    for level in [OplockLevel::BATCH, OplockLevel::EXCLUSIVE] {
        let file = holder
            .create(&CreateArgs::open_if("f").oplock(level))
            .unwrap();
        let id = other.send(CreateArgs::open("f").request()).unwrap();
        let broken = next(&holder);
        let expected = Break::Oplock {
            file_id: file.id(),
            level: OplockLevel::II,
        };
        assert_eq!(broken, expected);
        assert!(!other.client().connection().answered(id, MEANWHILE).unwrap());
        file.acknowledge_oplock(OplockLevel::II).unwrap();
        opened(&other, id).close().unwrap();
        file.close().unwrap();
    }
}

#[test]
fn a_close_acknowledges_a_break_too() {
    let server = HoldfastServer::new();
    let (holder, other) = (server.tree(), server.tree());
    let (file, id) = breaking(&holder, &other);
    file.close().unwrap();
    opened(&other, id);
}

#[test]
fn a_holder_that_disconnects_blocks_nobody() {
    let server = HoldfastServer::new();
    let (holder, other) = (server.tree(), server.tree());
    let (_, id) = breaking(&holder, &other);
    drop(holder);
    opened(&other, id);
}

#[test]
fn a_write_breaks_level_ii_without_waiting() {
    let server = HoldfastServer::new();
    let (holder, other) = (server.tree(), server.tree());
    let file = holder
        .create(&CreateArgs::open_if("f").oplock(OplockLevel::II))
        .unwrap();
    assert_eq!(file.created().oplock_level, OplockLevel::II);
    let writer = other.create(&CreateArgs::open("f")).unwrap();
    none(&holder);
    writer.write(0, b"x", WriteFlags::empty()).unwrap();
    assert_eq!(
        next(&holder),
        Break::Oplock {
            file_id: file.id(),
            level: OplockLevel::NONE
        }
    );
}

#[test]
fn an_overwrite_breaks_to_nothing() {
    let server = HoldfastServer::new();
    let (holder, other) = (server.tree(), server.tree());
    let file = holder
        .create(&CreateArgs::open_if("f").oplock(OplockLevel::BATCH))
        .unwrap();
    file.write_all(0, b"content").unwrap();
    let overwrite = CreateArgs::new("f", CreateDisposition::OVERWRITE);
    let id = other.send(overwrite.request()).unwrap();
    assert!(matches!(
        next(&holder),
        Break::Oplock {
            level: OplockLevel::NONE,
            ..
        }
    ));
    // Nothing is overwritten before the holder has acknowledged the break.
    assert_eq!(std::fs::read(server.path("f")).unwrap(), b"content");
    file.acknowledge_oplock(OplockLevel::NONE).unwrap();
    opened(&other, id);
    assert_eq!(std::fs::read(server.path("f")).unwrap(), b"");
}

#[test]
fn attribute_opens_break_nothing() {
    use smb_wire::access_mask::AccessMask;
    let server = HoldfastServer::new();
    let (holder, other) = (server.tree(), server.tree());
    let args = CreateArgs::open_if("f").oplock(OplockLevel::BATCH);
    holder.create(&args).unwrap();
    let access = AccessMask::FILE_READ_ATTRIBUTES | AccessMask::SYNCHRONIZE;
    other.create(&CreateArgs::open("f").access(access)).unwrap();
    none(&holder);
}

#[test]
fn unexpected_oplock_acknowledgments_are_refused() {
    let server = HoldfastServer::new();
    let (holder, other) = (server.tree(), server.tree());
    let args = CreateArgs::open_if("f").oplock(OplockLevel::BATCH);
    let file = holder.create(&args).unwrap();
    let unasked = status(file.acknowledge_oplock(OplockLevel::II));
    assert!(
        [
            Status::INVALID_DEVICE_STATE,
            Status::INVALID_OPLOCK_PROTOCOL
        ]
        .contains(&unasked),
        "{unasked}"
    );
    file.close().unwrap();
    assert_eq!(
        status(file.acknowledge_oplock(OplockLevel::II)),
        Status::FILE_CLOSED
    );
    let file = holder.create(&args).unwrap();
    let id = other.send(CreateArgs::open("f").request()).unwrap();
    next(&holder);
    assert_eq!(
        status(file.acknowledge_oplock(OplockLevel::LEASE)),
        Status::INVALID_PARAMETER
    );
    let higher = status(file.acknowledge_oplock(OplockLevel::BATCH));
    assert!(higher.is_error(), "{higher}");
    // In any case the other client must not wait forever.
    file.close().unwrap();
    opened(&other, id);
}

/// [MS-SMB2] 3.3.5.22.1, 3.3.5.2.10.
#[test]
fn an_oplock_is_acknowledged_on_the_session_and_tree_of_its_open() {
    let server = HoldfastServer::new();
    let (holder, other) = (server.tree(), server.tree());
    let (file, id) = breaking(&holder, &other);
    let beside = holder.session().tree(DATA).unwrap();
    for wrong in [&other, &beside] {
        let refused = status(file.through(wrong).acknowledge_oplock(OplockLevel::II));
        assert_eq!(refused, Status::FILE_CLOSED);
    }
    assert!(!other.client().connection().answered(id, MEANWHILE).unwrap());
    file.acknowledge_oplock(OplockLevel::II).unwrap();
    opened(&other, id).close().unwrap();
}

#[test]
fn leases_are_granted_as_requested() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let (r, h, w) = (LeaseState::READ, LeaseState::HANDLE, LeaseState::WRITE);
    for (asked, granted) in [
        (r, r),
        (r | h, r | h),
        (r | w, r | w),
        (r | h | w, r | h | w),
        (LeaseState::empty(), LeaseState::empty()),
    ] {
        for v2 in [false, true] {
            let args = CreateArgs::open_if("f");
            let args = if v2 {
                args.lease_v2(KEY, asked, 7)
            } else {
                args.lease(KEY, asked)
            };
            let file = tree.create(&args).unwrap();
            let lease = file.created().lease().unwrap();
            assert_eq!((lease.lease_key, lease.lease_state), (KEY, granted));
            assert_eq!(lease.v2.is_some(), v2);
            if let Some(v2) = lease.v2
                && !granted.is_empty()
            {
                assert_eq!(v2.epoch, 8);
            }
            file.close().unwrap();
        }
    }
}

#[test]
fn the_same_key_breaks_nothing() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let args = CreateArgs::open_if("f").lease(KEY, LeaseState::RWH);
    let first = tree.create(&args).unwrap();
    let second = tree.create(&args).unwrap();
    second.write(0, b"x", WriteFlags::empty()).unwrap();
    let lease = second.created().lease().unwrap();
    assert_eq!(lease.lease_state, LeaseState::RWH);
    none(&tree);
    first.close().unwrap();
}

#[test]
fn another_key_breaks_the_write_caching() {
    let server = HoldfastServer::new();
    let (holder, other) = (server.tree(), server.tree());
    let args = CreateArgs::open_if("f").lease(KEY, LeaseState::RWH);
    let file = holder.create(&args).unwrap();
    let args = CreateArgs::open("f").lease(OTHER_KEY, LeaseState::RWH);
    let id = other.send(args.request()).unwrap();
    let rh = LeaseState::READ | LeaseState::HANDLE;
    assert_eq!(lease_break(next(&holder)), (LeaseState::RWH, rh, true));
    assert!(!other.client().connection().answered(id, MEANWHILE).unwrap());
    holder.acknowledge_lease(KEY, rh).unwrap();
    let second = opened(&other, id);
    assert_eq!(second.created().lease().unwrap().lease_state, rh);
    // A write breaks the read caching of the other key, not of its own.
    second.write(0, b"x", WriteFlags::empty()).unwrap();
    let (current, new, _) = lease_break(next(&holder));
    assert_eq!((current, new), (rh, LeaseState::empty()));
    file.close().unwrap();
}

#[test]
fn a_sharing_conflict_breaks_the_handle_caching() {
    use smb_wire::msg::ShareAccess;
    let server = HoldfastServer::new();
    let (holder, other) = (server.tree(), server.tree());
    let args = CreateArgs::open_if("f")
        .share(ShareAccess::READ)
        .lease(KEY, LeaseState::RWH);
    let file = holder.create(&args).unwrap();
    let id = other.send(CreateArgs::open("f").request()).unwrap();
    let rw = LeaseState::READ | LeaseState::WRITE;
    assert_eq!(lease_break(next(&holder)), (LeaseState::RWH, rw, true));
    // The holder only cached the handle: it closes it, and there is no conflict.
    file.close().unwrap();
    opened(&other, id);
}

#[test]
fn unexpected_lease_acknowledgments_are_refused() {
    let server = HoldfastServer::new();
    let (holder, other) = (server.tree(), server.tree());
    let args = CreateArgs::open_if("f").lease(KEY, LeaseState::RWH);
    let file = holder.create(&args).unwrap();
    let rh = LeaseState::READ | LeaseState::HANDLE;
    assert_eq!(
        status(holder.acknowledge_lease(OTHER_KEY, rh)),
        Status::OBJECT_NAME_NOT_FOUND
    );
    assert_eq!(
        status(holder.acknowledge_lease(KEY, rh)),
        Status::UNSUCCESSFUL
    );
    let id = other.send(CreateArgs::open("f").request()).unwrap();
    next(&holder);
    assert_eq!(
        status(holder.acknowledge_lease(KEY, LeaseState::RWH)),
        Status::REQUEST_NOT_ACCEPTED
    );
    holder.acknowledge_lease(KEY, rh).unwrap();
    opened(&other, id);
    file.close().unwrap();
}

#[test]
fn a_key_belongs_to_one_file() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let lease = |name| CreateArgs::open_if(name).lease(KEY, LeaseState::RWH);
    let file = tree.create(&lease("f")).unwrap();
    assert_eq!(
        tree.create_status(&lease("g")).unwrap(),
        Status::INVALID_PARAMETER
    );
    file.close().unwrap();
    assert_eq!(tree.create_status(&lease("g")).unwrap(), Status::SUCCESS);
}

#[test]
fn smb_2_0_2_has_no_leases() {
    let server = HoldfastServer::new();
    let tree = server.tree_with(Options::dialect(Dialect::SMB_2_0_2));
    let args = CreateArgs::open_if("f").lease(KEY, LeaseState::RWH);
    let file = tree.create(&args).unwrap();
    assert_eq!(file.created().oplock_level, OplockLevel::NONE);
    assert!(file.created().lease().is_none());
}

#[test]
fn a_lock_of_another_client_breaks_read_caching() {
    let server = HoldfastServer::new();
    let (holder, other) = (server.tree(), server.tree());
    let args = CreateArgs::open_if("f").lease(KEY, LeaseState::READ);
    let file = holder.create(&args).unwrap();
    file.write_all(0, &[0; 100]).unwrap();
    let locker = other.create(&CreateArgs::open("f")).unwrap();
    locker
        .lock(0, 10, LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY)
        .unwrap();
    let (current, new, ack_required) = lease_break(next(&holder));
    assert_eq!(
        (current, new, ack_required),
        (LeaseState::READ, LeaseState::empty(), false)
    );
}

#[test]
fn a_rename_breaks_handle_caching() {
    let server = HoldfastServer::new();
    let (holder, other) = (server.tree(), server.tree());
    let rh = LeaseState::READ | LeaseState::HANDLE;
    let args = CreateArgs::open_if("f").lease(KEY, rh);
    let file = holder.create(&args).unwrap();
    let renamer = other.create(&CreateArgs::open("f")).unwrap();
    let request = smb_client::Request::rename(renamer.id(), "g", false);
    let id = other.send(request).unwrap();
    assert_eq!(lease_break(next(&holder)), (rh, LeaseState::READ, true));
    holder.acknowledge_lease(KEY, LeaseState::READ).unwrap();
    other.client().wait(id).unwrap().ok().unwrap();
    file.close().unwrap();
}
