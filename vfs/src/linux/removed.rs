//! Commits btrfs before changes of names that a power cut could otherwise undo or lose although all syncs of POSIX were
//! made.
//!
//! `fsync` of btrfs writes a log of the inode and its names (Linux 6.18). After a power cut its replay can be wrong
//! about names that were removed. Names in a committed transaction are right, and so are names that were only added.
//! Two cases are known, both found by `tests/blockcut`:
//! - X gets a name by rename, A is renamed over it, A and all directories are synced, A is renamed
//!   away, all is synced again: after a power cut X has the name, because its entry stayed in the log.
//!   `tests/blockcut/log_tree.py` holds the calls. So a directory that names *left* since the last commit has the file
//!   system committed before its own `fsync` ([`due`]).
//! - B is synced, which logs its name; A, which is not in the log, is renamed over it; something else is synced: B's
//!   name is removed from the log and A's is not added, so after a power cut neither has it. So before a name is
//!   replaced that may be in the *log*, the file system is committed ([`replacing`]), and once more if a sync came in
//!   between ([`Target::replaced`]).
//!
//! A sync counts from its beginning to its end ([`Syncing`]): it is not known when in between the log was written, so a
//! commit that ends meanwhile does not clear the entry.
//!
//! A commit writes back the data of the whole file system, which is why it is not done for every
//! name. The process has one table, because a sync of one share must take the changes of another into account. It is
//! bounded by [`NOTED_MAX`] inodes of each kind and device; beyond that, every inode counts as noted.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd, OwnedFd},
    sync::{Mutex, MutexGuard},
};

use rustix::fs::{Mode, OFlags};

use super::{calls, fd::LinuxFd};
use crate::{
    FileKey,
    disk::{DiskResult, Errno},
    lock, posix_sys as raw,
};

/// Inodes of a device that are remembered one by one.
const NOTED_MAX: usize = 4096;

/// Inodes for which an event was noted, by number, with the moment of the last one.
#[derive(Default)]
struct Noted {
    inodes: BTreeMap<u64, u64>,
    /// The last moment that could not be recorded because the table was full.
    others: Option<u64>,
    /// The directories that are losing a name now, and how often; at most one for each thread.
    under_way: BTreeMap<u64, usize>,
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
        self.others.is_some() || self.inodes.contains_key(&ino) || self.under_way.contains_key(&ino)
    }

    /// Whether the event was noted for the inode after a moment.
    fn has_since(&self, ino: u64, moment: u64) -> bool {
        let later = |at: &u64| *at > moment;
        self.others.as_ref().is_some_and(later)
            || self.inodes.get(&ino).is_some_and(later)
            || self.under_way.contains_key(&ino)
    }

    fn ends(&mut self, ino: u64) {
        if let Some(count) = self.under_way.get_mut(&ino) {
            *count -= 1;
            if *count == 0 {
                self.under_way.remove(&ino);
            }
        }
    }

    /// Forgets the events up to `until`, because a commit that began after it has ended.
    fn forget(&mut self, until: u64) {
        self.inodes.retain(|_, moment| *moment > until);
        self.others = self.others.filter(|moment| *moment > until);
    }
}

/// The removals since the last commit.
#[derive(Default)]
struct Since {
    /// The number of events noted, which serves as the clock.
    now: u64,
    /// Directories from which names were removed.
    left: Noted,
    /// Inodes that were synced.
    logged: Noted,
}

/// By device number.
static SINCE: Mutex<BTreeMap<u64, Since>> = Mutex::new(BTreeMap::new());

fn since() -> MutexGuard<'static, BTreeMap<u64, Since>> {
    lock(&SINCE)
}

/// Notes that a name was or may have been removed from the directory. To be called on btrfs only, like the next two.
pub(super) fn left(dir: &LinuxFd) {
    // An inode that cannot be queried has no name that a sync could promise.
    if let Ok(stat) = calls::stat(dir) {
        let mut all = since();
        let one = all.entry(stat.key.fs).or_default();
        one.now += 1;
        one.left.note(stat.key.ino, one.now);
    }
}

/// A sync of an inode under way. The inode counts as logged while this lives, and afterwards until the next commit.
pub(super) struct Syncing(Option<FileKey>);

impl Syncing {
    /// Begins a sync; it is noted on btrfs only.
    pub(super) fn begin(fd: &LinuxFd) -> Self {
        match fd.class().names_come_back {
            true => Self::noted(fd),
            false => Self(None),
        }
    }

    fn noted(fd: &LinuxFd) -> Self {
        // An inode that cannot be queried has no name that a sync could promise.
        let key = calls::stat(fd).ok().map(|stat| stat.key);
        if let Some(key) = key {
            let mut all = since();
            let logged = &mut all.entry(key.fs).or_default().logged;
            *logged.under_way.entry(key.ino).or_default() += 1;
        }
        Self(key)
    }
}

impl Drop for Syncing {
    fn drop(&mut self) {
        if let Some(key) = self.0
            && let Some(one) = since().get_mut(&key.fs)
        {
            one.now += 1;
            one.logged.note(key.ino, one.now);
            one.logged.ends(key.ino);
        }
    }
}

/// The object that a rename is about to replace.
#[derive(Debug)]
pub(super) struct Target {
    old: FileKey,
    above: FileKey,
    /// Opened before the rename, so that a commit after it does not fail for want of a descriptor.
    by: OwnedFd,
    /// The moment when it was queried.
    moment: u64,
}

/// To be called before a name of the directory is replaced: the log may have the present owner of the name, and
/// that it lost the name, but not the new owner. `None` if nothing has the name.
pub(super) fn replacing(dir: &LinuxFd, name: &[u8]) -> DiskResult<Option<Target>> {
    let old = match calls::stat_at(dir, name, libc::DT_UNKNOWN) {
        // Nothing replaces what is mounted there: the kernel refuses the rename.
        Err(Errno(libc::ENOENT | libc::EXDEV)) => return Ok(None),
        old => old?.key,
    };
    let above = calls::stat(dir)?.key;
    let (by, moment) = (
        readable(dir)?,
        since().get(&old.fs).map_or(0, |one| one.now),
    );
    let logged = |since: &Since| since.logged.has(old.ino) || since.logged.has(above.ino);
    commit_if(old.fs, logged, || sync(&by))?;
    Ok(Some(Target {
        old,
        above,
        by,
        moment,
    }))
}

impl Target {
    /// Whether the name may have got into the log since it was queried.
    #[cfg(test)]
    fn is_logged(&self) -> bool {
        since().get(&self.old.fs).is_some_and(|one| self.is_in(one))
    }

    fn is_in(&self, since: &Since) -> bool {
        since.logged.has_since(self.old.ino, self.moment)
            || since.logged.has_since(self.above.ino, self.moment)
    }

    /// To be called after the replacement: commits it, if a sync came in between that may have logged the name. If
    /// that fails, the directories still count as left by a name, and their next sync tries it again.
    pub(super) fn replaced(&self) {
        let logged = |since: &Since| self.is_in(since);
        let committed = commit_if(self.old.fs, logged, || calls::repeat(|| sync(&self.by)));
        if let Err(errno) = committed {
            tracing::error!(
                errno = errno.0,
                "btrfs could not be committed: a power cut may take a name that was replaced"
            );
        }
    }
}

/// A directory whose `fsync` needs a commit before it.
pub(super) struct Due {
    by: OwnedFd,
    key: FileKey,
}

/// Called before a directory's `fsync`: whether the log could be wrong about its names. An error says that nothing has
/// begun.
pub(super) fn due(dir: &LinuxFd) -> DiskResult<Option<Due>> {
    if !dir.class().names_come_back {
        return Ok(None);
    }
    let key = calls::stat(dir)?.key;
    if !since()
        .get(&key.fs)
        .is_some_and(|one| one.left.has(key.ino))
    {
        return Ok(None);
    }
    let by = readable(dir)?;
    Ok(Some(Due { by, key }))
}

impl Due {
    pub(super) fn commit(&self) -> DiskResult<()> {
        let left = |since: &Since| since.left.has(self.key.ino);
        commit_if(self.key.fs, left, || sync(&self.by))
    }
}

fn commit_if(
    device: u64,
    needed: impl FnOnce(&Since) -> bool,
    commit: impl FnOnce() -> DiskResult<()>,
) -> DiskResult<()> {
    let now = match since().get(&device) {
        Some(one) if needed(one) => one.now,
        _ => return Ok(()),
    };
    commit()?;
    if let Some(one) = since().get_mut(&device) {
        one.left.forget(now);
        one.logged.forget(now);
    }
    Ok(())
}

/// Whether a name was removed from the directory since the last commit.
#[cfg(test)]
pub(super) fn was_left(key: FileKey) -> bool {
    since()
        .get(&key.fs)
        .is_some_and(|one| one.left.has(key.ino))
}

/// Whether the inode was synced since the last commit.
#[cfg(test)]
pub(super) fn was_logged(key: FileKey) -> bool {
    since()
        .get(&key.fs)
        .is_some_and(|one| one.logged.has(key.ino))
}

/// A descriptor of the directory by which its file system can be committed: its own may be one that only names it
/// (`O_PATH`).
fn readable(dir: &LinuxFd) -> DiskResult<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(dir, c".", flags, Mode::empty())?)
}

fn sync(dir: &OwnedFd) -> DiskResult<()> {
    match raw::btrfs_sync(dir.as_fd()) {
        // A sandbox may refuse this ioctl.
        Err(Errno(libc::ENOTTY | libc::EPERM | libc::ENOSYS)) => Ok(rustix::fs::syncfs(dir)?),
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
        // A commit runs that began after the second event.
        noted.note(8, 3);
        noted.forget(2);
        assert!(!noted.has(7));
        assert!(noted.has(8));
        noted.forget(3);
        assert!(!noted.has(8));
    }

    #[test]
    fn a_sync_counts_until_it_has_ended_whatever_was_committed_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let disk = super::super::LinuxDisk::open(folder.path()).unwrap();
        let dir = crate::Disk::root(&disk);
        std::fs::write(folder.path().join("f"), "x").unwrap();
        let key = calls::stat(&dir).unwrap().key;
        // As `commit_if` after a commit that began now.
        let committed = |key: FileKey| {
            let mut all = since();
            if let Some(one) = all.get_mut(&key.fs) {
                let now = one.now;
                one.logged.forget(now);
            }
        };
        let target = Target {
            old: key,
            above: key,
            by: readable(&dir).unwrap(),
            moment: since().get(&key.fs).map_or(0, |one| one.now),
        };
        assert!(!target.is_logged());
        let syncing = Syncing::noted(&dir);
        committed(key);
        assert!(was_logged(key), "it may log something yet");
        assert!(target.is_logged());
        drop(syncing);
        assert!(was_logged(key), "it has logged something after the commit");
        assert!(target.is_logged());
        committed(key);
        assert!(!was_logged(key));
        drop(Syncing(None));
        assert!(!was_logged(key));
    }

    #[test]
    fn a_name_that_cannot_be_looked_up_does_not_count_as_free() {
        let folder = tempfile::tempdir().unwrap();
        let disk = super::super::LinuxDisk::open(folder.path()).unwrap();
        let dir = crate::Disk::root(&disk);
        assert!(replacing(&dir, b"free").unwrap().is_none());
        let refused = replacing(&dir, &[b'x'; 300]).unwrap_err();
        assert_eq!(refused, Errno(libc::ENAMETOOLONG));
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
