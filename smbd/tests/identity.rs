//! Tests who owns the files: users bound to local ids, owners of shares, an unprivileged server.
//!
//! The tests need root; without it they print that they were not run, or fail with
//! `HOLDFAST_REQUIRE_ROOT=1`.

#[path = "daemon/support.rs"]
mod support;

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::Path,
    process::Command,
};

use support::{Daemon, Plan, missing, possible};

const ALICE: u32 = 12_345;
const BOB: u32 = 12_346;
const STAFF: u32 = 12_400;
const NOBODY: u32 = 65_534;
const UNPRIVILEGED: [&str; 6] = [
    "setpriv",
    "--reuid",
    "65534",
    "--regid",
    "65534",
    "--clear-groups",
];

fn users() -> Vec<(&'static str, &'static str)> {
    vec![
        ("alice", "12345:12345"),
        ("bob", "12346:12346"),
        ("carol", ""),
    ]
}

/// Ids and permission bits.
fn facts(path: &Path) -> (u32, u32, u32) {
    let meta = fs::symlink_metadata(path).unwrap();
    (meta.uid(), meta.gid(), meta.permissions().mode() & 0o7777)
}

fn make(daemon: &Daemon, name: &str, owner: (u32, u32), mode: u32) {
    let path = daemon.path(name);
    fs::write(&path, name).unwrap();
    chown(&path, Some(owner.0), Some(owner.1)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
}

fn open_to_all(daemon: &Daemon, folder: &str) {
    fs::set_permissions(daemon.path(folder), fs::Permissions::from_mode(0o777)).unwrap();
}

/// A daemon with these lines for its share, if the test can run here.
fn started(share: &str) -> Option<Daemon> {
    let plan = Plan {
        share: share.into(),
        users: users(),
        ..Plan::default()
    };
    possible(&["smbclient"]).then(|| plan.start())
}

#[test]
fn users_act_as_those_they_are_bound_to() {
    let Some(daemon) = started("file_mode = \"0640\"\ndirectory_mode = \"0750\"") else {
        return;
    };
    open_to_all(&daemon, "data");
    let local = daemon.path("local");
    fs::write(&local, "content").unwrap();
    let local = local.display();

    daemon.smb("data", "alice", &format!("put {local} hers; mkdir her-dir"));
    assert_eq!(facts(&daemon.path("data/hers")), (ALICE, ALICE, 0o640));
    assert_eq!(facts(&daemon.path("data/her-dir")), (ALICE, ALICE, 0o750));
    daemon.smb("data", "bob", &format!("put {local} his"));
    assert_eq!(facts(&daemon.path("data/his")), (BOB, BOB, 0o640));
    // Without a binding: the guest account.
    daemon.smb("data", "carol", &format!("put {local} guests"));
    assert_eq!(facts(&daemon.path("data/guests")), (NOBODY, NOBODY, 0o640));

    let denied = "NT_STATUS_ACCESS_DENIED";
    make(&daemon, "data/root-only", (0, 0), 0o600);
    daemon.refused("data", "alice", "get root-only /dev/null", denied);
    daemon.refused("data", "carol", "get root-only /dev/null", denied);
    // The kernel judges by the bits: 0640 of somebody else is not readable, nor their folder.
    daemon.refused("data", "bob", "get hers /dev/null", denied);
    daemon.smb(
        "data",
        "alice",
        "get hers /dev/null; rename hers her-dir\\moved",
    );
    assert_eq!(
        facts(&daemon.path("data/her-dir/moved")),
        (ALICE, ALICE, 0o640)
    );
    daemon.refused("data", "bob", "ls her-dir\\*", denied);
    daemon.refused(
        "data",
        "bob",
        &format!("put {local} her-dir\\intruder"),
        denied,
    );
    daemon.refused("data", "bob", "rm her-dir\\moved", denied);
    assert!(daemon.path("data/her-dir/moved").exists());
    daemon.smb("data", "alice", "rm her-dir\\moved; rmdir her-dir");
    // A folder that only root may write.
    fs::set_permissions(daemon.path("data"), fs::Permissions::from_mode(0o755)).unwrap();
    daemon.refused("data", "alice", &format!("put {local} new"), denied);
    daemon.refused("data", "alice", "mkdir new", denied);
    daemon.refused("data", "alice", "rename his hers", denied);
    assert!(daemon.path("data/his").exists() && !daemon.path("data/new").exists());
}

/// A server that runs as root, with files in its share that others must not change, if the test can run here.
fn precious(server: &str, share: &str) -> Option<Daemon> {
    if !possible(&["smbclient"]) {
        return None;
    }
    let daemon = Plan {
        server: server.into(),
        share: share.into(),
        users: vec![("carol", ""), ("erin", "")],
        ..Plan::default()
    }
    .start();
    open_to_all(&daemon, "data");
    for folder in ["data/closed", "data/sticky"] {
        fs::create_dir(daemon.path(folder)).unwrap();
    }
    make(&daemon, "data/root-only", (0, 0), 0o600);
    make(&daemon, "data/closed/in", (0, 0), 0o600);
    make(&daemon, "data/sticky/bobs", (BOB, BOB), 0o644);
    make(&daemon, "data/program", (0, 0), 0o4755);
    for (folder, mode) in [("data/closed", 0o700), ("data/sticky", 0o1777)] {
        fs::set_permissions(daemon.path(folder), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::write(daemon.path("local"), "content").unwrap();
    Some(daemon)
}

fn all_untouched(daemon: &Daemon) {
    for (name, owner, mode) in [
        ("data/root-only", 0, 0o600),
        ("data/closed/in", 0, 0o600),
        ("data/sticky/bobs", BOB, 0o644),
        ("data/program", 0, 0o4755),
    ] {
        let path = daemon.path(name);
        assert_eq!(facts(&path), (owner, owner, mode));
        assert_eq!(fs::read_to_string(&path).unwrap(), name);
    }
}

#[test]
fn who_has_no_owner_is_never_root() {
    let Some(daemon) = precious("signing = \"desired\"", "guest = true") else {
        return;
    };
    let local = daemon.path("local");
    let local = local.display();
    let denied = "NT_STATUS_ACCESS_DENIED";
    for user in ["carol", "stranger"] {
        for command in [
            "get root-only /dev/null".to_owned(),
            format!("put {local} root-only"),
            "rename sticky\\bobs moved".to_owned(),
            "ls closed\\*".to_owned(),
            "get closed\\in /dev/null".to_owned(),
            format!("put {local} closed\\in"),
            format!("put {local} closed\\new"),
            "rm sticky\\bobs".to_owned(),
            format!("put {local} sticky\\bobs"),
            format!("put {local} program"),
        ] {
            daemon.refused("data", user, &command, denied);
            all_untouched(&daemon);
        }
        let command = format!("put {local} {user}; mkdir {user}-dir");
        daemon.smb("data", user, &command);
        let of = |name: String| facts(&daemon.path(&name));
        assert_eq!(of(format!("data/{user}")), (NOBODY, NOBODY, 0o644));
        assert_eq!(of(format!("data/{user}-dir")), (NOBODY, NOBODY, 0o755));
    }
    let log = daemon.log();
    assert!(log.contains("user carol acts as the guest account, nobody (65534:65534)"));
    assert!(log.contains("on share data guests act as the guest account"));
}

#[test]
fn users_without_an_owner_do_not_own_each_others_files() {
    let Some(daemon) = precious("signing = \"desired\"", "guest = true") else {
        return;
    };
    let local = daemon.path("local");
    let local = local.display();
    let denied = "NT_STATUS_ACCESS_DENIED";
    let made = format!("put {local} hers; mkdir her-dir; put {local} her-dir\\in");
    daemon.smb("data", "carol", &made);
    daemon.smb("data", "carol", &format!("put {local} sticky\\hers"));
    // A user who may write a file may remove it, but not out of a sticky folder.
    make(&daemon, "data/sticky/open", (NOBODY, NOBODY), 0o666);
    for other in ["erin", "stranger"] {
        // The permission bits allow them to read.
        let read = "get hers /dev/null; get her-dir\\in /dev/null; get sticky\\hers /dev/null";
        daemon.smb("data", other, read);
        for command in [
            format!("put {local} hers"),
            format!("put {local} her-dir\\in"),
            format!("put {local} her-dir\\new"),
            format!("put {local} sticky\\hers"),
            "rm her-dir\\in".to_owned(),
            "rm sticky\\hers".to_owned(),
            "rm sticky\\open".to_owned(),
            "rename sticky\\hers moved".to_owned(),
            format!("put {local} mine-{other}; rename mine-{other} sticky\\hers -f"),
            "setmode hers +r".to_owned(),
        ] {
            daemon.refused("data", other, &command, denied);
        }
    }
    // She still owns the files that she made.
    let again = format!("put {local} hers; put {local} her-dir\\in; rm sticky\\hers");
    daemon.smb("data", "carol", &again);
    daemon.smb("data", "carol", "rm her-dir\\in; rmdir her-dir; rm hers");
    // A share of the guest account without a configured owner has no owner here.
    make(&daemon, "data/found", (NOBODY, NOBODY), 0o644);
    daemon.refused("data", "carol", &format!("put {local} found"), denied);
    daemon.smb("data", "carol", "get found /dev/null");
}

#[test]
fn who_acts_as_root_is_named() {
    let Some(daemon) = precious("", "owner = \"0:0\"") else {
        return;
    };
    let put = format!("put {} new", daemon.path("local").display());
    let read = "get root-only /dev/null; get closed\\in /dev/null";
    daemon.smb("data", "carol", &format!("{put}; {read}"));
    assert_eq!(facts(&daemon.path("data/new")), (0, 0, 0o644));
    assert!(
        daemon
            .log()
            .contains("on share data everybody acts as 0:0: ROOT")
    );
}

#[test]
fn the_guest_account_can_be_chosen() {
    let Some(daemon) = precious("guest_account = \"12345:12400\"", "") else {
        return;
    };
    let put = format!("put {} new", daemon.path("local").display());
    daemon.smb("data", "carol", &put);
    assert_eq!(facts(&daemon.path("data/new")), (ALICE, STAFF, 0o644));
    let said = daemon
        .ask(&["user", "owner", "carol", "12346:12400"])
        .unwrap();
    assert!(said.contains("on disk carol acts as 12346:12400"), "{said}");
    daemon.ask(&["reload"]).unwrap();
    daemon.smb("data", "carol", &put.replace(" new", " newer"));
    assert_eq!(facts(&daemon.path("data/newer")), (BOB, STAFF, 0o644));
    let file = daemon.path("h.toml");
    daemon.edit(|text| text.replace("12345:12400", "root"));
    let said = check(&file).unwrap_err();
    assert!(
        said.contains("only \"0:0\" means root") && said.contains("h.toml:4"),
        "{said}"
    );
    daemon.edit(|text| text.replace("\"root\"", "\"0:0\""));
    assert!(check(&file).unwrap().contains("ROOT"));
}

fn check(file: &Path) -> Result<String, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    let output = command.arg("check-config").arg(file).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(text(&output.stderr)),
    }
}

#[test]
fn a_share_may_name_the_owner_of_all_that_is_made_on_it() {
    let Some(daemon) =
        started("owner = \"12346:12400\"\nfile_mode = \"0660\"\ndirectory_mode = \"0770\"")
    else {
        return;
    };
    // Alice herself could not even look inside.
    chown(daemon.path("data"), Some(BOB), Some(STAFF)).unwrap();
    // Folders take over the set-gid bit, as on Linux.
    fs::set_permissions(daemon.path("data"), fs::Permissions::from_mode(0o2770)).unwrap();
    let local = daemon.path("local");
    fs::write(&local, "content").unwrap();
    for user in ["alice", "carol"] {
        let command = format!("put {} {user}; mkdir {user}-dir", local.display());
        daemon.smb("data", user, &command);
        assert_eq!(
            facts(&daemon.path(&format!("data/{user}"))),
            (BOB, STAFF, 0o660)
        );
        let dir = facts(&daemon.path(&format!("data/{user}-dir")));
        assert_eq!(dir, (BOB, STAFF, 0o2770));
    }
    // For the kernel everybody on it is the same user.
    daemon.smb(
        "data",
        "alice",
        "get carol /dev/null; rm carol; rmdir carol-dir",
    );
}

#[test]
fn only_root_can_act_as_another_owner() {
    if !possible(&["setpriv"]) {
        return;
    }
    let plan = Plan {
        share: "owner = \"12346:12400\"".into(),
        prefix: UNPRIVILEGED.map(str::to_owned).to_vec(),
        owner: Some(NOBODY),
        ..Plan::default()
    };
    let start = std::panic::catch_unwind(|| drop(plan.start()));
    let said = *start.unwrap_err().downcast::<String>().unwrap();
    assert!(said.contains("only a server that runs as root"), "{said}");
}

#[test]
fn supplementary_groups_count() {
    if !possible(&["smbclient", "unshare"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let passwd = file(
        "passwd",
        "root:x:0:0::/root:/bin/sh\nal:x:12345:12345::/:/bin/sh\n",
    );
    let group = file("group", "root:x:0:\nstaff:x:12400:somebody,al\n");
    // In a mount namespace of its own the server sees these.
    let mounts = format!(
        "mount --bind {passwd} /etc/passwd && mount --bind {group} /etc/group && exec \"$@\""
    );
    let prefix = ["unshare", "--mount", "sh", "-c", &mounts, "sh"];
    let trial = Command::new(prefix[0])
        .args(&prefix[1..])
        .arg("true")
        .output()
        .unwrap();
    if !trial.status.success() {
        let said = String::from_utf8_lossy(&trial.stderr);
        missing(&format!("mount namespace: {said}"));
        return;
    }
    let daemon = Plan {
        users: users(),
        prefix: prefix.map(str::to_owned).to_vec(),
        ..Plan::default()
    }
    .start();
    open_to_all(&daemon, "data");
    make(&daemon, "data/for-staff", (0, STAFF), 0o640);
    daemon.smb("data", "alice", "get for-staff /dev/null");
    let denied = "NT_STATUS_ACCESS_DENIED";
    daemon.refused("data", "bob", "get for-staff /dev/null", denied);
    daemon.smb("data", "alice", "get for-staff /dev/null");
    let local = daemon.path("local");
    fs::write(&local, "content").unwrap();
    let put = format!("put {} for-staff", local.display());
    daemon.refused("data", "alice", &put, denied);
}

#[test]
fn an_unprivileged_server_owns_everything_itself() {
    if !possible(&["smbclient", "setpriv"]) {
        return;
    }
    let daemon = Plan {
        users: users(),
        prefix: UNPRIVILEGED.map(str::to_owned).to_vec(),
        owner: Some(NOBODY),
        ..Plan::default()
    }
    .start();
    let local = daemon.path("local");
    fs::write(&local, "content").unwrap();
    for user in ["alice", "carol"] {
        let command = format!("put {} {user}; mkdir {user}-dir", local.display());
        daemon.smb("data", user, &command);
        let of = |name: String| facts(&daemon.path(&name));
        assert_eq!(of(format!("data/{user}")), (NOBODY, NOBODY, 0o644));
        assert_eq!(of(format!("data/{user}-dir")), (NOBODY, NOBODY, 0o755));
    }
    make(&daemon, "data/root-only", (0, 0), 0o600);
    let denied = "NT_STATUS_ACCESS_DENIED";
    daemon.refused("data", "alice", "get root-only /dev/null", denied);
    // Files that existed before belong to everybody, as far as its owner's bits allow.
    make(&daemon, "data/ours", (NOBODY, NOBODY), 0o600);
    make(&daemon, "data/kept", (NOBODY, NOBODY), 0o400);
    for user in ["alice", "carol"] {
        let put = format!("put {} ", local.display());
        daemon.smb("data", user, &format!("{put}ours; get ours /dev/null"));
        daemon.smb("data", user, "get kept /dev/null");
        daemon.refused("data", user, &format!("{put}kept"), denied);
        // Files that a user made belong to that user.
        daemon.smb("data", user, &format!("{put}{user}; get alice /dev/null"));
    }
    for made in ["alice", "alice-dir\\new"] {
        let put = format!("put {} {made}", local.display());
        daemon.refused("data", "carol", &put, denied);
    }
    daemon.smb("data", "carol", "rm alice");
}
