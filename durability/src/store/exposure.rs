//! Exposure records: what a share acknowledges before the disk has it, bounded ahead of time.
//!
//! While a share acknowledges lazy changes a task makes records of what is dirty: an *allowance* of bytes, at least
//! twice what is dirty, and a *lease* of time, renewed at half. A change beyond either waits for the next record, so
//! the last durable one bounds what a crash can take. When nothing is dirty any more, a record says so.
//!
//! An [`ExposureSource`] knows what is dirty.

use std::{pin::pin, sync::Arc, time::Duration};

use tokio::sync::{Notify, oneshot};
use vfs::{Disk, VfsError};

use super::{
    journal::JournalFile,
    journal_format::{ExposureRecord, JournalRecord, shorten},
    log::StoreTask,
};
use crate::{
    share::lock,
    tasks::{OnDrop, Waiter, answer_all, race},
};

/// How long changes may be acknowledged under one exposure record.
pub const LEASE: Duration = Duration::from_secs(3);
/// A lease counts as ended this much earlier: a reply leaves a little after the check.
const LEASE_MARGIN: Duration = Duration::from_millis(100);
/// Smallest allowance while lazy changes are acknowledged.
const ALLOWANCE_MIN: u64 = 32 << 20;
/// How often a share that has dirty changes and acknowledges nothing is looked at.
const PERIOD: Duration = Duration::from_secs(2);

/// The limits within which a share may acknowledge lazy changes.
#[derive(Default)]
pub(super) struct Covered {
    allowance: u64,
    /// The end of the lease, monotonic.
    until: Duration,
    /// Most dirty bytes that a change has asked for since the last record.
    demand: Option<u64>,
    used: Duration,
    waiters: Vec<Waiter>,
    following: bool,
    kick: Arc<Notify>,
}

impl<D: Disk> JournalFile<D> {
    /// See [`FlushJournal::cover`](super::journal::FlushJournal::cover).
    pub(super) fn cover_exposure(
        &self,
        share: &str,
        bytes: u64,
        now: Duration,
    ) -> Option<StoreTask> {
        let mut all = lock(&self.covered);
        let one = all.entry(share.to_owned()).or_default();
        one.used = now;
        let covered = bytes <= one.allowance && now + LEASE_MARGIN < one.until;
        let wanting = bytes > one.allowance / 4 * 3 || now + LEASE / 2 > one.until;
        if covered && !wanting {
            return None;
        }
        let begun = one.demand.is_some();
        one.demand = one.demand.max(Some(bytes));
        let task: Option<StoreTask> = (!covered).then(|| {
            let (tell, told) = oneshot::channel();
            one.waiters.push(tell);
            Box::pin(async move { told.await.unwrap_or(Err(VfsError::Io)) }) as StoreTask
        });
        let follows = std::mem::replace(&mut one.following, true);
        if follows && (!begun || task.is_some()) {
            one.kick.notify_one();
        }
        drop(all);
        if !follows && let Some(me) = self.me.upgrade() {
            let (owner, name) = (Arc::clone(&me), share.to_owned());
            // The worker of the task may die under it: then the next change starts another one.
            let guard = OnDrop::new(move || {
                if let Some(one) = lock(&owner.covered).get_mut(&name) {
                    one.following = false;
                    one.waiters.clear();
                }
            });
            let share = share.to_owned();
            self.env.spawn(Box::pin(async move {
                me.follow(&share).await;
                guard.disarm();
            }));
        }
        task.map(|task| self.log.in_time(task))
    }

    /// Makes exposure records of a share until nothing is dirty and it acknowledges nothing.
    async fn follow(&self, share: &str) {
        let mut last = None;
        loop {
            let now = self.env.monotonic();
            let (waiters, demand, idle, kick) = {
                let mut all = lock(&self.covered);
                let one = all.entry(share.to_owned()).or_default();
                let idle = one.demand.is_none() && now >= one.used + LEASE;
                if idle {
                    // From here on each acknowledgement waits for a record that allows it.
                    one.until = Duration::ZERO;
                }
                let demand = one.demand.take();
                let waiters = std::mem::take(&mut one.waiters);
                (waiters, demand, idle, Arc::clone(&one.kick))
            };
            let mut kicked = pin!(kick.notified());
            kicked.as_mut().enable();
            let source = self.source.get();
            let measured = source.and_then(|source| source.exposure_of(share));
            let Some(mut record) = measured else {
                answer_all(waiters, Ok(()));
                lock(&self.covered).remove(share);
                return;
            };
            for file in &mut record.files {
                shorten(&mut file.path);
            }
            let exposure = record.exposure;
            let seen = (exposure.bytes, exposure.inodes, idle);
            if !(idle && last == Some(seen)) {
                if !idle {
                    let most = exposure.bytes.max(demand.unwrap_or(0));
                    record.allowance = most.saturating_mul(2).max(ALLOWANCE_MIN);
                    record.lease = LEASE;
                }
                self.allow(now, record, waiters).await;
                last = Some(seen);
            }
            if seen == (0, 0, true) {
                let mut all = lock(&self.covered);
                let quiet = |one: &Covered| one.demand.is_none() && one.waiters.is_empty();
                if all.get(share).is_none_or(quiet) {
                    all.remove(share);
                    return;
                }
                continue;
            }
            race(kicked, self.env.sleep(PERIOD)).await;
        }
    }

    /// Writes an exposure record and puts its allowance into force, if it got there.
    async fn allow(&self, now: Duration, record: ExposureRecord, waiters: Vec<Waiter>) {
        let (share, allowance, lease) = (record.share.clone(), record.allowance, record.lease);
        // If the record gets there and the news of it does not, the smaller one must hold.
        if let Some(one) = lock(&self.covered).get_mut(&share) {
            one.allowance = one.allowance.min(allowance);
        }
        let record = JournalRecord::Exposure(record);
        let written = self.append(&record, 0, false).await;
        // A disk that is slow may have used up the lease. The changes that waited are then made stable instead.
        let lasts = self.env.monotonic() + LEASE_MARGIN < now + lease;
        let written = written.and_then(|()| lasts.then_some(()).ok_or(VfsError::Io));
        if written.is_ok()
            && let Some(one) = lock(&self.covered).get_mut(&share)
        {
            one.allowance = allowance;
            one.until = now + lease;
        }
        answer_all(waiters, written);
    }
}
