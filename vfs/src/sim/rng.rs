//! Random numbers from a seed: SplitMix64. Good enough for choices, useless for secrets.

use crate::hash::{GOLDEN, mix};

/// The random numbers of a simulation.
#[derive(Debug, Clone)]
pub struct SimRng(u64);

impl SimRng {
    /// A stream; each seed gives another.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn draw(&mut self) -> u64 {
        let number = mix(self.0);
        self.0 = self.0.wrapping_add(GOLDEN);
        number
    }

    /// A number below `limit` (0 if `limit` is 0).
    pub fn below(&mut self, limit: u64) -> u64 {
        self.draw().checked_rem(limit).unwrap_or(0)
    }

    /// An index below `len` (0 if `len` is 0).
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap_or(0)
    }

    /// Fills `out` with random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let bytes = self.draw().to_le_bytes();
            for (to, from) in chunk.iter_mut().zip(bytes) {
                *to = from;
            }
        }
    }
}
