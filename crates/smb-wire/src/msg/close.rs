//! The layout of the request and response of CLOSE ([MS-SMB2] 2.2.15, 2.2.16).
//!
//! The attributes of the response are zero unless the request has POSTQUERY_ATTRIB.

use crate::fscc::FileFacts;
use crate::ids::FileId;

flags_of_the_wire! {
    /// Flags of request and response.
    pub struct CloseFlags(u16) {
        /// The response is to contain (contains) the attributes after the close.
        POSTQUERY_ATTRIB = 0x0001,
    }
}

fixed_messages! {
    /// The CLOSE request ([MS-SMB2] 2.2.15).
    CloseRequest(24) {
        /// Flags; POSTQUERY_ATTRIB requests the attributes.
        flags: CloseFlags, pad 4;
        /// The handle to close.
        file_id: FileId;
    }

    /// The CLOSE response ([MS-SMB2] 2.2.16).
    CloseResponse(60) {
        /// Flags; with POSTQUERY_ATTRIB the facts are valid.
        flags: CloseFlags, pad 4;
        /// The file after the close.
        facts: FileFacts;
    }
}
