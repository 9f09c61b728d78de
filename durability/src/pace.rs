//! How long syncs take: what a bound is kept by.
//!
//! A [`Pace`] knows the longest of at least the last [`WINDOW`]; longer ago is forgotten, so that a
//! disk that recovers is trusted again. Without any experience a guess is made that errs on the
//! slow side. Predictions, not promises: a disk may always take longer than it ever did.

use std::time::Duration;

use crate::settings::Bound;

/// How long the longest is remembered at least; twice as long at most.
pub(crate) const WINDOW: Duration = Duration::from_secs(5);

/// The longest of what was noted lately.
#[derive(Debug, Clone, Copy, Default)]
struct Longest {
    since: Duration,
    now: Option<Duration>,
    before: Option<Duration>,
}

impl Longest {
    fn note(&mut self, span: Duration, now: Duration, window: Duration) {
        let age = now.saturating_sub(self.since);
        if self.now.is_none() || age > window {
            self.before = self.now.filter(|_| age <= window * 2);
            (self.since, self.now) = (now, None);
        }
        self.now = self.now.max(Some(span));
    }

    fn known(&self) -> Option<Duration> {
        self.now.max(self.before)
    }
}

/// What one share's syncs took.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pace {
    sync: Longest,
    payment: Longest,
}

impl Pace {
    /// One sync of one inode took so long.
    pub(crate) fn synced(&mut self, span: Duration, now: Duration) {
        self.sync.note(span, now, WINDOW);
    }

    /// A background sync, with all that had to go before and after it, took so long, or will.
    pub(crate) fn paid(&mut self, span: Duration, now: Duration, bound: Option<&Bound>) {
        let window = bound.map_or(WINDOW, |bound| WINDOW.max(bound.max_delay));
        self.payment.note(span, now, window);
    }

    /// What so many syncs one after the other are expected to take.
    pub(crate) fn of_chain(&self, bound: &Bound, syncs: usize) -> Duration {
        let guess = || (bound.max_delay / 8).min(Duration::from_millis(25));
        self.sync
            .known()
            .unwrap_or_else(guess)
            .saturating_mul(u32::try_from(syncs).unwrap_or(u32::MAX))
    }

    /// What so many rounds of background syncs are expected to take.
    pub(crate) fn of_rounds(&self, bound: &Bound, rounds: usize) -> Duration {
        let guess = || (bound.max_delay / 2).min(Duration::from_millis(100));
        self.payment
            .known()
            .unwrap_or_else(guess)
            .saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_is_known_for_a_window_and_forgotten_after_two() {
        let s = Duration::from_secs;
        let mut longest = Longest::default();
        assert_eq!(longest.known(), None);
        for (at, span, known) in [
            (1, 3, 3),
            (2, 9, 9),
            (5, 1, 9),
            (6, 1, 9),
            (7, 1, 9),
            (11, 1, 9),
            (13, 2, 2),
            (40, 1, 1),
        ] {
            longest.note(s(span), s(at), WINDOW);
            assert_eq!(longest.known(), Some(s(known)), "at {at}");
        }
    }
}
