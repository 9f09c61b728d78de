//! The lock sequences of an open, by which a LOCK that is sent again is recognized ([MS-SMB2] 3.3.5.14).

use std::collections::BTreeMap;

/// Buckets of Open.LockSequenceArray ([MS-SMB2] 3.3.1.10).
const BUCKETS: u32 = 64;

/// LockSequence of a LOCK request, if it is to be verified (the caller knows the dialect and
/// whether the open is durable).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockSequence {
    /// The bucket, 1 to 64; others are not verified.
    pub index: u32,
    /// The number, 0 to 15.
    pub number: u8,
}

/// Open.LockSequenceArray ([MS-SMB2] 3.3.1.10): the last number each bucket succeeded with.
#[derive(Debug, Default)]
pub(super) struct LockSequences {
    valid: BTreeMap<u32, u8>,
}

impl LockSequences {
    /// Whether the request was carried out before. If not, its bucket becomes invalid until the request succeeds
    /// ([MS-SMB2] 3.3.5.14).
    pub(super) fn is_replay(&mut self, sequence: LockSequence) -> bool {
        if self.valid.get(&sequence.index) == Some(&sequence.number) {
            return true;
        }
        self.valid.remove(&sequence.index);
        false
    }

    /// Forgets the number of a request that succeeded and was undone.
    pub(super) fn forget(&mut self, sequence: LockSequence) {
        if self.valid.get(&sequence.index) == Some(&sequence.number) {
            self.valid.remove(&sequence.index);
        }
    }

    /// Buckets with their numbers.
    pub(super) fn valid(&self) -> Vec<(u32, u8)> {
        let valid = self.valid.iter();
        valid.map(|(bucket, number)| (*bucket, *number)).collect()
    }

    /// Records the number of a request that succeeded.
    pub(super) fn succeeded(&mut self, sequence: LockSequence) {
        if (1..=BUCKETS).contains(&sequence.index) {
            self.valid.insert(sequence.index, sequence.number);
        }
    }
}
