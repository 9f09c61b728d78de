//! The layout of the request and response of READ ([MS-SMB2] 2.2.19, 2.2.20).
//!
//! The caller can append the data of a response after [`ReadResponse::encode_head`], so that they
//! are copied only once, from the file into the message.

use bytes::{BufMut, BytesMut};

use crate::codec::{Malformed, Reader, fitting_u32, put_at_least_a_byte};
use crate::ids::FileId;

flags_of_the_wire! {
    /// Flags of the request (3.0.2 and later).
    pub struct ReadFlags(u8) {
        READ_UNBUFFERED = 0x01,
    }

    /// Flags of the response (3.1.1).
    pub struct ReadResponseFlags(u32) {
        RDMA_TRANSFORM = 0x0000_0001,
    }
}

enum_of_the_wire! {
    /// The channel on which the data of READ and WRITE are transferred (3.x).
    pub struct Channel(u32) {
        /// In the message.
        NONE = 0x0000_0000,
        RDMA_V1 = 0x0000_0001,
        RDMA_V1_INVALIDATE = 0x0000_0002,
    }
}

/// The channel's description, of which `found` is the place in the message; empty without a channel or outside the
/// message. It is not checked, because the dialects before 3.0 ignore all fields of a channel.
pub(super) fn channel_info(channel: Channel, found: Result<&[u8], Malformed>) -> &[u8] {
    let described = found.ok().filter(|_| channel != Channel::NONE);
    described.unwrap_or_default()
}

buffer_messages! {
    /// The READ request ([MS-SMB2] 2.2.19).
    ReadRequest(49, put_at_least_a_byte, none_if_empty) {
        /// The position in the response at which the client would like the data; a hint.
        padding: u8;
        /// Flags.
        flags: ReadFlags;
        /// Bytes to read.
        length: u32;
        /// The position in the file.
        offset: u64;
        /// The handle.
        file_id: FileId;
        /// Minimum number of bytes for the read to succeed.
        minimum_count: u32;
        /// The channel on which the data are transferred.
        channel: Channel;
        /// Bytes to send over the channel, if there is one.
        remaining_bytes: u32;
        [offset: u16; length: u16;]
        => /// Channel descriptors; empty when there is no channel.
        channel_info, as |_| Ok::<_, Malformed>(self::channel_info(channel, channel_info))
    }
}

/// Bytes between the SMB2 header of a READ response and its data, as it is encoded here.
pub const READ_HEAD_SIZE: usize = 16;

/// The READ response ([MS-SMB2] 2.2.20).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadResponse<'a> {
    /// Bytes sent over the channel instead.
    pub data_remaining: u32,
    /// Flags (3.1.1).
    pub flags: ReadResponseFlags,
    /// The data.
    pub data: &'a [u8],
}

impl<'a> ReadResponse<'a> {
    /// StructureSize.
    pub const STRUCTURE_SIZE: u16 = 17;
    /// The position of the data in the messages encoded here, from the SMB2 header.
    pub const DATA_OFFSET: u8 = 80;

    /// Reads the response, from its SMB2 header on.
    ///
    /// # Errors
    /// [`Malformed`] when the data are outside the message.
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut body = Reader::body(message, Self::STRUCTURE_SIZE, "READ response")?;
        let offset = body.u8()?;
        body.skip(1)?;
        let len = body.u32()?;
        let data_remaining = body.u32()?;
        let flags = ReadResponseFlags(body.u32()?);
        Ok(Self {
            data_remaining,
            flags,
            data: body.buffer(message, offset, len)?,
        })
    }

    /// Encodes everything except the data, announcing `data_len` bytes of them.
    pub fn head(&self, data_len: u32) -> [u8; READ_HEAD_SIZE] {
        let mut head = [0; READ_HEAD_SIZE];
        let mut out = head.as_mut_slice();
        out.put_u16_le(Self::STRUCTURE_SIZE);
        out.put_u8(Self::DATA_OFFSET);
        out.put_u8(0);
        out.put_u32_le(data_len);
        out.put_u32_le(self.data_remaining);
        out.put_u32_le(self.flags.bits());
        head
    }

    /// Appends everything except the data, announcing `data_len` bytes of them; `start` is the
    /// position of the header in `out`.
    pub fn encode_head(&self, out: &mut BytesMut, _start: usize, data_len: u32) {
        out.put_slice(&self.head(data_len));
    }

    /// Appends the body; `start` is the position of the header in `out`.
    pub fn encode(&self, out: &mut BytesMut, start: usize) {
        let (data, len) = fitting_u32(self.data);
        self.encode_head(out, start, len);
        out.put_slice(data);
    }
}
