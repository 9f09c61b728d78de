//! Detects that the last server did not end in order, and syncs what it may have left dirty.
//!
//! A server that was killed leaves acknowledged changes in the kernel's memory, and it is not known which inodes they
//! concern. So there is a mark in the state folder while a server runs. A start that finds one syncs the file systems
//! of each share, including those mounted below it, before it serves the share, so that everything the new server takes
//! for clean is clean. A share whose file system hangs or fails is held back (`late.rs`), the others are served, and
//! the mark stays until all have been synced. It names the folders, because the next server may not serve all of them:
//! after its orderly end the mark names those that it did not serve, until one does or the machine starts anew.
//!
//! A later sync that succeeds does not restore data that a failed sync has lost, so `lost.rs` records the failure for
//! administrators.

mod asking;
mod late;
mod lost;
mod mounts;
mod sync;

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub(crate) use late::{ANSWER_MAX, Late};
pub(crate) use mounts::file_systems;

use super::{atomic, flush_journal::boot_id};
use crate::lock;
use lost::Lost;

const MARK: &str = "running";
/// Most bytes of a mark that are read. One that is larger, or damaged, names no folder.
const MARK_MAX: u64 = 16 << 20;

/// The mark of a running server; remove it with [`Mark::remove`] after an orderly end.
#[derive(Debug)]
pub(crate) struct Mark {
    file: PathBuf,
    boot: String,
    /// Folders that earlier servers left unsynced, and that this one has not served.
    left: Mutex<BTreeSet<PathBuf>>,
    /// Folders of this one, which the file names besides those.
    named: Mutex<BTreeSet<PathBuf>>,
    /// Held while the file is written.
    writing: Mutex<()>,
}

/// The contents of the mark.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Content {
    /// The kernel's id of the boot in which the mark was made: after another boot, nothing that this server left dirty
    /// is in memory any more.
    boot: String,
    folders: BTreeSet<PathBuf>,
}

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
        let file = state_dir.join(MARK);
        atomic::remove_left(&file);
        let unclean = file.try_exists().map_err(|error| named(&file, &error))?;
        let (boot, mut left) = (boot_id(), BTreeSet::new());
        if unclean {
            let content = match read_json::<Content>(&file, MARK_MAX) {
                // The folders that it names would be forgotten, and not synced when they are served again.
                Err(error) if !is_damage(&error) => return Err(named(&file, &error)),
                // Earlier versions named no folders.
                content => content.unwrap_or_default(),
            };
            if content.boot == boot || boot.is_empty() || content.boot.is_empty() {
                left = content.folders;
            }
            tracing::warn!("the last server did not end in order: syncing before serving");
        }
        let start = Instant::now();
        let lost = Arc::new(Lost::open(state_dir)?);
        let late = Late::ask(shares, unclean, lost, most)?;
        if unclean && late.is_empty() {
            tracing::info!(ms = start.elapsed().as_millis(), "synced");
        }
        let mark = Self {
            file,
            boot,
            left: Mutex::new(left),
            named: Mutex::default(),
            writing: Mutex::default(),
        };
        mark.name(shares.iter().copied())?;
        mark.serve(shares.iter().copied());
        Ok((mark, late))
    }

    /// Names folders, too, that are to be served. Nothing is written or waited for if all are named already: a disk
    /// that is full or hangs must not keep a reload from taking rights away.
    ///
    /// # Errors
    /// The mark could not be written. It does not name the folders then, so they must not be served.
    pub(crate) fn name<'a>(&self, folders: impl Iterator<Item = &'a Path>) -> io::Result<()> {
        let folders: BTreeSet<PathBuf> = folders.map(Path::to_path_buf).collect();
        if self.names(&folders) {
            lock(&self.named).extend(folders);
            return Ok(());
        }
        // The disk may hang, so the locks of the sets are not held while it is written to.
        let _writing = lock(&self.writing);
        // A folder goes from `left` to `named`, never back, so one that another reload is moving is in either copy.
        let left = lock(&self.left).clone();
        let mut all = lock(&self.named).clone();
        all.extend(folders);
        self.write(all.union(&left).cloned().collect())?;
        lock(&self.named).extend(all);
        Ok(())
    }

    /// Whether the file names all these folders; it names those of earlier servers, too, from the first time on that it
    /// is written.
    fn names(&self, folders: &BTreeSet<PathBuf>) -> bool {
        let (named, left) = (lock(&self.named), lock(&self.left));
        let mut folders = folders.iter();
        !named.is_empty() && folders.all(|one| named.contains(one) || left.contains(one))
    }

    /// Takes note that folders are served, and that they have been synced if the last server did not end in order.
    pub(crate) fn serve<'a>(&self, folders: impl Iterator<Item = &'a Path>) {
        let mut left = lock(&self.left);
        for folder in folders {
            left.remove(folder);
        }
    }

    fn write(&self, folders: BTreeSet<PathBuf>) -> io::Result<()> {
        let boot = self.boot.clone();
        let content = serde_json::to_vec(&Content { boot, folders })?;
        atomic::replace(&self.file, &content).map_err(|error| named(&self.file, &error))
    }

    /// Removes the mark after an orderly end, unless earlier servers left folders that this one did not serve.
    pub(crate) fn remove(&self) {
        let left = lock(&self.left).clone();
        let removed = match left.is_empty() {
            true => fs::remove_file(&self.file),
            false => {
                tracing::warn!(
                    folders = ?left,
                    "a server that did not end in order served these, and none has since: the next start syncs, too"
                );
                self.write(left)
            }
        };
        if let Err(error) = removed {
            let file = self.file.display();
            tracing::warn!(%error, "{file} cannot be changed: the next start may sync without need");
        }
    }
}

/// Reads a file of the state folder, which is one JSON object of at most so many bytes.
fn read_json<T: DeserializeOwned>(file: &Path, most: u64) -> io::Result<T> {
    let text = BufReader::new(File::open(file)?.take(most));
    Ok(serde_json::from_reader(text)?)
}

/// Whether a file of the state folder was read, and is damaged. Any other error says nothing about its contents.
fn is_damage(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
    )
}

/// The error of a file in the state folder, with its path and a way out.
fn named(file: &Path, error: &io::Error) -> io::Error {
    let text = format!(
        "{}: {error}\n  = the disk of the state folder must answer, have room and be writable",
        file.display()
    );
    io::Error::new(error.kind(), text)
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
        let left = state.path().join(format!(".{MARK}.0123456789abcdef.tmp"));
        fs::write(&left, "").unwrap();
        let mark = set(&[&gone]).unwrap();
        assert!(state.path().join(MARK).exists() && !left.exists());
        drop(mark);
        // Killed: the next one syncs. A folder that is not there is a mistake, and no disk that fails.
        set(&[&gone]).unwrap_err();
        let mark = set(&[share.path()]).unwrap();
        assert_eq!(fs::read_dir(share.path()).unwrap().count(), 0);
        mark.remove();
        // The first one served the folder that is gone, and none has synced it since.
        assert!(state.path().join(MARK).exists());
    }

    #[test]
    fn a_folder_that_was_not_served_since_an_unclean_end_is_synced_when_it_is() {
        let state = tempfile::tempdir().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let [a, b, c] = ["a", "b", "c"].map(|name| folder.path().join(name));
        fs::create_dir(&a).unwrap();
        fs::create_dir(&b).unwrap();
        let set =
            |paths: &[&Path]| Mark::set(state.path(), paths, ANSWER_MAX).map(|(mark, _)| mark);
        // A reload has brought the second folder. The server was killed.
        let mark = set(&[&a]).unwrap();
        mark.name([&*a, &*b].into_iter()).unwrap();
        drop(mark);
        for _ in 0..2 {
            let mark = set(&[&a]).unwrap();
            // A reload that was to bring it was refused.
            mark.name([&*a, &*b].into_iter()).unwrap();
            mark.remove();
        }
        // A start that syncs finds that a folder is missing.
        set(&[&a, &b, &c]).unwrap_err();
        set(&[&a, &b]).unwrap().remove();
        set(&[&c]).unwrap().remove();
        // The machine has started anew: nothing of the former is dirty.
        let folders = [b].into();
        let boot = "another".to_owned();
        let content = serde_json::to_vec(&Content { boot, folders }).unwrap();
        fs::write(state.path().join(MARK), content).unwrap();
        set(&[&a]).unwrap().remove();
        assert!(!state.path().join(MARK).exists());
    }

    #[test]
    fn only_a_new_folder_needs_a_state_folder_that_can_be_written() {
        let state = tempfile::tempdir().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|name| folder.path().join(name));
        let (mark, _) = Mark::set(state.path(), &[&a], ANSWER_MAX).unwrap();
        let name = |folders: &[&Path]| mark.name(folders.iter().copied());
        fs::remove_dir_all(state.path()).unwrap();
        name(&[&a]).unwrap();
        name(&[&a, &b]).unwrap_err();
        // It is not named, also not after the error.
        name(&[&b]).unwrap_err();
        name(&[&a]).unwrap();
        fs::create_dir(state.path()).unwrap();
        name(&[&a, &b]).unwrap();
        assert!(state.path().join(MARK).exists());
        // The disk hangs, and another reload waits for it.
        let _writing = lock(&mark.writing);
        name(&[&b]).unwrap();
    }

    #[test]
    fn a_mark_that_cannot_be_read_ends_the_start_and_a_damaged_one_does_not() {
        let [state, share] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let set = || Mark::set(state.path(), &[share.path()], ANSWER_MAX).map(drop);
        let mark = state.path().join(MARK);
        // A folder cannot be read as a file, and a link to one can be replaced.
        std::os::unix::fs::symlink(share.path(), &mark).unwrap();
        let error = set().unwrap_err().to_string();
        assert!(error.contains("running"), "{error}");
        assert!(mark.is_symlink(), "it is as it was");
        fs::remove_file(&mark).unwrap();
        for damaged in ["", "{\"boot\"", "rubbish", "{}"] {
            fs::write(&mark, damaged).unwrap();
            set().unwrap();
        }
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
        let lost = Arc::new(Lost::open(state.path()).unwrap());
        let late = Late::ask(&[share], true, lost, ANSWER_MAX).unwrap();
        assert!(late.is_empty());
        assert!(mount.flushes() > before);
    }
}
