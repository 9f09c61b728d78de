//! Tests of oplocks and leases: breaks and waits, acknowledgments, epochs. The files of keys are in `lease_keys.rs`.

use super::*;
use crate::file::inode::WAITING_MAX;

pub(super) fn ack(rig: &Rig, n: u8, state: LeaseState) -> (Result<LeaseState, Status>, Effects) {
    rig.files.acknowledge_lease(client(n), lease_key(n), state)
}

#[test]
fn nothing_is_acknowledged_that_was_not_asked_for() {
    let rig = Rig::new();
    let plain = rig.request(2, READ);
    assert_eq!(rig.open(&plain), CacheGrant::None);
    let (answer, _) = ack(&rig, 1, NONE);
    assert_eq!(answer, Err(Status::OBJECT_NAME_NOT_FOUND));
    let (answer, _) = rig
        .files
        .acknowledge_oplock(&plain.place, plain.open, OplockLevel::II);
    assert_eq!(answer, Err(Status::INVALID_DEVICE_STATE));
}

/// The effect of a second open by another client on each held state: the break that is sent, and whether the open
/// waits.
#[test]
fn a_second_open_breaks_by_table() {
    for (held, overwrite, expected, waits) in [
        (RWH, false, Some((7, 3, true)), true),
        (RW, false, Some((5, 1, true)), true),
        (RH, false, None, false),
        (ONLY_R, false, None, false),
        (RWH, true, Some((7, 0, true)), true),
        (RW, true, Some((5, 0, true)), true),
        (RH, true, Some((3, 0, true)), false),
        (ONLY_R, true, Some((1, 0, false)), false),
    ] {
        let rig = Rig::new();
        assert_eq!(state(rig.open(&rig.leased(1, READ, 1, held))), held);
        let second = OpenRequest {
            effect: WRITE.when(overwrite),
            ..rig.request(1, READ | WRITE)
        };
        let (decision, effects) = rig.files.open(&second);
        assert_eq!(
            short_form(&effects.breaks),
            Vec::from_iter(expected),
            "{held:?} {overwrite}"
        );
        assert_eq!(
            matches!(decision, Decision::MustBreak),
            waits,
            "{held:?} {overwrite}"
        );
    }
}

#[test]
fn the_same_table_for_oplocks() {
    for (level, overwrite, expected, waits) in [
        (OplockLevel::BATCH, false, Some((7, 1, true)), true),
        (OplockLevel::EXCLUSIVE, false, Some((5, 1, true)), true),
        (OplockLevel::II, false, None, false),
        (OplockLevel::BATCH, true, Some((7, 0, true)), true),
        (OplockLevel::EXCLUSIVE, true, Some((5, 0, true)), true),
        (OplockLevel::II, true, Some((1, 0, false)), false),
    ] {
        let rig = Rig::new();
        let first = OpenRequest {
            cache: oplock(level),
            ..rig.request(1, READ)
        };
        assert_eq!(rig.open(&first), CacheGrant::Oplock(level));
        let second = OpenRequest {
            effect: WRITE.when(overwrite),
            ..rig.request(1, READ)
        };
        let (decision, effects) = rig.files.open(&second);
        assert_eq!(
            short_form(&effects.breaks),
            Vec::from_iter(expected),
            "{level:?} {overwrite}"
        );
        assert_eq!(
            matches!(decision, Decision::MustBreak),
            waits,
            "{level:?} {overwrite}"
        );
    }
}

/// The effect of an operation on another open.
#[test]
fn operations_break_by_table() {
    use Operation::{
        Delete, Flush, Link, Lock, Read, Rename, SetSecurity, SetSize, Write, ZeroData,
    };
    for (held, operations, expected, waits) in [
        (
            RH,
            &[Write, Lock, SetSize, ZeroData][..],
            Some((3, 0, true)),
            false,
        ),
        (
            ONLY_R,
            &[Write, Lock, SetSize, ZeroData],
            Some((1, 0, false)),
            false,
        ),
        (
            RH,
            &[Rename, Link, Delete, SetSecurity],
            Some((3, 1, true)),
            true,
        ),
        (
            ONLY_R,
            &[Rename, Link, Delete, SetSecurity, Read, Flush],
            None,
            false,
        ),
        (RH, &[Read, Flush], None, false),
    ] {
        for operation in operations {
            let rig = Rig::new();
            let actor = rig.request(1, READ | WRITE | DELETE);
            rig.open(&actor);
            assert_eq!(state(rig.open(&rig.leased(1, READ, 1, held))), held);
            let (waited, breaks) = rig.operate(&actor, *operation);
            assert_eq!(
                short_form(&breaks),
                Vec::from_iter(expected),
                "{held:?} {operation:?}"
            );
            assert_eq!(waited, waits, "{held:?} {operation:?}");
        }
    }
}

#[test]
fn strangers_break_exclusive_caching_too() {
    for (operation, expected) in [
        (Operation::Read, (7, 3, true)),
        (Operation::Write, (7, 0, true)),
        (Operation::Rename, (7, 5, true)),
    ] {
        let rig = Rig::new();
        rig.open(&rig.leased(1, READ, 1, RWH));
        let (step, effects) =
            rig.files
                .operation(&place(1), Actor::Stranger, operation, Some(waiter(9)));
        assert_eq!(
            (step, short_form(&effects.breaks)),
            (Step::Wait, vec![expected])
        );
    }
    let rig = Rig::new();
    let batch = OpenRequest {
        cache: oplock(OplockLevel::BATCH),
        ..rig.request(1, READ)
    };
    rig.open(&batch);
    let (step, effects) = rig.files.operation(
        &place(1),
        Actor::Stranger,
        Operation::Rename,
        Some(waiter(9)),
    );
    assert_eq!(
        (step, short_form(&effects.breaks)),
        (Step::Wait, vec![(7, 0, true)])
    );
    assert!(rig.files.cancel(&place(1), WaiterId(9)));
    assert!(!rig.files.cancel(&place(1), WaiterId(9)));
}

#[test]
fn a_sharing_violation_asks_for_the_handle_only() {
    let rig = Rig::new();
    let holder = OpenRequest {
        share: ShareAccess::READ,
        ..rig.leased(1, READ | WRITE, 1, RWH)
    };
    rig.open(&holder);
    let second = rig.request(1, READ | WRITE);
    let breaks = rig.waits(&second);
    assert_eq!(short_form(&breaks), [(7, 5, true)]);
    assert_eq!(breaks[0].opens, [holder.open]);
    // The holder keeps the file open, so the conflict is real.
    let (answer, effects) = ack(&rig, 1, RW);
    assert_eq!(answer, Ok(RW));
    assert_eq!(
        effects.wakes,
        [Wake {
            waiter: second.waiter.id,
            outcome: Outcome::Retry
        }]
    );
    assert_eq!(rig.refused(&second), Status::SHARING_VIOLATION);
    // The holder closes instead, so the open is granted.
    let _ = rig.close(&holder);
    rig.open(&second);
}

#[test]
fn a_batch_oplock_breaks_before_the_share_mode_is_judged() {
    let rig = Rig::new();
    let holder = |level| OpenRequest {
        share: ShareAccess(0),
        cache: oplock(level),
        ..rig.request(1, READ)
    };
    let batch = holder(OplockLevel::BATCH);
    rig.open(&batch);
    let second = rig.request(1, READ);
    assert_eq!(short_form(&rig.waits(&second)), [(7, 1, true)]);
    let (answer, effects) = rig
        .files
        .acknowledge_oplock(&batch.place, batch.open, OplockLevel::II);
    assert_eq!((answer, effects.wakes.len()), (Ok(OplockLevel::II), 1));
    assert_eq!(rig.refused(&second), Status::SHARING_VIOLATION);
    let _ = rig.close(&batch);
    // EXCLUSIVE does not: its holder is known to have the file open.
    let exclusive = holder(OplockLevel::EXCLUSIVE);
    rig.open(&exclusive);
    assert_eq!(rig.refused(&second), Status::SHARING_VIOLATION);
    let _ = rig.close(&exclusive);
}

#[test]
fn stat_opens_disturb_nobody() {
    let rig = Rig::new();
    rig.open(&rig.leased(1, READ, 1, RWH));
    rig.open(&rig.request(1, STAT | AccessMask::READ_CONTROL));
    let batch = OpenRequest {
        cache: oplock(OplockLevel::BATCH),
        ..rig.request(2, READ)
    };
    rig.open(&batch);
    rig.open(&rig.request(2, STAT));
    assert_eq!(
        rig.waits(&rig.request(2, STAT | AccessMask::READ_CONTROL))
            .len(),
        1
    );
    // Such opens are no reason to refuse caching: the third file is open for attributes only.
    rig.open(&rig.request(3, STAT));
    assert_eq!(state(rig.open(&rig.leased(3, READ, 3, RWH))), RWH);
    // While another caches writes, a stat open caches nothing itself.
    assert_eq!(state(rig.open(&rig.leased(3, STAT, 4, RWH))), NONE);
    // An open that truncates is no stat open.
    let overwriting = OpenRequest {
        effect: WRITE,
        ..rig.request(3, STAT)
    };
    assert_eq!(rig.waits(&overwriting).len(), 1);
}

#[test]
fn the_same_key_shares_and_grows_one_lease() {
    let rig = Rig::new();
    let first = rig.leased(1, READ, 1, ONLY_R);
    let epoch = |grant| match grant {
        CacheGrant::Lease(lease) => (lease.lease_state, lease.v2.unwrap().epoch),
        other => panic!("{other:?}"),
    };
    assert_eq!(epoch(rig.open(&first)), (ONLY_R, 0x11));
    assert_eq!(
        epoch(rig.open(&rig.leased(1, READ, 1, ONLY_R))),
        (ONLY_R, 0x11)
    );
    assert_eq!(epoch(rig.open(&rig.leased(1, READ, 1, RWH))), (RWH, 0x12));
    // A request for less than is held changes nothing; nor does the holder's own truncation.
    let again = OpenRequest {
        effect: WRITE,
        ..rig.leased(1, WRITE, 1, RH)
    };
    assert_eq!(epoch(rig.open(&again)), (RWH, 0x12));
    assert_eq!(rig.operate(&again, Operation::Write), (false, vec![]));
    // Another client with the same key is a different owner.
    let other = OpenRequest {
        client: client(2),
        ..rig.leased(1, READ, 1, RWH)
    };
    let breaks = rig.waits(&other);
    assert_eq!(
        (short_form(&breaks), breaks[0].epoch),
        (vec![(7, 3, true)], 0x13)
    );
    assert_eq!(breaks[0].opens.len(), 4);
    // While the break is in flight the lease is neither promoted nor taken away.
    let grant = rig.open(&rig.leased(1, READ, 1, RWH));
    assert_eq!(epoch(grant), (RWH, 0x13));
    assert!(matches!(grant, CacheGrant::Lease(lease) if lease.is_breaking()));
    assert_eq!(ack(&rig, 1, RH).0, Ok(RH));
    assert_eq!(epoch(rig.open(&other)), (RH, 0x11));
}

#[test]
fn version_one_has_no_epoch() {
    let rig = Rig::new();
    let request = OpenRequest {
        cache: CacheRequest::Lease(LeaseContext {
            lease_key: lease_key(1),
            lease_state: RWH,
            ..LeaseContext::default()
        }),
        ..rig.leased(1, READ, 1, RWH)
    };
    let grant = rig.open(&request);
    assert!(matches!(grant, CacheGrant::Lease(lease) if lease.v2.is_none()));
    assert_eq!(rig.waits(&rig.request(1, READ))[0].epoch, 0);
}

#[test]
fn wrong_lease_acknowledgments_are_distinguished() {
    let rig = Rig::new();
    rig.open(&rig.leased(1, READ, 1, RWH));
    assert_eq!(ack(&rig, 2, NONE).0, Err(Status::OBJECT_NAME_NOT_FOUND));
    assert_eq!(ack(&rig, 1, NONE).0, Err(Status::UNSUCCESSFUL));
    rig.waits(&rig.request(1, READ));
    let (answer, effects) = ack(&rig, 1, RWH);
    assert_eq!(
        (answer, effects),
        (Err(Status::REQUEST_NOT_ACCEPTED), Effects::default())
    );
    // The break is still in flight, and less than offered is fine.
    let (answer, effects) = ack(&rig, 1, NONE);
    assert_eq!((answer, effects.wakes.len()), (Ok(NONE), 1));
}

#[test]
fn an_open_to_delete_without_patience_does_not_wait_for_cached_handles() {
    let rig = Rig::new();
    rig.open(&rig.leased(1, READ, 1, RH));
    let patient = OpenRequest {
        delete_on_close: true,
        ..rig.request(1, DELETE)
    };
    assert_eq!(short_form(&rig.waits(&patient)), [(3, 1, true)]);
    let impatient = OpenRequest {
        patient: false,
        ..patient
    };
    rig.open(&impatient);
    // An open waits for cached writes nevertheless.
    rig.open(&rig.leased(2, READ, 2, RWH));
    let impatient = OpenRequest {
        delete_on_close: true,
        patient: false,
        ..rig.request(2, DELETE)
    };
    assert_eq!(short_form(&rig.waits(&impatient)), [(7, 5, true)]);
}

#[test]
fn wrong_oplock_acknowledgments_end_the_oplock() {
    let (unasked, wrong) = (
        Status::INVALID_DEVICE_STATE,
        Status::INVALID_OPLOCK_PROTOCOL,
    );
    let lease = Status::INVALID_PARAMETER;
    for (level, early, answer) in [
        (OplockLevel::NONE, unasked, Ok(OplockLevel::NONE)),
        (OplockLevel::II, unasked, Ok(OplockLevel::II)),
        (OplockLevel::EXCLUSIVE, wrong, Ok(OplockLevel::NONE)),
        (OplockLevel::BATCH, wrong, Err(wrong)),
        (OplockLevel::LEASE, lease, Err(lease)),
    ] {
        let rig = Rig::new();
        let holder = OpenRequest {
            cache: oplock(OplockLevel::BATCH),
            ..rig.request(1, READ)
        };
        rig.open(&holder);
        let acknowledge = || {
            rig.files
                .acknowledge_oplock(&holder.place, holder.open, level)
        };
        assert_eq!(acknowledge().0, Err(early));
        let second = rig.request(1, READ);
        rig.waits(&second);
        let (given, effects) = acknowledge();
        assert_eq!((given, effects.wakes.len()), (answer, 1), "{level:?}");
        let left = rig.files.caching_of(&holder.place, holder.open);
        assert_eq!(state(left) == ONLY_R, level == OplockLevel::II);
        rig.open(&second);
    }
}

#[test]
fn silence_ends_a_break_with_nothing() {
    let rig = Rig::new();
    let holder = rig.leased(1, READ, 1, RWH);
    rig.open(&holder);
    let second = rig.request(1, READ);
    let sent = rig.waits(&second).remove(0);
    let stale = rig
        .files
        .break_over(&sent.place, sent.owner, sent.ticket + 1);
    assert!(stale.is_empty());
    let effects = rig.files.break_over(&sent.place, sent.owner, sent.ticket);
    assert_eq!(effects.wakes.len(), 1);
    assert_eq!(
        state(rig.files.caching_of(&holder.place, holder.open)),
        NONE
    );
    assert_eq!(ack(&rig, 1, RH).0, Err(Status::UNSUCCESSFUL));
    assert!(
        rig.files
            .break_over(&sent.place, sent.owner, sent.ticket)
            .is_empty()
    );
    rig.open(&second);
}

/// A stream that is to be deleted, and its file, are under the same lease key.
#[test]
fn silence_ends_the_break_of_a_stream_whose_key_its_file_has_by_now() {
    let rig = Rig::new();
    let doomed = OpenRequest {
        place: stream(1, "S"),
        delete_on_close: true,
        ..rig.leased(1, READ | DELETE, 1, RWH)
    };
    assert_eq!(state(rig.open(&doomed)), RWH);
    assert_eq!(state(rig.open(&rig.leased(1, READ, 1, RWH))), RWH);
    let second = OpenRequest {
        place: stream(1, "S"),
        ..rig.request(1, READ)
    };
    let sent = rig.waits(&second).remove(0);
    let is_breaking = || {
        let files = &rig.files;
        files.is_breaking(&sent.place, sent.owner, sent.ticket)
    };
    assert!(is_breaking());
    let effects = rig.files.break_over(&sent.place, sent.owner, sent.ticket);
    assert_eq!(effects.wakes.len(), 1);
    assert!(!is_breaking());
    rig.open(&second);
}

/// smbtorture lease.breaking3: an overwriting open lowers a break in flight; further breaks follow in steps, and both
/// opens wait for the whole chain.
#[test]
fn a_break_lowered_in_flight_goes_on_in_steps() {
    let rig = Rig::new();
    rig.open(&rig.leased(1, READ, 1, RWH));
    let plain = rig.request(1, READ);
    assert_eq!(short_form(&rig.waits(&plain)), [(7, 3, true)]);
    let overwriting = OpenRequest {
        effect: WRITE,
        ..rig.request(1, WRITE)
    };
    assert_eq!(rig.waits(&overwriting), []);
    let (answer, effects) = ack(&rig, 1, RH);
    assert_eq!(
        (answer, short_form(&effects.breaks)),
        (Ok(RH), vec![(3, 1, true)])
    );
    assert_eq!(effects.wakes.len(), 2);
    assert_eq!(rig.waits(&plain), []);
    assert_eq!(rig.waits(&overwriting), []);
    let (answer, effects) = ack(&rig, 1, ONLY_R);
    assert_eq!(
        (answer, short_form(&effects.breaks)),
        (Ok(ONLY_R), vec![(1, 0, false)])
    );
    let epochs: Vec<u16> = effects.breaks.iter().map(|b| b.epoch).collect();
    assert_eq!((epochs, effects.wakes.len()), (vec![0x14], 2));
    rig.open(&plain);
    rig.open(&overwriting);
}

#[test]
fn an_oplock_lowered_in_flight_ends_without_another_acknowledgment() {
    let rig = Rig::new();
    let holder = OpenRequest {
        cache: oplock(OplockLevel::BATCH),
        ..rig.request(1, READ)
    };
    rig.open(&holder);
    rig.waits(&rig.request(1, READ));
    let overwriting = OpenRequest {
        effect: WRITE,
        ..rig.request(1, WRITE)
    };
    assert_eq!(rig.waits(&overwriting), []);
    let (answer, effects) =
        rig.files
            .acknowledge_oplock(&holder.place, holder.open, OplockLevel::II);
    assert_eq!(answer, Ok(OplockLevel::II));
    assert_eq!(short_form(&effects.breaks), [(1, 0, false)]);
    assert_eq!(level_of(effects.breaks[0].new), OplockLevel::NONE);
    rig.open(&overwriting);
}

#[test]
fn level_two_goes_by_its_own_writes_too() {
    let rig = Rig::new();
    let two = |rig: &Rig| OpenRequest {
        cache: oplock(OplockLevel::II),
        ..rig.request(1, READ | WRITE)
    };
    let (one, other) = (two(&rig), two(&rig));
    let (decision, _) = rig.files.open(&one);
    let Decision::Granted(first) = decision else {
        panic!("not granted");
    };
    assert!(first.quick.others_cache());
    assert_eq!(rig.open(&other), CacheGrant::Oplock(OplockLevel::II));
    let (waits, breaks) = rig.operate(&one, Operation::Write);
    assert_eq!(
        (waits, short_form(&breaks)),
        (false, vec![(1, 0, false); 2])
    );
    assert!(!first.quick.others_cache());
}

#[test]
fn leases_and_oplocks_beside_each_other() {
    let rig = Rig::new();
    let two = OpenRequest {
        cache: oplock(OplockLevel::BATCH),
        ..rig.request(1, READ)
    };
    rig.open(&rig.request(1, READ));
    assert_eq!(rig.open(&two), CacheGrant::Oplock(OplockLevel::II));
    assert_eq!(state(rig.open(&rig.leased(1, READ, 1, RWH))), ONLY_R);
    let _ = rig.close(&two);
    assert_eq!(state(rig.open(&rig.leased(1, READ, 2, RWH))), RH);
    assert_eq!(rig.open(&two), CacheGrant::None);
}

#[test]
fn locks_stand_in_the_way_of_read_caching() {
    let rig = Rig::new();
    let locker = rig.request(1, READ | WRITE);
    rig.open(&locker);
    let element = smb_wire::msg::LockElement {
        offset: 100,
        length: 1,
        flags: smb_wire::msg::LockFlags::EXCLUSIVE,
    };
    let (locking, _) = rig.files.lock(
        &locker.place,
        locker.open,
        &[element],
        None,
        WaiterId(9),
        LockBounds::ANY,
    );
    assert_eq!(locking, Locking::Done(Status::SUCCESS));
    let leased = rig.leased(1, READ, 1, RH);
    assert_eq!(state(rig.open(&leased)), NONE);
    let small = OpenRequest {
        allocation: 100,
        ..rig.leased(1, READ, 2, RH)
    };
    assert_eq!(state(rig.open(&small)), RH);
}

#[test]
fn handles_of_a_file_to_be_deleted_are_not_cached() {
    let rig = Rig::new();
    let first = rig.leased(1, READ | DELETE, 1, NONE);
    rig.open(&first);
    rig.mark_deleted(&first);
    assert_eq!(
        rig.refused(&rig.leased(1, READ, 1, RH)),
        Status::DELETE_PENDING
    );
}

#[test]
fn directory_leases_break_for_all_but_the_parent_key() {
    let rig = Rig::new();
    let on_directory = |n| OpenRequest {
        directory: true,
        ..rig.leased(5, READ, n, RWH)
    };
    assert_eq!(state(rig.open(&on_directory(1))), RH);
    assert_eq!(state(rig.open(&on_directory(2))), RH);
    let batch = OpenRequest {
        directory: true,
        cache: oplock(OplockLevel::BATCH),
        ..rig.request(5, READ)
    };
    assert_eq!(rig.open(&batch), CacheGrant::None);
    let effects = rig.files.entries_changed(key(5), Some(lease_key(1)));
    assert_eq!(short_form(&effects.breaks), [(3, 0, true)]);
    assert_eq!(
        effects.breaks[0].owner,
        Owner::Lease(client(2), lease_key(2))
    );
    let effects = rig.files.entries_changed(key(5), Some(lease_key(3)));
    assert_eq!(short_form(&effects.breaks), [(3, 0, true)]);
    assert!(rig.files.entries_changed(key(5), None).is_empty());
    assert!(rig.files.entries_changed(key(6), None).is_empty());
}

/// A client that only asks for attributes ends no break and no conflict, however often it does.
#[test]
fn the_close_of_an_open_for_attributes_wakes_nobody() {
    let rig = Rig::new();
    let (first, last) = (rig.leased(1, STAT, 1, RWH), rig.leased(1, STAT, 1, RWH));
    rig.open(&first);
    rig.open(&last);
    let stat = rig.request(1, STAT);
    rig.open(&stat);
    let second = rig.request(1, READ);
    assert_eq!(short_form(&rig.waits(&second)), [(7, 3, true)]);
    assert!(rig.close(&stat).effects.is_empty());
    for holder in [first, last] {
        assert_eq!(rig.close(&holder).effects.wakes.len(), 1);
        let left = rig.files.count(key(1), None);
        let (decision, _) = rig.files.open(&second);
        assert_eq!(matches!(decision, Decision::MustBreak), left == 1);
    }
}

fn of_user(rig: &Rig, user: u64) -> OpenRequest {
    let mut request = rig.request(1, READ);
    request.waiter.user = CountedUser(user);
    request
}

#[test]
fn too_many_parked_requests_are_refused() {
    let rig = Rig::new();
    rig.open(&rig.leased(1, READ, 1, RWH));
    let first = of_user(&rig, 0);
    rig.waits(&first);
    for n in 1..WAITING_MAX as u64 {
        rig.waits(&of_user(&rig, n % 2));
    }
    let refused = rig.refused(&of_user(&rig, 2));
    assert_eq!(refused, Status::INSUFFICIENT_RESOURCES);
    // A request that is parked already needs no more room.
    rig.waits(&first);
    let (_, effects) = ack(&rig, 1, RH);
    assert_eq!(effects.wakes.len(), WAITING_MAX);
}

#[test]
fn a_user_parks_half_of_the_requests() {
    let rig = Rig::new();
    rig.open(&rig.leased(1, READ, 1, RWH));
    for _ in 0..WAITING_MAX / 2 {
        rig.waits(&of_user(&rig, 1));
    }
    let refused = rig.refused(&of_user(&rig, 1));
    assert_eq!(refused, Status::INSUFFICIENT_RESOURCES);
    rig.waits(&of_user(&rig, 2));
}
