//! The operations of a disk, in the form of system calls, on which the POSIX back end is built.
//!
//! The same back end runs on two implementations: [`crate::linux::LinuxDisk`] (a real file system) and
//! [`crate::sim::SimDisk`] (memory, with a live and a durable image and faults).
//!
//! Every method is one operation of Linux with its meaning and its errors, without retries and policy. Names are bytes
//! without `/` and NUL. A path has one component, so `RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS` is
//! implied for [`Disk::open_at`]; links are read with [`Disk::read_link_at`] and walked by the back end.

#![allow(async_fn_in_trait)] // Futures are polled on the worker that made them; no `Send` wanted.

mod entries;
mod values;

use std::{
    fmt,
    future::Future,
    io,
    os::fd::BorrowedFd,
    pin::Pin,
    sync::{Arc, LazyLock},
};

use bytes::{Bytes, BytesMut};

pub(crate) use self::entries::entry_attrs;
pub use self::values::{
    Allocate, Created, EntriesLooked, EntryAttrs, Mark, OpenHow, RawEntry, Stat, StatFs, Wanted,
    XattrLengths, XattrSet,
};
pub use crate::inode_locks::InodeLocks;
use crate::{Identity, IoAccess, Timestamp, VfsResult};

/// An errno of Linux, positive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

impl From<rustix::io::Errno> for Errno {
    fn from(errno: rustix::io::Errno) -> Self {
        Self(errno.raw_os_error())
    }
}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> Self {
        Self::from_raw_os_error(errno.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&io::Error::from(*self), f)
    }
}

pub type DiskResult<T> = Result<T, Errno>;

/// The result of an attempt at an operation, after which another attempt (by the ring, by the pool) may follow.
pub(crate) enum Attempt<T, B> {
    Done(DiskResult<T>),
    /// It would have to wait, or cannot be done this way; its buffers are returned.
    Declined(B),
}

// [`StatFs::kind`] of btrfs, NFS, overlayfs and XFS.
pub(crate) const BTRFS: u64 = 0x9123_683E;
pub(crate) const NFS: u64 = 0x6969;
pub(crate) const OVERLAY: u64 = 0x794C_7630;
pub(crate) const XFS: u64 = 0x5846_5342;

/// The present (`UTIME_NOW`) as a last write for [`Disk::set_times`].
pub const NOW: Timestamp = Timestamp {
    secs: 0,
    nanos: 0x3FFF_FFFF,
};

/// Longest component in bytes (`NAME_MAX`).
pub const NAME_MAX: usize = 255;

/// The check that every disk makes of a component first: not empty (ENOENT), no `/` nor NUL and neither `.` nor
/// `..` (EINVAL), at most [`NAME_MAX`] bytes (ENAMETOOLONG).
pub fn check_name(name: &[u8]) -> DiskResult<()> {
    match name {
        b"" => Err(Errno(libc::ENOENT)),
        b"." | b".." => Err(Errno(libc::EINVAL)),
        _ if name.iter().any(|b| matches!(b, 0 | b'/')) => Err(Errno(libc::EINVAL)),
        _ if name.len() > NAME_MAX => Err(Errno(libc::ENAMETOOLONG)),
        _ => Ok(()),
    }
}

/// A range of a file that was wholly in memory a moment ago ([`Disk::in_memory`]).
pub trait InMemory: std::fmt::Debug + Send {
    /// Bytes that are left.
    fn left(&self) -> usize;

    /// Sends some of the bytes left to a non-blocking socket, and returns how many; 0 is the end of the file.
    ///
    /// # Errors
    /// EAGAIN if the socket is full, and the errors of the file.
    fn send(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize>;

    /// Reads all bytes left, and waits for the disk if need be. Fails if the file ends too early.
    fn read(self: Box<Self>) -> Pin<Box<dyn Future<Output = VfsResult<BytesMut>>>>;
}

/// Operations of a disk. `who` is the identity the kernel checks and the owner of new objects; calls without it act on
/// what an open descriptor already allows.
pub trait Disk: Send + Sync + 'static {
    /// An open descriptor; the last clone closes it.
    type Fd: Clone + Send + Sync + 'static;

    /// The directory this disk starts at.
    fn root(&self) -> Self::Fd;

    /// The locks on inodes and names, which must be shared by all that change the same ones. For disks of the host, the
    /// whole process shares them.
    fn inode_locks(&self) -> Arc<InodeLocks> {
        static PROCESS: LazyLock<Arc<InodeLocks>> = LazyLock::new(Arc::default);
        Arc::clone(&PROCESS)
    }

    /// `openat2` of one component, never through a symbolic link (ELOOP).
    async fn open_at(
        &self,
        who: &Identity,
        dir: &Self::Fd,
        name: &[u8],
        how: OpenHow,
    ) -> DiskResult<Self::Fd>;

    /// The uid that [`Identity::Service`] acts as.
    fn service_uid(&self) -> u32;

    /// Whether all changes of the file system that `fd` is on pass this kernel: false for a network file system.
    fn is_local(&self, fd: &Self::Fd) -> bool;

    /// [`Disk::open_at`] if that needs no waiting; otherwise `None`. Creates nothing.
    fn open_now(
        &self,
        who: &Identity,
        dir: &Self::Fd,
        name: &[u8],
        how: OpenHow,
    ) -> Option<DiskResult<Self::Fd>> {
        let _ = (who, dir, name, how);
        None
    }

    /// Opens one name after the other with `O_PATH` as [`Disk::open_now`] does, each in the directory opened before it,
    /// as far as that succeeds. A name without a result was not tried; only the last result may be an error.
    fn open_way(
        &self,
        who: &Identity,
        dir: &Self::Fd,
        names: &[Box<[u8]>],
    ) -> Vec<Option<DiskResult<Self::Fd>>> {
        let _ = (who, dir, names);
        Vec::new()
    }

    /// Creates a file as [`Disk::open_at`] does with `create`, queries its state, and sets its first attribute, as the
    /// user who made it or, if that is not permitted, as the service. A disk may do these three operations at once.
    async fn create_at(
        &self,
        who: &Identity,
        dir: &Self::Fd,
        name: &[u8],
        mode: u32,
        mark: Mark,
    ) -> DiskResult<Created<Self::Fd>> {
        let how = OpenHow::new_file(mode);
        let fd = self.open_at(who, dir, name, how).await?;
        let stat = self.stat(&fd).await;
        let marked = match &stat {
            Ok(stat) => {
                let (name, value) = mark(stat);
                let (how, service) = (XattrSet::Either, &Identity::Service);
                match self.set_xattr(who, &fd, name, &value, how).await {
                    Err(Errno(libc::EACCES | libc::EPERM)) => {
                        self.set_xattr(service, &fd, name, &value, how).await
                    }
                    marked => marked,
                }
            }
            Err(errno) => Err(*errno),
        };
        Ok(Created { fd, stat, marked })
    }

    /// State and one extended attribute of several names in a directory, links not followed (a
    /// link's attribute is ENODATA), as the service. The results are in the order of `names`, of which the caller
    /// should pass no more than it wants to wait for at once.
    async fn entries_attrs(
        &self,
        dir: &Self::Fd,
        names: Vec<Box<[u8]>>,
        wanted: Wanted,
    ) -> Vec<DiskResult<EntryAttrs>> {
        let mut found = Vec::with_capacity(names.len());
        for name in &names {
            found.push(entry_attrs(self, dir, name, &wanted).await);
        }
        found
    }

    /// The extended attributes of several names in a directory, links not followed, as the service: each that `wanted`
    /// approves of, with the length of its value. The names must be on the file system of the directory.
    async fn entries_xattrs(
        &self,
        dir: &Self::Fd,
        names: Vec<Box<[u8]>>,
        wanted: fn(&str) -> bool,
    ) -> Vec<DiskResult<XattrLengths>> {
        let mut found = Vec::with_capacity(names.len());
        for name in &names {
            let lengths = async {
                let how = OpenHow::PATH_ONLY;
                let fd = self.open_at(&Identity::Service, dir, name, how).await?;
                let mut lengths = Vec::new();
                for attribute in self.list_xattr(&fd).await? {
                    if wanted(&attribute) {
                        let length = self.get_xattr(&fd, &attribute).await?.len();
                        lengths.push((attribute, length));
                    }
                }
                Ok::<_, Errno>(lengths)
            };
            found.push(lengths.await);
        }
        found
    }

    /// Opens the inode behind `fd` again (through `/proc/self/fd`), whatever its name.
    async fn reopen(&self, who: &Identity, fd: &Self::Fd, io: IoAccess) -> DiskResult<Self::Fd>;

    /// Closes `fd`, whose inode `other` also keeps open.
    fn close_beside(&self, fd: Self::Fd, other: &Self::Fd) {
        let _ = other;
        drop(fd);
    }

    /// `faccessat2(fd, "", mode, AT_EMPTY_PATH | AT_EACCESS)` as `who`: mode is R_OK|W_OK|X_OK.
    async fn access(&self, who: &Identity, fd: &Self::Fd, mode: u32) -> DiskResult<()>;

    /// `statx` of a descriptor.
    async fn stat(&self, fd: &Self::Fd) -> DiskResult<Stat>;

    /// `statx` of a name, not following links.
    async fn stat_at(&self, dir: &Self::Fd, name: &[u8]) -> DiskResult<Stat>;

    /// `pread` into the spare capacity of `buf`, up to `len` bytes, which are appended. It may return fewer.
    async fn read(
        &self,
        fd: &Self::Fd,
        offset: u64,
        len: usize,
        buf: BytesMut,
    ) -> DiskResult<BytesMut>;

    /// The bytes of a range if all of them are in memory and can be sent from there without waiting. `None` if that is
    /// not known or this disk cannot send.
    fn in_memory(&self, fd: &Self::Fd, offset: u64, len: usize) -> Option<Box<dyn InMemory>> {
        let _ = (fd, offset, len);
        None
    }

    /// Sets or clears `O_NOATIME` of a descriptor that is not `O_PATH`. A disk whose reads move no time, and one that
    /// refuses it, do nothing.
    fn keep_access_time(&self, fd: &Self::Fd, keeps: bool) {
        let _ = (fd, keeps);
    }

    /// `pwritev2`; `durable` is `RWF_DSYNC`. Returns the bytes written, which may be fewer.
    async fn write(
        &self,
        fd: &Self::Fd,
        offset: u64,
        data: Bytes,
        durable: bool,
    ) -> DiskResult<usize>;

    async fn truncate(&self, fd: &Self::Fd, size: u64) -> DiskResult<()>;

    /// `fallocate`.
    async fn allocate(&self, fd: &Self::Fd, how: Allocate, offset: u64, len: u64)
    -> DiskResult<()>;

    /// `lseek(SEEK_DATA)` (`data` true) or `SEEK_HOLE`. ENXIO at the end.
    async fn seek(&self, fd: &Self::Fd, offset: u64, data: bool) -> DiskResult<u64>;

    /// `copy_file_range` between two descriptors, each with an offset. May copy fewer bytes, and 0 at the source's end.
    async fn copy_range(
        &self,
        from: (&Self::Fd, u64),
        to: (&Self::Fd, u64),
        len: u64,
    ) -> DiskResult<u64>;

    /// `FICLONERANGE`, likewise.
    async fn clone_range(
        &self,
        from: (&Self::Fd, u64),
        to: (&Self::Fd, u64),
        len: u64,
    ) -> DiskResult<()>;

    /// `fsync`. EAGAIN means that it was never begun.
    async fn fsync(&self, fd: &Self::Fd) -> DiskResult<()>;

    /// `fdatasync`. EAGAIN as for [`Disk::fsync`].
    async fn fdatasync(&self, fd: &Self::Fd) -> DiskResult<()>;

    /// Makes a directory's entries stable: `fsync`, and before it a commit of a file system that may restore removed
    /// names although their directory was synced (btrfs). EAGAIN as for [`Disk::fsync`].
    async fn sync_dir(&self, fd: &Self::Fd) -> DiskResult<()> {
        self.fsync(fd).await
    }

    /// `syncfs`: makes all names and attributes of the file system stable, in whatever order they were changed, or
    /// returns the error of a write-back of any inode since `fd` was opened (Linux 5.8 on). It is not for data, which
    /// on XFS may stay in the device's cache. EAGAIN as for [`Disk::fsync`].
    async fn sync_fs(&self, fd: &Self::Fd) -> DiskResult<()>;

    /// `sync_file_range(SYNC_FILE_RANGE_WRITE)` on a separate thread: starts write-back, so that a later
    /// [`Disk::fdatasync`] has less to do. It makes nothing stable and returns no error: that sync returns it.
    fn start_write_back(&self, fd: &Self::Fd, offset: u64, len: u64) {
        let _ = (fd, offset, len);
    }

    async fn make_dir(
        &self,
        who: &Identity,
        dir: &Self::Fd,
        name: &[u8],
        mode: u32,
    ) -> DiskResult<()>;

    /// `unlinkat`; `directory` is `AT_REMOVEDIR`.
    async fn unlink(
        &self,
        who: &Identity,
        dir: &Self::Fd,
        name: &[u8],
        directory: bool,
    ) -> DiskResult<()>;

    /// `renameat2` of a name in a directory to another one; `replace` false is `RENAME_NOREPLACE`.
    async fn rename(
        &self,
        who: &Identity,
        from: (&Self::Fd, &[u8]),
        to: (&Self::Fd, &[u8]),
        replace: bool,
    ) -> DiskResult<()>;

    /// `linkat` of the inode behind `fd` (through `/proc/self/fd` with `AT_SYMLINK_FOLLOW`).
    async fn link(
        &self,
        who: &Identity,
        fd: &Self::Fd,
        dir: &Self::Fd,
        name: &[u8],
    ) -> DiskResult<()>;

    /// `readlinkat`, at most 4,095 bytes.
    async fn read_link_at(&self, dir: &Self::Fd, name: &[u8]) -> DiskResult<Vec<u8>>;

    /// All entries of a directory except `.` and `..`, in the file system's order, at most `max` (else EOVERFLOW, as
    /// where they would take too much memory). `fd` need not be fresh: the position is reset.
    async fn entries(&self, fd: &Self::Fd, max: usize) -> DiskResult<Vec<RawEntry>>;

    /// [`Disk::entries`], and the results of [`Disk::entries_attrs`] for the first `looked` of them, in one wait.
    async fn entries_looked(
        &self,
        fd: &Self::Fd,
        max: usize,
        looked: usize,
        wanted: Wanted,
    ) -> DiskResult<EntriesLooked> {
        let entries = self.entries(fd, max).await?;
        let mut attrs = Vec::with_capacity(entries.len().min(looked));
        for entry in entries.iter().take(looked) {
            attrs.push(entry_attrs(self, fd, &entry.name, &wanted).await);
        }
        Ok((entries, attrs))
    }

    /// `fgetxattr` (also of `O_PATH` descriptors, through `/proc/self/fd`). ENODATA if absent; E2BIG above 64 KiB.
    async fn get_xattr(&self, fd: &Self::Fd, name: &str) -> DiskResult<Vec<u8>>;

    /// `fsetxattr`, likewise.
    async fn set_xattr(
        &self,
        who: &Identity,
        fd: &Self::Fd,
        name: &str,
        value: &[u8],
        how: XattrSet,
    ) -> DiskResult<()>;

    /// `fremovexattr`, likewise.
    async fn remove_xattr(&self, who: &Identity, fd: &Self::Fd, name: &str) -> DiskResult<()>;

    /// `flistxattr`, likewise.
    async fn list_xattr(&self, fd: &Self::Fd) -> DiskResult<Vec<String>>;

    /// `utimensat` of the inode; `None` keeps a time, and [`NOW`] stands for the present.
    async fn set_times(
        &self,
        who: &Identity,
        fd: &Self::Fd,
        accessed: Option<Timestamp>,
        written: Option<Timestamp>,
    ) -> DiskResult<()>;

    /// `fchmod` of the inode.
    async fn set_mode(&self, who: &Identity, fd: &Self::Fd, mode: u32) -> DiskResult<()>;

    /// `fchown` of the inode; `None` keeps an id.
    async fn set_owner(
        &self,
        who: &Identity,
        fd: &Self::Fd,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> DiskResult<()>;

    /// Whether a power cut leaves every rename on a file system (a device number) either whole or not
    /// made, whichever of its two directories was synced. `false` if that is not known.
    fn renames_are_atomic(&self, fs: u64) -> bool;

    /// Calls `look` with the present path of an open object, from the root of this disk, as `/proc/self/fd` shows it.
    /// The path is only a hint. Returns `None` if the object has no name, lies outside, or its path is not known.
    fn with_path<T>(&self, fd: &Self::Fd, look: impl FnOnce(&[u8]) -> T) -> Option<T>;

    /// A copy of the path that [`Disk::with_path`] shows.
    fn path_hint(&self, fd: &Self::Fd) -> Option<Vec<u8>> {
        self.with_path(fd, <[u8]>::to_vec)
    }

    /// Whether an object may have a path although [`Disk::path_hint`] does not know it: it is too long, or ambiguous.
    fn is_path_unknown(&self, fd: &Self::Fd) -> bool {
        let _ = fd;
        false
    }

    /// `fstatfs`.
    async fn stat_fs(&self, fd: &Self::Fd) -> DiskResult<StatFs>;
}
