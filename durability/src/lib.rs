//! What must be stable before which reply: policies, group commit, the error latch, exposure.
//!
//! Owns the dirty state of every inode changed through the server and the decision when it is
//! synced. [`Durability`] is one per server, a [`Gate`] one per share; each change passes its gate
//! and gets a [`Receipt`], without which no success reply can be built. [`barriers`] is the policy
//! as a pure function.
//!
//! Rules kept here: rely only on fsync of the file and of every directory touched; nothing is
//! clean except by a sync that started after it was marked; a failed sync latches the inode and
//! is never retried into success; the exposure is an upper bound.
//!
//! Does not own: SMB messages, descriptors, clocks, threads ([`vfs::Env`] gives time and tasks).
//! Knows nothing of what an earlier server process left unsynced: after an unclean stop the
//! daemon syncs the file systems before it serves.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod dirty;
mod gate;
mod metrics;
mod planted;
mod policy;
mod report;
mod rules;
mod settings;
mod share;
mod store;
mod sync;

pub use gate::{
    Completion, Earlier, FlushTarget, Gate, OpenPolicy, PendingChange, Receipt, Unchanged,
};
pub use metrics::{BUCKETS, Counters, HistogramView};
#[cfg(feature = "planted-faults")]
pub use planted::Planted;
pub use policy::{Barriers, Event, Flushed, Meta, RequestFlags, Wait, barriers};
pub use report::{Exposure, InForce, LatchedInode, Limits, PolicyExposure, StopReport, TooSlow};
pub use rules::{Decision, Network, Opener, PathPattern, Rule, Rules};
pub use settings::{
    Bound, InvalidPolicy, Policy, PolicyKind, ShareDurability, parse_bytes, parse_delay,
};
pub use store::{
    ALLOWANCE_MIN, Change, Damage, EXPOSED_FILES_MAX, ExposedFile, ExposureNote, ExposureRecord,
    ExposureSource, FLUSHES, FlushJournal, FlushRecord, HANDLES, JournalFile, JournalLimits,
    JournalRecord, JournalRun, KEY_MAX, KnownFs, LATCHES, LEASE, LatchMap, LatchRecord, LatchStore,
    LogCounts, LogMap, MapCounts, MapEntry, MapSpec, OpenedLatches, OpenedMap, ReadMap, Refusal,
    SEGMENT_READ_MAX, STORED_NAMES_MAX, STORED_PATH_MAX, STORED_RANGES_MAX, STORED_SHARES_MAX,
    STORED_STREAMS_MAX, Segment, ShareRoot, StartRecord, StoreError, StoreTask, StoredLatches,
    UnprovenStream, VALUE_MAX, read_latches, read_log_map, read_segment, segment_name,
    segment_number,
};
pub use sync::{Durability, SetAside};

#[cfg(test)]
mod tests;
