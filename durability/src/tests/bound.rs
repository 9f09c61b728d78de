//! The bound: what is acknowledged stays volatile no longer than promised, on disks slow and fast.

use std::{cell::Cell, rc::Rc, time::Duration};

use vfs::{Env, VfsError};

use super::{
    fake::{dir, file, stream},
    flush::{PLAIN, THROUGH, World, world},
    sim::{join, ms},
};
use crate::{share::lock, *};

/// Many clients make files in many directories and write to them, for a while. A task for each
/// acknowledged write checks whether it is on disk at the end of the bound. Returns the number that
/// were not, and the number of all.
async fn load(w: &Rc<World>, clients: u64, span: u64, bound: u64) -> (u64, u64) {
    let seen = Rc::new(Cell::new((0, 0)));
    let clients = (0..clients).map(|client| {
        let (w, seen) = (Rc::clone(w), Rc::clone(&seen));
        Box::pin(async move {
            let end = w.env.monotonic() + ms(span);
            let mut turn = 0;
            while w.env.monotonic() < end {
                turn += 1;
                let ino = 1000 + client * 1000 + turn % 7;
                let f = file(ino);
                let (a, b) = (dir(10 + client % 5), dir(20 + turn % 5));
                match turn % 3 {
                    0 => w.rename(&f, &a, &b).await.unwrap(),
                    1 => {
                        w.write(&f, turn, 1).await.unwrap();
                        let (v, seen) = (Rc::clone(&w), Rc::clone(&seen));
                        w.env.spawn(Box::pin(async move {
                            v.env.sleep(ms(bound)).await;
                            let page = lock(&v.fake.state).pages[&(ino, turn)];
                            let (late, all) = seen.get();
                            let is_late = page.durable < page.live;
                            seen.set((late + u64::from(is_late), all + 1));
                        }));
                    }
                    _ => w.flush(&f).await.unwrap(),
                }
                w.env.sleep(ms(turn % 5)).await;
            }
        }) as vfs::env::LocalTask
    });
    join(&w.env, clients.collect()).await;
    w.env.sleep(ms(bound + 1)).await;
    seen.get()
}

#[test]
fn what_is_acknowledged_is_on_disk_within_the_bound() {
    for sync in [1, 5, 20, 90] {
        world(
            "bounded:200ms,64MiB",
            Limits::default(),
            move |w| async move {
                lock(&w.fake.times).sync = ms(sync);
                let (late, all) = load(&w, 12, 800, 200).await;
                assert_eq!(late, 0, "syncs of {sync} ms: {late} of {all}");
                assert!(all > 10, "{all}");
            },
        );
    }
}

#[test]
fn a_chain_that_takes_longer_than_half_the_delay_starts_earlier() {
    world("bounded:100ms,64MiB", Limits::default(), |w| async move {
        // An inode and two directories: 45 ms; at half the delay it would end at 95.
        lock(&w.fake.times).sync = ms(15);
        let (f, a, b) = (file(5), dir(10), dir(11));
        for _ in 0..4 {
            w.rename(&f, &a, &b).await.unwrap();
            w.env.sleep(ms(200)).await;
        }
        w.fake.take_log();
        w.rename(&f, &a, &b).await.unwrap();
        w.env.sleep(ms(30)).await;
        assert!(!w.fake.take_log().is_empty(), "by 10 ms: twice the 45 fit");
        w.env.sleep(ms(35)).await;
        assert_eq!(w.gate.exposure(), Exposure::default());
    });
}

#[test]
fn a_flusher_that_is_woken_late_starts_earlier() {
    world("bounded:50ms,64MiB", Limits::default(), |w| async move {
        lock(&w.fake.times).sync = ms(0);
        lock(&w.fake.times).write = ms(0);
        w.env.wake_late(ms(30));
        let f = file(5);
        for page in 0..3 {
            w.write(&f, page, 1).await.unwrap();
            w.env.sleep(ms(200)).await;
        }
        w.write(&f, 3, 1).await.unwrap();
        // 50 ms.
        w.env.sleep(ms(20)).await;
        assert_eq!(w.gate.exposure(), Exposure::default());
    });
}

/// A world whose disk is known to take that long for a sync.
async fn slow(w: &World, sync: u64) {
    lock(&w.fake.times).sync = ms(sync);
    lock(&w.fake.times).write = ms(0);
    for _ in 0..16 {
        w.write(&file(900), 0, 1).await.unwrap();
        w.flush(&file(900)).await.unwrap();
        w.env.sleep(ms(10 * sync)).await;
    }
    w.fake.take_log();
}

fn syncs(w: &World) -> usize {
    let log = w.fake.take_log();
    log.iter()
        .filter(|what| what.starts_with("data ") || what.starts_with("all "))
        .count()
}

/// Each of the two removals finds that the file has no name any more. The file may come back by either name.
#[test]
fn names_removed_at_once_are_both_gone_before_the_bound_of_what_was_written_ends() {
    world("bounded:50ms,64MiB", Limits::default(), |w| async move {
        slow(&w, 30).await;
        let (f, a, b) = (file(5), dir(10), dir(11));
        w.write(&f, 0, 1).await.unwrap();
        w.env.sleep(ms(15)).await;
        lock(&w.fake.state).links.insert(5, 0);
        w.fake.name(10);
        w.fake.name(11);
        let one = w.gate.replaced(&f, &a, PLAIN);
        let other = w.gate.replaced(&f, &b, PLAIN);
        drop((one.await, other.await));
        w.env.sleep(ms(36)).await;
        assert!(w.fake.is_stable_in(10) && w.fake.is_stable_in(11));
    });
}

#[test]
fn on_a_disk_that_is_too_slow_a_flush_waits_and_costs_one_sync() {
    // Slower than the bound, and slower than half of it.
    for (policy, sync) in [("bounded:50ms,64MiB", 80), ("bounded:50ms,64MiB", 40)] {
        world(policy, Limits::default(), move |w| async move {
            slow(&w, sync).await;
            let held_back = w.gate.counters().backpressure;
            let honored = w.gate.counters().flushes_honored;
            let f = file(5);
            for _ in 0..5 {
                let begun = w.env.monotonic();
                for page in 0..4 {
                    w.write(&f, page, 1).await.unwrap();
                }
                assert_eq!(w.env.monotonic(), begun, "no sync of its own");
                w.flush(&f).await.unwrap();
                assert_eq!(w.env.monotonic(), begun + ms(sync), "as under honor");
                assert_eq!(w.gate.exposure(), Exposure::default());
            }
            assert_eq!(syncs(&w), 5);
            let counters = w.gate.counters();
            assert!(counters.backpressure >= held_back + 5);
            assert_eq!(counters.flushes_honored, honored + 5);
            assert!(w.gate.too_slow().is_some_and(|slow| slow.sync == ms(sync)));
            // When the disk is quick again, so are the answers, after as many syncs as are remembered.
            lock(&w.fake.times).sync = ms(1);
            for _ in 0..16 {
                w.write(&f, 0, 1).await.unwrap();
                w.flush(&f).await.unwrap();
            }
            w.env.sleep(ms(6000)).await;
            w.write(&f, 0, 1).await.unwrap();
            let begun = w.env.monotonic();
            w.flush(&f).await.unwrap();
            assert_eq!(w.env.monotonic(), begun);
            assert_eq!(w.gate.exposure().of(PolicyKind::Bounded).bytes, 4096);
            assert_eq!(w.gate.too_slow(), None);
            drop(w.gate.created(&file(6), &dir(10), PLAIN).await.unwrap());
        });
    }
}

#[test]
fn one_slow_sync_does_not_make_flushes_wait() {
    world("bounded:50ms,64MiB", Limits::default(), |w| async move {
        slow(&w, 5).await;
        let f = file(5);
        lock(&w.fake.times).sync = ms(200);
        w.write(&f, 0, 1).await.unwrap();
        w.env.sleep(ms(1000)).await;
        lock(&w.fake.times).sync = ms(5);
        w.write(&f, 0, 1).await.unwrap();
        let begun = w.env.monotonic();
        w.flush(&f).await.unwrap();
        assert_eq!(w.env.monotonic(), begun);
        assert_eq!(w.gate.too_slow(), None);
        // The slow sync is remembered all the same: background syncs begin earlier for a while.
        w.env.sleep(ms(6)).await;
        assert_eq!(w.gate.exposure(), Exposure::default());
    });
}

#[test]
fn changes_that_nobody_flushes_are_paced_and_share_their_syncs() {
    // How many WRITEs a lone client gets answered for each sync, and how old each of them is when
    // it is on disk: within the bound where a sync is no longer than that, else the bound and a
    // sync.
    for (delay, sync, oldest) in [(50, 40, 50), (10, 40, 50), (10, 20, 30), (200, 90, 200)] {
        let policy: &str = &format!("bounded:{delay}ms,64MiB");
        world(policy, Limits::default(), move |w| async move {
            slow(&w, sync).await;
            let seen = Rc::new(Cell::new((0, 0)));
            let end = w.env.monotonic() + ms(40 * sync);
            let mut turn = 0;
            while w.env.monotonic() < end {
                turn += 1;
                w.write(&file(5), turn, 1).await.unwrap();
                let (v, seen) = (Rc::clone(&w), Rc::clone(&seen));
                w.env.spawn(Box::pin(async move {
                    v.env.sleep(ms(oldest) + Duration::from_micros(1)).await;
                    let page = lock(&v.fake.state).pages[&(5, turn)];
                    let (late, all) = seen.get();
                    seen.set((late + u64::from(page.durable < page.live), all + 1));
                }));
                w.env.sleep(ms(1)).await;
            }
            w.env.sleep(ms(oldest + 1)).await;
            let (late, all) = seen.get();
            assert_eq!(late, 0, "{delay} ms, syncs of {sync} ms: {late} of {all}");
            let syncs = syncs(&w) as u64;
            assert!(syncs <= 41, "{syncs}: never more than one after the other");
            assert!(all >= 5 * syncs, "{all} answers, {syncs} syncs");
        });
    }
}

#[test]
fn clients_that_flush_on_a_slow_disk_wait_no_longer_than_under_honor() {
    for one_file in [true, false] {
        for (delay, sync) in [(10, 20), (10, 40), (50, 40)] {
            let mut seen = Vec::new();
            for policy in ["honor", &format!("bounded:{delay}ms,64MiB")] {
                let done = Rc::new(Cell::new((0_u64, 0_u64)));
                let told = Rc::clone(&done);
                world(policy, Limits::default(), move |w| {
                    let done = Rc::clone(&done);
                    async move {
                        slow(&w, sync).await;
                        let end = w.env.monotonic() + ms(60 * sync);
                        let client = |n: u64| {
                            let (w, done) = (Rc::clone(&w), Rc::clone(&done));
                            Box::pin(async move {
                                let f = file(if one_file { 5 } else { 5 + n });
                                w.env.sleep(ms(7 * n)).await;
                                while w.env.monotonic() < end {
                                    for page in 0..3 {
                                        w.write(&f, 10 * n + page, 1).await.unwrap();
                                    }
                                    w.env.sleep(ms(1)).await;
                                    w.flush(&f).await.unwrap();
                                    let (flushes, syncs) = done.get();
                                    done.set((flushes + 1, syncs));
                                }
                            }) as vfs::env::LocalTask
                        };
                        join(&w.env, (0..8).map(client).collect()).await;
                        let (flushes, old) = done.get();
                        done.set((flushes, old + syncs(&w) as u64));
                    }
                });
                seen.push(told.get());
            }
            let [(honor, honored), (bounded, synced)] = seen[..] else {
                panic!()
            };
            let what = format!("{delay} ms, syncs of {sync} ms, one file {one_file}: {seen:?}");
            assert!(bounded * 100 >= honor * 98, "{what}");
            assert!(synced * honor * 100 <= honored * bounded * 102, "{what}");
        }
    }
}

#[test]
fn syncs_are_timed_as_often_as_they_are_counted() {
    world("bounded:50ms,64MiB", Limits::default(), |w| async move {
        slow(&w, 80).await;
        let f = file(5);
        for _ in 0..3 {
            w.write(&f, 0, 1).await.unwrap();
            w.flush(&f).await.unwrap();
            // Nothing is left to be synced.
            w.flush(&f).await.unwrap();
        }
        w.write(&stream(5, "s"), 0, 1).await.unwrap();
        w.flush(&f).await.unwrap();
        let counters = w.gate.counters();
        let syncs = counters.syncs_data + counters.syncs_all;
        assert_eq!(counters.sync_micros.buckets.iter().sum::<u64>(), syncs);
        assert_eq!(counters.sync_micros.sum, syncs * 80_000);
    });
}

#[test]
fn no_more_is_acknowledged_than_can_be_paid_in_time() {
    world("bounded:100ms,64MiB", Limits::default(), |w| async move {
        let limits = w.engine.limits.syncs_in_flight_max as u64;
        for warm in 0..3 {
            w.write(&file(warm), 0, 1).await.unwrap();
            w.env.sleep(ms(200)).await;
        }
        // Five rounds of 10 ms fit half the bound: 400 inodes at once do not.
        let client = |n: u64| {
            let w = Rc::clone(&w);
            Box::pin(async move {
                w.write(&file(100 + n), 0, 1).await.unwrap();
                let owed = w.gate.exposure().inodes;
                assert!(owed <= 5 * limits, "{owed}");
            }) as vfs::env::LocalTask
        };
        join(&w.env, (0..400).map(client).collect()).await;
        w.env.sleep(ms(200)).await;
        assert_eq!(w.gate.counters().bound_exceeded, 0);
        assert_eq!(w.gate.exposure(), Exposure::default());
    });
}

/// A laxer policy is in force at once, but what was acknowledged before keeps the bound of that time.
#[test]
fn what_was_acknowledged_before_the_bound_was_loosened_is_on_disk_within_it() {
    for laxer in ["treat-host-as-stable-storage", "bounded:20s,64MiB"] {
        world(
            "bounded:200ms,64MiB",
            Limits::default(),
            move |w| async move {
                let f = file(5);
                w.write(&f, 0, 1).await.unwrap();
                w.flush(&f).await.unwrap();
                w.gate.set_policy(laxer.parse().unwrap(), "test").await;
                w.write(&f, 1, 1).await.unwrap();
                w.env.sleep(ms(200)).await;
                let durable = lock(&w.fake.state).pages[&(5, 0)].durable;
                assert!(durable > 0, "{laxer}");
            },
        );
    }
}

/// Both are held back behind the sync that runs from 260 to 360 ms, which fails.
#[test]
fn what_is_held_back_while_a_sync_fails_is_not_answered_with_success() {
    world("bounded:500ms,64MiB", Limits::default(), |w| async move {
        lock(&w.fake.times).sync = ms(100);
        w.fake.script(5, &[Err(VfsError::Io)]);
        let failed = Rc::new(Cell::new(0));
        let task = |at: u64| {
            let (w, failed) = (Rc::clone(&w), Rc::clone(&failed));
            Box::pin(async move {
                let f = file(5);
                w.env.sleep(ms(at)).await;
                let answer = match at {
                    0 => w.write(&f, 0, 1).await,
                    300 => w.write_as(&f, 1, 1, THROUGH).await,
                    _ => w.flush(&f).await,
                };
                let io = answer == Err(VfsError::Io);
                failed.set(failed.get() + u32::from(io));
            }) as vfs::env::LocalTask
        };
        join(&w.env, vec![task(0), task(300), task(320)]).await;
        assert_eq!(w.fake.take_log(), ["write 5", "write 5", "all 5!"]);
        assert_eq!(failed.get(), 2);
    });
}

/// A WRITE of almost all bytes of the bound does not have to wait until no other client writes.
#[test]
fn a_large_write_ends_beside_a_stream_of_small_ones() {
    world("bounded:50ms,1MiB", Limits::default(), |w| async move {
        lock(&w.fake.times).write = ms(3);
        let done = Rc::new(Cell::new(false));
        let mut clients: Vec<vfs::env::LocalTask> = Vec::new();
        for client in 0..3 {
            let (w, done) = (Rc::clone(&w), Rc::clone(&done));
            clients.push(Box::pin(async move {
                let mut page = 0;
                while !done.get() {
                    page += 1;
                    w.write(&file(10 + client), page, 1).await.unwrap();
                }
            }));
        }
        let large = Rc::clone(&w);
        clients.push(Box::pin(async move {
            large.env.sleep(ms(20)).await;
            let begun = large.env.monotonic();
            large.write(&file(5), 0, 256).await.unwrap();
            let took = large.env.monotonic() - begun;
            done.set(true);
            assert!(took < ms(200), "{took:?}");
        }));
        join(&w.env, clients).await;
    });
}
