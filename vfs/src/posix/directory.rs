//! Names of a directory: moving, linking, removing. `entries.rs` lists them.
//!
//! A name is looked up exactly first, and then as the one that folds alike. A name that is moved or removed must still
//! lead to the given node (or be the link that leads there). Between that check and the change another process on the
//! host could exchange the name; no call of Linux prevents that. This server's own calls on the same name exclude each
//! other.

use super::{
    PosixNode, PosixVfs, attributes::Named, errno::unless, leftovers::LeftoverKind, lookup::Child,
    name, name_cache::Change, roots,
};
use crate::{
    Attr, DirName, Directories, FileKey, Identity, Kind, Listed, Node, RemovedName, Seen,
    Timestamp, VfsError, VfsResult,
    disk::{Disk, Stat},
};

/// The server's own names that a listing may hold besides `max` names of clients.
const RESERVED_ALLOWANCE: usize = 64;
/// Up to this many entries are queried one by one, because entries in memory need no other thread.
const INLINE_ENTRIES_MAX: usize = 4;

/// A name that was found, as on disk, and the inode it leads to.
struct FoundEntry<F> {
    on_disk: Box<[u8]>,
    /// The name is a symbolic link, so the inode is the one that the link leads to, not the link's own.
    link: bool,
    target: Option<(F, Stat)>,
}

impl<F> FoundEntry<F> {
    /// Checks that it is the inode that may be replaced.
    ///
    /// # Errors
    /// `Exists` if it is another inode. `SymbolicLink` if it leads nowhere, so that another lookup would not find more.
    fn check_replaced(&self, replaced: Option<FileKey>) -> VfsResult<()> {
        match (&self.target, replaced) {
            (Some((_, stat)), Some(key)) if stat.key == key => Ok(()),
            (None, None) => Err(VfsError::SymbolicLink),
            _ => Err(VfsError::Exists),
        }
    }
}

/// A name that leads to a node.
struct OwnName {
    on_disk: Box<[u8]>,
    link: bool,
    /// The node's inode as it was just seen.
    stat: Stat,
}

impl<D: Disk> Directories for PosixVfs<D> {
    async fn list(
        &self,
        who: &Identity,
        dir: &PosixNode<D>,
        max: usize,
    ) -> VfsResult<Vec<DirName>> {
        let fd = self.listing(who, dir).await?;
        let limit = max.saturating_add(RESERVED_ALLOWANCE);
        let entries = self.disk.entries(&fd, limit).await;
        let found = entries.map(|entries| (entries, Vec::new()));
        Ok(self.listed(dir, max, found, Timestamp::default()).await?.0)
    }

    async fn is_empty(&self, who: &Identity, dir: &PosixNode<D>) -> VfsResult<bool> {
        let Some(entries) = self.few_entries(who, dir).await? else {
            return Ok(false);
        };
        for entry in entries {
            if let LeftoverKind::Seen = self.entry_kind(who, dir, &entry).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Lists a directory, with attributes of the first names. It is a separate function so that the future of a plain
    /// listing has no room for them.
    async fn list_looked(
        &self,
        who: &Identity,
        dir: &PosixNode<D>,
        max: usize,
        looked: usize,
    ) -> VfsResult<Listed> {
        let fd = self.listing(who, dir).await?;
        let limit = max.saturating_add(RESERVED_ALLOWANCE);
        let now = self.options.clock.now();
        let wanted = self.wanted(now);
        let found = self.disk.entries_looked(&fd, limit, looked, wanted);
        let (names, looked) = self.listed(dir, max, found.await, now).await?;
        let attrs = self.look_again(who, dir, &names, looked).await;
        Ok((names, attrs))
    }

    async fn attrs_at(
        &self,
        who: &Identity,
        dir: &PosixNode<D>,
        entries: &[DirName],
    ) -> Vec<VfsResult<Attr>> {
        let batch = entries.len() > INLINE_ENTRIES_MAX;
        let Some(fd) = dir.directory().ok().filter(|_| batch) else {
            let mut found = Vec::with_capacity(entries.len());
            for entry in entries {
                found.push(self.attr_at(who, dir, entry).await);
            }
            return found;
        };
        let names: Vec<_> = entries.iter().map(|entry| entry.on_disk().into()).collect();
        let now = self.options.clock.now();
        let looked = self.disk.entries_attrs(fd, names, self.wanted(now)).await;
        let looked = entries.iter().zip(looked);
        let looked = looked.map(|(entry, looked)| self.attr_looked(dir, entry, looked, now));
        self.look_again(who, dir, entries, looked.collect()).await
    }

    #[allow(clippy::too_many_arguments)] // As in the contract.
    async fn rename(
        &self,
        who: &Identity,
        node: &PosixNode<D>,
        parent: &PosixNode<D>,
        shown: &str,
        to_parent: &PosixNode<D>,
        to_name: &str,
        replaced: Option<FileKey>,
    ) -> VfsResult<()> {
        self.writable()?;
        let (at, to) = ((parent.0.key, shown), (to_parent.0.key, to_name));
        let turn = self.locks.names(at, to).await;
        let from = self.entry_of(who, node, parent, shown).await?.on_disk;
        let wanted = name::to_disk(to_name)?;
        let same_directory = parent.0.key == to_parent.0.key;
        let seen = match replaced {
            None => self.seen_without(to_parent, to_name, None).await?,
            Some(_) => None,
        };
        let existing = match seen {
            None => self.entry(who, to_parent, to_name).await?,
            Some(_) => None,
        };
        let existing = match existing {
            None if replaced.is_some() => return Err(VfsError::Exists),
            Some(existing) if !same_directory || existing.on_disk != from => existing,
            Some(_) if from == wanted => return Ok(()),
            // The name is free, or differs from the old one in case only, so no other file is replaced.
            _ => {
                return self
                    .move_name(who, parent, &from, to_parent, (&wanted, seen), false)
                    .await;
            }
        };
        existing.check_replaced(replaced)?;
        let replaced = Self::loses(&existing);
        if let Some((replaced, stat)) = &replaced {
            match (node.is_directory(), replaced.is_directory()) {
                (true, false) => return Err(VfsError::NotADirectory),
                (false, true) => return Err(VfsError::IsADirectory),
                _ => {}
            }
            if stat.key == node.0.key {
                let to = (to_parent, &*existing.on_disk, &*wanted);
                return self.join_names(who, (parent, &from), to, stat).await;
            }
        }
        let at = &existing.on_disk;
        self.move_name(who, parent, &from, to_parent, (at, None), true)
            .await?;
        self.fix_case(who, to_parent, at, &wanted).await;
        // As in `remove`.
        drop(turn);
        if let Some((replaced, stat)) = replaced {
            self.depot_forget(&replaced, stat).await;
        }
        Ok(())
    }

    async fn link(
        &self,
        who: &Identity,
        node: &PosixNode<D>,
        to_parent: &PosixNode<D>,
        to_name: &str,
        replaced: Option<FileKey>,
    ) -> VfsResult<()> {
        self.writable()?;
        VfsError::IsADirectory.when(node.0.stream.is_some() || node.0.kind == Kind::Directory)?;
        let turn = self.locks.name(to_parent.0.key, to_name).await;
        let wanted = name::to_disk(to_name)?;
        let dir = to_parent.directory()?;
        let Some(existing) = self.entry(who, to_parent, to_name).await? else {
            VfsError::Exists.when(replaced.is_some())?;
            let link = self.disk.link(who, node.fd(), dir, &wanted);
            return Ok(self
                .changing(to_parent, &[Change::Add(&wanted)], link)
                .await?);
        };
        existing.check_replaced(replaced)?;
        let replaced = Self::loses(&existing);
        if let Some((replaced, stat)) = &replaced {
            if stat.key == node.0.key {
                if existing.on_disk == wanted {
                    return Ok(());
                }
                // Old and new name differ in case only, and nothing else changes.
                let at = &existing.on_disk;
                return self
                    .move_name(who, to_parent, at, to_parent, (&wanted, None), false)
                    .await;
            }
            VfsError::IsADirectory.when(replaced.is_directory())?;
        }
        let temporary = self.temporary.name();
        let link = self.disk.link(who, node.fd(), dir, &temporary);
        self.changing(to_parent, &[Change::Add(&temporary)], link)
            .await?;
        let at = &existing.on_disk;
        let rename = self.disk.rename(who, (dir, &temporary), (dir, at), true);
        let changes = [Change::Remove(&temporary), Change::Add(at)];
        let renamed = self.changing(to_parent, &changes, rename).await;
        // Another program may have made `at` a name of this inode meanwhile. Then rename(2) has succeeded and done
        // nothing.
        let unlink = self.disk.unlink(who, dir, &temporary, false);
        let gone = self
            .changing(to_parent, &[Change::Remove(&temporary)], unlink)
            .await;
        if let Err(left) = unless(gone, &[libc::ENOENT]) {
            tracing::debug!(%left, "a temporary link stays");
        }
        renamed?;
        self.fix_case(who, to_parent, at, &wanted).await;
        // As in `remove`.
        drop(turn);
        if let Some((replaced, stat)) = replaced {
            self.depot_forget(&replaced, stat).await;
        }
        Ok(())
    }

    async fn remove(
        &self,
        who: &Identity,
        node: &PosixNode<D>,
        parent: &PosixNode<D>,
        shown: &str,
    ) -> VfsResult<RemovedName> {
        self.writable()?;
        VfsError::InvalidArgument.when(node.0.stream.is_some())?;
        let turn = self.locks.name(parent.0.key, shown).await;
        let OwnName {
            on_disk,
            link,
            stat: before,
        } = self.entry_of(who, node, parent, shown).await?;
        // unlinkat treats a link to a directory as a file.
        let directory = !link && before.mode & libc::S_IFMT == libc::S_IFDIR;
        let changes = [Change::Remove(&on_disk)];
        let unlink = || self.disk.unlink(who, parent.fd(), &on_disk, directory);
        match self.changing(parent, &changes, unlink()).await {
            Ok(()) => {}
            Err(errno) if directory && errno.is(&[libc::ENOTEMPTY, libc::EEXIST]) => {
                VfsError::NotEmpty.when(!self.clear_leftovers(who, node).await?)?;
                self.changing(parent, &changes, unlink()).await?;
            }
            Err(errno) => return Err(errno.into()),
        }
        if link {
            return Ok(RemovedName::SymbolicLink);
        }
        // It syncs the file system. An inode without names gets no other, so nobody has to wait for that.
        drop(turn);
        self.depot_forget(node, &before).await;
        Ok(RemovedName::Own)
    }
}

impl<D: Disk> PosixVfs<D> {
    /// Finds a name; `None` if there is none.
    async fn entry(
        &self,
        who: &Identity,
        dir: &PosixNode<D>,
        shown: &str,
    ) -> VfsResult<Option<FoundEntry<D::Fd>>> {
        let fd = dir.directory()?;
        let Some((on_disk, child)) = self.child(who, fd, dir.0.key, shown).await? else {
            return Ok(None);
        };
        let link = matches!(child, Child::Link);
        let target = match child {
            Child::Inode(fd, stat) => Some((fd, stat)),
            Child::Link => {
                let step = self.follow_in(who, dir, &on_disk).await?;
                step.map(|step| (step.fd, step.stat))
            }
        };
        Ok(Some(FoundEntry {
            on_disk,
            link,
            target,
        }))
    }

    /// The inode that loses a name, and its state; `None` if the name is a link.
    fn loses(entry: &FoundEntry<D::Fd>) -> Option<(PosixNode<D>, &Stat)> {
        let (fd, stat) = entry.target.as_ref().filter(|_| !entry.link)?;
        let node = PosixNode::path_only(fd.clone(), stat, Named::default(), None);
        Some((node, stat))
    }

    /// The error for a name that cannot be created: a dangling link, which lookups do not find, may have it.
    pub(super) async fn why_taken(
        &self,
        who: &Identity,
        dir: &PosixNode<D>,
        shown: &str,
    ) -> VfsError {
        match self.entry(who, dir, shown).await {
            Ok(Some(entry)) if entry.target.is_none() => VfsError::SymbolicLink,
            _ => VfsError::Exists,
        }
    }

    /// Finds a name that must lead to `node`.
    async fn entry_of(
        &self,
        who: &Identity,
        node: &PosixNode<D>,
        dir: &PosixNode<D>,
        shown: &str,
    ) -> VfsResult<OwnName> {
        if let Some(own) = self.exact_entry_of(node, dir, shown).await? {
            return Ok(own);
        }
        let entry = self.entry(who, dir, shown).await?;
        let FoundEntry {
            on_disk,
            link,
            target,
        } = entry.ok_or(VfsError::NotFound)?;
        let (fd, stat) = target.ok_or(VfsError::NotFound)?;
        VfsError::NotFound.when(stat.key != node.0.key)?;
        self.disk.close_beside(fd, node.fd());
        Ok(OwnName {
            on_disk,
            link,
            stat,
        })
    }

    /// The name as it was requested, if it belongs to the node. The service looks it up: a user who may not search
    /// the directory is refused the operation on the name.
    async fn exact_entry_of(
        &self,
        node: &PosixNode<D>,
        dir: &PosixNode<D>,
        shown: &str,
    ) -> VfsResult<Option<OwnName>> {
        let fd = dir.directory()?;
        VfsError::InvalidName.when(roots::reserves(dir.0.key, shown))?;
        let on_disk = name::to_disk(shown)?;
        if !self.disk.is_local(fd) {
            return Ok(None);
        }
        // All other entries are looked up as the user.
        let stat = self.disk.stat_at(fd, &on_disk).await.ok();
        let own = stat.filter(|stat| stat.key == node.0.key);
        Ok(own.map(|stat| OwnName {
            on_disk,
            link: false,
            stat,
        }))
    }

    /// After a replacement under the old name: changes the name to the requested case. A failure here only concerns
    /// the case.
    pub(super) async fn fix_case(
        &self,
        who: &Identity,
        dir: &PosixNode<D>,
        is: &[u8],
        wanted: &[u8],
    ) {
        if is != wanted {
            let changes = [Change::Remove(is), Change::Add(wanted)];
            let rename = self.rename_to_free(who, (dir.fd(), is), (dir.fd(), wanted));
            if let Err(errno) = self.changing(dir, &changes, rename).await {
                tracing::debug!(errno = errno.0, "a replaced name keeps its case");
            }
        }
    }

    pub(super) async fn move_name(
        &self,
        who: &Identity,
        parent: &PosixNode<D>,
        from: &[u8],
        to_parent: &PosixNode<D>,
        (at, seen): (&[u8], Option<Seen>),
        replace: bool,
    ) -> VfsResult<()> {
        let target = to_parent.directory()?;
        let folds_alike = || {
            let [from, at] = [from, at].map(|name| crate::fold(&name::to_client(name)));
            parent.0.key == to_parent.0.key && from == at
        };
        let rename = async {
            let (source, disk) = (parent.fd(), &self.disk);
            if replace {
                return disk.rename(who, (source, from), (target, at), true).await;
            }
            match self.rename_to_free(who, (source, from), (target, at)).await {
                // A disk that ignores case finds the name itself under its new case, and may keep the old one. It may
                // lack RENAME_NOREPLACE, too.
                Err(errno) if errno.is(&[libc::EEXIST, libc::EINVAL]) && folds_alike() => {
                    let own = disk.stat_at(source, from).await;
                    match (own, disk.stat_at(target, at).await) {
                        (Ok(own), Ok(found)) if own.key == found.key => {
                            disk.rename(who, (source, from), (target, at), true).await
                        }
                        _ => Err(errno),
                    }
                }
                other => other,
            }
        };
        if parent.0.key == to_parent.0.key {
            let changes = [Change::Remove(from), Change::Add(at)];
            let moved = self.changing_seen(parent, seen, &changes, rename).await;
            return Ok(moved?);
        }
        self.begin_seen(to_parent, seen).await;
        let moved = self.changing(parent, &[Change::Remove(from)], rename).await;
        let added = [Change::Add(at)];
        self.end(to_parent, if moved.is_ok() { &added } else { &[] })
            .await;
        Ok(moved?)
    }
}
