//! FLUSH ([MS-SMB2] 3.3.5.11, [MS-FSA] 2.1.5.7) of a file, a stream, a directory or the whole share.
//!
//! Invariants:
//! - A FLUSH that waits for the disk covers every write to the inode that came before it, and fails while
//!   the inode or a directory above it is poisoned, whatever the policy.
//! - A record of the journal is stored after the data, before the answer. A journal that cannot write fails no FLUSH.
//! - Another program on the host may have made the name by which a client found an inode. So before the first promise
//!   after the first of its handles was opened, that name is marked dirty as if it had been made then. Where a sync is
//!   due anyway, a look at the path shows whether it has moved. This depends on no notification of changes.

use std::sync::Arc;

use vfs::{FileKey, Node, VfsError, VfsResult, Volume};

use super::{Asked, BEYOND_DOUBT, Gate, Judged, Receipt};
use crate::{
    dirty::{Account, Earlier, FoundAt, Inode},
    metrics::count,
    planted::Planted,
    policy::{Event, FlushTarget, RequestFlags, Wait},
    store::{FlushJournal, FlushRecord},
};

/// The most times that a file is looked for while another program on the host moves it.
const LOOKS_MAX: usize = 16;

impl<V: Volume> Gate<V> {
    /// FLUSH. It covers the writes to the inode that came before it, whether they have ended or not;
    /// of the queued ones it covers those that `earlier` names.
    ///
    /// # Errors
    /// Something of the target is not stable, and cannot be proven to become so.
    pub async fn flush_after(
        &self,
        node: &V::Node,
        target: FlushTarget,
        flags: RequestFlags,
        earlier: Earlier,
    ) -> VfsResult<Receipt> {
        let started = self.core.now();
        let (key, metrics) = (node.key(), &self.share.metrics);
        let (judged, bytes) = self.core.with(key, |inode| {
            inode.seen_through(&self.share);
            let judged = self.judge(inode, &Asked::of(Event::Flush(target), flags));
            if judged.barriers.deferred {
                let account = self.account(inode, judged.kind, Vec::new());
                inode.promised(&account, key);
            }
            (judged, inode.bytes())
        });
        metrics.flush_bytes.add(bytes);
        let slow = judged.barriers.bounded && self.is_too_slow(key, judged);
        let result = if slow || judged.barriers.wait != Wait::Nothing {
            // The future is boxed only here, so that a FLUSH that is answered at once stays small.
            Box::pin(self.honor(node, target, slow, bytes, earlier)).await
        } else {
            self.answer_at_once(node, target, judged, bytes).await
        };
        if result.is_err() {
            self.core.latches_stored().await;
            count(&metrics.flushes_failed);
        }
        let took = self.core.now().saturating_sub(started);
        metrics.flush_micros.add_time(took);
        result.map(Receipt)
    }

    /// Whether a FLUSH promises the name by which a client found the target.
    fn covers_name(&self, target: FlushTarget) -> bool {
        match target {
            FlushTarget::File => true,
            FlushTarget::Directory => !self.core.planted(Planted::DirectoryFlushWithoutParent),
            FlushTarget::ShareRoot => false,
        }
    }

    /// Waits until the target is on stable storage.
    async fn honor(
        &self,
        node: &V::Node,
        target: FlushTarget,
        slow: bool,
        bytes: u64,
        earlier: Earlier,
    ) -> VfsResult<()> {
        let (core, key) = (&self.core, node.key());
        let mut record = self.note(node, bytes);
        // If the name cannot be made stable, the data still are, and the FLUSH fails after that.
        let named = match self.covers_name(target) {
            true => self.mark_found_name(node, true).await,
            false => Ok(()),
        };
        if core.planted(Planted::StreamFlushWithoutSync) && node.stream().is_some() {
            return Ok(());
        }
        if !core.planted(Planted::FlushBeforeEarlierWrites) {
            let queued = (!core.planted(Planted::FlushBeforeAcceptedWrites)).then_some(earlier);
            core.wait_for_writes(key, queued).await;
        }
        if let Some(record) = &mut record {
            self.measure(record, node).await;
        }
        let stable = || async {
            let held = self.held(node);
            match slow {
                // It promises what clients changed, which is known: where a sync has covered that already, no other
                // one is needed.
                true => core.barrier_unless_clean(held).await,
                false => core.barrier(key, Some(held)).await,
            }
        };
        if target == FlushTarget::ShareRoot && !core.planted(Planted::RootFlushOfRootAlone) {
            let report = core.sync_root(&self.share, &self.vfs, key).await;
            stable().await?;
            self.check_share()?;
            if let Some((_, error)) = report.errors.first() {
                return Err(*error);
            }
        } else {
            stable().await?;
        }
        named?;
        if let (Some(mut record), Some(journal)) = (record, core.journal.get()) {
            // It is stable, and recorded before the reply. A journal that cannot write reports that itself.
            record.at = core.env.realtime();
            let _ = journal.flushed(*record).await;
        }
        count(&self.share.metrics.flushes_honored);
        Ok(())
    }

    /// Answers before the disk, unless a failure is already known.
    async fn answer_at_once(
        &self,
        node: &V::Node,
        target: FlushTarget,
        judged: Judged,
        bytes: u64,
    ) -> VfsResult<()> {
        let (key, metrics) = (node.key(), &self.share.metrics);
        // The record is made now, so that its policy is the one that answers the FLUSH.
        let record = self.note(node, bytes);
        // A later background sync does not look where the file is by then, so a promise that it keeps looks now.
        let moved = judged.barriers.bounded;
        let marked = match moved {
            true => self.path_of_unmarked(node) == Some(None),
            false => self.is_name_marked(key),
        };
        if self.covers_name(target) && !marked {
            Box::pin(self.mark_found_name(node, moved)).await?;
        }
        if self.core.is_too_dirty(key.fs) {
            Box::pin(self.core.limit_dirty(&self.share, key)).await;
        }
        if target == FlushTarget::ShareRoot && judged.barriers.bounded {
            // The bound may not hold yet for changes through other shares, and may be that of another share, through
            // which the root is open.
            let others = |inode: &Inode<V>| inode.opens.bounded_elsewhere(&self.share);
            let others = self.core.peek(key, others).unwrap_or_default();
            for key in self.core.keys_in(&self.share, &self.vfs) {
                let (share, kind, also) = (&self.share, judged.kind, others.clone());
                let account = Account { share, kind, also };
                self.core.with(key, |inode| inode.promised(&account, key));
            }
        }
        if self.core.journal.get().is_some() {
            Box::pin(self.cover(key)).await?;
        }
        if judged.barriers.bounded {
            Box::pin(self.hold_back(key, judged.bound)).await;
        }
        // This comes after the waits, because a sync may fail meanwhile.
        self.check_failures(node)?;
        if target == FlushTarget::ShareRoot {
            self.check_share()?;
        }
        count(match judged.barriers.bounded {
            true => &metrics.flushes_deferred,
            false => &metrics.flushes_ignored,
        });
        // This comes last, because a FLUSH that fails has promised nothing.
        if let (Some(mut record), Some(journal)) = (record, self.core.journal.get()) {
            Box::pin(self.measure(&mut record, node)).await;
            journal.promised(*record);
        }
        Ok(())
    }

    /// The first error of all poisoned inodes of the share, whatever its policy.
    fn check_share(&self) -> VfsResult<()> {
        if self.core.has_overflow() {
            return Err(VfsError::Io);
        }
        // Losses of this share and of shares below its folder count; those of a share above count if they are in it.
        let roots = self.core.roots_within(&self.share, &self.vfs);
        let above = self.core.roots_above(&self.vfs);
        let is_below = |inode: &Inode<V>| {
            let mut above = above.iter();
            above.any(|(root, folder)| {
                inode.is_poisoned_in(folder) && inode.is_of(|share| share.is_within(root))
            })
        };
        let mine = |_: &FileKey, inode: &Inode<V>| {
            inode.shares().is_empty()
                || inode.is_of(|share| share.is_within(&roots))
                || is_below(inode)
        };
        let poisoned = self.core.poisoned_where(mine).into_iter();
        let first = poisoned.min_by_key(|poisoned| poisoned.sequence);
        first.map_or(Ok(()), |poisoned| Err(poisoned.error))
    }

    /// The journal, if this share's flushes are recorded.
    fn journal(&self) -> Option<&Arc<dyn FlushJournal>> {
        let journal = self.core.journal.get()?;
        journal.wants(&self.name).then_some(journal)
    }

    /// The record of a FLUSH that begins now. `None` for a share without a journal.
    fn note(&self, node: &V::Node, bytes: u64) -> Option<Box<FlushRecord>> {
        self.journal()?;
        let key = node.key();
        Some(Box::new(FlushRecord {
            at: self.core.env.realtime(),
            share: self.name.clone(),
            key,
            stream: node.stream().unwrap_or_default().to_owned(),
            path: self.vfs.path_hint(node).unwrap_or_default(),
            size: 0,
            sequence: self.core.tick(),
            policy: self.policy_of(key),
            bytes,
            directory: node.is_directory(),
        }))
    }

    /// Takes the size, before the sync begins: what is written during it is not promised.
    async fn measure(&self, record: &mut FlushRecord, node: &V::Node) {
        if let Ok(attr) = self.vfs.attr(node).await {
            record.size = attr.size;
        }
    }

    /// Ensures that a lazy acknowledgement is within the last durable exposure record; or else makes the inode stable.
    pub(super) async fn cover(&self, key: FileKey) -> VfsResult<()> {
        let Some(journal) = self.journal() else {
            return Ok(());
        };
        let Some(covered) = journal.cover(&self.name, self.share.bytes(), self.core.now()) else {
            return Ok(());
        };
        if covered.await.is_err() {
            self.core.barrier(key, None).await?;
        }
        Ok(())
    }

    /// A path from the root of this share.
    pub(super) fn found_at(&self, path: Vec<u8>) -> FoundAt {
        let root = self.vfs.root().key();
        FoundAt { root, path }
    }

    /// Whether the name of the inode was marked dirty since its first handle was opened. False where its handles came
    /// by several names: only a look at the path shows which of them was marked.
    fn is_name_marked(&self, key: FileKey) -> bool {
        let root = self.vfs.root().key();
        let marked = |inode: &Inode<V>| {
            let found = inode.found_at.as_ref();
            found.is_some_and(|at| at.root == root) && !inode.opens.have_several_names()
        };
        self.core.peek(key, marked) == Some(true) || self.core.planted(Planted::NoParentSync)
    }

    /// The path of `node`, unless the name at that path was marked. `None` if the path is not known.
    fn path_of_unmarked(&self, node: &V::Node) -> Option<Option<Vec<u8>>> {
        let (key, root) = (node.key(), self.vfs.root().key());
        // Nearly every FLUSH finds the file where its name was marked, so the path is copied only if it is another one.
        self.vfs.with_path(node, |path| {
            let is_here = |at: &FoundAt| at.root == root && at.path == path;
            let is_marked = |inode: &Inode<V>| inode.found_at.as_ref().is_some_and(is_here);
            let is_marked = path.is_empty() || self.core.peek(key, is_marked) == Some(true);
            (!is_marked).then(|| path.to_vec())
        })
    }

    /// Marks the name of `node` dirty, unless that was done since its first handle was opened, or it has no directory.
    /// With `moved` the path is looked at again, and a name found at another path is marked too.
    pub(super) async fn mark_found_name(&self, node: &V::Node, moved: bool) -> VfsResult<()> {
        let key = node.key();
        if (!moved && self.is_name_marked(key)) || self.core.planted(Planted::NoParentSync) {
            return Ok(());
        }
        for _ in 0..LOOKS_MAX {
            let at = match self.path_of_unmarked(node) {
                Some(Some(path)) => self.found_at(path),
                Some(None) => return Ok(()),
                None => return self.sync_unknown_name(node).await,
            };
            let Some(parent) = self.vfs.parent_of(node).await? else {
                // It was moved between the two looks.
                continue;
            };
            let is_dirty = |inode: &Inode<V>| inode.is_named_in(parent.key());
            let dirty = self.core.peek(key, is_dirty) == Some(true);
            // A sync of the directory that fails from here on is seen after the name was marked.
            let since = self.core.tick();
            if !dirty {
                // A failed sync of the directory may have dropped a name that this process did not know of. A failure
                // that has not poisoned the directory yet gets a number above `since` when it does.
                self.core.check_latch(parent.key())?;
            }
            if self.mark_found(node, &parent, at, dirty, since) {
                return Ok(());
            }
        }
        // Another program moves the file all the time, or has mounted something above it, so nothing can be promised
        // about its name.
        Err(VfsError::NotStarted)
    }

    /// Marks the name of `node` in `parent` dirty, unless the node is no longer at `at`: then a rename is under way,
    /// or has been marked, and its new directory must not be taken for the older one.
    /// `dirty` is whether that is known already, and `since` when the directory was last seen without a failure.
    fn mark_found(
        &self,
        node: &V::Node,
        parent: &V::Node,
        at: FoundAt,
        dirty: bool,
        since: u64,
    ) -> bool {
        let (core, key) = (&self.core, node.key());
        let dir = self.held(parent);
        let asked = self.also_of(Asked::of(Event::Link, RequestFlags::default()), [parent]);
        let mut is_here = false;
        self.mark(node, asked, BEYOND_DOUBT, |inode, account, _| {
            is_here = self.vfs.with_path(node, |path| path == at.path) == Some(true);
            if !is_here {
                inode.pending.meta = true;
                return;
            }
            self.mark_parents(inode, account, (Some(&dir), None), (key, since));
            match dirty {
                false => inode.name_was_found(dir.key(), at),
                true => inode.found_at = Some(at),
            }
        });
        core.entry_failed_since(dir.key(), since);
        is_here
    }

    /// Calls [`Volume::sync_unknown_name`]. If that fails, the name may be lost.
    async fn sync_unknown_name(&self, node: &V::Node) -> VfsResult<()> {
        let synced = self.vfs.sync_unknown_name(node).await;
        if let Err(error) = synced
            && error != VfsError::NotStarted
        {
            let (file, shares) = (self.held(node).is_file(), vec![Arc::clone(&self.share)]);
            self.core.lost_in_sync(node.key(), file, shares, error);
        }
        synced
    }
}
