//! Durability: what must be stable before which reply, by policy.
//!
//! The crate owns the dirty state of every inode that was changed through the server, and decides when it is synced.
//! There is one [`Durability`] per server and one [`Gate`] per share. Each change passes its gate and obtains a
//! [`Receipt`], without which no success reply can be built. `promise/policy.rs` is the policy as a pure function.
//!
//! Invariants:
//! - Only fsync of the file and of every directory concerned is relied on.
//! - Nothing becomes clean except by a sync that started after it was marked.
//! - A failed sync latches the inode, and is never retried into success.
//! - The exposure is an upper bound.
//!
//! SMB messages, descriptors, clocks and threads belong to others ([`vfs::Env`] provides time and tasks). The engine
//! does not know what an earlier process left dirty: after an unclean end the daemon first syncs file systems.

#![forbid(unsafe_code)]
#![warn(missing_docs)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used))]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::panic))]
#![cfg_attr(not(test), deny(clippy::iter_over_hash_type))]

mod dirty;
mod gate;
mod metrics;
mod promise;
mod report;
mod store;
mod sync;
mod tasks;

use dirty::share;
use promise::{policy, rules, settings};
use sync::planted;

pub use dirty::share::is_same_share;
pub use gate::{
    Completion, Earlier, Gate, OpenPolicy, PendingChange, PendingContents, PendingRename, Receipt,
    Replaced, Unchanged,
};
pub use metrics::{BUCKETS, Counters, HistogramView};
#[cfg(feature = "planted-faults")]
pub use planted::Planted;
pub use promise::patterns::PathPattern;
#[cfg(test)]
use promise::policy::{Barriers, Event, Wait, barriers};
pub use promise::policy::{
    Bound, FlushTarget, InvalidPolicy, Meta, Policy, PolicyKind, RequestFlags,
};
pub use promise::rules::{Network, Opener, PolicyDecision, Rule, Rules};
pub use promise::settings::ShareDurability;
pub use report::{Exposure, InForce, Limits, PolicyExposure, SetAside, StopReport, TooSlow};
pub use store::*;
pub use sync::Durability;

#[cfg(test)]
mod tests;
