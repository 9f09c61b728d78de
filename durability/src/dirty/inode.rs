//! The dirty state of one inode and the requests that wait for it: a plain state machine without locks, clocks or I/O.
//!
//! The changes since the last clean sync have two parts. Data, size, metadata and streams are one
//! epoch: a sync takes it as a whole, and either drops it (success) or hands it to the
//! latch (failure, `inode/latch.rs`). The names (`inode/syncs.rs`) are the directories that must be
//! synced afterwards, each with the sequence number of its last change, newest parent first.
//!
//! Invariants:
//! - Nothing becomes clean except through a sync that started after it was marked.
//! - A node is held while anything of the inode is dirty.
//! - Data that were dirty when a sync failed never become clean by a later sync, only by being rewritten.

mod changes;
mod latch;
mod syncs;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::sync::Notify;
use vfs::{FileKey, Node, SyncScope, Volume, requester::Requester};

use latch::Latch;
pub(crate) use latch::LatchEvent;
pub(crate) use syncs::{FoundAt, Job, Name};

use super::{
    Failure,
    extents::{Changed, ChangedRange, Extents, WriteBackHint, limit_ea_names, rename_size},
};
use crate::{
    share::{Account, Charge, Opens, Reservation, Share, distinct},
    tasks::Waiter,
};

/// The most streams of one inode that may be dirty at once.
const DIRTY_STREAMS_MAX: usize = 256;
/// The most pieces of metadata, each extended attribute counted.
const DIRTY_METADATA_MAX: usize = 256;
/// The most directories with dirty names, each with a descriptor.
const DIRTY_NAMES_MAX: usize = 16;
/// The descriptors of a stream's node: the inode's, and that of a file for the stream's bytes.
const OF_STREAM: usize = 2;

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

/// How a change of contents is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    AtOnce,
    /// In one write with a sync of its own (`RWF_DSYNC`).
    Durably,
    InParts,
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
    /// Writes in flight: tickets, a node of each, and how the change is made.
    in_flight: BTreeMap<u64, (Held<V>, Made)>,
    /// Writes that were accepted and are not in flight: tickets, with the open if it is known.
    queued: BTreeMap<u64, Option<u64>>,
    /// Shares that have promised, under a bound, what was being written: they are charged with it when it is dirty.
    /// Empty while nothing is in flight or queued.
    promised_to: Vec<Arc<Share>>,
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
    /// The shares that it was changed or flushed through, or that were charged when a sync of it failed.
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
            promised_to: Vec::new(),
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
    /// The descriptors that it holds because it is dirty: its own, those of its streams, and one for each directory
    /// with a dirty name of it.
    pub(crate) held: usize,
    /// Some of its names are dirty.
    pub(crate) named: bool,
    /// How often the latch has grown; `None` without one.
    pub(crate) grown: Option<u64>,
    pub(crate) unreachable: bool,
}

impl<V: Volume> Inode<V> {
    pub(crate) fn facts(&self) -> InodeFacts {
        let own = usize::from(self.node.is_some()) + OF_STREAM * self.streams.len();
        let held = own + self.names.len();
        InodeFacts {
            held: if self.is_dirty() { held } else { 0 },
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

    pub(crate) fn take_latch_event(&mut self) -> Option<LatchEvent> {
        self.latch_event.take()
    }

    pub(crate) fn shares(&self) -> &[Arc<Share>] {
        &self.shares
    }

    pub(crate) fn names(&self) -> &[Name<V>] {
        &self.names
    }

    /// Whether it has a dirty name in the directory.
    pub(crate) fn is_named_in(&self, dir: FileKey) -> bool {
        self.names.iter().any(|name| name.dir.key() == dir)
    }

    /// Whether a change of contents wants [`Inode::keep`] first.
    pub(crate) fn wants_keeper(&self) -> bool {
        !self.wrote
    }

    /// The changes that no sync has proven: those that the running one covers, and those since it began.
    fn epochs(&self) -> impl Iterator<Item = &Epoch> {
        std::iter::once(&self.pending).chain(&self.running)
    }

    pub(crate) fn is_dirty(&self) -> bool {
        !self.names.is_empty() || self.epochs().any(|epoch| !epoch.is_clean())
    }

    pub(crate) fn has_dirty_streams(&self) -> bool {
        self.epochs().any(|epoch| !epoch.streams.is_empty())
    }

    /// Whether as much of the inode is dirty as may be: a further change waits for a sync.
    pub(crate) fn is_overfull(&self) -> bool {
        self.streams.len() > DIRTY_STREAMS_MAX
            || self.pending.set_meta.len() > DIRTY_METADATA_MAX
            || self.names.len() > DIRTY_NAMES_MAX
    }

    pub(crate) fn is_idle(&self) -> bool {
        !self.is_dirty()
            && self.latch.is_none()
            && self.in_flight.is_empty()
            && self.queued.is_empty()
            && self.asked.is_empty()
            && self.syncing.is_none()
            && self.opens.is_empty()
    }

    pub(crate) fn seen_through(&mut self, share: &Arc<Share>) {
        if !self.shares.contains(share) {
            self.shares.push(Arc::clone(share));
        }
    }

    /// The shares other than `own` that are charged with a change through `own`: those with a bounded open, and those
    /// that have promised it while it was under way.
    pub(crate) fn charged_beside(&self, own: &Arc<Share>) -> Vec<Arc<Share>> {
        let promised = self.promised_to.iter().filter(|share| *share != own);
        distinct(self.opens.bounded_elsewhere(own).iter().chain(promised))
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

    /// Records that a write through `held` is in flight from now on, and no longer queued.
    pub(crate) fn start_write(&mut self, ticket: u64, held: &Held<V>, made: Made) {
        self.in_flight.insert(ticket, (held.clone(), made));
        self.queued.remove(&ticket);
    }

    /// Records that a write has ended, or was given up before it was in flight.
    pub(crate) fn write_ended(&mut self, ticket: Option<u64>) {
        if let Some(ticket) = ticket {
            self.in_flight.remove(&ticket);
            self.queued.remove(&ticket);
            if !self.is_being_written() {
                self.promised_to.clear();
            }
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

    /// The sync of a whole file system failed, perhaps that of the inode, `key`: everything that is dirty there is
    /// unproven.
    pub(crate) fn file_system_failed(&mut self, fs: u64, key: FileKey, failure: Failure) {
        let dirs: BTreeSet<_> = self.names.iter().map(|name| name.dir.key()).collect();
        for dir in dirs.into_iter().filter(|dir| dir.fs == fs) {
            self.name_failed(dir, failure);
        }
        if key.fs == fs && self.epochs().any(|epoch| !epoch.is_clean()) {
            self.failed(failure, false);
        }
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
}

/// All changes of one epoch, except names.
#[derive(Default)]
pub(crate) struct Epoch {
    /// Contents or size of the unnamed stream.
    pub(crate) data: bool,
    /// Times that a change of contents set, which `fdatasync` leaves behind.
    pub(crate) times: bool,
    /// Metadata, or a name (whose record in the inode only a full sync saves).
    pub(crate) meta: bool,
    /// Metadata and sizes that a client set, as opposed to names.
    pub(crate) set_meta: BTreeSet<Changed>,
    /// The inode was made, with all of its metadata.
    pub(crate) created: bool,
    /// A directory's entries: a name went away.
    pub(crate) entries: bool,
    pub(crate) streams: BTreeSet<String>,
    pub(crate) extents: Extents,
    /// The bytes written, through whichever share.
    pub(crate) bytes: u64,
    /// Streams whose end was set, to the smallest of these sizes, or which were removed. Once that is on disk, nothing
    /// beyond is unproven; if its sync fails, everything beyond is.
    pub(crate) cut: BTreeMap<String, u64>,
    pub(crate) charges: Vec<Charge>,
}

impl Epoch {
    pub(crate) fn is_clean(&self) -> bool {
        !self.data && !self.times && !self.meta && !self.entries && self.streams.is_empty()
    }

    /// The scope of the sync. If no request that waits for it wants the times, `fdatasync` is enough for data and size.
    pub(crate) fn scope(&self, times: bool) -> SyncScope {
        if times || self.meta || self.entries || !self.streams.is_empty() {
            SyncScope::All
        } else {
            SyncScope::Data
        }
    }

    /// The epoch that stays dirty when only data and size are synced: the times, as old as before.
    pub(crate) fn without_data(&self) -> Self {
        Self {
            times: self.times,
            charges: self.charges.iter().filter_map(Charge::as_old).collect(),
            ..Self::default()
        }
    }

    pub(crate) fn set(&mut self, what: Changed) {
        self.meta = true;
        self.set_meta.insert(what);
    }

    pub(crate) fn set_eas<'n>(&mut self, names: impl IntoIterator<Item = &'n str>) {
        self.meta = true;
        let names = names.into_iter();
        let names = names.map(|name| Changed::Ea(vfs::fold(name)));
        self.set_meta.extend(names);
        limit_ea_names(&mut self.set_meta);
    }

    pub(crate) fn merge(&mut self, other: Epoch) {
        self.data |= other.data;
        self.times |= other.times;
        self.meta |= other.meta;
        self.set_meta.extend(other.set_meta);
        limit_ea_names(&mut self.set_meta);
        self.created |= other.created;
        self.entries |= other.entries;
        self.streams.extend(other.streams);
        self.extents.merge(&other.extents);
        self.bytes += other.bytes;
        for (stream, size) in other.cut {
            self.cut_short(&stream, size);
        }
        self.charges.extend(other.charges);
    }

    /// A name was removed from the directory. The caller must have charged the shares before.
    pub(crate) fn entry_removed(&mut self, account: &Account<'_>) {
        self.entries = true;
        for charge in &self.charges {
            if (account.shares()).any(|(share, kind)| charge.is_for(share, kind)) {
                charge.name_removed();
            }
        }
    }

    pub(crate) fn cut_short(&mut self, stream: &str, size: u64) {
        let known = self.cut.entry(stream.to_owned()).or_insert(size);
        *known = size.min(*known);
    }

    /// Moves the recorded changes of a stream to its new name.
    pub(crate) fn rename_stream(&mut self, from: &str, to: &str) {
        // The changes of an earlier stream of the new name prove nothing about this one.
        self.extents.named.remove(to);
        self.cut.remove(to);
        self.set_meta.remove(&Changed::Size(to.to_owned()));
        self.extents.rename(from, to);
        rename_size(&mut self.set_meta, from, to);
        if let Some(size) = self.cut.remove(from) {
            self.cut.insert(to.to_owned(), size);
        }
    }
}
