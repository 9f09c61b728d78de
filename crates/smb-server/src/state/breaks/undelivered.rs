//! Breaks that reach no client, and their effect on the durable opens they concern ([MS-SMB2] 3.3.4.6, 3.3.4.7).
//!
//! Such a break closes the durable opens that wait for their clients, so that the request that caused it can proceed.
//! The break of a persistent open waits until a client has reconnected, or until the last open of the lease is closed.

use std::sync::Arc;

use vfs::Vfs;

use crate::{
    file::{Break, LeaseState, OpenId, Owner},
    state::{
        Open, Server,
        disconnected::{is_intact, shut},
    },
};

/// Whether a break concerns no connected open: every open that shares the caching waits for its client, and the
/// caching that would be left is not enough for a durable open to stay ([MS-SMB2] 3.3.4.7). A persistent open
/// stays, and its client receives the break once it has reconnected.
pub(super) fn ends_all<V: Vfs>(server: &Server<V>, broken: &Break) -> bool {
    let enough =
        matches!(broken.owner, Owner::Lease(..)) && broken.new.contains(LeaseState::HANDLE);
    let ends = |open: &OpenId| {
        let kept = server.durables.kept(*open);
        kept.is_some_and(|open| !open.endurance().is_persistent())
    };
    server.durables.len() > 0 && !enough && broken.opens.iter().all(ends)
}

/// Handles a break that cannot be sent to anybody: the durable opens it concerns are closed, and the break ends
/// without any caching, or waits for the client of a persistent open. The request that caused it waits until then.
/// `absent` says that the client was not asked, because all its opens waited for it.
pub(super) fn undelivered<V: Vfs>(server: &Arc<Server<V>>, broken: Break, absent: bool) {
    let durables = &server.durables;
    // [MS-SMB2] 3.3.4.6, 3.3.4.7: a durable open is closed; for a persistent one, the break waits.
    let taken = durables.take_of(&broken.opens, |open| open.endurance().needs_caching());
    // Other opens that share the lease lose it.
    shut_all(server, taken, move |server| {
        unanswered(server, broken, absent)
    });
}

/// Closes opens in a task, and calls `then` when that is done; at once if there are none.
fn shut_all<V: Vfs>(
    server: &Arc<Server<V>>,
    opens: Vec<Arc<Open<V>>>,
    then: impl FnOnce(&Arc<Server<V>>) + 'static,
) {
    if opens.is_empty() {
        return then(server);
    }
    let (server, env) = (Arc::clone(server), Arc::clone(&server.env));
    env.spawn(Box::pin(async move {
        for open in opens {
            shut(&server, &open).await;
        }
        then(&server);
    }));
}

/// Decides what happens to a break that nobody received, once the durable opens are closed.
fn unanswered<V: Vfs>(server: &Arc<Server<V>>, broken: Break, absent: bool) {
    if !waits_for_client(server, &broken) {
        // The loss of caching is recorded under a guard that the caller may hold, and that must not be taken twice.
        let (server, env) = (Arc::clone(server), Arc::clone(&server.env));
        return env.spawn(Box::pin(async move {
            let _breaking = server.persistence.breaking();
            decide(&server, broken, absent);
        }));
    }
    let owner = broken.owner;
    if let Some(other) = server.pending_breaks.waits(broken.clone()) {
        // If it is not over, it is of a file that had the key of the lease before, and its time ends it.
        super::watch(server, other);
    }
    // While the durable opens were closed, the break may have ended, and nobody forgets it any more.
    if !super::in_flight(server, &broken) {
        return server.pending_breaks.forget(&broken);
    }
    // A client that came back in between, or opened the file anew, has looked for the break before it was there.
    let now = super::up_to_date(server, broken.clone());
    if !waits_for_client(server, &broken) || now.opens != broken.opens {
        super::resume(server, owner);
    }
}

/// Ends a break that waits for no client, sends it after all, or leaves it to its time.
fn decide<V: Vfs>(server: &Arc<Server<V>>, broken: Break, absent: bool) {
    // The open of the last connection may have been disconnected since.
    if waits_for_client(server, &broken) {
        return unanswered(server, broken, absent);
    }
    let broken = super::up_to_date(server, broken);
    let is_back = |open: &OpenId| !server.durables.is_kept(*open);
    // A client that has come back since is asked after the answer to its CREATE, which may already report caching.
    // A resilient open may still wait for its client; its caching ends.
    let may_ask = absent || super::has_connected_open(server, &broken);
    let asks = may_ask && broken.opens.iter().any(is_back) && super::in_flight(server, &broken);
    // Opens of which none is kept are being closed, and their close ends the break. If it were over now, the
    // request that waits for it would meet them.
    let stays = !broken.opens.iter().all(is_back);
    match (asks, stays) {
        (true, _) => super::deliver(server, broken),
        (false, true) => super::over(server, &broken),
        (false, false) => super::watch(server, broken),
    }
}

/// [MS-SMB2] 3.3.4.7: a break of a persistent open's caching waits until its client is back. The specification says so
/// of leases; Windows also waits for a batch oplock (3.3.5.9 <301>), and either client may have changes to write back.
fn waits_for_client<V: Vfs>(server: &Server<V>, broken: &Break) -> bool {
    broken.opens.iter().any(|open| {
        let kept = server.durables.kept(*open);
        kept.is_some_and(|open| open.endurance().is_persistent())
    })
}

/// Whether a break waits although its client may have other connections: every open that shares the caching is
/// disconnected, and one of them is persistent. By [MS-SMB2] 3.3.4.7 any connection of the ClientGuid would do. But
/// the newest one is often the connection on which the client is about to reconnect, and there it expects the break
/// after the answer to its CREATE, whose epoch is the one before (3.3.5.9.12); Samba's client gives up a connection on
/// which a break comes before its login is complete.
pub(super) fn is_away<V: Vfs>(server: &Server<V>, broken: &Break) -> bool {
    let disconnected = |open: &OpenId| server.durables.is_kept(*open);
    broken.opens.iter().all(disconnected) && waits_for_client(server, broken)
}

/// Called when a break has ended: closes disconnected durable opens that have lost the caching for which they were
/// kept.
pub(super) fn sweep<V: Vfs>(server: &Arc<Server<V>>, opens: &[OpenId]) {
    let lost = |open: &Open<V>| !is_intact(server, open);
    shut_all(server, server.durables.take_of(opens, lost), |_| ());
}
