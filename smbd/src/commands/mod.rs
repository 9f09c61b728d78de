//! The subcommands of `holdfast` other than `serve`.

pub(crate) mod account;
pub mod banner;
pub(crate) mod check_config;
pub(crate) mod convert_streams;
pub(crate) mod inquiry;
mod out;
