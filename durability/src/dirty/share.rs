//! One share: the policy in force, and how long its syncs take. `share/exposure.rs` counts what it has
//! acknowledged that is dirty.

mod exposure;

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::sync::Notify;
pub(crate) use vfs::lock;
use vfs::{Env, FileKey};

use super::{
    latency::{Keeping, SyncLatency, Turn},
    opens::Effective,
};
use crate::{
    metrics::Metrics,
    policy::{Bound, Policy},
    report::TooSlow,
    rules::{Rule, Rules},
    settings::ShareDurability,
};

pub(crate) use exposure::{Ages, Charge, Charged, Reservation, Unproven};

/// As [`lock`].
pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// As [`lock`].
pub(crate) fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
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
    /// The root folders of the share: several after a reload.
    roots: Mutex<BTreeSet<FileKey>>,
    /// How long syncs take.
    latency: Mutex<SyncLatency>,
    /// After a failed sync: treated as `honor` until no latch is left or an administrator acts.
    tripped: AtomicBool,
    /// One of its file systems lost data of an unknown file: `honor` until an administrator acts.
    tripped_for_good: AtomicBool,
    /// The engine's guard is on (`sync/table.rs`).
    guard: Arc<AtomicBool>,
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

    /// The policy in force: a share that is tripped or guarded honors.
    pub(crate) fn policy(&self) -> Policy {
        self.in_force(self.settings().policy)
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
    pub(crate) fn asked(&self, rule: Option<&Rule>) -> Effective {
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

    /// The engine's guard is on.
    pub(crate) fn is_guarded(&self) -> bool {
        self.guard.load(SeqCst)
    }

    /// Whether its policy or one of its rules answers before the disk does.
    pub(crate) fn has_lazy(&self) -> bool {
        self.settings().policy.is_lazy() || read(&self.ruled).lazy
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

    /// A background sync, with all that had to go before and after it, ended so long after it was due.
    pub(crate) fn background_synced_in(&self, span: Duration) {
        let (bound, now) = (self.bound(), self.env.monotonic());
        lock(&self.latency).background_synced(span, now, bound.as_ref());
    }

    /// The number of rounds of background syncs that everything dirty takes.
    fn rounds(&self, at_once: usize) -> usize {
        self.dirty_inodes().div_ceil(at_once.max(1))
    }

    /// The age at which the background sync of a dirty inode starts.
    pub(crate) fn start_age(&self, bound: &Bound, at_once: usize, now: Duration) -> Duration {
        let rounds = self.rounds(at_once);
        lock(&self.latency).start_age(bound, rounds, now)
    }

    /// How the bound is kept for a change that takes so many syncs one after the other.
    /// The log reports when that changes.
    pub(crate) fn keeping(&self, bound: &Bound, chain: usize) -> Keeping {
        let now = self.env.monotonic();
        let mut latency = lock(&self.latency);
        let keeping = latency.keeping(bound, chain, now);
        let turn = latency.judged(&keeping, now);
        let sync_ms = latency.too_slow().map(|(_, sync)| sync.as_millis());
        drop(latency);
        let what = match turn {
            Some(Turn::TooSlow) => "too slow for the bound: FLUSH waits as under honor",
            Some(Turn::QuickAgain) => "quick enough for the bound again: FLUSH is answered at once",
            None => return keeping,
        };
        let bound_ms = bound.max_delay.as_millis();
        tracing::warn!(share = self.name, bound_ms, sync_ms, "the disk is {what}");
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

    /// An administrator changes the policy, and so accepts the loss, if there is one.
    pub(crate) fn set(&self, change: impl FnOnce(&mut ShareDurability)) {
        self.tripped.store(false, SeqCst);
        self.tripped_for_good.store(false, SeqCst);
        self.configure(change);
    }

    /// Sets the options of a share that comes back after it was removed. Failures are not forgotten.
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

    /// Makes the share honor flushes if its policy answers before the disk does; everything dirty by `now` is due. With
    /// `for_good` no latch stands for the loss. Returns whether this is news.
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

    /// A latch ended in any way. With the last one ends the trip that latches caused.
    pub(crate) fn untrip_if_clean(&self) {
        if !self.has_lost() {
            self.tripped.store(false, SeqCst);
            // A latch that appeared meanwhile has tripped the share before this point, or does so after it.
            if self.has_lost() {
                self.tripped.store(true, SeqCst);
            }
        }
    }

    /// An administrator accepts the loss of everything of the share.
    pub(crate) fn accept_loss(&self) {
        self.tripped_for_good.store(false, SeqCst);
        self.untrip_if_clean();
    }

    pub(crate) fn is_due_now(&self, since: Duration) -> bool {
        let urgent = self.urgent.load(SeqCst);
        urgent > 0 && nanos(since) <= urgent
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
