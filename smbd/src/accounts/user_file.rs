//! The user file on disk: its permissions, its replacement, one editor at a time.
//!
//! The file holds NT hashes, which are as good as passwords; it is refused if anybody but its owner could read it,
//! or if another user owns it. Edits hold a lock beside the file over reading and atomic replacing, so that two
//! `holdfast user` commands do not overwrite each other's changes. `smb_auth` defines the text.

use std::{
    fs::File,
    io::{self, Read},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, OFlags, flock};
use zeroize::Zeroizing;

use crate::Error;
use crate::state::{atomic, state_dir::as_its_owner};

/// Largest user file that is read, in bytes: about 100,000 users.
pub const USER_FILE_BYTES_MAX: u64 = 16 << 20;

/// The reason why the user file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UserFileError {
    /// It does not exist.
    #[error("there is no user file {}\n  = make the first user: holdfast user add NAME, with the --config or --users-file of the server", .0.display())]
    Missing(PathBuf),
    /// Its folder does not exist.
    #[error("the folder of the user file {} does not exist\n  = make that folder, or correct users_file in [server] or --users-file", .0.display())]
    NoFolder(PathBuf),
    /// Others can read or write it.
    #[error("others can read {path} (mode {mode:04o}); it holds hashes that are as good as passwords\n  = chmod 600 {path}", path = .path.display())]
    Exposed { path: PathBuf, mode: u32 },
    /// Neither root nor this user owns it.
    #[error("{} belongs to uid {uid}, who could change it at will\n  = {}", .path.display(), as_its_owner(*.uid))]
    Foreign { path: PathBuf, uid: u32 },
    /// This user may not open it.
    #[error("{}: this user may not open it\n  = it must belong to the user who runs the server, and its folder must let that user in", .0.display())]
    Closed(PathBuf),
    /// It is no regular file, or too long.
    #[error("{} is no user file: {what}\n  = name that of the server in users_file or by --users-file, or put back a copy of it", .path.display())]
    NoUserFile { path: PathBuf, what: &'static str },
    /// Anything else.
    #[error("{}: {source}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The edit itself was refused.
    #[error("{0}")]
    Refused(Box<Error>),
}

/// Reads the user file.
///
/// # Errors
/// [`UserFileError`]; its `Display` says what to do.
pub fn load(path: &Path) -> Result<Zeroizing<String>, UserFileError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => UserFileError::Missing(path.to_owned()),
        io::ErrorKind::PermissionDenied => UserFileError::Closed(path.to_owned()),
        _ => UserFileError::Io {
            path: path.to_owned(),
            source,
        },
    };
    // It is opened without blocking, so that a FIFO in its place cannot hang the server.
    let flags = (OFlags::NONBLOCK | OFlags::CLOEXEC).bits().cast_signed();
    let file = File::options()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .map_err(failed)?;
    check(&file, path)?;
    let mut text = Zeroizing::new(String::new());
    file.take(USER_FILE_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(failed)?;
    Ok(text)
}

fn check(file: &File, path: &Path) -> Result<(), UserFileError> {
    let path = path.to_owned();
    let meta = match file.metadata() {
        Ok(meta) => meta,
        Err(source) => return Err(UserFileError::Io { path, source }),
    };
    if !meta.is_file() {
        return Err(UserFileError::NoUserFile {
            path,
            what: "not a regular file",
        });
    }
    if meta.uid() != 0 && meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(UserFileError::Foreign {
            path,
            uid: meta.uid(),
        });
    }
    if meta.mode() & 0o077 != 0 {
        return Err(UserFileError::Exposed {
            path,
            mode: meta.mode() & 0o7777,
        });
    }
    if meta.len() >= USER_FILE_BYTES_MAX {
        return Err(UserFileError::NoUserFile {
            path,
            what: "too long",
        });
    }
    Ok(())
}

/// The file that a path leads to. A link whose file does not exist yet is followed once.
fn behind(path: &Path) -> PathBuf {
    let missing = || Some(path.parent()?.join(std::fs::read_link(path).ok()?));
    let there = path.canonicalize().ok();
    there.or_else(missing).unwrap_or_else(|| path.to_owned())
}

/// Reads the file, if there is one, lets `change` make the new text of it, and replaces it, while no other editor can.
///
/// # Errors
/// [`UserFileError`]; then the file is unchanged.
pub fn edit<T>(
    path: &Path,
    change: impl FnOnce(Option<&str>) -> Result<(Zeroizing<String>, T), Error>,
) -> Result<T, UserFileError> {
    // A link stays a link: the file behind it is locked and replaced.
    let path = &behind(path);
    let failed = |source| UserFileError::Io {
        path: path.clone(),
        source,
    };
    let mut lock_path = path.as_os_str().to_owned();
    lock_path.push(".lock");
    let lock = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(lock_path)
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => UserFileError::NoFolder(path.clone()),
            io::ErrorKind::PermissionDenied => UserFileError::Closed(path.clone()),
            _ => failed(error),
        })?;
    flock(&lock, FlockOperation::LockExclusive).map_err(|errno| failed(errno.into()))?;
    let text = match load(path) {
        Err(UserFileError::Missing(_)) => None,
        other => Some(other?),
    };
    let changed = change(text.as_deref().map(String::as_str));
    let refused = |error: Error| UserFileError::Refused(Box::new(error));
    let (new, answer) = changed.map_err(refused)?;
    if new.len() as u64 >= USER_FILE_BYTES_MAX {
        let text = format!(
            "{} would be longer than the server reads ({} MiB)",
            path.display(),
            USER_FILE_BYTES_MAX >> 20
        );
        return Err(refused(text.into()));
    }
    atomic::replace(path, new.as_bytes()).map_err(failed)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    fn append(path: &Path, line: &str) -> Result<usize, UserFileError> {
        edit(path, |text| {
            let new = format!("{}{line}\n", text.unwrap_or_default());
            let lines = new.lines().count();
            Ok((Zeroizing::new(new), lines))
        })
    }

    #[test]
    fn edits_make_and_change_a_private_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        assert!(matches!(load(&path), Err(UserFileError::Missing(_))));
        assert_eq!(append(&path, "a").unwrap(), 1);
        assert_eq!(append(&path, "b").unwrap(), 2);
        assert_eq!(*load(&path).unwrap(), "a\nb\n");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }

    #[test]
    fn a_folder_that_is_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("none/users");
        let error = append(&path, "a").unwrap_err().to_string();
        for part in ["none/users does not exist", "\n  = make that folder"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn the_file_behind_a_link_is_changed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        append(&at("real"), "a").unwrap();
        std::os::unix::fs::symlink("real", at("users")).unwrap();
        append(&at("users"), "b").unwrap();
        assert!(at("users").is_symlink());
        assert_eq!(*load(&at("real")).unwrap(), "a\nb\n");
        assert!(!at("users.lock").exists(), "both have one lock");
        std::os::unix::fs::symlink("missing", at("early")).unwrap();
        append(&at("early"), "a").unwrap();
        assert!(at("early").is_symlink());
        assert_eq!(*load(&at("missing")).unwrap(), "a\n");
    }

    #[test]
    fn a_refused_edit_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        append(&path, "a").unwrap();
        let refused = edit::<()>(&path, |_| Err("no such user `b`".into())).unwrap_err();
        assert_eq!(refused.to_string(), "no such user `b`");
        assert_eq!(*load(&path).unwrap(), "a\n");
    }

    #[test]
    fn an_edit_makes_no_file_that_is_too_long_to_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        append(&path, "a").unwrap();
        let line = "x".repeat(usize::try_from(USER_FILE_BYTES_MAX).unwrap());
        let refused = append(&path, &line).unwrap_err().to_string();
        assert!(
            refused.contains("longer than the server reads"),
            "{refused}"
        );
        assert_eq!(*load(&path).unwrap(), "a\n");
    }

    #[test]
    fn editors_wait_for_each_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        std::thread::scope(|scope| {
            for writer in 0..8 {
                let path = &path;
                scope.spawn(move || append(path, &writer.to_string()).unwrap());
            }
        });
        let text = load(&path).unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["0", "1", "2", "3", "4", "5", "6", "7"]);
    }

    #[test]
    fn exposed_and_odd_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        append(&path, "a").unwrap();
        for mode in [0o640, 0o604, 0o620, 0o644] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let error = load(&path).unwrap_err().to_string();
            assert!(error.contains(&format!("mode {mode:04o}")), "{error}");
            assert!(error.contains("chmod 600"), "{error}");
            append(&path, "b").unwrap_err();
        }
        let error = load(folder.path()).unwrap_err().to_string();
        assert!(error.contains("no user file"), "{error}");
        assert!(error.contains("\n  = name that of"), "{error}");
        let huge = folder.path().join("huge");
        append(&huge, "a").unwrap();
        File::options()
            .write(true)
            .open(&huge)
            .unwrap()
            .set_len(USER_FILE_BYTES_MAX)
            .unwrap();
        assert!(load(&huge).unwrap_err().to_string().contains("too long"));
    }
}
