//! The watches, and the interests they serve.
//!
//! inotify has one watch for an inode however often it is requested, so watches are counted by their uses: an
//! interest (of one open) uses one watch for each directory it covers, and has the place of each below its own
//! directory. Invariant: a watch is in the table as long as it is used, and each use names an interest that is in the
//! table.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    sync::Arc,
};

use rustix::{
    fs::inotify::{self, WatchFlags},
    io::Errno,
};
use smb_server::outside::Interest;
use vfs::linux::{InodeId, LinuxFd};

/// Most watches at a time; each costs the kernel about a kilobyte.
pub(super) const WATCHES_MAX: usize = 262_144;

/// Number of an interest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct UseId(u64);

#[cfg(test)]
impl UseId {
    pub(super) fn of(number: u64) -> Self {
        Self(number)
    }
}

/// A place below an interest's directory: names on disk.
pub(super) type Below = Arc<[Box<[u8]>]>;

/// The events that report a change of a directory or a file.
fn flags() -> WatchFlags {
    WatchFlags::ATTRIB
        | WatchFlags::CREATE
        | WatchFlags::DELETE
        | WatchFlags::MODIFY
        | WatchFlags::MOVE_SELF
        | WatchFlags::MOVED_FROM
        | WatchFlags::MOVED_TO
        | WatchFlags::EXCL_UNLINK
}

struct Watch {
    inode: InodeId,
    uses: BTreeMap<UseId, Below>,
}

struct Use {
    root: LinuxFd,
    interest: Interest,
    watches: BTreeSet<i32>,
}

/// One use of the watch that an event names.
#[derive(Clone)]
pub(super) struct Seen {
    pub(super) id: UseId,
    pub(super) root: LinuxFd,
    pub(super) interest: Interest,
    pub(super) below: Below,
}

impl Seen {
    pub(super) fn is_tree(&self) -> bool {
        matches!(self.interest, Interest::Changes { tree: true, .. })
    }
}

pub(super) struct Table {
    watches: HashMap<i32, Watch>,
    uses: BTreeMap<UseId, Use>,
    next: u64,
    max: usize,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            watches: HashMap::new(),
            uses: BTreeMap::new(),
            next: 0,
            max: WATCHES_MAX,
        }
    }
}

/// The magic link to a descriptor: a path to its inode that no rename changes.
fn magic(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

impl Table {
    /// A new interest with the watch of its own inode.
    pub(super) fn begin(
        &mut self,
        inotify: &OwnedFd,
        root: &LinuxFd,
        interest: Interest,
    ) -> Result<UseId, Errno> {
        self.next += 1;
        let id = UseId(self.next);
        let new = Use {
            root: root.clone(),
            interest,
            watches: BTreeSet::new(),
        };
        self.uses.insert(id, new);
        let added = self.add(inotify, id, root.as_fd(), Arc::default());
        added.map(|_| id).inspect_err(|_| {
            self.uses.remove(&id);
        })
    }

    /// Watches a directory of an interest. `Ok(None)` if the interest has ended.
    pub(super) fn add(
        &mut self,
        inotify: &OwnedFd,
        id: UseId,
        fd: BorrowedFd<'_>,
        below: Below,
    ) -> Result<Option<i32>, Errno> {
        let Some(user) = self.uses.get_mut(&id) else {
            return Ok(None);
        };
        if self.watches.len() >= self.max {
            return Err(Errno::NOSPC);
        }
        let inode = InodeId::of(fd).ok_or(Errno::BADF)?;
        let watch = inotify::add_watch(inotify, magic(fd), flags())?;
        user.watches.insert(watch);
        let known = self.watches.entry(watch).or_insert_with(|| Watch {
            inode,
            uses: BTreeMap::new(),
        });
        known.uses.insert(id, below);
        Ok(Some(watch))
    }

    /// Ends an interest.
    pub(super) fn remove(&mut self, inotify: &OwnedFd, id: UseId) {
        let Some(user) = self.uses.remove(&id) else {
            return;
        };
        for watch in user.watches {
            self.release(inotify, watch, id);
        }
    }

    fn release(&mut self, inotify: &OwnedFd, watch: i32, id: UseId) {
        let Some(known) = self.watches.get_mut(&watch) else {
            return;
        };
        known.uses.remove(&id);
        if known.uses.is_empty() {
            self.watches.remove(&watch);
            // If the watch has ended with its inode, there is nothing to remove.
            let _ = inotify::remove_watch(inotify, watch);
        }
    }

    /// Called when the kernel has ended a watch.
    pub(super) fn ended(&mut self, watch: i32) {
        let Some(known) = self.watches.remove(&watch) else {
            return;
        };
        for id in known.uses.keys() {
            if let Some(user) = self.uses.get_mut(id) {
                user.watches.remove(&watch);
            }
        }
    }

    /// Called when a directory was moved within an interest: moves the places of all watches below it.
    pub(super) fn moved(&mut self, id: UseId, from: &Below, to: &Below) {
        for watch in self.below(id, from) {
            let known = self.watches.get_mut(&watch);
            if let Some(below) = known.and_then(|known| known.uses.get_mut(&id)) {
                let rest = below.get(from.len()..).unwrap_or_default();
                *below = to.iter().chain(rest).cloned().collect();
            }
        }
    }

    /// Removes a directory that has left an interest.
    pub(super) fn left(&mut self, inotify: &OwnedFd, id: UseId, from: &Below) {
        for watch in self.below(id, from) {
            if let Some(user) = self.uses.get_mut(&id) {
                user.watches.remove(&watch);
            }
            self.release(inotify, watch, id);
        }
    }

    fn below(&self, id: UseId, from: &Below) -> Vec<i32> {
        let mut found = Vec::new();
        for watch in self.uses.get(&id).iter().flat_map(|user| &user.watches) {
            let known = self.watches.get(watch);
            let below = known.and_then(|known| known.uses.get(&id));
            if below.is_some_and(|below| below.starts_with(from)) {
                found.push(*watch);
            }
        }
        found
    }

    /// The inode of a watch, and the interests that use it.
    pub(super) fn seen(&self, watch: i32) -> Option<(InodeId, Vec<Seen>)> {
        let known = self.watches.get(&watch)?;
        let mut seen = Vec::with_capacity(known.uses.len());
        for (id, below) in &known.uses {
            if let Some(user) = self.uses.get(id) {
                seen.push(user.seen(*id, below));
            }
        }
        Some((known.inode, seen))
    }

    /// Every interest.
    pub(super) fn all(&self) -> Vec<Seen> {
        let none = Below::default();
        let each = self.uses.iter();
        each.map(|(id, user)| user.seen(*id, &none)).collect()
    }

    pub(super) fn root_of(&self, id: UseId) -> Option<(LinuxFd, Interest)> {
        let user = self.uses.get(&id)?;
        Some((user.root.clone(), user.interest))
    }

    pub(super) fn watches_of(&self, id: UseId) -> usize {
        self.uses.get(&id).map_or(0, |user| user.watches.len())
    }

    /// Watches and interests.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.watches.len(), self.uses.len())
    }

    #[cfg(test)]
    pub(super) fn set_max(&mut self, max: usize) {
        self.max = max;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.uses.is_empty()
    }
}

impl Use {
    fn seen(&self, id: UseId, below: &Below) -> Seen {
        Seen {
            id,
            root: self.root.clone(),
            interest: self.interest,
            below: Arc::clone(below),
        }
    }
}
