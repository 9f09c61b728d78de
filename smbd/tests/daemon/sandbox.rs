//! Tests which privileges the process has given up once it serves.

use std::fs;

use smb_client::CreateArgs;

use crate::support::{Daemon, Plan};

fn status_line(daemon: &Daemon, key: &str) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    let line = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        line.unwrap().trim().to_owned()
    };
    tasks
        .filter_map(|task| fs::read_to_string(task.unwrap().path().join("status")).ok())
        .map(line)
        .collect()
}

fn status(daemon: &Daemon) -> serde_json::Value {
    serde_json::from_str(&daemon.ask(&["status", "--json"]).unwrap()).unwrap()
}

#[test]
fn every_thread_is_confined() {
    let daemon = Plan::default().start();
    daemon.tree().create(&CreateArgs::create("f")).unwrap();
    assert!(
        status_line(&daemon, "NoNewPrivs:")
            .iter()
            .all(|one| one == "1")
    );
    assert!(
        status_line(&daemon, "Seccomp:")
            .iter()
            .all(|one| one == "2")
    );
    // CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, SETGID, SETUID, SYS_ADMIN.
    let most = 0x0020_00cf;
    for set in ["CapPrm:", "CapEff:", "CapBnd:", "CapInh:", "CapAmb:"] {
        for one in status_line(&daemon, set) {
            let one = u64::from_str_radix(&one, 16).unwrap();
            let is_root = rustix::process::geteuid().is_root();
            if is_root || set != "CapBnd:" {
                assert_eq!(one & !most, 0, "{set} {one:#x}");
            }
        }
    }
    let sandbox = &status(&daemon)["sandbox"];
    assert_eq!(sandbox["seccomp"], true);
    assert_eq!(sandbox["calls_refused"], 0, "{}", daemon.log());
    let folders = sandbox["landlock"].as_array().unwrap();
    assert!(
        folders
            .iter()
            .any(|one| one.as_str().unwrap().ends_with("/data"))
    );
}

#[test]
fn each_part_can_be_left_out() {
    let tables = "[sandbox]\ndrop_capabilities = false\nlandlock = false\nseccomp = false\n";
    let daemon = Plan {
        tables: tables.to_owned(),
        ..Plan::default()
    }
    .start();
    assert!(
        status_line(&daemon, "Seccomp:")
            .iter()
            .all(|one| one == "0")
    );
    let sandbox = &status(&daemon)["sandbox"];
    assert_eq!(sandbox["capabilities"], serde_json::Value::Null);
    assert_eq!(sandbox["landlock"], serde_json::Value::Null);
}

/// As is a user file that moved.
#[test]
fn a_reload_says_that_the_users_are_out_of_reach() {
    let elsewhere = tempfile::tempdir().unwrap();
    let within = tempfile::tempdir().unwrap();
    let daemon = Plan {
        tables: format!("[sandbox]\nfolders = [{:?}]\n", within.path()),
        ..Plan::default()
    }
    .start();
    let users = daemon.path("state/users");
    let reload = |folder: &std::path::Path| {
        let moved = folder.join("users");
        fs::copy(&users, &moved).unwrap();
        daemon.edit(|text| {
            let other = |line: &&str| !line.starts_with("users_file");
            let text: Vec<&str> = text.lines().filter(other).collect();
            let line = format!("[server]\nusers_file = {moved:?}");
            text.join("\n").replacen("[server]", &line, 1)
        });
        daemon.ask(&["reload"])
    };
    reload(within.path()).unwrap();
    let error = reload(elsewhere.path()).unwrap_err();
    for part in [
        "outside of what this process can still open",
        "restart",
        "`folders`",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

/// A share that a reload adds must lie where the process can still open it.
#[test]
fn a_reload_says_what_is_out_of_reach() {
    let elsewhere = tempfile::tempdir().unwrap();
    let within = tempfile::tempdir().unwrap();
    fs::create_dir(within.path().join("new")).unwrap();
    let daemon = Plan {
        tables: format!("[sandbox]\nfolders = [{:?}]\n", within.path()),
        ..Plan::default()
    }
    .start();
    let add = |name: &str, path: &std::path::Path| {
        daemon.edit(|text| format!("{text}\n[[share]]\nname = \"{name}\"\npath = {path:?}\n"));
    };
    add("within", &within.path().join("new"));
    daemon.ask(&["reload"]).unwrap();
    add("elsewhere", elsewhere.path());
    let error = daemon.ask(&["reload"]).unwrap_err();
    assert!(
        error.contains("outside of what this process can still open"),
        "{error}"
    );
    assert!(error.contains("restart"), "{error}");
}

/// For Landlock it is another folder, which may be read because the folder of the configuration contains it.
#[test]
fn a_reload_refuses_a_folder_in_which_nothing_can_be_changed() {
    let daemon = Plan::default().start();
    let (data, old) = (daemon.path("data"), daemon.path("old"));
    fs::rename(&data, &old).unwrap();
    fs::create_dir(&data).unwrap();
    let error = daemon.ask(&["reload"]).unwrap_err();
    for part in ["share data", "made or mounted there", "restart the server"] {
        assert!(error.contains(part), "{error}");
    }
    fs::remove_dir(&data).unwrap();
    fs::rename(&old, &data).unwrap();
    daemon.ask(&["reload"]).unwrap();
    daemon.tree().create(&CreateArgs::create("f")).unwrap();
}

/// As where all configurations of a host lie in one place, and `/etc` has links to them.
#[test]
fn a_configuration_behind_a_link_can_be_read_again() {
    let elsewhere = tempfile::tempdir().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let real = elsewhere.path().join("real.toml");
    std::os::unix::fs::symlink(&real, dir.path().join("h.toml")).unwrap();
    let daemon = Plan::default().start_in(dir);
    assert!(real.exists());
    daemon.ask(&["reload"]).unwrap();
}

/// The error output of `holdfast WORDS CONFIG`, started by `starter`, beside a server; it must fail.
fn refused(starter: &[&str], words: &[&str]) -> String {
    let daemon = Plan::default().start();
    daemon.edit(|text| {
        let port = daemon.address.port();
        text.replace(&port.to_string(), "4458")
            .replace("\"state\"", "\"another\"")
    });
    let mut holdfast = std::process::Command::new(starter[0]);
    holdfast.args(&starter[1..]);
    holdfast.arg(env!("CARGO_BIN_EXE_holdfast")).args(words);
    let output = holdfast.arg(daemon.path("h.toml")).output().unwrap();
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn root_that_cannot_be_its_users_is_refused() {
    if !crate::support::possible(&["setpriv", "unshare"]) {
        return;
    }
    let drop = "--bounding-set=-setuid";
    for (starter, says) in [
        (
            &["setpriv", drop, "--inh-caps=-setuid"][..],
            "root without CAP_SETUID cannot act",
        ),
        (
            &["unshare", "--user", "--map-root-user"][..],
            "root of a user namespace without setgroups",
        ),
    ] {
        for words in [&["serve", "--config"][..], &["check-config"]] {
            let said = refused(starter, words);
            if said.contains("unshare failed") {
                crate::support::missing(&said);
                continue;
            }
            assert!(said.contains(says), "{said}");
        }
    }
}

#[test]
fn a_start_without_proc_says_so() {
    if !crate::support::possible(&["unshare"]) {
        return;
    }
    let hide = "umount -l /proc && exec \"$@\"";
    let starter = ["unshare", "--mount", "sh", "-c", hide, "sh"];
    let said = refused(&starter, &["serve", "--config"]);
    if said.contains("unshare failed") || said.contains("umount") {
        crate::support::missing(&said);
        return;
    }
    assert!(
        said.contains("/proc, through which the server opens files, is not mounted"),
        "{said}"
    );
}
