//! The executor and the clock: one thread, tasks in random order, time that jumps.
//!
//! Invariants: which ready task is polled next depends on the seed alone; time moves only when
//! nothing is ready, and then to the earliest timer; [`SimEnv`] is the only source of time and
//! randomness of what runs in it. Tasks spawned belong to their [`Sim`] and are dropped with it,
//! which is how a server dies here.
//!
//! One thread polls a simulation. Spawning from another thread loses the task (debug builds
//! assert).

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    future::Future,
    pin::{Pin, pin},
    rc::Rc,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::ThreadId,
    time::Duration,
};

use vfs::{Env, Timestamp, env::LocalTask};

use vfs::sim::SimRng;

/// When a simulation begins: 2024-01-01 00:00:00 UTC.
const EPOCH_SECS: i64 = 1_704_067_200;

/// Polls after which [`Sim::run`] gives up: a task that wakes itself for ever.
const STEPS_MAX: u64 = 50_000_000;

/// The number of the future that [`Sim::run`] drives.
const MAIN: u64 = 0;

thread_local! {
    /// Tasks spawned and not yet taken over, with the number of their simulation. (Tasks are not
    /// `Send` and [`SimEnv`] is, so they cannot travel inside it.)
    static SPAWNED: RefCell<Vec<(u64, LocalTask)>> = const { RefCell::new(Vec::new()) };
}

/// Why a simulation stopped before its future was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Stuck {
    #[error("nothing is ready and no timer is set")]
    Deadlock,
    #[error("something stays ready for ever")]
    Livelock,
}

struct State {
    now: Duration,
    order: SimRng,
    entropy: SimRng,
    ready: BTreeSet<u64>,
    timers: BTreeMap<(Duration, u64), Waker>,
    next_timer: u64,
}

struct Shared {
    id: u64,
    thread: ThreadId,
    state: Mutex<State>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct TaskWaker {
    shared: Arc<Shared>,
    task: u64,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.shared.lock().ready.insert(self.task);
    }
}

struct Task {
    future: LocalTask,
    waker: Waker,
}

pub struct Sim {
    shared: Arc<Shared>,
    tasks: BTreeMap<u64, Task>,
    next_task: u64,
    main_waker: Waker,
    seed: u64,
}

impl Sim {
    pub fn new(seed: u64) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let mut rng = SimRng::new(seed);
        let shared = Arc::new(Shared {
            id: NUMBER.fetch_add(1, Ordering::Relaxed),
            thread: std::thread::current().id(),
            state: Mutex::new(State {
                now: Duration::ZERO,
                order: SimRng::new(rng.draw()),
                entropy: SimRng::new(rng.draw()),
                ready: BTreeSet::new(),
                timers: BTreeMap::new(),
                next_timer: 0,
            }),
        });
        Self {
            main_waker: waker(&shared, MAIN),
            shared,
            tasks: BTreeMap::new(),
            next_task: MAIN + 1,
            seed,
        }
    }

    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Time, randomness and tasks of this world.
    pub fn env(&self) -> Arc<SimEnv> {
        Arc::new(SimEnv {
            shared: Arc::clone(&self.shared),
        })
    }

    /// Tasks that are not done.
    pub fn tasks(&self) -> usize {
        self.tasks.len()
    }

    /// Drives `main` and everything spawned until `main` is done. Tasks that it leaves running continue in the next
    /// call.
    pub fn run<T>(&mut self, main: impl Future<Output = T>) -> Result<T, Stuck> {
        let mut main = pin!(main);
        self.shared.lock().ready.insert(MAIN);
        for _ in 0..STEPS_MAX {
            self.adopt();
            let Some(next) = self.pick() else {
                if !self.advance() {
                    return Err(Stuck::Deadlock);
                }
                continue;
            };
            if next == MAIN {
                let mut context = Context::from_waker(&self.main_waker);
                if let Poll::Ready(value) = main.as_mut().poll(&mut context) {
                    return Ok(value);
                }
            } else {
                self.poll(next);
            }
        }
        Err(Stuck::Livelock)
    }

    /// Runs until nothing is ready, without letting time pass.
    pub fn settle(&mut self) {
        for _ in 0..STEPS_MAX {
            self.adopt();
            let Some(next) = self.pick() else { return };
            self.poll(next);
        }
    }

    /// Drops every task, as the death of the process would.
    pub fn kill(&mut self) {
        self.tasks.clear();
        SPAWNED.with_borrow_mut(|spawned| spawned.retain(|(sim, _)| *sim != self.shared.id));
        self.shared.lock().timers.clear();
    }

    fn adopt(&mut self) {
        let id = self.shared.id;
        let mine: Vec<_> =
            SPAWNED.with_borrow_mut(|all| all.extract_if(.., |(sim, _)| *sim == id).collect());
        for (_, future) in mine {
            let number = self.next_task;
            self.next_task += 1;
            let waker = waker(&self.shared, number);
            self.tasks.insert(number, Task { future, waker });
            self.shared.lock().ready.insert(number);
        }
    }

    fn pick(&self) -> Option<u64> {
        let mut state = self.shared.lock();
        let index = match state.ready.len() {
            0 => return None,
            1 => 0,
            len => state.order.index(len),
        };
        let next = state.ready.iter().nth(index).copied()?;
        state.ready.remove(&next);
        Some(next)
    }

    fn poll(&mut self, number: u64) {
        // A task may have been woken after its end.
        let Some(task) = self.tasks.get_mut(&number) else {
            return;
        };
        let mut context = Context::from_waker(&task.waker);
        if task.future.as_mut().poll(&mut context).is_ready() {
            self.tasks.remove(&number);
        }
    }

    /// Time jumps to the next timer; false if there is none.
    fn advance(&self) -> bool {
        let mut state = self.shared.lock();
        let Some(((at, _), waker)) = state.timers.pop_first() else {
            return false;
        };
        state.now = state.now.max(at);
        drop(state);
        waker.wake();
        true
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.kill();
    }
}

fn waker(shared: &Arc<Shared>, task: u64) -> Waker {
    Waker::from(Arc::new(TaskWaker {
        shared: Arc::clone(shared),
        task,
    }))
}

pub struct SimEnv {
    shared: Arc<Shared>,
}

impl SimEnv {
    /// A number below `limit` from the stream that orders tasks.
    #[must_use]
    pub fn choose(&self, limit: u64) -> u64 {
        self.shared.lock().order.below(limit)
    }

    /// Spawns a task whose result can be awaited.
    pub fn start<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        task: F,
    ) -> impl Future<Output = T> + use<T, F> {
        let slot: Rc<RefCell<(Option<T>, Option<Waker>)>> = Rc::default();
        let result = Rc::clone(&slot);
        self.spawn(Box::pin(async move {
            let value = task.await;
            let mut slot = result.borrow_mut();
            slot.0 = Some(value);
            if let Some(waker) = slot.1.take() {
                waker.wake();
            }
        }));
        std::future::poll_fn(move |cx| {
            let mut slot = slot.borrow_mut();
            if let Some(value) = slot.0.take() {
                return Poll::Ready(value);
            }
            slot.1 = Some(cx.waker().clone());
            Poll::Pending
        })
    }
}

impl Env for SimEnv {
    fn monotonic(&self) -> Duration {
        self.shared.lock().now
    }

    fn realtime(&self) -> Timestamp {
        let now = self.monotonic();
        Timestamp {
            secs: EPOCH_SECS.saturating_add_unsigned(now.as_secs()),
            nanos: now.subsec_nanos(),
        }
    }

    fn fill_random(&self, out: &mut [u8]) {
        self.shared.lock().entropy.fill(out);
    }

    fn spawn(&self, task: LocalTask) {
        debug_assert_eq!(self.shared.thread, std::thread::current().id());
        SPAWNED.with_borrow_mut(|all| all.push((self.shared.id, task)));
    }

    fn sleep(&self, span: Duration) -> LocalTask {
        let mut state = self.shared.lock();
        let key = (state.now.saturating_add(span), state.next_timer);
        state.next_timer += 1;
        drop(state);
        Box::pin(Sleep {
            shared: Arc::clone(&self.shared),
            key,
        })
    }
}

struct Sleep {
    shared: Arc<Shared>,
    key: (Duration, u64),
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.shared.lock();
        if state.now >= self.key.0 {
            state.timers.remove(&self.key);
            return Poll::Ready(());
        }
        state.timers.insert(self.key, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.shared.lock().timers.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(seed: u64) -> Vec<usize> {
        let mut sim = Sim::new(seed);
        let env = sim.env();
        let seen: Rc<RefCell<Vec<usize>>> = Rc::default();
        let tasks: Vec<_> = (0..6)
            .map(|number| {
                let seen = Rc::clone(&seen);
                env.start(async move { seen.borrow_mut().push(number) })
            })
            .collect();
        sim.run(async {
            for task in tasks {
                task.await;
            }
        })
        .unwrap();
        Rc::try_unwrap(seen).unwrap().into_inner()
    }

    #[test]
    fn the_seed_decides_the_order() {
        let orders: BTreeSet<_> = (0..50).map(order).collect();
        assert!(orders.len() > 30, "{} orders of 50", orders.len());
        assert_eq!(order(7), order(7));
    }

    #[test]
    fn time_jumps_to_the_next_timer_and_only_then() {
        let mut sim = Sim::new(1);
        let env = sim.env();
        let late = env.start({
            let env = Arc::clone(&env);
            async move {
                env.sleep(Duration::from_secs(3600)).await;
                env.monotonic()
            }
        });
        let ended = sim.run(async {
            env.sleep(Duration::from_millis(20)).await;
            assert_eq!(env.monotonic(), Duration::from_millis(20));
            late.await
        });
        assert_eq!(ended, Ok(Duration::from_secs(3600)));
        assert_eq!(env.realtime().secs, EPOCH_SECS + 3600);
    }

    #[test]
    fn what_can_never_happen_is_reported() {
        let mut sim = Sim::new(1);
        assert_eq!(sim.run(std::future::pending::<()>()), Err(Stuck::Deadlock));
    }

    #[test]
    fn a_dropped_timer_does_not_move_time() {
        let mut sim = Sim::new(1);
        let env = sim.env();
        let mut long = env.sleep(Duration::from_secs(10));
        let mut context = Context::from_waker(Waker::noop());
        assert!(long.as_mut().poll(&mut context).is_pending());
        drop(long);
        sim.run(env.sleep(Duration::from_secs(1))).unwrap();
        assert_eq!(env.monotonic(), Duration::from_secs(1));
        assert!(!sim.advance());
    }
}
