//! Closes that remove a name: two of one name, and one whose name another file takes.

use std::{
    pin::Pin,
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Poll, Waker},
};

use vfs::{
    Disk, Paths, Volume,
    disk::OpenHow,
    sim::{Fault, FaultAction, SimOp},
};

use super::*;
use crate::{
    file::Link,
    limits::ServerLimits,
    persistent::OpenRecord,
    restore::world::{HASTE, World, run, run_tasks},
};

/// How the removal ends that the first of two closes carries out.
#[derive(PartialEq)]
enum End {
    Removed,
    Failed,
    Dropped,
}

/// Runs a close together with the tasks that it waits for.
fn answered<T>(mut close: impl Future<Output = T> + Unpin) -> T {
    run(std::future::poll_fn(move |context| {
        run_tasks();
        Pin::new(&mut close).poll(context)
    }))
}

/// Holds every operation of a kind that begins from now on, until the value is false.
fn held(world: &World, kind: SimOp) -> Arc<AtomicBool> {
    let slow = Arc::new(AtomicBool::new(true));
    let held = Arc::clone(&slow);
    world.disk.set_hook(Some(Arc::new(move |op| {
        let held = Arc::clone(&held);
        let wait = std::future::poll_fn(move |_| match held.load(Ordering::Relaxed) {
            true => Poll::Pending,
            false => Poll::Ready(()),
        });
        (op == kind).then(|| Box::pin(wait) as _)
    })));
    slow
}

/// Polls until it waits for what is held.
fn waits<T>(close: &mut (impl Future<Output = T> + Unpin)) {
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..100 {
        assert!(Pin::new(&mut *close).poll(&mut context).is_pending());
    }
}

/// The answer to the second close.
fn second_close(end: &End) -> Result<(), VfsError> {
    let world = World::new(false, ServerLimits::default());
    world.changes_seen(true);
    let _back = world.bring_back(&[world.record(10), world.record(11)]);
    let (server, files) = (&world.server, &world.server.files);
    let open = |id| server.durables.find(id).unwrap();
    let (posix, plain) = (open(10), open(11));
    let place = plain.disk().unwrap().place;
    let who = Deleter::new(&Identity::Service, None, false);
    for (open, posix) in [(&posix, true), (&plain, false)] {
        let marked = files.set_delete_pending(&place, open.engine, posix, &who);
        assert!(marked.is_ok());
    }
    let slow = held(&world, SimOp::Change);
    let mut first = Box::pin(finish(server, None, &posix));
    let mut second = Box::pin(finish(server, None, &plain));
    waits(&mut first);
    waits(&mut second);
    slow.store(false, Ordering::Relaxed);
    if *end == End::Failed {
        let (on, action) = (SimOp::Change, FaultAction::Fail(5));
        assert!(world.disk.inject(Fault {
            on,
            after: 0,
            action
        }));
    }
    if *end == End::Dropped {
        drop(first);
    } else {
        assert_eq!(answered(first).is_ok(), *end == End::Removed);
    }
    let answer = answered(second).map(drop);
    assert_eq!(files.count(place.key, None), 0);
    answer
}

#[test]
fn a_close_waits_for_the_removal_that_another_one_carries_out() {
    assert_eq!(second_close(&End::Removed), Ok(()));
}

#[test]
fn a_close_fails_with_the_removal_that_another_one_carries_out() {
    assert_eq!(second_close(&End::Failed), Err(VfsError::Io));
    assert_eq!(second_close(&End::Dropped), Err(VfsError::Io));
}

/// The answer to a close that was to remove a name of a file with two, if another file gets the name meanwhile, by a
/// client or by a program on the host.
fn close_of_a_name_taken(by_client: bool) -> Result<(), VfsError> {
    let world = World::new(false, ServerLimits::default());
    world.changes_seen(true);
    let _back = world.bring_back(&[world.record(10)]);
    let _other = world.elsewhere(world.record(11), "g");
    let (server, files, disk) = (&world.server, &world.server.files, &world.disk);
    let open = server.durables.find(10).unwrap();
    let place = open.disk().unwrap().place;
    let who = Deleter::new(&Identity::Service, None, false);
    let marked = files.set_delete_pending(&place, open.engine, true, &who);
    assert!(marked.is_ok());
    let slow = held(&world, SimOp::Look);
    let mut close = Box::pin(finish(server, None, &open));
    waits(&mut close);
    disk.set_hook(None);
    let (me, root) = (&Identity::Service, disk.root());
    run(async {
        let file = disk.open_at(me, &root, b"f", OpenHow::default()).await;
        let linked = disk.link(me, &file.unwrap(), &root, b"second").await;
        let taken = disk.rename(me, (&root, b"g"), (&root, b"f"), true).await;
        assert_eq!((linked, taken), (Ok(()), Ok(())));
    });
    if by_client {
        let shares = server.shares();
        let above = shares.find("data").unwrap().vfs.root().key();
        files.replaced(place.key, &Link::new(above, "f"));
    }
    slow.store(false, Ordering::Relaxed);
    answered(close).map(drop)
}

#[test]
fn a_close_whose_name_another_file_takes_has_nothing_left_to_remove() {
    assert_eq!(close_of_a_name_taken(true), Ok(()));
    // Nobody knows whether the host has given the file another name.
    assert_eq!(close_of_a_name_taken(false), Err(VfsError::NotFound));
}

/// Another share moves the link of an open, and the file gets another link at the open's path.
#[test]
fn a_close_removes_the_link_of_its_open_and_no_later_one_with_its_old_name() {
    let world = World::new(false, ServerLimits::default());
    world.changes_seen(true);
    let _back = world.bring_back(&[world.record(10)]);
    let (server, files, disk) = (&world.server, &world.server.files, &world.disk);
    let open = server.durables.find(10).unwrap();
    let place = open.disk().unwrap().place;
    let (me, root) = (&Identity::Service, disk.root());
    run(async {
        let file = disk.open_at(me, &root, b"f", OpenHow::default()).await;
        let linked = disk.link(me, &file.unwrap(), &root, b"moved").await;
        assert_eq!(linked, Ok(()));
    });
    let above = server.shares().find("data").unwrap().vfs.root().key();
    let (link, other) = (
        |name| Link::new(above, name),
        |name: &str| SharePath::of(2, &[name.to_owned()]),
    );
    let (from, to) = (other("f"), other("moved"));
    files.renamed(place.key, (&from, &link("f")), (&to, &link("moved")));
    let who = Deleter::new(&Identity::Service, None, false);
    let marked = files.set_delete_pending(&place, open.engine, true, &who);
    assert!(marked.is_ok());
    let closed = answered(Box::pin(finish(server, None, &open)));
    assert_eq!(closed.map(drop), Ok(()));
    let is_there = |name: &[u8]| run(disk.stat_at(&root, name)).is_ok();
    assert!(is_there(b"f") && !is_there(b"moved"));
}

/// A directory above the name is moved through another share of the same folder: on disk already, and not yet in the
/// engine.
#[test]
fn a_close_finds_its_name_after_a_rename_through_another_share() {
    let world = World::new(false, ServerLimits::default());
    world.changes_seen(true);
    world.show_one_folder();
    let (server, files, disk) = (&world.server, &world.server.files, &world.disk);
    let (me, root) = (&Identity::Service, disk.root());
    let below = |name: &str| vec![name.to_owned(), "f".to_owned()];
    run(async {
        disk.make_dir(me, &root, b"d", 0o700).await.unwrap();
        let d = disk.open_at(me, &root, b"d", OpenHow::default()).await;
        let moved = disk
            .rename(me, (&root, b"f"), (&d.unwrap(), b"f"), false)
            .await;
        assert_eq!(moved, Ok(()));
    });
    let record = OpenRecord {
        path: below("d"),
        ..world.record(10)
    };
    let _back = world.bring_back(&[record]);
    let open = server.durables.find(10).unwrap();
    let place = open.disk().unwrap().place;
    let who = Deleter::new(me, None, false);
    let marked = files.set_delete_pending(&place, open.engine, true, &who);
    assert!(marked.is_ok());
    let under_way = run(server.name_turns.rename(ShareId(2)));
    run(disk.rename(me, (&root, b"d"), (&root, b"e"), false)).unwrap();
    let mut close = Box::pin(finish(server, None, &open));
    waits(&mut close);
    let vfs = Arc::clone(&server.shares().find("other").unwrap().vfs);
    let path = ["e".to_owned()];
    let (above, found) = run(async {
        let lookup = vfs.lookup(me, &path).await.unwrap();
        (vfs.root().key(), lookup.found.unwrap().0.key())
    });
    let [from, to] =
        ["d", "e"].map(|name| (SharePath::of(2, &[name.into()]), Link::new(above, name)));
    files.renamed(found, (&from.0, &from.1), (&to.0, &to.1));
    drop(under_way);
    assert_eq!(answered(close).map(drop), Ok(()));
    let left = run(vfs.lookup(me, &below("e")));
    assert!(left.is_ok_and(|lookup| lookup.found.is_none()));
}

/// A removal that did not find its name has a turn between the renames of the share, and then its disk hangs.
#[test]
fn renames_do_not_wait_for_a_removal_whose_disk_hangs() {
    let world = World::new(false, ServerLimits::default());
    world.changes_seen(true);
    let _back = world.bring_back(&[world.record(10)]);
    let (server, disk) = (&world.server, &world.disk);
    let open = server.durables.find(10).unwrap();
    let place = open.disk().unwrap().place;
    let who = Deleter::new(&Identity::Service, None, false);
    let marked = (server.files).set_delete_pending(&place, open.engine, true, &who);
    assert!(marked.is_ok());
    let (me, root) = (&Identity::Service, disk.root());
    run(disk.rename(me, (&root, b"f"), (&root, b"g"), false)).unwrap();
    let (turns, share) = (&server.name_turns, ShareId(1));
    let under_way = run(turns.rename(share));
    let mut close = Box::pin(finish(server, None, &open));
    waits(&mut close);
    waits(&mut Box::pin(turns.rename(share)));
    let slow = held(&world, SimOp::Look);
    HASTE.set(true);
    drop(under_way);
    waits(&mut close);
    HASTE.set(false);
    drop(run(turns.rename(share)));
    slow.store(false, Ordering::Relaxed);
    assert_eq!(answered(close).map(drop), Err(VfsError::NotFound));
}
