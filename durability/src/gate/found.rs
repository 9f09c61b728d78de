//! The name by which a client found an inode, which may be the work of somebody else on the host.
//!
//! This process knows of the names that it made itself. What was created, renamed or copied up by
//! another process, and is not on disk, it cannot know. So before the first promise about an inode after
//! the first of its handles was opened, the name is put down as owed, as if it had been made then: the
//! barrier syncs the inode in full and its directory after it. Where a sync is due anyway, a look at
//! the path shows whether the name has moved since. It does not depend on being told of changes.

use vfs::{Node, Vfs, VfsError};

use super::{Gate, RequestFlags};
use crate::{inode::Inode, planted::Planted, policy::Event, table::Durability};

impl<V: Vfs> Gate<V> {
    /// Puts down the name of `node` as owed, unless that was done since its first handle was opened.
    /// `moved`: also if it is found elsewhere by now.
    pub(super) async fn owe_name(
        &self,
        core: &Durability<V>,
        node: &V::Node,
        moved: bool,
    ) -> Result<(), VfsError> {
        let key = node.key();
        let known = |inode: &Inode<V>| inode.found_at.clone();
        let known = core.peek(key, known).flatten();
        if (known.is_some() && !moved) || core.planted(Planted::NoParentSync) {
            return Ok(());
        }
        let path = self.vfs.path_hint(node);
        if path.is_none() || path == known {
            return Ok(());
        }
        let Some(parent) = self.vfs.parent_of(node).await? else {
            return Ok(());
        };
        let owes = |inode: &Inode<V>| {
            let mut names = inode.names().iter();
            names.any(|name| name.dir.key() == parent.key())
        };
        let owed = core.peek(key, owes) == Some(true);
        if !owed {
            // A failed sync of the directory may have dropped a name that nobody here knew of.
            core.check_latch(parent.key())?;
        }
        let since = (RequestFlags::default(), core.tick());
        self.mark_name(Event::Link, node, (Some(&parent), None), since);
        core.with(key, |inode| match path {
            Some(path) if !owed => inode.name_was_found(parent.key(), path),
            path => inode.found_at = path,
        });
        Ok(())
    }
}
