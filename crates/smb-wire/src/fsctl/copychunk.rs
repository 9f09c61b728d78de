//! The messages of a copy on the server: SRV_REQUEST_RESUME_KEY and SRV_COPYCHUNK(_WRITE) ([MS-SMB2] 2.2.31.1,
//! 2.2.32.1, 2.2.32.3).
//!
//! The limits are those of Windows; a request that exceeds them is answered INVALID_PARAMETER
//! *with* [`CopyChunkResponse::LIMITS`] as its body ([MS-SMB2] 3.3.5.15.6.2). The decoder reads at
//! most one chunk more than allowed, so that the server can detect the excess without storing all
//! of it.

use bytes::{BufMut, BytesMut};

use crate::codec::{Malformed, Reader, size};
use crate::fscc::record::{Field, records};

/// Maximum number of chunks in a request.
pub const MAX_CHUNKS: u32 = 256;
/// Maximum length of a chunk in bytes.
pub const MAX_CHUNK_BYTES: u32 = 1 << 20;
/// Maximum length of all chunks of a request in bytes.
pub const MAX_COPY_BYTES: u32 = 16 << 20;

/// The key that identifies an open as the source of a copy.
pub type ResumeKey = [u8; 24];

records! {
    /// SRV_COPYCHUNK ([MS-SMB2] 2.2.31.1.1).
    CopyChunk {
        /// The position in the source.
        source_offset: u64;
        /// The position in the target.
        target_offset: u64;
        /// The length in bytes; 0 is refused.
        length: u32, pad 4;
    }

    /// SRV_REQUEST_RESUME_KEY response ([MS-SMB2] 2.2.32.3), with four bytes of context as 3.3.5.15.5 has it.
    RequestResumeKeyResponse {
        /// The key of the open.
        resume_key: ResumeKey, pad 8;
    }

    /// SRV_COPYCHUNK_RESPONSE ([MS-SMB2] 2.2.32.1).
    CopyChunkResponse {
        /// Chunks written entirely, or the limit of chunks.
        chunks_written: u32;
        /// Bytes written of a partial chunk, or the limit of a chunk.
        chunk_bytes_written: u32;
        /// Bytes written in total, or the limit of a request.
        total_bytes_written: u32;
    }
}

impl CopyChunkResponse {
    /// The body of the error response that reports the limits.
    pub const LIMITS: Self = Self {
        chunks_written: MAX_CHUNKS,
        chunk_bytes_written: MAX_CHUNK_BYTES,
        total_bytes_written: MAX_COPY_BYTES,
    };
}

/// SRV_COPYCHUNK_COPY ([MS-SMB2] 2.2.31.1).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CopyChunkCopy {
    /// The source.
    pub source_key: ResumeKey,
    /// Chunks, as counted by the client; `chunks` holds at most [`MAX_CHUNKS`] + 1 of them.
    pub chunk_count: u32,
    /// The chunks to copy.
    pub chunks: Vec<CopyChunk>,
}

impl CopyChunkCopy {
    /// Bytes before the chunks.
    pub const MIN: usize = 32;

    /// Reads the input.
    ///
    /// # Errors
    /// [`Malformed`] when the chunks are fewer than counted.
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes, "SRV_COPYCHUNK_COPY");
        let source_key = reader.array()?;
        let chunk_count = reader.u32()?;
        reader.skip(4)?;
        if size(chunk_count) > reader.rest().len() / CopyChunk::MIN {
            return Err(reader.malformed());
        }
        let chunks = (0..chunk_count.min(MAX_CHUNKS + 1))
            .map(|_| CopyChunk::get(&mut reader))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            source_key,
            chunk_count,
            chunks,
        })
    }

    /// Appends the input.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_slice(&self.source_key);
        out.put_u32_le(self.chunk_count);
        out.put_u32_le(0);
        for chunk in &self.chunks {
            chunk.encode(out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_round_trip() {
        let chunk = CopyChunk {
            source_offset: 1,
            target_offset: 2,
            length: 3,
        };
        let copy = CopyChunkCopy {
            source_key: [9; 24],
            chunk_count: 2,
            chunks: vec![chunk; 2],
        };
        let mut out = BytesMut::new();
        copy.encode(&mut out);
        assert_eq!(out.len(), 32 + 48);
        assert_eq!(CopyChunkCopy::read(&out), Ok(copy));
        assert!(CopyChunkCopy::read(&out[..79]).is_err());
    }

    #[test]
    fn excess_chunks_are_counted_but_not_stored() {
        let mut bytes = vec![0u8; 32 + 24 * 1000];
        bytes[24..28].copy_from_slice(&1000u32.to_le_bytes());
        let copy = CopyChunkCopy::read(&bytes).unwrap();
        assert_eq!(copy.chunk_count, 1000);
        assert_eq!(copy.chunks.len(), 257);
        bytes[24..28].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(CopyChunkCopy::read(&bytes).is_err());
    }
}
