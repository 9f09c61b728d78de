//! A small random generator, so that a failure can be repeated from its seed, and the sample of large matrices.

/// xorshift64*; the seed is not zero.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap() % end
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next().to_le_bytes()[3]).collect()
    }

    /// Returns a copy with a few bytes changed, most often to an extreme, and sometimes truncated.
    pub(crate) fn spoil(&mut self, good: &[u8]) -> Vec<u8> {
        let mut bad = good.to_vec();
        for _ in 0..=self.below(3) {
            if !bad.is_empty() {
                let at = self.below(bad.len());
                bad[at] = match self.below(5) {
                    0 => 0,
                    1 => 0xff,
                    2 => 0x7f,
                    3 => bad[at].wrapping_add(1),
                    _ => self.next().to_le_bytes()[3],
                };
            }
        }
        match self.below(6) {
            0 => bad.truncate(self.below(good.len() + 1)),
            1 => {
                let more = self.below(40);
                bad.extend(self.bytes(more));
            }
            _ => {}
        }
        bad
    }
}

/// Whether large matrices are played as a whole.
pub(crate) fn plays_all() -> bool {
    std::env::var_os("HOSTILE_ALL").is_some()
}

/// Whether a case of a large matrix is played: one of three, the same in every run, or all with `HOSTILE_ALL=1`.
pub(crate) fn is_played(number: u32) -> bool {
    // The product with the golden ratio spreads any regular sequence of numbers evenly, so that no axis of the matrix
    // is left out.
    number.wrapping_mul(0x9e37_79b1) < u32::MAX / 3 || plays_all()
}
