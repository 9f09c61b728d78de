//! The ring of a worker thread, and the calls by which its owner drives it.
//!
//! [`UringWorker::new`] makes the calling thread's ring; from then on operations of disks
//! that use rings, polled on this thread, go to it. The owner, who has the event loop, must
//! - call [`UringWorker::drive`] whenever the thread is about to park, and
//! - wait for [`UringWorker::eventfd`] and then call it, too: with deferred task work the ring's own descriptor in
//!   epoll would lose wake-ups.

use std::{cell::RefCell, fmt, os::fd::OwnedFd, rc::Rc, task::Waker};

use super::sys::Ring;
use crate::{
    credentials,
    disk::{DiskResult, Errno},
};

#[derive(Debug, Clone, Copy)]
pub struct UringOptions {
    /// Submission entries; four times as many operations may be in flight.
    pub entries: u32,
    /// Kernel threads for operations that block. Beyond that, and beyond the part of one file system
    /// (`kernel_threads.rs`), operations are declined.
    pub iowq_max_workers: u32,
}

impl Default for UringOptions {
    fn default() -> Self {
        Self {
            entries: 256,
            iowq_max_workers: 64,
        }
    }
}

/// The reason why there is no ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The kernel or a sandbox refuses rings (this errno).
    Refused(Errno),
    /// The kernel lacks operations that are needed (Linux before 5.15).
    TooOld,
    /// The thread has a ring already.
    Exists,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(errno) => write!(f, "io_uring is refused: {errno}"),
            Self::TooOld => f.write_str("this kernel's io_uring lacks operations"),
            Self::Exists => f.write_str("this thread has a ring already"),
        }
    }
}

impl std::error::Error for Reason {}

/// Checks whether io_uring can be used here by making a ring.
///
/// # Errors
/// The reason why it cannot be used.
pub fn probe() -> Result<(), Reason> {
    let ring = Ring::new(8, 1).map_err(Reason::Refused)?;
    if ring.supported() {
        Ok(())
    } else {
        Err(Reason::TooOld)
    }
}

/// The state of a thread with a ring.
pub(crate) struct ThreadRing {
    pub(super) ring: RefCell<Ring>,
}

thread_local! {
    static LOCAL: RefCell<Option<Rc<ThreadRing>>> = const { RefCell::new(None) };
}

pub(crate) fn local() -> Option<Rc<ThreadRing>> {
    LOCAL.with_borrow(Clone::clone)
}

impl ThreadRing {
    pub(crate) fn drive(&self) {
        let mut wakers: Vec<Waker> = Vec::new();
        let mut ring = self.ring.borrow_mut();
        if ring.wants_enter() {
            ring.enter();
        }
        ring.drain(&mut wakers);
        drop(ring);
        for waker in wakers {
            waker.wake();
        }
    }
}

/// The handle of a thread's ring; the ring is freed when this and all operations are gone.
pub struct UringWorker {
    local: Rc<ThreadRing>,
}

impl UringWorker {
    /// Makes a ring for the calling thread.
    ///
    /// # Errors
    /// The reason why there is none; the disks then work by system calls.
    pub fn new(options: UringOptions) -> Result<Self, Reason> {
        if local().is_some() {
            return Err(Reason::Exists);
        }
        credentials::remember_service();
        // This must precede the ring, whose kernel threads have the thread's identity of that moment.
        credentials::begin_thread().map_err(Reason::Refused)?;
        let ring = Ring::new(options.entries, options.iowq_max_workers).map_err(Reason::Refused)?;
        if !ring.supported() {
            return Err(Reason::TooOld);
        }
        let ring = RefCell::new(ring);
        let local = Rc::new(ThreadRing { ring });
        LOCAL.set(Some(Rc::clone(&local)));
        Ok(Self { local })
    }

    /// Becomes readable when completions wait. The owner must call [`Self::drive`], read it (8 bytes, without blocking),
    /// and call [`Self::drive`] again; later completions make it readable once more. It is a duplicate of the ring's
    /// eventfd, so that a reactor can own it: tokio takes it without `unsafe` as
    /// `net::unix::pipe::Receiver::from_owned_fd_unchecked`.
    ///
    /// # Errors
    /// EMFILE.
    pub fn eventfd(&self) -> DiskResult<OwnedFd> {
        self.local.ring.borrow().event()
    }

    /// Submits the operations queued since the last call, runs completions and wakes their futures. It is cheap if there
    /// is nothing to do.
    pub fn drive(&self) {
        self.local.drive();
    }

    /// Operations that the ring has completed so far.
    #[must_use]
    pub fn completed(&self) -> u64 {
        self.local.ring.borrow().completed()
    }

    /// Operations that the kernel is carrying out.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.local.ring.borrow().in_flight()
    }
}

impl Drop for UringWorker {
    fn drop(&mut self) {
        // While the thread ends, the slot may already be gone.
        let _ = LOCAL.try_with(|slot| slot.borrow_mut().take());
    }
}
