//! Tests what an administrator sees when the disk fails after the acknowledgement. Needs root.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
};

use serde_json::Value;
use smb_client::CreateArgs;

use crate::{
    loop_mount::LoopMount,
    support::{Daemon, PASSWORD, Plan, USER, eventually},
};

const LAZY: &str = "treat-host-as-stable-storage";

/// A share `bad` with that policy on a disk that can run full, and a page of metrics.
fn start(mount: &LoopMount, port: u16, durability: &str) -> Daemon {
    let plan = Plan {
        tables: format!(
            "[[share]]\nname = \"bad\"\npath = {:?}\ndurability = \"{LAZY}\"\naccept_loss = true\n\
             [metrics]\nlisten = \"127.0.0.1:{port}\"\n[durability]\n{durability}\n",
            mount.path()
        ),
        ..Plan::default()
    };
    plan.start()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

fn metric(port: u16, name: &str) -> f64 {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    let series = format!("holdfast_{name}{{share=\"bad\"}} ");
    let line = page.lines().find_map(|line| line.strip_prefix(&series));
    line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

fn bad(daemon: &Daemon) -> Value {
    let json = daemon.ask(&["policy", "show", "bad", "--json"]).unwrap();
    let json: Value = serde_json::from_str(&json).unwrap();
    json[0].clone()
}

/// Acknowledges and flushes more than the disk can take.
fn promise_too_much(daemon: &Daemon, mount: &LoopMount) -> smb_client::File {
    let session = daemon.client().login(USER, PASSWORD, "").unwrap();
    let tree = session.tree("bad").unwrap();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    file.write_all(0, &vec![1; 1 << 20]).unwrap();
    mount.starve(512);
    file.write_all(0, &vec![2; 24 << 20]).unwrap();
    file.flush(false).unwrap();
    file
}

#[test]
fn a_tightening_says_what_could_not_be_made_stable() {
    let Some(mount) = LoopMount::on_tmpfs("xfs", 400) else {
        return;
    };
    let port = free_port();
    let daemon = start(&mount, port, "dirty_age_max = \"10min\"");
    let file = promise_too_much(&daemon, &mount);
    let before = bad(&daemon);
    assert!(before["exposed_bytes"].as_u64().unwrap() >= 24 << 20);
    assert_eq!(before["by_policy"][0]["policy"], LAZY);
    assert!(metric(port, "flushes_ignored_total") >= 1.0);
    let refused = daemon.ask(&["policy", "set", "bad", "honor"]).unwrap_err();
    assert!(
        refused.contains("not all that was acknowledged before"),
        "{refused}"
    );
    let after = bad(&daemon);
    assert_eq!(after["policy"], "honor", "it holds all the same");
    assert_eq!(after["poisoned_inodes"], 1);
    assert_eq!(after["poisoned"][0]["path"], "f");
    assert!(after["changed"]["by"].as_str().unwrap().contains("uid 0"));
    assert_eq!(metric(port, "poisoned_inodes"), 1.0);
    assert!(metric(port, "syncs_failed_total") >= 1.0);
    file.flush(false).unwrap_err();
    assert!(metric(port, "flushes_failed_total") >= 1.0);
    let status = daemon.ask(&["status"]).unwrap();
    assert!(
        status.contains(" latch=1 ") && status.contains("(f) of device"),
        "{status}"
    );
    daemon.ask(&["status", "--check"]).unwrap_err();
    mount.feed();
}

#[test]
fn a_share_that_tripped_is_shown_and_explained() {
    let Some(mount) = LoopMount::on_tmpfs("xfs", 400) else {
        return;
    };
    let port = free_port();
    let daemon = start(&mount, port, "dirty_age_max = \"1s\"");
    let file = promise_too_much(&daemon, &mount);
    assert_eq!(metric(port, "share_tripped"), 0.0);
    eventually("the background sync fails", || {
        bad(&daemon)["policy"] == "honor"
    });
    assert_eq!(metric(port, "share_tripped"), 1.0);
    assert_eq!(metric(port, "trips_total"), 1.0);
    let status = daemon.ask(&["status"]).unwrap();
    let aside = format!("configured is {LAZY}, set aside because a sync failed");
    assert!(status.contains(&aside), "{status}");
    assert!(status.contains("WARNING: acknowledged flushes"), "{status}");
    let said = daemon.ask(&["policy", "explain", "bad/f"]).unwrap();
    for part in [
        "honor by the share's own policy",
        "treat-host-as-stable-storage is set aside because a sync failed",
        "in force for all of them is honor",
    ] {
        assert!(said.contains(part), "no `{part}` in\n{said}");
    }
    file.flush(false).unwrap_err();
    mount.feed();
    daemon.ask(&["policy", "clear-latch", "bad"]).unwrap();
    assert_eq!(bad(&daemon)["policy"], LAZY);
    assert_eq!(metric(port, "share_tripped"), 0.0);
    file.flush(false).unwrap();
    let log = daemon.log();
    let line = log
        .lines()
        .find(|line| line.contains("latches cleared by control socket"));
    assert!(line.is_some_and(|line| line.contains("(uid 0")), "{log}");
}
