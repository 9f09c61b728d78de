//! The journal of acknowledged flushes in a folder, over any [`Disk`]; format: `journal_format.rs`.
//!
//! One writer: requests that come while a frame is being written share the next frame, so one
//! durable write serves every FLUSH that waits. It runs beside the syncs of other files, never
//! before the sync it speaks of. A frame that could not be written is written once more to a new
//! segment (never to the one that failed: what its pages hold is unknown); if that fails too, its
//! flushes are counted as lost, the error is reported, and the flushes are answered all the same.
//! The next segment that can be made begins with a gap record.
//!
//! A segment is made beside the others (`segment.new`), whole and synced, and only then gets its
//! name; older ones go when it has taken its first frame. So attempts that fail leave at most one
//! file and push out nothing.
//!
//! Exposure records of a share are made by a task of its own while lazy changes are acknowledged: an
//! *allowance* of bytes, twice what is owed, and a *lease* of time, renewed at half. Whoever would
//! go beyond waits for the next record; so what a crash can take is bounded by the last durable
//! record, whatever happened since. When nothing is owed any more a record says so.
//!
//! Does not own: what is owed (an [`ExposureSource`] says), when the disk was synced.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    future::poll_fn,
    pin::pin,
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    task::Poll,
    time::Duration,
};

use tokio::sync::{Notify, oneshot};
use vfs::{
    Disk, Env, Identity, VfsError,
    disk::{DiskResult, Errno, OpenHow},
};

use crate::{
    disk_file::{put, put_zeros},
    frames::{ALIGN, HEAD, PAYLOAD_MAX},
    journal::{EXPOSED_FILES_MAX, ExposureSource, FlushJournal, FlushRecord},
    journal_format::{
        ExposureNote, JournalRecord, ShareRoot, StartRecord, frame, segment_name, segment_number,
    },
    latch_store::{STORED_PATH_MAX, StoreTask, cut},
    share::lock,
};

/// How long changes may be acknowledged under one exposure record.
pub const LEASE: Duration = Duration::from_secs(3);
/// Taken off the lease where it is checked: a reply leaves a little after.
const LEASE_MARGIN: Duration = Duration::from_millis(100);
/// Smallest allowance while lazy changes are acknowledged.
pub const ALLOWANCE_MIN: u64 = 32 << 20;
/// How often a share that owes something and acknowledges nothing is looked at.
const PERIOD: Duration = Duration::from_secs(2);
/// How long a promised flush may wait to share a frame.
const PROMISE_DELAY: Duration = Duration::from_millis(200);
/// Most records waiting to be written; beyond it they are counted as lost.
const QUEUE_MAX: usize = 65_536;
/// No new segment is tried for so long after one could not be made.
const BACK_OFF: Duration = Duration::from_secs(1);
/// Longest time that a reply waits for the journal. A disk that hangs holds nobody back: the record
/// is written when it moves again.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// A segment that is being made.
const NEW: &[u8] = b"segment.new";
/// Most names looked at in the folder.
const NAMES_MAX: usize = 100_000;

/// How much is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalLimits {
    /// Bytes of a segment, at least 64 KiB.
    pub segment_bytes: u64,
    /// Segments kept, at least 2; then the oldest is removed.
    pub segments: usize,
}

impl Default for JournalLimits {
    fn default() -> Self {
        Self {
            segment_bytes: 8 << 20,
            segments: 8,
        }
    }
}

/// What the journal is told of the run.
#[derive(Debug, Clone, Default)]
pub struct JournalRun {
    /// The kernel's boot id.
    pub boot: String,
    /// Version of the server.
    pub server: String,
    /// Shares whose flushes are wanted, with their folders.
    pub shares: Vec<ShareRoot>,
}

/// What the journal has done since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JournalCounts {
    /// Records written.
    pub records: u64,
    /// Frames, each one durable write.
    pub frames: u64,
    /// Flushes that could not be written down.
    pub lost: u64,
    /// Segments made.
    pub segments: u64,
}

struct Queued {
    bytes: Vec<u8>,
    /// A flush's: counted if lost.
    flush: bool,
    tell: Option<oneshot::Sender<Result<(), VfsError>>>,
}

#[derive(Default)]
struct Covered {
    allowance: u64,
    /// Monotonic.
    until: Duration,
    /// Asked for since the last record.
    demand: Option<u64>,
    used: Duration,
    waiters: Vec<oneshot::Sender<Result<(), VfsError>>>,
    following: bool,
    kick: Arc<Notify>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Queued>,
    running: bool,
    timer: bool,
    covered: BTreeMap<String, Covered>,
}

struct Writer<F> {
    fd: F,
    number: u64,
    offset: u64,
    frame: u32,
    /// Flushes that its gap record tells of.
    gap: u64,
}

struct Place<F> {
    writer: Option<Writer<F>>,
    /// Of the next segment.
    next: u64,
    /// Segments that hold something.
    numbers: BTreeSet<u64>,
    /// One that holds nothing and could not be removed yet; until then none is made.
    left: Option<u64>,
    failed_at: Option<Duration>,
    /// Lost and not yet told by a gap record.
    untold: u64,
}

/// The journal of a server. See the module head.
pub struct JournalFile<D: Disk> {
    disk: D,
    env: Arc<dyn Env>,
    limits: JournalLimits,
    run: [u8; 16],
    about: Mutex<JournalRun>,
    state: Mutex<State>,
    place: Mutex<Option<Place<D::Fd>>>,
    source: OnceLock<Arc<dyn ExposureSource>>,
    healthy: AtomicBool,
    /// Somebody waited for a write in vain, and it is not done yet.
    late: AtomicBool,
    records: AtomicU64,
    frames: AtomicU64,
    lost: AtomicU64,
    segments: AtomicU64,
    me: Weak<Self>,
}

impl<D: Disk> JournalFile<D> {
    /// Begins a run in the folder that `disk` starts at: makes its first segment.
    ///
    /// # Errors
    /// Of the disk: who asked for a journal shall know that there is none.
    pub async fn open(
        disk: D,
        env: Arc<dyn Env>,
        limits: JournalLimits,
        about: JournalRun,
    ) -> DiskResult<Arc<Self>> {
        let limits = JournalLimits {
            segment_bytes: limits.segment_bytes.max(64 << 10),
            segments: limits.segments.max(2),
        };
        let listed = disk
            .entries(&Identity::Service, &disk.root(), NAMES_MAX)
            .await?;
        let numbers: BTreeSet<u64> = listed
            .iter()
            .filter_map(|entry| segment_number(&entry.name))
            .collect();
        let next = numbers.last().map_or(1, |last| last.saturating_add(1));
        let mut run = [0; 16];
        env.fill_random(&mut run);
        let journal = Arc::new_cyclic(|me| Self {
            disk,
            env,
            limits,
            run,
            about: Mutex::new(about),
            state: Mutex::default(),
            place: Mutex::new(None),
            source: OnceLock::new(),
            healthy: AtomicBool::new(true),
            late: AtomicBool::new(false),
            records: AtomicU64::new(0),
            frames: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            segments: AtomicU64::new(0),
            me: me.clone(),
        });
        let mut place = Place {
            writer: None,
            next,
            numbers,
            left: None,
            failed_at: None,
            untold: 0,
        };
        let first = journal.begin_segment(&mut place, true).await?;
        place.writer = Some(first);
        journal.prune(&mut place).await;
        *lock(&journal.place) = Some(place);
        Ok(journal)
    }

    /// Other shares are wanted from now on (a reload).
    pub fn set_shares(&self, shares: Vec<ShareRoot>) {
        let changed = {
            let mut about = lock(&self.about);
            let changed = about.shares != shares;
            about.shares = shares;
            changed
        };
        if changed {
            let start = self.start_record(false);
            drop(self.append(&start, false, true));
        }
    }

    /// The orderly end: `stable` if everything acknowledged is on stable storage.
    ///
    /// # Errors
    /// The record could not be written; the next report will call the run crashed.
    pub async fn stop(&self, stable: bool) -> Result<(), VfsError> {
        let at = self.env.realtime();
        self.append(&JournalRecord::Stop { at, stable }, false, true)
            .await
    }

    /// What it has done.
    pub fn counts(&self) -> JournalCounts {
        JournalCounts {
            records: self.records.load(SeqCst),
            frames: self.frames.load(SeqCst),
            lost: self.lost.load(SeqCst),
            segments: self.segments.load(SeqCst),
        }
    }

    fn start_record(&self, first: bool) -> JournalRecord {
        let about = lock(&self.about);
        JournalRecord::Start(StartRecord {
            at: self.env.realtime(),
            run: self.run,
            boot: about.boot.clone(),
            server: about.server.clone(),
            first,
            shares: about.shares.clone(),
        })
    }

    /// Queues a record; `now` writes it without delay.
    fn append(&self, record: &JournalRecord, flush: bool, now: bool) -> StoreTask {
        let bytes = record.encode();
        let (tell, told) = oneshot::channel();
        let mut state = lock(&self.state);
        if state.queue.len() >= QUEUE_MAX || bytes.len() > self.payload_max() {
            drop(state);
            self.lose(u64::from(flush));
            return Box::pin(std::future::ready(Err(VfsError::Exhausted)));
        }
        state.queue.push_back(Queued {
            bytes,
            flush,
            tell: now.then_some(tell),
        });
        let run = now && !std::mem::replace(&mut state.running, true);
        let wait = !now && !state.running && !std::mem::replace(&mut state.timer, true);
        drop(state);
        if run {
            self.start_writing(Duration::ZERO);
        } else if wait {
            self.start_writing(PROMISE_DELAY);
        }
        Box::pin(async move { told.await.unwrap_or(Err(VfsError::Io)) })
    }

    /// The task, but no longer than the journal may take.
    fn in_time(&self, task: StoreTask) -> StoreTask {
        if self.late.load(SeqCst) {
            // What was queued is written all the same.
            return Box::pin(std::future::ready(Err(VfsError::Io)));
        }
        let Some(me) = self.me.upgrade() else {
            return task;
        };
        let (mut task, mut end) = (task, self.env.sleep(WAIT_MAX));
        Box::pin(poll_fn(move |cx| {
            if let Poll::Ready(done) = task.as_mut().poll(cx) {
                return Poll::Ready(done);
            }
            end.as_mut().poll(cx).map(|()| {
                me.hangs();
                Err(VfsError::Io)
            })
        }))
    }

    fn hangs(&self) {
        self.late.store(true, SeqCst);
        if self.healthy.swap(false, SeqCst) {
            tracing::error!(
                "the journal of flushes hangs: flushes are honored, and from now on answered \
                 before they are written down"
            );
        }
    }

    fn start_writing(&self, delay: Duration) {
        let Some(me) = self.me.upgrade() else { return };
        self.env.spawn(Box::pin(async move {
            if !delay.is_zero() {
                let timer = Timer(&me);
                me.env.sleep(delay).await;
                drop(timer);
                if std::mem::replace(&mut lock(&me.state).running, true) {
                    return;
                }
            }
            let mut driver = Driver {
                journal: &me,
                place: lock(&me.place).take(),
            };
            me.drive(&mut driver.place).await;
            std::mem::forget(driver);
        }));
    }

    async fn drive(&self, place: &mut Option<Place<D::Fd>>) {
        loop {
            let batch = {
                let mut state = lock(&self.state);
                let mut bytes = 0;
                let mut count = 0;
                for one in &state.queue {
                    bytes += one.bytes.len();
                    if bytes > self.payload_max() {
                        break;
                    }
                    count += 1;
                }
                if count == 0 {
                    // In one step: who queues from here on starts a writer, which finds its place.
                    *lock(&self.place) = place.take();
                    state.running = false;
                    return;
                }
                state.queue.drain(..count).collect::<Vec<_>>()
            };
            let payload: Vec<u8> = batch.iter().flat_map(|one| one.bytes.clone()).collect();
            let written = match place {
                Some(place) => self.write(place, &payload).await,
                // Never: who runs has it.
                None => Err(Errno(libc::EIO)),
            };
            self.late.store(false, SeqCst);
            self.note(place, &batch, written);
            let told = written.map_err(|_| VfsError::Io);
            for tell in batch.into_iter().filter_map(|one| one.tell) {
                // Who went away does not care.
                let _ = tell.send(told);
            }
        }
    }

    fn payload_max(&self) -> usize {
        // Beside it a start record must fit.
        let segment = usize::try_from(self.limits.segment_bytes / 2).unwrap_or(PAYLOAD_MAX);
        PAYLOAD_MAX.min(segment)
    }

    fn note(&self, place: &mut Option<Place<D::Fd>>, batch: &[Queued], written: DiskResult<()>) {
        match written {
            Ok(()) => {
                self.records.fetch_add(batch.len() as u64, SeqCst);
                if !self.healthy.swap(true, SeqCst) {
                    tracing::warn!("the journal of flushes can be written again");
                }
            }
            Err(errno) => {
                let flushes = batch.iter().filter(|one| one.flush).count() as u64;
                self.lose(flushes);
                if let Some(place) = place {
                    place.untold += flushes;
                }
                if self.healthy.swap(false, SeqCst) {
                    tracing::error!(
                        error = %std::io::Error::from_raw_os_error(errno.0),
                        "the journal of flushes cannot be written: flushes are honored, and from \
                         now on not written down"
                    );
                }
            }
        }
    }

    fn lose(&self, flushes: u64) {
        self.lost.fetch_add(flushes, SeqCst);
    }

    /// Writes a frame, in a new segment if this one is full or failed.
    async fn write(&self, place: &mut Place<D::Fd>, payload: &[u8]) -> DiskResult<()> {
        let room = (payload.len() + HEAD).next_multiple_of(ALIGN) as u64;
        let mut full = false;
        if let Some(mut writer) = place.writer.take() {
            full = writer.offset + room > self.limits.segment_bytes;
            if !full {
                match self.write_frame(&mut writer, payload).await {
                    Ok(()) => {
                        place.writer = Some(writer);
                        return Ok(());
                    }
                    Err(errno) => tracing::warn!(
                        error = %std::io::Error::from_raw_os_error(errno.0),
                        "a segment of the journal of flushes failed: trying a new one"
                    ),
                }
            }
        }
        let now = self.env.monotonic();
        if !full && place.failed_at.is_some_and(|at| now < at + BACK_OFF) {
            return Err(Errno(libc::EIO));
        }
        // Until it is over.
        place.failed_at = Some(now);
        let mut writer = self.begin_segment(place, false).await?;
        if let Err(errno) = self.write_frame(&mut writer, payload).await {
            // It holds nothing: it must not take the place of one that does.
            place.untold += writer.gap;
            place.numbers.remove(&writer.number);
            place.left = Some(writer.number);
            // Tried again before the next one is made.
            let _ = self.remove_left(place).await;
            return Err(errno);
        }
        place.failed_at = None;
        place.writer = Some(writer);
        self.prune(place).await;
        Ok(())
    }

    async fn write_frame(&self, writer: &mut Writer<D::Fd>, payload: &[u8]) -> DiskResult<()> {
        let bytes = frame(writer.number, writer.frame, payload);
        let len = bytes.len() as u64;
        put(&self.disk, &writer.fd, writer.offset, bytes.into(), true).await?;
        writer.offset += len;
        writer.frame += 1;
        self.frames.fetch_add(1, SeqCst);
        Ok(())
    }

    /// Makes the next segment, with its start record and whatever gap there is to tell.
    async fn begin_segment(
        &self,
        place: &mut Place<D::Fd>,
        first: bool,
    ) -> DiskResult<Writer<D::Fd>> {
        self.remove_left(place).await?;
        let (me, root) = (&Identity::Service, self.disk.root());
        self.remove(NEW).await?;
        let how = OpenHow {
            write: true,
            create: Some(0o600),
            ..OpenHow::default()
        };
        let fd = self.disk.open_at(me, &root, NEW, how).await?;
        let made = self.fill(&fd, place, first).await;
        let Ok(offset) = made else {
            // Room for others; the next attempt does it otherwise.
            let _ = self.remove(NEW).await;
            return Err(made.err().unwrap_or(Errno(libc::EIO)));
        };
        let number = place.next;
        place.next += 1;
        place.left = Some(number);
        let name = segment_name(number);
        let (from, to) = (&root, &root);
        self.disk
            .rename(me, from, NEW, to, name.as_bytes(), true)
            .await?;
        self.disk.fsync(&root).await?;
        place.left = None;
        place.numbers.insert(number);
        self.segments.fetch_add(1, SeqCst);
        Ok(Writer {
            fd,
            number,
            offset,
            frame: 1,
            gap: std::mem::take(&mut place.untold),
        })
    }

    /// Makes the whole of the next segment stable; answers where its second frame goes.
    async fn fill(&self, fd: &D::Fd, place: &Place<D::Fd>, first: bool) -> DiskResult<u64> {
        let mut payload = self.start_record(first).encode();
        if place.untold > 0 {
            let (at, lost) = (self.env.realtime(), place.untold);
            payload.extend(JournalRecord::Gap { at, lost }.encode());
        }
        let bytes = frame(place.next, 0, &payload);
        let offset = bytes.len() as u64;
        put(&self.disk, fd, 0, bytes.into(), false).await?;
        put_zeros(&self.disk, fd, offset, self.limits.segment_bytes).await?;
        self.disk.fsync(fd).await?;
        Ok(offset)
    }

    /// Removes a file of the folder; it may be gone.
    async fn remove(&self, name: &[u8]) -> DiskResult<()> {
        let (me, root) = (&Identity::Service, self.disk.root());
        match self.disk.unlink(me, &root, name, false).await {
            Ok(()) | Err(Errno(libc::ENOENT)) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    async fn remove_left(&self, place: &mut Place<D::Fd>) -> DiskResult<()> {
        if let Some(number) = place.left {
            self.remove(segment_name(number).as_bytes()).await?;
            place.left = None;
        }
        Ok(())
    }

    /// Removes the oldest segments beyond the limit.
    async fn prune(&self, place: &mut Place<D::Fd>) {
        while place.numbers.len() > self.limits.segments
            && let Some(oldest) = place.numbers.pop_first()
        {
            let name = segment_name(oldest);
            if let Err(errno) = self.remove(name.as_bytes()).await {
                // One segment too many is no harm.
                tracing::warn!(errno = errno.0, name, "cannot remove");
            }
        }
    }

    /// Makes exposure records of a share until it owes nothing and acknowledges nothing.
    async fn follow(&self, share: &str) {
        let mut last = None;
        loop {
            let now = self.env.monotonic();
            let (waiters, demand, idle, kick) = {
                let mut state = lock(&self.state);
                let one = state.covered.entry(share.to_owned()).or_default();
                let idle = one.demand.is_none() && now >= one.used + LEASE;
                if idle {
                    // From here on whoever acknowledges waits for a record that allows it.
                    one.until = Duration::ZERO;
                }
                let demand = one.demand.take();
                let waiters = std::mem::take(&mut one.waiters);
                (waiters, demand, idle, Arc::clone(&one.kick))
            };
            let mut kicked = pin!(kick.notified());
            kicked.as_mut().enable();
            let source = self.source.get();
            let measured = source.and_then(|source| source.exposure_of(share, EXPOSED_FILES_MAX));
            let Some(mut measured) = measured else {
                tell_all(waiters, Ok(()));
                lock(&self.state).covered.remove(share);
                return;
            };
            for file in &mut measured.files {
                cut(&mut file.path, STORED_PATH_MAX);
            }
            let exposure = measured.exposure;
            let owes = exposure.bytes > 0 || exposure.inodes > 0;
            let seen = (exposure.bytes, exposure.inodes, idle);
            if !(idle && last == Some(seen)) {
                let note = if idle {
                    ExposureNote {
                        allowance: exposure.bytes,
                        lease: Duration::ZERO,
                        measured,
                    }
                } else {
                    let most = exposure.bytes.max(demand.unwrap_or(0));
                    ExposureNote {
                        allowance: most.saturating_mul(2).max(ALLOWANCE_MIN),
                        lease: LEASE,
                        measured,
                    }
                };
                self.allow(share, now, note, waiters).await;
                last = Some(seen);
            }
            if idle && !owes {
                let mut state = lock(&self.state);
                let quiet = |one: &Covered| one.demand.is_none() && one.waiters.is_empty();
                if state.covered.get(share).is_none_or(quiet) {
                    state.covered.remove(share);
                    return;
                }
                continue;
            }
            let mut pause = self.env.sleep(PERIOD);
            poll_fn(
                |cx| match (kicked.as_mut().poll(cx), pause.as_mut().poll(cx)) {
                    (Poll::Pending, Poll::Pending) => Poll::Pending,
                    _ => Poll::Ready(()),
                },
            )
            .await;
        }
    }

    /// Writes an exposure record and puts its allowance into force, if it got there.
    async fn allow(
        &self,
        share: &str,
        now: Duration,
        note: ExposureNote,
        waiters: Vec<oneshot::Sender<Result<(), VfsError>>>,
    ) {
        let (allowance, lease) = (note.allowance, note.lease);
        {
            // If the record gets there and the news of it does not, the smaller one must hold.
            let mut state = lock(&self.state);
            if let Some(one) = state.covered.get_mut(share) {
                one.allowance = one.allowance.min(allowance);
            }
        }
        let written = self
            .append(&JournalRecord::Exposure(note), false, true)
            .await;
        let mut state = lock(&self.state);
        if let Some(one) = state.covered.get_mut(share)
            && written.is_ok()
            && !lease.is_zero()
        {
            one.allowance = allowance;
            one.until = now + lease;
        }
        drop(state);
        tell_all(waiters, written);
    }
}

fn tell_all(waiters: Vec<oneshot::Sender<Result<(), VfsError>>>, what: Result<(), VfsError>) {
    for waiter in waiters {
        // Who went away does not care.
        let _ = waiter.send(what);
    }
}

impl<D: Disk> FlushJournal for JournalFile<D> {
    fn wants(&self, share: &str) -> bool {
        lock(&self.about).shares.iter().any(|one| one.name == share)
    }

    fn flushed(&self, mut record: FlushRecord) -> StoreTask {
        cut(&mut record.path, STORED_PATH_MAX);
        let written = self.append(&JournalRecord::Flushed(record), true, true);
        self.in_time(written)
    }

    fn promised(&self, mut record: FlushRecord) {
        cut(&mut record.path, STORED_PATH_MAX);
        drop(self.append(&JournalRecord::Promised(record), true, false));
    }

    fn cover(&self, share: &str, bytes: u64, now: Duration) -> Option<StoreTask> {
        let mut state = lock(&self.state);
        let known = state.covered.contains_key(share);
        if !known {
            state.covered.insert(share.to_owned(), Covered::default());
        }
        let one = state.covered.get_mut(share)?;
        one.used = now;
        let covered = bytes <= one.allowance && now + LEASE_MARGIN < one.until;
        let wanting = bytes > one.allowance / 4 * 3 || now + LEASE / 2 > one.until;
        if covered && !wanting {
            return None;
        }
        let begun = one.demand.is_some();
        one.demand = one.demand.max(Some(bytes));
        let task: Option<StoreTask> = (!covered).then(|| {
            let (tell, told) = oneshot::channel();
            one.waiters.push(tell);
            Box::pin(async move { told.await.unwrap_or(Err(VfsError::Io)) }) as StoreTask
        });
        let follow = !std::mem::replace(&mut one.following, true);
        if !follow && (!begun || task.is_some()) {
            one.kick.notify_one();
        }
        drop(state);
        if follow && let Some(me) = self.me.upgrade() {
            let share = share.to_owned();
            let env = Arc::clone(&self.env);
            env.spawn(Box::pin(async move {
                let gone = Following {
                    journal: &me,
                    share: &share,
                };
                me.follow(&share).await;
                std::mem::forget(gone);
            }));
        }
        task.map(|task| self.in_time(task))
    }

    fn is_healthy(&self) -> bool {
        self.healthy.load(SeqCst)
    }

    fn lost(&self) -> u64 {
        self.lost.load(SeqCst)
    }

    fn set_source(&self, source: Arc<dyn ExposureSource>) {
        // Once, at start; a second one is not expected and not taken.
        let _ = self.source.set(source);
    }
}

/// The delayed writer will look, or is gone.
struct Timer<'a, D: Disk>(&'a JournalFile<D>);

impl<D: Disk> Drop for Timer<'_, D> {
    fn drop(&mut self) {
        lock(&self.0.state).timer = false;
    }
}

/// The writer's worker died under it.
struct Driver<'a, D: Disk> {
    journal: &'a JournalFile<D>,
    place: Option<Place<D::Fd>>,
}

impl<D: Disk> Drop for Driver<'_, D> {
    fn drop(&mut self) {
        let mut place = self.place.take();
        if let Some(place) = &mut place {
            // The kernel may still be writing to that segment.
            place.writer = None;
        }
        let mut state = lock(&self.journal.state);
        *lock(&self.journal.place) = place;
        state.running = false;
        // Nobody shall wait for a writer that may never come; what they queued is written then.
        state.queue.iter_mut().for_each(|one| one.tell = None);
    }
}

/// The worker of a share's follower died under it: the next change starts another one.
struct Following<'a, D: Disk> {
    journal: &'a JournalFile<D>,
    share: &'a str,
}

impl<D: Disk> Drop for Following<'_, D> {
    fn drop(&mut self) {
        if let Some(one) = lock(&self.journal.state).covered.get_mut(self.share) {
            one.following = false;
            one.waiters.clear();
        }
    }
}
