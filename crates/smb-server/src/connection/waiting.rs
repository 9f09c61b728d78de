//! The requests of a connection that wait and can be cancelled ([MS-SMB2] 3.3.5.16).
//!
//! A request is registered when it first waits for something that a CANCEL can end. A CANCEL that came before is
//! remembered until then: the request may have been waiting for the disk, or for the elements before it.

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    pin::pin,
    sync::Arc,
};

use smb_wire::{
    header::Header,
    ids::{AsyncId, MessageId, SessionId},
};
use vfs::Vfs;

use super::Connection;
use crate::{
    limits::{EARLY_CANCELS_MAX, PARKED_MEMORY, PARKED_UNCHARGED},
    memory::Held,
    state::{EndReason, Ender, Session},
};

/// A request that waits and can be cancelled.
pub(crate) struct Waiting<V: Vfs> {
    pub(crate) message_id: MessageId,
    session_id: SessionId,
    pub(crate) ender: Arc<Ender>,
    /// If the connection is lost, the request continues with this session.
    pub(crate) session: Option<Arc<Session<V>>>,
    _memory: Option<Held>,
}

/// The last requests for which a CANCEL came while they did not wait, by their ids. Most were answered meanwhile.
#[derive(Default)]
pub(crate) struct EarlyCancels(RefCell<VecDeque<MessageId>>);

impl EarlyCancels {
    fn note(&self, id: MessageId) {
        let mut ids = self.0.borrow_mut();
        if ids.len() >= EARLY_CANCELS_MAX {
            ids.pop_front();
        }
        ids.push_back(id);
    }

    pub(super) fn take_all(&self) -> Self {
        Self(RefCell::new(self.0.take()))
    }

    /// Whether a CANCEL came for this request, which waits from now on.
    fn take(&self, id: MessageId) -> bool {
        let mut ids = self.0.borrow_mut();
        let at = ids.iter().position(|early| *early == id);
        at.and_then(|at| ids.remove(at)).is_some()
    }
}

impl<V: Vfs> Connection<V> {
    /// Registers a waiting request; `None` when there are too many, or no memory for more.
    pub(crate) fn register(
        &self,
        request: &Header,
        ender: Arc<Ender>,
        session: Option<Arc<Session<V>>>,
    ) -> Option<AsyncId> {
        let mut waiting = self.waiting.borrow_mut();
        if self.is_closed() || waiting.len() >= self.server.config().limits.parked_per_connection {
            return None;
        }
        let memory = match waiting.len() < PARKED_UNCHARGED {
            true => None,
            false => Some(self.account().keep(PARKED_MEMORY)?),
        };
        let id = AsyncId(self.next_async.get());
        self.next_async.set(id.0 + 1);
        if self.early_cancels.take(request.message_id) {
            ender.end(EndReason::Cancelled);
        }
        let entry = Waiting {
            message_id: request.message_id,
            session_id: request.session_id,
            ender,
            session,
            _memory: memory,
        };
        waiting.insert(id, entry);
        Some(id)
    }

    /// Removes a request that waits no more, because it has its answer.
    pub(crate) fn answered(&self, id: AsyncId) {
        self.waiting.borrow_mut().remove(&id);
        self.some_answered.notify_waiters();
    }

    /// Removes all requests, because the connection is lost.
    pub(crate) fn take_waiting(&self) -> BTreeMap<AsyncId, Waiting<V>> {
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        self.some_answered.notify_waiters();
        waiting
    }

    /// Waits until no request of this session waits.
    pub(crate) async fn all_answered(&self, session: SessionId) {
        // Later requests have greater ids, so those that were seen to have left need no second look.
        let mut first = AsyncId(0);
        loop {
            let mut some_answered = pin!(self.some_answered.notified());
            some_answered.as_mut().enable();
            let left = {
                let waiting = self.waiting.borrow();
                let mut rest = waiting.range(first..);
                rest.find_map(|(id, one)| (one.session_id == session).then_some(*id))
            };
            match left {
                Some(id) => first = id,
                None => return,
            }
            some_answered.await;
        }
    }

    pub(super) fn cancel_waiting(&self) {
        for waiting in self.waiting.borrow().values() {
            waiting.ender.end(EndReason::Cancelled);
        }
    }

    /// Cancels the request with this id, or remembers that it is to be cancelled. Ids that no request has had are
    /// ignored: a later request may have them.
    pub(crate) fn cancel(&self, id: MessageId) {
        let waiting = self.waiting.borrow();
        match waiting.values().find(|waiting| waiting.message_id == id) {
            Some(waiting) => waiting.ender.end(EndReason::Cancelled),
            None if self.credits.borrow().is_used(id.0) => self.early_cancels.note(id),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        limits::ServerLimits,
        restore::world::{World, connection},
    };

    #[test]
    fn requests_that_wait_beyond_a_few_are_charged() {
        let server = World::new(false, ServerLimits::default()).server;
        let connection = connection(&server, None);
        let used = || server.memory.figures().used;
        let before = used();
        let register = || connection.register(&Header::default(), Ender::new(false).0, None);
        assert!((0..PARKED_UNCHARGED).all(|_| register().is_some()));
        assert_eq!(used(), before);
        let last = register().unwrap();
        assert_eq!(used(), before + PARKED_MEMORY);
        connection.answered(last);
        assert_eq!(used(), before);
        server.memory.set_limit(0);
        assert_eq!(register(), None);
    }
}
