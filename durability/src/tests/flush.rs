//! FLUSH: joining, order, what kind of sync, writes under way, strict replies.

use std::{cell::RefCell, rc::Rc, sync::Arc};

use bytes::Bytes;
use vfs::{
    Env, Node, VfsError, VfsResult,
    requester::{self, Requester},
};

use super::{
    fake::{ELSEWHERE, Fake, FakeNode, dir, file, key, stream},
    sim::{TestEnv, join, ms, run},
};
use crate::{share::lock, *};

pub(super) struct World {
    pub(super) env: Arc<TestEnv>,
    pub(super) fake: Arc<Fake>,
    pub(super) engine: Arc<Durability<Fake>>,
    pub(super) gate: Arc<Gate<Fake>>,
}

/// Runs `main` in a world whose syncs and writes take 10 ms, under a few schedules.
pub(super) fn world<F: Future<Output = ()> + 'static>(
    policy: &str,
    limits: Limits,
    main: impl Fn(Rc<World>) -> F,
) {
    for seed in 0..8 {
        one_world(policy, limits, seed, &main);
    }
}

/// As [`world`], under one schedule.
pub(super) fn one_world<F: Future<Output = ()> + 'static>(
    policy: &str,
    limits: Limits,
    seed: u64,
    main: impl FnOnce(Rc<World>) -> F,
) {
    let env = Arc::new(TestEnv::default());
    let fake = Fake::new(&env, ms(10), ms(10));
    let engine = Durability::new(Arc::clone(&env) as Arc<dyn Env>, limits);
    let settings = ShareDurability::with_policy(policy.parse().unwrap());
    let gate = engine.share("share", Arc::clone(&fake), settings);
    let world = Rc::new(World {
        env: Arc::clone(&env),
        fake,
        engine,
        gate,
    });
    run(seed, &env, main(world), || {});
}

pub(super) fn honor<F: Future<Output = ()> + 'static>(main: impl Fn(Rc<World>) -> F) {
    world("honor", Limits::default(), main);
}

pub(super) const PLAIN: RequestFlags = RequestFlags {
    write_through: false,
    unbuffered: false,
    full_sync: false,
    open_write_through: false,
    open_unbuffered: false,
};
pub(super) const THROUGH: RequestFlags = RequestFlags {
    write_through: true,
    ..PLAIN
};

impl World {
    pub(super) async fn write(&self, node: &FakeNode, page: u64, n: u64) -> VfsResult<()> {
        self.write_as(node, page, n, PLAIN).await
    }
    pub(super) async fn write_as(
        &self,
        node: &FakeNode,
        page: u64,
        n: u64,
        flags: RequestFlags,
    ) -> VfsResult<()> {
        let data = Bytes::from(vec![1; n as usize * 4096]);
        self.gate
            .write(node, page * 4096, data, flags)
            .await
            .map(drop)
    }
    pub(super) async fn flush(&self, node: &FakeNode) -> VfsResult<()> {
        let target = if node.directory {
            FlushTarget::Directory
        } else {
            FlushTarget::File
        };
        self.gate.flush(node, target, PLAIN).await.map(drop)
    }
    pub(super) async fn create(&self, node: &FakeNode, parent: &FakeNode) -> VfsResult<()> {
        self.fake.name(parent.ino);
        self.gate.created(node, parent, PLAIN).await.map(drop)
    }
    pub(super) async fn rename(
        &self,
        node: &FakeNode,
        old: &FakeNode,
        new: &FakeNode,
    ) -> VfsResult<()> {
        self.fake.name(old.ino);
        self.fake.name(new.ino);
        self.gate.renamed(node, old, new, PLAIN).await.map(drop)
    }
}

#[test]
fn a_flush_joins_only_a_sync_that_starts_after_it() {
    honor(|w| async move {
        let f = file(5);
        w.write(&f, 0, 1).await.unwrap();
        w.fake.script(5, &[Ok(()), Err(VfsError::Io)]);
        let results = Rc::new(RefCell::new(Vec::new()));
        let late = |at: u64| {
            let (w, f, results) = (Rc::clone(&w), f.clone(), Rc::clone(&results));
            Box::pin(async move {
                w.env.sleep(ms(at)).await;
                let result = w.flush(&f).await;
                results.borrow_mut().push((at, result, w.env.monotonic()));
            }) as vfs::env::LocalTask
        };
        let begun = w.env.monotonic();
        join(&w.env, vec![late(0), late(3), late(4), late(9)]).await;
        let mut results = results.take();
        results.sort_by_key(|r| r.0);
        // The three that came during the first sync share the second, and its error.
        assert_eq!(results[0], (0, Ok(()), begun + ms(10)));
        for (i, at) in [(1, 3), (2, 4), (3, 9)] {
            assert_eq!(results[i], (at, Err(VfsError::Io), begun + ms(20)));
        }
        assert_eq!(w.fake.take_log(), ["write 5", "all 5", "all 5!"]);
        let counters = w.gate.counters();
        assert_eq!(counters.join_factor.sum, 4);
        assert_eq!(
            counters.sync_joined, 3,
            "none of the late ones started a task"
        );
        assert_eq!((counters.flushes_honored, counters.flushes_failed), (1, 3));
    });
}

#[test]
fn a_sync_is_on_behalf_of_the_requester_whose_flush_began_it() {
    honor(|w| async move {
        let flush = |ino| {
            let w = Rc::clone(&w);
            Box::pin(async move {
                let f = file(ino);
                w.write(&f, 0, 1).await.unwrap();
                w.flush(&f).await.unwrap();
            }) as vfs::env::LocalTask
        };
        requester::on_behalf_of(Requester(7), || flush(5)).await;
        flush(6).await;
        let requesters = std::mem::take(&mut lock(&w.fake.state).requesters);
        assert_eq!(requesters, [Requester(7), Requester::SERVER]);
    });
}

/// The queue of one requester is full, and another one's FLUSH has joined the task that syncs on its behalf.
#[test]
fn a_full_queue_fails_no_flush_of_another_requester() {
    honor(|w| async move {
        w.write(&file(5), 0, 1).await.unwrap();
        w.fake.script(5, &[Ok(()), Err(VfsError::NotStarted)]);
        let results = Rc::new(RefCell::new(Vec::new()));
        let flush = |requester: u64, at: u64| {
            let (w, results) = (Rc::clone(&w), Rc::clone(&results));
            let flush = Box::pin(async move {
                w.env.sleep(ms(at)).await;
                let result = w.flush(&file(5)).await;
                results.borrow_mut().push((at, result));
            });
            Box::pin(requester::on_behalf_of(Requester(requester), || flush)) as vfs::env::LocalTask
        };
        join(&w.env, vec![flush(7, 0), flush(7, 3), flush(8, 4)]).await;
        let mut results = results.take();
        results.sort_by_key(|(at, _)| *at);
        let full = Err(VfsError::NotStarted);
        assert_eq!(results, [(0, Ok(())), (3, full), (4, Ok(()))]);
        let requesters = std::mem::take(&mut lock(&w.fake.state).requesters);
        assert_eq!(requesters, [7, 7, 8].map(Requester));
    });
}

#[test]
fn a_flush_waits_for_the_writes_that_came_before_and_no_others() {
    honor(|w| async move {
        let f = file(5);
        let log = Rc::new(RefCell::new(Vec::new()));
        let task = |at: u64, write: bool| {
            let (w, f, log) = (Rc::clone(&w), f.clone(), Rc::clone(&log));
            Box::pin(async move {
                w.env.sleep(ms(at)).await;
                if write {
                    w.write(&f, at, 1).await.unwrap();
                } else {
                    w.flush(&f).await.unwrap();
                }
                log.borrow_mut().push((w.env.monotonic(), write));
            }) as vfs::env::LocalTask
        };
        // Writes at 0 and 4 ms take 10 ms; the flush at 2 ms waits for the first only.
        join(&w.env, vec![task(0, true), task(2, false), task(4, true)]).await;
        let mut log = log.take();
        log.sort();
        assert_eq!(log, [(ms(10), true), (ms(14), true), (ms(20), false)]);
        // The second write is still dirty.
        assert_eq!(w.gate.exposure().bytes, 4096);
        assert_eq!(w.gate.exposure().inodes, 1);
    });
}

/// A name that was made before a sync of its directory began is stable when that ends; a later one is not.
#[test]
fn a_name_joins_a_sync_of_its_directory_that_began_after_it() {
    honor(|w| async move {
        let made = |ino: u64, made: u64, flushed: u64| {
            let w = Rc::clone(&w);
            Box::pin(async move {
                w.env.sleep(ms(made)).await;
                w.create(&file(ino), &dir(50)).await.unwrap();
                w.env.sleep(ms(flushed - made)).await;
                w.flush(&file(ino)).await.unwrap();
                w.fake.note(format!("answered {ino}"));
            }) as vfs::env::LocalTask
        };
        // Each sync takes 10 ms. The first one of the directory runs from 10 to 20 ms.
        join(&w.env, vec![made(5, 0, 0), made(6, 0, 3), made(7, 11, 11)]).await;
        let mut log = w.fake.take_log();
        log.retain(|what| !what.starts_with("write"));
        assert_eq!(log[..3], ["all 5", "all 6", "all 50"], "{log:?}");
        log[3..5].sort();
        assert_eq!(log[3..5], ["answered 5", "answered 6"], "{log:?}");
        assert_eq!(log[5..], ["all 7", "all 50", "answered 7"], "{log:?}");
    });
}

/// Its directory cannot be found, so all of the file system is synced.
#[test]
fn a_file_with_a_path_that_is_too_long_is_stable_with_its_name() {
    honor(|w| async move {
        let f = file(5);
        lock(&w.fake.state).parents.insert(5, 50);
        w.write(&f, 0, 1).await.unwrap();
        w.flush(&f).await.unwrap();
        let log = w.fake.take_log();
        assert_eq!(log, ["write 5", "file system of 5", "all 5"]);
        w.fake.script(1, &[Err(VfsError::Io)]);
        for _ in 0..2 {
            assert_eq!(w.flush(&f).await, Err(VfsError::Io));
        }
    });
}

/// The one that is joined may fail.
#[test]
fn a_name_that_joined_a_failed_sync_of_its_directory_is_lost() {
    honor(|w| async move {
        w.create(&file(5), &dir(50)).await.unwrap();
        w.create(&file(6), &dir(50)).await.unwrap();
        w.fake.script(50, &[Err(VfsError::Io)]);
        let flushed = |ino: u64, at: u64| {
            let w = Rc::clone(&w);
            Box::pin(async move {
                w.env.sleep(ms(at)).await;
                assert_eq!(w.flush(&file(ino)).await, Err(VfsError::Io));
            }) as vfs::env::LocalTask
        };
        join(&w.env, vec![flushed(5, 0), flushed(6, 3)]).await;
        assert_eq!(w.flush(&file(6)).await, Err(VfsError::Io));
    });
}

#[test]
fn a_flush_waits_for_the_writes_that_had_to_wait_before_it() {
    honor(|w| async move {
        let f = file(5);
        let begun = w.env.monotonic();
        let ended = Rc::new(RefCell::new(Vec::new()));
        let flush = |at: u64, earlier: Earlier| {
            let (w, f, ended) = (Rc::clone(&w), f.clone(), Rc::clone(&ended));
            Box::pin(async move {
                w.env.sleep(ms(at)).await;
                let (target, gate) = (FlushTarget::File, &w.gate);
                drop(gate.flush_after(&f, target, PLAIN, earlier).await.unwrap());
                let (log, now) = (w.fake.take_log(), w.env.monotonic() - begun);
                ended.borrow_mut().push((now, earlier, log));
            }) as vfs::env::LocalTask
        };
        let write = {
            let (w, f) = (Rc::clone(&w), f.clone());
            Box::pin(async move {
                let mut queued = w.gate.queued(&f, 7);
                // Others are to arrive and give up.
                drop(w.gate.queued(&f, 8));
                w.env.sleep(ms(100)).await;
                let data = Bytes::from(vec![1; 4096]);
                let receipt = queued.write(0, data, PLAIN).await;
                drop(receipt.unwrap());
            }) as vfs::env::LocalTask
        };
        // A FLUSH for all queued writes, or for those of this open, waits; one for those of another open does not.
        let all = vec![
            write,
            flush(1, Earlier::Of(8)),
            flush(30, Earlier::All),
            flush(40, Earlier::Of(7)),
        ];
        join(&w.env, all).await;
        let ended = ended.take();
        assert_eq!(ended[0], (ms(11), Earlier::Of(8), vec!["all 5".to_owned()]));
        let log = ["write 5", "all 5"].map(str::to_owned).to_vec();
        assert_eq!((ended[1].0, &ended[1].2), (ms(120), &log));
        assert!(ended[2].0 >= ms(120) && ended.len() == 3);
        w.engine
            .find(|key, _| -> Option<()> { panic!("{key:?} is remembered") });
    });
}

#[test]
fn a_write_held_back_by_the_bound_is_one_that_came_before() {
    world("bounded:10s,64KiB", Limits::default(), |w| async move {
        let f = file(5);
        w.write(&f, 0, 16).await.unwrap();
        let held_back = {
            let (w, f) = (Rc::clone(&w), f.clone());
            Box::pin(async move { w.write(&f, 16, 1).await.unwrap() }) as vfs::env::LocalTask
        };
        let flush = {
            let (w, f) = (Rc::clone(&w), f.clone());
            Box::pin(async move {
                w.env.sleep(ms(1)).await;
                let full = RequestFlags {
                    full_sync: true,
                    ..PLAIN
                };
                drop(w.gate.flush(&f, FlushTarget::File, full).await.unwrap());
                let page = lock(&w.fake.state).pages[&(5, 16)];
                assert!(page.live > 0 && page.durable == page.live);
            }) as vfs::env::LocalTask
        };
        join(&w.env, vec![held_back, flush]).await;
    });
}

#[test]
fn whatever_changed_takes_fsync() {
    honor(|w| async move {
        let f = file(5);
        w.write(&f, 0, 1).await.unwrap();
        w.flush(&f).await.unwrap();
        w.gate.resized(&f, 0, PLAIN).await.unwrap();
        w.flush(&f).await.unwrap();
        assert_eq!(w.fake.take_log(), ["write 5", "all 5", "all 5"]);
        for what in [Meta::Security, Meta::Times, Meta::Attributes, Meta::Eas] {
            w.write(&f, 0, 1).await.unwrap();
            w.gate.meta_changed(&f, what, PLAIN).await.unwrap();
            w.flush(&f).await.unwrap();
            assert_eq!(w.fake.take_log(), ["write 5", "all 5"]);
        }
        // Nothing is known to be dirty, but anything may be.
        w.flush(&f).await.unwrap();
        assert_eq!(w.fake.take_log(), ["all 5"]);
        // A stream takes a full sync of itself and of its inode.
        let s = stream(5, "s");
        w.write(&f, 0, 1).await.unwrap();
        w.write(&s, 0, 1).await.unwrap();
        w.flush(&s).await.unwrap();
        assert_eq!(
            w.fake.take_log(),
            ["write 5", "write 5", "all 5:s", "all 5"]
        );
        w.write_as(&s, 0, 1, THROUGH).await.unwrap();
        assert_eq!(w.fake.take_log(), ["write 5", "all 5:s"]);
        assert_eq!(w.gate.exposure(), Exposure::default());
    });
}

#[test]
fn the_new_parent_is_synced_before_the_old_one() {
    honor(|w| async move {
        let (f, a, b, c) = (file(5), dir(10), dir(11), dir(12));
        w.rename(&f, &a, &b).await.unwrap();
        w.flush(&f).await.unwrap();
        assert_eq!(w.fake.take_log(), ["all 5", "all 11", "all 10"]);
        w.rename(&f, &a, &b).await.unwrap();
        w.rename(&f, &b, &c).await.unwrap();
        w.flush(&f).await.unwrap();
        assert_eq!(w.fake.take_log(), ["all 5", "all 12", "all 11", "all 10"]);
        // After a move back, the directory that holds the name now comes first.
        w.rename(&f, &a, &b).await.unwrap();
        w.rename(&f, &b, &a).await.unwrap();
        w.flush(&f).await.unwrap();
        let log = w.fake.take_log();
        assert_eq!(log[0], "all 5");
        assert!(
            log.contains(&"all 10".into()) && log.contains(&"all 11".into()),
            "{log:?}"
        );
    });
}

#[test]
fn the_whole_new_path_is_synced() {
    honor(|w| async move {
        let (root, a, b, f) = (dir(1), dir(10), dir(11), file(5));
        w.create(&a, &root).await.unwrap();
        w.create(&b, &a).await.unwrap();
        w.create(&f, &b).await.unwrap();
        w.write(&f, 0, 1).await.unwrap();
        w.flush(&f).await.unwrap();
        assert_eq!(
            w.fake.take_log(),
            ["write 5", "all 5", "all 11", "all 10", "all 1"]
        );
        assert_eq!(
            w.gate.exposure(),
            Exposure::default(),
            "the directories are clean too"
        );
        w.write(&f, 0, 1).await.unwrap();
        w.flush(&f).await.unwrap();
        assert_eq!(w.fake.take_log(), ["write 5", "all 5"]);
        // Its own name, with the directory.
        let d = dir(12);
        w.create(&d, &a).await.unwrap();
        w.flush(&d).await.unwrap();
        assert_eq!(w.fake.take_log()[..2], ["all 12", "all 10"]);
    });
}

#[test]
fn renames_in_a_circle_do_not_lock_up() {
    honor(|w| async move {
        let (root, a, b) = (dir(1), dir(10), dir(11));
        w.rename(&a, &root, &b).await.unwrap();
        w.rename(&a, &b, &root).await.unwrap();
        w.rename(&b, &root, &a).await.unwrap();
        let tasks = [&a, &b, &root].map(|d| {
            let (w, d) = (Rc::clone(&w), d.clone());
            Box::pin(async move { w.flush(&d).await.unwrap() }) as vfs::env::LocalTask
        });
        join(&w.env, tasks.into()).await;
        w.engine.sync_all().await;
        assert_eq!(w.gate.exposure(), Exposure::default());
    });
}

#[test]
fn write_through_is_one_durable_write_then_names() {
    honor(|w| async move {
        let (f, a) = (file(5), dir(10));
        w.write_as(&f, 0, 1, THROUGH).await.unwrap();
        assert_eq!(w.fake.take_log(), ["dsync 5"]);
        // The times are dirty.
        let exposure = w.gate.exposure();
        assert_eq!((exposure.bytes, exposure.inodes), (0, 1));
        w.create(&f, &a).await.unwrap();
        w.write_as(
            &f,
            0,
            1,
            RequestFlags {
                unbuffered: true,
                ..PLAIN
            },
        )
        .await
        .unwrap();
        assert_eq!(w.fake.take_log(), ["dsync 5", "all 5", "all 10"]);
    });
}

#[test]
fn strict_replies_leave_nothing_dirty() {
    world("strict-sync", Limits::default(), |w| async move {
        let (f, a, b) = (file(5), dir(10), dir(11));
        w.create(&f, &a).await.unwrap();
        assert_eq!(w.fake.take_log(), ["all 5", "all 10"]);
        w.write(&f, 0, 1).await.unwrap();
        assert_eq!(w.fake.take_log(), ["write 5", "all 5"]);
        w.rename(&f, &a, &b).await.unwrap();
        assert_eq!(w.fake.take_log(), ["all 5", "all 11", "all 10"]);
        w.gate
            .meta_changed(&f, Meta::Security, PLAIN)
            .await
            .unwrap();
        assert_eq!(w.fake.take_log(), ["all 5"]);
        w.gate.resized(&f, 0, PLAIN).await.unwrap();
        w.gate.content_changed(&f, 100_000).await.unwrap();
        assert_eq!(w.fake.take_log(), ["all 5", "all 5"]);
        w.gate.removed(&f, &b, PLAIN).await.unwrap();
        assert_eq!(w.fake.take_log(), ["all 11"]);
        w.gate.stream_created(&stream(5, "s"), PLAIN).await.unwrap();
        assert_eq!(w.fake.take_log(), ["all 5:s"]);
        // The move left nothing dirty in `a` either, which is clean since its sync.
        assert_eq!(w.gate.exposure().bytes, 0);
        w.gate.closed(&f, PLAIN).await.unwrap();
        assert_eq!(w.gate.counters().dirty_at_close, 0);
    });
}

#[test]
fn host_as_stable_storage_answers_at_once_and_counts() {
    world(
        "treat-host-as-stable-storage",
        Limits::default(),
        |w| async move {
            let f = file(5);
            w.write_as(&f, 0, 2, THROUGH).await.unwrap();
            let before = w.env.monotonic();
            w.flush(&f).await.unwrap();
            assert_eq!(w.env.monotonic(), before);
            assert_eq!(w.fake.take_log(), ["write 5"]);
            assert_eq!(w.gate.exposure().bytes, 8192);
            let full = RequestFlags {
                full_sync: true,
                ..PLAIN
            };
            w.gate.flush(&f, FlushTarget::File, full).await.unwrap();
            assert_eq!(w.fake.take_log(), ["all 5"]);
            assert_eq!(w.gate.exposure(), Exposure::default());
            let counters = w.gate.counters();
            assert_eq!((counters.flushes_ignored, counters.writes_deferred), (1, 1));
        },
    );
}

#[test]
fn the_root_of_the_share_stands_for_all_of_it() {
    honor(|w| async move {
        let elsewhere = Fake::new(&w.env, ms(10), ms(10));
        lock(&elsewhere.times).root = 2;
        let other = (w.engine).share("other", Arc::clone(&elsewhere), ShareDurability::default());
        for ino in 100..180 {
            w.write(&file(ino), 0, 1).await.unwrap();
        }
        drop(
            other
                .write(&file(ELSEWHERE), 0, Bytes::from_static(b"x"), PLAIN)
                .await
                .unwrap(),
        );
        w.fake.take_log();
        let before = w.env.monotonic();
        w.gate
            .flush(&dir(1), FlushTarget::ShareRoot, PLAIN)
            .await
            .unwrap();
        // 80 inodes, 64 at a time, then the root.
        assert_eq!(w.env.monotonic() - before, ms(30));
        let log = w.fake.take_log();
        assert_eq!(log.len(), 81);
        assert!(log.contains(&"all 1".to_owned()));
        assert_eq!(elsewhere.take_log(), [format!("write {ELSEWHERE}")]);
        assert_eq!((w.gate.exposure().bytes, other.exposure().bytes), (0, 1));
        w.write(&file(5), 0, 1).await.unwrap();
        w.fake.script(5, &[Err(VfsError::NoSpace)]);
        let root = w.gate.flush(&dir(1), FlushTarget::ShareRoot, PLAIN).await;
        assert_eq!(root.err(), Some(VfsError::NoSpace));
        let again = w.gate.flush(&dir(1), FlushTarget::ShareRoot, PLAIN).await;
        assert_eq!(again.err(), Some(VfsError::NoSpace), "still not repaired");
    });
}

#[test]
fn a_write_through_one_share_is_flushed_through_another() {
    honor(|w| async move {
        let settings = ShareDurability::with_policy(Policy::TreatHostAsStableStorage);
        let other = w.engine.share("scratch", Arc::clone(&w.fake), settings);
        let f = file(5);
        drop(other.meta_changed(&f, Meta::Times, PLAIN).await.unwrap());
        w.write(&f, 0, 1).await.unwrap();
        w.flush(&f).await.unwrap();
        assert_eq!(w.fake.take_log(), ["write 5", "all 5"]);
        assert_eq!(other.exposure(), Exposure::default());
    });
}

#[test]
fn what_lost_its_last_name_is_clean_and_is_let_go() {
    honor(|w| async move {
        let (f, a) = (file(5), dir(10));
        w.create(&f, &a).await.unwrap();
        w.write(&f, 0, 1).await.unwrap();
        assert!(f.held() > 1);
        lock(&w.fake.state).links.insert(5, 0);
        w.gate.removed(&f, &a, PLAIN).await.unwrap();
        assert_eq!(f.held(), 1, "the disk space is free");
        let owed = w.gate.exposure();
        assert_eq!(
            (owed.bytes, owed.inodes),
            (0, 2),
            "the directory's entry is still owed: for it, and for what it named"
        );
        w.engine.sync_all().await;
        assert_eq!(w.fake.take_log(), ["write 5", "all 10"]);
        assert!(w.gate.poisoned().is_empty() && !w.engine.clear_latch(key(5)));
    });
}

#[test]
fn a_name_is_numbered_where_a_barrier_can_see_it() {
    honor(|w| async move {
        let (f, a, b) = (file(5), dir(10), dir(11));
        for moved in [false, true] {
            // The marker stands at the lock; a barrier draws its number before the mark is made.
            let at = if moved { a.key() } else { f.key() };
            let (gate, engine) = (&w.gate, &w.engine);
            let drawn = std::thread::scope(|threads| {
                let (f, a, b) = (&f, &a, &b);
                engine.with(at, |_| {
                    threads.spawn(move || {
                        let mut marks = std::pin::pin!(async {
                            if moved {
                                gate.renamed(f, a, b, PLAIN).await
                            } else {
                                gate.created(f, a, PLAIN).await
                            }
                        });
                        let waker = std::task::Waker::noop();
                        let mut context = std::task::Context::from_waker(waker);
                        let _ = marks.as_mut().poll(&mut context);
                    });
                    std::thread::sleep(ms(20));
                    engine.tick()
                })
            });
            engine.with(f.key(), |inode| {
                assert!(inode.names().iter().any(|name| name.seq > drawn));
            });
        }
    });
}

#[test]
fn names_made_through_a_write_through_open_are_stable_before_the_reply() {
    const OPEN: RequestFlags = RequestFlags {
        open_write_through: true,
        ..PLAIN
    };
    honor(|w| async move {
        let (f, a, b) = (file(5), dir(10), dir(11));
        let gate = &w.gate;
        gate.created(&f, &a, OPEN).await.unwrap();
        assert_eq!(w.fake.take_log(), ["all 5", "all 10"]);
        gate.renamed(&f, &a, &b, OPEN).await.unwrap();
        assert_eq!(w.fake.take_log(), ["all 5", "all 11", "all 10"]);
        gate.linked(&f, &a, OPEN).await.unwrap();
        assert_eq!(w.fake.take_log(), ["all 5", "all 10"]);
        gate.stream_created(&stream(5, "s"), OPEN).await.unwrap();
        assert_eq!(w.fake.take_log(), ["all 5:s"]);
        gate.stream_removed(&stream(5, "s"), OPEN).await.unwrap();
        assert_eq!(w.fake.take_log(), ["all 5:s"]);
        gate.removed(&f, &a, OPEN).await.unwrap();
        assert_eq!(w.fake.take_log(), ["all 10"]);
        assert_eq!(w.gate.exposure(), Exposure::default());
    });
}

#[test]
fn the_root_of_a_share_covers_what_another_share_changed_below_it() {
    honor(|w| async move {
        let settings = ShareDurability::default();
        let other = w.engine.share("same", Arc::clone(&w.fake), settings);
        let f = file(5);
        drop(other.meta_changed(&f, Meta::Times, PLAIN).await.unwrap());
        let top = dir(1);
        let root = || w.gate.flush(&top, FlushTarget::ShareRoot, PLAIN);
        root().await.unwrap();
        assert_eq!(w.fake.take_log(), ["all 5", "all 1"]);
        assert_eq!(other.exposure(), Exposure::default());
        // The root also reports what failed there.
        drop(other.meta_changed(&f, Meta::Times, PLAIN).await.unwrap());
        w.fake.script(5, &[Err(VfsError::Io)]);
        assert!(other.flush(&f, FlushTarget::File, PLAIN).await.is_err());
        assert_eq!(root().await.err(), Some(VfsError::Io));
    });
}

/// Another share is over a file system that is mounted below this one, or over a folder above both.
#[test]
fn the_root_of_a_share_covers_what_other_shares_changed_on_file_systems_below_it() {
    honor(|w| async move {
        let (top, mount, f) = (dir(1), ELSEWHERE + 1, file(ELSEWHERE + 5));
        let mounted = Fake::new(&w.env, ms(10), ms(10));
        lock(&mounted.times).root = mount;
        let settings = ShareDurability::default;
        let below = w.engine.share("below", Arc::clone(&mounted), settings());
        let root = || w.gate.flush(&top, FlushTarget::ShareRoot, PLAIN);
        let change = |gate: &Arc<Gate<Fake>>| {
            let (gate, f) = (Arc::clone(gate), f.clone());
            async move { drop(gate.meta_changed(&f, Meta::Times, PLAIN).await.unwrap()) }
        };
        change(&below).await;
        root().await.unwrap();
        assert_eq!(mounted.take_log(), [""; 0], "it is mounted elsewhere");
        lock(&w.fake.state).paths.insert(mount, "mount".into());
        root().await.unwrap();
        assert_eq!(mounted.take_log(), ["all 1000005"]);
        // Through the share above.
        let whole = Fake::new(&w.env, ms(10), ms(10));
        lock(&whole.times).root = 2;
        let above = w.engine.share("above", Arc::clone(&whole), settings());
        lock(&w.fake.state).paths.insert(f.ino, "mount/f".into());
        change(&above).await;
        root().await.unwrap();
        assert_eq!(whole.take_log(), ["all 1000005"]);
        change(&above).await;
        whole.script(f.ino, &[Err(VfsError::Io)]);
        assert_eq!(root().await.err(), Some(VfsError::Io));
        assert!(w.engine.clear_latch(f.key()));
        // The root also reports what failed there before.
        change(&below).await;
        mounted.script(f.ino, &[Err(VfsError::Io)]);
        assert!(below.flush(&f, FlushTarget::File, PLAIN).await.is_err());
        assert_eq!(root().await.err(), Some(VfsError::Io));
    });
}

/// Only the node of the WRITE shows where the file is, because nothing of it is dirty yet.
#[test]
fn the_root_of_a_share_covers_a_first_write_under_way_on_a_file_system_below_it() {
    honor(|w| async move {
        let (top, f) = (dir(1), file(ELSEWHERE + 5));
        let whole = Fake::new(&w.env, ms(50), ms(50));
        lock(&whole.times).root = 2;
        let above = w
            .engine
            .share("above", Arc::clone(&whole), ShareDurability::default());
        lock(&w.fake.state).paths.insert(f.ino, "mount/f".into());
        w.env.spawn(Box::pin(async move {
            let written = above.write(&f, 0, Bytes::from_static(&[1; 4096]), PLAIN);
            drop(written.await.unwrap());
        }));
        w.env.sleep(ms(1)).await;
        let root = w.gate.flush(&top, FlushTarget::ShareRoot, PLAIN);
        drop(root.await.unwrap());
        assert_eq!(whole.take_log(), ["write 1000005", "all 1000005"]);
    });
}

/// Another share is over a folder above, on the same file system.
#[test]
fn the_root_of_a_share_reports_what_a_share_above_loses_below_it() {
    honor(|w| async move {
        let (top, f, elsewhere) = (dir(1), file(5), file(6));
        let whole = Fake::new(&w.env, ms(10), ms(10));
        lock(&whole.times).root = 2;
        let settings = ShareDurability::default();
        let above = w.engine.share("above", Arc::clone(&whole), settings);
        lock(&w.fake.state).paths.insert(f.ino, "f".into());
        let root = || w.gate.flush(&top, FlushTarget::ShareRoot, PLAIN);
        for (node, error) in [(&elsewhere, None), (&f, Some(VfsError::Io))] {
            drop(above.meta_changed(node, Meta::Times, PLAIN).await.unwrap());
            whole.script(node.ino, &[Err(VfsError::Io)]);
            assert_eq!(root().await.err(), error);
            assert_eq!(root().await.err(), error, "still not repaired");
            assert_eq!(above.clear_latches(), 1);
        }
    });
}

#[test]
fn the_root_of_a_share_reports_what_a_share_above_lost_below_it_before() {
    for policy in ["honor", "bounded:50ms,4MiB"] {
        world(policy, Limits::default(), |w| async move {
            let top = dir(1);
            let whole = Fake::new(&w.env, ms(10), ms(10));
            lock(&whole.times).root = 2;
            let above = w
                .engine
                .share("above", Arc::clone(&whole), ShareDurability::default());
            let paths = [(1, "a"), (5, "a/f"), (6, "ab/f"), (7, "f")];
            for (ino, path) in paths {
                let mut state = lock(&whole.state);
                state.paths.insert(ino, path.into());
                state.parents.insert(ino, 2);
            }
            // The path of the last one is not known.
            let io = Some(VfsError::Io);
            for (ino, error) in [(6, None), (7, None), (5, io), (8, io)] {
                let f = file(ino);
                drop(above.meta_changed(&f, Meta::Times, PLAIN).await.unwrap());
                whole.script(ino, &[Err(VfsError::Io)]);
                assert!(above.flush(&f, FlushTarget::File, PLAIN).await.is_err());
                let root = w.gate.flush(&top, FlushTarget::ShareRoot, PLAIN).await;
                assert_eq!(root.err(), error, "{ino}");
                assert!(above.clear_latches() > 0);
            }
        });
    }
}
