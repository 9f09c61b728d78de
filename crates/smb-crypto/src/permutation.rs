//! Turns consecutive numbers into numbers that look random: a keyed permutation that cannot be
//! predicted without the key.
//!
//! It is a Feistel network of four rounds over AES-128, so two numbers never map to the same one,
//! and somebody who has seen some results learns nothing about the others. The results (handles,
//! for instance) are sent in the clear; they are no secret, and knowing one must never grant access
//! to anything.

use aes::{
    Aes128, Block,
    cipher::{BlockCipherEncrypt, KeyInit},
};

/// Four rounds over a pseudorandom function make a pseudorandom permutation in both directions (Luby and Rackoff).
const ROUNDS: u8 = 4;

/// A permutation of the 64-bit numbers, and one of the 32-bit numbers.
pub struct Permutation {
    cipher: Aes128,
}

impl core::fmt::Debug for Permutation {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Permutation")
    }
}

impl Permutation {
    /// The permutations of this key.
    pub fn new(key: &[u8; 16]) -> Self {
        Self {
            cipher: Aes128::new(&(*key).into()),
        }
    }

    /// Maps a 64-bit number.
    pub fn of_64(&self, number: u64) -> u64 {
        let (mut left, mut right) = ((number >> 32) as u32, number as u32);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ self.mixed(64 + round, right));
        }
        u64::from(left) << 32 | u64::from(right)
    }

    /// Maps a 32-bit number.
    pub fn of_32(&self, number: u32) -> u32 {
        let (mut left, mut right) = ((number >> 16) as u16, number as u16);
        for round in 0..ROUNDS {
            let mixed = self.mixed(32 + round, right.into());
            (left, right) = (right, left ^ mixed as u16);
        }
        u32::from(left) << 16 | u32::from(right)
    }

    fn mixed(&self, round: u8, half: u32) -> u32 {
        let [a, b, c, d] = half.to_le_bytes();
        let mut block = Block::from([a, b, c, d, round, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        self.cipher.encrypt_block(&mut block);
        let [a, b, c, d, ..] = <[u8; 16]>::from(block);
        u32::from_le_bytes([a, b, c, d])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_two_numbers_map_to_the_same_one() {
        let permutation = Permutation::new(&[7; 16]);
        let wide: BTreeSet<_> = (0..20_000).map(|n| permutation.of_64(n)).collect();
        let small: BTreeSet<_> = (0..20_000).map(|n| permutation.of_32(n)).collect();
        assert_eq!((wide.len(), small.len()), (20_000, 20_000));
    }

    #[test]
    fn neighbours_are_unrelated_and_keys_differ() {
        let (one, other) = (Permutation::new(&[7; 16]), Permutation::new(&[8; 16]));
        let (mut flipped, mut equal) = (0, 0);
        for number in 0..4_000u64 {
            flipped += (one.of_64(number) ^ one.of_64(number + 1)).count_ones();
            let small = number as u32;
            flipped += (one.of_32(small) ^ one.of_32(small + 1)).count_ones();
            equal += u32::from(one.of_64(number) == other.of_64(number));
            equal += u32::from(one.of_32(small) == other.of_32(small));
        }
        // 48 of the 96 bits flip on average.
        let average = f64::from(flipped) / 4_000.0;
        assert!((47.0..49.0).contains(&average), "{average}");
        assert!(equal <= 1, "{equal}");
    }
}
