//! The configuration: one TOML file in, one unambiguous [`Config`] out.
//!
//! `raw` holds the tables as written, `validate` turns them into the types below: sizes in bytes, addresses parsed,
//! defaults filled in, shares checked against the disk, and combinations refused that would break a promise. Problems
//! are collected in a [`ConfigReport`] with line, caret, suggestion and advice. This module opens no socket and does
//! not read the user file. The durability of a share, host rules, algorithms, and the treatment of links and streams
//! have the types of the crates that implement them; other terms of the protocol are translated at the server's border.

mod apart;
mod command_line;
mod dialects;
mod guest_account;
mod hosts;
mod in_time;
mod limits;
mod listeners;
pub mod local_users;
mod log_filter;
pub mod places;
pub mod policy;
mod raw;
mod reading;
mod report;
mod restart;
mod rules;
mod share;
mod validate;
pub mod values;

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use clap::ValueEnum;
use durability::ShareDurability;
use serde::Deserialize;
use smb_crypto::{Cipher, SigningAlgorithm};
use smb_server::config::HostRules;
use vfs::posix::{StreamStore, SymlinkPolicy};

use crate::Error;

pub use apart::are_apart;
pub(crate) use apart::check_all as check_apart;
pub use command_line::{CommandLine, from_command_line};
pub(crate) use durability::is_same_share;
pub use durability::{Policy, Rules};
pub use guest_account::{GuestAccount, default_guest_account};
pub(crate) use in_time::{in_time, unanswered};
pub use listeners::listen_everywhere;
pub(crate) use log_filter::{FILTER_EXAMPLE, check_filter};
pub use policy::PolicyError;
pub use reading::{FILE_BYTES_MAX, load, parse, state_dir_of};
pub(crate) use reading::{load_again, places_with, server_of};
pub use report::{ConfigReport, Problem};
pub(crate) use restart::keep_until_restart;
pub(crate) use share::{UNSYNCED, is_mistake};
pub use values::LocalIds;

/// The port of SMB over TCP.
pub const SMB_PORT: u16 = 445;

/// The whole configuration of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    pub server: ServerSettings,
    /// Where to listen; never empty.
    pub listeners: Vec<Listener>,
    /// The shares; never empty as read, names unique without regard to case.
    pub shares: Vec<ShareSettings>,
    /// The shares that are held back because their file systems do not answer. The daemon sets this, not the file.
    pub late: Vec<ShareSettings>,
    /// The number of dirty inodes that the engine was started with. The daemon sets this, not the file.
    pub dirty_inodes: Option<u32>,
    pub limits: LimitSettings,
    pub durability: DurabilitySettings,
    pub log: Log,
    /// The Prometheus listener; loopback.
    pub metrics: Option<SocketAddr>,
    /// The privileges that the process gives up before it serves.
    pub sandbox: Sandbox,
}

/// `[server]`, see the annotated example for the meaning of each key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSettings {
    /// Upper case, 1 to 15 characters.
    pub name: String,
    /// The workgroup that clients see, in upper case, of 1 to 15 characters.
    pub workgroup: String,
    pub comment: String,
    /// The model of the machine that Macs see, of up to 79 characters; an empty one is not reported.
    pub apple_model: String,
    /// The oldest dialect that is spoken; it is not newer than `max_protocol`.
    pub min_protocol: DialectName,
    pub max_protocol: DialectName,
    pub signing: Signing,
    pub encryption: Encryption,
    /// In order of preference, no doubles, not empty.
    pub ciphers: Vec<Cipher>,
    /// In order of preference, no doubles, not empty.
    pub signing_algorithms: Vec<SigningAlgorithm>,
    pub hosts: HostRules,
    pub state_dir: PathBuf,
    pub users_file: PathBuf,
    pub allow_empty_passwords: bool,
    pub anonymous_listing: bool,
    pub administrators: Option<String>,
    pub guest_account: GuestAccount,
    pub file_io: FileIo,
    pub shutdown_grace: Duration,
    pub revocation_grace: Duration,
}

/// `[sandbox]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sandbox {
    pub drop_capabilities: bool,
    pub landlock: bool,
    pub seccomp: bool,
    /// Absolute; directories in which a reload may add shares.
    pub folders: Vec<PathBuf>,
}

/// `[[listener]]`: one address and the cores that serve it, see the annotated example for the meaning of each key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Where to bind. The unspecified IPv6 address takes IPv4 connections too.
    pub address: SocketAddr,
    pub interface: Option<String>,
    /// Cores, sorted; empty means every core the process may use.
    pub cores: Vec<usize>,
    pub pin: bool,
    /// Bits per second announced to clients of several channels; `None`: the link's own.
    pub speed: Option<u64>,
    /// Announced as able to spread channels over cores; `None`: as the interface has it.
    pub rss: Option<bool>,
}

impl Listener {
    /// A listener with defaults. An IPv4 address that is written as one of IPv6 is bound as what it is: the kernel
    /// takes it from no socket that is for IPv6 only.
    pub fn at(mut address: SocketAddr) -> Self {
        address.set_ip(address.ip().to_canonical());
        Self {
            address,
            interface: None,
            cores: Vec::new(),
            pin: true,
            speed: None,
            rss: None,
        }
    }
}

/// `[[share]]`, see the annotated example for the meaning of each key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareSettings {
    pub name: String,
    /// Absolute; was a directory when the configuration was read.
    pub path: PathBuf,
    pub comment: String,
    pub read_only: bool,
    pub continuous_availability: bool,
    /// Empty together with `groups` means every user.
    pub users: Vec<String>,
    pub groups: Vec<String>,
    pub guest: bool,
    pub owner: Option<LocalIds>,
    pub file_mode: u32,
    pub directory_mode: u32,
    pub durability: ShareDurability,
    pub accept_loss: bool,
    pub flush_journal: bool,
    /// Opens with another policy; each named by its place in the file.
    pub rules: Rules,
    pub encryption: Encryption,
    pub hosts: HostRules,
    pub symlinks: SymlinkPolicy,
    pub streams: StreamStore,
    pub hide_dot_files: bool,
    pub short_names: bool,
    pub browseable: bool,
    pub access_based_enumeration: bool,
    pub host_changes: bool,
}

/// `[durability]` without what shares inherit, see the annotated example for the meaning of each key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DurabilitySettings {
    /// The policy of shares that name none.
    pub policy: Policy,
    pub protection: Protection,
    /// `None` stands for the number that `resources.rs` computes.
    pub dirty_inodes_max: Option<u32>,
    pub dirty_age_max: Duration,
    pub sync_on_stop: bool,
    /// Syncs that the background work of one share has in flight, 1 to 1,024.
    pub syncs_in_flight_max: u32,
    /// Poisoned inodes that are remembered, at least 1.
    pub latched_inodes_max: u32,
}

/// `[limits]`, see the annotated example for the meaning and the status of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitSettings {
    /// `None`, here, for sessions and for the two limits of opens, stands for the number that `resources.rs` computes.
    pub connections: Option<u32>,
    pub connections_per_address: u32,
    pub unauthenticated_connections: u32,
    pub authentication_timeout: Duration,
    pub sessions_per_connection: Option<u32>,
    pub trees_per_session: u32,
    pub opens_per_session: u32,
    pub opens: Option<u32>,
    /// `None` stands for half of what is free to the user.
    pub opens_per_user: Option<u32>,
    pub locks_per_open: u32,
    /// Requests that wait for something.
    pub pending_per_connection: u32,
    pub compound_length: u32,
    pub credits: u16,
    /// The largest READ, WRITE and transaction.
    pub io_size_bytes: u32,
    pub directory_buffer_bytes: u32,
    pub failed_logins: u32,
    /// `None` stands for the amount that `resources.rs` computes for this machine.
    pub buffer_memory: Option<u64>,
}

impl Default for LimitSettings {
    fn default() -> Self {
        Self {
            connections: None,
            connections_per_address: 256,
            unauthenticated_connections: 1_000,
            authentication_timeout: Duration::from_secs(30),
            sessions_per_connection: None,
            trees_per_session: 1_024,
            opens_per_session: 16_384,
            opens: None,
            opens_per_user: None,
            locks_per_open: 4_096,
            // As Windows has it: 512 asynchronous credits, of which it keeps one.
            pending_per_connection: 511,
            compound_length: 128,
            credits: 8_192,
            io_size_bytes: 8 << 20,
            directory_buffer_bytes: 1 << 20,
            failed_logins: 10,
            buffer_memory: None,
        }
    }
}

/// `[log]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// The levels of the log, in the syntax of the variable `HOLDFAST_LOG`, which takes precedence.
    pub filter: String,
    pub format: LogFormat,
}

/// The configuration's names for the dialects of SMB, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub enum DialectName {
    #[serde(rename = "2.0.2")]
    Smb202 = 0x0202,
    #[serde(rename = "2.1")]
    Smb210 = 0x0210,
    #[serde(rename = "3.0")]
    Smb300 = 0x0300,
    #[serde(rename = "3.0.2")]
    Smb302 = 0x0302,
    #[serde(rename = "3.1.1")]
    Smb311 = 0x0311,
}

/// Whether requests must be signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Signing {
    Required,
    Desired,
}

/// Whether requests must be encrypted; also the values of `--encrypt`, for which the comments are the help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Encryption {
    /// Clients may encrypt
    Offered,
    /// Everything is encrypted
    Required,
}

/// Fastest first: GCM costs a fourteenth of CCM here, 128 bits less than 256.
const DEFAULT_CIPHERS: [Cipher; 4] = [
    Cipher::Aes128Gcm,
    Cipher::Aes256Gcm,
    Cipher::Aes128Ccm,
    Cipher::Aes256Ccm,
];

/// Fastest first: GMAC costs a twenty-third of CMAC here.
const DEFAULT_SIGNING_ALGORITHMS: [SigningAlgorithm; 3] = [
    SigningAlgorithm::AesGmac,
    SigningAlgorithm::AesCmac,
    SigningAlgorithm::HmacSha256,
];

/// The means of file I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileIo {
    /// The ring if the kernel allows it, threads otherwise; the log says which.
    Auto,
    /// The ring; the server does not start without it.
    IoUring,
    Threads,
}

/// The durability that unbuffered writes and opens ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unbuffered {
    /// They ask for the same durability as write-through ones.
    WriteThrough,
    /// They do not ask for durability.
    Hint,
}

/// The protection of the host's memory against a power failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protection {
    None,
    /// An uninterruptible power supply that shuts the host down in order.
    Ups,
    /// Drives or memory with power-loss protection that hold everything acknowledged.
    Plp,
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogFormat {
    /// `Journal` when stderr is the journal, `Plain` otherwise.
    Auto,
    Plain,
    Journal,
}

/// The share of this name.
pub(crate) fn share_named<'a>(
    shares: &'a [ShareSettings],
    name: &str,
) -> Result<&'a ShareSettings, Error> {
    let named = shares.iter().find(|one| is_same_share(&one.name, name));
    named.ok_or_else(|| {
        let known: Vec<&str> = shares.iter().map(|share| share.name.as_str()).collect();
        let known = known.join(", ");
        format!("there is no share `{name}`\n  = the shares are {known}").into()
    })
}

/// Whether only programs on this machine can reach `address`.
pub fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// Every IPv6 and, by mapping, every IPv4 address.
const EVERY_ADDRESS: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

#[cfg(test)]
mod tests;
