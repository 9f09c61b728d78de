//! Accounts change while their users are logged on: a re-authentication gives a user the present
//! identity.

use std::{fs, os::unix::fs::PermissionsExt};

use bytes::BytesMut;
use smb_client::{ClientError, CreateArgs, Login, Session};
use smb_wire::{
    Status,
    access_mask::AccessMask,
    dtyp::{
        Ace, AceFlags, Acl, SecurityDescriptor, SecurityDescriptorControl, SecurityInformation, Sid,
    },
    msg::InfoType,
};

use crate::{
    loop_mount::LoopMount,
    support::{Daemon, PASSWORD, Plan, binary_for_all, possible},
};

/// Two users without a local user of their own, so that the stored descriptors decide.
fn start() -> Daemon {
    let plan = Plan {
        users: vec![("carol", ""), ("erin", "")],
        ..Plan::default()
    };
    let daemon = plan.start();
    let everybody = fs::Permissions::from_mode(0o777);
    fs::set_permissions(daemon.path("data"), everybody).unwrap();
    daemon
}

fn log_in(daemon: &Daemon, user: &str) -> Result<Session, ClientError> {
    daemon.client().login(user, PASSWORD, "")
}

fn again(session: &Session, user: &str) -> Result<(), ClientError> {
    session.reauthenticate(&Login::user(user, PASSWORD, ""))
}

fn write(session: &Session, name: &str) -> Result<(), Status> {
    let tree = session.tree("data").unwrap();
    let args = CreateArgs::open(name).access(AccessMask::FILE_WRITE_DATA);
    match tree.create(&args) {
        Ok(file) => {
            file.close().unwrap();
            Ok(())
        }
        Err(ClientError::Status(status)) => Err(status),
        Err(error) => panic!("{error}"),
    }
}

/// The SID of a group in the user file.
fn sid_of(daemon: &Daemon, group: &str) -> Sid {
    let text = fs::read_to_string(daemon.path("state/users")).unwrap();
    let line = |wanted: &dyn Fn(&[&str]) -> bool| {
        let mut lines = text
            .lines()
            .map(|line| line.split('\t').collect::<Vec<_>>());
        lines.find(|fields| wanted(fields)).unwrap()
    };
    let machine = line(&|fields| fields[0] == "machine-sid")[1];
    // The first three parts are `S-1-5`.
    let numbers = machine.split('-').skip(3);
    let numbers: Vec<u32> = numbers.map(|number| number.parse().unwrap()).collect();
    let machine = Sid::new(5, &numbers).unwrap();
    let rid = line(&|fields| fields[0] == "group" && fields[2] == group)[1];
    machine.child(rid.parse().unwrap()).unwrap()
}

/// As `session`, makes a file for nobody but the members of a group.
fn make_for(session: &Session, name: &str, group: Sid) {
    let tree = session.tree("data").unwrap();
    let args = CreateArgs::create(name).access(AccessMask::FILE_ALL_ACCESS);
    let file = tree.create(&args).unwrap();
    let all = Ace::allow(group, AccessMask::FILE_ALL_ACCESS, AceFlags::empty());
    let sd = SecurityDescriptor {
        control: SecurityDescriptorControl::empty(),
        owner: None,
        group: None,
        sacl: None,
        dacl: Some(Acl::new(vec![all])),
    };
    let mut bytes = BytesMut::new();
    sd.encode(&mut bytes).unwrap();
    let parts = SecurityInformation::DACL.bits();
    let set = file.set_info_request(InfoType::SECURITY, 0, parts, &bytes);
    tree.call(set).unwrap();
    file.close().unwrap();
}

#[test]
fn a_new_proof_counts_with_the_groups_of_now() {
    let daemon = start();
    daemon.ask(&["group", "add", "staff"]).unwrap();
    daemon.ask(&["reload"]).unwrap();
    let (carol, erin) = (
        log_in(&daemon, "carol").unwrap(),
        log_in(&daemon, "erin").unwrap(),
    );
    make_for(&erin, "team", sid_of(&daemon, "staff"));
    let denied = Err(Status::ACCESS_DENIED);
    assert_eq!(write(&carol, "team"), denied);
    for _ in 0..2 {
        daemon.ask(&["group", "join", "staff", "carol"]).unwrap();
        daemon.ask(&["reload"]).unwrap();
        again(&carol, "carol").unwrap();
        assert_eq!(write(&carol, "team"), Ok(()));
        daemon.ask(&["group", "leave", "staff", "carol"]).unwrap();
        daemon.ask(&["reload"]).unwrap();
        again(&carol, "carol").unwrap();
        assert_eq!(write(&carol, "team"), denied);
    }
}

#[test]
fn who_takes_the_name_of_a_removed_user_is_somebody_else() {
    let daemon = start();
    let erin = log_in(&daemon, "erin").unwrap();
    let tree = erin.tree("data").unwrap();
    tree.write_file("hers", b"hers").unwrap();
    assert_eq!(write(&erin, "hers"), Ok(()));
    daemon.ask(&["user", "remove", "erin"]).unwrap();
    daemon.ask(&["reload"]).unwrap();
    assert!(again(&erin, "erin").is_err());
    assert!(log_in(&daemon, "erin").is_err());
    let password = daemon.path("password");
    let add = [
        "user",
        "add",
        "erin",
        "--password-file",
        password.to_str().unwrap(),
    ];
    let said = daemon.ask(&add).unwrap();
    assert!(said.contains("on disk erin acts as"), "{said}");
    daemon.ask(&["reload"]).unwrap();
    let new = log_in(&daemon, "erin").unwrap();
    let tree = new.tree("data").unwrap();
    assert_eq!(tree.read_file("hers").unwrap(), b"hers");
    assert_eq!(write(&new, "hers"), Err(Status::ACCESS_DENIED));
}

/// A folder that has gone, or a mistake in another table, keeps no administrator from locking a user out.
#[test]
fn a_share_that_has_gone_keeps_no_user_in() {
    let daemon = start();
    let carol = log_in(&daemon, "carol").unwrap();
    fs::create_dir(daemon.path("gone")).unwrap();
    daemon.edit(|text| {
        format!(
            "{text}\n[sandbox]\nfolders = [\".\"]\n[[share]]\nname = \"gone\"\npath = \"gone\"\n"
        )
    });
    let mut daemon = daemon;
    daemon.signal("TERM");
    assert!(daemon.wait(std::time::Duration::from_secs(20)).success());
    drop(carol);
    let text = fs::read_to_string(daemon.path("h.toml")).unwrap();
    let daemon = Plan {
        users: Vec::new(),
        tables: text
            .split_once("[sandbox]")
            .map(|(_, rest)| format!("[sandbox]{rest}"))
            .unwrap(),
        ..Plan::default()
    }
    .start_in(daemon.into_folder());
    log_in(&daemon, "carol").unwrap();
    fs::remove_dir(daemon.path("gone")).unwrap();
    let said = daemon.ask(&["user", "disable", "carol"]).unwrap();
    let file = daemon.path("state/users");
    assert!(said.contains(&format!("in {}", file.display())), "{said}");
    daemon.ask(&["reload"]).unwrap();
    assert!(log_in(&daemon, "carol").is_err());
    let log = daemon.log();
    let audit = log
        .lines()
        .find(|line| line.contains("reloaded by control socket"));
    assert!(audit.unwrap().contains("uid"), "{log}");
    daemon.edit(|text| format!("{text}\nno_such_key = 1\n"));
    daemon.ask(&["user", "enable", "carol"]).unwrap();
    daemon.ask(&["reload"]).unwrap_err();
    let log = daemon.log();
    assert!(log.contains("not reloaded by control socket"), "{log}");
}

/// A fault that keeps a server from starting is found before it is started.
#[test]
fn check_config_finds_what_keeps_a_server_from_starting() {
    let daemon = start();
    let check = || {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_holdfast"));
        let output = command
            .arg("check-config")
            .arg(daemon.path("h.toml"))
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(text(&output.stderr)),
        }
    };
    let data = "name = \"data\"\n";
    daemon.edit(|text| text.replace(data, &format!("{data}users = [\"nobody\"]\n")));
    let said = check().unwrap();
    assert!(
        said.contains("names user nobody, who does not exist"),
        "{said}"
    );
    daemon.edit(|text| text.replace("[server]\n", "[server]\nfile_io = \"io_uring\"\n"));
    let without_ring = check().err();
    let has_ring = vfs::uring::probe().is_ok();
    assert_eq!(without_ring.is_none(), has_ring, "{without_ring:?}");
    daemon.edit(|text| text.replace(data, &format!("{data}groups = [\"staff\"]\n")));
    daemon.edit(|text| {
        text.replace(
            "[[listener]]\n",
            "[[listener]]\ncores = [1000]\ninterface = \"none\"\n",
        )
    });
    let users = daemon.path("state/users");
    let said = check().unwrap_err();
    for part in [
        "no group `staff`",
        "names core 1000",
        "no network interface none",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    fs::set_permissions(&users, fs::Permissions::from_mode(0o644)).unwrap();
    let said = check().unwrap_err();
    assert!(said.contains("chmod 600"), "{said}");
    daemon.edit(|text| text.replace("[server]\n", "[server]\nusers_file = \"none/users\"\n"));
    let said = check().unwrap_err();
    assert!(said.contains("none/users does not exist"), "{said}");
}

/// The folder is there, and the user who will start the server may not list it.
#[test]
fn check_config_finds_a_folder_that_the_server_may_not_open() {
    if !possible(&["setpriv"]) {
        return;
    }
    let daemon = start();
    let data = daemon.path("data");
    fs::set_permissions(&data, fs::Permissions::from_mode(0o711)).unwrap();
    let mut check = std::process::Command::new("setpriv");
    check.args(["--reuid", "12345", "--regid", "12345", "--clear-groups"]);
    check.arg(binary_for_all(data.parent().unwrap()));
    check.arg("check-config").arg(daemon.path("h.toml"));
    let output = check.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let refused = format!("share data: {}: Permission denied", data.display());
    let users = "must belong to the user who runs the server";
    assert!(said.contains(&refused) && said.contains(users), "{said}");
    assert_eq!(output.status.code(), Some(1), "{said}");
}

#[test]
fn a_reload_logs_users_of_shares_who_do_not_exist() {
    let daemon = start();
    let data = "name = \"data\"\n";
    let users = format!("{data}users = [\"carol\", \"erni\"]\n");
    daemon.edit(|text| text.replace(data, &users));
    daemon.ask(&["reload"]).unwrap();
    let log = daemon.log();
    assert!(log.contains("user=\"erni\""), "{log}");
    assert!(!log.contains("user=\"carol\""), "{log}");
}

#[test]
fn removing_a_group_names_the_shares_that_have_it() {
    let daemon = start();
    daemon.ask(&["group", "add", "staff"]).unwrap();
    daemon.edit(|text| {
        text.replace(
            "name = \"data\"\n",
            "name = \"data\"\ngroups = [\"Staff\"]\n",
        )
        .replace("[server]\n", "[server]\nadministrators = \"Staff\"\n")
    });
    let said = daemon.ask(&["group", "remove", "staff"]).unwrap();
    assert!(said.contains("share data names the group"), "{said}");
    assert!(said.contains("administrators names the group"), "{said}");
}

/// As on a machine whose root is read-only.
#[test]
fn a_state_folder_that_cannot_be_made_has_a_way_out() {
    let Some(mount) = LoopMount::new("ext4", 16) else {
        return;
    };
    mount.make_read_only();
    let daemon = start();
    daemon.edit(|text| {
        let state = format!("state_dir = {:?}\n", mount.path().join("state"));
        text.replace("state_dir = \"state\"\n", &state)
    });
    for words in [&["serve", "--config"][..], &["check-config"]] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_holdfast"));
        let output = command.args(words).arg(daemon.path("h.toml")).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("Read-only file system"), "{said}");
        assert!(said.contains("  = set state_dir"), "{said}");
    }
}
