//! Errors of a client, distinguished by their origin.
//!
//! A status of the server is [`ClientError::Status`] and leaves the connection usable; every error
//! that means that the peer cannot be trusted or is gone ends the connection.

use smb_auth::AuthError;
use smb_wire::{Malformed, Status};

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("the server answered {0}")]
    Status(Status),
    #[error("the server closed the connection")]
    Disconnected,
    #[error("no answer in time")]
    TimedOut,
    #[error("socket error: {0}")]
    Io(#[source] std::io::Error),
    #[error("the server sent a {0}")]
    Malformed(#[from] Malformed),
    #[error("the server broke the protocol: {0}")]
    Protocol(&'static str),
    #[error("wrong signature on a reply to {0}")]
    BadSignature(smb_wire::Command),
    #[error("unsigned reply to a signed {0}")]
    Unsigned(smb_wire::Command),
    /// A reply that must be encrypted is not, or it cannot be decrypted.
    #[error("a reply is not correctly encrypted: {0}")]
    Encryption(&'static str),
    /// Authentication failed on the client: the server did not prove its identity, or its token is malformed.
    #[error("authentication failed: {0}")]
    Auth(#[from] AuthError),
    #[error("{needed} credits needed, {available} left")]
    NoCredits { needed: u32, available: u32 },
    #[error("not possible now: {0}")]
    Usage(&'static str),
}

impl ClientError {
    /// Fails with this error if `condition` holds.
    pub(crate) fn when(self, condition: bool) -> Result<(), Self> {
        match condition {
            true => Err(self),
            false => Ok(()),
        }
    }

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
