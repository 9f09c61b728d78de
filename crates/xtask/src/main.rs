//! The project's chores: `cargo xtask compare`, `cargo xtask regress`.
//!
//! A chore belongs here when it needs more than one program and a shell would lose its errors.

#![forbid(unsafe_code)]

mod chore;
mod compare;
mod regress;

use std::process::ExitCode;

use clap::Parser;

/// Any error, for people to read.
type Failure = Box<dyn std::error::Error>;

/// The project's chores
#[derive(Parser)]
#[command(bin_name = "cargo xtask")]
enum Chore {
    /// Holdfast beside Samba
    ///
    /// A matrix (`holdfast bench matrix`) of Samba (tuned: synchronous, threads, io_uring), Holdfast (threads,
    /// io_uring) and the limit (the same bytes with no protocol) on loopback. Prints what an operation costs each
    /// server in CPU time, rates and latencies, the ratios to the best Samba and to the limit with their 95 %
    /// intervals, and whether they hold. Needs root (Samba does), smbd and smbclient. docs/performance.md says more.
    Compare(Box<compare::Options>),
    /// Whether this tree is slower than an older commit
    ///
    /// Builds the server of an older commit and of this tree, lets one client measure both in turn, and fails if an
    /// operation takes more than 1.25 times the CPU time, with the whole 95 % interval of six rounds. About a minute
    /// beside the builds. Needs root.
    Regress(regress::Options),
}

fn main() -> ExitCode {
    let outcome = match Chore::parse() {
        Chore::Compare(options) => compare::compare(&options),
        Chore::Regress(options) => regress::regress(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}
