//! The guard: every lazy outcome of every share is `honor` while it is on, and nothing else is
//! changed by it.

use std::{rc::Rc, sync::Arc};

use vfs::Env;

use super::{
    again::fail,
    fake::{file, key},
    flush::{PLAIN, world},
    opens::{flushed, opener, rules},
    sim::{join, ms},
};
use crate::{share::lock, *};

const HOST: &str = "treat-host-as-stable-storage";
const WHO: &str = "power guard";

#[test]
fn what_was_acknowledged_is_made_stable_and_what_comes_waits() {
    for policy in [HOST, "bounded:60s,64MiB"] {
        world(policy, Limits::default(), |w| async move {
            let f = file(5);
            w.write(&f, 0, 1).await.unwrap();
            w.flush(&f).await.unwrap();
            // One FLUSH is under way when the guard comes on.
            let (v, g) = (Rc::clone(&w), file(6));
            let writing = Box::pin(async move { v.write(&g, 0, 1).await.unwrap() });
            let v = Rc::clone(&w);
            let guarding = Box::pin(async move {
                v.env.sleep(ms(3)).await;
                assert!(v.engine.set_guard(true, WHO));
                assert!(!v.engine.set_guard(true, WHO), "no news");
                let report = v.engine.sync_lazy().await;
                assert_eq!((report.inodes, report.failed), (2, 0));
            });
            join(&w.env, vec![writing, guarding]).await;
            assert_eq!(w.gate.exposure().inodes, 0);
            assert_eq!(w.gate.effective_policy(), Policy::Honor);
            assert_eq!(flushed(&w, &f).await, "sync");
            // The configured policy stays as it was.
            let configured = w.gate.settings().policy;
            assert!(configured.kind().is_lazy());
            assert!(w.engine.set_guard(false, WHO));
            assert_eq!(w.gate.effective_policy(), configured);
            assert_eq!(flushed(&w, &f).await, "no");
            assert_eq!(w.gate.counters().trips, 0);
        });
    }
}

#[test]
fn rules_and_those_that_come_later_are_lazy_no_more() {
    let lazy = [("*.tmp", HOST), ("*.log", "bounded:60s,64MiB")];
    world("honor", Limits::default(), move |w| async move {
        w.gate.set_rules(rules(&lazy), "test").await;
        let (f, g) = (file(5), file(6));
        let open = w.gate.opened(&f, opener("a.tmp"));
        assert_eq!(flushed(&w, &f).await, "no");
        w.engine.set_guard(true, WHO);
        assert_eq!(w.engine.sync_lazy().await.inodes, 1);
        let late = w.gate.opened(&g, opener("a.log"));
        for node in [&f, &g] {
            assert_eq!(flushed(&w, node).await, "sync");
        }
        assert_eq!(w.gate.explain(&opener("b.tmp")).policy, Policy::Honor);
        assert_eq!(w.gate.in_force(key(5)).unwrap().policy, Policy::Honor);
        // Rules and policies that come while it is on, and a share that does.
        w.gate.set_rules(rules(&[("*", HOST)]), "test").await;
        w.gate.set_policy(HOST.parse().unwrap(), "test").await;
        assert_eq!(flushed(&w, &f).await, "sync");
        let settings = ShareDurability::with_policy(HOST.parse().unwrap());
        let other = w.engine.share("other", Arc::clone(&w.fake), settings);
        assert_eq!(other.effective_policy(), Policy::Honor);
        w.engine.set_guard(false, WHO);
        assert_eq!(flushed(&w, &f).await, "no");
        assert!(other.effective_policy().kind().is_lazy());
        drop((open, late));
    });
}

#[test]
fn a_stricter_policy_stays_and_has_nothing_set_aside() {
    for policy in ["honor", "strict-sync"] {
        world(policy, Limits::default(), move |w| async move {
            w.write(&file(5), 0, 1).await.unwrap();
            let owed = w.gate.exposure().inodes;
            w.engine.set_guard(true, WHO);
            assert_eq!(w.engine.sync_lazy().await, StopReport::default());
            assert_eq!(w.gate.exposure().inodes, owed);
            assert_eq!(w.gate.effective_policy().to_string(), policy);
            assert_eq!(w.gate.set_aside(), SetAside::default());
        });
    }
}

#[test]
fn what_else_set_a_policy_aside_outlives_the_guard_and_does_not_end_it() {
    world(HOST, Limits::default(), |w| async move {
        let aside = |failed_sync, guard| SetAside { failed_sync, guard };
        w.engine.set_guard(true, WHO);
        assert_eq!(w.gate.set_aside(), aside(false, true));
        fail(&w, &w.gate, 5).await;
        assert_eq!(w.gate.set_aside(), aside(true, true));
        w.engine.set_guard(false, WHO);
        assert_eq!(w.gate.set_aside(), aside(true, false));
        assert_eq!(w.gate.effective_policy(), Policy::Honor);
        w.engine.set_guard(true, WHO);
        assert_eq!(w.gate.clear_latches(), 1);
        assert_eq!(w.gate.effective_policy(), Policy::Honor);
        // A policy that an administrator set meanwhile holds when the guard is gone.
        w.gate.set_policy(Policy::Honor, "somebody").await;
        assert_eq!(w.gate.set_aside(), aside(false, false));
        w.engine.set_guard(false, WHO);
        assert_eq!(w.gate.effective_policy(), Policy::Honor);
        assert_eq!(flushed(&w, &file(6)).await, "sync");
    });
}

/// `honor` promises nothing about data that no client flushed; `bounded` does, on a battery as well.
#[test]
fn a_bound_is_kept() {
    world("bounded:60s,64KiB", Limits::default(), |w| async move {
        lock(&w.fake.times).sync = ms(1_000);
        w.engine.set_guard(true, WHO);
        for page in 0..24 {
            w.gate
                .write(&file(5), page * 4096, vec![1; 4096].into(), PLAIN)
                .await
                .unwrap();
            assert!(w.gate.exposure().bytes <= 64 << 10);
        }
        assert!(w.gate.counters().backpressure > 0);
    });
}
