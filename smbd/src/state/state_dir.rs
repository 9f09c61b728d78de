//! The folder for everything that outlives the daemon, and plain facts about this machine.
//!
//! Root keeps its state in `/var/lib/holdfast`; other users in the XDG state folder. The folder is 0700: the user
//! file holds password equivalents, and the control socket obeys every process that can reach it. One process per
//! folder, by a lock.

use std::{
    env,
    fs::{self, DirBuilder, File, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use crate::config::are_apart;

/// Name of the user file in the state folder.
pub const USERS_FILE: &str = "users";
/// Name of the control socket in the state folder.
pub const CONTROL_SOCKET: &str = "control.sock";
const LOCK_FILE: &str = "lock";

/// The folder for this process's user.
#[must_use]
pub fn default() -> PathBuf {
    choose(
        rustix::process::geteuid().is_root(),
        env::var_os("XDG_STATE_HOME").map(PathBuf::from),
        env::var_os("HOME").map(PathBuf::from),
    )
}

fn choose(root: bool, xdg: Option<PathBuf>, home: Option<PathBuf>) -> PathBuf {
    // The XDG rules say that a relative path is to be ignored.
    let absolute = |path: Option<PathBuf>| path.filter(|path| path.is_absolute());
    match (root, absolute(xdg), absolute(home)) {
        (true, _, _) => PathBuf::from("/var/lib/holdfast"),
        (false, Some(xdg), _) => xdg.join("holdfast"),
        (false, None, Some(home)) => home.join(".local/state/holdfast"),
        (false, None, None) => of_last_resort(),
    }
}

/// A folder that needs neither a home nor root.
fn of_last_resort() -> PathBuf {
    let uid = rustix::process::geteuid().as_raw();
    PathBuf::from(format!("/tmp/holdfast-{uid}"))
}

/// Possible state folders of a server that stores nothing beyond its run, in the order of preference.
#[must_use]
pub fn candidates() -> Vec<PathBuf> {
    let runtime = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let runtime = runtime.filter(|path| path.is_absolute() && check_private(path).is_ok());
    let mut folders = vec![default()];
    folders.extend(runtime.map(|path| path.join("holdfast")));
    folders.push(of_last_resort());
    folders.dedup();
    folders
}

/// The first of the [`candidates`] that none of `shares` contains or lies in; if there is none, the first of all.
#[must_use]
pub fn apart_from<'a>(shares: impl Iterator<Item = &'a Path> + Clone) -> PathBuf {
    let apart = |folder: &PathBuf| shares.clone().all(|share| are_apart(share, folder));
    candidates().into_iter().find(apart).unwrap_or_else(default)
}

/// Checks that a path is a folder, not a link, and accessible only to this user.
fn check_private(folder: &Path) -> io::Result<()> {
    let refuse = |what: String| {
        let text = format!(
            "{} is {what}, so it may be somebody else's doing\n  = remove it, or set XDG_STATE_HOME, \
             or state_dir in a configuration file",
            folder.display()
        );
        Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
    };
    let meta = fs::symlink_metadata(folder)?;
    if !meta.is_dir() {
        return refuse("no directory".to_owned());
    }
    if meta.uid() != rustix::process::geteuid().as_raw() {
        return refuse(format!("a directory of uid {}", meta.uid()));
    }
    match meta.permissions().mode() & 0o7777 {
        mode if mode & 0o077 != 0 => refuse(format!("open to others (mode {mode:04o})")),
        _ => Ok(()),
    }
}

/// Makes a folder in a place where other users may have made an object of the same name.
fn make_private(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    check_private(folder)
}

/// Makes the folder, private to this user.
///
/// # Errors
/// When it cannot be made, or exists and belongs to somebody else.
pub fn prepare(folder: &Path) -> io::Result<()> {
    let last = of_last_resort();
    if folder.starts_with(&last) {
        make_private(&last)?;
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let meta = fs::metadata(folder)?;
    if meta.uid() != rustix::process::geteuid().as_raw() {
        let text = format!(
            "{} belongs to uid {}, not to this user",
            folder.display(),
            meta.uid()
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    if meta.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(folder, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Held as long as this process owns the folder; the kernel releases it when the process ends.
#[derive(Debug)]
pub struct Ownership {
    _lock: File,
}

/// Takes the folder for this process.
///
/// # Errors
/// `WouldBlock` when another server has it.
pub fn own(folder: &Path) -> io::Result<Ownership> {
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(folder.join(LOCK_FILE))?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
    Ok(Ownership { _lock: lock })
}

/// Whether a process has taken the folder.
#[must_use]
pub fn is_owned(folder: &Path) -> bool {
    let Ok(lock) = File::options().write(true).open(folder.join(LOCK_FILE)) else {
        return false;
    };
    let try_lock = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    rustix::fs::flock(&lock, try_lock) == Err(rustix::io::Errno::WOULDBLOCK)
}

/// The first label of the host name, truncated to the length of a NetBIOS name; "HOLDFAST" if there is none.
#[must_use]
pub fn host_name() -> String {
    let full = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let label: String = full
        .trim()
        .split('.')
        .next()
        .unwrap_or("")
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '-')
        .take(15)
        .collect();
    if label.is_empty() {
        "HOLDFAST".to_owned()
    } else {
        label
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_a_folder() {
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(
            choose(true, path("/x"), path("/root")),
            Path::new("/var/lib/holdfast")
        );
        assert_eq!(
            choose(false, path("/x"), path("/h")),
            Path::new("/x/holdfast")
        );
        assert_eq!(
            choose(false, path("x"), path("/h")),
            Path::new("/h/.local/state/holdfast")
        );
        assert_eq!(
            choose(false, None, path("/h")),
            Path::new("/h/.local/state/holdfast")
        );
        assert!(choose(false, None, None).starts_with("/tmp"));
    }

    #[test]
    fn a_folder_that_others_may_have_made_is_not_believed() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        make_private(&at("new")).unwrap();
        let mode = |name: &str| fs::metadata(at(name)).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode("new"), 0o700);
        make_private(&at("new")).unwrap();
        std::os::unix::fs::symlink(at("new"), at("link")).unwrap();
        fs::write(at("file"), "").unwrap();
        for bad in ["link", "file"] {
            let error = make_private(&at(bad)).unwrap_err();
            assert!(error.to_string().contains("is no directory"), "{error}");
        }
        for open in [0o701, 0o770, 0o755] {
            fs::set_permissions(at("new"), Permissions::from_mode(open)).unwrap();
            let error = make_private(&at("new")).unwrap_err();
            assert!(error.to_string().contains("open to others"), "{error}");
            assert_eq!(mode("new"), open);
        }
        if rustix::process::geteuid().is_root() {
            fs::set_permissions(at("new"), Permissions::from_mode(0o700)).unwrap();
            std::os::unix::fs::chown(at("new"), Some(12_345), None).unwrap();
            let error = make_private(&at("new")).unwrap_err();
            assert!(error.to_string().contains("uid 12345"), "{error}");
        }
    }

    #[test]
    fn a_folder_is_found_that_is_not_served() {
        let top = tempfile::tempdir().unwrap();
        assert_eq!(apart_from([top.path()].into_iter()), default());
        let first = default();
        // As where a home is served.
        let above = first.parent().unwrap();
        let found = apart_from([above].into_iter());
        assert!(!found.starts_with(above), "{}", found.display());
        assert!(candidates().contains(&found));
        assert_eq!(apart_from([Path::new("/")].into_iter()), first);
    }

    #[test]
    fn the_folder_becomes_private_and_has_one_owner() {
        let top = tempfile::tempdir().unwrap();
        let folder = top.path().join("a/b");
        prepare(&folder).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        prepare(&folder).unwrap();
        assert_eq!(
            fs::metadata(&folder).unwrap().permissions().mode() & 0o777,
            0o700
        );
        let owned = own(&folder).unwrap();
        assert_eq!(own(&folder).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(owned);
        own(&folder).unwrap();
    }
}
