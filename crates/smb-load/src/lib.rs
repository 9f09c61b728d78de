//! Workloads that are run against any SMB server, to measure it.
//!
//! A workload has two halves. One decides the operations without a server, so that a test can count them and every
//! server gets the same: [`netbench::mix`]. A client carries them out over [`smb_client`] and treats everything that a
//! correct server would not answer as an error, never as a slow operation. The functions that prepare a client fail with
//! the first refusal of the server.
//!
//! [`redirector`] caches as a workstation's client does, for workloads that ask for it. [`experiment`] runs one
//! workload for a time and makes a record of it. [`limit`] is what the same requests cost without a protocol. [`rig`]
//! starts servers and makes disks on this machine for the programs that compare several.
// The macros panic where nobody reads their output any more.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod cpu;
mod error;
pub mod experiment;
mod home;
pub mod jetstress;
mod latency;
pub mod limit;
mod logins;
mod machine;
pub mod netbench;
mod page;
pub mod pieces;
pub mod programs;
mod protection;
pub mod redirector;
pub mod rig;
mod share;
pub mod simple;
pub mod statistics;
mod step;
mod workload;

pub use error::LoadError;
pub use home::Home;
pub use latency::{Recorder, Summary};
pub use protection::Protection;
pub use step::{Measured, Sample, Step, Watch, Worker, run};
