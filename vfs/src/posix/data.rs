//! The data of files: complete reads and writes, sizes, holes, copies, syncs.
//!
//! A read ends early only at end of file, a write never. Descriptors have the access with which they were opened; the
//! kernel refuses everything else. An operation that needs a descriptor that a node does not have (a sync of an inode
//! opened by path only) opens one as the service.

use std::sync::atomic::Ordering::SeqCst;

use bytes::{Bytes, BytesMut};

use super::{
    PosixNode, PosixVfs, SERVICE, StreamStore,
    errno::{UNSUPPORTED, unless},
    streams::{IN_XATTR_MAX, StreamPlace},
};
use crate::{
    Contents, Identity, IoAccess, Kind, Node, Range, VfsError, VfsResult, Volume, WriteMode,
    disk::{Allocate, BTRFS, Disk, DiskResult, InMemory, OVERLAY},
};

/// Bytes copied at once if the kernel cannot do it.
const CHUNK: usize = 1 << 20;
/// Zeros that are written at once if the kernel cannot deallocate a range. All requests share them, because nobody is
/// charged for them.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
/// `f_type` of file systems on whose disk the last block of a truncated file keeps the removed data: btrfs (6.18: it
/// zeroes the block in memory when the file grows, and may commit the size before; `btrfs_fallocate` of a range that
/// ends behind the end of file has always done so, too), and overlayfs, which may lie on it.
const LEAVES_TAILS: [u64; 2] = [BTRFS, OVERLAY];

impl<D: Disk> Contents for PosixVfs<D> {
    async fn open(
        &self,
        who: &Identity,
        node: &PosixNode<D>,
        access: IoAccess,
    ) -> VfsResult<PosixNode<D>> {
        if access.write {
            self.writable()?;
        }
        if node.0.stream.is_some() {
            return self.open_stream_io(who, node, access).await;
        }
        let io = match node.0.kind {
            Kind::File => access,
            // A directory is never written through its descriptor.
            Kind::Directory => IoAccess {
                read: access.read,
                write: false,
            },
            Kind::SymbolicLink => return Err(VfsError::SymbolicLink),
            Kind::Special => return Err(VfsError::NotSupported),
        };
        if io == IoAccess::default() {
            return Ok(node.clone());
        }
        let fd = self.disk.reopen(who, node.fd(), io).await?;
        Ok(node.with_fd(fd, io))
    }

    async fn read(
        &self,
        node: &PosixNode<D>,
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

    fn in_memory(&self, node: &PosixNode<D>, offset: u64, len: usize) -> Option<Box<dyn InMemory>> {
        let readable = node.0.stream.is_none() && node.0.io.read;
        let fd = readable.then(|| node.fd())?;
        self.disk.in_memory(fd, offset, len)
    }

    fn keep_access_time(&self, node: &PosixNode<D>, keeps: bool) {
        // The descriptor of a stream's node is not its own, and to read a stream does not read the file.
        if node.0.stream.is_none() && node.0.io.read {
            self.disk.keep_access_time(node.fd(), keeps);
        }
    }

    fn keep_write_time(&self, node: &PosixNode<D>, keeps: bool) {
        if let Some(stream) = &node.0.stream {
            stream.keeps_write_time.store(keeps, SeqCst);
        }
    }

    async fn set_size(&self, node: &PosixNode<D>, size: u64) -> VfsResult<()> {
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

    async fn allocate(&self, node: &PosixNode<D>, size: u64) -> VfsResult<()> {
        self.writable()?;
        let fd = match &node.0.stream {
            None => node.fd().clone(),
            Some(_) => match self.place(node).await? {
                // Nothing can be reserved in an attribute. A size that can never fit there is refused before it is
                // written; clients request whole clusters.
                StreamPlace::Xattr(_) => {
                    let fits = size.saturating_sub(1) <= IN_XATTR_MAX as u64
                        || self.options.streams == StreamStore::Depot;
                    return VfsError::TooLarge.when(!fits);
                }
                StreamPlace::Depot(fd) => fd,
            },
        };
        self.reserve(&fd, size).await
    }

    async fn zero(&self, node: &PosixNode<D>, range: Range) -> VfsResult<()> {
        self.writable()?;
        let size = self.size_of(node).await?;
        let end = range.offset.saturating_add(range.len).min(size);
        let Some(len) = end.checked_sub(range.offset).filter(|len| *len > 0) else {
            return Ok(());
        };
        let fd = match &node.0.stream {
            None => node.fd().clone(),
            Some(stream) if !stream.io.write => return Err(VfsError::AccessDenied),
            Some(_) => match self.place(node).await? {
                StreamPlace::Depot(fd) => fd,
                StreamPlace::Xattr(_) => return self.write_zeros(node, range.offset, end).await,
            },
        };
        let punched = self.disk.allocate(&fd, Allocate::Punch, range.offset, len);
        match punched.await {
            Err(errno) if errno.unsupported() => {}
            other => {
                self.stream_modified(node).await;
                return Ok(other?);
            }
        }
        // A hole reads as zeros already. Writing zeros would allocate all of it.
        let mut at = range.offset;
        while at < end
            && let Some((data, hole)) = self.next_extent(&fd, at).await?
        {
            let hole = hole.min(end);
            self.write_zeros(node, data.max(at), hole).await?;
            at = hole;
        }
        Ok(())
    }

    async fn allocated(
        &self,
        node: &PosixNode<D>,
        within: Range,
        max: usize,
    ) -> VfsResult<Vec<Range>> {
        let size = self.size_of(node).await?;
        let end = within.offset.saturating_add(within.len).min(size);
        let mut found = Vec::new();
        let mut at = within.offset;
        while at < end && found.len() < max {
            let (data, hole) = match &node.0.stream {
                Some(_) => (at, end),
                None => match self.next_extent(node.fd(), at).await? {
                    Some((data, hole)) => (data.max(at), hole.min(end)),
                    None => break,
                },
            };
            if data >= end || hole <= data {
                break;
            }
            found.push(Range {
                offset: data,
                len: hole - data,
            });
            at = hole;
        }
        Ok(found)
    }

    async fn copy(
        &self,
        (from, from_offset): (&PosixNode<D>, u64),
        (to, to_offset): (&PosixNode<D>, u64),
        len: u64,
    ) -> VfsResult<u64> {
        self.writable()?;
        let mut done = 0;
        let mut kernel = from.0.stream.is_none() && to.0.stream.is_none();
        while done < len {
            let (source, target) = (from_offset.checked_add(done))
                .zip(to_offset.checked_add(done))
                .ok_or(VfsError::TooLarge)?;
            let left = len - done;
            if kernel {
                let (source, target) = ((from.fd(), source), (to.fd(), target));
                match self.disk.copy_range(source, target, left).await {
                    Ok(0) => break,
                    Ok(count) => done += count.min(left),
                    // For another file system, overlapping ranges, or a kernel without the call, the bytes are copied
                    // through memory.
                    Err(errno) if errno.unsupported() || errno.is(&[libc::EXDEV, libc::EINVAL]) => {
                        kernel = false;
                    }
                    Err(errno) => return Err(errno.into()),
                }
                continue;
            }
            let piece = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
            let data = self
                .read(from, source, piece, BytesMut::with_capacity(piece))
                .await?;
            let count = data.len();
            self.write(to, target, data.freeze(), WriteMode::default())
                .await?;
            done += count as u64;
            if count < piece {
                break;
            }
        }
        Ok(done)
    }

    async fn clone_range(
        &self,
        (from, from_offset): (&PosixNode<D>, u64),
        (to, to_offset): (&PosixNode<D>, u64),
        len: u64,
    ) -> VfsResult<()> {
        self.writable()?;
        VfsError::NotSupported.when(from.0.stream.is_some() || to.0.stream.is_some())?;
        let (source, target) = ((from.fd(), from_offset), (to.fd(), to_offset));
        match self.disk.clone_range(source, target, len).await {
            Err(errno) if errno.is(&[libc::EXDEV]) => Err(VfsError::NotSupported),
            other => Ok(other?),
        }
    }
}

impl<D: Disk> PosixVfs<D> {
    pub(super) async fn read_all(
        &self,
        fd: &D::Fd,
        offset: u64,
        len: usize,
        mut buf: BytesMut,
    ) -> VfsResult<BytesMut> {
        let start = buf.len();
        let mut have = 0;
        while have < len
            && let Some(at) = offset.checked_add(have as u64)
        {
            buf = self.disk.read(fd, at, len - have, buf).await?;
            let before = std::mem::replace(&mut have, buf.len() - start);
            if before == have {
                break;
            }
        }
        Ok(buf)
    }

    pub(super) async fn write_all(
        &self,
        fd: &D::Fd,
        offset: u64,
        mut data: Bytes,
        durable: bool,
    ) -> VfsResult<()> {
        let mut at = offset;
        while !data.is_empty() {
            let wrote = self.disk.write(fd, at, data.clone(), durable).await;
            let wrote = wrote.map_err(|errno| match durable {
                true => VfsError::of_durable_write(errno),
                false => errno.into(),
            })?;
            VfsError::Io.when(wrote == 0 || wrote > data.len())?;
            bytes::Buf::advance(&mut data, wrote);
            at = at.checked_add(wrote as u64).ok_or(VfsError::TooLarge)?;
        }
        Ok(())
    }

    /// `ftruncate`. The removed data must stay removed: where a file system leaves them in the last block on the
    /// disk, a reservation behind the new end makes it write zeros there. Otherwise a power cut between a later growth
    /// and the write-back of the zeros would show them again, although a FLUSH had made the truncation stable. Both
    /// calls change only what lies behind the end of file at their time, so nothing that others write is lost.
    pub(super) async fn cut(&self, fd: &D::Fd, size: u64) -> DiskResult<()> {
        let leaves_tail = self.leaves_tail(fd, size).await?;
        self.disk.truncate(fd, size).await?;
        if leaves_tail {
            // This can fail on a full disk; the file is truncated all the same.
            let zeroed = self.disk.allocate(fd, Allocate::Reserve, size, 1).await;
            zeroed.unwrap_or_else(|errno| {
                tracing::debug!(errno = errno.0, "a truncated file's tail keeps old data");
            });
        }
        Ok(())
    }

    /// Whether a truncation to `size` leaves removed data in the last block on the disk.
    async fn leaves_tail(&self, fd: &D::Fd, size: u64) -> DiskResult<bool> {
        // No block is longer than a page.
        if size.is_multiple_of(rustix::param::page_size() as u64)
            || self.disk.stat(fd).await?.size <= size
        {
            return Ok(false);
        }
        let system = self.disk.stat_fs(fd).await?;
        Ok(LEAVES_TAILS.contains(&system.kind) && !size.is_multiple_of(system.block))
    }

    /// Reserves space of a file up to `size` bytes. On a file system that cannot, the size is only a hint.
    pub(super) async fn reserve(&self, fd: &D::Fd, size: u64) -> VfsResult<()> {
        let stat = self.disk.stat(fd).await?;
        if size == 0 || stat.blocks.saturating_mul(512) >= size {
            return Ok(());
        }
        // A request for more than there is would take all free space before it fails, and others would find the disk
        // full meanwhile.
        let free = self.disk.stat_fs(fd).await?;
        let missing = size - stat.blocks.saturating_mul(512);
        VfsError::NoSpace.when(free.block.saturating_mul(free.available) < missing)?;
        // Space that was reserved before a failure stays until the file is truncated or closed: truncating here
        // could remove data that another client has written behind the end meanwhile.
        let reserved = self.disk.allocate(fd, Allocate::Reserve, 0, size).await;
        unless(reserved, &UNSUPPORTED).map(drop)
    }

    async fn write_zeros(&self, node: &PosixNode<D>, from: u64, to: u64) -> VfsResult<()> {
        let mut at = from;
        while at < to {
            let left = usize::try_from(to - at).unwrap_or(usize::MAX);
            let piece = left.min(ZEROS.len());
            let zeros = Bytes::from_static(&ZEROS).slice(..piece);
            self.write(node, at, zeros, WriteMode::default()).await?;
            at += piece as u64;
        }
        Ok(())
    }

    async fn size_of(&self, node: &PosixNode<D>) -> VfsResult<u64> {
        if node.0.stream.is_some() {
            return Ok(self.stream_size(node).await?.0);
        }
        Ok(self.disk.stat(node.fd()).await?.size)
    }

    /// The next run of data at or after `at`; all the rest if holes are not known.
    async fn next_extent(&self, fd: &D::Fd, at: u64) -> VfsResult<Option<(u64, u64)>> {
        let data = match self.disk.seek(fd, at, true).await {
            Ok(data) => data,
            Err(errno) if errno.is(&[libc::ENXIO]) => return Ok(None),
            Err(errno) if errno.unsupported() || errno.is(&[libc::EINVAL]) => {
                return Ok(Some((at, u64::MAX)));
            }
            Err(errno) => return Err(errno.into()),
        };
        let hole = self.disk.seek(fd, data, false).await;
        Ok(unless(hole, &[libc::ENXIO])?.map(|hole| (data, hole)))
    }

    /// Makes the metadata of an inode stable that is not opened for that: opening a FIFO, socket or device would affect
    /// the process at its other end, and others the service may not open. Its file system is synced through the
    /// directory that has it, or through the root if that directory is not known or may not be opened either. An inode
    /// that has no name any more does not survive a power failure, so nothing is synced for it.
    pub(super) async fn sync_from_above(&self, node: &PosixNode<D>) -> VfsResult<()> {
        let above = self.parent_of(node).await.map_err(VfsError::before_sync)?;
        let above = match above {
            Some(above) => above,
            None if self.links(node).await.map_err(VfsError::before_sync)? == 0 => return Ok(()),
            None if node.key().fs == self.root.key().fs => self.root.clone(),
            None => return Err(VfsError::NotStarted),
        };
        let fd = match self.own_fd(&above).await {
            Err(VfsError::AccessDenied) if above.key().fs == self.root.key().fs => {
                self.own_fd(&self.root).await
            }
            fd => fd,
        };
        let fd = fd.map_err(VfsError::before_sync)?;
        self.sync_file_system(&above, &fd).await
    }

    /// A descriptor of the inode that nobody else uses.
    pub(super) async fn own_fd(&self, node: &PosixNode<D>) -> VfsResult<D::Fd> {
        match self.disk.reopen(&SERVICE, node.fd(), IoAccess::READ).await {
            // A file that a server without privileges may write but not read.
            Err(errno) if errno.is(&[libc::EACCES]) && node.0.kind == Kind::File => Ok(self
                .disk
                .reopen(&SERVICE, node.fd(), IoAccess::WRITE)
                .await?),
            other => Ok(other?),
        }
    }
}
