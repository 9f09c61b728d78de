//! Error latches as bytes: values of a map, and the file of version 0.1.
//!
//! Key of an entry: u64 inode, u64 generation, u32 that separates inodes of several file systems,
//! big-endian; [`OVERFLOW_KEY`], with 1 or 0, says whether more were poisoned than are named.
//!
//! **Value** (little-endian; a *text* is u16 length and UTF-8): the file systems (u16, each: u64
//! `f_type`, 16 bytes UUID, u64 `f_fsid`, text root of a share on it), then the body: u16 file
//! system (65535: unknown), u64 inode, u64 generation, u8 error (`bytes.rs`), u64 + u32 time, u64
//! sequence, u8 flags (1 metadata, 2 size, 4 entries, 8 no inode: the overflow, in 0.1 only, 16 no
//! directory), u16 streams (each: text, u16 ranges of u64 from, u64 to), u16 names (each: u16 file
//! system, u64 inode, u64 generation), text path, u16 shares (each a text).
//!
//! **The file of 0.1**: `HFLATCH1`, u32 entries, u32 CRC-32C of that number and of the file systems,
//! which follow; then every entry: u32 length, u32 CRC-32C of the body, body.

use vfs::{FileKey, linux::FsIdentity};

use super::{
    bytes::{Field, bytes, crc32c, fields},
    frames::Damage,
    latch_record::{
        LatchRecord, STORED_NAMES_MAX, STORED_RANGES_MAX, STORED_SHARES_MAX, STORED_STREAMS_MAX,
        UnprovenStream,
    },
    map::Refusal,
    map_format::{MapEntry, ReadMap, read_log_map},
};

pub(super) const OVERFLOW_KEY: &[u8] = b"overflow";
const OLD_MAGIC: &[u8; 8] = b"HFLATCH1";
/// The flag of the entry that names no inode.
pub(crate) const OVERFLOW: u8 = 8;
/// Of the flags: known to be no directory.
const NO_DIRECTORY: u8 = 16;
/// "No file system of ours."
pub(crate) const UNKNOWN: u16 = u16::MAX;

type Systems = Vec<(FsIdentity, String)>;

/// A latch with the names of its file systems instead of their numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredLatch {
    /// Its numbers of file systems mean nothing.
    pub(crate) record: LatchRecord,
    pub(crate) fs: Option<(FsIdentity, String)>,
    /// Of [`LatchRecord::names`].
    pub(crate) names: Vec<Option<(FsIdentity, String)>>,
}

/// The contents of a file of latches, as far as they can be read.
#[derive(Default)]
pub struct StoredLatches {
    /// With their keys in the map.
    pub(super) latches: Vec<(Vec<u8>, StoredLatch)>,
    /// More inodes were poisoned than are named: every FLUSH fails.
    pub overflow: bool,
    /// Parts that cannot be read.
    pub damage: Vec<Damage>,
}

impl StoredLatches {
    /// The latches; their `fs` is 0.
    pub fn records(&self) -> impl Iterator<Item = &LatchRecord> {
        self.latches.iter().map(|(_, latch)| &latch.record)
    }

    /// Doubtful ones hold, too.
    pub(super) fn of(read: ReadMap) -> Self {
        let mut stored = Self {
            damage: read.damage,
            ..Self::default()
        };
        for MapEntry { key, value, .. } in read.entries {
            if key == OVERFLOW_KEY {
                stored.overflow |= value != [0];
            } else if let Some(latch) = StoredLatch::decode(&value) {
                if !latch.record.is_repaired() {
                    stored.latches.push((key, latch));
                }
            } else {
                let why = "an entry that cannot be understood";
                stored.damage.push(Damage::at(0, why));
            }
        }
        stored
    }
}

/// Reads a file of latches of this version or of 0.1, without a server.
///
/// # Errors
/// Its head is not what these versions write.
pub fn read_latches(file: &[u8]) -> Result<StoredLatches, Refusal> {
    let read = match file.starts_with(b"HFLATCH") {
        true => read_old_latches(file),
        false => read_log_map(file),
    };
    Ok(StoredLatches::of(read?))
}

/// The file of 0.1 as a map.
pub(super) fn read_old_latches(file: &[u8]) -> Result<ReadMap, Refusal> {
    let mut from = file;
    match bytes(&mut from, OLD_MAGIC.len()) {
        Some(magic) if magic == OLD_MAGIC => {}
        Some(magic) if magic.starts_with(b"HFLATCH") => return Err(Refusal::Version),
        _ => return Err(Refusal::NotOurs),
    }
    let (count, systems) = old_head(&mut from).ok_or(Refusal::NotOurs)?;
    let mut read = ReadMap::default();
    let mut put = |key: &[u8], value| {
        read.entries.push(MapEntry {
            key: key.to_vec(),
            value,
            doubtful: false,
        });
    };
    for number in 0..count {
        let at = file.len() - from.len();
        let mut refuse = |why| read.damage.push(Damage::at(at, why));
        let Some((body, crc)) = old_entry(&mut from) else {
            // Nothing after it can be found.
            refuse("an entry is cut off; it and all after it are lost");
            break;
        };
        if crc32c(0, body) != crc {
            refuse("an entry's checksum is wrong");
        } else if let Some((latch, flags)) = decode_body(body, &systems) {
            if flags & OVERFLOW != 0 {
                put(OVERFLOW_KEY, vec![1]);
            } else {
                put(&key_of(latch.record.key, number), latch.encode());
            }
        } else {
            refuse("an entry that cannot be understood");
        }
    }
    Ok(read)
}

fn old_head(from: &mut &[u8]) -> Option<(u32, Systems)> {
    let (count, crc): (u32, u32) = Field::take(from)?;
    let start = *from;
    let systems = Field::take(from)?;
    let read = start.get(..start.len() - from.len())?;
    (crc32c(crc32c(0, &count.to_le_bytes()), read) == crc).then_some((count, systems))
}

fn old_entry<'a>(from: &mut &'a [u8]) -> Option<(&'a [u8], u32)> {
    let (len, crc): (u32, u32) = Field::take(from)?;
    Some((bytes(from, usize::try_from(len).ok()?)?, crc))
}

/// The key of an inode's latch; `n` is another one for every file system that has such an inode.
pub(super) fn key_of(inode: FileKey, n: u32) -> Vec<u8> {
    let numbers = [inode.ino.to_be_bytes(), inode.generation.to_be_bytes()];
    [numbers.as_flattened(), &n.to_be_bytes()].concat()
}

impl StoredLatch {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut systems = Systems::new();
        let mut number = |fs: &Option<(FsIdentity, String)>| {
            let Some(fs) = fs else { return UNKNOWN };
            let at = systems.iter().position(|known| known == fs);
            // At most one for each name and one more.
            at.unwrap_or_else(|| {
                systems.push(fs.clone());
                systems.len() - 1
            }) as u16
        };
        let fs = number(&self.fs);
        let names: Vec<u16> = self.names.iter().map(number).collect();
        let mut out = Vec::new();
        systems.put(&mut out);
        encode_body(&mut out, &self.record, fs, &names);
        out
    }

    pub(crate) fn decode(mut from: &[u8]) -> Option<Self> {
        let systems = Field::take(&mut from)?;
        let (latch, flags) = decode_body(from, &systems)?;
        (flags & OVERFLOW == 0).then_some(latch)
    }
}

fields! { FsIdentity { kind, uuid, fsid } }
fields! { UnprovenStream { stream, ranges } }

pub(crate) fn encode_body(body: &mut Vec<u8>, record: &LatchRecord, fs: u16, names: &[u16]) {
    (fs, record.key).put(body);
    record.error.put(body);
    (record.at, record.sequence).put(body);
    let is = [record.metadata, record.size, record.entries, record.file];
    let bits = is.iter().zip([1, 2, 4, NO_DIRECTORY]);
    bits.fold(0, |all, (is, bit)| if *is { all | bit } else { all })
        .put(body);
    record.unproven.put(body);
    let names = names.iter().copied().zip(record.names.iter().copied());
    names.collect::<Vec<_>>().put(body);
    record.path.put(body);
    record.shares.put(body);
}

/// A latch and its flags.
fn decode_body(mut from: &[u8], systems: &Systems) -> Option<(StoredLatch, u8)> {
    let fs_of = |number: u16| systems.get(usize::from(number)).cloned();
    let (fs, key) = Field::take(&mut from)?;
    let error = Field::take(&mut from)?;
    let (at, sequence) = Field::take(&mut from)?;
    let flags = u8::take(&mut from)?;
    let unproven = Vec::<UnprovenStream>::take(&mut from)?;
    let names = Vec::<(u16, FileKey)>::take(&mut from)?;
    let path = Field::take(&mut from)?;
    let shares = Vec::<String>::take(&mut from)?;
    let sound = |stream: &UnprovenStream| {
        stream.ranges.len() <= STORED_RANGES_MAX
            && stream.ranges.iter().all(|(start, end)| start < end)
    };
    let fits = unproven.len() <= STORED_STREAMS_MAX
        && unproven.iter().all(sound)
        && names.len() <= STORED_NAMES_MAX
        && shares.len() <= STORED_SHARES_MAX
        && flags < 2 * NO_DIRECTORY
        && from.is_empty();
    let record = LatchRecord {
        key,
        error,
        at,
        sequence,
        unproven,
        metadata: flags & 1 != 0,
        size: flags & 2 != 0,
        entries: flags & 4 != 0,
        file: flags & NO_DIRECTORY != 0,
        names: names.iter().map(|(_, name)| *name).collect(),
        path,
        shares,
    };
    let latch = StoredLatch {
        record,
        fs: fs_of(fs),
        names: names.iter().map(|(fs, _)| fs_of(*fs)).collect(),
    };
    fits.then_some((latch, flags))
}
