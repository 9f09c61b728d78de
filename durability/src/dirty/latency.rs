//! The sync latency of one share: how long its syncs take, and how a bound is kept by that.
//!
//! A [`SyncLatency`] remembers the last few syncs and background syncs. The *usual* latency is a high
//! percentile of these: one slow sync decides nothing, and a disk that recovers is trusted again
//! after about as many quick ones. Before the first sync it is a guess that errs on the slow side.
//! These are predictions, not promises: a disk may always take longer than before.
//!
//! No clock is read here: every time comes from the caller.

use std::time::Duration;

use crate::settings::Bound;

/// Spans that are remembered.
const REMEMBERED: usize = 16;

/// How long the longest background sync is remembered at least; twice as long at most.
const WINDOW: Duration = Duration::from_secs(5);

/// On a disk that is slower than the bound, answers wait when a sync takes this many times as long as those before it:
/// the disk may have stopped answering.
const STALLED: u32 = 8;

/// For how long nothing has to be too slow before a share counts as quick enough again.
const QUIET: Duration = Duration::from_secs(5);

/// The last spans, with the values that are read often.
#[derive(Debug, Clone, Copy, Default)]
struct Recent {
    spans: [Duration; REMEMBERED],
    entry: usize,
    usual: Duration,
    longest: Duration,
}

impl Recent {
    fn note(&mut self, span: Duration) {
        if let Some(place) = self.spans.get_mut(self.entry % REMEMBERED) {
            *place = span;
        }
        self.entry = self.entry.saturating_add(1);
        let mut sorted = self.spans;
        let known = sorted.get_mut(..self.entry.min(REMEMBERED));
        let Some(known) = known else { return };
        known.sort_unstable();
        self.usual = known.get(known.len() * 3 / 4).copied().unwrap_or_default();
        self.longest = known.last().copied().unwrap_or_default();
    }

    /// Three quarters of the last took less.
    fn usual(&self) -> Option<Duration> {
        (self.entry > 0).then_some(self.usual)
    }

    fn longest(&self) -> Option<Duration> {
        (self.entry > 0).then_some(self.longest)
    }
}

/// The longest span within the last [`WINDOW`].
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

/// How a bound is kept for something that is acknowledged now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Keeping {
    /// Nothing has to wait: even behind another sync of the inode it is on disk in time. Otherwise
    /// FLUSH and write-through wait for the disk, and other changes are paced.
    pub(crate) at_once: bool,
    /// How old the oldest change may be that is not on disk while others are acknowledged, counted
    /// from when it was made: it may have been acknowledged later.
    pub(crate) oldest: Duration,
    /// The bound cannot be kept: syncs have only to begin in time.
    pub(crate) may_end_late: bool,
    /// How long background syncs of what is dirty may take, round after round.
    pub(crate) backlog: Duration,
    /// How long after the beginning of a sync that does not cover the change it may be
    /// acknowledged: another sync follows.
    hold: Duration,
}

impl Keeping {
    /// Until when an answer waits because of the sync of the inode that began then and does not
    /// cover the change.
    pub(crate) fn held_until(&self, begun: Duration) -> Duration {
        match self.hold {
            Duration::ZERO => Duration::ZERO,
            hold => begun + hold,
        }
    }
}

/// The time since which the disk is too slow for the bound unless FLUSH waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slow {
    since: Duration,
    seen: Duration,
}

/// The disk of a share became too slow for its bound, or quick enough again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    TooSlow,
    QuickAgain,
}

/// The sync latency of one share.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SyncLatency {
    sync: Recent,
    payment: Recent,
    /// The longest background sync.
    longest: Longest,
    /// The longest that was expected of all syncs that make one thing stable.
    chains: Longest,
    slow: Option<Slow>,
}

impl SyncLatency {
    /// One sync of one inode took so long.
    pub(crate) fn synced(&mut self, span: Duration) {
        self.sync.note(span);
    }

    /// A background sync, with all that had to go before and after it, took so long.
    pub(crate) fn paid(&mut self, span: Duration, now: Duration, bound: Option<&Bound>) {
        self.payment.note(span);
        self.longest.note(span, now, window(bound));
    }

    /// How the bound is kept for a change that takes so many syncs one after the other.
    pub(crate) fn keeping(&mut self, bound: &Bound, syncs: usize, now: Duration) -> Keeping {
        let guess = || (bound.max_delay / 8).min(Duration::from_millis(25));
        let sync = self.sync.usual().unwrap_or_else(guess);
        let chain = sync.saturating_mul(u32::try_from(syncs).unwrap_or(u32::MAX));
        // Background syncs are to begin early enough for a chain that is longer than those lately.
        self.chains.note(chain, now, window(Some(bound)));
        let delay = bound.max_delay;
        if chain <= delay / 2 {
            return Keeping {
                at_once: true,
                oldest: delay,
                may_end_late: false,
                backlog: delay / 2,
                hold: Duration::ZERO,
            };
        }
        if chain > delay {
            // The bound cannot be kept. The sync of an acknowledged change begins by then, and how long
            // those of others take is no reason to wait: FLUSHes that wait would no longer share syncs.
            return Keeping {
                at_once: false,
                oldest: delay + (chain + sync) * STALLED,
                may_end_late: true,
                backlog: delay + sync,
                hold: sync.saturating_sub(delay),
            };
        }
        // Both syncs are to end in time, be they as slow as the slowest lately.
        let longest = self.sync.longest().unwrap_or(sync);
        let both = longest + longest.saturating_mul(u32::try_from(syncs).unwrap_or(u32::MAX));
        Keeping {
            at_once: false,
            oldest: delay + longest,
            may_end_late: false,
            backlog: delay / 2,
            hold: both.saturating_sub(delay).min(longest),
        }
    }

    /// A FLUSH or a change was judged like this at `now`. Answers whether that differs from before.
    pub(crate) fn judged(&mut self, keeping: &Keeping, now: Duration) -> Option<Turn> {
        match &mut self.slow {
            None if keeping.at_once => None,
            None => {
                let (since, seen) = (now, now);
                self.slow = Some(Slow { since, seen });
                Some(Turn::TooSlow)
            }
            Some(slow) if !keeping.at_once => {
                slow.seen = now;
                None
            }
            Some(slow) if now < slow.seen + QUIET => None,
            Some(_) => {
                self.slow = None;
                Some(Turn::QuickAgain)
            }
        }
    }

    /// Since when the disk is too slow, and how long a sync takes.
    pub(crate) fn too_slow(&self) -> Option<(Duration, Duration)> {
        let slow = self.slow?;
        Some((slow.since, self.sync.usual().unwrap_or_default()))
    }

    /// The settings changed: nothing is known to be too slow for them.
    pub(crate) fn forget_slow(&mut self) {
        self.slow = None;
    }

    /// The time that so many rounds of background syncs are expected to take.
    pub(crate) fn of_rounds(&self, bound: &Bound, rounds: usize) -> Duration {
        times(self.payment.usual(), bound, rounds)
    }

    /// The age at which the background sync of something begins while so many rounds of them are
    /// due: half the bound, or earlier where twice the time that it may take would go beyond.
    ///
    /// Where it takes longer than half the bound, just early enough for it to end in time, and
    /// where no moment would be, after a short while in which a FLUSH may come that does it.
    pub(crate) fn start_age(&self, bound: &Bound, rounds: usize) -> Duration {
        let delay = bound.max_delay;
        let chain = self.chains.known().unwrap_or_default();
        if chain <= delay / 2 {
            let longest = self.longest.known().max(self.chains.known());
            return delay
                .saturating_sub(times(longest, bound, rounds) * 2)
                .min(delay / 2);
        }
        match times(Some(chain), bound, rounds) {
            all if all <= delay => delay - all,
            _ => delay.min(self.sync.usual().unwrap_or_default()) / 2,
        }
    }
}

fn window(bound: Option<&Bound>) -> Duration {
    bound.map_or(WINDOW, |bound| WINDOW.max(bound.max_delay))
}

/// That many times as long as one round takes, or as long as is guessed.
fn times(round: Option<Duration>, bound: &Bound, rounds: usize) -> Duration {
    let guess = || (bound.max_delay / 2).min(Duration::from_millis(100));
    (round.unwrap_or_else(guess)).saturating_mul(u32::try_from(rounds).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn bound(delay: u64) -> Bound {
        Bound::new(ms(delay), 4 << 20).unwrap()
    }

    fn after(spans: impl IntoIterator<Item = u64>) -> SyncLatency {
        let mut latency = SyncLatency::default();
        spans.into_iter().for_each(|span| latency.synced(ms(span)));
        latency
    }

    #[test]
    fn three_slow_syncs_of_sixteen_decide_nothing_and_a_fourth_does() {
        let fast = std::iter::repeat_n(3, 13);
        let mut latency = after(fast.chain([400; 3]));
        assert!(latency.keeping(&bound(50), 1, ms(1)).at_once);
        latency.synced(ms(400));
        assert!(!latency.keeping(&bound(50), 1, ms(1)).at_once);
    }

    #[test]
    fn a_disk_that_recovers_is_trusted_after_thirteen_syncs() {
        let mut latency = after([400; 100]);
        for _ in 0..12 {
            latency.synced(ms(3));
            assert!(!latency.keeping(&bound(50), 1, ms(1)).at_once);
        }
        latency.synced(ms(3));
        assert!(latency.keeping(&bound(50), 1, ms(1)).at_once);
    }

    #[test]
    fn the_first_sync_of_all_decides_by_itself() {
        assert!(after([]).keeping(&bound(50), 1, ms(1)).at_once);
        assert!(!after([40]).keeping(&bound(50), 1, ms(1)).at_once);
        assert!(after([20]).keeping(&bound(50), 1, ms(1)).at_once);
        assert!(
            !after([20]).keeping(&bound(50), 2, ms(1)).at_once,
            "two of them"
        );
    }

    #[test]
    fn an_answer_waits_until_the_sync_after_the_running_one_can_end_in_time() {
        let paced = after([40; 16]).keeping(&bound(50), 1, ms(1));
        // The running one ends at 1,040, the next one at 1,080: 50 ms after 1,030.
        assert_eq!(paced.held_until(ms(1000)), ms(1030));
        // As slow as the slowest of late.
        let paced = after(std::iter::repeat_n(40, 15).chain([44])).keeping(&bound(50), 1, ms(1));
        assert_eq!(paced.held_until(ms(1000)), ms(1038));
        // Slower than the bound: the next one begins at 1,040.
        let beyond = after([40; 16]).keeping(&bound(10), 1, ms(1));
        assert_eq!(beyond.held_until(ms(1000)), ms(1030));
        let quick = after([20; 16]).keeping(&bound(50), 1, ms(1));
        assert_eq!(quick.held_until(ms(1000)), ms(0));
    }

    #[test]
    fn background_syncs_begin_in_time_for_the_longest() {
        let mut latency = after([5; 16]);
        (0..16).for_each(|_| latency.paid(ms(5), ms(1), None));
        assert_eq!(latency.start_age(&bound(50), 1), ms(25));
        latency.paid(ms(20), ms(2), None);
        assert_eq!(latency.start_age(&bound(50), 1), ms(10));
        assert_eq!(latency.start_age(&bound(50), 2), ms(0));
        latency.paid(ms(400), ms(3), None);
        assert_eq!(latency.start_age(&bound(50), 1), ms(0));
        latency.paid(ms(5), ms(12_000), None);
        assert_eq!(latency.start_age(&bound(50), 1), ms(25), "long ago");
        // Always slow: in time if it can be, and not at once if it cannot.
        let mut latency = after([40; 16]);
        latency.keeping(&bound(50), 1, ms(1));
        assert_eq!(latency.start_age(&bound(50), 1), ms(10));
        assert_eq!(latency.start_age(&bound(10), 1), ms(5));
    }

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

    #[test]
    fn the_turn_is_told_once_each_way() {
        let slow = after([40; 16]).keeping(&bound(50), 1, ms(1));
        let quick = after([4; 16]).keeping(&bound(50), 1, ms(1));
        let mut latency = SyncLatency::default();
        assert_eq!(latency.judged(&quick, ms(1)), None);
        assert_eq!(latency.judged(&slow, ms(2)), Some(Turn::TooSlow));
        assert_eq!(latency.judged(&slow, ms(3)), None);
        assert_eq!(
            latency.judged(&quick, ms(4)),
            None,
            "some are, some are not"
        );
        assert_eq!(latency.too_slow().map(|(since, _)| since), Some(ms(2)));
        assert_eq!(latency.judged(&quick, ms(5003)), Some(Turn::QuickAgain));
        assert_eq!(latency.too_slow(), None);
        assert_eq!(latency.judged(&quick, ms(5004)), None);
    }
}
