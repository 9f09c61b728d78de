//! Turns the tables of the file into the [`Config`] that the program uses.
//!
//! Defaults are filled in, and combinations that would break a promise refused, here and in the files of single tables
//! (`share`, `rules`, `limits`, `listeners`), and nowhere else. All problems are collected. The disk is queried for the
//! shares' folders; nothing is opened or made.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    ops::Range,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_spanned::Spanned;
use smb_server::config::HostRules;

use super::{
    Config, DEFAULT_CIPHERS, DEFAULT_SIGNING_ALGORITHMS, DialectName, DurabilitySettings,
    Encryption, FileIo, Listener, Log, LogFormat, Policy, PolicyError, Protection, Sandbox,
    ServerSettings, ShareSettings, Signing, guest_account::guest_account, hosts::Network,
    in_time::in_time, is_loopback, limits, listeners::listeners, log_filter::log_filter, places,
    policy, raw, report::Problem, rules::Source, share,
};

/// Longest NetBIOS name.
const NETBIOS_NAME_MAX: usize = 15;
/// Most shares.
const SHARES_MAX: usize = 10_000;

#[derive(Default)]
pub(super) struct Findings {
    pub(super) problems: Vec<Problem>,
}

impl Findings {
    pub(super) fn add(
        &mut self,
        span: Option<Range<usize>>,
        message: impl Into<String>,
        way_out: &str,
    ) {
        let way_out = (!way_out.is_empty()).then(|| way_out.to_owned());
        self.problems.push(Problem {
            message: message.into(),
            span,
            way_out,
        });
    }

    /// The problems if there are any, otherwise what was made.
    fn or_problems<T>(self, made: T) -> Result<T, Vec<Problem>> {
        match self.problems.is_empty() {
            true => Ok(made),
            false => Err(self.problems),
        }
    }
}

/// The value, if it was written.
pub(super) fn given<T: Clone>(field: &raw::At<T>) -> Option<T> {
    field.as_ref().map(|at| at.get_ref().clone())
}

/// The value, or the default.
pub(super) fn get<T: Clone>(field: &raw::At<T>, default: T) -> T {
    given(field).unwrap_or(default)
}

/// Whether a list was written that names nothing.
pub(super) fn is_empty<T>(list: &raw::At<Vec<T>>) -> bool {
    list.as_ref().is_some_and(|at| at.get_ref().is_empty())
}

/// Where the value was written.
pub(super) fn span<T>(field: &raw::At<T>) -> Option<Range<usize>> {
    field.as_ref().map(Spanned::span)
}

/// Checks everything, for a server that serves the folders `served` already.
pub(super) fn validate(
    file: &raw::File,
    folder: &Path,
    source: Source<'_>,
    served: &[PathBuf],
) -> Result<Config, Vec<Problem>> {
    let mut findings = Findings::default();
    let server = server(&file.server, folder, &mut findings);
    let durability = durability(&file.durability, &mut findings);
    let shares: Vec<ShareSettings> = file
        .share
        .iter()
        .filter_map(|table| {
            let from = share::From {
                server: &server,
                durability: &durability,
                inherited: &file.durability,
                folder,
                source,
                served,
            };
            share::share(table, &from, &mut findings)
        })
        .collect();
    if file.share.is_empty() {
        let way_out =
            "add a table:\n    [[share]]\n    name = \"files\"\n    path = \"/srv/files\"";
        findings.add(None, "no [[share]]: there is nothing to serve", way_out);
    }
    if let Some(more) = file.share.get(SHARES_MAX) {
        let way_out = "serve a folder above several of them, or start a second server";
        let message = format!("more than {SHARES_MAX} shares");
        findings.add(Some(more.span()), message, way_out);
    }
    unique_names(&file.share, &mut findings);
    let listeners = listeners(&file.listener, &mut findings);
    let config = Config {
        limits: limits::limits(&file.limits, &mut findings),
        log: Log {
            filter: log_filter(&file.log, &mut findings),
            format: get(&file.log.format, LogFormat::Auto),
        },
        metrics: metrics(&file.metrics, &listeners, &mut findings),
        listeners,
        sandbox: sandbox(&file.sandbox, folder, !served.is_empty(), &mut findings),
        server,
        shares,
        late: Vec::new(),
        dirty_inodes: None,
        durability,
    };
    findings
        .problems
        .sort_by_key(|problem| problem.span.as_ref().map(|span| span.start));
    findings.or_problems(config)
}

/// Checks `[server]` alone.
pub(super) fn only_server(
    table: &raw::ServerTable,
    folder: &Path,
) -> Result<ServerSettings, Vec<Problem>> {
    let mut findings = Findings::default();
    let server = server(table, folder, &mut findings);
    findings.or_problems(server)
}

fn server(table: &raw::ServerTable, folder: &Path, findings: &mut Findings) -> ServerSettings {
    let state_dir = given(&table.state_dir);
    let state_dir = state_dir.map_or_else(places::default, |path| absolute(folder, &path.0));
    let min_protocol = get(&table.min_protocol, DialectName::Smb202);
    let max_protocol = get(&table.max_protocol, DialectName::Smb311);
    if min_protocol > max_protocol {
        let place = span(&table.min_protocol).or(span(&table.max_protocol));
        findings.add(
            place,
            "min_protocol is newer than max_protocol: no dialect is left",
            "lower min_protocol or raise max_protocol",
        );
    }
    share::check_allow(&table.hosts_allow, findings);
    share::check_comment(&table.comment, findings);
    let encryption = get(&table.encryption, Encryption::Offered);
    let ciphers = preference(&table.ciphers, &DEFAULT_CIPHERS, "ciphers", findings);
    if encryption == Encryption::Required {
        share::check_encryption(&table.encryption, max_protocol, &ciphers, findings);
    }
    let default_name = || places::host_name().to_uppercase();
    ServerSettings {
        name: netbios_name(&table.name, "name", default_name(), findings),
        workgroup: netbios_name(&table.workgroup, "workgroup", "WORKGROUP".into(), findings),
        comment: get(&table.comment, String::new()),
        apple_model: given(&table.apple_model).map_or("Holdfast".to_owned(), |model| model.0),
        min_protocol,
        max_protocol,
        signing: get(&table.signing, Signing::Required),
        encryption,
        ciphers,
        signing_algorithms: preference(
            &table.signing_algorithms,
            &DEFAULT_SIGNING_ALGORITHMS,
            "signing_algorithms",
            findings,
        ),
        hosts: hosts(&table.hosts_allow, &table.hosts_deny),
        users_file: table.users_file.as_ref().map_or_else(
            || state_dir.join(places::USERS_FILE),
            |at| absolute(folder, &at.get_ref().0),
        ),
        state_dir,
        allow_empty_passwords: get(&table.allow_empty_passwords, false),
        anonymous_listing: get(&table.anonymous_listing, true),
        administrators: given(&table.administrators),
        guest_account: guest_account(&table.guest_account, findings),
        file_io: get(&table.file_io, FileIo::Auto),
        shutdown_grace: given(&table.shutdown_grace).map_or(SHUTDOWN_GRACE, |time| time.0),
        revocation_grace: given(&table.revocation_grace).map_or(Duration::ZERO, |time| time.0),
    }
}

fn netbios_name(
    field: &raw::At<String>,
    key: &str,
    default: String,
    findings: &mut Findings,
) -> String {
    let Some(at) = field else { return default };
    let name = at.get_ref();
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if name.is_empty() || name.len() > NETBIOS_NAME_MAX || !name.chars().all(fits) {
        let message = format!("`{name}` cannot be the {key}: clients take NetBIOS names only");
        let way_out = "use 1 to 15 letters, digits, `-` and `_`";
        findings.add(Some(at.span()), message, way_out);
    }
    name.to_uppercase()
}

fn preference<T: Copy + PartialEq>(
    field: &raw::At<Vec<T>>,
    default: &[T],
    key: &str,
    findings: &mut Findings,
) -> Vec<T> {
    let list = field.as_ref().map_or(default, |at| at.get_ref().as_slice());
    if list.is_empty() {
        let message = format!("{key} is empty: nothing would be left to agree on");
        let way_out = "remove the key for the default";
        findings.add(span(field), message, way_out);
    }
    let is_double = |(at, item): (usize, &T)| list.iter().take(at).any(|other| other == item);
    if list.iter().enumerate().any(is_double) {
        let message = format!("{key} names one algorithm twice");
        let way_out = "remove one of the two";
        findings.add(span(field), message, way_out);
    }
    list.to_vec()
}

pub(super) fn hosts(allow: &raw::At<Vec<Network>>, deny: &raw::At<Vec<Network>>) -> HostRules {
    HostRules {
        allow: networks(allow),
        deny: networks(deny),
    }
}

/// The networks of a list; none if there is no list.
pub(super) fn networks(list: &raw::At<Vec<Network>>) -> Vec<durability::Network> {
    let list = list.iter().flat_map(|at| at.get_ref());
    list.map(|network| network.0).collect()
}

fn durability(table: &raw::DurabilityTable, findings: &mut Findings) -> DurabilitySettings {
    let policy = default_policy(table, findings);
    let protection = get(&table.protection, Protection::None);
    let consent = get(&table.accept_loss, false) || protection != Protection::None;
    if policy == Policy::TreatHostAsStableStorage && !consent {
        findings.add(span(&table.policy), share::UNGUARDED.0, share::UNGUARDED.1);
    }
    let dirty_age_max = given(&table.dirty_age_max).map_or(DIRTY_AGE_MAX, |age| age.0);
    if dirty_age_max.is_zero() {
        let message = "dirty_age_max must be longer than nothing";
        let way_out = "strict-sync is the policy that leaves nothing unsynced";
        findings.add(span(&table.dirty_age_max), message, way_out);
    }
    DurabilitySettings {
        policy,
        protection,
        dirty_inodes_max: (table.dirty_inodes_max.as_ref())
            .map(|_| within(&table.dirty_inodes_max, 0, 1..=10_000_000, findings)),
        dirty_age_max,
        sync_on_stop: get(&table.sync_on_stop, true),
        syncs_in_flight_max: within(&table.syncs_in_flight_max, 64, 1..=1_024, findings),
        latched_inodes_max: within(&table.latched_inodes_max, 65_536, 1..=10_000_000, findings),
    }
}

/// A number in its range, or its default.
pub(super) fn within(
    field: &raw::At<u32>,
    default: u32,
    range: std::ops::RangeInclusive<u32>,
    findings: &mut Findings,
) -> u32 {
    let value = get(field, default);
    if !range.contains(&value) {
        let (least, most) = (range.start(), range.end());
        findings.add(
            span(field),
            format!("{value} is out of range here"),
            &format!("use {least} to {most}"),
        );
    }
    value
}

fn default_policy(table: &raw::DurabilityTable, findings: &mut Findings) -> Policy {
    let Some(at) = &table.policy else {
        for bound in [span(&table.max_delay), span(&table.max_bytes)]
            .into_iter()
            .flatten()
        {
            let message = "a bound without policy = \"bounded\" binds nothing";
            let way_out = "set policy = \"bounded\", or remove the bound";
            findings.add(Some(bound), message, way_out);
        }
        return Policy::Honor;
    };
    let bounds = (&table.max_delay, &table.max_bytes);
    let parsed = match (at.get_ref().as_str(), bounds) {
        ("bounded", (Some(delay), Some(bytes))) => {
            policy::bounded(delay.get_ref().0, bytes.get_ref().0)
        }
        (text, (None, None)) => policy::parse(text),
        ("bounded", _) => Err(PolicyError::bounds_missing()),
        (text, (delay, bytes)) => {
            let place = span(delay).or(span(bytes));
            findings.add(
                place,
                format!("max_delay and max_bytes have no meaning with policy = \"{text}\""),
                "remove them, or set policy = \"bounded\"",
            );
            policy::parse(text)
        }
    };
    parsed.unwrap_or_else(|error| {
        let way_out = match error == PolicyError::bounds_missing() {
            true => "set max_delay and max_bytes, or write policy = \"bounded:50ms,4MiB\"",
            false => error.way_out.as_str(),
        };
        findings.add(Some(at.span()), error.to_string(), way_out);
        Policy::Honor
    })
}

fn metrics(
    table: &raw::MetricsTable,
    listeners: &[Listener],
    findings: &mut Findings,
) -> Option<SocketAddr> {
    let listen = table.listen.as_ref()?;
    let Listener { address, .. } = Listener::at(*listen.get_ref());
    if !is_loopback(address.ip()) {
        findings.add(
            Some(listen.span()),
            format!(
                "{} can be reached from outside, and the metrics page asks nobody who they are",
                address.ip()
            ),
            "use 127.0.0.1 or [::1], and a reverse proxy with authentication for others",
        );
    }
    let taken = |listener: &Listener| {
        let same = listener.address.ip() == address.ip() || listener.address.ip().is_unspecified();
        same && listener.address.port() == address.port()
    };
    if address.port() == 0 || listeners.iter().any(taken) {
        let message = format!("port {} is no port for the metrics page", address.port());
        let way_out = "use one that no [[listener]] has, as in 127.0.0.1:9445";
        findings.add(Some(listen.span()), message, way_out);
    }
    Some(address)
}

/// A server that runs (`serves`) needs none of the folders any more: a missing one must not keep it from a reload.
fn sandbox(
    table: &raw::SandboxTable,
    folder: &Path,
    serves: bool,
    findings: &mut Findings,
) -> Sandbox {
    let on = |key: &raw::At<bool>| get(key, true);
    let mut folders = Vec::new();
    if let Some(at) = &table.folders {
        for path in at.get_ref() {
            let path = absolute(folder, &path.0);
            let asked = path.clone();
            let is_wrong = move || match std::fs::metadata(asked) {
                Ok(meta) => !meta.is_dir(),
                // A disk that fails keeps no server from starting.
                Err(error) => share::is_mistake(&error),
            };
            if !serves && in_time(&path, is_wrong) == Some(true) {
                let message = format!("{} is not a directory", path.display());
                let way_out = "name directories that exist when the server starts";
                findings.add(Some(at.span()), message, way_out);
            }
            folders.push(path);
        }
        if !on(&table.landlock) {
            findings.add(
                Some(at.span()),
                "`folders` means nothing where `landlock = false`",
                "remove one of the two",
            );
        }
    }
    Sandbox {
        drop_capabilities: on(&table.drop_capabilities),
        landlock: on(&table.landlock),
        seccomp: on(&table.seccomp),
        folders,
    }
}

fn unique_names(tables: &[Spanned<raw::ShareTable>], findings: &mut Findings) {
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    for at in tables
        .iter()
        .filter_map(|table| table.get_ref().name.as_ref())
    {
        let name = at.get_ref();
        if let Some(first) = seen.insert(name.to_uppercase(), name.clone()) {
            findings.add(
                Some(at.span()),
                format!("a second share named `{name}` (the first is `{first}`; clients do not see letter case)"),
                "rename one of the two",
            );
        }
    }
}

/// A path as the file means it: relative ones start at the folder of the file.
pub(super) fn absolute(folder: &Path, path: &Path) -> PathBuf {
    let joined = folder.join(path);
    std::path::absolute(&joined).unwrap_or(joined)
}

/// How long a stopping server waits for requests under way.
pub(super) const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);
/// Age at which unflushed changes are synced in the background.
pub(super) const DIRTY_AGE_MAX: Duration = Duration::from_secs(30);
