//! Short histories, judged by both judges by the measure of `honor`.

use std::time::Duration;

use durability::Policy;

use crate::judge::{Cut, Judge};
use crate::oracle::Oracle;
use crate::record::{Cell, History, Kind, Moment, Object, Operation, Promise, Value};
use crate::view::{Node, View};

const FILE: Object = 11;
const OTHER: Object = 12;
const DIRECTORY: Object = 13;

/// A record that grows request by request. The device logs an entry before each moment.
#[derive(Default)]
struct Tale {
    history: History,
    now: u64,
}

impl Tale {
    fn moment(&mut self) -> Moment {
        self.now += 1;
        Moment {
            order: self.now,
            at: Duration::from_millis(self.now),
            log: self.now as usize,
        }
    }

    /// A request without an answer that gives names to objects, or takes theirs away.
    fn begin(&mut self, kind: Kind, names: &[(Object, Option<&str>)], promise: Promise) {
        let value = |path: &str| Value::Path(path.to_owned());
        let effect = |(object, path): &(Object, Option<&str>)| {
            (Cell::Name(*object), path.map_or(Value::Gone, value))
        };
        let issued = self.moment();
        self.history.operations.push(Operation {
            kind,
            effects: names.iter().map(effect).collect(),
            promise,
            source: None,
            issued,
            acknowledged: None,
        });
    }

    fn done(&mut self, kind: Kind, names: &[(Object, Option<&str>)], promise: Promise) {
        self.begin(kind, names, promise);
        let answered = self.moment();
        let last = self.history.operations.last_mut();
        last.unwrap().acknowledged = Some(answered);
    }

    fn create(&mut self, object: Object, path: &str) {
        self.done(Kind::Create, &[(object, Some(path))], Promise::Nothing);
        self.history.inodes.insert(object, u64::from(object));
    }

    fn flush(&mut self, object: Object) {
        self.done(Kind::FlushFile, &[], Promise::Object(object));
    }

    /// Whether a promise is broken after a cut now that leaves these objects, on which both judges have to agree.
    fn is_broken(&self, left: &[(&str, Object)]) -> bool {
        let node = |(path, object): &(&str, Object)| {
            let data = (*object != DIRECTORY).then(Vec::new);
            let node = Node {
                inode: Some(u64::from(*object)),
                forks: [data, None, None],
                ..Node::default()
            };
            ((*path).to_owned(), node)
        };
        let view: View = left.iter().map(node).collect();
        let cut = Cut {
            entry: self.now as usize,
            order: self.now,
            at: Duration::from_millis(self.now),
        };
        let promised = Judge::new(&self.history).judge(&view, cut).promised;
        let oracle = Oracle::new(&self.history);
        let broken = oracle.check(&view, cut, None, Policy::Honor, true);
        assert_eq!(
            promised.is_empty(),
            broken.is_empty(),
            "{left:?}: {promised:?} {broken:?}"
        );
        !promised.is_empty()
    }
}

#[test]
fn a_rename_under_way_explains_no_flushed_file_that_is_gone() {
    let mut tale = Tale::default();
    tale.create(FILE, "f");
    tale.flush(FILE);
    tale.begin(Kind::Rename, &[(FILE, Some("g"))], Promise::Nothing);
    assert!(!tale.is_broken(&[("f", FILE)]));
    assert!(!tale.is_broken(&[("g", FILE)]));
    assert!(tale.is_broken(&[]));
    // Nor does one that was answered.
    let mut tale = Tale::default();
    tale.create(FILE, "f");
    tale.flush(FILE);
    tale.done(Kind::Rename, &[(FILE, Some("g"))], Promise::Nothing);
    assert!(!tale.is_broken(&[("f", FILE)]));
    assert!(tale.is_broken(&[]));
}

#[test]
fn nor_does_the_rename_of_a_directory_or_over_another_file() {
    let mut tale = Tale::default();
    tale.done(Kind::Mkdir, &[(DIRECTORY, Some("d"))], Promise::Nothing);
    tale.create(FILE, "d/f");
    tale.flush(FILE);
    let moved = [(DIRECTORY, Some("e")), (FILE, Some("e/f"))];
    tale.begin(Kind::RenameDirectory, &moved, Promise::Nothing);
    assert!(!tale.is_broken(&[("d", DIRECTORY), ("d/f", FILE)]));
    assert!(!tale.is_broken(&[("e", DIRECTORY), ("e/f", FILE)]));
    assert!(tale.is_broken(&[("e", DIRECTORY)]));
    assert!(tale.is_broken(&[]));

    let mut tale = Tale::default();
    tale.create(OTHER, "f");
    tale.create(FILE, "g");
    tale.flush(FILE);
    let moved = [(FILE, Some("f")), (OTHER, None)];
    tale.begin(Kind::Replace, &moved, Promise::Nothing);
    assert!(!tale.is_broken(&[("f", OTHER), ("g", FILE)]));
    assert!(!tale.is_broken(&[("f", FILE)]));
    assert!(tale.is_broken(&[("f", OTHER)]));
    assert!(tale.is_broken(&[]));
}

#[test]
fn a_removal_under_way_explains_a_flushed_file_that_is_gone() {
    let mut tale = Tale::default();
    tale.create(FILE, "f");
    tale.flush(FILE);
    assert!(tale.is_broken(&[]));
    tale.begin(Kind::Delete, &[(FILE, None)], Promise::Nothing);
    assert!(!tale.is_broken(&[("f", FILE)]));
    assert!(!tale.is_broken(&[]));
}

#[test]
fn a_flushed_file_is_replaced_only_by_one_that_is_there() {
    let mut tale = Tale::default();
    tale.create(OTHER, "f");
    tale.flush(OTHER);
    tale.create(FILE, "g");
    let moved = [(FILE, Some("f")), (OTHER, None)];
    tale.begin(Kind::Replace, &moved, Promise::Nothing);
    assert!(!tale.is_broken(&[("f", OTHER)]));
    assert!(!tale.is_broken(&[("f", FILE)]));
    assert!(!tale.is_broken(&[("f", FILE), ("g", FILE)]));
    assert!(tale.is_broken(&[("g", FILE)]));
    assert!(tale.is_broken(&[]));
    // It may have gone on, or be gone itself.
    let mut tale = Tale::default();
    tale.create(OTHER, "f");
    tale.flush(OTHER);
    tale.create(FILE, "g");
    tale.done(Kind::Replace, &moved, Promise::Nothing);
    tale.done(Kind::Rename, &[(FILE, Some("h"))], Promise::Nothing);
    assert!(!tale.is_broken(&[("h", FILE)]));
    tale.begin(Kind::Delete, &[(FILE, None)], Promise::Nothing);
    assert!(!tale.is_broken(&[]));
}
