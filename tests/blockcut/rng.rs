//! Numbers from a seed: SplitMix64. The requests of a round repeat with its seed; the order in
//! which threads and kernel carry them out does not.

/// A generator.
#[derive(Debug, Clone)]
pub(crate) struct Rng(u64);

impl Rng {
    /// From a seed, and a number for the purpose so that two purposes do not run in step.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        let mut rng = Self(seed ^ purpose.wrapping_mul(0xA076_1D64_78BD_642F));
        rng.next();
        rng
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// From 0 to below `n`; 0 for 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % (n.max(1) as u64)) as usize
    }

    /// With so many chances in a hundred.
    pub(crate) fn percent(&mut self, chances: usize) -> bool {
        self.below(100) < chances
    }
}
