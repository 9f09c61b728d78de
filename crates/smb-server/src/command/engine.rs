//! Between the handlers and the file engine: carrying out what it asks for, and waiting for it.

use std::sync::Arc;

use smb_wire::status::Status;
use tokio::sync::oneshot;
use vfs::{Attr, FileKey, Lookup, Node, Vfs, VfsError};

use super::Call;
use crate::{
    failure::Failure,
    file::{Actor, Effects, Operation, Outcome, Place, SharePath, Step, WaiterId},
    state::{Disk, EndReason, Open, Server, breaks::perform},
};

/// Waits for a wake-up of the engine; the client gets STATUS_PENDING where it may.
///
/// # Errors
/// `CANCELLED` if the request is ended first; the engine has been informed.
pub(super) async fn wait<V: Vfs>(
    call: &Call<V>,
    open: Option<&Open<V>>,
    place: &Place,
    id: WaiterId,
    woken: oneshot::Receiver<Outcome>,
) -> Result<Outcome, Failure> {
    let waited = call.park_bounded(open, woken).await;
    match waited {
        Ok(Ok(Ok(outcome))) => Ok(outcome),
        Ok(Ok(Err(_))) | Ok(Err(EndReason::Cancelled | EndReason::Closed | EndReason::Gone)) => {
            call.server().files.cancel(place, id);
            call.server().forget_waiter(id);
            Err(Status::CANCELLED.into())
        }
        Err(failure) => {
            call.server().files.cancel(place, id);
            call.server().forget_waiter(id);
            Err(failure)
        }
    }
}

/// Asks the caching of others to make way for an operation, and waits until it has.
pub(super) async fn operation<V: Vfs>(
    call: &Call<V>,
    open: &Open<V>,
    operation: Operation,
) -> Result<(), Failure> {
    let disk = open.disk()?;
    let actor = Actor::Open(open.engine);
    make_way(call, Some(open), disk.place, actor, operation).await
}

/// As [`operation`] on the data of the open, at little cost where nobody else caches them: then only what others lost
/// by an earlier request has to be recorded.
pub(super) async fn data_operation<V: Vfs>(
    call: &Call<V>,
    open: &Open<V>,
    disk: &Disk<'_, V>,
    asked: Operation,
) -> Result<(), Failure> {
    if disk.quick.others_cache() {
        operation(call, open, asked).await?;
    } else {
        call.server().persistence.settled_at(disk.place).await;
    }
    Ok(())
}

/// As [`operation`], on behalf of `actor`.
pub(super) async fn make_way<V: Vfs>(
    call: &Call<V>,
    open: Option<&Open<V>>,
    place: &Place,
    actor: Actor,
    operation: Operation,
) -> Result<(), Failure> {
    let files = &call.server().files;
    let ask = |id| files.operation(place, actor, operation, Some(id));
    wait_for(call, open, place, ask).await
}

/// Asks those who cache handles of named streams to let go of them before their file is renamed or
/// replaced.
pub(super) async fn clear_streams<V: Vfs>(
    call: &Call<V>,
    open: &Open<V>,
    file: FileKey,
) -> Result<(), Failure> {
    for place in call.server().files.open_streams(file) {
        make_way(call, Some(open), &place, Actor::Stranger, Operation::Rename).await?;
    }
    Ok(())
}

/// Asks until nobody has to be waited for any more.
///
/// # Errors
/// What is refused; as of [`wait`].
pub(super) async fn wait_for<V: Vfs>(
    call: &Call<V>,
    open: Option<&Open<V>>,
    place: &Place,
    ask: impl Fn(WaiterId) -> (Step, Effects),
) -> Result<(), Failure> {
    let server = call.server();
    loop {
        let (id, woken) = server.waiter();
        let step = {
            let _breaking = server.persistence.breaking();
            let (step, effects) = ask(id);
            perform(server, effects);
            step
        };
        match step {
            Step::Go => {
                server.forget_waiter(id);
                // The caching that others lost because of this is recorded before anybody is informed.
                server.persistence.settled().await;
                return Ok(());
            }
            Step::Refused(status) => {
                server.forget_waiter(id);
                return Err(status.into());
            }
            Step::Wait => {
                wait(call, open, place, id, woken).await?;
            }
        }
    }
}

/// How often a name that moves is looked for before renames wait for the look.
const LOOKS_MAX: usize = 16;

/// Where the name of an open is now. The inode must still be the same.
///
/// A rename is on disk before the paths follow it. So who does not find the name by its path lets
/// the paths follow, and looks again if that has moved any; he may hold no turn of the renames.
///
/// # Errors
/// `OBJECT_NAME_NOT_FOUND`, `OBJECT_PATH_NOT_FOUND`: not the server moved it, or another share.
pub(super) async fn lookup<V: Vfs>(
    call: &Call<V>,
    open: &Open<V>,
) -> Result<Lookup<V::Node>, Failure> {
    let (server, place) = (call.server(), open.disk()?.place);
    for _ in 0..LOOKS_MAX {
        let (look, path) = (server.files.look(), server.path_of(open)?);
        let absent = match lookup_at(call, open, &path).await? {
            Ok(lookup) => return Ok(lookup),
            Err(absent) => absent,
        };
        if server.files.is_unlinked(place, open.engine) {
            return Err(absent.into());
        }
        // Given back at once: the renames of a whole share wait behind it.
        drop(server.name_turns.still(path.share).await);
        if server.path_of(open)? == path && !server.files.has_moved(place.key, look) {
            return Err(absent.into());
        }
    }
    let share = server.path_of(open)?.share;
    let _still = server.name_turns.still(share).await;
    let path = server.path_of(open)?;
    Ok(lookup_at(call, open, &path).await??)
}

/// As [`lookup`], for who does without a name that is just being renamed: one look.
///
/// # Errors
/// As of [`lookup`].
pub(super) async fn glance<V: Vfs>(
    call: &Call<V>,
    open: &Open<V>,
) -> Result<Lookup<V::Node>, Failure> {
    let path = call.server().path_of(open)?;
    Ok(lookup_at(call, open, &path).await??)
}

/// Inside: nothing, or something else, is there.
async fn lookup_at<V: Vfs>(
    call: &Call<V>,
    open: &Open<V>,
    path: &SharePath,
) -> Result<Result<Lookup<V::Node>, VfsError>, Failure> {
    let names = path.to_names();
    let token = call.token()?;
    let key = open.disk()?.node.key();
    let is_it = |(node, _): &(V::Node, Attr)| node.key() == key;
    match call.share()?.vfs.lookup(&token.identity, &names).await {
        Ok(lookup) if lookup.found.as_ref().is_some_and(is_it) => Ok(Ok(lookup)),
        Ok(_) => Ok(Err(VfsError::NotFound)),
        Err(absent @ (VfsError::NotFound | VfsError::PathNotFound)) => Ok(Err(absent)),
        Err(error) => Err(error.into()),
    }
}

/// Attributes of what an open stands for.
pub(super) async fn attr<V: Vfs>(call: &Call<V>, open: &Open<V>) -> Result<Attr, Failure> {
    let disk = open.disk()?;
    let mut attr = call.share()?.vfs.attr(&disk.node).await?;
    call.server().change_times.apply(&mut attr);
    Ok(attr)
}

/// A path on which something is being created; given back when dropped.
pub(super) struct Claim<V: Vfs> {
    server: Arc<Server<V>>,
    path: SharePath,
}

impl<V: Vfs> Drop for Claim<V> {
    fn drop(&mut self) {
        let effects = self.server.files.release(&self.path);
        perform(&self.server, effects);
    }
}

/// Claims a path. `None`: somebody else had it meanwhile, look again.
pub(super) async fn claim<V: Vfs>(
    call: &Call<V>,
    path: SharePath,
) -> Result<Option<Claim<V>>, Failure> {
    let server = call.server();
    let (waiter, woken) = server.waiter();
    match server.files.claim(&path, waiter) {
        Step::Go => {
            server.forget_waiter(waiter);
            Ok(Some(Claim {
                server: Arc::clone(server),
                path,
            }))
        }
        Step::Refused(status) => {
            server.forget_waiter(waiter);
            Err(status.into())
        }
        Step::Wait => {
            // The disk of one create bounds the wait; a dropped claim wakes all.
            let _ = woken.await;
            Ok(None)
        }
    }
}
