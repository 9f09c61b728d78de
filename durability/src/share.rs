//! What one share owes, as numbers: bytes, ages, and the debts that keep them right.
//!
//! A [`Debt`] is owned by the dirty state it stands for; dropping it is the only way to lower
//! what is owed, so the exposure cannot forget something that is still dirty. Bytes of writes
//! under way are a [`Reservation`]. Lock order: the inode table's shard, then `ages`.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use tokio::sync::Notify;
use vfs::FileKey;

use crate::{
    metrics::Metrics,
    report::Exposure,
    settings::{Bound, Policy, ShareDurability},
};

/// Locks; a panic elsewhere does not spread.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Default)]
pub(crate) struct Ages {
    /// Every debt by age.
    pub(crate) owed: BTreeMap<(Duration, u64), FileKey>,
    next: u64,
    /// The share's payer runs.
    pub(crate) payer: bool,
}

pub(crate) struct Share {
    pub(crate) name: String,
    settings: RwLock<ShareDurability>,
    /// After a failed sync: treated as `honor` until an administrator acts.
    tripped: AtomicBool,
    bytes: AtomicU64,
    lost_bytes: AtomicU64,
    lost_inodes: AtomicU64,
    pub(crate) ages: Mutex<Ages>,
    /// Debts not younger than this (nanoseconds) are due at once.
    urgent: AtomicU64,
    /// Something owed was paid.
    pub(crate) room: Notify,
    /// The payer shall look again.
    pub(crate) kick: Notify,
    pub(crate) metrics: Metrics,
}

impl Share {
    pub(crate) fn new(name: &str, settings: ShareDurability) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            settings: RwLock::new(settings),
            tripped: AtomicBool::new(false),
            bytes: AtomicU64::new(0),
            lost_bytes: AtomicU64::new(0),
            lost_inodes: AtomicU64::new(0),
            ages: Mutex::default(),
            urgent: AtomicU64::new(0),
            room: Notify::new(),
            kick: Notify::new(),
            metrics: Metrics::default(),
        })
    }

    /// As configured.
    pub(crate) fn settings(&self) -> ShareDurability {
        *self.settings.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// As in force: a tripped share honors.
    pub(crate) fn effective(&self) -> ShareDurability {
        let mut settings = self.settings();
        if self.tripped.load(SeqCst) && settings.policy != Policy::StrictSync {
            settings.policy = Policy::Honor;
        }
        settings
    }

    pub(crate) fn set(&self, change: impl FnOnce(&mut ShareDurability)) {
        change(
            &mut self
                .settings
                .write()
                .unwrap_or_else(PoisonError::into_inner),
        );
        self.tripped.store(false, SeqCst);
        self.room.notify_waiters();
        self.kick.notify_one();
    }

    pub(crate) fn set_options(&self, options: ShareDurability) {
        let mut settings = self
            .settings
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *settings = ShareDurability {
            policy: settings.policy,
            ..options
        };
    }

    /// Goes to `honor` if the policy answers before the disk does; what is owed by `now` is due.
    /// Answers whether that is news.
    pub(crate) fn trip(&self, now: Duration) -> bool {
        match self.settings().policy {
            Policy::Honor | Policy::StrictSync => false,
            Policy::TreatHostAsStableStorage | Policy::Bounded(_) => {
                // First: whoever is woken looks at it.
                let news = !self.tripped.swap(true, SeqCst);
                self.hurry(now);
                self.room.notify_waiters();
                news
            }
        }
    }

    /// Everything owed by `now` is due at once.
    pub(crate) fn hurry(&self, now: Duration) {
        self.urgent.fetch_max(nanos(now), SeqCst);
        self.kick.notify_one();
    }

    pub(crate) fn untrip_if_clean(&self) {
        if self.lost_inodes.load(SeqCst) == 0 {
            self.tripped.store(false, SeqCst);
        }
    }

    pub(crate) fn is_due_now(&self, since: Duration) -> bool {
        let urgent = self.urgent.load(SeqCst);
        urgent > 0 && nanos(since) <= urgent
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(SeqCst)
    }

    pub(crate) fn oldest(&self) -> Option<(Duration, FileKey)> {
        lock(&self.ages)
            .owed
            .first_key_value()
            .map(|((since, _), key)| (*since, *key))
    }

    /// Whether an acknowledgement now would go beyond the bound.
    pub(crate) fn breaks(&self, bound: &Bound, now: Duration) -> bool {
        self.bytes() > bound.max_bytes
            || self
                .oldest()
                .is_some_and(|(since, _)| now >= since + bound.max_delay)
    }

    /// Reserves bytes for a write about to start; `None` if they do not fit below `max`.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: u64, max: u64) -> Option<Reservation> {
        self.bytes
            .fetch_update(SeqCst, SeqCst, |now| {
                now.checked_add(bytes).filter(|sum| *sum <= max)
            })
            .ok()
            .map(|_| Reservation {
                share: Arc::clone(self),
                bytes,
            })
    }

    pub(crate) fn exposure(&self, now: Duration) -> Exposure {
        let ages = lock(&self.ages);
        let inodes: std::collections::BTreeSet<_> = ages.owed.values().collect();
        let oldest = ages.owed.first_key_value().map(|((since, _), _)| *since);
        Exposure {
            bytes: self.bytes(),
            inodes: inodes.len() as u64,
            oldest_age: oldest.map_or(Duration::ZERO, |since| now.saturating_sub(since)),
            latched_bytes: self.lost_bytes.load(SeqCst),
            latched_inodes: self.lost_inodes.load(SeqCst),
        }
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Bytes of a write under way.
pub(crate) struct Reservation {
    share: Arc<Share>,
    bytes: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.share.bytes.fetch_sub(self.bytes, SeqCst);
        if self.bytes > 0 {
            self.share.room.notify_waiters();
        }
    }
}

/// Something of one inode that one share owes.
pub(crate) struct Debt {
    pub(crate) share: Arc<Share>,
    at: (Duration, u64),
    bytes: u64,
}

impl Debt {
    /// A new debt, and whether the share needs a payer from now on.
    pub(crate) fn new(share: &Arc<Share>, key: FileKey, now: Duration) -> (Self, bool) {
        let mut ages = lock(&share.ages);
        ages.next += 1;
        let at = (now, ages.next);
        ages.owed.insert(at, key);
        let first = !std::mem::replace(&mut ages.payer, true);
        (
            Self {
                share: Arc::clone(share),
                at,
                bytes: 0,
            },
            first,
        )
    }

    /// Takes the bytes of a write that ended.
    pub(crate) fn absorb(&mut self, mut reservation: Reservation) {
        self.bytes += std::mem::take(&mut reservation.bytes);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether its share promises how old it gets.
    pub(crate) fn is_bounded(&self) -> bool {
        matches!(self.share.settings().policy, Policy::Bounded(_))
    }

    /// From now on a part of what `key` owes: paid when that is.
    pub(crate) fn move_to(&mut self, key: FileKey) {
        lock(&self.share.ages).owed.insert(self.at, key);
    }

    /// Takes over another debt of the same share; both are `key`'s from now on, as old as the
    /// older one.
    pub(crate) fn join(&mut self, mut other: Self, key: FileKey) {
        self.bytes += std::mem::take(&mut other.bytes);
        if other.at < self.at {
            std::mem::swap(&mut self.at, &mut other.at);
            self.move_to(key);
        }
    }

    /// A sync failed: what was owed is unproven, no longer owed.
    fn lose(&self) -> u64 {
        self.share.lost_bytes.fetch_add(self.bytes, SeqCst);
        self.bytes
    }
}

impl Drop for Debt {
    fn drop(&mut self) {
        lock(&self.share.ages).owed.remove(&self.at);
        self.share.bytes.fetch_sub(self.bytes, SeqCst);
        self.share.room.notify_waiters();
    }
}

/// What a failed sync left unproven for one share, until the latch ends.
pub(crate) struct Lost {
    pub(crate) share: Arc<Share>,
    bytes: u64,
}

impl Lost {
    pub(crate) fn new(share: &Arc<Share>) -> Self {
        share.lost_inodes.fetch_add(1, SeqCst);
        Self {
            share: Arc::clone(share),
            bytes: 0,
        }
    }

    pub(crate) fn take(&mut self, debt: &Debt) {
        self.bytes += debt.lose();
    }

    /// Bytes of a write whose fate is unknown.
    pub(crate) fn add(&mut self, bytes: u64) {
        self.share.lost_bytes.fetch_add(bytes, SeqCst);
        self.bytes += bytes;
    }
}

impl Drop for Lost {
    fn drop(&mut self) {
        self.share.lost_bytes.fetch_sub(self.bytes, SeqCst);
        self.share.lost_inodes.fetch_sub(1, SeqCst);
    }
}
