//! The arguments and results of the methods of [`Vfs`](crate::Vfs).

use crate::{Attr, FileKey, Timestamp, VfsError};

/// The most components of a path below the root of a share. Each costs a query, and a path is walked without giving
/// other tasks a turn.
pub const PATH_DEPTH_MAX: usize = 256;

pub type VfsResult<T> = Result<T, VfsError>;

/// A held inode or stream.
pub trait Node: Clone + Send + Sync + 'static {
    /// The inode; for a stream, the inode that carries it.
    fn key(&self) -> FileKey;
    /// A directory (never for a stream).
    fn is_directory(&self) -> bool;
    /// The stream's stored name, `None` for the unnamed data stream.
    fn stream(&self) -> Option<&str>;
    /// Whether nobody can execute the file while this node is held (ETXTBSY), because it is open for writing.
    fn forbids_execution(&self) -> bool {
        false
    }
}

/// The result of a path lookup.
#[derive(Debug, Clone)]
pub struct Lookup<N> {
    /// The directory that holds, or would hold, the last component. `None` for the root.
    pub parent: Option<N>,
    /// The directory's state, if the lookup had to query it.
    pub parent_seen: Option<Seen>,
    /// The last component: as stored if found; otherwise as requested, or the name that recently had this short form
    /// ([`Paths::short_name`](crate::Paths::short_name)). Empty for the root.
    pub name: String,
    /// Every component as stored (those found), in order, the last one as in `name`.
    pub path: Vec<String>,
    /// The inode, if the last component exists.
    pub found: Option<(N, Attr)>,
}

/// An inode's owner and permission bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permissions {
    pub uid: u32,
    pub gid: u32,
    /// `st_mode`, type bits included.
    pub mode: u32,
}

/// Permission bits of new objects if the request gives none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewModes {
    /// Permission bits of a new file.
    pub file: u32,
    /// Permission bits of a new directory.
    pub directory: u32,
}

impl From<&Attr> for Permissions {
    fn from(attr: &Attr) -> Self {
        Self {
            uid: attr.uid,
            gid: attr.gid,
            mode: attr.mode,
        }
    }
}

/// The attributes of an inode at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    pub permissions: Permissions,
    pub written: Timestamp,
    /// Change time.
    pub changed: Timestamp,
}

/// The kinds of I/O for which an open is made; the kernel checks them against the identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IoAccess {
    /// Read data or list.
    pub read: bool,
    /// Write data or add entries.
    pub write: bool,
}

impl IoAccess {
    pub const READ: Self = Self {
        read: true,
        write: false,
    };
    pub const WRITE: Self = Self {
        read: false,
        write: true,
    };
    pub const BOTH: Self = Self {
        read: true,
        write: true,
    };
}

/// The initial state of a new file or directory. All of it is set before the name becomes visible to other clients
/// of this server, or the creation fails and leaves nothing behind.
#[derive(Clone, Default)]
pub struct NewNode<'a> {
    /// Permission bits before the share's mask; `None`: the share's default.
    pub mode: Option<u32>,
    pub dos_attributes: u32,
    pub security: Option<NewSecurity<'a>>,
    pub eas: Vec<(String, Vec<u8>)>,
    /// Bytes to reserve.
    pub allocation: u64,
    /// The directory's state, if the caller has just seen it and has not waited since.
    pub above: Option<&'a Seen>,
}

/// The security descriptor of a new file or directory (self-relative bytes).
#[derive(Clone)]
pub enum NewSecurity<'a> {
    /// This descriptor. On a file system that cannot store it, the creation fails.
    Given(Vec<u8>),
    /// A descriptor made from the permissions that the new inode gets. On a file system that stores no descriptors it
    /// has only those permissions.
    Of(&'a (dyn Fn(Permissions) -> Vec<u8> + Sync)),
}

/// The way in which a stream is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamOpen {
    /// It must exist.
    Existing,
    /// It must not exist and is created empty.
    New,
    /// It is created empty if it does not exist.
    Either,
}

/// The name that a removal took away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovedName {
    Own,
    /// The name of a symbolic link that led to the object.
    SymbolicLink,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteMode {
    /// Data, and the metadata needed to read it back, are on stable storage before the call
    /// returns (`RWF_DSYNC`). Names of parents are not covered.
    pub durable: bool,
}

/// The state that [`Volume::sync`](crate::Volume::sync) makes stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncScope {
    /// Data and size only (`fdatasync`). Times, attributes, names may be lost.
    Data,
    /// Data and all metadata of the inode (`fsync`). For a directory: its entries.
    All,
}

/// One name of a directory listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirName {
    /// The name as clients see it.
    pub name: String,
    /// The name's bytes on disk if they differ, as for few names.
    on_disk: Option<Box<[u8]>>,
}

impl DirName {
    #[must_use]
    pub fn same(name: String) -> Self {
        Self {
            name,
            on_disk: None,
        }
    }

    /// A name, and its bytes on disk.
    #[must_use]
    pub fn new(name: String, on_disk: Box<[u8]>) -> Self {
        let on_disk = Some(on_disk).filter(|on_disk| **on_disk != *name.as_bytes());
        Self { name, on_disk }
    }

    /// Bytes of memory that it holds, including the allocator's overhead.
    #[must_use]
    pub fn memory(&self) -> usize {
        const ALLOCATION: usize = 16;
        let on_disk = self.on_disk.as_ref();
        let on_disk = on_disk.map_or(0, |on_disk| on_disk.len() + ALLOCATION);
        size_of::<Self>() + self.name.capacity() + ALLOCATION + on_disk
    }

    /// The name's bytes on disk, so that [`attrs_at`](crate::Directories::attrs_at) need not search.
    #[must_use]
    pub fn on_disk(&self) -> &[u8] {
        self.on_disk.as_deref().unwrap_or(self.name.as_bytes())
    }
}

/// The names of a directory, and attributes of the first of them as
/// [`attrs_at`](crate::Directories::attrs_at) returns them.
pub type Listed = (Vec<DirName>, Vec<VfsResult<Attr>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    pub offset: u64,
    pub len: u64,
}

/// The call that reported a failed sync, which decides what may be lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailedBy {
    /// A write, which may also have failed by itself. Then nothing is lost.
    Write,
    /// A sync of the inode.
    Sync,
    /// A sync of the inode's whole file system, of which anything dirty may be lost.
    FileSystemSync,
}

/// Called with a failed sync: its inode, the error, and the call that reported it.
pub type FailedSync<N> = Box<dyn Fn(&N, VfsError, FailedBy) + Send + Sync>;

/// The size of an inode's extended attributes as NTFS counts it ([MS-FSCC] 2.4.13): a header of four bytes, then each
/// attribute with five bytes besides its name and value; 0 if there are none. `lengths` has the length of each name and
/// value.
#[must_use]
pub fn ea_size(lengths: impl IntoIterator<Item = (usize, usize)>) -> u32 {
    let each = lengths.into_iter().map(|(name, value)| 5 + name + value);
    let bytes: usize = each.sum();
    match bytes {
        0 => 0,
        bytes => u32::try_from(4 + bytes).unwrap_or(u32::MAX),
    }
}
