//! SET_INFO ([MS-SMB2] 2.2.39, 2.2.40).
//!
//! The buffer contains a structure of [MS-FSCC] or a security descriptor, decoded in `fscc` and
//! `dtyp`.

use bytes::{BufMut, BytesMut};

use crate::codec::{Malformed, Patch, Reader, fitting_u32, offset_u16, put_at_least_a_byte};
use crate::fscc::Field;
use crate::ids::FileId;
use crate::msg::InfoType;

/// The SET_INFO request ([MS-SMB2] 2.2.39).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetInfoRequest<'a> {
    /// The kind of information.
    pub info_type: InfoType,
    /// The class: a FILE_INFORMATION_CLASS or FS_INFORMATION_CLASS, 0 otherwise.
    pub info_class: u8,
    /// For security the parts to set (see [`SecurityInformation`](crate::dtyp::SecurityInformation)).
    pub additional_information: u32,
    /// The handle.
    pub file_id: FileId,
    /// The information.
    pub buffer: &'a [u8],
}

impl<'a> SetInfoRequest<'a> {
    /// StructureSize.
    pub const STRUCTURE_SIZE: u16 = 33;

    /// Reads the request, from its SMB2 header on.
    ///
    /// # Errors
    /// [`Malformed`] when the buffer is outside the message.
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut body = Reader::body(message, Self::STRUCTURE_SIZE, "SET_INFO request")?;
        let info_type = InfoType(body.u8()?);
        let info_class = body.u8()?;
        let len = body.u32()?;
        let offset = body.u16()?;
        body.skip(2)?;
        let additional_information = body.u32()?;
        let file_id = FileId::get(&mut body)?;
        Ok(Self {
            info_type,
            info_class,
            additional_information,
            file_id,
            buffer: body.buffer(message, offset, len)?,
        })
    }

    /// Appends the body; `start` is the position of the header in `out`.
    pub fn encode(&self, out: &mut BytesMut, start: usize) {
        let (buffer, len) = fitting_u32(self.buffer);
        out.put_u16_le(Self::STRUCTURE_SIZE);
        out.put_u8(self.info_type.0);
        out.put_u8(self.info_class);
        out.put_u32_le(len);
        let offset = Patch::u16(out);
        out.put_u16_le(0);
        out.put_u32_le(self.additional_information);
        self.file_id.put(out);
        offset.set_u16(out, offset_u16(out, start));
        put_at_least_a_byte(out, buffer);
    }
}

empty_message! {
    /// The SET_INFO response ([MS-SMB2] 2.2.40): only StructureSize.
    pub struct SetInfoResponse(2);
}
