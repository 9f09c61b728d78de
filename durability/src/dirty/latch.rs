//! The latch: the first error of a sync of one inode, and everything that it left unproven.
//!
//! Invariant: until all of it was rewritten and synced, or an administrator cleared it, the inode answers no request
//! for stability with success. A latch only grows; the inode removes what a sync has proven.
//!
//! A failing sync may also drop a change that is made at that moment and marked only afterwards. By then
//! the latch may be gone, because everything else was rewritten and synced, or because it was cleared. So
//! [`FailedSyncs`] remembers the last failure of each inode.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use vfs::{FileKey, Timestamp, VfsError, Volume};

use super::{
    epoch::{Changed, Epoch, Extents},
    inode::Name,
};
use crate::policy::Meta;
use crate::share::{Charge, Share, Unproven};

/// The most changes of metadata that a latch records; beyond that only an administrator ends it.
const METADATA_MAX: usize = 256;

/// The most inodes whose last failure is remembered; an entry that does not fit counts as a failure of every inode.
const FAILURES_MAX: usize = 1024;

/// One step made a latch, let it grow, or ended it.
pub(crate) enum LatchEvent {
    /// A sync or a write failed with this error.
    Failed(Failure),
    /// Everything was rewritten and synced; the path is that of the latch.
    Repaired(String),
    /// The inode was deleted; the path is that of the latch.
    Deleted(String),
}

/// The first error of a sync, and what it left unproven.
pub(crate) struct Latch {
    pub(crate) first: Failure,
    /// How often it has grown.
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
    lost: Vec<Unproven>,
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

    /// A name or a stream is lost, and everything written there may be lost with it.
    pub(crate) fn is_out_of_reach(&self) -> bool {
        let lost_stream = |what: &Changed| matches!(what, Changed::Stream(_));
        !self.names.is_empty() || self.metadata.iter().any(lost_stream)
    }

    pub(crate) fn add_metadata(&mut self, mut what: BTreeSet<Changed>) {
        if what.remove(&Changed::DoubtfulEas) {
            what.insert(Changed::Meta(Meta::Eas));
        }
        self.metadata.extend(what);
        while self.metadata.len() > METADATA_MAX {
            self.metadata.pop_last();
            self.entries = true;
        }
    }

    /// Names are lost, and names that were removed may come back.
    pub(crate) fn add_names<V: Volume>(&mut self, names: &[Name<V>]) {
        for name in names {
            self.names.insert(name.dir.key());
            self.entries |= name.has_left();
            self.take(&name.charges);
        }
    }

    /// All that changed in an epoch is unproven.
    pub(crate) fn add_epoch(&mut self, epoch: Epoch) {
        self.extents.merge(&epoch.extents);
        self.add_metadata(epoch.set_meta);
        if epoch.created {
            self.add_metadata(Changed::METADATA.into());
        }
        self.take(&epoch.charges);
        self.entries |= epoch.entries;
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

    /// A change of contents that was under way when a sync failed is unproven.
    pub(crate) fn add_write(&mut self, share: &Arc<Share>, stream: &str, (start, end): (u64, u64)) {
        self.grown += 1;
        self.extents.add(stream, start, end);
        // The bytes of a range whose end is unknown are not added up.
        if end < u64::MAX {
            self.lost(share).add(end - start);
        }
    }
}

/// One failure: the error, when it happened, and its place among marks and syncs.
#[derive(Clone, Copy)]
pub(crate) struct Failure {
    pub(crate) error: VfsError,
    pub(crate) since: Timestamp,
    pub(crate) sequence: u64,
}

/// The last failure of each inode.
#[derive(Default)]
pub(crate) struct FailedSyncs {
    known: BTreeMap<FileKey, Failure>,
    /// The newest failure that did not fit in `known`.
    forgotten: Option<Failure>,
}

impl FailedSyncs {
    pub(crate) fn note(&mut self, key: FileKey, failure: Failure) {
        // Two syncs that failed at once may be reported in either order.
        let last = self.known.entry(key).or_insert(failure);
        if last.sequence < failure.sequence {
            *last = failure;
        }
        if self.known.len() > FAILURES_MAX {
            let oldest = self.known.iter().min_by_key(|(_, one)| one.sequence);
            let oldest = oldest.map(|(key, _)| *key);
            let gone = oldest.and_then(|key| self.known.remove(&key));
            self.forgotten = newest([self.forgotten, gone]);
        }
    }

    /// The last failure, if a sync of the inode may have failed after `sequence`.
    pub(crate) fn since(&self, key: FileKey, sequence: u64) -> Option<Failure> {
        let last = newest([self.known.get(&key).copied(), self.forgotten])?;
        (last.sequence > sequence).then_some(last)
    }
}

fn newest(failures: [Option<Failure>; 2]) -> Option<Failure> {
    let known = failures.into_iter().flatten();
    known.max_by_key(|failure| failure.sequence)
}

#[cfg(test)]
mod tests {
    use vfs::{Timestamp, VfsError};

    use super::*;

    fn failure(sequence: u64) -> Failure {
        Failure {
            error: VfsError::Io,
            since: Timestamp::default(),
            sequence,
        }
    }

    #[test]
    fn what_does_not_fit_counts_for_every_inode() {
        let key = |ino| FileKey {
            ino,
            ..FileKey::default()
        };
        let mut failed = FailedSyncs::default();
        let since = |failed: &FailedSyncs, key, sequence| {
            failed.since(key, sequence).map(|last| last.error)
        };
        assert_eq!(since(&failed, key(1), 0), None);
        for n in 1..=FAILURES_MAX as u64 {
            failed.note(key(n), failure(n));
        }
        assert_eq!(since(&failed, key(7), 6), Some(VfsError::Io));
        assert_eq!(since(&failed, key(7), 7), None);
        assert_eq!(since(&failed, key(0), 0), None, "that one has not failed");
        failed.note(key(9999), failure(5000));
        assert_eq!(since(&failed, key(0), 0), Some(VfsError::Io));
        assert_eq!(since(&failed, key(0), 1), None);
    }

    #[test]
    fn the_newest_counts_in_whatever_order_they_come() {
        let mut failures = FailedSyncs::default();
        let key = FileKey::default();
        failures.note(key, failure(20));
        failures.note(key, failure(10));
        assert!(failures.since(key, 15).is_some());
    }
}
