//! Syncs that the file system makes on its own account, inside other operations, and that fail.
//!
//! A back end syncs one thing before it changes another: a stream's new place before the old one
//! goes, a name before what it replaced is forgotten. The kernel tells such a failure once, and it
//! takes along whatever else was dirty. [`vfs::Vfs::on_failed_sync`] brings it here, where it
//! counts as a failed sync of the engine's own: what was dirty is unproven.

use std::sync::{Arc, Weak};

use vfs::{Node, Vfs};

use crate::{share::Share, table::Durability};

impl<V: Vfs> Durability<V> {
    /// From now on hears of the syncs of `vfs` that fail inside its other methods.
    pub(crate) fn listen(&self, vfs: &V, share: &Arc<Share>) {
        let (me, share) = (Weak::clone(&self.me), Arc::downgrade(share));
        vfs.on_failed_sync(Box::new(move |node, error| {
            if let (Some(me), Some(share)) = (me.upgrade(), share.upgrade()) {
                let file = node.stream().is_none() && !node.is_directory();
                me.lost_in_sync(node.key(), file, vec![share], error);
            }
        }));
    }
}
