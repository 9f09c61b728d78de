//! Files that may be unreachable after a power failure, because a directory above them may be.
//!
//! Invariant: while the name of a directory is lost (its sync failed, and nothing proved it since),
//! no request is answered with success for anything that is, or may be, below that directory. The
//! paths tell what is below; where a path is not known, everything of the file system may be.

use std::collections::BTreeSet;

use vfs::{FileKey, Node, Vfs, VfsError};

use super::table::Durability;
use crate::{
    dirty::{Held, Inode},
    share::lock,
};

impl<V: Vfs> Durability<V> {
    /// The error of a directory whose own name is lost if the inode is it or may be below: after a power
    /// cut it would be found elsewhere, or nowhere. The paths tell which directories are above
    /// paths; where one is not known, or the two shares are of different folders, it may be.
    pub(crate) fn check_ancestors(
        &self,
        key: FileKey,
        node: Option<&Held<V>>,
    ) -> Result<(), VfsError> {
        let lost = lock(&self.unreachable).clone();
        if lost.is_empty() {
            return Ok(());
        }
        // Fresh where it can be: the path of an open is where it was then.
        let path = node.and_then(|held| held.vfs.path_hint(&held.node));
        let path = path.or_else(|| self.peek(key, Inode::path_hint).flatten());
        let path = path.map(|path| path.to_lowercase());
        let root = self.root(key, node);
        let file_systems = [Some(key.fs), root.map(|root| root.fs)];
        for dir in lost {
            if !file_systems.contains(&Some(dir.fs)) {
                continue;
            }
            let lost = self.peek(dir, |inode| {
                let latch = inode.view(dir).filter(|latch| latch.names)?;
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
                && above.is_some_and(|above| !above.is_empty() && !below(&above))
                && roots.iter().eq(&root);
            if !apart {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Where a directory is whose own name is lost: the folders that its path is from, and the
    /// path, if that is known. An earlier server process may have lost it: then the path is the one
    /// that was stored, until a directory moves.
    fn place_of_lost(
        &self,
        dir: FileKey,
        inode: &Inode<V>,
        stored: String,
    ) -> (BTreeSet<FileKey>, Option<String>) {
        let above = match inode.root() {
            Some(root) => (BTreeSet::from([root]), inode.path_hint()),
            None => {
                let shares = inode.shares().iter();
                let roots = shares.flat_map(|share| share.roots()).collect();
                let stands = !self.moves.has_directory_moved(dir.fs);
                (roots, stands.then_some(stored))
            }
        };
        (above.0, above.1.map(|path| path.to_lowercase()))
    }

    /// The folder of the share that an inode was reached through, by `node` or what is held of it.
    pub(super) fn root(&self, key: FileKey, node: Option<&Held<V>>) -> Option<FileKey> {
        let own = node.map(|held| held.vfs.root().key());
        own.or_else(|| self.peek(key, Inode::root).flatten())
    }
}
