//! A deterministic executor: one thread, a random ready task from a seed, time that jumps to
//! the next timer when nothing is ready.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use vfs::{Env, Timestamp, env::LocalTask};

use crate::share::lock;

thread_local! {
    static SPAWNED: RefCell<Vec<LocalTask>> = const { RefCell::new(Vec::new()) };
}

#[derive(Default)]
struct Clock {
    now: Duration,
    timers: BTreeMap<(Duration, u64), Waker>,
    next: u64,
    /// Every sleep takes longer by this, as on a busy host.
    late: Duration,
}

#[derive(Default)]
pub(super) struct TestEnv {
    clock: Arc<Mutex<Clock>>,
}

impl Env for TestEnv {
    fn monotonic(&self) -> Duration {
        lock(&self.clock).now
    }
    fn realtime(&self) -> Timestamp {
        let now = self.monotonic();
        Timestamp {
            secs: now.as_secs() as i64,
            nanos: now.subsec_nanos(),
        }
    }
    fn fill_random(&self, out: &mut [u8]) {
        out.fill(7);
    }
    fn spawn(&self, task: LocalTask) {
        SPAWNED.with_borrow_mut(|spawned| spawned.push(task));
    }
    fn sleep(&self, span: Duration) -> LocalTask {
        let clock = Arc::clone(&self.clock);
        let at = match lock(&clock) {
            known if span.is_zero() => known.now,
            known => known.now + span + known.late,
        };
        Box::pin(Sleep { clock, at })
    }
}

impl TestEnv {
    /// From now on every sleep takes longer by `late`.
    pub(super) fn wake_late(&self, late: Duration) {
        lock(&self.clock).late = late;
    }
}

struct Sleep {
    clock: Arc<Mutex<Clock>>,
    at: Duration,
}

impl Future for Sleep {
    type Output = ();
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut clock = lock(&self.clock);
        if clock.now >= self.at {
            return Poll::Ready(());
        }
        clock.next += 1;
        let at = (self.at, clock.next);
        clock.timers.insert(at, cx.waker().clone());
        Poll::Pending
    }
}

struct Ready {
    task: usize,
    ready: Arc<Mutex<BTreeSet<usize>>>,
}

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        lock(&self.ready).insert(self.task);
    }
}

/// A small generator: enough to pick tasks and delays.
#[derive(Clone)]
pub(super) struct Rng(u64);

impl Rng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(2).wrapping_add(0x9E37_79B9_7F4A_7C15))
    }
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n.max(1)
    }
}

pub(super) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Polls that one run may take.
const STEPS_MAX: usize = 2_000_000;

/// Runs `main` to its end; `check` runs after every step.
pub(super) fn run<F: Future<Output = ()> + 'static>(
    seed: u64,
    env: &Arc<TestEnv>,
    main: F,
    mut check: impl FnMut(),
) {
    let mut rng = Rng::new(seed);
    let ready: Arc<Mutex<BTreeSet<usize>>> = Arc::default();
    let mut tasks: Vec<Option<LocalTask>> = vec![Some(Box::pin(main))];
    lock(&ready).insert(0);
    for _ in 0..STEPS_MAX {
        for task in SPAWNED.with_borrow_mut(std::mem::take) {
            lock(&ready).insert(tasks.len());
            tasks.push(Some(task));
        }
        let picked = {
            let mut ready = lock(&ready);
            let n = rng.below(ready.len() as u64) as usize;
            let picked = ready.iter().nth(n).copied();
            picked.inspect(|task| _ = ready.remove(task))
        };
        let Some(picked) = picked else {
            let mut clock = lock(&env.clock);
            let Some(((at, _), waker)) = clock.timers.pop_first() else {
                panic!("seed {seed}: deadlock, nothing is ready and no timer runs");
            };
            clock.now = clock.now.max(at);
            drop(clock);
            waker.wake();
            continue;
        };
        let waker = Waker::from(Arc::new(Ready {
            task: picked,
            ready: Arc::clone(&ready),
        }));
        let done = tasks[picked].as_mut().is_none_or(|task| {
            task.as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_ready()
        });
        check();
        if done {
            tasks[picked] = None;
            if picked == 0 {
                drop(tasks);
                SPAWNED.with_borrow_mut(Vec::clear);
                return;
            }
        }
    }
    panic!("seed {seed}: no end in {STEPS_MAX} steps");
}

/// Spawns futures and waits for all of them.
pub(super) async fn join(env: &Arc<TestEnv>, all: Vec<LocalTask>) {
    let mut ends = Vec::new();
    for task in all {
        let (ended, end) = tokio::sync::oneshot::channel();
        ends.push(end);
        env.spawn(Box::pin(async move {
            task.await;
            let _ = ended.send(());
        }));
    }
    for end in ends {
        end.await.expect("the task ended");
    }
}
