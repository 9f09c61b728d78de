//! Asking the file systems of all shares whether they are there, each mount on a thread of its
//! own: one that hangs holds up its own shares and no others.
//!
//! After an unclean end a file system is there when it has been synced (`unclean.rs`); else when it
//! tells what its folder is. A share whose file systems have not answered within [`ANSWER_MAX`] is
//! [`Late`]: the daemon serves without it, and takes it in when they have. One whose sync failed
//! then is not served by this process: what the kernel tells once has been told.
//!
//! After an unclean end the folders that a reload brings are asked likewise before they are served:
//! what the last server left there nobody has synced.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError, mpsc},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{mounts_below, named, sync_file_system};
use crate::config::{Config, Share};

/// Longest that a start waits for the file systems of all shares together.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Most threads that ask; mounts beyond share one.
const ASKING_MAX: usize = 256;

/// How often a file system that answered with an error is asked again.
const AGAIN: Duration = Duration::from_secs(1);

/// How it went.
type Answer = Result<(), Refusal>;

/// Why a share cannot be served, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Refusal {
    error: String,
    /// Its sync failed: asking again would hear nothing of it.
    lasts: bool,
}

/// Syncs under way or ended, by device number: each file system once.
type Syncs = Arc<Mutex<BTreeMap<u64, Arc<OnceLock<Result<(), String>>>>>>;

/// Folders of shares whose file systems have not answered since the start.
#[derive(Debug)]
pub(crate) struct Late {
    /// With what they said, if anything.
    folders: BTreeMap<PathBuf, Option<Refusal>>,
    tell: mpsc::Sender<(PathBuf, Answer)>,
    answers: mpsc::Receiver<(PathBuf, Answer)>,
    /// The last end was unclean.
    sync: bool,
    syncs: Syncs,
    since: Instant,
}

impl Late {
    /// Asks the file systems of these folders, those mounted below them included, and waits for
    /// `most` until they have answered. With `sync` they are synced first.
    ///
    /// # Errors
    /// A sync failed.
    pub(super) fn ask(folders: &[&Path], sync: bool, most: Duration) -> io::Result<Self> {
        let (tell, answers) = mpsc::channel();
        let since = Instant::now();
        let mut late = Self {
            folders: BTreeMap::new(),
            tell,
            answers,
            sync,
            syncs: Syncs::default(),
            since,
        };
        late.folders
            .extend(folders.iter().map(|folder| (folder.to_path_buf(), None)));
        late.begin(late.folders.keys(), true)?;
        while !late.folders.is_empty() {
            let left = most.saturating_sub(since.elapsed());
            let Ok((folder, answer)) = late.answers.recv_timeout(left) else {
                break;
            };
            answer.map_err(|refusal| io::Error::other(refusal.error))?;
            late.folders.remove(&folder);
        }
        for folder in late.folders.keys() {
            tracing::error!(
                "{}: its file system does not answer: its shares are refused until it does, the \
                 others are served",
                folder.display()
            );
        }
        Ok(late)
    }

    /// Asks each mount on a thread; who answers with an error is asked `again`.
    fn begin<'a>(&self, folders: impl Iterator<Item = &'a PathBuf>, again: bool) -> io::Result<()> {
        for together in by_mount(folders) {
            let (tell, syncs, sync) = (self.tell.clone(), Arc::clone(&self.syncs), self.sync);
            let ask = move || {
                for folder in together {
                    loop {
                        let answer = answer(&folder, sync, &syncs);
                        let again = again && matches!(&answer, Err(refusal) if !refusal.lasts);
                        // Nobody listens any more after a start that failed.
                        if tell.send((folder.clone(), answer)).is_err() || !again {
                            break;
                        }
                        std::thread::sleep(AGAIN);
                    }
                }
            };
            std::thread::Builder::new()
                .name("late".to_owned())
                .spawn(ask)?;
        }
        Ok(())
    }

    /// After an unclean end, asks the folders that a reload from `old` to `new` brings, or that
    /// answered with an error. They are late until they have answered.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn ask_new(&mut self, old: &Config, new: &Config) -> io::Result<Vec<PathBuf>> {
        let served = |path: &PathBuf| old.shares.iter().any(|share| share.path == *path);
        let awaited = |path: &PathBuf| matches!(self.folders.get(path), Some(None));
        let asked = new.shares.iter().map(|share| share.path.clone());
        let asked = asked.filter(|path| self.sync && !served(path) && !awaited(path));
        let asked: Vec<_> = asked.collect::<BTreeSet<_>>().into_iter().collect();
        self.begin(asked.iter(), false)?;
        self.folders
            .extend(asked.iter().map(|folder| (folder.clone(), None)));
        Ok(asked)
    }

    /// Whether all of these have answered. The first error is given once: they are late no more,
    /// and the reload that brought them is not to be.
    ///
    /// # Errors
    /// What one answered.
    pub(crate) fn have_answered(&mut self, asked: &[PathBuf]) -> Result<bool, String> {
        let answers = asked.iter().filter_map(|folder| self.folders.get(folder));
        let mut refusals = answers.clone().flatten();
        if let Some(refusal) = refusals.next() {
            let error = refusal.error.clone();
            self.folders.retain(|folder, _| !asked.contains(folder));
            return Err(error);
        }
        Ok(answers.count() == 0)
    }

    /// Nobody is late.
    pub(crate) fn is_empty(&self) -> bool {
        self.folders.is_empty()
    }

    /// Whether an answer is still to come.
    pub(crate) fn is_awaited(&self) -> bool {
        let lasts = |refusal: &Option<Refusal>| refusal.as_ref().is_some_and(|one| one.lasts);
        !self.folders.values().all(lasts)
    }

    /// Takes the answers that have come. True if something can be served now.
    pub(crate) fn take_answers(&mut self) -> bool {
        let mut news = false;
        while let Ok((folder, answer)) = self.answers.try_recv() {
            let after = self.since.elapsed();
            match answer {
                Ok(()) => {
                    tracing::info!(?after, "{}: its file system answers", folder.display());
                    self.folders.remove(&folder);
                    news = true;
                }
                Err(refusal) => {
                    let known = self.folders.get(&folder);
                    if known.is_none_or(|known| known.as_ref() != Some(&refusal)) {
                        let error = &refusal.error;
                        tracing::error!(?after, "its shares are not served: {error}");
                    }
                    self.folders.insert(folder, Some(refusal));
                }
            }
        }
        news
    }

    /// A configuration with the shares held back that cannot be served yet.
    pub(crate) fn without(&self, mut config: Config) -> Config {
        let late = |share: &Share| self.folders.contains_key(&share.path);
        let (late, shares) = config.shares.into_iter().partition(late);
        config.shares = shares;
        config.late = late;
        config
    }

    /// For `holdfast status`.
    pub(crate) fn status(&self, config: &Config) -> Value {
        let waited = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let one = |share: &Share| {
            let refusal = self.folders.get(&share.path).cloned().flatten();
            json!({
                "share": share.name,
                "path": share.path,
                "waited_ms": waited,
                "error": refusal.map(|refusal| refusal.error),
            })
        };
        json!(config.late.iter().map(one).collect::<Vec<_>>())
    }
}

/// The folders by where they are mounted as their paths are written, which asks no file system. A
/// link may lead elsewhere: then its answer takes longer, or others wait for it.
fn by_mount<'a>(folders: impl Iterator<Item = &'a PathBuf>) -> Vec<Vec<PathBuf>> {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mounts = super::mounts(&table, "");
    let mut groups: BTreeMap<Option<&PathBuf>, Vec<PathBuf>> = BTreeMap::new();
    for folder in folders {
        let above = mounts.iter().filter(|mount| folder.starts_with(mount));
        let mount = above.max_by_key(|mount| mount.as_os_str().len());
        groups.entry(mount).or_default().push(folder.clone());
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    let beyond = groups.split_off(groups.len().min(ASKING_MAX));
    if let Some(last) = groups.last_mut() {
        last.extend(beyond.into_iter().flatten());
    }
    groups
}

/// Waits for the file systems of a folder.
fn answer(folder: &Path, sync: bool, syncs: &Syncs) -> Answer {
    if !sync {
        // Who opens it finds out what is wrong with it.
        let _ = fs::metadata(folder);
        return Ok(());
    }
    let refused = |error: io::Error| Refusal {
        error: named(folder, error).to_string(),
        lasts: false,
    };
    let below = mounts_below(folder).map_err(refused)?;
    for folder in std::iter::once(folder).chain(below.iter().map(PathBuf::as_path)) {
        let device = fs::metadata(folder).map_err(refused)?.dev();
        let mut all = syncs.lock().unwrap_or_else(PoisonError::into_inner);
        let once = Arc::clone(all.entry(device).or_default());
        drop(all);
        // Who comes second waits for the first.
        let synced = once.get_or_init(|| sync_file_system(folder).map_err(|e| e.to_string()));
        synced
            .clone()
            .map_err(|error| Refusal { error, lasts: true })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config, loop_mount::LoopMount};

    fn config_of(folders: &[&Path]) -> Config {
        let mut text = "[server]\nstate_dir = \"/no/such/state\"\n".to_owned();
        for (number, folder) in folders.iter().enumerate() {
            text += &format!("[[share]]\nname = \"s{number}\"\npath = {folder:?}\n");
        }
        config::parse(&text, Path::new("test.toml")).unwrap()
    }

    /// Asks for what `new` brings and waits.
    fn reload(late: &mut Late, old: &Config, new: &Config) -> Result<Vec<PathBuf>, String> {
        let asked = late.ask_new(old, new).unwrap();
        for _ in 0..1000 {
            late.take_answers();
            if late.have_answered(&asked)? {
                return Ok(asked);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("no answer");
    }

    #[test]
    fn a_folder_that_a_reload_brings_is_synced_before_it_is_served() {
        let served = tempfile::tempdir().unwrap();
        let old = config_of(&[served.path()]);
        let gone = served.path().join("gone");
        fs::create_dir(&gone).unwrap();
        let broken = config_of(&[served.path(), &gone]);
        fs::remove_dir(&gone).unwrap();
        for unclean in [true, false] {
            let mut late = Late::ask(&[served.path()], unclean, ANSWER_MAX).unwrap();
            assert!(late.is_empty());
            assert_eq!(reload(&mut late, &old, &old), Ok(Vec::new()));
            let refused = reload(&mut late, &old, &broken);
            assert_eq!(refused.is_err(), unclean, "else opening it says so");
            assert!(late.is_empty());
            assert_eq!(late.without(broken.clone()).late.len(), 0);
            let Some(mount) = LoopMount::new("ext4", 32) else {
                continue;
            };
            fs::write(mount.path().join("f"), [1; 4096]).unwrap();
            let before = mount.flushes();
            let new = config_of(&[served.path(), mount.path()]);
            let asked = late.ask_new(&old, &new).unwrap();
            assert_eq!(asked.len(), usize::from(unclean));
            let held_back = late.without(new.clone()).late.len();
            assert_eq!(held_back, asked.len(), "not before it has answered");
            reload(&mut late, &old, &new).unwrap();
            for _ in 0..1000 {
                late.take_answers();
                if late.is_empty() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            assert!(late.is_empty());
            assert_eq!(mount.flushes() > before, unclean);
            // Its file system has been synced: another folder of it waits for nothing.
            let other = mount.path().join("other");
            fs::create_dir(&other).unwrap();
            let new = config_of(&[served.path(), mount.path(), &other]);
            let before = mount.flushes();
            reload(&mut late, &old, &new).unwrap();
            assert_eq!(mount.flushes(), before);
        }
    }
}
