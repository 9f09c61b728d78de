//! Failures whose latch has ended before what was under way beside them is over, and changes whose report never comes.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
};

use vfs::{Env, Range, VfsError};

use super::{
    fake::{dir, file},
    flush::{PLAIN, THROUGH, honor},
    latch::{begun_before_a_failure, write_beside_a_failing_sync},
    sim::{join, ms},
};
use crate::{share::lock, *};

const IO: Result<(), VfsError> = Err(VfsError::Io);

#[test]
fn metadata_under_way_is_lost_though_the_rest_was_repaired() {
    honor(|w| async move {
        let f = file(5);
        w.gate.meta_changed(&f, Meta::Eas, PLAIN).await.unwrap();
        let begun = w.gate.begin(&f);
        w.fake.script(5, &[IO]);
        assert_eq!(w.flush(&f).await, IO);
        w.gate.meta_changed(&f, Meta::Eas, PLAIN).await.unwrap();
        assert_eq!(w.flush(&f).await, Ok(()), "repaired");
        begun
            .metadata_changed(&f, Meta::Times, PLAIN)
            .await
            .unwrap();
        assert_eq!(w.flush(&f).await, IO);
        w.gate.meta_changed(&f, Meta::Times, PLAIN).await.unwrap();
        assert_eq!(w.flush(&f).await, Ok(()));
    });
}

#[test]
fn a_name_under_way_is_lost_though_the_directory_was_cleared() {
    honor(|w| async move {
        let (f, g, d) = (file(5), file(6), dir(50));
        let begun = begun_before_a_failure(&w, &f, &d).await;
        assert!(w.gate.clear_latches() > 0);
        begun.created(&g, &d, PLAIN).await.unwrap();
        assert_eq!(w.flush(&g).await, IO);
    });
}

#[test]
fn what_a_file_was_made_with_is_lost_though_the_latch_of_an_earlier_flush_was_cleared() {
    honor(|w| async move {
        let (f, d) = (file(5), dir(50));
        let begun = w.gate.begin(&d);
        w.fake.script(5, &[IO]);
        // Another client finds the file before its creation is reported.
        assert_eq!(w.flush(&f).await, IO);
        assert!(w.gate.clear_latches() > 0);
        begun.created(&f, &d, PLAIN).await.unwrap();
        assert_eq!(w.flush(&f).await, IO);
        for what in [Meta::Security, Meta::Times, Meta::Attributes, Meta::Eas] {
            w.gate.meta_changed(&f, what, PLAIN).await.unwrap();
        }
        assert_eq!(w.flush(&f).await, Ok(()), "repaired");
    });
}

#[test]
fn a_write_under_way_is_lost_though_the_latch_was_cleared() {
    honor(|w| async move {
        let f = file(5);
        w.write(&f, 0, 1).await.unwrap();
        w.fake.script(5, &[IO]);
        lock(&w.fake.times).write = ms(100);
        // The sync runs from 0 to 10 ms, the write from 4 to 104 ms.
        write_beside_a_failing_sync(&w, &f, true).await;
        assert_eq!(w.gate.poisoned()[0].unproven_bytes(), 4096);
        assert_eq!(w.flush(&f).await, IO);
        w.write(&f, 7, 1).await.unwrap();
        assert_eq!(w.flush(&f).await, Ok(()));
    });
}

#[test]
fn a_copy_under_way_is_lost_though_the_latch_was_cleared() {
    honor(|w| async move {
        let f = file(5);
        w.write(&f, 0, 1).await.unwrap();
        let mut changing = w.gate.changing(&f);
        w.fake.script(5, &[IO]);
        let flush = {
            let (w, f) = (Rc::clone(&w), f.clone());
            Box::pin(async move {
                assert_eq!(w.engine.barrier(f.key_of(), None).await, IO);
            }) as vfs::env::LocalTask
        };
        join(&w.env, vec![flush]).await;
        assert!(w.engine.clear_latch(f.key_of()));
        changing.rewrote(Range {
            offset: 8192,
            len: 4096,
        });
        drop(changing.end(PLAIN).await.unwrap());
        assert_eq!(w.gate.poisoned()[0].unproven_bytes(), 4096);
        assert_eq!(w.flush(&f).await, IO);
    });
}

#[test]
fn a_durable_delete_is_not_acknowledged_when_a_lost_move_may_bring_the_name_back() {
    honor(|w| async move {
        let (a, b) = (dir(10), dir(11));
        for (ino, told) in [(5, Err(VfsError::Io)), (6, Ok(()))] {
            let f = file(ino);
            w.create(&f, &a).await.unwrap();
            w.flush(&f).await.unwrap();
            w.rename(&f, &a, &b).await.unwrap();
            w.fake.script(10, &[told]);
            assert_eq!(w.flush(&f).await, told);
            w.engine.clear_latch(a.key_of());
            lock(&w.fake.state).links.insert(ino, 0);
            let removed = w.gate.removed(&f, &b, THROUGH).await.map(drop);
            assert_eq!(removed, told);
        }
    });
}

fn drop_by_a_panic<T>(guard: T) {
    let panics = AssertUnwindSafe(move || {
        let _guard = guard;
        panic!("on purpose");
    });
    assert!(catch_unwind::<_, ()>(panics).is_err());
}

#[test]
fn what_a_panic_leaves_unreported_is_dirty() {
    honor(|w| async move {
        let (f, d, e) = (file(5), dir(50), dir(51));
        drop(w.gate.begin(&f));
        drop(w.gate.begin_rename(&d, &e, None).await.unwrap());
        assert_eq!(w.gate.exposure().inodes, 0, "nothing was made");
        drop_by_a_panic(w.gate.begin(&f));
        assert_eq!(w.gate.exposure().inodes, 1);
        drop_by_a_panic(w.gate.begin_rename(&d, &e, None).await.unwrap());
        assert_eq!(w.gate.exposure().inodes, 3);
        assert_eq!(w.engine.sync_all().await.failed, 0);
        assert_eq!(w.gate.exposure().inodes, 0);
        // A sync that fails in between may have dropped it.
        let begun = w.gate.begin(&f);
        w.gate.meta_changed(&f, Meta::Eas, PLAIN).await.unwrap();
        w.fake.script(5, &[IO]);
        assert_eq!(w.flush(&f).await, IO);
        w.gate.meta_changed(&f, Meta::Eas, PLAIN).await.unwrap();
        assert_eq!(w.flush(&f).await, Ok(()), "repaired");
        drop_by_a_panic(begun);
        assert_eq!(w.flush(&f).await, IO);
    });
}

/// The write got the failure that the sync of the FLUSH would have reported, and its answer comes later.
#[test]
fn a_sync_that_ends_before_a_durable_write_beside_it_fails_is_no_success() {
    honor(|w| async move {
        let f = file(5);
        w.gate.meta_changed(&f, Meta::Eas, PLAIN).await.unwrap();
        lock(&w.fake.times).write = ms(40);
        w.fake.script(5, &[Ok(()), IO]);
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
        let poisoned = w.gate.poisoned();
        assert!(poisoned[0].metadata, "what the sync had covered");
    });
}

/// A client that is over its quota, beside a sync that takes long.
#[test]
fn write_throughs_that_fail_beside_a_sync_ask_for_one_more_in_all() {
    honor(|w| async move {
        let f = file(5);
        lock(&w.fake.times).sync = ms(10_000);
        w.write(&f, 0, 1).await.unwrap();
        let beside = Rc::clone(&w);
        w.env.spawn(Box::pin(async move {
            _ = beside.flush(&file(5)).await;
        }));
        w.env.sleep(ms(1)).await;
        w.fake.script(5, &[Err(VfsError::QuotaExceeded); 20]);
        let writes = (1..=20).map(|page| {
            let (w, f) = (Rc::clone(&w), f.clone());
            let write = async move { w.write_as(&f, page, 1, THROUGH).await.unwrap_err() };
            Box::pin(async move { _ = write.await }) as vfs::env::LocalTask
        });
        join(&w.env, writes.collect()).await;
        assert_eq!(w.gate.counters().sync_waiters, 2, "with the FLUSH");
        w.env.sleep(ms(30_000)).await;
        assert_eq!(w.gate.exposure().inodes, 0);
    });
}
