//! Decides where each call of a [`LinuxDisk`] runs: at once, on the thread's ring, or on the pool.
//!
//! The class of the descriptor's file system decides which calls may run at once; `operations.rs` builds the operations
//! from them.

use std::{
    os::fd::{AsFd, OwnedFd},
    path::Path,
    rc::Rc,
    sync::{
        Arc, Mutex,
        atomic::Ordering::{AcqRel, Release},
    },
};

use bytes::{Bytes, BytesMut};
use rustix::fs::{Mode, OFlags};

use super::{
    calls,
    fd::LinuxFd,
    file_system::{FileSystem, LongCall},
    opens::{self, Automount},
    own_changes::OwnChanges,
    pool::{self, ThreadGroup},
    syncs, xattrs,
};
use crate::{
    Identity, IoAccess,
    credentials::{self, give_up_set_ids},
    disk::{
        Attempt, DiskResult, EntryAttrs, Errno, OVERLAY, OpenHow, Stat, Wanted, check_name,
        entry_attrs,
    },
    lock, posix_sys as raw,
    uring::{self, ThreadRing},
};

/// A directory tree of a real file system. It reports its changes to [`OwnChanges`] before it makes them.
#[derive(Debug, Clone)]
pub struct LinuxDisk {
    pub(super) root: LinuxFd,
    /// The absolute path of the root when it was last asked for.
    root_path: Arc<Mutex<Option<Vec<u8>>>>,
    /// Whether the rings of the threads that poll are used.
    uses_rings: bool,
    pub(super) own: Arc<OwnChanges>,
}

/// The length of the part before a range in which pages that are still being written are counted, before write-back of
/// the range is started.
const LOOKED_BACK: u64 = 64 << 20;

enum Opened {
    Here(LinuxFd),
    /// The root of a file system that is mounted on the name, and its device number.
    Mounted((OwnedFd, u64)),
    /// Something is mounted on the name, perhaps by an automounter that is mounting what belongs there.
    Automounted,
    /// The inode (`O_PATH`), because a program on the host has a lease on it.
    Leased(LinuxFd),
}

/// Marks a call that starts write-back as ended when it is dropped.
struct Starting(Arc<FileSystem>);

impl Drop for Starting {
    fn drop(&mut self) {
        self.0.starting.store(false, Release);
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
        let root = rustix::fs::open(path, flags, Mode::empty())?;
        let on = FileSystem::of(&root)?;
        let root = LinuxFd::new(root, false, &on);
        rustix::fs::stat(root.proc_path())?;
        Ok(Self {
            root,
            root_path: Arc::default(),
            uses_rings: false,
            own: Arc::default(),
        })
    }

    /// The same disk, using the rings of the threads that have one ([`uring::UringWorker`]).
    #[must_use]
    pub fn with_rings(self, uses_rings: bool) -> Self {
        Self { uses_rings, ..self }
    }

    /// This disk, with its changes reported to `own`, so that they are not taken for host changes.
    #[must_use]
    pub fn reporting_to(self, own: Arc<OwnChanges>) -> Self {
        Self { own, ..self }
    }

    /// Calls `look` with the path of a descriptor from the root, as the kernel reports it; `None` if it lies outside.
    /// Every FLUSH asks, so nothing is copied, and the root's own path is asked for again only where the descriptor's
    /// is not below the one that was known.
    pub(super) fn look_at_path<T>(&self, fd: &LinuxFd, look: impl FnOnce(&[u8]) -> T) -> Option<T> {
        calls::with_path(fd, |path| {
            let mut root = lock(&self.root_path);
            let below = |root: &Option<Vec<u8>>| calls::path_below(root.as_deref()?, path);
            let mut rest = below(&root);
            if rest.is_none() {
                *root = calls::path(&self.root);
                rest = below(&root);
            }
            drop(root);
            rest.map(look)
        })?
    }

    /// The calling thread's ring, if it may read and write `fd`. A file system behind a network or another process has
    /// the pool only: the threads that wait for the ring's operations are common to all file systems, and after a short
    /// read or write on FUSE with direct I/O the ring continues by itself at the offset where it began (Linux 6.18).
    pub(super) fn ring(&self, fd: &LinuxFd) -> Option<Rc<ThreadRing>> {
        let uses = self.uses_rings && !fd.class().remote;
        let ring = uses.then(uring::local).flatten();
        ring.filter(|_| fd.for_ring().is_ok())
    }

    /// Runs a call on a descriptor that may wait and creates nothing, as the service.
    async fn wait_in<T: Send + 'static>(
        &self,
        group: ThreadGroup,
        fd: &LinuxFd,
        call: impl FnOnce(&LinuxFd) -> DiskResult<T> + Send + 'static,
    ) -> DiskResult<T> {
        let (place, remote, fd) = (fd.place(group), fd.class().remote, fd.clone());
        if remote {
            // Another machine may check the groups even of uid 0.
            return pool::run(place, Identity::Service, move || call(&fd)).await;
        }
        pool::look(place, move || call(&fd)).await
    }

    /// [`Self::wait_in`] the group of reads and writes.
    pub(super) async fn wait<T: Send + 'static>(
        &self,
        fd: &LinuxFd,
        call: impl FnOnce(&LinuxFd) -> DiskResult<T> + Send + 'static,
    ) -> DiskResult<T> {
        self.wait_in(ThreadGroup::Io, fd, call).await
    }

    /// [`Self::wait`] for a call that may have the inode's lock for long.
    pub(super) async fn wait_long<T: Send + 'static>(
        &self,
        fd: &LinuxFd,
        call: impl FnOnce(&LinuxFd) -> DiskResult<T> + Send + 'static,
    ) -> DiskResult<T> {
        let long = LongCall::begin(fd.file_system());
        self.wait(fd, move |fd| {
            let _long = long;
            call(fd)
        })
        .await
    }

    /// [`Self::wait_in`] the group of syncs. EAGAIN then means only that it was never begun.
    pub(super) async fn wait_sync<T: Send + 'static>(
        &self,
        fd: &LinuxFd,
        call: impl FnOnce(&LinuxFd) -> DiskResult<T> + Send + 'static,
    ) -> DiskResult<T> {
        self.wait_prepared_sync(fd, |_| Ok(()), |fd, ()| call(fd))
            .await
    }

    /// As [`Self::wait_sync`]. Where `prepare` fails, the sync was not begun.
    pub(super) async fn wait_prepared_sync<P, T: Send + 'static>(
        &self,
        fd: &LinuxFd,
        prepare: impl FnOnce(&LinuxFd) -> DiskResult<P> + Send + 'static,
        call: impl FnOnce(&LinuxFd, P) -> DiskResult<T> + Send + 'static,
    ) -> DiskResult<T> {
        let call = move |fd: &LinuxFd| {
            let prepared = prepare(fd).map_err(|_| Errno(libc::EAGAIN))?;
            call(fd, prepared).map_err(|errno| match errno {
                Errno(libc::EAGAIN) => Errno(libc::EIO),
                other => other,
            })
        };
        self.wait_in(ThreadGroup::Sync, fd, call).await
    }

    /// Runs a query that memory answers: at once, except on remote file systems.
    pub(super) async fn look<T: Send + 'static>(
        &self,
        fd: &LinuxFd,
        call: impl FnOnce(&LinuxFd) -> DiskResult<T> + Send + 'static,
    ) -> DiskResult<T> {
        match fd.class().remote {
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
        let (place, fd) = (fd.place(ThreadGroup::Io), fd.clone());
        pool::run(place, who.clone(), move || call(&fd)).await
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
        if dir.class().remote || (how.create.is_some() && !how.path_only) {
            return None;
        }
        match credentials::with(who, || opens::open_cached(dir, name, how)) {
            Err(errno) if opens::would_wait(errno) => None,
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
        let class = fd.class();
        if class.remote {
            return Attempt::Declined(buf);
        }
        match raw::read_at(fd.as_fd(), offset, len, &mut buf, !class.memory) {
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
        let (class, on) = (fd.class(), fd.file_system());
        if on.writes_wait() || (durable && !class.memory) {
            return None;
        }
        match calls::write_at(fd, offset, data, durable, !class.memory) {
            Ok(put) if put > 0 || data.is_empty() => Some(Ok(put)),
            Ok(_) | Err(Errno(libc::EAGAIN | libc::EINTR)) => None,
            Err(Errno(libc::EOPNOTSUPP)) => {
                on.set_writes_wait();
                None
            }
            Err(e) => Some(Err(e)),
        }
    }

    /// Writes on the pool; a durable write runs in the group of syncs.
    pub(super) async fn pool_write(
        &self,
        fd: &LinuxFd,
        offset: u64,
        data: Bytes,
        durable: bool,
    ) -> DiskResult<usize> {
        let write = move |fd: &LinuxFd, dsync: bool| {
            calls::repeat(|| calls::write_at(fd, offset, &data, dsync, false))
        };
        if !durable {
            return self.wait(fd, move |fd| write(fd, false)).await;
        }
        self.wait_sync(fd, move |fd| syncs::durable_write(fd, write))
            .await
    }

    pub(super) async fn pool_open(
        &self,
        who: &Identity,
        dir: &LinuxFd,
        name: &[u8],
        how: OpenHow,
    ) -> DiskResult<LinuxFd> {
        let open = move |dir: &LinuxFd, name: &[u8]| {
            let fd = match opens::open(dir, name, how) {
                Err(Errno(libc::EXDEV)) => {
                    return match opens::open_mounted(dir, name, Automount::Avoid) {
                        Err(errno) if opens::would_wait(errno) => Ok(Opened::Automounted),
                        mounted => mounted.map(Opened::Mounted),
                    };
                }
                Err(Errno(libc::EAGAIN)) if how.create.is_none() && !how.path_only => {
                    return opens::open(dir, name, OpenHow::PATH_ONLY).map(Opened::Leased);
                }
                opened => opened?,
            };
            if how.create.is_none() || how.path_only {
                xattrs::warm(&fd);
            }
            Ok(Opened::Here(fd))
        };
        match self.run_at(who, dir, name, open).await? {
            Opened::Here(fd) => Ok(fd),
            Opened::Mounted(mounted) => self.enter(who, (dir, name), mounted, how).await,
            Opened::Automounted => {
                let (place, at) = (dir.place_of_automounts(), (dir.clone(), name.to_vec()));
                let walk = move || opens::open_mounted(&at.0, &at.1, Automount::Wait);
                let mounted = pool::run(place, who.clone(), walk).await?;
                self.enter(who, (dir, name), mounted, how).await
            }
            Opened::Leased(fd) => self.open_again(who, &fd, how.io()).await,
        }
    }

    /// Opens an inode again. Where a program on the host has a lease on it, the kernel lets the open wait until that
    /// program gives it up, or for 45 seconds. These waits have threads of their own: somebody who may write in a
    /// share could keep all threads of its file system waiting otherwise.
    pub(super) async fn open_again(
        &self,
        who: &Identity,
        fd: &LinuxFd,
        io: IoAccess,
    ) -> DiskResult<LinuxFd> {
        let open = move |fd: &LinuxFd, wait| opens::reopen(fd, io, wait);
        // A remote file system may wait in any call. Overlayfs copies a whole file of its lower layer when it is opened
        // for writing.
        let waits = fd.class().remote || (io.write && fd.class().kind == OVERLAY);
        let opened = match waits {
            true => self.run(who, fd, move |fd| Ok(open(fd, false))).await?,
            false => credentials::with(who, || open(fd, false)),
        };
        match opened {
            Err(Errno(libc::EAGAIN)) => {
                let (place, fd) = (fd.place(ThreadGroup::Leases), fd.clone());
                pool::run(place, who.clone(), move || open(&fd, true)).await
            }
            opened => opened,
        }
    }

    /// Goes on with an open of a name that led to the root of a mounted file system. Calls that may wait for that file
    /// system, or for an automounter, wait in its own place, so that it holds up only those who go there.
    async fn enter(
        &self,
        who: &Identity,
        (dir, name): (&LinuxFd, &[u8]),
        (fd, device): (OwnedFd, u64),
        how: OpenHow,
    ) -> DiskResult<LinuxFd> {
        let mut fd = Self::mounted(fd, device).await?;
        if how.directory {
            let stat = self.look(&fd, calls::stat).await?;
            if stat.mode & libc::S_IFMT != libc::S_IFDIR {
                return Err(Errno(libc::ENOTDIR));
            }
            if stat.automounts {
                let (dir, name) = (dir.clone(), name.to_vec());
                let mount = move || opens::open_mounted(&dir, &name, Automount::Ask);
                let place = ThreadGroup::Io.of(device);
                let (top, device) = pool::run(place, who.clone(), mount).await?;
                fd = Self::mounted(top, device).await?;
            }
        }
        match how.path_only {
            true => Ok(fd),
            false => self.open_again(who, &fd, how.io()).await,
        }
    }

    /// The descriptor of a mounted file system's root.
    async fn mounted(fd: OwnedFd, device: u64) -> DiskResult<LinuxFd> {
        if let Some(on) = FileSystem::known(device) {
            return Ok(LinuxFd::new(fd, true, &on));
        }
        let look = move || {
            let on = FileSystem::of(&fd)?;
            Ok(LinuxFd::new(fd, true, &on))
        };
        pool::run(ThreadGroup::Io.of(device), Identity::Service, look).await
    }

    /// Queries a name on the pool, or the root of the file system that is mounted on it.
    pub(super) async fn pool_stat(&self, dir: &LinuxFd, name: &[u8]) -> DiskResult<Stat> {
        let on_disk = name.to_vec();
        let looked = self.wait(dir, move |dir| {
            calls::stat_at(dir, &on_disk, libc::DT_UNKNOWN)
        });
        match looked.await {
            Err(Errno(libc::EXDEV)) => {}
            looked => return looked,
        }
        let (service, how) = (&Identity::Service, OpenHow::PATH_ONLY);
        let fd = self.pool_open(service, dir, name, how).await?;
        self.look(&fd, calls::stat).await
    }

    /// [`Disk::entries_attrs`](crate::disk::Disk::entries_attrs), in one job of the pool.
    pub(super) async fn attrs_of(
        &self,
        dir: &LinuxFd,
        names: Vec<Box<[u8]>>,
        wanted: Wanted,
    ) -> Vec<DiskResult<EntryAttrs>> {
        let count = names.len();
        let looked = self.wait(dir, move |dir| {
            // Opening each name first, whose type is not known, would make long listings a quarter slower. A thread may
            // wait here for an automounter.
            let each = names.iter().map(|name| (&**name, libc::DT_REG));
            let found = xattrs::entries(dir, each, &wanted, xattrs::XattrAccess::here());
            Ok((found, names, wanted))
        });
        let (mut found, names, wanted) = match looked.await {
            Ok(looked) => looked,
            Err(errno) => return (0..count).map(|_| Err(errno)).collect(),
        };
        let each = names.iter().map(|name| &**name);
        self.look_at_mounted(dir, each, &wanted, &mut found).await;
        found
    }

    /// Looks at the names on which other file systems are mounted, which [`xattrs::entries`] leaves out with EXDEV.
    pub(super) async fn look_at_mounted<'a>(
        &self,
        dir: &LinuxFd,
        names: impl Iterator<Item = &'a [u8]>,
        wanted: &Wanted,
        found: &mut [DiskResult<EntryAttrs>],
    ) {
        for (name, one) in names.zip(found) {
            if matches!(one, Err(Errno(libc::EXDEV))) {
                *one = entry_attrs(self, dir, name, wanted).await;
            }
        }
    }

    /// Starts write-back on the group of syncs, because the call waits while the device's queue is full.
    pub(super) fn post_write_back(&self, fd: &LinuxFd, offset: u64, len: u64) {
        // The previous call still waits for room in the device's queue.
        let on = fd.file_system();
        if on.starting.swap(true, AcqRel) {
            return;
        }
        let (fd, starting) = (fd.clone(), Starting(Arc::clone(on)));
        pool::post(fd.place(ThreadGroup::Sync), move || {
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
