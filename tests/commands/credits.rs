//! Message ids and credits ([MS-SMB2] 3.3.1.1, 3.3.1.2, 3.3.4.1.2, 3.3.5.2.3).

use smb_client::{CreateArgs, Options, Request};
use smb_tests::{HoldfastServer, Outcome, outcome};
use smb_wire::ids::MessageId;
use smb_wire::msg::{ChangeNotifyFlags, ChangeNotifyRequest, Dialect, EchoRequest, NotifyFilter};

fn echo() -> Request {
    Request::new(&EchoRequest)
}

#[test]
fn a_client_always_keeps_a_credit() {
    let server = HoldfastServer::new();
    for dialect in [Dialect::SMB_2_0_2, Dialect::SMB_3_1_1] {
        let session = server.session(Options::dialect(dialect));
        let mut connection = session.client().connection();
        for _ in 0..50 {
            // The request asks for no credits.
            let request = echo().overriding(|o| o.credits = Some(0));
            connection.call(request).unwrap().ok().unwrap();
            assert!(connection.core().credits() >= 1);
        }
    }
}

#[test]
fn requested_credits_are_granted_up_to_a_limit() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default());
    let mut connection = session.client().connection();
    for _ in 0..20 {
        let request = echo().overriding(|o| o.credits = Some(u16::MAX));
        connection.call(request).unwrap().ok().unwrap();
    }
    let credits = connection.core().credits();
    assert!((64..=65_535).contains(&credits), "{credits}");
}

#[test]
fn a_stranger_gets_one_credit_at_a_time() {
    let server = HoldfastServer::new();
    let mut connection = server.connection(Options::default());
    connection.negotiate().unwrap();
    for _ in 0..3 {
        let request = echo().overriding(|o| o.credits = Some(u16::MAX));
        let reply = connection.call(request).unwrap();
        assert_eq!(reply.header.credits, 1);
    }
}

#[test]
fn ids_outside_the_window_end_the_connection() {
    let server = HoldfastServer::new();
    for wrong in [0, 1, 1 << 20, u64::MAX - 1] {
        let session = server.session(Options::default());
        let request = echo().overriding(|o| o.message_id = Some(MessageId(wrong)));
        assert_eq!(
            outcome(session.client().call(request)),
            Outcome::Closed,
            "{wrong:#x}"
        );
    }
    server.assert_serving();
}

#[test]
fn an_id_is_used_once() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default());
    let mut connection = session.client().connection();
    let id = connection.send(echo()).unwrap();
    connection.wait(id).unwrap();
    let again = echo().overriding(|o| o.message_id = Some(id));
    assert_eq!(outcome(connection.call(again)), Outcome::Closed);
}

#[test]
fn ids_within_the_window_come_in_any_order() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default());
    let mut connection = session.client().connection();
    let next = connection.core().next_message_id().0;
    for id in [next + 3, next + 1, next + 2, next] {
        let request = echo().overriding(|o| o.message_id = Some(MessageId(id)));
        connection.call(request).unwrap().ok().unwrap();
    }
}

#[test]
fn a_charge_consumes_as_many_ids() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default());
    let mut connection = session.client().connection();
    let next = connection.core().next_message_id().0;
    let of = |id, charge| {
        echo().overriding(|o| {
            o.message_id = Some(MessageId(id));
            o.credit_charge = Some(charge);
        })
    };
    connection.call(of(next, 4)).unwrap().ok().unwrap();
    // The ids between are used up.
    assert_eq!(outcome(connection.call(of(next + 2, 1))), Outcome::Closed);
}

#[test]
fn a_charge_beyond_what_was_granted_ends_the_connection() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default());
    let request = echo().overriding(|o| o.credit_charge = Some(u16::MAX));
    assert_eq!(outcome(session.client().call(request)), Outcome::Closed);
    server.assert_serving();
}

#[test]
fn an_interim_response_grants_the_credits_and_the_final_one_none() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let root = tree.create(&CreateArgs::directory("")).unwrap();
    let before = tree.client().connection().core().credits();
    let id = root
        .notify(NotifyFilter::FILE_NAME, ChangeNotifyFlags::empty(), 4096)
        .unwrap();
    tree.client().wait_pending(id).unwrap().unwrap();
    assert!(tree.client().connection().core().credits() >= before);
    server.tree().write_file("f", b"").unwrap();
    let reply = tree.client().wait(id).unwrap();
    assert_eq!(reply.header.credits, 0);
}

#[test]
fn the_reply_repeats_the_charge() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default());
    let reply = session.client().call(echo()).unwrap();
    assert_eq!(reply.header.credit_charge, 1);
}

/// [MS-SMB2] 3.3.4.1.2: every element of a chain gives back what it has used up, one that fails and one that waits as
/// well.
#[test]
fn a_chain_gives_its_credits_back() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let root = tree.create(&CreateArgs::directory("")).unwrap();
    let notify = || {
        Request::new(&ChangeNotifyRequest {
            flags: ChangeNotifyFlags::empty(),
            output_buffer_length: 4096,
            file_id: root.id(),
            completion_filter: NotifyFilter::EA,
        })
    };
    let one = |request: Request| tree.address(request).overriding(|o| o.credits = Some(1));
    let credits = || tree.client().connection().core().credits();
    let before = credits();
    for _ in 0..20 {
        let requests = vec![
            one(CreateArgs::open("missing").request()),
            one(echo()),
            one(notify()),
        ];
        let sent = tree.client().connection().send_compound(requests);
        let ids = sent.unwrap();
        assert!(tree.client().wait_pending(ids[2]).unwrap().is_some());
        let session = tree.session().id();
        tree.client().connection().cancel(ids[2], session).unwrap();
        for id in ids {
            tree.client().wait(id).unwrap();
        }
    }
    assert_eq!(credits(), before);
}
