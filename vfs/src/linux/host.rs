//! The disk of a daemon: whichever of the two real ones this machine allows.

use std::{path::Path, sync::Arc};

use bytes::{Bytes, BytesMut};

use super::{
    InodeId, LinuxFd, OwnChanges, SysDisk,
    pool::{self, Place},
};
use crate::{
    Identity, Timestamp,
    disk::{
        Allocate, Created, Disk, DiskResult, EntriesLooked, EntryAttrs, InMemory, Mark, OpenHow,
        RawEntry, Stat, StatFs, Wanted, XattrSet,
    },
    uring::UringDisk,
};

/// A real disk, chosen at start. It announces its changes to [`OwnChanges`] first.
#[derive(Debug, Clone)]
pub struct HostDisk {
    kind: Kind,
    own: Arc<OwnChanges>,
}

#[derive(Debug, Clone)]
enum Kind {
    /// Plain system calls and a pool.
    Sys(SysDisk),
    /// The workers' rings.
    Uring(UringDisk),
}

impl HostDisk {
    /// Opens the directory `path` as the root of a disk. Ask [`crate::uring::probe`] first
    /// whether rings can be used.
    ///
    /// # Errors
    /// As [`SysDisk::open`].
    pub fn open(path: &Path, use_ring: bool) -> DiskResult<Self> {
        Self::open_observed(path, use_ring, Arc::default())
    }

    /// As [`HostDisk::open`]; its changes are announced to `own`.
    ///
    /// # Errors
    /// As [`SysDisk::open`].
    pub fn open_observed(path: &Path, use_ring: bool, own: Arc<OwnChanges>) -> DiskResult<Self> {
        let kind = if use_ring {
            Kind::Uring(UringDisk::open(path)?)
        } else {
            Kind::Sys(SysDisk::open(path)?)
        };
        Ok(Self { kind, own })
    }

    fn io(&self) -> Place {
        match &self.kind {
            Kind::Sys(disk) => disk.io(),
            Kind::Uring(disk) => disk.calls().io(),
        }
    }

    /// The inode that is about to be renamed, if an observer needs it.
    async fn renaming(&self, dir: &LinuxFd, name: &[u8]) -> Option<InodeId> {
        if !self.own.is_observed() {
            return None;
        }
        let (dir, name) = (dir.clone(), name.to_vec());
        let look = move || Ok(InodeId::at(&dir, &name));
        let looked = pool::run(self.io(), Identity::Service, look).await;
        // An inode that cannot be queried cannot be renamed either.
        looked.ok().flatten()
    }
}

impl Disk for HostDisk {
    type Fd = LinuxFd;

    fn root(&self) -> LinuxFd {
        match &self.kind {
            Kind::Sys(disk) => disk.root(),
            Kind::Uring(disk) => disk.root(),
        }
    }

    async fn open_at(
        &self,
        who: &Identity,
        dir: &LinuxFd,
        name: &[u8],
        how: OpenHow,
    ) -> DiskResult<LinuxFd> {
        let _own = how.create.and_then(|_| self.own.name(dir, name));
        match &self.kind {
            Kind::Sys(disk) => disk.open_at(who, dir, name, how).await,
            Kind::Uring(disk) => disk.open_at(who, dir, name, how).await,
        }
    }

    fn service_uid(&self) -> u32 {
        match &self.kind {
            Kind::Sys(disk) => disk.service_uid(),
            Kind::Uring(disk) => disk.service_uid(),
        }
    }

    fn is_local(&self) -> bool {
        match &self.kind {
            Kind::Sys(disk) => disk.is_local(),
            Kind::Uring(disk) => disk.is_local(),
        }
    }

    fn open_now(
        &self,
        who: &Identity,
        dir: &LinuxFd,
        name: &[u8],
        how: OpenHow,
    ) -> Option<DiskResult<LinuxFd>> {
        match &self.kind {
            Kind::Sys(disk) => disk.open_now(who, dir, name, how),
            Kind::Uring(disk) => disk.open_now(who, dir, name, how),
        }
    }

    fn open_way(
        &self,
        who: &Identity,
        dir: &LinuxFd,
        names: &[Box<[u8]>],
    ) -> Vec<Option<DiskResult<LinuxFd>>> {
        match &self.kind {
            Kind::Sys(disk) => disk.open_way(who, dir, names),
            Kind::Uring(disk) => disk.open_way(who, dir, names),
        }
    }

    async fn create_at(
        &self,
        who: &Identity,
        dir: &LinuxFd,
        name: &[u8],
        mode: u32,
        mark: Mark,
    ) -> DiskResult<Created<LinuxFd>> {
        let _own = self.own.name(dir, name);
        match &self.kind {
            Kind::Sys(disk) => disk.create_at(who, dir, name, mode, mark).await,
            Kind::Uring(disk) => disk.create_at(who, dir, name, mode, mark).await,
        }
    }

    async fn entries_attrs(
        &self,
        dir: &LinuxFd,
        names: Vec<Box<[u8]>>,
        wanted: Wanted,
    ) -> Vec<DiskResult<EntryAttrs>> {
        match &self.kind {
            Kind::Sys(disk) => disk.entries_attrs(dir, names, wanted).await,
            Kind::Uring(disk) => disk.entries_attrs(dir, names, wanted).await,
        }
    }

    async fn reopen(
        &self,
        who: &Identity,
        fd: &LinuxFd,
        read: bool,
        write: bool,
    ) -> DiskResult<LinuxFd> {
        match &self.kind {
            Kind::Sys(disk) => disk.reopen(who, fd, read, write).await,
            Kind::Uring(disk) => disk.reopen(who, fd, read, write).await,
        }
    }

    fn close_beside(&self, fd: LinuxFd, other: &LinuxFd) {
        match &self.kind {
            Kind::Sys(disk) => disk.close_beside(fd, other),
            Kind::Uring(disk) => disk.close_beside(fd, other),
        }
    }

    async fn access(&self, who: &Identity, fd: &LinuxFd, mode: u32) -> DiskResult<()> {
        match &self.kind {
            Kind::Sys(disk) => disk.access(who, fd, mode).await,
            Kind::Uring(disk) => disk.access(who, fd, mode).await,
        }
    }

    async fn stat(&self, fd: &LinuxFd) -> DiskResult<Stat> {
        match &self.kind {
            Kind::Sys(disk) => disk.stat(fd).await,
            Kind::Uring(disk) => disk.stat(fd).await,
        }
    }

    async fn stat_at(&self, dir: &LinuxFd, name: &[u8]) -> DiskResult<Stat> {
        match &self.kind {
            Kind::Sys(disk) => disk.stat_at(dir, name).await,
            Kind::Uring(disk) => disk.stat_at(dir, name).await,
        }
    }

    async fn generation(&self, fd: &LinuxFd) -> DiskResult<u64> {
        match &self.kind {
            Kind::Sys(disk) => disk.generation(fd).await,
            Kind::Uring(disk) => disk.generation(fd).await,
        }
    }

    async fn read(
        &self,
        fd: &LinuxFd,
        offset: u64,
        len: usize,
        buf: BytesMut,
    ) -> DiskResult<BytesMut> {
        match &self.kind {
            Kind::Sys(disk) => disk.read(fd, offset, len, buf).await,
            Kind::Uring(disk) => disk.read(fd, offset, len, buf).await,
        }
    }

    async fn write(
        &self,
        fd: &LinuxFd,
        offset: u64,
        data: Bytes,
        durable: bool,
    ) -> DiskResult<usize> {
        let _own = self.own.inode(fd);
        match &self.kind {
            Kind::Sys(disk) => disk.write(fd, offset, data, durable).await,
            Kind::Uring(disk) => disk.write(fd, offset, data, durable).await,
        }
    }

    async fn truncate(&self, fd: &LinuxFd, size: u64) -> DiskResult<()> {
        let _own = self.own.inode(fd);
        match &self.kind {
            Kind::Sys(disk) => disk.truncate(fd, size).await,
            Kind::Uring(disk) => disk.truncate(fd, size).await,
        }
    }

    async fn allocate(&self, fd: &LinuxFd, how: Allocate, offset: u64, len: u64) -> DiskResult<()> {
        let _own = self.own.inode(fd);
        match &self.kind {
            Kind::Sys(disk) => disk.allocate(fd, how, offset, len).await,
            Kind::Uring(disk) => disk.allocate(fd, how, offset, len).await,
        }
    }

    async fn seek(&self, fd: &LinuxFd, offset: u64, data: bool) -> DiskResult<u64> {
        match &self.kind {
            Kind::Sys(disk) => disk.seek(fd, offset, data).await,
            Kind::Uring(disk) => disk.seek(fd, offset, data).await,
        }
    }

    async fn copy_range(
        &self,
        from: &LinuxFd,
        from_offset: u64,
        to: &LinuxFd,
        to_offset: u64,
        len: u64,
    ) -> DiskResult<u64> {
        let _own = self.own.inode(to);
        match &self.kind {
            Kind::Sys(disk) => disk.copy_range(from, from_offset, to, to_offset, len).await,
            Kind::Uring(disk) => disk.copy_range(from, from_offset, to, to_offset, len).await,
        }
    }

    async fn clone_range(
        &self,
        from: &LinuxFd,
        from_offset: u64,
        to: &LinuxFd,
        to_offset: u64,
        len: u64,
    ) -> DiskResult<()> {
        let _own = self.own.inode(to);
        match &self.kind {
            Kind::Sys(disk) => {
                disk.clone_range(from, from_offset, to, to_offset, len)
                    .await
            }
            Kind::Uring(disk) => {
                disk.clone_range(from, from_offset, to, to_offset, len)
                    .await
            }
        }
    }

    async fn fsync(&self, fd: &LinuxFd) -> DiskResult<()> {
        match &self.kind {
            Kind::Sys(disk) => disk.fsync(fd).await,
            Kind::Uring(disk) => disk.fsync(fd).await,
        }
    }

    async fn sync_dir(&self, fd: &LinuxFd) -> DiskResult<()> {
        match &self.kind {
            Kind::Sys(disk) => disk.sync_dir(fd).await,
            Kind::Uring(disk) => disk.sync_dir(fd).await,
        }
    }

    async fn sync_fs(&self, fd: &LinuxFd) -> DiskResult<()> {
        match &self.kind {
            Kind::Sys(disk) => disk.sync_fs(fd).await,
            Kind::Uring(disk) => disk.sync_fs(fd).await,
        }
    }

    fn in_memory(&self, fd: &LinuxFd, offset: u64, len: usize) -> Option<Box<dyn InMemory>> {
        match &self.kind {
            Kind::Sys(disk) => disk.in_memory(fd, offset, len),
            Kind::Uring(disk) => disk.in_memory(fd, offset, len),
        }
    }

    fn start_write_back(&self, fd: &LinuxFd, offset: u64, len: u64) {
        match &self.kind {
            Kind::Sys(disk) => disk.start_write_back(fd, offset, len),
            Kind::Uring(disk) => disk.start_write_back(fd, offset, len),
        }
    }

    async fn fdatasync(&self, fd: &LinuxFd) -> DiskResult<()> {
        match &self.kind {
            Kind::Sys(disk) => disk.fdatasync(fd).await,
            Kind::Uring(disk) => disk.fdatasync(fd).await,
        }
    }

    async fn make_dir(
        &self,
        who: &Identity,
        dir: &LinuxFd,
        name: &[u8],
        mode: u32,
    ) -> DiskResult<()> {
        let _own = self.own.name(dir, name);
        match &self.kind {
            Kind::Sys(disk) => disk.make_dir(who, dir, name, mode).await,
            Kind::Uring(disk) => disk.make_dir(who, dir, name, mode).await,
        }
    }

    async fn unlink(
        &self,
        who: &Identity,
        dir: &LinuxFd,
        name: &[u8],
        directory: bool,
    ) -> DiskResult<()> {
        let _own = self.own.name(dir, name);
        match &self.kind {
            Kind::Sys(disk) => disk.unlink(who, dir, name, directory).await,
            Kind::Uring(disk) => disk.unlink(who, dir, name, directory).await,
        }
    }

    async fn rename(
        &self,
        who: &Identity,
        from: &LinuxFd,
        from_name: &[u8],
        to: &LinuxFd,
        to_name: &[u8],
        replace: bool,
    ) -> DiskResult<()> {
        let moved = self.renaming(from, from_name).await;
        let _own = self.own.rename((from, from_name), (to, to_name), moved);
        match &self.kind {
            Kind::Sys(disk) => {
                disk.rename(who, from, from_name, to, to_name, replace)
                    .await
            }
            Kind::Uring(disk) => {
                disk.rename(who, from, from_name, to, to_name, replace)
                    .await
            }
        }
    }

    async fn link(
        &self,
        who: &Identity,
        fd: &LinuxFd,
        dir: &LinuxFd,
        name: &[u8],
    ) -> DiskResult<()> {
        let _own = self.own.link(fd, dir, name);
        match &self.kind {
            Kind::Sys(disk) => disk.link(who, fd, dir, name).await,
            Kind::Uring(disk) => disk.link(who, fd, dir, name).await,
        }
    }

    async fn read_link_at(&self, dir: &LinuxFd, name: &[u8]) -> DiskResult<Vec<u8>> {
        match &self.kind {
            Kind::Sys(disk) => disk.read_link_at(dir, name).await,
            Kind::Uring(disk) => disk.read_link_at(dir, name).await,
        }
    }

    async fn entries(&self, who: &Identity, fd: &LinuxFd, max: usize) -> DiskResult<Vec<RawEntry>> {
        match &self.kind {
            Kind::Sys(disk) => disk.entries(who, fd, max).await,
            Kind::Uring(disk) => disk.entries(who, fd, max).await,
        }
    }

    async fn entries_looked(
        &self,
        who: &Identity,
        fd: &LinuxFd,
        max: usize,
        looked: usize,
        wanted: Wanted,
    ) -> DiskResult<EntriesLooked> {
        match &self.kind {
            Kind::Sys(disk) => disk.entries_looked(who, fd, max, looked, wanted).await,
            Kind::Uring(disk) => disk.entries_looked(who, fd, max, looked, wanted).await,
        }
    }

    async fn get_xattr(&self, fd: &LinuxFd, name: &str) -> DiskResult<Vec<u8>> {
        match &self.kind {
            Kind::Sys(disk) => disk.get_xattr(fd, name).await,
            Kind::Uring(disk) => disk.get_xattr(fd, name).await,
        }
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
        match &self.kind {
            Kind::Sys(disk) => disk.set_xattr(who, fd, name, value, how).await,
            Kind::Uring(disk) => disk.set_xattr(who, fd, name, value, how).await,
        }
    }

    async fn remove_xattr(&self, who: &Identity, fd: &LinuxFd, name: &str) -> DiskResult<()> {
        let _own = self.own.inode(fd);
        match &self.kind {
            Kind::Sys(disk) => disk.remove_xattr(who, fd, name).await,
            Kind::Uring(disk) => disk.remove_xattr(who, fd, name).await,
        }
    }

    async fn list_xattr(&self, fd: &LinuxFd) -> DiskResult<Vec<String>> {
        match &self.kind {
            Kind::Sys(disk) => disk.list_xattr(fd).await,
            Kind::Uring(disk) => disk.list_xattr(fd).await,
        }
    }

    async fn set_times(
        &self,
        who: &Identity,
        fd: &LinuxFd,
        accessed: Option<Timestamp>,
        written: Option<Timestamp>,
    ) -> DiskResult<()> {
        let _own = self.own.inode(fd);
        match &self.kind {
            Kind::Sys(disk) => disk.set_times(who, fd, accessed, written).await,
            Kind::Uring(disk) => disk.set_times(who, fd, accessed, written).await,
        }
    }

    async fn set_mode(&self, who: &Identity, fd: &LinuxFd, mode: u32) -> DiskResult<()> {
        let _own = self.own.inode(fd);
        match &self.kind {
            Kind::Sys(disk) => disk.set_mode(who, fd, mode).await,
            Kind::Uring(disk) => disk.set_mode(who, fd, mode).await,
        }
    }

    async fn set_owner(
        &self,
        who: &Identity,
        fd: &LinuxFd,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> DiskResult<()> {
        let _own = self.own.inode(fd);
        match &self.kind {
            Kind::Sys(disk) => disk.set_owner(who, fd, uid, gid).await,
            Kind::Uring(disk) => disk.set_owner(who, fd, uid, gid).await,
        }
    }

    fn renames_are_atomic(&self, fs: u64) -> bool {
        match &self.kind {
            Kind::Sys(disk) => disk.renames_are_atomic(fs),
            Kind::Uring(disk) => disk.renames_are_atomic(fs),
        }
    }

    fn path_hint(&self, fd: &LinuxFd) -> Option<Vec<u8>> {
        match &self.kind {
            Kind::Sys(disk) => disk.path_hint(fd),
            Kind::Uring(disk) => disk.path_hint(fd),
        }
    }

    async fn stat_fs(&self, fd: &LinuxFd) -> DiskResult<StatFs> {
        match &self.kind {
            Kind::Sys(disk) => disk.stat_fs(fd).await,
            Kind::Uring(disk) => disk.stat_fs(fd).await,
        }
    }

    async fn is_read_only(&self, fd: &LinuxFd) -> DiskResult<bool> {
        match &self.kind {
            Kind::Sys(disk) => disk.is_read_only(fd).await,
            Kind::Uring(disk) => disk.is_read_only(fd).await,
        }
    }
}
