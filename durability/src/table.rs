//! The inodes of all shares, and the syncs that make them clean.
//!
//! [`Durability`] is shared by all workers. Its table is split into shards, each a `Mutex` held
//! for one synchronous step and never over an await. One sync of one inode runs at a time, as a
//! task of its own ([`vfs::Env::spawn`]): a connection that dies takes no sync along. A request
//! joins only a sync that starts after the request came; all that joined hear the same result.
//!
//! A sync of an inode never waits for a sync of another one: the barrier (`barrier.rs`) puts them
//! in order (the inode, its parents newest first, each with theirs), so no cycle of renames can
//! lock two of them up.
//!
//! `payer.rs` starts syncs by age; `gate.rs` says what changed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, PoisonError, RwLock, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::sync::{Notify, oneshot};
use vfs::{Env, FileKey, Node, SyncScope, Vfs, VfsError};

use crate::{
    failures::Failures,
    gate::{Earlier, Gate},
    inode::{Held, Inode, Job, Left},
    kept::Kept,
    latch::Failure,
    metrics::count,
    moves::Moves,
    opens::OpenEntry,
    planted::Planted,
    report::{Exposure, LatchedInode, Limits, StopReport},
    settings::ShareDurability,
    share::{Share, lock},
};

/// Shards of the table. More than there are workers, so that two rarely meet.
const SHARDS: usize = 64;

/// Boxed: entries come and go with every open, and a node of the tree has room for eleven.
type Shard<V> = BTreeMap<FileKey, Box<Inode<V>>>;

/// The durability engine of a server.
pub struct Durability<V: Vfs> {
    pub(crate) me: Weak<Self>,
    pub(crate) env: Arc<dyn Env>,
    pub(crate) limits: Limits,
    shards: [Mutex<Shard<V>>; SHARDS],
    pub(crate) shares: RwLock<Vec<Arc<Share>>>,
    sequence: AtomicU64,
    dirty: AtomicUsize,
    /// The same by file system.
    dirty_of: Mutex<BTreeMap<u64, usize>>,
    latched: AtomicUsize,
    /// More inodes were latched than are remembered: no FLUSH can be answered with success.
    overflow: AtomicBool,
    /// For changes that are under way.
    pub(crate) failures: Failures,
    /// Lazy policies are set aside (`guard.rs`).
    pub(crate) guard: Arc<AtomicBool>,
    /// An inode became clean.
    pub(crate) room: Notify,
    /// Moves of names that are not on disk yet.
    pub(crate) moves: Moves,
    /// Directories whose own name is lost. No more than there are latches.
    pub(crate) lost: Mutex<BTreeSet<FileKey>>,
    /// Inodes that background work is syncing.
    pub(crate) paying: Mutex<BTreeSet<FileKey>>,
    /// What outlives the process.
    pub(crate) kept: Kept,
    #[cfg(feature = "planted-faults")]
    pub(crate) planted: Mutex<Option<Planted>>,
}

impl<V: Vfs> Durability<V> {
    /// The engine of a server, without shares.
    pub fn new(env: Arc<dyn Env>, limits: Limits) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            env,
            limits,
            shards: std::array::from_fn(|_| Mutex::default()),
            shares: RwLock::default(),
            sequence: AtomicU64::new(0),
            dirty: AtomicUsize::new(0),
            dirty_of: Mutex::default(),
            latched: AtomicUsize::new(0),
            overflow: AtomicBool::new(false),
            failures: Failures::default(),
            guard: Arc::default(),
            room: Notify::new(),
            moves: Moves::default(),
            lost: Mutex::default(),
            paying: Mutex::default(),
            kept: Kept::default(),
            #[cfg(feature = "planted-faults")]
            planted: Mutex::default(),
        })
    }

    /// A gate of a share. Two shares over one inode know of each other's changes. Gates made for
    /// one name (case aside) while one of them lives are of one share: policy, rules, trip and
    /// counters are common, and `settings` hold only for the first.
    pub fn share(
        self: &Arc<Self>,
        name: &str,
        vfs: Arc<V>,
        settings: ShareDurability,
    ) -> Arc<Gate<V>> {
        let mut shares = self.shares.write().unwrap_or_else(PoisonError::into_inner);
        // A share that was removed has nothing to report once it owes nothing and nothing of it
        // is unproven; until then it may come back, and is the same.
        shares.retain(|old| old.gates.load(SeqCst) > 0 || !old.is_settled());
        let folded = name.to_uppercase();
        let known = shares.iter().find(|old| old.name.to_uppercase() == folded);
        let share = known.map(Arc::clone).unwrap_or_else(|| {
            let (env, guard) = (Arc::clone(&self.env), Arc::clone(&self.guard));
            let share = Share::new(name, settings, env, guard);
            shares.push(Arc::clone(&share));
            share
        });
        if share.gates.fetch_add(1, SeqCst) == 0 {
            share.configure(|old| *old = settings);
        }
        drop(shares);
        share.add_root(vfs.root().key());
        self.listen(&vfs, &share);
        Gate::new(Arc::clone(self), Arc::clone(&self.env), vfs, share)
    }

    /// Syncs everything owed by shares that want it (`sync_on_stop`). For the server's stop:
    /// call it when no request is being handled any more.
    pub async fn sync_all(&self) -> StopReport {
        let shares = self.shares();
        let keys = self.keys(|_, inode| {
            inode
                .shares
                .iter()
                .any(|share| share.settings().sync_on_stop)
                || !inode
                    .shares
                    .iter()
                    .any(|share| shares.iter().any(|s| Arc::ptr_eq(s, share)))
        });
        self.sync_many(keys).await
    }

    /// What is owed by all shares together. Inodes changed through two shares count twice.
    pub fn exposure(&self) -> Exposure {
        let now = self.env.monotonic();
        let shares = self.shares();
        let each = shares.iter().map(|share| share.exposure(now));
        each.fold(Exposure::default(), Exposure::plus)
    }

    /// Inodes that hold a descriptor for what is owed.
    pub fn dirty_inodes(&self) -> usize {
        self.dirty.load(SeqCst)
    }

    /// Those of a file system.
    pub(crate) fn dirty_on(&self, fs: u64) -> usize {
        lock(&self.dirty_of).get(&fs).copied().unwrap_or(0)
    }

    /// Whether everything acknowledged is on stable storage: nothing is owed, under way or
    /// unproven.
    pub fn is_stable(&self) -> bool {
        let busy = |shard: &Mutex<Shard<V>>| {
            let shard = lock(shard);
            shard.values().any(|inode| {
                inode.is_dirty() || inode.latch.is_some() || !inode.in_flight.is_empty()
            })
        };
        !self.has_overflow() && !self.shards.iter().any(busy)
    }

    /// Every latched inode.
    pub fn latched(&self) -> Vec<LatchedInode> {
        self.latched_where(|_| true)
    }

    /// Forgets that more inodes failed than [`Limits::latched_max`]. True if it had happened.
    pub fn clear_overflow(&self) -> bool {
        let was = self.overflow.swap(false, SeqCst);
        if was {
            self.kept.overflow_changed(false);
        }
        was
    }

    /// An earlier run left inodes latched that nobody can name any more: every FLUSH fails until
    /// [`Durability::clear_overflow`].
    pub fn restore_overflow(&self) {
        self.overflow.store(true, SeqCst);
    }

    pub(crate) fn shares(&self) -> Vec<Arc<Share>> {
        self.shares
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn latched_where(&self, wanted: impl Fn(&Inode<V>) -> bool) -> Vec<LatchedInode> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            let some = shard.iter().filter(|(_, inode)| wanted(inode));
            all.extend(some.filter_map(|(key, inode)| inode.view(*key)));
        }
        all
    }

    /// The next sequence number. Marks and syncs are ordered by it.
    pub(crate) fn tick(&self) -> u64 {
        self.sequence.fetch_add(1, SeqCst) + 1
    }

    pub(crate) fn failure(&self, error: VfsError) -> Failure {
        Failure {
            error,
            at: self.env.monotonic(),
            since: self.env.realtime(),
            sequence: self.tick(),
        }
    }

    /// One step on the state of an inode, under its lock.
    pub(crate) fn with<T>(&self, key: FileKey, step: impl FnOnce(&mut Inode<V>) -> T) -> T {
        let mut shard = lock(self.shard(key));
        let inode = shard.entry(key).or_default();
        let (dirty, latched) = (inode.is_dirty(), inode.latch.is_some());
        let lost = inode.is_lost_directory();
        let mark = Kept::mark(inode);
        let out = step(inode);
        match (dirty, inode.is_dirty()) {
            (false, true) => {
                self.dirty.fetch_add(1, SeqCst);
                *lock(&self.dirty_of).entry(key.fs).or_default() += 1;
            }
            (true, false) => {
                self.dirty.fetch_sub(1, SeqCst);
                let mut all = lock(&self.dirty_of);
                let left = all.get(&key.fs).map_or(0, |one| one.saturating_sub(1));
                match left {
                    0 => _ = all.remove(&key.fs),
                    left => _ = all.insert(key.fs, left),
                }
                drop(all);
                self.room.notify_waiters();
            }
            _ => {}
        }
        if latched && inode.latch.is_none() {
            self.latched.fetch_sub(1, SeqCst);
        } else if !latched
            && inode.latch.is_some()
            && self.latched.fetch_add(1, SeqCst) >= self.limits.latched_max
        {
            if !self.overflow.swap(true, SeqCst) {
                self.kept.overflow_changed(true);
            }
            inode.latch = None;
            self.latched.fetch_sub(1, SeqCst);
        }
        match (lost, inode.is_lost_directory()) {
            (false, true) => _ = lock(&self.lost).insert(key),
            (true, false) => _ = lock(&self.lost).remove(&key),
            _ => {}
        }
        if mark != Kept::mark(inode) {
            self.kept.latch_changed(key, inode);
        }
        if inode.is_idle() {
            shard.remove(&key);
        }
        out
    }

    /// Looks at an inode, if it is known.
    pub(crate) fn peek<T>(&self, key: FileKey, look: impl FnOnce(&Inode<V>) -> T) -> Option<T> {
        lock(self.shard(key)).get(&key).map(|inode| look(inode))
    }

    fn shard(&self, key: FileKey) -> &Mutex<Shard<V>> {
        let place = (key.ino ^ key.generation ^ (key.ino >> 6)) as usize % SHARDS;
        self.shards.get(place).unwrap_or(&self.shards[0])
    }

    #[cfg(test)]
    pub(crate) fn known_inodes(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).len()).sum()
    }

    /// Judges every open through a share anew. True if that promises something new.
    pub(crate) fn judge_anew(&self, share: &Arc<Share>) -> bool {
        let mut tightens = false;
        for shard in &self.shards {
            for inode in lock(shard).values_mut() {
                let old = inode.opens.strictest();
                inode.opens.judge_anew(share);
                if let (Some(old), Some(new)) = (old, inode.opens.strictest()) {
                    tightens |= old.tightens_to(&new);
                }
            }
        }
        tightens
    }

    /// The first open inode that `wanted` holds for.
    pub(crate) fn find_open(&self, wanted: impl Fn(&OpenEntry) -> bool) -> Option<FileKey> {
        let mut shards = self.shards.iter();
        shards.find_map(|shard| {
            let shard = lock(shard);
            let mut inodes = shard.iter();
            let found = inodes.find(|(_, inode)| inode.opens.iter().any(&wanted));
            found.map(|(key, _)| *key)
        })
    }

    /// The true error of an inode whose sync failed.
    pub(crate) fn check_latch(&self, key: FileKey) -> Result<(), VfsError> {
        if self.overflow.load(SeqCst) {
            return Err(VfsError::Io);
        }
        if self.latched.load(SeqCst) == 0 {
            return Ok(());
        }
        self.latch_error(key).map_or(Ok(()), Err)
    }

    /// The first error of an inode that is latched.
    pub(crate) fn latch_error(&self, key: FileKey) -> Option<VfsError> {
        let latch = |inode: &Inode<V>| inode.latch.as_ref().map(|latch| latch.error);
        self.peek(key, latch).flatten()
    }

    pub(crate) fn has_overflow(&self) -> bool {
        self.overflow.load(SeqCst)
    }

    /// Inodes with anything owed or being written.
    pub(crate) fn keys(&self, wanted: impl Fn(&FileKey, &Inode<V>) -> bool) -> Vec<FileKey> {
        let owing = |inode: &Inode<V>| inode.is_dirty() || !inode.in_flight.is_empty();
        self.every(|key, inode| owing(inode) && wanted(key, inode))
    }

    /// Inodes that anything is known of.
    fn every(&self, wanted: impl Fn(&FileKey, &Inode<V>) -> bool) -> Vec<FileKey> {
        let mut keys = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            let some = shard.iter().filter(|(key, inode)| wanted(key, inode));
            keys.extend(some.map(|(key, _)| *key));
        }
        keys
    }

    /// Waits for the writes to the inode that came before now, and for these of the ones that had
    /// arrived.
    pub(crate) async fn wait_writes(&self, key: FileKey, arrived: Option<Earlier>) {
        let now = self.tick();
        loop {
            let pending = |inode: &mut Inode<V>| {
                let earlier = inode.has_earlier(now, arrived);
                earlier.then(|| Arc::clone(&inode.written))
            };
            let Some(written) = self.with(key, pending) else {
                return;
            };
            let mut ended = std::pin::pin!(written.notified());
            ended.as_mut().enable();
            if self.with(key, pending).is_some() {
                ended.await;
            }
        }
    }

    /// The last name of the inode is gone. The answer goes to the directory that had it.
    pub(crate) fn unlinked(&self, key: FileKey) -> Left {
        let (left, shares) = self.with(key, |inode| (inode.unlinked(), inode.shares.clone()));
        if left.latched {
            shares.iter().for_each(|share| share.untrip_if_clean());
            tracing::warn!(fs = key.fs, inode = key.ino, "deleted: the latch ended");
        }
        left
    }

    /// One sync of one inode that starts after now, shared with whoever else asks.
    pub(crate) async fn sync_one(
        &self,
        key: FileKey,
        node: Option<Held<V>>,
    ) -> Result<(), VfsError> {
        let asked = node.is_some();
        let (told, (run, share)) = self.with(key, |inode| {
            let (told, run) = inode.ask(node);
            (told, (run, inode.shares.first().cloned()))
        });
        if let Some(share) = share {
            count(&share.metrics.sync_waiters);
            if !run {
                count(&share.metrics.sync_joined);
            }
        }
        if run && let Some(me) = self.me.upgrade() {
            // Made before the task: one that is never run gives the sync back as well.
            let guard = Abandon {
                core: me,
                key,
                armed: true,
            };
            self.env.spawn(Box::pin(guard.drive()));
        }
        // What nobody asked for has no reply; the payer would pay the same again at once, for ever.
        if asked && self.planted(Planted::EarlyAcknowledgement) {
            return Ok(());
        }
        // The sender is dropped only if the worker that ran the sync is gone.
        told.await.unwrap_or(Err(VfsError::Io))
    }

    async fn run(&self, job: &Job<V>) -> Result<(), VfsError> {
        if job.targets.is_empty() {
            // Whoever asked had nothing left to be synced: that is no sync, and took no time.
            return Ok(());
        }
        let started = self.env.monotonic();
        let mut result = Ok(());
        for (held, scope) in &job.targets {
            // Each is tried: a failure of one is no reason to lose another.
            let weak = self.planted(Planted::DataSyncAfterFailure)
                && self.check_latch(held.key()).is_err()
                && !held.node.is_directory();
            let scope = if weak { SyncScope::Data } else { *scope };
            let begun = self.env.monotonic();
            let synced = held.vfs.sync(&held.node, scope).await;
            if let Err(error) = synced
                && error != VfsError::NotStarted
                && job.targets.len() > 1
            {
                // The others take their time, for ever if the disk hangs: nobody is told success
                // meanwhile.
                self.sync_failed(held.key(), job, error);
            }
            if let (Ok(()) | Err(VfsError::NotStarted), Err(error)) = (result, synced) {
                // One that failed tells more than one that never ran.
                result = Err(error);
            }
            if let Some(share) = &job.share {
                count(match scope {
                    SyncScope::Data => &share.metrics.syncs_data,
                    SyncScope::All => &share.metrics.syncs_all,
                });
                let span = self.env.monotonic().saturating_sub(begun);
                share.metrics.sync_micros.add_time(span);
            }
        }
        if let Some(share) = &job.share {
            let span = self.env.monotonic().saturating_sub(started);
            if result != Err(VfsError::NotStarted) {
                share.synced_in(span);
            }
            share.metrics.join_factor.add(job.waiters.len() as u64);
        }
        result
    }

    fn finish(&self, key: FileKey, job: &Job<V>, result: Result<(), VfsError>) {
        match result {
            Ok(()) => {
                if self.planted(Planted::LatchEndsWithNextSync) {
                    self.with(key, |inode| inode.latch = None);
                }
                if self.with(key, |inode| inode.synced()) {
                    self.repaired(key);
                }
            }
            // Nothing was tried, so nothing is lost: it is as dirty as before.
            Err(VfsError::NotStarted) => self.with(key, Inode::not_started),
            // Of several it was said at once.
            Err(_) if job.targets.len() > 1 => {}
            Err(error) => self.sync_failed(key, job, error),
        }
    }

    fn sync_failed(&self, key: FileKey, job: &Job<V>, error: VfsError) {
        let file = job.targets.iter().any(|(held, _)| held.is_file());
        self.lost_in_sync(key, file, Vec::new(), error);
    }

    /// A sync of the inode failed, for `shares` and those that it was changed through. What is not
    /// known to be a `file` may be a directory, also where only a stream of it was to be synced:
    /// then the names owed to it are lost with it.
    pub(crate) fn lost_in_sync(
        &self,
        key: FileKey,
        file: bool,
        mut shares: Vec<Arc<Share>>,
        error: VfsError,
    ) {
        let failure = self.failure(error);
        self.failures.note(key, failure);
        let directory = !file && self.peek(key, Inode::is_file) != Some(true);
        let owing = match directory {
            true => self.owing_to(key),
            false => Vec::new(),
        };
        shares.extend(self.shares_of(&owing));
        self.lose(key, failure, |inode| {
            shares.iter().for_each(|share| inode.seen_through(share));
            inode.failed(failure, !owing.is_empty())
        });
        if directory {
            self.directory_failed(key, failure);
        }
    }

    /// Inodes with a name that is owed to a directory.
    fn owing_to(&self, dir: FileKey) -> Vec<FileKey> {
        self.keys(|_, inode| inode.names().iter().any(|name| name.dir.key() == dir))
    }

    /// The shares through which they were changed. A failure of their directory is theirs.
    fn shares_of(&self, owing: &[FileKey]) -> Vec<Arc<Share>> {
        let shares = |key: &FileKey| self.peek(*key, |inode| inode.shares.clone());
        owing.iter().filter_map(shares).flatten().collect()
    }

    /// The sync of a directory failed: the names owed to it are as lost as its entries.
    pub(crate) fn directory_failed(&self, dir: FileKey, failure: Failure) {
        for key in self.owing_to(dir) {
            self.lose(key, failure, |inode| inode.name_failed(dir, failure));
        }
    }

    /// One step that may latch an inode; if it says so, its shares are told. Answers whether.
    pub(crate) fn lose(
        &self,
        key: FileKey,
        failure: Failure,
        step: impl FnOnce(&mut Inode<V>) -> bool,
    ) -> bool {
        let shares = self.with(key, |inode| step(inode).then(|| inode.shares.clone()));
        if let Some(shares) = &shares {
            self.report_failure(key, shares, failure);
        }
        shares.is_some()
    }

    pub(crate) fn report_failure(&self, key: FileKey, shares: &[Arc<Share>], failure: Failure) {
        let latched = self.peek(key, |inode| inode.view(key)).flatten();
        let path = latched.map(|latched| latched.path).unwrap_or_default();
        for share in shares {
            count(&share.metrics.syncs_failed);
            count(&share.metrics.latches);
            tracing::error!(
                share = share.name,
                fs = key.fs,
                inode = key.ino,
                path,
                error = %failure.error,
                "sync failed; FLUSH, write-through and CLOSE of this inode fail until it is \
                 rewritten or the latch is cleared"
            );
            if share.trip(self.env.monotonic()) {
                count(&share.metrics.trips);
                tracing::error!(
                    share = share.name,
                    "acknowledged changes may be lost: the share honors flushes from now on"
                );
            }
        }
    }

    pub(crate) fn repaired(&self, key: FileKey) {
        let shares = self.with(key, |inode| inode.shares.clone());
        for share in &shares {
            share.metrics.repairs.fetch_add(1, Relaxed);
            share.untrip_if_clean();
        }
        tracing::warn!(
            fs = key.fs,
            inode = key.ino,
            "rewritten and synced: the latch ended"
        );
    }

    pub(crate) fn now(&self) -> Duration {
        self.env.monotonic()
    }
}

/// Gives a sync back if the task that ran it is dropped.
struct Abandon<V: Vfs> {
    core: Arc<Durability<V>>,
    key: FileKey,
    armed: bool,
}

impl<V: Vfs> Abandon<V> {
    /// Runs syncs of an inode until nobody waits for one.
    async fn drive(mut self) {
        let (core, key) = (Arc::clone(&self.core), self.key);
        loop {
            // What is marked before belongs to this sync whole.
            let begun = core.now();
            let job = core.with(key, |inode| {
                inode.begun = (core.tick(), begun);
                inode.take_job()
            });
            let Some(job) = job else { break };
            if core.planted(Planted::CleanBeforeResult) {
                core.finish(key, &job, Ok(()));
            }
            let result = core.run(&job).await;
            core.finish(key, &job, result);
            if result.is_err() {
                // The latch is stored before anybody hears of it.
                core.latches_settled().await;
            }
            let late = match core.planted(Planted::JoinsRunningSync) {
                true => core.with(key, Inode::waiters_so_far),
                false => Vec::new(),
            };
            for waiter in job.waiters.into_iter().chain(late) {
                // A waiter that went away does not care.
                let _ = waiter.send(result);
            }
        }
        self.armed = false;
    }
}

impl<V: Vfs> Drop for Abandon<V> {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let (core, key) = (&self.core, self.key);
        // Nobody will hear what became of the sync that it had in hand.
        let failure = core.failure(VfsError::Io);
        core.failures.note(key, failure);
        let entries = !core.owing_to(key).is_empty();
        if core.lose(key, failure, |inode| inode.abandon(failure, entries)) {
            // If it is a directory, with the names that it was to save.
            core.directory_failed(key, failure);
        }
    }
}

/// Tells a value to one waiter.
pub(crate) fn tell<T>(to: oneshot::Sender<T>, value: T) {
    let _ = to.send(value);
}
