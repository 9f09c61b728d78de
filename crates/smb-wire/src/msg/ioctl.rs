//! IOCTL ([MS-SMB2] 2.2.31, 2.2.32): a control code with its input and output.
//!
//! The content of the buffers depends on the code and is decoded in `fsctl`. A request can also
//! contain an output buffer, which is not used.

use bytes::{BufMut, BytesMut};

use crate::codec::{Buffer, Malformed, Reader, pad_to, put_at_least_a_byte};
use crate::fscc::Field;
use crate::ids::FileId;

flags_of_the_wire! {
    /// Flags of the request.
    pub struct IoctlFlags(u32) {
        /// The code is an FSCTL; without the flag it would be a device IOCTL, which servers refuse.
        IS_FSCTL = 0x0000_0001,
    }
}

buffer_messages! {
    /// The IOCTL request ([MS-SMB2] 2.2.31).
    IoctlRequest(57; pad 2, put_at_least_a_byte, none_if_empty) {
        /// The control code, see `fsctl`.
        ctl_code: u32;
        /// The handle, or [`FileId::ANY`] for codes that need none.
        file_id: FileId;
        [offset: u32; length: u32;]
        /// Maximum length in bytes of the input in the response back.
        max_input_response: u32, pad 4;
        /// OutputCount, which a server is to ignore but for the credits; this client sends 0.
        output_count: u32;
        /// Maximum length in bytes of the output in the response.
        max_output_response: u32;
        /// Flags.
        flags: IoctlFlags, pad 4;
        => /// The input, which is aligned to 8 bytes ([MS-SMB2] 3.3.5.15).
        input, as |place| match place.length == 0 || place.offset % 8 == 0 {
            true => input,
            false => Err(Malformed::new("IOCTL input offset")),
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
        out.put_u16_le(Self::STRUCTURE_SIZE);
        out.put_u16_le(0);
        out.put_u32_le(self.ctl_code);
        self.file_id.put(out);
        let input = Buffer::reserve(out);
        let output = Buffer::reserve(out);
        out.put_u32_le(self.flags);
        out.put_u32_le(0);
        input.put(out, start, self.input);
        pad_to(out, start, 8);
        output.put(out, start, self.output);
    }
}
