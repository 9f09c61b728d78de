//! Delete-pending, FILE_DELETE_ON_CLOSE, POSIX deletion, streams and hard links.

use super::*;

#[test]
fn the_last_close_of_a_pending_file_removes_it() {
    let rig = Rig::new();
    let deleter = rig.request(1, DELETE);
    let other = rig.request(1, READ);
    rig.open(&deleter);
    rig.open(&other);
    assert!(!rig.files.is_to_be_deleted(key(1)));
    rig.mark_deleted(&deleter);
    assert!(rig.files.is_delete_pending(&other.place, other.open));
    assert_eq!(rig.refused(&rig.request(1, STAT)), Status::DELETE_PENDING);
    assert_eq!(rig.close(&deleter).remove, None);
    let closed = rig.close(&other);
    assert_eq!(
        closed.remove,
        Some((Remove::Link(link(0, "1")), ME.clone()))
    );
    assert!(rig.files.is_to_be_deleted(key(1)));
    // Until the name is removed on disk, it cannot be opened.
    assert_eq!(rig.refused(&rig.request(1, READ)), Status::DELETE_PENDING);
    rig.files
        .removed(&other.place, &Remove::Link(link(0, "1")), Some(other.open));
    assert!(rig.files.is_empty());
    rig.open(&rig.request(1, READ));
}

#[test]
fn a_disposition_can_be_taken_back_but_not_delete_on_close() {
    let rig = Rig::new();
    let first = rig.request(1, DELETE);
    rig.open(&first);
    rig.mark_deleted(&first);
    assert_eq!(
        rig.files.clear_delete_pending(&first.place, first.open),
        Ok(())
    );
    let second = OpenRequest {
        delete_on_close: true,
        ..rig.request(1, DELETE)
    };
    rig.open(&second);
    assert!(!rig.files.is_delete_pending(&first.place, first.open));
    assert_eq!(
        rig.files.clear_delete_pending(&second.place, second.open),
        Ok(())
    );
    // It acts when *that* handle closes; the object is removed with the last one.
    assert_eq!(rig.close(&second).remove, None);
    assert!(rig.files.is_delete_pending(&first.place, first.open));
    assert_eq!(rig.refused(&rig.request(1, READ)), Status::DELETE_PENDING);
    assert!(rig.close(&first).remove.is_some());
}

#[test]
fn a_mark_asks_for_the_handles_that_are_cached_since_the_break_before_it() {
    let rig = Rig::new();
    let (marks, other) = (rig.leased(1, DELETE, 1, RH), rig.leased(1, READ, 2, RH));
    rig.open(&marks);
    rig.open(&other);
    let marked = (rig.files).set_delete_pending(&marks.place, marks.open, false, ME);
    assert_eq!(short_form(&marked.unwrap().breaks), [(3, 1, true)]);
    assert_eq!(rig.close(&marks).remove, None);
    assert!(rig.close(&other).remove.is_some());
}

#[test]
fn a_close_that_marks_the_file_asks_for_the_handles_that_are_cached_since_the_open() {
    let rig = Rig::new();
    let goes = OpenRequest {
        delete_on_close: true,
        ..rig.leased(1, DELETE, 1, RH)
    };
    let (own, other) = (rig.leased(1, READ, 1, RH), rig.leased(1, READ, 2, RH));
    for request in [&goes, &own, &other] {
        assert_eq!(state(rig.open(request)), RH);
    }
    let closed = rig.close(&goes);
    assert_eq!(closed.remove, None);
    let breaks = closed.effects.breaks;
    assert_eq!(short_form(&breaks), [(3, 1, true)]);
    assert_eq!(breaks[0].owner, Owner::Lease(client(2), lease_key(2)));
    // A close that removes the name has nothing to ask for.
    let _ = rig.close(&own);
    let closed = rig.close(&other);
    assert!(closed.remove.is_some() && closed.effects.breaks.is_empty());
}

#[test]
fn a_close_that_removes_the_name_with_posix_semantics_asks_for_cached_handles() {
    let rig = Rig::new();
    let goes = OpenRequest {
        delete_on_close: true,
        ..rig.leased(1, DELETE, 1, RH)
    };
    let other = rig.leased(1, READ, 2, RH);
    for request in [&goes, &other] {
        assert_eq!(state(rig.open(request)), RH);
    }
    let set = (rig.files).set_delete_on_close(&goes.place, goes.open, true, true);
    assert!(set.is_ok());
    let closed = rig.close(&goes);
    assert!(closed.remove.is_some());
    assert_eq!(short_form(&closed.effects.breaks), [(3, 1, true)]);
}

#[test]
fn unknown_opens_are_closed_files() {
    let rig = Rig::new();
    assert_eq!(
        rig.files
            .set_delete_pending(&place(1), OpenId(5), false, ME),
        Err(Status::FILE_CLOSED)
    );
    rig.open(&rig.request(1, READ));
    assert_eq!(
        rig.files.clear_delete_pending(&place(1), OpenId(500)),
        Err(Status::FILE_CLOSED)
    );
    assert_eq!(
        rig.files
            .set_delete_on_close(&place(1), OpenId(500), true, false),
        Err(Status::FILE_CLOSED)
    );
}

#[test]
fn posix_deletion_goes_with_its_own_handle() {
    let rig = Rig::new();
    let deleter = rig.request(1, DELETE);
    let lasting = rig.request(1, READ);
    let early = rig.request(1, READ);
    for request in [&deleter, &lasting, &early] {
        rig.open(request);
    }
    assert!(
        rig.files
            .set_delete_pending(&deleter.place, deleter.open, true, ME)
            .is_ok()
    );
    assert_eq!(rig.close(&early).remove, None);
    let (remove, _) = rig.close(&deleter).remove.unwrap();
    assert_eq!(remove, Remove::Link(link(0, "1")));
    rig.files
        .removed(&deleter.place, &remove, Some(deleter.open));
    // The remaining handle has no name: it still reports that, and removes nothing.
    assert!(rig.files.is_delete_pending(&lasting.place, lasting.open));
    rig.mark_deleted(&lasting);
    assert_eq!(rig.close(&lasting).remove, None);
    assert!(rig.files.is_empty());
}

#[test]
fn a_close_that_removes_the_name_itself_answers_for_no_other_removal() {
    let rig = Rig::new();
    let (posix, lasting) = (rig.request(1, DELETE), rig.request(1, DELETE));
    rig.open(&posix);
    rig.open(&lasting);
    let marked = (rig.files).set_delete_pending(&posix.place, posix.open, true, ME);
    assert!(marked.is_ok());
    let (remove, _) = rig.close(&posix).remove.unwrap();
    (rig.files).removed(&posix.place, &remove, Some(posix.open));
    // A new hard link of the file has the same name.
    let linked = rig.request(1, DELETE);
    rig.open(&linked);
    rig.mark_deleted(&lasting);
    rig.mark_deleted(&linked);
    let closed = rig.close(&linked);
    assert!(closed.remove.is_some());
    assert_eq!(closed.unlinked, None);
    assert_eq!(rig.close(&lasting).remove, None);
}

#[test]
fn a_posix_deletion_that_fails_leaves_the_other_handles_their_name() {
    let rig = Rig::new();
    let (deleter, other) = (rig.request(1, DELETE), rig.request(1, DELETE));
    let second = OpenRequest {
        link: link(0, "second"),
        ..rig.request(1, DELETE)
    };
    for request in [&deleter, &other, &second] {
        rig.open(request);
    }
    for request in [&deleter, &second] {
        let marked = (rig.files).set_delete_pending(&request.place, request.open, true, ME);
        assert!(marked.is_ok());
    }
    let (remove, _) = rig.close(&deleter).remove.unwrap();
    assert!(rig.files.is_unlinked(&other.place, other.open));
    // A rename that began before follows meanwhile.
    let to = (&path("new"), &link(0, "new"));
    (rig.files).renamed(key(1), (&deleter.path, &deleter.link), to);
    let failed = Err(VfsError::Io);
    (rig.files).removal_ended(&deleter.place, &remove, Some(deleter.open), failed);
    assert!(!rig.files.is_delete_pending(&other.place, other.open));
    assert!(rig.close(&second).remove.is_some());
    rig.mark_deleted(&other);
    let removed = rig.close(&other).remove.map(|(remove, _)| remove);
    assert_eq!(removed, Some(Remove::Link(link(0, "new"))));
}

#[test]
fn a_deletion_that_another_handle_asked_for_outlives_a_posix_deletion_that_fails() {
    for marked_before in [true, false] {
        let rig = Rig::new();
        let (posix, plain) = (rig.request(1, DELETE), rig.request(1, DELETE));
        let reader = rig.request(1, READ);
        for request in [&posix, &plain, &reader] {
            rig.open(request);
        }
        if marked_before {
            rig.mark_deleted(&plain);
        }
        let marked = (rig.files).set_delete_pending(&posix.place, posix.open, true, ME);
        assert!(marked.is_ok());
        let (remove, _) = rig.close(&posix).remove.unwrap();
        if !marked_before {
            rig.mark_deleted(&plain);
        }
        let failed = Err(VfsError::Io);
        (rig.files).removal_ended(&posix.place, &remove, Some(posix.open), failed);
        assert!(rig.files.is_delete_pending(&reader.place, reader.open));
        assert_eq!(rig.close(&plain).remove, None);
        let removed = rig.close(&reader).remove.map(|(remove, _)| remove);
        assert_eq!(removed, Some(Remove::Link(link(0, "1"))));
    }
}

#[test]
fn a_name_that_stays_is_that_of_its_own_opens_alone() {
    let rig = Rig::new();
    let delete = |request: &OpenRequest| {
        let marked = (rig.files).set_delete_pending(&request.place, request.open, true, ME);
        assert!(marked.is_ok());
        rig.close(request).remove.unwrap().0
    };
    let (first, earlier) = (rig.request(1, DELETE), rig.request(1, DELETE));
    rig.open(&first);
    rig.open(&earlier);
    let remove = delete(&first);
    (rig.files).removed(&first.place, &remove, Some(first.open));
    // Another link of the file gets the same name.
    let (second, later) = (rig.request(1, DELETE), rig.request(1, DELETE));
    rig.open(&second);
    rig.open(&later);
    let remove = delete(&second);
    assert!(rig.files.is_unlinked(&later.place, later.open));
    // A mark of the earlier link does not count for this one.
    rig.mark_deleted(&earlier);
    let failed = Err(VfsError::Io);
    (rig.files).removal_ended(&second.place, &remove, Some(second.open), failed);
    assert!(!rig.files.is_unlinked(&later.place, later.open));
    assert!(!rig.files.is_delete_pending(&later.place, later.open));
    assert!(rig.files.is_unlinked(&earlier.place, earlier.open));
    assert_eq!(rig.close(&earlier).remove, None);
    assert_eq!(rig.close(&later).remove, None);
}

#[test]
fn a_close_waits_for_no_removal_of_a_name_that_has_become_another_one() {
    for is_renamed in [false, true] {
        let rig = Rig::new();
        let (posix, plain) = (rig.request(1, DELETE), rig.request(1, DELETE));
        let second = OpenRequest {
            link: link(0, "second"),
            path: path("second"),
            ..rig.request(1, DELETE)
        };
        for request in [&posix, &plain, &second] {
            rig.open(request);
        }
        rig.mark_deleted(&plain);
        rig.mark_deleted(&second);
        let marked = (rig.files).set_delete_pending(&posix.place, posix.open, true, ME);
        assert!(marked.is_ok());
        let (remove, _) = rig.close(&posix).remove.unwrap();
        let (_, going) = rig.close(&plain).unlinked.unwrap();
        if is_renamed {
            // The other name has a mark of its own, which stays.
            let to = (&second.path, &second.link);
            (rig.files).renamed(key(1), (&posix.path, &posix.link), to);
        } else {
            rig.files.replaced(key(1), &posix.link);
        }
        let failed = Err(VfsError::NotFound);
        (rig.files).removal_ended(&posix.place, &remove, Some(posix.open), failed);
        assert_eq!(going.unwrap().get(), Some(&Ok(true)), "{is_renamed}");
    }
}

#[test]
fn a_stream_is_deleted_alone_and_with_its_file() {
    let rig = Rig::new();
    let base = rig.request(1, DELETE);
    let on_stream = |rig: &Rig| OpenRequest {
        place: stream(1, "S"),
        ..rig.request(1, DELETE)
    };
    let first = on_stream(&rig);
    rig.open(&base);
    rig.open(&first);
    rig.mark_deleted(&first);
    assert_eq!(rig.refused(&on_stream(&rig)), Status::DELETE_PENDING);
    rig.open(&rig.request(1, READ));
    assert_eq!(rig.close(&first).remove, Some((Remove::Stream, ME.clone())));
    assert_eq!(rig.refused(&on_stream(&rig)), Status::DELETE_PENDING);
    rig.files
        .removed(&first.place, &Remove::Stream, Some(first.open));
    let again = on_stream(&rig);
    rig.open(&again);
    // A stream that is still open keeps the file itself.
    rig.mark_deleted(&base);
    assert_eq!(rig.refused(&on_stream(&rig)), Status::DELETE_PENDING);
    assert_eq!(rig.close(&base).remove, None);
}

#[test]
fn a_stream_deleted_with_posix_semantics_stays_until_its_last_handle_closes() {
    let rig = Rig::new();
    let on_stream = || OpenRequest {
        place: stream(1, "S"),
        ..rig.request(1, DELETE)
    };
    let (deleter, other) = (on_stream(), on_stream());
    rig.open(&deleter);
    rig.open(&other);
    let marked = (rig.files).set_delete_pending(&deleter.place, deleter.open, true, ME);
    assert!(marked.is_ok());
    assert_eq!(rig.close(&deleter).remove, None);
    assert_eq!(rig.refused(&on_stream()), Status::DELETE_PENDING);
    assert_eq!(rig.close(&other).remove, Some((Remove::Stream, ME.clone())));
}

#[test]
fn another_hard_link_is_not_touched() {
    let rig = Rig::new();
    let one = rig.request(1, DELETE);
    let two = OpenRequest {
        link: link(0, "two"),
        path: path("two"),
        ..rig.request(1, READ)
    };
    rig.open(&one);
    rig.open(&two);
    rig.mark_deleted(&one);
    assert!(!rig.files.is_delete_pending(&two.place, two.open));
    let closed = rig.close(&one);
    assert_eq!(
        closed.remove,
        Some((Remove::Link(link(0, "1")), ME.clone()))
    );
    assert_eq!(rig.files.count(one.place.key, None), 1);
    rig.files
        .removed(&one.place, &Remove::Link(link(0, "1")), Some(one.open));
    assert_eq!(rig.close(&two).remove, None);
    assert!(rig.files.is_empty());
}

#[test]
fn a_pending_deletion_follows_a_rename() {
    let rig = Rig::new();
    let open = rig.request(1, DELETE);
    rig.open(&open);
    rig.mark_deleted(&open);
    let to = link(7, "NEW");
    rig.files
        .renamed(key(1), (&open.path, &open.link), (&path("new"), &to));
    assert_eq!(
        rig.close(&open).remove,
        Some((Remove::Link(to), ME.clone()))
    );
}

#[test]
fn a_handle_without_a_name_is_below_no_directory() {
    let rig = Rig::new();
    let at = |access| OpenRequest {
        path: path("dir\\1"),
        ..rig.request(1, access)
    };
    let (deletes, lasting) = (at(DELETE), at(READ));
    rig.open(&deletes);
    rig.open(&lasting);
    let below = || rig.clear_below(&path("dir"), waiter(99), None).open;
    let marked = (rig.files).set_delete_pending(&deletes.place, deletes.open, true, ME);
    assert!(marked.is_ok());
    assert_eq!(below(), 2);
    let (remove, _) = rig.close(&deletes).remove.unwrap();
    // The name is still on disk.
    assert_eq!(below(), 1);
    (rig.files).removed(&deletes.place, &remove, Some(deletes.open));
    assert_eq!(below(), 0);
}

#[test]
fn until_a_name_is_removed_what_is_above_knows_of_it() {
    let rig = Rig::new();
    let file = OpenRequest {
        path: path("dir\\1"),
        delete_on_close: true,
        ..rig.request(1, DELETE)
    };
    rig.open(&file);
    let (remove, _) = rig.close(&file).remove.unwrap();
    assert_eq!(rig.files.path_of(file.open), None);
    assert_eq!(rig.clear_below(&path("dir"), waiter(99), None).open, 1);
    // A request may have passed that point already.
    rig.files.renamed(
        key(9),
        (&path("dir"), &link(0, "dir")),
        (&path("new"), &link(0, "new")),
    );
    assert_eq!(rig.files.leaving(file.open).unwrap().text(), "new\\1");
    rig.files.removed(&file.place, &remove, Some(file.open));
    assert_eq!(rig.files.leaving(file.open), None);
    assert_eq!(rig.clear_below(&path("new"), waiter(99), None).open, 0);
    assert!(rig.files.is_empty());
}

#[test]
fn a_removal_beside_a_rename_leaves_nothing() {
    let rig = Rig::new();
    let deleter = rig.request(1, DELETE);
    let renamer = rig.request(1, DELETE);
    rig.open(&deleter);
    rig.open(&renamer);
    let marked = (rig.files).set_delete_pending(&deleter.place, deleter.open, true, ME);
    assert!(marked.is_ok());
    assert!(!rig.files.is_unlinked(&renamer.place, renamer.open));
    let (remove, _) = rig.close(&deleter).remove.unwrap();
    assert!(rig.files.is_unlinked(&renamer.place, renamer.open));
    let to = (&path("new"), &link(0, "new"));
    (rig.files).renamed(key(1), (&deleter.path, &deleter.link), to);
    assert_eq!(rig.files.leaving(deleter.open).unwrap().text(), "new");
    rig.files
        .removed(&deleter.place, &remove, Some(deleter.open));
    assert_eq!(rig.close(&renamer).remove, None);
    assert!(rig.files.is_empty());
}

#[test]
fn a_rename_onto_a_name_that_goes_leaves_it_going() {
    let rig = Rig::new();
    let deleter = rig.request(1, DELETE);
    let renamer = OpenRequest {
        path: path("other"),
        link: link(0, "other"),
        ..rig.request(1, DELETE)
    };
    rig.open(&deleter);
    rig.open(&renamer);
    assert!(!rig.files.is_going(key(1), &deleter.link));
    let marked = (rig.files).set_delete_pending(&deleter.place, deleter.open, false, ME);
    assert!(marked.is_ok());
    assert!(rig.files.is_going(key(1), &deleter.link));
    assert!(!rig.files.is_going(key(1), &renamer.link));
    // Two closes cannot both remove it: the one that started first does.
    let (remove, _) = rig.close(&deleter).remove.unwrap();
    let marked = (rig.files).set_delete_pending(&renamer.place, renamer.open, false, ME);
    assert!(marked.is_ok());
    let to = (&deleter.path, &deleter.link);
    (rig.files).renamed(key(1), (&renamer.path, &renamer.link), to);
    assert_eq!(rig.close(&renamer).remove, None);
    rig.files
        .removed(&deleter.place, &remove, Some(deleter.open));
    assert!(rig.files.is_empty());
}

#[test]
fn each_name_goes_on_behalf_of_who_marked_it() {
    let user = |uid| {
        let identity = Identity::User(Arc::new(vfs::identity::LocalUser {
            uid,
            gid: uid,
            groups: Vec::new(),
        }));
        Deleter::new(&identity, None, false)
    };
    let rig = Rig::new();
    let one = rig.request(1, DELETE);
    let other = OpenRequest {
        link: link(0, "another name"),
        ..rig.request(1, DELETE)
    };
    let on_close = OpenRequest {
        link: link(0, "a third"),
        delete_on_close: true,
        ..rig.request(1, DELETE)
    };
    for request in [&one, &other, &on_close] {
        rig.open(request);
    }
    for (request, uid) in [(&one, 1), (&other, 2)] {
        let marked =
            (rig.files).set_delete_pending(&request.place, request.open, false, &user(uid));
        assert_eq!(marked, Ok(Effects::default()));
    }
    // This holds whichever open is closed last.
    for (request, uid) in [(&one, 1), (&other, 2), (&on_close, 3)] {
        let closed = (rig.files).close(&request.place, request.open, Some(&user(3)));
        let (remove, who) = closed.remove.unwrap();
        assert_eq!(who, user(uid));
        rig.files
            .removed(&request.place, &remove, Some(request.open));
    }
    assert!(rig.files.is_empty());
}

#[test]
fn a_removal_that_a_write_through_open_asked_for_stays_one_when_another_asks_too() {
    let rig = Rig::new();
    let marks = [true, false].map(|write_through| Deleter {
        write_through,
        ..ME.clone()
    });
    let requests = marks.each_ref().map(|_| rig.request(1, DELETE));
    let last = rig.request(1, READ);
    for request in requests.iter().chain([&last]) {
        rig.open(request);
    }
    for (request, who) in requests.iter().zip(&marks) {
        let marked = (rig.files).set_delete_pending(&request.place, request.open, false, who);
        assert!(marked.is_ok());
        assert_eq!(rig.close(request).remove, None);
    }
    let (_, who) = rig.close(&last).remove.unwrap();
    assert_eq!(who, marks[0]);
}
