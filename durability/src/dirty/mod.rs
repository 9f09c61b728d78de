//! The dirty state of inodes: what changed, what is unproven, how long syncs take, and what each share is charged with.
//!
//! Nothing here waits or performs I/O. The state of one inode has no lock and reads no clock: every step
//! is a method on it, and `sync/table.rs` runs it under the lock of that inode.

mod extents;
mod failed_syncs;
mod inode;
mod latency;
pub(crate) mod share;

pub(crate) use extents::{Changed, ChangedRange};
pub(crate) use failed_syncs::{FailedSyncs, Failure};
pub(crate) use inode::{FoundAt, Held, Inode, Job, LatchEvent, Made, Name};
pub(crate) use share::{Account, Effective};

/// The queued writes that a FLUSH waits for. It always waits for those in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Earlier {
    /// Every queued write of the inode.
    All,
    /// Those of this open, and those without a known open: the FLUSH comes from an open that
    /// caches, and other writes may be waiting for the break that this FLUSH is a response to.
    Of(u64),
}
