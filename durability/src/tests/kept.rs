//! Tests of the engine with its stores: whatever it has reported is on their disk by then.

use std::{rc::Rc, sync::Arc};

use vfs::{
    Env, FileKey, VfsError,
    linux::FsIdentity,
    sim::{Cut, Profile, SimDisk},
};

use super::{
    fake::{ELSEWHERE, FakeNode, dir, file, key, stream},
    flush::{PLAIN, THROUGH, World, honor, world},
    journals::{SMALL, about, bound, segments},
    opens::opener,
    sim::{join, ms},
    stores::disk,
};
use crate::{share::lock, *};

const IO: Result<(), VfsError> = Err(VfsError::Io);

fn known() -> Vec<KnownFs> {
    let fs = |dev: u64| KnownFs {
        dev,
        identity: FsIdentity {
            kind: 1,
            uuid: [dev as u8; 16],
            fsid: 0,
        },
        root: "/srv".into(),
    };
    vec![fs(key(0).fs), fs(key(ELSEWHERE).fs)]
}

async fn store(w: &World, disk: &SimDisk) -> Arc<LatchMap<SimDisk>> {
    let env: Arc<dyn Env> = Arc::clone(&w.env) as _;
    let opened = LatchMap::open(disk.clone(), env, known(), &LATCHES);
    let opened = opened.await.unwrap();
    assert_eq!(opened.damage, []);
    opened.store
}

/// The latches that a server would find after a power cut at this moment.
async fn stored(w: &World, disk: &SimDisk) -> Vec<LatchRecord> {
    store(w, &disk.cut(Cut::Nothing)).await.restore()
}

fn engine(w: &World) -> Arc<Durability<super::fake::Fake>> {
    Durability::new(Arc::clone(&w.env) as _, Limits::default())
}

fn inodes(records: &[LatchRecord]) -> Vec<FileKey> {
    records.iter().map(|record| record.key).collect()
}

#[test]
fn an_error_is_stored_before_it_is_reported() {
    honor(|w| async move {
        let disk = disk(Profile::PosixMin);
        w.engine.keep_latches(store(&w, &disk).await);
        let f = file(5);
        w.write(&f, 3, 2).await.unwrap();
        w.fake.script(5, &[Err(VfsError::NoSpace)]);
        assert_eq!(w.flush(&f).await, Err(VfsError::NoSpace));
        let records = stored(&w, &disk).await;
        assert_eq!(inodes(&records), [key(5)]);
        assert_eq!(records[0].error, VfsError::NoSpace);
        assert_eq!(records[0].shares, ["share"]);
        let unproven = &records[0].unproven;
        assert_eq!(unproven.len(), 1);
        assert_eq!(unproven[0].ranges, [(3 * 4096, 5 * 4096)]);

        // A durable write; a second failure that makes the first latch grow.
        w.fake.script(6, &[IO]);
        assert_eq!(w.write_as(&file(6), 0, 1, THROUGH).await, IO);
        assert_eq!(inodes(&stored(&w, &disk).await), [key(5), key(6)]);
        w.write(&f, 9, 1).await.unwrap();
        w.fake.script(5, &[IO]);
        w.flush(&f).await.unwrap_err();
        let ranges = stored(&w, &disk).await[0].unproven[0].ranges.clone();
        assert_eq!(ranges, [(3 * 4096, 5 * 4096), (9 * 4096, 10 * 4096)]);

        // A name was dirty in a directory.
        w.create(&file(7), &dir(70)).await.unwrap();
        w.fake.script(70, &[IO]);
        assert_eq!(w.flush(&file(7)).await, IO);
        let records = stored(&w, &disk).await;
        let named = records.iter().find(|one| one.key == key(7)).unwrap();
        assert_eq!(named.names, [key(70)]);
        assert!(records.iter().any(|one| one.key == key(70)));
    });
}

#[test]
fn a_restored_latch_ends_by_what_would_have_ended_it() {
    honor(|w| async move {
        let disk = disk(Profile::PosixMin);
        w.engine.keep_latches(store(&w, &disk).await);
        for ino in 5..8 {
            w.write(&file(ino), 0, 2).await.unwrap();
            w.fake.script(ino, &[IO]);
            assert_eq!(w.flush(&file(ino)).await, IO);
        }
        // The server dies; another one begins.
        let kept = store(&w, &disk.cut(Cut::Nothing)).await;
        let engine = engine(&w);
        let lazy = "treat-host-as-stable-storage".parse().unwrap();
        let settings = ShareDurability::with_policy(lazy);
        let gate = engine.share("share", Arc::clone(&w.fake), settings);
        for record in kept.restore() {
            engine.restore_latch(&record);
        }
        engine.keep_latches(Arc::clone(&kept) as _);
        let next = World {
            env: Arc::clone(&w.env),
            fake: Arc::clone(&w.fake),
            engine,
            gate,
        };
        assert_eq!(next.gate.poisoned().len(), 3);
        assert_eq!(next.gate.exposure().unproven_bytes, 3 * 8192);
        assert_eq!(next.gate.effective_policy(), Policy::Honor, "as before");
        for ino in 5..8 {
            assert_eq!(next.flush(&file(ino)).await, IO);
        }
        // To rewrite half of it is not enough; to rewrite all of it and sync is.
        next.write(&file(5), 0, 1).await.unwrap();
        assert_eq!(next.flush(&file(5)).await, IO);
        next.write(&file(5), 1, 1).await.unwrap();
        assert_eq!(next.flush(&file(5)).await, Ok(()));
        // Deleted.
        lock(&next.fake.state).links.insert(6, 0);
        next.gate.removed(&file(6), &dir(1), PLAIN).await.unwrap();
        // Cleared.
        assert!(next.engine.clear_latch(key(7)));
        assert_eq!(next.gate.effective_policy(), lazy);
        // The stored latch of what was deleted ends when that is on disk.
        w.env.sleep(ms(50)).await;
        if let Some(written) = kept.end_of_writes() {
            written.await.unwrap();
        }
        assert_eq!(kept.restore(), []);
    });
}

/// Also after a restart, setting other metadata repairs no stream that was lost.
#[test]
fn a_restored_latch_of_a_stream_is_ended_by_no_metadata() {
    honor(|w| async move {
        let disk = disk(Profile::PosixMin);
        w.engine.keep_latches(store(&w, &disk).await);
        let f = file(5);
        drop(w.gate.stream_created(&stream(5, "s"), PLAIN).await.unwrap());
        w.fake.script(5, &[IO, IO]);
        assert_eq!(w.flush(&f).await, IO);
        lock(&w.fake.state).script.clear();
        let engine = engine(&w);
        let gate = engine.share("share", Arc::clone(&w.fake), ShareDurability::default());
        let records = stored(&w, &disk).await;
        records.iter().for_each(|one| engine.restore_latch(one));
        for what in [Meta::Security, Meta::Times, Meta::Attributes] {
            drop(gate.meta_changed(&f, what, PLAIN).await.unwrap());
        }
        drop(gate.overwritten(&f).await.unwrap());
        let flushed = gate.flush(&f, FlushTarget::File, PLAIN).await;
        assert_eq!(flushed.err(), Some(VfsError::Io));
        assert!(engine.clear_latch(key(5)));
        drop(gate.flush(&f, FlushTarget::File, PLAIN).await.unwrap());
    });
}

/// The list of names that were dirty in a directory ended with the server's process; it is known
/// that the directory's own name is lost.
#[test]
fn below_a_directory_whose_name_an_earlier_process_lost_nothing_is_promised() {
    honor(|w| async move {
        let disk = disk(Profile::PosixMin);
        w.engine.keep_latches(store(&w, &disk).await);
        let (sub, one, other) = (dir(70), file(7), file(8));
        let open = w.gate.opened(&sub, opener("Sub"));
        w.create(&sub, &dir(1)).await.unwrap();
        drop(open);
        w.fake.script(1, &[IO]);
        assert_eq!(w.flush(&sub).await, IO);
        let kept = store(&w, &disk.cut(Cut::Nothing)).await;
        assert!(inodes(&kept.restore()).contains(&key(70)));

        let engine = engine(&w);
        let gate = engine.share("share", Arc::clone(&w.fake), ShareDurability::default());
        for record in kept.restore() {
            engine.restore_latch(&record);
        }
        let (env, fake) = (Arc::clone(&w.env), Arc::clone(&w.fake));
        let next = World {
            env,
            fake,
            engine,
            gate,
        };
        let below = next.gate.opened(&one, opener("sub/x"));
        let beside = next.gate.opened(&other, opener("subway"));
        next.write(&one, 0, 1).await.unwrap();
        assert_eq!(next.flush(&one).await, IO);
        assert_eq!(next.write_as(&one, 0, 1, THROUGH).await, IO);
        next.write(&other, 0, 1).await.unwrap();
        assert_eq!(next.flush(&other).await, Ok(()));
        assert_eq!(next.write_as(&other, 0, 1, THROUGH).await, Ok(()));
        assert!(next.engine.clear_latch(key(70)));
        assert_eq!(next.flush(&one).await, Ok(()));
        drop((below, beside));
    });
}

#[test]
fn a_store_that_hangs_does_not_hide_the_error() {
    honor(|w| async move {
        let disk = disk(Profile::PosixMin);
        let store = store(&w, &disk).await;
        w.engine.keep_latches(store);
        disk.set_hook(Some(Arc::new(|_| Some(Box::pin(std::future::pending())))));
        let f = file(5);
        w.write(&f, 0, 1).await.unwrap();
        w.fake.script(5, &[IO]);
        let begun = w.env.monotonic();
        assert_eq!(w.flush(&f).await, IO);
        let took = w.env.monotonic() - begun;
        assert!(took >= ms(5000) && took < ms(6000), "{took:?}");
        // After that it does not hold up any other request either.
        let begun = w.env.monotonic();
        w.flush(&f).await.unwrap_err();
        assert!(w.env.monotonic() - begun < ms(100));
    });
}

/// A record names no share if more shares used the inode than it has room for, and a share that it names may have got
/// another name.
#[test]
fn a_restored_latch_that_names_no_share_of_this_server_is_one_of_each() {
    let limits = Limits::default();
    world("treat-host-as-stable-storage", limits, |w| async move {
        for shares in [vec![], vec!["before".to_owned()]] {
            w.engine.restore_latch(&LatchRecord {
                shares,
                ..LatchRecord::whole(key(5), VfsError::Io)
            });
            assert_eq!(w.gate.effective_policy(), Policy::Honor);
            assert_eq!(w.gate.exposure().poisoned_inodes, 1);
            assert!(w.engine.clear_latch(key(5)));
            assert_eq!(w.gate.effective_policy(), Policy::TreatHostAsStableStorage);
            assert_eq!(w.gate.exposure().poisoned_inodes, 0);
        }
    });
}

/// As by a reload that gives a share another name.
#[test]
fn a_latch_is_extended_to_another_share_once() {
    let limits = Limits::default();
    world("treat-host-as-stable-storage", limits, |w| async move {
        w.engine.restore_latch(&LatchRecord {
            shares: vec!["share".to_owned()],
            ..LatchRecord::whole(key(5), VfsError::Io)
        });
        let lazy = Policy::TreatHostAsStableStorage;
        let settings = ShareDurability::with_policy(lazy);
        let other = w.engine.share("other", Arc::clone(&w.fake), settings);
        let extend = |ino| w.engine.extend_latch(key(ino), &["Other".to_owned()]);
        extend(6);
        assert_eq!(other.effective_policy(), lazy, "it is not poisoned");
        extend(5);
        assert_eq!(other.effective_policy(), Policy::Honor);
        assert_eq!(other.exposure().poisoned_inodes, 1);
        // An administrator who sets the policy accepts the loss, also for the time after the next reload.
        other.set_policy(lazy, "root").await;
        extend(5);
        assert_eq!(other.effective_policy(), lazy);
        assert!(w.engine.clear_latch(key(5)));
        assert_eq!(other.exposure().poisoned_inodes, 0);
    });
}

/// Once the store no longer hangs, later errors wait for their latches again.
#[test]
fn after_a_hang_errors_wait_for_the_store_again() {
    honor(|w| async move {
        let disk = disk(Profile::PosixMin);
        w.engine.keep_latches(store(&w, &disk).await);
        for (ino, span, told) in [(5, 10_000, 5_000), (6, 200, 200)] {
            let env = Arc::clone(&w.env);
            disk.set_hook(Some(Arc::new(move |op| {
                (op == vfs::sim::SimOp::Write).then(|| env.sleep(ms(span)))
            })));
            w.write(&file(ino), 0, 1).await.unwrap();
            w.fake.script(ino, &[IO]);
            let begun = w.env.monotonic();
            assert_eq!(w.flush(&file(ino)).await, IO);
            let took = w.env.monotonic() - begun;
            assert!(took >= ms(told) && took < ms(told + 600), "{took:?}");
            if ino == 6 {
                assert!(inodes(&stored(&w, &disk).await).contains(&key(6)));
            }
            w.env.sleep(ms(60_000)).await;
        }
    });
}

#[test]
fn an_overflow_is_stored_before_it_is_reported_and_comes_back() {
    let limits = Limits {
        poisoned_max: 1,
        ..Limits::default()
    };
    world("honor", limits, |w| async move {
        let disk = disk(Profile::PosixMin);
        w.engine.keep_latches(store(&w, &disk).await);
        for ino in 5..7 {
            w.write(&file(ino), 0, 1).await.unwrap();
            w.fake.script(ino, &[IO]);
            assert_eq!(w.flush(&file(ino)).await, IO);
        }
        let kept = store(&w, &disk.cut(Cut::Nothing)).await;
        assert!(kept.has_overflow());
        assert_eq!(inodes(&kept.restore()), [key(5)]);
        let engine = engine(&w);
        let gate = engine.share(
            "share",
            Arc::clone(&w.fake),
            ShareDurability::with_policy(Policy::Honor),
        );
        engine.restore_overflow();
        engine.keep_latches(Arc::clone(&kept) as _);
        let flushed = gate.flush(&file(100), FlushTarget::File, PLAIN).await;
        assert_eq!(flushed.map(drop), IO);
        assert!(engine.clear_overflow());
        gate.flush(&file(100), FlushTarget::File, PLAIN)
            .await
            .unwrap();
        if let Some(written) = kept.end_of_writes() {
            written.await.unwrap();
        }
        assert!(!kept.has_overflow());
    });
}

async fn journal(w: &World, disk: &SimDisk) -> Arc<JournalFile<SimDisk>> {
    let env: Arc<dyn Env> = Arc::clone(&w.env) as _;
    let mut about = about();
    about.shares[0].name = "share".into();
    let journal = JournalFile::open(disk.clone(), env, SMALL, about)
        .await
        .unwrap();
    w.engine.keep_journal(Arc::clone(&journal) as _);
    journal
}

async fn written(disk: &SimDisk) -> Vec<JournalRecord> {
    let mut records = Vec::new();
    for segment in segments(&disk.cut(Cut::Nothing)).await {
        assert_eq!(segment.damage, []);
        records.extend(segment.records);
    }
    records
}

fn flushes(records: &[JournalRecord], node: &FakeNode) -> usize {
    let of = |record: &&JournalRecord| matches!(record, JournalRecord::Flushed(flush) if flush.key.ino == node.ino);
    records.iter().filter(of).count()
}

#[test]
fn a_flush_is_recorded_before_its_answer_and_after_its_sync() {
    honor(|w| async move {
        let disk = disk(Profile::PosixMin);
        let journal = journal(&w, &disk).await;
        // Writes to the journal take their time, so that flushes meet.
        let env = Arc::clone(&w.env);
        disk.set_hook(Some(Arc::new(move |_| Some(env.sleep(ms(5))))));
        let clients = (0..16_u64).map(|client| {
            let (w, disk) = (Rc::clone(&w), disk.clone());
            Box::pin(async move {
                let f = file(100 + client);
                for n in 0..4 {
                    w.write(&f, n, 1).await.unwrap();
                    assert_eq!(w.flush(&f).await, Ok(()));
                    assert_eq!(flushes(&written(&disk).await, &f), n as usize + 1);
                    assert!(lock(&w.fake.state).pages[&(f.ino, n)].durable > 0);
                }
            }) as vfs::env::LocalTask
        });
        join(&w.env, clients.collect()).await;
        let counts = journal.counts();
        assert_eq!(counts.records, 64);
        assert!(counts.writes < 40, "{counts:?}");
        // A FLUSH that failed is not recorded.
        let f = file(200);
        w.write(&f, 0, 1).await.unwrap();
        w.fake.script(200, &[IO]);
        assert_eq!(w.flush(&f).await, IO);
        assert_eq!(flushes(&written(&disk).await, &f), 0);
        // Nor is a FLUSH of another share.
        let other = w.engine.share(
            "other",
            Arc::clone(&w.fake),
            ShareDurability::with_policy(Policy::Honor),
        );
        let f = file(201);
        other.flush(&f, FlushTarget::File, PLAIN).await.unwrap();
        assert_eq!(flushes(&written(&disk).await, &f), 0);
    });
}

#[test]
fn dirty_data_of_a_lazy_share_are_within_its_exposure_record() {
    for policy in ["treat-host-as-stable-storage", "bounded:500ms,64MiB"] {
        world(policy, Limits::default(), |w| async move {
            let disk = disk(Profile::PosixMin);
            let _journal = journal(&w, &disk).await;
            let clients = (0..3_u64).map(|client| {
                let (w, disk) = (Rc::clone(&w), disk.clone());
                Box::pin(async move {
                    let f = file(100 + client);
                    for n in 0..12 {
                        let begun = w.env.monotonic();
                        w.write(&f, n * 512, 512).await.unwrap();
                        // It was acknowledged: an upper bound of it is on stable storage.
                        let bytes = w.gate.exposure().bytes;
                        let records = written(&disk).await;
                        let (allowance, _, until) = bound(&records).expect("a record");
                        assert!(bytes <= allowance + 3 * (2 << 20), "{bytes} {allowance}");
                        assert!(begun <= until);
                        if n % 4 == 3 {
                            w.flush(&f).await.unwrap();
                            w.env.sleep(ms(700)).await;
                        }
                    }
                }) as vfs::env::LocalTask
            });
            join(&w.env, clients.collect()).await;
            w.env.sleep(ms(60_000)).await;
            assert_eq!(w.gate.exposure().bytes, 0);
            let records = written(&disk).await;
            assert_eq!(bound(&records).unwrap().0, 0, "all is paid, and said to be");
            let promised = records
                .iter()
                .filter(|record| matches!(record, JournalRecord::Promised(_)));
            assert_eq!(promised.count(), 9);
        });
    }
}

/// Without its record a lazy change is made stable before it is acknowledged.
#[test]
fn where_nothing_bounds_a_change_it_is_made_stable() {
    world(
        "treat-host-as-stable-storage",
        Limits::default(),
        |w| async move {
            let disk = disk(Profile::PosixMin);
            let journal = journal(&w, &disk).await;
            disk.set_capacity(0);
            for fault in 0..4 {
                disk.inject(vfs::sim::Fault {
                    on: vfs::sim::SimOp::Sync,
                    after: fault,
                    action: vfs::sim::FaultAction::Fail(libc::EIO),
                });
            }
            let f = file(5);
            w.write(&f, 0, 1).await.unwrap();
            assert!(!journal.is_healthy());
            assert!(lock(&w.fake.state).pages[&(5, 0)].durable > 0);
        },
    );
}
