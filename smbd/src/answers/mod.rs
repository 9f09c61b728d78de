//! The answers of the control socket, and of the commands that print the same facts as JSON.
//!
//! Each is one type, built by the server and read by the command line, so that no field is looked up by its name
//! and none that is missing can pass for an empty one. The names and shapes of the fields are an interface for
//! scripts: `smbd/schema/` holds their JSON schemas, which a test generates from these types and another holds
//! against the output of a real server. Paths are text: what is not UTF-8 is replaced.
//!
//! Nothing here reads anything; this folder names no other part of the program.

mod changes;
mod explained;
mod protection;
mod share;
mod stores;

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

pub use changes::{
    AppliedConfig, ClearedLatches, ClosedObjects, ClosedOne, EndedByReload, EndedNow, PolicyChange,
    PolicyOutcome, Reloaded, SyncErrorReport, Synced,
};
pub use explained::{Asked, Explained, InForceNow, InForcePolicy, NotOpen, RuleExplained};
pub use protection::{DeviceStatus, FileSystemStatus, FindingStatus, ProtectionStatus};
pub use share::{
    LastChange, LateShareStatus, PoisonedStatus, PolicyExposureStatus, RemovedShareStatus,
    RuleStatus, SetAsideReason, ShareStatus, TooSlowStatus,
};
pub use stores::{
    HandlesStatus, JournalStatus, KeptStatus, LatchStoreStatus, PersistentStatus, WatchedFileSystem,
};

/// A span of time as the answers have it.
pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// The answer to `holdfast status`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StatusReport {
    /// Of the server.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Seconds since its start.
    pub uptime_s: u64,
    /// Its configuration file; null if it was started from the command line.
    pub config: Option<String>,
    /// The state folder.
    pub state_dir: String,
    /// Lines that the log could not take.
    pub log_lines_lost: u64,
    /// The privileges that the process has given up.
    pub sandbox: SandboxStatus,
    /// Figures of all connections.
    pub connections: AdmissionFigures,
    /// Each address that is listened on.
    pub listeners: Vec<ListenerStatus>,
    /// Each worker thread.
    pub workers: Vec<WorkerStatus>,
    /// The state of the protocol.
    pub server: ServerStatus,
    /// Shares of the configuration that are not served yet.
    pub late_shares: Vec<LateShareStatus>,
}

/// The parts of the sandbox that are in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SandboxStatus {
    /// Capabilities that are left; null: those that the process was started with.
    pub capabilities: Option<Vec<String>>,
    /// Folders whose contents can still be opened; null: all.
    pub landlock: Option<Vec<String>>,
    /// Why Landlock is not in force though it was wanted.
    pub without_landlock: Option<String>,
    /// Whether system calls are restricted to a list.
    pub seccomp: bool,
    /// System calls that were refused since the start.
    pub calls_refused: u64,
}

/// Figures of the admission of connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct AdmissionFigures {
    /// Connections now.
    pub connections: u32,
    /// Of these, without a login.
    pub unauthenticated: u32,
    /// Addresses they come from.
    pub addresses: usize,
    /// Let in since the start.
    pub accepted: u64,
    /// Turned away since the start.
    pub refused: u64,
    /// Closed since the start, without a login, because a newcomer needed the place.
    pub displaced: u64,
}

/// An address that is listened on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ListenerStatus {
    /// Address and port.
    pub address: String,
    /// The network interface, where the configuration names one.
    pub interface: Option<String>,
    /// The workers that serve its connections.
    pub workers: Vec<usize>,
}

/// A worker thread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct WorkerStatus {
    /// Its number.
    pub worker: usize,
    /// The core it runs on.
    pub core: usize,
    /// The listeners whose connections it serves.
    pub listeners: Vec<String>,
    /// Time it has spent on the core.
    pub cpu_ms: u64,
    /// "io_uring" or "threads".
    pub file_io: String,
    /// Connections that it serves now.
    pub connections: usize,
}

/// The state of the protocol: connections, sessions, opens, shares and stores.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ServerStatus {
    /// "io_uring" or "threads".
    pub file_io: String,
    /// Connections with a negotiated dialect.
    pub connections: Vec<ConnectionStatus>,
    /// Sessions.
    pub sessions: Vec<SessionStatus>,
    /// Opens that wait for clients which have lost their connection.
    pub waiting_count: usize,
    /// The first of them.
    pub waiting: Vec<OpenStatus>,
    /// Shares that are served.
    pub shares: Vec<ShareStatus>,
    /// Shares that are not served any more and have acknowledged something that is not stable.
    pub removed_shares: Vec<RemovedShareStatus>,
    /// The stores that outlive the process.
    pub kept: KeptStatus,
    /// The power supply of this machine.
    pub power: PowerStatus,
    /// Opens that outlive their connections.
    pub handles: HandlesStatus,
    /// Memory for buffers.
    pub memory: MemoryStatus,
    /// Entries of each table.
    pub tables: BTreeMap<String, usize>,
    /// Changes that other programs on this host make; null if they are not seen.
    pub host_changes: Option<HostChangesStatus>,
}

/// A connection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ConnectionStatus {
    /// Its number.
    pub id: u64,
    /// Address and port of the client.
    pub peer: String,
    /// The SMB dialect.
    pub dialect: String,
}

/// A session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SessionStatus {
    /// The argument of `holdfast close session`.
    pub id: u64,
    /// The connections that it has, by their numbers.
    pub channels: Vec<u64>,
    /// Its user; empty for an anonymous one.
    pub user: String,
    /// The local user and group that it acts as on disk.
    pub acts_as: String,
    /// Whether signing is required.
    pub signed: bool,
    /// Whether every message is encrypted.
    pub encrypted: bool,
    /// Shares that it is connected to.
    pub trees: Vec<String>,
    /// Opens.
    pub open_count: u64,
    /// The first of them.
    pub opens: Vec<OpenStatus>,
}

/// An open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OpenStatus {
    /// The argument of `holdfast close open`.
    pub id: u64,
    /// The user who opened it.
    pub user: String,
    /// The share.
    pub share: String,
    /// The path below the share, with backslashes; empty for its root.
    pub path: String,
    /// The granted access mask, as in "0x00120089".
    pub access: String,
    /// Byte-range locks.
    pub locks: u64,
}

/// Memory for buffers of all connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MemoryStatus {
    /// The most that is granted.
    pub limit_bytes: usize,
    /// Granted now.
    pub used_bytes: usize,
    /// Connections that wait for memory now.
    pub waiting: usize,
    /// Times since the start that a connection had to wait.
    pub waits: u64,
    /// Connections closed because their clients took nothing while others waited.
    pub evictions: u64,
    /// Requests refused because there was no memory for what they would keep.
    pub refusals: u64,
}

/// The power supply of this machine, and the power guard.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PowerStatus {
    /// The machine runs on: "mains", "battery" or "unknown".
    pub power: String,
    /// The supply that runs down, if one does.
    pub supply: Option<String>,
    /// Whether the guard sets lazy policies aside now.
    pub guard: bool,
    /// Times since the start that it began to.
    pub trips: u64,
}

/// Changes made on this host by other programs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct HostChangesStatus {
    /// Folders and files that are watched.
    pub watches: usize,
    /// Requests for a watch that are served by them.
    pub interests: usize,
    /// Times that there were too many changes at once.
    pub overflows: u64,
    /// Times that something could not be watched.
    pub refused: u64,
}

#[cfg(test)]
mod tests;
