//! Starts servers and makes disks, to measure several servers on one machine.
//!
//! Each server has a folder of its own on the same file system and a port of 127.0.0.1, so that all of them can run
//! at once and be measured in turn. Everything made here is unmade when its value goes. Most of it needs root.

pub mod config;
pub mod device;
mod group;
pub mod memory;
pub mod meter;
pub mod metrics;
pub mod pin;
pub mod server;
pub mod slow;

use std::{
    fmt::Display,
    io::{self, Write as _},
};

/// Any error, for people to read.
pub type Failure = Box<dyn std::error::Error>;

/// Reports what could not be unmade, as far as standard error can be written.
fn left_behind(what: impl Display) {
    let _ = writeln!(io::stderr(), "left behind: {what}");
}
