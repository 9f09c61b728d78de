//! Keeps the bound when a change is acknowledged.
//!
//! FLUSH and write-through wait for the disk if it is too slow for the bound; other changes wait for the background
//! syncs to keep up. No change is synced here for its own sake. `dirty/latency.rs` judges what the disk can do.

use std::{sync::Arc, time::Duration};

use vfs::{FileKey, Node, VfsResult, Volume};

use super::{Gate, Judged};
use crate::{
    dirty::Inode, metrics::count, policy::Bound, report::TooSlow, share::Share, tasks::race,
};

impl<V: Volume> Gate<V> {
    /// Waits until the acknowledgement of a change keeps the bound.
    pub(super) async fn keep_bound(&self, node: &V::Node, judged: Judged) -> VfsResult<()> {
        let key = node.key();
        // A client that asked for stability gets it now if the disk is too slow to give it within the bound.
        // Every other change is not synced here: it waits for the background syncs to keep up.
        if judged.barriers.deferred && self.is_too_slow(key, judged) {
            return self.core.barrier_unless_clean(self.held(node)).await;
        }
        self.hold_back(key, judged.bound).await;
        Ok(())
    }

    /// Whether the disk is too slow for a bound of the inode's dirty state. If so, FLUSH waits as under `honor`.
    pub(super) fn is_too_slow(&self, key: FileKey, judged: Judged) -> bool {
        let Some(all) = judged.bound else {
            return false;
        };
        let chain = self.core.chain(key);
        let mut slow = false;
        for share in self.bounded(key) {
            let bound = share.bound_for(all);
            if bound.is_some_and(|bound| !share.keeping(&bound, chain).at_once) {
                count(&share.metrics.backpressure);
                slow = true;
            }
        }
        slow
    }

    /// The shares whose bound a change must keep: this one if it has one, and those that are charged with something
    /// dirty of the inode.
    fn bounded(&self, key: FileKey) -> impl Iterator<Item = Arc<Share>> {
        let beside = |inode: &Inode<V>| inode.bounded_beside(&self.share);
        let others = self.core.peek(key, beside).unwrap_or_default();
        let own = self.share.bound().map(|_| Arc::clone(&self.share));
        own.into_iter().chain(others)
    }

    /// Holds an answer back until its change keeps the bound of each share that has one, by waiting for the syncs of
    /// that share, which run anyway.
    pub(super) async fn hold_back(&self, key: FileKey, bound: Option<Bound>) {
        let Some(all) = bound else { return };
        let marked = self.core.tick();
        for share in self.bounded(key) {
            self.hold_back_for(&share, key, all, marked).await;
        }
    }

    async fn hold_back_for(&self, share: &Arc<Share>, key: FileKey, all: Bound, marked: u64) {
        let core = &self.core;
        let at_once = core.limits.syncs_in_flight_max;
        let Some(mut bound) = share.bound_for(all) else {
            return;
        };
        let mut held_back = false;
        loop {
            let room = share.room.notified();
            let now = core.now();
            let keeping = share.keeping(&bound, core.chain(key));
            let mut allowed = bound;
            allowed.max_delay = keeping.oldest;
            let behind = core.peek(key, |inode| inode.begun_before(marked));
            let behind = behind.flatten();
            let until = behind.map_or(Duration::ZERO, |begun| keeping.held_until(begun));
            let breaks = share.breaks(key.fs, &allowed, now);
            if until <= now && !breaks && !share.is_behind(key.fs, at_once, &keeping) {
                return;
            }
            // A tripped share keeps no bound any more: everything dirty is synced and errors are reported.
            let asked = core.peek(key, |inode| inode.opens.effective(share));
            let asked = asked.unwrap_or_else(|| share.asked(None));
            let kept = asked.bound.and_then(|all| share.bound_for(all));
            let Some(kept) = kept else { return };
            bound = kept;
            if !std::mem::replace(&mut held_back, true) {
                count(&share.metrics.backpressure);
                if share.is_older(key.fs, bound.max_delay, now) {
                    count(&share.metrics.bound_exceeded);
                }
            }
            share.kick.notify_one();
            match until > now {
                true => race(core.env.sleep(until - now), room).await,
                false => room.await,
            }
        }
    }

    /// For how long the disk has been too slow for the share's bound unless FLUSH waits; `None` if it is quick enough.
    pub fn too_slow(&self) -> Option<TooSlow> {
        self.share.too_slow()
    }
}
