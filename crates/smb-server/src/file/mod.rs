//! The per-file engine: all state of an open file that its handles share.
//!
//! Owns share modes, delete-pending, oplocks and leases, byte-range locks, the paths of opens and the watchers of
//! directories ([MS-FSA] 2.1.1, 2.1.4, 2.1.5.1.2, .5, .8, .9, .11, .15, .18 and [MS-SMB2] 3.3.4.6, 3.3.4.7,
//! 3.3.5.9.8, 3.3.5.9.11, 3.3.5.14, 3.3.5.22).
//!
//! It is one synchronous kernel: no I/O, no clock, no task. Its outside effects are returned as data, in
//! [`Effects`]: break notifications to send and waiters to wake. A caller that must wait picks a [`WaiterId`],
//! registers its wake-up *before* it calls, and ignores wake-ups for ids that it no longer knows.
//!
//! Invariants: two conflicting share modes are never both open; a caching state is granted only if no other state on
//! the stream contradicts it; an open is in the tables from the moment it is granted, so two racing opens are never
//! both granted; a request that must wait is woken when the reason is gone; entries are removed with their last open.

mod below;
mod breaks;
mod caching;
mod claims;
mod contention;
mod deleter;
mod deletion;
mod files;
mod inode;
mod lock_sequences;
mod lock_series;
mod locks;
mod names;
mod quick;
mod renamed;
mod restore;
mod share_path;
mod sizes;
mod small_map;
mod stream_rename;
mod types;
mod watch;

#[cfg(test)]
mod tests;

pub use below::{Below, Clearing, OpensBelow};
pub use breaks::Acknowledged;
pub use claims::Claims;
pub use deleter::Deleter;
pub use files::Files;
pub(crate) use lock_sequences::LOCK_SEQUENCES_MAX;
pub use lock_sequences::LockSequence;
pub(crate) use lock_series::can_lock;
pub use locks::{LockBounds, Locking};
pub(crate) use locks::{before_bad_flags, is_unlock};
pub use names::Look;
pub use quick::{Ongoing, Quick};
pub use renamed::Renamed;
pub use restore::{SavedCache, SavedLease, SavedLock, SavedOpen};
pub use share_path::{ShareId, SharePath};
pub use stream_rename::StreamRename;
pub use types::*;
pub use watch::{Change, HostChange, Reported, Touched, Turn, WatchRequest, Watching};
