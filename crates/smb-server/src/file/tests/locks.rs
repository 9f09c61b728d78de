//! Byte-range locks: arrays, roll back, stacking, zero lengths, blocked requests, sequences.

use smb_wire::msg::{LockElement, LockFlags};

use super::*;
use crate::{
    file::{before_bad_flags, locks::WAITING_MAX},
    limits::RANGES_PER_OPEN_MAX,
};

const SHARED: LockFlags = LockFlags::SHARED;
const EXCLUSIVE: LockFlags = LockFlags::EXCLUSIVE;
const UNLOCK: LockFlags = LockFlags::UNLOCK;
const NOW: LockFlags = LockFlags::FAIL_IMMEDIATELY;
const OK: Locking = Locking::Done(Status::SUCCESS);

fn element(offset: u64, length: u64, flags: LockFlags) -> LockElement {
    LockElement {
        offset,
        length,
        flags,
    }
}

struct Locked {
    rig: Rig,
    opens: Vec<OpenRequest>,
}

impl Locked {
    fn new(opens: usize) -> Self {
        let rig = Rig::new();
        let opens: Vec<OpenRequest> = (0..opens).map(|_| rig.request(1, READ | WRITE)).collect();
        for request in &opens {
            rig.open(request);
        }
        Self { rig, opens }
    }

    /// A request of open `n`, with waiter `n`.
    fn array(&self, n: usize, elements: &[LockElement]) -> Locking {
        self.sequenced(n, elements, None).0
    }

    fn sequenced(
        &self,
        n: usize,
        elements: &[LockElement],
        sequence: Option<LockSequence>,
    ) -> (Locking, Effects) {
        let waiter = WaiterId(1000 + n as u64);
        self.rig.files.lock(
            &place(1),
            self.opens[n].open,
            elements,
            sequence,
            waiter,
            LockBounds::ANY,
        )
    }

    /// A request of open `n` by a user whose ranges are counted.
    fn counted(
        &self,
        n: usize,
        user: u64,
        waiter: u64,
        elements: &[LockElement],
    ) -> (Locking, Effects) {
        let bounds = LockBounds {
            user: CountedUser(user),
            ..LockBounds::ANY
        };
        let (open, waiter) = (self.opens[n].open, WaiterId(waiter));
        let files = &self.rig.files;
        files.lock(&place(1), open, elements, None, waiter, bounds)
    }

    fn one(&self, n: usize, offset: u64, length: u64, flags: LockFlags) -> Locking {
        self.array(n, &[element(offset, length, flags)])
    }

    fn io(&self, n: usize, offset: u64, length: u64, write: bool) -> bool {
        let open = self.opens[n].open;
        let checked = self
            .rig
            .files
            .check_io(&place(1), open, offset, length, write);
        assert!(checked.is_ok() || checked == Err(Status::FILE_LOCK_CONFLICT));
        checked.is_ok()
    }
}

/// Shared locks of one open, which stack: there is no conflict to look for, only the bounds.
fn stacked(count: usize) -> Vec<LockElement> {
    (0..count)
        .map(|n| element(n as u64, 1, SHARED | NOW))
        .collect()
}

fn failed(status: Status) -> Locking {
    Locking::Done(status)
}

#[test]
fn locks_of_two_opens_conflict_by_table() {
    for (first, second, same, other) in [
        (SHARED, SHARED, true, true),
        (SHARED, EXCLUSIVE, false, false),
        (EXCLUSIVE, SHARED, true, false),
        (EXCLUSIVE, EXCLUSIVE, false, false),
    ] {
        for (n, granted) in [(0, same), (1, other)] {
            let locked = Locked::new(2);
            assert_eq!(locked.one(0, 10, 10, first), OK);
            let expected = if granted {
                OK
            } else {
                failed(Status::LOCK_NOT_GRANTED)
            };
            assert_eq!(
                locked.one(n, 19, 1, second | NOW),
                expected,
                "{first:?} {second:?} {n}"
            );
            assert_eq!(locked.one(n, 20, 1, second | NOW), OK);
            assert_eq!(locked.one(n, 0, 10, second | NOW), OK);
        }
    }
}

#[test]
fn io_is_barred_by_table() {
    let locked = Locked::new(2);
    assert_eq!(locked.one(0, 10, 10, EXCLUSIVE), OK);
    assert_eq!(locked.one(0, 30, 10, SHARED), OK);
    assert!(locked.io(0, 10, 10, false) && locked.io(0, 10, 10, true));
    assert!(!locked.io(1, 19, 1, false) && !locked.io(1, 0, 11, true));
    assert!(locked.io(1, 20, 10, true) && locked.io(1, 15, 0, true));
    assert!(locked.io(0, 30, 10, false) && locked.io(1, 30, 10, false));
    // A shared lock bars writers, even its owner.
    assert!(!locked.io(0, 30, 10, true) && !locked.io(1, 30, 10, true));
    assert!(!locked.io(1, 5, u64::MAX, false));
}

#[test]
fn zero_length_ranges_conflict_only_strictly_inside() {
    let locked = Locked::new(2);
    assert_eq!(locked.one(0, 10, 10, EXCLUSIVE), OK);
    for (offset, granted) in [
        (0, true),
        (9, true),
        (10, true),
        (11, false),
        (19, false),
        (20, true),
    ] {
        let expected = if granted {
            OK
        } else {
            failed(Status::LOCK_NOT_GRANTED)
        };
        assert_eq!(
            locked.one(1, offset, 0, EXCLUSIVE | NOW),
            expected,
            "{offset}"
        );
    }
    assert_eq!(locked.one(1, u64::MAX, 0, EXCLUSIVE | NOW), OK);
    // Two locks of length 0 never conflict.
    assert_eq!(locked.one(0, 20, 0, EXCLUSIVE | NOW), OK);
    // They bar ranges that surround them.
    assert_eq!(
        locked.one(0, 19, 2, EXCLUSIVE | NOW),
        failed(Status::LOCK_NOT_GRANTED)
    );
}

#[test]
fn ranges_past_the_end_of_numbers_are_invalid() {
    let locked = Locked::new(1);
    let invalid = failed(Status::INVALID_LOCK_RANGE);
    assert_eq!(locked.one(0, u64::MAX, 2, EXCLUSIVE | NOW), invalid);
    assert_eq!(
        locked.one(0, 2, u64::MAX, UNLOCK),
        failed(Status::INVALID_LOCK_RANGE)
    );
    assert_eq!(locked.one(0, u64::MAX, 1, EXCLUSIVE | NOW), OK);
    assert_eq!(locked.one(0, 0, u64::MAX, EXCLUSIVE | NOW), OK);
    assert_eq!(locked.one(0, 1, u64::MAX, SHARED | NOW), OK);
}

#[test]
fn flags_must_be_one_of_the_legal_combinations() {
    let locked = Locked::new(1);
    let bad = failed(Status::INVALID_PARAMETER);
    for flags in [0, 3, 0x10, 0x13, 0x21, 6, 5] {
        assert_eq!(locked.one(0, 0, 1, LockFlags(flags)), bad, "{flags:#x}");
    }
    assert_eq!(locked.one(0, 0, 1, UNLOCK | NOW), bad);
    assert_eq!(locked.array(0, &[]), bad);
    // A request cannot have several locks that may block.
    let two = [element(0, 1, EXCLUSIVE | NOW), element(1, 1, EXCLUSIVE)];
    assert_eq!(locked.array(0, &two), bad);
    assert_eq!(
        locked.one(0, 0, 1, UNLOCK),
        failed(Status::RANGE_NOT_LOCKED)
    );
}

#[test]
fn a_denied_array_gives_back_but_a_bad_flag_does_not() {
    let locked = Locked::new(2);
    assert_eq!(locked.one(1, 50, 10, EXCLUSIVE), OK);
    let denied = [
        element(0, 10, EXCLUSIVE | NOW),
        element(20, 10, SHARED | NOW),
        element(55, 1, SHARED | NOW),
    ];
    assert_eq!(locked.array(0, &denied), failed(Status::LOCK_NOT_GRANTED));
    assert!(locked.io(1, 0, 30, true));
    let overflow = [
        element(0, 10, EXCLUSIVE | NOW),
        element(9, u64::MAX, SHARED | NOW),
    ];
    assert_eq!(
        locked.array(0, &overflow),
        failed(Status::INVALID_LOCK_RANGE)
    );
    assert!(locked.io(1, 0, 30, true));
    for flags in [UNLOCK | NOW, SHARED | EXCLUSIVE | NOW] {
        let bad = [
            element(0, 10, EXCLUSIVE | NOW),
            element(20, 1, flags),
            element(40, 1, EXCLUSIVE | NOW),
        ];
        assert_eq!(locked.array(0, &bad), failed(Status::INVALID_PARAMETER));
        assert!(!locked.io(1, 0, 10, true) && locked.io(1, 10, 40, true));
        assert_eq!(before_bad_flags(&bad).len(), 1, "{flags:?}");
        assert_eq!(locked.one(0, 0, 10, UNLOCK), OK);
    }
    // A request that is refused whole leaves nothing.
    let blocking = [element(0, 10, EXCLUSIVE | NOW), element(20, 1, EXCLUSIVE)];
    assert!(before_bad_flags(&blocking).is_empty());
}

#[test]
fn unlocking_is_exact_and_stops_at_the_first_bad_one() {
    let locked = Locked::new(2);
    assert_eq!(locked.one(0, 10, 10, EXCLUSIVE), OK);
    assert_eq!(locked.one(0, 10, 10, SHARED), OK);
    for (n, offset, length) in [(0, 10, 5), (0, 11, 9), (1, 10, 10)] {
        assert_eq!(
            locked.one(n, offset, length, UNLOCK),
            failed(Status::RANGE_NOT_LOCKED)
        );
    }
    // Of the two, the exclusive one is unlocked first.
    assert_eq!(locked.one(0, 10, 10, UNLOCK), OK);
    assert!(locked.io(1, 10, 10, false) && !locked.io(1, 10, 10, true));
    assert_eq!(locked.one(0, 40, 1, SHARED), OK);
    let array = [
        element(10, 10, UNLOCK),
        element(30, 1, UNLOCK),
        element(40, 1, UNLOCK),
    ];
    assert_eq!(locked.array(0, &array), failed(Status::RANGE_NOT_LOCKED));
    assert!(locked.io(1, 10, 10, true) && !locked.io(1, 40, 1, true));
    let mixed = [element(40, 1, UNLOCK), element(40, 1, SHARED)];
    assert_eq!(locked.array(0, &mixed), failed(Status::INVALID_PARAMETER));
    assert!(locked.io(1, 40, 1, true));
}

#[test]
fn blocked_requests_are_granted_in_order() {
    let locked = Locked::new(4);
    assert_eq!(locked.one(0, 0, 10, EXCLUSIVE), OK);
    for n in 1..4 {
        assert_eq!(locked.one(n, 5, 1, EXCLUSIVE), Locking::Pending);
    }
    let (done, effects) = locked.sequenced(0, &[element(0, 10, UNLOCK)], None);
    assert_eq!(done, OK);
    let wake = |n: u64, outcome| Wake {
        waiter: WaiterId(1000 + n),
        outcome,
    };
    assert_eq!(effects.wakes, [wake(1, Outcome::Locked)]);
    assert!(!locked.io(0, 5, 1, false));
    // Cancelled requests are skipped; a close releases locks and ends the requests of the closing
    // open.
    let withdraw = |n: usize| {
        let waiter = WaiterId(1000 + n as u64);
        let files = &locked.rig.files;
        files.withdraw_lock(&place(1), locked.opens[n].open, waiter)
    };
    assert_eq!(withdraw(2), Withdrawal::InTime);
    assert_eq!(withdraw(1), Withdrawal::Granted);
    assert_eq!(locked.one(1, 5, 1, EXCLUSIVE), Locking::Pending);
    let closed = locked.rig.close(&locked.opens[1]);
    let gone = Outcome::Failed(Status::RANGE_NOT_LOCKED);
    assert_eq!(
        closed.effects.wakes,
        [wake(1, gone), wake(3, Outcome::Locked)]
    );
    assert_eq!(withdraw(1), Withdrawal::Ended);
    assert_eq!(locked.one(3, 5, 1, UNLOCK), OK);
    assert!(locked.io(0, 0, 100, true));
}

#[test]
fn a_series_of_unlocks_grants_what_it_barred() {
    let locked = Locked::new(3);
    let held = [0, 20, 40, 60, 80].map(|offset| element(offset, 10, EXCLUSIVE | NOW));
    assert_eq!(locked.array(0, &held), OK);
    assert_eq!(locked.one(1, 25, 1, EXCLUSIVE), Locking::Pending);
    assert_eq!(locked.one(2, 45, 1, EXCLUSIVE), Locking::Pending);
    let unlocks = [0, 20].map(|offset| element(offset, 10, UNLOCK));
    let (done, effects) = locked.sequenced(0, &unlocks, None);
    assert_eq!((done, effects.wakes.len()), (OK, 1));
    assert!(locked.io(1, 25, 1, true) && !locked.io(2, 25, 1, true));
}

#[test]
fn a_request_that_waits_for_room_gets_it_from_any_range() {
    let locked = Locked::new(4);
    let far: u64 = 1 << 40;
    let only = [element(far, 1, EXCLUSIVE)];
    assert_eq!(locked.counted(0, 1, 1, &only).0, OK);
    assert_eq!(locked.counted(1, 2, 1, &only).0, Locking::Pending);
    let many = stacked(RANGES_PER_OPEN_MAX);
    for n in [2, 3] {
        assert_eq!(locked.counted(n, 2, 1, &many).0, OK);
    }
    let granted = |n, offset| {
        let unlock = [element(offset, 1, UNLOCK)];
        locked.counted(n, 2, 1, &unlock).1.wakes.len()
    };
    // Nothing bars the request any more, but its user holds too many ranges.
    assert_eq!(granted(0, far), 0);
    assert_eq!(granted(2, 5), 1);
}

#[test]
fn a_request_without_room_is_barred_once_there_is_room() {
    let locked = Locked::new(4);
    let far: u64 = 1 << 40;
    let twice = [element(far, 1, SHARED | NOW), element(far, 1, SHARED | NOW)];
    assert_eq!(locked.counted(0, 1, 1, &twice).0, OK);
    let wanted = [element(far, 1, EXCLUSIVE)];
    assert_eq!(locked.counted(1, 2, 1, &wanted).0, Locking::Pending);
    let many = stacked(RANGES_PER_OPEN_MAX);
    for n in [2, 3] {
        assert_eq!(locked.counted(n, 2, 1, &many).0, OK);
    }
    let granted = |n, user, offset| {
        let unlock = [element(offset, 1, UNLOCK)];
        locked.counted(n, user, 1, &unlock).1.wakes.len()
    };
    // One of the two ranges bars it still, and its user holds too many.
    assert_eq!(granted(0, 1, far), 0);
    // There is room, but the range bars it.
    assert_eq!(granted(2, 2, 5), 0);
    assert_eq!(granted(0, 1, far), 1);
}

#[test]
fn a_replay_is_known_before_it_is_asked_for() {
    let locked = Locked::new(1);
    let lock = [element(0, 1, EXCLUSIVE | NOW)];
    let known = |sequence: Option<LockSequence>| {
        let open = locked.opens[0].open;
        (locked.rig.files).is_lock_replayed(&place(1), open, sequence.unwrap())
    };
    assert!(!known(number(1, 3)));
    assert_eq!(locked.sequenced(0, &lock, number(1, 3)).0, OK);
    assert!(known(number(1, 3)));
    // Another number is no replay, and asking leaves the bucket as it is.
    assert!(!known(number(1, 4)) && !known(number(2, 3)));
    assert!(known(number(1, 3)));
}

#[test]
fn a_repeated_lock_sequence_succeeds_without_action() {
    let locked = Locked::new(2);
    let lock = [element(0, 1, EXCLUSIVE | NOW)];
    let unlock = [element(0, 1, UNLOCK)];
    assert_eq!(locked.sequenced(0, &lock, number(1, 3)).0, OK);
    let replayed = Locking::Replayed;
    assert_eq!(locked.sequenced(0, &lock, number(1, 3)).0, replayed);
    assert_eq!(locked.sequenced(0, &unlock, number(2, 3)).0, OK);
    // Only one lock was taken; the repeated unlock succeeds as a replay.
    assert!(locked.io(1, 0, 1, true));
    assert_eq!(locked.sequenced(0, &unlock, number(2, 3)).0, replayed);
    assert_eq!(
        locked.sequenced(0, &unlock, number(2, 4)).0,
        failed(Status::RANGE_NOT_LOCKED)
    );
    // The failed request made its bucket invalid.
    assert_eq!(
        locked.sequenced(0, &unlock, number(2, 3)).0,
        failed(Status::RANGE_NOT_LOCKED)
    );
    // Buckets that do not exist are not verified.
    for index in [0, 65] {
        assert_eq!(locked.sequenced(0, &lock, number(index, 1)).0, OK);
        assert_eq!(
            locked.sequenced(0, &lock, number(index, 1)).0,
            failed(Status::LOCK_NOT_GRANTED)
        );
        assert_eq!(locked.array(0, &unlock), OK);
    }
    // A blocked request is recorded when it is granted.
    assert_eq!(locked.array(1, &lock), OK);
    let blocking = [element(0, 1, EXCLUSIVE)];
    assert_eq!(
        locked.sequenced(0, &blocking, number(5, 1)).0,
        Locking::Pending
    );
    assert_eq!(locked.array(1, &unlock), OK);
    assert_eq!(locked.sequenced(0, &blocking, number(5, 1)).0, replayed);
}

#[test]
fn locks_are_per_stream_and_need_an_open() {
    let locked = Locked::new(1);
    let on_stream = OpenRequest {
        place: stream(1, "S"),
        ..locked.rig.request(1, WRITE)
    };
    locked.rig.open(&on_stream);
    assert_eq!(locked.one(0, 0, 10, EXCLUSIVE), OK);
    let checked = locked
        .rig
        .files
        .check_io(&on_stream.place, on_stream.open, 0, 10, true);
    assert_eq!(checked, Ok(()));
    let (locking, _) = locked.rig.files.lock(
        &place(2),
        OpenId(1),
        &[element(0, 1, SHARED)],
        None,
        WaiterId(1),
        LockBounds::ANY,
    );
    assert_eq!(locking, failed(Status::FILE_CLOSED));
}

fn number(index: u32, number: u8) -> Option<LockSequence> {
    Some(LockSequence { index, number })
}

#[test]
fn an_open_has_so_many_ranges_and_no_more() {
    let locked = Locked::new(2);
    let bounded = |elements: &[LockElement], sequence, most| {
        let (open, waiter) = (locked.opens[0].open, WaiterId(1000));
        let files = &locked.rig.files;
        let bounds = LockBounds {
            most,
            ..LockBounds::ANY
        };
        files.lock(&place(1), open, elements, sequence, waiter, bounds)
    };
    let held = || locked.rig.files.locks_of(&place(1), locked.opens[0].open);
    let now = |offset| element(offset, 1, EXCLUSIVE | NOW);
    let full = failed(Status::INSUFFICIENT_RESOURCES);
    assert_eq!(bounded(&[now(0), now(1)], number(5, 1), 3).0, OK);
    // Both locks are taken or none.
    assert_eq!(bounded(&[now(2), now(3)], None, 3).0, full);
    assert_eq!(held(), 2);
    // Earlier locks count once.
    let again = bounded(&[now(0), now(1)], number(5, 1), 2).0;
    assert_eq!(again, Locking::Replayed);
    // Waiting locks count.
    assert_eq!(locked.one(1, 9, 1, EXCLUSIVE), OK);
    assert_eq!(
        bounded(&[element(9, 1, EXCLUSIVE)], None, 3).0,
        Locking::Pending
    );
    assert_eq!(held(), 3);
    assert_eq!(bounded(&[now(2)], None, 3).0, full);
    assert_eq!(bounded(&[element(0, 1, LockFlags::UNLOCK)], None, 3).0, OK);
    assert_eq!(bounded(&[now(2)], None, 3).0, OK);
}

#[test]
fn what_is_taken_back_was_never_locked() {
    let locked = Locked::new(2);
    let (range, files) = ([element(0, 10, EXCLUSIVE | NOW)], &locked.rig.files);
    let open = locked.opens[0].open;
    assert_eq!(locked.sequenced(0, &range, number(5, 1)).0, OK);
    assert_eq!(locked.one(1, 0, 1, EXCLUSIVE), Locking::Pending);
    let effects = files.take_back(&place(1), open, &range, number(5, 1));
    let effects = effects.unwrap();
    // The waiting request has been granted.
    assert_eq!(effects.wakes.len(), 1);
    assert_eq!(files.locks_of(&place(1), open), 0);
    let again = locked.sequenced(0, &range, number(5, 1)).0;
    assert_eq!(again, failed(Status::LOCK_NOT_GRANTED));
    // Forgetting an earlier request does not forget the success of a later one.
    let free = [element(50, 10, EXCLUSIVE | NOW)];
    assert_eq!(locked.sequenced(0, &free, number(5, 2)).0, OK);
    let _ = files.take_back(&place(1), open, &range, number(5, 1));
    let again = locked.sequenced(0, &free, number(5, 2)).0;
    assert_eq!(again, Locking::Replayed);
    assert_eq!(files.locks_of(&place(1), open), 1);
}

/// A client that sends a LOCK again knows only one of the two answers.
#[test]
fn a_replay_succeeds_or_its_lock_is_taken_back() {
    let locked = Locked::new(1);
    let (range, files) = ([element(0, 10, EXCLUSIVE | NOW)], &locked.rig.files);
    let open = locked.opens[0].open;
    for (one, replay_first) in [(1, true), (2, false), (3, true)] {
        let sequence = number(5, one);
        assert_eq!(locked.sequenced(0, &range, sequence).0, OK);
        assert_eq!(locked.sequenced(0, &range, sequence).0, Locking::Replayed);
        let replay = || files.answer_replay(&place(1), open, sequence.unwrap());
        let take_back = || files.take_back(&place(1), open, &range, sequence).is_some();
        if replay_first {
            assert!(replay() && !take_back());
            assert_eq!(files.locks_of(&place(1), open), 1);
            let unlock = [element(0, 10, UNLOCK)];
            assert_eq!(locked.array(0, &unlock), OK);
        } else {
            assert!(take_back() && !replay());
            assert_eq!(files.locks_of(&place(1), open), 0);
        }
    }
}

#[test]
fn a_shared_lock_that_is_taken_back_leaves_the_exclusive_one() {
    let locked = Locked::new(2);
    let (range, files) = ([element(0, 10, SHARED | NOW)], &locked.rig.files);
    let open = locked.opens[0].open;
    assert_eq!(locked.one(0, 0, 10, EXCLUSIVE), OK);
    assert_eq!(locked.array(0, &range), OK);
    let _ = files.take_back(&place(1), open, &range, None);
    assert_eq!(files.locks_of(&place(1), open), 1);
    assert!(!locked.io(1, 0, 10, false));
}

#[test]
fn a_stream_has_room_for_everybody() {
    let locked = Locked::new(4);
    let take = |n, user, count| locked.counted(n, user, 1, &stacked(count)).0;
    let full = failed(Status::INSUFFICIENT_RESOURCES);
    assert_eq!(take(0, 1, RANGES_PER_OPEN_MAX + 1), full);
    assert_eq!(take(0, 1, RANGES_PER_OPEN_MAX), OK);
    assert_eq!(take(0, 1, 1), full);
    // Another handle of the same user gets locks only up to the user's limit.
    assert_eq!(take(1, 1, RANGES_PER_OPEN_MAX), OK);
    assert_eq!(take(2, 1, 1), full);
    // Another user is not affected.
    assert_eq!(take(2, 2, RANGES_PER_OPEN_MAX), OK);
    assert_eq!(take(3, 2, RANGES_PER_OPEN_MAX - 1), OK);
    assert_eq!(take(3, 2, 2), full);
    assert_eq!(take(3, 2, 1), OK);
    // A user may lock a released range again.
    assert_eq!(locked.one(0, 0, 1, LockFlags::UNLOCK), OK);
    assert_eq!(take(0, 1, 1), OK);
}

#[test]
fn one_user_waits_for_so_many_ranges_and_others_find_room() {
    let locked = Locked::new(3);
    assert_eq!(locked.one(0, 0, 10, EXCLUSIVE), OK);
    let wait = |n, user, waiter| {
        let wanted = [element(0, 1, EXCLUSIVE)];
        locked.counted(n, user, waiter, &wanted).0
    };
    let half = WAITING_MAX as u64 / 2;
    for waiter in 0..half {
        assert_eq!(wait(1, 1, waiter), Locking::Pending);
    }
    assert_eq!(wait(1, 1, half), failed(Status::INSUFFICIENT_RESOURCES));
    assert_eq!(wait(2, 2, half), Locking::Pending);
}
