//! Locks on inodes, for changes that read an attribute and rewrite it, and on names of directories.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use tokio::sync::{Mutex as TurnLock, OwnedMutexGuard};

use crate::{FileKey, lock};

/// Locks that the inodes of a file system share; its names share as many.
const SHARDS: u64 = 64;
/// The number of the lock under which folders are created, after those of the inodes.
const FOLDERS: u64 = SHARDS;
/// The number of the first lock of names.
const NAMES: u64 = FOLDERS + 1;
/// Locks beyond this number are forgotten when nobody has them.
const KEPT_MAX: usize = 1024;

/// The lock of a shard, by the device and the number of the shard.
type Shards = BTreeMap<(u64, u64), Arc<TurnLock<()>>>;

/// Locks on inodes whose attributes are read and rewritten, and on names that are made or removed. Unrelated inodes of
/// a file system may share a lock, and unrelated names, so nobody may hold two of either but by [`Self::lock_names`].
/// The holder of a name may request an inode. File systems share none, so one that hangs holds up no other.
#[derive(Debug, Default)]
pub struct InodeLocks(Mutex<Shards>);

impl InodeLocks {
    /// Waits for the lock of an inode.
    pub async fn lock(&self, inode: FileKey) -> OwnedMutexGuard<()> {
        self.shard(of(inode)).lock_owned().await
    }

    /// Waits for the lock of a name: its hash stands in place of the number of the directory.
    pub async fn lock_name(&self, name: FileKey) -> OwnedMutexGuard<()> {
        self.shard(of_name(name)).lock_owned().await
    }

    /// The lock of a name, if nobody has it.
    pub fn try_lock_name(&self, name: FileKey) -> Option<OwnedMutexGuard<()>> {
        self.shard(of_name(name)).try_lock_owned().ok()
    }

    /// Waits for the locks of two names, in an order that does not depend on theirs.
    pub async fn lock_names(
        &self,
        one: FileKey,
        other: FileKey,
    ) -> [Option<OwnedMutexGuard<()>>; 2] {
        let [one, other] = [one, other].map(of_name);
        let first = self.shard(one.min(other)).lock_owned().await;
        let second = match one == other {
            true => None,
            false => Some(self.shard(one.max(other)).lock_owned().await),
        };
        [Some(first), second]
    }

    /// Waits for the lock of a file system under which folders that several inodes share are created. Its holder may
    /// hold the lock of an inode already, but must not request one.
    pub async fn folders(&self, fs: u64) -> OwnedMutexGuard<()> {
        self.shard((fs, FOLDERS)).lock_owned().await
    }

    fn shard(&self, place: (u64, u64)) -> Arc<TurnLock<()>> {
        let mut all = lock(&self.0);
        if all.len() >= KEPT_MAX {
            all.retain(|_, one| Arc::strong_count(one) > 1);
        }
        Arc::clone(all.entry(place).or_default())
    }
}

/// The place of an inode's lock.
fn of(inode: FileKey) -> (u64, u64) {
    (inode.fs, inode.ino % SHARDS)
}

/// The place of a name's lock.
fn of_name(name: FileKey) -> (u64, u64) {
    (name.fs, NAMES + name.ino % SHARDS)
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Waker},
    };

    use super::*;
    use crate::testing::block_on;

    fn key(fs: u64, ino: u64) -> FileKey {
        FileKey {
            fs,
            ino,
            generation: 0,
        }
    }

    #[test]
    fn a_file_system_that_hangs_holds_no_lock_of_another() {
        let locks = InodeLocks::default();
        let _inode = block_on(locks.lock(key(64, 7)));
        let _folders = block_on(locks.folders(64));
        let mut context = Context::from_waker(Waker::noop());
        let poll = |fs, context: &mut Context<'_>| {
            let inode = pin!(locks.lock(key(fs, 7))).poll(context).is_ready();
            let folders = pin!(locks.folders(fs)).poll(context).is_ready();
            (inode, folders)
        };
        assert_eq!(poll(128, &mut context), (true, true));
        assert_eq!(poll(64, &mut context), (false, false));
    }

    #[test]
    fn two_locks_are_taken_as_one_where_they_are_the_same() {
        let locks = InodeLocks::default();
        for (other, count) in [(key(1, 7), 1), (key(1, 7 + SHARDS), 1), (key(2, 7), 2)] {
            let both = block_on(locks.lock_names(key(1, 7), other));
            assert_eq!(both.iter().flatten().count(), count);
            let free = |name| locks.try_lock_name(name).is_some();
            assert!(!free(key(1, 7)) && !free(other));
            // No inode is locked by that.
            drop(block_on(locks.lock(key(1, 7))));
        }
        assert!(locks.try_lock_name(key(1, 7)).is_some());
    }

    #[test]
    fn only_locks_that_nobody_has_are_forgotten() {
        let locks = InodeLocks::default();
        let _held = block_on(locks.lock(key(1, 1)));
        for fs in 2..100 {
            for ino in 0..SHARDS {
                drop(block_on(locks.lock(key(fs, ino))));
            }
        }
        assert!(lock(&locks.0).len() <= KEPT_MAX);
        let mut context = Context::from_waker(Waker::noop());
        assert!(pin!(locks.lock(key(1, 1))).poll(&mut context).is_pending());
    }
}
