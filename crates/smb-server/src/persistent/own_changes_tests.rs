//! Tests of timestamps that are stored ahead and delayed on their way to the disk.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, Waker},
};

use super::*;
use crate::{
    file::Owner,
    limits::ServerLimits,
    restore::world::{CLIENT, KEY, NOW, World, came, run, run_tasks},
};

#[test]
fn one_word_serves_the_changes_of_its_time() {
    let own = OwnChanges::default();
    assert_eq!(own.renewed(1000), Some(1000 + AHEAD_MS));
    assert_eq!(own.renewed(1000 + AHEAD_MS - RENEW_MS), None);
    let late = 1001 + AHEAD_MS - RENEW_MS;
    assert_eq!(own.renewed(late), Some(late + AHEAD_MS));
    // The timestamp is neither withdrawn nor extended.
    assert_eq!(own.still(late + 1), late + AHEAD_MS);
    assert_eq!(own.still(late + AHEAD_MS + 1), late + AHEAD_MS + 1);
    // The clock was set back.
    assert_eq!(own.renewed(5), Some(5 + AHEAD_MS));
    let at = timestamp(1_234_567);
    assert_eq!(
        (at.secs, at.nanos, millis(at)),
        (1234, 567_000_000, 1_234_567)
    );
}

/// Timestamps on their way to the disk.
#[derive(Default)]
struct Words {
    begun: Vec<Timestamp>,
    landed: Vec<Timestamp>,
    held: bool,
}

fn lock(words: &Mutex<Words>) -> MutexGuard<'_, Words> {
    words.lock().unwrap()
}

/// One open is recorded and all changes are seen; the stored timestamps are collected.
fn world() -> (World, Arc<Mutex<Words>>) {
    let world = World::new(false, ServerLimits::default());
    world.watched(true);
    world.changes_seen(true);
    assert_eq!(world.bring_back(&[world.record(10)]), came(1, 0, 0));
    let words: Arc<Mutex<Words>> = Arc::default();
    let announced = Arc::clone(&words);
    world.server.announce_changes_by(Box::new(move |until| {
        lock(&announced).begun.push(until);
        let announced = Arc::clone(&announced);
        Box::pin(poll_fn(move |_| {
            let mut words = lock(&announced);
            if words.held {
                return Poll::Pending;
            }
            words.landed.push(until);
            Poll::Ready(())
        }))
    }));
    (world, words)
}

#[test]
fn a_word_waits_for_the_one_before_it() {
    let (world, words) = world();
    lock(&words).held = true;
    world.server.changes_ahead();
    run_tasks();
    assert_eq!(lock(&words).begun.len(), 1);
    let mut still = pin!(world.server.record_that_changes_are_seen());
    let mut context = Context::from_waker(Waker::noop());
    assert!(still.as_mut().poll(&mut context).is_pending());
    assert_eq!(lock(&words).begun.len(), 1, "two may land in either order");
    lock(&words).held = false;
    run_tasks();
    assert!(still.as_mut().poll(&mut context).is_ready());
    let ahead = timestamp(millis(NOW) + AHEAD_MS);
    assert_eq!(
        lock(&words).landed,
        [ahead, ahead],
        "never less than before"
    );
}

#[test]
fn no_word_is_given_while_what_a_client_lost_is_not_recorded() {
    let (world, words) = world();
    let server = &world.server;
    world.server.changes_ahead();
    run_tasks();
    assert_eq!(lock(&words).landed.len(), 1);
    // The lease is broken, and that cannot be stored.
    world.store.broken.store(true, Ordering::SeqCst);
    let owner = Owner::Lease(CLIENT, KEY);
    crate::state::records::caching_changed(server, owner);
    run(server.persistence.caching_recorded());
    assert_eq!(
        lock(&words).landed.last(),
        Some(&Timestamp::default()),
        "who waited may go on: what was said ahead is not true any more"
    );
    run_tasks();
    let said = lock(&words).landed.len();
    // Later writes succeed; this one did not.
    world.store.slow.store(true, Ordering::SeqCst);
    world.store.broken.store(false, Ordering::SeqCst);
    assert!(!server.sees_all_changes());
    run(server.record_that_changes_are_seen());
    assert_eq!(lock(&words).landed.len(), said);
    world.store.slow.store(false, Ordering::SeqCst);
    run(server.record_that_changes_are_seen());
    assert_eq!(lock(&words).landed.len(), said + 1);
    assert!(lock(&words).landed.last() >= Some(&NOW));
    assert!(server.sees_all_changes());
}
