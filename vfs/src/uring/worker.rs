//! The ring of a worker thread, and the calls by which its owner drives it.
//!
//! [`UringWorker::new`] makes the calling thread's ring; from then on operations of disks
//! that use rings, polled on this thread, go to it. The owner, who has the event loop, must
//! - call [`UringWorker::drive`] whenever the thread is about to park, and
//! - wait for [`UringWorker::eventfd`] and then call it, too: with deferred task work the ring's own descriptor in
//!   epoll would lose wake-ups.
//!
//! Users' identities are personalities of the ring, registered once per user and thread, at
//! most [`PERSONALITIES_MAX`].

use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    fmt,
    os::fd::OwnedFd,
    rc::Rc,
    sync::Arc,
    task::Waker,
};

use super::sys::Ring;
use crate::{
    Identity, credentials,
    disk::{DiskResult, Errno},
    identity::LocalUser,
    posix_sys as raw,
};

/// The most users whose credentials a ring keeps; the one registered first is dropped first.
pub const PERSONALITIES_MAX: usize = 64;

/// Options of a worker's ring.
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

#[derive(Default)]
struct Personalities {
    ids: BTreeMap<Arc<LocalUser>, u16>,
    order: VecDeque<Arc<LocalUser>>,
}

/// The state of a thread with a ring.
pub(crate) struct ThreadRing {
    pub(super) ring: RefCell<Ring>,
    personalities: RefCell<Personalities>,
    /// The personality under which the service creates and removes names, registered when the thread had no other
    /// identity. `None` if the kernel has no personalities or the thread could not get its own umask; operations on
    /// names then go to the pool.
    service: Option<u16>,
}

thread_local! {
    static LOCAL: RefCell<Option<Rc<ThreadRing>>> = const { RefCell::new(None) };
}

/// The calling thread's ring.
pub(crate) fn local() -> Option<Rc<ThreadRing>> {
    LOCAL.with_borrow(Clone::clone)
}

impl ThreadRing {
    /// The personality for `who`. EPERM if the process cannot act as `who`, ENOSYS if the ring is not for names.
    pub(super) fn personality(&self, who: &Identity) -> DiskResult<u16> {
        let service = self.service.ok_or(Errno(libc::ENOSYS))?;
        let user = match who {
            Identity::Service => return Ok(service),
            Identity::User(user) if credentials::can_switch() => user,
            // The process's own user is allowed, others get EPERM, as for a plain call.
            Identity::User(_) => return credentials::with(who, || Ok(service)),
        };
        let mut known = self.personalities.borrow_mut();
        if let Some(id) = known.ids.get(user) {
            return Ok(*id);
        }
        if known.order.len() >= PERSONALITIES_MAX
            && let Some(oldest) = known.order.pop_front()
            && let Some(id) = known.ids.remove(&oldest)
        {
            self.ring.borrow_mut().unregister_personality(id);
        }
        let id = credentials::with(who, || self.ring.borrow().register_personality())?;
        known.ids.insert(Arc::clone(user), id);
        known.order.push_back(Arc::clone(user));
        Ok(id)
    }

    /// See [`UringWorker::drive`].
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
    /// Makes a ring for the calling thread, and gives the thread its own umask: 0. Other code that creates files on
    /// this thread must set their mode.
    ///
    /// # Errors
    /// The reason why there is none; the disks then work by system calls.
    pub fn new(options: UringOptions) -> Result<Self, Reason> {
        if local().is_some() {
            return Err(Reason::Exists);
        }
        credentials::remember_service();
        // This must precede the ring, whose kernel threads share the thread's umask and identity of that moment.
        let own_umask = raw::own_umask().is_ok();
        credentials::begin_thread().map_err(Reason::Refused)?;
        let ring = Ring::new(options.entries, options.iowq_max_workers).map_err(Reason::Refused)?;
        if !ring.supported() {
            return Err(Reason::TooOld);
        }
        let service = ring.register_personality().ok().filter(|_| own_umask);
        if service.is_none() {
            tracing::warn!("the ring is not used for names: no personality or umask of its own");
        }
        let local = Rc::new(ThreadRing {
            ring: RefCell::new(ring),
            personalities: RefCell::default(),
            service,
        });
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
