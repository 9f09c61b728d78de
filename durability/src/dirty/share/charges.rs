//! The charges of a share, apart from their beginning and end: what becomes of them, and what a failed sync left
//! unproven.

use std::{collections::btree_map::Entry, sync::Arc, time::Duration};

use vfs::{FileKey, lock};

use super::{Ages, Charge, Charged, Share};
use crate::policy::PolicyKind;

impl Ages {
    pub(super) fn insert(&mut self, at: (Duration, u64), charged: Charged) {
        let on = self.on.entry(charged.key.fs).or_default();
        on.charges.insert(at, charged);
        *on.inodes.entry(charged.key).or_default() += 1;
    }

    pub(super) fn remove(&mut self, fs: u64, at: (Duration, u64)) -> Option<Charged> {
        let on = self.on.get_mut(&fs)?;
        let charged = on.charges.remove(&at)?;
        if let Entry::Occupied(mut count) = on.inodes.entry(charged.key) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        // The last one stays, because most shares are on one file system, whose next charge then allocates less.
        if on.charges.is_empty() && self.on.len() > 1 {
            self.on.remove(&fs);
        }
        Some(charged)
    }

    /// Whether nothing is dirty.
    pub(crate) fn is_empty(&self) -> bool {
        self.on.values().all(|on| on.charges.is_empty())
    }

    fn get(&mut self, charge: &Charge) -> Option<&mut Charged> {
        self.on.get_mut(&charge.fs)?.charges.get_mut(&charge.at)
    }
}

impl Charge {
    /// Another charge, as old as this one and with none of its bytes.
    pub(crate) fn as_old(&self) -> Option<Self> {
        let key = lock(&self.share.ages).get(self)?.key;
        Some(Self::since(&self.share, (key, self.kind), self.at.0))
    }

    pub(crate) fn change(&mut self, kind: PolicyKind) {
        let mut ages = lock(&self.share.ages);
        if let Some(charged) = ages.get(self) {
            charged.kind = kind;
        }
        *ages.bytes_of(self.kind) -= self.bytes;
        *ages.bytes_of(kind) += self.bytes;
        self.kind = kind;
    }

    /// Of a directory: one more name was removed from it.
    pub(crate) fn name_removed(&self) {
        self.names_removed(1);
    }

    fn names_removed(&self, count: u64) {
        if let Some(charged) = lock(&self.share.ages).get(self) {
            charged.removed = charged.removed.saturating_add(count);
        }
    }

    pub(crate) fn removed(&self) -> u64 {
        let mut ages = lock(&self.share.ages);
        ages.get(self).map_or(0, |charged| charged.removed)
    }

    /// Moves the charge to the state of `key`: it ends when that is clean.
    pub(crate) fn move_to(&mut self, key: FileKey) {
        let mut ages = lock(&self.share.ages);
        if let Some(charged) = ages.remove(self.fs, self.at) {
            ages.insert(self.at, Charged { key, ..charged });
            self.fs = key.fs;
        }
    }

    /// Takes over another charge of the same share. The result stands for `key` and is as old as the older of the two.
    pub(crate) fn join(&mut self, mut other: Self, key: FileKey) {
        self.bytes += std::mem::take(&mut other.bytes);
        if other.at < self.at {
            std::mem::swap(&mut self.fs, &mut other.fs);
            std::mem::swap(&mut self.at, &mut other.at);
        }
        self.move_to(key);
        self.names_removed(other.removed());
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
