//! Makes an `fsync` of XFS cover extended attributes.
//!
//! `fsync` of XFS writes the log up to the last transaction that logged the inode. A list of attributes that does not
//! fit into the inode is changed by several transactions, of which only the first logs the inode (Linux 6.18). If
//! another thread has the log written between two of them, `fsync` returns although the last one is only in memory:
//! after a power cut the attribute that was set is not there. `tests/blockcut` found this, and `tests/xfs_log.rs` looks
//! for such attributes in the log.
//!
//! So the inode is logged once more after every such change. Attributes that another program on the host sets are not
//! helped by this.

use std::sync::{PoisonError, RwLock};

use super::{calls, fd::LinuxFd, file_system::TIMES_LOCKS, super_block};
use crate::{
    Identity, Timestamp, credentials,
    disk::{DiskResult, Errno, OVERLAY},
};

/// `f_type` of file systems where that is done: XFS, and overlayfs, which may lie on it and passes both calls on.
const LOGGED: [u64; 2] = [super_block::XFS, OVERLAY];

/// The lock of the times of an inode. Setting them may wait for a long write to the file, so not all files share one.
fn lock_of(fd: &LinuxFd, ino: u64) -> &RwLock<()> {
    let all = &fd.file_system().times;
    let place = usize::try_from(ino).unwrap_or(0) % TIMES_LOCKS;
    all.get(place).unwrap_or(&all[0])
}

/// Logs the inode in a transaction of its own, if it may be on XFS, by setting its access time to what it is. Besides
/// that this sets the change time, as the change before has done. Call it at the end of a job of the pool that changed
/// extended attributes, or the mode, which is part of an access control list: the job may continue as the service.
pub(super) fn log_inode(fd: &LinuxFd) -> DiskResult<()> {
    if !LOGGED.contains(&fd.class().kind) {
        return Ok(());
    }
    let times = lock_of(fd, calls::stat(fd)?.key.ino);
    let _beside = times.read().unwrap_or_else(PoisonError::into_inner);
    let accessed = calls::stat(fd)?.accessed;
    let set = || calls::set_times(fd, Some(accessed), None);
    // A user who may set attributes need not be the owner, who alone may set times, but the service may. If the service
    // may not either, `chown` to nobody else is allowed. It is the last choice because it removes set-user-ID bits, as
    // a write to the file does.
    set()
        .or_else(|_| credentials::assume(&Identity::Service).and_then(|()| set()))
        .or_else(|_| calls::set_owner(fd, None, None))
        // The attribute is set, but no sync would be certain to cover it: that is no success, and no refusal either.
        .map_err(|_| Errno(libc::EIO))
}

/// Sets times as asked. [`log_inode`] must not set the access time back to what it was before.
pub(super) fn set_times(
    fd: &LinuxFd,
    accessed: Option<Timestamp>,
    written: Option<Timestamp>,
) -> DiskResult<()> {
    if !LOGGED.contains(&fd.class().kind) {
        return calls::set_times(fd, accessed, written);
    }
    let times = lock_of(fd, calls::stat(fd)?.key.ino);
    let _alone = times.write().unwrap_or_else(PoisonError::into_inner);
    calls::set_times(fd, accessed, written)
}
