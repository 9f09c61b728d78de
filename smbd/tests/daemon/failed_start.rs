//! Tests a start after a SIGKILL where the file system of one share fails. Needs root.

use std::{fs, os::unix::fs::symlink, process::Command, time::Duration};

use rustix::fs::{Mode, OFlags};
use serde_json::Value;
use smb_client::{ClientError, CreateArgs};
use smb_wire::Status;
use tempfile::TempDir;

use crate::{
    loop_mount::{KINDS, LoopMount, missing},
    support::{Daemon, OWN, PASSWORD, Plan, USER, eventually, possible},
};

/// The share `data` on a disk that works, and `bad` on `mount`.
fn plan(mount: &LoopMount, users: Vec<(&'static str, &'static str)>) -> Plan {
    Plan {
        tables: format!(
            "[[share]]\nname = \"bad\"\npath = {:?}\ndurability = \"treat-host-as-stable-storage\"\n\
             accept_loss = true\n[durability]\ndirty_age_max = \"10min\"\n",
            mount.path(),
        ),
        users,
        ..Plan::default()
    }
}

/// As [`kill_and_start_in`], in a new folder.
fn kill_and_start(mount: &LoopMount, fail: impl FnOnce()) -> Daemon {
    kill_and_start_in(tempfile::tempdir().unwrap(), mount, fail)
}

/// Acknowledges 24 MiB on `bad`, calls `fail` for its disk, kills the server and starts it again.
fn kill_and_start_in(dir: TempDir, mount: &LoopMount, fail: impl FnOnce()) -> Daemon {
    let mut daemon = plan(mount, vec![(USER, OWN)]).start_in(dir);
    let session = daemon.client().login(USER, PASSWORD, "").unwrap();
    let tree = session.tree("bad").unwrap();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    file.write_all(0, &vec![1; 1 << 20]).unwrap();
    fail();
    file.write_all(0, &vec![2; 24 << 20]).ok();
    daemon.signal("KILL");
    daemon.wait(Duration::from_secs(10));
    plan(mount, Vec::new()).start_in(daemon.into_folder())
}

/// The status of a TREE_CONNECT.
fn refused(daemon: &Daemon, share: &str) -> Option<Status> {
    let session = daemon.client().login(USER, PASSWORD, "").unwrap();
    match session.tree(share) {
        Ok(_) => None,
        Err(ClientError::Status(status)) => Some(status),
        Err(error) => panic!("{error}"),
    }
}

fn status(daemon: &Daemon) -> (Value, String) {
    let json = daemon.ask(&["status", "--json"]).unwrap();
    let json = serde_json::from_str(&json).unwrap();
    (json, daemon.ask(&["status"]).unwrap())
}

fn serves(daemon: &Daemon) {
    let file = daemon.tree().create(&CreateArgs::open_if("g")).unwrap();
    file.write_all(0, b"data").unwrap();
    file.flush(false).unwrap();
}

fn late(daemon: &Daemon) -> Value {
    status(daemon).0["late_shares"][0].clone()
}

fn is_served(daemon: &Daemon) {
    eventually("the share is served", || {
        refused(daemon, "bad").is_none() && late(daemon).is_null()
    });
}

fn error(daemon: &Daemon) -> String {
    late(daemon)["error"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

fn lost(daemon: &Daemon) -> String {
    let (json, _) = status(daemon);
    let shares = json["server"]["shares"].as_array().unwrap().clone();
    let bad = shares.iter().find(|share| share["share"] == "bad").unwrap();
    bad["lost_at_start"].as_str().unwrap_or_default().to_owned()
}

fn again(mount: &LoopMount, mut daemon: Daemon) -> Daemon {
    daemon.signal("KILL");
    daemon.wait(Duration::from_secs(10));
    plan(mount, Vec::new()).start_in(daemon.into_folder())
}

/// Write-back fails because the disk below is full. The kernel reports that to the first sync only: the share is served
/// when another one succeeds, and `status` continues to report what it may lack.
#[test]
fn a_start_that_cannot_sync_one_share_serves_the_others() {
    for kind in KINDS {
        let Some(mount) = LoopMount::on_tmpfs(kind, 400) else {
            continue;
        };
        let daemon = kill_and_start(&mount, || mount.starve(512));
        serves(&daemon);
        let log = daemon.log();
        assert!(log.contains("NOT SERVED"), "{kind}: {log}");
        mount.feed();
        is_served(&daemon);
        assert!(lost(&daemon).contains("may be lost"), "{kind}");
        let (_, text) = status(&daemon);
        assert!(
            text.contains("ACKNOWLEDGED DATA MAY BE LOST"),
            "{kind}: {text}"
        );
        // The kernel reports no error to the next server any more.
        let daemon = again(&mount, daemon);
        is_served(&daemon);
        assert!(lost(&daemon).contains("may be lost"), "{kind}");
        daemon.ask(&["policy", "clear-latch", "bad"]).unwrap();
        assert_eq!(lost(&daemon), "", "{kind}");
    }
}

/// Whether every call to the file system fails from now on.
fn shut_down(mount: &LoopMount) -> bool {
    let words = ["-x", "-c", "shutdown", mount.path().to_str().unwrap()];
    let done = Command::new("xfs_io").args(words).status();
    let done = done.is_ok_and(|status| status.success());
    if !done {
        missing("xfs_io");
    }
    done
}

/// Every call fails until the disk is repaired.
#[test]
fn a_share_that_fails_is_served_when_it_is_repaired() {
    for kind in ["xfs", "ext4"] {
        let Some(mount) = LoopMount::new(kind, 400) else {
            continue;
        };
        let mut could = false;
        let daemon = kill_and_start(&mount, || could = shut_down(&mount));
        if !could {
            continue;
        }
        serves(&daemon);
        let unavailable = Some(Status::SHARE_UNAVAILABLE);
        assert_eq!(refused(&daemon, "bad"), unavailable, "{kind}");
        let told = error(&daemon);
        assert!(told.contains("os error 5"), "{kind}: {told}");
        let (_, text) = status(&daemon);
        for part in ["NOT SERVED: ", "tried again in", "ACKNOWLEDGED DATA"] {
            assert!(text.contains(part), "{kind}: {text}");
        }
        // A reload is not refused by what has failed before.
        daemon.ask(&["reload"]).unwrap();
        // Killed once more, the next server still knows that the share was never synced.
        let daemon = again(&mount, daemon);
        serves(&daemon);
        assert_eq!(refused(&daemon, "bad"), unavailable, "{kind}");
        mount.unmount();
        daemon.ask(&["reload"]).unwrap();
        let told = error(&daemon);
        assert!(told.contains("nothing is mounted"), "{kind}: {told}");
        assert_eq!(refused(&daemon, "bad"), unavailable, "{kind}");
        mount.mount();
        daemon.ask(&["reload"]).unwrap();
        let daemon = if kind == "ext4" && daemon.log().contains("landlock=true") {
            // Its root could be opened when the sandbox was entered, which names that root only.
            let told = error(&daemon);
            assert!(told.contains("`folders` in [sandbox]"), "{told}");
            again(&mount, daemon)
        } else {
            daemon
        };
        is_served(&daemon);
        assert!(lost(&daemon).contains("may be lost"), "{kind}");
        serves(&daemon);
    }
}

/// Nothing was dirty, but a folder that cannot be opened keeps no other share from being served.
#[test]
fn a_share_that_fails_after_an_orderly_end_is_served_when_it_is_repaired() {
    let Some(mount) = LoopMount::new("xfs", 400) else {
        return;
    };
    // Where a reload may add shares: it fails, too.
    let more = mount.path().join("more");
    std::fs::create_dir(&more).unwrap();
    let plan = |users| {
        let mut plan = plan(&mount, users);
        plan.tables += &format!("[sandbox]\nfolders = [{more:?}]\n");
        plan
    };
    let mut daemon = plan(vec![(USER, OWN)]).start();
    daemon.signal("TERM");
    assert!(daemon.wait(Duration::from_secs(15)).success());
    if !shut_down(&mount) {
        return;
    }
    let mut check = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    check.arg("check-config").arg(daemon.path("h.toml"));
    let said = check.output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout);
    assert!(said.contains("THE FOLDER FAILS (Input/output"), "{said}");
    let mut daemon = plan(Vec::new()).start_in(daemon.into_folder());
    serves(&daemon);
    assert_eq!(refused(&daemon, "bad"), Some(Status::SHARE_UNAVAILABLE));
    assert!(error(&daemon).contains("os error 5"));
    let by_host = mount.path().join("f").display().to_string();
    for path in ["bad/f", by_host.as_str()] {
        let said = daemon.ask(&["policy", "explain", path]).unwrap();
        assert!(said.contains("bad is not served now"), "{said}");
        assert!(said.contains("treat-host-as-stable-storage"), "{said}");
    }
    mount.remount();
    is_served(&daemon);
    assert_eq!(lost(&daemon), "");
    daemon.signal("TERM");
    assert!(daemon.wait(Duration::from_secs(15)).success());
    assert!(!daemon.path("state/running").exists());
}

/// An ext4 does this by itself after an error.
#[test]
fn a_share_that_became_read_only_by_an_error_is_served() {
    let Some(mount) = LoopMount::new("ext4", 400) else {
        return;
    };
    let daemon = kill_and_start(&mount, || mount.abort());
    assert_eq!(refused(&daemon, "bad"), None);
    assert!(lost(&daemon).contains("os error 30"), "{}", lost(&daemon));
    let again = again(&mount, daemon);
    assert_eq!(refused(&again, "bad"), None);
}

/// A file system that was made read-only has nothing dirty.
#[test]
fn a_share_that_is_read_only_is_served() {
    for kind in KINDS {
        let Some(mount) = LoopMount::new(kind, 400) else {
            continue;
        };
        let daemon = kill_and_start(&mount, || ());
        is_served(&daemon);
        let mut daemon = daemon;
        daemon.signal("KILL");
        daemon.wait(Duration::from_secs(10));
        mount.make_read_only();
        let daemon = plan(&mount, Vec::new()).start_in(daemon.into_folder());
        assert_eq!(refused(&daemon, "bad"), None, "{kind}");
        assert_eq!(lost(&daemon), "", "{kind}");
        let tree = daemon
            .client()
            .login(USER, PASSWORD, "")
            .unwrap()
            .tree("bad")
            .unwrap();
        assert_eq!(tree.read_file("f").unwrap().len(), 24 << 20, "{kind}");
        assert!(tree.create(&CreateArgs::create("new")).is_err(), "{kind}");
    }
}

/// The configuration does not answer while the server reads it again, here a FIFO that nobody writes to.
#[test]
fn a_reload_that_hangs_does_not_keep_a_share_from_being_served() {
    let Some(mount) = LoopMount::new("xfs", 400) else {
        return;
    };
    let mut could = false;
    let daemon = kill_and_start(&mount, || could = shut_down(&mount));
    if !could {
        return;
    }
    assert_eq!(refused(&daemon, "bad"), Some(Status::SHARE_UNAVAILABLE));
    let config = daemon.path("h.toml");
    fs::remove_file(&config).unwrap();
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &config, mode).unwrap();
    daemon.signal("HUP");
    let how = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut fifo = None;
    // Without waiting, it can be opened only while the server waits for what is in it.
    eventually("it does not read the configuration", || {
        fifo = rustix::fs::open(&config, how, Mode::empty()).ok();
        fifo.is_some()
    });
    mount.unmount();
    mount.mount();
    eventually("the share is served", || refused(&daemon, "bad").is_none());
    drop(fifo);
}

/// A file system whose changes wait until this is dropped.
struct Frozen<'a>(&'a LoopMount);

impl<'a> Frozen<'a> {
    fn new(mount: &'a LoopMount) -> Self {
        fsfreeze("--freeze", mount);
        Self(mount)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        fsfreeze("--unfreeze", self.0);
    }
}

fn fsfreeze(how: &str, mount: &LoopMount) {
    let mut command = Command::new("fsfreeze");
    let done = command.arg(how).arg(mount.path()).status();
    assert!(done.unwrap().success(), "fsfreeze {how}");
}

/// Whether a thread of the server waits for a disk.
fn waits_for_a_disk(daemon: &Daemon) -> bool {
    let threads = fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    threads.flatten().any(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The state follows the name, which ends with the last parenthesis.
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('D'))
    })
}

/// A reload brings a share, which must be named in the state folder first.
#[test]
fn a_state_folder_that_hangs_does_not_keep_a_share_from_being_served() {
    if !possible(&["fsfreeze"]) {
        return;
    }
    let (Some(mount), Some(disk)) = (LoopMount::new("xfs", 400), LoopMount::new("ext4", 32)) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(disk.path().join("state")).unwrap();
    symlink(disk.path().join("state"), dir.path().join("state")).unwrap();
    let mut could = false;
    let daemon = kill_and_start_in(dir, &mount, || could = shut_down(&mount));
    if !could {
        return;
    }
    assert_eq!(refused(&daemon, "bad"), Some(Status::SHARE_UNAVAILABLE));
    // Below a share, where the sandbox lets the server open it.
    fs::create_dir(daemon.path("data/more")).unwrap();
    daemon.edit(|text| text + "[[share]]\nname = \"more\"\npath = \"data/more\"\n");
    let frozen = Frozen::new(&disk);
    daemon.signal("HUP");
    eventually("the reload changes nothing in the state folder", || {
        waits_for_a_disk(&daemon)
    });
    mount.unmount();
    mount.mount();
    eventually("the share is served", || refused(&daemon, "bad").is_none());
    assert!(refused(&daemon, "more").is_some());
    drop(frozen);
    eventually("the reload is in force", || {
        refused(&daemon, "more").is_none()
    });
}
