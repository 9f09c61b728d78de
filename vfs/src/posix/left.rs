//! Directories that names of inodes with streams have left, until they are synced.
//!
//! A file that moved and is then replaced or removed may come back with a power cut where it was
//! before the move: a file system that saves each directory by itself (btrfs) knows of the move
//! only when the directory it left is synced too. Its streams in the depot must not go before.
//!
//! Holds at most [`LEFT_MAX`] of them; what finds no room is synced at once. It does not outlive
//! the process: after an unclean end everything is written back before anything is served.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{
    PosixNode, PosixVfs,
    samba_xattr::{DEPOT_MARK, stream_of_attribute},
};
use crate::{FileKey, Node, disk::Disk};

/// Directories held.
const LEFT_MAX: usize = 1024;

/// One directory that a name of an inode left.
struct Left<D: Disk> {
    inode: FileKey,
    dir: PosixNode<D>,
    /// When, in the order of moves and syncs.
    at: u64,
}

/// What a file system object remembers.
pub(super) struct LeftNames<D: Disk>(Mutex<(u64, Vec<Left<D>>)>);

impl<D: Disk> Default for LeftNames<D> {
    fn default() -> Self {
        Self(Mutex::new((0, Vec::new())))
    }
}

impl<D: Disk> LeftNames<D> {
    fn held(&self) -> MutexGuard<'_, (u64, Vec<Left<D>>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// False if there is no room.
    fn add(&self, inode: FileKey, dir: &PosixNode<D>) -> bool {
        let mut held = self.held();
        held.0 += 1;
        let at = held.0;
        let same = |left: &&mut Left<D>| left.inode == inode && left.dir.0.key == dir.0.key;
        if let Some(known) = held.1.iter_mut().find(same) {
            known.at = at;
            return true;
        }
        if held.1.len() >= LEFT_MAX {
            return false;
        }
        let dir = dir.clone();
        held.1.push(Left { inode, dir, at });
        true
    }

    /// The directories that names of the inode left.
    pub(super) fn of(&self, inode: FileKey) -> Vec<PosixNode<D>> {
        let held = self.held();
        let own = held.1.iter().filter(|left| left.inode == inode);
        own.map(|left| left.dir.clone()).collect()
    }

    /// The inode is gone.
    pub(super) fn forget(&self, inode: FileKey) {
        self.held().1.retain(|left| left.inode != inode);
    }

    /// Call before a sync; then [`LeftNames::synced`] with what it answers.
    pub(super) fn now(&self) -> u64 {
        self.held().0
    }

    /// The directory was synced by a call that began after `before`.
    pub(super) fn synced(&self, dir: FileKey, before: u64) {
        let mut held = self.held();
        held.1
            .retain(|left| left.dir.0.key != dir || left.at > before);
    }
}

impl<D: Disk> PosixVfs<D> {
    /// A name of `node` is no longer in `dir`; nobody has synced that.
    pub(super) async fn left(&self, node: &PosixNode<D>, dir: &PosixNode<D>) {
        if node.is_directory() {
            return;
        }
        let stream = |name: &String| name == DEPOT_MARK || stream_of_attribute(name).is_some();
        // What cannot be read may have streams.
        let names = self.attribute_names(node.fd()).await;
        if !names.is_ok_and(|names| !names.iter().any(stream))
            && !self.left.add(node.0.key, dir)
            && let Err(error) = self.settle_name(dir).await
        {
            tracing::debug!(%error, "a directory that a name left is not synced");
        }
    }
}
