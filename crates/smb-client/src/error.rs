//! What can go wrong for a client, told apart by whose fault it is.
//!
//! A status of the server is [`ClientError::Status`] and leaves the connection usable; everything
//! that means that the peer cannot be trusted or is gone ends it.

use smb_auth::AuthError;
use smb_wire::{Malformed, Status};

/// Why an operation did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The server answered with this status.
    #[error("the server answered {0}")]
    Status(Status),
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Disconnected,
    /// Nothing came within the time allowed.
    #[error("no answer in time")]
    TimedOut,
    /// The socket failed.
    #[error("socket: {0}")]
    Io(#[source] std::io::Error),
    /// A message of the server could not be read.
    #[error("from the server: {0}")]
    Malformed(#[from] Malformed),
    /// The server broke a rule of the protocol.
    #[error("the server broke the protocol: {0}")]
    Protocol(&'static str),
    /// The signature of a reply is wrong.
    #[error("wrong signature on a reply to {0}")]
    BadSignature(smb_wire::Command),
    /// A reply that had to be signed is not.
    #[error("unsigned reply to a signed {0}")]
    Unsigned(smb_wire::Command),
    /// A reply that had to be encrypted is not, or cannot be decrypted.
    #[error("encryption of a reply: {0}")]
    Encryption(&'static str),
    /// Authentication failed on our side: the server proved nothing, or its token is wrong.
    #[error("authentication: {0}")]
    Auth(#[from] AuthError),
    /// The request needs more credits than the server granted.
    #[error("{needed} credits needed, {available} left")]
    NoCredits {
        /// What the request charges.
        needed: u32,
        /// What is left.
        available: u32,
    },
    /// The request cannot be sent in the present state.
    #[error("not possible now: {0}")]
    Usage(&'static str),
}

impl ClientError {
    /// The server's status, when that is what this is about.
    #[must_use]
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Status(status) => Some(*status),
            _ => None,
        }
    }

    /// Whether the connection is gone.
    #[must_use]
    pub fn is_disconnected(&self) -> bool {
        matches!(self, Self::Disconnected)
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
