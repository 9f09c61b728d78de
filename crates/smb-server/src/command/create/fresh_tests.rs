//! Tests of the creation of files.

use std::rc::Rc;

use smb_wire::header::Header;
use vfs::{FileKey, Identity, SetAttr};

use super::*;
use crate::{
    command::chain::Chain,
    file::WaiterId,
    limits::ServerLimits,
    restore::world::{Back, HASTE, World, connection, run},
    state::{Channel, Session},
    token::Token,
};

async fn check<V: Vfs>(vfs: &V) {
    let (me, root, new) = (Identity::Service, vfs.root(), NewNode::default());
    let made = vfs.create(&me, &root, "new", &new, false).await;
    let (node, attr) = made.unwrap();
    assert!(is_as_made(vfs, &node, Some(attr.changed)).await);
    let hidden = SetAttr {
        dos_attributes: Some(FileAttributes::HIDDEN.bits()),
        ..SetAttr::default()
    };
    vfs.set_attr(&me, &node, &hidden).await.unwrap();
    assert!(!is_as_made(vfs, &node, Some(attr.changed)).await);
    assert!(is_as_made(vfs, &node, None).await);
}

#[test]
fn what_another_client_has_described_is_not_as_made() {
    let world = World::new(false, ServerLimits::default());
    let shares = world.server.shares();
    run(check(&*shares.find("data").unwrap().vfs));
}

/// A request of a guest.
fn call(limits: ServerLimits) -> Call<Back> {
    let server = World::new(false, limits).server;
    let connection = connection(&server, None);
    let session = Session::plain(Token::guest(&server.config()));
    let channel = Channel {
        session: Arc::new(session),
        signing: None,
    };
    let chain = Rc::new(Chain::new(&connection, None, 1));
    Call {
        channel: Some(Rc::new(channel)),
        ..Call::new(&chain, &connection, Header::default())
    }
}

#[test]
fn a_request_without_room_to_wait_for_a_creation_looks_again() {
    HASTE.set(true);
    let full = ServerLimits {
        parked_per_connection: 0,
        ..ServerLimits::default()
    };
    // Behind the claim, or on the connection.
    for (limits, parked) in [(ServerLimits::default(), 1_024), (full, 0)] {
        let call = call(limits);
        let files = &call.server().files;
        let link = Link::new(FileKey::default(), "f");
        let user = call.counted().unwrap();
        for number in 0..=parked {
            let id = WaiterId(number);
            let _ = files.claims.claim(&link, Waiter { id, user });
        }
        assert!(matches!(run(made_by_nobody(&call, &link)), Ok(false)));
        assert!(matches!(run(claim(&call, link)), Ok(None)));
    }
    HASTE.set(false);
}
