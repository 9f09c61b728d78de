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

mod barrier;
mod disk_file;
mod early;
mod epoch;
mod failures;
mod frames;
mod gate;
mod guard;
mod inode;
mod inside;
mod journal;
mod journal_file;
mod journal_format;
mod kept;
mod latch;
mod latch_file;
mod latch_store;
mod log_map;
mod log_map_format;
mod metrics;
mod moves;
mod opens;
mod pace;
mod payer;
mod planted;
mod policy;
mod ranges;
mod receipt;
mod record;
mod report;
mod rules;
mod settings;
mod share;
mod table;

pub use gate::{
    Arrived, Begun, Changing, Earlier, FlushTarget, Gate, Moving, OpenPolicy, Removing,
};
pub use guard::SetAside;
pub use journal::{
    EXPOSED_FILES_MAX, ExposedFile, ExposureRecord, ExposureSource, FlushJournal, FlushRecord,
    NoFlushJournal, most_exposed,
};
pub use journal_file::{
    ALLOWANCE_MIN, JournalCounts, JournalFile, JournalLimits, JournalRun, LEASE,
};
pub use journal_format::{
    Damage, ExposureNote, JournalRecord, SEGMENT_READ_MAX, Segment, ShareRoot, StartRecord,
    read_segment, segment_name, segment_number,
};
pub use latch_file::{
    KnownFs, LatchFile, LatchFileError, Opened, RefusedEntry, StoredLatches, read_latches,
};
pub use latch_store::{
    LatchRecord, LatchStore, NoLatchStore, STORED_NAMES_MAX, STORED_PATH_MAX, STORED_RANGES_MAX,
    STORED_SHARES_MAX, STORED_STREAMS_MAX, StoreTask, UnprovenStream,
};
pub use log_map::{Change, KEY_MAX, LogMap, LogMapCounts, LogMapLimits, OpenedMap, VALUE_MAX};
pub use log_map_format::{LogMapError, MapEntry, ReadMap, read_log_map};
pub use metrics::{BUCKETS, Counters, HistogramView};
#[cfg(feature = "planted-faults")]
pub use planted::Planted;
pub use policy::{Barriers, Event, Flushed, Meta, RequestFlags, Wait, barriers};
pub use receipt::Receipt;
pub use report::{Exposure, InForce, LatchedInode, Limits, PolicyExposure, StopReport, TooSlow};
pub use rules::{Decision, Network, Opener, PathPattern, Rule, Rules};
pub use settings::{
    Bound, InvalidPolicy, Policy, PolicyKind, ShareDurability, parse_bytes, parse_delay,
};
pub use table::Durability;

#[cfg(test)]
mod tests;
