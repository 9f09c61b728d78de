//! What the engine tells administrators: limits it works under, exposure, latches, reports.

use std::time::Duration;

use vfs::{FileKey, VfsError};

/// Limits of a server's durability engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most inodes with something owed, each of which holds a descriptor. At the limit the
    /// oldest is synced in the background and replies wait.
    pub dirty_inodes_max: usize,
    /// Longest time an inode stays dirty without a background sync, whatever the policy.
    pub dirty_age_max: Duration,
    /// Most syncs in flight that one share's background work, share flush or stop causes.
    pub syncs_in_flight_max: usize,
    /// Most latched inodes remembered; beyond it every FLUSH fails until latches are cleared.
    pub latched_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            dirty_inodes_max: 1024,
            dirty_age_max: Duration::from_secs(30),
            syncs_in_flight_max: 32,
            latched_max: 65_536,
        }
    }
}

/// What is acknowledged and not known to be on stable storage. An upper bound, always: the
/// kernel may have written some of it back already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exposure {
    /// Bytes written and not synced since, those of writes still running included.
    pub bytes: u64,
    /// Inodes with anything owed: data, metadata or a name.
    pub inodes: u64,
    /// Time since the oldest owed change; zero if nothing is owed.
    pub oldest_age: Duration,
    /// Bytes that a failed sync left unproven and nobody has rewritten and synced.
    pub latched_bytes: u64,
    /// Inodes so latched.
    pub latched_inodes: u64,
}

/// An inode whose sync failed and which is not repaired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatchedInode {
    /// Which inode.
    pub key: FileKey,
    /// The first error.
    pub error: VfsError,
    /// When, by the environment's monotonic clock.
    pub at: Duration,
    /// Sequence number of the failure within this server run.
    pub sequence: u64,
    /// Bytes dirty at the failure and not yet rewritten and synced; `u64::MAX` if unknown.
    pub unproven_bytes: u64,
    /// Metadata was dirty at the failure.
    pub metadata: bool,
    /// A name was owed at the failure.
    pub names: bool,
}

/// What a sync of everything owed came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StopReport {
    /// Inodes synced.
    pub inodes: u64,
    /// Bytes that were owed by them.
    pub bytes: u64,
    /// Inodes whose sync failed.
    pub failed: u64,
    /// The first of the errors, at most [`StopReport::ERRORS_MAX`].
    pub errors: Vec<(FileKey, VfsError)>,
}

impl StopReport {
    /// Most errors listed.
    pub const ERRORS_MAX: usize = 1000;
}
