//! Translates the configuration into the types of the crates that use it: protocol core, file
//! system, durability. Nothing is opened here.

use std::{io, os::unix::fs::MetadataExt, path::Path};

use rustix::process::{getegid, geteuid};
use smb_auth::UserDb;
use smb_server::{
    config::{LocalAccounts, ServerConfig, ShareConfig},
    limits::ServerLimits,
};
use smb_wire::{dtyp::Sid, ids::Guid, msg::Dialect};
use vfs::{
    env::{Clock, Pause},
    posix::{AclNamespace, PosixOptions},
};

use crate::{
    config::{self, Config, local_users},
    runtime::resources::{self, Descriptors},
};

/// The machine's SID is S-1-5-21 followed by the 96 bits of the user file.
const NT_AUTHORITY: u64 = 5;
const NT_NON_UNIQUE: u32 = 21;

/// The server as a whole.
pub(crate) fn server(config: &Config, users: &UserDb) -> ServerConfig {
    let server = &config.server;
    let mut guid = [0; 16];
    let sid = users.machine_sid().0;
    // The guid is made from the machine SID: stable across restarts, different on each machine.
    for (to, from) in guid
        .iter_mut()
        .zip(sid.iter().flat_map(|part| part.to_le_bytes()))
    {
        *to = from;
    }
    let switch_identity = geteuid().is_root();
    let bound = users.users().filter_map(|user| user.uid_gid);
    let owners = config.shares.iter().filter_map(|share| share.owner);
    let guest = server.guest_account.ids;
    let mut core = ServerConfig {
        netbios_name: server.name.clone(),
        workgroup: server.workgroup.clone(),
        dns_name: server.name.to_lowercase(),
        comment: server.comment.clone(),
        apple_model: server.apple_model.clone(),
        server_guid: Guid(guid),
        machine_sid: machine_sid(users),
        dialect_min: Dialect(server.min_protocol.revision()),
        dialect_max: Dialect(server.max_protocol.revision()),
        signing_required: server.signing == config::Signing::Required,
        encryption_required: server.encryption == config::Encryption::Required,
        ciphers: server.ciphers.clone(),
        signing_algorithms: server.signing_algorithms.clone(),
        allow_empty_passwords: server.allow_empty_passwords,
        anonymous_listing: server.anonymous_listing,
        administrators: (server.administrators.as_ref())
            .and_then(|group| users.group(group))
            .map(|group| group.rid),
        switch_identity,
        guest_ids: if switch_identity {
            (guest.uid, guest.gid)
        } else {
            (geteuid().as_raw(), getegid().as_raw())
        },
        local_groups: if switch_identity {
            let owners = owners.map(|owner| owner.uid).chain([guest.uid]);
            local_users::of(bound.map(|(uid, _)| uid).chain(owners))
        } else {
            Default::default()
        },
        local_accounts: LocalAccounts::default(),
        limits: limits(config),
    };
    let accounts = users.users().map(|user| (user.rid, user.uid_gid));
    let guests = config.shares.iter().any(|share| share.guest);
    core.local_accounts = LocalAccounts::of(&core, accounts, guests);
    core
}

fn machine_sid(users: &UserDb) -> Sid {
    let [a, b, c] = users.machine_sid().0;
    Sid::new(NT_AUTHORITY, &[NT_NON_UNIQUE, a, b, c]).unwrap_or(Sid::NULL)
}

fn limits(config: &Config) -> ServerLimits {
    let limits = &config.limits;
    let timeout = limits.authentication_timeout;
    let buffer_memory = resources::buffer_memory(limits.buffer_memory);
    ServerLimits {
        trees_per_session: limits.trees_per_session as usize,
        opens_per_session: limits.opens_per_session as usize,
        locks_per_open: limits.locks_per_open as usize,
        parked_per_connection: limits.pending_per_connection as usize,
        io_bytes: limits.io_size_bytes,
        // Whole seconds, rounded up.
        setup_seconds: timeout.as_secs() + u64::from(timeout.subsec_nanos() > 0),
        sessions_per_connection: resources::sessions_per_connection(
            limits.sessions_per_connection,
            buffer_memory,
        ),
        compound_length: limits.compound_length as usize,
        credits: limits.credits,
        directory_bytes: limits.directory_buffer_bytes,
        failed_logins: limits.failed_logins,
        opens: Descriptors::of(config).opens as usize,
        opens_per_user: limits.opens_per_user.map(|most| most as usize),
        buffer_memory,
        ..ServerLimits::default()
    }
}

/// The usual name of a dialect.
pub(crate) fn dialect_name(revision: u16) -> &'static str {
    match Dialect(revision) {
        Dialect::SMB_2_0_2 => "2.0.2",
        Dialect::SMB_2_1 => "2.1",
        Dialect::SMB_3_0 => "3.0",
        Dialect::SMB_3_0_2 => "3.0.2",
        Dialect::SMB_3_1_1 => "3.1.1",
        _ => "none yet",
    }
}

/// Bounds of the durability engine.
pub(crate) fn durability_limits(config: &Config) -> durability::Limits {
    durability::Limits {
        dirty_inodes_max: Descriptors::of(config).dirty_inodes as usize,
        dirty_age_max: config.durability.dirty_age_max,
        syncs_in_flight_max: config.durability.syncs_in_flight_max as usize,
        poisoned_max: config.durability.latched_inodes_max as usize,
    }
}

/// The users whom a share names and who do not exist.
pub(crate) fn unknown_users<'a>(
    share: &'a config::ShareSettings,
    users: &'a UserDb,
) -> impl Iterator<Item = &'a String> {
    let named = share.users.iter();
    named.filter(move |name| users.user(name).is_none())
}

/// The users of a share, and its presentation.
///
/// # Errors
/// It names a group that does not exist, or an owner that this process cannot be.
pub(crate) fn share(share: &config::ShareSettings, users: &UserDb) -> io::Result<ShareConfig> {
    let us = (geteuid().as_raw(), getegid().as_raw());
    let ours = share.owner.is_none_or(|owner| (owner.uid, owner.gid) == us);
    if !ours && !geteuid().is_root() {
        return Err(io::Error::other(format!(
            "share {}: only a server that runs as root can act as another owner\n  = remove \
             owner, or start Holdfast as root",
            share.name
        )));
    }
    let mut group_rids = Vec::new();
    for group in &share.groups {
        let record = users.group(group).ok_or_else(|| {
            io::Error::other(format!(
                "share {}: no group `{group}`\n  = holdfast group add {group} --config FILE",
                share.name
            ))
        })?;
        group_rids.push(record.rid);
    }
    // This is no mistake: a user may be added later.
    for user in unknown_users(share, users) {
        tracing::warn!(
            share = share.name,
            user,
            "a share names a user who does not exist\n  = holdfast user add, or correct the name"
        );
    }
    let everybody = share.users.is_empty() && share.groups.is_empty();
    Ok(ShareConfig {
        comment: share.comment.clone(),
        read_only: share.read_only,
        continuous_availability: share.continuous_availability,
        users: (!everybody).then(|| share.users.clone()),
        group_rids,
        guest: share.guest,
        act_as: share.owner.map(|owner| (owner.uid, owner.gid)),
        encryption_required: share.encryption == config::Encryption::Required,
        browseable: share.browseable,
        access_based_enumeration: share.access_based_enumeration,
        host_changes: share.host_changes,
        hosts: share.hosts.clone(),
        ..ShareConfig::new(&share.name)
    })
}

/// The directories that are hidden from clients wherever they are: the state folder, and the folder of the user file,
/// also of the one behind a link, since that file itself is a new inode after each change.
pub(crate) fn hidden(config: &Config) -> Vec<(u64, u64)> {
    let server = &config.server;
    let real = server.users_file.canonicalize().ok();
    let folders = [
        Some(server.state_dir.as_path()),
        server.users_file.parent(),
        real.as_deref().and_then(Path::parent),
    ];
    let mut hidden = Vec::new();
    for folder in folders.into_iter().flatten() {
        match std::fs::metadata(folder) {
            Ok(meta) => hidden.push((meta.dev(), meta.ino())),
            // There is nothing to hide: the users of `serve PATH` are in memory.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(
                    %error,
                    "{} cannot be looked at, so a share that contains it shows it",
                    folder.display()
                );
            }
        }
    }
    hidden.dedup();
    hidden
}

/// The options of a share's files.
pub(crate) fn files(share: &config::ShareSettings, hidden: &[(u64, u64)]) -> PosixOptions {
    PosixOptions {
        root_path: share.path.clone(),
        hidden: hidden.to_vec(),
        symlinks: share.symlinks,
        streams: share.streams,
        hide_dot_files: share.hide_dot_files,
        short_names: share.short_names,
        file_mode: share.file_mode,
        directory_mode: share.directory_mode,
        acl: if geteuid().is_root() {
            AclNamespace::Security
        } else {
            AclNamespace::User
        },
        read_only: share.read_only,
        clock: Clock::new(crate::runtime::env::realtime),
        pause: Pause::new(crate::runtime::env::wake_later),
        ..PosixOptions::default()
    }
}

/// Whether a folder can stay open as it is, because the options of its files are the same.
pub(crate) fn same_files(a: &config::ShareSettings, b: &config::ShareSettings) -> bool {
    let of = |share: &config::ShareSettings| {
        (
            share.path.clone(),
            share.symlinks,
            share.streams,
            share.hide_dot_files,
            share.short_names,
            share.file_mode,
            share.directory_mode,
            share.read_only,
        )
    };
    of(a) == of(b)
}
