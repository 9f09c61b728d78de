//! Tests that recorded opens are restored, wait, or are lost.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Waker},
};

use bytes::Bytes;
use smb_wire::{dtyp::Sid, ids::Guid, msg::ShareAccess};
use vfs::{
    Contents, Disk, Identity, IoAccess, NamedStreams, Node, Paths, StreamOpen, Volume, WriteMode,
    sim::{Fault, FaultAction, SimOp, SimYield},
};

use super::world::{CLIENT, HASTE, KEY, World, came, run, shares};
use crate::{
    file::{CacheGrant, LeaseState, LockBounds, OpenId, Owner, SavedCache, SavedLock, SavedOpen},
    limits::ServerLimits,
    persistent::{
        OWNER_BYTES_MAX, OpenRecord,
        record::{Record, lease_key, open_key, read},
    },
    state::{Share, breaks, disconnected},
};
use durability::MapChange;

const EIO: i32 = 5;

#[test]
fn an_open_that_comes_back_acts_as_its_share_says() {
    let world = World::new(false, ServerLimits::default());
    let shares = world.server.shares();
    let plain = shares.find("other").unwrap();
    let mut config = plain.config.clone();
    config.act_as = Some((12_345, 12_400));
    let named = Share {
        config,
        vfs: Arc::clone(&plain.vfs),
        gate: Arc::clone(&plain.gate),
        id: plain.id,
    };
    let is_owner = |share| {
        let owner = world.server.owner_of(share, &world.record(10));
        let sids = owner.ok().unwrap().sids;
        sids.contains(&Sid::unix_user(12_345))
    };
    assert!(is_owner(&named) && !is_owner(plain));
}

#[test]
fn what_is_cached_is_observed_before_anybody_comes_back() {
    let world = World::new(false, ServerLimits::default());
    let watch = world.watched(true);
    world.changes_seen(true);
    assert_eq!(world.bring_back(&[world.record(10)]), came(1, 0, 0));
    assert_eq!(world.lease(10), Some((LeaseState::RWH, 4)));
    assert_eq!(watch.1.lock().unwrap().len(), 1);
    assert_eq!(world.server.host_watches.observed(), 1);
    assert_eq!(world.store.changes(), [], "nothing changed");
}

#[test]
fn caching_ends_where_a_change_was_missed_or_would_be() {
    // The file changed after the time until which changes were seen; no such time is known; the file
    // cannot be watched.
    for (seen, can) in [(Some(false), true), (None, true), (Some(true), false)] {
        let world = World::new(false, ServerLimits::default());
        world.watched(can);
        if let Some(after) = seen {
            world.changes_seen(after);
        }
        let records = [world.record(10), world.record(11)];
        assert_eq!(world.bring_back(&records), came(2, 0, 0));
        for id in [10, 11] {
            assert_eq!(world.lease(id), Some((LeaseState(0), 5)), "{seen:?} {can}");
        }
        // The loss is recorded for the next restart.
        let lease = lease_key(CLIENT, KEY);
        let put = |change: &MapChange| matches!(change, MapChange::Put(key, _) if *key == lease);
        assert!(world.store.changes().iter().any(put));
    }
}

#[test]
fn where_nobody_else_changes_files_the_last_run_must_have_seen_its_own() {
    for (seen, state) in [(true, LeaseState::RWH), (false, LeaseState(0))] {
        let world = World::new(false, ServerLimits::default());
        world.keep_to_ourselves();
        let watch = world.watched(false);
        world.changes_seen(seen);
        assert_eq!(world.bring_back(&[world.record(10)]), came(1, 0, 0));
        assert_eq!(world.lease(10).unwrap().0, state);
        assert!(watch.1.lock().unwrap().is_empty());
    }
}

#[test]
fn an_error_that_passes_costs_no_handle_and_removals_share_writes() {
    let world = World::new(false, ServerLimits::default());
    world.changes_seen(true);
    let other = |id: u64, path: &str, user: &str| OpenRecord {
        path: vec![path.into()],
        user: user.into(),
        ..world.record(id)
    };
    world.disk.inject(Fault {
        on: SimOp::Look,
        after: 0,
        action: FaultAction::Fail(EIO),
    });
    let mut records = vec![world.record(10)];
    records.extend((20..60).map(|id| other(id, "gone", "alice")));
    records.push(other(70, "f", "bob"));
    records.push(world.record(80));
    assert_eq!(world.bring_back(&records), came(1, 41, 1));
    assert!(!world.server.sees_all_changes());
    assert!(
        !world.store.removed(&open_key(10)),
        "the next start tries again"
    );
    for id in (20..60).chain([70]) {
        assert!(world.store.removed(&open_key(id)));
    }
    assert!(world.store.writes() <= 2, "{}", world.store.writes());
}

#[test]
fn a_disk_that_does_not_answer_is_asked_once_and_holds_up_no_other_share() {
    let world = World::new(false, ServerLimits::default());
    world.changes_seen(true);
    let looks = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&looks);
    world.disk.set_hook(Some(Arc::new(move |op| {
        let first = op == SimOp::Look && seen.fetch_add(1, Ordering::SeqCst) == 0;
        first.then(|| Box::pin(std::future::pending()) as SimYield)
    })));
    HASTE.set(true);
    let there = OpenRecord {
        share: "other".into(),
        ..world.record(30)
    };
    let records = [world.record(10), world.record(20), there];
    assert_eq!(world.bring_back(&records), came(1, 0, 2));
    HASTE.set(false);
    assert!(!world.server.sees_all_changes());
    for id in [10, 20] {
        assert!(!world.store.removed(&open_key(id)), "the next start asks");
    }
    assert!(world.server.durables.find(30).is_some());
}

/// A world whose disk fails the first look at a file.
fn a_look_fails() -> World {
    let world = World::new(false, ServerLimits::default());
    world.changes_seen(true);
    world.watched(true);
    world.disk.inject(Fault {
        on: SimOp::Look,
        after: 0,
        action: FaultAction::Fail(EIO),
    });
    world
}

#[test]
fn what_was_not_looked_at_caches_nothing_at_the_next_start() {
    let world = a_look_fails();
    let record = world.record(10);
    assert_eq!(
        world.bring_back(std::slice::from_ref(&record)),
        came(0, 0, 1)
    );
    // Until then others may open the file and cache it.
    let put = |change: &MapChange| match change {
        MapChange::Put(key, value) => Some((key.clone(), value.clone())),
        MapChange::Remove(_) => None,
    };
    let kept: BTreeMap<_, _> = world.store.changes().iter().filter_map(put).collect();
    let record_again = read(&open_key(10), &kept[&open_key(10)]);
    assert_eq!(record_again, Some(Record::Open(Box::new(record))));
    let lease = lease_key(CLIENT, KEY);
    let Some(Record::Lease(_, lease)) = read(&lease, &kept[&lease]) else {
        panic!("{kept:?}")
    };
    assert_eq!((lease.state, lease.epoch), (LeaseState(0), 5));
}

#[test]
fn a_lease_that_is_there_is_not_given_up_for_an_open_that_is_not() {
    let world = a_look_fails();
    let records = [10, 11].map(|id| world.record(id));
    assert_eq!(world.bring_back(&records), came(1, 0, 1));
    assert_eq!(world.lease(11), Some((LeaseState::RWH, 4)));
    let lease = lease_key(CLIENT, KEY);
    let put = |change: &MapChange| matches!(change, MapChange::Put(key, _) if *key == lease);
    assert!(!world.store.changes().iter().any(put));
}

/// The client may have data to write back, so the break waits for it as before the restart.
#[test]
fn a_break_that_was_not_acknowledged_waits_for_the_client_again() {
    let world = World::new(false, ServerLimits::default());
    world.changes_seen(true);
    let records = [10, 11].map(|id| world.record(id));
    let left = Some(LeaseState::READ);
    assert_eq!(world.bring_back_breaking(&records, left), came(2, 0, 0));
    let (server, owner) = (&world.server, Owner::Lease(CLIENT, KEY));
    let waiting = server.pending_breaks.of(owner);
    assert_eq!(waiting.len(), 1);
    assert_eq!((waiting[0].new, waiting[0].epoch), (LeaseState::READ, 4));
    assert_eq!(waiting[0].opens.len(), 2);
    let open = server.durables.find(10).unwrap();
    let place = open.disk().unwrap().place;
    // The notification has the epoch of the break, so the answer to the reconnect has the one before.
    let cache = breaks::reported(server, &place, open.engine, owner);
    let CacheGrant::Lease(lease) = cache else {
        panic!("it has no lease");
    };
    assert_eq!(lease.lease_state, LeaseState::RWH);
    assert_eq!(lease.v2.unwrap().epoch, 3);
    let (acknowledged, _) = (server.files).acknowledge_lease(CLIENT, KEY, LeaseState::READ);
    assert_eq!(acknowledged, Ok(LeaseState::READ));
    assert_eq!(world.lease(10), Some((LeaseState::READ, 4)));
}

#[test]
fn records_of_a_share_that_is_late_wait_for_it() {
    let world = World::new(true, ServerLimits::default());
    world.changes_seen(true);
    world.watched(true);
    assert_eq!(world.bring_back(&[world.record(10)]), came(0, 0, 0));
    assert_eq!(world.store.changes(), []);
    assert!(!world.server.sees_all_changes());
    // A reload while it is late, then it comes.
    let late = world.server.shares();
    assert_eq!(run(world.server.restore_late(&late)), came(0, 0, 0));
    assert_eq!(world.store.changes(), []);
    let there = run(shares(&world.disk, &world.server.durability, false));
    assert_eq!(run(world.server.restore_late(&there)), came(1, 0, 0));
    assert_eq!(world.lease(10), Some((LeaseState::RWH, 4)));
    assert!(world.server.sees_all_changes());
}

#[test]
fn not_all_changes_are_seen_while_a_late_share_comes_back() {
    for fails in [false, true] {
        let limits = ServerLimits {
            disconnected_opens: 5,
            disconnected_opens_per_user: 1,
            ..ServerLimits::default()
        };
        let world = World::new(true, limits.clone());
        // The file changed meanwhile: its caching is given up, and that is recorded.
        world.changes_seen(false);
        world.watched(true);
        assert_eq!(world.bring_back(&[world.record(10)]), came(0, 0, 0));
        let server = &world.server;
        let there = run(shares(&world.disk, &server.durability, false));
        let mut coming = std::pin::pin!(server.restore_late(&there));
        let mut context = Context::from_waker(Waker::noop());
        assert!(coming.as_mut().poll(&mut context).is_pending());
        assert!(
            !server.sees_all_changes(),
            "the record says the old caching"
        );
        assert!(!server.persistence.has_room(world.owner, &limits));
        world.store.broken.store(fails, Ordering::SeqCst);
        assert_eq!(run(coming), came(1, 0, 0));
        world.store.broken.store(false, Ordering::SeqCst);
        assert_eq!(
            server.sees_all_changes(),
            !fails,
            "it is still not recorded"
        );
    }
}

#[test]
fn all_that_were_promised_to_wait_do_and_no_more_are_promised() {
    let limits = ServerLimits {
        disconnected_opens: 5,
        disconnected_opens_per_user: 2,
        ..ServerLimits::default()
    };
    let world = World::new(false, limits.clone());
    world.changes_seen(true);
    let persistence = &world.server.persistence;
    assert!(persistence.has_room(world.owner, &limits));
    // These opens were recorded by a run with higher limits.
    let records = [10, 11, 12].map(|id| world.record(id));
    assert_eq!(world.bring_back(&records), came(3, 0, 0));
    assert_eq!(world.server.durables.len(), 3);
    assert!(!persistence.has_room(world.owner, &limits));
    let other = Sid::EVERYONE;
    assert!(persistence.has_room(other, &limits));
    let fewer = ServerLimits {
        disconnected_opens: 3,
        ..limits.clone()
    };
    assert!(!persistence.has_room(other, &fewer));
    let open = world.server.durables.find(10).unwrap();
    drop(persistence.end(open.engine));
    let open = world.server.durables.find(11).unwrap();
    drop(persistence.end(open.engine));
    assert!(persistence.has_room(world.owner, &limits));
}

#[test]
fn nobody_takes_the_place_of_an_open_by_its_create_guid() {
    let world = World::new(false, ServerLimits::default());
    world.changes_seen(true);
    let same = world.record(12).create_guid;
    let record = |id: u64, client: u8| {
        let mut record = world.record(id);
        record.create_guid = same;
        record.client = Guid([client; 16]);
        record.lease = None;
        record.engine.cache = SavedCache::None;
        world.elsewhere(record, &format!("f{id}"))
    };
    let records = [record(10, 1), record(11, 2), record(12, 3)];
    assert_eq!(world.bring_back(&records), came(3, 0, 0));
    let found = |client: u8, create: Guid| {
        let open = (world.server.durables).find_persistent(Guid([client; 16]), create);
        open.map(|open| open.file_id.persistent)
    };
    assert_eq!(found(1, same), Some(10));
    assert_eq!(found(2, same), Some(11));
    assert_eq!(found(3, same), Some(12));
    // A client without one finds another's, which is refused for other reasons.
    assert_eq!(found(9, same), Some(10));
    assert_eq!(found(2, Guid([99; 16])), None);
    assert_eq!(found(2, Guid([1; 16])), None);
}

#[test]
fn no_owner_fills_the_store() {
    let world = World::new(false, ServerLimits::default());
    world.changes_seen(true);
    let lock = |at: u64| SavedLock {
        offset: at,
        length: 1,
        exclusive: false,
    };
    let many = OWNER_BYTES_MAX / (17 * 4000) + 1;
    let records: Vec<_> = (0..many as u64)
        .map(|at| {
            let mut record = world.record(10 + at);
            record.engine.locks = (0..4000).map(lock).collect();
            record.engine.cache = SavedCache::None;
            world.elsewhere(record, &format!("f{at}"))
        })
        .collect();
    assert_eq!(world.bring_back(&records), came(many, 0, 0));
    let persistence = &world.server.persistence;
    assert!(!persistence.has_room(world.owner, &ServerLimits::default()));
    assert!(persistence.has_room(Sid::EVERYONE, &ServerLimits::default()));
    // One lock more is refused, one less is recorded, and so is the end.
    let open = world.server.durables.find(10).unwrap();
    let place = open.disk().unwrap().place.clone();
    let files = &world.server.files;
    let set = |offset: u64, flags: u32| {
        let element = smb_wire::msg::LockElement {
            offset,
            length: 1,
            flags: smb_wire::msg::LockFlags(flags),
        };
        let _ = files.lock(
            &place,
            open.engine,
            &[element],
            None,
            Default::default(),
            LockBounds::ANY,
        );
        run(persistence.changed(files, open.engine).unwrap())
    };
    let before = world.store.changes().len();
    assert_eq!(set(1 << 40, 0x11), Err(vfs::VfsError::Exhausted));
    assert_eq!(world.store.changes().len(), before);
    assert_eq!(set(1 << 40, 4), Ok(()));
    let to = crate::file::SharePath::new(crate::file::ShareId(1), ["g"]);
    let key = place.key;
    let refused = run(persistence.moving(files, key, OpenId(99), &to).unwrap());
    assert_eq!(refused, Err(vfs::VfsError::Exhausted));
    for record in &records {
        let open = world.server.durables.find(record.id).unwrap();
        run(persistence.end(open.engine).unwrap()).unwrap();
    }
    assert!(persistence.has_room(world.owner, &ServerLimits::default()));
}

/// A rename of the stream was under way: it is found under either name, and under the new one if both exist and that is
/// not empty.
#[test]
fn a_stream_is_found_under_both_names_of_a_rename() {
    for (there, found) in [
        (&["old"][..], Some("old")),
        (&["new"], Some("new")),
        (&["old", "new"], Some("new")),
        (&["old", "empty"], Some("old")),
        (&[], None),
    ] {
        let world = World::new(false, ServerLimits::default());
        let shares = world.server.shares();
        let vfs = &shares.find("data").unwrap().vfs;
        let to = if there.contains(&"empty") {
            "empty"
        } else {
            "new"
        };
        run(async {
            let (me, path) = (&Identity::Service, ["f".to_owned()]);
            let file = vfs.lookup(me, &path).await.unwrap().found.unwrap().0;
            for name in there {
                let how = StreamOpen::Either;
                let (stream, _) = vfs.open_stream(me, &file, name, how).await.unwrap();
                let write = IoAccess {
                    read: true,
                    write: true,
                };
                let stream = vfs.open(me, &stream, write).await.unwrap();
                if *name != "empty" {
                    let (data, mode) = (Bytes::from_static(b"x"), WriteMode { durable: false });
                    vfs.write(&stream, 0, data, mode).await.unwrap();
                }
            }
        });
        let record = OpenRecord {
            stream: Some("old".to_owned()),
            stream_to: Some(to.to_owned()),
            lease: None,
            engine: SavedOpen {
                cache: SavedCache::None,
                ..world.record(10).engine
            },
            ..world.record(10)
        };
        world.bring_back(&[record]);
        let open = world.server.durables.find(10);
        let name = open.map(|open| open.disk().ok().unwrap().node.stream().unwrap().to_owned());
        assert_eq!(name.as_deref(), found, "{there:?}");
    }
}

#[test]
fn a_stream_of_a_directory_comes_back() {
    let world = World::new(false, ServerLimits::default());
    let shares = world.server.shares();
    let vfs = &shares.find("data").unwrap().vfs;
    let key = run(async {
        let (me, path, root) = (&Identity::Service, ["d".to_owned()], world.disk.root());
        let made = world.disk.make_dir(me, &root, b"d", 0o700).await;
        made.unwrap();
        let directory = vfs.lookup(me, &path).await.unwrap().found.unwrap().0;
        let how = StreamOpen::Either;
        vfs.open_stream(me, &directory, "s", how).await.unwrap();
        directory.key()
    });
    let record = OpenRecord {
        path: vec!["d".to_owned()],
        stream: Some("s".to_owned()),
        inode: (key.ino, key.generation),
        lease: None,
        engine: SavedOpen {
            cache: SavedCache::None,
            ..world.record(10).engine
        },
        ..world.record(10)
    };
    assert_eq!(world.bring_back(&[record]), came(1, 0, 0));
}

#[test]
fn an_open_that_another_request_has_is_closed_once_it_waits_again() {
    let world = World::new(false, ServerLimits::default());
    world.changes_seen(true);
    world.bring_back(&[world.record(10)]);
    let durables = &world.server.durables;
    // A client has come back, and its request fails in the end.
    let open = durables.take(10).unwrap();
    let mut closing = pin!(disconnected::close(&world.server, &open));
    let mut context = Context::from_waker(Waker::noop());
    assert!(closing.as_mut().poll(&mut context).is_pending());
    assert!(disconnected::wait(&world.server, &open));
    run(closing);
    assert!(!durables.is_kept(open.engine));
    let disk = open.disk().ok().unwrap();
    assert!(world.server.files.kept(&disk.place, open.engine).is_none());
}

#[test]
fn an_open_that_another_request_closes_is_waited_for_until_the_engine_has_closed_it() {
    let world = World::new(false, ServerLimits::default());
    world.changes_seen(true);
    world.bring_back(&[world.record(10)]);
    let open = world.server.durables.find(10).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut first = pin!(disconnected::close(&world.server, &open));
    let pending = first.as_mut().poll(&mut context).is_pending();
    assert!(pending, "the end of its record is not stored yet");
    let mut second = pin!(disconnected::close(&world.server, &open));
    assert!(second.as_mut().poll(&mut context).is_pending());
    run(first);
    run(second);
    let disk = open.disk().ok().unwrap();
    assert!(world.server.files.kept(&disk.place, open.engine).is_none());
    assert!(world.server.durables.made_as(10).is_none());
}

#[test]
fn an_open_whose_client_comes_back_meanwhile_is_closed_all_the_same() {
    let world = World::new(false, ServerLimits::default());
    world.changes_seen(true);
    world.bring_back(&[world.record(10)]);
    let durables = &world.server.durables;
    let old = durables.take(10).unwrap();
    let mut closing = pin!(disconnected::close(&world.server, &old));
    let mut context = Context::from_waker(Waker::noop());
    assert!(closing.as_mut().poll(&mut context).is_pending());
    let back = world.reconnect(&old);
    run(closing);
    assert!(back.is_closing());
    let disk = back.disk().ok().unwrap();
    assert!(world.server.files.kept(&disk.place, back.engine).is_none());
}

#[test]
fn a_client_that_comes_back_leaves_a_newer_create_its_guid() {
    let world = World::new(false, ServerLimits::default());
    world.changes_seen(true);
    let create_guid = world.record(10).create_guid;
    let same = OpenRecord {
        create_guid,
        ..world.record(11)
    };
    assert_eq!(world.bring_back(&[world.record(10), same]), came(2, 0, 0));
    let durables = &world.server.durables;
    let newer = durables.made_by(CLIENT, create_guid).unwrap();
    let older = durables.take(21 - newer.file_id.persistent).unwrap();
    let back = world.reconnect(&older);
    let made = durables.made_by(CLIENT, create_guid).unwrap();
    assert!(
        Arc::ptr_eq(&made, &newer),
        "its CREATE could not be sent again"
    );
    let found = durables.made_as(back.file_id.persistent).unwrap();
    assert!(Arc::ptr_eq(&found, &back));
}

#[test]
fn an_open_that_a_request_takes_stays_closing_until_it_waits_again() {
    let world = World::new(false, ServerLimits::default());
    world.changes_seen(true);
    world.bring_back(&[world.record(10)]);
    let server = &world.server;
    let open = server.durables.find(10).unwrap();
    let seen = || (server.durables.is_kept(open.engine), open.is_closing());
    assert_eq!(seen(), (true, true), "it waits");
    server.durables.take(10).unwrap();
    assert_eq!(seen(), (false, true));
    assert!(disconnected::wait(server, &open));
    assert_eq!(seen(), (true, true));
}

#[test]
fn the_share_access_that_a_client_asked_for_comes_back_without_what_was_added() {
    let world = World::new(false, ServerLimits::default());
    world.changes_seen(true);
    let added = OpenRecord {
        read_unasked: true,
        ..world.record(10)
    };
    world.bring_back(&[added, world.record(11)]);
    let asked = |id| world.server.durables.find(id).unwrap().origin.share;
    assert_eq!(asked(10), ShareAccess::WRITE | ShareAccess::DELETE);
    assert_eq!(asked(11), world.record(11).engine.share);
}
