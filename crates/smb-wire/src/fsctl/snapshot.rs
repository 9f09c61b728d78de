//! SRV_SNAPSHOT_ARRAY, the answer to SRV_ENUMERATE_SNAPSHOTS ([MS-SMB2] 2.2.32.2).
//!
//! A client with a buffer of 16 bytes gets only the numbers ([MS-SMB2] 3.3.5.15.1).

use bytes::{BufMut, BytesMut};

use crate::codec::{Malformed, Reader, size};
use crate::utf16;

/// Maximum number of snapshots that are read.
pub const MAX_SNAPSHOTS: usize = 4_096;

/// Snapshots of a volume, named `@GMT-YYYY.MM.DD-HH.MM.SS`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapshotArray {
    /// Total number of snapshots.
    pub number_of_snapshots: u32,
    /// Their names, or none if they do not fit.
    pub snapshots: Vec<String>,
    /// Length in bytes that the names have or would have, including the final NUL.
    pub array_size: u32,
}

impl SnapshotArray {
    /// The smallest output: the three numbers, and space for the empty list and its padding.
    pub const MIN: usize = 16;

    /// Length of these names in bytes.
    pub fn size_of(names: &[String]) -> u32 {
        let names: usize = names.iter().map(|name| utf16::len_bytes(name) + 2).sum();
        u32::try_from(names + 2).unwrap_or(u32::MAX)
    }

    /// Returns the answer for a client whose buffer has `limit` bytes.
    pub fn fitting(names: Vec<String>, limit: usize) -> Self {
        let array_size = Self::size_of(&names);
        let number_of_snapshots = u32::try_from(names.len()).unwrap_or(u32::MAX);
        let fits = size(array_size).saturating_add(12) <= limit;
        Self {
            number_of_snapshots,
            snapshots: if fits { names } else { Vec::new() },
            array_size,
        }
    }

    /// Reads the output.
    ///
    /// # Errors
    /// [`Malformed`] for truncated names or over [`MAX_SNAPSHOTS`].
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        const WHAT: &str = "SRV_SNAPSHOT_ARRAY";
        let mut reader = Reader::new(bytes, WHAT);
        let number_of_snapshots = reader.u32()?;
        let returned = size(reader.u32()?);
        let array_size = reader.u32()?;
        if returned > MAX_SNAPSHOTS {
            return Err(reader.malformed());
        }
        let mut snapshots = Vec::new();
        for _ in 0..returned {
            let mut units = Vec::new();
            loop {
                match reader.u16()? {
                    0 => break,
                    unit => units.push(unit),
                }
            }
            snapshots.push(String::from_utf16(&units).map_err(|_| reader.malformed())?);
        }
        Ok(Self {
            number_of_snapshots,
            snapshots,
            array_size,
        })
    }

    /// Appends the output, at least `MIN` bytes.
    pub fn encode(&self, out: &mut BytesMut) {
        let start = out.len();
        out.put_u32_le(self.number_of_snapshots);
        out.put_u32_le(u32::try_from(self.snapshots.len()).unwrap_or(u32::MAX));
        out.put_u32_le(self.array_size);
        for name in &self.snapshots {
            utf16::put(out, name);
            out.put_u16_le(0);
        }
        out.put_u16_le(0);
        let written = out.len() - start;
        out.put_bytes(0, Self::MIN.saturating_sub(written));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_only_when_all_fit() {
        let names = vec!["@GMT-2015.10.31-19.40.30".to_owned(); 2];
        let all = SnapshotArray::fitting(names.clone(), 114);
        assert_eq!(all.snapshots.len(), 2);
        assert_eq!(all.array_size, 102);
        let mut out = BytesMut::new();
        all.encode(&mut out);
        assert_eq!(out.len(), 114);
        assert_eq!(SnapshotArray::read(&out), Ok(all));
        let none = SnapshotArray::fitting(names, 113);
        let mut out = BytesMut::new();
        none.encode(&mut out);
        assert_eq!(&out[..], b"\x02\0\0\0\0\0\0\0\x66\0\0\0\0\0\0\0");
        assert!(SnapshotArray::read(&[1, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 65, 0]).is_err());
    }
}
