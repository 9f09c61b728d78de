//! A pool of threads that wait for the disk in place of the workers.
//!
//! One pool serves the whole process. It has three groups with threads and queues of their own, so that neither slow
//! syncs nor programs on the host that hold leases delay reads and names. Within a group each file system (by its
//! device number) has a queue and a limited number of threads, so that one that hangs delays no other: a new file
//! system always gets threads, however many the others hold. Within a file system's queue the requesters
//! (`requester.rs`) take turns, so that one with thousands of jobs delays each other one by one job. Where one has jobs
//! that take minutes on all threads of a file system, each other requester still gets one of a few spare threads.
//! A full queue gives EAGAIN, so there is no unbounded backlog, and each requester may have half of the places that are
//! free to it. The server's own jobs have as many places as all others together: a delete-on-close of a lost session,
//! or a record in the state folder, must not fail because clients wait for the same disk. Threads start when needed and
//! end when idle for `IDLE_MAX`; the next job is taken from the file system that has the fewest threads.
//!
//! A job wakes the thread of the worker's own core that became idle last, as with the ring's kernel threads
//! (`uring/sys.rs`): the data are in that core's caches, and no other core is interrupted to wake it, or the worker
//! afterwards. A thread that waits for the disk occupies no core. A thread started by a worker inherits its core.
//!
//! A job that was begun runs to its end even if nobody waits for its result any more.

mod fs_jobs;
mod waiting;

use std::{
    collections::BTreeMap,
    io,
    os::fd::OwnedFd,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Mutex, MutexGuard, OnceLock},
    thread::{self, Thread},
    time::Duration,
};

use tokio::sync::oneshot;

use self::fs_jobs::FsJobs;
use crate::{
    Identity, credentials,
    disk::{DiskResult, Errno},
    lock, posix_sys as raw,
    requester::{self, Requester},
};

/// Most threads that read, write and change names on one file system, and most that wait for leases there.
pub const IO_THREADS_MAX: usize = 32;
/// Most threads that sync one file system. The kernel merges the device flushes of syncs that run at once: with 64
/// openers of files of their own, 32 threads need 1.7 times as many flushes as 64, and 128 need no fewer.
pub const SYNC_THREADS_MAX: usize = 64;
/// The threads of a group for all file systems together are at most this many times those of one. Beyond that a file
/// system gets [`THREADS_MIN`].
pub const BUSY_FILE_SYSTEMS_MAX: usize = 4;
/// Threads of a group that a file system gets however many the others hold.
pub const THREADS_MIN: usize = 4;
/// Threads that one file system may have beyond those, for requesters that none of them works for.
pub const SPARE_THREADS_MAX: usize = 8;
/// File systems that a group distinguishes at once. Beyond that, those behind a network or another process, of which
/// many may hang at once, share one queue.
pub const FILE_SYSTEMS_MAX: usize = 256;
/// Most jobs of requesters waiting in a group for one file system, and most of the server itself, beside descriptors
/// that wait to be closed. One more gives EAGAIN, which clients get as STATUS_INSUFFICIENT_RESOURCES.
pub const QUEUE_MAX: usize = 4096;
/// How long a thread waits for work before it ends.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// A group of threads; each job runs on those of one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ThreadGroup {
    /// Reads, writes, names, attributes.
    Io,
    /// Jobs that wait for a flush of the device.
    Sync,
    /// Opens that wait for a program on the host to give up a lease.
    Leases,
}

impl ThreadGroup {
    /// The place for a job that waits for this file system (given by its device number) and no other.
    pub(crate) fn of(self, device: u64) -> Place {
        Place {
            group: self,
            device,
            local: false,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    group: ThreadGroup,
    device: u64,
    /// The file system is known to be on this machine, and not in another process.
    local: bool,
}

impl Place {
    pub(crate) fn local(self, local: bool) -> Self {
        Self { local, ..self }
    }
}

/// A device number that no file system has, for the jobs of those beyond [`FILE_SYSTEMS_MAX`].
const ANY: u64 = 0;

type Job = Box<dyn FnOnce() + Send>;

/// The file system and the requester of a job that a thread has taken.
type Owner = (u64, Requester);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Request,
    Close,
}

/// The only core that a thread may run on, if there is just one.
type Home = Option<usize>;

/// The home of the calling thread; workers are pinned before they first call this.
fn home() -> Home {
    thread_local! {
        static HOME: Home = {
            let set = rustix::thread::sched_getaffinity(None).ok();
            let set = set.filter(|set| set.count() == 1);
            set.and_then(|set| (0..rustix::thread::CpuSet::MAX_CPU).find(|core| set.is_set(*core)))
        };
    }
    HOME.with(|home| *home)
}

/// An idle thread; the caller that takes it out of the list must wake it.
struct Idle {
    home: Home,
    thread: Thread,
}

#[derive(Default)]
struct GroupState {
    file_systems: BTreeMap<u64, FsJobs>,
    threads: usize,
    /// The thread that was busy last is at the end.
    idle: Vec<Idle>,
}

/// The action that a new job requires.
enum Need {
    Call(Thread),
    Start,
    /// All threads are busy and will find the job.
    Nothing,
}

impl GroupState {
    /// The jobs that threads may take.
    fn ready(&self, most: usize) -> usize {
        self.ready_with(self.usual_max(most))
    }

    /// The jobs that threads may take if each file system may have this many usual threads.
    fn ready_with(&self, usual_max: usize) -> usize {
        let each = self.file_systems.values();
        each.map(|fs| fs.ready(usual_max)).sum()
    }

    /// The threads that work for any file system.
    fn running(&self) -> usize {
        self.file_systems.values().map(FsJobs::running).sum()
    }

    /// The usual threads that each file system may have now. Where all together have as many threads as they may, these
    /// are only the few that it must get. Otherwise each thread that becomes free would take one more job of a file
    /// system that hangs.
    fn usual_max(&self, most: usize) -> usize {
        match self.running() >= most * BUSY_FILE_SYSTEMS_MAX {
            true => most.min(THREADS_MIN),
            false => most,
        }
    }

    /// The threads that are idle, or about to take a job.
    fn free(&self) -> usize {
        self.threads.saturating_sub(self.running())
    }

    /// Whether the waiting jobs need one more thread.
    fn wants_thread(&self, most: usize) -> bool {
        let free = self.free();
        let has_few = self.threads < most * BUSY_FILE_SYSTEMS_MAX;
        self.ready(most) > free && (has_few || self.ready_with(most.min(THREADS_MIN)) > free)
    }

    /// The thread for a job that a thread of this home has just queued. A thread that is to be started is counted.
    fn need(&mut self, home: Home, most: usize) -> Need {
        // A job that must wait is for the next thread that ends one of the same file system.
        if self.ready(most) == 0 {
            return Need::Nothing;
        }
        let near = self.idle.iter().rposition(|one| one.home == home);
        if let Some(at) = near {
            return Need::Call(self.idle.remove(at).thread);
        }
        if self.threads < most || self.wants_thread(most) {
            self.threads += 1;
            return Need::Start;
        }
        self.call_any()
    }

    /// The thread for a job that no thread is about to take: the end of a job may let two begin, the next one by turns
    /// on a usual thread, and on a spare one that of the requester whose job ended.
    fn need_more(&mut self, home: Home, most: usize) -> Need {
        let coming = self.free().saturating_sub(self.idle.len());
        match self.ready(most) > coming {
            true => self.need(home, most),
            false => Need::Nothing,
        }
    }

    fn call_any(&mut self) -> Need {
        let one = self.idle.pop();
        one.map_or(Need::Nothing, |one| Need::Call(one.thread))
    }

    /// The next job, of the file system that has the fewest threads.
    fn take(&mut self, most: usize) -> Option<(Owner, Job)> {
        let usual_max = self.usual_max(most);
        let each = self.file_systems.iter_mut();
        let ready = each.filter(|(_, fs)| fs.ready(usual_max) > 0);
        let (device, fs) = ready.min_by_key(|(_, fs)| fs.running())?;
        let (requester, job) = fs.begin(usual_max)?;
        Some(((*device, requester), job))
    }

    fn ended(&mut self, (device, requester): Owner) {
        if let Some(fs) = self.file_systems.get_mut(&device) {
            fs.ended(requester);
            if fs.running() == 0 && fs.waiting.jobs == 0 {
                self.file_systems.remove(&device);
            }
        }
    }
}

struct GroupThreads {
    name: &'static str,
    /// The most threads of one file system.
    threads_max: fn() -> usize,
    start: fn(&'static Self) -> io::Result<()>,
    state: Mutex<GroupState>,
}

static IO: GroupThreads = GroupThreads::new("disk-io", || IO_THREADS_MAX);
static SYNC: GroupThreads = GroupThreads::new("disk-sync", sync_threads_max);
static LEASES: GroupThreads = GroupThreads::new("disk-leases", || IO_THREADS_MAX);

/// [`SYNC_THREADS_MAX`], or the environment's `HOLDFAST_SYNC_THREADS` (1 to 1,024): for measuring
/// only (`sync_threads` of a server in a plan of `holdfast bench matrix`).
fn sync_threads_max() -> usize {
    static MAX: OnceLock<usize> = OnceLock::new();
    *MAX.get_or_init(|| {
        std::env::var("HOLDFAST_SYNC_THREADS")
            .ok()
            .and_then(|text| text.parse::<usize>().ok())
            .map_or(SYNC_THREADS_MAX, |threads| threads.clamp(1, 1024))
    })
}

impl GroupThreads {
    const fn new(name: &'static str, threads_max: fn() -> usize) -> Self {
        Self::with_start(name, threads_max, Self::start_thread)
    }

    const fn with_start(
        name: &'static str,
        threads_max: fn() -> usize,
        start: fn(&'static Self) -> io::Result<()>,
    ) -> Self {
        Self {
            name,
            threads_max,
            start,
            state: Mutex::new(GroupState {
                file_systems: BTreeMap::new(),
                threads: 0,
                idle: Vec::new(),
            }),
        }
    }

    fn start_thread(&'static self) -> io::Result<()> {
        let thread = thread::Builder::new().name(self.name.into());
        thread.spawn(move || self.work()).map(drop)
    }

    fn lock(&self) -> MutexGuard<'_, GroupState> {
        lock(&self.state)
    }

    /// Queues a job. One of a request is refused if as many wait for its file system as may, in all or for its
    /// requester.
    fn submit_for(&'static self, purpose: Purpose, place: Place, job: Job) -> DiskResult<()> {
        let most = (self.threads_max)();
        let mut state = self.lock();
        let known = place.local || state.file_systems.contains_key(&place.device);
        let device = match known || state.file_systems.len() < FILE_SYSTEMS_MAX {
            true => place.device,
            false => ANY,
        };
        let fs = state.file_systems.entry(device).or_default();
        let requester = match purpose {
            Purpose::Close => {
                fs.closing += 1;
                Requester::SERVER
            }
            Purpose::Request => {
                let requester = requester::current();
                if !fs.has_room_for(requester) {
                    return Err(Errno(libc::EAGAIN));
                }
                requester
            }
        };
        fs.waiting.push(requester, purpose, job);
        let need = state.need(home(), most);
        drop(state);
        self.meet(need);
        Ok(())
    }

    fn meet(&'static self, need: Need) {
        match need {
            Need::Call(thread) => thread.unpark(),
            Need::Start if (self.start)(self).is_err() => self.retire(),
            Need::Start | Need::Nothing => {}
        }
    }

    /// Removes a thread that ends. It may have been meant for a waiting job, so another one is woken. If none is free,
    /// the jobs of file systems without a thread are dropped (their callers get EAGAIN), because all other threads may
    /// hang.
    fn retire(&self) {
        let mut state = self.lock();
        state.threads -= 1;
        let mut lost = BTreeMap::new();
        if state.free() == 0 {
            let (served, unserved) = std::mem::take(&mut state.file_systems)
                .into_iter()
                .partition(|(_, fs)| fs.running() > 0);
            state.file_systems = served;
            lost = unserved;
        }
        let wanted = state.ready((self.threads_max)()) > 0;
        if wanted && let Need::Call(thread) = state.call_any() {
            thread.unpark();
        }
        // The jobs are dropped after the lock, because a job may own a descriptor whose closing uses the pool.
        drop(state);
        drop(lost);
    }

    fn next(&'static self) -> Option<(Owner, Job)> {
        let (home, most) = (home(), (self.threads_max)());
        loop {
            let mut state = self.lock();
            if let Some(next) = state.take(most) {
                let need = state.need_more(home, most);
                drop(state);
                self.meet(need);
                return Some(next);
            }
            state.idle.push(Idle {
                home,
                thread: thread::current(),
            });
            drop(state);
            if !self.is_called() {
                return None;
            }
        }
    }

    /// Waits for a job. Returns false if none came and the thread must end.
    fn is_called(&self) -> bool {
        // This may return without a reason: then this thread ends early, and the next job starts another one.
        thread::park_timeout(IDLE_MAX);
        let mut state = self.lock();
        let me = thread::current().id();
        let Some(at) = state.idle.iter().position(|one| one.thread.id() == me) else {
            return true;
        };
        state.idle.remove(at);
        let wanted = state.ready((self.threads_max)()) > 0;
        state.threads -= usize::from(!wanted);
        wanted
    }

    fn work(&'static self) {
        if raw::own_umask().is_err() {
            tracing::warn!("no umask of its own for a disk thread: the process's umask applies");
        }
        if credentials::begin_thread().is_err() {
            tracing::error!("a disk thread could not become the service; it ends");
            return self.retire();
        }
        while let Some((owner, job)) = self.next() {
            // A panic of a job for whose result nobody waits is a bug, too, and the thread continues.
            let _ = catch_unwind(AssertUnwindSafe(job));
            self.lock().ended(owner);
            if credentials::broken() {
                // This thread would refuse every job, so another one takes its place.
                return self.retire();
            }
        }
    }
}

/// The size in bytes that most short-lived buffers do not exceed.
const USUAL_BYTES: usize = 2 << 20;

/// Returns freed memory to the kernel, whole pages at a time; true if there was any. Allocations may have to wait
/// meanwhile, so it must not be called under load or on a worker.
#[must_use]
pub fn give_back_memory() -> bool {
    raw::trim_arenas()
}

/// Limits the allocator to one arena for each worker and two for all other threads; to be called before the workers
/// start. glibc assigns arenas in the order in which threads first allocate, and later threads share one. With glibc's
/// default, an arena for each thread that ever ran, the process keeps twice the memory after an hour of mixed load.
pub fn share_arenas(workers: usize) {
    raw::limit_arenas(workers.saturating_add(2));
    // glibc adapts its thresholds to the largest mapped block that was freed, and then keeps up to twice its size in an
    // arena. Before that it returns memory from 128 KiB on, so that every other READ of 64 KiB would fault its pages in
    // again.
    drop(std::hint::black_box(Vec::<u8>::with_capacity(USUAL_BYTES)));
}

fn threads_of(group: ThreadGroup) -> &'static GroupThreads {
    match group {
        ThreadGroup::Io => &IO,
        ThreadGroup::Sync => &SYNC,
        ThreadGroup::Leases => &LEASES,
    }
}

/// Runs `call`, which creates nothing, on a thread of the group as the service, without waiting for it. If the queue is
/// full it is dropped here.
pub(crate) fn post(place: Place, call: impl FnOnce() + Send + 'static) {
    let call = Box::new(move || {
        if credentials::assume_to_look().is_ok() {
            call();
        }
    });
    let _ = threads_of(place.group).submit_for(Purpose::Request, place, call);
}

/// Closes a descriptor on a thread of the group. A full queue takes it, too, because it must not be closed here; its
/// limit is that of descriptors.
pub(crate) fn close(place: Place, fd: OwnedFd) {
    let job = Box::new(move || drop(fd));
    let _ = threads_of(place.group).submit_for(Purpose::Close, place, job);
}

/// Runs `call` on a thread of the group as `who` and returns its result. EAGAIN if the group's queue is full or no
/// thread could be started for it; EIO if it was begun and did not end.
pub(crate) async fn run<T: Send + 'static>(
    place: Place,
    who: Identity,
    call: impl FnOnce() -> DiskResult<T> + Send + 'static,
) -> DiskResult<T> {
    run_under(place, move || credentials::assume(&who), call).await
}

/// As [`run`], as the service, for a call that creates nothing: the thread's groups may stay those of the last user.
pub(crate) async fn look<T: Send + 'static>(
    place: Place,
    call: impl FnOnce() -> DiskResult<T> + Send + 'static,
) -> DiskResult<T> {
    run_under(place, credentials::assume_to_look, call).await
}

async fn run_under<T: Send + 'static>(
    place: Place,
    assume: impl FnOnce() -> DiskResult<()> + Send + 'static,
    call: impl FnOnce() -> DiskResult<T> + Send + 'static,
) -> DiskResult<T> {
    let (send, receive) = oneshot::channel();
    let call = Box::new(move || {
        let answer = assume().and_then(|()| {
            // A panic is a bug, which the panic hook reports.
            catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(Errno(libc::EIO)))
        });
        let _ = send.send(answer);
    });
    threads_of(place.group).submit_for(Purpose::Request, place, call)?;
    // The sender is dropped only with a job that was not begun.
    receive.await.unwrap_or(Err(Errno(libc::EAGAIN)))
}

#[cfg(test)]
pub(super) mod tests;
