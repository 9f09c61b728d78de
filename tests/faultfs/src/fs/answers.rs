//! Answers to FUSE calls: attributes of the simulated disk as the kernel wants them, and results as replies.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    FileAttr, FileHandle, FileType, FopenFlags, Generation, INodeNo, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, ReplyXattr,
};
use vfs::{
    Timestamp,
    disk::{DiskResult, Errno, Stat},
};

use crate::world::World;

/// How long the kernel may cache an answer.
pub(super) const NOT_AT_ALL: Duration = Duration::ZERO;

pub(super) fn fuse(Errno(errno): Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno)
}

fn system_time(at: Timestamp) -> SystemTime {
    let nanos = Duration::from_nanos(u64::from(at.nanos));
    let secs = Duration::from_secs(at.secs.unsigned_abs());
    if at.secs >= 0 {
        UNIX_EPOCH + secs + nanos
    } else {
        UNIX_EPOCH - secs + nanos
    }
}

pub(super) fn kind_of(mode: u32) -> FileType {
    match mode & libc::S_IFMT {
        libc::S_IFDIR => FileType::Directory,
        libc::S_IFLNK => FileType::Symlink,
        libc::S_IFIFO => FileType::NamedPipe,
        libc::S_IFSOCK => FileType::Socket,
        libc::S_IFCHR => FileType::CharDevice,
        libc::S_IFBLK => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

pub(super) fn attr(world: &World, stat: &Stat) -> FileAttr {
    FileAttr {
        ino: INodeNo(world.id(stat.key.ino)),
        size: stat.size,
        blocks: stat.blocks,
        atime: system_time(stat.accessed),
        mtime: system_time(stat.written),
        ctime: system_time(stat.changed),
        crtime: system_time(stat.born.unwrap_or(stat.changed)),
        kind: kind_of(stat.mode),
        perm: u16::try_from(stat.mode & 0o7777).unwrap_or(0),
        nlink: stat.links,
        uid: stat.uid,
        gid: stat.gid,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// The closure that sends the value of a result by a method of `$reply`, or the errno.
macro_rules! or_error {
    ($reply:ident, $value:pat => $send:expr) => {
        move |result| match result {
            Ok($value) => $send,
            Err(e) => $reply.error(crate::fs::answers::fuse(e)),
        }
    };
}
pub(super) use or_error;

type Found = (FileAttr, Generation);

pub(super) fn entered(world: &mut World, dir: u64, name: &[u8]) -> DiskResult<Found> {
    let stat = world.enter(dir, name)?;
    Ok((attr(world, &stat), Generation(world.number())))
}

pub(super) fn entry(reply: ReplyEntry) -> impl FnOnce(DiskResult<Found>) + Send + 'static {
    or_error!(reply, (attr, generation) => reply.entry(&NOT_AT_ALL, &attr, generation))
}

pub(super) fn empty(reply: ReplyEmpty) -> impl FnOnce(DiskResult<()>) + Send + 'static {
    or_error!(reply, () => reply.ok())
}

pub(super) fn opened(
    reply: ReplyOpen,
    flags: FopenFlags,
) -> impl FnOnce(DiskResult<u64>) + Send + 'static {
    or_error!(reply, handle => reply.opened(FileHandle(handle), flags))
}

pub(super) fn written(reply: ReplyWrite) -> impl FnOnce(DiskResult<usize>) + Send + 'static {
    or_error!(reply, count => reply.written(u32::try_from(count).unwrap_or(u32::MAX)))
}

/// A value of an attribute, or its length when that is what was asked.
pub(super) fn sized(
    size: u32,
    reply: ReplyXattr,
) -> impl FnOnce(DiskResult<Vec<u8>>) + Send + 'static {
    move |value| match value {
        Err(e) => reply.error(fuse(e)),
        Ok(value) => {
            let len = u32::try_from(value.len()).unwrap_or(u32::MAX);
            match size {
                0 => reply.size(len),
                _ if len > size => reply.error(fuser::Errno::ERANGE),
                _ => reply.data(&value),
            }
        }
    }
}
