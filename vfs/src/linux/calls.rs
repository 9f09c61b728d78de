//! The operations of a disk as plain system calls that may block.
//!
//! Whoever calls these decides on which thread and under which identity. One function is one
//! operation of [`crate::Disk`]; the only additions are what a descriptor opened with `O_PATH`
//! needs (a detour by `/proc/self/fd`) and repeating a call that a signal interrupted.

use std::{
    ffi::{CStr, CString},
    fmt,
    mem::MaybeUninit,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{AcqRel, Acquire, Relaxed, Release},
        },
    },
};

use rustix::{
    fs::{
        AtFlags, FallocateFlags, Mode, OFlags, RawDir, RenameFlags, ResolveFlags, SeekFrom,
        StatVfsMountFlags, Statx, StatxAttributes, StatxFlags, StatxTimestamp, Timestamps,
        UTIME_OMIT,
    },
    io::retry_on_intr,
    path::DecInt,
};

use super::{
    pool::{self, Lane},
    super_block,
};
use crate::{
    FileKey, Timestamp,
    disk::{Allocate, DiskResult, Errno, OpenHow, RawEntry, Stat, StatFs},
    posix_sys as raw,
};

/// Bytes of one `getdents` buffer.
const DIRENT_BUF: usize = 64 * 1024;
/// Longest target of a symbolic link that is read.
const LINK_MAX: usize = 4095;
/// Directories are allowed this many entries before memory for them is set aside at once.
const ENTRIES_GUESS: usize = 64;

/// Removed files with more 512-byte blocks than this are closed by the pool.
const CLOSE_BLOCKS_MAX: u64 = 8192;

struct Inner {
    fd: OwnedFd,
    path_only: bool,
    /// With `O_PATH`: was seen to be a directory, and no large one.
    directory: AtomicBool,
    /// The position of a directory belongs to the listing that is under way.
    listing: Mutex<()>,
    /// `O_NONBLOCK` is still on, from the open; see [`LinuxFd::for_ring`].
    nonblock: AtomicBool,
    /// How many descriptors of this inode live that know of each other: this one and those opened
    /// anew from it. Not made before there is a second.
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

impl AsFd for LinuxFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

impl AsRawFd for LinuxFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.fd.as_raw_fd()
    }
}

impl Drop for Inner {
    /// Closing the last descriptor of a removed file frees its blocks, which takes the longer the more there are:
    /// then a thread of the pool shall close it. If another descriptor of the inode is known, the check is left to
    /// that one. (Of two that close at the same moment, the one that did not check may close last: then this thread
    /// frees the blocks.)
    fn drop(&mut self) {
        if let Some(beside) = self.beside.get()
            && beside.fetch_sub(1, AcqRel) > 1
        {
            return;
        }
        // One of these is closed for each component of a path that is looked up.
        if *self.directory.get_mut() {
            return;
        }
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let asked = StatxFlags::NLINK | StatxFlags::BLOCKS;
        let Ok(stat) = rustix::fs::statx(&self.fd, c"", flags, asked) else {
            return;
        };
        if stat.stx_nlink == 0
            && stat.stx_blocks > CLOSE_BLOCKS_MAX
            && let Ok(last) = self.fd.try_clone()
        {
            pool::post(Lane::Io.of(device(&stat)), move || drop(last));
        }
    }
}

impl LinuxFd {
    pub(crate) fn new(fd: OwnedFd, path_only: bool) -> Self {
        Self(Arc::new(Inner {
            fd,
            path_only,
            directory: AtomicBool::new(false),
            listing: Mutex::new(()),
            nonblock: AtomicBool::new(false),
            beside: OnceLock::new(),
        }))
    }

    /// Opened with `O_NONBLOCK`.
    fn nonblock(fd: OwnedFd) -> Self {
        let fd = Self::new(fd, false);
        fd.0.nonblock.store(true, Release);
        fd
    }

    /// `other` is of the same inode: whichever closes first leaves the look at it to the other.
    pub(crate) fn joins(&self, other: &Self) {
        let beside = (other.0.beside).get_or_init(|| Arc::new(AtomicUsize::new(1)));
        beside.fetch_add(1, AcqRel);
        if self.0.beside.set(Arc::clone(beside)).is_err() {
            beside.fetch_sub(1, AcqRel);
        }
    }

    /// How many others it knows of.
    #[cfg(test)]
    pub(super) fn others(&self) -> usize {
        let beside = self.0.beside.get();
        beside.map_or(0, |beside| beside.load(Acquire).saturating_sub(1))
    }

    /// To be called before a ring reads or writes: it takes `O_NONBLOCK` for "never wait". System
    /// calls on a local file system do not mind it, so it stays on until then.
    pub(crate) fn for_ring(&self) -> DiskResult<()> {
        if self.0.nonblock.load(Acquire) {
            rustix::fs::fcntl_setfl(self, OFlags::empty()).map_err(errno)?;
            self.0.nonblock.store(false, Release);
        }
        Ok(())
    }

    /// The magic link to this descriptor.
    pub(crate) fn proc_path(&self) -> String {
        format!("/proc/self/fd/{}", self.as_raw_fd())
    }

    /// Calls with the magic link to this descriptor as a directory and a path: from a descriptor of
    /// the links' folder, which spares the kernel most of the way through `/proc`.
    pub(super) fn by_link<T>(&self, call: impl FnOnce(BorrowedFd<'_>, &CStr) -> T) -> T {
        match links() {
            Some(folder) => call(folder, DecInt::from_fd(self).as_c_str()),
            None => {
                // A number and no NUL.
                let path = CString::new(self.proc_path()).unwrap_or_default();
                call(rustix::fs::CWD, &path)
            }
        }
    }

    pub(super) fn is_path_only(&self) -> bool {
        self.0.path_only
    }

    /// Whether it was seen to be a directory, and no large one; [`stat`] sees it.
    pub(super) fn is_directory(&self) -> bool {
        self.0.directory.load(Relaxed)
    }
}

/// The folder of this process's magic links. Asked for again while it cannot be opened.
fn links() -> Option<BorrowedFd<'static>> {
    static FOLDER: OnceLock<OwnedFd> = OnceLock::new();
    if FOLDER.get().is_none() {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let _ = FOLDER.set(rustix::fs::open("/proc/self/fd", flags, Mode::empty()).ok()?);
    }
    FOLDER.get().map(OwnedFd::as_fd)
}

/// The device number of the file system that `fd` is on, as memory has it.
pub(crate) fn device_under(fd: &LinuxFd) -> DiskResult<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(fd, c"", flags, StatxFlags::empty()).map_err(errno)?;
    Ok(device(&stat))
}

pub(crate) fn errno(e: rustix::io::Errno) -> Errno {
    Errno(e.raw_os_error())
}

pub(super) fn call<T>(f: impl FnMut() -> rustix::io::Result<T>) -> DiskResult<T> {
    retry_on_intr(f).map_err(errno)
}

/// `RESOLVE_*` of every open.
pub(crate) const RESOLVE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_SYMLINKS);

/// `O_*` of an open.
pub(crate) fn open_flags(how: OpenHow) -> OFlags {
    let mut flags = OFlags::CLOEXEC;
    if how.directory {
        flags |= OFlags::DIRECTORY;
    }
    if how.path_only {
        return flags | OFlags::PATH; // openat2 refuses any other flag with it.
    }
    flags |= OFlags::NOCTTY;
    if how.create.is_some() {
        flags |= OFlags::CREATE | OFlags::EXCL;
    }
    flags | access_flags(how.read, how.write)
}

fn access_flags(read: bool, write: bool) -> OFlags {
    match (read, write) {
        (true, true) => OFlags::RDWR,
        (false, true) => OFlags::WRONLY,
        _ => OFlags::RDONLY,
    }
}

/// The permission bits of an open that creates.
pub(crate) fn create_mode(how: OpenHow) -> Mode {
    match how.create {
        Some(mode) if !how.path_only => Mode::from_raw_mode(mode & 0o7777),
        _ => Mode::empty(),
    }
}

/// Opens from the dentry cache or says EAGAIN. Does not wait for the disk, a lease's holder or
/// the other end of a FIFO.
pub(crate) fn open_cached(dir: &LinuxFd, name: &[u8], how: OpenHow) -> DiskResult<LinuxFd> {
    let (flags, mode) = (open_flags(how), create_mode(how));
    let now = if how.path_only {
        OFlags::empty()
    } else {
        OFlags::NONBLOCK
    };
    let fd = rustix::fs::openat2(dir, name, flags | now, mode, RESOLVE | ResolveFlags::CACHED)
        .map_err(errno)?;
    Ok(if how.path_only {
        LinuxFd::new(fd, true)
    } else {
        LinuxFd::nonblock(fd)
    })
}

/// What [`open_cached`] says where it would wait. EINVAL: a kernel before 5.12, which knows no
/// `RESOLVE_CACHED`.
pub(crate) fn would_wait(errno: Errno) -> bool {
    matches!(errno.0, libc::EAGAIN | libc::EINVAL | libc::EINTR)
}

/// [`open_cached`] with `O_PATH` of one name below the other; ends with what leads no further.
pub(crate) fn open_way(
    dir: &LinuxFd,
    names: &[Box<[u8]>],
    way: &mut Vec<Option<DiskResult<LinuxFd>>>,
) {
    let how = OpenHow {
        path_only: true,
        ..OpenHow::default()
    };
    let mut at = dir.clone();
    for name in names {
        match open_cached(&at, name, how) {
            Ok(fd) => {
                at = fd.clone();
                way.push(Some(Ok(fd)));
            }
            Err(errno) => {
                way.push((!would_wait(errno)).then_some(Err(errno)));
                return;
            }
        }
    }
}

/// Opens, and waits if need be.
pub(crate) fn open(dir: &LinuxFd, name: &[u8], how: OpenHow) -> DiskResult<LinuxFd> {
    let (flags, mode) = (open_flags(how), create_mode(how));
    let open = |more| call(|| rustix::fs::openat2(dir, name, flags | more, mode, RESOLVE));
    if how.path_only || how.create.is_some() {
        return Ok(LinuxFd::new(open(OFlags::empty())?, how.path_only));
    }
    // Without O_NONBLOCK a FIFO would hold the thread; with it only a lease says EAGAIN, and
    // leases are broken on regular files only.
    match open(OFlags::NONBLOCK) {
        Err(Errno(libc::EAGAIN)) => Ok(LinuxFd::new(open(OFlags::empty())?, false)),
        opened => waiting(opened?),
    }
}

/// The result of an open that may wait, perhaps on a file system that heeds `O_NONBLOCK`.
fn waiting(fd: OwnedFd) -> DiskResult<LinuxFd> {
    let fd = LinuxFd::nonblock(fd);
    fd.for_ring()?;
    Ok(fd)
}

/// Opens an inode anew. `wait` false says EAGAIN where a lease would have to be broken.
pub(crate) fn reopen(fd: &LinuxFd, read: bool, write: bool, wait: bool) -> DiskResult<LinuxFd> {
    let flags = OFlags::CLOEXEC | OFlags::NOCTTY | access_flags(read, write);
    let open = |more| {
        fd.by_link(|folder, link| {
            call(|| rustix::fs::openat(folder, link, flags | more, Mode::empty()))
        })
    };
    let anew = match open(OFlags::NONBLOCK) {
        Err(Errno(libc::EAGAIN)) if wait => LinuxFd::new(open(OFlags::empty())?, false),
        opened if wait => waiting(opened?)?,
        opened => LinuxFd::nonblock(opened?),
    };
    anew.joins(fd);
    Ok(anew)
}

/// `RESOLVE_*` of a look at a name that may be a link itself.
const RESOLVE_NAME: ResolveFlags = ResolveFlags::BENEATH;

/// The flags that keep names where they are.
const FIXED: StatxAttributes = StatxAttributes::IMMUTABLE.union(StatxAttributes::APPEND);

const STATX: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

pub(crate) fn stat(fd: &LinuxFd) -> DiskResult<Stat> {
    let x = call(|| rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, STATX))?;
    if fd.0.path_only {
        let directory = u32::from(x.stx_mode) & libc::S_IFMT == libc::S_IFDIR;
        let small = x.stx_blocks <= CLOSE_BLOCKS_MAX;
        fd.0.directory.store(directory && small, Relaxed);
    }
    Ok(to_stat(&x, || kind(fd)))
}

pub(crate) fn stat_at(dir: &LinuxFd, name: &[u8]) -> DiskResult<Stat> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    let x = call(|| rustix::fs::statx(dir, name, flags, STATX))?;
    Ok(to_stat(&x, || {
        // A file system met for the first time, perhaps mounted here: ask the thing itself.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = call(|| rustix::fs::openat2(dir, name, flags, Mode::empty(), RESOLVE_NAME))?;
        let again = call(|| rustix::fs::statx(&fd, c"", AtFlags::EMPTY_PATH, STATX))?;
        if device(&again) == device(&x) {
            kind(&fd)
        } else {
            Err(Errno(libc::ESTALE))
        }
    }))
}

fn kind(fd: impl AsFd) -> DiskResult<u64> {
    call(|| rustix::fs::fstatfs(&fd)).map(|fs| fs.f_type as u64)
}

fn device(x: &Statx) -> u64 {
    rustix::fs::makedev(x.stx_dev_major, x.stx_dev_minor)
}

/// `stat_at` from the dentry cache, or EAGAIN.
pub(crate) fn stat_cached(dir: &LinuxFd, name: &[u8]) -> DiskResult<Stat> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = RESOLVE_NAME | ResolveFlags::CACHED;
    let fd = rustix::fs::openat2(dir, name, flags, Mode::empty(), resolve).map_err(errno)?;
    call(|| rustix::fs::statx(&fd, c"", AtFlags::EMPTY_PATH, STATX))
        .map(|x| to_stat(&x, || kind(&fd)))
}

/// `kind` returns the `f_type` of the inode's file system.
fn to_stat(x: &Statx, kind: impl FnOnce() -> DiskResult<u64>) -> Stat {
    let time = |t: &StatxTimestamp| Timestamp {
        secs: t.tv_sec,
        nanos: t.tv_nsec,
    };
    let born = StatxFlags::from_bits_retain(x.stx_mask).contains(StatxFlags::BTIME);
    let born = born.then(|| time(&x.stx_btime));
    let fs = device(x);
    Stat {
        key: FileKey {
            fs,
            ino: x.stx_ino,
            generation: born.map_or(0, |born| super_block::generation(fs, born, kind)),
        },
        mode: u32::from(x.stx_mode),
        links: x.stx_nlink,
        uid: x.stx_uid,
        gid: x.stx_gid,
        size: x.stx_size,
        blocks: x.stx_blocks,
        accessed: time(&x.stx_atime),
        written: time(&x.stx_mtime),
        changed: time(&x.stx_ctime),
        born,
        fixed: x.stx_attributes.intersects(FIXED),
    }
}

/// The generation as the file handle carries it: the same number as `FS_IOC_GETVERSION`, but also
/// for `O_PATH` and without any permission. 0 where the kind of handle is unknown.
pub(crate) fn generation(fd: &LinuxFd) -> u64 {
    const INO32_GEN: i32 = 1; // ext4, XFS (small numbers): inode, generation; tmpfs: reversed
    const XFS_INO64_GEN: i32 = 0x81;
    const BTRFS: i32 = 0x4D;
    const BTRFS_PARENT: i32 = 0x4E;
    let Ok((kind, bytes)) = raw::file_handle(fd.as_fd()) else {
        return 0;
    };
    let at = match (kind, bytes.len()) {
        (INO32_GEN, 8) => 4,
        (INO32_GEN, 12) => 0,
        (XFS_INO64_GEN, _) => 8,
        (BTRFS | BTRFS_PARENT, _) => 16,
        _ => return 0,
    };
    let word = bytes
        .get(at..at + 4)
        .and_then(|b| <[u8; 4]>::try_from(b).ok());
    word.map_or(0, |w| u64::from(u32::from_ne_bytes(w)))
}

pub(crate) fn truncate(fd: &LinuxFd, size: u64) -> DiskResult<()> {
    call(|| rustix::fs::ftruncate(fd, size))
}

pub(crate) fn allocate(fd: &LinuxFd, how: Allocate, offset: u64, len: u64) -> DiskResult<()> {
    let how = match how {
        Allocate::Reserve => FallocateFlags::empty(),
        Allocate::Punch => FallocateFlags::PUNCH_HOLE,
        Allocate::Zero => FallocateFlags::ZERO_RANGE,
    };
    call(|| rustix::fs::fallocate(fd, how | FallocateFlags::KEEP_SIZE, offset, len))
}

pub(crate) fn seek(fd: &LinuxFd, offset: u64, data: bool) -> DiskResult<u64> {
    let to = if data {
        SeekFrom::Data(offset)
    } else {
        SeekFrom::Hole(offset)
    };
    call(|| rustix::fs::seek(fd, to))
}

pub(crate) fn copy_range(
    from: &LinuxFd,
    mut from_offset: u64,
    to: &LinuxFd,
    mut to_offset: u64,
    len: u64,
) -> DiskResult<u64> {
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    let (at, into) = (&mut from_offset, &mut to_offset);
    let copied =
        call(|| rustix::fs::copy_file_range(from, Some(&mut *at), to, Some(&mut *into), len))?;
    Ok(copied as u64)
}

pub(crate) fn make_dir(dir: &LinuxFd, name: &[u8], mode: u32) -> DiskResult<()> {
    call(|| rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(mode & 0o7777)))
}

pub(crate) fn unlink(dir: &LinuxFd, name: &[u8], directory: bool) -> DiskResult<()> {
    let flags = if directory {
        AtFlags::REMOVEDIR
    } else {
        AtFlags::empty()
    };
    call(|| rustix::fs::unlinkat(dir, name, flags))
}

pub(crate) fn rename(
    from: &LinuxFd,
    from_name: &[u8],
    to: &LinuxFd,
    to_name: &[u8],
    replace: bool,
) -> DiskResult<()> {
    let flags = if replace {
        RenameFlags::empty()
    } else {
        RenameFlags::NOREPLACE
    };
    call(|| rustix::fs::renameat_with(from, from_name, to, to_name, flags))
}

pub(crate) fn link(fd: &LinuxFd, dir: &LinuxFd, name: &[u8]) -> DiskResult<()> {
    fd.by_link(|folder, link| {
        call(|| rustix::fs::linkat(folder, link, dir, name, AtFlags::SYMLINK_FOLLOW))
    })
}

pub(crate) fn read_link_at(dir: &LinuxFd, name: &[u8]) -> DiskResult<Vec<u8>> {
    let mut target = call(|| rustix::fs::readlinkat(dir, name, Vec::new()))?.into_bytes();
    target.truncate(LINK_MAX);
    Ok(target)
}

pub(crate) fn entries(fd: &LinuxFd, max: usize) -> DiskResult<Vec<RawEntry>> {
    let _alone = fd.0.listing.lock().unwrap_or_else(PoisonError::into_inner);
    call(|| rustix::fs::seek(fd, SeekFrom::Start(0)))?;
    let mut buf = vec![MaybeUninit::uninit(); DIRENT_BUF];
    let mut dir = RawDir::new(fd, &mut buf);
    let mut found = Vec::with_capacity(ENTRIES_GUESS);
    while let Some(entry) = dir.next() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(rustix::io::Errno::INTR) => continue,
            Err(e) => return Err(errno(e)),
        };
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        if found.len() >= max {
            return Err(Errno(libc::EOVERFLOW));
        }
        let kind = u8::try_from(entry.file_type().as_raw_mode() >> 12).unwrap_or(0);
        found.push(RawEntry {
            name: name.into(),
            ino: entry.ino(),
            kind,
        });
    }
    Ok(found)
}

pub(crate) fn set_times(
    fd: &LinuxFd,
    accessed: Option<Timestamp>,
    written: Option<Timestamp>,
) -> DiskResult<()> {
    let time = |t: Option<Timestamp>| match t {
        Some(t) if t.nanos >= 1_000_000_000 => Err(Errno(libc::EINVAL)),
        Some(t) => Ok(rustix::fs::Timespec {
            tv_sec: t.secs,
            tv_nsec: t.nanos.into(),
        }),
        None => Ok(rustix::fs::Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        }),
    };
    let times = Timestamps {
        last_access: time(accessed)?,
        last_modification: time(written)?,
    };
    fd.by_link(|folder, link| {
        call(|| rustix::fs::utimensat(folder, link, &times, AtFlags::empty()))
    })
}

pub(crate) fn set_mode(fd: &LinuxFd, mode: u32) -> DiskResult<()> {
    let mode = Mode::from_raw_mode(mode & 0o7777);
    if fd.0.path_only {
        return fd.by_link(|folder, link| {
            call(|| rustix::fs::chmodat(folder, link, mode, AtFlags::empty()))
        });
    }
    call(|| rustix::fs::fchmod(fd, mode))
}

pub(crate) fn set_owner(fd: &LinuxFd, uid: Option<u32>, gid: Option<u32>) -> DiskResult<()> {
    if uid == Some(u32::MAX) || gid == Some(u32::MAX) {
        return Err(Errno(libc::EINVAL));
    }
    let (uid, gid) = (
        uid.map(rustix::fs::Uid::from_raw),
        gid.map(rustix::fs::Gid::from_raw),
    );
    call(|| rustix::fs::chownat(fd, c"", uid, gid, AtFlags::EMPTY_PATH))
}

/// Where the kernel says the descriptor leads: absolute; `None` for what has no name any more.
pub(crate) fn path(fd: &LinuxFd) -> Option<Vec<u8>> {
    let path = fd.by_link(|folder, link| rustix::fs::readlinkat(folder, link, Vec::new()));
    let path = path.ok()?;
    let path = path.into_bytes();
    (path.starts_with(b"/") && !path.ends_with(b" (deleted)")).then_some(path)
}

/// `f_type`.
pub(crate) fn kind_of_fs(fd: &LinuxFd) -> DiskResult<u64> {
    Ok(call(|| rustix::fs::fstatfs(fd))?.f_type as u64)
}

/// `ST_RDONLY`: of the mount or of the file system.
pub(crate) fn is_read_only(fd: &LinuxFd) -> DiskResult<bool> {
    let fs = call(|| rustix::fs::fstatvfs(fd))?;
    Ok(fs.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// All but [`StatFs::clones`], which these calls do not tell.
pub(crate) fn stat_fs(fd: &LinuxFd) -> DiskResult<StatFs> {
    let kind = call(|| rustix::fs::fstatfs(fd))?;
    let fs = call(|| rustix::fs::fstatvfs(fd))?;
    Ok(StatFs {
        block: fs.f_frsize,
        blocks: fs.f_blocks,
        free: fs.f_bfree,
        available: fs.f_bavail,
        name_max: fs.f_namemax,
        id: fs.f_fsid,
        read_only: fs.f_flag.contains(StatVfsMountFlags::RDONLY),
        kind: kind.f_type as u64,
        clones: false,
    })
}
