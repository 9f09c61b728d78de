//! The engine's view of names: their folding (that of the file system), claims on them, and their moves.
//!
//! **Claims** allow one CREATE of a new file at a time for each name. A new file is on disk before the engine can know
//! its inode. The request that creates it holds the claim of the name from the lookup until the open is in the tables,
//! and an open that finds the file on disk waits for the end of the claim, so that no other client opens the new file
//! in between and causes its creator to be refused. A claim is held over disk operations but never while waiting for a
//! break: it is released first. Names are claimed in their directory, which every share and every path leads to.
//!
//! **Moves**: a CREATE looks a name up on disk and is granted by inode later. In between, the engine may have
//! forgotten that the name was being removed, or have moved the paths of all opens below a directory. So each such
//! change has a number, which it leaves with its inode (in one of a few slots: unrelated inodes share one) or, where a
//! directory moved, for everything. A request that was granted an open and finds a number later than that of its
//! lookup must look the name up again. A change is on disk before it gets its number, and has its number before the
//! engine admits the requests it has held back, or moves the paths that it knows.

use std::collections::{BTreeMap, btree_map::Entry};
use std::sync::atomic::{AtomicU64, Ordering};

use smb_wire::Status;
use vfs::{FileKey, Lookup, Node, fold};

use super::files::{Files, SHARDS, shard};
use super::inode::Inode;
use super::paths::{ShareId, SharePath};
use super::types::{Effects, Link, OpenId, Outcome, Place, Step, Waiter};

impl Place {
    /// The place of a node's state in the engine.
    pub fn of(node: &impl Node) -> Self {
        Self {
            key: node.key(),
            stream: node.stream().map(|name| fold(name).into()),
        }
    }

    /// The place of a named stream's state.
    #[must_use]
    pub fn of_stream(file: FileKey, name: &str) -> Self {
        Self {
            key: file,
            stream: Some(fold(name).into()),
        }
    }
}

impl Link {
    /// A name in a directory.
    #[must_use]
    pub fn new(parent: FileKey, name: &str) -> Self {
        Self {
            parent,
            name: fold(name).into(),
        }
    }

    /// The name that was looked up.
    #[must_use]
    pub fn of<N: Node>(lookup: &Lookup<N>) -> Self {
        match &lookup.parent {
            None => Self {
                parent: FileKey::default(),
                name: "".into(),
            },
            Some(parent) => Self::new(parent.key(), &lookup.name),
        }
    }
}

impl SharePath {
    /// A path of a share.
    #[must_use]
    pub fn of(share: u32, names: &[String]) -> Self {
        Self::new(ShareId(share), names, fold)
    }

    /// The components in the form that the file system takes.
    #[must_use]
    pub fn to_names(&self) -> Vec<String> {
        self.names().iter().map(ToString::to_string).collect()
    }
}

/// Requests parked behind one claim, half of them for one user; one more gives INSUFFICIENT_RESOURCES.
pub(super) const PARKED_MAX: usize = 1_024;

/// The claimed names, with the requests that wait for them.
pub(super) type Claims = BTreeMap<Link, Vec<Waiter>>;

fn park(parked: &mut Vec<Waiter>, waiter: Waiter) -> Step {
    if !waiter.finds_room(parked, PARKED_MAX) {
        return Step::Refused(Status::INSUFFICIENT_RESOURCES);
    }
    parked.push(waiter);
    Step::Wait
}

impl Files {
    /// Claims a name. With `Step::Go` it is claimed until [`Files::release`]; with `Step::Wait`, `waiter` is woken when
    /// another try makes sense.
    pub fn claim(&self, link: &Link, waiter: Waiter) -> Step {
        match self.claims.lock().entry(link.clone()) {
            Entry::Occupied(mut known) => park(known.get_mut(), waiter),
            Entry::Vacant(free) => {
                free.insert(Vec::new());
                Step::Go
            }
        }
    }

    /// Whether any name is claimed.
    #[must_use]
    pub fn any_claimed(&self) -> bool {
        !self.claims.lock().is_empty()
    }

    /// Asks, after a lookup has found an object, whether the request that made it may still be on its way into the
    /// tables: with `Step::Wait`, `waiter` is woken when another lookup makes sense. Claims nothing.
    pub fn after_claim(&self, link: &Link, waiter: Waiter) -> Step {
        match self.claims.lock().get_mut(link) {
            Some(parked) => park(parked, waiter),
            None => Step::Go,
        }
    }

    /// Releases a claim; requests that wait for it try again, in the order of their arrival.
    pub fn release(&self, link: &Link) -> Effects {
        let mut effects = Effects::default();
        let parked = self.claims.lock().remove(link);
        for waiter in parked.unwrap_or_default() {
            effects.wake(waiter.id, Outcome::Retry);
        }
        effects
    }
}

/// A rename that happened on disk.
pub struct Renamed {
    /// The object that has the new name.
    pub key: FileKey,
    /// It is a directory.
    pub directory: bool,
    /// The name that it had.
    pub from: Link,
    /// The name that it has.
    pub to: Link,
    /// The open that renamed it.
    pub open: OpenId,
    /// The number under which the new name was announced.
    pub rename: OpenId,
}

/// The moment at which a request looked at the names on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look(u64);

#[derive(Debug)]
pub(super) struct Moves {
    number: AtomicU64,
    directories: AtomicU64,
    inodes: [AtomicU64; SHARDS],
}

impl Default for Moves {
    fn default() -> Self {
        Self {
            number: AtomicU64::new(0),
            directories: AtomicU64::new(0),
            inodes: [const { AtomicU64::new(0) }; SHARDS],
        }
    }
}

impl Moves {
    fn next(&self, slot: Option<&AtomicU64>) {
        let number = self.number.fetch_add(1, Ordering::SeqCst) + 1;
        if let Some(slot) = slot {
            slot.fetch_max(number, Ordering::SeqCst);
        }
    }
}

impl Files {
    /// Returns the present moment; to be called before a name is looked up.
    #[must_use]
    pub fn look(&self) -> Look {
        Look(self.moves.number.load(Ordering::SeqCst))
    }

    /// Whether an inode's name or path may have changed since a lookup. To be called when the open is in the tables,
    /// because later changes take the open into account.
    #[must_use]
    pub fn has_moved(&self, key: FileKey, since: Look) -> bool {
        let later = |slot: &AtomicU64| slot.load(Ordering::SeqCst) > since.0;
        later(&self.moves.directories) || self.moves.inodes.get(shard(key)).is_some_and(later)
    }

    /// Whether a directory has moved since then: a path through it may no longer be valid.
    #[must_use]
    pub fn has_directory_moved(&self, since: Look) -> bool {
        self.moves.directories.load(Ordering::SeqCst) > since.0
    }

    /// Called when a name of the inode was removed from the disk or belongs to another inode.
    pub fn name_gone(&self, key: FileKey) {
        self.moves.next(self.moves.inodes.get(shard(key)));
    }

    /// `open` stands for a request by which another file takes the place of this one. Until it is closed, opens of
    /// named streams wait: their handles would go on without a name, and with them what is written.
    pub fn replaces(&self, place: &Place, open: OpenId) {
        self.with(place.key, false, |inode| inode.replaces(open));
    }

    /// The name `link` of an inode now belongs to another file ([MS-FSCC] 2.4.43). An open of the inode by that
    /// name keeps a handle without a name: its close removes nothing, and its lease may be bound to the file that
    /// has the name. A deletion mark is dropped with the name.
    pub fn replaced(&self, key: FileKey, link: &Link) {
        self.name_gone(key);
        self.with(key, false, |inode| {
            let mut leases = self.leases.lock();
            for lease in inode.leases() {
                if let Some(bound) = leases.get_mut(&lease) {
                    bound.delete_on_close |= bound.place.key == key && bound.link == *link;
                }
            }
            inode.replaced(link);
        });
    }

    /// An open that would have deleted something of the inode was undone. If nothing else deletes any of it, its leases
    /// stay with it again ([MS-SMB2] 3.3.5.9.8, Lease.FileDeleteOnClose).
    pub(super) fn stays(&self, key: FileKey, inode: &Inode) {
        if inode.loses_anything() {
            return;
        }
        let mut leases = self.leases.lock();
        for lease in inode.leases() {
            if let Some(bound) = leases.get_mut(&lease) {
                bound.delete_on_close &= bound.place.key != key;
            }
        }
    }

    /// How many names of an inode are marked deleted and still on disk, whichever opens marked them.
    #[must_use]
    pub fn pending_links(&self, key: FileKey) -> usize {
        self.with(key, false, |inode| inode.pending_links())
            .unwrap_or(0)
    }

    /// Called when a directory has got another name on disk, before [`Files::arrived`].
    pub fn directory_moved(&self) {
        self.moves.next(Some(&self.moves.directories));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{
        Caching, Remove,
        tests::{Rig, key, link, path},
    };

    #[test]
    fn who_looked_before_a_change_looks_again() {
        let rig = Rig::new(Caching::None);
        let request = rig.request(1, super::super::tests::READ);
        let before = rig.files.look();
        assert!(!rig.files.has_moved(key(1), before));
        rig.open(&request);
        assert!(!rig.files.has_moved(key(1), before));
        rig.files
            .removed(&request.place, &Remove::Link(link(0, "1")), None);
        assert!(rig.files.has_moved(key(1), before));
        assert!(!rig.files.has_moved(key(2), before), "another inode");
        assert!(!rig.files.has_moved(key(1), rig.files.look()));
        let before = rig.files.look();
        let to = (&path("2"), &link(0, "2"));
        rig.files
            .renamed(key(1), (&request.path, &request.link), to);
        assert!(rig.files.has_moved(key(1), before));
        assert!(!rig.files.has_directory_moved(before));
        rig.files.directory_moved();
        assert!(rig.files.has_directory_moved(before));
        assert!(rig.files.has_moved(key(2), before), "everything below");
    }
}
