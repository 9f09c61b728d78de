//! Snapshots of the name cache: when they are believed, and what is kept.

use super::*;
use crate::{posix::short_name::Code, testing::key};

fn at(secs: i64) -> Timestamp {
    Timestamp { secs, nanos: 0 }
}

fn stat(ino: u64, changed: i64) -> Stat {
    Stat {
        key: key(1, ino),
        written: at(changed),
        changed: at(changed),
        ..Stat::default()
    }
}

fn seen(changed: i64) -> Seen {
    Seen::from(&stat(1, changed))
}

fn sought(folded: &str) -> Sought<'_> {
    Sought { folded, code: None }
}

fn entries(names: &[&str]) -> Folded {
    let mut folded = Folded::with_capacity(names.len(), true);
    for name in names {
        folded.add(name.as_bytes());
    }
    folded
}

fn on_disk(name: &str) -> Known {
    Known::OnDisk(name.as_bytes().into())
}

#[test]
fn believed_while_the_times_stand() {
    let cache = NameCache::default();
    assert_eq!(cache.find(&stat(1, 5), sought("A"), at(9)), Known::Unlisted);
    let begun = cache.begin_listing();
    cache.listed(
        begun,
        (&stat(1, 5), &stat(1, 5)),
        entries(&["a", "B"]),
        at(9),
    );
    assert_eq!(cache.find(&stat(1, 5), sought("A"), at(9)), on_disk("a"));
    assert_eq!(cache.find(&stat(1, 5), sought("X"), at(9)), Known::Absent);
    assert_eq!(cache.find(&stat(1, 6), sought("X"), at(9)), Known::Unlisted);
    assert_eq!(lock(&cache.0).bytes, 0);
}

#[test]
fn a_young_or_moving_listing_is_not_kept() {
    let cache = NameCache::default();
    let begun = cache.begin_listing();
    cache.listed(begun, (&stat(1, 9), &stat(1, 9)), entries(&["a"]), at(9));
    assert_eq!(cache.find(&stat(1, 9), sought("A"), at(9)), Known::Unlisted);
    let begun = cache.begin_listing();
    cache.listed(begun, (&stat(1, 5), &stat(1, 6)), entries(&["a"]), at(9));
    assert_eq!(cache.find(&stat(1, 6), sought("A"), at(9)), Known::Unlisted);
}

#[test]
fn our_changes_go_in_and_last_for_a_while() {
    let cache = NameCache::default();
    let begun = cache.begin_listing();
    cache.listed(begun, (&stat(1, 5), &stat(1, 5)), entries(&["a"]), at(9));
    let key = stat(1, 5).key;
    assert!(cache.knows(key) && cache.begin(key, &seen(5)));
    cache.end(
        key,
        Some(&stat(1, 9)),
        &[Change::Add(b"New"), Change::Remove(b"a")],
        at(9),
    );
    assert_eq!(
        cache.find(&stat(1, 9), sought("NEW"), at(10)),
        on_disk("New")
    );
    assert_eq!(cache.find(&stat(1, 9), sought("A"), at(10)), Known::Absent);
    assert_eq!(
        cache.find(&stat(1, 9), sought("NEW"), at(12)),
        Known::Unlisted
    );
}

#[test]
fn a_host_change_before_ours_is_not_covered() {
    let cache = NameCache::default();
    let begun = cache.begin_listing();
    cache.listed(begun, (&stat(1, 5), &stat(1, 5)), entries(&["a"]), at(9));
    assert!(!cache.begin(stat(1, 6).key, &seen(6)));
    assert!(!cache.knows(stat(1, 6).key));
}

/// The server made a name in between, which the state that was seen does not include.
#[test]
fn what_was_seen_before_a_change_of_ours_forgets_nothing() {
    let cache = NameCache::default();
    let begun = cache.begin_listing();
    cache.listed(begun, (&stat(1, 5), &stat(1, 5)), entries(&["a"]), at(9));
    let key = stat(1, 5).key;
    assert_eq!(
        cache.find_seen(key, &seen(5), sought("NEW"), at(9)),
        Known::Absent
    );
    assert!(cache.begin(key, &seen(5)));
    cache.end(key, Some(&stat(1, 9)), &[Change::Add(b"new")], at(9));
    let late = cache.find_seen(key, &seen(5), sought("NEW"), at(9));
    assert_eq!(late, Known::Unlisted);
    assert_eq!(
        cache.find(&stat(1, 9), sought("NEW"), at(9)),
        on_disk("new")
    );
    // The next query reveals changes by others.
    assert_eq!(
        cache.find_seen(key, &seen(8), sought("X"), at(9)),
        Known::Unlisted
    );
    assert_eq!(
        cache.find_seen(key, &seen(9), sought("X"), at(12)),
        Known::Unlisted
    );
}

#[test]
fn names_that_fold_alike_and_limits() {
    let cache = NameCache::default();
    let begun = cache.begin_listing();
    cache.listed(
        begun,
        (&stat(1, 5), &stat(1, 5)),
        entries(&["a", "A", "a"]),
        at(9),
    );
    let key = stat(1, 5).key;
    assert!(cache.begin(key, &seen(5)));
    cache.end(key, Some(&stat(1, 5)), &[Change::Remove(b"a")], at(9));
    assert_eq!(cache.find(&stat(1, 5), sought("A"), at(9)), on_disk("A"));
    for ino in 2..600 {
        let same = (&stat(ino, 5), &stat(ino, 5));
        cache.listed(cache.begin_listing(), same, entries(&["x"]), at(9));
    }
    assert_eq!(lock(&cache.0).directories.len(), DIRECTORIES_MAX);
    let each = entries(&["x"]).bytes();
    assert_eq!(lock(&cache.0).bytes, DIRECTORIES_MAX * each);
    assert!(!cache.knows(key));
}

#[test]
fn long_names_need_more_of_the_memory() {
    let long = |at: u64| format!("{at:0255}");
    let one = |at: u64| entries(&[&long(at)]);
    let each = one(1).bytes();
    assert!(each > 2 * 255 && each > 2 * entries(&["x"]).bytes());
    let cache = NameCache::default();
    // Only two names more have room.
    lock(&cache.0).bytes = BYTES_MAX - 2 * each;
    let known = |ino: u64| cache.knows(stat(ino, 5).key);
    for ino in 1..=3 {
        let same = (&stat(ino, 5), &stat(ino, 5));
        cache.listed(cache.begin_listing(), same, one(ino), at(9));
    }
    assert_eq!([1, 2, 3].map(known), [false, true, true], "the oldest goes");
    assert_eq!(lock(&cache.0).bytes, BYTES_MAX);
    // The server's own changes count too.
    let own = |change: Change<'_>| {
        assert!(cache.begin(stat(3, 5).key, &seen(5)));
        cache.end(stat(3, 5).key, Some(&stat(3, 5)), &[change], at(9));
        (known(2), lock(&cache.0).bytes)
    };
    let removed = own(Change::Remove(long(3).as_bytes()));
    assert_eq!(removed, (true, BYTES_MAX - each));
    assert_eq!(own(Change::Add(long(3).as_bytes())), (true, BYTES_MAX));
    assert_eq!(own(Change::Add(long(4).as_bytes())), (false, BYTES_MAX));
}

/// The kernel's clock has not ticked: only the count of our own changes shows the difference.
#[test]
fn a_change_of_ours_beside_a_listing_is_seen_whatever_the_clock_says() {
    let cache = NameCache::default();
    let same = stat(1, 5);
    let begun = cache.begin_listing();
    cache.end(same.key, Some(&same), &[Change::Add(b"new")], at(5));
    cache.listed(begun, (&same, &same), entries(&["old"]), at(5));
    assert_eq!(cache.find(&same, sought("new"), at(5)), Known::Unlisted);
    // A listing that began after the change includes it; a change of another directory does not matter.
    let begun = cache.begin_listing();
    cache.end(
        stat(2, 5).key,
        Some(&stat(2, 5)),
        &[Change::Add(b"x")],
        at(5),
    );
    cache.listed(begun, (&same, &same), entries(&["old", "new"]), at(5));
    assert_ne!(cache.find(&same, sought("new"), at(5)), Known::Unlisted);
    assert_eq!(cache.find(&same, sought("none"), at(5)), Known::Absent);
}

#[test]
fn short_names_that_no_name_has_are_known_as_absent() {
    let cache = NameCache::default();
    let begun = cache.begin_listing();
    let names = entries(&["a long name", "short"]);
    cache.listed(begun, (&stat(1, 5), &stat(1, 5)), names, at(9));
    let find = |short: &str| {
        let code = Code::in_short(short);
        assert!(code.is_some(), "{short}");
        let folded = short;
        cache.find(&stat(1, 5), Sought { folded, code }, at(9))
    };
    let short = |long: &str| crate::posix::short_name::of_long(long).unwrap();
    let (first, second) = (short("a long name"), short("another long name"));
    assert_eq!(find(&first), Known::Short);
    assert_eq!(find(&second), Known::Absent);
    let key = stat(1, 5).key;
    assert!(cache.begin(key, &seen(5)));
    let changes = [
        Change::Add(b"another long name"),
        Change::Remove(b"a long name"),
    ];
    cache.end(key, Some(&stat(1, 5)), &changes, at(9));
    assert_eq!(find(&first), Known::Absent);
    assert_eq!(find(&second), Known::Short);
}

#[test]
fn what_is_forgotten_waits_to_be_dropped() {
    let cache = NameCache::default();
    let same = (&stat(1, 5), &stat(1, 5));
    cache.listed(cache.begin_listing(), same, entries(&["a"]), at(9));
    assert!(cache.take_forgotten().is_empty());
    assert_eq!(cache.find(&stat(1, 6), sought("A"), at(9)), Known::Unlisted);
    assert_eq!(cache.take_forgotten().len(), 1);
    let moved = (&stat(1, 5), &stat(1, 6));
    cache.listed(cache.begin_listing(), moved, entries(&["a"]), at(9));
    assert_eq!(cache.take_forgotten().len(), 1);
}
