//! The subcommands of `holdfast` that work without a running server of this machine's own.

pub(crate) mod account;
pub mod banner;
pub(crate) mod convert_streams;
pub(crate) mod durability_report;
