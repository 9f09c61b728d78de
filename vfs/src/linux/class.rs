//! The operations that a file system permits without waiting, and its known weaknesses. They follow from its kind
//! (`f_type`). A kind that is not known to be local may wait for a server, a lock manager or another process in any
//! call, so nothing is expected of it.

use std::os::fd::AsFd;

use super::{
    calls, super_block,
    xattrs::{XATTR_GUESS, XATTR_MAX},
};
use crate::disk::{BTRFS, DiskResult, OVERLAY};

/// `f_type` of ZFS, which keeps attributes in files with `xattr=dir`, and of ReiserFS, which does always.
const ZFS: u64 = 0x2FC1_2FC1;
const REISERFS: u64 = 0x5265_4973;

/// A kind of file systems: `f_type`, and its names in the kernel's table of mounts.
type System = (u64, &'static [&'static str]);

/// File systems in memory, whose reads and writes never wait for a device.
const MEMORY: [System; 2] = [(0x0102_1994, &["tmpfs"]), (0x8584_58F6, &["ramfs"])];
/// The other file systems on which calls that need no disk do not wait. Overlayfs is one of them, because its layers
/// nearly always are.
const LOCAL: [System; 20] = [
    (super_block::EXT4, &["ext2", "ext3", "ext4"]),
    (super_block::XFS, &["xfs"]),
    (BTRFS, &["btrfs"]),
    (ZFS, &["zfs"]),
    (0xF2F5_2010, &["f2fs"]),
    (0xCA45_1A4E, &["bcachefs"]),
    (OVERLAY, &["overlay"]),
    (0x3153_464A, &["jfs"]),
    (REISERFS, &["reiserfs"]),
    (0x3434, &["nilfs2"]),
    (0x4D44, &["vfat", "msdos"]),
    (0x2011_BAB0, &["exfat"]),
    (0x7366_746E, &["ntfs3"]),
    (0x9660, &["iso9660"]),
    (0x1501_3346, &["udf"]),
    (0x7371_7368, &["squashfs"]),
    (0xE0F5_E1E2, &["erofs"]),
    (0x482B, &["hfsplus"]),
    (0x2405_1905, &["ubifs"]),
    (0x137F, &["minix"]),
];

/// `f_type` of autofs, which does not report its directories as automounts.
pub(super) const AUTOFS: u64 = 0x0187;

/// `f_type` of file systems on which the ring reads without a kernel thread of its own while the disk works
/// (`FMODE_BUF_RASYNC`): ext4, XFS, btrfs.
const READS_APART: [u64; 3] = [super_block::EXT4, super_block::XFS, BTRFS];

/// The largest block of a file system, in bytes, where a page has as many.
const BLOCK: usize = 4096;

/// Whether one of the systems has this `f_type`.
fn has_kind(systems: &[System], kind: u64) -> bool {
    systems.iter().any(|(known, _)| *known == kind)
}

/// Whether calls may wait for more than a device.
fn is_remote(kind: u64) -> bool {
    !has_kind(&MEMORY, kind) && !has_kind(&LOCAL, kind)
}

/// Whether calls on a file system wait for no other host or process, by its name in the kernel's table of mounts. The
/// file system itself is not asked, because that may wait for it.
#[must_use]
pub fn is_local_name(name: &[u8]) -> bool {
    let mut names = MEMORY.iter().chain(&LOCAL).flat_map(|(_, names)| *names);
    names.any(|known| known.as_bytes() == name)
}

/// Whether a file system with so many inodes is btrfs, or an overlayfs whose upper layer may be btrfs. Overlayfs reports
/// the number of its upper layer, and btrfs reports none because it has no tables of inodes.
fn is_btrfs_or_over_it(kind: u64, inodes: u64) -> bool {
    kind == BTRFS || (kind == OVERLAY && inodes == 0)
}

/// The operations that a file system permits without waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Class {
    pub(crate) kind: u64,
    /// In memory: plain reads and writes are inline.
    pub(crate) memory: bool,
    /// Behind a network or another process, or not known: nothing is inline, nor on a ring.
    pub(crate) remote: bool,
    /// A read of the ring that waits for the disk occupies none of the ring's kernel threads.
    pub(crate) reads_apart: bool,
    /// `fsync` alone does not keep removed names from coming back (btrfs, and overlayfs over it; see `removed.rs`).
    pub(crate) names_come_back: bool,
    /// The longest value of an extended attribute, in bytes, that lies beside the names and so is in memory after a
    /// lookup. XFS keeps longer values than this in blocks of their own (with blocks of 2 KiB or more), and ext4 those
    /// that exceed a block. 0 where each attribute may be a file of its own.
    pub(crate) xattrs_beside: usize,
    /// Files can share blocks (`FICLONERANGE`), as on btrfs and on XFS with reflinks.
    pub(crate) clones: bool,
    /// The halves of the UUID, combined by XOR, if the kernel reports one.
    pub(crate) uuid: Option<u64>,
}

impl Class {
    /// The class of the file system of a descriptor. This may wait for it.
    pub(super) fn of(fd: impl AsFd) -> DiskResult<Self> {
        let fs = calls::call(|| rustix::fs::fstatfs(&fd))?;
        let kind = fs.f_type as u64;
        let remote = is_remote(kind);
        let mut class = Self {
            kind,
            memory: has_kind(&MEMORY, kind),
            remote,
            reads_apart: READS_APART.contains(&kind),
            names_come_back: is_btrfs_or_over_it(kind, fs.f_files),
            xattrs_beside: match kind {
                super_block::XFS => XATTR_GUESS,
                super_block::EXT4 => BLOCK,
                ZFS | REISERFS => 0,
                _ => XATTR_MAX,
            },
            clones: false,
            uuid: None,
        };
        if !remote {
            super_block::add_facts(&mut class, fd);
        }
        Ok(class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlay_over_btrfs_is_found_by_its_missing_inodes() {
        let found = [
            (BTRFS, 0),
            (OVERLAY, 0),
            (OVERLAY, 65_536),
            (super_block::EXT4, 0),
        ]
        .map(|(kind, inodes)| is_btrfs_or_over_it(kind, inodes));
        assert_eq!(found, [true, true, false, false]);
    }

    #[test]
    fn what_is_not_known_to_be_local_may_wait_for_others() {
        // FUSE, NFS, SMB, Ceph, 9p, AFS; OCFS2, GFS2, Lustre, GPFS, OrangeFS, VirtualBox, ecryptfs; one nobody knows.
        let others = [
            0x6573_5546,
            0x6969,
            0xFE53_4D42,
            0x00C3_6400,
            0x0102_1997,
            0x5346_414F,
            0x7461_636F,
            0x0116_1970,
            0x0BD0_0BD0,
            0x4750_4653,
            0x2003_0528,
            0x786F_4256,
            0xF15F,
            0x1234_5678,
        ];
        assert!(others.into_iter().all(is_remote));
        let local = [super_block::EXT4, super_block::XFS, BTRFS, 0x0102_1994];
        assert!(!local.into_iter().any(is_remote));
        let local = ["ext3", "tmpfs"].map(str::as_bytes);
        assert!(local.into_iter().all(is_local_name));
        let others = ["fuse", "fuseblk", "nfs4", "autofs", ""].map(str::as_bytes);
        assert!(!others.into_iter().any(is_local_name));
    }
}
