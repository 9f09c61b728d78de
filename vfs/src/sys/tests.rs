//! The disk of plain system calls, on a real file system.

use super::*;
use crate::{conformance, testing::block_on};

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn conforms() {
    let dir = tempfile::tempdir().unwrap();
    block_on(conformance::all(&SysDisk::open(dir.path()).unwrap()));
}

#[test]
fn conforms_in_memory() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let disk = SysDisk::open(dir.path()).unwrap();
    assert!(disk.class().memory);
    // tmpfs has user attributes only since Linux 6.6.
    let fd = block_on(conformance::new_file(&disk, &disk.root(), b"probe"));
    let set = disk.set_xattr(&Identity::Service, &fd, "user.x", b"", XattrSet::Either);
    if block_on(set).is_ok() {
        block_on(conformance::all(&disk));
    }
}

#[test]
fn identities() {
    if !is_root() {
        eprintln!("SKIPPED: needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let disk = SysDisk::open(dir.path()).unwrap();
    // Others must be able to reach the root of the disk.
    block_on(disk.set_mode(&Identity::Service, &disk.root(), 0o755)).unwrap();
    block_on(conformance::identities(&disk));
    // "Change nothing" of setfsuid must not be a way to keep root's rights.
    let nobody = conformance::stranger(u32::MAX);
    let made = block_on(disk.make_dir(&nobody, &disk.root(), b"never", 0o755));
    assert_eq!(made, Err(Errno(libc::EPERM)));
}

#[test]
fn symbolic_links_are_never_followed() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/etc/passwd", dir.path().join("out")).unwrap();
    let disk = SysDisk::open(dir.path()).unwrap();
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
    let disk = SysDisk::open(dir.path()).unwrap();
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
fn generations_match_the_ioctl() {
    let dir = tempfile::tempdir().unwrap();
    let disk = SysDisk::open(dir.path()).unwrap();
    let fd = block_on(conformance::new_file(&disk, &disk.root(), b"f"));
    // ext4, XFS, btrfs.
    if [0xEF53, 0x5846_5342, 0x9123_683E].contains(&calls::stat_fs(&fd).unwrap().kind) {
        let out = std::process::Command::new("lsattr")
            .arg("-v")
            .arg(dir.path().join("f"))
            .output();
        if let Ok(out) = out {
            let text = String::from_utf8(out.stdout).unwrap();
            let number = text.split_whitespace().next().unwrap();
            assert_eq!(number.parse::<u64>().unwrap(), calls::generation(&fd));
        }
    }
}
