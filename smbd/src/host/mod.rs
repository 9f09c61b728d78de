//! This machine as the daemon sees it: interfaces, power, storage protection, changes by other programs, the sandbox.

pub(crate) mod host_changes;
pub(crate) mod interfaces;
#[cfg(test)]
pub(crate) mod loop_mount;
pub(crate) mod mounts;
pub(crate) mod netlink;
pub(crate) mod notify;
pub(crate) mod power;
pub mod protection;
pub mod sandbox;
