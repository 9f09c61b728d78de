//! Changes that a sync may fail beside.
//!
//! The caller changes something through the `Vfs` and says so afterwards. A sync that fails
//! between the two may have dropped the change and does not know of it: what was marked then is
//! latched, and the change would count as new, to be saved by the next sync. A [`Begun`] is made
//! before the change and knows the failures since.

use std::sync::Arc;

use vfs::{FileKey, Node, Vfs, VfsError};

use super::Gate;
use crate::{
    inode::Inode,
    latch::Failure,
    planted::Planted,
    policy::{Event, Meta, RequestFlags},
    receipt::Receipt,
    share::Share,
    table::Durability,
};

/// A change that is about to be made; made by [`Gate::begin`]. Dropped it says nothing: for a
/// change that failed.
#[must_use = "the change must be said"]
pub struct Begun<'a, V: Vfs> {
    pub(super) gate: &'a Gate<V>,
    /// Drawn before the change.
    pub(super) at: u64,
}

impl<V: Vfs> Clone for Begun<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V: Vfs> Copy for Begun<'_, V> {}

impl<V: Vfs> Gate<V> {
    /// A name, metadata or size is about to change. Call it before the change: there is no other
    /// way to say it afterwards.
    pub fn begin(&self) -> Begun<'_, V> {
        let at = match self.core.planted(Planted::ChangeBesideFailureTrusted) {
            true => u64::MAX,
            false => self.core.tick(),
        };
        Begun { gate: self, at }
    }
}

impl<V: Vfs> Begun<'_, V> {
    /// A file or directory was created in `parent`.
    ///
    /// # Errors
    /// What the policy's syncs say; it has been created all the same.
    pub async fn created(
        self,
        node: &V::Node,
        parent: &V::Node,
        flags: RequestFlags,
    ) -> Result<Receipt, VfsError> {
        let parents = (Some(parent), None);
        self.gate
            .named(Event::Create, node, parents, (flags, self.at))
            .await
    }

    /// A hard link to `node` was added in `new_parent`.
    ///
    /// # Errors
    /// As of [`Begun::created`].
    pub async fn linked(
        self,
        node: &V::Node,
        new_parent: &V::Node,
        flags: RequestFlags,
    ) -> Result<Receipt, VfsError> {
        let parents = (Some(new_parent), None);
        self.gate
            .named(Event::Link, node, parents, (flags, self.at))
            .await
    }

    /// Metadata of `node` was set by a client.
    ///
    /// # Errors
    /// As of [`Begun::created`].
    pub async fn meta_changed(
        self,
        node: &V::Node,
        what: Meta,
        flags: RequestFlags,
    ) -> Result<Receipt, VfsError> {
        self.gate.meta(node, what, (flags, self.at)).await
    }

    /// End of file or allocation was set.
    ///
    /// # Errors
    /// As of [`Begun::created`].
    pub async fn resized(self, node: &V::Node, flags: RequestFlags) -> Result<Receipt, VfsError> {
        self.gate.size(node, (flags, self.at)).await
    }

    /// A stream was created; `node` is the stream. Also for a stream that was renamed (its node
    /// under the new name).
    ///
    /// # Errors
    /// As of [`Begun::created`].
    pub async fn stream_created(
        self,
        node: &V::Node,
        flags: RequestFlags,
    ) -> Result<Receipt, VfsError> {
        self.gate.stream_named(node, (flags, self.at)).await
    }

    /// A stream was removed; `node` is the stream. What held it is synced through that node.
    ///
    /// # Errors
    /// As of [`Begun::created`].
    pub async fn stream_removed(
        self,
        node: &V::Node,
        flags: RequestFlags,
    ) -> Result<Receipt, VfsError> {
        self.gate.stream_gone(node, (flags, self.at)).await
    }
}

/// What a change that was just marked lost by a sync that had failed, and whom that concerns.
pub(super) type Lost = Option<(Failure, Vec<Arc<Share>>)>;

impl<V: Vfs> Durability<V> {
    /// Of the sync that failed beside what began at `since`.
    pub(super) fn missed(&self, key: FileKey, since: u64) -> Failure {
        let failure = self.failures.since(key, since);
        failure.unwrap_or_else(|| self.failure(VfsError::Io))
    }

    /// Marks what was begun at `since`, and in the same step, so that no sync comes between: if a
    /// sync of the inode failed meanwhile, it is as unproven as what was marked then.
    pub(super) fn mark_begun(
        &self,
        key: FileKey,
        since: u64,
        inode: &mut Inode<V>,
        change: impl FnOnce(&mut Inode<V>),
    ) -> Lost {
        let Some(failure) = self.failures.since(key, since) else {
            change(inode);
            return None;
        };
        let lost = inode.own_failed(failure, change);
        lost.then(|| (failure, inode.shares.clone()))
    }

    /// As [`Durability::mark_begun`], of names in `dirs` that were marked in this step.
    pub(super) fn names_begun(&self, dirs: &[FileKey], since: u64, inode: &mut Inode<V>) -> Lost {
        let mut lost = None;
        for dir in dirs {
            if let Some(failure) = self.failures.since(*dir, since)
                && inode.name_failed(*dir, failure)
            {
                lost = Some((failure, inode.shares.clone()));
            }
        }
        lost
    }

    pub(super) fn tell_lost(&self, key: FileKey, lost: Lost) {
        if let Some((failure, shares)) = lost {
            self.report_failure(key, &shares, failure);
        }
    }

    /// A name was just marked as made in or removed from `dir`; that began at `since`. A failed
    /// sync of the directory may have dropped it.
    pub(super) fn entry_failed_since(&self, dir: FileKey, since: u64) {
        if let Some(failure) = self.failures.since(dir, since) {
            self.lose(dir, failure, |inode| inode.entry_failed(failure));
        }
    }
}

/// The keys of the directories that a name is in.
pub(super) fn keys<N: Node>(new: Option<&N>, old: Option<&N>) -> Vec<FileKey> {
    new.into_iter().chain(old).map(Node::key).collect()
}
