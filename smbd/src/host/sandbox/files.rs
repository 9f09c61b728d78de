//! The part of the file system that can still be opened, by Landlock.
//!
//! To read and write: the shares, the state folder, the folder of the user file and the folders that `[sandbox]`
//! names. To read: the folder of the configuration file, and where that or the user file is a link, the folder of the
//! file behind it; `/etc` (users and groups of the host, which are replaced by renames, so that only the folder can be
//! named), `/proc` and `/sys` (mounts, block devices, network cards).
//! Nothing can be executed, and no TCP connection can be made.

use std::{
    io,
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};

use rustix::fs::{Mode, OFlags};

use crate::{
    config::{Config, in_time, is_mistake},
    host::mounts::{mount_point, mount_points},
};

/// Newest version of Landlock whose rights are asked for; an older kernel has fewer.
const VERSION: ABI = ABI::V6;
/// Folders that are read besides those that a configuration names.
const READ: [&str; 3] = ["/etc", "/proc", "/sys"];

/// The reason why Landlock is not in force, or why there is no rule for a folder.
pub(super) struct NoRule {
    pub(super) why: String,
    /// Landlock is not available here, or the folder does not answer: this part of the sandbox is left out.
    pub(super) is_left_out: bool,
    /// There is no such folder, or it may not be opened.
    mistake: bool,
}

impl NoRule {
    fn failed(error: &dyn std::fmt::Display) -> Self {
        Self {
            why: error.to_string(),
            is_left_out: false,
            mistake: false,
        }
    }

    fn left_out(why: String) -> Self {
        Self {
            why,
            is_left_out: true,
            mistake: false,
        }
    }
}

/// Restricts this thread and all that it starts; returns the folders that can be written.
pub(super) fn restrict(
    config: &Config,
    config_file: Option<&Path>,
) -> Result<Vec<PathBuf>, NoRule> {
    let failed = |error: landlock::RulesetError| NoRule::failed(&error);
    let all = AccessFs::from_all(VERSION);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)
        .and_then(|rules| rules.handle_access(AccessNet::ConnectTcp))
        .and_then(|rules| rules.scope(Scope::Signal))
        .and_then(Ruleset::create)
        .map_err(failed)?;
    let mut folders = Vec::new();
    let change = all & !BitFlags::from(AccessFs::Execute);
    for folder in written(config) {
        let shares = config.shares.iter().map(|share| &share.path);
        let mut spare = shares.chain(&config.sandbox.folders);
        let is_spare = spare.any(|path| *path == folder);
        folders.push(match allow(&mut rules, &folder, change) {
            Err(no_rule) if is_spare && !no_rule.mistake => {
                let above = around(&folder, no_rule)?;
                allow(&mut rules, &above, change)?;
                above
            }
            allowed => allowed.map(|()| folder)?,
        });
    }
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    for folder in READ.map(Path::new) {
        match allow(&mut rules, folder, read) {
            // A chroot may have no /sys.
            Err(no_rule) if no_rule.mistake => {}
            allowed => allowed?,
        }
    }
    let users_file = config.server.users_file.as_path();
    for file in config_file.into_iter().chain([users_file]) {
        // A reload must find what a link leads to.
        let real = file.canonicalize().ok();
        let folders = [file.parent(), real.as_deref().and_then(Path::parent)];
        for folder in folders.into_iter().flatten() {
            allow(&mut rules, folder, read)?;
        }
    }
    let status = rules.restrict_self().map_err(failed)?;
    match status.ruleset {
        RulesetStatus::NotEnforced => {
            let why = "this kernel has no Landlock (Linux 5.13 with `landlock` among its security modules)";
            Err(NoRule::left_out(why.to_owned()))
        }
        _ => Ok(folders),
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

/// The folder that is allowed in place of one that fails or does not answer, of a share or in `folders`: the one in
/// which its file system is mounted, so that shares there can be served after a repair.
fn around(folder: &Path, no_rule: NoRule) -> Result<PathBuf, NoRule> {
    let points = mount_points().map_err(|error| NoRule::failed(&error))?;
    let above = mount_point(folder, &points).and_then(|point| point.parent());
    match above.filter(|above| above.parent().is_some()) {
        Some(above) => {
            tracing::warn!(
                why = no_rule.why,
                "{}: Landlock allows all of {} in its place until the next start",
                folder.display(),
                above.display()
            );
            Ok(above.to_owned())
        }
        None => Err(NoRule::left_out(no_rule.why)),
    }
}

fn allow(
    rules: &mut RulesetCreated,
    folder: &Path,
    access: BitFlags<AccessFs>,
) -> Result<(), NoRule> {
    let (path, shown) = (folder.to_owned(), folder.display());
    let failed = |error: io::Error| NoRule {
        why: format!("{shown}: {error}"),
        is_left_out: false,
        mistake: is_mistake(&error),
    };
    // The same set of rules in the kernel.
    let same = rules.try_clone().map_err(failed)?;
    // Both access the folder, and a file system that hangs must not delay the start.
    let added = in_time(folder, move || {
        let how = OFlags::PATH | OFlags::CLOEXEC;
        let opened = rustix::fs::open(path, how, Mode::empty())?;
        let rule = PathBeneath::new(opened.as_fd(), access);
        same.add_rule(rule).map_err(io::Error::other)
    });
    match added {
        Some(added) => added.map(|added| *rules = added).map_err(failed),
        None => Err(NoRule::left_out(format!("{shown} does not answer"))),
    }
}
