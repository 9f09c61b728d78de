//! [`vfs::Env`] over tokio and the kernel: the one place where the daemon reads clocks.
//!
//! Monotonic time is tokio's, so that tests with paused time see one clock. `spawn` and `sleep`
//! belong to the worker that calls them: both need that worker's runtime.

use std::{
    future::Future as _,
    pin::pin,
    task::{Context, Waker},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::time::Instant;
use vfs::{Timestamp, env::LocalTask};

/// The real world.
#[derive(Debug, Clone, Copy)]
pub struct TokioEnv {
    start: Instant,
}

impl TokioEnv {
    /// Time starts now.
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
            super::vital::end_process();
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
    timestamp(SystemTime::now())
}

fn timestamp(time: SystemTime) -> Timestamp {
    let whole = |secs: u64| i64::try_from(secs).unwrap_or(i64::MAX);
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => Timestamp {
            secs: whole(after.as_secs()),
            nanos: after.subsec_nanos(),
        },
        Err(before) => {
            // Nanoseconds count upward, also before 1970.
            let before = before.duration();
            match before.subsec_nanos() {
                0 => Timestamp {
                    secs: -whole(before.as_secs()),
                    nanos: 0,
                },
                nanos => Timestamp {
                    secs: -whole(before.as_secs()) - 1,
                    nanos: 1_000_000_000 - nanos,
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{cell::Cell, rc::Rc};
    use vfs::Env as _;

    #[test]
    fn times_before_the_epoch_count_upward() {
        let at = |secs, nanos| Timestamp { secs, nanos };
        assert_eq!(timestamp(UNIX_EPOCH), at(0, 0));
        assert_eq!(timestamp(UNIX_EPOCH + Duration::new(5, 7)), at(5, 7));
        assert_eq!(timestamp(UNIX_EPOCH - Duration::new(5, 0)), at(-5, 0));
        assert_eq!(
            timestamp(UNIX_EPOCH - Duration::new(5, 7)),
            at(-6, 999_999_993)
        );
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
