//! Parses addresses and networks as people write them.
//!
//! The members of a range, and the rule that deny wins over allow, are defined by [`durability::Network`] and
//! [`HostRules`](smb_server::config::HostRules). Names are not looked up: a DNS answer is no
//! access rule.

use std::{net::IpAddr, str::FromStr};

/// The bits before the IPv4 address in an IPv6 address to which it is mapped.
const MAPPED_BITS: u8 = 96;

/// One address or network, as in `192.0.2.7`, `192.0.2.0/24`, `2001:db8::/32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Network(pub(super) durability::Network);

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
        let prefix = match prefix {
            None => width,
            Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => digits
                .parse()
                .ok()
                .filter(|bits| *bits <= width)
                .ok_or_else(refuse)?,
            Some(_) => return Err(refuse()),
        };
        // Peers are compared by their IPv4 addresses, so a mapped network must be one of IPv4.
        let IpAddr::V6(mapped) = address else {
            return Ok(Self(durability::Network { address, prefix }));
        };
        let (address, prefix) = match (mapped.to_ipv4_mapped(), prefix.checked_sub(MAPPED_BITS)) {
            (None, _) => (address, prefix),
            (Some(of_v4), Some(prefix)) => (of_v4.into(), prefix),
            (Some(_), None) => return Err(refuse()),
        };
        Ok(Self(durability::Network { address, prefix }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_what_is_meant() {
        let holds = |net: &str, peer: &str| {
            let Network(range) = net.parse().unwrap();
            range.contains(peer.parse().unwrap())
        };
        assert!(holds("192.0.2.0/24", "192.0.2.255"));
        assert!(!holds("192.0.2.0/24", "192.0.3.0"));
        assert!(holds("0.0.0.0/0", "203.0.113.9"));
        assert!(!holds("0.0.0.0/0", "2001:db8::1"));
        assert!(holds("10.1.2.3", "10.1.2.3"));
        assert!(!holds("10.1.2.3", "10.1.2.2"));
        assert!(holds("2001:db8::/33", "2001:db8:7fff::1"));
        assert!(!holds("2001:db8::/33", "2001:db8:8000::1"));
        assert!(holds("::/0", "2001:db8::1"));
        assert!(holds("127.0.0.0/8", "::ffff:127.0.0.1"));
        assert!(holds("::ffff:10.0.0.0/104", "10.255.0.1"));
        assert!(holds("::ffff:10.0.0.7", "::ffff:10.0.0.7"));
        assert!(!holds("::ffff:10.0.0.0/104", "11.0.0.1"));
        assert!(holds("::ffff:0:0/96", "192.0.2.1"));
        assert!(!holds("::/0", "::ffff:127.0.0.1"));
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
            "10.0.0.0/-1",
            "10.0.0/8",
            "::ffff:10.0.0.0/95",
            "a/8",
        ] {
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
    }
}
