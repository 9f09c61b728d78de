//! Changes that a sync may fail beside.
//!
//! The caller changes something through the `Vfs` and says so afterwards. A sync that fails
//! between the two may have dropped the change and does not know of it: what was marked then is
//! latched, and the change would count as new, to be saved by the next sync. A [`Begun`] is made
//! before the change and knows the failures since.

use vfs::{FileKey, Node, Vfs, VfsError};

use super::Gate;
use crate::{
    inode::Inode,
    latch::Failure,
    policy::{Event, Meta, RequestFlags},
    receipt::Receipt,
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
        Begun {
            gate: self,
            at: self.core.tick(),
        }
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

impl<V: Vfs> Durability<V> {
    /// Of the sync that failed beside what began at `since`, as one of now.
    pub(super) fn missed(&self, key: FileKey, since: u64) -> Failure {
        let error = self.failures.since(key, since);
        self.failure(error.unwrap_or(VfsError::Io))
    }

    /// A change was just marked that began at `since`. If a sync of the inode, or of a directory
    /// that has a new name of it, failed in between, it is as unproven as what was marked then.
    pub(super) fn failed_since(&self, key: FileKey, since: u64, dirs: &[FileKey]) {
        let error = |of: FileKey| self.failures.since(of, since);
        for dir in dirs {
            self.lost_if(key, error(*dir), |inode, failure| {
                inode.name_failed(*dir, failure)
            });
            self.lost_if(*dir, error(*dir), Inode::entry_failed);
        }
        if dirs.is_empty() {
            self.lost_if(key, error(key), Inode::own_failed);
        }
    }

    /// A name was just marked as removed from `dir`; that began at `since`. As
    /// [`Durability::failed_since`].
    pub(super) fn entry_failed_since(&self, dir: FileKey, since: u64) {
        self.lost_if(dir, self.failures.since(dir, since), Inode::entry_failed);
    }

    fn lost_if(
        &self,
        key: FileKey,
        error: Option<VfsError>,
        lose: impl FnOnce(&mut Inode<V>, Failure) -> bool,
    ) {
        let Some(error) = error else { return };
        let failure = self.failure(error);
        self.lose(key, failure, |inode| lose(inode, failure));
    }
}

/// The keys of the directories that a name is in.
pub(super) fn keys<N: Node>(new: Option<&N>, old: Option<&N>) -> Vec<FileKey> {
    new.into_iter().chain(old).map(Node::key).collect()
}
