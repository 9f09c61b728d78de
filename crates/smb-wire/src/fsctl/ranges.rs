//! Lists of ranges of a file, as in QUERY_ALLOCATED_RANGES ([MS-FSCC] 2.3.51, 2.3.52).
//!
//! The server checks signs and overlaps.

use bytes::BytesMut;

use crate::codec::Malformed;
use crate::fscc::record::records;

records! {
    /// FILE_ALLOCATED_RANGE_BUFFER: the queried range, and each range of the answer.
    AllocatedRange {
        /// The position of the first byte.
        file_offset: i64;
        /// The length in bytes.
        length: i64;
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
}
