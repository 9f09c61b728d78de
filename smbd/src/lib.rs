//! The daemon: everything between the kernel and the protocol core.
//!
//! What this crate owns: configuration, command line, user file, control socket, metrics page,
//! logging, listeners, pinned workers and their runtimes, signals, orderly shutdown. It is the
//! only crate that names tokio's runtime. What it does not do: anything a client could notice in
//! a reply; when logic of that kind appears here, it is in the wrong crate.
#![forbid(unsafe_code)]

pub mod admission;
pub mod atomic;
pub mod banner;
pub mod config;
pub mod control;
pub mod env;
pub mod listener;
pub mod metrics;
pub mod password;
pub mod placement;
pub mod ring;
pub mod state_dir;
pub mod user_file;
pub mod worker;
