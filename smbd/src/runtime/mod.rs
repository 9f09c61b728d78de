//! Threads, timers, rings and sockets on which the protocol core runs.

pub mod admission;
pub mod env;
pub mod listener;
pub mod log;
pub mod placement;
pub(crate) mod resources;
pub mod ring;
pub mod seats;
pub(crate) mod settings;
pub(crate) mod timers;
pub mod transport;
mod vital;
pub mod worker;
