//! The header of an encrypted message ([MS-SMB2] 2.2.41): 52 bytes before the ciphertext.
//!
//! Encryption and decryption are elsewhere; this file defines which bytes are authenticated but not
//! encrypted ([`TransformHeader::AAD`]) and stores the nonce as 16 bytes, of which the cipher uses
//! a part.

use core::ops::Range;

use bytes::BufMut;

use crate::codec::{Malformed, Reader};
use crate::fscc::record::{Field, record};
use crate::ids::SessionId;

/// The first four bytes of an encrypted message: FD 'S' 'M' 'B'.
pub const PROTOCOL_ID: [u8; 4] = *b"\xfdSMB";

record! {
    /// The transform header, behind its protocol id.
    TransformHeader {
        /// The authentication tag.
        signature: [u8; 16];
        /// The nonce: CCM uses 11 bytes, GCM 12, the rest is zero.
        nonce: [u8; 16];
        /// Length of the clear message, in bytes.
        original_message_size: u32, pad 2;
        /// Flags (3.1.1) or EncryptionAlgorithm (3.0, 3.0.2): always [`TransformHeader::ENCRYPTED`].
        flags: u16;
        /// The session whose keys are used.
        session_id: SessionId;
    }
}

impl TransformHeader {
    /// Length on the wire.
    pub const SIZE: usize = 52;
    /// The only legal value of `flags`.
    pub const ENCRYPTED: u16 = 0x0001;
    /// The position of the tag.
    pub const SIGNATURE: Range<usize> = 4..20;
    /// The bytes of the header that are authenticated: from the nonce to the end.
    pub const AAD: Range<usize> = 20..52;

    /// Reads the header at the start of `message`.
    ///
    /// # Errors
    /// [`Malformed`] when there are fewer than 52 bytes, or they are not a transform header.
    pub fn read(message: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(message, "transform header");
        if reader.array::<4>()? != PROTOCOL_ID {
            return Err(reader.malformed());
        }
        Field::get(&mut reader)
    }

    /// Returns the authenticated bytes of the encoded header at the start of `message`.
    ///
    /// # Errors
    /// [`Malformed`] when there are fewer than 52 bytes.
    pub fn aad(message: &[u8]) -> Result<&[u8], Malformed> {
        message
            .get(Self::AAD)
            .ok_or(Malformed::new("transform header"))
    }

    /// The header as bytes.
    pub fn to_bytes(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let mut out = bytes.as_mut_slice();
        out.put_slice(&PROTOCOL_ID);
        self.put(&mut out);
        bytes
    }

    /// Writes the tag into the encoded header at the start of `message`; a shorter message is not changed.
    pub fn patch_signature(message: &mut [u8], signature: &[u8; 16]) {
        if let Some(place) = message.get_mut(Self::SIGNATURE) {
            place.copy_from_slice(signature);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hex_literal::hex;

    #[test]
    fn the_fields_have_the_specified_positions() {
        let header = TransformHeader {
            signature: [0xaa; 16],
            nonce: [0xbb; 16],
            original_message_size: 0x0102_0304,
            flags: TransformHeader::ENCRYPTED,
            session_id: SessionId(0x1122_3344_5566_7788),
        };
        let bytes = hex!(
            "fd534d42 aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb
             04030201 0000 0100 8877665544332211"
        );
        assert_eq!(header.to_bytes()[..], bytes);
        assert_eq!(TransformHeader::read(&bytes), Ok(header));
        assert_eq!(TransformHeader::aad(&bytes), Ok(&bytes[20..]));
        for len in 0..bytes.len() {
            assert!(TransformHeader::read(&bytes[..len]).is_err());
        }
        let mut patched = bytes;
        TransformHeader::patch_signature(&mut patched, &[1; 16]);
        assert_eq!(TransformHeader::read(&patched).unwrap().signature, [1; 16]);
    }

    #[test]
    fn captured_both_ways() {
        // smbtorture to Samba 4.17.12, AES-128-GCM, November 2026.
        let bytes = hex!(
            "fd534d42 3d8b439b0f438378e2c797081bef334b
             0700000000000000bd07f75800000000 44000000 0000 0100 bf13edc300000000"
        );
        let header = TransformHeader::read(&bytes).unwrap();
        assert_eq!(header.to_bytes()[..], bytes);
        assert_eq!(header.original_message_size, 68);
        assert_eq!(header.nonce[12..], [0; 4]);
        assert_eq!(header.session_id, SessionId(0xc3ed_13bf));
    }

    #[test]
    fn another_protocol_is_refused() {
        assert!(TransformHeader::read(&[0xfe; 52]).is_err());
    }
}
