//! The syncs of a descriptor.
//!
//! Some may miss changes that were made before them (Linux 6.18):
//! - With ext4's feature `inline_data` the inode of a small file holds its data. `fdatasync`, and so a write with
//!   `RWF_DSYNC`, waits for the last transaction that changed the size or the blocks, and to overwrite such data
//!   changes neither. So files that are no longer than an inode are synced by `fsync`.
//! - Without a journal, `fsync` of ext4 writes the inode only if the VFS has marked it dirty (newer kernels always do).
//!   Attributes in the inode, links and blocks, and the growth of a directory, are changed in the inode's block alone.
//!   So the file system is written back first. `syncfs` may write these blocks after it has flushed the device, and the
//!   `fsync` after it flushes the device once more.
//! - FUSE with direct I/O does not sync after a write with `RWF_DSYNC`: it passes the flag to its server, which may
//!   ignore it. So on file systems behind another process or a network `fdatasync` follows such a write.

use super::{calls, fd::LinuxFd, removed, super_block};
use crate::disk::{DiskResult, Errno};

/// The length of the longest inode of ext4, in bytes. The data in it are shorter.
const INODE_MAX: u64 = 4096;

/// `f_type` of file systems whose inodes may hold data that `fdatasync` misses: ext4, and overlayfs, which may lie on
/// it.
const INLINE: [u64; 2] = [super_block::EXT4, super_block::OVERLAY];

/// `fsync`.
pub(super) fn all(fd: &LinuxFd) -> DiskResult<()> {
    let _syncing = removed::Syncing::begin(fd);
    if fd.class().lacks_journal {
        calls::call(|| rustix::fs::syncfs(fd))?;
    }
    calls::call(|| rustix::fs::fsync(fd))
}

/// `syncfs`.
pub(super) fn file_system(fd: &LinuxFd) -> DiskResult<()> {
    match fd.class().lacks_journal {
        true => all(fd),
        false => calls::call(|| rustix::fs::syncfs(fd)),
    }
}

/// `fdatasync`.
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
    let syncs = !may_miss_data(fd);
    let put = write(fd, syncs)?;
    if fd.class().remote || !syncs {
        // It is written by now, so no error may be taken for one that comes before a write.
        data(fd).map_err(|errno| match errno.0 {
            libc::ENOSPC | libc::EDQUOT => errno,
            _ => Errno(libc::EIO),
        })?;
    }
    Ok(put)
}

fn may_miss_data(fd: &LinuxFd) -> bool {
    let class = fd.class();
    let is_short = || calls::stat(fd).map_or(true, |stat| stat.size < INODE_MAX);
    class.lacks_journal || (INLINE.contains(&class.kind) && is_short())
}
