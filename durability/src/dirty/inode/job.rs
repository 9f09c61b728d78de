//! The syncs of an inode: asked for, taken out of its state, and their results.

use std::{sync::Arc, time::Duration};

use vfs::{Node, SyncScope, Volume};

use super::{Held, Inode};
use crate::{
    dirty::{
        epoch::{Changed, WriteBackHint},
        latch::Failure,
    },
    share::Share,
};

/// One sync of an inode, taken out of its state.
pub(crate) struct Job<V: Volume> {
    pub(crate) targets: Vec<(Held<V>, SyncScope)>,
    pub(crate) share: Option<Arc<Share>>,
}

impl<V: Volume> Inode<V> {
    /// Asks for a sync that starts after now. True if a driver must be started for it.
    pub(crate) fn ask(&mut self, node: Option<Held<V>>) -> bool {
        self.times_wanted |= node.is_none() || self.flushes_times();
        self.file |= node.as_ref().is_some_and(Held::is_file);
        if let Some(held) = node
            && !self
                .asked
                .iter()
                .any(|known| known.node.stream() == held.node.stream())
        {
            self.asked.push(held);
        }
        !std::mem::replace(&mut self.syncing, true)
    }

    /// Whether a FLUSH covers the times: as its handles ask for, or the shares it was reached through.
    fn flushes_times(&self) -> bool {
        let mut shares = self.shares.iter();
        let opened = self.opens.strictest().map(|asked| asked.times);
        opened.unwrap_or_else(|| shares.any(|share| share.asked(None).times))
    }

    /// The next sync, if one is `wanted`. It covers everything that was marked before `now`.
    pub(crate) fn take_job(&mut self, wanted: bool, now: (u64, Duration)) -> Option<Job<V>> {
        self.last_sync = now;
        if !wanted {
            self.syncing = false;
            return None;
        }
        let epoch = std::mem::take(&mut self.pending);
        let times = std::mem::take(&mut self.times_wanted);
        self.write_back = WriteBackHint::default();
        let mut targets: Vec<(Held<V>, SyncScope)> = Vec::new();
        let mut streams = epoch.streams.clone();
        let mut base = (!epoch.is_clean()).then(|| match self.latch {
            None => epoch.scope(times),
            // The failed sync may have left metadata dirty that is not counted (a change time).
            Some(_) => SyncScope::All,
        });
        let mut base_node = self.node.clone();
        for held in self.asked.drain(..) {
            if let Some(stream) = held.node.stream() {
                streams.insert(stream.to_owned());
                self.streams.entry(stream.to_owned()).or_insert(held);
            } else {
                // Clean as far as we know, but another program may have changed anything.
                base = base.or(Some(SyncScope::All));
                base_node = base_node.or(Some(held));
            }
        }
        for stream in &streams {
            if let Some(held) = self.streams.get(stream) {
                targets.push((held.clone(), SyncScope::All));
            }
        }
        if !streams.is_empty() {
            base = Some(SyncScope::All);
        }
        self.syncs_all = base_node.is_some() && base == Some(SyncScope::All);
        if let (Some(node), Some(scope)) = (base_node, base) {
            targets.push((node, scope));
            if scope == SyncScope::Data {
                self.pending = epoch.without_data();
            }
        }
        let share = self.shares.first().cloned();
        self.running = Some(epoch);
        Some(Job { targets, share })
    }

    /// The sync succeeded, which may end a latch.
    pub(crate) fn synced(&mut self) {
        let epoch = self.running.take().unwrap_or_default();
        if let Some(latch) = &mut self.latch {
            latch.extents.repair(&epoch.extents);
            for (stream, size) in &epoch.cut {
                latch.extents.truncate(stream, *size);
            }
            // Making a stream again does not rewrite what it is found by (the depot's mark).
            let lasts = |what: &Changed| matches!(what, Changed::Stream(_));
            (latch.metadata).retain(|what| lasts(what) || !epoch.set_meta.contains(what));
            if latch.is_out_of_reach() {
                // Stable, but perhaps unreachable.
                latch.take(&epoch.charges);
            }
        }
        drop(epoch);
        self.release();
        self.end_latch();
    }

    /// The sync could not be started. Everything that it took is dirty again.
    pub(crate) fn not_started(&mut self) {
        match self.running.take() {
            Some(epoch) if !self.gone => self.pending.merge(epoch),
            _ => self.release(),
        }
    }

    /// The worker that ran the syncs is gone. The sync under way may have failed, and the kernel
    /// reports that only once: its part is unproven. True if the inode is poisoned now.
    pub(crate) fn abandon(&mut self, failure: Failure, entries: bool) -> bool {
        self.syncing = false;
        self.asked.clear();
        self.running.is_some() && self.failed(failure, entries)
    }
}
