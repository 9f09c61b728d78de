//! Spoilt bytes, which a seed repeats, and the sample of large matrices.

use fastrand::Rng;

/// Returns that many bytes.
pub(crate) fn bytes(random: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| random.u8(..)).collect()
}

/// Returns a copy with a few bytes changed, most often to an extreme, and sometimes truncated.
pub(crate) fn spoil(random: &mut Rng, good: &[u8]) -> Vec<u8> {
    let mut bad = good.to_vec();
    for _ in 0..=random.usize(..3) {
        if !bad.is_empty() {
            let at = random.usize(..bad.len());
            bad[at] = match random.usize(..5) {
                0 => 0,
                1 => 0xff,
                2 => 0x7f,
                3 => bad[at].wrapping_add(1),
                _ => random.u8(..),
            };
        }
    }
    match random.usize(..6) {
        0 => bad.truncate(random.usize(..=good.len())),
        1 => {
            let more = random.usize(..40);
            bad.extend(bytes(random, more));
        }
        _ => {}
    }
    bad
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
