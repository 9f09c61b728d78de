//! Workloads that are run against any SMB server, to measure it.
//!
//! A workload has two halves. What is done is decided without a server, so that a test can count it and every
//! server gets the same: [`netbench::mix`]. A client carries it out over [`smb_client`] and treats everything that a
//! correct server would not answer as an error, never as a slow operation.
//!
//! This crate starts no server and measures no server's CPU time; that is for the programs that use it.

mod cpu;
mod error;
pub mod experiment;
mod home;
pub mod jetstress;
mod latency;
pub mod netbench;
mod page;
mod random;
mod share;
pub mod simple;
mod step;

pub use error::LoadError;
pub use home::Home;
pub use latency::Summary;
pub use step::{Measured, Sample, Step, Worker, run};
