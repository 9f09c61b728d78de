//! Rows of the event table that the pure function cannot show: what is done at the gate.

use std::rc::Rc;

use bytes::Bytes;
use vfs::{Env, Range, VfsError};

use super::{
    fake::{dir, file, key, stream},
    flush::{PLAIN, THROUGH, World, honor, world},
    sim::{join, ms},
};
use crate::*;

const IO: Result<(), VfsError> = Err(VfsError::Io);
const HOST: &str = "treat-host-as-stable-storage";
const BOUNDED: &str = "bounded:10s,64MiB";

fn pages(first: u64, n: u64) -> Range {
    Range {
        offset: first * 4096,
        len: n * 4096,
    }
}

async fn poisoned(w: &World) {
    w.write(&file(5), 0, 1).await.unwrap();
    w.fake.script(5, &[IO]);
    assert_eq!(w.flush(&file(5)).await, IO);
    w.fake.take_log();
}

/// Polls `future` for `span` and drops it.
async fn dropped(w: &Rc<World>, future: impl Future<Output = ()>, span: u64) {
    let (mut future, mut sleep) = (std::pin::pin!(future), w.env.sleep(ms(span)));
    std::future::poll_fn(|cx| {
        assert!(future.as_mut().poll(cx).is_pending());
        sleep.as_mut().poll(cx)
    })
    .await;
}

#[test]
fn what_was_not_surely_written_repairs_nothing() {
    honor(|w| async move {
        let f = file(5);
        poisoned(&w).await;
        // Given up before the disk had it.
        let write = async { _ = w.write(&f, 0, 1).await };
        dropped(&w, write, 1).await;
        assert_eq!(w.flush(&f).await, IO, "a write that was dropped");
        // Refused by the disk.
        w.fake.script(5, &[Err(VfsError::AccessDenied)]);
        w.write_as(&f, 0, 1, THROUGH).await.unwrap_err();
        assert_eq!(w.flush(&f).await, IO, "a write that failed");
        let mut copy = w.gate.changing(&f);
        copy.touched(pages(0, 1));
        copy.end(PLAIN).await.unwrap();
        assert_eq!(w.flush(&f).await, IO, "a copy that failed");
        let mut copy = w.gate.changing(&f);
        copy.rewrote(pages(0, 1));
        copy.end(PLAIN).await.unwrap();
        assert_eq!(w.flush(&f).await, Ok(()));
    });
}

#[test]
fn what_a_copy_wrote_before_a_sync_failed_is_unproven() {
    for rewrote in [true, false] {
        honor(move |w| async move {
            let f = file(5);
            w.write(&f, 0, 1).await.unwrap();
            let mut copy = w.gate.changing(&f);
            // A background sync, while a part of the copy is done.
            w.fake.script(5, &[IO]);
            assert_eq!(w.engine.barrier(key(5), None).await, IO);
            match rewrote {
                true => copy.rewrote(pages(0, 8)),
                false => copy.touched(pages(0, 8)),
            }
            copy.end(PLAIN).await.unwrap();
            assert_eq!(w.gate.poisoned()[0].unproven_bytes(), 8 * 4096);
            // The next sync finds nothing dirty and succeeds, which proves nothing.
            assert_eq!(w.flush(&f).await, IO);
        });
    }
}

#[test]
fn a_flush_waits_for_a_copy_that_came_before() {
    honor(|w| async move {
        let f = file(5);
        let mut copy = w.gate.changing(&f);
        let (v, g) = (Rc::clone(&w), f.clone());
        let flush = Box::pin(async move {
            v.flush(&g).await.unwrap();
            assert!(
                v.env.monotonic() >= ms(30),
                "20 of the copy, 10 of the sync"
            );
            assert_eq!(v.gate.exposure().bytes, 0);
        });
        let waiting = join(&w.env, vec![flush]);
        let mut waiting = std::pin::pin!(waiting);
        let mut copying = std::pin::pin!(async {
            w.env.sleep(ms(20)).await;
            copy.rewrote(pages(0, 3));
            copy.end(PLAIN).await.unwrap();
        });
        let mut copied = false;
        std::future::poll_fn(|cx| {
            copied = copied || copying.as_mut().poll(cx).is_ready();
            waiting.as_mut().poll(cx)
        })
        .await;
        assert!(copied);
    });
}

#[test]
fn a_copy_in_many_pieces_is_synced_once() {
    for (policy, flags) in [("strict-sync", PLAIN), ("honor", OPEN_THROUGH)] {
        world(policy, Limits::default(), move |w| async move {
            let f = file(5);
            let mut copy = w.gate.changing(&f);
            for piece in 0..16 {
                copy.rewrote(pages(piece * 3, 1));
            }
            copy.end(flags).await.unwrap();
            assert_eq!(w.fake.take_log(), ["all 5"]);
            assert_eq!(w.gate.exposure(), Exposure::default());
            // Of a copy that changed nothing there is nothing to sync.
            w.gate.changing(&f).end(flags).await.unwrap();
            assert!(w.fake.take_log().is_empty());
        });
    }
}

const OPEN_THROUGH: RequestFlags = RequestFlags {
    open_write_through: true,
    ..PLAIN
};

#[test]
fn a_copy_that_was_dropped_may_have_changed_anything() {
    honor(|w| async move {
        let f = file(5);
        drop(w.gate.changing(&f));
        assert_eq!(w.gate.exposure().inodes, 1);
        assert_eq!(w.gate.exposure().bytes, 0);
        w.flush(&f).await.unwrap();
        assert_eq!(w.fake.take_log(), ["all 5"]);
        assert_eq!(w.gate.exposure(), Exposure::default());
    });
}

/// FLUSH with Reserved1 = 0xFFFF is honored whatever the policy, unless it is to be ignored.
#[test]
fn a_full_sync_syncs_under_every_policy() {
    const FULL: RequestFlags = RequestFlags {
        full_sync: true,
        ..PLAIN
    };
    for policy in ["honor", "strict-sync", HOST, BOUNDED] {
        world(policy, Limits::default(), move |w| async move {
            let (f, d) = (file(5), dir(10));
            w.create(&f, &d).await.unwrap();
            w.write(&f, 0, 1).await.unwrap();
            w.fake.take_log();
            let full = |target| w.gate.flush(&f, target, FULL);
            drop(full(FlushTarget::File).await.unwrap());
            let log = w.fake.take_log();
            assert!(log[0].starts_with("all 5"), "{policy}: {log:?}");
            assert_eq!(w.gate.exposure(), Exposure::default());
            let relaxed = policy == HOST || policy == BOUNDED;
            assert_eq!(log.len() == 2, policy != "strict-sync", "{log:?}");
            w.gate.set_options(ShareDurability {
                ignore_full_sync: true,
                ..w.gate.settings()
            });
            w.write(&f, 0, 1).await.unwrap();
            w.fake.take_log();
            drop(full(FlushTarget::File).await.unwrap());
            assert_eq!(w.fake.take_log().is_empty(), relaxed, "{policy}");
        });
    }
}

/// A request that is answered before the disk still fails if a failure of the inode is known.
#[test]
fn write_through_of_a_poisoned_inode_fails_under_every_policy() {
    for policy in [HOST, BOUNDED] {
        honor(move |w| async move {
            poisoned(&w).await;
            // An administrator insists on the policy; the inode is as unproven as before.
            drop(w.gate.set_policy(policy.parse().unwrap(), "test").await);
            for flags in [THROUGH, OPEN_THROUGH] {
                assert_eq!(w.write_as(&file(5), 9, 1, flags).await, IO, "{policy}");
            }
            assert_eq!(w.flush(&file(5)).await, IO);
            assert_eq!(w.gate.closed(&file(5), PLAIN).await.err(), IO.err());
            // Nobody asked for stability: nothing is claimed.
            assert_eq!(w.write(&file(5), 9, 1).await, Ok(()));
        });
    }
}

/// The names of a new directory's whole path, however the file got dirty, and in this order.
#[test]
fn write_through_covers_new_directories_above() {
    honor(|w| async move {
        let (f, d, above, root) = (file(5), dir(10), dir(11), dir(1));
        w.create(&above, &root).await.unwrap();
        w.create(&d, &above).await.unwrap();
        w.create(&f, &d).await.unwrap();
        w.write_as(&f, 0, 1, THROUGH).await.unwrap();
        let log = w.fake.take_log();
        assert_eq!(log, ["dsync 5", "all 5", "all 10", "all 11", "all 1"]);
    });
}

/// A stream lives in an attribute or in a file of its own: never fdatasync.
#[test]
fn a_stream_is_never_synced_by_its_data_alone() {
    for policy in ["honor", "strict-sync"] {
        world(policy, Limits::default(), |w| async move {
            let s = stream(5, "s");
            let data = Bytes::from_static(&[1; 10]);
            drop(w.gate.write(&s, 0, data, THROUGH).await.unwrap());
            drop(w.gate.resized(&s, 0, PLAIN).await.unwrap());
            w.flush(&s).await.unwrap();
            let log = w.fake.take_log();
            assert!(log.iter().all(|call| !call.starts_with("data")), "{log:?}");
            assert!(log.iter().all(|call| !call.starts_with("dsync")), "{log:?}");
            assert!(log.iter().any(|call| call == "all 5:s"), "{log:?}");
        });
    }
}

/// Each dirty name holds a descriptor of its directory.
#[test]
fn names_that_are_dirty_are_limited() {
    honor(|w| async move {
        let f = file(5);
        let dirs: Vec<_> = (0..2000).map(|n| dir(100 + n)).collect();
        for d in &dirs {
            w.gate.linked(&f, d, PLAIN).await.unwrap();
        }
        let held = dirs.iter().filter(|d| d.held() > 1).count();
        assert!(held <= 17, "{held} directories are held for one file");
        w.flush(&f).await.unwrap();
        assert!(dirs.iter().all(|d| d.held() == 1));
    });
}
