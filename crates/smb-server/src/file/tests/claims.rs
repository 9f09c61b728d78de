//! Tests that there is one claim at a time for each path, and that no waiter is forgotten.

use super::*;
use crate::file::names::PARKED_MAX;

#[test]
fn a_path_is_claimed_once() {
    let rig = Rig::new(Caching::None);
    let upper = path("D\\X");
    assert_eq!(rig.files.claim(&path("d\\x"), waiter(1)), Step::Go);
    assert_eq!(rig.files.claim(&path("d"), waiter(2)), Step::Go);
    for n in 3..6 {
        assert_eq!(rig.files.claim(&upper, waiter(n)), Step::Wait);
    }
    let effects = rig.files.release(&upper);
    let retry = |n| Wake {
        waiter: WaiterId(n),
        outcome: Outcome::Retry,
    };
    assert_eq!(effects.wakes, [retry(3), retry(4), retry(5)]);
    // A waiter that was woken has not claimed the path; the first to ask gets it.
    assert_eq!(rig.files.claim(&upper, waiter(5)), Step::Go);
    assert_eq!(rig.files.claim(&upper, waiter(3)), Step::Wait);
    assert_eq!(rig.files.release(&upper).wakes, [retry(3)]);
    assert!(rig.files.release(&path("d")).is_empty());
    assert!(rig.files.is_empty());
}

#[test]
fn so_many_park_and_no_more() {
    let rig = Rig::new(Caching::None);
    let claim = |user| {
        let user = CountedUser(user);
        rig.files.claim(&path("x"), Waiter { user, ..waiter(1) })
    };
    assert_eq!(claim(1), Step::Go);
    for _ in 0..PARKED_MAX / 2 {
        assert_eq!(claim(1), Step::Wait);
    }
    let refused = Step::Refused(Status::INSUFFICIENT_RESOURCES);
    assert_eq!(claim(1), refused);
    for _ in 0..PARKED_MAX / 2 {
        assert_eq!(claim(2), Step::Wait);
    }
    assert_eq!(claim(3), refused);
}
