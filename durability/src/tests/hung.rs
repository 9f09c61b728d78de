//! A disk that hangs, or is merely slow, holds up nothing on another one.

use std::{cell::Cell, rc::Rc, sync::Arc};

use bytes::Bytes;
use vfs::{Env, VfsError};

use super::{
    fake::{ELSEWHERE, Fake, file, stream},
    flush::{PLAIN, World, world},
    opens::opener,
    sim::ms,
};
use crate::{share::lock, *};

/// A share on another file system whose syncs take `sync` ms, with this many inodes dirty.
async fn busy(w: &World, sync: u64, inodes: u64) -> Arc<Gate<Fake>> {
    let slow = Fake::new(&w.env, ms(sync), ms(0));
    let settings = ShareDurability::with_policy(Policy::Honor);
    let other = w.engine.share("another", slow, settings);
    for n in 0..inodes {
        let data = Bytes::from(vec![1; 4096]);
        drop(
            other
                .write(&file(ELSEWHERE + n), 0, data, PLAIN)
                .await
                .unwrap(),
        );
    }
    other
}

#[test]
fn a_bound_is_kept_beside_a_disk_that_hangs() {
    world("bounded:200ms,64MiB", Limits::default(), |w| async move {
        let _other = busy(&w, 3_600_000, 40).await;
        // Everything there is due, and syncs of it use up all that may be in flight.
        w.env.sleep(ms(31_000)).await;
        w.write(&file(5), 0, 1).await.unwrap();
        w.flush(&file(5)).await.unwrap();
        for _ in 0..20 {
            w.env.sleep(ms(50)).await;
            assert!(w.gate.exposure().oldest_age <= ms(200));
        }
        let page = lock(&w.fake.state).pages[&(5, 0)];
        assert_eq!(page.durable, page.live);
    });
}

/// A file system may be mounted in the folder of a share, and its bytes are within the bound.
#[test]
fn a_disk_that_hangs_in_a_bounded_share_holds_back_no_other_in_it() {
    let limits = Limits {
        syncs_in_flight_max: 4,
        ..Limits::default()
    };
    world("bounded:200ms,64MiB", limits, |w| async move {
        let hung = Fake::new(&w.env, ms(3_600_000), ms(0));
        let mounted = w.engine.share(w.gate.name(), hung, w.gate.settings());
        for n in 0..40 {
            let mounted = Arc::clone(&mounted);
            w.env.spawn(Box::pin(async move {
                let data = Bytes::from(vec![1; 4096]);
                drop(mounted.write(&file(ELSEWHERE + n), 0, data, PLAIN).await);
            }));
        }
        w.env.sleep(ms(1_000)).await;
        assert!(w.gate.exposure().oldest_age >= ms(1_000));
        let begun = w.env.monotonic();
        for ino in 100..120 {
            w.write(&file(ino), 0, 1).await.unwrap();
            w.flush(&file(ino)).await.unwrap();
        }
        assert!(w.env.monotonic() - begun < ms(2_000));
        w.env.sleep(ms(200)).await;
        let state = lock(&w.fake.state);
        assert!(state.pages.values().all(|page| page.durable == page.live));
    });
}

/// Each write fits the bound of its own share, and is late under that of the other one: on each file system one of
/// the two has a change that no sync makes stable.
#[test]
fn writes_that_wait_for_two_hung_disks_do_not_wake_each_other() {
    world("bounded:200ms,64MiB", Limits::default(), |w| async move {
        lock(&w.fake.times).sync = ms(3_600_000);
        let other = w
            .engine
            .share("other", Arc::clone(&w.fake), w.gate.settings());
        let answered = Rc::new(Cell::new(0));
        let write = |gate: &Arc<Gate<Fake>>, ino| {
            let (gate, answered) = (Arc::clone(gate), Rc::clone(&answered));
            w.env.spawn(Box::pin(async move {
                let data = Bytes::from(vec![1; 4096]);
                drop(gate.write(&file(ino), 0, data, PLAIN).await);
                answered.set(answered.get() + 1);
            }));
        };
        write(&w.gate, ELSEWHERE);
        write(&other, 5);
        w.env.sleep(ms(1_000)).await;
        let before = answered.get();
        let opens = [
            other.opened(&file(6), opener("here")),
            w.gate.opened(&file(ELSEWHERE + 1), opener("elsewhere")),
        ];
        write(&w.gate, 6);
        write(&other, ELSEWHERE + 1);
        w.env.sleep(ms(1_000)).await;
        assert_eq!((before, answered.get()), (2, 2), "the later two wait");
        drop(opens);
    });
}

#[test]
fn a_bound_is_kept_beside_a_long_backlog() {
    world("bounded:200ms,64MiB", Limits::default(), |w| async move {
        let _other = busy(&w, 40, 1000).await;
        w.env.sleep(ms(29_000)).await;
        for _ in 0..40 {
            w.write(&file(6), 0, 1).await.unwrap();
            w.flush(&file(6)).await.unwrap();
            for _ in 0..10 {
                w.env.sleep(ms(10)).await;
                assert!(w.gate.exposure().oldest_age <= ms(200));
            }
        }
        assert_eq!(w.gate.counters().bound_exceeded, 0);
    });
}

#[test]
fn a_table_full_of_dirty_files_of_a_hung_disk_holds_no_other_back() {
    let limits = Limits {
        dirty_inodes_max: 64,
        ..Limits::default()
    };
    world("honor", limits, |w| async move {
        let other = busy(&w, 86_400_000, 64).await;
        let answered = Rc::new(Cell::new(0));
        for n in 64..70 {
            let (other, answered) = (Arc::clone(&other), Rc::clone(&answered));
            w.env.spawn(Box::pin(async move {
                let data = Bytes::from(vec![1; 4096]);
                drop(other.write(&file(ELSEWHERE + n), 0, data, PLAIN).await);
                answered.set(answered.get() + 1);
            }));
        }
        w.env.sleep(ms(1_000)).await;
        assert_eq!(answered.get(), 0, "the hung disk's own are held back");
        let begun = w.env.monotonic();
        for ino in 100..130 {
            w.write(&file(ino), 0, 1).await.unwrap();
            assert!(
                w.engine.dirty_inodes() <= 70 + 4 + 1,
                "{}",
                w.engine.dirty_inodes()
            );
        }
        assert!(w.env.monotonic() - begun < ms(2_000));
        // A change of policy, or a flush of the share's root, is about its own.
        let report = w.gate.set_policy(Policy::StrictSync, "test").await;
        assert_eq!(report.failed, 0);
    });
}

/// One sync of an inode has two parts, its stream and itself. The first fails, the second hangs.
#[test]
fn a_failure_is_known_before_the_rest_of_the_sync_has_ended() {
    world(
        "treat-host-as-stable-storage",
        Limits::default(),
        |w| async move {
            let s = stream(5, "s");
            w.write(&s, 0, 1).await.unwrap();
            w.fake.script(5, &[Err(VfsError::ReadOnly)]);
            let engine = Arc::clone(&w.engine);
            w.env
                .spawn(Box::pin(async move { drop(engine.sync_all().await) }));
            w.env.sleep(ms(5)).await;
            lock(&w.fake.times).sync = ms(3_600_000);
            w.env.sleep(ms(10)).await;
            assert_eq!(w.gate.poisoned().len(), 1);
            assert_eq!(w.gate.effective_policy(), Policy::Honor);
            assert_eq!(w.gate.counters().syncs_failed, 1);
            assert_eq!(w.flush(&s).await, Err(VfsError::ReadOnly));
        },
    );
}
