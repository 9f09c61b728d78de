//! The guard: suspends lazy policies while the host runs on battery.
//!
//! Lazy policies are chosen because a UPS keeps the host alive. While the guard is on, each lazy
//! policy of a share or of a rule is in force as `honor`. A bound is kept as well, because it
//! promises something about changes that no client flushed, which `honor` does not.
//!
//! Invariants: the guard is one flag of the engine that is read wherever a policy is, so it also
//! holds for shares, rules and opens that are added later, and the configuration stays as it is. It
//! is independent of a failed sync and of an administrator who sets a policy. The daemon decides when
//! it is on.

use std::sync::{Arc, atomic::Ordering::SeqCst};

use vfs::Vfs;

use crate::{dirty::Inode, gate::Gate, report::StopReport, share::Share, sync::Durability};

/// Why lazy policies of a share, its own or a rule's, are in force as `honor`. Nothing of it is
/// said of a share that has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAside {
    /// A sync failed: until no latch is left or an administrator acts.
    pub failed_sync: bool,
    /// [`Durability::set_guard`] is on.
    pub guard: bool,
}

impl<V: Vfs> Durability<V> {
    /// Puts the guard on, or takes it off again, for `who`: in force for every request from now
    /// on. What was acknowledged before is stable when [`Durability::sync_lazy`] says so. Answers
    /// whether that is news.
    pub fn set_guard(&self, on: bool, who: &str) -> bool {
        if self.guard.swap(on, SeqCst) == on {
            return false;
        }
        for share in self.shares().iter().filter(|share| share.has_lazy()) {
            let (configured, now) = (share.settings().policy, share.effective().policy);
            tracing::warn!(
                share = share.name,
                guard = on,
                %configured,
                in_force = %now,
                who,
                "lazy durability policies {}",
                if on { "are set aside for honor" } else { "hold again" }
            );
            // Requests that wait for room within a bound check it.
            share.room.notify_waiters();
            share.kick.notify_one();
        }
        true
    }

    /// Whether the guard is on.
    pub fn is_guarded(&self) -> bool {
        self.guard.load(SeqCst)
    }

    /// Syncs everything dirty of shares with a lazy policy, their own or a rule's, including the writes
    /// under way included.
    pub async fn sync_lazy(&self) -> StopReport {
        let mut lazy = self.shares();
        lazy.retain(|share| share.has_lazy());
        let is_lazy = |known: &Arc<Share>| lazy.iter().any(|share| Arc::ptr_eq(share, known));
        let keys = self.keys(|_, inode: &Inode<V>| inode.is_of(is_lazy));
        self.sync_many(keys).await
    }
}

impl<V: Vfs> Gate<V> {
    /// Why the lazy policies of the share are not in force, if so.
    pub fn set_aside(&self) -> SetAside {
        self.share().set_aside()
    }
}
