//! Hashes of names and numbers: without a seed, so that they are alike in every run.

/// The hash FNV-1a of 64 bits.
pub(crate) fn fnv_1a(bytes: impl Iterator<Item = u8>) -> u64 {
    bytes.fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

/// The fractional part of the golden ratio, as an odd number.
pub(crate) const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// Spreads the bits of a number (a step of SplitMix64): different numbers have different results.
pub(crate) fn mix(number: u64) -> u64 {
    let mut x = number.wrapping_add(GOLDEN);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}
