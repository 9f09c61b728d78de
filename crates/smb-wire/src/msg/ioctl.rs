//! IOCTL ([MS-SMB2] 2.2.31, 2.2.32): a control code with its input and output.
//!
//! The content of the buffers depends on the code and is decoded in `fsctl`. A request can also
//! contain an output buffer, which is not used.

use bytes::{BufMut, BytesMut};

use crate::codec::{Buffer, Malformed, Reader, pad_to};
use crate::fscc::Field;
use crate::ids::FileId;

flags_of_the_wire! {
    /// Flags of the request.
    pub struct IoctlFlags(u32) {
        /// The code is an FSCTL; without the flag it would be a device IOCTL, which servers refuse.
        IS_FSCTL = 0x0000_0001,
    }
}

/// Appends what request and response have in common, up to the place of the input.
fn put_head(out: &mut BytesMut, structure_size: u16, ctl_code: u32, file_id: FileId) -> Buffer {
    out.put_u16_le(structure_size);
    out.put_u16_le(0);
    out.put_u32_le(ctl_code);
    file_id.put(out);
    Buffer::reserve(out)
}

/// The IOCTL request ([MS-SMB2] 2.2.31).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoctlRequest<'a> {
    /// The control code, see `fsctl`.
    pub ctl_code: u32,
    /// The handle, or [`FileId::ANY`] for codes that need none.
    pub file_id: FileId,
    /// The input.
    pub input: &'a [u8],
    /// Maximum length in bytes of the input in the response back.
    pub max_input_response: u32,
    /// OutputCount, which a server is to ignore but for the credits; this client sends 0.
    pub output_count: u32,
    /// Maximum length in bytes of the output in the response.
    pub max_output_response: u32,
    /// Flags.
    pub flags: IoctlFlags,
}

impl<'a> IoctlRequest<'a> {
    /// StructureSize.
    pub const STRUCTURE_SIZE: u16 = 57;

    /// Reads the request, from its SMB2 header on.
    ///
    /// # Errors
    /// [`Malformed`] when the input is outside the message, or not aligned to 8 bytes ([MS-SMB2] 3.3.5.15).
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut body = Reader::body(message, Self::STRUCTURE_SIZE, "IOCTL request")?;
        body.skip(2)?;
        let ctl_code = body.u32()?;
        let file_id = FileId::get(&mut body)?;
        let (input_offset, input_len) = (body.u32()?, body.u32()?);
        let max_input_response = body.u32()?;
        body.skip(4)?;
        let output_count = body.u32()?;
        let max_output_response = body.u32()?;
        let flags = IoctlFlags(body.u32()?);
        body.skip(4)?;
        if input_len != 0 && input_offset % 8 != 0 {
            return Err(Malformed::new("IOCTL input offset"));
        }
        Ok(Self {
            ctl_code,
            file_id,
            input: body.buffer(message, input_offset, input_len)?,
            max_input_response,
            output_count,
            max_output_response,
            flags,
        })
    }

    /// Appends the body; `start` is the position of the header in `out`.
    pub fn encode(&self, out: &mut BytesMut, start: usize) {
        let input = put_head(out, Self::STRUCTURE_SIZE, self.ctl_code, self.file_id);
        out.put_u32_le(self.max_input_response);
        out.put_u32_le(0);
        out.put_u32_le(self.output_count);
        out.put_u32_le(self.max_output_response);
        out.put_u32_le(self.flags.bits());
        out.put_u32_le(0);
        if !self.input.is_empty() {
            input.put(out, start, self.input);
        } else {
            // StructureSize counts one byte of the buffer, so there is at least one.
            out.put_u8(0);
        }
    }
}

/// The IOCTL response ([MS-SMB2] 2.2.32).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoctlResponse<'a> {
    /// The control code of the request.
    pub ctl_code: u32,
    /// The handle of the request.
    pub file_id: FileId,
    /// The input sent back; empty for all codes except a few.
    pub input: &'a [u8],
    /// The output.
    pub output: &'a [u8],
    /// Reserved; zero.
    pub flags: u32,
}

impl<'a> IoctlResponse<'a> {
    /// StructureSize.
    pub const STRUCTURE_SIZE: u16 = 49;

    /// Reads the response, from its SMB2 header on.
    ///
    /// # Errors
    /// [`Malformed`] when a buffer is outside the message.
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut body = Reader::body(message, Self::STRUCTURE_SIZE, "IOCTL response")?;
        body.skip(2)?;
        let ctl_code = body.u32()?;
        let file_id = FileId::get(&mut body)?;
        let (input_offset, input_len) = (body.u32()?, body.u32()?);
        let (output_offset, output_len) = (body.u32()?, body.u32()?);
        let flags = body.u32()?;
        body.skip(4)?;
        Ok(Self {
            ctl_code,
            file_id,
            input: body.buffer(message, input_offset, input_len)?,
            output: body.buffer(message, output_offset, output_len)?,
            flags,
        })
    }

    /// Appends the body; `start` is the position of the header in `out`.
    pub fn encode(&self, out: &mut BytesMut, start: usize) {
        let input = put_head(out, Self::STRUCTURE_SIZE, self.ctl_code, self.file_id);
        let output = Buffer::reserve(out);
        out.put_u32_le(self.flags);
        out.put_u32_le(0);
        input.put(out, start, self.input);
        pad_to(out, start, 8);
        output.put(out, start, self.output);
    }
}
