//! The `holdfast` binary: the command line, and the protocol joined to the daemon.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use smbd::{daemon, service::Holdfast};

fn main() -> ExitCode {
    smbd::cli::Cli::parse().run(|setup| daemon::run(setup, Holdfast::new))
}
