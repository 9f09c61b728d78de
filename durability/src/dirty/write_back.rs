//! The write-back hint: starts the write-back of a file before a client asks for a sync.
//!
//! Once enough was written in one piece, write-back is started, so that FLUSH finds little left to
//! do. This promises nothing, and what is dirty stays dirty. Data that are rewritten or scattered are
//! left to the kernel: early write-back would write them more often.

use vfs::Range;

/// Bytes written in one piece after which its write-back starts.
pub(crate) const HINT_BYTES: u64 = 8 << 20;

/// The writes since write-back was last started.
#[derive(Debug, Default)]
pub(crate) struct WriteBackHint {
    start: u64,
    end: u64,
    bytes: u64,
}

impl WriteBackHint {
    /// A write ended. Answers what to start write-back of.
    pub(crate) fn wrote(&mut self, start: u64, end: u64) -> Option<Range> {
        if self.bytes == 0 {
            (self.start, self.end) = (start, end);
        }
        self.start = self.start.min(start);
        self.end = self.end.max(end);
        self.bytes = self.bytes.saturating_add(end - start);
        if self.bytes < HINT_BYTES {
            return None;
        }
        let Self { start, end, bytes } = std::mem::take(self);
        let span = end - start;
        // One piece, but for writes that overtook each other.
        let in_one = span / 5 <= bytes / 4 && bytes / 5 <= span / 4;
        in_one.then_some(Range {
            offset: start,
            len: span,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Ranges started for writes of 1 MiB at these places, in MiB.
    fn started(places: impl IntoIterator<Item = u64>) -> Vec<(u64, u64)> {
        let mut early = WriteBackHint::default();
        let writes = places.into_iter().map(|at| (at * MIB, (at + 1) * MIB));
        let ranges = writes.filter_map(|(start, end)| early.wrote(start, end));
        ranges.map(|r| (r.offset / MIB, r.len / MIB)).collect()
    }

    #[test]
    fn what_is_written_in_one_piece_is_started() {
        assert_eq!(started(0..20), [(0, 8), (8, 8)]);
        assert_eq!(started([1, 0, 3, 2, 5, 4, 8, 6, 7]), [(0, 9)]);
        assert_eq!(started([0; 100]), [], "the same place again and again");
        assert_eq!(started((0..100).map(|i| i * 37 % 100)), [], "scattered");
    }
}
