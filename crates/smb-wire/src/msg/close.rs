//! CLOSE ([MS-SMB2] 2.2.15, 2.2.16).
//!
//! The attributes of the response are zero unless the request has POSTQUERY_ATTRIB.

use bytes::{BufMut, BytesMut};

use crate::codec::{Malformed, Reader, put_fixed};
use crate::file_attributes::FileAttributes;
use crate::ids::{FileId, FileTime};

flags_of_the_wire! {
    /// Flags of request and response.
    pub struct CloseFlags(u16) {
        /// The response is to contain (contains) the attributes after the close.
        POSTQUERY_ATTRIB = 0x0001,
    }
}

/// The CLOSE request ([MS-SMB2] 2.2.15).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CloseRequest {
    /// Flags; POSTQUERY_ATTRIB requests the attributes.
    pub flags: CloseFlags,
    /// The handle to close.
    pub file_id: FileId,
}

impl CloseRequest {
    /// StructureSize.
    pub const STRUCTURE_SIZE: u16 = 24;

    /// Reads the request, from its SMB2 header on.
    ///
    /// # Errors
    /// [`Malformed`] when it is too short.
    pub fn read(message: &[u8]) -> Result<Self, Malformed> {
        let mut body = Reader::body(message, Self::STRUCTURE_SIZE, "CLOSE request")?;
        let flags = CloseFlags(body.u16()?);
        body.skip(4)?;
        Ok(Self {
            flags,
            file_id: FileId::read(&mut body)?,
        })
    }

    /// Appends the body; `start` is the position of the header in `out`.
    pub fn encode(&self, out: &mut BytesMut, _start: usize) {
        out.put_u16_le(Self::STRUCTURE_SIZE);
        out.put_u16_le(self.flags.bits());
        out.put_u32_le(0);
        self.file_id.encode(out);
    }
}

/// The CLOSE response ([MS-SMB2] 2.2.16).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CloseResponse {
    /// Flags; with POSTQUERY_ATTRIB the fields below are valid.
    pub flags: CloseFlags,
    /// The time of creation.
    pub creation_time: FileTime,
    /// The time of the last access.
    pub last_access_time: FileTime,
    /// The time of the last change of the data.
    pub last_write_time: FileTime,
    /// The time of the last change of data or metadata.
    pub change_time: FileTime,
    /// Bytes allocated.
    pub allocation_size: u64,
    /// Bytes in the file.
    pub end_of_file: u64,
    /// Its attributes.
    pub file_attributes: FileAttributes,
}

impl CloseResponse {
    /// StructureSize.
    pub const STRUCTURE_SIZE: u16 = 60;

    /// Reads the response, from its SMB2 header on.
    ///
    /// # Errors
    /// [`Malformed`] when it is too short.
    pub fn read(message: &[u8]) -> Result<Self, Malformed> {
        let mut body = Reader::body(message, Self::STRUCTURE_SIZE, "CLOSE response")?;
        let flags = CloseFlags(body.u16()?);
        body.skip(4)?;
        Ok(Self {
            flags,
            creation_time: FileTime(body.u64()?),
            last_access_time: FileTime(body.u64()?),
            last_write_time: FileTime(body.u64()?),
            change_time: FileTime(body.u64()?),
            allocation_size: body.u64()?,
            end_of_file: body.u64()?,
            file_attributes: FileAttributes(body.u32()?),
        })
    }

    /// Appends the body; `start` is the position of the header in `out`.
    pub fn encode(&self, out: &mut BytesMut, _start: usize) {
        put_fixed::<{ Self::STRUCTURE_SIZE as usize }>(out, |out| {
            out.put_u16_le(Self::STRUCTURE_SIZE);
            out.put_u16_le(self.flags.bits());
            out.put_u32_le(0);
            out.put_u64_le(self.creation_time.0);
            out.put_u64_le(self.last_access_time.0);
            out.put_u64_le(self.last_write_time.0);
            out.put_u64_le(self.change_time.0);
            out.put_u64_le(self.allocation_size);
            out.put_u64_le(self.end_of_file);
            out.put_u32_le(self.file_attributes.bits());
        });
    }
}
