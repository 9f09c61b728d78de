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
    cell::Cell,
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::{Arc, MutexGuard},
    time::{Duration, Instant},
};

use super::{
    asking::{Asking, Folders, Held, PAUSE_MAX, State, Sync, WAY_OUT},
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

/// Folders of shares that are not served.
#[derive(Debug)]
pub(crate) struct Late {
    asking: Arc<Asking>,
    /// A reload removed a share whose file system was never synced.
    dropped: Cell<bool>,
    since: Instant,
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
        let late = Self {
            asking: Asking::new(sync, lost),
            dropped: Cell::new(false),
            since: Instant::now(),
        };
        let folders = folders.iter().map(|folder| folder.to_path_buf());
        let folders: BTreeSet<PathBuf> = folders.collect();
        let folders = Vec::from_iter(folders);
        let held = folders.iter().cloned();
        let held = held.map(|folder| (folder, Held::asked(late.since)));
        late.folders().held.extend(held);
        late.asking.begin(folders, Duration::ZERO)?;
        late.asking.wait_for_all(most);
        let mut folders = late.folders();
        for (folder, held) in &folders.held {
            match &held.state {
                State::Refused {
                    error,
                    mistake: true,
                    ..
                } => return Err(io::Error::other(error.clone())),
                State::Asked => tracing::error!(
                    "{}: its file system does not answer: its shares are refused until it does, \
                     the others are served",
                    folder.display()
                ),
                _ => {}
            }
        }
        let is_late = |held: &Held| !matches!(held.state, State::Ready);
        folders.held.retain(|_, held| is_late(held));
        drop(folders);
        Ok(late)
    }

    fn folders(&self) -> MutexGuard<'_, Folders> {
        self.asking.folders()
    }

    /// Asks again the folders that have failed, and after an unclean end asks those that a reload
    /// from `old` to `new` brings. They are late until they have answered.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn ask_new(&self, old: &Config, new: &Config) -> io::Result<Asked> {
        let served = |path: &PathBuf| old.shares.iter().any(|share| share.path == *path);
        let paths = new.shares.iter().map(|share| share.path.clone());
        let paths: BTreeSet<_> = paths.collect();
        let (mut brought, mut again, mut unasked) = (Vec::new(), Vec::new(), Vec::new());
        let now = Instant::now();
        let mut folders = self.folders();
        for path in paths {
            match folders.held.get(&path).map(|held| &held.state) {
                None if self.asking.syncs() && !served(&path) => {
                    folders.held.insert(path.clone(), Held::asked(now));
                    brought.push(path);
                }
                Some(State::Refused { again: next, .. }) => {
                    unasked.extend(next.is_none().then(|| path.clone()));
                    again.push(path);
                }
                _ => {}
            }
        }
        drop(folders);
        let begun = [brought.clone(), unasked].concat();
        if let Err(error) = self.asking.begin(begun, Duration::ZERO) {
            // The threads that were started would ask for ever, and nobody takes their answers.
            brought.iter().for_each(|folder| self.asking.forget(folder));
            return Err(error);
        }
        self.asking.ask_at_once(&again);
        Ok(Asked { brought, again })
    }

    /// Whether all of these have answered; what the reload brings can be served then. The first
    /// error of a folder that it brings refuses it: then none of these is late any more.
    pub(crate) fn have_answered(&self, asked: &Asked) -> Result<bool, Error> {
        let mut folders = self.folders();
        let state = |folder: &PathBuf| folders.held.get(folder).map(|held| &held.state);
        let refused = asked.brought.iter().find_map(|folder| match state(folder) {
            Some(State::Refused { error, .. }) => Some(error.clone()),
            _ => None,
        });
        if let Some(error) = refused {
            drop(folders);
            self.forget(|folder| asked.brought.contains(folder));
            return Err(error.into());
        }
        let mut all = asked.brought.iter().chain(&asked.again);
        if all.any(|folder| matches!(state(folder), Some(State::Asked))) {
            return Ok(false);
        }
        for folder in &asked.brought {
            folders.held.remove(folder);
        }
        Ok(true)
    }

    /// Stops probing folders; returns whether there were any.
    fn forget(&self, which: impl Fn(&PathBuf) -> bool) -> bool {
        let mut gone: Vec<_> = self.folders().held.keys().cloned().collect();
        gone.retain(which);
        gone.iter().for_each(|folder| self.asking.forget(folder));
        !gone.is_empty()
    }

    /// Called when a configuration is in force: folders that it does not name are no longer probed,
    /// and stay unsynced.
    pub(crate) fn keep_only(&self, config: &Config) {
        let is_gone = |folder: &PathBuf| config.late.iter().all(|share| share.path != *folder);
        let dropped = self.forget(is_gone);
        self.dropped.set(self.dropped.get() || dropped);
    }

    /// Whether no share is late.
    pub(crate) fn is_empty(&self) -> bool {
        self.folders().held.is_empty()
    }

    /// Whether every file system that was to be synced has been.
    pub(crate) fn has_synced_all(&self) -> bool {
        !self.asking.syncs() || (self.is_empty() && !self.dropped.get())
    }

    /// Whether there is a late share that can be served now.
    pub(crate) fn has_ready(&self) -> bool {
        let folders = self.folders();
        let mut held = folders.held.values();
        held.any(|held| matches!(held.state, State::Ready))
    }

    /// Takes a folder whose file system answers out of the list of late ones, so that its shares can be served.
    pub(crate) fn next_ready(&self) -> Option<PathBuf> {
        let held = &mut self.folders().held;
        let mut ready = held.iter();
        let ready = ready.find(|(_, held)| matches!(held.state, State::Ready));
        let (folder, after) = ready.map(|(folder, held)| (folder.clone(), held.since.elapsed()))?;
        tracing::info!(?after, "{}: its file system answers", folder.display());
        held.remove(&folder);
        Some(folder)
    }

    /// Puts a share back that could not be taken in after all; it is probed again later.
    pub(crate) fn put_back(&self, folder: PathBuf, error: String) {
        let again = Some(Instant::now() + PAUSE_MAX);
        let held = Held::refused(self.since, error.clone(), again);
        self.folders().held.insert(folder.clone(), held);
        if let Err(failed) = self.asking.begin(vec![folder.clone()], PAUSE_MAX) {
            tracing::error!(
                error = %failed,
                "{}: it is not probed again, and stays NOT SERVED\n  = holdfast reload",
                folder.display()
            );
            let held = Held::refused(self.since, error, None);
            self.folders().held.insert(folder, held);
        }
    }

    /// The data that the first sync after an unclean end lost, for administrators.
    pub(crate) fn lost(&self) -> &Arc<Lost> {
        &self.asking.lost
    }

    /// The configuration, with the shares that cannot be served yet moved to `late`.
    pub(crate) fn without(&self, mut config: Config) -> Config {
        let folders = self.folders();
        let late = |share: &ShareSettings| folders.held.contains_key(&share.path);
        let (late, shares) = config.shares.into_iter().partition(late);
        config.shares = shares;
        config.late = late;
        config
    }

    /// The shares that are not served, and why, for `holdfast status`.
    pub(crate) fn status(&self, config: &Config) -> Vec<LateShareStatus> {
        let folders = self.folders();
        let one = |share: &ShareSettings| {
            let held = folders.held.get(&share.path);
            let since = held.map_or(self.since, |held| held.since);
            let refused = match held.map(|held| &held.state) {
                Some(State::Refused { error, again, .. }) => Some((error, again)),
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
        let folders = self.folders();
        let held = folders.held.get(&share.path);
        held.is_some_and(|held| matches!(held.state, State::Refused { .. }))
    }
}

impl Drop for Late {
    fn drop(&mut self) {
        self.asking.forget_all();
    }
}

#[cfg(test)]
mod tests;
