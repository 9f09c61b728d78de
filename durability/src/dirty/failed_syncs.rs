//! The last failed sync of each inode, for changes that were in flight at that time.
//!
//! A failing sync may drop a change that is made at that moment and marked only afterwards. By then
//! the latch may be gone, because everything else was rewritten and synced, or because it was
//! cleared; so the latch cannot answer this. Bounded by [`FAILURES_MAX`]: an entry that does not fit
//! counts as a failure of every inode.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use vfs::FileKey;

use super::latch::Failure;
use crate::share::lock;

/// Inodes whose last failure is remembered.
const FAILURES_MAX: usize = 1024;

/// The last failure of each inode.
#[derive(Default)]
pub(crate) struct FailedSyncs {
    newest: AtomicU64,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    of: BTreeMap<FileKey, Failure>,
    /// The newest that did not fit.
    forgotten: Option<Failure>,
}

impl FailedSyncs {
    /// Call this before the inode is latched, so that a change that is marked later finds it here.
    pub(crate) fn note(&self, key: FileKey, failure: Failure) {
        let mut known = lock(&self.known);
        self.newest.fetch_max(failure.sequence, SeqCst);
        // Two that failed at once may come in either order.
        let last = known.of.entry(key).or_insert(failure);
        if last.sequence < failure.sequence {
            *last = failure;
        }
        if known.of.len() > FAILURES_MAX {
            let oldest = known.of.iter().min_by_key(|(_, one)| one.sequence);
            let oldest = oldest.map(|(key, _)| *key);
            let gone = oldest.and_then(|key| known.of.remove(&key));
            known.forgotten = newest([known.forgotten, gone]);
        }
    }

    /// The last one, if a sync of the inode may have failed after `sequence`.
    pub(crate) fn since(&self, key: FileKey, sequence: u64) -> Option<Failure> {
        if self.newest.load(SeqCst) <= sequence {
            return None;
        }
        let known = lock(&self.known);
        let last = newest([known.of.get(&key).copied(), known.forgotten])?;
        (last.sequence > sequence).then_some(last)
    }
}

fn newest(failures: [Option<Failure>; 2]) -> Option<Failure> {
    let known = failures.into_iter().flatten();
    known.max_by_key(|failure| failure.sequence)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use vfs::{Timestamp, VfsError};

    use super::*;

    fn failure(sequence: u64) -> Failure {
        Failure {
            error: VfsError::Io,
            at: Duration::ZERO,
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
        let failures = FailedSyncs::default();
        let since = |key, sequence| failures.since(key, sequence).map(|last| last.error);
        assert_eq!(since(key(1), 0), None);
        for n in 1..=FAILURES_MAX as u64 {
            failures.note(key(n), failure(n));
        }
        assert_eq!(since(key(7), 6), Some(VfsError::Io));
        assert_eq!(since(key(7), 7), None);
        assert_eq!(since(key(0), 0), None, "that one has not failed");
        failures.note(key(9999), failure(5000));
        assert_eq!(since(key(0), 0), Some(VfsError::Io));
        assert_eq!(since(key(0), 1), None);
    }

    #[test]
    fn the_newest_counts_in_whatever_order_they_come() {
        let failures = FailedSyncs::default();
        let key = FileKey::default();
        failures.note(key, failure(20));
        failures.note(key, failure(10));
        assert!(failures.since(key, 15).is_some());
    }
}
