//! Builds a break notification and chooses the connection that carries it ([MS-SMB2] 2.2.23, 3.3.4.6, 3.3.4.7).

use std::iter::once_with;

use smb_wire::{
    ids::{Guid, SessionId},
    msg::{LeaseBreakFlags, LeaseBreakNotification, OplockBreakNotification},
};
use vfs::Vfs;

use super::holders::Holder;
use crate::{
    file::{Break, Owner, level_of},
    link::outbound::{self, HEADROOM},
    state::{ConnectionId, Mail, Server},
};

/// Sends an oplock break on the connection that opened the file, or else on any other channel of its session, and a
/// lease break on any connection of the client. Returns the connection, or `None` if there is none. `elsewhere` is
/// what [`has_other_connections`] says of the break.
///
/// An oplock break is encrypted as the answers on its open are ([MS-SMB2] 3.3.4.1.4). A lease break never is: it
/// belongs to no session, so its SessionId must be 0 (3.3.4.7), and clients must disconnect when an encrypted message
/// has another SessionId than its transform header (3.2.5.1.1.1; docs/protocol-notes.md, "Encryption of breaks").
pub(super) fn send<V: Vfs>(
    server: &Server<V>,
    broken: &Break,
    elsewhere: bool,
) -> Option<ConnectionId> {
    let mut body = outbound::blank();
    match broken.owner {
        Owner::Oplock(open) => {
            let holder = server.holders.get(open)?;
            OplockBreakNotification {
                oplock_level: level_of(broken.new),
                file_id: holder.file_id,
            }
            .encode(&mut body, HEADROOM);
            let mail = Mail::Notify {
                session: holder.session,
                encrypted: holder.encrypted,
                elsewhere,
                body,
            };
            let channels = server.channels_of(holder.session, holder.connection);
            (channels.into_iter()).find(|to| server.post(*to, mail.clone()))
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
            let mail = Mail::Notify {
                session: SessionId::default(),
                encrypted: false,
                elsewhere,
                body,
            };
            by_any(server, client, broken).find(|to| server.post(*to, mail.clone()))
        }
    }
}

/// Whether the client has the caching on several connections: its opens are on them, or in a session of several
/// channels. If the connection that carries the break is lost, another one can carry it ([MS-SMB2] 3.3.4.6, 3.3.4.7).
pub(super) fn has_other_connections<V: Vfs>(server: &Server<V>, broken: &Break) -> bool {
    let opens = broken.opens.iter();
    let mut holders = opens.filter_map(|open| server.holders.get(*open));
    let Some(first) = holders.next() else {
        return false;
    };
    let has_channels = |holder: &Holder| {
        let session = server.session(holder.session);
        session.is_some_and(|session| session.channels().len() > 1)
    };
    let differs = |other: &Holder| {
        other.connection != first.connection
            || (other.session != first.session && has_channels(other))
    };
    has_channels(&first) || holders.any(|other| differs(&other))
}

/// The connections of a client, starting with those on which it opened the files of the lease, because another client
/// could use the same ClientGuid. The others are looked for among all connections of the server only if it comes to
/// that.
fn by_any<V: Vfs>(
    server: &Server<V>,
    client: Guid,
    broken: &Break,
) -> impl Iterator<Item = ConnectionId> {
    let opens = broken.opens.iter();
    let holders = opens.filter_map(|open| server.holders.get(*open));
    let mut connections: Vec<_> = holders.map(|holder| holder.connection).collect();
    connections.sort_unstable();
    connections.dedup();
    let first = connections.clone().into_iter();
    let all = once_with(move || server.connections_of(client)).flatten();
    first.chain(all.filter(move |other| !connections.contains(other)))
}
