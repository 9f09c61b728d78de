//! Short histories, judged by both judges by the measure of `honor`.

use std::time::Duration;

use durability::Policy;

use crate::judge::{Cut, Judge};
use crate::oracle::Oracle;
use crate::record::{
    BIG, Cell, Contents, DATA, History, Kind, Moment, Object, Operation, Promise, SMALL, UNIT,
    Value,
};
use crate::view::{Node, View};

const FILE: Object = 11;
const OTHER: Object = 12;
const DIRECTORY: Object = 13;

/// A record that grows request by request. The device logs an entry before each moment.
#[derive(Default)]
struct Tale {
    history: History,
    now: u64,
    /// Served with `flush_times = false`.
    is_cheap: bool,
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

    fn issue(&mut self, kind: Kind, effects: Vec<(Cell, Value)>, promise: Promise) {
        let issued = self.moment();
        self.history.operations.push(Operation {
            kind,
            effects,
            promise,
            source: None,
            issued,
            acknowledged: None,
        });
    }

    fn answer(&mut self) {
        let answered = self.moment();
        let last = self.history.operations.last_mut();
        last.unwrap().acknowledged = Some(answered);
    }

    /// A request without an answer that gives names to objects, or takes theirs away.
    fn begin(&mut self, kind: Kind, names: &[(Object, Option<&str>)], promise: Promise) {
        let value = |path: &str| Value::Path(path.to_owned());
        let effect = |(object, path): &(Object, Option<&str>)| {
            (Cell::Name(*object), path.map_or(Value::Gone, value))
        };
        self.issue(kind, names.iter().map(effect).collect(), promise);
    }

    fn done(&mut self, kind: Kind, names: &[(Object, Option<&str>)], promise: Promise) {
        self.begin(kind, names, promise);
        self.answer();
    }

    /// A request that changes [`FILE`] through an open that writes through, and its answer.
    fn write_through(&mut self, kind: Kind, effects: Vec<(Cell, Value)>) {
        self.issue(kind, effects, Promise::Itself(FILE));
        self.answer();
    }

    fn create(&mut self, object: Object, path: &str) {
        self.done(Kind::Create, &[(object, Some(path))], Promise::Nothing);
        self.history.inodes.insert(object, u64::from(object));
    }

    fn flush(&mut self, object: Object) {
        self.done(Kind::FlushFile, &[], Promise::Object(object));
    }

    /// Whether a promise is broken after a cut now that leaves these objects, empty.
    fn is_broken(&self, left: &[(&str, Object)]) -> bool {
        let left = left.iter();
        self.breaks(left.map(|(path, object)| ((*path).to_owned(), node(*object))))
    }

    /// The same of [`FILE`] as "f", with these contents, time of last write and attributes.
    fn is_broken_as(&self, data: Vec<u8>, written: u64, attributes: u32) -> bool {
        let node = Node {
            forks: [Some(data), None, None],
            attributes,
            written: Some(written),
            ..node(FILE)
        };
        self.breaks([("f".to_owned(), node)])
    }

    /// Both judges have to agree.
    fn breaks(&self, left: impl IntoIterator<Item = (String, Node)>) -> bool {
        let view: View = left.into_iter().collect();
        let cut = Cut {
            entry: self.now as usize,
            order: self.now,
            at: Duration::from_millis(self.now),
        };
        let promised = Judge::new(&self.history, !self.is_cheap)
            .judge(&view, cut)
            .promised;
        let oracle = Oracle::new(&self.history, !self.is_cheap);
        let broken = oracle.check(&view, cut, None, Policy::Honor, true);
        assert_eq!(
            promised.is_empty(),
            broken.is_empty(),
            "{view:?}: {promised:?} {broken:?}"
        );
        !promised.is_empty()
    }
}

fn node(object: Object) -> Node {
    let data = (object != DIRECTORY).then(Vec::new);
    Node {
        inode: Some(u64::from(object)),
        forks: [data, None, None],
        ..Node::default()
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

#[test]
fn a_name_that_is_written_through_is_found() {
    let mut tale = Tale::default();
    tale.done(Kind::Mkdir, &[(DIRECTORY, Some("d"))], Promise::Nothing);
    tale.done(Kind::Create, &[(FILE, Some("d/f"))], Promise::Itself(FILE));
    tale.history.inodes.insert(FILE, u64::from(FILE));
    assert!(!tale.is_broken(&[("d", DIRECTORY), ("d/f", FILE)]));
    assert!(tale.is_broken(&[("d", DIRECTORY)]));
    assert!(tale.is_broken(&[]));

    let mut tale = Tale::default();
    tale.create(FILE, "f");
    tale.done(Kind::Mkdir, &[(DIRECTORY, Some("d"))], Promise::Nothing);
    tale.done(Kind::Rename, &[(FILE, Some("d/g"))], Promise::Itself(FILE));
    assert!(!tale.is_broken(&[("d", DIRECTORY), ("d/g", FILE)]));
    assert!(tale.is_broken(&[("f", FILE)]));
    assert!(tale.is_broken(&[("d", DIRECTORY), ("d/g", FILE), ("f", FILE)]));
    assert!(tale.is_broken(&[("d", DIRECTORY)]));
    assert!(tale.is_broken(&[]));
    // It may have gone on since.
    tale.begin(Kind::Rename, &[(FILE, Some("h"))], Promise::Nothing);
    assert!(!tale.is_broken(&[("d", DIRECTORY), ("h", FILE)]));

    let mut tale = Tale::default();
    tale.create(OTHER, "f");
    tale.flush(OTHER);
    tale.create(FILE, "g");
    let moved = [(FILE, Some("f")), (OTHER, None)];
    tale.done(Kind::Replace, &moved, Promise::Itself(FILE));
    assert!(!tale.is_broken(&[("f", FILE)]));
    assert!(tale.is_broken(&[("f", OTHER), ("g", FILE)]));
    assert!(tale.is_broken(&[("f", FILE), ("g", FILE)]));
    assert!(tale.is_broken(&[("g", FILE)]));
    assert!(tale.is_broken(&[]));
}

#[test]
fn a_directory_that_was_renamed_is_there_whatever_it_holds() {
    let mut tale = Tale::default();
    tale.done(Kind::Mkdir, &[(DIRECTORY, Some("d"))], Promise::Nothing);
    tale.create(FILE, "d/f");
    let moved = [(DIRECTORY, Some("e")), (FILE, Some("e/f"))];
    let promise = Promise::Itself(DIRECTORY);
    tale.done(Kind::RenameDirectory, &moved, promise);
    assert!(!tale.is_broken(&[("e", DIRECTORY), ("e/f", FILE)]));
    assert!(!tale.is_broken(&[("e", DIRECTORY)]));
    assert!(tale.is_broken(&[("d", DIRECTORY), ("d/f", FILE)]));
    assert!(tale.is_broken(&[]));
}

#[test]
fn a_file_whose_removal_is_written_through_is_gone() {
    let mut tale = Tale::default();
    tale.done(Kind::Mkdir, &[(DIRECTORY, Some("d"))], Promise::Nothing);
    tale.create(FILE, "f");
    tale.flush(FILE);
    tale.done(Kind::Rename, &[(FILE, Some("d/g"))], Promise::Nothing);
    assert!(!tale.is_broken(&[("f", FILE)]));
    tale.done(Kind::Delete, &[(FILE, None)], Promise::Itself(FILE));
    assert!(!tale.is_broken(&[("d", DIRECTORY)]));
    assert!(!tale.is_broken(&[]), "the directory was promised to nobody");
    assert!(tale.is_broken(&[("d", DIRECTORY), ("d/g", FILE)]));
    assert!(tale.is_broken(&[("f", FILE)]));
}

#[test]
fn what_is_written_through_is_there_with_its_time_but_for_a_write() {
    let end = (Cell::Size(FILE, DATA), Value::Size(UNIT as u32));
    let at = |time| (Cell::Written(FILE), Value::Written(time));
    let mut tale = Tale::default();
    tale.create(FILE, "f");
    tale.write_through(Kind::SetEof, vec![end, at(50)]);
    let zeros = vec![0; UNIT];
    assert!(!tale.is_broken_as(zeros.clone(), 50, 0));
    assert!(tale.is_broken_as(zeros.clone(), 49, 0));
    assert!(tale.is_broken_as(Vec::new(), 50, 0));
    assert!(tale.is_broken(&[]));

    let attributes = (Cell::Attributes(FILE), Value::Attributes(2));
    tale.write_through(Kind::Attributes, vec![attributes]);
    assert!(!tale.is_broken_as(zeros.clone(), 50, 2));
    assert!(tale.is_broken_as(zeros.clone(), 50, 0));

    let contents = Contents::Fill {
        object: FILE,
        fork: DATA,
        version: 1,
        unit: 0,
    };
    let unit = (Cell::Unit(FILE, DATA, 0), Value::Contents(contents));
    tale.write_through(Kind::WriteThrough, vec![unit, at(60)]);
    let bytes = contents.bytes().to_vec();
    assert!(!tale.is_broken_as(bytes.clone(), 60, 2));
    assert!(!tale.is_broken_as(bytes, 50, 2));
    assert!(tale.is_broken_as(zeros, 60, 2));
}

#[test]
fn without_flush_times_a_flush_covers_size_and_name_alone() {
    let mut tale = Tale {
        is_cheap: true,
        ..Tale::default()
    };
    tale.create(FILE, "f");
    let end = (Cell::Size(FILE, DATA), Value::Size(UNIT as u32));
    let effects = vec![end, (Cell::Written(FILE), Value::Written(50))];
    tale.issue(Kind::SetEof, effects.clone(), Promise::Nothing);
    tale.answer();
    tale.flush(FILE);
    let zeros = vec![0; UNIT];
    assert!(!tale.is_broken_as(zeros.clone(), 49, 0));
    assert!(tale.is_broken_as(Vec::new(), 50, 0));
    assert!(tale.is_broken(&[]));
    tale.is_cheap = false;
    assert!(tale.is_broken_as(zeros.clone(), 49, 0));
    tale.is_cheap = true;
    tale.write_through(Kind::SetEof, effects);
    assert!(tale.is_broken_as(zeros, 49, 0));
}

#[test]
fn a_file_that_the_host_moved_keeps_its_name_and_perhaps_the_former() {
    let mut tale = Tale::default();
    tale.create(FILE, "f");
    tale.flush(FILE);
    tale.done(Kind::HostMove, &[(FILE, Some("g"))], Promise::Nothing);
    assert!(!tale.is_broken(&[("f", FILE)]));
    tale.flush(FILE);
    assert!(!tale.is_broken(&[("g", FILE)]));
    assert!(!tale.is_broken(&[("f", FILE), ("g", FILE)]));
    assert!(tale.is_broken(&[("f", FILE)]));
    assert!(tale.is_broken(&[]));
    // A client's rename is another matter.
    tale.done(Kind::Rename, &[(FILE, Some("h"))], Promise::Nothing);
    tale.flush(FILE);
    assert!(!tale.is_broken(&[("f", FILE), ("h", FILE)]));
    assert!(tale.is_broken(&[("g", FILE), ("h", FILE)]));
    // Nor does a removal take the name that the server does not know.
    tale.done(Kind::Delete, &[(FILE, None)], Promise::Itself(FILE));
    assert!(!tale.is_broken(&[("f", FILE)]));
    assert!(tale.is_broken(&[("h", FILE)]));
}

#[test]
fn a_directory_keeps_no_name_that_the_host_took_away_before_its_flush() {
    let mut tale = Tale::default();
    tale.done(Kind::Mkdir, &[(DIRECTORY, Some("d"))], Promise::Nothing);
    tale.create(FILE, "d/f");
    tale.flush(FILE);
    tale.done(Kind::HostMove, &[(FILE, Some("g"))], Promise::Nothing);
    assert!(!tale.is_broken(&[("d", DIRECTORY), ("d/f", FILE), ("g", FILE)]));
    let promise = Promise::Directory(DIRECTORY);
    tale.done(Kind::FlushDirectory, &[], promise);
    assert!(!tale.is_broken(&[("d", DIRECTORY), ("g", FILE)]));
    assert!(tale.is_broken(&[("d", DIRECTORY), ("d/f", FILE), ("g", FILE)]));
    assert!(tale.is_broken(&[("d", DIRECTORY), ("d/f", FILE)]));
    // Where it went, nobody promised that it has left.
    let mut tale = Tale::default();
    tale.done(Kind::Mkdir, &[(DIRECTORY, Some("d"))], Promise::Nothing);
    tale.create(FILE, "f");
    tale.done(Kind::HostMove, &[(FILE, Some("d/g"))], Promise::Nothing);
    tale.done(Kind::FlushDirectory, &[], promise);
    assert!(!tale.is_broken(&[("d", DIRECTORY), ("d/g", FILE), ("f", FILE)]));
    assert!(tale.is_broken(&[("d", DIRECTORY), ("f", FILE)]));
}

#[test]
fn a_file_that_is_still_where_the_host_took_it_from_is_not_missed() {
    let mut tale = Tale::default();
    tale.create(OTHER, "f");
    tale.flush(OTHER);
    tale.done(Kind::HostMove, &[(OTHER, Some("g"))], Promise::Nothing);
    tale.create(FILE, "h");
    let moved = [(FILE, Some("g")), (OTHER, None)];
    tale.done(Kind::Replace, &moved, Promise::Nothing);
    assert!(!tale.is_broken(&[("g", FILE)]));
    assert!(!tale.is_broken(&[("f", OTHER), ("h", FILE)]));
}

#[test]
fn a_flush_covers_the_further_names_that_a_file_has() {
    let link = 14;
    let mut tale = Tale::default();
    tale.create(FILE, "f");
    tale.history.links.insert(link, FILE);
    tale.history.inodes.insert(link, u64::from(FILE));
    tale.done(Kind::Link, &[(link, Some("l"))], Promise::Nothing);
    assert!(!tale.is_broken(&[("f", FILE)]));
    tale.flush(FILE);
    assert!(!tale.is_broken(&[("f", FILE), ("l", FILE)]));
    assert!(tale.is_broken(&[("f", FILE)]));
    assert!(tale.is_broken(&[("l", FILE)]));
    // One that was removed may be there again, unless the removal was promised (docs/durability.md, Renames).
    tale.done(Kind::Delete, &[(link, None)], Promise::Nothing);
    tale.flush(FILE);
    assert!(!tale.is_broken(&[("f", FILE), ("l", FILE)]));
    assert!(!tale.is_broken(&[("f", FILE)]));
}

#[test]
fn a_removal_of_a_further_name_that_is_written_through_is_stable() {
    let link = 14;
    let mut tale = Tale::default();
    tale.create(FILE, "f");
    tale.history.links.insert(link, FILE);
    tale.history.inodes.insert(link, u64::from(FILE));
    tale.done(Kind::Link, &[(link, Some("l"))], Promise::Itself(link));
    assert!(!tale.is_broken(&[("f", FILE), ("l", FILE)]));
    assert!(tale.is_broken(&[("f", FILE)]));
    tale.done(Kind::Delete, &[(link, None)], Promise::Itself(link));
    assert!(!tale.is_broken(&[("f", FILE)]));
    assert!(tale.is_broken(&[("f", FILE), ("l", FILE)]));
}

#[test]
fn a_flush_covers_what_clients_set_beside_the_contents() {
    let cells = [Cell::Ea, Cell::Descriptor, Cell::Sparse];
    for (place, cell) in cells.into_iter().enumerate() {
        let mut tale = Tale::default();
        tale.create(FILE, "f");
        let effects = vec![(cell(FILE), Value::Mark(1))];
        tale.issue(Kind::Ea, effects, Promise::Nothing);
        tale.answer();
        let left = |mark: u32| {
            let mut marks = [0; 3];
            marks[place] = mark;
            let client_marks = Some(marks);
            let node = Node {
                client_marks,
                ..node(FILE)
            };
            [("f".to_owned(), node)]
        };
        assert!(!tale.breaks(left(0)));
        tale.flush(FILE);
        assert!(!tale.breaks(left(1)));
        assert!(tale.breaks(left(0)));
    }
}

#[test]
fn a_flush_covers_that_a_stream_was_removed_or_renamed() {
    let unit = |fork, contents| (Cell::Unit(FILE, fork, 0), Value::Contents(contents));
    let size = |fork, units: usize| (Cell::Size(FILE, fork), Value::Size((units * UNIT) as u32));
    let text = Contents::Fill {
        object: FILE,
        fork: SMALL,
        version: 1,
        unit: 0,
    };
    let left = |small: bool, big: bool| {
        let stream = |there: bool| there.then(|| text.bytes().to_vec());
        let forks = [Some(Vec::new()), stream(small), stream(big)];
        let node = Node {
            forks,
            ..node(FILE)
        };
        [("f".to_owned(), node)]
    };
    let mut tale = Tale::default();
    tale.create(FILE, "f");
    let written = vec![size(SMALL, 1), unit(SMALL, text)];
    tale.issue(Kind::WriteStream, written, Promise::Nothing);
    tale.answer();
    tale.flush(FILE);
    assert!(tale.breaks(left(false, false)));
    let zero = Contents::Zero;
    let moved = vec![
        size(SMALL, 0),
        unit(SMALL, zero),
        size(BIG, 1),
        unit(BIG, text),
    ];
    tale.issue(Kind::RenameStream, moved, Promise::Nothing);
    tale.history.operations.last_mut().unwrap().source = Some(FILE);
    tale.answer();
    assert!(!tale.breaks(left(true, false)));
    tale.flush(FILE);
    assert!(!tale.breaks(left(false, true)));
    assert!(tale.breaks(left(true, false)));
    let removed = vec![size(BIG, 0), unit(BIG, zero)];
    tale.issue(Kind::DeleteStream, removed, Promise::Nothing);
    tale.answer();
    assert!(!tale.breaks(left(false, true)));
    tale.flush(FILE);
    assert!(!tale.breaks(left(false, false)));
    assert!(tale.breaks(left(false, true)));
    // A stream that is about to be made again may be there, empty.
    let made = vec![size(BIG, 0)];
    tale.issue(Kind::CreateStream, made, Promise::Nothing);
    let mut empty = left(false, true);
    empty[0].1.forks[usize::from(BIG)] = Some(Vec::new());
    assert!(!tale.breaks(empty));
}
