//! The report, as `--json` prints it and as the words are made from it.
//!
//! Its fields are an interface for scripts: `crates/holdfast-verify/schema/` holds their JSON schema, which a test
//! generates from these types.

use serde::Serialize;

/// The report on one run of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DurabilityReport {
    /// The folder of the journal.
    pub journal: String,
    /// Runs that the journal knows.
    pub runs: usize,
    /// The run that is reported on.
    pub run: RunReport,
    /// Its shares.
    pub shares: Vec<ShareReport>,
    /// Files whose sync failed and that are not repaired.
    pub failed_files: FailedFiles,
}

/// One run of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RunReport {
    /// The server's version.
    pub server: String,
    /// Its start, in seconds since 1970.
    pub started_s: i64,
    /// The time of its last record.
    pub last_record_s: i64,
    /// The time of its end in order; null if it did not end so.
    pub ended_s: Option<i64>,
    /// How it ended.
    pub end: RunEnd,
    /// Whether the journal still has its first record.
    pub begins_in_journal: bool,
    /// Flushes in the journal.
    pub flushes: u64,
    /// Flushes that could not be recorded.
    pub lost_records: u64,
    /// Whether the last record was being written at the end.
    pub torn_end: bool,
    /// Whether the machine's clock was set back meanwhile: times of before and after are no order.
    pub clock_set_back: bool,
    /// Places where records are missing.
    pub damage: Vec<JournalDamage>,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum RunEnd {
    /// The run has not ended.
    Running,
    /// In order; all that it had acknowledged was stable.
    Stable,
    /// In order; something was not stable.
    Unstable,
    /// Not in order; the machine has not gone down since.
    Server,
    /// Not in order, and the machine went down with it or after it.
    Machine,
}

/// A place of the journal where records are missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct JournalDamage {
    /// The number of the segment.
    pub segment: u64,
    /// The byte.
    pub offset: u64,
    /// The reason.
    pub what: String,
}

/// A share of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ShareReport {
    /// Its name.
    pub share: String,
    /// Its folder.
    pub path: String,
    /// The last acknowledged flush of each file, the latest first.
    pub files: Vec<FileReport>,
    /// Files that need a look.
    pub suspect_files: usize,
    /// Whether the whole folder could be looked at.
    pub all_looked_at: bool,
    /// The most that a crash of the machine could take; null under a policy that syncs first.
    pub exposure: Option<ExposureReport>,
}

/// The last acknowledged flush of a file, and the file as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FileReport {
    /// Its path below the share; empty if it was not known.
    pub path: String,
    /// The named stream; empty for the file itself.
    pub stream: String,
    /// Its inode.
    pub inode: u64,
    /// The device of its file system at the time of the flush, as in "0x1f"; null if an early build wrote the journal.
    pub device: Option<String>,
    /// The time of the flush, in seconds since 1970.
    pub flushed_s: i64,
    /// The same, in milliseconds.
    pub flushed_ms: i64,
    /// The policy of the flush.
    pub policy: String,
    /// Whether it was answered before the disk.
    pub before_the_disk: bool,
    /// The size then.
    pub size: u64,
    /// The size now, where it is looked at.
    pub size_now: Option<u64>,
    /// The path now, of a file that was renamed.
    pub path_now: Option<String>,
    /// The file now.
    pub now: FileNow,
    /// Deleted or cut off since by somebody who did not flush, or lost.
    pub suspect: bool,
}

/// The present state of a file, compared with what was flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum FileNow {
    /// At its path.
    #[serde(rename = "there")]
    Present,
    /// At another path.
    #[serde(rename = "renamed")]
    Renamed,
    /// Smaller than it was.
    #[serde(rename = "smaller")]
    Smaller,
    /// In the share no longer.
    #[serde(rename = "gone")]
    Gone,
    /// The share could not be looked at to its end.
    #[serde(rename = "not found")]
    NotFound,
}

/// The most that a crash of the machine could take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExposureReport {
    /// The policy.
    pub policy: String,
    /// The time of the measurement, in seconds since 1970.
    pub measured_s: i64,
    /// Bytes that were not stable then.
    pub measured_bytes: u64,
    /// Files with them.
    pub measured_files: u64,
    /// Whether nothing could be lost.
    pub nothing: bool,
    /// Bytes that could be lost at most. While changes are acknowledged, this is the limit that the journal stored in
    /// advance; the bound of the policy applies as well.
    pub at_most_bytes: u64,
    /// The span of time of what could be lost, likewise.
    pub at_most_ms: i64,
    /// All that was acknowledged before this time is stable.
    pub stable_before_ms: i64,
    /// Nothing was acknowledged after this time.
    pub nothing_after_ms: i64,
    /// Files whose sync had failed.
    pub unproven_files: u64,
    /// The files with the most of it.
    pub files: Vec<ExposedFileReport>,
}

/// A file with data that were not stable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ExposedFileReport {
    /// Its path below the share; empty if it was not known.
    pub path: String,
    /// Its inode.
    pub inode: u64,
    /// The device of its file system then, as in "0x1f"; null if an early build wrote the journal.
    pub device: Option<String>,
    /// Bytes.
    pub bytes: u64,
}

/// Files whose sync failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum FailedFiles {
    /// The stored ones.
    Known(Vec<FailedFile>),
    /// Why the store cannot be read.
    Unknown(String),
}

/// A file whose sync failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FailedFile {
    /// Its path when that happened, or words where it is not known.
    pub path: String,
    /// Its inode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inode: Option<u64>,
    /// The shares it was in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shares: Option<Vec<String>>,
    /// The error.
    pub error: String,
    /// The time, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since_s: Option<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_that_of_the_type() {
        crate::schemas::is_in_file::<DurabilityReport>("durability-report");
    }
}
