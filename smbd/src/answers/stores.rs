//! The stores in the state folder, in the status.

use serde::{Deserialize, Serialize};

/// The stores that outlive the process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KeptStatus {
    /// The store of latches.
    pub latches: LatchStoreStatus,
    /// The journal of flushes; null if no share has one.
    pub flush_journal: Option<JournalStatus>,
    /// The file systems that are asked for errors of write-back.
    pub file_systems: Vec<WatchedFileSystem>,
}

/// The store of latches.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LatchStoreStatus {
    /// Whether latches can be stored.
    pub healthy: bool,
    /// Latches of file systems that no share is on now.
    pub dormant: usize,
    /// Whether latches are missing, so that every flush fails until they are cleared.
    pub overflow: bool,
}

/// The journal of flushes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct JournalStatus {
    /// Whether the last write succeeded.
    pub healthy: bool,
    /// Records written since the start.
    pub records: u64,
    /// Durable writes that they took.
    pub writes: u64,
    /// Flushes that could not be recorded.
    pub lost: u64,
}

/// A file system that is asked for errors of write-back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WatchedFileSystem {
    /// The folder of the first share on it.
    pub file_system: String,
    /// Its device, as in "0x1f".
    pub device: String,
    /// The shares on it.
    pub shares: Vec<String>,
    /// Errors of write-back since the start.
    pub write_back_errors: u64,
}

/// Opens that outlive their connections.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HandlesStatus {
    /// Durable opens.
    pub durable: usize,
    /// Of these, those that wait for their clients.
    pub waiting: usize,
    /// The store of persistent opens; null if no share has them.
    pub persistent: Option<PersistentStatus>,
}

/// The store of persistent opens.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PersistentStatus {
    /// Opens that are recorded.
    pub opens: usize,
    /// Whether changes can be recorded.
    pub healthy: bool,
    /// Size of what is stored.
    pub bytes: u64,
    /// Changes recorded since the start.
    pub records: u64,
    /// Durable writes that they took.
    pub writes: u64,
    /// Writes that failed.
    pub failed: u64,
}
