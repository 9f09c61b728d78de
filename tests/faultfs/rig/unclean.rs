//! A power cut right after the start of a server must leave nothing that no client put there.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use smb_client::{ClientError, Session};
use smb_wire::Status;

use crate::{Rig, open};

#[test]
fn nothing_of_the_servers_own_is_left() {
    let Some(mut rig) = Rig::started("", "durability = \"honor\"") else {
        return;
    };
    rig.restart();
    for profile in ["posix-min", "journal", "log-tree"] {
        for seed in 0..10 {
            rig.server.kill();
            rig.mount.send(&format!("reset {seed} {profile}"));
            rig.server.start();
            // Somebody is served: a cut while it starts, already listening, ends it by itself.
            drop(rig.server.tree());
            rig.mount.send(&format!("cut {seed}"));
            rig.server.kill();
            rig.mount.send("thaw");
            rig.server.start();
            for entry in rig.server.tree().list("", "*").unwrap() {
                let name = entry.file_name;
                assert!(
                    matches!(name.as_str(), "." | ".."),
                    "{profile}, seed {seed}: {name} is left"
                );
            }
        }
    }
}

/// The status with which a share is refused; `None` if it is served.
fn refused(session: &Session, share: &str) -> Option<Status> {
    match session.tree(share) {
        Ok(_) => None,
        Err(ClientError::Status(status)) => Some(status),
        Err(error) => panic!("{error}"),
    }
}

/// Starts the server while the file system hangs, in good time, and logs in.
fn started_beside_what_hangs(rig: &mut Rig) -> Session {
    rig.mount.send("off-mode hang");
    rig.mount.send("cut everything");
    let begun = Instant::now();
    rig.server.start();
    assert!(
        begun.elapsed() < Duration::from_secs(15),
        "{:?}",
        begun.elapsed()
    );
    rig.server.session(0)
}

/// After an unclean end a share is served when its file system has been synced; one that hangs
/// holds up nobody else.
#[test]
fn a_share_that_hangs_is_refused_and_the_others_are_served() {
    let plain = tempfile::tempdir().unwrap();
    let share = format!(
        "[[share]]\nname = \"plain\"\npath = \"{}\"",
        plain.path().display()
    );
    let Some(mut rig) = Rig::started("", &share) else {
        return;
    };
    let file = open(&rig.server.tree(), "f");
    file.write_all(0, b"data").unwrap();
    rig.server.kill();
    let session = started_beside_what_hangs(&mut rig);
    let refused = |share| refused(&session, share);
    assert_eq!(refused("data"), Some(Status::SHARE_UNAVAILABLE));
    let tree = session.tree("plain").unwrap();
    let other = open(&tree, "g");
    other.write_all(0, b"data").unwrap();
    other.flush(false).unwrap();
    let (ok, said) = rig.server.holdfast(&["status"]);
    assert!(
        ok && said.contains("NOT SERVED: its file system has not answered"),
        "{said}"
    );
    // A reload waits for nobody, either.
    let (ok, said) = rig.server.reload();
    assert!(ok, "{said}");
    assert_eq!(refused("data"), Some(Status::SHARE_UNAVAILABLE));
    rig.mount.send("off-mode error");
    rig.mount.send("thaw");
    rig.mount.send("release go");
    let begun = Instant::now();
    while refused("data").is_some() {
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{}",
            rig.server.log()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    let (_, said) = rig.server.holdfast(&["status"]);
    assert!(!said.contains("NOT SERVED"), "{said}");
    drop((session, tree));
    assert!(rig.server.stop().success());
    let before = rig.server.log().matches("did not end in order").count();
    rig.server.start();
    assert_eq!(
        rig.server.log().matches("did not end in order").count(),
        before
    );
    rig.server.assert_sound();
}

/// After an orderly end, too: the start opens what is mounted below a share.
#[test]
fn a_mount_below_a_share_that_hangs_delays_no_other_share() {
    let Some(mut rig) = Rig::new("", "") else {
        return;
    };
    let plain = tempfile::tempdir().unwrap();
    let above = rig.mount.path.parent().unwrap();
    let share = |name, path: &Path| {
        let path = path.display();
        format!("[[share]]\nname = \"{name}\"\npath = \"{path}\"\n")
    };
    let shares = share("plain", plain.path()) + &share("above", above);
    rig.server.set("", &shares);
    rig.server.start();
    assert!(rig.server.stop().success());
    let session = started_beside_what_hangs(&mut rig);
    assert_eq!(refused(&session, "plain"), None);
    let unavailable = Some(Status::SHARE_UNAVAILABLE);
    assert_eq!(refused(&session, "above"), unavailable);
    rig.mount.send("off-mode error");
    rig.mount.send("thaw");
    rig.mount.send("release go");
    let begun = Instant::now();
    while refused(&session, "above").is_some() {
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{}",
            rig.server.log()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(session);
    assert!(rig.server.stop().success());
    rig.server.assert_sound();
}
