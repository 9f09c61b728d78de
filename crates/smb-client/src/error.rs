//! Errors of a client, distinguished by their origin.
//!
//! A status of the server is [`ClientError::Status`] and leaves the connection usable; every error
//! that means that the peer cannot be trusted or is gone ends the connection.

use smb_auth::AuthError;
use smb_wire::{Malformed, Status};

/// The reason why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server answered with this status.
    #[error("the server answered {0}")]
    Status(Status),
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Disconnected,
    /// No reply came within the timeout.
    #[error("no answer in time")]
    TimedOut,
    /// The socket failed.
    #[error("socket error: {0}")]
    Io(#[source] std::io::Error),
    /// A message of the server could not be decoded.
    #[error("the server sent a {0}")]
    Malformed(#[from] Malformed),
    /// The server broke a rule of the protocol.
    #[error("the server broke the protocol: {0}")]
    Protocol(&'static str),
    /// The signature of a reply is wrong.
    #[error("wrong signature on a reply to {0}")]
    BadSignature(smb_wire::Command),
    /// A reply that must be signed is not.
    #[error("unsigned reply to a signed {0}")]
    Unsigned(smb_wire::Command),
    /// A reply that must be encrypted is not, or it cannot be decrypted.
    #[error("a reply is not correctly encrypted: {0}")]
    Encryption(&'static str),
    /// Authentication failed on the client: the server did not prove its identity, or its token is malformed.
    #[error("authentication failed: {0}")]
    Auth(#[from] AuthError),
    /// The request needs more credits than the server granted.
    #[error("{needed} credits needed, {available} left")]
    NoCredits {
        /// The credits that the request is charged.
        needed: u32,
        /// The available credits.
        available: u32,
    },
    /// The request cannot be sent in the current state.
    #[error("not possible now: {0}")]
    Usage(&'static str),
}

impl ClientError {
    /// Returns the status if the error is one of the server.
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Status(status) => Some(*status),
            _ => None,
        }
    }
}

impl From<std::io::Error> for ClientError {
    fn from(error: std::io::Error) -> Self {
        use std::io::ErrorKind as Kind;
        match error.kind() {
            Kind::WouldBlock | Kind::TimedOut => Self::TimedOut,
            Kind::UnexpectedEof
            | Kind::ConnectionReset
            | Kind::ConnectionAborted
            | Kind::BrokenPipe
            | Kind::NotConnected => Self::Disconnected,
            _ => Self::Io(error),
        }
    }
}
