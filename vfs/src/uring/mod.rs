//! A real disk through the worker's io_uring.
//!
//! Cached reads, opens and stats are answered inline as by [`SysDisk`]: that is cheaper than any ring. Operations
//! that wait for the device go to the ring of the polling thread ([`UringWorker`]): cold reads, writes, and
//! creating, removing and renaming names, under the user's registered personality. Everything else, and everything
//! on a thread without a ring or when the ring is full, is done by [`SysDisk`].
//!
//! Syncs and durable writes stay on the pool's sync lane: on the ring they merge into fewer flushes at best equally
//! well, and would keep its few kernel threads from plain writes. On FUSE reads and writes stay there too
//! ([`crate::linux`], `Class`).

#[allow(unsafe_code)] // The ring's memory.
mod sys;
#[cfg(test)]
mod tests;
mod worker;

use std::{ffi::CString, path::Path};

use bytes::{Bytes, BytesMut};
use io_uring::types;

pub use worker::{PERSONALITIES_MAX, Reason, UringOptions, UringWorker, on_park, probe};

use crate::{
    Identity, Timestamp,
    disk::{
        Allocate, Created, Disk, DiskResult, EntriesLooked, EntryAttrs, Errno, InMemory, Mark,
        OpenHow, RawEntry, Stat, StatFs, Wanted, XattrSet, check_name,
    },
    linux::{Attempt, LinuxFd, RESOLVE, SysDisk, create_mode, open_flags},
};
use sys::{Operation, Outcome};
use worker::Op;

/// The errors of the ring after which the pool tries instead.
const RETRY_ON_POOL: [i32; 4] = [libc::EAGAIN, libc::EINTR, libc::ECANCELED, libc::EOPNOTSUPP];

/// A directory tree of a real file system, by the polling thread's ring.
#[derive(Debug, Clone)]
pub struct UringDisk {
    calls: SysDisk,
}

/// The result of an attempt to use the ring.
enum Ringed<T> {
    Done(DiskResult<T>),
    /// No ring, no room, or the ring cannot: the pool shall do it.
    Pool,
}

fn c_name(name: &[u8]) -> DiskResult<CString> {
    check_name(name)?;
    CString::new(name).map_err(|_| Errno(libc::EINVAL))
}

impl UringDisk {
    /// Opens the directory `path` as the root of a disk. Threads need a [`UringWorker`] to use
    /// their ring; without one everything works as with [`SysDisk`].
    ///
    /// # Errors
    /// As [`SysDisk::open`].
    pub fn open(path: &Path) -> DiskResult<Self> {
        Ok(Self {
            calls: SysDisk::open(path)?,
        })
    }

    /// The disk to which it falls back.
    pub(crate) fn calls(&self) -> &SysDisk {
        &self.calls
    }

    /// Runs an operation on names as `who`.
    async fn names(&self, who: &Identity, operation: Operation) -> Ringed<Outcome> {
        let Some(local) = worker::local() else {
            return Ringed::Pool;
        };
        let personality = match local.personality(who) {
            Ok(id) => id,
            Err(Errno(libc::EPERM)) => return Ringed::Done(Err(Errno(libc::EPERM))),
            Err(_) => return Ringed::Pool,
        };
        match Op::new(local, operation, personality).await {
            Err(_) => Ringed::Pool,
            // Names are not repeated after "cancelled": it may have happened.
            Ok((_, Outcome::Failed(Errno(libc::EAGAIN)))) => Ringed::Pool,
            Ok((_, Outcome::Failed(e))) => Ringed::Done(Err(e)),
            Ok((_, outcome)) => Ringed::Done(Ok(outcome)),
        }
    }
}

impl Disk for UringDisk {
    type Fd = LinuxFd;

    fn root(&self) -> LinuxFd {
        self.calls.root()
    }

    async fn open_at(
        &self,
        who: &Identity,
        dir: &LinuxFd,
        name: &[u8],
        how: OpenHow,
    ) -> DiskResult<LinuxFd> {
        let c_name = c_name(name)?;
        if let Attempt::Done(result) = self.calls.try_open(who, dir, name, how) {
            return result;
        }
        // A cold lookup goes to the pool, which reads the attributes' block along with it.
        if how.create.is_some() && !how.path_only {
            let flags = u64::from(open_flags(how).bits());
            let mode = u64::from(create_mode(how).as_raw_mode());
            let how = types::OpenHow::new()
                .flags(flags)
                .mode(mode)
                .resolve(RESOLVE.bits());
            let dir = dir.clone();
            let operation = Operation::Open {
                dir,
                name: c_name,
                how: Box::new(how),
            };
            match self.names(who, operation).await {
                Ringed::Done(Ok(Outcome::Descriptor(fd))) => return Ok(LinuxFd::new(fd, false)),
                Ringed::Done(Ok(_)) => return Err(Errno(libc::EIO)),
                Ringed::Done(Err(e)) => return Err(e),
                Ringed::Pool => {}
            }
        }
        self.calls.pool_open(who, dir, name, how).await
    }

    fn service_uid(&self) -> u32 {
        self.calls.service_uid()
    }

    fn is_local(&self) -> bool {
        self.calls.is_local()
    }

    fn open_now(
        &self,
        who: &Identity,
        dir: &LinuxFd,
        name: &[u8],
        how: OpenHow,
    ) -> Option<DiskResult<LinuxFd>> {
        self.calls.open_now(who, dir, name, how)
    }

    fn open_way(
        &self,
        who: &Identity,
        dir: &LinuxFd,
        names: &[Box<[u8]>],
    ) -> Vec<Option<DiskResult<LinuxFd>>> {
        self.calls.open_way(who, dir, names)
    }

    /// On the pool: one way there and back instead of two.
    async fn create_at(
        &self,
        who: &Identity,
        dir: &LinuxFd,
        name: &[u8],
        mode: u32,
        mark: Mark,
    ) -> DiskResult<Created<LinuxFd>> {
        self.calls.create_at(who, dir, name, mode, mark).await
    }

    async fn entries_attrs(
        &self,
        dir: &LinuxFd,
        names: Vec<Box<[u8]>>,
        wanted: Wanted,
    ) -> Vec<DiskResult<EntryAttrs>> {
        self.calls.entries_attrs(dir, names, wanted).await
    }

    async fn reopen(
        &self,
        who: &Identity,
        fd: &LinuxFd,
        read: bool,
        write: bool,
    ) -> DiskResult<LinuxFd> {
        self.calls.reopen(who, fd, read, write).await
    }

    fn close_beside(&self, fd: LinuxFd, other: &LinuxFd) {
        self.calls.close_beside(fd, other);
    }

    async fn access(&self, who: &Identity, fd: &LinuxFd, mode: u32) -> DiskResult<()> {
        self.calls.access(who, fd, mode).await
    }

    async fn stat(&self, fd: &LinuxFd) -> DiskResult<Stat> {
        self.calls.stat(fd).await
    }

    async fn stat_at(&self, dir: &LinuxFd, name: &[u8]) -> DiskResult<Stat> {
        self.calls.stat_at(dir, name).await
    }

    async fn generation(&self, fd: &LinuxFd) -> DiskResult<u64> {
        self.calls.generation(fd).await
    }

    async fn read(
        &self,
        fd: &LinuxFd,
        offset: u64,
        len: usize,
        buf: BytesMut,
    ) -> DiskResult<BytesMut> {
        let buf = match self.calls.try_read(fd, offset, len, buf) {
            Attempt::Done(result) => return result,
            Attempt::Waits(buf) => buf,
        };
        let ring = !self.calls.class().no_ring_io;
        let Some(local) = worker::local().filter(|_| ring && fd.for_ring().is_ok()) else {
            return self.calls.pool_read(fd, offset, len, buf).await;
        };
        let (fd, asked) = (
            fd.clone(),
            u32::try_from(len).unwrap_or(1 << 30).min(1 << 30),
        );
        let operation = Operation::Read {
            fd,
            offset,
            len: asked,
            buf,
        };
        let (operation, failed) = match Op::new(local, operation, 0).await {
            Err(operation) => (operation, None),
            Ok((Operation::Read { buf, len, .. }, Outcome::Number(got))) => {
                return Ok(sys::filled(buf, len, got));
            }
            Ok((operation, Outcome::Failed(e))) => (operation, Some(e)),
            Ok(_) => return Err(Errno(libc::EIO)),
        };
        match (failed, operation) {
            (Some(e), _) if !RETRY_ON_POOL.contains(&e.0) => Err(e),
            (_, Operation::Read { fd, buf, .. }) => {
                self.calls.pool_read(&fd, offset, len, buf).await
            }
            _ => Err(Errno(libc::EIO)),
        }
    }

    async fn write(
        &self,
        fd: &LinuxFd,
        offset: u64,
        data: Bytes,
        durable: bool,
    ) -> DiskResult<usize> {
        if let Attempt::Done(result) = self.calls.try_write(fd, offset, &data, durable) {
            return result;
        }
        let ring = !durable && !self.calls.class().no_ring_io;
        let Some(local) = worker::local().filter(|_| ring && fd.for_ring().is_ok()) else {
            return self.calls.pool_write(fd, offset, data, durable).await;
        };
        let operation = Operation::Write {
            fd: fd.clone(),
            offset,
            data,
        };
        let (operation, failed) = match Op::new(local, operation, 0).await {
            Err(operation) => (operation, None),
            Ok((_, Outcome::Number(put))) => {
                return usize::try_from(put).map_err(|_| Errno(libc::EIO));
            }
            Ok((operation, Outcome::Failed(e))) => (operation, Some(e)),
            Ok(_) => return Err(Errno(libc::EIO)),
        };
        match (failed, operation) {
            (Some(e), _) if !RETRY_ON_POOL.contains(&e.0) => Err(e),
            (_, Operation::Write { fd, data, .. }) => {
                self.calls.pool_write(&fd, offset, data, false).await
            }
            _ => Err(Errno(libc::EIO)),
        }
    }

    async fn truncate(&self, fd: &LinuxFd, size: u64) -> DiskResult<()> {
        self.calls.truncate(fd, size).await
    }

    async fn allocate(&self, fd: &LinuxFd, how: Allocate, offset: u64, len: u64) -> DiskResult<()> {
        self.calls.allocate(fd, how, offset, len).await
    }

    async fn seek(&self, fd: &LinuxFd, offset: u64, data: bool) -> DiskResult<u64> {
        self.calls.seek(fd, offset, data).await
    }

    async fn copy_range(
        &self,
        from: &LinuxFd,
        from_offset: u64,
        to: &LinuxFd,
        to_offset: u64,
        len: u64,
    ) -> DiskResult<u64> {
        self.calls
            .copy_range(from, from_offset, to, to_offset, len)
            .await
    }

    async fn clone_range(
        &self,
        from: &LinuxFd,
        from_offset: u64,
        to: &LinuxFd,
        to_offset: u64,
        len: u64,
    ) -> DiskResult<()> {
        self.calls
            .clone_range(from, from_offset, to, to_offset, len)
            .await
    }

    async fn fsync(&self, fd: &LinuxFd) -> DiskResult<()> {
        self.calls.fsync(fd).await
    }

    async fn sync_dir(&self, fd: &LinuxFd) -> DiskResult<()> {
        self.calls.sync_dir(fd).await
    }

    async fn sync_fs(&self, fd: &LinuxFd) -> DiskResult<()> {
        self.calls.sync_fs(fd).await
    }

    fn in_memory(&self, fd: &LinuxFd, offset: u64, len: usize) -> Option<Box<dyn InMemory>> {
        self.calls.in_memory(fd, offset, len)
    }

    fn start_write_back(&self, fd: &LinuxFd, offset: u64, len: u64) {
        self.calls.start_write_back(fd, offset, len);
    }

    async fn fdatasync(&self, fd: &LinuxFd) -> DiskResult<()> {
        self.calls.fdatasync(fd).await
    }

    async fn make_dir(
        &self,
        who: &Identity,
        dir: &LinuxFd,
        name: &[u8],
        mode: u32,
    ) -> DiskResult<()> {
        let (to, c_name) = (dir.clone(), c_name(name)?);
        let operation = Operation::MakeDir {
            dir: to,
            name: c_name,
            mode: mode & 0o7777,
        };
        match self.names(who, operation).await {
            Ringed::Done(result) => result.map(drop),
            Ringed::Pool => self.calls.make_dir(who, dir, name, mode).await,
        }
    }

    async fn unlink(
        &self,
        who: &Identity,
        dir: &LinuxFd,
        name: &[u8],
        directory: bool,
    ) -> DiskResult<()> {
        if self.calls.class().names_come_back {
            return self.calls.unlink(who, dir, name, directory).await;
        }
        let flags = if directory { libc::AT_REMOVEDIR } else { 0 };
        let (from, c_name) = (dir.clone(), c_name(name)?);
        match self
            .names(
                who,
                Operation::Unlink {
                    dir: from,
                    name: c_name,
                    flags,
                },
            )
            .await
        {
            Ringed::Done(result) => result.map(drop),
            Ringed::Pool => self.calls.unlink(who, dir, name, directory).await,
        }
    }

    async fn rename(
        &self,
        who: &Identity,
        from: &LinuxFd,
        from_name: &[u8],
        to: &LinuxFd,
        to_name: &[u8],
        replace: bool,
    ) -> DiskResult<()> {
        if self.calls.class().names_come_back {
            return self
                .calls
                .rename(who, from, from_name, to, to_name, replace)
                .await;
        }
        let operation = Operation::Rename {
            from: from.clone(),
            from_name: c_name(from_name)?,
            to: to.clone(),
            to_name: c_name(to_name)?,
            flags: if replace { 0 } else { libc::RENAME_NOREPLACE },
        };
        match self.names(who, operation).await {
            Ringed::Done(result) => result.map(drop),
            Ringed::Pool => {
                self.calls
                    .rename(who, from, from_name, to, to_name, replace)
                    .await
            }
        }
    }

    async fn link(
        &self,
        who: &Identity,
        fd: &LinuxFd,
        dir: &LinuxFd,
        name: &[u8],
    ) -> DiskResult<()> {
        self.calls.link(who, fd, dir, name).await
    }

    async fn read_link_at(&self, dir: &LinuxFd, name: &[u8]) -> DiskResult<Vec<u8>> {
        self.calls.read_link_at(dir, name).await
    }

    async fn entries(&self, who: &Identity, fd: &LinuxFd, max: usize) -> DiskResult<Vec<RawEntry>> {
        self.calls.entries(who, fd, max).await
    }

    async fn entries_looked(
        &self,
        who: &Identity,
        fd: &LinuxFd,
        max: usize,
        looked: usize,
        wanted: Wanted,
    ) -> DiskResult<EntriesLooked> {
        self.calls
            .entries_looked(who, fd, max, looked, wanted)
            .await
    }

    async fn get_xattr(&self, fd: &LinuxFd, name: &str) -> DiskResult<Vec<u8>> {
        self.calls.get_xattr(fd, name).await
    }

    async fn set_xattr(
        &self,
        who: &Identity,
        fd: &LinuxFd,
        name: &str,
        value: &[u8],
        how: XattrSet,
    ) -> DiskResult<()> {
        self.calls.set_xattr(who, fd, name, value, how).await
    }

    async fn remove_xattr(&self, who: &Identity, fd: &LinuxFd, name: &str) -> DiskResult<()> {
        self.calls.remove_xattr(who, fd, name).await
    }

    async fn list_xattr(&self, fd: &LinuxFd) -> DiskResult<Vec<String>> {
        self.calls.list_xattr(fd).await
    }

    async fn set_times(
        &self,
        who: &Identity,
        fd: &LinuxFd,
        accessed: Option<Timestamp>,
        written: Option<Timestamp>,
    ) -> DiskResult<()> {
        self.calls.set_times(who, fd, accessed, written).await
    }

    async fn set_mode(&self, who: &Identity, fd: &LinuxFd, mode: u32) -> DiskResult<()> {
        self.calls.set_mode(who, fd, mode).await
    }

    async fn set_owner(
        &self,
        who: &Identity,
        fd: &LinuxFd,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> DiskResult<()> {
        self.calls.set_owner(who, fd, uid, gid).await
    }

    fn renames_are_atomic(&self, fs: u64) -> bool {
        self.calls.renames_are_atomic(fs)
    }

    fn path_hint(&self, fd: &LinuxFd) -> Option<Vec<u8>> {
        self.calls.path_hint(fd)
    }

    async fn stat_fs(&self, fd: &LinuxFd) -> DiskResult<StatFs> {
        self.calls.stat_fs(fd).await
    }

    async fn is_read_only(&self, fd: &LinuxFd) -> DiskResult<bool> {
        self.calls.is_read_only(fd).await
    }
}
