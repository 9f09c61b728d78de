//! Numbers from a seed. The requests of a round repeat with its seed; the order in
//! which threads and kernel carry them out does not.

use smb_sim::SimRng;

/// A generator.
#[derive(Debug, Clone)]
pub(crate) struct Rng(SimRng);

impl Rng {
    /// From a seed, and a number for the purpose so that two purposes do not run in step.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        let mut rng = Self(SimRng::new(
            seed ^ purpose.wrapping_mul(0xA076_1D64_78BD_642F),
        ));
        rng.next();
        rng
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.draw()
    }

    /// From 0 to below `n`; 0 for 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0.index(n)
    }

    /// With so many chances in a hundred.
    pub(crate) fn percent(&mut self, chances: usize) -> bool {
        self.below(100) < chances
    }
}
