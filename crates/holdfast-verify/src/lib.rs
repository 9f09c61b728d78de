//! The subcommands of `holdfast` that are clients of any SMB server: `verify-flush` and `bench`.
//!
//! Nothing here knows how a server works inside; the daemon's library does not name this crate, so that it links
//! no client. The binary joins the two. Terminal and files of passwords are the caller's business ([`ReadPassword`]).
#![forbid(unsafe_code)]

pub mod bench;
pub mod verify_flush;

use std::{path::Path, process::ExitCode};

use clap::Subcommand;
use zeroize::Zeroizing;

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
    pub fn run(self, password: ReadPassword) -> ExitCode {
        match self {
            Self::VerifyFlush { command } => verify_flush::run(&command, password),
            Self::Bench { command } => bench::run(command, password),
        }
    }
}
