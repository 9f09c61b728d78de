//! Files of the server itself cannot be reached through a share: not at the start, not after a
//! reload, and not where it comes to lie there while the server runs.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::{Command, Stdio},
};

use smb_client::Tree;

use crate::support::{Daemon, Plan, binary_for_all, eventually, missing, possible};

fn names(tree: &Tree, folder: &str) -> Vec<String> {
    let mut names: Vec<String> = (tree.list(folder, "*").unwrap().into_iter())
        .map(|entry| entry.file_name)
        .filter(|name| name != "." && name != "..")
        .collect();
    names.sort();
    names
}

/// The error text of a command that refuses the configuration.
fn refused(daemon: &Daemon, words: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    let output = command.args(words).arg(daemon.path("h.toml")).output();
    let output = output.unwrap();
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The error text of every reader of the configuration: at the start, before it, and at a reload.
fn all_refuse(daemon: &Daemon) -> [String; 3] {
    [
        refused(daemon, &["check-config"]),
        refused(daemon, &["serve", "--config"]),
        daemon.ask(&["reload"]).unwrap_err(),
    ]
}

const ABOVE: &str = "[[share]]\nname = \"above\"\npath = \".\"\n";

#[test]
fn a_share_that_contains_the_state_folder_is_refused() {
    let daemon = Plan::default().start();
    let tree = daemon.tree();
    fs::create_dir(daemon.path("state/inner")).unwrap();
    std::os::unix::fs::symlink(daemon.path("state"), daemon.path("link")).unwrap();
    for (path, word) in [
        (".", "contains the state folder"),
        ("state", "contains the state folder"),
        ("link", "contains the state folder"),
        ("link/inner", "lies in the state folder"),
    ] {
        let more = ABOVE.replace("\".\"", &format!("\"{path}\""));
        daemon.edit(|text| format!("{text}{more}"));
        for said in all_refuse(&daemon) {
            assert!(said.contains(word) && said.contains("h.toml:"), "{said}");
            assert!(said.contains("= set state_dir in [server]"), "{said}");
        }
        daemon.edit(|text| text.replace(&more, ""));
        tree.write_file("f", b"as before").unwrap();
    }
    // With the user file somewhere else.
    let users = daemon.path("state/users");
    fs::create_dir(daemon.path("data/own")).unwrap();
    fs::copy(users, daemon.path("data/own/users")).unwrap();
    let key = "state_dir = \"state\"\n";
    daemon.edit(|text| text.replace(key, &format!("{key}users_file = \"data/own/users\"\n")));
    for said in all_refuse(&daemon) {
        assert!(said.contains("contains the user file"), "{said}");
    }
}

fn absent(tree: &Tree, name: &str) {
    for path in [
        name.to_owned(),
        format!("{name}\\users"),
        format!("{name}\\new"),
    ] {
        assert!(tree.read_file(&path).is_err(), "{path}");
        assert!(tree.write_file(&path, b"x").is_err(), "{path}");
        assert!(tree.mkdir(&path).is_err(), "{path}");
    }
}

#[test]
fn what_comes_to_lie_in_a_share_is_not_there() {
    let plan = Plan {
        server: "users_file = \"accounts/users\"".into(),
        ..Plan::default()
    };
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("accounts")).unwrap();
    let daemon = plan.start_in(folder);
    let tree = daemon.tree();
    fs::create_dir(daemon.path("data/d")).unwrap();
    fs::create_dir(daemon.path("data/d/ordinary")).unwrap();
    let both = [("state", "data/d/State"), ("accounts", "data/d/accounts")];
    for (from, to) in both {
        fs::rename(daemon.path(from), daemon.path(to)).unwrap();
    }
    assert!(daemon.path("data/d/accounts/users").exists());
    assert_eq!(names(&tree, "d"), ["ordinary"]);
    for name in ["d\\State", "d\\accounts"] {
        absent(&tree, name);
    }
    assert!(tree.read_file("d\\state\\users").is_err());
    assert!(tree.rename("d\\State", "mine", false).is_err());
    for (from, to) in both {
        assert!(fs::read_dir(daemon.path(to)).unwrap().count() > 0);
        fs::rename(daemon.path(to), daemon.path(from)).unwrap();
    }
    bound(&daemon, &tree);
}

/// The same if the folder is visible through another mount.
fn bound(daemon: &Daemon, tree: &Tree) {
    fs::create_dir(daemon.path("data/d/mount")).unwrap();
    let mount = |words: &[&str], paths: &[&Path]| {
        let mut command = Command::new(words[0]);
        let done = command.args(&words[1..]).args(paths).status();
        done.is_ok_and(|status| status.success())
    };
    let (state, at) = (daemon.path("state"), daemon.path("data/d/mount"));
    if !mount(&["mount", "--bind"], &[&state, &at]) {
        missing("right to mount");
        return;
    }
    let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        absent(tree, "d\\mount");
        assert!(!names(tree, "d").contains(&"mount".to_owned()));
    }));
    assert!(mount(&["umount"], &[&at]));
    seen.unwrap();
}

/// If the default state folder would be served, `serve PATH` uses another.
#[test]
fn a_home_can_be_served_without_a_configuration() {
    if !possible(&[]) {
        return;
    }
    let top = tempfile::tempdir().unwrap();
    fs::set_permissions(top.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let at = |name: &str| top.path().join(name);
    for folder in ["home", "run"] {
        fs::create_dir(at(folder)).unwrap();
        fs::set_permissions(at(folder), fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::chown(at(folder), Some(65_534), Some(65_534)).unwrap();
    }
    let mut child = Command::new(binary_for_all(top.path()))
        .args(["serve", "--listen", "127.0.0.1:0"])
        .arg(at("home"))
        .env("HOME", at("home"))
        .env("XDG_RUNTIME_DIR", at("run"))
        .env_remove("XDG_STATE_HOME")
        .uid(65_534)
        .gid(65_534)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let socket = || {
        let folders = fs::read_dir(at("run/holdfast")).into_iter().flatten();
        let mut sockets = folders.flatten().map(|f| f.path().join("control.sock"));
        sockets.any(|socket| socket.exists())
    };
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        eventually("a control socket outside the home", || {
            socket() || child.try_wait().unwrap().is_some()
        });
    }));
    let _ = child.kill();
    let _ = child.wait();
    ended.unwrap();
    assert!(socket());
    assert_eq!(fs::read_dir(at("home")).unwrap().count(), 0);
}
