//! One round: a new file system, the server on it, the clients; then the cuts.

use std::path::{Path, PathBuf};
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crate::block_log::BlockLog;
use durability::Policy;

use crate::image::{Kept, Replayer};
use crate::judge::{Cut, Judge, Verdict};
use crate::oracle::Oracle;
use crate::record::{Gauge, History, Recorder};
use crate::rng::Rng;
use crate::server::{Peer, Server, Timeliness};
use crate::stack::{Bench, Checked, DEVICE_BYTES, FileSystem, Stack, run};
use crate::view::{self, View};
use crate::workload::{self, Plan, World};

/// How often the gauges are read, with nothing under way.
const GAUGE_EVERY: Duration = Duration::from_millis(20);

/// In every other round, chance in a hundred that the file system is asked to write back.
const WRITE_BACK: usize = 5;
/// After the clients, before the server is asked what it counted.
const SETTLE: Duration = Duration::from_millis(200);

/// The settings of a round.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    pub(crate) fs: FileSystem,
    pub(crate) peer: Peer,
    pub(crate) policy: String,
    /// A FLUSH covers times.
    pub(crate) flush_times: bool,
    pub(crate) plan: Plan,
    pub(crate) cuts: usize,
    /// Images that are also read through a server.
    pub(crate) served: usize,
    /// Every so many images the simulator's oracle is asked too.
    pub(crate) oracle_every: usize,
    /// Where images go on which something promised is lost.
    pub(crate) keep: Option<PathBuf>,
}

/// The record of a round.
pub(crate) struct Recorded {
    pub(crate) log: BlockLog,
    pub(crate) history: History,
    /// Entries of the log before the clients began, and when they had ended.
    pub(crate) begin: usize,
    pub(crate) end: usize,
    /// The server's counters about its bound.
    pub(crate) timeliness: Timeliness,
    /// The share after the server had been killed while the host lived on.
    pub(crate) left: View,
}

impl Recorded {
    /// Cache flushes of the device while the clients worked.
    pub(crate) fn flushes(&self) -> usize {
        let entries = &self.log.entries()[self.begin..self.end];
        entries.iter().filter(|entry| entry.is_flush()).count()
    }
}

/// A cut, the image it left, and what that lacks.
pub(crate) struct Outcome {
    pub(crate) cut: Cut,
    pub(crate) kept: Kept,
    pub(crate) gauge: Option<Gauge>,
    /// Read through a server, not from the file system.
    pub(crate) served: bool,
    pub(crate) verdict: Verdict,
    /// The rules that are broken according to the simulator's oracle, where it was asked: those of the
    /// policy, and those of `honor`.
    pub(crate) opinion: Option<(Vec<String>, Vec<String>)>,
}

/// Lets the clients work on a new file system.
pub(crate) fn record(task: &Task, dir: &Path) -> Result<Recorded, String> {
    let mut stack = Stack::up(task.fs, dir)?;
    let mut server = Server::start(task, &stack.root(), &dir.join("server"))?;
    let recorder = Recorder::new(stack.log()?);
    let (pace, stop) = (RwLock::new(()), AtomicBool::new(false));
    let root = stack.root();
    let world = World {
        plan: task.plan,
        root: &root,
        recorder: &recorder,
        pace: &pace,
        stop: &stop,
    };
    let begin = recorder.logged().1;
    workload::prepare(&world, &server.tree()?).map_err(|error| format!("to begin: {error}"))?;
    let trees = (0..task.plan.clients).map(|_| server.tree());
    let trees = trees.collect::<Result<Vec<_>, _>>()?;
    let gauges = server.gauges();
    let working = AtomicUsize::new(trees.len());
    let outcome = std::thread::scope(|scope| {
        let clients: Vec<_> = trees
            .iter()
            .enumerate()
            .map(|(number, tree)| {
                let (world, working) = (&world, &working);
                scope.spawn(move || {
                    let outcome = workload::run(world, tree, number);
                    working.fetch_sub(1, Relaxed);
                    outcome
                })
            })
            .collect();
        let mut gauges = gauges;
        let mut rng = Rng::new(task.plan.seed, 9);
        while working.load(Relaxed) > 0 {
            std::thread::sleep(GAUGE_EVERY);
            if task.plan.seed.is_multiple_of(2) && rng.percent(WRITE_BACK) {
                write_back(&root);
            }
            let Some(gauges) = gauges.as_mut() else {
                recorder.sample(|| None);
                continue;
            };
            // Nothing may be under way while the gauge is read.
            let _all = pace.write();
            recorder.sample(|| gauges.read());
        }
        clients
            .into_iter()
            .map(|client| client.join().unwrap_or(Err("a client panicked".to_owned())))
            .collect::<Result<Vec<()>, _>>()
    });
    let end = recorder.logged().1;
    // A change that is late now is counted when its sync ends.
    std::thread::sleep(SETTLE);
    let timeliness = server.timeliness().unwrap_or_default();
    if !server.is_running() {
        return Err("the server ended by itself".to_owned());
    }
    drop(trees);
    drop(server);
    outcome?;
    let left = view::mounted(&root)?;
    stack.down();
    let (log, history) = recorder.finish();
    Ok(Recorded {
        log,
        history,
        begin,
        end,
        timeliness,
        left,
    })
}

/// The kernel writes back what nobody asked it to: then images hold what is not promised, in part.
fn write_back(root: &Path) {
    if let Ok(folder) = std::fs::File::open(root) {
        let _ = rustix::fs::syncfs(&folder);
    }
}

/// A cut to be made.
struct Planned {
    cut: Cut,
    kept: Kept,
    gauge: Option<Gauge>,
}

/// Which cuts to make, ascending.
fn plan_cuts(recorded: &Recorded, task: &Task) -> Vec<Planned> {
    let history = &recorded.history;
    let operations = history.operations.iter();
    let mut moments: Vec<_> = operations
        .flat_map(|operation| std::iter::once(operation.issued).chain(operation.acknowledged))
        .chain(history.samples.iter().map(|(moment, _)| *moment))
        .collect();
    moments.sort_by_key(|moment| moment.order);
    let cut = |entry: usize| {
        let seen = moments.partition_point(|moment| moment.log <= entry);
        let last = seen.checked_sub(1).map(|last| moments[last]);
        Cut {
            entry,
            order: last.map_or(0, |last| last.order),
            at: last.map_or(Duration::ZERO, |last| last.at),
        }
    };
    let mut rng = Rng::new(task.plan.seed, 7);
    let mut plan = Vec::new();
    let span = recorded.end - recorded.begin;
    let told: Vec<_> = history
        .samples
        .iter()
        .filter(|(_, gauge)| gauge.is_some())
        .collect();
    // Where losses are expected the gauge is what is tested.
    let lax = task.policy == "treat-host-as-stable-storage";
    let told_chance = if told.is_empty() {
        0
    } else {
        12 + 50 * usize::from(lax)
    };
    while plan.len() < task.cuts {
        let entry = recorded.begin + rng.below(span + 1);
        let some = Kept::Some(rng.next());
        let (cut, kept, gauge) = if rng.percent(told_chance) {
            let (moment, gauge) = told[rng.below(told.len())];
            let cut = Cut {
                entry: moment.log,
                order: moment.order,
                at: moment.at,
            };
            (cut, if rng.percent(70) { Kept::Min } else { some }, *gauge)
        } else {
            match plan.len() % 8 {
                // The worst moment: as late as may be without another flush.
                0..3 => {
                    let entry = recorded.log.next_flush(entry).min(recorded.end);
                    (cut(entry), Kept::Min, None)
                }
                3 => (cut(entry), Kept::Max, None),
                _ => (cut(entry), some, None),
            }
        };
        plan.push(Planned { cut, kept, gauge });
    }
    plan.sort_by_key(|planned| planned.cut.entry);
    plan
}

/// Judges what the death of the process left, then makes the cuts of a round and judges what they
/// leave.
pub(crate) fn judge(
    task: &Task,
    recorded: &Recorded,
    dir: &Path,
    died: impl FnOnce(&Judge<'_>, Verdict),
    mut each: impl FnMut(&Judge<'_>, Result<Outcome, String>),
) -> Result<(), String> {
    let judge = Judge::new(&recorded.history, task.flush_times);
    let end = Cut {
        entry: recorded.end,
        order: u64::MAX,
        at: Duration::MAX,
    };
    died(&judge, judge.judge(&recorded.left, end));
    let policy: Option<Policy> = task.policy.parse().ok();
    let oracle = Oracle::new(&recorded.history, task.flush_times);
    let keeps_up = recorded.timeliness.exceeded == 0;
    let bench = Bench::new(task.fs, dir)?;
    let base = dir.join("base");
    let mut replayer = Replayer::new(&recorded.log, &base, DEVICE_BYTES, task.fs.untorn());
    let plan = plan_cuts(recorded, task);
    let every = plan.len() / task.served.max(1);
    for (number, planned) in plan.iter().enumerate() {
        replayer.make(planned.cut.entry, planned.kept, bench.image());
        let asked = number % task.oracle_every.max(1) == 0;
        let outcome = |view: View, served| Outcome {
            cut: planned.cut,
            kept: planned.kept,
            gauge: planned.gauge,
            served,
            verdict: judge.judge(&view, planned.cut),
            opinion: (asked && !served).then(|| {
                let by = |policy| oracle.check(&view, planned.cut, planned.gauge, policy, keeps_up);
                let told = policy.map(by).unwrap_or_default();
                // The gauge is no promise of `honor`'s.
                let honor = Policy::Honor;
                let honor = oracle.check(&view, planned.cut, None, honor, keeps_up);
                (told, honor)
            }),
        };
        let mounted = match bench.mount() {
            Ok(mounted) => mounted,
            Err(error) => {
                each(&judge, Err(format!("{}: {error}", planned.kept.name())));
                continue;
            }
        };
        let view = view::mounted(mounted.root());
        let plain = view.map(|view| outcome(view, false));
        let lost = |outcome: &Outcome| {
            let told = outcome.opinion.as_ref();
            let told = told.is_some_and(|(told, _)| !told.is_empty());
            told || !outcome.verdict.promised.is_empty()
        };
        let kept = plain.as_ref().is_ok_and(lost).then_some(task.keep.as_ref());
        each(&judge, plain);
        if task.served > 0 && number % every.max(1) == every / 2 {
            let view = serve(task, &mounted, &dir.join(format!("again-{number}")));
            each(&judge, view.map(|view| outcome(view, true)));
        }
        if let Some(into) = kept.flatten() {
            // As it was before it was mounted.
            drop(mounted);
            replayer.make(planned.cut.entry, planned.kept, bench.image());
            keep(task, planned, &dir.join("image"), into)?;
        }
    }
    Ok(())
}

/// Copies an image.
fn keep(task: &Task, planned: &Planned, image: &Path, into: &Path) -> Result<(), String> {
    std::fs::create_dir_all(into).map_err(|error| error.to_string())?;
    let (fs, seed) = (task.fs.name(), task.plan.seed);
    let (entry, kept) = (planned.cut.entry, planned.kept.name());
    let to = into.join(format!("{fs}-{seed}-{entry}-{kept}"));
    let to = to.to_string_lossy();
    run("cp", &["--sparse=always", &image.to_string_lossy(), &to]).map(drop)
}

/// Starts a server on what is left, and reads through it.
fn serve(task: &Task, image: &Checked, dir: &Path) -> Result<View, String> {
    let server = Server::start(task, image.root(), dir)?;
    view::served(&server.tree()?)
}
