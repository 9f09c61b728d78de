//! TREE_DISCONNECT ([MS-SMB2] 2.2.11 and 2.2.12): a message of StructureSize and two reserved bytes.
//!
//! The tree connect is the one of the header.

empty_message! {
    /// The request ([MS-SMB2] 2.2.11).
    pub struct TreeDisconnectRequest(4);
}

empty_message! {
    /// The response ([MS-SMB2] 2.2.12).
    pub struct TreeDisconnectResponse(4);
}
