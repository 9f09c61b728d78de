//! Error latches as bytes: values of a map, and the file of version 0.1.
//!
//! Key of an entry: u64 inode, u64 generation, u32 that tells apart inodes of several file systems,
//! big-endian; [`OVERFLOW_KEY`], with 1 or 0, says whether more were latched than are named.
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

use vfs::{FileKey, sys::FsIdentity};

use super::{
    bytes::{Field, In, Out, crc32c, error_code, error_of, fields},
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
const OVERFLOW: u8 = 8;
/// Of the flags: known to be no directory.
const NO_DIRECTORY: u8 = 16;
/// "No file system of ours."
const UNKNOWN: u16 = u16::MAX;

type Systems = Vec<(FsIdentity, String)>;

/// A latch with the names of its file systems instead of their numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoredLatch {
    /// Its numbers of file systems mean nothing.
    pub(super) record: LatchRecord,
    pub(super) fs: Option<(FsIdentity, String)>,
    /// Of [`LatchRecord::names`].
    pub(super) names: Vec<Option<(FsIdentity, String)>>,
}

/// What a file of latches says.
#[derive(Default)]
pub struct StoredLatches {
    /// With their keys in the map.
    pub(super) latches: Vec<(Vec<u8>, StoredLatch)>,
    /// More inodes were latched than are named: every FLUSH fails.
    pub overflow: bool,
    /// What cannot be read.
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
pub fn read_latches(bytes: &[u8]) -> Result<StoredLatches, Refusal> {
    let is_old = bytes.starts_with(b"HFLATCH");
    let read = if is_old {
        read_old_latches
    } else {
        read_log_map
    };
    Ok(StoredLatches::of(read(bytes)?))
}

/// The file of 0.1 as a map.
pub(super) fn read_old_latches(bytes: &[u8]) -> Result<ReadMap, Refusal> {
    let mut from = In(bytes);
    match from.bytes(OLD_MAGIC.len()) {
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
        let at = bytes.len() - from.0.len();
        let mut refuse = |why| read.damage.push(Damage::at(at, why));
        let head = from.u32().zip(from.u32());
        let Some((body, crc)) =
            head.and_then(|(len, crc)| Some((from.bytes(usize::try_from(len).ok()?)?, crc)))
        else {
            // Nothing after it can be found.
            refuse("an entry is cut off; it and all after it are lost");
            break;
        };
        if crc32c(0, body) != crc {
            refuse("an entry's checksum is wrong");
        } else if let Some((latch, flags)) = decode_body(In(body), &systems) {
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

fn old_head(from: &mut In<'_>) -> Option<(u32, Systems)> {
    let (count, crc) = (from.u32()?, from.u32()?);
    let start = from.clone();
    let systems = Field::take(from)?;
    let read = start.0.get(..start.0.len() - from.0.len())?;
    (crc32c(crc32c(0, &count.to_le_bytes()), read) == crc).then_some((count, systems))
}

/// The key of an inode's latch; `n` is another one for every file system that has such an inode.
pub(super) fn key_of(inode: FileKey, n: u32) -> Vec<u8> {
    let numbers = [inode.ino.to_be_bytes(), inode.generation.to_be_bytes()];
    [numbers.as_flattened(), &n.to_be_bytes()].concat()
}

impl StoredLatch {
    pub(super) fn encode(&self) -> Vec<u8> {
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
        let mut out = Out::default();
        systems.put(&mut out);
        encode_body(&mut out, &self.record, fs, &names);
        out.0
    }

    fn decode(value: &[u8]) -> Option<Self> {
        let mut from = In(value);
        let systems = Field::take(&mut from)?;
        let (latch, flags) = decode_body(from, &systems)?;
        (flags & OVERFLOW == 0).then_some(latch)
    }
}

fields! { FsIdentity { kind, uuid, fsid } }
fields! { UnprovenStream { stream, ranges } }

fn encode_body(body: &mut Out, record: &LatchRecord, fs: u16, names: &[u16]) {
    body.u16(fs);
    body.inode(record.key);
    body.u8(error_code(record.error));
    body.time(record.at);
    body.u64(record.sequence);
    let is = [record.metadata, record.size, record.entries, record.file];
    let bits = is.iter().zip([1, 2, 4, NO_DIRECTORY]);
    body.u8(bits.fold(0, |all, (is, bit)| if *is { all | bit } else { all }));
    record.unproven.put(body);
    body.u16(record.names.len() as u16);
    for (name, fs) in record.names.iter().zip(names) {
        body.u16(*fs);
        body.inode(*name);
    }
    body.text(&record.path);
    record.shares.put(body);
}

/// A latch and its flags.
fn decode_body(mut from: In<'_>, systems: &Systems) -> Option<(StoredLatch, u8)> {
    let fs_of = |number: u16| systems.get(usize::from(number)).cloned();
    let fs = fs_of(from.u16()?);
    let key = from.inode()?;
    let error = error_of(from.u8()?);
    let at = from.time()?;
    let sequence = from.u64()?;
    let flags = from.u8()?;
    let unproven = Vec::<UnprovenStream>::take(&mut from)?;
    let (mut names, mut name_systems) = (Vec::new(), Vec::new());
    for _ in 0..from.u16()? {
        name_systems.push(fs_of(from.u16()?));
        names.push(from.inode()?);
    }
    let path = from.text()?;
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
        names,
        path,
        shares,
    };
    let latch = StoredLatch {
        record,
        fs,
        names: name_systems,
    };
    fits.then_some((latch, flags))
}

#[cfg(test)]
pub(crate) fn encode_latch(
    record: &LatchRecord,
    fs: Option<(FsIdentity, String)>,
    names: &[Option<(FsIdentity, String)>],
) -> Vec<u8> {
    let (record, names) = (record.clone(), names.to_vec());
    StoredLatch { record, fs, names }.encode()
}

#[cfg(test)]
#[allow(clippy::type_complexity)]
pub(crate) fn decode_latch(
    value: &[u8],
) -> Option<(
    LatchRecord,
    Option<(FsIdentity, String)>,
    Vec<Option<(FsIdentity, String)>>,
)> {
    let StoredLatch { record, fs, names } = StoredLatch::decode(value)?;
    Some((record, fs, names))
}

/// The file of 0.1, as that wrote it, of latches on one file system.
#[cfg(test)]
pub(crate) fn old_latches(
    records: &[LatchRecord],
    fs: &super::latches::KnownFs,
    overflow: bool,
) -> Vec<u8> {
    let mut systems = Out::default();
    systems.u16(1);
    systems.u64(fs.identity.kind);
    systems.bytes(&fs.identity.uuid);
    systems.u64(fs.identity.fsid);
    systems.text(&fs.root);
    let count = (records.len() + usize::from(overflow)) as u32;
    let mut out = Out::default();
    out.bytes(OLD_MAGIC);
    out.u32(count);
    out.u32(crc32c(crc32c(0, &count.to_le_bytes()), &systems.0));
    out.bytes(&systems.0);
    let mut entry = |mut body: Vec<u8>, flag: u8| {
        // Behind file system, inode, generation, error, time and sequence.
        body[39] |= flag;
        out.u32(body.len() as u32);
        out.u32(crc32c(0, &body));
        out.bytes(&body);
    };
    for record in records {
        let mut body = Out::default();
        encode_body(&mut body, record, 0, &vec![0; record.names.len()]);
        entry(body.0, 0);
    }
    if overflow {
        let mut none = LatchRecord::whole(FileKey::default(), vfs::VfsError::Io);
        none.unproven.clear();
        let mut body = Out::default();
        encode_body(&mut body, &none, UNKNOWN, &[]);
        entry(body.0, OVERFLOW);
    }
    out.0
}
