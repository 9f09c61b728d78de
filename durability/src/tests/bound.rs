//! The bound: what is acknowledged stays volatile no longer than promised, on disks slow and fast.

use std::{cell::Cell, rc::Rc};

use vfs::Env;

use super::{
    fake::{dir, file},
    flush::{PLAIN, World, world},
    sim::{join, ms},
};
use crate::{share::lock, *};

/// Many clients make files in many directories and write to them, for a while. A task for each
/// acknowledged write looks whether it is on disk when the bound is over. Answers how many were
/// not, of how many.
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
fn on_a_disk_that_is_too_slow_nothing_is_acknowledged_before_it_is_there() {
    world("bounded:50ms,64MiB", Limits::default(), |w| async move {
        let f = file(5);
        // The first one shows how slow it is, which nobody could know.
        lock(&w.fake.times).sync = ms(80);
        w.write(&f, 0, 1).await.unwrap();
        w.flush(&f).await.unwrap();
        w.env.sleep(ms(500)).await;
        assert_eq!(w.gate.counters().bound_exceeded, 1);
        for _ in 0..3 {
            w.write(&f, 0, 1).await.unwrap();
            assert_eq!(
                w.gate.exposure(),
                Exposure::default(),
                "stable when answered"
            );
            w.flush(&f).await.unwrap();
        }
        assert!(w.gate.counters().backpressure >= 3);
        // And when it is quick again, answers are too.
        lock(&w.fake.times).sync = ms(1);
        for _ in 0..60 {
            w.write(&f, 0, 1).await.unwrap();
            w.env.sleep(ms(200)).await;
        }
        w.write(&f, 0, 1).await.unwrap();
        let begun = w.env.monotonic();
        w.flush(&f).await.unwrap();
        assert_eq!(w.env.monotonic(), begun);
        assert_eq!(w.gate.exposure().of(PolicyKind::Bounded).bytes, 4096);
        drop(w.gate.created(&file(6), &dir(10), PLAIN).await.unwrap());
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
        // Five rounds of 10 ms fit half the bound: 200 inodes at once do not.
        let client = |n: u64| {
            let w = Rc::clone(&w);
            Box::pin(async move {
                w.write(&file(100 + n), 0, 1).await.unwrap();
                let owed = w.gate.exposure().inodes;
                assert!(owed <= 5 * limits, "{owed}");
            }) as vfs::env::LocalTask
        };
        join(&w.env, (0..200).map(client).collect()).await;
        w.env.sleep(ms(200)).await;
        assert_eq!(w.gate.counters().bound_exceeded, 0);
        assert_eq!(w.gate.exposure(), Exposure::default());
    });
}
