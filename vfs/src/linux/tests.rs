//! The disk of plain system calls, on a real file system.

use std::os::unix::fs::MetadataExt;

use bytes::Bytes;
use rustix::fs::{Mode, OFlags};

use super::{super_block, *};
use crate::{
    Directories, Identity, IoAccess, NamedStreams, Paths, StreamOpen, SyncScope, Timestamp,
    VfsError, Volume, conformance,
    disk::{BTRFS, Disk, Errno, Mark, OpenHow, Stat, Wanted, XattrSet},
    posix::{PosixOptions, PosixVfs, StreamStore},
    testing::block_on,
};

mod automount;
mod ext4;
mod leases;
mod mounted;
mod xfs_log;

/// tmpfs takes values of 64 KiB, as XFS does.
#[test]
fn an_entrys_attribute_that_is_too_long_is_not_read() {
    const ATTRIBUTE: &str = "user.DOSATTRIB";
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let (who, disk) = (&Identity::Service, LinuxDisk::open(dir.path()).unwrap());
    let names = [b"0", b"1", b"2", b"3", b"4", b"5"].map(|name| name.as_slice());
    for name in names {
        let fd = block_on(conformance::new_file(&disk, &disk.root(), name));
        let set = disk.set_xattr(who, &fd, ATTRIBUTE, &[7; 4097], XattrSet::Either);
        if block_on(set).is_err() {
            // It has user attributes only since Linux 6.6.
            return;
        }
    }
    let wanted = Wanted {
        attribute: ATTRIBUTE,
        known: std::sync::Arc::new(|_| false),
    };
    let boxed: Vec<Box<[u8]>> = names.iter().map(|name| Box::from(*name)).collect();
    for one in block_on(disk.entries_attrs(&disk.root(), boxed, wanted)) {
        assert_eq!(one.unwrap().1, Some(Err(Errno(libc::E2BIG))));
    }
    // The files count as ones without it.
    let vfs = block_on(PosixVfs::new(disk, PosixOptions::default())).unwrap();
    let root = vfs.root();
    let listed = block_on(vfs.list(who, &root, names.len())).unwrap();
    let attrs = block_on(vfs.attrs_at(who, &root, &listed));
    assert!(attrs.len() == names.len() && attrs.iter().all(Result::is_ok));
}

#[test]
fn attributes_of_many_names_are_measured_in_several_jobs() {
    const NAMES: usize = 3000;
    let dir = tempfile::tempdir().unwrap();
    let disk = LinuxDisk::open(dir.path()).unwrap();
    let fd = block_on(conformance::new_file(&disk, &disk.root(), b"f"));
    let set = disk.set_xattr(&Identity::Service, &fd, "user.x", b"12", XattrSet::Either);
    block_on(set).unwrap();
    let names: Vec<Box<[u8]>> = vec![b"f"[..].into(); NAMES];
    let is_x: fn(&str) -> bool = |attribute| attribute == "user.x";
    let few = super::xattrs::lengths(
        &disk.root(),
        &names,
        is_x,
        super::xattrs::XattrAccess::here(),
    );
    assert!((1..NAMES).contains(&few.len()), "{}", few.len());
    let found = block_on(disk.entries_xattrs(&disk.root(), names, is_x));
    assert_eq!(found, vec![Ok(vec![("user.x".to_owned(), 2)]); NAMES]);
}

#[test]
fn conforms() {
    let dir = tempfile::tempdir().unwrap();
    let disk = LinuxDisk::open(dir.path()).unwrap();
    block_on(conformance::paths(&disk));
    block_on(conformance::all(&disk));
}

#[test]
fn conforms_in_memory() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let disk = LinuxDisk::open(dir.path()).unwrap();
    assert!(disk.root().class().memory);
    // tmpfs has user attributes only since Linux 6.6.
    let fd = block_on(conformance::new_file(&disk, &disk.root(), b"probe"));
    let set = disk.set_xattr(&Identity::Service, &fd, "user.x", b"", XattrSet::Either);
    if block_on(set).is_ok() {
        block_on(conformance::all(&disk));
    }
}

#[test]
fn identities() {
    if !crate::testing::root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let disk = LinuxDisk::open(dir.path()).unwrap();
    // Others must be able to reach the root of the disk.
    block_on(disk.set_mode(&Identity::Service, &disk.root(), 0o755)).unwrap();
    block_on(conformance::identities(&disk));
    // "Change nothing" of setfsuid must not be a way to keep root's rights.
    let nobody = conformance::stranger(u32::MAX);
    let made = block_on(disk.make_dir(&nobody, &disk.root(), b"never", 0o755));
    assert_eq!(made, Err(Errno(libc::EPERM)));
}

#[test]
fn programs_lose_their_privileges() {
    if !crate::testing::root() {
        return;
    }
    for place in [std::env::temp_dir(), "/dev/shm".into()] {
        let Ok(dir) = tempfile::tempdir_in(place) else {
            continue;
        };
        block_on(conformance::set_ids(&LinuxDisk::open(dir.path()).unwrap()));
    }
}

/// All components of a path are opened as the user, and none beyond one that the user may not search.
#[test]
fn nobody_gets_through_a_directory_ahead_of_the_walk() {
    if !crate::testing::root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let disk = LinuxDisk::open(dir.path()).unwrap();
    let (service, root) = (&Identity::Service, disk.root());
    block_on(disk.set_mode(service, &root, 0o755)).unwrap();
    let open = block_on(conformance::new_dir(&disk, &root, b"open", 0o755));
    let shut = block_on(conformance::new_dir(&disk, &open, b"shut", 0o700));
    let file = block_on(conformance::new_file(&disk, &shut, b"f"));
    let names = [&b"open"[..], b"shut", b"f", b"below"].map(Box::from);
    // The inodes, and whether the last name did not exist, which the kernel may be unable to answer at once.
    let walk = |who: &Identity, names: &[Box<[u8]>]| -> Vec<Option<u64>> {
        let ino = |fd: LinuxFd| calls::stat(&fd).unwrap().key.ino;
        let way = disk.open_way(who, &root, names).into_iter();
        way.map(|one| one.and_then(Result::ok).map(ino)).collect()
    };
    // While anything is mounted, as by other tests of this process, the kernel answers nothing from its caches, and the
    // walk may stop early. It must never go further or elsewhere.
    let expect = |who: &Identity, names: &[Box<[u8]>], wanted: &[Option<u64>]| {
        for _ in 0..100 {
            let found = walk(who, names);
            if found == wanted {
                return;
            }
            let same = |(found, wanted): (&Option<u64>, _)| found.is_none() || found == wanted;
            let is_part = found.len() <= wanted.len() && found.iter().zip(wanted).all(same);
            assert!(is_part, "{found:?}, not {wanted:?}");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("the walk never came as far as {wanted:?}");
    };
    let inode = |fd: &LinuxFd| Some(calls::stat(fd).unwrap().key.ino);
    let (open, shut, file) = (inode(&open), inode(&shut), inode(&file));
    let stranger = conformance::stranger(64_123);
    // XFS must have read the ACLs before it can answer without waiting.
    for who in [&stranger, service] {
        let mut at = root.clone();
        for name in &names[..3] {
            let how = OpenHow::PATH_ONLY;
            match block_on(disk.pool_open(who, &at, name, how)) {
                Ok(fd) => at = fd,
                Err(errno) => assert_eq!((who, errno), (&stranger, Errno(libc::EACCES))),
            }
        }
    }
    expect(&stranger, &names, &[open, shut, None]);
    expect(service, &names, &[open, shut, file, None]);
    expect(&stranger, &names, &[open, shut, None]);
    // With an invalid identity nothing is opened ahead, and the open itself returns the error.
    let nobody = conformance::stranger(u32::MAX);
    assert_eq!(walk(&nobody, &names), []);
    assert_eq!(walk(&stranger, &[Box::from(&b".."[..])]), []);
    std::os::unix::fs::symlink("open", dir.path().join("link")).unwrap();
    let names = [&b"link"[..], b"shut"].map(Box::from);
    assert_eq!(walk(service, &names), [None]);
}

/// Objects that the service creates belong to it, whichever user the thread acted as before and whatever it queried
/// in between.
#[test]
fn what_the_service_makes_is_the_services() {
    if !crate::testing::root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let disk = LinuxDisk::open(dir.path()).unwrap();
    let (service, root) = (&Identity::Service, disk.root());
    block_on(disk.set_mode(service, &root, 0o777)).unwrap();
    let make = |who: &Identity, name: String| {
        let mark: Mark = Box::new(|_| ("user.mark", Vec::new()));
        let made = block_on(disk.create_at(who, &root, name.as_bytes(), 0o600, mark));
        let stat = made.unwrap().stat.unwrap();
        (stat.uid, stat.gid)
    };
    for number in 0..20 {
        let user = conformance::stranger(64_000 + number % 3);
        let id = 64_000 + number % 3;
        assert_eq!(make(&user, format!("user-{number}")), (id, id));
        assert!(block_on(disk.entries(&root, 1000)).is_ok());
        if number % 2 == 0 {
            assert_eq!(make(service, format!("own-{number}")), (0, 0));
        }
        block_on(disk.make_dir(service, &root, format!("dir-{number}").as_bytes(), 0o700)).unwrap();
        let stat = block_on(disk.stat_at(&root, format!("dir-{number}").as_bytes())).unwrap();
        assert_eq!((stat.uid, stat.gid), (0, 0));
        assert_eq!(make(&user, format!("again-{number}")), (id, id));
    }
}

/// The creator of a file may mark it; where the mode forbids that, the service does.
#[test]
fn a_file_is_marked_whatever_its_mode() {
    let dir = tempfile::tempdir().unwrap();
    let disk = LinuxDisk::open(dir.path()).unwrap();
    let mut users = vec![Identity::Service];
    if crate::testing::root() {
        block_on(disk.set_mode(&Identity::Service, &disk.root(), 0o777)).unwrap();
        users.push(conformance::stranger(64_123));
    }
    for (who, mode) in users.iter().flat_map(|who| [(who, 0o644), (who, 0o444)]) {
        let name = format!("{who:?}{mode:o}");
        let mark: Mark = Box::new(|_| ("user.mark", b"1".to_vec()));
        let made = block_on(disk.create_at(who, &disk.root(), name.as_bytes(), mode, mark));
        let made = made.unwrap();
        let stat = made.stat.unwrap();
        assert_eq!(made.marked, Ok(()), "{name}");
        assert_eq!(calls::stat(&made.fd).unwrap().uid, stat.uid);
        if let Identity::User(user) = who {
            assert_eq!((stat.uid, stat.gid), (user.uid, user.gid));
        }
        let mark = block_on(disk.get_xattr(&made.fd, "user.mark"));
        assert_eq!(mark, Ok(b"1".to_vec()), "{name}");
    }
}

#[test]
fn symbolic_links_are_never_followed() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/etc/passwd", dir.path().join("out")).unwrap();
    let disk = LinuxDisk::open(dir.path()).unwrap();
    let (me, root) = (&Identity::Service, disk.root());
    for path_only in [false, true] {
        let how = OpenHow {
            path_only,
            read: true,
            ..OpenHow::default()
        };
        for _ in 0..2 {
            let got = block_on(disk.open_at(me, &root, b"out", how));
            assert_eq!(got.map(drop), Err(Errno(libc::ELOOP)));
        }
    }
    assert_eq!(
        block_on(disk.read_link_at(&root, b"out")).unwrap(),
        b"/etc/passwd"
    );
    assert_eq!(
        block_on(disk.stat_at(&root, b"out")).unwrap().mode & libc::S_IFMT,
        libc::S_IFLNK
    );
}

#[test]
fn a_fifo_holds_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let disk = LinuxDisk::open(dir.path()).unwrap();
    let root = disk.root();
    rustix::fs::mknodat(
        &root,
        "fifo",
        rustix::fs::FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )
    .unwrap();
    let how = OpenHow {
        write: true,
        ..OpenHow::default()
    };
    let got = block_on(disk.open_at(&Identity::Service, &root, b"fifo", how));
    assert_eq!(got.map(drop), Err(Errno(libc::ENXIO)));
}

#[test]
fn what_is_no_file_among_the_streams_is_no_stream_and_fails_no_sync() {
    let (who, dir) = (&Identity::Service, tempfile::tempdir().unwrap());
    let Some((vfs, file)) = leases::with_stream(dir.path(), StreamStore::Depot) else {
        crate::testing::missing("extended attributes");
        return;
    };
    let fifo = leases::in_depot(dir.path()).with_file_name(":p:$DATA");
    let bits = Mode::RUSR | Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, bits).unwrap();
    let streams = block_on(vfs.streams(&file)).unwrap();
    let names: Vec<_> = streams.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["s"]);
    assert_eq!(block_on(vfs.sync(&file, SyncScope::All)), Ok(()));
    let found = block_on(vfs.open_stream(who, &file, "p", StreamOpen::Existing));
    let size = block_on(vfs.attr(&found.unwrap().0));
    assert_eq!(size.map(drop), Err(VfsError::AccessDenied));
    // It goes with the streams, so the next inode of this number finds no stranger's entry among its own.
    block_on(vfs.remove(who, &file, &vfs.root(), "f")).unwrap();
    assert!(!fifo.parent().unwrap().exists());
}

/// A ring would take `O_NONBLOCK` as "never wait".
#[test]
fn what_a_ring_reads_may_wait() {
    let dir = tempfile::tempdir().unwrap();
    let disk = LinuxDisk::open(dir.path()).unwrap();
    let service = &Identity::Service;
    let file = block_on(conformance::new_file(&disk, &disk.root(), b"f"));
    let anew = block_on(disk.reopen(service, &file, IoAccess::BOTH)).unwrap();
    let how = OpenHow {
        read: true,
        ..OpenHow::default()
    };
    let cached = block_on(disk.open_at(service, &disk.root(), b"f", how)).unwrap();
    let pooled = block_on(disk.pool_open(service, &disk.root(), b"f", how)).unwrap();
    let waits = |fd: &LinuxFd| {
        let flags = rustix::fs::fcntl_getfl(fd).unwrap();
        !flags.contains(OFlags::NONBLOCK)
    };
    assert!(waits(&pooled));
    for fd in [&file, &anew, &cached, &pooled] {
        fd.for_ring().unwrap();
        assert!(waits(fd));
    }
}

#[test]
fn the_last_descriptor_of_an_inode_knows_it() {
    let dir = tempfile::tempdir().unwrap();
    let disk = LinuxDisk::open(dir.path()).unwrap();
    let service = &Identity::Service;
    let file = block_on(conformance::new_file(&disk, &disk.root(), b"f"));
    assert_eq!(file.others(), 0);
    let anew = block_on(disk.reopen(service, &file, IoAccess::READ)).unwrap();
    assert_eq!((file.others(), anew.others()), (1, 1));
    let how = OpenHow::PATH_ONLY;
    let found = block_on(disk.open_at(service, &disk.root(), b"f", how)).unwrap();
    assert_eq!(found.others(), 0);
    disk.close_beside(found.clone(), &anew);
    assert_eq!((found.others(), anew.others()), (2, 2));
    // A descriptor is counted only once.
    disk.close_beside(found.clone(), &file);
    drop(found);
    drop(file);
    assert_eq!(anew.others(), 0);
}

/// The kernel marks the path of what was deleted by the end that this name has anyway.
#[test]
fn a_name_that_ends_as_if_it_were_deleted_is_a_path() {
    let me = &Identity::Service;
    let dir = tempfile::tempdir().unwrap();
    let disk = LinuxDisk::open(dir.path()).unwrap();
    let root = disk.root();
    let name = b"f (deleted)";
    let fd = block_on(conformance::new_file(&disk, &root, name));
    assert_eq!(disk.path_hint(&fd).unwrap(), name);
    let (at, flags) = (
        dir.path().join("f (deleted)"),
        OFlags::PATH | OFlags::CLOEXEC,
    );
    let far = rustix::fs::open(at, flags, Mode::empty()).unwrap();
    let far = LinuxFd::new(
        far,
        true,
        &crate::linux::file_system::FileSystem::remote(4002),
    );
    block_on(disk.link(me, &fd, &root, b"other")).unwrap();
    block_on(disk.unlink(me, &root, name, false)).unwrap();
    assert_eq!(disk.path_hint(&fd), None, "it was opened by this name");
    assert!(!disk.is_path_unknown(&fd));
    // Nobody waits for a remote file system to find that out.
    assert_eq!(disk.path_hint(&far), None);
    assert!(disk.is_path_unknown(&far));
    block_on(disk.unlink(me, &root, b"other", false)).unwrap();
    block_on(conformance::new_file(&disk, &root, name));
    assert_eq!(disk.path_hint(&fd), None, "that is another file");
}

/// The kernel reports no path that is longer than a page.
#[test]
fn a_path_that_is_too_long_to_be_reported_may_exist() {
    let dir = tempfile::tempdir().unwrap();
    let disk = LinuxDisk::open(dir.path()).unwrap();
    let me = &Identity::Service;
    let name = [b'n'; 250];
    let how = OpenHow::PATH_ONLY;
    let mut at = disk.root();
    for _ in 0..18 {
        block_on(disk.make_dir(me, &at, &name, 0o700)).unwrap();
        at = block_on(disk.open_at(me, &at, &name, how)).unwrap();
    }
    let fd = block_on(conformance::new_file(&disk, &at, b"f"));
    assert_eq!(disk.path_hint(&fd), None);
    assert!(disk.is_path_unknown(&fd));
    assert!(!disk.is_path_unknown(&disk.root()));
    let vfs = block_on(PosixVfs::new(disk.clone(), PosixOptions::default())).unwrap();
    let path: Vec<String> = (0..18).map(|_| "n".repeat(250)).collect();
    let path = [path, vec!["f".to_owned()]].concat();
    let (file, _) = block_on(vfs.lookup(me, &path)).unwrap().found.unwrap();
    block_on(vfs.sync_unknown_name(&file)).unwrap();
    block_on(disk.unlink(me, &at, b"f", false)).unwrap();
    block_on(vfs.sync_unknown_name(&file)).unwrap();
    // The temporary folder is too deep for a removal by path.
    assert!(
        std::process::Command::new("rm")
            .arg("-rf")
            .arg(dir.path())
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn a_generation_is_the_same_by_every_way_and_for_life() {
    let me = &Identity::Service;
    for top in ["/tmp", "/dev/shm", "."] {
        let Ok(dir) = tempfile::tempdir_in(top) else {
            continue;
        };
        let disk = LinuxDisk::open(dir.path()).unwrap();
        let root = disk.root();
        let fd = block_on(conformance::new_file(&disk, &root, b"f"));
        let stat = block_on(disk.stat(&fd)).unwrap();
        let kind = calls::stat_fs(&fd).unwrap().kind;
        let kept = [0xEF53, 0x5846_5342, BTRFS, 0x0102_1994].contains(&kind);
        assert_eq!(
            stat.key.generation != 0,
            kept && stat.born.is_some(),
            "{kind:x}"
        );
        let same = |what: &str, other: Stat| assert_eq!(other.key, stat.key, "{top}: {what}");
        // This holds even if the file system is seen for the first time in this way.
        super_block::forget(stat.key.fs);
        same("name", block_on(disk.stat_at(&root, b"f")).unwrap());
        super_block::forget(stat.key.fs);
        let cached = calls::stat_cached(&root, b"f").unwrap();
        same("cached", cached);
        let path_only = OpenHow::PATH_ONLY;
        let path = block_on(disk.open_at(me, &root, b"f", path_only)).unwrap();
        super_block::forget(stat.key.fs);
        same("path", block_on(disk.stat(&path)).unwrap());

        block_on(disk.write(&fd, 10, Bytes::from_static(b"x"), false)).unwrap();
        block_on(disk.truncate(&fd, 3)).unwrap();
        block_on(disk.set_mode(me, &fd, 0o600)).unwrap();
        let old = Timestamp { secs: 1, nanos: 1 };
        block_on(disk.set_times(me, &fd, Some(old), Some(old))).unwrap();
        block_on(disk.rename(me, (&root, b"f"), (&root, b"g"), true)).unwrap();
        block_on(disk.fsync(&fd)).unwrap();
        same("changed", block_on(disk.stat_at(&root, b"g")).unwrap());
        assert_eq!(disk.path_hint(&fd).unwrap(), b"g");
        assert_eq!(disk.path_hint(&root).unwrap(), b"");

        // A new file, perhaps of the same number, is another one.
        block_on(disk.unlink(me, &root, b"g", false)).unwrap();
        assert_eq!(disk.path_hint(&fd), None);
        drop((fd, path));
        for i in 0..50u8 {
            let fd = block_on(conformance::new_file(
                &disk,
                &root,
                format!("n{i}").as_bytes(),
            ));
            assert_ne!(block_on(disk.stat(&fd)).unwrap().key, stat.key);
            block_on(disk.unlink(me, &root, format!("n{i}").as_bytes(), false)).unwrap();
        }
    }
}

#[test]
fn paths_follow_a_root_that_moves() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    std::fs::create_dir(&old).unwrap();
    let disk = LinuxDisk::open(&old).unwrap();
    let fd = block_on(conformance::new_file(&disk, &disk.root(), b"f"));
    assert_eq!(disk.path_hint(&fd).unwrap(), b"f");
    std::fs::rename(&old, &new).unwrap();
    assert_eq!(disk.path_hint(&fd).unwrap(), b"f");
    assert_eq!(disk.path_hint(&disk.root()).unwrap(), b"");
    std::fs::rename(new.join("f"), dir.path().join("f")).unwrap();
    assert_eq!(disk.path_hint(&fd), None, "it is outside");
    std::fs::rename(dir.path().join("f"), dir.path().join("newer")).unwrap();
    assert_eq!(
        disk.path_hint(&fd),
        None,
        "beside the root, with a name like its"
    );
}

#[test]
fn birth_times_that_may_change_are_no_generation() {
    let born = Timestamp {
        secs: 1_600_000_000,
        nanos: 7,
    };
    // Tests of file systems that are there run beside this one; none of these may share the slot.
    let used = [std::env::temp_dir(), "/dev/shm".into(), ".".into()]
        .map(|path| std::fs::metadata(path).map_or(0, |meta| MetadataExt::dev(&meta) % 64));
    let mut devices = u64::MAX / 2 - 70..;
    let ours = devices.find(|dev| !used.contains(&(dev % 64))).unwrap();
    // Another device of the same slot.
    let theirs = ours - 64;
    let generation = |dev, kind| super_block::generation(dev, born, kind);
    // The kind is overlayfs.
    assert_eq!(generation(ours, 0x794C_7630), 0);
    assert_eq!(generation(ours, 0xEF53), 1_600_000_000_000_000_007);
    assert_eq!(generation(theirs, 0x6573_5546), 0);
    assert_eq!(generation(ours, 0xEF53), 1_600_000_000_000_000_007);
    let before = Timestamp {
        secs: -1,
        nanos: 999_999_999,
    };
    // The device number is no block device's, so there is no journal.
    let atomic = super_block::renames_are_atomic;
    assert!(!atomic(ours) && !atomic(theirs), "{:?}", (ours, theirs));
    super_block::forget(ours);
    assert_eq!(generation(ours, 0x5846_5342), 1_600_000_000_000_000_007);
    assert!(atomic(ours), "XFS");
    super_block::forget(ours);
    assert!(!atomic(ours), "not known");
    super_block::forget(ours);
    let early = super_block::generation(ours, before, 0xEF53);
    assert_eq!(early, u64::MAX, "no panic before 1970");
}

#[test]
fn a_file_system_has_a_name() {
    let dir = tempfile::tempdir().unwrap();
    let one = SuperBlock::open(dir.path()).unwrap();
    let two = SuperBlock::open(dir.path()).unwrap();
    assert_eq!((one.dev(), one.identity()), (two.dev(), two.identity()));
    block_on(one.write_back()).unwrap();
}

/// A new btrfs on a loop device, mounted on `at`; unmounted when dropped.
struct Btrfs(std::path::PathBuf);

impl Btrfs {
    fn mount(top: &std::path::Path) -> Option<Self> {
        let run = |program: &str, args: &[&str]| {
            let out = std::process::Command::new(program).args(args).output();
            out.is_ok_and(|out| out.status.success())
        };
        let (image, at) = (top.join("image"), top.join("at"));
        let image = std::fs::File::create(&image)
            .and_then(|file| file.set_len(256 << 20))
            .map(|()| image.to_str().unwrap().to_owned())
            .ok()?;
        std::fs::create_dir(&at).ok()?;
        (run("mkfs.btrfs", &["-q", &image]) && run("mount", &["-o", "loop", &image, at.to_str()?]))
            .then_some(Self(at))
    }
}

impl Drop for Btrfs {
    fn drop(&mut self) {
        // The pool may close its descriptors a little later.
        let mut umount = std::process::Command::new("umount");
        let _ = umount.arg("-l").arg(&self.0).status();
    }
}

#[test]
fn names_of_btrfs_are_noted_and_committed() {
    let top = tempfile::tempdir().unwrap();
    let Some(mounted) = Btrfs::mount(top.path()) else {
        crate::testing::missing("root, or btrfs on a loop device");
        return;
    };
    let me = &Identity::Service;
    let disk = LinuxDisk::open(&mounted.0).unwrap();
    assert!(disk.root().class().names_come_back);
    block_on(disk.make_dir(me, &disk.root(), b"d", 0o755)).unwrap();
    let how = |path_only| OpenHow {
        path_only,
        read: true,
        directory: true,
        ..OpenHow::default()
    };
    // The back end holds folders that nobody reads in this way.
    let dir = block_on(disk.open_at(me, &disk.root(), b"d", how(true))).unwrap();
    let open = block_on(disk.open_at(me, &disk.root(), b"d", how(false))).unwrap();
    let new = block_on(conformance::new_file(&disk, &dir, b"new"));
    let old = block_on(conformance::new_file(&disk, &dir, b"old"));
    let key = |fd| calls::stat(fd).unwrap().key;
    block_on(disk.sync_dir(&open)).unwrap();
    block_on(disk.fsync(&old)).unwrap();
    assert!(removed::was_logged(key(&old)));
    assert!(!removed::was_left(key(&dir)));
    block_on(disk.rename(me, (&dir, b"new"), (&dir, b"old"), true)).unwrap();
    assert!(!removed::was_logged(key(&old)), "committed before");
    assert!(removed::was_left(key(&dir)));
    block_on(disk.fsync(&new)).unwrap();
    block_on(disk.sync_dir(&open)).unwrap();
    assert!(!removed::was_left(key(&dir)), "committed");
    block_on(disk.unlink(me, &dir, b"old", false)).unwrap();
    assert!(removed::was_left(key(&dir)));
    // Nothing of a commit begins where its descriptor cannot be opened, here because this is no directory.
    removed::left(&new);
    assert_eq!(block_on(disk.sync_dir(&new)), Err(Errno(libc::EAGAIN)));
    drop((dir, open, new, old, disk));
}

#[test]
fn names_of_an_overlay_over_btrfs_are_noted_and_committed() {
    let top = tempfile::tempdir().unwrap();
    let Some(mounted) = Btrfs::mount(top.path()) else {
        crate::testing::missing("root, or btrfs on a loop device");
        return;
    };
    let Some(overlay) = xfs_log::Overlay::new(&mounted.0) else {
        crate::testing::missing("overlayfs on btrfs");
        return;
    };
    let disk = LinuxDisk::open(&overlay.0).unwrap();
    let root = disk.root();
    assert!(root.class().names_come_back);
    drop(block_on(conformance::new_file(&disk, &root, b"f")));
    block_on(disk.unlink(&Identity::Service, &root, b"f", false)).unwrap();
    let key = calls::stat(&root).unwrap().key;
    assert!(removed::was_left(key));
    block_on(disk.sync_dir(&root)).unwrap();
    assert!(!removed::was_left(key), "committed");
}

/// Overlayfs copies a file up when it is opened for writing, which takes long for a large one.
#[test]
fn a_file_on_overlayfs_is_opened_for_writing_by_the_pool() {
    use std::{
        pin::pin,
        task::{Context, Waker},
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    std::fs::write(&path, b"").unwrap();
    let disk = LinuxDisk::open(dir.path()).unwrap();
    let class = crate::linux::class::Class {
        kind: crate::disk::OVERLAY,
        ..Default::default()
    };
    let on = crate::linux::file_system::FileSystem::with(4003, class);
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let fd = rustix::fs::open(&path, flags, Mode::empty()).unwrap();
    let fd = LinuxFd::new(fd, true, &on);
    // Every thread that the file system may have waits.
    let release = pool::tests::hold_up(fd.place(pool::ThreadGroup::Io), pool::IO_THREADS_MAX);
    let me = &Identity::Service;
    let mut context = Context::from_waker(Waker::noop());
    let mut reads = pin!(disk.reopen(me, &fd, IoAccess::READ));
    assert!(reads.as_mut().poll(&mut context).is_ready());
    let mut writes = pin!(disk.reopen(me, &fd, IoAccess::BOTH));
    assert!(writes.as_mut().poll(&mut context).is_pending());
    drop(release);
    assert!(block_on(writes).is_ok());
}
