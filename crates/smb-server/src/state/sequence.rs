//! Open.ChannelSequence and the requests counted by it ([MS-SMB2] 3.3.5.2.10, 3.3.4.1).
//!
//! A client that lost a channel does not know whether the requests it had sent there were carried out. It raises
//! the sequence and sends them again, marked as replays. Requests that were sent before and still arrive or still
//! run must not change the file afterwards: a request with an older number, and a replay while older requests run,
//! may not modify.

/// How far ahead a number counts as newer.
const AHEAD: u16 = 0x7fff;

/// The channel sequence of an open, and how many of its requests run.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChannelSequence {
    current: u16,
    /// Open.OutstandingRequestCount.
    outstanding: u32,
    /// Open.OutstandingPreRequestCount.
    before: u32,
}

impl ChannelSequence {
    pub(crate) fn new(current: u16) -> Self {
        Self {
            current,
            ..Self::default()
        }
    }

    /// Admits a request with the number `sent` and counts it; [`ChannelSequence::done`] must follow when it is over.
    /// Returns false if it comes too late: it runs uncounted, unless it modifies and so fails with
    /// `FILE_NOT_AVAILABLE`.
    pub(crate) fn admit(&mut self, sent: u16, replay: bool) -> bool {
        if sent != self.current {
            if sent.wrapping_sub(self.current) > AHEAD {
                return false;
            }
            self.before += std::mem::take(&mut self.outstanding);
            self.current = sent;
        }
        if replay && self.before > 0 {
            return false;
        }
        self.outstanding += 1;
        true
    }

    /// Called when a counted request with the number `sent` is over.
    pub(crate) fn done(&mut self, sent: u16) {
        let count = if sent == self.current {
            &mut self.outstanding
        } else {
            &mut self.before
        };
        *count = count.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_numbers_are_late_and_newer_ones_take_over() {
        let mut sequence = ChannelSequence::new(5);
        assert!(sequence.admit(5, false));
        assert!(!sequence.admit(4, false));
        assert!(sequence.admit(6, false));
        assert!(!sequence.admit(5, false));
        // A number half the range ahead is newer; one more is older.
        assert!(sequence.admit(6 + 0x7fff, false));
        assert!(!sequence.admit(5, false));
        assert!(sequence.admit(4, false));
    }

    #[test]
    fn a_replay_waits_for_what_was_sent_before() {
        let mut sequence = ChannelSequence::new(0);
        assert!(sequence.admit(0, false));
        // The first one may still run, on the channel that was lost.
        assert!(!sequence.admit(1, true));
        assert!(sequence.admit(1, false));
        sequence.done(0);
        assert!(sequence.admit(1, true));
        assert_eq!((sequence.outstanding, sequence.before), (2, 0));
        sequence.done(1);
        sequence.done(1);
        sequence.done(1);
        assert_eq!((sequence.outstanding, sequence.before), (0, 0));
    }

    #[test]
    fn a_replay_with_the_number_in_force_is_as_good_as_the_first() {
        let mut sequence = ChannelSequence::new(7);
        assert!(sequence.admit(7, true));
        assert!(!sequence.admit(8, true));
        sequence.done(7);
        assert!(sequence.admit(8, true));
        // The numbers wrap around.
        let mut sequence = ChannelSequence::new(0xffff);
        assert!(sequence.admit(0, true));
        assert!(!sequence.admit(0xffff, true));
    }
}
