//! Shares that are held back at the start, with syncs that fail on request.

use std::{
    fs::{self, File},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use super::*;
use crate::Error;
use crate::{config, host::loop_mount::LoopMount};

/// A `Late` with its own state folder.
fn ask(folders: &[&Path], unclean: bool) -> Late {
    let state = tempfile::tempdir().unwrap();
    let lost = Arc::new(Lost::open(state.path()).unwrap());
    Late::ask(folders, unclean, lost, ANSWER_MAX).unwrap()
}

fn config_of(folders: &[&Path]) -> Config {
    let mut text = "[server]\nstate_dir = \"/no/such/state\"\n".to_owned();
    for (number, folder) in folders.iter().enumerate() {
        text += &format!("[[share]]\nname = \"s{number}\"\npath = {folder:?}\n");
    }
    config::parse(&text, Path::new("test.toml")).unwrap()
}

/// Probes the folders that `new` adds, and waits.
fn reload(late: &Late, old: &Config, new: &Config) -> Result<usize, Error> {
    let asked = late.ask_new(old, new).unwrap();
    for _ in 0..1000 {
        if late.have_answered(&asked)? {
            late.keep_only(&late.without(new.clone()));
            return Ok(asked.brought.len() + asked.again.len());
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
        let late = ask(&[served.path()], unclean);
        assert!(late.is_empty());
        assert_eq!(reload(&late, &old, &old), Ok(0));
        let refused = reload(&late, &old, &broken);
        assert_eq!(refused.is_err(), unclean, "else opening it says so");
        assert!(late.is_empty());
        assert_eq!(late.without(broken.clone()).late.len(), 0);
        let Some(mount) = LoopMount::new("ext4", 32) else {
            continue;
        };
        let file = mount.path().join("f");
        fs::write(&file, [1; 4096]).unwrap();
        if !unclean {
            // The kernel commits by itself what has been dirty for five seconds.
            fs::File::open(&file).unwrap().sync_all().unwrap();
        }
        let before = mount.flushes();
        let new = config_of(&[served.path(), mount.path()]);
        let asked = late.ask_new(&old, &new).unwrap();
        assert_eq!(asked.brought.len(), usize::from(unclean));
        let held_back = late.without(new.clone()).late.len();
        assert_eq!(held_back, asked.brought.len(), "not before it has answered");
        until(&late, |late| late.have_answered(&asked).unwrap());
        assert!(late.is_empty());
        assert_eq!(mount.flushes() > before, unclean);
        // Its file system has been synced: another folder of it need not wait.
        let other = mount.path().join("other");
        fs::create_dir(&other).unwrap();
        let new = config_of(&[served.path(), mount.path(), &other]);
        let before = mount.flushes();
        reload(&late, &old, &new).unwrap();
        assert_eq!(mount.flushes(), before);
    }
}

#[test]
fn a_folder_that_a_reload_brings_waits_from_then_on() {
    let [served, brought] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let mut late = ask(&[served.path()], true);
    late.since = late.since.checked_sub(Duration::from_secs(60)).unwrap();
    let old = config_of(&[served.path()]);
    let new = config_of(&[served.path(), brought.path()]);
    late.ask_new(&old, &new).unwrap();
    let status = late.status(&late.without(new));
    assert!(status[0].waited_ms < 60_000, "{status:?}");
}

fn until(late: &Late, holds: impl Fn(&Late) -> bool) {
    for _ in 0..1000 {
        if holds(late) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("not within 10 s: {late:?}");
}

fn error(late: &Late, config: &Config) -> String {
    let config = late.without(config.clone());
    let error = late.status(&config).swap_remove(0).error;
    error.unwrap_or_default()
}

const EIO: i32 = 5;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;

/// Two shares on two file systems, where the syncs of `bad` return the results of a script.
struct Two {
    good: tempfile::TempDir,
    bad: tempfile::TempDir,
    state: tempfile::TempDir,
    config: Config,
    syncs: Arc<AtomicUsize>,
}

impl Two {
    fn new() -> Self {
        let good = tempfile::tempdir().unwrap();
        let bad = tempfile::tempdir_in("/dev/shm").unwrap();
        let config = config_of(&[good.path(), bad.path()]);
        Self {
            good,
            bad,
            state: tempfile::tempdir().unwrap(),
            config,
            syncs: Arc::default(),
        }
    }

    fn start(&self, script: &[i32]) -> Late {
        let script: Mutex<Vec<i32>> = Mutex::new(script.iter().rev().copied().collect());
        let (bad, syncs) = (self.bad.path().to_owned(), Arc::clone(&self.syncs));
        let sync = move |folder: &Path, _: &File| {
            if folder != bad {
                return Ok(());
            }
            syncs.fetch_add(1, SeqCst);
            let next = script.lock().unwrap().pop();
            next.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
        };
        let lost = Arc::new(Lost::open(self.state.path()).unwrap());
        let folders = [self.good.path(), self.bad.path()];
        Late::ask_by(&folders, Some(Box::new(sync)), lost, ANSWER_MAX).unwrap()
    }
}

/// A sync that fails holds back only its own share, and the error that the kernel reports once is
/// not forgotten after a success.
#[test]
fn a_share_whose_sync_fails_is_held_back_until_it_succeeds() {
    let two = Two::new();
    let late = two.start(&[EIO, ENOSPC]);
    let held_back = late.without(two.config.clone());
    assert_eq!(held_back.shares.len(), 1);
    assert_eq!(held_back.late[0].path, two.bad.path());
    assert!(late.fails(&held_back.late[0]));
    assert!(!late.has_synced_all());
    assert!(error(&late, &two.config).contains("os error 5"));
    let status = &late.status(&held_back)[0];
    assert!(
        status.way_out.as_ref().unwrap().contains("repair"),
        "{status:?}"
    );
    assert!(status.again_in_ms.unwrap() <= 1000, "{status:?}");
    assert!(
        status
            .lost_at_start
            .as_ref()
            .unwrap()
            .contains("may be lost"),
        "{status:?}"
    );
    until(&late, |late| {
        error(late, &two.config).contains("os error 28")
    });
    until(&late, |late| late.has_ready());
    assert_eq!(late.next_ready().as_deref(), Some(two.bad.path()));
    assert!(late.is_empty() && late.has_synced_all());
    assert_eq!(two.syncs.load(SeqCst), 3);
    let lost = late.lost().of(two.bad.path()).unwrap();
    assert!(lost.contains("os error 5"), "the first one: {lost}");
    assert_eq!(late.lost().of(two.good.path()), None);
    // The next server reports it too, until the loss is accepted.
    let next = two.start(&[]);
    assert!(next.is_empty());
    assert!(next.lost().of(two.bad.path()).is_some());
    let accepted = next.lost().accept(Some(&[two.bad.path().to_owned()]));
    accepted.unwrap();
    assert_eq!(two.start(&[]).lost().of(two.bad.path()), None);
}

#[test]
fn a_reload_asks_at_once_what_has_failed_and_is_not_refused_by_it() {
    let two = Two::new();
    let late = two.start(&[EIO; 5]);
    until(&late, |_| two.syncs.load(SeqCst) == 3);
    // Its next turn would come in four seconds.
    let begun = Instant::now();
    let old = late.without(two.config.clone());
    assert_eq!(reload(&late, &old, &two.config), Ok(1));
    assert_eq!(reload(&late, &old, &two.config), Ok(1));
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(two.syncs.load(SeqCst), 5);
    assert!(!late.has_ready());
    reload(&late, &old, &two.config).unwrap();
    assert!(late.has_ready());
}

/// As where no thread could be started when its share could not be taken in.
#[test]
fn a_reload_asks_what_nobody_asks_any_more() {
    let two = Two::new();
    let late = two.start(&[EIO]);
    let bad = two.bad.path();
    late.asking.forget(bad);
    let nobody = Held::refused(Instant::now(), "?".to_owned(), None);
    late.folders().held.insert(bad.to_owned(), nobody);
    let old = late.without(two.config.clone());
    assert_eq!(late.status(&old)[0].again_in_ms, None);
    assert_eq!(reload(&late, &old, &two.config), Ok(1));
    assert!(late.has_ready());
}

/// Nothing can be written to a read-only file system, so nothing there is dirty.
#[test]
fn a_share_that_became_read_only_is_served() {
    let two = Two::new();
    let late = two.start(&[EROFS, EIO]);
    assert!(late.is_empty() && late.has_synced_all());
    assert_eq!(two.syncs.load(SeqCst), 1);
    // Data that were not written before it became read-only are lost.
    assert!(
        late.lost()
            .of(two.bad.path())
            .unwrap()
            .contains("os error 30")
    );
}

#[test]
fn a_share_that_a_reload_takes_away_is_asked_no_more_and_stays_unsynced() {
    let two = Two::new();
    let late = two.start(&[EIO; 100]);
    let old = late.without(two.config.clone());
    let new = config_of(&[two.good.path()]);
    assert_eq!(reload(&late, &old, &new), Ok(0));
    assert!(late.is_empty());
    assert!(!late.has_synced_all(), "the mark stays for the next start");
    // A sync that had begun by then ends.
    std::thread::sleep(Duration::from_millis(300));
    let before = two.syncs.load(SeqCst);
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(two.syncs.load(SeqCst), before);
}

/// If a disk that failed is unmounted, the empty folder below it is not served as the share.
#[test]
fn what_lies_below_a_mount_that_has_gone_is_not_served() {
    let Some(mount) = LoopMount::new("ext4", 32) else {
        return;
    };
    let state = tempfile::tempdir().unwrap();
    let link = state.path().join("link");
    std::os::unix::fs::symlink(mount.path(), &link).unwrap();
    let folders = [mount.path(), &link];
    let config = config_of(&folders);
    let sync = |_: &Path, _: &File| Err(io::Error::from_raw_os_error(EIO));
    let lost = Arc::new(Lost::open(state.path()).unwrap());
    let late = Late::ask_by(&folders, Some(Box::new(sync)), lost, ANSWER_MAX).unwrap();
    mount.unmount();
    let gone = |late: &Late| {
        let held_back = late.without(config.clone());
        let status = late.status(&held_back);
        let errors = status.iter().flat_map(|late| &late.error);
        let gone = errors.filter(|error| error.contains("nothing is mounted at"));
        gone.count() == 2
    };
    until(&late, gone);
}

#[test]
fn a_folder_that_is_not_there_ends_the_start() {
    let two = Two::new();
    let gone = two.good.path().join("gone");
    let lost = Arc::new(Lost::open(two.state.path()).unwrap());
    let refused = Late::ask(&[&gone], true, Arc::clone(&lost), ANSWER_MAX);
    assert!(refused.unwrap_err().to_string().contains("gone"));
    // After an orderly end, opening the share reports it.
    assert!(
        Late::ask(&[&gone], false, lost, ANSWER_MAX)
            .unwrap()
            .is_empty()
    );
}
