//! Real threads: each runs its own tasks, as the server's workers do, all on a few inodes. Nothing
//! hangs, and at the end nothing is dirty. Wakers are real: a wake-up that is lost is a hang.

use std::{
    cell::RefCell,
    future::Future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use bytes::Bytes;
use vfs::{Env, Timestamp, env::LocalTask};

use super::{
    fake::{Fake, dir, file, key, stream},
    flush::{PLAIN, THROUGH},
    opens::rule,
    sim::{Rng, ms},
};
use crate::{share::lock, *};

const THREADS: u64 = 4;
const TASKS: u64 = 6;
const TURNS: u64 = 120;
/// Longer than this is a hang.
const TIME_MAX: Duration = Duration::from_secs(300);

thread_local! {
    static SPAWNED: RefCell<Vec<LocalTask>> = const { RefCell::new(Vec::new()) };
    static TIMERS: RefCell<Vec<(Instant, Waker)>> = const { RefCell::new(Vec::new()) };
}

struct ThreadEnv(Instant);

impl Env for ThreadEnv {
    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
    fn realtime(&self) -> Timestamp {
        Timestamp::default()
    }
    fn fill_random(&self, out: &mut [u8]) {
        out.fill(7);
    }
    fn spawn(&self, task: LocalTask) {
        SPAWNED.with_borrow_mut(|spawned| spawned.push(task));
    }
    fn sleep(&self, span: Duration) -> LocalTask {
        let at = Instant::now() + span;
        Box::pin(std::future::poll_fn(move |cx| {
            if Instant::now() >= at {
                return Poll::Ready(());
            }
            TIMERS.with_borrow_mut(|timers| timers.push((at, cx.waker().clone())));
            Poll::Pending
        }))
    }
}

struct Ready {
    task: usize,
    ready: Arc<Mutex<Vec<usize>>>,
    thread: Thread,
}

impl Wake for Ready {
    fn wake(self: Arc<Self>) {
        lock(&self.ready).push(self.task);
        self.thread.unpark();
    }
}

/// Runs tasks and what they spawn on this thread until `done`; what is left is dropped.
fn run(first: Vec<LocalTask>, done: impl Fn() -> bool) {
    let ready: Arc<Mutex<Vec<usize>>> = Arc::default();
    let mut tasks: Vec<Option<LocalTask>> = Vec::new();
    SPAWNED.with_borrow_mut(|spawned| spawned.extend(first));
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < TIME_MAX, "a task hangs");
        for task in SPAWNED.with_borrow_mut(std::mem::take) {
            lock(&ready).push(tasks.len());
            tasks.push(Some(task));
        }
        let now = Instant::now();
        TIMERS.with_borrow_mut(|timers| {
            timers.retain(|(at, waker)| {
                if *at <= now {
                    waker.wake_by_ref();
                }
                *at > now
            });
        });
        let picked = std::mem::take(&mut *lock(&ready));
        if picked.is_empty() {
            let timer = TIMERS.with_borrow(|timers| timers.iter().map(|(at, _)| *at).min());
            let most = ms(20);
            let span = timer.map_or(most, |at| at.saturating_duration_since(now).min(most));
            thread::park_timeout(span);
            continue;
        }
        for task in picked {
            let waker = Waker::from(Arc::new(Ready {
                task,
                ready: Arc::clone(&ready),
                thread: thread::current(),
            }));
            let mut context = Context::from_waker(&waker);
            let over = |task: &mut LocalTask| task.as_mut().poll(&mut context).is_ready();
            if tasks[task].as_mut().is_some_and(over) {
                tasks[task] = None;
            }
        }
    }
    drop(tasks);
    SPAWNED.with_borrow_mut(Vec::clear);
    TIMERS.with_borrow_mut(Vec::clear);
}

/// Polls a future for a while; drops it if it is not over by then.
async fn at_most(env: &dyn Env, span: Duration, future: impl Future) {
    let (mut future, mut late) = (std::pin::pin!(future), env.sleep(span));
    std::future::poll_fn(|cx| {
        if future.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        late.as_mut().poll(cx)
    })
    .await;
}

const POLICIES: [&str; 4] = [
    "honor",
    "strict-sync",
    "treat-host-as-stable-storage",
    "bounded:20ms,1MiB",
];

async fn client(
    env: Arc<dyn Env>,
    (engine, gate): (Arc<Durability<Fake>>, Arc<Gate<Fake>>),
    seed: u64,
) {
    let mut rng = Rng::new(seed);
    let mut opens = Vec::new();
    for _ in 0..TURNS {
        let f = file(5 + rng.below(4));
        let s = stream(f.ino, "s");
        let (a, b) = (dir(10 + rng.below(3)), dir(10 + rng.below(3)));
        let flags = if rng.below(4) == 0 { THROUGH } else { PLAIN };
        let (offset, n) = (rng.below(8) * 4096, 4096 * (1 + rng.below(2)) as usize);
        let data = Bytes::from(vec![1; n]);
        let node = if rng.below(5) == 0 { &s } else { &f };
        let request = async {
            // Errors are planted; what they mean is tested elsewhere.
            match rng.below(16) {
                0..5 => drop(gate.write(node, offset, data, flags).await),
                5..7 => drop(gate.flush(node, FlushTarget::File, flags).await),
                7 => drop(gate.renamed(&f, &a, &b, flags).await),
                8 => drop(gate.created(&f, &a, flags).await),
                9 => drop(gate.removed(&f, &a, flags).await),
                10 => drop(gate.meta_changed(&f, Meta::Times, flags).await),
                11 => drop(gate.closed(&f, flags).await),
                12 => drop(gate.flush(&dir(1), FlushTarget::ShareRoot, flags).await),
                13 => {
                    let policy = POLICIES[rng.below(4) as usize].parse().unwrap();
                    gate.set_policy(policy, "test").await;
                }
                14 => {
                    let rules = vec![rule("*.tmp", POLICIES[rng.below(4) as usize])];
                    let rules = Arc::new(Rules::new(rules).unwrap());
                    gate.set_rules(rules, "test").await;
                }
                _ => _ = engine.clear_latch(f.key_of()),
            }
        };
        match seed % 3 {
            0 => at_most(&*env, ms(2), request).await,
            _ => request.await,
        }
        let opener = Opener {
            path: if rng.below(2) == 0 { "a.tmp" } else { "x" }.into(),
            ..Opener::default()
        };
        opens.push(gate.opened(node, Arc::new(opener)));
        if opens.len() > 3 {
            drop(opens.swap_remove(0));
        }
    }
}

#[test]
fn threads_on_the_same_inodes_neither_hang_nor_leave_anything() {
    let env: Arc<dyn Env> = Arc::new(ThreadEnv(Instant::now()));
    let fake = Fake::over(&env, Duration::from_micros(300), Duration::from_micros(50));
    {
        let mut times = lock(&fake.times);
        times.rng = Some(Rng::new(1));
        times.fail_one_in = 60;
    }
    let limits = Limits {
        dirty_inodes_max: 4,
        dirty_age_max: ms(10),
        syncs_in_flight_max: 3,
        ..Limits::default()
    };
    let engine = Durability::new(Arc::clone(&env), limits);
    let gates = ["one", "two"].map(|name| {
        let settings = ShareDurability::default();
        engine.share(name, Arc::clone(&fake), settings)
    });
    let left = Arc::new(AtomicUsize::new((THREADS * TASKS) as usize));
    let threads = (0..THREADS).map(|number| {
        let (env, left) = (Arc::clone(&env), Arc::clone(&left));
        let (engine, gates) = (Arc::clone(&engine), gates.clone());
        thread::spawn(move || {
            let mine = Arc::new(AtomicUsize::new(TASKS as usize));
            let tasks = (0..TASKS).map(|task| {
                let gate = Arc::clone(&gates[(task % 2) as usize]);
                let pair = (Arc::clone(&engine), gate);
                let client = client(Arc::clone(&env), pair, number * TASKS + task);
                let (left, mine) = (Arc::clone(&left), Arc::clone(&mine));
                Box::pin(async move {
                    client.await;
                    left.fetch_sub(1, SeqCst);
                    mine.fetch_sub(1, SeqCst);
                }) as LocalTask
            });
            // The first thread ends with its own clients: whatever it runs for others is lost.
            let count = if number == 0 { &mine } else { &left };
            run(tasks.collect(), || count.load(SeqCst) == 0);
        })
    });
    for thread in threads.collect::<Vec<_>>() {
        thread.join().expect("no panic, no hang");
    }
    lock(&fake.times).fail_one_in = 0;
    let over = Arc::new(AtomicUsize::new(1));
    let (main, ended) = (Arc::clone(&engine), Arc::clone(&over));
    let last = Box::pin(async move {
        main.sync_all().await;
        ended.store(0, SeqCst);
    });
    run(vec![last], || over.load(SeqCst) == 0);
    for gate in &gates {
        gate.clear_latches();
        assert_eq!(gate.exposure(), Exposure::default(), "{}", gate.name());
    }
    assert_eq!(engine.dirty_inodes(), 0);
    assert!(engine.poisoned().is_empty() && engine.is_stable());
    assert!(
        gates[0].in_force(key(5)).is_none(),
        "every handle is closed"
    );
    engine.find(|key, _| -> Option<()> { panic!("{key:?} is remembered") });
}
