//! Changes of an inode other than a WRITE, and questions about its state.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::sync::Notify;
use vfs::{FileKey, Node, Volume};

use super::{Held, Inode, Latch, Made};
use crate::{
    dirty::{Earlier, extents::Changed},
    policy::PolicyKind,
    share::{Account, Share, distinct},
};

impl<V: Volume> Inode<V> {
    pub(crate) fn is_file(&self) -> bool {
        self.file
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone
    }

    pub(crate) fn is_of(&self, wanted: impl Fn(&Arc<Share>) -> bool) -> bool {
        self.shares.iter().any(wanted)
    }

    /// The directories other than `from` to which an earlier name may come back, because its removal by a rename is
    /// dirty or lost, each with the number of the change by which the name left it; 0 if that is not known. If the
    /// inode has no name, the answer is that of the time when the last one was removed.
    pub(crate) fn earlier_names(&self, from: FileKey) -> BTreeMap<FileKey, u64> {
        let mut all = self.left.clone();
        let left = self.names.iter().filter(|name| name.left);
        all.extend(left.map(|name| (name.dir.key(), name.seq)));
        let lost = self.latch.iter().filter(|latch| latch.entries);
        all.extend(lost.flat_map(|latch| &latch.names).map(|dir| (*dir, 0)));
        all.remove(&from);
        all
    }

    /// Whether it is a directory to which a removed name may come back, because the removal is dirty or lost.
    pub(crate) fn may_bring_names_back(&self) -> bool {
        let lost = |latch: &Latch| !self.file && latch.entries;
        self.epochs().any(|epoch| epoch.entries) || self.latch.as_ref().is_some_and(lost)
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.is_dirty() || !self.in_flight.is_empty()
    }

    /// Records that the end of file was set and that bytes of the stream beyond `size` are gone.
    pub(crate) fn resized(&mut self, stream: &str, size: u64) {
        self.room_changed(Changed::Size(stream.to_owned()));
        self.pending.cut_short(stream, size);
    }

    /// Records that size or allocation was set.
    pub(crate) fn room_changed(&mut self, what: Changed) {
        self.pending.data = true;
        self.pending.times = true;
        self.pending.set_meta.insert(what);
    }

    pub(crate) fn stream_removed(&mut self, stream: &str) {
        self.pending.set(Changed::Stream(stream.to_owned()));
        self.pending.set(Changed::Size(stream.to_owned()));
        self.pending.extents.named.remove(stream);
        self.pending.cut_short(stream, 0);
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

    /// Whether a write with a ticket below `now` that carries a sync of its own is in flight.
    pub(crate) fn has_durable_write(&self, now: u64) -> bool {
        let mut earlier = self.in_flight.range(..now);
        earlier.any(|(_, (_, made))| *made == Made::Durably)
    }

    /// The time at which the running sync began, if there is one and it does not cover everything that was marked by
    /// `marked`.
    pub(crate) fn begun_before(&self, marked: u64) -> Option<Duration> {
        let (sequence, at) = self.last_sync;
        let another = sequence < marked && !self.pending.is_clean();
        (self.running.is_some() && another).then_some(at)
    }

    /// Dirty bytes, including those of the epoch that is being synced.
    pub(crate) fn bytes(&self) -> u64 {
        self.epochs().map(|epoch| epoch.bytes).sum()
    }

    /// Whether a write is in flight or queued.
    pub(super) fn is_being_written(&self) -> bool {
        !self.in_flight.is_empty() || !self.queued.is_empty()
    }

    /// Records that a FLUSH is answered before the disk: the policy of `account` acknowledges everything that is dirty
    /// now or being written. A bound also applies to changes made through other shares.
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
        if account.kind == PolicyKind::Bounded && self.is_being_written() {
            for (share, _) in account.shares() {
                if !self.promised_to.contains(share) {
                    self.promised_to.push(Arc::clone(share));
                }
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
        let mut in_flight = self.in_flight.values();
        let in_parts = in_flight.any(|(_, made)| *made == Made::InParts);
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

    /// The shares with a bound, other than `own`, that are charged with dirty state of this inode.
    pub(crate) fn bounded_beside(&self, own: &Arc<Share>) -> Vec<Arc<Share>> {
        let all = self.epochs().flat_map(|epoch| &epoch.charges);
        let all = all.chain(self.names.iter().flat_map(|name| &name.charges));
        let bounded = all.filter(|charge| charge.share != *own && charge.is_bounded());
        distinct(bounded.map(|charge| &charge.share))
    }

    /// A node of the inode, or else a directory that has a dirty name of it.
    pub(crate) fn held(&self) -> Option<&Held<V>> {
        let held = self.own_node();
        held.or_else(|| self.names.first().map(|name| &name.dir))
    }

    /// A node of the inode: one of a write in flight if nothing is dirty yet.
    pub(crate) fn own_node(&self) -> Option<&Held<V>> {
        let held = self.node.as_ref().or_else(|| self.streams.values().next());
        held.or_else(|| self.in_flight.values().next().map(|(held, _)| held))
    }

    /// The path of the inode: the kernel's, if a node is held, or else that of one of its opens.
    pub(crate) fn path_hint(&self) -> Option<String> {
        let held = self.own_node();
        held.and_then(|held| held.vfs.path_hint(&held.node))
            .or_else(|| self.opens.path())
    }
}
