//! The contract between the protocol and a file system.
//!
//! One [`Vfs`] serves one share: paths start at its root and never leave it, whatever links or
//! concurrent renames there are. Names are UTF-8 text as a Windows client sees them; the back end decides how they are
//! stored on disk, and how bytes that are not UTF-8 and characters that Windows forbids are shown reversibly. Names
//! compare without case and keep the case with which they were created.
//!
//! A [`Vfs::Node`] is a held inode (or one named stream of it): it stays valid after a rename or
//! a removal of its name, until the last clone is dropped. Cloning is cheap and never blocks.
//!
//! Futures returned here need not be `Send`. They must be polled to completion once started:
//! the kernel may be using a buffer meanwhile. No method blocks the calling thread on a disk.
//!
//! No method makes anything stable unless it says so: [`Vfs::sync`] and `WriteMode::durable`
//! do. A failure of those is reported only once, so the caller must remember it.

#![allow(async_fn_in_trait)] // Futures are polled on the worker that made them; no `Send` wanted.

use std::fmt;

use bytes::{Bytes, BytesMut};

use crate::{
    Attr, FileKey, FsInfo, Identity, SetAttr, StreamInfo, Timestamp, VfsError, disk::InMemory,
};

/// Components of a path below the root of a share, at most. Each costs a query, and all components of a path are walked
/// in one turn.
pub const PATH_DEPTH_MAX: usize = 256;

/// Result of a file-system operation.
pub type VfsResult<T> = std::result::Result<T, VfsError>;

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
    /// ([`Vfs::short_name`]). Empty for the root.
    pub name: String,
    /// Every component as stored (those found), in order, the last one as in `name`.
    pub path: Vec<String>,
    /// The inode, if the last component exists.
    pub found: Option<(N, Attr)>,
}

/// An inode's owner and permission bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permissions {
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// `st_mode`, type bits included.
    pub mode: u32,
}

/// Permission bits of new objects if the request gives none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewModes {
    /// Of a file.
    pub file: u32,
    /// Of a directory.
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
    /// Owner and permission bits.
    pub permissions: Permissions,
    /// Time of the last write.
    pub written: Timestamp,
    /// Change time.
    pub changed: Timestamp,
}

/// The kinds of I/O for which an open is made; the kernel checks them against the identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IoAccess {
    /// Read data or list.
    pub read: bool,
    /// Write data.
    pub write: bool,
}

/// The rights that the kernel (permission bits, POSIX ACLs) gives an identity on an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Permitted {
    /// Read data or list.
    pub read: bool,
    /// Write data or add entries.
    pub write: bool,
    /// Execute or traverse.
    pub execute: bool,
    /// Is the owner (or the service itself running as root).
    pub owner: bool,
    /// May remove the name from its parent (needs the parent; true where unknown).
    pub delete: bool,
}

/// The initial state of a new file or directory. All of it is set before the name becomes visible to other clients
/// of this server, or the creation fails and leaves nothing behind.
#[derive(Debug, Clone, Default)]
pub struct NewNode<'a> {
    /// Permission bits before the share's mask; `None`: the share's default.
    pub mode: Option<u32>,
    /// DOS attribute bits to store.
    pub dos_attributes: u32,
    /// Security descriptor to store.
    pub security: Option<NewSecurity<'a>>,
    /// Extended attributes to store.
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

impl fmt::Debug for NewSecurity<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Given(_) => "Given",
            Self::Of(_) => "Of",
        })
    }
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
    /// One of the object's own.
    Own,
    /// That of a symbolic link which led to the object.
    SymbolicLink,
}

/// Options of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteMode {
    /// Data, and the metadata needed to read it back, are on stable storage before the call
    /// returns (`RWF_DSYNC`). Names of parents are not covered.
    pub durable: bool,
}

/// The state that [`Vfs::sync`] makes stable.
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
    /// A name that is the same on disk.
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

    /// The name's bytes on disk, so that [`Vfs::attrs_at`] need not search.
    #[must_use]
    pub fn on_disk(&self) -> &[u8] {
        self.on_disk.as_deref().unwrap_or(self.name.as_bytes())
    }
}

/// The names of a directory, and attributes of the first of them as [`Vfs::attrs_at`] returns them.
pub type Listed = (Vec<DirName>, Vec<VfsResult<Attr>>);

/// A range of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// Called with a failed sync: its inode, and the error.
pub type FailedSync<N> = Box<dyn Fn(&N, VfsError) + Send + Sync>;

/// A file system as the protocol needs it. See the module head for the rules that hold for all
/// methods.
pub trait Vfs: Send + Sync + 'static {
    /// A held inode or stream.
    type Node: Node;

    /// The share's root directory.
    fn root(&self) -> Self::Node;

    /// Walks `path` from the root without regard to case (an exact match wins). Every step stays
    /// below the root. Fails with `PathNotFound` when a component before the last is absent or
    /// no directory, `SymbolicLink` if a link may not be followed, `InvalidName`. The node found has no I/O access yet
    /// ([`Vfs::open`] gives that).
    async fn lookup(&self, who: &Identity, path: &[String]) -> VfsResult<Lookup<Self::Node>>;

    /// The directory that holds, or would hold, the last component; `None` for the root. As
    /// [`Vfs::lookup`], without looking up that component.
    async fn lookup_parent(
        &self,
        who: &Identity,
        path: &[String],
    ) -> VfsResult<Option<Self::Node>> {
        Ok(self.lookup(who, path).await?.parent)
    }

    /// The same inode, opened for I/O. The kernel's permission check for `who` happens here.
    /// `Special` inodes give `NotSupported`.
    async fn open(
        &self,
        who: &Identity,
        node: &Self::Node,
        access: IoAccess,
    ) -> VfsResult<Self::Node>;

    /// The rights that the kernel would give `who`. For a file also queries `parent` for `delete`.
    async fn permitted(
        &self,
        who: &Identity,
        node: &Self::Node,
        parent: Option<&Self::Node>,
    ) -> VfsResult<Permitted>;

    /// Creates an empty regular file, opened for reading and writing. `Exists` if the name is
    /// taken (in any case).
    async fn create_file(
        &self,
        who: &Identity,
        parent: &Self::Node,
        name: &str,
        new: &NewNode<'_>,
    ) -> VfsResult<(Self::Node, Attr)>;

    /// Creates an empty directory. `Exists` if the name is taken (in any case).
    async fn create_directory(
        &self,
        who: &Identity,
        parent: &Self::Node,
        name: &str,
        new: &NewNode<'_>,
    ) -> VfsResult<(Self::Node, Attr)>;

    /// Opens a named stream of `node` (a file or directory, not itself a stream). The bool says
    /// whether the stream was created.
    async fn open_stream(
        &self,
        who: &Identity,
        node: &Self::Node,
        name: &str,
        how: StreamOpen,
    ) -> VfsResult<(Self::Node, bool)>;

    /// The named streams of an inode, without the unnamed one.
    async fn streams(&self, node: &Self::Node) -> VfsResult<Vec<StreamInfo>>;

    /// Removes a stream (`node` is a stream node).
    async fn remove_stream(&self, who: &Identity, node: &Self::Node) -> VfsResult<()>;

    /// Renames a stream of the same inode; the node returned replaces `node`.
    async fn rename_stream(
        &self,
        who: &Identity,
        node: &Self::Node,
        to: &str,
        replace: bool,
    ) -> VfsResult<Self::Node>;

    /// Reads up to `len` bytes at `offset` and appends them to `buf`; fewer only at end of file.
    async fn read(
        &self,
        node: &Self::Node,
        offset: u64,
        len: usize,
        buf: BytesMut,
    ) -> VfsResult<BytesMut>;

    /// The `len` bytes at `offset`, if all of them are in memory and can be sent from there without waiting. With
    /// `None` they must be read by [`Vfs::read`]. They must be sent at once, and only if nobody else may change the
    /// file.
    fn in_memory(&self, node: &Self::Node, offset: u64, len: usize) -> Option<Box<dyn InMemory>> {
        let _ = (node, offset, len);
        None
    }

    /// Writes all of `data` at `offset`. On failure a part may have been written (and counts as
    /// written for everything that tracks what is not yet stable).
    async fn write(
        &self,
        node: &Self::Node,
        offset: u64,
        data: Bytes,
        mode: WriteMode,
    ) -> VfsResult<()>;

    /// Sets the end of file; growth reads as zeros.
    async fn set_size(&self, node: &Self::Node, size: u64) -> VfsResult<()>;

    /// Reserves space up to `size` bytes without moving the end of file. A call that shrinks the reservation may do
    /// nothing.
    async fn allocate(&self, node: &Self::Node, size: u64) -> VfsResult<()>;

    /// Makes a range read as zeros without moving the end of file, deallocating where possible.
    async fn zero(&self, node: &Self::Node, range: Range) -> VfsResult<()>;

    /// The parts of `within` that hold data (not holes), ascending, at most `max`.
    async fn allocated(
        &self,
        node: &Self::Node,
        within: Range,
        max: usize,
    ) -> VfsResult<Vec<Range>>;

    /// Copies bytes between two opened files of this share, in the kernel where possible.
    /// Returns the bytes copied: fewer than `len` only at the source's end of file.
    async fn copy(
        &self,
        from: &Self::Node,
        from_offset: u64,
        to: &Self::Node,
        to_offset: u64,
        len: u64,
    ) -> VfsResult<u64>;

    /// Shares extents (`FICLONERANGE`); `NotSupported` where the file system cannot.
    async fn clone_range(
        &self,
        from: &Self::Node,
        from_offset: u64,
        to: &Self::Node,
        to_offset: u64,
        len: u64,
    ) -> VfsResult<()>;

    /// The present attributes of the inode (or stream).
    async fn attr(&self, node: &Self::Node) -> VfsResult<Attr>;

    /// The present owner and permission bits of the inode.
    async fn permissions(&self, node: &Self::Node) -> VfsResult<Permissions> {
        Ok((&self.attr(node).await?).into())
    }

    /// The present number of names of the inode.
    async fn links(&self, node: &Self::Node) -> VfsResult<u32> {
        Ok(self.attr(node).await?.links)
    }

    /// Whether READONLY is set at present.
    async fn is_readonly(&self, node: &Self::Node) -> VfsResult<bool> {
        Ok(self.attr(node).await?.dos_attributes & 1 != 0)
    }

    /// Changes attributes.
    async fn set_attr(&self, who: &Identity, node: &Self::Node, set: &SetAttr) -> VfsResult<()>;

    /// The names in a directory, `.` and `..` left out, in an order that is stable while the
    /// directory does not change. At most `max`; a directory with more gives `TooLarge`.
    async fn list(&self, who: &Identity, dir: &Self::Node, max: usize) -> VfsResult<Vec<DirName>>;

    /// Attributes of listed names, in their order; `NotFound` for names that were removed meanwhile. A link that the
    /// policy does not follow gives `SymbolicLink`; the target of another is queried as `who`, and gives `AccessDenied`
    /// if the user may not reach it. It waits only once for all of them.
    async fn attrs_at(
        &self,
        who: &Identity,
        dir: &Self::Node,
        names: &[DirName],
    ) -> Vec<VfsResult<Attr>>;

    /// [`Vfs::list`], and [`Vfs::attrs_at`] of the first names, at most `looked`, perhaps fewer or none. It waits only
    /// once for both if possible.
    async fn list_looked(
        &self,
        who: &Identity,
        dir: &Self::Node,
        max: usize,
        looked: usize,
    ) -> VfsResult<Listed> {
        let _ = looked;
        Ok((self.list(who, dir, max).await?, Vec::new()))
    }

    /// Moves a name. `name` and `to_name` are components; `node` is the inode that must still be at `name` (else
    /// `NotFound`). `replaced` is the inode that must have the new name and loses it; none for a free name. Any other
    /// state (another inode, or none where `replaced` is one) gives `Exists`, and the caller must look it up again. A
    /// change of case only of the same name replaces nothing. A directory never replaces a file nor the other way
    /// round. Two names of one inode become one.
    #[allow(clippy::too_many_arguments)]
    async fn rename(
        &self,
        who: &Identity,
        node: &Self::Node,
        parent: &Self::Node,
        name: &str,
        to_parent: &Self::Node,
        to_name: &str,
        replaced: Option<FileKey>,
    ) -> VfsResult<()>;

    /// Adds a hard link to a file; `replaced` is as in [`Vfs::rename`].
    async fn link(
        &self,
        who: &Identity,
        node: &Self::Node,
        to_parent: &Self::Node,
        to_name: &str,
        replaced: Option<FileKey>,
    ) -> VfsResult<()>;

    /// Removes a name (file, link or empty directory) if it still leads to `node`, else
    /// `NotFound`. Streams stored outside the inode are removed with its last name.
    async fn remove(
        &self,
        who: &Identity,
        node: &Self::Node,
        parent: &Self::Node,
        name: &str,
    ) -> VfsResult<RemovedName>;

    /// Checks whether the kernel would allow `who` to remove `name`, which led to `node`, from `parent` now. It is
    /// called when a removal is promised before it is carried out.
    async fn may_remove(
        &self,
        who: &Identity,
        node: &Self::Node,
        parent: &Self::Node,
        name: &str,
    ) -> VfsResult<()>;

    /// The permission bits of objects made from now on.
    fn new_modes(&self) -> NewModes;

    /// Appends the short (8.3) form of a name to `short`: in upper case, the name by which [`Vfs::lookup`] also finds
    /// it if no other name of the directory has the same short form. It appends nothing if there are no short forms.
    fn short_name(&self, name: &str, short: &mut String) {
        let _ = (name, short);
    }

    /// The uid of `who` for the kernel.
    fn uid(&self, who: &Identity) -> u32;

    /// Extended attributes that belong to clients (Samba's `user.` names without reserved ones).
    async fn eas(&self, node: &Self::Node) -> VfsResult<Vec<(String, Vec<u8>)>>;

    /// Sets extended attributes; an empty value removes one. Of several values of one name, in any case, the last
    /// counts. All are checked before the first is stored; if storing one fails, those before it have changed.
    async fn set_eas(&self, node: &Self::Node, eas: &[(String, Vec<u8>)]) -> VfsResult<()>;

    /// The stored security descriptor, self-relative, if any. A stored one that cannot be
    /// decoded gives `Corrupt`; one whose hash shows that the POSIX permissions were changed since counts as absent.
    /// `changed` is the inode's change time, if the caller has just seen it and accepts the descriptor of that moment.
    async fn security(
        &self,
        node: &Self::Node,
        changed: Option<&Timestamp>,
    ) -> VfsResult<Option<Vec<u8>>>;

    /// Stores a security descriptor (self-relative bytes).
    async fn set_security(&self, who: &Identity, node: &Self::Node, sd: &[u8]) -> VfsResult<()>;

    /// The target of a symbolic link, as stored.
    async fn read_link(&self, node: &Self::Node) -> VfsResult<String>;

    /// Makes an inode stable. For a stream node, it makes stable what holds the stream's bytes. An error is final: it
    /// is never retried here, and a later success says nothing about what it covered.
    async fn sync(&self, node: &Self::Node, scope: SyncScope) -> VfsResult<()>;

    /// Sets the listener for failed syncs that a method other than [`Vfs::sync`] and a durable [`Vfs::write`] makes by
    /// itself, and for those of further inodes that a sync needs. It is called before the method returns. Dirty state
    /// of that inode may be lost, even if the method succeeds or its own error says less. A new listener replaces the
    /// old one. A file system whose other methods sync nothing need not do anything.
    fn on_failed_sync(&self, listener: FailedSync<Self::Node>) {
        drop(listener);
    }

    /// A node of the same inode to be held for a later [`Vfs::sync`] in place of one that [`Node::forbids_execution`],
    /// which this one does not. It gets failures of write-back as that node does, if this is called before the write; a
    /// second call for the same node returns the same descriptor. `None` if there is nothing better to hold than the
    /// node itself.
    async fn keeper(&self, node: &Self::Node) -> Option<Self::Node> {
        let _ = node;
        None
    }

    /// Starts write-back of a range, so that a later [`Vfs::sync`] has less to do. It returns at once, makes nothing
    /// stable and returns no error; the sync returns it.
    fn start_write_back(&self, node: &Self::Node, range: Range) {
        let _ = (node, range);
    }

    /// Whether a power cut leaves every rename on this file system (a device number, as in
    /// [`FileKey::fs`]) either whole or not made, whichever of the two directories was synced. It needs no I/O, and
    /// returns `false` if that is not known.
    fn renames_are_atomic(&self, fs: u64) -> bool {
        let _ = fs;
        false
    }

    /// The directory that holds the present name of `node`, even if another program gave it that name. `None` for the
    /// root, and wherever [`Vfs::path_hint`] returns nothing.
    async fn parent_of(&self, node: &Self::Node) -> VfsResult<Option<Self::Node>> {
        let _ = node;
        Ok(None)
    }

    /// The present path of the inode, as far as it is known without I/O: components from the root of the share with
    /// `/` between them, as on disk. A hint, for people and journals; `None` if it has no name below the root or
    /// none is known.
    fn path_hint(&self, node: &Self::Node) -> Option<String> {
        let _ = node;
        None
    }

    /// Sizes and limits of the file system under `node`.
    async fn fs_info(&self, node: &Self::Node) -> VfsResult<FsInfo>;

    /// Whether nothing can be changed under `node` now, because of the configuration, the mount or an earlier error. It
    /// is called before every FLUSH.
    async fn is_read_only(&self, node: &Self::Node) -> VfsResult<bool> {
        Ok(self.fs_info(node).await?.read_only)
    }
}
