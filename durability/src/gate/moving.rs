//! Names that move.
//!
//! A move between two directories excludes syncs of directories on its file system (`order.rs`)
//! from before it is made until it is marked: else one of them saves that the name left and knows
//! nothing of where it went.

use vfs::{Node, Vfs, VfsError};

use super::{Asked, Begun, Gate};
use crate::{
    order::Move,
    planted::Planted,
    policy::{Event, RequestFlags},
    receipt::Receipt,
};

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
    /// until no directory of the file system is being synced.
    pub async fn begin_move<'a>(&'a self, from: &'a V::Node, to: &'a V::Node) -> Moving<'a, V> {
        let alone = match from.key() == to.key() {
            true => None,
            false => Some(self.core.orders.moving(from.key().fs).await),
        };
        Moving {
            begun: self.begin(),
            from,
            to,
            alone,
        }
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
