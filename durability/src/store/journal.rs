//! The journal of acknowledged flushes, for shares that want it (`flush_journal`): a log (`log.rs`) in a folder of its
//! own; its records and their bytes: `journal_format.rs`.
//!
//! Invariants: the record of a FLUSH that waits for the disk is stored after the sync that it describes and before the
//! success reply, so a journal that can be written never lacks an acknowledged flush, and no journal claims one that
//! was not done. Under the lazy policies no change is acknowledged beyond the allowance of bytes and time of the last
//! stored *exposure record* (`exposure.rs`), which is thus an upper bound of what a crash can lose.
//!
//! The journal is evidence: one that cannot write reports that itself and fails no request. Flushes that could not be
//! stored are counted as lost, and the next segment that can be made begins with a gap record.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock, Weak},
    time::Duration,
};

use vfs::{Disk, Env, VfsError, VfsResult, disk::DiskResult};

use super::{
    exposure::Covered,
    journal_format::{
        ExposureRecord, FlushRecord, JournalRecord, MAGIC, ShareRoot, StartRecord, fitting, shorten,
    },
    log::{Contents, Log, LogCounts, StoreTask},
    segments::{Segments, Shape},
};

/// The journal's log. It keeps the last 64 MiB.
pub const FLUSHES: Shape = Shape {
    kind: "flushes",
    magic: MAGIC,
    title: "the journal of flushes",
    risk: "flushes are honored, and from now on not recorded",
    segment_bytes: 8 << 20,
    segments: 8,
    is_snapshot: false,
};
/// The name under which early builds made a segment.
const OLD_SPARE: &str = "segment.new";

/// A source of the exposure of shares at this moment; the engine is one.
pub trait ExposureSource: Send + Sync + 'static {
    /// The exposure of `share` when this answers, with an allowance of no more than is dirty. `None`: it is gone.
    fn exposure_of(&self, share: &str) -> Option<ExposureRecord>;
}

/// Stores the records of acknowledged flushes.
pub trait FlushJournal: Send + Sync + 'static {
    /// Whether this share's flushes are to be stored. Ask this first, to save making records.
    fn wants(&self, share: &str) -> bool;

    /// The sync of a FLUSH ended well. The task ends when the record is on stable storage, or with an
    /// error if it cannot be stored or a reply may wait no longer.
    fn flushed(&self, record: FlushRecord) -> StoreTask;

    /// A FLUSH is answered before the disk. Never waits.
    fn promised(&self, record: FlushRecord);

    /// A change is about to be acknowledged with which the share has `bytes` dirty. `None`: the
    /// last durable exposure record allows for it at `now` (monotonic). Otherwise acknowledge
    /// after the task; if the task fails, nothing bounds the change: make it stable first.
    fn cover(&self, share: &str, bytes: u64, now: Duration) -> Option<StoreTask>;

    /// Sets where exposures come from. Call this once, at start.
    fn set_source(&self, source: Arc<dyn ExposureSource>);
}

/// The state from which the first group of each segment is made.
pub(super) struct Run {
    env: Arc<dyn Env>,
    /// The start record; in the first segment it says that no segment of this run was there before.
    start: StartRecord,
    /// Lost flushes that no gap record reports yet; `reporting` counts those of them that the next one reports.
    unreported: u64,
    reporting: u64,
}

impl Run {
    fn start_record(&self) -> JournalRecord {
        JournalRecord::Start(StartRecord {
            at: self.env.realtime(),
            shares: fitting(&self.start.shares),
            ..self.start.clone()
        })
    }
}

impl Contents for Run {
    fn head(&mut self) -> Vec<Vec<u8>> {
        let mut payload = self.start_record().encode();
        self.reporting = self.unreported;
        if self.reporting > 0 {
            let (at, lost) = (self.env.realtime(), self.reporting);
            payload.extend(JournalRecord::Gap { at, lost }.encode());
        }
        vec![payload]
    }

    fn begun(&mut self) {
        self.start.first = false;
        self.unreported -= self.reporting;
    }

    fn lost(&mut self, weight: u64) {
        self.unreported += weight;
    }
}

/// The journal of a server. See the module head.
pub struct JournalFile<D: Disk> {
    pub(super) env: Arc<dyn Env>,
    pub(super) log: Arc<Log<D, Run>>,
    pub(super) source: OnceLock<Arc<dyn ExposureSource>>,
    pub(super) covered: Mutex<BTreeMap<String, Covered>>,
    pub(super) me: Weak<Self>,
}

impl<D: Disk> JournalFile<D> {
    /// Begins a run in the folder that `disk` starts at. `start` names the boot, the server and the shares.
    ///
    /// # Errors
    /// Errors of the disk. The caller reports them, because an administrator asked for a journal and there is none.
    pub async fn open(
        disk: D,
        env: Arc<dyn Env>,
        shape: Shape,
        mut start: StartRecord,
    ) -> DiskResult<Arc<Self>> {
        start.first = true;
        env.fill_random(&mut start.run);
        let run = Run {
            env: Arc::clone(&env),
            start,
            unreported: 0,
            reporting: 0,
        };
        let segments = Segments::find(disk, shape).await?;
        segments.folder.remove(OLD_SPARE).await?;
        let (log, made) = Log::open(Arc::clone(&env), shape, run, segments).await;
        made?;
        Ok(Arc::new_cyclic(|me| Self {
            env,
            log,
            source: OnceLock::new(),
            covered: Mutex::default(),
            me: me.clone(),
        }))
    }

    /// Other shares are wanted from now on (a reload).
    pub fn set_shares(&self, shares: Vec<ShareRoot>) {
        // Nothing waits for this record, and none is written if nothing changes.
        drop(self.log.append(0, false, |run| {
            if run.start.shares == shares {
                return None;
            }
            run.start.shares = shares;
            Some(run.start_record().encode())
        }));
    }

    /// The orderly end: `stable` if everything acknowledged is on stable storage.
    ///
    /// # Errors
    /// The record could not be written; the next report will call the run crashed.
    pub async fn stop(&self, stable: bool) -> VfsResult<()> {
        let at = self.env.realtime();
        self.append(&JournalRecord::Stop { at, stable }, 0, false)
            .await
    }

    /// The counts of its log; `failed` counts flushes that could not be stored.
    pub fn counts(&self) -> LogCounts {
        self.log.counts()
    }

    /// Whether the last write succeeded, and none hangs.
    pub fn is_healthy(&self) -> bool {
        self.log.is_healthy()
    }

    pub(super) fn append(&self, record: &JournalRecord, weight: u64, lazy: bool) -> StoreTask {
        let bytes = record.encode();
        let task = self.log.append(weight, lazy, |_| Some(bytes));
        task.unwrap_or_else(|| Box::pin(std::future::ready(Err(VfsError::Io))))
    }
}

impl<D: Disk> FlushJournal for JournalFile<D> {
    fn wants(&self, share: &str) -> bool {
        let mine = |run: &mut Run| run.start.shares.iter().any(|one| one.name == share);
        self.log.peek(mine)
    }

    fn flushed(&self, mut record: FlushRecord) -> StoreTask {
        shorten(&mut record.path);
        let written = self.append(&JournalRecord::Flushed(record), 1, false);
        self.log.in_time(written)
    }

    fn promised(&self, mut record: FlushRecord) {
        shorten(&mut record.path);
        drop(self.append(&JournalRecord::Promised(record), 1, true));
    }

    fn cover(&self, share: &str, bytes: u64, now: Duration) -> Option<StoreTask> {
        self.cover_exposure(share, bytes, now)
    }

    fn set_source(&self, source: Arc<dyn ExposureSource>) {
        // The source is set once, at start. A second one is not expected and not taken.
        let _ = self.source.set(source);
    }
}
