//! A reload with files open.

use smb_client::{Client, CreateArgs, Options};
use smb_wire::msg::WriteFlags;

use crate::support::{PASSWORD, Plan, USER, eventually};

#[test]
fn open_handles_survive_and_the_new_rules_hold_for_the_next() {
    let daemon = Plan::default().start();
    let tree = daemon.tree();
    let file = tree.create(&CreateArgs::create("kept")).unwrap();
    let flags = WriteFlags::empty();
    file.write(0, b"before ", flags).unwrap();
    file.lock(0, 4, smb_wire::msg::LockFlags::EXCLUSIVE)
        .unwrap();

    daemon.edit(|text| {
        format!(
            "{text}\n[[share]]\nname = \"more\"\npath = \"data\"\n\
             [durability]\npolicy = \"strict-sync\"\ndirty_age_max = \"5s\"\n"
        )
    });
    daemon.signal("HUP");
    eventually("no reload", || daemon.log().contains("reloaded"));
    assert!(
        daemon
            .log()
            .contains("[durability] dirty_inodes_max, dirty_age_max")
    );

    file.write(7, b"after", flags).unwrap();
    assert_eq!(file.read(0, 100).unwrap(), b"before after");
    let status = daemon.ask(&["status"]).unwrap();
    assert!(status.contains("strict-sync: every change"), "{status}");
    assert!(status.contains("kept"), "{status}");
    // The share is the same one: the lock is seen from a new connection.
    let second = daemon.client().login(USER, PASSWORD, "").unwrap();
    second.tree("more").unwrap();
    let other = second.tree("data").unwrap();
    let same = other.create(&CreateArgs::open("kept")).unwrap();
    let refused = same.write(0, b"x", flags).err().unwrap();
    assert_eq!(refused.status(), Some(smb_wire::Status::FILE_LOCK_CONFLICT));
    file.close().unwrap();
}

#[test]
fn a_server_that_is_configured_so_requires_encryption_of_those_who_come() {
    let daemon = Plan::default().start();
    daemon.edit(|text| text.replace("[server]\n", "[server]\nencryption = \"required\"\n"));
    daemon.ask(&["reload"]).unwrap();
    let sealed = daemon.client().login(USER, PASSWORD, "").unwrap();
    assert!(
        sealed
            .flags()
            .contains(smb_wire::msg::SessionFlags::ENCRYPT_DATA)
    );
    let plain = Options::default().encryption(smb_client::Encryption::Never);
    let plain = Client::connect(daemon.address, plain).unwrap();
    assert!(plain.login(USER, PASSWORD, "").is_err());
}

#[test]
fn a_mistake_changes_nothing_and_restarts_are_named() {
    let daemon = Plan::default().start();
    daemon.edit(|text| text.replace("name = \"data\"", "name = \"data\"\ngroups = [\"nobody\"]"));
    let complaint = daemon.ask(&["reload"]).unwrap_err();
    assert!(
        complaint.contains("holdfast group add nobody"),
        "{complaint}"
    );
    daemon.tree().write_file("still", b"works").unwrap();
    daemon.edit(|text| {
        let text = text.replace("groups = [\"nobody\"]", "users = [\"bob\"]");
        text.replace("[server]\n", "[server]\nshutdown_grace = \"1s\"\n")
    });
    let said = daemon.ask(&["reload"]).unwrap();
    assert!(said.contains("shutdown_grace"), "{said}");
    let session = daemon.client().login(USER, PASSWORD, "").unwrap();
    assert!(session.tree("data").is_err());
}

#[test]
fn another_folder_under_the_old_name_is_another_share() {
    let daemon = Plan {
        tables: "[sandbox]\nfolders = [\".\"]\n".to_owned(),
        ..Plan::default()
    }
    .start();
    let tree = daemon.tree();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    file.write(0, b"old", WriteFlags::empty()).unwrap();
    std::fs::create_dir(daemon.path("data2")).unwrap();
    daemon.edit(|text| text.replace("path = \"data\"", "path = \"data2\""));
    daemon.ask(&["reload"]).unwrap();
    let new = daemon.tree();
    assert!(new.read_file("f").is_err());
    new.write_file("f", b"new").unwrap();
    let old = file.read(0, 9).err().unwrap();
    assert_eq!(old.status(), Some(smb_wire::Status::NETWORK_NAME_DELETED));
    assert_eq!(std::fs::read(daemon.path("data/f")).unwrap(), b"old");
    assert_eq!(std::fs::read(daemon.path("data2/f")).unwrap(), b"new");
}
