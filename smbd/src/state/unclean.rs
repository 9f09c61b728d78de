//! Detects that the last server did not end in order, and syncs what it may have left dirty.
//!
//! A server that was killed leaves acknowledged changes in the kernel's memory, and it is not known which inodes they
//! concern. So there is a mark in the state folder while a server runs. A start that finds one syncs the file systems
//! of each share, including those mounted below it, before it serves the share, so that everything the new server takes
//! for clean is clean. A share whose file system hangs or fails is held back (`late.rs`), the others are served, and
//! the mark stays until all have been synced.
//!
//! A later sync that succeeds does not restore data that a failed sync has lost, so `lost.rs` records the failure for
//! administrators.

mod asking;
mod late;
mod lost;
mod mounts;
mod sync;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

pub(crate) use late::{ANSWER_MAX, Late};
pub(crate) use mounts::{mount_point, mount_points, mounts_below, unescape};

use lost::Lost;

const MARK: &str = "running";

/// The mark of a running server; remove it with [`Mark::remove`] after an orderly end.
#[derive(Debug)]
pub(crate) struct Mark(PathBuf);

impl Mark {
    /// Sets the mark, and probes the file systems of the shares. If a mark is there already, they are synced first.
    /// Waits for `most`; shares whose file systems have not answered by then, or have answered with an error, are late.
    ///
    /// # Errors
    /// A share's folder is not there, or the mark cannot be set.
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
        let lost = Arc::new(Lost::open(state_dir));
        let late = Late::ask(shares, unclean, lost, most)?;
        if unclean && late.is_empty() {
            tracing::info!(ms = start.elapsed().as_millis(), "synced");
        }
        crate::state::atomic::replace(&path, std::process::id().to_string().as_bytes())?;
        Ok((Self(path), late))
    }

    /// Removes the mark after an orderly end.
    pub(crate) fn remove(self) {
        if let Err(error) = fs::remove_file(&self.0) {
            // The next start then syncs without need.
            tracing::warn!(%error, "{}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::loop_mount::LoopMount;

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
        // Killed: the next one syncs. A folder that is not there is a mistake, and no disk that fails.
        set(&[&gone]).unwrap_err();
        let mark = set(&[share.path()]).unwrap();
        assert_eq!(fs::read_dir(share.path()).unwrap().count(), 0);
        mark.remove();
        set(&[&gone]).unwrap();
    }

    #[test]
    fn what_is_mounted_below_a_share_is_synced_too() {
        let Some(mount) = LoopMount::new("ext4", 32) else {
            return;
        };
        fs::write(mount.path().join("f"), [1; 4096]).unwrap();
        let before = mount.flushes();
        let share = mount.path().parent().unwrap();
        let state = tempfile::tempdir().unwrap();
        let lost = Arc::new(Lost::open(state.path()));
        let late = Late::ask(&[share], true, lost, ANSWER_MAX).unwrap();
        assert!(late.is_empty());
        assert!(mount.flushes() > before);
    }
}
