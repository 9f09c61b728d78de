//! The layout of the request and response of QUERY_INFO ([MS-SMB2] 2.2.37, 2.2.38).
//!
//! The buffers contain structures of [MS-FSCC] or a security descriptor, decoded in `fscc` and
//! `dtyp`.

use bytes::{BufMut, BytesMut};

use crate::codec::{Malformed, Patch, Reader, fitting_u32, offset_u16, put_at_least_a_byte};
use crate::fscc::{Field, FileInformationClass};
use crate::ids::FileId;

enum_of_the_wire! {
    /// The kind of information that is queried or set.
    pub struct InfoType(u8) {
        FILE = 0x01,
        FILESYSTEM = 0x02,
        SECURITY = 0x03,
        QUOTA = 0x04,
    }
}

flags_of_the_wire! {
    /// Flags of the request, for extended attributes and quotas.
    pub struct QueryInfoFlags(u32) {
        RESTART_SCAN = 0x0000_0001,
        RETURN_SINGLE_ENTRY = 0x0000_0002,
        INDEX_SPECIFIED = 0x0000_0004,
    }
}

/// The QUERY_INFO request ([MS-SMB2] 2.2.37).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueryInfoRequest<'a> {
    /// The kind of information.
    pub info_type: InfoType,
    /// The class: a FILE_INFORMATION_CLASS or FS_INFORMATION_CLASS, 0 otherwise.
    pub info_class: u8,
    /// Maximum length of the response in bytes.
    pub output_buffer_length: u32,
    /// For security the requested parts (see [`SecurityInformation`](crate::dtyp::SecurityInformation)),
    /// for extended attributes an index.
    pub additional_information: u32,
    /// Flags.
    pub flags: QueryInfoFlags,
    /// The handle.
    pub file_id: FileId,
    /// The requested extended attributes or quotas; may be empty.
    pub input: &'a [u8],
}

impl<'a> QueryInfoRequest<'a> {
    /// StructureSize.
    pub const STRUCTURE_SIZE: u16 = 41;

    /// Reads the request, from its SMB2 header on.
    ///
    /// # Errors
    /// [`Malformed`] when the input is outside the message. Where the query takes none, its length is ignored
    /// ([MS-SMB2] 3.3.5.20).
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut body = Reader::body(message, Self::STRUCTURE_SIZE, "QUERY_INFO request")?;
        let info_type = InfoType(body.u8()?);
        let info_class = body.u8()?;
        let output_buffer_length = body.u32()?;
        let offset = body.u16()?;
        body.skip(2)?;
        let len = body.u32()?;
        let additional_information = body.u32()?;
        let flags = QueryInfoFlags(body.u32()?);
        let file_id = FileId::get(&mut body)?;
        let takes_input = match info_type {
            InfoType::FILE => FileInformationClass(info_class) == FileInformationClass::FULL_EA,
            other => other == InfoType::QUOTA,
        };
        let input: &'a [u8] = match body.buffer(message, offset, len) {
            Err(_) if !takes_input => &[],
            input => input?,
        };
        Ok(Self {
            info_type,
            info_class,
            output_buffer_length,
            additional_information,
            flags,
            file_id,
            input,
        })
    }

    /// Appends the body; `start` is the position of the header in `out`.
    pub fn encode(&self, out: &mut BytesMut, start: usize) {
        let (input, len) = fitting_u32(self.input);
        out.put_u16_le(Self::STRUCTURE_SIZE);
        out.put_u8(self.info_type.0);
        out.put_u8(self.info_class);
        out.put_u32_le(self.output_buffer_length);
        let offset = Patch::u16(out);
        out.put_u16_le(0);
        out.put_u32_le(len);
        out.put_u32_le(self.additional_information);
        out.put_u32_le(self.flags.bits());
        self.file_id.put(out);
        if !input.is_empty() {
            offset.set_u16(out, offset_u16(out, start));
        }
        put_at_least_a_byte(out, input);
    }
}

buffer_messages! {
    /// The QUERY_INFO response ([MS-SMB2] 2.2.38).
    QueryInfoResponse(9, BytesMut::extend_from_slice) {
        [offset: u16; length: u32;]
        => /// The requested information; may be empty.
        buffer
    }
}
