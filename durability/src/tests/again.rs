//! Tests of requests that are made twice, come back, or are cut off in the middle.

use std::{
    pin::pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use tokio::sync::oneshot;
use vfs::{Env, VfsError, requester::Requester};

use super::{
    fake::file,
    flush::{PLAIN, THROUGH, World, honor, world},
    sim::ms,
};
use crate::{share::lock, *};

const IO: Result<(), VfsError> = Err(VfsError::Io);
const HOST: &str = "treat-host-as-stable-storage";
const FULL: RequestFlags = RequestFlags {
    full_sync: true,
    ..PLAIN
};

pub(super) async fn fail(w: &World, gate: &Gate<super::fake::Fake>, ino: u64) {
    let data = Bytes::from(vec![1; 4096]);
    drop(gate.write(&file(ino), 0, data, PLAIN).await.unwrap());
    w.fake.script(ino, &[IO]);
    let flushed = gate.flush(&file(ino), FlushTarget::File, FULL).await;
    assert_eq!(flushed.err(), Some(VfsError::Io));
}

#[test]
fn a_policy_set_twice_is_reported_twice_when_it_holds() {
    for (first, policy) in [(HOST, "honor"), ("bounded:30s,64MiB", "bounded:20s,64MiB")] {
        world(first, Limits::default(), |w| async move {
            lock(&w.fake.times).sync = ms(1_000);
            w.write(&file(5), 0, 1).await.unwrap();
            w.flush(&file(5)).await.unwrap();
            let policy: Policy = policy.parse().unwrap();
            let v = Rc::clone(&w);
            // The request is given up before its result is reported: the administrator pressed ^C.
            w.env.spawn(Box::pin(async move {
                drop(v.gate.set_policy(policy, "first").await);
            }));
            w.env.sleep(ms(100)).await;
            let report = w.gate.set_policy(policy, "second").await;
            assert_eq!((report.failed, w.gate.exposure().bytes), (0, 0));
        });
    }
}

#[test]
fn a_share_that_comes_back_remembers_what_failed() {
    world(HOST, Limits::default(), |w| async move {
        let share = || {
            let settings = ShareDurability::with_policy(Policy::TreatHostAsStableStorage);
            w.engine.share("x", Arc::clone(&w.fake), settings)
        };
        let x = share();
        fail(&w, &x, 5).await;
        drop(x);
        // Another one is added meanwhile.
        let settings = ShareDurability::default();
        drop(w.engine.share("y", Arc::clone(&w.fake), settings));
        let x = share();
        assert_eq!(x.effective_policy(), Policy::Honor);
        assert_eq!(x.exposure().poisoned_inodes, 1);
        assert_eq!((x.poisoned().len(), x.clear_latches()), (1, 1));
        assert_eq!(x.effective_policy(), Policy::TreatHostAsStableStorage);
        drop(x);
        assert!(w.engine.write_back_lost("share"));
    });
}

/// A reload may change the case of a share's name while the former share has opens.
#[test]
fn a_share_is_found_by_its_name_in_any_case() {
    world(HOST, Limits::default(), |w| async move {
        let settings = ShareDurability::default();
        let gate = w.engine.share("SHARE", Arc::clone(&w.fake), settings);
        assert_eq!((gate.name(), w.gate.name()), ("SHARE", "share"));
        // The journal knows the shares by the names of the configuration.
        assert_eq!(w.engine.exposure_of("SHARE").unwrap().share, "SHARE");
        assert!(w.engine.write_back_lost("SHARE"));
        assert_eq!(gate.effective_policy(), Policy::Honor);
        w.engine.restore_latch(&LatchRecord {
            shares: vec!["Share".to_owned()],
            ..LatchRecord::whole(file(5).key_of(), VfsError::Io)
        });
        assert_eq!(w.gate.exposure().poisoned_inodes, 1);
    });
}

#[test]
fn a_trip_ends_with_the_latches_that_caused_it() {
    world(HOST, Limits::default(), |w| async move {
        let lazy = Policy::TreatHostAsStableStorage;
        fail(&w, &w.gate, 5).await;
        fail(&w, &w.gate, 6).await;
        for ino in [5, 6] {
            assert_eq!(w.gate.effective_policy(), Policy::Honor);
            w.write(&file(ino), 0, 1).await.unwrap();
            w.flush(&file(ino)).await.unwrap();
        }
        assert_eq!(w.gate.effective_policy(), lazy, "repaired");
        // A loss of an unknown file, which no repair and no deletion of a file ends.
        assert!(w.engine.write_back_lost("share"));
        fail(&w, &w.gate, 5).await;
        w.write(&file(5), 0, 1).await.unwrap();
        w.flush(&file(5)).await.unwrap();
        assert!(w.gate.poisoned().is_empty());
        fail(&w, &w.gate, 6).await;
        lock(&w.fake.state).links.insert(6, 0);
        let at = super::fake::dir(10);
        drop(w.gate.replaced(&file(6), &at, PLAIN).await);
        assert!(w.gate.poisoned().is_empty());
        assert_eq!(w.gate.effective_policy(), Policy::Honor);
        assert_eq!(w.gate.clear_latches(), 0);
        assert_eq!(w.gate.effective_policy(), lazy, "accepted");
        assert!(w.engine.write_back_lost("share"));
        w.gate.set_policy(lazy, "somebody").await;
        assert_eq!(w.gate.effective_policy(), lazy, "set");
    });
}

/// The descriptors that are held may report a loss that no descriptor of a later server does.
#[test]
fn everything_dirty_is_synced_when_an_unknown_file_has_lost_something() {
    honor(|w| async move {
        w.write(&file(5), 0, 1).await.unwrap();
        w.env.sleep(ms(100)).await;
        assert_eq!(w.engine.dirty_inodes(), 1);
        assert!(!w.engine.write_back_lost("share"), "nothing is lazy");
        w.env.sleep(ms(100)).await;
        assert_eq!(w.engine.dirty_inodes(), 0);
    });
}

#[test]
fn a_durable_write_whose_end_nobody_saw_counts_as_failed() {
    honor(|w| async move {
        let f = file(5);
        w.write(&f, 100, 1).await.unwrap();
        {
            let data = Bytes::from(vec![1; 4096]);
            let mut write = pin!(w.gate.write(&f, 0, data, THROUGH));
            let mut context = Context::from_waker(Waker::noop());
            assert!(matches!(write.as_mut().poll(&mut context), Poll::Pending));
        }
        assert_eq!(w.gate.poisoned()[0].unproven_bytes(), 2 * 4096);
        assert_eq!(w.flush(&f).await, IO);
        w.write(&f, 0, 1).await.unwrap();
        w.write(&f, 100, 1).await.unwrap();
        assert_eq!(w.flush(&f).await, Ok(()));
    });
}

#[test]
fn a_sync_whose_worker_is_gone_counts_as_failed() {
    honor(|w| async move {
        let (f, key) = (file(5), file(5).key_of());
        w.write(&f, 0, 1).await.unwrap();
        // The sync is begun by a worker that dies in the middle of it.
        let take = |key| {
            let (tx, outcome) = oneshot::channel();
            let job = w.engine.with(key, |inode| {
                let driver = inode.ask(None, oneshot::channel().0, Requester::SERVER);
                assert_eq!(driver, None, "one must be started");
                let job = inode.take_job(|| (0, ms(0)));
                inode.ask(None, tx, Requester::SERVER);
                job
            });
            (job, outcome)
        };
        let (job, outcome) = take(key);
        w.engine.abandon_sync(key);
        drop(job);
        assert!(outcome.await.is_err());
        assert_eq!(w.flush(&f).await, IO);
        // A sync that was asked for and never begun lost nothing.
        w.write(&file(6), 0, 1).await.unwrap();
        let six = file(6).key_of();
        let driver = w.engine.with(six, |inode| {
            inode.ask(None, oneshot::channel().0, Requester::SERVER)
        });
        assert_eq!(driver, None);
        w.engine.abandon_sync(six);
        assert_eq!(w.flush(&file(6)).await, Ok(()));
    });
}
