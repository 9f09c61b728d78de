//! The costs of a bound where clients flush: it takes no more flushes of the device, and no more
//! time, than `honor` on the same load.

use std::{cell::Cell, rc::Rc};

use vfs::Env;

use super::{
    fake::file,
    flush::{World, one_world},
    sim::{join, ms},
};
use crate::{share::lock, *};

const DELAY: u64 = 200;

/// One step of a client: `w` a WRITE, `.` a pause, `f` a FLUSH.
async fn step(w: &World, what: char, ino: u64, page: u64) {
    match what {
        'w' => w.write(&file(ino), page, 1).await.unwrap(),
        '.' => w.env.sleep(ms(3)).await,
        _ => w.flush(&file(ino)).await.unwrap(),
    }
}

/// Lets clients repeat the `steps`, all on one file or each on its own. Returns the number of FLUSHes
/// that are answered, and of the device's flushes that this takes.
fn run(
    policy: &str,
    steps: &'static str,
    (clients, one_file): (u64, bool),
    sync: u64,
) -> (u64, u64) {
    let counted = Rc::new(Cell::new((0, 0)));
    let told = Rc::clone(&counted);
    one_world(policy, Limits::default(), 1, move |w| async move {
        lock(&w.fake.times).sync = ms(sync);
        lock(&w.fake.times).write = ms(0);
        lock(&w.fake.times).merging = true;
        for _ in 0..16 {
            step(&w, 'w', 900, 0).await;
            step(&w, 'f', 900, 0).await;
            w.env.sleep(ms(10 * sync)).await;
        }
        let before = lock(&w.fake.state).flushes.0;
        let end = w.env.monotonic() + ms(10 * sync);
        let client = |client: u64| {
            let (w, counted) = (Rc::clone(&w), Rc::clone(&counted));
            Box::pin(async move {
                w.env.sleep(ms(7 * client % sync)).await;
                let ino = if one_file { 5 } else { 5 + client };
                while w.env.monotonic() < end {
                    for what in steps.chars() {
                        step(&w, what, ino, client).await;
                    }
                    counted.set((counted.get().0 + 1, 0));
                }
            }) as vfs::env::LocalTask
        };
        join(&w.env, (0..clients).map(client).collect()).await;
        w.env.sleep(ms(2 * DELAY + 2 * sync)).await;
        let flushes = lock(&w.fake.state).flushes.0 - before;
        counted.set((counted.get().0, flushes));
    });
    told.get()
}

#[test]
fn a_bound_costs_no_more_than_honor_where_clients_flush() {
    for sync in [DELAY / 4, DELAY / 2, DELAY * 3 / 4, DELAY, DELAY * 2] {
        for clients in [(1, true), (8, true), (64, true), (8, false), (64, false)] {
            for steps in ["www.f", "w.w.f"] {
                let (honored, paid) = run("honor", steps, clients, sync);
                let bounded = format!("bounded:{DELAY}ms,64MiB");
                let (answered, cost) = run(&bounded, steps, clients, sync);
                let what = format!(
                    "syncs of {sync} ms, {clients:?}, {steps}: {answered} FLUSHes for {cost}, \
                     under honor {honored} for {paid}"
                );
                assert!(honored > 0 && answered >= honored, "{what}");
                assert!(cost * honored <= paid * answered, "{what}");
            }
        }
    }
}
