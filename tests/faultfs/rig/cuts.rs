//! The plug pulled under the real server, again and again.
//!
//! A case: an empty disk, a server, three clients that do as they please, and at some call of the
//! file system the power goes. The server meets a dead disk, is killed, and starts again on what
//! was left; everything acknowledged to clients must be there, by the simulator's oracle. Other
//! cases only kill the server, with the disk and the kernel's memory alive.
//!
//! A case follows from its seed but for the threads' order. `FAULTFS_SEED=N FAULTFS_CASES=1` runs
//! one.

use std::{
    collections::BTreeMap,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use durability::{Bound, Policy};
use smb_sim::SimRng;
use smb_sim::oracle::{Crash, Cut, Object, Request, Rule, Terms, Violation, check};

use crate::{
    Rig,
    player::{Directories, Known, Player},
    recorder::Recorder,
    view::view,
};

const CLIENTS: usize = 3;
const STEPS: usize = 60;
/// Longest time from one client's first step to the cut.
const PATIENCE: Duration = Duration::from_secs(20);

struct Setting {
    /// As in the configuration.
    text: &'static str,
    policy: Policy,
    profiles: &'static [&'static str],
}

/// The outcome of a case.
struct Outcome {
    violations: Vec<Violation>,
    /// Whether something was lost that `honor` would have had to keep.
    lost: bool,
}

impl Outcome {
    fn breaks_only_the_bound(&self) -> bool {
        let mut broken = self.violations.iter().map(|violation| violation.rule);
        !self.violations.is_empty() && broken.all(|rule| rule == Rule::Bound)
    }
}

fn environment(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn io_of(seed: u64) -> &'static str {
    if seed.is_multiple_of(2) {
        "auto"
    } else {
        "threads"
    }
}

/// Two directories, one in the other. That a file in them is flushed is all that keeps them.
fn prologue(rig: &Rig, recorder: &Recorder) -> Directories {
    let tree = rig.server.tree();
    let mut directories: Directories = vec![("", Object::ROOT)];
    for (path, above, name) in [("d", 0, "d"), ("d\\e", 1, "e")] {
        let object = recorder.object();
        tree.mkdir(path).unwrap();
        let parent = directories[above].1;
        let made = Request::create(parent, name, object);
        recorder.lock().happened(recorder.now(), made);
        directories.push((path, object));
    }
    directories
}

/// Lets the clients loose. The threads end when the server is gone.
fn start_clients(
    rig: &Rig,
    recorder: &Recorder,
    directories: &Directories,
    seed: u64,
) -> Vec<thread::JoinHandle<()>> {
    let known: Known = Arc::default();
    let players: Vec<Player> = (0..CLIENTS)
        .map(|number| Player {
            number,
            tree: rig.server.tree_of(number % 2),
            recorder: recorder.clone(),
            directories: directories.clone(),
            known: Arc::clone(&known),
            rng: SimRng::new(seed ^ (number as u64) << 32),
        })
        .collect();
    let play = |player: Player| thread::spawn(move || player.play(STEPS));
    players.into_iter().map(play).collect()
}

/// Waits until the rule has hit or all clients are done. The time of the last look before it had.
fn await_cut(
    rig: &mut Rig,
    rule: &str,
    recorder: &Recorder,
    clients: &[thread::JoinHandle<()>],
) -> Duration {
    let end = Instant::now() + PATIENCE;
    loop {
        let now = recorder.now();
        if rig.mount.hits(rule) > 0 {
            return now;
        }
        if clients.iter().all(thread::JoinHandle::is_finished) {
            return now;
        }
        assert!(
            Instant::now() < end,
            "the clients hang: {}",
            rig.mount.trace()
        );
        thread::sleep(Duration::from_micros(500));
    }
}

fn one_case(rig: &mut Rig, setting: &Setting, crash: Crash, seed: u64) -> Outcome {
    let mut rng = SimRng::new(seed);
    let profile = setting.profiles[rng.below(setting.profiles.len() as u64) as usize];
    rig.mount.send(&format!("reset {seed} {profile}"));
    rig.server.forget();
    rig.server
        .set(&format!("file_io = \"{}\"", io_of(seed)), setting.text);
    rig.server.start();
    let recorder = Recorder::new();
    let directories = prologue(rig, &recorder);
    if rng.below(2) == 0 {
        rig.mount.send("off-mode hang");
    }
    // The clients are there before anything can happen to them.
    let clients = start_clients(rig, &recorder, &directories, seed);
    let nth = 1 + rng.below(220);
    let action = match (crash, rng.below(3)) {
        (Crash::Process, _) => "delay:0".to_owned(), // Only counted.
        (Crash::Power, 0) => format!("cut-after:{seed}"),
        (Crash::Power, 1) => "cut:nothing".to_owned(),
        (Crash::Power, _) => format!("cut:{seed}"),
    };
    let kinds = ["change,sync", "sync"][rng.below(2) as usize];
    let rule = rig.mount.send(&format!("rule {kinds} * {nth} 1 {action}"));
    if rng.below(3) == 0 {
        rig.mount.send("rule sync * 1 0 delay:2");
    }
    let honest = matches!(setting.policy, Policy::Honor | Policy::StrictSync);
    // Not by default: such a case says nothing about renames.
    let fails = honest && rng.below(5) == 0 && environment("FAULTFS_ERRORS").is_some();
    if fails {
        let nth = 1 + rng.below(30);
        rig.mount.send(&format!("rule sync * {nth} 1 EIO"));
    }
    let at = await_cut(rig, &rule, &recorder, &clients);
    thread::sleep(Duration::from_millis(rng.below(4)));
    // Whether the cut keeps nothing that was not synced.
    let mut bare = action == "cut:nothing";
    if crash == Crash::Power && rig.mount.hits(&rule) == 0 {
        rig.mount.send(&format!("cut {seed}"));
        bare = false;
    }
    rig.server.signal_kill();
    // Later calls fail; otherwise the kernel would wait for them before it ends the process.
    rig.mount.send("off-mode error");
    rig.mount.send("release fail");
    rig.server.reap();
    rig.mount.send("clear");
    for client in clients {
        client.join().unwrap();
    }
    if crash == Crash::Power {
        rig.mount.send("thaw");
    }
    // The oracle does not know of the syncs that failed here.
    let renames_synced = !fails && (bare || profile != "posix-min");
    judge(rig, setting, (crash, at), renames_synced, &recorder)
}

fn judge(
    rig: &mut Rig,
    setting: &Setting,
    (crash, at): (Crash, Duration),
    renames_synced: bool,
    recorder: &Recorder,
) -> Outcome {
    rig.server.start();
    let found = view(&rig.server.tree());
    rig.server.assert_sound_so_far();
    rig.server.kill();
    if environment("FAULTFS_TRACE").is_some() {
        eprintln!("{:#?}\n{}", recorder.lock(), rig.mount.trace());
    }
    let history = recorder.lock();
    let terms = |policy| Terms {
        renames_synced,
        ..Terms::new(policy, Cut::after(&history, crash, at))
    };
    Outcome {
        violations: check(&history, &found, &terms(setting.policy)),
        lost: !check(&history, &found, &terms(Policy::Honor)).is_empty(),
    }
}

/// Runs cases; how many lost something that `honor` keeps.
fn cases(setting: &Setting, crash: Crash, usual: u64) -> Option<u64> {
    let mut rig = Rig::new("", "")?;
    let count = environment("FAULTFS_CASES").unwrap_or(usual);
    let first = environment("FAULTFS_SEED").unwrap_or(1);
    let begun = Instant::now();
    let (mut lost, mut wrong) = (0, BTreeMap::new());
    for seed in first..first + count {
        let mut outcome = one_case(&mut rig, setting, crash, seed);
        // On a busy machine the server's own sync can be late. A defect breaks the bound each time.
        for _ in 0..2 {
            if !outcome.breaks_only_the_bound() {
                break;
            }
            outcome = one_case(&mut rig, setting, crash, seed);
        }
        lost += u64::from(outcome.lost);
        if !outcome.violations.is_empty() {
            wrong.insert(seed, outcome.violations);
        }
    }
    rig.server.assert_sound();
    let per_minute = count as f64 * 60.0 / begun.elapsed().as_secs_f64();
    println!(
        "{}, {crash:?}: {count} cases, {per_minute:.0} a minute, {} broken, {lost} with losses that honor excludes",
        setting.text.trim(),
        wrong.len(),
    );
    let told: Vec<String> = wrong
        .iter()
        .map(|(seed, violations)| {
            let lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
            format!("seed {seed}:\n  {}", lines.join("\n  "))
        })
        .collect();
    assert!(told.is_empty(), "{}", told.join("\n"));
    Some(lost)
}

const ALL: &[&str] = &["posix-min", "posix-min", "journal", "log-tree"];
const HONOR: Setting = Setting {
    text: "durability = \"honor\"",
    policy: Policy::Honor,
    profiles: ALL,
};
const STRICT: Setting = Setting {
    text: "durability = \"strict-sync\"",
    policy: Policy::StrictSync,
    profiles: ALL,
};
const HOST: Setting = Setting {
    text: "durability = \"treat-host-as-stable-storage\"\naccept_loss = true",
    policy: Policy::TreatHostAsStableStorage,
    profiles: ALL,
};

#[test]
fn honor_loses_nothing_that_was_flushed() {
    cases(&HONOR, Crash::Power, 60);
}

#[test]
fn strict_sync_loses_nothing_that_was_answered() {
    cases(&STRICT, Crash::Power, 40);
}

#[test]
fn a_bound_holds() {
    let bound = Bound::new(Duration::from_millis(100), 64 << 10).unwrap();
    let setting = Setting {
        text: "durability = \"bounded:100ms,64KiB\"",
        policy: Policy::Bounded(bound),
        profiles: ALL,
    };
    cases(&setting, Crash::Power, 20);
}

#[test]
fn the_host_as_stable_storage_loses_with_the_host() {
    if let Some(lost) = cases(&HOST, Crash::Power, 20) {
        assert!(lost > 0, "a rig that sees no loss where there must be one");
    }
}

#[test]
fn no_policy_loses_anything_with_the_process() {
    for setting in [&HONOR, &STRICT, &HOST] {
        cases(setting, Crash::Process, 12);
    }
}
