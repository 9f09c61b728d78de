//! Log lines about refused requests and logins.

use smb_client::{CreateArgs, Encryption, Login, Options};
use smb_tests::{DATA, HoldfastServer, OTHER_PASSWORD, OTHER_USER, USER, status, wait_until};
use smb_wire::Status;
use smb_wire::fscc::FileInformationClass;
use smb_wire::msg::{ChangeNotifyFlags, CreateDisposition, CreateOptions, NotifyFilter};

fn server(filter: &str) -> HoldfastServer {
    HoldfastServer::start(&smb_tests::Options {
        tables: format!("[log]\nfilter = \"{filter}\"\n"),
        ..smb_tests::Options::default()
    })
}

/// Asserts that there is exactly one line about a refused request that contains all of the parts.
#[track_caller]
fn assert_refused(server: &HoldfastServer, parts: &[&str]) {
    let has = |line: &str| parts.iter().all(|part| line.contains(part));
    wait_until(&format!("a line with {parts:?}"), || {
        let log = server.log();
        let mut lines = log.lines().filter(|line| line.contains("request refused"));
        lines.any(has)
    });
}

#[test]
fn a_refused_request_is_logged_at_level_debug() {
    let server = server("debug");
    let tree = server.tree();
    let file = tree.create(&CreateArgs::open_if("here.txt")).unwrap();
    let again = CreateArgs::new("here.txt", CreateDisposition::CREATE);
    assert_eq!(status(tree.create(&again)), Status::OBJECT_NAME_COLLISION);
    let told = ["CREATE", "OBJECT_NAME_COLLISION", USER, DATA, "here.txt"];
    assert_refused(&server, &told);
    // A request on a handle is logged with the name of its file, and with the queried class.
    let refused = file.query(FileInformationClass(0xee));
    assert!(status(refused).is_error());
    assert_refused(&server, &["QUERY_INFO", "here.txt", "238"]);
    let session = server.session(Options::default());
    assert!(status(session.tree("nowhere")).is_error());
    assert_refused(&server, &["TREE_CONNECT", "BAD_NETWORK_NAME", "nowhere"]);
    // A name is untrusted text: it must not create a line of its own.
    let line = CreateArgs::open("a\nWARN forged");
    assert!(status(tree.create(&line)).is_error());
    assert_refused(&server, &["CREATE", r"a\nWARN forged"]);
    // A status with which a request continues is no refusal.
    let log = server.log();
    assert!(!log.contains("MORE_PROCESSING_REQUIRED"), "{log}");
}

#[test]
fn a_refused_request_is_not_logged_at_level_info() {
    let server = server("info");
    let tree = server.tree();
    assert!(status(tree.create(&CreateArgs::open("absent"))).is_error());
    server.assert_serving();
    assert!(!server.log().contains("request refused"));
}

#[test]
fn ten_of_many_failed_logins_are_logged() {
    const TRIED: usize = 60;
    let server = server("info");
    for _ in 0..TRIED {
        let client = server.client(Options::default());
        let refused = client.login("somebody", "wrong", "").map(|_| ());
        assert_eq!(status(refused), Status::LOGON_FAILURE);
    }
    let lines = || server.log().matches("authentication failed").count();
    wait_until("lines of failed logins", || lines() == 10);
    server.assert_serving();
    assert_eq!(lines(), 10, "{}", server.log());
}

/// Strangers must not fill the log.
#[test]
fn broken_messages_get_a_few_lines_in_a_minute() {
    use std::io::{Read, Write};
    const LINE: &str = "the client broke the protocol";
    let server = HoldfastServer::new();
    for _ in 0..40 {
        let mut stream = std::net::TcpStream::connect(server.addr()).unwrap();
        stream
            .write_all(&[0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8])
            .unwrap();
        // The server closes the connection.
        let _ = stream.read(&mut [0; 1]);
    }
    server.assert_serving();
    let count = || {
        server
            .log()
            .lines()
            .filter(|line| line.contains(LINE))
            .count()
    };
    wait_until("lines about broken messages", || count() > 0);
    let lines = count();
    assert!(lines <= 10, "{lines} lines\n{}", server.log());
}

#[test]
fn a_client_that_leaves_while_an_encrypted_request_waits_broke_no_rule() {
    let server = server("debug");
    let tree = server.tree_with(Options::default().encryption(Encryption::Always));
    let root = tree.create(&CreateArgs::directory("")).unwrap();
    let flags = ChangeNotifyFlags::empty();
    let id = root.notify(NotifyFilter::FILE_NAME, flags, 4096).unwrap();
    tree.client().wait_pending(id).unwrap().unwrap();
    drop((root, tree));
    wait_until("the end of the open", || {
        server.status()["server"]["tables"]["opens"] == 0
    });
    let log = server.log();
    assert!(!log.contains("the client broke the protocol"), "{log}");
}

/// A client asks for a share that does not let it in as often as it likes.
#[test]
fn ten_of_many_refused_tree_connects_are_logged() {
    const TRIED: usize = 60;
    let server = HoldfastServer::start(&smb_tests::Options {
        share: "hosts_deny = [\"127.0.0.1\"]".into(),
        tables: "[log]\nfilter = \"info\"\n".into(),
        ..smb_tests::Options::default()
    });
    let session = server.session(Options::default());
    for _ in 0..TRIED {
        assert_eq!(status(session.tree(DATA)), Status::ACCESS_DENIED);
    }
    // A line that is written after all of them.
    let client = server.client(Options::default());
    let refused = client.login("somebody", "wrong", "").map(|_| ());
    assert_eq!(status(refused), Status::LOGON_FAILURE);
    wait_until("a line about the login", || {
        server.log().contains("authentication failed")
    });
    let lines = server.log().matches("tree connect refused").count();
    assert_eq!(lines, 10, "{}", server.log());
}

/// A user can prove another identity on a session again and again.
#[test]
fn ten_of_many_changes_of_a_sessions_user_are_logged() {
    const TRIED: usize = 30;
    let server = server("info");
    let session = server.session(Options::default());
    for _ in 0..TRIED {
        let other = Login::user(OTHER_USER, OTHER_PASSWORD, "");
        let refused = session.reauthenticate(&other);
        assert_eq!(status(refused), Status::ACCESS_DENIED);
    }
    let lines = || server.log().matches("as another user").count();
    wait_until("lines of refused changes", || lines() == 10);
    server.assert_serving();
    assert_eq!(lines(), 10, "{}", server.log());
}

/// A user may close a thousand handles on names that are gone by now.
#[test]
fn ten_of_many_names_that_stay_are_logged() {
    const NAMES: usize = 40;
    let server = server("info");
    let tree = server.tree();
    let mut files = Vec::new();
    for name in 0..NAMES {
        let args = CreateArgs::open_if(&format!("f{name}"));
        let doomed = args.options(CreateOptions::DELETE_ON_CLOSE);
        files.push(tree.create(&doomed).unwrap());
    }
    for name in 0..NAMES {
        let [here, elsewhere] = ["f", "g"].map(|first| server.path(&format!("{first}{name}")));
        std::fs::rename(here, elsewhere).unwrap();
    }
    for file in files {
        // The error depends on what the server finds in place of the name.
        let _ = file.close();
    }
    let lines = || server.log().matches("should have removed stays").count();
    wait_until("lines about names that stay", || lines() == 10);
    server.assert_serving();
    assert_eq!(lines(), 10, "{}", server.log());
}
