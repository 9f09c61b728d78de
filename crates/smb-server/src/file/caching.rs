//! Oplocks and leases of one stream: how they break and how breaks end.
//!
//! Owns the [`Holder`]s of a stream. Both kinds are kept as one: an oplock is a holder with one
//! open and the caching its level stands for (II is R, EXCLUSIVE is RW, BATCH is RWH); where the
//! rules differ ([MS-FSA] 2.1.4.12), [`Holder::breaks_to`] says so. `grant` decides what a new
//! open gets.
//!
//! Invariants: a holder keeps its old state until it acknowledges (others must wait for it), or
//! loses it at once where no acknowledgment is asked for; the state offered by a break in flight
//! is below the state held; `required` is below what was offered or equal; an epoch only grows.
//! Nobody waits here: callers learn whether they must.

use std::collections::BTreeSet;

use smb_wire::Status;
use smb_wire::ids::LeaseKey;
use smb_wire::msg::OplockLevel;

use super::types::{
    Break, CacheGrant, Effects, H, LeaseState, NONE, OpenId, Operation, Owner, Place, R, W, WH,
    level_of,
};

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
    /// Names the group in `Quick`; never 0.
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

/// Hands out tickets; one per engine.
pub(super) type NextTicket<'a> = &'a dyn Fn() -> u64;

/// Where a break happens, and how to number it.
#[derive(Clone, Copy)]
pub(super) struct Site<'a> {
    pub(super) place: &'a Place,
    pub(super) next_ticket: NextTicket<'a>,
}

impl Holder {
    pub(super) fn is_oplock(&self) -> bool {
        matches!(self.owner, Owner::Oplock(_))
    }

    /// What `cause` leaves of this holder's caching, and which part of what is held the cause
    /// must wait for.
    fn breaks_to(&self, cause: Cause) -> (LeaseState, LeaseState) {
        // Of a break in flight more may be required already: `contend` combines the two.
        let held = self.state;
        if self.is_oplock() {
            // [MS-FSA] 2.1.4.12: BreakToTwo, BreakToNone; nothing else moves an oplock.
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
                // [MS-FSA] 2.1.4.12: BreakCacheState READ|WRITE takes all; who loses only R or
                // RH is not waited for.
                Cause::Open { overwrite: true } | Cause::Change => (NONE, W),
                Cause::Entries => (NONE, NONE),
                Cause::Open { overwrite: false } | Cause::Read => (held.without(W), W),
            }
        }
    }

    /// Breaks as far as `cause` asks. True if the cause must wait for the holder.
    pub(super) fn contend(&mut self, cause: Cause, site: Site<'_>, out: &mut Effects) -> bool {
        let (target, wait_for) = self.breaks_to(cause);
        // The caching held before the break decides what the operation must wait for.
        let waits = self.state.intersects(wait_for);
        match &mut self.breaking {
            Some(breaking) => {
                let lower = breaking.required & target;
                if lower != breaking.required {
                    // Second break while one is in flight: remembered, sent after the ack.
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
        let ticket = (site.next_ticket)();
        self.epoch = self.epoch.wrapping_add(1);
        out.breaks.push(Break {
            owner: self.owner,
            place: site.place.clone(),
            opens: self.opens.iter().copied().collect(),
            current: self.state,
            new: offered,
            epoch: if self.v2 { self.epoch } else { 0 },
            ack_required,
            ticket,
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

    /// The holder keeps `kept` of what it was offered; whatever more is required follows.
    fn settle(&mut self, kept: LeaseState, site: Site<'_>, out: &mut Effects) {
        let Some(breaking) = self.breaking.take() else {
            return;
        };
        self.state = kept;
        if self.state.without(breaking.required).is_empty() {
            return;
        }
        // In steps: R stays until W and H are gone.
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
        if !breaking.offered.contains(state) {
            return Err(Status::REQUEST_NOT_ACCEPTED);
        }
        // A state without R is none that a lease can have: nothing is claimed from it.
        let kept = if state.contains(R) { state } else { NONE };
        self.settle(kept, site, out);
        Ok(kept)
    }

    /// [MS-SMB2] 3.3.5.22.1: an oplock break acknowledgment. A wrong one ends the oplock.
    pub(super) fn acknowledge_oplock(
        &mut self,
        level: OplockLevel,
        site: Site<'_>,
        out: &mut Effects,
    ) -> Result<OplockLevel, Status> {
        if self.breaking.is_none() {
            // [MS-SMB2] 3.3.4.6: a break from level II makes the oplock Breaking as well, and the
            // object store then refuses the acknowledgment ([MS-FSA] 2.1.5.19).
            return Err(if std::mem::take(&mut self.unasked) {
                Status::INVALID_OPLOCK_PROTOCOL
            } else {
                Status::INVALID_DEVICE_STATE
            });
        }
        let held = level_of(self.state);
        let (kept, answer) = match level {
            OplockLevel::NONE => (NONE, Ok(OplockLevel::NONE)),
            OplockLevel::II => {
                let offered = self.breaking.is_some_and(|b| b.offered.contains(R));
                // Never offered to keep II: [MS-FSA] 2.1.5.19 gives none, without an error.
                let kept = R.when(offered);
                (kept, Ok(level_of(kept)))
            }
            OplockLevel::EXCLUSIVE if held == OplockLevel::BATCH => (NONE, Ok(OplockLevel::NONE)),
            OplockLevel::LEASE => (NONE, Err(Status::INVALID_PARAMETER)),
            _ => (NONE, Err(Status::INVALID_OPLOCK_PROTOCOL)),
        };
        self.settle(kept, site, out);
        answer
    }

    /// Ends the break in flight without an acknowledgment: its time ran out, or it cannot be sent. [MS-SMB2]
    /// 3.3.6.1, 3.3.6.5: completed with NONE. Returns false if it is not in flight.
    pub(super) fn give_up(&mut self, ticket: u64) -> bool {
        let found = self.breaking.is_some_and(|b| b.ticket == ticket);
        if found {
            self.breaking = None;
            self.state = NONE;
            self.epoch = self.epoch.wrapping_add(1);
        }
        found
    }

    /// The caching that a CREATE's reply reports of this holder.
    pub(super) fn grant(&self) -> CacheGrant {
        match self.owner {
            Owner::Oplock(_) => match level_of(self.state) {
                OplockLevel::NONE => CacheGrant::None,
                level => CacheGrant::Oplock(level),
            },
            Owner::Lease(_, key) => CacheGrant::Lease {
                key,
                state: self.state,
                v2: self.v2,
                epoch: if self.v2 { self.epoch } else { 0 },
                breaking: self.breaking.is_some(),
                parent: self.parent,
            },
        }
    }
}
