//! The layout of the request and response of FLUSH ([MS-SMB2] 2.2.17, 2.2.18).
//!
//! The first reserved field is decoded: Apple's clients write 0xFFFF there to request a full sync.

use crate::ids::FileId;

fixed_messages! {
    /// The FLUSH request ([MS-SMB2] 2.2.17).
    FlushRequest(24) {
        /// Reserved1: zero, or [`FlushRequest::FULL_SYNC`] from Apple's clients.
        reserved: u16, pad 4;
        /// The handle to flush.
        file_id: FileId;
    }
}

impl FlushRequest {
    /// The value of Reserved1 with which Apple's clients request F_FULLFSYNC.
    pub const FULL_SYNC: u16 = 0xffff;
}

empty_message! {
    /// The FLUSH response ([MS-SMB2] 2.2.18).
    pub struct FlushResponse(4);
}
