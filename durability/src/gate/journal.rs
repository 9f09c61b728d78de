//! The journal of acknowledged FLUSHes, for shares that have one.
//!
//! Invariants: a record is stored after the data and before the answer; a journal that cannot be
//! written never fails a FLUSH. Before a change is acknowledged lazily, a stored exposure record
//! covers it, or it is made stable.

use std::sync::Arc;

use vfs::{FileKey, Node, Vfs, VfsError};

use super::Gate;
use crate::store::{FlushJournal, FlushRecord};

/// A FLUSH that has not been answered yet.
pub(super) struct JournalEntry {
    journal: Arc<dyn FlushJournal>,
    record: FlushRecord,
}

impl<V: Vfs> Gate<V> {
    /// The record of a FLUSH that begins now. `None` for a share without a journal.
    pub(super) fn note(&self, node: &V::Node, bytes: u64) -> Option<JournalEntry> {
        let share = &self.share;
        let journal = self.core.stores.journal_of(&share.name)?;
        let key = node.key();
        let policy = self
            .core
            .peek(key, |inode| inode.opens().effective(share).policy);
        let record = FlushRecord {
            at: self.env.realtime(),
            share: share.name.clone(),
            key,
            stream: node.stream().unwrap_or_default().to_owned(),
            path: self.vfs.path_hint(node).unwrap_or_default(),
            size: 0,
            sequence: self.core.tick(),
            policy: policy.unwrap_or_else(|| share.effective().policy),
            bytes,
            directory: node.is_directory(),
        };
        Some(JournalEntry { journal, record })
    }

    /// Takes the size, before the sync begins.
    pub(super) async fn measure(&self, entry: &mut Option<JournalEntry>, node: &V::Node) {
        if let Some(entry) = entry {
            entry.measure(self, node).await;
        }
    }

    /// Ensures that a change that is acknowledged lazily is within the last durable
    /// exposure record; otherwise it is made stable first.
    pub(super) async fn cover(&self, key: FileKey) -> Result<(), VfsError> {
        let share = &self.share;
        let Some(journal) = self.core.stores.journal_of(&share.name) else {
            return Ok(());
        };
        let Some(covered) = journal.cover(&share.name, share.bytes(), self.core.now()) else {
            return Ok(());
        };
        if covered.await.is_err() {
            self.core.barrier(key, None).await?;
        }
        Ok(())
    }
}

impl JournalEntry {
    /// Takes the size, before the sync begins: what is written during it is not promised.
    async fn measure<V: Vfs>(&mut self, gate: &Gate<V>, node: &V::Node) {
        if let Ok(attr) = gate.vfs.attr(node).await {
            self.record.size = attr.size;
        }
    }

    /// It is on stable storage: written down before the reply. A journal that cannot write has
    /// said so; the flush is true all the same.
    pub(super) async fn done(mut self, now: vfs::Timestamp) {
        self.record.at = now;
        let _ = self.journal.flushed(self.record).await;
    }

    /// It is answered before the disk.
    pub(super) async fn promised<V: Vfs>(mut self, gate: &Gate<V>, node: &V::Node) {
        self.measure(gate, node).await;
        self.journal.promised(self.record);
    }
}
