//! The subcommands of `holdfast` that look at a server from outside: `verify-flush` and `bench` as clients of any SMB
//! server, `durability report` by what a server of ours has stored.
//!
//! Nothing here runs a server; the daemon's library does not name this crate, so that it links no client. The binary
//! joins the two: terminal and files of passwords ([`ReadPassword`]), and the place of the state folder
//! ([`FindState`]), are the caller's business.
#![forbid(unsafe_code)]
// The macros panic where nobody reads their output any more.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

/// Adds a line to a text, written as for `format!`; writing to a string cannot fail.
macro_rules! line {
    ($text:expr; $($line:tt)+) => {{
        let _ = std::fmt::Write::write_fmt(&mut $text, format_args!("{}\n", format_args!($($line)+)));
    }};
}

pub mod bench;
pub mod durability_report;
#[cfg(test)]
mod schemas;
pub mod verify_flush;

use std::{
    fmt::Display,
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
};

use clap::Subcommand;
use serde::Serialize;
use zeroize::Zeroizing;

pub use durability_report::{FindState, StateFolder};

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
    pub fn run(self, password: ReadPassword, state: FindState) -> ExitCode {
        match self {
            Self::VerifyFlush { command } => verify_flush::run(&command, password),
            Self::Durability { command } => durability_report::run(command, state),
            Self::Bench { command } => bench::run(command, password),
        }
    }
}

/// Writes to standard output.
fn print(text: &str) -> Result<(), String> {
    let mut out = io::stdout().lock();
    let printed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    printed.map_err(|error| format!("standard output: {error}"))
}

/// Prints an answer as sorted JSON, or in words. That nobody reads it any more (`| head`) is no error.
fn print_answer(
    answer: &impl Serialize,
    json: bool,
    in_words: impl FnOnce() -> String,
) -> Result<(), String> {
    let text = match json {
        true => serde_json::to_value(answer)
            .map(|value| format!("{value:#}\n"))
            .map_err(|error| error.to_string())?,
        false => in_words(),
    };
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.to_string()),
        _ => Ok(()),
    }
}

/// Writes a line to standard error, as far as that can be written.
fn remark(line: impl Display) {
    let _ = writeln!(io::stderr(), "{line}");
}
