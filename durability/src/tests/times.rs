//! Modification times: a FLUSH covers them, a write-through WRITE leaves them to the next sync.

use std::{rc::Rc, sync::Arc, time::Duration};

use vfs::{Env, VfsError};

use super::{
    fake::{Fake, dir, file},
    flush::{PLAIN, THROUGH, World, honor, world},
    opens::{opener, rule},
    sim::{join, ms},
};
use crate::{share::lock, *};

const AGE_MAX: Duration = Duration::from_secs(30);

/// The syncs and durable writes among what happened.
fn syncs(w: &World) -> Vec<String> {
    let mut log = w.fake.take_log();
    log.retain(|line| !line.starts_with("write"));
    log
}

#[test]
fn a_flush_after_an_overwrite_covers_the_times() {
    honor(|w| async move {
        let f = file(5);
        w.write(&f, 0, 1).await.unwrap();
        w.flush(&f).await.unwrap();
        assert_eq!(syncs(&w), ["all 5"]);
    });
}

#[test]
fn every_answer_under_strict_sync_covers_the_times() {
    world("strict-sync", Limits::default(), |w| async move {
        let f = file(5);
        w.write(&f, 0, 1).await.unwrap();
        assert_eq!(syncs(&w), ["all 5"]);
        assert!(w.engine.is_stable());
    });
}

#[test]
fn the_times_of_a_write_through_write_are_stable_with_the_next_flush() {
    honor(|w| async move {
        let f = file(5);
        w.write_as(&f, 0, 1, THROUGH).await.unwrap();
        assert_eq!(syncs(&w), ["dsync 5"]);
        assert_eq!(w.engine.dirty_inodes(), 1);
        w.flush(&f).await.unwrap();
        assert_eq!(syncs(&w), ["all 5"]);
        assert_eq!(w.engine.dirty_inodes(), 0);
    });
}

#[test]
fn the_times_of_a_write_through_write_are_synced_by_age() {
    honor(|w| async move {
        let f = file(5);
        for _ in 0..3 {
            w.write_as(&f, 0, 1, THROUGH).await.unwrap();
        }
        assert_eq!(syncs(&w), ["dsync 5", "dsync 5", "dsync 5"]);
        w.env.sleep(AGE_MAX + ms(100)).await;
        assert_eq!(syncs(&w), ["all 5"]);
        assert!(w.engine.is_stable());
    });
}

/// A share whose FLUSHes leave times behind.
fn cheap<F: Future<Output = ()> + 'static>(main: impl Fn(Rc<World>) -> F + Copy + 'static) {
    honor(move |w| async move {
        w.gate.set_options(ShareDurability {
            flush_times: false,
            ..w.gate.settings()
        });
        main(w).await;
    });
}

#[test]
fn without_flush_times_a_flush_syncs_data_and_the_times_follow_by_age() {
    cheap(|w| async move {
        let f = file(5);
        for _ in 0..3 {
            w.write(&f, 0, 1).await.unwrap();
            w.flush(&f).await.unwrap();
            assert_eq!(syncs(&w), ["data 5"]);
            let exposure = w.gate.exposure();
            assert_eq!((exposure.bytes, exposure.inodes), (0, 1));
            w.env.sleep(ms(8000)).await;
        }
        // The times are as old as the first change, however often the file was flushed.
        w.env.sleep(ms(7000)).await;
        assert_eq!(syncs(&w), ["all 5"]);
        assert!(w.engine.is_stable());
        assert_eq!(w.gate.exposure(), Exposure::default());
    });
}

#[test]
fn without_flush_times_a_failed_flush_still_is_reported_to_all() {
    cheap(|w| async move {
        let f = file(5);
        w.write(&f, 0, 1).await.unwrap();
        w.fake.script(5, &[Err(VfsError::Io)]);
        assert_eq!(w.flush(&f).await, Err(VfsError::Io));
        assert_eq!(w.flush(&f).await, Err(VfsError::Io));
        w.write(&f, 0, 1).await.unwrap();
        w.fake.take_log();
        w.flush(&f).await.unwrap();
        assert_eq!(syncs(&w), ["all 5"]);
    });
}

#[test]
fn the_strictest_handle_decides_whether_a_flush_covers_the_times() {
    cheap(|w| async move {
        let wanted = Rule {
            flush_times: Some(true),
            ..rule("db/**", "honor")
        };
        let rules = Arc::new(Rules::new(vec![wanted]).unwrap());
        w.gate.set_rules(rules, "test").await;
        let f = file(5);
        let plain = w.gate.opened(&f, opener("f"));
        let strict = w.gate.opened(&f, opener("db/f"));
        w.write(&f, 0, 1).await.unwrap();
        w.flush(&f).await.unwrap();
        assert_eq!(syncs(&w), ["all 5"]);
        drop(strict);
        w.write(&f, 0, 1).await.unwrap();
        w.flush(&f).await.unwrap();
        assert_eq!(syncs(&w), ["data 5"]);
        drop(plain);
    });
}

#[test]
fn a_change_of_metadata_is_flushed_in_full_without_flush_times() {
    cheap(|w| async move {
        let f = file(5);
        w.write(&f, 0, 1).await.unwrap();
        w.gate.meta_changed(&f, Meta::Eas, PLAIN).await.unwrap();
        w.flush(&f).await.unwrap();
        assert_eq!(syncs(&w), ["all 5"]);
    });
}

/// The times that a failed sync lost are stored with the data that are written again, also where a sync has stored them
/// meanwhile while other data were unproven.
#[test]
fn a_write_through_write_that_repairs_a_file_stores_its_times() {
    for (through, meanwhile) in [(false, false), (true, false), (false, true), (true, true)] {
        honor(move |w| async move {
            let f = file(5);
            w.write(&f, 0, 1).await.unwrap();
            w.write(&f, 1, 1).await.unwrap();
            w.env.sleep(ms(8000)).await;
            w.fake.script(5, &[Err(VfsError::Io)]);
            match through {
                true => w.write_as(&f, 0, 1, THROUGH).await.unwrap_err(),
                false => w.flush(&f).await.unwrap_err(),
            };
            w.write(&f, 1, 1).await.unwrap();
            if meanwhile {
                w.flush(&f).await.unwrap_err();
            }
            syncs(&w);
            w.write_as(&f, 0, 1, THROUGH).await.unwrap();
            assert_eq!(syncs(&w), ["all 5"]);
            assert_eq!(w.gate.exposure(), Exposure::default());
            w.env.sleep(AGE_MAX * 2).await;
            assert_eq!(syncs(&w), [""; 0]);
        });
    }
}

fn place(w: &World, ino: u64, dir: u64, path: impl Into<Vec<u8>>) {
    let mut state = lock(&w.fake.state);
    state.paths.insert(ino, path.into());
    state.parents.insert(ino, dir);
}

#[test]
fn the_first_flush_after_an_open_covers_a_name_that_the_host_made() {
    honor(|w| async move {
        place(&w, 5, 10, "d/f");
        let f = file(5);
        for _ in 0..2 {
            let handle = w.gate.opened(&f, opener("d/f"));
            let second = w.gate.opened(&f, opener("d/f"));
            w.write(&f, 0, 1).await.unwrap();
            w.flush(&f).await.unwrap();
            assert_eq!(syncs(&w), ["all 5", "all 10"]);
            w.write(&f, 0, 1).await.unwrap();
            w.flush(&f).await.unwrap();
            assert_eq!(syncs(&w), ["all 5"]);
            // The host moves it.
            place(&w, 5, 11, "e/g");
            w.write_as(&f, 0, 1, THROUGH).await.unwrap();
            assert_eq!(syncs(&w), ["dsync 5", "all 5", "all 11"]);
            place(&w, 5, 10, "d/f");
            w.flush(&f).await.unwrap();
            assert_eq!(syncs(&w), ["all 5", "all 10"]);
            drop((handle, second));
        }
    });
}

/// Both names look the same as text.
#[test]
fn a_flush_covers_a_new_name_that_differs_in_bytes_that_are_not_utf_8() {
    honor(|w| async move {
        place(&w, 5, 10, b"\xff");
        let f = file(5);
        let _handle = w.gate.opened(&f, opener("\u{fffd}"));
        w.flush(&f).await.unwrap();
        assert_eq!(syncs(&w), ["all 5", "all 10"]);
        // The host moves it.
        place(&w, 5, 11, b"\xfe");
        w.flush(&f).await.unwrap();
        assert_eq!(syncs(&w), ["all 5", "all 11"]);
    });
}

#[test]
fn without_flush_times_the_first_flush_after_an_open_is_a_full_one() {
    cheap(|w| async move {
        place(&w, 5, 10, "d/f");
        let f = file(5);
        let _handle = w.gate.opened(&f, opener("d/f"));
        for expected in [&["all 5", "all 10"][..], &["data 5"], &["data 5"]] {
            w.write(&f, 0, 1).await.unwrap();
            w.flush(&f).await.unwrap();
            assert_eq!(syncs(&w), expected);
        }
    });
}

#[test]
fn a_name_that_this_process_made_is_synced_once() {
    honor(|w| async move {
        place(&w, 5, 10, "d/f");
        let (f, d) = (file(5), dir(10));
        let _handle = w.gate.opened(&f, opener("d/f"));
        w.create(&f, &d).await.unwrap();
        w.write(&f, 0, 1).await.unwrap();
        w.flush(&f).await.unwrap();
        assert_eq!(syncs(&w), ["all 5", "all 10"]);
    });
}

#[test]
fn a_name_that_the_host_made_and_that_cannot_be_synced_fails_the_flush() {
    honor(|w| async move {
        place(&w, 5, 10, "d/f");
        let f = file(5);
        let _handle = w.gate.opened(&f, opener("d/f"));
        w.write(&f, 0, 1).await.unwrap();
        w.fake.script(10, &[Err(VfsError::Io)]);
        assert_eq!(w.flush(&f).await, Err(VfsError::Io));
        assert_eq!(w.flush(&f).await, Err(VfsError::Io));
    });
}

/// The same of a directory, wherever it is by now.
#[test]
fn a_flush_of_a_directory_covers_a_name_that_the_host_made() {
    for policy in ["honor", "bounded:50ms,4MiB"] {
        world(policy, Limits::default(), |w| async move {
            place(&w, 12, 10, "a/d");
            let d = dir(12);
            let _handle = w.gate.opened(&d, opener("a/d"));
            w.flush(&d).await.unwrap();
            w.env.sleep(ms(60)).await;
            assert_eq!(syncs(&w), ["all 12", "all 10"]);
        });
    }
    honor(|w| async move {
        let d = dir(12);
        place(&w, 12, 10, "a/d");
        w.flush(&d).await.unwrap();
        place(&w, 12, 11, "b/d");
        w.flush(&d).await.unwrap();
        let log = syncs(&w);
        assert!(log.contains(&"all 11".to_owned()), "{log:?}");
        // Nobody can say where it is.
        place(&w, 12, 11, "c/d");
        lock(&w.fake.state).parents.remove(&12);
        assert_eq!(w.flush(&d).await, Err(VfsError::NotStarted));
    });
}

#[test]
fn every_policy_that_promises_covers_a_name_that_the_host_made() {
    for policy in ["strict-sync", "bounded:50ms,4MiB"] {
        world(policy, Limits::default(), |w| async move {
            place(&w, 5, 10, "d/f");
            let f = file(5);
            let _handle = w.gate.opened(&f, opener("d/f"));
            w.write(&f, 0, 1).await.unwrap();
            w.env.sleep(ms(60)).await;
            assert_eq!(syncs(&w), ["all 5", "all 10"]);
            w.write(&f, 0, 1).await.unwrap();
            w.env.sleep(ms(60)).await;
            assert_eq!(syncs(&w), ["all 5"]);
        });
    }
}

/// The folder of another share lies elsewhere, and the file has a second name there.
#[test]
fn an_equal_path_below_another_root_is_another_name() {
    for policy in ["honor", "bounded:50ms,4MiB"] {
        world(policy, Limits::default(), move |w| async move {
            let policy = policy.parse().unwrap();
            let elsewhere = Fake::new(&w.env, ms(10), ms(10));
            lock(&elsewhere.times).root = 2;
            let settings = ShareDurability::with_policy(policy);
            let other = (w.engine).share("other", Arc::clone(&elsewhere), settings);
            let f = file(5);
            place(&w, 5, 10, "d/f");
            {
                let mut state = lock(&elsewhere.state);
                state.paths.insert(5, "d/f".into());
                state.parents.insert(5, 20);
            }
            // The inode is remembered while it is open.
            let _handle = w.gate.opened(&f, opener("d/f"));
            w.flush(&f).await.unwrap();
            drop(other.flush(&f, FlushTarget::File, PLAIN).await.unwrap());
            w.env.sleep(ms(100)).await;
            assert!(syncs(&w).contains(&"all 10".to_owned()));
            let log = elsewhere.take_log();
            assert!(log.contains(&"all 20".to_owned()), "{log:?}");
        });
    }
}

/// Two hard links are open in one share, and the promise does not wait for the disk.
#[test]
fn a_lazy_flush_through_a_second_name_covers_it() {
    world("bounded:50ms,4MiB", Limits::default(), |w| async move {
        let f = file(5);
        let _handles = ["d/f", "e/g"].map(|path| w.gate.opened(&f, opener(path)));
        for (dir, path) in [(10, "d/f"), (11, "e/g"), (10, "d/f")] {
            // Each handle knows its own name.
            place(&w, 5, dir, path);
            w.flush(&f).await.unwrap();
            w.env.sleep(ms(100)).await;
            let log = syncs(&w);
            assert!(log.contains(&format!("all {dir}")), "{log:?}");
        }
    });
}

/// As above, but the handle of the first name is closed, and the client of the second comes back.
#[test]
fn a_lazy_flush_through_a_second_name_covers_it_once_its_client_is_back() {
    world("bounded:50ms,4MiB", Limits::default(), |w| async move {
        let f = file(5);
        let first = w.gate.opened(&f, opener("d/f"));
        let second = w.gate.opened(&f, opener("e/g"));
        place(&w, 5, 10, "d/f");
        w.flush(&f).await.unwrap();
        w.env.sleep(ms(100)).await;
        syncs(&w);
        drop(first);
        second.came_back([127, 0, 0, 1].into(), 0x311);
        place(&w, 5, 11, "e/g");
        w.flush(&f).await.unwrap();
        w.env.sleep(ms(100)).await;
        let log = syncs(&w);
        assert!(log.contains(&"all 11".to_owned()), "{log:?}");
        drop(second);
    });
}

/// On a file system that may persist half of a rename, the directory that a file comes into is synced before the one
/// that it leaves, whatever a FLUSH finds meanwhile; otherwise a power cut between the two could lose both names.
#[test]
fn a_flush_beside_a_rename_does_not_take_the_old_directory_for_the_new_one() {
    honor(|w| async move {
        {
            let mut times = lock(&w.fake.times);
            (times.atomic, times.look) = (false, ms(5));
        }
        let (f, a, b) = (file(5), dir(10), dir(11));
        place(&w, 5, 10, "a/f");
        let handle = w.gate.opened(&f, opener("a/f"));
        w.write(&f, 0, 1).await.unwrap();
        syncs(&w);
        let flush = {
            let (w, f) = (Rc::clone(&w), f.clone());
            Box::pin(async move { w.flush(&f).await.unwrap() }) as vfs::env::LocalTask
        };
        let rename = {
            let w = Rc::clone(&w);
            Box::pin(async move {
                w.env.sleep(ms(2)).await;
                place(&w, 5, 11, "b/f");
                w.rename(&file(5), &a, &b).await.unwrap();
            }) as vfs::env::LocalTask
        };
        join(&w.env, vec![flush, rename]).await;
        let log = syncs(&w);
        let first = |what: &str| log.iter().position(|one| one == what).unwrap();
        assert!(first("all 11") < first("all 10"), "{log:?}");
        drop(handle);
    });
}
