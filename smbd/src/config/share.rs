//! Checks of one `[[share]]`: the name, the folder, and combinations that cannot both be kept.

use std::{
    io,
    path::{Path, PathBuf},
};

use durability::{Policy, ShareDurability};
use serde_spanned::Spanned;
use vfs::posix::{StreamStore, SymlinkPolicy};

use super::{
    Cipher, DialectName, DurabilitySettings, Encryption, Protection, ServerSettings, ShareSettings,
    Signing, Unbuffered,
    apart::OwnFiles,
    hosts::Network,
    in_time::in_time,
    policy, raw, rules,
    validate::{Findings, absolute, get, given, hosts, is_empty, span},
};

/// Longest share name that Windows clients accept.
const SHARE_NAME_MAX: usize = 80;
/// Longest comment; clients cut longer ones.
const COMMENT_MAX: usize = 256;
/// Names the protocol keeps for itself.
const RESERVED: [&str; 4] = ["IPC$", "ADMIN$", "PRINT$", "GLOBAL"];

/// Message and advice for the policy that can lose acknowledged data without consent.
pub(super) const UNGUARDED: (&str, &str) = (
    "treat-host-as-stable-storage loses acknowledged data when this machine fails, and nobody has agreed to that",
    "say accept_loss = true, or protection = \"ups\" or \"plp\" in [durability] if the host has it; or use policy \"bounded\"",
);

/// Message and advice for a policy that needs the sync at the end: nobody else keeps its bound from then on.
pub(crate) const UNSYNCED: (&str, &str) = (
    "`bounded` cannot keep its bound where the server ends without a sync",
    "take sync_on_stop = false out of [durability], or choose another policy",
);

/// The values that a share inherits from the rest of the file.
#[derive(Clone, Copy)]
pub(super) struct From<'a> {
    pub(super) server: &'a ServerSettings,
    pub(super) durability: &'a DurabilitySettings,
    pub(super) inherited: &'a raw::DurabilityTable,
    /// The folder at which relative paths start.
    pub(super) folder: &'a Path,
    pub(super) source: rules::Source<'a>,
    /// Folders that the server has already.
    pub(super) served: &'a [PathBuf],
}

impl From<'_> {
    /// The configuration file, if there is one.
    fn config_file(&self) -> Option<PathBuf> {
        let file = self.source.file;
        (!file.is_empty()).then(|| self.folder.join(file))
    }
}

pub(super) fn share(
    table: &Spanned<raw::ShareTable>,
    from: &From<'_>,
    findings: &mut Findings,
) -> Option<ShareSettings> {
    let (server, inherited) = (from.server, from.inherited);
    let place = table.span();
    let table = table.get_ref();
    let mut required = |missing: bool, key: &str, example: &str| {
        if missing {
            findings.add(
                Some(place.clone()),
                format!("this share has no {key}"),
                example,
            );
        }
    };
    required(table.name.is_none(), "name", "add name = \"files\"");
    required(table.path.is_none(), "path", "add path = \"/srv/files\"");
    let (name, path) = (table.name.as_ref()?, table.path.as_ref()?);
    if let Err((message, way_out)) = check_name(name.get_ref()) {
        findings.add(Some(name.span()), message, way_out);
    }
    let folder_path = absolute(from.folder, &path.get_ref().0);
    check_folder(&folder_path, path.span(), from.served, findings);
    let read_only = get(&table.read_only, false);
    let own = OwnFiles::of(server, from.config_file());
    if let Some((message, way_out)) = own.exposed_in_time(&folder_path, read_only) {
        findings.add(Some(path.span()), message, way_out);
    }
    let share = ShareSettings {
        name: name.get_ref().clone(),
        path: folder_path,
        comment: get(&table.comment, String::new()),
        read_only,
        continuous_availability: get(&table.continuous_availability, false),
        users: get(&table.users, Vec::new()),
        groups: get(&table.groups, Vec::new()),
        guest: get(&table.guest, false),
        owner: given(&table.owner),
        file_mode: given(&table.file_mode).map_or(FILE_MODE, |mode| mode.0),
        directory_mode: given(&table.directory_mode).map_or(DIRECTORY_MODE, |mode| mode.0),
        durability: durability(table, from, findings),
        accept_loss: accepts_loss(table, inherited),
        flush_journal: get(&table.flush_journal, get(&inherited.flush_journal, false)),
        rules: rules::rules(table, from, findings),
        encryption: get(&table.encryption, server.encryption),
        hosts: hosts(&table.hosts_allow, &table.hosts_deny),
        symlinks: get(&table.symlinks, SymlinkPolicy::Follow),
        streams: get(&table.streams, StreamStore::Xattr),
        hide_dot_files: get(&table.hide_dot_files, true),
        short_names: get(&table.short_names, true),
        browseable: get(&table.browseable, true),
        access_based_enumeration: get(&table.access_based_enumeration, false),
        host_changes: get(&table.host_changes, true),
    };
    combinations(table, &share, server, findings);
    if !from.durability.sync_on_stop && is_bounded(&share) {
        let message = format!("share {}: {}", share.name, UNSYNCED.0);
        findings.add(span(&inherited.sync_on_stop), message, UNSYNCED.1);
    }
    Some(share)
}

/// When the share's changes become stable.
fn durability(
    table: &raw::ShareTable,
    from: &From<'_>,
    findings: &mut Findings,
) -> ShareDurability {
    let inherited = from.inherited;
    let unbuffered = get(&inherited.unbuffered, Unbuffered::WriteThrough);
    let ignored = get(&inherited.ignore_full_sync, false);
    ShareDurability {
        policy: share_policy(table, from, findings),
        ignore_full_sync: get(&table.ignore_full_sync, ignored),
        unbuffered_is_write_through: get(&table.unbuffered, unbuffered) == Unbuffered::WriteThrough,
        durable_acl: get(&table.durable_acl, get(&inherited.durable_acl, false)),
        flush_times: get(&table.flush_times, get(&inherited.flush_times, true)),
        sync_on_stop: from.durability.sync_on_stop,
    }
}

fn is_bounded(share: &ShareSettings) -> bool {
    let rules = share.rules.iter().map(|rule| rule.policy);
    let mut policies = rules.chain([share.durability.policy]);
    policies.any(|policy| matches!(policy, Policy::Bounded(_)))
}

/// Whether clients can connect to a share of this name; otherwise a message and advice.
pub(super) fn check_name(name: &str) -> Result<(), (String, &'static str)> {
    if RESERVED
        .iter()
        .any(|reserved| reserved.eq_ignore_ascii_case(name))
    {
        return Err((
            format!("`{name}` is a name that the protocol keeps for itself"),
            "choose another name",
        ));
    }
    // [MS-FSCC] 2.1.6: the characters a share name cannot have.
    let forbidden = |c: char| c.is_control() || "\"\\/[]:|<>+=;,*?".contains(c);
    if let Some(bad) = name.chars().find(|c| forbidden(*c)) {
        return Err((
            format!(
                "`{}` cannot be a share name: clients cannot write `{}`",
                name.escape_debug(),
                bad.escape_debug()
            ),
            "use letters, digits, spaces, `-`, `_`, `.` or `$`",
        ));
    }
    if name.trim().is_empty() || name.trim() != name || name.chars().count() > SHARE_NAME_MAX {
        return Err((
            format!("`{name}` cannot be a share name"),
            "use 1 to 80 characters, without spaces at the ends",
        ));
    }
    Ok(())
}

/// Whether this error of opening a share's folder is a mistake of the configuration: there is no such folder, or the
/// server may not open it. Any other is one of the file system, which keeps no other share from being served.
pub(crate) fn is_mistake(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::InvalidFilename
            | io::ErrorKind::InvalidInput
    ) || error.raw_os_error() == Some(libc::ELOOP)
}

fn check_folder(
    path: &Path,
    place: std::ops::Range<usize>,
    served: &[PathBuf],
    findings: &mut Findings,
) {
    let folder = path.to_owned();
    match in_time(path, move || std::fs::metadata(folder)) {
        None => tracing::warn!(
            "{}: its disk does not answer, so the folder is not checked",
            path.display()
        ),
        Some(Ok(meta)) if meta.is_dir() => {}
        Some(Err(error)) if !is_mistake(&error) => {
            tracing::warn!(%error, "{}: its file system fails, so the folder is not checked", path.display());
        }
        Some(Err(error)) if served.iter().any(|folder| folder == path) => {
            tracing::warn!(
                %error,
                "{}: the folder of a share has gone\n  = mount or make it, then: holdfast reload",
                path.display()
            );
        }
        Some(Ok(_)) => findings.add(
            Some(place),
            format!("{} is not a directory", path.display()),
            "a share is a directory; give the one that holds the file",
        ),
        Some(Err(error)) => findings.add(
            Some(place),
            format!("{} cannot be served: {error}", path.display()),
            &way_to(path, &error),
        ),
    }
}

/// The way out where the folder of a share cannot be looked at.
pub(super) fn way_to(path: &Path, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "the user who serves it must be let into the folders above it; if that is another user, use sudo".to_owned()
        }
        _ if path.components().any(|part| part.as_os_str() == "~") => {
            "write the whole path: a shell replaces `~`, and this program does not".to_owned()
        }
        _ => format!("make it (mkdir -p {}) or correct the path", path.display()),
    }
}

/// Refuses an empty list of those who may connect, which would admit everybody.
pub(super) fn check_allow(list: &raw::At<Vec<Network>>, findings: &mut Findings) {
    if is_empty(list) {
        let message = "an empty hosts_allow admits everybody";
        let way_out = "remove the key to let every address in, or name some";
        findings.add(span(list), message, way_out);
    }
}

fn accepts_loss(table: &raw::ShareTable, inherited: &raw::DurabilityTable) -> bool {
    get(&table.accept_loss, get(&inherited.accept_loss, false))
}

/// Whether the administrator agreed to lose acknowledged writes, or they are protected.
pub(super) fn guarded(table: &raw::ShareTable, from: &From<'_>) -> bool {
    accepts_loss(table, from.inherited) || from.durability.protection != Protection::None
}

fn share_policy(table: &raw::ShareTable, from: &From<'_>, findings: &mut Findings) -> Policy {
    match &table.durability {
        Some(at) => written_policy(at, guarded(table, from), findings),
        None => from.durability.policy,
    }
}

/// The policy of a share or a rule, which may lose acknowledged data only if the share is `guarded`.
pub(super) fn written_policy(
    at: &Spanned<String>,
    guarded: bool,
    findings: &mut Findings,
) -> Policy {
    let policy = policy::parse(at.get_ref()).unwrap_or_else(|error| {
        findings.add(Some(at.span()), error.to_string(), &error.way_out);
        Policy::Honor
    });
    if policy == Policy::TreatHostAsStableStorage && !guarded {
        findings.add(Some(at.span()), UNGUARDED.0, UNGUARDED.1);
    }
    policy
}

/// Checks the comment of a share or of the server.
pub(super) fn check_comment(comment: &raw::At<String>, findings: &mut Findings) {
    if get(comment, String::new()).chars().count() > COMMENT_MAX {
        let message = "the comment is longer than clients show";
        findings.add(span(comment), message, "use up to 256 characters");
    }
}

fn combinations(
    table: &raw::ShareTable,
    share: &ShareSettings,
    server: &ServerSettings,
    findings: &mut Findings,
) {
    availability(table, share, findings);
    secrecy(table, share, server, findings);
    times(&table.flush_times, share.durability.policy, findings);
    check_allow(&table.hosts_allow, findings);
    check_comment(&table.comment, findings);
    let files_usable = share.file_mode & 0o600 == 0o600;
    if share.directory_mode & 0o700 != 0o700 || !files_usable {
        let place = if files_usable {
            span(&table.directory_mode)
        } else {
            span(&table.file_mode)
        };
        findings.add(
            place,
            "with these bits owners could not use their own new files",
            "allow at least \"0600\" for files and \"0700\" for directories",
        );
    }
    for (field, mode) in [
        (&table.file_mode, share.file_mode),
        (&table.directory_mode, share.directory_mode),
    ] {
        if mode & !0o777 != 0 {
            findings.add(
                span(field),
                "new files and directories can only have read, write and execute bits",
                "leave the first of four digits 0; a folder's own set-gid bit (chmod g+s) is \
                 inherited by new folders",
            );
        }
    }
    for (list, what) in [(&table.users, "users"), (&table.groups, "groups")] {
        if is_empty(list) {
            let message = format!("an empty list of {what} says nothing");
            let way_out = "remove the key to let every user in, or name some";
            findings.add(span(list), message, way_out);
        }
    }
}

/// A key that would take back a part of what strict-sync promises.
pub(super) fn times(flush_times: &raw::At<bool>, policy: Policy, findings: &mut Findings) {
    if policy == Policy::StrictSync && !get(flush_times, true) {
        findings.add(
            span(flush_times),
            "under strict-sync every answer covers the times: flush_times = false has no effect",
            "remove flush_times, or use honor",
        );
    }
}

/// Refuses continuous availability with settings that cannot keep its promise.
fn availability(table: &raw::ShareTable, share: &ShareSettings, findings: &mut Findings) {
    if get(&table.continuous_availability, false)
        && let Err(error) = share.durability.check_continuous_availability()
    {
        let place = span(&table.durability).or(span(&table.continuous_availability));
        findings.add(place, error.to_string(), "use honor or strict-sync");
    }
}

/// Checks signing and encryption: guests have no keys, old dialects have no encryption, and the server's setting takes
/// precedence over the share's.
fn secrecy(
    table: &raw::ShareTable,
    share: &ShareSettings,
    server: &ServerSettings,
    findings: &mut Findings,
) {
    let name = &share.name;
    let mut no_key = |what: &str, way_out: &str| {
        let message = format!("`{name}` allows guests, who have no key to {what}");
        findings.add(span(&table.guest), message, way_out);
    };
    if share.guest && server.signing == Signing::Required {
        let way_out = "remove guest, or set signing = \"desired\" in [server]";
        no_key("sign with, but signing is required", way_out);
    }
    if share.guest && share.encryption == Encryption::Required {
        let way_out = match server.encryption {
            Encryption::Offered => "remove guest, or set encryption = \"offered\" for this share",
            Encryption::Required => {
                "remove guest, or set encryption = \"offered\" in [server], and \"required\" for the other shares"
            }
        };
        no_key("encrypt with, but requires encryption", way_out);
    }
    if share.encryption == Encryption::Required && server.encryption != Encryption::Required {
        check_encryption(
            &table.encryption,
            server.max_protocol,
            &server.ciphers,
            findings,
        );
    }
    if share.encryption == Encryption::Offered && server.encryption == Encryption::Required {
        findings.add(
            span(&table.encryption),
            "the server requires encryption for everything; a share cannot take that back",
            "set encryption = \"offered\" in [server], and \"required\" for the other shares",
        );
    }
}

/// Refuses to require an encryption that no client can agree on.
pub(super) fn check_encryption(
    required: &raw::At<Encryption>,
    newest: DialectName,
    ciphers: &[Cipher],
    findings: &mut Findings,
) {
    let (message, way_out) = if newest < DialectName::Smb300 {
        (
            "encryption is required, but max_protocol ends before SMB 3, where encryption begins",
            "set max_protocol = \"3.1.1\" in [server], or encryption = \"offered\"",
        )
    } else if newest < DialectName::Smb311 && !ciphers.contains(&Cipher::Aes128Ccm) {
        // [MS-SMB2] 3.1.4.3: the cipher is negotiated from 3.1.1 on; before, there is only one.
        (
            "encryption is required, but max_protocol ends before SMB 3.1.1, and older dialects have aes-128-ccm only",
            "add \"aes-128-ccm\" to ciphers, or set max_protocol = \"3.1.1\" in [server]",
        )
    } else {
        return;
    };
    findings.add(span(required), message, way_out);
}

/// Permission bits of new files.
pub(super) const FILE_MODE: u32 = 0o644;
/// Permission bits of new directories.
pub(super) const DIRECTORY_MODE: u32 = 0o755;
