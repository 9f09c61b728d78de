//! CHANGE_NOTIFY ([MS-SMB2] 2.2.35, 2.2.36).
//!
//! The FILE_NOTIFY_INFORMATION list of the response is decoded in `fscc`.

use bytes::{BufMut, BytesMut};

use crate::codec::{Malformed, Reader};
use crate::ids::FileId;

flags_of_the_wire! {
    /// Flags of the request.
    pub struct ChangeNotifyFlags(u16) {
        WATCH_TREE = 0x0001,
    }
}

flags_of_the_wire! {
    /// CompletionFilter: the changes that the client wants to be notified of.
    pub struct NotifyFilter(u32) {
        FILE_NAME = 0x0000_0001,
        DIR_NAME = 0x0000_0002,
        ATTRIBUTES = 0x0000_0004,
        SIZE = 0x0000_0008,
        LAST_WRITE = 0x0000_0010,
        LAST_ACCESS = 0x0000_0020,
        CREATION = 0x0000_0040,
        EA = 0x0000_0080,
        SECURITY = 0x0000_0100,
        STREAM_NAME = 0x0000_0200,
        STREAM_SIZE = 0x0000_0400,
        STREAM_WRITE = 0x0000_0800,
    }
}

/// The CHANGE_NOTIFY request ([MS-SMB2] 2.2.35).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeNotifyRequest {
    /// Flags.
    pub flags: ChangeNotifyFlags,
    /// Maximum length in bytes of the changes in the response.
    pub output_buffer_length: u32,
    /// The handle of the directory.
    pub file_id: FileId,
    /// The changes that the client wants to be notified of.
    pub completion_filter: NotifyFilter,
}

impl ChangeNotifyRequest {
    /// StructureSize.
    pub const STRUCTURE_SIZE: u16 = 32;

    /// Reads the request, from its SMB2 header on.
    ///
    /// # Errors
    /// [`Malformed`] when it is too short.
    pub fn read(message: &[u8]) -> Result<Self, Malformed> {
        let mut body = Reader::body(message, Self::STRUCTURE_SIZE, "CHANGE_NOTIFY request")?;
        let flags = ChangeNotifyFlags(body.u16()?);
        let output_buffer_length = body.u32()?;
        let file_id = FileId::read(&mut body)?;
        let completion_filter = NotifyFilter(body.u32()?);
        body.skip(4)?;
        Ok(Self {
            flags,
            output_buffer_length,
            file_id,
            completion_filter,
        })
    }

    /// Appends the body; `start` is the position of the header in `out`.
    pub fn encode(&self, out: &mut BytesMut, _start: usize) {
        out.put_u16_le(Self::STRUCTURE_SIZE);
        out.put_u16_le(self.flags.bits());
        out.put_u32_le(self.output_buffer_length);
        self.file_id.encode(out);
        out.put_u32_le(self.completion_filter.bits());
        out.put_u32_le(0);
    }
}

buffer_response! {
    /// The CHANGE_NOTIFY response ([MS-SMB2] 2.2.36): a list of changes, empty if there were too
    /// many.
    pub struct ChangeNotifyResponse; "CHANGE_NOTIFY response"
}
