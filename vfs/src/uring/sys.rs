//! The ring itself, and the ownership of the memory that the kernel reads and writes for its operations.
//!
//! Invariant on which all unsafe code here relies: an [`Operation`] is in `slots` from before its submission entry
//! is pushed until after its completion entry was seen, and nothing touches it in between. Its pointers refer to
//! heap memory that does not move with it. A future that is dropped marks the slot [`State::Abandoned`]; the memory
//! stays.
//!
//! A ring that is dropped waits for its operations in flight; those that do not end in [`DRAIN_ROUNDS`] x
//! [`DRAIN_SPAN`] are leaked rather than freed under the kernel.

use std::{
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::Arc,
    task::Waker,
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use io_uring::{EnterFlags, IoUring, opcode, squeue, types};
use slab::Slab;

use super::kernel_threads::KernelThreads;
use crate::disk::{DiskResult, Errno};

/// How often and how long a dropped ring waits for what is in flight.
const DRAIN_ROUNDS: usize = 50;
const DRAIN_SPAN: Duration = Duration::from_millis(100);

/// A descriptor that stays open while an operation uses it.
pub(crate) struct HeldFd {
    pub(crate) fd: Arc<dyn AsFd + Send + Sync>,
    /// The file system (a device number) for which an operation on it may occupy a kernel thread; `None` if it does
    /// not.
    pub(crate) occupies: Option<u64>,
}

/// One operation with everything the kernel needs until it is complete.
pub(super) enum Operation {
    /// Up to `len` bytes into the spare capacity of `buf`.
    Read {
        fd: HeldFd,
        offset: u64,
        len: u32,
        buf: BytesMut,
    },
    /// Writes `data` or its beginning.
    Write {
        fd: HeldFd,
        offset: u64,
        data: Bytes,
    },
}

impl Operation {
    fn occupies(&self) -> Option<u64> {
        match self {
            Self::Read { fd, .. } | Self::Write { fd, .. } => fd.occupies,
        }
    }

    /// The submission entry. Its pointers are valid as long as `self` is neither dropped nor changed; moving it is
    /// fine.
    fn entry(&mut self) -> squeue::Entry {
        let raw = |held: &HeldFd| types::Fd(held.fd.as_fd().as_raw_fd());
        match self {
            Self::Read {
                fd,
                offset,
                len,
                buf,
            } => {
                buf.reserve(usize::try_from(*len).unwrap_or(0));
                let spare = buf.spare_capacity_mut();
                *len = (*len).min(u32::try_from(spare.len()).unwrap_or(u32::MAX));
                opcode::Read::new(raw(fd), spare.as_mut_ptr().cast(), *len)
                    .offset(*offset)
                    .build()
            }
            Self::Write { fd, offset, data } => {
                let len = u32::try_from(data.len()).unwrap_or(u32::MAX);
                // It was tried without waiting where the file system allows that: the kernel need not try again first.
                opcode::Write::new(raw(fd), data.as_ptr(), len)
                    .offset(*offset)
                    .build()
                    .flags(squeue::Flags::ASYNC)
            }
        }
    }
}

/// A finished operation, and the non-negative number that the kernel returned, or its error.
pub(super) type Ended = (Operation, DiskResult<u32>);

enum State {
    Waiting(Option<Waker>),
    Done(DiskResult<u32>),
    /// Nobody waits for the result; the memory is kept until the operation ends.
    Abandoned,
}

struct Slot {
    operation: Operation,
    state: State,
}

/// One ring, its eventfd and its operations in flight. It belongs to one thread.
pub(super) struct Ring {
    ring: IoUring,
    event: OwnedFd,
    slots: Slab<Slot>,
    threads: KernelThreads,
    /// Operations whose completion was not seen yet.
    in_flight: usize,
    in_flight_max: usize,
    unsubmitted: bool,
    completed: u64,
}

/// A ring with the best task-work mode this kernel has.
fn build(entries: u32) -> DiskResult<IoUring> {
    let cq = entries.saturating_mul(4);
    let mut best = IoUring::builder();
    best.setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .setup_cqsize(cq)
        .dontfork();
    let mut good = IoUring::builder();
    good.setup_coop_taskrun()
        .setup_taskrun_flag()
        .setup_cqsize(cq)
        .dontfork();
    let mut plain = IoUring::builder();
    plain.setup_cqsize(cq).dontfork();
    best.build(entries)
        .or_else(|_| good.build(entries))
        .or_else(|_| plain.build(entries))
        .map_err(Errno::from)
}

/// Keeps the ring's kernel threads on the cores of the calling thread. On the worker's own core a
/// write finds its data in the cache into which they were received, and no other core is needed to wake the thread and
/// then the worker (WRITE of 64 KiB: 38.9 to 37.8 us, sealed 51.9 to 44.1). A thread that waits for the disk occupies
/// no core, so the worker continues meanwhile.
fn stay_near(ring: &IoUring) {
    // SAFETY: plain data, all zero is the empty set.
    let mut cores: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let size = std::mem::size_of_val(&cores);
    // SAFETY: `cores` is `size` bytes of ours to write; 0 is the calling thread.
    let known = unsafe { libc::sched_getaffinity(0, size, &raw mut cores) } == 0;
    // This needs Linux 5.14; without it the threads run on any core.
    if known && let Err(e) = ring.submitter().register_iowq_aff(&cores) {
        tracing::debug!(%e, "the ring's kernel threads may run on any core");
    }
}

impl Ring {
    /// A ring of `entries` submissions for the calling thread; its kernel threads for regular
    /// files are limited to `workers`.
    pub(super) fn new(entries: u32, workers: u32) -> DiskResult<Self> {
        let ring = build(entries)?;
        let flags = rustix::event::EventfdFlags::NONBLOCK | rustix::event::EventfdFlags::CLOEXEC;
        let event = rustix::event::eventfd(0, flags)?;
        ring.submitter().register_eventfd(event.as_raw_fd())?;
        // The limits are for bounded and unbounded work: without them a burst starts a kernel thread for each write.
        let limited = ring
            .submitter()
            .register_iowq_max_workers(&mut [workers, workers]);
        if let Err(e) = limited {
            tracing::warn!(%e, "the ring's kernel threads could not be limited");
        }
        stay_near(&ring);
        let in_flight_max = usize::try_from(entries).unwrap_or(0).saturating_mul(4);
        Ok(Self {
            ring,
            event,
            slots: Slab::new(),
            threads: KernelThreads::new(workers),
            in_flight: 0,
            in_flight_max,
            unsubmitted: false,
            completed: 0,
        })
    }

    /// Whether the kernel knows the operations used here, and one that is as old as the limit for the threads
    /// (Linux 5.15).
    pub(super) fn supported(&self) -> bool {
        let mut probe = io_uring::Probe::new();
        let codes = [
            opcode::Read::CODE,
            opcode::Write::CODE,
            opcode::MkDirAt::CODE,
        ];
        self.ring.submitter().register_probe(&mut probe).is_ok()
            && codes.into_iter().all(|code| probe.is_supported(code))
    }

    pub(super) fn event(&self) -> DiskResult<OwnedFd> {
        Ok(self.event.try_clone()?)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(super) fn completed(&self) -> u64 {
        self.completed
    }

    /// Queues an operation. Returns its key, or the operation if there is no room.
    pub(super) fn push(&mut self, operation: Operation, waker: Waker) -> Result<usize, Operation> {
        let occupies = operation.occupies();
        if self.in_flight >= self.in_flight_max || !self.threads.begin(occupies) {
            return Err(operation);
        }
        let place = self.slots.vacant_entry();
        let key = place.key();
        let slot = place.insert(Slot {
            operation,
            state: State::Waiting(Some(waker)),
        });
        let entry = slot.operation.entry().user_data(key as u64);
        for _ in 0..2 {
            // SAFETY: everything the entry points at is owned by the operation in `slots`, stays there untouched until
            // its completion was seen (`drain`) and does not move: buffers are on the heap, descriptors are held open
            // by it.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                self.unsubmitted = true;
                self.in_flight += 1;
                return Ok(key);
            }
            self.enter();
        }
        self.threads.end(occupies);
        Err(self.slots.remove(key).operation)
    }

    /// Submits the queue to the kernel and lets it run completions that wait for this thread.
    pub(super) fn enter(&mut self) {
        let queued = u32::try_from(self.ring.submission().len()).unwrap_or(u32::MAX);
        let flags = EnterFlags::GETEVENTS.bits();
        // SAFETY: no argument is passed; submitting what was pushed is sound as said in `push`.
        let entered = unsafe {
            self.ring
                .submitter()
                .enter::<libc::sigset_t>(queued, 0, flags, None)
        };
        match entered.map_err(Errno::from) {
            Ok(_) | Err(Errno(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
            Err(e) => tracing::error!(errno = e.0, "io_uring_enter failed"),
        }
        self.unsubmitted = !self.ring.submission().is_empty();
    }

    /// Whether [`Self::enter`] has something to do: a queue to submit, or completions that the kernel keeps until this
    /// thread comes (`IORING_SQ_TASKRUN`, an overflow).
    pub(super) fn wants_enter(&mut self) -> bool {
        if self.unsubmitted {
            return true;
        }
        let queue = self.ring.submission();
        queue.taskrun() || queue.cq_overflow()
    }

    /// Takes all completions. The wakers must be woken while the ring is not borrowed.
    pub(super) fn drain(&mut self, wakers: &mut Vec<Waker>) {
        for completion in self.ring.completion() {
            let Ok(key) = usize::try_from(completion.user_data()) else {
                continue;
            };
            let Some(slot) = self.slots.get_mut(key) else {
                continue;
            };
            self.in_flight = self.in_flight.saturating_sub(1);
            self.threads.end(slot.operation.occupies());
            self.completed += 1;
            let outcome = u32::try_from(completion.result())
                .map_err(|_| Errno(completion.result().saturating_neg()));
            match std::mem::replace(&mut slot.state, State::Done(outcome)) {
                State::Waiting(waker) => wakers.extend(waker),
                State::Abandoned | State::Done(_) => drop(self.slots.remove(key)),
            }
        }
    }

    /// The finished operation and its outcome; `None` while it runs (then `waker` is woken).
    pub(super) fn take(&mut self, key: usize, waker: &Waker) -> Option<Ended> {
        if let State::Waiting(old) = &mut self.slots.get_mut(key)?.state {
            match old {
                Some(old) if old.will_wake(waker) => {}
                _ => *old = Some(waker.clone()),
            }
            return None;
        }
        let slot = self.slots.try_remove(key)?;
        match slot.state {
            State::Done(outcome) => Some((slot.operation, outcome)),
            _ => None,
        }
    }

    /// Abandons an operation whose result nobody will take. The caller must drop the waker while the ring is not
    /// borrowed.
    pub(super) fn abandon(&mut self, key: usize) -> Option<Waker> {
        let slot = self.slots.get_mut(key)?;
        match std::mem::replace(&mut slot.state, State::Abandoned) {
            State::Waiting(waker) => waker,
            State::Done(_) | State::Abandoned => {
                self.slots.remove(key);
                None
            }
        }
    }
}

/// The buffer of a finished read with the `got` bytes that the kernel put there.
pub(super) fn filled(mut buf: BytesMut, asked: u32, got: u32) -> BytesMut {
    let len = buf.len() + usize::try_from(got.min(asked)).unwrap_or(0);
    if len <= buf.capacity() {
        // SAFETY: called with the operation of a completed read, whose `asked` bytes of spare
        // capacity were the kernel's; it initialised the first `got` of them.
        unsafe { buf.set_len(len) };
    }
    buf
}

impl Drop for Ring {
    fn drop(&mut self) {
        let span = types::Timespec::from(DRAIN_SPAN);
        let arguments = types::SubmitArgs::new().timespec(&span);
        let mut wakers = Vec::new();
        if self.in_flight > 0 {
            // Operations are cancelled if possible; kernels before 6.0 cannot do that, so the operations are waited
            // for.
            let any = types::CancelBuilder::any();
            let _ = self.ring.submitter().register_sync_cancel(Some(span), any);
        }
        for _ in 0..DRAIN_ROUNDS {
            if self.in_flight == 0 {
                return;
            }
            let _ = self.ring.submitter().submit_with_args(1, &arguments);
            self.drain(&mut wakers);
        }
        tracing::error!(
            operations = self.in_flight,
            "the ring's memory is leaked: it is in use"
        );
        std::mem::forget(std::mem::take(&mut self.slots));
    }
}
