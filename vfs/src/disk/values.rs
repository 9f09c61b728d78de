//! The values that the operations of a [`Disk`](super::Disk) take and return.

use std::sync::Arc;

use super::DiskResult;
use crate::{FileKey, IoAccess, Timestamp};

/// How [`Disk::open_at`](super::Disk::open_at) opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenHow {
    /// `O_PATH`: no I/O, only identity. The others but `directory` are ignored then.
    pub path_only: bool,
    pub read: bool,
    pub write: bool,
    /// `O_CREAT | O_EXCL` with these permission bits.
    pub create: Option<u32>,
    /// `O_DIRECTORY`: an automounter mounts what belongs there first ([`Stat::automounts`]).
    pub directory: bool,
}

impl OpenHow {
    pub(crate) const PATH_ONLY: Self = Self {
        path_only: true,
        read: false,
        write: false,
        create: None,
        directory: false,
    };

    pub(crate) fn io(self) -> IoAccess {
        IoAccess {
            read: self.read,
            write: self.write,
        }
    }

    pub(crate) fn new_file(mode: u32) -> Self {
        Self {
            read: true,
            write: true,
            create: Some(mode),
            ..Self::default()
        }
    }
}

/// The result of `statx`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stat {
    /// File system, inode, and a generation that distinguishes the inode from an earlier one with its number, even
    /// after reboots, and never changes during its life: the birth time in nanoseconds if the file system keeps that
    /// reliably, otherwise 0. It is the same by every path to the inode.
    pub key: FileKey,
    /// `st_mode`, type bits included.
    pub mode: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Allocated 512-byte blocks.
    pub blocks: u64,
    pub accessed: Timestamp,
    pub written: Timestamp,
    /// Last change.
    pub changed: Timestamp,
    /// Birth time, if the file system keeps it.
    pub born: Option<Timestamp>,
    /// Immutable or append-only (chattr(1)): nobody may remove its name, nor names in it if it is a directory.
    pub fixed: bool,
    /// A directory on which an automounter mounts a file system once it is opened with [`OpenHow::directory`].
    pub automounts: bool,
}

/// One entry of a directory as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawEntry {
    pub name: Box<[u8]>,
    pub ino: u64,
    /// `DT_*` type, `DT_UNKNOWN` (0) possible.
    pub kind: u8,
}

/// The result of `fstatfs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatFs {
    /// Fragment size in bytes; the counts below are in this unit.
    pub block: u64,
    /// Total blocks.
    pub blocks: u64,
    /// Free blocks.
    pub free: u64,
    /// Blocks free for the unprivileged.
    pub available: u64,
    /// Identity of the file system, the same after a restart; the device number where it has none.
    pub id: u64,
    /// Mounted read-only, or read-only after an error.
    pub read_only: bool,
    /// `f_type`.
    pub kind: u64,
    /// The file system can share blocks between files (`FICLONERANGE`).
    pub clones: bool,
}

/// How [`Disk::allocate`](super::Disk::allocate) works (`fallocate`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allocate {
    /// Reserve, keep the size.
    Reserve,
    /// Punch a hole, keep the size.
    Punch,
}

/// How [`Disk::set_xattr`](super::Disk::set_xattr) works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrSet {
    Either,
    /// Fail with EEXIST if there.
    Create,
    /// Fail with ENODATA if absent.
    Replace,
}

/// The result of [`Disk::create_at`](super::Disk::create_at).
#[derive(Debug)]
pub struct Created<F> {
    /// Open for reading and writing.
    pub fd: F,
    /// Its state before it was marked.
    pub stat: DiskResult<Stat>,
    /// Whether its attribute could be stored; not tried if `stat` failed.
    pub marked: DiskResult<()>,
}

/// Name and value of the extended attribute that a new file starts with, made from its first state.
pub type Mark = Box<dyn FnOnce(&Stat) -> (&'static str, Vec<u8>) + Send>;

/// The result of [`Disk::entries_attrs`](super::Disk::entries_attrs) for one name: the inode's state, and the attribute
/// unless it is known.
pub type EntryAttrs = (Stat, Option<DiskResult<Vec<u8>>>);

/// Extended attributes with the lengths of their values.
pub type XattrLengths = Vec<(String, usize)>;

/// A directory's entries, and for the first of them the results of [`Disk::entries_attrs`](super::Disk::entries_attrs).
pub type EntriesLooked = (Vec<RawEntry>, Vec<DiskResult<EntryAttrs>>);

/// The attribute that [`Disk::entries_attrs`](super::Disk::entries_attrs) reads.
#[derive(Clone)]
pub struct Wanted {
    pub attribute: &'static str,
    /// Whether the attribute of an inode in this state is known already, so that it is not read.
    pub known: Arc<dyn Fn(&Stat) -> bool + Send + Sync>,
}
