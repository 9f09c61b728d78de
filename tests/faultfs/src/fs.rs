//! FUSE calls as calls of the simulated disk, past rules and power.
//!
//! Every call goes through `FaultFs::call`: it is counted, a rule may hit it, the frozen disk
//! refuses it, and what waits does so on no thread of the event loop. The answer is sent without
//! the lock. Calls are made as root (the kernel has checked permissions), creations as their
//! caller.

mod answers;
mod setattr;

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::{Bytes, BytesMut};
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, FopenFlags, INodeNo, KernelConfig,
    LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use vfs::{
    Disk, Identity, IoAccess,
    disk::{Allocate, DiskResult, Errno, OpenHow, XattrSet},
    sim::{Fault, FaultAction, SimFd, SimOp},
};

use crate::{
    Shared,
    kind::Kind,
    rules::Action,
    world::{World, now, owner},
};
use answers::{
    NOT_AT_ALL, attr, empty, entered, entry, fuse, kind_of, opened, or_error, sized, written,
};
use setattr::{Wanted, when};

/// Most names in one directory.
const ENTRIES_MAX: usize = 1 << 20;

/// The change that a rule makes to a call that takes place.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Twist {
    None,
    Short,
    Tear(usize),
    FailSync(i32),
}

impl Twist {
    /// How much of `len` bytes is to be moved.
    fn of(self, len: usize) -> usize {
        match self {
            Self::Short => len.div_ceil(2),
            Self::Tear(bytes) => len.min(bytes),
            _ => len,
        }
    }
}

/// The file system.
pub struct FaultFs {
    shared: Shared,
}

impl FaultFs {
    /// Over this state.
    #[must_use]
    pub fn new(shared: Shared) -> Self {
        Self { shared }
    }

    /// One call: `run` does it, `reply` answers, now or later.
    fn call<T: 'static>(
        &self,
        kind: Kind,
        paths: impl FnOnce(&World) -> Vec<String>,
        run: impl FnOnce(&mut World, Twist) -> DiskResult<T> + Send + 'static,
        reply: impl FnOnce(DiskResult<T>) + Send + 'static,
    ) {
        let mut world = self.shared.lock();
        let paths = paths(&world);
        world.stats[kind.index()] += 1;
        if world.is_off() {
            return off(&mut world, reply);
        }
        let action = world.plan.hit(kind, &paths);
        let mut told = None;
        let twist = match action {
            None => Twist::None,
            Some(Action::Fail(errno)) if kind.is_sync() => Twist::FailSync(errno),
            Some(Action::Fail(errno)) => {
                world.note(kind, &paths, &format!("refused, errno {errno}"));
                drop(world);
                return reply(Err(Errno(errno)));
            }
            Some(Action::Done(errno)) => {
                told = Some(errno);
                Twist::None
            }
            Some(Action::Short) => Twist::Short,
            Some(Action::Tear(bytes)) => {
                told = Some(libc::EIO);
                Twist::Tear(bytes)
            }
            Some(Action::Hang) => {
                world.note(kind, &paths, "hangs");
                return park(&mut world, run, reply);
            }
            Some(Action::Delay(ms)) => {
                world.note(kind, &paths, "is late");
                drop(world);
                return self.later(ms, run, reply);
            }
            Some(Action::Cut(how)) => {
                world.note(kind, &paths, "finds the power off");
                world.cut(how);
                return off(&mut world, reply);
            }
            Some(Action::CutAfter(how)) => {
                let result = run(&mut world, Twist::None);
                world.note(
                    kind,
                    &paths,
                    &format!("{}, then the power goes", outcome(&result)),
                );
                world.cut(how);
                return off(&mut world, reply);
            }
        };
        let result = run(&mut world, twist);
        let said = outcome(&result);
        world.note(kind, &paths, &said);
        drop(world);
        reply(match told {
            Some(errno) => result.and(Err(Errno(errno))),
            None => result,
        });
    }

    /// Removes a file or, for [`Kind::Rmdir`], a directory.
    fn remove(&self, kind: Kind, dir: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let bytes = name.as_bytes().to_vec();
        let directory = matches!(kind, Kind::Rmdir);
        let run = move |world: &mut World, _| {
            let (disk, parent) = (world.disk(), world.fd(dir.0)?);
            now(disk.unlink(&Identity::Service, &parent, &bytes, directory))
        };
        self.call(kind, at_name(dir, name), run, empty(reply));
    }

    fn later<T: 'static>(
        &self,
        ms: u64,
        run: impl FnOnce(&mut World, Twist) -> DiskResult<T> + Send + 'static,
        reply: impl FnOnce(DiskResult<T>) + Send + 'static,
    ) {
        let shared = self.shared.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(ms));
            let mut world = shared.lock();
            if world.is_off() {
                return off(&mut world, reply);
            }
            let result = run(&mut world, Twist::None);
            drop(world);
            reply(result);
        });
    }
}

fn outcome<T>(result: &DiskResult<T>) -> String {
    match result {
        Ok(_) => "ok".to_owned(),
        Err(Errno(errno)) => format!("errno {errno}"),
    }
}

/// A call that finds the power off.
fn off<T: 'static>(world: &mut World, reply: impl FnOnce(DiskResult<T>) + Send + 'static) {
    if world.hangs {
        world
            .parked
            .push(Box::new(move |_, _| reply(Err(Errno(libc::EIO)))));
    } else {
        reply(Err(Errno(libc::EIO)));
    }
}

fn park<T: 'static>(
    world: &mut World,
    run: impl FnOnce(&mut World, Twist) -> DiskResult<T> + Send + 'static,
    reply: impl FnOnce(DiskResult<T>) + Send + 'static,
) {
    world.parked.push(Box::new(move |world, go_on| {
        reply(if go_on && !world.is_off() {
            run(world, Twist::None)
        } else {
            Err(Errno(libc::EIO))
        });
    }));
}

fn xattr_name(name: &OsStr) -> DiskResult<&str> {
    name.to_str().ok_or(Errno(libc::EOPNOTSUPP))
}

/// A sync, or a failure of one as Linux has it.
fn sync(world: &mut World, handle: u64, data_only: bool, twist: Twist) -> DiskResult<()> {
    let fd = world.handle(handle)?.fd.clone();
    plant(world, twist);
    let disk = world.disk();
    if data_only {
        now(disk.fdatasync(&fd))
    } else {
        now(disk.fsync(&fd))
    }
}

/// Makes the next sync of the disk fail, which is the one that follows under the same lock.
fn plant(world: &World, twist: Twist) {
    if let Twist::FailSync(errno) = twist {
        world.disk().inject(Fault {
            on: SimOp::Sync,
            after: 0,
            action: FaultAction::Fail(errno),
        });
    }
}

fn at_node(id: INodeNo) -> impl FnOnce(&World) -> Vec<String> {
    move |world| vec![world.path(id.0)]
}

fn at_name(dir: INodeNo, name: &OsStr) -> impl FnOnce(&World) -> Vec<String> {
    let name = name.as_bytes().to_vec();
    move |world| vec![world.path_of(dir.0, &name)]
}

fn how(flags: OpenFlags) -> OpenHow {
    let mode = flags.acc_mode();
    OpenHow {
        read: mode != OpenAccMode::O_WRONLY,
        write: mode != OpenAccMode::O_RDONLY,
        ..OpenHow::default()
    }
}

impl Filesystem for FaultFs {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // As many background requests as there are: io_uring's are such.
        let _ = config.set_max_background(1024);
        Ok(())
    }

    fn lookup(&self, _: &Request, dir: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let bytes = name.as_bytes().to_vec();
        let run = move |world: &mut World, _| entered(world, dir.0, &bytes);
        self.call(Kind::Lookup, at_name(dir, name), run, entry(reply));
    }

    fn forget(&self, _: &Request, id: INodeNo, lookups: u64) {
        self.shared.lock().forget(id.0, lookups);
    }

    fn getattr(&self, _: &Request, id: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let run = move |world: &mut World, _| {
            let stat = world.stat(id.0)?;
            Ok(attr(world, &stat))
        };
        let reply = or_error!(reply, attr => reply.attr(&NOT_AT_ALL, &attr));
        self.call(Kind::Getattr, at_node(id), run, reply);
    }

    fn setattr(
        &self,
        _: &Request,
        id: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        written: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let wanted = Wanted {
            handle: handle.map(|h| h.0),
            size,
            mode,
            owner: (uid, gid),
            times: (when(accessed), when(written)),
        };
        let kind = wanted.kind();
        let run = move |world: &mut World, _| wanted.apply(world, id.0);
        let reply = or_error!(reply, attr => reply.attr(&NOT_AT_ALL, &attr));
        self.call(kind, at_node(id), run, reply);
    }

    fn readlink(&self, _: &Request, id: INodeNo, reply: ReplyData) {
        let run = move |world: &mut World, _| {
            let (dir, name) = world.link_place(id.0).ok_or(Errno(libc::ESTALE))?;
            now(world.disk().read_link_at(&dir, &name))
        };
        self.call(
            Kind::Readlink,
            at_node(id),
            run,
            or_error!(reply, target => reply.data(&target)),
        );
    }

    fn mknod(
        &self,
        _: &Request,
        dir: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let bytes = name.as_bytes().to_vec();
        let run = move |world: &mut World, _| {
            let parent = world.fd(dir.0)?;
            world.disk().special(&parent, &bytes, mode & libc::S_IFMT)?;
            entered(world, dir.0, &bytes)
        };
        self.call(Kind::Mknod, at_name(dir, name), run, entry(reply));
    }

    fn mkdir(
        &self,
        who: &Request,
        dir: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        let bytes = name.as_bytes().to_vec();
        let who = owner(who.uid(), who.gid());
        let run = move |world: &mut World, _| {
            let parent = world.fd(dir.0)?;
            let mode = mode & !umask & 0o7777;
            now(world.disk().make_dir(&who, &parent, &bytes, mode))?;
            entered(world, dir.0, &bytes)
        };
        self.call(Kind::Mkdir, at_name(dir, name), run, entry(reply));
    }

    fn unlink(&self, _: &Request, dir: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.remove(Kind::Unlink, dir, name, reply);
    }

    fn rmdir(&self, _: &Request, dir: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.remove(Kind::Rmdir, dir, name, reply);
    }

    fn symlink(&self, _: &Request, dir: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let bytes = name.as_bytes().to_vec();
        let target = target.as_os_str().as_bytes().to_vec();
        let run = move |world: &mut World, _| {
            let parent = world.fd(dir.0)?;
            world.disk().symlink(&parent, &bytes, &target)?;
            entered(world, dir.0, &bytes)
        };
        self.call(Kind::Symlink, at_name(dir, name), run, entry(reply));
    }

    fn rename(
        &self,
        _: &Request,
        dir: INodeNo,
        name: &OsStr,
        to_dir: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = (name.as_bytes().to_vec(), to_name.as_bytes().to_vec());
        let (first, second) = (at_name(dir, name), at_name(to_dir, to_name));
        let paths = move |world: &World| [first(world), second(world)].concat();
        let run = move |world: &mut World, _| {
            let replace = match flags {
                RenameFlags::RENAME_NOREPLACE => false,
                _ if flags.is_empty() => true,
                _ => return Err(Errno(libc::EINVAL)),
            };
            let (old, new) = (world.fd(dir.0)?, world.fd(to_dir.0)?);
            let me = &Identity::Service;
            now(world.disk().rename(me, (&old, &from), (&new, &to), replace))?;
            world.moved(to_dir.0, &to);
            Ok(())
        };
        self.call(Kind::Rename, paths, run, empty(reply));
    }

    fn link(&self, _: &Request, id: INodeNo, dir: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let bytes = name.as_bytes().to_vec();
        let run = move |world: &mut World, _| {
            let (fd, parent) = (world.fd(id.0)?, world.fd(dir.0)?);
            now(world.disk().link(&Identity::Service, &fd, &parent, &bytes))?;
            entered(world, dir.0, &bytes)
        };
        self.call(Kind::Link, at_name(dir, name), run, entry(reply));
    }

    fn open(&self, _: &Request, id: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let run = move |world: &mut World, _| {
            let (fd, how) = (world.fd(id.0)?, how(flags));
            let io = IoAccess {
                read: how.read,
                write: how.write,
            };
            let file = now(world.disk().reopen(&Identity::Service, &fd, io))?;
            Ok(world.keep(file))
        };
        let reply = opened(reply, FopenFlags::FOPEN_DIRECT_IO);
        self.call(Kind::Open, at_node(id), run, reply);
    }

    fn create(
        &self,
        who: &Request,
        dir: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let bytes = name.as_bytes().to_vec();
        let who = owner(who.uid(), who.gid());
        let run = move |world: &mut World, _| {
            let parent = world.fd(dir.0)?;
            let how = OpenHow {
                create: Some(mode & !umask & 0o7777),
                ..how(OpenFlags(flags))
            };
            let file = now(world.disk().open_at(&who, &parent, &bytes, how))?;
            let found = entered(world, dir.0, &bytes)?;
            Ok((found, world.keep(file)))
        };
        self.call(
            Kind::Create,
            at_name(dir, name),
            run,
            move |done| match done {
                Ok(((attr, generation), handle)) => reply.created(
                    &NOT_AT_ALL,
                    &attr,
                    generation,
                    FileHandle(handle),
                    FopenFlags::FOPEN_DIRECT_IO,
                ),
                Err(e) => reply.error(fuse(e)),
            },
        );
    }

    fn read(
        &self,
        _: &Request,
        id: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let run = move |world: &mut World, twist: Twist| {
            let fd = world.handle(handle.0)?.fd.clone();
            let len = twist.of(usize::try_from(size).unwrap_or(0));
            now(world.disk().read(&fd, offset, len, BytesMut::new()))
        };
        self.call(
            Kind::Read,
            at_node(id),
            run,
            or_error!(reply, data => reply.data(&data)),
        );
    }

    fn write(
        &self,
        _: &Request,
        id: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // RWF_DSYNC and O_DSYNC both; O_SYNC includes the bit.
        let durable = flags.0 & libc::O_DSYNC != 0;
        let data = Bytes::copy_from_slice(data);
        let run = move |world: &mut World, twist: Twist| {
            let fd = world.handle(handle.0)?.fd.clone();
            plant(world, twist);
            let part = data.slice(..twist.of(data.len()));
            now(world.disk().write(&fd, offset, part, durable))
        };
        let kind = if durable { Kind::Dsync } else { Kind::Write };
        self.call(kind, at_node(id), run, written(reply));
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(fuser::Errno::ENOSYS); // Nothing happens at close(2), and it is asked once.
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.shared.lock().drop_handle(handle.0);
        reply.ok();
    }

    fn fsync(
        &self,
        _: &Request,
        id: INodeNo,
        handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        let kind = if data_only {
            Kind::Fdatasync
        } else {
            Kind::Fsync
        };
        let run = move |world: &mut World, twist| sync(world, handle.0, data_only, twist);
        self.call(kind, at_node(id), run, empty(reply));
    }

    fn opendir(&self, _: &Request, id: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let run = move |world: &mut World, _| {
            let fd = world.fd(id.0)?;
            let dir = now(world.disk().reopen(&Identity::Service, &fd, IoAccess::READ))?;
            Ok(world.keep(dir))
        };
        let reply = opened(reply, FopenFlags::empty());
        self.call(Kind::Opendir, at_node(id), run, reply);
    }

    fn readdir(
        &self,
        _: &Request,
        id: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let run = move |world: &mut World, _| {
            let fd = world.handle(handle.0)?.fd.clone();
            if offset == 0 {
                let mut entries = now(world.disk().entries(&fd, ENTRIES_MAX))?;
                for entry in &mut entries {
                    entry.ino = world.id(entry.ino);
                }
                world.handle(handle.0)?.listing = Arc::new(entries);
            }
            Ok(Arc::clone(&world.handle(handle.0)?.listing))
        };
        self.call(Kind::Readdir, at_node(id), run, move |listing| {
            let listing = match listing {
                Ok(listing) => listing,
                Err(e) => return reply.error(fuse(e)),
            };
            let from = usize::try_from(offset).unwrap_or(usize::MAX);
            for (entry, next) in listing.iter().zip(1..).skip(from) {
                let kind = kind_of(u32::from(entry.kind) << 12);
                let name = OsStr::from_bytes(&entry.name);
                if reply.add(INodeNo(entry.ino), next, kind, name) {
                    break;
                }
            }
            reply.ok();
        });
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.shared.lock().drop_handle(handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, id: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        let run = move |world: &mut World, twist| sync(world, handle.0, false, twist);
        self.call(Kind::Fsyncdir, at_node(id), run, empty(reply));
    }

    fn statfs(&self, _: &Request, id: INodeNo, reply: ReplyStatfs) {
        let run = |world: &mut World, _| {
            let root: SimFd = world.disk().root();
            now(world.disk().stat_fs(&root))
        };
        self.call(Kind::Statfs, at_node(id), run, move |space| match space {
            Ok(space) => {
                let block = u32::try_from(space.block).unwrap_or(4096);
                reply.statfs(
                    space.blocks,
                    space.free,
                    space.available,
                    0,
                    0,
                    block,
                    u32::try_from(vfs::disk::NAME_MAX).unwrap_or(u32::MAX),
                    block,
                );
            }
            Err(e) => reply.error(fuse(e)),
        });
    }

    fn setxattr(
        &self,
        _: &Request,
        id: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let (name, value) = (name.to_owned(), value.to_vec());
        let run = move |world: &mut World, _| {
            let how = match flags {
                libc::XATTR_CREATE => XattrSet::Create,
                libc::XATTR_REPLACE => XattrSet::Replace,
                _ => XattrSet::Either,
            };
            let (fd, name) = (world.fd(id.0)?, xattr_name(&name)?);
            let disk = world.disk();
            now(disk.set_xattr(&Identity::Service, &fd, name, &value, how))
        };
        self.call(Kind::Setxattr, at_node(id), run, empty(reply));
    }

    fn getxattr(&self, _: &Request, id: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let name = name.to_owned();
        let run = move |world: &mut World, _| {
            let (fd, name) = (world.fd(id.0)?, xattr_name(&name)?);
            now(world.disk().get_xattr(&fd, name))
        };
        self.call(Kind::Getxattr, at_node(id), run, sized(size, reply));
    }

    fn listxattr(&self, _: &Request, id: INodeNo, size: u32, reply: ReplyXattr) {
        let run = move |world: &mut World, _| {
            let fd = world.fd(id.0)?;
            let mut list = Vec::new();
            for name in now(world.disk().list_xattr(&fd))? {
                list.extend_from_slice(name.as_bytes());
                list.push(0);
            }
            Ok(list)
        };
        self.call(Kind::Listxattr, at_node(id), run, sized(size, reply));
    }

    fn removexattr(&self, _: &Request, id: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        let run = move |world: &mut World, _| {
            let (fd, name) = (world.fd(id.0)?, xattr_name(&name)?);
            now(world.disk().remove_xattr(&Identity::Service, &fd, name))
        };
        self.call(Kind::Removexattr, at_node(id), run, empty(reply));
    }

    fn fallocate(
        &self,
        _: &Request,
        id: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let run = move |world: &mut World, _| {
            let fd = world.handle(handle.0)?.fd.clone();
            let how = match mode & !libc::FALLOC_FL_KEEP_SIZE {
                0 => Allocate::Reserve,
                libc::FALLOC_FL_PUNCH_HOLE => Allocate::Punch,
                _ => return Err(Errno(libc::EOPNOTSUPP)),
            };
            now(world.disk().allocate(&fd, how, offset, length))?;
            let end = offset.saturating_add(length);
            if mode & libc::FALLOC_FL_KEEP_SIZE == 0 && end > world.stat(id.0)?.size {
                now(world.disk().truncate(&fd, end))?;
            }
            Ok(())
        };
        self.call(Kind::Fallocate, at_node(id), run, empty(reply));
    }

    fn lseek(
        &self,
        _: &Request,
        id: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let run = move |world: &mut World, _| {
            let fd = world.handle(handle.0)?.fd.clone();
            let from = u64::try_from(offset).map_err(|_| Errno(libc::ENXIO))?;
            let data = match whence {
                libc::SEEK_DATA => true,
                libc::SEEK_HOLE => false,
                _ => return Err(Errno(libc::EINVAL)),
            };
            now(world.disk().seek(&fd, from, data))
        };
        let reply = or_error!(reply, at => reply.offset(i64::try_from(at).unwrap_or(i64::MAX)));
        self.call(Kind::Lseek, at_node(id), run, reply);
    }

    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        from: FileHandle,
        from_offset: u64,
        id: INodeNo,
        to: FileHandle,
        to_offset: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let run = move |world: &mut World, _| {
            let source = world.handle(from.0)?.fd.clone();
            let target = world.handle(to.0)?.fd.clone();
            let len = len.min(1 << 30); // The answer has 32 bits.
            let done =
                now(world
                    .disk()
                    .copy_range((&source, from_offset), (&target, to_offset), len))?;
            Ok(usize::try_from(done).unwrap_or(0))
        };
        self.call(Kind::Copy, at_node(id), run, written(reply));
    }
}
