//! Leases belong to the client, not to the connection ([MS-SMB2] 3.3.4.7, 3.3.5.9.8, 3.3.5.9.11,
//! 3.3.5.22.2). The behaviour on one connection is tested in `oplock_break.rs`.

use smb_client::{Break, CreateArgs, File, Options, Tree};
use smb_tests::{HoldfastServer, MEANWHILE, SOON, status, wait_for_one_break};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::{LeaseContext, LeaseFlags, LeaseState, LeaseV2, name};
use smb_wire::ids::{Guid, LeaseKey};
use smb_wire::msg::{CreateDisposition, CreateOptions, Dialect, LockFlags, OplockLevel};

const KEY: LeaseKey = LeaseKey([0x11; 16]);
const OTHER_KEY: LeaseKey = LeaseKey([0x22; 16]);
const R: LeaseState = LeaseState::READ;
const RH: LeaseState = LeaseState(3);
const RWH: LeaseState = LeaseState::RWH;

fn of(server: &HoldfastServer, client: u8) -> Tree {
    server.tree_with(Options::default().guid(Guid([client; 16])))
}

fn leased(name: &str) -> CreateArgs {
    CreateArgs::open_if(name).lease_v2(KEY, RWH, 1)
}

/// Asserts a break of [`KEY`] from RWH to RH.
fn assert_breaks(tree: &Tree) {
    let broken = tree.client().next_break(SOON).unwrap();
    let to_rh = matches!(
        broken,
        Some(Break::Lease {
            key: KEY,
            current: RWH,
            new: RH,
            epoch: 3,
            ack_required: true,
        })
    );
    assert!(to_rh, "{broken:?}");
}

#[test]
fn connections_of_one_client_share_a_lease() {
    let server = HoldfastServer::new();
    let (first, second, other) = (of(&server, 1), of(&server, 1), of(&server, 2));
    first.create(&leased("f")).unwrap();
    let again = second.create(&leased("f")).unwrap();
    assert_eq!(again.created().lease().unwrap().lease_state, RWH);
    // The lease outlives the connection that requested it.
    drop(first);
    assert_eq!(second.client().next_break(MEANWHILE).unwrap(), None);
    let id = other.send(CreateArgs::open("f").request()).unwrap();
    assert_breaks(&second);
    second.acknowledge_lease(KEY, RH).unwrap();
    other.client().wait(id).unwrap().ok().unwrap();
}

#[test]
fn any_connection_of_the_client_acknowledges() {
    let server = HoldfastServer::new();
    let (first, second, other) = (of(&server, 1), of(&server, 1), of(&server, 2));
    first.create(&leased("f")).unwrap();
    let id = other.send(CreateArgs::open("f").request()).unwrap();
    assert_breaks(&first);
    // Another client has no lease of this key.
    assert_eq!(
        status(other.acknowledge_lease(KEY, RH)),
        Status::OBJECT_NAME_NOT_FOUND
    );
    second.acknowledge_lease(KEY, RH).unwrap();
    other.client().wait(id).unwrap().ok().unwrap();
    assert_eq!(
        status(first.acknowledge_lease(KEY, RH)),
        Status::UNSUCCESSFUL
    );
}

#[test]
fn a_break_is_sent_again_if_its_connection_is_lost() {
    let server = HoldfastServer::new();
    let (first, second, other) = (of(&server, 1), of(&server, 1), of(&server, 2));
    first.create(&leased("f")).unwrap();
    second.create(&leased("f")).unwrap();
    let id = other.send(CreateArgs::open("f").request()).unwrap();
    let (lost, left) = match wait_for_one_break(&[first.client(), second.client()]) {
        0 => (first, second),
        _ => (second, first),
    };
    drop(lost);
    assert_breaks(&left);
    left.acknowledge_lease(KEY, RH).unwrap();
    other.client().wait(id).unwrap().ok().unwrap();
}

#[test]
fn a_promotion_is_all_or_nothing() {
    let server = HoldfastServer::new();
    let (holder, other) = (of(&server, 1), of(&server, 2));
    let lease = |state| CreateArgs::open_if("f").lease(KEY, state);
    let state = |args: &CreateArgs| {
        let file = holder.create(args).unwrap();
        file.created().lease().unwrap().lease_state
    };
    assert_eq!(state(&lease(R)), R);
    let theirs = CreateArgs::open("f").lease(KEY, R);
    other.create(&theirs).unwrap();
    // RWH cannot be granted, and R and H alone are not what was requested.
    assert_eq!(state(&lease(RWH)), R);
    assert_eq!(state(&lease(RH)), RH);
    // A request for less does not reduce the lease.
    assert_eq!(state(&lease(R)), RH);
    assert_eq!(other.client().next_break(MEANWHILE).unwrap(), None);
}

#[test]
fn the_version_of_a_lease_is_that_of_its_first_open() {
    let server = HoldfastServer::new();
    let tree = of(&server, 1);
    let v1 = CreateArgs::open_if("f").lease(KEY, R);
    let v2 = CreateArgs::open_if("f").lease_v2(KEY, RH, 0x10);
    let first = tree.create(&v1).unwrap();
    let second = tree.create(&v2).unwrap();
    assert!(second.created().lease().unwrap().v2.is_none());
    first.close().unwrap();
    second.close().unwrap();
    let first = tree.create(&v2).unwrap();
    assert_eq!(first.created().lease().unwrap().v2.unwrap().epoch, 0x11);
    let wider = CreateArgs::open_if("f").lease(KEY, RWH);
    let second = tree.create(&wider).unwrap();
    let lease = second.created().lease().unwrap();
    assert_eq!((lease.lease_state, lease.v2.unwrap().epoch), (RWH, 0x12));
}

#[test]
fn version_two_begins_with_3_0() {
    let server = HoldfastServer::new();
    let tree = server.tree_with(Options::dialect(Dialect::SMB_2_1));
    let file = tree.create(&leased("f")).unwrap();
    assert!(file.created().lease().is_none());
    let file = tree
        .create(&CreateArgs::open_if("g").lease(KEY, RWH))
        .unwrap();
    assert_eq!(file.created().lease().unwrap().lease_state, RWH);
}

#[test]
fn two_clients_with_one_key_have_two_leases() {
    let server = HoldfastServer::new();
    let (holder, other) = (of(&server, 1), of(&server, 2));
    holder.create(&leased("f")).unwrap();
    let id = other.send(leased("f").request()).unwrap();
    assert_breaks(&holder);
    holder.acknowledge_lease(KEY, RH).unwrap();
    let reply = other.client().wait(id).unwrap().ok().unwrap();
    let second = other.file(&reply).unwrap();
    assert_eq!(second.created().lease().unwrap().lease_state, RH);
    // Each client can use the key for a file of its own.
    other
        .create(&CreateArgs::open_if("g").lease(OTHER_KEY, RH))
        .unwrap();
    let args = CreateArgs::open_if("g").lease(OTHER_KEY, RH);
    assert_eq!(holder.create_status(&args).unwrap(), Status::SUCCESS);
}

#[test]
fn opening_to_delete_breaks_handle_caching() {
    let server = HoldfastServer::new();
    let (holder, other) = (of(&server, 1), of(&server, 2));
    let file = holder
        .create(&CreateArgs::open_if("f").lease(KEY, RH))
        .unwrap();
    let args = CreateArgs::open("f")
        .access(AccessMask::DELETE)
        .options(CreateOptions::DELETE_ON_CLOSE);
    let id = other.send(args.request()).unwrap();
    let broken = holder.client().next_break(SOON).unwrap();
    assert!(
        matches!(
            broken,
            Some(Break::Lease {
                current: RH,
                new: R,
                ack_required: true,
                ..
            })
        ),
        "{broken:?}"
    );
    assert!(!other.client().connection().answered(id, MEANWHILE).unwrap());
    file.close().unwrap();
    let reply = other.client().wait(id).unwrap().ok().unwrap();
    other.file(&reply).unwrap().close().unwrap();
    assert!(!server.path("f").exists());
}

/// Creates the file `f` with some bytes and locks the first one.
fn locked(tree: &Tree) -> File {
    tree.write_file("f", &[7; 8192]).unwrap();
    let file = tree.create(&CreateArgs::open("f")).unwrap();
    file.lock(0, 1, LockFlags(0x12)).unwrap();
    file
}

#[test]
fn an_open_that_truncates_the_file_is_granted_a_lease_despite_locks() {
    // smb2.lease.lock3; [MS-FSA] 2.1.5.18: only locks within the allocation prevent the lease.
    let server = HoldfastServer::new();
    let (locker, other) = (of(&server, 1), of(&server, 2));
    for disposition in [
        CreateDisposition::OVERWRITE,
        CreateDisposition::OVERWRITE_IF,
        CreateDisposition::SUPERSEDE,
    ] {
        let file = locked(&locker);
        let args = CreateArgs::new("f", disposition).lease_v2(KEY, RWH, 1);
        let overwriting = other.create(&args).unwrap();
        let lease = overwriting.created().lease().unwrap();
        assert_eq!(lease.lease_state, RH, "{disposition:?}");
        overwriting.close().unwrap();
        file.close().unwrap();
    }
}

#[test]
fn a_lock_in_a_hole_prevents_read_caching() {
    // [MS-FSA] 2.1.5.18: the allocation of a stream covers its end of file, with holes and all.
    let server = HoldfastServer::new();
    let (locker, other) = (of(&server, 1), of(&server, 2));
    let file = locker.create(&CreateArgs::open_if("f")).unwrap();
    file.set_end_of_file(1 << 20).unwrap();
    file.lock(1 << 16, 1, LockFlags(0x12)).unwrap();
    let args = CreateArgs::open("f").lease(KEY, RH);
    let beside = other.create(&args).unwrap();
    let lease = beside.created().lease().unwrap();
    assert_eq!(lease.lease_state, LeaseState(0));
}

#[test]
fn if_nothing_is_granted_the_epoch_is_the_clients() {
    // smb2.lease.lease-epoch
    let server = HoldfastServer::new();
    let (locker, other) = (of(&server, 1), of(&server, 2));
    let _file = locked(&locker);
    let asked = |state| {
        let args = CreateArgs::open("f").lease_v2(KEY, state, 100);
        let file = other.create(&args).unwrap();
        assert_eq!(file.created().oplock_level, OplockLevel::LEASE);
        let lease = file.created().lease().unwrap();
        file.close().unwrap();
        (lease.lease_state, lease.v2.unwrap().epoch)
    };
    for state in [R, RH, LeaseState(0)] {
        assert_eq!(asked(state), (LeaseState(0), 100), "{state:?}");
    }
}

#[test]
fn write_caching_is_not_granted_beside_an_open_for_read_control() {
    // The open breaks no lease, but it is another open of the file ([MS-FSA] 2.1.5.18.1).
    let server = HoldfastServer::new();
    let (first, second) = (of(&server, 1), of(&server, 2));
    for (access, state) in [
        (AccessMask::READ_CONTROL, RH),
        (AccessMask::FILE_READ_ATTRIBUTES, RWH),
    ] {
        first.write_file("f", b"content").unwrap();
        let args = CreateArgs::open("f").access(access);
        let looking = first.create(&args).unwrap();
        let file = second.create(&leased("f")).unwrap();
        let granted = file.created().lease().unwrap().lease_state;
        assert_eq!(granted, state, "{access:?}");
        file.close().unwrap();
        looking.close().unwrap();
    }
}

#[test]
fn the_breaking_flag_of_a_request_is_ignored() {
    // smb2.lease.v2_flags_breaking
    let server = HoldfastServer::new();
    let context = LeaseContext {
        lease_key: KEY,
        lease_state: RWH,
        flags: LeaseFlags::BREAK_IN_PROGRESS,
        v2: Some(LeaseV2 {
            parent_lease_key: LeaseKey::default(),
            epoch: 5,
        }),
    };
    let args = CreateArgs::open_if("f").lease_context(&context);
    let file = of(&server, 1).create(&args).unwrap();
    let lease = file.created().lease().unwrap();
    assert_eq!((lease.lease_state, lease.flags), (RWH, LeaseFlags(0)));
    assert_eq!(lease.v2.unwrap().epoch, 6);
}

#[test]
fn smb_2_0_2_does_not_accept_lease_acknowledgments() {
    let server = HoldfastServer::new();
    let tree = server.tree_with(Options::dialect(Dialect::SMB_2_0_2));
    assert_eq!(
        status(tree.acknowledge_lease(KEY, RH)),
        Status::INVALID_PARAMETER
    );
}

/// [MS-SMB2] 2.2.13.2.8, 2.2.13.2.10: the context has 32 or 52 bytes. Others are refused (3.3.5.9),
/// and nothing is created.
#[test]
fn contexts_of_another_size_are_refused() {
    let server = HoldfastServer::new();
    let tree = of(&server, 1);
    for size in 0..=64 {
        let args = CreateArgs::create("f").oplock(OplockLevel::LEASE);
        let args = args.context(name::REQUEST_LEASE, &vec![0x11; size]);
        let got = tree.create_status(&args).unwrap();
        if matches!(size, 32 | 52) {
            assert_eq!(got, Status::SUCCESS, "{size}");
            std::fs::remove_file(server.path("f")).unwrap();
        } else {
            assert_eq!(got, Status::INVALID_PARAMETER, "{size}");
            assert!(!server.path("f").exists(), "{size}");
        }
    }
}
