//! CANCEL ([MS-SMB2] 2.2.30): a message of StructureSize and two reserved bytes.
//!
//! What is cancelled is told by MessageId or AsyncId of the header; there is no response.

empty_message! {
    /// The request ([MS-SMB2] 2.2.30).
    pub struct CancelRequest;
}
