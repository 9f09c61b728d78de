//! Shares that are held back: their file systems have not answered since the start, or fail.
//!
//! A share whose file systems have not answered within [`ANSWER_MAX`] is [`Late`], and so is one
//! whose file systems answer with an error: the daemon serves without it, and takes it in when they
//! answer well (`asking.rs`). A folder that is not there or may not be opened is a mistake of the
//! configuration and ends the start.
//!
//! After an unclean end the folders that a reload adds are probed likewise before they are served,
//! because data that the last server left there were not synced yet.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use super::{
    asking::{Answered, Asking, PAUSE_MAX, Refusal, Sync},
    lost::Lost,
    sync::sync_file_system,
};
use crate::{
    Error,
    answers::{LateShareStatus, millis},
    config::{Config, ShareSettings},
};

/// The longest time that a start waits for the file systems of all shares together.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The way out for a share that fails.
const WAY_OUT: &str = "repair its file system, or take the share out of the configuration; \
                       `holdfast reload` tries it at once";

/// Folders of shares that are not served.
#[derive(Debug)]
pub(crate) struct Late {
    folders: BTreeMap<PathBuf, Held>,
    answers: mpsc::Receiver<Answered>,
    asking: Arc<Asking>,
    /// A reload removed a share whose file system was never synced.
    dropped: bool,
    since: Instant,
}

#[derive(Debug)]
struct Held {
    /// The start, or the reload that brought it.
    since: Instant,
    state: State,
}

impl Held {
    fn asked(since: Instant) -> Self {
        Self {
            since,
            state: State::Asked,
        }
    }
}

#[derive(Debug)]
enum State {
    /// The file system has not answered.
    Asked,
    /// The file system answered with an error, and is asked again at the time `again`; without one, nobody asks it.
    Refused {
        error: String,
        again: Option<Instant>,
    },
    /// The file system answers, so its shares can be served.
    Ready,
}

/// The request of a reload.
#[derive(Debug)]
pub(crate) struct Asked {
    /// Folders that it brings: one that fails refuses the reload.
    brought: Vec<PathBuf>,
    /// Folders that have failed since the start.
    again: Vec<PathBuf>,
}

impl Late {
    /// Asks the file systems of these folders, those mounted below them included, and waits for
    /// `most` until they have answered. With `sync` they are synced first.
    ///
    /// # Errors
    /// A folder is not there or may not be opened.
    pub(super) fn ask(
        folders: &[&Path],
        sync: bool,
        lost: Arc<Lost>,
        most: Duration,
    ) -> io::Result<Self> {
        let sync = sync.then(|| Box::new(sync_file_system) as Sync);
        Self::ask_by(folders, sync, lost, most)
    }

    fn ask_by(
        folders: &[&Path],
        sync: Option<Sync>,
        lost: Arc<Lost>,
        most: Duration,
    ) -> io::Result<Self> {
        let (tell, answers) = mpsc::channel();
        let since = Instant::now();
        let mut late = Self {
            folders: BTreeMap::new(),
            answers,
            asking: Asking::new(sync, lost, tell),
            dropped: false,
            since,
        };
        let asked = folders
            .iter()
            .map(|folder| (folder.to_path_buf(), Held::asked(since)));
        late.folders.extend(asked);
        late.asking.begin(late.folders.keys(), Duration::ZERO)?;
        while late.awaits_answer() {
            let left = most.saturating_sub(since.elapsed());
            let Ok(told) = late.answers.recv_timeout(left) else {
                break;
            };
            match told.answer {
                Ok(()) => drop(late.folders.remove(&told.folder)),
                Err(refusal) if refusal.mistake => return Err(io::Error::other(refusal.error)),
                Err(_) => late.take(told),
            }
        }
        for (folder, held) in &late.folders {
            if matches!(held.state, State::Asked) {
                tracing::error!(
                    "{}: its file system does not answer: its shares are refused until it does, \
                     the others are served",
                    folder.display()
                );
            }
        }
        Ok(late)
    }

    fn awaits_answer(&self) -> bool {
        let mut held = self.folders.values();
        held.any(|held| matches!(held.state, State::Asked))
    }

    /// Asks again the folders that have failed, and after an unclean end asks those that a reload
    /// from `old` to `new` brings. They are late until they have answered.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn ask_new(&mut self, old: &Config, new: &Config) -> io::Result<Asked> {
        let served = |path: &PathBuf| old.shares.iter().any(|share| share.path == *path);
        let paths = new.shares.iter().map(|share| share.path.clone());
        let paths: BTreeSet<_> = paths.collect();
        let brought = paths.iter().filter(|path| {
            self.asking.syncs() && !served(path) && !self.folders.contains_key(*path)
        });
        let brought: Vec<_> = brought.cloned().collect();
        let (mut again, mut unasked) = (Vec::new(), Vec::new());
        for (folder, held) in &self.folders {
            if let State::Refused { again: next, .. } = &held.state
                && paths.contains(folder)
            {
                again.push(folder.clone());
                unasked.extend(next.is_none().then(|| folder.clone()));
            }
        }
        let begun = self
            .asking
            .begin(brought.iter().chain(&unasked), Duration::ZERO);
        if begun.is_err() {
            // The threads that were started would ask for ever, and nobody takes their answers.
            brought.iter().for_each(|folder| self.asking.forget(folder));
        }
        begun?;
        self.asking.ask_again();
        for folder in &again {
            if let Some(held) = self.folders.get_mut(folder) {
                held.state = State::Asked;
            }
        }
        let now = Instant::now();
        let asked = brought.iter();
        let asked = asked.map(|folder| (folder.clone(), Held::asked(now)));
        self.folders.extend(asked);
        Ok(Asked { brought, again })
    }

    /// Whether all of these have answered; what the reload brings can be served then. The first
    /// error of a folder that it brings refuses it: then none of these is late any more.
    pub(crate) fn have_answered(&mut self, asked: &Asked) -> Result<bool, Error> {
        let refused = asked
            .brought
            .iter()
            .find_map(|folder| match self.state_of(folder) {
                Some(State::Refused { error, .. }) => Some(error.clone()),
                _ => None,
            });
        if let Some(error) = refused {
            self.forget(|folder| asked.brought.contains(folder));
            return Err(error.into());
        }
        let mut all = asked.brought.iter().chain(&asked.again);
        let waits = |folder: &PathBuf| matches!(self.state_of(folder), Some(State::Asked));
        if all.any(waits) {
            return Ok(false);
        }
        for folder in &asked.brought {
            self.folders.remove(folder);
        }
        Ok(true)
    }

    fn state_of(&self, folder: &Path) -> Option<&State> {
        self.folders.get(folder).map(|held| &held.state)
    }

    fn forget(&mut self, which: impl Fn(&PathBuf) -> bool) {
        let folders = self.folders.keys();
        let gone: Vec<_> = folders.filter(|one| which(one)).cloned().collect();
        for folder in gone {
            self.asking.forget(&folder);
            self.folders.remove(&folder);
        }
    }

    /// Called when a configuration is in force: folders that it does not name are no longer probed,
    /// and stay unsynced.
    pub(crate) fn keep_only(&mut self, config: &Config) {
        let before = self.folders.len();
        self.forget(|folder| config.late.iter().all(|share| share.path != *folder));
        self.dropped |= self.folders.len() < before;
    }

    /// Whether no share is late.
    pub(crate) fn is_empty(&self) -> bool {
        self.folders.is_empty()
    }

    /// Whether every file system that was to be synced has been.
    pub(crate) fn has_synced_all(&self) -> bool {
        !self.asking.syncs() || (self.folders.is_empty() && !self.dropped)
    }

    /// Takes the answers that have come.
    pub(crate) fn take_answers(&mut self) {
        while let Ok(told) = self.answers.try_recv() {
            self.take(told);
        }
    }

    fn take(&mut self, told: Answered) {
        let Some(Held { since, state }) = self.folders.get_mut(&told.folder) else {
            return;
        };
        let after = since.elapsed();
        match told.answer {
            Ok(()) => {
                tracing::info!(?after, "{}: its file system answers", told.folder.display());
                *state = State::Ready;
            }
            Err(Refusal { error, .. }) => {
                let known = match state {
                    State::Refused { error, .. } => Some(&*error),
                    _ => None,
                };
                if known != Some(&error) {
                    let next = told.pause;
                    tracing::error!(?after, ?next, "NOT SERVED: {error}\n  = {WAY_OUT}");
                }
                let again = Some(Instant::now() + told.pause);
                *state = State::Refused { error, again };
            }
        }
    }

    /// Whether there is a late share that can be served now.
    pub(crate) fn has_ready(&self) -> bool {
        let mut held = self.folders.values();
        held.any(|held| matches!(held.state, State::Ready))
    }

    /// Takes a folder whose file system answers out of the list of late ones, so that its shares can be served.
    pub(crate) fn next_ready(&mut self) -> Option<PathBuf> {
        let mut ready = self.folders.iter();
        let ready = ready.find(|(_, held)| matches!(held.state, State::Ready));
        let folder = ready.map(|(folder, _)| folder.clone())?;
        self.folders.remove(&folder);
        Some(folder)
    }

    /// Puts a share back that could not be taken in after all; it is probed again later.
    pub(crate) fn put_back(&mut self, folder: PathBuf, error: String) {
        let asking = self.asking.begin([&folder].into_iter(), PAUSE_MAX);
        if let Err(error) = &asking {
            tracing::error!(
                %error,
                "{}: it is not probed again, and stays NOT SERVED\n  = holdfast reload",
                folder.display()
            );
        }
        let again = asking.is_ok().then(|| Instant::now() + PAUSE_MAX);
        let held = Held {
            since: self.since,
            state: State::Refused { error, again },
        };
        self.folders.insert(folder, held);
    }

    /// The data that the first sync after an unclean end lost, for administrators.
    pub(crate) fn lost(&self) -> &Arc<Lost> {
        &self.asking.lost
    }

    /// The configuration, with the shares that cannot be served yet moved to `late`.
    pub(crate) fn without(&self, mut config: Config) -> Config {
        let late = |share: &ShareSettings| self.folders.contains_key(&share.path);
        let (late, shares) = config.shares.into_iter().partition(late);
        config.shares = shares;
        config.late = late;
        config
    }

    /// The shares that are not served, and why, for `holdfast status`.
    pub(crate) fn status(&self, config: &Config) -> Vec<LateShareStatus> {
        let one = |share: &ShareSettings| {
            let held = self.folders.get(&share.path);
            let since = held.map_or(self.since, |held| held.since);
            let refused = match self.state_of(&share.path) {
                Some(State::Refused { error, again }) => Some((error, again)),
                _ => None,
            };
            let left = |again: Instant| again.saturating_duration_since(Instant::now());
            LateShareStatus {
                share: share.name.clone(),
                path: share.path.display().to_string(),
                waited_ms: millis(since.elapsed()),
                error: refused.map(|(error, _)| error.clone()),
                again_in_ms: refused.and_then(|(_, again)| again.map(|again| millis(left(again)))),
                way_out: refused.map(|_| WAY_OUT.to_owned()),
                lost_at_start: self.lost().of(&share.path),
            }
        };
        config.late.iter().map(one).collect()
    }

    /// Whether a share's file system answers with errors; else it does not answer.
    pub(crate) fn fails(&self, share: &ShareSettings) -> bool {
        matches!(self.state_of(&share.path), Some(State::Refused { .. }))
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        self.asking.forget_all();
    }
}

#[cfg(test)]
mod tests;
