//! The POSIX back end: [`Vfs`](crate::Vfs) over any [`Disk`].
//!
//! It decides how files of Windows are stored on a Linux file system: names ([`name`]), attributes, streams and
//! security descriptors in Samba's formats ([`samba_xattr`]), so that a folder can be moved from Samba to Holdfast and
//! back. Apart from the files it has only caches, which are checked against the disk, and locks.
//!
//! Invariants: no path leaves the share's root; nothing blocks (only the disk waits); every operation takes
//! its locks in one order (the name's, of a move those of both names by shard; the inode's; that of the depot's
//! folders), so that operations cannot deadlock. Share modes, oplocks, and when something must be stable are not
//! decided here.

mod absent;
mod attrib_cache;
mod attributes;
mod convert;
mod create;
mod data;
mod depot;
mod directory;
mod dos;
mod ea;
mod entries;
mod errno;
mod file_ids;
mod folded;
mod join_names;
mod leftovers;
mod listings;
mod lookup;
pub mod name;
mod name_cache;
mod node;
mod options;
mod roots;
pub mod samba_xattr;
mod security;
mod short_name;
mod stream_names;
mod stream_rename;
mod streams;
#[cfg(test)]
mod tests;
mod tunnel;
mod volume;

use std::sync::{Arc, PoisonError, RwLock, atomic::AtomicBool};

pub use convert::{Converted, Moved};
pub use node::PosixNode;
pub use options::{AclNamespace, PosixOptions, StreamStore, SymlinkPolicy};

use crate::{
    FailedBy, FailedSync, FileKey, Identity, VfsError, VfsResult,
    disk::{Disk, InodeLocks},
};
use attrib_cache::AttribCache;
use attributes::Named;
use create::Temporary;
use file_ids::FileIds;
use listings::Listings;
use name_cache::NameCache;
use roots::ServedRoot;
use tunnel::Tunnel;

const SERVICE: Identity = Identity::Service;

/// A share's files on a disk.
pub struct PosixVfs<D: Disk> {
    disk: D,
    options: PosixOptions,
    root: PosixNode<D>,
    _served: ServedRoot,
    /// The identity of the root's file system.
    volume_id: u64,
    file_ids: FileIds,
    names: NameCache,
    listings: Listings,
    tunnel: Tunnel,
    attribs: Arc<AttribCache>,
    /// Set if a folder of the depot could neither be made stable nor be removed.
    depot_broken: AtomicBool,
    locks: Arc<InodeLocks>,
    temporary: Temporary,
    failed_sync: RwLock<Option<FailedSync<PosixNode<D>>>>,
}

impl<D: Disk> PosixVfs<D> {
    /// Serves the directory that `disk` starts at. Fails if that cannot be queried or is no directory.
    pub async fn new(disk: D, options: PosixOptions) -> VfsResult<Self> {
        let fd = disk.root();
        let stat = disk.stat(&fd).await?;
        let volume_id = disk.stat_fs(&fd).await?.id;
        let root = PosixNode::path_only(fd, &stat, Named::default(), Some([].into()));
        root.directory()?;
        let temporary = Temporary::new(options.clock.now());
        let locks = disk.inode_locks();
        let depot = disk.stat_at(root.fd(), name::DEPOT.as_bytes()).await;
        if !matches!(depot, Err(errno) if errno.is(&[libc::ENOENT])) {
            locks.use_depot();
        }
        Ok(Self {
            disk,
            options,
            root,
            _served: ServedRoot::new(stat.key),
            volume_id,
            file_ids: FileIds::new(stat.key.fs),
            names: NameCache::default(),
            listings: Listings::default(),
            tunnel: Tunnel::default(),
            attribs: Arc::default(),
            depot_broken: AtomicBool::new(false),
            locks,
            temporary,
            failed_sync: RwLock::default(),
        })
    }

    /// Reports a failed sync, perhaps one that a write has reported, unless it never began and so lost nothing.
    fn sync_failed(&self, node: &PosixNode<D>, error: VfsError, by: FailedBy) {
        if error == VfsError::NotStarted {
            return;
        }
        let listener = self.failed_sync.read();
        let listener = listener.unwrap_or_else(PoisonError::into_inner);
        if let Some(report) = &*listener {
            report(node, error, by);
        }
    }

    /// Syncs the file system of `node` through `fd`, which is on it. The kernel reports the failed write-back of any
    /// file there to this descriptor, and to none that is opened later, such as those of the next server process.
    async fn sync_file_system(&self, node: &PosixNode<D>, fd: &D::Fd) -> VfsResult<()> {
        let synced = self.disk.sync_fs(fd).await.map_err(VfsError::of_sync);
        synced.inspect_err(|error| self.sync_failed(node, *error, FailedBy::FileSystemSync))
    }

    pub fn disk(&self) -> &D {
        &self.disk
    }

    pub fn options(&self) -> &PosixOptions {
        &self.options
    }

    fn root_key(&self) -> FileKey {
        self.root.0.key
    }
}
