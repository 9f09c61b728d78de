//! Entries of a directory that no client sees: symbolic links that lead nowhere or may not be followed, and temporary
//! names that a dead server left.
//!
//! A directory that holds nothing else is empty for clients, so it can be removed, and they go with it. They are
//! removed as the user, since they may be somebody's files; the targets of links are not touched.

use super::{
    PosixNode, PosixVfs, SERVICE, SymlinkPolicy, attributes::STICKY, errno::unless, name, roots,
};
use crate::{
    Attributes, Identity, VfsError, VfsResult,
    disk::{Disk, RawEntry},
};

/// The most entries of a directory that are looked at; one with more counts as not empty.
const LEFTOVERS_MAX: usize = 1024;

/// The kind of an entry, as clients see it.
pub(super) enum LeftoverKind {
    Seen,
    /// A link that no client sees.
    Link,
    /// A temporary name of a server that is dead.
    Temporary,
    /// A name that the server uses for itself and that must stay.
    Reserved,
}

impl<D: Disk> PosixVfs<D> {
    /// Removes the leftovers in a directory. Returns whether nothing else is in it.
    pub(super) async fn clear_leftovers(
        &self,
        who: &Identity,
        dir: &PosixNode<D>,
    ) -> VfsResult<bool> {
        let Some(entries) = self.few_entries(&SERVICE, dir).await? else {
            return Ok(false);
        };
        let (above, uid) = (self.disk.stat(dir.fd()).await?, self.uid(who));
        let sticky = above.mode & STICKY != 0 && ![0, above.uid].contains(&uid);
        for entry in &entries {
            match self.entry_kind(who, dir, entry).await? {
                LeftoverKind::Link | LeftoverKind::Temporary => {}
                LeftoverKind::Seen | LeftoverKind::Reserved => return Ok(false),
            }
            if sticky
                && let Ok(own) = self.disk.stat_at(dir.fd(), &entry.name).await
                && own.uid != uid
            {
                // It stays, and the directory with it: then the others must stay, too.
                return Err(VfsError::AccessDenied);
            }
        }
        for RawEntry { name, .. } in entries {
            let mut gone = self.disk.unlink(who, dir.fd(), &name, false).await;
            if gone.is_err_and(|errno| errno.is(&[libc::EISDIR, libc::EPERM])) {
                gone = self.disk.unlink(who, dir.fd(), &name, true).await;
            }
            gone?;
        }
        Ok(true)
    }

    /// All entries, or `None` if there are too many.
    pub(super) async fn few_entries(
        &self,
        who: &Identity,
        dir: &PosixNode<D>,
    ) -> VfsResult<Option<Vec<RawEntry>>> {
        let listing = self.listing(who, dir).await?;
        let entries = self.disk.entries(&listing, LEFTOVERS_MAX).await;
        unless(entries, &[libc::EOVERFLOW])
    }

    pub(super) async fn entry_kind(
        &self,
        who: &Identity,
        dir: &PosixNode<D>,
        entry: &RawEntry,
    ) -> VfsResult<LeftoverKind> {
        let listed = name::listed(entry.name.clone());
        if roots::reserves(dir.0.key, &listed.name) {
            return Ok(match self.temporary.is_leftover(&entry.name) {
                true => LeftoverKind::Temporary,
                false => LeftoverKind::Reserved,
            });
        }
        if !self.is_link(dir, entry, &None).await? {
            return Ok(match self.is_hidden(dir, entry.ino, &None) {
                true => LeftoverKind::Reserved,
                false => LeftoverKind::Seen,
            });
        }
        if self.options.symlinks != SymlinkPolicy::Follow {
            return Ok(LeftoverKind::Link);
        }
        let Ok(mut stack) = self.stack_of(who, dir).await else {
            // The directory was moved since it was looked up, so nothing says where its links lead.
            return Ok(LeftoverKind::Seen);
        };
        match self.follow_from(who, &mut stack, &entry.name).await {
            Ok(None) | Err(VfsError::SymbolicLink | VfsError::AccessDenied) => {
                Ok(LeftoverKind::Link)
            }
            Err(error) => Err(error),
            Ok(Some(_)) => Ok(LeftoverKind::Seen),
        }
    }
}
