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

/// Files are opened without blocking, so that a FIFO in their place keeps nobody waiting.
const UNWAITING: i32 = OFlags::NONBLOCK.union(OFlags::CLOEXEC).bits().cast_signed();

/// Reads the user file; `None` if there is none.
pub fn load(path: &Path) -> Result<Option<Zeroizing<String>>, Error> {
    let file = match File::options()
        .read(true)
        .custom_flags(UNWAITING)
        .open(path)
    {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|error| not_opened(path, &error))?,
    };
    check(&file, path)?;
    let mut text = Zeroizing::new(String::new());
    file.take(USER_FILE_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Some(text))
}

/// An error of opening the file or its lock, or of writing it.
fn not_opened(path: &Path, error: &io::Error) -> Error {
    let path = path.display();
    let text = match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "{path}: this user may not open it\n  = it must belong to the user who runs the server, and its folder \
             must let that user in"
        ),
        io::ErrorKind::NotADirectory => {
            format!(
                "{path}: {error}\n  = correct users_file or state_dir in [server], or --users-file"
            )
        }
        _ => format!("{path}: {error}\n  = its disk must answer, have room and be writable"),
    };
    text.into()
}

/// The error of a user file whose folder is missing.
pub(crate) fn no_folder(path: &Path) -> Error {
    let path = path.display();
    format!(
        "the folder of the user file {path} does not exist\n  = make that folder, or correct users_file in [server] or \
         --users-file"
    )
    .into()
}

fn check(file: &File, path: &Path) -> Result<(), Error> {
    let path = path.display();
    let meta = file
        .metadata()
        .map_err(|error| format!("{path}: {error}"))?;
    let (uid, mode) = (meta.uid(), meta.mode() & 0o7777);
    let no_user_file = |what: &str| {
        fail!(
            "{path} is no user file: {what}\n  = name that of the server in users_file or by --users-file, or put back \
             a copy of it"
        )
    };
    if !meta.is_file() {
        return no_user_file("not a regular file");
    }
    if uid != 0 && uid != rustix::process::geteuid().as_raw() {
        let way_out = as_its_owner(uid);
        return fail!("{path} belongs to uid {uid}, who could change it at will\n  = {way_out}");
    }
    if mode & 0o077 != 0 {
        return fail!(
            "others can read {path} (mode {mode:04o}), and a user file holds hashes that are as good as passwords\n  = \
             if it is the server's: chmod 600 {path}; otherwise correct users_file in [server], or --users-file"
        );
    }
    if meta.len() >= USER_FILE_BYTES_MAX {
        return no_user_file("too long");
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
/// The edit was refused, or the file cannot be used; then it is unchanged.
pub fn edit<T>(
    path: &Path,
    change: impl FnOnce(Option<&str>) -> Result<(Zeroizing<String>, T), Error>,
) -> Result<T, Error> {
    // A link stays a link: the file behind it is locked and replaced.
    let path = &behind(path);
    let failed = |error: io::Error| not_opened(path, &error);
    let mut lock_path = path.as_os_str().to_owned();
    lock_path.push(".lock");
    let lock = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(UNWAITING)
        .open(lock_path)
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => no_folder(path),
            _ => not_opened(path, &error),
        })?;
    flock(&lock, FlockOperation::LockExclusive).map_err(|errno| failed(errno.into()))?;
    atomic::remove_left(path);
    let text = load(path)?;
    let (new, answer) = change(text.as_deref().map(String::as_str))?;
    if new.len() as u64 >= USER_FILE_BYTES_MAX {
        return fail!(
            "{} would be longer than the server reads ({} MiB)",
            path.display(),
            USER_FILE_BYTES_MAX >> 20
        );
    }
    atomic::replace(path, new.as_bytes()).map_err(failed)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt};

    fn text(path: &Path) -> Zeroizing<String> {
        load(path).unwrap().unwrap()
    }

    fn append(path: &Path, line: &str) -> Result<usize, Error> {
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
        assert!(load(&path).unwrap().is_none());
        assert_eq!(append(&path, "a").unwrap(), 1);
        assert_eq!(append(&path, "b").unwrap(), 2);
        assert_eq!(*text(&path), "a\nb\n");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }

    #[test]
    fn a_file_is_no_folder_of_the_user_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = load(&file.path().join("users")).unwrap_err().to_string();
        assert!(
            error.contains("\n  = correct users_file or state_dir"),
            "{error}"
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
        assert_eq!(*text(&at("real")), "a\nb\n");
        assert!(!at("users.lock").exists(), "both have one lock");
        std::os::unix::fs::symlink("missing", at("early")).unwrap();
        append(&at("early"), "a").unwrap();
        assert!(at("early").is_symlink());
        assert_eq!(*text(&at("missing")), "a\n");
    }

    #[test]
    fn a_refused_edit_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        append(&path, "a").unwrap();
        let refused = edit::<()>(&path, |_| Err("no such user `b`".into())).unwrap_err();
        assert_eq!(refused.to_string(), "no such user `b`");
        assert_eq!(*text(&path), "a\n");
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
        assert_eq!(*text(&path), "a\n");
    }

    /// As on a full disk: nothing can be made beside the file.
    #[test]
    fn an_edit_that_cannot_be_written_has_a_way_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        let gone = || std::fs::remove_dir_all(folder.path()).unwrap();
        let edited = edit(&path, |_| {
            gone();
            Ok((Zeroizing::new("a\n".to_owned()), ()))
        });
        let error = edited.unwrap_err().to_string();
        assert!(error.contains("users: No such file"), "{error}");
        assert!(error.contains("\n  = its disk must"), "{error}");
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
        let text = text(&path);
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["0", "1", "2", "3", "4", "5", "6", "7"]);
    }

    #[test]
    fn a_fifo_keeps_nobody_waiting() {
        for name in ["users", "users.lock"] {
            let folder = tempfile::tempdir().unwrap();
            let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
            let fifo = folder.path().join(name);
            rustix::fs::mkfifoat(rustix::fs::CWD, fifo, mode).unwrap();
            let error = append(&folder.path().join("users"), "a").unwrap_err();
            assert!(error.to_string().contains("\n  = "), "{name}: {error}");
        }
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
            assert!(
                error.contains("= if it is the server's: chmod 600"),
                "{error}"
            );
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
