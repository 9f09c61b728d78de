//! Who is let in at accept, and how many.
//!
//! Counts connections in all, by address, and those that nobody has logged in on. A [`Pass`] is
//! one counted connection; dropping it gives the place back. One lock, taken at accept, at login
//! and at close, never on the way of a request.
//!
//! An IPv6 host has a /64 of addresses: those of one network that nobody has logged in on are
//! counted together, too, against the same `connections_per_address`, so that one host does not
//! take all places of strangers. Those with a login are not: a whole office is in one /64.

use std::{
    collections::BTreeMap,
    fmt,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use smb_auth::limiter::network;
use smb_server::config::HostRules;

use crate::config::{Config, Limits};

/// Why a connection was closed at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Refusal {
    HostDenied,
    Connections,
    ConnectionsPerAddress,
    UnauthenticatedConnections,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HostDenied => "hosts_allow and hosts_deny do not let it in",
            Self::Connections => "limit `connections` reached",
            Self::ConnectionsPerAddress => "limit `connections_per_address` reached",
            Self::UnauthenticatedConnections => "limit `unauthenticated_connections` reached",
        })
    }
}

/// The door of the whole process.
#[derive(Debug)]
pub struct Admission {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    rules: HostRules,
    limits: Limits,
    total: u32,
    unauthenticated: u32,
    by_address: BTreeMap<IpAddr, u32>,
    /// Without a login, by network.
    strangers: BTreeMap<IpAddr, u32>,
    accepted: u64,
    refused: u64,
}

/// Figures for status and metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Figures {
    /// Connections now.
    pub connections: u32,
    /// Of these, without a login.
    pub unauthenticated: u32,
    /// Addresses they come from.
    pub addresses: usize,
    /// Let in since the start.
    pub accepted: u64,
    /// Turned away since the start.
    pub refused: u64,
}

impl Admission {
    /// Nobody is in yet.
    #[must_use]
    pub fn new(config: &Config) -> Arc<Self> {
        let state = State {
            rules: config.server.hosts.clone(),
            limits: config.limits.clone(),
            total: 0,
            unauthenticated: 0,
            by_address: BTreeMap::new(),
            strangers: BTreeMap::new(),
            accepted: 0,
            refused: 0,
        };
        Arc::new(Self {
            state: Mutex::new(state),
        })
    }

    /// Takes new rules and limits; who is in stays in.
    pub fn apply(&self, config: &Config) {
        let mut state = self.state();
        state.rules = config.server.hosts.clone();
        state.limits = config.limits.clone();
    }

    /// Lets a peer in, or says why not.
    ///
    /// # Errors
    /// [`Refusal`]: close the connection.
    pub fn admit(self: &Arc<Self>, peer: IpAddr) -> Result<Pass, Refusal> {
        let peer = peer.to_canonical();
        let mut state = self.state();
        if let Err(refusal) = state.judge(peer) {
            state.refused += 1;
            return Err(refusal);
        }
        state.total += 1;
        state.unauthenticated += 1;
        state.accepted += 1;
        *state.by_address.entry(peer).or_default() += 1;
        *state.strangers.entry(network(peer)).or_default() += 1;
        Ok(Pass {
            admission: Arc::clone(self),
            peer,
            authenticated: AtomicBool::new(false),
        })
    }

    /// The figures of this moment.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let state = self.state();
        Figures {
            connections: state.total,
            unauthenticated: state.unauthenticated,
            addresses: state.by_address.len(),
            accepted: state.accepted,
            refused: state.refused,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Counters stay usable whatever a panicking thread was doing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn judge(&self, peer: IpAddr) -> Result<(), Refusal> {
        let from_peer = self.by_address.get(&peer).copied().unwrap_or(0);
        let strangers = self.strangers.get(&network(peer)).copied().unwrap_or(0);
        if !self.rules.admits(peer) {
            Err(Refusal::HostDenied)
        } else if self.total >= self.limits.connections {
            Err(Refusal::Connections)
        } else if from_peer.max(strangers) >= self.limits.connections_per_address {
            Err(Refusal::ConnectionsPerAddress)
        } else if self.unauthenticated >= self.limits.unauthenticated_connections {
            Err(Refusal::UnauthenticatedConnections)
        } else {
            Ok(())
        }
    }
}

/// One connection's place; dropping it gives the place back.
#[derive(Debug)]
pub struct Pass {
    admission: Arc<Admission>,
    peer: IpAddr,
    authenticated: AtomicBool,
}

impl Pass {
    /// Somebody logged in: the connection no longer counts as unauthenticated.
    pub fn authenticated(&self) {
        if !self.authenticated.swap(true, Ordering::Relaxed) {
            let mut state = self.admission.state();
            state.unauthenticated = state.unauthenticated.saturating_sub(1);
            one_less(&mut state.strangers, network(self.peer));
        }
    }

    /// Whether anybody logged in.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.authenticated.load(Ordering::Relaxed)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.authenticated();
        let mut state = self.admission.state();
        state.total = state.total.saturating_sub(1);
        one_less(&mut state.by_address, self.peer);
    }
}

fn one_less(counts: &mut BTreeMap<IpAddr, u32>, of: IpAddr) {
    if let Some(count) = counts.get_mut(&of) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&of);
        }
    }
}

#[cfg(test)]
mod tests {
    use smb_server::config::HostRange;

    use super::*;

    fn door(connections: u32, per_address: u32, unauthenticated: u32) -> Arc<Admission> {
        let limits = Limits {
            connections,
            connections_per_address: per_address,
            unauthenticated_connections: unauthenticated,
            ..Limits::default()
        };
        let rules = HostRules {
            allow: vec![],
            deny: vec![HostRange {
                address: ip("192.0.2.66"),
                prefix: 32,
            }],
        };
        Arc::new(Admission {
            state: Mutex::new(State {
                rules,
                limits,
                total: 0,
                unauthenticated: 0,
                by_address: BTreeMap::new(),
                strangers: BTreeMap::new(),
                accepted: 0,
                refused: 0,
            }),
        })
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn each_limit_closes_the_door_and_leaving_opens_it() {
        let door = door(3, 2, 100);
        let a = door.admit(ip("10.0.0.1")).unwrap();
        // The same host through a mapped address is the same host.
        let b = door.admit(ip("::ffff:10.0.0.1")).unwrap();
        assert_eq!(
            door.admit(ip("10.0.0.1")).unwrap_err(),
            Refusal::ConnectionsPerAddress
        );
        let _c = door.admit(ip("10.0.0.2")).unwrap();
        assert_eq!(
            door.admit(ip("10.0.0.3")).unwrap_err(),
            Refusal::Connections
        );
        drop(a);
        let _d = door.admit(ip("10.0.0.1")).unwrap();
        drop(b);
        let figures = door.figures();
        assert_eq!((figures.connections, figures.addresses), (2, 2));
        assert_eq!((figures.accepted, figures.refused), (4, 2));
        assert_eq!(
            door.admit(ip("192.0.2.66")).unwrap_err(),
            Refusal::HostDenied
        );
    }

    #[test]
    fn logins_make_room_for_strangers() {
        let door = door(100, 100, 1);
        let known = door.admit(ip("10.0.0.1")).unwrap();
        assert_eq!(
            door.admit(ip("10.0.0.2")).unwrap_err(),
            Refusal::UnauthenticatedConnections
        );
        known.authenticated();
        known.authenticated();
        assert!(known.is_authenticated());
        let stranger = door.admit(ip("10.0.0.2")).unwrap();
        drop(known);
        assert_eq!(door.figures().unauthenticated, 1);
        drop(stranger);
        assert_eq!(door.figures().unauthenticated, 0);
        assert_eq!(door.figures().addresses, 0);
    }

    #[test]
    fn one_network_does_not_take_all_places_of_strangers() {
        let door = door(100, 2, 100);
        let known = ["2001:db8::1", "2001:db8::2"].map(|from| door.admit(ip(from)).unwrap());
        assert_eq!(
            door.admit(ip("2001:db8::3")).unwrap_err(),
            Refusal::ConnectionsPerAddress
        );
        let _other = door.admit(ip("2001:db8:0:1::3")).unwrap();
        for pass in &known {
            pass.authenticated();
        }
        let strangers = ["2001:db8::3", "2001:db8::4"].map(|from| door.admit(ip(from)).unwrap());
        drop(strangers);
        drop(known);
        assert_eq!(door.state().strangers.len(), 1);
        assert_eq!(door.figures().addresses, 1);
    }
}
