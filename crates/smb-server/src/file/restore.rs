//! The engine's state of an open, extracted to be recorded and restored after a restart ([MS-SMB2] 3.3.5.9.12: a
//! persistent open is as it was).
//!
//! Owns the values that describe an open apart from the tables, and the way back into them. Restored state was
//! granted before, so nothing is checked and nothing is broken. Restoring must be done before the first connection;
//! all opens of one lease name the same state.

use std::collections::BTreeSet;

use super::Deleter;
use smb_wire::{
    access_mask::AccessMask,
    ids::{Guid, LeaseKey},
    msg::ShareAccess,
};

use super::{
    caching::{Breaking, Holder},
    contention::ShareMode,
    files::Files,
    inode::{Inode, OPENS_MAX},
    lock_sequences::LockSequence,
    types::{Break, Granted, H, LeaseState, NONE, OpenId, OpenRequest, Owner, Place, R, W},
};

/// A byte-range lock held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SavedLock {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// The lock is exclusive, otherwise shared.
    pub exclusive: bool,
}

/// The caching of an open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SavedCache {
    /// Nothing.
    #[default]
    None,
    /// By an oplock, as the caching it stands for.
    Oplock(LeaseState),
    /// By a lease, see [`SavedLease`].
    Lease,
}

/// A lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SavedLease {
    /// The state that is held. While a break of other caching than that of writes is in flight, this is the state after
    /// the break, because the request that caused it may already have been answered, and a client that reconnects after
    /// a restart learns from the answer which state it holds.
    pub state: LeaseState,
    /// The state that a break in flight leaves, if the holder caches writes: it may have data to write back, and every
    /// request that conflicts with that waits for it, after a restart as well.
    pub left: Option<LeaseState>,
    /// Its epoch, with the break in flight.
    pub epoch: u16,
    /// The lease is of version 2.
    pub v2: bool,
    /// The lease key of the parent directory.
    pub parent: Option<LeaseKey>,
}

/// The engine's state of an open.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SavedOpen {
    /// Rights granted.
    pub access: AccessMask,
    /// The access that the open shares with others.
    pub share: ShareAccess,
    /// FILE_DELETE_ON_CLOSE was requested and has not taken effect yet.
    pub delete_on_close: bool,
    /// Its name or stream is marked for deletion, by whichever open.
    pub marked_deleted: bool,
    /// It is an open of a named stream whose file is marked for deletion by the name of the open.
    pub link_marked: bool,
    /// The caching of the open.
    pub cache: SavedCache,
    /// The byte-range locks it holds, in the order in which they were granted.
    pub locks: Vec<SavedLock>,
    /// Open.LockSequenceArray: the valid buckets with their numbers.
    pub sequences: Vec<(u32, u8)>,
}

impl Inode {
    /// Puts an open back. `None` if there are too many or it exists already.
    fn put_back(
        &mut self,
        request: &OpenRequest,
        kept: &SavedOpen,
        holder: Option<Holder>,
        who: &Deleter,
    ) -> Option<Granted> {
        if self.opens.len() >= OPENS_MAX || self.opens.contains_key(&request.open) {
            return None;
        }
        let stream = self.streams.or_default(&request.place.stream);
        stream.locks.put_back(request.open, &kept.locks);
        let cached = holder.map(|holder| {
            let mut holders = stream.holders.iter_mut();
            match holders.find(|one| one.owner == holder.owner) {
                Some(known) => known.enter(request.open),
                None => stream.hold(holder, request.open),
            }
        });
        let mode = ShareMode {
            access: kept.access,
            share: kept.share,
        };
        let granted = self.enter(request, mode, cached);
        // The attributes have not been read since the restart, so the file may lack FILE_ATTRIBUTE_ARCHIVE.
        self.lacks_archive(!request.directory);
        if let Some(open) = self.open_mut(request.open) {
            open.delete_on_close = kept.delete_on_close;
            for (index, number) in &kept.sequences {
                let (index, number) = (*index, *number);
                open.sequences.succeeded(LockSequence { index, number });
            }
        }
        // An open that may not delete did not set the mark, which is best carried out on behalf of one that may.
        if kept.marked_deleted && (mode.deletes() || !self.is_marked(request.open)) {
            // This cannot fail, because the open was just put in.
            let _ = self.set_delete_pending(request.open, false, who);
        }
        // An open of the file itself has set this mark. If that was restored before, its mark stays.
        if kept.link_marked && !self.is_going(&request.link) {
            self.mark_again(&request.link, request.open, who);
        }
        Some(granted)
    }
}

impl Files {
    /// The opens that share the oplock or lease of an open, itself among them.
    pub fn sharing(&self, place: &Place, open: OpenId) -> BTreeSet<OpenId> {
        self.with_stream(place, |stream| Some(stream.holder_of(open)?.opens.clone()))
            .unwrap_or_default()
    }

    /// Renews the lease of a persistent open whose client is back, with this epoch; `away` are the opens whose clients
    /// are disconnected. A lease that could not keep others from opening the file while the client was away has ended
    /// with the connection. Such a lease is granted anew from the client's epoch, as Windows and Samba do ([MS-SMB2]
    /// 3.3.5.9.12 <353>). As at any grant, read caching alone is not granted beside byte-range locks in the allocated
    /// bytes (docs/protocol-notes.md, "The lease of a persistent open with byte-range locks"). A lease that has other
    /// opens in use, or caches nothing, stays as it is. Returns true if the lease changed.
    pub fn take_anew(
        &self,
        place: &Place,
        open: OpenId,
        epoch: u16,
        allocation: u64,
        away: &BTreeSet<OpenId>,
    ) -> bool {
        self.with_stream(place, |stream| {
            let mut holders = stream.holders.iter_mut();
            let holder = holders.find(|holder| holder.opens.contains(&open))?;
            let writes = holder.state.contains(W);
            let mut opens = holder.opens.iter();
            let locked = opens.clone().any(|one| stream.locks.any_of(*one));
            if holder.is_oplock()
                || holder.breaking.is_some()
                || holder.state.is_empty()
                || holder.state.contains(H) && (writes || !locked)
                || opens.any(|one| *one != open && !away.contains(one))
            {
                return None;
            }
            if !writes && stream.locks.any_below(allocation) {
                holder.state = NONE;
            }
            if holder.v2 {
                // A lease that caches only reads is granted anew, and the client has to read again.
                let granted = u16::from(holder.state == R);
                holder.epoch = epoch.wrapping_add(granted);
            }
            stream.publish();
            Some(true)
        })
        .unwrap_or(false)
    }

    /// The state to record for an open, and for its lease.
    pub fn kept(
        &self,
        place: &Place,
        open: OpenId,
    ) -> Option<(SavedOpen, Option<(Owner, SavedLease)>)> {
        self.with(place.key, |inode| {
            let (marked_deleted, link_marked) = (inode.is_marked(open), inode.is_file_marked(open));
            let (stream, known) = inode.stream_of(open)?;
            let (mut cache, mut lease) = (SavedCache::None, None);
            if let Some(holder) = stream.holder_of(open) {
                let left = |breaking: Breaking| holder.state & breaking.required;
                let left = holder.breaking.map(left);
                let state = left.unwrap_or(holder.state);
                cache = if holder.is_oplock() {
                    SavedCache::Oplock(state)
                } else {
                    let left = left.filter(|_| holder.state.contains(W));
                    let kept = SavedLease {
                        state: left.map_or(state, |_| holder.state),
                        left,
                        epoch: holder.epoch,
                        v2: holder.v2,
                        parent: holder.parent,
                    };
                    lease = Some((holder.owner, kept));
                    SavedCache::Lease
                };
            }
            let kept = SavedOpen {
                access: known.mode.access,
                share: known.mode.share,
                delete_on_close: known.delete_on_close,
                marked_deleted,
                link_marked,
                cache,
                locks: stream.locks.of(open),
                sequences: known.sequences.valid(),
            };
            Some((kept, lease))
        })
    }

    /// The break that the client of a restored open has not acknowledged, to be sent when it is back.
    pub fn break_in_flight(&self, place: &Place, open: OpenId) -> Option<Break> {
        self.with_stream(place, |stream| {
            let holder = stream.holder_of(open)?;
            let breaking = holder.breaking?;
            Some(holder.notification(place, breaking.offered, breaking.ticket))
        })
    }

    /// Restores a recorded open. Of the request, its name, place, link, path, client, lease key and user are used, and
    /// it must overwrite nothing; a link or stream that is marked for deletion is removed on behalf of `who`. `None` if
    /// the open does not fit, or its lease is unknown.
    pub fn put_back(
        &self,
        request: &OpenRequest,
        kept: &SavedOpen,
        lease: Option<(Guid, LeaseKey, SavedLease)>,
        who: &Deleter,
    ) -> Option<Granted> {
        let site = self.site(&request.place);
        let group = site.next_ticket();
        let breaking = |left| Breaking {
            ticket: site.next_ticket(),
            offered: left,
            required: left,
            chain: false,
        };
        let holder = match (kept.cache, lease) {
            (SavedCache::None, _) => None,
            (SavedCache::Oplock(state), _) => {
                Some(Holder::new(Owner::Oplock(request.open), group, state))
            }
            (SavedCache::Lease, Some((client, key, lease))) => Some(Holder {
                breaking: lease.left.map(breaking),
                epoch: lease.epoch,
                v2: lease.v2,
                parent: lease.parent,
                ..Holder::new(Owner::Lease(client, key), group, lease.state)
            }),
            (SavedCache::Lease, None) => return None,
        };
        let leased = matches!(kept.cache, SavedCache::Lease);
        let granted = self.with_inode(request.place.key, true, |inode| {
            inode.put_back(request, kept, holder, who)
        })??;
        self.enter(request, leased);
        Some(granted)
    }
}
