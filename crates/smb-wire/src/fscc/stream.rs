//! FileStreamInformation: the list of a file's streams ([MS-FSCC] 2.4.49).
//!
//! Names contain colons and the type, `::$DATA` and `:name:$DATA`. A list that does not fit is
//! truncated between entries, with STATUS_BUFFER_OVERFLOW.

use bytes::{BufMut, BytesMut};

use super::record::{Chain, ChainWriter};
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

/// Packs streams into a buffer of the client's length.
#[derive(Debug)]
pub struct StreamWriter(ChainWriter);

impl StreamWriter {
    /// A list of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self(ChainWriter::new(limit, 8))
    }

    /// Appends a stream. Returns `false`, and appends nothing, if it does not fit.
    #[must_use]
    pub fn push(&mut self, stream: &StreamEntry) -> bool {
        self.0.push(|out| {
            out.put_u32_le(0);
            out.put_u32_le(u32::try_from(utf16::len_bytes(&stream.name)).unwrap_or(u32::MAX));
            out.put_u64_le(stream.size);
            out.put_u64_le(stream.allocation_size);
            utf16::put(out, &stream.name);
        })
    }

    /// The list.
    #[must_use]
    pub fn finish(self) -> BytesMut {
        self.0.finish()
    }
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
        let mut writer = StreamWriter::new(usize::MAX);
        assert!(streams.iter().all(|stream| writer.push(stream)));
        let out = writer.finish();
        assert_eq!(read_stream_list(&out).as_deref(), Ok(&streams[..]));
        let mut writer = StreamWriter::new(out.len() - 1);
        let fitted = streams.iter().take_while(|s| writer.push(s)).count();
        assert_eq!(fitted, 2);
        let out = writer.finish();
        assert_eq!(read_stream_list(&out).as_deref(), Ok(&streams[..2]));
    }
}
