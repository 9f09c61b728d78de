//! How breaks end (acknowledgments and time-outs), the files that leases are bound to, and the breaks of directories'
//! leases.

use smb_wire::Status;
use smb_wire::ids::{Guid, LeaseKey};
use smb_wire::msg::OplockLevel;
use vfs::FileKey;

use super::caching::{Holder, Site, not_breaking};
use super::files::Files;
use super::inode::{EngineOpen, Stream};
use super::types::{
    CacheGrant, Effects, H, LeaseState, Link, OpenId, OpenRequest, Owner, Place, W, WH,
};

/// The answer to an acknowledgment, and the effects to carry out: even a wrong acknowledgment may end a break.
pub type Acknowledged<T> = (Result<T, Status>, Effects);

/// How many files that had a lease key before are remembered with it. One more forgets the oldest, where a break then
/// ends by its time-out.
const FORMER_MAX: usize = 8;

/// The file that a lease is bound to ([MS-SMB2] 3.3.1.11, 3.3.1.12).
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) place: Place,
    pub(super) link: Link,
    pub(super) delete_on_close: bool,
    /// Where the lease is still held although the key was bound elsewhere since, the last at the end: a break may be in
    /// flight there. All of these files are to be deleted.
    former: Vec<(Place, Link)>,
}

impl Bound {
    pub(super) fn new(request: &OpenRequest) -> Self {
        Self {
            place: request.place.clone(),
            link: request.link.clone(),
            delete_on_close: request.delete_on_close,
            former: Vec::new(),
        }
    }

    /// The key has another open, perhaps of another file.
    pub(super) fn move_to(&mut self, mut new: Self) {
        new.former = std::mem::take(&mut self.former);
        let before = std::mem::replace(self, new);
        if before.place == self.place {
            self.delete_on_close |= before.delete_on_close;
            return;
        }
        let place = &self.place;
        self.former.retain(|(former, _)| former != place);
        if self.former.len() >= FORMER_MAX {
            self.former.remove(0);
        }
        self.former.push((before.place, before.link));
    }

    /// The lease is not held at a place any more. Returns false if it is held nowhere else.
    #[must_use]
    pub(super) fn release(&mut self, place: &Place) -> bool {
        if self.place != *place {
            self.former.retain(|(former, _)| former != place);
            return true;
        }
        let Some((place, link)) = self.former.pop() else {
            return false;
        };
        (self.place, self.link, self.delete_on_close) = (place, link, true);
        true
    }

    pub(super) fn stream_renamed(&mut self, from: &Place, to: &Place) {
        let former = self.former.iter_mut().map(|(place, _)| place);
        for place in former.chain([&mut self.place]) {
            if place == from {
                place.clone_from(to);
            }
        }
    }
}

impl Files {
    /// As [`Files::with`], for a stream that is open.
    pub(super) fn with_stream<T: Default>(
        &self,
        place: &Place,
        act: impl FnOnce(&mut Stream) -> T,
    ) -> T {
        self.with(place.key, |inode| {
            inode.stream(&place.stream).map_or_else(T::default, act)
        })
    }

    /// As [`Files::with`], for an open.
    pub(super) fn with_open<T: Default>(
        &self,
        place: &Place,
        open: OpenId,
        act: impl FnOnce(&mut EngineOpen) -> T,
    ) -> T {
        self.with(place.key, |inode| {
            inode.open_mut(open).map_or_else(T::default, act)
        })
    }

    /// Where a lease is held: at the file that has the key, then at those that had it before.
    pub(super) fn places_of_lease(&self, client: Guid, key: LeaseKey) -> Vec<Place> {
        let leases = self.leases.lock();
        let Some(bound) = leases.get(&(client, key)) else {
            return Vec::new();
        };
        let former = bound.former.iter().rev().map(|(place, _)| place);
        let all = std::iter::once(&bound.place).chain(former);
        all.cloned().collect()
    }

    /// The opens of a lease.
    pub fn opens_of_lease(&self, client: Guid, key: LeaseKey) -> Vec<OpenId> {
        let places = self.places_of_lease(client, key).into_iter();
        let owner = Owner::Lease(client, key);
        let opens = places.flat_map(|place| self.opens_of(place.key, owner));
        opens.collect()
    }

    /// A lease break acknowledgment ([MS-SMB2] 3.3.5.22.2). Returns the state for the reply, or
    /// OBJECT_NAME_NOT_FOUND, UNSUCCESSFUL, REQUEST_NOT_ACCEPTED.
    pub fn acknowledge_lease(
        &self,
        client: Guid,
        key: LeaseKey,
        state: LeaseState,
    ) -> Acknowledged<LeaseState> {
        let owner = Owner::Lease(client, key);
        let acknowledge = |place: &Place, in_flight: bool| {
            let which = |holder: &Holder| {
                holder.owner == owner && (holder.breaking.is_some() || !in_flight)
            };
            self.change_holder(place, which, |holder, site, out| {
                holder.acknowledge_lease(state, site, out)
            })
        };
        // It belongs to the file that had the key before, if a break is in flight there and none is at the file that
        // has it now.
        let places = self.places_of_lease(client, key);
        let acknowledged = places.iter().find_map(|place| acknowledge(place, true));
        acknowledged
            .or_else(|| acknowledge(places.first()?, false))
            .unwrap_or((Err(Status::OBJECT_NAME_NOT_FOUND), Effects::default()))
    }

    /// An oplock break acknowledgment ([MS-SMB2] 3.3.5.22.1). Returns the level for the reply, or INVALID_DEVICE_STATE,
    /// INVALID_PARAMETER, INVALID_OPLOCK_PROTOCOL. The caller must check that the open exists.
    pub fn acknowledge_oplock(
        &self,
        place: &Place,
        open: OpenId,
        level: OplockLevel,
    ) -> Acknowledged<OplockLevel> {
        let unheld = not_breaking(OplockLevel::NONE, level);
        let of_open = |holder: &Holder| holder.owner == Owner::Oplock(open);
        self.change_holder(place, of_open, |holder, site, out| {
            holder.acknowledge_oplock(level, site, out)
        })
        .unwrap_or((Err(unheld), Effects::default()))
    }

    /// Ends a break that will not be acknowledged: its time is over ([MS-SMB2] 3.3.6.1, 3.3.6.5), or the holder cannot
    /// be reached. It ends with no caching at all. A break that is no longer in flight is left alone.
    pub fn break_over(&self, place: &Place, owner: Owner, ticket: u64) -> Effects {
        let breaking = |holder: &Holder| holder.is_breaking(owner, ticket);
        let over = self.change_holder(place, breaking, |holder, _, _| {
            holder.give_up();
            Ok(())
        });
        over.map(|(_, effects)| effects).unwrap_or_default()
    }

    /// Whether a break still awaits its acknowledgment.
    pub fn is_breaking(&self, place: &Place, owner: Owner, ticket: u64) -> bool {
        self.with(place.key, |inode| {
            // The stream may have been renamed since.
            let streams = inode.streams.values();
            let mut holders = streams.flat_map(|stream| stream.holders.iter());
            holders.any(|holder| holder.is_breaking(owner, ticket))
        })
    }

    /// The opens of an inode that share the caching of `owner` now.
    pub fn opens_of(&self, key: FileKey, owner: Owner) -> Vec<OpenId> {
        self.with(key, |inode| {
            let streams = inode.streams.values();
            let holders = streams.flat_map(|stream| stream.holders.iter());
            let own = holders.filter(|holder| holder.owner == owner);
            own.flat_map(|holder| holder.opens.iter().copied())
                .collect()
        })
    }

    /// Changes a holder that `which` selects; parked requests check again if a break made progress.
    fn change_holder<T>(
        &self,
        place: &Place,
        which: impl Fn(&Holder) -> bool,
        act: impl FnOnce(&mut Holder, Site<'_>, &mut Effects) -> Result<T, Status>,
    ) -> Option<Acknowledged<T>> {
        let mut effects = Effects::default();
        self.with(place.key, |inode| {
            // The stream may have been renamed since.
            let holds = |stream: &Stream| stream.holders.iter().any(&which);
            let (name, stream) = inode.streams.iter_mut().find(|(_, one)| holds(one))?;
            let place = Place {
                key: place.key,
                stream: name.clone(),
            };
            let site = self.site(&place);
            let holder = stream.holders.iter_mut().find(|holder| which(holder))?;
            let before = (holder.state, holder.breaking);
            let answer = act(holder, site, &mut effects);
            let progress = before != (holder.state, holder.breaking);
            stream.publish();
            if progress {
                inode.wake_all(&mut effects);
            }
            Some((answer, effects))
        })
    }

    /// Called when an entry of a directory was created, deleted, renamed or changed in attributes,
    /// times or size: leases on the directory lose their caching, except the one that the acting
    /// open named as its parent's ([MS-FSA] 2.1.4.12 with PARENT_OBJECT, 2.1.4.12.2).
    pub fn entries_changed(&self, directory: FileKey, actor: Option<LeaseKey>) -> Effects {
        let mut effects = Effects::default();
        let place = Place {
            key: directory,
            stream: None,
        };
        self.with(directory, |inode| {
            inode.entries_changed(actor, self.site(&place), &mut effects);
        });
        effects
    }

    /// Whether an open caches its handle, by a batch oplock or by its lease, and no break of it is
    /// in flight: only then is a durable open kept ([MS-SMB2] 3.3.7.1).
    pub fn keeps_handle(&self, place: &Place, open: OpenId) -> bool {
        self.outlasts(place, open, |holder| holder.breaking.is_none())
    }

    /// Whether an open caches its handle, even if a break of it is in flight: another open of the
    /// file then waits for the holder if it has to. Beside a disconnected open that does not cache
    /// its handle, no other open can be allowed ([MS-SMB2] 3.3.5.9 <301>).
    pub fn holds_handle(&self, place: &Place, open: OpenId) -> bool {
        self.outlasts(place, open, |_| true)
    }

    /// Whether an open may be kept while its client is disconnected. One with byte-range locks must cache writes too
    /// (docs/protocol-notes.md, "A durable open with a byte-range lock").
    fn outlasts(&self, place: &Place, open: OpenId, held: impl Fn(&Holder) -> bool) -> bool {
        self.with_stream(place, |stream| {
            let holder = stream.holder_of(open)?;
            let batch = !holder.is_oplock() || holder.state.contains(WH);
            let locks = holder.state.contains(W) || !stream.locks.any_of(open);
            Some(batch && locks && holder.state.contains(H) && held(holder))
        })
        .unwrap_or(false)
    }

    /// Whether a break of what an open caches awaits its acknowledgment.
    pub fn gives_way(&self, place: &Place, open: OpenId) -> bool {
        self.with(place.key, |inode| inode.gives_way(&place.stream, open))
    }

    /// The present caching of an open, as CREATE's reply would report it; for durable opens.
    pub fn caching_of(&self, place: &Place, open: OpenId) -> CacheGrant {
        self.with_stream(place, |stream| Some(stream.holder_of(open)?.grant()))
            .unwrap_or(CacheGrant::None)
    }
}
