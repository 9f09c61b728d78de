//! FLUSH ([MS-SMB2] 3.3.5.11, [MS-FSA] 2.1.5.7) of a file, a stream, a directory or the whole share.
//!
//! Invariant: a FLUSH that waits for the disk covers every write to the inode that came before it,
//! and fails while the inode or a directory above it is poisoned, whatever the policy.

use vfs::{Node, Vfs, VfsError};

use super::{Asked, Gate, Judged, contents::Earlier, journal::JournalEntry, receipt::Receipt};
use crate::{
    dirty::Inode,
    metrics::count,
    planted::Planted,
    policy::{Event, Flushed, RequestFlags, Wait},
};

/// The target of a FLUSH.
#[derive(Debug, Clone)]
pub enum FlushTarget<N> {
    /// A file or stream.
    File,
    /// A directory, with the directory that holds its name where known.
    Directory {
        /// Where its name is.
        parent: Option<N>,
    },
    /// The root of the share: every dirty inode of it and of its file system.
    ShareRoot,
}

impl<N> FlushTarget<N> {
    fn event(&self) -> Event {
        Event::Flush(match self {
            Self::File => Flushed::File,
            Self::Directory { .. } => Flushed::Directory,
            Self::ShareRoot => Flushed::ShareRoot,
        })
    }
}

impl<V: Vfs> Gate<V> {
    /// FLUSH. It covers the writes to the inode that came before it, whether they have ended or not.
    pub async fn flush(
        &self,
        node: &V::Node,
        target: FlushTarget<V::Node>,
        flags: RequestFlags,
    ) -> Result<Receipt, VfsError> {
        self.flush_after(node, target, flags, Earlier::All).await
    }

    /// As [`Gate::flush`]; of the writes that wait to be under way it covers these.
    ///
    /// # Errors
    /// As there.
    pub async fn flush_after(
        &self,
        node: &V::Node,
        target: FlushTarget<V::Node>,
        flags: RequestFlags,
        earlier: Earlier,
    ) -> Result<Receipt, VfsError> {
        let started = self.env.monotonic();
        let result = self.flush_target(node, target, (flags, earlier)).await;
        let result = self.once_stored(result).await;
        let metrics = &self.share.metrics;
        metrics
            .flush_micros
            .add_time(self.env.monotonic().saturating_sub(started));
        if result.is_err() {
            count(&metrics.flushes_failed);
        }
        result.map(|()| Receipt::new())
    }

    async fn flush_target(
        &self,
        node: &V::Node,
        target: FlushTarget<V::Node>,
        (flags, earlier): (RequestFlags, Earlier),
    ) -> Result<(), VfsError> {
        let key = node.key();
        let (judged, bytes) = self.core.with(key, |inode| {
            inode.seen_through(&self.share);
            let judged = self.judge(inode, Asked::of(target.event(), flags));
            if judged.barriers.deferred {
                inode.promised(&self.share, judged.kind);
            }
            (judged, inode.bytes())
        });
        let barriers = judged.barriers;
        self.share.metrics.flush_bytes.add(bytes);
        let mut entry = self.note(node, bytes);
        let slow = barriers.owed && self.is_too_slow(key, judged);
        let waits = slow || barriers.wait != Wait::Nothing;
        if matches!(target, FlushTarget::File) {
            self.mark_found_name(node, waits).await?;
        }
        if !waits {
            return self.answer_at_once(node, &target, judged, entry).await;
        }
        if self.core.planted(Planted::StreamFlushWithoutSync) && node.stream().is_some() {
            return Ok(());
        }
        if !self.core.planted(Planted::FlushBeforeEarlierWrites) {
            let accepted = !self.core.planted(Planted::FlushBeforeAcceptedWrites);
            self.core
                .wait_for_writes(key, accepted.then_some(earlier))
                .await;
        }
        self.measure(&mut entry, node).await;
        let whole_share =
            barriers.wait == Wait::Share || (slow && matches!(target, FlushTarget::ShareRoot));
        self.make_stable(node, &target, (whole_share, slow)).await?;
        if let Some(entry) = entry {
            entry.done(self.env.realtime()).await;
        }
        count(&self.share.metrics.flushes_honored);
        Ok(())
    }

    /// Answers before the disk, unless a failure is already known.
    async fn answer_at_once(
        &self,
        node: &V::Node,
        target: &FlushTarget<V::Node>,
        judged: Judged,
        entry: Option<JournalEntry>,
    ) -> Result<(), VfsError> {
        let (key, metrics) = (node.key(), &self.share.metrics);
        self.check_failures(node)?;
        if matches!(target, FlushTarget::ShareRoot) {
            self.check_share()?;
        }
        self.cover(key).await?;
        if judged.barriers.owed {
            count(&metrics.flushes_owed);
            self.hold_back(key, judged.bound).await;
        } else {
            count(&metrics.flushes_ignored);
        }
        // Last, because a FLUSH that fails has promised nothing.
        if let Some(entry) = entry {
            entry.promised(self, node).await;
        }
        Ok(())
    }

    /// Waits until the target, or the `whole_share`, is on stable storage. A FLUSH that waits only
    /// because the disk is `slow` promises what clients changed, which is known: where a sync has
    /// covered that already, no other one is needed.
    async fn make_stable(
        &self,
        node: &V::Node,
        target: &FlushTarget<V::Node>,
        (whole_share, slow): (bool, bool),
    ) -> Result<(), VfsError> {
        let key = node.key();
        let unless_clean = |node: &V::Node| (!slow).then(|| self.held(node));
        if whole_share {
            let report = self.core.sync_root(&self.share, key).await;
            self.core.barrier(key, unless_clean(node)).await?;
            self.check_share()?;
            return report
                .errors
                .first()
                .map_or(Ok(()), |(_, error)| Err(*error));
        }
        self.core.barrier(key, unless_clean(node)).await?;
        if let FlushTarget::Directory {
            parent: Some(parent),
        } = target
            && !self.core.planted(Planted::DirectoryFlushWithoutParent)
        {
            // Its own name, which an earlier server process may have left dirty.
            self.core
                .barrier(parent.key(), unless_clean(parent))
                .await?;
        }
        Ok(())
    }

    /// The first error of all that is latched of the share, whatever its policy.
    fn check_share(&self) -> Result<(), VfsError> {
        if self.core.has_overflow() {
            return Err(VfsError::Io);
        }
        // Losses of other shares of the file system are reported there.
        let mine = |inode: &Inode<V>| {
            inode.shares().is_empty() || inode.is_of(|share| share.is_same_folder(&self.share))
        };
        let latched = self.core.latched_where(mine).into_iter();
        let first = latched.min_by_key(|latched| latched.sequence);
        first.map_or(Ok(()), |latched| Err(latched.error))
    }
}
