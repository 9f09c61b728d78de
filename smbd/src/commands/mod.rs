//! The subcommands of `holdfast` other than `serve`.

pub(crate) mod account;
pub(crate) mod administration;
pub mod banner;
pub(crate) mod check_config;
pub(crate) mod convert_streams;
mod out;
