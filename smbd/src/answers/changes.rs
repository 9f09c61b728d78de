//! The answers to commands that change something: `reload`, `close`, `policy set` and `policy clear-latch`.

use serde::{Deserialize, Serialize};

use super::ShareStatus;

/// The answer to `holdfast reload`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// The configuration in force.
    pub applied: AppliedConfig,
    /// Tables and keys whose changes need a restart.
    pub needs_restart: Vec<String>,
}

/// A configuration in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedConfig {
    /// The shares that are served.
    pub shares: Vec<String>,
    /// Those of them that came back while changes from before are not stable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_stable: Vec<String>,
    /// Everything that it ended, if it ended anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<EndedByReload>,
    /// Policies and rules that changed, as soon as everything is on disk that was dirty under those that were tightened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<PolicyOutcome>,
}

/// Everything that a configuration ends because it does not allow it any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum EndedByReload {
    /// At once.
    Now(EndedNow),
    /// After the grace period, in words.
    Later(String),
}

/// Everything that a reload has ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedNow {
    /// Sessions, tree connects and opens.
    #[serde(flatten)]
    pub closed: ClosedObjects,
    /// Connections.
    pub connections: usize,
}

/// The answer to `holdfast close`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClosedObjects {
    /// Sessions.
    pub sessions: usize,
    /// Tree connects, those of the sessions included.
    pub tree_connects: usize,
    /// Opens, those of the sessions and tree connects included.
    pub opens: usize,
    /// The objects that were closed by themselves and not along with another; only the first of them.
    pub closed: Vec<ClosedOne>,
}

/// Something that was closed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ClosedOne {
    /// "session", "tree connect" or "open".
    pub kind: String,
    /// Its id.
    pub id: u64,
    /// Its user.
    pub user: String,
    /// The share, of a tree connect or an open; else empty.
    pub share: String,
    /// The path below the share, of an open; else empty.
    pub path: String,
}

/// A change of one share's policy and rules. A reload that changes nothing of a share waits for an earlier change of
/// it, and reports that.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyOutcome {
    /// The share.
    pub share: String,
    /// The policy before.
    pub was: String,
    /// The policy now.
    pub policy: String,
    /// Rules.
    pub rules: usize,
    /// The result of the sync for a stricter policy.
    pub synced: Synced,
}

/// A policy that was set: an element of the answer to `holdfast policy set`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyChange {
    /// The share as it is now.
    #[serde(flatten)]
    pub share: ShareStatus,
    /// The policy before.
    pub was: String,
    /// The result of the sync for a stricter policy.
    pub synced: Synced,
}

/// The result of a sync for a stricter policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Synced {
    /// Inodes made stable.
    pub inodes: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Inodes that could not be made stable.
    pub failed: u64,
    /// The first errors.
    pub errors: Vec<SyncErrorReport>,
}

/// An inode that could not be made stable.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncErrorReport {
    /// Its number.
    pub inode: u64,
    /// The device of its file system, as in "0x1f".
    pub device: String,
    /// The error.
    pub error: String,
}

/// An element of the answer to `holdfast policy clear-latch`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClearedLatches {
    /// The share.
    pub share: String,
    /// Inodes whose latches were cleared.
    pub cleared_inodes: usize,
}
