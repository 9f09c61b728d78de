//! WRITEs that were accepted and are not under way yet: a break of caching has to end first, or
//! the bound leaves no room.
//!
//! Each has a ticket from its arrival on, and FLUSH waits for it as for a write under way. One
//! that is given up takes its ticket back. Only FLUSH waits for these: background syncs and
//! barriers of a policy do not, as room may depend on them; nor does a FLUSH through an open that
//! caches wait for those of others, as it may be what their break waits for.

use vfs::{FileKey, Node, Vfs};

use super::Gate;
use crate::table::Durability;

/// Which of the writes that arrived before a FLUSH it waits for. Those under way it always does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Earlier {
    /// Every one of the inode.
    All,
    /// Those of this open, and of nobody in particular: the FLUSH comes from an open that caches,
    /// and whoever it caches against may be waiting for the FLUSH.
    Of(u64),
}

/// A write that was accepted; made by [`Gate::arrived`]. Dropped before it is under way it was
/// given up.
#[must_use = "dropped at once it counts for nobody"]
pub struct Arrived<'a, V: Vfs> {
    core: &'a Durability<V>,
    key: FileKey,
    /// The write keeps it when it is under way.
    pub(super) ticket: u64,
}

impl<V: Vfs> Gate<V> {
    /// A request to change contents of `node` was accepted and has to wait before it may. Number
    /// `open` names the open that it came through, process-wide.
    pub fn arrived(&self, node: &V::Node, open: u64) -> Arrived<'_, V> {
        self.arrive(node, Some(open))
    }

    pub(super) fn arrive(&self, node: &V::Node, open: Option<u64>) -> Arrived<'_, V> {
        let (core, key) = (&*self.core, node.key());
        let ticket = core.with(key, |inode| {
            let ticket = core.tick();
            inode.arrived.insert(ticket, open);
            ticket
        });
        Arrived { core, key, ticket }
    }
}

impl<V: Vfs> Drop for Arrived<'_, V> {
    fn drop(&mut self) {
        self.core.with(self.key, |inode| {
            inode.arrived.remove(&self.ticket);
            inode.written.notify_waiters();
        });
    }
}
