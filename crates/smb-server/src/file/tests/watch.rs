//! Tests of CHANGE_NOTIFY: which watchers a change reaches, queues, buffers, ends.

use smb_wire::msg::NotifyFilter;

use super::*;
use crate::file::watch::{TREES_PER_USER_MAX, WATCHERS_PER_USER_MAX};

const NAMES: NotifyFilter = NotifyFilter(3);

fn change(action: u32, name: &str) -> Change {
    Change {
        action,
        name: name.into(),
    }
}

fn reported(action: u32, at: &str) -> Reported {
    Reported {
        path: path(at),
        parent: None,
        stream: None,
        action,
        filter: NotifyFilter::FILE_NAME,
    }
}

/// A directory `\d` (or another) that is open.
fn directory(rig: &Rig, at: &str) -> OpenRequest {
    let request = OpenRequest {
        directory: true,
        path: path(at),
        ..rig.request(1, READ | DELETE)
    };
    rig.open(&request);
    request
}

fn watch(rig: &Rig, on: &OpenRequest, tree: bool, buffer: usize) -> (WaiterId, Watching) {
    let waiter = WaiterId(rig.number());
    let watching = rig.files.watch(&WatchRequest {
        open: on.open,
        place: on.place.clone(),
        filter: NAMES,
        tree,
        buffer,
        waiter,
        turn: Turn::Last,
        account: rig.account(),
        user: CountedUser::default(),
    });
    (waiter, watching)
}

fn changes(waiter: WaiterId, changes: &[Change]) -> Wake {
    Wake {
        waiter,
        outcome: Outcome::Changes(changes.to_vec()),
    }
}

#[test]
fn changes_reach_the_parent_and_the_trees_above() {
    let rig = Rig::new();
    let flat = directory(&rig, "d");
    let tree = directory(&rig, "");
    let (flat_waiter, watching) = watch(&rig, &flat, false, 1000);
    assert_eq!(watching, Watching::Pending);
    let (tree_waiter, _) = watch(&rig, &tree, true, 1000);
    let deep = rig.files.changed(&[reported(Change::ADDED, "D\\Sub\\x")]);
    assert_eq!(
        deep.wakes,
        [changes(tree_waiter, &[change(1, "D\\Sub\\x")])]
    );
    assert!(rig.files.decided(tree.open, tree_waiter).is_empty());
    let near = rig.files.changed(&[reported(Change::REMOVED, "d\\y")]);
    assert_eq!(near.wakes, [changes(flat_waiter, &[change(2, "y")])]);
    // Changes that happened meanwhile wait in the queue; the directory itself is not one of its entries.
    assert!(
        rig.files
            .changed(&[reported(Change::MODIFIED, "d")])
            .is_empty()
    );
    let (_, watching) = watch(&rig, &tree, false, 1000);
    let queued = [change(2, "d\\y"), change(3, "d")];
    assert_eq!(watching, Watching::Done(Outcome::Changes(queued.to_vec())));
    let (_, watching) = watch(&rig, &flat, false, 1000);
    assert_eq!(watching, Watching::Pending);
}

/// Changes that wait for a client are charged to the server's budget. If that is full they are dropped, and the client
/// must list the directory again.
#[test]
fn without_memory_the_client_looks_for_itself() {
    let rig = Rig::new();
    let on = directory(&rig, "d");
    let memory = Memory::new(16 << 10);
    let request = |waiter| WatchRequest {
        open: on.open,
        place: on.place.clone(),
        filter: NAMES,
        tree: false,
        buffer: 65_536,
        waiter,
        turn: Turn::Last,
        account: memory.account(std::net::Ipv4Addr::LOCALHOST.into()),
        user: CountedUser::default(),
    };
    let first = WaiterId(rig.number());
    assert_eq!(rig.files.watch(&request(first)), Watching::Pending);
    let change = |number: u32| reported(Change::ADDED, &format!("d\\{number:0200}"));
    assert_eq!(rig.files.changed(&[change(0)]).wakes.len(), 1);
    for number in 1..=10 {
        assert!(rig.files.changed(&[change(number)]).is_empty());
    }
    let held = memory.figures().used;
    assert!(held > 1_000 && held <= 4_096, "{held}");
    for number in 11..=100 {
        assert!(rig.files.changed(&[change(number)]).is_empty());
    }
    assert_eq!(memory.figures().used, 0);
    let refused = rig.files.watch(&request(WaiterId(rig.number())));
    let status = Status::NOTIFY_ENUM_DIR;
    assert_eq!(refused, Watching::Done(Outcome::Failed(status)));
}

#[test]
fn the_filter_decides_and_streams_are_named() {
    let rig = Rig::new();
    let on = directory(&rig, "d");
    let (waiter, _) = watch(&rig, &on, false, 1000);
    let write = Reported {
        filter: NotifyFilter::LAST_WRITE,
        ..reported(Change::MODIFIED, "d\\x")
    };
    assert!(rig.files.changed(&[write]).is_empty());
    let stream = Reported {
        stream: Some("S".into()),
        ..reported(Change::ADDED_STREAM, "d\\x")
    };
    let effects = rig.files.changed(&[stream]);
    assert_eq!(effects.wakes, [changes(waiter, &[change(6, "x:S")])]);
}

#[test]
fn the_two_names_of_a_rename_travel_together() {
    let rig = Rig::new();
    let on = directory(&rig, "d");
    let (first, _) = watch(&rig, &on, false, 1000);
    let (second, _) = watch(&rig, &on, false, 1000);
    let rename = [
        reported(Change::RENAMED_OLD_NAME, "d\\a"),
        reported(Change::RENAMED_NEW_NAME, "d\\b"),
    ];
    let effects = rig.files.changed(&rename);
    assert_eq!(
        effects.wakes,
        [changes(first, &[change(4, "a"), change(5, "b")])]
    );
    let effects = rig.files.changed(&[reported(Change::ADDED, "d\\c")]);
    assert_eq!(effects.wakes, [changes(second, &[change(1, "c")])]);
}

#[test]
fn too_much_for_buffer_or_queue_is_to_be_listed_anew() {
    let enumerate = Outcome::Failed(Status::NOTIFY_ENUM_DIR);
    let rig = Rig::new();
    let on = directory(&rig, "d");
    // Two entries of 14 bytes take 16 + 14; queued, so that the second request's buffer counts.
    let two = [
        reported(Change::ADDED, "d\\a"),
        reported(Change::ADDED, "d\\b"),
    ];
    for (buffer, fits) in [(30, true), (29, false)] {
        let (first, _) = watch(&rig, &on, false, 100);
        assert!(rig.files.cancel_watch(on.open, first));
        assert!(!rig.files.cancel_watch(on.open, first));
        assert!(rig.files.changed(&two).is_empty());
        let (_, watching) = watch(&rig, &on, false, buffer);
        let both = Outcome::Changes(vec![change(1, "a"), change(1, "b")]);
        assert_eq!(
            watching,
            Watching::Done(if fits { both } else { enumerate.clone() })
        );
    }
    // More changes than the first buffer holds overflow the queue, once.
    for n in 0..8 {
        assert!(
            rig.files
                .changed(&[reported(Change::ADDED, &format!("d\\{n}"))])
                .is_empty()
        );
    }
    assert_eq!(
        watch(&rig, &on, false, 9999).1,
        Watching::Done(enumerate.clone())
    );
    assert_eq!(watch(&rig, &on, false, 9999).1, Watching::Pending);
    // Length 0 asks only whether something changed.
    let other = directory(&rig, "e");
    let (waiter, _) = watch(&rig, &other, false, 0);
    let effects = rig.files.changed(&[reported(Change::ADDED, "e\\x")]);
    assert_eq!(
        effects.wakes,
        [Wake {
            waiter,
            outcome: enumerate
        }]
    );
}

#[test]
fn repeated_modifications_are_one() {
    let rig = Rig::new();
    let on = directory(&rig, "d");
    let (waiter, _) = watch(&rig, &on, false, 1000);
    assert!(rig.files.cancel_watch(on.open, waiter));
    let modified = reported(Change::MODIFIED, "d\\x");
    let _ = rig.files.changed(&[modified.clone(), modified.clone()]);
    let _ = rig
        .files
        .changed(&[reported(Change::REMOVED, "d\\x"), modified]);
    let merged = [change(3, "x"), change(2, "x"), change(3, "x")];
    let (_, watching) = watch(&rig, &on, false, 1000);
    assert_eq!(watching, Watching::Done(Outcome::Changes(merged.to_vec())));
}

/// The name is made once for the watchers of a directory.
#[test]
fn each_watcher_gets_the_name_from_where_it_is() {
    let rig = Rig::new();
    let all = ["", "", "d", "d\\sub"].map(|at| directory(&rig, at));
    for on in &all {
        let (waiter, watching) = watch(&rig, on, true, 1000);
        assert_eq!(watching, Watching::Pending);
        assert!(rig.files.cancel_watch(on.open, waiter));
    }
    let report = || reported(Change::MODIFIED, "d\\sub\\x");
    assert!(rig.files.changed(&[report(), report()]).is_empty());
    assert!(rig.files.changed(&[report()]).is_empty());
    let names = ["d\\sub\\x", "d\\sub\\x", "sub\\x", "x"];
    for (on, name) in all.iter().zip(names) {
        let news = Outcome::Changes(vec![change(Change::MODIFIED, name)]);
        assert_eq!(watch(&rig, on, true, 1000).1, Watching::Done(news));
    }
}

#[test]
fn closing_ends_what_is_parked() {
    let rig = Rig::new();
    let on = directory(&rig, "d");
    let (first, _) = watch(&rig, &on, false, 10);
    let (second, _) = watch(&rig, &on, false, 10);
    let closed = rig.close(&on);
    let ended = |waiter| Wake {
        waiter,
        outcome: Outcome::Failed(Status::NOTIFY_CLEANUP),
    };
    assert_eq!(closed.effects.wakes, [ended(first), ended(second)]);
    assert!(
        rig.files
            .changed(&[reported(Change::ADDED, "d\\x")])
            .is_empty()
    );
    assert!(rig.files.is_empty());
}

#[test]
fn a_directory_marked_deleted_has_no_news() {
    let rig = Rig::new();
    let on = directory(&rig, "d");
    let other = directory(&rig, "d");
    let (waiter, _) = watch(&rig, &other, false, 1000);
    let effects = rig
        .files
        .set_delete_pending(&on.place, on.open, false, ME)
        .unwrap();
    let pending = Outcome::Failed(Status::DELETE_PENDING);
    assert_eq!(
        effects.wakes,
        [Wake {
            waiter,
            outcome: pending.clone()
        }]
    );
    // The handle that set the mark is refused at once; another one may continue.
    assert_eq!(
        watch(&rig, &on, false, 10).1,
        Watching::Done(pending.clone())
    );
    assert_eq!(watch(&rig, &other, false, 10).1, Watching::Pending);
    let doomed = OpenRequest {
        delete_on_close: true,
        directory: true,
        ..rig.request(2, DELETE)
    };
    rig.open(&doomed);
    assert_eq!(watch(&rig, &doomed, false, 10).1, Watching::Done(pending));
}

#[test]
fn a_directory_that_the_host_removed_has_no_news() {
    let rig = Rig::new();
    let on = directory(&rig, "d");
    let (waiter, _) = watch(&rig, &on, false, 1000);
    let touched = |touched| rig.files.host_touched(on.place.key, touched).wakes;
    assert_eq!(touched(Touched::Name), []);
    let outcome = Outcome::Failed(Status::DELETE_PENDING);
    assert_eq!(touched(Touched::Gone), [Wake { waiter, outcome }]);
    assert_eq!(touched(Touched::Gone), []);
}

#[test]
fn delete_on_close_notifies_those_who_wait_when_it_marks() {
    let rig = Rig::new();
    let on = directory(&rig, "d");
    let (waiter, _) = watch(&rig, &on, false, 1000);
    let doomed = OpenRequest {
        delete_on_close: true,
        ..rig.request(1, DELETE)
    };
    rig.open(&doomed);
    let closed = rig.close(&doomed);
    assert_eq!(closed.remove, None);
    let outcome = Outcome::Failed(Status::DELETE_PENDING);
    assert_eq!(closed.effects.wakes, [Wake { waiter, outcome }]);
    // A disposition that is taken back does not bring the news back.
    let rig = Rig::new();
    let set = directory(&rig, "e");
    rig.mark_deleted(&set);
    assert_eq!(rig.files.clear_delete_pending(&set.place, set.open), Ok(()));
    let refused = Watching::Done(Outcome::Failed(Status::DELETE_PENDING));
    assert_eq!(watch(&rig, &set, false, 10).1, refused);
}

#[test]
fn who_was_served_in_vain_is_still_the_oldest() {
    let rig = Rig::new();
    let on = directory(&rig, "d");
    let (first, _) = watch(&rig, &on, true, 1000);
    let (second, _) = watch(&rig, &on, true, 1000);
    let woken =
        |effects: Effects| -> Vec<_> { effects.wakes.iter().map(|wake| wake.waiter).collect() };
    let added = |name: &str| woken(rig.files.changed(&[reported(Change::ADDED, name)]));
    assert_eq!(added("d\\secret\\x"), [first]);
    // While it is decided whether the first may see it, the second waits.
    assert_eq!(added("d\\secret\\y"), []);
    let again = WaiterId(rig.number());
    let request = |waiter, turn| WatchRequest {
        open: on.open,
        place: on.place.clone(),
        filter: NAMES,
        tree: true,
        buffer: 1000,
        waiter,
        turn,
        account: rig.account(),
        user: CountedUser::default(),
    };
    let served = rig.files.watch(&request(again, Turn::Again(first)));
    assert!(matches!(served, Watching::Done(Outcome::Changes(_))));
    let once_more = WaiterId(rig.number());
    let parked = rig.files.watch(&request(once_more, Turn::Again(again)));
    assert_eq!(parked, Watching::Pending);
    // A request that is decided twice delays nobody and releases nobody.
    assert_eq!(woken(rig.files.decided(on.open, first)), []);
    assert_eq!(added("d\\open\\z"), [once_more]);
    assert_eq!(added("d\\open\\w"), []);
    assert_eq!(woken(rig.files.decided(on.open, once_more)), [second]);
}

#[test]
fn watchers_move_with_their_directory() {
    let rig = Rig::new();
    let [flat, tree] = [("a\\d", false), ("a", true)].map(|(at, tree)| {
        let on = directory(&rig, at);
        watch(&rig, &on, tree, 1000).0
    });
    let (from, to) = (path("a"), path("b"));
    rig.files
        .renamed(key(1), (&from, &link(0, "A")), (&to, &link(0, "B")));
    let added = |at: &str| rig.files.changed(&[reported(Change::ADDED, at)]).wakes;
    assert_eq!(added("a\\d\\x"), []);
    let mut wakes = added("b\\D\\x");
    wakes.sort_by_key(|wake| wake.waiter);
    let of_both = [(flat, "x"), (tree, "D\\x")].map(|(to, name)| changes(to, &[change(1, name)]));
    assert_eq!(wakes, of_both);
}

/// The directory may be moved after the request came and before its watcher is made.
#[test]
fn a_new_watcher_is_where_its_directory_is_now() {
    let rig = Rig::new();
    let on = directory(&rig, "a\\d");
    let (from, to) = (path("a"), path("b"));
    rig.files
        .renamed(key(9), (&from, &link(0, "A")), (&to, &link(0, "B")));
    let (waiter, _) = watch(&rig, &on, false, 1000);
    let effects = rig.files.changed(&[reported(Change::ADDED, "b\\d\\x")]);
    assert_eq!(effects.wakes, [changes(waiter, &[change(1, "x")])]);
}

/// [MS-FSA] 2.1.4.1 compares the directories, not their paths.
#[test]
fn a_watcher_by_another_path_is_reached_once() {
    let rig = Rig::new();
    let on = directory(&rig, "d");
    let (waiter, _) = watch(&rig, &on, false, 1000);
    let elsewhere = Reported {
        path: SharePath::new(ShareId(1), ["up", "d", "x"]),
        parent: Some(on.place.key),
        ..reported(Change::ADDED, "")
    };
    let effects = rig.files.changed(&[elsewhere]);
    assert_eq!(effects.wakes, [changes(waiter, &[change(1, "x")])]);
    let here = Reported {
        parent: Some(on.place.key),
        ..reported(Change::ADDED, "d\\y")
    };
    assert!(rig.files.changed(&[here]).is_empty());
    let (_, watching) = watch(&rig, &on, false, 1000);
    let once = Outcome::Changes(vec![change(1, "y")]);
    assert_eq!(watching, Watching::Done(once));
}

/// A path in share 1.
fn elsewhere(text: &str) -> SharePath {
    let names = text.split('\\').filter(|name| !name.is_empty());
    SharePath::new(ShareId(1), names)
}

/// The folder of share 1 is `\up\d` in share 0.
#[test]
fn a_tree_is_watched_through_every_share_that_shows_it() {
    let rig = Rig::new();
    let same = (path("up\\d"), elsewhere(""));
    rig.files.set_same_folders(vec![same]);
    let above = directory(&rig, "up");
    let below = OpenRequest {
        directory: true,
        path: elsewhere(""),
        ..rig.request(2, READ | DELETE)
    };
    rig.open(&below);
    let (waiter, _) = watch(&rig, &above, true, 1000);
    let deep = Reported {
        path: elsewhere("Sub\\x"),
        parent: Some(key(99)),
        ..reported(Change::ADDED, "")
    };
    let effects = rig.files.changed(&[deep]);
    let seen = [change(1, "d\\Sub\\x")];
    assert_eq!(effects.wakes, [changes(waiter, &seen)]);
    let (waiter, _) = watch(&rig, &below, true, 1000);
    let reports = ["up\\D\\e\\y", "up\\d", "up\\other\\e"].map(|at| Reported {
        parent: Some(key(99)),
        ..reported(Change::REMOVED, at)
    });
    let effects = rig.files.changed(&reports);
    let seen = [change(2, "e\\y")];
    assert_eq!(effects.wakes, [changes(waiter, &seen)]);
}

/// The watchers of a change's own directory are found by that directory's key.
#[test]
fn a_tree_in_another_share_gets_a_change_once() {
    let rig = Rig::new();
    let on = directory(&rig, "d");
    let same = (path("d"), elsewhere(""));
    rig.files.set_same_folders(vec![same]);
    let (waiter, _) = watch(&rig, &on, true, 1000);
    let through = |at: &str, parent| Reported {
        path: elsewhere(at),
        parent: Some(parent),
        ..reported(Change::ADDED, "")
    };
    let effects = rig.files.changed(&[through("x", on.place.key)]);
    assert_eq!(effects.wakes, [changes(waiter, &[change(1, "x")])]);
    assert_eq!(watch(&rig, &on, true, 1000).1, Watching::Pending);
    rig.files.set_same_folders(Vec::new());
    let deep = rig.files.changed(&[through("s\\x", key(99))]);
    assert!(deep.is_empty());
}

#[test]
fn watchers_in_another_share_move_with_their_directory() {
    let rig = Rig::new();
    let same = (path("d"), elsewhere(""));
    rig.files.set_same_folders(vec![same]);
    let on = directory(&rig, "d\\a\\s");
    let (waiter, _) = watch(&rig, &on, true, 1000);
    let (from, to) = (elsewhere("a"), elsewhere("b"));
    rig.files
        .renamed(key(9), (&from, &link(0, "A")), (&to, &link(0, "B")));
    let through = |at: &str| Reported {
        path: elsewhere(at),
        parent: Some(key(99)),
        ..reported(Change::ADDED, "")
    };
    let before = rig.files.changed(&[through("a\\s\\t\\x")]);
    assert!(before.is_empty(), "another directory has this path");
    let effects = rig.files.changed(&[through("b\\s\\t\\x")]);
    assert_eq!(effects.wakes, [changes(waiter, &[change(1, "t\\x")])]);
}

/// Share 0 shows the folder of share 1 as `\in`, and both show that of share 2 as `d` in there.
#[test]
fn folders_of_shares_are_followed_when_another_share_renames_them() {
    let rig = Rig::new();
    let third = || SharePath::new(ShareId(2), [""; 0]);
    rig.files.set_same_folders(vec![
        (path("in"), elsewhere("")),
        (path("in\\d"), third()),
        (elsewhere("d"), third()),
    ]);
    let below = OpenRequest {
        directory: true,
        path: third(),
        ..rig.request(2, READ | DELETE)
    };
    rig.open(&below);
    let through = |at: SharePath| {
        let report = Reported {
            path: at,
            ..reported(Change::ADDED, "")
        };
        rig.files.changed(&[report])
    };
    let renamed = |from: SharePath, to: SharePath| {
        let links = (link(0, "FROM"), link(0, "TO"));
        rig.files
            .renamed(key(9), (&from, &links.0), (&to, &links.1));
    };
    let seen = |at: SharePath| {
        let (waiter, _) = watch(&rig, &below, true, 1000);
        let effects = through(at);
        assert_eq!(effects.wakes, [changes(waiter, &[change(1, "x")])]);
    };
    seen(elsewhere("d\\x"));
    renamed(path("in"), path("new"));
    seen(path("new\\d\\x"));
    seen(elsewhere("d\\x"));
    // Out of what share 1 shows: other directories have the old paths from now on.
    renamed(path("new\\d"), path("out"));
    seen(path("out\\x"));
    let (_, watching) = watch(&rig, &below, true, 1000);
    assert_eq!(watching, Watching::Pending);
    for old in [path("in\\d\\x"), path("new\\d\\x"), elsewhere("d\\x")] {
        assert!(through(old).is_empty());
    }
}

/// Share 0 shows the folder of share 1 as `\in`.
#[test]
fn the_watch_of_a_directory_outside_its_share_gets_no_changes_of_another_at_its_path() {
    let rig = Rig::new();
    (rig.files).set_same_folders(vec![(path("in"), elsewhere(""))]);
    let sub = |text: &str, ino| OpenRequest {
        directory: true,
        path: elsewhere(text),
        link: link(0, "D"),
        ..rig.request(ino, READ | DELETE)
    };
    let (on, below, late) = (sub("d", 2), sub("d\\e", 3), sub("d", 2));
    for open in [&on, &below, &late] {
        rig.open(open);
    }
    let (waiter, _) = watch(&rig, &on, true, 1000);
    assert_eq!(watch(&rig, &below, true, 1000).1, Watching::Pending);
    let renamed = |from: &str, to: &str, links: [(u64, &str); 2]| {
        let [old, new] = links.map(|(parent, name)| link(parent, name));
        (rig.files).renamed(key(2), (&path(from), &old), (&path(to), &new));
    };
    renamed("in\\d", "out", [(0, "D"), (9, "OUT")]);
    // Another directory is there now, and something changes in it.
    assert_eq!(watch(&rig, &late, true, 1000).1, Watching::Pending);
    let deep = |at: SharePath, parent| Reported {
        path: at,
        parent: Some(key(parent)),
        ..reported(Change::ADDED, "")
    };
    for at in ["d\\x\\y", "d\\e\\x\\y", "d\\e\\x"] {
        let reports = [
            deep(elsewhere(at), 77),
            deep(path(&format!("in\\{at}")), 77),
        ];
        assert!(rig.files.changed(&reports).is_empty(), "{at}");
    }
    // Changes in the directories themselves are seen.
    let effects = rig.files.changed(&[deep(path("out\\x"), 2)]);
    assert!(effects.wakes.contains(&changes(waiter, &[change(1, "x")])));
    assert_eq!(effects.wakes.len(), 2);
    // It is shown again.
    renamed("out", "in\\back", [(9, "OUT"), (0, "BACK")]);
    let (waiter, _) = watch(&rig, &on, true, 1000);
    let effects = rig.files.changed(&[deep(elsewhere("back\\x\\y"), 77)]);
    assert_eq!(effects.wakes, [changes(waiter, &[change(1, "x\\y")])]);
    for open in [&on, &below, &late] {
        let _ = rig.close(open);
    }
    assert!(rig.files.is_empty());
}

#[test]
fn a_watch_of_another_directory_at_that_path_stays() {
    let rig = Rig::new();
    let on = directory(&rig, "a");
    let (waiter, _) = watch(&rig, &on, false, 1000);
    // The directory that had this path was moved elsewhere, and its path follows last.
    let (from, to) = (path("a"), path("b"));
    let links = (link(0, "A"), link(0, "B"));
    let other = key(99);
    assert_ne!(other, on.place.key);
    (rig.files).renamed(other, (&from, &links.0), (&to, &links.1));
    assert!(
        rig.files
            .changed(&[reported(Change::ADDED, "b\\x")])
            .is_empty()
    );
    let effects = rig.files.changed(&[reported(Change::ADDED, "a\\x")]);
    assert_eq!(effects.wakes, [changes(waiter, &[change(1, "x")])]);
}

#[test]
fn so_many_requests_park_and_no_more() {
    let rig = Rig::new();
    let on = directory(&rig, "d");
    for _ in 0..crate::file::watch::PARKED_MAX {
        assert_eq!(watch(&rig, &on, false, 10).1, Watching::Pending);
    }
    let refused = Outcome::Failed(Status::INSUFFICIENT_RESOURCES);
    assert_eq!(watch(&rig, &on, false, 10).1, Watching::Done(refused));
}

#[test]
fn a_user_has_so_many_watchers_of_a_directory_and_no_more() {
    let rig = Rig::new();
    let opens: Vec<_> = (0..WATCHERS_PER_USER_MAX)
        .map(|_| directory(&rig, "d"))
        .collect();
    for on in &opens {
        assert_eq!(watch(&rig, on, false, 10).1, Watching::Pending);
    }
    let one_more = directory(&rig, "d");
    let refused = || Watching::Done(Outcome::Failed(Status::INSUFFICIENT_RESOURCES));
    assert_eq!(watch(&rig, &one_more, false, 10).1, refused());
    // An open that has a watcher may ask again, and another user may watch.
    assert_eq!(watch(&rig, &opens[0], false, 10).1, Watching::Pending);
    let other = directory(&rig, "d");
    let of_another = WatchRequest {
        open: other.open,
        place: other.place.clone(),
        filter: NAMES,
        tree: false,
        buffer: 10,
        waiter: WaiterId(rig.number()),
        turn: Turn::Last,
        account: rig.account(),
        user: CountedUser(1),
    };
    assert_eq!(rig.files.watch(&of_another), Watching::Pending);
    let _ = rig.close(&opens[0]);
    assert_eq!(watch(&rig, &one_more, false, 10).1, Watching::Pending);
}

/// The watchers of all directories count together.
#[test]
fn a_user_has_so_many_watchers_of_trees_and_no_more() {
    let rig = Rig::new();
    let open = |ino: u64| {
        let request = OpenRequest {
            directory: true,
            ..rig.request(ino, READ | DELETE)
        };
        rig.open(&request);
        request
    };
    let most = u64::try_from(TREES_PER_USER_MAX).unwrap();
    let opens: Vec<_> = (1..=most).map(open).collect();
    for on in &opens {
        assert_eq!(watch(&rig, on, true, 10).1, Watching::Pending);
    }
    let (one_more, plain) = (open(most + 1), open(most + 2));
    let refused = Watching::Done(Outcome::Failed(Status::INSUFFICIENT_RESOURCES));
    assert_eq!(watch(&rig, &one_more, true, 10).1, refused);
    assert_eq!(watch(&rig, &plain, false, 10).1, Watching::Pending);
    let _ = rig.close(&plain);
    assert_eq!(watch(&rig, &one_more, true, 10).1, refused);
    let _ = rig.close(&opens[0]);
    assert_eq!(watch(&rig, &one_more, true, 10).1, Watching::Pending);
}
