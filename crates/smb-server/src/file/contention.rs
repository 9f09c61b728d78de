//! Conflicts of a request with the opens of an inode: share modes ([MS-FSA] 2.1.5.1.2.1, 2.1.5.1.2.2) and caching
//! (2.1.4.12).
//!
//! Owns the comparison of two share modes and the counts that stand for all opens of a stream. Decides which streams of
//! an inode a request concerns, and which caching it does not break; `caching` decides how a single holder is broken.

use smb_wire::{Status, access_mask::AccessMask, ids::LeaseKey, msg::ShareAccess};

use super::caching::{Cause, Holder, Site};
use super::files::Files;
use super::inode::Inode;
use super::types::{Actor, Effects, OpenId, Operation, Owner, Place, Step, StreamName, WH, Waiter};

const READERS: AccessMask = AccessMask::FILE_READ_DATA.union(AccessMask::FILE_EXECUTE);
const WRITERS: AccessMask = AccessMask::FILE_WRITE_DATA.union(AccessMask::FILE_APPEND_DATA);
/// Rights that take part in sharing at all.
const SHARED: AccessMask = READERS.union(WRITERS).union(AccessMask::DELETE);

/// The part of an open that takes part in sharing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ShareMode {
    pub(super) access: AccessMask,
    pub(super) share: ShareAccess,
}

impl ShareMode {
    /// The share mode with which a rename or link opens the directory of its new name ([MS-FSA] 2.1.5.15.12,
    /// 2.1.5.15.7). Note 185: up to Windows Server 2022 it does not share deletion. Clients rely on that for files; for
    /// directories the rule of later versions applies.
    pub(super) fn of_entry(directory: bool) -> Self {
        let rw = ShareAccess::READ | ShareAccess::WRITE;
        let (access, share) = match directory {
            true => (AccessMask::FILE_ADD_SUBDIRECTORY, rw | ShareAccess::DELETE),
            false => (AccessMask::FILE_ADD_FILE, rw),
        };
        Self { access, share }
    }

    /// Whether the open reads, writes or deletes: an open that does none of these never conflicts.
    pub(super) fn takes_part(self) -> bool {
        self.access.intersects(SHARED)
    }

    fn reads(self) -> bool {
        self.access.intersects(READERS)
    }

    pub(super) fn writes(self) -> bool {
        self.access.intersects(WRITERS)
    }

    /// Whether an open of this mode forbids others to delete the file.
    pub(super) fn forbids_deletion(self) -> bool {
        self.takes_part() && !self.share.contains(ShareAccess::DELETE)
    }

    /// Whether the file may be deleted through an open of this mode.
    pub(super) fn deletes(self) -> bool {
        self.access.intersects(AccessMask::DELETE)
    }
}

/// The opens of a stream, counted by all that decides about a further one: a file may have tens of thousands of opens,
/// and each CREATE asks.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct ShareCounts {
    /// All opens; those below are among them.
    opens: u32,
    /// They are just emptying the stream.
    emptying: u32,
    /// The opens that read, write or delete.
    taking_part: u32,
    readers: u32,
    writers: u32,
    deleters: u32,
    /// The opens that take part and let others read, and so on.
    sharing_reads: u32,
    sharing_writes: u32,
    sharing_deletion: u32,
}

impl ShareCounts {
    pub(super) fn enter(&mut self, mode: ShareMode, empties: bool) {
        self.change(mode, empties, |count| *count += 1);
    }

    /// Counts an open no longer that was counted with these values.
    pub(super) fn leave(&mut self, mode: ShareMode, empties: bool) {
        self.change(mode, empties, |count| *count = count.saturating_sub(1));
    }

    fn change(&mut self, mode: ShareMode, empties: bool, change: impl Fn(&mut u32)) {
        let part = mode.takes_part();
        let shares = |others| part && mode.share.contains(others);
        for (count, concerned) in [
            (&mut self.opens, true),
            (&mut self.emptying, empties),
            (&mut self.taking_part, part),
            (&mut self.readers, mode.reads()),
            (&mut self.writers, mode.writes()),
            (&mut self.deleters, mode.deletes()),
            (&mut self.sharing_reads, shares(ShareAccess::READ)),
            (&mut self.sharing_writes, shares(ShareAccess::WRITE)),
            (&mut self.sharing_deletion, shares(ShareAccess::DELETE)),
        ] {
            if concerned {
                change(count);
            }
        }
    }

    pub(super) fn any(&self) -> bool {
        self.opens > 0
    }

    /// Whether an open of this mode conflicts with any of them. [MS-FSA] 2.1.5.1.2.2: only opens that read, write or
    /// delete conflict, and each must share what the other does.
    pub(super) fn conflict(&self, mode: ShareMode) -> bool {
        let bars = |does: bool, sharing: u32, others: u32, share: ShareAccess| {
            (does && sharing < self.taking_part) || (others > 0 && !mode.share.contains(share))
        };
        mode.takes_part()
            && (bars(
                mode.reads(),
                self.sharing_reads,
                self.readers,
                ShareAccess::READ,
            ) || bars(
                mode.writes(),
                self.sharing_writes,
                self.writers,
                ShareAccess::WRITE,
            ) || bars(
                mode.deletes(),
                self.sharing_deletion,
                self.deleters,
                ShareAccess::DELETE,
            ))
    }

    /// Whether any of them forbids others to delete the file.
    pub(super) fn forbid_deletion(&self) -> bool {
        self.sharing_deletion < self.taking_part
    }

    /// Whether any of them may delete the file, or is just removing its named streams.
    pub(super) fn remove_streams(&self) -> bool {
        self.deleters > 0 || self.emptying > 0
    }
}

/// Rights of an open that never disturbs an oplock ([MS-FSA] 2.1.4.12, case OPEN).
const OPLOCK_STAT: AccessMask = AccessMask::SYNCHRONIZE
    .union(AccessMask::FILE_READ_ATTRIBUTES)
    .union(AccessMask::FILE_WRITE_ATTRIBUTES);
/// Rights of an open that never disturbs a lease.
const LEASE_STAT: AccessMask = OPLOCK_STAT.union(AccessMask::READ_CONTROL);

/// Whether opening with these rights leaves oplocks alone.
pub(super) fn is_oplock_stat(access: AccessMask) -> bool {
    access.without(OPLOCK_STAT).is_empty()
}

/// Whether opening with these rights leaves leases alone.
pub(super) fn is_lease_stat(access: AccessMask) -> bool {
    access.without(LEASE_STAT).is_empty()
}

impl Inode {
    /// Judges `mode` on `stream` by the share modes of the existing opens. The caching of `own` is not broken.
    pub(super) fn share(
        &mut self,
        stream: &StreamName,
        mode: ShareMode,
        overwrite: bool,
        own: Option<Owner>,
        site: Site<'_>,
        out: &mut Effects,
    ) -> Step {
        let violated = self.violated(stream, mode, overwrite);
        if violated.is_empty() {
            return Step::Go;
        }
        // A client with HANDLE caching may have closed the file long ago, so its caching is broken first.
        let mut waits = false;
        for stream in &violated {
            waits |= self.contend_at(stream, Cause::Violation, own, site, out);
        }
        if waits {
            Step::Wait
        } else {
            Step::Refused(Status::SHARING_VIOLATION)
        }
    }

    /// The streams whose opens conflict with `mode` on `stream`.
    ///
    /// [MS-FSA] 2.1.5.1.2.1: deleting a file deletes its named streams, so an open that may delete the file
    /// conflicts with an open of a stream that does not share deletion. Overwriting the file removes its named
    /// streams as well, until it is complete.
    fn violated(&self, stream: &StreamName, mode: ShareMode, overwrite: bool) -> Vec<StreamName> {
        let counts = |name: &StreamName| self.streams.get(name).map(|one| one.shares);
        let mut violated = Vec::new();
        if stream.is_some() {
            let file = counts(&None).unwrap_or_default();
            if file.remove_streams() && mode.forbids_deletion() {
                violated.push(None);
            }
        }
        if counts(stream).unwrap_or_default().conflict(mode) {
            violated.push(stream.clone());
        }
        if stream.is_none() && (mode.deletes() || overwrite) {
            let named = self.streams.iter().filter(|(name, _)| name.is_some());
            let forbidding = named.filter(|(_, one)| one.shares.forbid_deletion());
            violated.extend(forbidding.map(|(name, _)| name.clone()));
        }
        violated
    }

    pub(super) fn contend(
        &mut self,
        stream: &StreamName,
        cause: Cause,
        spared: impl Fn(&Holder) -> bool,
        site: Site<'_>,
        out: &mut Effects,
    ) -> bool {
        match self.streams.get_mut(stream) {
            Some(stream) => stream.contend(cause, spared, site, out),
            None => false,
        }
    }

    /// As [`Inode::contend`], at a stream other than that of `site`; the caching of `own` is spared.
    fn contend_at(
        &mut self,
        stream: &StreamName,
        cause: Cause,
        own: Option<Owner>,
        site: Site<'_>,
        out: &mut Effects,
    ) -> bool {
        let place = Place {
            key: site.place.key,
            stream: stream.clone(),
        };
        let site = Site {
            place: &place,
            ..site
        };
        let spared = |holder: &Holder| Some(holder.owner) == own;
        self.contend(stream, cause, spared, site, out)
    }

    /// Breaks the caching of the named streams. Returns true if the cause must wait.
    pub(super) fn contend_streams(
        &mut self,
        cause: Cause,
        site: Site<'_>,
        out: &mut Effects,
    ) -> bool {
        let mut waits = false;
        for name in self.open_streams() {
            waits |= self.contend_at(&name, cause, None, site, out);
        }
        waits
    }

    /// Breaks caching for an operation, made through an open or without one. Returns true if it must wait.
    pub(super) fn operate(
        &mut self,
        actor: Actor,
        cause: Cause,
        site: Site<'_>,
        out: &mut Effects,
    ) -> bool {
        let group = match actor {
            Actor::Open(open) | Actor::Opener(open) => {
                self.opens.get(&open).map_or(0, |open| open.group)
            }
            Actor::Stranger => 0,
        };
        let opener = matches!(actor, Actor::Opener(_));
        let spared = |holder: &Holder| {
            // [MS-FSA] 2.1.4.12, BreakToNone: all holders of level II lose it, the writer included.
            let own_two = holder.is_oplock() && !holder.state.intersects(WH);
            holder.group == group && (opener || !own_two || cause != Cause::Change)
        };
        self.contend(&site.place.stream, cause, spared, site, out)
    }

    /// Breaks the leases on this directory, because an entry changed, except the lease that the actor named as its
    /// parent's: [MS-FSA] 2.1.4.12.2 compares the keys of oplocks, and since Windows 8 the key of a lease is its
    /// LeaseKey alone, whichever client holds the lease ([MS-SMB2] 3.3.1.4 <211>).
    pub(super) fn entries_changed(
        &mut self,
        spared: Option<LeaseKey>,
        site: Site<'_>,
        out: &mut Effects,
    ) {
        let spared = |holder: &Holder| match holder.owner {
            Owner::Lease(_, key) => Some(key) == spared,
            _ => false,
        };
        self.contend(&None, Cause::Entries, spared, site, out);
    }
}

impl Files {
    /// Breaks the caching of others that conflicts with an operation. With `Step::Wait`, `waiter` is parked and the
    /// caller asks again when it is woken; without a waiter the breaks are sent and nobody is parked.
    ///
    /// For operations that change data see also [`super::Quick::others_cache`]: it is called before the change, and
    /// once more after the change is on disk.
    pub fn operation(
        &self,
        place: &Place,
        actor: Actor,
        operation: Operation,
        waiter: Option<Waiter>,
    ) -> (Step, Effects) {
        self.ask(place, waiter, |inode, site, effects| {
            if inode.operate(actor, Cause::from(operation), site, effects) {
                Step::Wait
            } else {
                Step::Go
            }
        })
    }

    /// Called when the file of an overwriting open has been overwritten: from now on the open counts by the access
    /// it was granted, `access`.
    pub fn overwritten(&self, place: &Place, open: OpenId, access: AccessMask) {
        self.with(place.key, |inode| {
            if let Some((stream, open)) = inode.stream_of(open) {
                stream.shares.leave(open.mode, open.empties);
                open.mode.access = access;
                open.empties = false;
                stream.shares.enter(open.mode, open.empties);
            }
        });
    }

    /// Whether the share modes of a directory's opens allow a rename or link, which briefly opens the directory, to put
    /// the name of a file or of another directory into it (docs/protocol-notes.md, "A folder that is open for
    /// deletion"). With `Step::Wait`, `waiter` is parked as by [`Files::operation`].
    pub fn admit_entry(&self, parent: &Place, directory: bool, waiter: Waiter) -> (Step, Effects) {
        let mode = ShareMode::of_entry(directory);
        self.ask(parent, Some(waiter), |inode, site, effects| {
            inode.share(&None, mode, false, None, site, effects)
        })
    }

    /// Runs a check on an open inode, and parks `waiter` if the request must wait for other holders.
    fn ask(
        &self,
        place: &Place,
        waiter: Option<Waiter>,
        ask: impl FnOnce(&mut Inode, Site<'_>, &mut Effects) -> Step,
    ) -> (Step, Effects) {
        let mut effects = Effects::default();
        let site = self.site(place);
        let step = self.with(place.key, |inode| {
            match (ask(inode, site, &mut effects), waiter) {
                (Step::Wait, Some(waiter)) if !inode.park(waiter) => {
                    Step::Refused(Status::INSUFFICIENT_RESOURCES)
                }
                (step, _) => step,
            }
        });
        (step, effects)
    }
}

#[cfg(test)]
#[path = "contention_tests.rs"]
mod tests;
