//! The layout of the request and response of WRITE ([MS-SMB2] 2.2.21, 2.2.22).

use bytes::{BufMut, BytesMut};

use crate::codec::{
    Malformed, Patch, Reader, fitting_u16, fitting_u32, offset_u16, put_at_least_a_byte,
};
use crate::fscc::Field;
use crate::ids::FileId;
use crate::msg::Channel;
use crate::msg::read::channel_info;

flags_of_the_wire! {
    /// Flags of the request.
    pub struct WriteFlags(u32) {
        /// The data must be on stable storage before the response (2.1 and later).
        WRITE_THROUGH = 0x0000_0001,
        /// The server's cache must not be used (3.0.2 and later).
        WRITE_UNBUFFERED = 0x0000_0002,
    }
}

/// The WRITE request ([MS-SMB2] 2.2.21).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteRequest<'a> {
    /// The position in the file.
    pub offset: u64,
    /// The handle.
    pub file_id: FileId,
    /// The channel on which the data are transferred.
    pub channel: Channel,
    /// Number of bytes transferred over the channel, if there is one.
    pub remaining_bytes: u32,
    /// Flags.
    pub flags: WriteFlags,
    /// Channel descriptors; empty when there is no channel.
    pub channel_info: &'a [u8],
    /// The data; may be empty.
    pub data: &'a [u8],
}

impl<'a> WriteRequest<'a> {
    /// StructureSize.
    pub const STRUCTURE_SIZE: u16 = 49;
    /// The position of the data in the messages encoded here, from the SMB2 header.
    pub const DATA_OFFSET: u16 = 112;
    /// The last position of the data that a server accepts ([MS-SMB2] 3.3.5.13).
    pub const DATA_OFFSET_MAX: u16 = 0x100;

    /// Reads the request, from its SMB2 header on.
    ///
    /// # Errors
    /// [`Malformed`] when the data are outside the message or begin too late.
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut body = Reader::body(message, Self::STRUCTURE_SIZE, "WRITE request")?;
        let data_offset = body.u16()?;
        let data_len = body.u32()?;
        let offset = body.u64()?;
        let file_id = FileId::get(&mut body)?;
        let channel = Channel(body.u32()?);
        let remaining_bytes = body.u32()?;
        let (info_offset, info_len) = (body.u16()?, body.u16()?);
        let flags = WriteFlags(body.u32()?);
        if channel == Channel::NONE && data_offset > Self::DATA_OFFSET_MAX {
            return Err(Malformed::new("position of the data of a WRITE request"));
        }
        Ok(Self {
            offset,
            file_id,
            channel,
            remaining_bytes,
            flags,
            channel_info: channel_info(channel, body.buffer(message, info_offset, info_len)),
            data: body.buffer(message, data_offset, data_len)?,
        })
    }

    /// Appends the body; `start` is the position of the header in `out`.
    pub fn encode(&self, out: &mut BytesMut, start: usize) {
        let (data, data_len) = fitting_u32(self.data);
        let (info, info_len) = fitting_u16(self.channel_info);
        out.put_u16_le(Self::STRUCTURE_SIZE);
        out.put_u16_le(Self::DATA_OFFSET.saturating_add(info_len));
        out.put_u32_le(data_len);
        out.put_u64_le(self.offset);
        self.file_id.put(out);
        out.put_u32_le(self.channel.0);
        out.put_u32_le(self.remaining_bytes);
        let info_offset = Patch::u16(out);
        out.put_u16_le(info_len);
        out.put_u32_le(self.flags.bits());
        if !info.is_empty() {
            info_offset.set_u16(out, offset_u16(out, start));
            out.put_slice(info);
        }
        put_at_least_a_byte(out, data);
    }
}

fixed_messages! {
    /// The WRITE response ([MS-SMB2] 2.2.22).
    WriteResponse(17, pad 2) {
        /// Bytes written.
        count: u32, pad 8;
    }
}
