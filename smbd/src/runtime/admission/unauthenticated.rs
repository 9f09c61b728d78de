//! Connections without a login, in the order of their arrival, by network.
//!
//! When there are too many, the oldest one of the network that has most of them is displaced: an
//! attacker who floods the server from a few networks displaces his own connections, and a user who
//! is just logging in stays. A network is an IPv4 /24 or an IPv6 /64, because somebody who has one
//! address there may have all. If several networks have equally many, the connection that has
//! waited longest is displaced.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use smb_auth::limiter;
use tokio::sync::Notify;

#[derive(Debug)]
pub(super) struct Unauthenticated {
    pub(super) peer: IpAddr,
    /// Asks the connection to end.
    pub(super) leave: Arc<Notify>,
}

/// The place of such a connection in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    network: IpAddr,
    /// The connection's number in the order of arrival.
    number: u64,
}

#[derive(Debug, Default)]
pub(super) struct UnauthenticatedTable {
    networks: BTreeMap<IpAddr, BTreeMap<u64, Unauthenticated>>,
    count: u32,
    next: u64,
}

impl UnauthenticatedTable {
    pub(super) fn len(&self) -> u32 {
        self.count
    }

    pub(super) fn add(&mut self, connection: Unauthenticated) -> Place {
        let place = Place {
            network: wide_network(connection.peer),
            number: self.next,
        };
        self.next += 1;
        self.put(place, connection);
        place
    }

    /// Adds a connection at the place that it had before its login.
    pub(super) fn put(&mut self, place: Place, connection: Unauthenticated) {
        let unauthenticated = self.networks.entry(place.network).or_default();
        if unauthenticated.insert(place.number, connection).is_none() {
            self.count += 1;
        }
    }

    /// Removes a connection; `None` if it was removed before.
    pub(super) fn remove(&mut self, place: Place) -> Option<Unauthenticated> {
        let unauthenticated = self.networks.get_mut(&place.network)?;
        let removed = unauthenticated.remove(&place.number)?;
        if unauthenticated.is_empty() {
            self.networks.remove(&place.network);
        }
        self.count -= 1;
        Some(removed)
    }

    /// The number of connections from one host ([`limiter::network`]).
    pub(super) fn of_host(&self, peer: IpAddr) -> u32 {
        let of_host = self
            .near(peer)
            .filter(|(_, connection)| limiter::network(connection.peer) == limiter::network(peer));
        u32::try_from(of_host.count()).unwrap_or(u32::MAX)
    }

    /// The oldest one from the network of `peer` that `wanted` selects.
    pub(super) fn oldest(&self, peer: IpAddr, wanted: impl Fn(IpAddr) -> bool) -> Option<Place> {
        let mut near = self.near(peer);
        let (number, _) = near.find(|(_, connection)| wanted(connection.peer))?;
        Some(Place {
            network: wide_network(peer),
            number: *number,
        })
    }

    /// The oldest one of the network that has most.
    pub(super) fn oldest_of_busiest(&self) -> Option<Place> {
        let oldest = |unauthenticated: &BTreeMap<u64, Unauthenticated>| {
            unauthenticated.keys().next().copied()
        };
        let busiest = self.networks.iter();
        let busiest = busiest.max_by_key(|(_, all)| (all.len(), Reverse(oldest(all))));
        let (network, unauthenticated) = busiest?;
        Some(Place {
            network: *network,
            number: oldest(unauthenticated)?,
        })
    }

    /// The connections without a login from the network of `peer`, the oldest first.
    fn near(&self, peer: IpAddr) -> impl Iterator<Item = (&u64, &Unauthenticated)> {
        self.networks.get(&wide_network(peer)).into_iter().flatten()
    }
}

/// The network of an address, for counting connections of one attacker.
pub(super) fn wide_network(peer: IpAddr) -> IpAddr {
    match limiter::network(peer) {
        IpAddr::V4(address) => IpAddr::V4(Ipv4Addr::from_bits(address.to_bits() & !0xff)),
        network => network,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn add(unauthenticated: &mut UnauthenticatedTable, peer: &str) -> Place {
        unauthenticated.add(Unauthenticated {
            peer: ip(peer),
            leave: Arc::default(),
        })
    }

    #[test]
    fn the_busiest_network_gives_its_oldest() {
        let mut all = UnauthenticatedTable::default();
        let first = add(&mut all, "10.0.0.1");
        let second = add(&mut all, "10.0.1.1");
        assert_eq!(all.oldest_of_busiest(), Some(first), "of equals the oldest");
        // Other addresses of a /24 and of a /64 are counted together.
        let third = add(&mut all, "10.0.1.200");
        assert_eq!(all.oldest_of_busiest(), Some(second));
        let hosts = ["2001:db8::1", "2001:db8::2", "2001:db8::3"];
        let hosts = hosts.map(|host| add(&mut all, host));
        assert_eq!(all.oldest_of_busiest(), Some(hosts[0]));
        assert_eq!((all.len(), all.of_host(ip("2001:db8::9"))), (6, 3));
        assert_eq!(all.of_host(ip("10.0.1.1")), 1);
        for place in hosts {
            assert!(all.remove(place).is_some());
            assert!(all.remove(place).is_none());
        }
        assert_eq!(all.oldest_of_busiest(), Some(second));
        let of = |peer: &str| all.oldest(ip(peer), |one| one == ip(peer));
        assert_eq!(of("10.0.1.200"), Some(third));
        assert_eq!(of("10.0.1.7"), None);
        for place in [first, second, third] {
            all.remove(place);
        }
        assert_eq!(all.oldest_of_busiest(), None);
        assert!(all.networks.is_empty());
    }
}
