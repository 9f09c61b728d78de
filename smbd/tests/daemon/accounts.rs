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

use crate::support::{Daemon, PASSWORD, Plan};

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
    let machine: Sid = line(&|fields| fields[0] == "machine-sid")[1]
        .parse()
        .unwrap();
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
