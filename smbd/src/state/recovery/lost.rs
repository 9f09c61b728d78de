//! The failures of the first sync after an unclean end, by share folder.
//!
//! The kernel reports a failed write-back once, and names no file. So a share whose file system answers the next
//! sync with success is served, and `status` continues to report that acknowledged data may be lost there, also
//! after a restart, until an administrator accepts it (`holdfast policy clear-latch`). The file is one JSON object
//! that maps folders to errors.

use super::{is_damage, named, read_json};
use crate::{lock, state::atomic};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Mutex,
};

/// Name of the file in the state folder.
const FILE: &str = "lost-at-start";
/// Most folders in the file: as many as a configuration can have shares.
const FOLDERS_MAX: usize = 10_000;
/// Largest file, bytes.
const FILE_MAX: u64 = 64 << 20;

/// See the module head.
#[derive(Debug)]
pub(crate) struct Lost {
    file: PathBuf,
    known: Mutex<BTreeMap<PathBuf, String>>,
    /// Whether the file says something else because it could not be written. Locked while it is written, so that
    /// queries do not wait for a disk.
    differs: Mutex<bool>,
}

impl Lost {
    /// Reads the failures that earlier servers left in the state folder. A damaged file names none.
    ///
    /// # Errors
    /// The file cannot be read: the next write would replace what it says.
    pub(super) fn open(state_dir: &Path) -> io::Result<Self> {
        let file = state_dir.join(FILE);
        atomic::remove_left(&file);
        let known: BTreeMap<PathBuf, String> = match read_json(&file, FILE_MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) if !is_damage(&error) => return Err(named(&file, &error)),
            known => known.unwrap_or_else(|error| {
                tracing::error!(
                    %error,
                    "{}: the list of data that earlier starts could not sync is damaged",
                    file.display()
                );
                BTreeMap::new()
            }),
        };
        for (folder, error) in &known {
            tracing::error!("{}: {}", folder.display(), in_words(error));
        }
        Ok(Self {
            file,
            known: Mutex::new(known),
            differs: Mutex::default(),
        })
    }

    /// The first sync of a file system of this folder failed. The first error stays.
    pub(super) fn note(&self, folder: &Path, error: &str) {
        let mut known = lock(&self.known);
        if known.contains_key(folder) {
            return;
        }
        known.insert(folder.to_owned(), error.to_owned());
        drop(known);
        tracing::error!("{}: {}", folder.display(), in_words(error));
        if let Err(error) = self.write() {
            tracing::error!(
                %error,
                "{}: the loss at this start cannot be recorded: a restart forgets it",
                self.file.display()
            );
        }
    }

    /// Accepts, for an administrator, the loss of these folders; `None`: of all, also of those that no share has any
    /// more. May wait for the state folder's disk.
    ///
    /// # Errors
    /// It could not be stored, so a restart reports the loss again.
    pub(crate) fn accept(&self, folders: Option<&[PathBuf]>) -> io::Result<()> {
        let mut known = lock(&self.known);
        let before = known.len();
        known.retain(|folder, _| folders.is_some_and(|accepted| !accepted.contains(folder)));
        let changed = known.len() < before;
        drop(known);
        let differs = *lock(&self.differs);
        if changed || differs {
            self.write().map_err(|error| named(&self.file, &error))?;
        }
        Ok(())
    }

    /// The text that administrators see for a folder.
    pub(crate) fn of(&self, folder: &Path) -> Option<String> {
        lock(&self.known).get(folder).map(|error| in_words(error))
    }

    fn write(&self) -> io::Result<()> {
        let mut differs = lock(&self.differs);
        // The present state is written, because an earlier writer may have had an older one.
        let known = lock(&self.known).clone();
        let written = match known.len() {
            0 => match fs::remove_file(&self.file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
            1..=FOLDERS_MAX => {
                let text = serde_json::to_vec(&known).map_err(io::Error::from);
                text.and_then(|text| atomic::replace(&self.file, &text))
            }
            _ => Err(io::Error::other("too many folders")),
        };
        *differs = written.is_err();
        written
    }
}

fn in_words(error: &str) -> String {
    format!(
        "the first sync after an unclean end failed: {error}; what the server before had acknowledged \
         and no client had flushed may be lost there, and no later sync brings it back: look at what \
         was written last, then accept it with `holdfast policy clear-latch`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_outlives_the_server_until_it_is_accepted() {
        let state = tempfile::tempdir().unwrap();
        let (a, b) = (Path::new("/a"), Path::new("/b"));
        let lost = Lost::open(state.path()).unwrap();
        assert_eq!(lost.of(a), None);
        lost.note(a, "disk full");
        lost.note(a, "another");
        lost.note(b, "disk gone");
        let again = Lost::open(state.path()).unwrap();
        assert!(again.of(a).unwrap().contains("disk full"));
        again.accept(Some(&[a.to_owned()])).unwrap();
        let again = Lost::open(state.path()).unwrap();
        assert_eq!(again.of(a), None);
        assert!(again.of(b).is_some());
        again.accept(Some(&[])).unwrap();
        assert!(again.of(b).is_some());
        again.accept(None).unwrap();
        assert!(!state.path().join(FILE).exists());
    }

    #[test]
    fn an_acceptance_that_cannot_be_stored_is_an_error_until_it_is() {
        let state = tempfile::tempdir().unwrap();
        let file = state.path().join(FILE);
        let lost = Lost::open(state.path()).unwrap();
        lost.note(Path::new("/a"), "disk full");
        // A folder in the way is neither removed nor replaced.
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        for _ in 0..2 {
            let error = lost.accept(None).unwrap_err().to_string();
            assert!(error.contains(FILE), "{error}");
        }
        fs::remove_dir(&file).unwrap();
        fs::write(&file, "{\"/a\":\"disk full\"}").unwrap();
        lost.accept(None).unwrap();
        assert!(!file.exists());
    }

    #[test]
    fn a_loss_beyond_the_limit_of_the_file_is_known_until_the_end_of_the_server() {
        let state = tempfile::tempdir().unwrap();
        let folder = |n: usize| PathBuf::from(format!("/{n}"));
        let full = (0..FOLDERS_MAX).map(|n| (folder(n), "disk full".to_owned()));
        let full: BTreeMap<PathBuf, String> = full.collect();
        let text = serde_json::to_vec(&full).unwrap();
        fs::write(state.path().join(FILE), text).unwrap();
        let lost = Lost::open(state.path()).unwrap();
        lost.note(&folder(FOLDERS_MAX), "disk gone");
        assert!(lost.of(&folder(FOLDERS_MAX)).is_some());
        // The file has the others still, and there is room again once one of them is accepted.
        let again = Lost::open(state.path()).unwrap();
        assert!(again.of(&folder(0)).is_some());
        assert_eq!(again.of(&folder(FOLDERS_MAX)), None);
        lost.accept(Some(&[folder(0)])).unwrap();
        let again = Lost::open(state.path()).unwrap();
        assert_eq!(again.of(&folder(0)), None);
        assert!(again.of(&folder(FOLDERS_MAX)).is_some());
    }

    #[test]
    fn a_damaged_file_holds_nothing_up() {
        let state = tempfile::tempdir().unwrap();
        fs::write(state.path().join(FILE), "{\"/a\"").unwrap();
        let lost = Lost::open(state.path()).unwrap();
        lost.note(Path::new("/b"), "disk gone");
        let again = Lost::open(state.path()).unwrap();
        assert!(again.of(Path::new("/b")).is_some());
    }

    #[test]
    fn a_file_that_cannot_be_read_is_not_replaced() {
        let state = tempfile::tempdir().unwrap();
        let file = state.path().join(FILE);
        // A folder cannot be read as a file, and a link to one could be replaced.
        std::os::unix::fs::symlink(state.path(), &file).unwrap();
        let error = Lost::open(state.path()).map(drop).unwrap_err().to_string();
        assert!(error.contains(FILE), "{error}");
    }
}
