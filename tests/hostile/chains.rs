//! Malicious compounds ([MS-SMB2] 3.3.5.2.7): elements that name another client's session, tree or
//! handle, and every command in the middle of a chain.

use smb_client::{ClientError, CreateArgs, Options, Request};
use smb_tests::{DATA, HoldfastServer, OTHER_PASSWORD, OTHER_USER, PASSWORD, USER};
use smb_wire::{
    Status,
    header::HeaderFlags,
    ids::{FileId, SessionId, TreeId},
    msg::{
        CancelRequest, Capabilities, EchoRequest, SecurityMode, SessionSetupFlags,
        SessionSetupRequest, WriteFlags,
    },
};

use crate::requests::{Attacker, Precious};

/// Builds a related element whose header names a session and a tree.
fn naming(request: Request, session: SessionId, tree: TreeId) -> Request {
    request.session(session).tree(tree).related()
}

fn write(file_id: FileId) -> Request {
    Request::write(file_id, 0, b"overwritten", WriteFlags::empty())
}

fn close(file_id: FileId) -> Request {
    Request::close(file_id)
}

/// The session, tree and file that a related element names are ignored; those of the element before
/// apply ([MS-SMB2] 3.3.5.2.7.2).
#[test]
fn a_related_element_cannot_use_another_clients_session_tree_or_file() {
    let server = HoldfastServer::new();
    // Both sessions are on one connection, where the server knows both.
    let client = server.client(Options::default());
    let bob = client.login(OTHER_USER, OTHER_PASSWORD, "").unwrap();
    let alice = client.login(USER, PASSWORD, "").unwrap();
    let elsewhere = server.session(Options::default());
    for victim in [&alice, &elsewhere] {
        let theirs = victim.tree(DATA).unwrap();
        theirs.write_file("victim", b"the victim's").unwrap();
        let file = theirs.create(&CreateArgs::open("victim")).unwrap();
        let own = bob.tree(DATA).unwrap();
        for (session, tree) in [
            (victim.id(), theirs.id()),
            (victim.id(), own.id()),
            (SessionId::ANY, theirs.id()),
            (SessionId(0x1234_5678), TreeId(0x9abc)),
        ] {
            for target in [file.id(), FileId::ANY] {
                let replies = client.compound(vec![
                    own.address(CreateArgs::open_if("own").request()),
                    naming(write(target), session, tree),
                    naming(close(target), session, tree),
                ]);
                let replies = replies.unwrap();
                assert_eq!(replies.len(), 3);
                assert_eq!(replies[0].header.session_id, bob.id());
                // The element is executed as bob, on bob's file, or not at all.
                for reply in &replies[1..] {
                    let answered = (reply.header.session_id, reply.status());
                    let as_victim = (victim.id(), Status::SUCCESS);
                    assert_ne!(answered, as_victim, "{session:?} {tree:?} {target:?}");
                }
                assert_eq!(file.read_all().unwrap(), b"the victim's");
            }
        }
    }
    server.assert_serving();
}

/// A CANCEL has no place in the chain, so no key but that of the element before it verifies what is related to that: an
/// unsigned element that is refused names the victim's session, and what follows the CANCEL is signed by the attacker.
#[test]
fn a_cancel_does_not_lend_its_key_to_related_elements() {
    let server = HoldfastServer::new();
    let client = server.client(Options::default());
    let bob = client.login(OTHER_USER, OTHER_PASSWORD, "").unwrap();
    let alice = client.login(USER, PASSWORD, "").unwrap();
    let theirs = alice.tree(DATA).unwrap();
    let setup = SessionSetupRequest {
        flags: SessionSetupFlags::empty(),
        security_mode: SecurityMode::SIGNING_ENABLED,
        capabilities: Capabilities::empty(),
        previous_session_id: SessionId(0),
        security_buffer: b"no token at all",
    };
    let firsts = [
        Request::new(&setup).session(alice.id()),
        Request::new(&EchoRequest).session(alice.id()),
        theirs.address(CreateArgs::open("nothing").request()),
    ];
    for first in firsts {
        let command = first.command;
        let cancel = Request::new(&CancelRequest).session(bob.id());
        let connect = bob.tree_connect(&format!("\\\\127.0.0.1\\{DATA}"));
        let create = CreateArgs::create("victim").request();
        let ids = client
            .connection()
            .send_compound(vec![
                first.overriding(|o| o.sign = Some(false)),
                cancel.overriding(|o| o.sign = Some(true)),
                connect.related(),
                create.related(),
            ])
            .unwrap();
        for id in [ids[0], ids[2], ids[3]] {
            let status = client.wait(id).unwrap().status();
            assert_ne!(status, Status::SUCCESS, "{command}");
        }
        assert!(!server.path("victim").exists(), "{command}");
    }
    // The sessions go on.
    theirs.write_file("hers", b"alice's").unwrap();
    bob.tree(DATA).unwrap().read_file("hers").unwrap();
}

/// There is one answer for each element, or none if the server closes the connection. The last
/// element closes the chain's own handle, and other clients are not affected.
#[test]
fn every_command_is_answered_in_the_middle_of_a_chain() {
    let server = HoldfastServer::new();
    let precious = Precious::new(&server);
    let mut answered = 0;
    let commands = Attacker::new(&server, Options::default()).requests().len();
    for index in 0..commands {
        let attacker = Attacker::new(&server, Options::default());
        let (command, request) = attacker.requests().swap_remove(index);
        let first = attacker
            .tree
            .address(CreateArgs::open(&attacker.name).request());
        let client = attacker.session.client();
        let replies = client.compound(vec![
            first,
            naming(request, SessionId::ANY, TreeId::ANY),
            naming(close(FileId::ANY), SessionId::ANY, TreeId::ANY),
        ]);
        match replies {
            Ok(replies) => {
                assert_eq!(replies.len(), 3, "{command}");
                assert_eq!(replies[0].status(), Status::SUCCESS, "{command}");
                for reply in &replies {
                    assert_ne!(reply.status(), Status::PENDING, "{command}");
                }
                let related = replies[1].header.flags.contains(HeaderFlags::RELATED);
                assert!(related, "{command}");
                answered += 1;
            }
            Err(ClientError::Disconnected) => {}
            Err(other) => panic!("{command}: {other}"),
        }
        precious.check(command);
        server.assert_serving();
    }
    assert!(answered + 3 >= commands, "{answered} of {commands}");
}
