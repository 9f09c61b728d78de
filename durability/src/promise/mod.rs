//! Decides which answers a share promises to be stable: policies, their options and the rules that choose between them.
//! Everything here is a pure function of its arguments: nothing waits, reads a clock or touches a disk.

pub(crate) mod patterns;
pub(crate) mod policy;
pub(crate) mod rules;
pub(crate) mod settings;
