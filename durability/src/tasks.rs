//! Small parts of tasks that may be dropped with the worker that runs them.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::Poll,
};

use tokio::sync::oneshot;
use vfs::VfsResult;

/// Sends the result to one task that waits.
pub(crate) type Waiter = oneshot::Sender<VfsResult<()>>;

pub(crate) fn answer_all(waiters: impl IntoIterator<Item = Waiter>, what: VfsResult<()>) {
    for waiter in waiters {
        // A waiter that went away needs no answer.
        let _ = waiter.send(what);
    }
}

/// Runs a step when it is dropped, unless it was disarmed.
pub(crate) struct OnDrop<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> OnDrop<F> {
    pub(crate) fn new(step: F) -> Self {
        Self(Some(step))
    }

    pub(crate) fn disarm(mut self) {
        self.0 = None;
    }
}

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(step) = self.0.take() {
            step();
        }
    }
}

/// The result of the first future that has one; the other one is dropped.
pub(crate) async fn race<T>(a: impl Future<Output = T>, b: impl Future<Output = T>) -> T {
    let (mut a, mut b) = (pin!(a), pin!(b));
    poll_fn(|cx| match a.as_mut().poll(cx) {
        Poll::Pending => b.as_mut().poll(cx),
        ready => ready,
    })
    .await
}
