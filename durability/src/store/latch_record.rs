//! The latch of one inode as it is stored, so that it outlives the server process.
//!
//! Invariants: a [`LatchRecord`] is always the whole state of the latch, and a superset of what is unproven: ranges
//! beyond a limit become one that covers them, and a repair need not be stored before its reply. A store that cannot
//! write reports that itself, and the original error is reported all the same. The order of the calls to the store is
//! the order of events, so they are made under the lock of the inode.

use vfs::{FileKey, Timestamp, VfsError};

use super::log::StoreTask;

/// Most ranges kept of one stream; the last of them covers all further ones.
pub(super) const STORED_RANGES_MAX: usize = 64;
/// Most streams kept of one inode; beyond it [`LatchRecord::entries`] is set.
pub(super) const STORED_STREAMS_MAX: usize = 32;
/// Most directories kept in [`LatchRecord::names`]; beyond it [`LatchRecord::entries`] is set as well.
pub(super) const STORED_NAMES_MAX: usize = 32;
/// Most shares kept in [`LatchRecord::shares`]; beyond it the list is empty, which means all shares.
pub(super) const STORED_SHARES_MAX: usize = 16;
/// Most bytes of [`LatchRecord::path`]; a longer one is not kept.
pub(super) const STORED_PATH_MAX: usize = 1024;

/// Bytes of one stream that a failed sync left unproven.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnprovenStream {
    /// The stream's name, empty for the unnamed one.
    pub stream: String,
    /// Ranges in bytes, each from and to (exclusive), ascending and disjoint; `(0, u64::MAX)` if not known where.
    pub ranges: Vec<(u64, u64)>,
}

/// The latch of one inode, whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatchRecord {
    /// Which inode.
    pub key: FileKey,
    /// The first error.
    pub error: VfsError,
    /// When it happened, wall clock.
    pub at: Timestamp,
    /// Sequence number of the failure within the run that saw it.
    pub sequence: u64,
    /// Contents that are not proven.
    pub unproven: Vec<UnprovenStream>,
    /// Metadata that a client set is not proven.
    pub metadata: bool,
    /// A size that was set is not proven.
    pub size: bool,
    /// Entries of this directory, or more than can be recorded, are lost: only an administrator or deletion ends it.
    pub entries: bool,
    /// The inode is known not to be a directory, so nothing is below it.
    pub file: bool,
    /// Directories whose sync with a name of the inode failed.
    pub names: Vec<FileKey>,
    /// Where the inode was, from the root of its share, `/` between components; empty if unknown.
    /// A hint for people and for finding the file system again.
    pub path: String,
    /// Shares it was changed or flushed through; empty means any.
    pub shares: Vec<String>,
}

impl LatchRecord {
    /// A latch of which nothing is known but the error: all contents are unproven.
    pub fn whole(key: FileKey, error: VfsError) -> Self {
        Self {
            key,
            error,
            at: Timestamp::default(),
            sequence: 0,
            unproven: vec![UnprovenStream {
                stream: String::new(),
                ranges: vec![(0, u64::MAX)],
            }],
            metadata: false,
            size: false,
            entries: false,
            file: false,
            names: Vec::new(),
            path: String::new(),
            shares: Vec::new(),
        }
    }

    /// Brings the record within the limits; it never covers less than before.
    pub fn limit(&mut self) {
        for stream in &mut self.unproven {
            limit_ranges(&mut stream.ranges);
        }
        self.unproven.retain(|stream| !stream.ranges.is_empty());
        self.entries |= self.unproven.len() > STORED_STREAMS_MAX;
        self.entries |= self.names.len() > STORED_NAMES_MAX;
        self.unproven.truncate(STORED_STREAMS_MAX);
        self.names.truncate(STORED_NAMES_MAX);
        if self.shares.len() > STORED_SHARES_MAX {
            self.shares.clear();
        }
        // A shortened path would be another path, and files below the directory would count as elsewhere.
        if self.path.len() > STORED_PATH_MAX {
            self.path.clear();
        }
    }

    /// Covers more in fewer bytes. The names stay, because they make a directory count as lost.
    pub(super) fn coarsen(&mut self) {
        self.entries = true;
        self.unproven.clear();
        self.path.clear();
    }

    /// Whether nothing is unproven: such a latch has ended.
    pub fn is_repaired(&self) -> bool {
        self.unproven.iter().all(|stream| stream.ranges.is_empty())
            && !self.metadata
            && !self.size
            && !self.entries
            && self.names.is_empty()
    }

    /// The number of bytes that are not proven; `u64::MAX` if it is not known where they are.
    pub fn unproven_bytes(&self) -> u64 {
        let ranges = self.unproven.iter().flat_map(|stream| &stream.ranges);
        let lengths = ranges.map(|(start, end)| end.saturating_sub(*start));
        lengths.fold(0, u64::saturating_add)
    }
}

fn limit_ranges(ranges: &mut Vec<(u64, u64)>) {
    ranges.retain(|(start, end)| start < end);
    if ranges.len() <= STORED_RANGES_MAX {
        return;
    }
    let rest = ranges.split_off(STORED_RANGES_MAX - 1);
    let start = rest.iter().map(|(start, _)| *start).min();
    let end = rest.iter().map(|(_, end)| *end).max();
    ranges.extend(start.zip(end));
}

/// Stores latches across restarts of the server.
pub trait LatchStore: Send + Sync + 'static {
    /// The latch of `record.key` is this from now on. The task ends when that is on stable storage; its error (already
    /// reported by the store) changes nothing about the latch or about the error of the reply.
    fn set(&self, record: LatchRecord) -> StoreTask;

    /// The latch of `key` ended. Until that is stable, and the task ends, a crash brings it back, which is safe.
    fn cleared(&self, key: FileKey) -> StoreTask;

    /// More inodes failed than the engine can remember (`true`), or an administrator accepted that
    /// (`false`). In between every FLUSH fails, also after a restart. As [`LatchStore::set`].
    fn set_overflow(&self, overflow: bool) -> StoreTask;

    /// Ends with a write that covers all calls so far, or fails when a reply may wait no longer. `None`: at rest.
    fn end_of_writes(&self) -> Option<StoreTask>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_beyond_the_limits_covers_more() {
        let stream = |n: usize| UnprovenStream {
            stream: n.to_string(),
            ranges: (0..200).map(|i| (i * 10, i * 10 + 1)).collect(),
        };
        let mut record = LatchRecord {
            unproven: (0..STORED_STREAMS_MAX).map(stream).collect(),
            path: "\u{e4}".repeat(STORED_PATH_MAX),
            ..LatchRecord::whole(FileKey::default(), VfsError::Io)
        };
        record.limit();
        assert_eq!(record.path, "", "nothing may count as elsewhere");
        for stream in &record.unproven {
            assert_eq!(stream.ranges.len(), STORED_RANGES_MAX);
            for i in 0..200 {
                let covers = |(start, end): &(u64, u64)| *start <= i * 10 && i * 10 < *end;
                assert!(stream.ranges.iter().any(covers), "{i}");
            }
        }
        assert!(!record.entries);
        record.unproven.push(stream(99));
        record.limit();
        assert!(record.entries && record.unproven.len() == STORED_STREAMS_MAX);
        assert!(!record.is_repaired());
    }

    #[test]
    fn an_empty_record_is_repaired() {
        let mut ranges = vec![(5, 5), (7, 3)];
        limit_ranges(&mut ranges);
        assert!(ranges.is_empty());
    }
}
