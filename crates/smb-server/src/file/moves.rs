//! Names that were removed or moved while a request was looking them up.
//!
//! A CREATE looks a name up on disk and is granted by inode later. In between, the engine may have forgotten that
//! the name was being removed, or have moved the paths of all opens below a directory. So each such change has a
//! number, which it leaves with its inode (in one of a few slots: unrelated inodes share one) or, where a directory
//! moved, for everything. A request that was granted an open and finds a number later than that of its lookup must
//! look the name up again.
//!
//! Invariant: a change is on disk before it gets its number, and has its number before the engine admits the
//! requests it has held back, or moves the paths that it knows.

use std::sync::atomic::{AtomicU64, Ordering};

use vfs::FileKey;

use super::files::{Files, SHARDS, lock, shard};
use super::types::{Link, OpenId};

/// A rename that happened on disk.
pub struct Renamed {
    /// The object that has the new name.
    pub key: FileKey,
    /// It is a directory.
    pub directory: bool,
    /// The name that it had.
    pub from: Link,
    /// The name that it has.
    pub to: Link,
    /// The open that renamed it.
    pub open: OpenId,
    /// The number under which the new name was announced.
    pub rename: OpenId,
}

/// When somebody looked at the names on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look(u64);

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
    /// Before a name is looked up.
    #[must_use]
    pub fn look(&self) -> Look {
        Look(self.moves.number.load(Ordering::SeqCst))
    }

    /// Whether what was seen then of an inode and its path may be no more. To be asked when an
    /// open is in the tables: what comes after that knows of it.
    #[must_use]
    pub fn has_moved(&self, key: FileKey, since: Look) -> bool {
        let later = |slot: &AtomicU64| slot.load(Ordering::SeqCst) > since.0;
        later(&self.moves.directories) || self.moves.inodes.get(shard(key)).is_some_and(later)
    }

    /// Whether a directory has moved since then: a path through it may lead nowhere.
    #[must_use]
    pub fn has_directory_moved(&self, since: Look) -> bool {
        self.moves.directories.load(Ordering::SeqCst) > since.0
    }

    /// A name of the inode is gone from the disk, or is another one's.
    pub fn name_gone(&self, key: FileKey) {
        self.moves.next(self.moves.inodes.get(shard(key)));
    }

    /// The name `link` of an inode now belongs to another file ([MS-FSCC] 2.4.43). An open of the inode by that
    /// name keeps a handle without a name: its close removes nothing, and its lease may be bound to the file that
    /// has the name. A deletion mark is dropped with the name.
    pub fn replaced(&self, key: FileKey, link: &Link) {
        self.name_gone(key);
        self.with(key, false, |inode| {
            let mut leases = lock(&self.leases);
            for lease in inode.leases() {
                if let Some(bound) = leases.get_mut(&lease) {
                    bound.delete_on_close |= bound.place.key == key && bound.link == *link;
                }
            }
            inode.replaced(link);
        });
    }

    /// A directory has another name on disk. Before [`Files::arrived`].
    pub fn directory_moved(&self) {
        self.moves.next(Some(&self.moves.directories));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        Caching, Remove,
        tests::{Rig, key, link, path},
    };

    #[test]
    fn who_looked_before_a_change_looks_again() {
        let rig = Rig::new(Caching::None);
        let request = rig.request(1, super::super::tests::READ);
        let before = rig.files.look();
        assert!(!rig.files.has_moved(key(1), before));
        rig.open(&request);
        assert!(!rig.files.has_moved(key(1), before));
        rig.files
            .removed(&request.place, &Remove::Link(link(0, "1")), None);
        assert!(rig.files.has_moved(key(1), before));
        assert!(!rig.files.has_moved(key(2), before), "another inode");
        assert!(!rig.files.has_moved(key(1), rig.files.look()));
        let before = rig.files.look();
        let to = (&path("2"), &link(0, "2"));
        rig.files
            .renamed(key(1), (&request.path, &request.link), to);
        assert!(rig.files.has_moved(key(1), before));
        assert!(!rig.files.has_directory_moved(before));
        rig.files.directory_moved();
        assert!(rig.files.has_directory_moved(before));
        assert!(rig.files.has_moved(key(2), before), "everything below");
    }
}
