//! Lets the next run distinguish this server's changes of recorded files from host changes: a timestamp slightly in the
//! future is stored, and any change time up to it counts as a change by this server.
//!
//! After a restart, a file whose last change happened while the previous run still saw host changes is as its
//! clients know it: changes by others were reported to them, and they know the changes made through this server. But
//! such a change of our own would make a file look newer than the last timestamp of a run that was killed. So a
//! timestamp is stored with such changes and lies [`AHEAD_MS`] ahead, so that one serves all changes within that time.
//! The price is that a foreign change within that time after the end of the run goes unnoticed. No request waits for
//! it: if a run is killed between a change and its timestamp, a client loses its caching.
//!
//! Invariants: timestamps are stored one after the other, each is true when it is stored, and none is stored after a
//! later one. While the store cannot record the caching that clients lost, none is stored, and a timestamp ahead is
//! withdrawn before any client learns of the loss.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use tokio::sync::Mutex;
use vfs::{Env, Timestamp, env::LocalTask};

use super::Persistence;
use crate::race::race;

/// How far a timestamp lies ahead.
const AHEAD_MS: i64 = 400;
/// A timestamp that lies less far ahead is renewed before a change.
const RENEW_MS: i64 = 200;
/// How long a request waits at most until the timestamp is withdrawn.
const TAKE_BACK_MAX: Duration = Duration::from_secs(2);

/// Stores the time until which this run sees all changes; it survives a killed process.
pub type Announce = dyn Fn(Timestamp) -> LocalTask + Send + Sync;

#[derive(Default)]
pub(crate) struct OwnChanges {
    announce: OnceLock<(Box<Announce>, Arc<dyn Env>)>,
    /// The timestamp that was stored last, in milliseconds since 1970.
    until: AtomicI64,
    /// Locked while a timestamp is stored.
    word: Mutex<()>,
    /// A request waits to store the next timestamp, which will serve all requests that come before that.
    next: AtomicBool,
}

fn millis(at: Timestamp) -> i64 {
    let whole = at.secs.saturating_mul(1000);
    whole.saturating_add(i64::from(at.nanos / 1_000_000))
}

fn timestamp(millis: i64) -> Timestamp {
    let part = millis.rem_euclid(1000);
    Timestamp {
        secs: millis.div_euclid(1000),
        nanos: u32::try_from(part).unwrap_or(0) * 1_000_000,
    }
}

impl OwnChanges {
    /// The timestamp to store before a change at `now`, if one is needed.
    fn renewed(&self, now: i64) -> Option<i64> {
        let left = self.until.load(Ordering::Acquire).saturating_sub(now);
        // If more than [`AHEAD_MS`] is left, the clock was set back.
        if (RENEW_MS..=AHEAD_MS).contains(&left) {
            return None;
        }
        let until = now.saturating_add(AHEAD_MS);
        self.until.store(until, Ordering::Release);
        Some(until)
    }

    /// The timestamp that a run that still sees all changes at `now` may store.
    fn still(&self, now: i64) -> i64 {
        let until = self.until.load(Ordering::Acquire);
        let ahead = (0..=AHEAD_MS).contains(&until.saturating_sub(now));
        if ahead { until } else { now }
    }

    /// Withdraws the timestamp: changes count as unseen until the next one is stored.
    pub(super) async fn take_back(&self) {
        let Some((announce, env)) = self.announce.get() else {
            return;
        };
        let word = async {
            let _one = self.word.lock().await;
            announce(Timestamp::default()).await;
        };
        // If the disk hangs, changes after this wait are newer than any timestamp that was stored.
        race(word, env.sleep(TAKE_BACK_MAX)).await;
    }
}

impl Persistence {
    /// Sets the function that stores the time until which changes are seen. Called once.
    pub(crate) fn announce_by(&self, announce: Box<Announce>, env: &Arc<dyn Env>) {
        // A second one is not expected and is ignored.
        let _ = self.own.announce.set((announce, Arc::clone(env)));
    }

    /// Whether [`Persistence::store_timestamp`] must be called before a change is made.
    pub(crate) fn must_store_timestamp(&self) -> bool {
        let own = &self.own;
        let Some((_, env)) = own.announce.get() else {
            return false;
        };
        own.renewed(millis(env.realtime())).is_some()
            && self.sees_all_changes()
            && !own.next.swap(true, Ordering::AcqRel)
    }

    /// Stores a new timestamp, after the one that is being stored.
    pub(crate) async fn store_timestamp(&self) {
        let own = &self.own;
        let Some((announce, env)) = own.announce.get() else {
            return;
        };
        let _one = own.word.lock().await;
        own.next.store(false, Ordering::Release);
        if self.sees_all_changes() {
            let now = millis(env.realtime());
            announce(timestamp(own.still(now))).await;
        }
    }
}

#[cfg(test)]
#[path = "own_changes_tests.rs"]
mod tests;
