//! Threads, timers, rings and sockets on which the protocol core runs.

mod abort;
pub mod admission;
pub(crate) mod apart;
pub mod connection_loads;
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
