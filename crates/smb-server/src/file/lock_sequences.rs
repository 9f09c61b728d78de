//! The lock sequences of an open, by which a LOCK that is sent again is recognized ([MS-SMB2] 3.3.5.14).

use std::collections::BTreeMap;

use super::files::Files;
use super::types::{OpenId, Place};

/// Buckets of Open.LockSequenceArray ([MS-SMB2] 3.3.1.10).
pub(crate) const LOCK_SEQUENCES_MAX: u32 = 64;

/// LockSequence of a LOCK request, if it is to be verified (the caller knows the dialect and
/// whether the open is durable).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockSequence {
    /// The bucket, 1 to 64; others are not verified.
    pub index: u32,
    /// The number, 0 to 15.
    pub number: u8,
}

/// Open.LockSequenceArray ([MS-SMB2] 3.3.1.10): the last number each bucket succeeded with, and whether a replay was
/// answered with success.
#[derive(Debug, Default)]
pub(super) struct LockSequences {
    valid: BTreeMap<u32, (u8, bool)>,
}

impl LockSequences {
    /// Whether the request was carried out before. If not, its bucket becomes invalid until the request succeeds
    /// ([MS-SMB2] 3.3.5.14).
    pub(super) fn is_replay(&mut self, sequence: LockSequence) -> bool {
        let known = self.knows(sequence);
        if !known {
            self.valid.remove(&sequence.index);
        }
        known
    }

    /// Whether the request was carried out before.
    fn knows(&self, sequence: LockSequence) -> bool {
        let valid = self.valid.get(&sequence.index);
        valid.is_some_and(|(number, _)| *number == sequence.number)
    }

    /// Forgets the number of a request that succeeded and is to be undone. False if a replay of it was answered with
    /// success: it must not be undone then.
    pub(super) fn forget(&mut self, sequence: LockSequence) -> bool {
        match self.valid.get(&sequence.index) {
            Some((number, answered)) if *number == sequence.number => {
                let undone = !*answered;
                if undone {
                    self.valid.remove(&sequence.index);
                }
                undone
            }
            _ => true,
        }
    }

    /// A replay is about to be answered with success. False if the request was undone.
    fn answer(&mut self, sequence: LockSequence) -> bool {
        match self.valid.get_mut(&sequence.index) {
            Some((number, answered)) if *number == sequence.number => {
                *answered = true;
                true
            }
            _ => false,
        }
    }

    pub(super) fn valid(&self) -> Vec<(u32, u8)> {
        let valid = self.valid.iter();
        let each = valid.map(|(bucket, (number, _))| (*bucket, *number));
        each.collect()
    }

    /// Records the number of a request that succeeded.
    pub(super) fn succeeded(&mut self, sequence: LockSequence) {
        if (1..=LOCK_SEQUENCES_MAX).contains(&sequence.index) {
            self.valid.insert(sequence.index, (sequence.number, false));
        }
    }
}

impl Files {
    /// Whether a LOCK was carried out before, so that it does nothing now. Changes nothing; [`Files::lock`] decides.
    pub fn is_lock_replayed(&self, place: &Place, open: OpenId, sequence: LockSequence) -> bool {
        self.with_open(place, open, |open| open.sequences.knows(sequence))
    }

    /// Asks whether a replayed LOCK may be answered with success. If so, the first request keeps its locks
    /// ([`Files::take_back`]); otherwise it has taken them back.
    #[must_use]
    pub fn answer_replay(&self, place: &Place, open: OpenId, sequence: LockSequence) -> bool {
        self.with_open(place, open, |open| open.sequences.answer(sequence))
    }
}
