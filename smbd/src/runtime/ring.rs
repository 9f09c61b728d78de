//! The worker's io_uring, driven by the worker's runtime.
//!
//! The ring must be driven whenever the runtime is about to sleep, and when a descriptor becomes readable because there
//! are completions. `on_park` is called by tokio on the worker's own thread, so the ring lives in a thread-local and
//! needs no lock.
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

use crate::{config::FileIo, runtime::abort::AbortOnPanic};

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
        Ok(ring) => {
            let event = ring.eventfd()?;
            install(move || ring.drive(), event).map(|()| "io_uring")
        }
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
    /// Submits what was queued on the ring of this thread, without waiting, and wakes the tasks whose operations have
    /// ended.
    static DRIVE: RefCell<Option<Rc<dyn Fn()>>> = const { RefCell::new(None) };
}

/// For `Builder::on_thread_park`: one submission for everything queued in this turn.
pub(crate) fn on_park() {
    let drive = DRIVE.with_borrow(Clone::clone);
    if let Some(drive) = drive {
        drive();
    }
}

/// Gives this worker its ring, by what drives it and an eventfd that the kernel signals at each completion; call on the
/// worker's thread, within its runtime.
///
/// # Errors
/// When the eventfd cannot be waited on.
pub fn install(drive: impl Fn() + 'static, event: OwnedFd) -> io::Result<()> {
    let drive: Rc<dyn Fn()> = Rc::new(drive);
    let flags = rustix::fs::fcntl_getfl(&event)?;
    rustix::fs::fcntl_setfl(&event, flags | OFlags::NONBLOCK)?;
    // An eventfd reads like a pipe. (`AsyncFd` would need unsafe code for the same.)
    let mut event = Receiver::from_owned_fd_unchecked(event)?;
    DRIVE.set(Some(Rc::clone(&drive)));
    tokio::task::spawn_local(async move {
        // The runtime would keep a panic of this task to itself, and nobody would collect completions.
        let _abort = AbortOnPanic;
        loop {
            if let Err(error) = event.readable().await {
                // The runtime is shutting down.
                tracing::debug!(%error, "ring no longer driven");
                return;
            }
            // Collecting completions may signal the eventfd once more: it is read after that.
            drive();
            clear(&mut event);
            // Earlier completions are in the ring; later ones are a new signal.
            drive();
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
    DRIVE.set(None);
}
