//! A real disk by plain system calls.
//!
//! Data and names in memory are answered on the calling thread: reads that `RWF_NOWAIT` grants, opens and stats
//! that `RESOLVE_CACHED` grants, attributes of inodes that are held. Operations that may wait for the device run on
//! the process's pool ([`pool`]): cold reads, writes, names, sizes, listings, and, on separate threads, syncs.
//!
//! This disk works wherever Linux 5.6 does, and [`crate::uring::UringDisk`] falls back to it for everything the
//! ring has no operation for.
//!
//! Extended attributes are read inline: a lookup that waited for the device has read their block as well.

mod calls;
mod class;
pub(crate) mod credentials;
mod host;
mod in_memory;
mod own_changes;
pub mod pool;
mod removed;
mod super_block;
#[cfg(test)]
mod tests;
pub mod trap;
mod xattrs;

use std::{
    os::fd::AsFd,
    path::Path,
    sync::{
        Arc,
        atomic::{
            AtomicBool,
            Ordering::{AcqRel, Release},
        },
    },
};

use bytes::{Bytes, BytesMut};
use rustix::fs::{Mode, OFlags};

pub use calls::LinuxFd;
pub(crate) use calls::{RESOLVE, create_mode, open_flags};
pub(crate) use class::Class;
pub use credentials::give_up_set_ids;
pub use host::HostDisk;
pub use own_changes::{InodeId, OwnChanges};
pub use super_block::{FsIdentity, SuperBlock};

use crate::{
    Identity, Timestamp,
    disk::{
        Allocate, Created, Disk, DiskResult, EntriesLooked, EntryAttrs, Errno, InMemory, Mark,
        OpenHow, RawEntry, Stat, StatFs, Wanted, XattrSet, check_name,
    },
    posix_sys as raw,
};
use pool::{Lane, Place};
use xattrs::Way;

/// The result of an inline attempt.
pub(crate) enum Attempt<T, B> {
    /// It is done.
    Done(DiskResult<T>),
    /// It would wait; here is what it needs.
    Waits(B),
}

/// A directory tree of a real file system, by system calls.
#[derive(Debug, Clone)]
pub struct SysDisk {
    root: LinuxFd,
    class: Class,
    /// Device number of the root.
    device: u64,
    /// A call that starts write-back is under way.
    starting: Arc<AtomicBool>,
}

/// The part of a file before a range to start write-back of that is looked at for what the device still has.
const LOOKED_BACK: u64 = 64 << 20;

/// The call that starts write-back; it has ended when this is dropped.
struct Starting(Arc<AtomicBool>);

impl Drop for Starting {
    fn drop(&mut self) {
        self.0.store(false, Release);
    }
}

impl SysDisk {
    /// Opens the directory `path` (links in it are followed) as the root of a disk. The calling
    /// thread, and those that it starts, have no `CAP_FSETID` any more ([`give_up_set_ids`]).
    ///
    /// # Errors
    /// What `open` says; ENOENT also if `/proc` is not mounted.
    pub fn open(path: &Path) -> DiskResult<Self> {
        credentials::remember_service();
        give_up_set_ids()?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(calls::errno)?;
        let root = LinuxFd::new(fd, false);
        rustix::fs::stat(root.proc_path()).map_err(calls::errno)?;
        let device = calls::stat(&root)?.key.fs;
        super_block::forget(device);
        let class = Class::of(&root)?;
        Ok(Self {
            root,
            class,
            device,
            starting: Arc::default(),
        })
    }

    /// The operations that its file system permits.
    pub(crate) fn class(&self) -> Class {
        self.class
    }

    /// Reads if that needs no waiting.
    pub(crate) fn try_read(
        &self,
        fd: &LinuxFd,
        offset: u64,
        len: usize,
        mut buf: BytesMut,
    ) -> Attempt<BytesMut, BytesMut> {
        if self.class.remote {
            return Attempt::Waits(buf);
        }
        match raw::read_at(fd.as_fd(), offset, len, &mut buf, !self.class.memory) {
            Ok(_) => Attempt::Done(Ok(buf)),
            Err(Errno(libc::EAGAIN | libc::EOPNOTSUPP | libc::EINTR)) => Attempt::Waits(buf),
            Err(e) => Attempt::Done(Err(e)),
        }
    }

    /// Writes if that needs no waiting.
    pub(crate) fn try_write(
        &self,
        fd: &LinuxFd,
        offset: u64,
        data: &[u8],
        durable: bool,
    ) -> Attempt<usize, ()> {
        let class = self.class;
        if !class.memory && (durable || !class.write_nowait) {
            return Attempt::Waits(());
        }
        match raw::write_at(fd.as_fd(), offset, data, durable, !class.memory) {
            Ok(put) if put > 0 || data.is_empty() => Attempt::Done(Ok(put)),
            Ok(_) | Err(Errno(libc::EAGAIN | libc::EOPNOTSUPP | libc::EINTR)) => Attempt::Waits(()),
            Err(e) => Attempt::Done(Err(e)),
        }
    }

    /// Opens if that needs no waiting.
    pub(crate) fn try_open(
        &self,
        who: &Identity,
        dir: &LinuxFd,
        name: &[u8],
        how: OpenHow,
    ) -> Attempt<LinuxFd, ()> {
        if self.class.remote || (how.create.is_some() && !how.path_only) {
            return Attempt::Waits(());
        }
        match credentials::with(who, || calls::open_cached(dir, name, how)) {
            Err(errno) if calls::would_wait(errno) => Attempt::Waits(()),
            other => Attempt::Done(other),
        }
    }

    /// The place to run a call that may wait. File systems mounted below the root count as the root's: finding out
    /// would take a query.
    pub(crate) fn io(&self) -> Place {
        Lane::Io.of(self.device)
    }

    /// Where a sync of `fd` runs.
    fn sync(&self, fd: &LinuxFd) -> Place {
        Lane::Sync.of(calls::device_under(fd).unwrap_or(self.device))
    }

    /// Runs a call that may wait, and makes nothing, as the service.
    async fn wait<T: Send + 'static>(
        &self,
        place: impl Into<Place>,
        call: impl FnOnce() -> DiskResult<T> + Send + 'static,
    ) -> DiskResult<T> {
        if self.class.remote {
            // Another machine may look at the groups of uid 0, too.
            return pool::run(place, Identity::Service, call).await;
        }
        pool::look(place, call).await
    }

    /// Runs a look at what memory holds: inline, but for remote file systems.
    async fn look<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> DiskResult<T> + Send + 'static,
    ) -> DiskResult<T> {
        if self.class.remote {
            self.wait(self.io(), call).await
        } else {
            call()
        }
    }

    /// Reads on the pool.
    pub(crate) async fn pool_read(
        &self,
        fd: &LinuxFd,
        offset: u64,
        len: usize,
        mut buf: BytesMut,
    ) -> DiskResult<BytesMut> {
        let fd = fd.clone();
        self.wait(self.io(), move || {
            repeat(|| raw::read_at(fd.as_fd(), offset, len, &mut buf, false))?;
            Ok(buf)
        })
        .await
    }

    /// Writes on the pool.
    pub(crate) async fn pool_write(
        &self,
        fd: &LinuxFd,
        offset: u64,
        data: Bytes,
        durable: bool,
    ) -> DiskResult<usize> {
        let fd = fd.clone();
        let place = if durable { self.sync(&fd) } else { self.io() };
        let noted = durable && self.class.names_come_back;
        self.wait(place, move || {
            let _syncing = removed::Syncing::begin(&fd, noted);
            let put = repeat(|| raw::write_at(fd.as_fd(), offset, &data, durable, false));
            // The sync half of it may say so.
            put.map_err(|errno| if durable { begun(errno) } else { errno })
        })
        .await
    }

    /// Opens on the pool.
    pub(crate) async fn pool_open(
        &self,
        who: &Identity,
        dir: &LinuxFd,
        name: &[u8],
        how: OpenHow,
    ) -> DiskResult<LinuxFd> {
        let (dir, name) = (dir.clone(), name.to_vec());
        pool::run(self.io(), who.clone(), move || {
            let fd = calls::open(&dir, &name, how)?;
            if how.create.is_none() || how.path_only {
                xattrs::warm(&fd);
            }
            Ok(fd)
        })
        .await
    }
}

/// Repeats a call that a signal interrupted.
fn repeat<T>(mut call: impl FnMut() -> DiskResult<T>) -> DiskResult<T> {
    loop {
        match call() {
            Err(Errno(libc::EINTR)) => {}
            other => return other,
        }
    }
}

/// EAGAIN of a sync is left to mean that it was never begun.
fn begun(errno: Errno) -> Errno {
    if errno == Errno(libc::EAGAIN) {
        Errno(libc::EIO)
    } else {
        errno
    }
}

impl Disk for SysDisk {
    type Fd = LinuxFd;

    fn root(&self) -> LinuxFd {
        self.root.clone()
    }

    async fn open_at(
        &self,
        who: &Identity,
        dir: &LinuxFd,
        name: &[u8],
        how: OpenHow,
    ) -> DiskResult<LinuxFd> {
        check_name(name)?;
        match self.try_open(who, dir, name, how) {
            Attempt::Done(result) => result,
            Attempt::Waits(()) => self.pool_open(who, dir, name, how).await,
        }
    }

    fn service_uid(&self) -> u32 {
        credentials::service_uid()
    }

    fn is_local(&self) -> bool {
        !self.class.remote
    }

    fn open_now(
        &self,
        who: &Identity,
        dir: &LinuxFd,
        name: &[u8],
        how: OpenHow,
    ) -> Option<DiskResult<LinuxFd>> {
        if let Err(errno) = check_name(name) {
            return Some(Err(errno));
        }
        match self.try_open(who, dir, name, how) {
            Attempt::Done(result) => Some(result),
            Attempt::Waits(()) => None,
        }
    }

    /// Under one change of identity, which costs more than two of the opens.
    fn open_way(
        &self,
        who: &Identity,
        dir: &LinuxFd,
        names: &[Box<[u8]>],
    ) -> Vec<Option<DiskResult<LinuxFd>>> {
        if self.class.remote || names.iter().any(|name| check_name(name).is_err()) {
            return Vec::new();
        }
        let mut way = Vec::with_capacity(names.len());
        let walked = credentials::with(who, || {
            calls::open_way(dir, names, &mut way);
            Ok(())
        });
        // If the thread cannot act as the user, the open itself reports that.
        if walked.is_err() {
            way.clear();
        }
        way
    }

    async fn create_at(
        &self,
        who: &Identity,
        dir: &LinuxFd,
        name: &[u8],
        mode: u32,
        mark: Mark,
    ) -> DiskResult<Created<LinuxFd>> {
        check_name(name)?;
        let (dir, name) = (dir.clone(), name.to_vec());
        pool::run(self.io(), who.clone(), move || {
            let how = OpenHow {
                read: true,
                write: true,
                create: Some(mode),
                ..OpenHow::default()
            };
            let fd = calls::open(&dir, &name, how)?;
            let stat = calls::stat(&fd);
            let marked = stat.and_then(|stat| {
                let (name, value) = mark(&stat);
                let set = || xattrs::set(&fd, name, &value, XattrSet::Either, Way::here());
                // The user who created it may mark it, unless the mode or an inherited ACL forbids that. The
                // service always may.
                set().or_else(|_| credentials::assume(&Identity::Service).and_then(|()| set()))
            });
            Ok(Created { fd, stat, marked })
        })
        .await
    }

    async fn entries_attrs(
        &self,
        dir: &LinuxFd,
        names: Vec<Box<[u8]>>,
        wanted: Wanted,
    ) -> Vec<DiskResult<EntryAttrs>> {
        let (dir, count) = (dir.clone(), names.len());
        let looked = self.wait(self.io(), move || {
            let names = names.iter().map(|name| &**name);
            Ok(xattrs::entries(&dir, names, &wanted, Way::here()))
        });
        looked
            .await
            .unwrap_or_else(|errno| (0..count).map(|_| Err(errno)).collect())
    }

    async fn reopen(
        &self,
        who: &Identity,
        fd: &LinuxFd,
        read: bool,
        write: bool,
    ) -> DiskResult<LinuxFd> {
        if !self.class.remote {
            match credentials::with(who, || calls::reopen(fd, read, write, false)) {
                Err(Errno(libc::EAGAIN)) => {}
                other => return other,
            }
        }
        let fd = fd.clone();
        pool::run(self.io(), who.clone(), move || {
            calls::reopen(&fd, read, write, true)
        })
        .await
    }

    fn close_beside(&self, fd: LinuxFd, other: &LinuxFd) {
        fd.joins(other);
    }

    async fn access(&self, who: &Identity, fd: &LinuxFd, mode: u32) -> DiskResult<()> {
        if self.class.remote {
            let fd = fd.clone();
            return pool::run(self.io(), who.clone(), move || {
                raw::access(fd.as_fd(), mode)
            })
            .await;
        }
        credentials::with(who, || raw::access(fd.as_fd(), mode))
    }

    async fn stat(&self, fd: &LinuxFd) -> DiskResult<Stat> {
        if !self.class.remote {
            return calls::stat(fd);
        }
        let fd = fd.clone();
        self.wait(self.io(), move || calls::stat(&fd)).await
    }

    async fn stat_at(&self, dir: &LinuxFd, name: &[u8]) -> DiskResult<Stat> {
        check_name(name)?;
        if !self.class.remote {
            match calls::stat_cached(dir, name) {
                Err(Errno(libc::EAGAIN | libc::EINVAL | libc::EINTR)) => {}
                other => return other,
            }
        }
        let (dir, name) = (dir.clone(), name.to_vec());
        self.wait(self.io(), move || calls::stat_at(&dir, &name))
            .await
    }

    async fn generation(&self, fd: &LinuxFd) -> DiskResult<u64> {
        Ok(calls::generation(fd))
    }

    async fn read(
        &self,
        fd: &LinuxFd,
        offset: u64,
        len: usize,
        buf: BytesMut,
    ) -> DiskResult<BytesMut> {
        match self.try_read(fd, offset, len, buf) {
            Attempt::Done(result) => result,
            Attempt::Waits(buf) => self.pool_read(fd, offset, len, buf).await,
        }
    }

    async fn write(
        &self,
        fd: &LinuxFd,
        offset: u64,
        data: Bytes,
        durable: bool,
    ) -> DiskResult<usize> {
        match self.try_write(fd, offset, &data, durable) {
            Attempt::Done(result) => result,
            Attempt::Waits(()) => self.pool_write(fd, offset, data, durable).await,
        }
    }

    async fn truncate(&self, fd: &LinuxFd, size: u64) -> DiskResult<()> {
        let fd = fd.clone();
        self.wait(self.io(), move || calls::truncate(&fd, size))
            .await
    }

    async fn allocate(&self, fd: &LinuxFd, how: Allocate, offset: u64, len: u64) -> DiskResult<()> {
        let fd = fd.clone();
        self.wait(self.io(), move || calls::allocate(&fd, how, offset, len))
            .await
    }

    async fn seek(&self, fd: &LinuxFd, offset: u64, data: bool) -> DiskResult<u64> {
        let fd = fd.clone();
        self.wait(self.io(), move || calls::seek(&fd, offset, data))
            .await
    }

    async fn copy_range(
        &self,
        from: &LinuxFd,
        from_offset: u64,
        to: &LinuxFd,
        to_offset: u64,
        len: u64,
    ) -> DiskResult<u64> {
        let (from, to) = (from.clone(), to.clone());
        self.wait(self.io(), move || {
            calls::copy_range(&from, from_offset, &to, to_offset, len)
        })
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
        let (from, to) = (from.clone(), to.clone());
        self.wait(self.io(), move || {
            raw::clone_range(from.as_fd(), from_offset, to.as_fd(), to_offset, len)
        })
        .await
    }

    async fn fsync(&self, fd: &LinuxFd) -> DiskResult<()> {
        let (fd, noted) = (fd.clone(), self.class.names_come_back);
        self.wait(self.sync(&fd), move || {
            let _syncing = removed::Syncing::begin(&fd, noted);
            repeat(|| rustix::fs::fsync(&fd).map_err(calls::errno)).map_err(begun)
        })
        .await
    }

    async fn sync_dir(&self, fd: &LinuxFd) -> DiskResult<()> {
        let (fd, noted) = (fd.clone(), self.class.names_come_back);
        self.wait(self.sync(&fd), move || {
            repeat(|| removed::commit(&fd, noted)).map_err(begun)?;
            let _syncing = removed::Syncing::begin(&fd, noted);
            repeat(|| rustix::fs::fsync(&fd).map_err(calls::errno)).map_err(begun)
        })
        .await
    }

    async fn sync_fs(&self, fd: &LinuxFd) -> DiskResult<()> {
        let fd = fd.clone();
        self.wait(self.sync(&fd), move || {
            repeat(|| rustix::fs::syncfs(&fd).map_err(calls::errno)).map_err(begun)
        })
        .await
    }

    fn in_memory(&self, fd: &LinuxFd, offset: u64, len: usize) -> Option<Box<dyn InMemory>> {
        in_memory::Cached::find(self, fd, offset, len)
    }

    fn start_write_back(&self, fd: &LinuxFd, offset: u64, len: u64) {
        // The call before still waits for room in the device's queue.
        if self.starting.swap(true, AcqRel) {
            return;
        }
        let (fd, starting) = (fd.clone(), Starting(Arc::clone(&self.starting)));
        // The lane of what waits for the device: it does where the device's queue is full.
        pool::post(self.sync(&fd), move || {
            let _starting = starting;
            let before = offset.saturating_sub(LOOKED_BACK);
            let page = rustix::param::page_size() as u64;
            let waiting = raw::cached_pages(fd.as_fd(), before, offset - before);
            // The device is behind if it has not yet written what was started before.
            if waiting.is_ok_and(|(_, waiting)| waiting.saturating_mul(page) > len) {
                return;
            }
            let _ = raw::start_write_back(fd.as_fd(), offset, len);
        });
    }

    async fn fdatasync(&self, fd: &LinuxFd) -> DiskResult<()> {
        let (fd, noted) = (fd.clone(), self.class.names_come_back);
        self.wait(self.sync(&fd), move || {
            let _syncing = removed::Syncing::begin(&fd, noted);
            repeat(|| rustix::fs::fdatasync(&fd).map_err(calls::errno)).map_err(begun)
        })
        .await
    }

    async fn make_dir(
        &self,
        who: &Identity,
        dir: &LinuxFd,
        name: &[u8],
        mode: u32,
    ) -> DiskResult<()> {
        check_name(name)?;
        let (dir, name) = (dir.clone(), name.to_vec());
        pool::run(self.io(), who.clone(), move || {
            calls::make_dir(&dir, &name, mode)
        })
        .await
    }

    async fn unlink(
        &self,
        who: &Identity,
        dir: &LinuxFd,
        name: &[u8],
        directory: bool,
    ) -> DiskResult<()> {
        check_name(name)?;
        let (dir, name) = (dir.clone(), name.to_vec());
        let noted = self.class.names_come_back;
        pool::run(self.io(), who.clone(), move || {
            let gone = calls::unlink(&dir, &name, directory);
            if noted {
                removed::left(&dir);
            }
            gone
        })
        .await
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
        check_name(from_name)?;
        check_name(to_name)?;
        let (from, from_name) = (from.clone(), from_name.to_vec());
        let (to, to_name) = (to.clone(), to_name.to_vec());
        let noted = self.class.names_come_back;
        let mut target = None;
        if noted && replace {
            let (to, to_name) = (to.clone(), to_name.clone());
            let commit = move || repeat(|| removed::replacing(&to, &to_name));
            target = pool::run(self.sync(&from), Identity::Service, commit).await?;
        }
        let above = to.clone();
        let moved = pool::run(self.io(), who.clone(), move || {
            let moved = calls::rename(&from, &from_name, &to, &to_name, replace);
            if noted {
                removed::left(&from);
                removed::left(&to);
            }
            moved
        });
        moved.await?;
        // A sync that came between.
        if let Some(target) = target.filter(removed::Target::is_logged) {
            let place = self.sync(&above);
            let commit = move || repeat(|| target.replaced(&above)).map_err(begun);
            // It is renamed: an error says that nobody knows what a power cut would leave.
            pool::run(place, Identity::Service, commit).await?;
        }
        Ok(())
    }

    async fn link(
        &self,
        who: &Identity,
        fd: &LinuxFd,
        dir: &LinuxFd,
        name: &[u8],
    ) -> DiskResult<()> {
        check_name(name)?;
        let (fd, dir, name) = (fd.clone(), dir.clone(), name.to_vec());
        pool::run(self.io(), who.clone(), move || {
            calls::link(&fd, &dir, &name)
        })
        .await
    }

    async fn read_link_at(&self, dir: &LinuxFd, name: &[u8]) -> DiskResult<Vec<u8>> {
        check_name(name)?;
        let (dir, name) = (dir.clone(), name.to_vec());
        self.wait(self.io(), move || calls::read_link_at(&dir, &name))
            .await
    }

    async fn entries(&self, _: &Identity, fd: &LinuxFd, max: usize) -> DiskResult<Vec<RawEntry>> {
        let fd = fd.clone();
        self.wait(self.io(), move || calls::entries(&fd, max)).await
    }

    async fn entries_looked(
        &self,
        _: &Identity,
        fd: &LinuxFd,
        max: usize,
        looked: usize,
        wanted: Wanted,
    ) -> DiskResult<EntriesLooked> {
        let fd = fd.clone();
        self.wait(self.io(), move || {
            let entries = calls::entries(&fd, max)?;
            let first = entries.iter().take(looked).map(|entry| &*entry.name);
            let attrs = xattrs::entries(&fd, first, &wanted, Way::here());
            Ok((entries, attrs))
        })
        .await
    }

    async fn get_xattr(&self, fd: &LinuxFd, name: &str) -> DiskResult<Vec<u8>> {
        let (fd, name) = (fd.clone(), name.to_owned());
        self.look(move || xattrs::get(&fd, &name, Way::here()))
            .await
    }

    async fn set_xattr(
        &self,
        who: &Identity,
        fd: &LinuxFd,
        name: &str,
        value: &[u8],
        how: XattrSet,
    ) -> DiskResult<()> {
        let (fd, name, value) = (fd.clone(), name.to_owned(), value.to_vec());
        pool::run(self.io(), who.clone(), move || {
            xattrs::set(&fd, &name, &value, how, Way::here())
        })
        .await
    }

    async fn remove_xattr(&self, who: &Identity, fd: &LinuxFd, name: &str) -> DiskResult<()> {
        let (fd, name) = (fd.clone(), name.to_owned());
        pool::run(self.io(), who.clone(), move || {
            xattrs::remove(&fd, &name, Way::here())
        })
        .await
    }

    async fn list_xattr(&self, fd: &LinuxFd) -> DiskResult<Vec<String>> {
        let fd = fd.clone();
        self.look(move || xattrs::list(&fd, Way::here())).await
    }

    async fn set_times(
        &self,
        who: &Identity,
        fd: &LinuxFd,
        accessed: Option<Timestamp>,
        written: Option<Timestamp>,
    ) -> DiskResult<()> {
        let fd = fd.clone();
        pool::run(self.io(), who.clone(), move || {
            calls::set_times(&fd, accessed, written)
        })
        .await
    }

    async fn set_mode(&self, who: &Identity, fd: &LinuxFd, mode: u32) -> DiskResult<()> {
        let fd = fd.clone();
        pool::run(self.io(), who.clone(), move || calls::set_mode(&fd, mode)).await
    }

    async fn set_owner(
        &self,
        who: &Identity,
        fd: &LinuxFd,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> DiskResult<()> {
        let fd = fd.clone();
        pool::run(self.io(), who.clone(), move || {
            calls::set_owner(&fd, uid, gid)
        })
        .await
    }

    fn renames_are_atomic(&self, fs: u64) -> bool {
        super_block::renames_are_atomic(fs)
    }

    fn path_hint(&self, fd: &LinuxFd) -> Option<Vec<u8>> {
        let root = calls::path(&self.root)?;
        let path = calls::path(fd)?;
        let rest = path.strip_prefix(root.as_slice())?;
        match rest.strip_prefix(b"/") {
            Some(rest) => Some(rest.to_vec()),
            None if root == b"/" || rest.is_empty() => Some(rest.to_vec()),
            None => None,
        }
    }

    async fn stat_fs(&self, fd: &LinuxFd) -> DiskResult<StatFs> {
        let fd = fd.clone();
        let clones = self.class.clones;
        self.look(move || calls::stat_fs(&fd).map(|fs| StatFs { clones, ..fs }))
            .await
    }

    async fn is_read_only(&self, fd: &LinuxFd) -> DiskResult<bool> {
        let fd = fd.clone();
        self.look(move || calls::is_read_only(&fd)).await
    }
}
