//! The bytes that an ext4 has on its device after a sync, syncs while it is read-only, and its write-back in `close`.

use std::{
    fs::File,
    io::Write,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use rustix::fs::FlockOperation;

use super::{xfs_log::run, *};
use crate::disk::Allocate;
use crate::linux::pool::{IO_THREADS_MAX, ThreadGroup, tests::hold_up};

/// Enough for a journal.
const SIZE: u64 = 16 << 20;

/// A new ext4 on a loop device; unmounted when dropped.
struct Ext4 {
    image: PathBuf,
    root: PathBuf,
}

impl Ext4 {
    fn new(dir: &Path, features: &str) -> Option<Self> {
        let (image, root) = (dir.join("image"), dir.join("root"));
        File::create_new(&image).unwrap().set_len(SIZE).unwrap();
        std::fs::create_dir(&root).unwrap();
        let (from, at) = (image.to_str()?, root.to_str()?);
        let make = ["-q", "-F", "-b", "1024", "-I", "256", "-O", features, from];
        run("mkfs.ext4", &make)?;
        run("mount", &["-t", "ext4", "-o", "loop", from, at])?;
        Some(Self { image, root })
    }

    /// Whether the device has these bytes.
    fn has(&self, bytes: &[u8]) -> bool {
        let image = std::fs::read(&self.image).unwrap();
        image.windows(bytes.len()).any(|window| window == bytes)
    }
}

impl Drop for Ext4 {
    fn drop(&mut self) {
        run("umount", &["-l", self.root.to_str().unwrap_or_default()]);
    }
}

fn new(dir: &Path, features: &str) -> Option<(Ext4, LinuxDisk, LinuxFd)> {
    let Some(ext4) = Ext4::new(dir, features) else {
        crate::testing::missing("root, mkfs.ext4 or a loop device");
        return None;
    };
    let disk = LinuxDisk::open(&ext4.root).unwrap();
    let file = block_on(conformance::new_file(&disk, &disk.root(), b"f"));
    Some((ext4, disk, file))
}

#[test]
fn a_sync_of_data_covers_data_in_the_inode_that_were_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let Some((ext4, disk, file)) = new(dir.path(), "inline_data") else {
        return;
    };
    let write = |bytes: &'static [u8], durable| {
        let put = block_on(disk.write(&file, 0, Bytes::from_static(bytes), durable));
        assert_eq!(put, Ok(bytes.len()));
    };
    // The size is stable, and the data are the first of the file.
    block_on(disk.truncate(&file, 17)).unwrap();
    block_on(disk.sync_fs(&file)).unwrap();
    write(b"<the-early-value>", true);
    assert!(ext4.has(b"<the-early-value>"));
    write(b"<the-first-value>", true);
    // The overwrite that follows is in another transaction than the size.
    block_on(disk.sync_fs(&file)).unwrap();
    write(b"<the-other-value>", true);
    assert!(ext4.has(b"<the-other-value>"));
    write(b"<the-third-value>", false);
    block_on(disk.fdatasync(&file)).unwrap();
    assert!(ext4.has(b"<the-third-value>"));
}

/// The kernel shows the contents that it has in memory until the file system is mounted anew.
#[test]
fn data_in_the_inode_are_stored_after_the_file_was_made_larger() {
    for (size, larger) in [(10, 5100), (10, 300), (0, 40)] {
        let dir = tempfile::tempdir().unwrap();
        let Some((ext4, disk, file)) = new(dir.path(), "inline_data") else {
            return;
        };
        let write = |bytes: &'static [u8], at| {
            let put = block_on(disk.write(&file, at, Bytes::from_static(bytes), false));
            assert_eq!(put, Ok(bytes.len()));
            block_on(disk.fsync(&file)).unwrap();
        };
        write(&b"ABCDEFGHIJ"[..size], 0);
        for how in [Allocate::Reserve, Allocate::Punch] {
            let allocated = block_on(disk.allocate(&file, how, 0, 8192));
            let refused = Err(Errno(libc::EOPNOTSUPP));
            assert_eq!(allocated, if size > 0 { refused } else { Ok(()) });
        }
        block_on(disk.truncate(&file, larger)).unwrap();
        block_on(disk.fsync(&file)).unwrap();
        write(b"end", 2);
        let (image, root) = (ext4.image.to_str().unwrap(), ext4.root.to_str().unwrap());
        drop((file, disk));
        // The child that another test starts has copies of all descriptors until it executes its program.
        let unmounted = (0..200).any(|_| {
            thread::sleep(Duration::from_millis(10));
            run("umount", &[root]).is_some()
        });
        assert!(unmounted);
        run("mount", &["-t", "ext4", "-o", "loop", image, root]).unwrap();
        let stored = std::fs::read(ext4.root.join("f")).unwrap();
        assert_eq!((stored.len() as u64, &stored[2..5]), (larger, &b"end"[..]));
        assert_eq!(stored.starts_with(b"AB"), size > 0);
    }
}

#[test]
fn a_file_with_data_in_the_inode_keeps_its_length_where_it_may_not_be_truncated() {
    let dir = tempfile::tempdir().unwrap();
    let Some((ext4, disk, file)) = new(dir.path(), "inline_data") else {
        return;
    };
    let (path, data) = (ext4.root.join("f"), Bytes::from_static(b"ABCDEFGHIJ"));
    block_on(disk.write(&file, 0, data, false)).unwrap();
    let chattr = |how: &str| run("chattr", &[how, path.to_str().unwrap()]).unwrap();
    chattr("+a");
    let refused = block_on(disk.truncate(&file, 300));
    chattr("-a");
    assert_eq!(refused, Err(Errno(libc::EPERM)));
    assert_eq!(std::fs::read(&path).unwrap(), b"ABCDEFGHIJ");
}

/// The attributes take a block, so the file does not look like one without blocks of data.
#[test]
fn nothing_is_reserved_below_an_overlay_for_a_file_with_data_in_the_inode() {
    let dir = tempfile::tempdir().unwrap();
    let Some((ext4, ..)) = new(dir.path(), "inline_data") else {
        return;
    };
    let Some(overlay) = xfs_log::Overlay::new(&ext4.root) else {
        return crate::testing::missing("overlayfs on ext4");
    };
    let disk = LinuxDisk::open(&overlay.0).unwrap();
    for (name, bytes) in [(&b"small"[..], 10), (b"large", 3000)] {
        let file = block_on(conformance::new_file(&disk, &disk.root(), name));
        let data = Bytes::from(vec![7; bytes]);
        block_on(disk.write(&file, 0, data, false)).unwrap();
        let (value, how) = ([7; 700], XattrSet::Create);
        block_on(disk.set_xattr(&Identity::Service, &file, "user.x", &value, how)).unwrap();
        block_on(disk.fsync(&file)).unwrap();
        let allocated = block_on(disk.allocate(&file, Allocate::Reserve, 0, 8192));
        let refused = Err(Errno(libc::EOPNOTSUPP));
        assert_eq!(allocated, if bytes == 10 { refused } else { Ok(()) });
    }
}

/// A remount has made everything stable before. After an error the kernel itself fails the sync.
#[test]
fn a_sync_while_the_file_system_is_read_only_fails_only_after_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let Some((ext4, disk, file)) = new(dir.path(), "extent") else {
        return;
    };
    drop(file);
    std::fs::write(ext4.root.join("f"), b"<written-before>").unwrap();
    let how = OpenHow {
        read: true,
        ..OpenHow::default()
    };
    let file = block_on(disk.open_at(&Identity::Service, &disk.root(), b"f", how)).unwrap();
    let remount = |how: &str| run("mount", &["-o", how, ext4.root.to_str().unwrap()]).unwrap();
    remount("remount,ro");
    assert!(ext4.has(b"<written-before>"));
    assert_eq!(block_on(disk.fsync(&file)), Ok(()));
    assert_eq!(block_on(disk.fdatasync(&file)), Ok(()));
    for how in ["remount,rw,errors=remount-ro", "remount,abort"] {
        remount(how);
    }
    assert!(block_on(disk.fsync(&file)).is_err());
    assert!(block_on(disk.fdatasync(&file)).is_err());
}

/// The kernel writes back, at the next close by anyone, what was written after a truncation.
#[test]
fn a_large_file_that_another_program_truncated_is_closed_by_the_pool() {
    let dir = tempfile::tempdir().unwrap();
    let Some((ext4, _disk, file)) = new(dir.path(), "extent") else {
        return;
    };
    let path = ext4.root.join("f");
    let mut other = File::options().write(true).open(path).unwrap();
    other.write_all(b"old").unwrap();
    other.set_len(0).unwrap();
    other.write_all(&vec![1_u8; 5 << 20]).unwrap();
    // The lock goes with the descriptor.
    rustix::fs::flock(&file, FlockOperation::LockExclusive).unwrap();
    let is_closed = || {
        let lock = rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive);
        lock.is_ok()
    };
    let release = hold_up(file.place(ThreadGroup::Io), IO_THREADS_MAX);
    drop(file);
    assert!(!is_closed());
    drop(release);
    while !is_closed() {
        thread::sleep(Duration::from_millis(1));
    }
}
