//! Noticing that the last server did not end in order, and making up for it.
//!
//! A server that was killed leaves acknowledged changes in the kernel's memory, and nobody knows
//! any more which inodes they are in. So a mark stands in the state folder while a server runs;
//! who finds one syncs the file systems of a share before serving it, those mounted below it
//! included, so that what the new server believes clean is clean (`late.rs`: one that hangs).
//!
//! `syncfs` writes all back and tells of errors, but is no barrier: XFS with a clean log returns
//! without flushing the device's cache (measured, also here by a test that counts flushes). So
//! something new is made stable behind it, which takes a flush: a small file without a name
//! (O_TMPFILE), or, where none can be made, the folder's own times, set to what they are. A full
//! disk and file systems without such files take the second. Nothing here ever has a name: a power
//! cut could bring that back, and clients would see it.

mod late;

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Write},
    os::unix::{ffi::OsStringExt, fs::MetadataExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::fs::{Mode, OFlags, Timespec, Timestamps, UTIME_OMIT};

pub(crate) use late::{ANSWER_MAX, Late};

const MARK: &str = "running";
/// Bytes of the file that makes a flush.
const PROBE: [u8; 4096] = [0x5A; 4096];
/// Entries of a share's folder that are looked at for one to sync.
const PROBES_MAX: usize = 1024;
/// Most lines of the kernel's mount table that are looked at.
const MOUNTS_MAX: usize = 100_000;
/// Types of file systems without a device of their own that keep things nevertheless.
const KEEPS: [&str; 9] = [
    "nfs", "nfs4", "cifs", "smb3", "overlay", "zfs", "9p", "virtiofs", "ceph",
];

/// The mark of a running server; take it away with [`Mark::remove`] after an orderly end.
#[derive(Debug)]
pub(crate) struct Mark(PathBuf);

impl Mark {
    /// Sets the mark, and asks the file systems of the shares whether they are there. If a mark is
    /// there already, they are synced first. Waits for `most`; who has not answered by then is
    /// late.
    ///
    /// # Errors
    /// A sync failed, or the mark cannot be set.
    pub(crate) fn set(
        state_dir: &Path,
        shares: &[&Path],
        most: Duration,
    ) -> io::Result<(Self, Late)> {
        let path = state_dir.join(MARK);
        let unclean = path.exists();
        if unclean {
            tracing::warn!("the last server did not end in order: syncing before serving");
        }
        let start = Instant::now();
        let late = Late::ask(shares, unclean, most)?;
        if unclean && late.is_empty() {
            tracing::info!(ms = start.elapsed().as_millis(), "synced");
        }
        crate::atomic::replace(&path, std::process::id().to_string().as_bytes())?;
        Ok((Self(path), late))
    }

    /// The end was orderly.
    pub(crate) fn remove(self) {
        if let Err(error) = fs::remove_file(&self.0) {
            // The next start syncs for nothing.
            tracing::warn!(%error, "{}", self.0.display());
        }
    }
}

/// Where file systems that keep things are mounted below a folder.
///
/// # Errors
/// The folder is not there.
pub(crate) fn mounts_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let full = folder.canonicalize()?;
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let without_device = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let mut mounts = mounts(&table, &without_device);
    mounts.retain(|mount| mount.starts_with(&full) && *mount != full);
    Ok(mounts)
}

/// Mount points of file systems that keep things, by the kernel's tables (`proc(5)`).
fn mounts(table: &[u8], without_device: &str) -> Vec<PathBuf> {
    let pseudo: BTreeSet<&str> = without_device
        .lines()
        .filter_map(|line| line.strip_prefix("nodev\t"))
        .filter(|kind| !KEEPS.contains(kind))
        .collect();
    let lines = table.split(|byte| *byte == b'\n').take(MOUNTS_MAX);
    lines
        .filter_map(|line| {
            let mut fields = line.split(|byte| *byte == b' ');
            let point = fields.nth(4)?;
            let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
            let kind = std::str::from_utf8(kind).ok()?;
            (!pseudo.contains(kind)).then(|| unescape(point))
        })
        .collect()
}

/// `\040` is a blank, and so on.
fn unescape(field: &[u8]) -> PathBuf {
    let mut out = Vec::new();
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let code = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        out.push(code.unwrap_or(*first));
        rest = match code {
            Some(_) => after.get(3..).unwrap_or_default(),
            None => after,
        };
    }
    PathBuf::from(std::ffi::OsString::from_vec(out))
}

fn named(folder: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", folder.display()))
}

fn sync_file_system(folder: &Path) -> io::Result<()> {
    let named = |error| named(folder, error);
    let folder_file = File::open(folder).map_err(named)?;
    rustix::fs::syncfs(&folder_file).map_err(|errno| {
        let error = io::Error::from(errno);
        let way_out = "what the last server had acknowledged and no client had flushed may be \
                       lost there; the kernel tells it once: start again to serve what there is";
        named(io::Error::new(
            error.kind(),
            format!("{error}\n  = {way_out}"),
        ))
    })?;
    let refused = match make_and_sync(folder).map_err(named)? {
        None => return Ok(()),
        // Nothing is owed to a file system that is read-only.
        Some(refused) if refused.kind() == io::ErrorKind::ReadOnlyFilesystem => return Ok(()),
        Some(refused) => refused,
    };
    if let Some(refused_too) = touch_and_sync(&folder_file).map_err(named)? {
        tracing::warn!(
            file = %refused,
            times = %refused_too,
            "{}: nothing can be changed there to make the disk's cache flush; syncing what is there",
            folder.display()
        );
        sync_what_is_there(folder, &folder_file).map_err(named)?;
    }
    Ok(())
}

/// Makes a file without a name and makes it stable; it is gone when closed, and after a power cut.
/// `Some`: why none can be made.
fn make_and_sync(folder: &Path) -> io::Result<Option<io::Error>> {
    // O_EXCL: nobody can give it a name.
    let how = OFlags::TMPFILE | OFlags::WRONLY | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file = match rustix::fs::open(folder, how, Mode::RUSR | Mode::WUSR) {
        Ok(file) => File::from(file),
        Err(errno) => return Ok(Some(errno.into())),
    };
    // An error of the sync is final, a full disk is not.
    if let Err(refused) = file.write_all(&PROBE) {
        return Ok(Some(refused));
    }
    file.sync_all()?;
    // btrfs logs nothing for what has no name (btrfs_log_inode_parent): what was begun for it is
    // committed, with a flush, here.
    rustix::fs::syncfs(&file)?;
    Ok(None)
}

/// Sets the folder's times to what they are, which dirties its inode, and makes that stable.
/// `Some`: why they cannot be set.
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
        Ok(()) => folder.sync_all().map(|()| None),
        Err(errno) => Ok(Some(errno.into())),
    }
}

/// Syncs the folder itself and, of the files in it, the first that lets itself be opened: what
/// is left where nothing can be changed.
fn sync_what_is_there(folder: &Path, folder_file: &File) -> io::Result<()> {
    folder_file.sync_all()?;
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
    use crate::loop_mount::{KINDS, LoopMount};

    #[test]
    fn a_folder_that_takes_no_file_is_synced_as_it_is() {
        let share = tempfile::tempdir().unwrap();
        let folder = share.path();
        let file = File::open(folder).unwrap();
        sync_what_is_there(folder, &file).unwrap();
        fs::write(folder.join("f"), "x").unwrap();
        sync_what_is_there(folder, &file).unwrap();
        sync_file_system(folder).unwrap();
        assert_eq!(fs::read_dir(folder).unwrap().count(), 1);
        // What cannot be synced fails the start.
        let null = File::options().write(true).open("/dev/null").unwrap();
        sync_what_is_there(folder, &null).unwrap_err();
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

    #[test]
    fn the_mark_stands_from_start_to_orderly_end() {
        let state = tempfile::tempdir().unwrap();
        let share = tempfile::tempdir().unwrap();
        let set = |paths: &[&Path]| {
            let (mark, late) = Mark::set(state.path(), paths, ANSWER_MAX)?;
            assert!(late.is_empty());
            io::Result::Ok(mark)
        };
        let gone = share.path().join("gone");
        // Without a mark nothing is synced, hence nothing can fail.
        let mark = set(&[&gone]).unwrap();
        assert!(state.path().join(MARK).exists());
        drop(mark);
        // Killed: the next one syncs, and does not serve what it could not sync.
        set(&[&gone]).unwrap_err();
        let mark = set(&[share.path()]).unwrap();
        assert_eq!(fs::read_dir(share.path()).unwrap().count(), 0);
        mark.remove();
        set(&[&gone]).unwrap();
    }

    #[test]
    fn mounts_that_keep_things_are_told_from_those_that_do_not() {
        let table = b"36 35 98:0 / /mnt/a\\040b rw,noatime master:1 - ext4 /dev/sda1 rw\n\
            37 35 0:5 / /proc rw - proc proc rw\n\
            38 35 0:9 / /srv/n rw shared:3 master:2 - nfs4 host:/x rw\n\
            39 35 0:8 / /tmp/\\13 rw - tmpfs none rw\nrubbish\n";
        let pseudo = "nodev\tproc\nnodev\tnfs4\nnodev\ttmpfs\n\text4\n";
        assert_eq!(
            mounts(table, pseudo),
            [PathBuf::from("/mnt/a b"), PathBuf::from("/srv/n")]
        );
        assert_eq!(unescape(b"x\\"), PathBuf::from("x\\"));
        assert_eq!(unescape(b"\\999\\134"), PathBuf::from("\\999\\"));
    }

    /// `syncfs` alone leaves overwritten data in the cache of an XFS's device; what is done here
    /// behind it flushes that on every file system, each way.
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
            type Way = fn(&Path, &File) -> io::Result<()>;
            let ways: [(&str, Way); 3] = [
                ("whole", |folder, _| sync_file_system(folder)),
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
        sync_file_system(mount.path()).unwrap();
        assert!(mount.flushes() > before);
        assert_eq!(
            fs::read_dir(mount.path()).unwrap().count(),
            2,
            "lost+found, f"
        );
    }

    #[test]
    fn what_is_mounted_below_a_share_is_synced_too() {
        let Some(mount) = LoopMount::new("ext4", 32) else {
            return;
        };
        fs::write(mount.path().join("f"), [1; 4096]).unwrap();
        let before = mount.flushes();
        let share = mount.path().parent().unwrap();
        assert!(Late::ask(&[share], true, ANSWER_MAX).unwrap().is_empty());
        assert!(mount.flushes() > before);
    }
}
