//! Breaks against what other workers do at the same moment: a connection that dies, an
//! acknowledgment that comes.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, atomic::AtomicBool},
};

use tokio::sync::mpsc;
use vfs::Timestamp;

use super::*;
use crate::{
    file::{Actor, LeaseState, Operation, Place},
    limits::Limits,
    persistent::world::{Back, CLIENT, KEY, World, came},
    state::Peer,
};

const OWNER: Owner = Owner::Lease(CLIENT, KEY);
const BY: ConnectionId = ConnectionId(1);
const RH: LeaseState = LeaseState(3);

/// A lease RWH of a client with one connection.
fn world() -> (World, Place, mpsc::Receiver<Mail>) {
    let world = World::new(false, Limits::default());
    world.watched(true);
    world.heard(true);
    assert_eq!(world.bring_back(&[world.record(10)]), came(1, 0, 0));
    let (mail, mailbox) = mpsc::channel(8);
    let peer = Peer {
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
        dialect: None,
        client: CLIENT,
        logged_in: true,
        since: Timestamp::default(),
        mail,
        stuck: Arc::new(AtomicBool::new(false)),
    };
    world.server.add_connection(BY, peer);
    let open = world.server.durables.find(10).unwrap();
    let place = open.disk().unwrap().place.clone();
    (world, place, mailbox)
}

/// What an operation of somebody else breaks.
fn broken(server: &Server<Back>, place: &Place, operation: Operation) -> Break {
    let (_, mut effects) = server
        .files
        .operation(place, Actor::Stranger, operation, None);
    effects.breaks.pop().unwrap()
}

fn acknowledge(server: &Server<Back>, state: LeaseState) {
    let (answer, _) = server.files.acknowledge_lease(CLIENT, KEY, state);
    assert_eq!(answer, Ok(state));
}

#[test]
fn an_acknowledgment_leaves_the_next_break_alone() {
    let (world, place, _mailbox) = world();
    let server = &world.server;
    let first = broken(server, &place, Operation::Read);
    deliver(server, first.clone());
    acknowledge(server, RH);
    // Before that is noted, somebody else takes more.
    let second = broken(server, &place, Operation::Write);
    deliver(server, second.clone());
    assert_eq!(acknowledged(server, OWNER), []);
    assert_eq!(server.grants.lost(BY), [second]);
}
