//! The bytes of a [`LogMap`](super::map::LogMap), and a reader that takes nothing on trust.
//!
//! A segment is a row of groups (`groups.rs`, with `HFM1`), then zeros. The first groups are the whole map as it was
//! when the segment was made; every later one is a group of changes. A payload is records: u8 kind (1 put, 2 removed),
//! u8 length of the key, key, and for *put* u32 length of the value, value. All little-endian.
//!
//! A damaged group may have changed any key known so far: every entry from before it that is not put
//! again after it is [`MapEntry::doubtful`]. The owner decides what such an entry means.

use std::collections::BTreeMap;

use super::{
    bytes::{StoredField, bytes},
    groups::{self, ALIGN, Damage, Magic},
    map::{KEY_MAX, Refusal, VALUE_MAX},
};

pub(crate) const MAGIC: &Magic = b"HFM1";
const PUT: u8 = 1;
const REMOVED: u8 = 2;

/// One entry as the file has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapEntry {
    /// Its name, 1 to [`KEY_MAX`] bytes.
    pub key: Vec<u8>,
    /// The value that was put last, as far as can be read.
    pub value: Vec<u8>,
    /// A group that is lost may have changed or removed it.
    pub doubtful: bool,
}

/// The contents of a file, as far as they can be read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReadMap {
    /// The entries, ascending by key.
    pub entries: Vec<MapEntry>,
    /// Parts that cannot be read, with something good behind them.
    pub damage: Vec<Damage>,
    /// The offset of a group that was being written when the server or the power failed.
    pub torn: Option<u64>,
}

/// A record: the key has this value from now on, or is gone.
pub(crate) fn encode(out: &mut Vec<u8>, key: &[u8], value: Option<&[u8]>) {
    let kind = value.map_or(REMOVED, |_| PUT);
    // At most `KEY_MAX`, which is below 256.
    (kind, key.len() as u8).put(out);
    out.extend(key);
    if let Some(value) = value {
        (value.len() as u32).put(out);
        out.extend(value);
    }
}

/// Reads a segment; the bytes may be anything.
///
/// # Errors
/// Its first group is none that this version writes.
pub fn read_log_map(file: &[u8]) -> Result<ReadMap, Refusal> {
    read(file, false)
}

/// As [`read_log_map`]. With `padded`, a file that does not end with a sector of zeros was cut off.
pub(super) fn read(file: &[u8], padded: bool) -> Result<ReadMap, Refusal> {
    match file.get(..4) {
        Some(magic) if magic == MAGIC => {}
        Some([b'H', b'F', b'M', _]) => return Err(Refusal::Version),
        _ => return Err(Refusal::NotOurs),
    }
    // Each value stands with the number of damaged parts before it.
    let mut all = BTreeMap::new();
    let mut ending = groups::read(MAGIC, file, |mut from, damaged| {
        while !from.is_empty() {
            let (kind, len): (u8, u8) = StoredField::take(&mut from)?;
            let key = bytes(&mut from, usize::from(len))
                .filter(|key| (1..=KEY_MAX).contains(&key.len()))?;
            match kind {
                PUT => {
                    let len = usize::try_from(u32::take(&mut from)?).ok()?;
                    let value = bytes(&mut from, len).filter(|value| value.len() <= VALUE_MAX)?;
                    all.insert(key, (value, damaged));
                }
                REMOVED => _ = all.remove(key),
                _ => return None,
            }
        }
        Some(())
    });
    if ending.torn == Some(0) {
        return Err(Refusal::NotOurs);
    }
    let last = file.rchunks(ALIGN).next().unwrap_or_default();
    if padded && (last.len() < ALIGN || last.iter().any(|byte| *byte != 0)) {
        let cut_off = Damage::at(file.len(), "the file is cut off");
        ending.damage.push(cut_off);
    }
    let entries = all.into_iter().map(|(key, (value, damaged))| MapEntry {
        key: key.to_vec(),
        value: value.to_vec(),
        doubtful: damaged < ending.damage.len(),
    });
    Ok(ReadMap {
        entries: entries.collect(),
        damage: ending.damage,
        torn: ending.torn,
    })
}
