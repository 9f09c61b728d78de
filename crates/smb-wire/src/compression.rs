//! The headers of compressed messages of 3.1.1 ([MS-SMB2] 2.2.42).
//!
//! Both forms begin with the same fields; the CHAINED flag, which has the same position in both,
//! distinguishes them. Nothing is decompressed here, and sizes claimed by the sender are only
//! reported: the caller compares them with its limits before it allocates.

use bytes::{BufMut, BytesMut};

use crate::codec::{Malformed, Patch, Reader, fitting_u32, offset_u32, size};
use crate::negotiate_context::CompressionAlgorithm;

/// The first four bytes of a compressed message: FC 'S' 'M' 'B'.
pub const PROTOCOL_ID: [u8; 4] = *b"\xfcSMB";

/// Length of the unchained header.
pub const UNCHAINED_SIZE: usize = 16;
/// Length of the chained header before its first payload.
pub const CHAINED_SIZE: usize = 8;

const FLAG_NONE: u16 = 0x0000;
const FLAG_CHAINED: u16 = 0x0001;

/// A parsed compressed message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompressedMessage<'a> {
    /// One compressed segment after a clear one ([MS-SMB2] 2.2.42.1).
    Unchained {
        /// Length of the compressed segment after decompression, in bytes.
        original_size: u32,
        /// The compression algorithm.
        algorithm: CompressionAlgorithm,
        /// The beginning of the message, which is not compressed.
        clear: &'a [u8],
        /// The compressed rest.
        data: &'a [u8],
    },
    /// A sequence of payloads ([MS-SMB2] 2.2.42.2).
    Chained {
        /// Length of the whole message after decompression, in bytes.
        original_size: u32,
        /// The payloads.
        payloads: ChainedPayloads<'a>,
    },
}

impl<'a> CompressedMessage<'a> {
    /// Parses `message`; the payloads of the chained form are not parsed.
    ///
    /// # Errors
    /// [`Malformed`] when it is too short or not a compressed message.
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(message, "compression transform header");
        if reader.array::<4>()? != PROTOCOL_ID {
            return Err(reader.malformed());
        }
        let original_size = reader.u32()?;
        let payloads = ChainedPayloads {
            rest: reader.rest(),
        };
        let algorithm = CompressionAlgorithm(reader.u16()?);
        let flags = reader.u16()?;
        let offset = size(reader.u32()?);
        if flags == FLAG_CHAINED {
            return Ok(Self::Chained {
                original_size,
                payloads,
            });
        }
        let (clear, data) = reader
            .rest()
            .split_at_checked(offset)
            .ok_or(reader.malformed())?;
        Ok(Self::Unchained {
            original_size,
            algorithm,
            clear,
            data,
        })
    }
}

/// One payload of the chained form ([MS-SMB2] 2.2.42.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainedPayload<'a> {
    /// The compression algorithm; NONE for bytes as they are.
    pub algorithm: CompressionAlgorithm,
    /// Length after decompression, in bytes; present for some algorithms only.
    pub original_size: Option<u32>,
    /// The data, without the field above.
    pub data: &'a [u8],
}

/// Returns whether payloads of this algorithm contain their original size: LZNT1, LZ77,
/// LZ77+Huffman, LZ4.
#[must_use]
pub fn has_original_size(algorithm: CompressionAlgorithm) -> bool {
    matches!(
        algorithm,
        CompressionAlgorithm::LZNT1
            | CompressionAlgorithm::LZ77
            | CompressionAlgorithm::LZ77_HUFFMAN
            | CompressionAlgorithm::LZ4
    )
}

impl<'a> ChainedPayload<'a> {
    /// Parses the payload as a pattern.
    ///
    /// # Errors
    /// [`Malformed`] when the algorithm is another or the length is not eight.
    pub fn pattern(&self) -> Result<PatternV1, Malformed> {
        let mut reader = Reader::new(self.data, "pattern payload");
        if self.algorithm != CompressionAlgorithm::PATTERN_V1 || self.data.len() != PatternV1::SIZE
        {
            return Err(reader.malformed());
        }
        let pattern = reader.u8()?;
        reader.skip(3)?;
        Ok(PatternV1 {
            pattern,
            repetitions: reader.u32()?,
        })
    }
}

/// A byte repeated ([MS-SMB2] 2.2.42.2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PatternV1 {
    /// The byte.
    pub pattern: u8,
    /// The number of repetitions.
    pub repetitions: u32,
}

impl PatternV1 {
    /// Length on the wire.
    pub const SIZE: usize = 8;

    /// The payload's data.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let [a, b, c, d] = self.repetitions.to_le_bytes();
        [self.pattern, 0, 0, 0, a, b, c, d]
    }
}

/// Iterator over the payloads of the chained form; ends after the first malformed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainedPayloads<'a> {
    rest: &'a [u8],
}

impl<'a> ChainedPayloads<'a> {
    fn payload(&mut self) -> Result<ChainedPayload<'a>, Malformed> {
        let mut reader = Reader::new(self.rest, "chained payload");
        let algorithm = CompressionAlgorithm(reader.u16()?);
        reader.skip(2)?;
        let len = size(reader.u32()?);
        let mut payload = Reader::new(reader.take(len)?, "chained payload");
        let original_size = if has_original_size(algorithm) {
            Some(payload.u32()?)
        } else {
            None
        };
        self.rest = reader.rest();
        Ok(ChainedPayload {
            algorithm,
            original_size,
            data: payload.rest(),
        })
    }
}

impl<'a> Iterator for ChainedPayloads<'a> {
    type Item = Result<ChainedPayload<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let payload = self.payload();
        if payload.is_err() {
            self.rest = &[];
        }
        Some(payload)
    }
}

/// Appends an unchained message: header, clear part, compressed part.
pub fn encode_unchained(
    out: &mut BytesMut,
    original_size: u32,
    algorithm: CompressionAlgorithm,
    clear: &[u8],
    data: &[u8],
) {
    let (clear, offset) = fitting_u32(clear);
    out.put_slice(&PROTOCOL_ID);
    out.put_u32_le(original_size);
    out.put_u16_le(algorithm.0);
    out.put_u16_le(FLAG_NONE);
    out.put_u32_le(offset);
    out.put_slice(clear);
    out.put_slice(data);
}

/// Writes a chained message payload by payload.
#[derive(Debug)]
pub struct ChainedWriter<'a> {
    out: &'a mut BytesMut,
    flags: u16,
}

impl<'a> ChainedWriter<'a> {
    /// Begins a message that has `original_size` bytes after decompression.
    pub fn new(out: &'a mut BytesMut, original_size: u32) -> Self {
        out.put_slice(&PROTOCOL_ID);
        out.put_u32_le(original_size);
        Self {
            out,
            flags: FLAG_CHAINED,
        }
    }

    /// Appends a payload. The original size is written when the algorithm has one.
    pub fn push(&mut self, payload: ChainedPayload<'_>) {
        self.out.put_u16_le(payload.algorithm.0);
        // [MS-SMB2] 2.2.42.2.1: only the first payload header has the flag.
        self.out
            .put_u16_le(core::mem::replace(&mut self.flags, FLAG_NONE));
        let len = Patch::u32(self.out);
        let start = self.out.len();
        if has_original_size(payload.algorithm) {
            self.out.put_u32_le(payload.original_size.unwrap_or(0));
        }
        self.out.put_slice(payload.data);
        let written = offset_u32(self.out, start);
        len.set_u32(self.out, written);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::hex;

    #[test]
    fn unchained_both_ways() {
        let mut out = BytesMut::new();
        encode_unchained(&mut out, 9, CompressionAlgorithm::LZ77, b"clear", b"zz");
        let bytes = hex("fc534d42 09000000 0200 0000 05000000 636c656172 7a7a");
        assert_eq!(&out[..], bytes);
        assert_eq!(
            CompressedMessage::read(&bytes),
            Ok(CompressedMessage::Unchained {
                original_size: 9,
                algorithm: CompressionAlgorithm::LZ77,
                clear: b"clear",
                data: b"zz",
            })
        );
        let mut outside = bytes;
        outside[12] = 8;
        assert!(CompressedMessage::read(&outside).is_err());
    }

    #[test]
    fn chained_both_ways() {
        let parts = [
            ChainedPayload {
                algorithm: CompressionAlgorithm::NONE,
                original_size: None,
                data: b"head",
            },
            ChainedPayload {
                algorithm: CompressionAlgorithm::LZ4,
                original_size: Some(64),
                data: b"xy",
            },
            ChainedPayload {
                algorithm: CompressionAlgorithm::PATTERN_V1,
                original_size: None,
                data: &PatternV1 {
                    pattern: 7,
                    repetitions: 32,
                }
                .to_bytes(),
            },
        ];
        let mut out = BytesMut::new();
        let mut writer = ChainedWriter::new(&mut out, 100);
        parts.into_iter().for_each(|part| writer.push(part));
        let bytes = hex("fc534d42 64000000
            0000 0100 04000000 68656164
            0500 0000 06000000 40000000 7879
            0400 0000 08000000 07000000 20000000");
        assert_eq!(&out[..], bytes);
        let Ok(CompressedMessage::Chained {
            original_size: 100,
            payloads,
        }) = CompressedMessage::read(&bytes)
        else {
            panic!("not chained");
        };
        let read: Vec<_> = payloads.collect::<Result<_, _>>().unwrap();
        assert_eq!(read, parts);
        assert_eq!(
            read[2].pattern(),
            Ok(PatternV1 {
                pattern: 7,
                repetitions: 32
            })
        );
        assert!(read[0].pattern().is_err());

        let mut cut = ChainedPayloads {
            rest: &bytes[8..bytes.len() - 1],
        };
        assert_eq!(cut.by_ref().filter(Result::is_err).count(), 1);
        assert_eq!(cut.next(), None);
    }
}
