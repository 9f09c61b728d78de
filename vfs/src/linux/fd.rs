//! An open descriptor, and the facts known about it.
//!
//! It closes when the last clone is dropped; the pool then frees the blocks of a large removed file, writes back a large
//! one that was truncated, and closes the descriptors of remote file systems. A descriptor opened with `O_PATH` has no
//! calls of its own for attributes, times and modes: those go through its magic link in `/proc/self/fd`.

use std::{
    ffi::{CStr, CString},
    fmt,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
        },
    },
};

use rustix::{
    fs::{AtFlags, Mode, OFlags, StatxFlags},
    path::DecInt,
};

use super::{
    calls,
    class::Class,
    file_system::FileSystem,
    pool::{self, Place, ThreadGroup},
    super_block,
};
use crate::{Identity, credentials, disk::DiskResult, lock, posix_sys as raw, uring::HeldFd};

/// Removed and truncated files with more 512-byte blocks than this are closed by the pool.
const CLOSE_BLOCKS_MAX: u64 = 8192;

struct Inner {
    /// `None` only while this is dropped.
    fd: Option<OwnedFd>,
    file_system: Arc<FileSystem>,
    path_only: bool,
    /// Opened with `O_PATH` and known to be a directory that is not large.
    directory: AtomicBool,
    /// Locked by the listing under way, which uses the directory's position.
    listing: Mutex<()>,
    /// `O_NONBLOCK` is still set from the open; see [`LinuxFd::for_ring`].
    nonblock: AtomicBool,
    truncated: AtomicBool,
    /// The number of open descriptors of this inode that share this count: this one and those opened again from it. It
    /// is made with the second one.
    beside: OnceLock<Arc<AtomicUsize>>,
}

/// An open descriptor of a real disk; the last clone closes it.
#[derive(Clone)]
pub struct LinuxFd(Arc<Inner>);

impl fmt::Debug for LinuxFd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LinuxFd({})", self.as_raw_fd())
    }
}

impl AsFd for Inner {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // A call on `ABS` fails with EBADF.
        self.fd.as_ref().map_or(rustix::fs::ABS, AsFd::as_fd)
    }
}

impl AsFd for LinuxFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for LinuxFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl Drop for Inner {
    /// Closing the last descriptor of a removed file frees its blocks, which takes longer the more there are, so a
    /// thread of the pool closes a large one. If another descriptor of the inode is known, the check is left to that
    /// one. (Of two that close at the same moment, the one that did not check may close last; then this thread frees
    /// the blocks.)
    ///
    /// ext4, XFS and btrfs write a truncated file's new data back when it is closed, and wait while the device's queue is
    /// full. A large file that was truncated through this descriptor is therefore closed by the pool, too. Of an ext4
    /// the kernel says whether anyone truncated the file to nothing, other programs included.
    ///
    /// On a remote file system each close of a descriptor for data waits for the other side (FLUSH of FUSE, the
    /// write-back of NFS), so the pool closes all of these.
    fn drop(&mut self) {
        let Some(fd) = self.fd.take() else { return };
        let beside = self.beside.get();
        let others = beside.is_some_and(|beside| beside.fetch_sub(1, AcqRel) > 1);
        let remote = self.file_system.class.remote;
        if remote && !self.path_only {
            pool::close(self.file_system.place(ThreadGroup::Io), fd);
            return;
        }
        let truncated = *self.truncated.get_mut();
        // The query may wait for another host (9p, GFS2, OCFS2), and the blocks are freed there.
        if remote || (others && !truncated) {
            return;
        }
        // One of these is closed for each component of a path that is looked up.
        if *self.directory.get_mut() {
            return;
        }
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let asked = StatxFlags::NLINK | StatxFlags::BLOCKS;
        let Ok(stat) = rustix::fs::statx(&fd, c"", flags, asked) else {
            return;
        };
        let is_ext4 = self.file_system.class.kind == super_block::EXT4 && !self.path_only;
        let writes_back = || truncated || (is_ext4 && raw::ext4_close_writes_back(fd.as_fd()));
        if stat.stx_blocks > CLOSE_BLOCKS_MAX && (stat.stx_nlink == 0 || writes_back()) {
            pool::close(self.file_system.place(ThreadGroup::Io), fd);
        }
    }
}

impl LinuxFd {
    pub(super) fn new(fd: OwnedFd, path_only: bool, on: &Arc<FileSystem>) -> Self {
        Self(Arc::new(Inner {
            fd: Some(fd),
            file_system: Arc::clone(on),
            path_only,
            directory: AtomicBool::new(false),
            listing: Mutex::new(()),
            nonblock: AtomicBool::new(false),
            truncated: AtomicBool::new(false),
            beside: OnceLock::new(),
        }))
    }

    /// A descriptor that was opened with `O_NONBLOCK`.
    pub(super) fn nonblock(fd: OwnedFd, on: &Arc<FileSystem>) -> Self {
        let fd = Self::new(fd, false, on);
        fd.0.nonblock.store(true, Release);
        fd
    }

    pub(super) fn file_system(&self) -> &Arc<FileSystem> {
        &self.0.file_system
    }

    pub(crate) fn class(&self) -> Class {
        self.0.file_system.class
    }

    /// The place on the pool for a call that waits for its file system.
    pub(super) fn place(&self, group: ThreadGroup) -> Place {
        self.0.file_system.place(group)
    }

    /// The place for walks to what automounters mount on names of the descriptor's file system: that of a device number
    /// which no file system has.
    pub(super) fn place_of_automounts(&self) -> Place {
        ThreadGroup::Io.of(!self.0.file_system.device)
    }

    /// Connects the descriptor with `other`, which is of the same inode: the one that closes first leaves the check of
    /// its size to the other.
    pub(super) fn joins(&self, other: &Self) {
        let beside = (other.0.beside).get_or_init(|| Arc::new(AtomicUsize::new(1)));
        beside.fetch_add(1, AcqRel);
        if self.0.beside.set(Arc::clone(beside)).is_err() {
            beside.fetch_sub(1, AcqRel);
        }
    }

    /// The number of other descriptors it is connected with.
    #[cfg(test)]
    pub(super) fn others(&self) -> usize {
        let beside = self.0.beside.get();
        beside.map_or(0, |beside| beside.load(Acquire).saturating_sub(1))
    }

    /// To be called before a ring reads or writes: a ring takes `O_NONBLOCK` as "never wait". System calls on a local
    /// file system ignore it, so it stays set until then.
    pub(super) fn for_ring(&self) -> DiskResult<()> {
        if self.0.nonblock.load(Acquire) {
            rustix::fs::fcntl_setfl(self, OFlags::empty())?;
            self.0.nonblock.store(false, Release);
        }
        Ok(())
    }

    /// Sets or clears `O_NOATIME`.
    pub(super) fn keep_access_time(&self, keeps: bool) -> DiskResult<()> {
        // This clears every flag, which it must not do later.
        self.for_ring()?;
        let flags = match keeps {
            true => OFlags::NOATIME,
            false => OFlags::empty(),
        };
        Ok(rustix::fs::fcntl_setfl(self, flags)?)
    }

    /// Whether its file system is behind a network or another process, and so may wait in any call.
    #[must_use]
    pub fn is_remote(&self) -> bool {
        self.class().remote
    }

    /// Runs a call that creates nothing, as the service, on a thread that may wait for its file system. It is dropped
    /// if too many calls wait there.
    pub fn post(&self, call: impl FnOnce(&Self) + Send + 'static) {
        let fd = self.clone();
        pool::post(self.place(ThreadGroup::Io), move || {
            // Another machine may check the groups even of uid 0.
            if credentials::assume(&Identity::Service).is_ok() {
                call(&fd);
            }
        });
    }

    /// The present path of the object on the host, as the kernel has it in memory. It is only a hint, and `None` if the
    /// object has no name or its path is not known.
    #[must_use]
    pub fn path(&self) -> Option<Vec<u8>> {
        calls::path(self)
    }

    /// Whether the name by which the file or directory was opened is gone. On a remote file system, a name that ends in
    /// " (deleted)" counts as gone.
    #[must_use]
    pub fn has_lost_name(&self) -> bool {
        calls::has_lost_name(self)
    }

    /// The magic link to this descriptor.
    pub(super) fn proc_path(&self) -> String {
        format!("/proc/self/fd/{}", self.as_raw_fd())
    }

    /// Runs `call` with the magic link to this descriptor, given as a directory and a path: the directory is the folder
    /// of the links, which spares the kernel most of the walk through `/proc`.
    pub(super) fn by_link<T>(&self, call: impl FnOnce(BorrowedFd<'_>, &CStr) -> T) -> T {
        match links() {
            Some(folder) => call(folder, DecInt::from_fd(self).as_c_str()),
            None => {
                // The path has no NUL.
                let path = CString::new(self.proc_path()).unwrap_or_default();
                call(rustix::fs::CWD, &path)
            }
        }
    }

    /// To be called before the file is truncated through this descriptor.
    pub(super) fn truncates(&self) {
        self.0.truncated.store(true, Relaxed);
    }

    pub(super) fn is_path_only(&self) -> bool {
        self.0.path_only
    }

    /// Whether it is known to be a directory that is not large.
    pub(super) fn is_directory(&self) -> bool {
        self.0.directory.load(Relaxed)
    }

    /// Records the result of a query of a descriptor opened with `O_PATH`.
    pub(super) fn seen(&self, is_directory: bool, blocks: u64) {
        let small = blocks <= CLOSE_BLOCKS_MAX;
        self.0.directory.store(is_directory && small, Relaxed);
    }

    /// Locks the position of a directory for a listing.
    pub(super) fn listing(&self) -> MutexGuard<'_, ()> {
        lock(&self.0.listing)
    }

    /// The descriptor, held open for an operation of a ring.
    pub(super) fn held(&self) -> HeldFd {
        HeldFd {
            fd: Arc::clone(&self.0) as Arc<dyn AsFd + Send + Sync>,
            occupies: Some(self.0.file_system.device),
        }
    }

    /// [`Self::held`] for a read.
    pub(super) fn held_for_read(&self) -> HeldFd {
        let held = self.held();
        let occupies = held.occupies.filter(|_| !self.class().reads_apart);
        HeldFd { occupies, ..held }
    }
}

/// The folder of this process's magic links. If it cannot be opened, the next call tries again.
fn links() -> Option<BorrowedFd<'static>> {
    static FOLDER: OnceLock<OwnedFd> = OnceLock::new();
    if FOLDER.get().is_none() {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let _ = FOLDER.set(rustix::fs::open("/proc/self/fd", flags, Mode::empty()).ok()?);
    }
    FOLDER.get().map(OwnedFd::as_fd)
}

#[cfg(test)]
mod tests {
    use std::{io, thread, time::Duration};

    use rustix::fs::FlockOperation;

    use super::*;
    use crate::linux::pool::tests::hold_up;

    /// The kernel writes back in `close` what was written after a truncation.
    #[test]
    fn a_large_file_that_was_truncated_is_closed_by_the_pool() {
        const LARGE: usize = (CLOSE_BLOCKS_MAX as usize + 1024) * 512;
        let on = FileSystem::with(4004, Class::default());
        let folder = tempfile::tempdir().unwrap();
        // The lock goes with the descriptor.
        let locked = |name: &str, len: usize| {
            let path = folder.path().join(name);
            std::fs::write(&path, vec![1_u8; len]).unwrap();
            let open = || std::fs::File::options().write(true).open(&path).unwrap();
            let fd = LinuxFd::new(open().into(), false, &on);
            rustix::fs::flock(&fd, FlockOperation::LockExclusive).unwrap();
            (fd, open())
        };
        let is_closed = |other: &std::fs::File| {
            let lock = rustix::fs::flock(other, FlockOperation::NonBlockingLockExclusive);
            lock.is_ok()
        };
        // A process that another test is starting may have the descriptor for a moment.
        let closes = |other: &std::fs::File| {
            (0..10_000).any(|_| {
                thread::sleep(Duration::from_millis(1));
                is_closed(other)
            })
        };
        let [plain, small, large] =
            [("plain", LARGE), ("small", 1), ("large", LARGE)].map(|(name, len)| locked(name, len));
        let release = hold_up(plain.0.place(ThreadGroup::Io), pool::IO_THREADS_MAX);
        drop(plain.0);
        assert!(closes(&plain.1), "it was not truncated");
        small.0.truncates();
        drop(small.0);
        assert!(closes(&small.1), "it is small");
        large.0.truncates();
        drop(large.0);
        assert!(!is_closed(&large.1));
        drop(release);
        assert!(closes(&large.1), "the pool never closes it");
    }

    /// The thread that drops the last clone does not wait, even if no more jobs have room.
    #[test]
    fn descriptors_of_a_remote_file_system_are_closed_by_the_pool() {
        let on = FileSystem::remote(4001);
        let pipe = |path_only| {
            let (reader, writer) = io::pipe().unwrap();
            let fd = LinuxFd::new(writer.into(), path_only, &on);
            rustix::io::ioctl_fionbio(&reader, true).unwrap();
            (reader, fd)
        };
        // A read returns 0 once the pipe's other end is closed.
        let is_closed = |reader: &io::PipeReader| rustix::io::read(reader, &mut [0]) == Ok(0);
        let ((one, data), (two, names)) = (pipe(false), pipe(true));
        let fill = |jobs| hold_up(data.place(ThreadGroup::Io), jobs);
        // When the threads have taken their jobs, as many as have room are queued, and a few more.
        let running = fill(pool::IO_THREADS_MAX);
        thread::sleep(Duration::from_millis(200));
        let queued = fill(pool::QUEUE_MAX + pool::IO_THREADS_MAX);
        let clone = data.clone();
        drop(names);
        // `O_PATH`: there is nothing to wait for. A process that another test is starting may have the pipe for a moment.
        let closed = (0..10_000).any(|_| {
            thread::sleep(Duration::from_millis(1));
            is_closed(&two)
        });
        assert!(closed, "it waits for the pool");
        drop(data);
        drop(clone);
        assert!(!is_closed(&one));
        drop((running, queued));
        while !is_closed(&one) {
            thread::sleep(Duration::from_millis(1));
        }
    }
}
