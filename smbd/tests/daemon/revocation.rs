//! A reload takes effect on connected clients.

use std::fs;

use smb_client::{Client, ClientError, CreateArgs, File, Login, Options, Session, Tree};
use smb_wire::{
    Status,
    create_context::name,
    msg::{OplockLevel, ShareAccess, WriteFlags},
};

use crate::support::{Daemon, OWN, PASSWORD, Plan, USER, eventually, own};

const OTHER: &str = "bob";

/// Two users; the share `other` beside `data`, which stays as it is.
fn plan() -> Plan {
    Plan {
        users: vec![(USER, OWN), (OTHER, OWN)],
        tables: "[sandbox]\nfolders = [\".\"]\n[[share]]\nname = \"other\"\npath = \"other\"\n"
            .to_owned(),
        ..Plan::default()
    }
}

fn start(plan: &Plan) -> Daemon {
    let folder = tempfile::tempdir().unwrap();
    for name in ["other", "data2"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    plan.start_in(folder)
}

fn login(daemon: &Daemon, user: &str) -> Session {
    daemon.client().login(user, PASSWORD, "").unwrap()
}

fn write(file: &File, data: &[u8]) -> Result<(), Status> {
    match file.write(0, data, WriteFlags::empty()) {
        Ok(_) => Ok(()),
        Err(error) => Err(error.status().unwrap_or_else(|| panic!("{error}"))),
    }
}

fn open(tree: &Tree, name: &str) -> File {
    tree.create(&CreateArgs::open_if(name)).unwrap()
}

/// Checks that nobody has a file open: it can be opened without sharing it.
fn assert_free(tree: &Tree, name: &str) {
    let alone = CreateArgs::open_if(name).share(ShareAccess::empty());
    eventually("it is closed", || match tree.create(&alone) {
        Ok(file) => file.close().is_ok(),
        Err(error) => {
            assert_eq!(error.status(), Some(Status::SHARING_VIOLATION));
            false
        }
    });
}

#[test]
fn users_who_are_removed_or_disabled_are_out() {
    let daemon = start(&plan());
    let alice = login(&daemon, USER);
    let bob = login(&daemon, OTHER);
    let (hers, his) = (alice.tree("data").unwrap(), bob.tree("data").unwrap());
    let (file, beside) = (open(&hers, "hers"), open(&his, "his"));
    assert_eq!(write(&file, b"acknowledged"), Ok(()));
    // Not before the reload.
    daemon.ask(&["user", "disable", USER]).unwrap();
    assert_eq!(write(&file, b"acknowledged, too"), Ok(()));
    let said = daemon.ask(&["reload"]).unwrap();
    assert!(said.contains("ended: 1 sessions"), "{said}");
    assert_eq!(write(&file, b"x"), Err(Status::USER_SESSION_DELETED));
    let created = hers.create(&CreateArgs::create("new")).err();
    assert_eq!(
        created.unwrap().status(),
        Some(Status::USER_SESSION_DELETED)
    );
    assert_eq!(
        alice.tree("data").err().unwrap().status(),
        Some(Status::USER_SESSION_DELETED)
    );
    let again = alice.client().login(USER, PASSWORD, "").err().unwrap();
    assert_eq!(again.status(), Some(Status::ACCOUNT_DISABLED));
    assert_free(&his, "hers");
    assert_eq!(his.read_file("hers").unwrap(), b"acknowledged, too");

    assert_eq!(write(&beside, b"goes on"), Ok(()));
    daemon.ask(&["user", "enable", USER]).unwrap();
    daemon.ask(&["user", "remove", OTHER]).unwrap();
    daemon.ask(&["reload"]).unwrap();
    assert_eq!(write(&beside, b"x"), Err(Status::USER_SESSION_DELETED));
    let tree = daemon.tree();
    assert_free(&tree, "his");

    // A user who is created again under the old name is another user.
    let password = daemon.path("password");
    let password = password.to_str().unwrap();
    let old = open(&tree, "old");
    daemon.ask(&["user", "remove", USER]).unwrap();
    let add = ["user", "add", USER, "--password-file", password];
    let owner = ["--owner", &own()];
    daemon.ask(&[&add[..], &owner].concat()).unwrap();
    daemon.ask(&["reload"]).unwrap();
    assert_eq!(write(&old, b"x"), Err(Status::USER_SESSION_DELETED));
    daemon.tree().write_file("new", b"hers").unwrap();
}

#[test]
fn what_takes_nothing_away_ends_nothing() {
    let daemon = start(&plan());
    let tree = daemon.tree();
    let file = open(&tree, "f");
    let password = daemon.path("another-password");
    fs::write(&password, "Another-pw-2").unwrap();
    let password = password.to_str().unwrap();
    daemon
        .ask(&["user", "passwd", USER, "--password-file", password])
        .unwrap();
    daemon.edit(|text| {
        text.replace(
            "path = \"data\"\n",
            "path = \"data\"\nusers = [\"ALICE\"]\ncomment = \"c\"\nfile_mode = \"0600\"\n\
             browseable = false\nhosts_allow = [\"127.0.0.0/8\"]\n",
        )
    });
    let said = daemon.ask(&["reload"]).unwrap();
    assert!(!said.contains("ended"), "{said}");
    assert_eq!(write(&file, b"goes on"), Ok(()));
    tree.write_file("new", b"as before").unwrap();
    assert!(daemon.client().login(USER, PASSWORD, "").is_err());
    daemon.client().login(USER, "Another-pw-2", "").unwrap();
}

/// Lines of the share `data` that do not let alice go on with what she has.
const TAKEN_AWAY: [&str; 9] = [
    "users = [\"bob\"]\n",
    "groups = [\"staff\"]\n",
    "read_only = true\n",
    "encryption = \"required\"\n",
    "hosts_deny = [\"127.0.0.0/8\"]\n",
    "hosts_allow = [\"192.0.2.0/24\"]\n",
    "owner = \"12:12\"\n",
    "access_based_enumeration = true\n",
    "symlinks = \"refuse\"\n",
];

#[test]
fn a_changed_share_ends_what_it_does_not_allow_any_more() {
    let daemon = start(&plan());
    daemon.ask(&["group", "add", "staff"]).unwrap();
    let base = fs::read_to_string(daemon.path("h.toml")).unwrap();
    let data = "[[share]]\nname = \"data\"\npath = \"data\"\n";
    let mut edits: Vec<String> = TAKEN_AWAY
        .iter()
        .filter(|line| !line.contains("owner") || rustix::process::geteuid().is_root())
        .map(|line| base.replace(data, &format!("{data}{line}")))
        .collect();
    edits.push(base.replace("path = \"data\"", "path = \"data2\""));
    edits.push(base.replace(data, ""));
    let session = login(&daemon, USER);
    let other = session.tree("other").unwrap();
    let beside = open(&other, "beside");
    for edit in edits {
        let tree = session.tree("data").unwrap();
        let file = open(&tree, "f");
        assert_eq!(write(&file, edit.as_bytes()), Ok(()));
        daemon.edit(|_| edit.clone());
        let said = daemon.ask(&["reload"]).unwrap();
        assert!(said.contains(" 1 tree connects"), "{edit}\n{said}");
        assert_eq!(
            write(&file, b"x"),
            Err(Status::NETWORK_NAME_DELETED),
            "{edit}"
        );
        let created = tree.create(&CreateArgs::open_if("f")).err();
        assert_eq!(
            created.unwrap().status(),
            Some(Status::NETWORK_NAME_DELETED),
            "{edit}"
        );
        // The session and what else it has go on, and what was written is there.
        assert_eq!(write(&beside, b"goes on"), Ok(()), "{edit}");
        let there = fs::read(daemon.path("data/f")).unwrap();
        assert_eq!(there, edit.as_bytes());
        daemon.edit(|_| base.clone());
        daemon.ask(&["reload"]).unwrap();
        let again = session.tree("data").unwrap();
        assert_free(&again, "f");
        again.disconnect().unwrap();
        fs::remove_file(daemon.path("data/f")).unwrap();
    }
}

#[test]
fn who_leaves_a_group_loses_what_it_let_him_into() {
    let daemon = start(&plan());
    daemon.ask(&["group", "add", "staff"]).unwrap();
    daemon.ask(&["group", "join", "staff", USER]).unwrap();
    daemon.ask(&["group", "join", "staff", OTHER]).unwrap();
    daemon.edit(|text| {
        text.replace(
            "path = \"data\"\n",
            "path = \"data\"\ngroups = [\"staff\"]\n",
        )
    });
    daemon.ask(&["reload"]).unwrap();
    let (alice, bob) = (login(&daemon, USER), login(&daemon, OTHER));
    let (hers, his) = (alice.tree("data").unwrap(), bob.tree("data").unwrap());
    let (file, beside) = (open(&hers, "hers"), open(&his, "his"));
    daemon.ask(&["group", "leave", "staff", USER]).unwrap();
    daemon.ask(&["reload"]).unwrap();
    assert_eq!(write(&file, b"x"), Err(Status::NETWORK_NAME_DELETED));
    assert_eq!(
        alice.tree("data").err().unwrap().status(),
        Some(Status::ACCESS_DENIED)
    );
    alice
        .tree("other")
        .unwrap()
        .write_file("f", b"hers")
        .unwrap();
    assert_eq!(write(&beside, b"goes on"), Ok(()));
    // Back again, her session is a member's again.
    daemon.ask(&["group", "join", "staff", USER]).unwrap();
    daemon.ask(&["reload"]).unwrap();
    alice
        .tree("data")
        .unwrap()
        .write_file("f", b"hers")
        .unwrap();
}

#[test]
fn a_grace_lets_go_on_what_a_new_proof_does_not() {
    let daemon = start(&Plan {
        server: "revocation_grace = \"1h\"\n".to_owned(),
        ..plan()
    });
    let (alice, bob) = (login(&daemon, USER), login(&daemon, OTHER));
    let file = open(&alice.tree("data").unwrap(), "hers");
    let beside = open(&bob.tree("data").unwrap(), "his");
    let (users, nobody) = ("users = [\"nobody-here\"]\n", "path = \"data\"\n");
    daemon.edit(|text| text.replace(nobody, &format!("{nobody}{users}")));
    let said = daemon.ask(&["reload"]).unwrap();
    assert!(said.contains("3600s"), "{said}");
    assert_eq!(write(&file, b"goes on"), Ok(()));
    // The account and its rights are looked up when the client proves its password.
    alice
        .reauthenticate(&Login::user(USER, PASSWORD, ""))
        .unwrap();
    assert_eq!(write(&file, b"x"), Err(Status::NETWORK_NAME_DELETED));
    assert_eq!(write(&beside, b"goes on"), Ok(()));
    // Nor does it let anybody in.
    assert!(bob.tree("data").is_err());
    daemon.edit(|text| text.replace("\"1h\"", "\"50ms\""));
    daemon.ask(&["reload"]).unwrap();
    eventually("the grace is over", || {
        write(&beside, b"x") == Err(Status::NETWORK_NAME_DELETED)
    });
}

#[test]
fn a_new_proof_fails_where_it_ends_the_session() {
    let daemon = start(&Plan {
        server: "revocation_grace = \"1h\"\nsigning = \"desired\"\n".to_owned(),
        ..plan()
    });
    let unsigned = Options::default().signing(smb_client::Signing::Never);
    let unsigned = Client::connect(daemon.address, unsigned).unwrap();
    let session = unsigned.login(USER, PASSWORD, "").unwrap();
    let file = open(&session.tree("data").unwrap(), "f");
    daemon.edit(|text| text.replace("signing = \"desired\"", "signing = \"required\""));
    daemon.ask(&["reload"]).unwrap();
    assert_eq!(write(&file, b"goes on"), Ok(()));
    let proof = session.reauthenticate(&Login::user(USER, PASSWORD, ""));
    let status = proof.err().and_then(|error| error.status());
    assert_eq!(status, Some(Status::USER_SESSION_DELETED));
}

#[test]
fn a_new_proof_has_the_groups_of_today() {
    // CVE-2025-0620: old groups survived a re-authentication.
    let daemon = start(&Plan {
        server: "revocation_grace = \"1h\"\n".to_owned(),
        ..plan()
    });
    daemon.ask(&["group", "add", "staff"]).unwrap();
    daemon.ask(&["group", "join", "staff", USER]).unwrap();
    let data = "path = \"data\"\n";
    daemon.edit(|text| text.replace(data, &format!("{data}groups = [\"staff\"]\n")));
    daemon.ask(&["reload"]).unwrap();
    let session = login(&daemon, USER);
    let prove = || session.reauthenticate(&Login::user(USER, PASSWORD, ""));
    let file = open(&session.tree("data").unwrap(), "f");
    prove().unwrap();
    assert_eq!(write(&file, b"hers"), Ok(()));
    daemon.ask(&["group", "leave", "staff", USER]).unwrap();
    daemon.ask(&["reload"]).unwrap();
    assert_eq!(write(&file, b"still"), Ok(()));
    prove().unwrap();
    assert_eq!(write(&file, b"x"), Err(Status::NETWORK_NAME_DELETED));
    let refused = session.tree("data").err().unwrap();
    assert_eq!(refused.status(), Some(Status::ACCESS_DENIED));
    daemon.ask(&["group", "join", "staff", USER]).unwrap();
    daemon.ask(&["reload"]).unwrap();
    prove().unwrap();
    session.tree("data").unwrap();
}

#[test]
fn a_grace_that_is_over_ends_nothing_that_was_allowed_again() {
    let daemon = start(&Plan {
        server: "revocation_grace = \"5s\"\n".to_owned(),
        ..plan()
    });
    let file = open(&daemon.tree(), "f");
    daemon.ask(&["user", "disable", USER]).unwrap();
    daemon.ask(&["reload"]).unwrap();
    daemon.ask(&["user", "enable", USER]).unwrap();
    daemon.ask(&["user", "disable", OTHER]).unwrap();
    daemon.ask(&["reload"]).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(5_500));
    assert_eq!(write(&file, b"goes on"), Ok(()));
}

#[test]
fn what_the_server_as_a_whole_requires_holds_for_those_who_are_there() {
    let lenient = Plan {
        server: "signing = \"desired\"\n".to_owned(),
        ..plan()
    };
    let edits = [
        ("signing = \"desired\"\n", "signing = \"required\"\n"),
        (
            "signing = \"desired\"\n",
            "signing = \"desired\"\nencryption = \"required\"\n",
        ),
    ];
    for (was, now) in edits {
        let daemon = start(&lenient);
        let unsigned = Options::default().signing(smb_client::Signing::Never);
        let unsigned = Client::connect(daemon.address, unsigned).unwrap();
        let unsigned = unsigned.login(USER, PASSWORD, "").unwrap();
        let file = open(&unsigned.tree("data").unwrap(), "f");
        daemon.edit(|text| text.replace(was, now));
        daemon.ask(&["reload"]).unwrap();
        assert_eq!(
            write(&file, b"x"),
            Err(Status::USER_SESSION_DELETED),
            "{now}"
        );
        daemon.tree().write_file("f", b"as required").unwrap();
    }
    let daemon = start(&plan());
    let file = open(&daemon.tree(), "f");
    daemon.edit(|text| text.replace("[server]\n", "[server]\nhosts_deny = [\"127.0.0.1\"]\n"));
    daemon.ask(&["reload"]).unwrap();
    eventually("the connection is closed", || {
        let written = file.write(0, b"x", WriteFlags::empty());
        matches!(written, Err(ClientError::Disconnected | ClientError::Io(_)))
    });
}

#[test]
fn nobody_comes_back_to_a_durable_open_of_who_is_out() {
    let daemon = start(&plan());
    let durable = CreateArgs::open_if("durable")
        .oplock(OplockLevel::BATCH)
        .context(name::DURABLE_HANDLE_REQUEST, &[0; 16]);
    let tree = daemon.tree();
    let file = tree.create(&durable).unwrap();
    assert_eq!(write(&file, b"acknowledged"), Ok(()));
    drop((file, tree));
    let waiting = || {
        let status = daemon.ask(&["status", "--json"]).unwrap();
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        status["server"]["waiting_count"].as_u64().unwrap()
    };
    eventually("it waits for its client", || waiting() == 1);
    daemon.ask(&["user", "disable", USER]).unwrap();
    let said = daemon.ask(&["reload"]).unwrap();
    assert!(said.contains(" 1 opens"), "{said}");
    assert_eq!(waiting(), 0);
    let bob = login(&daemon, OTHER).tree("data").unwrap();
    assert_free(&bob, "durable");
    assert_eq!(bob.read_file("durable").unwrap(), b"acknowledged");
    // It does not wait even if the excluded user's session existed before.
    daemon.ask(&["user", "enable", USER]).unwrap();
    daemon.ask(&["reload"]).unwrap();
    let tree = daemon.tree();
    let file = tree.create(&durable).unwrap();
    daemon.ask(&["user", "remove", USER]).unwrap();
    daemon.ask(&["reload"]).unwrap();
    assert_eq!(write(&file, b"x"), Err(Status::USER_SESSION_DELETED));
    assert_eq!(waiting(), 0);
    assert_free(&bob, "durable");
}

#[test]
fn many_opens_end_and_others_are_served_meanwhile() {
    let daemon = start(&plan());
    let tree = daemon.tree();
    let files: Vec<File> = (0..600).map(|at| open(&tree, &format!("f{at}"))).collect();
    let bob = login(&daemon, OTHER).tree("data").unwrap();
    daemon.ask(&["user", "disable", USER]).unwrap();
    daemon.ask(&["reload"]).unwrap();
    bob.write_file("beside", b"served").unwrap();
    for file in &files {
        assert_eq!(write(file, b"x"), Err(Status::USER_SESSION_DELETED));
    }
    for at in 0..files.len() {
        assert_free(&bob, &format!("f{at}"));
    }
}

#[test]
fn logins_under_way_do_not_slip_through() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let plan = plan();
    let limits = "[limits]\nfailed_logins = 10000\n";
    let daemon = &start(&Plan {
        tables: format!("{}{limits}", plan.tables),
        ..plan
    });
    let stop = &AtomicBool::new(false);
    let sessions_of_alice = || {
        let status = daemon.ask(&["status", "--json"]).unwrap();
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        let sessions = status["server"]["sessions"].as_array().unwrap().clone();
        sessions.iter().filter(|one| one["user"] == USER).count()
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(move || {
                let mut kept = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let client = daemon.client();
                    if let Ok(session) = client.login(USER, PASSWORD, "") {
                        // The connection may end at any moment.
                        let _ = session.tree("data");
                        kept.push(session);
                    }
                    if kept.len() > 20 {
                        kept.clear();
                    }
                }
            });
        }
        let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for _ in 0..4 {
                eventually("she logs in", || sessions_of_alice() > 0);
                daemon.ask(&["user", "disable", USER]).unwrap();
                daemon.ask(&["reload"]).unwrap();
                // A login that the old users admitted is checked again before it is answered.
                eventually("she is out", || sessions_of_alice() == 0);
                assert_eq!(sessions_of_alice(), 0);
                daemon.ask(&["user", "enable", USER]).unwrap();
                daemon.ask(&["reload"]).unwrap();
            }
        }));
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = looked {
            std::panic::resume_unwind(panic);
        }
    });
}
