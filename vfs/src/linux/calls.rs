//! The operations of a disk as plain system calls that may block.
//!
//! The caller decides on which thread and under which identity they run. Each function is one
//! operation of [`crate::Disk`]. Beyond that it only goes through `/proc/self/fd` where a descriptor
//! opened with `O_PATH` needs that, and repeats a call that a signal interrupted.

use std::{
    io::IoSlice,
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{
        AtFlags, FallocateFlags, Mode, OFlags, RawDir, RenameFlags, ResolveFlags, SeekFrom,
        StatVfsMountFlags, Statx, StatxAttributes, StatxFlags, StatxTimestamp, Timestamps,
        UTIME_OMIT,
    },
    io::{ReadWriteFlags, pwritev2, retry_on_intr},
};

use super::{class::AUTOFS, fd::LinuxFd, super_block};
use crate::{
    FileKey, Timestamp,
    disk::{Allocate, DiskResult, Errno, NOW, RawEntry, Stat, StatFs},
};

/// Bytes of one `getdents` buffer.
const DIRENT_BUF: usize = 64 * 1024;
/// Longest target of a symbolic link that is read.
const LINK_MAX: usize = 4095;
/// The number of entries for which memory is reserved before a directory is read.
const ENTRIES_GUESS: usize = 64;
/// Most memory of a directory's entries, in bytes: a million names of usual length.
const ENTRIES_BYTES_MAX: usize = 128 << 20;
/// The memory of an entry besides its name, with the allocator's overhead.
const ENTRY_BYTES: usize = size_of::<RawEntry>() + 16;

/// The device number of the file system that `fd` is on, as the kernel has it in memory.
pub(super) fn device_under(fd: impl AsFd) -> DiskResult<u64> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let stat = rustix::fs::statx(fd, c"", flags, StatxFlags::empty())?;
    Ok(device(&stat))
}

pub(super) fn call<T>(f: impl FnMut() -> rustix::io::Result<T>) -> DiskResult<T> {
    Ok(retry_on_intr(f)?)
}

/// [`call`] for functions that return an [`Errno`] themselves.
pub(super) fn repeat<T>(mut call: impl FnMut() -> DiskResult<T>) -> DiskResult<T> {
    loop {
        match call() {
            Err(Errno(libc::EINTR)) => {}
            other => return other,
        }
    }
}

/// The inode flags that forbid removing names.
const FIXED: StatxAttributes = StatxAttributes::IMMUTABLE.union(StatxAttributes::APPEND);

const STATX: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

pub(super) fn stat(fd: &LinuxFd) -> DiskResult<Stat> {
    let x = call(|| rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, STATX))?;
    if fd.is_path_only() {
        let directory = u32::from(x.stx_mode) & libc::S_IFMT == libc::S_IFDIR;
        fd.seen(directory, x.stx_blocks);
    }
    Ok(to_stat(&x, fd.class().kind))
}

/// Queries a name of the type `kind` (`DT_*`), and waits if need be; but not, in a directory of a local file system,
/// for another one that is mounted on the name, nor (since Linux 6.18) for an automounter that is mounting one: then it
/// returns EXDEV.
pub(super) fn stat_at(dir: &LinuxFd, name: &[u8], kind: u8) -> DiskResult<Stat> {
    let remote = dir.class().remote;
    if !remote && [libc::DT_DIR, libc::DT_UNKNOWN].contains(&kind) {
        // Automounters serve directories, and statx would wait for one.
        let fd = call(|| find(dir, name, ResolveFlags::empty()))?;
        return stat_found(dir, &fd);
    }
    let mut flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    if !remote {
        // Local file systems ignore it; one mounted on the name answers from memory.
        flags |= AtFlags::STATX_DONT_SYNC;
    }
    let x = call(|| rustix::fs::statx(dir, name, flags, STATX))?;
    let mounted = match x.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        true => x.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
        // Linux before 5.8 does not report it. Subvolumes of btrfs have device numbers of their own, too.
        false => device(&x) != dir.file_system().device,
    };
    match mounted {
        true => Err(Errno(libc::EXDEV)),
        false => Ok(to_stat(&x, dir.class().kind)),
    }
}

fn device(x: &Statx) -> u64 {
    rustix::fs::makedev(x.stx_dev_major, x.stx_dev_minor)
}

/// Opens a name with `O_PATH`, even a link. EXDEV at a mount point.
pub(super) fn find(dir: impl AsFd, name: &[u8], how: ResolveFlags) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_XDEV | how;
    rustix::fs::openat2(dir, name, flags, Mode::empty(), resolve)
}

/// [`find`] from the dentry cache, or EAGAIN; at a mount point EAGAIN or EXDEV.
pub(super) fn find_cached(dir: impl AsFd, name: &[u8]) -> DiskResult<OwnedFd> {
    Ok(find(dir, name, ResolveFlags::CACHED)?)
}

/// [`stat_at`], with the errors of [`find_cached`].
pub(super) fn stat_cached(dir: &LinuxFd, name: &[u8]) -> DiskResult<Stat> {
    stat_found(dir, &find_cached(dir, name)?)
}

/// Queries what was found in a directory.
fn stat_found(dir: &LinuxFd, found: &OwnedFd) -> DiskResult<Stat> {
    let x = call(|| rustix::fs::statx(found, c"", AtFlags::EMPTY_PATH, STATX))?;
    Ok(to_stat(&x, dir.class().kind))
}

/// `kind` is the `f_type` of the inode's file system.
fn to_stat(x: &Statx, kind: u64) -> Stat {
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
        automounts: kind == AUTOFS || x.stx_attributes.contains(StatxAttributes::AUTOMOUNT),
    }
}

/// `pwritev2`. Returns the bytes written.
pub(super) fn write_at(
    fd: &LinuxFd,
    offset: u64,
    data: &[u8],
    durable: bool,
    nowait: bool,
) -> DiskResult<usize> {
    // The largest number would stand for the descriptor's own position.
    i64::try_from(offset).map_err(|_| Errno(libc::EINVAL))?;
    let mut flags = ReadWriteFlags::empty();
    flags.set(ReadWriteFlags::DSYNC, durable);
    flags.set(ReadWriteFlags::NOWAIT, nowait);
    Ok(pwritev2(fd, &[IoSlice::new(data)], offset, flags)?)
}

pub(super) fn truncate(fd: &LinuxFd, size: u64) -> DiskResult<()> {
    call(|| rustix::fs::ftruncate(fd, size))
}

pub(super) fn allocate(fd: &LinuxFd, how: Allocate, offset: u64, len: u64) -> DiskResult<()> {
    let how = match how {
        Allocate::Reserve => FallocateFlags::empty(),
        Allocate::Punch => FallocateFlags::PUNCH_HOLE,
    };
    call(|| rustix::fs::fallocate(fd, how | FallocateFlags::KEEP_SIZE, offset, len))
}

pub(super) fn seek(fd: &LinuxFd, offset: u64, data: bool) -> DiskResult<u64> {
    let to = match data {
        true => SeekFrom::Data(offset),
        false => SeekFrom::Hole(offset),
    };
    call(|| rustix::fs::seek(fd, to))
}

pub(super) fn copy_range(
    (from, mut from_offset): (&LinuxFd, u64),
    (to, mut to_offset): (&LinuxFd, u64),
    len: u64,
) -> DiskResult<u64> {
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    let (at, into) = (&mut from_offset, &mut to_offset);
    let copied =
        call(|| rustix::fs::copy_file_range(from, Some(&mut *at), to, Some(&mut *into), len))?;
    Ok(copied as u64)
}

pub(super) fn make_dir(dir: &LinuxFd, name: &[u8], mode: u32) -> DiskResult<()> {
    call(|| rustix::fs::mkdirat(dir, name, Mode::from_raw_mode(mode & 0o7777)))
}

pub(super) fn unlink(dir: &LinuxFd, name: &[u8], directory: bool) -> DiskResult<()> {
    let flags = match directory {
        true => AtFlags::REMOVEDIR,
        false => AtFlags::empty(),
    };
    call(|| rustix::fs::unlinkat(dir, name, flags))
}

pub(super) fn rename(
    (from, from_name): (&LinuxFd, &[u8]),
    (to, to_name): (&LinuxFd, &[u8]),
    replace: bool,
) -> DiskResult<()> {
    let flags = match replace {
        true => RenameFlags::empty(),
        false => RenameFlags::NOREPLACE,
    };
    call(|| rustix::fs::renameat_with(from, from_name, to, to_name, flags))
}

pub(super) fn link(fd: &LinuxFd, dir: &LinuxFd, name: &[u8]) -> DiskResult<()> {
    fd.by_link(|folder, link| {
        call(|| rustix::fs::linkat(folder, link, dir, name, AtFlags::SYMLINK_FOLLOW))
    })
}

pub(super) fn read_link_at(dir: &LinuxFd, name: &[u8]) -> DiskResult<Vec<u8>> {
    let mut target = call(|| rustix::fs::readlinkat(dir, name, Vec::new()))?.into_bytes();
    target.truncate(LINK_MAX);
    Ok(target)
}

pub(super) fn entries(fd: &LinuxFd, max: usize) -> DiskResult<Vec<RawEntry>> {
    entries_within(fd, max, ENTRIES_BYTES_MAX)
}

fn entries_within(fd: &LinuxFd, max: usize, mut room: usize) -> DiskResult<Vec<RawEntry>> {
    let _alone = fd.listing();
    call(|| rustix::fs::seek(fd, SeekFrom::Start(0)))?;
    let mut buf = vec![MaybeUninit::uninit(); DIRENT_BUF];
    let mut dir = RawDir::new(fd, &mut buf);
    let mut found = Vec::with_capacity(ENTRIES_GUESS);
    while let Some(entry) = dir.next() {
        let entry = match entry {
            Ok(entry) => entry,
            Err(rustix::io::Errno::INTR) => continue,
            Err(e) => return Err(e.into()),
        };
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        let left = room.checked_sub(ENTRY_BYTES + name.len());
        room = left
            .filter(|_| found.len() < max)
            .ok_or(Errno(libc::EOVERFLOW))?;
        let kind = u8::try_from(entry.file_type().as_raw_mode() >> 12).unwrap_or(0);
        found.push(RawEntry {
            name: name.into(),
            ino: entry.ino(),
            kind,
        });
    }
    Ok(found)
}

pub(super) fn set_times(
    fd: &LinuxFd,
    accessed: Option<Timestamp>,
    written: Option<Timestamp>,
) -> DiskResult<()> {
    let time = |t: Option<Timestamp>| match t {
        Some(t) if t.nanos >= 1_000_000_000 && t != NOW => Err(Errno(libc::EINVAL)),
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

pub(super) fn set_mode(fd: &LinuxFd, mode: u32) -> DiskResult<()> {
    let mode = Mode::from_raw_mode(mode & 0o7777);
    fd.by_link(|folder, link| call(|| rustix::fs::chmodat(folder, link, mode, AtFlags::empty())))
}

pub(super) fn set_owner(fd: &LinuxFd, uid: Option<u32>, gid: Option<u32>) -> DiskResult<()> {
    if uid == Some(u32::MAX) || gid == Some(u32::MAX) {
        return Err(Errno(libc::EINVAL));
    }
    let (uid, gid) = (
        uid.map(rustix::fs::Uid::from_raw),
        gid.map(rustix::fs::Gid::from_raw),
    );
    call(|| rustix::fs::chownat(fd, c"", uid, gid, AtFlags::EMPTY_PATH))
}

/// The end by which the kernel marks the path of an object that was removed. A name may end like that, too.
const REMOVED: &[u8] = b" (deleted)";

/// Calls `look` with the absolute path of the descriptor, as the kernel reports it; `None` if the object has no name
/// any more.
pub(super) fn with_path<T>(fd: &LinuxFd, look: impl FnOnce(&[u8]) -> T) -> Option<T> {
    with_link(fd, |path| {
        (path.starts_with(b"/") && !is_marked(fd, path)).then(|| look(path))
    })?
}

/// A copy of the path that [`with_path`] shows.
pub(super) fn path(fd: &LinuxFd) -> Option<Vec<u8>> {
    with_path(fd, <[u8]>::to_vec)
}

/// Whether the name by which the object was opened is gone. On a remote file system a name that ends like [`REMOVED`]
/// counts as gone.
pub(super) fn has_lost_name(fd: &LinuxFd) -> bool {
    with_link(fd, |path| is_marked(fd, path)) == Some(true)
}

/// Calls `look` with the target of the magic link to the descriptor.
fn with_link<T>(fd: &LinuxFd, look: impl FnOnce(&[u8]) -> T) -> Option<T> {
    // The kernel reports no target that fills this.
    let buffer = &mut [MaybeUninit::<u8>::uninit(); LINK_MAX + 1];
    let read = fd.by_link(move |folder, link| rustix::fs::readlinkat_raw(folder, link, buffer));
    let (target, _) = read.ok()?;
    Some(look(target))
}

fn is_marked(fd: &LinuxFd, path: &[u8]) -> bool {
    path.ends_with(REMOVED) && !is_at(fd, path)
}

/// Whether the object may have a name although [`path`] has none: it is longer than a page, does not begin at the root
/// of the process, or has the kernel's mark on a remote file system.
pub(super) fn is_path_unknown(fd: &LinuxFd) -> bool {
    let is_known =
        |path: &[u8]| path.starts_with(b"/") && !(fd.class().remote && path.ends_with(REMOVED));
    with_link(fd, is_known) != Some(true)
}

/// Whether the object of the descriptor is known to have this path. False on a remote file system, because walking the
/// path could wait for it, and because the kernel also marks names there that another host has changed.
fn is_at(fd: &LinuxFd, path: &[u8]) -> bool {
    if fd.class().remote {
        return false;
    }
    let look = |dir: BorrowedFd<'_>, path: &[u8], how: AtFlags| {
        let how = how | AtFlags::STATX_DONT_SYNC;
        let x = call(|| rustix::fs::statx(dir, path, how, StatxFlags::INO | StatxFlags::NLINK));
        x.ok().map(|x| (device(&x), x.stx_ino, x.stx_nlink))
    };
    let own = look(fd.as_fd(), b"", AtFlags::EMPTY_PATH);
    let links = own.map_or(0, |(.., links)| links);
    let by_name = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    links > 0 && own == look(rustix::fs::CWD, path, by_name)
}

/// The rest of an absolute `path` below the absolute path `root`; `None` if it lies outside.
pub(super) fn path_below<'a>(root: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(root)?;
    match rest.strip_prefix(b"/") {
        Some(rest) => Some(rest),
        None if root == b"/" || rest.is_empty() => Some(rest),
        None => None,
    }
}

/// [`StatFs::id`] is `f_fsid`, which some file systems make of the device number.
pub(super) fn stat_fs(fd: &LinuxFd) -> DiskResult<StatFs> {
    let fs = call(|| rustix::fs::fstatvfs(fd))?;
    let class = fd.class();
    Ok(StatFs {
        block: fs.f_frsize,
        blocks: fs.f_blocks,
        free: fs.f_bfree,
        available: fs.f_bavail,
        id: fs.f_fsid,
        read_only: fs.f_flag.contains(StatVfsMountFlags::RDONLY),
        kind: class.kind,
        clones: class.clones,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linux::LinuxDisk;

    #[test]
    fn the_entries_of_a_directory_have_a_bound_in_number_and_in_bytes() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["a", "bb"] {
            std::fs::write(folder.path().join(name), b"").unwrap();
        }
        let disk = LinuxDisk::open(folder.path()).unwrap();
        let list = |max, room| entries_within(&disk.root, max, room).map(|found| found.len());
        let both = 2 * ENTRY_BYTES + 3;
        assert_eq!(list(2, both), Ok(2));
        let too_many: DiskResult<usize> = Err(Errno(libc::EOVERFLOW));
        assert_eq!([list(1, both), list(2, both - 1)], [too_many; 2]);
    }
}
