//! QUERY_DIRECTORY ([MS-SMB2] 2.2.33, 2.2.34).
//!
//! The pattern is raw UTF-16LE; the entries of the response are decoded in `fscc`.

use bytes::{BufMut, BytesMut};

use crate::codec::{Malformed, Patch, Reader, fitting_u16, offset_u16, put_at_least_a_byte};
use crate::fscc::Field;
use crate::ids::FileId;

flags_of_the_wire! {
    /// Flags of the request.
    pub struct QueryDirectoryFlags(u8) {
        RESTART_SCANS = 0x01,
        RETURN_SINGLE_ENTRY = 0x02,
        INDEX_SPECIFIED = 0x04,
        /// Start again, with a new pattern.
        REOPEN = 0x10,
    }
}

/// The QUERY_DIRECTORY request ([MS-SMB2] 2.2.33).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueryDirectoryRequest<'a> {
    /// The FILE_INFORMATION_CLASS of the requested entries ([MS-FSCC] 2.4).
    pub info_class: u8,
    /// Flags.
    pub flags: QueryDirectoryFlags,
    /// The position to continue from, with INDEX_SPECIFIED.
    pub file_index: u32,
    /// The handle of the directory.
    pub file_id: FileId,
    /// The pattern in raw UTF-16LE; may be empty.
    pub pattern: &'a [u8],
    /// Maximum length in bytes of the entries in the response.
    pub output_buffer_length: u32,
}

impl<'a> QueryDirectoryRequest<'a> {
    /// StructureSize.
    pub const STRUCTURE_SIZE: u16 = 33;

    /// Reads the request, from its SMB2 header on.
    ///
    /// # Errors
    /// [`Malformed`] when the pattern is outside the message.
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut body = Reader::body(message, Self::STRUCTURE_SIZE, "QUERY_DIRECTORY request")?;
        let info_class = body.u8()?;
        let flags = QueryDirectoryFlags(body.u8()?);
        let file_index = body.u32()?;
        let file_id = FileId::get(&mut body)?;
        let (offset, len) = (body.u16()?, body.u16()?);
        let output_buffer_length = body.u32()?;
        Ok(Self {
            info_class,
            flags,
            file_index,
            file_id,
            pattern: body.buffer(message, offset, len)?,
            output_buffer_length,
        })
    }

    /// Appends the body; `start` is the position of the header in `out`.
    pub fn encode(&self, out: &mut BytesMut, start: usize) {
        let (pattern, len) = fitting_u16(self.pattern);
        out.put_u16_le(Self::STRUCTURE_SIZE);
        out.put_u8(self.info_class);
        out.put_u8(self.flags.bits());
        out.put_u32_le(self.file_index);
        self.file_id.put(out);
        let offset = Patch::u16(out);
        out.put_u16_le(len);
        out.put_u32_le(self.output_buffer_length);
        offset.set_u16(out, offset_u16(out, start));
        put_at_least_a_byte(out, pattern);
    }
}

buffer_response! {
    /// The QUERY_DIRECTORY response ([MS-SMB2] 2.2.34): entries of the requested class.
    pub struct QueryDirectoryResponse; "QUERY_DIRECTORY response"
}
