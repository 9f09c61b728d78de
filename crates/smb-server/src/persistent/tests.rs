//! The order of what is recorded, over a store that only remembers.

use std::sync::{Arc, Mutex};

use durability::{MapChange, MapCounts, StoreTask};
use smb_wire::{
    access_mask::AccessMask,
    create_context::LeaseV2,
    dtyp::Sid,
    ids::{Guid, LeaseKey},
    msg::{LockElement, LockFlags, ShareAccess},
};
use vfs::FileKey;

use super::{
    record::{MOVING_MAX, Record, lease_key, open_key, read},
    *,
};
use crate::file::{
    CacheRequest, LeaseContext, LeaseState, Link, LockBounds, OpenRequest, ShareId, Waiter,
    WaiterId,
};

#[derive(Default)]
struct Remembers(Mutex<Vec<Vec<MapChange>>>);

impl HandleStore for Remembers {
    fn change(&self, changes: Vec<MapChange>) -> StoreTask {
        self.0.lock().unwrap().push(changes);
        Box::pin(std::future::ready(Ok(())))
    }
    fn is_healthy(&self) -> bool {
        true
    }
    fn counts(&self) -> MapCounts {
        MapCounts::default()
    }
}

impl Remembers {
    fn last(&self) -> Vec<MapChange> {
        self.0.lock().unwrap().last().cloned().unwrap_or_default()
    }
    fn records(&self) -> Vec<Record> {
        let records = self.last().into_iter().map(|change| match change {
            MapChange::Put(key, value) => read(&key, &value).unwrap(),
            MapChange::Remove(key) => panic!("{key:?} is removed"),
        });
        records.collect()
    }
}

fn place() -> Place {
    Place {
        key: FileKey {
            ino: 5,
            ..FileKey::default()
        },
        stream: None,
    }
}

fn path(name: &str) -> SharePath {
    SharePath::new(ShareId(1), [name])
}

fn link(name: &str) -> Link {
    Link {
        parent: FileKey::default(),
        name: name.to_uppercase().into(),
    }
}

fn open(files: &Files, id: u64) -> OpenRequest {
    let request = OpenRequest {
        open: OpenId(id),
        place: place(),
        link: link("f"),
        path: path("f"),
        directory: false,
        access: AccessMask::FILE_READ_DATA,
        share: ShareAccess(7),
        effect: AccessMask::empty(),
        delete_on_close: false,
        patient: true,
        client: Guid([1; 16]),
        cache: CacheRequest::Lease(LeaseContext {
            lease_key: LeaseKey([2; 16]),
            lease_state: LeaseState::RWH,
            v2: Some(LeaseV2 {
                epoch: 4,
                ..LeaseV2::default()
            }),
            ..LeaseContext::default()
        }),
        allocation: 0,
        waiter: Waiter {
            id: WaiterId(id),
            ..Waiter::default()
        },
    };
    let _ = files.open(&request);
    request
}

fn fixed(id: u64) -> OpenRecord {
    OpenRecord {
        id,
        create_guid: Guid([id as u8; 16]),
        client: Guid([1; 16]),
        share: "data".into(),
        path: Vec::new(),
        moving: Vec::new(),
        stream: None,
        stream_to: None,
        inode: (5, 0),
        directory: false,
        owner: Sid::EVERYONE,
        user: "alice".into(),
        desired: AccessMask::FILE_READ_DATA,
        read_unasked: false,
        options: Default::default(),
        action: Default::default(),
        timeout_ms: 1,
        lease: Some((LeaseKey([2; 16]), true)),
        parent_lease: None,
        app: None,
        engine: Default::default(),
    }
}

fn lock(files: &Files, id: u64, flags: u32) {
    let element = LockElement {
        offset: 0,
        length: 1,
        flags: LockFlags(flags),
    };
    let _ = files.lock(
        &place(),
        OpenId(id),
        &[element],
        None,
        WaiterId(99),
        LockBounds::ANY,
    );
}

fn the_open(records: &[Record]) -> &OpenRecord {
    let opens = records.iter().find_map(|record| match record {
        Record::Open(open) => Some(open),
        Record::Lease(..) => None,
    });
    opens.unwrap()
}

#[test]
fn every_record_is_the_state_of_its_moment() {
    let (files, store) = (Files::default(), Arc::new(Remembers::default()));
    let persistence = Persistence::default();
    open(&files, 10);
    assert!(
        persistence
            .begin(&files, OpenId(10), &place(), fixed(10))
            .is_none()
    );
    persistence.keep_in(Arc::clone(&store) as _);
    drop(persistence.begin(&files, OpenId(10), &place(), fixed(10)));
    assert_eq!(persistence.len(), 1);
    let records = store.records();
    assert_eq!(the_open(&records).path, ["f"]);
    let Some(Record::Lease(_, lease)) = records.get(1) else {
        panic!("{records:?}")
    };
    assert_eq!((lease.state, lease.epoch), (LeaseState::RWH, 5));

    lock(&files, 10, 0x12);
    drop(persistence.changed(&files, OpenId(10)));
    assert_eq!(the_open(&store.records()).engine.locks.len(), 1);
    lock(&files, 10, 4);
    drop(persistence.changed(&files, OpenId(10)));
    assert_eq!(the_open(&store.records()).engine.locks.len(), 0);
    // Nobody else's changes are anything to the store.
    assert!(persistence.changed(&files, OpenId(11)).is_none());
}

#[test]
fn a_rename_is_known_before_and_after() {
    let (files, store) = (Files::default(), Arc::new(Remembers::default()));
    let persistence = Persistence::default();
    persistence.keep_in(Arc::clone(&store) as _);
    open(&files, 10);
    drop(persistence.begin(&files, OpenId(10), &place(), fixed(10)));
    drop(persistence.moving(&files, place().key, OpenId(20), &path("g")));
    let records = store.records();
    let record = the_open(&records);
    assert_eq!(record.path, ["f"]);
    assert_eq!(record.moving, [["g".to_owned()]]);
    let (from, to) = ((&path("f"), &link("f")), (&path("g"), &link("g")));
    files.renamed(place().key, from, to);
    drop(persistence.moved(&files, place().key, OpenId(20)));
    let records = store.records();
    let record = the_open(&records);
    assert_eq!(
        (&record.path[..], &record.moving),
        (&["g".to_owned()][..], &Vec::new())
    );
}

#[test]
fn an_open_that_is_recorded_while_its_file_is_renamed_gets_the_new_name() {
    let (files, store) = (Files::default(), Arc::new(Remembers::default()));
    let persistence = Persistence::default();
    persistence.keep_in(Arc::clone(&store) as _);
    let moving = persistence.moving(&files, place().key, OpenId(20), &path("g"));
    assert!(moving.is_none(), "no open is recorded yet");
    open(&files, 10);
    drop(persistence.begin(&files, OpenId(10), &place(), fixed(10)));
    assert_eq!(the_open(&store.records()).path, ["f"]);
    let (from, to) = ((&path("f"), &link("f")), (&path("g"), &link("g")));
    files.renamed(place().key, from, to);
    let moved = || persistence.moved(&files, place().key, OpenId(20));
    assert!(moved().is_some());
    assert_eq!(the_open(&store.records()).path, ["g"]);
    assert!(moved().is_none());
}

#[test]
fn an_open_that_is_recorded_while_its_file_is_renamed_has_both_names() {
    let (files, store) = (Files::default(), Arc::new(Remembers::default()));
    let persistence = Persistence::default();
    persistence.keep_in(Arc::clone(&store) as _);
    let names = || {
        let record = the_open(&store.records()).clone();
        (record.path.concat(), record.moving.concat())
    };
    let both = ("f".to_owned(), vec!["g".to_owned()]);
    persistence.renaming(&files, place().key, OpenId(20), [&path("f"), &path("g")]);
    open(&files, 10);
    drop(persistence.begin(&files, OpenId(10), &place(), fixed(10)));
    assert_eq!(names(), both);
    let moved = persistence.moved(&files, place().key, OpenId(20));
    assert!(moved.is_some());
    assert_eq!(names(), ("f".to_owned(), Vec::new()));
    // Now the rename is over, and another one is left without being stable.
    persistence.renaming(&files, place().key, OpenId(21), [&path("f"), &path("g")]);
    open(&files, 11);
    drop(persistence.begin(&files, OpenId(11), &place(), fixed(11)));
    persistence.left(OpenId(21));
    drop(persistence.changed(&files, OpenId(11)));
    assert_eq!(names(), both);
    open(&files, 12);
    drop(persistence.begin(&files, OpenId(12), &place(), fixed(12)));
    assert_eq!(names(), ("f".to_owned(), Vec::new()));
}

#[test]
fn an_open_that_is_recorded_while_a_directory_above_is_renamed_has_both_names() {
    let (files, store) = (Files::default(), Arc::new(Remembers::default()));
    let persistence = Persistence::default();
    persistence.keep_in(Arc::clone(&store) as _);
    let below = |names: [&str; 2]| SharePath::new(ShareId(1), names);
    let directory = FileKey {
        ino: 6,
        ..FileKey::default()
    };
    persistence.renaming(&files, directory, OpenId(20), [&path("d"), &path("e")]);
    for (id, at) in [(10, below(["d", "f"])), (11, path("d"))] {
        let request = OpenRequest {
            path: at,
            ..open(&Files::default(), id)
        };
        let _ = files.open(&request);
        drop(persistence.begin(&files, OpenId(id), &place(), fixed(id)));
        let moving = the_open(&store.records()).moving.concat();
        let expected: &[&str] = if id == 10 { &["e", "f"] } else { &[] };
        assert_eq!(moving, expected, "what has the old name now is not renamed");
    }
    assert!(persistence.is_met(OpenId(20), directory));
    // A directory above the new name has moved, so the rename is announced again.
    persistence.renaming(&files, directory, OpenId(20), [&path("d"), &path("g")]);
    assert!(persistence.is_met(OpenId(20), directory));
    assert_eq!(persistence.met(OpenId(20)), [OpenId(10)]);
    drop(persistence.changed(&files, OpenId(10)));
    assert_eq!(the_open(&store.records()).moving.concat(), ["g", "f"]);
    let _ = persistence.moved(&files, directory, OpenId(20));
    drop(persistence.changed(&files, OpenId(10)));
    assert!(!persistence.is_met(OpenId(20), directory));
    assert!(the_open(&store.records()).moving.is_empty());
}

/// The folder of the open's share is `\in` in another one, through which the file is renamed.
#[test]
fn an_open_gets_the_new_name_that_its_own_share_shows() {
    let (files, store) = (Files::default(), Arc::new(Remembers::default()));
    let persistence = Persistence::default();
    persistence.keep_in(Arc::clone(&store) as _);
    let outer = |names: &[&str]| SharePath::new(ShareId(2), names);
    let root = SharePath::of(1, &[]);
    files.set_same_folders(vec![(outer(&["in"]), root)]);
    open(&files, 10);
    drop(persistence.begin(&files, OpenId(10), &place(), fixed(10)));
    let moving = |rename, to: SharePath| {
        drop(persistence.moving(&files, place().key, OpenId(rename), &to));
        the_open(&store.records()).moving.concat()
    };
    assert_eq!(moving(20, outer(&["in", "g"])), ["g"]);
    assert_eq!(
        moving(21, outer(&["out"])),
        ["g"],
        "the share does not show it"
    );
    let names = [&outer(&["in", "f"]), &outer(&["in", "h"])];
    persistence.renaming(&files, place().key, OpenId(22), names);
    open(&files, 11);
    drop(persistence.begin(&files, OpenId(11), &place(), fixed(11)));
    assert_eq!(the_open(&store.records()).moving.concat(), ["h"]);
}

#[test]
fn a_rename_of_a_stream_is_known_before_and_after() {
    let (files, store) = (Files::default(), Arc::new(Remembers::default()));
    let persistence = Persistence::default();
    persistence.keep_in(Arc::clone(&store) as _);
    let at = |name| Place::of_stream(place().key, name);
    let _ = files.open(&OpenRequest {
        place: at("old"),
        ..open(&files, 11)
    });
    let old = OpenRecord {
        stream: Some("old".to_owned()),
        ..fixed(10)
    };
    drop(persistence.begin(&files, OpenId(10), &at("old"), old));
    let names = || {
        let record = the_open(&store.records()).clone();
        (record.stream.unwrap(), record.stream_to)
    };
    let both = ("old".to_owned(), Some("new".to_owned()));
    let moving = |from, to| {
        drop(persistence.stream_named(&files, OpenId(10), (Some(from), Some(to))));
    };
    moving("old", "new");
    assert_eq!(names(), both);
    persistence.stream_follows(OpenId(10), &at("new"));
    drop(persistence.changed(&files, OpenId(10)));
    assert_eq!(names(), both);
    assert!(persistence.has_two_streams(OpenId(10)));
    drop(persistence.stream_named(&files, OpenId(10), (Some("new"), None)));
    assert_eq!(names(), ("new".to_owned(), None));
    assert!(!persistence.has_two_streams(OpenId(10)));
    moving("new", "third");
    assert_eq!(names(), ("new".to_owned(), Some("third".to_owned())));
}

#[test]
fn renames_at_once_forget_each_its_own() {
    let (files, store) = (Files::default(), Arc::new(Remembers::default()));
    let persistence = Persistence::default();
    persistence.keep_in(Arc::clone(&store) as _);
    open(&files, 10);
    drop(persistence.begin(&files, OpenId(10), &place(), fixed(10)));
    let moving = |rename: u64, to: &str| {
        drop(persistence.moving(&files, place().key, OpenId(rename), &path(to)));
        the_open(&store.records()).moving.concat()
    };
    assert_eq!(moving(20, "x"), ["x"]);
    assert_eq!(moving(21, "y"), ["x", "y"]);
    // The directory above has moved.
    assert_eq!(moving(20, "z"), ["z", "y"]);
    let moved = |rename: u64| {
        let task = persistence.moved(&files, place().key, OpenId(rename));
        task.map(|_| the_open(&store.records()).moving.concat())
    };
    assert_eq!(moved(20), Some(vec!["y".to_owned()]));
    assert_eq!(moved(20), None);
    // Done, and not stable yet: the old name may be what a crash leaves.
    let to = (&path("y"), &link("y"));
    files.renamed(place().key, (&path("f"), &link("f")), to);
    assert_eq!(moving(22, "x"), ["f", "x"]);
    assert_eq!(moved(21), Some(vec!["x".to_owned()]));
    drop(moved(22));
    for rename in 30..30 + MOVING_MAX as u64 {
        moving(rename, &format!("z{rename}"));
    }
    let full = moving(99, "more");
    assert!(full.len() == MOVING_MAX && !full.contains(&"more".to_owned()));
    assert!(moving(30, "more").contains(&"more".to_owned()));
}

#[test]
fn a_lease_is_forgotten_with_its_last_open() {
    let (files, store) = (Files::default(), Arc::new(Remembers::default()));
    let persistence = Persistence::default();
    persistence.keep_in(Arc::clone(&store) as _);
    for id in [10, 11] {
        open(&files, id);
        drop(persistence.begin(&files, OpenId(id), &place(), fixed(id)));
    }
    assert!(persistence.any_at(&place(), |open| open == OpenId(11)));
    drop(persistence.end(OpenId(10)));
    assert_eq!(store.last(), [MapChange::Remove(open_key(10))]);
    drop(persistence.end(OpenId(11)));
    let lease = lease_key(Guid([1; 16]), LeaseKey([2; 16]));
    assert_eq!(
        store.last(),
        [MapChange::Remove(open_key(11)), MapChange::Remove(lease)]
    );
    assert!(persistence.end(OpenId(11)).is_none());
    assert_eq!(persistence.len(), 0);
    assert!(!persistence.any_at(&place(), |_| true));
}

#[test]
fn a_question_about_each_open_may_lock_the_table() {
    let (files, store) = (Files::default(), Arc::new(Remembers::default()));
    let persistence = Persistence::default();
    persistence.keep_in(Arc::clone(&store) as _);
    open(&files, 10);
    drop(persistence.begin(&files, OpenId(10), &place(), fixed(10)));
    // If the table were locked meanwhile, this would never end.
    let which = |open: OpenId| open == OpenId(10) && persistence.has_opens_at(&place());
    assert!(persistence.any_at(&place(), which));
}

#[test]
fn who_finds_caching_taken_already_waits_for_its_record() {
    let (files, store) = (Files::default(), Arc::new(Remembers::default()));
    let persistence = Persistence::default();
    persistence.keep_in(Arc::clone(&store) as _);
    open(&files, 10);
    drop(persistence.begin(&files, OpenId(10), &place(), fixed(10)));
    let (begun, begins) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _breaking = persistence.breaking();
            begun.send(()).unwrap();
            // The engine has taken it away, but the store does not know yet.
            std::thread::sleep(std::time::Duration::from_millis(50));
            let owner = Owner::Lease(Guid([1; 16]), LeaseKey([2; 16]));
            drop(persistence.caching_changed(&files, owner));
        });
        begins.recv().unwrap();
        let mut caching_recorded = std::pin::pin!(persistence.caching_recorded());
        let waker = std::task::Waker::noop();
        let mut context = std::task::Context::from_waker(waker);
        assert!(caching_recorded.as_mut().poll(&mut context).is_ready());
        assert_eq!(store.0.lock().unwrap().len(), 2);
    });
}
