//! Names that move, and names that go.
//!
//! A move between two directories of a file system whose renames are not atomic is made stable
//! before the next one, and nothing else of its directories is synced in between (`moves.rs`). A
//! name of an inode goes there, or is replaced, only when the inode's other names are on disk.

use tokio::sync::OwnedRwLockWriteGuard;
use vfs::{FileKey, Node, Vfs, VfsError};

use super::{Asked, Begun, Gate, Judged};
use crate::{
    inode::{Held, Name},
    planted::Planted,
    policy::{Event, RequestFlags, Wait},
    receipt::Receipt,
};

/// A move that is about to be made; made by [`Gate::begin_move`]. Dropped it says nothing: for
/// one that failed. Keep it no longer than the move takes.
#[must_use = "the move must be said"]
pub struct Moving<'a, V: Vfs> {
    begun: Begun<'a, V>,
    from: &'a V::Node,
    to: &'a V::Node,
    /// Where the file system may keep half of it.
    alone: Option<OwnedRwLockWriteGuard<()>>,
}

impl<V: Vfs> Gate<V> {
    /// A name is about to move, within a directory (both the same) or between two. It may replace
    /// another one.
    ///
    /// # Errors
    /// `NotStarted`: what must be on disk before could not be synced now.
    pub async fn begin_move<'a>(
        &'a self,
        from: &'a V::Node,
        to: &'a V::Node,
        replaced: Option<&V::Node>,
    ) -> Result<Moving<'a, V>, VfsError> {
        let mut alone = None;
        if let Some(replaced) = replaced {
            self.begin_replacement(replaced, to).await?;
        }
        if from.key() != to.key() && !self.vfs.renames_are_atomic(from.key().fs) {
            let fs = from.key().fs;
            let held = self.core.moves.alone(fs).await;
            let settled = self.core.to_its_end(move |me| async move {
                me.settle(fs, FileKey::default()).await?;
                Ok(held)
            });
            alone = Some(settled.await?);
        }
        Ok(Moving {
            begun: self.begin(),
            from,
            to,
            alone,
        })
    }

    /// A name of `node` in `from` is about to be replaced by a link: on a file system whose renames are
    /// not atomic the inode's other names are on disk first.
    ///
    /// # Errors
    /// As of [`Gate::begin_move`].
    pub async fn begin_replacement(&self, node: &V::Node, from: &V::Node) -> Result<(), VfsError> {
        let key = node.key();
        let elsewhere = || self.core.names_elsewhere(key, from.key(), Name::is_here);
        if self.vfs.renames_are_atomic(key.fs) || elsewhere().is_empty() {
            return Ok(());
        }
        match self.core.barrier(key, None).await {
            Err(VfsError::NotStarted) => Err(VfsError::NotStarted),
            // What fails is latched, and nothing is promised of it any more.
            _ => Ok(()),
        }
    }
}

/// A removal that is about to be made; made by [`Gate::begin_removal`]. Dropped it says nothing:
/// for one that failed.
#[must_use = "the removal must be said"]
pub struct Removing<'a, V: Vfs> {
    begun: Begun<'a, V>,
    node: &'a V::Node,
    from: &'a V::Node,
}

impl<V: Vfs> Gate<V> {
    /// A name of `node` is about to be removed from a directory.
    ///
    /// # Errors
    /// As of [`Gate::begin_move`].
    pub async fn begin_removal<'a>(
        &'a self,
        node: &'a V::Node,
        from: &'a V::Node,
    ) -> Result<Removing<'a, V>, VfsError> {
        self.begin_replacement(node, from).await?;
        Ok(Removing {
            begun: self.begin(),
            node,
            from,
        })
    }
}

impl<V: Vfs> Removing<'_, V> {
    /// The name is gone.
    ///
    /// # Errors
    /// As of [`Begun::created`].
    pub async fn removed(self, flags: RequestFlags) -> Result<Receipt, VfsError> {
        let Self {
            begun: Begun { gate, at },
            node,
            from,
        } = self;
        let core = &gate.core;
        let gone = gate.name_gone(node, from, flags).await;
        core.entry_failed_since(from.key(), at);
        let result = match gone.judged.barriers.wait {
            Wait::Parent => {
                let synced = core.barrier(from.key(), Some(gate.held(from))).await;
                let mut result = gone.comes_back.map_or(synced, Err);
                // A name that it had left before may come back as well.
                for dir in gone.left {
                    result = result.and(core.barrier(dir.key(), Some(dir)).await);
                }
                result
            }
            _ => gate.barriers(core, from, gone.judged).await,
        };
        gate.changed_told(core, from.key(), result).await
    }
}

/// What is to be done once a name is gone.
struct Gone<V: Vfs> {
    judged: Judged,
    /// If it was the last one: directories that others left, and that is not on disk.
    left: Vec<Held<V>>,
    /// If it was the last one: the sync that was to take another one away failed.
    comes_back: Option<VfsError>,
}

impl<V: Vfs> Gate<V> {
    /// The name of `node` in a directory was replaced by another, as
    /// [`Gate::begin_move`] or [`Gate::begin_replacement`] was told.
    pub async fn replaced(&self, node: &V::Node, from: &V::Node) {
        self.name_gone(node, from, RequestFlags::default()).await;
    }

    async fn name_gone(&self, node: &V::Node, from: &V::Node, flags: RequestFlags) -> Gone<V> {
        let core = &self.core;
        let left = core.names_elsewhere(node.key(), from.key(), Name::has_left);
        let asked = Asked {
            others: self.asked_of([node]),
            ..Asked::of(Event::Remove, flags)
        };
        let judged = self.mark(core, from, asked, |inode, account| {
            inode.pending.entries_removed(account, 1);
        });
        // A directory has one name. A file whose last name is gone owes nothing: once the
        // directory is synced, no crash can bring back what was written to it.
        let last = node.is_directory() || self.vfs.links(node).await.is_ok_and(|links| links == 0);
        let mut comes_back = None;
        if last {
            comes_back = self.gone(node.key(), from);
        }
        Gone {
            judged,
            left: if last { left } else { Vec::new() },
            comes_back,
        }
    }

    /// An inode has neither names nor handles any more: its latch is dropped, and what is owed
    /// for it too, or under a bound when `from`, which had its last name, is synced. Answers the
    /// error by which a name may be left that comes back.
    fn gone(&self, key: FileKey, from: &V::Node) -> Option<VfsError> {
        let core = &self.core;
        let left = core.unlinked(key);
        let comes_back = left.comes_back;
        let plain = Asked::of(Event::Remove, RequestFlags::default());
        self.mark(core, from, plain, |inode, account| {
            inode.inherit(account, from.key(), left);
        });
        comes_back
    }
}

impl<V: Vfs> Moving<'_, V> {
    /// The name of `node` moved.
    ///
    /// # Errors
    /// As of [`Begun::created`].
    pub async fn renamed(self, node: &V::Node, flags: RequestFlags) -> Result<Receipt, VfsError> {
        let Self {
            begun,
            from,
            to,
            alone,
        } = self;
        let (gate, core) = (begun.gate, &begun.gate.core);
        if from.key() != to.key() {
            let plain = Asked::of(Event::Rename, RequestFlags::default());
            gate.mark(core, from, plain, |inode, _| inode.pending.entries = true);
        }
        let forgotten = core.planted(Planted::OneParentOnRename);
        let parents = (Some(to), (!forgotten).then_some(from));
        let event = match node.is_directory() || alone.is_some() {
            true => Event::Move,
            false => Event::Rename,
        };
        let since = (flags, begun.at);
        let judged = gate.mark_name(event, node, parents, since);
        if let Some(alone) = alone
            && judged.barriers.wait != Wait::Nothing
        {
            let (key, marked) = (node.key(), core.tick());
            // Read before the syncs: where the host moves it meanwhile, the path differs afterwards.
            let path = gate.vfs.path_hint(node);
            let stable = core.to_its_end(move |me| async move {
                let _alone = alone;
                me.directories(key, Some(None), (marked, false)).await
            });
            if let Err(error) = stable.await {
                return gate.changed_told(core, key, Err(error)).await;
            }
            // This name is stable, and need not be made so again where it is found (`found.rs`).
            core.with(key, |inode| inode.found_at = path);
        }
        gate.after(core, node, judged).await
    }
}
