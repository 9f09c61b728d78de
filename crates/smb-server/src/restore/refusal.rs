//! The reasons why a recorded open is not restored, and what the log says about it.

use vfs::VfsError;

use crate::persistent::OpenRecord;

/// The reason why an open is not restored.
pub(super) enum Refusal {
    /// Something that it names no longer exists.
    Gone(String),
    /// Its file could not be examined.
    Unknown(String),
    /// Its disk does not answer.
    Silent,
}

impl From<&str> for Refusal {
    fn from(why: &str) -> Self {
        Self::Gone(why.to_owned())
    }
}

impl From<VfsError> for Refusal {
    fn from(error: VfsError) -> Self {
        let gone = matches!(
            error,
            VfsError::NotFound
                | VfsError::PathNotFound
                | VfsError::NotADirectory
                | VfsError::IsADirectory
                | VfsError::InvalidName
                | VfsError::NameTooLong
                | VfsError::SymbolicLink
        );
        if gone {
            Self::Gone(error.to_string())
        } else {
            Self::Unknown(error.to_string())
        }
    }
}

/// Logs that an open is lost.
pub(super) fn lost(record: &OpenRecord, why: &str) {
    tracing::error!(
        share = record.share,
        path = record.path.join("/"),
        stream = record.stream.as_deref().unwrap_or_default(),
        user = record.user,
        locks = record.engine.locks.len(),
        why,
        "a persistent handle of an earlier run is lost: its client gets an error when it comes back"
    );
}

/// Logs that an open could not be examined.
pub(super) fn unknown(record: &OpenRecord, why: &str) {
    tracing::error!(
        share = record.share,
        path = record.path.join("/"),
        stream = record.stream.as_deref().unwrap_or_default(),
        user = record.user,
        why,
        "a persistent handle of an earlier run could not be examined: the next start tries again"
    );
}
