//! Limits how often the log repeats a line about one thing.
//!
//! Each tree connect to a share that loses data with its host is worth a line, and so is each failed login, each
//! refused tree connect and each message that breaks the protocol; but a client that connects or guesses a thousand
//! times must not fill the log. A few lines are written for each thing and minute, and the number of omitted lines is
//! logged with them or after them.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use smb_auth::limiter::network;
use vfs::Vfs;

use super::Server;
use crate::locks::Mutex;

/// Time for which a thing has its number of lines.
const SPAN: Duration = Duration::from_secs(60);
/// The most things that are remembered. With more, all are forgotten, and too many lines may be written.
const THINGS_MAX: usize = 16_384;

/// The event at an address or on a share that a line is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LineAbout {
    /// A login that failed or became a guest login.
    Login,
    /// A tree connect that was refused to its user or address.
    TreeConnect,
    /// A message that broke the protocol.
    BrokenProtocol,
    /// A handle that is kept for a shorter time than its client asked for.
    ShortenedHandle,
    /// A close that failed after its client had gone.
    FailedClose,
    /// A name that was to be removed and stays.
    NameStays,
}

/// The lines written about things, each by its key.
#[derive(Debug)]
pub(crate) struct LogThrottle<K> {
    /// Lines for each thing and [`SPAN`].
    lines: u32,
    known: Mutex<BTreeMap<K, Written>>,
}

/// The lines written about one thing.
#[derive(Debug, Clone, Copy)]
struct Written {
    since: Duration,
    lines: u32,
    left_out: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// The line is written; this many were left out since the last one.
    Write(u64),
    /// The line is left out, as the first one of a span that ends after this time.
    LeaveOutFrom(Duration),
    /// The line is left out, like others before it.
    LeaveOut,
}

impl<K: Ord + Copy> LogThrottle<K> {
    pub(crate) fn new(lines: u32) -> Self {
        Self {
            lines,
            known: Mutex::default(),
        }
    }

    /// Whether a line about `key` is due at `now` (monotonic).
    pub(crate) fn due(&self, key: K, now: Duration) -> Due {
        let mut known = self.known.lock();
        if known.len() >= THINGS_MAX && !known.contains_key(&key) {
            known.clear();
        }
        let begun = Written {
            since: now,
            lines: 0,
            left_out: 0,
        };
        let written = known.entry(key).or_insert(begun);
        let gone = now.saturating_sub(written.since);
        if gone >= SPAN {
            let left_out = written.left_out;
            *written = Written { lines: 1, ..begun };
            return Due::Write(left_out);
        }
        if written.lines < self.lines {
            written.lines += 1;
            return Due::Write(0);
        }
        written.left_out = written.left_out.saturating_add(1);
        if written.left_out == 1 {
            Due::LeaveOutFrom(SPAN.saturating_sub(gone))
        } else {
            Due::LeaveOut
        }
    }

    /// Takes the number of lines about `key` that were omitted and not yet reported.
    pub(crate) fn take_left_out(&self, key: K) -> u64 {
        let mut known = self.known.lock();
        let left_out = known.get_mut(&key).map(|written| &mut written.left_out);
        left_out.map_or(0, std::mem::take)
    }
}

/// Returns the number of earlier lines about the network of a client that were left out, if another line is due. `more`
/// logs the number of lines left out, when their span is over.
pub(crate) fn line_due<V: Vfs>(
    server: &Arc<Server<V>>,
    about: LineAbout,
    peer: IpAddr,
    more: fn(IpAddr, u64),
) -> Option<u64> {
    let from = network(peer);
    let key = (about, from);
    let span = match server.address_lines.due(key, server.env.monotonic()) {
        Due::Write(left_out) => return Some(left_out),
        Due::LeaveOutFrom(span) => span,
        Due::LeaveOut => return None,
    };
    let (env, server) = (Arc::clone(&server.env), Arc::downgrade(server));
    let sleeper = Arc::clone(&env);
    env.spawn(Box::pin(async move {
        sleeper.sleep(span).await;
        let left_out = server
            .upgrade()
            .map(|server| server.address_lines.take_left_out(key));
        if let Some(left_out) = left_out.filter(|left_out| *left_out > 0) {
            more(from, left_out);
        }
    }));
    None
}

/// Returns the number of earlier lines about an event on a share (by its number) that were left out, if another line is
/// due.
pub(crate) fn share_line_due<V: Vfs>(
    server: &Server<V>,
    about: LineAbout,
    share: u32,
) -> Option<u64> {
    let now = server.env.monotonic();
    match server.share_lines.due((about, share), now) {
        Due::Write(left_out) => Some(left_out),
        Due::LeaveOutFrom(_) | Due::LeaveOut => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn one_line_for_each_thing_and_minute() {
        let throttle = LogThrottle::new(1);
        assert_eq!(throttle.due(1, at(5)), Due::Write(0));
        assert_eq!(throttle.due(1, at(5)), Due::LeaveOutFrom(at(60)));
        assert_eq!(throttle.due(2, at(6)), Due::Write(0), "another");
        assert_eq!(throttle.due(1, at(64)), Due::LeaveOut);
        assert_eq!(throttle.due(1, at(65)), Due::Write(2));
        assert_eq!(throttle.due(1, at(66)), Due::LeaveOutFrom(at(59)));
        for thing in 10..10 + u32::try_from(THINGS_MAX).unwrap() {
            throttle.due(thing, at(67));
        }
        assert_eq!(throttle.due(1, at(68)), Due::Write(0), "forgotten");
    }

    #[test]
    fn what_was_left_out_is_logged_once() {
        let throttle = LogThrottle::new(3);
        let written = |now| throttle.due((), at(now)) == Due::Write(0);
        assert_eq!((0..10).filter(|_| written(1)).count(), 3);
        assert_eq!(throttle.take_left_out(()), 7);
        assert_eq!(throttle.take_left_out(()), 0);
        assert_eq!(throttle.due((), at(61)), Due::Write(0), "reported already");
    }
}
