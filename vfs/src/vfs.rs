//! The contract between the protocol and a file system.
//!
//! One [`Vfs`] serves one share: paths start at its root and never leave it, whatever links or
//! concurrent renames there are. Names are UTF-8 text as a Windows client sees them; the back end decides how they are
//! stored on disk, and how bytes that are not UTF-8 and characters that Windows forbids are shown reversibly. Names
//! compare without case and keep the case with which they were created.
//!
//! A [`Volume::Node`] is a held inode (or one named stream of it): it stays valid after a rename or
//! a removal of its name, until the last clone is dropped. Cloning is cheap and never blocks.
//!
//! Futures returned here need not be `Send`. They must be polled to completion once started:
//! the kernel may be using a buffer meanwhile. No method blocks the calling thread on a disk.
//!
//! No method makes anything stable unless it says so: [`Volume::sync`] and `WriteMode::durable`
//! do. A failure of those is reported only once, so the caller must remember it.

#![allow(async_fn_in_trait)] // Futures are polled on the worker that made them; no `Send` wanted.

use bytes::{Bytes, BytesMut};

use crate::{
    Attr, DirName, FailedSync, FileKey, FsInfo, Identity, IoAccess, Listed, Lookup, NewModes,
    NewNode, Node, Permissions, Range, RemovedName, SetAttr, StreamInfo, StreamOpen, SyncScope,
    Timestamp, VfsResult, WriteMode, disk::InMemory,
};

/// A file system as the protocol needs it. See the module head for the rules that hold for all methods.
pub trait Vfs:
    Paths
    + Creation
    + Directories
    + Contents
    + NamedStreams
    + Attributes
    + ClientAttributes
    + Descriptors
{
}

/// The inodes of a file system: their present state, and what makes them stable. It is all that the durability engine
/// needs of a file system.
pub trait Volume: Send + Sync + 'static {
    /// A held inode or stream.
    type Node: Node;

    fn root(&self) -> Self::Node;

    /// The present attributes of the inode (or stream).
    async fn attr(&self, node: &Self::Node) -> VfsResult<Attr>;

    async fn links(&self, node: &Self::Node) -> VfsResult<u32> {
        Ok(self.attr(node).await?.links)
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

    /// Makes an inode stable. For a stream node, it makes stable what holds the stream's bytes. An error is final: it
    /// is never retried here, and a later success says nothing about what it covered.
    async fn sync(&self, node: &Self::Node, scope: SyncScope) -> VfsResult<()>;

    /// Sets the listener for failed syncs that a method other than [`Volume::sync`] and a durable [`Volume::write`]
    /// makes by itself, for those of further inodes that a sync needs, for those of a whole file system by any method,
    /// and for a failed write-back that no sync will report because a write of a stream has done so. It is called
    /// before the method returns. Dirty state of that inode, or of all inodes of its file system, may be lost, even if
    /// the method succeeds or its own error says less. A new listener replaces the old one. A file system whose other
    /// methods sync nothing need not do anything.
    fn on_failed_sync(&self, listener: FailedSync<Self::Node>) {
        drop(listener);
    }

    /// A node of the same inode to be held for a later [`Volume::sync`] in place of one that
    /// [`Node::forbids_execution`], which this one does not, or that the sync would have to open first. It gets
    /// failures of write-back as that node does, if this is called before the write; a second call for the same node
    /// returns the same descriptor. `None` if there is nothing better to hold than the node itself. It may wait for a
    /// program on the host that has a lease on the file.
    async fn keeper(&self, node: &Self::Node) -> Option<Self::Node> {
        let _ = node;
        None
    }

    /// Starts write-back of a range, so that a later [`Volume::sync`] has less to do. It returns at once, makes nothing
    /// stable and returns no error; the sync returns it.
    fn start_write_back(&self, node: &Self::Node, range: Range) {
        let _ = (node, range);
    }

    /// Whether a power cut leaves every rename on this file system (a device number, as in
    /// [`FileKey::fs`]) either whole or not made, whichever of the two directories was synced. It needs no I/O, and
    /// returns `false` if that is not known.
    fn renames_are_atomic(&self, fs: u64) -> bool;

    /// The directory that holds the present name of `node`, even if another program gave it that name. `None` for the
    /// root, wherever [`Volume::path_hint`] returns nothing, and where that path leads to something else.
    async fn parent_of(&self, node: &Self::Node) -> VfsResult<Option<Self::Node>>;

    /// Calls `look` with the present path of the inode, as far as it is known without I/O: components from the root of
    /// the share with `/` between them, with the bytes that they have on disk. `None` if it has no name below the root
    /// or none is known.
    fn with_path<T>(&self, node: &Self::Node, look: impl FnOnce(&[u8]) -> T) -> Option<T>;

    /// The path that [`Volume::with_path`] shows as text, in which different names that are not UTF-8 may look the
    /// same. A hint, for people and journals.
    fn path_hint(&self, node: &Self::Node) -> Option<String> {
        self.with_path(node, |path| String::from_utf8_lossy(path).into_owned())
    }

    /// Makes the name of `node` stable if it may have one although [`Volume::path_hint`] returns nothing, as for a
    /// path of more than 4,096 bytes. Errors are those of [`Volume::sync`].
    async fn sync_unknown_name(&self, node: &Self::Node) -> VfsResult<()>;
}

/// Paths from the root of the share.
pub trait Paths: Volume {
    /// Walks `path` from the root without regard to case (an exact match wins). Every step stays
    /// below the root. Fails with `PathNotFound` when a component before the last is absent or
    /// no directory, `SymbolicLink` if a link may not be followed, `InvalidName`. The node found has no I/O access yet
    /// ([`Contents::open`] gives that).
    async fn lookup(&self, who: &Identity, path: &[String]) -> VfsResult<Lookup<Self::Node>>;

    /// The directory that holds, or would hold, the last component; `None` for the root. As
    /// [`Paths::lookup`], without looking up that component.
    async fn lookup_parent(&self, who: &Identity, path: &[String])
    -> VfsResult<Option<Self::Node>>;

    /// Appends the short (8.3) form of a name to `short`: in upper case, the name by which [`Paths::lookup`] also finds
    /// it if no other name of the directory has the same short form. It appends nothing if there are no short forms.
    fn short_name(&self, name: &str, short: &mut String);
}

pub trait Creation: Volume {
    /// Creates an empty regular file, opened for reading and writing, or an empty directory. `Exists` if the name is
    /// taken (in any case).
    async fn create(
        &self,
        who: &Identity,
        parent: &Self::Node,
        name: &str,
        new: &NewNode<'_>,
        directory: bool,
    ) -> VfsResult<(Self::Node, Attr)>;

    /// The permission bits of objects made from now on.
    fn new_modes(&self) -> NewModes;
}

pub trait Directories: Volume {
    /// The names in a directory, `.` and `..` left out, in an order that is stable while the
    /// directory does not change. At most `max`; a directory with more gives `TooLarge`.
    async fn list(&self, who: &Identity, dir: &Self::Node, max: usize) -> VfsResult<Vec<DirName>>;

    /// Whether a directory is empty for clients. It may hold symbolic links that lead nowhere or may not be followed,
    /// which no listing shows; [`Directories::remove`] removes them with the directory.
    async fn is_empty(&self, who: &Identity, dir: &Self::Node) -> VfsResult<bool>;

    /// Attributes of listed names, in their order; `NotFound` for names that were removed meanwhile. A link that the
    /// policy does not follow gives `SymbolicLink`; the target of another is queried as `who`, and gives `AccessDenied`
    /// if the user may not reach it. It waits only once for all of them.
    async fn attrs_at(
        &self,
        who: &Identity,
        dir: &Self::Node,
        names: &[DirName],
    ) -> Vec<VfsResult<Attr>>;

    /// [`Directories::list`], and [`Directories::attrs_at`] of the first names, at most `looked`, perhaps fewer or
    /// none. It waits only once for both if possible.
    async fn list_looked(
        &self,
        who: &Identity,
        dir: &Self::Node,
        max: usize,
        looked: usize,
    ) -> VfsResult<Listed>;

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

    /// Adds a hard link to a file; `replaced` is as in [`Directories::rename`].
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
}

pub trait Contents: Volume {
    /// The same inode, opened for I/O. The kernel's permission check for `who` happens here.
    /// `Special` inodes give `NotSupported`.
    async fn open(
        &self,
        who: &Identity,
        node: &Self::Node,
        access: IoAccess,
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
    /// `None` they must be read by [`Contents::read`]. They must be sent at once, and only if nobody else may change
    /// the file.
    fn in_memory(&self, node: &Self::Node, offset: u64, len: usize) -> Option<Box<dyn InMemory>>;

    /// Sets whether reads through this node, which is open for them, leave the access time as it is. It need not do
    /// anything for a stream, or where the service may not.
    fn keep_access_time(&self, node: &Self::Node, keeps: bool);

    /// Sets whether changes of a named stream through this node leave the write time of its file as it is. It does
    /// nothing for other nodes.
    fn keep_write_time(&self, node: &Self::Node, keeps: bool);

    /// Sets the end of file; growth reads as zeros.
    async fn set_size(&self, node: &Self::Node, size: u64) -> VfsResult<()>;

    /// Reserves space up to `size` bytes without moving the end of file. A call that shrinks the reservation may do
    /// nothing, and so does every call on a file system that cannot reserve space.
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

    /// Copies bytes between two opened files of this share, each with an offset, in the kernel where possible.
    /// Returns the bytes copied: fewer than `len` only at the source's end of file.
    async fn copy(
        &self,
        from: (&Self::Node, u64),
        to: (&Self::Node, u64),
        len: u64,
    ) -> VfsResult<u64>;

    /// Shares extents (`FICLONERANGE`), likewise; `NotSupported` where the file system cannot.
    async fn clone_range(
        &self,
        from: (&Self::Node, u64),
        to: (&Self::Node, u64),
        len: u64,
    ) -> VfsResult<()>;
}

pub trait NamedStreams: Volume {
    /// Checks that a new stream can have this name.
    fn check_stream_name(&self, name: &str) -> VfsResult<()>;

    /// Opens a named stream of `node` (a file or directory, not itself a stream). The bool says
    /// whether the stream was created.
    async fn open_stream(
        &self,
        who: &Identity,
        node: &Self::Node,
        name: &str,
        how: StreamOpen,
    ) -> VfsResult<(Self::Node, bool)>;

    /// The file or directory that carries the stream `node`, without I/O access.
    fn carrier(&self, node: &Self::Node) -> Self::Node;

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
}

/// Attributes, permissions, and the facts about the file system beneath.
pub trait Attributes: Volume {
    /// The present owner and permission bits of the inode.
    async fn permissions(&self, node: &Self::Node) -> VfsResult<Permissions>;

    async fn is_readonly(&self, node: &Self::Node) -> VfsResult<bool>;

    async fn set_attr(&self, who: &Identity, node: &Self::Node, set: &SetAttr) -> VfsResult<()>;

    /// The kinds of I/O that the kernel would allow `who`, by permission bits and POSIX ACLs.
    async fn permitted(&self, who: &Identity, node: &Self::Node) -> VfsResult<IoAccess>;

    /// Checks whether the kernel would allow `who` to remove `name`, which led to `node`, from `parent` now. It is
    /// called when a removal is promised before it is carried out.
    async fn may_remove(
        &self,
        who: &Identity,
        node: &Self::Node,
        parent: &Self::Node,
        name: &str,
    ) -> VfsResult<()>;

    /// The uid of `who` for the kernel.
    fn uid(&self, who: &Identity) -> u32;

    /// The identity of the share as a volume: that of the file system of its root, the same after a restart where the
    /// file system has one.
    fn volume_id(&self) -> u64;

    /// Sizes and limits of the file system under `node`.
    async fn fs_info(&self, node: &Self::Node) -> VfsResult<FsInfo>;

    /// Whether nothing can be changed under `node` now, because of the configuration, the mount or an earlier error. It
    /// is called before every FLUSH.
    async fn is_read_only(&self, node: &Self::Node) -> VfsResult<bool>;
}

/// Extended attributes that belong to clients (Samba's `user.` names without reserved ones).
pub trait ClientAttributes: Volume {
    /// Whether the file system under `node` has extended attributes at all. Named streams need them too.
    async fn keeps_eas(&self, node: &Self::Node) -> bool;

    /// All extended attributes of an inode. `TooLarge` if they take more than 1 MiB, which clients cannot give it.
    async fn eas(&self, node: &Self::Node) -> VfsResult<Vec<(String, Vec<u8>)>>;

    /// Sets extended attributes; an empty value removes one. Of several values of one name, in any case, the last
    /// counts. All are checked before the first is stored; if storing one fails, those before it have changed.
    /// `TooLarge` if the inode has no room for one.
    async fn set_eas(
        &self,
        who: &Identity,
        node: &Self::Node,
        eas: &[(String, Vec<u8>)],
    ) -> VfsResult<()>;

    /// The size of the extended attributes ([`ea_size`](crate::ea_size)) of an inode whose attributes are `attr`.
    async fn ea_size(&self, node: &Self::Node, attr: &Attr) -> VfsResult<u32>;

    /// The same for listed names with their attributes, in their order; 0 where they cannot be read. It waits only once
    /// for all of them.
    async fn ea_sizes_at(&self, dir: &Self::Node, names: &[(&DirName, &Attr)]) -> Vec<u32>;
}

pub trait Descriptors: Volume {
    /// Whether the file system under `node` can store them.
    async fn keeps_descriptors(&self, node: &Self::Node) -> bool;

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
}
