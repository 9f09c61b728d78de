//! The cost of a lookup, and the changes that the name cache notices.

use std::{pin::Pin, task::Poll};

use super::*;
use crate::{Timestamp, disk::XattrSet, sim::SimOp};

const MANY: usize = 10_000;

/// A directory `d` of many names; the disk's clock is a counter that stands for 2020, so by the
/// system's clock all is settled.
async fn crowded() -> (Case<SimDisk>, PosixNode<SimDisk>) {
    crowded_by(default_options()).await
}

async fn crowded_by(options: PosixOptions) -> (Case<SimDisk>, PosixNode<SimDisk>) {
    let (disk, link) = sim(SimOptions::default());
    let t = Case::with(disk, link, options).await;
    let dir = t.dir("d").await;
    for i in 0..MANY {
        let how = crate::disk::OpenHow {
            create: Some(0o644),
            write: true,
            ..Default::default()
        };
        let name = format!("File{i}");
        drop(
            t.vfs
                .disk()
                .open_at(ME, dir.fd(), name.as_bytes(), how)
                .await
                .unwrap(),
        );
    }
    (t, dir)
}

async fn touch(t: &Case<SimDisk>, dir: &PosixNode<SimDisk>, name: &[u8]) {
    let how = crate::disk::OpenHow {
        create: Some(0o644),
        write: true,
        ..Default::default()
    };
    drop(t.vfs.disk().open_at(ME, dir.fd(), name, how).await.unwrap());
}

#[test]
fn a_miss_lists_once() {
    block_on(async {
        let (t, dir) = crowded().await;
        let before = t.vfs.names.listings();
        assert!(!t.is_there("d/none").await);
        assert_eq!(t.vfs.names.listings() - before, 1);
        for i in 0..50 {
            assert!(!t.is_there(&format!("d/none{i}")).await);
            assert!(t.is_there(&format!("d/FILE{i}")).await);
        }
        assert_eq!(t.vfs.names.listings() - before, 1);
        // A host change is noticed.
        touch(&t, &dir, b"Outsider").await;
        assert_eq!(t.find("d/OUTSIDER").await.unwrap().name, "Outsider");
        assert_eq!(t.vfs.names.listings() - before, 2);
        let service = &Identity::Service;
        t.vfs
            .disk()
            .unlink(service, dir.fd(), b"Outsider", false)
            .await
            .unwrap();
        assert!(!t.is_there("d/OUTSIDER").await);
        assert_eq!(t.vfs.names.listings() - before, 3);
    });
}

/// Lookups at once.
const AT_ONCE: usize = 512;

type IsThere<'a> = Pin<Box<dyn Future<Output = bool> + 'a>>;

/// Polls lookups in turns until all are done, and counts the names that were found.
async fn found(mut lookups: Vec<IsThere<'_>>) -> usize {
    let mut found = 0;
    std::future::poll_fn(|cx| {
        lookups.retain_mut(|lookup| match lookup.as_mut().poll(cx) {
            Poll::Ready(there) => {
                found += usize::from(there);
                false
            }
            Poll::Pending => true,
        });
        match lookups.is_empty() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    found
}

/// Lookups of names that are not there, and of one that is there in another case.
fn misses<'a>(t: &'a Case<SimDisk>, name: impl Fn(usize) -> String) -> Vec<IsThere<'a>> {
    let names = (0..AT_ONCE).map(name).chain(["FILE7".to_owned()]);
    let lookup = |name: String| -> IsThere<'a> {
        Box::pin(async move { t.is_there(&format!("d/{name}")).await })
    };
    names.map(lookup).collect()
}

fn long(number: usize) -> String {
    format!("none{number}")
}

/// A name that may be the short form of another.
fn short(number: usize) -> String {
    format!("N{number:05}~1")
}

#[test]
fn many_misses_at_once_list_once() {
    block_on(async {
        let (t, dir) = crowded().await;
        let listings = || t.vfs.names.listings();
        for name in [long, short] {
            let before = listings();
            assert_eq!(found(misses(&t, name)).await, 1);
            assert_eq!(listings() - before, 1);
            // Now there is a snapshot, also for short forms.
            assert_eq!(found(misses(&t, name)).await, 1);
            assert_eq!(listings() - before, 1);
            touch(&t, &dir, name(AT_ONCE).as_bytes()).await;
        }
        // A lookup that is dropped while it lists leaves the listing to the others.
        let before = listings();
        let mut lookups = misses(&t, long);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        for lookup in &mut lookups {
            assert!(lookup.as_mut().poll(&mut context).is_pending());
        }
        drop(lookups.remove(0));
        assert_eq!(found(lookups).await, 1);
        assert_eq!(listings() - before, 1);
    });
}

/// The directory's times are young, so its names may not be remembered.
#[test]
fn a_listing_that_is_not_kept_answers_all_who_had_asked() {
    block_on(async {
        let options = PosixOptions {
            clock: Clock::new(Timestamp::default),
            ..PosixOptions::default()
        };
        let (t, dir) = crowded_by(options).await;
        for name in [long, short] {
            let before = t.vfs.names.listings();
            assert_eq!(found(misses(&t, name)).await, 1);
            // The first began before the others asked.
            assert_eq!(t.vfs.names.listings() - before, 2);
        }
        // A name that is made while a listing is under way is found by lookups that ask after that.
        let mut lookups = misses(&t, long);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(lookups[0].as_mut().poll(&mut context).is_pending());
        touch(&t, &dir, b"None1").await;
        assert_eq!(found(lookups).await, 2);
    });
}

#[test]
fn our_own_changes_list_nothing() {
    block_on(async {
        let (t, dir) = crowded().await;
        let before = t.vfs.names.listings();
        assert!(!t.is_there("d/none").await);
        for i in 0..200 {
            t.file(&format!("d/new{i}")).await;
            assert_eq!(
                t.find(&format!("d/NEW{i}")).await.unwrap().name,
                format!("new{i}")
            );
        }
        t.rename("d/NEW1", "d/Renamed", false).await.unwrap();
        assert!(t.is_there("d/RENAMED").await && !t.is_there("d/NEW1").await);
        t.remove("d/new2").await.unwrap();
        assert!(!t.is_there("d/NEW2").await);
        let file = t.node("d/new3").await;
        t.vfs.link(ME, &file, &dir, "Linked", None).await.unwrap();
        assert!(t.is_there("d/LINKED").await);
        t.rename("d/new4", "d/NEW5", true).await.unwrap();
        assert_eq!(t.find("d/new5").await.unwrap().name, "NEW5");
        assert_eq!(t.vfs.names.listings() - before, 1);
        // An own change after a host change does not hide it.
        touch(&t, &dir, b"Outsider").await;
        t.file("d/after").await;
        assert!(t.is_there("d/OUTSIDER").await);
    });
}

#[test]
fn an_exact_hit_costs_an_open_and_a_stat_each() {
    block_on(async {
        let (t, _) = crowded().await;
        t.dir("d/e").await;
        t.file("d/e/f").await;
        let calls = Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = Arc::clone(&calls);
        t.vfs.disk().set_hook(Some(Arc::new(move |op| {
            seen.lock().unwrap().push(format!("{op:?}"));
            None
        })));
        assert!(t.is_there("d/e/f").await);
        let calls = calls.lock().unwrap();
        // The stored attributes of the file have been cached since it was made.
        assert_eq!(calls.len(), 6, "{calls:?}");
    });
}

/// The calls of the disk while `what` runs.
async fn asked(t: &Case<SimDisk>, what: impl Future<Output = ()>) -> Vec<String> {
    let calls = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&calls);
    t.vfs.disk().set_hook(Some(Arc::new(move |op| {
        if op != SimOp::Answer {
            seen.lock().unwrap().push(format!("{op:?}"));
        }
        None
    })));
    what.await;
    t.vfs.disk().set_hook(None);
    std::mem::take(&mut calls.lock().unwrap())
}

#[test]
fn names_are_made_and_removed_with_few_looks() {
    block_on(async {
        let (t, dir) = crowded().await;
        assert!(!t.is_there("d/none").await);
        let made = asked(&t, async {
            let new = NewNode::default();
            t.vfs.create(ME, &dir, "new", &new, false).await.unwrap();
        });
        // The directory before, and whether its files are indexed; open, state, mark; the directory after; the file as
        // it is now.
        let made = made.await;
        assert_eq!(made.len(), 7, "{made:?}");
        let file = t.node("d/new").await;
        let removed = asked(&t, async {
            t.vfs.remove(ME, &file, &dir, "new").await.unwrap();
        });
        // The kind of object, the directory around the removal, the depot's mark.
        let removed = removed.await;
        assert_eq!(removed.len(), 5, "{removed:?}");
        let file = t.node("d/File2").await;
        let moved = asked(&t, async {
            let moved = t.vfs.rename(ME, &file, &dir, "File2", &dir, "File", None);
            moved.await.unwrap();
        });
        // The kind of object, the directory around the move; the move itself reports that the new name is free.
        let moved = moved.await;
        assert_eq!(moved.len(), 4, "{moved:?}");
        // A caller that only wants the directory queries nothing below it.
        let path = ["d".to_owned(), "File1".to_owned()];
        let found = asked(&t, async {
            let parent = t.vfs.lookup_parent(ME, &path).await.unwrap();
            assert_eq!(parent.unwrap().0.key, dir.0.key);
        });
        assert_eq!(found.await.len(), 2);
        assert!(t.vfs.lookup_parent(ME, &[]).await.unwrap().is_none());
        // A lookup's view of the directory is the directory's own; it has none where it had to make a call that may
        // wait, as every open of this disk may.
        let permissions = t.vfs.permissions(&dir).await.unwrap();
        for (name, expected) in [("none", Some(permissions)), ("File1", None)] {
            let path = ["d".to_owned(), name.to_owned()];
            let seen = t.vfs.lookup(ME, &path).await.unwrap().parent_seen;
            assert_eq!(seen.map(|seen| seen.permissions), expected, "{name}");
        }
    });
}

#[test]
fn what_was_seen_is_not_asked_again() {
    block_on(async {
        let (t, dir) = crowded().await;
        assert!(!t.is_there("d/none").await);
        let path = ["d".to_owned(), "new".to_owned()];
        let mut above = None;
        let looked = asked(&t, async {
            above = t.vfs.lookup(ME, &path).await.unwrap().parent_seen;
        });
        // The directory and its state, which shows that the name is not there.
        let looked = looked.await;
        assert_eq!(looked.len(), 2, "{looked:?}");
        let made = asked(&t, async {
            let new = NewNode {
                above: above.as_ref(),
                ..NewNode::default()
            };
            t.vfs.create(ME, &dir, "new", &new, false).await.unwrap();
        });
        // Whether the directory's files are indexed; open, state, mark; the directory after; the file as it is now.
        let made = made.await;
        assert_eq!(made.len(), 6, "{made:?}");
        assert!(t.is_there("d/NEW").await && !t.is_there("d/none").await);
        // The cache has followed that, so the earlier state no longer proves anything.
        let taken = NewNode {
            above: above.as_ref(),
            ..NewNode::default()
        };
        let taken = t.vfs.create(ME, &dir, "NEW", &taken, false).await;
        assert_eq!(taken.unwrap_err(), VfsError::Exists);
        let (file, attr) = t.find("d/File1").await.unwrap().found.unwrap();
        for calls in [1, 0] {
            let asked = asked(&t, async {
                let changed = Some(&attr.changed);
                assert_eq!(t.vfs.security(&file, changed).await.unwrap(), None);
            });
            let asked = asked.await;
            assert_eq!(asked.len(), calls, "{asked:?}");
        }
        let descriptor = super::meta::descriptor(7);
        let set = t.vfs.set_security(ME, &file, &descriptor);
        set.await.unwrap();
        for changed in [Some(&attr.changed), None] {
            let stored = t.vfs.security(&file, changed).await.unwrap();
            assert_eq!(stored.as_ref(), Some(&descriptor));
        }
    });
}

#[test]
fn who_waited_for_a_name_looks_anew() {
    block_on(async {
        let (t, dir) = crowded().await;
        assert!(!t.is_there("d/none").await);
        let path = ["d".to_owned(), "outsider".to_owned()];
        let seen = t.vfs.lookup(ME, &path).await.unwrap().parent_seen;
        let new = NewNode {
            above: seen.as_ref(),
            ..NewNode::default()
        };
        assert!(new.above.is_some());
        let held = t.vfs.locks.name(dir.0.key, "outsider").await;
        let mut made = std::pin::pin!(t.vfs.create(ME, &dir, "outsider", &new, false));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(made.as_mut().poll(&mut context).is_pending());
        touch(&t, &dir, b"Outsider").await;
        drop(held);
        assert_eq!(made.await.unwrap_err(), VfsError::Exists);
    });
}

/// With a clock as coarse as a kernel's, a change within the tick of the listing is found.
#[test]
fn a_coarse_clock_hides_nothing() {
    use std::sync::atomic::{AtomicI64, Ordering};
    block_on(async {
        let now = Arc::new(AtomicI64::new(1_600_000_000_000));
        let read = |now: &Arc<AtomicI64>, tick: i64| {
            let now = Arc::clone(now);
            move || {
                let ms = now.load(Ordering::Relaxed) / tick * tick;
                let nanos = u32::try_from(ms % 1000).unwrap() * 1_000_000;
                Timestamp {
                    secs: ms / 1000,
                    nanos,
                }
            }
        };
        let clock = Clock::new(read(&now, 4));
        let (disk, link) = sim(SimOptions {
            clock: Some(clock),
            ..SimOptions::default()
        });
        let options = PosixOptions {
            clock: Clock::new(read(&now, 1)),
            ..PosixOptions::default()
        };
        let t = Case::with(disk, link, options).await;
        let dir = t.dir("d").await;
        let step = |ms| now.fetch_add(ms, Ordering::Relaxed);
        for i in 0..40 {
            touch(&t, &dir, format!("First{i}").as_bytes()).await;
            assert!(t.is_there(&format!("d/FIRST{i}")).await);
            // The same tick: the directory's times do not move.
            touch(&t, &dir, format!("Second{i}").as_bytes()).await;
            assert!(t.is_there(&format!("d/SECOND{i}")).await, "{i}");
            step(1);
        }
        // The times are settled: the directory is listed once more, and then the snapshot is used.
        step(50);
        let before = t.vfs.names.listings();
        for i in 0..20 {
            assert!(!t.is_there(&format!("d/none{i}")).await);
        }
        assert_eq!(t.vfs.names.listings(), before + 1);
        // Filling a directory through us lists it a few times, not each time.
        let before = t.vfs.names.listings();
        for i in 0..1000 {
            t.file(&format!("d/Mine{i}")).await;
            step(1);
        }
        assert!(t.vfs.names.listings() - before < 5);
        // A host change in the same tick as an own one is found when the snapshot has expired.
        t.file("d/mine").await;
        touch(&t, &dir, b"Covered").await;
        // The new file cannot take its name, although the cache has no such name.
        for security in [None, Some(super::meta::descriptor(7))] {
            let new = NewNode {
                security: security.map(crate::NewSecurity::Given),
                ..NewNode::default()
            };
            let before = t.vfs.list(ME, &dir, MANY).await.unwrap();
            let made = t.vfs.create(ME, &dir, "Covered", &new, false).await;
            assert_eq!(made.unwrap_err(), VfsError::Exists);
            assert_eq!(t.vfs.list(ME, &dir, MANY).await.unwrap(), before);
        }
        step(5000);
        assert!(t.is_there("d/COVERED").await);
    });
}

#[test]
fn nothing_is_left_of_a_creation_that_fails_halfway() {
    block_on(async {
        let (disk, link) = sim(SimOptions::default());
        let t = Case::new(disk, link).await;
        let mut long = super::meta::descriptor(7);
        long.resize(1 << 17, 0);
        for (ea, security, expected) in [
            (5000, None, VfsError::EasTooLarge),
            (1, Some(crate::NewSecurity::Given(long)), VfsError::TooLarge),
        ] {
            let new = NewNode {
                eas: vec![("x".into(), vec![0; ea])],
                security,
                ..NewNode::default()
            };
            let failed = t.vfs.create(ME, &t.vfs.root(), "f", &new, false).await;
            assert_eq!(failed.unwrap_err(), expected);
        }
        assert!(t.names("").await.is_empty());
    });
}

/// The disk has room, and the attributes of the inode have none.
#[test]
fn attributes_that_an_inode_has_no_room_for_are_too_large() {
    block_on(async {
        let (disk, link) = sim(SimOptions::default());
        let t = Case::new(disk, link).await;
        let file = t.file("f").await;
        let long = ("x".to_owned(), vec![0; 5000]);
        let set = t.vfs.set_eas(ME, &file, &[long]).await;
        assert_eq!(set.unwrap_err(), VfsError::TooLarge);
        assert!(t.vfs.eas(&file).await.unwrap().is_empty());
        let mut long = super::meta::descriptor(7);
        long.resize(1 << 17, 0);
        let set = t.vfs.set_security(ME, &file, &long).await;
        assert_eq!(set.unwrap_err(), VfsError::TooLarge);
        assert_eq!(t.vfs.security(&file, None).await.unwrap(), None);
    });
}

#[test]
fn a_name_that_is_given_again_and_again_is_stored_once() {
    block_on(async {
        let (disk, link) = sim(SimOptions::default());
        let t = Case::new(disk, link).await;
        let file = t.file("f").await;
        let many = |value: &[u8]| vec![("Name".to_owned(), value.to_vec()); 10_000];
        let calls = asked(&t, async {
            t.vfs.set_eas(ME, &file, &many(b"")).await.unwrap();
        });
        // The names of the attributes.
        let calls = calls.await;
        assert_eq!(calls.len(), 1, "{calls:?}");
        let calls = asked(&t, async {
            t.vfs.set_eas(ME, &file, &many(b"1")).await.unwrap();
        });
        let calls = calls.await;
        assert_eq!(calls.len(), 2, "{calls:?}");
    });
}

#[test]
fn names_of_a_large_directory_are_worked_on_in_portions() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    block_on(async {
        let pauses = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&pauses);
        let options = PosixOptions {
            pause: crate::env::Pause::new(move |waker| {
                count.fetch_add(1, Ordering::Relaxed);
                waker.wake_by_ref();
            }),
            ..default_options()
        };
        let (disk, link) = sim(SimOptions::default());
        let t = Case::with(disk, link, options).await;
        let dir = t.dir("d").await;
        for name in 0..3000 {
            touch(&t, &dir, format!("name{name}").as_bytes()).await;
        }
        let taken = || pauses.swap(0, Ordering::Relaxed);
        taken();
        assert_eq!(t.vfs.list(ME, &dir, 4000).await.unwrap().len(), 3000);
        assert_eq!(taken(), 2);
        // The snapshot that answers for a name in another case.
        assert!(t.is_there("d/NAME2999").await);
        assert_eq!(taken(), 2);
        // It is dropped in portions, too, when another takes its place.
        touch(&t, &dir, b"Outsider").await;
        assert!(t.is_there("d/OUTSIDER").await);
        assert_eq!(taken(), 4);
        // Attributes and streams, which may be long.
        let file = t.file("f").await;
        let eas: Vec<_> = (0..40).map(|i| (format!("ea{i}"), vec![1])).collect();
        t.vfs.set_eas(ME, &file, &eas).await.unwrap();
        assert_eq!(taken(), 2);
        assert_eq!(t.vfs.eas(&file).await.unwrap().len(), 40);
        assert_eq!(taken(), 2);
        for i in 0..40 {
            let how = StreamOpen::New;
            let stream = t.vfs.open_stream(ME, &file, &format!("s{i}"), how).await;
            drop(stream.unwrap());
        }
        taken();
        assert_eq!(t.vfs.streams(&file).await.unwrap().len(), 40);
        assert!(taken() >= 2);
    });
}

/// On the host, XFS takes 64 KiB in each of thousands of attributes.
#[test]
fn more_attributes_than_a_megabyte_are_not_read() {
    block_on(async {
        let (disk, link) = sim(SimOptions {
            xattr_space: 4 << 20,
            ..SimOptions::default()
        });
        let t = Case::new(disk, link).await;
        let file = t.file("f").await;
        let set = async |ea: usize| {
            let ea = (format!("ea{ea}"), vec![7; 60_000]);
            t.vfs.set_eas(ME, &file, &[ea]).await.unwrap();
        };
        for ea in 0..17 {
            set(ea).await;
        }
        // The host may give it one that is too long for any client.
        let (disk, how, long) = (t.vfs.disk(), XattrSet::Create, vec![7; 65_536]);
        let long = disk.set_xattr(ME, file.fd(), "user.long", &long, how);
        long.await.unwrap();
        assert_eq!(t.vfs.eas(&file).await.unwrap().len(), 17);
        let attr = t.vfs.attr(&file).await.unwrap();
        let size = crate::ea_size((0..17).map(|ea| (format!("ea{ea}").len(), 60_000)));
        assert_eq!(t.vfs.ea_size(&file, &attr).await, Ok(size));
        let (root, name) = (t.vfs.root(), crate::DirName::same("f".into()));
        let sizes = t.vfs.ea_sizes_at(&root, &[(&name, &attr)]).await;
        assert_eq!(sizes, [size]);
        set(17).await;
        assert_eq!(t.vfs.eas(&file).await.unwrap_err(), VfsError::TooLarge);
    });
}
