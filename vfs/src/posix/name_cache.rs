//! Snapshots of directories by folded name, so that a name that does not exist in the requested case does not cost a
//! listing each time.
//!
//! A snapshot is valid while the directory's times are those at which it was taken. The server's own changes are
//! applied to it, and its times are renewed ([`NameCache::begin`], [`NameCache::end`]). Two things could then hide a
//! host change, and both are bounded:
//! - the kernel's clock may tick coarsely (about 4 ms), so times younger than [`SETTLED`] at the
//!   listing prove nothing: such a snapshot serves only the lookup it was made for, unless the times are those of the
//!   server's own last change (otherwise filling a new directory would list it each time);
//! - the renewed times hide a host change between the query of the times before an own change (by a lookup that has not
//!   waited since) and the query after it: so a renewed snapshot is listed again after [`RENEWED_FOR`], or later for
//!   large directories.
//!
//! A snapshot of a share with short names also has the codes of all short forms ([`Code`]): a short name whose code is
//! not among them does not exist either.
//!
//! There is no I/O here, and no snapshot is dropped here: a large one takes long, so those that are forgotten wait for
//! [`NameCache::take_forgotten`]. Memory is bounded by [`DIRECTORIES_MAX`] and [`BYTES_MAX`]; the least recently used
//! directory goes first.

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Mutex, time::Duration};

use super::folded::{Folded, Sought};
use crate::{FileKey, Seen, Timestamp, disk::Stat, lock};

/// The most directories that are remembered.
const DIRECTORIES_MAX: usize = 256;
/// The most memory of all snapshots of a share together, in bytes. A million names of usual length fit, but not a
/// million of 255 bytes, which would need three times as much.
const BYTES_MAX: usize = 192 << 20;
/// The age that a directory's times must have so that equal times prove that nothing changed.
pub(super) const SETTLED: Duration = Duration::from_millis(20);
/// How long a snapshot is valid whose times were renewed by the server's own changes.
const RENEWED_FOR: Duration = Duration::from_secs(2);
/// The time added to that for every entry, so that a huge directory is seldom listed.
const RENEWED_FOR_ENTRY: Duration = Duration::from_micros(100);

/// A directory's times of the last write and of the last change.
type Stamp = (Timestamp, Timestamp);

fn stamp_of(seen: impl Into<Seen>) -> Stamp {
    let seen = seen.into();
    (seen.written, seen.changed)
}

struct Snapshot {
    folded: Folded,
    stamp: Stamp,
    /// A snapshot whose times were renewed, or were young when it was listed, is valid only until this time, even if
    /// the times are equal; `None` for any other.
    renewed_until: Option<Timestamp>,
    /// The server's own changes under way.
    in_flight: u32,
    used: u64,
}

/// The cache's knowledge about a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// The cache does not know whether the name exists: the directory must be listed.
    Unlisted,
    /// The directory has no name that equals the wanted one without regard to case, and no name whose short form it is.
    Absent,
    /// No name folds like it, but it may be the short form of one: only a listing shows of which.
    Short,
    /// This name folds like it.
    OnDisk(Box<[u8]>),
}

/// A change of a directory's names by the server itself.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change<'a> {
    Add(&'a [u8]),
    Remove(&'a [u8]),
}

#[derive(Default)]
struct Inner {
    directories: BTreeMap<FileKey, Snapshot>,
    /// The times that the server's last change of each directory left, and its number; at most [`DIRECTORIES_MAX`],
    /// emptied when full.
    ours: BTreeMap<FileKey, (Stamp, u64)>,
    /// The number of own changes so far, and the number when `ours` was emptied.
    changes: u64,
    emptied: u64,
    bytes: usize,
    /// Snapshots that are no longer used and have to be dropped.
    forgotten: Vec<Folded>,
    uses: u64,
    listings: u64,
}

/// A listing under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Listing {
    /// The number of own changes when it began.
    changes: u64,
}

#[derive(Default)]
pub(super) struct NameCache(Mutex<Inner>);

impl NameCache {
    /// The knowledge about a name in the directory whose state is `stat`.
    pub(super) fn find(&self, stat: &Stat, sought: Sought<'_>, now: Timestamp) -> Known {
        let mut inner = lock(&self.0);
        let known = inner.find(stat.key, stamp_of(stat), sought, now);
        let is_changing = |snapshot: &Snapshot| snapshot.in_flight > 0;
        if known == Known::Unlisted && !inner.directories.get(&stat.key).is_some_and(is_changing) {
            inner.forget(stat.key);
        }
        known
    }

    /// As [`NameCache::find`], for a caller that saw the directory's state a while ago and wants the answer for that
    /// time. The server's own changes may have moved the times since, so a snapshot that does not fit is not forgotten;
    /// the caller must query the state again.
    pub(super) fn find_seen(
        &self,
        directory: FileKey,
        seen: &Seen,
        sought: Sought<'_>,
        now: Timestamp,
    ) -> Known {
        lock(&self.0).find(directory, stamp_of(*seen), sought, now)
    }

    /// The snapshots that were forgotten since the last call. Every caller that may have made the cache forget one
    /// calls this and drops them, outside the lock and in portions.
    pub(super) fn take_forgotten(&self) -> Vec<Folded> {
        std::mem::take(&mut lock(&self.0).forgotten)
    }

    /// To be called before a listing starts, and before its first query of the directory's state.
    pub(super) fn begin_listing(&self) -> Listing {
        Listing {
            changes: lock(&self.0).changes,
        }
    }

    /// Keeps a listing. `before` and `after` are the directory's state around it, `now` the time
    /// when it began. It is not kept, but forgotten at once, if something changed meanwhile or just before.
    pub(super) fn listed(
        &self,
        listing: Listing,
        (before, after): (&Stat, &Stat),
        folded: Folded,
        now: Timestamp,
    ) {
        let mut inner = lock(&self.0);
        inner.listings += 1;
        inner.forget(after.key);
        let stamp = stamp_of(after);
        let young = later(after.changed.max(after.written), SETTLED) > now;
        let last = inner.ours.get(&after.key);
        let ours = last.is_some_and(|(left, _)| *left == stamp);
        // An own change in the same tick of the kernel's clock does not show in the times.
        let ended = last.map_or(inner.emptied, |(_, number)| *number);
        let moved = ended > listing.changes || stamp_of(before) != stamp;
        if moved || (young && !ours) || folded.bytes() > BYTES_MAX {
            inner.forgotten.push(folded);
            return;
        }
        let renewed_until = young.then(|| later(now, renewed_for(folded.count())));
        inner.uses += 1;
        inner.bytes = inner.bytes.saturating_add(folded.bytes());
        let snapshot = Snapshot {
            folded,
            stamp,
            renewed_until,
            in_flight: 0,
            used: inner.uses,
        };
        inner.directories.insert(after.key, snapshot);
        inner.evict(after.key);
    }

    /// Whether there is a snapshot, valid or not, without such a name: then it is worth querying the directory's state
    /// for [`NameCache::find`].
    pub(super) fn may_lack(&self, directory: FileKey, folded: &str) -> bool {
        let inner = lock(&self.0);
        let snapshot = inner.directories.get(&directory);
        snapshot.is_some_and(|snapshot| snapshot.folded.first(folded).is_none())
    }

    /// Whether there is a snapshot: then an own change must start with [`NameCache::begin`].
    pub(super) fn knows(&self, directory: FileKey) -> bool {
        lock(&self.0).directories.contains_key(&directory)
    }

    /// To be called before an own change of the directory whose state is `seen`. Returns whether the snapshot is still
    /// valid and will take the change.
    pub(super) fn begin(&self, directory: FileKey, seen: &Seen) -> bool {
        let mut inner = lock(&self.0);
        let Some(snapshot) = inner.directories.get_mut(&directory) else {
            return false;
        };
        // Another own change under way also moves the times.
        if snapshot.in_flight == 0 && snapshot.stamp != stamp_of(*seen) {
            inner.forget(directory);
            return false;
        }
        snapshot.in_flight += 1;
        true
    }

    /// To be called when an own change is over; `stat` is the directory's state now (`None` if it could not be
    /// queried), and `changes` are the changes made, none on failure.
    pub(super) fn end(
        &self,
        directory: FileKey,
        stat: Option<&Stat>,
        changes: &[Change<'_>],
        now: Timestamp,
    ) {
        let mut inner = lock(&self.0);
        let Some(stat) = stat else {
            inner.forget(directory);
            inner.ours.remove(&directory);
            inner.changes += 1;
            inner.emptied = inner.changes;
            return;
        };
        let stamp = stamp_of(stat);
        if inner.ours.len() >= DIRECTORIES_MAX && !inner.ours.contains_key(&directory) {
            inner.ours.clear();
            inner.emptied = inner.changes;
        }
        inner.changes += 1;
        let number = inner.changes;
        inner.ours.insert(directory, (stamp, number));
        let Some(snapshot) = inner.directories.get_mut(&directory) else {
            return;
        };
        snapshot.in_flight = snapshot.in_flight.saturating_sub(1);
        let before = snapshot.folded.bytes();
        for change in changes {
            match change {
                Change::Add(on_disk) => snapshot.folded.add(on_disk),
                Change::Remove(on_disk) => snapshot.folded.remove(on_disk),
            }
        }
        if snapshot.stamp != stamp {
            snapshot.stamp = stamp;
            let until = later(now, renewed_for(snapshot.folded.count()));
            snapshot.renewed_until.get_or_insert(until);
        }
        let after = snapshot.folded.bytes();
        inner.bytes = (inner.bytes.saturating_add(after)).saturating_sub(before);
        inner.evict(directory);
    }

    /// How often a directory was listed, for tests that count.
    #[cfg(test)]
    pub(super) fn listings(&self) -> u64 {
        lock(&self.0).listings
    }
}

impl Inner {
    fn find(
        &mut self,
        directory: FileKey,
        stamp: Stamp,
        Sought { folded, code }: Sought<'_>,
        now: Timestamp,
    ) -> Known {
        self.uses += 1;
        let Some(snapshot) = self.directories.get_mut(&directory) else {
            return Known::Unlisted;
        };
        let expired = snapshot.renewed_until.is_some_and(|until| now >= until);
        let unchanged = snapshot.stamp == stamp || snapshot.in_flight > 0;
        if expired || !unchanged {
            return Known::Unlisted;
        }
        snapshot.used = self.uses;
        match snapshot.folded.first(folded) {
            Some(on_disk) => Known::OnDisk(on_disk.into()),
            None if code.is_some_and(|code| !snapshot.folded.lacks(code)) => Known::Short,
            None => Known::Absent,
        }
    }

    fn forget(&mut self, directory: FileKey) {
        if let Some(gone) = self.directories.remove(&directory) {
            self.bytes = self.bytes.saturating_sub(gone.folded.bytes());
            self.forgotten.push(gone.folded);
        }
    }

    fn evict(&mut self, keep: FileKey) {
        while self.directories.len() > DIRECTORIES_MAX || self.bytes > BYTES_MAX {
            let oldest = self
                .directories
                .iter()
                .filter(|(key, _)| **key != keep)
                .min_by_key(|(_, snapshot)| snapshot.used)
                .map(|(key, _)| *key);
            match oldest {
                Some(key) => self.forget(key),
                None => return self.forget(keep),
            }
        }
    }
}

fn renewed_for(entries: usize) -> Duration {
    RENEWED_FOR + RENEWED_FOR_ENTRY * u32::try_from(entries).unwrap_or(u32::MAX)
}

pub(super) fn later(time: Timestamp, span: Duration) -> Timestamp {
    let nanos = time.nanos.saturating_add(span.subsec_nanos());
    let secs = i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
    Timestamp {
        secs: time
            .secs
            .saturating_add(secs)
            .saturating_add(i64::from(nanos / 1_000_000_000)),
        nanos: nanos % 1_000_000_000,
    }
}
