//! The threads that probe file systems: one for each mount, so that one that hangs or fails delays its own shares
//! and no others.
//!
//! A file system is available when its folder can be opened, and after an unclean end when it has been synced
//! before that, each file system once. A failure is tried again, after a pause that doubles from [`PAUSE_MIN`] to
//! [`PAUSE_MAX`], or at once when an administrator reloads.
//!
//! A folder must be on the same mount as when it was first probed, or on one that has come since between that and the
//! folder: if a disk that failed has been unmounted, the empty folder below it is not the share. Where the kernel's
//! mount table cannot be read, only folders that need it are refused: those that have failed, and after an unclean end
//! all of them, because what is mounted below them must be synced.

use std::{
    collections::BTreeMap,
    fmt,
    fs::File,
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use vfs::linux::{LinuxDisk, SuperBlock};

use super::{lost::Lost, mounts::mounts_below, sync::named};
use crate::{
    config,
    host::mounts::{mount_point, mount_points},
    lock,
};

/// Pause after the first error of a file system.
pub(super) const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The longest pause between two questions to a file system that fails.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The most threads that probe; further mounts share one.
const THREADS_MAX: usize = 256;

/// The way out for a share that fails.
pub(super) const WAY_OUT: &str = "repair its file system, or take the share out of the configuration; \
                                  `holdfast reload` tries it at once";

/// A possible reason why a folder that failed before still cannot be opened.
const MOUNTED_ANEW: &str = "; if its file system is mounted anew, the sandbox does not reach it: restart \
                            the server, or let `folders` in [sandbox] name the folder above it";

/// The function that syncs a file system.
pub(super) type Sync = Box<dyn Fn(&Path, &File) -> io::Result<()> + Send + std::marker::Sync>;

/// The reason why a share cannot be served.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) error: String,
    /// The configuration names no folder there, or one that may not be opened: no disk fails.
    pub(super) mistake: bool,
    /// Only the kernel's mount table could not be read, which loses no data.
    is_of_table: bool,
}

impl Refusal {
    fn of(folder: &Path, error: io::Error) -> Self {
        Self {
            mistake: config::is_mistake(&error),
            // The errors of file systems come from system calls, and none of those is of this kind (`host/mounts.rs`).
            is_of_table: error.kind() == io::ErrorKind::Other,
            error: named(folder, error).to_string(),
        }
    }
}

/// A folder of shares that are not served.
#[derive(Debug)]
pub(super) struct Held {
    /// The start, or the reload that brought it.
    pub(super) since: Instant,
    pub(super) state: State,
    /// It is to be asked at once.
    is_due: bool,
}

impl Held {
    pub(super) fn asked(since: Instant) -> Self {
        Self {
            since,
            state: State::Asked,
            is_due: true,
        }
    }

    /// A folder that is not asked before `again`, or not at all.
    pub(super) fn refused(since: Instant, error: String, again: Option<Instant>) -> Self {
        let mistake = false;
        Self {
            since,
            state: State::Refused {
                error,
                mistake,
                again,
            },
            is_due: false,
        }
    }
}

#[derive(Debug)]
pub(super) enum State {
    /// The file system has not answered.
    Asked,
    /// The file system answered with an error, and is asked again at the time `again`; without one, nobody asks it.
    Refused {
        error: String,
        /// See [`Refusal::mistake`].
        mistake: bool,
        again: Option<Instant>,
    },
    /// The file system answers, so its shares can be served.
    Ready,
}

/// The folders that are asked, and the threads' answers. The front alone adds and removes folders.
#[derive(Default)]
pub(super) struct Folders {
    pub(super) held: BTreeMap<PathBuf, Held>,
    /// The mount points that folders were on when they were last asked, if they are known.
    mounts: BTreeMap<PathBuf, Option<PathBuf>>,
}

/// The state that the threads share.
pub(super) struct Asking {
    /// The sync of each file system that answers; only after an unclean end.
    sync: Option<Sync>,
    file_systems: Mutex<BTreeMap<u64, Arc<Mutex<FileSystem>>>>,
    pub(super) lost: Arc<Lost>,
    folders: Mutex<Folders>,
    /// A folder is due, has answered, or is forgotten.
    changed: Condvar,
}

/// One file system, by its device number.
#[derive(Default)]
struct FileSystem {
    synced: bool,
    /// The first error, which the kernel reports once.
    lost: Option<String>,
}

impl fmt::Debug for Asking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asking").finish_non_exhaustive()
    }
}

impl Asking {
    pub(super) fn new(sync: Option<Sync>, lost: Arc<Lost>) -> Arc<Self> {
        Arc::new(Self {
            sync,
            file_systems: Mutex::default(),
            lost,
            folders: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// The folders; nobody who has them waits for a disk.
    pub(super) fn folders(&self) -> MutexGuard<'_, Folders> {
        lock(&self.folders)
    }

    /// Whether file systems are synced before they are served.
    pub(super) fn syncs(&self) -> bool {
        self.sync.is_some()
    }

    /// Asks each of these folders, which are held, until it has answered without an error; the first time after a
    /// `pause`.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn begin(
        self: &Arc<Self>,
        folders: Vec<PathBuf>,
        pause: Duration,
    ) -> io::Result<()> {
        for places in self.by_mount(folders, mount_points()) {
            let asking = Arc::clone(self);
            let thread = std::thread::Builder::new().name("late".to_owned());
            thread.spawn(move || asking.ask(places, pause))?;
        }
        Ok(())
    }

    /// Groups the folders by the mount points of their paths as written, which needs no file system. A link may lead
    /// elsewhere; its answer may then take longer, or others may wait for it. A folder whose mount point is not known
    /// waits for no other, and no other waits for a folder with mounts below it, which must answer as well.
    fn by_mount(&self, folders: Vec<PathBuf>, points: io::Result<Vec<PathBuf>>) -> Vec<Vec<Place>> {
        if let Err(error) = &points {
            tracing::warn!(%error, "mount points are not known: a disk that is unmounted may not be noticed");
        }
        let mut groups: BTreeMap<(PathBuf, bool), Vec<Place>> = BTreeMap::new();
        let mounts = &mut self.folders().mounts;
        for folder in folders {
            if let Ok(points) = &points {
                let now = || mount_point(&folder, points).cloned();
                mounts.entry(folder.clone()).or_insert_with(now);
            }
            let mount = mounts.get(&folder).cloned().flatten();
            let is_below = |point: &PathBuf| point.starts_with(&folder) && *point != folder;
            let alone = points.iter().flatten().any(is_below);
            let group = mount.clone().filter(|_| !alone);
            let group = (group.unwrap_or_else(|| folder.clone()), alone);
            groups.entry(group).or_default().push(Place {
                mount,
                folder,
                real: None,
                has_failed: false,
            });
        }
        let mut groups: Vec<_> = groups.into_values().collect();
        let beyond = groups.split_off(groups.len().min(THREADS_MAX));
        if let Some(last) = groups.last_mut() {
            last.extend(beyond.into_iter().flatten());
        }
        groups
    }

    /// Asks these folders at once if they have failed, without waiting for the end of their pauses.
    pub(super) fn ask_at_once(&self, folders: &[PathBuf]) {
        let held = &mut self.folders().held;
        for folder in folders {
            if let Some(held) = held.get_mut(folder)
                && matches!(held.state, State::Refused { .. })
            {
                (held.state, held.is_due) = (State::Asked, true);
            }
        }
        self.changed.notify_all();
    }

    /// Stops probing this folder.
    pub(super) fn forget(&self, folder: &Path) {
        let mut folders = self.folders();
        folders.held.remove(folder);
        folders.mounts.remove(folder);
        self.changed.notify_all();
    }

    pub(super) fn forget_all(&self) {
        self.folders().held.clear();
        self.changed.notify_all();
    }

    fn ask(&self, mut places: Vec<Place>, first: Duration) {
        let mut pause = PAUSE_MIN;
        if !first.is_zero() {
            self.wait(&places, first);
        }
        loop {
            places.retain_mut(|place| self.ask_one(place, pause));
            if places.is_empty() {
                return;
            }
            pause = match self.wait(&places, pause) {
                true => PAUSE_MIN,
                false => pause.saturating_mul(2).min(PAUSE_MAX),
            };
        }
    }

    /// Asks a folder, unless it is not held any more. Returns whether it is to be asked again.
    fn ask_one(&self, place: &mut Place, pause: Duration) -> bool {
        match self.folders().held.get_mut(&place.folder) {
            Some(held) => held.is_due = false,
            None => return false,
        }
        let had_failed = place.has_failed;
        let answer = self.answer(place);
        let answer = answer.map_err(|refusal| self.refused(place, refusal));
        let mut folders = self.folders();
        let Some(held) = folders.held.get_mut(&place.folder) else {
            return false;
        };
        let failed = answer.is_err();
        match answer {
            Ok(()) => held.state = State::Ready,
            // Somebody may have repaired it since it was asked.
            Err(_) if held.is_due => {}
            Err(Refusal { error, mistake, .. }) => {
                let known = match &held.state {
                    State::Refused { error, .. } => Some(error),
                    _ => None,
                };
                // A mistake ends the start or the reload that brought it, with its error.
                if known != Some(&error) && (!mistake || had_failed) {
                    let after = held.since.elapsed();
                    tracing::error!(?after, next = ?pause, "NOT SERVED: {error}\n  = {WAY_OUT}");
                }
                let again = Some(Instant::now() + pause);
                held.state = State::Refused {
                    error,
                    mistake,
                    again,
                };
            }
        }
        self.changed.notify_all();
        failed
    }

    /// Waits until all folders have answered, the answer of one is a mistake, or `most` is over.
    pub(super) fn wait_for_all(&self, most: Duration) {
        let waits = |folders: &mut Folders| {
            let is =
                |which: fn(&State) -> bool| folders.held.values().any(|held| which(&held.state));
            is(|state| matches!(state, State::Asked))
                && !is(|state| matches!(state, State::Refused { mistake: true, .. }))
        };
        let ended = self.changed.wait_timeout_while(self.folders(), most, waits);
        drop(ended.unwrap_or_else(PoisonError::into_inner));
    }

    /// Handles an error of a folder. After an unclean end, dirty data there may be lost, even if it could not be
    /// opened: an administrator who repairs it by mounting it anew drops what was in memory.
    fn refused(&self, place: &mut Place, mut refusal: Refusal) -> Refusal {
        if refusal.mistake && place.has_failed {
            refusal.error.push_str(MOUNTED_ANEW);
        } else if !refusal.mistake && !refusal.is_of_table && self.sync.is_some() {
            self.lost.note(&place.folder, &refusal.error);
        }
        place.has_failed |= !refusal.mistake;
        refusal
    }

    /// Waits for a pause; returns true if it ended early, because a folder is due or none is held any more.
    fn wait(&self, places: &[Place], pause: Duration) -> bool {
        let rests = |folders: &mut Folders| {
            let mut held = places
                .iter()
                .filter_map(|place| folders.held.get(&place.folder));
            let is_due = held.clone().any(|held| held.is_due);
            held.next().is_some() && !is_due
        };
        let ended = self
            .changed
            .wait_timeout_while(self.folders(), pause, rests);
        let (folders, timeout) = ended.unwrap_or_else(PoisonError::into_inner);
        drop(folders);
        !timeout.timed_out()
    }

    /// Waits for the file systems of a folder.
    fn answer(&self, place: &mut Place) -> Result<(), Refusal> {
        let folder = place.folder.clone();
        let refused = |error: io::Error| Refusal::of(&folder, error);
        place.is_where_it_was(mount_points())?;
        if let Some(known) = self.folders().mounts.get_mut(&folder) {
            known.clone_from(&place.mount);
        }
        let below = mounts_below(&folder);
        if self.sync.is_some() {
            let below = below.map_err(refused)?;
            for mounted in std::iter::once(folder.as_path()).chain(below.iter().map(AsRef::as_ref))
            {
                self.sync_once(mounted, &folder)?;
            }
        } else {
            for mounted in below.unwrap_or_default() {
                // The start opens these, too, and would wait for one that hangs. One that fails is left out there.
                let _ = SuperBlock::open(&mounted);
            }
        }
        // The folder is opened in the way in which it will be opened to be served.
        let opened = LinuxDisk::open(&folder);
        let opened = opened.map_err(|errno| refused(errno.into()));
        match opened {
            // After an orderly end this is no failure of the disk: opening the share reports it, and ends the start.
            Err(refusal) if self.sync.is_none() && refusal.mistake && !place.has_failed => Ok(()),
            opened => opened.map(drop),
        }
    }

    /// Syncs the file system that is mounted there, of the share in `folder`, unless that has been
    /// done. A share that comes second waits for the first.
    fn sync_once(&self, mounted: &Path, folder: &Path) -> Result<(), Refusal> {
        let Some(sync) = &self.sync else {
            return Ok(());
        };
        // The configuration does not name the file systems that are mounted below.
        let refused = |error: io::Error| Refusal {
            mistake: mounted == folder && config::is_mistake(&error),
            is_of_table: false,
            error: named(mounted, error).to_string(),
        };
        let file = File::open(mounted).map_err(refused)?;
        let device = file.metadata().map_err(refused)?.dev();
        let one = Arc::clone(lock(&self.file_systems).entry(device).or_default());
        let mut one = lock(&one);
        let mut failed = None;
        if !one.synced {
            match sync(mounted, &file) {
                Ok(()) => one.synced = true,
                // Nothing more can be written there, so nothing is dirty: it is served read-only.
                Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => {
                    one.synced = true;
                    one.lost.get_or_insert(error.to_string());
                }
                Err(error) => {
                    one.lost.get_or_insert(error.to_string());
                    failed = Some(error.to_string());
                }
            }
        }
        if let Some(lost) = &one.lost {
            self.lost.note(folder, lost);
        }
        let refusal = |error| Refusal {
            error,
            mistake: false,
            is_of_table: false,
        };
        failed.map_or(Ok(()), |error| Err(refusal(error)))
    }
}

/// A folder, and the mount points that it was on when it was last asked.
struct Place {
    folder: PathBuf,
    /// The mount point of the path as it is written, which is found without asking the file system.
    mount: Option<PathBuf>,
    /// The folder with its links resolved, and the mount point of that, as soon as the file system has answered.
    real: Option<(PathBuf, Option<PathBuf>)>,
    has_failed: bool,
}

impl Place {
    /// Refuses a folder whose mount has gone. A mount that has come between that and the folder, as an automounter
    /// makes one at the first access, is the folder's mount from then on.
    fn is_where_it_was(&mut self, points: io::Result<Vec<PathBuf>>) -> Result<(), Refusal> {
        let points = match points {
            Ok(points) => points,
            // There is nothing yet to compare with.
            Err(_) if self.mount.is_none() && !self.has_failed => return Ok(()),
            Err(error) => return Err(Refusal::of(&self.folder, error)),
        };
        let real = self.real.as_ref().and_then(|(_, mount)| mount.as_ref());
        let mut known = self.mount.as_ref().into_iter().chain(real);
        if let Some(mount) = known.find(|mount| !points.contains(mount)) {
            return Err(Refusal {
                error: format!(
                    "{}: nothing is mounted at {} any more",
                    self.folder.display(),
                    mount.display()
                ),
                mistake: false,
                is_of_table: false,
            });
        }
        self.mount = mount_point(&self.folder, &points).cloned();
        let real = self.real.take().map(|(path, _)| path);
        let real = real.or_else(|| self.folder.canonicalize().ok());
        self.real = real.map(|path| {
            let mount = mount_point(&path, &points).cloned();
            (path, mount)
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
