//! Promises that random cases seldom or never put to the test, each with the planted fault that
//! breaks it.
//!
//! Every test plays one scene and asks whether the promise is kept. Then it plays the scene once more in an engine
//! with the fault, and the promise must be broken there: a test that could not fail fails.

use std::{cell::Cell, pin::Pin, rc::Rc, sync::Arc};

use bytes::Bytes;
use vfs::{Env, Range, VfsError, env::LocalTask};

use super::{
    fake::{dir, file},
    flush::{PLAIN, THROUGH, World, world},
    sim::{join, ms},
};
use crate::{planted::Planted, share::lock, *};

const IO: Result<(), VfsError> = Err(VfsError::Io);

type Scene = fn(Rc<World>) -> Pin<Box<dyn Future<Output = bool>>>;

/// Whether the promise is kept under every schedule.
fn is_kept(policy: &str, fault: Option<Planted>, scene: Scene) -> bool {
    let kept = Rc::new(Cell::new(true));
    world(policy, Limits::default(), |w| {
        let kept = Rc::clone(&kept);
        async move {
            w.engine.plant(fault);
            let now = scene(w).await;
            kept.set(kept.get() && now);
        }
    });
    kept.get()
}

fn finds(policy: &str, fault: Planted, scene: Scene) {
    assert!(is_kept(policy, None, scene));
    assert!(!is_kept(policy, Some(fault), scene), "{fault:?} not found");
}

/// One test for each fault: its name, the policy, the fault, the scene.
macro_rules! tests {
    ($($(#[$doc:meta])* $name:ident: $policy:literal, $fault:ident, |$w:ident| $scene:block)*) => {
        $($(#[$doc])* #[test] fn $name() {
            finds($policy, Planted::$fault, |$w| Box::pin(async move $scene));
        })*
    };
}

impl World {
    /// Whether what a page shows is on the disk.
    fn is_stable(&self, ino: u64, page: u64) -> bool {
        let state = lock(&self.fake.state);
        let page = state.pages.get(&(ino, page));
        page.is_some_and(|page| page.live > 0 && page.durable == page.live)
    }

    /// Writes take no time from now on.
    fn write_at_once(&self) {
        lock(&self.fake.times).write = ms(0);
    }
}

tests! {
    /// The case of fsyncgate: a descriptor from before the write sees its lost write-back, one
    /// that is opened for the sync need not. A descriptor held for metadata may be reopened.
    a_sync_goes_through_the_writers_descriptor: "honor", KeepFirstDescriptor, |w| {
        let (bare, writer) = (file(5), file(5));
        w.gate.meta_changed(&bare, Meta::Attributes, PLAIN).await.unwrap();
        w.write(&writer, 0, 1).await.unwrap();
        let held = (bare.held(), writer.held());
        w.flush(&file(5)).await.unwrap();
        held == (1, 2)
    }

    a_full_sync_is_due_after_a_failed_one: "honor", DataSyncAfterFailure, |w| {
        let f = file(5);
        w.write(&f, 0, 1).await.unwrap();
        w.fake.script(5, &[IO]);
        assert_eq!(w.flush(&f).await, IO);
        w.write(&f, 0, 1).await.unwrap();
        w.fake.take_log();
        assert_eq!(w.flush(&f).await, Ok(()));
        w.fake.take_log() == ["all 5"]
    }

    /// An earlier server process, or somebody on the host, may have left the name dirty.
    a_flush_of_a_directory_syncs_its_parent: "honor", DirectoryFlushWithoutParent, |w| {
        lock(&w.fake.state).paths.insert(50, "d".into());
        lock(&w.fake.state).parents.insert(50, 40);
        w.flush(&dir(50)).await.unwrap();
        w.fake.take_log() == ["all 50", "all 40"]
    }

    a_flush_joins_no_sync_that_began_before_its_write: "honor", JoinsRunningSync, |w| {
        w.write_at_once();
        let f = file(5);
        w.write(&f, 0, 1).await.unwrap();
        let kept = Rc::new(Cell::new(false));
        let first = {
            let (w, f) = (Rc::clone(&w), f.clone());
            Box::pin(async move { w.flush(&f).await.unwrap() }) as LocalTask
        };
        let second = {
            let (w, kept) = (Rc::clone(&w), Rc::clone(&kept));
            Box::pin(async move {
                w.env.sleep(ms(3)).await;
                w.write(&f, 7, 1).await.unwrap();
                w.flush(&f).await.unwrap();
                kept.set(w.is_stable(5, 7));
            }) as LocalTask
        };
        join(&w.env, vec![first, second]).await;
        kept.get()
    }

    a_flush_covers_the_writes_under_way: "honor", FlushBeforeEarlierWrites, |w| {
        flush_beside_a_write(w, false).await
    }

    a_flush_covers_the_writes_that_were_accepted: "honor", FlushBeforeAcceptedWrites, |w| {
        flush_beside_a_write(w, true).await
    }

    a_write_beside_a_failed_sync_is_unproven: "honor", WriteBesideFailureTrusted, |w| {
        let f = file(5);
        w.write(&f, 0, 1).await.unwrap();
        w.fake.script(5, &[IO]);
        let write = {
            let (w, f) = (Rc::clone(&w), f.clone());
            Box::pin(async move {
                w.env.sleep(ms(4)).await;
                w.write(&f, 7, 1).await.unwrap();
            }) as LocalTask
        };
        let flush = {
            let (w, f) = (Rc::clone(&w), f.clone());
            Box::pin(async move { assert_eq!(w.flush(&f).await, IO) }) as LocalTask
        };
        join(&w.env, vec![flush, write]).await;
        w.write(&f, 0, 1).await.unwrap();
        w.flush(&f).await == IO
    }

    a_change_beside_a_failed_sync_is_unproven: "honor", ChangeBesideFailureTrusted, |w| {
        let f = file(5);
        w.gate.meta_changed(&f, Meta::Eas, PLAIN).await.unwrap();
        let begun = w.gate.begin(&f);
        w.fake.script(5, &[IO]);
        assert_eq!(w.flush(&f).await, IO);
        begun.metadata_changed(&f, Meta::Times, PLAIN).await.unwrap();
        w.gate.meta_changed(&f, Meta::Eas, PLAIN).await.unwrap();
        w.flush(&f).await == IO
    }

    a_failed_write_through_leaves_all_that_is_dirty_unproven: "honor", FailedThroughTrustsOthers, |w| {
        let f = file(5);
        w.write(&f, 100, 1).await.unwrap();
        w.fake.script(5, &[IO]);
        assert_eq!(w.write_as(&f, 3, 1, THROUGH).await, IO);
        let _ = w.write_as(&f, 3, 1, THROUGH).await;
        w.flush(&f).await == IO
    }

    what_is_being_synced_is_exposed: "honor", CleanBeforeResult, |w| {
        let f = file(5);
        w.write(&f, 0, 1).await.unwrap();
        let kept = Rc::new(Cell::new(false));
        let flush = {
            let (w, f) = (Rc::clone(&w), f.clone());
            Box::pin(async move { w.flush(&f).await.unwrap() }) as LocalTask
        };
        let look = {
            let (w, kept) = (Rc::clone(&w), Rc::clone(&kept));
            Box::pin(async move {
                w.env.sleep(ms(4)).await;
                kept.set(w.gate.exposure().bytes == 4096);
            }) as LocalTask
        };
        join(&w.env, vec![flush, look]).await;
        kept.get()
    }

    only_rewriting_ends_a_latch: "honor", LatchEndsWithNextSync, |w| {
        let f = file(5);
        w.write(&f, 0, 1).await.unwrap();
        w.fake.script(5, &[IO]);
        assert_eq!(w.flush(&f).await, IO);
        (w.flush(&f).await, w.flush(&f).await) == (IO, IO)
    }

    a_latch_outlives_the_handles: "honor", LatchForgottenOnClose, |w| {
        let f = file(5);
        let open = w.gate.opened(&f, Arc::new(Opener::default()));
        w.write(&f, 0, 1).await.unwrap();
        w.fake.script(5, &[IO]);
        assert_eq!(w.flush(&f).await, IO);
        drop(open);
        w.flush(&f).await == IO
    }

    a_policy_that_was_set_holds_for_what_came_before: "treat-host-as-stable-storage",
    PolicySetWithoutSync, |w| {
        w.write(&file(5), 0, 1).await.unwrap();
        w.gate.set_policy(Policy::Honor, "test").await;
        w.is_stable(5, 0)
    }

    contents_changed_through_a_write_through_open_are_stable: "honor", ContentThroughLazy, |w| {
        let f = file(5);
        let mut zeroing = w.gate.changing(&f);
        zeroing.rewrote(Range { offset: 0, len: 4096 });
        let through = RequestFlags { open_write_through: true, ..PLAIN };
        zeroing.end(through).await.unwrap();
        !w.fake.take_log().is_empty()
    }
}

/// A write takes from 0 to 10 ms, of which it waits a part first if it is `accepted` only; FLUSH
/// comes at 2 ms. Whether the write is stable when FLUSH is answered.
async fn flush_beside_a_write(w: Rc<World>, accepted: bool) -> bool {
    let kept = Rc::new(Cell::new(false));
    let write = {
        let w = Rc::clone(&w);
        Box::pin(async move {
            let f = file(5);
            let mut change = w.gate.contents(&f);
            if accepted {
                change.queue(Some(1));
                w.env.sleep(ms(5)).await;
            }
            let data = Bytes::from(vec![1; 4096]);
            let written = change.write(0, data, PLAIN);
            written.await.unwrap();
        }) as LocalTask
    };
    let flush = {
        let (w, kept) = (Rc::clone(&w), Rc::clone(&kept));
        Box::pin(async move {
            w.env.sleep(ms(2)).await;
            w.flush(&file(5)).await.unwrap();
            kept.set(w.is_stable(5, 0));
        }) as LocalTask
    };
    join(&w.env, vec![write, flush]).await;
    kept.get()
}
