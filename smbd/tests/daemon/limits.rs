//! Each limit of the configuration, met from outside.

use std::{
    net::{SocketAddr, TcpStream},
    process::Command,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use smb_client::{Client, Connection, CreateArgs, Options, Request, Tree};
use smb_wire::{
    Status,
    create_context::LeaseState,
    file_attributes::FileAttributes,
    fscc::{FileInformationClass, FileRenameInformation},
    ids::LeaseKey,
    msg::EchoRequest,
};

use socket2::{Domain, Socket, Type};

use crate::support::{Daemon, OWN, PASSWORD, Plan, USER, closed, eventually};

fn limited(lines: &str) -> Plan {
    Plan {
        tables: format!("[limits]\n{lines}\n"),
        ..Plan::default()
    }
}

#[test]
fn who_does_not_log_in_is_closed() {
    let daemon = limited("authentication_timeout = \"3s\"").start();
    let tree = daemon.tree();
    let start = Instant::now();
    let silent = daemon.stranger();
    // Negotiated is not logged in.
    let negotiated = daemon.client();
    assert!(closed(&silent, Duration::from_secs(10)));
    assert!(start.elapsed() >= Duration::from_millis(2_900));
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
    // A client that comes to log in displaces one that sends nothing.
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
        // All tests of this process share its descriptors, often 1,024.
        if flood.len() > 500 {
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

/// A connection that the server refuses is no cut, after which all would be there.
#[test]
fn verify_flush_does_not_begin_with_fewer_connections_than_it_was_asked_for() {
    let daemon = limited("connections_per_address = 2").start();
    let ledger = daemon.path("ledger");
    let write = |connections: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        command
            .args(["verify-flush", "write"])
            .arg(format!("//{}/data/verify", daemon.address))
            .args(["--user", USER, "--password-file"])
            .arg(daemon.path("password"))
            .arg("--ledger")
            .arg(&ledger)
            .args(["--files", "3", "--records", "60"])
            .args(["--connections", connections]);
        command.output().unwrap()
    };
    let refused = write("3");
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(!ledger.exists());
    eventually("its connections stay", || {
        write("2").status.code() == Some(0)
    });
    assert!(ledger.exists());
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
fn a_terminal_server_logs_its_users_in_on_one_connection() {
    let daemon = limited("buffer_memory = \"512MiB\"").start();
    let client = daemon.client();
    let login = |_| client.login(USER, PASSWORD, "");
    let sessions: Vec<_> = (0..128).map(login).collect::<Result<_, _>>().unwrap();
    let one_more = login(128).err().unwrap();
    assert_eq!(one_more.status(), Some(Status::REQUEST_NOT_ACCEPTED));
    drop(sessions);
}

/// RLIMIT_FSIZE, as `LimitFSIZE=` of a unit sets it.
#[test]
fn a_write_beyond_the_largest_file_fails_and_the_server_goes_on() {
    let most = 1_u64 << 30;
    let daemon = Plan {
        prefix: vec!["prlimit".to_owned(), format!("--fsize={most}")],
        ..Plan::default()
    }
    .start();
    let tree = daemon.tree();
    let file = tree.create(&CreateArgs::create("large")).unwrap();
    file.write_all(most, b"x").unwrap_err();
    file.write_all(0, b"x").unwrap();
    tree.write_file("still", b"here").unwrap();
    // A backup has seen the file. A write of which the kernel makes only a part changes it all the same.
    let mut seen = [0; 40];
    seen[32..36].copy_from_slice(&FileAttributes::NORMAL.bits().to_le_bytes());
    file.set(FileInformationClass::BASIC, &seen).unwrap();
    let attributes = || file.query(FileInformationClass::BASIC).unwrap()[32];
    let archive = u8::try_from(FileAttributes::ARCHIVE.bits()).unwrap();
    assert_eq!(attributes() & archive, 0);
    file.write_all(most - 1, b"xy").unwrap_err();
    assert_eq!(daemon.path("data/large").metadata().unwrap().len(), most);
    assert_eq!(attributes() & archive, archive);
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
    let request = Request::query_directory(
        folder.id(),
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
    // Even the right password is refused now.
    assert_eq!(login(PASSWORD).err(), Some(Some(Status::LOGON_FAILURE)));
    daemon.edit(|text| text.replace("failed_logins = 2", "failed_logins = 4"));
    daemon.ask(&["reload"]).unwrap();
    login(PASSWORD).unwrap();
}

/// A client without an account that becomes a guest has not failed to log in.
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
    // Connections keep the limits that they negotiated.
    let data = vec![7; 256 << 10];
    tree.write_file("large", &data).unwrap();
    assert!(tree.read_file("large").unwrap() == data);
}

/// A server that may have 600 descriptors in all.
fn with_few_descriptors(users: &[&'static str]) -> Daemon {
    let plan = Plan {
        users: users.iter().map(|user| (*user, OWN)).collect(),
        prefix: ["prlimit", "--nofile=600:600"].map(str::to_owned).to_vec(),
        ..Plan::default()
    };
    plan.start()
}

fn tree_of(daemon: &Daemon, user: &str) -> Tree {
    let session = daemon.client().login(user, PASSWORD, "").unwrap();
    session.tree("data").unwrap()
}

fn works_on(tree: &Tree) {
    for number in 0..20 {
        let name = format!("bob{number}");
        tree.write_file(&name, b"works on").unwrap();
        assert_eq!(tree.read_file(&name).unwrap(), b"works on");
    }
}

/// One user opens what he can, in two sessions; with few descriptors for the whole server.
#[test]
fn one_user_leaves_descriptors_to_the_others() {
    let daemon = with_few_descriptors(&[USER, "bob"]);
    for number in 0..400 {
        std::fs::write(daemon.path(&format!("data/{number}")), b"x").unwrap();
    }
    let tree = |user: &str| tree_of(&daemon, user);
    let opens = |tree: &Tree| {
        let mut files = Vec::new();
        for number in 0..400 {
            match tree.create(&CreateArgs::open(&number.to_string())) {
                Ok(file) => files.push(file),
                Err(error) => {
                    assert_eq!(error.status(), Some(Status::TOO_MANY_OPENED_FILES));
                    return files;
                }
            }
        }
        panic!("there is no limit");
    };
    let alices = [tree(USER), tree(USER)];
    let taken = alices.each_ref().map(opens);
    let count = taken.iter().map(Vec::len).sum::<usize>();
    assert!((50..=70).contains(&count), "{count}");
    let bob = tree("bob");
    works_on(&bob);
    assert!(opens(&bob).len() > 20);
    // A descriptor that is given back can be taken again.
    drop((taken, alices));
    eventually("the places are not given back", || {
        let alice = tree(USER);
        opens(&alice).len() > 40
    });
}

/// A file that was written and closed is not synced for a while, and its writer holds two descriptors.
#[test]
fn writers_leave_descriptors_to_the_others() {
    let daemon = with_few_descriptors(&["u1", "u2", "u3", "u4", "last"]);
    let tree = |user: &str| tree_of(&daemon, user);
    let all = ["u1", "u2", "u3", "u4"].map(|user| {
        let tree = tree(user);
        let open = |number| {
            let name = format!("{user} {number}");
            let file = tree.create(&CreateArgs::create(&name)).ok()?;
            file.write_all(0, b"held").unwrap();
            Some(file)
        };
        let files: Vec<_> = (0..400).map_while(open).collect();
        assert!((8..400).contains(&files.len()), "{user}: {}", files.len());
        (files, tree)
    });
    let last = tree("last");
    for number in 0..140 {
        let name = format!("closed {number}");
        last.write_file(&name, b"not synced yet").unwrap();
        assert_eq!(last.read_file(&name).unwrap(), b"not synced yet");
    }
    for file in all.iter().flat_map(|(files, _)| files) {
        file.write_all(0, b"more").unwrap();
    }
}

/// A name holds a descriptor of its folder until it is on disk.
#[test]
fn links_in_many_folders_leave_descriptors_to_the_others() {
    let daemon = with_few_descriptors(&[USER, "bob"]);
    let tree = |user: &str| tree_of(&daemon, user);
    let alice = tree(USER);
    for folder in 0..12 {
        alice.mkdir(&folder.to_string()).unwrap();
    }
    for number in 0..60 {
        let name = format!("file{number}");
        let file = alice.create(&CreateArgs::create(&name)).unwrap();
        for folder in 0..12 {
            let mut link = BytesMut::new();
            let info = FileRenameInformation {
                replace_if_exists: false,
                root_directory: 0,
                file_name: format!("{folder}\\{name}"),
            };
            info.encode(&mut link);
            file.set(FileInformationClass::LINK, &link).unwrap();
        }
    }
    let bob = tree("bob");
    works_on(&bob);
}

/// A rename holds descriptors of the folders while it waits for a client that caches the handle.
#[test]
fn renames_that_wait_count_as_opens() {
    let daemon = limited("opens_per_user = 6").start();
    let (holder, other) = (daemon.tree(), daemon.tree());
    let leased = CreateArgs::create("f").lease(LeaseKey([7; 16]), LeaseState(3));
    let held = holder.create(&leased).unwrap();
    let file = other.create(&CreateArgs::open("f")).unwrap();
    let rename = |name| other.send(Request::rename(file.id(), name, false)).unwrap();
    let [first, second, third] = ["g", "h", "i"].map(rename);
    let status = |id| other.client().wait(id).unwrap().status();
    assert_eq!(status(third), Status::INSUFFICIENT_RESOURCES);
    held.close().unwrap();
    assert_eq!([first, second].map(status), [Status::SUCCESS; 2]);
    file.rename("i", false).unwrap();
}

#[test]
fn more_than_there_are_descriptors_is_refused_at_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let plan = Plan {
        prefix: ["prlimit", "--nofile=600:600"].map(str::to_owned).to_vec(),
        ..limited("opens = 500")
    };
    let started = std::panic::catch_unwind(|| plan.start_in(dir));
    let said = started.err().unwrap();
    let said = said.downcast_ref::<String>().unwrap();
    assert!(
        said.contains("opens = 500") && said.contains("RLIMIT_NOFILE"),
        "{said}"
    );
}
