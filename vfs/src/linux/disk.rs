//! Decides where each call of a [`LinuxDisk`] runs: at once, on the thread's ring, or on the pool.
//!
//! The class of the file system decides which calls may run at once; `operations.rs` builds the operations from them.

use std::{
    os::fd::AsFd,
    path::Path,
    rc::Rc,
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

use super::{
    calls,
    class::Class,
    fd::LinuxFd,
    own_changes::{InodeId, OwnChanges},
    pool::{self, Lane, Place},
    removed, super_block, xattrs,
};
use crate::{
    Identity,
    credentials::{self, give_up_set_ids},
    disk::{Attempt, DiskResult, Errno, OpenHow, check_name},
    posix_sys as raw,
    uring::{self, ThreadRing},
};

/// A directory tree of a real file system. It reports its changes to [`OwnChanges`] before it makes them.
#[derive(Debug, Clone)]
pub struct LinuxDisk {
    root: LinuxFd,
    pub(crate) class: Class,
    /// Device number of the root.
    device: u64,
    /// Whether the rings of the threads that poll are used.
    uses_rings: bool,
    pub(super) own: Arc<OwnChanges>,
    /// A call that starts write-back is under way.
    starting: Arc<AtomicBool>,
}

/// The length of the part before a range in which pages that are still being written are counted, before write-back of
/// the range is started.
const LOOKED_BACK: u64 = 64 << 20;

/// Marks a call that starts write-back as ended when it is dropped.
struct Starting(Arc<AtomicBool>);

impl Drop for Starting {
    fn drop(&mut self) {
        self.0.store(false, Release);
    }
}

impl LinuxDisk {
    /// Opens the directory `path` (links in it are followed) as the root of a disk that uses no rings. The calling
    /// thread, and those that it starts, have no `CAP_FSETID` any more ([`give_up_set_ids`]).
    ///
    /// # Errors
    /// The error of `open`; also ENOENT if `/proc` is not mounted.
    pub fn open(path: &Path) -> DiskResult<Self> {
        credentials::remember_service();
        give_up_set_ids()?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = LinuxFd::new(rustix::fs::open(path, flags, Mode::empty())?, false);
        rustix::fs::stat(root.proc_path())?;
        let device = calls::stat(&root)?.key.fs;
        super_block::forget(device);
        let class = Class::of(&root)?;
        Ok(Self {
            root,
            class,
            device,
            uses_rings: false,
            own: Arc::default(),
            starting: Arc::default(),
        })
    }

    /// The same disk, using the rings of the threads that have one ([`uring::UringWorker`]).
    #[must_use]
    pub fn with_rings(self, uses_rings: bool) -> Self {
        Self { uses_rings, ..self }
    }

    /// The same disk, whose changes are reported to `own`.
    #[must_use]
    pub fn reporting_to(self, own: Arc<OwnChanges>) -> Self {
        Self { own, ..self }
    }

    pub(super) fn root_fd(&self) -> &LinuxFd {
        &self.root
    }

    /// The calling thread's ring.
    pub(super) fn ring(&self) -> Option<Rc<ThreadRing>> {
        self.uses_rings.then(uring::local).flatten()
    }

    /// The calling thread's ring, if it may read and write `fd`.
    pub(super) fn data_ring(&self, fd: &LinuxFd) -> Option<Rc<ThreadRing>> {
        let ring = self.ring().filter(|_| !self.class.no_ring_io);
        ring.filter(|_| fd.for_ring().is_ok())
    }

    /// The place for a call that may wait. File systems mounted below the root count as the root's, because
    /// distinguishing them would take a query.
    fn io(&self) -> Place {
        Lane::Io.of(self.device)
    }

    /// The place for a sync of `fd`.
    fn sync(&self, fd: &LinuxFd) -> Place {
        Lane::Sync.of(calls::device_under(fd).unwrap_or(self.device))
    }

    /// Runs a call that may wait and creates nothing, as the service.
    async fn wait_at<T: Send + 'static>(
        &self,
        place: Place,
        call: impl FnOnce() -> DiskResult<T> + Send + 'static,
    ) -> DiskResult<T> {
        if self.class.remote {
            // Another machine may check the groups even of uid 0.
            return pool::run(place, Identity::Service, call).await;
        }
        pool::look(place, call).await
    }

    /// [`Self::wait_at`] for a call on a descriptor, in the lane of reads and writes.
    pub(super) async fn wait<T: Send + 'static>(
        &self,
        fd: &LinuxFd,
        call: impl FnOnce(&LinuxFd) -> DiskResult<T> + Send + 'static,
    ) -> DiskResult<T> {
        let fd = fd.clone();
        self.wait_at(self.io(), move || call(&fd)).await
    }

    /// [`Self::wait_at`] for a call on a descriptor, in the lane of syncs. EAGAIN then means only that it was never
    /// begun.
    pub(super) async fn wait_sync<T: Send + 'static>(
        &self,
        fd: &LinuxFd,
        call: impl FnOnce(&LinuxFd) -> DiskResult<T> + Send + 'static,
    ) -> DiskResult<T> {
        let fd = fd.clone();
        self.wait_at(self.sync(&fd), move || call(&fd).map_err(begun))
            .await
    }

    /// Runs a query that memory answers: at once, except on remote file systems.
    pub(super) async fn look<T: Send + 'static>(
        &self,
        fd: &LinuxFd,
        call: impl FnOnce(&LinuxFd) -> DiskResult<T> + Send + 'static,
    ) -> DiskResult<T> {
        match self.class.remote {
            true => self.wait(fd, call).await,
            false => call(fd),
        }
    }

    /// Runs a call on a descriptor that may wait, as `who`.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        who: &Identity,
        fd: &LinuxFd,
        call: impl FnOnce(&LinuxFd) -> DiskResult<T> + Send + 'static,
    ) -> DiskResult<T> {
        let fd = fd.clone();
        pool::run(self.io(), who.clone(), move || call(&fd)).await
    }

    /// Runs a call on a name that may wait, as `who`.
    pub(super) async fn run_at<T: Send + 'static>(
        &self,
        who: &Identity,
        dir: &LinuxFd,
        name: &[u8],
        call: impl FnOnce(&LinuxFd, &[u8]) -> DiskResult<T> + Send + 'static,
    ) -> DiskResult<T> {
        check_name(name)?;
        let name = name.to_vec();
        self.run(who, dir, move |dir| call(dir, &name)).await
    }

    /// Opens if that needs no waiting.
    pub(super) fn try_open(
        &self,
        who: &Identity,
        dir: &LinuxFd,
        name: &[u8],
        how: OpenHow,
    ) -> Option<DiskResult<LinuxFd>> {
        if self.class.remote || (how.create.is_some() && !how.path_only) {
            return None;
        }
        match credentials::with(who, || calls::open_cached(dir, name, how)) {
            Err(errno) if calls::would_wait(errno) => None,
            other => Some(other),
        }
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
            return Attempt::Declined(buf);
        }
        match raw::read_at(fd.as_fd(), offset, len, &mut buf, !self.class.memory) {
            Ok(_) => Attempt::Done(Ok(buf)),
            Err(Errno(libc::EAGAIN | libc::EOPNOTSUPP | libc::EINTR)) => Attempt::Declined(buf),
            Err(e) => Attempt::Done(Err(e)),
        }
    }

    /// Writes if that needs no waiting.
    pub(super) fn try_write(
        &self,
        fd: &LinuxFd,
        offset: u64,
        data: &[u8],
        durable: bool,
    ) -> Option<DiskResult<usize>> {
        let class = self.class;
        if !class.memory && (durable || !class.write_nowait) {
            return None;
        }
        match raw::write_at(fd.as_fd(), offset, data, durable, !class.memory) {
            Ok(put) if put > 0 || data.is_empty() => Some(Ok(put)),
            Ok(_) | Err(Errno(libc::EAGAIN | libc::EOPNOTSUPP | libc::EINTR)) => None,
            Err(e) => Some(Err(e)),
        }
    }

    /// Reads on the pool.
    pub(super) async fn pool_read(
        &self,
        fd: &LinuxFd,
        offset: u64,
        len: usize,
        mut buf: BytesMut,
    ) -> DiskResult<BytesMut> {
        self.wait(fd, move |fd| {
            calls::repeat(|| raw::read_at(fd.as_fd(), offset, len, &mut buf, false))?;
            Ok(buf)
        })
        .await
    }

    /// Writes on the pool; a durable write runs in the lane of syncs.
    pub(super) async fn pool_write(
        &self,
        fd: &LinuxFd,
        offset: u64,
        data: Bytes,
        durable: bool,
    ) -> DiskResult<usize> {
        let write = move |fd: &LinuxFd| {
            calls::repeat(|| raw::write_at(fd.as_fd(), offset, &data, durable, false))
        };
        if !durable {
            return self.wait(fd, write).await;
        }
        let noted = self.class.names_come_back;
        let synced = move |fd: &LinuxFd| {
            let _syncing = removed::Syncing::begin(fd, noted);
            write(fd)
        };
        self.wait_sync(fd, synced).await
    }

    /// Opens on the pool.
    pub(super) async fn pool_open(
        &self,
        who: &Identity,
        dir: &LinuxFd,
        name: &[u8],
        how: OpenHow,
    ) -> DiskResult<LinuxFd> {
        self.run_at(who, dir, name, move |dir, name| {
            let fd = calls::open(dir, name, how)?;
            if how.create.is_none() || how.path_only {
                xattrs::warm(&fd);
            }
            Ok(fd)
        })
        .await
    }

    /// Renames a name on the pool, with the commits that btrfs needs.
    pub(super) async fn pool_rename(
        &self,
        who: &Identity,
        (from, from_name): (&LinuxFd, &[u8]),
        (to, to_name): (&LinuxFd, &[u8]),
        replace: bool,
    ) -> DiskResult<()> {
        let noted = self.class.names_come_back;
        let (above, to_name) = (to.clone(), to_name.to_vec());
        let mut target = None;
        if noted && replace {
            let (to, to_name) = (to.clone(), to_name.clone());
            let commit = move || calls::repeat(|| removed::replacing(&to, &to_name));
            target = pool::run(self.sync(from), Identity::Service, commit).await?;
        }
        self.run_at(who, from, from_name, move |from, from_name| {
            let moved = calls::rename(from, from_name, &above, &to_name, replace);
            if noted {
                removed::left(from);
                removed::left(&above);
            }
            // In the same job: nothing that may fail for want of room comes after the rename.
            if moved.is_ok()
                && let Some(target) = target
            {
                target.replaced();
            }
            moved
        })
        .await
    }

    /// The inode that is about to be renamed, if an observer needs it.
    pub(super) async fn renaming(&self, dir: &LinuxFd, name: &[u8]) -> Option<InodeId> {
        if !self.own.is_observed() {
            return None;
        }
        let look = |dir: &LinuxFd, name: &[u8]| Ok(InodeId::at(dir, name));
        let looked = self.run_at(&Identity::Service, dir, name, look).await;
        // An inode that cannot be queried cannot be renamed either.
        looked.ok().flatten()
    }

    /// Starts write-back on the lane of syncs, because the call waits while the device's queue is full.
    pub(super) fn post_write_back(&self, fd: &LinuxFd, offset: u64, len: u64) {
        // The previous call still waits for room in the device's queue.
        if self.starting.swap(true, AcqRel) {
            return;
        }
        let (fd, starting) = (fd.clone(), Starting(Arc::clone(&self.starting)));
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
}

/// Maps an error of a sync, so that EAGAIN means only that it was never begun.
fn begun(errno: Errno) -> Errno {
    if errno == Errno(libc::EAGAIN) {
        Errno(libc::EIO)
    } else {
        errno
    }
}
