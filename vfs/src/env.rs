//! Time, randomness and tasks, as one value handed in from outside.
//!
//! The protocol core and the durability engine have no clock, no entropy and no executor of
//! their own: the daemon supplies tokio's, the simulator supplies its own, and a seed then
//! replays a whole run.

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

    /// Fills `out` with bytes that a stranger cannot predict (in the simulator: from the seed).
    fn fill_random(&self, out: &mut [u8]);

    /// Runs `task` detached on the calling worker. It is not tied to any connection: a
    /// connection that dies does not take it along.
    fn spawn(&self, task: LocalTask);

    /// Completes after `span` of monotonic time.
    fn sleep(&self, span: Duration) -> LocalTask;

    /// Wakes `waker` when everything else that is ready on the calling worker has had its turn,
    /// what has just arrived on its sockets included.
    fn wake_later(&self, waker: &Waker) {
        waker.wake_by_ref();
    }
}

/// Lets everything else that is ready on this worker go first.
pub async fn pause(env: &(impl Env + ?Sized)) {
    once_woken(|waker| env.wake_later(waker)).await;
}

/// [`pause`] for those who have no [`Env`]: long loops of a file system.
#[derive(Clone)]
pub struct Pause(Arc<dyn Fn(&Waker) + Send + Sync>);

impl Pause {
    /// A pause that ends as [`Env::wake_later`] says, which `wake_later` does.
    pub fn new(wake_later: impl Fn(&Waker) + Send + Sync + 'static) -> Self {
        Self(Arc::new(wake_later))
    }

    /// As [`pause`].
    pub async fn pause(&self) {
        once_woken(|waker| (self.0)(waker)).await;
    }
}

impl Default for Pause {
    fn default() -> Self {
        Self::new(Waker::wake_by_ref)
    }
}

impl fmt::Debug for Pause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pause")
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
