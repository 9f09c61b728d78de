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
    // (measured); a file made, synced and removed makes it flush. Read-only file systems owe
    // nothing.
    let probe = folder.join(format!(".holdfast-sync-{}", std::process::id()));
    if let Ok(file) = File::create_new(&probe) {
        let synced = file.sync_all();
        let _ = fs::remove_file(&probe);
        synced.map_err(named)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
