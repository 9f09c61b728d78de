//! The daemon: everything between the kernel and the protocol core.
//!
//! This crate owns configuration, command line, user file, control socket, metrics page, logging, listeners, pinned
//! workers and their runtimes, signals, orderly shutdown. It is the only crate that names tokio's runtime. It does
//! nothing that a client could notice in a reply; logic of that kind belongs in another crate.
#![forbid(unsafe_code)]

mod account;
mod acting;
pub mod admission;
pub mod atomic;
pub mod banner;
pub mod bench;
pub mod cli;
pub mod config;
pub mod control;
mod convert_streams;
pub mod daemon;
mod durability_report;
pub mod env;
pub mod exposition;
mod flush_journal;
mod host_changes;
pub mod inquiry;
mod interfaces;
mod kept;
mod latches;
pub mod listener;
pub mod local_users;
pub mod log;
#[cfg(test)]
mod loop_mount;
pub mod metrics;
mod netlink;
mod notify;
pub mod password;
mod persistent_store;
pub mod placement;
mod power;
pub mod protection;
mod resources;
pub mod ring;
pub mod sandbox;
mod sentinel;
mod serve;
pub mod service;
mod settings;
pub mod state_dir;
mod timers;
pub mod transport;
mod unclean;
pub mod user_file;
pub mod users;
pub mod verify_flush;
pub mod worker;
