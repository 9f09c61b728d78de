//! Caches attributes read from inodes (DOS attributes, the absence of a security descriptor, and the size of extended
//! attributes), so that an unchanged inode is not read again: a read through `/proc/self/fd` costs four times a
//! `statx`.
//!
//! An entry is valid while the inode's change time is the one it was read with: setting or removing an attribute
//! always moves that time, and nobody can set it explicitly. Two things could hide a change, and in both cases nothing
//! is cached: a change in the same tick of the kernel's clock (so times younger than [`SETTLED`] when they were read
//! are not cached), and a file system that counts in whole seconds (so times without nanoseconds are not). The
//! attributes of an inode that this process has just created are young but known: they are valid for at most
//! [`OWN_FOR`], like the names in [`super::name_cache`]. The cache must not be used where times come from another
//! machine or process.
//!
//! No I/O here. Memory is bounded by [`GENERATION_MAX`]: there are two generations, of which the older is dropped when
//! the younger is full; an entry that is used moves to the younger.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::Mutex,
    time::Duration,
};

use super::{
    name_cache::{SETTLED, later},
    samba_xattr::dos_attrib::DosAttrib,
};
use crate::{FileKey, Timestamp, disk::Stat, hash::GOLDEN, lock};

/// Inodes in a generation (about 150 bytes each, 2.5 MiB for both).
const GENERATION_MAX: usize = 1 << 13;
/// How long an inode that this process has just made is assumed to have the attributes it was given. For no longer than
/// this may a change of another process in the same tick go unnoticed.
const OWN_FOR: Duration = Duration::from_millis(80);

/// The facts about an inode that are known; `None` or false stands for one that is not.
#[derive(Clone, Copy, Default)]
pub(super) struct InodeFacts {
    /// The change time that it was read with.
    changed: Timestamp,
    /// The entry is valid only until this time.
    until: Option<Timestamp>,
    /// The stored attribute; the inner `None` means that there is none or that it cannot be parsed.
    pub(super) dos: Option<Option<DosAttrib>>,
    /// The inode is known to have no stored security descriptor.
    pub(super) no_descriptor: bool,
    /// The size of clients' extended attributes.
    pub(super) ea_size: Option<u32>,
}

impl InodeFacts {
    fn is_of(&self, changed: Timestamp, now: Timestamp) -> bool {
        self.changed == changed && self.until.is_none_or(|until| now < until)
    }
}

#[derive(Default)]
struct Inner {
    young: HashMap<FileKey, InodeFacts, KeyHash>,
    old: HashMap<FileKey, InodeFacts, KeyHash>,
}

type KeyHash = BuildHasherDefault<KeyHasher>;

/// Hashes inodes with a fifth of the standard library's work, which listings need for each entry. It is weaker, but
/// clients do not choose inode numbers, and the tables are bounded. Both halves of a product take part in the next.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write_u64(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word) * u128::from(GOLDEN);
        self.0 = (product as u64) ^ (product >> 64) as u64;
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[derive(Default)]
pub(super) struct AttribCache(Mutex<Inner>);

impl AttribCache {
    /// The facts that are known about an inode whose change time is `changed`.
    pub(super) fn find(&self, inode: FileKey, changed: Timestamp, now: Timestamp) -> InodeFacts {
        let entry = lock(&self.0).entry(inode, changed, now);
        entry.unwrap_or_default()
    }

    /// Stores a fact, which was read after `now` and after the inode's change time `changed`.
    pub(super) fn learn(
        &self,
        inode: FileKey,
        changed: Timestamp,
        now: Timestamp,
        fact: impl FnOnce(&mut InodeFacts),
    ) {
        if changed.nanos == 0 || later(changed, SETTLED) > now {
            return;
        }
        let mut inner = lock(&self.0);
        let known = inner.entry(inode, changed, now);
        let mut entry = known
            .filter(|entry| entry.until.is_none())
            .unwrap_or(InodeFacts {
                changed,
                ..InodeFacts::default()
            });
        fact(&mut entry);
        inner.keep(inode, entry);
    }

    /// Stores the attribute of an inode that this process has made and whose state was then `stat`. Nothing is assumed
    /// about the inode's descriptor, because a descriptor that is set within the same tick, on any share, must take
    /// effect at once.
    pub(super) fn made(&self, stat: &Stat, stored: DosAttrib, now: Timestamp) {
        let entry = InodeFacts {
            changed: stat.changed,
            until: Some(later(now, OWN_FOR)),
            dos: Some(Some(stored)),
            ..InodeFacts::default()
        };
        lock(&self.0).keep(stat.key, entry);
    }

    /// Forgets an inode whose attributes this process has changed, perhaps in the tick in which it was made.
    pub(super) fn forget(&self, inode: FileKey) {
        let mut inner = lock(&self.0);
        inner.young.remove(&inode);
        inner.old.remove(&inode);
    }
}

impl Inner {
    fn entry(&mut self, inode: FileKey, changed: Timestamp, now: Timestamp) -> Option<InodeFacts> {
        if let Some(entry) = self.young.get(&inode) {
            return entry.is_of(changed, now).then_some(*entry);
        }
        let entry = self.old.remove(&inode)?;
        entry.is_of(changed, now).then(|| {
            self.keep(inode, entry);
            entry
        })
    }

    fn keep(&mut self, key: FileKey, entry: InodeFacts) {
        if self.young.len() >= GENERATION_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, entry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::key;

    fn at(secs: i64, nanos: u32) -> Timestamp {
        Timestamp { secs, nanos }
    }

    fn stat(ino: u64, changed: Timestamp) -> Stat {
        Stat {
            key: key(1, ino),
            changed,
            ..Stat::default()
        }
    }

    fn find(cache: &AttribCache, of: &Stat, now: Timestamp) -> InodeFacts {
        cache.find(of.key, of.changed, now)
    }

    fn learn(cache: &AttribCache, of: &Stat, stored: Option<DosAttrib>, now: Timestamp) {
        cache.learn(of.key, of.changed, now, |known| known.dos = Some(stored));
    }

    const HIDDEN: Option<DosAttrib> = Some(DosAttrib {
        attributes: Some(2),
        created: None,
    });

    #[test]
    fn known_while_the_change_time_stands() {
        let cache = AttribCache::default();
        let then = stat(1, at(5, 7));
        assert_eq!(find(&cache, &then, at(9, 0)).dos, None);
        learn(&cache, &then, HIDDEN, at(9, 0));
        assert_eq!(find(&cache, &then, at(9, 0)).dos, Some(HIDDEN));
        assert_eq!(find(&cache, &stat(1, at(5, 8)), at(9, 0)).dos, None);
        assert_eq!(find(&cache, &stat(2, at(5, 7)), at(9, 0)).dos, None);
        learn(&cache, &stat(1, at(5, 8)), None, at(9, 0));
        assert_eq!(find(&cache, &stat(1, at(5, 8)), at(9, 0)).dos, Some(None));
        assert_eq!(find(&cache, &then, at(9, 0)).dos, None);
    }

    #[test]
    fn times_that_prove_nothing_are_not_kept() {
        let cache = AttribCache::default();
        learn(&cache, &stat(1, at(5, 7)), HIDDEN, at(5, 19_000_000));
        assert!(find(&cache, &stat(1, at(5, 7)), at(99, 0)).dos.is_none());
        // This holds for times in the future, too.
        learn(&cache, &stat(1, at(50, 7)), HIDDEN, at(9, 0));
        assert!(find(&cache, &stat(1, at(50, 7)), at(99, 0)).dos.is_none());
        learn(&cache, &stat(1, at(5, 0)), HIDDEN, at(9, 0));
        assert!(find(&cache, &stat(1, at(5, 0)), at(99, 0)).dos.is_none());
        learn(&cache, &stat(1, at(5, 7)), HIDDEN, at(5, 21_000_000));
        assert!(find(&cache, &stat(1, at(5, 7)), at(99, 0)).dos.is_some());
    }

    #[test]
    fn what_we_made_is_known_for_a_while() {
        let cache = AttribCache::default();
        let then = stat(1, at(5, 7));
        cache.made(&then, HIDDEN.unwrap(), at(5, 9));
        assert_eq!(find(&cache, &then, at(5, 70_000_000)).dos, Some(HIDDEN));
        assert!(!find(&cache, &then, at(5, 70_000_000)).no_descriptor);
        cache.forget(then.key);
        assert_eq!(find(&cache, &then, at(5, 70_000_000)).dos, None);
        cache.made(&then, HIDDEN.unwrap(), at(5, 9));
        assert_eq!(find(&cache, &then, at(5, 80_000_009)).dos, None);
        // After another read the entry is settled, and the assumed attribute is replaced.
        learn(&cache, &then, None, at(6, 0));
        assert_eq!(find(&cache, &then, at(99, 0)).dos, Some(None));
        assert!(!find(&cache, &then, at(99, 0)).no_descriptor);
        cache.learn(then.key, then.changed, at(6, 0), |known| {
            known.no_descriptor = true
        });
        assert!(find(&cache, &then, at(99, 0)).no_descriptor);
        assert_eq!(find(&cache, &then, at(99, 0)).dos, Some(None));
    }

    #[test]
    fn what_is_used_outlives_what_is_not() {
        let cache = AttribCache::default();
        let rounds = 3 * GENERATION_MAX as u64;
        for ino in 0..rounds {
            learn(&cache, &stat(ino, at(5, 7)), HIDDEN, at(9, 0));
            assert!(
                find(&cache, &stat(0, at(5, 7)), at(99, 0)).dos.is_some(),
                "{ino}"
            );
        }
        assert!(find(&cache, &stat(1, at(5, 7)), at(99, 0)).dos.is_none());
        let inner = lock(&cache.0);
        assert!(inner.young.len() + inner.old.len() <= 2 * GENERATION_MAX);
    }
}
