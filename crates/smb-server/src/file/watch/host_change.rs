//! Changes made by other programs on the host, as the observer of the disk reports them.
//!
//! The observer names a watcher by its open and knows its directory, whatever path the engine has for it. Caching is
//! broken as for an operation of another client on the inode; nothing waits, because the change has already happened.
//! A directory that was removed has nothing more to report.

use smb_wire::msg::NotifyFilter;
use vfs::FileKey;

use super::{Effects, Files, OpenId, Place};
use crate::file::{Actor, Operation};

/// A change below a watched directory made by another program on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostChange {
    /// The path relative to the watched directory; at least one component.
    pub names: Vec<String>,
    /// The action's number, see [`Change`](super::Change).
    pub action: u32,
    /// The kinds of change; the watcher gets a report if it is interested in any of them.
    pub filter: NotifyFilter,
}

/// The change of another program to an inode that a client may cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Touched {
    /// Its data or its size changed.
    Data,
    /// It was renamed, or one of its names was removed.
    Name,
    /// It has no name any more.
    Gone,
    /// It is a directory, and an entry of it changed.
    Entries,
}

impl Files {
    /// Reports host changes to one watcher, in order. Changes that belong together (both names of a rename) must be
    /// passed in one call.
    pub fn host_changed(&self, open: OpenId, changes: &[HostChange]) -> Effects {
        let mut effects = Effects::default();
        let mut watches = self.watches.lock();
        let Some(watcher) = watches.by_open.get_mut(&open) else {
            return effects;
        };
        for change in changes {
            let near = change.names.len() <= 1;
            if (near || watcher.tree) && watcher.filter.intersects(change.filter) {
                watcher.push(change.action, &change.names.join("\\"));
            }
        }
        watcher.deliver(&mut effects);
        effects
    }

    /// Called when changes below a watched directory were lost: its client must list the directory again.
    pub fn changes_lost(&self, open: OpenId) -> Effects {
        let mut effects = Effects::default();
        if let Some(watcher) = self.watches.lock().by_open.get_mut(&open) {
            watcher.forget();
            watcher.overflowed = true;
            watcher.deliver(&mut effects);
        }
        effects
    }

    /// Breaks the caching of an inode that another program on the host touched. The requests that wait at a directory
    /// without a name end.
    pub fn host_touched(&self, key: FileKey, touched: Touched) -> Effects {
        let place = Place { key, stream: None };
        let operation = match touched {
            Touched::Data => Operation::Write,
            Touched::Name => Operation::Rename,
            Touched::Gone => Operation::Delete,
            Touched::Entries => return self.entries_changed(key, None),
        };
        let (_, mut effects) = self.operation(&place, Actor::Stranger, operation, None);
        if touched == Touched::Gone {
            self.directory_deleted(key, &mut effects);
        }
        effects
    }
}
