//! `holdfast close`.

use serde_json::Value;
use smb_client::{CreateArgs, File, Session, Tree};
use smb_wire::{
    Status,
    msg::{CreateOptions, LockElement, LockFlags, WriteFlags},
};

use crate::support::{Daemon, OWN, PASSWORD, Plan, USER, eventually};

fn start() -> Daemon {
    Plan {
        users: vec![(USER, OWN), ("bob", OWN)],
        tables: "[[share]]\nname = \"more\"\npath = \"data\"\n".to_owned(),
        ..Plan::default()
    }
    .start()
}

fn status(daemon: &Daemon) -> Value {
    let status = daemon.ask(&["status", "--json"]).unwrap();
    let mut status: Value = serde_json::from_str(&status).unwrap();
    status["server"].take()
}

fn open(tree: &Tree, name: &str) -> File {
    tree.create(&CreateArgs::open_if(name)).unwrap()
}

fn status_of_write(file: &File) -> Status {
    match file.write(0, b"x", WriteFlags::empty()) {
        Ok(_) => Status::SUCCESS,
        Err(error) => error.status().unwrap_or_else(|| panic!("{error}")),
    }
}

/// A session, and a file of it on each share.
fn held(daemon: &Daemon, user: &str) -> (Session, [File; 2]) {
    let session = daemon.client().login(user, PASSWORD, "").unwrap();
    let files = ["data", "more"].map(|share| {
        let tree = session.tree(share).unwrap();
        open(&tree, &format!("{user} {share}"))
    });
    (session, files)
}

#[test]
fn one_open() {
    let daemon = start();
    let (_alice, [file, other]) = held(&daemon, USER);
    let exclusive = LockElement {
        offset: 0,
        length: 1,
        flags: LockFlags::EXCLUSIVE,
    };
    file.lock(0, 1, LockFlags::EXCLUSIVE).unwrap();
    let (_bob, [beside, _]) = held(&daemon, "bob");
    // Requests that wait on the closed open are answered; requests that wait for its end continue.
    let second = beside
        .tree()
        .create(&CreateArgs::open("alice data"))
        .unwrap();
    let client = second.tree().client();
    let waiting = second.lock_request(0, &[exclusive]);
    let waiting = client.send(second.tree().address(waiting)).unwrap();
    assert!(client.wait_pending(waiting).unwrap().is_some());

    let server = status(&daemon);
    let sessions = server["sessions"].as_array().unwrap();
    let opens = sessions
        .iter()
        .flat_map(|one| one["opens"].as_array().unwrap());
    let wanted =
        opens.filter(|open| open["path"] == "\\alice data" || open["path"] == "alice data");
    let wanted: Vec<_> = wanted.filter(|open| open["user"] == USER).collect();
    assert_eq!(wanted.len(), 1, "{server:#}");
    let id = wanted[0]["id"].as_u64().unwrap().to_string();
    let shown = daemon.ask(&["status"]).unwrap();
    assert!(shown.contains(&id), "{shown}");

    let said = daemon.ask(&["close", "open", &id]).unwrap();
    assert!(
        said.starts_with("closed: 0 sessions, 0 tree connects, 1 opens"),
        "{said}"
    );
    assert!(
        said.contains(&format!("open {id} of alice on data: ")),
        "{said}"
    );
    assert_eq!(status_of_write(&file), Status::FILE_CLOSED);
    assert_eq!(client.wait(waiting).unwrap().status(), Status::SUCCESS);
    assert_eq!(
        (status_of_write(&other), status_of_write(&beside)),
        (Status::SUCCESS, Status::SUCCESS)
    );
    let complaint = daemon.ask(&["close", "open", &id]).unwrap_err();
    assert!(complaint.contains("there is no open"), "{complaint}");
    // The client may come back.
    open(file.tree(), "alice data");
}

#[test]
fn one_session() {
    let daemon = start();
    let (alice, files) = held(&daemon, USER);
    let (_bob, others) = held(&daemon, "bob");
    let id = alice.id().0.to_string();
    assert!(daemon.ask(&["status"]).unwrap().contains(&id));
    let said = daemon.ask(&["close", "session", &id, "--json"]).unwrap();
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["sessions"], 1, "{said:#}");
    assert_eq!(
        (&said["tree_connects"], &said["opens"]),
        (&2.into(), &2.into())
    );
    assert_eq!(said["closed"][0]["user"], USER);
    for file in &files {
        assert_eq!(status_of_write(file), Status::USER_SESSION_DELETED);
    }
    for file in &others {
        assert_eq!(status_of_write(file), Status::SUCCESS);
    }
    let complaint = daemon.ask(&["close", "session", &id]).unwrap_err();
    assert!(complaint.contains("there is no session"), "{complaint}");
    alice.client().login(USER, PASSWORD, "").unwrap();
    let log = daemon.log();
    let who = format!("(uid {}", rustix::process::geteuid().as_raw());
    for said in ["INFO closed by control", "WARN not closed by control"] {
        let line = log.lines().find(|line| line.contains(said));
        assert!(line.is_some_and(|line| line.contains(&who)), "{log}");
    }
}

#[test]
fn all_of_a_user() {
    let daemon = start();
    let (_first, files) = held(&daemon, USER);
    let (_second, more) = held(&daemon, USER);
    let (_bob, others) = held(&daemon, "bob");
    let said = daemon.ask(&["close", "user", "ALICE"]).unwrap();
    assert!(
        said.starts_with("closed: 2 sessions, 4 tree connects, 4 opens"),
        "{said}"
    );
    for file in files.iter().chain(&more) {
        assert_eq!(status_of_write(file), Status::USER_SESSION_DELETED);
    }
    for file in &others {
        assert_eq!(status_of_write(file), Status::SUCCESS);
    }
    let said = daemon.ask(&["close", "user", USER]).unwrap();
    assert_eq!(said, "nothing was open\n");
    let complaint = daemon.ask(&["close", "user", "nobody-here"]).unwrap_err();
    assert!(complaint.contains("there is no user"), "{complaint}");
}

#[test]
fn all_on_a_share() {
    let daemon = start();
    let (alice, [data, more]) = held(&daemon, USER);
    let (_bob, [his, other]) = held(&daemon, "bob");
    let said = daemon.ask(&["close", "share", "DATA"]).unwrap();
    assert!(
        said.starts_with("closed: 0 sessions, 2 tree connects, 2 opens"),
        "{said}"
    );
    for file in [&data, &his] {
        assert_eq!(status_of_write(file), Status::NETWORK_NAME_DELETED);
    }
    for file in [&more, &other] {
        assert_eq!(status_of_write(file), Status::SUCCESS);
    }
    // Pipes are on no share of the administrator's.
    alice.tree("IPC$").unwrap();
    let said = daemon.ask(&["close", "share", "IPC$"]).unwrap_err();
    assert!(said.contains("there is no share"), "{said}");
    open(&alice.tree("data").unwrap(), "again");
}

#[test]
fn what_is_closed_is_closed_on_disk_too() {
    let daemon = start();
    let (_alice, [file, _]) = held(&daemon, USER);
    let doomed = file
        .tree()
        .create(&CreateArgs::create("doomed").options(CreateOptions::DELETE_ON_CLOSE));
    doomed.unwrap();
    assert!(daemon.path("data/doomed").exists());
    daemon.ask(&["close", "user", USER]).unwrap();
    eventually("it is deleted", || !daemon.path("data/doomed").exists());
}
