//! The name by which a client found an inode, which another program on the host may have made.
//!
//! This process knows the names that it made itself. It cannot know that a name was created, renamed
//! or copied up by another process and is not stable. So before the first promise about an inode
//! after the first of its handles was opened, the name is marked dirty as if it had been made then:
//! the barrier syncs the inode in full, and then its directory. Where a sync is due anyway, a look at
//! the path shows whether the name has moved since. This does not depend on notifications of changes.

use vfs::{Node, Vfs, VfsError};

use super::{Gate, RequestFlags};
use crate::{dirty::Inode, planted::Planted, policy::Event};

/// How often a file is looked for while another program on the host moves it.
const LOOKS_MAX: usize = 8;

impl<V: Vfs> Gate<V> {
    /// Marks the name of `node` dirty, unless that was done since its first handle was opened.
    /// `moved`: also if it is found elsewhere by now.
    pub(super) async fn mark_found_name(
        &self,
        node: &V::Node,
        moved: bool,
    ) -> Result<(), VfsError> {
        let key = node.key();
        let known = |inode: &Inode<V>| inode.found_at().map(str::to_owned);
        let known = self.core.peek(key, known).flatten();
        if (known.is_some() && !moved) || self.core.planted(Planted::NoParentSync) {
            return Ok(());
        }
        let Some((path, parent)) = self.find(node, known.as_deref()).await? else {
            return Ok(());
        };
        let owes = |inode: &Inode<V>| {
            let mut names = inode.names().iter();
            names.any(|name| name.dir.key() == parent.key())
        };
        let owed = self.core.peek(key, owes) == Some(true);
        if !owed {
            // A failed sync of the directory may have dropped a name that this process did not know of.
            self.core.check_latch(parent.key())?;
        }
        let since = (RequestFlags::default(), self.core.tick());
        self.mark_name(Event::Link, node, (Some(&parent), None), since);
        self.core.with(key, |inode| match owed {
            false => inode.name_was_found(parent.key(), path),
            true => inode.set_found_at(Some(path)),
        });
        Ok(())
    }

    /// The path of `node` and its directory; `None` where it is at `known` or has no directory. What
    /// moves between the two looks is looked for again.
    async fn find(
        &self,
        node: &V::Node,
        known: Option<&str>,
    ) -> Result<Option<(String, V::Node)>, VfsError> {
        for _ in 0..LOOKS_MAX {
            let Some(path) = self.vfs.path_hint(node) else {
                return Ok(None);
            };
            if path.is_empty() || known == Some(&*path) {
                return Ok(None);
            }
            if let Some(parent) = self.vfs.parent_of(node).await? {
                return Ok(Some((path, parent)));
            }
        }
        Ok(None)
    }
}
