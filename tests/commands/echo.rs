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

/// [MS-SMB2] 2.2.1.2: the field means nothing, but a client that verifies the signature over the
/// header as it would write it itself finds it forged when the answer has something else there.
#[test]
fn the_reserved_field_of_the_header_is_answered_as_it_was_sent() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let session = tree.session();
    for reserved in [0, 0xfeff, 0xdead_beef] {
        let with = |mut request: Request| {
            request.overrides.reserved = reserved;
            request
        };
        let echo = with(Request::new(&EchoRequest).session(session.id()));
        let refused = with(Request::new(&EchoRequest).session(SessionId(0x4242)));
        for request in [echo, refused] {
            let reply = session.client().call(request).unwrap();
            assert_eq!(reply.header.reserved, reserved, "{:?}", reply.header);
        }
        // In a compound each has its own.
        let mut second = Request::new(&EchoRequest).session(session.id());
        second.overrides.reserved = !reserved;
        let first = with(Request::new(&EchoRequest).session(session.id()));
        let replies = session.client().compound(vec![first, second]).unwrap();
        let found: Vec<u32> = replies.iter().map(|reply| reply.header.reserved).collect();
        assert_eq!(found, [reserved, !reserved]);
    }
}
