//! Turns of renames, and of removals that wait for them.
//!
//! A close that removes a name looks it up by its path, and the engine's paths follow a rename only after the disk:
//! in between, the path does not exist. A removal that does not find its name takes a turn between the renames of
//! the share, during which every path is right.
//!
//! Invariant: a removal that has the turn waits for no rename; so a turn of either is taken before one at the
//! durability gate, and released before another is taken.
//!
//! Bounded by the number of shares that ever existed: their numbers stay over reloads.

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::{file::ShareId, locks::Mutex};

/// One turn after the other for each share.
#[derive(Debug, Default)]
pub(crate) struct NameTurns {
    shares: Mutex<BTreeMap<ShareId, Arc<RwLock<()>>>>,
}

/// Until this is dropped a name may have moved whose path has not.
#[must_use]
#[derive(Debug)]
pub(crate) struct Renaming(#[expect(dead_code, reason = "held")] OwnedRwLockReadGuard<()>);

/// Until this is dropped no name of the share is renamed.
#[must_use]
#[derive(Debug)]
pub(crate) struct Still(#[expect(dead_code, reason = "held")] OwnedRwLockWriteGuard<()>);

impl NameTurns {
    fn of(&self, share: ShareId) -> Arc<RwLock<()>> {
        let mut shares = self.shares.lock();
        Arc::clone(shares.entry(share).or_default())
    }

    /// From before a rename on disk until the paths have followed. Renames go on side by side.
    pub(crate) async fn rename(&self, share: ShareId) -> Renaming {
        Renaming(self.of(share).read_owned().await)
    }

    /// When the paths have followed all renames that are under way; the next ones wait.
    pub(crate) async fn still(&self, share: ShareId) -> Still {
        Still(self.of(share).write_owned().await)
    }
}
