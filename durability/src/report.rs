//! Values that the engine reports to administrators: its limits, exposure, policies in force, results of syncs.

use std::{sync::Arc, time::Duration};

use vfs::{FileKey, VfsError};

use crate::{
    policy::{Bound, Policy, PolicyKind},
    rules::{Opener, Rule},
};

/// Limits of a server's durability engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most descriptors that dirty inodes hold: each its own, two for each of its dirty streams, and one for each
    /// directory with a dirty name of it. Beyond it the oldest inode is synced in the background and replies wait. A
    /// request marks before it waits: there are at most this many plus a few for each request in flight. Changes on a
    /// file system whose inodes hold no more than a sixteenth of the limit do not wait even then.
    pub dirty_inodes_max: usize,
    /// Longest time an inode stays dirty without a background sync, whatever the policy.
    pub dirty_age_max: Duration,
    /// Most syncs in flight on one file system that background work, a share's flush or the stop causes.
    pub syncs_in_flight_max: usize,
    /// Most poisoned inodes remembered; beyond it every FLUSH fails until latches are cleared.
    pub poisoned_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            dirty_inodes_max: 1024,
            dirty_age_max: Duration::from_secs(30),
            syncs_in_flight_max: 64,
            poisoned_max: 65_536,
        }
    }
}

/// The data and names that were acknowledged and are not known to be on stable storage. It is an
/// upper bound, always: the kernel may have written some of it back already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exposure {
    /// Bytes written and not synced since, those of writes still running included.
    pub bytes: u64,
    /// Dirty inodes: data, metadata or a name changed. Each name that went away is counted once more for what it named.
    pub inodes: u64,
    /// Time since the oldest dirty change; zero if nothing is dirty.
    pub oldest_age: Duration,
    /// Bytes that a failed sync left unproven and nobody has rewritten and synced.
    pub unproven_bytes: u64,
    /// Inodes poisoned by those failures, counted in the same way.
    pub poisoned_inodes: u64,
    /// The dirty part by the policy that acknowledged it, ordered as [`PolicyKind::ALL`]. An inode may be in several.
    pub by_policy: [PolicyExposure; PolicyKind::ALL.len()],
}

impl Exposure {
    /// The part that was acknowledged under this policy. Under a lazy policy a client may believe it
    /// to be stable; under the others no client has flushed it yet.
    pub fn of(&self, kind: PolicyKind) -> PolicyExposure {
        let part = self.by_policy.get(kind as usize);
        part.copied().unwrap_or_default()
    }
}

/// The part of an [`Exposure`] that was acknowledged under one policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PolicyExposure {
    /// Bytes written and not synced since, those of writes still running included.
    pub bytes: u64,
    /// Dirty inodes, counted in the same way.
    pub inodes: u64,
    /// Time since the oldest dirty change; zero if nothing is dirty.
    pub oldest_age: Duration,
}

/// The disk is too slow for a share's bound to be kept while FLUSH is answered at once: FLUSH and
/// write-through wait as under `honor`, and other changes are paced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooSlow {
    /// For how long the disk has been too slow.
    pub lasts: Duration,
    /// The longest time that three quarters of the last syncs took.
    pub sync: Duration,
}

/// Why the lazy policies of a share or its rules are in force as `honor`. Both are false for a share without any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SetAside {
    /// A sync failed: until no latch is left or an administrator acts.
    pub failed_sync: bool,
    /// [`crate::Durability::set_guard`] is on.
    pub guard: bool,
}

/// The policy in force for an inode that is open, and the open that it comes from.
#[derive(Debug, Clone)]
pub struct InForce {
    /// The policy of every request on it: the strictest of its opens'.
    pub policy: Policy,
    /// The tightest limits of all bounded policies among its opens'.
    pub bound: Option<Bound>,
    /// A FLUSH covers the times of the file if its contents changed.
    pub flush_times: bool,
    /// The open, or one of the opens, whose policy is in force.
    pub because: Arc<Opener>,
    /// The share through which that open was made.
    pub share: String,
    /// The rule it matched; `None`: it follows its share.
    pub rule: Option<Arc<Rule>>,
    /// Opens of the inode, over all shares and streams.
    pub opens: usize,
}

/// The result of a sync of everything dirty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StopReport {
    /// Inodes synced.
    pub inodes: u64,
    /// Bytes of them that were dirty.
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
