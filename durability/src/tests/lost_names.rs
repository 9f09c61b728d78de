//! Failed syncs of directories: the names that they lose, and what is lost with a name.

use std::{rc::Rc, sync::Arc};

use vfs::{Env, RemovedName, VfsError};

use super::{
    fake::{ELSEWHERE, Fake, dir, file, key, stream},
    flush::{PLAIN, THROUGH, honor, world},
    opens::{opener, rules},
    sim::{join, ms},
};
use crate::{share::lock, *};

const IO: Result<(), VfsError> = Err(VfsError::Io);

#[test]
fn a_directory_that_fails_latches_the_inodes_whose_names_were_dirty() {
    honor(|w| async move {
        let (f, g, h, a, b) = (file(5), file(6), file(7), dir(10), dir(11));
        w.create(&f, &a).await.unwrap();
        w.create(&g, &a).await.unwrap();
        w.create(&h, &b).await.unwrap();
        w.fake.script(10, &[IO]);
        assert_eq!(w.flush(&f).await, IO);
        assert_eq!(w.flush(&f).await, IO, "never retried into success");
        assert_eq!(
            w.flush(&g).await,
            IO,
            "its name was owed to the same directory"
        );
        assert_eq!(w.flush(&h).await, Ok(()));
        let poisoned = w.gate.poisoned();
        let lost = poisoned.iter().filter(|one| !one.names.is_empty());
        assert_eq!(lost.count(), 2);
        // A new name, made stable, is a repair.
        w.rename(&g, &a, &b).await.unwrap();
        assert_eq!(w.flush(&g).await, Ok(()));
    });
}

/// Directories that were made one in the other, and more dirty files than failures are remembered of.
#[test]
fn a_failed_sync_of_a_file_system_poisons_what_is_dirty_there_and_nothing_else() {
    let limits = Limits {
        dirty_inodes_max: 4096,
        ..Limits::default()
    };
    world("honor", limits, |w| async move {
        let (a, b, f, other) = (dir(10), dir(11), file(5), file(ELSEWHERE));
        w.create(&a, &dir(12)).await.unwrap();
        w.create(&b, &a).await.unwrap();
        w.create(&f, &b).await.unwrap();
        for ino in 100..1200 {
            w.write(&file(ino), 0, 1).await.unwrap();
        }
        w.env.sleep(ms(1)).await;
        w.write(&file(ELSEWHERE + 1), 0, 1).await.unwrap();
        let under_way = w.gate.begin(&other);
        w.engine.lost_on_file_system(key(5).fs, VfsError::Io);
        let changed = under_way.metadata_changed(&other, Meta::Attributes, PLAIN);
        drop(changed.await.unwrap());
        let poisoned = w.gate.poisoned();
        let entries = poisoned.iter().filter(|one| one.entries);
        let entries: Vec<_> = entries.map(|one| one.key.ino).collect();
        assert_eq!(entries, [10, 11, 12]);
        let written = poisoned.iter().filter(|one| one.unproven_bytes() > 0);
        assert_eq!(written.count(), 1100);
        assert!(poisoned.iter().all(|one| one.key.fs == key(5).fs));
        assert_eq!(poisoned.len(), 1104);
        // It may be the same file system under another number, and no later process would see the failure.
        w.env.sleep(ms(1000)).await;
        assert_eq!(w.engine.dirty_inodes(), 0);
        assert_eq!(w.gate.poisoned().len(), 1104);
    });
}

#[test]
fn a_latch_ends_with_the_last_name_of_its_inode() {
    world(
        "treat-host-as-stable-storage",
        Limits::default(),
        |w| async move {
            let (f, d) = (file(5), dir(10));
            w.write(&f, 0, 1).await.unwrap();
            w.fake.script(5, &[IO]);
            w.env.sleep(ms(31_000)).await;
            assert_eq!(w.gate.effective_policy(), Policy::Honor);
            // One of two names.
            lock(&w.fake.state).links.insert(5, 1);
            w.gate.removed(&f, &d, PLAIN).await.unwrap();
            assert_eq!(w.flush(&f).await, IO);
            lock(&w.fake.state).links.insert(5, 0);
            w.gate.removed(&f, &d, PLAIN).await.unwrap();
            assert!(w.gate.poisoned().is_empty());
            assert_eq!(w.gate.exposure().poisoned_inodes, 0);
            assert_eq!(w.gate.effective_policy(), Policy::TreatHostAsStableStorage);
            // The next file has the number.
            assert_eq!(w.flush(&file(5)).await, Ok(()));

            w.engine
                .restore_latch(&LatchRecord::whole(key(6), VfsError::Io));
            lock(&w.fake.state).links.insert(6, 0);
            drop(w.gate.replaced(&file(6), &d, PLAIN).await);
            assert_eq!(w.flush(&file(6)).await, Ok(()));
        },
    );
}

#[test]
fn what_fails_after_the_last_name_is_gone_latches_nothing() {
    honor(|w| async move {
        let (f, d) = (file(5), dir(10));
        w.write(&f, 0, 1).await.unwrap();
        lock(&w.fake.state).links.insert(5, 0);
        w.fake.script(5, &[IO, IO]);
        let task = |at: u64| {
            let (w, f, d) = (Rc::clone(&w), f.clone(), d.clone());
            Box::pin(async move {
                w.env.sleep(ms(at)).await;
                match at {
                    0 => assert_eq!(w.flush(&f).await, IO, "the waiter hears it"),
                    1 => assert_eq!(w.write_as(&f, 0, 1, THROUGH).await, IO),
                    _ => drop(w.gate.removed(&f, &d, PLAIN).await.unwrap()),
                }
            }) as vfs::env::LocalTask
        };
        join(&w.env, vec![task(0), task(1), task(3)]).await;
        assert!(w.gate.poisoned().is_empty());
        assert_eq!(w.gate.counters().latches, 0);
        w.engine.sync_all().await;
        assert_eq!(w.flush(&file(5)).await, Ok(()));
    });
}

/// The failure gets another number after its latch, so that a name found between the two is not missed.
#[test]
fn the_failure_of_a_directory_counts_until_after_its_latch() {
    honor(|w| async move {
        let (f, d) = (file(5), dir(10));
        w.create(&f, &d).await.unwrap();
        w.fake.script(10, &[IO]);
        assert_eq!(w.flush(&f).await, IO);
        let poisoned = w.engine.poisoned();
        let latch = poisoned.iter().find(|latch| latch.key == key(10)).unwrap();
        let later = w.engine.failed_since(key(10), latch.sequence);
        assert!(later.is_some());
    });
}

#[test]
fn what_is_below_a_directory_whose_name_is_lost_is_lost() {
    honor(|w| async move {
        let (root, d, e) = (dir(1), dir(10), dir(11));
        let (f, g, h) = (file(5), file(6), file(7));
        let paths = [
            (10, "d"),
            (11, "d/e"),
            (5, "d/e/f"),
            (6, "d/e/g"),
            (7, "d/h"),
            (8, "x/y"),
            (20, "x"),
        ];
        let parents = [
            (10, 1),
            (11, 10),
            (5, 11),
            (6, 11),
            (7, 10),
            (8, 20),
            (20, 1),
        ];
        {
            let mut state = lock(&w.fake.state);
            let paths = paths.map(|(ino, path)| (ino, path.as_bytes().to_vec()));
            state.paths.extend(paths);
            state.parents.extend(parents);
        }
        w.create(&d, &root).await.unwrap();
        w.create(&e, &d).await.unwrap();
        w.create(&f, &e).await.unwrap();
        w.fake.script(1, &[IO]);
        assert_eq!(w.flush(&f).await, IO);
        for _ in 0..2 {
            w.write(&f, 0, 1).await.unwrap();
            assert_eq!(w.flush(&f).await, IO, "rewritten, and still without a name");
        }
        // Made since, next to it and above it.
        w.create(&g, &e).await.unwrap();
        w.create(&h, &d).await.unwrap();
        for made in [&g, &h] {
            assert_eq!(w.flush(made).await, IO);
            assert_eq!(w.flush(made).await, IO);
        }
        // Elsewhere all is well.
        let other = file(8);
        w.create(&other, &dir(20)).await.unwrap();
        assert_eq!(w.flush(&other).await, Ok(()));
        assert!(w.gate.clear_latches() >= 5);
        for made in [&f, &g, &h] {
            assert_eq!(w.flush(made).await, Ok(()));
        }
        assert_eq!(w.gate.exposure(), Exposure::default());
    });
}

/// A file that is stable is not held any more, and the request knows where it is all the same.
#[test]
fn what_is_made_stable_beside_a_directory_whose_name_is_lost_is_not_lost() {
    honor(|w| async move {
        let (d, x, f, g) = (dir(10), dir(20), file(5), file(6));
        {
            let mut state = lock(&w.fake.state);
            let all = [(10, "d", 1), (20, "x", 1), (5, "x/f", 20), (6, "x/g", 20)];
            for (ino, path, parent) in all {
                state.paths.insert(ino, path.into());
                state.parents.insert(ino, parent);
            }
        }
        w.create(&d, &dir(1)).await.unwrap();
        w.fake.script(1, &[IO]);
        assert_eq!(w.flush(&d).await, IO);
        let made = w.gate.created(&f, &x, THROUGH).await;
        assert_eq!(made.map(drop), Ok(()));
        let mut moving = w.gate.begin_rename(&x, &x, Some(&f)).await.unwrap();
        lock(&w.fake.state).links.insert(5, 0);
        let replaced = w.gate.replaced(&f, &x, THROUGH).await;
        let own = moving.renamed(&g, THROUGH).await;
        assert_eq!(replaced.answer(&g, own).await.map(drop), Ok(()));
        assert_eq!(w.flush(&d).await, IO);
    });
}

#[test]
fn a_name_beside_a_lost_one_does_not_repair_it() {
    honor(|w| async move {
        let (f, d) = (file(5), dir(50));
        w.gate.created(&f, &d, PLAIN).await.unwrap();
        w.fake.script(50, &[IO]);
        assert_eq!(w.flush(&f).await, IO);
        w.gate.linked(&f, &d, PLAIN).await.unwrap();
        assert_eq!(w.flush(&f).await, IO);
        // The file moves then, and the move is synced.
        w.gate.renamed(&f, &d, &d, PLAIN).await.unwrap();
        assert_eq!(w.flush(&f).await, Ok(()));
        // A removed name may come back at any time, and nothing repairs that.
        w.gate.renamed(&f, &d, &d, PLAIN).await.unwrap();
        w.fake.script(50, &[IO]);
        assert_eq!(w.flush(&f).await, IO);
        w.gate.renamed(&f, &d, &d, PLAIN).await.unwrap();
        assert_eq!(w.flush(&f).await, IO);
    });
}

/// The name that moves may have been stable before the other one was lost.
#[test]
fn a_move_of_one_of_several_names_repairs_none() {
    honor(|w| async move {
        let (f, d, e) = (file(5), dir(50), dir(60));
        w.gate.created(&f, &d, PLAIN).await.unwrap();
        assert_eq!(w.flush(&f).await, Ok(()));
        w.gate.linked(&f, &d, PLAIN).await.unwrap();
        lock(&w.fake.state).links.insert(5, 2);
        w.fake.script(50, &[IO]);
        assert_eq!(w.flush(&f).await, IO);
        w.gate.renamed(&f, &d, &e, PLAIN).await.unwrap();
        assert_eq!(w.flush(&f).await, IO);
        assert!(w.engine.clear_latch(f.key_of()));
        assert_eq!(w.flush(&f).await, Ok(()));
    });
}

#[test]
fn the_removal_of_a_symbolic_link_ends_no_latch_of_the_directory() {
    honor(|w| async move {
        let (linked, above) = (dir(50), dir(60));
        w.gate
            .meta_changed(&linked, Meta::Times, PLAIN)
            .await
            .unwrap();
        w.fake.script(50, &[IO]);
        assert_eq!(w.flush(&linked).await, IO);
        let begun = w.gate.begin_removal(&linked, &above).await.unwrap();
        begun
            .removed(&linked, RemovedName::SymbolicLink, PLAIN)
            .await
            .unwrap();
        assert_eq!(w.flush(&linked).await, IO);
        let begun = w.gate.begin_removal(&linked, &above).await.unwrap();
        begun
            .removed(&linked, RemovedName::Own, PLAIN)
            .await
            .unwrap();
        assert!(w.gate.poisoned().is_empty());
    });
}

#[test]
fn a_removal_that_a_sync_failed_beside_is_lost_with_it() {
    honor(|w| async move {
        let (f, d) = (file(5), dir(50));
        w.gate.meta_changed(&d, Meta::Times, PLAIN).await.unwrap();
        let begun = w.gate.begin_removal(&f, &d).await.unwrap();
        w.fake.script(50, &[IO]);
        assert_eq!(w.flush(&d).await, IO);
        begun.removed(&f, RemovedName::Own, PLAIN).await.unwrap();
        // The change that the sync knew of is repaired, the entry never is.
        w.gate.meta_changed(&d, Meta::Times, PLAIN).await.unwrap();
        assert_eq!(w.flush(&d).await, IO);
        assert!(w.engine.clear_latch(d.key_of()));
        let s = stream(6, "s");
        let begun = w.gate.begin(&s);
        w.gate
            .meta_changed(&file(6), Meta::Eas, PLAIN)
            .await
            .unwrap();
        w.fake.script(6, &[IO]);
        assert_eq!(w.flush(&file(6)).await, IO);
        begun.stream_removed(&s, PLAIN).await.unwrap();
        w.gate
            .meta_changed(&file(6), Meta::Eas, PLAIN)
            .await
            .unwrap();
        assert_eq!(w.flush(&file(6)).await, IO, "the stream may come back");
    });
}

/// Another handle, with POSIX semantics, has removed the name for the one that is closed.
#[test]
fn a_removal_by_another_handle_is_stable_where_the_own_one_would_be() {
    honor(|w| async move {
        let (f, d) = (file(5), dir(50));
        w.gate.removed(&f, &d, PLAIN).await.unwrap();
        let beside = async |how| {
            let closed = w.gate.removed_beside(&f, d.key_of(), how).await;
            (closed.map(drop), w.fake.take_log())
        };
        assert_eq!(beside(PLAIN).await, (Ok(()), vec![]));
        assert_eq!(beside(THROUGH).await, (Ok(()), vec!["all 50".to_owned()]));
        w.gate.removed(&f, &d, PLAIN).await.unwrap();
        w.fake.script(50, &[IO]);
        assert_eq!(beside(THROUGH).await.0, IO);
        assert_eq!(beside(THROUGH).await.0, IO, "the other one's sync failed");
    });
}

/// The name had moved before, and that was not stable either.
#[test]
fn a_removal_by_another_handle_brings_back_no_earlier_name() {
    let cases = ["stable", "fails", "failed"].map(|how| [(0, how), (1, how)]);
    for (links, how) in cases.into_iter().flatten() {
        honor(move |w| async move {
            let (a, b, f) = (dir(10), dir(11), file(5));
            let open = w.gate.opened(&f, opener("b/f"));
            w.rename(&f, &a, &b).await.unwrap();
            if how == "failed" {
                w.fake.script(10, &[IO]);
                assert_eq!(w.flush(&f).await, IO);
            }
            lock(&w.fake.state).links.insert(5, links);
            w.gate.removed(&f, &b, PLAIN).await.unwrap();
            if how == "fails" {
                w.fake.script(10, &[IO]);
            }
            let expected = if how == "stable" { Ok(()) } else { IO };
            for _ in 0..2 {
                let closed = w.gate.removed_beside(&f, b.key_of(), THROUGH).await;
                assert_eq!(closed.map(drop), expected, "{links} {how}");
            }
            if how == "stable" {
                assert!(w.fake.is_stable_in(10) && w.fake.is_stable_in(11));
            }
            drop(open);
        });
    }
}

/// The file was in a directory that is gone, and comes back with it.
#[test]
fn a_removal_by_another_handle_brings_back_no_earlier_directory() {
    honor(|w| async move {
        let (top, a, b, f) = (dir(1), dir(10), dir(11), file(5));
        let open = w.gate.opened(&f, opener("b/f"));
        w.rename(&f, &a, &b).await.unwrap();
        lock(&w.fake.state).links.insert(5, 0);
        w.gate.removed(&f, &b, PLAIN).await.unwrap();
        w.fake.name(1);
        w.gate.removed(&a, &top, PLAIN).await.unwrap();
        let closed = w.gate.removed_beside(&f, b.key_of(), THROUGH).await;
        closed.map(drop).unwrap();
        assert!(w.fake.is_stable_in(1) && w.fake.is_stable_in(11));
        drop(open);
    });
}

/// The directory follows the share, although a rule answers for its file at once.
#[test]
fn a_removal_by_another_handle_goes_by_the_policy_of_the_directory_as_well() {
    honor(|w| async move {
        let lazy = rules(&[("*.tmp", "treat-host-as-stable-storage")]);
        w.gate.set_rules(lazy, "test").await;
        let (f, d) = (file(5), dir(50));
        let open = w.gate.opened(&f, opener("a.tmp"));
        let all = ["all 50"];
        drop(w.gate.removed(&f, &d, THROUGH).await.unwrap());
        assert_eq!(w.fake.take_log(), all, "the own one");
        drop(w.gate.removed(&f, &d, PLAIN).await.unwrap());
        assert!(w.fake.take_log().is_empty());
        let beside = w.gate.removed_beside(&f, d.key_of(), THROUGH);
        drop(beside.await.unwrap());
        assert_eq!(w.fake.take_log(), all);
        drop(open);
    });
}

#[test]
fn each_name_that_went_away_counts_as_an_inode() {
    world(
        "treat-host-as-stable-storage",
        Limits::default(),
        |w| async move {
            let d = dir(10);
            for n in [5, 6, 7] {
                w.gate.removed(&file(n), &d, PLAIN).await.unwrap();
            }
            let told = w.gate.exposure();
            let of = told.of(PolicyKind::TreatHostAsStableStorage);
            assert_eq!(
                (told.inodes, of.inodes),
                (4, 4),
                "three files, one directory"
            );
            // All of them are as unproven as the directory is.
            w.fake.script(10, &[IO]);
            assert_eq!(w.gate.set_policy(Policy::Honor, "a test").await.failed, 1);
            let told = w.gate.exposure();
            assert_eq!((told.inodes, told.poisoned_inodes), (0, 4));
            assert!(w.engine.clear_latch(key(10)));
            assert_eq!(w.gate.exposure().poisoned_inodes, 0);
        },
    );
}

#[test]
fn what_a_directory_lost_counts_when_it_is_gone_as_well() {
    honor(|w| async move {
        let (p, x) = (dir(1), dir(10));
        for n in [5, 6] {
            w.gate.removed(&file(n), &x, PLAIN).await.unwrap();
        }
        w.gate.removed(&x, &p, PLAIN).await.unwrap();
        assert_eq!(w.gate.exposure().inodes, 4, "what it is in, it, two files");
        // A name that was removed through another share stays in the exposure of that share, as old as it is.
        let other = w
            .engine
            .share("other", Arc::clone(&w.fake), ShareDurability::default());
        let y = dir(11);
        other.removed(&file(7), &y, PLAIN).await.unwrap();
        w.env.sleep(ms(1000)).await;
        w.gate.removed(&y, &p, PLAIN).await.unwrap();
        assert_eq!(w.gate.exposure().inodes, 5);
        let exposed = other.exposure();
        assert_eq!((exposed.inodes, exposed.oldest_age), (2, ms(1000)));
    });
}

#[test]
fn a_name_that_was_left_is_dirty_when_what_it_named_is_gone() {
    honor(|w| async move {
        let (d, f) = (dir(10), file(5));
        w.rename(&f, &d, &d).await.unwrap();
        let renamed = w.env.monotonic();
        w.env.sleep(ms(100)).await;
        lock(&w.fake.state).links.insert(5, 0);
        w.gate.removed(&f, &d, PLAIN).await.unwrap();
        let told = w.gate.exposure();
        assert!(told.oldest_age >= w.env.monotonic() - renamed, "{told:?}");
    });
}

/// The second share is over a folder of the first one.
#[test]
fn a_poisoned_file_is_reported_where_it_was_moved() {
    honor(|w| async move {
        let (top, folder, f) = (dir(2), dir(1), file(5));
        let whole = Fake::new(&w.env, ms(10), ms(10));
        lock(&whole.times).root = 2;
        let settings = ShareDurability::default();
        let above = w.engine.share("above", Arc::clone(&whole), settings);
        let place = |ino: u64, path: &str, parent: u64| {
            let mut state = lock(&whole.state);
            state.paths.insert(ino, path.into());
            state.parents.insert(ino, parent);
        };
        place(1, "a", 2);
        place(5, "f", 2);
        let root = || w.gate.flush(&folder, FlushTarget::ShareRoot, PLAIN);
        drop(above.meta_changed(&f, Meta::Times, PLAIN).await.unwrap());
        whole.script(5, &[IO]);
        assert!(above.flush(&f, FlushTarget::File, PLAIN).await.is_err());
        assert_eq!(root().await.err(), None, "it is elsewhere");
        place(5, "a/f", 1);
        drop(above.renamed(&f, &top, &folder, PLAIN).await.unwrap());
        assert_eq!(above.poisoned()[0].path, "a/f");
        assert!(above.flush(&f, FlushTarget::File, PLAIN).await.is_err());
        assert_eq!(root().await.err(), IO.err());
    });
}

/// The entries that another directory has lost are no concern of the name, unless that directory may have had one of
/// the name's directories.
#[test]
fn a_removal_by_another_handle_fails_for_no_unrelated_directory() {
    for (later, expected) in [(false, Ok(())), (true, IO)] {
        honor(move |w| async move {
            let (a, b, other, f) = (dir(10), dir(11), dir(12), file(5));
            let open = w.gate.opened(&f, opener("b/f"));
            let loses = async || {
                drop(w.gate.removed(&file(7), &other, PLAIN).await.unwrap());
                w.fake.script(12, &[IO]);
                assert_eq!(w.flush(&other).await, IO);
            };
            loses().await;
            w.rename(&f, &a, &b).await.unwrap();
            lock(&w.fake.state).links.insert(5, 0);
            drop(w.gate.removed(&f, &b, PLAIN).await.unwrap());
            let beside = async || {
                let closed = w.gate.removed_beside(&f, b.key_of(), THROUGH).await;
                closed.map(drop)
            };
            assert_eq!(beside().await, Ok(()));
            assert!(w.fake.is_stable_in(10));
            drop(w.gate.removed(&dir(13), &dir(1), PLAIN).await.unwrap());
            if later {
                loses().await;
            }
            assert_eq!(beside().await, expected);
            drop(open);
        });
    }
}

#[test]
fn the_bytes_of_a_deleted_file_are_bytes_of_its_directory() {
    let policy = "bounded:10s,64MiB";
    world(policy, Limits::default(), move |w| async move {
        let (d, f) = (dir(10), file(5));
        w.write(&f, 0, 2).await.unwrap();
        lock(&w.fake.state).links.insert(5, 0);
        drop(w.gate.removed(&f, &d, PLAIN).await.unwrap());
        let settings = ShareDurability::with_policy(policy.parse().unwrap());
        let other = w.engine.share("other", Arc::clone(&w.fake), settings);
        drop(other.flush(&d, FlushTarget::Directory, PLAIN).await);
        let exposed = [&w.gate, &other].map(|gate| gate.exposure().bytes);
        assert_eq!(exposed, [8192; 2], "the FLUSH promises them, too");
        assert_eq!(w.engine.sync_all().await.bytes, 8192);
    });
}
