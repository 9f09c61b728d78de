//! Pages with a checksum: what a database reads back must be what it wrote last. A write of its log is a page of
//! another length.

/// Bytes of a page, those of Exchange's database.
pub(crate) const PAGE: usize = 8192;
/// Bytes of the head: file, page and version, eight bytes each, and the checksum of all that follows it.
const HEAD: usize = 32;

/// Fills `page`, a multiple of eight bytes, with version `version` of page `number` of file `file`.
pub(crate) fn fill(page: &mut [u8], file: u64, number: u64, version: u64) {
    let mut word = file ^ number.rotate_left(20) ^ version.rotate_left(40) ^ 0x9E37_79B9_7F4A_7C15;
    for chunk in page.chunks_exact_mut(8) {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    let head = [file, number, version];
    for (chunk, value) in page.chunks_exact_mut(8).skip(1).zip(head) {
        chunk.copy_from_slice(&value.to_le_bytes());
    }
    let sum = checksum(page);
    if let Some(first) = page.first_chunk_mut() {
        *first = sum.to_le_bytes();
    }
}

/// The version of a page of so many bytes, or its fault.
pub(crate) fn check(
    page: &[u8],
    bytes: usize,
    file: u64,
    number: u64,
) -> Result<u64, &'static str> {
    if page.len() != bytes {
        return Err("cut short");
    }
    if page.iter().all(|byte| *byte == 0) {
        return Err("empty");
    }
    let word = |at: usize| {
        let bytes = page
            .get(at * 8..at * 8 + 8)
            .and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0, u64::from_le_bytes)
    };
    if word(0) != checksum(page) {
        return Err("torn: its checksum is wrong");
    }
    if (word(1), word(2)) != (file, number) {
        return Err("another page");
    }
    Ok(word(3))
}

/// FNV-1a over all words after the first.
fn checksum(page: &[u8]) -> u64 {
    page.chunks_exact(8)
        .skip(1)
        .fold(0xCBF2_9CE4_8422_2325, |sum, chunk| {
            let word = chunk.try_into().map_or(0, u64::from_le_bytes);
            (sum ^ word).wrapping_mul(0x0000_0100_0000_01B3)
        })
}

const _: () = assert!(HEAD < PAGE && PAGE.is_multiple_of(8));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_damage_is_seen() {
        let mut page = [0; PAGE];
        assert_eq!(check(&page, PAGE, 1, 2), Err("empty"));
        fill(&mut page, 1, 2, 7);
        assert_eq!(check(&page, PAGE, 1, 2), Ok(7));
        assert_eq!(check(&page, PAGE, 1, 3), Err("another page"));
        assert_eq!(check(&page[..100], PAGE, 1, 2), Err("cut short"));
        for at in [0, 9, 31, 4096, PAGE - 1] {
            let mut torn = page;
            torn[at] ^= 1;
            assert!(check(&torn, PAGE, 1, 2).is_err(), "{at}");
        }
        let mut newer = [0; PAGE];
        fill(&mut newer, 1, 2, 8);
        newer[4096..].copy_from_slice(&page[4096..]);
        assert!(check(&newer, PAGE, 1, 2).is_err());
    }
}
