//! The directories that this process serves as the roots of shares.
//!
//! A share may lie within another one. The depot in its root holds streams, each for the users who may open its file:
//! clients of the share around it must not reach the depot by its name either. Nor must those who find a snapshot of a
//! share below its root: each directory of a snapshot has the inode number and the birth time of its origin.

use std::{collections::BTreeMap, sync::Mutex};

use super::name;
use crate::{FileKey, lock};

/// A root and its snapshots: the inode number and the generation. Where there are no generations, as on ZFS,
/// directories of other file systems with the number count as well. That matters only to folders named as the depot.
type Root = (u64, u64);

/// How many shares have a root.
static SERVED: Mutex<BTreeMap<Root, usize>> = Mutex::new(BTreeMap::new());

/// A root that is served while this lives.
#[derive(Debug)]
pub(super) struct ServedRoot(Root);

impl ServedRoot {
    pub(super) fn new(directory: FileKey) -> Self {
        let root = (directory.ino, directory.generation);
        *lock(&SERVED).entry(root).or_default() += 1;
        Self(root)
    }
}

impl Drop for ServedRoot {
    fn drop(&mut self) {
        let mut served = lock(&SERVED);
        if let Some(shares) = served.get_mut(&self.0) {
            *shares -= 1;
            if *shares == 0 {
                served.remove(&self.0);
            }
        }
    }
}

/// Whether a directory is the root of a share, or that in a snapshot.
pub(super) fn is_served(directory: FileKey) -> bool {
    lock(&SERVED).contains_key(&(directory.ino, directory.generation))
}

/// Whether a name in a directory is one of the server's own, which clients neither see nor may use.
pub(super) fn reserves(directory: FileKey, shown: &str) -> bool {
    // The first test is a comparison of strings and rules out nearly every name, so the table is rarely locked.
    name::is_reserved(true, shown) && name::is_reserved(is_served(directory), shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_of_a_snapshot_counts_as_its_origins() {
        let key = |fs, ino, generation| FileKey {
            fs,
            ino,
            generation,
        };
        for generation in [0, 7] {
            let root = |fs| key(fs, 0x5157_0001 + generation, generation);
            let first = ServedRoot::new(root(1));
            let second = ServedRoot::new(root(1));
            assert!(is_served(root(1)) && is_served(root(2)));
            assert!(!is_served(key(1, root(1).ino, 8)));
            assert!(!is_served(key(1, 0x5157_0003, generation)));
            assert!(reserves(root(2), ".Streams"));
            drop(first);
            assert!(is_served(root(2)));
            drop(second);
            assert!(!is_served(root(2)) && !reserves(root(2), ".streams"));
        }
    }
}
