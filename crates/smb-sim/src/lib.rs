//! The whole server in a world made from one seed: executor, clock, network and disk.
//!
//! [`Sim`] polls a random ready task until nothing is ready, then lets time jump to the next timer; [`pipe`] is a
//! network without sockets; [`memory_server`] is the protocol core over the POSIX back end over a simulated disk;
//! [`SimServer`] puts the three together, and [`SimClient`] is the sans-IO client on top. The same seed gives the
//! same run, byte for byte.
//!
//! For tests, benches and examples; nothing that ships depends on it. It does not delay or reorder bytes within a
//! connection (the network is TCP), and it samples interleavings instead of enumerating them.

#![forbid(unsafe_code)]

mod client;
pub mod crashes;
mod executor;
pub mod oracle;
pub mod pipe;
mod server;
mod trace;

pub use client::{Message, SimClient, write_request};
pub use executor::{Sim, SimEnv, Stuck};
pub use server::{
    MemoryOptions, MemoryVfs, PASSWORD, SHARE, SimServer, USER, memory_disk, memory_server,
};
pub use trace::{Direction, Passage, Trace};
pub use vfs::sim::SimRng;
