//! Takes the folder for everything that outlives the daemon.
//!
//! The folder has mode 0700, because the user file holds password equivalents, and the control socket is in it. A
//! lock ensures that only one process uses a folder.

use std::{
    fs::{self, DirBuilder, File, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::Path,
    thread,
    time::Duration,
};

use rustix::{
    fs::{Access, FlockOperation, access, flock},
    io::Errno,
};

use crate::config::places::{USERS_FILE, check_private, of_last_resort};

const LOCK_FILE: &str = "lock";
/// A process that asks whether a folder is taken ([`is_owned`]) has its lock for a moment, so a server tries again.
const LOCK_TRIES: u32 = 10;
/// The time between two tries.
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// The way out where a file of the server belongs to another user.
pub(crate) fn as_its_owner(uid: u32) -> String {
    format!(
        "the server and the commands that change its users must run as the same user: sudo -u '#{uid}' holdfast ..., or \
         chown -R the folder to the one that runs it"
    )
}

/// Adds advice to an error of the kernel; other errors have theirs.
fn advised(error: io::Error) -> io::Error {
    if error.raw_os_error().is_none() {
        return error;
    }
    let text = format!(
        "{error}\n  = set state_dir in [server] (without a configuration file: XDG_STATE_HOME) to a folder that this \
         user may make and change, on a disk that outlives the machine's restart"
    );
    io::Error::new(error.kind(), text)
}

/// An error about the state folder, with a way out.
pub(crate) fn named(folder: &Path, error: io::Error) -> io::Error {
    let error = advised(error);
    let text = format!("state folder {}: {error}", folder.display());
    io::Error::new(error.kind(), text)
}

/// Refuses a folder, which need not exist yet, on a file system that is mounted read-only.
pub(crate) fn check_writable(folder: &Path) -> io::Result<()> {
    let existing = folder.ancestors().find(|above| above.exists());
    match existing.map(|existing| access(existing, Access::WRITE_OK)) {
        Some(Err(Errno::ROFS)) => Err(Errno::ROFS.into()),
        // A folder that this user may not make may be made by another one, as by StateDirectory= of systemd.
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

/// Refuses a folder of another user, and one that others use, as `/tmp` or `/var`, because it would be closed to them.
pub(crate) fn check_own(folder: &Path) -> io::Result<()> {
    let (meta, shown) = (fs::metadata(folder)?, folder.display());
    let uid = meta.uid();
    if uid != rustix::process::geteuid().as_raw() {
        let text = format!(
            "{shown} belongs to uid {uid}, not to this user\n  = {}",
            as_its_owner(uid)
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    let is_file = |name: &&str| {
        let meta = fs::symlink_metadata(folder.join(name));
        meta.is_ok_and(|meta| meta.is_file())
    };
    let is_open = meta.permissions().mode() & 0o077 != 0;
    let is_known = [LOCK_FILE, USERS_FILE].iter().any(is_file);
    if !is_open || is_known || fs::read_dir(folder)?.next().is_none() {
        return Ok(());
    }
    let text = format!(
        "{shown} is open to others, and holds files that are not the server's\n  = set state_dir to a folder that \
         nothing else uses, or close this one to others: chmod 700 {shown}"
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// Makes the folder, private to this user.
///
/// # Errors
/// When it cannot be made, or exists and belongs to somebody else, or is open to others who use it.
pub fn prepare(folder: &Path) -> io::Result<()> {
    make(folder).map_err(|error| named(folder, error))
}

fn make(folder: &Path) -> io::Result<()> {
    let last = of_last_resort();
    if folder.starts_with(&last) {
        make_private(&last)?;
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    check_own(folder)?;
    if fs::metadata(folder)?.permissions().mode() & 0o077 != 0 {
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
        .open(folder.join(LOCK_FILE))
        .map_err(|error| named(folder, error))?;
    let mut locked = try_lock(&lock);
    for _ in 0..LOCK_TRIES {
        if locked != Err(Errno::WOULDBLOCK) {
            break;
        }
        thread::sleep(LOCK_PAUSE);
        locked = try_lock(&lock);
    }
    locked.map_err(|errno| named(folder, errno.into()))?;
    Ok(Ownership { _lock: lock })
}

/// Whether a process has taken the folder.
#[must_use]
pub fn is_owned(folder: &Path) -> bool {
    let Ok(lock) = File::options().write(true).open(folder.join(LOCK_FILE)) else {
        return false;
    };
    try_lock(&lock) == Err(Errno::WOULDBLOCK)
}

fn try_lock(lock: &File) -> Result<(), Errno> {
    flock(lock, FlockOperation::NonBlockingLockExclusive)
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_folder_that_others_use_is_not_closed_to_them() {
        let top = tempfile::tempdir().unwrap();
        let folder = top.path();
        let set = |mode| fs::set_permissions(folder, Permissions::from_mode(mode)).unwrap();
        let mode = || fs::metadata(folder).unwrap().permissions().mode() & 0o7777;
        // As in /var.
        fs::create_dir(folder.join(LOCK_FILE)).unwrap();
        set(0o1777);
        let error = prepare(folder).unwrap_err().to_string();
        assert!(error.contains("chmod 700"), "{error}");
        assert_eq!(mode(), 0o1777);
        set(0o700);
        prepare(folder).unwrap();
        // As restored from a backup.
        fs::write(folder.join(USERS_FILE), "").unwrap();
        set(0o755);
        prepare(folder).unwrap();
        assert_eq!(mode(), 0o700);
    }

    #[test]
    fn each_error_of_the_folder_has_one_way_out() {
        let folder = Path::new("/var/lib/holdfast");
        let refused = named(folder, Errno::ACCESS.into());
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        let text = refused.to_string();
        assert!(text.contains("\n  = set state_dir"), "{text}");
        let again = named(folder, refused).to_string();
        assert_eq!(again.matches("\n  = ").count(), 1, "{again}");
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
        // As a process that only asks.
        thread::scope(|scope| {
            scope.spawn(move || {
                thread::sleep(2 * LOCK_PAUSE);
                drop(owned);
            });
            own(&folder).unwrap();
        });
    }
}
