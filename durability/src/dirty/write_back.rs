//! The write-back hint: starts the write-back of a file before a client asks for a sync.
//!
//! Once enough was written in one piece, write-back is started, so that FLUSH finds little left to
//! do. This promises nothing, and what is dirty stays dirty. Data that are rewritten or scattered are
//! left to the kernel: early write-back would write them more often, and would hold pages that the
//! client is about to write again. So is the end of the piece, where the client goes on.

use vfs::Range;

/// Bytes written in one piece after which its write-back starts.
pub(crate) const HINT_BYTES: u64 = 8 << 20;
/// The end of a piece that is left for the next time.
const KEPT_BYTES: u64 = 1 << 20;

/// The writes since write-back was last started.
#[derive(Debug, Default)]
pub(crate) struct WriteBackHint {
    start: u64,
    end: u64,
    bytes: u64,
    /// All that write-back was started of since the last sync lies in this range.
    started: Option<(u64, u64)>,
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
        let (start, end, bytes) = (self.start, self.end, std::mem::take(&mut self.bytes));
        let span = end - start;
        // One piece, but for writes that overtook each other.
        let in_one = span / 5 <= bytes / 4 && bytes / 5 <= span / 4;
        let known = self.started.unwrap_or((start, start));
        let again = end.min(known.1).saturating_sub(start.max(known.0));
        if !in_one || again > span / 4 {
            return None;
        }
        let kept = end - KEPT_BYTES.min(span);
        (self.start, self.bytes) = (kept, end - kept);
        self.started = Some((known.0.min(start), known.1.max(kept)));
        Some(Range {
            offset: start,
            len: kept - start,
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
    fn what_is_written_in_one_piece_is_started_but_for_its_end() {
        assert_eq!(started(0..23), [(0, 7), (7, 7), (14, 7)]);
        assert_eq!(started([1, 0, 3, 2, 5, 4, 8, 6, 7]), [(0, 8)]);
        assert_eq!(started([0; 100]), [], "the same place again and again");
        assert_eq!(started((0..100).map(|i| i * 37 % 100)), [], "scattered");
    }

    #[test]
    fn what_is_rewritten_is_not_started_again() {
        let rounds = (0..5).flat_map(|_| 0..16);
        assert_eq!(started(rounds), [(0, 7), (7, 7)]);
        let longer = (0..16).chain(0..32);
        let beyond = [(0, 7), (7, 7), (14, 7), (21, 7)];
        assert_eq!(started(longer), beyond, "and then beyond its old end");
    }
}
