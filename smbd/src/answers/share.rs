//! A share in the answers: its policy and rules, the data that are acknowledged and not stable, and what failed.

use serde::{Deserialize, Serialize};

use super::ProtectionStatus;

/// A share that is served: an element of the answer to `holdfast policy show`, and of the status.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ShareStatus {
    /// Its name.
    pub share: String,
    /// Its folder; in the status only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The policy in force.
    pub policy: String,
    /// The policy as configured or set.
    pub configured_policy: String,
    /// Why lazy policies are not in force.
    pub set_aside: Vec<SetAsideReason>,
    /// The promise of the policy in force, in a sentence.
    pub promise: String,
    /// The disk has become too slow for the bound; null while it is not.
    pub too_slow: Option<TooSlowStatus>,
    /// Rules for some of its opens, in their order.
    pub rules: Vec<RuleStatus>,
    /// Bytes acknowledged and not known to be stable, at most.
    pub exposed_bytes: u64,
    /// Inodes with anything not known to be stable.
    pub exposed_inodes: u64,
    /// Age of the oldest of these changes.
    pub oldest_ms: u64,
    /// The part of each policy that acknowledged any of it.
    pub by_policy: Vec<PolicyExposureStatus>,
    /// Inodes whose sync failed and that are not repaired.
    pub poisoned_inodes: u64,
    /// Bytes that these syncs left unproven.
    pub unproven_bytes: u64,
    /// The first of these inodes, and directories of the file system whose name was lost through another share.
    pub poisoned: Vec<PoisonedStatus>,
    /// Whether another folder than the one that is served, or none, is at its path; `holdfast reload` serves the other.
    pub replaced: bool,
    /// The devices under it, as words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The devices under it, in full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protection: Option<ProtectionStatus>,
    /// Why the devices do not keep the promise of the policy, if they do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broken_promise: Option<String>,
    /// A warning, if acknowledged data end with this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// Data that the start after an unclean end could not make stable, until the loss is accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_at_start: Option<String>,
    /// The last change of its policy by `holdfast policy set`, until a reload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<LastChange>,
}

/// Why the lazy policies of a share are not in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum SetAsideReason {
    /// A sync failed.
    FailedSync,
    /// This machine runs on a battery.
    PowerGuard,
}

/// A disk that is too slow for the bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct TooSlowStatus {
    /// The time since the disk became too slow.
    pub for_ms: u64,
    /// The time that a sync takes.
    pub sync_ms: u64,
}

/// A rule of a share.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RuleStatus {
    /// Its name.
    pub rule: String,
    /// Its policy.
    pub policy: String,
    /// Its criteria, in words.
    #[serde(rename = "for")]
    pub criteria: String,
}

/// The part of a policy in what is not stable yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PolicyExposureStatus {
    /// The policy, without its bounds.
    pub policy: String,
    /// Bytes that it acknowledged and that are not known to be stable, at most.
    pub exposed_bytes: u64,
    /// Inodes with changes that it acknowledged and that are not known to be stable.
    pub exposed_inodes: u64,
    /// Age of the oldest of these changes.
    pub oldest_ms: u64,
}

/// An inode whose sync failed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PoisonedStatus {
    /// Its number.
    pub inode: u64,
    /// The device of its file system, as in "0x1f".
    pub device: String,
    /// Its path when the sync failed; empty if it is not known.
    pub path: String,
    /// The error.
    pub error: String,
    /// The time of the failure.
    pub since: String,
    /// Bytes whose state is unknown; null: all of it.
    pub unproven_bytes: Option<u64>,
    /// Whether the state of its metadata is unknown.
    pub metadata: bool,
    /// Whether the state of its names is unknown.
    pub names: bool,
}

/// A change of a share's policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LastChange {
    /// The new policy.
    pub policy: String,
    /// The policy before.
    pub was: String,
    /// Whether the rules were set aside, too.
    pub without_rules: bool,
    /// The user who changed it.
    pub by: String,
    /// The time.
    pub at: String,
    /// The time in seconds since 1970.
    pub unix_s: u64,
}

/// A share that is not served any more, as long as something that it acknowledged is not stable.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RemovedShareStatus {
    /// Its name.
    pub share: String,
    /// Bytes acknowledged and not known to be stable, at most.
    pub exposed_bytes: u64,
    /// Inodes with anything not known to be stable.
    pub exposed_inodes: u64,
    /// Age of the oldest of these changes.
    pub oldest_ms: u64,
    /// Inodes whose sync failed and that are not repaired.
    pub poisoned_inodes: u64,
}

/// A share that is not served yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LateShareStatus {
    /// Its name.
    pub share: String,
    /// Its folder.
    pub path: String,
    /// Since the start, or the reload that brought it.
    pub waited_ms: u64,
    /// The failure of its file system; null while that does not answer.
    pub error: Option<String>,
    /// With `error`: the time until it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again_in_ms: Option<u64>,
    /// With `error`: what an administrator can do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub way_out: Option<String>,
    /// Data that the start after an unclean end could not make stable.
    pub lost_at_start: Option<String>,
}
