//! What of the file system can still be opened, by Landlock.
//!
//! To read and write: the shares, the state folder, the folder of the user file and the folders
//! that `[sandbox]` names. To read: the folder of the configuration file, `/etc` (users and groups of the
//! host, which are replaced by renames, so that only the folder can be named), `/proc` and `/sys`
//! (mounts, block devices, network cards). Nothing can be run, and no TCP connection be made.

use std::{
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};

use crate::config::{Config, in_time};

/// Newest version of Landlock whose rights are asked for; an older kernel has fewer.
const VERSION: ABI = ABI::V6;
/// What is read beside what a configuration names.
const READ: [&str; 3] = ["/etc", "/proc", "/sys"];

pub(super) enum Failure {
    /// It cannot be in force here, and that is no error.
    Without(String),
    Failed(String),
}

/// Restricts this thread and all that it starts; returns the folders that can be written.
pub(super) fn restrict(
    config: &Config,
    config_file: Option<&Path>,
) -> Result<Vec<PathBuf>, Failure> {
    let failed = |error: landlock::RulesetError| Failure::Failed(error.to_string());
    let all = AccessFs::from_all(VERSION);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)
        .and_then(|rules| rules.handle_access(AccessNet::ConnectTcp))
        .and_then(|rules| rules.scope(Scope::Signal))
        .and_then(Ruleset::create)
        .map_err(failed)?;
    let written = written(config);
    let change = all & !BitFlags::from(AccessFs::Execute);
    for folder in &written {
        rules = allow(rules, folder, change)?;
    }
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    for folder in READ.map(Path::new) {
        rules = allow(rules, folder, read)?;
    }
    if let Some(folder) = config_file.and_then(Path::parent) {
        rules = allow(rules, folder, read)?;
    }
    let status = rules.restrict_self().map_err(failed)?;
    match status.ruleset {
        RulesetStatus::NotEnforced => {
            let why = "this kernel has no Landlock (Linux 5.13 with `landlock` among its security modules)";
            Err(Failure::Without(why.to_owned()))
        }
        _ => Ok(written),
    }
}

/// The folders in which files are made and changed.
fn written(config: &Config) -> Vec<PathBuf> {
    let server = &config.server;
    let shares = config.shares.iter().map(|share| share.path.as_path());
    let mut folders: Vec<&Path> = vec![&server.state_dir];
    folders.extend(server.users_file.parent());
    folders.extend(config.sandbox.folders.iter().map(PathBuf::as_path));
    folders.extend(shares);
    let mut folders: Vec<PathBuf> = folders.into_iter().map(Path::to_owned).collect();
    folders.sort_unstable();
    folders.dedup();
    folders
}

fn allow(
    rules: RulesetCreated,
    folder: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, Failure> {
    let (path, shown) = (folder.to_owned(), folder.display());
    let failed = |error: &dyn std::fmt::Display| Failure::Failed(format!("{shown}: {error}"));
    // Both look at the folder, and a file system that hangs must not hold the start up.
    let added = in_time(move || {
        let opened = PathFd::new(path).map_err(|error| error.to_string())?;
        let rule = PathBeneath::new(opened.as_fd(), access);
        rules.add_rule(rule).map_err(|error| error.to_string())
    });
    match added {
        Some(Ok(rules)) => Ok(rules),
        Some(Err(error)) => Err(failed(&error)),
        None => Err(Failure::Without(format!("{shown} does not answer"))),
    }
}
