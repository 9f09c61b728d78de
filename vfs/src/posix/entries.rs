//! The entries of a directory as clients see them: which names a listing shows, and the attributes of these.

use std::sync::Arc;

use super::{
    PosixNode, PosixVfs, SERVICE, SymlinkPolicy,
    attributes::Named,
    errno::{REFUSED, unless},
    lookup::Child,
    name,
    node::kind_of,
    roots,
    samba_xattr::DOS_ATTRIB,
};
use crate::{
    Attr, DirName, FileKey, Identity, IoAccess, Kind, Timestamp, VfsError, VfsResult,
    disk::{Disk, DiskResult, EntriesLooked, EntryAttrs, RawEntry, Stat, Wanted},
};

/// Names that are processed before other tasks have their turn.
const PORTION: usize = 1024;
/// Room for `.` and `..`, which the caller puts before a listing.
const DOTS: usize = 2;

fn named<D: Disk>(dir: &PosixNode<D>, entry: &DirName) -> Named {
    Named {
        dot: entry.name.starts_with('.'),
        via: dir.0.named.via,
    }
}

/// Attributes of names, in their order; none for those that must be queried one by one.
pub(super) type Looked = Vec<Option<VfsResult<Attr>>>;

impl<D: Disk> PosixVfs<D> {
    /// The directory, open for being listed.
    pub(super) async fn listing(&self, who: &Identity, dir: &PosixNode<D>) -> VfsResult<D::Fd> {
        let fd = dir.directory()?;
        match dir.0.io.read {
            true => Ok(fd.clone()),
            false => Ok(self.disk.reopen(who, fd, IoAccess::READ).await?),
        }
    }

    /// The entries of a directory, at most `max`, as the service lists them.
    pub(super) async fn entries_in(&self, dir: &D::Fd, max: usize) -> DiskResult<Vec<RawEntry>> {
        let listing = self.disk.reopen(&SERVICE, dir, IoAccess::READ).await?;
        self.disk.entries(&listing, max).await
    }

    /// The names that clients see, and the attributes of the first ones as far as a query after `now` gave them.
    pub(super) async fn listed(
        &self,
        dir: &PosixNode<D>,
        max: usize,
        found: DiskResult<EntriesLooked>,
        now: Timestamp,
    ) -> VfsResult<(Vec<DirName>, Looked)> {
        let (entries, found) = match found {
            Err(errno) if self.is_removed(dir.0.key, errno).await => {
                return Err(VfsError::NotFound);
            }
            found => found?,
        };
        let in_root = roots::is_served(dir.0.key);
        let hide = self.options.symlinks == SymlinkPolicy::Hide;
        let mut names = Vec::with_capacity(entries.len() + DOTS);
        let mut looked = Looked::with_capacity(found.len());
        let mut found = found.into_iter();
        for (at, entry) in entries.into_iter().enumerate() {
            self.pause_at(at).await;
            let found = found.next();
            if hide && self.is_link(dir, &entry, &found).await.unwrap_or_default() {
                continue;
            }
            let ino = entry.ino;
            let name = name::listed(entry.name);
            if name::is_reserved(in_root, &name.name) || self.is_hidden(dir, ino, &found) {
                continue;
            }
            if let Some(found) = found {
                looked.push(self.attr_looked(dir, &name, found, now));
            }
            names.push(name);
        }
        VfsError::TooLarge.when(names.len() > max)?;
        Ok((names, looked))
    }

    /// Whether an entry is a link. Where the listing does not say, and no query of it has (`found`), the disk is asked.
    pub(super) async fn is_link(
        &self,
        dir: &PosixNode<D>,
        entry: &RawEntry,
        found: &Option<DiskResult<EntryAttrs>>,
    ) -> VfsResult<bool> {
        let is_link = |stat: &Stat| kind_of(stat.mode) == Kind::SymbolicLink;
        Ok(match (entry.kind, found) {
            (libc::DT_UNKNOWN, Some(Ok((stat, _)))) => is_link(stat),
            (libc::DT_UNKNOWN, _) => {
                let stat = Box::pin(self.disk.stat_at(dir.fd(), &entry.name)).await;
                unless(stat, &[libc::ENOENT])?.is_some_and(|stat| is_link(&stat))
            }
            (kind, _) => kind == libc::DT_LNK,
        })
    }

    /// Whether an entry is hidden from clients, as far as a listing shows: a file system mounted on it has another
    /// inode, which only a query finds.
    pub(super) fn is_hidden(
        &self,
        dir: &PosixNode<D>,
        ino: u64,
        found: &Option<DiskResult<EntryAttrs>>,
    ) -> bool {
        if self.options.hidden.is_empty() {
            return false;
        }
        let key = match found {
            Some(Ok((stat, _))) => stat.key,
            _ => FileKey { ino, ..dir.0.key },
        };
        self.hides(key)
    }

    /// Lets other tasks have their turn after each portion of a directory's names.
    pub(super) async fn pause_at(&self, name: usize) {
        if name % PORTION == PORTION - 1 {
            self.options.pause.pause().await;
        }
    }

    /// The queries for names: the stored attribute of those whose attribute is not known.
    pub(super) fn wanted(&self, now: Timestamp) -> Wanted {
        let attribs = Arc::clone(&self.attribs);
        Wanted {
            attribute: DOS_ATTRIB,
            known: Arc::new(move |stat| attribs.find(stat.key, stat.changed, now).dos.is_some()),
        }
    }

    /// The attributes of a name that was queried after `now`; none for a link, for a file system that is not known yet,
    /// where the service may not search the directory, or if the cached attribute was dropped meanwhile.
    pub(super) fn attr_looked(
        &self,
        dir: &PosixNode<D>,
        entry: &DirName,
        looked: DiskResult<EntryAttrs>,
        now: Timestamp,
    ) -> Option<VfsResult<Attr>> {
        match looked {
            Ok((stat, _)) if kind_of(stat.mode) == Kind::SymbolicLink => None,
            Ok((stat, _)) if self.hides(stat.key) => Some(Err(VfsError::NotFound)),
            Ok((stat, _)) if !self.file_ids.knows(stat.key.fs) => None,
            Ok((stat, Some(blob))) => Some(self.attr_from(&stat, blob, named(dir, entry), now)),
            Ok((stat, None)) => {
                let stored = self.attribs.find(stat.key, stat.changed, now).dos?;
                Some(Ok(self.merge(&stat, stored, named(dir, entry))))
            }
            Err(errno) if errno.is(&REFUSED) => None,
            Err(errno) => Some(Err(errno.into())),
        }
    }

    /// Queries the attributes that the first query did not give.
    pub(super) async fn look_again(
        &self,
        who: &Identity,
        dir: &PosixNode<D>,
        entries: &[DirName],
        mut looked: Looked,
    ) -> Vec<VfsResult<Attr>> {
        for (entry, attr) in entries.iter().zip(&mut looked) {
            if attr.is_none() {
                *attr = Some(self.attr_at(who, dir, entry).await);
            }
        }
        let looked = looked.into_iter();
        looked
            .map(|attr| attr.unwrap_or(Err(VfsError::NotFound)))
            .collect()
    }

    /// A user who may list a directory may see its entries' attributes, but not the target of a link.
    pub(super) async fn attr_at(
        &self,
        who: &Identity,
        dir: &PosixNode<D>,
        entry: &DirName,
    ) -> VfsResult<Attr> {
        let fd = dir.directory()?;
        let mut named = named(dir, entry);
        let (fd, stat) = match self.service_child_or(who, fd, entry.on_disk()).await? {
            None => return Err(VfsError::NotFound),
            Some(Child::Inode(fd, stat)) => (fd, stat),
            Some(Child::Link) => {
                let step = self.follow_in(who, dir, entry.on_disk()).await?;
                let step = step.ok_or(VfsError::NotFound)?;
                named.via = step.via;
                (step.fd, step.stat)
            }
        };
        self.attr_with(&fd, &stat, named).await
    }
}
