//! ECHO ([MS-SMB2] 3.3.5.17).

use smb_client::{Options, Request};
use smb_tests::{HoldfastServer, Outcome, outcome};
use smb_wire::Status;
use smb_wire::ids::SessionId;
use smb_wire::msg::{EchoRequest, EchoResponse};

#[test]
fn an_echo_is_answered_with_and_without_a_session() {
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
fn an_unknown_session_is_refused() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default());
    let request = Request::new(&EchoRequest).session(SessionId(0x4242));
    assert_eq!(
        outcome(session.client().call(request)),
        Outcome::Answered(Status::USER_SESSION_DELETED)
    );
}

#[test]
fn many_concurrent_echoes_are_answered() {
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

/// [MS-SMB2] 2.2.1.2: the field has no meaning, but a client that verifies the signature over the
/// header as it would have written it itself fails if the response has another value there.
#[test]
fn the_response_repeats_the_reserved_field_of_the_header() {
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
        // In a compound each element has its own.
        let mut second = Request::new(&EchoRequest).session(session.id());
        second.overrides.reserved = !reserved;
        let first = with(Request::new(&EchoRequest).session(session.id()));
        let replies = session.client().compound(vec![first, second]).unwrap();
        let found: Vec<u32> = replies.iter().map(|reply| reply.header.reserved).collect();
        assert_eq!(found, [reserved, !reserved]);
    }
}
