//! State is extracted to be recorded, and restored into another engine.

use std::collections::BTreeSet;

use smb_wire::msg::{LockElement, LockFlags};

use super::*;

const EXCLUSIVE: LockFlags = LockFlags(0x12);

fn lock(rig: &Rig, request: &OpenRequest, offset: u64, sequence: Option<LockSequence>) -> Status {
    let element = LockElement {
        offset,
        length: 10,
        flags: EXCLUSIVE,
    };
    let waiter = WaiterId(rig.number());
    let (locking, _) = rig.files.lock(
        &request.place,
        request.open,
        &[element],
        sequence,
        waiter,
        LockBounds::ANY,
    );
    match locking {
        Locking::Done(status) => status,
        Locking::Replayed => Status::SUCCESS,
        Locking::Pending => panic!("it waits"),
    }
}

fn back(rig: &Rig, from: &Rig, request: &OpenRequest) -> Granted {
    let (kept, lease) = from.files.kept(&request.place, request.open).unwrap();
    let lease = lease.map(|(owner, lease)| match owner {
        Owner::Lease(client, key) => (client, key, lease),
        Owner::Oplock(_) => panic!("an oplock is no lease"),
    });
    rig.files.put_back(request, &kept, lease, ME).unwrap()
}

#[test]
fn locks_with_their_sequences_and_share_modes_come_back() {
    let old = Rig::new();
    let request = OpenRequest {
        share: ShareAccess::READ,
        ..old.request(1, READ | WRITE)
    };
    old.open(&request);
    let sequence = LockSequence {
        index: 3,
        number: 7,
    };
    assert_eq!(lock(&old, &request, 0, Some(sequence)), Status::SUCCESS);
    assert_eq!(lock(&old, &request, 50, None), Status::SUCCESS);

    let new = Rig::new();
    let granted = back(&new, &old, &request);
    assert!(granted.quick.ranges_in_use());
    assert_eq!(
        new.files.kept(&request.place, request.open),
        old.files.kept(&request.place, request.open)
    );
    // The request was carried out before the restart, so its repetition takes no second lock.
    assert_eq!(lock(&new, &request, 0, Some(sequence)), Status::SUCCESS);
    let other = new.request(1, READ);
    new.open(&OpenRequest {
        share: SHARE_ALL,
        ..other.clone()
    });
    assert_eq!(lock(&new, &other, 5, None), Status::LOCK_NOT_GRANTED);
    assert_eq!(
        new.refused(&new.request(1, WRITE)),
        Status::SHARING_VIOLATION
    );
    // An open cannot be restored twice.
    let (kept, _) = old.files.kept(&request.place, request.open).unwrap();
    assert!(new.files.put_back(&request, &kept, None, ME).is_none());
    let _ = new.close(&request);
    let _ = new.close(&other);
    assert!(new.files.is_empty());
}

#[test]
fn a_lease_comes_back_once_for_all_its_opens_and_breaks() {
    let old = Rig::new();
    let leased = |rig: &Rig| OpenRequest {
        client: client(9),
        cache: lease(9, RWH),
        ..rig.request(1, READ | WRITE)
    };
    let (one, two) = (leased(&old), leased(&old));
    old.open(&one);
    old.open(&two);
    let new = Rig::new();
    for request in [&one, &two] {
        back(&new, &old, request);
        assert_eq!(
            new.files.caching_of(&request.place, request.open),
            old.files.caching_of(&request.place, request.open)
        );
    }
    assert_eq!(new.files.leases.lock().len(), 1);
    let stranger = OpenRequest {
        client: client(2),
        ..OpenRequest {
            open: OpenId(900),
            ..new.request(1, READ)
        }
    };
    let (decision, effects) = new.files.open(&stranger);
    assert!(matches!(decision, Decision::MustBreak));
    assert_eq!(effects.breaks.len(), 1);
    assert_eq!(effects.breaks[0].opens.len(), 2);
    // A record without its lease cannot be restored.
    let (kept, _) = old.files.kept(&one.place, one.open).unwrap();
    assert!(Rig::new().files.put_back(&one, &kept, None, ME).is_none());
}

#[test]
fn what_is_breaking_comes_back_as_it_was_or_will_be() {
    let old = Rig::new();
    let leased = OpenRequest {
        client: client(9),
        cache: lease(9, RWH),
        ..old.request(1, READ | WRITE)
    };
    let batch = OpenRequest {
        cache: CacheRequest::Oplock(OplockLevel::BATCH),
        ..old.request(2, READ | WRITE)
    };
    old.open(&leased);
    old.open(&batch);
    for (inode, request) in [(1, &leased), (2, &batch)] {
        let (decision, _) = old.files.open(&old.request(inode, READ));
        assert!(matches!(decision, Decision::MustBreak));
        // The break was not acknowledged, so here the state is unchanged.
        let here = old.files.caching_of(&request.place, request.open);
        assert_eq!(state(here), RWH);
    }
    let new = Rig::new();
    // The lease may stand for data that its client has not written yet, so others wait for it again. The oplock keeps
    // them out.
    for (request, here) in [(&leased, RWH), (&batch, ONLY_R)] {
        back(&new, &old, request);
        let there = new.files.caching_of(&request.place, request.open);
        assert_eq!(state(there), here);
        let gives_way = new.files.gives_way(&request.place, request.open);
        assert_eq!(gives_way, here == RWH);
    }
    let (decision, _) = new.files.open(&new.request(1, READ));
    assert!(matches!(decision, Decision::MustBreak));
    let sent = new.files.break_in_flight(&leased.place, leased.open);
    let sent = sent.unwrap();
    assert_eq!((sent.current, sent.new, sent.ack_required), (RWH, RH, true));
    let (acknowledged, _) = (new.files).acknowledge_lease(client(9), lease_key(9), RH);
    assert_eq!(acknowledged, Ok(RH));
    let (decision, _) = new.files.open(&new.request(1, READ));
    assert!(matches!(decision, Decision::Granted(_)));
}

/// A write that takes only the caching of reads does not wait for the holder, and may have been answered.
#[test]
fn caching_of_reads_that_is_breaking_does_not_come_back() {
    let old = Rig::new();
    let leased = OpenRequest {
        client: client(9),
        cache: lease(9, RH),
        ..old.request(1, READ)
    };
    let writes = old.request(1, READ | WRITE);
    old.open(&leased);
    old.open(&writes);
    let (waits, breaks) = old.operate(&writes, Operation::Write);
    assert_eq!((waits, breaks.len()), (false, 1));
    let new = Rig::new();
    back(&new, &old, &leased);
    let there = new.files.caching_of(&leased.place, leased.open);
    assert_eq!(state(there), NONE);
    assert!(!new.files.gives_way(&leased.place, leased.open));
}

#[test]
fn what_is_to_be_deleted_is_deleted_with_the_last_close() {
    for on_close in [false, true] {
        let old = Rig::new();
        let request = OpenRequest {
            delete_on_close: on_close,
            ..old.request(1, DELETE)
        };
        old.open(&request);
        if !on_close {
            let marked = old
                .files
                .set_delete_pending(&request.place, request.open, false, ME);
            let _ = marked.unwrap();
        }
        let new = Rig::new();
        back(&new, &old, &request);
        let pending = new.files.is_delete_pending(&request.place, request.open);
        assert_eq!(pending, !on_close);
        let closed = new.files.close(&request.place, request.open, Some(ME));
        assert!(matches!(closed.remove, Some((Remove::Link(_), _))));
    }
}

#[test]
fn what_is_not_to_be_deleted_any_more_stays() {
    let old = Rig::new();
    let request = old.request(1, DELETE);
    old.open(&request);
    old.mark_deleted(&request);
    let cleared = (old.files).clear_delete_pending(&request.place, request.open);
    assert_eq!(cleared, Ok(()));
    let new = Rig::new();
    back(&new, &old, &request);
    assert_eq!(new.close(&request).remove, None);
}

#[test]
fn what_another_open_has_marked_is_deleted_with_the_last_close() {
    for on_close in [false, true] {
        for place in [place(1), stream(1, "S")] {
            let old = Rig::new();
            let at = |access| OpenRequest {
                place: place.clone(),
                ..old.request(1, access)
            };
            let marks = OpenRequest {
                delete_on_close: on_close,
                ..at(DELETE)
            };
            let (lasts, also_lasts) = (at(READ), at(READ));
            for request in [&marks, &lasts, &also_lasts] {
                old.open(request);
            }
            if !on_close {
                old.mark_deleted(&marks);
            }
            assert_eq!(old.close(&marks).remove, None);
            let new = Rig::new();
            back(&new, &old, &lasts);
            back(&new, &old, &also_lasts);
            assert_eq!(new.close(&lasts).remove, None);
            assert!(new.close(&also_lasts).remove.is_some());
        }
    }
}

#[test]
fn a_file_that_is_marked_is_deleted_with_the_last_close_of_a_stream() {
    for on_close in [false, true] {
        let old = Rig::new();
        let marks = OpenRequest {
            delete_on_close: on_close,
            ..old.request(1, DELETE)
        };
        let lasts = OpenRequest {
            place: stream(1, "S"),
            ..old.request(1, READ)
        };
        old.open(&marks);
        old.open(&lasts);
        if !on_close {
            old.mark_deleted(&marks);
        }
        assert_eq!(old.close(&marks).remove, None);
        let (kept, _) = old.files.kept(&lasts.place, lasts.open).unwrap();
        assert!(kept.link_marked && !kept.marked_deleted);
        let new = Rig::new();
        back(&new, &old, &lasts);
        let late = OpenRequest {
            open: OpenId(900),
            ..new.request(1, READ)
        };
        assert_eq!(new.refused(&late), Status::DELETE_PENDING);
        let removed = new.close(&lasts).remove;
        assert!(matches!(removed, Some((Remove::Link(_), _))));
    }
}

#[test]
fn a_lease_is_taken_anew_if_the_clients_of_its_other_opens_are_away() {
    let rig = Rig::new();
    let leased = || rig.leased(1, READ, 9, ONLY_R);
    let (one, two) = (leased(), leased());
    rig.open(&one);
    rig.open(&two);
    let files = &rig.files;
    let both = files.sharing(&one.place, one.open);
    assert_eq!(both, BTreeSet::from([one.open, two.open]));
    let anew = |away: &BTreeSet<OpenId>| files.take_anew(&one.place, one.open, 0x80, 0, away);
    assert!(!anew(&BTreeSet::new()));
    assert!(anew(&both));
    match files.caching_of(&one.place, one.open) {
        CacheGrant::Lease(lease) => assert_eq!(lease.v2.unwrap().epoch, 0x81),
        other => panic!("no lease: {other:?}"),
    }
}
