//! The PDUs of connection-oriented DCE/RPC without their negotiation: common header, request,
//! response, fault (C706 12.6.3 and 12.6.4).
//!
//! Only little-endian data are understood (all Windows and Samba clients send them); another data
//! representation is malformed. Authentication trailers are cut off and not checked: the SMB
//! session below is already authenticated and protects the pipe.

use bytes::{BufMut, BytesMut};

use crate::codec::{Malformed, Reader};
use crate::fscc::record::{Field, record};
use crate::ids::Guid;

/// Longest fragment sent or accepted, as Windows offers.
pub const MAX_FRAGMENT_BYTES: u16 = 4_280;

/// Shortest fragment every peer must accept (C706 12.6.3.1, MustRecvFragSize).
pub const MIN_FRAGMENT_BYTES: u16 = 1_432;

enum_of_the_wire! {
    /// Kind of a PDU.
    pub struct PduType(u8) {
        REQUEST = 0,
        RESPONSE = 2,
        FAULT = 3,
        BIND = 11,
        BIND_ACK = 12,
        BIND_NAK = 13,
        ALTER_CONTEXT = 14,
        ALTER_CONTEXT_RESP = 15,
        AUTH3 = 16,
        SHUTDOWN = 17,
        CO_CANCEL = 18,
        ORPHANED = 19,
    }
}

flags_of_the_wire! {
    /// Flags of a PDU.
    pub struct PfcFlags(u8) {
        FIRST_FRAG = 0x01,
        LAST_FRAG = 0x02,
        DID_NOT_EXECUTE = 0x20,
        OBJECT_UUID = 0x80,
    }
}

impl PfcFlags {
    /// A PDU in one piece.
    pub const WHOLE: Self = Self(0x03);
}

enum_of_the_wire! {
    /// The reason why a call failed before or in its stub (C706 appendix E, [MS-ERREF] 2.2).
    pub struct FaultStatus(u32) {
        /// The interface has no such operation.
        OP_RNG_ERROR = 0x1c01_0002,
        /// There is no such presentation context.
        UNK_IF = 0x1c01_0003,
        PROTO_ERROR = 0x1c01_000b,
        /// The context handle is unknown.
        CONTEXT_MISMATCH = 0x1c00_001a,
        REMOTE_NO_MEMORY = 0x1c00_001b,
        ACCESS_DENIED = 0x0000_0005,
        /// The stub does not match the operation.
        BAD_STUB_DATA = 0x0000_06f7,
    }
}

impl From<Malformed> for FaultStatus {
    fn from(_: Malformed) -> Self {
        Self::BAD_STUB_DATA
    }
}

record! {
    /// The header of every PDU.
    PduHeader {
        /// Always 5.
        version: u8;
        /// 0 or 1 in what is read, 0 in what is sent.
        minor_version: u8;
        /// Kind.
        pdu_type: PduType;
        /// Flags.
        flags: PfcFlags;
        /// The data representation: integers little-endian, text ASCII, floats IEEE; the rest is reserved.
        representation: [u8; 4];
        /// Length of the PDU in bytes, including this header.
        frag_length: u16;
        /// Length in bytes of the authentication value at the end, without its 8-byte trailer.
        auth_length: u16;
        /// The call.
        call_id: u32;
    }
}

impl PduHeader {
    /// Bytes on the wire.
    pub const SIZE: usize = <Self as Field>::SIZE;

    const VERSION: u8 = 5;
    const LITTLE_ENDIAN: u8 = 0x10;
    /// The position of `frag_length`.
    const FRAG_LENGTH_AT: usize = 8;

    /// A header for a PDU in one piece; the length is filled in by [`PduHeader::encode`].
    pub const fn new(pdu_type: PduType, flags: PfcFlags, call_id: u32) -> Self {
        Self {
            version: Self::VERSION,
            minor_version: 0,
            pdu_type,
            flags,
            representation: [Self::LITTLE_ENDIAN, 0, 0, 0],
            frag_length: 0,
            auth_length: 0,
            call_id,
        }
    }

    /// Reads the header and the body of the first PDU in `bytes`; also returns the bytes behind it. The authentication
    /// trailer is not part of the body.
    ///
    /// # Errors
    /// [`Malformed`] for another version or data representation, a length out of range, or fewer bytes than announced.
    pub fn read(bytes: &[u8]) -> Result<(Self, &[u8], &[u8]), Malformed> {
        let mut reader = Reader::new(bytes, "RPC PDU");
        let header = Self::get(&mut reader)?;
        let malformed = reader.malformed();
        let little_endian = header.representation.first() == Some(&Self::LITTLE_ENDIAN);
        if header.version != Self::VERSION || header.minor_version > 1 || !little_endian {
            return Err(malformed);
        }
        let frag = usize::from(header.frag_length);
        let body = bytes.get(Self::SIZE..frag).ok_or(malformed)?;
        let rest = bytes.get(frag..).unwrap_or(&[]);
        let trailer = match usize::from(header.auth_length) {
            0 => 0,
            len => len + 8,
        };
        let end = body.len().checked_sub(trailer).ok_or(malformed)?;
        Ok((header, body.get(..end).ok_or(malformed)?, rest))
    }

    /// Returns the length of the PDU that begins with `bytes`, once its length field is there. It
    /// is read in the byte order that the PDU names (C706 14.1), although [`PduHeader::read`]
    /// accepts only one order: the end of a PDU has to be found to answer it.
    pub fn frag_length_of(bytes: &[u8]) -> Option<usize> {
        let length = bytes.get(8..10)?.try_into().ok()?;
        Some(usize::from(if Self::is_big_endian(bytes) {
            u16::from_be_bytes(length)
        } else {
            u16::from_le_bytes(length)
        }))
    }

    /// Returns kind and call of the PDU that begins with `bytes`, once its header is there, in any
    /// byte order; a fault has to name them.
    pub fn call_of(bytes: &[u8]) -> Option<(PduType, u32)> {
        let call_id = bytes.get(12..16)?.try_into().ok()?;
        let call_id = if Self::is_big_endian(bytes) {
            u32::from_be_bytes(call_id)
        } else {
            u32::from_le_bytes(call_id)
        };
        Some((PduType(*bytes.get(2)?), call_id))
    }

    /// Evaluates the integer format of the data representation label: the high half of its first byte.
    fn is_big_endian(bytes: &[u8]) -> bool {
        bytes.get(4).is_some_and(|format| format >> 4 == 0)
    }

    /// Appends the PDU: the header with the final length, and the body that `body` writes.
    pub fn encode(&self, out: &mut BytesMut, body: impl FnOnce(&mut BytesMut)) {
        let start = out.len();
        self.put(out);
        body(out);
        let length = crate::codec::offset_u16(out, start);
        crate::codec::Patch::at(start + Self::FRAG_LENGTH_AT).set_u16(out, length);
    }
}

/// A request, or one fragment of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestPdu<'a> {
    /// Bytes of the whole stub, or 0.
    pub alloc_hint: u32,
    /// The presentation context, which identifies the interface.
    pub context_id: u16,
    /// The operation.
    pub opnum: u16,
    /// The object, if the flag is set.
    pub object: Option<Guid>,
    /// The stub, or this fragment of it.
    pub stub: &'a [u8],
}

impl<'a> RequestPdu<'a> {
    /// Reads a body.
    ///
    /// # Errors
    /// [`Malformed`] when a field is missing.
    pub fn read(header: &PduHeader, body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body, "RPC request");
        let alloc_hint = reader.u32()?;
        let context_id = reader.u16()?;
        let opnum = reader.u16()?;
        let object = header
            .flags
            .contains(PfcFlags::OBJECT_UUID)
            .then(|| reader.array().map(Guid))
            .transpose()?;
        Ok(Self {
            alloc_hint,
            context_id,
            opnum,
            object,
            stub: reader.rest(),
        })
    }

    /// Appends the PDU in one piece.
    pub fn encode(&self, call_id: u32, out: &mut BytesMut) {
        let object = PfcFlags::OBJECT_UUID.when(self.object.is_some());
        PduHeader::new(PduType::REQUEST, PfcFlags::WHOLE | object, call_id).encode(out, |out| {
            out.put_u32_le(self.alloc_hint);
            out.put_u16_le(self.context_id);
            out.put_u16_le(self.opnum);
            if let Some(object) = self.object {
                out.put_slice(&object.0);
            }
            out.put_slice(self.stub);
        });
    }
}

/// A response, or one fragment of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response<'a> {
    /// Remaining bytes of the stub, or 0.
    pub alloc_hint: u32,
    /// The presentation context of the request.
    pub context_id: u16,
    /// The stub, or this fragment of it.
    pub stub: &'a [u8],
}

impl<'a> Response<'a> {
    /// Bytes of header and fixed part before the stub.
    pub const OVERHEAD: usize = PduHeader::SIZE + 8;

    /// Reads a body.
    ///
    /// # Errors
    /// [`Malformed`] when a field is missing.
    pub fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body, "RPC response");
        let alloc_hint = reader.u32()?;
        let context_id = reader.u16()?;
        reader.skip(2)?;
        Ok(Self {
            alloc_hint,
            context_id,
            stub: reader.rest(),
        })
    }

    /// Appends the PDU with these flags.
    pub fn encode(&self, call_id: u32, flags: PfcFlags, out: &mut BytesMut) {
        PduHeader::new(PduType::RESPONSE, flags, call_id).encode(out, |out| {
            out.put_u32_le(self.alloc_hint);
            out.put_u16_le(self.context_id);
            out.put_u16_le(0);
            out.put_slice(self.stub);
        });
    }
}

/// A fault: the call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultPdu {
    /// The presentation context of the request.
    pub context_id: u16,
    /// The reason.
    pub status: FaultStatus,
}

impl FaultPdu {
    /// Reads a body.
    ///
    /// # Errors
    /// [`Malformed`] when a field is missing.
    pub fn read(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body, "RPC fault");
        reader.skip(4)?;
        let context_id = reader.u16()?;
        reader.skip(2)?;
        Ok(Self {
            context_id,
            status: FaultStatus(reader.u32()?),
        })
    }

    /// Appends the PDU. Its flag says that the call was not executed, because decoding failed before.
    pub fn encode(&self, call_id: u32, out: &mut BytesMut) {
        let flags = PfcFlags::WHOLE | PfcFlags::DID_NOT_EXECUTE;
        PduHeader::new(PduType::FAULT, flags, call_id).encode(out, |out| {
            out.put_u32_le(0);
            out.put_u16_le(self.context_id);
            out.put_u16_le(0);
            out.put_u32_le(self.status.0);
            out.put_u32_le(0);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pdus_round_trip() {
        let request = RequestPdu {
            alloc_hint: 3,
            context_id: 1,
            opnum: 15,
            object: Some(Guid([4; 16])),
            stub: b"abc",
        };
        let mut out = BytesMut::new();
        request.encode(77, &mut out);
        out.put_slice(b"next");
        let (header, body, rest) = PduHeader::read(&out).unwrap();
        assert_eq!(header.call_id, 77);
        assert_eq!(rest, b"next");
        assert_eq!(RequestPdu::read(&header, body), Ok(request));
        assert_eq!(PduHeader::frag_length_of(&out), Some(out.len() - 4));

        let mut out = BytesMut::new();
        let fault = FaultPdu {
            context_id: 1,
            status: FaultStatus::OP_RNG_ERROR,
        };
        fault.encode(5, &mut out);
        let (header, body, _) = PduHeader::read(&out).unwrap();
        assert_eq!(header.pdu_type, PduType::FAULT);
        assert_eq!(out.len(), 32);
        assert_eq!(FaultPdu::read(body), Ok(fault));
    }

    #[test]
    fn forged_headers_are_refused() {
        let good = b"\x05\0\0\x03\x10\0\0\0\x12\0\0\0\x01\0\0\0ab";
        assert!(PduHeader::read(good).is_ok());
        for (at, byte) in [(0, 4), (1, 2), (4, 0), (8, 15), (8, 19), (10, 1)] {
            let mut bad = *good;
            bad[at] = byte;
            assert!(PduHeader::read(&bad).is_err(), "{at}");
        }
    }
}
