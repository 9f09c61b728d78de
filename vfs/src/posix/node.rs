//! A node of the POSIX back end: an open inode or stream.
//!
//! A node is a reference-counted descriptor (`O_PATH` until opened for I/O) with the facts about
//! the inode that never change: its key and kind. The descriptor pins the inode, so the number in
//! the key cannot be given to another file while any node of it lives. The key is `statx`'s, so
//! that a lookup, a listing and an open give the same one.

use std::sync::{Arc, Mutex, OnceLock, atomic::AtomicBool};

use super::{attributes::Named, file_ids::Via};
use crate::{
    FileKey, IoAccess, Kind, Node, VfsError, VfsResult,
    disk::{Disk, Stat},
    lock,
};

/// The path by which a directory was reached from the root: names on disk, with links resolved. It
/// is used only to resolve a link's `..`, and checked before that.
pub(super) type Trail = Arc<[Box<[u8]>]>;

/// A held inode, or one named stream of it.
pub struct PosixNode<D: Disk>(pub(super) Arc<Inner<D>>);

pub(super) struct Inner<D: Disk> {
    pub(super) key: FileKey,
    pub(super) kind: Kind,
    pub(super) fd: D::Fd,
    /// The access with which `fd` was opened; none means `O_PATH`.
    pub(super) io: IoAccess,
    /// The name at the lookup.
    pub(super) named: Named,
    pub(super) trail: Option<Trail>,
    pub(super) stream: Option<Stream<D>>,
    /// A second descriptor of a file that is open for writing. It was opened for reading before the
    /// first write, and stays open for the sync after this one is closed.
    pub(super) keeper: OnceLock<PosixNode<D>>,
}

/// The part that makes a node a stream. `fd` of the node is then the inode that carries it.
pub(super) struct Stream<D: Disk> {
    pub(super) name: String,
    pub(super) io: IoAccess,
    /// The file in the depot, once the stream was found there.
    pub(super) depot: Mutex<Option<D::Fd>>,
    /// Changes through this node leave the write time of the file as it is.
    pub(super) keeps_write_time: AtomicBool,
}

impl<D: Disk> Stream<D> {
    pub(super) fn new(name: String, io: IoAccess, depot: Option<D::Fd>) -> Self {
        Self {
            name,
            io,
            depot: Mutex::new(depot),
            keeps_write_time: AtomicBool::new(false),
        }
    }

    pub(super) fn depot(&self) -> Option<D::Fd> {
        lock(&self.depot).clone()
    }

    pub(super) fn set_depot(&self, fd: D::Fd) {
        *lock(&self.depot) = Some(fd);
    }
}

impl<D: Disk> Clone for PosixNode<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<D: Disk> PosixNode<D> {
    /// A node over an `O_PATH` descriptor.
    pub(super) fn path_only(fd: D::Fd, stat: &Stat, named: Named, trail: Option<Trail>) -> Self {
        let kind = kind_of(stat.mode);
        Self(Arc::new(Inner {
            key: stat.key,
            kind,
            fd,
            io: IoAccess::default(),
            named,
            trail: trail.filter(|_| kind == Kind::Directory),
            stream: None,
            keeper: OnceLock::new(),
        }))
    }

    /// A node of the same inode, no stream, in which `change` changes the rest.
    pub(super) fn changed(&self, change: impl FnOnce(&mut Inner<D>)) -> Self {
        let mut inner = Inner {
            key: self.0.key,
            kind: self.0.kind,
            fd: self.0.fd.clone(),
            io: self.0.io,
            named: self.0.named,
            trail: self.0.trail.clone(),
            stream: None,
            keeper: OnceLock::new(),
        };
        change(&mut inner);
        Self(Arc::new(inner))
    }

    /// A node of the same inode that uses another descriptor.
    pub(super) fn with_fd(&self, fd: D::Fd, io: IoAccess) -> Self {
        self.changed(|inner| (inner.fd, inner.io) = (fd, io))
    }

    /// A node of the same inode that remembers the links through which it was reached.
    pub(super) fn reached_through(&self, via: Via) -> Self {
        if self.0.named.via == via {
            return self.clone();
        }
        self.changed(|inner| inner.named.via = via)
    }

    pub(super) fn with_stream(&self, stream: Stream<D>) -> Self {
        self.changed(|inner| (inner.trail, inner.stream) = (None, Some(stream)))
    }

    /// A node of a stream that is not open for I/O.
    pub(super) fn unopened_stream(&self, name: String) -> Self {
        self.with_stream(Stream::new(name, IoAccess::default(), None))
    }

    /// The descriptor of the inode (for a stream: of the inode that carries it).
    #[must_use]
    pub fn fd(&self) -> &D::Fd {
        &self.0.fd
    }

    /// The descriptor if it can list or hold entries; `NotADirectory` otherwise.
    pub(super) fn directory(&self) -> VfsResult<&D::Fd> {
        VfsError::NotADirectory.when(!self.is_directory())?;
        Ok(&self.0.fd)
    }
}

impl<D: Disk> Node for PosixNode<D> {
    fn key(&self) -> FileKey {
        self.0.key
    }

    fn is_directory(&self) -> bool {
        self.0.kind == Kind::Directory && self.0.stream.is_none()
    }

    fn stream(&self) -> Option<&str> {
        self.0.stream.as_ref().map(|stream| stream.name.as_str())
    }

    fn forbids_execution(&self) -> bool {
        self.0.io.write && self.0.kind == Kind::File && self.0.stream.is_none()
    }
}

impl<D: Disk> std::fmt::Debug for PosixNode<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PosixNode")
            .field("key", &self.0.key)
            .field("kind", &self.0.kind)
            .field("stream", &self.stream())
            .finish()
    }
}

pub(super) fn kind_of(mode: u32) -> Kind {
    match mode & libc::S_IFMT {
        libc::S_IFREG => Kind::File,
        libc::S_IFDIR => Kind::Directory,
        libc::S_IFLNK => Kind::SymbolicLink,
        _ => Kind::Special,
    }
}
