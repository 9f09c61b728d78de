//! The rules whose violation closes the connection. Each has a variant, so that tests can distinguish them.

use smb_wire::Malformed;

use super::receive_buffer::FrameError;

/// The reason why the server closed a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Misbehaved {
    /// The framing is broken or a message too long.
    Framing(FrameError),
    /// A header cannot be decoded, or a chain of headers is malformed or too long.
    Malformed(Malformed),
    /// Requests that move more data than one message, or the server's budget, holds.
    TooMuchData,
    /// A request that is longer than its command can be ([MS-SMB2] 3.3.5.2).
    TooLong(usize),
    /// A message of no known protocol.
    UnknownProtocol,
    /// A response where a request is due.
    ResponseFromClient,
    /// A message id outside the window or used before ([MS-SMB2] 3.3.5.2.3).
    OutsideWindow,
    /// Another command before NEGOTIATE ([MS-SMB2] 3.3.5.2.2).
    NotNegotiated,
    /// A second NEGOTIATE ([MS-SMB2] 3.3.5.4).
    NegotiatedTwice,
    /// SMB1 after the first message.
    LateSmb1,
    /// An encrypted message that breaks a rule of [MS-SMB2] 3.3.5.2.1.1.
    Encryption(&'static str),
    /// A compressed message although none was negotiated.
    Compression,
    /// VALIDATE_NEGOTIATE_INFO does not agree with the negotiation ([MS-SMB2] 3.3.5.15.12).
    NegotiateTampered,
    /// A 3.1.1 TREE_CONNECT neither signed nor encrypted ([MS-SMB2] 3.3.5.7).
    UnsignedTreeConnect,
    /// A command code that does not exist.
    UnknownCommand,
}
