//! The server as its administrators see it: the report of its activity, and the objects that they may end.
//!
//! `holdfast status` and administrators' calls of srvsvc read the report, which `state/server/report.rs` makes.
//! `command/revoke.rs` ends what a target names. All of this is values, so that the pipes, which know no session, can
//! use it.

use std::net::SocketAddr;

use vfs::Timestamp;

/// The server's activity.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Live connections, in the order of their numbers.
    pub connections: Vec<ConnectionReport>,
    /// Live sessions.
    pub sessions: Vec<SessionReport>,
    /// Disconnected opens; only the first of them if there are many.
    pub waiting: Vec<OpenReport>,
    /// The number of disconnected opens.
    pub waiting_count: usize,
}

/// One connection.
#[derive(Debug, Clone)]
pub struct ConnectionReport {
    /// Its number.
    pub id: u64,
    /// The client's address.
    pub peer: SocketAddr,
    /// Dialect revision, 0 before NEGOTIATE.
    pub dialect: u16,
    /// When it was accepted.
    pub since: Timestamp,
}

/// One session.
#[derive(Debug, Clone)]
pub struct SessionReport {
    /// SessionId.
    pub id: u64,
    /// The numbers of its connections, in the order in which they were added.
    pub channels: Vec<u64>,
    /// User name; empty for anonymous.
    pub user: String,
    /// Signed in as guest or anonymously.
    pub guest: bool,
    /// The uid and gid under which it acts on disk; `None` for those of the service.
    pub local_ids: Option<(u32, u32)>,
    /// Signing is required.
    pub signed: bool,
    /// Every message is encrypted.
    pub encrypted: bool,
    /// Shares connected to.
    pub trees: Vec<String>,
    /// Open handles; only the first of them if there are many.
    pub opens: Vec<OpenReport>,
    /// The number of open handles.
    pub open_count: usize,
}

/// One open handle.
#[derive(Debug, Clone)]
pub struct OpenReport {
    /// Volatile part of the FileId.
    pub id: u64,
    /// The user who opened it.
    pub user: String,
    /// Share.
    pub share: String,
    /// Path below the share, with backslashes.
    pub path: String,
    /// Granted access mask.
    pub access: u32,
    /// Byte-range locks held.
    pub locks: u64,
}

impl Report {
    /// The first connection of a session, unless it is lost.
    pub(crate) fn first_connection(&self, of: &SessionReport) -> Option<&ConnectionReport> {
        let id = of.channels.first()?;
        let found = self.connections.binary_search_by_key(id, |one| one.id);
        self.connections.get(found.ok()?)
    }

    /// All listed opens.
    pub(crate) fn opens(&self) -> impl Iterator<Item = &OpenReport> {
        let of_sessions = self.sessions.iter().flat_map(|session| &session.opens);
        of_sessions.chain(&self.waiting)
    }
}

/// The object that an administrator wants to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A session, by its id.
    Session(u64),
    /// An open, by the volatile part of its FileId.
    Open(u64),
    /// Everything of a user, letter case aside.
    User(String),
    /// Everything on a share, letter case aside.
    Share(String),
}
