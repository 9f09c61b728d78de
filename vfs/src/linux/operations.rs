//! The operations of a [`LinuxDisk`], each by the cheapest of the ways that `disk.rs` has for it.

use std::{os::fd::AsFd, sync::Arc};

use bytes::{Bytes, BytesMut};

use super::{
    calls,
    disk::LinuxDisk,
    fd::LinuxFd,
    in_memory::Cached,
    opens, removed, super_block, syncs,
    xattrs::{self, XATTR_MAX, XattrAccess},
    xfs_log,
};
use crate::{
    Identity, IoAccess, Timestamp, credentials,
    disk::{
        Allocate, Attempt, Created, Disk, DiskResult, EntriesLooked, EntryAttrs, Errno, InMemory,
        Mark, OpenHow, RawEntry, Stat, StatFs, Wanted, XattrLengths, XattrSet, check_name,
    },
    posix_sys as raw,
};

impl Disk for LinuxDisk {
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
        let _own = how.create.and_then(|_| self.own.name(dir, name));
        if let Some(opened) = self.try_open(who, dir, name, how) {
            return opened;
        }
        self.pool_open(who, dir, name, how).await
    }

    fn service_uid(&self) -> u32 {
        credentials::service_uid()
    }

    fn is_local(&self, fd: &LinuxFd) -> bool {
        !fd.class().remote
    }

    fn open_now(
        &self,
        who: &Identity,
        dir: &LinuxFd,
        name: &[u8],
        how: OpenHow,
    ) -> Option<DiskResult<LinuxFd>> {
        let checked = check_name(name).map_err(Err).err();
        checked.or_else(|| self.try_open(who, dir, name, how))
    }

    /// All opens run under one change of identity, which costs more than two of them.
    fn open_way(
        &self,
        who: &Identity,
        dir: &LinuxFd,
        names: &[Box<[u8]>],
    ) -> Vec<Option<DiskResult<LinuxFd>>> {
        if dir.class().remote || names.iter().any(|name| check_name(name).is_err()) {
            return Vec::new();
        }
        // If the thread cannot act as the user, the open itself reports that.
        credentials::with(who, || Ok(opens::open_way(dir, names))).unwrap_or_default()
    }

    /// It runs on the pool, with one hand-over instead of three.
    async fn create_at(
        &self,
        who: &Identity,
        dir: &LinuxFd,
        name: &[u8],
        mode: u32,
        mark: Mark,
    ) -> DiskResult<Created<LinuxFd>> {
        let _own = self.own.name(dir, name);
        self.run_at(who, dir, name, move |dir, name| {
            let how = OpenHow::new_file(mode);
            let fd = opens::open(dir, name, how)?;
            let stat = calls::stat(&fd);
            let marked = stat.and_then(|stat| {
                let (name, value) = mark(&stat);
                let set = || xattrs::set(&fd, name, &value, XattrSet::Either);
                match set() {
                    // The user who created it may mark it, unless the mode or an inherited ACL forbids that. The
                    // service may then.
                    Err(Errno(libc::EACCES | libc::EPERM)) => {
                        credentials::assume(&Identity::Service).and_then(|()| set())?;
                    }
                    // On NFS the service may less than the user, and would get another error.
                    marked => marked?,
                }
                xfs_log::log_inode(&fd)
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
        self.attrs_of(dir, names, wanted).await
    }

    async fn entries_xattrs(
        &self,
        dir: &LinuxFd,
        names: Vec<Box<[u8]>>,
        wanted: fn(&str) -> bool,
    ) -> Vec<DiskResult<XattrLengths>> {
        let names: Arc<[Box<[u8]>]> = names.into();
        let mut found = Vec::with_capacity(names.len());
        while found.len() < names.len() {
            let (all, at) = (Arc::clone(&names), found.len());
            let looked = self.wait(dir, move |dir| {
                let rest = all.get(at..).unwrap_or_default();
                Ok(xattrs::lengths(dir, rest, wanted, XattrAccess::here()))
            });
            match looked.await {
                Ok(more) => found.extend(more),
                Err(errno) => found.resize(names.len(), Err(errno)),
            }
        }
        found
    }

    async fn reopen(&self, who: &Identity, fd: &LinuxFd, io: IoAccess) -> DiskResult<LinuxFd> {
        self.open_again(who, fd, io).await
    }

    fn close_beside(&self, fd: LinuxFd, other: &LinuxFd) {
        fd.joins(other);
    }

    async fn access(&self, who: &Identity, fd: &LinuxFd, mode: u32) -> DiskResult<()> {
        if fd.class().remote {
            let access = move |fd: &LinuxFd| raw::access(fd.as_fd(), mode);
            return self.run(who, fd, access).await;
        }
        credentials::with(who, || raw::access(fd.as_fd(), mode))
    }

    async fn stat(&self, fd: &LinuxFd) -> DiskResult<Stat> {
        self.look(fd, calls::stat).await
    }

    async fn stat_at(&self, dir: &LinuxFd, name: &[u8]) -> DiskResult<Stat> {
        check_name(name)?;
        if !dir.class().remote {
            match calls::stat_cached(dir, name) {
                Err(errno) if opens::would_wait(errno) => {}
                other => return other,
            }
        }
        self.pool_stat(dir, name).await
    }

    async fn read(
        &self,
        fd: &LinuxFd,
        offset: u64,
        len: usize,
        buf: BytesMut,
    ) -> DiskResult<BytesMut> {
        let mut buf = match self.try_read(fd, offset, len, buf) {
            Attempt::Done(read) => return read,
            Attempt::Declined(buf) => buf,
        };
        if let Some(ring) = self.ring(fd) {
            match ring.read(fd.held_for_read(), offset, len, buf).await {
                Attempt::Done(read) => return read,
                Attempt::Declined(back) => buf = back,
            }
        }
        self.wait(fd, move |fd| {
            calls::repeat(|| raw::read_at(fd.as_fd(), offset, len, &mut buf, false))?;
            Ok(buf)
        })
        .await
    }

    async fn write(
        &self,
        fd: &LinuxFd,
        offset: u64,
        mut data: Bytes,
        durable: bool,
    ) -> DiskResult<usize> {
        let _own = self.own.inode(fd);
        if let Some(written) = self.try_write(fd, offset, &data, durable) {
            return written;
        }
        if !durable && let Some(ring) = self.ring(fd) {
            match ring.write(fd.held(), offset, data).await {
                Attempt::Done(written) => return written,
                Attempt::Declined(back) => data = back,
            }
        }
        self.pool_write(fd, offset, data, durable).await
    }

    async fn truncate(&self, fd: &LinuxFd, size: u64) -> DiskResult<()> {
        let _own = self.own.inode(fd);
        fd.truncates();
        self.wait_long(fd, move |fd| syncs::truncate(fd, size))
            .await
    }

    async fn allocate(&self, fd: &LinuxFd, how: Allocate, offset: u64, len: u64) -> DiskResult<()> {
        let _own = self.own.inode(fd);
        self.wait_long(fd, move |fd| syncs::allocate(fd, how, offset, len))
            .await
    }

    async fn seek(&self, fd: &LinuxFd, offset: u64, data: bool) -> DiskResult<u64> {
        self.wait(fd, move |fd| calls::seek(fd, offset, data)).await
    }

    async fn copy_range(
        &self,
        (from, from_offset): (&LinuxFd, u64),
        (to, to_offset): (&LinuxFd, u64),
        len: u64,
    ) -> DiskResult<u64> {
        let _own = self.own.inode(to);
        let to = to.clone();
        self.wait(from, move |from| {
            calls::copy_range((from, from_offset), (&to, to_offset), len)
        })
        .await
    }

    async fn clone_range(
        &self,
        (from, from_offset): (&LinuxFd, u64),
        (to, to_offset): (&LinuxFd, u64),
        len: u64,
    ) -> DiskResult<()> {
        let _own = self.own.inode(to);
        let to = to.clone();
        self.wait(from, move |from| {
            raw::clone_range(from.as_fd(), from_offset, to.as_fd(), to_offset, len)
        })
        .await
    }

    async fn fsync(&self, fd: &LinuxFd) -> DiskResult<()> {
        self.wait_sync(fd, syncs::all).await
    }

    async fn sync_dir(&self, fd: &LinuxFd) -> DiskResult<()> {
        let prepare = |fd: &LinuxFd| calls::repeat(|| removed::due(fd));
        self.wait_prepared_sync(fd, prepare, |fd, due| {
            if let Some(due) = due {
                calls::repeat(|| due.commit())?;
            }
            syncs::all(fd)
        })
        .await
    }

    async fn sync_fs(&self, fd: &LinuxFd) -> DiskResult<()> {
        self.wait_sync(fd, |fd| calls::call(|| rustix::fs::syncfs(fd)))
            .await
    }

    fn in_memory(&self, fd: &LinuxFd, offset: u64, len: usize) -> Option<Box<dyn InMemory>> {
        Cached::find(self, fd, offset, len)
    }

    fn keep_access_time(&self, fd: &LinuxFd, keeps: bool) {
        // EPERM: a service without CAP_FOWNER may not for a file of another user. Its access time moves as before.
        let _ = credentials::with(&Identity::Service, || fd.keep_access_time(keeps));
    }

    fn start_write_back(&self, fd: &LinuxFd, offset: u64, len: u64) {
        self.post_write_back(fd, offset, len);
    }

    async fn fdatasync(&self, fd: &LinuxFd) -> DiskResult<()> {
        self.wait_sync(fd, syncs::data).await
    }

    async fn make_dir(
        &self,
        who: &Identity,
        dir: &LinuxFd,
        name: &[u8],
        mode: u32,
    ) -> DiskResult<()> {
        let _own = self.own.name(dir, name);
        self.run_at(who, dir, name, move |dir, name| {
            calls::make_dir(dir, name, mode)
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
        let _own = self.own.name(dir, name);
        let noted = dir.class().names_come_back;
        self.run_at(who, dir, name, move |dir, name| {
            let gone = calls::unlink(dir, name, directory);
            if noted {
                removed::left(dir);
            }
            gone
        })
        .await
    }

    async fn rename(
        &self,
        who: &Identity,
        from: (&LinuxFd, &[u8]),
        to: (&LinuxFd, &[u8]),
        replace: bool,
    ) -> DiskResult<()> {
        self.move_name(who, from, to, replace).await
    }

    async fn link(
        &self,
        who: &Identity,
        fd: &LinuxFd,
        dir: &LinuxFd,
        name: &[u8],
    ) -> DiskResult<()> {
        let _own = self.own.link(fd, dir, name);
        let fd = fd.clone();
        self.run_at(who, dir, name, move |dir, name| calls::link(&fd, dir, name))
            .await
    }

    async fn read_link_at(&self, dir: &LinuxFd, name: &[u8]) -> DiskResult<Vec<u8>> {
        check_name(name)?;
        let name = name.to_vec();
        self.wait(dir, move |dir| calls::read_link_at(dir, &name))
            .await
    }

    async fn entries(&self, fd: &LinuxFd, max: usize) -> DiskResult<Vec<RawEntry>> {
        self.wait(fd, move |fd| calls::entries(fd, max)).await
    }

    async fn entries_looked(
        &self,
        fd: &LinuxFd,
        max: usize,
        looked: usize,
        wanted: Wanted,
    ) -> DiskResult<EntriesLooked> {
        let listed = self.wait(fd, move |fd| {
            let entries = calls::entries(fd, max)?;
            let first = (entries.iter().take(looked)).map(|entry| (&*entry.name, entry.kind));
            let attrs = xattrs::entries(fd, first, &wanted, XattrAccess::here());
            Ok((entries, attrs, wanted))
        });
        let (entries, mut attrs, wanted) = listed.await?;
        let first = entries.iter().take(looked).map(|entry| &*entry.name);
        self.look_at_mounted(fd, first, &wanted, &mut attrs).await;
        Ok((entries, attrs))
    }

    async fn get_xattr(&self, fd: &LinuxFd, name: &str) -> DiskResult<Vec<u8>> {
        let beside = fd.class().xattrs_beside;
        if !fd.class().remote {
            let found = xattrs::get(fd, name, XattrAccess::here(), beside);
            if beside == XATTR_MAX || found != Err(Errno(libc::E2BIG)) {
                return found;
            }
        }
        let name = name.to_owned();
        let get = move |fd: &LinuxFd| xattrs::get(fd, &name, XattrAccess::here(), XATTR_MAX);
        self.wait(fd, get).await
    }

    async fn set_xattr(
        &self,
        who: &Identity,
        fd: &LinuxFd,
        name: &str,
        value: &[u8],
        how: XattrSet,
    ) -> DiskResult<()> {
        let _own = self.own.inode(fd);
        let (name, value) = (name.to_owned(), value.to_vec());
        let set = move |fd: &LinuxFd| {
            xattrs::set(fd, &name, &value, how)?;
            xfs_log::log_inode(fd)
        };
        self.run(who, fd, set).await
    }

    async fn remove_xattr(&self, who: &Identity, fd: &LinuxFd, name: &str) -> DiskResult<()> {
        let _own = self.own.inode(fd);
        let name = name.to_owned();
        let remove =
            move |fd: &LinuxFd| xattrs::remove(fd, &name).and_then(|()| xfs_log::log_inode(fd));
        self.run(who, fd, remove).await
    }

    async fn list_xattr(&self, fd: &LinuxFd) -> DiskResult<Vec<String>> {
        self.look(fd, |fd| xattrs::list(fd, XattrAccess::here()))
            .await
    }

    async fn set_times(
        &self,
        who: &Identity,
        fd: &LinuxFd,
        accessed: Option<Timestamp>,
        written: Option<Timestamp>,
    ) -> DiskResult<()> {
        let _own = self.own.inode(fd);
        self.run(who, fd, move |fd| xfs_log::set_times(fd, accessed, written))
            .await
    }

    async fn set_mode(&self, who: &Identity, fd: &LinuxFd, mode: u32) -> DiskResult<()> {
        let _own = self.own.inode(fd);
        let set =
            move |fd: &LinuxFd| calls::set_mode(fd, mode).and_then(|()| xfs_log::log_inode(fd));
        self.run(who, fd, set).await
    }

    async fn set_owner(
        &self,
        who: &Identity,
        fd: &LinuxFd,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> DiskResult<()> {
        let _own = self.own.inode(fd);
        self.run(who, fd, move |fd| calls::set_owner(fd, uid, gid))
            .await
    }

    fn renames_are_atomic(&self, fs: u64) -> bool {
        super_block::renames_are_atomic(fs)
    }

    fn with_path<T>(&self, fd: &LinuxFd, look: impl FnOnce(&[u8]) -> T) -> Option<T> {
        self.look_at_path(fd, look)
    }

    fn is_path_unknown(&self, fd: &LinuxFd) -> bool {
        calls::is_path_unknown(fd)
    }

    async fn stat_fs(&self, fd: &LinuxFd) -> DiskResult<StatFs> {
        let looked = |fd: &LinuxFd| {
            let (fs, device) = (calls::stat_fs(fd)?, fd.file_system().device);
            let id = match fs.id {
                // Some file systems make it of the device number.
                number if number == 0 || number == device => fd.class().uuid.unwrap_or(device),
                number => number,
            };
            Ok(StatFs { id, ..fs })
        };
        self.look(fd, looked).await
    }
}
