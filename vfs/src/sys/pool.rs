//! The threads that wait for the disk so that workers need not.
//!
//! One pool serves the whole process. It has two lanes with threads and queues of their own, so
//! that slow syncs never keep reads and names waiting. A full queue is EAGAIN, never an unbounded
//! backlog. Threads start when needed and end when idle for `IDLE_MAX`.
//!
//! A job that was begun runs to its end even if nobody waits for the answer any more.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use tokio::sync::oneshot;

use super::creds;
use crate::{
    Identity,
    disk::{DiskResult, Errno},
    posix_sys as raw,
};

/// Most threads that read, write and change names.
pub const IO_THREADS_MAX: usize = 32;
/// Most threads that sync: as many as the kernel merges into few flushes (durability.md 3.3).
pub const SYNC_THREADS_MAX: usize = 64;
/// Most jobs waiting in a lane.
pub const QUEUE_MAX: usize = 4096;
/// How long a thread waits for work before it ends.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// Which threads a job runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lane {
    /// Reads, writes, names, attributes.
    Io,
    /// Whatever waits for a flush of the device.
    Sync,
}

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct LaneState {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

struct LaneThreads {
    name: &'static str,
    threads_max: fn() -> usize,
    state: Mutex<LaneState>,
    ready: Condvar,
}

static IO: LaneThreads = LaneThreads::new("disk-io", || IO_THREADS_MAX);
static SYNC: LaneThreads = LaneThreads::new("disk-sync", sync_threads_max);

/// [`SYNC_THREADS_MAX`], or the environment's `HOLDFAST_SYNC_THREADS` (1 to 1,024): for measuring
/// only (`cargo xtask price --lanes`).
fn sync_threads_max() -> usize {
    static MAX: OnceLock<usize> = OnceLock::new();
    *MAX.get_or_init(|| {
        std::env::var("HOLDFAST_SYNC_THREADS")
            .ok()
            .and_then(|text| text.parse::<usize>().ok())
            .map_or(SYNC_THREADS_MAX, |threads| threads.clamp(1, 1024))
    })
}

impl LaneThreads {
    const fn new(name: &'static str, threads_max: fn() -> usize) -> Self {
        Self {
            name,
            threads_max,
            state: Mutex::new(LaneState {
                queue: VecDeque::new(),
                threads: 0,
                idle: 0,
            }),
            ready: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, LaneState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn submit(&'static self, job: Job) -> DiskResult<()> {
        let mut state = self.lock();
        if state.queue.len() >= QUEUE_MAX {
            return Err(Errno(libc::EAGAIN));
        }
        state.queue.push_back(job);
        if state.queue.len() <= state.idle {
            drop(state);
            self.ready.notify_one();
            return Ok(());
        }
        if state.threads < (self.threads_max)() {
            state.threads += 1;
            drop(state);
            let started = thread::Builder::new()
                .name(self.name.into())
                .spawn(move || self.work());
            if started.is_err() {
                self.retire();
            }
        }
        Ok(())
    }

    /// One thread less. If it was the last, what waits is given up (EAGAIN to those who wait).
    fn retire(&self) {
        let mut state = self.lock();
        state.threads -= 1;
        let lost = if state.threads == 0 {
            std::mem::take(&mut state.queue)
        } else {
            VecDeque::new()
        };
        // Dropped without the lock: a job may own a descriptor whose closing comes back here.
        drop(state);
        drop(lost);
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                return Some(job);
            }
            state.idle += 1;
            let (again, waited) = self
                .ready
                .wait_timeout(state, IDLE_MAX)
                .unwrap_or_else(PoisonError::into_inner);
            state = again;
            state.idle -= 1;
            if waited.timed_out() && state.queue.is_empty() {
                state.threads -= 1;
                return None;
            }
        }
    }

    fn work(&self) {
        if raw::own_umask().is_err() {
            tracing::warn!("no umask of its own for a disk thread: the process's umask applies");
        }
        if creds::begin_thread().is_err() {
            tracing::error!("a disk thread could not become the service; it ends");
            return self.retire();
        }
        while let Some(job) = self.next() {
            // A panic is a bug of ours, reported by the hook; its caller sees EIO because the
            // sender is dropped, and the thread lives on.
            let _ = catch_unwind(AssertUnwindSafe(job));
            if creds::broken() {
                // It would refuse everything: another thread takes its place.
                return self.retire();
            }
        }
    }
}

fn lane_threads(lane: Lane) -> &'static LaneThreads {
    match lane {
        Lane::Io => &IO,
        Lane::Sync => &SYNC,
    }
}

/// Runs `call` on a thread of `lane` as the service; nobody waits. If the queue is full it is
/// dropped here.
pub(crate) fn post(lane: Lane, call: impl FnOnce() + Send + 'static) {
    let _ = lane_threads(lane).submit(Box::new(move || {
        if creds::assume(&Identity::Service).is_ok() {
            call();
        }
    }));
}

/// Runs `call` on a thread of `lane` as `who` and returns what it said. EAGAIN if the lane's queue
/// is full or no thread could be started for it; EIO if it was begun and did not end.
pub(crate) async fn run<T: Send + 'static>(
    lane: Lane,
    who: Identity,
    call: impl FnOnce() -> DiskResult<T> + Send + 'static,
) -> DiskResult<T> {
    let (send, receive) = oneshot::channel();
    let begun = Arc::new(AtomicBool::new(false));
    let begins = Arc::clone(&begun);
    lane_threads(lane).submit(Box::new(move || {
        let assumed = creds::assume(&who);
        begins.store(assumed.is_ok(), SeqCst);
        let _ = send.send(assumed.and_then(|()| call()));
    }))?;
    receive.await.unwrap_or_else(|_| {
        let lost = if begun.load(SeqCst) {
            libc::EIO
        } else {
            libc::EAGAIN
        };
        Err(Errno(lost))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls with a thread parked in between.
    fn wait<F: Future>(future: F) -> F::Output {
        crate::testing::block_on(future)
    }

    #[test]
    fn answers_and_panics_come_back() {
        assert_eq!(wait(run(Lane::Io, Identity::Service, || Ok(7))), Ok(7));
        let lost: DiskResult<()> = wait(run(Lane::Io, Identity::Service, || panic!("planted")));
        assert_eq!(lost, Err(Errno(libc::EIO)));
        assert_eq!(wait(run(Lane::Io, Identity::Service, || Ok(8))), Ok(8));
    }

    #[test]
    fn a_full_sync_lane_does_not_stop_reads() {
        let (release, gate) = std::sync::mpsc::channel::<()>();
        let gate = std::sync::Arc::new(Mutex::new(gate));
        let mut stuck = Vec::new();
        for _ in 0..SYNC_THREADS_MAX + 8 {
            let gate = std::sync::Arc::clone(&gate);
            let (send, receive) = oneshot::channel();
            let job = Box::new(move || {
                let _ = gate.lock().unwrap().recv();
                let _ = send.send(());
            });
            SYNC.submit(job).unwrap();
            stuck.push(receive);
        }
        assert_eq!(wait(run(Lane::Io, Identity::Service, || Ok(1))), Ok(1));
        drop(release);
        for one in stuck {
            wait(one).unwrap();
        }
    }
}
