//! FileStreamInformation: the list of a file's streams ([MS-FSCC] 2.4.49).
//!
//! Names contain colons and the type, `::$DATA` and `:name:$DATA`. A list that does not fit is
//! truncated between entries, with STATUS_BUFFER_OVERFLOW.

use bytes::{BufMut, BytesMut};

use super::record::{Chain, encode_chain};
use crate::codec::{Malformed, Reader, size};
use crate::utf16;

/// One stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StreamEntry {
    /// `:name:$DATA`.
    pub name: String,
    /// Length in bytes.
    pub size: u64,
    /// Bytes reserved on disk.
    pub allocation_size: u64,
}

impl StreamEntry {
    /// Smallest output buffer of a query (sizeof the structure with one unit of name).
    pub const MIN: usize = 32;

    /// Bytes before the name.
    pub const FIXED: usize = 24;
}

/// Encodes as many of `streams` as fit into a list of at most `limit` bytes; returns the list and their number.
pub fn encode_stream_list(streams: &[StreamEntry], limit: usize) -> (BytesMut, usize) {
    encode_chain(streams, limit, 8, |stream, out| {
        out.put_u32_le(u32::try_from(utf16::len_bytes(&stream.name)).unwrap_or(u32::MAX));
        out.put_u64_le(stream.size);
        out.put_u64_le(stream.allocation_size);
        utf16::put(out, &stream.name);
    })
}

/// Reads a list of streams.
///
/// # Errors
/// [`Malformed`] for a chain that exceeds the buffer or a name that is not valid UTF-16.
pub fn read_stream_list(bytes: &[u8]) -> Result<Vec<StreamEntry>, Malformed> {
    const WHAT: &str = "FileStreamInformation";
    Chain::new(bytes, WHAT)
        .map(|entry| {
            let mut reader = Reader::new(entry?, WHAT);
            reader.skip(4)?;
            let len = size(reader.u32()?);
            Ok(StreamEntry {
                size: reader.u64()?,
                allocation_size: reader.u64()?,
                name: utf16::decode(reader.take(len)?, WHAT)?,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_round_trip_and_are_truncated_between_entries() {
        let streams: Vec<_> = ["::$DATA", ":x:$DATA", ":longer name:$DATA"]
            .iter()
            .map(|name| StreamEntry {
                name: (*name).to_owned(),
                size: 7,
                allocation_size: 4096,
            })
            .collect();
        let (out, fitted) = encode_stream_list(&streams, usize::MAX);
        assert_eq!(fitted, 3);
        assert_eq!(read_stream_list(&out).as_deref(), Ok(&streams[..]));
        let (out, fitted) = encode_stream_list(&streams, out.len() - 1);
        assert_eq!(fitted, 2);
        assert_eq!(read_stream_list(&out).as_deref(), Ok(&streams[..2]));
    }
}
