//! The subcommands of `holdfast` that look at a server from outside: `verify-flush` and `bench` as clients of any SMB
//! server, `durability report` by what a server of ours has stored.
//!
//! Nothing here runs a server; the daemon's library does not name this crate, so that it links no client. The binary
//! joins the two: terminal and files of passwords ([`ReadPassword`]), and the place of the state folder
//! ([`FindState`]), are the caller's business.
#![forbid(unsafe_code)]

pub mod bench;
pub mod durability_report;
pub mod verify_flush;

use std::{path::Path, process::ExitCode};

use clap::Subcommand;
use zeroize::Zeroizing;

pub use durability_report::{FindState, StateFolder, Utc};

/// Reads a password from this file, or asks for it with this prompt if there is no file.
pub type ReadPassword = fn(Option<&Path>, &str) -> Result<Zeroizing<String>, String>;

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Prove that what any SMB server acknowledged survives a power cut
    #[command(after_help = verify_flush::EXAMPLES)]
    VerifyFlush {
        #[command(subcommand)]
        command: verify_flush::VerifyCommand,
    },
    /// Report what a server had promised before it ended, and what is there now
    Durability {
        #[command(subcommand)]
        command: durability_report::DurabilityCommand,
    },
    /// Measure any SMB server: NetBench, Jetstress, flushes, copies, small files, names
    #[command(after_help = bench::EXAMPLES)]
    Bench {
        #[command(subcommand)]
        command: bench::BenchCommand,
    },
}

impl Command {
    /// Carries the command out; prints its own errors.
    #[must_use]
    pub fn run(self, password: ReadPassword, state: FindState, utc: Utc) -> ExitCode {
        match self {
            Self::VerifyFlush { command } => verify_flush::run(&command, password),
            Self::Durability { command } => durability_report::run(command, state, utc),
            Self::Bench { command } => bench::run(command, password),
        }
    }
}
