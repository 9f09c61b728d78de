//! How a request ended, for tests that allow more than one end.

use smb_client::{ClientError, Reply};
use smb_wire::Status;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// With this status.
    Answered(Status),
    /// The server closed the connection.
    Closed,
}

/// How the request ended.
///
/// # Panics
/// When it ended neither by a status nor by closing: no answer in time, or an answer that breaks
/// the protocol.
#[track_caller]
pub fn outcome(result: Result<Reply, ClientError>) -> Outcome {
    match result {
        Ok(reply) => Outcome::Answered(reply.status()),
        Err(ClientError::Status(status)) => Outcome::Answered(status),
        Err(ClientError::Disconnected) => Outcome::Closed,
        Err(other) => panic!("{other}"),
    }
}

/// The status an operation ended with; SUCCESS when it gave something.
///
/// # Panics
/// When it failed otherwise than by a status.
#[track_caller]
pub fn status<T>(result: Result<T, ClientError>) -> Status {
    match result {
        Ok(_) => Status::SUCCESS,
        Err(ClientError::Status(status)) => status,
        Err(other) => panic!("{other}"),
    }
}
