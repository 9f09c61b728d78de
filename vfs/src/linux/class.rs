//! The operations that a file system permits without waiting, and its known weaknesses. They follow from its kind
//! (`f_type`).

use std::os::fd::AsFd;

use super::{
    calls, super_block,
    xattrs::{XATTR_GUESS, XATTR_MAX},
};
use crate::disk::{BTRFS, DiskResult};

/// `f_type` of file systems in memory, whose reads and writes never wait for a device.
const MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58F6]; // tmpfs, ramfs
/// `f_type` of file systems on which even calls that need no disk may wait: FUSE, NFS, CIFS, SMB2, Ceph, 9p, AFS.
const REMOTE: [u64; 7] = [
    0x6573_5546,
    0x6969,
    0xFF53_4D42,
    0xFE53_4D42,
    0x00C3_6400,
    0x0102_1997,
    0x5346_414F,
];

/// `f_type` of file systems on which the ring reads without a kernel thread of its own while the disk works
/// (`FMODE_BUF_RASYNC`): ext4, XFS, btrfs.
const READS_APART: [u64; 3] = [super_block::EXT4, super_block::XFS, BTRFS];

/// The largest block of a file system, in bytes, where a page has as many.
const BLOCK: usize = 4096;

/// The operations that a file system permits without waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Class {
    /// `f_type`.
    pub(crate) kind: u64,
    /// In memory: plain reads and writes are inline.
    pub(crate) memory: bool,
    /// Behind a network or another process: nothing is inline, nor on a ring.
    pub(crate) remote: bool,
    /// A read of the ring that waits for the disk occupies none of the ring's kernel threads.
    pub(crate) reads_apart: bool,
    /// `fsync` alone does not keep removed names from coming back (btrfs; see `removed.rs`).
    pub(crate) names_come_back: bool,
    /// The longest value of an extended attribute, in bytes, that lies beside the names and so is in memory after a
    /// lookup. XFS keeps longer values than this in blocks of their own (with blocks of 2 KiB or more), and ext4 those
    /// that exceed a block.
    pub(crate) xattrs_beside: usize,
    /// Files can share blocks (`FICLONERANGE`).
    pub(crate) clones: bool,
    /// The halves of the UUID, combined by XOR, if the kernel reports one.
    pub(crate) uuid: Option<u64>,
}

impl Class {
    /// The class of the file system of a descriptor. This may wait for it.
    pub(super) fn of(fd: impl AsFd) -> DiskResult<Self> {
        let kind = calls::kind(&fd)?;
        let remote = REMOTE.contains(&kind);
        let facts = match remote {
            true => super_block::Facts::default(),
            false => super_block::facts(fd, kind),
        };
        Ok(Self {
            kind,
            memory: MEMORY.contains(&kind),
            remote,
            reads_apart: READS_APART.contains(&kind),
            names_come_back: kind == BTRFS,
            xattrs_beside: match kind {
                super_block::XFS => XATTR_GUESS,
                super_block::EXT4 => BLOCK,
                _ => XATTR_MAX,
            },
            clones: facts.clones,
            uuid: facts.uuid,
        })
    }
}
