//! Rules of a share: explained without a server and with one, in force for opens, changed by a
//! reload.

use std::{path::Path, process::Command};

use serde_json::Value;
use smb_client::{CreateArgs, File};

use crate::support::{Daemon, OWN, PASSWORD, Plan};

const RULES: &str = "durability = \"honor\"\naccept_loss = true\n\
    [[share.durability_rule]]\nusers = [\"bob\"]\ndurability = \"strict-sync\"\n\
    [[share.durability_rule]]\npaths = [\"scratch/**\"]\n\
    durability = \"treat-host-as-stable-storage\"\n\
    [[share.durability_rule]]\nopen = [\"write-through\"]\ndialects = \"3.0..\"\n\
    durability = \"bounded:60s,1GiB\"\n";

fn plan() -> Plan {
    Plan {
        share: RULES.into(),
        users: vec![("alice", OWN), ("bob", OWN)],
        ..Plan::default()
    }
}

fn explain(daemon: &Daemon, words: &[&str]) -> Value {
    let words = [&["policy", "explain", "--json"], words].concat();
    serde_json::from_str(&daemon.ask(&words).unwrap()).unwrap()
}

/// Without a server.
fn explain_file(file: &Path, words: &[&str]) -> Result<String, String> {
    let output = Command::new(env!("CARGO_BIN_EXE_holdfast"))
        .args(["policy", "explain"])
        .args(words)
        .arg("--config")
        .arg(file)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(text(&output.stderr))
    }
}

#[test]
fn a_file_is_explained_without_a_server() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("h.toml");
    std::fs::create_dir(folder.path().join("data")).unwrap();
    let text =
        format!("[server]\nstate_dir = \"st\"\n[[share]]\nname = \"d\"\npath = \"data\"\n{RULES}");
    std::fs::write(&file, text).unwrap();
    let said = explain_file(&file, &["d/scratch/x", "--user", "bob"]).unwrap();
    for part in [
        "share d, scratch/x\n",
        "rule 1 (h.toml:8) holds: strict-sync for users bob",
        "rule 2 (h.toml:11) is not reached",
        "strict-sync by rule 1 (h.toml:8): every change",
        "by the file: no server that runs with it answers this user",
    ] {
        assert!(said.contains(part), "no `{part}` in\n{said}");
    }
    let host = folder.path().join("data/x");
    let host = host.to_str().unwrap();
    let said = explain_file(&file, &[host, "--write-through", "--dialect", "2.1"]).unwrap();
    assert!(said.contains("dialect 2.1 is not in 3.0..3.1.1"), "{said}");
    assert!(said.contains("honor by the share's own policy"), "{said}");
    let refused = explain_file(&file, &["/etc/passwd"]).unwrap_err();
    assert!(
        refused.contains("in no share") && refused.contains("are d"),
        "{refused}"
    );
}

#[test]
fn the_strictest_open_is_in_force_and_is_explained() {
    let daemon = plan().start();
    let tree = daemon.tree();
    tree.mkdir("scratch").unwrap();
    let path = r"scratch\x";
    let by_alice = tree.create(&CreateArgs::create(path)).unwrap();
    let lazy = "treat-host-as-stable-storage";
    let words = ["data/scratch/x", "--user", "alice", "--client", "127.0.0.1"];
    let answer = explain(&daemon, &words);
    assert_eq!(answer["policy"], lazy);
    assert_eq!(answer["decided_by"], "rule 2 (h.toml:15)");
    assert!(answer["warning"].is_string());
    assert_eq!(answer["in_force"]["policy"], lazy);
    // Flushes of alice are not synced until bob has it open too.
    by_alice.write_all(0, &[1; 4_096]).unwrap();
    by_alice.flush(false).unwrap();
    let exposed = || {
        let json = daemon.ask(&["status", "--json"]).unwrap();
        let json: Value = serde_json::from_str(&json).unwrap();
        json["server"]["shares"][0].clone()
    };
    let share = exposed();
    assert_eq!(share["exposed_bytes"], 4_096);
    assert_eq!(share["by_policy"][0]["policy"], lazy);
    assert_eq!(share["by_policy"][0]["exposed_bytes"], 4_096);
    assert!(
        share["warning"].is_string(),
        "a rule that loses is a warning"
    );
    let bob = daemon.client().login("bob", PASSWORD, "").unwrap();
    let bob = bob.tree("data").unwrap();
    let by_bob = bob.create(&CreateArgs::open(path)).unwrap();
    let answer = explain(&daemon, &words);
    assert_eq!(answer["policy"], lazy, "what alice alone would get");
    let now = &answer["in_force"];
    assert_eq!(now["policy"], "strict-sync");
    assert_eq!(now["rule"], "rule 1 (h.toml:12)");
    assert_eq!(now["because"]["user"], "bob");
    assert_eq!(now["opens"], 2);
    by_alice.flush(false).unwrap();
    assert_eq!(exposed()["exposed_bytes"], 0);
    let said = daemon
        .ask(&["policy", "explain", "data/scratch/x"])
        .unwrap();
    assert!(said.contains("open now 2 times"), "{said}");
    by_bob.close().unwrap();
    by_alice.close().unwrap();
    let said = daemon
        .ask(&["policy", "explain", "data/scratch/x"])
        .unwrap();
    assert!(said.ends_with("not open now\n"), "{said}");
    let status = daemon.ask(&["status"]).unwrap();
    let rule =
        "rule 3 (h.toml:18): bounded:60000ms,1GiB for dialects 3.0..3.1.1; open write-through";
    assert!(status.contains(rule), "{status}");
}

/// A daemon, and a file that a rule is for, written and flushed.
fn with_a_flushed_file() -> (Daemon, File) {
    let daemon = plan().start();
    let tree = daemon.tree();
    tree.mkdir("scratch").unwrap();
    let file = tree.create(&CreateArgs::create(r"scratch\x")).unwrap();
    file.write_all(0, &[1; 4_096]).unwrap();
    file.flush(false).unwrap();
    (daemon, file)
}

#[test]
fn rules_change_by_reload_for_open_files_too() {
    let (daemon, file) = with_a_flushed_file();
    daemon.edit(|text| text.replace("treat-host-as-stable-storage", "honor"));
    let said = daemon
        .ask(&["policy", "explain", "data/scratch/x"])
        .unwrap();
    assert!(said.contains("the file says honor by rule 2"), "{said}");
    let said = daemon.ask(&["reload"]).unwrap();
    assert!(said.contains("data"), "{said}");
    // Everything that was acknowledged under the old rule is stable when the reload is done.
    let status = daemon.ask(&["status"]).unwrap();
    assert!(
        status.contains("nothing acknowledged that is not stable"),
        "{status}"
    );
    assert_eq!(
        explain(&daemon, &["data/scratch/x"])["in_force"]["policy"],
        "honor"
    );
    // A group that nobody can be in.
    daemon.edit(|text| text.replace("users = [\"bob\"]", "groups = [\"nobody\"]"));
    let refused = daemon.ask(&["reload"]).unwrap_err();
    assert!(
        refused.contains("rule 1 (h.toml:12): no group `nobody`"),
        "{refused}"
    );
    assert_eq!(explain(&daemon, &["data/scratch/x"])["policy"], "honor");
    file.close().unwrap();
}

#[test]
fn members_of_a_group_have_a_rule() {
    let daemon = plan().start();
    for words in [
        ["group", "add", "staff"].as_slice(),
        &["group", "join", "staff", "alice"],
    ] {
        daemon.ask(words).unwrap();
    }
    daemon.edit(|text| text.replace("users = [\"bob\"]", "groups = [\"Staff\"]"));
    daemon.ask(&["reload"]).unwrap();
    let tree = daemon.tree();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    file.write_all(0, &[1; 4_096]).unwrap();
    let answer = explain(&daemon, &["data/f", "--user", "alice"]);
    assert_eq!(answer["policy"], "strict-sync", "{answer:#}");
    assert_eq!(answer["in_force"]["policy"], "strict-sync", "{answer:#}");
    let bob = explain(&daemon, &["data/f", "--user", "bob"]);
    assert_eq!(bob["policy"], "honor");
    let why = bob["rules"][0]["why_not"][0].as_str().unwrap();
    assert_eq!(why, "user bob is in none of the groups Staff");
    file.close().unwrap();
}

#[test]
fn rules_are_set_aside_until_a_reload() {
    let (daemon, file) = with_a_flushed_file();
    let policy = |words: &[&str]| explain(&daemon, words)["in_force"]["policy"].clone();
    // The share's policy does not touch the rules, and the answer says so.
    let said = daemon.ask(&["policy", "set", "data", "honor"]).unwrap();
    assert!(said.contains("WARNING: by rule 2"), "{said}");
    // The file and its folder: the report covers everything that is dirty, under any rule.
    assert!(said.contains("made stable: 2 inodes, 4096 bytes"), "{said}");
    assert_eq!(policy(&["data/scratch/x"]), "treat-host-as-stable-storage");
    let said = daemon
        .ask(&["policy", "set", "data", "honor", "--without-rules"])
        .unwrap();
    assert!(
        said.contains("set to honor, without its rules, at 20"),
        "{said}"
    );
    assert!(!said.contains("WARNING"), "{said}");
    assert_eq!(policy(&["data/scratch/x"]), "honor");
    daemon.ask(&["reload"]).unwrap();
    assert_eq!(policy(&["data/scratch/x"]), "treat-host-as-stable-storage");
    file.close().unwrap();
}
