//! Maps errno numbers to meanings in one place.
//!
//! Every number that Linux file systems return has its meaning here. A number that is not listed counts as an I/O
//! error, because to report less damage than there may be would be worse. Where a number means something else to a
//! particular call (ENOENT of a middle component, ENXIO of a seek) the caller looks at the number before it comes here.

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

impl From<Errno> for VfsError {
    fn from(errno: Errno) -> Self {
        match errno.0 {
            libc::ENOENT => Self::NotFound,
            libc::EEXIST => Self::Exists,
            libc::ENOTDIR => Self::NotADirectory,
            libc::EISDIR => Self::IsADirectory,
            libc::ENOTEMPTY => Self::NotEmpty,
            // EBADF: the descriptor was not opened for this operation. ENOKEY: the file or folder is encrypted
            // (fscrypt), and its key is not there.
            libc::EACCES | libc::EPERM | libc::EBADF | libc::ENOKEY => Self::AccessDenied,
            libc::EROFS => Self::ReadOnly,
            libc::ENOSPC => Self::NoSpace,
            libc::EDQUOT => Self::QuotaExceeded,
            // ESTALE: a file handle that the server of NFS no longer knows: perhaps the file is gone, perhaps the whole
            // export. For a directory, `PosixVfs::is_removed` distinguishes them.
            libc::EIO | libc::ESTALE => Self::Io,
            libc::ENAMETOOLONG => Self::NameTooLong,
            libc::EILSEQ => Self::InvalidName,
            libc::ELOOP => Self::SymbolicLink,
            libc::EXDEV => Self::CrossDevice,
            libc::EFBIG | libc::EOVERFLOW | libc::E2BIG | libc::ERANGE => Self::TooLarge,
            libc::EINVAL | libc::ENXIO => Self::InvalidArgument,
            libc::EOPNOTSUPP | libc::ENOSYS | libc::ENOTTY => Self::NotSupported,
            libc::EMFILE | libc::ENFILE | libc::ENOMEM => Self::Exhausted,
            libc::EAGAIN | libc::ENOBUFS | libc::EINTR => Self::Exhausted,
            libc::EBUSY | libc::ETXTBSY => Self::Busy,
            libc::EMLINK => Self::TooManyLinks,
            libc::ENODATA => Self::NoAttribute,
            _ => Self::Io,
        }
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
    fn an_unknown_errno_is_an_io_error() {
        for unknown in [0, -1, libc::EUCLEAN] {
            assert_eq!(VfsError::from(Errno(unknown)), VfsError::Io);
        }
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
