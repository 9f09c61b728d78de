//! Names that move, and names that go.
//!
//! A move between two directories excludes syncs of directories on its file system (`order.rs`)
//! from before it is made until it is marked: else one of them saves that the name left and knows
//! nothing of where it went. A name that goes while the inode has another one elsewhere is such a
//! move, and with a directory that is removed goes what was known of where names went from there.

use vfs::{FileKey, Node, Vfs, VfsError};

use super::{Asked, Begun, Gate, Judged};
use crate::{
    inode::{Held, Name},
    order::Move,
    planted::Planted,
    policy::{Event, RequestFlags, Wait},
    receipt::Receipt,
};

/// How often what went the other way is made stable before a move goes on all the same: others
/// move on meanwhile, or the disk fails.
const TURNS_MAX: usize = 8;

/// A move that is about to be made; made by [`Gate::begin_move`]. Dropped it says nothing: for
/// one that failed. Keep it no longer than the move takes.
#[must_use = "the move must be said"]
pub struct Moving<'a, V: Vfs> {
    begun: Begun<'a, V>,
    from: &'a V::Node,
    to: &'a V::Node,
    alone: Option<Move>,
}

impl<V: Vfs> Gate<V> {
    /// A name is about to move, within a directory (both the same) or between two: then this waits
    /// until no directory of the file system is being synced. It may replace another one.
    pub async fn begin_move<'a>(
        &'a self,
        from: &'a V::Node,
        to: &'a V::Node,
        replaced: Option<&V::Node>,
    ) -> Moving<'a, V> {
        let ways = || {
            let mut ways = replaced.map_or_else(Vec::new, |node| self.elsewhere(node, to));
            if from.key() != to.key() {
                ways.push((from.key(), to.key()));
            }
            ways
        };
        let alone = match ways().is_empty() {
            true => None,
            false => Some(self.alone(from.key().fs, ways).await),
        };
        Moving {
            begun: self.begin(),
            from,
            to,
            alone,
        }
    }
}

/// A removal that is about to be made; made by [`Gate::begin_removal`]. Dropped it says nothing:
/// for one that failed. Keep it no longer than the removal takes.
#[must_use = "the removal must be said"]
pub struct Removing<'a, V: Vfs> {
    begun: Begun<'a, V>,
    node: &'a V::Node,
    from: &'a V::Node,
    alone: Option<Move>,
}

impl<V: Vfs> Gate<V> {
    /// A name of `node` is about to be removed from a directory. That of a directory, or of a file
    /// with another name that is not on disk, goes while no directory of the file system is synced.
    pub async fn begin_removal<'a>(
        &'a self,
        node: &'a V::Node,
        from: &'a V::Node,
    ) -> Removing<'a, V> {
        let ways = || match node.is_directory() {
            true => self.core.ways_through(node.key(), from.key()),
            false => self.elsewhere(node, from),
        };
        let alone = match node.is_directory() || !ways().is_empty() {
            true => Some(self.alone(from.key().fs, ways).await),
            false => None,
        };
        Removing {
            begun: self.begin(),
            node,
            from,
            alone,
        }
    }
}

impl<V: Vfs> Gate<V> {
    /// From a directory to those where the inode has another name that is not on disk.
    fn elsewhere(&self, node: &V::Node, from: &V::Node) -> Vec<(FileKey, FileKey)> {
        let names = (self.core).names_elsewhere(node.key(), from.key(), Name::is_here);
        names.iter().map(|dir| (from.key(), dir.key())).collect()
    }

    /// Waits until no directory of the file system is being synced, and until names may go these
    /// ways: where something went the other way before, and that is not on disk, no order of the
    /// two directories would keep both. What promises nothing does not wait for that.
    async fn alone(&self, fs: u64, ways: impl Fn() -> Vec<(FileKey, FileKey)>) -> Move {
        let core = &self.core;
        for _ in 0..TURNS_MAX {
            let alone = core.orders.moving(fs).await;
            let mut ways = ways().into_iter();
            let against = ways.find_map(|(from, to)| core.against(from, to));
            let Some(dir) = against.filter(|_| self.share.promises()) else {
                return alone;
            };
            drop(alone);
            // What fails is latched, and nothing is promised of it any more.
            let _ = core.barrier(dir, None).await;
        }
        core.orders.moving(fs).await
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
            alone,
        } = self;
        let core = &gate.core;
        let gone = gate.name_gone(node, from, flags).await;
        core.entry_failed_since(from.key(), at);
        drop(alone);
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
    /// The name of `node` in a directory was replaced by another, in a move that
    /// [`Gate::begin_move`] was told of.
    pub async fn replaced(&self, node: &V::Node, from: &V::Node) {
        self.name_gone(node, from, RequestFlags::default()).await;
    }

    async fn name_gone(&self, node: &V::Node, from: &V::Node, flags: RequestFlags) -> Gone<V> {
        let core = &self.core;
        let elsewhere = core.names_elsewhere(node.key(), from.key(), Name::is_here);
        let left = core.names_elsewhere(node.key(), from.key(), Name::has_left);
        let asked = Asked {
            others: self.asked_of([node]),
            ..Asked::of(Event::Remove, flags)
        };
        let judged = self.mark(core, from, asked, |inode, account| {
            inode.pending.entries_removed(account, 1);
            // It is found under its other names: they must be on disk first.
            for dir in &elsewhere {
                inode.moved_out(dir, core.tick());
            }
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
        core.passed_on(key, &left.before);
        let plain = Asked::of(Event::Remove, RequestFlags::default());
        self.mark(core, from, plain, |inode, account| {
            inode.inherit(account, from.key(), left, core.tick());
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
            let to = gate.held(to);
            let plain = Asked::of(Event::Rename, RequestFlags::default());
            gate.mark(core, from, plain, |inode, _| {
                inode.pending.entries = true;
                inode.moved_out(&to, core.tick());
            });
        }
        let forgotten = core.planted(Planted::OneParentOnRename);
        let parents = (Some(to), (!forgotten).then_some(from));
        let judged = gate.mark_name(Event::Rename, node, parents, (flags, begun.at));
        drop(alone);
        gate.after(core, node, judged).await
    }
}
