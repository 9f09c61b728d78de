//! Runs a plan, and has the oracle judge the result.

use std::{
    cell::Cell,
    future::poll_fn,
    rc::Rc,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed},
    },
    task::{Poll, Waker},
    time::Duration,
};

use smb_client::{Encryption, Options, Signing};
use smb_wire::msg::Dialect;
use vfs::{
    Env,
    sim::{self, FaultAction, Profile, SimDisk, SimHook, SimOp, SyncKind, SyncSeen},
};

use super::{
    actor::{Actor, race},
    fault::{Fault, Neglect},
    ledger,
    look::look as read_all,
    plan::{Crash, End, Mischief, Pace, Plan, Speech, Trouble},
    shares::make_folder,
    step::{Kind, Step},
    tally::Tally,
    world::{HOME, World, history},
};
use crate::{
    executor::{Sim, SimEnv},
    oracle::{self, Cut, Exposed, History, Object, Rule, Terms, View, Violation},
    server::{MemoryOptions, SECOND, SHARE, SimServer, latches, memory_disk},
};

const ROOT_INDEX: u64 = 2;
/// Stands for inodes that no client has seen.
const UNKNOWN: Object = Object(u64::MAX);
/// Longest a case may take on its own clock.
const CASE_MAX: Duration = Duration::from_secs(1200);
/// Time that a latch needs to be stored.
const STORED: Duration = Duration::from_millis(20);
/// Longest that a new server may take until everything was looked at.
const LOOK_MAX: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Default)]
pub struct Outcome {
    pub violations: Vec<Violation>,
    pub tally: Tally,
    /// Calls of the disk until the end.
    pub calls: u32,
    /// The requests of the clients, and the answers they got.
    pub history: History,
}

#[must_use]
pub fn run(plan: &Plan) -> Outcome {
    Case::new(plan).play()
}

/// Plays a plan on a server that has this fault.
#[must_use]
pub fn run_planted(plan: &Plan, fault: Option<Fault>) -> Outcome {
    let mut case = Case::new(plan);
    case.options.planted = fault;
    case.play()
}

/// The end of a life, as a future.
#[derive(Default)]
struct Bell {
    rung: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Bell {
    fn ring(&self) {
        self.rung.store(true, Relaxed);
        let waker = self
            .waker
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    async fn rings(&self) {
        poll_fn(|cx| {
            if self.rung.load(Relaxed) {
                return Poll::Ready(());
            }
            *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

struct Case<'a> {
    plan: &'a Plan,
    sim: Sim,
    env: Arc<SimEnv>,
    options: MemoryOptions,
    history: Arc<Mutex<History>>,
    world: Rc<World>,
    calls: Arc<AtomicU32>,
    syncs: Arc<AtomicUsize>,
    bell: Arc<Bell>,
    failed_syncs: Arc<AtomicUsize>,
}

impl<'a> Case<'a> {
    fn new(plan: &'a Plan) -> Self {
        let sim = Sim::new(plan.seed);
        let env = sim.env();
        let shared = Arc::new(Mutex::new(History::new()));
        history(&shared).identify(Object::ROOT, ROOT_INDEX);
        let options = MemoryOptions {
            policy: plan.policy,
            second: plan.second,
            clones: (plan.steps.iter()).any(|step| step.kind() == Kind::Duplicate),
            profile: plan.profile,
            signing_required: false,
            capacity_blocks: 1 << 14,
            depot: plan.depot,
            rules: Arc::new(ledger::rules(plan)),
            durable_acl: plan.durable_acl,
            flush_times: plan.flush_times,
            ignore_full_sync: plan.ignore_full_sync,
            ..MemoryOptions::default()
        };
        Self {
            plan,
            sim,
            world: World::new(plan, Arc::clone(&env), Arc::clone(&shared)),
            env,
            options,
            history: shared,
            calls: Arc::default(),
            syncs: Arc::default(),
            bell: Arc::default(),
            failed_syncs: Arc::default(),
        }
    }

    fn play(mut self) -> Outcome {
        let env: Arc<dyn Env> = self.env.clone();
        let mut disk = memory_disk(&env, self.plan.seed, &self.options);
        if self.plan.nested {
            self.fold(&disk);
        }
        if self.plan.stores {
            self.options.state = Some(memory_disk(&env, self.plan.seed ^ 1, &self.options));
        }
        let mut violations = Vec::new();
        let lives: Vec<&[Step]> = self
            .plan
            .steps
            .split(|step| step.kind() == Kind::Kill)
            .collect();
        let mut exposure = Vec::new();
        for (number, steps) in lives.iter().enumerate() {
            let server = match SimServer::plain(&mut self.sim, disk.clone(), &self.options) {
                Ok(server) => Rc::new(server),
                Err(stuck) => {
                    violations.push(Violation::new(
                        Rule::Recovery,
                        format!("the server does not start: {stuck}"),
                    ));
                    break;
                }
            };
            self.arm(&disk, number == 0);
            let cut = self.live(&server, steps);
            let last = cut || number + 1 == lives.len();
            if !last {
                self.settle();
            }
            // A failure before a restart that nobody saw cannot be known.
            let known = number == 0 || !self.plan.is_faulty();
            exposure = self.exposure(&server);
            exposure.retain(|_| known);
            disk.set_hook(None);
            self.world.beliefs.borrow_mut().doubt_locked();
            self.sim.kill();
            drop(server);
            if last {
                break;
            }
            // The process dies, the kernel lives; the daemon's first deed is to sync.
            self.options.state = self.options.state.as_ref().map(SimDisk::crash_process);
            self.options.policy = self.world.ledger.borrow().policy(false);
            if let Some(second) = &mut self.options.second {
                *second = self.world.ledger.borrow().policy(true);
            }
            self.world.ledger.borrow_mut().clear();
            disk.observe_syncs(None);
            disk = disk.crash_process();
            if self.options.planted != Some(Fault::Start(Neglect::NoSyncAtStart)) {
                disk.sync_all();
            }
            self.bury();
            match self.look(&disk, false) {
                Ok(view) => violations.extend(self.judge(&view, oracle::Crash::Process, vec![])),
                Err(text) => violations.push(Violation::new(Rule::Recovery, text)),
            }
        }
        self.end(&disk, exposure, violations)
    }

    /// Makes the folder of the second share, of which the clients know.
    fn fold(&mut self, disk: &SimDisk) {
        let made = self.sim.run(make_folder(disk));
        self.options.folder = made.ok().and_then(Result::ok);
        let object = self.world.beliefs.borrow().dir(HOME);
        if let (Some(object), Some(index)) = (object, self.options.folder) {
            history(&self.history).identify(object, index);
        }
    }

    /// The disk after the end, looked at and judged.
    fn end(
        mut self,
        disk: &SimDisk,
        exposure: Vec<Exposed>,
        mut violations: Vec<Violation>,
    ) -> Outcome {
        disk.observe_syncs(None);
        disk.clear_faults();
        if let Err(text) = self.look_at_stores() {
            violations.push(Violation::new(Rule::Recovery, text));
        }
        let (left, crash) = match self.plan.crash {
            Crash::Power(cut) => (disk.cut(cut), oracle::Crash::Power),
            Crash::Process => {
                let left = disk.crash_process();
                left.sync_all();
                (left, oracle::Crash::Process)
            }
        };
        left.set_read_only(false);
        let at = self.env.monotonic();
        let mut lossy = false;
        match self.look(&left, self.plan.seed.is_multiple_of(4)) {
            Ok(view) => {
                violations.extend(self.judge_at(&view, crash, exposure, at));
                let history = history(&self.history);
                let cut = Cut::after(&history, crash, at);
                lossy = !oracle::loss(&history, &view, &cut, at).inodes.is_empty();
            }
            Err(text) => violations.push(Violation::new(Rule::Recovery, text)),
        }
        let odd = self.world.odd.take();
        violations.extend(
            odd.into_iter()
                .map(|text| Violation::new(Rule::Recovery, text)),
        );
        let history = history(&self.history).clone();
        Outcome {
            violations,
            calls: self.calls.load(Relaxed),
            tally: Tally {
                cases: 1,
                promises: history.promises(),
                lossy: u64::from(lossy),
                meetings: history.meetings(),
                failed_syncs: self.failed_syncs.load(Relaxed) as u64,
                ..self.world.counts.take()
            },
            history,
        }
    }

    /// A failure that was reported to nobody cannot be known if the process dies a moment later, before its latch
    /// is stored: so it dies after that moment.
    fn settle(&mut self) {
        // Each trouble strikes once, so there are few.
        for _ in 0..8 {
            let failed = history(&self.history).last_failure();
            let Some(left) = failed
                .and_then(|at| (at + STORED).checked_sub(self.env.monotonic()))
                .filter(|left| !left.is_zero())
            else {
                return;
            };
            let env = Arc::clone(&self.env);
            // Nothing else to wait for than this timer.
            let _ = self.sim.run(env.sleep(left));
        }
    }

    /// Plays the steps of one life; whether the end came.
    fn live(&mut self, server: &Rc<SimServer>, steps: &[Step]) -> bool {
        let clients = self.plan.clients;
        let mut parts = vec![Vec::new(); clients];
        for step in steps {
            parts[step.client(clients)].push(*step);
        }
        let mut tasks = Vec::new();
        for (number, part) in parts.into_iter().enumerate() {
            if part.is_empty() {
                continue;
            }
            let actor = Actor::new(number, &self.world, server, self.speech());
            tasks.push(self.env.start(actor.play(part)));
        }
        let bell = Arc::clone(&self.bell);
        let env = Arc::clone(&self.env);
        let all = async {
            for task in tasks {
                task.await;
            }
        };
        let late = Cell::new(false);
        let end = async {
            race(bell.rings(), env.sleep(CASE_MAX)).await;
            late.set(!bell.rung.load(Relaxed));
        };
        // A deadlock of everything is the plan's hanging sync, or a bug that leaves no timer.
        let done = self.sim.run(race(all, end));
        if late.get() || done.is_err() {
            let text = format!("the clients do not come to an end: {done:?}");
            self.world.odd.borrow_mut().push(text);
            return true;
        }
        !matches!(done, Ok(Some(())))
    }

    fn speech(&self) -> Options {
        match self.plan.speech {
            Speech::Plain => Options::dialect(Dialect::SMB_2_1).signing(Signing::Never),
            Speech::Signed => Options::dialect(Dialect::SMB_3_1_1).signing(Signing::Required),
            Speech::Sealed => Options::dialect(Dialect::SMB_3_1_1).encryption(Encryption::Always),
        }
    }

    /// Plants the troubles and sets the clockwork of the disk.
    fn arm(&self, disk: &SimDisk, first: bool) {
        let mut slow = Vec::new();
        let mut hang = Vec::new();
        for trouble in self.plan.troubles.iter().filter(|_| first) {
            let (on, action) = match trouble.what {
                Mischief::Sync(errno) => (SimOp::Sync, FaultAction::Fail(errno)),
                Mischief::Write(errno) => (SimOp::Write, FaultAction::Fail(errno)),
                Mischief::Change(errno) => (SimOp::Change, FaultAction::Fail(errno)),
                Mischief::Short => (SimOp::Write, FaultAction::Short),
                Mischief::SlowSync => {
                    slow.push(usize::from(trouble.after));
                    continue;
                }
                Mischief::Hang => {
                    hang.push(usize::from(trouble.after));
                    continue;
                }
            };
            disk.inject(sim::Fault {
                on,
                after: trouble.after.into(),
                action,
            });
        }
        disk.set_hook(Some(self.hook(slow, hang)));
        if let Some(Fault::Disk(deceit)) = self.options.planted {
            disk.deceive(Some(deceit));
        }
        let (shared, env) = (Arc::clone(&self.history), Arc::clone(&self.env));
        let failed = Arc::clone(&self.failed_syncs);
        disk.observe_syncs(Some(Arc::new(move |seen: SyncSeen| {
            let mut history = history(&shared);
            let object = history.object_of(seen.ino).unwrap_or(UNKNOWN);
            let (now, covered) = (env.monotonic(), history.now());
            match seen.error {
                Some(_) => {
                    failed.fetch_add(1, Relaxed);
                    if seen.kind == SyncKind::Write {
                        history.write_sync_failed(object, now);
                    } else {
                        history.sync_failed(object, now);
                    }
                }
                None if seen.kind != SyncKind::Write => history.synced(object, now, covered),
                None => {}
            }
        })));
    }

    fn hook(&self, slow: Vec<usize>, hang: Vec<usize>) -> SimHook {
        let (calls, syncs) = (Arc::clone(&self.calls), Arc::clone(&self.syncs));
        let (bell, env) = (Arc::clone(&self.bell), Arc::clone(&self.env));
        let Plan { end, pace, lag, .. } = *self.plan;
        Arc::new(move |op| {
            if op == SimOp::Answer {
                return (lag && env.choose(2) == 0)
                    .then(|| env.sleep(Duration::from_micros(env.choose(2_000))));
            }
            let call = calls.fetch_add(1, Relaxed);
            if let End::Call(at) = end
                && call >= at
            {
                bell.ring();
                return Some(Box::pin(std::future::pending()));
            }
            if op == SimOp::Sync {
                let sync = syncs.fetch_add(1, Relaxed);
                if hang.contains(&sync) {
                    return Some(Box::pin(std::future::pending()));
                }
                if slow.contains(&sync) {
                    return Some(env.sleep(Duration::from_millis(700)));
                }
            }
            let (plain, sync) = match pace {
                Pace::Instant => return None,
                Pace::Brisk => (300, 1_000),
                Pace::Slow => (5_000, 150_000),
            };
            let longest = if op == SimOp::Sync { sync } else { plain };
            (env.choose(4) == 0).then(|| env.sleep(Duration::from_micros(env.choose(longest))))
        })
    }

    fn exposure(&self, server: &SimServer) -> Vec<Exposed> {
        let shares = server.server.shares();
        let of = |(name, second)| {
            let told = shares.find(name)?.gate.exposure();
            Some(Exposed {
                second,
                at: self.env.monotonic(),
                bytes: told.bytes,
                inodes: told.inodes,
                oldest_age: told.oldest_age,
                unproven_bytes: told.unproven_bytes,
                poisoned_inodes: told.poisoned_inodes,
            })
        };
        let names = [(SHARE, false), (SECOND, true)];
        names.into_iter().filter_map(of).collect()
    }

    /// Requests that were under way when the process died will not happen any more.
    fn bury(&self) {
        let at = self.env.monotonic();
        history(&self.history).abandon(at);
        // Slots start anew: what is there stays, and nobody touches it.
        self.world.away.set(false);
        let mut beliefs = self.world.beliefs.borrow_mut();
        for file in beliefs.files.iter_mut().flatten() {
            file.held.clear();
        }
    }

    /// The stores beside the share can be read after the crash, too.
    fn look_at_stores(&mut self) -> Result<(), String> {
        let Some(state) = self.options.state.take() else {
            return Ok(());
        };
        let left = match self.plan.crash {
            Crash::Power(cut) => state.cut(cut),
            Crash::Process => state.crash_process(),
        };
        let env: Arc<dyn Env> = self.env.clone();
        let opened = self.sim.run(latches(&env, &left, 1));
        let odd = |what: &dyn std::fmt::Debug| format!("stored latches: {what:?}");
        match opened {
            Ok(opened) => opened.map(drop).map_err(|error| odd(&error)),
            Err(stuck) => Err(odd(&stuck)),
        }
    }

    /// Starts a server on a disk and reads everything.
    fn look(&mut self, disk: &SimDisk, probe: bool) -> Result<View, String> {
        let options = Options::dialect(Dialect::SMB_2_1).signing(Signing::Never);
        // Stored latches would only refuse the CLOSE of what is read.
        let unlatched = MemoryOptions {
            state: None,
            second: None,
            folder: None,
            ..self.options.clone()
        };
        let server = SimServer::plain(&mut self.sim, disk.clone(), &unlatched)
            .map_err(|stuck| format!("the server does not start: {stuck}"))?;
        let steps = &self.plan.steps;
        let security = steps.iter().any(|step| step.kind() == Kind::Security);
        let env = Arc::clone(&self.env);
        let looked = self.sim.run(race(
            read_all(&server, options, (probe, security)),
            env.sleep(LOOK_MAX),
        ));
        self.sim.kill();
        match looked {
            Ok(Some(Ok(view))) => Ok(view),
            Ok(Some(Err(error))) => Err(format!("what is left cannot be read: {error}")),
            Ok(None) => Err("what is left cannot be read in time".to_owned()),
            Err(stuck) => Err(format!("what is left cannot be read: {stuck}")),
        }
    }

    fn judge(&self, view: &View, crash: oracle::Crash, exposure: Vec<Exposed>) -> Vec<Violation> {
        self.judge_at(view, crash, exposure, self.env.monotonic())
    }

    fn judge_at(
        &self,
        view: &View,
        crash: oracle::Crash,
        exposure: Vec<Exposed>,
        at: Duration,
    ) -> Vec<Violation> {
        let history = history(&self.history);
        let mut terms = Terms::new(self.plan.policy, Cut::after(&history, crash, at));
        terms.exposure = exposure;
        terms.mixed = self.plan.is_mixed();
        terms.durable_acl = self.plan.durable_acl;
        terms.flush_times = self.plan.flush_times[0];
        terms.ignore_full_sync = self.plan.ignore_full_sync;
        terms.renames_atomic = self.plan.profile == Profile::Journal;
        terms.renames_synced = self.plan.profile != Profile::PosixMin
            || self.plan.crash == Crash::Power(vfs::sim::Cut::Nothing);
        terms.moves_stable = self.plan.profile == Profile::PosixMin;
        terms.device_keeps_up = self.plan.device_keeps_up();
        let short = |trouble: &Trouble| trouble.what == Mischief::Short;
        terms.writes_whole = !self.plan.troubles.iter().any(short);
        oracle::check(&history, view, &terms)
    }
}
