//! Turns of renames and of links that replace a file, and of removals that wait for them.
//!
//! A close that removes a name looks it up by its path, and the engine's paths follow a rename only after the disk:
//! in between, the path does not exist. Likewise it learns only after the disk that a name belongs to another file. A
//! removal that does not find its name takes a turn between those of the renames and links of the share, during which
//! the engine is right about every path.
//!
//! Invariant: a removal that has the turn waits for no rename; so a turn of either kind is taken before one at the
//! durability gate, and released before another is taken.
//!
//! Bounded by the number of shares that ever existed: their numbers survive reloads.

use std::{collections::BTreeMap, sync::Arc};

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::{file::ShareId, locks::Mutex};

/// The turns of each share.
#[derive(Debug, Default)]
pub(crate) struct NameTurns {
    shares: Mutex<BTreeMap<ShareId, Arc<RwLock<()>>>>,
}

/// While this lives, a name may have moved or been replaced on disk, and not yet in the engine.
#[must_use]
#[derive(Debug)]
pub(crate) struct Renaming(#[expect(dead_code, reason = "held")] OwnedRwLockReadGuard<()>);

/// Until this is dropped no name of the share is renamed or replaced.
#[must_use]
#[derive(Debug)]
pub(crate) struct Still(#[expect(dead_code, reason = "held")] OwnedRwLockWriteGuard<()>);

impl NameTurns {
    fn of(&self, share: ShareId) -> Arc<RwLock<()>> {
        let mut shares = self.shares.lock();
        Arc::clone(shares.entry(share).or_default())
    }

    /// Takes the turn of a rename or of a link that replaces a file, to be held from before the change on disk until
    /// the engine has followed. Several may have it at once.
    pub(crate) async fn rename(&self, share: ShareId) -> Renaming {
        Renaming(self.of(share).read_owned().await)
    }

    /// Waits until the engine has followed all changes under way; later ones wait until the result is dropped.
    pub(crate) async fn still(&self, share: ShareId) -> Still {
        Still(self.of(share).write_owned().await)
    }
}
