//! The sessions of all connections ([MS-SMB2] 3.3.1.5, GlobalSessionTable).
//!
//! A session is in this table from the success of its login to its end, and has one of the places that the users share
//! ([`Quota`](crate::state::Quota)). A login takes the place first, so that a refusal leaves nothing to undo.

use std::sync::Arc;

use smb_wire::ids::SessionId;
use vfs::Vfs;

use super::{Server, Session};
use crate::state::{ConnectionId, QuotaPlace, QuotaUser};

impl<V: Vfs> Server<V> {
    pub(crate) fn all_sessions(&self) -> Vec<Arc<Session<V>>> {
        let sessions = self.sessions.lock();
        let all = sessions.values().map(|(session, _)| session);
        all.cloned().collect()
    }

    pub(crate) fn fresh_session_id(&self) -> SessionId {
        let sessions = self.sessions.lock();
        loop {
            let id = SessionId(self.ids.session());
            if !sessions.contains_key(&id) {
                return id;
            }
        }
    }

    pub(crate) fn session(&self, id: SessionId) -> Option<Arc<Session<V>>> {
        let sessions = self.sessions.lock();
        sessions.get(&id).map(|(session, _)| Arc::clone(session))
    }

    /// The place of a new session of `who`: that of the session `replaced`, which will end, or a free one. `None` if
    /// there are `max` sessions, or `who` already has half of those free to it.
    pub(crate) fn session_place(
        &self,
        who: QuotaUser,
        max: usize,
        replaced: Option<SessionId>,
    ) -> Option<Arc<QuotaPlace>> {
        let handed_over = replaced.and_then(|id| {
            let sessions = self.sessions.lock();
            let (_, place) = sessions.get(&id)?;
            // Of several sessions that replace the same one at once, only the first gets its place.
            (Arc::strong_count(place) == 1).then(|| Arc::clone(place))
        });
        handed_over.or_else(|| self.session_places.enter(who, max, None).map(Arc::new))
    }

    /// Adds a session, whose place is counted.
    pub(crate) fn add_session(&self, session: Arc<Session<V>>, place: Arc<QuotaPlace>) {
        self.sessions.lock().insert(session.id, (session, place));
    }

    pub(crate) fn remove_session(&self, id: SessionId) {
        // It is dropped without the lock.
        let _removed = self.sessions.lock().remove(&id);
    }

    /// The channels of a session, `first` before the others; for break notifications ([MS-SMB2] 3.3.4.6).
    pub(crate) fn channels_of(&self, id: SessionId, first: ConnectionId) -> Vec<ConnectionId> {
        let session = self.session(id);
        let mut channels = session.map_or_else(Vec::new, |session| session.channels());
        channels.retain(|channel| *channel != first);
        channels.insert(0, first);
        channels
    }
}
