//! Time, randomness and tasks, as one value handed in from outside.
//!
//! The protocol core and the durability engine have no clock, no entropy and no executor of
//! their own: the daemon supplies tokio's, the simulator supplies its own, and a seed then
//! replays a whole run.

use std::{future::Future, pin::Pin, time::Duration};

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
}
