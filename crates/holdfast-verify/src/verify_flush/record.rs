//! One record: numbered, checksummed, its whole content a function of its number.
//!
//! Little-endian, no padding:
//!
//! ```text
//!  0   8  magic "HFVERIF1"
//!  8  16  run id, random for each `write`
//! 24   4  file number
//! 28   4  length of the record in bytes, this header included
//! 32   8  sequence, from 0 in each file, one for each record
//! 40   8  offset in the file (or stream) it was written to
//! 48   8  microseconds since 1970 when it was made
//! 56   8  CRC-64/XZ of bytes 0 to 55 and 64 to the end
//! 64   -  payload: SplitMix64 seeded by run, file and sequence
//! ```
//!
//! A reader needs no second copy to find a single wrong bit: payload and checksum are both
//! compared. A record does not know where it should be; that is [`super::plan`].

use std::{fmt, str::FromStr};

use crc::{CRC_64_XZ, Crc};

/// Bytes before the payload.
const HEAD: usize = 64;
/// Where the checksum lies.
const SUM_AT: usize = 56;
const MAGIC: &[u8; 8] = b"HFVERIF1";
/// Shortest record, bytes.
pub(super) const SIZE_MIN: u32 = 128;
/// Longest record, bytes.
pub(super) const SIZE_MAX: u32 = 1 << 20;

/// Distinguishes the records of one `write` from those of all others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RunId(pub(super) [u8; 16]);

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for RunId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // A sign would be read, too.
        match u128::from_str_radix(text, 16) {
            Ok(id) if text.len() == 32 && !text.starts_with('+') => Ok(Self(id.to_be_bytes())),
            _ => Err("a run id is 32 hexadecimal digits"),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Record {
    pub(super) run: RunId,
    pub(super) file: u32,
    pub(super) sequence: u64,
    pub(super) offset: u64,
    /// Microseconds since 1970.
    pub(super) time: u64,
}

/// The contents of the place of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Found {
    /// A whole record, though perhaps another one than expected.
    Whole(Record),
    /// Nothing but zeros: allocated and never written.
    Zeros,
    /// Anything else.
    Torn,
}

impl Record {
    /// The bytes of the record; `size` is within [`SIZE_MIN`] and [`SIZE_MAX`].
    pub(super) fn encode(&self, size: u32) -> Vec<u8> {
        let mut bytes = self.unsummed(size);
        let sum = checksum(&bytes);
        if let Some(field) = bytes.get_mut(SUM_AT..HEAD) {
            field.copy_from_slice(&sum.to_le_bytes());
        }
        bytes
    }

    fn unsummed(&self, size: u32) -> Vec<u8> {
        let length = size.max(SIZE_MIN) as usize;
        let mut bytes = Vec::with_capacity(length + 8);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.run.0);
        bytes.extend_from_slice(&self.file.to_le_bytes());
        bytes.extend_from_slice(&size.to_le_bytes());
        for field in [self.sequence, self.offset, self.time, 0] {
            bytes.extend_from_slice(&field.to_le_bytes());
        }
        let mut payload = self.payload();
        while bytes.len() < length {
            bytes.extend_from_slice(&payload.next().to_le_bytes());
        }
        bytes.truncate(length);
        bytes
    }

    fn payload(&self) -> SplitMix {
        let run = u128::from_le_bytes(self.run.0);
        let (low, high) = (run as u64, (run >> 64) as u64);
        let mut seed = SplitMix(low ^ high.rotate_left(32));
        let mut seed = SplitMix(seed.next() ^ u64::from(self.file));
        SplitMix(seed.next() ^ self.sequence)
    }
}

/// Looks at `bytes`, which a disk or a stranger may have spoilt.
pub(super) fn read(bytes: &[u8]) -> Found {
    if bytes.iter().all(|byte| *byte == 0) {
        return Found::Zeros;
    }
    whole(bytes).map_or(Found::Torn, Found::Whole)
}

fn whole(bytes: &[u8]) -> Option<Record> {
    let size = u32::try_from(bytes.len()).ok()?;
    let word = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let half = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    if !(SIZE_MIN..=SIZE_MAX).contains(&size)
        || !bytes.starts_with(MAGIC)
        || half(28)? != size
        || word(SUM_AT)? != checksum(bytes)
    {
        return None;
    }
    let record = Record {
        run: RunId(*bytes.get(8..)?.first_chunk()?),
        file: half(24)?,
        sequence: word(32)?,
        offset: word(40)?,
        time: word(48)?,
    };
    (record.unsummed(size).get(HEAD..) == bytes.get(HEAD..)).then_some(record)
}

/// The checksum of everything but its own field.
fn checksum(bytes: &[u8]) -> u64 {
    let part = |of| bytes.get(of).unwrap_or_default();
    crc64([part(0..SUM_AT), part(HEAD..bytes.len())])
}

/// Steele, Lea and Flood's generator; its state.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

static CRC: Crc<u64> = Crc::<u64>::new(&CRC_64_XZ);

/// The CRC-64/XZ of these bytes, one after the other.
pub(super) fn crc64<const N: usize>(parts: [&[u8]; N]) -> u64 {
    let mut digest = CRC.digest();
    parts.iter().for_each(|part| digest.update(part));
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record(file: u32, sequence: u64) -> Record {
        Record {
            run: RunId([0xa5; 16]),
            file,
            sequence,
            offset: sequence * 4096,
            time: 1_700_000_000_000_000,
        }
    }

    #[test]
    fn the_checksum_is_the_published_one() {
        assert_eq!(crc64([b"123456789"]), 0x995d_c9bb_df19_39fa);
    }

    #[test]
    fn run_ids_are_text_and_back() {
        let id = RunId(*b"0123456789abcdef");
        assert_eq!(id.to_string().parse(), Ok(id));
        for bad in [
            "",
            "00",
            "+0000000000000000000000000000000",
            "zz",
            &"0".repeat(33),
        ] {
            assert!(bad.parse::<RunId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn zeros_and_short_pieces_are_no_records() {
        assert_eq!(read(&[]), Found::Zeros);
        assert_eq!(read(&[0; 4096]), Found::Zeros);
        let bytes = record(1, 2).encode(4096);
        assert_eq!(read(&bytes[..4095]), Found::Torn);
        assert_eq!(read(&bytes[..7]), Found::Torn);
    }

    #[test]
    fn a_page_of_a_neighbour_is_found_although_its_sectors_are_whole() {
        let mut bytes = record(1, 2).encode(4096);
        let other = record(1, 3).encode(4096);
        bytes[512..1024].copy_from_slice(&other[512..1024]);
        assert_eq!(read(&bytes), Found::Torn);
        // The right checksum does not help a wrong payload.
        let sum = checksum(&bytes);
        bytes[SUM_AT..HEAD].copy_from_slice(&sum.to_le_bytes());
        assert_eq!(read(&bytes), Found::Torn);
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(
            file: u32, sequence: u64, offset: u64, time: u64, size in SIZE_MIN..5000
        ) {
            let record = Record { run: RunId([7; 16]), file, sequence, offset, time };
            let bytes = record.encode(size);
            prop_assert_eq!(bytes.len(), size as usize);
            prop_assert_eq!(read(&bytes), Found::Whole(record));
        }

        #[test]
        fn any_changed_bit_is_found(at in 0_usize..1024, bit in 0_u8..8) {
            let mut bytes = record(3, 9).encode(1024);
            bytes[at] ^= 1 << bit;
            prop_assert_eq!(read(&bytes), Found::Torn);
        }

        #[test]
        fn any_bytes_can_be_looked_at(mut bytes in prop::collection::vec(any::<u8>(), 0..600),
                                      magic: bool) {
            if magic && bytes.len() >= 8 {
                bytes[..8].copy_from_slice(MAGIC);
            }
            prop_assert!(!matches!(read(&bytes), Found::Whole(_)));
        }
    }
}
