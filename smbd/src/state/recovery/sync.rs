//! Makes a file system stable, including the device's cache.
//!
//! `syncfs` writes everything back and reports errors, but is no barrier: XFS with a clean log returns without
//! flushing the device's cache (measured, also here by a test that counts flushes). So something new is made stable
//! after it, which causes a flush: a small file without a name (O_TMPFILE), or, where none can be made, the
//! folder's own times, set to their present values. A full disk and file systems without such files need the latter.
//! No file here ever has a name, because a power cut could bring the name back, and clients would see it.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::Path,
};

use rustix::fs::{Mode, OFlags, Timespec, Timestamps, UTIME_OMIT};

/// The contents of the file whose sync makes the device flush.
const PROBE: [u8; 4096] = [0x5A; 4096];
/// Entries of a share's folder that are tried for one to sync.
const PROBES_MAX: usize = 1024;

pub(super) fn named(folder: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", folder.display()))
}

/// Writes back everything dirty on the file system of a folder and has the device flush it.
///
/// # Errors
/// The kernel reports a failed write-back once: the data may be lost, and a later success does not change that.
pub(super) fn sync_file_system(folder: &Path, folder_file: &File) -> io::Result<()> {
    let named = |error| named(folder, error);
    rustix::fs::syncfs(folder_file).map_err(|errno| named(errno.into()))?;
    let refused = match make_and_sync(folder).map_err(named)? {
        None => return Ok(()),
        // Nothing is dirty on a read-only file system.
        Some(refused) if refused.kind() == io::ErrorKind::ReadOnlyFilesystem => return Ok(()),
        Some(refused) => refused,
    };
    if let Some(refused_too) = touch_and_sync(folder_file).map_err(named)? {
        tracing::warn!(
            file = %refused,
            times = %refused_too,
            "{}: nothing can be changed there to make the disk's cache flush; syncing what is there",
            folder.display()
        );
        sync_what_is_there(folder, folder_file).map_err(named)?;
    }
    Ok(())
}

/// Makes a file without a name and syncs it; it is gone when closed, and after a power cut.
/// `Some` is the reason why no such file can be made.
fn make_and_sync(folder: &Path) -> io::Result<Option<io::Error>> {
    // O_EXCL: nobody can give it a name.
    let how = OFlags::TMPFILE | OFlags::WRONLY | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file = match rustix::fs::open(folder, how, Mode::RUSR | Mode::WUSR) {
        Ok(file) => File::from(file),
        Err(errno) => return Ok(Some(errno.into())),
    };
    // A full disk only rules this way out; an error of the sync below is final.
    if let Err(refused) = file.write_all(&PROBE) {
        return Ok(Some(refused));
    }
    file.sync_all()?;
    // btrfs logs nothing for a file without a name (btrfs_log_inode_parent), so its transaction is
    // committed here, with a flush.
    rustix::fs::syncfs(&file)?;
    Ok(None)
}

/// Sets the folder's times to what they are, which dirties its inode, and makes that stable.
/// `Some` is the reason why they cannot be set.
fn touch_and_sync(folder: &File) -> io::Result<Option<io::Error>> {
    let meta = folder.metadata()?;
    let times = Timestamps {
        last_access: Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        },
        last_modification: Timespec {
            tv_sec: meta.mtime(),
            tv_nsec: meta.mtime_nsec(),
        },
    };
    match rustix::fs::futimens(folder, &times) {
        Ok(()) => sync_folder(folder),
        Err(errno) => Ok(Some(errno.into())),
    }
}

/// Makes a folder stable. `Some`: the file system has no sync of folders (CIFS), which fsync(2) reports by EINVAL.
fn sync_folder(folder: &File) -> io::Result<Option<io::Error>> {
    match folder.sync_all() {
        Err(refused) if refused.raw_os_error() == Some(libc::EINVAL) => Ok(Some(refused)),
        synced => synced.map(|()| None),
    }
}

/// Syncs the folder itself and the first file in it that can be opened. This is the last resort if nothing can be
/// changed.
fn sync_what_is_there(folder: &Path, folder_file: &File) -> io::Result<()> {
    sync_folder(folder_file)?;
    for entry in fs::read_dir(folder)?.take(PROBES_MAX) {
        let entry = entry?;
        if entry.file_type()?.is_file()
            && let Ok(file) = File::open(entry.path())
        {
            return file.sync_all();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::loop_mount::{KINDS, LoopMount};

    #[test]
    fn a_folder_that_takes_no_file_is_synced_as_it_is() {
        let share = tempfile::tempdir().unwrap();
        let folder = share.path();
        let file = File::open(folder).unwrap();
        sync_what_is_there(folder, &file).unwrap();
        fs::write(folder.join("f"), "x").unwrap();
        sync_what_is_there(folder, &file).unwrap();
        sync_file_system(folder, &file).unwrap();
        assert_eq!(fs::read_dir(folder).unwrap().count(), 1);
    }

    /// A FIFO has no sync, either.
    #[test]
    fn a_folder_without_a_sync_is_no_failure() {
        let share = tempfile::tempdir().unwrap();
        let fifo = share.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
        let file = File::options().read(true).write(true).open(&fifo).unwrap();
        assert!(touch_and_sync(&file).unwrap().is_some());
        sync_what_is_there(share.path(), &file).unwrap();
    }

    #[test]
    fn touching_changes_no_time_a_client_sees() {
        let share = tempfile::tempdir().unwrap();
        let before = fs::metadata(share.path()).unwrap();
        let file = File::open(share.path()).unwrap();
        assert!(touch_and_sync(&file).unwrap().is_none());
        let after = fs::metadata(share.path()).unwrap();
        assert_eq!(before.modified().unwrap(), after.modified().unwrap());
        assert_eq!(before.accessed().unwrap(), after.accessed().unwrap());
    }

    /// `syncfs` alone leaves overwritten data in the cache of an XFS's device; the steps after it flush that on every
    /// file system, each of them.
    #[test]
    fn syncing_flushes_the_device() {
        for kind in KINDS {
            let Some(mount) = LoopMount::new(kind, 400) else {
                continue;
            };
            let folder = mount.path();
            let path = folder.join("f");
            fs::write(&path, [1; 8192]).unwrap();
            rustix::fs::sync();
            let dirty = |n: u8| {
                let mut file = File::options().write(true).open(&path).unwrap();
                file.write_all(&[n; 4096]).unwrap();
            };
            let open = || File::open(folder).unwrap();
            type Method = fn(&Path, &File) -> io::Result<()>;
            let ways: [(&str, Method); 3] = [
                ("whole", sync_file_system),
                ("file", |folder, file| {
                    rustix::fs::syncfs(file)?;
                    assert!(make_and_sync(folder)?.is_none());
                    Ok(())
                }),
                ("times", |_, file| {
                    rustix::fs::syncfs(file)?;
                    assert!(touch_and_sync(file)?.is_none());
                    Ok(())
                }),
            ];
            for round in 0..5 {
                for (name, way) in ways {
                    dirty(round);
                    // The log is clean: nothing but data is to be written.
                    rustix::fs::syncfs(open()).unwrap();
                    dirty(round + 100);
                    rustix::fs::syncfs(open()).unwrap();
                    let before = mount.flushes();
                    way(folder, &open()).unwrap();
                    let flushes = mount.flushes() - before;
                    assert!(flushes > 0, "{kind}, {name}: no flush");
                }
            }
        }
    }

    #[test]
    fn a_full_disk_can_be_synced_all_the_same() {
        let Some(mount) = LoopMount::new("ext4", 16) else {
            return;
        };
        let mut file = File::create(mount.path().join("f")).unwrap();
        while file.write_all(&[7; 4096]).is_ok() {}
        while file.write_all(&[7; 1]).is_ok() {}
        let _ = file.sync_all();
        assert!(make_and_sync(mount.path()).unwrap().is_some());
        let before = mount.flushes();
        let folder = File::open(mount.path()).unwrap();
        sync_file_system(mount.path(), &folder).unwrap();
        assert!(mount.flushes() > before);
        assert_eq!(
            fs::read_dir(mount.path()).unwrap().count(),
            2,
            "lost+found, f"
        );
    }
}
