//! The log records about acknowledged flushes, for shares that want them (`flush_journal`).
//!
//! Invariants: the record of a FLUSH that waits for the disk is stored after the sync that it describes and before the
//! success reply, so a journal that can be written never lacks an acknowledged flush, and no journal claims one that
//! was not done. Under the lazy policies no change is acknowledged beyond the allowance of bytes and time of the last
//! stored *exposure record*, which is thus an upper bound of what a crash can lose.
//!
//! The journal is evidence: one that cannot write reports that itself and fails no request.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use vfs::{FileKey, Timestamp};

use super::log::StoreTask;
use crate::{policy::Policy, report::Exposure};

/// Most files named in one exposure record.
const EXPOSED_FILES_MAX: usize = 32;
/// Most bytes of a path that are recorded; only people read it.
const PATH_MAX: usize = 1024;

/// Shortens a path, at a character's edge.
pub(super) fn shorten(path: &mut String) {
    path.truncate(path.floor_char_boundary(PATH_MAX));
}

/// A FLUSH that is about to be answered with success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlushRecord {
    /// When, wall clock.
    pub at: Timestamp,
    /// The share.
    pub share: String,
    /// Which inode.
    pub key: FileKey,
    /// The stream flushed, empty for the unnamed one.
    pub stream: String,
    /// Where it is, from the root of the share; empty if unknown. Only a hint.
    pub path: String,
    /// Size in bytes of the stream as it was before the sync began; zero for a directory.
    pub size: u64,
    /// The engine's sequence number of the FLUSH, which orders records within a run.
    pub sequence: u64,
    /// The policy that answered.
    pub policy: Policy,
    /// Bytes that were dirty when the FLUSH came.
    pub bytes: u64,
    /// A directory was flushed.
    pub directory: bool,
}

/// The exposure of a share at one moment, and the limits that hold until the next record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExposureRecord {
    /// When, wall clock.
    pub at: Timestamp,
    /// The share.
    pub share: String,
    /// The policy in force.
    pub policy: Policy,
    /// Dirty and unproven bytes, inodes, age of the oldest change.
    pub exposure: Exposure,
    /// No change is acknowledged under this record with which more bytes than this would be dirty.
    pub allowance: u64,
    /// No change is acknowledged under this record later than this long after it; zero: none at all.
    pub lease: Duration,
    /// The files with most dirty bytes, at most `EXPOSED_FILES_MAX`.
    pub files: Vec<ExposedFile>,
}

/// One dirty file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExposedFile {
    /// Which inode.
    pub key: FileKey,
    /// Where it is, from the root of the share; empty if unknown.
    pub path: String,
    /// Its dirty bytes.
    pub bytes: u64,
}

/// A source of the exposure of shares at this moment; the engine is one.
pub trait ExposureSource: Send + Sync + 'static {
    /// The exposure of `share`. `None`: no such share any more. `at` of the record is the moment of
    /// the answer; it allows no more than is dirty.
    fn exposure_of(&self, share: &str) -> Option<ExposureRecord>;
}

/// Stores the records of acknowledged flushes.
pub trait FlushJournal: Send + Sync + 'static {
    /// Whether this share's flushes are to be stored. Ask this first, to save making records.
    fn wants(&self, share: &str) -> bool;

    /// The sync of a FLUSH ended well. The task ends when the record is on stable storage, or with an
    /// error if it cannot be stored or a reply may wait no longer.
    fn flushed(&self, record: FlushRecord) -> StoreTask;

    /// A FLUSH is answered before the disk. Never waits.
    fn promised(&self, record: FlushRecord);

    /// A change is about to be acknowledged with which the share has `bytes` dirty. `None`: the
    /// last durable exposure record allows for it at `now` (monotonic). Otherwise acknowledge
    /// after the task; if the task fails, nothing bounds the change: make it stable first.
    fn cover(&self, share: &str, bytes: u64, now: Duration) -> Option<StoreTask>;

    /// Sets where exposures come from. Call this once, at start.
    fn set_source(&self, source: Arc<dyn ExposureSource>);
}

/// The files with most dirty bytes, at most as many as a record names, in descending order.
pub(crate) fn most_exposed(bytes: BTreeMap<FileKey, u64>) -> Vec<(FileKey, u64)> {
    let mut all: Vec<(FileKey, u64)> = bytes.into_iter().collect();
    all.sort_by_key(|(key, bytes)| (std::cmp::Reverse(*bytes), *key));
    all.truncate(EXPOSED_FILES_MAX);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_with_most_are_named() {
        let key = |ino| FileKey {
            ino,
            ..FileKey::default()
        };
        let more = (4..100).map(|ino| (key(ino), 1));
        let all = [(key(1), 5), (key(2), 9), (key(3), 9)].into_iter();
        let most = most_exposed(all.chain(more).collect());
        assert_eq!(most.len(), EXPOSED_FILES_MAX);
        assert_eq!(
            most[..4],
            [(key(2), 9), (key(3), 9), (key(1), 5), (key(4), 1)]
        );
    }
}
