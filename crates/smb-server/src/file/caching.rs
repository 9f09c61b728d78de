//! Oplocks and leases of one stream: the caching that a new open gets ([MS-FSA] 2.1.5.18; [MS-SMB2] 3.3.5.9.8,
//! 3.3.5.9.11), how they break and how breaks end.
//!
//! Owns the [`Holder`]s of a stream. Both kinds have one representation: an oplock is a holder with one open and the
//! caching its level stands for (II is R, EXCLUSIVE is RW, BATCH is RWH); where the rules differ ([MS-FSA] 2.1.4.12),
//! [`Holder::breaks_to`] says so. An open never gets more than it requests, nor less than its lease holds already.
//!
//! Invariants: a holder keeps its old state until it acknowledges (others must wait for it), or loses it at once if no
//! acknowledgment is required; the state offered by a break in flight is below the state held; `required` is below what
//! was offered or equal; an epoch only grows. Nothing waits here: callers learn whether they must wait.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use smb_wire::Status;
use smb_wire::create_context::{LeaseFlags, LeaseV2};
use smb_wire::ids::LeaseKey;
use smb_wire::msg::OplockLevel;

use super::types::{
    Break, CacheGrant, Effects, H, LeaseContext, LeaseState, NONE, OpenId, Operation, Owner, Place,
    R, W, WH, legal_state, level_of, state_of,
};

/// The other opens and locks of the stream, without those of the requesting lease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Around {
    /// Another open of the stream, even one of the same client, is for more than attributes.
    pub(super) open: bool,
    /// All caching that others' leases hold, including caching whose break is still in flight.
    pub(super) leases: LeaseState,
    /// All caching that others' oplocks hold.
    pub(super) oplocks: LeaseState,
    /// A byte-range lock starts within the allocated bytes.
    pub(super) locks_below: bool,
}

impl Around {
    /// Whether a lease may hold `state` in this situation.
    fn lets_lease(&self, state: LeaseState) -> bool {
        if state.is_empty() {
            return true;
        }
        // [MS-FSA] 2.1.5.18.1: W is granted only to the sole opener. [MS-FSA] 2.1.5.18.2: R and RH are granted beside
        // each other, but not beside exclusive caching or locks. H is not granted beside oplocks. (A stream that is
        // being deleted, where it is not granted either, cannot be opened.)
        let held = self.leases | self.oplocks;
        let beside = if state.contains(W) {
            !self.open && held.is_empty()
        } else {
            !held.contains(W) && !self.locks_below
        };
        beside && (!state.contains(H) || self.oplocks.is_empty())
    }

    /// Whether an oplock that stands for `state` may be held in this situation.
    fn lets_oplock(&self, state: LeaseState) -> bool {
        let held = self.leases | self.oplocks;
        if state.contains(W) {
            !self.open && held.is_empty()
        } else {
            !held.intersects(WH) && !self.locks_below
        }
    }
}

/// The state of a new lease that asks for `asked`. If it cannot be granted, it is tried without W, then without H.
pub(super) fn granted_lease(asked: LeaseState, directory: bool, around: &Around) -> LeaseState {
    let asked = legal_state(asked, directory);
    let mut states = [asked, asked.without(W), asked.without(WH)].into_iter();
    states.find(|one| around.lets_lease(*one)).unwrap_or(NONE)
}

/// The state of a lease that holds `held` and requests `asked`: a superset, all of it, or the held state ([MS-SMB2]
/// 3.3.5.9.8). The caching of others is not broken for it.
pub(super) fn promotion(
    asked: LeaseState,
    held: LeaseState,
    directory: bool,
    around: &Around,
) -> LeaseState {
    let asked = legal_state(asked, directory);
    let fits = asked.contains(held) && around.lets_lease(asked);
    if fits { asked } else { held }
}

/// The state of a new oplock; if the exclusive level cannot be granted, level II.
pub(super) fn granted_oplock(level: OplockLevel, directory: bool, around: &Around) -> LeaseState {
    // [MS-FSA] 2.1.5.18: a directory knows leases only.
    if directory {
        return NONE;
    }
    let asked = state_of(level);
    let mut states = [asked, asked & R].into_iter();
    states.find(|one| around.lets_oplock(*one)).unwrap_or(NONE)
}

/// Why a holder is asked to give something up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    /// Another open, before its share mode is judged: only BATCH matters.
    BatchFirst { overwrite: bool },
    /// Another open whose share mode conflicts.
    Violation,
    /// Another open whose share mode does not conflict.
    Open { overwrite: bool },
    /// Data changes or is locked.
    Change,
    /// Data is read or flushed.
    Read,
    /// The file is renamed or linked.
    Rename,
    /// The file is to be deleted, or its security changes.
    Handle,
    /// An entry of the directory changes.
    Entries,
}

impl From<Operation> for Cause {
    fn from(operation: Operation) -> Self {
        match operation {
            Operation::Read | Operation::Flush => Self::Read,
            Operation::Write | Operation::Lock | Operation::ZeroData | Operation::SetSize => {
                Self::Change
            }
            Operation::Rename | Operation::Link => Self::Rename,
            Operation::Delete | Operation::SetSecurity => Self::Handle,
        }
    }
}

/// A break that awaits its acknowledgment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Breaking {
    /// Names this break, so that a late timer does not end the next one.
    pub(super) ticket: u64,
    /// The state that the notification offered.
    pub(super) offered: LeaseState,
    /// The state that may remain in the end; lowered while the break is in flight.
    pub(super) required: LeaseState,
    /// It was lowered, or is one of several steps: opens wait for the whole chain.
    pub(super) chain: bool,
}

/// One oplock or lease on one stream.
#[derive(Debug)]
pub(super) struct Holder {
    pub(super) owner: Owner,
    /// The number of the holder's group in `Quick`; never 0.
    pub(super) group: u64,
    pub(super) state: LeaseState,
    pub(super) breaking: Option<Breaking>,
    /// The last break took effect without an acknowledgment.
    pub(super) unasked: bool,
    /// Grows with every change of state; reported only for version 2.
    pub(super) epoch: u16,
    pub(super) v2: bool,
    pub(super) parent: Option<LeaseKey>,
    pub(super) opens: BTreeSet<OpenId>,
}

/// The place of a break, and the engine's source of tickets.
#[derive(Clone, Copy)]
pub(super) struct Site<'a> {
    pub(super) place: &'a Place,
    pub(super) tickets: &'a AtomicU64,
}

impl Site<'_> {
    pub(super) fn next_ticket(self) -> u64 {
        self.tickets.fetch_add(1, Ordering::Relaxed)
    }
}

impl Holder {
    /// A holder without opens.
    pub(super) fn new(owner: Owner, group: u64, state: LeaseState) -> Self {
        Self {
            owner,
            group,
            state,
            breaking: None,
            unasked: false,
            epoch: 0,
            v2: false,
            parent: None,
            opens: BTreeSet::new(),
        }
    }

    pub(super) fn is_oplock(&self) -> bool {
        matches!(self.owner, Owner::Oplock(_))
    }

    /// The caching that `cause` leaves this holder, and the part of the held caching for which the cause must wait.
    fn breaks_to(&self, cause: Cause) -> (LeaseState, LeaseState) {
        // A break in flight may already require more; `contend` combines the two.
        let held = self.state;
        if self.is_oplock() {
            // [MS-FSA] 2.1.4.12: BreakToTwo, BreakToNone; nothing else changes an oplock.
            let two = held & R;
            match cause {
                Cause::BatchFirst { .. } if !self.state.contains(H) => (held, NONE),
                Cause::BatchFirst { overwrite } | Cause::Open { overwrite } if overwrite => {
                    (NONE, W)
                }
                Cause::BatchFirst { .. } | Cause::Open { .. } | Cause::Read => {
                    (if self.state.contains(W) { two } else { held }, W)
                }
                Cause::Change | Cause::Entries => (NONE, W),
                Cause::Rename if self.state.contains(H) => (NONE, W),
                Cause::Violation | Cause::Rename | Cause::Handle => (held, NONE),
            }
        } else {
            match cause {
                Cause::BatchFirst { .. } => (held, NONE),
                Cause::Violation | Cause::Rename | Cause::Handle => (held.without(H), H),
                // [MS-FSA] 2.1.4.12: BreakCacheState READ|WRITE takes all caching; a holder that loses only R or RH is
                // not waited for.
                Cause::Open { overwrite: true } | Cause::Change => (NONE, W),
                Cause::Entries => (NONE, NONE),
                Cause::Open { overwrite: false } | Cause::Read => (held.without(W), W),
            }
        }
    }

    /// Breaks as much caching as `cause` requires. Returns true if the cause must wait for the holder.
    pub(super) fn contend(&mut self, cause: Cause, site: Site<'_>, out: &mut Effects) -> bool {
        let (target, wait_for) = self.breaks_to(cause);
        // The caching held before the break decides what the operation must wait for.
        let waits = self.state.intersects(wait_for);
        match &mut self.breaking {
            Some(breaking) => {
                let lower = breaking.required & target;
                if lower != breaking.required {
                    // A second break while one is in flight is remembered and sent after the acknowledgment.
                    breaking.required = lower;
                    breaking.chain = true;
                }
                let open = matches!(cause, Cause::Open { .. } | Cause::Violation);
                return waits || (open && breaking.chain);
            }
            None if self.state.without(target).is_empty() => {}
            None => self.send(target, target, false, site, out),
        }
        waits
    }

    /// Sends one notification. The last step, from R alone, happens at once.
    fn send(
        &mut self,
        offered: LeaseState,
        required: LeaseState,
        chain: bool,
        site: Site<'_>,
        out: &mut Effects,
    ) {
        // [MS-SMB2] 3.3.4.7: a lease of R alone needs no acknowledgment; nor does level II.
        let ack_required = self.state != R;
        let ticket = site.next_ticket();
        self.epoch = self.epoch.wrapping_add(1);
        let notified = self.notification(site.place, offered, ticket);
        out.breaks.push(Break {
            ack_required,
            ..notified
        });
        if ack_required {
            self.breaking = Some(Breaking {
                ticket,
                offered,
                required,
                chain,
            });
        } else {
            self.state = offered;
            self.unasked = true;
        }
    }

    /// A break of the present state that the holder must acknowledge.
    pub(super) fn notification(&self, place: &Place, offered: LeaseState, ticket: u64) -> Break {
        Break {
            owner: self.owner,
            place: place.clone(),
            opens: self.opens.iter().copied().collect(),
            current: self.state,
            new: offered,
            epoch: if self.v2 { self.epoch } else { 0 },
            ack_required: true,
            ticket,
        }
    }

    /// The holder keeps `kept` of what it was offered; if more must be given up, another break follows.
    fn keep_after_break(&mut self, kept: LeaseState, site: Site<'_>, out: &mut Effects) {
        let Some(breaking) = self.breaking.take() else {
            return;
        };
        self.state = kept;
        if self.state.without(breaking.required).is_empty() {
            return;
        }
        // The break goes in steps: R stays until W and H are gone.
        let keep_read = R.when(self.state.intersects(WH));
        let offered = (breaking.required | keep_read) & self.state;
        self.send(offered, breaking.required, true, site, out);
    }

    /// [MS-SMB2] 3.3.5.22.2: a lease break acknowledgment.
    pub(super) fn acknowledge_lease(
        &mut self,
        state: LeaseState,
        site: Site<'_>,
        out: &mut Effects,
    ) -> Result<LeaseState, Status> {
        let Some(breaking) = self.breaking else {
            return Err(Status::UNSUCCESSFUL);
        };
        Status::REQUEST_NOT_ACCEPTED.when(!breaking.offered.contains(state))?;
        // A lease cannot have a state without R, so it counts as none.
        let kept = if state.contains(R) { state } else { NONE };
        self.keep_after_break(kept, site, out);
        Ok(kept)
    }

    /// [MS-SMB2] 3.3.5.22.1: an oplock break acknowledgment. A wrong one ends the oplock.
    pub(super) fn acknowledge_oplock(
        &mut self,
        level: OplockLevel,
        site: Site<'_>,
        out: &mut Effects,
    ) -> Result<OplockLevel, Status> {
        let held = level_of(self.state);
        if self.breaking.is_none() {
            // [MS-SMB2] 3.3.4.6: a break from level II makes the oplock Breaking as well, and the
            // object store then refuses the acknowledgment ([MS-FSA] 2.1.5.19).
            return Err(if std::mem::take(&mut self.unasked) {
                Status::INVALID_OPLOCK_PROTOCOL
            } else {
                not_breaking(held, level)
            });
        }
        let (kept, answer) = match level {
            OplockLevel::NONE => (NONE, Ok(OplockLevel::NONE)),
            OplockLevel::II => {
                let offered = self.breaking.is_some_and(|b| b.offered.contains(R));
                // If level II was not offered, [MS-FSA] 2.1.5.19 leaves none, without an error.
                let kept = R.when(offered);
                (kept, Ok(level_of(kept)))
            }
            OplockLevel::EXCLUSIVE if held == OplockLevel::BATCH => (NONE, Ok(OplockLevel::NONE)),
            OplockLevel::LEASE => (NONE, Err(Status::INVALID_PARAMETER)),
            _ => (NONE, Err(Status::INVALID_OPLOCK_PROTOCOL)),
        };
        self.keep_after_break(kept, site, out);
        answer
    }

    /// Whether this break awaits its acknowledgment. The key of a lease that is to be deleted may be bound again, so
    /// two holders of an inode may have one owner ([MS-SMB2] 3.3.5.9.8).
    pub(super) fn is_breaking(&self, owner: Owner, ticket: u64) -> bool {
        self.owner == owner && self.breaking.is_some_and(|b| b.ticket == ticket)
    }

    /// Ends the break in flight without an acknowledgment: its time ran out, or it cannot be sent. [MS-SMB2]
    /// 3.3.6.1, 3.3.6.5: completed with NONE.
    pub(super) fn give_up(&mut self) {
        self.breaking = None;
        self.state = NONE;
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// Enters an open, and returns its caching and its group.
    pub(super) fn enter(&mut self, open: OpenId) -> (CacheGrant, u64) {
        self.opens.insert(open);
        (self.grant(), self.group)
    }

    /// The caching that a CREATE's reply reports of this holder.
    pub(super) fn grant(&self) -> CacheGrant {
        match self.owner {
            Owner::Oplock(_) => match level_of(self.state) {
                OplockLevel::NONE => CacheGrant::None,
                level => CacheGrant::Oplock(level),
            },
            Owner::Lease(_, lease_key) => CacheGrant::Lease(LeaseContext {
                lease_key,
                lease_state: self.state,
                flags: LeaseFlags::BREAK_IN_PROGRESS.when(self.breaking.is_some())
                    | LeaseFlags::PARENT_LEASE_KEY_SET.when(self.v2 && self.parent.is_some()),
                v2: self.v2.then(|| LeaseV2 {
                    parent_lease_key: self.parent.unwrap_or_default(),
                    epoch: self.epoch,
                }),
            }),
        }
    }
}

/// The status of an acknowledgment of an oplock that is not breaking. [MS-SMB2] 3.3.5.22.1 has one for all levels;
/// Windows examines the level first (docs/protocol-notes.md, "An acknowledgment that nobody awaits").
pub(super) fn not_breaking(held: OplockLevel, level: OplockLevel) -> Status {
    match (held, level) {
        (_, OplockLevel::LEASE) => Status::INVALID_PARAMETER,
        (OplockLevel::NONE, _)
        | (_, OplockLevel::NONE)
        | (OplockLevel::EXCLUSIVE | OplockLevel::BATCH, OplockLevel::II) => {
            Status::INVALID_DEVICE_STATE
        }
        _ => Status::INVALID_OPLOCK_PROTOCOL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RW: LeaseState = LeaseState(5);
    const RH: LeaseState = LeaseState(3);
    const RWH: LeaseState = LeaseState(7);

    /// Surroundings with other opens, some of which have leases of this state.
    fn open_with(leases: LeaseState) -> Around {
        Around {
            leases,
            open: true,
            ..Around::default()
        }
    }

    #[test]
    fn leases_by_surroundings() {
        let alone = Around::default();
        let (open, rh) = (open_with(NONE), open_with(RH));
        let two = Around { oplocks: R, ..open };
        let locked = Around {
            locks_below: true,
            ..open
        };
        let exclusive = Around {
            leases: RW,
            ..alone
        };
        for (asked, around, expected) in [
            (RWH, alone, RWH),
            (RWH, open, RH),
            (RW, open, R),
            (RWH, rh, RH),
            (RWH, two, R),
            (RWH, locked, NONE),
            (R, exclusive, NONE),
            (H, alone, NONE),
            (W, alone, NONE),
            (WH, alone, NONE),
            (LeaseState(0xf8), alone, NONE),
        ] {
            let granted = granted_lease(asked, false, &around);
            assert_eq!(granted, expected, "{asked:?} {around:?}");
        }
        assert_eq!(granted_lease(RWH, true, &alone), RH);
        assert_eq!(granted_lease(RW, true, &alone), R);
        for (asked, held, around, expected) in [
            (R, RH, alone, RH),
            (RWH, RH, alone, RWH),
            (RWH, RH, open, RH),
            (RW, RH, alone, RH),
            (RWH, R, locked, R),
            // A lease gets all that it asks for or nothing.
            (RWH, R, open, R),
            (RH, R, open, RH),
            (RWH, NONE, open, NONE),
        ] {
            let promoted = promotion(asked, held, false, &around);
            assert_eq!(promoted, expected, "{asked:?} {held:?} {around:?}");
        }
    }

    #[test]
    fn oplocks_by_surroundings() {
        let alone = Around::default();
        let [open, rh, read] = [NONE, RH, R].map(open_with);
        for (level, around, expected) in [
            (OplockLevel::BATCH, alone, RWH),
            (OplockLevel::EXCLUSIVE, alone, RW),
            (OplockLevel::II, alone, R),
            (OplockLevel::BATCH, open, R),
            (OplockLevel::EXCLUSIVE, read, R),
            (OplockLevel::II, rh, NONE),
            (OplockLevel::NONE, alone, NONE),
            (OplockLevel::LEASE, alone, NONE),
        ] {
            assert_eq!(
                granted_oplock(level, false, &around),
                expected,
                "{level:?} {around:?}"
            );
        }
        assert_eq!(granted_oplock(OplockLevel::BATCH, true, &alone), NONE);
    }
}
