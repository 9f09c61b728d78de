//! How often the log says that a share loses acknowledged data with its host.
//!
//! Each tree connect to such a share is worth a line, but who connects a thousand times must not
//! fill the log: one line for each share and minute, which says how many were left out.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Time between two lines about one share.
const QUIET: Duration = Duration::from_secs(60);
/// Shares that are remembered; beyond it all are forgotten, and a line too many is written.
const SHARES_MAX: usize = 16_384;

/// When each share, by its number, was last spoken of, and how often it was not since.
#[derive(Debug, Default)]
pub(crate) struct LossWarnings(Mutex<BTreeMap<u32, (Duration, u64)>>);

impl LossWarnings {
    /// Whether a line about `share` is due at `now` (monotonic); then how many were left out
    /// since the last one.
    pub(crate) fn due(&self, share: u32, now: Duration) -> Option<u64> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= SHARES_MAX && !known.contains_key(&share) {
            known.clear();
        }
        match known.get_mut(&share) {
            Some((last, left_out)) if now.saturating_sub(*last) < QUIET => {
                *left_out = left_out.saturating_add(1);
                None
            }
            other => {
                let left_out = other.map_or(0, |(_, left_out)| *left_out);
                known.insert(share, (now, 0));
                Some(left_out)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_for_each_share_and_minute() {
        let warnings = LossWarnings::default();
        let at = |s| Duration::from_secs(s);
        assert_eq!(warnings.due(1, at(5)), Some(0));
        assert_eq!(warnings.due(1, at(5)), None);
        assert_eq!(warnings.due(2, at(6)), Some(0), "another share");
        assert_eq!(warnings.due(1, at(64)), None);
        assert_eq!(warnings.due(1, at(65)), Some(2));
        assert_eq!(warnings.due(1, at(66)), None);
        for share in 10..10 + u32::try_from(SHARES_MAX).unwrap() {
            warnings.due(share, at(67));
        }
        assert_eq!(warnings.due(1, at(68)), Some(0), "forgotten");
    }
}
