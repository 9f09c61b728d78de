//! Opens of a disk as plain system calls, some of which may block.
//!
//! As in `calls.rs`, the caller decides on which thread and under which identity they run.

use std::{os::fd::OwnedFd, sync::Arc};

use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::{
    calls::{call, device_under},
    fd::LinuxFd,
    file_system::FileSystem,
};
use crate::{
    IoAccess,
    disk::{DiskResult, Errno, OpenHow},
};

const RESOLVE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_SYMLINKS);

/// `RESOLVE_*` of an open. One that creates nothing fails with EXDEV where another file system is mounted, so that the
/// file system of the directory is also that of the new descriptor ([`open_mounted`] goes on from there). One that
/// creates never leaves it, and would return EXDEV in place of EEXIST.
fn resolve(how: OpenHow) -> ResolveFlags {
    match how.create {
        Some(_) if !how.path_only => RESOLVE,
        _ => RESOLVE | ResolveFlags::NO_XDEV,
    }
}

fn open_flags(how: OpenHow) -> OFlags {
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
    flags | access_flags(how.io())
}

fn access_flags(io: IoAccess) -> OFlags {
    match io {
        IoAccess::BOTH => OFlags::RDWR,
        IoAccess::WRITE => OFlags::WRONLY,
        _ => OFlags::RDONLY,
    }
}

/// The permission bits of an open that creates.
fn create_mode(how: OpenHow) -> Mode {
    match how.create {
        Some(mode) if !how.path_only => Mode::from_raw_mode(mode & 0o7777),
        _ => Mode::empty(),
    }
}

/// Opens from the dentry cache or returns EAGAIN; at a mount point EAGAIN or EXDEV. It does not wait for the disk, a
/// lease's holder or the other end of a FIFO.
pub(super) fn open_cached(dir: &LinuxFd, name: &[u8], how: OpenHow) -> DiskResult<LinuxFd> {
    let (flags, mode) = (open_flags(how), create_mode(how));
    let (resolve, on) = (resolve(how) | ResolveFlags::CACHED, dir.file_system());
    let open = |more| rustix::fs::openat2(dir, name, flags | more, mode, resolve);
    Ok(match how.path_only {
        true => LinuxFd::new(open(OFlags::empty())?, true, on),
        false => LinuxFd::nonblock(open(OFlags::NONBLOCK)?, on),
    })
}

/// Whether an error of [`open_cached`] means that the open would wait. EINVAL comes from kernels
/// before 5.12, which lack `RESOLVE_CACHED`. EXDEV: another file system is mounted there, which may wait.
pub(super) fn would_wait(errno: Errno) -> bool {
    matches!(
        errno.0,
        libc::EAGAIN | libc::EINVAL | libc::EINTR | libc::EXDEV
    )
}

/// Opens one name below the other with `O_PATH` as [`open_cached`] does; it ends with the first
/// that cannot be followed.
pub(super) fn open_way(dir: &LinuxFd, names: &[Box<[u8]>]) -> Vec<Option<DiskResult<LinuxFd>>> {
    let mut way = Vec::with_capacity(names.len());
    let mut at = dir.clone();
    for name in names {
        match open_cached(&at, name, OpenHow::PATH_ONLY) {
            Ok(fd) => {
                at = fd.clone();
                way.push(Some(Ok(fd)));
            }
            Err(errno) => {
                way.push((!would_wait(errno)).then_some(Err(errno)));
                break;
            }
        }
    }
    way
}

/// Opens a name, and waits for the disk if need be. If it creates nothing: EXDEV where another file system is mounted
/// there, and EAGAIN where a program has a lease on the file.
pub(super) fn open(dir: &LinuxFd, name: &[u8], how: OpenHow) -> DiskResult<LinuxFd> {
    let (flags, mode) = (open_flags(how), create_mode(how));
    let resolve = resolve(how);
    let open = |more| call(|| rustix::fs::openat2(dir, name, flags | more, mode, resolve));
    let on = dir.file_system();
    if how.path_only || how.create.is_some() {
        return Ok(LinuxFd::new(open(OFlags::empty())?, how.path_only, on));
    }
    // Without O_NONBLOCK a FIFO would hold the thread; with it only a lease causes EAGAIN, and only
    // regular files have leases.
    waiting(open(OFlags::NONBLOCK)?, on)
}

/// How [`open_mounted`] treats an automounter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Automount {
    /// Returns EAGAIN where the walk may have to wait for one that is mounting something.
    Avoid,
    /// Waits for one that is mounting something, but asks none to.
    Wait,
    /// Has mounted what belongs on the name, which must be a directory, and waits for that.
    Ask,
}

/// Opens with `O_PATH` the root of the file system that is mounted on a name, without waiting for that file system.
/// Returns its device number, too.
pub(super) fn open_mounted(
    dir: &LinuxFd,
    name: &[u8],
    automount: Automount,
) -> DiskResult<(OwnedFd, u64)> {
    let flags = open_flags(OpenHow {
        directory: automount == Automount::Ask,
        ..OpenHow::PATH_ONLY
    });
    let resolve = match automount {
        Automount::Avoid => RESOLVE | ResolveFlags::CACHED,
        Automount::Wait | Automount::Ask => RESOLVE,
    };
    let fd = call(|| rustix::fs::openat2(dir, name, flags, Mode::empty(), resolve))?;
    let device = device_under(&fd)?;
    Ok((fd, device))
}

/// The result of an open that may wait, perhaps on a file system that honours `O_NONBLOCK`.
fn waiting(fd: OwnedFd, on: &Arc<FileSystem>) -> DiskResult<LinuxFd> {
    let fd = LinuxFd::nonblock(fd, on);
    fd.for_ring()?;
    Ok(fd)
}

/// Opens an inode again. With `wait` false it returns EAGAIN if a lease would have to be broken.
pub(super) fn reopen(fd: &LinuxFd, io: IoAccess, wait: bool) -> DiskResult<LinuxFd> {
    let flags = OFlags::CLOEXEC | OFlags::NOCTTY | access_flags(io);
    let open = |more| {
        fd.by_link(|folder, link| {
            call(|| rustix::fs::openat(folder, link, flags | more, Mode::empty()))
        })
    };
    let on = fd.file_system();
    let anew = match open(OFlags::NONBLOCK) {
        Err(Errno(libc::EAGAIN)) if wait => LinuxFd::new(open(OFlags::empty())?, false, on),
        opened if wait || fd.class().remote => waiting(opened?, on)?,
        opened => LinuxFd::nonblock(opened?, on),
    };
    anew.joins(fd);
    Ok(anew)
}
