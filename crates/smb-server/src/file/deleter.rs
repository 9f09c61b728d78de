//! Who marked a name for deletion.

use smb_wire::ids::LeaseKey;
use vfs::Identity;

/// Whoever marked a name for deletion; another may be the one who closes it last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deleter {
    /// On whose behalf the name goes.
    pub identity: Identity,
    /// The directory lease that the marking open named as its parent's.
    pub(super) parent_lease: Option<LeaseKey>,
}

impl Deleter {
    #[must_use]
    pub fn new(identity: &Identity, parent_lease: Option<LeaseKey>) -> Self {
        Self {
            identity: identity.clone(),
            parent_lease,
        }
    }

    /// The directory lease that is not broken when the name goes with an open that named `closer`
    /// ([MS-FSA] 2.1.4.12.2). Whoever neither deletes nor closes learns of it by the break, and so
    /// does whoever did only one of these: its client has not seen the name go.
    #[must_use]
    pub fn spares(&self, closer: Option<LeaseKey>) -> Option<LeaseKey> {
        closer.filter(|_| self.parent_lease == closer)
    }
}
