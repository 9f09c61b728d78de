//! The command `check-config`: the mistakes of a configuration file, what it promises, and what would keep a server
//! from starting with it.
//!
//! The functions that refuse a start are asked the same questions here. Some answers depend on the user who starts the
//! server, so they are given for the user who runs this command.

use std::{io, path::Path};

use smb_auth::UserDb;

use super::out;
use crate::{
    Error,
    accounts::{acting, user_file, users},
    config::{self, Config, places},
    control,
    host::{protection, sandbox},
    runtime::{
        placement,
        resources::{self, Descriptors},
        settings,
    },
    service,
    state::state_dir,
    status::{
        explain,
        text::{Text, put},
    },
};

/// `holdfast check-config FILE`
pub(crate) fn check_config(file: &Path) -> Result<(), Error> {
    let config = config::load(file)?;
    let (users, obstacles) = obstacles(&config);
    if !obstacles.is_empty() {
        let lines = obstacles.iter().map(|one| format!("\nerror: {one}"));
        return fail!(
            "{} can be read, but if {} starts the server:{}",
            file.display(),
            starter(),
            lines.collect::<String>()
        );
    }
    let mut out = Text::default();
    put!(out, 0; "{} is right.", file.display());
    for listener in &config.listeners {
        put!(out, 1; "listens on {}", listener.address);
    }
    write_identities(&mut out, file, &config, users.as_ref());
    let found = protection::of_config(&config);
    for (share, found) in config.shares.iter().zip(&found) {
        write_share(&mut out, share, found.as_ref());
    }
    out::print(&out.finish())
}

fn starter() -> &'static str {
    match acting::Server::here().is_root() {
        true => "root",
        false => "this user",
    }
}

/// The users, if there are any yet, and what would keep the server from starting.
fn obstacles(config: &Config) -> (Option<UserDb>, Vec<String>) {
    let mut found = Vec::new();
    let users = match users::read(&config.server.users_file) {
        Ok(users) => {
            let file = &config.server.users_file;
            // The start makes the state folder, and no other.
            let state_dir = config.server.state_dir.as_path();
            let missing = |folder: &&Path| *folder != state_dir && !folder.is_dir();
            if file.parent().filter(missing).is_some() {
                found.push(user_file::no_folder(file).to_string());
            }
            users.or_else(|| users::empty().ok())
        }
        Err(error) => {
            found.push(error.to_string());
            None
        }
    };
    if let Some(users) = &users {
        let shares = config.shares.iter();
        let shares = shares.filter_map(|share| settings::share(share, users).err());
        found.extend(shares.map(|error| error.to_string()));
        let rules = service::check_groups(config, users).err();
        found.extend(rules.map(|error| error.to_string()));
    }
    found.extend(config.shares.iter().filter_map(closed_folder));
    let plan = placement::plan_here(&config.listeners);
    found.extend(plan.err().map(|error| error.to_string()));
    // The server raises its own limit as far as it may.
    resources::raise_descriptor_limit();
    let descriptors = Descriptors::check(config).err();
    found.extend(descriptors.map(|error| error.to_string()));
    let listeners = config.listeners.iter();
    for interface in listeners.filter_map(|one| one.interface.as_ref()) {
        if !Path::new("/sys/class/net").join(interface).exists() {
            found.push(format!(
                "there is no network interface {interface}\n  = `ip link` lists the interfaces"
            ));
        }
    }
    let others = [
        state_folder(&config.server.state_dir)
            .err()
            .map(Error::from),
        service::choose_ring(config).err().map(Error::from),
        sandbox::check_identities().err(),
    ];
    found.extend(others.into_iter().flatten().map(|error| error.to_string()));
    (users, found)
}

/// The error of opening a share's folder. A disk that does not answer gives none.
fn error_of_folder(share: &config::ShareSettings) -> Option<io::Error> {
    let folder = share.path.clone();
    config::in_time(&share.path, move || std::fs::read_dir(folder))?.err()
}

/// The error of a share whose folder this user may not open. A disk that fails or hangs keeps no server from starting.
fn closed_folder(share: &config::ShareSettings) -> Option<String> {
    let error = error_of_folder(share).filter(config::is_mistake)?;
    Some(format!(
        "share {}: {}: {error}\n  = the service must be allowed to open it",
        share.name,
        share.path.display()
    ))
}

/// Names in the lists of shares that no account has.
fn unknown_users(file: &Path, config: &Config, users: &UserDb) -> Vec<String> {
    let shares = config.shares.iter();
    let unknown = shares.flat_map(|share| {
        settings::unknown_users(share, users).map(move |name| {
            let (share, file) = (&share.name, file.display());
            format!(
                "share {share} names user {name}, who does not exist: holdfast user add {name} --config {file}"
            )
        })
    });
    unknown.collect()
}

/// Whether the state folder can be written, is this user's alone if it exists, and its socket can be bound.
fn state_folder(folder: &Path) -> io::Result<()> {
    control::check_path(&folder.join(places::CONTROL_SOCKET))?;
    let named = |error| state_dir::named(folder, error);
    state_dir::check_writable(folder).map_err(named)?;
    match state_dir::check_own(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        checked => checked.map_err(named),
    }
}

/// The identities on disk.
fn write_identities(out: &mut Text, file: &Path, config: &Config, users: Option<&UserDb>) {
    let server = acting::Server::here();
    put!(out, 1; "on disk, if {} starts the server:", starter());
    let others = server.user(None, &config.server.guest_account);
    put!(out, 2; "a user without an owner acts as {others}");
    let lines = users.map(|users| {
        let mut lines = server.lines(config, users);
        lines.extend(unknown_users(file, config, users));
        lines
    });
    for line in lines.unwrap_or_default() {
        put!(out, 2; "{line}");
    }
}

/// The promise of a share, and the facts it depends on.
fn write_share(
    out: &mut Text,
    share: &config::ShareSettings,
    found: Option<&protection::Assessment>,
) {
    let (name, path) = (&share.name, share.path.display());
    put!(out, 1; "share {name} = {path}");
    let durability = share.durability;
    let promise = config::policy::promise(&durability.policy, durability.flush_times);
    let policy = durability.policy.to_string();
    put!(out, 2; "{policy}: {promise}");
    for rule in share.rules.iter() {
        let (name, policy, criteria) = (&rule.name, rule.policy, explain::criteria(rule));
        put!(out, 2; "{name}: {policy} for {criteria}");
    }
    let Some(found) = found else {
        put!(out, 2; "THE FOLDER DOES NOT ANSWER: the share is not served until it does");
        return;
    };
    // A mistake was an obstacle, so this is the disk.
    if let Some(error) = error_of_folder(share) {
        put!(out, 2; "THE FOLDER FAILS ({error}): the share is not served until it works");
        return;
    }
    if let Some(broken) = protection::broken_promise(&policy, found) {
        put!(out, 2; "{broken}");
    }
    let (words, stack) = (found.words(), found.stack());
    put!(out, 2; "device: {words} ({stack})");
    let verdict = found.verdict();
    put!(out, 2; "{}: {}", verdict.word(), verdict.sentence());
    for line in found.sentences() {
        put!(out, 3; "{line}");
    }
}
