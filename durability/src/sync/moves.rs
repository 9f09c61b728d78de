//! Renames that are not stable yet, by file system.
//!
//! Two kinds of rename concern more than the inode that was renamed: that of a directory, above
//! everything below it, and one between two directories of a file system that may persist only half
//! of a rename ([`vfs::Vfs::renames_are_atomic`]). Both are stable before their answer under every
//! policy except `treat-host-as-stable-storage`. If one is not (because of that policy, or because
//! its client disconnected), it is outstanding, and the barrier makes it stable before anything else
//! of the file system.
//!
//! Invariant: on a file system without atomic renames at most one rename between directories is
//! outstanding. Its lock is held exclusively from before the rename until it is marked and, where
//! the policy requires that, synced; syncs of directories share the lock. So no sync can persist
//! that a name left one directory before the other directory is stable. Where renames are atomic the
//! lock is not used.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use vfs::FileKey;

use crate::share::lock;

#[derive(Default)]
struct FileSystem {
    lock: Arc<RwLock<()>>,
    outstanding: BTreeSet<FileKey>,
    directory_moved: bool,
}

/// The file systems on which something moved or was to be made stable.
#[derive(Default)]
pub(crate) struct Moves(Mutex<BTreeMap<u64, FileSystem>>);

impl Moves {
    fn lock_of(&self, fs: u64) -> Arc<RwLock<()>> {
        Arc::clone(&lock(&self.0).entry(fs).or_default().lock)
    }

    /// Held while directories of a file system without atomic renames are synced.
    pub(crate) async fn still(&self, fs: u64) -> OwnedRwLockReadGuard<()> {
        self.lock_of(fs).read_owned().await
    }

    /// Held while a name moves between directories of a file system without atomic renames.
    pub(crate) async fn alone(&self, fs: u64) -> OwnedRwLockWriteGuard<()> {
        self.lock_of(fs).write_owned().await
    }

    /// The move of an inode was marked, and is outstanding. Call under the inode's lock.
    pub(crate) fn marked(&self, key: FileKey, directory: bool) {
        let mut all = lock(&self.0);
        let fs = all.entry(key.fs).or_default();
        fs.outstanding.insert(key);
        fs.directory_moved |= directory;
    }

    /// The names of an inode are stable, or lost. Call under the inode's lock.
    pub(crate) fn settled(&self, key: FileKey) {
        if let Some(fs) = lock(&self.0).get_mut(&key.fs) {
            fs.outstanding.remove(&key);
        }
    }

    /// The inodes of a file system whose move is outstanding.
    pub(crate) fn outstanding(&self, fs: u64) -> Vec<FileKey> {
        let all = lock(&self.0);
        all.get(&fs)
            .map_or_else(Vec::new, |fs| fs.outstanding.iter().copied().collect())
    }

    /// Whether any directory of a file system has moved since the start of the server.
    pub(crate) fn has_directory_moved(&self, fs: u64) -> bool {
        lock(&self.0).get(&fs).is_some_and(|fs| fs.directory_moved)
    }
}
