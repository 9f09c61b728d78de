//! Tests that there is one claim at a time for each name, and that no waiter is forgotten.

use super::*;
use crate::file::claims::PARKED_MAX;

#[test]
fn a_name_is_claimed_once() {
    let rig = Rig::new();
    let name = link(1, "X");
    assert_eq!(rig.files.claims.claim(&link(1, "X"), waiter(1)), Step::Go);
    assert_eq!(rig.files.claims.claim(&link(2, "X"), waiter(2)), Step::Go);
    for n in 3..6 {
        assert_eq!(rig.files.claims.claim(&name, waiter(n)), Step::Wait);
    }
    let effects = rig.files.claims.release(&name);
    let retry = |n| Wake {
        waiter: WaiterId(n),
        outcome: Outcome::Retry,
    };
    assert_eq!(effects.wakes, [retry(3), retry(4), retry(5)]);
    // A waiter that was woken has not claimed the name; the first to ask gets it.
    assert_eq!(rig.files.claims.claim(&name, waiter(5)), Step::Go);
    assert_eq!(rig.files.claims.claim(&name, waiter(3)), Step::Wait);
    assert_eq!(rig.files.claims.release(&name).wakes, [retry(3)]);
    assert!(rig.files.claims.release(&link(2, "X")).is_empty());
    assert!(rig.files.is_empty());
}

#[test]
fn who_finds_what_is_being_made_waits_and_claims_nothing() {
    let rig = Rig::new();
    let name = link(1, "X");
    assert!(rig.files.claims.is_empty());
    assert_eq!(rig.files.claims.after(&name, waiter(1)), Step::Go);
    assert_eq!(rig.files.claims.claim(&name, waiter(2)), Step::Go);
    assert!(!rig.files.claims.is_empty());
    assert_eq!(rig.files.claims.after(&name, waiter(3)), Step::Wait);
    assert_eq!(rig.files.claims.after(&link(2, "X"), waiter(4)), Step::Go);
    let retry = Wake {
        waiter: WaiterId(3),
        outcome: Outcome::Retry,
    };
    assert_eq!(rig.files.claims.release(&name).wakes, [retry]);
    assert_eq!(rig.files.claims.after(&name, waiter(3)), Step::Go);
    assert!(rig.files.is_empty());
}

#[test]
fn a_rename_of_a_file_waits_for_the_claims_of_its_streams() {
    let rig = Rig::new();
    let file = key(7);
    let stream = Link::of_stream(file, "S");
    assert_eq!(
        rig.files.claims.claim(&Link::new(file, "X"), waiter(1)),
        Step::Go
    );
    assert_eq!(
        rig.files.claims.after_those_of_streams(file, waiter(2)),
        Step::Go
    );
    assert_eq!(rig.files.claims.claim(&stream, waiter(3)), Step::Go);
    assert_eq!(
        rig.files.claims.after_those_of_streams(file, waiter(2)),
        Step::Wait
    );
    assert_eq!(
        rig.files.claims.after_those_of_streams(key(8), waiter(4)),
        Step::Go
    );
    let retry = Wake {
        waiter: WaiterId(2),
        outcome: Outcome::Retry,
    };
    assert_eq!(rig.files.claims.release(&stream).wakes, [retry]);
    assert!(rig.files.claims.release(&Link::new(file, "X")).is_empty());
}

#[test]
fn so_many_park_and_no_more() {
    let rig = Rig::new();
    let claim = |user| {
        let user = CountedUser(user);
        rig.files
            .claims
            .claim(&link(1, "X"), Waiter { user, ..waiter(1) })
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
