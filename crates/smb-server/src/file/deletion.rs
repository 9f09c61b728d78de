//! Deletes names and streams, and closes opens ([MS-FSA] 2.1.5.5, 2.1.5.15.3, 2.1.5.15.4).
//!
//! To delete means to mark: a link or a named stream becomes pending and is removed when its last handle closes. A link
//! is also removed when the handle that asked for POSIX semantics closes. The close that must remove the name reports
//! that to its caller, and until the caller has reported the result, no new open of the name is allowed.

use std::collections::btree_map::Entry;

use smb_wire::Status;
use vfs::{FileKey, VfsError};

use super::Deleter;

use super::caching::{Cause, Holder, Site};
use super::files::Files;
use super::inode::{Deletion, EngineOpen, Inode, Plain};
use super::types::{Closed, Effects, Going, Link, OpenId, Owner, Place, Remove, StreamName};

/// The result of a close on an inode, for the engine's other tables.
#[derive(Debug, Default)]
pub(super) struct Closing {
    pub(super) closed: Closed,
    /// The holder that ended with its last open.
    pub(super) released: Option<Owner>,
    /// FILE_DELETE_ON_CLOSE has marked the link deleted.
    pub(super) marked: bool,
    /// FILE_DELETE_ON_CLOSE would have deleted something, but its open was undone.
    pub(super) undone: bool,
}

impl Deletion {
    /// The mark that the open `by` sets, on behalf of `who`.
    fn marked(by: OpenId, posix: bool, who: &Deleter) -> Self {
        Self::Pending {
            posix: posix.then_some(by),
            who: who.clone(),
            plain: (!posix).then(|| (by, who.clone())),
        }
    }

    /// A removal by a request that did not have the name open.
    fn taken_out() -> Self {
        Self::Removing {
            by: None,
            gone: Going::default(),
            plain: None,
        }
    }

    /// The name is marked, and no close removes it yet.
    pub(super) fn is_pending(&self) -> bool {
        matches!(self, Self::Pending { .. })
    }

    /// Whether the removal is under way that the close of the open `by` carries out; with `None`, one that no close
    /// does.
    fn is_begun_by(&self, by: Option<OpenId>) -> bool {
        matches!(self, Self::Removing { by: one, .. } if *one == by)
    }

    /// Begins the removal, if the close of this open must carry it out, and returns on whose behalf; `last` says that
    /// it is the last handle.
    fn begin(&mut self, id: OpenId, last: bool) -> Option<Deleter> {
        let Self::Pending { posix, who, plain } = self else {
            return None;
        };
        if !last && *posix != Some(id) {
            return None;
        }
        let who = who.clone();
        *self = Self::Removing {
            by: Some(id),
            gone: Going::default(),
            // A deletion that the close itself was to carry out ends with it.
            plain: plain.take().filter(|(asked, _)| *asked != id),
        };
        Some(who)
    }

    /// Ends the mark of a name that the file has no longer. Closes that wait for its removal need not wait on.
    fn end(self) {
        if let Self::Removing { gone, .. } = self {
            let _already_set = gone.set(Ok(true));
        }
    }
}

impl Inode {
    /// Sets the delete disposition of what `open` has open.
    pub(super) fn set_delete_pending(
        &mut self,
        open: OpenId,
        posix: bool,
        who: &Deleter,
    ) -> Result<(), Status> {
        let marking = self.opens.get_mut(&open).ok_or(Status::FILE_CLOSED)?;
        marking.marked_deleted = true;
        let (stream, link) = (marking.stream.clone(), marking.link.clone());
        if let Some(lost_by) = marking.unlinked {
            if let Some(Deletion::Removing { by, plain, .. }) = self.links.get_mut(&link)
                && stream.is_none()
                && *by == Some(lost_by)
            {
                // It counts if that removal fails.
                *plain = Some((open, who.clone()));
            }
            return Ok(());
        }
        // [MS-FSA] 2.1.5.15.4: only links are deleted with POSIX semantics. A named stream stays until its last handle
        // closes, because that handle finds it by its name.
        let posix = posix && stream.is_none();
        self.mark(&stream, &link, Deletion::marked(open, posix, who));
        Ok(())
    }

    /// Whether any name of the inode is marked deleted, or being removed.
    pub(super) fn is_to_be_deleted(&self) -> bool {
        !self.links.is_empty()
    }

    /// Whether a name or a stream of the inode has gone, is marked deleted, or will be by the close of an open.
    pub(super) fn loses_anything(&self) -> bool {
        let loses = |open: &EngineOpen| open.unlinked.is_some() || open.delete_on_close;
        let mut streams = self.streams.values();
        self.is_to_be_deleted()
            || self.opens.values().any(|open| loses(open))
            || streams.any(|stream| stream.deletion.is_some())
    }

    /// Whether this name of the inode is marked deleted, or being removed.
    pub(super) fn is_going(&self, link: &Link) -> bool {
        self.links.contains_key(link)
    }

    /// Whether the close of the open `by` is removing a name that the inode still has.
    pub(super) fn is_removed_by(&self, by: OpenId) -> bool {
        let mut links = self.links.values();
        links.any(|deletion| deletion.is_begun_by(Some(by)))
    }

    /// Whether the link or stream of an open is marked for deletion, by whichever open, and no close removes it yet.
    pub(super) fn is_marked(&self, open: OpenId) -> bool {
        self.opens.get(&open).is_some_and(|open| {
            if open.stream.is_none() {
                return self.is_link_marked(open);
            }
            let stream = self.streams.get(&open.stream);
            let deletion = stream.and_then(|stream| stream.deletion.as_ref());
            deletion.is_some_and(Deletion::is_pending)
        })
    }

    fn is_link_marked(&self, open: &EngineOpen) -> bool {
        let deletion = self
            .links
            .get(&open.link)
            .filter(|_| open.unlinked.is_none());
        deletion.is_some_and(Deletion::is_pending)
    }

    /// Whether an open is one of a named stream whose file is marked for deletion by the open's link, and no close
    /// removes that yet.
    pub(super) fn is_file_marked(&self, open: OpenId) -> bool {
        let open = self.opens.get(&open);
        open.is_some_and(|open| open.stream.is_some() && self.is_link_marked(open))
    }

    /// Whether CHANGE_NOTIFY on this handle ends at once ([MS-FSA] 2.1.5.11).
    pub(super) fn is_marked_deleted(&self, open: OpenId) -> bool {
        self.opens
            .get(&open)
            .is_some_and(|open| open.marked_deleted || open.delete_on_close)
    }

    fn mark(&mut self, stream: &StreamName, link: &Link, new: Deletion) {
        let deletion = if stream.is_none() {
            self.links
                .entry(link.clone())
                .or_insert_with(|| new.clone())
        } else {
            match self.streams.get_mut(stream) {
                Some(stream) => stream.deletion.get_or_insert_with(|| new.clone()),
                None => return,
            }
        };
        if let (
            Deletion::Pending { posix, who, plain },
            Deletion::Pending {
                posix: by,
                who: on,
                plain: asked,
            },
        ) = (deletion, new)
        {
            *posix = by.or(*posix);
            let write_through = who.write_through || on.write_through;
            *who = Deleter {
                write_through,
                ..on
            };
            *plain = asked.or_else(|| plain.take());
        }
    }

    /// Sets the mark of a link that an open had when its record was stored.
    pub(super) fn mark_again(&mut self, link: &Link, open: OpenId, who: &Deleter) {
        self.mark(&None, link, Deletion::marked(open, false, who));
    }

    /// Closes an open; see [`super::Files::close`].
    pub(super) fn close(
        &mut self,
        id: OpenId,
        deletes: Option<&Deleter>,
        site: Site<'_>,
    ) -> Closing {
        let mut effects = Effects::default();
        let Some(mut open) = self.opens.remove(&id) else {
            return Closing::default();
        };
        // Parked requests wait for breaks. The close may end a break, or the share-mode conflict that caused it.
        let awaited = open.mode.takes_part() || self.gives_way(&open.stream, id);
        let released = self.leave_stream(id, &mut open, &mut effects);
        self.replacing -= usize::from(open.replaces);
        // [MS-FSA] 2.1.5.5, phase 1: FILE_DELETE_ON_CLOSE marks the link now, so that the close of the last handle
        // removes it.
        let marking = deletes.filter(|_| open.delete_on_close && open.unlinked.is_none());
        if let Some(who) = marking {
            // As in `set_delete_pending`, only links.
            let posix = open.posix_on_close && open.stream.is_none();
            let mark = Deletion::marked(id, posix, who);
            self.mark(&open.stream, &open.link, mark);
        }
        let last_of_stream = !self.is_stream_open(&open.stream);
        let remove = self
            .link_to_remove(id, &open)
            .or_else(|| self.stream_to_remove(id, &open, last_of_stream));
        if marking.is_some() && (remove.is_none() || open.posix_on_close) {
            // The open had all cached handles given up when it was made. One that is cached since would keep the name
            // from being removed, or stand for a name that is gone. Nobody waits for it.
            let own = open.group;
            let spared = |holder: &Holder| holder.group == own;
            self.contend(&open.stream, Cause::Handle, spared, site, &mut effects);
        }
        self.sweep();
        if awaited {
            self.wake_all(&mut effects);
        }
        Closing {
            closed: Closed {
                found: true,
                unlinked: self.unlinked(&open).filter(|_| remove.is_none()),
                remove,
                effects,
            },
            released,
            marked: marking.is_some() && open.stream.is_none(),
            undone: deletes.is_none() && open.delete_on_close,
        }
    }

    /// As [`Closed::unlinked`].
    fn unlinked(&self, open: &EngineOpen) -> Option<(FileKey, Option<Going>)> {
        let asked = open.stream.is_none() && (open.marked_deleted || open.delete_on_close);
        let going = match self.links.get(&open.link) {
            Some(Deletion::Removing { by, gone, .. }) if *by == open.unlinked => Some(gone.clone()),
            _ => None,
        };
        (asked && open.unlinked.is_some()).then_some((open.link.parent, going))
    }

    /// Whether a break of what an open caches awaits its acknowledgment.
    pub(super) fn gives_way(&self, stream: &StreamName, id: OpenId) -> bool {
        let stream = self.streams.get(stream);
        let holder = stream.and_then(|stream| stream.holder_of(id));
        holder.is_some_and(|holder| holder.breaking.is_some())
    }

    /// Removes the locks and the caching of a closing open. Returns the owner if its holder is gone.
    fn leave_stream(
        &mut self,
        id: OpenId,
        open: &mut EngineOpen,
        effects: &mut Effects,
    ) -> Option<Owner> {
        let stream = self.streams.get_mut(&open.stream)?;
        stream.count_time_keeper(open, false);
        stream.shares.leave(open.mode, open.empties);
        stream.locks.drop_open(id, effects);
        let granted = stream.locks.grant_waiting(effects);
        let mut released = None;
        stream.holders.retain_mut(|holder| {
            holder.opens.remove(&id);
            if holder.opens.is_empty() {
                released = Some(holder.owner);
            }
            !holder.opens.is_empty()
        });
        stream.publish();
        self.record(&granted);
        released
    }

    /// [MS-FSA] 2.1.5.5, phase 3: the link is removed when its last handle is closed, or the handle that asked for
    /// POSIX semantics.
    fn link_to_remove(&mut self, id: OpenId, open: &EngineOpen) -> Option<(Remove, Deleter)> {
        // An open that has lost this name is of an earlier link, not of one that has got the name since.
        let has_it = |other: &EngineOpen| other.link == open.link && other.unlinked.is_none();
        let last = !self.opens.values().any(|other| has_it(other));
        let who = self.links.get_mut(&open.link)?.begin(id, last)?;
        for other in self.opens.values_mut().filter(|other| has_it(other)) {
            other.unlinked = Some(id);
        }
        Some((Remove::Link(open.link.clone()), who))
    }

    /// [MS-FSA] 2.1.5.5, phase 2.
    fn stream_to_remove(
        &mut self,
        id: OpenId,
        open: &EngineOpen,
        last: bool,
    ) -> Option<(Remove, Deleter)> {
        let deletion = self.streams.get_mut(&open.stream)?.deletion.as_mut()?;
        Some((Remove::Stream, deletion.begin(id, last)?))
    }

    /// Marks a link or stream that nobody has open as being removed. Returns false if somebody has it open or another
    /// request removes it.
    pub(super) fn take_out(&mut self, stream: &StreamName, remove: &Remove) -> bool {
        match remove {
            Remove::Link(link) => {
                let free = self.opens.is_empty() && !self.links.contains_key(link);
                if free {
                    self.links.insert(link.clone(), Deletion::taken_out());
                }
                free
            }
            Remove::Stream => {
                let free = !self.is_stream_open(stream) && !self.streams.contains_key(stream);
                if free {
                    let stream = self.streams.or_default(stream);
                    stream.deletion = Some(Deletion::taken_out());
                }
                free
            }
        }
    }

    /// Called when a removal was carried out or has failed: the name may be opened again. If it is not gone, the other
    /// opens of the name still have it, and one of them may have asked for its deletion.
    pub(super) fn removal_ended(
        &mut self,
        stream: &StreamName,
        remove: &Remove,
        by: Option<OpenId>,
        outcome: Result<bool, VfsError>,
    ) {
        match remove {
            Remove::Link(link) => {
                // The link may have been renamed since; it is then found under its new name.
                let mut links = self.links.iter();
                let now = links.find(|(at, deletion)| {
                    deletion.is_begun_by(by) && (by.is_some() || *at == link)
                });
                let Some(link) = now.map(|(at, _)| at.clone()) else {
                    return self.sweep();
                };
                if let Some(Deletion::Removing { gone, plain, .. }) = self.links.remove(&link) {
                    let _already_set = gone.set(outcome);
                    if outcome != Ok(true) {
                        self.name_stays(link, by, plain);
                    }
                }
            }
            Remove::Stream => {
                if let Some(stream) = self.streams.get_mut(stream) {
                    stream.deletion = None;
                }
            }
        }
        self.sweep();
    }

    /// Gives a name back to the opens from which the close of the open `by` had taken it. An open of an earlier link
    /// with the same name gets nothing.
    fn name_stays(&mut self, link: Link, by: Option<OpenId>, plain: Option<Plain>) {
        let mut is_open = false;
        for open in self.opens.values_mut() {
            if open.link == link && open.unlinked.is_some() && open.unlinked == by {
                (open.unlinked, is_open) = (None, true);
            }
        }
        if let Some((open, who)) = plain.filter(|_| is_open) {
            self.mark(&None, &link, Deletion::marked(open, false, &who));
        }
    }

    /// The link belongs to another file now: see [`super::Files::replaced`].
    pub(super) fn replaced(&mut self, link: &Link) {
        for (id, open) in self.opens.iter_mut() {
            if open.link == *link {
                open.unlinked.get_or_insert(*id);
            }
        }
        if let Some(deletion) = self.links.remove(link) {
            deletion.end();
        }
    }

    /// Follows a rename of the link.
    pub(super) fn rename_link(&mut self, from: &Link, to: &Link) {
        for open in self.opens.values_mut() {
            if open.link == *from {
                open.link = to.clone();
            }
        }
        if let Some(deletion) = self.links.remove(from) {
            match self.links.entry(to.clone()) {
                Entry::Vacant(free) => _ = free.insert(deletion),
                // A deletion that is already requested for the existing name stays: a later close carries it out.
                Entry::Occupied(_) => deletion.end(),
            }
        }
    }

    /// Forgets streams that have no open. Their marks outlive them only while a close is removing them; when the
    /// whole link is removed, so are the streams. A name that is reserved for a rename stays.
    fn sweep(&mut self) {
        self.streams.retain(|_, stream| {
            stream.shares.any()
                || stream.renaming
                || matches!(stream.deletion, Some(Deletion::Removing { .. }))
        });
    }
}

impl Files {
    /// Marks a named stream for deletion with its last handle, unless it is already being removed. Returns false if the
    /// engine knows no such stream.
    #[must_use]
    pub fn remove_at_last_close(&self, place: &Place, who: &Deleter) -> bool {
        self.with_stream(place, |stream| {
            stream.deletion.get_or_insert_with(|| Deletion::Pending {
                posix: None,
                who: who.clone(),
                plain: None,
            });
            true
        })
    }

    /// Clears the delete disposition. FILE_DELETE_ON_CLOSE may still set it at the close.
    ///
    /// # Errors
    /// FILE_CLOSED for an unknown open.
    pub fn clear_delete_pending(&self, place: &Place, open: OpenId) -> Result<(), Status> {
        let cleared = self.with(place.key, |inode| {
            let clearing = inode.opens.get(&open)?;
            // Open.ChangeNotifyDirectoryMarkedDeleted stays ([MS-FSA] 2.1.1.6).
            if let Some(stream) = inode.streams.get_mut(&clearing.stream)
                && clearing.stream.is_some()
            {
                stream.deletion.take_if(|deletion| deletion.is_pending());
            } else if clearing.stream.is_none() {
                match inode.links.get_mut(&clearing.link) {
                    Some(Deletion::Removing { plain, .. }) => *plain = None,
                    Some(Deletion::Pending { .. }) => _ = inode.links.remove(&clearing.link),
                    None => {}
                }
            }
            Some(())
        });
        cleared.ok_or(Status::FILE_CLOSED)
    }

    /// DeletePending of FileStandardInformation: whether the link or stream of an open is removed with its last handle.
    pub fn is_delete_pending(&self, place: &Place, open: OpenId) -> bool {
        self.with(place.key, |inode| {
            inode.opens.get(&open).is_some_and(|open| {
                let stream = inode.streams.get(&open.stream);
                let stream_goes = stream.is_some_and(|stream| stream.deletion.is_some());
                open.unlinked.is_some() || inode.links.contains_key(&open.link) || stream_goes
            })
        })
    }
}
