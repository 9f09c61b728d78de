//! The table of inodes: the engine of a server.
//!
//! Invariants:
//! - The table is split into shards, each a `Mutex` that is held for one synchronous step and never
//!   over an await. [`Durability`] is shared by all workers.
//! - An inode has an entry while anything of it is dirty, in flight, poisoned or open.
//! - Sequence numbers order everything: a sync proves only what was marked with a lower number.
//! - The counters of poisoned inodes and of the descriptors that dirty ones hold change in the same step as the inode.
//! - The guard is one flag that is read wherever a policy is: while the host runs on battery, each lazy
//!   policy is in force as `honor`, and a bound is kept as well, because it promises something about
//!   changes that no client flushed, which `honor` does not. The daemon decides when the guard is on.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, OnceLock, RwLock, Weak,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::sync::Notify;
use vfs::{Env, FileKey, Node, VfsError, VfsResult, Volume};

use crate::{
    dirty::{Earlier, FailedSyncs, Failure, Inode, LatchEvent},
    report::{Exposure, Limits},
    settings::ShareDurability,
    share::{Share, lock, read, write},
    store::{FlushJournal, LatchRecord, LatchStore},
    sync::barrier::Moves,
};

/// Shards of the table. More than there are workers, so that two rarely meet.
const SHARDS: usize = 64;

/// The part of [`crate::Limits::dirty_inodes_max`] that the dirty inodes of each file system may always hold: one in so
/// many.
const RESERVE: usize = 16;

/// Boxed: entries come and go with every open, and a node of the tree has room for eleven.
type Shard<V> = BTreeMap<FileKey, Box<Inode<V>>>;

/// The durability engine of a server.
pub struct Durability<V: Volume> {
    pub(super) me: Weak<Self>,
    pub(crate) env: Arc<dyn Env>,
    pub(crate) limits: Limits,
    shards: [Mutex<Shard<V>>; SHARDS],
    shares: RwLock<Vec<Arc<Share>>>,
    back_ends: Mutex<Vec<Weak<V>>>,
    sequence: AtomicU64,
    /// The descriptors that dirty inodes hold, and those on each file system.
    held: AtomicUsize,
    held_of: Mutex<BTreeMap<u64, usize>>,
    poisoned: AtomicUsize,
    /// More inodes were poisoned than are remembered: no FLUSH can be answered with success.
    overflow: AtomicBool,
    /// The failures that a change under way must know of; `last_failure` is the newest sequence number.
    failed_syncs: Mutex<FailedSyncs>,
    last_failure: AtomicU64,
    /// Lazy policies are set aside.
    guard: Arc<AtomicBool>,
    /// An inode holds fewer descriptors than before.
    pub(super) room: Notify,
    /// Moves of names that are not on disk yet.
    pub(crate) moves: Moves,
    /// Directories whose own name is lost. No more than there are latches.
    pub(crate) unreachable: Mutex<BTreeSet<FileKey>>,
    /// Inodes that background work is syncing, and when each of their syncs began.
    pub(super) in_background: Mutex<BTreeMap<FileKey, BTreeSet<Duration>>>,
    /// The stores that outlive the process.
    pub(super) latches: OnceLock<Arc<dyn LatchStore>>,
    pub(crate) journal: OnceLock<Arc<dyn FlushJournal>>,
    #[cfg(any(test, feature = "planted-faults"))]
    pub(crate) planted: Mutex<Option<crate::planted::Planted>>,
}

impl<V: Volume> Durability<V> {
    /// The engine of a server, without shares.
    pub fn new(env: Arc<dyn Env>, limits: Limits) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            me: me.clone(),
            env,
            limits,
            shards: std::array::from_fn(|_| Mutex::default()),
            shares: RwLock::default(),
            back_ends: Mutex::default(),
            sequence: AtomicU64::new(0),
            held: AtomicUsize::new(0),
            held_of: Mutex::default(),
            poisoned: AtomicUsize::new(0),
            overflow: AtomicBool::new(false),
            failed_syncs: Mutex::default(),
            last_failure: AtomicU64::new(0),
            guard: Arc::default(),
            room: Notify::new(),
            moves: Moves::default(),
            unreachable: Mutex::default(),
            in_background: Mutex::default(),
            latches: OnceLock::new(),
            journal: OnceLock::new(),
            #[cfg(any(test, feature = "planted-faults"))]
            planted: Mutex::default(),
        })
    }

    /// Finds or makes the share of a new gate, counts the gate, and registers its back end.
    pub(crate) fn enroll(&self, name: &str, vfs: &Arc<V>, settings: ShareDurability) -> Arc<Share> {
        let mut shares = write(&self.shares);
        // A removed share is forgotten once nothing of it is dirty or unproven. Until then it comes back as it was.
        shares.retain(|old| old.gates.load(SeqCst) > 0 || !old.is_settled());
        let known = shares.iter().find(|old| old.is_named(name));
        let share = known.map(Arc::clone).unwrap_or_else(|| {
            let (env, guard) = (Arc::clone(&self.env), Arc::clone(&self.guard));
            let me = Weak::clone(&self.me);
            let start = move |share: &Arc<Share>| {
                if let Some(me) = me.upgrade() {
                    me.start_flusher(share);
                }
            };
            let share = Share::new(name, settings, env, guard, Box::new(start));
            shares.push(Arc::clone(&share));
            share
        });
        if share.gates.fetch_add(1, SeqCst) == 0 {
            share.configure(|old| *old = settings);
        }
        drop(shares);
        share.add_root(vfs.root().key());
        let mut back_ends = lock(&self.back_ends);
        back_ends.retain(|one| one.strong_count() > 0);
        back_ends.push(Arc::downgrade(vfs));
        drop(back_ends);
        self.listen(vfs, &share);
        share
    }

    /// The exposure of each share, by name. An inode that was changed through two shares is in both.
    pub fn exposures(&self) -> Vec<(String, Exposure)> {
        let (now, shares) = (self.now(), self.shares());
        let each = shares.iter();
        each.map(|share| (share.name.clone(), share.exposure(now)))
            .collect()
    }

    /// The number of dirty inodes.
    pub fn dirty_inodes(&self) -> usize {
        let dirty = self.find(|_, inode| inode.is_dirty().then_some(()));
        dirty.len()
    }

    /// Whether a change on the file system has to wait. It need not if few of the descriptors of dirty
    /// inodes are there: others fill the table then, and their disk may hang.
    pub(crate) fn is_too_dirty(&self, fs: u64) -> bool {
        let most = self.limits.dirty_inodes_max.max(1);
        let on = |all: &BTreeMap<u64, usize>| all.get(&fs).copied().unwrap_or(0);
        self.held.load(SeqCst) > most && on(&lock(&self.held_of)) > most / RESERVE
    }

    /// Counts the descriptors of an inode of this file system.
    fn count_held(&self, fs: u64, before: usize, now: usize) {
        if before == now {
            return;
        }
        let mut held_of = lock(&self.held_of);
        let held = held_of.entry(fs).or_default();
        *held = held.saturating_sub(before) + now;
        if *held == 0 {
            held_of.remove(&fs);
        }
        if now > before {
            self.held.fetch_add(now - before, SeqCst);
        } else {
            self.held.fetch_sub(before - now, SeqCst);
            self.room.notify_waiters();
        }
    }

    /// Whether everything acknowledged is on stable storage: nothing is dirty, in flight or unproven.
    pub fn is_stable(&self) -> bool {
        let stable = |inode: &Inode<V>| !inode.is_busy() && inode.latch_error().is_none();
        let others = self.find(|key, inode| (!stable(inode)).then_some(key));
        !self.has_overflow() && others.is_empty()
    }

    /// Every poisoned inode.
    pub fn poisoned(&self) -> Vec<LatchRecord> {
        self.poisoned_where(|_, _| true)
    }

    /// Forgets that more inodes failed than [`Limits::poisoned_max`]. True if it had happened.
    pub fn clear_overflow(&self) -> bool {
        let was = self.overflow.swap(false, SeqCst);
        if was {
            self.overflow_changed(false);
        }
        was
    }

    /// An earlier process left unrecorded poisoned inodes: every FLUSH fails until [`Durability::clear_overflow`].
    pub fn restore_overflow(&self) {
        self.overflow.store(true, SeqCst);
    }

    pub(crate) fn shares(&self) -> Vec<Arc<Share>> {
        read(&self.shares).clone()
    }

    /// The folders of this share, and those of all shares that lie within the folder of `vfs`.
    pub(crate) fn roots_within(&self, share: &Share, vfs: &V) -> BTreeSet<FileKey> {
        let roots = self.back_ends().into_iter().map(|one| one.root());
        let within = roots.filter(|root| vfs.path_hint(root).is_some());
        let mut all = share.roots();
        all.extend(within.map(|root| root.key()));
        all
    }

    /// The folders of shares above the folder of `vfs`, with the path that it has in each.
    pub(crate) fn roots_above(&self, vfs: &V) -> Vec<(BTreeSet<FileKey>, String)> {
        let own = vfs.root();
        let paths = self.back_ends().into_iter().filter_map(|one| {
            let path = one.path_hint(&own).filter(|path| !path.is_empty())?;
            Some((BTreeSet::from([one.root().key()]), path))
        });
        paths.collect()
    }

    fn back_ends(&self) -> Vec<Arc<V>> {
        let known = lock(&self.back_ends);
        known.iter().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn poisoned_where(
        &self,
        wanted: impl Fn(&FileKey, &Inode<V>) -> bool,
    ) -> Vec<LatchRecord> {
        self.find(|key, inode| inode.latch_record(key).filter(|_| wanted(&key, inode)))
    }

    /// The next sequence number. Marks and syncs are ordered by it.
    pub(crate) fn tick(&self) -> u64 {
        self.sequence.fetch_add(1, SeqCst) + 1
    }

    pub(crate) fn failure(&self, error: VfsError) -> Failure {
        Failure {
            error,
            since: self.env.realtime(),
            sequence: self.tick(),
        }
    }

    /// A failure of this inode. Call this before the inode is poisoned, so that a change that is marked later finds it.
    pub(crate) fn note_failure(&self, key: FileKey, error: VfsError) -> Failure {
        let failure = self.failure(error);
        let mut known = lock(&self.failed_syncs);
        self.last_failure.fetch_max(failure.sequence, SeqCst);
        known.note(key, failure);
        failure
    }

    /// The last failure of the inode, if a sync of it may have failed after `sequence`.
    pub(crate) fn failed_since(&self, key: FileKey, sequence: u64) -> Option<Failure> {
        let failed = self.last_failure.load(SeqCst) > sequence;
        failed.then(|| lock(&self.failed_syncs).since(key, sequence))?
    }

    /// One step on the state of an inode, under its lock.
    pub(crate) fn with<T>(&self, key: FileKey, step: impl FnOnce(&mut Inode<V>) -> T) -> T {
        let mut shard = lock(self.shard(key));
        let inode: &mut Inode<V> = shard.entry(key).or_default();
        let before = inode.facts();
        let out = step(inode);
        let mut now = inode.facts();
        self.count_held(key.fs, before.held, now.held);
        if before.named && !now.named {
            self.moves.not_outstanding(key);
        }
        let ended = before.grown.is_some() && now.grown.is_none();
        if ended {
            self.poisoned.fetch_sub(1, SeqCst);
        } else if before.grown.is_none()
            && now.grown.is_some()
            && self.poisoned.fetch_add(1, SeqCst) >= self.limits.poisoned_max
        {
            if !self.overflow.swap(true, SeqCst) {
                self.overflow_changed(true);
            }
            inode.forget_latch();
            now = inode.facts();
            self.poisoned.fetch_sub(1, SeqCst);
        }
        match (before.unreachable, now.unreachable) {
            (false, true) => _ = lock(&self.unreachable).insert(key),
            (true, false) => _ = lock(&self.unreachable).remove(&key),
            _ => {}
        }
        let event = inode.take_latch_event();
        // The stored latch of a deleted inode is cleared later, when the removal is stable.
        if before.grown != now.grown && !matches!(event, Some(LatchEvent::Deleted(_))) {
            self.latch_changed(key, inode);
        }
        let shares = event.is_some().then(|| inode.shares().to_vec());
        if inode.is_idle() {
            shard.remove(&key);
        }
        drop(shard);
        if ended {
            // The latch may also have concerned a share with a bound through which the inode was only open.
            let shares = self.shares();
            shares.iter().for_each(|share| share.untrip_if_clean());
        }
        if let (Some(shares), Some(event)) = (shares, event) {
            self.report_latch(key, &shares, event);
        }
        out
    }

    pub(crate) fn peek<T>(&self, key: FileKey, look: impl FnOnce(&Inode<V>) -> T) -> Option<T> {
        lock(self.shard(key)).get(&key).map(|inode| look(inode))
    }

    /// Looks at every inode, one shard after the other, and collects the results.
    pub(crate) fn find<T>(&self, look: impl Fn(FileKey, &Inode<V>) -> Option<T>) -> Vec<T> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = lock(shard);
            found.extend(shard.iter().filter_map(|(key, inode)| look(*key, inode)));
        }
        found
    }

    /// The directories of a file system in which a removed name may come back.
    pub(crate) fn may_bring_names_back(&self, fs: u64) -> Vec<FileKey> {
        self.find(|dir, inode| (dir.fs == fs && inode.may_bring_names_back()).then_some(dir))
    }

    fn shard(&self, key: FileKey) -> &Mutex<Shard<V>> {
        let place = (key.ino ^ key.generation ^ (key.ino >> 6)) as usize % SHARDS;
        self.shards.get(place).unwrap_or(&self.shards[0])
    }

    /// Applies the rules of a share anew to every open through it.
    pub(crate) fn judge_anew(&self, share: &Arc<Share>) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            let inodes = shard.values_mut();
            inodes.for_each(|inode| inode.opens.judge_anew(share));
        }
    }

    /// Whether a sync of any inode failed and the loss is not repaired.
    pub(crate) fn has_latches(&self) -> bool {
        self.poisoned.load(SeqCst) > 0 || self.has_overflow()
    }

    /// Fails with the first error of a poisoned inode; with an overflow, fails for every inode.
    pub(crate) fn check_latch(&self, key: FileKey) -> VfsResult<()> {
        if self.has_overflow() {
            return Err(VfsError::Io);
        }
        let poisoned = self.has_latches().then(|| self.latch_error(key));
        poisoned.flatten().map_or(Ok(()), Err)
    }

    pub(crate) fn latch_error(&self, key: FileKey) -> Option<VfsError> {
        self.peek(key, Inode::latch_error).flatten()
    }

    pub(crate) fn has_overflow(&self) -> bool {
        self.overflow.load(SeqCst)
    }

    /// The inodes that are dirty or being written.
    pub(crate) fn keys(&self, wanted: impl Fn(&FileKey, &Inode<V>) -> bool) -> Vec<FileKey> {
        self.find(|key, inode| (inode.is_busy() && wanted(&key, inode)).then_some(key))
    }

    /// Waits for the writes to the inode that came before now: those in flight, and those queued that `queued` names.
    pub(crate) async fn wait_for_writes(&self, key: FileKey, queued: Option<Earlier>) {
        let now = self.tick();
        self.wait_for(key, |inode| inode.has_earlier(now, queued))
            .await;
    }

    /// Waits for ends of writes until none that is waited for is pending.
    pub(crate) async fn wait_for(&self, key: FileKey, is_pending: impl Fn(&Inode<V>) -> bool) {
        loop {
            let ended = {
                let mut shard = lock(self.shard(key));
                let Some(inode) = shard.get_mut(&key).filter(|inode| is_pending(inode)) else {
                    return;
                };
                inode.write_end()
            };
            let ended = ended.notified();
            if self.peek(key, &is_pending) == Some(true) {
                ended.await;
            }
        }
    }

    pub(crate) fn now(&self) -> Duration {
        self.env.monotonic()
    }

    /// Puts the guard on, or takes it off again, for `who`, whom the log names. It is in force for every request from
    /// now on; earlier lazy changes are stable once [`Durability::sync_lazy`] succeeds. True if the guard changed.
    pub fn set_guard(&self, on: bool, who: &str) -> bool {
        if self.guard.swap(on, SeqCst) == on {
            return false;
        }
        for share in self.shares().iter().filter(|share| share.has_lazy()) {
            let (configured, now) = (share.settings().policy, share.policy());
            tracing::warn!(
                share = share.name,
                guard = on,
                %configured,
                in_force = %now,
                who,
                "lazy durability policies {}",
                if on { "are set aside for honor" } else { "hold again" }
            );
            // Requests that wait for room within a bound check it.
            share.room.notify_waiters();
            share.kick.notify_one();
        }
        true
    }
}
