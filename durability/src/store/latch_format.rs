//! Error latches as bytes: values of a map, and the file of early builds.
//!
//! Key of an entry: u64 inode, u64 generation, u32 that separates inodes of several file systems,
//! big-endian. The value of [`OVERFLOW_KEY`] is 1 if more inodes were poisoned than are named, else 0.
//!
//! **Value** (little-endian; a *text* is u16 length and UTF-8): the file systems (u16, each: u64 `f_type`, 16 bytes
//! UUID, u64 `f_fsid`, text root of a share on it), then the body: u16 file system (65535: unknown), u64 inode, u64
//! generation, u8 error (`bytes.rs`), u64 + u32 time, u64 sequence, u8 flags (1 metadata, 2 size, 4 entries, 8 overflow
//! and no inode, in 0.1 only, 16 not a directory), u16 streams (each: text, u16 ranges of u64 from, u64 to), u16 names
//! (each: u16 file system, u64 inode, u64 generation), text path, u16 shares (each a text).
//!
//! **The file of 0.1**: `HFLATCH1`, u32 entries, u32 CRC-32C of that number and of the file systems,
//! which follow; then every entry: u32 length, u32 CRC-32C of the body, body.

use std::collections::BTreeMap;

use vfs::{FileKey, linux::FsIdentity};

use super::{
    bytes::{StoredField, bytes, crc32c, fields},
    groups::Damage,
    latch_record::{LatchRecord, UnprovenStream},
    map::{Entries, Refusal},
    map_format::{MapEntry, ReadMap, read_log_map},
};

pub(super) const OVERFLOW_KEY: &[u8] = b"overflow";
const OLD_MAGIC: &[u8; 8] = b"HFLATCH1";
/// A flag of a body, in 0.1 only: it names no inode, and more inodes were poisoned than are named.
pub(crate) const OVERFLOW: u8 = 8;
/// A flag of a body: the inode is known not to be a directory.
const NO_DIRECTORY: u8 = 16;
/// Where the flags are in a body.
pub(crate) const FLAGS_AT: usize = 39;
/// The number of a file system that is not known.
const UNKNOWN: u16 = u16::MAX;

/// The identity of a file system across reboots, and the root of a share on it.
pub(crate) type System = (FsIdentity, String);

/// The contents of a file of latches, as far as they can be read.
#[derive(Default)]
pub struct StoredLatches {
    /// The latches; their `fs` is 0.
    pub records: Vec<LatchRecord>,
    /// More inodes were poisoned than are named, or there is damage: every FLUSH fails.
    pub overflow: bool,
    /// Parts that cannot be read.
    pub damage: Vec<Damage>,
}

/// Reads a file of latches of this version or of 0.1, without a server.
///
/// # Errors
/// Its head is none that these versions write.
pub fn read_latches(file: &[u8]) -> Result<StoredLatches, Refusal> {
    let mut read = match file.starts_with(b"HFLATCH") {
        true => read_old_latches(file),
        false => read_log_map(file),
    }?;
    let latches = holding(&mut read);
    let records = latches.values();
    let records = records.filter_map(|value| LatchRecord::decode(value, |_| None));
    Ok(StoredLatches {
        records: records.map(|(record, _)| record).collect(),
        overflow: has_overflow(&latches),
        damage: read.damage,
    })
}

pub(super) fn has_overflow(latches: &Entries) -> bool {
    let overflow = latches.get(OVERFLOW_KEY);
    overflow.is_some_and(|value| *value != [0])
}

/// The entries that hold, including doubtful ones. With damage the overflow is set, because any inode may be meant.
pub(super) fn holding(read: &mut ReadMap) -> Entries {
    let mut all = Entries::new();
    for MapEntry { key, value, .. } in std::mem::take(&mut read.entries) {
        let known = key == OVERFLOW_KEY;
        match LatchRecord::decode(&value, |_| None) {
            Some((record, _)) if record.is_repaired() => {}
            None if !known => {
                let why = "an entry that cannot be understood";
                read.damage.push(Damage::at(0, why));
            }
            _ => _ = all.insert(key, value),
        }
    }
    // This entry always exists, so that it can be set when there is room for no other.
    let overflow = has_overflow(&all) || !read.damage.is_empty();
    all.insert(OVERFLOW_KEY.to_vec(), vec![u8::from(overflow)]);
    all
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
    let (mut all, mut damage) = (BTreeMap::new(), Vec::new());
    for number in 0..count {
        let at = file.len() - from.len();
        let Some((body, crc)) = old_entry(&mut from) else {
            let why = "an entry is cut off; it and all after it are lost";
            damage.push(Damage::at(at, why));
            break;
        };
        // The value of a map begins with its file systems.
        let value = [systems, body].concat();
        let why = if crc32c([body]) != crc {
            "an entry's checksum is wrong"
        } else if body
            .get(FLAGS_AT)
            .is_some_and(|flags| flags & OVERFLOW != 0)
        {
            all.insert(OVERFLOW_KEY.to_vec(), vec![1]);
            continue;
        } else if let Some((record, _)) = LatchRecord::decode(&value, |_| None) {
            all.insert(key_of(record.key, number), value);
            continue;
        } else {
            "an entry that cannot be understood"
        };
        damage.push(Damage::at(at, why));
    }
    let entries = all.into_iter().map(|(key, value)| MapEntry {
        key,
        value,
        doubtful: false,
    });
    Ok(ReadMap {
        entries: entries.collect(),
        damage,
        torn: None,
    })
}

/// The number of entries, and the bytes of the file systems.
fn old_head<'a>(from: &mut &'a [u8]) -> Option<(u32, &'a [u8])> {
    let (count, crc): (u32, u32) = StoredField::take(from)?;
    let start = *from;
    let _: Vec<System> = StoredField::take(from)?;
    let systems = start.get(..start.len() - from.len())?;
    (crc32c([&count.to_le_bytes(), systems]) == crc).then_some((count, systems))
}

fn old_entry<'a>(from: &mut &'a [u8]) -> Option<(&'a [u8], u32)> {
    let (len, crc): (u32, u32) = StoredField::take(from)?;
    Some((bytes(from, usize::try_from(len).ok()?)?, crc))
}

/// The key of an inode's latch; `n` differs for each file system that has an inode of this number.
pub(super) fn key_of(inode: FileKey, n: u32) -> Vec<u8> {
    let numbers = [inode.ino.to_be_bytes(), inode.generation.to_be_bytes()];
    [numbers.as_flattened(), &n.to_be_bytes()].concat()
}

fields! { FsIdentity { kind, uuid, fsid } }
fields! { UnprovenStream { stream, ranges } }

impl LatchRecord {
    /// Its bytes; `name` gives the identity of the file system with a device number, if it is known.
    pub(crate) fn encode(&self, name: impl Fn(u64) -> Option<System>) -> Vec<u8> {
        let mut systems: Vec<System> = Vec::new();
        let mut numbered = |key: &FileKey| {
            let Some(fs) = name(key.fs) else {
                return (UNKNOWN, *key);
            };
            let at = systems.iter().position(|known| *known == fs);
            // There is at most one for each name and one for the inode, so the number fits.
            let at = at.unwrap_or_else(|| {
                systems.push(fs);
                systems.len() - 1
            });
            (at as u16, *key)
        };
        let key = numbered(&self.key);
        let names: Vec<_> = self.names.iter().map(numbered).collect();
        let is = [self.metadata, self.size, self.entries, self.file];
        let bits = is.iter().zip([1_u8, 2, 4, NO_DIRECTORY]);
        let flags = bits.fold(0, |all, (is, bit)| if *is { all | bit } else { all });
        let mut out = Vec::new();
        (systems, (key, self.error)).put(&mut out);
        (self.at, (self.sequence, flags)).put(&mut out);
        self.unproven.put(&mut out);
        names.put(&mut out);
        self.path.put(&mut out);
        self.shares.put(&mut out);
        out
    }

    /// A record, and whether its file system is known: `dev` gives the device number of one that is.
    pub(crate) fn decode(
        mut from: &[u8],
        dev: impl Fn(&System) -> Option<u64>,
    ) -> Option<(Self, bool)> {
        let systems: Vec<System> = StoredField::take(&mut from)?;
        let fs_of = |number: u16| systems.get(usize::from(number)).and_then(&dev);
        let ((fs, key), error): ((u16, FileKey), _) = StoredField::take(&mut from)?;
        let (at, (sequence, flags)): (_, (_, u8)) = StoredField::take(&mut from)?;
        let mut record = Self {
            at,
            sequence,
            unproven: StoredField::take(&mut from)?,
            metadata: flags & 1 != 0,
            size: flags & 2 != 0,
            entries: flags & 4 != 0,
            file: flags & NO_DIRECTORY != 0,
            ..Self::whole(key, error)
        };
        let names: Vec<(u16, FileKey)> = StoredField::take(&mut from)?;
        record.names = names.iter().map(|(_, name)| *name).collect();
        record.path = StoredField::take(&mut from)?;
        record.shares = StoredField::take(&mut from)?;
        let mut limited = record.clone();
        limited.limit();
        let known = 1 | 2 | 4 | NO_DIRECTORY;
        if !from.is_empty() || flags & !known != 0 || limited != record {
            return None;
        }
        for (name, (fs, _)) in record.names.iter_mut().zip(names) {
            match fs_of(fs) {
                Some(dev) => name.fs = dev,
                // No sync can name this directory again, so only an administrator ends the latch.
                None => record.entries = true,
            }
        }
        let here = fs_of(fs);
        record.key.fs = here.unwrap_or_default();
        Some((record, here.is_some()))
    }
}
