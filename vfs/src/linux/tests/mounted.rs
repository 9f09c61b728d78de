//! File systems that are mounted below the root of a disk.

use std::{os::fd::OwnedFd, path::PathBuf, process::Command, sync::Arc, time::Duration};

use rustix::io::FdFlags;
use tokio::{runtime::Builder, task::LocalSet, time::timeout};

use super::*;
use crate::{Node, disk::Wanted, linux::file_system::FileSystem};

const ME: &Identity = &Identity::Service;
const PATH: OpenHow = OpenHow {
    path_only: true,
    create: None,
    read: false,
    write: false,
    directory: false,
};

/// Something mounted on a new directory; unmounted when dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(at: PathBuf, kind: &str, options: &str) -> Option<Self> {
        std::fs::create_dir(&at).unwrap();
        Self::over(at, kind, options)
    }

    /// Mounted on a directory that is there.
    fn over(at: PathBuf, kind: &str, options: &str) -> Option<Self> {
        let mut mount = Command::new("mount");
        mount.args(["-i", "-t", kind, "-o", options, "none"]);
        let mounted = mount.arg(&at).status();
        mounted
            .is_ok_and(|status| status.success())
            .then_some(Self(at))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .args(["-q", "-l"])
            .arg(&self.0)
            .status();
    }
}

/// A FUSE whose server never answers. Calls that wait for it fail once the second is dropped.
fn hung(at: PathBuf) -> Option<(Mounted, OwnedFd)> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let server = rustix::fs::open("/dev/fuse", flags, Mode::empty()).ok()?;
    // `mount` inherits it.
    rustix::io::fcntl_setfd(&server, FdFlags::empty()).unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&server);
    let options = format!("fd={number},rootmode=40000,user_id=0,group_id=0");
    let mounted = Mounted::new(at, "fuse", &options)?;
    rustix::io::fcntl_setfd(&server, FdFlags::CLOEXEC).unwrap();
    Some((mounted, server))
}

fn wanted() -> Wanted {
    Wanted {
        attribute: "user.x",
        known: Arc::new(|_| true),
    }
}

/// One of four ways to look at a name in the root.
pub(super) async fn look(disk: LinuxDisk, name: &[u8], way: usize) -> crate::disk::DiskResult<()> {
    let root = disk.root();
    let all = |found: Vec<crate::disk::DiskResult<crate::disk::EntryAttrs>>| {
        found.into_iter().try_for_each(|one| one.map(drop))
    };
    match way % 4 {
        0 => disk.open_at(ME, &root, name, PATH).await.map(drop),
        1 => disk.stat_at(&root, name).await.map(drop),
        2 => {
            let listed = disk.entries_looked(&root, 10, 10, wanted()).await;
            listed.and_then(|(_, found)| all(found))
        }
        _ => {
            let names = vec![Box::from(name)];
            all(disk.entries_attrs(&root, names, wanted()).await)
        }
    }
}

fn keys(found: Vec<crate::disk::DiskResult<crate::disk::EntryAttrs>>) -> Vec<crate::FileKey> {
    found.into_iter().map(|one| one.unwrap().0.key).collect()
}

#[test]
fn what_is_mounted_below_the_root_has_a_class_of_its_own() {
    let top = tempfile::tempdir().unwrap();
    let Some(mounted) = Mounted::new(top.path().join("below"), "tmpfs", "size=1m") else {
        crate::testing::missing("root, or mount");
        return;
    };
    let disk = LinuxDisk::open(top.path()).unwrap();
    let root = disk.root();
    let own = block_on(conformance::new_file(&disk, &root, b"own"));
    let below = block_on(disk.open_at(ME, &root, b"below", PATH)).unwrap();
    assert!(below.class().memory && !below.class().remote);
    assert_eq!(own.class(), root.class());
    let key = |fd: &LinuxFd| calls::stat(fd).unwrap().key;
    let device = key(&below).fs;
    assert_ne!(device, key(&root).fs);
    assert_eq!(below.file_system().device, device);

    // Everything opened below it is on it, by whatever way.
    let file = block_on(conformance::new_file(&disk, &below, b"f"));
    block_on(disk.write(&file, 0, Bytes::from_static(b"x"), false)).unwrap();
    let read = OpenHow {
        read: true,
        ..OpenHow::default()
    };
    let again = block_on(disk.open_at(ME, &below, b"f", read)).unwrap();
    let pooled = block_on(disk.pool_open(ME, &below, b"f", read)).unwrap();
    let anew = block_on(disk.reopen(ME, &file, IoAccess::READ)).unwrap();
    for fd in [&file, &again, &pooled, &anew] {
        assert!(Arc::ptr_eq(fd.file_system(), below.file_system()));
        assert_eq!(key(fd), key(&file));
    }
    let directory = OpenHow {
        directory: true,
        ..read
    };
    let listed = block_on(disk.open_at(ME, &root, b"below", directory)).unwrap();
    let entries = block_on(disk.entries(&listed, 10)).unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(
        block_on(disk.stat_fs(&listed)).unwrap().kind,
        below.class().kind
    );

    // The name itself.
    assert_eq!(
        block_on(disk.stat_at(&root, b"below")).unwrap().key,
        key(&below)
    );
    let create = OpenHow::new_file(0o600);
    let refused = block_on(disk.open_at(ME, &root, b"below", create));
    assert_eq!(refused.map(drop), Err(Errno(libc::EEXIST)));
    let refused = block_on(disk.unlink(ME, &root, b"below", true));
    assert_eq!(refused, Err(Errno(libc::EBUSY)));
    let names = [&b"own"[..], b"below"].map(Box::from);
    let found = block_on(disk.entries_attrs(&root, names.to_vec(), wanted()));
    assert_eq!(keys(found), [key(&own), key(&below)]);
    let all = block_on(disk.entries_looked(&root, 10, 10, wanted())).unwrap();
    assert!(keys(all.1).contains(&key(&below)));
    let way = disk.open_way(ME, &root, &[Box::from(&b"below"[..]), Box::from(&b"f"[..])]);
    assert!(way.iter().all(Option::is_none), "not ahead of the walk");

    // Nothing keeps it mounted once nothing is open there.
    assert!(FileSystem::known(device).is_some());
    drop((below, file, again, pooled, anew, listed, way));
    assert!(FileSystem::known(device).is_none());
    let out = Command::new("umount").arg(&mounted.0).status().unwrap();
    assert!(out.success());
    let seen = block_on(disk.stat_at(&root, b"below")).unwrap();
    assert_eq!(seen.key.fs, key(&root).fs);
}

/// A sync of the directory that the path leads to would prove nothing about the name.
#[test]
fn what_is_mounted_over_a_directory_is_not_taken_for_it() {
    let top = tempfile::tempdir().unwrap();
    let above = top.path().join("d");
    std::fs::create_dir(&above).unwrap();
    std::fs::write(above.join("f"), "x").unwrap();
    let disk = LinuxDisk::open(top.path()).unwrap();
    let vfs = block_on(PosixVfs::new(disk, PosixOptions::default())).unwrap();
    let path = ["d", "f"].map(str::to_owned);
    let found = block_on(vfs.lookup(ME, &path)).unwrap();
    let (file, parent) = (found.found.unwrap().0, found.parent.unwrap());
    let known = block_on(vfs.parent_of(&file)).unwrap().unwrap();
    assert_eq!(known.key(), parent.key());
    let Some(_mounted) = Mounted::over(above, "tmpfs", "size=1m") else {
        crate::testing::missing("root, or mount");
        return;
    };
    assert!(block_on(vfs.parent_of(&file)).unwrap().is_none());
}

/// Many wait for a file system below the root that does not answer. Nobody else does: neither the thread that
/// serves, nor those of the pool that work for the root's file system.
#[test]
fn a_file_system_below_the_root_that_hangs_holds_up_nobody_else() {
    const ASK: usize = 2 * pool::IO_THREADS_MAX;
    let top = tempfile::tempdir().unwrap();
    let Some((mounted, server)) = hung(top.path().join("hung")) else {
        crate::testing::missing("root, or FUSE");
        return;
    };
    let disk = LinuxDisk::open(top.path()).unwrap();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let run = async move {
        let mut waiting = Vec::new();
        for number in 0..ASK {
            let looks = look(disk.clone(), b"hung", number);
            waiting.push(tokio::task::spawn_local(looks));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(waiting.iter().all(|one| !one.is_finished()));
        let others = async {
            let root = disk.root();
            for number in 0..ASK {
                let name = number.to_string();
                let file = conformance::new_file(&disk, &root, name.as_bytes()).await;
                disk.stat(&file).await.unwrap();
                disk.pool_open(ME, &root, name.as_bytes(), PATH)
                    .await
                    .unwrap();
            }
            disk.entries(&root, 1000).await.unwrap()
        };
        let listed = timeout(Duration::from_secs(20), others).await.unwrap();
        assert!(listed.len() >= ASK);
        // The end of the server ends what waits.
        drop((mounted, server));
        for one in waiting {
            let ended = timeout(Duration::from_secs(20), one).await;
            assert!(ended.unwrap().unwrap().is_err());
        }
    };
    LocalSet::new().block_on(&runtime, run);
}
