//! The daemon: everything between the kernel and the protocol core.
//!
//! This crate owns configuration, command line, user file, control socket, metrics page, logging, listeners, pinned
//! workers and their runtimes, signals, orderly shutdown. It is the only crate that names tokio's runtime. It does
//! nothing that a client could notice in a reply; logic of that kind belongs in another crate.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used))]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::panic))]
// The macros panic where nobody reads their output any more.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

#[macro_use]
mod error;

pub mod accounts;
pub mod answers;
pub mod args;
pub mod cli;
pub mod commands;
pub mod config;
pub mod control;
pub mod daemon;
pub mod host;
pub mod host_vfs;
pub mod metrics;
pub mod runtime;
mod serve;
pub mod service;
pub mod state;
pub mod status;

pub use error::Error;

use vfs::lock;
