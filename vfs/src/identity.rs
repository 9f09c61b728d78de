//! The identity under which a file-system operation runs.

use std::sync::Arc;

/// The identity whose rights the kernel checks. `Service` is the process's own identity: the only one when the
/// server runs unprivileged.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Identity {
    /// The process's own identity; no switching.
    Service,
    /// A local user; the calling thread takes it on for the call.
    User(Arc<LocalUser>),
}

/// A user as Linux knows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalUser {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups, without `gid`; at most 65,536 (NGROUPS_MAX).
    pub groups: Vec<u32>,
}
