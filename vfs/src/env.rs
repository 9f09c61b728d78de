//! Time, randomness and tasks, as one value that the caller supplies.
//!
//! The protocol core and the durability engine have no clock, no entropy and no executor of
//! their own: the daemon supplies tokio's, and the simulator supplies its own, so that a seed
//! repeats a whole run.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Poll, Waker},
    time::Duration,
};

use crate::Timestamp;

/// A task without a result, owned by the worker (thread) that spawned it. Not `Send`.
pub type LocalTask = Pin<Box<dyn Future<Output = ()>>>;

/// The outside world except files and sockets.
pub trait Env: Send + Sync + 'static {
    /// Time since an arbitrary start; never goes back.
    fn monotonic(&self) -> Duration;

    /// Wall-clock time. May jump in either direction.
    fn realtime(&self) -> Timestamp;

    /// Fills `out` with bytes that nobody can predict (in the simulator: from the seed).
    fn fill_random(&self, out: &mut [u8]);

    /// Runs `task` detached on the calling worker. It belongs to no connection, so the end of a
    /// connection does not end it.
    fn spawn(&self, task: LocalTask);

    /// Completes after `span` of monotonic time.
    fn sleep(&self, span: Duration) -> LocalTask;

    /// Wakes `waker` when everything else that is ready on the calling worker has had its turn,
    /// including tasks whose sockets have just received something.
    fn wake_later(&self, waker: &Waker) {
        waker.wake_by_ref();
    }
}

/// Lets all other tasks that are ready on this worker run first.
pub async fn pause(env: &(impl Env + ?Sized)) {
    once_woken(|waker| env.wake_later(waker)).await;
}

/// [`pause`] for code without an [`Env`]: long loops of a file system.
#[derive(Clone)]
pub struct Pause(Arc<dyn Fn(&Waker) + Send + Sync>);

impl Pause {
    /// A pause that ends when `wake_later`, a function like [`Env::wake_later`], wakes it.
    pub fn new(wake_later: impl Fn(&Waker) + Send + Sync + 'static) -> Self {
        Self(Arc::new(wake_later))
    }

    /// Waits as [`pause`] does, with the function that this value was made of.
    pub async fn pause(&self) {
        once_woken(|waker| (self.0)(waker)).await;
    }
}

impl Default for Pause {
    fn default() -> Self {
        Self::new(Waker::wake_by_ref)
    }
}

/// Wall-clock time for code without an [`Env`], as [`Env::realtime`].
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl Default for Clock {
    /// A clock that stands still in 1970: to the back end every directory looks young, so no name in it is remembered.
    fn default() -> Self {
        Self::new(Timestamp::default)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

async fn once_woken(wake: impl Fn(&Waker)) {
    let mut waited = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut waited, true) {
            return Poll::Ready(());
        }
        wake(cx.waker());
        Poll::Pending
    })
    .await;
}
