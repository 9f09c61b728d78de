//! Names of simulated inodes: directories, opens, links and renames.

use std::sync::Arc;

use libc::{S_IFDIR, S_IFMT, S_ISGID};

use super::{
    effects::Edit,
    faults::SimOp,
    image::{Inode, ROOT},
    state::{Cred, State, err, err_if, for_something},
};
use crate::{
    Identity, IoAccess,
    disk::{DiskResult, Errno, OpenHow, RawEntry, check_name},
};

/// The most links of an inode (ext4's limit).
const LINKS_MAX: u32 = 65_000;

impl State {
    /// The inode at a name, if there is one. It checks the search permission.
    pub(super) fn lookup(&self, cred: Cred<'_>, dir: u64, name: &[u8]) -> DiskResult<Option<u64>> {
        check_name(name)?;
        let node = self.dir(dir)?;
        err_if(!cred.may(node, 1), libc::EACCES)?;
        Ok(node.entries.get(name).copied())
    }

    pub(super) fn find(&self, cred: Cred<'_>, dir: u64, name: &[u8]) -> DiskResult<u64> {
        self.lookup(cred, dir, name)?.ok_or(Errno(libc::ENOENT))
    }

    /// Checks whether names may be added to or removed from a directory.
    fn may_change(&self, cred: Cred<'_>, dir: u64) -> DiskResult<()> {
        let node = self.dir(dir)?;
        err_if(node.links == 0, libc::ENOENT)?;
        err_if(self.options.read_only, libc::EROFS)?;
        err_if(!cred.may(node, 3), libc::EACCES)
    }

    fn may_remove(&self, cred: Cred<'_>, dir: u64, ino: u64) -> DiskResult<()> {
        self.may_change(cred, dir)?;
        let (dir, node) = (self.node(dir)?, self.node(ino)?);
        let sticky = dir.mode & libc::S_ISVTX != 0;
        err_if(sticky && !cred.owns(dir) && !cred.owns(node), libc::EPERM)
    }

    fn name(&mut self, dir: u64, name: &[u8], ino: Option<u64>, about: u64) {
        let name = name.into();
        self.change(dir, Edit::Name { name, ino, about });
        self.touch(dir, true);
    }

    pub(super) fn create(
        &mut self,
        who: &Identity,
        dir: u64,
        name: &[u8],
        mode: u32,
    ) -> DiskResult<u64> {
        let cred = self.cred(who);
        err_if(self.lookup(cred, dir, name)?.is_some(), libc::EEXIST)?;
        self.may_change(cred, dir)?;
        self.room(1)?;
        let now = self.now();
        let parent = self.node(dir)?;
        let (mut mode, mut gid) = (mode, cred.gid);
        if parent.mode & S_ISGID != 0 {
            gid = parent.gid;
            if mode & S_IFMT == S_IFDIR {
                mode |= S_ISGID;
            }
        }
        let ino = self.next_ino;
        self.next_ino += 1;
        let node = Arc::new(Inode::new(mode, cred.uid, gid, dir, now));
        if self.durable.tracks() {
            self.durable.image.inodes.insert(ino, Arc::clone(&node));
        }
        self.live.inodes.insert(ino, node);
        self.used += 1;
        self.step();
        self.name(dir, name, Some(ino), ino);
        if mode & S_IFMT == S_IFDIR {
            self.node_mut(dir)?.links += 1;
        }
        Ok(ino)
    }

    pub(super) fn open(
        &mut self,
        who: &Identity,
        dir: u64,
        name: &[u8],
        how: OpenHow,
    ) -> DiskResult<u64> {
        if let (Some(mode), false) = (how.create, how.path_only) {
            err_if(how.directory, libc::EINVAL)?;
            self.fault(SimOp::Change)?;
            return self.create(who, dir, name, libc::S_IFREG | (mode & 0o7777));
        }
        self.fault(SimOp::Look)?;
        let ino = self.find(self.cred(who), dir, name)?;
        err_if(self.node(ino)?.is_link(), libc::ELOOP)?;
        err_if(how.directory && !self.node(ino)?.is_dir(), libc::ENOTDIR)?;
        if !how.path_only {
            self.may_open(who, ino, how.io())?;
        }
        Ok(ino)
    }

    pub(super) fn may_open(&self, who: &Identity, ino: u64, io: IoAccess) -> DiskResult<()> {
        let (node, IoAccess { read, write }) = (self.node(ino)?, for_something(io));
        err_if(node.is_link(), libc::ELOOP)?;
        err_if(node.is_dir() && write, libc::EISDIR)?;
        let wanted = u32::from(read) * 4 + u32::from(write) * 2;
        err_if(!self.cred(who).may(node, wanted), libc::EACCES)?;
        err_if(write && self.options.read_only, libc::EROFS)?;
        err_if(!node.is_dir() && !node.is_file(), libc::ENXIO)
    }

    pub(super) fn unlink(
        &mut self,
        who: &Identity,
        dir: u64,
        name: &[u8],
        directory: bool,
    ) -> DiskResult<()> {
        self.fault(SimOp::Change)?;
        let cred = self.cred(who);
        let ino = self.find(cred, dir, name)?;
        self.may_remove(cred, dir, ino)?;
        let node = self.node(ino)?;
        match (directory, node.is_dir()) {
            (true, false) => return err(libc::ENOTDIR),
            (false, true) => return err(libc::EISDIR),
            (true, true) if !node.entries.is_empty() => return err(libc::ENOTEMPTY),
            _ => {}
        }
        self.step();
        self.name(dir, name, None, ino);
        self.drop_link(dir, ino)
    }

    /// Removes one name of the inode in `dir` from its link count.
    fn drop_link(&mut self, dir: u64, ino: u64) -> DiskResult<()> {
        let node = self.node_mut(ino)?;
        let directory = node.is_dir();
        node.links = match directory {
            true => 0,
            false => node.links.saturating_sub(1),
        };
        if directory {
            let parent = self.node_mut(dir)?;
            parent.links = parent.links.saturating_sub(1);
        }
        self.touch(ino, false);
        self.forget(ino);
        Ok(())
    }

    pub(super) fn link(
        &mut self,
        who: &Identity,
        ino: u64,
        dir: u64,
        name: &[u8],
    ) -> DiskResult<()> {
        self.fault(SimOp::Change)?;
        let cred = self.cred(who);
        err_if(self.lookup(cred, dir, name)?.is_some(), libc::EEXIST)?;
        self.may_change(cred, dir)?;
        let node = self.node(ino)?;
        err_if(node.is_dir(), libc::EPERM)?;
        if self.options.protected_hardlinks && !cred.owns(node) && !cred.may_pin(node) {
            return err(libc::EPERM);
        }
        err_if(node.links == 0, libc::ENOENT)?;
        err_if(node.links >= LINKS_MAX, libc::EMLINK)?;
        self.node_mut(ino)?.links += 1;
        self.step();
        self.name(dir, name, Some(ino), ino);
        self.touch(ino, false);
        Ok(())
    }

    pub(super) fn rename(
        &mut self,
        who: &Identity,
        (from, from_name): (u64, &[u8]),
        (to, to_name): (u64, &[u8]),
        replace: bool,
    ) -> DiskResult<()> {
        self.fault(SimOp::Change)?;
        let cred = self.cred(who);
        let ino = self.find(cred, from, from_name)?;
        let target = self.lookup(cred, to, to_name)?;
        err_if(target.is_some() && !replace, libc::EEXIST)?;
        err_if(self.is_above(ino, to), libc::EINVAL)?;
        let is_above = target.is_some_and(|target| self.is_above(target, from));
        err_if(is_above, libc::ENOTEMPTY)?;
        if target == Some(ino) {
            return Ok(()); // rename(2): two names of one inode, nothing is done.
        }
        self.may_remove(cred, from, ino)?;
        self.may_change(cred, to)?;
        self.may_replace(cred, from, (ino, target), to)?;
        self.step();
        self.name(to, to_name, Some(ino), ino);
        self.name(from, from_name, None, ino);
        self.move_opens(ino, (from, from_name), (to, to_name));
        if let Some(target) = target {
            self.drop_link(to, target)?;
        }
        if self.node(ino)?.is_dir() && from != to {
            self.node_mut(ino)?.parent = to;
            self.node_mut(from)?.links -= 1;
            self.node_mut(to)?.links += 1;
        }
        self.touch(ino, false);
        Ok(())
    }

    /// Descriptors follow the name by which they were opened.
    fn move_opens(&mut self, ino: u64, from: (u64, &[u8]), to: (u64, &[u8])) {
        if !self.durable.tracks() {
            return;
        }
        for open in self.opens.values_mut().filter(|open| open.ino == ino) {
            let name = open.name.as_ref();
            if name.is_some_and(|(dir, name)| (*dir, &**name) == from) {
                open.name = Some((to.0, to.1.into()));
            }
        }
    }

    /// Whether `ino` is `dir` or a directory above it.
    fn is_above(&self, ino: u64, mut dir: u64) -> bool {
        while dir != ino && dir != ROOT {
            match self.live.get(dir) {
                Some(node) => dir = node.parent,
                None => return false, // Removed, and so is what was above.
            }
        }
        dir == ino
    }

    /// The checks of a rename that depend on kinds.
    fn may_replace(
        &self,
        cred: Cred<'_>,
        from: u64,
        (ino, target): (u64, Option<u64>),
        to: u64,
    ) -> DiskResult<()> {
        let node = self.node(ino)?;
        if node.is_dir() && from != to && !cred.may(node, 2) {
            return err(libc::EACCES);
        }
        let Some(target) = target else {
            return Ok(());
        };
        self.may_remove(cred, to, target)?;
        let old = self.node(target)?;
        match (node.is_dir(), old.is_dir()) {
            (true, false) => err(libc::ENOTDIR),
            (false, true) => err(libc::EISDIR),
            (true, true) if !old.entries.is_empty() => err(libc::ENOTEMPTY),
            _ => Ok(()),
        }
    }

    pub(super) fn entries(&mut self, dir: u64, max: usize) -> DiskResult<Vec<RawEntry>> {
        self.fault(SimOp::Look)?;
        let node = self.dir(dir)?;
        // As getdents(2) answers for a directory that was removed.
        err_if(node.links == 0, libc::ENOENT)?;
        err_if(node.entries.len() > max, libc::EOVERFLOW)?;
        let kind = |ino: u64| match self.options.nfs {
            true => libc::DT_UNKNOWN,
            false => self.live.get(ino).map_or(0, Inode::dirent_kind),
        };
        Ok(node
            .entries
            .iter()
            .map(|(name, ino)| RawEntry {
                name: name.clone(),
                ino: *ino,
                kind: kind(*ino),
            })
            .collect())
    }
}
