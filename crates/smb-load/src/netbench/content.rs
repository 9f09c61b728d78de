//! The bytes of the mix's files, which follow from the file's name and their place: what a READ returns is compared
//! without a memory of what was written.

use super::operation::Name;
use fastrand::Rng;

/// Bytes of the longest WRITE of the mix.
pub(super) const LONGEST: usize = 65_536;
/// The bytes repeat after so many. As it is a prime number, data that are off by sectors or pages differ.
const PERIOD: u64 = 4093;
/// The places in the period at which two files begin that follow each other are so far apart.
const STRIDE: u64 = 1009;
/// Bytes that are compared at once.
const PIECE: usize = 512;
/// A piece within a hole.
const HOLE: [u8; PIECE] = [0; PIECE];

/// The bytes from which all files are cut.
pub(super) struct Content(Vec<u8>);

impl Content {
    /// Enough of them for pieces of at most `longest` bytes.
    pub(super) fn new(longest: usize) -> Self {
        let mut random = Rng::with_seed(PERIOD);
        // None is 0, as those of a hole are.
        let period = (0..PERIOD).map(|_| random.u8(1..));
        let period: Vec<u8> = period.collect();
        let repeated = period.iter().copied().cycle();
        Self(repeated.take(PERIOD as usize + longest).collect())
    }

    /// `length` bytes of a file as they are from `offset` on; none if that is more than the longest piece.
    pub(super) fn of(&self, name: Name, offset: u64, length: usize) -> &[u8] {
        let file = match name {
            Name::Old(number) => u64::from(number) * 2,
            Name::New(number) => u64::from(number) * 2 + 1,
            Name::Missing => 0,
            // A load file renames, and names a handle anew: all have the same bytes.
            Name::Recorded(_) => 1,
        };
        let start = ((file * STRIDE + offset % PERIOD) % PERIOD) as usize;
        self.0.get(start..start + length).unwrap_or_default()
    }

    /// Whether these are the bytes of a file from `offset` on.
    pub(super) fn is(&self, got: &[u8], name: Name, offset: u64) -> bool {
        let wanted = self.of(name, offset, got.len());
        // A new file is extended by a WRITE of its last byte, before which there is a hole.
        let may_be_hole = matches!(name, Name::New(_) | Name::Recorded(_));
        let is_right = |(got, wanted): (&[u8], &[u8])| {
            let each = || got.iter().zip(wanted);
            // Only the piece at an edge of a hole is compared byte by byte, which costs many times as much.
            let is_hole =
                || HOLE.starts_with(got) || each().all(|(got, wanted)| *got == 0 || got == wanted);
            got == wanted || may_be_hole && is_hole()
        };
        got.len() == wanted.len() && got.chunks(PIECE).zip(wanted.chunks(PIECE)).all(is_right)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_another_file_or_place_and_damage_are_seen() {
        let content = Content::new(LONGEST);
        let (document, new) = (Name::Old(3), Name::New(3));
        for length in [1, 4096, 61_440] {
            let data = content.of(document, 8192, length);
            assert_eq!(data.len(), length);
            assert!(content.is(data, document, 8192));
        }
        let data = content.of(document, 8192, 4096).to_vec();
        assert!(!content.is(&data, document, 12_288));
        assert!(!content.is(&data, document, 8192 + 512));
        assert!(!content.is(&data, Name::Old(4), 8192));
        assert!(!content.is(&data, new, 8192));
        for at in [0, 700, 4095] {
            let mut damaged = data.clone();
            damaged[at] ^= 1;
            assert!(!content.is(&damaged, document, 8192), "{at}");
        }
        assert!(!content.is(&[0; 4096], document, 8192));
    }

    #[test]
    fn pieces_are_as_long_as_was_asked_for_at_every_offset() {
        let content = Content::new(1 << 20);
        let new = Name::New(0);
        for offset in [0, 65_535, u64::MAX] {
            let data = content.of(new, offset, 1 << 20);
            assert_eq!(data.len(), 1 << 20);
            assert!(content.is(data, new, offset));
            assert!(!content.is(data, new, offset / 2 + 1));
        }
        assert!(content.of(new, 0, (1 << 20) + 8192).is_empty());
    }

    #[test]
    fn only_a_new_file_has_holes() {
        let content = Content::new(LONGEST);
        let new = Name::New(9);
        let mut data = content.of(new, 0, 20_000).to_vec();
        data[8000..16_191].fill(0);
        assert!(content.is(&data, new, 0));
        // Of two other values at most one is 0, as a byte of a hole is.
        data[19_000] ^= if data[19_000] == 1 { 2 } else { 1 };
        assert!(!content.is(&data, new, 0));
    }
}
