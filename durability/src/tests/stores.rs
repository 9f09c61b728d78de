//! The stores over the simulated disk: the state in which a cut at any step leaves them.

use std::{
    cell::RefCell,
    rc::Rc,
    sync::{Arc, Mutex},
};

use vfs::{
    Disk, Env, FileKey, Identity, Timestamp, VfsError,
    disk::OpenHow,
    linux::FsIdentity,
    sim::{Cut, Fault, FaultAction, Profile, SimDisk, SimOp, SimOptions},
};

use super::sim::{self, TestEnv, ms};
use crate::{
    KnownFs, LATCHES, LatchMap, LatchRecord, LatchStore, MapSpec, OpenedLatches, Shape, StoreError,
    UnprovenStream, segment_name, segment_number,
};

/// Latches with little room, so that segments follow each other.
const SMALL: MapSpec = MapSpec {
    shape: Shape {
        segment_bytes: 8 << 10,
        ..LATCHES.shape
    },
    ..LATCHES
};

pub(super) const PROFILES: [Profile; 3] = [Profile::PosixMin, Profile::Journal, Profile::LogTree];

pub(super) fn disk(profile: Profile) -> SimDisk {
    SimDisk::new(SimOptions {
        profile,
        ..SimOptions::default()
    })
}

/// Runs one future to its end.
pub(super) fn run<T: 'static>(env: &Arc<TestEnv>, future: impl Future<Output = T> + 'static) -> T {
    let out: Rc<RefCell<Option<T>>> = Rc::default();
    let into = Rc::clone(&out);
    sim::run(
        1,
        env,
        async move { *into.borrow_mut() = Some(future.await) },
        || (),
    );
    Rc::try_unwrap(out).ok().unwrap().into_inner().unwrap()
}

pub(super) fn fs(dev: u64, n: u8) -> KnownFs {
    KnownFs {
        dev,
        identity: FsIdentity {
            kind: 0xEF53,
            uuid: [n; 16],
            fsid: 0,
        },
        root: format!("/srv/{n}"),
    }
}

pub(super) fn record(fs: u64, ino: u64) -> LatchRecord {
    LatchRecord {
        key: FileKey {
            fs,
            ino,
            generation: 1_700_000_000_000_000_000 + ino,
        },
        error: VfsError::NoSpace,
        at: Timestamp {
            secs: 1_700_000_000,
            nanos: 5,
        },
        sequence: ino * 3,
        unproven: vec![
            UnprovenStream {
                stream: String::new(),
                ranges: vec![(0, 4096), (8192, u64::MAX)],
            },
            UnprovenStream {
                stream: "tag".into(),
                ranges: vec![(1, 2)],
            },
        ],
        metadata: true,
        size: false,
        entries: false,
        file: ino.is_multiple_of(2),
        names: vec![FileKey {
            fs,
            ino: 2,
            generation: 9,
        }],
        path: format!("dir/f{ino}"),
        shares: vec!["data".into()],
    }
}

pub(super) async fn open(
    disk: &SimDisk,
    env: &Arc<TestEnv>,
    known: Vec<KnownFs>,
) -> OpenedLatches<SimDisk> {
    try_open(disk, env, known).await.unwrap()
}

pub(super) async fn try_open(
    disk: &SimDisk,
    env: &Arc<TestEnv>,
    known: Vec<KnownFs>,
) -> Result<OpenedLatches<SimDisk>, StoreError> {
    let env: Arc<dyn Env> = Arc::clone(env) as _;
    LatchMap::open(disk.clone(), env, known, &SMALL).await
}

pub(super) fn restored(disk: &SimDisk, known: Vec<KnownFs>) -> Vec<LatchRecord> {
    let (disk, env) = (disk.clone(), Arc::new(TestEnv::default()));
    let inner = Arc::clone(&env);
    run(&env, async move {
        let opened = open(&disk, &inner, known).await;
        assert_eq!(opened.damage, []);
        assert!(!opened.store.has_overflow());
        opened.store.restore()
    })
}

/// Found by the simulator: a failed sync of an inode of which only its name was dirty leaves a
/// latch that covers nothing. A record of it could not be read, and every FLUSH failed after the
/// next start.
#[test]
fn a_latch_that_says_nothing_is_not_stored() {
    let disk = disk(Profile::PosixMin);
    let env = Arc::new(TestEnv::default());
    let (inner, on) = (Arc::clone(&env), disk.clone());
    run(&env, async move {
        let opened = open(&on, &inner, vec![fs(7, 1)]).await;
        let empty = LatchRecord {
            unproven: Vec::new(),
            metadata: false,
            names: Vec::new(),
            ..record(7, 12)
        };
        opened.store.set(record(7, 11)).await.unwrap();
        opened.store.set(record(7, 12)).await.unwrap();
        opened.store.set(empty).await.unwrap();
    });
    let kept = restored(&disk, vec![fs(7, 1)]);
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].key.ino, 11);
}

#[test]
fn a_stored_latch_survives_every_cut() {
    for profile in PROFILES {
        let disk = disk(profile);
        // Images of every moment, with what had been confirmed by then: set, then cleared.
        type Images = Vec<(SimDisk, usize, usize)>;
        let images: Arc<Mutex<Images>> = Arc::default();
        let confirmed: Arc<Mutex<(usize, usize)>> = Arc::default();
        let (into, seen, from) = (Arc::clone(&images), Arc::clone(&confirmed), disk.clone());
        disk.set_hook(Some(Arc::new(move |_| {
            let (set, cleared) = *seen.lock().unwrap();
            let mut images = into.lock().unwrap();
            for cut in [
                Cut::Nothing,
                Cut::Everything,
                Cut::Seed(images.len() as u64),
            ] {
                images.push((from.cut(cut), set, cleared));
            }
            None
        })));
        let env = Arc::new(TestEnv::default());
        let (inner, on) = (Arc::clone(&env), disk.clone());
        run(&env, async move {
            let store = open(&on, &inner, vec![fs(7, 1)]).await.store;
            for ino in 10..15 {
                // Often enough that segments follow each other.
                for _ in 0..6 {
                    store.set(record(7, ino)).await.unwrap();
                }
                confirmed.lock().unwrap().0 += 1;
            }
            for ino in 10..12 {
                store.cleared(record(7, ino).key).await.unwrap();
                confirmed.lock().unwrap().1 += 1;
            }
        });
        disk.set_hook(None);
        let images = std::mem::take(&mut *images.lock().unwrap());
        assert!(images.len() > 100);
        for (image, set, cleared) in images {
            // After the reboot the device has another number.
            let all = restored(&image, vec![fs(99, 1)]);
            for ino in 10 + cleared as u64..10 + set as u64 {
                // At most one clearing was under way.
                let maybe = cleared < 2 && set == 5 && ino == 10 + cleared as u64;
                let found = all.iter().find(|one| one.key.ino == ino);
                assert!(
                    found.is_some() || maybe,
                    "{profile:?}: {ino} of {set} forgotten"
                );
                if let Some(found) = found {
                    let mut wanted = record(99, ino);
                    wanted.names[0].fs = 99;
                    assert_eq!(*found, wanted);
                }
            }
            for ino in 10..10 + cleared as u64 {
                assert!(all.iter().all(|one| one.key.ino != ino), "cleared and back");
            }
        }
    }
}

#[test]
fn a_store_that_cannot_write_says_so_and_catches_up() {
    let disk = disk(Profile::PosixMin);
    let env = Arc::new(TestEnv::default());
    let (on, inner) = (disk.clone(), Arc::clone(&env));
    run(&env, async move {
        let store = open(&on, &inner, vec![fs(7, 1)]).await.store;
        let fail = |on_op, errno| {
            on.inject(Fault {
                on: on_op,
                after: 0,
                action: FaultAction::Fail(errno),
            });
        };
        // One failed write: another segment takes it, and nothing goes on with the first.
        fail(SimOp::Sync, libc::EIO);
        store.set(record(7, 3)).await.unwrap();
        store.cleared(record(7, 3).key).await.unwrap();
        assert!(store.is_healthy());
        for (on_op, errno) in [(SimOp::Sync, libc::EIO), (SimOp::Change, libc::EROFS)] {
            fail(SimOp::Sync, libc::EIO);
            fail(on_op, errno);
            store.set(record(7, 1)).await.unwrap_err();
            assert!(!store.is_healthy());
            // It tries again by itself.
            inner.sleep(ms(11_000)).await;
            inner.sleep(ms(1_000)).await;
            assert!(store.is_healthy(), "{on_op:?}");
        }
        // A short write is continued.
        on.inject(Fault {
            on: SimOp::Write,
            after: 0,
            action: FaultAction::Short,
        });
        store.set(record(7, 2)).await.unwrap();
    });
    let all = restored(&disk.cut(Cut::Nothing), vec![fs(7, 1)]);
    assert_eq!(all, [record(7, 1), record(7, 2)]);
}

#[test]
fn a_latch_sleeps_while_its_file_system_is_away() {
    let disk = disk(Profile::PosixMin);
    let env = Arc::new(TestEnv::default());
    let (on, inner) = (disk.clone(), Arc::clone(&env));
    run(&env, async move {
        let store = open(&on, &inner, vec![fs(7, 1), fs(8, 2)]).await.store;
        assert!(store.end_of_writes().is_none());
        drop(store.set(record(7, 9)));
        let first = store.end_of_writes().unwrap();
        inner.sleep(ms(1)).await;
        first.await.unwrap();
        assert!(store.end_of_writes().is_none());
        let kept = open(&on.cut(Cut::Nothing), &inner, vec![fs(7, 1)])
            .await
            .store;
        assert_eq!(kept.restore(), [record(7, 9)]);
        store.cleared(record(7, 9).key).await.unwrap();
        // Three at once are one write.
        let before = on.counts().1;
        let tasks = [
            store.set(record(7, 1)),
            store.set(record(8, 2)),
            store.set(record(500, 3)),
        ];
        for task in tasks {
            task.await.unwrap();
        }
        assert!(
            on.counts().1 - before <= 4,
            "two writes of two syncs at most"
        );

        let store = open(&on, &inner, vec![fs(70, 1)]).await.store;
        let live = store.restore();
        assert_eq!(live.len(), 1);
        assert_eq!(live[0].key.fs, 70);
        assert_eq!(store.dormant().len(), 2);
        // When a latch is stored again, none of the dormant ones is lost.
        store.set(record(70, 4)).await.unwrap();
        let store = open(&on, &inner, vec![fs(70, 1)]).await.store;
        let woken = store.learn(fs(80, 2));
        assert_eq!(woken.len(), 1);
        assert_eq!((woken[0].key.fs, woken[0].names[0].fs), (80, 80));
        // The one on a file system that the store never learned of is found by its path.
        let lost = store.dormant().pop().unwrap();
        assert_eq!(lost.path, "dir/f3");
        let key = FileKey {
            fs: 500,
            ..lost.key
        };
        assert_eq!(store.found(&lost, key).unwrap().key, key);
        assert_eq!(store.clear_dormant(), 0);
        assert_eq!(store.restore().len(), 4);
        // A clone of the file system: the root decides.
        let clone = KnownFs {
            dev: 81,
            root: "/elsewhere".into(),
            ..fs(0, 2)
        };
        let store = open(&on, &inner, vec![clone, fs(80, 2)]).await.store;
        assert!(store.restore().iter().any(|one| one.key.fs == 80));
        assert!(store.clear_dormant() > 0);
    });
}

/// It may be unmounted and mounted again while the server runs.
#[test]
fn a_latch_follows_its_file_system_to_another_number() {
    let disk = disk(Profile::PosixMin);
    let env = Arc::new(TestEnv::default());
    let (on, inner) = (disk, Arc::clone(&env));
    run(&env, async move {
        let store = open(&on, &inner, vec![fs(7, 1)]).await.store;
        store.set(record(7, 9)).await.unwrap();
        assert_eq!(store.learn(fs(7, 1)), []);
        assert_eq!(store.restore(), [record(7, 9)]);
        assert_eq!(store.learn(fs(8, 1)), [record(8, 9)]);
        // Another file system gets its number.
        assert_eq!(store.learn(fs(8, 2)), []);
        assert_eq!((store.restore().len(), store.dormant().len()), (0, 1));
        assert_eq!(store.learn(fs(9, 1)), [record(9, 9)]);
        store.cleared(record(9, 9).key).await.unwrap();
        assert_eq!((store.restore().len(), store.dormant().len()), (0, 0));
    });
}

pub(super) async fn put_now(disk: &SimDisk, name: &str, bytes: Vec<u8>) {
    let (me, root) = (&Identity::Service, disk.root());
    let _ = disk.unlink(me, &root, name.as_bytes(), false).await;
    let how = OpenHow {
        write: true,
        create: Some(0o600),
        ..OpenHow::default()
    };
    let opened = disk.open_at(me, &root, name.as_bytes(), how);
    let fd = opened.await.unwrap();
    disk.write(&fd, 0, bytes.into(), false).await.unwrap();
    disk.fsync(&fd).await.unwrap();
    disk.fsync(&root).await.unwrap();
}

pub(super) async fn names(disk: &SimDisk) -> Vec<String> {
    let listed = disk.entries(&disk.root(), 100).await.unwrap();
    let mut names: Vec<_> = listed
        .into_iter()
        .map(|one| String::from_utf8(one.name.to_vec()).unwrap())
        .collect();
    names.sort();
    names
}

/// The newest segment.
pub(super) async fn newest(disk: &SimDisk) -> String {
    let names = names(disk).await.into_iter();
    let numbers = names.filter_map(|name| segment_number(name.as_bytes(), "latches"));
    segment_name(numbers.max().unwrap(), "latches")
}

pub(super) async fn taken_now(disk: &SimDisk, name: &str) -> Vec<u8> {
    let how = OpenHow {
        read: true,
        ..OpenHow::default()
    };
    let root = disk.root();
    let opened = disk.open_at(&Identity::Service, &root, name.as_bytes(), how);
    let fd = opened.await.unwrap();
    let read = disk.read(&fd, 0, 4 << 20, Default::default()).await;
    read.unwrap().to_vec()
}

/// Adds the disks that a cut, in one of three ways, and the end of the process would leave now.
pub(super) fn add_cuts(images: &mut Vec<SimDisk>, disk: &SimDisk) {
    let seed = Cut::Seed(images.len() as u64);
    for cut in [Cut::Nothing, Cut::Everything, seed] {
        images.push(disk.cut(cut));
    }
    images.push(disk.crash_process());
}

/// The contents of a disk at each step of an opening, cut in one of three ways.
fn cuts_of_an_opening(disk: &SimDisk) -> Vec<SimDisk> {
    let images: Arc<Mutex<Vec<SimDisk>>> = Arc::default();
    let (into, from) = (Arc::clone(&images), disk.clone());
    disk.set_hook(Some(Arc::new(move |op| {
        if matches!(op, SimOp::Read | SimOp::Look) {
            return None;
        }
        add_cuts(&mut into.lock().unwrap(), &from);
        None
    })));
    let (on, env) = (disk.clone(), Arc::new(TestEnv::default()));
    let inner = Arc::clone(&env);
    run(&env, async move {
        let opened = open(&on, &inner, vec![fs(7, 1)]).await;
        assert!(opened.store.is_healthy());
    });
    disk.set_hook(None);
    images.lock().unwrap().push(disk.clone());
    std::mem::take(&mut *images.lock().unwrap())
}

/// Cuts a start at every step, and each start after that, and looks for the latches of one file system.
pub(super) fn assert_restored_whatever_is_cut(
    before: &SimDisk,
    wanted: &[LatchRecord],
    profile: Profile,
) {
    let images = cuts_of_an_opening(before);
    assert!(images.len() > 30, "{}", images.len());
    for image in images {
        for again in cuts_of_an_opening(&image) {
            assert_eq!(restored(&again, vec![fs(7, 1)]), wanted, "{profile:?}");
            let env = Arc::new(TestEnv::default());
            let left = run(&env, async move { names(&again).await });
            assert!(left.len() == 2 && left[1] == "spare.latches", "{left:?}");
        }
    }
}

/// Cut at every step of a start, and at every step of the start after that.
#[test]
fn a_start_forgets_no_latch_whatever_is_cut() {
    for profile in PROFILES {
        let (before, env) = (disk(profile), Arc::new(TestEnv::default()));
        let wanted: Vec<_> = (1..4).map(|ino| record(7, ino)).collect();
        let (on, inner, records) = (before.clone(), Arc::clone(&env), wanted.clone());
        run(&env, async move {
            let store = open(&on, &inner, vec![fs(7, 1)]).await.store;
            for record in records {
                store.set(record).await.unwrap();
            }
        });
        assert_restored_whatever_is_cut(&before, &wanted, profile);
    }
}

/// Nothing is free but what is set aside.
#[test]
fn a_latch_made_while_the_disk_is_full_is_there_after_a_restart() {
    for profile in PROFILES {
        let disk = disk(profile);
        let env = Arc::new(TestEnv::default());
        let (on, inner) = (disk.clone(), Arc::clone(&env));
        run(&env, async move {
            let store = open(&on, &inner, vec![fs(7, 1)]).await.store;
            on.set_capacity(0);
            // Far more writes than one segment takes.
            for n in 0..100 {
                store.set(record(7, n % 7)).await.unwrap();
                assert!(store.is_healthy());
                let image = on.cut(Cut::Nothing);
                image.set_capacity(0);
                let kept = open(&image, &inner, vec![fs(7, 1)]).await.store;
                assert_eq!(kept.restore().len() as u64, (n + 1).min(7), "{profile:?}");
                let names = names(&image).await;
                assert!(
                    kept.is_healthy() && !kept.has_overflow(),
                    "{profile:?} {n} {names:?}"
                );
            }
        });
    }
}

/// There are more latches than the reserved room holds: a restart does not know all, so every FLUSH fails.
#[test]
fn on_a_full_disk_too_many_latches_are_an_overflow() {
    let disk = disk(Profile::PosixMin);
    let env = Arc::new(TestEnv::default());
    let (on, inner) = (disk.clone(), Arc::clone(&env));
    run(&env, async move {
        let store = open(&on, &inner, vec![fs(7, 1)]).await.store;
        on.set_capacity(0);
        let mut stored = 0;
        let failed = loop {
            match store.set(record(7, stored)).await {
                Ok(()) => stored += 1,
                Err(error) => break error,
            }
            assert!(stored < 100);
        };
        assert_eq!(failed, VfsError::Io);
        assert!(stored >= 10 && !store.is_healthy(), "{stored}");
        let kept = open(&on.cut(Cut::Nothing), &inner, vec![fs(7, 1)]).await;
        assert_eq!(kept.damage, []);
        assert!(kept.store.has_overflow(), "the last is forgotten");
        assert!(!store.has_overflow(), "this process knows them all");
        // With room again each is stored, and no more than they.
        on.set_capacity(1 << 18);
        inner.sleep(ms(11_000)).await;
        inner.sleep(ms(1_000)).await;
        assert!(store.is_healthy());
        let kept = open(&on.cut(Cut::Nothing), &inner, vec![fs(7, 1)])
            .await
            .store;
        assert!(!kept.has_overflow());
        assert_eq!(kept.restore().len() as u64, stored + 1);
    });
}

/// A segment is full, and the next one gets no name, or none that is stable: whichever a restart finds knows that a
/// latch is missing.
#[test]
fn a_segment_without_a_stable_name_leaves_an_overflow() {
    let faults = [(SimOp::Change, 0)].into_iter();
    let mut failed = 0;
    for (on_op, after) in faults.chain((0..40).map(|after| (SimOp::Sync, after))) {
        let disk = disk(Profile::PosixMin);
        let env = Arc::new(TestEnv::default());
        let inner = Arc::clone(&env);
        failed += run(&env, async move {
            let store = open(&disk, &inner, vec![fs(7, 1)]).await.store;
            let action = FaultAction::Fail(libc::EIO);
            let on = on_op;
            assert!(disk.inject(Fault { on, after, action }));
            for n in 0..40 {
                if store.set(record(7, n % 3)).await.is_ok() {
                    continue;
                }
                for cut in [Cut::Nothing, Cut::Everything] {
                    let kept = open(&disk.cut(cut), &inner, vec![fs(7, 1)]).await;
                    assert_eq!(kept.damage, []);
                    assert!(kept.store.has_overflow(), "{on_op:?} {after} {cut:?}");
                }
                return 1;
            }
            0
        });
    }
    // The rename, the sync of the new segment, and that of its name.
    assert!(failed >= 3, "{failed}");
}

#[test]
fn what_takes_too_much_room_is_said_in_fewer_words() {
    const TINY: MapSpec = MapSpec {
        bytes: 30_350,
        ..SMALL
    };
    let disk = disk(Profile::PosixMin);
    let env = Arc::new(TestEnv::default());
    let inner = Arc::clone(&env);
    run(&env, async move {
        let known = || vec![fs(7, 1)];
        let env: Arc<dyn Env> = Arc::clone(&inner) as _;
        let opened = LatchMap::open(disk.clone(), Arc::clone(&env), known(), &TINY).await;
        let store = opened.unwrap().store;
        for ino in 0..100 {
            let mut wide = record(7, ino);
            wide.unproven[0].ranges = (0..60).map(|i| (i * 10, i * 10 + 1)).collect();
            wide.path = "p".repeat(100);
            store.set(wide).await.unwrap();
        }
        assert!(store.has_overflow());
        let image = disk.cut(Cut::Nothing);
        let kept = LatchMap::open(image, env, known(), &TINY).await.unwrap();
        assert!(kept.store.has_overflow() && kept.damage.is_empty());
        let all = kept.store.restore();
        assert!(all.len() > 8 && all.len() < 100, "{}", all.len());
        let ranges = |record: &LatchRecord| Some(record.unproven.first()?.ranges.len());
        assert_eq!(ranges(&all[0]), Some(60));
        let coarse = |one: &LatchRecord| one.entries && one.unproven.is_empty();
        assert!(all.iter().any(coarse));
        assert!(all.iter().all(|one| one.names == record(7, 0).names));
    });
}

#[test]
fn an_overflow_outlives_the_process_until_it_is_cleared() {
    let disk = disk(Profile::PosixMin);
    let env = Arc::new(TestEnv::default());
    let (on, inner) = (disk.clone(), Arc::clone(&env));
    run(&env, async move {
        let known = || vec![fs(7, 1)];
        let store = open(&on, &inner, known()).await.store;
        assert!(!store.has_overflow());
        store.set(record(7, 1)).await.unwrap();
        store.set_overflow(true).await.unwrap();
        let next = open(&on.cut(Cut::Nothing), &inner, known()).await;
        assert_eq!(next.damage, []);
        assert!(next.store.has_overflow());
        assert_eq!(next.store.restore(), [record(7, 1)]);
        assert_eq!(next.store.dormant(), []);
        store.set_overflow(false).await.unwrap();
        let next = open(&on.cut(Cut::Nothing), &inner, known()).await.store;
        assert!(!next.has_overflow());

        // A damaged entry is an overflow as well, because any inode may be meant.
        let name = newest(&on).await;
        let mut bad = taken_now(&on, &name).await;
        let at = bad.windows(4).position(|w| w == b"data").unwrap();
        bad[at] = b'D';
        put_now(&on, &name, bad).await;
        let next = open(&on, &inner, known()).await;
        assert_eq!(next.damage.len(), 1);
        assert!(next.store.has_overflow());
        // Not forgotten before it is cleared, whatever is written meanwhile.
        next.store.set(record(7, 2)).await.unwrap();
        let next = open(&on.cut(Cut::Nothing), &inner, known()).await;
        assert!(next.damage.is_empty() && next.store.has_overflow());
        next.store.set_overflow(false).await.unwrap();
    });
}

/// A slow disk is not kept busy with latches alone.
#[test]
fn many_failures_are_few_writes() {
    let disk = disk(Profile::PosixMin);
    let env = Arc::new(TestEnv::default());
    let (on, inner) = (disk.clone(), Arc::clone(&env));
    run(&env, async move {
        let store = open(&on, &inner, vec![fs(7, 1)]).await.store;
        let slow = Arc::clone(&inner);
        on.set_hook(Some(Arc::new(move |op| {
            (op == SimOp::Write).then(|| slow.sleep(ms(50)))
        })));
        let begun = inner.monotonic();
        let before = on.counts().1;
        while inner.monotonic() < begun + ms(2000) {
            inner.sleep(ms(10)).await;
            let ino = inner.monotonic().as_millis() as u64;
            drop(store.set(record(7, ino)));
        }
        store.end_of_writes().unwrap().await.unwrap();
        // 200 failures, a write of 50 ms at a time.
        let syncs = on.counts().1 - before;
        assert!(syncs <= 46, "{syncs}");
        inner.sleep(ms(100)).await;
        assert!(store.end_of_writes().is_none());
    });
}
