//! A mounted file system as a whole: its identity across reboots, its reports of failed write-back, whether the birth
//! time of its inodes can serve as their generation, and whether its renames are atomic.
//!
//! A device number is no identity, because loop and anonymous devices get another one after a reboot. The identity is
//! the UUID (queried by ioctl), together with `f_fsid` where that is not made of the device number.
//!
//! The birth time comes with every `statx`, costs nothing and does not change during an inode's life on ext4, XFS,
//! btrfs and tmpfs (tested: `tests.rs`). Elsewhere it may change: a copy-up of overlayfs takes the upper file's, CIFS,
//! NTFS and FUSE allow it to be set, and NFS returns its server's. There the generation is 0.
//!
//! A rename between two directories is one transaction of ext4's journal and of XFS's log, and the commits of btrfs
//! (`removed.rs`) are whole. Every other kind of file system, and ext4 without a journal, may keep only one half of a
//! rename after a power cut.

use std::{
    os::fd::{AsFd, BorrowedFd},
    path::Path,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use rustix::fs::{Mode, OFlags};

use super::{
    calls,
    class::Class,
    fd::LinuxFd,
    file_system::FileSystem,
    pool::{self, ThreadGroup},
};
use crate::{
    Identity, Timestamp,
    disk::{BTRFS, DiskResult},
    posix_sys as raw,
};

/// Its `f_fsid` is made of the device number.
pub(super) use crate::disk::XFS;

/// `f_type` of file systems whose birth times never change: ext4, XFS, btrfs, tmpfs.
const KEEPS_BIRTH: [u64; 4] = [EXT4, XFS, BTRFS, 0x0102_1994];
/// `f_type` of ext4, and of ext2 and ext3, which the same driver serves.
pub(super) const EXT4: u64 = 0xEF53;
/// Slots of the cache below.
const SLOTS: usize = 64;

/// Whether the renames of a file system are atomic, by device number: `(dev + 1) << 1`, with [`ATOMIC`]; 0 is empty. If
/// two numbers share a slot, the file system is asked again.
static KNOWN: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];
const ATOMIC: u64 = 1;

#[expect(
    clippy::indexing_slicing,
    reason = "the remainder is below the array's length"
)]
fn slot(dev: u64) -> &'static AtomicU64 {
    &KNOWN[(dev % SLOTS as u64) as usize]
}

fn tag(dev: u64) -> u64 {
    dev.wrapping_add(1) << 1
}

/// Whether renames on a device number are atomic, if that is known.
fn known(dev: u64) -> Option<bool> {
    let known = slot(dev).load(Relaxed);
    (known & !ATOMIC == tag(dev)).then_some(known & ATOMIC != 0)
}

/// Forgets what is known about a device number, which may belong to another file system now.
pub(crate) fn forget(dev: u64) {
    slot(dev).store(0, Relaxed);
}

/// Whether a power cut leaves every rename on `dev` whole or not made. It is known once an inode of it was queried
/// ([`generation`]); `false` if it is not known.
pub(crate) fn renames_are_atomic(dev: u64) -> bool {
    known(dev) == Some(true)
}

/// The generation of an inode born then on `dev`; `kind` is the file system's `f_type`.
pub(crate) fn generation(dev: u64, born: Timestamp, kind: u64) -> u64 {
    if known(dev).is_none() {
        let atomic = match kind {
            XFS | BTRFS => true,
            EXT4 => has_journal(dev),
            _ => false,
        };
        slot(dev).store(tag(dev) | u64::from(atomic), Relaxed);
    }
    if !KEEPS_BIRTH.contains(&kind) {
        return 0;
    }
    // The number wraps around only after 584 years.
    (born.secs as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(u64::from(born.nanos))
}

/// Whether the ext4 on a block device runs with a journal: the kernel shows the journal's thread below `/sys/fs/ext4`,
/// and a journal on the same device below `/proc/fs/jbd2` by the device's name and the journal's inode number, which is
/// always 8. If neither can be seen, as in a container, the journal counts as missing.
fn has_journal(dev: u64) -> bool {
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let device = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}"));
    let Ok(device) = device else { return false };
    let name = device.file_name().map(|name| name.to_string_lossy());
    name.is_some_and(|name| {
        let thread = std::fs::read_to_string(format!("/sys/fs/ext4/{name}/journal_task"));
        thread.is_ok_and(|thread| thread.trim() != "<none>")
            || Path::new("/proc/fs/jbd2")
                .join(format!("{name}-8"))
                .exists()
    })
}

/// The identity of a file system across reboots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FsIdentity {
    pub kind: u64,
    /// UUID; zero where there is none or the kernel does not report it.
    pub uuid: [u8; 16],
    /// `f_fsid` (on btrfs it distinguishes subvolumes); zero where it is made of the device number.
    pub fsid: u64,
}

impl FsIdentity {
    /// Whether it identifies the file system: FUSE and some network file systems have neither number.
    pub fn is_known(&self) -> bool {
        self.uuid != [0; 16] || self.fsid != 0
    }
}

/// A separate descriptor of a mounted file system.
///
/// It reports failed write-back of *any* inode of that file system since it was opened or last queried, even of inodes
/// that nobody has open any more. It is no barrier: on XFS `syncfs` may return without a flush of the device.
#[derive(Debug, Clone)]
pub struct SuperBlock {
    fd: LinuxFd,
    dev: u64,
    identity: FsIdentity,
}

impl SuperBlock {
    /// The file system that the directory `path` is on.
    ///
    /// # Errors
    /// Errors of `open`, `statx` and `fstatfs`.
    pub fn open(path: &Path) -> DiskResult<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty())?;
        let on = FileSystem::of(&fd)?;
        let fd = LinuxFd::new(fd, false, &on);
        let dev = calls::stat(&fd)?.key.fs;
        let identity = identity(&fd)?;
        Ok(Self { fd, dev, identity })
    }

    /// The present device number, as in [`crate::FileKey::fs`].
    pub fn dev(&self) -> u64 {
        self.dev
    }

    pub fn identity(&self) -> FsIdentity {
        self.identity
    }

    /// Writes back all dirty data of the file system and returns the first error of any write-back since the last call.
    /// It runs on the pool's group for syncs.
    ///
    /// # Errors
    /// EIO, ENOSPC, EDQUOT, ... of the write-back; EAGAIN if it was never begun.
    pub async fn write_back(&self) -> DiskResult<()> {
        let (place, fd) = (self.fd.place(ThreadGroup::Sync), self.fd.clone());
        pool::run(place, Identity::Service, move || {
            Ok(rustix::fs::syncfs(&fd)?)
        })
        .await
    }
}

/// Adds to the class of a file system, of which `fd` is a directory, what only an ioctl reports.
pub(super) fn add_facts(class: &mut Class, fd: impl AsFd) {
    let kind = class.kind;
    // A descriptor opened with `O_PATH` takes no ioctl.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(fd, c".", flags, Mode::empty()).ok();
    let fd = opened.as_ref().map(AsFd::as_fd);
    let reflink = |fd| raw::xfs_geometry(fd).is_ok_and(|xfs| xfs.reflink);
    let uuid = fd.and_then(|fd| uuid(fd, kind)).map(u128::from_le_bytes);
    class.clones = kind == BTRFS || (kind == XFS && fd.is_some_and(reflink));
    class.uuid = uuid.map(|uuid| uuid as u64 ^ (uuid >> 64) as u64);
}

fn identity(fd: &LinuxFd) -> DiskResult<FsIdentity> {
    let fs = calls::stat_fs(fd)?;
    let uuid = uuid(fd.as_fd(), fs.kind);
    Ok(FsIdentity {
        kind: fs.kind,
        uuid: uuid.unwrap_or_default(),
        fsid: if fs.kind == XFS { 0 } else { fs.id },
    })
}

fn uuid(fd: BorrowedFd<'_>, kind: u64) -> Option<[u8; 16]> {
    // Linux 6.9; XFS has always had a call of its own for it.
    raw::fs_uuid(fd)
        .or_else(|_| match kind {
            XFS => raw::xfs_geometry(fd).map(|geometry| geometry.uuid),
            _ => Err(crate::disk::Errno(libc::ENOTTY)),
        })
        .ok()
}
