//! The operations that a file system permits without waiting, and its known weaknesses. They follow from its kind
//! (`f_type`), and from trying `RWF_NOWAIT` once when a disk is opened.

use std::os::fd::AsFd;

use rustix::fs::{Mode, OFlags};

use super::{LinuxFd, calls, super_block};
use crate::{
    disk::{BTRFS, DiskResult, Errno},
    posix_sys as raw,
};

/// `f_type` of file systems in memory, whose reads and writes never wait for a device.
const MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58F6]; // tmpfs, ramfs
/// `f_type` of FUSE.
const FUSE: u64 = 0x6573_5546;
/// `f_type` of file systems on which even calls that need no disk may wait: FUSE, NFS, CIFS, SMB2, Ceph, 9p, AFS.
const REMOTE: [u64; 7] = [
    FUSE,
    0x6969,
    0xFF53_4D42,
    0xFE53_4D42,
    0x00C3_6400,
    0x0102_1997,
    0x5346_414F,
];

/// The operations that a file system permits without waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Class {
    /// In memory: plain reads and writes are inline.
    pub(crate) memory: bool,
    /// Behind a network or another process: nothing is inline.
    pub(crate) remote: bool,
    /// `RWF_NOWAIT` works for writes (as on XFS and btrfs).
    pub(crate) write_nowait: bool,
    /// The ring's reads and writes are not reliable: after a short one on FUSE with direct I/O the ring continues by
    /// itself, and (Linux 6.18) at the offset where it began.
    pub(crate) no_ring_io: bool,
    /// `fsync` alone does not keep removed names from coming back (btrfs; see `removed.rs`).
    pub(crate) names_come_back: bool,
    /// Files can share blocks (`FICLONERANGE`).
    pub(crate) clones: bool,
}

impl Class {
    /// The class of the file system of a directory.
    pub(super) fn of(root: &LinuxFd) -> DiskResult<Self> {
        let kind = calls::stat_fs(root)?.kind;
        Ok(Self {
            memory: MEMORY.contains(&kind),
            remote: REMOTE.contains(&kind),
            write_nowait: !REMOTE.contains(&kind) && writes_nowait(root),
            no_ring_io: kind == FUSE,
            names_come_back: kind == BTRFS,
            clones: super_block::clones(root, kind),
        })
    }
}

/// Tries `RWF_NOWAIT` on an unnamed file; EAGAIN means that it is supported but would wait.
fn writes_nowait(root: &LinuxFd) -> bool {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let Ok(fd) = rustix::fs::openat(root, c".", flags, Mode::RUSR | Mode::WUSR) else {
        return false;
    };
    let page = [0; 4096];
    let written = raw::write_at(fd.as_fd(), 0, &page, false, false)
        .and_then(|_| raw::write_at(fd.as_fd(), 0, &page, false, true));
    matches!(written, Ok(_) | Err(Errno(libc::EAGAIN)))
}
