//! Why a request has no successful answer: a status, a status with data, or the end of the connection.
//!
//! Errors of the file system become statuses by one table, which is tested row by row.

use bytes::Bytes;
use smb_wire::{Malformed, status::Status};
use vfs::VfsError;

use crate::link::misbehaved::Misbehaved;

/// Why there is no successful answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An ERROR response.
    Status(Status),
    /// An ERROR response that carries data (buffer sizes, link targets); from 3.1.1 on in a context, even if there are
    /// none.
    WithData(Status, Bytes),
    /// No answer: the connection is closed.
    Disconnect(Misbehaved),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

impl From<VfsError> for Failure {
    fn from(error: VfsError) -> Self {
        Self::Status(of(error))
    }
}

impl From<Malformed> for Failure {
    /// A body that cannot be read is an invalid parameter ([MS-SMB2] 3.3.5.2.6 leaves the connection alone).
    fn from(_: Malformed) -> Self {
        Self::Status(Status::INVALID_PARAMETER)
    }
}

/// The status of a file-system error ([MS-FSA] and [MS-ERREF] names).
fn of(error: VfsError) -> Status {
    match error {
        VfsError::NotFound | VfsError::NoAttribute => Status::OBJECT_NAME_NOT_FOUND,
        VfsError::PathNotFound => Status::OBJECT_PATH_NOT_FOUND,
        VfsError::Exists => Status::OBJECT_NAME_COLLISION,
        VfsError::NotADirectory => Status::NOT_A_DIRECTORY,
        VfsError::IsADirectory => Status::FILE_IS_A_DIRECTORY,
        VfsError::NotEmpty => Status::DIRECTORY_NOT_EMPTY,
        VfsError::AccessDenied | VfsError::SymbolicLink => Status::ACCESS_DENIED,
        VfsError::ReadOnly => Status::MEDIA_WRITE_PROTECTED,
        // docs/protocol-notes.md, "A quota that is used up".
        VfsError::NoSpace | VfsError::QuotaExceeded => Status::DISK_FULL,
        VfsError::Io | VfsError::Poisoned => Status::IO_DEVICE_ERROR,
        VfsError::InvalidName => Status::OBJECT_NAME_INVALID,
        VfsError::NameTooLong => Status::NAME_TOO_LONG,
        VfsError::CrossDevice => Status::NOT_SAME_DEVICE,
        VfsError::TooLarge | VfsError::TooManyLinks => Status::FILE_SYSTEM_LIMITATION,
        VfsError::EasTooLarge => Status::EA_TOO_LARGE,
        VfsError::InvalidEaName => Status::INVALID_EA_NAME,
        VfsError::InvalidArgument => Status::INVALID_PARAMETER,
        VfsError::NotSupported => Status::NOT_SUPPORTED,
        VfsError::Exhausted | VfsError::NotStarted => Status::INSUFFICIENT_RESOURCES,
        VfsError::Busy => Status::SHARING_VIOLATION,
        VfsError::Corrupt => Status::FILE_CORRUPT_ERROR,
        _ => Status::UNSUCCESSFUL,
    }
}

/// The failure of a request that stores extended attributes ([MS-SMB2] 3.3.5.9.1, [MS-FSA] 2.1.5.15.6).
pub(crate) fn of_eas(error: VfsError) -> Failure {
    match error {
        VfsError::NotSupported => Status::EAS_NOT_SUPPORTED.into(),
        VfsError::TooLarge => Status::EA_TOO_LARGE.into(),
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_to_store_eas_says_so() {
        let status = |error| match of_eas(error) {
            Failure::Status(status) => status,
            other => panic!("{other:?}"),
        };
        let rows = [
            (VfsError::NotSupported, Status::EAS_NOT_SUPPORTED),
            (VfsError::TooLarge, Status::EA_TOO_LARGE),
            (VfsError::NoSpace, Status::DISK_FULL),
        ];
        for (error, expected) in rows {
            assert_eq!(status(error), expected);
        }
    }

    #[test]
    fn errors_of_the_disk_have_their_statuses() {
        let rows = [
            (VfsError::NoSpace, Status::DISK_FULL),
            (VfsError::QuotaExceeded, Status::DISK_FULL),
            (VfsError::Io, Status::IO_DEVICE_ERROR),
            (VfsError::ReadOnly, Status::MEDIA_WRITE_PROTECTED),
            (VfsError::NotFound, Status::OBJECT_NAME_NOT_FOUND),
            (VfsError::PathNotFound, Status::OBJECT_PATH_NOT_FOUND),
            (VfsError::Exists, Status::OBJECT_NAME_COLLISION),
            (VfsError::NotEmpty, Status::DIRECTORY_NOT_EMPTY),
            (VfsError::AccessDenied, Status::ACCESS_DENIED),
            (VfsError::InvalidName, Status::OBJECT_NAME_INVALID),
            (VfsError::NameTooLong, Status::NAME_TOO_LONG),
            (VfsError::TooLarge, Status::FILE_SYSTEM_LIMITATION),
            (VfsError::EasTooLarge, Status::EA_TOO_LARGE),
            (VfsError::InvalidEaName, Status::INVALID_EA_NAME),
            (VfsError::Corrupt, Status::FILE_CORRUPT_ERROR),
        ];
        for (error, status) in rows {
            assert_eq!(of(error), status, "{error:?}");
        }
    }
}
