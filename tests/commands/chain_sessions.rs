//! Chains that connect a tree, end a tree or a session, or belong to several sessions, and encrypted messages
//! ([MS-SMB2] 3.3.4.1.1, 3.3.5.2.1.1, 3.3.5.2.7.1, 3.3.5.2.7.2).

use smb_client::{ClientError, CreateArgs, Encryption, Options, Reply, Request, Signing, Tree};
use smb_tests::{
    DATA, HoldfastServer, OTHER_PASSWORD, OTHER_USER, Outcome, PASSWORD, USER, outcome,
};
use smb_wire::header::{Header, HeaderFlags};
use smb_wire::ids::{FileId, MessageId, SessionId, TreeId};
use smb_wire::msg::{
    ChangeNotifyFlags, ChangeNotifyRequest, Dialect, EchoRequest, LogoffRequest, NotifyFilter,
    TreeDisconnectRequest, WriteFlags,
};
use smb_wire::{Command, Status};

fn related(request: Request) -> Request {
    request.session(SessionId::ANY).tree(TreeId::ANY).related()
}

fn statuses(replies: &[Reply]) -> Vec<Status> {
    replies.iter().map(Reply::status).collect()
}

/// [MS-SMB2] 3.3.5.2.7.2: the elements behind a TREE_CONNECT belong to its tree.
#[test]
fn a_chain_connects_a_tree_and_works_in_it() {
    let server = HoldfastServer::new();
    for dialect in [Dialect::SMB_2_1, Dialect::SMB_3_1_1] {
        let session = server.session(Options::dialect(dialect));
        let name = format!("{dialect}");
        let write = Request::write(FileId::ANY, 0, b"chained", WriteFlags::empty());
        let replies = session.client().compound(vec![
            session.tree_connect(r"\\host\data"),
            related(CreateArgs::create(&name).request()),
            related(write),
            related(Request::close(FileId::ANY)),
        ]);
        assert_eq!(statuses(&replies.unwrap()), [Status::SUCCESS; 4]);
        assert_eq!(std::fs::read(server.path(&name)).unwrap(), b"chained");
    }
}

/// [MS-SMB2] 3.3.5.2.7.2: elements behind the end of their tree or session name one that is not there any more.
#[test]
fn elements_behind_the_end_of_their_tree_or_session_fail() {
    // Where signatures are required, the key that verifies them is gone as well.
    let server = HoldfastServer::lenient();
    let options = Options::dialect(Dialect::SMB_3_0_2).signing(Signing::Never);
    let tree = server.tree_with(options);
    let (session, client) = (tree.session(), tree.client());
    let create = related(CreateArgs::create("made").request());
    let disconnect = tree.address(Request::new(&TreeDisconnectRequest));
    let replies = client.compound(vec![disconnect, create]).unwrap();
    let gone = Status::NETWORK_NAME_DELETED;
    assert_eq!(statuses(&replies), [Status::SUCCESS, gone]);
    let logoff = Request::new(&LogoffRequest).session(session.id());
    let connect = related(session.tree_connect(r"\\host\data"));
    let replies = client.compound(vec![logoff, connect]).unwrap();
    let gone = Status::USER_SESSION_DELETED;
    assert_eq!(statuses(&replies), [Status::SUCCESS, gone]);
    assert!(!server.path("made").exists());
}

/// [MS-SMB2] 3.3.5.2.7.1: elements that are not related are handled each on its own, with the session and the key of
/// each.
#[test]
fn unrelated_elements_may_be_of_several_sessions() {
    let server = HoldfastServer::new();
    let client = server.client(Options::default().signing(Signing::Required));
    let alice = client.login(USER, PASSWORD, "").unwrap();
    let bob = client.login(OTHER_USER, OTHER_PASSWORD, "").unwrap();
    let (alice, bob) = (alice.tree(DATA).unwrap(), bob.tree(DATA).unwrap());
    let make = |tree: &Tree, name: &str| tree.address(CreateArgs::create(name).request());
    let replies = client.compound(vec![
        make(&alice, "hers"),
        make(&bob, "his"),
        make(&alice, "hers too"),
    ]);
    for (reply, tree) in replies.unwrap().iter().zip([&alice, &bob, &alice]) {
        assert_eq!((reply.status(), reply.signed), (Status::SUCCESS, true));
        assert_eq!(reply.header.session_id, tree.session().id());
        tree.file(reply).unwrap().close().unwrap();
    }
}

/// [MS-SMB2] 3.3.5.2.1.1: each element of an encrypted message begins at a multiple of 8 bytes.
#[test]
fn an_encrypted_chain_that_is_not_aligned_ends_the_connection() {
    let server = HoldfastServer::new();
    for (gap, expected) in [
        (4, Outcome::Answered(Status::SUCCESS)),
        (0, Outcome::Closed),
    ] {
        let session = server.session(Options::default().encryption(Encryption::Always));
        let mut connection = session.client().connection();
        connection.core_mut().tolerate();
        let next = connection.core().next_message_id();
        let second = Header {
            credit_charge: 1,
            command: Command::ECHO,
            message_id: MessageId(next.0 + 1),
            session_id: session.id(),
            ..Header::default()
        };
        // The body of an ECHO, before and behind the header of another.
        let body = [4_u8, 0, 0, 0];
        let message = [&body[..], &[0; 4][..gap], &second.to_bytes(), &body].concat();
        let distance = u32::try_from(68 + gap).unwrap();
        let first = Request::raw(Command::ECHO, &message).session(session.id());
        let first = first.overriding(|o| o.next_command = Some(distance));
        assert_eq!(outcome(connection.call(first)), expected, "{gap}");
    }
    server.assert_serving();
}

/// [MS-SMB2] 3.3.5.2.1.1: an encrypted element without a session is not one of the session whose key has encrypted it.
#[test]
fn an_encrypted_element_without_a_session_ends_the_connection() {
    let server = HoldfastServer::new();
    for bare_first in [true, false] {
        let session = server.session(Options::default().encryption(Encryption::Always));
        let bare = Request::new(&EchoRequest);
        let mut requests = vec![bare.clone().session(session.id()), bare];
        if bare_first {
            requests.reverse();
        }
        let ended = session.client().compound(requests);
        assert!(matches!(ended, Err(ClientError::Disconnected)), "{ended:?}");
    }
    server.assert_serving();
}

/// [MS-SMB2] 3.3.4.1.1, 3.3.4.1.4: the answer to an encrypted request is encrypted, an interim one and the one after it
/// as well, and has no signature although the request was signed.
#[test]
fn an_encrypted_answer_has_no_signature() {
    let server = HoldfastServer::new();
    let tree = server.tree_with(Options::default().encryption(Encryption::Always));
    let signed = |request: Request| tree.address(request).overriding(|o| o.sign = Some(true));
    let root = tree.create(&CreateArgs::directory("")).unwrap();
    let notify = signed(Request::new(&ChangeNotifyRequest {
        flags: ChangeNotifyFlags::empty(),
        output_buffer_length: 4096,
        file_id: root.id(),
        completion_filter: NotifyFilter::FILE_NAME,
    }));
    // The client accepts no plain answer, and so no plain interim one.
    let waiting = tree.client().send(notify).unwrap();
    assert!(tree.client().wait_pending(waiting).unwrap().is_some());
    let create = signed(CreateArgs::create("f").request());
    let missing = signed(CreateArgs::open("missing").request());
    for reply in [
        tree.client().call(create).unwrap(),
        tree.client().call(missing).unwrap(),
        tree.client().wait(waiting).unwrap(),
    ] {
        let header = reply.header;
        assert!(reply.encrypted, "{header:?}");
        assert!(!header.flags.contains(HeaderFlags::SIGNED), "{header:?}");
        assert_eq!(header.signature, [0; 16], "{header:?}");
    }
}
