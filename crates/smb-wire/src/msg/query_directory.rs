//! The layout of the request and response of QUERY_DIRECTORY ([MS-SMB2] 2.2.33, 2.2.34).
//!
//! The pattern is raw UTF-16LE; the entries of the response are decoded in `fscc`.

use bytes::BytesMut;

use crate::codec::put_at_least_a_byte;
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

buffer_messages! {
    /// The QUERY_DIRECTORY request ([MS-SMB2] 2.2.33).
    QueryDirectoryRequest(33, put_at_least_a_byte) {
        /// The FILE_INFORMATION_CLASS of the requested entries ([MS-FSCC] 2.4).
        info_class: u8;
        /// Flags.
        flags: QueryDirectoryFlags;
        /// The position to continue from, with INDEX_SPECIFIED.
        file_index: u32;
        /// The handle of the directory.
        file_id: FileId;
        [offset: u16; length: u16;]
        /// Maximum length in bytes of the entries in the response.
        output_buffer_length: u32;
        => /// The pattern in raw UTF-16LE; may be empty.
        pattern
    }

    /// The QUERY_DIRECTORY response ([MS-SMB2] 2.2.34).
    QueryDirectoryResponse(9, BytesMut::extend_from_slice) {
        [offset: u16; length: u32;]
        => /// Entries of the requested class; may be empty.
        buffer
    }
}
