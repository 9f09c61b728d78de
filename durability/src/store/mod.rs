//! Stores the state that outlives the process, over any [`vfs::Disk`], so that it can be simulated.
//!
//! One log (`log.rs`, `segments.rs`, `groups.rs`); on it the journal of acknowledged flushes (`journal.rs`,
//! `exposure.rs`) and a map (`map.rs`), in which persistent handles and error latches (`latches.rs`) are values.
//! `bytes.rs` and `folder.rs` are fields and files. The engine's side is `sync/stored.rs`.

mod bytes;
mod exposure;
mod folder;
mod groups;
mod journal;
mod journal_format;
mod latch_format;
mod latch_record;
mod latches;
mod log;
mod map;
mod map_format;
mod segments;

pub use bytes::StoredField;
pub use exposure::LEASE;
pub use groups::Damage;
pub use journal::{ExposureSource, FLUSHES, FlushJournal, JournalFile};
pub(crate) use journal_format::most_exposed;
pub use journal_format::{
    ExposedFile, ExposureRecord, FlushRecord, JournalRecord, SEGMENT_READ_MAX, Segment, ShareRoot,
    StartRecord, read_segment,
};
pub use latch_format::{StoredLatches, read_latches};
pub use latch_record::{LatchRecord, LatchStore, UnprovenStream};
pub use latches::{KnownFs, LATCHES, LatchMap, OpenedLatches};
#[cfg(test)]
pub(crate) use log::QUEUE_MAX;
pub use log::{LogCounts, StoreTask};
pub use map::{
    HANDLES, KEY_MAX, LogMap, MapChange, MapCounts, MapSpec, OpenedMap, Refusal, StoreError,
    VALUE_MAX,
};
pub use map_format::{MapEntry, ReadMap, read_log_map};
pub use segments::{Shape, segment_name, segment_number};

/// The parts of the formats from which tests make files.
#[cfg(test)]
pub(crate) mod testing {
    pub(crate) use super::{
        bytes::{StoredField, crc32c},
        groups::{ALIGN, PAYLOAD_MAX, group_bytes},
        journal_format::MAGIC as JOURNAL,
        latch_format::{FLAGS_AT, OVERFLOW},
        map_format::{MAGIC, encode},
    };
}
