//! The operations of a [`SimDisk`]: each calls the hook, and then the state under the disk's lock.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use super::{
    Deceit, Profile, SimDisk, SimFd, SimOp, SyncKind,
    effects::Scope,
    state::{State, err_if},
};
use crate::{
    Identity, IoAccess, Timestamp,
    disk::{
        Allocate, Disk, DiskResult, Errno, InodeLocks, OpenHow, RawEntry, Stat, StatFs, XattrSet,
        check_name,
    },
};

impl Disk for SimDisk {
    type Fd = SimFd;

    fn root(&self) -> SimFd {
        self.root.clone()
    }

    fn inode_locks(&self) -> Arc<InodeLocks> {
        Arc::clone(&self.shared.inode_locks)
    }

    fn service_uid(&self) -> u32 {
        self.shared.lock().options.service.0
    }

    fn is_local(&self, _: &SimFd) -> bool {
        !self.shared.lock().options.nfs
    }

    async fn open_at(
        &self,
        who: &Identity,
        dir: &SimFd,
        name: &[u8],
        how: OpenHow,
    ) -> DiskResult<SimFd> {
        let creates = how.create.is_some() && !how.path_only;
        self.shared
            .pause(if creates { SimOp::Change } else { SimOp::Look })
            .await;
        let mut state = self.shared.lock();
        let ino = state.open(who, dir.0.ino, name, how)?;
        let name = state.durable.tracks().then(|| (dir.0.ino, name.into()));
        let io = (!how.path_only).then(|| how.io());
        Ok(self.handle(&mut state, (ino, name), io))
    }

    async fn reopen(&self, who: &Identity, fd: &SimFd, io: IoAccess) -> DiskResult<SimFd> {
        let mut state = self.shared.attempt(SimOp::Look).await?;
        state.may_open(who, fd.0.ino, io)?;
        let name = (state.opens.get(&fd.0.serial)).and_then(|open| open.name.clone());
        Ok(self.handle(&mut state, (fd.0.ino, name), Some(io)))
    }

    async fn access(&self, who: &Identity, fd: &SimFd, mode: u32) -> DiskResult<()> {
        let state = self.shared.attempt(SimOp::Look).await?;
        state.access(who, fd.0.ino, mode)
    }

    async fn stat(&self, fd: &SimFd) -> DiskResult<Stat> {
        self.shared.attempt(SimOp::Look).await?.stat(fd.0.ino)
    }

    async fn stat_at(&self, dir: &SimFd, name: &[u8]) -> DiskResult<Stat> {
        let state = self.shared.attempt(SimOp::Look).await?;
        let ino = state.find(state.cred(&Identity::Service), dir.0.ino, name)?;
        state.stat(ino)
    }

    async fn read(
        &self,
        fd: &SimFd,
        offset: u64,
        len: usize,
        mut buf: BytesMut,
    ) -> DiskResult<BytesMut> {
        let ino = fd.usable(IoAccess::READ)?;
        let mut state = self.shared.begin(SimOp::Read).await;
        state.read(ino, offset, len, &mut buf)?;
        Ok(buf)
    }

    async fn write(
        &self,
        fd: &SimFd,
        offset: u64,
        data: Bytes,
        durable: bool,
    ) -> DiskResult<usize> {
        let ino = fd.usable(IoAccess::WRITE)?;
        let (result, syncs) = {
            let mut state = self.shared.begin(SimOp::Write).await;
            let before = state.syncs;
            let durable = durable && state.deceit != Some(Deceit::DsyncIgnored);
            let result = state.write(fd.0.serial, ino, offset, &data, durable);
            (result, state.syncs - before)
        };
        self.shared.pause(SimOp::Answer).await;
        if syncs > 0 {
            self.shared.synced(ino, SyncKind::Write, &result);
            if self.shared.lock().deceit == Some(Deceit::DsyncErrorSwallowed) {
                return Ok(data.len());
            }
        }
        result
    }

    async fn truncate(&self, fd: &SimFd, size: u64) -> DiskResult<()> {
        let ino = fd
            .usable(IoAccess::WRITE)
            .map_err(|_| Errno(libc::EINVAL))?;
        let truncate = |state: &mut State| state.truncate(ino, size);
        self.shared.answered(SimOp::Change, truncate).await
    }

    async fn allocate(&self, fd: &SimFd, how: Allocate, offset: u64, len: u64) -> DiskResult<()> {
        let ino = fd.usable(IoAccess::WRITE)?;
        let mut state = self.shared.begin(SimOp::Change).await;
        state.allocate(ino, how, offset, len)
    }

    async fn seek(&self, fd: &SimFd, offset: u64, data: bool) -> DiskResult<u64> {
        let ino = fd.usable(IoAccess::default())?;
        let mut state = self.shared.begin(SimOp::Look).await;
        state.seek(ino, offset, data)
    }

    async fn copy_range(
        &self,
        (from, from_offset): (&SimFd, u64),
        (to, to_offset): (&SimFd, u64),
        len: u64,
    ) -> DiskResult<u64> {
        let (source, target) = (from.usable(IoAccess::READ)?, to.usable(IoAccess::WRITE)?);
        let (from, to) = ((source, from_offset), (target, to_offset));
        let copy = |state: &mut State| state.copy(from, to, len);
        self.shared.answered(SimOp::Write, copy).await
    }

    async fn clone_range(
        &self,
        (from, from_offset): (&SimFd, u64),
        (to, to_offset): (&SimFd, u64),
        len: u64,
    ) -> DiskResult<()> {
        let (source, target) = (from.usable(IoAccess::READ)?, to.usable(IoAccess::WRITE)?);
        let mut state = self.shared.begin(SimOp::Change).await;
        state.clone_range((source, from_offset), (target, to_offset), len)
    }

    async fn fsync(&self, fd: &SimFd) -> DiskResult<()> {
        self.shared.sync(fd, Scope::All).await
    }

    fn renames_are_atomic(&self, _: u64) -> bool {
        self.shared.lock().durable.profile != Profile::PosixMin
    }

    async fn fdatasync(&self, fd: &SimFd) -> DiskResult<()> {
        self.shared.sync(fd, Scope::Data).await
    }

    async fn sync_fs(&self, fd: &SimFd) -> DiskResult<()> {
        fd.usable(IoAccess::default())?;
        let mut lost = None;
        let synced = {
            let mut state = self.shared.begin(SimOp::Sync).await;
            state.sync_fs(fd.0.serial, &mut lost)
        };
        if let Some(ino) = lost {
            self.shared.synced(ino, SyncKind::All, &synced);
        }
        synced
    }

    async fn make_dir(
        &self,
        who: &Identity,
        dir: &SimFd,
        name: &[u8],
        mode: u32,
    ) -> DiskResult<()> {
        let mut state = self.shared.attempt(SimOp::Change).await?;
        state
            .create(who, dir.0.ino, name, libc::S_IFDIR | (mode & 0o7777))
            .map(drop)
    }

    async fn unlink(
        &self,
        who: &Identity,
        dir: &SimFd,
        name: &[u8],
        directory: bool,
    ) -> DiskResult<()> {
        let unlink = |state: &mut State| state.unlink(who, dir.0.ino, name, directory);
        self.shared.answered(SimOp::Change, unlink).await
    }

    async fn rename(
        &self,
        who: &Identity,
        (from, from_name): (&SimFd, &[u8]),
        (to, to_name): (&SimFd, &[u8]),
        replace: bool,
    ) -> DiskResult<()> {
        let (from, to) = ((from.0.ino, from_name), (to.0.ino, to_name));
        let rename = |state: &mut State| state.rename(who, from, to, replace);
        self.shared.answered(SimOp::Change, rename).await
    }

    async fn link(&self, who: &Identity, fd: &SimFd, dir: &SimFd, name: &[u8]) -> DiskResult<()> {
        let mut state = self.shared.begin(SimOp::Change).await;
        state.link(who, fd.0.ino, dir.0.ino, name)
    }

    async fn read_link_at(&self, dir: &SimFd, name: &[u8]) -> DiskResult<Vec<u8>> {
        check_name(name)?;
        let state = self.shared.attempt(SimOp::Look).await?;
        let ino = state.find(state.cred(&Identity::Service), dir.0.ino, name)?;
        let node = state.node(ino)?;
        err_if(!node.is_link(), libc::EINVAL)?;
        Ok(node.target.to_vec())
    }

    async fn entries(&self, fd: &SimFd, max: usize) -> DiskResult<Vec<RawEntry>> {
        let ino = fd.usable(IoAccess::READ)?;
        self.shared.begin(SimOp::Look).await.entries(ino, max)
    }

    async fn get_xattr(&self, fd: &SimFd, name: &str) -> DiskResult<Vec<u8>> {
        let mut state = self.shared.begin(SimOp::Look).await;
        state.get_xattr(fd.0.ino, name)
    }

    async fn set_xattr(
        &self,
        who: &Identity,
        fd: &SimFd,
        name: &str,
        value: &[u8],
        how: XattrSet,
    ) -> DiskResult<()> {
        let set = |state: &mut State| state.set_xattr(who, fd.0.ino, name, value, how);
        self.shared.answered(SimOp::Change, set).await
    }

    async fn remove_xattr(&self, who: &Identity, fd: &SimFd, name: &str) -> DiskResult<()> {
        let mut state = self.shared.begin(SimOp::Change).await;
        state.remove_xattr(who, fd.0.ino, name)
    }

    async fn list_xattr(&self, fd: &SimFd) -> DiskResult<Vec<String>> {
        self.shared.begin(SimOp::Look).await.list_xattr(fd.0.ino)
    }

    async fn set_times(
        &self,
        who: &Identity,
        fd: &SimFd,
        accessed: Option<Timestamp>,
        written: Option<Timestamp>,
    ) -> DiskResult<()> {
        let mut state = self.shared.begin(SimOp::Change).await;
        state.set_times(who, fd.0.ino, accessed, written)
    }

    async fn set_mode(&self, who: &Identity, fd: &SimFd, mode: u32) -> DiskResult<()> {
        let mut state = self.shared.begin(SimOp::Change).await;
        state.set_mode(who, fd.0.ino, mode)
    }

    async fn set_owner(
        &self,
        who: &Identity,
        fd: &SimFd,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> DiskResult<()> {
        let mut state = self.shared.begin(SimOp::Change).await;
        state.set_owner(who, fd.0.ino, uid, gid)
    }

    fn with_path<T>(&self, fd: &SimFd, look: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let path = self.shared.lock().path(fd.0.serial, self.root.0.ino)?;
        Some(look(&path))
    }

    async fn stat_fs(&self, _: &SimFd) -> DiskResult<StatFs> {
        Ok(self.shared.attempt(SimOp::Look).await?.stat_fs())
    }
}
