//! CHANGE_NOTIFY ([MS-SMB2] 3.3.5.19): waits until something changes below a directory.
//!
//! A client that watches a tree gets no names below folders that its user may not traverse. Windows leaves such
//! names out for users without the privilege to bypass traverse checking, which no user has here. A name that no
//! longer exists when it is reported cannot be checked any more and is reported.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use smb_wire::{
    codec::size,
    fscc::{FileAction, encode_notify_list},
    msg::{ChangeNotifyFlags, ChangeNotifyRequest, ChangeNotifyResponse},
    status::Status,
};
use tokio::sync::oneshot;
use vfs::{Vfs, VfsError};

use super::{Call, Handled, Reply};
use crate::{
    connection::Connection,
    failure::Failure,
    file::{Change, OpenId, Outcome, Turn, WaiterId, WatchRequest, Watching},
    host_watch::{Interest, OBSERVE_MAX},
    race::race,
    state::{EndReason, InFlight, Server, breaks::perform},
    turn::COMPONENT_WORK,
};

pub(super) async fn handle<V: Vfs>(call: &Call<V>) -> Handled {
    let request = ChangeNotifyRequest::read(&call.message)?;
    let open = super::directory(call, request.file_id, request.output_buffer_length)?;
    let max = size(request.output_buffer_length);
    let mut waiting = Waiting::new(call.server(), open.engine, Turn::Last);
    // The entry of the waiter that was last served without a result: the next one in the queue waits until it is at the
    // front again.
    let mut _in_vain = None;
    loop {
        match watch(call, &open, &request, &mut waiting).await? {
            Outcome::Changes(changes) => {
                let some = !changes.is_empty();
                let changes = traversable(call, &open, changes).await?;
                if some && changes.is_empty() {
                    // The user may see none of these changes, so the request continues to wait as the oldest.
                    let turn = Turn::Again(waiting.waiter);
                    let again = Waiting::new(call.server(), open.engine, turn);
                    _in_vain = Some(std::mem::replace(&mut waiting, again));
                    continue;
                }
                return answer(&call.connection, &changes, max);
            }
            Outcome::Failed(status) => return Err(status.into()),
            Outcome::Retry | Outcome::Locked => return Err(Status::INTERNAL_ERROR.into()),
        }
    }
}

/// A place in the queue of requests that wait for changes at an open; it is given up when dropped.
struct Waiting<V: Vfs> {
    server: Arc<Server<V>>,
    open: OpenId,
    turn: Turn,
    waiter: WaiterId,
    woken: Option<oneshot::Receiver<Outcome>>,
}

impl<V: Vfs> Waiting<V> {
    fn new(server: &Arc<Server<V>>, open: OpenId, turn: Turn) -> Self {
        let (waiter, woken) = server.waiter();
        Self {
            server: Arc::clone(server),
            open,
            turn,
            waiter,
            woken: Some(woken),
        }
    }
}

impl<V: Vfs> Drop for Waiting<V> {
    fn drop(&mut self) {
        self.server.files.cancel_watch(self.open, self.waiter);
        self.server.forget_waiter(self.waiter);
        let next = self.server.files.decided(self.open, self.waiter);
        perform(&self.server, next);
    }
}

/// The changes whose paths the user may traverse.
async fn traversable<V: Vfs>(
    call: &Call<V>,
    open: &InFlight<V>,
    mut changes: Vec<Change>,
) -> Result<Vec<Change>, Failure> {
    let above = |change: &Change| Some(change.name.rsplit_once('\\')?.0.to_owned());
    // Each folder is checked once.
    let mut folders: BTreeMap<String, bool> = BTreeMap::new();
    for change in &changes {
        let Some(folder) = above(change) else {
            continue;
        };
        if let Entry::Vacant(vacant) = folders.entry(folder) {
            vacant.insert(may_reach(call, open, &change.name).await?);
        }
    }
    changes.retain(|change| {
        let folder = above(change);
        folder.is_none_or(|folder| folders.get(&folder) != Some(&false))
    });
    Ok(changes)
}

/// Whether the user may traverse all folders between the directory and the object at `name` below it.
async fn may_reach<V: Vfs>(
    call: &Call<V>,
    open: &InFlight<V>,
    name: &str,
) -> Result<bool, Failure> {
    let directory = call.server().path_of(open)?;
    let names = directory.names().iter().map(ToString::to_string);
    let names: Vec<String> = names.chain(name.split('\\').map(str::to_owned)).collect();
    call.connection.turn.did(COMPONENT_WORK * names.len());
    call.connection.turn.wait().await;
    let token = call.token()?;
    let found = call.share()?.vfs.lookup(&token.identity, &names).await;
    Ok(!matches!(found, Err(VfsError::AccessDenied)))
}

async fn watch<V: Vfs>(
    call: &Call<V>,
    open: &InFlight<V>,
    request: &ChangeNotifyRequest,
    waiting: &mut Waiting<V>,
) -> Result<Outcome, Failure> {
    let server = call.server();
    let disk = open.disk()?;
    let watching = server.files.watch(&WatchRequest {
        open: open.engine,
        place: disk.place.clone(),
        filter: request.completion_filter,
        tree: request.flags.contains(ChangeNotifyFlags::WATCH_TREE),
        buffer: size(request.output_buffer_length),
        waiter: waiting.waiter,
        turn: waiting.turn,
        account: Arc::clone(call.connection.account()),
        user: call.counted_for(&open.origin.owner),
    });
    let mut woken = match (watching, waiting.woken.take()) {
        (Watching::Pending, Some(woken)) => woken,
        (Watching::Done(outcome), _) => return Ok(outcome),
        (Watching::Pending, None) => return Err(Status::INTERNAL_ERROR.into()),
    };
    let mut ready = None;
    if open.first_watch() && call.share()?.config.host_changes {
        let interest = Interest::Changes {
            open: open.engine,
            user: call.counted_for(&open.origin.owner),
            tree: request.flags.contains(ChangeNotifyFlags::WATCH_TREE),
        };
        // Where changes of the host cannot be watched, only changes by clients are reported.
        ready = server
            .observe(open.engine, &disk.node, interest)
            .unwrap_or(None);
    }
    let waited = call
        .park_after(Some(open), observed(call, ready), &mut woken)
        .await?;
    let reason = match waited {
        Ok(Ok(outcome)) => return Ok(outcome),
        Ok(Err(_)) => EndReason::Gone,
        Err(reason) => reason,
    };
    if reason == EndReason::Cancelled
        && let Some(outcome) = served_meanwhile(server, open.engine, waiting.waiter, woken).await
    {
        return Ok(outcome);
    }
    Ok(Outcome::Failed(match reason {
        EndReason::Cancelled => Status::CANCELLED,
        EndReason::Closed | EndReason::Gone => Status::NOTIFY_CLEANUP,
    }))
}

/// The outcome for a request that was being served when it was cancelled ([MS-SMB2] 3.3.5.16): the changes have left
/// the queue, so no other request would get them.
async fn served_meanwhile<V: Vfs>(
    server: &Server<V>,
    open: OpenId,
    waiter: WaiterId,
    woken: oneshot::Receiver<Outcome>,
) -> Option<Outcome> {
    if server.files.cancel_watch(open, waiter) {
        return None;
    }
    woken.await.ok()
}

/// Starts watching for host changes before the client learns that its request is pending. If the tree is too large
/// to be walked in time, watching starts soon after, when the client must list the directory again.
async fn observed<V: Vfs>(call: &Call<V>, ready: Option<oneshot::Receiver<()>>) {
    if let Some(ready) = ready {
        let late = call.server().env.sleep(OBSERVE_MAX);
        let _ = race(ready, late).await;
    }
}

fn answer<V: Vfs>(connection: &Connection<V>, changes: &[Change], max: usize) -> Handled {
    let listed = changes
        .iter()
        .map(|change| (FileAction(change.action), &*change.name));
    let (out, fitted) = encode_notify_list(listed, max);
    // The request did not keep room for its answer while it waited, perhaps for ever.
    if fitted < changes.len() || changes.is_empty() || !connection.has_room_for(out.len()) {
        // There are too many changes for the buffer or the memory, or there is no buffer: the client must list the
        // directory again.
        return Err(Status::NOTIFY_ENUM_DIR.into());
    }
    Ok(Reply::read_only(&ChangeNotifyResponse { buffer: &out }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        limits::{CONNECTION_MEMORY, ServerLimits},
        restore::world::{World, connection, run},
    };

    /// A client can have thousands of requests wait, cause a change in a deep folder, and take no answer.
    #[test]
    fn a_client_that_takes_no_changes_must_list_the_directory() {
        let limits = ServerLimits {
            buffer_memory: 0,
            ..ServerLimits::default()
        };
        let server = World::new(false, limits).server;
        let connection = connection(&server, None);
        let changes = [Change {
            action: Change::ADDED,
            name: "new".to_owned(),
        }];
        assert!(answer(&connection, &changes, 65_536).is_ok());
        connection.outbox.held.set(CONNECTION_MEMORY);
        let refused = answer(&connection, &changes, 65_536).err();
        let list_again = Failure::Status(Status::NOTIFY_ENUM_DIR);
        assert_eq!(format!("{refused:?}"), format!("{:?}", Some(list_again)));
    }

    #[test]
    fn a_request_that_is_cancelled_while_it_is_served_gets_its_changes() {
        let server = World::new(false, ServerLimits::default()).server;
        let (waiter, woken) = server.waiter();
        let changes = Outcome::Changes(vec![Change {
            action: Change::ADDED,
            name: "new".to_owned(),
        }]);
        // The watcher has given them to this request, which does not wait there any more.
        server.wake(waiter, changes.clone());
        let outcome = run(served_meanwhile(&server, OpenId(1), waiter, woken));
        assert_eq!(outcome, Some(changes));
    }
}
