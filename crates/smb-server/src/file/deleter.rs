//! The request that marked a name for deletion.

use smb_wire::ids::LeaseKey;
use vfs::Identity;

/// The client that marked a name for deletion; another client may be the last to close it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deleter {
    /// The identity on whose behalf the name is removed.
    pub identity: Identity,
    /// The directory lease that the marking open named as its parent's.
    pub(super) parent_lease: Option<LeaseKey>,
    /// An open that marked the name is write-through, so the removal is stable before the answer to the close that
    /// carries it out.
    pub write_through: bool,
}

impl Deleter {
    pub fn new(identity: &Identity, parent_lease: Option<LeaseKey>, write_through: bool) -> Self {
        Self {
            identity: identity.clone(),
            parent_lease,
            write_through,
        }
    }

    /// The directory lease that is not broken when the name is removed by the close of an open that named `closer`
    /// ([MS-FSA] 2.1.4.12.2). A client that did not both mark the name and close the open has not seen the removal,
    /// so its lease is broken.
    pub fn spares(&self, closer: Option<LeaseKey>) -> Option<LeaseKey> {
        closer.filter(|_| self.parent_lease == closer)
    }
}
