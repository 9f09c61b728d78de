//! The POSIX back end: [`Vfs`] over any [`Disk`].
//!
//! It decides how files of Windows are stored on a Linux file system: names ([`name`]), attributes, streams and
//! security descriptors in Samba's formats ([`samba_xattr`]), so that a folder can be moved from Samba to Holdfast and
//! back. Apart from the files it has only caches, which are checked against the disk, and locks.
//!
//! Invariants: no path leaves the share's root; nothing blocks (only the disk waits); every operation takes
//! its locks in one order (the name's, of a move those of both names by shard; the inode's; that of the depot's
//! folders), so that operations cannot deadlock. Share modes, oplocks, and when something must be stable are not
//! decided here.

mod attrib_cache;
mod attributes;
mod convert;
mod create;
mod data;
mod depot;
mod directory;
mod ea;
mod errno;
mod folded;
mod listings;
mod lookup;
pub mod name;
mod name_cache;
mod node;
mod options;
pub mod samba_xattr;
mod security;
mod short_name;
mod streams;
#[cfg(test)]
mod tests;
mod tunnel;

use std::sync::{Arc, PoisonError, RwLock, atomic::AtomicBool};

use bytes::{Bytes, BytesMut};
use tokio::sync::{Mutex, MutexGuard};

pub use convert::{Converted, Moved};
pub use node::PosixNode;
pub use options::{AclNamespace, Clock, PosixOptions, StreamStore, SymlinkPolicy};

use crate::{
    Attr, DirName, FailedSync, FileKey, FsInfo, Identity, IoAccess, Listed, Lookup, NewModes,
    NewNode, Permissions, Permitted, Range, RemovedName, SetAttr, StreamInfo, StreamOpen,
    SyncScope, Timestamp, Vfs, VfsError, VfsResult, WriteMode,
    disk::{Disk, InMemory, InodeLocks},
};
use attrib_cache::AttribCache;
use create::Temporary;
use listings::Listings;
use name_cache::NameCache;
use tunnel::Tunnel;

/// A share's files on a disk.
pub struct PosixVfs<D: Disk> {
    disk: D,
    options: PosixOptions,
    root: PosixNode<D>,
    names: NameCache,
    listings: Listings,
    tunnel: Tunnel,
    attribs: Arc<AttribCache>,
    /// Set if a folder of the depot could neither be made stable nor be removed.
    depot_broken: AtomicBool,
    locks: Locks,
    temporary: Temporary,
    failed_sync: RwLock<Option<FailedSync<PosixNode<D>>>>,
}

impl<D: Disk> PosixVfs<D> {
    /// Serves the directory that `disk` starts at. Fails if that cannot be queried or is no directory.
    pub async fn new(disk: D, options: PosixOptions) -> VfsResult<Self> {
        let fd = disk.root();
        let stat = disk.stat(&fd).await?;
        let root = PosixNode::path_only(fd, &stat, false, Some([].into()));
        root.directory()?;
        let temporary = Temporary::new(options.clock.now());
        let locks = Locks::new(disk.inode_locks());
        Ok(Self {
            disk,
            options,
            root,
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

    /// Reports a failed sync, unless it never began and so lost nothing.
    fn sync_failed(&self, node: &PosixNode<D>, error: VfsError) {
        if error == VfsError::NotStarted {
            return;
        }
        let listener = self.failed_sync.read();
        let listener = listener.unwrap_or_else(PoisonError::into_inner);
        if let Some(tell) = &*listener {
            tell(node, error);
        }
    }

    /// The disk beneath.
    pub fn disk(&self) -> &D {
        &self.disk
    }

    /// The options it was made with.
    pub fn options(&self) -> &PosixOptions {
        &self.options
    }

    fn root_node(&self) -> PosixNode<D> {
        self.root.clone()
    }

    fn root_key(&self) -> FileKey {
        self.root.0.key
    }
}

/// Shards of each kind of lock.
const LOCK_SHARDS: usize = 64;
const SHARDS_U64: u64 = LOCK_SHARDS as u64;

type NameGuard<'a> = Option<MutexGuard<'a, ()>>;

/// Locks between operations of this server: on a name (in any case) that is about to be made or removed, and on an
/// inode whose stream attributes are rewritten. They are sharded, so unrelated names or inodes may share a lock.
struct Locks {
    names: Box<[Mutex<()>]>,
    /// These are shared with other instances: two shares over one folder, or a share before and after a reload, must
    /// not read and rewrite the same attribute at once.
    inodes: Arc<InodeLocks>,
}

impl Locks {
    fn new(inodes: Arc<InodeLocks>) -> Self {
        Self {
            names: (0..LOCK_SHARDS).map(|_| Mutex::new(())).collect(),
            inodes,
        }
    }

    async fn name(&self, directory: FileKey, shown: &str) -> MutexGuard<'_, ()> {
        Self::shard(&self.names, Self::hash(directory, shown))
            .lock()
            .await
    }

    /// As [`Locks::name`], for a caller that has just seen a state, which is dropped if the lock had to be waited for.
    async fn name_after<T>(
        &self,
        directory: FileKey,
        shown: &str,
        seen: Option<T>,
    ) -> (MutexGuard<'_, ()>, Option<T>) {
        let shard = Self::shard(&self.names, Self::hash(directory, shown));
        match shard.try_lock() {
            Ok(name) => (name, seen),
            Err(_) => (shard.lock().await, None),
        }
    }

    /// Locks both names of a move, in an order that does not depend on theirs.
    async fn names(&self, one: (FileKey, &str), other: (FileKey, &str)) -> [NameGuard<'_>; 2] {
        let [one, other] = [one, other].map(|(dir, name)| Self::hash(dir, name) % SHARDS_U64);
        let first = Self::shard(&self.names, one.min(other)).lock().await;
        let second = match one == other {
            true => None,
            false => Some(Self::shard(&self.names, one.max(other)).lock().await),
        };
        [Some(first), second]
    }

    fn hash(directory: FileKey, shown: &str) -> u64 {
        let folded = crate::fold(shown);
        // FNV-1a is enough: clients gain nothing from choosing the shard.
        directory
            .ino
            .to_le_bytes()
            .iter()
            .chain(folded.as_bytes())
            .fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
            })
    }

    async fn inode(&self, inode: FileKey) -> MutexGuard<'_, ()> {
        self.inodes.lock(inode).await
    }

    /// Allows one operation at a time to make folders of the depot. It is the last lock that an operation takes.
    async fn folders(&self) -> MutexGuard<'_, ()> {
        self.inodes.folders().await
    }

    fn shard(shards: &[Mutex<()>], hash: u64) -> &Mutex<()> {
        // The remainder is below the array's length.
        let index = usize::try_from(hash % SHARDS_U64).unwrap_or(0);
        &shards[index]
    }
}

impl<D: Disk> Vfs for PosixVfs<D> {
    type Node = PosixNode<D>;

    fn root(&self) -> Self::Node {
        self.root_node()
    }

    async fn lookup(&self, who: &Identity, path: &[String]) -> VfsResult<Lookup<Self::Node>> {
        self.do_lookup(who, path).await
    }

    async fn lookup_parent(
        &self,
        who: &Identity,
        path: &[String],
    ) -> VfsResult<Option<Self::Node>> {
        self.do_lookup_parent(who, path).await
    }

    async fn open(
        &self,
        who: &Identity,
        node: &Self::Node,
        access: IoAccess,
    ) -> VfsResult<Self::Node> {
        self.do_open(who, node, access).await
    }

    async fn permitted(
        &self,
        who: &Identity,
        node: &Self::Node,
        parent: Option<&Self::Node>,
    ) -> VfsResult<Permitted> {
        self.do_permitted(who, node, parent).await
    }

    async fn create_file(
        &self,
        who: &Identity,
        parent: &Self::Node,
        name: &str,
        new: &NewNode<'_>,
    ) -> VfsResult<(Self::Node, Attr)> {
        self.do_create(who, parent, name, new, false).await
    }

    async fn create_directory(
        &self,
        who: &Identity,
        parent: &Self::Node,
        name: &str,
        new: &NewNode<'_>,
    ) -> VfsResult<(Self::Node, Attr)> {
        self.do_create(who, parent, name, new, true).await
    }

    async fn open_stream(
        &self,
        who: &Identity,
        node: &Self::Node,
        name: &str,
        how: StreamOpen,
    ) -> VfsResult<(Self::Node, bool)> {
        self.do_open_stream(who, node, name, how).await
    }

    async fn streams(&self, node: &Self::Node) -> VfsResult<Vec<StreamInfo>> {
        self.do_streams(node).await
    }

    async fn remove_stream(&self, who: &Identity, node: &Self::Node) -> VfsResult<()> {
        self.do_remove_stream(who, node).await
    }

    async fn rename_stream(
        &self,
        who: &Identity,
        node: &Self::Node,
        to: &str,
        replace: bool,
    ) -> VfsResult<Self::Node> {
        self.do_rename_stream(who, node, to, replace).await
    }

    async fn read(
        &self,
        node: &Self::Node,
        offset: u64,
        len: usize,
        buf: BytesMut,
    ) -> VfsResult<BytesMut> {
        self.do_read(node, offset, len, buf).await
    }

    fn in_memory(&self, node: &Self::Node, offset: u64, len: usize) -> Option<Box<dyn InMemory>> {
        let readable = node.0.stream.is_none() && node.0.io.read;
        let fd = readable.then(|| node.fd())?;
        self.disk.in_memory(fd, offset, len)
    }

    async fn write(
        &self,
        node: &Self::Node,
        offset: u64,
        data: Bytes,
        mode: WriteMode,
    ) -> VfsResult<()> {
        self.do_write(node, offset, data, mode).await
    }

    async fn set_size(&self, node: &Self::Node, size: u64) -> VfsResult<()> {
        self.do_set_size(node, size).await
    }

    async fn allocate(&self, node: &Self::Node, size: u64) -> VfsResult<()> {
        self.do_allocate(node, size).await
    }

    async fn zero(&self, node: &Self::Node, range: Range) -> VfsResult<()> {
        self.do_zero(node, range).await
    }

    async fn allocated(
        &self,
        node: &Self::Node,
        within: Range,
        max: usize,
    ) -> VfsResult<Vec<Range>> {
        self.do_allocated(node, within, max).await
    }

    async fn copy(
        &self,
        from: &Self::Node,
        from_offset: u64,
        to: &Self::Node,
        to_offset: u64,
        len: u64,
    ) -> VfsResult<u64> {
        self.do_copy(from, from_offset, to, to_offset, len).await
    }

    async fn clone_range(
        &self,
        from: &Self::Node,
        from_offset: u64,
        to: &Self::Node,
        to_offset: u64,
        len: u64,
    ) -> VfsResult<()> {
        self.do_clone_range(from, from_offset, to, to_offset, len)
            .await
    }

    async fn attr(&self, node: &Self::Node) -> VfsResult<Attr> {
        self.attr_of(node).await
    }

    async fn permissions(&self, node: &Self::Node) -> VfsResult<Permissions> {
        self.do_permissions(node).await
    }

    async fn links(&self, node: &Self::Node) -> VfsResult<u32> {
        Ok(self.disk.stat(node.fd()).await?.links)
    }

    async fn is_readonly(&self, node: &Self::Node) -> VfsResult<bool> {
        self.do_is_readonly(node).await
    }

    async fn set_attr(&self, who: &Identity, node: &Self::Node, set: &SetAttr) -> VfsResult<()> {
        self.do_set_attr(who, node, set).await
    }

    async fn list(&self, who: &Identity, dir: &Self::Node, max: usize) -> VfsResult<Vec<DirName>> {
        self.do_list(who, dir, max).await
    }

    async fn attrs_at(
        &self,
        who: &Identity,
        dir: &Self::Node,
        names: &[DirName],
    ) -> Vec<VfsResult<Attr>> {
        self.do_attrs_at(who, dir, names).await
    }

    async fn list_looked(
        &self,
        who: &Identity,
        dir: &Self::Node,
        max: usize,
        looked: usize,
    ) -> VfsResult<Listed> {
        self.do_list_looked(who, dir, max, looked).await
    }

    async fn rename(
        &self,
        who: &Identity,
        node: &Self::Node,
        parent: &Self::Node,
        name: &str,
        to_parent: &Self::Node,
        to_name: &str,
        replaced: Option<FileKey>,
    ) -> VfsResult<()> {
        self.do_rename(who, node, parent, name, to_parent, to_name, replaced)
            .await
    }

    async fn link(
        &self,
        who: &Identity,
        node: &Self::Node,
        to_parent: &Self::Node,
        to_name: &str,
        replaced: Option<FileKey>,
    ) -> VfsResult<()> {
        self.do_link(who, node, to_parent, to_name, replaced).await
    }

    async fn remove(
        &self,
        who: &Identity,
        node: &Self::Node,
        parent: &Self::Node,
        name: &str,
    ) -> VfsResult<RemovedName> {
        self.do_remove(who, node, parent, name).await
    }

    async fn may_remove(
        &self,
        who: &Identity,
        node: &Self::Node,
        parent: &Self::Node,
        name: &str,
    ) -> VfsResult<()> {
        self.do_may_remove(who, node, parent, name).await
    }

    fn new_modes(&self) -> NewModes {
        let options = &self.options;
        NewModes {
            file: options.file_mode & options.file_mask,
            directory: options.directory_mode & options.directory_mask,
        }
    }

    fn short_name(&self, name: &str, short: &mut String) {
        if self.options.short_names && !matches!(name, "." | "..") {
            short_name::put(name, short);
        }
    }

    fn uid(&self, who: &Identity) -> u32 {
        match who {
            Identity::Service => self.disk.service_uid(),
            Identity::User(user) => user.uid,
        }
    }

    async fn eas(&self, node: &Self::Node) -> VfsResult<Vec<(String, Vec<u8>)>> {
        self.do_eas(node).await
    }

    async fn set_eas(&self, node: &Self::Node, eas: &[(String, Vec<u8>)]) -> VfsResult<()> {
        self.do_set_eas(node, eas).await
    }

    async fn security(
        &self,
        node: &Self::Node,
        changed: Option<&Timestamp>,
    ) -> VfsResult<Option<Vec<u8>>> {
        self.do_security(node, changed).await
    }

    async fn set_security(&self, _who: &Identity, node: &Self::Node, sd: &[u8]) -> VfsResult<()> {
        self.do_set_security(node, sd).await
    }

    async fn read_link(&self, _node: &Self::Node) -> VfsResult<String> {
        // No policy shows a link as such: nodes are always the targets of links.
        Err(VfsError::NotSupported)
    }

    async fn sync(&self, node: &Self::Node, scope: SyncScope) -> VfsResult<()> {
        self.do_sync(node, scope).await
    }

    fn on_failed_sync(&self, listener: FailedSync<Self::Node>) {
        let mut known = self
            .failed_sync
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *known = Some(listener);
    }

    async fn keeper(&self, node: &Self::Node) -> Option<Self::Node> {
        self.do_keeper(node).await
    }

    fn start_write_back(&self, node: &Self::Node, range: Range) {
        if node.0.stream.is_none() && node.0.io != IoAccess::default() {
            self.disk
                .start_write_back(node.fd(), range.offset, range.len);
        }
    }

    fn renames_are_atomic(&self, fs: u64) -> bool {
        self.disk.renames_are_atomic(fs)
    }

    async fn parent_of(&self, node: &Self::Node) -> VfsResult<Option<Self::Node>> {
        self.do_parent_of(node).await
    }

    fn path_hint(&self, node: &Self::Node) -> Option<String> {
        let path = self.disk.path_hint(node.fd())?;
        Some(String::from_utf8_lossy(&path).into_owned())
    }

    async fn fs_info(&self, node: &Self::Node) -> VfsResult<FsInfo> {
        self.do_fs_info(node).await
    }

    async fn is_read_only(&self, node: &Self::Node) -> VfsResult<bool> {
        Ok(self.options.read_only || self.disk.is_read_only(node.fd()).await?)
    }
}
