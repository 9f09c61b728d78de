//! The dirty state of inodes: what changed, what a failed sync left unproven, and how long syncs
//! take.
//!
//! Invariants:
//! - Nothing becomes clean except through a sync that started after it was marked.
//! - Nothing here waits, locks or performs I/O, and no clock is read: every step is a method on the
//!   state of one inode, and `sync/table.rs` runs it under the lock of that inode.

mod epoch;
mod inode;
mod latch;
mod latency;
mod opens;
mod ranges;
mod write_back;

pub(crate) use epoch::{Account, Changed, Where};
pub(crate) use inode::{Held, Inode, Job, Name};
pub(crate) use latch::{FailedSyncs, Failure, LatchEvent};
pub(crate) use latency::{Keeping, SyncLatency, Turn};
pub(crate) use opens::{Effective, OpenEntry};

/// The queued writes that a FLUSH waits for. It always waits for those in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Earlier {
    /// Every queued write of the inode.
    All,
    /// Those of this open, and those without a known open: the FLUSH comes from an open that
    /// caches, and other writes may be waiting for the break that this FLUSH is a response to.
    Of(u64),
}
