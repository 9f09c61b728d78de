//! The caching that a new open gets ([MS-FSA] 2.1.5.18; [MS-SMB2] 3.3.5.9.8, 3.3.5.9.11).
//!
//! Pure: from the request, the state of the same lease and the other opens of the stream to the state granted.
//! Never more than requested, never less than the lease holds already.

use smb_wire::msg::OplockLevel;

use super::types::{H, LeaseState, NONE, R, W, WH, legal_state, state_of};

/// The other opens and locks of the stream, those of the requesting lease left out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Around {
    /// Somebody else has it open for more than attributes.
    pub(super) open: bool,
    /// All that others' leases hold (a break in flight has not ended it).
    pub(super) leases: LeaseState,
    /// All that others' oplocks hold.
    pub(super) oplocks: LeaseState,
    /// A byte-range lock starts below the allocated bytes.
    pub(super) locks_below: bool,
    /// The stream or its link is marked deleted.
    pub(super) delete_pending: bool,
}

impl Around {
    /// Whether a lease may hold `state` beside all this.
    fn lets_lease(&self, state: LeaseState) -> bool {
        if state.is_empty() {
            return true;
        }
        // [MS-FSA] 2.1.5.18.1: to hold W, be alone.
        // [MS-FSA] 2.1.5.18.2: R and RH live beside each other, not beside exclusive ones, nor
        // beside locks; H not beside oplocks, nor on what is being deleted.
        let held = self.leases | self.oplocks;
        let beside = if state.contains(W) {
            !self.open && held.is_empty()
        } else {
            !held.contains(W) && !self.locks_below
        };
        beside && (!state.contains(H) || (self.oplocks.is_empty() && !self.delete_pending))
    }

    /// Whether an oplock that stands for `state` may be held beside all this.
    fn lets_oplock(&self, state: LeaseState) -> bool {
        let held = self.leases | self.oplocks;
        if state.contains(W) {
            !self.open && held.is_empty()
        } else {
            !held.intersects(WH) && !self.locks_below
        }
    }
}

/// The state of a new lease that asks for `asked`. Not granted: again without W, then without H.
pub(super) fn lease(asked: LeaseState, directory: bool, around: &Around) -> LeaseState {
    let asked = legal_state(asked, directory);
    [asked, asked.without(W), asked.without(WH)]
        .into_iter()
        .find(|state| around.lets_lease(*state))
        .unwrap_or(NONE)
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
    if asked.contains(held) && around.lets_lease(asked) {
        asked
    } else {
        held
    }
}

/// The state of a new oplock; without the exclusive level, II.
pub(super) fn oplock(level: OplockLevel, directory: bool, around: &Around) -> LeaseState {
    // [MS-FSA] 2.1.5.18: a directory knows leases only.
    if directory {
        return NONE;
    }
    let asked = state_of(level);
    [asked, asked & R]
        .into_iter()
        .find(|state| around.lets_oplock(*state))
        .unwrap_or(NONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RW: LeaseState = LeaseState(5);
    const RH: LeaseState = LeaseState(3);
    const RWH: LeaseState = LeaseState(7);

    #[test]
    fn leases_by_surroundings() {
        let alone = Around::default();
        let open = Around {
            open: true,
            ..alone
        };
        let rh = Around {
            leases: RH,
            open: true,
            ..alone
        };
        let two = Around {
            oplocks: R,
            open: true,
            ..alone
        };
        let locked = Around {
            locks_below: true,
            open: true,
            ..alone
        };
        let exclusive = Around {
            leases: RW,
            ..alone
        };
        let deleted = Around {
            delete_pending: true,
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
            (RWH, deleted, R),
            (RW, deleted, RW),
            (RH, deleted, R),
            (H, alone, NONE),
            (W, alone, NONE),
            (WH, alone, NONE),
            (LeaseState(0xf8), alone, NONE),
        ] {
            let granted = lease(asked, false, &around);
            assert_eq!(granted, expected, "{asked:?} {around:?}");
        }
        assert_eq!(lease(RWH, true, &alone), RH);
        assert_eq!(lease(RW, true, &alone), R);
        for (asked, held, around, expected) in [
            (R, RH, alone, RH),
            (RWH, RH, alone, RWH),
            (RWH, RH, open, RH),
            (RW, RH, alone, RH),
            (RWH, R, locked, R),
            // All of what is asked or nothing of it.
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
        let open = Around {
            open: true,
            ..alone
        };
        let rh = Around {
            leases: RH,
            open: true,
            ..alone
        };
        let read = Around {
            leases: R,
            open: true,
            ..alone
        };
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
                oplock(level, false, &around),
                expected,
                "{level:?} {around:?}"
            );
        }
        assert_eq!(oplock(OplockLevel::BATCH, true, &alone), NONE);
    }
}
