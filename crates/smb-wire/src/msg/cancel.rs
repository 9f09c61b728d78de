//! CANCEL ([MS-SMB2] 2.2.30): a message of StructureSize and two reserved bytes.
//!
//! The MessageId or AsyncId of the header identifies the request to cancel; there is no response.

empty_message! {
    /// The request ([MS-SMB2] 2.2.30).
    pub struct CancelRequest(4);
}
