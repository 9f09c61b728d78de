//! Break notifications: sends them on a connection of the client, and ends those that nobody acknowledges
//! ([MS-SMB2] 3.3.4.6, 3.3.4.7, 3.3.6.1, 3.3.6.5).
//!
//! A break leaves after the answers that granted the caching it takes ([`Grants`]), and its timer starts when it
//! leaves. If the connection of a lease break is lost, the break is sent on another connection of the client. A
//! break that cannot be sent to anybody ends without any caching, or waits for the client of a persistent open; its
//! timer waits, too.
//!
//! [`Grants`]: crate::state::Grants

use std::{sync::Arc, time::Duration};

use smb_wire::{
    ids::{Guid, SessionId},
    msg::{LeaseBreakFlags, LeaseBreakNotification, OplockBreakNotification},
};
use vfs::Vfs;

use super::{durable, engine};
use crate::{
    file::{Break, Owner},
    link::outbound::{self, HEADROOM},
    persistent,
    race::{First, race},
    state::{ConnectionId, Mail, Server},
};

/// How long a holder has to acknowledge ([MS-SMB2] 3.3.4.6 <246>, 3.3.4.7 <247>).
const BREAK_TIMEOUT: Duration = Duration::from_secs(35);

/// An answer to CREATE that grants caching and has not left. Dropped when it is queued on its
/// connection, or when it never will be: then the breaks it held up leave.
pub(crate) struct Granting<V: Vfs> {
    server: Arc<Server<V>>,
    owner: Owner,
    number: u64,
}

impl<V: Vfs> Granting<V> {
    /// From here on breaks of this owner wait. Before the engine is asked, so that no break of
    /// another thread slips through between its grant and this.
    pub(super) fn begin(server: &Arc<Server<V>>, owner: Owner) -> Self {
        Self {
            server: Arc::clone(server),
            owner,
            number: server.grants.begin(owner),
        }
    }
}

impl<V: Vfs> Drop for Granting<V> {
    fn drop(&mut self) {
        for broken in self.server.grants.end(self.owner, self.number) {
            if !broken.ack_required || in_flight(&self.server, &broken) {
                leave(&self.server, broken);
            } else {
                // Acknowledged, or what was opened was given back meanwhile; it may have a timer, if
                // a connection carried it before.
                self.server.grants.forget(&broken);
            }
        }
    }
}

fn in_flight<V: Vfs>(server: &Server<V>, broken: &Break) -> bool {
    let files = &server.files;
    files.is_breaking(&broken.place, broken.owner, broken.ticket)
}

/// Tells the holder, now or as soon as it knows what it holds.
pub(super) fn deliver<V: Vfs>(server: &Arc<Server<V>>, broken: Break) {
    if let Some(broken) = server.grants.hold(broken) {
        leave(server, broken);
    }
}

fn leave<V: Vfs>(server: &Arc<Server<V>>, broken: Break) {
    let ends = durable::ends_all(server, &broken);
    if !broken.ack_required {
        if !ends {
            send(server, &broken);
        }
        return durable::sweep(server, &broken.opens);
    }
    if !ends && tell(server, &broken) {
        watch(server, broken);
    } else {
        // The notification cannot be sent, so no acknowledgment will come.
        durable::unheard(server, broken);
    }
}

/// Sends a break that must be acknowledged; returns false if no connection can carry it. A connection that is lost
/// at the same moment on another worker may have been cleaned up before this break was recorded for it; the next
/// connection is tried then.
fn tell<V: Vfs>(server: &Server<V>, broken: &Break) -> bool {
    while let Some(connection) = send(server, broken) {
        server.grants.told(connection, broken);
        if server.is_connected(connection) || !server.grants.untold(connection, broken) {
            return true;
        }
    }
    false
}

/// A client of `owner` is back at its open: the break that waited for it leaves, after the answer.
pub(super) fn resume<V: Vfs>(server: &Arc<Server<V>>, owner: Owner) {
    let waiting = server.grants.resume(owner);
    if let Some(broken) = waiting.filter(|broken| in_flight(server, broken)) {
        deliver(server, broken);
    }
}

/// Called when an open of `owner` is closed: a break that was sent, or that waits for a client, ends with the last
/// such open.
pub(super) fn closed<V: Vfs>(server: &Server<V>, owner: Owner) {
    acknowledged(server, owner);
}

/// A break of `owner` was acknowledged: gives back what is over. The next one may be under way
/// already, and stays.
pub(super) fn acknowledged<V: Vfs>(server: &Server<V>, owner: Owner) -> Vec<Break> {
    let mut over = server.grants.of(owner);
    over.retain(|broken| !in_flight(server, broken));
    for broken in &over {
        server.grants.forget(broken);
    }
    over
}

/// A connection is gone, and what was open by it alone is closed: the breaks it carried and that
/// nobody has answered go by another.
pub(super) fn connection_lost<V: Vfs>(server: &Arc<Server<V>>, connection: ConnectionId) {
    for broken in server.grants.lost(connection) {
        if !in_flight(server, &broken) {
            server.grants.forget(&broken);
            continue;
        }
        // Its client may be reconnecting, and must first receive the answer that says what the open holds.
        let Some(broken) = server.grants.hold(broken) else {
            continue;
        };
        // Its time goes on, if it is not answered already.
        if tell(server, &broken) {
            watch(server, broken);
        } else {
            durable::unheard(server, broken);
        }
    }
}

/// Ends a break without any caching if it is not acknowledged in time.
fn watch<V: Vfs>(server: &Arc<Server<V>>, broken: Break) {
    let timed = server.grants.timed(&broken);
    // A quick client may have acknowledged before this task recorded the break as sent; the break must not be ended
    // a second time.
    if !in_flight(server, &broken) {
        return server.grants.forget(&broken);
    }
    // No new one where its time runs already.
    let Some(ended) = timed else {
        return;
    };
    let server = Arc::clone(server);
    let env = Arc::clone(&server.env);
    env.spawn(Box::pin(async move {
        let time = server.env.sleep(BREAK_TIMEOUT);
        if let First::Right(()) = race(ended, time).await {
            over(&server, &broken);
        }
    }));
}

/// A break ends without an answer.
pub(super) fn over<V: Vfs>(server: &Arc<Server<V>>, broken: &Break) {
    server.grants.forget(broken);
    let after = server
        .files
        .break_over(&broken.place, broken.owner, broken.ticket);
    persistent::caching_changed(server, broken.owner);
    engine::perform(server, after);
    durable::sweep(server, &broken.opens);
}

/// Sends an oplock break on the connection that opened the file, or else on any other channel of its session, and a
/// lease break on any connection of the client. Returns the connection, or `None` if there is none.
fn send<V: Vfs>(server: &Server<V>, broken: &Break) -> Option<ConnectionId> {
    let mut body = outbound::blank();
    match broken.owner {
        Owner::Oplock(open) => {
            let holder = server.holder(open)?;
            OplockBreakNotification {
                oplock_level: broken.level(),
                file_id: holder.file_id,
            }
            .encode(&mut body, HEADROOM);
            let session = holder.session;
            let mut channels = server.channels_of(session, holder.connection).into_iter();
            channels.find(|channel| {
                let body = body.clone();
                server.post(*channel, Mail::Notify { session, body })
            })
        }
        Owner::Lease(client, lease_key) => {
            LeaseBreakNotification {
                new_epoch: broken.epoch,
                flags: LeaseBreakFlags::ACK_REQUIRED.when(broken.ack_required),
                lease_key,
                current_lease_state: broken.current,
                new_lease_state: broken.new,
            }
            .encode(&mut body, HEADROOM);
            by_any(server, client, broken)
                .into_iter()
                .find(|connection| {
                    let mail = Mail::Notify {
                        session: SessionId::default(),
                        body: body.clone(),
                    };
                    server.post(*connection, mail)
                })
        }
    }
}

/// The connections of a client, those first by which it opened what the lease covers: a ClientGuid
/// is easily said, by somebody else too.
fn by_any<V: Vfs>(server: &Server<V>, client: Guid, broken: &Break) -> Vec<ConnectionId> {
    let holders = broken.opens.iter().filter_map(|open| server.holder(*open));
    let mut connections: Vec<_> = holders.map(|holder| holder.connection).collect();
    connections.sort_unstable();
    connections.dedup();
    for other in server.connections_of(client) {
        if !connections.contains(&other) {
            connections.push(other);
        }
    }
    connections
}

#[cfg(test)]
#[path = "breaks_tests.rs"]
mod tests;
