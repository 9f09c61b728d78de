//! The sync driver: runs the syncs of one inode for all requests that wait for one.
//!
//! Invariants:
//! - One sync of an inode runs at a time, in a task of its own: a connection that ends cancels no
//!   sync. The task works on behalf of the requester whose request began it. A request joins only a sync that starts
//!   after the request, or, for names in a directory, one that started after the names were marked. All requests that
//!   joined receive the same result, except that those of other requesters begin anew if it could not be started: only
//!   the first one's queue may be full.
//! - A failed sync latches the inode, and for a directory every inode whose name depended on it. The
//!   latch is stored before anybody receives the error.
//! - A sync that succeeds counts when the durable writes beside it have ended: one of them may have got, through the
//!   same descriptor, the failure that the sync would have reported.
//! - If the task of a driver is dropped, its sync counts as failed.
//! - The syncs that a back end makes inside other operations ([`vfs::Volume::on_failed_sync`]) count as syncs of the
//!   engine: the kernel reports a failed write-back only once, and it concerns everything that was dirty.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use tokio::sync::oneshot;
use vfs::{FailedBy, FileKey, Node, SyncScope, VfsError, VfsResult, Volume, requester};

use crate::{
    dirty::{FailedSyncs, Failure, Held, Inode, Job, LatchEvent},
    metrics::count,
    planted::Planted,
    share::{Share, lock},
    sync::Durability,
    tasks::{OnDrop, answer_all},
};

impl<V: Volume> Durability<V> {
    /// Observes from now on the syncs of `vfs` that fail inside its other methods.
    pub(crate) fn listen(&self, vfs: &V, share: &Arc<Share>) {
        let (me, share) = (Weak::clone(&self.me), Arc::downgrade(share));
        vfs.on_failed_sync(Box::new(move |node, error, by| {
            let (Some(me), Some(share)) = (me.upgrade(), share.upgrade()) else {
                return;
            };
            let key = node.key();
            let more = || me.peek(key, Inode::has_more_than_one_write) == Some(true);
            match by {
                FailedBy::FileSystemSync => me.lost_on_file_system(key.fs, error),
                // A write that failed by itself has lost nothing. It is in flight.
                FailedBy::Write if !more() => {}
                FailedBy::Write | FailedBy::Sync => {
                    let file = node.stream().is_none() && !node.is_directory();
                    me.lost_in_sync(key, file, vec![share], error);
                }
            }
        }));
    }

    /// One sync of one inode that starts after now, shared with other requests.
    pub(crate) async fn sync_one(&self, key: FileKey, node: Option<Held<V>>) -> VfsResult<()> {
        loop {
            let (outcome, for_another) = self.ask_for_sync(key, node.clone());
            // A background sync has no reply to send early, and the flusher would start it again at once, forever.
            if node.is_some() && self.planted(Planted::EarlyAcknowledgement) {
                return Ok(());
            }
            // The sender is dropped only if the worker that ran the sync is gone.
            match outcome.await.unwrap_or(Err(VfsError::Io)) {
                // As many jobs of the other requester wait as may. There may be room for one of this requester.
                Err(VfsError::NotStarted) if for_another => {}
                ended => return ended,
            }
        }
    }

    /// A durable write failed, and what was dirty besides counts as lost, although the write may have failed by itself.
    /// It is synced at once, without a wait: a bound may have been promised for it. This repairs nothing. However many
    /// such writes there are, they ask for the next sync once.
    pub(crate) fn sync_what_is_doubtful(&self, held: &Held<V>) {
        let key = held.key();
        if self.peek(key, |inode| inode.is_asked(held)) != Some(true) {
            drop(self.ask_for_sync(key, Some(held.clone())));
        }
    }

    /// Asks for a sync that starts after now. Returns where its result comes, and whether the task that runs it works
    /// on behalf of another requester.
    fn ask_for_sync(
        &self,
        key: FileKey,
        node: Option<Held<V>>,
    ) -> (oneshot::Receiver<VfsResult<()>>, bool) {
        let (tx, outcome) = oneshot::channel();
        let requester = requester::current();
        let (driver, share) = self.with(key, |inode| {
            let driver = inode.ask(node, tx, requester);
            (driver, inode.shares().first().cloned())
        });
        if let Some(share) = share {
            count(&share.metrics.sync_waiters);
            if driver.is_some() {
                count(&share.metrics.sync_joined);
            }
        }
        if driver.is_none()
            && let Some(me) = self.me.upgrade()
        {
            let core = Arc::clone(&me);
            // The guard is made before the task, so that a task that is dropped before it runs abandons the sync too.
            let guard = OnDrop::new(move || core.abandon_sync(key));
            let task = move || async move {
                me.drive(key).await;
                guard.disarm();
            };
            // Otherwise, one user's thousands of FLUSHes would delay each other user's by all of them.
            self.env
                .spawn(Box::pin(requester::on_behalf_of(requester, task)));
        }
        (outcome, driver.is_some_and(|driver| driver != requester))
    }

    /// Waits for a sync of a directory that started after `marked`, when the names in it had been marked. Joins
    /// the running sync if that did and covers the whole directory.
    pub(crate) async fn sync_names_in(&self, dir: &Held<V>, marked: u64) -> VfsResult<()> {
        let key = dir.key();
        let running = self.with(key, |inode| {
            let outcome = inode.join(marked)?;
            if let Some(share) = inode.shares().first() {
                count(&share.metrics.sync_waiters);
                count(&share.metrics.sync_joined);
            }
            Some(outcome)
        });
        if let Some(outcome) = running {
            match outcome.await.unwrap_or(Err(VfsError::Io)) {
                Err(VfsError::NotStarted) => {}
                ended => return ended,
            }
        }
        self.sync_one(key, Some(dir.clone())).await
    }

    async fn run(&self, job: &Job<V>) -> VfsResult<()> {
        if job.targets().next().is_none() {
            // Nothing was left to sync. This does not count as a sync, because it took no time.
            return Ok(());
        }
        let (mut result, mut ended) = (Ok(()), job.begun);
        for (held, scope) in job.targets() {
            // Each target is tried: the failure of one is no reason to lose another.
            let weak = self.planted(Planted::DataSyncAfterFailure)
                && self.check_latch(held.key()).is_err()
                && !held.node.is_directory();
            let scope = if weak { SyncScope::Data } else { *scope };
            let begun = ended;
            let synced = held.vfs.sync(&held.node, scope).await;
            ended = self.now();
            if let Err(error) = synced
                && error != VfsError::NotStarted
            {
                // The failure is noted now: until the other targets' syncs end, which may hang, no request may succeed.
                let file = job.targets().any(|(held, _)| held.is_file());
                self.lost_in_sync(held.key(), file, Vec::new(), error);
            }
            if let (Ok(()) | Err(VfsError::NotStarted), Err(error)) = (result, synced) {
                // A sync that failed is more informative than one that never ran.
                result = Err(error);
            }
            if let Some(share) = &job.share {
                count(match scope {
                    SyncScope::Data => &share.metrics.syncs_data,
                    SyncScope::All => &share.metrics.syncs_all,
                });
                let span = ended.saturating_sub(begun);
                share.metrics.sync_micros.add_time(span);
            }
        }
        if let Some(share) = &job.share {
            if result != Err(VfsError::NotStarted) {
                lock(&share.latency).synced(ended.saturating_sub(job.begun), ended);
            }
            share.metrics.join_factor.add(job.waiters.len() as u64);
        }
        result
    }

    fn finish(&self, key: FileKey, result: VfsResult<()>) {
        match result {
            Ok(()) => {
                if self.planted(Planted::LatchEndsWithNextSync) {
                    self.with(key, |inode| inode.forget_latch());
                }
                self.with(key, Inode::synced);
            }
            // Nothing was tried, so nothing is lost, and everything is as dirty as before.
            Err(VfsError::NotStarted) => self.with(key, Inode::not_started),
            // The failure was noted when it happened.
            Err(_) => {}
        }
    }

    /// A sync of the inode failed; `shares` are affected besides those through which it was changed. An inode not known
    /// to be a `file` may be a directory, even if a stream of it was synced: the dirty names in it are then lost, too.
    pub(crate) fn lost_in_sync(
        &self,
        key: FileKey,
        file: bool,
        mut shares: Vec<Arc<Share>>,
        error: VfsError,
    ) {
        let failure = self.note_failure(key, error);
        let directory = !file && self.peek(key, Inode::is_file) != Some(true);
        let named = self.named_in(|dir| directory && dir == key);
        let entries = !named.is_empty();
        shares.extend(named.into_values().flatten());
        self.with(key, |inode| {
            shares.iter().for_each(|share| inode.seen_through(share));
            inode.failed(failure, entries);
        });
        if directory {
            self.directory_failed(key, failure);
        }
    }

    /// A sync of the whole file system with this device number failed. The kernel does not report which inodes have lost
    /// something, so it counts as a failed sync of everything dirty under that number. Only what is still dirty is
    /// poisoned: other workers may make an inode stable meanwhile, or remove it.
    ///
    /// Other subvolumes of a btrfs, and layers of an overlayfs, have other numbers, and no later process sees the
    /// failure. So everything else that is dirty is due at once: each inode's own sync returns what the inode has lost.
    pub(crate) fn lost_on_file_system(&self, fs: u64, error: VfsError) {
        let whole = FailedSyncs::whole(fs);
        let failure = self.note_failure(whole, error);
        // The directories come first, as in `directory_failed`: each has lost the names that were dirty in it.
        for (dir, shares) in self.named_in(|dir| dir.fs == fs) {
            self.with(dir, |inode| {
                shares.iter().for_each(|share| inode.seen_through(share));
                inode.entry_failed(failure);
            });
        }
        // A promise that found a name between the failure and the latch of its directory sees this later number.
        let failure = self.note_failure(whole, error);
        for key in self.keys(|_, inode| inode.is_dirty()) {
            self.with(key, |inode| inode.file_system_failed(fs, key, failure));
        }
        let shares = self.shares();
        shares.iter().for_each(|share| share.hurry());
    }

    /// The directories in which inodes have dirty names, of those that are asked for, with the shares through which
    /// these inodes were changed: a failure of the directory affects them, too.
    fn named_in(&self, asked: impl Fn(FileKey) -> bool) -> BTreeMap<FileKey, Vec<Arc<Share>>> {
        let named = self.find(|_, inode| {
            let dirs = inode.names().iter().map(|name| name.dir.key());
            let dirs: Vec<_> = dirs.filter(|dir| asked(*dir)).collect();
            (!dirs.is_empty()).then(|| (dirs, inode.shares().to_vec()))
        });
        let mut all = BTreeMap::<_, Vec<_>>::new();
        for (dirs, shares) in named {
            for dir in dirs {
                all.entry(dir).or_default().extend_from_slice(&shares);
            }
        }
        all
    }

    /// The sync of a directory failed, and it is poisoned: the dirty names in it are as lost as its entries.
    fn directory_failed(&self, dir: FileKey, failure: Failure) {
        // A promise that found a name in it between the failure and the latch (`gate/flush.rs`) sees this later number.
        self.note_failure(dir, failure.error);
        for key in self.keys(|_, inode| inode.is_named_in(dir)) {
            self.with(key, |inode| inode.name_failed(dir, failure));
        }
    }

    /// A name in `dir` was just marked as added or removed; that change began at `since`. If a sync
    /// of the directory failed meanwhile, it may have dropped the change.
    pub(crate) fn entry_failed_since(&self, dir: FileKey, since: u64) {
        if let Some(failure) = self.failed_since(dir, since) {
            self.with(dir, |inode| inode.entry_failed(failure));
        }
    }

    /// Reports the latch event of a step to the shares of its inode. Call without the inode's lock.
    pub(crate) fn report_latch(&self, key: FileKey, shares: &[Arc<Share>], event: LatchEvent) {
        match event {
            LatchEvent::Failed(failure) => self.report_failure(key, shares, failure),
            LatchEvent::Repaired(path) => {
                for share in shares {
                    count(&share.metrics.repairs);
                }
                log_end(key, shares, &path, "rewritten and synced");
            }
            LatchEvent::Deleted(path) => log_end(key, shares, &path, "deleted"),
        }
    }

    fn report_failure(&self, key: FileKey, shares: &[Arc<Share>], failure: Failure) {
        let poisoned = self.peek(key, |inode| inode.latch_record(key)).flatten();
        let path = poisoned.map(|poisoned| poisoned.path).unwrap_or_default();
        for share in shares {
            count(&share.metrics.syncs_failed);
            count(&share.metrics.latches);
            tracing::error!(
                share = share.name,
                fs = key.fs,
                inode = key.ino,
                path,
                error = %failure.error,
                "sync failed; FLUSH, write-through and CLOSE of this inode fail until it is \
                 rewritten or the latch is cleared"
            );
            if share.trip(false) {
                count(&share.metrics.trips);
                tracing::error!(
                    share = share.name,
                    "acknowledged changes may be lost: the share honors flushes from now on"
                );
            }
        }
    }

    /// Runs syncs of an inode until no request waits for one.
    async fn drive(&self, key: FileKey) {
        // Changes that were marked before this belong to the sync as a whole.
        let now = || (self.tick(), self.now());
        let mut next = self.with(key, |inode| inode.take_job(now));
        while let Some(job) = next {
            if self.planted(Planted::CleanBeforeResult) {
                self.finish(key, Ok(()));
            }
            let result = self.run(&job).await;
            if result.is_ok() {
                let ended = self.tick();
                let is_beside = |inode: &Inode<V>| inode.has_durable_write(ended);
                self.wait_for(key, is_beside).await;
            }
            self.finish(key, result);
            if result.is_err() {
                self.latches_stored().await;
            }
            let all = self.planted(Planted::JoinsRunningSync);
            let taken = self.with(key, |inode| (inode.take_joined(all), inode.take_job(now)));
            answer_all(job.waiters.into_iter().chain(taken.0), result);
            next = taken.1;
        }
    }

    /// The driver of an inode is gone, and the result of its sync will never be known, so the sync counts as failed.
    pub(crate) fn abandon_sync(&self, key: FileKey) {
        let failure = self.note_failure(key, VfsError::Io);
        let entries = !self.named_in(|dir| dir == key).is_empty();
        // In one step: a request that came between would wait for a driver that is gone.
        if self.with(key, |inode| inode.abandon(failure, entries)) {
            // If it is a directory, the names that the sync was to save are lost with it.
            self.directory_failed(key, failure);
        }
    }
}

fn log_end(key: FileKey, shares: &[Arc<Share>], path: &str, why: &str) {
    let names: Vec<&str> = shares.iter().map(|share| share.name.as_str()).collect();
    let (share, fs, inode) = (names.join(","), key.fs, key.ino);
    tracing::info!(share, fs, inode, path, "{why}: the latch ended");
}
