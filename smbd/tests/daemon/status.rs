//! `holdfast status`, for people and for programs.

use smb_client::CreateArgs;

use crate::support::Plan;

#[test]
fn everything_that_goes_on_is_shown() {
    let plan = Plan {
        tables: "[[share]]\nname = \"quick\"\npath = \"data\"\ndurability = \"bounded:60s,1GiB\"\n"
            .into(),
        ..Plan::default()
    };
    let daemon = plan.start();
    let tree = daemon.tree();
    // A second tree connect to the same share.
    let _again = tree.session().tree("data").unwrap();
    let file = tree.create(&CreateArgs::create("open.txt")).unwrap();
    file.write_all(0, &[5; 20_480]).unwrap();
    file.lock(0, 10, smb_wire::msg::LockFlags::EXCLUSIVE)
        .unwrap();
    let words = daemon.ask(&["status"]).unwrap();
    for part in [
        "file I/O by ",
        "connections: 1 from 1 addresses, 0 without a login",
        "workers:\n  worker  core  listeners",
        "honor: when a client's flush succeeds, the file's data, size, times, attributes and name",
        "bounded:60000ms,1GiB: a flush is answered at once: a power failure can take",
        "acknowledged and not known to be stable: 20 KiB in ",
        "sessions: 1",
        "3.1.1",
        "open files: 1",
        "open.txt",
    ] {
        assert!(words.contains(part), "no `{part}` in\n{words}");
    }
    assert!(words.contains(&daemon.path("data").display().to_string()));
    let json = daemon.ask(&["status", "--json"]).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let session = &json["server"]["sessions"][0];
    assert_eq!(session["user"], "alice");
    assert_eq!(session["trees"], serde_json::json!(["data"]));
    assert_eq!(session["opens"][0]["locks"], 1);
    let shares = json["server"]["shares"].as_array().unwrap();
    let data = shares
        .iter()
        .find(|share| share["share"] == "data")
        .unwrap();
    assert_eq!(data["exposed_bytes"], 20_480);
    assert_eq!(data["poisoned_inodes"], 0);
    assert!(json["workers"][0]["core"].is_u64());
    assert!(json["workers"][0]["listeners"][0].is_string());
    file.flush(false).unwrap();
    let after = daemon.ask(&["status"]).unwrap();
    assert!(
        after.contains("nothing acknowledged that is not stable"),
        "{after}"
    );
    let check = daemon.ask(&["status", "--check"]);
    match data.get("broken_promise") {
        None => assert_eq!(check.unwrap(), "OK: 2 shares are served\n"),
        // The folder is in memory.
        Some(_) => drop(check.unwrap_err()),
    }
    let mut absent = std::process::Command::new(env!("CARGO_BIN_EXE_holdfast"));
    absent.args(["status", "--check", "--socket"]);
    let absent = absent.arg(daemon.path("no-socket")).output().unwrap();
    assert_eq!(absent.status.code(), Some(2));
    assert!(absent.stdout.starts_with(b"CRITICAL: no answer: "));
}

#[test]
fn what_is_under_a_share_is_reported_at_start_and_in_status() {
    let daemon = Plan::default().start();
    let line = "durability: share=data policy=honor device=";
    let log = daemon.log();
    let device = log.split_once(line).unwrap_or_else(|| panic!("{log}")).1;
    let device = device.split([' ', ':', '\n']).next().unwrap();
    let verdicts = ["protected", "unprotected", "unknown"];
    let verdict = device.rsplit(',').next().unwrap();
    assert!(verdicts.contains(&verdict), "{device}");
    let status = daemon.ask(&["status"]).unwrap();
    let exposed =
        "durability: share=data policy=honor exposed=0B/0 files oldest=0ms latch=0 device=";
    assert!(status.contains(&format!("{exposed}{device}\n")), "{status}");
    let json = daemon.ask(&["status", "--json"]).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let share = &json["server"]["shares"][0];
    assert_eq!(share["protection"]["verdict"], verdict);
    assert_eq!(share["device"], device);
    // In a chroot the mount table does not say what the root directory is on.
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    if mounts
        .lines()
        .any(|mount| mount.split(' ').nth(4) == Some("/"))
    {
        assert!(share["protection"]["file_systems"][0]["type"].is_string());
    } else {
        assert_eq!(verdict, "unknown");
    }
    let check = daemon.path("h.toml");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_holdfast"))
        .arg("check-config")
        .arg(check)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains(&format!("device: {device} (")), "{said}");
    // A reload that changes nothing says nothing again.
    daemon.ask(&["reload"]).unwrap();
    assert_eq!(daemon.log().matches(line).count(), 1);
}

#[test]
fn who_loses_with_the_host_is_warned_again_and_again() {
    let plan = Plan {
        share: "durability = \"treat-host-as-stable-storage\"\naccept_loss = true\n".into(),
        ..Plan::default()
    };
    let daemon = plan.start();
    let warning = "acknowledged flushes are NOT on stable storage";
    assert!(!daemon.log().contains(warning));
    for _ in 0..5 {
        daemon.tree();
    }
    let log = daemon.log();
    assert_eq!(log.matches(warning).count(), 1, "one a minute: {log}");
    assert!(
        log.contains("WARN") && log.contains("user=\"alice\""),
        "{log}"
    );
    let status = daemon.ask(&["status"]).unwrap();
    assert!(status.contains(&format!("WARNING: {warning}")), "{status}");
    // The configuration has agreed already.
    daemon.ask(&["policy", "set", "data", "honor"]).unwrap();
    assert!(!daemon.ask(&["policy", "show"]).unwrap().contains("WARNING"));
    let lazy = "treat-host-as-stable-storage";
    daemon.ask(&["policy", "set", "data", lazy]).unwrap();
    // A reload without consent changes nothing.
    daemon.edit(|text| text.replace("accept_loss = true\n", ""));
    let refused = daemon.ask(&["reload"]).unwrap_err();
    assert!(refused.contains("nobody has agreed"), "{refused}");
    assert!(daemon.ask(&["policy", "show"]).unwrap().contains("WARNING"));
    let text = "durability = \"strict-sync\"\n[[share.durability_rule]]\npaths = [\"tmp/**\"]\n\
                durability = \"treat-host-as-stable-storage\"\n";
    let old = "durability = \"treat-host-as-stable-storage\"\n";
    daemon.edit(|all| all.replace(old, text));
    let refused = daemon.ask(&["reload"]).unwrap_err();
    assert!(
        refused.contains("nobody has agreed"),
        "by a rule: {refused}"
    );
}

#[test]
fn a_policy_is_shown_and_changed() {
    let daemon = Plan::default().start();
    let file = daemon.tree().create(&CreateArgs::create("f")).unwrap();
    file.write_all(0, &[5; 4_096]).unwrap();
    let shown = daemon.ask(&["policy", "show"]).unwrap();
    assert!(shown.contains("honor: when a client's flush"), "{shown}");
    let refused = ["policy", "set", "data", "treat-host-as-stable-storage"];
    assert!(daemon.ask(&refused).unwrap_err().contains("--accept-loss"));
    daemon.ask(&["policy", "set", "data", "x\ny"]).unwrap_err();
    let set = daemon
        .ask(&["policy", "set", "data", "strict-sync"])
        .unwrap();
    assert!(set.contains("strict-sync: every change"), "{set}");
    assert!(
        set.starts_with(
            "data: strict-sync instead of honor\n  made stable: 1 inodes, 4096 bytes\n"
        ),
        "{set}"
    );
    // The caller and the time are in the log, and in the status until the next reload.
    let who = format!("(uid {}", rustix::process::geteuid().as_raw());
    let log = daemon.log();
    // A refused change is logged, too, in one line whatever was asked for.
    let is_change = |line: &&str| line.contains("set by control socket");
    let logged: Vec<&str> = log.lines().filter(is_change).collect();
    let asked = [
        ("treat-host-as-stable-storage", false),
        ("x\\ny", false),
        ("strict-sync", true),
    ];
    assert_eq!(logged.len(), asked.len(), "{log}");
    for (line, (policy, ok)) in logged.into_iter().zip(asked) {
        let parts = [format!("policy=\"{policy}\""), who.clone()];
        assert!(parts.iter().all(|part| line.contains(part)), "{line}");
        assert_eq!(line.contains("not set"), !ok, "{line}");
    }
    let status = daemon.ask(&["status"]).unwrap();
    let set_at = status
        .lines()
        .find(|line| line.contains("set to strict-sync at 20"));
    let set_at = set_at.unwrap_or_else(|| panic!("{status}"));
    assert!(
        set_at.contains(&who) && set_at.ends_with("was honor"),
        "{set_at}"
    );
    daemon.ask(&["reload"]).unwrap();
    assert!(
        !daemon
            .ask(&["status"])
            .unwrap()
            .contains("set to strict-sync")
    );
    assert!(
        set.contains("nothing acknowledged that is not stable"),
        "{set}"
    );
}
