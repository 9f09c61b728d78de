//! One share: the policy in force, and what it has acknowledged that is dirty, in numbers.
//!
//! Invariants:
//! - A [`Charge`] is owned by the dirty state that it stands for, and dropping it is the only way to
//!   lower the exposure: nothing that is still dirty can be forgotten. A [`Reservation`] stands for
//!   the bytes of a write in flight.
//! - Lock order: a shard of the inode table, then `ages`.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::{
        Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::sync::Notify;
pub(crate) use vfs::lock;
use vfs::{Env, FileKey};

use crate::{
    dirty::{Effective, Keeping, SyncLatency, Turn},
    metrics::{Metrics, count},
    report::{Exposure, PolicyExposure, TooSlow},
    rules::{RuleTerms, Rules},
    settings::{Bound, Policy, PolicyKind, ShareDurability},
    sync::SetAside,
};

/// As [`lock`].
pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// As [`lock`].
pub(crate) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// The inode of a charge, and the policy under which it was acknowledged.
#[derive(Clone, Copy)]
pub(crate) struct Charged {
    pub(crate) key: FileKey,
    kind: PolicyKind,
    /// Names that went away there: what each of them named may come back, an inode more.
    removed: u64,
}

#[derive(Default)]
pub(crate) struct Ages {
    /// Every charge by age.
    pub(crate) charges: BTreeMap<(Duration, u64), Charged>,
    /// The number of charges of each dirty inode.
    inodes: BTreeMap<FileKey, usize>,
    next: u64,
    /// The share's flusher runs.
    pub(crate) flusher: bool,
    /// It knows of nothing that will be due: what becomes dirty wakes it.
    pub(crate) flusher_rests: bool,
}

impl Ages {
    fn add(&mut self, at: (Duration, u64), charged: Charged) {
        self.charges.insert(at, charged);
        *self.inodes.entry(charged.key).or_default() += 1;
    }

    fn update(&mut self, at: (Duration, u64), change: impl FnOnce(&mut Charged)) {
        if let Some(charged) = self.charges.get_mut(&at) {
            let old = charged.key;
            change(charged);
            *self.inodes.entry(charged.key).or_default() += 1;
            self.uncount(old);
        }
    }

    fn remove(&mut self, at: (Duration, u64)) {
        if let Some(charged) = self.charges.remove(&at) {
            self.uncount(charged.key);
        }
    }

    fn uncount(&mut self, key: FileKey) {
        if let Entry::Occupied(mut count) = self.inodes.entry(key) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// The rules in force, with the values that are read often.
#[derive(Default)]
struct Ruled {
    rules: Arc<Rules>,
    bound: Option<Bound>,
    lazy: bool,
}

/// Starts the flusher task of a share; may be called under any lock but that of [`Ages`].
pub(crate) type StartFlusher = Box<dyn Fn(&Arc<Share>) + Send + Sync>;

pub(crate) struct Share {
    pub(crate) name: String,
    env: Arc<dyn Env>,
    settings: RwLock<ShareDurability>,
    ruled: RwLock<Ruled>,
    /// Gates of the share: more than one while a reload replaces its files.
    pub(crate) gates: AtomicUsize,
    /// The folders it is of: more than one after a reload.
    roots: Mutex<BTreeSet<FileKey>>,
    /// How long syncs take.
    latency: Mutex<SyncLatency>,
    /// After a failed sync: treated as `honor` until no latch is left or an administrator acts.
    tripped: AtomicBool,
    /// A file system of it lost something that is no file's: until an administrator acts.
    tripped_for_good: AtomicBool,
    /// The engine's guard is on (`sync/table.rs`).
    guard: Arc<AtomicBool>,
    bytes: AtomicU64,
    bytes_of: [AtomicU64; PolicyKind::ALL.len()],
    lost_bytes: AtomicU64,
    lost_inodes: AtomicU64,
    pub(crate) ages: Mutex<Ages>,
    /// Changes that became dirty at this time (nanoseconds) or before it are due at once.
    urgent: AtomicU64,
    /// Something dirty became clean.
    pub(crate) room: Notify,
    /// Wakes the flusher.
    pub(crate) kick: Notify,
    start_flusher: StartFlusher,
    pub(crate) metrics: Metrics,
}

impl Share {
    pub(crate) fn new(
        name: &str,
        settings: ShareDurability,
        env: Arc<dyn Env>,
        guard: Arc<AtomicBool>,
        start_flusher: StartFlusher,
    ) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            env,
            settings: RwLock::new(settings),
            ruled: RwLock::default(),
            gates: AtomicUsize::new(0),
            roots: Mutex::default(),
            latency: Mutex::default(),
            tripped: AtomicBool::new(false),
            tripped_for_good: AtomicBool::new(false),
            guard,
            bytes: AtomicU64::new(0),
            bytes_of: Default::default(),
            lost_bytes: AtomicU64::new(0),
            lost_inodes: AtomicU64::new(0),
            ages: Mutex::default(),
            urgent: AtomicU64::new(0),
            room: Notify::new(),
            kick: Notify::new(),
            start_flusher,
            metrics: Metrics::default(),
        })
    }

    /// As configured.
    pub(crate) fn settings(&self) -> ShareDurability {
        *read(&self.settings)
    }

    /// As in force: a share that is tripped or guarded honors.
    pub(crate) fn effective(&self) -> ShareDurability {
        let mut settings = self.settings();
        settings.policy = self.in_force(settings.policy);
        settings
    }

    /// A policy of the share or of one of its rules, as in force: a share that is tripped or
    /// guarded honors.
    pub(crate) fn in_force(&self, policy: Policy) -> Policy {
        match policy.is_lazy() && (self.is_tripped() || self.is_guarded()) {
            true => Policy::Honor,
            false => policy,
        }
    }

    /// The terms in force of the share, or of one of its rules instead. A guarded share keeps
    /// its bounds, too; a tripped one keeps none.
    pub(crate) fn asked(&self, rule: Option<RuleTerms>) -> Effective {
        let settings = self.settings();
        let policy = rule.map_or(settings.policy, |rule| rule.policy);
        let times = rule.and_then(|rule| rule.flush_times);
        let times = times.unwrap_or(settings.flush_times);
        let now = Effective::of(self.in_force(policy), times);
        match self.is_tripped() {
            true => now,
            false => now.join(Effective::of(policy, times)),
        }
    }

    fn is_guarded(&self) -> bool {
        self.guard.load(SeqCst)
    }

    /// Whether its policy or one of its rules answers before the disk does.
    pub(crate) fn has_lazy(&self) -> bool {
        self.settings().policy.is_lazy() || read(&self.ruled).lazy
    }

    pub(crate) fn set_aside(&self) -> SetAside {
        let lazy = self.has_lazy();
        SetAside {
            failed_sync: lazy && self.is_tripped(),
            guard: lazy && self.is_guarded(),
        }
    }

    pub(crate) fn rules(&self) -> Arc<Rules> {
        Arc::clone(&read(&self.ruled).rules)
    }

    pub(crate) fn set_rules(&self, rules: Arc<Rules>) {
        *write(&self.ruled) = Ruled {
            bound: Bound::tightest(rules.iter().map(|rule| rule.policy.bound())),
            lazy: rules.iter().any(|rule| rule.policy.is_lazy()),
            rules: Arc::clone(&rules),
        };
        self.policy_changed();
    }

    fn policy_changed(&self) {
        lock(&self.latency).forget_slow();
        self.room.notify_waiters();
        self.kick.notify_one();
    }

    /// The tightest bound of the share's policy and its rules: everything dirty is synced within.
    /// Tripped or not: what was acknowledged was promised.
    pub(crate) fn bound(&self) -> Option<Bound> {
        Bound::tightest([self.settings().policy.bound(), read(&self.ruled).bound])
    }

    pub(crate) fn add_root(&self, root: FileKey) {
        lock(&self.roots).insert(root);
    }

    /// The folders it is of.
    pub(crate) fn roots(&self) -> BTreeSet<FileKey> {
        lock(&self.roots).clone()
    }

    /// Whether it is of one of these folders.
    pub(crate) fn is_within(&self, roots: &BTreeSet<FileKey>) -> bool {
        !lock(&self.roots).is_disjoint(roots)
    }

    /// A sync of one inode took so long.
    pub(crate) fn sync_took(&self, span: Duration) {
        lock(&self.latency).synced(span, self.env.monotonic());
    }

    /// A background sync, with all that had to go before and after it, took so long.
    pub(crate) fn background_synced_in(&self, span: Duration) {
        let (bound, now) = (self.bound(), self.env.monotonic());
        lock(&self.latency).background_synced(span, now, bound.as_ref());
    }

    /// The number of rounds of background syncs that everything dirty takes.
    fn rounds(&self, at_once: usize) -> usize {
        lock(&self.ages).inodes.len().div_ceil(at_once.max(1))
    }

    /// The age at which the background sync of a dirty inode starts.
    pub(crate) fn start_age(&self, bound: &Bound, at_once: usize, now: Duration) -> Duration {
        let rounds = self.rounds(at_once);
        lock(&self.latency).start_age(bound, rounds, now)
    }

    /// How the bound is kept for a change that takes so many syncs one after the other.
    /// A change of that is logged.
    pub(crate) fn keeping(&self, bound: &Bound, chain: usize) -> Keeping {
        let now = self.env.monotonic();
        let mut latency = lock(&self.latency);
        let keeping = latency.keeping(bound, chain, now);
        let turn = latency.judged(&keeping, now);
        let sync = latency.too_slow().map(|(_, sync)| sync.as_millis());
        drop(latency);
        match turn {
            Some(Turn::TooSlow) => tracing::warn!(
                share = self.name,
                bound_ms = bound.max_delay.as_millis(),
                sync_ms = sync,
                "the disk is too slow for the bound: FLUSH waits as under honor"
            ),
            Some(Turn::QuickAgain) => tracing::warn!(
                share = self.name,
                bound_ms = bound.max_delay.as_millis(),
                "the disk is quick enough for the bound again: FLUSH is answered at once"
            ),
            None => {}
        }
        keeping
    }

    /// Since when the disk is too slow for the bound unless FLUSH waits, if it is.
    pub(crate) fn too_slow(&self) -> Option<TooSlow> {
        self.bound()?;
        let (since, sync) = lock(&self.latency).too_slow()?;
        let lasts = self.env.monotonic().saturating_sub(since);
        Some(TooSlow { lasts, sync })
    }

    /// Whether more is dirty than background syncs can make stable in time, round after round.
    pub(crate) fn is_behind(&self, at_once: usize, keeping: &Keeping) -> bool {
        self.rounds(at_once) > keeping.rounds
    }

    /// An administrator changes the policy: the loss, if any, is known.
    pub(crate) fn set(&self, change: impl FnOnce(&mut ShareDurability)) {
        self.tripped.store(false, SeqCst);
        self.tripped_for_good.store(false, SeqCst);
        self.configure(change);
    }

    /// Settings of a share that comes back after it was removed: what failed is not forgotten.
    pub(crate) fn configure(&self, change: impl FnOnce(&mut ShareDurability)) {
        change(&mut write(&self.settings));
        self.policy_changed();
    }

    pub(crate) fn set_options(&self, options: ShareDurability) {
        let mut settings = write(&self.settings);
        *settings = ShareDurability {
            policy: settings.policy,
            ..options
        };
    }

    /// Goes to `honor` if the policy answers before the disk does; what is dirty by `now` is due.
    /// `for_good`: for a loss that no latch stands for. Answers whether that is news.
    pub(crate) fn trip(&self, now: Duration, for_good: bool) -> bool {
        if !self.has_lazy() {
            return false;
        }
        // First, because requests that are woken check it.
        let known = self.is_tripped();
        self.tripped.store(true, SeqCst);
        self.tripped_for_good.fetch_or(for_good, SeqCst);
        self.hurry(now);
        self.room.notify_waiters();
        !known
    }

    /// Everything dirty by `now` is due at once.
    pub(crate) fn hurry(&self, now: Duration) {
        self.urgent.fetch_max(nanos(now), SeqCst);
        self.kick.notify_one();
    }

    /// Whether the share honors instead of what is set.
    pub(crate) fn is_tripped(&self) -> bool {
        self.tripped.load(SeqCst) || self.tripped_for_good.load(SeqCst)
    }

    /// A latch ended, whichever way: with the last one the trip ends that it caused.
    pub(crate) fn untrip_if_clean(&self) {
        if self.lost_inodes.load(SeqCst) == 0 {
            self.tripped.store(false, SeqCst);
            // One that came meanwhile has tripped before this, or does after it.
            if self.lost_inodes.load(SeqCst) > 0 {
                self.tripped.store(true, SeqCst);
            }
        }
    }

    /// An administrator accepts the loss of everything of the share.
    pub(crate) fn accept_loss(&self) {
        self.tripped_for_good.store(false, SeqCst);
        self.untrip_if_clean();
    }

    /// Whether there is anything to remember when the last gate is gone.
    pub(crate) fn is_settled(&self) -> bool {
        lock(&self.ages).charges.is_empty()
            && self.bytes() == 0
            && self.lost_inodes.load(SeqCst) == 0
            && !self.is_tripped()
    }

    pub(crate) fn is_due_now(&self, since: Duration) -> bool {
        let urgent = self.urgent.load(SeqCst);
        urgent > 0 && nanos(since) <= urgent
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(SeqCst)
    }

    /// The inodes with anything dirty, oldest first; one may come more than once.
    pub(crate) fn dirty(&self) -> Vec<FileKey> {
        let ages = lock(&self.ages);
        ages.charges.values().map(|owed| owed.key).collect()
    }

    /// Since when the oldest is dirty.
    fn oldest(&self) -> Option<Duration> {
        let ages = lock(&self.ages);
        ages.charges.first_key_value().map(|((since, _), _)| *since)
    }

    /// Whether something is dirty for at least so long.
    pub(crate) fn is_older(&self, age: Duration, now: Duration) -> bool {
        self.oldest().is_some_and(|since| now >= since + age)
    }

    /// Whether an acknowledgement now would go beyond the bound.
    pub(crate) fn breaks(&self, bound: &Bound, now: Duration) -> bool {
        self.bytes() > bound.max_bytes || self.is_older(bound.max_delay, now)
    }

    /// Reserves bytes for a write about to start; `None` if they do not fit below `max`.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        bytes: u64,
        max: u64,
        kind: PolicyKind,
    ) -> Option<Reservation> {
        let fits = |now: u64| now.checked_add(bytes).filter(|sum| *sum <= max);
        self.bytes.fetch_update(SeqCst, SeqCst, fits).ok()?;
        self.of(kind).fetch_add(bytes, SeqCst);
        Some(Reservation {
            share: Arc::clone(self),
            bytes,
            kind,
        })
    }

    fn of(&self, kind: PolicyKind) -> &AtomicU64 {
        self.bytes_of.get(kind as usize).unwrap_or(&self.bytes)
    }

    /// No longer dirty under `kind`.
    fn forget(&self, bytes: u64, kind: PolicyKind) {
        self.of(kind).fetch_sub(bytes, SeqCst);
        self.bytes.fetch_sub(bytes, SeqCst);
    }

    /// Charged under another policy from now on.
    fn change(&self, bytes: u64, from: PolicyKind, to: PolicyKind) {
        self.of(to).fetch_add(bytes, SeqCst);
        self.of(from).fetch_sub(bytes, SeqCst);
    }

    pub(crate) fn exposure(&self, now: Duration) -> Exposure {
        let ages = lock(&self.ages);
        let mut all = Exposure {
            bytes: self.bytes(),
            by_policy: PolicyKind::ALL.map(|kind| PolicyExposure {
                bytes: self.of(kind).load(SeqCst),
                ..PolicyExposure::default()
            }),
            latched_bytes: self.lost_bytes.load(SeqCst),
            latched_inodes: self.lost_inodes.load(SeqCst),
            ..Exposure::default()
        };
        let mut seen = BTreeSet::new();
        for ((since, _), owed) in &ages.charges {
            let age = now.saturating_sub(*since);
            let mut inodes = |of| u64::from(seen.insert((of, owed.key))) + owed.removed;
            all.inodes += inodes(None);
            all.oldest_age = all.oldest_age.max(age);
            if let Some(one) = all.by_policy.get_mut(owed.kind as usize) {
                one.inodes += inodes(Some(owed.kind));
                one.oldest_age = one.oldest_age.max(age);
            }
        }
        all
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Bytes of a write under way.
pub(crate) struct Reservation {
    share: Arc<Share>,
    bytes: u64,
    kind: PolicyKind,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.share.forget(self.bytes, self.kind);
        if self.bytes > 0 {
            self.share.room.notify_waiters();
        }
    }
}

/// The part of one share's exposure that one inode stands for.
pub(crate) struct Charge {
    pub(crate) share: Arc<Share>,
    at: (Duration, u64),
    bytes: u64,
    kind: PolicyKind,
}

impl Charge {
    /// A new charge. The share's flusher runs from now on.
    pub(crate) fn new(share: &Arc<Share>, key: FileKey, now: Duration, kind: PolicyKind) -> Self {
        let mut ages = lock(&share.ages);
        let charge = Self::since(share, &mut ages, (key, kind), now);
        let runs = std::mem::replace(&mut ages.flusher, true);
        let rests = std::mem::take(&mut ages.flusher_rests);
        drop(ages);
        if !runs {
            (share.start_flusher)(share);
        } else if rests {
            share.kick.notify_one();
        }
        charge
    }

    fn since(
        share: &Arc<Share>,
        ages: &mut Ages,
        (key, kind): (FileKey, PolicyKind),
        since: Duration,
    ) -> Self {
        ages.next += 1;
        let at = (since, ages.next);
        let removed = 0;
        ages.add(at, Charged { key, kind, removed });
        let share = Arc::clone(share);
        Self {
            share,
            at,
            bytes: 0,
            kind,
        }
    }

    /// The charge that remains when only data and size are synced: none of its bytes, and as old as
    /// this one. The share's flusher runs, because something of the share is dirty.
    pub(crate) fn for_times(&self) -> Option<Self> {
        let mut ages = lock(&self.share.ages);
        let key = ages.charges.get(&self.at)?.key;
        Some(Self::since(
            &self.share,
            &mut ages,
            (key, self.kind),
            self.at.0,
        ))
    }

    /// Takes the bytes of a write that ended.
    pub(crate) fn absorb(&mut self, mut reservation: Reservation) {
        let bytes = std::mem::take(&mut reservation.bytes);
        self.share.change(bytes, reservation.kind, self.kind);
        self.bytes += bytes;
    }

    pub(crate) fn kind(&self) -> PolicyKind {
        self.kind
    }

    /// Whether it is this share's under this policy.
    pub(crate) fn is_for(&self, share: &Arc<Share>, kind: PolicyKind) -> bool {
        Arc::ptr_eq(&self.share, share) && self.kind == kind
    }

    /// Whether the bytes of a write under way become its own.
    pub(crate) fn covers(&self, write: &Reservation) -> bool {
        self.is_for(&write.share, write.kind)
    }

    /// A client received the promise of another policy for it.
    pub(crate) fn change(&mut self, kind: PolicyKind) {
        self.update(|owed| owed.kind = kind);
        self.share.change(self.bytes, self.kind, kind);
        self.kind = kind;
    }

    /// Of a directory: so many names went away there.
    pub(crate) fn names_removed(&self, count: u64) {
        self.update(|owed| owed.removed = owed.removed.saturating_add(count));
    }

    pub(crate) fn removed(&self) -> u64 {
        let ages = lock(&self.share.ages);
        ages.charges.get(&self.at).map_or(0, |owed| owed.removed)
    }

    fn update(&self, change: impl FnOnce(&mut Charged)) {
        lock(&self.share.ages).update(self.at, change);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether its share promises how old it gets.
    pub(crate) fn is_bounded(&self) -> bool {
        self.share.bound().is_some()
    }

    /// From now on a part of the state of `key`: clean when that is.
    pub(crate) fn move_to(&mut self, key: FileKey) {
        self.update(|owed| owed.key = key);
    }

    /// Takes over another charge of the same share; both are `key`'s from now on, as old as the
    /// older one.
    pub(crate) fn join(&mut self, mut other: Self, key: FileKey) {
        self.bytes += std::mem::take(&mut other.bytes);
        if other.at < self.at {
            std::mem::swap(&mut self.at, &mut other.at);
        }
        let removed = other.removed();
        self.update(|owed| {
            owed.key = key;
            owed.removed = owed.removed.saturating_add(removed);
        });
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        lock(&self.share.ages).remove(self.at);
        self.share.forget(self.bytes, self.kind);
        if self.kind == PolicyKind::Bounded
            && let Some(bound) = self.share.bound()
            && self.share.env.monotonic() >= self.at.0 + bound.max_delay
        {
            count(&self.share.metrics.bound_exceeded);
        }
        self.share.room.notify_waiters();
    }
}

/// The state that a failed sync left unproven for one share, until the latch ends.
pub(crate) struct Unproven {
    pub(crate) share: Arc<Share>,
    bytes: u64,
    /// The inode, and those that names went away of.
    inodes: u64,
}

impl Unproven {
    pub(crate) fn new(share: &Arc<Share>) -> Self {
        share.lost_inodes.fetch_add(1, SeqCst);
        Self {
            share: Arc::clone(share),
            bytes: 0,
            inodes: 1,
        }
    }

    /// A sync failed: the bytes are unproven, and no longer dirty.
    pub(crate) fn take(&mut self, charge: &Charge) {
        let removed = charge.removed();
        self.share.lost_inodes.fetch_add(removed, SeqCst);
        self.inodes += removed;
        self.add(charge.bytes);
    }

    /// Bytes of a write whose fate is unknown.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.share.lost_bytes.fetch_add(bytes, SeqCst);
        self.bytes += bytes;
    }
}

impl Drop for Unproven {
    fn drop(&mut self) {
        self.share.lost_bytes.fetch_sub(self.bytes, SeqCst);
        self.share.lost_inodes.fetch_sub(self.inodes, SeqCst);
    }
}
