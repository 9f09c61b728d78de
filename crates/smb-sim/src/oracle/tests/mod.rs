//! Hand-made histories: each rule broken once, and kept once.

mod renames;
mod write_through;

use std::time::Duration;

use durability::{Bound, Policy};

use super::*;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A history with a clock of its own: one millisecond a step.
#[derive(Default)]
struct Tale {
    history: History,
    now: u64,
}

impl Tale {
    fn step(&mut self) -> Duration {
        self.now += 1;
        ms(self.now)
    }

    fn done(&mut self, request: Request) {
        let op = self.begin(request);
        self.end(op, Answer::Success);
    }

    fn begin(&mut self, request: Request) -> OpId {
        let at = self.step();
        self.history.issue(at, request)
    }

    fn end(&mut self, op: OpId, answer: Answer) {
        let at = self.step();
        self.history.answer(op, at, answer);
    }

    /// A file in the root, with two pages.
    fn file(&mut self, name: &str) -> (Object, u64) {
        let file = self.history.object();
        self.done(Request::create(Object::ROOT, name, file));
        let version = self.write(file, 0..16);
        (file, version)
    }

    fn write(&mut self, file: Object, sectors: std::ops::Range<u64>) -> u64 {
        let version = self.history.version();
        self.done(Request::write(file, "", sectors, version));
        version
    }

    fn flush(&mut self, file: Object) {
        self.done(Request::flush(Covers::Object(file)));
    }

    fn terms(&mut self, policy: Policy) -> Terms {
        let at = self.step();
        Terms::new(policy, Cut::after(&self.history, Crash::Power, at))
    }

    fn broken(&mut self, view: &View, policy: Policy) -> Vec<Rule> {
        let terms = self.terms(policy);
        rules(&check(&self.history, view, &terms))
    }
}

fn rules(violations: &[Violation]) -> Vec<Rule> {
    violations.iter().map(|violation| violation.rule).collect()
}

fn with(bytes: &[u8]) -> Found {
    let mut found = Found::default();
    found
        .streams
        .insert(String::new(), FoundStream::read(bytes));
    found
}

fn directory() -> Found {
    Found {
        directory: true,
        ..Found::default()
    }
}

fn one(path: &str, found: Found) -> View {
    let mut view = View::new();
    view.add(path, found);
    view
}

const NONE: Vec<Rule> = Vec::new();

/// A FLUSH of the root of a share over a folder concerns the files that lie in it all the time, and no others.
#[test]
fn a_flush_of_a_folder_covers_what_lies_in_it() {
    let mut tale = Tale::default();
    let folder = tale.history.object();
    tale.done(Request::create(Object::ROOT, "d", folder));
    let (inside, version) = tale.file("f");
    let outside = tale.file("g").0;
    tale.done(Request::rename(inside, (Object::ROOT, "f"), (folder, "f")));
    let flush = tale.begin(Request::flush(Covers::Folder(folder)));
    let mut moving = tale.history.clone();
    tale.end(flush, Answer::Success);
    let mut view = one("d", directory());
    view.add("d/f", with(&fill(inside, "", 0, 16, version)));
    assert_eq!(
        tale.broken(&view, Policy::Honor),
        NONE,
        "{outside:?} is lost"
    );
    view.entries.remove(&vec!["d".to_owned(), "f".to_owned()]);
    let lost = tale.broken(&view, Policy::Honor);
    assert!(lost.contains(&Rule::Acknowledged), "{lost:?}");
    // It leaves the folder during the FLUSH.
    let away = Request::rename(inside, (folder, "f"), (Object::ROOT, "h"));
    moving.issue(tale.step(), away);
    std::mem::swap(&mut moving, &mut tale.history);
    tale.end(flush, Answer::Success);
    view.add("d/f", with(&[]));
    assert_eq!(tale.broken(&view, Policy::Honor), NONE);
}

#[test]
fn a_flush_of_a_folder_covers_a_file_with_names_in_two_directories_of_it() {
    let mut tale = Tale::default();
    let [folder, below, file] = [(); 3].map(|()| tale.history.object());
    tale.done(Request::create(Object::ROOT, "d", folder));
    tale.done(Request::create(folder, "e", below));
    tale.done(Request::create(folder, "f", file));
    tale.done(Request::link(file, below, "g"));
    let versions = [(); 2].map(|()| tale.write(file, 0..16));
    tale.done(Request::flush(Covers::Folder(folder)));
    let [old, new] = versions.map(|version| {
        let mut view = one("d", directory());
        view.add("d/e", directory());
        for name in ["d/f", "d/e/g"] {
            view.add(name, with(&fill(file, "", 0, 16, version)));
        }
        tale.broken(&view, Policy::Honor)
    });
    assert_eq!(new, NONE);
    assert!(old.contains(&Rule::Acknowledged), "{old:?}");
}

#[test]
fn a_flushed_file_must_be_there_with_its_name() {
    let mut tale = Tale::default();
    let (file, version) = tale.file("f");
    assert_eq!(tale.broken(&View::new(), Policy::Honor), NONE, "not asked");
    tale.flush(file);
    let there = with(&fill(file, "", 0, 16, version));
    assert_eq!(tale.broken(&one("f", there.clone()), Policy::Honor), NONE);
    assert_eq!(
        tale.broken(&View::new(), Policy::Honor),
        [Rule::Acknowledged]
    );
    // Half of it, and under a name it never had.
    let half = with(&fill(file, "", 0, 8, version));
    assert!(!tale.broken(&one("f", half), Policy::Honor).is_empty());
    assert!(!tale.broken(&one("g", there), Policy::Honor).is_empty());
    // The other policies promised nothing.
    let host = Policy::TreatHostAsStableStorage;
    assert_eq!(tale.broken(&View::new(), host), NONE);
}

#[test]
fn something_later_is_as_good_and_something_earlier_is_not() {
    let mut tale = Tale::default();
    let (file, old) = tale.file("f");
    let new = tale.write(file, 0..16);
    tale.flush(file);
    let later = tale.history.version();
    tale.begin(Request::write(file, "", 0..8, later));
    let view = |first: u64, second: u64| {
        let mut bytes = fill(file, "", 0, 8, first);
        bytes.extend(fill(file, "", 8, 8, second));
        one("f", with(&bytes))
    };
    assert_eq!(tale.broken(&view(new, new), Policy::Honor), NONE);
    assert_eq!(tale.broken(&view(later, new), Policy::Honor), NONE);
    assert_eq!(
        tale.broken(&view(new, old), Policy::Honor),
        [Rule::Acknowledged]
    );
    assert_eq!(
        tale.broken(&view(new, later), Policy::Honor),
        [Rule::Acknowledged],
        "never written there"
    );
}

#[test]
fn requests_that_overlapped_may_have_come_in_any_order() {
    let mut tale = Tale::default();
    let (file, _) = tale.file("f");
    let (a, b) = (tale.history.version(), tale.history.version());
    let first = tale.begin(Request::write(file, "", 0..16, a));
    let second = tale.begin(Request::write(file, "", 0..16, b));
    tale.end(second, Answer::Success);
    tale.end(first, Answer::Success);
    tale.flush(file);
    for version in [a, b] {
        let view = one("f", with(&fill(file, "", 0, 16, version)));
        assert_eq!(tale.broken(&view, Policy::Honor), NONE);
    }
}

#[test]
fn a_flush_does_not_cover_what_was_not_answered_before() {
    let mut tale = Tale::default();
    let (file, old) = tale.file("f");
    tale.flush(file);
    let new = tale.history.version();
    let write = tale.begin(Request::write(file, "", 0..16, new));
    let flush = tale.begin(Request::flush(Covers::Object(file)));
    tale.end(write, Answer::Success);
    tale.end(flush, Answer::Success);
    let view = one("f", with(&fill(file, "", 0, 16, old)));
    assert_eq!(tale.broken(&view, Policy::Honor), NONE);
}

#[test]
fn directories_above_are_a_part_of_the_name() {
    let mut tale = Tale::default();
    let (dir, file) = (tale.history.object(), tale.history.object());
    tale.done(Request::create(Object::ROOT, "d", dir));
    tale.done(Request::create(dir, "f", file));
    tale.flush(file);
    assert_eq!(
        tale.broken(&View::new(), Policy::Honor),
        [Rule::Acknowledged]
    );
    let mut view = one("d", directory());
    assert_eq!(tale.broken(&view, Policy::Honor), [Rule::Acknowledged]);
    view.add("d/f", with(&[]));
    assert_eq!(tale.broken(&view, Policy::Honor), NONE);
    // Moved as a whole, not asked to be stable: either place, or on its way.
    tale.done(Request::rename(
        dir,
        (Object::ROOT, "d"),
        (Object::ROOT, "e"),
    ));
    assert_eq!(tale.broken(&view, Policy::Honor), NONE);
    // Then flushed: the new place only.
    tale.flush(file);
    assert!(!tale.broken(&view, Policy::Honor).is_empty());
}

#[test]
fn torn_pages_are_two_states_at_most() {
    let mut tale = Tale::default();
    let (file, a) = tale.file("f");
    let b = tale.write(file, 0..8);
    let c = tale.write(file, 0..8);
    let mix = |parts: &[(u64, u64)]| {
        let mut bytes = Vec::new();
        for (version, count) in parts {
            let first = (bytes.len() / SECTOR) as u64;
            bytes.extend(fill(file, "", first, *count, *version));
        }
        one("f", with(&bytes))
    };
    let host = Policy::TreatHostAsStableStorage;
    assert_eq!(tale.broken(&mix(&[(a, 4), (b, 4)]), host), NONE);
    assert_eq!(
        tale.broken(&mix(&[(a, 2), (b, 4), (c, 2)]), host),
        [Rule::Torn]
    );
    let mut bytes = fill(file, "", 0, 8, a);
    bytes[100] ^= 1;
    let garbage = tale.broken(&one("f", with(&bytes)), host);
    assert!(garbage.contains(&Rule::Torn), "{garbage:?}");
    // Synced: not torn at all.
    tale.flush(file);
    let broken = tale.broken(&mix(&[(b, 4), (c, 4), (a, 8)]), Policy::Honor);
    assert_eq!(broken, [Rule::Acknowledged]);
}

#[test]
fn a_bound_holds_for_what_is_old_and_for_what_is_much() {
    let bound = Policy::Bounded(Bound::new(ms(10), 64 << 10).unwrap());
    let mut tale = Tale::default();
    tale.file("f");
    assert_eq!(tale.broken(&View::new(), bound), NONE, "young");
    tale.now += 20;
    assert!(tale.broken(&View::new(), bound).contains(&Rule::Bound));
    let mut slow = tale.terms(bound);
    slow.device_keeps_up = false;
    assert_eq!(check(&tale.history, &View::new(), &slow), []);
    // Much.
    let mut tale = Tale::default();
    let (file, _) = tale.file("f");
    tale.write(file, 0..200);
    let view = one("f", with(&[]));
    assert_eq!(tale.broken(&view, bound), [Rule::Bound]);
}

#[test]
fn the_death_of_the_process_takes_nothing() {
    let mut tale = Tale::default();
    tale.file("f");
    let mut terms = tale.terms(Policy::TreatHostAsStableStorage);
    terms.cut.crash = Crash::Process;
    let broken = check(&tale.history, &View::new(), &terms);
    assert_eq!(rules(&broken), [Rule::Process, Rule::OneName]);
}

#[test]
fn the_death_of_the_process_takes_no_file_that_moves() {
    let mut tale = Tale::default();
    let (file, version) = tale.file("f");
    tale.begin(Request::rename(
        file,
        (Object::ROOT, "f"),
        (Object::ROOT, "g"),
    ));
    let mut terms = tale.terms(Policy::TreatHostAsStableStorage);
    terms.cut.crash = Crash::Process;
    for name in ["f", "g"] {
        let view = one(name, with(&fill(file, "", 0, 16, version)));
        assert_eq!(rules(&check(&tale.history, &view, &terms)), NONE, "{name}");
    }
    let broken = check(&tale.history, &View::new(), &terms);
    assert_eq!(rules(&broken), [Rule::OneName]);
}

#[test]
fn after_a_failed_sync_nothing_succeeds_until_all_is_rewritten() {
    let mut tale = Tale::default();
    let (file, _) = tale.file("f");
    let at = tale.step();
    tale.history.sync_failed(file, at);
    let flush = tale.begin(Request::flush(Covers::Object(file)));
    tale.end(flush, Answer::Failed);
    let terms = tale.terms(Policy::TreatHostAsStableStorage);
    assert_eq!(check(&tale.history, &View::new(), &terms), []);
    // The true error, then a success: the lie.
    let mut lie = tale.history.clone();
    lie.happened(ms(100), Request::flush(Covers::Object(file)));
    assert_eq!(rules(&check(&lie, &View::new(), &terms)), NONE, "after");
    let terms = Terms::new(
        Policy::TreatHostAsStableStorage,
        Cut::after(&lie, Crash::Power, ms(200)),
    );
    assert_eq!(rules(&check(&lie, &View::new(), &terms)), [Rule::Latch]);
    let mut close = tale.history.clone();
    close.happened(ms(100), Request::close(file, Vec::new()));
    let terms = Terms::new(
        Policy::TreatHostAsStableStorage,
        Cut::after(&close, Crash::Power, ms(200)),
    );
    assert_eq!(rules(&check(&close, &View::new(), &terms)), [Rule::Latch]);
    // Rewritten in part, then all.
    tale.write(file, 0..8);
    tale.flush(file);
    let host = Policy::TreatHostAsStableStorage;
    assert_eq!(tale.broken(&View::new(), host), [Rule::Latch]);
    let mut tale = Tale::default();
    let (file, _) = tale.file("f");
    let at = tale.step();
    tale.history.sync_failed(file, at);
    tale.write(file, 0..16);
    tale.flush(file);
    assert_eq!(tale.broken(&View::new(), host), NONE);
}

#[test]
fn the_exposure_is_no_less_than_the_loss() {
    let mut tale = Tale::default();
    let (file, _) = tale.file("f");
    let host = Policy::TreatHostAsStableStorage;
    let mut terms = tale.terms(host);
    let view = one("f", with(&[]));
    let reported = |bytes, inodes, age| {
        Some(Exposed {
            at: terms.cut.at,
            bytes,
            inodes,
            oldest_age: ms(age),
            ..Exposed::default()
        })
    };
    let tries = [
        (reported(8192, 1, 100), 0),
        (reported(8191, 1, 100), 1),
        (reported(8192, 0, 100), 1),
        (reported(8192, 1, 0), 1),
    ];
    for (exposure, wanted) in tries {
        terms.exposure = Vec::from_iter(exposure);
        let broken = rules(&check(&tale.history, &view, &terms));
        assert_eq!(broken, vec![Rule::Exposure; wanted], "{exposure:?}");
    }
    let lost = loss(&tale.history, &view, &terms.cut, terms.cut.at);
    assert_eq!((lost.bytes, lost.inodes.len()), (8192, 1));
    assert!(lost.inodes.contains(&file));
}

#[test]
fn what_a_file_lacks_is_missed_although_it_replaced_another() {
    let mut tale = Tale::default();
    let (old, _) = tale.file("f");
    tale.history.identify(old, 7);
    tale.flush(old);
    let file = tale.history.object();
    tale.done(Request::create(Object::ROOT, "g", file));
    tale.history.identify(file, 8);
    tale.write(file, 0..200);
    let written = ms(tale.now);
    tale.done(Request::rename(
        file,
        (Object::ROOT, "g"),
        (Object::ROOT, "f"),
    ));
    let left = |index| {
        let mut found = with(&[]);
        found.index = Some(index);
        one("f", found)
    };
    let host = Policy::TreatHostAsStableStorage;
    let mut terms = tale.terms(host);
    let lost = |index| loss(&tale.history, &left(index), &terms.cut, terms.cut.at);
    // The rename is there, and what was written before is not.
    let missed = lost(8);
    assert_eq!((missed.bytes, missed.oldest), (200 << 9, Some(written)));
    // It counts for the directory, as the name would.
    assert_eq!(
        missed.inodes.into_iter().collect::<Vec<_>>(),
        [Object::ROOT]
    );
    // Nobody misses anything of the file that was to go.
    assert_eq!((lost(7).bytes, lost(7).oldest), (0, None));
    terms.exposure = vec![Exposed {
        at: terms.cut.at,
        bytes: (200 << 9) - 1,
        inodes: 2,
        oldest_age: ms(100),
        ..Exposed::default()
    }];
    let broken = rules(&check(&tale.history, &left(8), &terms));
    assert_eq!(broken, [Rule::Exposure]);
    let bound = Policy::Bounded(Bound::new(ms(1000), 64 << 10).unwrap());
    assert_eq!(tale.broken(&left(8), bound), [Rule::Bound]);
}

#[test]
fn streams_metadata_and_copies_are_registers_too() {
    let mut tale = Tale::default();
    let (file, version) = tale.file("f");
    tale.done(Request::stream(file, "s", true));
    let in_stream = tale.history.version();
    tale.done(Request::write(file, "s", 0..2, in_stream));
    let attributes = |value: u8| Value::Bytes(vec![value]);
    tale.done(Request::meta(file, Key::Attributes, attributes(1)));
    tale.done(Request::meta(file, Key::Attributes, attributes(2)));
    let (copy, _) = tale.file("copy");
    tale.done(Request::copy((file, "", 0), (copy, "", 0), 16));
    tale.flush(file);
    tale.flush(copy);
    let mut there = with(&fill(file, "", 0, 16, version));
    there.streams.insert(
        "s".to_owned(),
        FoundStream::read(&fill(file, "s", 0, 2, in_stream)),
    );
    there.meta.push((Key::Attributes, attributes(2)));
    let view = |f: Found| {
        let mut view = one("f", f);
        view.add("copy", with(&fill(file, "", 0, 16, version)));
        view
    };
    assert_eq!(tale.broken(&view(there.clone()), Policy::Honor), NONE);
    let mut without = there.clone();
    without.streams.remove("s");
    assert!(!tale.broken(&view(without), Policy::Honor).is_empty());
    let mut short = there.clone();
    short.streams.insert("s".to_owned(), FoundStream::default());
    assert!(!tale.broken(&view(short), Policy::Honor).is_empty());
    let mut older = there;
    older.meta = vec![(Key::Attributes, attributes(1))];
    assert_eq!(
        tale.broken(&view(older), Policy::Honor),
        [Rule::Acknowledged]
    );
}

#[test]
fn sizes_and_removals() {
    let mut tale = Tale::default();
    let (file, version) = tale.file("f");
    tale.flush(file);
    tale.done(Request::set_size(file, "", 4));
    let long = with(&fill(file, "", 0, 16, version));
    let short = with(&fill(file, "", 0, 4, version));
    for found in [&long, &short] {
        assert_eq!(tale.broken(&one("f", found.clone()), Policy::Honor), NONE);
    }
    tale.flush(file);
    assert_eq!(tale.broken(&one("f", short), Policy::Honor), NONE);
    assert!(
        !tale
            .broken(&one("f", long.clone()), Policy::Honor)
            .is_empty()
    );
    tale.done(Request::remove(Object::ROOT, "f", file));
    assert_eq!(tale.broken(&View::new(), Policy::Honor), NONE);
    tale.done(Request::flush(Covers::Directory(Object::ROOT)));
    assert_eq!(tale.broken(&View::new(), Policy::Honor), NONE);
    assert!(!tale.broken(&one("f", long), Policy::Honor).is_empty());
}

#[test]
fn what_goes_with_its_directory_is_missed_where_that_was() {
    let mut tale = Tale::default();
    let dir = tale.history.object();
    tale.done(Request::create(Object::ROOT, "d", dir));
    let file = tale.history.object();
    tale.done(Request::create(Object::ROOT, "f", file));
    tale.flush(file);
    tale.done(Request::rename(file, (Object::ROOT, "f"), (dir, "g")));
    tale.done(Request::remove(dir, "g", file));
    tale.done(Request::remove(Object::ROOT, "d", dir));
    let terms = tale.terms(Policy::Honor);
    let mut view = one("d", directory());
    view.add("f", with(&[]));
    // Both names are the root's to lose.
    let lost = loss(&tale.history, &view, &terms.cut, terms.cut.at);
    assert_eq!(lost.inodes.into_iter().collect::<Vec<_>>(), [Object::ROOT]);
}

#[test]
fn an_end_of_file_is_as_old_as_the_last_one_set() {
    let mut tale = Tale::default();
    let file = tale.history.object();
    tale.done(Request::create(Object::ROOT, "f", file));
    tale.flush(file);
    tale.write(file, 24..40);
    tale.done(Request::set_size(file, "", 5));
    let set = ms(tale.now);
    let terms = tale.terms(Policy::TreatHostAsStableStorage);
    // Nothing of the write is missing: a later request says that the file ends there now.
    let lost = loss(
        &tale.history,
        &one("f", with(&[])),
        &terms.cut,
        terms.cut.at,
    );
    assert_eq!(lost.oldest, Some(set), "{lost:?}");
    assert_eq!(lost.bytes, 0);
}

#[test]
fn what_may_have_been_cut_off_last_is_not_missed() {
    let mut tale = Tale::default();
    let (file, old) = tale.file("f");
    tale.flush(file);
    // The end of file is set while a write is under way: nobody knows which came last.
    let cut = tale.begin(Request::set_size(file, "", 4));
    tale.write(file, 8..16);
    tale.end(cut, Answer::Success);
    let set = ms(tale.now);
    let terms = tale.terms(Policy::TreatHostAsStableStorage);
    let found = one("f", with(&fill(file, "", 0, 16, old)));
    let lost = loss(&tale.history, &found, &terms.cut, terms.cut.at);
    assert_eq!((lost.bytes, lost.oldest), (0, Some(set)), "{lost:?}");
}
