//! The layout of the request and response of CHANGE_NOTIFY ([MS-SMB2] 2.2.35, 2.2.36).
//!
//! The FILE_NOTIFY_INFORMATION list of the response is decoded in `fscc`.

use bytes::BytesMut;

use crate::ids::FileId;

flags_of_the_wire! {
    /// Flags of the request.
    pub struct ChangeNotifyFlags(u16) {
        WATCH_TREE = 0x0001,
    }

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

fixed_messages! {
    /// The CHANGE_NOTIFY request ([MS-SMB2] 2.2.35).
    ChangeNotifyRequest(32) {
        /// Flags.
        flags: ChangeNotifyFlags;
        /// Maximum length in bytes of the changes in the response.
        output_buffer_length: u32;
        /// The handle of the directory.
        file_id: FileId;
        /// The changes that the client wants to be notified of.
        completion_filter: NotifyFilter, pad 4;
    }
}

buffer_messages! {
    /// The CHANGE_NOTIFY response ([MS-SMB2] 2.2.36).
    ChangeNotifyResponse(9, BytesMut::extend_from_slice) {
        [offset: u16; length: u32;]
        => /// A list of changes; empty if there were too many.
        buffer
    }
}
