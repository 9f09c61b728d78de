//! Connects the handlers with the file engine: carries out the engine's effects and waits for its wake-ups.
//!
//! `OnDisk` is a request with its open and the parts of both that a handler works with. A CREATE, which has no open
//! yet, uses the free functions.

use std::{pin::pin, sync::Arc, time::Duration};

use durability::PendingContents;
use tokio::sync::oneshot;
use vfs::{Attr, FileKey, Lookup, Node, Vfs, VfsError};

use super::Call;
use crate::{
    failure::Failure,
    file::{Actor, CountedUser, Effects, Link, Operation, Outcome, Place, SharePath, Step, Waiter},
    race::{First, race, with_patience},
    state::{Disk, Open, STILL_MAX, Server, Share, breaks::perform},
    token::Token,
};

/// A request on an open of a share.
pub(super) struct OnDisk<'a, V: Vfs> {
    pub(super) call: &'a Call<V>,
    pub(super) open: &'a Open<V>,
    pub(super) server: &'a Arc<Server<V>>,
    pub(super) share: &'a Arc<Share<V>>,
    pub(super) disk: Disk<'a, V>,
}

/// How often a name that is being moved is looked up before renames have to wait for the lookup.
const LOOKS_MAX: usize = 16;

impl<'a, V: Vfs> OnDisk<'a, V> {
    /// # Errors
    /// `INVALID_DEVICE_REQUEST`: the open is a pipe.
    pub(super) fn new(call: &'a Call<V>, open: &'a Open<V>) -> Result<Self, Failure> {
        Self::of(call, open, open.disk()?)
    }

    /// As [`Self::new`], for requests that only files and streams support.
    pub(super) fn file(call: &'a Call<V>, open: &'a Open<V>) -> Result<Self, Failure> {
        Self::of(call, open, open.file()?)
    }

    fn of(call: &'a Call<V>, open: &'a Open<V>, disk: Disk<'a, V>) -> Result<Self, Failure> {
        Ok(Self {
            call,
            open,
            server: call.server(),
            share: call.share()?,
            disk,
        })
    }

    pub(super) fn vfs(&self) -> &'a V {
        &self.share.vfs
    }

    /// The identity on whose behalf the request is carried out.
    pub(super) fn token(&self) -> Result<Arc<Token>, Failure> {
        self.call.token()
    }

    /// Attributes of the open's file, directory or stream.
    pub(super) async fn attr(&self) -> Result<Attr, Failure> {
        let mut attr = self.vfs().attr(&self.disk.node).await?;
        self.server.change_times.apply(&mut attr);
        Ok(attr)
    }

    /// Whether the link or stream of this open is marked for deletion.
    pub(super) fn is_delete_pending(&self) -> bool {
        let files = &self.server.files;
        files.is_delete_pending(&self.disk.place, self.open.engine)
    }

    /// Whether this open is of a named stream that is itself to be deleted ([MS-FSA] Stream.IsDeleted). A stream whose
    /// file is to be deleted does not count, because that deletion may be taken back.
    pub(super) fn is_deleted_stream(&self) -> bool {
        let place = &self.disk.place;
        place.stream.is_some() && self.server.files.is_stream_deleted(place)
    }

    /// Breaks the caching of others that conflicts with an operation, and waits until the breaks are over.
    pub(super) async fn operation(&self, operation: Operation) -> Result<(), Failure> {
        let (place, actor) = (&self.disk.place, Actor::Open(self.open.engine));
        break_conflicts(self.call, Some(self.open), place, actor, operation).await
    }

    /// As [`Self::operation`] on the data of the open, at little cost if nobody else caches them: then it only waits
    /// until caching that others lost by an earlier request is recorded.
    pub(super) async fn data_operation(&self, asked: Operation) -> Result<(), Failure> {
        if self.disk.quick.others_cache() {
            self.operation(asked).await?;
        } else if self.server.persistence.has_opens_at(&self.disk.place) {
            self.server.persistence.caching_recorded().await;
        }
        Ok(())
    }

    /// As [`Self::data_operation`], once the data are changed: caching that was granted meanwhile may hold the old
    /// ones.
    pub(super) async fn data_changed(&self, done: Operation) -> Result<(), Failure> {
        self.call.past_cancel.set(true);
        self.data_operation(done).await
    }

    /// Announces a change of the data of the open, so that a FLUSH that comes meanwhile covers it.
    pub(super) fn queued(&self) -> PendingContents<'_, V> {
        let mut change = self.share.gate.contents(&self.disk.node);
        change.queue(Some(self.open.engine.0));
        change
    }

    /// Whether a change of the data of the open may have to wait: in [`Self::data_operation`], or for its turn.
    pub(super) fn may_wait(&self) -> bool {
        let quick = self.disk.quick;
        let persistence = &self.server.persistence;
        quick.others_cache() || quick.keeps_times() || persistence.has_opens_at(&self.disk.place)
    }

    /// As [`Self::operation`] on another object, which this request replaces.
    pub(super) async fn operation_at(
        &self,
        place: &Place,
        operation: Operation,
    ) -> Result<(), Failure> {
        let actor = Actor::Stranger;
        break_conflicts(self.call, Some(self.open), place, actor, operation).await
    }

    /// Breaks the caching of handles of named streams before their file is renamed or replaced.
    pub(super) async fn clear_streams(&self, file: FileKey) -> Result<(), Failure> {
        for place in self.server.files.open_streams(file) {
            self.operation_at(&place, Operation::Rename).await?;
        }
        Ok(())
    }

    /// Looks up where the link of the open is now. Another link to the same inode that got its path since is not it.
    ///
    /// A rename is on disk before the engine's paths follow it. So a lookup that does not find the name waits until the
    /// paths have followed, and looks again if any has moved. The caller must not hold a turn of the renames.
    ///
    /// # Errors
    /// `OBJECT_NAME_NOT_FOUND`, `OBJECT_PATH_NOT_FOUND`: a program on the host moved it, or a request on another share,
    /// out of the folder of this one.
    pub(super) async fn lookup(&self) -> Result<Lookup<V::Node>, Failure> {
        let (server, open, place) = (self.server, self.open, &self.disk.place);
        for _ in 0..LOOKS_MAX {
            let (look, path) = (server.files.look(), server.path_of(open)?);
            let absent = match self.lookup_at(&path).await? {
                Ok(lookup) => return Ok(lookup),
                Err(absent) => absent,
            };
            if server.files.is_unlinked(place, open.engine) {
                return Err(absent.into());
            }
            // The turn is given back at once, because the renames of the whole share wait behind it.
            drop(server.name_turns.still(path.share, &*server.env).await);
            if server.path_of(open)? == path && !server.files.has_moved(place.key, look) {
                return Err(absent.into());
            }
        }
        // This is so rare that the futures of all requests need not have room for it.
        Box::pin(self.lookup_in_turn()).await
    }

    /// As [`Self::lookup_once`], between the renames of the share, which wait for it no longer than [`STILL_MAX`].
    async fn lookup_in_turn(&self) -> Result<Lookup<V::Node>, Failure> {
        let server = self.server;
        let share = server.path_of(self.open)?.share;
        let still = server.name_turns.still(share, &*server.env).await;
        let patience = server.env.sleep(STILL_MAX);
        with_patience(pin!(self.lookup_once()), patience, || drop(still)).await
    }

    /// As [`Self::lookup`], but with a single look, for callers that can do without a name that is just being renamed.
    pub(super) async fn lookup_once(&self) -> Result<Lookup<V::Node>, Failure> {
        let path = self.server.path_of(self.open)?;
        Ok(self.lookup_at(&path).await??)
    }

    /// The inner error means that nothing, another object or another link has the name.
    async fn lookup_at(
        &self,
        path: &SharePath,
    ) -> Result<Result<Lookup<V::Node>, VfsError>, Failure> {
        let (names, token) = (path.to_names(), self.token()?);
        let key = self.disk.node.key();
        let is_it = |lookup: &Lookup<V::Node>| {
            let link = (self.server.files).link_of(&self.disk.place, self.open.engine);
            let same = lookup
                .found
                .as_ref()
                .is_some_and(|(node, _)| node.key() == key);
            same && link.is_none_or(|link| link == Link::of(lookup))
        };
        match self.vfs().lookup(&token.identity, &names).await {
            Ok(lookup) if is_it(&lookup) => Ok(Ok(lookup)),
            Ok(_) => Ok(Err(VfsError::NotFound)),
            Err(absent @ (VfsError::NotFound | VfsError::PathNotFound)) => Ok(Err(absent)),
            Err(error) => Err(error.into()),
        }
    }
}

/// The entry of a request that the file engine may park, and the receiver of its wake-up. It is forgotten when it is
/// dropped.
pub(super) struct Parking<'a, V: Vfs> {
    server: &'a Server<V>,
    pub(super) waiter: Waiter,
    pub(super) woken: oneshot::Receiver<Outcome>,
}

impl<V: Vfs> Drop for Parking<'_, V> {
    fn drop(&mut self) {
        self.server.forget_waiter(self.waiter.id);
    }
}

impl<'a, V: Vfs> Parking<'a, V> {
    pub(super) fn new(server: &'a Server<V>, user: CountedUser) -> Self {
        let (id, woken) = server.waiter();
        let waiter = Waiter { id, user };
        Self {
            server,
            waiter,
            woken,
        }
    }

    /// Waits for the wake-up; the client gets STATUS_PENDING where that is allowed.
    ///
    /// # Errors
    /// Those of [`Call::wait_ended`] if the request is ended first; the engine then knows that nobody waits any more.
    pub(super) async fn wait(
        mut self,
        call: &Call<V>,
        open: Option<&Open<V>>,
        place: &Place,
    ) -> Result<Outcome, Failure> {
        let failure = match call.park_bounded(open, &mut self.woken).await {
            Ok(Ok(Ok(outcome))) => return Ok(outcome),
            Ok(_) => call.wait_ended(),
            Err(failure) => failure,
        };
        self.server.files.cancel(place, self.waiter.id);
        Err(failure)
    }

    /// As [`Self::wait`], but for `patience` at most. Returns whether the wake-up came in time.
    pub(super) async fn wait_at_most(
        mut self,
        call: &Call<V>,
        place: &Place,
        patience: Duration,
    ) -> Result<bool, Failure> {
        let late = self.server.env.sleep(patience);
        let over = match call.park_bounded(None, race(&mut self.woken, late)).await {
            Ok(Ok(First::Left(Ok(_)))) => return Ok(true),
            Ok(Ok(First::Right(()))) => Ok(false),
            Ok(_) => Err(call.wait_ended()),
            Err(failure) => Err(failure),
        };
        self.server.files.cancel(place, self.waiter.id);
        over
    }
}

/// As [`OnDisk::operation`], on behalf of `actor`.
pub(super) async fn break_conflicts<V: Vfs>(
    call: &Call<V>,
    open: Option<&Open<V>>,
    place: &Place,
    actor: Actor,
    operation: Operation,
) -> Result<(), Failure> {
    let files = &call.server().files;
    let ask = |waiter| files.operation(place, actor, operation, Some(waiter));
    wait_for(call, open, place, ask).await
}

/// Repeats the question until no other holder has to be waited for.
///
/// # Errors
/// The engine's refusal, or an error of [`Parking::wait`].
pub(super) async fn wait_for<V: Vfs>(
    call: &Call<V>,
    open: Option<&Open<V>>,
    place: &Place,
    ask: impl Fn(Waiter) -> (Step, Effects),
) -> Result<(), Failure> {
    let server = call.server();
    loop {
        let parking = call.parking()?;
        let step = {
            let _breaking = server.persistence.breaking();
            let (step, effects) = ask(parking.waiter);
            perform(server, effects);
            step
        };
        match step {
            Step::Go => {
                // The caching that others lost because of this is recorded before anybody is informed.
                server.persistence.caching_recorded().await;
                return Ok(());
            }
            Step::Refused(status) => return Err(status.into()),
            Step::Wait => parking.wait(call, open, place).await?,
        };
    }
}
