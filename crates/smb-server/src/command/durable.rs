//! Opens that outlive their connection ([MS-SMB2] 3.3.5.6, 3.3.7.1, 3.3.4.6, 3.3.4.7, 3.3.6.2, 3.3.6.4): how they
//! are left behind, how long they wait, and how they end.
//!
//! An open stays, as a disconnected open, when its session ends by LOGOFF, by the loss of its last connection or by
//! PreviousSessionId, if it is resilient or persistent, or durable with its batch oplock or its handle lease
//! intact. It keeps everything: its locks, its caching, delete-pending, its part in the durability policy and its
//! dirty state. TREE_DISCONNECT closes all opens.
//!
//! A break that cannot be sent to anybody closes the durable opens it concerns, so that the request that caused it
//! can proceed. The break of a persistent open waits until a client has reconnected (Lease.BreakNotification; the
//! same for its oplock), or until the last open of the lease is closed. The scavenger closes opens that have waited
//! long enough. Requests that run when the connection is lost continue; whatever takes the open next (a reconnect,
//! a close) waits for them first.
//!
//! The order that resolves the races: an open first enters the table of disconnected opens, then loses its holder,
//! and is then checked once more; a break first marks the caching, then looks for the holder, then looks into the
//! table. One of the two sees the other.

use std::{sync::Arc, time::Duration};

use vfs::{Vfs, env::pause};

use super::{Call, breaks, close, revoke};
use crate::{
    failure::Failure,
    file::{Break, LeaseState, OpenId, Owner},
    race::race,
    state::{EndReason, Endurance, Keeping, Open, OpenKind, Server, Session},
};

/// How long a client that is back waits for the end of its lost connection.
const LEAVING_MAX: Duration = Duration::from_secs(5);

/// Keeps what of `opens` is to be kept, whose session is over; gives back what is to be closed.
pub(super) async fn keep<V: Vfs>(
    server: &Arc<Server<V>>,
    session: &Session<V>,
    opens: Vec<Arc<Open<V>>>,
) -> Vec<Arc<Open<V>>> {
    let (kept, rest): (Vec<_>, Vec<_>) = opens
        .into_iter()
        .partition(|open| endures(open) && is_intact(server, open));
    let mut refused = Vec::new();
    for open in kept {
        // Somebody may be closing it.
        if !open.begin_close() {
            continue;
        }
        open.end_parked(EndReason::Gone);
        session.tables().opens.remove(&open.file_id.volatile);
        if !put(server, &open) {
            refused.push(open);
        }
    }
    for open in refused {
        pause(&*server.env).await;
        shut(server, &open).await;
    }
    rest
}

/// A client wants an open back that does not wait for it: waits until it is kept, or closed, for
/// the client may be faster than the news of its lost connection, and than the clean-up on that
/// connection's worker, which carries out first what was sent before ([MS-SMB2] 3.3.7.1). At once
/// where this very connection is one of those by which the open is used.
pub(super) async fn left<V: Vfs>(call: &Call<V>, open: &Open<V>) -> Result<(), Failure> {
    let server = call.server();
    let session = server.session(open.origin.session);
    if session.is_some_and(|session| session.channels().contains(&call.connection.id)) {
        return Ok(());
    }
    if let Some(left) = server.durables.leaving(open) {
        let time = server.env.sleep(LEAVING_MAX);
        // Whatever the result, the caller checks again and decides by what it finds.
        let _ = call.park_bounded(None, race(left, time)).await?;
    }
    Ok(())
}

fn endures<V: Vfs>(open: &Open<V>) -> bool {
    open.endurance() != Endurance::None && matches!(open.kind, OpenKind::Disk { .. })
}

/// Whether nothing has happened that a durable open does not survive: its batch oplock or the
/// handle caching of its lease is there, and no break of it is under way.
pub(super) fn is_intact<V: Vfs>(server: &Server<V>, open: &Open<V>) -> bool {
    !open.endurance().needs_caching()
        || open
            .disk()
            .is_ok_and(|disk| server.files.keeps_handle(disk.place, open.engine))
}

/// An open that was taken out to be given back waits on; where it cannot, it is closed.
pub(super) async fn keep_again<V: Vfs>(server: &Arc<Server<V>>, open: Arc<Open<V>>) {
    // Nobody else has it; one that has just been made is in nobody's table.
    open.begin_close();
    if !put(server, &open) {
        return shut(server, &open).await;
    }
    // The reconnect may have been refused because its session or tree connect was ended for good.
    revoke::look_again_at_open(server, &open);
}

/// Closes an open that waits for its client, if nobody else has taken it out, when the worker
/// comes to it.
pub(super) fn end_kept<V: Vfs>(server: &Arc<Server<V>>, open: &Arc<Open<V>>) -> bool {
    let this = |kept: &Open<V>| std::ptr::eq(kept, Arc::as_ptr(open));
    let taken = server.durables.take_of(&[open.engine], this);
    for open in &taken {
        let (server, open) = (Arc::clone(server), Arc::clone(open));
        let env = Arc::clone(&server.env);
        env.spawn(Box::pin(async move { shut(&server, &open).await }));
    }
    !taken.is_empty()
}

/// Enters an open that nobody else knows and whose client is away; somebody is to [`watch_over`]
/// it. False: there is no room.
pub(crate) fn wait<V: Vfs>(server: &Server<V>, open: &Arc<Open<V>>) -> bool {
    open.begin_close();
    let timeout = open.endurance().timeout().unwrap_or_default();
    server
        .durables
        .keep(open, until(server, timeout), &server.config().limits)
        != Keeping::Refused
}

/// Looks after what waits already; for the start of the server, on a worker.
pub(crate) fn watch_over<V: Vfs>(server: &Arc<Server<V>>) {
    if let Some(at) = server.durables.wakes() {
        scavenge(server, at);
    }
}

/// In whole seconds, upwards: few scavengers, and nobody is closed too early.
fn until<V: Vfs>(server: &Server<V>, timeout: Duration) -> Duration {
    let until = server.env.monotonic().saturating_add(timeout);
    Duration::from_secs(until.as_secs().saturating_add(1))
}

/// Enters an open into the table. False: the caller is to close it.
fn put<V: Vfs>(server: &Arc<Server<V>>, open: &Arc<Open<V>>) -> bool {
    let timeout = open.endurance().timeout().unwrap_or_default();
    match server
        .durables
        .keep(open, until(server, timeout), &server.config().limits)
    {
        Keeping::Done => {}
        Keeping::Wake(at) => scavenge(server, at),
        Keeping::Refused => {
            tracing::info!(
                user = open.user,
                share = open.tree.name(),
                "a durable handle is closed with its connection: the server stops, or there are too many"
            );
            return false;
        }
    }
    // Its client may be back already, on another thread and with another holder.
    server.holder_left(open.engine, open.file_id);
    if is_intact(server, open) {
        return true;
    }
    // A break came between; if it has found the open in the table, it closes it.
    let this = |kept: &Open<V>| std::ptr::eq(kept, Arc::as_ptr(open));
    server.durables.take_of(&[open.engine], this).is_empty()
}

/// Closes what has waited long enough, until nothing waits.
fn scavenge<V: Vfs>(server: &Arc<Server<V>>, mut at: Duration) {
    let server = Arc::clone(server);
    let (env, closers) = (Arc::clone(&server.env), Arc::clone(&server.env));
    env.spawn(Box::pin(async move {
        loop {
            let now = server.env.monotonic();
            server.env.sleep(at.saturating_sub(now)).await;
            let (due, next) = server.durables.due(server.env.monotonic());
            for open in due {
                tracing::debug!(user = open.user, "nobody came back to an open in time");
                // They may be many. Each for itself: one whose disk hangs holds up no other.
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
async fn shut<V: Vfs>(server: &Arc<Server<V>>, open: &Open<V>) {
    open.quiesce(0).await;
    if let Err(error) = close::finish(server, None, open).await {
        tracing::warn!(%error, share = open.tree.name(), user = open.user, "closing a handle that nobody came back to");
    }
}

/// Closes an open of whatever session, on somebody else's behalf ([MS-SMB2] 3.3.4.17).
pub(super) async fn close<V: Vfs>(server: &Arc<Server<V>>, open: &Arc<Open<V>>) {
    let kept = server.durables.take_of(&[open.engine], |_| true);
    for open in &kept {
        shut(server, open).await;
    }
    if !kept.is_empty() || !open.begin_close() {
        return;
    }
    open.end_parked(EndReason::Closed);
    open.quiesce(0).await;
    let session = server.session(open.origin.session);
    if let Err(error) = close::finish(server, session.as_deref(), open).await {
        tracing::warn!(%error, share = open.tree.name(), user = open.user, "closing a handle for another instance of its application");
    }
}

/// The owner of the caching that the open shares.
pub(super) fn owner<V: Vfs>(open: &Open<V>) -> Owner {
    match open.origin.lease {
        Some(lease) => Owner::Lease(open.origin.client, lease.key),
        None => Owner::Oplock(open.engine),
    }
}

/// Whether a break concerns no connected open: every open that shares the caching waits for its client, and the
/// caching that would be left is not enough for a durable open to stay ([MS-SMB2] 3.3.4.7). A persistent open
/// stays, and its client receives the break on any connection that it has.
pub(super) fn ends_all<V: Vfs>(server: &Server<V>, broken: &Break) -> bool {
    let enough =
        matches!(broken.owner, Owner::Lease(..)) && broken.new.contains(LeaseState::HANDLE);
    let ends = |open: &OpenId| {
        let kept = server.durables.kept_as(*open);
        kept.is_some_and(|endurance| !endurance.is_persistent())
    };
    server.durables.len() > 0 && !enough && broken.opens.iter().all(ends)
}

/// Handles a break that cannot be sent to anybody: the durable opens it concerns are closed, and the break ends
/// without any caching, or waits for the client of a persistent open. The request that caused it waits until then.
pub(super) fn unheard<V: Vfs>(server: &Arc<Server<V>>, broken: Break) {
    let durables = &server.durables;
    let taken = durables.take_of(&broken.opens, |open| closes_it(open.endurance()));
    if taken.is_empty() {
        return unanswered(server, broken);
    }
    let (server, env) = (Arc::clone(server), Arc::clone(&server.env));
    env.spawn(Box::pin(async move {
        for open in taken {
            shut(&server, &open).await;
        }
        // Other opens that share the lease lose it.
        unanswered(&server, broken);
    }));
}

/// Decides what happens to a break that nobody received, once the durable opens are closed.
fn unanswered<V: Vfs>(server: &Arc<Server<V>>, broken: Break) {
    if !waits_for_client(server, &broken) {
        return breaks::over(server, &broken);
    }
    let owner = broken.owner;
    server.grants.waits(broken.clone());
    // A client that came back in between has looked for it before it was there.
    if !waits_for_client(server, &broken) {
        breaks::resume(server, owner);
    }
}

/// Whether a break that nobody hears closes the open: a durable one. A persistent one waits with the
/// break ([MS-SMB2] 3.3.4.6, 3.3.4.7).
fn closes_it(endurance: Endurance) -> bool {
    match endurance {
        Endurance::Durable { persistent, .. } => !persistent,
        Endurance::Resilient { .. } | Endurance::None => false,
    }
}

/// [MS-SMB2] 3.3.4.7: a break of what a persistent open caches waits until its client is back. The
/// text has it so of leases; of a batch oplock Windows waits as well (3.3.5.9 <301>), and either
/// client may have changes to write back.
fn waits_for_client<V: Vfs>(server: &Server<V>, broken: &Break) -> bool {
    broken.opens.iter().any(|open| {
        let kept = server.durables.kept_as(*open);
        kept.is_some_and(Endurance::is_persistent)
    })
}

/// A break has ended: durable opens that wait and have lost what they are kept for are closed.
pub(super) fn sweep<V: Vfs>(server: &Arc<Server<V>>, opens: &[OpenId]) {
    let files = &server.files;
    let lost = |open: &Open<V>| {
        open.endurance().needs_caching()
            && open
                .disk()
                .is_ok_and(|disk| !files.keeps_handle(disk.place, open.engine))
    };
    let taken = server.durables.take_of(opens, lost);
    if taken.is_empty() {
        return;
    }
    let (server, env) = (Arc::clone(server), Arc::clone(&server.env));
    env.spawn(Box::pin(async move {
        for open in taken {
            shut(&server, &open).await;
        }
    }));
}

impl<V: Vfs> Server<V> {
    /// From now on nothing is kept for lost clients, and what is kept is closed; for the end of
    /// the server. Persistent opens stay as they are.
    pub async fn close_kept(self: &Arc<Self>) {
        let spared = |open: &Open<V>| open.endurance().is_persistent();
        for open in self.durables.stop(spared) {
            shut(self, &open).await;
        }
    }
}
