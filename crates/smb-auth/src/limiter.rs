//! The failed-login limiter: counts attempts per address and per (address, user).
//!
//! The structure is pure; the caller passes the time as milliseconds of any monotonic clock. An
//! attempt counts as failed from its *beginning* and is taken back when it succeeds, so a hundred
//! parallel wrong logins count as a hundred and none of them evades the limit. There is no counter
//! per user over all addresses: with one, anybody could lock anybody out.
//!
//! A host with one IPv6 address can use all 2^64 addresses of its network. Therefore the count of
//! an address covers the whole /64 ([`network`]), whereas the count of a user covers the full
//! address, so that a neighbour's typing errors lock nobody out.
//!
//! Tables are bounded; when one is full, the oldest entry is dropped. An address that floods the
//! (address, user) table reaches its own limit first.

use core::net::{IpAddr, Ipv6Addr};
use std::collections::BTreeMap;

use crate::fold_name;

/// Maximum number of entries of either table.
pub const MAX_LIMITER_ENTRIES: usize = 16_384;
/// Number of characters of a user name that are part of the key.
const MAX_NAME_CHARS: usize = 256;

/// The limits. A count starts again `window_ms` after its first attempt; later attempts, right or
/// wrong, do not extend the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimiterConfig {
    /// Failed attempts for one user from one address before further ones are refused.
    pub per_user: u32,
    /// Failed attempts from one address (IPv6: one /64) for any user before further ones are refused.
    pub per_address: u32,
    /// Time after the first attempt at which a count expires, in milliseconds.
    pub window_ms: u64,
    /// Entries per table; at most [`MAX_LIMITER_ENTRIES`] are used.
    pub max_entries: usize,
}

impl Default for LimiterConfig {
    /// 10 failures per user, 100 per address, 60 s.
    fn default() -> Self {
        Self {
            per_user: 10,
            per_address: 100,
            window_ms: 60_000,
            max_entries: MAX_LIMITER_ENTRIES,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Count {
    failures: u32,
    first_ms: u64,
}

/// Returns the address whose count applies: the address itself, or the /64 that belongs to an IPv6
/// host (RFC 4291 2.5.1). A mapped IPv4 address counts as that IPv4 address.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(
            address.to_bits() & !u128::from(u64::MAX),
        )),
        address => address,
    }
}

#[derive(Debug, Default)]
struct Table<K> {
    counts: BTreeMap<K, Count>,
}

impl<K: Ord + Clone> Table<K> {
    fn failures(&self, key: &K, now_ms: u64, window_ms: u64) -> u32 {
        self.count(key, now_ms, window_ms)
            .map_or(0, |count| count.failures)
    }

    fn count(&self, key: &K, now_ms: u64, window_ms: u64) -> Option<Count> {
        let count = self.counts.get(key).copied();
        count.filter(|count| now_ms.saturating_sub(count.first_ms) < window_ms)
    }

    fn add(&mut self, key: K, now_ms: u64, config: &LimiterConfig) {
        let known = self.count(&key, now_ms, config.window_ms);
        let limit = config.max_entries.clamp(1, MAX_LIMITER_ENTRIES);
        if self.counts.len() >= limit && !self.counts.contains_key(&key) {
            self.make_room(now_ms, config.window_ms);
        }
        let count = Count {
            failures: known.map_or(0, |known| known.failures).saturating_add(1),
            first_ms: known.map_or(now_ms, |known| known.first_ms),
        };
        self.counts.insert(key, count);
    }

    fn make_room(&mut self, now_ms: u64, window_ms: u64) {
        let before = self.counts.len();
        self.counts
            .retain(|_, c| now_ms.saturating_sub(c.first_ms) < window_ms);
        if self.counts.len() == before {
            let oldest = self.counts.iter().min_by_key(|(_, c)| c.first_ms);
            if let Some(key) = oldest.map(|(k, _)| k.clone()) {
                self.counts.remove(&key);
            }
        }
    }

    fn take_back(&mut self, key: &K) {
        if let Some(count) = self.counts.get_mut(key) {
            count.failures = count.failures.saturating_sub(1);
            if count.failures == 0 {
                self.counts.remove(key);
            }
        }
    }
}

/// The limiter. Its owner puts it behind one lock, which makes [`Self::begin`] atomic.
#[derive(Debug)]
pub struct LoginLimiter {
    config: LimiterConfig,
    by_user: Table<(IpAddr, String)>,
    by_address: Table<IpAddr>,
}

impl LoginLimiter {
    /// An empty limiter.
    pub fn new(config: LimiterConfig) -> Self {
        Self {
            config,
            by_user: Table {
                counts: BTreeMap::new(),
            },
            by_address: Table {
                counts: BTreeMap::new(),
            },
        }
    }

    /// Changes the limits; the counts remain.
    pub fn configure(&mut self, config: LimiterConfig) {
        self.config = config;
    }

    /// Begins an attempt. Returns true and counts it as failed if it may proceed; returns false
    /// without counting if it is refused.
    pub fn begin(&mut self, address: IpAddr, user: &str, now_ms: u64) -> bool {
        let (key, address) = keys(address, user);
        let config = self.config;
        if self.by_user.failures(&key, now_ms, config.window_ms) >= config.per_user
            || self.by_address.failures(&address, now_ms, config.window_ms) >= config.per_address
        {
            return false;
        }
        self.by_user.add(key, now_ms, &config);
        self.by_address.add(address, now_ms, &config);
        true
    }

    /// Records that the attempt succeeded: the user's count from this address is cleared, and the
    /// count of the address is reduced by this attempt.
    pub fn succeeded(&mut self, address: IpAddr, user: &str) {
        let (key, address) = keys(address, user);
        self.by_user.counts.remove(&key);
        self.by_address.take_back(&address);
    }

    /// The number of failures of a user from an address.
    pub fn failures(&self, address: IpAddr, user: &str, now_ms: u64) -> u32 {
        let (key, _) = keys(address, user);
        self.by_user.failures(&key, now_ms, self.config.window_ms)
    }

    /// The number of entries in both tables, for statistics.
    pub fn entries(&self) -> usize {
        self.by_user.counts.len() + self.by_address.counts.len()
    }
}

/// The keys of an attempt's two counts: its user and its network.
fn keys(address: IpAddr, user: &str) -> ((IpAddr, String), IpAddr) {
    let user = fold_name(user).chars().take(MAX_NAME_CHARS).collect();
    ((address.to_canonical(), user), network(address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    fn ip(n: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 0, 0, n))
    }

    #[test]
    fn refuses_after_the_limit_and_forgets_after_the_window() {
        let mut l = LoginLimiter::new(LimiterConfig::default());
        for _ in 0..10 {
            assert!(l.begin(ip(1), "Anna", 1000));
        }
        assert!(
            !l.begin(ip(1), "ANNA", 1000),
            "letter case makes no new count"
        );
        assert!(
            l.begin(ip(2), "anna", 1000),
            "another address is another count"
        );
        assert!(!l.begin(ip(1), "anna", 60_999));
        assert!(
            l.begin(ip(1), "anna", 61_000),
            "refused attempts do not prolong"
        );
    }

    #[test]
    fn parallel_attempts_are_counted_exactly() {
        let config = LimiterConfig {
            per_user: 1000,
            per_address: 1000,
            ..LimiterConfig::default()
        };
        let l = std::sync::Mutex::new(LoginLimiter::new(config));
        std::thread::scope(|s| {
            for _ in 0..10 {
                s.spawn(|| {
                    for _ in 0..10 {
                        assert!(l.lock().unwrap().begin(ip(1), "anna", 5));
                    }
                });
            }
        });
        assert_eq!(l.lock().unwrap().failures(ip(1), "anna", 5), 100);
    }

    #[test]
    fn success_takes_the_attempt_back() {
        let mut l = LoginLimiter::new(LimiterConfig::default());
        for n in 0..500 {
            assert!(l.begin(ip(1), "anna", n));
            l.succeeded(ip(1), "Anna");
        }
        assert_eq!((l.failures(ip(1), "anna", 500), l.entries()), (0, 0));
    }

    #[test]
    fn attempts_with_many_users_count_for_their_address() {
        let mut l = LoginLimiter::new(LimiterConfig::default());
        let tried = (0..1000)
            .filter(|n| l.begin(ip(1), &format!("u{n}"), 9))
            .count();
        assert_eq!(tried, 100);
    }

    /// With right logins all the time, failures of an hour ago must not count within this minute's window.
    #[test]
    fn right_logins_do_not_extend_the_window_of_old_failures() {
        let mut l = LoginLimiter::new(LimiterConfig {
            per_address: 3,
            ..LimiterConfig::default()
        });
        for minute in 0..10 {
            let now = minute * 60_000;
            assert!(l.begin(ip(1), "bob", now), "minute {minute}");
            for half in [1_000, 30_000] {
                assert!(l.begin(ip(1), "anna", now + half));
                l.succeeded(ip(1), "anna");
            }
        }
    }

    #[test]
    fn the_addresses_of_a_network_share_one_count() {
        let v6 = |host: u128| IpAddr::V6(Ipv6Addr::from_bits((0x2001_0db8 << 96) | host));
        let mut l = LoginLimiter::new(LimiterConfig::default());
        let tried = (0..1000).filter(|n| l.begin(v6(*n), "anna", 9)).count();
        assert_eq!(tried, 100);
        assert!(l.begin(v6(1 << 64), "anna", 9), "the next network");
        let mut l = LoginLimiter::new(LimiterConfig::default());
        for _ in 0..10 {
            assert!(l.begin(v6(1), "anna", 9));
        }
        assert!(!l.begin(v6(1), "anna", 9));
        assert!(l.begin(v6(2), "anna", 9), "a neighbour may still log in");
        for _ in 0..10 {
            assert!(l.begin(ip(1), "anna", 9));
        }
        let mapped = "::ffff:10.0.0.1".parse().unwrap();
        assert!(!l.begin(mapped, "anna", 9), "the same host");
    }

    #[test]
    fn tables_are_bounded() {
        let mut l = LoginLimiter::new(LimiterConfig {
            max_entries: 8,
            ..LimiterConfig::default()
        });
        for n in 0..200u8 {
            l.begin(ip(n), "anna", u64::from(n));
        }
        assert_eq!(l.entries(), 16);
        assert_eq!(l.failures(ip(199), "anna", 199), 1, "the newest remains");
        assert_eq!(l.failures(ip(0), "anna", 199), 0, "the oldest was dropped");
    }
}
