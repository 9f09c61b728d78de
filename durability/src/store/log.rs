//! A log: records in the order of the calls, one writer, group commit.
//!
//! Records that come while a group is being written share the next one, so one durable write serves
//! all requests that wait. A new segment (`segments.rs`) begins with the groups that the log's [`Contents`] give.
//!
//! **Failure.** Records that could not be written are written anew to another segment. If none can be made, the
//! contents note the loss, waiters get an error, and a new segment is tried with the next record ([`BACK_OFF`] later at
//! the earliest) and after [`RETRY`]. If the disk hangs, one wait lasts [`WAIT_MAX`]; then no request waits until the
//! disk answers again, and the records are written then. Both make the log unhealthy, which is reported once.
//!
//! The log knows nothing of files, or of the meaning of records.

use std::{
    collections::{BTreeSet, VecDeque},
    mem,
    pin::Pin,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::sync::oneshot;
use vfs::{
    Disk, Env, VfsError, VfsResult,
    disk::{DiskResult, Errno},
    lock,
};

use super::{
    groups::PAYLOAD_MAX,
    segments::{Segments, Shape},
};
use crate::tasks::{OnDrop, Waiter, answer_all, race};

/// No new segment is tried for so long after one could not be made.
const BACK_OFF: Duration = Duration::from_secs(1);
/// Pause before a store that failed tries again by itself.
const RETRY: Duration = Duration::from_secs(10);
/// Longest time that a record is waited for.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// How long a record that nobody waits for may wait to share a group.
const LAZY_DELAY: Duration = Duration::from_millis(200);
/// Most records waiting to be written, and most of their bytes.
pub(crate) const QUEUE_MAX: usize = 65_536;
const QUEUE_BYTES_MAX: usize = 16 << 20;

/// Completes when the store has done what was asked, or could not. The work goes on if the task is
/// dropped. It is not `Send`: poll it on the worker that made it.
pub type StoreTask = Pin<Box<dyn Future<Output = VfsResult<()>>>>;

/// The state that a log stores: it gives the groups that a new segment begins with.
pub(super) trait Contents: Send + 'static {
    fn head(&mut self) -> Vec<Vec<u8>>;
    /// The segment that begins with the last [`Contents::head`] is stable.
    fn begun(&mut self) {}
    /// Records of this weight in all could not be stored; the next segment's head may say so.
    fn lost(&mut self, _weight: u64) {}
    /// A record that fits in one sector and goes to the old segment if there is no room for a new one.
    fn overflow_entry(&mut self) -> Option<Vec<u8>> {
        None
    }
}

/// The figures of a log since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogCounts {
    /// Records stored.
    pub records: u64,
    /// The durable writes that these records took.
    pub writes: u64,
    /// Segments made.
    pub segments: u64,
    /// The weight of the records that could not be stored when they were asked for.
    pub failed: u64,
}

struct Queued {
    bytes: Vec<u8>,
    /// The amount that its loss adds to [`LogCounts::failed`].
    weight: u64,
    /// The task that asked for it, and those that only wait for all that came before.
    tell: Vec<Waiter>,
}

struct LogState<C> {
    contents: C,
    queue: VecDeque<Queued>,
    queued_bytes: usize,
    /// The segment lacks something: the next write begins a new one.
    renew: bool,
    running: bool,
    /// The delays of the tasks that sleep and will then look for what is to be written.
    alarms: BTreeSet<Duration>,
    /// The weight of the records that are being written.
    in_flight: u64,
    /// The last writer died with its worker.
    died: bool,
    /// When no segment could be made, and why.
    failed: Option<(Duration, Errno)>,
    counts: LogCounts,
}

impl<C: Contents> LogState<C> {
    /// Queues a record; false if there is no room. A task that only waits (`bytes` is empty) joins
    /// the last queued record, if any; tasks that gave up waiting there make room for others.
    fn push(&mut self, bytes: Vec<u8>, weight: u64, tell: Waiter) -> bool {
        if bytes.is_empty()
            && let Some(last) = self.queue.back_mut()
        {
            if last.tell.len() == last.tell.capacity() {
                last.tell.retain(|tell| !tell.is_closed());
            }
            if last.tell.len() < QUEUE_MAX {
                last.tell.push(tell);
            }
            return true;
        }
        let queued = self.queued_bytes + bytes.len();
        if self.queue.len() >= QUEUE_MAX || queued > QUEUE_BYTES_MAX {
            return false;
        }
        self.queued_bytes = queued;
        let tell = vec![tell];
        self.queue.push_back(Queued {
            bytes,
            weight,
            tell,
        });
        true
    }

    /// The first records of the queue that one group holds.
    fn next(&mut self, payload_max: usize) -> Vec<Queued> {
        let (mut bytes, mut count) = (0, 0);
        for one in &self.queue {
            if bytes + one.bytes.len() > payload_max {
                break;
            }
            bytes += one.bytes.len();
            count += 1;
        }
        self.queued_bytes = self.queued_bytes.saturating_sub(bytes);
        self.queue.drain(..count).collect()
    }
}

/// A log. See the module head.
pub(super) struct Log<D: Disk, C: Contents> {
    env: Arc<dyn Env>,
    shape: Shape,
    state: Mutex<LogState<C>>,
    /// The segments that records go to; the writer holds this lock while it runs.
    place: tokio::sync::Mutex<Segments<D>>,
    healthy: AtomicBool,
    /// A task waited in vain for a write that is still not done.
    late: AtomicBool,
    me: Weak<Self>,
}

impl<D: Disk, C: Contents> Log<D, C> {
    /// Makes the first segment of this run. If that fails, the error is returned with the log, which
    /// can be used all the same and tries again with every record.
    pub(super) async fn open(
        env: Arc<dyn Env>,
        shape: Shape,
        contents: C,
        segments: Segments<D>,
    ) -> (Arc<Self>, DiskResult<()>) {
        let log = Arc::new_cyclic(|me| Self {
            env,
            shape,
            state: Mutex::new(LogState {
                contents,
                queue: VecDeque::new(),
                queued_bytes: 0,
                renew: false,
                running: false,
                alarms: BTreeSet::new(),
                in_flight: 0,
                died: false,
                failed: None,
                counts: LogCounts::default(),
            }),
            place: tokio::sync::Mutex::new(segments),
            healthy: AtomicBool::new(true),
            late: AtomicBool::new(false),
            me: me.clone(),
        });
        let made = {
            let mut place = log.place.lock().await;
            // Of a killed process the newest segment may have no stable name. Until it has, the older ones are kept.
            if place.folder.sync().await.is_ok() {
                place.retire().await;
            }
            let made = log.begin(&mut place, Vec::new(), &mut Vec::new()).await;
            if let Err(errno) = made {
                log.unhealthy(errno);
            }
            place.tidy().await;
            made
        };
        (log, made)
    }

    /// Changes the contents and queues the record that `change` returns; an empty one waits for all
    /// before it. `None` if `change` returns that. A `lazy` record is written a little later.
    pub(super) fn append(
        &self,
        weight: u64,
        lazy: bool,
        change: impl FnOnce(&mut C) -> Option<Vec<u8>>,
    ) -> Option<StoreTask> {
        let (tell, told) = oneshot::channel();
        let (run, idle) = {
            let mut state = lock(&self.state);
            let bytes = change(&mut state.contents)?;
            if bytes.len() > self.payload_max() || !state.push(bytes, weight, tell) {
                // The task that asked gets an error, because the sender is dropped.
                self.lose(&mut state, weight);
            }
            let idle = !state.running;
            state.running |= !lazy;
            (idle && !lazy, idle && lazy)
        };
        if run {
            self.start();
        } else if idle {
            self.look_after(LAZY_DELAY);
        }
        let written = async move { told.await.unwrap_or(Err(VfsError::Io)) };
        Some(Box::pin(written))
    }

    /// The end of the write that covers all calls so far; `None` if none is under way or waits.
    pub(super) fn end_of_writes(&self) -> Option<StoreTask> {
        let running = lock(&self.state).running;
        let end_of_writes = running.then(|| self.append(0, false, |_| Some(Vec::new())));
        end_of_writes.flatten().map(|task| self.in_time(task))
    }

    /// Waits for the end of the writer, which tidies after its waiters were answered: its worker may end then.
    pub(super) async fn at_rest(&self) {
        if let (Some(end_of_writes), Some(me)) = (self.end_of_writes(), self.me.upgrade()) {
            let ended = async move {
                let written = end_of_writes.await;
                // The writer holds this lock until its end.
                drop(me.place.lock().await);
                written
            };
            let _ = self.in_time(Box::pin(ended)).await;
        }
    }

    pub(super) fn peek<T>(&self, look: impl FnOnce(&mut C) -> T) -> T {
        look(&mut lock(&self.state).contents)
    }

    /// Whether the last write succeeded and none hangs.
    pub(super) fn is_healthy(&self) -> bool {
        self.healthy.load(SeqCst)
    }

    pub(super) fn counts(&self) -> LogCounts {
        lock(&self.state).counts
    }

    /// Records that wait to be written, and how many wait for them.
    #[cfg(test)]
    pub(super) fn queued(&self) -> (usize, usize) {
        let queue = &lock(&self.state).queue;
        (queue.len(), queue.iter().map(|one| one.tell.len()).sum())
    }

    /// The task, with an error once a reply may wait no longer ([`WAIT_MAX`]), or at once while the disk hangs.
    pub(super) fn in_time(&self, task: StoreTask) -> StoreTask {
        let me = self.me.upgrade();
        let Some(me) = me.filter(|_| !self.late.load(SeqCst)) else {
            // Records that are queued are written all the same.
            return Box::pin(std::future::ready(Err(VfsError::Io)));
        };
        let end = self.env.sleep(WAIT_MAX);
        Box::pin(race(task, async move {
            end.await;
            me.late.store(true, SeqCst);
            me.unhealthy(Errno(libc::ETIMEDOUT));
            Err(VfsError::Io)
        }))
    }

    fn unhealthy(&self, errno: Errno) {
        if self.healthy.swap(false, SeqCst) {
            tracing::error!(
                error = %errno,
                "{} cannot be written: {}", self.shape.title, self.shape.risk
            );
        }
    }

    fn lose(&self, state: &mut LogState<C>, weight: u64) {
        state.renew = true;
        state.contents.lost(weight);
        state.counts.failed += weight;
    }

    fn payload_max(&self) -> usize {
        if self.shape.is_snapshot {
            return PAYLOAD_MAX;
        }
        // The head of a new segment must fit beside the payload.
        let half = usize::try_from(self.shape.segment_bytes / 2).unwrap_or(PAYLOAD_MAX);
        PAYLOAD_MAX.min(half)
    }

    fn start(&self) {
        let Some(log) = self.me.upgrade() else { return };
        let me = Arc::clone(&log);
        let died = OnDrop::new(move || me.writer_died());
        self.env.spawn(Box::pin(async move {
            log.drive().await;
            died.disarm();
        }));
    }

    /// The worker that ran the writer died.
    fn writer_died(&self) {
        if self.healthy.swap(false, SeqCst) {
            tracing::error!("{}: its writer died with its worker", self.shape.title);
        }
        let mut state = lock(&self.state);
        // The records in flight may be stored or not, so they count as lost.
        let weight = mem::take(&mut state.in_flight);
        self.lose(&mut state, weight);
        (state.died, state.running) = (true, false);
        // No task must wait for a writer that may never come. If one comes, it writes what is queued.
        state.queue.iter_mut().for_each(|one| one.tell.clear());
    }

    /// Looks for what is to be written after this time. If the worker of this task dies, nothing is
    /// lost: the next record or failure starts another task.
    fn look_after(&self, time: Duration) {
        let Some(log) = self.me.upgrade() else { return };
        if !lock(&log.state).alarms.insert(time) {
            return;
        }
        let me = Arc::clone(&log);
        let alarm = OnDrop::new(move || _ = lock(&me.state).alarms.remove(&time));
        self.env.spawn(Box::pin(async move {
            log.env.sleep(time).await;
            drop(alarm);
            // The log reports its own errors.
            drop(log.append(0, false, |_| Some(Vec::new())));
        }));
    }

    async fn drive(&self) {
        let mut place = self.place.lock().await;
        if mem::take(&mut lock(&self.state).died) {
            // The kernel may still be writing to that segment.
            place.give_up();
        }
        loop {
            let mut batch = {
                let mut state = lock(&self.state);
                let batch = state.next(self.payload_max());
                if batch.is_empty() {
                    // In the same step as the look at the queue: a record that comes later starts a writer.
                    state.running = false;
                    return;
                }
                state.in_flight = weight(&batch);
                batch
            };
            let written = self.write(&mut place, &mut batch).await;
            self.note(written, &batch);
            let waiters = batch.into_iter().flat_map(|one| one.tell);
            answer_all(waiters, written.map_err(|_| VfsError::Io));
            place.tidy().await;
        }
    }

    fn note(&self, written: DiskResult<()>, batch: &[Queued]) {
        self.late.store(false, SeqCst);
        let mut state = lock(&self.state);
        state.in_flight = 0;
        if let Err(errno) = written {
            self.lose(&mut state, weight(batch));
            drop(state);
            self.unhealthy(errno);
            self.look_after(RETRY);
            return;
        }
        let records = batch.iter().filter(|one| !one.bytes.is_empty());
        state.counts.records += records.count() as u64;
        drop(state);
        if !self.healthy.swap(true, SeqCst) {
            tracing::warn!("{} can be written again", self.shape.title);
        }
    }

    /// Stores a batch: in a group, or in a new segment.
    async fn write(&self, place: &mut Segments<D>, batch: &mut Vec<Queued>) -> DiskResult<()> {
        let records: Vec<&[u8]> = batch.iter().map(|one| one.bytes.as_slice()).collect();
        let payload = records.concat();
        let renew = lock(&self.state).renew;
        if !renew && place.fits(payload.len()) {
            if payload.is_empty() {
                return Ok(());
            }
            let Err(errno) = place.write(&payload).await else {
                lock(&self.state).counts.writes += 1;
                return Ok(());
            };
            tracing::warn!(
                error = %errno,
                "a write to {} failed: trying a new segment", self.shape.title
            );
        }
        let failed = lock(&self.state).failed;
        match failed {
            Some((at, errno)) if self.env.monotonic() < at + BACK_OFF => Err(errno),
            _ => self.begin(place, payload, batch).await,
        }
    }

    /// Makes the next segment with head and payload. A snapshot's head covers all queued records: these join the batch.
    async fn begin(
        &self,
        place: &mut Segments<D>,
        payload: Vec<u8>,
        batch: &mut Vec<Queued>,
    ) -> DiskResult<()> {
        let now = self.env.monotonic();
        let mut payloads = {
            let mut state = lock(&self.state);
            // Stands until the attempt is over, or if the worker dies during it.
            state.failed = Some((now, Errno(libc::EIO)));
            state.renew = false;
            if self.shape.is_snapshot {
                state.queued_bytes = 0;
                batch.extend(state.queue.drain(..));
                state.in_flight = weight(batch);
            }
            state.contents.head()
        };
        if !self.shape.is_snapshot && !payload.is_empty() {
            payloads.push(payload);
        }
        let made = place.begin(payloads).await;
        let word = {
            let mut state = lock(&self.state);
            let Err(errno) = made else {
                state.failed = None;
                state.contents.begun();
                state.counts.segments += 1;
                state.counts.writes += u64::from(!batch.is_empty());
                return Ok(());
            };
            state.failed = Some((now, errno));
            state.contents.overflow_entry()
        };
        if let Some(word) = word
            && let Err(errno) = place.say_last(&word).await
        {
            let title = self.shape.title;
            tracing::error!(
                errno = errno.0,
                "nor can {title} take the note that records are missing"
            );
        }
        made
    }
}

fn weight(records: &[Queued]) -> u64 {
    records.iter().map(|one| one.weight).sum()
}
