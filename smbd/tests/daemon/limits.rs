//! Each limit of the configuration, met from outside.

use std::{
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use smb_client::{Client, Connection, Options, Request};
use smb_wire::{Status, msg::EchoRequest};

use socket2::{Domain, Socket, Type};

use crate::support::{PASSWORD, Plan, USER, closed, eventually};

fn limited(lines: &str) -> Plan {
    Plan {
        tables: format!("[limits]\n{lines}\n"),
        ..Plan::default()
    }
}

#[test]
fn who_does_not_log_in_is_closed() {
    let daemon = limited("authentication_timeout = \"1s\"").start();
    let tree = daemon.tree();
    let start = Instant::now();
    let silent = daemon.stranger();
    // Negotiated is not logged in.
    let negotiated = daemon.client();
    assert!(closed(&silent, Duration::from_secs(10)));
    assert!(start.elapsed() >= Duration::from_millis(900));
    eventually("a negotiated stranger stays", || negotiated.echo().is_err());
    tree.write_file("still", b"here").unwrap();
}

#[test]
fn strangers_are_counted_and_logins_make_room() {
    let daemon = limited("unauthenticated_connections = 1").start();
    // Their places are given back as soon as they log in.
    let _known: Vec<_> = (0..3).map(|_| daemon.tree()).collect();
    let stranger = daemon.stranger();
    eventually("the stranger is not let in", || {
        daemon
            .ask(&["status"])
            .unwrap()
            .contains("1 without a login")
    });
    // Who comes to log in gets the place of who says nothing.
    let known = daemon.tree();
    assert!(closed(&stranger, Duration::from_secs(5)));
    known.write_file("still", b"here").unwrap();
}

/// Many more silent connections than the server lets in, from four addresses.
#[test]
fn silent_connections_keep_nobody_from_logging_in() {
    let daemon = Plan {
        listen: "0.0.0.0",
        ..limited("unauthenticated_connections = 400\nconnections_per_address = 150")
    }
    .start();
    let port = daemon.address.port();
    let from = |address: [u8; 4]| {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((address, 0)).into())?;
        socket.connect(&SocketAddr::from(([127, 0, 0, 1], port)).into())?;
        std::io::Result::Ok(TcpStream::from(socket))
    };
    let log_in = |stream: TcpStream| {
        let connection = Connection::new(stream, Options::default());
        let client = Client::over(connection, Options::default()).unwrap();
        let session = client.login(USER, PASSWORD, "").unwrap();
        session.tree("data").unwrap()
    };
    let mut flood = Vec::new();
    let mut known = Vec::new();
    for number in 0..1_600_u32 {
        let host = u8::try_from(number % 4).unwrap();
        flood.push(from([127, 0, 10 + host, 1]).unwrap());
        if number % 100 == 99 {
            // From another address, and from one of the flood's own.
            known.push(log_in(from([127, 0, 99, 1]).unwrap()));
            known.push(log_in(from([127, 0, 10, 1]).unwrap()));
        }
        if flood.len() > 800 {
            flood.remove(0);
        }
    }
    for tree in &known {
        tree.client().echo().unwrap();
    }
    let figures = daemon.ask(&["status"]).unwrap();
    let figures = figures
        .lines()
        .find(|line| line.starts_with("connections:"));
    let figures = figures.unwrap();
    assert!(figures.contains(" 0 refused"), "{figures}");
    assert!(!figures.contains(" 0 closed for newcomers"), "{figures}");
}

#[test]
fn sessions_of_one_connection() {
    let daemon = limited("sessions_per_connection = 2").start();
    let client = daemon.client();
    let login = || client.login(USER, PASSWORD, "");
    let (first, _second) = (login().unwrap(), login().unwrap());
    assert_eq!(
        login().err().unwrap().status(),
        Some(Status::REQUEST_NOT_ACCEPTED)
    );
    first.logoff().unwrap();
    login().unwrap();
}

#[test]
fn the_length_of_a_compound() {
    let daemon = limited("compound_length = 4").start();
    let client = daemon.client();
    // For the credits.
    let _session = client.login(USER, PASSWORD, "").unwrap();
    let echoes = (0..6).map(|_| Request::new(&EchoRequest)).collect();
    let statuses: Vec<Status> = client
        .compound(echoes)
        .unwrap()
        .iter()
        .map(|reply| reply.header.status)
        .collect();
    let (ok, bad) = (Status::SUCCESS, Status::INVALID_PARAMETER);
    assert_eq!(statuses, [ok, ok, ok, ok, bad, bad]);
    client.echo().unwrap();
}

#[test]
fn credits() {
    let daemon = limited("credits = 64").start();
    let options = Options {
        credits: 1_000,
        ..Options::default()
    };
    let client = Client::connect(daemon.address, options).unwrap();
    let _session = client.login(USER, PASSWORD, "").unwrap();
    for _ in 0..10 {
        client.echo().unwrap();
    }
    assert_eq!(client.connection().core().credits(), 64);
}

#[test]
fn a_directory_comes_in_pieces() {
    let daemon = limited("directory_buffer = \"64KiB\"").start();
    for number in 0..1_500 {
        let name = format!("data/{number:04}{}", "x".repeat(40));
        std::fs::write(daemon.path(&name), b"").unwrap();
    }
    let tree = daemon.tree();
    let folder = tree.create(&smb_client::CreateArgs::directory("")).unwrap();
    let request = folder.query_directory_request(
        smb_wire::fscc::FileInformationClass::ID_BOTH_DIRECTORY,
        "*",
        smb_wire::msg::QueryDirectoryFlags::RESTART_SCANS,
        1 << 20,
    );
    let reply = tree.reply(request).unwrap();
    let response = smb_wire::msg::QueryDirectoryResponse::read(&reply.message).unwrap();
    assert!((32 << 10..=64 << 10).contains(&response.buffer.len()));
    // With `.` and `..`.
    assert!(folder.list("*").unwrap().len() >= 1_500);
}

#[test]
fn wrong_passwords() {
    let daemon = limited("failed_logins = 2").start();
    let login = |password: &str| {
        let session = daemon.client().login(USER, password, "");
        session.map_err(|error| error.status())
    };
    for _ in 0..2 {
        assert_eq!(login("wrong").err(), Some(Some(Status::LOGON_FAILURE)));
    }
    // Even the right one is not heard any more.
    assert_eq!(login(PASSWORD).err(), Some(Some(Status::LOGON_FAILURE)));
    daemon.edit(|text| text.replace("failed_logins = 2", "failed_logins = 4"));
    daemon.ask(&["reload"]).unwrap();
    login(PASSWORD).unwrap();
}

/// Who has no account and comes in as a guest has not failed to log in.
#[test]
fn guests_are_no_failed_logins() {
    let plan = Plan {
        server: "signing = \"desired\"".to_owned(),
        tables: "[[share]]\nname = \"open\"\npath = \"data\"\nguest = true\n\
                 [limits]\nfailed_logins = 2\n"
            .to_owned(),
        ..Plan::default()
    };
    let daemon = plan.start();
    for n in 0..25 {
        let session = daemon.client().login("visitor", "", "");
        assert!(session.is_ok(), "{n}: {:?}", session.err());
    }
    // Wrong passwords of a user are counted as ever.
    for _ in 0..2 {
        daemon.client().login(USER, "wrong", "").err().unwrap();
    }
    daemon.client().login(USER, PASSWORD, "").err().unwrap();
}

#[test]
fn the_size_of_a_transfer_is_what_was_agreed_on() {
    let daemon = limited("io_size = \"256KiB\"").start();
    let tree = daemon.tree();
    assert_eq!(tree.client().negotiated().max_write_size, 256 << 10);
    daemon.edit(|text| text.replace("256KiB", "64KiB"));
    daemon.ask(&["reload"]).unwrap();
    assert_eq!(daemon.client().negotiated().max_write_size, 64 << 10);
    // Connections keep what they were told.
    let data = vec![7; 256 << 10];
    tree.write_file("large", &data).unwrap();
    assert!(tree.read_file("large").unwrap() == data);
}
