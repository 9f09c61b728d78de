//! The latch: the first error of a sync of one inode, and everything that it left unproven.
//!
//! Invariant: until all of it was rewritten and synced, or an administrator cleared it, the inode
//! answers no request for stability with success. A latch only grows; the inode removes what a sync
//! has proven.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use vfs::{FileKey, Timestamp, Vfs, VfsError};

use super::{
    epoch::{Changed, Epoch, Where},
    inode::Name,
    ranges::Extents,
};
use crate::share::{Charge, Share, Unproven};

/// The most changes of metadata that a latch records; beyond that only an administrator ends it.
const METADATA_MAX: usize = 256;

/// The first error of a sync, and what it left unproven.
pub(crate) struct Latch {
    pub(crate) error: VfsError,
    pub(crate) at: Duration,
    /// The same by the wall clock.
    pub(crate) since: Timestamp,
    pub(crate) sequence: u64,
    /// How often it has grown.
    pub(crate) grown: u64,
    /// Where the inode was then.
    pub(crate) path: String,
    /// Names with a later change are repaired by their own sync.
    pub(crate) mark: u64,
    pub(crate) extents: Extents,
    pub(crate) metadata: BTreeSet<Changed>,
    /// Directories whose sync with a name of the inode failed or was never reached.
    pub(crate) names: BTreeSet<FileKey>,
    /// Entries of a directory, or a name that went away. No rewriting proves them again: only an
    /// administrator does.
    pub(crate) entries: bool,
    pub(crate) size: bool,
    pub(crate) lost: Vec<Unproven>,
}

impl Latch {
    pub(crate) fn grown(&self) -> u64 {
        self.grown
    }

    pub(crate) fn is_repaired(&self) -> bool {
        self.extents.is_empty()
            && self.metadata.is_empty()
            && self.names.is_empty()
            && !self.entries
            && !self.size
    }

    /// A name or a stream is lost, and everything written there may be lost with it.
    pub(crate) fn is_out_of_reach(&self) -> bool {
        let lost_stream = |what: &Changed| matches!(what, Changed::Stream(_));
        !self.names.is_empty() || self.metadata.iter().any(lost_stream)
    }

    pub(crate) fn add_metadata(&mut self, what: BTreeSet<Changed>) {
        self.metadata.extend(what);
        while self.metadata.len() > METADATA_MAX {
            self.metadata.pop_last();
            self.entries = true;
        }
    }

    /// Names are lost, those that it left may come back.
    pub(crate) fn add_names<V: Vfs>(&mut self, names: &[Name<V>]) {
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
        self.take(&epoch.charges);
        self.entries |= epoch.entries;
        self.size |= epoch.sized;
    }

    pub(crate) fn take(&mut self, charges: &[Charge]) {
        for charge in charges {
            self.lost(&charge.share).take(charge);
        }
    }

    pub(crate) fn lost(&mut self, share: &Arc<Share>) -> &mut Unproven {
        let known = self
            .lost
            .iter()
            .position(|lost| Arc::ptr_eq(&lost.share, share));
        let place = known.unwrap_or_else(|| {
            self.lost.push(Unproven::new(share));
            self.lost.len() - 1
        });
        &mut self.lost[place]
    }

    /// A write that was under way when a sync failed is unproven.
    pub(crate) fn add_write(&mut self, share: &Arc<Share>, stream: &str, (start, end): (u64, u64)) {
        self.grown += 1;
        self.extents.add(stream, start, end);
        self.lost(share).add(end - start);
    }

    /// Any other change of contents that was under way.
    pub(crate) fn add(&mut self, share: &Arc<Share>, stream: &str, place: Where) {
        match place {
            Where::At(start, end) | Where::Within(start, end) => {
                self.add_write(share, stream, (start, end));
            }
            Where::Unknown => {
                self.grown += 1;
                self.extents.add_unknown(stream);
            }
            Where::Latched => {}
        }
    }
}

/// When and after which change a failure happened.
#[derive(Clone, Copy)]
pub(crate) struct Failure {
    pub(crate) error: VfsError,
    pub(crate) at: Duration,
    pub(crate) since: Timestamp,
    pub(crate) sequence: u64,
}
