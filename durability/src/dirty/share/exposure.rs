//! The exposure of one share: how much of what it has acknowledged is dirty or unproven, and how its bound is kept.
//!
//! Invariants:
//! - A [`Charge`] is owned by the dirty state that it stands for, and dropping it is the only way to
//!   lower the exposure: nothing that is still dirty can be forgotten. A [`Reservation`] stands for
//!   the bytes of a write in flight.
//! - Lock order: a shard of the inode table, then `ages`.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
    time::Duration,
};

use vfs::{FileKey, lock};

use super::Share;
use crate::{
    dirty::latency::{Keeping, SpeedChange},
    metrics::count,
    policy::{Bound, PolicyKind},
    report::{Exposure, PolicyExposure, TooSlow},
};

/// The inode of a charge, and the policy under which it was acknowledged.
#[derive(Clone, Copy)]
pub(crate) struct Charged {
    pub(crate) key: FileKey,
    kind: PolicyKind,
    /// Names that were removed from this directory. The inode of each of them may come back, so it counts as exposed.
    removed: u64,
}

/// Decrements the count of this key.
pub(crate) fn uncount<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K) {
    if let Entry::Occupied(mut count) = counts.entry(key) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

/// Everything that a share is charged with.
#[derive(Default)]
pub(crate) struct Ages {
    /// Every charge by age.
    pub(crate) charges: BTreeMap<(Duration, u64), Charged>,
    /// The number of charges of each dirty inode.
    inodes: BTreeMap<FileKey, usize>,
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
    fn update(&mut self, at: (Duration, u64), change: impl FnOnce(&mut Charged)) {
        if let Some(charged) = self.charges.get_mut(&at) {
            let old = charged.key;
            change(charged);
            *self.inodes.entry(charged.key).or_default() += 1;
            uncount(&mut self.inodes, old);
        }
    }

    fn bytes(&self) -> u64 {
        self.bytes.iter().sum()
    }

    #[expect(clippy::indexing_slicing, reason = "there is a place for each kind")]
    fn bytes_of(&mut self, kind: PolicyKind) -> &mut u64 {
        &mut self.bytes[kind as usize]
    }
}

impl Share {
    /// Whether the share can be forgotten when its last gate is gone: nothing of it is dirty, unproven or tripped.
    pub(crate) fn is_settled(&self) -> bool {
        let ages = lock(&self.ages);
        let clean = ages.charges.is_empty() && ages.bytes() == 0 && ages.lost_inodes == 0;
        clean && !self.is_tripped()
    }

    /// Whether anything of the share is unproven.
    pub(super) fn has_lost(&self) -> bool {
        lock(&self.ages).lost_inodes > 0
    }

    pub(crate) fn bytes(&self) -> u64 {
        lock(&self.ages).bytes()
    }

    /// The inodes of which anything is dirty, the oldest first; one may appear more than once.
    pub(crate) fn dirty(&self) -> Vec<FileKey> {
        let ages = lock(&self.ages);
        ages.charges.values().map(|owed| owed.key).collect()
    }

    /// Whether something has been dirty for at least `age`.
    pub(crate) fn is_older(&self, age: Duration, now: Duration) -> bool {
        let ages = lock(&self.ages);
        let oldest = ages.charges.first_key_value();
        oldest.is_some_and(|((since, _), _)| now >= *since + age)
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
        let mut ages = lock(&self.ages);
        let sum = ages.bytes().checked_add(bytes);
        sum.filter(|sum| *sum <= max)?;
        *ages.bytes_of(kind) += bytes;
        drop(ages);
        let share = Arc::clone(self);
        Some(Reservation { share, bytes, kind })
    }

    pub(crate) fn exposure(&self, now: Duration) -> Exposure {
        let ages = lock(&self.ages);
        let mut all = Exposure {
            bytes: ages.bytes(),
            by_policy: ages.bytes.map(|bytes| PolicyExposure {
                bytes,
                ..PolicyExposure::default()
            }),
            unproven_bytes: ages.lost_bytes,
            poisoned_inodes: ages.lost_inodes,
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

    /// Records that a sync of one inode, which ended at `now`, took `span`.
    pub(crate) fn sync_took(&self, span: Duration, now: Duration) {
        lock(&self.latency).synced(span, now);
    }

    /// A background sync, with all that had to go before and after it, ended `span` after it was due.
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

    /// How the bound is kept for a change of `chain` syncs in a row. The log says when a disk turns too slow or quick.
    pub(crate) fn keeping(&self, bound: &Bound, chain: usize) -> Keeping {
        let now = self.env.monotonic();
        let mut latency = lock(&self.latency);
        let keeping = latency.keeping(bound, chain, now);
        let turn = latency.judged(&keeping, now);
        let sync_ms = latency.too_slow().map(|(_, sync)| sync.as_millis());
        drop(latency);
        let what = match turn {
            Some(SpeedChange::TooSlow) => "too slow for the bound: FLUSH waits as under honor",
            Some(SpeedChange::QuickAgain) => {
                "quick enough for the bound again: FLUSH is answered at once"
            }
            None => return keeping,
        };
        let bound_ms = bound.max_delay.as_millis();
        tracing::warn!(share = self.name, bound_ms, sync_ms, "the disk is {what}");
        keeping
    }

    /// For how long the disk has been too slow for the bound unless FLUSH waits; `None` if it is quick enough.
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
    at: (Duration, u64),
    pub(in crate::dirty) bytes: u64,
    pub(in crate::dirty) kind: PolicyKind,
}

impl Charge {
    /// A new charge, as old as this moment. The share's flusher runs from now on.
    pub(crate) fn new(share: &Arc<Share>, key: FileKey, kind: PolicyKind) -> Self {
        let now = share.env.monotonic();
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
        ages.charges.insert(at, Charged { key, kind, removed });
        *ages.inodes.entry(key).or_default() += 1;
        let share = Arc::clone(share);
        Self {
            share,
            at,
            bytes: 0,
            kind,
        }
    }

    /// Another charge, as old as this one and with none of its bytes. The share's flusher runs, because something of
    /// the share is dirty.
    pub(crate) fn as_old(&self) -> Option<Self> {
        let mut ages = lock(&self.share.ages);
        let key = ages.charges.get(&self.at)?.key;
        let of = (key, self.kind);
        Some(Self::since(&self.share, &mut ages, of, self.at.0))
    }

    /// Whether this is the charge of this share under this policy.
    pub(crate) fn is_for(&self, share: &Arc<Share>, kind: PolicyKind) -> bool {
        self.share == *share && self.kind == kind
    }

    /// Changes the policy under which it was acknowledged.
    pub(crate) fn change(&mut self, kind: PolicyKind) {
        let mut ages = lock(&self.share.ages);
        ages.update(self.at, |owed| owed.kind = kind);
        *ages.bytes_of(self.kind) -= self.bytes;
        *ages.bytes_of(kind) += self.bytes;
        self.kind = kind;
    }

    /// Of a directory: `count` more names were removed from it.
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

    /// Whether the share bounds the age of what is charged.
    pub(crate) fn is_bounded(&self) -> bool {
        self.share.bound().is_some()
    }

    /// Moves the charge to the state of `key`: it ends when that is clean.
    pub(crate) fn move_to(&mut self, key: FileKey) {
        self.update(|owed| owed.key = key);
    }

    /// Takes over another charge of the same share. The result stands for `key` and is as old as the older of the two.
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
        let mut ages = lock(&self.share.ages);
        if let Some(charged) = ages.charges.remove(&self.at) {
            uncount(&mut ages.inodes, charged.key);
        }
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

/// The state that a failed sync left unproven for one share, until the latch ends.
pub(crate) struct Unproven {
    pub(crate) share: Arc<Share>,
    bytes: u64,
    /// The inode, and one more for each removed name that may come back.
    inodes: u64,
}

impl Unproven {
    pub(crate) fn new(share: &Arc<Share>) -> Self {
        lock(&share.ages).lost_inodes += 1;
        Self {
            share: Arc::clone(share),
            bytes: 0,
            inodes: 1,
        }
    }

    /// Takes over the bytes of charges after a failed sync: they are unproven, and no longer dirty.
    pub(crate) fn take(&mut self, charge: &Charge) {
        let removed = charge.removed();
        lock(&self.share.ages).lost_inodes += removed;
        self.inodes += removed;
        self.add(charge.bytes);
    }

    /// Adds the bytes of a write of which it is not known whether it was made.
    pub(crate) fn add(&mut self, bytes: u64) {
        let mut ages = lock(&self.share.ages);
        ages.lost_bytes = ages.lost_bytes.saturating_add(bytes);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

impl Drop for Unproven {
    fn drop(&mut self) {
        let mut ages = lock(&self.share.ages);
        ages.lost_bytes = ages.lost_bytes.saturating_sub(self.bytes);
        ages.lost_inodes -= self.inodes;
    }
}
