//! The status of the protocol: connections, sessions, opens, shares and stores, read from the server as it runs.

use std::{collections::BTreeSet, sync::Arc};

use smb_server::{OpenReport, SessionReport, Share};

use super::{Holdfast, HostVfs, promises};
use crate::{
    accounts::acting,
    answers::{
        ConnectionStatus, OpenStatus, RemovedShareStatus, ServerStatus, SessionStatus, ShareStatus,
        millis,
    },
    config,
    metrics::exposition,
    runtime::settings,
    state::persistent_store,
};

impl Holdfast {
    /// The status of everything that the protocol knows.
    pub(super) fn server_status(&self) -> ServerStatus {
        let report = self.server.report();
        let connections = report.connections.iter();
        let connections = connections.map(|connection| ConnectionStatus {
            id: connection.id,
            peer: connection.peer.to_string(),
            dialect: settings::dialect_name(connection.dialect).to_owned(),
        });
        let tables = self.server.table_sizes().into_iter();
        ServerStatus {
            file_io: if self.use_ring { "io_uring" } else { "threads" }.to_owned(),
            connections: connections.collect(),
            sessions: report.sessions.into_iter().map(session_status).collect(),
            waiting_count: report.waiting_count,
            waiting: report.waiting.into_iter().map(open_status).collect(),
            shares: self.shares_status(),
            removed_shares: self.removed_shares(),
            kept: self.stores.status(),
            power: self.power.status(),
            handles: persistent_store::status(&self.server),
            memory: exposition::memory(&self.server),
            tables: tables.map(|(name, size)| (name.to_owned(), size)).collect(),
            host_changes: (self.host_changes.as_ref())
                .filter(|changes| changes.is_running())
                .map(|changes| changes.status()),
        }
    }

    /// The shares with their folders.
    pub(super) fn shares_status(&self) -> Vec<ShareStatus> {
        let config = self.config();
        let status = |share: &Arc<Share<HostVfs>>| {
            let mut configured = config.shares.iter();
            let configured = configured.find(|one| one.name == share.config.name);
            ShareStatus {
                path: configured.map(|one| one.path.display().to_string()),
                ..promises::share_status(share)
            }
        };
        self.server.shares().iter().map(status).collect()
    }

    /// The shares that are not served any more, as long as something that they acknowledged is not stable.
    pub(super) fn removed_shares(&self) -> Vec<RemovedShareStatus> {
        let left = exposition::not_served(&self.server).into_iter();
        left.map(|(share, exposed)| RemovedShareStatus {
            share,
            exposed_bytes: exposed.bytes,
            exposed_inodes: exposed.inodes,
            oldest_ms: millis(exposed.oldest_age),
            poisoned_inodes: exposed.poisoned_inodes,
        })
        .collect()
    }
}

/// The ids under which a session acts on disk; the server's own if it has no others.
fn acts_as(ids: Option<(u32, u32)>) -> String {
    let own = acting::Server::here().own;
    let ids = ids.map(|(uid, gid)| config::LocalIds { uid, gid });
    ids.unwrap_or(own).to_string()
}

fn open_status(open: OpenReport) -> OpenStatus {
    OpenStatus {
        id: open.id,
        user: open.user,
        share: open.share,
        path: open.path,
        access: format!("{:#010x}", open.access),
        locks: open.locks,
    }
}

fn session_status(session: SessionReport) -> SessionStatus {
    // A client may have a thousand tree connects to one share, in each of thousands of sessions: more than the answer
    // to an administrator has room for.
    let trees: BTreeSet<String> = session.trees.into_iter().collect();
    SessionStatus {
        id: session.id,
        channels: session.channels,
        user: session.user,
        acts_as: acts_as(session.local_ids),
        signed: session.signed,
        encrypted: session.encrypted,
        trees: trees.into_iter().collect(),
        open_count: session.open_count as u64,
        opens: session.opens.into_iter().map(open_status).collect(),
    }
}
