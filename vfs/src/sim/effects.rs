//! The effects of a change on an image, and the changes that survive a power loss.
//!
//! Every change to the live image is an [`Effect`]; it waits in an ordered list until a sync makes it durable or a
//! cut decides. The [`Profile`] says which effects a sync of one inode covers and which subsets may survive.
//!
//! Invariant: when an effect becomes durable, older waiting effects on the same slot are dropped, since applying
//! them later would bring the past back.
//!
//! Implicit times (a write moves the time of last write) are no effects: a full sync makes them durable, a cut loses
//! them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    image::{BLOCK, BLOCK_LEN, Block, Image, ROOT, SECTOR},
    rng::SimRng,
};
use crate::Timestamp;

/// Above this many waiting effects the older half is written back, as a kernel would.
/// Bounds the memory of overwritten blocks to 64 MiB.
const PENDING_MAX: usize = 1 << 14;
/// The durable image is swept of unreachable inodes when it has this many more inodes than the live one.
const SWEEP_SLACK: usize = 1024;

/// The changes that may survive a power loss, and those that a sync covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Profile {
    /// The weakest behaviour that POSIX permits: every effect survives independently of others. `fsync` of a file
    /// covers its data, size and attributes, never its name; only `fsync` of the directory covers names.
    #[default]
    PosixMin,
    /// Like ext4 and XFS as measured: metadata survives as a prefix of its order, and a sync
    /// that has metadata to commit commits all metadata before it.
    Journal,
    /// Like btrfs as measured: `fsync` of a file covers its own names too, those of the new directories above it, and
    /// those of a file whose name one of these took; `fsync` of a directory from which a name was removed covers all
    /// names and attributes. A truncated file keeps the rest of its last block on the disk, which is zeroed in memory
    /// when the file grows again.
    LogTree,
    /// Nothing is lost and nothing is tracked: a plain memory disk. A cut keeps everything.
    Untracked,
}

/// One change of one slot.
#[derive(Debug, Clone)]
pub(super) struct Effect {
    /// The inode whose own state it changes (for a name: the directory).
    pub(super) ino: u64,
    pub(super) edit: Edit,
}

/// The slot that changes, and what it holds then.
#[derive(Debug, Clone)]
pub(super) enum Edit {
    Page {
        number: u64,
        block: Block,
    },
    Size(u64),
    Mode(u32),
    Owner {
        uid: u32,
        gid: u32,
    },
    Times {
        accessed: Option<Timestamp>,
        written: Option<Timestamp>,
    },
    Xattr {
        name: Box<str>,
        value: Option<Arc<[u8]>>,
    },
    /// `about` is the inode that has the name, or had it if the name is removed.
    Name {
        name: Box<[u8]>,
        ino: Option<u64>,
        about: u64,
    },
}

impl Effect {
    fn is_page(&self) -> bool {
        matches!(self.edit, Edit::Page { .. })
    }

    /// Whether `self`, being newer, makes `old` meaningless.
    fn supersedes(&self, old: &Self) -> bool {
        let in_slot = match (&self.edit, &old.edit) {
            (Edit::Page { number, .. }, Edit::Page { number: n, .. }) => number == n,
            (Edit::Size(size), Edit::Page { number, .. }) => *number >= size.div_ceil(BLOCK),
            (Edit::Size(_), Edit::Size(_))
            | (Edit::Mode(_), Edit::Mode(_))
            | (Edit::Owner { .. }, Edit::Owner { .. }) => true,
            (Edit::Xattr { name, .. }, Edit::Xattr { name: n, .. }) => name == n,
            (Edit::Name { name, .. }, Edit::Name { name: n, .. }) => name == n,
            _ => false,
        };
        in_slot && self.ino == old.ino
    }
}

impl Image {
    /// Applies one change. Returns the change of allocated blocks.
    pub(super) fn apply(&mut self, Effect { ino, edit }: &Effect) -> i64 {
        let keeps_tails = self.keeps_tails;
        let Some(node) = self.get_mut(*ino) else {
            return 0;
        };
        match edit {
            Edit::Page { number, block } => return node.set_block(*number, block.clone()),
            Edit::Size(size) => return node.set_size(*size, keeps_tails),
            Edit::Mode(mode) => node.mode = *mode,
            Edit::Owner { uid, gid } => (node.uid, node.gid) = (*uid, *gid),
            Edit::Times { accessed, written } => {
                node.accessed = accessed.unwrap_or(node.accessed);
                node.written = written.unwrap_or(node.written);
            }
            Edit::Xattr { name, value } => {
                match value {
                    Some(value) => node.xattrs.insert(name.clone(), Arc::clone(value)),
                    None => node.xattrs.remove(name),
                };
            }
            Edit::Name { name, ino, .. } => {
                match ino {
                    Some(ino) => node.entries.insert(name.clone(), *ino),
                    None => node.entries.remove(name),
                };
            }
        }
        0
    }
}

/// The changes that a sync must cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    All,
    Data,
    /// `RWF_DSYNC` of these blocks (first, one past the last).
    Blocks(u64, u64),
}

/// The choice of the waiting effects that survive [`crate::sim::SimDisk::cut`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Only effects that syncs covered survive: the strictest legal loss.
    Nothing,
    /// Everything survives, as if the kernel had just written all back.
    Everything,
    /// A legal subset chosen by this seed, blocks torn at 512 bytes included.
    Seed(u64),
}

/// The durable image and the effects that are not in it yet.
#[derive(Debug, Clone, Default)]
pub(super) struct Durable {
    pub(super) profile: Profile,
    pub(super) image: Image,
    /// The waiting effects in the order of issue, each with a group: effects of one group are one journalled step.
    pub(super) pending: Vec<(u64, Effect)>,
}

impl Durable {
    pub(super) fn tracks(&self) -> bool {
        self.profile != Profile::Untracked
    }

    pub(super) fn push(&mut self, group: u64, effect: Effect) {
        if !self.tracks() {
            return;
        }
        self.pending.push((group, effect));
        if self.pending.len() > PENDING_MAX {
            for (_, effect) in self.pending.drain(..PENDING_MAX / 2) {
                self.image.apply(&effect);
            }
        }
    }

    fn persist(&mut self, mut covered: impl FnMut(&Effect) -> bool) {
        let mut rest: Vec<(u64, Effect)> = Vec::with_capacity(self.pending.len());
        for (group, effect) in std::mem::take(&mut self.pending) {
            if covered(&effect) {
                self.image.apply(&effect);
                let mut dropped = Vec::new();
                rest.retain(|(step, old)| {
                    let is_old = effect.supersedes(old);
                    if let (true, Edit::Name { ino, about, .. }) = (is_old, &old.edit) {
                        let (step, about, given) = (*step, *about, ino.is_some());
                        dropped.push(LostName { step, about, given });
                    }
                    !is_old
                });
                join_steps(&mut rest, &dropped);
            } else {
                rest.push((group, effect));
            }
        }
        self.pending = rest;
    }

    /// Makes the effects durable that a sync of `target` covers.
    pub(super) fn sync(&mut self, target: u64, scope: Scope) {
        match self.profile {
            Profile::Untracked => {}
            Profile::PosixMin => self.persist(|e| own(e, target, scope)),
            Profile::LogTree if self.was_left(target) => self.commit(target, scope, true),
            Profile::LogTree => {
                let logged = self.logged(target);
                self.persist(|e| {
                    own(e, target, scope)
                        || matches!(&e.edit, Edit::Name { about, .. } if logged.contains(about))
                });
            }
            Profile::Journal => {
                let mut effects = self.pending.iter().map(|(_, effect)| effect);
                let grows = effects.any(|e| e.ino == target && matches!(e.edit, Edit::Size(_)));
                let dir = self
                    .image
                    .get(target)
                    .is_some_and(super::image::Inode::is_dir);
                self.commit(target, scope, grows || dir || scope == Scope::All);
            }
        }
    }

    /// Commits a transaction: the effects that the sync of `target` covers itself and, with `metadata`, all names and
    /// attributes. They are applied in order, so that a page written after a truncation stays after it.
    fn commit(&mut self, target: u64, scope: Scope, metadata: bool) {
        self.persist(|e| match e.edit {
            Edit::Page { .. } => own(e, target, scope),
            Edit::Size(_) => metadata && e.ino == target,
            _ => metadata,
        });
    }

    /// Whether a name was removed from a directory and no sync has covered that since: btrfs then commits, by itself or
    /// because the back end requests it (`linux/removed.rs`).
    fn was_left(&self, dir: u64) -> bool {
        let mut effects = self.pending.iter().map(|(_, effect)| effect);
        effects.any(|e| e.ino == dir && matches!(e.edit, Edit::Name { ino: None, .. }))
    }

    /// Inodes whose names a log tree saves with a sync of `target`: its own, those of the directories above it that
    /// have no durable name yet (`tree-log.c` logs all new ancestors; without them the inode could not be found), and
    /// those of an inode that durably has a name which one of these took (it logs conflicting inodes; without that a
    /// replay would leave the inode without any name).
    fn logged(&self, target: u64) -> BTreeSet<u64> {
        let mut logged = BTreeSet::from([target]);
        let mut next = vec![target];
        while let Some(ino) = next.pop() {
            for (_, Effect { ino: dir, edit }) in &self.pending {
                let name = match edit {
                    Edit::Name {
                        name,
                        ino: Some(_),
                        about,
                    } if *about == ino => name,
                    _ => continue,
                };
                let above = self.is_unreachable(*dir).then_some(*dir);
                let names = self.image.get(*dir).map(|node| &node.entries);
                let former = names.and_then(|names| names.get(name)).copied();
                for more in above.into_iter().chain(former) {
                    if logged.insert(more) {
                        next.push(more);
                    }
                }
            }
        }
        logged
    }

    /// Whether no durable name leads to an inode.
    fn is_unreachable(&self, ino: u64) -> bool {
        let mut nodes = self.image.inodes.values();
        ino != ROOT && !nodes.any(|node| node.entries.values().any(|to| *to == ino))
    }

    /// Carries out a failed sync or write-back of `target`: each waiting block reaches the device or not, by chance,
    /// and the kernel counts all of them clean. With [`Profile::PosixMin`] the same applies to its attributes and, if
    /// it is a directory, its names, but not to its size, which is written again with every block beyond the old end.
    pub(super) fn lose(&mut self, target: u64, rng: &mut SimRng) {
        let all = self.profile == Profile::PosixMin;
        let mut rest = Vec::with_capacity(self.pending.len());
        let mut resized = false;
        for (group, effect) in std::mem::take(&mut self.pending) {
            let size = matches!(effect.edit, Edit::Size(_));
            resized |= size && effect.ino == target;
            let lost = effect.is_page() || (all && !size);
            if lost && effect.ino == target {
                // No block is applied before an earlier change of size.
                if rng.below(2) == 0 && !(resized && effect.is_page()) {
                    self.image.apply(&effect);
                }
            } else {
                rest.push((group, effect));
            }
        }
        self.pending = rest;
    }

    /// Writes everything back, as `syncfs` does.
    pub(super) fn sync_all(&mut self) {
        self.persist(|_| true);
    }

    /// The first inode, in order of issue, that has blocks waiting.
    pub(super) fn first_dirty(&self) -> Option<u64> {
        let mut effects = self.pending.iter().map(|(_, effect)| effect);
        effects.find(|e| e.is_page()).map(|e| e.ino)
    }

    /// The image after a power loss at this moment.
    pub(super) fn cut(&self, cut: Cut) -> Image {
        let mut image = self.image.clone();
        let mut rng = SimRng::new(if let Cut::Seed(seed) = cut { seed } else { 0 });
        let percent = match cut {
            Cut::Nothing => 0,
            Cut::Everything => 100,
            Cut::Seed(_) => {
                let choices = [0, 10, 50, 90, 100];
                choices.get(rng.index(choices.len())).copied().unwrap_or(0)
            }
        };
        let prefix = match cut {
            Cut::Nothing => 0,
            Cut::Everything => self.pending.len(),
            Cut::Seed(_) => self.group_boundary(rng.index(self.pending.len() + 1)),
        };
        // A device tears only the write that it is carrying out, not those that are done.
        let mut last: BTreeMap<(u64, u64), usize> = BTreeMap::new();
        for (index, (_, effect)) in self.pending.iter().enumerate() {
            if let Edit::Page { number, .. } = effect.edit {
                last.insert((effect.ino, number), index);
            }
        }
        for (index, (_, effect)) in self.pending.iter().enumerate() {
            let survives = if self.profile == Profile::PosixMin || effect.is_page() {
                rng.below(100) < percent
            } else {
                index < prefix
            };
            if !survives {
                continue;
            }
            if let Edit::Page {
                number,
                block: Block::Data(new),
            } = &effect.edit
                && let (Cut::Seed(_), ino, number) = (cut, effect.ino, *number)
                && last.get(&(ino, number)) == Some(&index)
                && rng.below(4) == 0
            {
                let old = image.get(ino).map_or(Block::Hole, |n| n.block(number));
                let block = Block::Data(Arc::new(torn(&old, new, &mut rng)));
                let edit = Edit::Page { number, block };
                image.apply(&Effect { ino, edit });
            } else {
                image.apply(effect);
            }
        }
        image.check();
        image
    }

    /// Moves a prefix so that it does not split a journalled step.
    fn group_boundary(&self, mut at: usize) -> usize {
        let group = |i: usize| self.pending.get(i).map(|(g, _)| *g);
        while at > 0 && at < self.pending.len() && group(at - 1) == group(at) {
            at -= 1;
        }
        at
    }

    /// Drops an inode from the durable image if the live image no longer has it and no waiting or durable name leads to
    /// it.
    pub(super) fn sweep(&mut self, live: &Image) {
        if self.image.inodes.len() <= 2 * live.inodes.len() + SWEEP_SLACK {
            return;
        }
        let mut named: BTreeSet<u64> = BTreeSet::from([ROOT]);
        named.extend(
            self.image
                .inodes
                .values()
                .flat_map(|n| n.entries.values().copied()),
        );
        named.extend(self.pending.iter().filter_map(|(_, e)| match e.edit {
            Edit::Name { about, .. } => Some(about),
            _ => None,
        }));
        self.image
            .inodes
            .retain(|ino, _| named.contains(ino) || live.inodes.contains_key(ino));
    }
}

/// A waiting change of a name that a later sync of the name has made meaningless.
struct LostName {
    step: u64,
    about: u64,
    /// The change gave the name to the inode; otherwise it took it away.
    given: bool,
}

/// Makes one step of all between two, of which one gave an inode a name that a later sync has taken, and the other took
/// it away. A commit between them would have made that name durable, and the sync would have covered the inode's other
/// names (`Durable::logged`); now it would leave the inode without any.
fn join_steps(pending: &mut [(u64, Effect)], dropped: &[LostName]) {
    for (index, first) in dropped.iter().enumerate().filter(|(_, one)| one.given) {
        let moved = first.about;
        let mut later = dropped.iter().skip(index);
        let Some(last) = later.find(|one| one.about == moved && !one.given) else {
            continue;
        };
        let steps = first.step..=last.step;
        let names =
            |effect: &Effect| matches!(effect.edit, Edit::Name { about, .. } if about == moved);
        let between = || pending.iter().filter(|(step, _)| steps.contains(step));
        if between().any(|(_, effect)| names(effect)) {
            let between = pending.iter_mut().filter(|(step, _)| steps.contains(step));
            between.for_each(|(step, _)| *step = last.step);
        }
    }
}

/// Whether a sync of `target` itself covers an effect.
fn own(effect: &Effect, target: u64, scope: Scope) -> bool {
    let is_covered = match effect.edit {
        Edit::Page { number, .. } => match scope {
            Scope::Blocks(first, end) => (first..end).contains(&number),
            _ => true,
        },
        Edit::Size(_) | Edit::Name { .. } => true,
        _ => scope == Scope::All,
    };
    is_covered && effect.ino == target
}

/// A block of which some sectors are new and the others old.
fn torn(old: &Block, new: &[u8; BLOCK_LEN], rng: &mut SimRng) -> [u8; BLOCK_LEN] {
    let mut bytes = match old {
        Block::Data(page) => **page,
        _ => [0; BLOCK_LEN],
    };
    for (out, sector) in bytes.chunks_mut(SECTOR).zip(new.chunks(SECTOR)) {
        if rng.below(2) == 0 {
            out.copy_from_slice(sector);
        }
    }
    bytes
}
