//! The barrier: everything that must be on disk before an inode counts as stable, in order.
//!
//! Owns which directories are synced before an inode and after it, and what a success of all of
//! them proves. An inode is stable when it is synced, its names are, and so is the way to them:
//! directories that moved are part of the way of whatever may be below.
//!
//! Invariants: a name counts as stable only by a sync of its directory that began after it was
//! marked, and that was done; no directory saves that a name left before the way to where it went
//! is stable; nothing moves between directories meanwhile (`order.rs`).

use std::collections::BTreeSet;

use vfs::{FileKey, Vfs, VfsError};

use crate::{
    inode::{Held, Inode},
    order::Still,
    planted::Planted,
    share::lock,
    table::Durability,
};

impl<V: Vfs> Durability<V> {
    /// Makes stable what is owed for an inode: the inode, then its names. With `node`, the inode
    /// is synced even if nothing is known to be dirty. Fails with the first error, also an
    /// earlier one that is not repaired. Dropping the future undoes nothing and leaves owed what
    /// was not reached.
    pub(crate) async fn barrier(
        &self,
        key: FileKey,
        node: Option<Held<V>>,
    ) -> Result<(), VfsError> {
        let marked = self.tick();
        // What is not known to be a file may be a directory, or become known as one by the time
        // that it is synced.
        let file = node.as_ref().is_some_and(Held::is_file)
            || self.peek(key, Inode::is_file) == Some(true);
        // Without it the inode is synced only if it is known to be dirty.
        let named = node.is_some();
        let mut still = None;
        if !file {
            still = Some(self.orders.still(key.fs).await);
        }
        let mut failed = Failed::default();
        let moved_to = self.moved_to(key);
        for dir in &moved_to {
            failed.sync(self, dir.clone(), still.as_ref()).await?;
        }
        self.sync_one(key, node, still.clone()).await?;
        if still.is_none() && !self.plan(key).is_empty() {
            still = Some(self.orders.still(key.fs).await);
        }
        let planned = self.tick();
        let plan = if self.planted(Planted::NoParentSync) {
            Vec::new()
        } else {
            self.plan(key)
        };
        for dir in &plan {
            failed.sync(self, dir.clone(), still.as_ref()).await?;
        }
        drop(still);
        self.latch_below(key, moved_to.iter().chain(&plan).map(Held::key), &failed);
        let before = |_| marked;
        // The plan leaves the inode itself out, which was synced before it was made, if it was.
        let own = if named { marked } else { 0 };
        let until = |dir| if dir == key { own } else { planned };
        self.names_synced(key, before, &failed.dirs);
        (moved_to.iter()).for_each(|dir| self.names_synced(dir.key(), before, &failed.dirs));
        plan.iter()
            .for_each(|dir| self.names_synced(dir.key(), until, &failed.dirs));
        self.moved_synced(key.fs, until, &failed.dirs);
        failed.error.map_or_else(|| self.check_latch(key), Err)?;
        self.check_way(key)
    }

    /// The error of a directory whose name an earlier server process lost, if the inode is below:
    /// which inodes owed their names to it died with that process. By their paths, as nothing
    /// else is known of either.
    pub(crate) fn check_way(&self, key: FileKey) -> Result<(), VfsError> {
        let lost = lock(&self.kept.nameless).clone();
        if lost.is_empty() {
            return Ok(());
        }
        let path = self.peek(key, Inode::path_hint).flatten();
        let path = path.unwrap_or_default().to_lowercase();
        for dir in lost {
            let above = self.peek(dir, |inode| {
                let latch = inode.view(dir).filter(|latch| latch.names)?;
                let above = latch.path.to_lowercase();
                let rest = path.strip_prefix(above.as_str())?;
                (above.is_empty() || rest.starts_with('/')).then_some(latch.error)
            });
            if let Some(error) = above.flatten() {
                return Err(error);
            }
        }
        Ok(())
    }

    /// What a directory holds whose own name is lost, now or since an earlier failure, cannot be
    /// reached after a crash: its name is lost too, and so on down to the inode.
    fn latch_below(&self, key: FileKey, dirs: impl Iterator<Item = FileKey>, failed: &Failed) {
        if self.no_latches() {
            return;
        }
        let below: Vec<FileKey> = dirs.chain([key]).collect();
        // What is latched on the way may be above another one. A name is lost once.
        while below.iter().any(|key| self.latch_nameless(*key, failed)) {}
    }

    /// True if a name of the inode was lost with its directory's.
    fn latch_nameless(&self, key: FileKey, failed: &Failed) -> bool {
        let lost = |dir: &FileKey| self.peek(*dir, Inode::is_nameless) == Some(true);
        let above: Vec<_> = self.with(key, |inode| {
            inode.names().iter().map(|n| n.dir.key()).collect()
        });
        let mut grown = false;
        for dir in above.into_iter().filter(lost) {
            let earlier = self.check_latch(dir).err();
            let failure = self.failure(failed.error.or(earlier).unwrap_or(VfsError::Io));
            let shares = self.with(key, |inode| {
                inode
                    .name_failed(dir, failure)
                    .then(|| inode.shares.clone())
            });
            if let Some(shares) = shares {
                self.report_failure(key, &shares, failure);
                grown = true;
            }
        }
        grown
    }

    pub(crate) fn names_synced(
        &self,
        key: FileKey,
        until: impl Fn(FileKey) -> u64,
        failed: &BTreeSet<FileKey>,
    ) {
        if self.with(key, |inode| inode.names_synced(until, failed)) {
            self.repaired(key);
        }
    }

    /// Directories to sync before an inode, in order: those that names moved to out of it, each
    /// with what it is reached by. What left the inode is then found where it went.
    fn moved_to(&self, key: FileKey) -> Vec<Held<V>> {
        let dirs = self.with(key, |inode| inode.before().cloned().collect());
        self.order(key, dirs)
    }

    /// Directories to sync after an inode, in order: those that its own name is owed to, newest
    /// first, and those that the name of a directory is owed to that moved: the inode may be
    /// below it, however long ago it got its own name.
    fn plan(&self, key: FileKey) -> Vec<Held<V>> {
        let mut dirs: Vec<_> = self.with(key, |inode| {
            inode.names().iter().map(|n| n.dir.clone()).collect()
        });
        let moved: Vec<FileKey> = lock(&self.moved).iter().copied().collect();
        for moved in moved.into_iter().filter(|moved| moved.fs == key.fs) {
            let owed = self.peek(moved, |inode| {
                inode
                    .names()
                    .iter()
                    .map(|n| n.dir.clone())
                    .collect::<Vec<_>>()
            });
            dirs.extend(owed.unwrap_or_default());
        }
        self.order(key, dirs)
    }

    /// The directory moved, under its lock: until its name is synced it is in every barrier of its file system.
    pub(crate) fn directory_moved(&self, dir: FileKey) {
        lock(&self.moved).insert(dir);
    }

    /// Whether a directory of the file system moved and its name is owed.
    pub(crate) fn has_moved(&self, fs: u64) -> bool {
        lock(&self.moved).iter().any(|dir| dir.fs == fs)
    }

    /// The names of directories that moved are on disk, as in [`Inode::names_synced`].
    fn moved_synced(&self, fs: u64, until: impl Fn(FileKey) -> u64, failed: &BTreeSet<FileKey>) {
        if !self.has_moved(fs) {
            return;
        }
        let mut moved = lock(&self.moved).clone();
        moved.retain(|dir| dir.fs == fs);
        for dir in moved {
            self.names_synced(dir, &until, failed);
            // Under the inode's lock, as when it moves.
            self.with(dir, |inode| {
                if inode.names().is_empty() {
                    lock(&self.moved).remove(&dir);
                }
            });
        }
    }

    /// Syncs one after the other that make stable what an inode owes.
    pub(crate) fn chain(&self, key: FileKey) -> usize {
        self.moved_to(key).len() + 1 + self.plan(key).len()
    }

    /// These directories and all that must go before and after them, in order: for each the ones
    /// that names moved to out of it (with theirs), then itself, then the directories that its
    /// own name is owed to (with theirs). So no directory saves that a name left before the way
    /// to where it went is stable. No longer than there are dirty inodes, which are limited.
    fn order(&self, of: FileKey, dirs: Vec<Held<V>>) -> Vec<Held<V>> {
        // Depth first with an explicit stack. A cycle (names moved both ways) is cut where it
        // closes.
        let mut seen = BTreeSet::from([of]);
        let mut order = Vec::new();
        let mut stack: Vec<Visit<V>> = dirs.into_iter().rev().map(Visit::Enter).collect();
        while let Some(visit) = stack.pop() {
            let dir = match visit {
                Visit::Enter(dir) => dir,
                Visit::Place(dir) => {
                    order.push(dir);
                    continue;
                }
            };
            if !seen.insert(dir.key()) {
                continue;
            }
            let (before, after) = self.with(dir.key(), |inode| {
                let before: Vec<_> = inode.before().cloned().collect();
                let after: Vec<_> = inode.names().iter().map(|n| n.dir.clone()).collect();
                (before, after)
            });
            stack.extend(after.into_iter().rev().map(Visit::Enter));
            stack.push(Visit::Place(dir));
            stack.extend(before.into_iter().map(Visit::Enter));
        }
        order
    }
}

/// A step of [`Durability::order`].
enum Visit<V: Vfs> {
    /// What goes before the directory, the directory, what goes after.
    Enter(Held<V>),
    /// The directory itself.
    Place(Held<V>),
}

/// Directories on a barrier's way whose sync failed. They are latched; the others are synced all
/// the same, or what waits behind a directory that always fails would be owed for ever.
#[derive(Default)]
struct Failed {
    error: Option<VfsError>,
    dirs: BTreeSet<FileKey>,
}

impl Failed {
    /// Syncs a directory. The error is one after which nothing is tried: the order would break
    /// where a later attempt can still keep it.
    async fn sync<V: Vfs>(
        &mut self,
        core: &Durability<V>,
        dir: Held<V>,
        still: Option<&Still>,
    ) -> Result<(), VfsError> {
        let key = dir.key();
        match core.sync_one(key, Some(dir), still.cloned()).await {
            Ok(()) => {}
            Err(VfsError::NotStarted) => return Err(VfsError::NotStarted),
            Err(error) => {
                self.error.get_or_insert(error);
                self.dirs.insert(key);
            }
        }
        Ok(())
    }
}
