//! The directories that this process serves as the roots of shares.
//!
//! A share may lie within another one. The depot in its root holds streams, each for the users who may open its file:
//! clients of the share around it must not reach the depot by its name either.

use std::{collections::BTreeMap, sync::Mutex};

use super::name;
use crate::{FileKey, lock};

/// How many shares have a root, by its file system and inode.
static SERVED: Mutex<BTreeMap<(u64, u64), usize>> = Mutex::new(BTreeMap::new());

/// A root that is served while this lives.
#[derive(Debug)]
pub(super) struct ServedRoot((u64, u64));

impl ServedRoot {
    pub(super) fn new(root: FileKey) -> Self {
        let inode = (root.fs, root.ino);
        *lock(&SERVED).entry(inode).or_default() += 1;
        Self(inode)
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

/// Whether a directory is the root of a share.
pub(super) fn is_served(directory: FileKey) -> bool {
    lock(&SERVED).contains_key(&(directory.fs, directory.ino))
}

/// Whether a name in a directory is one of the server's own, which clients neither see nor may use.
pub(super) fn reserves(directory: FileKey, shown: &str) -> bool {
    // The first test is a comparison of strings and rules out nearly every name, so the table is rarely locked.
    name::is_reserved(true, shown) && name::is_reserved(is_served(directory), shown)
}
