//! A small map of bytes to bytes that is itself durable, in one log file over any [`Disk`].
//!
//! What is changed together ([`LogMap::change`]) is kept or lost together, and is on stable storage
//! when its task completes. One writer: changes that come while a frame is being written share the
//! next one, so one durable write serves all who wait. The order of the calls is the order on disk.
//!
//! The file is made whole (the map, then room in zeros, so that a frame changes data only), synced
//! and renamed over the old one; that happens at the start, when the room is used up, and after a
//! write that failed: no frame is ever written to a file of which one write failed. Format:
//! `log_map_format.rs`.
//!
//! Invariants: the map in memory is what was asked for, whether it could be stored or not; a task
//! that answers an error says that the disk may have the change or not, and the next file that can
//! be made has it. Who takes a failed change back says so with another change. Bounds:
//! [`LogMapLimits`]; beyond them a change is refused whole and nothing happens.
//! Does not own: what keys and values mean, who may be served without.

use std::{
    collections::{BTreeMap, VecDeque},
    future::poll_fn,
    mem,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    task::Poll,
    time::Duration,
};

use tokio::sync::oneshot;
use vfs::{
    Disk, Env, Identity, VfsError,
    disk::{DiskResult, Errno, OpenHow},
};

use crate::{
    Damage,
    disk_file::{put, put_zeros, read_file},
    frames::{HEAD, PAYLOAD_MAX, aligned, frame},
    latch_store::StoreTask,
    log_map_format::{LogMapError, MAGIC, MapEntry, encode_put, encode_removed, read_log_map},
    record::Out,
    share::lock,
};

/// Longest key in bytes.
pub const KEY_MAX: usize = 64;
/// Longest value in bytes.
pub const VALUE_MAX: usize = 128 << 10;
/// Largest file read.
const FILE_MAX: u64 = 512 << 20;
/// Smallest room for changes in a new file.
const ROOM_MIN: u64 = 1 << 20;
/// Bytes of a snapshot's frame, from which on the next one begins.
const SNAPSHOT_FRAME: usize = 256 << 10;
/// No new file is tried for so long after one could not be made.
const BACK_OFF: Duration = Duration::from_secs(1);
/// Pause before what could not be stored is tried again without anybody asking.
const RETRY: Duration = Duration::from_secs(10);
/// Longest time that a change is waited for. It is written when the disk moves again.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Most groups of changes waiting to be written, and most of their bytes. What is asked for beyond
/// is in force, told as failed, and stored with the whole map as soon as anything can be.
pub(crate) const QUEUE_MAX: usize = 65_536;
const QUEUE_BYTES_MAX: usize = 16 << 20;
/// Added to a name while the file is made, and to a damaged one that is kept aside.
const NEW: &[u8] = b".new";
const REFUSED: &[u8] = b".refused";

/// How much the map takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogMapLimits {
    /// Entries.
    pub entries: usize,
    /// Bytes of all keys and values, at most 64 MiB.
    pub bytes: usize,
}

impl Default for LogMapLimits {
    fn default() -> Self {
        Self {
            entries: 200_000,
            bytes: 64 << 20,
        }
    }
}

/// One change of the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The key has this value from now on.
    Put(Vec<u8>, Vec<u8>),
    /// The key is gone.
    Remove(Vec<u8>),
}

/// What a map has done since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogMapCounts {
    /// Entries now.
    pub entries: usize,
    /// Bytes of keys and values now.
    pub bytes: usize,
    /// Groups of changes stored.
    pub changes: u64,
    /// Durable writes that took.
    pub writes: u64,
    /// Files made.
    pub files: u64,
    /// Groups of changes that could not be stored when they were asked for.
    pub failed: u64,
}

/// A map, and what its file held.
pub struct OpenedMap<D: Disk> {
    /// The map, with the entries that are not doubtful.
    pub map: Arc<LogMap<D>>,
    /// All entries, doubtful ones too.
    pub entries: Vec<MapEntry>,
    /// What was wrong with the file; with any, it is kept as `<name>.refused`.
    pub damage: Vec<Damage>,
}

type Tell = oneshot::Sender<Result<(), VfsError>>;

struct Queued {
    bytes: Vec<u8>,
    /// Who asked for it, and who only waits for all that came before.
    tell: Vec<Tell>,
}

struct State {
    live: BTreeMap<Vec<u8>, Vec<u8>>,
    bytes: usize,
    queue: VecDeque<Queued>,
    /// Of all in the queue.
    queued_bytes: usize,
    /// The queue had no room: the next write is a new file.
    missed: bool,
    running: bool,
    retrying: bool,
}

impl State {
    /// What is asked for, or nothing, and who is to be told. Bounded: who has given up waiting
    /// gives room to others.
    fn push(&mut self, bytes: Vec<u8>, tell: Tell) {
        if bytes.is_empty()
            && let Some(last) = self.queue.back_mut()
        {
            if last.tell.len() == last.tell.capacity() {
                last.tell.retain(|tell| !tell.is_closed());
            }
            if last.tell.len() < QUEUE_MAX {
                last.tell.push(tell);
            }
            return;
        }
        let queued = self.queued_bytes + bytes.len();
        if self.queue.len() >= QUEUE_MAX || queued > QUEUE_BYTES_MAX {
            // The asker hears so because nobody tells it anything.
            self.missed = true;
            return;
        }
        self.queued_bytes = queued;
        let tell = vec![tell];
        self.queue.push_back(Queued { bytes, tell });
    }

    /// The first groups of the queue that one frame holds.
    fn next(&mut self) -> Vec<Queued> {
        let (mut bytes, mut count) = (0, 0);
        for one in &self.queue {
            bytes += one.bytes.len();
            if bytes > PAYLOAD_MAX {
                break;
            }
            count += 1;
        }
        let batch: Vec<_> = self.queue.drain(..count).collect();
        let taken: usize = batch.iter().map(|one| one.bytes.len()).sum();
        self.queued_bytes = self.queued_bytes.saturating_sub(taken);
        batch
    }

    fn take_all(&mut self) -> Vec<Queued> {
        self.queued_bytes = 0;
        self.missed = false;
        self.queue.drain(..).collect()
    }

    /// The map's size after some changes: entries, bytes.
    fn after(&self, changes: &[Change]) -> (usize, usize) {
        let mut touched: BTreeMap<&[u8], usize> = BTreeMap::new();
        for change in changes {
            match change {
                Change::Put(key, value) => touched.insert(key, key.len() + value.len()),
                Change::Remove(key) => touched.insert(key, 0),
            };
        }
        let (mut entries, mut bytes) = (self.live.len(), self.bytes);
        for (key, size) in touched {
            if let Some(old) = self.live.get(key) {
                entries -= 1;
                bytes = bytes.saturating_sub(key.len() + old.len());
            }
            if size > 0 {
                entries += 1;
                bytes += size;
            }
        }
        (entries, bytes)
    }

    fn apply(&mut self, changes: Vec<Change>) {
        (_, self.bytes) = self.after(&changes);
        for change in changes {
            match change {
                Change::Put(key, value) => _ = self.live.insert(key, value),
                Change::Remove(key) => _ = self.live.remove(&key),
            }
        }
    }
}

struct Writer<F> {
    fd: F,
    /// Number of the file, of the next frame, and where that goes.
    segment: u64,
    number: u32,
    offset: u64,
    end: u64,
}

struct Place<F> {
    writer: Option<Writer<F>>,
    /// Of the next file.
    next: u64,
    failed_at: Option<Duration>,
}

/// See the module head.
pub struct LogMap<D: Disk> {
    disk: D,
    env: Arc<dyn Env>,
    name: &'static str,
    limits: LogMapLimits,
    state: Mutex<State>,
    place: Mutex<Option<Place<D::Fd>>>,
    healthy: AtomicBool,
    changes: AtomicU64,
    writes: AtomicU64,
    files: AtomicU64,
    failed: AtomicU64,
    me: Weak<Self>,
}

impl<D: Disk> LogMap<D> {
    /// Reads the file `name` in the folder that `disk` starts at (there may be none) and makes a
    /// new one of what it says. Doubtful entries are answered and not taken over.
    ///
    /// # Errors
    /// Of the disk; or the file is not ours: nothing has changed then.
    pub async fn open(
        disk: D,
        env: Arc<dyn Env>,
        name: &'static str,
        limits: LogMapLimits,
    ) -> Result<OpenedMap<D>, LogMapError> {
        let bytes = read_file(&disk, name.as_bytes(), FILE_MAX).await?;
        let read = match &bytes {
            Some(bytes) => read_log_map(bytes)?,
            None => Default::default(),
        };
        if let Some(bytes) = bytes.filter(|_| !read.damage.is_empty()) {
            // What could not be read is lost with the new file: keep it for whoever looks.
            let aside = [name.as_bytes(), REFUSED].concat();
            let fd = fresh(&disk, &aside).await?;
            put(&disk, &fd, 0, bytes.into(), false).await?;
            disk.fsync(&fd).await?;
        }
        let mut state = State {
            live: BTreeMap::new(),
            bytes: 0,
            queue: VecDeque::new(),
            queued_bytes: 0,
            missed: false,
            running: false,
            retrying: false,
        };
        let sound = read.entries.iter().filter(|entry| !entry.doubtful);
        for entry in sound {
            state.bytes += entry.key.len() + entry.value.len();
            state.live.insert(entry.key.clone(), entry.value.clone());
        }
        let map = Arc::new_cyclic(|me| Self {
            disk,
            env,
            name,
            limits,
            state: Mutex::new(state),
            place: Mutex::new(None),
            healthy: AtomicBool::new(true),
            changes: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            files: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            me: me.clone(),
        });
        let mut place = Place {
            writer: None,
            next: read.segment.wrapping_add(1),
            failed_at: None,
        };
        map.rewrite(&mut place).await.0?;
        *lock(&map.place) = Some(place);
        Ok(OpenedMap {
            map,
            entries: read.entries,
            damage: read.damage,
        })
    }

    /// Makes changes, all or none; the task completes when they are on stable storage, or could
    /// not be brought there (`Io`: they are in force, and stored as soon as that can be done).
    /// Beyond a limit: `Exhausted`, and nothing happened.
    pub fn change(&self, changes: Vec<Change>) -> StoreTask {
        let mut out = Out::default();
        for change in &changes {
            match change {
                Change::Put(key, value) => encode_put(&mut out, key, value),
                Change::Remove(key) => encode_removed(&mut out, key),
            }
        }
        let fits = changes.iter().all(|change| match change {
            Change::Put(key, value) => fits(key) && value.len() <= VALUE_MAX,
            Change::Remove(key) => fits(key),
        });
        let grows = changes
            .iter()
            .any(|change| matches!(change, Change::Put(..)));
        let refused: StoreTask = Box::pin(std::future::ready(Err(VfsError::Exhausted)));
        if !fits || out.0.len() > PAYLOAD_MAX {
            return refused;
        }
        let (tell, told) = oneshot::channel();
        let run = {
            let mut state = lock(&self.state);
            let (entries, bytes) = state.after(&changes);
            let full = entries > self.limits.entries || bytes > self.limits.bytes;
            if grows && full {
                return refused;
            }
            state.apply(changes);
            state.push(out.0, tell);
            !mem::replace(&mut state.running, true)
        };
        if run {
            self.start();
        }
        self.in_time(Box::pin(
            async move { told.await.unwrap_or(Err(VfsError::Io)) },
        ))
    }

    /// The last write succeeded.
    pub fn is_healthy(&self) -> bool {
        self.healthy.load(SeqCst)
    }

    /// Groups that wait to be written, and who waits for them.
    #[cfg(test)]
    pub(crate) fn queued(&self) -> (usize, usize) {
        let queue = &lock(&self.state).queue;
        (queue.len(), queue.iter().map(|one| one.tell.len()).sum())
    }

    /// What it holds and has done.
    pub fn counts(&self) -> LogMapCounts {
        let state = lock(&self.state);
        LogMapCounts {
            entries: state.live.len(),
            bytes: state.bytes,
            changes: self.changes.load(SeqCst),
            writes: self.writes.load(SeqCst),
            files: self.files.load(SeqCst),
            failed: self.failed.load(SeqCst),
        }
    }

    /// The task, but no longer than a reply may wait.
    fn in_time(&self, mut task: StoreTask) -> StoreTask {
        let mut end = self.env.sleep(WAIT_MAX);
        Box::pin(poll_fn(move |cx| {
            if let Poll::Ready(done) = task.as_mut().poll(cx) {
                return Poll::Ready(done);
            }
            end.as_mut().poll(cx).map(|()| Err(VfsError::Io))
        }))
    }

    fn start(&self) {
        let Some(me) = self.me.upgrade() else { return };
        let place = lock(&me.place).take();
        let mut driver = Driver {
            place,
            map: me,
            ended: false,
        };
        self.env.spawn(Box::pin(async move {
            let map = Arc::clone(&driver.map);
            map.drive(&mut driver.place).await;
            driver.end();
        }));
    }

    async fn drive(&self, place: &mut Option<Place<D::Fd>>) {
        loop {
            let batch = {
                let mut state = lock(&self.state);
                let batch = state.next();
                if batch.is_empty() {
                    // In one step: who queues from here on starts a writer, which finds its place.
                    *lock(&self.place) = place.take();
                    state.running = false;
                    return;
                }
                batch
            };
            let (written, mut served) = match place {
                Some(place) => self.write(place, &batch).await,
                // Never: who runs has it.
                None => (Err(Errno(libc::EIO)), Vec::new()),
            };
            served.extend(batch);
            self.note(written, served.len() as u64);
            let told = written.map_err(|_| VfsError::Io);
            for tell in served.into_iter().flat_map(|one| one.tell) {
                // Who went away does not care.
                let _ = tell.send(told);
            }
        }
    }

    /// Stores a batch: in a frame, or in a new file, which serves all who wait by then.
    async fn write(
        &self,
        place: &mut Place<D::Fd>,
        batch: &[Queued],
    ) -> (DiskResult<()>, Vec<Queued>) {
        let payload: Vec<u8> = batch
            .iter()
            .flat_map(|one| one.bytes.iter().copied())
            .collect();
        let room = aligned(HEAD + payload.len()) as u64;
        let mut full = true;
        let missed = lock(&self.state).missed;
        if let Some(mut writer) = place.writer.take().filter(|_| !missed) {
            full = writer.offset + room > writer.end;
            if !full {
                match self.write_frame(&mut writer, &payload).await {
                    Ok(()) => {
                        place.writer = Some(writer);
                        return (Ok(()), Vec::new());
                    }
                    Err(errno) => tracing::warn!(
                        error = %std::io::Error::from_raw_os_error(errno.0),
                        "a write to {} failed: trying a new file", self.name
                    ),
                }
            }
        }
        let now = self.env.monotonic();
        let resting = |at: Duration| now < at + BACK_OFF;
        if full && place.failed_at.is_some_and(resting) {
            return (Err(Errno(libc::EIO)), Vec::new());
        }
        self.rewrite(place).await
    }

    async fn write_frame(&self, writer: &mut Writer<D::Fd>, payload: &[u8]) -> DiskResult<()> {
        let bytes = frame(MAGIC, writer.segment, writer.number, payload);
        let len = bytes.len() as u64;
        put(&self.disk, &writer.fd, writer.offset, bytes.into(), true).await?;
        writer.offset += len;
        writer.number += 1;
        self.writes.fetch_add(1, SeqCst);
        Ok(())
    }

    /// Makes the next file of the map as it is now, and answers who is served by that.
    async fn rewrite(&self, place: &mut Place<D::Fd>) -> (DiskResult<()>, Vec<Queued>) {
        let segment = place.next;
        place.next = segment.wrapping_add(1);
        // Until it is over.
        place.failed_at = Some(self.env.monotonic());
        let (frames, served) = {
            let mut state = lock(&self.state);
            (snapshot(&state.live), state.take_all())
        };
        let made = self.make(segment, frames).await;
        let written = made.map(|writer| {
            place.failed_at = None;
            place.writer = Some(writer);
            self.files.fetch_add(1, SeqCst);
        });
        (written, served)
    }

    async fn make(&self, segment: u64, payloads: Vec<Vec<u8>>) -> DiskResult<Writer<D::Fd>> {
        let (me, root) = (&Identity::Service, self.disk.root());
        let new = [self.name.as_bytes(), NEW].concat();
        let fd = fresh(&self.disk, &new).await?;
        let (mut number, mut offset) = (0, 0);
        for payload in payloads {
            let bytes = frame(MAGIC, segment, number, &payload);
            let len = bytes.len() as u64;
            put(&self.disk, &fd, offset, bytes.into(), false).await?;
            (number, offset) = (number + 1, offset + len);
        }
        let end = offset + offset.max(ROOM_MIN);
        put_zeros(&self.disk, &fd, offset, end).await?;
        self.disk.fsync(&fd).await?;
        self.disk
            .rename(me, &root, &new, &root, self.name.as_bytes(), true)
            .await?;
        self.disk.fsync(&root).await?;
        Ok(Writer {
            fd,
            segment,
            number,
            offset,
            end,
        })
    }

    fn note(&self, written: DiskResult<()>, groups: u64) {
        match written {
            Ok(()) => {
                self.changes.fetch_add(groups, SeqCst);
                if !self.healthy.swap(true, SeqCst) {
                    tracing::warn!("{} can be written again and is", self.name);
                }
            }
            Err(errno) => {
                self.failed.fetch_add(groups, SeqCst);
                if self.healthy.swap(false, SeqCst) {
                    tracing::error!(
                        error = %std::io::Error::from_raw_os_error(errno.0),
                        "{} cannot be written: what changes now is not known after a restart",
                        self.name
                    );
                }
                self.retry_later();
            }
        }
    }

    fn retry_later(&self) {
        if mem::replace(&mut lock(&self.state).retrying, true) {
            return;
        }
        if let Some(me) = self.me.upgrade() {
            let retrying = Retrying(Arc::clone(&me));
            self.env.spawn(Box::pin(async move {
                me.env.sleep(RETRY).await;
                drop(retrying);
                if !me.is_healthy() {
                    // It reports itself.
                    let _ = me.change(Vec::new()).await;
                }
            }));
        }
    }
}

fn fits(key: &[u8]) -> bool {
    (1..=KEY_MAX).contains(&key.len())
}

/// The payloads of a map's first frames; at least one.
fn snapshot(live: &BTreeMap<Vec<u8>, Vec<u8>>) -> Vec<Vec<u8>> {
    let (mut frames, mut out) = (Vec::new(), Out::default());
    for (key, value) in live {
        encode_put(&mut out, key, value);
        if out.0.len() >= SNAPSHOT_FRAME {
            frames.push(mem::take(&mut out.0));
        }
    }
    if frames.is_empty() || !out.0.is_empty() {
        frames.push(out.0);
    }
    frames
}

/// A new, empty file of the root in place of any of that name.
async fn fresh<D: Disk>(disk: &D, name: &[u8]) -> DiskResult<D::Fd> {
    let (me, root) = (&Identity::Service, disk.root());
    match disk.unlink(me, &root, name, false).await {
        Ok(()) | Err(Errno(libc::ENOENT)) => {}
        Err(errno) => return Err(errno),
    }
    let how = OpenHow {
        write: true,
        create: Some(0o600),
        ..OpenHow::default()
    };
    disk.open_at(me, &root, name, how).await
}

/// Somebody will try again, unless his worker dies before: then the next failure or
/// [`LogMap::change`] finds somebody else.
struct Retrying<D: Disk>(Arc<LogMap<D>>);

impl<D: Disk> Drop for Retrying<D> {
    fn drop(&mut self) {
        lock(&self.0.state).retrying = false;
    }
}

/// The writer; dropped before it has ended where its worker died under it.
struct Driver<D: Disk> {
    map: Arc<LogMap<D>>,
    place: Option<Place<D::Fd>>,
    ended: bool,
}

impl<D: Disk> Driver<D> {
    fn end(mut self) {
        self.ended = true;
    }
}

impl<D: Disk> Drop for Driver<D> {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let mut place = self.place.take();
        if let Some(place) = &mut place {
            // The kernel may still be writing to that file: the next change makes a new one.
            place.writer = None;
        }
        // What it was writing may be stored or not; whoever changes something next, on a worker that
        // lives, stores all of it.
        if self.map.healthy.swap(false, SeqCst) {
            tracing::error!("{}: its writer died with its worker", self.map.name);
        }
        let mut state = lock(&self.map.state);
        *lock(&self.map.place) = place;
        state.running = false;
        // Nobody shall wait for a writer that may never come.
        let lost = state.take_all();
        self.map.failed.fetch_add(lost.len() as u64, SeqCst);
    }
}
