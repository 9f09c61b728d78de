//! LOGOFF ([MS-SMB2] 2.2.7 and 2.2.8): a message of StructureSize and two reserved bytes.
//!
//! The session is the one of the header.

empty_message! {
    /// The request ([MS-SMB2] 2.2.7).
    pub struct LogoffRequest(4);
}

empty_message! {
    /// The response ([MS-SMB2] 2.2.8).
    pub struct LogoffResponse(4);
}
