//! Connects the engine to what outlives the process: the store of latches and the journal.
//!
//! Invariants:
//! - [`Durability::with`] hands a latch to the store whenever it appears, grows or ends, under the
//!   inode's lock, so that the store receives changes in their order.
//! - A request that is answered with the error waits for the store first, but not forever: a state
//!   folder on a disk that hangs must not hide the error.
//! - The stored latch of a deleted file ends when its removal is stable: until then a crash brings it back, as lost.
//! - A latch that became smaller is not stored: after a restart a part may have to be rewritten once more.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use vfs::{FileKey, VfsError, VfsResult, Volume};

use crate::{
    dirty::{Held, Inode},
    metrics::count,
    share::Share,
    store::{
        ExposedFile, ExposureRecord, ExposureSource, FlushJournal, LatchRecord, LatchStore,
        most_exposed,
    },
    sync::Durability,
};

/// How often, and after which pause, a sync that the back end could not begin is tried again.
const RETRIES: u32 = 50;
const RETRY: Duration = Duration::from_millis(200);

impl<V: Volume> Durability<V> {
    pub(super) fn latch_changed(&self, key: FileKey, inode: &Inode<V>) {
        if let Some(latches) = self.latches.get() {
            // The store does this whether or not the result is awaited.
            drop(match inode.latch_record(key) {
                Some(record) => latches.set(record),
                None => latches.cleared(key),
            });
        }
    }

    /// More inodes failed than are remembered, or that state was cleared.
    pub(super) fn overflow_changed(&self, overflow: bool) {
        if let Some(latches) = self.latches.get() {
            // The store does this whether or not the result is awaited.
            drop(latches.set_overflow(overflow));
        }
    }

    /// Stores every latch in `store` from now on. Call this once, after the old ones were restored.
    pub fn keep_latches(&self, store: Arc<dyn LatchStore>) {
        // A second one is not expected and not taken.
        let _ = self.latches.set(store);
    }

    /// Records flushes and exposures from now on, for the shares that the journal wants. Call this once.
    pub fn keep_journal(self: &Arc<Self>, journal: Arc<dyn FlushJournal>) {
        journal.set_source(Arc::clone(self) as _);
        // A second one is not expected and not taken.
        let _ = self.journal.set(journal);
    }

    /// Restores the latch of an inode that an earlier server process left poisoned, for the shares that the record
    /// names, or for all shares if it names none that is here: the share may have another name now. Lazy shares among
    /// them honor flushes, as they did then.
    pub fn restore_latch(&self, record: &LatchRecord) {
        let mut failure = self.failure(record.error);
        failure.since = record.at;
        let mut shares = self.shares();
        let is_named = |share: &Arc<Share>| record.shares.iter().any(|name| share.is_named(name));
        if shares.iter().any(is_named) {
            shares.retain(is_named);
        }
        self.with(record.key, |inode| inode.restore(record, failure, &shares));
        for share in &shares {
            share.trip(false);
        }
    }

    /// The latch of this inode, if it has one, concerns the shares of these names, too: one of them may be another name
    /// of a share that it concerns. Lazy ones that it did not concern before honor flushes.
    pub fn extend_latch(&self, key: FileKey, names: &[String]) {
        let mut shares = self.shares();
        shares.retain(|share| names.iter().any(|name| share.is_named(name)));
        for share in self.with(key, |inode| inode.extend_latch(shares)) {
            share.trip(false);
        }
    }

    /// A file system of this share (by its name) lost data of unknown files: lazy policies of the share are set
    /// aside until its policy is set or its latches are cleared. True if the share had not tripped yet.
    pub fn write_back_lost(&self, share: &str) -> bool {
        let mut news = false;
        for share in self.shares().iter().filter(|one| one.is_named(share)) {
            // No later process sees this failure. The held descriptors do: if a dirty inode has lost something, its sync
            // fails.
            share.hurry();
            if share.trip(true) {
                count(&share.metrics.trips);
                news = true;
            }
        }
        news
    }

    /// The last name of a poisoned inode was removed from `dir`, others perhaps from the directories `left`: its
    /// stored latch ends when that is stable. If a sync fails, only an administrator can end it, after a restart.
    pub(crate) fn clear_stored_when_removed(
        &self,
        key: FileKey,
        dir: Held<V>,
        mut left: BTreeSet<FileKey>,
    ) {
        let Some(me) = self.me.upgrade() else { return };
        self.env.spawn(Box::pin(async move {
            let above = dir.key();
            let mut result = me.insist(above, Some(dir)).await;
            // Any directory that lost a name may have had a hard link of it. This comes after the sync, so that another
            // request that has just removed one has had time to mark its directory. Nothing ensures that it has.
            left.extend(me.may_bring_names_back(key.fs));
            left.remove(&above);
            // The others are still dirty or poisoned, unless the removals from them are stable already.
            for dir in left {
                result = result.and(me.insist(dir, None).await);
            }
            if result.is_ok() {
                // The inode number may belong to another file by now, which may be poisoned itself.
                me.with(key, |inode| me.latch_changed(key, inode));
            }
        }));
    }

    /// The barrier of a directory. A sync that was not begun, for want of memory or descriptors, is begun later.
    async fn insist(&self, dir: FileKey, held: Option<Held<V>>) -> VfsResult<()> {
        for _ in 0..RETRIES {
            let synced = self.barrier(dir, held.clone()).await;
            if synced != Err(VfsError::NotStarted) {
                return synced;
            }
            self.env.sleep(RETRY).await;
        }
        Err(VfsError::NotStarted)
    }

    /// Waits until the latches so far are stored, as long as a reply may wait for the store.
    pub(crate) async fn latches_stored(&self) {
        let latches = self.latches.get();
        if let Some(end_of_writes) = latches.and_then(|latches| latches.end_of_writes()) {
            // The store reports its errors itself.
            let _ = end_of_writes.await;
        }
    }
}

impl<V: Volume> ExposureSource for Durability<V> {
    fn exposure_of(&self, share: &str) -> Option<ExposureRecord> {
        let known = self.shares().into_iter().find(|one| one.is_named(share))?;
        let at = self.env.realtime();
        let exposure = known.exposure(self.now());
        let keys = known.dirty().into_iter();
        let bytes = keys.filter_map(|key| Some((key, self.peek(key, Inode::bytes)?)));
        let most = most_exposed(bytes.collect());
        let files = most.into_iter().map(|(key, bytes)| {
            let path = self.peek(key, Inode::path_hint).flatten();
            let path = path.unwrap_or_default();
            ExposedFile { key, path, bytes }
        });
        Some(ExposureRecord {
            at,
            share: share.to_owned(),
            policy: known.policy(),
            exposure,
            allowance: exposure.bytes,
            lease: Duration::ZERO,
            files: files.collect(),
        })
    }
}
