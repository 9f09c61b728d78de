//! Turns of renames and of links that replace a file, and of removals that wait for them.
//!
//! A close that removes a name looks it up by its path, and the engine's paths follow a rename only after the disk:
//! in between, the path does not exist. Likewise it learns only after the disk that a name belongs to another file. A
//! removal that does not find its name takes a turn between those of the renames and links of the share, during which
//! the engine is right about every path. Shares that show the same folders have their turns together, because a rename
//! through one of them moves the paths of the others.
//!
//! Invariant: a removal that has the turn waits for no rename; so a turn of either kind is taken before one at the
//! durability gate, and released before another is taken.
//!
//! A rename on a file system that hangs keeps its turn. Other file systems may be mounted in the same share, and
//! renames there wait behind a removal that waits for a turn, so it waits no longer than [`STILL_MAX`].
//!
//! Bounded by the number of shares that ever existed: their numbers survive reloads.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};
use vfs::Env;

use crate::{
    file::ShareId,
    locks::Mutex,
    race::{First, race},
};

/// How long a removal waits for the renames under way, and later renames with it; and how long those wait for it.
pub(crate) const STILL_MAX: Duration = Duration::from_secs(5);

/// The turns of each share. Shares that have them together have the same lock.
#[derive(Debug, Default)]
pub(crate) struct NameTurns {
    shares: Mutex<BTreeMap<ShareId, Arc<RwLock<()>>>>,
}

/// While this lives, a name may have moved or been replaced on disk, and not yet in the engine.
#[must_use]
#[derive(Debug)]
pub(crate) struct Renaming(#[expect(dead_code, reason = "held")] OwnedRwLockReadGuard<()>);

/// Until this is dropped no name of the share is renamed or replaced, through whichever share.
#[must_use]
#[derive(Debug)]
pub(crate) struct Still(#[expect(dead_code, reason = "held")] OwnedRwLockWriteGuard<()>);

impl NameTurns {
    fn of(&self, share: ShareId) -> Arc<RwLock<()>> {
        let mut shares = self.shares.lock();
        Arc::clone(shares.entry(share).or_default())
    }

    /// From now on these shares have their turns together, also when a reload has moved them apart. A turn that is
    /// taken already stays as it is.
    pub(crate) fn join(&self, one: ShareId, other: ShareId) {
        let mut shares = self.shares.lock();
        let kept = Arc::clone(shares.entry(one).or_default());
        let left = Arc::clone(shares.entry(other).or_default());
        if !Arc::ptr_eq(&kept, &left) {
            let turns = shares.values_mut();
            for turn in turns.filter(|turn| Arc::ptr_eq(turn, &left)) {
                *turn = Arc::clone(&kept);
            }
        }
    }

    /// Takes the turn of a rename or of a link that replaces a file, to be held from before the change on disk until
    /// the engine has followed. Several may have it at once.
    pub(crate) async fn rename(&self, share: ShareId) -> Renaming {
        Renaming(self.of(share).read_owned().await)
    }

    /// Waits until the engine has followed all changes under way; later ones wait until the result is dropped. `None`
    /// if that takes too long: then the engine may be wrong about a path.
    pub(crate) async fn still(&self, share: ShareId, env: &dyn Env) -> Option<Still> {
        // The timer is made only if there is something to wait for.
        let patience = async { env.sleep(STILL_MAX).await };
        match race(self.of(share).write_owned(), patience).await {
            First::Left(still) => Some(Still(still)),
            First::Right(()) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Waker},
    };

    use super::*;
    use crate::{
        limits::ServerLimits,
        restore::world::{HASTE, World, run},
    };

    #[test]
    fn shares_of_one_folder_have_their_turns_together() {
        let server = World::new(false, ServerLimits::default()).server;
        let (turns, env) = (&server.name_turns, &*server.env);
        for (one, other) in [(1, 2), (4, 3), (3, 2)] {
            turns.join(ShareId(one), ShareId(other));
        }
        for share in 1..=5 {
            let under_way = run(turns.rename(ShareId(4)));
            let mut removal = pin!(turns.still(ShareId(share), env));
            let mut context = Context::from_waker(Waker::noop());
            let waits = removal.as_mut().poll(&mut context).is_pending();
            assert_eq!(waits, share < 5, "{share}");
            drop(under_way);
        }
    }

    #[test]
    fn a_rename_that_hangs_holds_up_other_renames_for_a_limited_time() {
        let server = World::new(false, ServerLimits::default()).server;
        let (turns, env, share) = (&server.name_turns, &*server.env, ShareId(1));
        let hangs = run(turns.rename(share));
        let mut context = Context::from_waker(Waker::noop());
        {
            let mut removal = pin!(turns.still(share, env));
            assert!(removal.as_mut().poll(&mut context).is_pending());
            let mut later = pin!(turns.rename(share));
            assert!(later.as_mut().poll(&mut context).is_pending());
        }
        HASTE.set(true);
        assert!(run(turns.still(share, env)).is_none(), "it waits no more");
        HASTE.set(false);
        drop(run(turns.rename(share)));
        drop(hangs);
        assert!(run(turns.still(share, env)).is_some());
    }
}
