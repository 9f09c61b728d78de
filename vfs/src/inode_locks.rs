//! Locks on inodes, for changes that read an attribute and rewrite it, and on names of directories.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use tokio::sync::{Mutex as TurnLock, OwnedMutexGuard};

use crate::{FileKey, fold::fold, hash::fnv_1a, lock};

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

/// A name in a directory, in any case.
type Name<'a> = (FileKey, &'a str);

/// Locks on inodes whose attributes are read and rewritten, and on names that are about to be made or removed.
///
/// All that serve a disk share them: two shares over one folder, or a share before and after a reload, must not read
/// and rewrite the same attribute at once, nor make the same name in two cases, nor find a name free and move another
/// one there at once.
///
/// Unrelated inodes of a file system may share a lock, and unrelated names, so nobody may hold two of either but by
/// [`Self::names`]. The holder of a name may request an inode. File systems share none, so one that hangs holds up no
/// other.
#[derive(Debug, Default)]
pub struct InodeLocks {
    shards: Mutex<Shards>,
    /// A share on the disk may have a depot of streams. It is here because all that serve the disk must know.
    depot: AtomicBool,
}

impl InodeLocks {
    /// Called when a share is found to have a depot of streams, and before a folder of one is looked for or made.
    pub fn use_depot(&self) {
        self.depot.store(true, SeqCst);
    }

    /// Whether any share on the disk may have a depot of streams.
    pub fn uses_depot(&self) -> bool {
        self.depot.load(SeqCst)
    }

    pub async fn inode(&self, inode: FileKey) -> OwnedMutexGuard<()> {
        let place = (inode.fs, inode.ino % SHARDS);
        self.shard(place).lock_owned().await
    }

    pub async fn name(&self, directory: FileKey, shown: &str) -> OwnedMutexGuard<()> {
        self.shard(of_name((directory, shown))).lock_owned().await
    }

    /// As [`Self::name`], for a caller that has just seen a state, which is dropped if the lock had to be waited for.
    pub async fn name_after<T>(
        &self,
        directory: FileKey,
        shown: &str,
        seen: Option<T>,
    ) -> (OwnedMutexGuard<()>, Option<T>) {
        let shard = self.shard(of_name((directory, shown)));
        match Arc::clone(&shard).try_lock_owned() {
            Ok(name) => (name, seen),
            Err(_) => (shard.lock_owned().await, None),
        }
    }

    /// Waits for the locks of both names of a move, in an order that does not depend on theirs.
    pub async fn names(&self, one: Name<'_>, other: Name<'_>) -> [Option<OwnedMutexGuard<()>>; 2] {
        let [one, other] = [one, other].map(of_name);
        let first = self.shard(one.min(other)).lock_owned().await;
        let second = match one == other {
            true => None,
            false => Some(self.shard(one.max(other)).lock_owned().await),
        };
        [Some(first), second]
    }

    /// Waits for the lock of a file system under which folders that several inodes share are created. It is the last
    /// that an operation takes: its holder may hold the lock of an inode already, but must not request one.
    pub async fn folders(&self, fs: u64) -> OwnedMutexGuard<()> {
        self.shard((fs, FOLDERS)).lock_owned().await
    }

    fn shard(&self, place: (u64, u64)) -> Arc<TurnLock<()>> {
        let mut all = lock(&self.shards);
        if all.len() >= KEPT_MAX {
            all.retain(|_, one| Arc::strong_count(one) > 1);
        }
        Arc::clone(all.entry(place).or_default())
    }
}

/// The place of a name's lock. This hash is enough: clients gain nothing from choosing the shard.
fn of_name((directory, shown): Name<'_>) -> (u64, u64) {
    let (above, folded) = (directory.ino.to_le_bytes(), fold(shown));
    let hash = fnv_1a(above.into_iter().chain(folded.bytes()));
    (directory.fs, NAMES + hash % SHARDS)
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Waker},
    };

    use super::*;
    use crate::testing::{block_on, key};

    #[test]
    fn a_file_system_that_hangs_holds_no_lock_of_another() {
        let locks = InodeLocks::default();
        let _inode = block_on(locks.inode(key(64, 7)));
        let _folders = block_on(locks.folders(64));
        let mut context = Context::from_waker(Waker::noop());
        let poll = |fs, context: &mut Context<'_>| {
            let inode = pin!(locks.inode(key(fs, 7))).poll(context).is_ready();
            let folders = pin!(locks.folders(fs)).poll(context).is_ready();
            (inode, folders)
        };
        assert_eq!(poll(128, &mut context), (true, true));
        assert_eq!(poll(64, &mut context), (false, false));
    }

    #[test]
    fn two_locks_are_taken_as_one_where_they_are_the_same() {
        let locks = InodeLocks::default();
        let shard = |name: &str| of_name((key(1, 7), name));
        let mut others = (0..).map(|number| number.to_string());
        let alike = others.find(|name| shard(name) == shard("f")).unwrap();
        for (other, count) in [
            ((key(1, 7), "F"), 1),
            ((key(1, 7), &*alike), 1),
            ((key(2, 7), "f"), 2),
        ] {
            let both = block_on(locks.names((key(1, 7), "f"), other));
            assert_eq!(both.iter().flatten().count(), count);
            let free = |name| locks.shard(of_name(name)).try_lock_owned().is_ok();
            assert!(!free((key(1, 7), "f")) && !free(other));
            // No inode is locked by that.
            drop(block_on(locks.inode(key(1, 7))));
        }
        let (_name, seen) = block_on(locks.name_after(key(1, 7), "f", Some(())));
        assert!(seen.is_some());
    }

    #[test]
    fn only_locks_that_nobody_has_are_forgotten() {
        let locks = InodeLocks::default();
        let _held = block_on(locks.inode(key(1, 1)));
        for fs in 2..100 {
            for ino in 0..SHARDS {
                drop(block_on(locks.inode(key(fs, ino))));
            }
        }
        assert!(lock(&locks.shards).len() <= KEPT_MAX);
        let mut context = Context::from_waker(Waker::noop());
        assert!(pin!(locks.inode(key(1, 1))).poll(&mut context).is_pending());
    }
}
