//! The SMB 2 and 3 server: connections, sessions, trees, opens, and the commands on them.
//!
//! The crate has no runtime, clock, randomness, socket or file of its own: time and tasks are
//! passed in as [`vfs::Env`], files as [`vfs::Vfs`], bytes as [`transport`]. So the same code runs
//! in the daemon and in the simulator.
//!
//! ARCHITECTURE.md follows a request through the files. `file/` decides which opens of a file may
//! exist together and what they may cache.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used))]
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::panic))]
#![cfg_attr(not(test), deny(clippy::iter_over_hash_type))]

mod access;
mod administration;
mod command;
pub mod config;
mod connection;
mod failure;
pub mod file;
pub mod host_watch;
pub mod limits;
mod link;
mod local_accounts;
mod locks;
mod memory;
mod pattern;
mod persistent;
mod pipe;
mod race;
mod restore;
mod serve;
mod state;
mod token;
pub mod transport;
mod turn;

pub use administration::{ConnectionReport, OpenReport, Report, SessionReport, Target};
pub use command::{AccessRules, Ended, EndedOne};
pub use connection::{Carried, Client};
pub use memory::{Memory, MemoryFigures};
pub use persistent::{Announce, HandleStore};
pub use restore::Restored;
pub use serve::{lost, serve};
pub use state::{CommandCount, Requests, Server, Share, Shares};
