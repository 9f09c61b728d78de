//! Where the server keeps its state if the configuration does not say it, and the name of this machine.
//!
//! Root keeps its state in `/var/lib/holdfast`; other users in the XDG state folder.

use std::{
    env, fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use super::are_apart;

/// Name of the user file in the state folder.
pub const USERS_FILE: &str = "users";
/// Name of the control socket in the state folder.
pub const CONTROL_SOCKET: &str = "control.sock";
/// Longest NetBIOS name of a computer; the 16th byte is its kind.
const NETBIOS_NAME_MAX: usize = 15;

/// The folder for this process's user.
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
pub(crate) fn of_last_resort() -> PathBuf {
    let uid = rustix::process::geteuid().as_raw();
    PathBuf::from(format!("/tmp/holdfast-{uid}"))
}

/// Possible state folders of a server that stores nothing beyond its run, in the order of preference.
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
pub fn apart_from<'a>(shares: impl Iterator<Item = &'a Path> + Clone) -> PathBuf {
    let apart = |folder: &PathBuf| shares.clone().all(|share| are_apart(share, folder));
    candidates().into_iter().find(apart).unwrap_or_else(default)
}

/// Checks that a path is a folder, not a link, and accessible only to this user.
pub(crate) fn check_private(folder: &Path) -> io::Result<()> {
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

/// The first label of the host name, truncated to the length of a NetBIOS name; "HOLDFAST" if there is none.
pub fn host_name() -> String {
    let full = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let label: String = full
        .trim()
        .split('.')
        .next()
        .unwrap_or("")
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '-')
        .take(NETBIOS_NAME_MAX)
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
}
