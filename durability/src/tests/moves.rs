//! Tests of moves between directories: at no time is a file found under no name, and what is below
//! a directory that moved is found where it went.

use std::{
    rc::Rc,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use vfs::{
    Contents, Creation, Directories, Env, Identity, IoAccess, Paths, RemovedName, VfsError, Volume,
    posix::PosixVfs,
    sim::{Cut, Profile, SimDisk, SimOp},
};

use super::{
    fake::{ELSEWHERE, Fake, FakeNode, dir, file, key, stream, unopened},
    flush::{PLAIN, THROUGH, World, honor, world},
    opens::opener,
    sim::{TestEnv, ms},
    stores::{disk, run},
};
use crate::{share::lock, *};

const ME: &Identity = &Identity::Service;
const IO: Result<(), VfsError> = Err(VfsError::Io);

/// As [`honor`], where the file system may keep half of a rename.
fn halves<F: Future<Output = ()> + 'static>(main: impl Fn(Rc<World>) -> F) {
    honor(|w| {
        lock(&w.fake.times).atomic = false;
        main(w)
    });
}

impl World {
    /// A share over the same folder that answers before the disk does.
    fn lazy(&self) -> Arc<Gate<Fake>> {
        let lazy = ShareDurability::with_policy(Policy::TreatHostAsStableStorage);
        self.engine.share("lazy", Arc::clone(&self.fake), lazy)
    }

    async fn rename_by(&self, gate: &Gate<Fake>, what: &FakeNode, ways: [&FakeNode; 2]) {
        self.fake.name(ways[0].ino);
        self.fake.name(ways[1].ino);
        drop(gate.renamed(what, ways[0], ways[1], PLAIN).await.unwrap());
    }

    /// Makes `what` be found at `path`, in the root or in a directory that has nothing else.
    pub(super) fn is_at(&self, what: &FakeNode, path: &str) {
        let mut state = lock(&self.fake.state);
        state.paths.insert(what.ino, path.into());
        let mut parent = 1;
        if let Some((above, _)) = path.rsplit_once('/') {
            parent = 100 + what.ino;
            state.paths.insert(parent, above.into());
        }
        state.parents.insert(what.ino, parent);
    }
}

#[test]
fn a_rename_that_may_be_halved_is_on_disk_before_its_answer_the_new_directory_first() {
    halves(|w| async move {
        let (root, old, new, f) = (dir(1), dir(10), dir(11), file(5));
        w.create(&new, &root).await.unwrap();
        w.fake.take_log();
        w.rename(&f, &old, &new).await.unwrap();
        assert_eq!(w.fake.take_log(), ["all 5", "all 11", "all 1", "all 10"]);
        w.rename(&f, &new, &new).await.unwrap();
        assert!(w.fake.take_log().is_empty(), "within one directory");
    });
    honor(|w| async move {
        w.rename(&file(5), &dir(10), &dir(11)).await.unwrap();
        assert!(w.fake.take_log().is_empty(), "renames are atomic");
    });
}

/// A program on the host that has a lease on a file delays the open for its sync.
#[test]
fn a_file_that_cannot_be_opened_yet_delays_no_other_rename() {
    halves(|w| async move {
        lock(&w.fake.times).open = ms(45_000);
        let beside = Rc::clone(&w);
        w.env.spawn(Box::pin(async move {
            let (leased, old, new) = (unopened(file(5)), dir(10), dir(11));
            let open = beside.gate.opened(&leased, opener("f"));
            assert!(beside.gate.needs_rename_lock(&old, &new));
            beside.gate.prepare_rename(&leased).await;
            beside.rename(&leased, &old, &new).await.unwrap();
            drop(open);
        }));
        w.env.sleep(ms(100)).await;
        let begun = w.env.monotonic();
        w.rename(&file(6), &dir(12), &dir(13)).await.unwrap();
        assert!(w.env.monotonic() < begun + ms(1000));
        w.fake.take_log();
        w.env.sleep(ms(46_000)).await;
        assert_eq!(w.fake.take_log(), ["all 5", "all 11", "all 10"]);
    });
}

/// The sync of a stream opens the file that has it, each time.
#[test]
fn a_stream_whose_file_cannot_be_opened_yet_delays_no_other_rename() {
    halves(|w| async move {
        lock(&w.fake.times).open = ms(45_000);
        let (leased, old, new) = (unopened(stream(5, "s")), dir(10), dir(11));
        w.write(&leased, 0, 1).await.unwrap();
        let beside = Rc::clone(&w);
        w.env.spawn(Box::pin(async move {
            beside.gate.prepare_rename(&file(5)).await;
            beside.rename(&file(5), &old, &new).await.unwrap();
        }));
        w.env.sleep(ms(100)).await;
        let begun = w.env.monotonic();
        w.rename(&file(6), &dir(12), &dir(13)).await.unwrap();
        assert!(w.env.monotonic() < begun + ms(1000));
        w.fake.take_log();
        w.env.sleep(ms(46_000)).await;
        assert_eq!(w.fake.take_log(), ["all 5:s", "all 5", "all 11", "all 10"]);
    });
}

#[test]
fn under_a_bound_it_is_on_disk_before_the_bound_ends() {
    halves(|w| async move {
        let bounded = ShareDurability::with_policy("bounded:500ms,64KiB".parse().unwrap());
        let other = w.engine.share("other", Arc::clone(&w.fake), bounded);
        w.rename_by(&other, &file(5), [&dir(10), &dir(11)]).await;
        w.rename_by(&other, &dir(12), [&dir(10), &dir(10)]).await;
        w.env.sleep(ms(500)).await;
        assert!(w.fake.is_stable_in(10) && w.fake.is_stable_in(11));
    });
}

#[test]
fn a_lazy_share_waits_only_for_the_rename_before() {
    halves(|w| async move {
        let lazy = w.lazy();
        let (a, b, c) = (dir(10), dir(11), dir(12));
        w.rename_by(&lazy, &file(5), [&a, &b]).await;
        assert!(w.fake.take_log().is_empty(), "nobody asked");
        w.rename_by(&lazy, &file(6), [&b, &c]).await;
        assert_eq!(w.fake.take_log(), ["all 5", "all 11", "all 10"]);
        // A FLUSH makes the outstanding moves stable before it promises anything.
        w.flush(&a).await.unwrap();
        assert_eq!(w.fake.take_log(), ["all 6", "all 12", "all 11", "all 10"]);
        assert_eq!(w.engine.dirty_inodes(), 0);
    });
}

/// The sync of a directory that was renamed beside it makes stable that the file has left.
#[test]
fn a_file_that_moves_is_on_disk_before_what_else_moved_in_its_old_directory() {
    for marked in [false, true] {
        halves(move |w| async move {
            let (lazy, old, new) = (w.lazy(), dir(10), dir(11));
            let (f, beside) = (file(5), dir(3));
            if marked {
                w.rename_by(&lazy, &f, [&old, &new]).await;
                w.rename_by(&lazy, &beside, [&old, &old]).await;
                w.flush(&new).await.unwrap();
            } else {
                let mut moving = w.gate.begin_rename(&old, &new, None).await.unwrap();
                w.rename_by(&lazy, &beside, [&old, &old]).await;
                drop(moving.renamed(&f, PLAIN).await.unwrap());
            }
            let log = w.fake.take_log();
            let moves = ["all 5", "all 11", "all 10", "all 3", "all 10"];
            assert_eq!(log[..5], moves);
        });
    }
}

/// Nothing is held of the directory whose barrier syncs another one that moved meanwhile.
#[test]
fn the_barrier_of_a_clean_directory_waits_for_a_rename_under_way_as_well() {
    halves(|w| async move {
        let (lazy, old, new) = (w.lazy(), dir(10), dir(11));
        let mut moving = w.gate.begin_rename(&old, &new, None).await.unwrap();
        w.rename_by(&lazy, &dir(3), [&old, &old]).await;
        let beside = Rc::clone(&w);
        w.env.spawn(Box::pin(async move {
            let gone = file(7);
            let receipt = beside.gate.removed_beside(&gone, key(12), THROUGH).await;
            drop(receipt.unwrap());
        }));
        w.env.sleep(ms(100)).await;
        assert_eq!(w.fake.take_log(), [""; 0]);
        drop(moving.renamed(&file(5), PLAIN).await.unwrap());
        w.env.sleep(ms(100)).await;
        assert_eq!(w.engine.dirty_inodes(), 0);
    });
}

/// The sync of its directory fails after the rename, before that is marked.
#[test]
fn a_move_that_is_lost_when_it_is_marked_is_not_outstanding() {
    honor(|w| async move {
        let (moved, parent) = (dir(3), dir(10));
        let mut moving = w.gate.begin_rename(&parent, &parent, None).await.unwrap();
        w.fake.script(10, &[IO]);
        assert_eq!(w.flush(&parent).await, IO);
        assert_eq!(moving.renamed(&moved, PLAIN).await.map(drop), IO);
        let outstanding = w.engine.moves.outstanding(key(3).fs);
        assert!(outstanding.is_empty());
    });
}

#[test]
fn a_stricter_policy_finds_all_moves_on_disk() {
    for atomic in [false, true] {
        honor(move |w| async move {
            lock(&w.fake.times).atomic = atomic;
            let lazy = w.lazy();
            w.rename_by(&lazy, &file(5), [&dir(10), &dir(11)]).await;
            w.rename_by(&lazy, &dir(12), [&dir(13), &dir(14)]).await;
            let report = lazy.set_policy(Policy::Honor, "test").await;
            assert_eq!(report.failed, 0);
            assert!((10..15).all(|at| w.fake.is_stable_in(at)));
            assert_eq!(w.engine.dirty_inodes(), 0);
        });
    }
}

#[test]
fn a_directory_that_moves_is_on_disk_before_its_answer() {
    honor(|w| async move {
        let (root, a, b, f) = (dir(1), dir(10), dir(11), file(5));
        w.create(&f, &b).await.unwrap();
        w.flush(&f).await.unwrap();
        w.fake.take_log();
        w.rename(&b, &root, &a).await.unwrap();
        assert_eq!(w.fake.take_log(), ["all 11", "all 10", "all 1"]);
        w.flush(&f).await.unwrap();
        assert_eq!(w.fake.take_log(), ["all 5"]);
        w.rename(&b, &a, &a).await.unwrap();
        assert!(w.fake.is_stable_in(10), "a new name in the same directory");
    });
}

#[test]
fn a_directory_that_moved_lazily_is_part_of_the_path_of_what_is_below() {
    honor(|w| async move {
        let (lazy, root, a, b) = (w.lazy(), dir(1), dir(10), dir(11));
        let (f, g, below) = (file(5), file(6), file(ELSEWHERE + 5));
        w.rename_by(&lazy, &b, [&root, &a]).await;
        assert!(w.fake.take_log().is_empty(), "nobody asked");
        w.flush(&f).await.unwrap();
        assert!(w.fake.is_stable_in(1) && w.fake.is_stable_in(10));
        w.fake.take_log();
        w.flush(&f).await.unwrap();
        assert_eq!(w.fake.take_log(), ["all 5"], "once");
        // A durable write promises the path as well, and so does a FLUSH of what is on a file
        // system that is mounted below.
        w.rename_by(&lazy, &b, [&a, &root]).await;
        w.write_as(&g, 0, 1, THROUGH).await.unwrap();
        assert!(w.fake.is_stable_in(1) && w.fake.is_stable_in(10));
        w.rename_by(&lazy, &b, [&root, &a]).await;
        w.flush(&below).await.unwrap();
        assert!(w.fake.is_stable_in(1) && w.fake.is_stable_in(10));
    });
}

#[test]
fn a_directory_that_was_not_synced_makes_no_name_stable() {
    honor(|w| async move {
        let (root, a) = (dir(1), dir(10));
        w.create(&a, &root).await.unwrap();
        w.fake.take_log();
        // Nothing of it is known to need a sync, and no node of it is passed.
        w.engine.barrier(key(1), None).await.unwrap();
        assert!(w.fake.take_log().is_empty());
        w.flush(&a).await.unwrap();
        assert_eq!(w.fake.take_log(), ["all 10", "all 1"]);
    });
}

#[test]
fn names_moved_both_ways_end() {
    halves(|w| async move {
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

/// A FLUSH syncs the directory that another file leaves meanwhile.
#[test]
fn nothing_leaves_a_directory_while_it_is_synced() {
    for at in 0..12 {
        halves(move |w| async move {
            let (old, new) = (dir(10), dir(11));
            let (f, g) = (file(5), file(6));
            w.write(&f, 0, 1).await.unwrap();
            w.create(&f, &old).await.unwrap();
            let flusher = Rc::clone(&w);
            w.env.spawn(Box::pin(async move {
                flusher.flush(&f).await.unwrap();
            }));
            w.env.sleep(ms(3 * at)).await;
            let mover = Rc::clone(&w);
            w.env.spawn(Box::pin(async move {
                let mut moving = mover.gate.begin_rename(&old, &new, None).await.unwrap();
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
                assert!(mover.fake.is_stable_in(old.ino) && mover.fake.is_stable_in(new.ino));
            }));
            w.env.sleep(ms(200)).await;
            assert_eq!(w.engine.dirty_inodes(), 0);
        });
    }
}

/// A client goes away while its rename or its FLUSH is under way.
#[test]
fn a_client_that_goes_away_leaves_no_half_of_a_rename() {
    for (at, flushes) in (0..40).map(|n| (n, n % 2 == 0)) {
        halves(move |w| async move {
            let (old, new, f) = (dir(10), dir(11), file(5));
            w.create(&file(7), &old).await.unwrap();
            let names = Rc::new(std::cell::Cell::new(None));
            let (gone, seen) = (Rc::clone(&w), Rc::clone(&names));
            let (from, to) = (old.clone(), new.clone());
            let asks = async move {
                if flushes {
                    return gone.flush(&from).await.unwrap();
                }
                let mut moving = gone.gate.begin_rename(&from, &to, None).await.unwrap();
                seen.set(Some((gone.fake.name(from.ino), gone.fake.name(to.ino))));
                drop(moving.renamed(&f, PLAIN).await.unwrap());
            };
            let mut asks = Box::pin(asks);
            let mut leaves = w.env.sleep(ms(at));
            std::future::poll_fn(|cx| {
                let done = asks.as_mut().poll(cx).is_ready();
                match done || leaves.as_mut().poll(cx).is_ready() {
                    true => std::task::Poll::Ready(()),
                    false => std::task::Poll::Pending,
                }
            })
            .await;
            drop(asks);
            let watcher = Rc::clone(&w);
            let moves = Rc::clone(&names);
            w.env.spawn(Box::pin(async move {
                let stable = |name| lock(&watcher.fake.state).names[&name].1;
                for _ in 0..200 {
                    if let Some((from, to)) = moves.get() {
                        assert!(stable(to) || !stable(from), "under no name");
                    }
                    watcher.env.sleep(ms(1)).await;
                }
            }));
            if flushes {
                let mut moving = w.gate.begin_rename(&old, &new, None).await.unwrap();
                names.set(Some((w.fake.name(old.ino), w.fake.name(new.ino))));
                drop(moving.renamed(&file(6), PLAIN).await.unwrap());
            }
            w.flush(&old).await.unwrap();
            w.env.sleep(ms(210)).await;
        });
    }
}

/// The request, or the background task, whose syncs make the move stable.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Paid {
    Rename,
    FlushOfFile,
    FlushOfOldDirectory,
    Background,
}

#[test]
fn a_flushed_file_that_moves_is_found_under_a_name_at_every_sync() {
    for paid in [
        Paid::Rename,
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
            assert!(
                seen > 0,
                "{paid:?}: gone if the power fails before sync {number}"
            );
        }
    }
}

/// A flushed file moves into a new directory of a new directory. Returns the least that the disk holds
/// before each sync that makes the move stable, and after the last.
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
        let lazy = ShareDurability::with_policy(Policy::TreatHostAsStableStorage);
        let lazy = engine.share("lazy", Arc::clone(&vfs), lazy);
        let (root, none) = (vfs.root(), Default::default());
        let a = vfs.create(ME, &root, "a", &none, true).await.unwrap().0;
        drop(gate.created(&a, &root, PLAIN).await.unwrap());
        let f = vfs.create(ME, &a, "f", &none, false).await.unwrap().0;
        drop(gate.created(&f, &a, PLAIN).await.unwrap());
        let access = IoAccess {
            read: true,
            write: true,
        };
        let io = vfs.open(ME, &f, access).await.unwrap();
        let data = Bytes::from(vec![7; 4096]);
        drop(gate.write(&io, 0, data, PLAIN).await.unwrap());
        drop(gate.flush(&io, FlushTarget::File, PLAIN).await.unwrap());
        let c = vfs.create(ME, &root, "c", &none, true).await.unwrap().0;
        drop(gate.created(&c, &root, PLAIN).await.unwrap());
        let b = vfs.create(ME, &c, "b", &none, true).await.unwrap().0;
        drop(gate.created(&b, &c, PLAIN).await.unwrap());
        let (cut, keep) = (on.clone(), Arc::clone(&into));
        on.set_hook(Some(Arc::new(move |op| {
            if op == SimOp::Sync {
                lock(&keep).push(cut.cut(Cut::Nothing));
            }
            None
        })));
        let mover = match paid {
            Paid::Rename => &gate,
            _ => &lazy,
        };
        let mut moving = mover.begin_rename(&a, &b, None).await.unwrap();
        vfs.rename(ME, &f, &a, "f", &b, "f", None).await.unwrap();
        drop(moving.renamed(&f, PLAIN).await.unwrap());
        match paid {
            Paid::Rename => {}
            Paid::FlushOfFile => drop(gate.flush(&io, FlushTarget::File, PLAIN).await.unwrap()),
            Paid::FlushOfOldDirectory => {
                drop(gate.flush(&a, FlushTarget::Directory, PLAIN).await.unwrap())
            }
            Paid::Background => assert_eq!(engine.sync_all().await.failed, 0),
        }
        on.set_hook(None);
        lock(&into).push(on.cut(Cut::Nothing));
    });
    std::mem::take(&mut *lock(&images))
}

/// Something is mounted over the directories above it since it was opened.
#[test]
fn of_a_name_whose_directory_is_not_found_nothing_is_promised() {
    for policy in ["honor", "bounded:10s,64MiB"] {
        world(policy, Limits::default(), |w| async move {
            let f = file(5);
            lock(&w.fake.state).paths.insert(5, "d/f".into());
            assert_eq!(w.flush(&f).await, Err(VfsError::NotStarted));
            w.is_at(&f, "d/f");
            assert_eq!(w.flush(&f).await, Ok(()));
        });
    }
}

#[test]
fn another_name_is_on_disk_before_one_goes() {
    halves(|w| async move {
        let (x, t, f) = (dir(10), dir(11), file(5));
        w.create(&f, &x).await.unwrap();
        w.flush(&f).await.unwrap();
        lock(&w.fake.state).links.insert(5, 2);
        w.gate.begin(&f).linked(&f, &t, PLAIN).await.unwrap();
        lock(&w.fake.state).links.insert(5, 1);
        w.fake.take_log();
        w.gate.removed(&f, &x, PLAIN).await.unwrap();
        assert_eq!(w.fake.take_log(), ["all 5", "all 11"]);
        // The same of one that is replaced.
        let u = dir(12);
        w.gate.begin(&f).linked(&f, &u, PLAIN).await.unwrap();
        drop(w.gate.begin_rename(&t, &t, Some(&f)).await.unwrap());
        assert_eq!(w.fake.take_log(), ["all 5", "all 12"]);
        w.gate.begin(&f).linked(&f, &x, PLAIN).await.unwrap();
        w.gate.begin_replacement(&f, &t).await.unwrap();
        assert_eq!(w.fake.take_log(), ["all 5", "all 10"]);
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

/// A rename or link over a file promises that the file is gone, as its removal does.
#[test]
fn what_is_replaced_for_good_comes_back_under_no_earlier_name() {
    for (flags, fails) in [(PLAIN, false), (THROUGH, false), (THROUGH, true)] {
        honor(move |w| async move {
            let (a, b, f, g) = (dir(10), dir(11), file(5), file(6));
            w.rename(&f, &a, &b).await.unwrap();
            let mut moving = w.gate.begin_rename(&b, &b, Some(&f)).await.unwrap();
            lock(&w.fake.state).links.insert(5, 0);
            w.fake.name(11);
            if fails {
                w.fake.script(10, &[IO]);
            }
            let replaced = w.gate.replaced(&f, &b, flags).await;
            let own = moving.renamed(&g, flags).await;
            // A removal in the directory since costs no second sync of it.
            drop(w.gate.removed(&file(7), &b, PLAIN).await.unwrap());
            w.fake.take_log();
            let answer = replaced.answer(&g, own).await.map(drop);
            assert!(!w.fake.take_log().contains(&"all 11".to_owned()));
            assert_eq!(answer, if fails { IO } else { Ok(()) });
            if !fails {
                let stable = w.fake.is_stable_in(10) && w.fake.is_stable_in(11);
                assert_eq!(stable, flags == THROUGH);
            }
        });
    }
}

/// The handles of the replaced file, too, decide how stable the answer is.
#[test]
fn what_is_replaced_is_gone_for_good_if_its_own_handles_are_strict() {
    for removed in [false, true] {
        honor(move |w| async move {
            let (a, b, f, g) = (dir(10), dir(11), file(5), file(6));
            let settings = ShareDurability::with_policy(Policy::StrictSync);
            let strict = w.engine.share("strict", Arc::clone(&w.fake), settings);
            w.rename(&f, &a, &b).await.unwrap();
            let _old = strict.opened(&f, opener("b/f"));
            let _new = w.gate.opened(&g, opener("b/g"));
            let mut moving = w.gate.begin_rename(&b, &b, Some(&f)).await.unwrap();
            lock(&w.fake.state).links.insert(5, 0);
            w.fake.name(11);
            let replaced = w.gate.replaced(&f, &b, PLAIN).await;
            w.write(&g, 0, 1).await.unwrap();
            let own = moving.renamed(&g, PLAIN).await;
            if removed {
                lock(&w.fake.state).links.insert(6, 0);
                drop(w.gate.removed(&g, &b, PLAIN).await.unwrap());
            }
            w.fake.take_log();
            drop(replaced.answer(&g, own).await.unwrap());
            assert!(w.fake.is_stable_in(10) && w.fake.is_stable_in(11));
            if !removed {
                // The file that has the name now is stable before the name.
                assert_eq!(w.fake.take_log(), ["all 6", "all 11", "all 10"]);
            }
        });
    }
}

#[test]
fn one_of_several_names_that_is_deleted_for_good_comes_back_under_no_earlier_name() {
    honor(|w| async move {
        let (a, b, f) = (dir(10), dir(11), file(5));
        w.rename(&f, &a, &b).await.unwrap();
        let above = dir(12);
        let link = w.gate.begin_removal(&f, &above).await.unwrap();
        let gone = link.removed(&f, RemovedName::SymbolicLink, THROUGH).await;
        drop(gone.unwrap());
        assert!(!w.fake.is_stable_in(10), "a link to the file was removed");
        drop(w.gate.removed(&f, &b, THROUGH).await.unwrap());
        assert!(w.fake.is_stable_in(10) && w.fake.is_stable_in(11));
    });
}

/// A directory with too many dirty names is synced with any change of it, and that is not all a removal waits for.
#[test]
fn what_is_deleted_for_good_from_a_directory_of_many_names_does_not_come_back_either() {
    honor(|w| async move {
        let (a, b, f, lazy) = (dir(10), dir(11), file(5), w.lazy());
        w.rename(&f, &a, &b).await.unwrap();
        for at in 100..115 {
            w.rename_by(&lazy, &b, [&dir(at), &dir(at + 1)]).await;
        }
        w.fake.script(11, &[Err(VfsError::NotStarted)]);
        let moved = lazy.renamed(&b, &dir(115), &dir(116), PLAIN).await;
        assert_eq!(moved.err(), Some(VfsError::NotStarted));
        lock(&w.fake.state).links.insert(5, 0);
        w.fake.take_log();
        w.gate.removed(&f, &b, THROUGH).await.unwrap();
        let log = w.fake.take_log();
        assert!(log.contains(&"all 10".to_owned()), "{log:?}");
    });
}

#[test]
fn a_file_system_that_hangs_below_a_share_holds_up_none_above() {
    halves(|w| async move {
        let (a, b, f, g) = (dir(10), dir(11), file(5), file(ELSEWHERE + 5));
        w.create(&g, &dir(ELSEWHERE + 10)).await.unwrap();
        lock(&w.fake.times).sync = ms(1_000_000);
        let hung = Rc::clone(&w);
        w.env.spawn(Box::pin(async move {
            let _ = hung.flush(&g).await;
        }));
        w.env.sleep(ms(5)).await;
        lock(&w.fake.times).sync = ms(10);
        let begun = w.env.monotonic();
        w.rename(&f, &a, &b).await.unwrap();
        w.flush(&f).await.unwrap();
        assert!(w.env.monotonic() < begun + ms(100));
    });
}

/// The background sync of a file does not look where the host has moved it.
#[test]
fn what_is_promised_under_a_bound_has_the_name_of_that_moment() {
    for through in [false, true] {
        world("bounded:1s,64MiB", Limits::default(), move |w| async move {
            let f = file(5);
            let open = w.gate.opened(&f, opener("f"));
            w.is_at(&f, "f");
            w.flush(&f).await.unwrap();
            w.env.sleep(ms(2000)).await;
            assert_eq!(w.fake.take_log(), ["all 5", "all 1"]);
            w.is_at(&f, "d/f");
            if through {
                w.write_as(&f, 0, 1, THROUGH).await.unwrap();
            } else {
                w.write(&f, 0, 1).await.unwrap();
                w.flush(&f).await.unwrap();
            }
            w.env.sleep(ms(2000)).await;
            assert_eq!(w.fake.take_log(), ["write 5", "all 5", "all 105"]);
            drop(open);
        });
    }
}

/// Another FLUSH may rely on the name that the FLUSH with the failed sync has found.
#[test]
fn a_name_that_was_found_stays_dirty_when_the_sync_of_its_file_fails() {
    honor(|w| async move {
        let f = file(5);
        w.is_at(&f, "d/f");
        w.fake.script(5, &[IO]);
        assert_eq!(w.flush(&f).await, IO);
        assert_eq!(w.fake.take_log(), ["all 5!"]);
        w.engine.sync_all().await;
        assert_eq!(w.fake.take_log(), ["all 105"]);
    });
}
