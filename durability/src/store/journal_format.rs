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
//! with a good one after it is damage, and told. The rest of the segment is zeros.

use std::time::Duration;

use vfs::Timestamp;

use super::{
    bytes::{In, Out},
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
    /// Told apart from other runs by this.
    pub run: [u8; 16],
    /// The kernel's boot id: what tells a crash of the machine from one of the server.
    pub boot: String,
    /// Version of the server.
    pub server: String,
    /// The first of its run; otherwise it goes on.
    pub first: bool,
    /// Shares whose flushes are written down.
    pub shares: Vec<ShareRoot>,
}

/// What was volatile, and what might become so without another record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExposureNote {
    /// As measured.
    pub measured: ExposureRecord,
    /// Nothing beyond so many bytes owed is acknowledged under this record.
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
    /// What was volatile.
    Exposure(ExposureNote),
    /// An orderly end. `stable`: everything acknowledged was on stable storage.
    Stop {
        /// When, wall clock.
        at: Timestamp,
        /// See above.
        stable: bool,
    },
    /// So many flushes before here could not be written down.
    Gap {
        /// When, wall clock.
        at: Timestamp,
        /// How many.
        lost: u64,
    },
}

impl JournalRecord {
    fn kind(&self) -> u8 {
        match self {
            Self::Start(_) => 1,
            Self::Flushed(_) => 2,
            Self::Promised(_) => 3,
            Self::Exposure(_) => 4,
            Self::Stop { .. } => 5,
            Self::Gap { .. } => 6,
        }
    }

    /// The record's bytes, head included.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = Out::default();
        match self {
            Self::Start(start) => encode_start(&mut body, start),
            Self::Flushed(flush) | Self::Promised(flush) => encode_flush(&mut body, flush),
            Self::Exposure(note) => encode_exposure(&mut body, note),
            Self::Stop { at, stable } => {
                body.time(*at);
                body.u8(u8::from(*stable));
            }
            Self::Gap { at, lost } => {
                body.time(*at);
                body.u64(*lost);
            }
        }
        let mut out = Out::default();
        out.u8(self.kind());
        out.u32(body.0.len() as u32);
        out.bytes(&body.0);
        out.0
    }

    /// `Some(None)` for a kind of a later version.
    #[allow(clippy::option_option)]
    fn decode(from: &mut In<'_>) -> Option<Option<Self>> {
        let kind = from.u8()?;
        let len = from.u32()?;
        let mut body = In(from.bytes(usize::try_from(len).ok()?)?);
        let record = match kind {
            1 => Self::Start(decode_start(&mut body)?),
            2 => Self::Flushed(decode_flush(&mut body)?),
            3 => Self::Promised(decode_flush(&mut body)?),
            4 => Self::Exposure(decode_exposure(&mut body)?),
            5 => Self::Stop {
                at: body.time()?,
                stable: body.flag()?,
            },
            6 => Self::Gap {
                at: body.time()?,
                lost: body.u64()?,
            },
            _ => return Some(None),
        };
        body.is_empty().then_some(Some(record))
    }
}

fn encode_start(out: &mut Out, start: &StartRecord) {
    out.time(start.at);
    out.bytes(&start.run);
    out.text(&start.boot);
    out.text(&start.server);
    out.u8(u8::from(start.first));
    let (mut shares, mut count) = (Out::default(), 0);
    for share in &start.shares {
        let mut one = Out::default();
        one.text(&share.name);
        one.text(&share.root);
        if shares.0.len() + one.0.len() > SHARES_BYTES_MAX {
            break;
        }
        shares.bytes(&one.0);
        count += 1;
    }
    out.u16(count);
    out.bytes(&shares.0);
}

fn decode_start(from: &mut In<'_>) -> Option<StartRecord> {
    let mut start = StartRecord {
        at: from.time()?,
        run: from.uuid()?,
        boot: from.text()?,
        server: from.text()?,
        first: from.flag()?,
        shares: Vec::new(),
    };
    for _ in 0..from.u16()? {
        start.shares.push(ShareRoot {
            name: from.text()?,
            root: from.text()?,
        });
    }
    Some(start)
}

fn encode_flush(out: &mut Out, flush: &FlushRecord) {
    out.time(flush.at);
    out.text(&flush.share);
    out.inode(flush.key);
    out.text(&flush.stream);
    out.text(&flush.path);
    out.u64(flush.size);
    out.u64(flush.sequence);
    out.policy(flush.policy);
    out.u64(flush.bytes);
    out.u8(u8::from(flush.directory));
}

fn decode_flush(from: &mut In<'_>) -> Option<FlushRecord> {
    Some(FlushRecord {
        at: from.time()?,
        share: from.text()?,
        key: from.inode()?,
        stream: from.text()?,
        path: from.text()?,
        size: from.u64()?,
        sequence: from.u64()?,
        policy: from.policy()?,
        bytes: from.u64()?,
        directory: from.flag()?,
    })
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn encode_exposure(out: &mut Out, note: &ExposureNote) {
    let measured = &note.measured;
    out.time(measured.at);
    out.text(&measured.share);
    out.policy(measured.policy);
    out.u64(measured.exposure.bytes);
    out.u64(measured.exposure.inodes);
    // Rounded up: the bound is an upper one.
    let age = measured.exposure.oldest_age;
    out.u64(millis(age).saturating_add(u64::from(!age.subsec_nanos().is_multiple_of(1_000_000))));
    out.u64(measured.exposure.latched_bytes);
    out.u64(measured.exposure.latched_inodes);
    out.u64(note.allowance);
    out.u64(millis(note.lease));
    let files = measured.files.get(..EXPOSED_FILES_MAX);
    let files = files.unwrap_or(&measured.files);
    out.u16(files.len() as u16);
    for file in files {
        out.inode(file.key);
        out.text(&file.path);
        out.u64(file.bytes);
    }
}

fn decode_exposure(from: &mut In<'_>) -> Option<ExposureNote> {
    let (at, share, policy) = (from.time()?, from.text()?, from.policy()?);
    let exposure = Exposure {
        bytes: from.u64()?,
        inodes: from.u64()?,
        oldest_age: Duration::from_millis(from.u64()?),
        latched_bytes: from.u64()?,
        latched_inodes: from.u64()?,
        ..Exposure::default()
    };
    let (allowance, lease) = (from.u64()?, Duration::from_millis(from.u64()?));
    let mut files = Vec::new();
    for _ in 0..from.u16()? {
        files.push(ExposedFile {
            key: from.inode()?,
            path: from.text()?,
            bytes: from.u64()?,
        });
    }
    Some(ExposureNote {
        measured: ExposureRecord {
            at,
            share,
            policy,
            exposure,
            files,
        },
        allowance,
        lease,
    })
}

/// What a segment holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Segment {
    /// Its number by its first good frame; `None` without one.
    pub number: Option<u64>,
    /// Every record that could be read, in order.
    pub records: Vec<JournalRecord>,
    /// What could not be, with something good behind it.
    pub damage: Vec<Damage>,
    /// Where a frame was being written when the end came.
    pub torn: Option<u64>,
    /// It was written by a version of the server that this one does not know; nothing was read.
    pub other_version: bool,
}

/// Reads a segment, whatever the bytes are.
pub fn read_segment(bytes: &[u8]) -> Segment {
    let mut out = Segment::default();
    if let Some([b'H', b'F', b'J', digit]) = bytes.get(..4)
        && *digit != MAGIC[3]
    {
        out.other_version = true;
        return out;
    }
    let mut damage = Vec::new();
    let ending = frames::read(MAGIC, bytes, |part| match part {
        Part::Damage(one) => damage.push(one),
        Part::Payload(at, payload) => {
            let mut from = In(payload);
            while !from.is_empty() {
                let Some(record) = JournalRecord::decode(&mut from) else {
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
