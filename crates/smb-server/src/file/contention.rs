//! Conflicts of a request with the opens of an inode: share modes ([MS-FSA] 2.1.5.1.2.1, 2.1.5.1.2.2) and caching
//! (2.1.4.12).
//!
//! Decides whether two opens of one stream can live together, which streams of an inode a request concerns, and which
//! caching it does not break. `caching` decides how a single holder is broken.

use smb_wire::{Status, access_mask::AccessMask, ids::LeaseKey, msg::ShareAccess};

use super::caching::{Cause, Holder, Site};
use super::files::Files;
use super::inode::Inode;
use super::types::{Actor, Effects, Operation, Owner, Place, Step, StreamName, WH, WaiterId};

/// Rights that read data.
const READERS: AccessMask = AccessMask::FILE_READ_DATA.union(AccessMask::FILE_EXECUTE);
/// Rights that write data.
const WRITERS: AccessMask = AccessMask::FILE_WRITE_DATA.union(AccessMask::FILE_APPEND_DATA);
/// Rights that take part in sharing at all.
const SHARED: AccessMask = READERS.union(WRITERS).union(AccessMask::DELETE);

/// Rights of an open that never disturbs an oplock ([MS-FSA] 2.1.4.12, case OPEN).
const OPLOCK_STAT: AccessMask = AccessMask::SYNCHRONIZE
    .union(AccessMask::FILE_READ_ATTRIBUTES)
    .union(AccessMask::FILE_WRITE_ATTRIBUTES);
/// Rights of an open that never disturbs a lease.
const LEASE_STAT: AccessMask = OPLOCK_STAT.union(AccessMask::READ_CONTROL);

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
        let both = ShareAccess::READ | ShareAccess::WRITE;
        if directory {
            Self {
                access: AccessMask::FILE_ADD_SUBDIRECTORY,
                share: both | ShareAccess::DELETE,
            }
        } else {
            Self {
                access: AccessMask::FILE_ADD_FILE,
                share: both,
            }
        }
    }

    /// Whether the open reads, writes or deletes: an open that does none of these never conflicts.
    pub(super) fn takes_part(self) -> bool {
        self.access.intersects(SHARED)
    }

    /// Whether the open may change data.
    pub(super) fn writes(self) -> bool {
        self.access.intersects(WRITERS)
    }

    /// Whether `other` forbids what this open does.
    fn forbidden_by(self, other: ShareAccess) -> bool {
        (self.access.intersects(READERS) && !other.contains(ShareAccess::READ))
            || (self.access.intersects(WRITERS) && !other.contains(ShareAccess::WRITE))
            || (self.access.intersects(AccessMask::DELETE) && !other.contains(ShareAccess::DELETE))
    }

    /// Whether the two cannot be open at the same time. Symmetric.
    pub(super) fn conflicts(self, other: Self) -> bool {
        // [MS-FSA] 2.1.5.1.2.2: checked only if both read, write or delete; then both ways.
        self.takes_part()
            && other.takes_part()
            && (self.forbidden_by(other.share) || other.forbidden_by(self.share))
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

    /// Judges whether a name may be put into this directory by a rename or link, which briefly opens the directory for
    /// that.
    pub(super) fn admit_entry(
        &mut self,
        directory: bool,
        site: Site<'_>,
        out: &mut Effects,
    ) -> Step {
        let mode = ShareMode::of_entry(directory);
        self.share(&None, mode, false, None, site, out)
    }

    /// The streams whose opens conflict with `mode` on `stream`.
    ///
    /// [MS-FSA] 2.1.5.1.2.1: deleting a file deletes its named streams, so an open that may delete the file
    /// conflicts with an open of a stream that does not share deletion. Overwriting the file removes its named
    /// streams as well, until it is complete.
    fn violated(&self, stream: &StreamName, mode: ShareMode, overwrite: bool) -> Vec<StreamName> {
        let mut violated: Vec<StreamName> = self
            .opens
            .values()
            .filter(|open| match (stream, &open.stream) {
                (one, other) if one == other => mode.conflicts(open.mode),
                (None, _) => (mode.deletes() || overwrite) && open.mode.forbids_deletion(),
                (Some(_), None) => (open.mode.deletes() || open.empties) && mode.forbids_deletion(),
                (Some(_), Some(_)) => false,
            })
            .map(|open| open.stream.clone())
            .collect();
        violated.sort_unstable();
        violated.dedup();
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
    /// parent's: [MS-FSA] 2.1.4.12.2 compares the keys of oplocks, and since Windows 8 that of a lease is the LeaseKey
    /// alone, whichever client holds it ([MS-SMB2] 3.3.1.4 <211>).
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
        waiter: Option<WaiterId>,
    ) -> (Step, Effects) {
        self.ask(place, waiter, |inode, site, effects| {
            if inode.operate(actor, Cause::from(operation), site, effects) {
                Step::Wait
            } else {
                Step::Go
            }
        })
    }

    /// Whether the share modes of a directory's opens allow a rename or link to put a name into it, that of a file or
    /// of another directory. With `Step::Wait`, `waiter` is parked as by [`Files::operation`].
    pub fn admit_entry(
        &self,
        parent: &Place,
        directory: bool,
        waiter: WaiterId,
    ) -> (Step, Effects) {
        self.ask(parent, Some(waiter), |inode, site, effects| {
            inode.admit_entry(directory, site, effects)
        })
    }

    /// Runs a check on an open inode, and parks `waiter` if the request must wait for other holders.
    fn ask(
        &self,
        place: &Place,
        waiter: Option<WaiterId>,
        ask: impl FnOnce(&mut Inode, Site<'_>, &mut Effects) -> Step,
    ) -> (Step, Effects) {
        let mut effects = Effects::default();
        let next_ticket = || self.next_ticket();
        let site = Site {
            place,
            next_ticket: &next_ticket,
        };
        let step = self.with(place.key, false, |inode| {
            match (ask(inode, site, &mut effects), waiter) {
                (Step::Wait, Some(waiter)) if !inode.park(waiter) => {
                    Step::Refused(Status::INSUFFICIENT_RESOURCES)
                }
                (step, _) => step,
            }
        });
        (step.unwrap_or(Step::Go), effects)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(access: AccessMask, share: u32) -> ShareMode {
        ShareMode {
            access,
            share: ShareAccess(share),
        }
    }

    #[test]
    fn pairs_are_checked_both_ways() {
        let read = AccessMask::FILE_READ_DATA;
        let write = AccessMask::FILE_APPEND_DATA;
        let delete = AccessMask::DELETE;
        for (a, b, conflict) in [
            (mode(read, 1), mode(read, 1), false),
            (mode(read, 0), mode(read, 1), true),
            (mode(read, 3), mode(write, 1), false),
            (mode(read, 1), mode(write, 1), true),
            (mode(read, 3), mode(write, 2), true),
            (mode(delete, 7), mode(read, 3), true),
            (mode(delete, 1), mode(read, 4), false),
            (mode(AccessMask::FILE_EXECUTE, 7), mode(write, 6), true),
            (
                mode(AccessMask::FILE_READ_ATTRIBUTES, 0),
                mode(write, 0),
                false,
            ),
            (mode(AccessMask::FILE_READ_EA, 0), mode(delete, 0), false),
        ] {
            assert_eq!(a.conflicts(b), conflict, "{a:?} {b:?}");
            assert_eq!(b.conflicts(a), conflict, "{b:?} {a:?}");
        }
    }

    #[test]
    fn deletion_is_forbidden_by_who_touches_data_and_does_not_share_it() {
        assert!(mode(AccessMask::FILE_READ_DATA, 3).forbids_deletion());
        assert!(!mode(AccessMask::FILE_READ_DATA, 4).forbids_deletion());
        assert!(!mode(AccessMask::FILE_READ_ATTRIBUTES, 0).forbids_deletion());
        assert!(mode(AccessMask::DELETE, 7).deletes());
        assert!(!mode(AccessMask::FILE_WRITE_DATA, 7).deletes());
    }

    #[test]
    fn stat_opens_differ_for_oplocks_and_leases() {
        let control = AccessMask::READ_CONTROL | AccessMask::SYNCHRONIZE;
        assert!(is_lease_stat(control) && !is_oplock_stat(control));
        assert!(is_oplock_stat(AccessMask::FILE_WRITE_ATTRIBUTES));
        assert!(!is_lease_stat(AccessMask::FILE_READ_EA));
    }
}
