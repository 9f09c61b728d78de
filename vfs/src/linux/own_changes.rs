//! Lists the changes that this process itself is making on its disks, so that their observer can distinguish them from
//! those of other programs (inotify does not report who made a change).
//!
//! Every call that changes something is listed here from before it begins until the observer has read all events up
//! to its end: [`OwnChanges::begin_drain`] before the events are read until none is left, [`OwnChanges::end_drain`]
//! when they have been processed. An event of a listed name counts as our own, so a change of the same name by another
//! program while our call runs, or until the next drain after it, is not recognised. Of an inode the time of its last
//! change (`ctime`) is known, so that a change by another program is recognised unless it happens while our call runs.
//! This needs timestamps of their own for changes that follow each other (Linux 6.13, on ext4, XFS, btrfs and tmpfs);
//! otherwise changes in one tick of the kernel's clock (1 to 10 ms) are one. Remote file systems change the time when
//! the data reach the other host, so there an inode counts like a name.
//!
//! While nothing is observed, this costs only a load. The bound is [`KNOWN_MAX`]; a change for which there is no room
//! counts as one of another program, which reports too much, but never too little.

use std::{
    collections::HashMap,
    fmt,
    os::fd::AsFd,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::fs::{AtFlags, ResolveFlags, StatxFlags};

use super::{LinuxFd, calls};
use crate::lock;

/// The most entries of the table: objects that are being changed, and objects that were changed since the last drain.
const KNOWN_MAX: usize = 65_536;

/// An inode as `statx` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct InodeId {
    pub device: u64,
    pub number: u64,
}

impl InodeId {
    /// The inode of a descriptor, as far as this machine knows; `None` if it cannot be queried.
    pub fn of(fd: impl AsFd) -> Option<Self> {
        InodeState::of(fd).map(|state| state.inode)
    }
}

/// An inode and when it was last changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InodeState {
    pub inode: InodeId,
    /// Seconds and nanoseconds of `stx_ctime`.
    changed: (i64, u32),
    /// The same of `stx_btime`, 0 where there is none: another file may get the number of one that was removed.
    born: (i64, u32),
    links: u32,
}

impl InodeState {
    /// The inode of an entry, links not followed; `None` if there is none, or another file system is mounted there.
    /// This may wait for a disk, but (since Linux 6.18) not for an automounter.
    pub fn at(dir: impl AsFd, name: &[u8]) -> Option<Self> {
        Self::of(calls::find(dir, name, ResolveFlags::empty()).ok()?)
    }

    /// As [`Self::at`], if the kernel has the entry in memory and need not ask anybody.
    pub fn cached_at(dir: impl AsFd, name: &[u8]) -> Option<Self> {
        Self::of(calls::find_cached(dir, name).ok()?)
    }

    /// The inode of a descriptor, as far as this machine knows; `None` if it cannot be queried.
    pub fn of(fd: impl AsFd) -> Option<Self> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let wanted = StatxFlags::INO | StatxFlags::CTIME | StatxFlags::BTIME | StatxFlags::NLINK;
        let stat = rustix::fs::statx(fd, c"", flags, wanted).ok()?;
        Some(Self {
            inode: InodeId {
                device: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
                number: stat.stx_ino,
            },
            changed: (stat.stx_ctime.tv_sec, stat.stx_ctime.tv_nsec),
            born: (stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec),
            links: stat.stx_nlink,
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Thing {
    Inode(InodeId),
    Name(InodeId, Box<[u8]>),
}

#[derive(Debug, Default)]
struct KnownChange {
    /// The number of this process's changing calls that have begun and not ended.
    running: u32,
    /// The latest drain that had begun when the last of them ended.
    ended: u64,
    /// The newest state of the inode after one of them, since none ran.
    newest: Option<InodeState>,
    /// The state after another one of them is not known.
    unknown: bool,
    /// The latest drain that had begun when a change by another program was noticed.
    foreign: Option<u64>,
}

impl KnownChange {
    /// Whether somebody else has changed the inode after the last of our calls.
    fn is_older(&self, now: InodeState) -> bool {
        // An older time was queried before our last call. A name that was made or removed has events of its own, and
        // changes the time as well.
        let older = |known: InodeState| now.changed > known.changed && now.links == known.links;
        self.running == 0 && !self.unknown && self.newest.is_some_and(older)
    }

    /// Whether the inode that was changed is gone, and another one has its number.
    fn is_of_another(&self, now: InodeState) -> bool {
        self.running == 0 && self.newest.is_some_and(|known| known.born != now.born)
    }
}

#[derive(Debug, Default)]
struct Table {
    known: HashMap<Thing, KnownChange>,
    drains: u64,
}

type Wake = Box<dyn Fn() + Send + Sync>;

/// The table of the server's own changes. There is one for the process and its one observer.
#[derive(Default)]
pub struct OwnChanges {
    observed: AtomicBool,
    table: Mutex<Table>,
    wake: Mutex<Option<Wake>>,
}

impl fmt::Debug for OwnChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnChanges")
            .field("observed", &self.observed)
            .finish_non_exhaustive()
    }
}

impl OwnChanges {
    /// Sets the function that is called when the table stops being empty, because a drain is due soon after.
    pub fn set_wake(&self, wake: impl Fn() + Send + Sync + 'static) {
        *lock(&self.wake) = Some(Box::new(wake));
    }

    pub fn observe(&self, on: bool) {
        self.observed.store(on, Ordering::SeqCst);
    }

    /// Called before events are read; the returned number must be passed to [`OwnChanges::end_drain`].
    #[must_use]
    pub fn begin_drain(&self) -> u64 {
        let mut table = lock(&self.table);
        table.drains += 1;
        table.drains
    }

    /// Forgets the changes that had ended before the drain began. Returns true if any is left.
    pub fn end_drain(&self, drain: u64) -> bool {
        let mut table = lock(&self.table);
        table
            .known
            .retain(|_, known| known.running > 0 || known.ended >= drain);
        #[expect(clippy::iter_over_hash_type, reason = "each is changed by itself")]
        for known in table.known.values_mut() {
            known.foreign = known.foreign.filter(|noticed| *noticed >= drain);
        }
        if table.known.is_empty() {
            table.known.shrink_to(1_024);
        }
        !table.known.is_empty()
    }

    /// Whether this process is changing the inode, or has just changed it, and nobody else has since.
    pub fn is_inode(&self, now: InodeState) -> bool {
        let table = lock(&self.table);
        let known = table.known.get(&Thing::Inode(now.inode));
        let same = known.filter(|known| !known.is_of_another(now));
        same.is_some_and(|known| known.foreign.is_none() && !known.is_older(now))
    }

    /// Whether this process is changing a name, or has just changed it.
    pub fn is_name(&self, dir: InodeId, name: &[u8]) -> bool {
        let thing = Thing::Name(dir, name.into());
        lock(&self.table).known.contains_key(&thing)
    }

    pub fn len(&self) -> usize {
        lock(&self.table).known.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Lists the changed `things`, which are not looked for if nothing is observed.
    fn begin<const N: usize>(
        self: &Arc<Self>,
        things: impl FnOnce() -> [Option<Thing>; N],
    ) -> Option<OwnChange> {
        self.is_observed().then(|| self.list(things(), None))
    }

    /// Lists the changed `things`. Of an inode, its descriptor and its state before the change are known.
    fn list<const N: usize>(
        self: &Arc<Self>,
        things: [Option<Thing>; N],
        of: Option<(LinuxFd, InodeState)>,
    ) -> OwnChange {
        let mut mine = Vec::new();
        let was_empty = {
            let mut table = lock(&self.table);
            let was_empty = table.known.is_empty();
            for thing in things.into_iter().flatten() {
                if table.known.len() >= KNOWN_MAX && !table.known.contains_key(&thing) {
                    continue;
                }
                let drains = table.drains;
                let known = table.known.entry(thing.clone()).or_default();
                let before = of.as_ref().map(|(_, before)| *before);
                if before.is_some_and(|before| known.is_of_another(before)) {
                    *known = KnownChange::default();
                }
                if before.is_some_and(|before| known.is_older(before)) {
                    known.foreign = Some(drains);
                }
                if known.running == 0 {
                    (known.newest, known.unknown) = (None, false);
                }
                known.running += 1;
                mine.push(thing);
            }
            was_empty
        };
        if was_empty
            && !mine.is_empty()
            && let Some(wake) = &*lock(&self.wake)
        {
            wake();
        }
        OwnChange {
            changes: Arc::clone(self),
            things: mine,
            fd: of.map(|(fd, _)| fd),
        }
    }

    pub fn is_observed(&self) -> bool {
        self.observed.load(Ordering::SeqCst)
    }

    /// Called before the inode of a descriptor is changed.
    pub(super) fn inode(self: &Arc<Self>, fd: &LinuxFd) -> Option<OwnChange> {
        if !self.is_observed() {
            return None;
        }
        let before = InodeState::of(fd);
        let thing = before.map(|before| Thing::Inode(before.inode));
        let of = before.filter(|_| !fd.is_remote());
        Some(self.list([thing], of.map(|before| (fd.clone(), before))))
    }

    /// Called before a name is made or removed.
    pub(super) fn name(self: &Arc<Self>, dir: &LinuxFd, name: &[u8]) -> Option<OwnChange> {
        self.begin(|| [name_of((dir, name))])
    }

    /// Called before the name of the inode `moved` is changed.
    pub(super) fn rename(
        self: &Arc<Self>,
        from: (&LinuxFd, &[u8]),
        to: (&LinuxFd, &[u8]),
        moved: Option<InodeId>,
    ) -> Option<OwnChange> {
        self.begin(|| [name_of(from), name_of(to), moved.map(Thing::Inode)])
    }

    /// Called before an inode gets another name.
    pub(super) fn link(
        self: &Arc<Self>,
        fd: &LinuxFd,
        dir: &LinuxFd,
        name: &[u8],
    ) -> Option<OwnChange> {
        self.begin(|| [InodeId::of(fd).map(Thing::Inode), name_of((dir, name))])
    }
}

fn name_of((dir, name): (&LinuxFd, &[u8])) -> Option<Thing> {
    Some(Thing::Name(InodeId::of(dir)?, name.into()))
}

/// A change of this process under way, which is over when this is dropped.
#[derive(Debug)]
#[must_use]
pub(super) struct OwnChange {
    changes: Arc<OwnChanges>,
    things: Vec<Thing>,
    /// The descriptor of the inode that is changed, if the time of its last change says who made it.
    fd: Option<LinuxFd>,
}

impl Drop for OwnChange {
    fn drop(&mut self) {
        let after = self.fd.as_ref().and_then(InodeState::of);
        let mut table = lock(&self.changes.table);
        let drains = table.drains;
        for thing in &self.things {
            if let Some(known) = table.known.get_mut(thing) {
                known.running = known.running.saturating_sub(1);
                known.ended = drains;
                // Of calls that overlap, the one that ends last need not have been the last to look.
                let newer = |after: &InodeState| {
                    (known.newest).is_none_or(|known| known.changed < after.changed)
                };
                known.unknown |= after.is_none();
                known.newest = after.filter(newer).or(known.newest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;
    use crate::linux::LinuxDisk;

    #[test]
    fn a_change_stands_until_the_drain_that_began_after_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let root = LinuxDisk::open(folder.path()).unwrap().root();
        let own = Arc::new(OwnChanges::default());
        assert!(own.name(&root, b"a").is_none(), "nobody observes");
        own.observe(true);
        let dir = InodeId::of(&root).unwrap();
        let change = own.name(&root, b"a").unwrap();
        let first = own.begin_drain();
        assert!(own.end_drain(first), "it runs");
        let second = own.begin_drain();
        drop(change);
        assert!(own.is_name(dir, b"a"));
        assert!(!own.is_name(dir, b"b"));
        assert!(own.end_drain(second), "it ended while events were read");
        let third = own.begin_drain();
        assert!(own.is_name(dir, b"a"), "its events may be among these");
        assert!(!own.end_drain(third));
        assert!(own.is_empty());
    }

    #[test]
    fn an_entry_in_memory_is_found_without_a_wait() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("f"), b"").unwrap();
        let root = LinuxDisk::open(folder.path()).unwrap().root();
        let there = InodeState::at(&root, b"f");
        assert!(there.is_some());
        assert_eq!(InodeState::cached_at(&root, b"f"), there);
        assert_eq!(InodeState::cached_at(&root, b"g"), None);
    }

    #[test]
    fn a_change_of_another_program_after_ours_is_not_ours() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, b"1").unwrap();
        let disk = LinuxDisk::open(folder.path()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let who = crate::Identity::Service;
        let how = crate::disk::OpenHow::default();
        let file = runtime.block_on(disk.open_at(&who, &disk.root(), b"f", how));
        let file = file.unwrap();
        let own = Arc::new(OwnChanges::default());
        own.observe(true);
        let state = || InodeState::of(&file).unwrap();
        // More than the tick of any kernel's clock.
        let write = |text: &str| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            std::fs::write(&path, text).unwrap();
        };
        let change = own.inode(&file);
        write("ours");
        assert!(own.is_inode(state()), "it runs");
        drop(change);
        assert!(own.is_inode(state()));
        let change = (own.inode(&file), own.inode(&file));
        write("ours");
        drop(change.0);
        write("ours, too");
        drop(change.1);
        assert!(own.is_inode(state()));
        // Our own change of its names changes the time, too.
        std::thread::sleep(std::time::Duration::from_millis(20));
        std::fs::hard_link(&path, folder.path().join("g")).unwrap();
        assert!(own.is_inode(state()));
        drop(own.inode(&file));
        write("theirs");
        assert!(!own.is_inode(state()));
        // It is not forgotten by another change of ours, until its events have been read.
        drop(own.inode(&file));
        assert!(!own.is_inode(state()));
        let first = own.begin_drain();
        drop(own.inode(&file));
        assert!(own.end_drain(first));
        assert!(own.is_inode(state()));
    }

    #[test]
    fn a_new_file_with_the_number_of_a_removed_one_is_another() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("f"), b"").unwrap();
        let disk = LinuxDisk::open(folder.path()).unwrap();
        let how = crate::disk::OpenHow::default();
        let root = disk.root();
        let open = disk.open_at(&crate::Identity::Service, &root, b"f", how);
        let file = crate::testing::block_on(open).unwrap();
        let own = Arc::new(OwnChanges::default());
        own.observe(true);
        let now = InodeState::of(&file).unwrap();
        let (born, changed) = (now.born.0 - 10, now.changed.0 - 5);
        let removed = InodeState {
            born: (born, 0),
            changed: (changed, 0),
            ..now
        };
        let thing = Thing::Inode(now.inode);
        let known = KnownChange {
            newest: Some(removed),
            ..KnownChange::default()
        };
        lock(&own.table).known.insert(thing, known);
        assert!(own.is_inode(removed));
        assert!(!own.is_inode(now), "another program made it");
        drop(own.inode(&file));
        assert!(own.is_inode(now), "its first change is ours");
    }

    #[test]
    fn a_full_table_takes_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let root = LinuxDisk::open(folder.path()).unwrap().root();
        let own = Arc::new(OwnChanges::default());
        own.observe(true);
        for at in 0..KNOWN_MAX + 10 {
            drop(own.name(&root, at.to_string().as_bytes()));
        }
        assert_eq!(own.len(), KNOWN_MAX);
        let drain = own.begin_drain();
        assert!(!own.end_drain(drain));
    }
}
