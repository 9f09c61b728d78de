//! The engine's view of names: the paths of opens, and their moves.
//!
//! Owns one index per engine: (share, folded components) of every open, so that "any open below this directory"
//! ([MS-FSA] 2.1.4.2) and the renaming of a directory are range scans. Paths are share-relative; of two shares that
//! show one directory, each has its own part of the index, and a rename looks at the paths in both, and moves them.
//!
//! An open whose close removes its name is leaving: it is no longer found among the opens, but a rename of a directory
//! above it takes it into account and moves its path, until the name is off the disk. An open whose object was moved to
//! where its share does not show it is outside: it keeps its last path, but is neither found there nor below a
//! directory.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicU64, Ordering};

use vfs::FileKey;

use super::files::{Files, SHARDS, shard};
use super::inode::Inode;
use super::share_path::{IndexKey, SharePath};
use super::types::{Link, OpenId, Place};

#[derive(Debug, Default)]
pub(super) struct Paths {
    by_path: BTreeMap<IndexKey, Place>,
    by_open: BTreeMap<OpenId, SharePath>,
    /// The opens that are closed and whose names are being removed.
    leaving: BTreeSet<OpenId>,
    /// The opens whose objects their share does not show any more; they are not among `by_path`.
    outside: BTreeMap<OpenId, Place>,
    /// The new names of renames under way.
    coming: BTreeMap<OpenId, SharePath>,
    coming_at: BTreeSet<IndexKey>,
}

impl Paths {
    pub(super) fn len(&self) -> usize {
        self.by_open.len()
    }

    /// The stream of an open has another name.
    pub(super) fn set_place(&mut self, open: OpenId, place: Place) {
        let Some(path) = self.by_open.get(&open) else {
            return;
        };
        let known = self.by_path.get_mut(&path.key(open));
        if let Some(known) = known.or_else(|| self.outside.get_mut(&open)) {
            *known = place;
        }
    }

    /// An open that is not leaving has another path.
    pub(super) fn set_path(&mut self, open: OpenId, path: SharePath) {
        if let Some((_, place)) = self.remove(open) {
            self.insert(open, path, place);
        }
    }

    pub(super) fn insert(&mut self, open: OpenId, path: SharePath, place: Place) {
        self.by_path.insert(path.key(open), place);
        self.by_open.insert(open, path);
    }

    pub(super) fn remove(&mut self, open: OpenId) -> Option<(SharePath, Place)> {
        self.leaving.remove(&open);
        let path = self.by_open.remove(&open)?;
        let place = self.by_path.remove(&path.key(open));
        Some((path, place.or_else(|| self.outside.remove(&open))?))
    }

    pub(super) fn path_of(&self, open: OpenId) -> Option<SharePath> {
        let path = self.by_open.get(&open);
        path.filter(|_| !self.leaving.contains(&open)).cloned()
    }

    /// Whether the share of an open does not show its object any more.
    pub(super) fn is_outside(&self, open: OpenId) -> bool {
        self.outside.contains_key(&open)
    }

    /// Marks an open as closed while its name is being removed: until [`Paths::remove`] it is leaving.
    pub(super) fn leave(&mut self, open: OpenId) {
        if self.by_open.contains_key(&open) {
            self.leaving.insert(open);
        }
    }

    /// The path of an open that is leaving.
    pub(super) fn leaving(&self, open: OpenId) -> Option<SharePath> {
        let path = self.by_open.get(&open);
        path.filter(|_| self.leaving.contains(&open)).cloned()
    }

    /// The opens of `path` itself.
    pub(super) fn at(&self, path: &SharePath) -> Vec<OpenId> {
        let key = |open| path.key(OpenId(open));
        let here = self.by_path.range(key(0)..=key(u64::MAX));
        here.map(|((_, _, open), _)| *open)
            .filter(|open| !self.leaving.contains(open))
            .collect()
    }

    /// At most `most` entries of opens below a directory, those that are leaving included, that follow `after`.
    pub(super) fn below(
        &self,
        directory: &SharePath,
        after: &IndexKey,
        most: usize,
    ) -> Vec<(IndexKey, Place)> {
        self.by_path
            .range::<IndexKey, _>((Excluded(after), Unbounded))
            .take_while(|(key, _)| directory.is_above(key))
            .take(most)
            .map(|(key, place)| (key.clone(), place.clone()))
            .collect()
    }

    /// Announces the new path of a rename. Until [`Paths::dismiss`], it moves along with the directories above it.
    pub(super) fn expect(&mut self, rename: OpenId, path: SharePath) {
        self.dismiss(rename);
        self.coming_at.insert(path.key(rename));
        self.coming.insert(rename, path);
    }

    pub(super) fn dismiss(&mut self, rename: OpenId) {
        if let Some(path) = self.coming.remove(&rename) {
            self.coming_at.remove(&path.key(rename));
        }
    }

    /// The present path of a rename's new name.
    pub(super) fn coming(&self, rename: OpenId) -> Option<SharePath> {
        self.coming.get(&rename).cloned()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let opens = self.by_path.is_empty() && self.by_open.is_empty();
        let coming = self.coming.is_empty() && self.coming_at.is_empty();
        opens && coming && self.leaving.is_empty() && self.outside.is_empty()
    }

    /// Follows a rename of `key`: every open of it at `from`, and every one below, is now at or below `to`. Other
    /// opens at `from` are of objects that got this path later, or that were replaced there before. The cost depends on
    /// the number of paths that move, however many others there are.
    pub(super) fn rename(&mut self, key: FileKey, from: &SharePath, to: &SharePath) {
        let coming: Vec<OpenId> = from
            .at_or_below(&self.coming_at)
            // A new name strictly below `from` moves along. One at `from` itself does not: only the object that has had
            // this name moves away.
            .filter(|(_, folded, _)| folded.len() > from.folded().len())
            .map(|(_, _, rename)| *rename)
            .collect();
        for rename in coming {
            if let Some(path) = self.coming(rename).and_then(|path| path.moved(from, to)) {
                self.expect(rename, path);
            }
        }
        for open in self.moving(key, from) {
            let leaving = self.leaving.contains(&open);
            if let Some((path, place)) = self.remove(open) {
                let path = path.moved(from, to).unwrap_or(path);
                self.insert(open, path, place);
            }
            if leaving {
                self.leave(open);
            }
        }
    }

    /// Follows a rename of `key` from `from` to where the share does not show it: what [`Paths::rename`] would move is
    /// outside from now on, until [`Paths::set_path`].
    pub(super) fn leave_share(&mut self, key: FileKey, from: &SharePath) {
        for open in self.moving(key, from) {
            let path = self.by_open.get(&open);
            if let Some(place) = path.and_then(|path| self.by_path.remove(&path.key(open))) {
                self.outside.insert(open, place);
            }
        }
    }

    /// The opens that move with `key`: those of it at `from`, and all below.
    fn moving(&self, key: FileKey, from: &SharePath) -> Vec<OpenId> {
        self.by_path
            .range(from.key(OpenId(0))..)
            .take_while(|(key, _)| from.is_above(key))
            .filter(|((_, folded, _), place)| {
                folded.len() > from.folded().len() || place.key == key
            })
            .map(|((_, _, open), _)| *open)
            .collect()
    }
}

/// The moment at which a request looked at the names on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look(u64);

/// The changes of names, numbered.
///
/// A CREATE looks a name up on disk and is granted by inode later. In between, the engine may have forgotten that the
/// name was being removed, or have moved the paths of all opens below a directory. So each such change has a number,
/// which it leaves with its inode (in one of a few slots: unrelated inodes share one) or, where a directory moved, for
/// everything. A request that was granted an open and finds a number later than that of its lookup must look the name
/// up again. A change is on disk before it gets its number, and has its number before the engine admits the requests
/// it has held back, or moves the paths that it knows.
#[derive(Debug)]
pub(super) struct Moves {
    number: AtomicU64,
    directories: AtomicU64,
    inodes: [AtomicU64; SHARDS],
}

impl Default for Moves {
    fn default() -> Self {
        Self {
            number: AtomicU64::new(0),
            directories: AtomicU64::new(0),
            inodes: [const { AtomicU64::new(0) }; SHARDS],
        }
    }
}

impl Moves {
    fn next(&self, slot: Option<&AtomicU64>) {
        let number = self.number.fetch_add(1, Ordering::SeqCst) + 1;
        if let Some(slot) = slot {
            slot.fetch_max(number, Ordering::SeqCst);
        }
    }
}

impl Files {
    /// Returns the present moment; to be called before a name is looked up.
    pub fn look(&self) -> Look {
        Look(self.moves.number.load(Ordering::SeqCst))
    }

    /// Whether an inode's name or path may have changed since a lookup. To be called when the open is in the tables,
    /// because later changes take the open into account.
    pub fn has_moved(&self, key: FileKey, since: Look) -> bool {
        let later = |slot: &AtomicU64| slot.load(Ordering::SeqCst) > since.0;
        later(&self.moves.directories) || self.moves.inodes.get(shard(key)).is_some_and(later)
    }

    /// Whether a directory has moved since then: a path through it may no longer be valid.
    pub fn has_directory_moved(&self, since: Look) -> bool {
        self.moves.directories.load(Ordering::SeqCst) > since.0
    }

    /// Called when a name of the inode was removed from the disk or belongs to another inode.
    pub fn name_gone(&self, key: FileKey) {
        self.moves.next(self.moves.inodes.get(shard(key)));
    }

    /// `open` stands for a request by which another file takes the place of this one. Until it is closed, opens of
    /// named streams wait: their handles would lose their name, and what is written by them would be lost.
    pub fn replaces(&self, place: &Place, open: OpenId) {
        self.with(place.key, |inode| {
            if let Some(open) = inode.opens.get_mut(&open)
                && !std::mem::replace(&mut open.replaces, true)
            {
                inode.replacing += 1;
            }
        });
    }

    /// The name `link` of an inode now belongs to another file ([MS-FSCC] 2.4.43). An open of the inode by that
    /// name keeps a handle without a name: its close removes nothing, and its lease may be bound to the file that
    /// has the name. A deletion mark is dropped with the name.
    pub fn replaced(&self, key: FileKey, link: &Link) {
        self.name_gone(key);
        self.with(key, |inode| {
            self.each_lease(inode, |_, bound| {
                bound.delete_on_close |= bound.place.key == key && bound.link == *link;
            });
            inode.replaced(link);
        });
    }

    /// An open that would have deleted something of the inode was undone. If nothing else deletes any of it, its leases
    /// stay with it again ([MS-SMB2] 3.3.5.9.8, Lease.FileDeleteOnClose).
    pub(super) fn stays(&self, key: FileKey, inode: &Inode) {
        if !inode.loses_anything() {
            self.each_lease(inode, |_, bound| {
                bound.delete_on_close &= bound.place.key != key;
            });
        }
    }

    /// How many names of an inode are marked deleted and still on disk, whichever opens marked them.
    pub fn pending_links(&self, key: FileKey) -> usize {
        self.with(key, |inode| {
            let links = inode.links.values();
            links.filter(|deletion| deletion.is_pending()).count()
        })
    }

    /// Called when a directory has got another name on disk, before [`Files::arrived`].
    pub fn directory_moved(&self) {
        self.moves.next(Some(&self.moves.directories));
    }
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;
