//! The only SMB1 message that a server of SMB2 still reads: a NEGOTIATE that offers SMB2 among the
//! old dialects ([MS-SMB2] 3.3.5.3, layout of [MS-CIFS] 2.2.4.52).
//!
//! Nothing else of SMB1 is supported. The answer is an SMB2 NEGOTIATE response.

use bytes::{BufMut, BytesMut};

use crate::codec::{Malformed, Patch, Reader, offset_u16};

/// The first four bytes of an SMB1 message: FF 'S' 'M' 'B'.
pub const PROTOCOL_ID: [u8; 4] = *b"\xffSMB";

/// The dialect string that offers SMB 2.0.2 alone.
pub const DIALECT_SMB_2_002: &[u8] = b"SMB 2.002";
/// The dialect string that offers SMB 2.1 or later, to be negotiated by a second NEGOTIATE.
pub const DIALECT_SMB_2_WILDCARD: &[u8] = b"SMB 2.???";

const COMMAND_NEGOTIATE: u8 = 0x72;
const HEADER_SIZE: usize = 32;
/// BufferFormat of a dialect: a string that ends with NUL.
const DIALECT_FORMAT: u8 = 0x02;

/// An SMB1 NEGOTIATE request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Smb1NegotiateRequest<'a> {
    /// The dialects, each a format byte, a string and a NUL.
    dialects: &'a [u8],
}

impl<'a> Smb1NegotiateRequest<'a> {
    /// Reads the request, from its SMB1 header on.
    ///
    /// # Errors
    /// [`Malformed`] when the message is not an SMB1 NEGOTIATE, or its dialects are outside the message or not strings.
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(message, "SMB1 NEGOTIATE request");
        if reader.array::<4>()? != PROTOCOL_ID || reader.u8()? != COMMAND_NEGOTIATE {
            return Err(reader.malformed());
        }
        reader.skip(HEADER_SIZE - 5)?;
        let word_count = reader.u8()?;
        reader.skip(usize::from(word_count) * 2)?;
        let byte_count = reader.u16()?;
        let dialects = reader.take(byte_count.into())?;
        let request = Self { dialects };
        let is_text = |dialect: &[u8]| dialect.first() == Some(&DIALECT_FORMAT);
        if dialects.last().is_some_and(|end| *end != 0) || !request.raw().all(is_text) {
            return Err(reader.malformed());
        }
        Ok(request)
    }

    fn raw(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let strings = self.dialects.strip_suffix(&[0]).into_iter();
        strings.flat_map(|strings| strings.split(|byte| *byte == 0))
    }

    /// The dialect strings in the order offered.
    pub fn dialects(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.raw()
            .filter_map(<[u8]>::split_first)
            .map(|(_, dialect)| dialect)
    }

    /// Returns whether "SMB 2.???" is offered.
    pub fn offers_wildcard(&self) -> bool {
        self.dialects()
            .any(|dialect| dialect == DIALECT_SMB_2_WILDCARD)
    }

    /// Returns whether "SMB 2.002" is offered.
    pub fn offers_smb_2_002(&self) -> bool {
        self.dialects().any(|dialect| dialect == DIALECT_SMB_2_002)
    }

    /// Appends a request that offers `dialects`, which must not contain NUL.
    pub fn encode(out: &mut BytesMut, dialects: &[&[u8]]) {
        // Flags: case-insensitive, canonical paths. Flags2: Unicode, NT status, long names.
        const FLAGS: u8 = 0x18;
        const FLAGS2: u16 = 0xc801;
        out.put_slice(&PROTOCOL_ID);
        out.put_u8(COMMAND_NEGOTIATE);
        out.put_u32_le(0);
        out.put_u8(FLAGS);
        out.put_u16_le(FLAGS2);
        out.put_bytes(0, 20);
        out.put_u8(0);
        let len = Patch::u16(out);
        let start = out.len();
        for dialect in dialects {
            out.put_u8(DIALECT_FORMAT);
            out.put_slice(dialect);
            out.put_u8(0);
        }
        len.set_u16(out, offset_u16(out, start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(dialects: &[&[u8]]) -> Vec<u8> {
        let mut out = BytesMut::new();
        Smb1NegotiateRequest::encode(&mut out, dialects);
        out.to_vec()
    }

    #[test]
    fn dialects_are_read_in_order() {
        let all: [&[u8]; 3] = [b"NT LM 0.12", DIALECT_SMB_2_002, DIALECT_SMB_2_WILDCARD];
        let bytes = message(&all);
        let request = Smb1NegotiateRequest::read(&bytes).unwrap();
        assert_eq!(request.dialects().collect::<Vec<_>>(), all);
        assert!(request.offers_wildcard() && request.offers_smb_2_002());
        let bytes = message(&[b"NT LM 0.12", b"SMB 2.00"]);
        let request = Smb1NegotiateRequest::read(&bytes).unwrap();
        assert!(!request.offers_wildcard() && !request.offers_smb_2_002());
        let bytes = message(&[]);
        assert_eq!(
            Smb1NegotiateRequest::read(&bytes)
                .unwrap()
                .dialects()
                .count(),
            0
        );
    }

    #[test]
    fn captured_both_ways() {
        // impacket 0.13.1 to Samba, November 2026.
        let bytes = hex_literal::hex!(
            "ff534d4272000000001801c8000000000000000000000000ffff000000000000002200
             024e54204c4d20302e31320002534d4220322e3030320002534d4220322e3f3f3f00"
        );
        let request = Smb1NegotiateRequest::read(&bytes).unwrap();
        let dialects: Vec<_> = request.dialects().collect();
        assert_eq!(
            dialects,
            [
                &b"NT LM 0.12"[..],
                DIALECT_SMB_2_002,
                DIALECT_SMB_2_WILDCARD
            ]
        );
        let mut written = message(&dialects);
        // The sender chooses TreeId and ProcessId.
        written[24..28].copy_from_slice(&bytes[24..28]);
        assert_eq!(written, bytes);
    }

    #[test]
    fn other_messages_are_rejected() {
        let good = message(&[DIALECT_SMB_2_002]);
        for len in 0..good.len() {
            assert!(Smb1NegotiateRequest::read(&good[..len]).is_err(), "{len}");
        }
        for (at, value) in [(0, 0xfe), (4, 0x73), (35, 0x03), (good.len() - 1, b'x')] {
            let mut bad = good.clone();
            bad[at] = value;
            assert!(Smb1NegotiateRequest::read(&bad).is_err(), "byte {at}");
        }
    }
}
