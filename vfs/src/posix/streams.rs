//! Named streams: in attributes as Samba's `streams_xattr` keeps them (with a NUL after the data), or in the depot, as
//! the share's options say ([`StreamStore`]).
//!
//! Streams that are already in the other place are found, read and written too. If a share keeps streams in the depot,
//! one in an attribute is moved there when it is written; one in the depot stays until the share is converted. If a
//! stream is in both (after a power cut in the middle of a move), the attribute counts, because writing or removing it
//! completes a move. Every read-modify-write of an attribute holds the inode's lock.
//!
//! Stream names compare without case, and may have any characters but NUL, `/`, `\` and `:`.

use std::sync::atomic::Ordering::SeqCst;

use bytes::{Bytes, BytesMut};

use super::{
    PosixNode, PosixVfs, SERVICE, StreamStore,
    attributes::{R_OK, W_OK},
    depot::STREAMS_MAX,
    ea::check_names,
    errno::{ABSENT, unless},
    name,
    node::Stream,
    samba_xattr::{PARTS_MAX, second_attribute, stream_attribute, stream_file},
    stream_names::Stored,
};
use crate::{
    FailedBy, Identity, IoAccess, NamedStreams, StreamInfo, StreamOpen, VfsError, VfsResult,
    disk::{Disk, NOW, XattrSet},
};

/// Most bytes of a stream in an attribute: the limit of Linux (`XATTR_SIZE_MAX`), without the NUL. Most file systems
/// allow less (ext4 has one block for all attributes of an inode).
pub(super) const IN_XATTR_MAX: usize = 65_535;

/// The present place of a stream's bytes.
pub(super) enum StreamPlace<F> {
    Xattr(Vec<u8>),
    Depot(F),
}

impl<D: Disk> NamedStreams for PosixVfs<D> {
    fn check_stream_name(&self, name: &str) -> VfsResult<()> {
        check_stream_name(name)?;
        match self.options.streams {
            StreamStore::Xattr if stream_attribute(name).is_none() => Err(VfsError::NameTooLong),
            StreamStore::Xattr | StreamStore::Depot => Ok(()),
        }
    }

    async fn open_stream(
        &self,
        who: &Identity,
        node: &PosixNode<D>,
        asked: &str,
        how: StreamOpen,
    ) -> VfsResult<(PosixNode<D>, bool)> {
        check_stream_name(asked)?;
        VfsError::InvalidArgument.when(node.0.stream.is_some())?;
        let _inode = self.locks.inode(node.0.key).await;
        let (others, names) = match self.stored_stream(node, asked).await? {
            Stored::As(_) if how == StreamOpen::New => return Err(VfsError::Exists),
            Stored::As(stored) => return Ok((node.unopened_stream(stored), false)),
            Stored::Not { others, names } => (others, names),
        };
        VfsError::NotFound.when(how == StreamOpen::Existing)?;
        self.writable()?;
        // With one more stream, none of the file's streams could be listed.
        VfsError::TooLarge.when(others >= STREAMS_MAX)?;
        self.may_change(who, node.fd()).await?;
        let depot = match self.options.streams {
            StreamStore::Depot => Some(self.depot_create(node, asked).await?),
            StreamStore::Xattr => {
                let attribute = stream_attribute(asked).ok_or(VfsError::NameTooLong)?;
                check_names(names + attribute.len() + 1)?;
                let set = self.set_stream_attribute(node, &attribute, &[], XattrSet::Create);
                set.await?;
                None
            }
        };
        let stream = Stream::new(asked.to_owned(), IoAccess::BOTH, depot);
        Ok((node.with_stream(stream), true))
    }

    fn carrier(&self, node: &PosixNode<D>) -> PosixNode<D> {
        node.changed(|_| ())
    }

    async fn streams(&self, node: &PosixNode<D>) -> VfsResult<Vec<StreamInfo>> {
        self.all_streams(node).await
    }

    async fn remove_stream(&self, who: &Identity, node: &PosixNode<D>) -> VfsResult<()> {
        self.writable()?;
        let stream = Self::base_of(node)?;
        self.may_change(who, node.fd()).await?;
        let _inode = self.locks.inode(node.0.key).await;
        self.drop_stream(node, &stream.name).await
    }

    async fn rename_stream(
        &self,
        who: &Identity,
        node: &PosixNode<D>,
        to: &str,
        replace: bool,
    ) -> VfsResult<PosixNode<D>> {
        self.writable()?;
        check_stream_name(to)?;
        let stream = Self::base_of(node)?;
        self.may_change(who, node.fd()).await?;
        // Opens of the stream's file, and of the inode for its sync, may wait for a program on the host that has a
        // lease, and other files share the lock. While a file is open here, no program gets a lease that delays the
        // next open.
        self.place(node).await?;
        let _open = self.own_fd(node).await.ok();
        let _inode = self.locks.inode(node.0.key).await;
        if to == stream.name {
            return Ok(node.clone());
        }
        let target = match self.stored_stream(node, to).await? {
            Stored::As(target) => Some(target).filter(|target| *target != stream.name),
            Stored::Not { names, .. } => {
                let longer = to.len().saturating_sub(stream.name.len());
                if longer > 0 && self.options.streams == StreamStore::Xattr {
                    check_names(names + longer)?;
                }
                None
            }
        };
        VfsError::Exists.when(target.is_some() && !replace)?;
        // A stream whose name has another case is replaced in one step, which then changes the case. As with files, a
        // failure there only concerns the case.
        let at = target.as_deref().unwrap_or(to);
        let mut renamed = self.move_stream(node, at).await?;
        if at != to {
            match Box::pin(self.move_stream(&renamed, to)).await {
                Ok(cased) => renamed = cased,
                Err(error) => tracing::debug!(%error, "a replaced stream keeps its case"),
            }
        }
        self.stream_modified(&renamed).await;
        Ok(renamed)
    }
}

impl<D: Disk> PosixVfs<D> {
    pub(super) fn base_of(node: &PosixNode<D>) -> VfsResult<&Stream<D>> {
        node.0.stream.as_ref().ok_or(VfsError::InvalidArgument)
    }

    /// Stores a stream's bytes in its attribute. `TooLarge` if the file system has room, but none in
    /// the attributes of the inode.
    pub(super) async fn set_stream_attribute(
        &self,
        node: &PosixNode<D>,
        attribute: &str,
        data: &[u8],
        how: XattrSet,
    ) -> VfsResult<()> {
        VfsError::TooLarge.when(data.len() > IN_XATTR_MAX)?;
        let mut value = Vec::with_capacity(data.len() + 1);
        value.extend_from_slice(data);
        value.push(0);
        let fd = node.fd();
        self.set_xattr(&SERVICE, fd, attribute, &value, how).await
    }

    /// Opens the stream for I/O as `who`; the access is that of the inode that carries it.
    pub(super) async fn open_stream_io(
        &self,
        who: &Identity,
        node: &PosixNode<D>,
        io: IoAccess,
    ) -> VfsResult<PosixNode<D>> {
        let stream = Self::base_of(node)?;
        let mode = if io.read { R_OK } else { 0 } | if io.write { W_OK } else { 0 };
        if mode != 0 {
            self.disk.access(who, node.fd(), mode).await?;
        }
        let stream = Stream::new(stream.name.clone(), io, stream.depot());
        Ok(node.with_stream(stream))
    }

    /// Where the stream is now; `NotFound` if it was removed.
    pub(super) async fn place(&self, node: &PosixNode<D>) -> VfsResult<StreamPlace<D::Fd>> {
        let stream = Self::base_of(node)?;
        if let Some(fd) = stream.depot() {
            return Ok(StreamPlace::Depot(fd));
        }
        if let Some(value) = self.in_attribute(node, &stream.name).await? {
            return Ok(StreamPlace::Xattr(value));
        }
        // This happens once for each open of a stream, and the futures of READ and QUERY_INFO need not carry it.
        let opened = Box::pin(self.depot_open(node, &stream.name)).await?;
        let fd = opened.ok_or(VfsError::NotFound)?;
        stream.set_depot(fd.clone());
        Ok(StreamPlace::Depot(fd))
    }

    /// The bytes of a stream that has an attribute.
    pub(super) async fn in_attribute(
        &self,
        node: &PosixNode<D>,
        stream: &str,
    ) -> VfsResult<Option<Vec<u8>>> {
        let Some(attribute) = stream_attribute(stream) else {
            return Ok(None);
        };
        let mut found = self.xattr(node.fd(), &attribute).await?;
        let last = found.as_ref().and_then(|value| value.last().copied());
        // Samba adds a NUL. A value without one was not written by Samba, so nothing is removed from it.
        if let (Some(0), Some(value)) = (last, &mut found) {
            value.pop();
        } else if last.is_some_and(|last| last <= PARTS_MAX)
            && let Some(second) = second_attribute(stream)
            && Box::pin(self.xattr(node.fd(), &second)).await?.is_some()
        {
            // To show or change the first of several parts alone would damage the stream.
            return Err(VfsError::NotSupported);
        }
        Ok(found)
    }

    pub(super) async fn stream_size(&self, node: &PosixNode<D>) -> VfsResult<(u64, u64)> {
        Ok(match self.place(node).await? {
            StreamPlace::Xattr(value) => (value.len() as u64, value.len() as u64),
            StreamPlace::Depot(fd) => {
                let stat = self.disk.stat(&fd).await?;
                (stat.size, stat.blocks.saturating_mul(512))
            }
        })
    }

    /// Moves a stream from its attribute, which holds `data`, to the depot. The caller holds the
    /// inode's lock.
    pub(super) async fn move_to_depot(&self, node: &PosixNode<D>, data: &[u8]) -> VfsResult<D::Fd> {
        let stream = Self::base_of(node)?;
        let attribute = stream_attribute(&stream.name).ok_or(VfsError::NotFound)?;
        let fd = match self.depot_create(node, &stream.name).await {
            // A file that an interrupted move has left is not the stream.
            Err(VfsError::Exists) => {
                self.depot_remove(node, &stream.name).await?;
                self.depot_create(node, &stream.name).await?
            }
            made => made?,
        };
        if let Err(error) = self.fill_and_sync(node, &fd, data).await {
            self.depot_remove(node, &stream.name).await?;
            return Err(error);
        }
        self.disk
            .remove_xattr(&SERVICE, node.fd(), &attribute)
            .await?;
        stream.set_depot(fd.clone());
        Ok(fd)
    }

    /// Fills a stream's new file in the depot. The data in the attribute, or at least the existence of the stream, may
    /// already be stable, so the data must be stable in the new file before the attribute is removed.
    async fn fill_and_sync(&self, node: &PosixNode<D>, fd: &D::Fd, data: &[u8]) -> VfsResult<()> {
        if !data.is_empty() {
            let data = Bytes::copy_from_slice(data);
            self.write_all(fd, 0, data, false).await?;
        }
        let synced = self.depot_sync(node, Some(fd)).await;
        synced.inspect_err(|error| self.sync_failed(node, *error, FailedBy::Sync))?;
        self.sync_base(node, true).await
    }

    /// Makes the inode that carries a stream stable, with the mark that leads to the depot if it has one. A failure
    /// is reported to the listener that accounts for the rest of the dirty state.
    pub(super) async fn sync_base(&self, node: &PosixNode<D>, marked: bool) -> VfsResult<()> {
        // The failure of another sync may have lost the mark, and is reported once to each descriptor that was open
        // then: so this one opens its own, and sets the mark once more.
        let fd = self.own_fd(node).await.map_err(VfsError::before_sync)?;
        if marked {
            self.mark(node).await.map_err(VfsError::before_sync)?;
        }
        let stat = self.disk.stat(&fd).await;
        let stat = stat.map_err(|errno| VfsError::from(errno).before_sync())?;
        // A sync of a directory alone would also make stable that names were moved out of it, perhaps before their new
        // places are stable.
        let synced = match stat.mode & libc::S_IFMT == libc::S_IFDIR {
            true => self.sync_file_system(node, &fd).await,
            false => self.disk.fsync(&fd).await.map_err(VfsError::of_sync),
        };
        synced.inspect_err(|error| self.sync_failed(node, *error, FailedBy::Sync))
    }

    pub(super) async fn stream_read(
        &self,
        node: &PosixNode<D>,
        offset: u64,
        len: usize,
        mut buf: BytesMut,
    ) -> VfsResult<BytesMut> {
        VfsError::AccessDenied.when(!Self::base_of(node)?.io.read)?;
        match self.place(node).await? {
            StreamPlace::Depot(fd) => self.read_all(&fd, offset, len, buf).await,
            StreamPlace::Xattr(value) => {
                let start = usize::try_from(offset)
                    .unwrap_or(usize::MAX)
                    .min(value.len());
                let rest = value.get(start..).unwrap_or_default();
                buf.extend_from_slice(rest.get(..len).unwrap_or(rest));
                Ok(buf)
            }
        }
    }

    /// Checks that a stream may be changed through a node, and opens its file in the depot. The open may wait for a
    /// program on the host that has a lease on that file, and other files share the lock of the inode.
    async fn open_ahead(&self, node: &PosixNode<D>) -> VfsResult<()> {
        VfsError::AccessDenied.when(!Self::base_of(node)?.io.write)?;
        if self.options.streams == StreamStore::Depot {
            self.place(node).await?;
        }
        Ok(())
    }

    pub(super) async fn stream_write(
        &self,
        node: &PosixNode<D>,
        offset: u64,
        data: Bytes,
    ) -> VfsResult<()> {
        self.open_ahead(node).await?;
        let _inode = self.locks.inode(node.0.key).await;
        let end = offset
            .checked_add(data.len() as u64)
            .ok_or(VfsError::TooLarge)?;
        let fd = match self.place(node).await? {
            StreamPlace::Depot(fd) => fd,
            StreamPlace::Xattr(value) if self.options.streams == StreamStore::Depot => {
                self.move_to_depot(node, &value).await?
            }
            StreamPlace::Xattr(mut value) => {
                let start = within_attribute(offset)?;
                let end = within_attribute(end)?;
                if value.len() < end {
                    value.resize(end, 0);
                }
                if let Some(place) = value.get_mut(start..end) {
                    place.copy_from_slice(&data);
                }
                return self.rewrite(node, &value).await;
            }
        };
        let wrote = self.write_all(&fd, offset, data, false).await;
        if let Err(error) = wrote
            && Box::pin(self.takes_failures(&fd, error)).await
        {
            // The sync of the stream goes through this descriptor, too.
            self.sync_failed(node, error, FailedBy::Write);
        }
        // A part may have been written.
        self.stream_modified(node).await;
        wrote
    }

    pub(super) async fn stream_set_size(&self, node: &PosixNode<D>, size: u64) -> VfsResult<()> {
        self.open_ahead(node).await?;
        let _inode = self.locks.inode(node.0.key).await;
        let fd = match self.place(node).await? {
            StreamPlace::Depot(fd) => fd,
            StreamPlace::Xattr(value) if self.options.streams == StreamStore::Depot => {
                self.move_to_depot(node, &value).await?
            }
            StreamPlace::Xattr(mut value) => {
                value.resize(within_attribute(size)?, 0);
                return self.rewrite(node, &value).await;
            }
        };
        self.cut(&fd, size).await?;
        self.stream_modified(node).await;
        Ok(())
    }

    /// Moves the write time of the file whose stream was just changed through `node` ([MS-FSA] 2.1.4.17): the kernel
    /// does that only for the unnamed stream. Every sync of a stream covers it, because that syncs the file, too.
    pub(super) async fn stream_modified(&self, node: &PosixNode<D>) {
        let Some(stream) = &node.0.stream else {
            return;
        };
        if stream.keeps_write_time.load(SeqCst) {
            return;
        }
        let set = (self.disk).set_times(&SERVICE, node.fd(), None, Some(NOW));
        // A service that is not root may write files whose times only their owner may set.
        set.await.unwrap_or_else(|errno| {
            tracing::debug!(
                errno = errno.0,
                "a changed stream does not show on its file"
            );
        });
    }

    /// Replaces the bytes of a stream in an attribute. The caller holds the inode's lock.
    async fn rewrite(&self, node: &PosixNode<D>, data: &[u8]) -> VfsResult<()> {
        let stream = Self::base_of(node)?;
        let attribute = stream_attribute(&stream.name).ok_or(VfsError::NotFound)?;
        self.set_stream_attribute(node, &attribute, data, XattrSet::Replace)
            .await?;
        self.stream_modified(node).await;
        Ok(())
    }

    /// Removes a stream from both places; `NotFound` if it is in neither.
    pub(super) async fn drop_stream(&self, node: &PosixNode<D>, name: &str) -> VfsResult<()> {
        let attribute = self.attribute_there(node, name).await?;
        // The file in the depot is removed first: a power cut in between leaves the attribute, which counts.
        let mut gone = self.depot_remove(node, name).await?;
        if let Some(attribute) = attribute {
            gone |= self.drop_attribute(node, &attribute).await?;
        }
        VfsError::NotFound.when(!gone)
    }

    pub(super) async fn attribute_there(
        &self,
        node: &PosixNode<D>,
        stream: &str,
    ) -> VfsResult<Option<String>> {
        let Some(attribute) = stream_attribute(stream) else {
            return Ok(None);
        };
        let there = self.xattr(node.fd(), &attribute).await?;
        Ok(there.map(|_| attribute))
    }

    /// Removes an attribute of the inode, and returns whether it existed.
    pub(super) async fn drop_attribute(
        &self,
        node: &PosixNode<D>,
        attribute: &str,
    ) -> VfsResult<bool> {
        let gone = self.disk.remove_xattr(&SERVICE, node.fd(), attribute);
        Ok(unless(gone.await, &ABSENT)?.is_some())
    }
}

/// Checks that a size or offset lies within an attribute.
fn within_attribute(bytes: u64) -> VfsResult<usize> {
    let within = usize::try_from(bytes).ok();
    within
        .filter(|bytes| *bytes <= IN_XATTR_MAX)
        .ok_or(VfsError::TooLarge)
}

/// [MS-FSCC] 2.1.5.3: checks the name of a stream.
pub(super) fn check_stream_name(asked: &str) -> VfsResult<()> {
    VfsError::InvalidName.when(asked.is_empty() || asked.contains(['\0', '/', '\\', ':']))?;
    let length = asked.encode_utf16().take(name::SHOWN_MAX + 1).count();
    VfsError::NameTooLong.when(length > name::SHOWN_MAX || stream_file(asked).is_none())
}
