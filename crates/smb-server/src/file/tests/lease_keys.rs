//! Tests of the file to which the key of a lease belongs, and of its moves to another one.

use super::{caching::ack, *};

#[test]
fn a_key_stays_with_its_file() {
    let rig = Rig::new();
    let first = rig.leased(1, READ, 1, RWH);
    rig.open(&first);
    assert_eq!(
        rig.refused(&rig.leased(2, READ, 1, RWH)),
        Status::INVALID_PARAMETER
    );
    let on_stream = OpenRequest {
        place: stream(1, "S"),
        ..rig.leased(1, READ, 1, RWH)
    };
    assert_eq!(rig.refused(&on_stream), Status::INVALID_PARAMETER);
    let other_link = OpenRequest {
        link: link(0, "two"),
        ..rig.leased(1, READ, 1, RWH)
    };
    assert_eq!(rig.refused(&other_link), Status::INVALID_PARAMETER);
    // The lease follows a rename.
    rig.files.renamed(
        key(1),
        (&first.path, &first.link),
        (&path("two"), &other_link.link),
    );
    rig.open(&other_link);
    let _ = rig.close(&other_link);
    let _ = rig.close(&first);
    rig.open(&rig.leased(2, READ, 1, RWH));
}

#[test]
fn the_key_of_a_file_to_be_deleted_may_move_on() {
    let rig = Rig::new();
    let doomed = OpenRequest {
        delete_on_close: true,
        ..rig.leased(1, DELETE, 1, RH)
    };
    rig.open(&doomed);
    let next = rig.leased(2, READ, 1, RH);
    rig.open(&next);
    let _ = rig.close(&doomed);
    // The end of the old file does not end the new file's lease.
    assert_eq!(
        rig.refused(&rig.leased(3, READ, 1, RH)),
        Status::INVALID_PARAMETER
    );
    rig.mark_deleted(&next);
    rig.open(&rig.leased(3, READ, 1, RH));
}

#[test]
fn an_acknowledgment_reaches_the_file_that_had_the_key_when_it_was_broken() {
    let rig = Rig::new();
    let goes = OpenRequest {
        delete_on_close: true,
        ..rig.leased(1, DELETE, 1, RH)
    };
    rig.open(&goes);
    let breaks = |place: &Place| {
        let (_, effects) = (rig.files).operation(place, Actor::Stranger, Operation::Write, None);
        assert_eq!(short_form(&effects.breaks), [(3, 0, true)]);
    };
    breaks(&goes.place);
    let next = rig.leased(2, READ, 1, RH);
    assert_eq!(state(rig.open(&next)), RH);
    assert_eq!(ack(&rig, 1, NONE).0, Ok(NONE));
    // The break is over, and none is in flight at the file that has the key now.
    assert_eq!(ack(&rig, 1, NONE).0, Err(Status::UNSUCCESSFUL));
    breaks(&next.place);
    assert_eq!(ack(&rig, 1, NONE).0, Ok(NONE));
}

#[test]
fn a_rename_binds_the_key_of_a_file_to_be_deleted_to_it_again() {
    for marked in [false, true] {
        let rig = Rig::new();
        let deletes = |n| OpenRequest {
            delete_on_close: true,
            ..rig.leased(1, DELETE, n, ONLY_R)
        };
        let (renames, other) = (deletes(1), deletes(2));
        rig.open(&renames);
        rig.open(&other);
        if marked {
            rig.mark_deleted(&renames);
        }
        let to = (&path("two"), &link(0, "two"));
        rig.files
            .renamed(key(1), (&renames.path, &renames.link), to);
        let free = |n| rig.files.is_lease_to_be_deleted(client(n), lease_key(n));
        assert_eq!(free(1), marked);
        assert!(free(2), "Open.Lease is that of the open that renames");
    }
}

#[test]
fn a_key_stays_with_its_file_when_an_open_that_would_delete_it_is_undone() {
    let rig = Rig::new();
    rig.open(&rig.leased(1, READ, 1, RH));
    let doomed = || OpenRequest {
        delete_on_close: true,
        ..rig.leased(1, DELETE, 1, RH)
    };
    let (first, second) = (doomed(), doomed());
    rig.open(&first);
    rig.open(&second);
    let undo = |doomed: &OpenRequest| {
        let closed = rig.files.close(&doomed.place, doomed.open, None);
        assert!(closed.found);
        rig.files.is_lease_to_be_deleted(client(1), lease_key(1))
    };
    // The second open may still delete it.
    assert!(undo(&first));
    assert!(!undo(&second));
    assert_eq!(
        rig.refused(&rig.leased(2, READ, 1, RH)),
        Status::INVALID_PARAMETER
    );
}

/// A key whose first file is to be deleted and is asked to give up its handle; other files of it follow.
fn breaks_at_a_former_file(rig: &Rig) -> OpenRequest {
    let (first, other) = (rig.leased(1, READ, 1, RH), rig.request(1, READ));
    rig.open(&first);
    rig.open(&other);
    let (waits, breaks) = rig.operate(&other, Operation::Delete);
    assert!(waits && breaks.len() == 1);
    rig.mark_deleted(&other);
    first
}

#[test]
fn a_key_that_moved_twice_acknowledges_the_break_of_its_first_file() {
    let rig = Rig::new();
    let first = breaks_at_a_former_file(&rig);
    let [second, third] = [2, 3].map(|ino| rig.leased(ino, READ, 1, RH));
    rig.open(&second);
    rig.mark_deleted(&second);
    rig.open(&third);
    assert_eq!(ack(&rig, 1, ONLY_R).0, Ok(ONLY_R));
    // Nothing is in flight any more.
    assert_eq!(ack(&rig, 1, ONLY_R).0, Err(Status::UNSUCCESSFUL));
    let places = || rig.files.places_of_lease(client(1), lease_key(1));
    let bound = || places().into_iter().next();
    assert_eq!(bound(), Some(place(3)));
    let _ = rig.close(&second);
    assert_eq!(bound(), Some(place(3)));
    let _ = rig.close(&third);
    assert_eq!(bound(), Some(place(1)));
    let _ = rig.close(&first);
    assert_eq!(bound(), None);
}

#[test]
fn a_key_whose_new_file_is_closed_acknowledges_the_break_of_its_former_file() {
    let rig = Rig::new();
    let first = breaks_at_a_former_file(&rig);
    let second = rig.leased(2, READ, 1, RH);
    rig.open(&second);
    let _ = rig.close(&second);
    assert_eq!(ack(&rig, 1, ONLY_R).0, Ok(ONLY_R));
    // The key is free for another file all the same.
    rig.open(&rig.leased(3, READ, 1, RH));
    let _ = rig.close(&first);
    let bound = rig.files.places_of_lease(client(1), lease_key(1));
    assert_eq!(bound, [place(3)]);
}
