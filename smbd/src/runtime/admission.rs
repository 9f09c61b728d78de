//! Decides at accept which connections are admitted.
//!
//! It counts all connections, those of each address, and those without a login: nobody has logged in, or all sessions
//! have ended. A [`Pass`] is one counted connection; dropping it releases the place. There is one lock, taken at
//! accept, at login, at the end of a session and at close, never for a request.
//!
//! If there is no place for a newcomer, a connection without a login is displaced (`unauthenticated.rs` says which):
//! the newcomer may be about to log in, and a connection that has long been silent is closed. A newcomer is refused
//! only if users hold all places.
//!
//! An IPv6 host has a /64 of addresses. Connections of one such network without a login are therefore also counted
//! together, against the same `connections_per_address`, so that one host does not take all places before a login.
//! Those with a login are not: a whole office may share one /64.

mod unauthenticated;

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use smb_auth::limiter::network;
use smb_server::config::HostRules;
use tokio::sync::Notify;

use self::unauthenticated::{Place, Unauthenticated, UnauthenticatedTable, wide_network};
use crate::{
    answers::AdmissionFigures,
    config::{Config, LimitSettings},
    lock,
    runtime::resources::{self, Descriptors},
};

/// The most displaced connections that their workers have not closed yet. A network may have as many of them as are
/// still free; its newcomers beyond that are refused, so that a flood from some networks keeps no other out.
const LEAVING_MAX: u32 = 1_000;

/// As [`LEAVING_MAX`], where the server keeps so many descriptors for itself: half of them must suffice for these
/// connections, which still have one each.
fn leaving_max(own: u64) -> u32 {
    u32::try_from(own / 2).map_or(LEAVING_MAX, |half| half.min(LEAVING_MAX))
}

/// Why a connection was closed at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionRefusal {
    #[error("hosts_allow and hosts_deny do not let it in")]
    HostDenied,
    #[error("limit `connections` reached")]
    Connections,
    #[error("limit `connections_per_address` reached")]
    ConnectionsPerAddress,
    #[error("limit `unauthenticated_connections` reached")]
    UnauthenticatedConnections,
}

/// The admission of connections for the whole process.
#[derive(Debug)]
pub struct Admission {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    rules: HostRules,
    limits: LimitSettings,
    /// `connections` of the limits, or the number that the limit of descriptors permits.
    connections: u32,
    /// The number of connections, without displaced ones, which `by_address` does not count either.
    total: u32,
    by_address: BTreeMap<IpAddr, u32>,
    unauthenticated: UnauthenticatedTable,
    /// Displaced, but not closed yet: all, and those of each network.
    leaving: u32,
    leaving_of: BTreeMap<IpAddr, u32>,
    leaving_max: u32,
    accepted: u64,
    refused: u64,
    displaced: u64,
}

impl Admission {
    /// An admission without connections.
    #[must_use]
    pub fn new(config: &Config) -> Arc<Self> {
        let connections = Descriptors::of(config).connections;
        let (rules, limits) = (config.server.hosts.clone(), config.limits.clone());
        let leaving_max = leaving_max(resources::own_descriptors());
        Self::with(rules, limits, (connections, leaving_max))
    }

    fn with(
        rules: HostRules,
        limits: LimitSettings,
        (connections, leaving_max): (u32, u32),
    ) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(State {
                rules,
                limits,
                connections,
                leaving_max,
                ..State::default()
            }),
        })
    }

    /// Takes new rules and limits; existing connections stay.
    pub fn apply(&self, config: &Config) {
        let mut state = lock(&self.state);
        state.rules = config.server.hosts.clone();
        state.limits = config.limits.clone();
        state.connections = Descriptors::of(config).connections;
    }

    /// Admits a peer, for which a connection without a login may be displaced, or returns why not.
    ///
    /// # Errors
    /// [`AdmissionRefusal`]: close the connection.
    pub fn admit(self: &Arc<Self>, peer: IpAddr) -> Result<Pass, AdmissionRefusal> {
        let peer = peer.to_canonical();
        let mut state = lock(&self.state);
        match state.judge(peer) {
            Ok(None) => {}
            Ok(Some(connection)) => state.displace(connection),
            Err(refusal) => {
                state.refused += 1;
                return Err(refusal);
            }
        }
        state.total += 1;
        state.accepted += 1;
        *state.by_address.entry(peer).or_default() += 1;
        let leave = Arc::new(Notify::new());
        let place = state.unauthenticated.add(Unauthenticated {
            peer,
            leave: Arc::clone(&leave),
        });
        Ok(Pass {
            admission: Arc::clone(self),
            peer,
            place,
            leave,
            logins: AtomicU32::new(0),
        })
    }

    /// The figures of this moment.
    #[must_use]
    pub fn figures(&self) -> AdmissionFigures {
        let state = lock(&self.state);
        AdmissionFigures {
            connections: state.total,
            unauthenticated: state.unauthenticated.len(),
            addresses: state.by_address.len(),
            accepted: state.accepted,
            refused: state.refused,
            displaced: state.displaced,
        }
    }
}

impl State {
    /// The connection without a login that must be displaced for a newcomer, if any.
    fn judge(&self, peer: IpAddr) -> Result<Option<Place>, AdmissionRefusal> {
        if !self.rules.admits(peer) {
            return Err(AdmissionRefusal::HostDenied);
        }
        let leaving = self.leaving_of.get(&wide_network(peer));
        if leaving.copied().unwrap_or(0) >= self.leaving_max.saturating_sub(self.leaving) {
            return Err(AdmissionRefusal::UnauthenticatedConnections);
        }
        let from_peer = self.by_address.get(&peer).copied().unwrap_or(0);
        let of_address = self.limits.connections_per_address;
        let unauthenticated = &self.unauthenticated;
        let (gone, refusal) = if from_peer >= of_address {
            let gone = unauthenticated.oldest(peer, |other| other == peer);
            (gone, AdmissionRefusal::ConnectionsPerAddress)
        } else if unauthenticated.of_host(peer) >= of_address {
            let gone = unauthenticated.oldest(peer, |other| network(other) == network(peer));
            (gone, AdmissionRefusal::ConnectionsPerAddress)
        } else if self.total >= self.connections {
            (
                unauthenticated.oldest_of_busiest(),
                AdmissionRefusal::Connections,
            )
        } else if unauthenticated.len() >= self.limits.unauthenticated_connections {
            let gone = unauthenticated.oldest_of_busiest();
            (gone, AdmissionRefusal::UnauthenticatedConnections)
        } else {
            return Ok(None);
        };
        gone.map(Some).ok_or(refusal)
    }

    /// Displaces a connection without a login if there are more than may be, because a session has ended.
    fn displace_surplus(&mut self) {
        let surplus = self.unauthenticated.len() > self.limits.unauthenticated_connections;
        if surplus
            && self.leaving < self.leaving_max
            && let Some(gone) = self.unauthenticated.oldest_of_busiest()
        {
            self.displace(gone);
        }
    }

    /// Displaces a connection: its place is free at once, and its worker closes it as soon as it can.
    fn displace(&mut self, place: Place) {
        if let Some(connection) = self.unauthenticated.remove(place) {
            self.left(connection.peer);
            self.leaving += 1;
            let network = wide_network(connection.peer);
            *self.leaving_of.entry(network).or_default() += 1;
            self.displaced += 1;
            connection.leave.notify_one();
        }
    }

    /// Stops counting a connection.
    fn left(&mut self, peer: IpAddr) {
        self.total = self.total.saturating_sub(1);
        take_one(&mut self.by_address, peer);
    }

    /// Stops counting a displaced connection.
    fn closed(&mut self, peer: IpAddr) {
        self.leaving = self.leaving.saturating_sub(1);
        take_one(&mut self.leaving_of, wide_network(peer));
    }
}

fn take_one(counts: &mut BTreeMap<IpAddr, u32>, of: IpAddr) {
    if let Some(count) = counts.get_mut(&of) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&of);
        }
    }
}

/// One connection's place; dropping it gives the place back.
#[derive(Debug)]
pub struct Pass {
    admission: Arc<Admission>,
    peer: IpAddr,
    place: Place,
    leave: Arc<Notify>,
    /// The [`LoggedIn`] that exist; changed under the lock of the admission.
    logins: AtomicU32,
}

impl Pass {
    /// Called at a login: the connection counts as authenticated as long as the result exists. One that was just
    /// displaced stays displaced.
    pub fn authenticated(self: &Arc<Self>) -> LoggedIn {
        let mut state = lock(&self.admission.state);
        let logins = self.logins.load(Ordering::Relaxed);
        let counts = logins > 0 || state.unauthenticated.remove(self.place).is_some();
        if counts {
            self.logins.store(logins + 1, Ordering::Relaxed);
        }
        LoggedIn(counts.then(|| Arc::clone(self)))
    }

    /// Completes when the connection has to end because a newcomer needed its place.
    pub async fn displaced(&self) {
        self.leave.notified().await;
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        // Nobody is logged in any more: a login has a reference to the pass.
        let mut state = lock(&self.admission.state);
        if state.unauthenticated.remove(self.place).is_some() {
            state.left(self.peer);
        } else {
            state.closed(self.peer);
        }
    }
}

/// A session on a connection; `None` on a displaced one. With the last session the connection is one without a login
/// again, as old as it is.
#[derive(Debug)]
pub struct LoggedIn(Option<Arc<Pass>>);

impl Drop for LoggedIn {
    fn drop(&mut self) {
        let Some(pass) = &self.0 else {
            return;
        };
        let mut state = lock(&pass.admission.state);
        let logins = pass.logins.load(Ordering::Relaxed).saturating_sub(1);
        pass.logins.store(logins, Ordering::Relaxed);
        if logins == 0 {
            let connection = Unauthenticated {
                peer: pass.peer,
                leave: Arc::clone(&pass.leave),
            };
            state.unauthenticated.put(pass.place, connection);
            state.displace_surplus();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;

    use durability::Network;

    use super::*;

    fn door(connections: u32, per_address: u32, unauthenticated: u32) -> Arc<Admission> {
        let limits = LimitSettings {
            connections_per_address: per_address,
            unauthenticated_connections: unauthenticated,
            ..LimitSettings::default()
        };
        let rules = HostRules {
            allow: vec![],
            deny: vec![Network {
                address: ip("192.0.2.66"),
                prefix: 32,
            }],
        };
        Admission::with(rules, limits, (connections, LEAVING_MAX))
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn is_authenticated(pass: &Pass) -> bool {
        pass.logins.load(Ordering::Relaxed) > 0
    }

    /// Whether the connection was displaced.
    fn is_displaced(pass: &Pass) -> bool {
        let mut displaced = std::pin::pin!(pass.displaced());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        displaced.as_mut().poll(&mut context).is_ready()
    }

    #[test]
    fn users_are_never_displaced_and_leaving_opens_the_door() {
        let door = door(3, 2, 100);
        let user = |address: &str| {
            let pass = Arc::new(door.admit(ip(address))?);
            let logins = [pass.authenticated(), pass.authenticated()];
            assert!(is_authenticated(&pass));
            Ok::<_, AdmissionRefusal>(logins)
        };
        let a = user("10.0.0.1").unwrap();
        // The same host through a mapped address is the same host.
        let b = user("::ffff:10.0.0.1").unwrap();
        assert_eq!(
            user("10.0.0.1").unwrap_err(),
            AdmissionRefusal::ConnectionsPerAddress
        );
        let _c = user("10.0.0.2").unwrap();
        assert_eq!(user("10.0.0.3").unwrap_err(), AdmissionRefusal::Connections);
        drop(a);
        let _d = user("10.0.0.1").unwrap();
        drop(b);
        let figures = door.figures();
        assert_eq!((figures.connections, figures.addresses), (2, 2));
        assert_eq!((figures.accepted, figures.refused), (4, 2));
        assert_eq!(
            user("192.0.2.66").unwrap_err(),
            AdmissionRefusal::HostDenied
        );
        assert_eq!(door.figures().displaced, 0);
    }

    #[test]
    fn a_stranger_makes_room_for_the_next_whatever_the_limit() {
        for door in [door(1, 9, 9), door(9, 9, 1)] {
            let [first, second] =
                ["10.0.0.1", "10.0.0.2"].map(|from| Arc::new(door.admit(ip(from)).unwrap()));
            assert!(is_displaced(&first) && !is_displaced(&second));
            let figures = door.figures();
            assert_eq!((figures.connections, figures.unauthenticated), (1, 1));
            assert_eq!((figures.displaced, figures.addresses), (1, 1));
            // Logging in comes too late.
            let late = first.authenticated();
            assert!(!is_authenticated(&first));
            let login = second.authenticated();
            drop((first, late));
            assert_eq!(door.figures().connections, 1);
            drop((second, login));
            let figures = door.figures();
            assert_eq!((figures.connections, figures.unauthenticated), (0, 0));
            assert_eq!(lock(&door.state).leaving, 0);
        }
    }

    #[test]
    fn a_connection_whose_sessions_have_ended_makes_room_too() {
        for door in [door(2, 9, 9), door(9, 9, 1)] {
            let user = Arc::new(door.admit(ip("10.0.0.1")).unwrap());
            let (first, second) = (user.authenticated(), user.authenticated());
            drop(first);
            let stranger = door.admit(ip("10.0.0.2")).unwrap();
            assert_eq!(door.figures().unauthenticated, 1);
            // The connection that lost its session is the older one of the two.
            drop(second);
            let third = door.admit(ip("10.0.0.3"));
            assert!(is_displaced(&user));
            let full = door.figures().displaced == 2;
            assert_eq!(is_displaced(&stranger), full);
            drop((user, stranger, third));
            assert_eq!(door.figures().connections, 0);
        }
    }

    #[test]
    fn an_address_displaces_its_own_strangers_and_no_others() {
        let door = door(100, 2, 100);
        let neighbour = door.admit(ip("10.0.0.2")).unwrap();
        let mine = ["10.0.0.1"; 3].map(|from| door.admit(ip(from)).unwrap());
        assert_eq!(mine.each_ref().map(is_displaced), [true, false, false]);
        assert!(!is_displaced(&neighbour));
        // Connections of one IPv6 host without a login are counted together, those with one are not.
        let hosts = ["2001:db8::1", "2001:db8::2"].map(|from| door.admit(ip(from)).unwrap());
        let third = Arc::new(door.admit(ip("2001:db8::3")).unwrap());
        assert_eq!(hosts.each_ref().map(is_displaced), [true, false]);
        let _login = third.authenticated();
        let _fourth = door.admit(ip("2001:db8::4")).unwrap();
        assert!(!is_displaced(&hosts[1]));
        let _other = door.admit(ip("2001:db8:0:1::3")).unwrap();
        assert_eq!(door.figures().refused, 0);
    }

    #[test]
    fn a_flood_from_few_networks_displaces_itself() {
        let door = door(10_000, 250, 1_000);
        let mut flood = Vec::new();
        let mut slow = None;
        for number in 0..8_000_u32 {
            let from = IpAddr::from([10, 0, u8::try_from(number % 4).unwrap(), 1]);
            flood.push(door.admit(from));
            if number == 2_000 {
                // This connection is slow to log in.
                slow = Some(Arc::new(door.admit(ip("10.9.9.9")).unwrap()));
            }
            // The displaced connections are closed as the worker does it.
            flood.retain(|pass| pass.as_ref().is_ok_and(|pass| !is_displaced(pass)));
        }
        let slow = slow.unwrap();
        assert!(!is_displaced(&slow));
        let _login = slow.authenticated();
        assert!(is_authenticated(&slow));
        assert_eq!(door.figures().refused, 0);
        assert!(door.figures().unauthenticated <= 1_000);
    }

    #[test]
    fn who_does_not_leave_in_time_stops_newcomers_of_that_network() {
        for (own, most) in [(4_096, LEAVING_MAX), (312, 156), (128, 64)] {
            let door = door(10_000, 10_000, 1);
            lock(&door.state).leaving_max = leaving_max(own);
            let flood = |from: &str| {
                let all = (0..most).map_while(|_| door.admit(ip(from)).ok());
                all.collect::<Vec<_>>()
            };
            // The last one, which is not displaced yet, is displaced by the first of the next network.
            let first = flood("10.0.0.1");
            assert_eq!(u32::try_from(first.len()), Ok(most / 2 + 1));
            let second = flood("10.0.1.1");
            assert!(second.len() > 1 && second.len() < first.len());
            for flooding in ["10.0.0.9", "10.0.1.9"] {
                assert_eq!(
                    door.admit(ip(flooding)).unwrap_err(),
                    AdmissionRefusal::UnauthenticatedConnections
                );
            }
            let user = Arc::new(door.admit(ip("192.0.2.1")).unwrap());
            let _login = user.authenticated();
            assert!(is_authenticated(&user));
            drop((first, second));
            door.admit(ip("10.0.0.1")).unwrap();
            assert_eq!(lock(&door.state).leaving_of, BTreeMap::new());
        }
    }
}
