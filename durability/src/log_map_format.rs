//! The bytes of a [`LogMap`](crate::LogMap), and a reader that believes nothing.
//!
//! One file, a row of frames (`frames.rs`, with `HFM1`), then zeros. The first frames are the whole
//! map as it was when the file was made; every later one is a group of changes. A payload is
//! records: u8 kind (1 put, 2 removed), u8 length of the key, key, and for *put* u32 length of the
//! value, value. All little-endian.
//!
//! A frame that is no good at the end is torn: nothing in it was acknowledged. One that is no good
//! with a good one behind it may have changed any key known so far: every entry from before it that
//! is not put again after it is [`MapEntry::doubtful`]. What a doubtful entry means is the owner's.

use std::{collections::BTreeMap, fmt};

use vfs::disk::Errno;

use crate::{
    Damage,
    frames::{ALIGN, Found, Frame, Magic, parse, search},
    log_map::{KEY_MAX, VALUE_MAX},
    record::{In, Out},
};

pub(crate) const MAGIC: &Magic = b"HFM1";
const PUT: u8 = 1;
const REMOVED: u8 = 2;

/// Why the map cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogMapError {
    /// The disk.
    Disk(Errno),
    /// It is no file of this kind, or damaged at its head.
    NotOurs,
    /// It was written by a version of the server that this one does not know.
    Version,
}

impl fmt::Display for LogMapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk(errno) => write!(f, "{}", std::io::Error::from_raw_os_error(errno.0)),
            Self::NotOurs => f.write_str("not a file of this server, or damaged at its head"),
            Self::Version => f.write_str("written by another version of the server"),
        }
    }
}

impl std::error::Error for LogMapError {}

impl From<Errno> for LogMapError {
    fn from(errno: Errno) -> Self {
        Self::Disk(errno)
    }
}

/// One entry as the file has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapEntry {
    /// Its name, 1 to [`KEY_MAX`] bytes.
    pub key: Vec<u8>,
    /// What was put last, as far as can be read.
    pub value: Vec<u8>,
    /// A frame that is lost may have changed or removed it.
    pub doubtful: bool,
}

/// What a file holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadMap {
    /// The entries, ascending by key.
    pub entries: Vec<MapEntry>,
    /// What cannot be read, with something good behind it.
    pub damage: Vec<Damage>,
    /// Where a frame was being written when the end came.
    pub torn: Option<u64>,
    /// Number of the file.
    pub(crate) segment: u64,
}

pub(crate) fn encode_put(out: &mut Out, key: &[u8], value: &[u8]) {
    out.u8(PUT);
    encode_key(out, key);
    out.u32(value.len() as u32);
    out.bytes(value);
}

pub(crate) fn encode_removed(out: &mut Out, key: &[u8]) {
    out.u8(REMOVED);
    encode_key(out, key);
}

fn encode_key(out: &mut Out, key: &[u8]) {
    // At most `KEY_MAX`, which is below 256.
    out.u8(key.len() as u8);
    out.bytes(key);
}

#[derive(Default)]
struct Reader {
    all: BTreeMap<Vec<u8>, (Vec<u8>, bool)>,
    damage: Vec<Damage>,
}

impl Reader {
    fn damaged(&mut self, offset: usize, why: &'static str) {
        self.damage.push(Damage {
            offset: offset as u64,
            why,
        });
        self.all
            .values_mut()
            .for_each(|(_, doubtful)| *doubtful = true);
    }

    /// `None` for what is not exactly a row of records.
    fn apply(&mut self, payload: &[u8]) -> Option<()> {
        let mut from = In(payload);
        while !from.is_empty() {
            let kind = from.u8()?;
            let len = usize::from(from.u8()?);
            let key = from
                .bytes(len)
                .filter(|key| (1..=KEY_MAX).contains(&key.len()))?;
            match kind {
                PUT => {
                    let len = usize::try_from(from.u32()?).ok()?;
                    let value = from.bytes(len).filter(|value| value.len() <= VALUE_MAX)?;
                    self.all.insert(key.to_vec(), (value.to_vec(), false));
                }
                REMOVED => _ = self.all.remove(key),
                _ => return None,
            }
        }
        Some(())
    }
}

/// Reads a file, whatever the bytes are.
///
/// # Errors
/// Its first frame is not what this version writes.
pub fn read_log_map(bytes: &[u8]) -> Result<ReadMap, LogMapError> {
    match bytes.get(..4) {
        Some(magic) if magic == MAGIC => {}
        Some([b'H', b'F', b'M', _]) => return Err(LogMapError::Version),
        _ => return Err(LogMapError::NotOurs),
    }
    let (mut cost, mut at, mut next) = (0, 0, Some(0));
    let mut reader = Reader::default();
    let (mut segment, mut torn) = (None, None);
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let fits = |frame: &Frame<'_>| segment.is_none_or(|number| number == frame.segment);
        let Some(frame) = parse(MAGIC, rest, &mut cost).filter(fits) else {
            if rest.iter().all(|byte| *byte == 0) {
                break;
            }
            match search(MAGIC, bytes, at + ALIGN, segment, &mut cost) {
                Found::At(place) => {
                    reader.damaged(at, "no whole frame, but one behind it");
                    (at, next) = (place, None);
                    continue;
                }
                Found::Nothing if at == 0 => return Err(LogMapError::NotOurs),
                Found::Nothing => torn = Some(at as u64),
                Found::TooCostly => {
                    reader.damaged(at, "too much that looks like frames; the rest is unread");
                }
            }
            break;
        };
        if next.is_some_and(|next| next != frame.number) {
            reader.damaged(at, "a frame out of its order");
        }
        next = frame.number.checked_add(1);
        segment = Some(frame.segment);
        if reader.apply(frame.payload).is_none() {
            reader.damaged(at, "a record that cannot be understood");
        }
        at += frame.len;
    }
    let entries = reader
        .all
        .into_iter()
        .map(|(key, (value, doubtful))| MapEntry {
            key,
            value,
            doubtful,
        });
    Ok(ReadMap {
        entries: entries.collect(),
        damage: reader.damage,
        torn,
        segment: segment.unwrap_or_default(),
    })
}
