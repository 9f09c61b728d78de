//! Failed syncs: the latch, its end, the trip. The changes that repair a loss are in `repairs.rs`.

use std::sync::Arc;

use std::rc::Rc;

use vfs::{Env, Range, VfsError};

use super::{
    fake::{Fake, FakeNode, dir, file, key, stream},
    flush::{PLAIN, THROUGH, World, honor, world},
    opens::opener,
    sim::{join, ms},
};
use crate::{share::lock, *};

pub(super) const IO: Result<(), VfsError> = Err(VfsError::Io);

#[test]
fn an_error_is_reported_until_every_dirty_range_is_rewritten_and_synced() {
    honor(|w| async move {
        let f = file(5);
        w.write(&f, 0, 2).await.unwrap();
        w.write(&f, 10, 1).await.unwrap();
        w.fake.script(5, &[Err(VfsError::NoSpace)]);
        let no_space = Err(VfsError::NoSpace);
        assert_eq!(w.flush(&f).await, no_space);
        // From now on every sync succeeds, which proves nothing.
        assert_eq!(w.flush(&f).await, no_space);
        assert_eq!(
            w.gate.closed(&f, PLAIN).await.err(),
            Some(VfsError::NoSpace)
        );
        assert_eq!(w.write_as(&f, 50, 1, THROUGH).await, no_space);
        let poisoned = w.gate.poisoned();
        assert_eq!(poisoned.len(), 1);
        assert_eq!(
            (poisoned[0].key, poisoned[0].error),
            (key(5), VfsError::NoSpace)
        );
        assert_eq!(poisoned[0].unproven_bytes(), 3 * 4096);
        let exposed = w.gate.exposure();
        assert_eq!((exposed.bytes, exposed.unproven_bytes), (0, 3 * 4096));
        // A part.
        w.write(&f, 0, 2).await.unwrap();
        assert_eq!(w.flush(&f).await, no_space);
        assert_eq!(w.gate.poisoned()[0].unproven_bytes(), 4096);
        // Rewritten, not synced.
        w.write(&f, 10, 1).await.unwrap();
        assert_eq!(
            w.gate.closed(&f, PLAIN).await.err(),
            Some(VfsError::NoSpace)
        );
        assert_eq!(w.flush(&f).await, Ok(()));
        assert_eq!(w.flush(&f).await, Ok(()));
        assert!(w.gate.closed(&f, PLAIN).await.is_ok());
        assert!(w.gate.poisoned().is_empty());
        assert_eq!(w.gate.exposure(), Exposure::default());
        assert_eq!(
            (w.gate.counters().latches, w.gate.counters().repairs),
            (1, 1)
        );
    });
}

/// A disk that failed once may fail in another way the next time (a file system that went read-only
/// after it was full): clients see the first error until the latch ends.
#[test]
fn the_first_error_of_a_latch_is_reported_until_the_latch_ends() {
    honor(|w| async move {
        let f = file(5);
        let no_space = Err(VfsError::NoSpace);
        w.write(&f, 0, 1).await.unwrap();
        w.fake.script(5, &[no_space]);
        assert_eq!(w.flush(&f).await, no_space);
        let again = || w.fake.script(5, &[IO]);
        again();
        assert_eq!(w.flush(&f).await, no_space);
        w.write(&f, 1, 1).await.unwrap();
        let closed = w.gate.closed(&f, PLAIN).await;
        assert_eq!(closed.err(), Some(VfsError::NoSpace));
        again();
        assert_eq!(w.write_as(&f, 0, 1, THROUGH).await, no_space);
        w.write(&f, 1, 1).await.unwrap();
        again();
        let root = w.gate.flush(&dir(1), FlushTarget::ShareRoot, PLAIN).await;
        assert_eq!(root.err(), Some(VfsError::NoSpace));
        w.write(&f, 0, 2).await.unwrap();
        assert_eq!(w.flush(&f).await, Ok(()));
        w.write(&f, 0, 1).await.unwrap();
        w.fake.script(5, &[IO]);
        assert_eq!(
            w.flush(&f).await,
            IO,
            "another latch has an error of its own"
        );
    });
}

/// Of several poisoned files the root of the share reports the one that failed first.
#[test]
fn the_root_of_a_share_reports_the_first_error_of_all() {
    honor(|w| async move {
        for (number, error) in [(7, VfsError::NoSpace), (5, VfsError::Io), (6, VfsError::Io)] {
            w.write(&file(number), 0, 1).await.unwrap();
            w.fake.script(number, &[Err(error), Err(VfsError::Io)]);
            assert_eq!(w.flush(&file(number)).await, Err(error));
        }
        for _ in 0..2 {
            let root = w.gate.flush(&dir(1), FlushTarget::ShareRoot, PLAIN).await;
            assert_eq!(root.err(), Some(VfsError::NoSpace));
            w.write(&file(5), 9, 1).await.unwrap();
        }
    });
}

/// Also where a FLUSH is answered before the disk: found by the simulator, a policy that was set
/// after the failure.
#[test]
fn the_root_of_a_share_reports_what_is_poisoned_under_every_policy() {
    for policy in [
        Policy::TreatHostAsStableStorage,
        Policy::Bounded(Bound::new(ms(50), 1 << 20).unwrap()),
        Policy::StrictSync,
    ] {
        honor(move |w| async move {
            let f = file(5);
            w.write(&f, 0, 1).await.unwrap();
            w.fake.script(5, &[IO]);
            assert_eq!(w.flush(&f).await, IO);
            w.gate.set_policy(policy, "test").await;
            let top = dir(1);
            let root = || w.gate.flush(&top, FlushTarget::ShareRoot, PLAIN);
            assert_eq!(root().await.err(), Some(VfsError::Io), "{policy}");
            w.gate.clear_latches();
            assert!(root().await.is_ok(), "{policy}");
        });
    }
}

#[test]
fn a_durable_write_repairs_its_range_and_latches_when_it_fails() {
    honor(|w| async move {
        let f = file(5);
        w.fake.script(5, &[IO]);
        assert_eq!(w.write_as(&f, 3, 2, THROUGH).await, IO);
        assert_eq!(w.flush(&f).await, IO);
        assert_eq!(
            w.write_as(&f, 3, 1, THROUGH).await,
            IO,
            "one page is still unproven"
        );
        assert_eq!(w.write_as(&f, 4, 1, THROUGH).await, Ok(()));
        assert_eq!(w.flush(&f).await, Ok(()));
    });
}

#[test]
fn a_durable_write_that_fails_leaves_all_that_was_dirty_unproven() {
    honor(|w| async move {
        let f = file(5);
        w.write(&f, 100, 1).await.unwrap();
        w.fake.script(5, &[IO]);
        assert_eq!(w.write_as(&f, 0, 1, THROUGH).await, IO);
        assert_eq!(w.gate.poisoned()[0].unproven_bytes(), 2 * 4096);
        assert_eq!(w.gate.exposure().unproven_bytes, 2 * 4096);
        assert_eq!(w.write_as(&f, 0, 1, THROUGH).await, IO);
        assert_eq!(w.flush(&f).await, IO, "the error is told no second time");
        assert_eq!(w.write_as(&f, 100, 1, THROUGH).await, Ok(()));
        assert_eq!(w.flush(&f).await, Ok(()));
    });
}

#[test]
fn a_durable_write_that_fails_takes_what_a_sync_has_in_hand() {
    honor(|w| async move {
        let f = file(5);
        w.write(&f, 100, 1).await.unwrap();
        w.write(&f, 101, 1).await.unwrap();
        // The sync runs from 0 to 20 ms, the durable write from 4 to 14 ms.
        lock(&w.fake.times).sync = ms(20);
        w.fake.script(5, &[IO, Ok(())]);
        let task = |at: u64| {
            let (w, f) = (Rc::clone(&w), f.clone());
            Box::pin(async move {
                w.env.sleep(ms(at)).await;
                match at {
                    0 => assert_eq!(w.flush(&f).await, IO),
                    _ => assert_eq!(w.write_as(&f, 0, 1, THROUGH).await, IO),
                }
            }) as vfs::env::LocalTask
        };
        join(&w.env, vec![task(0), task(4)]).await;
        assert_eq!(w.write_as(&f, 0, 1, THROUGH).await, IO);
        assert_eq!(w.gate.poisoned()[0].unproven_bytes(), 2 * 4096);
    });
}

#[test]
fn cutting_off_or_clearing_ends_a_latch() {
    honor(|w| async move {
        let f = file(5);
        w.write(&f, 3, 2).await.unwrap();
        w.fake.script(5, &[IO]);
        assert_eq!(w.flush(&f).await, IO);
        w.gate.resized(&f, 4 * 4096, PLAIN).await.unwrap();
        assert_eq!(w.flush(&f).await, IO);
        w.gate.resized(&f, 0, PLAIN).await.unwrap();
        assert_eq!(w.flush(&f).await, Ok(()));

        w.gate.content_changed(&f, 10).await.unwrap();
        w.fake.script(5, &[IO]);
        assert_eq!(w.flush(&f).await, IO);
        w.gate
            .range_changed(
                &f,
                Range {
                    offset: 0,
                    len: 1 << 30,
                },
                PLAIN,
            )
            .await
            .unwrap();
        assert_eq!(w.flush(&f).await, IO, "it was not said where");
        assert!(w.engine.clear_latch(key(5)));
        assert!(!w.engine.clear_latch(key(5)));
        assert_eq!(w.flush(&f).await, Ok(()));
    });
}

#[test]
fn an_error_with_nothing_known_dirty_needs_an_administrator() {
    honor(|w| async move {
        let f = file(5);
        w.fake.script(5, &[IO]);
        assert_eq!(w.flush(&f).await, IO);
        w.write(&f, 0, 1000).await.unwrap();
        assert_eq!(w.flush(&f).await, IO);
        assert!(w.engine.clear_latch(key(5)));
        assert_eq!(w.flush(&f).await, Ok(()));
    });
}

/// Flushes from 0 ms on, in vain, and writes from 4 ms on; the latch may be cleared between the two ends.
pub(super) async fn write_beside_a_failing_sync(w: &Rc<World>, f: &FakeNode, cleared: bool) {
    let task = |at: u64, write: bool| {
        let (w, f) = (Rc::clone(w), f.clone());
        Box::pin(async move {
            w.env.sleep(ms(at)).await;
            if write {
                w.write(&f, 7, 1).await.unwrap();
                return;
            }
            assert_eq!(w.flush(&f).await, IO);
            if cleared {
                assert!(w.engine.clear_latch(f.key_of()));
            }
        }) as vfs::env::LocalTask
    };
    join(&w.env, vec![task(0, false), task(4, true)]).await;
}

#[test]
fn a_write_under_way_when_the_sync_fails_is_unproven_too() {
    honor(|w| async move {
        let f = file(5);
        w.write(&f, 0, 1).await.unwrap();
        w.fake.script(5, &[IO]);
        // The sync runs from 0 to 10 ms, the write from 4 to 14 ms.
        write_beside_a_failing_sync(&w, &f, false).await;
        w.write(&f, 0, 1).await.unwrap();
        assert_eq!(w.flush(&f).await, IO);
        w.write(&f, 7, 1).await.unwrap();
        assert_eq!(w.flush(&f).await, Ok(()));
    });
}

#[test]
fn a_share_that_answered_before_the_disk_honors_after_an_error() {
    world(
        "treat-host-as-stable-storage",
        Limits::default(),
        |w| async move {
            let (f, g) = (file(5), file(6));
            w.write(&f, 0, 1).await.unwrap();
            w.write(&g, 0, 1).await.unwrap();
            w.flush(&f).await.unwrap();
            w.fake.script(5, &[IO]);
            // The background sync after dirty_age_max finds out.
            w.env.sleep(ms(31_000)).await;
            assert_eq!(w.gate.effective_policy(), Policy::Honor);
            assert_eq!(w.gate.settings().policy, Policy::TreatHostAsStableStorage);
            assert_eq!(w.flush(&f).await, IO);
            w.fake.take_log();
            w.write(&g, 0, 1).await.unwrap();
            w.flush(&g).await.unwrap();
            assert_eq!(w.fake.take_log(), ["write 6", "all 6"]);
            assert_eq!(w.gate.counters().trips, 1);
            assert!(w.engine.clear_latch(key(5)));
            assert_eq!(w.gate.effective_policy(), Policy::TreatHostAsStableStorage);
        },
    );
}

#[test]
fn latches_come_back_after_a_restart_and_their_number_is_limited() {
    let limits = Limits {
        poisoned_max: 2,
        ..Limits::default()
    };
    world("honor", limits, |w| async move {
        w.engine
            .restore_latch(&LatchRecord::whole(key(5), VfsError::QuotaExceeded));
        assert_eq!(w.flush(&file(5)).await, Err(VfsError::QuotaExceeded));
        for ino in 6..9 {
            fail(&w, ino).await;
        }
        assert_eq!(w.engine.poisoned().len(), 2);
        assert_eq!(
            w.flush(&file(20)).await,
            IO,
            "what failed is not known any more"
        );
        for poisoned in w.engine.poisoned() {
            assert!(w.engine.clear_latch(poisoned.key));
        }
        assert!(w.engine.clear_overflow());
        assert_eq!(w.flush(&file(20)).await, Ok(()));
    });
}

async fn fail(w: &World, ino: u64) {
    w.write(&file(ino), 0, 1).await.unwrap();
    w.fake.script(ino, &[IO]);
    assert_eq!(w.flush(&file(ino)).await, IO);
}

#[test]
fn a_sync_that_never_ran_latches_nothing_and_leaves_it_dirty() {
    const LATER: Result<(), VfsError> = Err(VfsError::NotStarted);
    honor(|w| async move {
        let (f, s, d) = (file(5), stream(5, "s"), dir(10));
        w.create(&f, &d).await.unwrap();
        w.write(&f, 0, 1).await.unwrap();
        w.fake.script(5, &[LATER]);
        assert_eq!(w.flush(&f).await, LATER);
        w.fake.script(10, &[LATER]);
        assert_eq!(w.flush(&f).await, LATER);
        assert!(w.gate.poisoned().is_empty());
        assert_eq!(w.gate.exposure().inodes, 1, "its name");
        assert_eq!(w.flush(&f).await, Ok(()));
        assert_eq!(w.gate.exposure(), Exposure::default());
        // A failure behind it counts.
        w.write(&s, 0, 1).await.unwrap();
        w.fake.script(5, &[LATER, IO]);
        assert_eq!(w.flush(&f).await, IO);
        assert_eq!(w.gate.poisoned().len(), 1);
    });
}

#[test]
fn a_background_sync_that_never_ran_is_tried_again() {
    let limits = Limits {
        dirty_inodes_max: 1,
        ..Limits::default()
    };
    world("treat-host-as-stable-storage", limits, |w| async move {
        w.fake.script(5, &[Err(VfsError::NotStarted); 3]);
        w.write(&file(5), 0, 1).await.unwrap();
        w.write(&file(6), 0, 1).await.unwrap();
        assert!(w.engine.dirty_inodes() <= 1);
        assert!(w.gate.poisoned().is_empty());
    });
}

#[test]
fn all_latches_of_a_share_are_cleared_at_once() {
    world(
        "treat-host-as-stable-storage",
        Limits::default(),
        |w| async move {
            for ino in [5, 6] {
                w.write(&file(ino), 0, 1).await.unwrap();
                w.fake.script(ino, &[IO]);
            }
            w.env.sleep(ms(31_000)).await;
            assert_eq!(w.gate.poisoned().len(), 2);
            assert_eq!(w.gate.effective_policy(), Policy::Honor);
            assert_eq!(w.gate.clear_latches(), 2);
            assert_eq!(w.gate.clear_latches(), 0);
            assert_eq!(w.gate.effective_policy(), Policy::TreatHostAsStableStorage);
            assert!(w.engine.is_stable());
        },
    );
}

/// It concerns a share with a bound that had the file open, besides the one that has changed it.
#[test]
fn a_trip_ends_with_the_latch_of_a_file_that_another_share_has_changed() {
    world("bounded:10s,64MiB", Limits::default(), |w| async move {
        let honored = ShareDurability::with_policy(Policy::Honor);
        let other = w.engine.share("other", Arc::clone(&w.fake), honored);
        let (shared, own) = (file(5), file(6));
        let open = w.gate.opened(&shared, opener("f"));
        let write = || other.write(&shared, 0, vec![1; 4096].into(), PLAIN);
        let flush = || other.flush(&shared, FlushTarget::File, PLAIN);
        drop(write().await.unwrap());
        w.fake.script(5, &[IO]);
        assert_eq!(flush().await.map(drop), IO);
        w.write(&own, 0, 1).await.unwrap();
        w.fake.script(6, &[IO]);
        assert_eq!(w.gate.sync().await.failed, 2);
        w.write(&own, 0, 1).await.unwrap();
        assert_eq!(
            w.gate.sync().await.failed,
            1,
            "the shared one is not repaired"
        );
        assert_eq!(w.gate.effective_policy(), Policy::Honor);
        drop(write().await.unwrap());
        drop(flush().await.unwrap());
        assert_eq!(w.gate.effective_policy(), w.gate.settings().policy);
        drop(open);
    });
}

/// Notes events at error and info level, as `field=value` in one line each.
struct Events(Arc<std::sync::Mutex<Vec<String>>>);

impl tracing::Subscriber for Events {
    fn enabled(&self, what: &tracing::Metadata<'_>) -> bool {
        [tracing::Level::ERROR, tracing::Level::INFO].contains(what.level())
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        struct Line(String);
        impl tracing::field::Visit for Line {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0 += &format!("{field}={value:?} ");
            }
        }
        let mut line = Line(String::new());
        event.record(&mut line);
        lock(&self.0).push(line.0);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

/// The error comes after the acknowledgement: the log, the counters and the policy say so, and
/// the next request on the inode fails.
#[test]
fn an_error_after_the_acknowledgement_is_reported_to_everybody() {
    // While there is one subscriber only, tracing asks the subscriber of the thread that comes to a place in the code
    // first. That may be the thread of another test, which has none, and then the place is silent for all of them.
    let _second = tracing::Dispatch::new(Events(Arc::default()));
    for policy in ["treat-host-as-stable-storage", "bounded:10s,64MiB"] {
        let lines = Arc::new(std::sync::Mutex::default());
        tracing::subscriber::with_default(Events(Arc::clone(&lines)), || {
            world(policy, Limits::default(), |w| async move {
                let f = file(5);
                let open = w.gate.opened(&f, opener("dir/f"));
                w.write(&f, 0, 1).await.unwrap();
                w.flush(&f).await.unwrap();
                w.fake.script(5, &[IO]);
                w.env.sleep(ms(31_000)).await;
                let counters = w.gate.counters();
                assert_eq!((counters.syncs_failed, counters.latches), (1, 1));
                assert_eq!(counters.trips, 1);
                let exposed = w.gate.exposure();
                assert_eq!((exposed.unproven_bytes, exposed.poisoned_inodes), (4096, 1));
                assert_eq!(w.gate.effective_policy(), Policy::Honor);
                assert_eq!(w.flush(&f).await, IO);
                assert_eq!(w.write_as(&f, 9, 1, super::flush::THROUGH).await, IO);
                assert_eq!(w.gate.closed(&f, PLAIN).await.err(), IO.err());
                drop(open);
            });
        });
        let lines = lock(&lines).clone();
        assert!(lines[0].contains("inode=5 path=\"dir/f\""), "{}", lines[0]);
        assert!(
            lines[1].contains("acknowledged changes may be lost"),
            "{}",
            lines[1]
        );
    }
}

#[test]
fn the_end_of_a_latch_is_logged_with_its_path() {
    // As above.
    let _second = tracing::Dispatch::new(Events(Arc::default()));
    let lines = Arc::new(std::sync::Mutex::default());
    tracing::subscriber::with_default(Events(Arc::clone(&lines)), || {
        honor(|w| async move {
            let f = file(5);
            let open = w.gate.opened(&f, opener("dir/f"));
            w.write(&f, 0, 1).await.unwrap();
            w.fake.script(5, &[IO]);
            assert_eq!(w.flush(&f).await, IO);
            w.write(&f, 0, 1).await.unwrap();
            assert_eq!(w.flush(&f).await, Ok(()));
            drop(open);
        });
    });
    let lines = lock(&lines).clone();
    let end = lines.iter().find(|line| line.contains("the latch ended"));
    let end = end.unwrap_or_else(|| panic!("{lines:?}"));
    assert!(end.contains("inode=5 path=\"dir/f\""), "{end}");
}

/// A change of the directory 50 that has begun before the sync of a name in it fails.
pub(super) async fn begun_before_a_failure<'a>(
    w: &'a World,
    f: &FakeNode,
    d: &'a FakeNode,
) -> PendingChange<'a, Fake> {
    w.gate.created(f, d, PLAIN).await.unwrap();
    let begun = w.gate.begin(d);
    w.fake.script(50, &[IO]);
    assert_eq!(w.flush(f).await, IO);
    begun
}

#[test]
fn what_changes_while_a_sync_fails_is_put_down_to_it() {
    honor(|w| async move {
        let (f, g, d) = (file(5), file(6), dir(50));
        let begun = begun_before_a_failure(&w, &f, &d).await;
        begun.created(&g, &d, PLAIN).await.unwrap();
        assert_eq!(w.flush(&g).await, IO);
        // A change that began later is not concerned.
        let (h, begun) = (file(7), w.gate.begin(&d));
        begun.created(&h, &d, PLAIN).await.unwrap();
        assert_eq!(w.flush(&h).await, Ok(()));
        let begun = w.gate.begin(&h);
        w.gate.meta_changed(&h, Meta::Eas, PLAIN).await.unwrap();
        w.fake.script(7, &[IO]);
        assert_eq!(w.flush(&h).await, IO);
        begun
            .metadata_changed(&h, Meta::Times, PLAIN)
            .await
            .unwrap();
        w.gate.meta_changed(&h, Meta::Eas, PLAIN).await.unwrap();
        assert_eq!(w.flush(&h).await, IO, "the times");
        w.gate.meta_changed(&h, Meta::Times, PLAIN).await.unwrap();
        assert_eq!(w.flush(&h).await, Ok(()));
    });
}

#[test]
fn a_durable_write_that_fails_is_reported_to_every_share_that_loses_by_it() {
    honor(|w| async move {
        let host = "treat-host-as-stable-storage".parse().unwrap();
        let host = ShareDurability::with_policy(host);
        let other = w.engine.share("other", Arc::clone(&w.fake), host);
        let f = file(5);
        drop(other.content_changed(&f, 7).await.unwrap());
        w.fake.script(5, &[IO]);
        w.write_as(&f, 9, 1, THROUGH).await.unwrap_err();
        assert_eq!(other.effective_policy(), Policy::Honor);
        assert_eq!(other.counters().latches, 1);
    });
}

/// The sync for a request that surely changed nothing (zeros behind the end) failed, and may have
/// dropped what was being changed at the same time.
#[test]
fn a_failed_sync_of_an_empty_change_takes_what_is_made_beside_it_along() {
    world("strict-sync", Limits::default(), |w| async move {
        let f = file(5);
        let begun = w.gate.begin(&f);
        let mut change = w.gate.changing(&f);
        change.touched(Range { offset: 8, len: 0 });
        w.fake.script(5, &[IO]);
        assert_eq!(change.end(PLAIN).await.err(), Some(VfsError::Io));
        let told = begun.metadata_changed(&f, Meta::Times, PLAIN).await;
        assert_eq!(told.err(), Some(VfsError::Io));
        assert_eq!(w.flush(&f).await, IO);
    });
}

#[test]
fn a_failure_that_nothing_is_known_of_is_one_of_everything() {
    honor(|w| async move {
        let f = file(5);
        let mut change = w.gate.changing(&f);
        change.touched(Range { offset: 8, len: 0 });
        change.end(PLAIN).await.unwrap();
        w.fake.script(5, &[IO]);
        for _ in 0..3 {
            assert_eq!(w.flush(&f).await, IO);
        }
        assert!(w.engine.clear_latch(key(5)));
        assert_eq!(w.flush(&f).await, Ok(()));
    });
}

#[test]
fn who_sets_a_policy_sees_what_is_not_stable_since_a_failure() {
    honor(|w| async move {
        let f = file(5);
        w.write(&f, 0, 1).await.unwrap();
        w.fake.script(5, &[IO]);
        w.write_as(&f, 9, 1, THROUGH).await.unwrap_err();
        let report = w.gate.set_policy(Policy::StrictSync, "a test").await;
        assert_eq!(report.failed, 1, "{report:?}");
    });
}
