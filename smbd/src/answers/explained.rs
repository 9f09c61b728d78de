//! The answer to `holdfast policy explain`.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// The policy of an open, and the reason for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Explained {
    /// The share.
    pub share: String,
    /// The path below it; empty for its root.
    pub path: String,
    /// The open in question.
    pub asked: Asked,
    /// The policy of the share.
    pub share_policy: String,
    /// Each rule of the share, in their order.
    pub rules: Vec<RuleExplained>,
    /// The policy that is in force for it.
    pub policy: String,
    /// The policy that the rules give it.
    pub configured_policy: String,
    /// The rule that decided; null: the share's own policy.
    pub decided_by: Option<String>,
    /// Whether FLUSH makes times stable, too.
    pub flush_times: bool,
    /// The promise, in a sentence.
    pub promise: String,
    /// Sentences that go with it.
    pub notes: Vec<String>,
    /// A warning, if acknowledged data end with this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// The policy in force for the file now; only a running server knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_force: Option<InForcePolicy>,
}

/// An open, as a policy looks at it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Asked {
    /// The user; empty if none was given.
    pub user: String,
    /// The groups of the user.
    pub groups: Vec<String>,
    /// The client's address, where given.
    pub client: Option<IpAddr>,
    /// The SMB dialect.
    pub dialect: String,
    /// With FILE_WRITE_THROUGH.
    pub write_through: bool,
    /// With FILE_NO_INTERMEDIATE_BUFFERING.
    pub unbuffered: bool,
}

/// A rule, and why it is or is not for the open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct RuleExplained {
    /// Its name.
    pub rule: String,
    /// Its policy.
    pub policy: String,
    /// Its criteria, in words.
    #[serde(rename = "for")]
    pub criteria: String,
    /// Whether it decided.
    pub matches: bool,
    /// Whether no rule before it did.
    pub reached: bool,
    /// Each criterion that does not hold.
    pub why_not: Vec<String>,
}

/// The policy in force for a file now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum InForcePolicy {
    /// It is open.
    Open(Box<InForceNow>),
    /// It is not open.
    NotOpen(NotOpen),
}

/// Nothing: the file is not open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NotOpen {}

/// The strictest policy of all opens of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct InForceNow {
    /// The policy.
    pub policy: String,
    /// Whether FLUSH makes times stable, too.
    pub flush_times: bool,
    /// The bound within which data are kept that nobody flushed.
    pub bound: Option<String>,
    /// The share of the open that decides.
    pub share: String,
    /// The rule by which it does; null: the share's own policy.
    pub rule: Option<String>,
    /// Opens of the file.
    pub opens: u64,
    /// The open that decides.
    pub because: Asked,
}
