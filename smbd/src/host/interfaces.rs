//! The addresses that are announced to clients of several channels: those of the host's interfaces on which a
//! listener accepts connections, with the speed of their links.
//!
//! Loopback is announced only if there is nothing else: no other machine can use it. Addresses valid on one link
//! only (fe80::, 169.254/16) are left out, since a client cannot know which link is meant. A speed that the driver
//! does not know counts as [`UNKNOWN_SPEED`]; an interface with several receive queues counts as able to spread
//! connections over cores (RSS). The settings of a `[[listener]]` override both.
//!
//! They are looked up at start, at a reload and every [`REFRESH`], on a separate thread, because that may wait for a
//! driver.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use smb_server::Server;
use smb_wire::fsctl::{InterfaceCapability, NetworkInterfaceInfo};
use vfs::Vfs;

use crate::{
    config::Listener,
    host::netlink::{self, Address, Link},
};

/// How old the list may be.
const REFRESH: Duration = Duration::from_secs(30);
/// Bits per second of a link whose driver does not report its speed.
const UNKNOWN_SPEED: u64 = 1_000_000_000;
/// Addresses that are announced; more are left out.
const ADDRESSES_MAX: usize = 128;

/// Gives the server its present addresses.
pub(crate) fn announce<V: Vfs>(server: &Server<V>, listeners: &[Listener]) {
    if let Err(error) = look(server, listeners) {
        tracing::warn!(
            %error,
            "the host's addresses cannot be read: clients will not open several channels"
        );
    }
}

fn look<V: Vfs>(server: &Server<V>, listeners: &[Listener]) -> std::io::Result<()> {
    let (links, addresses) = netlink::read()?;
    server.set_interfaces(announced(listeners, &links, &addresses, link_speed));
    Ok(())
}

/// Repeats [`announce`] every [`REFRESH`], for as long as the server exists.
pub(crate) fn keep_telling<V: Vfs + Send + Sync + 'static>(
    server: &Arc<Server<V>>,
    listeners: Arc<[Listener]>,
) -> std::io::Result<()> {
    let server = Arc::downgrade(server);
    let work = move || {
        loop {
            std::thread::sleep(REFRESH);
            let Some(server) = server.upgrade() else {
                return;
            };
            // Where a unit allows no AF_NETLINK this fails each time, and the start has warned of it.
            if let Err(error) = look(&server, &listeners) {
                tracing::debug!(%error, "the host's addresses cannot be read");
            }
        }
    };
    let thread = std::thread::Builder::new().name("interfaces".into());
    thread.spawn(work).map(drop)
}

/// The speed that the driver of a link reports, in bits per second.
fn link_speed(name: &str) -> Option<u64> {
    let said = std::fs::read_to_string(format!("/sys/class/net/{name}/speed")).ok()?;
    parse_speed(&said)
}

/// Megabits; -1 is unknown, and so is the driver's largest number.
fn parse_speed(said: &str) -> Option<u64> {
    let megabits: u64 = said.trim().parse().ok()?;
    (megabits > 0 && megabits < u64::from(u32::MAX)).then(|| megabits * 1_000_000)
}

/// The addresses to announce; those of one interface are adjacent.
fn announced(
    listeners: &[Listener],
    links: &BTreeMap<u32, Link>,
    addresses: &[Address],
    speed: impl Fn(&str) -> Option<u64>,
) -> Vec<NetworkInterfaceInfo> {
    let mut told = Vec::new();
    let mut only_here = Vec::new();
    for address in addresses {
        let Some(link) = links.get(&address.index).filter(|link| link.up) else {
            continue;
        };
        let mut serving = listeners.iter();
        let Some(listener) = serving.find(|listener| takes(listener, &link.name, address.ip))
        else {
            continue;
        };
        if address.unusable || link_local(address.ip) {
            continue;
        }
        let bits = listener.speed.or_else(|| speed(&link.name));
        let rss = listener.rss.unwrap_or(link.receive_queues > 1);
        let interface = NetworkInterfaceInfo {
            if_index: address.index,
            capability: InterfaceCapability::RSS_CAPABLE.when(rss),
            link_speed_bits: bits.unwrap_or(UNKNOWN_SPEED),
            address: address.ip,
            scope_id: 0,
        };
        if link.loopback || address.ip.is_loopback() {
            only_here.push(interface);
        } else {
            told.push(interface);
        }
    }
    let mut told = if told.is_empty() { only_here } else { told };
    told.sort_by_key(|interface| (interface.if_index, interface.address));
    told.truncate(ADDRESSES_MAX);
    told
}

/// Whether connections to `ip` on the interface `name` arrive at the listener.
fn takes(listener: &Listener, name: &str, ip: IpAddr) -> bool {
    let bound = SocketAddr::ip(&listener.address);
    let here = if bound.is_unspecified() {
        // The unspecified IPv6 address takes IPv4 too.
        bound.is_ipv6() || ip.is_ipv4()
    } else {
        bound == ip
    };
    let only = listener.interface.as_deref();
    here && only.is_none_or(|only| only == name)
}

fn link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> (BTreeMap<u32, Link>, Vec<Address>) {
        let link = |name: &str, loopback, up, receive_queues| Link {
            name: name.to_owned(),
            loopback,
            up,
            receive_queues,
        };
        let links = BTreeMap::from([
            (1, link("lo", true, true, 1)),
            (2, link("eth0", false, true, 8)),
            (3, link("eth1", false, true, 1)),
            (4, link("down0", false, false, 1)),
        ]);
        let address = |index, text: &str| Address {
            index,
            ip: text.parse().unwrap(),
            unusable: false,
        };
        let addresses = vec![
            address(1, "127.0.0.1"),
            address(1, "::1"),
            address(2, "192.0.2.1"),
            address(3, "198.51.100.1"),
            address(4, "203.0.113.1"),
            address(2, "2001:db8::1"),
            address(2, "fe80::1"),
            address(3, "169.254.3.4"),
            Address {
                unusable: true,
                ..address(3, "2001:db8::99")
            },
        ];
        (links, addresses)
    }

    fn listener(address: &str) -> Listener {
        Listener {
            address: address.parse().unwrap(),
            ..crate::config::listen_everywhere()
        }
    }

    fn announced_of(listeners: &[Listener]) -> Vec<NetworkInterfaceInfo> {
        let (links, addresses) = host();
        let speed = |name: &str| (name == "eth0").then_some(25_000_000_000);
        announced(listeners, &links, &addresses, speed)
    }

    fn texts(listeners: &[Listener]) -> Vec<String> {
        let told = announced_of(listeners);
        told.iter().map(|one| one.address.to_string()).collect()
    }

    #[test]
    fn every_address_that_others_can_use_is_reported() {
        let everywhere = ["192.0.2.1", "2001:db8::1", "198.51.100.1"];
        assert_eq!(texts(&[listener("[::]:445")]), everywhere);
        let ipv4 = ["192.0.2.1", "198.51.100.1"];
        assert_eq!(texts(&[listener("0.0.0.0:445")]), ipv4);
        assert_eq!(texts(&[listener("198.51.100.1:445")]), ["198.51.100.1"]);
        let both = [listener("198.51.100.1:445"), listener("192.0.2.1:445")];
        assert_eq!(texts(&both), ipv4);
    }

    #[test]
    fn one_interface_is_reported_where_only_it_is_served() {
        let only = Listener {
            interface: Some("eth1".to_owned()),
            ..listener("[::]:445")
        };
        assert_eq!(texts(&[only]), ["198.51.100.1"]);
    }

    #[test]
    fn loopback_is_reported_where_there_is_nothing_else() {
        assert_eq!(texts(&[listener("127.0.0.1:445")]), ["127.0.0.1"]);
        let more = [listener("127.0.0.1:445"), listener("192.0.2.1:445")];
        assert_eq!(texts(&more), ["192.0.2.1"]);
        assert_eq!(texts(&[listener("203.0.113.77:445")]), [""; 0]);
    }

    #[test]
    fn speed_and_queues_are_the_links_unless_the_listener_says_otherwise() {
        let figures = |listener: Listener| -> Vec<_> {
            let told = announced_of(&[listener]);
            let rss = |one: &NetworkInterfaceInfo| !one.capability.is_empty();
            told.iter()
                .map(|one| (one.link_speed_bits, rss(one)))
                .collect()
        };
        let everywhere = listener("0.0.0.0:445");
        let as_it_is = [(25_000_000_000, true), (UNKNOWN_SPEED, false)];
        assert_eq!(figures(everywhere.clone()), as_it_is);
        let said = Listener {
            speed: Some(40_000_000_000),
            rss: Some(true),
            ..everywhere
        };
        assert_eq!(figures(said), [(40_000_000_000, true); 2]);
    }

    #[test]
    fn speeds_as_drivers_write_them() {
        assert_eq!(parse_speed("10000\n"), Some(10_000_000_000));
        for unknown in ["-1\n", "0", "4294967295", "", "fast"] {
            assert_eq!(parse_speed(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn this_host_can_be_read() {
        let (links, addresses) = netlink::read().unwrap();
        let loopback = addresses.iter().find(|address| address.ip.is_loopback());
        // A namespace without any interface up has none.
        if let Some(address) = loopback {
            assert!(links[&address.index].loopback);
            assert_eq!(links[&address.index].name, "lo");
        }
    }
}
