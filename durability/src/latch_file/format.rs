//! Latches as bytes. Owns the format; the file that holds it is replaced by `latch_file.rs`.
//!
//! **Format** (version 1, little-endian; a *text* is u16 length and UTF-8):
//!
//! | head | |
//! |---|---|
//! | 8 bytes | `HFLATCH1` |
//! | u32, u32 | entries, CRC-32C of that number and of what follows up to the entries |
//! | u16 | file systems, each: u64 `f_type`, 16 bytes UUID, u64 `f_fsid`, text root of a share on it |
//!
//! then every entry: u32 length, u32 CRC-32C of the body, body: u16 file system (65535: unknown),
//! u64 inode, u64 generation, u8 error (`record.rs`), u64 + u32 time, u64 sequence, u8 flags (1
//! metadata, 2 size, 4 entries, 8 no inode: more were latched than are named, 16 no directory), u16
//! streams (each: text, u16 ranges of u64 from, u64 to), u16 names (each: u16 file system, u64
//! inode, u64 generation), text path, u16 shares (each a text).
//!
//! What would make a file too large is said in fewer words, which cover more.

use vfs::{FileKey, VfsError, sys::FsIdentity};

use super::{Dormant, LatchFileError, RefusedEntry, State};
use crate::{
    latch_store::{
        LatchRecord, STORED_NAMES_MAX, STORED_RANGES_MAX, STORED_SHARES_MAX, STORED_STREAMS_MAX,
        UnprovenStream,
    },
    record::{In, Out, crc32c, error_code, error_of},
};

const MAGIC: &[u8; 8] = b"HFLATCH1";
/// The flag of the entry that names no inode.
const OVERFLOW: u8 = 8;
/// Of the flags: known to be no directory.
const NO_DIRECTORY: u8 = 16;
/// "No file system of ours."
const UNKNOWN: u16 = u16::MAX;
/// The last of [`LatchRecord::coarsen`]'s steps.
const COARSEST: u8 = 2;

impl State {
    /// The file, in as few words as it takes to have at most `max` bytes of entries.
    pub(super) fn encode(&self, max: usize) -> Vec<u8> {
        let mut table = Systems::new();
        let (mut entries, mut count, mut fits) = (Vec::new(), 0, false);
        for step in 0..=COARSEST {
            table.clear();
            (entries, count, fits) = self.encode_entries(&mut table, step, max);
            if fits {
                break;
            }
        }
        if self.overflow || !fits {
            if !fits {
                tracing::error!(
                    "more latches than can be stored: after a restart every FLUSH fails until \
                     they are cleared"
                );
            }
            let mut none = LatchRecord::whole(FileKey::default(), VfsError::Io);
            none.unproven.clear();
            let mut out = Out(entries);
            encode_entry(&mut out, &none, OVERFLOW, UNKNOWN, &[]);
            entries = out.0;
            count += 1;
        }
        let mut systems = Out::default();
        systems.u16(table.len() as u16);
        for (identity, root) in &table {
            systems.u64(identity.kind);
            systems.bytes(&identity.uuid);
            systems.u64(identity.fsid);
            systems.text(root);
        }
        let mut out = Out::default();
        out.bytes(MAGIC);
        out.u32(count);
        out.u32(crc32c(crc32c(0, &count.to_le_bytes()), &systems.0));
        out.bytes(&systems.0);
        out.bytes(&entries);
        out.0
    }

    /// The entries, their number, and whether these are all.
    fn encode_entries(&self, table: &mut Systems, step: u8, max: usize) -> (Vec<u8>, u32, bool) {
        let mut number = |fs: Option<(FsIdentity, String)>| -> u16 {
            let Some(fs) = fs else { return UNKNOWN };
            let at = table.iter().position(|known| *known == fs);
            let at = at.unwrap_or_else(|| {
                table.push(fs);
                table.len() - 1
            });
            u16::try_from(at).unwrap_or(UNKNOWN)
        };
        let known = |dev: u64| {
            let fs = self.known.iter().find(|fs| fs.dev == dev);
            fs.map(|fs| (fs.identity, fs.root.clone()))
        };
        let live = self.live.values().map(|record| (record, None));
        let dormant = self.dormant.iter().map(|one| (&one.record, Some(one)));
        let (mut entries, mut count) = (Out::default(), 0);
        for (record, dormant) in live.chain(dormant) {
            let names: Vec<u16> = match dormant {
                Some(one) => one.names.iter().map(|fs| number(fs.clone())).collect(),
                None => {
                    let names = record.names.iter();
                    names.map(|name| number(known(name.fs))).collect()
                }
            };
            let fs = number(dormant.map_or_else(|| known(record.key.fs), |one| one.fs.clone()));
            let before = entries.0.len();
            if step == 0 {
                encode_entry(&mut entries, record, 0, fs, &names);
            } else {
                let mut coarse = record.clone();
                coarse.coarsen(step);
                encode_entry(&mut entries, &coarse, 0, fs, &names);
            }
            if entries.0.len() > max {
                entries.0.truncate(before);
                return (entries.0, count, false);
            }
            count += 1;
        }
        (entries.0, count, true)
    }
}

fn encode_entry(out: &mut Out, record: &LatchRecord, flags: u8, fs: u16, names: &[u16]) {
    let mut body = Out::default();
    body.u16(fs);
    body.inode(record.key);
    body.u8(error_code(record.error));
    body.time(record.at);
    body.u64(record.sequence);
    let is = [record.metadata, record.size, record.entries, record.file];
    let bits = is.iter().zip([1, 2, 4, NO_DIRECTORY]);
    body.u8(bits.fold(flags, |all, (is, bit)| if *is { all | bit } else { all }));
    body.u16(record.unproven.len() as u16);
    for stream in &record.unproven {
        body.text(&stream.stream);
        body.u16(stream.ranges.len() as u16);
        for (start, end) in &stream.ranges {
            body.u64(*start);
            body.u64(*end);
        }
    }
    body.u16(record.names.len() as u16);
    for (name, fs) in record.names.iter().zip(names) {
        body.u16(*fs);
        body.inode(*name);
    }
    body.text(&record.path);
    body.u16(record.shares.len() as u16);
    record.shares.iter().for_each(|share| body.text(share));
    out.u32(body.0.len() as u32);
    out.u32(crc32c(0, &body.0));
    out.bytes(&body.0);
}

type Systems = Vec<(FsIdentity, String)>;

#[derive(Default)]
pub(super) struct Decoded {
    pub(super) all: Vec<Dormant>,
    pub(super) overflow: bool,
    pub(super) refused: Vec<RefusedEntry>,
}

/// Reads a whole file: its entries, and those that are no good.
pub(super) fn decode(bytes: &[u8]) -> Result<Decoded, LatchFileError> {
    let mut from = In(bytes);
    let magic = from.bytes(MAGIC.len()).ok_or(LatchFileError::NotOurs)?;
    if magic != MAGIC {
        let ours = magic.starts_with(b"HFLATCH");
        return Err(if ours {
            LatchFileError::Version
        } else {
            LatchFileError::NotOurs
        });
    }
    let (count, systems) = decode_head(&mut from).ok_or(LatchFileError::NotOurs)?;
    let mut read = Decoded::default();
    for number in 0..count {
        let mut refuse = |why, body: Option<&[u8]>| {
            let path = body.and_then(|body| decode_entry(body, &systems));
            let path = path.map(|(one, _)| one.record.path);
            read.refused.push(RefusedEntry { number, why, path });
        };
        let head = from.u32().zip(from.u32());
        let Some((body, crc)) =
            head.and_then(|(len, crc)| Some((from.bytes(usize::try_from(len).ok()?)?, crc)))
        else {
            // Nothing after it can be found.
            refuse("cut off; it and all after it are lost", None);
            break;
        };
        if crc32c(0, body) != crc {
            refuse("checksum", Some(body));
        } else if let Some((one, overflow)) = decode_entry(body, &systems) {
            if overflow {
                read.overflow = true;
            } else if !one.record.is_repaired() {
                read.all.push(one);
            }
        } else {
            refuse("contents", None);
        }
    }
    Ok(read)
}

fn decode_head(from: &mut In<'_>) -> Option<(u32, Systems)> {
    let (count, crc) = (from.u32()?, from.u32()?);
    let start = from.clone();
    let mut systems = Vec::new();
    for _ in 0..from.u16()? {
        let identity = FsIdentity {
            kind: from.u64()?,
            uuid: from.uuid()?,
            fsid: from.u64()?,
        };
        systems.push((identity, from.text()?));
    }
    let read = start.0.get(..start.0.len() - from.0.len())?;
    (crc32c(crc32c(0, &count.to_le_bytes()), read) == crc).then_some((count, systems))
}

/// An entry, and whether it is the one that names no inode.
fn decode_entry(body: &[u8], systems: &Systems) -> Option<(Dormant, bool)> {
    let mut from = In(body);
    let fs_of = |number: u16| systems.get(usize::from(number)).cloned();
    let fs = fs_of(from.u16()?);
    let key = from.inode()?;
    let error = error_of(from.u8()?);
    let at = from.time()?;
    let sequence = from.u64()?;
    let flags = from.u8()?;
    let mut unproven = Vec::new();
    let streams = usize::from(from.u16()?);
    for _ in 0..streams {
        let stream = from.text()?;
        let count = usize::from(from.u16()?);
        let mut ranges = Vec::new();
        for _ in 0..count {
            ranges.push((from.u64()?, from.u64()?));
        }
        if count > STORED_RANGES_MAX || ranges.iter().any(|(start, end)| start >= end) {
            return None;
        }
        unproven.push(UnprovenStream { stream, ranges });
    }
    let (mut names, mut name_systems) = (Vec::new(), Vec::new());
    for _ in 0..from.u16()? {
        name_systems.push(fs_of(from.u16()?));
        names.push(from.inode()?);
    }
    let path = from.text()?;
    let mut shares = Vec::new();
    for _ in 0..from.u16()? {
        shares.push(from.text()?);
    }
    let fits = streams <= STORED_STREAMS_MAX
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
    let overflow = flags & OVERFLOW != 0;
    let one = Dormant {
        record,
        fs,
        names: name_systems,
    };
    fits.then_some((one, overflow))
}

#[cfg(test)]
mod tests {
    use super::{super::read_latches, *};

    #[test]
    fn what_takes_too_much_room_is_said_in_fewer_words() {
        let record = |ino: u64| {
            let mut record = LatchRecord::whole(
                FileKey {
                    fs: 7,
                    ino,
                    generation: 1,
                },
                VfsError::Io,
            );
            record.unproven[0].ranges = (0..60).map(|i| (i * 10, i * 10 + 1)).collect();
            record.path = "p".repeat(1000);
            record
        };
        let mut state = State::default();
        state
            .live
            .extend((0..100).map(|ino| (record(ino).key, record(ino))));
        let read = |max: usize| {
            let bytes = state.encode(max);
            assert!(bytes.len() < max + 1000, "{} of {max}", bytes.len());
            let read = read_latches(&bytes).unwrap();
            assert_eq!(read.refused, []);
            read
        };
        let fine = read(1 << 20);
        assert_eq!((fine.records.len(), fine.overflow), (100, false));
        assert_eq!(fine.records[0].unproven[0].ranges.len(), 60);
        let coarse = read(150_000);
        assert_eq!((coarse.records.len(), coarse.overflow), (100, false));
        assert_eq!(coarse.records[99].unproven[0].ranges, [(0, 591)]);
        let least = read(20_000);
        assert_eq!((least.records.len(), least.overflow), (100, false));
        assert!(
            least
                .records
                .iter()
                .all(|one| one.entries && one.unproven.is_empty())
        );
        let some = read(2_000);
        assert!(some.overflow && !some.records.is_empty());
    }
}
