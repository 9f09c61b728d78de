//! [`vfs::Env`] over tokio and the kernel: the one place where the daemon reads clocks.
//!
//! Monotonic time is tokio's, so that tests with paused time see one clock. `spawn` and `sleep`
//! belong to the worker that calls them: both need that worker's runtime.

use std::{
    future::Future as _,
    pin::pin,
    task::{Context, Waker},
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;
use vfs::{Timestamp, env::LocalTask};

/// The real world.
#[derive(Debug, Clone, Copy)]
pub struct TokioEnv {
    start: Instant,
}

impl TokioEnv {
    /// An environment whose time starts now.
    #[must_use]
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }
}

impl Default for TokioEnv {
    fn default() -> Self {
        Self::new()
    }
}

impl vfs::Env for TokioEnv {
    fn monotonic(&self) -> Duration {
        self.start.elapsed()
    }

    fn realtime(&self) -> Timestamp {
        realtime()
    }

    fn fill_random(&self, out: &mut [u8]) {
        if let Err(error) = getrandom::fill(out) {
            // Keys and nonces come from here: better no server than a predictable one.
            tracing::error!(%error, "the kernel gives no random bytes for keys: the server ends");
            super::abort::end_process();
        }
    }

    fn spawn(&self, task: LocalTask) {
        tokio::task::spawn_local(task);
    }

    fn sleep(&self, span: Duration) -> LocalTask {
        Box::pin(crate::runtime::timers::sleep(span))
    }

    fn wake_later(&self, waker: &Waker) {
        wake_later(waker);
    }
}

/// [`vfs::Env::wake_later`] of every worker.
pub(crate) fn wake_later(waker: &Waker) {
    // The runtime looks at its sockets before it wakes, but does not call the hook for parking: the
    // ring's queue must not wait until no task is ready.
    crate::runtime::ring::on_park();
    // The first poll arranges that the waker is woken after the next check of the sockets, which is
    // all that is needed.
    let _ = pin!(tokio::task::yield_now()).poll(&mut Context::from_waker(waker));
}

/// [`vfs::Env::realtime`] for a file system.
pub(crate) fn realtime() -> Timestamp {
    let now = clock_gettime(ClockId::Realtime);
    Timestamp {
        secs: now.tv_sec,
        // The kernel counts them upward, also before 1970.
        nanos: u32::try_from(now.tv_nsec).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        cell::Cell,
        rc::Rc,
        time::{SystemTime, UNIX_EPOCH},
    };
    use vfs::Env as _;

    #[test]
    fn the_clock_is_that_of_the_machine() {
        let seconds = || {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            i64::try_from(now.as_secs()).unwrap()
        };
        let before = seconds();
        let now = realtime();
        assert!((before..=seconds()).contains(&now.secs), "{now:?}");
        assert!(now.nanos < 1_000_000_000);
    }

    #[test]
    fn tasks_and_sleep_belong_to_the_runtime() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(tokio::runtime::LocalOptions::default())
            .unwrap();
        let done = Rc::new(Cell::new(false));
        runtime.block_on(async {
            let env = TokioEnv::new();
            let flag = Rc::clone(&done);
            env.spawn(Box::pin(async move { flag.set(true) }));
            env.sleep(Duration::from_millis(1)).await;
            assert!(env.monotonic() >= Duration::from_millis(1));
            let mut random = [0; 32];
            env.fill_random(&mut random);
            assert_ne!(random, [0; 32]);
        });
        assert!(done.get());
    }
}
