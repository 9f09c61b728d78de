//! Two closes of one name, of which one removes it.

use std::{
    pin::Pin,
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Poll, Waker},
};

use vfs::sim::{Fault, FaultAction, SimOp};

use super::*;
use crate::{
    limits::ServerLimits,
    restore::world::{World, run, run_tasks},
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
    let slow = Arc::new(AtomicBool::new(true));
    let held = Arc::clone(&slow);
    world.disk.set_hook(Some(Arc::new(move |op| {
        let held = Arc::clone(&held);
        let wait = std::future::poll_fn(move |_| match held.load(Ordering::Relaxed) {
            true => Poll::Pending,
            false => Poll::Ready(()),
        });
        (op == SimOp::Change).then(|| Box::pin(wait) as _)
    })));
    let mut context = Context::from_waker(Waker::noop());
    let mut first = Box::pin(finish(server, None, &posix));
    let mut second = Box::pin(finish(server, None, &plain));
    for close in [&mut first, &mut second] {
        for _ in 0..100 {
            assert!(close.as_mut().poll(&mut context).is_pending());
        }
    }
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
