//! The questions of READ and WRITE about a stream, answered without taking the file's lock.
//!
//! The answers are counters, which the engine keeps under the lock and requests keep while they are under way.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

use tokio::sync::Mutex;

/// Answers the questions of READ and WRITE without taking the file's lock.
#[derive(Debug, Clone)]
pub struct Quick {
    pub(super) shared: Arc<QuickState>,
    /// The caching group of this open; 0 for none.
    pub(super) group: u64,
    /// This open may change data.
    pub(super) writes: bool,
}

/// The state that [`Quick`] reads; the stream updates it under the lock.
#[derive(Debug, Default)]
pub(super) struct QuickState {
    pub(super) ranges: AtomicUsize,
    pub(super) cachers: AtomicU64,
    pub(super) time_keepers: AtomicUsize,
    /// The file may lack FILE_ATTRIBUTE_ARCHIVE.
    pub(super) lacks_archive: AtomicBool,
    changes: AtomicUsize,
    writers: AtomicUsize,
    reads: AtomicUsize,
    turn: OnceLock<Box<Mutex<()>>>,
}

impl QuickState {
    /// More than one group caches, or one whose caching its own write would break too.
    pub(super) const SEVERAL: u64 = u64::MAX;
}

/// Counts an open that may change the stream's data, until it is dropped.
#[derive(Debug)]
pub(super) struct Writer(Arc<QuickState>);

impl Writer {
    pub(super) fn of(shared: &Arc<QuickState>, writes: bool) -> Option<Self> {
        writes.then(|| {
            shared.writers.fetch_add(1, Ordering::SeqCst);
            Self(Arc::clone(shared))
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.writers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Counts something that is under way, until it is dropped.
#[derive(Debug)]
pub struct Ongoing<'a>(&'a AtomicUsize);

impl<'a> Ongoing<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Ongoing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Quick {
    /// Whether the stream has byte-range locks, so that READ and WRITE must ask `check_io`.
    pub fn ranges_in_use(&self) -> bool {
        self.shared.ranges.load(Ordering::SeqCst) != 0
    }

    /// Whether another open of the stream may change its data.
    pub fn others_write(&self) -> bool {
        self.shared.writers.load(Ordering::SeqCst) > usize::from(self.writes)
    }

    /// Whether the file may lack FILE_ATTRIBUTE_ARCHIVE, so that a change must set it; see
    /// [`super::Files::lacks_archive`].
    pub fn lacks_archive(&self) -> bool {
        self.shared.lacks_archive.load(Ordering::SeqCst)
    }

    /// Counts a READ of the stream that may wait for the disk, until the result is dropped.
    #[must_use]
    pub fn read(&self) -> Ongoing<'_> {
        Ongoing::begin(&self.shared.reads)
    }

    /// Whether a READ or a change of data is under way. Such a request may hold the inode's lock, or pages that are not
    /// up to date, while it waits for the disk.
    pub fn is_busy(&self) -> bool {
        // Changes that take turns are not counted.
        self.shared.reads.load(Ordering::SeqCst) != 0
            || self.has_changes_without_turn()
            || self.keeps_times()
    }

    /// Whether an open of the stream leaves times as they are, so that changes take turns.
    pub fn keeps_times(&self) -> bool {
        self.shared.time_keepers.load(Ordering::SeqCst) != 0
    }

    /// While the returned value lives, changes take turns as if an open of the stream left times as they are.
    #[must_use]
    pub fn keep_times(&self) -> Ongoing<'_> {
        Ongoing::begin(&self.shared.time_keepers)
    }

    /// Counts a change that takes no turn because nobody keeps times, until the result is dropped. Both this and
    /// [`Quick::keep_times`] first count themselves and then look at the other count, so that one of them sees the
    /// other. `None` if times are kept.
    #[must_use]
    pub fn change_without_turn(&self) -> Option<Ongoing<'_>> {
        let change = Ongoing::begin(&self.shared.changes);
        (!self.keeps_times()).then_some(change)
    }

    /// Whether changes are under way that took no turn.
    pub fn has_changes_without_turn(&self) -> bool {
        self.shared.changes.load(Ordering::SeqCst) != 0
    }

    /// The lock that gives changes of data their turn if times are kept; overwrites and changes of EAs always take it.
    pub fn turn(&self) -> &Mutex<()> {
        self.shared.turn.get_or_init(Box::default)
    }

    /// Whether this open belongs to an oplock or lease, even if no caching is left of it.
    pub fn caches(&self) -> bool {
        self.group != 0
    }

    /// Whether another client caches the stream, so that a change of its data must pass `Files::operation`. A request
    /// that changes data (WRITE, a truncating CREATE, SET_INFO) checks this before the change, because it must wait for
    /// a client that caches writes, and again after it, because a client that was granted a read cache meanwhile may
    /// hold the old bytes. READ need not check: no other client caches writes while this open has data access.
    pub fn others_cache(&self) -> bool {
        let cachers = self.shared.cachers.load(Ordering::SeqCst);
        cachers != 0 && cachers != self.group
    }
}
