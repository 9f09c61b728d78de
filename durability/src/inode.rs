//! The dirty state of one inode: a plain machine without locks, clocks or I/O.
//!
//! Owns what changed since the last clean sync, in two parts. The *own* part (data, size,
//! metadata, streams) is one epoch (`epoch.rs`) that a sync takes whole and either drops (success)
//! or hands to the latch (failure: `inode/failing.rs`). The *names* (`inode/names.rs`) are the directories that must be synced
//! afterwards, each with the sequence number of its last change, newest parent first.
//!
//! Invariants: nothing becomes clean except through a sync that started after it was marked;
//! a node is held while anything of the inode is dirty; what was dirty when a sync failed never
//! becomes clean by a later sync, only by being rewritten.

mod failing;
mod names;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::sync::{Notify, oneshot};
use vfs::{FileKey, Node, SyncScope, Vfs, VfsError};

pub(crate) use names::{Left, Name};

use crate::{
    early::Early,
    epoch::{Account, Changed, Epoch, Where},
    gate::Earlier,
    latch::{Failure, Latch},
    opens::Opens,
    settings::PolicyKind,
    share::{Reservation, Share},
};

/// A node and the file system that made it.
pub(crate) struct Held<V: Vfs> {
    pub(crate) vfs: Arc<V>,
    pub(crate) node: V::Node,
}

impl<V: Vfs> Clone for Held<V> {
    fn clone(&self) -> Self {
        Self {
            vfs: Arc::clone(&self.vfs),
            node: self.node.clone(),
        }
    }
}

impl<V: Vfs> Held<V> {
    pub(crate) fn key(&self) -> FileKey {
        self.node.key()
    }

    /// A sync through it is surely not that of a directory: a stream may be one's.
    pub(crate) fn is_file(&self) -> bool {
        self.node.stream().is_none() && !self.node.is_directory()
    }
}

/// Who waits for a sync.
pub(crate) type Waiter = oneshot::Sender<Result<(), VfsError>>;

/// One sync of an inode, taken out of its state.
pub(crate) struct Job<V: Vfs> {
    pub(crate) targets: Vec<(Held<V>, SyncScope)>,
    pub(crate) waiters: Vec<Waiter>,
    pub(crate) share: Option<Arc<Share>>,
}

pub(crate) struct Inode<V: Vfs> {
    node: Option<Held<V>>,
    /// `node` was there before something was written: it hears of failed write-back.
    wrote: bool,
    streams: BTreeMap<String, Held<V>>,
    pub(crate) pending: Epoch,
    running: Option<Epoch>,
    /// Number and time of the last sync that began.
    pub(crate) begun: (u64, Duration),
    names: Vec<Name<V>>,
    pub(crate) latch: Option<Latch>,
    /// No directory.
    file: bool,
    /// It has no name any more: a failure leaves nothing unproven. The nodes of whatever is
    /// under way keep its number from being used again until this entry is dropped.
    gone: bool,
    pub(crate) in_flight: BTreeSet<u64>,
    /// Writes that were accepted and are not under way: tickets, with the open if it is known.
    pub(crate) arrived: BTreeMap<u64, Option<u64>>,
    /// A write ended, or came under way.
    pub(crate) written: Arc<Notify>,
    asked: Vec<Held<V>>,
    /// Somebody who waits for the next sync wants the times as well.
    times_wanted: bool,
    /// Where its name was found by a client's handle and put down as owed, since the first of those
    /// that are open was opened. It may have been made by somebody else on the host.
    pub(crate) found_at: Option<String>,
    waiters: Vec<Waiter>,
    pub(crate) syncing: bool,
    /// The shares it was changed or flushed through.
    pub(crate) shares: Vec<Arc<Share>>,
    /// The handles on it, whose policies decide.
    pub(crate) opens: Opens,
    pub(crate) early: Early,
}

impl<V: Vfs> Default for Inode<V> {
    fn default() -> Self {
        Self {
            node: None,
            wrote: false,
            streams: BTreeMap::new(),
            pending: Epoch::default(),
            running: None,
            begun: (0, Duration::ZERO),
            names: Vec::new(),
            latch: None,
            file: false,
            gone: false,
            in_flight: BTreeSet::new(),
            arrived: BTreeMap::new(),
            written: Arc::default(),
            asked: Vec::new(),
            times_wanted: false,
            found_at: None,
            waiters: Vec::new(),
            syncing: false,
            shares: Vec::new(),
            opens: Opens::default(),
            early: Early::default(),
        }
    }
}

impl<V: Vfs> Inode<V> {
    pub(crate) fn is_dirty(&self) -> bool {
        !self.pending.is_clean()
            || self.running.as_ref().is_some_and(|epoch| !epoch.is_clean())
            || !self.names.is_empty()
    }

    /// Known to be no directory.
    pub(crate) fn is_file(&self) -> bool {
        self.file
    }

    /// Nothing here that must be remembered.
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_dirty()
            && self.latch.is_none()
            && self.in_flight.is_empty()
            && self.arrived.is_empty()
            && self.waiters.is_empty()
            && self.asked.is_empty()
            && !self.syncing
            && self.opens.is_empty()
    }

    /// Whether a write with a ticket below `now` is under way, or has arrived, of those asked for.
    pub(crate) fn has_earlier(&self, now: u64, arrived: Option<Earlier>) -> bool {
        let waits = |open: &Option<u64>| match (arrived, open) {
            (None, _) => false,
            (Some(Earlier::All), _) | (_, None) => true,
            (Some(Earlier::Of(mine)), Some(open)) => mine == *open,
        };
        let mut earlier = self.arrived.range(..now);
        self.in_flight.first().is_some_and(|ticket| *ticket < now)
            || earlier.any(|(_, open)| waits(open))
    }

    /// When the sync that runs began, if one does that does not cover what has changed by `marked`.
    pub(crate) fn begun_before(&self, marked: u64) -> Option<Duration> {
        let (sequence, at) = self.begun;
        (self.running.is_some() && sequence < marked).then_some(at)
    }

    /// Bytes owed, of the epoch under sync too.
    pub(crate) fn bytes(&self) -> u64 {
        self.pending.bytes() + self.running.as_ref().map_or(0, Epoch::bytes)
    }

    pub(crate) fn seen_through(&mut self, share: &Arc<Share>) {
        if !self.shares.iter().any(|known| Arc::ptr_eq(known, share)) {
            self.shares.push(Arc::clone(share));
        }
    }

    /// Holds the node; the own part is owed from `now`. Answers the shares that need a payer.
    pub(crate) fn owe(
        &mut self,
        account: &Account<'_>,
        held: &Held<V>,
        now: Duration,
    ) -> Vec<Arc<Share>> {
        self.seen_through(account.share);
        self.file |= held.is_file();
        if let Some(stream) = held.node.stream() {
            if !self.streams.contains_key(stream) {
                self.streams.insert(stream.to_owned(), held.clone());
            }
            // Whatever changed through it: the file system knows what holds the stream.
            self.pending.streams.insert(stream.to_owned());
        } else if self.node.is_none() {
            self.node = Some(held.clone());
        }
        let mut idle = Vec::new();
        account.charge(&mut self.pending.debts, (held.key(), now), &mut idle);
        idle
    }

    /// A FLUSH through `share` is answered before the disk: what the inode owes is acknowledged
    /// under that policy.
    pub(crate) fn promised(&mut self, share: &Arc<Share>, kind: PolicyKind) {
        let own = [Some(&mut self.pending), self.running.as_mut()];
        let own = own.into_iter().flatten().flat_map(|epoch| &mut epoch.debts);
        let names = self.names.iter_mut().flat_map(|name| &mut name.debts);
        own.chain(names)
            .filter(|debt| Arc::ptr_eq(&debt.share, share))
            .for_each(|debt| debt.change(kind));
    }

    /// A write was accepted and waits. `open` is the open that it came through, if that is known.
    pub(crate) fn queue_write(&mut self, ticket: u64, open: Option<u64>) {
        self.arrived.insert(ticket, open);
    }

    /// A write is in flight from now on, and no longer queued.
    pub(crate) fn start_write(&mut self, ticket: u64) {
        self.in_flight.insert(ticket);
        self.arrived.remove(&ticket);
    }

    /// A write has ended, or was given up before it was in flight.
    pub(crate) fn write_ended(&mut self, ticket: Option<u64>) {
        if let Some(ticket) = ticket {
            self.in_flight.remove(&ticket);
            self.arrived.remove(&ticket);
            self.written.notify_waiters();
        }
    }

    /// Contents are about to change: `held` was opened before that. Unless an earlier one is there, it is
    /// what a sync will go through.
    pub(crate) fn keep(&mut self, held: Held<V>) {
        if !self.wrote {
            self.node = Some(held);
            self.wrote = true;
        }
    }

    /// For a planted fault: what is held now stays, whoever writes.
    pub(crate) fn keep_first(&mut self) {
        self.wrote |= self.node.is_some();
    }

    /// For a planted fault: who waits for the next sync, which then nobody waits for.
    pub(crate) fn waiters_so_far(&mut self) -> Vec<Waiter> {
        std::mem::take(&mut self.waiters)
    }

    /// Whether a change of contents wants [`Inode::keep`] first.
    pub(crate) fn wants_keeper(&self) -> bool {
        !self.wrote
    }

    /// Whether it is metadata of a file only that makes the inode hold a descriptor with which nobody
    /// can run it. A file that was only made is empty: nobody wants to.
    pub(crate) fn forbids_execution(&self) -> bool {
        (self.pending.times || !self.pending.set_meta.is_empty()) && self.held_forbids_execution()
    }

    pub(crate) fn held_forbids_execution(&self) -> bool {
        let held = self.node.as_ref();
        held.is_some_and(|held| held.node.forbids_execution())
    }

    /// `held`, which may have been opened since, is held in place of what forbids execution.
    pub(crate) fn allow_execution(&mut self, held: Held<V>) {
        if !self.wrote && self.forbids_execution() {
            self.node = Some(held);
        }
    }

    /// A change that was under way has changed nothing.
    pub(crate) fn unchanged(&mut self) {
        if self.running.is_none() {
            self.release();
        }
    }

    /// Contents changed. Call after [`Inode::owe`].
    pub(crate) fn wrote(
        &mut self,
        (share, kind): (&Arc<Share>, PolicyKind),
        held: &Held<V>,
        range: Where,
        reservation: Option<Reservation>,
    ) {
        let stream = held.node.stream().unwrap_or_default();
        if stream.is_empty() {
            // Only a descriptor opened before the write hears that its write-back failed: the
            // writer's own, if nothing else was kept.
            self.keep(held.clone());
            self.pending.data = true;
            self.pending.times = true;
        }
        match range {
            Where::At(start, end) => self.pending.extents.add(stream, start, end),
            Where::Within(start, end) => self.pending.extents.add_within(stream, start, end),
            Where::Unknown => self.pending.extents.add_unknown(stream),
            Where::Latched => {}
        }
        let debt = self
            .pending
            .debts
            .iter_mut()
            .find(|debt| debt.is_for(share, kind));
        if let (Some(debt), Some(reservation)) = (debt, reservation) {
            debt.absorb(reservation);
        }
    }

    /// Asks for a sync that starts after now. True if somebody must run it.
    pub(crate) fn ask(
        &mut self,
        node: Option<Held<V>>,
    ) -> (oneshot::Receiver<Result<(), VfsError>>, bool) {
        let (tell, told) = oneshot::channel();
        self.waiters.push(tell);
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
        (told, !std::mem::replace(&mut self.syncing, true))
    }

    /// Whether a FLUSH covers the times: as its handles ask for, or the shares it was reached through.
    fn flushes_times(&self) -> bool {
        let mut shares = self.shares.iter();
        let opened = self.opens.strictest().map(|asked| asked.times);
        opened.unwrap_or_else(|| shares.any(|share| share.asked(None).times))
    }

    /// A stream got this name: what is synced for it from now on is this one, not another that had
    /// the name before and whose removal is not on disk.
    pub(crate) fn stream_named(&mut self, stream: &str, held: Held<V>) {
        self.asked
            .retain(|known| known.node.stream() != Some(stream));
        self.streams.insert(stream.to_owned(), held);
    }

    /// The next sync, if anybody waits for one.
    pub(crate) fn take_job(&mut self) -> Option<Job<V>> {
        if self.waiters.is_empty() {
            self.syncing = false;
            return None;
        }
        let epoch = std::mem::take(&mut self.pending);
        let times = std::mem::take(&mut self.times_wanted);
        self.early = Early::default();
        let mut targets: Vec<(Held<V>, SyncScope)> = Vec::new();
        let mut streams = epoch.streams.clone();
        let mut base = (!epoch.is_clean()).then(|| match self.latch {
            None => epoch.scope(times),
            // What failed may have left metadata behind that nobody counts (a new change time).
            Some(_) => SyncScope::All,
        });
        let mut base_node = self.node.clone();
        for held in self.asked.drain(..) {
            if let Some(stream) = held.node.stream() {
                streams.insert(stream.to_owned());
                self.streams.entry(stream.to_owned()).or_insert(held);
            } else {
                // Clean as far as we know: somebody else may have changed anything.
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
        if let (Some(node), Some(scope)) = (base_node, base) {
            targets.push((node, scope));
            if scope == SyncScope::Data {
                self.pending = epoch.without_data();
            }
        }
        self.running = Some(epoch);
        let share = self.shares.first().cloned();
        Some(Job {
            targets,
            waiters: std::mem::take(&mut self.waiters),
            share,
        })
    }

    /// The sync succeeded. True if that ended a latch.
    pub(crate) fn synced(&mut self) -> bool {
        let epoch = self.running.take().unwrap_or_default();
        if let Some(latch) = &mut self.latch {
            latch.extents.repair(&epoch.extents);
            for (stream, size) in &epoch.cut {
                latch.extents.truncate(stream, *size);
            }
            // A stream made again says nothing of what else it is found by (the depot's mark).
            let lasts = |what: &Changed| matches!(what, Changed::Stream(_));
            (latch.metadata).retain(|what| lasts(what) || !epoch.set_meta.contains(what));
            latch.size &= !epoch.sized;
            if latch.is_out_of_reach() {
                // On disk, and nobody may ever find it there.
                latch.take(&epoch.debts);
            }
        }
        drop(epoch);
        self.release();
        self.end_latch()
    }

    /// The sync was not begun. What it took is dirty again.
    pub(crate) fn not_started(&mut self) {
        match self.running.take() {
            Some(epoch) if !self.gone => self.pending.merge(epoch),
            _ => self.release(),
        }
    }

    /// The worker that ran the syncs is gone. What one had in hand may have failed, and the kernel
    /// tells that only once: it is unproven. True if it is latched now.
    pub(crate) fn abandon(&mut self, failure: Failure, entries: bool) -> bool {
        self.syncing = false;
        self.waiters.clear();
        self.asked.clear();
        self.running.is_some() && self.failed(failure, entries)
    }

    /// Gives back the nodes that nothing dirty needs, nor a change that is under way. Of a directory
    /// whose name is owed or lost one stays: it tells where the directory is.
    fn release(&mut self) {
        let named = !self.file && (!self.names.is_empty() || self.has_lost_name());
        if self.pending.is_clean() && self.in_flight.is_empty() && !named {
            self.node = None;
            self.wrote = false;
        }
        let pending = &self.pending;
        self.streams
            .retain(|stream, _| pending.streams.contains(stream));
    }

    /// The folder of a share that it is held through.
    pub(crate) fn root(&self) -> Option<FileKey> {
        self.vfs().map(|vfs| vfs.root().key())
    }

    /// The back end that it is held through.
    pub(crate) fn vfs(&self) -> Option<Arc<V>> {
        let held = self.node.as_ref().or_else(|| self.streams.values().next());
        let held = held.or_else(|| self.names.first().map(|name| &name.dir));
        held.map(|held| Arc::clone(&held.vfs))
    }

    /// Where the inode is, if a node of it is held and the kernel knows.
    pub(crate) fn path_hint(&self) -> Option<String> {
        let held = self.node.as_ref().or_else(|| self.streams.values().next());
        held.and_then(|held| held.vfs.path_hint(&held.node))
            .or_else(|| self.opens.path())
    }

    /// Streams with something owed.
    pub(crate) fn dirty_streams(&self) -> usize {
        self.streams.len()
    }
}
