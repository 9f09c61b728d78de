//! Replaces a small file so that a crash leaves either the old or the new one complete.
//!
//! It writes a temporary file beside it, syncs that, renames it, and syncs the folder. The new file
//! is private to its owner from its first moment. There is no locking here: an editor must hold a
//! lock while it reads and replaces.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Write},
    os::unix::{ffi::OsStrExt, fs::OpenOptionsExt},
    path::{Path, PathBuf},
};

/// Removes the temporary files that processes left which were killed while they replaced this file. The caller holds
/// the lock of its editors. A file that cannot be removed does no harm.
pub fn remove_left(path: &Path) {
    let Some((folder, name)) = path.parent().zip(path.file_name()) else {
        return;
    };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && is_temporary(&entry.file_name(), name) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Whether a name is one that [`temporary_name`] makes for a file.
fn is_temporary(found: &OsStr, name: &OsStr) -> bool {
    let rest = found.as_bytes().strip_prefix(b".");
    let rest = rest.and_then(|rest| rest.strip_prefix(name.as_bytes())?.strip_prefix(b"."));
    let suffix = rest.and_then(|rest| rest.strip_suffix(b".tmp"));
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    suffix.is_some_and(|suffix| suffix.len() == 16 && suffix.iter().all(is_digit))
}

/// Replaces (or makes) `path` with `bytes`, mode 0600.
///
/// # Errors
/// The error of the first step that failed; `path` is then as before, unless it was the last step,
/// the fsync of the folder, that failed: then either version may be found after a power failure.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let temporary = temporary_name(folder, path)?;
    // If it cannot be opened, nothing is changed.
    let opened = File::open(folder)?;
    let written = write_new(&temporary, bytes).and_then(|()| fs::rename(&temporary, path));
    if let Err(error) = written {
        // A failure here is ignored, because the first error is reported.
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    opened.sync_all().map_err(|error| of_folder(folder, error))
}

/// Explains EINVAL, by which fsync(2) says that a file system has no sync of folders.
fn of_folder(folder: &Path, error: io::Error) -> io::Error {
    if error.raw_os_error() != Some(libc::EINVAL) {
        return error;
    }
    let text = format!(
        "the file system of {} cannot make names stable (fsync of a folder: {error}): this folder belongs on a local \
         disk, not on CIFS or a FUSE file system without that call",
        folder.display()
    );
    io::Error::new(error.kind(), text)
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn temporary_name(folder: &Path, path: &Path) -> io::Result<PathBuf> {
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let suffix = u64::from_ne_bytes(random);
    Ok(folder.join(format!(".{}.{suffix:016x}.tmp", name.to_string_lossy())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn names(folder: &Path) -> Vec<String> {
        let list = fs::read_dir(folder).unwrap();
        list.map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn the_new_content_is_whole_private_and_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        replace(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(names(folder.path()), ["users"]);
    }

    #[test]
    fn a_file_system_without_a_sync_of_folders_is_explained() {
        let of = |errno| of_folder(Path::new("/srv/state"), io::Error::from_raw_os_error(errno));
        let explained = of(libc::EINVAL).to_string();
        for part in ["/srv/state", "cannot make names stable", "local disk"] {
            assert!(explained.contains(part), "{explained}");
        }
        assert_eq!(of(libc::EIO).raw_os_error(), Some(libc::EIO));
    }

    #[test]
    fn a_failure_leaves_the_old_content_and_no_rubbish() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        // A directory in the way makes the rename fail after the temporary file was written.
        fs::create_dir(&path).unwrap();
        fs::write(path.join("kept"), "old").unwrap();
        replace(&path, b"new").unwrap_err();
        assert_eq!(names(folder.path()), ["users"]);
        assert_eq!(fs::read(path.join("kept")).unwrap(), b"old");
        replace(&folder.path().join("no/such/folder"), b"new").unwrap_err();
        replace(Path::new("/"), b"new").unwrap_err();
    }

    #[test]
    fn only_temporary_files_of_this_file_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let path = at("users");
        let others = [
            ".users.0123456789abcde.tmp",
            ".users.0123456789ABCDEF.tmp",
            ".users.0123456789abcdef",
            ".users0123456789abcdef.tmp",
            ".running.0123456789abcdef.tmp",
            "users",
            "users.0123456789abcdef.tmp",
        ];
        for name in others {
            fs::write(at(name), "").unwrap();
        }
        fs::create_dir(at(".users.00000000000000ff.tmp")).unwrap();
        for _ in 0..2 {
            fs::write(temporary_name(folder.path(), &path).unwrap(), "").unwrap();
        }
        remove_left(&path);
        let mut left = names(folder.path());
        left.sort();
        let mut expected = others.map(str::to_owned).to_vec();
        expected.push(".users.00000000000000ff.tmp".to_owned());
        expected.sort();
        assert_eq!(left, expected);
    }

    #[test]
    fn readers_never_see_half_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("users");
        let versions = [vec![b'a'; 100_000], vec![b'b'; 50_000]];
        replace(&path, &versions[0]).unwrap();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for turn in 0..50 {
                    replace(&path, &versions[turn % 2]).unwrap();
                }
            });
            while !writer.is_finished() {
                let seen = fs::read(&path).unwrap();
                assert!(versions.contains(&seen), "{} bytes", seen.len());
            }
        });
    }
}
