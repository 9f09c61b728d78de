//! The stores over the simulated disk: what a cut at any step leaves of them.

use std::{
    cell::RefCell,
    rc::Rc,
    sync::{Arc, Mutex},
};

use proptest::prelude::*;
use vfs::{
    Disk, Env, FileKey, Identity, Timestamp, VfsError,
    disk::{Errno, OpenHow},
    sim::{Cut, Fault, FaultAction, Profile, SimDisk, SimOp, SimOptions},
    sys::FsIdentity,
};

use super::sim::{self, TestEnv, ms};
use crate::{
    latch_file::{KnownFs, LatchFile, LatchFileError, Opened},
    latch_store::{LatchRecord, LatchStore, UnprovenStream},
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

fn fs(dev: u64, n: u8) -> KnownFs {
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

fn record(fs: u64, ino: u64) -> LatchRecord {
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

async fn open(disk: &SimDisk, env: &Arc<TestEnv>, known: Vec<KnownFs>) -> Opened<SimDisk> {
    let env: Arc<dyn Env> = Arc::clone(env) as _;
    LatchFile::open(disk.clone(), env, known).await.unwrap()
}

fn restored(disk: &SimDisk, known: Vec<KnownFs>) -> Vec<LatchRecord> {
    let (disk, env) = (disk.clone(), Arc::new(TestEnv::default()));
    let inner = Arc::clone(&env);
    run(&env, async move {
        let opened = open(&disk, &inner, known).await;
        assert_eq!(opened.refused, []);
        opened.store.restore()
    })
}

/// Found by the simulator: a failed sync of an inode of which only its name was dirty leaves a
/// latch that says nothing. Stored as it was it could not be read, and every FLUSH failed at the
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
                store.set(record(7, ino)).await.unwrap();
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
        for (on_op, errno) in [(SimOp::Sync, libc::EIO), (SimOp::Change, libc::EROFS)] {
            on.inject(Fault {
                on: on_op,
                after: 0,
                action: FaultAction::Fail(errno),
            });
            store.set(record(7, 1)).await.unwrap_err();
            assert!(!store.is_healthy());
            // It tries again by itself.
            inner.sleep(ms(11_000)).await;
            inner.sleep(ms(1_000)).await;
            assert!(store.is_healthy(), "{on_op:?}");
        }
        // Short writes are gone on with.
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
        assert!(store.settled().is_none());
        drop(store.set(record(7, 9)));
        let first = store.settled().unwrap();
        inner.sleep(ms(1)).await;
        first.await.unwrap();
        assert!(store.settled().is_none());
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
        // Written again, nothing of the sleeping ones is lost.
        store.set(record(70, 4)).await.unwrap();
        let store = open(&on, &inner, vec![fs(70, 1)]).await.store;
        let woken = store.learn(fs(80, 2));
        assert_eq!(woken.len(), 1);
        assert_eq!((woken[0].key.fs, woken[0].names[0].fs), (80, 80));
        // The one on a file system that was never told is found by its path.
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

async fn put_now(disk: &SimDisk, bytes: Vec<u8>) {
    let (me, root) = (&Identity::Service, disk.root());
    let _ = disk.unlink(me, &root, b"latches", false).await;
    let how = OpenHow {
        write: true,
        create: Some(0o600),
        ..OpenHow::default()
    };
    let fd = disk.open_at(me, &root, b"latches", how).await.unwrap();
    disk.write(&fd, 0, bytes.into(), false).await.unwrap();
}

fn put(disk: &SimDisk, env: &Arc<TestEnv>, bytes: Vec<u8>) {
    let disk = disk.clone();
    run(env, async move { put_now(&disk, bytes).await });
}

async fn taken_now(disk: &SimDisk) -> Vec<u8> {
    let how = OpenHow {
        read: true,
        ..OpenHow::default()
    };
    let root = disk.root();
    let opened = disk.open_at(&Identity::Service, &root, b"latches", how);
    let fd = opened.await.unwrap();
    let read = disk.read(&fd, 0, 1 << 20, Default::default()).await;
    read.unwrap().to_vec()
}

fn taken(disk: &SimDisk, env: &Arc<TestEnv>) -> Vec<u8> {
    let disk = disk.clone();
    run(env, async move { taken_now(&disk).await })
}

type Reopened = Result<(usize, usize), LatchFileError>;

/// Live and dormant entries, and refused ones.
fn reopen(disk: &SimDisk, env: &Arc<TestEnv>) -> Reopened {
    let (disk, inner) = (disk.clone(), Arc::clone(env));
    run(env, async move {
        let opened = LatchFile::open(disk, inner as _, vec![fs(7, 1)]).await?;
        let kept = opened.store.restore().len() + opened.store.dormant().len();
        Ok((kept, opened.refused.len()))
    })
}

#[test]
fn no_damage_goes_unnoticed() {
    let disk = disk(Profile::Untracked);
    let env = Arc::new(TestEnv::default());
    let (on, inner) = (disk.clone(), Arc::clone(&env));
    run(&env, async move {
        let store = open(&on, &inner, vec![fs(7, 1)]).await.store;
        for ino in 1..4 {
            store.set(record(7, ino)).await.unwrap();
        }
    });
    let good = taken(&disk, &env);
    assert_eq!(reopen(&disk, &env), Ok((3, 0)));
    for at in 0..good.len() {
        for flip in [0x01, 0x80, 0xFF] {
            let mut bad = good.clone();
            bad[at] ^= flip;
            put(&disk, &env, bad);
            match reopen(&disk, &env) {
                Ok((kept, refused)) => assert!(refused > 0 && kept < 3, "byte {at} ^ {flip:#x}"),
                Err(LatchFileError::NotOurs | LatchFileError::Version) => {}
                Err(other) => panic!("{other}"),
            }
        }
    }
    for len in 0..good.len() {
        put(&disk, &env, good[..len].to_vec());
        assert!(!matches!(reopen(&disk, &env), Ok((_, 0))), "cut to {len}");
    }
    let mut newer = good;
    newer[7] = b'2';
    put(&disk, &env, newer);
    assert_eq!(reopen(&disk, &env), Err(LatchFileError::Version));
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
        assert_eq!(next.refused, []);
        assert!(next.store.has_overflow());
        assert_eq!(next.store.restore(), [record(7, 1)]);
        assert_eq!(next.store.dormant(), []);
        store.set_overflow(false).await.unwrap();
        let next = open(&on.cut(Cut::Nothing), &inner, known()).await.store;
        assert!(!next.has_overflow());

        // A damaged entry is one, for any inode may be meant.
        let mut bad = taken_now(&on).await;
        let at = bad.windows(4).position(|w| w == b"data").unwrap();
        bad[at] = b'D';
        put_now(&on, bad).await;
        let next = open(&on, &inner, known()).await;
        assert_eq!(next.refused.len(), 1);
        assert!(next.store.has_overflow());
        // Not forgotten before it is cleared, whatever is written meanwhile.
        next.store.set(record(7, 2)).await.unwrap();
        let next = open(&on.cut(Cut::Nothing), &inner, known()).await;
        assert!(next.refused.is_empty() && next.store.has_overflow());
        next.store.set_overflow(false).await.unwrap();
    });
}

/// A disk that takes its time is not kept busy with nothing but this.
#[test]
fn many_failures_are_few_writes() {
    let disk = disk(Profile::PosixMin);
    let env = Arc::new(TestEnv::default());
    let (on, inner) = (disk.clone(), Arc::clone(&env));
    run(&env, async move {
        let store = open(&on, &inner, vec![fs(7, 1)]).await.store;
        let slow = Arc::clone(&inner);
        on.set_hook(Some(Arc::new(move |op| {
            (op == SimOp::Sync).then(|| slow.sleep(ms(50)))
        })));
        let begun = inner.monotonic();
        let before = on.counts().1;
        while inner.monotonic() < begun + ms(2000) {
            inner.sleep(ms(10)).await;
            let ino = inner.monotonic().as_millis() as u64;
            drop(store.set(record(7, ino)));
        }
        store.settled().unwrap().await.unwrap();
        // Two syncs of 50 ms and as long a rest.
        let syncs = on.counts().1 - before;
        assert!(syncs <= 26, "{syncs}");
        assert!(store.settled().is_none());
    });
}

#[test]
fn a_refused_entry_is_named_and_its_file_kept() {
    let disk = disk(Profile::PosixMin);
    let env = Arc::new(TestEnv::default());
    let (on, inner) = (disk.clone(), Arc::clone(&env));
    run(&env, async move {
        let store = open(&on, &inner, vec![fs(7, 1)]).await.store;
        store.set(record(7, 1)).await.unwrap();
    });
    let mut bad = taken(&disk, &env);
    let at = bad.windows(4).position(|w| w == b"data").unwrap();
    bad[at] = b'D';
    put(&disk, &env, bad.clone());
    let (on, inner) = (disk.clone(), Arc::clone(&env));
    let refused = run(&env, async move { open(&on, &inner, vec![]).await.refused });
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].path.as_deref(), Some("dir/f1"));
    let kept = disk.cut(Cut::Nothing);
    let how = OpenHow {
        read: true,
        ..OpenHow::default()
    };
    let size = run(&env, async move {
        let root = kept.root();
        let opened = kept.open_at(&Identity::Service, &root, b"latches.refused", how);
        let fd = opened.await.unwrap();
        kept.stat(&fd).await.unwrap().size
    });
    assert_eq!(size, bad.len() as u64);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_bytes_are_read_without_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..300), ours: bool) {
        if ours {
            bytes.splice(0..0, *b"HFLATCH1");
        }
        let disk = disk(Profile::Untracked);
        let env = Arc::new(TestEnv::default());
        put(&disk, &env, bytes);
        let _: Result<_, LatchFileError> = reopen(&disk, &env);
    }
}

#[test]
fn a_file_beyond_all_bounds_is_an_error() {
    let disk = disk(Profile::Untracked);
    let env = Arc::new(TestEnv::default());
    put(&disk, &env, vec![0]);
    let on = disk.clone();
    run(&env, async move {
        let how = OpenHow {
            write: true,
            ..OpenHow::default()
        };
        let root = on.root();
        let opened = on.open_at(&Identity::Service, &root, b"latches", how);
        on.truncate(&opened.await.unwrap(), 1 << 29).await.unwrap();
    });
    assert_eq!(
        reopen(&disk, &env),
        Err(LatchFileError::Disk(Errno(libc::EFBIG)))
    );
}
