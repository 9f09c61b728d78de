//! Changes by other processes of the host to a file with a caching persistent open, across a
//! restart of the server: the client is notified, or its caching is not restored.

use std::time::Duration;

use smb_client::{Break, CreateArgs, File, Options, Tree};
use smb_tests::durable::{CREATE_GUID, KEY, continuously_available, persistent, persistent_again};
use smb_tests::{HoldfastServer, SOON};
use smb_wire::create_context::LeaseState;
use smb_wire::ids::Guid;
use smb_wire::msg::Dialect;

const RH: LeaseState = LeaseState(3);
const NONE: LeaseState = LeaseState(0);
/// A change older than this has been noticed and recorded (`smbd/src/state/persistent_store.rs`).
const RECORDED: Duration = Duration::from_millis(4500);

fn tree(server: &HoldfastServer) -> Tree {
    server.tree_with(Options::dialect(Dialect::SMB_3_1_1).guid(Guid([0x55; 16])))
}

fn leased() -> CreateArgs {
    CreateArgs::open_if("f").lease_v2(KEY, RH, 0)
}

/// A server, and a file that a client caches through a persistent open.
fn held() -> (HoldfastServer, File) {
    let server = continuously_available();
    std::fs::write(server.path("f"), "before").unwrap();
    let file = tree(&server)
        .create(&persistent(leased(), CREATE_GUID, 60_000))
        .unwrap();
    (server, file)
}

#[test]
fn caching_is_restored_and_watched_unless_the_file_changed_meanwhile() {
    let (mut server, file) = held();
    let path = server.path("f");
    assert_eq!(file.created().lease().unwrap().lease_state, RH);
    let back = persistent_again(leased(), file.id(), CREATE_GUID);
    std::thread::sleep(RECORDED);
    server.kill_and_restart();
    // Nothing has changed, and from now on the file is watched again.
    let mine = tree(&server);
    let file = mine.create(&back).unwrap();
    let lease = file.created().lease().unwrap();
    assert_eq!(lease.lease_state, RH);
    std::fs::write(&path, "changed").unwrap();
    let heard = mine.client().next_break(SOON).unwrap();
    let Some(Break::Lease { current, new, .. }) = heard else {
        panic!("{heard:?}")
    };
    assert_eq!((current, new), (RH, NONE));
}

#[test]
fn caching_is_not_restored_if_the_file_changed_while_no_server_ran() {
    let (mut server, file) = held();
    let path = server.path("f");
    let granted = file.created().lease().unwrap();
    let epoch = granted.v2.unwrap().epoch;
    let back = persistent_again(leased(), file.id(), CREATE_GUID);
    std::thread::sleep(RECORDED);
    server.kill_and_restart_after(|| std::fs::write(&path, "changed").unwrap());
    // It is not restored after another restart either.
    for restarts in 0..2 {
        if restarts > 0 {
            std::thread::sleep(RECORDED);
            server.kill_and_restart();
        }
        let mine = tree(&server);
        let file = mine.create(&back).unwrap();
        let lease = file.created().lease().unwrap();
        assert_eq!(lease.lease_state, NONE);
        assert!(lease.v2.unwrap().epoch > epoch, "it knows that it lost it");
        assert_eq!(file.read_all().unwrap(), b"changed");
    }
}
