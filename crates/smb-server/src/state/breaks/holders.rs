//! Where to send a break: the connection and the session of every open whose client is connected.
//!
//! An open keeps its number in the file engine when its client disconnects and reconnects, and both
//! may be handled on two threads at once. The disconnect never removes the entry of the reconnect,
//! because each has its own volatile FileId ([`Holders::left`]).

use std::collections::BTreeMap;

use smb_wire::ids::{FileId, SessionId};

use crate::{file::OpenId, locks::Mutex, state::ids::ConnectionId};

/// The connection and session of an open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) connection: ConnectionId,
    pub(crate) session: SessionId,
    pub(crate) file_id: FileId,
    /// Its share requires encryption.
    pub(crate) encrypted: bool,
}

/// The holders, by the engine's number of the open.
#[derive(Debug, Default)]
pub(crate) struct Holders(Mutex<BTreeMap<OpenId, Holder>>);

impl Holders {
    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }

    pub(crate) fn add(&self, open: OpenId, holder: Holder) {
        self.0.lock().insert(open, holder);
    }

    pub(crate) fn get(&self, open: OpenId) -> Option<Holder> {
        self.0.lock().get(&open).copied()
    }

    /// The client uses the open on another channel now. If the open was closed or disconnected meanwhile, or its client
    /// has reconnected to it since, there is no entry with this FileId any more, and nothing changes.
    pub(crate) fn moved(&self, open: OpenId, to: Holder) {
        if let Some(holder) = self.0.lock().get_mut(&open)
            && holder.file_id == to.file_id
        {
            *holder = to;
        }
    }

    pub(crate) fn remove(&self, open: OpenId) {
        self.0.lock().remove(&open);
    }

    /// Removes an open whose client was disconnected, unless the client has already reconnected and
    /// the open has another FileId than `file_id`.
    pub(crate) fn left(&self, open: OpenId, file_id: FileId) {
        let mut holders = self.0.lock();
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
            encrypted: false,
        }
    }

    #[test]
    fn who_came_back_is_not_removed_by_his_leaving_before() {
        let (holders, open) = (Holders::default(), OpenId(1));
        holders.add(open, holder(1));
        // The client reconnected on another thread before the disconnect removes the holder.
        holders.add(open, holder(2));
        holders.left(open, holder(1).file_id);
        assert_eq!(holders.get(open), Some(holder(2)));
        holders.left(open, holder(2).file_id);
        assert_eq!((holders.get(open), holders.len()), (None, 0));
        holders.add(open, holder(3));
        holders.remove(open);
        assert_eq!(holders.len(), 0);
    }

    #[test]
    fn only_the_open_that_a_replay_found_moves_to_its_channel() {
        let (holders, open) = (Holders::default(), OpenId(1));
        let replayed = Holder {
            connection: ConnectionId(7),
            ..holder(1)
        };
        holders.add(open, holder(1));
        holders.moved(open, replayed);
        assert_eq!(holders.get(open), Some(replayed));
        // Another channel has closed the open before the replay had its answer.
        holders.remove(open);
        holders.moved(open, replayed);
        assert_eq!(holders.len(), 0);
        // The open was disconnected, and its client has reconnected to it.
        holders.add(open, holder(2));
        holders.moved(open, replayed);
        assert_eq!(holders.get(open), Some(holder(2)));
    }
}
