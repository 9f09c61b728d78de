//! The bytes of the journal of acknowledged flushes, and a reader that believes nothing.
//!
//! The journal is a row of *segments*, files `<16 hex digits>.flushes` of a fixed size that are
//! filled with zeros when they are made, so that writing a frame changes data only. A segment is a
//! row of *frames* (`frames.rs`, with `HFJ1`), whose payload is records, each: u8 kind, u32 length,
//! body.
//!
//! All little-endian; texts as u16 length and UTF-8. Kinds: 1 start, 2 flushed, 3 promised, 4
//! exposure, 5 stop, 6 gap ([`JournalRecord`]); others are skipped. Frame 0 of a segment begins
//! with a start record.
//!
//! A frame is written only after the one before it is on stable storage. So after a cut the last
//! frame may be torn, which is normal: it belonged to nothing acknowledged. A frame that is no good
//! with a good one after it is damage, and is reported. The rest of the segment is zeros.

use std::time::Duration;

use vfs::Timestamp;

use super::{
    bytes::{Field, bytes, fields, millis},
    flush_record::{EXPOSED_FILES_MAX, ExposedFile, ExposureRecord, FlushRecord},
    frames::{self, Damage, Magic, Part},
};
use crate::report::Exposure;

/// Largest segment that is read.
pub const SEGMENT_READ_MAX: u64 = 256 << 20;
/// Most bytes of shares named in a start record; further ones are left out.
const SHARES_BYTES_MAX: usize = 24 << 10;
pub(super) const MAGIC: &Magic = b"HFJ1";

/// One share of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareRoot {
    /// Its name.
    pub name: String,
    /// Its folder.
    pub root: String,
}

/// A server began, or a segment, or other shares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartRecord {
    /// When, wall clock.
    pub at: Timestamp,
    /// Random bytes that identify the run.
    pub run: [u8; 16],
    /// The kernel's boot id: it distinguishes a crash of the machine from one of the server.
    pub boot: String,
    /// Version of the server.
    pub server: String,
    /// The first of its run; otherwise it goes on.
    pub first: bool,
    /// Shares whose flushes are stored.
    pub shares: Vec<ShareRoot>,
}

/// The exposure of a share, and the limits that hold for it until the next record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExposureNote {
    /// As measured.
    pub measured: ExposureRecord,
    /// Nothing that makes more bytes dirty than this is acknowledged under this record.
    pub allowance: u64,
    /// Nothing later than so long after it is acknowledged under this record.
    pub lease: Duration,
}

/// One record of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JournalRecord {
    /// A server began, or a segment, or other shares.
    Start(StartRecord),
    /// On stable storage; the success reply followed.
    Flushed(FlushRecord),
    /// Answered before the disk.
    Promised(FlushRecord),
    /// The exposure of a share at one moment.
    Exposure(ExposureNote),
    /// An orderly end. `stable`: everything acknowledged was on stable storage.
    Stop {
        /// When, wall clock.
        at: Timestamp,
        /// See above.
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

impl JournalRecord {
    /// The record's bytes, head included.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let kind: u8 = match self {
            Self::Start(_) => 1,
            Self::Flushed(_) => 2,
            Self::Promised(_) => 3,
            Self::Exposure(_) => 4,
            Self::Stop { .. } => 5,
            Self::Gap { .. } => 6,
        };
        match self {
            Self::Start(start) => start.put(&mut body),
            Self::Flushed(flush) | Self::Promised(flush) => flush.put(&mut body),
            Self::Exposure(note) => note.put(&mut body),
            Self::Stop { at, stable } => (*at, *stable).put(&mut body),
            Self::Gap { at, lost } => (*at, *lost).put(&mut body),
        }
        let mut out = Vec::new();
        (kind, body.len() as u32).put(&mut out);
        out.extend(body);
        out
    }

    /// `Some(None)` for a kind of a later version.
    #[allow(clippy::option_option)]
    pub(crate) fn read(from: &mut &[u8]) -> Option<Option<Self>> {
        let (kind, len): (u8, u32) = Field::take(from)?;
        let mut body = bytes(from, usize::try_from(len).ok()?)?;
        let record = match kind {
            1 => Self::Start(Field::take(&mut body)?),
            2 => Self::Flushed(Field::take(&mut body)?),
            3 => Self::Promised(Field::take(&mut body)?),
            4 => Self::Exposure(Field::take(&mut body)?),
            5 => Field::take(&mut body).map(|(at, stable)| Self::Stop { at, stable })?,
            6 => Field::take(&mut body).map(|(at, lost)| Self::Gap { at, lost })?,
            _ => return Some(None),
        };
        body.is_empty().then_some(Some(record))
    }
}

fields! { ShareRoot { name, root } }
fields! { StartRecord { at, run, boot, server, first, shares } }
fields! { ExposedFile { key, path, bytes } }
fields! { FlushRecord { at, share, key, stream, path, size, sequence, policy, bytes, directory } }

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

impl Field for ExposureNote {
    fn put(&self, out: &mut Vec<u8>) {
        let ExposureRecord {
            at,
            share,
            policy,
            exposure,
            files,
        } = &self.measured;
        at.put(out);
        share.put(out);
        policy.put(out);
        // Rounded up: the bound is an upper one.
        let age = exposure.oldest_age;
        let part = !age.subsec_nanos().is_multiple_of(1_000_000);
        let numbers = [
            exposure.bytes,
            exposure.inodes,
            millis(age).saturating_add(u64::from(part)),
            exposure.latched_bytes,
            exposure.latched_inodes,
            self.allowance,
            millis(self.lease),
        ];
        numbers.iter().for_each(|number| number.put(out));
        let files = files.iter().take(EXPOSED_FILES_MAX).cloned();
        files.collect::<Vec<_>>().put(out);
    }

    fn take(from: &mut &[u8]) -> Option<Self> {
        let (at, (share, policy)) = Field::take(from)?;
        let exposure = Exposure {
            bytes: Field::take(from)?,
            inodes: Field::take(from)?,
            oldest_age: Duration::from_millis(Field::take(from)?),
            latched_bytes: Field::take(from)?,
            latched_inodes: Field::take(from)?,
            ..Exposure::default()
        };
        let (allowance, lease) = Field::take(from)?;
        let files = Field::take(from)?;
        Some(Self {
            measured: ExposureRecord {
                at,
                share,
                policy,
                exposure,
                files,
            },
            allowance,
            lease: Duration::from_millis(lease),
        })
    }
}

/// The contents of a segment, as far as they can be read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Segment {
    /// Its number by its first good frame; `None` without one.
    pub number: Option<u64>,
    /// Every record that could be read, in order.
    pub records: Vec<JournalRecord>,
    /// Parts that cannot be read, with something good behind them.
    pub damage: Vec<Damage>,
    /// Where a frame was being written when the end came.
    pub torn: Option<u64>,
    /// It was written by a version of the server that this one does not know; nothing was read.
    pub other_version: bool,
}

/// Reads a segment, whatever the bytes are.
pub fn read_segment(file: &[u8]) -> Segment {
    let mut out = Segment::default();
    if let Some([b'H', b'F', b'J', digit]) = file.get(..4)
        && *digit != MAGIC[3]
    {
        out.other_version = true;
        return out;
    }
    let mut damage = Vec::new();
    let ending = frames::read(MAGIC, file, |part| match part {
        Part::Damage(one) => damage.push(one),
        Part::Payload(at, mut from) => {
            while !from.is_empty() {
                let Some(record) = JournalRecord::read(&mut from) else {
                    let why = "a record that cannot be understood; the rest of its frame is unread";
                    damage.push(Damage::at(at, why));
                    break;
                };
                out.records.extend(record);
            }
        }
    });
    (out.number, out.torn, out.damage) = (ending.segment, ending.torn, damage);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use vfs::FileKey;

    use super::{
        super::frames::{ALIGN, PAYLOAD_MAX, aligned},
        *,
    };
    use crate::settings::Policy;

    fn frame(segment: u64, number: u32, payload: &[u8]) -> Vec<u8> {
        frames::frame(MAGIC, segment, number, payload)
    }

    fn flush(n: u64) -> JournalRecord {
        JournalRecord::Flushed(FlushRecord {
            at: Timestamp {
                secs: n as i64,
                nanos: 1,
            },
            share: "data".into(),
            key: FileKey {
                fs: 0,
                ino: n,
                generation: 7,
            },
            stream: String::new(),
            path: format!("d/{n}"),
            size: n * 10,
            sequence: n,
            policy: Policy::Honor,
            bytes: 4096,
            directory: false,
        })
    }

    fn start() -> JournalRecord {
        JournalRecord::Start(StartRecord {
            at: Timestamp::default(),
            run: [3; 16],
            boot: "b".into(),
            server: "1".into(),
            first: true,
            shares: vec![ShareRoot {
                name: "data".into(),
                root: "/srv".into(),
            }],
        })
    }

    /// A segment of `n` frames of two records each, and 2 KiB of zeros.
    fn segment(n: u32) -> (Vec<u8>, Vec<JournalRecord>) {
        let (mut bytes, mut records) = (Vec::new(), Vec::new());
        for number in 0..n {
            let mut both = vec![
                flush(u64::from(number) * 2),
                flush(u64::from(number) * 2 + 1),
            ];
            if number == 0 {
                both.insert(0, start());
            }
            let payload: Vec<u8> = both.iter().flat_map(JournalRecord::encode).collect();
            bytes.extend(frame(5, number, &payload));
            records.extend(both);
        }
        bytes.resize(bytes.len() + 2048, 0);
        (bytes, records)
    }

    #[test]
    fn what_was_written_is_read() {
        let (bytes, records) = segment(6);
        let read = read_segment(&bytes);
        assert_eq!(read.number, Some(5));
        assert_eq!(read.records, records);
        assert_eq!((read.damage, read.torn), (vec![], None));
        assert_eq!(read_segment(&[]), Segment::default());
        assert_eq!(read_segment(&[0; 4096]), Segment::default());
    }

    #[test]
    fn a_torn_end_is_no_damage() {
        let (bytes, records) = segment(4);
        let last = bytes.len() - 2048 - ALIGN;
        for cut in [1, 24, 100, 180] {
            let mut torn = bytes.clone();
            torn[last + cut..].fill(0);
            let read = read_segment(&torn);
            assert_eq!(read.records, records[..7], "{cut}");
            assert_eq!((read.damage, read.torn), (vec![], Some(last as u64)));
        }
        // The file is shorter than it was made.
        let read = read_segment(&bytes[..last + 100]);
        assert_eq!(read.records, records[..7]);
        assert_eq!(read.torn, Some(last as u64));
    }

    #[test]
    fn a_bad_middle_is_told_and_the_rest_is_read() {
        let (bytes, records) = segment(4);
        let at = aligned(bytes.len() - 2048) / 4;
        let middle = at.div_ceil(ALIGN) * ALIGN;
        let mut bad = bytes.clone();
        bad[middle + 40] ^= 1;
        let read = read_segment(&bad);
        assert_eq!(read.damage.len(), 1);
        assert_eq!(read.damage[0].offset, middle as u64);
        assert_eq!(read.records.len(), records.len() - 2);
        // A frame of another segment (an old file's blocks) is not taken.
        let mut old = bytes;
        let strange = frame(4, 1, &flush(9).encode());
        old[middle..middle + strange.len()].copy_from_slice(&strange);
        assert_eq!(read_segment(&old).damage.len(), 1);
        let mut newer = segment(1).0;
        newer[3] = b'2';
        assert!(read_segment(&newer).other_version);
    }

    #[test]
    fn what_only_looks_like_frames_costs_no_more_than_the_bound() {
        // Every sector begins with a head that claims the longest payload.
        let mut bytes = vec![0x55; 4 << 20];
        for at in (0..bytes.len()).step_by(ALIGN) {
            bytes[at..at + 4].copy_from_slice(MAGIC);
            bytes[at + 4..at + 8].copy_from_slice(&(PAYLOAD_MAX as u32).to_le_bytes());
        }
        let read = read_segment(&bytes);
        assert_eq!(read.damage.len(), 1);
        assert!(read.records.is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
            read_segment(&bytes);
            let framed = frame(1, 0, &bytes);
            read_segment(&framed);
        }

        /// One changed byte loses at most its frame, and never makes up a record.
        #[test]
        fn one_byte_costs_one_frame(at in 0usize..2048, flip in 1u8..) {
            let (mut bytes, records) = segment(4);
            bytes[at] ^= flip;
            let read = read_segment(&bytes);
            prop_assume!(!read.other_version);
            prop_assert!(read.records.len() + 3 >= records.len());
            prop_assert!(read.records.iter().all(|record| records.contains(record)));
            if read.records.len() < records.len() {
                prop_assert!(!read.damage.is_empty() || read.torn.is_some());
            }
        }
    }
}
