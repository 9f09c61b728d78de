//! Break notifications: sends them on a connection of the client, and ends those that nobody acknowledges
//! ([MS-SMB2] 3.3.4.6, 3.3.4.7, 3.3.6.1, 3.3.6.5).
//!
//! A break leaves after the answers that granted the caching it takes ([`PendingBreaks`]), and its timer starts when it
//! leaves. If the connection of a lease break is lost, the break is sent on another connection of the client, and its
//! timer goes on. But if all its opens are disconnected and one is persistent, it waits for their client, without a
//! timer. A break that cannot be sent to anybody ends without any caching. A break that needs no acknowledgment is sent
//! again in the same way, because nothing shows whether the client has received it.

mod holders;
mod notify;
mod pending;
mod undelivered;

use std::{sync::Arc, time::Duration};

use smb_wire::{
    dtyp::Sid,
    ids::{Guid, LeaseKey},
    msg::OplockLevel,
    status::Status,
};
use vfs::Vfs;

pub(crate) use self::{
    holders::{Holder, Holders},
    pending::PendingBreaks,
};
use super::{ConnectionId, Open, Server, records};
use crate::{
    file::{Break, CacheGrant, Effects, LeaseState, OpenId, Owner, Place},
    race::{First, race},
};

/// How long a holder has to acknowledge ([MS-SMB2] 3.3.4.6 <246>, 3.3.4.7 <247>).
pub(crate) const BREAK_TIMEOUT: Duration = Duration::from_secs(35);

/// The most opens of a lease that an acknowledgment looks at, because others wait meanwhile: it looks for one of its
/// user, and no CREATE of them can be replayed any more. That for a lease with more is accepted from every user.
const SEARCHED_MAX: usize = 1024;

/// Carries out what the engine asks for: breaks first, then wake-ups.
pub(crate) fn perform<V: Vfs>(server: &Arc<Server<V>>, effects: Effects) {
    for broken in effects.breaks {
        records::before_break(server, broken, deliver);
    }
    for wake in effects.wakes {
        server.wake(wake.waiter, wake.outcome);
    }
}

/// A guard for an answer to CREATE that grants caching and has not left. It is dropped when the answer is queued on its
/// connection or never will be; then the breaks that it held back leave.
pub(crate) struct Granting<V: Vfs> {
    server: Arc<Server<V>>,
    owner: Owner,
    number: u64,
}

impl<V: Vfs> Granting<V> {
    /// Makes breaks of this owner wait from here on. It must be called before the engine grants caching, so that no
    /// break from another thread leaves in between.
    pub(crate) fn begin(server: &Arc<Server<V>>, owner: Owner) -> Self {
        Self {
            server: Arc::clone(server),
            owner,
            number: server.pending_breaks.begin(owner),
        }
    }
}

impl<V: Vfs> Drop for Granting<V> {
    fn drop(&mut self) {
        for broken in self.server.pending_breaks.end(self.owner, self.number) {
            if !broken.ack_required || in_flight(&self.server, &broken) {
                leave(&self.server, broken);
            } else {
                // The break was acknowledged, or the open was undone meanwhile. It may have a timer if a connection
                // carried it before.
                self.server.pending_breaks.forget(&broken);
            }
        }
    }
}

fn in_flight<V: Vfs>(server: &Server<V>, broken: &Break) -> bool {
    let files = &server.files;
    files.is_breaking(&broken.place, broken.owner, broken.ticket)
}

/// Sends a break to its holder, now or after the answer that grants the caching.
pub(crate) fn deliver<V: Vfs>(server: &Arc<Server<V>>, broken: Break) {
    if let Some(broken) = server.pending_breaks.hold(broken) {
        leave(server, broken);
    }
}

/// A break with the opens that share its caching now: a CREATE may have joined the lease since the break happened, and
/// then its client is there. As long as one of the known opens is connected, nothing depends on the others, and they
/// are not looked for: a change that breaks the caching of thousands would go through all of them for each.
fn up_to_date<V: Vfs>(server: &Server<V>, broken: Break) -> Break {
    if has_connected_open(server, &broken) {
        return broken;
    }
    let opens = server.files.opens_of(broken.place.key, broken.owner);
    match opens.is_empty() {
        true => broken,
        false => Break { opens, ..broken },
    }
}

fn leave<V: Vfs>(server: &Arc<Server<V>>, broken: Break) {
    let broken = up_to_date(server, broken);
    let ends = undelivered::ends_all(server, &broken);
    if !broken.ack_required {
        if !ends {
            send_unasked(server, &broken);
        }
        return undelivered::sweep(server, &broken.opens);
    }
    let absent = ends || undelivered::is_away(server, &broken);
    ask(server, broken, absent, None);
}

/// Whether one of the known opens that a break concerns is connected.
fn has_connected_open<V: Vfs>(server: &Server<V>, broken: &Break) -> bool {
    let connected = |open: &OpenId| server.holders.get(*open).is_some();
    broken.opens.iter().any(connected)
}

/// Sends a break that must be acknowledged, unless its client was found absent. A timer that runs already continues.
/// `lost` is the connection that carried it, whose opens were closed or disconnected.
fn ask<V: Vfs>(server: &Arc<Server<V>>, broken: Break, absent: bool, lost: Option<ConnectionId>) {
    // If no open is connected although not all wait for their client, a reconnect may have taken one out since it was
    // seen that no answer is under way.
    let broken = match absent || has_connected_open(server, &broken) {
        true => Some(broken),
        false => server.pending_breaks.hold(broken),
    };
    let Some(broken) = broken else {
        return;
    };
    let goes = || send_to_holder(server, &broken) || goes_with_holder(server, &broken, lost);
    if !absent && goes() {
        watch(server, broken);
    } else {
        // The notification cannot be sent, so no acknowledgment will come.
        undelivered::undelivered(server, broken, absent);
    }
}

/// Sends a break that must be acknowledged; returns false if no connection can carry it. A connection that is lost
/// at the same moment on another worker may have been cleaned up before this break was recorded for it; the next
/// connection is tried then.
fn send_to_holder<V: Vfs>(server: &Server<V>, broken: &Break) -> bool {
    let elsewhere = notify::has_other_connections(server, broken);
    while let Some(connection) = notify::send(server, broken, elsewhere) {
        server.pending_breaks.sent(connection, broken);
        if server.is_connected(connection) || !server.pending_breaks.withdraw(connection, broken) {
            return true;
        }
    }
    false
}

/// Enters a break that no connection can carry as one that the connection of an open carries: if the open has not been
/// closed or disconnected yet, the last connection of its session is being lost, and that cleanup ends the break, or
/// sends it on ([`connection_lost`]). If the break were over now, the request that waits for it would meet the open.
fn goes_with_holder<V: Vfs>(
    server: &Server<V>,
    broken: &Break,
    lost: Option<ConnectionId>,
) -> bool {
    let holder_of = |open: &OpenId| {
        let holder = server.holders.get(*open)?;
        (Some(holder.connection) != lost).then_some((*open, holder.connection))
    };
    while let Some((open, connection)) = broken.opens.iter().find_map(holder_of) {
        server.pending_breaks.sent(connection, broken);
        // The cleanup may have come to the end of this open, and to the breaks, at the same moment.
        if server.holders.get(open).is_some() || !server.pending_breaks.withdraw(connection, broken)
        {
            return true;
        }
    }
    false
}

/// Sends a break that needs no acknowledgment. If its connection is lost before the client has received it, the client
/// would continue with old data on another one.
fn send_unasked<V: Vfs>(server: &Arc<Server<V>>, broken: &Break) {
    let elsewhere = notify::has_other_connections(server, broken);
    let Some(connection) = notify::send(server, broken, elsewhere) else {
        return;
    };
    if elsewhere {
        server.pending_breaks.carries(connection, broken);
        // As in `send_to_holder`, the connection may have been cleaned up already.
        if !server.is_connected(connection) {
            send_again(server, connection);
        }
    }
}

/// Sends on another connection the breaks that a lost one carried and that need no acknowledgment ([MS-SMB2] 3.3.4.6,
/// 3.3.4.7), except those after which the client was granted caching again.
fn send_again<V: Vfs>(server: &Arc<Server<V>>, lost: ConnectionId) {
    for broken in server.pending_breaks.carried(lost) {
        // Their caching is gone, but the engine still knows which opens share it.
        let opens = server.files.opens_of(broken.place.key, broken.owner);
        let broken = Break { opens, ..broken };
        if caches_nothing(server, &broken) {
            deliver(server, broken);
        }
    }
}

/// Whether an open that a break concerns still has no caching.
fn caches_nothing<V: Vfs>(server: &Server<V>, broken: &Break) -> bool {
    let mut opens = broken.opens.iter().filter_map(|open| server.open(*open));
    opens.any(|open| {
        let caching = |place: &Place| server.files.caching_of(place, open.engine);
        open.disk()
            .is_ok_and(|disk| !caching(&disk.place).is_some())
    })
}

/// Has a break of a restored lease wait for its client. Each open of the lease that comes back names the same break.
pub(crate) fn restored<V: Vfs>(server: &Arc<Server<V>>, broken: Break) {
    let (owner, ticket) = (broken.owner, broken.ticket);
    let pending = &server.pending_breaks;
    if pending.is_sent(owner) && pending.of(owner).iter().any(|known| known.ticket == ticket) {
        // Another open of the lease was restored before, and its client is back.
        return;
    }
    let other = pending.waits(broken);
    // The break of a file that had the key of the lease before ends in time.
    if let Some(other) = other.filter(|other| other.ticket != ticket) {
        watch(server, other);
    }
}

/// Called when a client of `owner` has opened the file of its lease anew: the break that waited for it leaves after the
/// answer.
pub(crate) fn resume<V: Vfs>(server: &Arc<Server<V>>, owner: Owner) {
    let waiting = server.pending_breaks.resume(owner);
    if let Some(broken) = waiting.filter(|broken| in_flight(server, broken)) {
        deliver(server, broken);
    }
}

/// Called when a client of `owner` has reconnected on the connection `by`, or replays its CREATE there. As by
/// [`resume`], and a break that another connection carries leaves after the answer, too: the client may have lost that
/// connection before the server learns of it. One that has `reconnected` has all its time to acknowledge; by replays on
/// its channels in turn, a client must not put off the end of the break.
pub(crate) fn recall<V: Vfs>(
    server: &Arc<Server<V>>,
    owner: Owner,
    by: ConnectionId,
    reconnected: bool,
) {
    let carried = server.pending_breaks.recall(owner, by, reconnected);
    resume(server, owner);
    if let Some(broken) = carried.filter(|broken| in_flight(server, broken)) {
        deliver(server, broken);
    }
}

/// The caching of an open as the answer to a CREATE reports it. A break that the client has not received is sent after
/// the answer, and its epoch is left out of the answer: if the answer already carried that epoch, the client would take
/// the break for an old one ([MS-SMB2] 3.2.5.7.5, 3.2.5.19.2).
pub(crate) fn reported<V: Vfs>(
    server: &Server<V>,
    place: &Place,
    open: OpenId,
    owner: Owner,
) -> CacheGrant {
    let mut cache = server.files.caching_of(place, open);
    if let CacheGrant::Lease(lease) = &mut cache
        && lease.is_breaking()
        && let Some(v2) = &mut lease.v2
        && !server.pending_breaks.is_sent(owner)
    {
        v2.epoch = v2.epoch.wrapping_sub(1);
    }
    cache
}

/// Takes a client's acknowledgment of an oplock break ([MS-SMB2] 3.3.5.22.1) and returns the level for the reply.
pub(crate) fn acknowledge_oplock<V: Vfs>(
    server: &Arc<Server<V>>,
    open: &Open<V>,
    place: &Place,
    level: OplockLevel,
) -> Result<OplockLevel, Status> {
    let owner = Owner::Oplock(open.engine);
    let (answer, effects) = {
        let _breaking = server.persistence.breaking();
        let after = server.files.acknowledge_oplock(place, open.engine, level);
        records::caching_changed(server, owner);
        after
    };
    acknowledged(server, owner);
    perform(server, effects);
    answer
}

/// Takes a client's acknowledgment of a lease break ([MS-SMB2] 3.3.5.22.2) and returns the state for the reply. A
/// client sends it in the session of an open of the lease (3.2.5.19.2), so where none of the session's `users` has one,
/// the notification was not for this client: it was seen on the way (docs/protocol-notes.md, "Who acknowledges a lease
/// break").
pub(crate) fn acknowledge_lease<V: Vfs>(
    server: &Arc<Server<V>>,
    users: &[Sid],
    client: Guid,
    key: LeaseKey,
    state: LeaseState,
) -> Result<LeaseState, Status> {
    let opens = server.files.opens_of_lease(client, key);
    let searched = opens.iter().take(SEARCHED_MAX);
    let known = searched.filter_map(|open| {
        let connected = server.open(*open);
        connected.or_else(|| server.durables.kept(*open))
    });
    let known: Vec<_> = known.collect();
    let is_users = |open: &Arc<Open<V>>| users.contains(&open.origin.owner.user_sid);
    let shares = opens.len() > SEARCHED_MAX || known.iter().any(is_users);
    Status::OBJECT_NAME_NOT_FOUND.when(!shares)?;
    // Open.IsReplayEligible ends even if the acknowledgment is refused.
    for open in known {
        open.used();
    }
    let owner = Owner::Lease(client, key);
    let (answer, effects) = {
        let _breaking = server.persistence.breaking();
        let after = server.files.acknowledge_lease(client, key, state);
        records::caching_changed(server, owner);
        after
    };
    let over = answer.is_ok().then(|| acknowledged(server, owner));
    perform(server, effects);
    for broken in over.into_iter().flatten() {
        undelivered::sweep(server, &broken.opens);
    }
    answer
}

/// Called when a break of `owner` was acknowledged or an open of it was closed. Returns the breaks that are over; the
/// next one may be under way already and stays.
pub(crate) fn acknowledged<V: Vfs>(server: &Server<V>, owner: Owner) -> Vec<Break> {
    let mut over = server.pending_breaks.of(owner);
    over.retain(|broken| !in_flight(server, broken));
    for broken in &over {
        server.pending_breaks.forget(broken);
    }
    over
}

/// Called when a connection is lost and its opens were closed or disconnected: the breaks that it carried and that were
/// not acknowledged, or need no acknowledgment, are sent on another connection.
pub(crate) fn connection_lost<V: Vfs>(server: &Arc<Server<V>>, connection: ConnectionId) {
    // An open names the connection that it was made on. A session with other channels has outlived that one, and no
    // cleanup of it is to come.
    let is_lost = |by: &ConnectionId| *by == connection || !server.is_connected(*by);
    let carriers = server.pending_breaks.carriers().into_iter().filter(is_lost);
    for broken in carriers.flat_map(|by| server.pending_breaks.lost(by)) {
        if !in_flight(server, &broken) {
            server.pending_breaks.forget(&broken);
            continue;
        }
        // The client may be reconnecting, and must first get the answer that reports the open's caching.
        let Some(broken) = server.pending_breaks.hold(broken) else {
            continue;
        };
        let broken = up_to_date(server, broken);
        let absent = undelivered::is_away(server, &broken);
        ask(server, broken, absent, Some(connection));
    }
    send_again(server, connection);
}

/// Ends a break without any caching if it is not acknowledged in time.
fn watch<V: Vfs>(server: &Arc<Server<V>>, broken: Break) {
    let timed = server.pending_breaks.timed(&broken);
    // A quick client may have acknowledged before this task recorded the break as sent; the break must not be ended
    // a second time.
    if !in_flight(server, &broken) {
        return server.pending_breaks.forget(&broken);
    }
    // No new timer is started if one runs already.
    let Some(ended) = timed else {
        return;
    };
    let server = Arc::clone(server);
    let env = Arc::clone(&server.env);
    env.spawn(Box::pin(async move {
        let time = server.env.sleep(BREAK_TIMEOUT);
        if let First::Right(()) = race(ended, time).await {
            let _breaking = server.persistence.breaking();
            over(&server, &broken);
        }
    }));
}

/// Ends a break without an acknowledgment. The caller must hold [`crate::persistent::Persistence::breaking`].
fn over<V: Vfs>(server: &Arc<Server<V>>, broken: &Break) {
    server.pending_breaks.forget(broken);
    let after = (server.files).break_over(&broken.place, broken.owner, broken.ticket);
    records::caching_changed(server, broken.owner);
    perform(server, after);
    undelivered::sweep(server, &broken.opens);
}

#[cfg(test)]
mod tests;
