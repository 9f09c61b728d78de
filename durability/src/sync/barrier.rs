//! The barrier: everything that must be stable before an inode counts as stable.
//!
//! An inode is stable when it is synced, its names are, and no directory above it is lost. Two kinds of rename concern
//! more than their inode: that of a directory, above everything below it, and one between two directories of a file
//! system that may persist only half of a rename ([`vfs::Volume::renames_are_atomic`]). Both are stable before their
//! answer under every policy except `treat-host-as-stable-storage`. If one is not (by that policy, or as its client
//! disconnected), it is *outstanding*, and is made stable before anything else of the file system.
//!
//! Invariants:
//! - A sync of an inode never waits for a sync of another one: the barrier puts them in order (the inode,
//!   then its parents, newest first, each with theirs), so a cycle of renames cannot deadlock.
//! - A name counts as stable only after a sync of its directory that began after the name was marked.
//! - Where renames are not atomic, a rename between directories holds the lock of [`Moves`] alone from before the
//!   rename until it is marked and, if the policy requires that, synced; syncs of directories share it. So no sync can
//!   persist that a name left one directory before the other is stable, and at most one such rename is outstanding.
//!   It is made stable before all other outstanding ones, which may concern the directory that its name left.
//! - While the name of a directory is lost, no request is answered with success for anything that is, or may be, below
//!   it. The paths show what is below; where a path is not known, everything of the file system may be.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    sync::{Arc, Mutex},
};

use tokio::sync::{RwLock, oneshot};
use vfs::{FileKey, Node, VfsError, VfsResult, Volume, lock};

use crate::{
    dirty::{Held, Inode, Name},
    planted::Planted,
    sync::Durability,
};

impl<V: Volume> Durability<V> {
    /// Makes everything dirty of an inode stable: the inode, then its names. With `node`, the inode is synced even if
    /// nothing is known to be dirty. Fails with the first error: while the inode is poisoned that is the error of its
    /// latch, whatever the disk says now. Dropping the future undoes nothing; what was not reached stays dirty.
    pub(crate) async fn barrier(&self, key: FileKey, node: Option<Held<V>>) -> VfsResult<()> {
        let result = self.sync_in_order(key, node.clone(), node).await;
        result.map_err(|error| self.latch_error(key).unwrap_or(error))
    }

    /// As [`Durability::barrier`] without a node: the inode is synced only if something of it is known to be dirty.
    /// `asked` is a node of it, which shows where it is even when nothing of it is dirty any more.
    pub(crate) async fn barrier_unless_clean(&self, asked: Held<V>) -> VfsResult<()> {
        let key = asked.key();
        let result = self.sync_in_order(key, None, Some(asked)).await;
        result.map_err(|error| self.latch_error(key).unwrap_or(error))
    }

    /// `asked` is any node of the inode; `node` is one by which it is synced in any case.
    async fn sync_in_order(
        &self,
        key: FileKey,
        node: Option<Held<V>>,
        asked: Option<Held<V>>,
    ) -> VfsResult<()> {
        let marked = self.tick();
        // Once everything is stable, the inode holds no node that shows where it is.
        let known = match asked {
            Some(_) => None,
            None => self.peek(key, |inode| inode.own_node().cloned()).flatten(),
        };
        // An inode that is not known to be a file may be a directory, and its sync saves names.
        let file = asked.as_ref().is_some_and(Held::is_file)
            || self.peek(key, Inode::is_file) == Some(true);
        let named = node.is_some();
        let mut itself = Some(node);
        if file {
            self.sync_one(key, itself.take().flatten()).await?;
        }
        let has_dirty_names = self.peek(key, |inode| !inode.names().is_empty()) == Some(true);
        if itself.is_some() || has_dirty_names || !self.moves.outstanding(key.fs).is_empty() {
            let since = (marked, named);
            // The outstanding moves are synced even if nothing is known of this inode.
            let vfs = self.vfs_of(key, asked.as_ref());
            if vfs.is_none_or(|vfs| !vfs.renames_are_atomic(key.fs)) {
                let still = self.moves.lock_of(key.fs).read_owned().await;
                self.to_its_end(move |me| async move {
                    let _still = still;
                    me.directories(key, itself, since).await
                })
                .await?;
            } else {
                self.directories(key, itself, since).await?;
            }
        }
        self.sync_outstanding_above(key, asked.as_ref()).await?;
        self.check_stable(key, asked.as_ref().or(known.as_ref()))
    }

    /// Makes the names of an inode stable, and the inode itself if that is still to be done, and the outstanding moves
    /// of its file system, in their order. Where renames are not atomic, the caller holds the lock of [`Moves`].
    pub(crate) async fn directories(
        &self,
        key: FileKey,
        itself: Option<Option<Held<V>>>,
        since: (u64, bool),
    ) -> VfsResult<()> {
        let is_first = self.moves.outstanding(key.fs).first() == Some(&key);
        if !is_first {
            self.sync_outstanding(key.fs, key).await?;
        }
        if let Some(node) = itself {
            self.sync_one(key, node).await?;
        }
        self.names(key, since).await?;
        match is_first {
            true => self.sync_outstanding(key.fs, key).await,
            false => Ok(()),
        }
    }

    /// Makes the outstanding moves of a file system stable, except that of `except`. A sync that fails
    /// poisons only its own inode and is no error here. `NotStarted` is: the moves must be synced first.
    pub(crate) async fn sync_outstanding(&self, fs: u64, except: FileKey) -> VfsResult<()> {
        let mut moved = self.moves.outstanding(fs);
        moved.retain(|key| *key != except);
        for key in moved {
            let marked = self.tick();
            let mut result = self.sync_one(key, None).await;
            if result.is_ok() {
                result = self.names(key, (marked, false)).await;
            }
            if result == Err(VfsError::NotStarted) {
                return result;
            }
        }
        Ok(())
    }

    /// Syncs the directories with dirty names of an inode, newest first, each together with the names by which it is
    /// reached. `marked` was drawn before the inode itself was synced; `done` if that sync surely ran.
    async fn names(&self, key: FileKey, (marked, done): (u64, bool)) -> VfsResult<()> {
        let planned = self.tick();
        let mut plan = self.plan(key);
        if self.planted(Planted::NoParentSync) {
            plan.clear();
        }
        let (mut first, mut failed) = (None, BTreeSet::new());
        let mut until = BTreeMap::new();
        for dir in &plan {
            let last = self.last_name_in(dir.key(), plan.iter().map(Held::key).chain([key]));
            until.insert(dir.key(), last);
            let synced = match dir.vfs.renames_are_atomic(dir.key().fs) {
                true => self.sync_names_in(dir, last).await,
                // A running sync may be for a name that entered the directory before.
                false => self.sync_one(dir.key(), Some(dir.clone())).await,
            };
            match synced {
                Ok(()) => {}
                // Nothing was tried: a later attempt can still keep the order.
                Err(VfsError::NotStarted) => return Err(VfsError::NotStarted),
                // The directory is poisoned now. The other directories are synced all the same: otherwise whatever
                // comes after a directory that always fails would stay dirty for ever.
                Err(error) => {
                    first.get_or_insert(error);
                    failed.insert(dir.key());
                }
            }
        }
        for dir in &plan {
            // If an ancestor's name is lost, nothing here can be reached after a power failure, synced or not.
            if let Err(error) = self.check_ancestors(dir.key(), Some(dir)) {
                first.get_or_insert(error);
                let failure = self.failure(error);
                for key in plan.iter().map(Held::key).chain([key]) {
                    self.with(key, |inode| inode.name_failed(dir.key(), failure));
                }
            }
        }
        // A name is stable if it was marked before the sync of its directory began and before the plan was made.
        let until = |dir: FileKey| until.get(&dir).map_or(planned, |last| planned.min(*last));
        let of_key = |dir| marked.min(until(dir));
        self.with(key, |inode| inode.names_synced(of_key, &failed));
        // The plan leaves out the inode itself; names in it are stable only if its own sync surely ran.
        let own = if done { marked } else { 0 };
        let of_dirs = |dir| if dir == key { own } else { until(dir) };
        for dir in &plan {
            self.with(dir.key(), |inode| inode.names_synced(of_dirs, &failed));
        }
        first.map_or(Ok(()), Err)
    }

    /// The highest sequence number of the dirty names that the inodes in `of` have in a directory.
    fn last_name_in(&self, dir: FileKey, of: impl Iterator<Item = FileKey>) -> u64 {
        let last = |key| {
            self.peek(key, |inode| {
                let here = inode.names().iter().filter(|name| name.dir.key() == dir);
                here.map(|name| name.seq).max()
            })
        };
        of.filter_map(last).flatten().max().unwrap_or_default()
    }

    /// The directories to sync after an inode, in order: those with dirty names of it, newest
    /// first, each followed by those with dirty names of that directory, and so on up.
    fn plan(&self, key: FileKey) -> Vec<Held<V>> {
        let names = |key: FileKey| -> Vec<Held<V>> {
            let names = self.peek(key, |inode| {
                inode.names().iter().rev().map(|n| n.dir.clone()).collect()
            });
            names.unwrap_or_default()
        };
        let (mut seen, mut plan) = (BTreeSet::from([key]), Vec::new());
        let mut stack = names(key);
        while let Some(dir) = stack.pop() {
            if seen.insert(dir.key()) {
                stack.extend(names(dir.key()));
                plan.push(dir);
            }
        }
        plan
    }

    /// The number of syncs, one after the other, that make an inode stable.
    pub(crate) fn chain(&self, key: FileKey) -> usize {
        1 + self.plan(key).len()
    }

    /// Makes the outstanding moves on the file system of the share's folder stable, if the inode's is mounted below.
    async fn sync_outstanding_above(&self, key: FileKey, node: Option<&Held<V>>) -> VfsResult<()> {
        let root = self.root(key, node).filter(|root| root.fs != key.fs);
        for moved in root.map_or_else(Vec::new, |root| self.moves.outstanding(root.fs)) {
            // Any other error concerns only the inode that moved, as in `sync_outstanding`.
            if Box::pin(self.barrier(moved, None)).await == Err(VfsError::NotStarted) {
                return Err(VfsError::NotStarted);
            }
        }
        Ok(())
    }

    /// Whether a move is outstanding by which the inode may be reached.
    pub(crate) fn has_outstanding(&self, key: FileKey, node: &Held<V>) -> bool {
        let above = node.vfs.root().key().fs;
        let moved = |fs| !self.moves.outstanding(fs).is_empty();
        moved(key.fs) || (above != key.fs && moved(above))
    }

    /// The directories other than `parent` with a dirty name of the inode of this kind.
    pub(crate) fn names_in_other_directories(
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

    /// Runs a step in a task of its own: it completes, with its locks held until then, even if the caller is dropped.
    pub(crate) async fn to_its_end<F, T>(&self, step: impl FnOnce(Arc<Self>) -> F) -> VfsResult<T>
    where
        F: Future<Output = VfsResult<T>> + 'static,
        T: 'static,
    {
        let Some(me) = self.me.upgrade() else {
            return Err(VfsError::Io);
        };
        let (ended, end) = oneshot::channel();
        let step = step(me);
        self.env.spawn(Box::pin(async move {
            let _ = ended.send(step.await);
        }));
        // The sender is dropped only if the worker that ran the step is gone.
        end.await.unwrap_or(Err(VfsError::Io))
    }

    /// The error of the inode's latch, or of a directory above it whose own name is lost.
    pub(crate) fn check_stable(&self, key: FileKey, node: Option<&Held<V>>) -> VfsResult<()> {
        self.check_latch(key)?;
        self.check_ancestors(key, node)
    }

    /// The error of a directory whose own name is lost, if the inode is that directory or may be below it:
    /// after a power cut the inode would be found elsewhere, or nowhere. It may be below if a path is not
    /// known, or if the two were reached through shares of different folders.
    fn check_ancestors(&self, key: FileKey, node: Option<&Held<V>>) -> VfsResult<()> {
        // Each of these directories has a latch.
        if !self.has_latches() {
            return Ok(());
        }
        let mut lost = lock(&self.unreachable).clone();
        // The path is read anew where that is possible, because an open knows only the path by which it was made.
        let path = node.and_then(|held| held.vfs.path_hint(&held.node));
        let path = path.or_else(|| self.peek(key, Inode::path_hint).flatten());
        let path = path.map(|path| path.to_lowercase());
        let root = self.root(key, node);
        let file_systems = [Some(key.fs), root.map(|root| root.fs)];
        lost.retain(|dir| file_systems.contains(&Some(dir.fs)));
        for dir in lost {
            let lost = self.peek(dir, |inode| {
                let latch = inode.latch_record(dir);
                let latch = latch.filter(|latch| !latch.names.is_empty())?;
                Some((latch.error, self.place_of_lost(dir, inode, latch.path)))
            });
            let Some((error, (roots, above))) = lost.flatten() else {
                continue;
            };
            let below = |above: &String| {
                let rest = path.as_ref().map(|path| path.strip_prefix(above.as_str()));
                rest.is_none_or(|rest| rest.is_some_and(|rest| rest.starts_with('/')))
            };
            let apart = dir != key
                && above.is_some_and(|above| !above.is_empty() && !below(&above.to_lowercase()))
                && roots.iter().eq(&root);
            if !apart {
                return Err(error);
            }
        }
        Ok(())
    }

    /// The place of a directory whose own name is lost: the folders that its path starts at, and the path, if it is
    /// known. If an earlier server process lost the name, the path is the stored one, until a directory moves.
    fn place_of_lost(
        &self,
        dir: FileKey,
        inode: &Inode<V>,
        stored: String,
    ) -> (BTreeSet<FileKey>, Option<String>) {
        match inode.held() {
            Some(held) => (BTreeSet::from([held.vfs.root().key()]), inode.path_hint()),
            None => {
                let shares = inode.shares().iter();
                let roots = shares.flat_map(|share| share.roots()).collect();
                let stands = !self.moves.has_directory_moved(dir.fs);
                (roots, stands.then_some(stored))
            }
        }
    }

    /// The back end through which an inode was reached, by `node` or the held one.
    fn vfs_of(&self, key: FileKey, node: Option<&Held<V>>) -> Option<Arc<V>> {
        let vfs = |held: &Held<V>| Arc::clone(&held.vfs);
        let known = || self.peek(key, |inode| inode.held().map(vfs));
        node.map(vfs).or_else(|| known().flatten())
    }

    /// The folder of the share through which an inode was reached.
    fn root(&self, key: FileKey, node: Option<&Held<V>>) -> Option<FileKey> {
        self.vfs_of(key, node).map(|vfs| vfs.root().key())
    }
}

#[derive(Default)]
struct FileSystem {
    lock: Arc<RwLock<()>>,
    outstanding: BTreeSet<FileKey>,
    /// The last of them that was between two directories.
    between: Option<FileKey>,
    directory_moved: bool,
    /// The number of the last removal of a directory.
    directory_removed: u64,
}

/// The file systems on which a name moved or a directory was removed, or which needed the rename lock.
#[derive(Default)]
pub(crate) struct Moves(Mutex<BTreeMap<u64, FileSystem>>);

impl Moves {
    /// A file system's lock, if renames are not atomic: shared by syncs of directories, alone for a move between two.
    pub(crate) fn lock_of(&self, fs: u64) -> Arc<RwLock<()>> {
        Arc::clone(&lock(&self.0).entry(fs).or_default().lock)
    }

    /// The move of an inode was marked, and is outstanding. Call under the inode's lock.
    pub(crate) fn marked(&self, key: FileKey, directory: bool, between: bool) {
        let mut all = lock(&self.0);
        let fs = all.entry(key.fs).or_default();
        fs.outstanding.insert(key);
        fs.between = between.then_some(key).or(fs.between);
        fs.directory_moved |= directory;
    }

    /// The names of an inode are stable, or lost. Call under the inode's lock.
    pub(crate) fn not_outstanding(&self, key: FileKey) {
        if let Some(fs) = lock(&self.0).get_mut(&key.fs) {
            fs.outstanding.remove(&key);
            fs.between = fs.between.filter(|between| *between != key);
        }
    }

    /// The inodes of a file system whose move is outstanding, in the order in which they are made stable.
    pub(crate) fn outstanding(&self, fs: u64) -> Vec<FileKey> {
        let all = lock(&self.0);
        let Some(fs) = all.get(&fs) else {
            return Vec::new();
        };
        let others = fs.outstanding.iter();
        let others = others.filter(|key| fs.between != Some(**key));
        fs.between.iter().chain(others).copied().collect()
    }

    /// A directory of a file system was removed by the change of this number.
    pub(crate) fn directory_removed(&self, fs: u64, sequence: u64) {
        let mut all = lock(&self.0);
        let last = &mut all.entry(fs).or_default().directory_removed;
        *last = sequence.max(*last);
    }

    /// Whether any directory of a file system was removed after the change of this number.
    pub(crate) fn has_lost_directory(&self, fs: u64, sequence: u64) -> bool {
        let last = lock(&self.0).get(&fs).map(|fs| fs.directory_removed);
        last > Some(sequence)
    }

    /// Whether any directory of a file system has moved since the start of the server.
    pub(crate) fn has_directory_moved(&self, fs: u64) -> bool {
        lock(&self.0).get(&fs).is_some_and(|fs| fs.directory_moved)
    }
}
