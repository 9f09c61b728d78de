//! Locks on inodes, for changes that read an attribute and rewrite it.

use crate::FileKey;

/// Shards of [`InodeLocks`].
const INODE_LOCK_SHARDS: usize = 64;

/// Locks on inodes whose attributes are read and rewritten. They are sharded, so unrelated inodes may share a lock, and
/// nobody may hold two.
#[derive(Debug)]
pub struct InodeLocks {
    shards: [tokio::sync::Mutex<()>; INODE_LOCK_SHARDS],
    folders: tokio::sync::Mutex<()>,
}

impl Default for InodeLocks {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| tokio::sync::Mutex::new(())),
            folders: tokio::sync::Mutex::new(()),
        }
    }
}

impl InodeLocks {
    /// Waits for the lock of an inode.
    #[expect(
        clippy::indexing_slicing,
        reason = "the remainder is below the array's length"
    )]
    pub async fn lock(&self, inode: FileKey) -> tokio::sync::MutexGuard<'_, ()> {
        let shard = (inode.ino ^ inode.fs) % INODE_LOCK_SHARDS as u64;
        self.shards[usize::try_from(shard).unwrap_or(0)]
            .lock()
            .await
    }

    /// Waits for the lock under which folders are created that several inodes share. Its holder may hold the lock
    /// of an inode already, but must not request one.
    pub async fn folders(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.folders.lock().await
    }
}
