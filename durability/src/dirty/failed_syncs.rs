//! The last failed sync of each inode and of each file system.
//!
//! A failing sync may drop a change that is made at that moment and marked only afterwards. By then the latch of the
//! inode (`inode/latch.rs`) may be gone, because everything else was rewritten and synced, or because it was cleared.

use std::collections::BTreeMap;

use vfs::{FileKey, Timestamp, VfsError};

/// The most inodes whose last failure is remembered; an entry that does not fit counts as a failure of every inode.
const FAILURES_MAX: usize = 1024;

/// A failed sync or write: the error, the time, and its position among marks and syncs.
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

    /// The last failure, if a sync of the inode, or of its whole file system, may have failed after `sequence`.
    pub(crate) fn since(&self, key: FileKey, sequence: u64) -> Option<Failure> {
        let known = |key| self.known.get(&key).copied();
        let last = newest([known(key), known(Self::whole(key.fs)), self.forgotten])?;
        (last.sequence > sequence).then_some(last)
    }

    /// The key of a failure that concerns every inode of a file system; none has the number 0.
    pub(crate) fn whole(fs: u64) -> FileKey {
        FileKey {
            fs,
            ..FileKey::default()
        }
    }
}

fn newest<const N: usize>(failures: [Option<Failure>; N]) -> Option<Failure> {
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
