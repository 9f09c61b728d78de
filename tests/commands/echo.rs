//! ECHO ([MS-SMB2] 3.3.5.17).

use smb_client::{Options, Request};
use smb_tests::{HoldfastServer, Outcome, outcome};
use smb_wire::Status;
use smb_wire::ids::SessionId;
use smb_wire::msg::{EchoRequest, EchoResponse};

#[test]
fn it_is_answered_with_and_without_a_session() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default());
    for id in [SessionId(0), session.id()] {
        let reply = session
            .client()
            .call(Request::new(&EchoRequest).session(id))
            .unwrap()
            .ok()
            .unwrap();
        EchoResponse::read(&reply.message).unwrap();
        assert_eq!(reply.header.tree_id.0, 0);
    }
}

#[test]
fn a_session_that_is_not_there_is_refused() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default());
    let request = Request::new(&EchoRequest).session(SessionId(0x4242));
    assert_eq!(
        outcome(session.client().call(request)),
        Outcome::Answered(Status::USER_SESSION_DELETED)
    );
}

#[test]
fn many_are_answered_in_any_order_of_asking() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default());
    let client = session.client();
    let ids: Vec<_> = (0..100)
        .map(|_| client.send(Request::new(&EchoRequest)).unwrap())
        .collect();
    for id in ids.into_iter().rev() {
        client.wait(id).unwrap().ok().unwrap();
    }
}
