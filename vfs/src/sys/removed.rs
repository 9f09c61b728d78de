//! Names that went, on a file system whose log may bring them back.
//!
//! `fsync` of a directory makes its entries stable, by POSIX. On btrfs (found with Linux 6.18) it
//! does not always: X gets a name by rename, A is renamed over it, A and all directories are
//! synced, A is renamed away, everything is synced again, and after a cut X has the name. The log
//! that `fsync` writes has kept X's entry. `tests/blockcut/log_tree.rs` holds the calls. What
//! a transaction has committed is right, and so are names that only came.
//!
//! So directories of a btrfs that names left, by removal, rename or replacement, are remembered
//! until a commit that began later, and [`commit`] comes before their `fsync`. A commit writes
//! back the data of the whole file system, which is why it is not done for each new name.
//!
//! One memory for the process: what one share removes another one may sync. At most [`DIRS_MAX`]
//! directories of a device by name; beyond, every directory counts.

use std::{
    collections::BTreeMap,
    os::fd::AsFd,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{
    calls::{self, SysFd},
    super_block::BTRFS,
};
use crate::{
    disk::{DiskResult, Errno},
    posix_sys as raw,
};

/// Directories of a device that are remembered one by one.
const DIRS_MAX: usize = 4096;

/// Directories of a device that names left. Numbers tell the order of removals.
#[derive(Default)]
struct Removed {
    last: u64,
    /// By inode number, the last removal.
    dirs: BTreeMap<u64, u64>,
    /// The last removal for which there was no room.
    others: Option<u64>,
}

impl Removed {
    fn note(&mut self, ino: u64) {
        self.last += 1;
        if self.dirs.len() < DIRS_MAX || self.dirs.contains_key(&ino) {
            self.dirs.insert(ino, self.last);
        } else {
            self.others = Some(self.last);
        }
    }

    /// Whether names left it; if so, the last removal so far anywhere.
    fn owes(&self, ino: u64) -> Option<u64> {
        (self.others.is_some() || self.dirs.contains_key(&ino)).then_some(self.last)
    }

    /// All removals up to this one are committed.
    fn committed(&mut self, last: u64) {
        self.dirs.retain(|_, removal| *removal > last);
        self.others = self.others.filter(|removal| *removal > last);
    }
}

/// By device number.
static REMOVED: Mutex<BTreeMap<u64, Removed>> = Mutex::new(BTreeMap::new());

fn removed() -> MutexGuard<'static, BTreeMap<u64, Removed>> {
    REMOVED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A name has left the directory, or may have. For directories of a file system of kind btrfs.
pub(super) fn note(dir: &SysFd) {
    // What cannot be looked at has no name that a sync could promise.
    if let Ok(stat) = calls::stat(dir) {
        let mut all = removed();
        all.entry(stat.key.fs).or_default().note(stat.key.ino);
    }
}

/// To be called before a directory's `fsync`: commits the file system if that could lose what
/// became of its names. `noted` says that removals are told to [`note`]; else any directory may
/// have had one.
pub(super) fn commit(dir: &SysFd, noted: bool) -> DiskResult<()> {
    if calls::kind_of_fs(dir)? != BTRFS {
        return Ok(());
    }
    let key = calls::stat(dir)?.key;
    let mut last = 0;
    if noted {
        let owed = removed().get(&key.fs).and_then(|one| one.owes(key.ino));
        let Some(owed) = owed else { return Ok(()) };
        last = owed;
    }
    match raw::btrfs_sync(dir.as_fd()) {
        // A sandbox that lets no such ioctl through.
        Err(Errno(libc::ENOTTY | libc::EPERM | libc::ENOSYS)) => {
            rustix::fs::syncfs(dir).map_err(calls::errno)?;
        }
        done => done?,
    }
    let mut all = removed();
    if let Some(one) = all.get_mut(&key.fs) {
        one.committed(last);
        if one.dirs.is_empty() && one.others.is_none() && one.last == last {
            all.remove(&key.fs);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_owes_a_commit_until_one_that_began_later() {
        let mut removed = Removed::default();
        assert_eq!(removed.owes(7), None);
        removed.note(7);
        removed.note(8);
        let begun = removed.owes(7).unwrap();
        // While that commit runs.
        removed.note(8);
        removed.committed(begun);
        assert_eq!(removed.owes(7), None);
        let begun = removed.owes(8).unwrap();
        removed.committed(begun);
        assert_eq!(removed.owes(8), None);
    }

    #[test]
    fn beyond_the_limit_every_directory_owes_one() {
        let mut removed = Removed::default();
        (0..DIRS_MAX as u64 + 1).for_each(|ino| removed.note(ino));
        assert_eq!(removed.dirs.len(), DIRS_MAX);
        let begun = removed.owes(u64::MAX).unwrap();
        removed.committed(begun);
        assert_eq!(removed.owes(u64::MAX), None);
        assert_eq!(removed.owes(3), None);
    }
}
