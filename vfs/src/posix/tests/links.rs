//! Symbolic links, and file systems mounted below the root, as clients see them: ids of files, and directories that
//! look empty.

use std::{collections::BTreeSet, os::unix::fs::symlink, path::Path, process::Command};

use super::{cuts::pending_once, *};
use crate::posix::SymlinkPolicy;

fn open(path: &Path, options: PosixOptions) -> Case<LinuxDisk> {
    let disk = LinuxDisk::open(path).unwrap();
    block_on(Case::with(disk, Box::new(|_, _| ()), options_here(options)))
}

/// The id of each name in a directory, as a listing and as a lookup return it.
fn ids(t: &Case<LinuxDisk>, path: &str) -> Vec<(String, u64)> {
    block_on(async {
        let dir = t.node(path).await;
        let mut names = t.vfs.list(ME, &dir, 100).await.unwrap();
        names.sort_by(|a, b| a.name.cmp(&b.name));
        let attrs = t.vfs.attrs_at(ME, &dir, &names).await;
        let mut ids = Vec::new();
        for (name, attr) in names.iter().zip(attrs) {
            let Ok(listed) = attr else { continue };
            let at = format!("{path}/{}", name.name);
            let found = t.find(&at).await.unwrap().found.unwrap();
            let opened = t.vfs.attr(&found.0).await.unwrap();
            assert_eq!(listed.file_id, found.1.file_id, "{at}");
            assert_eq!(listed.file_id, opened.file_id, "{at}");
            ids.push((name.name.clone(), listed.file_id));
        }
        ids
    })
}

fn different(ids: impl IntoIterator<Item = u64>) -> usize {
    ids.into_iter().collect::<BTreeSet<_>>().len()
}

#[test]
fn each_path_of_a_directory_has_an_id_of_its_own() {
    let top = tempfile::tempdir().unwrap();
    let path = |name: &str| top.path().join(name);
    std::fs::create_dir_all(path("release/lib")).unwrap();
    std::fs::write(path("release/file"), b"").unwrap();
    symlink("release", path("current")).unwrap();
    symlink("release", path("other")).unwrap();
    symlink("..", path("release/lib/up")).unwrap();
    symlink(".", path("here")).unwrap();
    symlink("release/file", path("file")).unwrap();
    let t = open(top.path(), default_options());
    let all = ids(&t, "");
    assert_eq!(all.len(), 5);
    assert_eq!(different(all.iter().map(|(_, id)| *id)), 5, "{all:?}");
    let of = |path: &str, name: &str| {
        let found = ids(&t, path).into_iter().find(|(one, _)| one == name);
        found.unwrap().1
    };
    let paths = [
        ("release", "lib"),
        ("current", "lib"),
        ("other", "lib"),
        ("", "release"),
        ("here", "release"),
        ("here/here", "release"),
        ("here/here", "here"),
        ("release/lib", "up"),
        ("release/lib/up", "lib"),
        ("release/lib/up/lib", "up"),
    ];
    let each = paths.map(|(path, name)| of(path, name));
    assert_eq!(different(each), each.len(), "{each:x?}");
    // A file is the same one by every name.
    let file = of("", "file");
    for path in ["release", "current", "here/other"] {
        assert_eq!(of(path, "file"), file, "{path}");
    }
    // A new server gives the same ids.
    let again = open(top.path(), default_options());
    assert_eq!(ids(&again, ""), all);
    assert_eq!(ids(&again, "here/current"), ids(&t, "here/current"));
}

#[test]
fn an_absolute_link_is_followed_within_the_share() {
    let top = tempfile::tempdir().unwrap();
    let share = top.path().join("share");
    let path = |name: &str| share.join(name);
    std::fs::create_dir_all(path("d/e")).unwrap();
    std::fs::create_dir(top.path().join("share2")).unwrap();
    std::fs::write(path("d/e/f"), b"").unwrap();
    for (name, target) in [
        ("file", path("d/e/f")),
        ("chain", path("d/e/up/e/f")),
        ("d/e/up", path("d//./")),
        ("d/root", share.clone()),
        ("beside", top.path().join("share2")),
        ("above", path("d/../../share2")),
        ("out", "/etc".into()),
    ] {
        symlink(target, path(name)).unwrap();
    }
    let options = PosixOptions {
        root_path: share.clone(),
        ..default_options()
    };
    let t = open(&share, options);
    let found = |path: &str| {
        let found = block_on(t.find(path));
        found.map(|found| found.found.unwrap().0.key())
    };
    let file = found("d/e/f");
    assert!(file.is_ok());
    for path in ["file", "chain", "d/e/up/E/f", "d/root/d/e/f", "d/root/file"] {
        assert_eq!(found(path), file, "{path}");
    }
    assert_eq!(found("d/root"), Ok(t.vfs.root().key()));
    for path in ["beside", "above", "out"] {
        assert_eq!(found(path), Err(VfsError::SymbolicLink), "{path}");
    }
    // Where the path of the root is not known, an absolute link leads nowhere.
    let t = open(&share, default_options());
    let refused = block_on(t.find("file")).map(drop);
    assert_eq!(refused, Err(VfsError::SymbolicLink));
}

/// A mount on a new folder; unmounted when dropped.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    /// A file system of its own.
    fn new(at: &'a Path) -> Option<Self> {
        Self::by(at, &["-t", "tmpfs", "-o", "size=1m", "none"])
    }

    fn by(at: &'a Path, how: &[&str]) -> Option<Self> {
        std::fs::create_dir(at).unwrap();
        let mut mount = Command::new("mount");
        mount.arg("-i").args(how);
        if !mount.arg(at).status().is_ok_and(|status| status.success()) {
            crate::testing::missing("root, or mount");
            return None;
        }
        Some(Self(at))
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let mut umount = Command::new("umount");
        let _ = umount.args(["-q", "-l"]).arg(self.0).status();
    }
}

/// A second mount stands for the short name that NTFS or a server of CIFS gives the depot. The host makes the depot
/// after the start.
#[test]
fn the_depot_is_reached_by_no_name_that_only_the_file_system_knows() {
    let top = tempfile::tempdir().unwrap();
    let t = open(top.path(), default_options());
    let [depot, at, other] = [".streams", "STREAM~1", "OTHER~1"].map(|name| top.path().join(name));
    std::fs::create_dir(&depot).unwrap();
    std::fs::create_dir(&other).unwrap();
    let Some(_mounted) = Mounted::by(&at, &["--bind", depot.to_str().unwrap()]) else {
        return;
    };
    symlink("STREAM~1", top.path().join("link")).unwrap();
    let found = |name| block_on(t.find(name)).map(|found| found.found.is_some());
    assert_eq!(found("STREAM~1"), Err(VfsError::InvalidName));
    assert_eq!(found("STREAM~1/00"), Err(VfsError::InvalidName));
    assert_eq!(found("link/00"), Err(VfsError::SymbolicLink));
    assert_eq!(found("OTHER~1"), Ok(true));
}

#[test]
fn streams_go_with_a_file_on_another_file_system() {
    let top = tempfile::tempdir().unwrap();
    let at = top.path().join("a");
    let Some(_mounted) = Mounted::new(&at) else {
        return;
    };
    let options = PosixOptions {
        streams: StreamStore::Depot,
        ..default_options()
    };
    let t = open(top.path(), options);
    block_on(async {
        let file = t.file("a/f").await;
        match t.vfs.open_stream(ME, &file, "s", StreamOpen::New).await {
            // Its attributes are those of Linux 6.6.
            Err(VfsError::NotSupported) => return,
            made => drop(made.unwrap()),
        }
        assert!(super::streams::in_depot(&t, &file).await);
        t.remove("a/f").await.unwrap();
        assert!(!super::streams::in_depot(&t, &file).await);
    });
}

#[test]
fn ids_are_unique_below_a_root_with_other_file_systems() {
    let top = tempfile::tempdir().unwrap();
    let at = ["a", "b"].map(|name| top.path().join(name));
    let mut mounted = Vec::new();
    for at in &at {
        let Some(one) = Mounted::new(at) else {
            return;
        };
        mounted.push(one);
        std::fs::create_dir(at.join("d")).unwrap();
        for name in 0..8 {
            std::fs::write(at.join("d").join(name.to_string()), b"").unwrap();
        }
    }
    let t = open(top.path(), default_options());
    let mut all = ids(&t, "");
    for path in ["a", "b", "a/d", "b/d"] {
        all.extend(ids(&t, path));
    }
    assert_eq!(all.len(), 2 + 2 + 16);
    assert_eq!(
        different(all.iter().map(|(_, id)| *id)),
        all.len(),
        "{all:x?}"
    );
    let made = block_on(async {
        let d = t.node("a/d").await;
        let (node, attr) = (t.vfs)
            .create(ME, &d, "new", &NewNode::default(), false)
            .await
            .unwrap();
        (attr.file_id, t.vfs.attr(&node).await.unwrap().file_id)
    });
    assert_eq!(made.0, made.1);
    // A new server that sees them in another order gives the same ids.
    let again = open(top.path(), default_options());
    assert_eq!(ids(&again, "b/d"), ids(&t, "b/d"));
    assert_eq!(ids(&again, "a"), ids(&t, "a"));
}

#[test]
fn a_directory_of_links_that_no_client_sees_is_empty() {
    use SymlinkPolicy::{Follow, Hide, Refuse};
    for policy in [Follow, Hide, Refuse] {
        let top = tempfile::tempdir().unwrap();
        let path = |name: &str| top.path().join(name);
        std::fs::create_dir_all(path("venv/bin")).unwrap();
        std::fs::create_dir(path("followed")).unwrap();
        std::fs::write(path("kept"), b"x").unwrap();
        symlink("/usr/bin/python3", path("venv/bin/python")).unwrap();
        symlink("nothing", path("venv/bin/dangling")).unwrap();
        symlink("../../../../outside", path("venv/bin/out")).unwrap();
        symlink("../kept", path("followed/link")).unwrap();
        let options = PosixOptions {
            symlinks: policy,
            ..default_options()
        };
        let t = open(top.path(), options);
        block_on(async {
            for (name, seen) in [
                ("venv", true),
                ("venv/bin", false),
                ("followed", policy == Follow),
            ] {
                let dir = t.node(name).await;
                let is_empty = t.vfs.is_empty(ME, &dir).await.unwrap();
                assert_eq!(is_empty, !seen, "{name} {policy:?}");
            }
            t.remove("venv/bin").await.unwrap();
            t.remove("venv").await.unwrap();
            let removed = t.remove("followed").await;
            if policy == Follow {
                assert_eq!(removed, Err(VfsError::NotEmpty));
                assert!(path("followed/link").is_symlink());
            } else {
                assert_eq!(removed, Ok(()));
            }
        });
        assert_eq!(std::fs::read(path("kept")).unwrap(), b"x");
    }
}

#[test]
fn a_link_in_a_directory_that_was_moved_is_kept() {
    let top = tempfile::tempdir().unwrap();
    let path = |name: &str| top.path().join(name);
    std::fs::create_dir_all(path("a/d")).unwrap();
    std::fs::write(path("a/file"), b"x").unwrap();
    symlink("../file", path("a/d/link")).unwrap();
    let t = open(top.path(), default_options());
    block_on(async {
        let opened = t.node("a/d").await;
        std::fs::rename(path("a"), path("b")).unwrap();
        assert!(!t.vfs.is_empty(ME, &opened).await.unwrap());
        let parent = t.node("b").await;
        let removed = t.vfs.remove(ME, &opened, &parent, "d").await;
        assert_eq!(removed.unwrap_err(), VfsError::NotEmpty);
    });
    assert!(path("b/d/link").is_symlink());
}

/// The streams in the depot of a share are for users who may open their files there.
#[test]
fn the_depot_of_a_share_within_another_is_hidden_from_both() {
    let top = tempfile::tempdir().unwrap();
    let inner = top.path().join("inner");
    std::fs::create_dir_all(inner.join(".streams/place")).unwrap();
    let outer = open(top.path(), default_options());
    let found = || {
        let found = block_on(outer.find("inner/.streams/place"));
        found.map(|lookup| lookup.found.is_some())
    };
    // As long as no share begins above it, it is a folder like any other.
    assert_eq!(found(), Ok(true));
    let share = open(&inner, default_options());
    assert_eq!(found(), Err(VfsError::InvalidName));
    for names in [block_on(outer.names("inner")), block_on(share.names(""))] {
        assert!(names.is_empty(), "{names:?}");
    }
    drop(share);
    assert_eq!(found(), Ok(true));
}

/// Another program may make the name that a link replaces a name of the same file: rename(2) then does nothing.
#[test]
fn a_link_beside_the_same_link_leaves_no_other_name() {
    let mut met = 0;
    for steps in 0..40 {
        block_on(async {
            let (disk, link) = sim(SimOptions::default());
            let t = Case::new(disk, link).await;
            let (dir, file) = (t.dir("d").await, t.file("d/f").await);
            t.file("d/g").await;
            let replaced = t.key("d/g").await;
            let disk = t.vfs.disk();
            disk.set_hook(Some(Arc::new(|_| Some(pending_once()))));
            let mut linked = std::pin::pin!(t.vfs.link(ME, &file, &dir, "g", replaced));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            let ended = (0..steps).any(|_| linked.as_mut().poll(&mut context).is_ready());
            disk.set_hook(None);
            if ended {
                return;
            }
            disk.unlink(ME, dir.fd(), b"g", false).await.unwrap();
            disk.link(ME, file.fd(), dir.fd(), b"g").await.unwrap();
            // Whether it succeeds depends on what it has seen.
            let _ = linked.await;
            for path in ["d/f", "d/g", "d"] {
                let removed = t.remove(path).await;
                assert_eq!(removed, Ok(()), "{path} at step {steps}");
            }
            met += 1;
        });
    }
    assert!(met > 5, "{met}");
}
