//! The interface of the engine: all open inodes, their leases, paths and watchers.
//!
//! Owns the tables and their locks. Inodes are spread over shards; a shard's lock is held for one synchronous call on
//! one inode. The lock order is shard, leases, paths, watches. Two shards are never locked at once, and no lock is held
//! between two calls.
//!
//! Every method that changes something returns [`Effects`] to carry out after it.

use std::collections::{BTreeMap, btree_map::Entry};
use std::sync::atomic::{AtomicU64, AtomicUsize};

use smb_wire::Status;
use smb_wire::ids::{Guid, LeaseKey};
use vfs::{FileKey, VfsError};

use crate::locks::Mutex;

use super::Deleter;

use super::breaks::Bound;
use super::caching::{Cause, Site};
use super::claims::Claims;
use super::inode::Inode;
use super::names::{Moves, Paths};
use super::share_path::SharePath;
use super::types::{
    Actor, CacheGrant, CacheRequest, Closed, CountedUser, Decision, Effects, Link, OpenId,
    OpenRequest, Owner, Place, Remove, WaiterId,
};
use super::watch::Watches;

/// How many locks the inodes are spread over.
pub(super) const SHARDS: usize = 64;

pub(super) type Shard = BTreeMap<FileKey, Inode>;

/// The engine.
#[derive(Debug)]
pub struct Files {
    pub(super) shards: Vec<Mutex<Shard>>,
    pub(super) leases: Mutex<BTreeMap<(Guid, LeaseKey), Bound>>,
    pub(super) paths: Mutex<Paths>,
    pub(super) watches: Mutex<Watches>,
    pub claims: Claims,
    pub(super) moves: Moves,
    /// How many watchers there are: without any, changes take no lock.
    pub(super) watchers: AtomicUsize,
    tickets: AtomicU64,
}

/// Which shard an inode is in.
pub(super) fn shard(key: FileKey) -> usize {
    // Fibonacci hashing; keys are inode numbers, which clients do not choose.
    let mixed = (key.ino ^ key.fs.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as usize % SHARDS
}

impl Default for Files {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            leases: Mutex::default(),
            paths: Mutex::default(),
            watches: Mutex::default(),
            claims: Claims::default(),
            moves: Moves::default(),
            watchers: AtomicUsize::new(0),
            tickets: AtomicU64::new(1),
        }
    }
}

impl Files {
    /// Runs `act` on an inode under its lock; afterwards an inode without opens is forgotten. An unknown inode gives
    /// the default.
    pub(super) fn with<T: Default>(&self, key: FileKey, act: impl FnOnce(&mut Inode) -> T) -> T {
        self.with_inode(key, false, act).unwrap_or_default()
    }

    /// As [`Files::with`], but an unknown inode gives `None`, or is made first with `create`.
    pub(super) fn with_inode<T>(
        &self,
        key: FileKey,
        create: bool,
        act: impl FnOnce(&mut Inode) -> T,
    ) -> Option<T> {
        let mut shard = self.shards.get(shard(key))?.lock();
        if create {
            shard.entry(key).or_default();
        }
        let inode = shard.get_mut(&key)?;
        let answer = act(inode);
        if inode.is_empty() {
            shard.remove(&key);
        }
        Some(answer)
    }

    /// A place where caching may be granted or broken.
    pub(super) fn site<'a>(&'a self, place: &'a Place) -> Site<'a> {
        let tickets = &self.tickets;
        Site { place, tickets }
    }

    /// Judges an open and, if nothing is in its way, puts it into the tables in the same step.
    /// [`OpenRequest`] lists the facts that must be known before.
    pub fn open(&self, request: &OpenRequest) -> (Decision, Effects) {
        let mut effects = Effects::default();
        let site = self.site(&request.place);
        let decision = self.with_inode(request.place.key, true, |inode| {
            let of = (&request.place, &request.link);
            if self.lease_elsewhere(request.client, &request.cache, Some(of)) {
                return Decision::Conflict(Status::INVALID_PARAMETER);
            }
            match inode.open(request, site, &mut effects) {
                Decision::Granted(granted) => {
                    self.enter(request, matches!(granted.cache, CacheGrant::Lease(_)));
                    Decision::Granted(granted)
                }
                Decision::MustBreak if !inode.park(request.waiter) => {
                    Decision::Conflict(Status::INSUFFICIENT_RESOURCES)
                }
                decision => decision,
            }
        });
        let decision = decision.unwrap_or(Decision::Conflict(Status::INSUFFICIENT_RESOURCES));
        (decision, effects)
    }

    /// The reason to refuse an open of a file that does not exist yet: the lease key belongs to another file or, for a
    /// stream, the state of its file forbids it. Callers ask before they make the file, so that none is made for a
    /// request that is then refused. SHARING_VIOLATION means that the name is reserved for a rename, and the request
    /// can wait for its end: [`Files::after_stream_rename`].
    pub fn refusal_of_new(
        &self,
        client: Guid,
        cache: &CacheRequest,
        stream: Option<(&Place, &Link, CountedUser)>,
    ) -> Option<Status> {
        let of = stream.map(|(place, link, _)| (place, link));
        if self.lease_elsewhere(client, cache, of) {
            return Some(Status::INVALID_PARAMETER);
        }
        let (place, link, user) = stream?;
        self.with(place.key, |inode| {
            let reserved = inode.is_reserved(&place.stream);
            let refusal = inode.refusal(&place.stream, link, user);
            refusal.or(reserved.then_some(Status::SHARING_VIOLATION))
        })
    }

    /// [MS-SMB2] 3.3.5.9.8: a lease key stays with its file, unless that is to be deleted. `of` is the place and name
    /// of the object to open, if it exists already.
    fn lease_elsewhere(
        &self,
        client: Guid,
        cache: &CacheRequest,
        of: Option<(&Place, &Link)>,
    ) -> bool {
        let CacheRequest::Lease(lease) = cache else {
            return false;
        };
        let leases = self.leases.lock();
        leases
            .get(&(client, lease.lease_key))
            .is_some_and(|bound| of != Some((&bound.place, &bound.link)) && !bound.delete_on_close)
    }

    /// Runs `act` on each lease that is held on an inode.
    pub(super) fn each_lease(
        &self,
        inode: &Inode,
        mut act: impl FnMut((Guid, LeaseKey), &mut Bound),
    ) {
        let mut leases = self.leases.lock();
        for lease in inode.leases() {
            if let Some(bound) = leases.get_mut(&lease) {
                act(lease, bound);
            }
        }
    }

    /// Enters a granted open into the tables that span inodes.
    pub(super) fn enter(&self, request: &OpenRequest, leased: bool) {
        if let (CacheRequest::Lease(lease), true) = (request.cache, leased) {
            let bound = Bound::new(request);
            let mut leases = self.leases.lock();
            match leases.entry((request.client, lease.lease_key)) {
                Entry::Occupied(mut known) => known.get_mut().move_to(bound),
                Entry::Vacant(free) => {
                    free.insert(bound);
                }
            }
        }
        self.paths
            .lock()
            .insert(request.open, request.path.clone(), request.place.clone());
    }

    /// Records whether an open file may lack FILE_ATTRIBUTE_ARCHIVE, so that the next change sets it. The caller must
    /// call this after the attribute was cleared or seen to be clear, and before it is set.
    pub fn lacks_archive(&self, key: FileKey, lacks: bool) {
        self.with(key, |inode| inode.lacks_archive(lacks));
    }

    /// Whether a file that is open, or of which a name is being removed, is known to lack FILE_ATTRIBUTE_ARCHIVE.
    pub fn is_without_archive(&self, key: FileKey) -> bool {
        self.with(key, |inode| inode.lacks_archive)
    }

    /// Whether changes through an open leave times as they are; see [`super::Quick::keeps_times`].
    pub fn keep_times(&self, place: &Place, open: OpenId, keeps: bool) {
        self.with(place.key, |inode| {
            if let Some((stream, open)) = inode.stream_of(open) {
                stream.count_time_keeper(open, keeps);
            }
        });
    }

    /// Closes an open: its locks, its caching, its watch. Requests that wait on it end. If its name is to be removed,
    /// its path stays known ([`Files::leaving`]) until [`Files::removed`].
    ///
    /// Its FILE_DELETE_ON_CLOSE acts on behalf of `deletes`; with `None` it does not act, because the disk refused the
    /// open after the engine had granted it.
    pub fn close(&self, place: &Place, open: OpenId, deletes: Option<&Deleter>) -> Closed {
        let closing = self.with(place.key, |inode| {
            let closing = inode.close(open, deletes, self.site(place));
            if let Some(Owner::Lease(client, key)) = closing.released {
                let mut leases = self.leases.lock();
                let bound = leases.get_mut(&(client, key));
                if bound.is_some_and(|bound| !bound.release(place)) {
                    leases.remove(&(client, key));
                }
            }
            if closing.undone {
                self.stays(place.key, inode);
            }
            closing
        });
        let mut closed = closing.closed;
        if closed.remove.is_some() {
            self.paths.lock().leave(open);
        } else {
            self.paths.lock().remove(open);
        }
        self.close_watch(open, &mut closed.effects);
        if closing.marked {
            self.directory_deleted(place.key, &mut closed.effects);
        }
        closed
    }

    /// Announces that the caller removes a name or a stream that nobody has open: until [`Files::removed`] no new open
    /// of it is allowed. Returns false if somebody has it open; then it stays.
    #[must_use]
    pub fn take_out(&self, place: &Place, remove: &Remove) -> bool {
        self.with_inode(place.key, true, |inode| {
            inode.take_out(&place.stream, remove)
        })
        .unwrap_or(false)
    }

    /// The caller reports that it carried out a removal: the one that the close of the open `by` returned, or one that
    /// the caller took over itself, in which case it does not matter whether it failed.
    pub fn removed(&self, place: &Place, remove: &Remove, by: Option<OpenId>) {
        self.removal_ended(place, remove, by, Ok(true));
    }

    /// As [`Self::removed`], with the outcome: whether the name is gone.
    pub fn removal_ended(
        &self,
        place: &Place,
        remove: &Remove,
        by: Option<OpenId>,
        outcome: Result<bool, VfsError>,
    ) {
        self.name_gone(place.key);
        self.with(place.key, |inode| {
            inode.removal_ended(&place.stream, remove, by, outcome)
        });
        if let Some(open) = by {
            self.paths.lock().remove(open);
        }
    }

    /// The path of an open whose close returned a removal: the directories above it may have been moved since.
    pub fn leaving(&self, open: OpenId) -> Option<SharePath> {
        self.paths.lock().leaving(open)
    }

    /// Marks the link or stream of `open` for deletion, on behalf of `who`. The caller must first call
    /// [`Files::operation`] with [`Operation::Delete`](super::Operation::Delete). A client that has cached a handle
    /// since, which would keep the name, is asked for it. Watchers of a directory end with DELETE_PENDING.
    ///
    /// # Errors
    /// FILE_CLOSED for an unknown open.
    pub fn set_delete_pending(
        &self,
        place: &Place,
        open: OpenId,
        posix: bool,
        who: &Deleter,
    ) -> Result<Effects, Status> {
        let mut effects = Effects::default();
        let site = self.site(place);
        self.with_inode(place.key, false, |inode| {
            inode.set_delete_pending(open, posix, who)?;
            inode.operate(Actor::Open(open), Cause::Handle, site, &mut effects);
            // A lease of a file that is to be deleted may be bound again elsewhere.
            self.each_lease(inode, |_, bound| {
                bound.delete_on_close |= bound.place == *place;
            });
            Ok(())
        })
        .ok_or(Status::FILE_CLOSED)??;
        if place.stream.is_none() {
            self.directory_deleted(place.key, &mut effects);
        }
        Ok(effects)
    }

    /// FileDispositionInformationEx with FILE_DISPOSITION_ON_CLOSE. Only an open that asked for FILE_DELETE_ON_CLOSE
    /// knows the flag ([MS-FSA] 2.1.5.15.4). `posix` says whether the name goes with that open ([MS-FSCC] 2.4.12).
    ///
    /// # Errors
    /// FILE_CLOSED for an unknown open.
    pub fn set_delete_on_close(
        &self,
        place: &Place,
        open: OpenId,
        on: bool,
        posix: bool,
    ) -> Result<(), Status> {
        self.with_open(place, open, |open| {
            (open.delete_on_close, open.posix_on_close) = (on, posix);
            Some(())
        })
        .ok_or(Status::FILE_CLOSED)
    }

    /// Whether a named stream is itself marked for deletion, or is being removed.
    pub fn is_stream_deleted(&self, place: &Place) -> bool {
        self.with_stream(place, |stream| stream.deletion.is_some())
    }

    /// Whether the name of an open is gone, or a close is removing it: no path leads to it any more.
    pub fn is_unlinked(&self, place: &Place, open: OpenId) -> bool {
        self.with_open(place, open, |open| open.unlinked.is_some())
    }

    /// Whether an inode is marked for deletion by any of its names, or a close is removing it:
    /// nothing is added to such a directory ([MS-FSA] 2.1.5.1.1).
    pub fn is_to_be_deleted(&self, key: FileKey) -> bool {
        self.with(key, |inode| inode.is_to_be_deleted())
    }

    /// Whether this name of an inode is marked for deletion, or a close is removing it.
    pub fn is_going(&self, key: FileKey, link: &Link) -> bool {
        self.with(key, |inode| inode.is_going(link))
    }

    /// Whether the close of the open `by` is removing a name that the inode still has, as far as the engine knows.
    pub fn is_removed_by(&self, key: FileKey, by: OpenId) -> bool {
        self.with(key, |inode| inode.is_removed_by(by))
    }

    /// How many opens an inode has: by one of its names, or by all.
    pub fn count(&self, key: FileKey, link: Option<&Link>) -> usize {
        self.with(key, |inode| {
            let links = inode.opens.values().map(|open| &open.link);
            links.filter(|it| link.is_none_or(|of| *it == of)).count()
        })
    }

    /// Whether a named stream of the inode is open: its file cannot be renamed then.
    pub fn has_open_streams(&self, key: FileKey) -> bool {
        self.with(key, |inode| {
            inode.opens.values().any(|open| open.stream.is_some())
        })
    }

    /// The named streams of the inode that somebody has open.
    pub fn open_streams(&self, key: FileKey) -> Vec<Place> {
        let names = self.with(key, |inode| inode.open_streams());
        let place = |stream| Place { key, stream };
        names.into_iter().map(place).collect()
    }

    /// Whether anybody has the stream open.
    pub fn is_stream_open(&self, place: &Place) -> bool {
        self.with(place.key, |inode| inode.is_stream_open(&place.stream))
    }

    /// The link that an open is of ([MS-FSA] 2.1.1.6), wherever that was moved; none if the name is gone.
    pub fn link_of(&self, place: &Place, open: OpenId) -> Option<Link> {
        self.with_open(place, open, |open| {
            (open.unlinked.is_none()).then(|| open.link.clone())
        })
    }

    /// The directory that holds the link of an open.
    pub fn parent_of(&self, place: &Place, open: OpenId) -> Option<FileKey> {
        self.link_of(place, open).map(|link| link.parent)
    }

    /// The path an open has now.
    pub fn path_of(&self, open: OpenId) -> Option<SharePath> {
        self.paths.lock().path_of(open)
    }

    /// The opens of a path, of all its streams.
    pub fn opens_at(&self, path: &SharePath) -> Vec<OpenId> {
        self.paths.lock().at(path)
    }

    /// Withdraws a parked request, except a blocked lock. Returns true if it was still parked: then no wake-up comes
    /// and the caller answers CANCELLED. With false its wake-up is under way, or it was never parked here.
    pub fn cancel(&self, place: &Place, waiter: WaiterId) -> bool {
        self.with(place.key, |inode| {
            let before = inode.waiting.len();
            inode.waiting.retain(|parked| parked.id != waiter);
            before != inode.waiting.len()
        })
    }

    /// Lease.FileDeleteOnClose: the lease's file is to be deleted.
    pub fn is_lease_to_be_deleted(&self, client: Guid, key: LeaseKey) -> bool {
        let leases = self.leases.lock();
        let bound = leases.get(&(client, key));
        bound.is_some_and(|bound| bound.delete_on_close)
    }
}

#[cfg(test)]
impl Files {
    pub(super) fn is_empty(&self) -> bool {
        self.shards.iter().all(|shard| shard.lock().is_empty())
            && self.leases.lock().is_empty()
            && self.paths.lock().is_empty()
            && self.watchers.load(std::sync::atomic::Ordering::SeqCst) == 0
            && self.claims.is_empty()
    }
}
