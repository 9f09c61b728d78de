//! Maps errno numbers to meanings in one table.
//!
//! Every number that Linux file systems return is a row. A number that is not listed counts as an I/O error, because to
//! report less damage than there may be would be worse. Where a number means something else to a particular call
//! (ENOENT of a middle component, ENXIO of a seek) the caller looks at the number before it comes here.

use crate::{
    VfsError, VfsResult,
    disk::{DiskResult, Errno},
};

/// The file system lacks the call.
pub(super) const UNSUPPORTED: [i32; 3] = [libc::EOPNOTSUPP, libc::ENOSYS, libc::ENOTTY];
/// The kernel refuses it to the identity that asks.
pub(super) const REFUSED: [i32; 2] = [libc::EACCES, libc::EPERM];
/// There is no such attribute, or there are none on the file system.
pub(super) const ABSENT: [i32; 4] = [libc::ENODATA, libc::EOPNOTSUPP, libc::ENOSYS, libc::ENOTTY];

const TABLE: &[(i32, VfsError)] = &[
    (libc::ENOENT, VfsError::NotFound),
    (libc::EEXIST, VfsError::Exists),
    (libc::ENOTDIR, VfsError::NotADirectory),
    (libc::EISDIR, VfsError::IsADirectory),
    (libc::ENOTEMPTY, VfsError::NotEmpty),
    (libc::EACCES, VfsError::AccessDenied),
    (libc::EPERM, VfsError::AccessDenied),
    // The file or folder is encrypted (fscrypt), and its key is not there.
    (libc::ENOKEY, VfsError::AccessDenied),
    // The descriptor was not opened for this operation.
    (libc::EBADF, VfsError::AccessDenied),
    (libc::EROFS, VfsError::ReadOnly),
    (libc::ENOSPC, VfsError::NoSpace),
    (libc::EDQUOT, VfsError::QuotaExceeded),
    (libc::EIO, VfsError::Io),
    // A file handle that the server of NFS no longer knows: perhaps the file is gone, perhaps the whole export. For a
    // directory, `PosixVfs::is_removed` distinguishes them.
    (libc::ESTALE, VfsError::Io),
    (libc::ENAMETOOLONG, VfsError::NameTooLong),
    (libc::EILSEQ, VfsError::InvalidName),
    (libc::ELOOP, VfsError::SymbolicLink),
    (libc::EXDEV, VfsError::CrossDevice),
    (libc::EFBIG, VfsError::TooLarge),
    (libc::EOVERFLOW, VfsError::TooLarge),
    (libc::E2BIG, VfsError::TooLarge),
    (libc::ERANGE, VfsError::TooLarge),
    (libc::EINVAL, VfsError::InvalidArgument),
    (libc::ENXIO, VfsError::InvalidArgument),
    (libc::EOPNOTSUPP, VfsError::NotSupported),
    (libc::ENOSYS, VfsError::NotSupported),
    (libc::ENOTTY, VfsError::NotSupported),
    (libc::EMFILE, VfsError::Exhausted),
    (libc::ENFILE, VfsError::Exhausted),
    (libc::ENOMEM, VfsError::Exhausted),
    (libc::EAGAIN, VfsError::Exhausted),
    (libc::ENOBUFS, VfsError::Exhausted),
    (libc::EINTR, VfsError::Exhausted),
    (libc::EBUSY, VfsError::Busy),
    (libc::ETXTBSY, VfsError::Busy),
    (libc::EMLINK, VfsError::TooManyLinks),
    (libc::ENODATA, VfsError::NoAttribute),
];

impl From<Errno> for VfsError {
    fn from(errno: Errno) -> Self {
        TABLE
            .iter()
            .find(|(number, _)| *number == errno.0)
            .map_or(VfsError::Io, |(_, meaning)| *meaning)
    }
}

impl VfsError {
    /// The error of a step that a sync needs first: a lack of resources there is no failed sync.
    pub(super) fn before_sync(self) -> Self {
        match self {
            Self::Exhausted => Self::NotStarted,
            other => other,
        }
    }

    /// The result of fsync or fdatasync of a [`crate::disk::Disk`]: EAGAIN means that it never began. Any other
    /// number but those of a full or read-only file system is a failed disk: drivers leave ENODATA for a medium
    /// error, EILSEQ, EOPNOTSUPP, ENOMEM and more in the page cache.
    pub(super) fn of_sync(errno: Errno) -> Self {
        match errno.0 {
            libc::EAGAIN => Self::NotStarted,
            libc::ENOSPC | libc::EDQUOT | libc::EROFS => errno.into(),
            _ => Self::Io,
        }
    }

    /// The result of a durable write, which may be that of its sync: only errors that certainly come from the write
    /// itself have their usual meaning.
    pub(super) fn of_durable_write(errno: Errno) -> Self {
        match errno.0 {
            libc::EACCES | libc::EPERM | libc::EBADF | libc::EISDIR | libc::EFBIG => errno.into(),
            _ => Self::of_sync(errno),
        }
    }
}

impl Errno {
    pub(super) fn is(self, any: &[i32]) -> bool {
        any.contains(&self.0)
    }

    /// Whether the file system lacks the call.
    pub(super) fn unsupported(self) -> bool {
        self.is(&UNSUPPORTED)
    }
}

/// The result of a call; `None` if its error is one of `any`.
pub(super) fn unless<T>(result: DiskResult<T>, any: &[i32]) -> VfsResult<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(errno) if errno.is(any) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_reached_and_unknown_is_io() {
        for (index, (number, meaning)) in TABLE.iter().enumerate() {
            assert_eq!(VfsError::from(Errno(*number)), *meaning, "row {index}");
            assert!(
                TABLE[..index].iter().all(|(other, _)| other != number),
                "errno {number} twice"
            );
        }
        assert_eq!(VfsError::from(Errno(0)), VfsError::Io);
        assert_eq!(VfsError::from(Errno(-1)), VfsError::Io);
        assert_eq!(VfsError::from(Errno(libc::EUCLEAN)), VfsError::Io);
    }

    #[test]
    fn a_sync_that_never_ran_is_no_failed_sync() {
        assert_eq!(VfsError::of_sync(Errno(libc::EAGAIN)), VfsError::NotStarted);
        assert_eq!(VfsError::of_sync(Errno(libc::ENOMEM)), VfsError::Io);
        assert_eq!(VfsError::of_sync(Errno(libc::EIO)), VfsError::Io);
        for errno in [libc::EMFILE, libc::ENFILE, libc::ENOMEM] {
            let opening = VfsError::from(Errno(errno));
            assert_eq!(opening.before_sync(), VfsError::NotStarted);
        }
        assert_eq!(VfsError::Io.before_sync(), VfsError::Io);
    }

    #[test]
    fn what_devices_say_to_a_sync_is_a_failed_disk() {
        for errno in [libc::ENODATA, libc::EILSEQ, libc::EBUSY, libc::EINVAL] {
            assert_eq!(VfsError::of_sync(Errno(errno)), VfsError::Io);
            assert_eq!(VfsError::of_durable_write(Errno(errno)), VfsError::Io);
        }
        let full = Errno(libc::ENOSPC);
        assert_eq!(VfsError::of_durable_write(full), VfsError::NoSpace);
        let denied = Errno(libc::EBADF);
        assert_eq!(VfsError::of_durable_write(denied), VfsError::AccessDenied);
        let queue_full = Errno(libc::EAGAIN);
        assert_eq!(VfsError::of_durable_write(queue_full), VfsError::NotStarted);
    }

    #[test]
    fn the_rows_that_clients_see_most() {
        for (number, meaning) in [
            (2, VfsError::NotFound),
            (13, VfsError::AccessDenied),
            (17, VfsError::Exists),
            (28, VfsError::NoSpace),
            (39, VfsError::NotEmpty),
            (61, VfsError::NoAttribute),
            (116, VfsError::Io),
            (122, VfsError::QuotaExceeded),
            (126, VfsError::AccessDenied),
        ] {
            assert_eq!(VfsError::from(Errno(number)), meaning);
        }
    }
}
