//! Another process exchanges a folder of the share and a link that leads out of it, over and over,
//! while clients work below: nothing outside is read, made, changed or removed.
//!
//! Everything outside belongs to the user and is open to all, so that only the walk itself protects it.
//! The test needs root; without it, it prints that it was not run, or fails with `HOLDFAST_REQUIRE_ROOT=1`.

#[path = "daemon/support.rs"]
mod support;

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    thread,
};

use bytes::BytesMut;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use smb_client::{ClientError, CreateArgs, Tree};
use smb_wire::{
    Status,
    file_attributes::FileAttributes,
    fscc::{FileInformationClass, FileLinkInformation},
    msg::{CreateDisposition, CreateOptions},
};

use support::{Daemon, PASSWORD, Plan, possible};

const ALICE: u32 = 12_345;
/// The least number of exchanges in the course of a test, and of rounds of requests.
const EXCHANGES: u64 = 2_000;
const ROUNDS: u32 = 40;
const CLIENTS: u32 = 2;

const SECRET: &[u8] = b"kept outside";

/// A folder of the user's with the names that clients use: `f`, `old`, `sub/f`.
fn fill(folder: &Path, content: &[u8]) {
    fs::create_dir_all(folder.join("sub")).unwrap();
    for file in ["f", "old", "sub/f"] {
        fs::write(folder.join(file), content).unwrap();
    }
    for path in ["", "sub", "f", "old", "sub/f"] {
        let path = folder.join(path);
        chown(&path, Some(ALICE), Some(ALICE)).unwrap();
        let mode = if path.is_dir() { 0o777 } else { 0o666 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// Everything that can be observed of a tree, but for times of access.
fn facts(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut todo = vec![folder.to_owned()];
    while let Some(path) = todo.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let mut text = format!(
            "{} {:o} {} {} {}.{} {}.{}",
            meta.ino(),
            meta.mode(),
            meta.nlink(),
            meta.uid(),
            meta.mtime(),
            meta.mtime_nsec(),
            meta.ctime(),
            meta.ctime_nsec(),
        );
        if meta.is_dir() {
            todo.extend(fs::read_dir(&path).unwrap().map(|one| one.unwrap().path()));
        } else {
            text += &format!(" {:?}", fs::read(&path).unwrap());
        }
        all.insert(path, text);
    }
    all
}

/// Any answer will do, but it must be one.
fn answered<T>(result: Result<T, ClientError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            assert!(error.status().is_some(), "{error}");
            None
        }
    }
}

/// Sends one of each request that has a path. Returns how many were granted.
fn round(tree: &Tree, me: u32, number: u32) -> u32 {
    let mut granted = 0;
    let mut count = |done: bool| granted += u32::from(done);
    let own = |name: &str| format!("x\\{name}-{me}-{number}");
    for file in ["x\\f", "x\\sub\\f", "x\\old"] {
        if let Some(bytes) = answered(tree.read_file(file)) {
            assert_ne!(bytes, SECRET, "{file}");
            count(true);
        }
    }
    for folder in ["x", "x\\sub"] {
        let names = answered(tree.list(folder, "*"));
        let names: Vec<String> = names
            .into_iter()
            .flatten()
            .map(|one| one.file_name)
            .collect();
        assert!(
            !names.iter().any(|name| name == "only-outside"),
            "{names:?}"
        );
        count(!names.is_empty());
    }
    count(answered(tree.write_file(&own("new"), b"written")).is_some());
    count(answered(tree.write_file("x\\sub\\f", b"over")).is_some());
    let over = CreateArgs::new("x\\old", CreateDisposition::OVERWRITE_IF);
    let over = over.attributes(FileAttributes::HIDDEN);
    count(answered(tree.create(&over).and_then(|file| file.close())).is_some());
    count(answered(tree.mkdir(&own("dir"))).is_some());
    count(answered(tree.rename(&own("new"), &own("sub\\moved"), true)).is_some());
    count(answered(tree.rename("x\\sub\\f", "x\\sub\\g", true)).is_some());
    count(answered(tree.rename("x\\sub\\g", "x\\sub\\f", true)).is_some());
    if let Some(file) = answered(tree.create(&CreateArgs::open("base"))) {
        let mut link = BytesMut::new();
        FileLinkInformation {
            replace_if_exists: true,
            root_directory: 0,
            file_name: own("link"),
        }
        .encode(&mut link);
        count(answered(file.set(FileInformationClass::LINK, &link)).is_some());
        file.close().unwrap();
    }
    for name in [own("new"), own("sub\\moved"), own("link"), own("dir")] {
        count(answered(tree.delete(&name)).is_some());
    }
    let gone = CreateArgs::open("x\\f").options(CreateOptions::DELETE_ON_CLOSE);
    count(answered(tree.create(&gone).and_then(|file| file.close())).is_some());
    count(answered(tree.write_file("x\\f", b"again")).is_some());
    granted
}

/// Exchanges the two names until asked to stop.
fn exchange(data: &Path, done: &AtomicU64, stop: &AtomicBool) {
    let (x, y) = (data.join("x"), data.join("y"));
    while !stop.load(SeqCst) {
        renameat_with(CWD, &x, CWD, &y, RenameFlags::EXCHANGE).unwrap();
        done.fetch_add(1, SeqCst);
        thread::yield_now();
    }
}

fn tree(daemon: &Daemon) -> Tree {
    let session = daemon.client().login("alice", PASSWORD, "").unwrap();
    session.tree("data").unwrap()
}

fn race(file_io: &str, target: &dyn Fn(&Path) -> PathBuf) {
    let daemon = Plan {
        server: format!("file_io = \"{file_io}\""),
        users: vec![("alice", "12345:12345")],
        ..Plan::default()
    }
    .start();
    let (data, outside) = (daemon.path("data"), daemon.path("outside"));
    fs::set_permissions(&data, fs::Permissions::from_mode(0o777)).unwrap();
    fill(&data.join("x"), b"inside");
    fill(&outside, SECRET);
    fs::write(outside.join("only-outside"), SECRET).unwrap();
    fs::write(outside.join("sub/only-outside"), SECRET).unwrap();
    symlink(target(&outside), data.join("y")).unwrap();
    let trees: Vec<Tree> = (0..CLIENTS).map(|_| tree(&daemon)).collect();
    trees[0].write_file("base", b"linked").unwrap();
    let before = facts(&outside);
    assert!(round(&trees[0], 9, 0) > 10, "undisturbed");

    let (done, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let exchanging = scope.spawn(|| exchange(&data, &done, &stop));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|me| {
                let (tree, done) = (&trees[me as usize], &done);
                scope.spawn(move || {
                    let mut number = 0;
                    while number < ROUNDS || done.load(SeqCst) < EXCHANGES {
                        number += 1;
                        round(tree, me, number);
                    }
                })
            })
            .collect();
        let ended: Vec<_> = clients
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect();
        stop.store(true, SeqCst);
        exchanging.join().unwrap();
        assert!(ended.iter().all(Result::is_ok), "a client failed");
    });
    assert_eq!(facts(&outside), before);
    // The server works on, with the folder where it belongs and with the link there.
    if fs::symlink_metadata(data.join("x")).unwrap().is_symlink() {
        assert_eq!(
            trees[0].create_status(&CreateArgs::open("x\\f")).unwrap(),
            Status::ACCESS_DENIED
        );
        renameat_with(
            CWD,
            data.join("x"),
            CWD,
            data.join("y"),
            RenameFlags::EXCHANGE,
        )
        .unwrap();
    }
    assert!(round(&trees[0], 9, 1) > 10);
    assert_eq!(facts(&outside), before);
}

#[test]
fn a_link_that_comes_and_goes_leads_nowhere() {
    if !possible(&[]) {
        return;
    }
    race("auto", &|_| "../outside".into());
    race("threads", &Path::to_owned);
}
