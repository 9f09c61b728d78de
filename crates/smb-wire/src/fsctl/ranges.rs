//! Lists of ranges: QUERY_ALLOCATED_RANGES, FILE_LEVEL_TRIM, QUERY_FILE_REGIONS
//! ([MS-FSCC] 2.3.13, 2.3.51, 2.3.52, 2.3.55, 2.3.56).
//!
//! Counts are checked against the length of the input; the server checks signs and overlaps.

use bytes::{BufMut, BytesMut};

use crate::codec::{Malformed, Reader, size};
use crate::fscc::record::{Field, records};

/// Maximum number of ranges that are read from a trim request.
pub const MAX_TRIM_RANGES: usize = 4_096;

records! {
    /// FILE_ALLOCATED_RANGE_BUFFER: the queried range, and each range of the answer.
    AllocatedRange {
        /// The position of the first byte.
        file_offset: i64;
        /// The length in bytes.
        length: i64;
    }

    /// FILE_LEVEL_TRIM_OUTPUT.
    FileLevelTrimOutput {
        /// Number of ranges processed.
        num_ranges_processed: u32;
    }

    /// FILE_REGION_INPUT.
    FileRegionInput {
        /// The position of the first byte.
        file_offset: i64;
        /// The length in bytes.
        length: i64;
        /// 1 valid in the cache, 2 valid on disk.
        desired_usage: u32, pad 4;
    }

    /// FILE_REGION_INFO.
    FileRegion {
        /// The position of the first byte.
        file_offset: i64;
        /// The length in bytes.
        length: i64;
        /// 0 if not valid, else the requested usage.
        desired_usage: u32, pad 4;
    }
}

/// Reads the ranges of an answer.
///
/// # Errors
/// [`Malformed`] for a truncated range.
pub fn read_allocated_ranges(bytes: &[u8]) -> Result<Vec<AllocatedRange>, Malformed> {
    bytes
        .chunks(AllocatedRange::MIN)
        .map(AllocatedRange::read)
        .collect()
}

/// Appends as many ranges as fit into `limit` bytes; returns their number.
pub fn encode_allocated_ranges(
    ranges: &[AllocatedRange],
    limit: usize,
    out: &mut BytesMut,
) -> usize {
    let fitting = ranges.len().min(limit / AllocatedRange::MIN);
    for range in ranges.iter().take(fitting) {
        range.encode(out);
    }
    fitting
}

/// FILE_LEVEL_TRIM: offsets and lengths in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileLevelTrim {
    /// Key of byte-range locks; 0.
    pub key: u32,
    /// Position and length of each range.
    pub ranges: Vec<(u64, u64)>,
}

impl FileLevelTrim {
    /// Bytes before the ranges.
    pub const MIN: usize = 8;

    /// Reads the input.
    ///
    /// # Errors
    /// [`Malformed`] if there are fewer ranges than announced, or over [`MAX_TRIM_RANGES`].
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes, "FILE_LEVEL_TRIM");
        let key = reader.u32()?;
        let count = size(reader.u32()?);
        if count > MAX_TRIM_RANGES || count > reader.rest().len() / 16 {
            return Err(reader.malformed());
        }
        let ranges = (0..count)
            .map(|_| Ok((reader.u64()?, reader.u64()?)))
            .collect::<Result<_, _>>()?;
        Ok(Self { key, ranges })
    }

    /// Appends the input.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u32_le(self.key);
        out.put_u32_le(u32::try_from(self.ranges.len()).unwrap_or(u32::MAX));
        for (offset, length) in &self.ranges {
            out.put_u64_le(*offset);
            out.put_u64_le(*length);
        }
    }
}

/// FILE_REGION_OUTPUT.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileRegionOutput {
    /// Total number of regions.
    pub total_region_entry_count: u32,
    /// The regions of this answer.
    pub regions: Vec<FileRegion>,
}

impl FileRegionOutput {
    /// Bytes before the regions.
    pub const MIN: usize = 16;

    /// Reads the output.
    ///
    /// # Errors
    /// [`Malformed`] if there are fewer regions than announced.
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes, "FILE_REGION_OUTPUT");
        reader.skip(4)?;
        let total_region_entry_count = reader.u32()?;
        let count = size(reader.u32()?);
        reader.skip(4)?;
        if count > reader.rest().len() / FileRegion::MIN {
            return Err(reader.malformed());
        }
        let regions = (0..count)
            .map(|_| FileRegion::get(&mut reader))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            total_region_entry_count,
            regions,
        })
    }

    /// Appends the output.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u32_le(0);
        out.put_u32_le(self.total_region_entry_count);
        out.put_u32_le(u32::try_from(self.regions.len()).unwrap_or(u32::MAX));
        out.put_u32_le(0);
        for region in &self.regions {
            region.encode(out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_round_trip_within_the_limit() {
        let ranges = [AllocatedRange {
            file_offset: 1,
            length: 2,
        }; 3];
        let mut out = BytesMut::new();
        assert_eq!(encode_allocated_ranges(&ranges, 40, &mut out), 2);
        assert_eq!(read_allocated_ranges(&out).as_deref(), Ok(&ranges[..2]));
        assert!(read_allocated_ranges(&out[..31]).is_err());
    }

    #[test]
    fn untrusted_counts_are_checked() {
        let trim = FileLevelTrim {
            key: 0,
            ranges: vec![(0, 4096), (8192, 1)],
        };
        let mut out = BytesMut::new();
        trim.encode(&mut out);
        assert_eq!(FileLevelTrim::read(&out), Ok(trim));
        out[4] = 3;
        assert!(FileLevelTrim::read(&out).is_err());
        assert!(FileRegionOutput::read(&[0xff; 16]).is_err());
    }

    #[test]
    fn regions_round_trip() {
        let output = FileRegionOutput {
            total_region_entry_count: 1,
            regions: vec![FileRegion {
                file_offset: 0,
                length: 9,
                desired_usage: 1,
            }],
        };
        let mut out = BytesMut::new();
        output.encode(&mut out);
        assert_eq!(out.len(), 40);
        assert_eq!(FileRegionOutput::read(&out), Ok(output));
    }
}
