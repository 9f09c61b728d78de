//! What moves between directories: at no time is it found under no name.

use std::{
    rc::Rc,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use vfs::{
    Env, Identity, IoAccess, Vfs, VfsError,
    posix::PosixVfs,
    sim::{Cut, Profile, SimDisk, SimOp},
};

use super::{
    fake::{ELSEWHERE, dir, file, key, stream},
    flush::{PLAIN, THROUGH, honor},
    sim::{TestEnv, ms},
    stores::{disk, run},
};
use crate::{share::lock, *};

const ME: &Identity = &Identity::Service;

#[test]
fn the_way_to_where_it_went_goes_before_the_directory_it_left() {
    honor(|w| async move {
        let (root, old, new, f) = (dir(1), dir(10), dir(11), file(5));
        w.write(&f, 0, 1).await.unwrap();
        w.flush(&f).await.unwrap();
        w.create(&new, &root).await.unwrap();
        w.rename(&f, &old, &new).await.unwrap();
        w.fake.take_log();
        w.flush(&f).await.unwrap();
        assert_eq!(w.fake.take_log(), ["all 5", "all 11", "all 1", "all 10"]);
        let (new, above, g) = (dir(12), dir(13), file(6));
        w.create(&above, &root).await.unwrap();
        w.create(&new, &above).await.unwrap();
        w.rename(&g, &old, &new).await.unwrap();
        w.fake.take_log();
        w.flush(&old).await.unwrap();
        assert_eq!(w.fake.take_log(), ["all 12", "all 13", "all 1", "all 10"]);
        // The moved file's own name is still owed, in the new directory and the old.
        w.flush(&g).await.unwrap();
        assert_eq!(w.engine.dirty_inodes(), 0);
    });
}

#[test]
fn a_directory_that_moved_is_part_of_the_path_of_what_is_below() {
    honor(|w| async move {
        let (root, a, b, f, g) = (dir(1), dir(10), dir(11), file(5), file(6));
        for node in [&f, &g] {
            w.create(node, &b).await.unwrap();
            w.flush(node).await.unwrap();
        }
        w.rename(&b, &root, &a).await.unwrap();
        w.fake.take_log();
        w.flush(&f).await.unwrap();
        assert_eq!(w.fake.take_log(), ["all 5", "all 10", "all 1"]);
        w.flush(&f).await.unwrap();
        assert_eq!(w.fake.take_log(), ["all 5"], "once");
        assert!(w.fake.is_stable_in(1) && w.fake.is_stable_in(10));
        // A durable write promises the path as well.
        w.rename(&b, &a, &root).await.unwrap();
        w.write_as(&g, 0, 1, THROUGH).await.unwrap();
        assert!(w.fake.is_stable_in(1) && w.fake.is_stable_in(10));
    });
}

#[test]
fn a_directory_that_was_not_synced_makes_no_name_stable() {
    honor(|w| async move {
        let (root, a, f) = (dir(1), dir(10), file(5));
        w.create(&a, &root).await.unwrap();
        w.create(&f, &a).await.unwrap();
        w.flush(&f).await.unwrap();
        w.rename(&a, &root, &root).await.unwrap();
        w.fake.take_log();
        // Nothing is known of it that would have to be synced, and nobody brings it along.
        w.engine.barrier(key(1), None).await.unwrap();
        assert!(w.fake.take_log().is_empty());
        w.flush(&f).await.unwrap();
        assert_eq!(w.fake.take_log(), ["all 5", "all 1"]);
    });
}

#[test]
fn names_moved_both_ways_end() {
    honor(|w| async move {
        let (root, a, b) = (dir(1), dir(10), dir(11));
        w.create(&a, &root).await.unwrap();
        w.create(&b, &root).await.unwrap();
        w.rename(&file(5), &a, &b).await.unwrap();
        w.rename(&file(6), &b, &a).await.unwrap();
        w.rename(&b, &root, &a).await.unwrap();
        for node in [&file(5), &file(6), &a, &b] {
            w.flush(node).await.unwrap();
        }
        assert_eq!(w.engine.dirty_inodes(), 0);
    });
}

/// A FLUSH has planned to sync the directory that another file leaves meanwhile.
#[test]
fn nothing_leaves_a_directory_between_a_plan_and_its_syncs() {
    for at in 0..12 {
        honor(move |w| async move {
            let (old, between, new) = (dir(10), dir(12), dir(11));
            let (f, g) = (file(5), file(6));
            w.write(&f, 0, 1).await.unwrap();
            w.create(&f, &old).await.unwrap();
            w.rename(&f, &old, &between).await.unwrap();
            let flusher = Rc::clone(&w);
            w.env.spawn(Box::pin(async move {
                flusher.flush(&f).await.unwrap();
            }));
            w.env.sleep(ms(3 * at)).await;
            let mover = Rc::clone(&w);
            w.env.spawn(Box::pin(async move {
                let moving = mover.gate.begin_move(&old, &new, None).await;
                // The move itself takes its time.
                mover.env.sleep(ms(1)).await;
                let names = (mover.fake.name(old.ino), mover.fake.name(new.ino));
                mover.env.sleep(ms(4)).await;
                let watcher = Rc::clone(&mover);
                mover.env.spawn(Box::pin(async move {
                    for _ in 0..100 {
                        let stable = |name| lock(&watcher.fake.state).names[&name].1;
                        assert!(stable(names.1) || !stable(names.0), "under no name");
                        watcher.env.sleep(ms(1)).await;
                    }
                }));
                drop(moving.renamed(&g, PLAIN).await.unwrap());
                mover.flush(&g).await.unwrap();
            }));
            w.env.sleep(ms(200)).await;
            assert_eq!(w.engine.dirty_inodes(), 0);
        });
    }
}

/// Who pays.
#[derive(Clone, Copy)]
enum Paid {
    FlushOfFile,
    FlushOfOldDirectory,
    Background,
}

#[test]
fn a_flushed_file_that_moves_is_found_under_a_name_at_every_sync() {
    for paid in [
        Paid::FlushOfFile,
        Paid::FlushOfOldDirectory,
        Paid::Background,
    ] {
        let images = images(paid);
        assert!(images.len() > 4, "the end and each sync before it");
        for (number, image) in images.into_iter().enumerate() {
            let env = Arc::new(TestEnv::default());
            let seen = run(&env, async move {
                let vfs = PosixVfs::new(image, Default::default()).await.unwrap();
                let mut seen = 0;
                for path in [&["a", "f"][..], &["c", "b", "f"]] {
                    let path: Vec<String> = path.iter().map(|name| (*name).to_owned()).collect();
                    let found = vfs.lookup(ME, &path).await;
                    seen += usize::from(found.is_ok_and(|found| found.found.is_some()));
                }
                seen
            });
            assert!(seen > 0, "gone if the power fails before sync {number}");
        }
    }
}

/// A flushed file moves into a new directory of a new directory; what the disk holds at least
/// before each sync of the payment, and after it.
fn images(paid: Paid) -> Vec<SimDisk> {
    let disk = disk(Profile::PosixMin);
    let env = Arc::new(TestEnv::default());
    let (on, at) = (disk.clone(), Arc::clone(&env));
    let images: Arc<Mutex<Vec<SimDisk>>> = Arc::default();
    let into = Arc::clone(&images);
    run(&env, async move {
        let vfs = Arc::new(PosixVfs::new(on.clone(), Default::default()).await.unwrap());
        let engine = Durability::<PosixVfs<SimDisk>>::new(
            Arc::clone(&at) as Arc<dyn Env>,
            Limits::default(),
        );
        let settings = ShareDurability::with_policy(Policy::Honor);
        let gate = engine.share("s", Arc::clone(&vfs), settings);
        let (root, none) = (vfs.root(), Default::default());
        let a = vfs.create_directory(ME, &root, "a", &none).await.unwrap().0;
        drop(gate.created(&a, &root, PLAIN).await.unwrap());
        let f = vfs.create_file(ME, &a, "f", &none).await.unwrap().0;
        drop(gate.created(&f, &a, PLAIN).await.unwrap());
        let access = IoAccess {
            read: true,
            write: true,
        };
        let io = vfs.open(ME, &f, access).await.unwrap();
        let data = Bytes::from(vec![7; 4096]);
        drop(gate.write(&io, 0, data, PLAIN).await.unwrap());
        drop(gate.flush(&io, FlushTarget::File, PLAIN).await.unwrap());
        let c = vfs.create_directory(ME, &root, "c", &none).await.unwrap().0;
        drop(gate.created(&c, &root, PLAIN).await.unwrap());
        let b = vfs.create_directory(ME, &c, "b", &none).await.unwrap().0;
        drop(gate.created(&b, &c, PLAIN).await.unwrap());
        vfs.rename(ME, &f, &a, "f", &b, "f", None).await.unwrap();
        drop(gate.renamed(&f, &a, &b, PLAIN).await.unwrap());
        let (cut, keep) = (on.clone(), Arc::clone(&into));
        on.set_hook(Some(Arc::new(move |op| {
            if op == SimOp::Sync {
                lock(&keep).push(cut.cut(Cut::Nothing));
            }
            None
        })));
        let parent = Some(root.clone());
        match paid {
            Paid::FlushOfFile => drop(gate.flush(&io, FlushTarget::File, PLAIN).await.unwrap()),
            Paid::FlushOfOldDirectory => drop(
                gate.flush(&a, FlushTarget::Directory { parent }, PLAIN)
                    .await
                    .unwrap(),
            ),
            Paid::Background => assert_eq!(engine.sync_all().await.failed, 0),
        }
        on.set_hook(None);
        lock(&into).push(on.cut(Cut::Nothing));
    });
    std::mem::take(&mut *lock(&images))
}

/// The sync of a directory's stream is that of the directory.
#[test]
fn a_directory_whose_stream_could_not_be_synced_owes_its_names_for_good() {
    honor(|w| async move {
        let (d, f) = (dir(10), file(5));
        w.create(&f, &d).await.unwrap();
        w.fake.script(10, &[Err(VfsError::Io)]);
        assert_eq!(w.flush(&stream(10, "s")).await, Err(VfsError::Io));
        assert_eq!(w.flush(&f).await, Err(VfsError::Io), "its name is lost");
        assert_eq!(w.flush(&f).await, Err(VfsError::Io), "and stays lost");
    });
}

/// A barrier that came while the directory was synced already, and whose own turn had nothing left
/// to sync, brings nothing along for what went elsewhere.
#[test]
fn a_sync_that_was_not_done_makes_no_name_of_what_moved_out_stable() {
    honor(|w| async move {
        let (d, t, f) = (dir(10), dir(11), file(5));
        w.create(&t, &d).await.unwrap();
        w.flush(&t).await.unwrap();
        w.rename(&f, &d, &t).await.unwrap();
        let payer = Rc::clone(&w);
        w.env.spawn(Box::pin(async move {
            payer.engine.barrier(key(10), None).await.unwrap();
        }));
        // The new place took ten milliseconds: the directory itself is under sync.
        w.env.sleep(ms(15)).await;
        w.rename(&t, &d, &d).await.unwrap();
        w.engine.barrier(key(10), None).await.unwrap();
        w.fake.take_log();
        w.flush(&t).await.unwrap();
        let log = w.fake.take_log();
        assert!(log.contains(&"all 10".to_owned()), "{log:?}");
    });
}

#[test]
fn below_a_directory_whose_move_is_lost_nothing_is_promised() {
    honor(|w| async move {
        let (root, a, m, f) = (dir(1), dir(10), dir(11), file(5));
        w.create(&f, &m).await.unwrap();
        w.flush(&f).await.unwrap();
        w.rename(&m, &root, &a).await.unwrap();
        w.fake.script(10, &[Err(VfsError::Io)]);
        for _ in 0..3 {
            assert_eq!(w.flush(&f).await, Err(VfsError::Io));
        }
        let through = w.write_as(&file(6), 0, 1, THROUGH).await;
        assert_eq!(through, Err(VfsError::Io), "it may be below as well");
        // It moves again, and that is proven.
        w.rename(&m, &a, &root).await.unwrap();
        w.flush(&f).await.unwrap();
        // Once more; an administrator accepts the loss.
        w.rename(&m, &root, &a).await.unwrap();
        w.fake.script(10, &[Err(VfsError::Io)]);
        w.flush(&file(6)).await.unwrap_err();
        w.flush(&f).await.unwrap_err();
        assert!(w.gate.clear_latch(key(11)));
        w.flush(&f).await.unwrap();
    });
}

/// f was flushed in X, moved to T and on to U; T goes.
#[test]
fn a_directory_in_the_middle_of_the_way_may_go() {
    honor(|w| async move {
        let (root, x, t, u, f) = (dir(1), dir(10), dir(11), dir(12), file(5));
        w.create(&f, &x).await.unwrap();
        w.flush(&f).await.unwrap();
        w.rename(&f, &x, &t).await.unwrap();
        w.rename(&f, &t, &u).await.unwrap();
        w.gate.removed(&t, &root, PLAIN).await.unwrap();
        w.fake.take_log();
        w.flush(&x).await.unwrap();
        let log = w.fake.take_log();
        let place = |what: &str| log.iter().position(|line| line == what);
        assert!(
            place("all 12").is_some() && place("all 12") < place("all 10"),
            "{log:?}"
        );
    });
}

#[test]
fn a_directory_goes_while_none_is_synced() {
    honor(|w| async move {
        let (p, x, y, f, g) = (dir(1), dir(10), dir(12), file(5), file(6));
        w.write(&g, 0, 1).await.unwrap();
        w.create(&y, &p).await.unwrap();
        w.create(&g, &y).await.unwrap();
        let begun = w.env.monotonic();
        let flusher = Rc::clone(&w);
        w.env.spawn(Box::pin(async move {
            flusher.flush(&g).await.unwrap();
        }));
        w.env.sleep(ms(15)).await;
        // A file that has no other name waits for nobody.
        drop(w.gate.begin_removal(&f, &x).await);
        assert_eq!(w.env.monotonic(), begun + ms(15));
        let removal = w.gate.begin_removal(&x, &p).await;
        assert_eq!(w.env.monotonic(), begun + ms(30), "the file, y, p");
        removal.removed(PLAIN).await.unwrap();
    });
}

#[test]
fn another_name_is_on_disk_before_one_goes() {
    honor(|w| async move {
        let (x, t, f) = (dir(10), dir(11), file(5));
        w.create(&f, &x).await.unwrap();
        w.flush(&f).await.unwrap();
        lock(&w.fake.state).links.insert(5, 2);
        w.gate.begin().linked(&f, &t, PLAIN).await.unwrap();
        lock(&w.fake.state).links.insert(5, 1);
        w.fake.take_log();
        w.gate.removed(&f, &x, THROUGH).await.unwrap();
        assert_eq!(w.fake.take_log(), ["all 11", "all 10"]);
    });
}

#[test]
fn what_is_deleted_for_good_comes_back_under_no_earlier_name() {
    honor(|w| async move {
        let (a, b, f) = (dir(10), dir(11), file(5));
        w.rename(&f, &a, &b).await.unwrap();
        lock(&w.fake.state).links.insert(5, 0);
        w.fake.take_log();
        w.gate.removed(&f, &b, THROUGH).await.unwrap();
        let log = w.fake.take_log();
        assert!(
            log.contains(&"all 10".to_owned()) && log.contains(&"all 11".to_owned()),
            "{log:?}"
        );
    });
}

#[test]
fn a_directory_that_moved_may_have_another_file_system_below() {
    honor(|w| async move {
        let (root, a, m, f) = (dir(1), dir(10), dir(11), file(ELSEWHERE + 5));
        w.rename(&m, &root, &a).await.unwrap();
        w.fake.take_log();
        w.flush(&f).await.unwrap();
        let log = w.fake.take_log();
        assert_eq!(log[1..], ["all 10", "all 1"], "{log:?}");
    });
}

#[test]
fn what_goes_the_other_way_waits_until_no_order_is_needed() {
    honor(|w| async move {
        let (a, b, f, g) = (dir(10), dir(11), file(5), file(6));
        for (node, dir) in [(&f, &a), (&g, &b)] {
            w.create(node, dir).await.unwrap();
            w.flush(node).await.unwrap();
        }
        w.rename(&f, &a, &b).await.unwrap();
        w.fake.take_log();
        w.rename(&f, &b, &a).await.unwrap();
        assert_eq!(w.fake.take_log(), ["all 11", "all 10"], "f is in b first");
        w.rename(&g, &b, &dir(12)).await.unwrap();
        w.rename(&f, &a, &dir(13)).await.unwrap();
        assert!(w.fake.take_log().is_empty(), "other ways are free");
        // Through a third: 13 goes before a, which goes before b.
        w.rename(&file(7), &dir(13), &b).await.unwrap();
        assert_eq!(w.fake.take_log(), ["all 13", "all 10"]);
    });
}

/// A directory whose sync failed has lost what was made in it, whatever becomes of its own name.
#[test]
fn a_directory_that_moves_has_still_lost_what_was_in_it() {
    honor(|w| async move {
        let (root, to, d, f) = (dir(1), dir(12), dir(10), file(5));
        w.create(&d, &root).await.unwrap();
        w.create(&f, &d).await.unwrap();
        w.fake.script(10, &[Err(VfsError::Io)]);
        assert_eq!(w.flush(&f).await, Err(VfsError::Io));
        w.rename(&d, &root, &to).await.unwrap();
        assert_eq!(w.flush(&d).await, Err(VfsError::Io));
    });
}

#[test]
fn a_directory_that_may_come_back_takes_what_is_below_along() {
    honor(|w| async move {
        let (old, new, d, f) = (dir(10), dir(11), dir(12), file(5));
        w.rename(&d, &old, &new).await.unwrap();
        w.fake.script(10, &[Err(VfsError::Io)]);
        assert_eq!(
            w.flush(&d).await,
            Err(VfsError::Io),
            "it may come back there"
        );
        assert_eq!(w.flush(&f).await, Err(VfsError::Io), "under its old path");
    });
}

#[test]
fn what_is_below_a_lost_directory_is_promised_by_no_policy() {
    honor(|w| async move {
        let lazy = ShareDurability::with_policy("bounded:50ms,64KiB".parse().unwrap());
        let other = w.engine.share("other", Arc::clone(&w.fake), lazy);
        let (root, a, m, f) = (dir(1), dir(10), dir(11), file(5));
        w.rename(&m, &root, &a).await.unwrap();
        w.fake.script(10, &[Err(VfsError::Io)]);
        w.flush(&m).await.unwrap_err();
        drop(other.content_changed(&f, 7).await);
        let told = other.flush(&f, FlushTarget::File, PLAIN).await;
        assert_eq!(told.err(), Some(VfsError::Io));
        let closed = w.gate.closed(&f, PLAIN).await;
        assert!(closed.is_ok(), "nothing is promised by a CLOSE");
        // Who suffers by it is shown it, and may end it.
        assert!(other.latched().iter().any(|latched| latched.key == key(11)));
        assert!(other.clear_latch(key(11)));
        drop(other.flush(&f, FlushTarget::File, PLAIN).await.unwrap());
    });
}

#[test]
fn a_file_system_that_hangs_below_a_share_holds_up_none_above() {
    honor(|w| async move {
        let (a, b, f, g) = (dir(10), dir(11), file(5), file(ELSEWHERE + 5));
        w.create(&g, &dir(ELSEWHERE + 10)).await.unwrap();
        lock(&w.fake.times).sync = ms(1_000_000);
        let hung = Rc::clone(&w);
        w.env.spawn(Box::pin(async move {
            let _ = hung.flush(&g).await;
        }));
        w.env.sleep(ms(5)).await;
        lock(&w.fake.times).sync = ms(10);
        w.rename(&f, &a, &b).await.unwrap();
        let begun = w.env.monotonic();
        w.flush(&f).await.unwrap();
        assert!(w.env.monotonic() < begun + ms(100));
    });
}
