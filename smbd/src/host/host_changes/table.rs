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
use smb_server::{file::CountedUser, host_watch::Interest};
use vfs::{
    FileKey,
    linux::{InodeId, LinuxFd},
};

/// Most watches at a time; each costs the kernel about a kilobyte.
pub(super) const WATCHES_MAX: usize = 262_144;

/// The part of the watches that trees leave to the interests' own inodes: what has no watch may not be cached. Of the
/// others, a user's trees may use at most half of those that are free to that user.
const KEPT_PART: usize = 4;

/// Most memory of the places of watches below the interests' own directories, in bytes: many interests may cover one
/// tree, and each has the place of every directory in it.
const PLACES_MAX: usize = 256 << 20;
/// The memory of a use with its place, and of each name of that, besides the names' bytes.
const USE_MEMORY: usize = 128;
const NAME_MEMORY: usize = 32;

/// The error where a limit of this server is reached; the kernel has none of this number here.
pub(super) const FULL: Errno = Errno::NOBUFS;

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

/// About the memory of a use at this place.
fn memory_of(below: &Below) -> usize {
    let names = below.iter().map(|name| name.len() + NAME_MEMORY);
    USE_MEMORY + names.sum::<usize>()
}

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
    key: FileKey,
    interest: Interest,
    watches: BTreeSet<i32>,
}

/// One use of the watch that an event names.
#[derive(Clone)]
pub(super) struct Seen {
    pub(super) id: UseId,
    pub(super) root: LinuxFd,
    pub(super) key: FileKey,
    pub(super) interest: Interest,
    pub(super) below: Below,
}

impl Seen {
    pub(super) fn is_tree(&self) -> bool {
        matches!(self.interest, Interest::Changes { tree: true, .. })
    }
}

/// The setting of an inode's watch without the lock of the table.
#[derive(Default)]
struct BeingSet {
    by: usize,
    /// The inode's watch, if its last use ended meanwhile.
    unused: Option<i32>,
}

pub(super) struct Table {
    watches: HashMap<i32, Watch>,
    uses: BTreeMap<UseId, Use>,
    /// The interests in directories.
    of_directories: usize,
    being_set: HashMap<InodeId, BeingSet>,
    next: u64,
    max: usize,
    /// The most that the kernel gave when it was last asked.
    kernels_max: usize,
    /// The memory of all uses, and the most that those below the interests' own directories may have.
    used: usize,
    places_max: usize,
    /// The uses of each user below the interests' own directories. Several of one watch count as many times, because
    /// each takes memory.
    in_trees: BTreeMap<CountedUser, usize>,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            watches: HashMap::new(),
            uses: BTreeMap::new(),
            of_directories: 0,
            being_set: HashMap::new(),
            next: 0,
            max: WATCHES_MAX,
            kernels_max: kernels_max(),
            used: 0,
            places_max: PLACES_MAX,
            in_trees: BTreeMap::new(),
        }
    }
}

/// The watches that the kernel gives each user (fs.inotify.max_user_watches).
fn kernels_max() -> usize {
    let text = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches").ok();
    let most = text.and_then(|text| text.trim().parse().ok());
    most.unwrap_or(usize::MAX)
}

/// Sets the kernel's watch of an inode. On a file system of another host or process this may wait.
pub(super) fn set(inotify: &OwnedFd, fd: BorrowedFd<'_>) -> Result<i32, Errno> {
    // The magic link leads to the inode, whatever its name is now.
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    inotify::add_watch(inotify, path, flags())
}

impl Table {
    /// A new interest with the watch of its own inode.
    pub(super) fn begin(
        &mut self,
        inotify: &OwnedFd,
        root: &LinuxFd,
        key: FileKey,
        interest: Interest,
    ) -> Result<UseId, Errno> {
        let id = self.enter(root, key, interest);
        match self.add(inotify, id, root.as_fd(), Arc::default()) {
            Ok(_) => Ok(id),
            Err(error) => {
                self.remove(inotify, id);
                Err(error)
            }
        }
    }

    /// A new interest without a watch.
    pub(super) fn enter(&mut self, root: &LinuxFd, key: FileKey, interest: Interest) -> UseId {
        self.next += 1;
        let id = UseId(self.next);
        let new = Use {
            root: root.clone(),
            key,
            interest,
            watches: BTreeSet::new(),
        };
        self.uses.insert(id, new);
        self.of_directories += usize::from(interest.is_of_directory());
        id
    }

    /// Called before the watch of an interest's own inode is set without the lock of this table.
    pub(super) fn begin_set(&mut self, inode: InodeId) -> Result<(), Errno> {
        if self.is_full(None) {
            return Err(FULL);
        }
        self.being_set.entry(inode).or_default().by += 1;
        Ok(())
    }

    /// Takes the watch over, or ends it if the interest has ended.
    pub(super) fn end_set(
        &mut self,
        inotify: &OwnedFd,
        id: UseId,
        inode: InodeId,
        watch: Result<i32, Errno>,
    ) -> Result<(), Errno> {
        let mut unused = None;
        if let Some(setting) = self.being_set.get_mut(&inode) {
            setting.by -= 1;
            if setting.by == 0 {
                unused = setting.unused;
                self.being_set.remove(&inode);
            }
        }
        let taken = watch.map(|watch| match self.uses.contains_key(&id) {
            true => self.insert(id, watch, inode, Arc::default()),
            false => self.end_unused(inotify, watch, inode),
        });
        if let Some(unused) = unused {
            self.end_unused(inotify, unused, inode);
        }
        taken
    }

    /// Watches a directory of an interest. `Ok(None)` if the interest has ended.
    pub(super) fn add(
        &mut self,
        inotify: &OwnedFd,
        id: UseId,
        fd: BorrowedFd<'_>,
        below: Below,
    ) -> Result<Option<i32>, Errno> {
        let Some(user) = self.uses.get(&id).map(Use::user) else {
            return Ok(None);
        };
        let memory = memory_of(&below);
        // Opens bound the interests, and so the uses of their own directories.
        let in_tree = !below.is_empty();
        let no_place = in_tree && self.used.saturating_add(memory) > self.places_max;
        if no_place || self.is_full(in_tree.then_some(user)) {
            return Err(FULL);
        }
        let inode = InodeId::of(fd).ok_or(Errno::BADF)?;
        let watch = set(inotify, fd)?;
        self.insert(id, watch, inode, below);
        Ok(Some(watch))
    }

    /// Whether no watch is left for a directory in a tree of this user, or for an interest's own inode. An
    /// administrator may have raised the kernel's number since it was read.
    fn is_full(&mut self, in_tree_of: Option<CountedUser>) -> bool {
        let is_full = |table: &Self| {
            let most = table.max.min(table.kernels_max);
            let Some(user) = in_tree_of else {
                return table.watches.len() >= most;
            };
            let own = table.in_trees.get(&user).copied().unwrap_or(0);
            let free = (most - most / KEPT_PART).saturating_sub(table.watches.len());
            own >= free.saturating_add(own).div_ceil(2)
        };
        if is_full(self) && self.kernels_max < self.max {
            self.kernels_max = kernels_max();
        }
        is_full(self)
    }

    fn insert(&mut self, id: UseId, watch: i32, inode: InodeId, below: Below) {
        let Some(new) = self.uses.get_mut(&id) else {
            return;
        };
        new.watches.insert(watch);
        let user = new.user();
        let known = self.watches.entry(watch).or_insert_with(|| Watch {
            inode,
            uses: BTreeMap::new(),
        });
        self.used += memory_of(&below);
        if !below.is_empty() {
            *self.in_trees.entry(user).or_default() += 1;
        }
        if let Some(old) = known.uses.insert(id, below) {
            self.uncount(user, &old);
        }
    }

    /// Counts a use no more, which a user had at this place.
    fn uncount(&mut self, user: CountedUser, below: &Below) {
        self.used = self.used.saturating_sub(memory_of(below));
        if !below.is_empty()
            && let Some(in_trees) = self.in_trees.get_mut(&user)
        {
            *in_trees -= 1;
            if *in_trees == 0 {
                self.in_trees.remove(&user);
            }
        }
    }

    /// Ends an interest.
    pub(super) fn remove(&mut self, inotify: &OwnedFd, id: UseId) {
        let Some(ended) = self.uses.remove(&id) else {
            return;
        };
        self.of_directories -= usize::from(ended.interest.is_of_directory());
        let user = ended.user();
        for watch in ended.watches {
            self.release(inotify, watch, (id, user));
        }
    }

    fn release(&mut self, inotify: &OwnedFd, watch: i32, (id, user): (UseId, CountedUser)) {
        let Some(known) = self.watches.get_mut(&watch) else {
            return;
        };
        let below = known.uses.remove(&id);
        let (inode, is_unused) = (known.inode, known.uses.is_empty());
        if let Some(below) = below {
            self.uncount(user, &below);
        }
        if is_unused {
            self.watches.remove(&watch);
            self.end_unused(inotify, watch, inode);
        }
    }

    /// Ends a watch that nobody uses: the kernel has one for an inode, so one that is being set may be the same.
    fn end_unused(&mut self, inotify: &OwnedFd, watch: i32, inode: InodeId) {
        if self.watches.contains_key(&watch) {
            return;
        }
        match self.being_set.get_mut(&inode) {
            Some(setting) => setting.unused = Some(watch),
            // If the watch has ended with its inode, there is nothing to remove.
            None => _ = inotify::remove_watch(inotify, watch),
        }
    }

    /// Called when the kernel has ended a watch.
    pub(super) fn ended(&mut self, watch: i32) {
        let Some(known) = self.watches.remove(&watch) else {
            return;
        };
        for (id, below) in &known.uses {
            if let Some(of) = self.uses.get_mut(id) {
                of.watches.remove(&watch);
                let user = of.user();
                self.uncount(user, below);
            }
        }
    }

    /// Called when a directory was moved within an interest: moves the places of all watches below it.
    pub(super) fn moved(&mut self, id: UseId, from: &Below, to: &Below) {
        for watch in self.below(id, from) {
            let known = self.watches.get_mut(&watch);
            if let Some(below) = known.and_then(|known| known.uses.get_mut(&id)) {
                let rest = below.get(from.len()..).unwrap_or_default();
                let moved: Below = to.iter().chain(rest).cloned().collect();
                let left = self.used.saturating_sub(memory_of(below));
                self.used = left + memory_of(&moved);
                *below = moved;
            }
        }
    }

    /// Removes a directory that has left an interest.
    pub(super) fn left(&mut self, inotify: &OwnedFd, id: UseId, from: &Below) {
        for watch in self.below(id, from) {
            if let Some(of) = self.uses.get_mut(&id) {
                of.watches.remove(&watch);
                let user = of.user();
                self.release(inotify, watch, (id, user));
            }
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

    /// The directories that clients watch or cache, each of them once.
    pub(super) fn directories(&self) -> BTreeMap<FileKey, LinuxFd> {
        let uses = self.uses.values();
        uses.filter(|user| user.interest.is_of_directory())
            .map(|user| (user.key, user.root.clone()))
            .collect()
    }

    /// Whether there are any.
    pub(super) fn has_directories(&self) -> bool {
        self.of_directories > 0
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

    #[cfg(test)]
    pub(super) fn set_kernels_max(&mut self, max: usize) {
        self.kernels_max = max;
    }

    #[cfg(test)]
    pub(super) fn set_places_max(&mut self, max: usize) {
        self.places_max = max;
    }

    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.used
    }

    pub(super) fn is_empty(&self) -> bool {
        self.uses.is_empty()
    }
}

impl Use {
    /// The user with whom the watches below the interest's own directory are counted; caching has none.
    fn user(&self) -> CountedUser {
        match self.interest {
            Interest::Changes { user, .. } => user,
            Interest::Caching { .. } => CountedUser::default(),
        }
    }

    fn seen(&self, id: UseId, below: &Below) -> Seen {
        Seen {
            id,
            root: self.root.clone(),
            key: self.key,
            interest: self.interest,
            below: Arc::clone(below),
        }
    }
}
