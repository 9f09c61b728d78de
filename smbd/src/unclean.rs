//! Noticing that the last server did not end in order, and making up for it.
//!
//! A server that was killed leaves acknowledged changes in the kernel's memory, and nobody knows
//! any more which inodes they are in. So a mark stands in the state folder while a server runs;
//! who finds one syncs the file systems of all shares before serving, so that what the new server
//! believes clean is clean.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::Instant,
};

const MARK: &str = "running";
/// Entries of a share's folder that are looked at for one to sync.
const PROBES_MAX: usize = 1024;

/// The mark of a running server; take it away with [`Mark::remove`] after an orderly end.
#[derive(Debug)]
pub(crate) struct Mark(PathBuf);

impl Mark {
    /// Sets the mark. If one is there already, syncs the file systems of `shares` first.
    pub(crate) fn set<'a>(
        state_dir: &Path,
        shares: impl Iterator<Item = &'a Path>,
    ) -> io::Result<Self> {
        let path = state_dir.join(MARK);
        if path.exists() {
            tracing::warn!("the last server did not end in order: syncing before serving");
            let start = Instant::now();
            for share in shares {
                sync_file_system(share)?;
            }
            tracing::info!(ms = start.elapsed().as_millis(), "synced");
        }
        crate::atomic::replace(&path, std::process::id().to_string().as_bytes())?;
        Ok(Self(path))
    }

    /// The end was orderly.
    pub(crate) fn remove(self) {
        if let Err(error) = fs::remove_file(&self.0) {
            // The next start syncs for nothing.
            tracing::warn!(%error, "{}", self.0.display());
        }
    }
}

fn sync_file_system(folder: &Path) -> io::Result<()> {
    let folder_file = File::open(folder)?;
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", folder.display()));
    rustix::fs::syncfs(&folder_file).map_err(|errno| named(errno.into()))?;
    // XFS returns from syncfs without flushing the device's cache when its log is clean
    // (measured); a file made, synced and removed makes it flush.
    let probe = folder.join(format!(".holdfast-sync-{}", std::process::id()));
    match File::create_new(&probe) {
        Ok(file) => {
            let synced = file.sync_all();
            let _ = fs::remove_file(&probe);
            synced.map_err(named)
        }
        // Nothing is owed to a file system that is read-only.
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => Ok(()),
        Err(error) => {
            tracing::warn!(
                %error,
                "{}: no file can be made to sync there; syncing what is there",
                folder.display()
            );
            sync_what_is_there(folder, &folder_file).map_err(named)
        }
    }
}

/// Syncs the folder itself and, of the files in it, the first that lets itself be opened: what
/// is left where no file can be made.
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

    #[test]
    fn a_folder_that_takes_no_file_is_synced_as_it_is() {
        let share = tempfile::tempdir().unwrap();
        let folder = share.path();
        let file = File::open(folder).unwrap();
        sync_what_is_there(folder, &file).unwrap();
        fs::write(folder.join("f"), "x").unwrap();
        sync_what_is_there(folder, &file).unwrap();
        // The probe's name is taken: as good as any other error but EROFS.
        let probe = folder.join(format!(".holdfast-sync-{}", std::process::id()));
        fs::write(&probe, "").unwrap();
        sync_file_system(folder).unwrap();
        assert!(probe.exists(), "not ours");
        // What cannot be synced fails the start.
        let null = File::options().write(true).open("/dev/null").unwrap();
        sync_what_is_there(folder, &null).unwrap_err();
    }

    #[test]
    fn the_mark_stands_from_start_to_orderly_end() {
        let state = tempfile::tempdir().unwrap();
        let share = tempfile::tempdir().unwrap();
        let set = |paths: &[&Path]| Mark::set(state.path(), paths.iter().copied());
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
}
