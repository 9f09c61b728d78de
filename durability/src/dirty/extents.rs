//! Values that say what changed of an inode: kinds of changes, ranges of contents, and when to start write-back.
//!
//! A dirty or unproven set of ranges may be too large. A set of *rewritten* ranges, which repairs, may
//! not: one that had to be widened is marked as such, and repairs nothing.

use std::collections::{BTreeMap, BTreeSet};

use vfs::Range;

use crate::{policy::Meta, store::UnprovenStream};

/// A change by a client of anything of an inode but its contents. If it is lost, it is repaired by making it again and
/// a sync. `Meta::Eas` stands for extended attributes whose names are not known.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Changed {
    Meta(Meta),
    /// One extended attribute, by its name in folded case.
    Ea(String),
    /// It is not known which extended attributes changed: a failed sync may have lost any, a good one proves none.
    DoubtfulEas,
    /// A stream was made, named or removed.
    Stream(String),
    /// The end of file of a stream was set.
    Size(String),
    /// Space was reserved.
    Allocation,
}

impl Changed {
    pub(crate) const METADATA: [Self; 4] = [
        Self::Meta(Meta::Security),
        Self::Meta(Meta::Times),
        Self::Meta(Meta::Attributes),
        Self::Meta(Meta::Eas),
    ];
}

/// In a set of changes, moves the changed size of a stream from its old name to its new one.
pub(crate) fn rename_size(all: &mut BTreeSet<Changed>, from: &str, to: &str) {
    if all.remove(&Changed::Size(from.to_owned())) {
        all.insert(Changed::Size(to.to_owned()));
    }
}

/// The most bytes of names of extended attributes in a set of changes.
const EA_NAMES_MAX: usize = 4 << 10;

/// Beyond the limit the changed extended attributes are not known by name: a sync that fails may have lost any, and one
/// that succeeds repairs none.
pub(crate) fn limit_ea_names(all: &mut BTreeSet<Changed>) {
    let name_bytes = |what: &Changed| match what {
        Changed::Ea(name) => name.len(),
        _ => 0,
    };
    if all.iter().map(name_bytes).sum::<usize>() > EA_NAMES_MAX {
        all.retain(|what| !matches!(what, Changed::Ea(_)));
        all.insert(Changed::DoubtfulEas);
    }
}

#[derive(Clone, Copy)]
pub(crate) enum ChangedRange {
    /// From one offset to another (exclusive).
    At(u64, u64),
    /// Somewhere within this range: all of it is dirty, and nothing of it counts as rewritten.
    Within(u64, u64),
    /// In the ranges that the latch already calls unproven.
    Unproven,
}

/// The most ranges of one stream before they are merged into one.
const RANGES_MAX: usize = 1024;

/// Disjoint, non-touching ranges `start..end`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Ranges {
    ends: BTreeMap<u64, u64>,
    widened: bool,
}

impl Ranges {
    fn add(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let (mut start, mut end) = (start, end);
        while let Some((&s, &e)) = self.ends.range(..=end).next_back() {
            if e < start {
                break;
            }
            self.ends.remove(&s);
            start = start.min(s);
            end = end.max(e);
        }
        self.ends.insert(start, end);
        self.limit();
    }

    fn remove(&mut self, start: u64, end: u64) {
        while let Some((&s, &e)) = self.ends.range(..end).next_back() {
            if e <= start || start >= end {
                break;
            }
            self.ends.remove(&s);
            if e > end {
                self.ends.insert(end, e);
            }
            if s < start {
                self.ends.insert(s, start);
            }
        }
        self.limit();
    }

    fn limit(&mut self) {
        if self.ends.len() > RANGES_MAX
            && let (Some((&start, _)), Some((_, &end))) =
                (self.ends.first_key_value(), self.ends.last_key_value())
        {
            self.ends = BTreeMap::from([(start, end)]);
            self.widened = true;
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Extents {
    /// Those of the unnamed stream, which most files have alone.
    unnamed: Ranges,
    pub(super) named: BTreeMap<String, Ranges>,
}

impl Extents {
    /// The ranges of a stream; the empty name is the unnamed one.
    fn of(&mut self, stream: &str) -> &mut Ranges {
        match stream {
            "" => &mut self.unnamed,
            named => self.named.entry(named.to_owned()).or_default(),
        }
    }

    /// The streams that have ranges, or may have had some.
    fn all(&self) -> impl Iterator<Item = (&str, &Ranges)> {
        let named = self.named.iter();
        let named = named.map(|(stream, ranges)| (stream.as_str(), ranges));
        std::iter::once(("", &self.unnamed)).chain(named)
    }

    pub(crate) fn add(&mut self, stream: &str, start: u64, end: u64) {
        self.of(stream).add(start, end);
    }

    /// Something within the range changed, it is not known where: all of it is dirty, and nothing counts as rewritten.
    pub(crate) fn add_within(&mut self, stream: &str, start: u64, end: u64) {
        let ranges = self.of(stream);
        ranges.add(start, end);
        ranges.widened = true;
    }

    /// The ranges in the form in which a store records them.
    pub(crate) fn stored(&self) -> Vec<UnprovenStream> {
        let streams = self.all().filter(|(_, ranges)| !ranges.ends.is_empty());
        let streams = streams.map(|(stream, ranges)| UnprovenStream {
            stream: stream.to_owned(),
            ranges: ranges.ends.iter().map(|(s, e)| (*s, *e)).collect(),
        });
        streams.collect()
    }

    pub(crate) fn merge(&mut self, other: &Extents) {
        for (stream, ranges) in other.all() {
            let mine = self.of(stream);
            ranges.ends.iter().for_each(|(s, e)| mine.add(*s, *e));
            mine.widened |= ranges.widened;
        }
    }

    /// Removes the ranges that `rewritten` certainly covers.
    pub(crate) fn repair(&mut self, rewritten: &Extents) {
        for (stream, ranges) in rewritten.all().filter(|(_, ranges)| !ranges.widened) {
            let mine = self.of(stream);
            ranges.ends.iter().for_each(|(s, e)| mine.remove(*s, *e));
        }
        self.named.retain(|_, ranges| !ranges.ends.is_empty());
    }

    pub(crate) fn truncate(&mut self, stream: &str, size: u64) {
        self.of(stream).remove(size, u64::MAX);
        self.named.retain(|_, ranges| !ranges.ends.is_empty());
    }

    /// A named stream has another name from now on. Its ranges stay unproven or dirty.
    pub(crate) fn rename(&mut self, from: &str, to: &str) {
        if let Some(ranges) = self.named.remove(from) {
            self.merge(&Self {
                named: BTreeMap::from([(to.to_owned(), ranges)]),
                ..Self::default()
            });
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all().all(|(_, ranges)| ranges.ends.is_empty())
    }
}

/// Bytes written in one piece after which its write-back starts.
const HINT_BYTES: u64 = 8 << 20;
/// The bytes at the end of a piece that are left for the next time.
const KEPT_BYTES: u64 = 1 << 20;

/// The writes since write-back was last started. Once enough was written in one piece, write-back is started, so that
/// FLUSH finds little left to do. This promises nothing, and what is dirty stays dirty. Data that are rewritten or
/// scattered are left to the kernel: early write-back would write them more often, and would hold pages that the client
/// is about to write again. The end of the piece is left as well, because the client goes on there.
#[derive(Debug, Default)]
pub(crate) struct WriteBackHint {
    start: u64,
    end: u64,
    bytes: u64,
    /// The range within which write-back was started since the last sync.
    started: Option<(u64, u64)>,
}

impl WriteBackHint {
    /// A write ended. Answers the range whose write-back is to be started, if any.
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
        // It counts as one piece even if a few writes overtook each other.
        let in_one = span / 5 <= bytes / 4 && bytes / 5 <= span / 4;
        let known = self.started.unwrap_or((start, start));
        let again = end.min(known.1).saturating_sub(start.max(known.0));
        if !in_one || again > span / 4 {
            return None;
        }
        let kept = end - KEPT_BYTES.min(span);
        (self.start, self.bytes) = (kept, end - kept);
        self.started = Some((known.0.min(start), known.1.max(kept)));
        let (offset, len) = (start, kept - start);
        Some(Range { offset, len })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(ranges: &Ranges) -> u64 {
        ranges.ends.iter().map(|(start, end)| end - start).sum()
    }

    proptest! {
        #[test]
        fn ranges_are_sets(ops in prop::collection::vec((any::<bool>(), 0u64..60, 0u64..20), 0..40)) {
            let mut ranges = Ranges::default();
            let mut model = [false; 80];
            for (add, start, len) in ops {
                let part = &mut model[start as usize..(start + len) as usize];
                part.fill(add);
                if add { ranges.add(start, start + len) } else { ranges.remove(start, start + len) }
            }
            let mut seen = [false; 80];
            let mut last = None;
            for (&s, &e) in &ranges.ends {
                prop_assert!(s < e && last.is_none_or(|l| l < s), "disjoint, not touching");
                last = Some(e);
                seen[s as usize..e as usize].fill(true);
            }
            prop_assert_eq!(seen, model);
            prop_assert_eq!(bytes(&ranges), model.iter().filter(|b| **b).count() as u64);
        }
    }

    #[test]
    fn too_many_ranges_become_one_that_repairs_nothing() {
        let mut extents = Extents::default();
        for i in 0..=RANGES_MAX as u64 {
            extents.add("", i * 10, i * 10 + 1);
        }
        assert_eq!(bytes(&extents.unnamed), RANGES_MAX as u64 * 10 + 1);
        let mut unproven = Extents::default();
        unproven.add("", 5, 6);
        unproven.repair(&extents);
        assert_eq!(bytes(&unproven.unnamed), 1);
    }

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
