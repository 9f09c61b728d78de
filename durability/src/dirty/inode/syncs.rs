//! The syncs of an inode (asked for, taken out of its state, their results) and the directories with its dirty names.
//!
//! Invariants:
//! - When the last name is removed, whatever is still dirty becomes part of the state of the directory
//!   that had it, until that removal is stable.
//! - Under a bound, the removal of a name makes each directory in which a name of the inode may come back at least as
//!   old as what was dirty of the inode then.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::sync::oneshot;
use vfs::{FileKey, Node, SyncScope, VfsError, VfsResult, Volume, requester::Requester};

use super::{Held, Inode, latch::LatchEvent};
use crate::{
    dirty::{
        Failure,
        extents::{Changed, WriteBackHint, rename_size},
    },
    share::{Account, Charge, Share},
    tasks::Waiter,
};

/// One sync of an inode, taken out of its state.
pub(crate) struct Job<V: Volume> {
    streams: Vec<(Held<V>, SyncScope)>,
    /// The inode itself, which comes last.
    base: Option<(Held<V>, SyncScope)>,
    pub(crate) share: Option<Arc<Share>>,
    /// The requests that it serves, apart from those that join it later.
    pub(crate) waiters: Vec<Waiter>,
    pub(crate) begun: Duration,
}

impl<V: Volume> Job<V> {
    pub(crate) fn targets(&self) -> impl Iterator<Item = &(Held<V>, SyncScope)> {
        self.streams.iter().chain(&self.base)
    }
}

/// A directory that must be synced for a name of the inode.
pub(crate) struct Name<V: Volume> {
    pub(crate) dir: Held<V>,
    pub(crate) seq: u64,
    /// The directory has a name of the inode now.
    pub(crate) here: bool,
    /// A name was removed from the directory. It may come back, whatever names were made since.
    pub(crate) left: bool,
    /// A client found the inode by this name, which this process did not make (`gate/flush.rs`).
    found: bool,
    pub(crate) charges: Vec<Charge>,
}

/// Where a client found an inode. Shares over different folders may find it at equal paths in different directories.
pub(crate) struct FoundAt {
    /// The root of the share.
    pub(crate) root: FileKey,
    /// The path from there, as on disk.
    pub(crate) path: Vec<u8>,
}

/// The state that remains of an inode whose last name was removed.
pub(crate) struct Remains {
    /// Charges of bounded shares, because written data may come back with the name, and of all for removed names.
    pub(crate) charges: Vec<Charge>,
    /// The written bytes that these charges count.
    pub(crate) bytes: u64,
}

impl<V: Volume> Inode<V> {
    /// Requests a sync that starts after now, for the request that `waiter` answers. Returns the requester on whose
    /// behalf the running driver works, which will run that sync. If there is none, a driver must be started on behalf
    /// of `by`.
    pub(crate) fn ask(
        &mut self,
        node: Option<Held<V>>,
        waiter: Waiter,
        by: Requester,
    ) -> Option<Requester> {
        self.waiters.push(waiter);
        self.times_wanted |= node.is_none() || self.flushes_times();
        self.file |= node.as_ref().is_some_and(Held::is_file);
        if let Some(held) = node
            && !self.is_asked(&held)
        {
            self.asked.push(held);
        }
        let driver = self.syncing;
        self.syncing = driver.or(Some(by));
        driver
    }

    /// Whether the next sync, which has not begun, is one of this stream.
    pub(crate) fn is_asked(&self, held: &Held<V>) -> bool {
        let mut asked = self.asked.iter();
        asked.any(|known| known.node.stream() == held.node.stream())
    }

    /// Lets the running sync serve a request, if it saves everything that was marked by `marked`, names in the inode
    /// included. Returns where its result comes.
    pub(crate) fn join(&mut self, marked: u64) -> Option<oneshot::Receiver<VfsResult<()>>> {
        let saves = self.running.is_some() && self.syncs_all && self.last_sync.0 > marked;
        saves.then(|| {
            let (waiter, outcome) = oneshot::channel();
            self.joined.push(waiter);
            outcome
        })
    }

    /// The requests that joined the sync that has ended; with `all`, those too that wait for the next one.
    pub(crate) fn take_joined(&mut self, all: bool) -> Vec<Waiter> {
        let mut joined = std::mem::take(&mut self.joined);
        if all {
            joined.append(&mut self.waiters);
        }
        joined
    }

    /// Whether a FLUSH covers the times: the handles decide, or without any the shares through which it was reached.
    fn flushes_times(&self) -> bool {
        let mut shares = self.shares.iter();
        let opened = self.opens.strictest().map(|asked| asked.times);
        opened.unwrap_or_else(|| shares.any(|share| share.asked(None).times))
    }

    /// The next sync, if a request waits for one. It covers everything that was marked before the sequence number that
    /// `now` draws.
    pub(crate) fn take_job(&mut self, now: impl FnOnce() -> (u64, Duration)) -> Option<Job<V>> {
        if self.waiters.is_empty() {
            self.syncing = None;
            return None;
        }
        self.last_sync = now();
        let waiters = std::mem::take(&mut self.waiters);
        let epoch = std::mem::take(&mut self.pending);
        let times = std::mem::take(&mut self.times_wanted);
        self.write_back = WriteBackHint::default();
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
        if !streams.is_empty() {
            base = Some(SyncScope::All);
        }
        let nodes = streams.iter().filter_map(|name| self.streams.get(name));
        let streams = nodes.map(|held| (held.clone(), SyncScope::All)).collect();
        let base = base_node.zip(base);
        let scope = base.as_ref().map(|(_, scope)| *scope);
        self.syncs_all = scope == Some(SyncScope::All);
        if scope == Some(SyncScope::Data) {
            self.pending = epoch.without_data();
        }
        let share = self.shares.first().cloned();
        self.running = Some(epoch);
        Some(Job {
            streams,
            base,
            share,
            waiters,
            begun: self.last_sync.1,
        })
    }

    /// Records that the sync succeeded, which may end a latch.
    pub(crate) fn synced(&mut self) {
        let epoch = self.running.take().unwrap_or_default();
        if let Some(latch) = &mut self.latch {
            latch.extents.repair(&epoch.extents);
            for (stream, size) in &epoch.cut {
                latch.extents.truncate(stream, *size);
            }
            // Making a stream again does not rewrite the mark by which the depot finds it.
            let lasts = |what: &Changed| matches!(what, Changed::Stream(_));
            (latch.metadata).retain(|what| lasts(what) || !epoch.set_meta.contains(what));
            if latch.is_out_of_reach() {
                // The data are stable but perhaps unreachable, so they stay in the exposure as unproven.
                latch.take(&epoch.charges);
            }
        }
        drop(epoch);
        self.release();
        self.end_latch();
    }

    fn end_latch(&mut self) {
        if let Some(latch) = self.latch.take_if(|latch| latch.is_repaired()) {
            self.latch_event = Some(LatchEvent::Repaired(latch.path));
        }
    }

    /// The sync could not be started. Everything that it took is dirty again.
    pub(crate) fn not_started(&mut self) {
        match self.running.take() {
            Some(epoch) if !self.gone => self.pending.merge(epoch),
            _ => self.release(),
        }
    }

    /// The worker that ran the syncs is gone. The sync under way may have failed, and the kernel reports that only
    /// once: its part is unproven. The requests that waited receive an error. True if the inode is poisoned now.
    pub(crate) fn abandon(&mut self, failure: Failure, entries: bool) -> bool {
        self.syncing = None;
        self.asked.clear();
        self.waiters.clear();
        self.joined.clear();
        self.running.is_some() && self.failed(failure, entries)
    }

    /// Records that the stream `held` has a new name. From now on a sync of that name goes through this node, not
    /// through that of an earlier stream of that name whose removal is not on disk yet.
    pub(crate) fn stream_named(&mut self, held: Held<V>) {
        let stream = held.node.stream().unwrap_or_default().to_owned();
        self.pending.set(Changed::Stream(stream.clone()));
        self.asked
            .retain(|known| known.node.stream() != Some(&stream));
        self.streams.insert(stream, held);
    }

    /// A stream that was named `from` now has the name of `held`. Its lost and dirty state is found under the new name.
    pub(crate) fn stream_renamed(&mut self, from: &str, held: Held<V>) {
        let to = held.node.stream().unwrap_or_default();
        let running = self.running.as_mut();
        let epochs = running.into_iter().chain([&mut self.pending]);
        epochs.for_each(|epoch| epoch.rename_stream(from, to));
        if let Some(latch) = &mut self.latch {
            latch.extents.rename(from, to);
            rename_size(&mut latch.metadata, from, to);
            // The latch must be stored anew.
            latch.grown += 1;
        }
        self.stream_named(held);
    }

    /// Records that a name was added to `new`, or moved there from `old`: both are to be synced, the new one first.
    /// Call after `mark_dirty`.
    pub(crate) fn renamed(
        &mut self,
        account: &Account<'_>,
        (new, old): (Option<&Held<V>>, Option<&Held<V>>),
        seq: u64,
        key: FileKey,
    ) {
        self.pending.meta = true;
        for dir in [new, old].into_iter().flatten() {
            let is = |other: &Held<V>| other.key() == dir.key();
            let (is_new, is_old) = (new.is_some_and(is), old.is_some_and(is));
            let known = self.names.iter().position(|name| is(&name.dir));
            // An old parent that is dirty already keeps its place behind the newer ones.
            if !is_new && let Some(name) = known.and_then(|at| self.names.get_mut(at)) {
                (name.seq, name.here, name.left) = (seq, false, true);
                continue;
            }
            let mut name = match known {
                Some(at) => self.names.remove(at),
                None => Name {
                    dir: dir.clone(),
                    seq,
                    here: false,
                    left: false,
                    found: false,
                    charges: Vec::new(),
                },
            };
            (name.seq, name.here, name.found) = (seq, is_new, false);
            name.left |= is_old;
            account.charge(&mut name.charges, key);
            self.names
                .insert(usize::from(!is_new && new.is_some()), name);
        }
        if old.is_some() {
            self.latch_moved();
        }
    }

    /// Records that the name in `dir`, which was just marked dirty, was found there and not made by this process.
    pub(crate) fn name_was_found(&mut self, dir: FileKey, at: FoundAt) {
        self.found_at = Some(at);
        let mut names = self.names.iter_mut();
        if let Some(name) = names.find(|name| name.dir.key() == dir) {
            name.found = true;
        }
    }

    /// Takes all names, because the sync of the inode failed, except those that were only found: that sync was not to
    /// save them. They stay dirty, so that a promise that waits for them still does.
    pub(super) fn take_failed_names(&mut self) -> Vec<Name<V>> {
        let names = std::mem::take(&mut self.names).into_iter();
        let (found, made) = names.partition(|name| name.found);
        self.names = found;
        made
    }

    /// The names marked no later than `until` for their directory are stable, except in `failed`. That may end a latch.
    pub(crate) fn names_synced(
        &mut self,
        until: impl Fn(FileKey) -> u64,
        failed: &BTreeSet<FileKey>,
    ) {
        let unsynced = |name: &Name<V>| {
            let dir = name.dir.key();
            name.seq > until(dir) || failed.contains(&dir)
        };
        if let Some(latch) = &mut self.latch {
            // The name moved after the failure, and the move is on disk. Another name proves nothing about a lost one.
            let left = self
                .names
                .iter()
                .filter(|name| name.left && !unsynced(name));
            for name in left.filter(|name| name.seq > latch.mark) {
                latch.names.remove(&name.dir.key());
            }
        }
        self.names.retain(unsynced);
        self.release_at_rest();
        self.end_latch();
    }

    /// The last name, in `from`, is gone: once that is stable, nothing of the inode can be read after a crash, so
    /// nothing is dirty and nothing is unproven. Until then the directory that lost the name is charged with the rest.
    /// Of a poisoned inode the answer has the error and the directories in which a name was or may be left.
    pub(crate) fn unlinked(
        &mut self,
        from: FileKey,
    ) -> (Remains, Option<(VfsError, BTreeSet<FileKey>)>) {
        self.gone = true;
        self.left = self.earlier_names(from);
        let epoch = std::mem::take(&mut self.pending);
        let (mut charges, mut bytes) = (epoch.charges, epoch.bytes);
        if let Some(running) = &mut self.running {
            charges.append(&mut running.charges);
            bytes += std::mem::take(&mut running.bytes);
        }
        // The age counts from the earliest change, that of a rename included. Names that were removed may come back
        // under every policy, so their charges stay.
        charges.retain(|charge| charge.is_bounded() || charge.removed() > 0);
        for mut name in std::mem::take(&mut self.names) {
            name.charges
                .retain(|charge| name.left || charge.is_bounded());
            charges.append(&mut name.charges);
        }
        // Where several shares are charged, each of them is charged with the same bytes.
        let charged: u64 = charges.iter().map(|charge| charge.bytes).sum();
        let bytes = bytes.min(charged);
        self.release_at_rest();
        // A latch that stayed would poison a later file that gets the same inode number.
        let lost = self.latch.take().map(|latch| {
            self.latch_event = Some(LatchEvent::Deleted(latch.path));
            (latch.first.error, latch.names)
        });
        (Remains { charges, bytes }, lost)
    }

    /// New charges without bytes, as old as the dirty data and metadata that have a bound.
    pub(crate) fn ages(&self) -> Vec<Charge> {
        let charges = self.epochs().flat_map(|epoch| &epoch.charges);
        let bounded = charges.filter(|charge| charge.is_bounded());
        bounded.filter_map(Charge::as_old).collect()
    }

    /// Takes over charges, and the bytes that they count, of an inode of which this directory, `key`, has lost a name.
    pub(crate) fn inherit(&mut self, key: FileKey, charges: Vec<Charge>, bytes: u64) {
        self.pending.bytes += bytes;
        for mut charge in charges {
            let mut mine = self.pending.charges.iter_mut();
            match mine.find(|mine| mine.is_for(&charge.share, charge.kind)) {
                Some(mine) => mine.join(charge, key),
                None => {
                    charge.move_to(key);
                    self.pending.charges.push(charge);
                }
            }
        }
    }
}
