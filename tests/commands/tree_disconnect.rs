//! TREE_DISCONNECT ([MS-SMB2] 3.3.5.8, 3.3.5.2.11).

use smb_client::{CreateArgs, Options, Request};
use smb_tests::{DATA, HoldfastServer, Outcome, outcome, status};
use smb_wire::Status;
use smb_wire::ids::{SessionId, TreeId};
use smb_wire::msg::{ShareAccess, TreeDisconnectRequest, TreeDisconnectResponse};

#[test]
fn a_tree_disconnect_closes_the_opens_of_the_tree() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default());
    let (first, other) = (session.tree(DATA).unwrap(), session.tree(DATA).unwrap());
    let held = CreateArgs::create("held").share(ShareAccess::empty());
    let file = first.create(&held).unwrap();
    assert_eq!(
        status(other.create(&CreateArgs::open("held"))),
        Status::SHARING_VIOLATION
    );
    let reply = first.call(Request::new(&TreeDisconnectRequest)).unwrap();
    TreeDisconnectResponse::read(&reply.message).unwrap();
    assert_eq!(
        status(first.create(&CreateArgs::open("held"))),
        Status::NETWORK_NAME_DELETED
    );
    assert_eq!(status(first.disconnect()), Status::NETWORK_NAME_DELETED);
    other.create(&CreateArgs::open("held")).unwrap();
    assert_eq!(status(file.through(&other).close()), Status::FILE_CLOSED);
}

#[test]
fn unknown_trees_give_network_name_deleted() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default());
    session.tree(DATA).unwrap();
    for id in [TreeId(0), TreeId(0x7fff_fff0), TreeId::ANY] {
        let request = Request::new(&TreeDisconnectRequest)
            .session(session.id())
            .tree(id);
        assert_eq!(
            outcome(session.client().call(request)),
            Outcome::Answered(Status::NETWORK_NAME_DELETED),
            "{id:?}"
        );
    }
}

#[test]
fn the_session_is_looked_up_first() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let request = Request::new(&TreeDisconnectRequest)
        .session(SessionId(0x99))
        .tree(tree.id());
    assert_eq!(
        outcome(tree.client().call(request)),
        Outcome::Answered(Status::USER_SESSION_DELETED)
    );
    tree.write_file("f", b"x").unwrap();
}
