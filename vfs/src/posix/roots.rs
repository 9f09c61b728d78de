//! The directories that this process serves as the roots of shares.
//!
//! A share may lie within another one. The depot in its root holds streams, each for the users who may open its file:
//! clients of the share around it must not reach the depot by its name either. Nor must those who find a snapshot of a
//! share below its root: each directory of a snapshot has the inode number and the birth time of its origin.

use std::{collections::BTreeMap, sync::Mutex};

use super::{PosixVfs, errno::unless, lookup::Child, name};
use crate::{
    FileKey, VfsResult,
    disk::{Disk, Errno},
    lock,
};

/// A root and its snapshots: the inode number and the generation. Where there are no generations, as on ZFS,
/// directories of other file systems with the number count as well. That matters only to folders named as the depot.
type Root = (u64, u64);

/// The roots that are served, each with the number of shares that have it.
static SERVED: Mutex<BTreeMap<Root, usize>> = Mutex::new(BTreeMap::new());

/// A root that is served while this lives.
#[derive(Debug)]
pub(super) struct ServedRoot(Root);

impl ServedRoot {
    pub(super) fn new(directory: FileKey) -> Self {
        let root = with_snapshots(directory);
        *lock(&SERVED).entry(root).or_default() += 1;
        Self(root)
    }
}

fn with_snapshots(directory: FileKey) -> Root {
    (directory.ino, directory.generation)
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
    lock(&SERVED).contains_key(&with_snapshots(directory))
}

/// Whether a file system may find the depot in a directory by this name although [`reserves`] does not know it: by
/// compatible characters on ZFS, by short names on NTFS and CIFS.
pub(super) fn may_be_depot(directory: FileKey, on_disk: &[u8]) -> bool {
    // Nearly every name is neither of these, so the table is rarely locked.
    (!on_disk.is_ascii() || on_disk.contains(&b'~')) && is_served(directory)
}

/// Whether a name in a directory is one of the server's own, which clients neither see nor may use.
pub(super) fn reserves(directory: FileKey, shown: &str) -> bool {
    // The first test is a comparison of strings and rules out nearly every name, so the table is rarely locked.
    name::is_reserved(true, shown) && name::is_reserved(is_served(directory), shown)
}

impl<D: Disk> PosixVfs<D> {
    /// Whether a child of a root is its depot, which the host may have made at any time.
    pub(super) async fn is_depot(&self, root: &D::Fd, child: &Child<D::Fd>) -> VfsResult<bool> {
        let Child::Inode(_, found) = child else {
            return Ok(false);
        };
        let depot = Box::pin(self.disk.stat_at(root, name::DEPOT.as_bytes())).await;
        // The service cannot use a depot that it does not reach, as in a folder of a user on NFS with root_squash.
        let depot = unless(depot, &[libc::ENOENT, libc::EACCES, libc::EPERM])?;
        Ok(depot.is_some_and(|depot| depot.key == found.key))
    }

    /// Whether the error of a call in a directory says that the directory was removed. On NFS, ESTALE says either that,
    /// or that the server has lost the whole export; then it does not know the root either, which statfs(2) always asks
    /// it for. Overlayfs returns ESTALE where its layers do not fit together.
    pub(super) async fn is_removed(&self, directory: FileKey, errno: Errno) -> bool {
        errno.is(&[libc::ESTALE])
            && directory.fs == self.root_key().fs
            && !self.disk.is_local(self.root.fd())
            && Box::pin(self.disk.stat_fs(self.root.fd())).await.is_ok()
    }
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
            for depot in [&b"STREAM~1"[..], ".\u{FF53}treams".as_bytes()] {
                assert!(may_be_depot(root(2), depot));
                assert!(!may_be_depot(key(1, 0x5157_0003, generation), depot));
            }
            assert!(!may_be_depot(root(1), b"streams"));
            drop(first);
            assert!(is_served(root(2)));
            drop(second);
            assert!(!is_served(root(2)) && !reserves(root(2), ".streams"));
        }
    }
}
