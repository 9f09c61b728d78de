//! ECHO ([MS-SMB2] 2.2.28 and 2.2.29): a message of StructureSize and two reserved bytes.
//!
//! The message only shows that the peer is alive.

empty_message! {
    /// The request ([MS-SMB2] 2.2.28).
    pub struct EchoRequest(4);
}

empty_message! {
    /// The response ([MS-SMB2] 2.2.29).
    pub struct EchoResponse(4);
}
