//! Turns on a worker that polls its tasks in the order of their wake-ups.

use std::{
    collections::{BTreeMap, VecDeque},
    pin::pin,
    sync::Mutex,
    task::Wake,
};

use vfs::{Timestamp, env::LocalTask};

use super::*;

thread_local! {
    static NOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    static SPAWNED: RefCell<Vec<LocalTask>> = const { RefCell::new(Vec::new()) };
}

struct Time;

impl Env for Time {
    fn monotonic(&self) -> Duration {
        NOW.get()
    }
    fn realtime(&self) -> Timestamp {
        Timestamp::default()
    }
    fn fill_random(&self, out: &mut [u8]) {
        out.fill(0);
    }
    fn spawn(&self, task: LocalTask) {
        SPAWNED.with_borrow_mut(|all| all.push(task));
    }
    fn sleep(&self, _: Duration) -> LocalTask {
        Box::pin(std::future::pending())
    }
}

type Queue = Arc<Mutex<VecDeque<usize>>>;

struct Woken {
    queue: Queue,
    task: usize,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        let mut queue = self.queue.lock().unwrap();
        if !queue.contains(&self.task) {
            queue.push_back(self.task);
        }
    }
}

/// A worker.
#[derive(Default)]
struct Worker {
    tasks: BTreeMap<usize, LocalTask>,
    next: usize,
    queue: Queue,
}

impl Worker {
    fn spawn(&mut self, task: impl Future<Output = ()> + 'static) {
        self.tasks.insert(self.next, Box::pin(task));
        self.queue.lock().unwrap().push_back(self.next);
        self.next += 1;
    }

    /// Polls `steps` times, or until nothing is ready.
    fn run(&mut self, steps: usize) {
        for _ in 0..steps {
            for task in SPAWNED.take() {
                self.spawn(task);
            }
            let next = self.queue.lock().unwrap().pop_front();
            let Some(next) = next else { return };
            let woken = Woken {
                queue: Arc::clone(&self.queue),
                task: next,
            };
            let waker = Waker::from(Arc::new(woken));
            if let Some(task) = self.tasks.get_mut(&next)
                && task
                    .as_mut()
                    .poll(&mut Context::from_waker(&waker))
                    .is_ready()
            {
                self.tasks.remove(&next);
            }
        }
    }
}

/// The work of one connection since another had its turn, and its highest value so far.
#[derive(Default)]
struct Tally {
    since: Cell<usize>,
    most: Cell<usize>,
    turns: Cell<usize>,
}

impl Tally {
    fn did(&self, work: usize) {
        self.since.set(self.since.get() + work);
        self.most.set(self.most.get().max(self.since.get()));
    }

    /// Another connection, which always has something to do.
    async fn other(self: Rc<Self>) {
        loop {
            self.since.set(0);
            self.turns.set(self.turns.get() + 1);
            pause(&Time).await;
        }
    }
}

#[test]
fn pipelined_requests_together_have_one_turn_at_a_time() {
    let (mut worker, tally) = (Worker::default(), Rc::new(Tally::default()));
    worker.spawn(Rc::clone(&tally).other());
    let turn = Turn::new(Arc::new(Time));
    let done = Rc::new(Cell::new(0));
    const PIECE: usize = 40_000;
    for _ in 0..500 {
        let (turn, tally, done) = (Rc::clone(&turn), Rc::clone(&tally), Rc::clone(&done));
        worker.spawn(async move {
            let work = pin!(async {
                for _ in 0..10 {
                    turn.did(PIECE);
                    tally.did(PIECE);
                    turn.wait().await;
                }
                done.set(done.get() + 1);
            });
            turn.run(work).await;
        });
    }
    worker.run(1_000_000);
    assert_eq!(done.get(), 500);
    assert!(
        tally.most.get() <= TURN_WORK_MAX + PIECE,
        "{}",
        tally.most.get()
    );
    assert!(tally.turns.get() >= 500 * 10 * PIECE / TURN_WORK_MAX);
}

#[test]
fn what_nobody_counted_is_bounded_by_the_clock() {
    let (mut worker, tally) = (Worker::default(), Rc::new(Tally::default()));
    worker.spawn(Rc::clone(&tally).other());
    let turn = Turn::new(Arc::new(Time));
    for _ in 0..500 {
        let (turn, tally) = (Rc::clone(&turn), Rc::clone(&tally));
        worker.spawn(async move {
            let work = pin!(async {
                turn.did(NAME_WORK);
                // One millisecond.
                NOW.set(NOW.get() + Duration::from_millis(1));
                tally.did(1);
            });
            turn.run(work).await;
        });
    }
    worker.run(100_000);
    // The clock is first read after two requests, and then again after each two.
    assert!(tally.most.get() <= 6, "{}", tally.most.get());
    assert!(tally.turns.get() >= 80);
}

#[test]
fn new_requests_do_not_go_before_those_that_wait() {
    let mut worker = Worker::default();
    let turn = Turn::new(Arc::new(Time));
    let (read, done) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (reader, count) = (Rc::clone(&turn), Rc::clone(&read));
    worker.spawn(async move {
        loop {
            reader.did(TURN_WORK_MAX / 4);
            count.set(count.get() + 1);
            reader.rest().await;
        }
    });
    let (turn, count) = (Rc::clone(&turn), Rc::clone(&done));
    worker.spawn(async move {
        let work = pin!(async {
            for _ in 0..100 {
                turn.did(TURN_WORK_MAX);
                turn.wait().await;
                count.set(count.get() + 1);
            }
        });
        turn.run(work).await;
    });
    worker.run(2_000);
    assert_eq!(done.get(), 100);
    assert!(read.get() > 100, "{}", read.get());
}

#[test]
fn a_reader_that_is_dropped_takes_nobodys_turn_along() {
    let mut worker = Worker::default();
    let turn = Turn::new(Arc::new(Time));
    turn.did(TURN_WORK_MAX);
    let reader = Rc::clone(&turn);
    let mut resting = Box::pin(async move { reader.rest().await });
    let mut context = Context::from_waker(Waker::noop());
    assert!(resting.as_mut().poll(&mut context).is_pending());
    let done = Rc::new(Cell::new(false));
    let (other, count) = (Rc::clone(&turn), Rc::clone(&done));
    worker.spawn(async move {
        other.wait().await;
        count.set(true);
    });
    worker.run(100);
    assert!(!done.get());
    drop(resting);
    worker.run(100);
    assert!(done.get());
}

#[test]
fn who_asks_one_thing_at_a_time_never_waits_and_reads_no_clock() {
    let turn = Turn::new(Arc::new(Time));
    for _ in 0..10_000 {
        turn.rested();
        turn.did(NAME_WORK);
        assert!(!turn.is_used_up());
        assert_eq!(turn.began.get(), None);
    }
}

#[test]
fn a_reader_rests_when_the_clock_was_looked_at_before() {
    let turn = Turn::new(Arc::new(Time));
    turn.did(CLOCK_WORK);
    assert!(!turn.is_used_up());
    turn.did(CLOCK_WORK);
    NOW.set(NOW.get() + TURN_TIME_MAX);
    assert!(turn.is_used_up());
    let mut resting = pin!(turn.rest());
    let mut context = Context::from_waker(Waker::noop());
    assert!(resting.as_mut().poll(&mut context).is_pending());
    assert!(resting.as_mut().poll(&mut context).is_ready());
    assert!(!turn.is_used_up());
}
