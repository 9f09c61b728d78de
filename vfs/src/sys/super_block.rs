//! A mounted file system as a whole: what names it over reboots, what it says of lost
//! write-back, and whether the birth time of its inodes can serve as their generation.
//!
//! A device number is no name: loop and anonymous devices get another one after a reboot. The
//! UUID is (asked by ioctl, with `f_fsid` beside it where that is not made of the device number).
//!
//! The birth time comes with every `statx`, costs nothing and does not change during an inode's
//! life on ext4, XFS, btrfs and tmpfs (tried: `tests.rs`). Elsewhere it may: a copy-up of overlayfs
//! takes the upper file's, CIFS, NTFS and FUSE let it be set, NFS tells what its server says. There
//! the generation is 0.

use std::{
    os::fd::{AsFd, BorrowedFd},
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use rustix::fs::{Mode, OFlags};

use super::{
    calls::{self, SysFd},
    pool::{self, Lane},
};
use crate::{Identity, Timestamp, disk::DiskResult, posix_sys as raw};

/// `f_type` of file systems whose birth times never change: ext4, XFS, btrfs, tmpfs.
const KEEPS_BIRTH: [u64; 4] = [0xEF53, XFS, BTRFS, 0x0102_1994];
/// `f_type` of btrfs.
pub(crate) const BTRFS: u64 = 0x9123_683E;
/// `f_type` of XFS, whose `f_fsid` is made of the device number.
const XFS: u64 = 0x5846_5342;
/// Slots of the cache below.
const SLOTS: usize = 64;

/// By device number, whether birth times are kept there: `(dev + 1) << 1 | kept`; 0 is empty. A
/// number that meets another in its slot is asked for again.
static KEEPS: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];

fn slot(dev: u64) -> &'static AtomicU64 {
    &KEEPS[(dev % SLOTS as u64) as usize]
}

/// Forgets what is known of a device number: it may be another file system's now.
pub(crate) fn forget(dev: u64) {
    slot(dev).store(0, Relaxed);
}

/// The generation of an inode born then on `dev`; `kind` tells the file system's `f_type`.
pub(crate) fn generation(dev: u64, born: Timestamp, kind: impl FnOnce() -> DiskResult<u64>) -> u64 {
    let known = slot(dev).load(Relaxed);
    let tag = dev.wrapping_add(1) << 1;
    let kept = if known & !1 == tag {
        known & 1 != 0
    } else {
        // Not remembered when it cannot be told: asked again next time.
        let Ok(kind) = kind() else { return 0 };
        let kept = KEEPS_BIRTH.contains(&kind);
        slot(dev).store(tag | u64::from(kept), Relaxed);
        kept
    };
    if !kept {
        return 0;
    }
    // Wraps around after 584 years: two such inodes of one number do not meet.
    (born.secs as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(u64::from(born.nanos))
}

/// What names a file system over reboots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FsIdentity {
    /// `f_type`.
    pub kind: u64,
    /// UUID; zero where there is none or the kernel does not tell.
    pub uuid: [u8; 16],
    /// `f_fsid` (on btrfs it tells subvolumes apart); zero where it is made of the device number.
    pub fsid: u64,
}

impl FsIdentity {
    /// Whether it names anything: FUSE and some network file systems have neither number.
    pub fn is_known(&self) -> bool {
        self.uuid != [0; 16] || self.fsid != 0
    }
}

/// A descriptor of a mounted file system, of its own.
///
/// It hears of failed write-back of *any* inode of that file system since it was opened or last
/// asked, also of inodes that nobody has open any more. It is never a barrier: on XFS `syncfs` may
/// return without a flush of the device.
#[derive(Debug, Clone)]
pub struct SuperBlock {
    fd: SysFd,
    dev: u64,
    identity: FsIdentity,
}

impl SuperBlock {
    /// The file system that the directory `path` is on.
    ///
    /// # Errors
    /// Of `open`, `statx` and `fstatfs`.
    pub fn open(path: &Path) -> DiskResult<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(calls::errno)?;
        let fd = SysFd::new(fd, false);
        let dev = calls::stat(&fd)?.key.fs;
        let identity = identity(&fd)?;
        Ok(Self { fd, dev, identity })
    }

    /// Device number now, as in [`crate::FileKey::fs`].
    pub fn dev(&self) -> u64 {
        self.dev
    }

    /// Its name over reboots.
    pub fn identity(&self) -> FsIdentity {
        self.identity
    }

    /// Writes back what is dirty on the whole file system and answers the first error of any
    /// write-back since the last call. Runs on the pool's lane for syncs.
    ///
    /// # Errors
    /// EIO, ENOSPC, EDQUOT, ... of the write-back; EAGAIN if it was never begun.
    pub async fn write_back(&self) -> DiskResult<()> {
        let fd = self.fd.clone();
        pool::run(Lane::Sync.of(self.dev), Identity::Service, move || {
            rustix::fs::syncfs(&fd).map_err(calls::errno)
        })
        .await
    }
}

/// Whether `FICLONERANGE` works between files there: one kind of XFS, and btrfs.
pub(super) fn clones(fd: &SysFd, kind: u64) -> bool {
    match kind {
        XFS => raw::xfs_geometry(fd.as_fd()).is_ok_and(|geometry| geometry.reflink),
        BTRFS => true,
        _ => false,
    }
}

fn identity(fd: &SysFd) -> DiskResult<FsIdentity> {
    let fs = calls::stat_fs(fd)?;
    let uuid = uuid(fd.as_fd(), fs.kind);
    Ok(FsIdentity {
        kind: fs.kind,
        uuid: uuid.unwrap_or_default(),
        fsid: if fs.kind == XFS { 0 } else { fs.id },
    })
}

fn uuid(fd: BorrowedFd<'_>, kind: u64) -> Option<[u8; 16]> {
    // Linux 6.9; XFS has told it by a call of its own for ever.
    raw::fs_uuid(fd)
        .or_else(|_| match kind {
            XFS => raw::xfs_geometry(fd).map(|geometry| geometry.uuid),
            _ => Err(crate::disk::Errno(libc::ENOTTY)),
        })
        .ok()
}
