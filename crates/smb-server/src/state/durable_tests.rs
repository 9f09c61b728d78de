//! The opens that wait for their clients are divided among users.

use smb_wire::ids::FileId;

use super::*;
use crate::{
    restore::world::{Back, World},
    state::{At, NewOpen, OpenKind},
};

/// An open of a guest at this address, otherwise like `old`.
fn of_guest(world: &World, old: &Open<Back>, id: u64, address: [u8; 4]) -> Arc<Open<Back>> {
    let disk = old.disk().unwrap();
    let who = QuotaUser::Address(address.into());
    Arc::new(Open::new(NewOpen {
        file_id: FileId {
            persistent: id,
            volatile: id,
        },
        tree: Arc::clone(&old.tree),
        granted: old.granted,
        options: old.options,
        kind: OpenKind::Disk {
            at: Mutex::new(At {
                node: disk.node,
                place: disk.place,
            }),
            directory: disk.directory,
            quick: disk.quick.clone(),
        },
        user: String::new(),
        engine: OpenId(id),
        channel_sequence: 0,
        parent_lease: None,
        policy: None,
        place: Some(world.server.opens.enter_again(who)),
        origin: old.origin.clone(),
        endurance: Endurance::None,
    }))
}

#[test]
fn guests_at_different_addresses_are_different_users() {
    const HERE: [u8; 4] = [192, 0, 2, 1];
    const THERE: [u8; 4] = [192, 0, 2, 2];
    let world = World::new(false, ServerLimits::default());
    world.changes_seen(true);
    let _back = world.bring_back(&[world.record(10)]);
    let old = world.server.durables.find(10).unwrap();
    let limits = ServerLimits {
        disconnected_opens_per_user: 1,
        ..ServerLimits::default()
    };
    let durables = Durables::default();
    let refused = |id, address| {
        let open = of_guest(&world, &old, id, address);
        durables.keep(&open, Duration::ZERO, &limits) == Keeping::Refused
    };
    assert!(!refused(1, HERE));
    assert!(refused(2, HERE));
    assert!(!refused(3, THERE));
    assert!(durables.take(1).is_some());
    assert!(!refused(2, HERE));
}
