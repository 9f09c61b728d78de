//! The tables of the configuration file as they are written.
//!
//! One struct per table, one field per key; unknown keys are errors. `examples/holdfast.toml` has the meaning and the
//! default of each key, and a test finds a key that it lacks. Nothing here is checked beyond its own type: `validate`
//! turns these into the `Config` that the rest of the program sees. Values keep their place in the file, so that every
//! complaint can point at them.

use std::{fmt, marker::PhantomData, net::SocketAddr};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_spanned::Spanned;
use smb_crypto::{Cipher, SigningAlgorithm};
use vfs::posix::{StreamStore, SymlinkPolicy};

use super::{
    DialectName, Encryption, FileIo, LogFormat, Protection, Signing, Unbuffered,
    dialects::Dialects,
    hosts::Network,
    values::{AppleModel, BitRate, ByteSize, LocalIds, Mode, Span, WrittenPath},
};

/// A value that remembers where it was written.
pub(super) type At<T> = Option<Spanned<T>>;

/// The whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct File {
    #[serde(deserialize_with = "table")]
    pub(super) server: ServerTable,
    #[serde(deserialize_with = "tables")]
    pub(super) listener: Vec<Spanned<ListenerTable>>,
    #[serde(deserialize_with = "tables")]
    pub(super) share: Vec<Spanned<ShareTable>>,
    #[serde(deserialize_with = "table")]
    pub(super) durability: DurabilityTable,
    #[serde(deserialize_with = "table")]
    pub(super) limits: LimitsTable,
    #[serde(deserialize_with = "table")]
    pub(super) log: LogTable,
    #[serde(deserialize_with = "table")]
    pub(super) metrics: MetricsTable,
    #[serde(deserialize_with = "table")]
    pub(super) sandbox: SandboxTable,
}

/// Reads a table that is written as one. Of a list, which serde takes as well, the first value would be that of the
/// first key here, and so on.
pub(super) fn table<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<T, D::Error> {
    Table::deserialize(from).map(|table| table.0)
}

/// Reads tables of one name as [`table`] does.
fn tables<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Vec<Spanned<T>>, D::Error> {
    let all = Vec::<Spanned<Table<T>>>::deserialize(from)?.into_iter();
    let all = all.map(|one| Spanned::new(one.span(), one.into_inner().0));
    Ok(all.collect())
}

struct Table<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Table<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Keys(PhantomData)).map(Self)
    }
}

/// Takes the keys of a table.
struct Keys<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Keys<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table")
    }

    fn visit_map<A: MapAccess<'de>>(self, keys: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(keys))
    }
}

/// `[server]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ServerTable {
    pub(super) name: At<String>,
    pub(super) workgroup: At<String>,
    pub(super) comment: At<String>,
    pub(super) apple_model: At<AppleModel>,
    pub(super) min_protocol: At<DialectName>,
    pub(super) max_protocol: At<DialectName>,
    pub(super) signing: At<Signing>,
    pub(super) encryption: At<Encryption>,
    pub(super) ciphers: At<Vec<Cipher>>,
    pub(super) signing_algorithms: At<Vec<SigningAlgorithm>>,
    pub(super) hosts_allow: At<Vec<Network>>,
    pub(super) hosts_deny: At<Vec<Network>>,
    pub(super) state_dir: At<WrittenPath>,
    pub(super) users_file: At<WrittenPath>,
    pub(super) allow_empty_passwords: At<bool>,
    pub(super) anonymous_listing: At<bool>,
    pub(super) administrators: At<String>,
    pub(super) guest_account: At<String>,
    pub(super) file_io: At<FileIo>,
    pub(super) shutdown_grace: At<Span>,
    pub(super) revocation_grace: At<Span>,
}

/// `[[listener]]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListenerTable {
    pub(super) address: At<SocketAddr>,
    pub(super) interface: At<String>,
    pub(super) port: At<u16>,
    pub(super) cores: At<Vec<usize>>,
    pub(super) pin: At<bool>,
    pub(super) speed: At<BitRate>,
    pub(super) rss: At<bool>,
}

/// `[[share]]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ShareTable {
    pub(super) name: At<String>,
    pub(super) path: At<WrittenPath>,
    pub(super) comment: At<String>,
    pub(super) read_only: At<bool>,
    pub(super) users: At<Vec<String>>,
    pub(super) groups: At<Vec<String>>,
    pub(super) guest: At<bool>,
    pub(super) owner: At<LocalIds>,
    pub(super) file_mode: At<Mode>,
    pub(super) directory_mode: At<Mode>,
    pub(super) durability: At<String>,
    pub(super) accept_loss: At<bool>,
    pub(super) ignore_full_sync: At<bool>,
    pub(super) encryption: At<Encryption>,
    pub(super) hosts_allow: At<Vec<Network>>,
    pub(super) hosts_deny: At<Vec<Network>>,
    pub(super) symlinks: At<SymlinkPolicy>,
    pub(super) streams: At<StreamStore>,
    pub(super) hide_dot_files: At<bool>,
    pub(super) short_names: At<bool>,
    pub(super) browseable: At<bool>,
    pub(super) access_based_enumeration: At<bool>,
    pub(super) host_changes: At<bool>,
    pub(super) continuous_availability: At<bool>,
    pub(super) unbuffered: At<Unbuffered>,
    pub(super) durable_acl: At<bool>,
    pub(super) flush_times: At<bool>,
    pub(super) flush_journal: At<bool>,
    #[serde(default, deserialize_with = "tables")]
    pub(super) durability_rule: Vec<Spanned<RuleTable>>,
}

/// `[[share.durability_rule]]`: every criterion that is given must hold, one entry of each list.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RuleTable {
    pub(super) clients: At<Vec<Network>>,
    pub(super) users: At<Vec<String>>,
    pub(super) groups: At<Vec<String>>,
    pub(super) dialects: At<Dialects>,
    pub(super) paths: At<Vec<Spanned<String>>>,
    pub(super) open: At<Vec<OpenFlag>>,
    pub(super) durability: At<String>,
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
    pub(super) policy: At<String>,
    pub(super) max_delay: At<Span>,
    pub(super) max_bytes: At<ByteSize>,
    pub(super) accept_loss: At<bool>,
    pub(super) protection: At<Protection>,
    pub(super) ignore_full_sync: At<bool>,
    pub(super) durable_acl: At<bool>,
    pub(super) flush_times: At<bool>,
    pub(super) dirty_inodes_max: At<u32>,
    pub(super) dirty_age_max: At<Span>,
    pub(super) sync_on_stop: At<bool>,
    pub(super) unbuffered: At<Unbuffered>,
    pub(super) flush_journal: At<bool>,
    pub(super) syncs_in_flight_max: At<u32>,
    pub(super) latched_inodes_max: At<u32>,
}

/// `[limits]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitsTable {
    pub(super) connections: At<u32>,
    pub(super) connections_per_address: At<u32>,
    pub(super) unauthenticated_connections: At<u32>,
    pub(super) authentication_timeout: At<Span>,
    pub(super) sessions_per_connection: At<u32>,
    pub(super) trees_per_session: At<u32>,
    pub(super) opens_per_session: At<u32>,
    pub(super) opens: At<u32>,
    pub(super) opens_per_user: At<u32>,
    pub(super) locks_per_open: At<u32>,
    pub(super) pending_per_connection: At<u32>,
    pub(super) compound_length: At<u32>,
    pub(super) credits: At<u32>,
    pub(super) io_size: At<ByteSize>,
    pub(super) directory_buffer: At<ByteSize>,
    pub(super) failed_logins: At<u32>,
    pub(super) buffer_memory: At<ByteSize>,
}

/// `[log]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LogTable {
    pub(super) filter: At<String>,
    pub(super) format: At<LogFormat>,
}

/// `[metrics]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MetricsTable {
    pub(super) listen: At<SocketAddr>,
}

/// `[sandbox]`
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SandboxTable {
    pub(super) drop_capabilities: At<bool>,
    pub(super) landlock: At<bool>,
    pub(super) seccomp: At<bool>,
    pub(super) folders: At<Vec<WrittenPath>>,
}
