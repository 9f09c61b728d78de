//! Compares the promises of a server with the state found after a crash.
//!
//! A [`History`] is recorded from the client's side: the requests and their answers, in one order of sequence
//! numbers. A [`View`] is the state that a client finds afterwards. [`check`] compares them by the rules below and
//! returns the [`Violation`]s.
//!
//! Everything is a register: a name in a directory, a sector of a stream, its size, a stream's existence, one kind
//! of metadata. The value found in one must have been put there by a request that no *covered* request came after;
//! the terms say which requests had to be stable and so are covered. A request issued and not answered may have
//! happened or not; one that was refused has not; one that failed may have, in part. So clients may be concurrent,
//! and the order in which the server carried out overlapping requests need not be known.
//!
//! Pure: no clock, no I/O, no server. Times are those of the recorder's clock. Rule 9 (the server starts and serves
//! the remaining state) is checked by the code that makes the [`View`].
//!
//! Limits: contents and ends of file are multiples of [`SECTOR`] bytes.

mod check;
mod covers;
mod history;
mod latch;
mod meetings;
mod op;
mod promise;
mod rules;
mod stamp;
#[cfg(test)]
mod tests;
mod view;

use std::fmt;

pub use check::{Crash, Cut, Exposed, Terms, check, loss};
pub use history::{Answer, Ask, Content, Covers, Effect, History, Key, OpId, Request, Size, Value};
pub use meetings::{Event, Meetings, WANTED};
pub use rules::Loss;
pub use stamp::{SECTOR, Sector, Stamp, fill, sectors_of};
pub use view::{Found, FoundStream, View};

/// A file or directory, as the recorder numbers them. Never used twice in a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Object(pub u64);

impl Object {
    pub const ROOT: Self = Self(0);
}

/// The rules that every history must obey.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// (1) The state that a FLUSH or write-through answer promised, or a later one, is there.
    Acknowledged,
    /// (2) No page mixes more than two of its states; no sector is neither.
    Torn,
    /// (3) `bounded`: nothing older than the delay and no more than the bytes is lost.
    Bound,
    /// (4) After the death of the process nothing answered is lost.
    Process,
    /// (5) `strict-sync`: nothing answered is lost.
    Strict,
    /// (6) After a failed sync no success on that inode until it is repaired.
    Latch,
    /// (7) After a rename there is exactly one name; during it, no fewer.
    OneName,
    /// (8) The reported exposure is no less than the loss.
    Exposure,
    /// (9) The server starts and serves on what is left.
    Recovery,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub rule: Rule,
    /// The expected and the found value.
    pub what: String,
}

impl Violation {
    pub fn new(rule: Rule, what: impl Into<String>) -> Self {
        Self {
            rule,
            what: what.into(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.rule, self.what)
    }
}
