//! Threads, timers, rings and sockets: what the protocol core runs on.

pub mod admission;
pub mod env;
pub mod listener;
pub mod log;
pub mod placement;
pub(crate) mod resources;
pub mod ring;
pub(crate) mod settings;
pub(crate) mod timers;
pub mod transport;
pub mod worker;
