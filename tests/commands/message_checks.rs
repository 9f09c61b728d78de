//! The checks that every message passes before its command: lengths, the session, the tree, encrypted messages and
//! chains ([MS-SMB2] 3.3.5.2).

use smb_client::{ClientError, CreateArgs, Encryption, Options, Request, Tree};
use smb_tests::{DATA, HoldfastServer, OTHER_PASSWORD, OTHER_USER, Outcome, outcome, status};
use smb_wire::fscc::FileInformationClass;
use smb_wire::header::HeaderFlags;
use smb_wire::ids::{AsyncId, FileId, SessionId, TreeId};
use smb_wire::msg::{Dialect, EchoRequest, InfoType, WriteFlags};
use smb_wire::{Command, Status};

/// The longest message of a command without long data, in bytes.
const SHORT: usize = 68 << 10;
const ANY: FileId = FileId::ANY;

fn related(request: Request) -> Request {
    request.session(SessionId::ANY).tree(TreeId::ANY).related()
}

fn standard(file_id: FileId) -> Request {
    let class = FileInformationClass::STANDARD.0;
    Request::query_info(file_id, InfoType::FILE, class, 0, 100)
}

/// [MS-SMB2] 3.3.5.2: with multi-credit requests, only commands with long data may exceed 68 KiB.
#[test]
fn a_long_message_of_a_command_without_long_data_ends_the_connection() {
    let server = HoldfastServer::new();
    for command in ["ECHO", "CREATE"] {
        for excess in [0, 1] {
            let tree = server.tree();
            let request = match command {
                "ECHO" => Request::new(&EchoRequest),
                _ => CreateArgs::open_if("f").request(),
            };
            let request = request.mutate(|m| m.resize(SHORT + excess, 0));
            let closed = outcome(tree.reply(request)) == Outcome::Closed;
            assert_eq!(closed, excess == 1, "{command} {excess}");
        }
    }
}

/// [MS-SMB2] 3.3.5.2: SET_INFO is one of the commands with long data.
#[test]
fn a_long_message_of_set_info_is_answered() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    let class = FileInformationClass::BASIC.0;
    let request = file.set_info_request(InfoType::FILE, class, 0, &[0; SHORT]);
    assert_ne!(outcome(tree.reply(request)), Outcome::Closed);
    tree.client().echo().unwrap();
}

/// [MS-SMB2] 3.3.5.2.11: the tree is looked up before the open.
#[test]
fn the_tree_is_looked_up_before_the_open() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let ask = |request: Request| {
        let request = request.session(tree.session().id()).tree(TreeId(0x1234));
        tree.client().call(request).unwrap().status()
    };
    for request in [
        Request::read(ANY, 0, 1),
        Request::write(ANY, 0, b"x", WriteFlags::empty()),
        Request::flush(ANY),
        standard(ANY),
    ] {
        let command = request.command;
        assert_eq!(ask(request), Status::NETWORK_NAME_DELETED, "{command}");
    }
}

/// [MS-SMB2] 3.3.5.10: a CLOSE that names another tree closes nothing.
#[test]
fn a_close_with_a_wrong_tree_closes_nothing() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    let request = Request::close(file.id()).session(tree.session().id());
    let reply = tree.client().call(request.tree(TreeId(0x1234))).unwrap();
    assert_eq!(reply.status(), Status::NETWORK_NAME_DELETED);
    file.write_all(0, b"still open").unwrap();
    file.close().unwrap();
}

/// [MS-SMB2] 3.3.4.1: a response is marked as one and repeats the ids of its request, an error as well.
#[test]
fn a_response_repeats_the_ids_of_its_request() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    for args in [CreateArgs::open_if("f"), CreateArgs::open("missing")] {
        let reply = tree.reply(args.request()).unwrap();
        let header = reply.header;
        assert!(header.flags.contains(HeaderFlags::RESPONSE), "{header:?}");
        assert!(!header.flags.contains(HeaderFlags::ASYNC), "{header:?}");
        assert_eq!(header.command, Command::CREATE);
        let ids = (header.session_id, header.tree_id);
        assert_eq!(ids, (tree.session().id(), tree.id()));
        assert_eq!(header.next_command, 0);
    }
}

/// docs/protocol-notes.md, "Header flags of a request".
#[test]
fn flags_that_a_dialect_does_not_define_are_ignored() {
    let server = HoldfastServer::new();
    for dialect in Dialect::ALL {
        let session = server.session(Options::dialect(dialect));
        let echo = || Request::new(&EchoRequest).session(session.id());
        let ask = |request| session.client().call(request).unwrap().status();
        for (flags, expected) in [
            (HeaderFlags::DFS, Status::SUCCESS),
            (HeaderFlags::PRIORITY_MASK, Status::SUCCESS),
            (HeaderFlags::REPLAY, Status::SUCCESS),
            (HeaderFlags(0x80), Status::INVALID_PARAMETER),
            (HeaderFlags(0x4000_0000), Status::INVALID_PARAMETER),
        ] {
            let answer = ask(echo().flag(flags));
            assert_eq!(answer, expected, "{dialect} {flags:?}");
        }
        // Only a CANCEL names an asynchronous request.
        let mut asynchronous = echo();
        asynchronous.async_id = Some(AsyncId(1));
        assert_eq!(ask(asynchronous), Status::INVALID_PARAMETER, "{dialect}");
    }
}

/// [MS-SMB2] 3.3.5.2.7, note 268: an element that is not related begins another chain.
#[test]
fn an_unrelated_element_begins_another_chain() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    let write = |data: &[u8]| related(Request::write(ANY, 0, data, WriteFlags::empty()));
    let create = |name: &str| tree.address(CreateArgs::create(name).request());
    let replies = tree.client().compound(vec![
        create("one"),
        write(b"first"),
        create("two"),
        write(b"second"),
        related(Request::close(ANY)),
    ]);
    for (index, reply) in replies.unwrap().iter().enumerate() {
        assert_eq!(reply.status(), Status::SUCCESS, "{index}");
    }
    assert_eq!(std::fs::read(server.path("one")).unwrap(), b"first");
    assert_eq!(std::fs::read(server.path("two")).unwrap(), b"second");
}

/// [MS-SMB2] 3.3.5.2.7.2: an error in one chain concerns no other.
#[test]
fn a_failed_chain_leaves_the_next_one_alone() {
    let server = HoldfastServer::new();
    let tree = server.tree();
    tree.write_file("f", b"x").unwrap();
    let open = |name: &str| tree.address(CreateArgs::open(name).request());
    let replies = tree.client().compound(vec![
        open("missing"),
        related(standard(ANY)),
        open("f"),
        related(standard(ANY)),
    ]);
    let statuses: Vec<_> = replies.unwrap().iter().map(|r| r.status()).collect();
    let missing = Status::OBJECT_NAME_NOT_FOUND;
    let done = Status::SUCCESS;
    assert_eq!(statuses, [missing, missing, done, done]);
}

fn sealed(server: &HoldfastServer) -> Tree {
    server.tree_with(Options::default().encryption(Encryption::Always))
}

/// [MS-SMB2] 3.3.5.2.1.1: the first element of an encrypted message cannot be related to another.
#[test]
fn an_encrypted_message_that_begins_with_a_related_element_ends_the_connection() {
    let server = HoldfastServer::new();
    let tree = sealed(&server);
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    let ended = outcome(tree.reply(standard(file.id()).related()));
    assert_eq!(ended, Outcome::Closed);
    server.assert_serving();
}

/// [MS-SMB2] 3.3.5.2.1.1: all elements of an encrypted message belong to the session whose key has encrypted it.
#[test]
fn an_encrypted_message_of_two_sessions_ends_the_connection() {
    let server = HoldfastServer::new();
    let tree = sealed(&server);
    let client = tree.client();
    let other = client.login(OTHER_USER, OTHER_PASSWORD, "").unwrap();
    let other = other.tree(DATA).unwrap();
    let make = |tree: &Tree, name: &str| tree.address(CreateArgs::create(name).request());
    let ended = client.compound(vec![make(&tree, "mine"), make(&other, "theirs")]);
    assert!(matches!(ended, Err(ClientError::Disconnected)), "{ended:?}");
    assert!(!server.path("mine").exists() && !server.path("theirs").exists());
    server.assert_serving();
}

/// [MS-SMB2] 3.3.5.2.1.1: elements of one session need not be related to each other.
#[test]
fn an_encrypted_message_has_unrelated_elements_of_one_session() {
    let server = HoldfastServer::new();
    let tree = sealed(&server);
    let make = |name: &str| tree.address(CreateArgs::create(name).request());
    let replies = tree.client().compound(vec![make("one"), make("two")]);
    for reply in replies.unwrap() {
        assert_eq!((reply.status(), reply.encrypted), (Status::SUCCESS, true));
    }
}

/// [MS-SMB2] 3.3.5.2.9: a tree of a session that has ended is not reached through another of the same user.
#[test]
fn a_tree_ends_with_its_session_only() {
    let server = HoldfastServer::new();
    let (first, second) = (server.tree(), server.tree());
    first.write_file("f", b"x").unwrap();
    first.session().logoff().unwrap();
    assert_eq!(status(first.read_file("f")), Status::USER_SESSION_DELETED);
    assert_eq!(second.read_file("f").unwrap(), b"x");
}
