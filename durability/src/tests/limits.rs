//! Background work: age, number of dirty inodes, changes of policy, the server's stop.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use bytes::Bytes;
use vfs::{Env, VfsError};

use super::{
    fake::{FakeNode, dir, file, key, stream},
    flush::{PLAIN, honor, world},
    sim::{join, ms},
};
use crate::{share::lock, *};

#[test]
fn an_old_dirty_inode_is_synced_and_its_descriptor_released() {
    honor(|w| async move {
        let f = file(5);
        w.write(&f, 0, 1).await.unwrap();
        assert!(f.held() > 1, "held until a clean sync");
        w.env.sleep(ms(29_900)).await;
        assert!(f.held() > 1);
        assert!(w.gate.exposure().oldest_age >= ms(29_900));
        w.env.sleep(ms(200)).await;
        assert_eq!(f.held(), 1);
        assert_eq!(w.gate.exposure(), Exposure::default());
        assert_eq!(w.fake.take_log(), ["write 5", "all 5"]);
        assert_eq!(w.gate.counters().syncs_background, 1);
    });
}

#[test]
fn no_more_inodes_are_dirty_than_may_be() {
    let limits = Limits {
        dirty_inodes_max: 4,
        ..Limits::default()
    };
    world("treat-host-as-stable-storage", limits, |w| async move {
        for ino in 100..120 {
            w.write(&file(ino), 0, 1).await.unwrap();
            assert!(w.engine.dirty_inodes() <= 4, "{}", w.engine.dirty_inodes());
        }
        assert_eq!(w.gate.exposure().inodes, 4);
        let log = w.fake.take_log();
        let syncs: Vec<_> = log.iter().filter(|line| line.starts_with("all")).collect();
        assert_eq!(syncs.len(), 16);
        assert_eq!(syncs[0], "all 100", "the oldest first");
    });
}

#[test]
fn names_and_streams_count_because_they_hold_descriptors() {
    let limits = Limits {
        dirty_inodes_max: 8,
        ..Limits::default()
    };
    world("treat-host-as-stable-storage", limits, |w| async move {
        let folders: Vec<_> = (10..14).map(dir).collect();
        let mut nodes = folders.clone();
        for ino in 100..120 {
            let (f, s) = (file(ino), stream(ino, "s"));
            w.create(&f, &folders[0]).await.unwrap();
            for folder in &folders[1..] {
                w.gate.linked(&f, folder, PLAIN).await.unwrap();
            }
            w.write(&s, 0, 1).await.unwrap();
            nodes.extend([f, s]);
            // Syncs that have just ended release what they held.
            w.env.sleep(ms(100)).await;
            let clones = |node: &FakeNode| node.held() - 1;
            let of_files: usize = nodes[folders.len()..].iter().map(clones).sum();
            let of_folders: usize = folders.iter().map(|dir| dir.held() - 2).sum();
            assert!(of_files + of_folders <= 8, "{of_files} and {of_folders}");
        }
        assert!(w.engine.dirty_inodes() > 0);
    });
}

/// It changes nothing, but the name of the file counts as dirty from then on.
#[test]
fn a_flush_that_is_answered_at_once_is_held_back_like_a_change() {
    let limits = Limits {
        dirty_inodes_max: 8,
        ..Limits::default()
    };
    world("treat-host-as-stable-storage", limits, |w| async move {
        for ino in 100..120 {
            {
                let mut state = lock(&w.fake.state);
                state.parents.insert(ino, 10);
                state.paths.insert(ino, ino.to_string().into_bytes());
            }
            w.flush(&file(ino)).await.unwrap();
        }
        let dirty = w.engine.dirty_inodes();
        assert!((1..=8).contains(&dirty), "{dirty}");
    });
}

#[test]
fn a_change_waits_no_longer_than_its_own_sync_where_others_hang() {
    let limits = Limits {
        dirty_inodes_max: 4,
        ..Limits::default()
    };
    world("treat-host-as-stable-storage", limits, |w| async move {
        for ino in 100..104 {
            w.write(&file(ino), 0, 1).await.unwrap();
        }
        let syncs_take = |time| lock(&w.fake.times).sync = time;
        syncs_take(ms(3_600_000));
        let answered = Rc::new(Cell::new(false));
        let (held_back, answer) = (Rc::clone(&w), Rc::clone(&answered));
        w.env.spawn(Box::pin(async move {
            held_back.write(&file(104), 0, 1).await.unwrap();
            answer.set(true);
        }));
        w.env.sleep(ms(50)).await;
        syncs_take(ms(10));
        w.env.sleep(ms(150)).await;
        assert!(!answered.get(), "older ones come first");
        w.env.sleep(ms(200)).await;
        assert!(answered.get());
        assert_eq!(w.engine.dirty_inodes(), 4);
    });
}

#[test]
fn the_limit_holds_when_syncs_fail() {
    let limits = Limits {
        dirty_inodes_max: 2,
        ..Limits::default()
    };
    world("honor", limits, |w| async move {
        for ino in 100..110 {
            w.fake.script(ino, &[Err(VfsError::Io)]);
            w.write(&file(ino), 0, 1).await.unwrap();
            assert!(w.engine.dirty_inodes() <= 2);
        }
        assert_eq!(w.gate.poisoned().len(), 8);
    });
}

#[test]
fn a_tightening_ends_when_everything_dirty_is_on_disk() {
    world(
        "treat-host-as-stable-storage",
        Limits::default(),
        |w| async move {
            let f = file(5);
            for ino in [5, 6] {
                w.write(&file(ino), 0, 1).await.unwrap();
            }
            // One more write is under way when the policy changes.
            let task = |change: bool| {
                let (w, f) = (Rc::clone(&w), f.clone());
                Box::pin(async move {
                    if change {
                        w.env.sleep(ms(1)).await;
                        let report = w.gate.set_policy(Policy::StrictSync, "test").await;
                        assert_eq!(
                            (report.inodes, report.bytes, report.failed),
                            (2, 3 * 4096, 0)
                        );
                        assert_eq!(w.gate.exposure(), Exposure::default());
                    } else {
                        w.write(&f, 1, 1).await.unwrap();
                    }
                }) as vfs::env::LocalTask
            };
            join(&w.env, vec![task(false), task(true)]).await;
            w.fake.take_log();
            w.write(&f, 0, 1).await.unwrap();
            assert_eq!(w.fake.take_log(), ["write 5", "all 5"]);
            let before = w.env.monotonic();
            w.gate
                .set_policy(Policy::TreatHostAsStableStorage, "test")
                .await;
            assert_eq!(w.env.monotonic(), before, "a loosening waits for nothing");
            w.write(&f, 0, 1).await.unwrap();
            assert_eq!(w.fake.take_log(), ["write 5"]);
        },
    );
}

#[test]
fn the_stop_syncs_what_is_dirty_and_reports() {
    honor(|w| async move {
        let settings = ShareDurability {
            sync_on_stop: false,
            ..ShareDurability::default()
        };
        let scratch = w
            .engine
            .share("scratch", std::sync::Arc::clone(&w.fake), settings);
        for ino in 100..140 {
            w.write(&file(ino), 0, 1).await.unwrap();
        }
        drop(scratch.content_changed(&file(7), 5).await.unwrap());
        w.fake.script(105, &[Err(VfsError::Io)]);
        w.fake.script(106, &[Err(VfsError::NoSpace)]);
        let report = w.engine.sync_all().await;
        assert_eq!(
            (report.inodes, report.bytes, report.failed),
            (38, 38 * 4096, 2)
        );
        let mut errors = report.errors;
        errors.sort();
        assert_eq!(
            errors,
            [(key(105), VfsError::Io), (key(106), VfsError::NoSpace)]
        );
        assert_eq!((w.gate.exposure().bytes, scratch.exposure().bytes), (0, 5));
    });
}

#[test]
fn a_bound_that_cannot_hold_the_write_makes_it_durable() {
    world("bounded:50ms,64KiB", Limits::default(), |w| async move {
        let f = file(5);
        // The WRITE takes more than half of the bound, so there may be no room for it beside others.
        w.write(&f, 0, 9).await.unwrap();
        assert_eq!(w.fake.take_log(), ["dsync 5"]);
        // The times are dirty.
        let exposure = w.gate.exposure();
        assert_eq!((exposure.bytes, exposure.inodes), (0, 1));
    });
}

#[test]
fn a_bound_holds_back_what_would_break_it() {
    world("bounded:50ms,64KiB", Limits::default(), |w| async move {
        let f = file(5);
        // From now on the engine knows how long a sync takes.
        w.write(&f, 0, 1).await.unwrap();
        w.env.sleep(ms(100)).await;
        let ends = Rc::new(RefCell::new(Vec::new()));
        let write = |page: u64| {
            let (w, ends) = (Rc::clone(&w), Rc::clone(&ends));
            Box::pin(async move {
                let begun = w.env.monotonic();
                w.write(&file(5), page, 8).await.unwrap();
                ends.borrow_mut().push(w.env.monotonic() - begun);
            }) as vfs::env::LocalTask
        };
        join(&w.env, vec![write(0), write(8), write(16)]).await;
        let ends = ends.take();
        assert_eq!(ends[0], ends[1], "there is room for two");
        let sync = lock(&w.fake.times).sync;
        assert!(ends[2] >= ends[0] * 2 + sync, "a sync, then the third");
        assert!(w.gate.counters().backpressure > 0);
        let begun = w.env.monotonic();
        w.gate.flush(&f, FlushTarget::File, PLAIN).await.unwrap();
        assert_eq!(
            w.env.monotonic(),
            begun,
            "within the bound it answers at once"
        );
        assert_eq!(w.gate.counters().flushes_deferred, 1);
        w.env.sleep(ms(50)).await;
        assert_eq!(
            w.gate.exposure(),
            Exposure::default(),
            "paid without being asked"
        );
    });
}

#[test]
fn a_dying_worker_leaves_its_sync_to_others() {
    honor(|w| async move {
        let f = file(5);
        w.write(&f, 0, 1).await.unwrap();
        // A flush that is dropped in the middle of its sync.
        {
            let mut flush = Box::pin(w.flush(&f));
            let mut turns = 0;
            std::future::poll_fn(|cx| {
                turns += 1;
                let _ = flush.as_mut().poll(cx);
                if turns > 1 {
                    std::task::Poll::Ready(())
                } else {
                    cx.waker().wake_by_ref();
                    std::task::Poll::Pending
                }
            })
            .await;
        }
        w.flush(&f).await.unwrap();
        assert_eq!(w.gate.exposure(), Exposure::default());
    });
}

#[test]
fn a_write_that_does_not_fit_hurries_what_is_dirty() {
    world("bounded:10s,64KiB", Limits::default(), |w| async move {
        let f = file(5);
        w.env.sleep(ms(1)).await;
        w.write(&f, 0, 7).await.unwrap();
        let begun = w.env.monotonic();
        w.write(&f, 7, 10).await.unwrap();
        assert!(w.env.monotonic() - begun < ms(100), "not half the delay");
    });
}

#[test]
fn a_directory_that_always_fails_does_not_hold_up_what_is_behind_it() {
    world("bounded:50ms,64KiB", Limits::default(), |w| async move {
        let (f, a, b) = (file(5), dir(10), dir(11));
        w.fake.script(11, &[Err(VfsError::Io); 1000]);
        w.env.sleep(ms(1)).await;
        w.rename(&f, &a, &b).await.unwrap();
        w.env.sleep(ms(200)).await;
        assert_eq!(w.gate.exposure().inodes, 0, "all is paid or poisoned");
        let log = w.fake.take_log();
        assert!(log.iter().any(|line| line == "all 10"), "{log:?}");
        assert!(log.len() < 10, "{log:?}");
        assert_eq!(w.gate.effective_policy(), Policy::Honor);
        // Replies are not held back by a bound that is not in force.
        w.gate.created(&file(6), &a, PLAIN).await.unwrap();
        w.env.sleep(ms(500)).await;
        assert_eq!(w.gate.exposure().inodes, 0);
    });
}

#[test]
fn waiters_for_the_bound_go_on_when_the_share_trips() {
    world("bounded:50ms,64KiB", Limits::default(), |w| async move {
        let (f, g) = (file(5), file(6));
        w.env.sleep(ms(1)).await;
        w.fake.script(5, &[Err(VfsError::Io)]);
        lock(&w.fake.times).sync = ms(60_000);
        w.write(&g, 0, 1).await.unwrap();
        w.env.sleep(ms(70)).await;
        // The share is over its bound, because the sync of 6 takes a minute; meanwhile 5 trips the share.
        let gate = w.gate.clone();
        let waiting = Box::pin(async move { drop(gate.created(&file(7), &dir(10), PLAIN).await) });
        let w2 = Rc::clone(&w);
        let trips = Box::pin(async move {
            w2.env.sleep(ms(5)).await;
            lock(&w2.fake.times).sync = ms(10);
            // More than ever fits, so it is made stable at once.
            let data = Bytes::from(vec![1; 128 << 10]);
            assert!(w2.gate.write(&f, 0, data, PLAIN).await.is_err());
        });
        join(&w.env, vec![waiting, trips]).await;
        assert!(w.env.monotonic() < ms(1000));
    });
}

/// A name may come back in each of the directories, with what was dirty when it was removed.
#[test]
fn the_age_of_what_is_dirty_is_that_of_every_directory_which_lost_a_name_of_it() {
    let policy = "bounded:10s,64KiB";
    for moved in [false, true] {
        world(policy, Limits::default(), move |w| async move {
            let (f, a, b) = (file(5), dir(10), dir(11));
            w.env.sleep(ms(1)).await;
            w.write(&f, 0, 1).await.unwrap();
            w.env.sleep(ms(1000)).await;
            if moved {
                w.rename(&f, &a, &b).await.unwrap();
            } else {
                w.gate.removed(&f, &a, PLAIN).await.unwrap();
            }
            w.env.sleep(ms(1000)).await;
            lock(&w.fake.state).links.insert(5, 0);
            w.gate.removed(&f, &b, PLAIN).await.unwrap();
            w.fake.take_log();
            // Half the bound after the write, not after the first removal.
            w.env.sleep(ms(3040)).await;
            let mut log = w.fake.take_log();
            log.sort();
            assert_eq!(log, ["all 10", "all 11"]);
            assert_eq!(w.gate.exposure(), Exposure::default());
            assert_eq!(w.engine.dirty_inodes(), 0);
        });
    }
}

#[test]
fn what_lost_its_last_name_is_dirty_under_a_bound_until_that_is_stable() {
    world("bounded:10s,64KiB", Limits::default(), |w| async move {
        let (f, g, a) = (file(5), file(6), dir(10));
        w.env.sleep(ms(1)).await;
        w.write(&f, 0, 1).await.unwrap();
        w.write(&g, 0, 2).await.unwrap();
        let written = w.env.monotonic();
        w.env.sleep(ms(1000)).await;
        lock(&w.fake.state).links.insert(5, 0);
        w.gate.removed(&f, &a, PLAIN).await.unwrap();
        lock(&w.fake.state).links.insert(6, 0);
        drop(w.gate.replaced(&g, &a, PLAIN).await);
        assert_eq!(f.held(), 1);
        let exposed = w.gate.exposure();
        assert_eq!((exposed.bytes, exposed.inodes), (3 * 4096, 3));
        assert!(exposed.oldest_age >= w.env.monotonic() - written);
        w.fake.take_log();
        // Half the bound after the write, not after the removal.
        w.env.sleep(ms(4020)).await;
        assert_eq!(w.fake.take_log(), ["all 10"]);
        assert_eq!(w.gate.exposure(), Exposure::default());
        assert_eq!(w.engine.dirty_inodes(), 0);
    });
}
