//! Whom to tell when an open has to give up what it caches: the connection and session it is used
//! by, for every open whose client is there.
//!
//! An open keeps its number in the file engine when its client loses it and comes back, and the two
//! may be busy on two threads at once: what the loss takes away is never what the return put there,
//! for each has its own volatile FileId ([`Holders::left`]).

use std::{collections::BTreeMap, sync::MutexGuard};

use smb_wire::ids::{FileId, SessionId};

use crate::{file::OpenId, locks::Mutex, state::ids::ConnectionId};

/// Whom to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) connection: ConnectionId,
    pub(crate) session: SessionId,
    pub(crate) file_id: FileId,
}

/// By the engine's number.
#[derive(Debug, Default)]
pub(crate) struct Holders(Mutex<BTreeMap<OpenId, Holder>>);

impl Holders {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<OpenId, Holder>> {
        self.0.lock()
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    pub(crate) fn add(&self, open: OpenId, holder: Holder) {
        self.lock().insert(open, holder);
    }

    pub(crate) fn get(&self, open: OpenId) -> Option<Holder> {
        self.lock().get(&open).copied()
    }

    /// The open is no more.
    pub(crate) fn remove(&self, open: OpenId) {
        self.lock().remove(&open);
    }

    /// Its client is away, as far as it knew it by `file_id`; it may be back by another.
    pub(crate) fn left(&self, open: OpenId, file_id: FileId) {
        let mut holders = self.lock();
        let here = holders.get(&open);
        if here.is_some_and(|holder| holder.file_id.volatile == file_id.volatile) {
            holders.remove(&open);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(volatile: u64) -> Holder {
        Holder {
            connection: ConnectionId(volatile),
            session: SessionId(volatile),
            file_id: FileId {
                persistent: 9,
                volatile,
            },
        }
    }

    #[test]
    fn who_came_back_is_not_removed_by_his_leaving_before() {
        let (holders, open) = (Holders::default(), OpenId(1));
        holders.add(open, holder(1));
        // Lost, back on another thread, and only now the loss takes its holder away.
        holders.add(open, holder(2));
        holders.left(open, holder(1).file_id);
        assert_eq!(holders.get(open), Some(holder(2)));
        holders.left(open, holder(2).file_id);
        assert_eq!((holders.get(open), holders.len()), (None, 0));
        holders.add(open, holder(3));
        holders.remove(open);
        assert_eq!(holders.len(), 0);
    }
}
