//! Contents that identify themselves: each sector names its object, stream, place and version.

use super::Object;

/// Bytes of a sector, the grain at which unsynced data may be torn.
pub const SECTOR: usize = 512;

const RECORD: usize = 32;
const MAGIC: u32 = 0x4846_5354;

/// The fields of a sector's stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    /// The object it was written to.
    pub object: Object,
    /// The stream (a hash of its name; 0 is the unnamed one).
    pub stream: u32,
    /// Its place in the stream.
    pub sector: u64,
    pub version: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sector {
    /// All zero, or beyond the end.
    Zero,
    /// One version from its first byte to its last.
    Stamp(Stamp),
    /// Neither.
    Garbage,
}

impl Stamp {
    fn record(&self) -> [u8; RECORD] {
        let mut out = [0; RECORD];
        let parts = [
            &MAGIC.to_le_bytes()[..],
            &self.stream.to_le_bytes(),
            &self.object.0.to_le_bytes(),
            &self.sector.to_le_bytes(),
            &self.version.to_le_bytes(),
        ];
        let mut at = 0;
        for part in parts {
            out[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        out
    }
}

impl Sector {
    /// Reads one sector, or the part of the last one that is there.
    pub fn read(bytes: &[u8]) -> Self {
        if bytes.iter().all(|byte| *byte == 0) {
            return Self::Zero;
        }
        let (Some(magic), Some(stream), Some(object), Some(sector), Some(version)) = (
            word(bytes, 0, 4),
            word(bytes, 4, 4),
            word(bytes, 8, 8),
            word(bytes, 16, 8),
            word(bytes, 24, 8),
        ) else {
            return Self::Garbage;
        };
        let stamp = Stamp {
            object: Object(object),
            stream: u32::try_from(stream).unwrap_or(0),
            sector,
            version,
        };
        let record = stamp.record();
        let whole = bytes.chunks(RECORD).all(|chunk| record.starts_with(chunk));
        if magic == u64::from(MAGIC) && whole {
            Self::Stamp(stamp)
        } else {
            Self::Garbage
        }
    }
}

fn word(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    let mut out = [0; 8];
    out.get_mut(..len)?
        .copy_from_slice(bytes.get(at..at + len)?);
    Some(u64::from_le_bytes(out))
}

/// The number of a stream's name in a stamp.
pub(super) fn stream_number(stream: &str) -> u32 {
    if stream.is_empty() {
        return 0;
    }
    // FNV-1a, never 0.
    stream
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        })
        .max(1)
}

/// The bytes to write: `count` sectors from `first` on.
pub fn fill(object: Object, stream: &str, first: u64, count: u64, version: u64) -> Vec<u8> {
    let stream = stream_number(stream);
    let mut out = Vec::with_capacity(usize::try_from(count).unwrap_or(0) * SECTOR);
    for sector in first..first + count {
        let record = Stamp {
            object,
            stream,
            sector,
            version,
        }
        .record();
        for _ in 0..SECTOR / RECORD {
            out.extend_from_slice(&record);
        }
    }
    out
}

/// The sectors of what was read from a stream's beginning to its end.
pub fn sectors_of(bytes: &[u8]) -> Vec<Sector> {
    bytes.chunks(SECTOR).map(Sector::read).collect()
}
