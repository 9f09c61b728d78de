//! Several shares over one folder: each keeps its own bound, and answers for what it is charged with.

use std::{rc::Rc, sync::Arc};

use bytes::Bytes;
use vfs::{Env, Node, VfsError};

use super::{
    fake::{dir, file},
    flush::{PLAIN, honor, world},
    opens::{flushed, opener, rules},
    sim::ms,
};
use crate::{share::lock, *};

const HOST: &str = "treat-host-as-stable-storage";

#[test]
fn a_bounded_rule_is_paid_in_time_whichever_share_it_was_changed_through() {
    honor(|w| async move {
        let bounded = rules(&[("*.log", "bounded:100ms,1MiB")]);
        w.gate.set_rules(bounded, "test").await;
        let host = ShareDurability::with_policy(HOST.parse().unwrap());
        let other = w.engine.share("other", Arc::clone(&w.fake), host);
        let f = file(5);
        let open = w.gate.opened(&f, opener("a.log"));
        let all_stable = || {
            let exposures = w.engine.exposures();
            exposures.iter().all(|(_, exposure)| exposure.inodes == 0)
        };
        for gate in [&w.gate, &other] {
            drop(gate.content_changed(&f, 7).await.unwrap());
            drop(gate.renamed(&f, &dir(10), &dir(11), PLAIN).await.unwrap());
            w.env.sleep(ms(110)).await;
            assert!(all_stable(), "{}", gate.name());
        }
        // The bound also holds beside a stricter policy, whose promise does not cover data that no client flushed.
        let honored = w.gate.opened(&f, opener("x"));
        assert_eq!(flushed(&w, &f).await, "sync");
        w.write(&f, 0, 1).await.unwrap();
        w.env.sleep(ms(110)).await;
        assert!(all_stable());
        drop((open, honored));
    });
}

/// The bound is that of another share, which syncs what is charged to it; what else is dirty here has none.
#[test]
fn the_bound_of_another_share_is_kept_by_that_share() {
    honor(|w| async move {
        let bounded = ShareDurability::with_policy("bounded:100ms,1MiB".parse().unwrap());
        let other = w.engine.share("other", Arc::clone(&w.fake), bounded);
        let (f, d) = (file(5), dir(10));
        w.write(&file(6), 0, 300).await.unwrap();
        w.env.sleep(ms(200)).await;
        let open = [other.opened(&f, opener("f")), other.opened(&d, opener("d"))];
        let begun = w.env.monotonic();
        w.gate.meta_changed(&f, Meta::Times, PLAIN).await.unwrap();
        w.write(&f, 0, 1).await.unwrap();
        w.create(&file(7), &d).await.unwrap();
        let took = w.env.monotonic() - begun;
        assert!(took < ms(90), "{took:?}");
        w.env.sleep(ms(110)).await;
        assert_eq!(other.exposure().inodes, 0);
        assert!(w.fake.is_stable_in(10), "a name in the directory as well");
        w.fake.name(11);
        lock(&w.fake.state).links.insert(5, 0);
        w.gate.removed(&f, &dir(11), PLAIN).await.unwrap();
        w.env.sleep(ms(110)).await;
        assert!(
            w.fake.is_stable_in(11),
            "nor does one that went away wait longer"
        );
        assert_eq!(
            w.gate.exposure().inodes,
            1,
            "nobody promised anything of it"
        );
        drop(open);
    });
}

/// It was changed through a share that promises nothing, before the one with the bound had it open.
#[test]
fn what_is_flushed_is_within_the_bound_whichever_share_it_was_changed_through() {
    for other_flushes in [false, true] {
        world(HOST, Limits::default(), move |w| async move {
            let bounded = ShareDurability::with_policy("bounded:500ms,1MiB".parse().unwrap());
            let other = w.engine.share("other", Arc::clone(&w.fake), bounded);
            let f = file(5);
            w.create(&f, &dir(10)).await.unwrap();
            w.write(&f, 0, 1).await.unwrap();
            let open = other.opened(&f, opener("f"));
            let gate = if other_flushes { &other } else { &w.gate };
            drop(gate.flush(&f, FlushTarget::File, PLAIN).await.unwrap());
            assert_eq!(other.exposure().bytes, 4096);
            w.env.sleep(ms(510)).await;
            assert!(w.fake.is_stable_in(10));
            assert_eq!(w.engine.dirty_inodes(), 0);
            drop(open);
        });
    }
}

/// It has the bound, and the second page is written through the other share after the first one was flushed.
#[test]
fn each_flush_counts_what_was_written_through_another_share() {
    world(HOST, Limits::default(), |w| async move {
        let bounded = ShareDurability::with_policy("bounded:500ms,1MiB".parse().unwrap());
        let other = w.engine.share("other", Arc::clone(&w.fake), bounded);
        let f = file(5);
        for pages in 1..=2 {
            w.write(&f, pages, 1).await.unwrap();
            let open = other.opened(&f, opener("f"));
            drop(other.flush(&f, FlushTarget::File, PLAIN).await.unwrap());
            drop(open);
            assert_eq!(other.exposure().bytes, pages * 4096);
        }
    });
}

/// The answer does not wait for what else the looser bound of its own share leaves dirty.
#[test]
fn a_share_does_not_keep_the_tighter_bound_of_another_one() {
    world("bounded:10s,64MiB", Limits::default(), |w| async move {
        let tight = ShareDurability::with_policy("bounded:100ms,64KiB".parse().unwrap());
        let other = w.engine.share("tight", Arc::clone(&w.fake), tight);
        w.write(&file(6), 0, 300).await.unwrap();
        w.env.sleep(ms(200)).await;
        let f = file(5);
        let open = [&w.gate, &other].map(|gate| gate.opened(&f, opener("f")));
        let begun = w.env.monotonic();
        w.gate.meta_changed(&f, Meta::Times, PLAIN).await.unwrap();
        w.write(&f, 0, 1).await.unwrap();
        w.flush(&f).await.unwrap();
        let took = w.env.monotonic() - begun;
        assert!(took < ms(90), "{took:?}");
        assert!(
            w.gate.exposure().bytes >= 300 * 4096,
            "none of it was synced"
        );
        w.env.sleep(ms(110)).await;
        assert_eq!(other.exposure().inodes, 0);
        drop(open);
    });
}

/// The WRITE is larger than that bound, and fits the one that its file has through the same share.
#[test]
fn a_share_does_not_keep_the_bound_of_a_rule_that_does_not_apply() {
    world(HOST, Limits::default(), |w| async move {
        let loose = ShareDurability::with_policy("bounded:10s,64MiB".parse().unwrap());
        let other = w.engine.share("other", Arc::clone(&w.fake), loose);
        let tight = rules(&[("*.db", "bounded:100ms,64KiB")]);
        other.set_rules(tight, "test").await;
        let f = file(5);
        let open = other.opened(&f, opener("f"));
        let begun = w.env.monotonic();
        w.write(&f, 0, 300).await.unwrap();
        let took = w.env.monotonic() - begun;
        assert!(took < ms(90), "{took:?}");
        drop(open);
    });
}

/// A file is open through two bounded shares and changed through a third, while a sync of it runs: the answer does not
/// wait for what the loosely bounded share may still leave dirty.
#[test]
fn each_of_several_shares_keeps_its_own_bound() {
    honor(|w| async move {
        let share = |name, policy: &str| {
            let policy = ShareDurability::with_policy(policy.parse().unwrap());
            w.engine.share(name, Arc::clone(&w.fake), policy)
        };
        let tight = share("tight", "bounded:100ms,1MiB");
        let loose = share("loose", "bounded:10s,1MiB");
        drop(loose.content_changed(&file(6), 1).await.unwrap());
        w.env.sleep(ms(200)).await;
        let f = file(5);
        let open = [&loose, &tight].map(|gate| gate.opened(&f, opener("f")));
        w.write(&f, 0, 1).await.unwrap();
        let begun = w.env.monotonic();
        let (world, node) = (Rc::clone(&w), f.clone());
        w.env.spawn(Box::pin(async move {
            let flushed = world.gate.flush(&node, FlushTarget::File, PLAIN).await;
            drop(flushed.unwrap());
        }));
        w.env.sleep(ms(2)).await;
        w.gate.meta_changed(&f, Meta::Times, PLAIN).await.unwrap();
        let took = w.env.monotonic() - begun;
        assert!(took < ms(200), "{took:?}");
        assert_eq!(loose.exposure().inodes, 2, "and nothing of it was synced");
        drop(open);
    });
}

/// A file is open through a bounded share whose disk is too slow for its bound, and flushed through one that has none.
#[test]
fn a_flush_waits_where_the_disk_is_too_slow_for_the_bound_of_another_share() {
    world(HOST, Limits::default(), |w| async move {
        let bounded = ShareDurability::with_policy("bounded:100ms,1MiB".parse().unwrap());
        let other = w.engine.share("other", Arc::clone(&w.fake), bounded);
        lock(&w.fake.times).sync = ms(70);
        for _ in 0..4 {
            drop(other.content_changed(&file(6), 1).await.unwrap());
            w.env.sleep(ms(200)).await;
        }
        let f = file(5);
        let open = other.opened(&f, opener("f"));
        w.write(&f, 0, 1).await.unwrap();
        w.flush(&f).await.unwrap();
        assert_eq!(other.exposure().bytes, 0);
        drop(open);
    });
}

/// Two gates of one name are one share: after a reload that replaced its files.
#[test]
fn gates_of_one_name_obey_one_policy() {
    honor(|w| async move {
        let host = ShareDurability::with_policy(HOST.parse().unwrap());
        let newer = w.engine.share("SHARE", Arc::clone(&w.fake), host);
        assert_eq!(newer.settings().policy, Policy::Honor, "as it was");
        newer
            .set_policy(HOST.parse().unwrap(), "Anna (uid 1000)")
            .await;
        let f = file(5);
        assert_eq!(flushed(&w, &f).await, "no", "through the older gate");
        assert_eq!(newer.exposure().bytes, 4096);
        let all = w.engine.exposures();
        assert_eq!(all.len(), 1, "counted once");
        assert_eq!(all[0].1, newer.exposure());
        let report = w.gate.set_policy(Policy::StrictSync, "test").await;
        assert_eq!(report.inodes, 1);
        drop(newer.content_changed(&f, 7).await.unwrap());
        assert_eq!(newer.exposure().bytes, 0);
    });
}

#[test]
fn a_root_does_not_report_what_other_folders_lost() {
    honor(|w| async move {
        let elsewhere = super::fake::Fake::new(&w.env, ms(10), ms(10));
        lock(&elsewhere.times).root = 2;
        let settings = ShareDurability::default();
        let other = w.engine.share("other", elsewhere.clone(), settings);
        let f = file(5);
        drop(other.content_changed(&f, 7).await.unwrap());
        elsewhere.script(5, &[Err(VfsError::Io)]);
        let root = |gate: &Arc<Gate<_>>, top| {
            let gate = gate.clone();
            async move {
                gate.flush(&dir(top), FlushTarget::ShareRoot, PLAIN)
                    .await
                    .err()
            }
        };
        assert_eq!(root(&w.gate, 1).await, None, "synced, and told elsewhere");
        assert_eq!(other.poisoned().len(), 1);
        assert_eq!(root(&w.gate, 1).await, None);
        assert_eq!(root(&other, 2).await, Some(VfsError::Io));
    });
}

/// Its bound holds for a change through another share as long as it has one.
#[test]
fn a_share_that_loses_its_bound_syncs_what_it_is_charged_with() {
    for closed in [false, true] {
        honor(move |w| async move {
            let bounded = ShareDurability::with_policy("bounded:10s,1MiB".parse().unwrap());
            let other = w.engine.share("other", Arc::clone(&w.fake), bounded);
            let f = file(5);
            let mut open = Some(other.opened(&f, opener("f")));
            w.write(&f, 0, 1).await.unwrap();
            open.take_if(|_| closed);
            let report = other.set_policy(Policy::Honor, "a test").await;
            assert_eq!((report.inodes, other.exposure().bytes), (1, 0));
            drop(open);
        });
    }
}

#[test]
fn the_stop_syncs_what_a_bounded_share_is_charged_with() {
    honor(|w| async move {
        let settings = ShareDurability {
            sync_on_stop: false,
            ..ShareDurability::default()
        };
        let scratch = w.engine.share("scratch", Arc::clone(&w.fake), settings);
        let bounded = ShareDurability::with_policy("bounded:10s,1MiB".parse().unwrap());
        let other = w.engine.share("other", Arc::clone(&w.fake), bounded);
        let f = file(5);
        let open = other.opened(&f, opener("f"));
        drop(scratch.content_changed(&f, 5).await.unwrap());
        assert_eq!(w.engine.sync_all().await.inodes, 1);
        assert_eq!(other.exposure().bytes, 0);
        drop(open);
    });
}

/// The share that made the change bounds nothing.
#[test]
fn a_bounded_flush_of_the_root_promises_what_was_changed_through_another_share() {
    world("bounded:1s,64MiB", Limits::default(), |w| async move {
        let other = ShareDurability::default();
        let other = w.engine.share("other", Arc::clone(&w.fake), other);
        drop(other.content_changed(&file(5), 4096).await.unwrap());
        let root = dir(1);
        let flush = w.gate.flush(&root, FlushTarget::ShareRoot, PLAIN);
        drop(flush.await.unwrap());
        assert_eq!(w.gate.exposure().bytes, 4096);
        w.env.sleep(ms(1000)).await;
        assert_eq!(other.exposure().bytes, 0);
    });
}

/// It has answered for a change through another share by its bound.
#[test]
fn a_share_that_is_charged_trips_when_a_sync_fails() {
    honor(|w| async move {
        let policy: Policy = "bounded:10s,1MiB".parse().unwrap();
        let bounded = ShareDurability::with_policy(policy);
        let other = w.engine.share("other", Arc::clone(&w.fake), bounded);
        let f = file(5);
        let open = other.opened(&f, opener("f"));
        w.write(&f, 0, 1).await.unwrap();
        w.fake.script(5, &[Err(VfsError::Io)]);
        assert!(w.flush(&f).await.is_err());
        assert_eq!(other.effective_policy(), Policy::Honor);
        assert_eq!(other.poisoned().len(), 1);
        assert!(w.engine.clear_latch(f.key()));
        assert_eq!(other.effective_policy(), policy);
        drop(open);
    });
}

/// The share of the WRITE bounds nothing, and the file is opened through the other one only while the WRITE is under
/// way.
#[test]
fn a_bounded_flush_promises_a_write_that_is_under_way() {
    for (target, still_open) in [
        (FlushTarget::File, true),
        (FlushTarget::File, false),
        (FlushTarget::ShareRoot, false),
    ] {
        world("bounded:1s,64MiB", Limits::default(), move |w| async move {
            let host = ShareDurability::with_policy(HOST.parse().unwrap());
            let other = w.engine.share("other", Arc::clone(&w.fake), host);
            let f = file(5);
            let (writer, node) = (Arc::clone(&other), f.clone());
            w.env.spawn(Box::pin(async move {
                let data = Bytes::from_static(&[1; 4096]);
                drop(writer.write(&node, 0, data, PLAIN).await.unwrap());
            }));
            w.env.sleep(ms(1)).await;
            let mut open = Some(w.gate.opened(&f, opener("f")));
            let node = match target {
                FlushTarget::ShareRoot => dir(1),
                _ => f.clone(),
            };
            drop(w.gate.flush(&node, target, PLAIN).await.unwrap());
            open.take_if(|_| !still_open);
            w.env.sleep(ms(19)).await;
            assert_eq!(w.gate.exposure().bytes, 4096, "{target:?}");
            w.env.sleep(ms(1000)).await;
            assert_eq!(other.exposure().bytes, 0, "{target:?}");
            drop(open);
        });
    }
}

/// Its own share bounds nothing.
#[test]
fn a_flush_of_the_root_promises_within_the_bound_of_another_share_that_has_it_open() {
    world("bounded:1s,64MiB", Limits::default(), |w| async move {
        let lazy = ShareDurability::with_policy(Policy::TreatHostAsStableStorage);
        let other = w.engine.share("other", Arc::clone(&w.fake), lazy);
        let root = dir(1);
        let open = w.gate.opened(&root, opener(""));
        drop(other.content_changed(&file(5), 4096).await.unwrap());
        let flush = other.flush(&root, FlushTarget::ShareRoot, PLAIN);
        drop(flush.await.unwrap());
        assert_eq!(w.gate.exposure().bytes, 4096);
        w.env.sleep(ms(1000)).await;
        assert_eq!(other.exposure().bytes, 0);
        drop(open);
    });
}
