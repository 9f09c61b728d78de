//! Where the daemon keeps what must outlive it, and the plain facts about this machine.
//!
//! Root keeps its state in `/var/lib/holdfast`; everybody else in the XDG state folder. The folder
//! is 0700: the user file holds password equivalents and the control socket obeys whoever can
//! reach it. One process per folder, by a lock.

use std::{
    env,
    fs::{self, DirBuilder, File, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

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
        (false, None, None) => PathBuf::from(format!(
            "/tmp/holdfast-{}",
            rustix::process::geteuid().as_raw()
        )),
    }
}

/// Makes the folder, private to this user.
///
/// # Errors
/// When it cannot be made, or exists and belongs to somebody else.
pub fn prepare(folder: &Path) -> io::Result<()> {
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

/// Held as long as this process owns the folder; the kernel lets go when the process dies.
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

/// The first label of the host name, cut to what NetBIOS takes; "HOLDFAST" where there is none.
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
