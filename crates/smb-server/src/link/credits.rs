//! The window of message ids a client may use ([MS-SMB2] 3.3.1.1, 3.3.1.2, 3.3.5.2.3).
//!
//! A granted id may be used once, in any order. The window is bounded: no credits are granted
//! beyond a span of twice the maximum, so a client that leaves one old id unused cannot make the
//! set grow (Windows also uses twice the credits granted).

use std::collections::BTreeMap;

use super::misbehaved::Misbehaved::{self, OutsideWindow};

/// The ids a connection's client may use.
#[derive(Debug)]
pub(crate) struct CreditWindow {
    /// Every id below has been used.
    low: u64,
    /// First id not granted.
    high: u64,
    /// Ids in `low..high` that have been used: the first of each request, and the one behind its last. A request costs
    /// the same work whatever its charge.
    used: BTreeMap<u64, u64>,
    /// How many these are.
    used_count: u64,
    /// Most credits held at once.
    max: u16,
}

impl CreditWindow {
    /// A new connection: one credit, id 0; never more than `max` at once.
    pub(crate) fn new(max: u16) -> Self {
        Self {
            low: 0,
            high: 1,
            used: BTreeMap::new(),
            used_count: 0,
            max,
        }
    }

    /// Uses up the ids `first .. first + charge` (0 counts as 1). If one is outside the window or used before, the
    /// connection must be closed.
    pub(crate) fn admit(&mut self, first: u64, charge: u16) -> Result<(), Misbehaved> {
        let charge = u64::from(charge.max(1));
        let end = first.checked_add(charge).ok_or(OutsideWindow)?;
        let nearest = self.used.range(..end).next_back();
        let overlaps = nearest.is_some_and(|(_, behind)| *behind > first);
        if first < self.low || end > self.high || overlaps {
            return Err(OutsideWindow);
        }
        if first == self.low {
            self.low = end;
            while let Some(behind) = self.used.remove(&self.low) {
                self.used_count -= behind - self.low;
                self.low = behind;
            }
        } else {
            self.used.insert(first, end);
            self.used_count += charge;
        }
        Ok(())
    }

    /// Whether a request has had this id.
    pub(crate) fn is_used(&self, id: u64) -> bool {
        let nearest = self.used.range(..=id).next_back();
        id < self.low || nearest.is_some_and(|(_, behind)| *behind > id)
    }

    /// How many credits the client holds.
    pub(crate) fn outstanding(&self) -> u64 {
        self.high - self.low - self.used_count
    }

    /// Grants up to `wanted` credits and returns how many. A client that has none left always gets
    /// one, because it could not send anything otherwise.
    pub(crate) fn grant(&mut self, wanted: u16) -> u16 {
        let room = u64::from(self.max).saturating_sub(self.outstanding());
        // Most ids between the oldest unused one and the end of the window.
        let span = (2 * u64::from(self.max)).saturating_sub(self.high - self.low);
        let mut granted = u64::from(wanted).min(room).min(span);
        if granted == 0 && self.outstanding() == 0 {
            granted = 1;
        }
        // Message id 2^64-1 is for unsolicited messages; no connection lives long enough to
        // reach it, but a window that wrapped around would admit any id.
        granted = granted.min(u64::MAX - 1 - self.high);
        self.high += granted;
        u16::try_from(granted).unwrap_or(self.max)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const CREDITS_MAX: u16 = 8192;

    #[test]
    fn no_more_than_the_limit_is_held() {
        let mut window = CreditWindow::new(64);
        window.admit(0, 1).unwrap();
        assert_eq!(window.grant(500), 64);
        assert_eq!(window.grant(500), 0);
        window.admit(1, 10).unwrap();
        assert_eq!(window.grant(500), 10);
    }

    #[test]
    fn a_new_connection_may_use_id_zero_once() {
        let mut window = CreditWindow::new(CREDITS_MAX);
        assert_eq!(window.admit(1, 1), Err(OutsideWindow));
        assert_eq!(window.admit(0, 0), Ok(()));
        assert_eq!(window.admit(0, 1), Err(OutsideWindow));
        assert_eq!(window.outstanding(), 0);
        assert_eq!(window.grant(0), 1);
    }

    #[test]
    fn ids_come_in_any_order_but_only_once() {
        let mut window = CreditWindow::new(CREDITS_MAX);
        window.admit(0, 1).unwrap();
        assert_eq!(window.grant(10), 10);
        window.admit(5, 2).unwrap();
        assert_eq!(window.admit(4, 2), Err(OutsideWindow));
        window.admit(1, 4).unwrap();
        assert_eq!(window.low, 7);
        assert_eq!(window.admit(10, 2), Err(OutsideWindow));
        window.admit(7, 4).unwrap();
        assert_eq!(window.outstanding(), 0);
    }

    #[test]
    fn an_unused_old_id_does_not_let_the_window_grow_for_ever() {
        let mut window = CreditWindow::new(CREDITS_MAX);
        window.admit(0, 1).unwrap();
        window.grant(CREDITS_MAX);
        // Id 1 is never used.
        for next in 2..100_000 {
            if window.admit(next, 1).is_err() {
                break;
            }
            window.grant(1);
        }
        assert!(window.high - window.low <= 2 * u64::from(CREDITS_MAX));
    }

    #[test]
    fn a_large_charge_costs_no_more_than_a_small_one() {
        let mut window = CreditWindow::new(CREDITS_MAX);
        window.admit(0, 1).unwrap();
        window.grant(CREDITS_MAX);
        window.admit(2, CREDITS_MAX - 1).unwrap();
        assert_eq!((window.used.len(), window.outstanding()), (1, 1));
        assert!(!window.is_used(1) && window.is_used(2) && window.is_used(8192));
        assert!(!window.is_used(8193));
        window.admit(1, 1).unwrap();
        assert_eq!((window.low, window.used.len()), (8193, 0));
        assert_eq!(window.outstanding(), 0);
    }

    proptest! {
        /// The model is a plain set of allowed ids.
        #[test]
        fn agrees_with_a_plain_set(steps in prop::collection::vec((0u64..40, 0u16..5, 0u16..6), 1..60)) {
            let mut window = CreditWindow::new(CREDITS_MAX);
            let mut allowed: BTreeSet<u64> = [0].into();
            let mut high = 1u64;
            for (id, charge, wanted) in steps {
                let ids: Vec<u64> = (id..id + u64::from(charge.max(1))).collect();
                let fits = ids.iter().all(|id| allowed.contains(id));
                prop_assert_eq!(window.admit(id, charge).is_ok(), fits);
                if fits {
                    for id in &ids { allowed.remove(id); }
                }
                let granted = u64::from(window.grant(wanted));
                allowed.extend(high..high + granted);
                high += granted;
                prop_assert_eq!(window.outstanding(), allowed.len() as u64);
                prop_assert!(!allowed.is_empty());
            }
        }
    }
}
