//! The syncs of a descriptor.
//!
//! Some may miss changes that were made before them (Linux 6.18):
//! - With ext4's feature `inline_data` the inode of a small file holds its data. `fdatasync`, and so a write with
//!   `RWF_DSYNC`, waits for the last transaction that changed the size or the blocks, and to overwrite such data
//!   changes neither. So such files are synced by `fsync`, and on overlayfs all that are no longer than an inode. If
//!   `ftruncate` has made such a file larger, or after any `fallocate`, even `fsync` stores no later overwrite of its
//!   data. So a write behind the new end makes it larger, and the new size cuts that off; `fallocate` is not called.
//! - FUSE with direct I/O does not sync after a write with `RWF_DSYNC`: it passes the flag to its server, which may
//!   ignore it. So on file systems behind another process or a network a plain write and `fdatasync` are made instead.

use super::{calls, fd::LinuxFd, removed, super_block};
use crate::disk::{Allocate, DiskResult, Errno, OVERLAY};

/// The length of the longest inode of ext4, in bytes. The data in it are shorter.
const INODE_MAX: u64 = 4096;
/// The flag of an inode of ext4 that holds its data (`EXT4_INLINE_DATA_FL`).
const INLINE_DATA: u32 = 0x1000_0000;

pub(super) fn all(fd: &LinuxFd) -> DiskResult<()> {
    let _syncing = removed::Syncing::begin(fd);
    calls::call(|| rustix::fs::fsync(fd))
}

pub(super) fn data(fd: &LinuxFd) -> DiskResult<()> {
    if may_miss_data(fd) {
        return all(fd);
    }
    let _syncing = removed::Syncing::begin(fd);
    calls::call(|| rustix::fs::fdatasync(fd))
}

/// Runs a write and makes it stable. `write` is called with whether it is to be one with `RWF_DSYNC`.
pub(super) fn durable_write(
    fd: &LinuxFd,
    write: impl FnOnce(&LinuxFd, bool) -> DiskResult<usize>,
) -> DiskResult<usize> {
    let _syncing = removed::Syncing::begin(fd);
    let syncs = !fd.class().remote && !may_miss_data(fd);
    let put = write(fd, syncs)?;
    // This write may have been the first to put data into the inode.
    if !syncs || may_miss_data(fd) {
        // It is written by now, so no error may be taken for one that comes before a write.
        data(fd).map_err(|errno| match errno.0 {
            libc::ENOSPC | libc::EDQUOT | libc::EROFS => errno,
            _ => Errno(libc::EIO),
        })?;
    }
    Ok(put)
}

/// Sets the size of a file.
pub(super) fn truncate(fd: &LinuxFd, size: u64) -> DiskResult<()> {
    if may_miss_data(fd) {
        let there = calls::stat(fd)?;
        // The kernel lets a file that became append-only be written, but not be cut off again.
        if !there.fixed && (1..size).contains(&there.size) {
            calls::call(|| rustix::io::pwrite(fd, &[0], size))?;
        }
    }
    calls::truncate(fd, size)
}

/// `fallocate`; EOPNOTSUPP for a file whose data lie in its inode.
pub(super) fn allocate(fd: &LinuxFd, how: Allocate, offset: u64, len: u64) -> DiskResult<()> {
    if may_miss_data(fd) {
        let there = calls::stat(fd)?;
        // On overlayfs a file with blocks has its data there, unless they are those of attributes.
        let lie_in_inode = there.blocks == 0
            || fd.class().kind == super_block::EXT4
            || data_lie_in_inode(fd) == Some(true);
        if there.size > 0 && lie_in_inode {
            return Err(Errno(libc::EOPNOTSUPP));
        }
    }
    calls::allocate(fd, how, offset, len)
}

fn may_miss_data(fd: &LinuxFd) -> bool {
    match fd.class().kind {
        super_block::EXT4 => data_lie_in_inode(fd).unwrap_or(true),
        // It may lie on ext4, whose flags it need not show.
        OVERLAY => calls::stat(fd).map_or(true, |stat| stat.size < INODE_MAX),
        _ => false,
    }
}

/// Whether the flags of a file on ext4 say that its data lie in the inode; `None` if they cannot be read.
fn data_lie_in_inode(fd: &LinuxFd) -> Option<bool> {
    let flags = rustix::fs::ioctl_getflags(fd).ok()?;
    Some(flags.bits() & INLINE_DATA != 0)
}
