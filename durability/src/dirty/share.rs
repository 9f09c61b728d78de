//! One share: the policy in force, also for the opens of one inode, and the exposure that the share is charged with.
//!
//! The strictest of an inode's opens decides. An open that matched no rule follows the current policy of
//! its share; one that matched a rule follows the rule, as `honor` while its share is tripped or guarded.
//! A request through a share without an open of the inode counts as an open that follows the share. Opens
//! are grouped by share and rule, so a decision takes a few steps however many there are.
//!
//! Invariants:
//! - A [`Charge`] is owned by the dirty state that it stands for, and dropping it is the only way to
//!   lower the exposure: nothing that is still dirty can be forgotten. A [`Reservation`] stands for
//!   the bytes of a write in flight.
//! - Lock order: a shard of the inode table, then `ages`.

mod charges;
mod control;
mod opens;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::sync::Notify;
pub(crate) use vfs::lock;
use vfs::{Env, FileKey};

use super::latency::SyncLatency;
use crate::{
    metrics::{Metrics, count},
    policy::{Bound, Policy, PolicyKind},
    rules::{Opener, Rule, Rules},
    settings::ShareDurability,
};

pub(crate) use charges::Unproven;

/// Whether both are names of one share: case does not count.
#[must_use]
pub fn is_same_share(one: &str, other: &str) -> bool {
    one.to_uppercase() == other.to_uppercase()
}

pub(crate) fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

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
    /// Gates of the share: more than one while a reload replaces its back end.
    pub(crate) gates: AtomicUsize,
    /// The root folders of the share: several after a reload.
    roots: Mutex<BTreeSet<FileKey>>,
    pub(crate) latency: Mutex<SyncLatency>,
    /// After a failed sync: treated as `honor` until no latch is left or an administrator acts.
    tripped: AtomicBool,
    /// One of its file systems lost data of an unknown file: `honor` until an administrator acts.
    tripped_for_good: AtomicBool,
    /// The engine's guard is on (`sync/table.rs`).
    guard: Arc<AtomicBool>,
    pub(crate) ages: Mutex<Ages>,
    /// Changes that became dirty at this time (nanoseconds) or before it are due at once.
    urgent: AtomicU64,
    /// Notifies those who wait for dirty state to become clean.
    pub(crate) room: Notify,
    pub(crate) kick: Notify,
    start_flusher: StartFlusher,
    pub(crate) metrics: Metrics,
}

/// A share equals only itself.
impl PartialEq for Share {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Share {
    /// Whether this is its name; a reload may change the case.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        is_same_share(&self.name, name)
    }

    pub(crate) fn settings(&self) -> ShareDurability {
        *read(&self.settings)
    }

    /// The policy in force: `honor` instead of a lazy policy while the share is tripped or guarded.
    pub(crate) fn policy(&self) -> Policy {
        self.in_force(self.settings().policy)
    }

    /// The policy in force instead of `policy`, which the share or one of its rules has.
    pub(crate) fn in_force(&self, policy: Policy) -> Policy {
        match policy.is_lazy() && (self.is_tripped() || self.is_guarded()) {
            true => Policy::Honor,
            false => policy,
        }
    }

    /// The terms in force of the share, or of one of its rules. A guarded share keeps its bounds; a tripped one none.
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

    pub(crate) fn is_guarded(&self) -> bool {
        self.guard.load(SeqCst)
    }

    /// Whether its policy or one of its rules answers before the disk does.
    pub(crate) fn has_lazy(&self) -> bool {
        self.settings().policy.is_lazy() || read(&self.ruled).lazy
    }

    /// The tightest bound of the share's policy and its rules, within which everything dirty is synced.
    /// It holds for a tripped share too, because earlier changes were acknowledged under it.
    pub(crate) fn bound(&self) -> Option<Bound> {
        Bound::tightest([self.settings().policy.bound(), read(&self.ruled).bound])
    }

    /// The bound that the share keeps for a change for which `all` is the tightest. It is neither the tighter one of
    /// another share, within which its flusher does not sync, nor that of a rule that does not apply.
    pub(crate) fn bound_for(&self, all: Bound) -> Option<Bound> {
        self.bound().map(|own| own.looser(all))
    }

    /// Whether `honor` is in force instead of lazy policies because of a failure.
    pub(crate) fn is_tripped(&self) -> bool {
        self.tripped.load(SeqCst) || self.tripped_for_good.load(SeqCst)
    }
}

/// Each of these shares once.
pub(crate) fn distinct<'a>(shares: impl IntoIterator<Item = &'a Arc<Share>>) -> Vec<Arc<Share>> {
    let mut all = Vec::new();
    for share in shares {
        if !all.contains(share) {
            all.push(Arc::clone(share));
        }
    }
    all
}

/// The terms of a request: the strictest of several policies, and the tightest of their bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Effective {
    pub(crate) policy: Policy,
    /// The tightest bound of all bounded policies among them, even if a stricter policy decides: a bound promises
    /// something about changes that no client flushed, and the stricter policy does not.
    pub(crate) bound: Option<Bound>,
    /// A FLUSH covers the times of a file whose contents changed.
    pub(crate) times: bool,
}

impl Effective {
    pub(crate) fn of(policy: Policy, times: bool) -> Self {
        Self {
            policy,
            bound: policy.bound(),
            times: policy.flushes_times(times),
        }
    }

    pub(crate) fn join(self, other: Self) -> Self {
        Self {
            policy: self.policy.stricter(other.policy),
            bound: Bound::tightest([self.bound, other.bound]),
            times: self.times || other.times,
        }
    }
}

/// The opens of an inode through one share that matched one rule: they ask for the same terms.
pub(crate) struct Alike {
    pub(crate) share: Arc<Share>,
    /// `None`: they follow the share.
    pub(crate) rule: Option<Arc<Rule>>,
    /// The opens in the order of their numbers; never empty.
    pub(crate) openers: Vec<Opened>,
}

/// An open and who has it.
pub(crate) struct Opened {
    pub(crate) id: u64,
    pub(crate) opener: Arc<Opener>,
}

impl Alike {
    pub(crate) fn asked(&self) -> Effective {
        self.share.asked(self.rule.as_deref())
    }
}

/// The opens of an inode.
#[derive(Default)]
pub(crate) struct Opens {
    alike: Vec<Alike>,
    /// Since the inode last had no open, its opens did not all come by one path of one share.
    several_names: bool,
    /// The path by which the last of all opens reached the inode, once all are closed.
    last: Option<Arc<Opener>>,
}

impl Opens {
    /// The terms that the opens ask for; `None` without opens.
    pub(crate) fn strictest(&self) -> Option<Effective> {
        let asked = self.alike.iter().map(Alike::asked);
        asked.reduce(Effective::join)
    }

    /// The terms of a request through `own`.
    pub(crate) fn effective(&self, own: &Arc<Share>) -> Effective {
        let asked = self.strictest();
        if let Some(asked) = asked
            && self.alike.iter().any(|some| some.share == *own)
        {
            return asked;
        }
        let mine = own.asked(None);
        asked.map_or(mine, |asked| asked.join(mine))
    }

    /// Shares other than `own` with a bounded open. They are charged with changes through `own`, to sync them in time.
    pub(crate) fn bounded_elsewhere(&self, own: &Arc<Share>) -> Vec<Arc<Share>> {
        let others = self.alike.iter().filter(|some| some.share != *own);
        let bounded = others.filter(|some| some.asked().bound.is_some());
        distinct(bounded.map(|some| &some.share))
    }
}

/// The inode of a charge, and the policy under which it was acknowledged.
#[derive(Clone, Copy)]
pub(crate) struct Charged {
    pub(crate) key: FileKey,
    kind: PolicyKind,
    /// Names that were removed from this directory. The inode of each of them may come back, so it counts as exposed.
    removed: u64,
}

/// Everything dirty on one file system that a share is charged with.
#[derive(Default)]
pub(crate) struct Aged {
    /// Every charge by age.
    pub(crate) charges: BTreeMap<(Duration, u64), Charged>,
    /// The number of charges of each dirty inode.
    inodes: BTreeMap<FileKey, usize>,
}

impl Aged {
    /// The number of rounds of background syncs that it takes.
    pub(crate) fn rounds(&self, at_once: usize) -> usize {
        self.inodes.len().div_ceil(at_once.max(1))
    }
}

/// Everything that a share is charged with.
#[derive(Default)]
pub(crate) struct Ages {
    /// By file system, so that one that hangs holds back no other that is mounted in the share.
    pub(crate) on: BTreeMap<u64, Aged>,
    next: u64,
    /// The bytes acknowledged under each policy, in the order of [`PolicyKind::ALL`], including writes in flight.
    bytes: [u64; PolicyKind::ALL.len()],
    lost_bytes: u64,
    lost_inodes: u64,
    /// The share's flusher runs, or is about to be started.
    pub(crate) flusher: bool,
    /// The flusher knows of nothing that will be due, so the next change that becomes dirty wakes it.
    pub(crate) flusher_rests: bool,
}

impl Ages {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.iter().sum()
    }

    #[expect(clippy::indexing_slicing, reason = "there is a place for each kind")]
    fn bytes_of(&mut self, kind: PolicyKind) -> &mut u64 {
        &mut self.bytes[kind as usize]
    }
}

impl Share {
    pub(crate) fn bytes(&self) -> u64 {
        lock(&self.ages).bytes()
    }

    /// Whether something on the file system has been dirty for at least `age`.
    pub(crate) fn is_older(&self, fs: u64, age: Duration, now: Duration) -> bool {
        let ages = lock(&self.ages);
        let oldest = ages.on.get(&fs).and_then(|on| on.charges.first_key_value());
        oldest.is_some_and(|((since, _), _)| now >= *since + age)
    }

    /// Whether to acknowledge a change on the file system now would go beyond the bound.
    pub(crate) fn breaks(&self, fs: u64, bound: &Bound, now: Duration) -> bool {
        self.bytes() > bound.max_bytes || self.is_older(fs, bound.max_delay, now)
    }

    /// Whether a write has to wait: its bytes do not fit the bound, or something has been dirty for too long.
    pub(crate) fn refuses(&self, fs: u64, bytes: u64, bound: &Bound) -> bool {
        let oldest = self.keeping(bound, 1).oldest;
        let fits = self.bytes().saturating_add(bytes) <= bound.max_bytes;
        !fits || self.is_older(fs, oldest, self.env.monotonic())
    }

    /// Reserves bytes for a write about to start; `None` if they do not fit below `max`.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        bytes: u64,
        max: u64,
        kind: PolicyKind,
    ) -> Option<Reservation> {
        let mut ages = lock(&self.ages);
        let sum = ages.bytes().checked_add(bytes);
        sum.filter(|sum| *sum <= max)?;
        *ages.bytes_of(kind) += bytes;
        drop(ages);
        let share = Arc::clone(self);
        Some(Reservation { share, bytes, kind })
    }
}

/// The bytes of a write in flight, which count as exposed already.
pub(crate) struct Reservation {
    share: Arc<Share>,
    bytes: u64,
    kind: PolicyKind,
}

impl Reservation {
    /// The write has ended: its bytes, which are returned, become those of the charge of its share, if that is among
    /// `charges`.
    pub(crate) fn charge(mut self, charges: &mut [Charge]) -> u64 {
        let bytes = self.bytes;
        let mut charges = charges.iter_mut();
        if let Some(charge) = charges.find(|one| one.is_for(&self.share, self.kind)) {
            charge.bytes += std::mem::take(&mut self.bytes);
        }
        bytes
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            *lock(&self.share.ages).bytes_of(self.kind) -= self.bytes;
            self.share.room.notify_waiters();
        }
    }
}

/// The part of one share's exposure that one inode accounts for.
pub(crate) struct Charge {
    pub(crate) share: Arc<Share>,
    /// Its place in [`Ages::on`].
    fs: u64,
    at: (Duration, u64),
    pub(in crate::dirty) bytes: u64,
    pub(in crate::dirty) kind: PolicyKind,
}

impl Charge {
    /// A new charge for what has been dirty since then. The share's flusher runs from now on.
    fn since(share: &Arc<Share>, (key, kind): (FileKey, PolicyKind), since: Duration) -> Self {
        let mut ages = lock(&share.ages);
        ages.next += 1;
        let at = (since, ages.next);
        let removed = 0;
        ages.insert(at, Charged { key, kind, removed });
        let runs = std::mem::replace(&mut ages.flusher, true);
        let rests = std::mem::take(&mut ages.flusher_rests);
        drop(ages);
        if !runs {
            (share.start_flusher)(share);
        } else if rests {
            share.kick.notify_one();
        }
        let share = Arc::clone(share);
        Self {
            share,
            fs: key.fs,
            at,
            bytes: 0,
            kind,
        }
    }

    pub(crate) fn is_for(&self, share: &Arc<Share>, kind: PolicyKind) -> bool {
        self.share == *share && self.kind == kind
    }

    /// Whether the share bounds the age of what is charged.
    pub(crate) fn is_bounded(&self) -> bool {
        self.share.bound().is_some()
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut ages = lock(&self.share.ages);
        ages.remove(self.fs, self.at);
        *ages.bytes_of(self.kind) -= self.bytes;
        drop(ages);
        if self.kind == PolicyKind::Bounded
            && let Some(bound) = self.share.bound()
            && self.share.env.monotonic() >= self.at.0 + bound.max_delay
        {
            count(&self.share.metrics.bound_exceeded);
        }
        self.share.room.notify_waiters();
    }
}

/// The shares that are charged with a change.
pub(crate) struct Account<'a> {
    pub(crate) share: &'a Arc<Share>,
    /// The policy that the change is acknowledged under.
    pub(crate) kind: PolicyKind,
    /// Other shares with a bounded open of the inode.
    pub(crate) also: Vec<Arc<Share>>,
}

impl Account<'_> {
    /// The shares that are charged, each with the policy under which it is charged.
    pub(crate) fn shares(&self) -> impl Iterator<Item = (&Arc<Share>, PolicyKind)> {
        let also = (self.also.iter()).map(|share| (share, PolicyKind::Bounded));
        std::iter::once((self.share, self.kind)).chain(also)
    }

    /// Adds a charge for each of these shares that has none in `charges`.
    pub(crate) fn charge(&self, charges: &mut Vec<Charge>, key: FileKey) {
        for (share, kind) in self.shares() {
            if !charges.iter().any(|charge| charge.is_for(share, kind)) {
                charges.push(Charge::since(share, (key, kind), share.env.monotonic()));
            }
        }
    }

    /// As [`Account::charge`], for what is dirty already: each of these shares is charged with all of its `bytes`.
    pub(crate) fn join(&self, (charges, bytes): (&mut Vec<Charge>, u64), key: FileKey) {
        self.charge(charges, key);
        for (share, kind) in self.shares() {
            let mine = charges.iter().filter(|charge| charge.share == *share);
            let missing = bytes.saturating_sub(mine.map(|charge| charge.bytes).sum());
            if let Some(reserved) = share.reserve(missing, u64::MAX, kind) {
                reserved.charge(charges);
            }
        }
    }
}
