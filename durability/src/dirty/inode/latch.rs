//! The latch of an inode: the first error of a sync of it, and everything that failed syncs and writes left unproven.
//!
//! Invariants:
//! - Everything that was dirty when a sync failed is in the latch. Until all of it was rewritten and synced, or an
//!   administrator cleared it, the inode answers no request for stability with success. A deleted inode has none.
//! - A latch only grows; the inode removes what a sync has proven. The store receives it from here and gives it back.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use vfs::{FileKey, Node, VfsError, Volume};

use super::{Epoch, Held, Inode, Name};
use crate::{
    dirty::{
        Failure,
        extents::{Changed, ChangedRange, Extents, limit_ea_names},
    },
    policy::Meta,
    share::{Charge, Share, Unproven},
    store::LatchRecord,
};

/// The most changes of metadata, the most named streams and the most directories that a latch records; beyond that only
/// an administrator ends it.
const LOST_MAX: usize = 256;

/// A step that made a latch, extended it, or ended it.
pub(crate) enum LatchEvent {
    Failed(Failure),
    /// Everything was rewritten and synced; the path is that of the latch.
    Repaired(String),
    /// The inode was deleted; the path is that of the latch.
    Deleted(String),
}

/// The latch of an inode: the first error of a sync, and all state that is unproven since.
pub(crate) struct Latch {
    pub(crate) first: Failure,
    pub(crate) grown: u64,
    /// The path of the inode when the sync failed, or after a later move.
    pub(crate) path: String,
    /// The sequence number of the last failure; a name that changed after it is repaired by its own sync.
    pub(crate) mark: u64,
    pub(crate) extents: Extents,
    pub(crate) metadata: BTreeSet<Changed>,
    /// Directories whose sync with a name of the inode failed or was never reached.
    pub(crate) names: BTreeSet<FileKey>,
    /// Entries of a directory, or a removed name, are lost. No rewriting proves them: only an administrator ends this.
    pub(crate) entries: bool,
    pub(super) lost: Vec<Unproven>,
}

impl Latch {
    pub(crate) fn new(first: Failure, shares: &[Arc<Share>]) -> Self {
        Self {
            first,
            grown: 0,
            path: String::new(),
            mark: first.sequence,
            extents: Extents::default(),
            metadata: BTreeSet::new(),
            names: BTreeSet::new(),
            entries: false,
            lost: shares.iter().map(Unproven::new).collect(),
        }
    }

    pub(crate) fn is_repaired(&self) -> bool {
        self.extents.is_empty()
            && self.metadata.is_empty()
            && self.names.is_empty()
            && !self.entries
    }

    /// Whether a name or a stream is lost, and with it perhaps everything written there.
    pub(crate) fn is_out_of_reach(&self) -> bool {
        let lost_stream = |what: &Changed| matches!(what, Changed::Stream(_));
        !self.names.is_empty() || self.metadata.iter().any(lost_stream)
    }

    pub(crate) fn add_metadata(&mut self, what: BTreeSet<Changed>) {
        self.metadata.extend(what);
        limit_ea_names(&mut self.metadata);
        self.metadata = as_lost(std::mem::take(&mut self.metadata));
        self.limit();
    }

    /// Forgets what exceeds the limits, in however many failed syncs it was lost.
    fn limit(&mut self) {
        let streams = &mut self.extents.named;
        let most = (self.metadata.len().max(streams.len())).max(self.names.len());
        self.entries |= most > LOST_MAX;
        for _ in LOST_MAX..self.metadata.len() {
            self.metadata.pop_last();
        }
        for _ in LOST_MAX..streams.len() {
            streams.pop_last();
        }
        for _ in LOST_MAX..self.names.len() {
            self.names.pop_last();
        }
    }

    /// Adds names that are lost, and removed names that may come back.
    pub(crate) fn add_names<V: Volume>(&mut self, names: &[Name<V>]) {
        for name in names {
            self.names.insert(name.dir.key());
            self.entries |= name.left;
            self.take(&name.charges);
        }
        self.limit();
    }

    pub(crate) fn add_epoch(&mut self, epoch: Epoch) {
        self.extents.merge(&epoch.extents);
        self.add_metadata(epoch.set_meta);
        self.add_cut(epoch.cut);
        if epoch.created {
            self.add_metadata(Changed::METADATA.into());
        }
        self.take(&epoch.charges);
        self.entries |= epoch.entries;
    }

    /// Adds streams that were cut short to these sizes. The bytes beyond may be there again after a crash, and a larger
    /// size does not take them away.
    fn add_cut(&mut self, cut: BTreeMap<String, u64>) {
        for (stream, size) in cut {
            self.extents.add_within(&stream, size, u64::MAX);
        }
        self.limit();
    }

    pub(crate) fn take(&mut self, charges: &[Charge]) {
        for charge in charges {
            self.lost(&charge.share).take(charge);
        }
    }

    #[expect(clippy::indexing_slicing, reason = "the place was just found or made")]
    pub(crate) fn lost(&mut self, share: &Arc<Share>) -> &mut Unproven {
        let mut all = self.lost.iter();
        let known = all.position(|lost| lost.share == *share);
        let place = known.unwrap_or_else(|| {
            self.lost.push(Unproven::new(share));
            self.lost.len() - 1
        });
        &mut self.lost[place]
    }

    /// Adds a change of contents that was in flight when a sync failed.
    pub(crate) fn add_write(&mut self, share: &Arc<Share>, stream: &str, (start, end): (u64, u64)) {
        self.grown += 1;
        self.extents.add(stream, start, end);
        self.limit();
        self.count(share, (start, end));
    }

    /// Adds up the bytes of a range whose end is known.
    fn count(&mut self, share: &Arc<Share>, (start, end): (u64, u64)) {
        if end < u64::MAX {
            self.lost(share).add(end.saturating_sub(start));
        }
    }
}

/// The changes that are lost if a sync of these fails.
fn as_lost(mut what: BTreeSet<Changed>) -> BTreeSet<Changed> {
    if what.remove(&Changed::DoubtfulEas) {
        what.insert(Changed::Meta(Meta::Eas));
    }
    what
}

impl<V: Volume> Inode<V> {
    /// The first error of the latch. With one, the inode is poisoned: what a failed sync left unproven is not repaired.
    pub(crate) fn latch_error(&self) -> Option<VfsError> {
        self.latch.as_ref().map(|latch| latch.first.error)
    }

    /// Whether the inode is poisoned and was in `folder` when its sync failed, or is there now, as far as is known.
    /// `folder` is a path from the root of a share through which it was changed. A file of unknown path may be there;
    /// a directory with an empty path is the root. After a move that is not stable the inode may come back anywhere.
    pub(crate) fn is_poisoned_in(&self, folder: &str) -> bool {
        let Some(latch) = &self.latch else {
            return false;
        };
        let is_in = |path: &str| {
            let below = path.strip_prefix(folder);
            below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
        };
        (self.file && latch.path.is_empty())
            || is_in(&latch.path)
            || self.names.iter().any(|name| name.left)
            || self.path_hint().is_some_and(|now| is_in(&now))
    }

    /// Drops the latch. True if there was one.
    pub(crate) fn forget_latch(&mut self) -> bool {
        self.latch.take().is_some()
    }

    /// The sync failed: everything dirty is unproven, or without any the whole inode. True if it is poisoned now.
    ///
    /// `entries`: the inode is a directory with dirty names in it, which the sync was to save.
    pub(crate) fn failed(&mut self, failure: Failure, entries: bool) -> bool {
        let mut epoch = self.running.take().unwrap_or_default();
        if self.gone {
            self.release();
            return false;
        }
        epoch.merge(std::mem::take(&mut self.pending));
        let names = self.take_failed_names();
        self.affects(&epoch.charges);
        names.iter().for_each(|name| self.affects(&name.charges));
        let latch = self.latch_with(failure);
        latch.add_names(&names);
        latch.entries |= entries;
        latch.add_epoch(epoch);
        if latch.is_repaired() {
            // A sync failed, but no dirty state was known: everything is unproven.
            latch.extents.add_within("", 0, u64::MAX);
        }
        self.release();
        true
    }

    /// The sync of a directory failed: the dirty names in it are unproven.
    pub(crate) fn name_failed(&mut self, dir: FileKey, failure: Failure) {
        let names = std::mem::take(&mut self.names).into_iter();
        let (failed, kept): (Vec<_>, Vec<_>) = names.partition(|name| name.dir.key() == dir);
        self.names = kept;
        if !failed.is_empty() {
            failed.iter().for_each(|name| self.affects(&name.charges));
            self.latch_with(failure).add_names(&failed);
        }
    }

    /// The inode has several names, and one of them has moved. It is not known whether that is one that was lost, so
    /// its move repairs nothing.
    pub(crate) fn lost_one_of_several_names(&mut self) {
        if let Some(latch) = &mut self.latch {
            latch.entries |= !latch.names.is_empty();
            latch.grown += 1;
        }
    }

    /// A failure concerns every share that is charged, even if the inode was changed through others alone.
    fn affects(&mut self, charges: &[Charge]) {
        (charges.iter()).for_each(|charge| self.seen_through(&charge.share));
    }

    /// Marks metadata or a size by `change`, which a failed sync may have dropped. It stays dirty and is part of the
    /// latch, and the next sync does not repair it, because a sync after a failed one proves nothing about it.
    pub(crate) fn own_failed(&mut self, failure: Failure, change: impl FnOnce(&mut Self)) {
        let others = std::mem::take(&mut self.pending.set_meta);
        let cut = std::mem::take(&mut self.pending.cut);
        change(self);
        let lost = std::mem::replace(&mut self.pending.cut, cut);
        let what = as_lost(std::mem::replace(&mut self.pending.set_meta, others));
        if self.gone || what.is_empty() {
            return;
        }
        if let Some(running) = &mut self.running {
            // A sync that began before this mark repairs nothing of it.
            running.set_meta.retain(|one| !what.contains(one));
        }
        let latch = self.latch_with(failure);
        latch.add_metadata(what);
        latch.add_cut(lost);
    }

    /// Contents changed at `place`, and a sync failed after that began. The change belongs to the latch of that sync,
    /// which is made anew if it has ended; a deleted inode is not poisoned. Returns the place to mark as dirty.
    pub(crate) fn doubted(
        &mut self,
        share: &Arc<Share>,
        held: &Held<V>,
        place: ChangedRange,
        failure: Failure,
    ) -> ChangedRange {
        if !self.gone && self.latch.is_none() {
            self.latch_with(failure);
        }
        let Some(latch) = &mut self.latch else {
            return place;
        };
        if let ChangedRange::At(start, end) | ChangedRange::Within(start, end) = place {
            latch.add_write(share, held.node.stream().unwrap_or_default(), (start, end));
        }
        ChangedRange::Unproven
    }

    /// For a directory: a name that was just added may be lost, or one that was removed may come back,
    /// because the sync that was to store the change failed.
    pub(crate) fn entry_failed(&mut self, failure: Failure) {
        if !self.gone {
            self.latch_with(failure).entries = true;
        }
    }

    /// A durable write failed. Its sync may have reported the failure of any earlier write-back, which is not reported
    /// again: everything dirty is unproven, including what a sync that is running covers. Names stay dirty.
    pub(crate) fn write_failed(
        &mut self,
        share: &Arc<Share>,
        stream: &str,
        range: (u64, u64),
        failure: Failure,
    ) {
        if self.gone {
            return;
        }
        self.seen_through(share);
        let mut epoch = std::mem::take(&mut self.pending);
        if let Some(running) = &mut self.running {
            epoch.merge(std::mem::take(running));
        }
        self.affects(&epoch.charges);
        let latch = self.latch_with(failure);
        latch.add_write(share, stream, range);
        latch.add_epoch(epoch);
        self.release();
    }

    /// A latch read back from a store.
    pub(crate) fn restore(
        &mut self,
        record: &LatchRecord,
        failure: Failure,
        shares: &[Arc<Share>],
    ) {
        shares.iter().for_each(|share| self.seen_through(share));
        self.file |= record.file;
        let latch = self.latch_with(failure);
        for unproven in &record.unproven {
            for range in &unproven.ranges {
                latch.extents.add(&unproven.stream, range.0, range.1);
                shares.iter().for_each(|share| latch.count(share, *range));
            }
        }
        if record.metadata {
            // The record does not say which metadata was lost, so all of it counts as lost.
            latch.add_metadata(Changed::METADATA.into());
        }
        if record.size {
            latch.add_metadata([Changed::Size(String::new())].into());
        }
        latch.entries |= record.entries;
        latch.names.extend(&record.names);
        if latch.path.is_empty() {
            latch.path.clone_from(&record.path);
        }
        // The earlier process, in which the sync failed, has already reported this.
        self.latch_event = None;
    }

    /// Extends the latch, if there is one, to these shares. Returns those that it did not concern before.
    pub(crate) fn extend_latch(&mut self, mut shares: Vec<Arc<Share>>) -> Vec<Arc<Share>> {
        let Some(latch) = &mut self.latch else {
            return Vec::new();
        };
        shares.retain(|share| !self.shares.contains(share));
        for share in &shares {
            latch.lost(share);
            self.shares.push(Arc::clone(share));
        }
        shares
    }

    pub(crate) fn latch_record(&self, key: FileKey) -> Option<LatchRecord> {
        let latch = self.latch.as_ref()?;
        let any = |is: fn(&Changed) -> bool| latch.metadata.iter().any(is);
        Some(LatchRecord {
            key,
            error: latch.first.error,
            at: latch.first.since,
            sequence: latch.first.sequence,
            unproven: latch.extents.stored(),
            metadata: any(|what| matches!(what, Changed::Meta(_))),
            size: any(|what| match what {
                Changed::Size(stream) => stream.is_empty(),
                what => *what == Changed::Allocation,
            }),
            // The record names no lost extended attribute, and no stream that is lost or has lost its size.
            entries: latch.entries
                || any(|what| match what {
                    Changed::Ea(_) | Changed::Stream(_) => true,
                    Changed::Size(stream) => !stream.is_empty(),
                    _ => false,
                }),
            file: self.file,
            names: latch.names.iter().copied().collect(),
            path: latch.path.clone(),
            shares: self.shares.iter().map(|share| share.name.clone()).collect(),
        })
    }

    fn latch_with(&mut self, failure: Failure) -> &mut Latch {
        let unnamed = self.latch.as_ref().is_none_or(|one| one.path.is_empty());
        let path = unnamed.then(|| self.path_hint()).flatten();
        let known = &mut self.latch;
        let latch = known.get_or_insert_with(|| Latch::new(failure, &self.shares));
        latch.mark = latch.mark.max(failure.sequence);
        latch.grown += 1;
        latch.path = path.unwrap_or(std::mem::take(&mut latch.path));
        self.latch_event = Some(LatchEvent::Failed(failure));
        latch
    }

    /// Records that the inode has moved, so that its latch is shown and stored with the new path.
    pub(super) fn latch_moved(&mut self) {
        let held = self.node.as_ref().filter(|_| self.latch.is_some());
        let path = held.and_then(|held| held.vfs.path_hint(&held.node));
        if let (Some(latch), Some(path)) = (&mut self.latch, path)
            && latch.path != path
        {
            latch.path = path;
            latch.grown += 1;
        }
    }
}
