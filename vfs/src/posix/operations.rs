//! The operations of a [`PosixVfs`] as [`Vfs`] names them.
//!
//! Short ones are carried out here; the others in the file of their subject: `lookup.rs` finds paths, `create.rs` and
//! `directory.rs` change and list names, `data.rs` and `streams.rs` have the contents, `attributes.rs`, `ea.rs` and
//! `security.rs` the rest of an inode's state. None takes locks in another order than `mod.rs` prescribes.

use std::sync::PoisonError;

use bytes::{Bytes, BytesMut};

use super::{
    PosixNode, PosixVfs, StreamStore,
    attributes::{Named, dos, normal},
    short_name,
    streams::{IN_XATTR_MAX, Place},
};
use crate::{
    Attr, DirName, FailedSync, FileKey, FsInfo, Identity, IoAccess, Kind, Listed, Lookup, NewModes,
    NewNode, Permissions, Permitted, Range, RemovedName, Seen, SetAttr, StreamInfo, StreamOpen,
    SyncScope, Timestamp, Vfs, VfsError, VfsResult, WriteMode,
    disk::{Disk, InMemory},
};

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
        if node.0.stream.is_some() {
            return self.stream_read(node, offset, len, buf).await;
        }
        // Offsets of Linux are signed, so no data lie beyond this.
        if i64::try_from(offset).is_err() {
            return Ok(buf);
        }
        self.read_all(node.fd(), offset, len, buf).await
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
        self.writable()?;
        if node.0.stream.is_some() {
            self.stream_write(node, offset, data).await?;
            if mode.durable {
                self.sync(node, SyncScope::All).await?;
            }
            return Ok(());
        }
        let end = offset.checked_add(data.len() as u64);
        if end.is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(VfsError::TooLarge);
        }
        self.write_all(node.fd(), offset, data, mode.durable).await
    }

    async fn set_size(&self, node: &Self::Node, size: u64) -> VfsResult<()> {
        self.writable()?;
        if node.0.stream.is_some() {
            return self.stream_set_size(node, size).await;
        }
        match self.cut(node.fd(), size).await {
            // A descriptor without write access: ftruncate returns EINVAL, or EBADF for O_PATH.
            Err(errno) if errno.is(&[libc::EINVAL]) && !node.0.io.write => {
                Err(VfsError::AccessDenied)
            }
            other => Ok(other?),
        }
    }

    async fn allocate(&self, node: &Self::Node, size: u64) -> VfsResult<()> {
        self.writable()?;
        let fd = match &node.0.stream {
            None => node.fd().clone(),
            Some(_) => match self.place(node).await? {
                // Nothing can be reserved in an attribute. A size that can never fit there is refused before it is
                // written; clients request whole clusters.
                Place::Xattr(_) => {
                    let fits = size.saturating_sub(1) <= IN_XATTR_MAX as u64
                        || self.options.streams == StreamStore::Depot;
                    return fits.then_some(()).ok_or(VfsError::TooLarge);
                }
                Place::Depot(fd) => fd,
            },
        };
        self.reserve(&fd, size).await
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
        self.writable()?;
        if from.0.stream.is_some() || to.0.stream.is_some() {
            return Err(VfsError::NotSupported);
        }
        let (source, target) = (from.fd(), to.fd());
        match self
            .disk
            .clone_range(source, from_offset, target, to_offset, len)
            .await
        {
            Err(errno) if errno.is(&[libc::EXDEV]) => Err(VfsError::NotSupported),
            other => Ok(other?),
        }
    }

    /// The attributes of a node (of the stream, for a stream node).
    async fn attr(&self, node: &Self::Node) -> VfsResult<Attr> {
        let stat = self.disk.stat(node.fd()).await?;
        let named = Named { dot: node.0.dot };
        let mut attr = self.attr_with(node.fd(), &stat, named).await?;
        if node.0.stream.is_some() {
            let (size, allocated) = self.stream_size(node).await?;
            attr.kind = Kind::File;
            attr.size = size;
            attr.allocated = allocated;
            attr.dos_attributes = normal(attr.dos_attributes & !(dos::DIRECTORY | dos::NORMAL));
        }
        Ok(attr)
    }

    async fn permissions(&self, node: &Self::Node) -> VfsResult<Permissions> {
        Ok(Seen::from(&self.disk.stat(node.fd()).await?).permissions)
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
        self.writable()?;
        if node.0.stream.is_some() {
            return Err(VfsError::InvalidArgument);
        }
        self.store_descriptor(node.fd(), sd.to_vec()).await
    }

    async fn read_link(&self, _node: &Self::Node) -> VfsResult<String> {
        // No policy shows a link as such: nodes are always the targets of links.
        Err(VfsError::NotSupported)
    }

    async fn sync(&self, node: &Self::Node, scope: SyncScope) -> VfsResult<()> {
        if node.0.kind == Kind::Special {
            // Opening a FIFO or a device affects the process at its other end, and it has no contents. Its names
            // are stable with their directories.
            return Ok(());
        }
        let fd = self.sync_fd(node).await.map_err(VfsError::before_sync)?;
        match &node.0.stream {
            // Attributes, the depot's mark, and the removal of an attribute that moved to the
            // depot are metadata of the inode: fdatasync would not make them stable. The depot comes first, so that a
            // stream is never in neither place.
            Some(stream) => self.depot_sync(node, stream.depot().as_ref()).await?,
            None => self.depot_sync(node, None).await?,
        }
        let synced = match scope {
            _ if node.0.kind == Kind::Directory => self.disk.sync_dir(&fd).await,
            SyncScope::Data if node.0.stream.is_none() => self.disk.fdatasync(&fd).await,
            SyncScope::Data | SyncScope::All => self.disk.fsync(&fd).await,
        };
        synced.map_err(VfsError::of_sync)
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
