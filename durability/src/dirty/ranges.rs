//! Sets of byte ranges by stream: the dirty ones, and those that a failed sync left unproven.
//!
//! The two uses err in opposite directions. A dirty or unproven set may be too large; a set of
//! *rewritten* ranges, which repairs, may not. So a set that had to be widened is marked as such
//! (`exact`), and repairs nothing.

use std::collections::BTreeMap;

use crate::store::UnprovenStream;

/// The most ranges of one stream before they are merged into one.
pub(crate) const RANGES_MAX: usize = 1024;

/// Disjoint, non-touching ranges `start..end`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ranges {
    ends: BTreeMap<u64, u64>,
    exact: bool,
}

impl Default for Ranges {
    fn default() -> Self {
        Self {
            ends: BTreeMap::new(),
            exact: true,
        }
    }
}

impl Ranges {
    pub(crate) fn add(&mut self, start: u64, end: u64) {
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

    pub(crate) fn remove(&mut self, start: u64, end: u64) {
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
            self.exact = false;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
}

/// Ranges by stream; the empty name is the unnamed stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Extents {
    streams: BTreeMap<String, Ranges>,
}

impl Extents {
    pub(crate) fn add(&mut self, stream: &str, start: u64, end: u64) {
        if let Some(ranges) = self.streams.get_mut(stream) {
            ranges.add(start, end);
        } else {
            self.streams
                .entry(stream.to_owned())
                .or_default()
                .add(start, end);
        }
    }

    /// Something within the range changed, but not known where: all of it is dirty, and nothing of it counts as
    /// rewritten.
    pub(crate) fn add_within(&mut self, stream: &str, start: u64, end: u64) {
        let ranges = self.streams.entry(stream.to_owned()).or_default();
        ranges.add(start, end);
        ranges.exact = false;
    }

    /// As a store keeps them.
    pub(crate) fn stored(&self) -> Vec<UnprovenStream> {
        let streams = self.streams.iter();
        let streams = streams.map(|(stream, ranges)| UnprovenStream {
            stream: stream.clone(),
            ranges: ranges.ends.iter().map(|(s, e)| (*s, *e)).collect(),
        });
        streams.collect()
    }

    pub(crate) fn merge(&mut self, other: &Extents) {
        for (stream, ranges) in &other.streams {
            let mine = self.streams.entry(stream.clone()).or_default();
            ranges.ends.iter().for_each(|(s, e)| mine.add(*s, *e));
            mine.exact &= ranges.exact;
        }
    }

    /// Takes away what `rewritten` surely covers.
    pub(crate) fn repair(&mut self, rewritten: &Extents) {
        for (stream, ranges) in &rewritten.streams {
            if ranges.exact
                && let Some(mine) = self.streams.get_mut(stream)
            {
                ranges.ends.iter().for_each(|(s, e)| mine.remove(*s, *e));
            }
        }
        self.streams.retain(|_, ranges| !ranges.is_empty());
    }

    pub(crate) fn truncate(&mut self, stream: &str, size: u64) {
        if let Some(ranges) = self.streams.get_mut(stream) {
            ranges.remove(size, u64::MAX);
        }
        self.streams.retain(|_, ranges| !ranges.is_empty());
    }

    /// A stream has another name from now on. Its ranges stay unproven or dirty.
    pub(crate) fn rename(&mut self, from: &str, to: &str) {
        if let Some(ranges) = self.streams.remove(from) {
            self.merge(&Self {
                streams: BTreeMap::from([(to.to_owned(), ranges)]),
            });
        }
    }

    /// Whether anything of a stream is in the set.
    pub(crate) fn has(&self, stream: &str) -> bool {
        self.streams.contains_key(stream)
    }

    pub(crate) fn remove_stream(&mut self, stream: &str) {
        self.streams.remove(stream);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.streams.values().all(Ranges::is_empty)
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
        assert_eq!(bytes(&extents.streams[""]), RANGES_MAX as u64 * 10 + 1);
        let mut unproven = Extents::default();
        unproven.add("", 5, 6);
        unproven.repair(&extents);
        assert_eq!(bytes(&unproven.streams[""]), 1);
    }
}
