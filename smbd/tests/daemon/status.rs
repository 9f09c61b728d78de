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
    let file = tree.create(&CreateArgs::create("open.txt")).unwrap();
    file.write_all(0, &[5; 20_480]).unwrap();
    file.lock(0, 10, smb_wire::msg::LockFlags::EXCLUSIVE)
        .unwrap();
    let words = daemon.ask(&["status"]).unwrap();
    for part in [
        "file I/O by ",
        "connections: 1 from 1 addresses, 0 without a login",
        "workers:\n  worker  core  listeners",
        "honor: when a client's flush or write-through succeeds",
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
    assert_eq!(data["latched_inodes"], 0);
    assert!(json["workers"][0]["core"].is_u64());
    assert!(json["workers"][0]["listeners"][0].is_string());
    file.flush(false).unwrap();
    let after = daemon.ask(&["status"]).unwrap();
    assert!(
        after.contains("nothing acknowledged that is not stable"),
        "{after}"
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
    let set = daemon
        .ask(&["policy", "set", "data", "strict-sync"])
        .unwrap();
    assert!(set.contains("strict-sync: every change"), "{set}");
    assert!(
        set.contains("nothing acknowledged that is not stable"),
        "{set}"
    );
}
