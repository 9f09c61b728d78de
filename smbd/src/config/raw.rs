//! The tables of the configuration file as they are written.
//!
//! One struct per table, one field per key, each with its meaning and default; unknown keys are
//! errors. Nothing here is checked beyond its own type: `validate` turns these into the `Config`
//! that the rest of the program sees. Values keep their place in the file, so that every
//! complaint can point at them.

use std::{net::SocketAddr, path::PathBuf};

use serde::Deserialize;
use serde_spanned::Spanned;

use super::{
    CipherName, DialectName, Encryption, FileIo, LogFormat, Protection, Signing,
    SigningAlgorithmName, Streams, Symlinks, Unbuffered,
    dialects::Dialects,
    hosts::Network,
    values::{AppleModel, BitRate, ByteSize, LocalIds, Mode, Span},
};

/// A value that remembers where it was written.
pub(super) type At<T> = Option<Spanned<T>>;

/// The whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct File {
    /// The server as a whole.
    pub(super) server: ServerTable,
    /// Where to listen. Default: every address, port 445, all cores.
    pub(super) listener: Vec<Spanned<ListenerTable>>,
    /// The shares. At least one.
    pub(super) share: Vec<Spanned<ShareTable>>,
    /// The promise of a successful reply, for shares without a policy of their own.
    pub(super) durability: DurabilityTable,
    /// Bounds on what strangers and users can make the server hold.
    pub(super) limits: LimitsTable,
    /// The log on stderr or in the journal.
    pub(super) log: LogTable,
    /// The Prometheus listener.
    pub(super) metrics: MetricsTable,
    /// The privileges that the process gives up before it serves.
    pub(super) sandbox: SandboxTable,
}

/// `[server]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServerTable {
    /// NetBIOS name shown to clients, up to 15 characters. Default: the host name.
    pub(super) name: At<String>,
    /// Workgroup shown to clients. Default: "WORKGROUP".
    pub(super) workgroup: At<String>,
    /// Text shown next to the server's name. Default: "".
    pub(super) comment: At<String>,
    /// Model of the machine, by which Macs choose its icon; "" reports none. Default: "Holdfast".
    pub(super) apple_model: At<AppleModel>,
    /// Oldest dialect spoken: "2.0.2", "2.1", "3.0", "3.0.2", "3.1.1". Default: "2.0.2".
    pub(super) min_protocol: At<DialectName>,
    /// Newest dialect spoken. Default: "3.1.1".
    pub(super) max_protocol: At<DialectName>,
    /// "required": unsigned requests of users are refused; "desired": the client decides. Default:
    /// "required".
    pub(super) signing: At<Signing>,
    /// "offered": clients may encrypt; "required": everything is encrypted. Default: "offered".
    pub(super) encryption: At<Encryption>,
    /// Ciphers in order of preference. Default: aes-128-gcm, aes-256-gcm, aes-128-ccm, aes-256-ccm.
    pub(super) ciphers: At<Vec<CipherName>>,
    /// Signing algorithms for 3.1.1 in order of preference. Default: aes-gmac, aes-cmac, hmac-sha256.
    pub(super) signing_algorithms: At<Vec<SigningAlgorithmName>>,
    /// Addresses and networks that may connect. Default: all.
    pub(super) hosts_allow: At<Vec<Network>>,
    /// Addresses and networks that may not; wins over hosts_allow. Default: none.
    pub(super) hosts_deny: At<Vec<Network>>,
    /// Folder of the control socket, the user file and all that outlives the process. Default: /var/lib/holdfast for
    /// root, $XDG_STATE_HOME/holdfast (~/.local/state/holdfast) otherwise. In no share.
    pub(super) state_dir: At<PathBuf>,
    /// The user file. Default: users in state_dir. In no share.
    pub(super) users_file: At<PathBuf>,
    /// Let users in whose password is the empty one. Default: false.
    pub(super) allow_empty_passwords: At<bool>,
    /// Let anonymous sessions list the shares. Default: true.
    pub(super) anonymous_listing: At<bool>,
    /// Group whose members may list and end sessions and open files by remote administration. Default: none.
    pub(super) administrators: At<String>,
    /// Local user as whom guests and users without an owner act on disk: a name or "uid:gid". Only
    /// where the server runs as root. Default: "nobody".
    pub(super) guest_account: At<String>,
    /// How file I/O is done: "auto", "io_uring", "threads". Default: "auto".
    pub(super) file_io: At<FileIo>,
    /// How long a stopping server waits for requests under way. Default: "10s".
    pub(super) shutdown_grace: At<Span>,
    /// How long sessions, tree connects and opens go on that a reload does not allow any more.
    /// Default: "0s".
    pub(super) revocation_grace: At<Span>,
}

/// `[[listener]]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListenerTable {
    /// Address and port: "192.0.2.1:445", "[2001:db8::1]:445". Default: every IPv4 and IPv6 address.
    pub(super) address: At<SocketAddr>,
    /// Only connections that arrive on this network interface. Default: any.
    pub(super) interface: At<String>,
    /// Port where address is not given. Default: 445.
    pub(super) port: At<u16>,
    /// Cores whose workers serve this listener. Default: every core the process may use.
    pub(super) cores: At<Vec<usize>>,
    /// Whether each of these workers stays on its core. Default: true.
    pub(super) pin: At<bool>,
    /// Link speed announced to clients: "10Gbit", "2500Mbit". Default: the interface's own.
    pub(super) speed: At<BitRate>,
    /// Whether the server reports to clients that the interface spreads connections over cores (RSS), so that they
    /// open several to one address. Default: true where the interface has several queues.
    pub(super) rss: At<bool>,
}

/// `[[share]]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ShareTable {
    /// Name that clients connect to, up to 80 characters. Required.
    pub(super) name: At<String>,
    /// Folder that is served. Required.
    pub(super) path: At<PathBuf>,
    /// Text shown next to the name. Default: "".
    pub(super) comment: At<String>,
    /// Nothing can be changed. Default: false.
    pub(super) read_only: At<bool>,
    /// Users that may connect. Default (with no groups either): every user.
    pub(super) users: At<Vec<String>>,
    /// Groups whose members may connect. Default: none beyond users.
    pub(super) groups: At<Vec<String>>,
    /// Unknown users may connect as guest. Needs signing = "desired". Default: false.
    pub(super) guest: At<bool>,
    /// Local user and group as whom everybody acts here, and who own what is made, "uid:gid".
    /// Needs root unless it is the server's own. Default: the connected user's own, or the guest
    /// account's.
    pub(super) owner: At<LocalIds>,
    /// Permission bits of new files. Default: "0644".
    pub(super) file_mode: At<Mode>,
    /// Permission bits of new directories. Default: "0755".
    pub(super) directory_mode: At<Mode>,
    /// Durability policy, as on the command line. Default: the policy of [durability].
    pub(super) durability: At<String>,
    /// Consent to lose acknowledged writes when the host fails. Default: that of [durability].
    pub(super) accept_loss: At<bool>,
    /// Treat Apple's full sync as an ordinary flush. Default: that of [durability].
    pub(super) ignore_full_sync: At<bool>,
    /// "required": only encrypted requests are served. Default: the server's.
    pub(super) encryption: At<Encryption>,
    /// Addresses and networks that may connect to this share. Default: all that may reach the server.
    pub(super) hosts_allow: At<Vec<Network>>,
    /// Addresses and networks that may not; wins over hosts_allow. Default: none.
    pub(super) hosts_deny: At<Vec<Network>>,
    /// Symbolic links: "follow" within the share, "hide", or "refuse". Default: "follow".
    pub(super) symlinks: At<Symlinks>,
    /// Where named streams are kept: "xattr" or "depot". Default: "xattr".
    pub(super) streams: At<Streams>,
    /// Names that begin with a dot carry the hidden attribute. Default: true.
    pub(super) hide_dot_files: At<bool>,
    /// Names also have short (8.3) forms, which clients see and can open. Default: true.
    pub(super) short_names: At<bool>,
    /// The share appears in lists. Default: true.
    pub(super) browseable: At<bool>,
    /// Listings leave out what the user may not read. Default: false.
    pub(super) access_based_enumeration: At<bool>,
    /// Other processes of the host change files here: clients' caches are broken and watchers are notified. false:
    /// clients may show old contents. Default: true.
    pub(super) host_changes: At<bool>,
    /// Opens survive a crash or restart of the server (persistent handles). Default: false.
    pub(super) continuous_availability: At<bool>,
    /// Unbuffered writes and opens: "write-through" or "hint". Default: that of [durability].
    pub(super) unbuffered: At<Unbuffered>,
    /// Security descriptors are stable at once. Default: that of [durability].
    pub(super) durable_acl: At<bool>,
    /// A flush covers modification times. Default: that of [durability].
    pub(super) flush_times: At<bool>,
    /// Acknowledged flushes are recorded in the flush journal. Default: that of [durability].
    pub(super) flush_journal: At<bool>,
    /// Opens with another policy, tried in this order; the first that is for an open holds.
    #[serde(default)]
    pub(super) durability_rule: Vec<Spanned<RuleTable>>,
}

/// `[[share.durability_rule]]`: every criterion that is given must hold, one entry of each list.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleTable {
    /// Addresses and networks of the client.
    pub(super) clients: At<Vec<Network>>,
    /// Users.
    pub(super) users: At<Vec<String>>,
    /// Groups of the user.
    pub(super) groups: At<Vec<String>>,
    /// Dialects: "3.1.1", "2.1..3.0.2", "3.0..", ["2.0.2", "2.1"].
    pub(super) dialects: At<Dialects>,
    /// Patterns of paths within the share: "*.mdb", "scratch/**".
    pub(super) paths: At<Vec<Spanned<String>>>,
    /// How it was opened: "write-through", "unbuffered"; all that are named.
    pub(super) open: At<Vec<OpenFlag>>,
    /// The policy. Required.
    pub(super) durability: At<String>,
    /// A flush covers modification times. Default: that of the share.
    pub(super) flush_times: At<bool>,
}

/// The flag that an open asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum OpenFlag {
    /// FILE_WRITE_THROUGH
    WriteThrough,
    /// FILE_NO_INTERMEDIATE_BUFFERING
    Unbuffered,
}

/// `[durability]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DurabilityTable {
    /// "honor", "treat-host-as-stable-storage", "strict-sync" or "bounded". Default: "honor".
    pub(super) policy: At<String>,
    /// With "bounded": oldest acknowledged change that is not yet stable. No default.
    pub(super) max_delay: At<Span>,
    /// With "bounded": most acknowledged bytes that are not yet stable. No default.
    pub(super) max_bytes: At<ByteSize>,
    /// Consent to lose acknowledged writes when the host fails. Default: false.
    pub(super) accept_loss: At<bool>,
    /// The protection of the memory against a power failure: "none", "ups", "plp". Default: "none".
    pub(super) protection: At<Protection>,
    /// Treat Apple's full sync as an ordinary flush. Default: false.
    pub(super) ignore_full_sync: At<bool>,
    /// Make changes of security descriptors stable at once. Default: false.
    pub(super) durable_acl: At<bool>,
    /// A flush covers modification times. Default: true.
    pub(super) flush_times: At<bool>,
    /// Inodes with unflushed changes whose descriptors are kept. Default: a quarter of RLIMIT_NOFILE.
    pub(super) dirty_inodes_max: At<u32>,
    /// Age at which unflushed changes are synced in the background. Default: "30s".
    pub(super) dirty_age_max: At<Span>,
    /// Sync everything that is dirty before the server ends. Default: true.
    pub(super) sync_on_stop: At<bool>,
    /// Unbuffered writes and opens: "write-through" or "hint". Default: "write-through".
    pub(super) unbuffered: At<Unbuffered>,
    /// Acknowledged flushes are recorded in the flush journal in state_dir. Default: false.
    pub(super) flush_journal: At<bool>,
    /// Syncs that the background work of one share has in flight. Default: 64.
    pub(super) syncs_in_flight_max: At<u32>,
    /// Inodes whose failed sync is remembered; beyond it every FLUSH fails. Default: 65536.
    pub(super) latched_inodes_max: At<u32>,
}

/// `[limits]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitsTable {
    /// Connections in all. Beyond it, one without a login makes room. Default: 10000, less where RLIMIT_NOFILE is low.
    pub(super) connections: At<u32>,
    /// Connections from one address; likewise. Default: 256.
    pub(super) connections_per_address: At<u32>,
    /// Connections that nobody has logged in on yet; likewise. Default: 1000.
    pub(super) unauthenticated_connections: At<u32>,
    /// A connection without a login is closed after this time. Default: "30s".
    pub(super) authentication_timeout: At<Span>,
    /// Sessions on one connection; more get STATUS_REQUEST_NOT_ACCEPTED. Default: one for each 4 MiB of
    /// `buffer_memory`, 64 to 4096.
    pub(super) sessions_per_connection: At<u32>,
    /// Tree connects of one session; more get STATUS_INSUFFICIENT_RESOURCES. Default: 1024.
    pub(super) trees_per_session: At<u32>,
    /// Opens of one session; more get STATUS_TOO_MANY_OPENED_FILES. Default: 16384.
    pub(super) opens_per_session: At<u32>,
    /// Opens in all; more get STATUS_TOO_MANY_OPENED_FILES. Default: what RLIMIT_NOFILE leaves.
    pub(super) opens: At<u32>,
    /// Opens of one user; more get STATUS_TOO_MANY_OPENED_FILES. Default: half of what is free.
    pub(super) opens_per_user: At<u32>,
    /// Byte-range locks of one open; more get STATUS_INSUFFICIENT_RESOURCES. Default: 4096.
    pub(super) locks_per_open: At<u32>,
    /// Requests of one connection that wait for something; more get
    /// STATUS_INSUFFICIENT_RESOURCES. Default: 511, as Windows has it (512 asynchronous credits, of
    /// which it keeps one).
    pub(super) pending_per_connection: At<u32>,
    /// Requests in one compound, up to 128; those beyond get STATUS_INVALID_PARAMETER. Default: 128.
    pub(super) compound_length: At<u32>,
    /// Credits of one connection. Default: 8192.
    pub(super) credits: At<u32>,
    /// Largest READ, WRITE and transaction. Default: "8MiB".
    pub(super) io_size: At<ByteSize>,
    /// Largest directory listing in one reply. Default: "1MiB".
    pub(super) directory_buffer: At<ByteSize>,
    /// Failed logins of one user from one address within a minute; further attempts get STATUS_LOGON_FAILURE without
    /// a look at their password. Default: 10.
    pub(super) failed_logins: At<u32>,
    /// Memory for buffers of all connections together; a connection that needs more waits. Default: an eighth of the
    /// machine's memory, or of what the control group allows, "64MiB" to "2GiB".
    pub(super) buffer_memory: At<ByteSize>,
}

/// `[log]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogTable {
    /// The log's filter, as in "info" or "info,smb_server=debug"; HOLDFAST_LOG takes precedence. Default: "info".
    pub(super) filter: At<String>,
    /// "auto", "plain" or "journal" (no timestamps, no colours). Default: "auto".
    pub(super) format: At<LogFormat>,
}

/// `[metrics]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MetricsTable {
    /// Loopback address and port of the Prometheus page, "127.0.0.1:9445". Default: no page.
    pub(super) listen: At<SocketAddr>,
}

/// `[sandbox]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SandboxTable {
    /// Drop the capabilities that are not used. Default: true.
    pub(super) drop_capabilities: At<bool>,
    /// Leave nothing of the file system but what is served and read. Default: true.
    pub(super) landlock: At<bool>,
    /// Refuse system calls that are not used. Default: true.
    pub(super) seccomp: At<bool>,
    /// Folders in which a reload may add shares, besides those that are served. Default: none.
    pub(super) folders: At<Vec<PathBuf>>,
}
