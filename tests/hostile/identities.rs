//! Requests that use other clients' identifiers: wrong sessions, trees, handles and signatures.

use smb_client::{Encryption, Options, Request, Signing};
use smb_tests::{HoldfastServer, PASSWORD};
use smb_wire::Status;
use smb_wire::ids::{SessionId, TreeId};

use crate::requests::{Attacker, End, Precious, end};

const WITHOUT_SESSION: [&str; 2] = ["SESSION_SETUP", "ECHO"];
const WITHOUT_TREE: [&str; 4] = ["SESSION_SETUP", "ECHO", "TREE_CONNECT", "LOGOFF"];
/// Commands with a FileId, and its position in the body.
const FILE_ID_AT: [(&str, usize); 11] = [
    ("CLOSE", 8),
    ("FLUSH", 8),
    ("READ", 16),
    ("WRITE", 16),
    ("LOCK", 8),
    ("IOCTL", 8),
    ("QUERY_DIRECTORY", 8),
    ("CHANGE_NOTIFY", 8),
    ("QUERY_INFO", 24),
    ("SET_INFO", 16),
    ("OPLOCK_BREAK", 8),
];

fn each(
    server: &HoldfastServer,
    options: &Options,
    skip: &[&str],
    spoil: impl Fn(&str, Request) -> Vec<Request>,
    expected: &[Status],
) {
    let precious = Precious::new(server);
    let mut attacker = Attacker::new(server, options.clone());
    for index in 0..attacker.requests().len() {
        let (command, good) = attacker.requests().swap_remove(index);
        if skip.contains(&command) {
            continue;
        }
        for nth in 0..spoil(command, good).len() {
            let (_, good) = attacker.requests().swap_remove(index);
            let spoilt = spoil(command, good).swap_remove(nth);
            match end(&attacker, spoilt, command) {
                End::Closed => attacker = Attacker::new(server, options.clone()),
                End::Status(status) => {
                    assert!(expected.contains(&status), "{command} {nth}: {status}");
                }
                End::Pending => panic!("{command} {nth} waits"),
            }
            precious.check(command);
        }
    }
    server.assert_serving();
}

#[test]
fn no_command_works_without_its_session() {
    let server = HoldfastServer::new();
    each(
        &server,
        &Options::default(),
        &WITHOUT_SESSION,
        |_, request| {
            [0, 0x1234, u64::MAX]
                .map(|id| request.clone().session(SessionId(id)))
                .to_vec()
        },
        &[Status::USER_SESSION_DELETED],
    );
}

#[test]
fn no_command_works_without_its_tree() {
    let server = HoldfastServer::new();
    each(
        &server,
        &Options::default(),
        &WITHOUT_TREE,
        |_, request| {
            [0, 0x1234, u32::MAX]
                .map(|id| request.clone().tree(TreeId(id)))
                .to_vec()
        },
        &[Status::NETWORK_NAME_DELETED],
    );
}

#[test]
fn no_command_works_without_its_handle() {
    let server = HoldfastServer::new();
    let named: Vec<&str> = FILE_ID_AT.iter().map(|(command, _)| *command).collect();
    let others = [
        "SESSION_SETUP",
        "TREE_CONNECT",
        "CREATE",
        "ECHO",
        "TREE_DISCONNECT",
        "LOGOFF",
        "SET_INFO rename",
    ];
    assert!(named.iter().all(|command| !others.contains(command)));
    each(
        &server,
        &Options::default(),
        &others,
        |command, request| {
            let at = FILE_ID_AT
                .iter()
                .find(|(name, _)| *name == command)
                .map(|(_, at)| 64 + at)
                .unwrap();
            let own: Vec<u8> = request.message()[at..at + 16].to_vec();
            let mut wrong = vec![vec![0; 16], vec![0xff; 16]];
            for byte in [0, 7, 8, 15] {
                let mut id = own.clone();
                id[byte] ^= 0x80;
                wrong.push(id);
            }
            wrong
                .into_iter()
                .map(|id| {
                    request
                        .clone()
                        .mutate(|m| m[at..at + 16].copy_from_slice(&id))
                })
                .collect()
        },
        &[Status::FILE_CLOSED],
    );
}

#[test]
fn unsigned_and_wrongly_signed_requests_are_refused() {
    let server = HoldfastServer::new();
    for algorithm in [
        smb_crypto::SigningAlgorithm::AesGmac,
        smb_crypto::SigningAlgorithm::AesCmac,
        smb_crypto::SigningAlgorithm::HmacSha256,
    ] {
        let options = Options::default()
            .signing(Signing::Required)
            .signing_algorithm(algorithm);
        each(
            &server,
            &options,
            &["SESSION_SETUP"],
            |_, request| {
                vec![
                    request.clone().overriding(|o| o.sign = Some(false)),
                    request.clone().overriding(|o| o.corrupt_signature = true),
                ]
            },
            &[Status::ACCESS_DENIED],
        );
    }
}

#[test]
fn wrongly_encrypted_requests_are_refused() {
    let server = HoldfastServer::new();
    let options = Options::default().encryption(Encryption::Always);
    each(
        &server,
        &options,
        &["SESSION_SETUP"],
        |_, request| vec![request.overriding(|o| o.corrupt_signature = true)],
        &[],
    );
}

#[test]
fn handles_of_another_session_are_refused() {
    let server = HoldfastServer::new();
    let victim = Attacker::new(&server, Options::default());
    victim.file.write_all(0, b"victim's").unwrap();
    let thief = Attacker::new(&server, Options::default());
    for (command, request) in victim.requests() {
        if FILE_ID_AT.iter().all(|(name, _)| *name != command) {
            continue;
        }
        let stolen = thief.tree.address(request);
        let ended = end(&thief, stolen, command);
        // The numbers may be identical to the thief's own; then the request concerns the thief's
        // file.
        let own = thief.file.id() == victim.file.id() || thief.root.id() == victim.root.id();
        assert!(
            own || ended == End::Status(Status::FILE_CLOSED) || ended == End::Closed,
            "{command}: {ended:?}"
        );
        if own {
            return;
        }
    }
    assert_eq!(victim.file.read_all().unwrap(), b"victim's");
}

/// Accounts are distinguished by one upper-case letter for each letter, and `ß` has none: a share that names one
/// account does not let the other in.
#[test]
fn a_share_lets_in_the_account_that_it_names() {
    let server = HoldfastServer::start(&smb_tests::Options {
        share: "users = [\"weiß\", \"MULLER\"]\n".to_owned(),
        ..smb_tests::Options::default()
    });
    for (user, expected) in [
        ("weiß", Status::SUCCESS),
        ("WEIß", Status::SUCCESS),
        ("weiss", Status::ACCESS_DENIED),
        ("muller", Status::SUCCESS),
    ] {
        if user != "WEIß" {
            server.add_user(user, PASSWORD, &[]);
        }
        let client = server.client(Options::default());
        let session = client.login(user, PASSWORD, "").unwrap();
        let connected = session
            .client()
            .call(session.tree_connect(r"\\127.0.0.1\data"));
        assert_eq!(connected.unwrap().status(), expected, "{user}");
    }
}
