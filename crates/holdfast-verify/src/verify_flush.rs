//! `holdfast verify-flush`: does a server, and all that lies under it, keep what it acknowledged?
//!
//! `write` sends numbered, checksummed records to any SMB server and has each flushed; what was
//! acknowledged goes to a ledger that lies elsewhere. The power is cut. `check` reads everything back
//! and says which acknowledged records are missing, torn, stale or without their name. It finds
//! servers that answer too early, and disks, controllers, hypervisors and clouds that lie.
//!
//! The formats are described where they are read and written: records in `record.rs`, the
//! ledger in `ledger.rs`, names and places in `plan.rs`. Both are versioned by their first bytes.
//! An acknowledged record may be replaced by a later one of its slot, and only by that. A record
//! that was on its way at the cut may tear the slot it was to overwrite, and no other.
//!
//! It does not cut the power; it does not drop the server's cache (without a reboot `check` reads
//! what is in memory); and it keeps no secret on the command line.

mod access;
mod check;
mod latency;
mod ledger;
mod ledger_writer;
mod plan;
mod record;
mod report;
mod source;
mod write;

use std::{
    process::ExitCode,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use clap::Subcommand;

use crate::{ReadPassword, remark};

pub(crate) use access::Login;
pub use access::{Access, Place};
pub use check::CheckArgs;
pub use plan::Mode;
pub use write::WriteArgs;

/// The end of `holdfast verify-flush --help`.
pub const EXAMPLES: &str = "\
Example: does the server nas keep what it acknowledges? (The ledger stays on this machine.)
  holdfast verify-flush write //nas/data/verify --user alice --ledger run1 --rename --streams
      ... cut the power of nas; this ends by itself, and says how much was acknowledged ...
      ... start nas again ...
  holdfast verify-flush check //nas/data/verify --user alice --ledger run1

On the machine that is cut itself, the ledger must go elsewhere:
  holdfast verify-flush write //127.0.0.1/data/verify --user alice --password-file pw \\
      --ledger - | ssh other 'cat > run1'

Checked are records, names and, after a FLUSH, modification times. (A write-through WRITE covers no time.)

Exit status of write: 0 ended as asked, or by the cut; 1 the server or the ledger failed; 2 it could
not begin. Of check: 0 all is there after a cut; 1 something acknowledged is lost; 2 it could not be
checked; 3 all is there, but no cut ended the run, or nothing was acknowledged: nothing was
tested.";

/// `holdfast verify-flush ...`
#[derive(Debug, Subcommand)]
pub enum VerifyCommand {
    /// Write records until the connection breaks, and keep a ledger of what was acknowledged
    Write(WriteArgs),
    /// Say which acknowledged records are missing, torn or stale, and which files' times are old
    Check(CheckArgs),
}

/// Why something could not be done at all: exit status 2.
type Failure = String;

/// The result of `check`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    /// Nothing that was acknowledged before the cut is lost.
    AllThere,
    /// Something is.
    Lost,
    /// All is there, but the run was not ended by a cut, or nothing was acknowledged.
    Untested,
}

impl Verdict {
    fn exit(self) -> ExitCode {
        match self {
            Self::AllThere => ExitCode::SUCCESS,
            Self::Lost => ExitCode::FAILURE,
            Self::Untested => ExitCode::from(3),
        }
    }
}

/// Carries out the command.
#[must_use]
pub fn run(command: &VerifyCommand, password: ReadPassword) -> ExitCode {
    let done = match command {
        VerifyCommand::Write(args) => write::write(args, password).map(|good| match good {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }),
        VerifyCommand::Check(args) => check::check(args, password).map(Verdict::exit),
    };
    done.unwrap_or_else(|why| {
        remark(format_args!("error: {why}"));
        ExitCode::from(2)
    })
}

/// Microseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or(Duration::ZERO);
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
