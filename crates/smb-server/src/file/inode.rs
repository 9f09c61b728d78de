//! One inode that is open: its opens, their streams, and the links and streams marked for deletion.
//!
//! Owns the order in which an open is judged ([MS-FSA] 2.1.5.1.2: deletion, BATCH oplocks, share
//! mode, HANDLE caching, WRITE caching) and the removal that a close requires (2.1.5.5). An inode is used under the
//! lock of its shard and knows no other inode.
//!
//! Invariants: every open is on a stream that exists here; a stream exists here while it has
//! opens or a removal is under way; a holder has at least one open.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Deleter;
use smb_wire::Status;
use smb_wire::ids::{Guid, LeaseKey};

use super::caching::{self, Around, Cause, Holder, Site};
use super::contention::{ShareCounts, ShareMode, is_lease_stat, is_oplock_stat};
use super::lock_sequences::LockSequences;
use super::locks::RangeLocks;
use super::quick::{Quick, QuickState, Writer};
use super::small_map::SmallMap;
use super::types::{
    CacheGrant, CacheRequest, CountedUser, Decision, Effects, Going, Granted, LeaseContext,
    LeaseState, Link, OpenId, OpenRequest, Outcome, Owner, Step, StreamName, WH, Waiter,
};

/// Opens per inode; one more gives TOO_MANY_OPENED_FILES.
pub(super) const OPENS_MAX: usize = 65_536;
/// Opens of one user per inode, so that other users find room.
pub(super) const OPENS_PER_USER_MAX: usize = OPENS_MAX / 2;
/// Requests parked behind breaks per inode, half of them for one user; one more gives INSUFFICIENT_RESOURCES.
pub(super) const WAITING_MAX: usize = 4_096;

/// The deletion of a link or stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Deletion {
    /// The name is removed with the last handle, or with the one that asked for POSIX semantics, on behalf of `who`,
    /// the client that marked it last, because the client that closes last need not have the right to delete it.
    Pending {
        posix: Option<OpenId>,
        who: Deleter,
        plain: Option<Plain>,
    },
    /// The close of the open `by` is removing the name and has not reported back; with `None`, a request that did not
    /// have it open is removing it ([`Inode::take_out`]).
    Removing {
        by: Option<OpenId>,
        gone: Going,
        plain: Option<Plain>,
    },
}

/// The last open that asked for a deletion without POSIX semantics, and its client. Such a deletion is still to be
/// carried out with the last handle where a removal with POSIX semantics has failed.
pub(super) type Plain = (OpenId, Deleter);

#[derive(Debug)]
pub(super) struct EngineOpen {
    pub(super) stream: StreamName,
    pub(super) link: Link,
    pub(super) mode: ShareMode,
    pub(super) delete_on_close: bool,
    /// Its FILE_DELETE_ON_CLOSE has POSIX semantics. A restart of the server forgets it.
    pub(super) posix_on_close: bool,
    /// It set the delete disposition ([MS-FSA] ChangeNotifyDirectoryMarkedDeleted).
    pub(super) marked_deleted: bool,
    /// Its name is gone, so its close removes nothing: the close of this open removes or has removed the name. It is
    /// the open itself if another file has the name.
    pub(super) unlinked: Option<OpenId>,
    /// It was granted and is just emptying the file, which removes the named streams.
    pub(super) empties: bool,
    /// It stands for a rename or link by which another file takes this one's place.
    pub(super) replaces: bool,
    /// Changes through it leave times of the file as they are.
    pub(super) keeps_times: bool,
    /// The group of its oplock or lease; 0 for none.
    pub(super) group: u64,
    /// The user for whom it is counted; no user for one that was restored.
    pub(super) user: CountedUser,
    pub(super) sequences: LockSequences,
    /// It may change data: counted in [`QuickState`] as long as it is open.
    pub(super) _writer: Option<Writer>,
}

#[derive(Debug, Default)]
pub(super) struct Stream {
    pub(super) locks: RangeLocks,
    pub(super) shares: ShareCounts,
    pub(super) holders: Vec<Holder>,
    pub(super) deletion: Option<Deletion>,
    /// It is being renamed, or a stream is being renamed to its name; see [`super::StreamRename`].
    pub(super) renaming: bool,
    pub(super) quick: Arc<QuickState>,
}

impl Stream {
    /// The oplock or lease of an open.
    pub(super) fn holder_of(&self, open: OpenId) -> Option<&Holder> {
        self.holders.iter().find(|one| one.opens.contains(&open))
    }

    /// Records whether changes through an open leave times as they are.
    pub(super) fn count_time_keeper(&self, open: &mut EngineOpen, keeps: bool) {
        let keepers = &self.quick.time_keepers;
        match (std::mem::replace(&mut open.keeps_times, keeps), keeps) {
            (false, true) => keepers.fetch_add(1, Ordering::SeqCst),
            (true, false) => keepers.fetch_sub(1, Ordering::SeqCst),
            _ => return,
        };
    }

    /// Updates the state that READ and WRITE check without the lock.
    pub(super) fn publish(&self) {
        let quick = &self.quick;
        quick.ranges.store(self.locks.count(), Ordering::SeqCst);
        let mut caching = self.holders.iter().filter(|one| !one.state.is_empty());
        let cachers = match (caching.next(), caching.next()) {
            (None, _) => 0,
            // A level II oplock is broken by its holder's own writes too.
            (Some(only), None) if !only.is_oplock() || only.state.intersects(WH) => only.group,
            _ => QuickState::SEVERAL,
        };
        quick.cachers.store(cachers, Ordering::SeqCst);
    }

    /// Breaks every holder that `cause` concerns. `spared` selects the actor's own group. Returns true if the cause
    /// must wait.
    pub(super) fn contend(
        &mut self,
        cause: Cause,
        spared: impl Fn(&Holder) -> bool,
        site: Site<'_>,
        out: &mut Effects,
    ) -> bool {
        let mut waits = false;
        for holder in &mut self.holders {
            if !spared(holder) {
                waits |= holder.contend(cause, site, out);
            }
        }
        self.publish();
        waits
    }
}

#[derive(Debug, Default)]
pub(super) struct Inode {
    /// The opens are boxed, so that [`SmallMap`] moves only small entries.
    pub(super) opens: SmallMap<OpenId, Box<EngineOpen>>,
    /// Boxed as well.
    pub(super) streams: SmallMap<StreamName, Box<Stream>>,
    pub(super) links: BTreeMap<Link, Deletion>,
    /// The file may lack FILE_ATTRIBUTE_ARCHIVE; every stream has a copy.
    pub(super) lacks_archive: bool,
    /// How many of the opens stand for requests by which another file takes this one's place.
    pub(super) replacing: usize,
    /// The requests that are parked behind breaks.
    pub(super) waiting: Vec<Waiter>,
}

impl Inode {
    pub(super) fn is_empty(&self) -> bool {
        self.opens.is_empty() && self.streams.is_empty() && self.links.is_empty()
    }

    pub(super) fn stream(&mut self, name: &StreamName) -> Option<&mut Stream> {
        self.streams.get_mut(name).map(Box::as_mut)
    }

    pub(super) fn open_mut(&mut self, open: OpenId) -> Option<&mut EngineOpen> {
        self.opens.get_mut(&open).map(Box::as_mut)
    }

    /// The stream of an open, with the open.
    pub(super) fn stream_of(&mut self, open: OpenId) -> Option<(&mut Stream, &mut EngineOpen)> {
        let open = self.opens.get_mut(&open)?;
        let stream = self.streams.get_mut(&open.stream)?;
        Some((stream, open))
    }

    /// The leases held on any stream.
    pub(super) fn leases(&self) -> Vec<(Guid, LeaseKey)> {
        let holders = self.streams.values().flat_map(|stream| &stream.holders);
        holders.filter_map(|holder| holder.owner.lease()).collect()
    }

    /// The named streams that somebody has open.
    pub(super) fn open_streams(&self) -> Vec<StreamName> {
        let names = self.opens.values().map(|open| &open.stream);
        let mut names: Vec<StreamName> = names.filter(|name| name.is_some()).cloned().collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    pub(super) fn lacks_archive(&mut self, lacks: bool) {
        self.lacks_archive = lacks;
        for stream in self.streams.values() {
            stream.quick.lacks_archive.store(lacks, Ordering::SeqCst);
        }
    }

    pub(super) fn is_stream_open(&self, name: &StreamName) -> bool {
        self.streams.get(name).is_some_and(|one| one.shares.any())
    }

    /// Parks a request until something changes, unless it is parked already. Returns false if too many are parked.
    pub(super) fn park(&mut self, waiter: Waiter) -> bool {
        self.waiting.contains(&waiter) || waiter.park(&mut self.waiting, WAITING_MAX)
    }

    /// Wakes all requests that are parked behind a break, because something changed.
    pub(super) fn wake_all(&mut self, out: &mut Effects) {
        for waiter in self.waiting.drain(..) {
            out.wake(waiter.id, Outcome::Retry);
        }
    }

    /// Judges an open and, if it is granted, puts it into the tables.
    pub(super) fn open(
        &mut self,
        request: &OpenRequest,
        site: Site<'_>,
        out: &mut Effects,
    ) -> Decision {
        let (place, user) = (&request.place, request.waiter.user);
        if let Some(refusal) = self.refusal(&place.stream, &request.link, user) {
            return Decision::Conflict(refusal);
        }
        // A handle of a named stream, too, would keep the file from being replaced.
        let named = request.place.stream.is_some();
        if self.is_reserved(&request.place.stream) || named && self.replacing > 0 {
            return Decision::MustBreak;
        }
        let mode = ShareMode {
            access: request.access | request.effect,
            share: request.share,
        };
        let overwrite = request.overwrites();
        let own = request.owner();
        let oplock_stat = is_oplock_stat(request.access) && !overwrite;
        let lease_stat = is_lease_stat(request.access) && !overwrite;
        let spared = |holder: &Holder| {
            Some(holder.owner) == own
                || if holder.is_oplock() {
                    oplock_stat
                } else {
                    lease_stat
                }
        };
        let stream = &request.place.stream;
        // [MS-FSA] 2.1.5.1.2: a BATCH oplock breaks first; its holder may close meanwhile.
        if self.contend(stream, Cause::BatchFirst { overwrite }, spared, site, out) {
            return Decision::MustBreak;
        }
        match self.share(stream, mode, overwrite, own, site, out) {
            Step::Go => {}
            Step::Wait => return Decision::MustBreak,
            Step::Refused(status) => return Decision::Conflict(status),
        }
        // A client that caches only the handle would keep the name from being removed, so its caching is broken as for
        // FileDispositionInformation ([MS-FSA] 2.1.4.12). An open that has waited long enough goes on without it.
        let deletes = request.delete_on_close;
        let own_lease = |holder: &Holder| Some(holder.owner) == own;
        let cached = deletes && self.contend(stream, Cause::Handle, own_lease, site, out);
        if cached && request.patient {
            return Decision::MustBreak;
        }
        if self.contend(stream, Cause::Open { overwrite }, spared, site, out) {
            return Decision::MustBreak;
        }
        if overwrite
            && stream.is_none()
            && self.contend_streams(Cause::Open { overwrite }, site, out)
        {
            return Decision::MustBreak;
        }
        let cached = self.grant(request, site);
        Decision::Granted(self.enter(request, mode, cached))
    }

    /// The status with which an open is refused before anything is broken.
    pub(super) fn refusal(
        &self,
        stream: &StreamName,
        link: &Link,
        user: CountedUser,
    ) -> Option<Status> {
        // [MS-FSA] 2.1.5.1: a link or stream that is marked deleted cannot be opened any more.
        let stream = self.streams.get(stream);
        let stream_goes = stream.is_some_and(|stream| stream.deletion.is_some());
        if stream_goes || self.links.contains_key(link) {
            return Some(Status::DELETE_PENDING);
        }
        (!self.has_room(user)).then_some(Status::TOO_MANY_OPENED_FILES)
    }

    /// Whether one more open of a user leaves room for those of others.
    fn has_room(&self, user: CountedUser) -> bool {
        // An inode nearly always has fewer opens in total.
        if self.opens.len() < OPENS_PER_USER_MAX {
            return true;
        }
        let mine = self.opens.iter().filter(|(_, open)| open.user == user);
        self.opens.len() < OPENS_MAX && mine.count() < OPENS_PER_USER_MAX
    }

    /// Puts a granted open into the tables, with the caching that it gets and its group.
    pub(super) fn enter(
        &mut self,
        request: &OpenRequest,
        mode: ShareMode,
        cached: Option<(CacheGrant, u64)>,
    ) -> Granted {
        let lacks = self.lacks_archive;
        let stream = self.streams.or_default(&request.place.stream);
        stream.quick.lacks_archive.store(lacks, Ordering::SeqCst);
        stream.publish();
        stream.shares.enter(mode, request.overwrites());
        let (cache, group) = cached.unwrap_or((CacheGrant::None, 0));
        let open = EngineOpen {
            stream: request.place.stream.clone(),
            link: request.link.clone(),
            mode,
            delete_on_close: request.delete_on_close,
            posix_on_close: false,
            marked_deleted: false,
            unlinked: None,
            empties: request.overwrites(),
            replaces: false,
            keeps_times: false,
            group,
            user: request.waiter.user,
            sequences: LockSequences::default(),
            _writer: Writer::of(&stream.quick, mode.writes()),
        };
        let quick = Quick {
            shared: Arc::clone(&stream.quick),
            group,
            writes: mode.writes(),
        };
        self.opens.insert(request.open, Box::new(open));
        Granted { cache, quick }
    }

    fn around(&self, request: &OpenRequest, own: Option<Owner>) -> Around {
        let name = &request.place.stream;
        let mut around = Around::default();
        let mut own_group = 0;
        if let Some(stream) = self.streams.get(name) {
            around.locks_below = stream.locks.any_below(request.allocation);
            for holder in &stream.holders {
                if Some(holder.owner) == own {
                    own_group = holder.group;
                } else if holder.is_oplock() {
                    around.oplocks |= holder.state;
                } else {
                    around.leases |= holder.state;
                }
            }
        }
        around.open = self.opens.values().any(|open| {
            // An open for READ_CONTROL breaks no lease, but it counts as another open here.
            let stat = is_oplock_stat(open.mode.access);
            let ours = own_group != 0 && open.group == own_group;
            open.stream == *name && !ours && !stat
        });
        around
    }

    /// Grants an oplock or a lease and enters the open into it. `None` if no caching is granted.
    fn grant(&mut self, request: &OpenRequest, site: Site<'_>) -> Option<(CacheGrant, u64)> {
        let owner = request.owner()?;
        if request.directory && !may_lease_directory(request.cache) {
            return None;
        }
        let around = self.around(request, Some(owner));
        let stream = self.streams.or_default(&request.place.stream);
        let held = stream.holders.iter_mut().find(|one| one.owner == owner);
        match (request.cache, held) {
            (CacheRequest::Lease(asked), Some(holder)) => {
                // [MS-SMB2] 3.3.5.9.8: a breaking lease is not promoted.
                if holder.breaking.is_none() {
                    let (asked, held) = (asked.lease_state, holder.state);
                    let state = caching::promotion(asked, held, request.directory, &around);
                    if state != holder.state {
                        holder.state = state;
                        holder.epoch = holder.epoch.wrapping_add(1);
                    }
                }
                Some(holder.enter(request.open))
            }
            (CacheRequest::Lease(asked), None) => {
                let state = caching::granted_lease(asked.lease_state, request.directory, &around);
                Some(stream.hold(new_lease(owner, &asked, state, site), request.open))
            }
            (CacheRequest::Oplock(level), _) => {
                let state = caching::granted_oplock(level, request.directory, &around);
                let holder = Holder::new(owner, site.next_ticket(), state);
                (!state.is_empty()).then(|| stream.hold(holder, request.open))
            }
            (CacheRequest::None, _) => None,
        }
    }
}

impl Stream {
    pub(super) fn hold(&mut self, mut holder: Holder, open: OpenId) -> (CacheGrant, u64) {
        let granted = holder.enter(open);
        self.holders.push(holder);
        granted
    }
}

/// [MS-FSA] 2.1.5.18: a directory has no oplocks; [MS-SMB2] 3.3.5.9.11: a lease of version 1 cannot be on a directory.
fn may_lease_directory(cache: CacheRequest) -> bool {
    matches!(cache, CacheRequest::Lease(lease) if lease.v2.is_some())
}

fn new_lease(owner: Owner, asked: &LeaseContext, state: LeaseState, site: Site<'_>) -> Holder {
    let epoch = asked.v2.map_or(0, |v2| v2.epoch);
    Holder {
        // The reply to the first grant carries the client's epoch plus one. If nothing is granted, the state has not
        // changed.
        epoch: epoch.wrapping_add(u16::from(!state.is_empty())),
        v2: asked.v2.is_some(),
        parent: asked.parent_lease_key(),
        ..Holder::new(owner, site.next_ticket(), state)
    }
}
