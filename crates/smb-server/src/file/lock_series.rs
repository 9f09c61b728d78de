//! Series of locks or unlocks on a stream with many held ranges. They take time for the sum of elements and ranges, not
//! for their product, because others wait for the lock of the shard meanwhile.
//!
//! Finds what `locks` would find element by element, and decides nothing else.

use std::collections::{BTreeMap, BTreeSet};

use smb_wire::msg::LockElement;

use super::locks::{HeldRange, Range, before_bad_flags};
use super::types::OpenId;

/// Ranges in the order of their offsets, each with the last byte that it or one before it reaches.
struct Spans(Vec<(u64, u64)>);

impl Spans {
    fn of<'a>(held: impl Iterator<Item = &'a HeldRange>) -> Self {
        let mut spans: Vec<_> = held
            .filter_map(|held| Some((held.range.offset, held.range.last()?)))
            .collect();
        spans.sort_unstable();
        let mut reached = 0;
        for (_, last) in &mut spans {
            reached = reached.max(*last);
            *last = reached;
        }
        Self(spans)
    }

    /// Whether any of them overlaps the range ([`Range::overlaps`]).
    fn overlap(&self, range: Range) -> bool {
        let Some(last) = range.last() else {
            return false;
        };
        let begun = self.0.partition_point(|(offset, _)| *offset <= last);
        let reached = begun.checked_sub(1).and_then(|at| self.0.get(at));
        reached.is_some_and(|(_, reached)| *reached >= range.offset)
    }
}

/// The ranges that were held before a series of locks of one open.
pub(super) struct Before {
    count: usize,
    /// All of them, and the exclusive ones of others.
    sorted: Option<(Spans, Spans)>,
}

impl Before {
    /// They are sorted for a series only: a single lock looks at each of them once.
    pub(super) fn of(held: &[HeldRange], open: OpenId, elements: usize) -> Self {
        let sorted = (elements > 1).then(|| {
            let others = held.iter().filter(|held| held.open != open);
            let exclusive = others.filter(|held| held.exclusive);
            (Spans::of(held.iter()), Spans::of(exclusive))
        });
        let count = held.len();
        Self { count, sorted }
    }

    /// Whether any range that is `held` by now, also one of the series, bars `wanted` ([`HeldRange::bars`]).
    pub(super) fn bars(&self, held: &[HeldRange], wanted: &HeldRange) -> bool {
        let Some((all, exclusive_of_others)) = &self.sorted else {
            return held.iter().any(|held| held.bars(wanted));
        };
        let spans = match wanted.exclusive {
            true => all,
            false => exclusive_of_others,
        };
        let mut new = held.iter().skip(self.count);
        spans.overlap(wanted.range) || new.any(|held| held.bars(wanted))
    }
}

/// Whether a series of locks can lock anything. One that is refused for its flags or for a range, whatever is held,
/// cannot ([MS-SMB2] 3.3.5.14.2, [MS-FSA] 2.1.5.8).
pub(crate) fn can_lock(elements: &[LockElement]) -> bool {
    let lasting = before_bad_flags(elements);
    !lasting.is_empty() && lasting.iter().all(|one| Range::of(one).is_valid())
}

/// Moves the ranges of the elements to `freed`, up to the first element that the open does not hold. Of several equal
/// ranges, an exclusive one goes first, then the oldest. Returns whether the open held all.
pub(super) fn take_out(
    held: &mut Vec<HeldRange>,
    open: OpenId,
    elements: &[LockElement],
    freed: &mut Vec<HeldRange>,
) -> bool {
    let mut mine: BTreeMap<(u64, u64), Vec<usize>> = BTreeMap::new();
    // The one to be removed first is put in last.
    for exclusive in [false, true] {
        for (at, one) in held.iter().enumerate().rev() {
            if one.open == open && one.exclusive == exclusive {
                let key = (one.range.offset, one.range.length);
                mine.entry(key).or_default().push(at);
            }
        }
    }
    let mut gone = BTreeSet::new();
    let mut all = true;
    for element in elements {
        let key = (element.offset, element.length);
        let Some(at) = mine.get_mut(&key).and_then(Vec::pop) else {
            all = false;
            break;
        };
        gone.insert(at);
    }
    let mut at = 0;
    held.retain(|one| {
        at += 1;
        let stays = !gone.contains(&(at - 1));
        if !stays {
            freed.push(*one);
        }
        stays
    });
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use smb_wire::msg::LockFlags;

    use super::*;
    use crate::file::CountedUser;

    fn ranges() -> impl Strategy<Value = HeldRange> {
        let offset = prop_oneof![9 => 0..10_u64, 1 => u64::MAX - 2..=u64::MAX];
        (0..3_u64, offset, 0..5_u64, any::<bool>()).prop_map(|(open, offset, length, exclusive)| {
            HeldRange {
                open: OpenId(open),
                user: CountedUser::default(),
                range: Range { offset, length },
                exclusive,
            }
        })
    }

    proptest! {
        #[test]
        fn a_series_is_barred_as_its_elements_are(
            held in prop::collection::vec(ranges(), 0..12),
            wanted in ranges(),
            new in 0..4_usize,
        ) {
            let one_by_one = held.iter().any(|held| held.bars(&wanted));
            let (before, _) = held.split_at(held.len().saturating_sub(new));
            let series = Before::of(before, wanted.open, 2);
            prop_assert_eq!(series.bars(&held, &wanted), one_by_one);
        }

        #[test]
        fn a_series_is_unlocked_as_its_elements_are(
            held in prop::collection::vec(ranges(), 0..12),
            wanted in prop::collection::vec(ranges(), 0..6),
        ) {
            let open = OpenId(1);
            let elements: Vec<_> = wanted
                .iter()
                .map(|wanted| LockElement {
                    offset: wanted.range.offset,
                    length: wanted.range.length,
                    flags: LockFlags::UNLOCK,
                })
                .collect();
            let mut expected = held.clone();
            let all = wanted.iter().all(|wanted| {
                let mine = |one: &HeldRange| one.open == open && one.range == wanted.range;
                let exclusive = expected.iter().position(|one| mine(one) && one.exclusive);
                let found = exclusive.or_else(|| expected.iter().position(mine));
                found.map(|at| expected.remove(at)).is_some()
            });
            let (mut left, mut freed) = (held.clone(), Vec::new());
            prop_assert_eq!(take_out(&mut left, open, &elements, &mut freed), all);
            prop_assert_eq!(&left, &expected);
            prop_assert_eq!(left.len() + freed.len(), held.len());
            prop_assert!(freed.iter().all(|one| one.open == open && held.contains(one)));
        }
    }
}
