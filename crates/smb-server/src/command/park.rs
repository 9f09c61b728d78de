//! Lets requests wait for something other than the disk: a lock, a change, a break, a permit ([MS-SMB2] 3.3.4.2,
//! 3.3.5.16). No other code does.

use std::{future::Future, pin::pin, sync::Arc, time::Duration};

use smb_wire::{header::Command, ids::AsyncId, status::Status};
use tokio::sync::oneshot::{self, error::RecvError};
use vfs::Vfs;

use super::Call;
use crate::{
    failure::Failure,
    limits::INTERIM_SET_INFO_MS,
    race::{First, race},
    state::{EndReason, Ender, Open, ParkedRequest},
};

/// The value of an event, or the reason why the wait for it ended first.
async fn first<T>(
    event: impl Future<Output = T>,
    ended: impl Future<Output = Result<EndReason, RecvError>>,
) -> Result<T, EndReason> {
    match race(event, ended).await {
        First::Left(value) => Ok(value),
        First::Right(reason) => Err(reason.unwrap_or(EndReason::Gone)),
    }
}

/// The id of a request that waits, the receiver of its end, and its place on the open or tree connect that it waits on.
type Endable<'a> = (
    AsyncId,
    oneshot::Receiver<EndReason>,
    Option<ParkedRequest<'a>>,
);

impl<V: Vfs> Call<V> {
    /// Waits for `event` after sending STATUS_PENDING, until it occurs or the request is ended: by CANCEL, by the
    /// close of `open`, or by the end of its tree connect, session or connection.
    ///
    /// # Errors
    /// `INTERNAL_ERROR` if the request may not be answered later (in the middle of a chain),
    /// `INSUFFICIENT_RESOURCES` if too many requests wait.
    pub(crate) async fn park<T>(
        &self,
        open: Option<&Open<V>>,
        event: impl Future<Output = T>,
    ) -> Result<Result<T, EndReason>, Failure> {
        self.park_after(open, std::future::ready(()), event).await
    }

    /// As [`Call::park`], but STATUS_PENDING is sent when `before` completes; the request can be ended from now on.
    pub(crate) async fn park_after<T>(
        &self,
        open: Option<&Open<V>>,
        before: impl Future<Output = ()>,
        event: impl Future<Output = T>,
    ) -> Result<Result<T, EndReason>, Failure> {
        // As Windows does (docs/protocol-notes.md, "Waiting inside a compound").
        Status::INTERNAL_ERROR.when(!self.last)?;
        self.park_now(open, before, event).await
    }

    async fn park_now<T>(
        &self,
        open: Option<&Open<V>>,
        before: impl Future<Output = ()>,
        event: impl Future<Output = T>,
    ) -> Result<Result<T, EndReason>, Failure> {
        let (id, mut ended, _place) = self.endable(open)?;
        let early = first(before, &mut ended).await.err();
        if self.chain.pending().is_none() && self.chain.interim(self, id).is_err() {
            return Ok(Err(EndReason::Gone));
        }
        if let Some(reason) = early {
            // If the event has occurred meanwhile, its value belongs to this request and to no other.
            return Ok(first(event, std::future::ready(Ok(reason))).await);
        }
        Ok(first(event, ended).await)
    }

    /// As [`Call::park`], for an event that occurs in bounded time (a break, the end of other listings).
    ///
    /// [MS-SMB2] note 266: in the middle of a chain, only a CREATE gets STATUS_PENDING. A SET_INFO gets it late:
    /// Windows never sends it there, and clients are made for Windows.
    pub(crate) async fn park_bounded<T>(
        &self,
        open: Option<&Open<V>>,
        event: impl Future<Output = T>,
    ) -> Result<Result<T, EndReason>, Failure> {
        let command = self.header.command;
        if command == Command::CREATE || (self.last && command != Command::SET_INFO) {
            return self.park_now(open, std::future::ready(()), event).await;
        }
        // The event may be the break of caching that an earlier element was granted.
        if self.chain.release_grants().is_err() {
            return Ok(Err(EndReason::Gone));
        }
        let mut event = pin!(event);
        let is_quiet = !self.last || self.chain.pending().is_some();
        let quiet = self.park_quietly(open, event.as_mut());
        if is_quiet {
            return quiet.await;
        }
        let patience = Duration::from_millis(INTERIM_SET_INFO_MS);
        match race(quiet, self.server().env.sleep(patience)).await {
            First::Left(over) => over,
            First::Right(()) => self.park_now(open, std::future::ready(()), event).await,
        }
    }

    /// Waits without sending STATUS_PENDING; the request can be ended nevertheless.
    pub(super) async fn park_quietly<T>(
        &self,
        open: Option<&Open<V>>,
        event: impl Future<Output = T>,
    ) -> Result<Result<T, EndReason>, Failure> {
        let (_, ended, _place) = self.endable(open)?;
        Ok(first(event, ended).await)
    }

    /// The failure of a request whose wait was ended.
    pub(super) fn wait_ended(&self) -> Failure {
        let ended = self.check_ended().err();
        ended.unwrap_or(Status::CANCELLED.into())
    }

    /// Registers the request, so that it can be ended as long as the place lasts.
    fn endable<'a>(&'a self, open: Option<&'a Open<V>>) -> Result<Endable<'a>, Failure> {
        let (ender, ended) = Ender::new(self.past_cancel.get());
        let of_tree = self.tree.as_ref().map(|tree| &tree.parked);
        let parked = open.map(|open| &open.parked).or(of_tree);
        let place = parked.map(|parked| parked.add(&ender));
        Ok((self.register(ender)?, ended, place))
    }

    fn register(&self, ender: Arc<Ender>) -> Result<AsyncId, Failure> {
        // The request continues after its channel is lost if the client can ask for the result on another one: a CREATE
        // with a CreateGuid.
        let session = self.session().ok().filter(|_| self.replayable.get());
        if let Some(id) = self.chain.registered.get() {
            // It has waited before, or STATUS_PENDING was sent because of a slow disk: the same AsyncId stays.
            let mut waiting = self.connection.waiting.borrow_mut();
            match (waiting.get_mut(&id), session) {
                (Some(waiting), _) => {
                    // A CANCEL may have come while the request did not wait ([MS-SMB2] 3.3.5.16).
                    ender.follows(&waiting.ender);
                    waiting.ender = ender;
                }
                // The connection was lost meanwhile, and the request continues.
                (None, Some(session)) if session.adopt(self.connection.id, &ender) => {}
                (None, _) => ender.end(EndReason::Gone),
            }
            return Ok(id);
        }
        let id = (self.connection).register(&self.header, ender, session.cloned());
        self.chain.registered.set(id);
        id.ok_or(Failure::Status(Status::INSUFFICIENT_RESOURCES))
    }

    /// Sends STATUS_PENDING where it is permitted. The work continues.
    pub(super) fn send_pending(&self) {
        if !self.last || self.chain.pending().is_some() {
            return;
        }
        let id = self.chain.registered.get().or_else(|| {
            // The other half of the ender is dropped: a request that the disk is executing cannot be
            // cancelled (docs/protocol-notes.md, "What CANCEL ends").
            let (ender, _) = Ender::new(false);
            self.connection.register(&self.header, ender, None)
        });
        self.chain.registered.set(id);
        if let Some(id) = id
            && self.chain.interim(self, id).is_err()
        {
            self.connection.close();
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::{
        collections::VecDeque,
        future::{pending, poll_fn, ready},
        rc::Rc,
        task::{Context, Poll, Waker},
    };

    use bytes::Bytes;
    use smb_wire::{
        header::{Header, HeaderFlags, TRANSPORT_HEADER_SIZE},
        ids::MessageId,
    };

    use super::*;
    use crate::{
        command::{cancel, chain::Chain},
        limits::ServerLimits,
        link::inbound::{Request, Signature},
        restore::world::{Back, World, connection, run},
        state::TreeConnect,
    };

    const ID: MessageId = MessageId(7);

    /// A test request: a SET_INFO in the middle of a chain.
    pub(in crate::command) fn call() -> Call<Back> {
        let server = World::new(false, ServerLimits::default()).server;
        let connection = connection(&server, None);
        let chain = Rc::new(Chain::new(&connection, None, 2));
        let header = Header {
            command: Command::SET_INFO,
            message_id: ID,
            ..Header::default()
        };
        Call::new(&chain, &connection, header)
    }

    #[test]
    fn a_cancel_between_two_waits_without_an_answer_ends_the_second() {
        let call = call();
        let first = run(call.park_bounded(None, ready(())));
        assert!(matches!(first, Ok(Ok(()))));
        let waiting = call.connection.waiting.borrow();
        let found = waiting.values().find(|one| one.message_id == ID);
        found.unwrap().ender.end(EndReason::Cancelled);
        drop(waiting);
        let second = run(call.park_bounded(None, pending::<()>()));
        assert!(matches!(second, Ok(Err(EndReason::Cancelled))));
    }

    #[test]
    fn a_cancel_before_the_first_wait_ends_it() {
        let call = call();
        let cancel = Request {
            header: Header {
                command: Command::CANCEL,
                message_id: ID,
                ..Header::default()
            },
            message: Bytes::new(),
            signature: Signature::Absent,
        };
        let early = || {
            let (id, mut ended, _) = call.endable(None).unwrap();
            call.connection.waiting.borrow_mut().remove(&id);
            call.chain.registered.set(None);
            ended.try_recv() == Ok(EndReason::Cancelled)
        };
        // It may be the id of a request to come.
        cancel::handle(&call.connection, &cancel);
        let mut credits = call.connection.credits.borrow_mut();
        credits.admit(0, 1).unwrap();
        assert_eq!(u64::from(credits.grant(7)), ID.0);
        credits.admit(ID.0, 1).unwrap();
        drop(credits);
        assert!(!early());
        cancel::handle(&call.connection, &cancel);
        assert!(early());
        assert!(!early());
    }

    #[test]
    fn a_wait_on_no_open_ends_with_the_tree_connect() {
        let mut call = call();
        let shares = call.server().shares();
        let tree = TreeConnect::of(Arc::clone(shares.find("data").unwrap()));
        let tree = Arc::new(tree);
        call.tree = Some(Arc::clone(&tree));
        let mut context = Context::from_waker(Waker::noop());
        let mut waits = pin!(call.park_bounded(None, pending::<()>()));
        assert!(waits.as_mut().poll(&mut context).is_pending());
        let session = call.header.session_id;
        let mut answered = pin!(call.connection.all_answered(session));
        assert!(answered.as_mut().poll(&mut context).is_pending());
        tree.parked.end(EndReason::Gone);
        let ended = waits.as_mut().poll(&mut context);
        assert!(matches!(ended, Poll::Ready(Ok(Err(EndReason::Gone)))));
        assert!(answered.as_mut().poll(&mut context).is_pending());
        call.connection
            .answered(call.chain.registered.take().unwrap());
        assert!(answered.as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn an_interim_response_repeats_the_flags_of_its_request() {
        let mut call = call();
        call.last = true;
        call.header.flags = HeaderFlags::PRIORITY_MASK | HeaderFlags::REPLAY;
        call.send_pending();
        let mut sent = VecDeque::new();
        run(call.connection.outbox.take(&mut sent));
        let message = sent.front().unwrap().get(TRANSPORT_HEADER_SIZE..);
        let header = Header::read(message.unwrap()).unwrap();
        let of_its_own = HeaderFlags::RESPONSE | HeaderFlags::ASYNC;
        assert_eq!(header.flags, of_its_own | call.header.flags);
    }

    #[test]
    fn a_cancel_after_the_change_ends_no_wait() {
        let call = call();
        call.past_cancel.set(true);
        let mut polls = 0;
        let event = poll_fn(|_| {
            for one in call.connection.waiting.borrow().values() {
                one.ender.end(EndReason::Cancelled);
            }
            polls += 1;
            match polls {
                1 => Poll::Pending,
                _ => Poll::Ready(()),
            }
        });
        let waited = run(call.park_bounded(None, event));
        assert!(matches!(waited, Ok(Ok(()))));
    }
}
