//! Attributes of simulated inodes: state, permissions, times, extended attributes, space.

use super::{
    effects::{Edit, Profile},
    faults::SimOp,
    image::{BLOCK, Inode},
    state::{Cred, State, err, err_if},
};
use crate::{
    FileKey, Identity, Timestamp,
    disk::{BTRFS, DiskResult, Errno, NFS, NOW, Stat, StatFs, XattrSet},
};

/// Longest value and list of extended attributes (`XATTR_SIZE_MAX`, `XATTR_LIST_MAX`).
const XATTR_SIZE_MAX: usize = 65_536;
/// Longest name of an extended attribute.
const XATTR_NAME_MAX: usize = 255;
/// The attribute that makes a program privileged besides its mode (capabilities(7)).
const FILE_CAPABILITIES: &str = "security.capability";
/// The space that ext4 needs for one entry besides name and value.
const XATTR_ENTRY: usize = 16;
/// Most directories above an inode in a reported path.
const PATH_DEPTH_MAX: usize = 256;
/// The `f_type` of the simulated disk ("HFSM").
const SIM_MAGIC: u64 = 0x4846_534D;

impl State {
    pub(super) fn stat(&self, ino: u64) -> DiskResult<Stat> {
        let node = self.node(ino)?;
        Ok(Stat {
            key: FileKey {
                fs: self.options.fs,
                ino,
                generation: 0,
            },
            mode: node.mode,
            links: node.links,
            uid: node.uid,
            gid: node.gid,
            size: match () {
                () if node.is_dir() => BLOCK,
                () if node.is_link() => node.target.len() as u64,
                () => node.size,
            },
            blocks: node.blocks.len() as u64 * (BLOCK / 512),
            accessed: node.accessed,
            written: node.written,
            changed: node.changed,
            born: Some(node.born),
            fixed: false,
            automounts: false,
        })
    }

    /// The path of a descriptor from the directory `root`, by the name that it was opened by and no other one of the
    /// inode. A disk that loses nothing does not search for it.
    pub(super) fn path(&self, serial: u64, root: u64) -> Option<Vec<u8>> {
        let open = self.opens.get(&serial)?;
        let (mut at, mut names) = (open.ino, Vec::new());
        if let Some((dir, name)) = open.name.as_ref().filter(|_| at != root) {
            if self.live.get(*dir)?.entries.get(name) != Some(&at) {
                return None;
            }
            names.push(&**name);
            at = *dir;
        }
        while at != root {
            if !self.durable.tracks() || names.len() >= PATH_DEPTH_MAX {
                return None;
            }
            let inodes = self.live.inodes.iter();
            let (dir, name) = inodes
                .flat_map(|(dir, node)| node.entries.iter().map(move |entry| (dir, entry)))
                .find_map(|(dir, (name, to))| (*to == at).then_some((*dir, name)))?;
            names.push(&**name);
            at = dir;
        }
        names.reverse();
        Some(names.join(&b'/'))
    }

    pub(super) fn access(&self, who: &Identity, ino: u64, mode: u32) -> DiskResult<()> {
        let node = self.node(ino)?;
        err_if(mode & 2 != 0 && self.options.read_only, libc::EROFS)?;
        err_if(!self.cred(who).may(node, mode & 7), libc::EACCES)
    }

    /// Checks whether `who` may change an inode's attributes.
    fn may_alter(&mut self, who: &Identity, ino: u64) -> DiskResult<()> {
        self.fault(SimOp::Change)?;
        err_if(self.options.read_only, libc::EROFS)?;
        let cred = self.cred(who);
        err_if(!cred.owns(self.node(ino)?), libc::EPERM)
    }

    pub(super) fn set_mode(&mut self, who: &Identity, ino: u64, mode: u32) -> DiskResult<()> {
        self.may_alter(who, ino)?;
        let (cred, node) = (self.cred(who), self.node(ino)?);
        let mut bits = mode & 0o7777;
        // This applies to root too, which has no CAP_FSETID here.
        if !cred.in_group(node.gid) {
            bits &= !libc::S_ISGID;
        }
        let mode = (node.mode & libc::S_IFMT) | bits;
        self.step();
        self.change(ino, Edit::Mode(mode));
        self.touch(ino, false);
        Ok(())
    }

    pub(super) fn set_owner(
        &mut self,
        who: &Identity,
        ino: u64,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> DiskResult<()> {
        self.may_alter(who, ino)?;
        let (cred, node) = (self.cred(who), self.node(ino)?);
        let foreign = uid.is_some_and(|u| u != node.uid)
            || gid.is_some_and(|g| g != node.gid && !cred.in_group(g));
        err_if(cred.uid != 0 && foreign, libc::EPERM)?;
        let (uid, gid) = (uid.unwrap_or(node.uid), gid.unwrap_or(node.gid));
        let mode = without_set_ids(cred, node);
        self.step();
        self.change(ino, Edit::Owner { uid, gid });
        self.drop_to(ino, mode)?;
        self.touch(ino, false);
        Ok(())
    }

    /// Called when contents change: removes the bits and capabilities that make the file a privileged program, in the
    /// same step. Data are written as the service, which has no CAP_FSETID.
    pub(super) fn drop_privileges(&mut self, ino: u64) -> DiskResult<()> {
        let mode = without_set_ids(self.cred(&Identity::Service), self.node(ino)?);
        self.drop_to(ino, mode)
    }

    /// `mode` is what remains of an inode's mode; file capabilities never remain.
    fn drop_to(&mut self, ino: u64, mode: u32) -> DiskResult<()> {
        let node = self.node(ino)?;
        let capable = !node.is_dir() && node.xattrs.contains_key(FILE_CAPABILITIES);
        if mode != node.mode {
            self.change(ino, Edit::Mode(mode));
        }
        if capable {
            self.change_xattr(ino, FILE_CAPABILITIES, None);
        }
        Ok(())
    }

    pub(super) fn set_times(
        &mut self,
        who: &Identity,
        ino: u64,
        accessed: Option<Timestamp>,
        written: Option<Timestamp>,
    ) -> DiskResult<()> {
        self.may_alter(who, ino)?;
        let written = match written {
            Some(NOW) => Some(self.now()),
            other => other,
        };
        let mut times = [accessed, written].into_iter().flatten();
        err_if(times.any(|t| t.nanos >= 1_000_000_000), libc::EINVAL)?;
        if accessed.is_some() || written.is_some() {
            self.step();
            self.change(ino, Edit::Times { accessed, written });
            self.touch(ino, false);
        }
        Ok(())
    }

    pub(super) fn get_xattr(&mut self, ino: u64, name: &str) -> DiskResult<Vec<u8>> {
        self.fault(SimOp::Look)?;
        let node = self.node(ino)?;
        // xattr(7): as reading the file. The service reads all attributes.
        let may = !name.starts_with("user.") || self.cred(&Identity::Service).may(node, 4);
        err_if(!may, libc::EACCES)?;
        let value = node.xattrs.get(name);
        Ok(value.ok_or(Errno(libc::ENODATA))?.to_vec())
    }

    fn change_xattr(&mut self, ino: u64, name: &str, value: Option<&[u8]>) {
        let (name, value) = (name.into(), value.map(Into::into));
        self.change(ino, Edit::Xattr { name, value });
    }

    fn may_set_xattr(&mut self, who: &Identity, ino: u64, name: &str) -> DiskResult<()> {
        self.fault(SimOp::Change)?;
        err_if(self.options.read_only, libc::EROFS)?;
        err_if(name.is_empty() || name.len() > XATTR_NAME_MAX, libc::ERANGE)?;
        let (cred, node) = (self.cred(who), self.node(ino)?);
        let (space, rest) = name.split_once('.').unwrap_or(("", ""));
        err_if(rest.is_empty(), libc::EOPNOTSUPP)?;
        let allowed = match space {
            "user" if !node.is_file() && !node.is_dir() => return err(libc::EPERM),
            "user" => return err_if(!cred.may(node, 2), libc::EACCES),
            "system" => cred.owns(node),
            "security" | "trusted" => cred.uid == 0,
            _ => return err(libc::EOPNOTSUPP),
        };
        err_if(!allowed, libc::EPERM)
    }

    pub(super) fn set_xattr(
        &mut self,
        who: &Identity,
        ino: u64,
        name: &str,
        value: &[u8],
        how: XattrSet,
    ) -> DiskResult<()> {
        self.may_set_xattr(who, ino, name)?;
        err_if(value.len() > XATTR_SIZE_MAX, libc::E2BIG)?;
        let node = self.node(ino)?;
        match (how, node.xattrs.contains_key(name)) {
            (XattrSet::Create, true) => return err(libc::EEXIST),
            (XattrSet::Replace, false) => return err(libc::ENODATA),
            _ => {}
        }
        let space = xattr_space(node, name) + XATTR_ENTRY + name.len() + value.len();
        err_if(space > self.options.xattr_space, libc::ENOSPC)?;
        self.step();
        self.change_xattr(ino, name, Some(value));
        self.touch(ino, false);
        Ok(())
    }

    pub(super) fn remove_xattr(&mut self, who: &Identity, ino: u64, name: &str) -> DiskResult<()> {
        self.may_set_xattr(who, ino, name)?;
        err_if(!self.node(ino)?.xattrs.contains_key(name), libc::ENODATA)?;
        self.step();
        self.change_xattr(ino, name, None);
        self.touch(ino, false);
        Ok(())
    }

    pub(super) fn list_xattr(&mut self, ino: u64) -> DiskResult<Vec<String>> {
        self.fault(SimOp::Look)?;
        let names = self.node(ino)?.xattrs.keys();
        let length: usize = names.clone().map(|name| name.len() + 1).sum();
        err_if(length > 1 << 16, libc::E2BIG)?;
        Ok(names.map(|name| name.to_string()).collect())
    }

    pub(super) fn stat_fs(&self) -> StatFs {
        let free = self.options.capacity_blocks.saturating_sub(self.used);
        StatFs {
            block: BLOCK,
            blocks: self.options.capacity_blocks,
            free,
            available: free,
            id: self.options.fs,
            read_only: self.options.read_only,
            kind: match self.options.profile {
                _ if self.options.nfs => NFS,
                Profile::LogTree => BTRFS,
                _ => SIM_MAGIC,
            },
            clones: self.options.clones,
        }
    }
}

/// The mode of an inode that `cred` changes (Linux: `setattr_should_drop_suidgid`): a file loses its
/// set-user-ID bit, and its set-group-ID bit if its group may execute it or is not one of theirs.
fn without_set_ids(cred: Cred<'_>, node: &Inode) -> u32 {
    if !node.is_file() {
        return node.mode;
    }
    let runs_as_group = node.mode & libc::S_IXGRP != 0 || !cred.in_group(node.gid);
    let group = if runs_as_group { libc::S_ISGID } else { 0 };
    node.mode & !(libc::S_ISUID | group)
}

/// Bytes that the attributes other than `but` take.
fn xattr_space(node: &Inode, but: &str) -> usize {
    node.xattrs
        .iter()
        .filter(|(name, _)| &***name != but)
        .map(|(name, value)| XATTR_ENTRY + name.len() + value.len())
        .sum()
}
