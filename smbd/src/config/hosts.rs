//! Who may connect: lists of addresses and networks.
//!
//! A peer is let in when no `hosts_deny` entry holds it and `hosts_allow` is empty or holds it;
//! deny wins. An IPv4 peer that arrives on an IPv6 socket (`::ffff:192.0.2.1`) is judged as the
//! IPv4 address it is. Names are not looked up: a DNS answer is no access rule.

use std::{fmt, net::IpAddr, str::FromStr};

use serde::{Deserialize, Deserializer, de};

/// One address or network, as in `192.0.2.7`, `192.0.2.0/24`, `2001:db8::/32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix_bits: u8,
}

impl Network {
    /// An address within.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Leading bits that must agree.
    #[must_use]
    pub fn prefix_bits(&self) -> u8 {
        self.prefix_bits
    }

    /// Whether `peer` lies inside.
    #[must_use]
    pub fn contains(&self, peer: IpAddr) -> bool {
        match (self.address, peer.to_canonical()) {
            (IpAddr::V4(net), IpAddr::V4(peer)) => {
                let mask = high_bits(u128::from(self.prefix_bits) + 96);
                (u128::from(u32::from(net)) ^ u128::from(u32::from(peer))) & mask == 0
            }
            (IpAddr::V6(net), IpAddr::V6(peer)) => {
                (u128::from(net) ^ u128::from(peer)) & high_bits(u128::from(self.prefix_bits)) == 0
            }
            _ => false,
        }
    }
}

fn high_bits(count: u128) -> u128 {
    // A shift by 128 is no shift at all in Rust's terms, hence the checked one.
    u32::try_from(128 - count.min(128))
        .ok()
        .and_then(|low| u128::MAX.checked_shl(low))
        .unwrap_or(0)
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || {
            format!(
                "`{text}` is no address or network: write 192.0.2.7, 192.0.2.0/24, 2001:db8::1 or \
                 2001:db8::/32 (names are not looked up)"
            )
        };
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| refuse())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let prefix_bits = match prefix {
            None => width,
            Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => digits
                .parse()
                .ok()
                .filter(|bits| *bits <= width)
                .ok_or_else(refuse)?,
            Some(_) => return Err(refuse()),
        };
        Ok(Self {
            address,
            prefix_bits,
        })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix_bits)
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// The allowed and denied hosts of the server or of a share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostRules {
    /// Empty means everybody.
    pub allow: Vec<Network>,
    /// Wins over `allow`.
    pub deny: Vec<Network>,
}

impl HostRules {
    /// Whether `peer` may connect.
    #[must_use]
    pub fn permits(&self, peer: IpAddr) -> bool {
        let listed = |list: &[Network]| list.iter().any(|network| network.contains(peer));
        !listed(&self.deny) && (self.allow.is_empty() || listed(&self.allow))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> Network {
        text.parse().unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn networks_hold_what_they_say() {
        assert!(net("192.0.2.0/24").contains(ip("192.0.2.255")));
        assert!(!net("192.0.2.0/24").contains(ip("192.0.3.0")));
        assert!(net("0.0.0.0/0").contains(ip("203.0.113.9")));
        assert!(!net("0.0.0.0/0").contains(ip("2001:db8::1")));
        assert!(net("10.1.2.3").contains(ip("10.1.2.3")));
        assert!(!net("10.1.2.3").contains(ip("10.1.2.2")));
        assert!(net("2001:db8::/33").contains(ip("2001:db8:7fff::1")));
        assert!(!net("2001:db8::/33").contains(ip("2001:db8:8000::1")));
        assert!(net("::/0").contains(ip("2001:db8::1")));
        assert!(net("127.0.0.0/8").contains(ip("::ffff:127.0.0.1")));
        assert!(!net("::/0").contains(ip("::ffff:127.0.0.1")));
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in [
            "",
            "localhost",
            "192.0.2",
            "192.0.2.0/33",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/+8",
        ] {
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
    }

    #[test]
    fn deny_wins() {
        let rules = HostRules {
            allow: vec![net("10.0.0.0/8")],
            deny: vec![net("10.9.0.0/16")],
        };
        assert!(rules.permits(ip("10.8.0.1")));
        assert!(!rules.permits(ip("10.9.0.1")));
        assert!(!rules.permits(ip("192.0.2.1")));
        assert!(HostRules::default().permits(ip("192.0.2.1")));
    }
}
