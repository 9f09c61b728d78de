//! File ids: a number for each file, unique below the share's root and the same after a restart.
//!
//! An inode number alone is unique on its file system only, and others may be mounted anywhere below the root. Each of
//! these has a number of its own, its salt, which is made of its identity and mixed into the ids of its inodes; the
//! root's file system has none, so ids there are inode numbers. A file system without an identity (NFS, FUSE) is known
//! by its device number, which may be another one after a restart.
//!
//! A directory that was reached through a symbolic link has an id of its own as well. Clients expect a directory to
//! have one name, and take two with the same id for one: they show, move and delete the contents of the wrong one. A
//! file keeps its id under every name, as one with hard links does.

use std::{collections::BTreeMap, sync::Mutex};

use crate::{FileKey, Kind, hash::mix, lock};

/// The most file systems whose salts are kept; inodes on others are known by their device number.
const FILE_SYSTEMS_MAX: usize = 4096;

/// A salt leaves this many bits to inode numbers, more than most file systems use.
const INODE_BITS: u32 = 40;

/// The links through which an object was reached, as one number; zero if there were none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Via(u64);

impl Via {
    /// The number for these links followed by the link whose id is `link`.
    pub(super) fn through(self, link: u64) -> Self {
        Self(mix(self.0 ^ link).max(1))
    }
}

#[derive(Debug)]
pub(super) struct FileIds {
    /// The device number of the root's file system.
    root: u64,
    salts: Mutex<BTreeMap<u64, u64>>,
}

impl FileIds {
    pub(super) fn new(root: u64) -> Self {
        Self {
            root,
            salts: Mutex::default(),
        }
    }

    /// Whether [`Self::of`] needs no more facts about a file system.
    pub(super) fn knows(&self, fs: u64) -> bool {
        if fs == self.root {
            return true;
        }
        let salts = lock(&self.salts);
        salts.contains_key(&fs) || salts.len() >= FILE_SYSTEMS_MAX
    }

    /// Takes the identity of a file system that is not known. If another one has the same salt (a copy of it, a layer
    /// of an overlay), the device number distinguishes them.
    pub(super) fn learn(&self, fs: u64, identity: u64) {
        let mut salts = lock(&self.salts);
        if fs == self.root || salts.contains_key(&fs) || salts.len() >= FILE_SYSTEMS_MAX {
            return;
        }
        let mut salt = salted(identity);
        while salts.values().any(|other| *other == salt) {
            salt = salted(salt ^ fs);
        }
        salts.insert(fs, salt);
    }

    pub(super) fn of(&self, inode: FileKey, kind: Kind, via: Via) -> u64 {
        let own = match inode.fs == self.root {
            true => inode.ino,
            false => {
                let salt = lock(&self.salts).get(&inode.fs).copied();
                inode.ino ^ salt.unwrap_or_else(|| salted(inode.fs))
            }
        };
        match via {
            Via(through) if through != 0 && kind == Kind::Directory => mix(own ^ mix(through)),
            _ => own,
        }
    }
}

fn salted(identity: u64) -> u64 {
    (mix(identity) >> INODE_BITS).max(1) << INODE_BITS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::key;

    #[test]
    fn ids_differ_between_file_systems_and_do_not_depend_on_their_order() {
        let (ids, again) = (FileIds::new(1), FileIds::new(7));
        ids.learn(2, 77);
        ids.learn(3, 88);
        again.learn(9, 88);
        again.learn(8, 77);
        let of = |ids: &FileIds, fs| ids.of(key(fs, 256), Kind::File, Via::default());
        assert_eq!((of(&ids, 1), of(&again, 7)), (256, 256));
        assert_eq!((of(&ids, 2), of(&ids, 3)), (of(&again, 8), of(&again, 9)));
        assert_ne!(of(&ids, 2), of(&ids, 3));
        // One that was never learned, and one that has another's identity.
        ids.learn(4, 77);
        let all = [1, 2, 3, 4, 5].map(|fs| of(&ids, fs));
        let different: std::collections::BTreeSet<_> = all.into_iter().collect();
        assert_eq!(different.len(), all.len(), "{all:x?}");
        assert!(ids.knows(1) && ids.knows(4) && !ids.knows(5));
    }
}
