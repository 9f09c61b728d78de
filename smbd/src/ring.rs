//! The worker's io_uring, driven by the worker's runtime.
//!
//! A [`Reactor`] is one thread's ring as this crate sees it: something to push to the kernel
//! whenever the runtime is about to sleep, and a descriptor that becomes readable when there are
//! completions. `on_park` is called by tokio on the worker's own thread, so the ring lives in a
//! thread-local and needs no lock.
//!
//! The descriptor must be an eventfd registered with the ring, not the ring itself: a ring with
//! DEFER_TASKRUN loses wake-ups in epoll (measured, see the notes on dependencies).

use std::{cell::RefCell, io, os::fd::OwnedFd, rc::Rc};

use rustix::fs::OFlags;
use tokio::net::unix::pipe::Receiver;

/// One thread's ring.
pub trait Reactor {
    /// Submits what was queued, without waiting, and wakes the tasks whose operations have ended.
    fn turn(&self);

    /// An eventfd that the kernel signals at each completion; a duplicate, owned by the caller.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    fn event(&self) -> io::Result<OwnedFd>;
}

thread_local! {
    static REACTOR: RefCell<Option<Rc<dyn Reactor>>> = const { RefCell::new(None) };
}

/// For `Builder::on_thread_park`: one submission for everything queued in this turn.
pub(crate) fn on_park() {
    let reactor = REACTOR.with_borrow(Clone::clone);
    if let Some(reactor) = reactor {
        reactor.turn();
    }
}

/// Gives this worker its ring; call on the worker's thread, within its runtime.
///
/// # Errors
/// When the eventfd cannot be had or waited on.
pub fn install(reactor: Rc<dyn Reactor>) -> io::Result<()> {
    let event = reactor.event()?;
    let flags = rustix::fs::fcntl_getfl(&event)?;
    rustix::fs::fcntl_setfl(&event, flags | OFlags::NONBLOCK)?;
    // An eventfd reads like a pipe. (`AsyncFd` would need unsafe code for the same.)
    let event = Receiver::from_owned_fd_unchecked(event)?;
    REACTOR.set(Some(Rc::clone(&reactor)));
    tokio::task::spawn_local(async move {
        loop {
            if let Err(error) = event.readable().await {
                // The runtime is shutting down.
                tracing::debug!(%error, "ring no longer driven");
                return;
            }
            // Reading takes the counter to zero; "would block" clears the readiness.
            let _ = event.try_read(&mut [0; 8]);
            reactor.turn();
        }
    });
    Ok(())
}

/// Takes the ring from this worker, before its thread ends.
pub(crate) fn uninstall() {
    REACTOR.set(None);
}
