//! Names of btrfs that a power cut may bring back or take, although POSIX's syncs were made.
//!
//! `fsync` of btrfs writes a log of the inode and its names (Linux 6.18). A replay can be wrong
//! about names that went; what a transaction has committed is right, and so are names that only
//! came. Two cases are known, both found by `tests/blockcut`:
//! - X gets a name by rename, A is renamed over it, A and all directories are synced, A is renamed
//!   away, all is synced again: X has the name, because its entry stayed in the log.
//!   `tests/blockcut/log_tree.rs` holds the calls. So a directory that names *left* since the
//!   last commit has the file system committed before its own `fsync` ([`commit`]).
//! - B is synced, which logs its name; A, which no log knows, is renamed over it; something else
//!   is synced: B's name is taken out of the log and A's not put in, and neither has it. So before
//!   a name is replaced that may be in the *log*, the file system is committed ([`replacing`]).
//!
//! A commit writes back the data of the whole file system, which is why it is not done for every
//! name. One memory for the process: what one share does another one's sync must know. Bounded by
//! [`NOTED_MAX`] inodes of each kind and device; beyond, every inode counts as noted.

use std::{
    collections::BTreeMap,
    os::fd::AsFd,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::fs::{Mode, OFlags};

use super::{
    calls::{self, SysFd},
    super_block::BTRFS,
};
use crate::{
    disk::{DiskResult, Errno},
    posix_sys as raw,
};

/// Inodes of a device that are remembered one by one.
const NOTED_MAX: usize = 4096;

/// Inodes that something happened to, by number, with the moment it last did.
#[derive(Default)]
struct Noted {
    inodes: BTreeMap<u64, u64>,
    /// The last moment for which there was no room.
    others: Option<u64>,
}

impl Noted {
    fn note(&mut self, ino: u64, now: u64) {
        if self.inodes.len() < NOTED_MAX || self.inodes.contains_key(&ino) {
            self.inodes.insert(ino, now);
        } else {
            self.others = Some(now);
        }
    }

    fn has(&self, ino: u64) -> bool {
        self.others.is_some() || self.inodes.contains_key(&ino)
    }

    /// A commit that began after `until` has ended.
    fn forget(&mut self, until: u64) {
        self.inodes.retain(|_, moment| *moment > until);
        self.others = self.others.filter(|moment| *moment > until);
    }
}

/// What happened since the last commit.
#[derive(Default)]
struct Since {
    /// Counts what was noted.
    now: u64,
    /// Directories that names left.
    left: Noted,
    /// Inodes that were synced.
    logged: Noted,
}

/// By device number.
static SINCE: Mutex<BTreeMap<u64, Since>> = Mutex::new(BTreeMap::new());

fn since() -> MutexGuard<'static, BTreeMap<u64, Since>> {
    SINCE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn note(fd: &SysFd, which: impl FnOnce(&mut Since) -> &mut Noted) {
    // What cannot be looked at has no name that a sync could promise.
    if let Ok(stat) = calls::stat(fd) {
        let mut all = since();
        let one = all.entry(stat.key.fs).or_default();
        one.now += 1;
        let now = one.now;
        which(one).note(stat.key.ino, now);
    }
}

/// A name has left the directory, or may have. On btrfs only, as the next two.
pub(super) fn left(dir: &SysFd) {
    note(dir, |since| &mut since.left);
}

/// The inode is about to be synced.
pub(super) fn logged(fd: &SysFd) {
    note(fd, |since| &mut since.logged);
}

/// To be called before a name of the directory is replaced: what has it now, and that it is
/// replaced, may be in the log, but not by what.
pub(super) fn replacing(dir: &SysFd, name: &[u8]) -> DiskResult<()> {
    let Ok(old) = calls::stat_at(dir, name) else {
        return Ok(());
    };
    let above = calls::stat(dir)?.key;
    commit_if(old.key.fs, dir, |since| {
        since.logged.has(old.key.ino) || since.logged.has(above.ino)
    })
}

/// To be called before a directory's `fsync`: commits the file system if the log could be wrong
/// about its names. `noted` says that removals are told to [`left`]; else any may have been.
pub(super) fn commit(dir: &SysFd, noted: bool) -> DiskResult<()> {
    if calls::kind_of_fs(dir)? != BTRFS {
        return Ok(());
    }
    if !noted {
        return sync(dir);
    }
    let key = calls::stat(dir)?.key;
    commit_if(key.fs, dir, |since| since.left.has(key.ino))
}

fn commit_if(device: u64, dir: &SysFd, needed: impl FnOnce(&Since) -> bool) -> DiskResult<()> {
    let now = match since().get(&device) {
        Some(one) if needed(one) => one.now,
        _ => return Ok(()),
    };
    sync(dir)?;
    if let Some(one) = since().get_mut(&device) {
        one.left.forget(now);
        one.logged.forget(now);
    }
    Ok(())
}

/// Whether a name has left the directory since the last commit.
#[cfg(test)]
pub(super) fn was_left(key: crate::FileKey) -> bool {
    since()
        .get(&key.fs)
        .is_some_and(|one| one.left.has(key.ino))
}

/// Whether the inode was synced since the last commit.
#[cfg(test)]
pub(super) fn was_logged(key: crate::FileKey) -> bool {
    since()
        .get(&key.fs)
        .is_some_and(|one| one.logged.has(key.ino))
}

/// Commits the directory's file system.
fn sync(dir: &SysFd) -> DiskResult<()> {
    // The descriptor may be one that only names it (`O_PATH`).
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(dir, c".", flags, Mode::empty()).map_err(calls::errno)?;
    match raw::btrfs_sync(fd.as_fd()) {
        // A sandbox that lets no such ioctl through.
        Err(Errno(libc::ENOTTY | libc::EPERM | libc::ENOSYS)) => {
            rustix::fs::syncfs(&fd).map_err(calls::errno)
        }
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_stays_until_a_commit_that_began_later() {
        let mut noted = Noted::default();
        assert!(!noted.has(7));
        noted.note(7, 1);
        noted.note(8, 2);
        // While a commit runs that began after the second.
        noted.note(8, 3);
        noted.forget(2);
        assert!(!noted.has(7));
        assert!(noted.has(8));
        noted.forget(3);
        assert!(!noted.has(8));
    }

    #[test]
    fn beyond_the_limit_every_inode_counts() {
        let mut noted = Noted::default();
        (0..=NOTED_MAX as u64).for_each(|ino| noted.note(ino, ino + 1));
        assert_eq!(noted.inodes.len(), NOTED_MAX);
        assert!(noted.has(u64::MAX));
        noted.forget(NOTED_MAX as u64 + 1);
        assert!(!noted.has(u64::MAX));
        assert!(!noted.has(3));
    }
}
