//! The report of the server's activity, made from its tables.

use std::sync::Arc;

use vfs::Vfs;

use super::{Open, Server, Session};
use crate::{
    administration::{ConnectionReport, OpenReport, Report, SessionReport},
    state::OpenKind,
};

/// Opens that a [`Report`] lists; beyond this only their number is given.
const OPENS_LISTED_MAX: usize = 10_000;
/// A path takes the place of one more open for each so many bytes, so that no user's long paths make a report that is
/// too large for an administrator to read.
const PATH_BYTES: usize = 1 << 10;

impl<V: Vfs> Server<V> {
    /// The present connections, sessions and opens.
    pub fn report(&self) -> Report {
        let connections = self
            .connections
            .lock()
            .iter()
            .map(|(id, peer)| ConnectionReport {
                id: id.0,
                peer: peer.address,
                dialect: peer.dialect.map_or(0, |dialect| dialect.0),
                since: peer.since,
            })
            .collect();
        let mut room = OPENS_LISTED_MAX;
        let kept = self.durables.all();
        let waiting = self.listed(&kept, &mut room);
        let sessions = self.all_sessions();
        let sessions = sessions
            .iter()
            .map(|session| self.session_report(session, &mut room));
        Report {
            connections,
            sessions: sessions.collect(),
            waiting,
            waiting_count: kept.len(),
        }
    }

    /// As many of these opens as there is room for.
    fn listed(&self, opens: &[Arc<Open<V>>], room: &mut usize) -> Vec<OpenReport> {
        let mut listed = Vec::new();
        for open in opens {
            if *room == 0 {
                break;
            }
            let report = self.open_report(open);
            *room = room.saturating_sub(1 + report.path.len() / PATH_BYTES);
            listed.push(report);
        }
        listed
    }

    /// The report of a session, with as many of its opens as there is room for.
    fn session_report(&self, session: &Session<V>, room: &mut usize) -> SessionReport {
        let token = session.token();
        let (trees, opens, open_count) = {
            let tables = session.tables();
            let trees = tables.trees.values();
            let trees: Vec<_> = trees.map(|tree| tree.name().to_owned()).collect();
            let opens: Vec<_> = tables.opens.values().take(*room).cloned().collect();
            (trees, opens, tables.opens.len())
        };
        SessionReport {
            id: session.id.0,
            channels: session.channels().into_iter().map(|one| one.0).collect(),
            user: token.user.clone(),
            guest: token.guest || token.anonymous,
            local_ids: token.local_ids(),
            signed: session.signing_required,
            encrypted: session.encrypt_data,
            trees,
            opens: self.listed(&opens, room),
            open_count,
        }
    }

    fn open_report(&self, open: &Open<V>) -> OpenReport {
        OpenReport {
            id: open.file_id.volatile,
            user: open.user.clone(),
            share: open.tree.name().to_owned(),
            path: self.shown_path(open),
            access: open.granted.bits(),
            locks: open.disk().map_or(0, |disk| {
                self.files.locks_of(&disk.place, open.engine) as u64
            }),
        }
    }

    /// The path below its share as administrators see it, or the name of a pipe.
    pub(crate) fn shown_path(&self, open: &Open<V>) -> String {
        match &open.kind {
            OpenKind::Pipe(pipe) => pipe.name().to_owned(),
            OpenKind::Disk { .. } => self
                .files
                .path_of(open.engine)
                .map_or_else(String::new, |path| path.text()),
        }
    }
}
