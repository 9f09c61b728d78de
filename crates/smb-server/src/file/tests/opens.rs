//! Share modes across opens, streams and links; quick answers; limits of what is kept.

use super::caching::ack;
use super::*;
use crate::file::below::PORTION;
use crate::file::inode::OPENS_PER_USER_MAX;

#[test]
fn a_conflict_is_final_where_nobody_caches() {
    let rig = Rig::new();
    let first = OpenRequest {
        share: ShareAccess::READ,
        ..rig.request(1, READ | WRITE)
    };
    rig.open(&first);
    assert_eq!(
        rig.refused(&rig.request(1, WRITE)),
        Status::SHARING_VIOLATION
    );
    let reader = OpenRequest {
        share: ShareAccess::READ,
        ..rig.request(1, READ)
    };
    assert_eq!(rig.refused(&reader), Status::SHARING_VIOLATION);
    rig.open(&rig.request(1, READ));
    rig.open(&rig.request(1, STAT));
    let _ = rig.close(&first);
    rig.open(&rig.request(1, WRITE));
}

#[test]
fn a_user_leaves_half_of_the_opens_to_others() {
    let rig = Rig::new();
    let of = |user| {
        let request = rig.request(1, STAT);
        let user = CountedUser(user);
        let waiter = Waiter {
            user,
            ..request.waiter
        };
        OpenRequest { waiter, ..request }
    };
    for _ in 0..OPENS_PER_USER_MAX {
        rig.open(&of(1));
    }
    let (full, place) = (Status::TOO_MANY_OPENED_FILES, stream(1, "new"));
    assert_eq!(rig.refused(&of(1)), full);
    // A stream for which there would be no open is not made either.
    let made = |user| {
        let new = (&place, &link(0, "1"), CountedUser(user));
        (rig.files).refusal_of_new(client(0), &CacheRequest::None, Some(new))
    };
    assert_eq!((made(1), made(2)), (Some(full), None));
    let last = of(2);
    rig.open(&last);
    let _ = rig.close(&last);
    assert_eq!(rig.refused(&of(1)), full);
}

#[test]
fn share_modes_are_per_stream_but_deletion_of_the_base_meets_them_all() {
    let rig = Rig::new();
    let on_stream = OpenRequest {
        place: stream(1, "S"),
        share: ShareAccess::READ,
        ..rig.request(1, READ | WRITE)
    };
    rig.open(&on_stream);
    rig.open(&rig.request(1, READ | WRITE));
    let other = OpenRequest {
        place: stream(1, "T"),
        share: ShareAccess(0),
        ..rig.request(1, WRITE | DELETE)
    };
    rig.open(&other);
    assert_eq!(
        rig.refused(&rig.request(1, DELETE)),
        Status::SHARING_VIOLATION
    );
    let _ = rig.close(&on_stream);
    let _ = rig.close(&other);
    let delete = rig.request(1, DELETE);
    rig.open(&delete);
    // The reverse order conflicts, too ([MS-FSA] 2.1.5.1.2.1).
    assert_eq!(rig.refused(&on_stream), Status::SHARING_VIOLATION);
    let _ = rig.close(&delete);
    rig.open(&on_stream);
}

#[test]
fn overwriting_is_judged_as_writing_until_it_is_done() {
    let rig = Rig::new();
    let readers = OpenRequest {
        share: ShareAccess::READ | ShareAccess::DELETE,
        ..rig.request(1, READ)
    };
    let overwriting = |access, effect| OpenRequest {
        effect,
        ..rig.request(1, access)
    };
    rig.open(&readers);
    for access in [STAT, READ] {
        let refused = rig.refused(&overwriting(access, WRITE));
        assert_eq!(refused, Status::SHARING_VIOLATION);
    }
    let _ = rig.close(&readers);
    let done = overwriting(READ, WRITE);
    rig.open(&done);
    assert_eq!(rig.refused(&readers), Status::SHARING_VIOLATION);
    rig.files.overwritten(&done.place, done.open, READ);
    rig.open(&readers);
}

#[test]
fn overwriting_takes_what_is_cached_of_the_streams_that_go_along() {
    let rig = Rig::new();
    let on_stream = |share| OpenRequest {
        place: stream(1, "S"),
        share,
        ..rig.leased(1, READ, 1, RWH)
    };
    let overwriting = OpenRequest {
        effect: WRITE,
        ..rig.request(1, READ)
    };
    let keeps = on_stream(ShareAccess::READ | ShareAccess::WRITE);
    rig.open(&keeps);
    // The holder may have closed the file already and would give up its handle.
    assert_eq!(short_form(&rig.waits(&overwriting)), [(7, 5, true)]);
    let _ = rig.close(&keeps);
    let shares = on_stream(SHARE_ALL);
    rig.open(&shares);
    assert_eq!(short_form(&rig.waits(&overwriting)), [(7, 0, true)]);
    let _ = rig.close(&shares);
    rig.open(&overwriting);
}

#[test]
fn while_a_file_is_overwritten_its_streams_are_opened_by_who_shares_their_deletion() {
    let rig = Rig::new();
    let on_stream = |share| OpenRequest {
        place: stream(1, "S"),
        share,
        ..rig.request(1, WRITE)
    };
    let overwriting = OpenRequest {
        effect: WRITE,
        ..rig.request(1, READ)
    };
    rig.open(&overwriting);
    let keeps = on_stream(ShareAccess::READ | ShareAccess::WRITE);
    assert_eq!(rig.refused(&keeps), Status::SHARING_VIOLATION);
    let shares = on_stream(SHARE_ALL);
    rig.open(&shares);
    let _ = rig.close(&shares);
    rig.files
        .overwritten(&overwriting.place, overwriting.open, READ);
    rig.open(&keeps);
}

#[test]
fn a_rename_above_waits_for_a_break_that_goes_in_steps() {
    let rig = Rig::new();
    let below = OpenRequest {
        path: path("dir\\1"),
        ..rig.leased(1, READ, 1, RWH)
    };
    rig.open(&below);
    assert_eq!(
        short_form(&rig.waits(&rig.request(1, READ))),
        [(7, 3, true)]
    );
    let first = rig.clear_below(&path("dir"), waiter(98), None);
    assert_eq!(first.step, Step::Wait);
    let before = (first.open, first.asked.unwrap());
    let (answer, effects) = ack(&rig, 1, RH);
    assert_eq!(
        (answer, short_form(&effects.breaks)),
        (Ok(RH), vec![(3, 1, true)])
    );
    // Its holder is asked for the handle only now.
    let second = rig.clear_below(&path("dir"), waiter(99), Some(&before));
    assert_eq!(second.step, Step::Wait);
    assert!(ack(&rig, 1, ONLY_R).0.is_ok());
    let third = rig.clear_below(&path("dir"), waiter(100), Some(&before));
    assert_eq!(third.step, Step::Refused(Status::ACCESS_DENIED));
}

#[test]
fn a_change_that_took_no_turn_is_seen_by_who_keeps_times() {
    let rig = Rig::new();
    let request = rig.request(1, WRITE);
    let (decision, _) = rig.files.open(&request);
    let Decision::Granted(granted) = decision else {
        panic!("{decision:?}");
    };
    let quick = &granted.quick;
    let change = quick.change_without_turn();
    assert!(change.is_some() && quick.has_changes_without_turn());
    drop(change);
    assert!(!quick.has_changes_without_turn());
    let keeper = quick.keep_times();
    assert!(quick.change_without_turn().is_none());
    assert!(!quick.has_changes_without_turn());
    drop(keeper);
    assert!(quick.change_without_turn().is_some());
}

#[test]
fn a_stream_to_be_removed_by_somebody_else_goes_with_its_last_handle() {
    let rig = Rig::new();
    let place = stream(1, "S");
    assert!(!rig.files.remove_at_last_close(&place, ME));
    let open = OpenRequest {
        place: place.clone(),
        ..rig.request(1, READ)
    };
    rig.open(&open);
    assert!(!rig.files.take_out(&place, &Remove::Stream));
    assert!(rig.files.remove_at_last_close(&place, ME));
    assert_eq!(rig.refused(&open), Status::DELETE_PENDING);
    assert_eq!(rig.close(&open).remove, Some((Remove::Stream, ME.clone())));
}

#[test]
fn streams_of_a_file_that_is_being_replaced_are_opened_afterwards() {
    let rig = Rig::new();
    let room = rig.request(1, READ);
    rig.open(&room);
    let of_stream = || OpenRequest {
        place: stream(1, "S"),
        ..rig.request(1, WRITE)
    };
    let (before, meanwhile) = (of_stream(), of_stream());
    rig.open(&before);
    let _ = rig.close(&before);
    rig.files.replaces(&room.place, room.open);
    assert_eq!(rig.waits(&meanwhile), []);
    // Share modes decide about opens of the file itself.
    rig.open(&rig.request(1, READ));
    // A request that finds the file in use gives up, and the first one goes on.
    let second = rig.request(1, READ);
    rig.open(&second);
    rig.files.replaces(&second.place, second.open);
    let _ = rig.close(&second);
    assert_eq!(rig.waits(&meanwhile), []);
    assert_eq!(rig.close(&room).effects.wakes.len(), 1);
    rig.open(&meanwhile);
}

#[test]
fn an_open_is_reserved_from_the_grant_on() {
    let rig = Rig::new();
    let exclusive = |rig: &Rig| OpenRequest {
        share: ShareAccess(0),
        ..rig.request(1, WRITE)
    };
    let first = exclusive(&rig);
    rig.open(&first);
    assert_eq!(rig.refused(&exclusive(&rig)), Status::SHARING_VIOLATION);
    // The disk refused the open: nothing is left, not even a requested deletion.
    let doomed = OpenRequest {
        delete_on_close: true,
        ..rig.request(2, DELETE)
    };
    rig.open(&doomed);
    let closed = rig.files.close(&doomed.place, doomed.open, None);
    assert_eq!(closed.remove, None);
    assert_eq!(rig.files.count(doomed.place.key, None), 0);
    let _ = rig.close(&first);
    assert!(rig.files.is_empty());
}

#[test]
fn a_close_leaves_the_other_opens() {
    let rig = Rig::new();
    let base = rig.request(1, READ);
    let on_stream = OpenRequest {
        place: stream(1, "S"),
        ..rig.request(1, READ)
    };
    rig.open(&base);
    rig.open(&on_stream);
    assert!(rig.files.has_open_streams(key(1)));
    assert_eq!(rig.files.count(key(1), None), 2);
    assert_eq!(rig.files.count(key(1), Some(&link(0, "other"))), 0);
    let _ = rig.close(&on_stream);
    assert!(!rig.files.has_open_streams(key(1)));
    assert_eq!(rig.files.count(key(1), None), 1);
    let _ = rig.close(&base);
    assert_eq!(rig.files.count(key(1), None), 0);
    assert!(!rig.files.close(&base.place, base.open, Some(ME)).found);
}

#[test]
fn quick_answers_follow_ranges_and_caching() {
    let rig = Rig::new();
    let holder = rig.leased(1, READ | WRITE, 1, RWH);
    let (decision, _) = rig.files.open(&holder);
    let Decision::Granted(holding) = decision else {
        panic!("not granted");
    };
    // One's own lease is no obstacle.
    assert!(!holding.quick.others_cache() && !holding.quick.ranges_in_use());
    let other = rig.request(1, READ | WRITE);
    assert_eq!(rig.waits(&other).len(), 1);
    let (answer, _) = rig.files.acknowledge_lease(client(1), lease_key(1), RH);
    assert_eq!(answer, Ok(RH));
    let (decision, _) = rig.files.open(&other);
    let Decision::Granted(quick) = decision else {
        panic!("not granted");
    };
    assert!(quick.quick.others_cache() && !holding.quick.others_cache());
    assert_eq!(rig.operate(&other, Operation::Write).1.len(), 1);
    let two = rig.leased(1, READ, 2, ONLY_R);
    rig.open(&two);
    assert!(holding.quick.others_cache());
    let _ = rig.close(&two);
    let _ = rig.close(&holder);
    assert!(!quick.quick.others_cache());
}

#[test]
fn quick_answers_say_who_may_write() {
    let rig = Rig::new();
    let granted = |request: &OpenRequest| match rig.files.open(request).0 {
        Decision::Granted(granted) => granted.quick,
        other => panic!("{other:?}"),
    };
    let (reads, writes) = (rig.request(1, READ), rig.request(1, READ | WRITE));
    let reader = granted(&reads);
    assert!(!reader.others_write());
    let writer = granted(&writes);
    assert!(reader.others_write() && !writer.others_write());
    let again = rig.request(1, WRITE);
    let _ = granted(&again);
    assert!(writer.others_write());
    let _ = rig.close(&again);
    assert!(reader.others_write() && !writer.others_write());
    let _ = rig.close(&writes);
    assert!(!reader.others_write());
}

#[test]
fn quick_answers_say_whether_a_request_is_under_way() {
    let rig = Rig::new();
    let quick = match rig.files.open(&rig.request(1, READ)).0 {
        Decision::Granted(granted) => granted.quick,
        other => panic!("{other:?}"),
    };
    assert!(!quick.is_busy());
    let read = quick.read();
    assert!(quick.is_busy());
    drop(read);
    let change = quick.change_without_turn();
    assert!(quick.is_busy());
    drop(change);
    let keeper = quick.keep_times();
    assert!(quick.is_busy());
    drop(keeper);
    assert!(!quick.is_busy());
}

#[test]
fn paths_follow_renames() {
    let rig = Rig::new();
    let inside = OpenRequest {
        path: path("dir\\sub\\File"),
        ..rig.request(1, READ)
    };
    let directory = OpenRequest {
        path: path("Dir"),
        link: link(0, "DIR"),
        directory: true,
        ..rig.request(2, READ)
    };
    rig.open(&inside);
    rig.open(&directory);
    let below = rig.files.opens_below(&path("DIR")).portion(&rig.files);
    assert_eq!(below, Some(vec![(inside.open, inside.place.clone())]));
    let (to, to_link) = (path("New"), link(0, "NEW"));
    rig.files
        .renamed(key(2), (&directory.path, &directory.link), (&to, &to_link));
    assert_eq!(
        rig.files.path_of(inside.open).unwrap().text(),
        "New\\sub\\File"
    );
    assert_eq!(rig.files.path_of(directory.open).unwrap().text(), "New");
    assert_eq!(rig.files.count(key(2), Some(&to_link)), 1);
    let below = rig.clear_below(&to, waiter(9), None);
    assert!(below.open == 1 && below.step == Step::Go);
    assert_eq!(rig.clear_below(&path("Dir"), waiter(9), None).open, 0);
}

/// A user may have very many handles below a directory.
#[test]
fn the_opens_below_a_directory_are_looked_at_in_portions() {
    let rig = Rig::new();
    let open = |ino: u64| {
        let request = OpenRequest {
            path: path(&format!("dir\\{ino:06}")),
            ..rig.request(ino, READ)
        };
        rig.open(&request);
        request
    };
    let most = u64::try_from(PORTION).unwrap();
    let opens: Vec<OpenRequest> = (1..=most + 1).map(open).collect();
    let mut clearing = rig.files.clear_below(&path("dir"));
    let mut portion = || clearing.go_on(&rig.files, waiter(99), None);
    // The second one looks at the last open, and asks the holders of the others.
    assert!(portion().is_none() && portion().is_none());
    let below = portion().unwrap();
    assert!(below.open == PORTION + 1 && below.step == Step::Go);
    let mut clearing = rig.files.clear_below(&path("dir"));
    assert!(clearing.go_on(&rig.files, waiter(99), None).is_none());
    // The table of paths is not read beyond the portion, so it is not locked for longer.
    let _ = rig.close(&opens[PORTION]);
    assert!(clearing.go_on(&rig.files, waiter(99), None).is_none());
    let below = clearing.go_on(&rig.files, waiter(99), None).unwrap();
    assert_eq!(below.open, PORTION);
}

#[test]
fn a_rename_above_waits_for_cached_handles() {
    let rig = Rig::new();
    let inside = OpenRequest {
        path: path("dir\\f"),
        ..rig.leased(1, READ, 1, RH)
    };
    rig.open(&inside);
    let below = rig.clear_below(&path("dir"), waiter(99), None);
    assert!(below.open == 1 && below.step == Step::Wait);
    assert_eq!(short_form(&below.effects.breaks), [(3, 1, true)]);
    // The holder had closed its file long ago: now it really does.
    let closed = rig.close(&inside);
    assert_eq!(closed.effects.wakes.len(), 1);
    assert_eq!(closed.effects.wakes[0].waiter, WaiterId(99));
    assert_eq!(rig.clear_below(&path("dir"), waiter(99), None).open, 0);
}

#[test]
fn racing_threads_never_both_have_an_exclusive_open() {
    use std::sync::atomic::{AtomicUsize, Ordering};

    let rig = Rig::new();
    let requests: Vec<OpenRequest> = (0..4)
        .map(|n| OpenRequest {
            share: ShareAccess(0),
            ..rig.leased(1, WRITE, n, RWH)
        })
        .collect();
    let (inside, granted) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let files = &rig.files;
    std::thread::scope(|scope| {
        for request in &requests {
            let (inside, granted) = (&inside, &granted);
            scope.spawn(move || {
                for _ in 0..2_000 {
                    let (decision, _) = files.open(request);
                    if let Decision::Granted(_) = decision {
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        granted.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        let _ = files.close(&request.place, request.open, Some(ME));
                    }
                    let _ = files.cancel(&request.place, request.waiter.id);
                }
            });
        }
    });
    assert!(granted.load(Ordering::SeqCst) > 0);
    assert!(rig.files.is_empty());
}
