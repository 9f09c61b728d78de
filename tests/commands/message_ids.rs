//! The ids, charges and lengths of messages, and what every response has alike ([MS-SMB2] 3.3.4.1, 3.3.4.4, 3.3.5.2,
//! 3.3.5.2.3).

use bytes::BytesMut;
use smb_client::{ClientError, Connection, CreateArgs, Options, Request};
use smb_tests::{HoldfastServer, Outcome, outcome};
use smb_wire::Status;
use smb_wire::ids::{FileId, MessageId, SessionId, TreeId};
use smb_wire::msg::{Dialect, EchoRequest, LogoffRequest, WriteFlags};
use smb_wire::smb1::{DIALECT_SMB_2_WILDCARD, Smb1NegotiateRequest};

fn echo() -> Request {
    Request::new(&EchoRequest)
}

/// [MS-SMB2] 3.3.5.2.3: an id leaves the window with the first element that has it.
#[test]
fn two_elements_of_a_chain_have_no_id_in_common() {
    let server = HoldfastServer::new();
    let session = server.session(Options::default());
    let next = session.client().connection().core().next_message_id();
    let element = || {
        let request = echo().session(session.id());
        request.overriding(|o| o.message_id = Some(next))
    };
    let ended = session.client().compound(vec![element(), element()]);
    assert!(matches!(ended, Err(ClientError::Disconnected)), "{ended:?}");
    server.assert_serving();
}

/// [MS-SMB2] 3.3.5.2.3: a charge of 0 is one id, and so is any charge where requests have none.
#[test]
fn a_charge_of_0_and_any_without_multi_credit_use_up_one_id() {
    let server = HoldfastServer::new();
    for (dialect, charge) in [
        (Dialect::SMB_3_1_1, 0),
        (Dialect::SMB_2_0_2, 2),
        (Dialect::SMB_2_0_2, 0xffff),
    ] {
        let session = server.session(Options::dialect(dialect));
        for _ in 0..3 {
            let request = echo().session(session.id());
            let request = request.overriding(|o| o.credit_charge = Some(charge));
            let reply = session.client().call(request).unwrap();
            assert_eq!(reply.status(), Status::SUCCESS, "{dialect} {charge}");
        }
    }
}

/// [MS-SMB2] 3.3.4.1: a response has the charge of its request, and an error has it as well.
#[test]
fn a_response_repeats_the_charge_of_its_request() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    file.write_all(0, &[7; 10]).unwrap();
    for (file_id, expected) in [
        (file.id(), Status::SUCCESS),
        (FileId::ANY, Status::FILE_CLOSED),
    ] {
        for (length, charge) in [(10, 1), (65_537, 2), (200_000, 4)] {
            let reply = tree.reply(Request::read(file_id, 0, length)).unwrap();
            let end = (reply.status(), reply.header.credit_charge);
            assert_eq!(end, (expected, charge), "{length}");
        }
    }
}

/// [MS-SMB2] 3.3.5.1, 3.3.5.2.3: the window begins with the id 0, which an SMB_COM_NEGOTIATE uses up.
#[test]
fn the_ids_of_a_connection_begin_with_0() {
    let server = HoldfastServer::new();
    let fresh = || server.connection(Options::default());
    let behind_smb1 = || {
        let mut message = BytesMut::new();
        Smb1NegotiateRequest::encode(&mut message, &[DIALECT_SMB_2_WILDCARD]);
        let mut connection = fresh();
        connection.send_message(&message).unwrap();
        let reply = connection.receive().unwrap();
        assert_eq!(reply.header.message_id, MessageId(0));
        connection
    };
    let negotiate = |mut connection: Connection, id| {
        let request = connection.core_mut().negotiate_request();
        let request = request.overriding(|o| o.message_id = Some(MessageId(id)));
        outcome(connection.call(request))
    };
    let done = Outcome::Answered(Status::SUCCESS);
    assert_eq!(negotiate(fresh(), 1), Outcome::Closed);
    assert_eq!(negotiate(fresh(), 0), done);
    assert_eq!(negotiate(behind_smb1(), 0), Outcome::Closed);
    assert_eq!(negotiate(behind_smb1(), 1), done);
}

/// [MS-SMB2] 3.3.5.2: a message may be 256 bytes longer than the longest buffer.
#[test]
fn a_message_beyond_the_longest_buffer_ends_the_connection() {
    let server = HoldfastServer::lenient();
    for dialect in [Dialect::SMB_2_1, Dialect::SMB_3_1_1] {
        for (more, too_long) in [(256, false), (257, true)] {
            let tree = server.tree_with(Options::dialect(dialect));
            let file = tree.create(&CreateArgs::open_if("f")).unwrap();
            let longest = tree.client().negotiated().max_transact_size;
            let length = smb_wire::codec::size(longest) + more;
            let request = file.write_request(0, b"abc", WriteFlags::empty());
            let end = outcome(tree.reply(request.mutate(|m| m.resize(length, 0))));
            let closed = end == Outcome::Closed;
            assert_eq!(closed, too_long, "{dialect} {more} {end:?}");
        }
    }
    server.assert_serving();
}

/// docs/protocol-notes.md, "The length of a message".
#[test]
fn a_compound_has_room_for_one_longest_buffer_and_more() {
    const LONGEST: usize = 65_536;
    let server = HoldfastServer::start(&smb_tests::Options {
        tables: format!("[limits]\nio_size = {LONGEST}\n"),
        ..smb_tests::Options::default()
    });
    let related = |request: Request| request.session(SessionId::ANY).tree(TreeId::ANY).related();
    let data = vec![7; LONGEST];
    for (writes, expected) in [
        (1, Outcome::Answered(Status::SUCCESS)),
        (2, Outcome::Closed),
    ] {
        let tree = server.tree();
        let create = CreateArgs::open_if(&"f".repeat(200)).request();
        let mut chain = vec![tree.address(create)];
        for _ in 0..writes {
            let write = Request::write(FileId::ANY, 0, &data, WriteFlags::empty());
            chain.push(related(write));
        }
        chain.push(related(Request::close(FileId::ANY)));
        let replies = tree.client().compound(chain);
        let write = replies.map(|mut replies| replies.remove(1));
        assert_eq!(outcome(write), expected, "{writes}");
    }
    server.assert_serving();
}

/// [MS-SMB2] 3.3.5.2.11 concerns commands that need a tree; all others ignore the id of one.
#[test]
fn commands_without_a_tree_ignore_its_id() {
    let server = HoldfastServer::new();
    for id in [TreeId(0x1234), TreeId::ANY] {
        let session = server.session(Options::default());
        let ask = |request: Request| {
            let request = request.session(session.id()).tree(id);
            session.client().call(request).unwrap().status()
        };
        assert_eq!(ask(echo()), Status::SUCCESS, "{id:?}");
        let connect = session.tree_connect(r"\\host\data");
        assert_eq!(ask(connect), Status::SUCCESS, "{id:?}");
        let logoff = Request::new(&LogoffRequest);
        assert_eq!(ask(logoff), Status::SUCCESS, "{id:?}");
    }
}

/// [MS-SMB2] 3.3.4.4, 2.2.2: an error without data has no contexts and no bytes.
#[test]
fn an_error_without_data_has_an_empty_body() {
    let server = HoldfastServer::new();
    for dialect in Dialect::ALL {
        let tree = server.tree_with(Options::dialect(dialect));
        for request in [
            CreateArgs::open("missing").request(),
            Request::flush(FileId::ANY),
        ] {
            let reply = tree.reply(request).unwrap();
            assert!(reply.status().is_error(), "{dialect}");
            // StructureSize, ErrorContextCount, Reserved and ByteCount.
            assert_eq!(reply.message[64..72], [9, 0, 0, 0, 0, 0, 0, 0], "{dialect}");
        }
    }
}
