//! The project's chores: `cargo xtask compare`, `cargo xtask price`, `cargo xtask regress`.
//!
//! A chore belongs here when it needs more than one program and a shell would lose its errors.

#![forbid(unsafe_code)]

mod bed;
mod compare;
mod price;
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
    /// Serves the same folder with Samba (tuned: synchronous, threads, io_uring) and with Holdfast (threads, io_uring) on
    /// loopback, lets the same clients work on each in turn, and prints what a GiB and an operation cost each server in
    /// CPU time, rates and latencies, the limit (the same bytes with no protocol), the ratios to the cheapest Samba with
    /// their 95 % intervals, and whether they hold. Needs root (Samba does), smbd and smbclient. docs/performance.md says
    /// more.
    Compare(Box<compare::Options>),
    /// The price of a FLUSH under each durability policy, and with Samba's strict sync yes and no
    ///
    /// The same 4 KiB WRITE + FLUSH load on ext4, XFS and btrfs on loop devices, by 1, 16 and 64 openers of one file and of
    /// many. Server CPU, cache flushes and writes of the device, latency, merging. Needs root, smbd, mkfs of the three
    /// file systems, and losetup.
    Price(price::Options),
    /// Whether this tree is slower than an older commit
    ///
    /// Builds the server of an older commit and of this tree, lets one client measure both in turn, and fails if an
    /// operation takes more than 1.25 times the CPU time, with the whole 95 % interval of six rounds. About a minute beside
    /// the builds. Needs root.
    Regress(regress::Options),
    /// The server of the limit, which a comparison starts
    #[command(name = compare::limit::CHORE, hide = true)]
    Limit(compare::limit::Options),
}

fn main() -> ExitCode {
    let outcome = match Chore::parse() {
        Chore::Compare(options) => compare::compare(*options),
        Chore::Price(options) => price::price(&options),
        Chore::Regress(options) => regress::regress(&options),
        Chore::Limit(options) => compare::limit::serve(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}
