//! Tests of the index of paths, and of moves of names.

use std::{ptr, sync::Arc};

use super::super::{
    OpenRequest, Remove, ShareId,
    tests::{READ, Rig, key, link},
};
use super::*;
use crate::memory::Memory;

fn path(share: u32, text: &str) -> SharePath {
    let names = text.split('\\').filter(|name| !name.is_empty());
    SharePath::new(ShareId(share), names)
}

fn place(ino: u64) -> Place {
    let key = FileKey {
        ino,
        ..FileKey::default()
    };
    Place { key, stream: None }
}

/// The opens below a directory.
fn below(paths: &Paths, text: &str) -> Vec<u64> {
    let directory = path(0, text);
    let found = paths.below(&directory, &directory.key(OpenId(u64::MAX)), usize::MAX);
    found.into_iter().map(|((_, _, open), _)| open.0).collect()
}

#[test]
fn below_is_by_component_and_without_case() {
    let mut paths = Paths::default();
    for (id, share, text) in [
        (1, 0, "a"),
        (2, 0, "A\\x"),
        (3, 0, "a\\b\\C"),
        (4, 0, "ab\\x"),
        (5, 0, "a!\\x"),
        (6, 1, "a\\x"),
    ] {
        paths.insert(OpenId(id), path(share, text), place(id));
    }
    let below = |text| below(&paths, text);
    assert_eq!(below("A"), [3, 2]);
    assert_eq!(below("a\\B"), [3]);
    assert_eq!(below("a\\b\\c"), [0u64; 0]);
    assert_eq!(paths.at(&path(0, "A")), [OpenId(1)]);
    assert_eq!(paths.at(&path(0, "a\\X")), [OpenId(2)]);
    assert!(paths.at(&path(0, "a\\b")).is_empty());
    let mut all = below("");
    all.sort_unstable();
    assert_eq!(all, [1, 2, 3, 4, 5]);
}

#[test]
fn opens_of_a_renamed_object_share_its_path() {
    let mut paths = Paths::default();
    for id in 1..=2 {
        paths.insert(OpenId(id), path(0, "f"), place(1));
    }
    let memory = Memory::new(1 << 20);
    let held = memory.account([10, 0, 0, 1].into()).keep(4096);
    let to = path(0, "deep\\g").charged(held.map(Arc::new));
    paths.rename(place(1).key, &path(0, "f"), &to);
    drop(to);
    let [one, two] = [1, 2].map(|id| paths.path_of(OpenId(id)).unwrap());
    assert_eq!(one.text(), "deep\\g");
    assert!(ptr::eq(one.names(), two.names()) && ptr::eq(one.folded(), two.folded()));
    drop((one, two));
    // The path is in memory, and so in the budget, as long as any open has it.
    paths.remove(OpenId(1));
    assert_eq!(memory.figures().used, 4096);
    paths.remove(OpenId(2));
    assert_eq!(memory.figures().used, 0);
}

#[test]
fn renames_move_everything_below_and_keep_the_case_of_the_rest() {
    let mut paths = Paths::default();
    paths.insert(OpenId(1), path(0, "Old"), place(1));
    paths.insert(OpenId(2), path(0, "Old\\Sub\\File"), place(2));
    paths.insert(OpenId(3), path(0, "Older"), place(3));
    paths.insert(OpenId(4), path(0, "old"), place(4));
    paths.rename(place(1).key, &path(0, "OLD"), &path(0, "up\\New"));
    let text = |id| paths.path_of(OpenId(id)).unwrap().text();
    assert_eq!(text(1), "up\\New");
    assert_eq!(text(2), "up\\New\\Sub\\File");
    assert_eq!(text(3), "Older");
    assert_eq!(text(4), "old", "another one came there");
    assert_eq!(below(&paths, "UP").len(), 2);
    assert!(below(&paths, "old").is_empty());
    paths.expect(OpenId(9), path(0, "up\\new\\Other"));
    paths.expect(OpenId(8), path(0, "up\\new"));
    paths.rename(place(1).key, &path(0, "Up\\New"), &path(0, "Down"));
    assert_eq!(paths.coming(OpenId(9)).unwrap().text(), "Down\\Other");
    assert_eq!(paths.coming(OpenId(8)).unwrap().text(), "up\\new");
    assert!(paths.remove(OpenId(2)).is_some());
    assert!(paths.remove(OpenId(2)).is_none());
    assert_eq!(paths.by_path.len(), paths.by_open.len());
}

/// The folder of share 1 is `\in` in share 0.
#[test]
fn opens_through_every_share_that_shows_both_names_follow_a_rename() {
    let rig = Rig::new();
    (rig.files).set_same_folders(vec![(path(0, "in"), path(1, ""))]);
    let at = |share, text| OpenRequest {
        path: path(share, text),
        link: link(0, "F"),
        ..rig.request(1, READ)
    };
    let (outer, inner) = (at(0, "in\\F"), at(1, "F"));
    rig.open(&outer);
    rig.open(&inner);
    let renamed = |from: SharePath, to: SharePath, links: [(u64, &str); 2]| {
        let [old, new] = links.map(|(parent, name)| link(parent, name));
        rig.files.renamed(key(1), (&from, &old), (&to, &new));
        [&outer, &inner].map(|open| rig.files.path_of(open.open).unwrap().text())
    };
    let paths = renamed(path(1, "f"), path(1, "d\\G"), [(0, "F"), (2, "G")]);
    assert_eq!(paths, ["in\\d\\G", "d\\G"]);
    let paths = renamed(path(0, "in\\d\\g"), path(0, "in\\H"), [(2, "G"), (0, "H")]);
    assert_eq!(paths, ["in\\H", "H"]);
    // Share 1 does not show the new name.
    let paths = renamed(path(0, "in\\h"), path(0, "out"), [(0, "H"), (3, "OUT")]);
    assert_eq!(paths, ["out", "H"]);
    let left = rig.files.link_of(&inner.place, inner.open);
    assert_eq!(left, Some(link(3, "OUT")));
    // Now it does again.
    let paths = renamed(path(0, "out"), path(0, "in\\e\\I"), [(3, "OUT"), (4, "I")]);
    assert_eq!(paths, ["in\\e\\I", "e\\I"]);
}

/// In share 0, `\s` is a symbolic link to `\d`. It is not known that share 1 is on the folder of share 0.
#[test]
fn opens_by_other_paths_follow_a_rename_within_a_directory() {
    let rig = Rig::new();
    let at = |share, text| OpenRequest {
        path: path(share, text),
        link: link(9, "F"),
        ..rig.request(1, READ)
    };
    let opens = [at(0, "d\\F"), at(0, "s\\f"), at(1, "d\\f")];
    for open in &opens {
        rig.open(open);
    }
    let renamed = |from: (&str, u64, &str), to: (&str, u64, &str)| {
        let [from, to] = [from, to].map(|(at, parent, name)| (path(0, at), link(parent, name)));
        rig.files
            .renamed(key(1), (&from.0, &from.1), (&to.0, &to.1));
        opens
            .each_ref()
            .map(|open| rig.files.path_of(open.open).unwrap().text())
    };
    let paths = renamed(("d\\f", 9, "F"), ("d\\New", 9, "NEW"));
    assert_eq!(paths, ["d\\New", "s\\New", "d\\New"]);
    let paths = renamed(("d\\new", 9, "NEW"), ("out", 8, "OUT"));
    assert_eq!(paths, ["out", "s\\New", "d\\New"]);
    let paths = renamed(("out", 8, "OUT"), ("Away", 8, "AWAY"));
    assert_eq!(
        paths,
        ["Away", "s\\New", "d\\New"],
        "their directory is another one"
    );
}

/// The folder of share 1 is `\d\in` in share 0.
#[test]
fn opens_are_below_a_directory_through_every_share_that_shows_them() {
    let rig = Rig::new();
    (rig.files).set_same_folders(vec![(path(0, "d\\in"), path(1, ""))]);
    for (share, text) in [(1, "a\\F"), (1, ""), (0, "d\\in\\c\\G")] {
        rig.open(&OpenRequest {
            path: path(share, text),
            ..rig.request(1, READ)
        });
    }
    let below = |share, text| {
        let mut below = rig.files.opens_below(&path(share, text));
        let mut count = 0;
        while let Some(portion) = below.portion(&rig.files) {
            count += portion.len();
        }
        count
    };
    assert_eq!(below(0, "d"), 3);
    assert_eq!(below(0, "d\\in"), 2, "its own open is not below it");
    assert_eq!((below(0, "d\\in\\a"), below(1, "a")), (1, 1));
    assert_eq!((below(0, "d\\in\\c"), below(1, "c")), (1, 1));
    assert_eq!((below(0, "d\\other"), below(1, "other")), (0, 0));
}

/// The folder of share 1 is `\d` in share 0.
#[test]
fn what_has_left_a_share_is_below_none_of_its_directories() {
    let rig = Rig::new();
    (rig.files).set_same_folders(vec![(path(0, "d"), path(1, ""))]);
    let open = OpenRequest {
        path: path(1, "a\\F"),
        link: link(2, "F"),
        ..rig.request(1, READ)
    };
    rig.open(&open);
    let below = |share, text| {
        let mut below = rig.files.opens_below(&path(share, text));
        below.portion(&rig.files).unwrap().len()
            + below.portion(&rig.files).map_or(0, |it| it.len())
    };
    assert_eq!((below(1, "a"), below(0, "d\\a")), (1, 1));
    let renamed = |from: &str, to: &str, links: [(u64, &str); 2]| {
        let [old, new] = links.map(|(parent, name)| link(parent, name));
        (rig.files).renamed(key(1), (&path(0, from), &old), (&path(0, to), &new));
    };
    renamed("d\\a\\f", "out", [(2, "F"), (9, "OUT")]);
    assert_eq!((below(1, "a"), below(0, "d\\a")), (0, 0));
    assert_eq!(rig.files.path_of(open.open).unwrap().text(), "a\\F");
    // The directory that it was in gets another name, and the file comes back to the old one's place.
    (rig.files).renamed(
        key(2),
        (&path(1, "a"), &link(3, "A")),
        (&path(1, "b"), &link(3, "B")),
    );
    assert_eq!(rig.files.path_of(open.open).unwrap().text(), "a\\F");
    renamed("out", "d\\b\\g", [(9, "OUT"), (2, "G")]);
    assert_eq!((below(1, "b"), below(0, "d\\b"), below(1, "a")), (1, 1, 0));
    assert_eq!(rig.files.path_of(open.open).unwrap().text(), "b\\g");
    let _ = rig.close(&open);
    assert!(rig.files.is_empty());
}

#[test]
fn a_renamed_stream_is_found_by_its_new_name() {
    let mut paths = Paths::default();
    let stream = |name: &str| Place {
        stream: Some(name.into()),
        ..place(1)
    };
    paths.insert(OpenId(1), path(0, "d\\f"), stream("a"));
    paths.set_place(OpenId(1), stream("b"));
    paths.set_place(OpenId(2), stream("c"));
    assert_eq!(
        paths.remove(OpenId(1)),
        Some((path(0, "d\\f"), stream("b")))
    );
    assert!(paths.is_empty());
}

#[test]
fn what_is_leaving_is_below_and_moves_along_and_is_no_open() {
    let mut paths = Paths::default();
    paths.insert(OpenId(1), path(0, "Old\\File"), place(1));
    paths.leave(OpenId(1));
    paths.leave(OpenId(2));
    assert_eq!(paths.path_of(OpenId(1)), None);
    assert!(paths.at(&path(0, "old\\file")).is_empty());
    assert_eq!(below(&paths, "old").len(), 1);
    paths.rename(place(9).key, &path(0, "old"), &path(0, "New"));
    assert_eq!(paths.path_of(OpenId(1)), None);
    assert_eq!(paths.leaving(OpenId(1)).unwrap().text(), "New\\File");
    assert_eq!(paths.leaving(OpenId(2)), None);
    assert!(paths.remove(OpenId(1)).is_some());
    assert!(paths.is_empty());
}

#[test]
fn who_looked_before_a_change_looks_again() {
    let rig = Rig::new();
    let request = rig.request(1, READ);
    let before = rig.files.look();
    assert!(!rig.files.has_moved(key(1), before));
    rig.open(&request);
    assert!(!rig.files.has_moved(key(1), before));
    rig.files
        .removed(&request.place, &Remove::Link(link(0, "1")), None);
    assert!(rig.files.has_moved(key(1), before));
    assert!(!rig.files.has_moved(key(2), before), "another inode");
    assert!(!rig.files.has_moved(key(1), rig.files.look()));
    let before = rig.files.look();
    let to = (&super::super::tests::path("2"), &link(0, "2"));
    rig.files
        .renamed(key(1), (&request.path, &request.link), to);
    assert!(rig.files.has_moved(key(1), before));
    assert!(!rig.files.has_directory_moved(before));
    rig.files.directory_moved();
    assert!(rig.files.has_directory_moved(before));
    assert!(rig.files.has_moved(key(2), before), "everything below");
}
