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

use vfs::{FileKey, Node, Vfs, VfsError};

use crate::{
    inode::{Held, Inode, Name},
    order::Still,
    planted::Planted,
    share::lock,
    table::Durability,
};

impl<V: Vfs> Durability<V> {
    /// Makes stable what is owed for an inode: the inode, then its names. With `node`, the inode
    /// is synced even if nothing is known to be dirty. Fails with the first error: while the inode
    /// is latched that is the error of its latch, whatever the disk says now. Dropping the future
    /// undoes nothing and leaves owed what was not reached.
    pub(crate) async fn barrier(
        &self,
        key: FileKey,
        node: Option<Held<V>>,
    ) -> Result<(), VfsError> {
        let result = self.sync_in_order(key, node).await;
        result.map_err(|error| self.latch_error(key).unwrap_or(error))
    }

    async fn sync_in_order(&self, key: FileKey, node: Option<Held<V>>) -> Result<(), VfsError> {
        let marked = self.tick();
        // What is not known to be a file may be a directory, or become known as one by the time
        // that it is synced.
        let file = node.as_ref().is_some_and(Held::is_file)
            || self.peek(key, Inode::is_file) == Some(true);
        // Without it the inode is synced only if it is known to be dirty.
        let named = node.is_some();
        let asked = node.clone();
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
        let (planned, plan) = loop {
            let planned = self.tick();
            let plan = if self.planted(Planted::NoParentSync) {
                Vec::new()
            } else {
                self.plan(key)
            };
            if plan.is_empty() || still.is_some() {
                break (planned, plan);
            }
            still = Some(self.orders.still(key.fs).await);
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
        let early = |dir| if dir == key { own } else { marked };
        (moved_to.iter()).for_each(|dir| self.names_synced(dir.key(), early, &failed.dirs));
        plan.iter()
            .for_each(|dir| self.names_synced(dir.key(), until, &failed.dirs));
        self.moved_synced(key.fs, until, &failed.dirs);
        self.sync_above(key, asked.as_ref(), &mut failed).await?;
        failed.error.map_or_else(|| self.check_latch(key), Err)?;
        self.check_way(key, asked.as_ref())
    }

    /// The error of a directory whose move is lost, or whose name an earlier server process lost,
    /// if the inode may be below: which inodes were reached through it nobody knows. By their
    /// paths where both are of the same folder and no directory has moved since; otherwise it may.
    pub(crate) fn check_way(&self, key: FileKey, node: Option<&Held<V>>) -> Result<(), VfsError> {
        let lost = lock(&self.kept.nameless).clone();
        if lost.is_empty() {
            return Ok(());
        }
        // Fresh where it can be: the path of an open is where it was then.
        let path = node.and_then(|held| held.vfs.path_hint(&held.node));
        let path = path.or_else(|| self.peek(key, Inode::path_hint).flatten());
        let path = path.unwrap_or_default().to_lowercase();
        let root = self.root(key, node);
        let way = [Some(key.fs), root.map(|root| root.fs)];
        for (dir, stands) in lost
            .into_iter()
            .filter(|(dir, _)| way.contains(&Some(dir.fs)))
        {
            let latch = self.peek(dir, |inode| {
                let latch = inode.view(dir).filter(|latch| latch.names)?;
                let roots: BTreeSet<_> = inode.shares.iter().flat_map(|one| one.roots()).collect();
                Some((latch, roots))
            });
            let Some((latch, roots)) = latch.flatten() else {
                // Cleared or proven, unless it is lost again by now.
                self.with(dir, |inode| {
                    if !inode.is_nameless() {
                        lock(&self.kept.nameless).remove(&dir);
                    }
                });
                continue;
            };
            let above = latch.path.to_lowercase();
            let apart = stands
                && !path.is_empty()
                && !above.is_empty()
                && roots.iter().eq(&root)
                && !(path.strip_prefix(above.as_str())).is_some_and(|rest| rest.starts_with('/'));
            if !apart {
                return Err(latch.error);
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
            grown |= self.lose(key, failure, |inode| inode.name_failed(dir, failure));
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
        dirs.extend(self.moved_names(key.fs));
        self.order(key, dirs)
    }

    /// The directories that names of directories of a file system are owed to that moved.
    fn moved_names(&self, fs: u64) -> Vec<Held<V>> {
        let moved = lock(&self.moved).clone();
        let mut dirs = Vec::new();
        for moved in moved.into_iter().filter(|moved| moved.fs == fs) {
            let names = |inode: &Inode<V>| -> Vec<_> {
                inode.names().iter().map(|n| n.dir.clone()).collect()
            };
            dirs.extend(self.peek(moved, names).unwrap_or_default());
        }
        dirs
    }

    /// Where the inode is on a file system mounted below the share's folder: the directories that
    /// moved on the folder's, in a turn of their own, so that neither waits for the other's syncs.
    async fn sync_above(
        &self,
        key: FileKey,
        node: Option<&Held<V>>,
        failed: &mut Failed,
    ) -> Result<(), VfsError> {
        let root = self.root(key, node).filter(|root| root.fs != key.fs);
        let Some(root) = root.filter(|root| !self.moved_names(root.fs).is_empty()) else {
            return Ok(());
        };
        let still = self.orders.still(root.fs).await;
        let planned = self.tick();
        let plan = self.order(key, self.moved_names(root.fs));
        for dir in &plan {
            failed.sync(self, dir.clone(), Some(&still)).await?;
        }
        drop(still);
        self.moved_synced(root.fs, |_| planned, &failed.dirs);
        Ok(())
    }

    /// Other directories than `parent` that a name of the inode of some kind is owed to.
    pub(crate) fn names_elsewhere(
        &self,
        key: FileKey,
        parent: FileKey,
        kind: impl Fn(&Name<V>) -> bool,
    ) -> Vec<Held<V>> {
        let names = self.peek(key, |inode| {
            let mut names: Vec<_> = inode.names().iter().collect();
            names.retain(|name| name.dir.key() != parent && kind(name));
            names.iter().map(|name| name.dir.clone()).collect()
        });
        names.unwrap_or_default()
    }

    /// The ways that names may be found to have gone once a directory is removed from `parent`:
    /// from there, and from where they came, to where they are.
    pub(crate) fn ways_through(&self, dir: FileKey, parent: FileKey) -> Vec<(FileKey, FileKey)> {
        let to = self.peek(dir, |inode| {
            inode.before().map(Held::key).collect::<Vec<_>>()
        });
        let to = to.filter(|to| !to.is_empty()).unwrap_or_default();
        let mut from = vec![parent];
        if !to.is_empty() {
            from.extend(self.every(|_, inode| inode.before().any(|one| one.key() == dir)));
        }
        let ways = |from: FileKey| to.iter().map(move |to| (from, *to));
        from.into_iter()
            .flat_map(ways)
            .filter(|(from, to)| from != to)
            .collect()
    }

    /// A directory that, on the way to `to`, must not be synced before `from` is, as something
    /// moved from it to there: a name that goes from `from` to `to` is against that.
    pub(crate) fn against(&self, from: FileKey, to: FileKey) -> Option<FileKey> {
        let (mut seen, mut stack) = (BTreeSet::new(), vec![to]);
        while let Some(dir) = stack.pop() {
            if dir == from || !seen.insert(dir) {
                continue;
            }
            let next = self.peek(dir, |inode| {
                let before: Vec<_> = inode.before().map(Held::key).collect();
                let names: Vec<_> = inode.names().iter().map(|name| name.dir.key()).collect();
                (before, names)
            });
            let (before, names) = next.unwrap_or_default();
            if before.contains(&from) {
                return Some(dir);
            }
            stack.extend(before.into_iter().chain(names));
        }
        None
    }

    /// A directory is gone that names had moved out of, to these: what had moved through it to
    /// there is found there, whichever directory it had left before.
    pub(crate) fn passed_on(&self, gone: FileKey, to: &[(Held<V>, u64)]) {
        if to.is_empty() {
            return;
        }
        let from = |inode: &Inode<V>| inode.before().any(|dir| dir.key() == gone);
        for key in self.every(|_, inode| from(inode)) {
            self.with(key, |inode| {
                if from(inode) {
                    (to.iter()).for_each(|(dir, _)| inode.moved_out(dir, self.tick()));
                }
            });
        }
    }

    /// The directory moved, under its lock: until its name is synced it is in every barrier of its file system.
    pub(crate) fn directory_moved(&self, dir: FileKey) {
        lock(&self.moved).insert(dir);
        // What is below it has another path from now on.
        let mut lost = lock(&self.kept.nameless);
        (lost.iter_mut().filter(|(lost, _)| lost.fs == dir.fs)).for_each(|(_, path)| *path = false);
    }

    /// Whether a directory that the inode may be below moved and its name is owed.
    pub(crate) fn has_moved(&self, key: FileKey, node: &Held<V>) -> bool {
        let moved = lock(&self.moved).clone();
        !moved.is_empty() && {
            let above = node.vfs.root().key().fs;
            moved.iter().any(|dir| dir.fs == key.fs || dir.fs == above)
        }
    }

    /// The folder of the share that an inode was reached through, by `node` or what is held of it.
    fn root(&self, key: FileKey, node: Option<&Held<V>>) -> Option<FileKey> {
        let own = node.map(|held| held.vfs.root().key());
        own.or_else(|| self.peek(key, Inode::root).flatten())
    }

    /// The names of directories that moved are on disk, as in [`Inode::names_synced`].
    fn moved_synced(&self, fs: u64, until: impl Fn(FileKey) -> u64, failed: &BTreeSet<FileKey>) {
        let moved = lock(&self.moved).clone();
        for dir in moved.into_iter().filter(|dir| dir.fs == fs) {
            self.names_synced(dir, &until, failed);
            // Under the inode's lock, as when it moves.
            self.with(dir, |inode| {
                if inode.names().is_empty() {
                    if inode.is_nameless() {
                        lock(&self.kept.nameless).insert(dir, false);
                        tracing::error!(
                            fs = dir.fs,
                            inode = dir.ino,
                            path = inode.view(dir).map(|latch| latch.path).unwrap_or_default(),
                            "the move of a directory is lost: every FLUSH on its file system fails, \
                             as it may be of something below, until the directory moves again, is \
                             deleted, or its latch is cleared"
                        );
                    }
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
