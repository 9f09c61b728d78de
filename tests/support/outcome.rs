//! The result of a request, for tests that allow more than one.

use smb_client::{ClientError, Reply};
use smb_wire::Status;

/// The result of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The server answered with this status.
    Answered(Status),
    /// The server closed the connection.
    Closed,
}

/// Returns the result of the request.
///
/// # Panics
/// When the result is neither a status nor a closed connection: no answer in time, or one that
/// violates the protocol.
#[track_caller]
pub fn outcome(result: Result<Reply, ClientError>) -> Outcome {
    match result {
        Ok(reply) => Outcome::Answered(reply.status()),
        Err(ClientError::Status(status)) => Outcome::Answered(status),
        Err(ClientError::Disconnected) => Outcome::Closed,
        Err(other) => panic!("{other}"),
    }
}

/// Returns the status of an operation; SUCCESS if it returned a value.
///
/// # Panics
/// When it failed with another error than a status.
#[track_caller]
pub fn status<T>(result: Result<T, ClientError>) -> Status {
    match result {
        Ok(_) => Status::SUCCESS,
        Err(ClientError::Status(status)) => status,
        Err(other) => panic!("{other}"),
    }
}
