//! Opens that outlive their connection ([MS-SMB2] 3.3.5.6, 3.3.7.1, 3.3.4.6, 3.3.4.7, 3.3.6.2, 3.3.6.4): how they
//! are disconnected, how long they wait, and how they end.
//!
//! An open stays, as a disconnected open, when its session ends by LOGOFF, by the loss of its last connection or by
//! PreviousSessionId, if it is resilient or persistent, or durable with its batch oplock or its handle lease
//! intact. It keeps everything: its locks, its caching, delete-pending, its part in the durability policy and its
//! dirty state. TREE_DISCONNECT closes all opens.
//!
//! `state::breaks` says what a break that reaches no client does to such an open. The scavenger closes opens that have
//! waited long enough. Requests that run when the connection is lost continue; whatever takes the open next (a
//! reconnect, a close) waits for them first.
//!
//! This order resolves the races: an open first enters the table of disconnected opens, then loses its holder, and is
//! then checked once more; a break first marks the caching, then looks for the holder, then looks into the table. One
//! of the two sees the other.

use std::{sync::Arc, time::Duration};

use vfs::{Vfs, env::pause};

use super::{
    EndReason, Endurance, Keeping, LineAbout, Open, OpenKind, Server, Session, close,
    share_line_due,
};
use crate::{
    file::Owner,
    race::{First, race},
};

/// How long a client that wants a file waits until another request has given up an open of it: the end of a lost
/// connection, for example (docs/protocol-notes.md, "A reconnect before the loss is noticed").
pub(crate) const LEAVING_MAX: Duration = Duration::from_secs(5);

/// Keeps those opens of an ended session that are to be kept and for which there is room, and begins to close the
/// others, which it returns.
pub(crate) fn keep<V: Vfs>(
    server: &Arc<Server<V>>,
    session: &Session<V>,
    opens: Vec<Arc<Open<V>>>,
) -> Vec<Arc<Open<V>>> {
    let (kept, rest): (Vec<_>, Vec<_>) = opens
        .into_iter()
        .partition(|open| endures(open) && is_intact(server, open));
    let mut closing = Vec::new();
    for open in kept {
        // Another request may be closing it.
        if !open.begin_close() {
            continue;
        }
        open.parked.end(EndReason::Gone);
        session.tables().opens.remove(&open.file_id.volatile);
        if !put(server, &open) {
            closing.push(open);
        }
    }
    closing.extend(close::begin(rest, EndReason::Gone));
    closing
}

fn endures<V: Vfs>(open: &Open<V>) -> bool {
    open.endurance() != Endurance::None && matches!(open.kind, OpenKind::Disk { .. })
}

/// Whether an open can be kept. One that is kept only for its caching must still have its batch oplock or the handle
/// caching of its lease, with no break of it in flight; nothing is required of the others.
pub(crate) fn is_intact<V: Vfs>(server: &Server<V>, open: &Open<V>) -> bool {
    !open.endurance().needs_caching()
        || open
            .disk()
            .is_ok_and(|disk| server.files.keeps_handle(&disk.place, open.engine))
}

/// Puts an open back that was taken out for a reconnect. Returns false if that is impossible and the open was closed.
pub(crate) async fn keep_again<V: Vfs>(server: &Arc<Server<V>>, open: &Arc<Open<V>>) -> bool {
    // No other request has it, and an open that was just made is in no table.
    open.begin_close();
    let kept = put(server, open);
    if !kept {
        shut(server, open).await;
    }
    kept
}

/// Closes a disconnected open in a task, unless another request has taken it out.
pub(crate) fn end<V: Vfs>(server: &Arc<Server<V>>, open: &Arc<Open<V>>) -> bool {
    let taken = take(server, open);
    if taken {
        let (server, open) = (Arc::clone(server), Arc::clone(open));
        let env = Arc::clone(&server.env);
        env.spawn(Box::pin(async move { shut(&server, &open).await }));
    }
    taken
}

/// Takes an open out of the table; false if another request has done so.
fn take<V: Vfs>(server: &Server<V>, open: &Arc<Open<V>>) -> bool {
    let this = |kept: &Open<V>| std::ptr::eq(kept, Arc::as_ptr(open));
    !server.durables.take_of(&[open.engine], this).is_empty()
}

/// Enters a disconnected open that no other request has; the caller must call [`watch_over`] later. Returns false if
/// there is no room.
pub(crate) fn wait<V: Vfs>(server: &Server<V>, open: &Arc<Open<V>>) -> bool {
    open.begin_close();
    enter(server, open) != Keeping::Refused
}

/// Starts the scavenger for opens that wait already; called on a worker when the server starts.
pub(crate) fn watch_over<V: Vfs>(server: &Arc<Server<V>>) {
    if let Some(at) = server.durables.wakes() {
        scavenge(server, at);
    }
}

/// Enters an open into the table. The end of its wait is rounded up to whole seconds, so that few scavengers run and no
/// open is closed too early.
fn enter<V: Vfs>(server: &Server<V>, open: &Arc<Open<V>>) -> Keeping {
    let timeout = open.endurance().timeout().unwrap_or_default();
    let until = server.env.monotonic().saturating_add(timeout);
    let until = Duration::from_secs(until.as_secs().saturating_add(1));
    server.durables.keep(open, until, &server.config().limits)
}

/// Enters an open and starts the scavenger for it. If it returns false, the caller must close the open.
fn put<V: Vfs>(server: &Arc<Server<V>>, open: &Arc<Open<V>>) -> bool {
    match enter(server, open) {
        Keeping::Done => {}
        Keeping::Wake(at) => scavenge(server, at),
        Keeping::Refused => {
            let share = open.tree.share_id();
            if let Some(left_out) = share_line_due(server, LineAbout::ShortenedHandle, share) {
                tracing::info!(
                    user = open.user,
                    share = open.tree.name(),
                    left_out,
                    "a durable handle is closed with its connection: the server stops, or there are too many"
                );
            }
            return false;
        }
    }
    // Its client may already have reconnected on another thread, with another holder.
    server.holders.left(open.engine, open.file_id);
    if is_intact(server, open) {
        return true;
    }
    // A break came in between; if it has found the open in the table, it closes the open.
    !take(server, open)
}

/// Closes opens that have waited long enough, until none waits.
fn scavenge<V: Vfs>(server: &Arc<Server<V>>, mut at: Duration) {
    let server = Arc::clone(server);
    let (env, closers) = (Arc::clone(&server.env), Arc::clone(&server.env));
    env.spawn(Box::pin(async move {
        loop {
            let now = server.env.monotonic();
            server.env.sleep(at.saturating_sub(now)).await;
            let (due, next) = server.durables.due(server.env.monotonic());
            for open in due {
                tracing::debug!(user = open.user, "no client reconnected to an open in time");
                // There may be many. Each is closed in its own task, so that one whose disk hangs delays no other.
                pause(&*closers).await;
                let server = Arc::clone(&server);
                let closing = async move { shut(&server, &open).await };
                closers.spawn(Box::pin(closing));
            }
            match next {
                Some(next) => at = next,
                None => return,
            }
        }
    }));
}

/// Closes an open that has no session.
pub(super) async fn shut<V: Vfs>(server: &Arc<Server<V>>, open: &Open<V>) {
    close::finish_logged(server, None, open, "closing a disconnected handle").await;
}

/// Closes an open of any session, or of none ([MS-SMB2] 3.3.4.17).
pub(crate) async fn close<V: Vfs>(server: &Arc<Server<V>>, open: &Arc<Open<V>>) {
    let mut open = Arc::clone(open);
    loop {
        let kept = server.durables.take_of(&[open.engine], |_| true);
        for open in &kept {
            shut(server, open).await;
        }
        if !kept.is_empty() {
            return;
        }
        if open.begin_close() {
            break;
        }
        // Another request closes it, or disconnects it so that it waits for its client.
        match server.durables.leaving(&open) {
            Some(left) => {
                let time = server.env.sleep(LEAVING_MAX);
                if let First::Right(()) = race(left, time).await {
                    return;
                }
            }
            // It waits by now, or its client has come back and continues with another open of the same id.
            None => match server.durables.made_as(open.file_id.persistent) {
                Some(present) => open = present,
                None => return,
            },
        }
    }
    open.parked.end(EndReason::Closed);
    let session = server.session(open.origin.session);
    let what = "closing a handle for another instance of its application";
    close::finish_logged(server, session.as_deref(), &open, what).await;
}

/// The owner of the caching that the open shares.
pub(crate) fn owner<V: Vfs>(open: &Open<V>) -> Owner {
    match open.origin.lease {
        Some(lease) => Owner::Lease(open.origin.client, lease.key),
        None => Owner::Oplock(open.engine),
    }
}

impl<V: Vfs> Server<V> {
    /// Called when the server stops: no more opens are kept for disconnected clients, and those kept are closed.
    /// Persistent opens stay as they are.
    pub async fn close_disconnected(self: &Arc<Self>) {
        let spared = |open: &Open<V>| open.endurance().is_persistent();
        for open in self.durables.stop(spared) {
            shut(self, &open).await;
        }
    }
}
