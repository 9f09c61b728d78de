//! The directories that this process serves as the roots of shares.
//!
//! A share may lie within another one. The depot in its root holds streams, each for the users who may open its file:
//! clients of the share around it must not reach the depot by its name either. Nor must those who find a snapshot of a
//! share below its root: each directory of a snapshot has the inode number and the birth time of its origin.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
};

use super::name;
use crate::{FileKey, lock};

/// A root and its snapshots: the inode number and the generation. Where there are no generations, as on ZFS,
/// directories of other file systems with the number count as well. That matters only to folders named as the depot.
type Root = (u64, u64);

/// The roots that are served.
static SERVED: Mutex<BTreeMap<Root, Served>> = Mutex::new(BTreeMap::new());

#[derive(Default)]
struct Served {
    /// How many shares have the root.
    shares: usize,
    /// The depots in them that were there when a share was opened, or that this server has made since.
    depots: BTreeSet<FileKey>,
}

/// A root that is served while this lives.
#[derive(Debug)]
pub(super) struct ServedRoot(Root);

impl ServedRoot {
    pub(super) fn new(directory: FileKey) -> Self {
        let root = with_snapshots(directory);
        lock(&SERVED).entry(root).or_default().shares += 1;
        Self(root)
    }

    pub(super) fn has_depot(&self, depot: FileKey) {
        if let Some(served) = lock(&SERVED).get_mut(&self.0) {
            served.depots.insert(depot);
        }
    }
}

fn with_snapshots(directory: FileKey) -> Root {
    (directory.ino, directory.generation)
}

impl Drop for ServedRoot {
    fn drop(&mut self) {
        let mut served = lock(&SERVED);
        if let Some(root) = served.get_mut(&self.0) {
            root.shares -= 1;
            if root.shares == 0 {
                served.remove(&self.0);
            }
        }
    }
}

/// Whether a directory is the root of a share, or that in a snapshot.
pub(super) fn is_served(directory: FileKey) -> bool {
    lock(&SERVED).contains_key(&with_snapshots(directory))
}

/// Whether the inode that was found by a name in the directory `above` is the depot of a share. Some file systems find
/// it by spellings that [`reserves`] does not know: compatible characters on ZFS, short names on NTFS and CIFS.
pub(super) fn is_depot(above: FileKey, name: &[u8], found: FileKey) -> bool {
    // Nearly every name is neither of these, so the table is rarely locked.
    if name.is_ascii() && !name.contains(&b'~') {
        return false;
    }
    // Without generations, another directory may have the number of a depot on another file system.
    let is_it = |depot: &FileKey| {
        with_snapshots(*depot) == with_snapshots(found)
            && (found.generation != 0 || depot.fs == found.fs)
    };
    let served = lock(&SERVED);
    let root = served.get(&with_snapshots(above));
    root.is_some_and(|root| root.depots.iter().any(is_it))
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
            let depot = |fs| key(fs, 0x5157_0004, generation);
            assert!(!is_depot(root(1), b"STREAM~1", depot(1)));
            first.has_depot(depot(1));
            assert!(is_depot(root(1), b"STREAM~1", depot(1)));
            assert!(is_depot(root(1), ".\u{FF53}treams".as_bytes(), depot(1)));
            assert_eq!(is_depot(root(2), b"STREAM~1", depot(2)), generation != 0);
            second.has_depot(key(3, 1, generation));
            assert!(is_depot(root(1), b"STREAM~1", depot(1)));
            assert!(!is_depot(root(1), b"STREAM~1", root(1)));
            assert!(!is_depot(depot(1), b"STREAM~1", depot(1)));
            drop(first);
            assert!(is_served(root(2)));
            drop(second);
            assert!(!is_served(root(2)) && !reserves(root(2), ".streams"));
        }
    }
}
