//! The charges of a share, apart from their beginning and end: what becomes of them, and what a failed sync left
//! unproven.

use std::{sync::Arc, time::Duration};

use vfs::{FileKey, lock};

use super::{Ages, Charge, Charged, Share, uncount};
use crate::policy::PolicyKind;

impl Ages {
    fn update(&mut self, at: (Duration, u64), change: impl FnOnce(&mut Charged)) {
        if let Some(charged) = self.charges.get_mut(&at) {
            let old = charged.key;
            change(charged);
            *self.inodes.entry(charged.key).or_default() += 1;
            uncount(&mut self.inodes, old);
        }
    }
}

impl Charge {
    /// Another charge, as old as this one and with none of its bytes.
    pub(crate) fn as_old(&self) -> Option<Self> {
        let key = lock(&self.share.ages).charges.get(&self.at)?.key;
        Some(Self::since(&self.share, (key, self.kind), self.at.0))
    }

    pub(crate) fn change(&mut self, kind: PolicyKind) {
        let mut ages = lock(&self.share.ages);
        ages.update(self.at, |charge| charge.kind = kind);
        *ages.bytes_of(self.kind) -= self.bytes;
        *ages.bytes_of(kind) += self.bytes;
        self.kind = kind;
    }

    /// Of a directory: one more name was removed from it.
    pub(crate) fn name_removed(&self) {
        self.update(|charge| charge.removed = charge.removed.saturating_add(1));
    }

    pub(crate) fn removed(&self) -> u64 {
        let ages = lock(&self.share.ages);
        ages.charges
            .get(&self.at)
            .map_or(0, |charge| charge.removed)
    }

    fn update(&self, change: impl FnOnce(&mut Charged)) {
        lock(&self.share.ages).update(self.at, change);
    }

    /// Moves the charge to the state of `key`: it ends when that is clean.
    pub(crate) fn move_to(&mut self, key: FileKey) {
        self.update(|charge| charge.key = key);
    }

    /// Takes over another charge of the same share. The result stands for `key` and is as old as the older of the two.
    pub(crate) fn join(&mut self, mut other: Self, key: FileKey) {
        self.bytes += std::mem::take(&mut other.bytes);
        if other.at < self.at {
            std::mem::swap(&mut self.at, &mut other.at);
        }
        let removed = other.removed();
        self.update(|charge| {
            charge.key = key;
            charge.removed = charge.removed.saturating_add(removed);
        });
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
