//! The flusher: syncs in the background what is dirty, by age, by bytes and by number.
//!
//! Invariants:
//! - Each share has one flusher task while anything of it is dirty. If its worker dies, the next change starts another.
//! - A dirty inode is due at half the bound's delay (earlier if the disk is slow or much is dirty), or without a bound
//!   at `dirty_age_max`. Under a bound it is also due when half of the bytes are used up.
//! - The flusher only starts syncs: waiting for one never delays the next.
//! - A file system whose disk hangs uses up neither the syncs nor the dirty inodes of another one, also in one share,
//!   and what is due there costs a flusher no more than the syncs that may run at once.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque, btree_map::Entry},
    pin::pin,
    sync::{Arc, Mutex, atomic::Ordering::Relaxed},
    time::Duration,
};

use tokio::sync::oneshot;
use vfs::{FileKey, VfsError, VfsResult, Volume};

use crate::{
    dirty::Inode,
    metrics::count,
    report::StopReport,
    share::{Charged, Share, lock},
    sync::Durability,
    tasks::{OnDrop, race},
};

/// Longest sleep of a flusher, so that a clock that jumps forward cannot hold it back for long.
const SLEEP_MAX: Duration = Duration::from_secs(60);

/// How long a change that is held back waits for the syncs of older ones before its own inode is synced.
const OTHERS_FIRST: Duration = Duration::from_millis(250);

/// Pause before a background sync that could not be begun is asked for again.
const RETRY: Duration = Duration::from_millis(20);

impl<V: Volume> Durability<V> {
    /// Starts the flusher of a share, whose `flusher` flag is set already.
    pub(crate) fn start_flusher(&self, share: &Arc<Share>) {
        let owned = Arc::clone(share);
        // Made before the task, which may be dropped before it runs: then the next change starts another flusher.
        let guard = OnDrop::new(move || lock(&owned.ages).flusher = false);
        if let Some(me) = self.me.upgrade() {
            let share = Arc::clone(share);
            self.env.spawn(Box::pin(async move {
                me.run_flusher(&share).await;
                // Nothing of the share is dirty, and the flag is cleared.
                guard.disarm();
            }));
        }
    }

    async fn run_flusher(&self, share: &Arc<Share>) {
        let mut planned = Duration::MAX;
        loop {
            let mut kicked = pin!(share.kick.notified());
            kicked.as_mut().enable();
            let now = self.now();
            let Some((due, next)) = self.due(share, now) else {
                return;
            };
            // On a busy host the flusher is woken late. It may be so next time, and that counts as part of its syncs.
            let late = now.saturating_sub(planned);
            for key in due {
                self.start_background_sync(key, share, late);
            }
            planned = next;
            let span = next.saturating_sub(now).min(SLEEP_MAX);
            race(self.env.sleep(span), kicked).await;
        }
    }

    /// The inodes to sync now, and when to look again (`Duration::MAX`: when kicked). `None`: nothing is dirty.
    fn due(&self, share: &Share, now: Duration) -> Option<(Vec<FileKey>, Duration)> {
        let (bound, most) = (share.bound(), self.limits.syncs_in_flight_max.max(1));
        let mut ages = lock(&share.ages);
        if ages.is_empty() {
            ages.flusher = false;
            return None;
        }
        let all = bound.is_some_and(|bound| ages.bytes() > bound.max_bytes / 2);
        let in_background = lock(&self.in_background);
        let mut due = Vec::new();
        let mut next = Duration::MAX;
        for (fs, on) in &ages.on {
            let delay = bound.map_or(Duration::MAX, |bound| {
                lock(&share.latency).start_age(&bound, on.rounds(most), now)
            });
            let delay = delay.min(self.limits.dirty_age_max);
            // A file system that hangs takes no room from another.
            let busy = in_background.keys().filter(|one| one.fs == *fs).count();
            let mut room = most.saturating_sub(busy);
            for ((since, _), Charged { key, .. }) in &on.charges {
                if !all && now < *since + delay && !share.is_due_now(*since) {
                    next = next.min(*since + delay);
                    break;
                }
                let begun = in_background.get(key);
                let covered = |begun: &BTreeSet<Duration>| begun.last() >= Some(since);
                if begun.is_some_and(covered) || due.contains(key) {
                    continue;
                }
                // A change made after the last background sync of the inode began does not wait for the end of that.
                if begun.is_none() {
                    if room == 0 {
                        // The end of a sync kicks the flusher again.
                        break;
                    }
                    room -= 1;
                }
                due.push(*key);
            }
        }
        ages.flusher_rests = next == Duration::MAX;
        Some((due, next))
    }

    /// Syncs one inode in the background; the sync was due `late` ago.
    pub(crate) fn start_background_sync(&self, key: FileKey, share: &Arc<Share>, late: Duration) {
        let Some(me) = self.me.upgrade() else { return };
        let begun = self.now();
        let mut in_background = lock(&self.in_background);
        if !in_background.entry(key).or_default().insert(begun) {
            return;
        }
        drop(in_background);
        count(&share.metrics.syncs_background);
        let share = Arc::clone(share);
        let core = Arc::clone(&me);
        let ended = OnDrop::new(move || {
            if let Entry::Occupied(mut all) = lock(&core.in_background).entry(key) {
                all.get_mut().remove(&begun);
                if all.get().is_empty() {
                    all.remove();
                }
            }
            // A request that waits for room picks another inode if this one stayed dirty.
            core.room.notify_waiters();
            // The limit on syncs in flight is for all shares: each flusher may have waited for it.
            let shares = core.shares();
            shares.iter().for_each(|share| share.kick.notify_one());
        });
        self.env.spawn(Box::pin(async move {
            let _ended = ended;
            // The sync itself poisons its inode if it fails, and reports that.
            let result = me.barrier(key, None).await;
            if result != Err(VfsError::NotStarted) {
                let (bound, now) = (share.bound(), me.now());
                let span = late + now.saturating_sub(begun);
                lock(&share.latency).background_synced(span, now, bound.as_ref());
            } else {
                // The inode stays in `in_background` during the pause, so that it is not started again at once.
                me.env.sleep(RETRY).await;
            }
        }));
    }

    /// Holds the caller back after a change of this inode while dirty inodes hold more descriptors than they may. The
    /// oldest ones are synced first. Where that makes no room, because a program on the host or a slow disk delays the
    /// syncs of other users' inodes, the caller's own is synced, and then it need not wait.
    pub(crate) async fn limit_dirty(&self, share: &Share, key: FileKey) {
        if self.has_room_for(key) {
            return;
        }
        count(&share.metrics.backpressure);
        let older = self.room_for(key, || self.sync_oldest(key.fs));
        race(older, self.env.sleep(OTHERS_FIRST)).await;
        let own = async {
            while self.barrier(key, None).await == Err(VfsError::NotStarted) {
                self.env.sleep(RETRY).await;
            }
        };
        race(self.room_for(key, || ()), own).await;
    }

    /// Whether nothing has to be synced for a change of this inode to be answered: also if it is clean by now.
    fn has_room_for(&self, key: FileKey) -> bool {
        !self.is_too_dirty(key.fs) || self.peek(key, Inode::is_dirty) != Some(true)
    }

    /// Waits until there is room; before each wait it takes a step to make some.
    async fn room_for(&self, key: FileKey, step: impl Fn()) {
        loop {
            let room = self.room.notified();
            if self.has_room_for(key) {
                return;
            }
            step();
            room.await;
        }
    }

    /// Syncs the oldest dirty inode of a file system, or of any if all of those are being synced.
    fn sync_oldest(&self, fs: u64) {
        let shares = self.shares();
        let oldest = shares.iter().filter_map(|share| {
            let ages = lock(&share.ages);
            let in_background = lock(&self.in_background);
            let firsts = ages.on.iter().filter_map(|(of, on)| {
                let mut charges = on.charges.iter();
                let waits = |charge: &Charged| !in_background.contains_key(&charge.key);
                let ((since, _), charge) = charges.find(|(_, charge)| waits(charge))?;
                Some((*of != fs, *since, charge.key))
            });
            Some((firsts.min()?, share))
        });
        if let Some(((.., key), share)) = oldest.min_by_key(|(first, _)| *first) {
            self.start_background_sync(key, share, Duration::ZERO);
        }
    }

    /// The inodes that were changed, or are open, through a share that is `wanted`, and those with which one is
    /// charged: its bound holds also for changes through other shares.
    fn keys_of(&self, wanted: impl Fn(&Arc<Share>) -> bool) -> BTreeSet<FileKey> {
        let opened = |inode: &Inode<V>| inode.opens.iter().any(|some| wanted(&some.share));
        let keys = self.keys(|_, inode| inode.is_of(&wanted) || opened(inode));
        let mut charged = self.shares();
        charged.retain(|share| wanted(share));
        let charged = charged.iter().flat_map(|share| share.dirty());
        keys.into_iter().chain(charged).collect()
    }

    /// Syncs everything dirty of a share, including the writes in flight.
    pub(crate) async fn sync_share(&self, share: &Arc<Share>) -> StopReport {
        let keys = self.keys_of(|one| one == share);
        let mut report = self.sync_many(keys).await;
        // Inodes that failed before are not stable either, and nothing syncs them any more.
        for poisoned in self.poisoned_where(|_, inode| inode.shares().contains(share)) {
            if !report.errors.iter().any(|(key, _)| *key == poisoned.key) {
                report.add(poisoned.key, 0, Err(poisoned.error));
            }
        }
        report
    }

    /// Syncs everything dirty of a share, in its folder, and on the file system of its root, because other shares
    /// may have changed what is below it. The report covers only inodes that are surely in the folder.
    pub(crate) async fn sync_root(&self, share: &Arc<Share>, vfs: &V, root: FileKey) -> StopReport {
        let known = self.keys_in(share, vfs);
        let report = self.sync_many(known.clone()).await;
        // Failures of these are reported on the shares that made the changes.
        let others = self.keys(|key, _| key.fs == root.fs && !known.contains(key));
        self.sync_many(others.into_iter().collect()).await;
        report
    }

    /// The inodes that are dirty or being written in the folder of a share, whichever share changed them. They count as
    /// flushed through this one: if their syncs fail, the next FLUSH of the root fails, too.
    pub(crate) fn keys_in(&self, share: &Arc<Share>, vfs: &V) -> BTreeSet<FileKey> {
        let roots = self.roots_within(share, vfs);
        let mine = |inode: &Inode<V>| inode.is_of(|known| known.is_within(&roots));
        let mut others = self.find(|key, inode| {
            let held = inode.held().filter(|_| inode.is_busy() && !mine(inode));
            Some((key, held?.clone()))
        });
        // The path is asked for without the inode's lock. One that has a path is in the folder or mounted below it.
        others.retain(|(_, held)| vfs.path_hint(&held.node).is_some());
        let mut keys: BTreeSet<FileKey> = self.keys(|_, inode| mine(inode)).into_iter().collect();
        for (key, _) in others {
            self.with(key, |inode| inode.seen_through(share));
            keys.insert(key);
        }
        keys
    }

    /// Syncs these inodes, a limited number of each file system at a time, in tasks of their own.
    pub(crate) async fn sync_many(&self, keys: BTreeSet<FileKey>) -> StopReport {
        let mut queues: BTreeMap<u64, VecDeque<FileKey>> = BTreeMap::new();
        for key in keys {
            queues.entry(key.fs).or_default().push_back(key);
        }
        let most = self.limits.syncs_in_flight_max.max(1);
        let tasks = queues.iter();
        let tasks = tasks.flat_map(|(fs, queue)| vec![*fs; queue.len().min(most)]);
        let tasks: Vec<u64> = tasks.collect();
        let work = Arc::new(Mutex::new((queues, StopReport::default())));
        let mut ends = Vec::with_capacity(tasks.len());
        for fs in tasks {
            let Some(me) = self.me.upgrade() else { break };
            let (ended, end) = oneshot::channel();
            ends.push(end);
            let work = Arc::clone(&work);
            self.env.spawn(Box::pin(async move {
                loop {
                    let next = lock(&work).0.get_mut(&fs).and_then(VecDeque::pop_front);
                    let Some(key) = next else { break };
                    me.wait_for_writes(key, None).await;
                    let bytes = me.with(key, |inode| inode.bytes());
                    let result = me.barrier(key, None).await;
                    lock(&work).1.add(key, bytes, result);
                }
                let _ = ended.send(());
            }));
        }
        let mut died = false;
        for end in ends {
            died |= end.await.is_err();
        }
        self.latches_stored().await;
        let mut work = lock(&work);
        let (rest, report) = &mut *work;
        if died {
            // The worker of a task ended, so the inode that the task was syncing is not proven to be stable.
            report.add(FileKey::default(), 0, Err(VfsError::Io));
        }
        for key in std::mem::take(rest).into_values().flatten() {
            report.add(key, 0, Err(VfsError::Io));
        }
        std::mem::take(report)
    }

    /// Syncs everything dirty of shares that want it (`sync_on_stop`), and inodes of no known share, when the
    /// server stops. Call it when no request is being handled any more.
    pub async fn sync_all(&self) -> StopReport {
        let shares = self.shares();
        let mut keys = self.keys_of(|share| share.settings().sync_on_stop);
        keys.extend(self.keys(|_, inode| !inode.is_of(|share| shares.contains(share))));
        self.sync_many(keys).await
    }

    /// Syncs everything dirty of shares with a lazy policy, their own or a rule's, including the writes under way.
    pub async fn sync_lazy(&self) -> StopReport {
        let keys = self.keys_of(|share| share.has_lazy());
        self.sync_many(keys).await
    }

    /// The number of syncs of inodes that have ended so far, well or not. If it grows, a disk still answers.
    pub fn syncs_ended(&self) -> u64 {
        let shares = self.shares();
        let ended = shares.iter().map(|share| {
            let metrics = &share.metrics;
            metrics.syncs_data.load(Relaxed) + metrics.syncs_all.load(Relaxed)
        });
        ended.sum()
    }
}

impl StopReport {
    fn add(&mut self, key: FileKey, bytes: u64, result: VfsResult<()>) {
        match result {
            Ok(()) => {
                self.inodes += 1;
                self.bytes += bytes;
            }
            Err(error) => {
                self.failed += 1;
                if self.errors.len() < Self::ERRORS_MAX {
                    self.errors.push((key, error));
                }
            }
        }
    }
}
