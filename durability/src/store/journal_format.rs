//! The records of the journal of acknowledged flushes, their bytes, and a reader that takes nothing on trust.
//!
//! The journal is a row of segments (`segments.rs`) of groups (`groups.rs`, with `HFJ2`), whose payload
//! is records, each: u8 kind ([`JournalRecord`]; others are skipped), u32 length, body (`bytes.rs`).
//! A body ends with the device (u64) of each inode that it names, in their order; early builds (`HFJ1`) left these out.
//! Group 0 of a segment begins with a start record.

use std::{collections::BTreeMap, time::Duration};

use vfs::{FileKey, Timestamp};

use super::{
    bytes::{StoredField, bytes, fields},
    groups::{self, Damage, Magic},
};
use crate::{policy::Policy, report::Exposure};

/// Largest segment that is read.
pub const SEGMENT_READ_MAX: u64 = 256 << 20;
/// Most bytes of shares named in a start record; further ones are left out.
const SHARES_BYTES_MAX: usize = 24 << 10;
/// Most files named in one exposure record.
const EXPOSED_FILES_MAX: usize = 32;
/// Most bytes of a path that are recorded; only people read it.
const PATH_MAX: usize = 1024;
pub(crate) const MAGIC: &Magic = b"HFJ2";
/// The magic of early builds, which is still read.
const EARLY_MAGIC: &Magic = b"HFJ1";

/// One share of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareRoot {
    /// Its name.
    pub name: String,
    /// Its folder.
    pub root: String,
}

/// A server began, or a segment, or other shares.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StartRecord {
    /// When, wall clock.
    pub at: Timestamp,
    /// Random bytes that identify the run.
    pub run: [u8; 16],
    /// The kernel's boot id: it distinguishes a crash of the machine from one of the server.
    pub boot: String,
    /// Version of the server.
    pub server: String,
    /// Whether this is the first start record of its run.
    pub first: bool,
    /// Shares whose flushes are stored.
    pub shares: Vec<ShareRoot>,
}

/// A FLUSH that is about to be answered with success.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlushRecord {
    /// When, wall clock.
    pub at: Timestamp,
    /// The share.
    pub share: String,
    /// Which inode; its `fs` is 0 in a record of an early build.
    pub key: FileKey,
    /// The stream flushed, empty for the unnamed one.
    pub stream: String,
    /// Where it is, from the root of the share; empty if unknown. Only a hint.
    pub path: String,
    /// Size in bytes of the stream as it was before the sync began; zero for a directory.
    pub size: u64,
    /// The engine's sequence number of the FLUSH, which orders records within a run.
    pub sequence: u64,
    /// The policy that answered.
    pub policy: Policy,
    /// Bytes that were dirty when the FLUSH came.
    pub bytes: u64,
    /// A directory was flushed.
    pub directory: bool,
}

/// The exposure of a share at one moment, and the limits that hold until the next record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExposureRecord {
    /// When, wall clock.
    pub at: Timestamp,
    /// The share.
    pub share: String,
    /// The policy in force.
    pub policy: Policy,
    /// Dirty and unproven bytes, inodes, age of the oldest change.
    pub exposure: Exposure,
    /// No change is acknowledged under this record with which more bytes than this would be dirty.
    pub allowance: u64,
    /// No change is acknowledged under this record later than this long after it; zero: none at all.
    pub lease: Duration,
    /// The files with most dirty bytes, at most `EXPOSED_FILES_MAX`.
    pub files: Vec<ExposedFile>,
}

/// One dirty file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExposedFile {
    /// Which inode; its `fs` is 0 in a record of an early build.
    pub key: FileKey,
    /// Where it is, from the root of the share; empty if unknown.
    pub path: String,
    /// Its dirty bytes.
    pub bytes: u64,
}

/// One record of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JournalRecord {
    /// A server began, or a segment, or other shares.
    Start(StartRecord),
    /// A FLUSH whose data were on stable storage; the success reply followed.
    Flushed(FlushRecord),
    /// A FLUSH that was answered before the disk.
    Promised(FlushRecord),
    /// The exposure of a share at one moment.
    Exposure(ExposureRecord),
    /// An orderly end. `stable`: everything acknowledged was on stable storage.
    Stop {
        /// When, wall clock.
        at: Timestamp,
        /// Whether everything acknowledged was on stable storage.
        stable: bool,
    },
    /// The number of flushes before here that could not be stored.
    Gap {
        /// When, wall clock.
        at: Timestamp,
        /// How many.
        lost: u64,
    },
}

/// The number of each kind, and its fields in their order.
macro_rules! kinds {
    ($($kind:literal $name:ident { $($field:tt: $value:ident),+ };)+) => {
        impl JournalRecord {
            /// The record's bytes, head included.
            pub(crate) fn encode(&self) -> Vec<u8> {
                let mut body = Vec::new();
                let kind: u8 = match self {
                    $(Self::$name { $($field: $value),+ } => {
                        $($value.put(&mut body);)+
                        $kind
                    })+
                };
                self.put_devices(&mut body);
                let mut out = Vec::new();
                (kind, body.len() as u32).put(&mut out);
                out.extend(body);
                out
            }

            /// `Some(None)` for a kind of a later version.
            #[allow(clippy::option_option)]
            pub(crate) fn read(from: &mut &[u8]) -> Option<Option<Self>> {
                let (kind, len): (u8, u32) = StoredField::take(from)?;
                let mut body = bytes(from, usize::try_from(len).ok()?)?;
                let mut record = match kind {
                    $($kind => Self::$name { $($field: StoredField::take(&mut body)?),+ },)+
                    _ => return Some(None),
                };
                if !body.is_empty() {
                    record.take_devices(&mut body)?;
                }
                body.is_empty().then_some(Some(record))
            }
        }
    };
}

kinds! {
    1 Start { 0: start };
    2 Flushed { 0: flush };
    3 Promised { 0: flush };
    4 Exposure { 0: exposure };
    5 Stop { at: at, stable: stable };
    6 Gap { at: at, lost: lost };
}

impl JournalRecord {
    fn put_devices(&self, body: &mut Vec<u8>) {
        match self {
            Self::Flushed(flush) | Self::Promised(flush) => flush.key.fs.put(body),
            Self::Exposure(record) => record.files.iter().for_each(|file| file.key.fs.put(body)),
            Self::Start(_) | Self::Stop { .. } | Self::Gap { .. } => {}
        }
    }

    fn take_devices(&mut self, body: &mut &[u8]) -> Option<()> {
        match self {
            Self::Flushed(flush) | Self::Promised(flush) => flush.key.fs = StoredField::take(body)?,
            Self::Exposure(record) => {
                for file in &mut record.files {
                    file.key.fs = StoredField::take(body)?;
                }
            }
            Self::Start(_) | Self::Stop { .. } | Self::Gap { .. } => {}
        }
        Some(())
    }
}

fields! { ShareRoot { name, root } }
fields! { StartRecord { at, run, boot, server, first, shares } }
fields! { ExposedFile { key, path, bytes } }
fields! { ExposureRecord { at, share, policy, exposure, allowance, lease, files } }
fields! {
    Exposure {
        bytes, inodes, oldest_age, unproven_bytes, poisoned_inodes, ..Exposure::default()
    }
}
fields! { FlushRecord { at, share, key, stream, path, size, sequence, policy, bytes, directory } }

/// Shortens a path, at a character's edge.
pub(super) fn shorten(path: &mut String) {
    path.truncate(path.floor_char_boundary(PATH_MAX));
}

/// The files with most dirty bytes, at most as many as a record names, in descending order.
pub(crate) fn most_exposed(bytes: BTreeMap<FileKey, u64>) -> Vec<(FileKey, u64)> {
    let mut all: Vec<(FileKey, u64)> = bytes.into_iter().collect();
    all.sort_by_key(|(key, bytes)| (std::cmp::Reverse(*bytes), *key));
    all.truncate(EXPOSED_FILES_MAX);
    all
}

/// The first of the shares, as far as one record has room for them.
pub(super) fn fitting(shares: &[ShareRoot]) -> Vec<ShareRoot> {
    let mut room = SHARES_BYTES_MAX;
    let fits = |share: &&ShareRoot| {
        let left = room.checked_sub(4 + share.name.len() + share.root.len());
        room = left.unwrap_or_default();
        left.is_some()
    };
    shares.iter().take_while(fits).cloned().collect()
}

/// The contents of a segment, as far as they can be read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Segment {
    /// Its number by its first good group; `None` without one.
    pub number: Option<u64>,
    /// Every record that could be read, in order.
    pub records: Vec<JournalRecord>,
    /// Parts that cannot be read, with something good behind them.
    pub damage: Vec<Damage>,
    /// The offset of a group that was being written when the server or the power failed.
    pub torn: Option<u64>,
    /// It was written by a version of the server that this one does not know; nothing was read.
    pub other_version: bool,
}

/// Reads a segment; the bytes may be anything.
pub fn read_segment(file: &[u8]) -> Segment {
    let mut out = Segment::default();
    let mut known = [MAGIC, EARLY_MAGIC].into_iter();
    let magic = known.find(|magic| file.starts_with(*magic));
    if magic.is_none() && file.starts_with(b"HFJ") {
        out.other_version = true;
        return out;
    }
    let ending = groups::read(magic.unwrap_or(MAGIC), file, |mut from, _| {
        while !from.is_empty() {
            out.records.extend(JournalRecord::read(&mut from)?);
        }
        Some(())
    });
    (out.number, out.torn, out.damage) = (ending.segment, ending.torn, ending.damage);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_with_most_are_named() {
        let key = |ino| FileKey {
            ino,
            ..FileKey::default()
        };
        let more = (4..100).map(|ino| (key(ino), 1));
        let all = [(key(1), 5), (key(2), 9), (key(3), 9)].into_iter();
        let most = most_exposed(all.chain(more).collect());
        assert_eq!(most.len(), EXPOSED_FILES_MAX);
        assert_eq!(
            most[..4],
            [(key(2), 9), (key(3), 9), (key(1), 5), (key(4), 1)]
        );
    }
}
