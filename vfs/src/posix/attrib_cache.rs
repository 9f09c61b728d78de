//! What inodes' DOS attributes were read as, so that an inode that did not change is not asked
//! for them again: a look through `/proc/self/fd` costs four times a `statx`.
//!
//! An entry is believed while the inode's change time is the one it was read with: setting or
//! removing an attribute, by whomever, moves that, and nobody can set it. Two things could let a
//! change hide, and neither is kept: a change in the tick of the kernel's clock that the time was
//! taken in (so times younger than [`SETTLED`] at the reading are not), and a file system that
//! counts in whole seconds (so times without nanoseconds are not). Not to be used where times
//! come from another machine or process.
//!
//! No I/O here. Memory is bounded by [`GENERATION_MAX`]: two generations, of which the older one is
//! dropped when the younger is full; what is used moves to the younger.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{
    name_cache::{SETTLED, later},
    samba_xattr::dos_attrib::DosAttrib,
};
use crate::{FileKey, Timestamp, disk::Stat};

/// Inodes in a generation (about 120 bytes each).
const GENERATION_MAX: usize = 1 << 15;

/// The change time that it was read with, and what was stored (none: nothing that is understood).
type Entry = (Timestamp, Option<DosAttrib>);

#[derive(Default)]
struct Inner {
    young: HashMap<FileKey, Entry>,
    old: HashMap<FileKey, Entry>,
}

/// The attributes of one share's inodes.
#[derive(Default)]
pub(super) struct AttribCache(Mutex<Inner>);

impl AttribCache {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic elsewhere leaves whole entries.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the inode whose state is `stat` has stored, if that is known.
    pub(super) fn find(&self, stat: &Stat) -> Option<Option<DosAttrib>> {
        let mut inner = self.lock();
        if let Some((changed, stored)) = inner.young.get(&stat.key) {
            return (*changed == stat.changed).then_some(*stored);
        }
        let entry = inner.old.remove(&stat.key)?;
        (entry.0 == stat.changed).then(|| {
            inner.keep(stat.key, entry);
            entry.1
        })
    }

    /// Whether [`AttribCache::find`] would know it.
    pub(super) fn knows(&self, stat: &Stat) -> bool {
        self.find(stat).is_some()
    }

    /// `stored` was read after `stat`, and both after `now`.
    pub(super) fn learn(&self, stat: &Stat, stored: Option<DosAttrib>, now: Timestamp) {
        if stat.changed.nanos == 0 || later(stat.changed, SETTLED) > now {
            return;
        }
        self.lock().keep(stat.key, (stat.changed, stored));
    }
}

impl Inner {
    fn keep(&mut self, key: FileKey, entry: Entry) {
        if self.young.len() >= GENERATION_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64, nanos: u32) -> Timestamp {
        Timestamp { secs, nanos }
    }

    fn stat(ino: u64, changed: Timestamp) -> Stat {
        Stat {
            key: FileKey {
                fs: 1,
                ino,
                generation: 0,
            },
            changed,
            ..Stat::default()
        }
    }

    const HIDDEN: Option<DosAttrib> = Some(DosAttrib {
        attributes: Some(2),
        created: None,
    });

    #[test]
    fn known_while_the_change_time_stands() {
        let cache = AttribCache::default();
        let then = stat(1, at(5, 7));
        assert_eq!(cache.find(&then), None);
        cache.learn(&then, HIDDEN, at(9, 0));
        assert_eq!(cache.find(&then), Some(HIDDEN));
        assert_eq!(cache.find(&stat(1, at(5, 8))), None);
        assert_eq!(cache.find(&stat(2, at(5, 7))), None);
        cache.learn(&stat(1, at(5, 8)), None, at(9, 0));
        assert_eq!(cache.find(&stat(1, at(5, 8))), Some(None));
        assert_eq!(cache.find(&then), None);
    }

    #[test]
    fn times_that_prove_nothing_are_not_kept() {
        let cache = AttribCache::default();
        cache.learn(&stat(1, at(5, 7)), HIDDEN, at(5, 19_000_000));
        assert!(!cache.knows(&stat(1, at(5, 7))));
        // Of the future, too.
        cache.learn(&stat(1, at(50, 7)), HIDDEN, at(9, 0));
        assert!(!cache.knows(&stat(1, at(50, 7))));
        cache.learn(&stat(1, at(5, 0)), HIDDEN, at(9, 0));
        assert!(!cache.knows(&stat(1, at(5, 0))));
        cache.learn(&stat(1, at(5, 7)), HIDDEN, at(5, 21_000_000));
        assert!(cache.knows(&stat(1, at(5, 7))));
    }

    #[test]
    fn what_is_used_outlives_what_is_not() {
        let cache = AttribCache::default();
        let rounds = 3 * GENERATION_MAX as u64;
        for ino in 0..rounds {
            cache.learn(&stat(ino, at(5, 7)), HIDDEN, at(9, 0));
            assert!(cache.knows(&stat(0, at(5, 7))), "{ino}");
        }
        assert!(!cache.knows(&stat(1, at(5, 7))));
        let inner = cache.lock();
        assert!(inner.young.len() + inner.old.len() <= 2 * GENERATION_MAX);
    }
}
