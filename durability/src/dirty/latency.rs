//! The sync latency of one share: how long its syncs take, and what follows for keeping a bound.
//!
//! A [`SyncLatency`] remembers the last few syncs. The *usual* latency is a high percentile of these: one slow sync
//! decides nothing, and a disk that recovers is trusted again after about as many quick ones. Before the first sync it
//! is a guess. These are predictions, not promises: a disk may always take longer than before.
//!
//! An inode takes one sync, and one more for each directory with a dirty name of it, one after the
//! other. The sync of a directory may have to wait for one that runs already, for another inode's name.
//!
//! No clock is read here: every time comes from the caller.

use std::time::Duration;

use crate::policy::Bound;

/// The number of syncs whose durations are remembered.
const REMEMBERED: usize = 16;

/// The longest background sync is remembered for at least this long, and for at most twice as long.
const WINDOW: Duration = Duration::from_secs(5);

/// After so long without a sync the latency counts as unknown again, because the disk may have been put to sleep.
const IDLE: Duration = Duration::from_secs(60);

/// On a disk that is slower than the bound, answers wait when a sync takes this many times as long as those before it:
/// the disk may have stopped answering.
const STALLED: u32 = 8;

/// A disk counts as quick enough again after it was never judged too slow for this long.
const QUIET: Duration = Duration::from_secs(5);

/// How long a sync is taken to last at most while none was seen.
const GUESSED_SYNC_MAX: Duration = Duration::from_millis(25);

/// How long a round of background syncs is taken to last at most while that is not known.
const GUESSED_ROUND_MAX: Duration = Duration::from_millis(100);

/// The last spans, with the values that are read often; all zero before the first one.
#[derive(Debug, Clone, Copy, Default)]
struct Recent {
    spans: [Duration; REMEMBERED],
    entry: usize,
    last: Duration,
    /// Three quarters of the spans took no longer.
    usual: Duration,
    longest: Duration,
}

impl Recent {
    fn note(&mut self, span: Duration, now: Duration) {
        if !self.is_known(now) {
            // Few enough earlier spans are kept that one slow sync decides, and that a quick one after it does.
            self.spans = [self.usual; REMEMBERED];
            self.entry = self.entry.min(3);
        }
        self.last = now;
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

    fn is_known(&self, now: Duration) -> bool {
        self.entry > 0 && now < self.last + IDLE
    }
}

/// The largest value of the last window; it is forgotten after two windows at the latest.
#[derive(Debug, Clone, Copy, Default)]
struct Largest<T> {
    since: Duration,
    now: Option<T>,
    before: Option<T>,
}

impl<T: Ord + Copy> Largest<T> {
    fn note(&mut self, value: T, now: Duration, window: Duration) {
        let age = now.saturating_sub(self.since);
        if self.now.is_none() || age > window {
            self.before = self.now.filter(|_| age <= window * 2);
            (self.since, self.now) = (now, None);
        }
        self.now = self.now.max(Some(value));
    }

    fn known(&self) -> Option<T> {
        self.now.max(self.before)
    }
}

/// How a bound is kept for a change that is acknowledged now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Keeping {
    /// Nothing has to wait: even behind another sync of the inode it is on disk in time. Otherwise
    /// FLUSH and write-through wait for the disk, and other changes are paced.
    pub(crate) at_once: bool,
    /// The greatest age of a change that is not on disk while others are acknowledged. It counts from when the change
    /// was made, which may be earlier than when it was acknowledged.
    pub(crate) oldest: Duration,
    /// The number of dirty inodes that are allowed, as a multiple of those that background syncs make stable at once.
    pub(crate) rounds: usize,
    /// The shortest time from the beginning of a running sync that does not cover the change to the answer, so that the
    /// next sync of the inode ends in time.
    hold: Duration,
}

impl Keeping {
    /// The time until which an answer waits because a sync of the inode is running that does not cover its change.
    pub(crate) fn held_until(&self, begun: Duration) -> Duration {
        match self.hold {
            Duration::ZERO => Duration::ZERO,
            hold => begun + hold,
        }
    }
}

/// Since when the disk has been too slow for the bound unless FLUSH waits, and when that was last seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slow {
    since: Duration,
    seen: Duration,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SyncLatency {
    sync: Recent,
    /// The longest background sync, with all that had to go before and after it.
    background: Largest<Duration>,
    /// The most syncs, one after the other, that made one inode stable.
    syncs: Largest<usize>,
    /// `None` again when the settings change: nothing is known to be too slow for them.
    pub(super) slow: Option<Slow>,
}

impl SyncLatency {
    /// A sync of one inode, which ended at `now`, took `span`.
    pub(crate) fn synced(&mut self, span: Duration, now: Duration) {
        self.sync.note(span, now);
    }

    /// A background sync, with all that had to go before and after it, ended `span` after it was due.
    pub(crate) fn background_synced(
        &mut self,
        span: Duration,
        now: Duration,
        bound: Option<&Bound>,
    ) {
        self.background.note(span, now, window(bound));
    }

    /// How the bound is kept for a change that takes `syncs` syncs one after the other.
    pub(crate) fn keeping(&mut self, bound: &Bound, syncs: usize, now: Duration) -> Keeping {
        self.syncs.note(syncs, now, window(Some(bound)));
        let delay = bound.max_delay;
        let guess = (delay / 8).min(GUESSED_SYNC_MAX);
        let (sync, longest) = match self.sync.entry {
            0 => (guess, guess),
            _ => (self.sync.usual, self.sync.longest),
        };
        let chain = times(sync, syncs);
        let known = self.sync.is_known(now);
        let round = self.round(sync, delay, now);
        let rounds = (delay / 2).as_nanos() / round.as_nanos().max(1);
        let rounds = usize::try_from(rounds).unwrap_or(usize::MAX).max(1);
        let at_once = chain <= delay / 2;
        let (oldest, hold) = if at_once {
            // Where nothing is known, an answer waits: the running sync shows how long one takes.
            (delay, if known { Duration::ZERO } else { delay })
        } else if chain >= delay {
            // The bound cannot be kept. An answer waits only until the sync of its change can begin within the bound.
            // If it waited for the syncs of others as well, FLUSHes would no longer share syncs.
            let oldest = delay + (chain + sync) * STALLED;
            (oldest, sync.saturating_sub(delay))
        } else {
            // Both syncs must end in time, even if each takes as long as the slowest one of late.
            let both = longest + times(longest, syncs);
            (delay + longest, both.saturating_sub(delay).min(longest))
        };
        Keeping {
            at_once,
            oldest,
            rounds,
            hold,
        }
    }

    /// Records how a FLUSH or a change was judged at `now`. True if the disk became too slow by that, or quick enough
    /// again.
    pub(crate) fn judged(&mut self, keeping: &Keeping, now: Duration) -> bool {
        let was = self.slow.is_some();
        match &mut self.slow {
            Some(slow) if !keeping.at_once => slow.seen = now,
            Some(slow) if now < slow.seen + QUIET => {}
            slow => {
                let (since, seen) = (now, now);
                *slow = (!keeping.at_once).then_some(Slow { since, seen });
            }
        }
        self.slow.is_some() != was
    }

    /// The time since which the disk is too slow, and how long a sync takes.
    pub(crate) fn too_slow(&self) -> Option<(Duration, Duration)> {
        let slow = self.slow?;
        Some((slow.since, self.sync.usual))
    }

    /// How long a round of background syncs takes, which everything that is dirty at that time shares. Where that is
    /// not known, the answer is a guess that is rather too long.
    fn round(&self, sync: Duration, delay: Duration, now: Duration) -> Duration {
        let chain = times(sync, self.syncs.known().unwrap_or(1));
        match self.sync.is_known(now) {
            true => chain,
            false => chain.max((delay / 2).min(GUESSED_ROUND_MAX)),
        }
    }

    /// The age at which the background sync of a change begins while `rounds` rounds of them are due: half the bound,
    /// or earlier so that there is time for twice the longest sync in each round.
    ///
    /// If the sync takes longer than half the bound, it begins just early enough to end in time. If it cannot end in
    /// time at all, it begins after a short delay, during which a FLUSH may arrive that syncs anyway, but early enough
    /// for a change that needs only one sync.
    pub(crate) fn start_age(&self, bound: &Bound, rounds: usize, now: Duration) -> Duration {
        let delay = bound.max_delay;
        let sync = self.sync.usual;
        let round = self.round(sync, delay, now);
        // The sync of each directory may have to wait for one that runs.
        let with_waits = round + round.saturating_sub(sync);
        let left = if round <= delay / 2 {
            let longest = self.background.known().unwrap_or_default().max(round);
            delay.saturating_sub(times(longest, rounds) * 2)
        } else if round < delay {
            match delay.saturating_sub(with_waits) {
                Duration::ZERO => delay - round,
                left => left,
            }
        } else {
            match delay.saturating_sub(sync) {
                Duration::ZERO => delay,
                left => left.min(sync / 2),
            }
        };
        left.min(delay / 2)
    }
}

fn window(bound: Option<&Bound>) -> Duration {
    bound.map_or(WINDOW, |bound| WINDOW.max(bound.max_delay))
}

fn times(one: Duration, count: usize) -> Duration {
    one.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
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
        let note = |span| latency.synced(ms(span), ms(1));
        spans.into_iter().for_each(note);
        latency
    }

    #[test]
    fn three_slow_syncs_of_sixteen_decide_nothing_and_a_fourth_does() {
        let fast = std::iter::repeat_n(3, 13);
        let mut latency = after(fast.chain([400; 3]));
        assert!(latency.keeping(&bound(50), 1, ms(1)).at_once);
        latency.synced(ms(400), ms(1));
        assert!(!latency.keeping(&bound(50), 1, ms(1)).at_once);
    }

    #[test]
    fn a_disk_that_recovers_is_trusted_after_thirteen_syncs() {
        let mut latency = after([400; 100]);
        for _ in 0..12 {
            latency.synced(ms(3), ms(1));
            assert!(!latency.keeping(&bound(50), 1, ms(1)).at_once);
        }
        latency.synced(ms(3), ms(1));
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
        let start = |latency: &SyncLatency, delay, rounds, now| {
            latency.start_age(&bound(delay), rounds, ms(now))
        };
        assert_eq!(start(&latency, 50, 1, 1), ms(25));
        latency.background_synced(ms(20), ms(2), None);
        assert_eq!(start(&latency, 50, 1, 2), ms(10));
        assert_eq!(start(&latency, 50, 2, 2), ms(0));
        latency.background_synced(ms(400), ms(3), None);
        assert_eq!(start(&latency, 50, 1, 3), ms(0));
        latency.background_synced(ms(5), ms(12_000), None);
        assert_eq!(start(&latency, 50, 1, 12_000), ms(25), "long ago");
        // Always slow: in time if it can be, and not at once if it cannot.
        let latency = after([40; 16]);
        assert_eq!(start(&latency, 50, 1, 1), ms(10));
        assert_eq!(start(&latency, 50, 3, 1), ms(10));
        assert_eq!(start(&latency, 10, 1, 1), ms(5));
    }

    #[test]
    fn what_takes_too_many_syncs_does_not_make_a_single_one_late() {
        let mut latency = after([150; 16]);
        assert_eq!(latency.start_age(&bound(200), 1, ms(1)), ms(50));
        latency.keeping(&bound(200), 2, ms(1));
        assert_eq!(latency.start_age(&bound(200), 1, ms(1)), ms(50));
        // 60 ms, at most 60 of one that runs in the directory, and 60.
        let mut latency = after([60; 16]);
        assert_eq!(latency.start_age(&bound(200), 1, ms(1)), ms(80));
        latency.keeping(&bound(200), 2, ms(1));
        assert_eq!(latency.start_age(&bound(200), 1, ms(1)), ms(20));
    }

    #[test]
    fn as_many_may_be_dirty_as_can_be_synced_in_half_the_bound() {
        assert_eq!(after([5; 16]).keeping(&bound(200), 1, ms(1)).rounds, 20);
        assert_eq!(after([5; 16]).keeping(&bound(200), 2, ms(1)).rounds, 10);
        assert_eq!(after([60; 16]).keeping(&bound(200), 1, ms(1)).rounds, 1);
        assert_eq!(after([900; 16]).keeping(&bound(200), 3, ms(1)).rounds, 1);
        let mut latency = after([5; 16]);
        latency.keeping(&bound(200), 4, ms(1));
        assert_eq!(
            latency.keeping(&bound(200), 1, ms(1)).rounds,
            5,
            "beside longer ones"
        );
    }

    #[test]
    fn what_is_not_known_is_taken_for_slow() {
        let mut idle = after([5; 16]);
        for (latency, now) in [(&mut SyncLatency::default(), 1), (&mut idle, 61_000)] {
            assert_eq!(latency.start_age(&bound(200), 1, ms(now)), ms(0));
            assert_eq!(latency.start_age(&bound(10_000), 1, ms(now)), ms(5_000));
            assert_eq!(latency.keeping(&bound(200), 1, ms(now)).rounds, 1);
        }
        idle.synced(ms(5), ms(61_000));
        assert_eq!(idle.start_age(&bound(200), 1, ms(61_000)), ms(100));
        // The first sync after a rest decides by itself, and the next one again.
        idle.synced(ms(5_000), ms(200_000));
        assert!(!idle.keeping(&bound(200), 1, ms(200_000)).at_once);
        idle.synced(ms(5), ms(200_000));
        assert!(idle.keeping(&bound(200), 1, ms(200_000)).at_once);
    }

    #[test]
    fn the_longest_is_known_for_a_window_and_forgotten_after_two() {
        let s = Duration::from_secs;
        let mut longest = Largest::default();
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
    fn the_turn_is_reported_once_each_way() {
        let slow = after([40; 16]).keeping(&bound(50), 1, ms(1));
        let quick = after([4; 16]).keeping(&bound(50), 1, ms(1));
        let mut latency = SyncLatency::default();
        assert!(!latency.judged(&quick, ms(1)));
        assert!(latency.judged(&slow, ms(2)));
        assert!(!latency.judged(&slow, ms(3)));
        assert!(!latency.judged(&quick, ms(4)), "some are, some are not");
        assert_eq!(latency.too_slow().map(|(since, _)| since), Some(ms(2)));
        assert!(latency.judged(&quick, ms(5003)));
        assert_eq!(latency.too_slow(), None);
        assert!(!latency.judged(&quick, ms(5004)));
    }
}
