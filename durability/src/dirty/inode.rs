//! The dirty state of one inode and the requests that wait for it: a plain state machine without locks, clocks or I/O.
//!
//! The changes since the last clean sync have two parts. Data, size, metadata and streams are one
//! epoch (`epoch.rs`): a sync takes it as a whole, and either drops it (success) or hands it to the
//! latch (failure, `inode/latch.rs`). The names (`inode/syncs.rs`) are the directories that must be
//! synced afterwards, each with the sequence number of its last change, newest parent first.
//!
//! Invariants:
//! - Nothing becomes clean except through a sync that started after it was marked.
//! - A node is held while anything of the inode is dirty.
//! - Data that were dirty when a sync failed never become clean by a later sync, only by being rewritten.

mod latch;
mod syncs;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::sync::Notify;
use vfs::{FileKey, Node, Volume, requester::Requester};

use latch::Latch;
pub(crate) use latch::{FailedSyncs, Failure, LatchEvent};
pub(crate) use syncs::{FoundAt, Job, Name};

use super::epoch::{Account, Changed, ChangedRange, Epoch, WriteBackHint};
use crate::{
    dirty::Earlier,
    policy::PolicyKind,
    share::{Opens, Reservation, Share},
    tasks::Waiter,
};

/// The most streams of one inode that may be dirty at once.
const DIRTY_STREAMS_MAX: usize = 256;
/// The most pieces of metadata, each extended attribute counted.
const DIRTY_METADATA_MAX: usize = 256;
/// The most directories with dirty names, each with a descriptor.
const DIRTY_NAMES_MAX: usize = 16;

/// A node and the file system that made it.
pub(crate) struct Held<V: Volume> {
    pub(crate) vfs: Arc<V>,
    pub(crate) node: V::Node,
}

impl<V: Volume> Clone for Held<V> {
    fn clone(&self) -> Self {
        let (vfs, node) = (Arc::clone(&self.vfs), self.node.clone());
        Self { vfs, node }
    }
}

impl<V: Volume> Held<V> {
    pub(crate) fn key(&self) -> FileKey {
        self.node.key()
    }

    /// Whether a sync through this node certainly does not sync a directory. A stream's node may: directories have
    /// streams.
    pub(crate) fn is_file(&self) -> bool {
        self.node.stream().is_none() && !self.node.is_directory()
    }
}

pub(crate) struct Inode<V: Volume> {
    node: Option<Held<V>>,
    /// `node` was open before contents changed, so it observes a failed write-back. If not, [`Inode::keep`] is due.
    wrote: bool,
    streams: BTreeMap<String, Held<V>>,
    /// The changes since the last sync began. Each is added after [`Inode::mark_dirty`].
    pub(crate) pending: Epoch,
    /// The changes that the running sync covers.
    running: Option<Epoch>,
    /// Number and time of the last sync that began; `syncs_all`: it is one of the whole inode, with the names in it.
    last_sync: (u64, Duration),
    syncs_all: bool,
    names: Vec<Name<V>>,
    latch: Option<Latch>,
    /// The inode is known not to be a directory.
    file: bool,
    /// The inode has no name any more, so a failure leaves nothing unproven. The nodes of operations in flight keep the
    /// kernel from using its number again until this entry is dropped.
    gone: bool,
    /// [`Inode::earlier_names`] when the last name was removed.
    left: BTreeMap<FileKey, u64>,
    /// Writes in flight: tickets, and whether the change is made in several parts.
    in_flight: BTreeMap<u64, bool>,
    /// Writes that were accepted and are not in flight: tickets, with the open if it is known.
    queued: BTreeMap<u64, Option<u64>>,
    /// Notified when a write has ended; made by the first request that waits for one.
    ended: Option<Arc<Notify>>,
    asked: Vec<Held<V>>,
    /// Requests that the next sync will serve.
    waiters: Vec<Waiter>,
    /// Requests that joined the running sync, because it covers the changes that they wait for.
    joined: Vec<Waiter>,
    /// A request that waits for the next sync wants the times as well.
    times_wanted: bool,
    /// The place at which a client's handle found the inode, once that name was marked dirty: another
    /// program on the host may have made it. Forgotten when the first of its handles is opened.
    pub(crate) found_at: Option<FoundAt>,
    /// The requester on whose behalf a driver runs its syncs, if one does.
    syncing: Option<Requester>,
    /// The shares it was changed or flushed through.
    shares: Vec<Arc<Share>>,
    /// The latch event of the present step, which the table takes and reports.
    latch_event: Option<LatchEvent>,
    /// The handles on it, whose policies decide.
    pub(crate) opens: Opens,
    pub(crate) write_back: WriteBackHint,
}

impl<V: Volume> Default for Inode<V> {
    fn default() -> Self {
        Self {
            node: None,
            wrote: false,
            streams: BTreeMap::new(),
            pending: Epoch::default(),
            running: None,
            last_sync: (0, Duration::ZERO),
            syncs_all: false,
            names: Vec::new(),
            latch: None,
            file: false,
            gone: false,
            left: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            queued: BTreeMap::new(),
            ended: None,
            asked: Vec::new(),
            waiters: Vec::new(),
            joined: Vec::new(),
            times_wanted: false,
            found_at: None,
            syncing: None,
            shares: Vec::new(),
            latch_event: None,
            opens: Opens::default(),
            write_back: WriteBackHint::default(),
        }
    }
}

/// The facts about an inode that the table counts: it compares them before and after each step.
pub(crate) struct InodeFacts {
    pub(crate) dirty: bool,
    /// Some of its names are dirty.
    pub(crate) named: bool,
    /// How often the latch has grown; `None` without one.
    pub(crate) grown: Option<u64>,
    /// [`Inode::is_unreachable`].
    pub(crate) unreachable: bool,
}

impl<V: Volume> Inode<V> {
    pub(crate) fn facts(&self) -> InodeFacts {
        InodeFacts {
            dirty: self.is_dirty(),
            named: !self.names.is_empty(),
            grown: self.latch.as_ref().map(|latch| latch.grown),
            unreachable: self.is_unreachable(),
        }
    }

    /// Whether it is a directory whose own name is lost, so that everything below it may be unreachable.
    pub(crate) fn is_unreachable(&self) -> bool {
        let lost = |latch: &Latch| !latch.names.is_empty();
        !self.file && self.latch.as_ref().is_some_and(lost)
    }

    /// The latch event of the step that ends now.
    pub(crate) fn take_latch_event(&mut self) -> Option<LatchEvent> {
        self.latch_event.take()
    }

    /// The shares through which the inode was changed or flushed.
    pub(crate) fn shares(&self) -> &[Arc<Share>] {
        &self.shares
    }

    /// The dirty names.
    pub(crate) fn names(&self) -> &[Name<V>] {
        &self.names
    }

    /// Whether the inode is known not to be a directory.
    pub(crate) fn is_file(&self) -> bool {
        self.file
    }

    /// Whether the inode has no name any more.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone
    }

    /// Whether a change of contents wants [`Inode::keep`] first.
    pub(crate) fn wants_keeper(&self) -> bool {
        !self.wrote
    }

    pub(crate) fn is_of(&self, wanted: impl Fn(&Arc<Share>) -> bool) -> bool {
        self.shares.iter().any(wanted)
    }

    /// The directories other than `from` to which an earlier name may come back, because its removal by a rename is
    /// dirty or lost, each with the number of the change by which the name left it; 0 if that is not known. If the inode
    /// has no name, the answer is that of the time when the last one was removed.
    pub(crate) fn earlier_names(&self, from: FileKey) -> BTreeMap<FileKey, u64> {
        let mut all = self.left.clone();
        let left = self.names.iter().filter(|name| name.has_left());
        all.extend(left.map(|name| (name.dir.key(), name.seq)));
        let lost = self.latch.iter().filter(|latch| latch.entries);
        all.extend(lost.flat_map(|latch| &latch.names).map(|dir| (*dir, 0)));
        all.remove(&from);
        all
    }

    /// Whether it is a directory to which a removed name may come back, because the removal is dirty or lost.
    pub(crate) fn may_bring_names_back(&self) -> bool {
        let lost = |latch: &Latch| !self.file && latch.entries;
        self.pending.entries
            || self.running.as_ref().is_some_and(|epoch| epoch.entries)
            || self.latch.as_ref().is_some_and(lost)
    }

    /// Whether anything is dirty or being written.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_dirty() || !self.in_flight.is_empty()
    }

    /// Records that the end of file was set and that bytes of the stream beyond `size` are gone.
    pub(crate) fn resized(&mut self, stream: &str, size: u64) {
        self.room_changed(Changed::Size(stream.to_owned()));
        self.truncated(stream, size);
    }

    /// Records that size or allocation was set.
    pub(crate) fn room_changed(&mut self, what: Changed) {
        self.pending.data = true;
        self.pending.times = true;
        self.pending.set_meta.insert(what);
    }

    /// Records that a stream was removed.
    pub(crate) fn stream_removed(&mut self, stream: &str) {
        self.pending.set(Changed::Stream(stream.to_owned()));
        self.pending.set(Changed::Size(stream.to_owned()));
        self.pending.extents.named.remove(stream);
        self.truncated(stream, 0);
    }

    pub(crate) fn is_dirty(&self) -> bool {
        !self.pending.is_clean()
            || self.running.as_ref().is_some_and(|epoch| !epoch.is_clean())
            || !self.names.is_empty()
    }

    /// Whether as much of the inode is dirty as may be: a further change waits for a sync.
    pub(crate) fn is_overfull(&self) -> bool {
        self.streams.len() > DIRTY_STREAMS_MAX
            || self.pending.set_meta.len() > DIRTY_METADATA_MAX
            || self.names.len() > DIRTY_NAMES_MAX
    }

    /// Whether nothing here must be remembered.
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_dirty()
            && self.latch.is_none()
            && self.in_flight.is_empty()
            && self.queued.is_empty()
            && self.asked.is_empty()
            && self.syncing.is_none()
            && self.opens.is_empty()
    }

    /// Whether a write with a ticket below `now` is in flight, or queued and wanted.
    pub(crate) fn has_earlier(&self, now: u64, wanted: Option<Earlier>) -> bool {
        let waits = |open: &Option<u64>| match (wanted, open) {
            (None, _) => false,
            (Some(Earlier::All), _) | (_, None) => true,
            (Some(Earlier::Of(mine)), Some(open)) => mine == *open,
        };
        let mut earlier = self.queued.range(..now);
        self.in_flight.range(..now).next().is_some() || earlier.any(|(_, open)| waits(open))
    }

    /// The time at which the running sync began, if there is one and it does not cover everything that was marked by
    /// `marked`.
    pub(crate) fn begun_before(&self, marked: u64) -> Option<Duration> {
        let (sequence, at) = self.last_sync;
        let another = sequence < marked && !self.pending.is_clean();
        (self.running.is_some() && another).then_some(at)
    }

    /// Whether the running sync saves everything that was marked by `marked`, names in the inode included.
    fn running_saves(&self, marked: u64) -> bool {
        self.running.is_some() && self.syncs_all && self.last_sync.0 > marked
    }

    /// Dirty bytes, including those of the epoch that is being synced.
    pub(crate) fn bytes(&self) -> u64 {
        self.pending.bytes + self.running.as_ref().map_or(0, |epoch| epoch.bytes)
    }

    pub(crate) fn seen_through(&mut self, share: &Arc<Share>) {
        if !self.shares.contains(share) {
            self.shares.push(Arc::clone(share));
        }
    }

    /// Holds the node, and charges the shares of `account` from now on.
    pub(crate) fn mark_dirty(&mut self, account: &Account<'_>, held: &Held<V>) {
        self.seen_through(account.share);
        self.file |= held.is_file();
        if let Some(stream) = held.node.stream() {
            let known = self.streams.entry(stream.to_owned());
            known.or_insert_with(|| held.clone());
            // Every change through the node counts, because only the file system knows which inode holds the stream.
            self.pending.streams.insert(stream.to_owned());
        } else if self.node.is_none() {
            self.node = Some(held.clone());
        }
        account.charge(&mut self.pending.charges, held.key());
    }

    /// Records that a FLUSH is answered before the disk: the policy of `account` acknowledges everything that is dirty
    /// now. A bound also applies to changes made through other shares.
    pub(crate) fn promised(&mut self, account: &Account<'_>, key: FileKey) {
        let epochs = std::iter::once(&mut self.pending).chain(&mut self.running);
        let dirty = epochs.filter(|epoch| !epoch.is_clean());
        let own = dirty.map(|epoch| (&mut epoch.charges, epoch.bytes));
        let names = self.names.iter_mut().map(|name| (&mut name.charges, 0));
        for (charges, bytes) in own.chain(names) {
            let mine = charges.iter_mut();
            let mine = mine.filter(|charge| charge.share == *account.share);
            mine.for_each(|charge| charge.change(account.kind));
            if account.kind == PolicyKind::Bounded {
                account.join((charges, bytes), key);
            }
        }
    }

    /// Records a write that was accepted and waits. `open` is the open that it came through, if that is known.
    pub(crate) fn queue_write(&mut self, ticket: u64, open: Option<u64>) {
        self.queued.insert(ticket, open);
    }

    /// The notification that a write has ended.
    pub(crate) fn write_end(&mut self) -> Arc<Notify> {
        Arc::clone(self.ended.get_or_insert_default())
    }

    /// Records that a write is in flight from now on, and no longer queued. `in_parts`: the change is made in several
    /// parts.
    pub(crate) fn start_write(&mut self, ticket: u64, in_parts: bool) {
        self.in_flight.insert(ticket, in_parts);
        self.queued.remove(&ticket);
    }

    /// Records that a write has ended, or was given up before it was in flight.
    pub(crate) fn write_ended(&mut self, ticket: Option<u64>) {
        if let Some(ticket) = ticket {
            self.in_flight.remove(&ticket);
            self.queued.remove(&ticket);
            if let Some(ended) = &self.ended {
                ended.notify_waiters();
            }
        }
    }

    /// Holds a descriptor because contents are about to change: the next sync goes through it, or through an earlier
    /// one.
    pub(crate) fn keep(&mut self, held: Held<V>) {
        if !self.wrote {
            self.node = Some(held);
            self.wrote = true;
        }
    }

    /// For a planted fault: the descriptor that is held now stays.
    pub(crate) fn keep_first(&mut self) {
        self.wrote |= self.node.is_some();
    }

    /// Whether the inode holds, because of metadata, a descriptor that keeps the file from being
    /// executed. (A file that was only created does not count: it is empty, and nobody executes it.)
    pub(crate) fn forbids_execution(&self) -> bool {
        (self.pending.times || !self.pending.set_meta.is_empty()) && self.held_forbids_execution()
    }

    pub(crate) fn held_forbids_execution(&self) -> bool {
        let held = self.node.as_ref();
        held.is_some_and(|held| held.node.forbids_execution())
    }

    /// Whether a failed write-back may concern more than the one write in flight. Call this while it is in flight.
    pub(crate) fn has_more_than_one_write(&self) -> bool {
        let in_parts = self.in_flight.values().any(|in_parts| *in_parts);
        self.is_dirty() || self.queued.len() + self.in_flight.len() > 1 || in_parts
    }

    /// Whether only descriptors open for writing would report a failed write-back: that of the node that is held, or,
    /// before anything is dirty, those of several writes in flight. Call this while a write is in flight.
    pub(crate) fn is_watched_by_writers(&self) -> bool {
        match self.node {
            Some(_) => self.held_forbids_execution(),
            None => self.in_flight.len() > 1,
        }
    }

    /// Holds `held`, which may have been opened later, in place of a node that forbids execution.
    pub(crate) fn allow_execution(&mut self, held: Held<V>) {
        if !self.wrote && self.forbids_execution() {
            self.node = Some(held);
        }
    }

    /// Releases the nodes that are not needed. A running sync does that when it ends.
    pub(crate) fn release_at_rest(&mut self) {
        if self.running.is_none() {
            self.release();
        }
    }

    /// Records that contents changed. Call after [`Inode::mark_dirty`].
    pub(crate) fn wrote(
        &mut self,
        held: &Held<V>,
        range: ChangedRange,
        reservations: impl IntoIterator<Item = Reservation>,
    ) {
        let stream = held.node.stream().unwrap_or_default();
        if stream.is_empty() {
            // Only a descriptor opened before the write observes a failed write-back, if need be the writer's own.
            self.keep(held.clone());
            self.pending.data = true;
            self.pending.times = true;
        } else if !self.pending.extents.named.contains_key(stream) {
            // The node held until now may have changed only metadata, without such a descriptor.
            self.streams.insert(stream.to_owned(), held.clone());
        }
        match range {
            ChangedRange::At(start, end) => self.pending.extents.add(stream, start, end),
            ChangedRange::Within(start, end) => self.pending.extents.add_within(stream, start, end),
            ChangedRange::Unproven => {}
        }
        // Each share has reserved the same bytes.
        let charges = &mut self.pending.charges;
        let bytes = reservations.into_iter().map(|one| one.charge(charges));
        self.pending.bytes += bytes.max().unwrap_or_default();
    }

    /// The shares with a bound, other than `own`, that are charged with dirty state of this inode.
    pub(crate) fn bounded_beside(&self, own: &Arc<Share>) -> Vec<Arc<Share>> {
        let epochs = std::iter::once(&self.pending).chain(&self.running);
        let all = epochs.flat_map(|epoch| &epoch.charges);
        let names = self.names.iter().flat_map(|name| &name.charges);
        let mut shares: Vec<Arc<Share>> = Vec::new();
        for charge in all.chain(names).filter(|charge| charge.share != *own) {
            if charge.is_bounded() && !shares.contains(&charge.share) {
                shares.push(Arc::clone(&charge.share));
            }
        }
        shares
    }

    /// Gives back the nodes that neither dirty state nor a change under way needs. A directory whose own name is dirty
    /// or lost keeps one node, which knows the path of the directory.
    fn release(&mut self) {
        let named = (!self.file && !self.names.is_empty()) || self.is_unreachable();
        if self.pending.is_clean() && self.in_flight.is_empty() && !named {
            self.node = None;
            self.wrote = false;
        }
        let pending = &self.pending;
        self.streams
            .retain(|stream, _| pending.streams.contains(stream));
    }

    /// A node of the inode, or else a directory that has a dirty name of it.
    pub(crate) fn held(&self) -> Option<&Held<V>> {
        let held = self.node.as_ref().or_else(|| self.streams.values().next());
        held.or_else(|| self.names.first().map(|name| &name.dir))
    }

    /// The path of the inode: the kernel's, if a node is held, or else that of one of its opens.
    pub(crate) fn path_hint(&self) -> Option<String> {
        let held = self.node.as_ref().or_else(|| self.streams.values().next());
        held.and_then(|held| held.vfs.path_hint(&held.node))
            .or_else(|| self.opens.path())
    }
}
