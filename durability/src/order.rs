//! Names that move between directories, and syncs of directories: never at once.
//!
//! A directory's sync saves that a name left it. Where the name went is synced before
//! ([`crate::table::Durability::barrier`] knows the order), so nothing may leave between the two,
//! nor while the sync is under way. One lock for each file system: whoever syncs directories in
//! order shares it from planning to the end of the last sync; a move between two directories has
//! it alone, from before the move until it is marked. The kernel lets one such move through at a
//! time as well (`s_vfs_rename_mutex`).
//!
//! First come, first served. Nobody asks for it twice, and who has it for a move waits for no
//! sync; so it cannot lock up. A sync that hangs holds up the moves on its file system, and they
//! what comes after.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::share::lock;

/// Until all clones are dropped no name moves between directories of a file system.
#[derive(Clone)]
pub(crate) struct Still {
    _held: Arc<OwnedRwLockReadGuard<()>>,
}

/// A name may move between directories of a file system.
pub(crate) struct Move {
    _held: OwnedRwLockWriteGuard<()>,
}

/// The locks. As many as there were file systems.
#[derive(Default)]
pub(crate) struct Orders(Mutex<BTreeMap<u64, Arc<RwLock<()>>>>);

impl Orders {
    fn of(&self, fs: u64) -> Arc<RwLock<()>> {
        Arc::clone(lock(&self.0).entry(fs).or_default())
    }

    /// Before directories of a file system are synced in order.
    pub(crate) async fn still(&self, fs: u64) -> Still {
        let held = Arc::new(self.of(fs).read_owned().await);
        Still { _held: held }
    }

    /// Before a name moves between directories of a file system.
    pub(crate) async fn moving(&self, fs: u64) -> Move {
        let _held = self.of(fs).write_owned().await;
        Move { _held }
    }
}
