//! Rules of single fields of leases: the name of a key, impossible states, epochs, the parent's key, and wrong
//! acknowledgments ([MS-SMB2] 3.3.5.9.8, 3.3.5.9.11, 3.3.5.22.2).

use smb_client::{Break, CreateArgs, File, Login, Options, Tree};
use smb_tests::{
    DATA, HoldfastServer, MEANWHILE, OTHER_PASSWORD, OTHER_USER, SECOND, SOON, status,
};
use smb_wire::Status;
use smb_wire::create_context::{LeaseContext, LeaseFlags, LeaseState, LeaseV2};
use smb_wire::ids::{Guid, LeaseKey, MessageId};
use smb_wire::msg::OplockLevel;

const KEY: LeaseKey = LeaseKey([0x11; 16]);
const OTHER_KEY: LeaseKey = LeaseKey([0x22; 16]);
const RH: LeaseState = LeaseState(3);
const RWH: LeaseState = LeaseState::RWH;

/// The options of a client that stays the same on all its connections.
fn options() -> Options {
    Options::default().guid(Guid([1; 16]))
}

/// Requests a lease of either version.
fn leased(name: &str, state: LeaseState, v2: bool) -> CreateArgs {
    let args = CreateArgs::open_if(name);
    if v2 {
        args.lease_v2(KEY, state, 1)
    } else {
        args.lease(KEY, state)
    }
}

/// Opens the file `f` on another connection. Returns the request, which waits for the holder, and the new state and the
/// epoch of the break.
fn contend(holder: &Tree, other: &Tree) -> (MessageId, LeaseState, u16) {
    let id = other.send(CreateArgs::open("f").request()).unwrap();
    let broken = holder.client().next_break(SOON).unwrap();
    let Some(Break::Lease {
        key: KEY,
        new,
        epoch,
        ..
    }) = broken
    else {
        panic!("{broken:?}");
    };
    (id, new, epoch)
}

fn opened(tree: &Tree, id: MessageId) -> File {
    let reply = tree.client().wait(id).unwrap().ok().unwrap();
    tree.file(&reply).unwrap()
}

/// [MS-SMB2] 3.3.5.9.8, 3.3.5.9.11: the same name on another share is another file, and so is a stream.
#[test]
fn a_key_belongs_to_one_share_and_one_stream() {
    let server = HoldfastServer::new();
    let session = server.session(options());
    let (tree, second) = (session.tree(DATA).unwrap(), session.tree(SECOND).unwrap());
    for v2 in [false, true] {
        let file = tree.create(&leased("f", RWH, v2)).unwrap();
        for (elsewhere, name) in [(&second, "f"), (&tree, "f:s")] {
            let args = leased(name, RWH, v2);
            let refused = elsewhere.create_status(&args).unwrap();
            assert_eq!(refused, Status::INVALID_PARAMETER, "{name} {v2}");
        }
        assert!(!server.share_path(SECOND, "f").exists());
        let found = tree.create_status(&CreateArgs::open("f:s")).unwrap();
        assert_eq!(found, Status::OBJECT_NAME_NOT_FOUND);
        file.close().unwrap();
    }
}

/// [MS-FSA] 2.1.5.18 knows no caching of handles or of writes without that of reads; smb2.lease.request.
#[test]
fn states_without_read_caching_are_not_granted() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for state in [LeaseState(2), LeaseState(4), LeaseState(6)] {
        for v2 in [false, true] {
            let file = tree.create(&leased("f", state, v2)).unwrap();
            let lease = file.created().lease().unwrap();
            let granted = (file.created().oplock_level, lease.lease_state);
            let nothing = (OplockLevel::LEASE, LeaseState::empty());
            assert_eq!(granted, nothing, "{state} {v2}");
            file.close().unwrap();
        }
    }
}

/// [MS-SMB2] 2.2.13.2.10: the epoch has 16 bits, and begins again.
#[test]
fn the_epoch_begins_again_after_the_greatest() {
    let server = HoldfastServer::new();
    let (holder, other) = (server.tree_with(options()), server.tree());
    for (asked, granted, broken) in [(0xfffe, 0xffff, 0), (0xffff, 0, 1)] {
        let args = CreateArgs::open_if("f").lease_v2(KEY, RWH, asked);
        let file = holder.create(&args).unwrap();
        let lease = file.created().lease().unwrap();
        assert_eq!(lease.v2.unwrap().epoch, granted);
        let (id, new, epoch) = contend(&holder, &other);
        assert_eq!((new, epoch), (RH, broken));
        holder.acknowledge_lease(KEY, RH).unwrap();
        opened(&other, id).close().unwrap();
        file.close().unwrap();
    }
}

/// [MS-SMB2] 3.3.5.22.2: states that are not to be left are refused, and the break goes on.
#[test]
fn an_acknowledgment_of_other_states_is_refused_and_ends_nothing() {
    let server = HoldfastServer::new();
    let (holder, other) = (server.tree_with(options()), server.tree());
    let file = holder.create(&leased("f", RWH, true)).unwrap();
    let (id, new, _) = contend(&holder, &other);
    assert_eq!(new, RH);
    for wrong in [4, 5, 7, 0x0b, 0x8000_0003, u32::MAX] {
        let refused = status(holder.acknowledge_lease(KEY, LeaseState(wrong)));
        assert_eq!(refused, Status::REQUEST_NOT_ACCEPTED, "{wrong:#x}");
    }
    assert!(!other.client().connection().answered(id, MEANWHILE).unwrap());
    holder.acknowledge_lease(KEY, RH).unwrap();
    opened(&other, id).close().unwrap();
    file.close().unwrap();
}

/// [MS-SMB2] 3.3.5.9.11: the parent's key is one only with SMB2_LEASE_FLAG_PARENT_LEASE_KEY_SET.
#[test]
fn a_parents_key_without_its_flag_is_none() {
    let server = HoldfastServer::new();
    let (holder, other) = (server.tree_with(options()), server.tree());
    holder.mkdir("d").unwrap();
    let directory = CreateArgs::directory("d").lease_v2(KEY, RH, 1);
    let directory = holder.create(&directory).unwrap();
    assert_eq!(directory.created().lease().unwrap().lease_state, RH);
    let child = CreateArgs::create("d\\f").lease_context(&LeaseContext {
        lease_key: OTHER_KEY,
        lease_state: RH,
        flags: LeaseFlags::empty(),
        v2: Some(LeaseV2 {
            parent_lease_key: KEY,
            epoch: 1,
        }),
    });
    let file = other.create(&child).unwrap();
    let lease = file.created().lease().unwrap();
    assert_eq!(lease.parent_lease_key(), None);
    let broken = holder.client().next_break(SOON).unwrap();
    let of_directory = matches!(broken, Some(Break::Lease { key: KEY, .. }));
    assert!(of_directory, "{broken:?}");
}

/// Another user of the client that `options` describes.
fn other_user(server: &HoldfastServer) -> Tree {
    let client = server.client(options());
    let bob = client.login(OTHER_USER, OTHER_PASSWORD, "").unwrap();
    bob.tree(DATA).unwrap()
}

/// [MS-SMB2] 3.3.5.9.11: a lease is found by ClientGuid and key, for every user; docs/protocol-notes.md, "Who
/// acknowledges a lease break".
#[test]
fn the_users_of_one_client_share_its_leases() {
    let server = HoldfastServer::new();
    let (holder, other) = (server.tree_with(options()), server.tree());
    let bob = other_user(&server);
    let file = holder.create(&leased("f", RWH, true)).unwrap();
    let beside = bob.create(&leased("f", RWH, true)).unwrap();
    assert_eq!(beside.created().lease().unwrap().lease_state, RWH);
    assert_eq!(holder.client().next_break(MEANWHILE).unwrap(), None);
    file.close().unwrap();
    let (id, new, _) = contend(&bob, &other);
    assert_eq!(new, RH);
    bob.acknowledge_lease(KEY, RH).unwrap();
    opened(&other, id).close().unwrap();
    beside.close().unwrap();
}

/// Its ClientGuid and the key can be read on the way; docs/protocol-notes.md, "Who acknowledges a lease break".
#[test]
fn a_user_without_an_open_of_the_lease_does_not_acknowledge_its_break() {
    let server = HoldfastServer::new();
    let (holder, other) = (server.tree_with(options()), server.tree());
    let bob = other_user(&server);
    let file = holder.create(&leased("f", RWH, true)).unwrap();
    let without = bob.create(&CreateArgs::open_if("g")).unwrap();
    let (id, new, _) = contend(&holder, &other);
    assert_eq!(new, RH);
    let refused = status(bob.acknowledge_lease(KEY, RH));
    assert_eq!(refused, Status::OBJECT_NAME_NOT_FOUND);
    holder.acknowledge_lease(KEY, RH).unwrap();
    opened(&other, id).close().unwrap();
    without.close().unwrap();
    file.close().unwrap();
}

#[test]
fn a_session_that_became_anonymous_acknowledges_the_breaks_of_its_user() {
    let server = HoldfastServer::new();
    let (holder, other) = (server.tree_with(options()), server.tree());
    let file = holder.create(&leased("f", RWH, true)).unwrap();
    let turned = holder.session().reauthenticate(&Login::anonymous());
    turned.unwrap();
    let (id, new, _) = contend(&holder, &other);
    assert_eq!(new, RH);
    holder.acknowledge_lease(KEY, RH).unwrap();
    opened(&other, id).close().unwrap();
    file.close().unwrap();
}

/// [MS-SMB2] 3.3.4.7: another key of the same client is another lease, and the connection that waits for a break serves
/// the acknowledgment.
#[test]
fn two_keys_of_one_connection_are_two_leases() {
    let server = HoldfastServer::new();
    let tree = server.tree_with(options());
    let file = tree.create(&leased("f", RWH, true)).unwrap();
    let args = CreateArgs::open("f").lease_v2(OTHER_KEY, RWH, 1);
    let id = tree.send(args.request()).unwrap();
    let broken = tree.client().next_break(SOON).unwrap();
    let of_the_first = matches!(
        broken,
        Some(Break::Lease {
            key: KEY,
            new: RH,
            ..
        })
    );
    assert!(of_the_first, "{broken:?}");
    tree.acknowledge_lease(KEY, RH).unwrap();
    let second = opened(&tree, id);
    assert_eq!(second.created().lease().unwrap().lease_state, RH);
    // Each breaks the other's caching, and not its own.
    second.write_all(0, b"x").unwrap();
    let broken = tree.client().next_break(SOON).unwrap();
    let of_the_first = matches!(broken, Some(Break::Lease { key: KEY, .. }));
    assert!(of_the_first, "{broken:?}");
    assert_eq!(tree.client().next_break(MEANWHILE).unwrap(), None);
    file.close().unwrap();
    second.close().unwrap();
}
