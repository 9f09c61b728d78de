//! Waiting for something other than the disk: a lock, a change, a break. The only place that
//! does ([MS-SMB2] 3.3.4.2, 3.3.5.16).

use std::{future::Future, sync::Arc};

use smb_wire::{ids::AsyncId, status::Status};
use vfs::Vfs;

use super::{Call, Failure};
use crate::{
    race::{First, race},
    state::{EndReason, Ender, Open, Session},
};

impl<V: Vfs> Call<V> {
    /// Waits for `event`, having told the client so, until it comes or the request is ended:
    /// by CANCEL, by the close of `open`, by the end of its session or connection.
    ///
    /// # Errors
    /// `INTERNAL_ERROR` where the request may not be answered later (in the middle of a chain),
    /// `INSUFFICIENT_RESOURCES` with too many waiting.
    pub(crate) async fn park<T>(
        &self,
        open: Option<&Open<V>>,
        event: impl Future<Output = T>,
    ) -> Result<Result<T, EndReason>, Failure> {
        self.park_after(open, std::future::ready(()), event).await
    }

    /// As [`Call::park`]; the client is told when `before` is done, but the request can be ended
    /// from now on.
    ///
    /// # Errors
    /// As [`Call::park`].
    pub(crate) async fn park_after<T>(
        &self,
        open: Option<&Open<V>>,
        before: impl Future<Output = ()>,
        event: impl Future<Output = T>,
    ) -> Result<Result<T, EndReason>, Failure> {
        if !self.last {
            // spec-notes 5.7: Windows refuses what would have to wait inside a chain.
            return Err(Status::INTERNAL_ERROR.into());
        }
        let (ender, ended) = Ender::new();
        if let Some(open) = open {
            open.park(&ender);
            if open.is_closing() {
                ender.end(EndReason::Closed);
            }
        }
        let id = self.register(ender)?;
        let mut ended = ended;
        let early = match race(before, &mut ended).await {
            First::Left(()) => None,
            First::Right(reason) => Some(reason.unwrap_or(EndReason::Gone)),
        };
        if self.chain.pending().is_none() && self.chain.interim(self, id).is_err() {
            return Ok(Err(EndReason::Gone));
        }
        if let Some(reason) = early {
            // What has come meanwhile is this request's, and nobody else gets it.
            return Ok(match race(event, std::future::ready(reason)).await {
                First::Left(value) => Ok(value),
                First::Right(reason) => Err(reason),
            });
        }
        let outcome = match race(event, ended).await {
            First::Left(value) => Ok(value),
            First::Right(reason) => Err(reason.unwrap_or(EndReason::Gone)),
        };
        Ok(outcome)
    }

    /// As [`Call::park`], for what ends by itself in bounded time (a break): in the middle of a
    /// chain it waits without a word.
    pub(crate) async fn park_bounded<T>(
        &self,
        open: Option<&Open<V>>,
        event: impl Future<Output = T>,
    ) -> Result<Result<T, EndReason>, Failure> {
        if self.last {
            return self.park(open, event).await;
        }
        // The event may be the break of what an element before was granted.
        if self.chain.release_grants().is_err() {
            return Ok(Err(EndReason::Gone));
        }
        Ok(Ok(event.await))
    }

    /// The session of a request that goes on though its channel is lost, for the client finds out
    /// on another one: a CREATE with a CreateGuid.
    fn outlives_channel(&self) -> Option<Arc<Session<V>>> {
        let session = self.session().ok()?;
        self.replayable.get().then(|| Arc::clone(session))
    }

    fn register(&self, ender: Arc<Ender>) -> Result<AsyncId, Failure> {
        let session = self.outlives_channel();
        if let Some(id) = self.chain.pending() {
            // Already told (a slow disk before): the same AsyncId stays.
            let mut waiting = self.connection.waiting.borrow_mut();
            match (waiting.get_mut(&id), session) {
                (Some(waiting), _) => waiting.ender = ender,
                // The connection is lost meanwhile, and the request goes on.
                (None, Some(session)) if session.adopt(self.connection.id, &ender) => {}
                (None, _) => ender.end(EndReason::Gone),
            }
            return Ok(id);
        }
        self.connection
            .register(self.header.message_id, ender, session)
            .ok_or(Failure::Status(Status::INSUFFICIENT_RESOURCES))
    }

    /// Tells the client that the answer takes longer, where it may be told. The work goes on.
    pub(super) fn tell_pending(&self) {
        if !self.last || self.chain.pending().is_some() {
            return;
        }
        // Nobody listens to this ender: what the disk has begun is not cancelled
        // (spec-notes 6.4).
        let (ender, _) = Ender::new();
        if let Some(id) = self
            .connection
            .register(self.header.message_id, ender, None)
            && self.chain.interim(self, id).is_err()
        {
            self.connection.close();
        }
    }
}
