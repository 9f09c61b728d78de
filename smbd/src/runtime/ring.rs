//! The worker's io_uring, driven by the worker's runtime.
//!
//! A [`Reactor`] is one thread's ring as this crate sees it: something to push to the kernel
//! whenever the runtime is about to sleep, and a descriptor that becomes readable when there are
//! completions. `on_park` is called by tokio on the worker's own thread, so the ring lives in a
//! thread-local and needs no lock.
//!
//! The descriptor must be an eventfd registered with the ring, not the ring itself: a ring with
//! DEFER_TASKRUN runs its completions only on the thread that enters it, so epoll misses wake-ups (measured).

use std::{
    cell::RefCell,
    io,
    os::fd::OwnedFd,
    pin::Pin,
    rc::Rc,
    task::{Context, Waker},
};

use rustix::fs::OFlags;
use tokio::{
    io::{AsyncRead, ReadBuf},
    net::unix::pipe::Receiver,
};
use vfs::uring::{UringOptions, UringWorker};

use crate::{config::FileIo, runtime::vital::Vital};

/// The io_uring ring of a worker's thread.
pub trait Reactor {
    /// The thread is about to sleep: submits what was queued, without waiting, and wakes the
    /// tasks whose operations have ended.
    fn park(&self);

    /// The eventfd fired: collects completions and wakes their tasks.
    fn ready(&self);

    /// An eventfd that the kernel signals at each completion; a duplicate, owned by the caller.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    fn event(&self) -> io::Result<OwnedFd>;
}

impl Reactor for UringWorker {
    fn park(&self) {
        self.drive();
    }

    fn ready(&self) {
        self.drive();
    }

    fn event(&self) -> io::Result<OwnedFd> {
        Ok(self.eventfd()?)
    }
}

/// Gives the calling worker its file I/O as configured, and returns its kind: `"io_uring"` or
/// `"threads"`. The disks find the thread's ring by themselves.
///
/// # Errors
/// If a ring is required and not available.
pub(crate) fn choose(wanted: FileIo) -> io::Result<&'static str> {
    if wanted == FileIo::Threads {
        return Ok(THREADS);
    }
    match UringWorker::new(UringOptions::default()) {
        Ok(ring) => install(Rc::new(ring)).map(|()| "io_uring"),
        Err(reason) if wanted == FileIo::IoUring => Err(io::Error::other(format!(
            "no io_uring: {reason}\n  = permit it (containers: the seccomp profile), or set file_io = \"auto\""
        ))),
        Err(reason) => {
            tracing::info!(%reason, "no io_uring here: file I/O by threads");
            Ok(THREADS)
        }
    }
}

const THREADS: &str = "threads";

thread_local! {
    static REACTOR: RefCell<Option<Rc<dyn Reactor>>> = const { RefCell::new(None) };
}

/// For `Builder::on_thread_park`: one submission for everything queued in this turn.
pub(crate) fn on_park() {
    let reactor = REACTOR.with_borrow(Clone::clone);
    if let Some(reactor) = reactor {
        reactor.park();
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
    let mut event = Receiver::from_owned_fd_unchecked(event)?;
    REACTOR.set(Some(Rc::clone(&reactor)));
    tokio::task::spawn_local(async move {
        // The runtime would keep a panic of this task to itself, and nobody would collect completions.
        let _vital = Vital;
        loop {
            if let Err(error) = event.readable().await {
                // The runtime is shutting down.
                tracing::debug!(%error, "ring no longer driven");
                return;
            }
            // Collecting completions may signal the eventfd once more: it is read after that.
            reactor.ready();
            clear(&mut event);
            // Earlier completions are in the ring; later ones are a new signal.
            reactor.ready();
        }
    });
    Ok(())
}

/// Takes the counter to zero. More room than it fills shows the runtime, as for any pipe, that
/// nothing is left to read, so that the readiness is cleared by the same call.
fn clear(event: &mut Receiver) {
    let mut room = [0; 16];
    let mut context = Context::from_waker(Waker::noop());
    // An error is seen by `readable`, and so is that there was nothing.
    let _ = Pin::new(event).poll_read(&mut context, &mut ReadBuf::new(&mut room));
}

/// Takes the ring from this worker, before its thread ends.
pub(crate) fn uninstall() {
    REACTOR.set(None);
}
