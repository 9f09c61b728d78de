//! The error type of the file system, whose variants are meanings rather than errno numbers.
//!
//! `posix/errno.rs` makes it from an errno; `smb-server/src/failure.rs` makes a status of it.

use std::fmt;

/// The reason why a file-system operation failed. Unless a method says otherwise, an operation that
/// fails has changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum VfsError {
    /// The last component does not exist.
    NotFound,
    /// A component before the last does not exist or is no directory.
    PathNotFound,
    /// The name is taken.
    Exists,
    /// A directory was required.
    NotADirectory,
    /// A file was required, and the object is a directory.
    IsADirectory,
    /// The directory still has entries.
    NotEmpty,
    /// The kernel or the identity forbids it (EACCES, EPERM).
    AccessDenied,
    /// The file system is mounted read-only or has become read-only (EROFS).
    ReadOnly,
    /// No space (ENOSPC).
    NoSpace,
    /// Quota exhausted (EDQUOT).
    QuotaExceeded,
    /// The device failed (EIO). A retry never turns it into success.
    Io,
    /// The inode is poisoned: an earlier write-back error has not been repaired.
    Poisoned,
    /// The name cannot be stored (characters, length of a component).
    InvalidName,
    /// A name or path is longer than the file system allows.
    NameTooLong,
    /// The path has a symbolic link that the share's policy does not follow.
    SymbolicLink,
    /// Source and target lie on different file systems.
    CrossDevice,
    /// The file or an attribute would be larger than the file system allows.
    TooLarge,
    /// A new file has no room for the extended attributes that its client gives it.
    EasTooLarge,
    /// An extended attribute of this name cannot be stored, or is the server's own.
    InvalidEaName,
    /// An argument is out of range.
    InvalidArgument,
    /// This file system cannot do it.
    NotSupported,
    /// No descriptor, memory or ring entry left; try again later.
    Exhausted,
    /// A sync could not be begun for want of a descriptor, memory or queue place. The disk was not
    /// asked for anything, so nothing is lost, and the caller should try again. Only syncs return
    /// this.
    NotStarted,
    /// The object is in use in a way that forbids the operation (EBUSY, ETXTBSY).
    Busy,
    /// Too many links to the inode.
    TooManyLinks,
    /// An extended attribute, stream or stored structure is absent.
    NoAttribute,
    /// Something stored on disk (an attribute of this server or of Samba) cannot be decoded.
    Corrupt,
}

impl VfsError {
    /// Fails with this error if `condition` holds.
    ///
    /// # Errors
    /// This error.
    #[inline]
    pub const fn when(self, condition: bool) -> Result<(), Self> {
        if condition { Err(self) } else { Ok(()) }
    }

    /// Whether a write on NFS that fails so may have reported the failure of an earlier write-back, which no sync
    /// through its descriptor reports then (since Linux 5.19, `nfs_file_write`). Other file systems return these errors
    /// as well.
    #[must_use]
    pub fn may_be_of_earlier_write(self) -> bool {
        matches!(self, Self::NoSpace | Self::QuotaExceeded | Self::TooLarge)
    }
}

impl fmt::Display for VfsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl std::error::Error for VfsError {}
