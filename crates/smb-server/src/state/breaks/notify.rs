//! Builds a break notification and chooses the connection that carries it ([MS-SMB2] 2.2.23, 3.3.4.6, 3.3.4.7).

use smb_wire::{
    ids::{Guid, SessionId},
    msg::{LeaseBreakFlags, LeaseBreakNotification, OplockBreakNotification},
};
use vfs::Vfs;

use crate::{
    file::{Break, Owner},
    link::outbound::{self, HEADROOM},
    state::{ConnectionId, Mail, Server},
};

/// Sends an oplock break on the connection that opened the file, or else on any other channel of its session, and a
/// lease break on any connection of the client. Returns the connection, or `None` if there is none.
pub(super) fn send<V: Vfs>(server: &Server<V>, broken: &Break) -> Option<ConnectionId> {
    let mut body = outbound::blank();
    match broken.owner {
        Owner::Oplock(open) => {
            let holder = server.holders.get(open)?;
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

/// The connections of a client, starting with those on which it opened the files of the lease, because another client
/// could use the same ClientGuid.
fn by_any<V: Vfs>(server: &Server<V>, client: Guid, broken: &Break) -> Vec<ConnectionId> {
    let holders = broken
        .opens
        .iter()
        .filter_map(|open| server.holders.get(*open));
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
