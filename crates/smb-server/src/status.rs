//! Maps file-system errors to statuses: one table, tested row by row.

use smb_wire::status::Status;
use vfs::VfsError;

/// The status of a file-system error ([MS-FSA] and [MS-ERREF] names).
pub(crate) fn of(error: VfsError) -> Status {
    match error {
        VfsError::NotFound => Status::OBJECT_NAME_NOT_FOUND,
        VfsError::PathNotFound => Status::OBJECT_PATH_NOT_FOUND,
        VfsError::Exists => Status::OBJECT_NAME_COLLISION,
        VfsError::NotADirectory => Status::NOT_A_DIRECTORY,
        VfsError::IsADirectory => Status::FILE_IS_A_DIRECTORY,
        VfsError::NotEmpty => Status::DIRECTORY_NOT_EMPTY,
        VfsError::AccessDenied | VfsError::SymbolicLink => Status::ACCESS_DENIED,
        VfsError::ReadOnly => Status::MEDIA_WRITE_PROTECTED,
        VfsError::NoSpace => Status::DISK_FULL,
        VfsError::QuotaExceeded => Status::QUOTA_EXCEEDED,
        VfsError::Io | VfsError::Poisoned => Status::IO_DEVICE_ERROR,
        VfsError::InvalidName => Status::OBJECT_NAME_INVALID,
        VfsError::NameTooLong => Status::OBJECT_NAME_INVALID,
        VfsError::CrossDevice => Status::NOT_SAME_DEVICE,
        VfsError::TooLarge => Status::FILE_SYSTEM_LIMITATION,
        VfsError::InvalidArgument => Status::INVALID_PARAMETER,
        VfsError::NotSupported => Status::NOT_SUPPORTED,
        VfsError::Exhausted | VfsError::NotStarted => Status::INSUFFICIENT_RESOURCES,
        VfsError::Busy => Status::SHARING_VIOLATION,
        VfsError::TooManyLinks => Status::FILE_SYSTEM_LIMITATION,
        VfsError::NoAttribute => Status::OBJECT_NAME_NOT_FOUND,
        VfsError::Corrupt => Status::INTERNAL_ERROR,
        _ => Status::UNSUCCESSFUL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_full_failing_or_read_only_disk_says_differs() {
        let rows = [
            (VfsError::NoSpace, Status::DISK_FULL),
            (VfsError::QuotaExceeded, Status::QUOTA_EXCEEDED),
            (VfsError::Io, Status::IO_DEVICE_ERROR),
            (VfsError::ReadOnly, Status::MEDIA_WRITE_PROTECTED),
            (VfsError::NotFound, Status::OBJECT_NAME_NOT_FOUND),
            (VfsError::PathNotFound, Status::OBJECT_PATH_NOT_FOUND),
            (VfsError::Exists, Status::OBJECT_NAME_COLLISION),
            (VfsError::NotEmpty, Status::DIRECTORY_NOT_EMPTY),
            (VfsError::AccessDenied, Status::ACCESS_DENIED),
        ];
        for (error, status) in rows {
            assert_eq!(of(error), status, "{error:?}");
        }
    }
}
