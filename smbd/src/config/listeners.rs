//! Checks of `[[listener]]`: addresses that the kernel can bind side by side, and names of cores and interfaces.

use std::net::{IpAddr, SocketAddr};

use serde_spanned::Spanned;

use super::{
    EVERY_ADDRESS, Listener, SMB_PORT, raw,
    validate::{Findings, get, given, span},
};

/// Most cores one listener can name.
const CORES_MAX: usize = 1_024;
/// Longest name of an interface: IFNAMSIZ without the closing zero.
const INTERFACE_NAME_MAX: usize = 15;
/// Most listeners.
const LISTENERS_MAX: usize = 256;

/// The listener of a configuration that names none: every address, every core.
pub fn listen_everywhere() -> Listener {
    Listener::at(SocketAddr::new(EVERY_ADDRESS, SMB_PORT))
}

pub(super) fn listeners(
    tables: &[Spanned<raw::ListenerTable>],
    findings: &mut Findings,
) -> Vec<Listener> {
    if tables.is_empty() {
        return vec![listen_everywhere()];
    }
    if let Some(more) = tables.get(LISTENERS_MAX) {
        let way_out = "listen on [::], which is every address";
        let message = format!("more than {LISTENERS_MAX} listeners");
        findings.add(Some(more.span()), message, way_out);
    }
    let mut listeners: Vec<Listener> = Vec::new();
    for table in tables {
        let new = listener(table.get_ref(), findings);
        let mut known = listeners.iter().take(LISTENERS_MAX);
        if let Some(other) = known.find(|known| overlap(known, &new)) {
            let (one, other) = (new.address, other.address);
            findings.add(
                span(&table.get_ref().address).or(Some(table.span())),
                match one == other {
                    true => format!("two listeners on {one}"),
                    false => format!("{one} and {other} have connections in common"),
                },
                "give one of them another address, port or interface; one listener can have many cores",
            );
        }
        listeners.push(new);
    }
    listeners
}

/// Whether a connection could arrive at both, for which the kernel refuses to open the second one.
fn overlap(one: &Listener, other: &Listener) -> bool {
    let (a, b) = (one.address, other.address);
    // The unspecified IPv6 address takes IPv4 too.
    let takes = |all: IpAddr, ip: IpAddr| all.is_unspecified() && (all.is_ipv6() || ip.is_ipv4());
    let interfaces = one.interface.as_ref().zip(other.interface.as_ref());
    a.port() == b.port()
        && interfaces.is_none_or(|(one, other)| one == other)
        && (a == b || takes(a.ip(), b.ip()) || takes(b.ip(), a.ip()))
}

fn listener(table: &raw::ListenerTable, findings: &mut Findings) -> Listener {
    let port = get(&table.port, SMB_PORT);
    if table.address.is_some() && table.port.is_some() {
        let message = "port and address both say a port";
        let way_out = "write the port into address only";
        findings.add(span(&table.port), message, way_out);
    }
    let address = get(&table.address, SocketAddr::new(EVERY_ADDRESS, port));
    if address.port() == 0 {
        findings.add(
            span(&table.address).or(span(&table.port)),
            "port 0 is a port that nobody can find",
            "445 is the port of SMB; 4450 to 4459 are free on most machines",
        );
    }
    let mut cores = get(&table.cores, Vec::new());
    if table.cores.is_some() && cores.is_empty() || cores.len() > CORES_MAX {
        let message = "cores must name between 1 and 1024 cores";
        let way_out = "remove the key for every core";
        findings.add(span(&table.cores), message, way_out);
    }
    cores.sort_unstable();
    cores.dedup();
    if let Some(interface) = &table.interface {
        let name = interface.get_ref();
        if name.is_empty() || name.len() > INTERFACE_NAME_MAX || name.contains(['/', ' ']) {
            let message = format!("`{name}` is no interface name");
            let way_out = "`ip link` lists the interfaces";
            findings.add(Some(interface.span()), message, way_out);
        }
    }
    Listener {
        interface: given(&table.interface),
        cores,
        pin: get(&table.pin, true),
        speed: given(&table.speed).map(|rate| rate.0),
        rss: given(&table.rss),
        ..Listener::at(address)
    }
}
