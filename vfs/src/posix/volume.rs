//! The inodes of a [`PosixVfs`]: their present state, and what makes them stable ([`Volume`]).
//!
//! The other traits of [`Vfs`] are implemented in the file of their subject: `lookup.rs` finds paths, `create.rs` and
//! `directory.rs` change and list names, `data.rs` and `streams.rs` have the contents, `attributes.rs`, `ea.rs` and
//! `security.rs` the rest of an inode's state. No method takes locks in another order than `mod.rs` prescribes.

use std::sync::PoisonError;

use bytes::Bytes;

use super::{
    PosixNode, PosixVfs, SERVICE,
    attributes::{Named, normal},
    dos,
    errno::unless,
    lookup::Child,
};
use crate::{
    Attr, FailedSync, IoAccess, Kind, Node, Range, SyncScope, Vfs, VfsError, VfsResult, Volume,
    WriteMode,
    disk::{Disk, NFS},
};

impl<D: Disk> Vfs for PosixVfs<D> {}

impl<D: Disk> Volume for PosixVfs<D> {
    type Node = PosixNode<D>;

    fn root(&self) -> PosixNode<D> {
        self.root.clone()
    }

    async fn write(
        &self,
        node: &PosixNode<D>,
        offset: u64,
        data: Bytes,
        mode: WriteMode,
    ) -> VfsResult<()> {
        self.writable()?;
        if node.0.stream.is_some() {
            // Boxed, because the future of every WRITE of a file would have room for it otherwise.
            let written = Box::pin(async move {
                self.stream_write(node, offset, data).await?;
                match mode.durable {
                    true => self.sync(node, SyncScope::All).await,
                    false => Ok(()),
                }
            });
            return written.await;
        }
        let end = offset.checked_add(data.len() as u64);
        VfsError::TooLarge.when(end.is_none_or(|end| i64::try_from(end).is_err()))?;
        let wrote = self.write_all(node.fd(), offset, data, mode.durable).await;
        if let (true, Err(error @ VfsError::TooLarge)) = (mode.durable, wrote)
            && Box::pin(self.takes_failures(node.fd(), error)).await
        {
            // It may be the error of the sync, and a sync that fails so has lost data.
            return Err(VfsError::Io);
        }
        wrote
    }

    async fn attr(&self, node: &PosixNode<D>) -> VfsResult<Attr> {
        let stat = self.disk.stat(node.fd()).await?;
        let named = node.0.named;
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

    async fn links(&self, node: &PosixNode<D>) -> VfsResult<u32> {
        Ok(self.disk.stat(node.fd()).await?.links)
    }

    async fn sync(&self, node: &PosixNode<D>, scope: SyncScope) -> VfsResult<()> {
        if node.0.kind == Kind::Special {
            return self.sync_from_above(node).await;
        }
        // `fsync` accepts no descriptor with `O_PATH`.
        let fd = match node.0.io == IoAccess::default() {
            true => self.own_fd(node).await,
            false => Ok(node.fd().clone()),
        };
        let fd = match fd {
            // Without root there are such files and directories. Only metadata and names are changed through the node.
            // The service cannot read the depot's mark either, and each changed stream is synced through its own node.
            Err(VfsError::AccessDenied) if node.0.stream.is_none() => {
                return self.sync_from_above(node).await;
            }
            fd => fd.map_err(VfsError::before_sync)?,
        };
        // Attributes, the depot's mark, and the removal of an attribute that moved to the
        // depot are metadata of the inode: fdatasync would not make them stable. The depot comes first, so that a
        // stream is never in neither place.
        let file = (node.0.stream.as_ref()).and_then(|stream| stream.depot());
        self.depot_sync(node, file.as_ref()).await?;
        let synced = match scope {
            _ if node.0.kind == Kind::Directory => self.disk.sync_dir(&fd).await,
            SyncScope::Data if node.0.stream.is_none() => self.disk.fdatasync(&fd).await,
            SyncScope::Data | SyncScope::All => self.disk.fsync(&fd).await,
        };
        synced.map_err(VfsError::of_sync)
    }

    fn on_failed_sync(&self, listener: FailedSync<PosixNode<D>>) {
        let known = self.failed_sync.write();
        *known.unwrap_or_else(PoisonError::into_inner) = Some(listener);
    }

    fn start_write_back(&self, node: &PosixNode<D>, range: Range) {
        if node.0.stream.is_none() && node.0.io != IoAccess::default() {
            self.disk
                .start_write_back(node.fd(), range.offset, range.len);
        }
    }

    fn renames_are_atomic(&self, fs: u64) -> bool {
        self.disk.renames_are_atomic(fs)
    }

    fn with_path<T>(&self, node: &PosixNode<D>, look: impl FnOnce(&[u8]) -> T) -> Option<T> {
        self.disk.with_path(node.fd(), look)
    }

    /// As root, the service may read every file. Otherwise, a file that it may write but not read is kept open by the
    /// descriptor that writes.
    async fn keeper(&self, node: &PosixNode<D>) -> Option<PosixNode<D>> {
        let is_file = node.0.kind == Kind::File && node.0.stream.is_none();
        let is_unopened = is_file && node.0.io == IoAccess::default();
        if !node.forbids_execution() && !is_unopened {
            return None;
        }
        if let Some(known) = node.0.keeper.get() {
            return Some(known.clone());
        }
        // The future is on the heap, because this happens only once for each handle.
        let opened = Box::pin(self.disk.reopen(&SERVICE, node.fd(), IoAccess::READ)).await;
        let opened = opened.inspect_err(|errno| {
            tracing::debug!(
                errno = errno.0,
                "a changed file cannot be run before it is synced"
            );
        });
        let keeper = node.with_fd(opened.ok()?, IoAccess::READ);
        Some(node.0.keeper.get_or_init(|| keeper).clone())
    }

    /// The directory is not known, so its file system is synced. The sync of a FIFO, socket or device does that anyway.
    async fn sync_unknown_name(&self, node: &PosixNode<D>) -> VfsResult<()> {
        if !self.disk.is_path_unknown(node.fd())
            || node.0.kind == Kind::Special
            || self.links(node).await.map_err(VfsError::before_sync)? == 0
        {
            return Ok(());
        }
        let fd = self.own_fd(node).await.map_err(VfsError::before_sync)?;
        self.sync_file_system(node, &fd).await
    }

    /// The directory that holds the present name of a node, as the kernel reports it. No client named it, so nothing is
    /// folded and no link is followed.
    async fn parent_of(&self, node: &PosixNode<D>) -> VfsResult<Option<PosixNode<D>>> {
        let path = self
            .disk
            .path_hint(node.fd())
            .filter(|path| !path.is_empty());
        let Some(path) = path else {
            return Ok(None);
        };
        let mut above: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
        let Some(own) = above.pop() else {
            return Ok(None);
        };
        let mut at = self.root.clone();
        for name in above {
            match self.open_child(&SERVICE, at.fd(), name).await? {
                Some(Child::Inode(fd, stat)) => {
                    at = PosixNode::path_only(fd, &stat, Named::default(), None);
                }
                // The directory was moved meanwhile.
                _ => return Ok(None),
            }
        }
        // If something was mounted over a directory above it, the path leads to a directory without this name. The
        // inode is asked again, because its number may have changed with the first write (overlayfs).
        let named = self.disk.stat_at(at.fd(), own).await;
        let Some(named) = unless(named, &[libc::ENOENT])? else {
            return Ok(None);
        };
        let is_it = named.key == self.disk.stat(node.fd()).await?.key;
        Ok(is_it.then_some(at))
    }
}

impl<D: Disk> PosixVfs<D> {
    /// Whether `fd` is on NFS, and a write through it that failed with `error` may have reported the failure of an
    /// earlier write-back.
    pub(super) async fn takes_failures(&self, fd: &D::Fd, error: VfsError) -> bool {
        error.may_be_of_earlier_write()
            && !self.disk.is_local(fd)
            && (self.disk.stat_fs(fd).await).map_or(true, |system| system.kind == NFS)
    }
}
