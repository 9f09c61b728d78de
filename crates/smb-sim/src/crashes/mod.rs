//! Simulated crashes: workloads, faults and cuts from a seed, judged by the oracle.
//!
//! A [`Plan`] is plain data: who does what, which faults strike, when the power fails, what the
//! disk may lose. [`run`] plays it with real clients against the whole server on a simulated
//! disk, takes the disk as the crash leaves it, starts a new server there, looks at everything
//! through SMB and lets [`crate::oracle`] judge. The same plan gives the same run, and a plan is
//! one line of text, so that what failed can be kept and replayed.
//!
//! Steps are total: what cannot be done in the state that is there (no such file, somebody has
//! it open) is skipped, so that any part of a plan is a plan and [`shrink`] may leave out what it
//! likes.

mod actor;
mod bare;
mod chain;
mod contents;
mod exhaustive;
mod fault;
mod flavour;
mod host;
mod ledger;
mod line;
mod look;
mod names;
mod plan;
mod replaced;
mod run;
mod shares;
mod shrink;
mod step;
mod tally;
mod together;
mod world;

pub use exhaustive::{Alphabet, sequences, sequences_count};
pub use fault::{Fault, Neglect};
pub use plan::{Crash, End, Mischief, Pace, Plan, Speech, Trouble};
pub use run::{Outcome, run, run_planted};
pub use shrink::shrink;
pub use step::{Kind, Step};
pub use tally::Tally;
