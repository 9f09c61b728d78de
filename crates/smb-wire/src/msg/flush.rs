//! FLUSH ([MS-SMB2] 2.2.17, 2.2.18).
//!
//! The first reserved field is decoded: Apple's clients write 0xFFFF there to request a full sync.

use bytes::{BufMut, BytesMut};

use crate::codec::{Malformed, Reader};
use crate::ids::FileId;

/// The FLUSH request ([MS-SMB2] 2.2.17).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlushRequest {
    /// Reserved1: zero, or [`FlushRequest::FULL_SYNC`] from Apple's clients.
    pub reserved: u16,
    /// The handle to flush.
    pub file_id: FileId,
}

impl FlushRequest {
    /// StructureSize.
    pub const STRUCTURE_SIZE: u16 = 24;
    /// The value of Reserved1 with which Apple's clients request F_FULLFSYNC.
    pub const FULL_SYNC: u16 = 0xffff;

    /// Reads the request, from its SMB2 header on.
    ///
    /// # Errors
    /// [`Malformed`] when it is too short.
    pub fn read(message: &[u8]) -> Result<Self, Malformed> {
        let mut body = Reader::body(message, Self::STRUCTURE_SIZE, "FLUSH request")?;
        let reserved = body.u16()?;
        body.skip(4)?;
        Ok(Self {
            reserved,
            file_id: FileId::read(&mut body)?,
        })
    }

    /// Appends the body; `start` is the position of the header in `out`.
    pub fn encode(&self, out: &mut BytesMut, _start: usize) {
        out.put_u16_le(Self::STRUCTURE_SIZE);
        out.put_u16_le(self.reserved);
        out.put_u32_le(0);
        self.file_id.encode(out);
    }
}

empty_message! {
    /// The FLUSH response ([MS-SMB2] 2.2.18).
    pub struct FlushResponse;
}
