//! Every kind of loss against a folder in memory, and what must not be called one.

use super::super::{
    ledger::{Ack, Line},
    plan::Mode,
    record::{Record, RunId},
    report::LostRecord,
};
use super::*;
use proptest::prelude::*;

/// Files and streams in memory; `broken` names cannot be read.
#[derive(Default)]
struct Memory {
    files: BTreeMap<String, Vec<u8>>,
    broken: BTreeMap<String, u64>,
    /// Times that are not given are newer than anything.
    times: BTreeMap<String, u64>,
}

impl Source for Memory {
    fn read(&mut self, name: &str, offset: u64, length: u32) -> Result<Vec<u8>, Fault> {
        let bytes = self.files.get(name).ok_or(Fault::Absent)?;
        if let Some(bad) = self.broken.get(name)
            && (offset..offset + u64::from(length)).contains(bad)
        {
            return Err(Fault::Unreadable("EIO".into()));
        }
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        Ok(rest.iter().copied().take(length as usize).collect())
    }

    fn read_stream(&mut self, name: &str, offset: u64, length: u32) -> Result<Vec<u8>, Fault> {
        self.read(&format!("{name}:verify"), offset, length)
    }

    fn modified(&mut self, name: &str) -> Result<u64, Fault> {
        let time = self.times.get(name).copied();
        self.files.get(name).ok_or(Fault::Absent)?;
        Ok(time.unwrap_or(u64::MAX))
    }

    fn names(&mut self) -> Result<BTreeSet<String>, String> {
        Ok(self.files.keys().cloned().collect())
    }

    fn piece(&self) -> u32 {
        1000
    }
}

const SIZE: u32 = 256;

fn plan(batch: u32) -> Plan {
    let plan = Plan {
        run: RunId([9; 16]).to_string(),
        files: 5,
        size: SIZE,
        batch,
        mode: Mode::Flush,
        rename: true,
        streams: true,
        place: "//h/s".into(),
        time: 1,
    };
    plan.checked().unwrap()
}

impl Memory {
    fn put(&mut self, plan: &Plan, file: u32, sequence: u64) {
        let slot = sequence % plan.kind(file).slots();
        let offset = plan.offset(file, slot);
        let record = Record {
            run: plan.run(),
            file,
            sequence,
            offset,
            time: 0,
        };
        let mut name = plan.name(file, slot);
        if plan.kind(file) == Kind::Stream {
            name.push_str(":verify");
        }
        let bytes = self.files.entry(name).or_default();
        let (from, to) = (offset as usize, (offset + u64::from(SIZE)) as usize);
        bytes.resize(bytes.len().max(to), 0);
        bytes[from..to].copy_from_slice(&record.encode(SIZE));
    }

    /// As a server leaves it that keeps everything.
    fn whole(plan: &Plan, counts: &[u64]) -> Self {
        let mut memory = Self::default();
        for (file, count) in (0..).zip(counts) {
            for sequence in 0..*count {
                memory.put(plan, file, sequence);
            }
        }
        memory
    }

    fn spoil(&mut self, name: &str, at: usize) {
        self.files.get_mut(name).unwrap()[at] ^= 1;
    }
}

/// The server's times are 5000 plus the number of the record.
fn ledger(plan: &Plan, counts: &[u64]) -> Ledger {
    ledger_ended(plan, counts, None)
}

fn ledger_ended(plan: &Plan, counts: &[u64], end: Option<(&str, bool)>) -> Ledger {
    let mut text = Line::Run(plan.clone()).encode().unwrap();
    for (file, count) in (0..).zip(counts) {
        for first in 0..*count {
            let ack = Ack {
                file,
                first,
                count: 1,
                time: 1000 + first,
                latency: 1,
                modified: (plan.kind(file) != Kind::Stream).then_some(5000 + first),
            };
            text.push_str(&Line::Ack(ack).encode().unwrap());
        }
    }
    if let Some((why, cut)) = end {
        let end = Line::End {
            why: why.into(),
            acknowledged: counts.iter().sum(),
            cut,
        };
        text.push_str(&end.encode().unwrap());
    }
    ledger::read(text.as_bytes(), |_| ()).unwrap()
}

const COUNTS: [u64; 5] = [40, 40, 40, 40, 40];

#[test]
fn a_place_without_any_of_the_files_may_be_another_one() {
    let plan = plan(1);
    let ledger = ledger(&plan, &COUNTS);
    let question = "none of the files is there: is this their place";
    let nothing = examine(&ledger, &mut Memory::default()).unwrap();
    assert_eq!(nothing.verdict(), Verdict::Lost);
    assert!(nothing.in_words().contains(question));
    let one = examine(&ledger, &mut Memory::whole(&plan, &[1])).unwrap();
    assert!(!one.in_words().contains(question));
}

#[test]
fn a_ledger_that_says_how_the_run_ended_excuses_one_batch_only() {
    let plan = plan(1);
    let mut memory = Memory::whole(&plan, &COUNTS);
    // The record on its way, and one that cannot have been begun before that was acknowledged.
    memory.put(&plan, 1, 40);
    memory.spoil(&plan.name(1, 9), 9 * SIZE as usize + 100);
    let lags = examine(&ledger(&plan, &COUNTS), &mut memory).unwrap();
    assert_eq!((lags.verdict(), lags.excused), (Verdict::AllThere, 1));
    let whole = ledger_ended(&plan, &COUNTS, Some(("then the connection broke", true)));
    let found = examine(&whole, &mut memory).unwrap();
    assert_eq!((found.verdict(), found.excused), (Verdict::Lost, 0));
}

fn is_good(report: &Report) -> bool {
    report.verdict() == Verdict::AllThere
}

/// The losses, as words, after `spoil` has changed the disk.
fn losses(spoil: impl FnOnce(&mut Memory, &Plan)) -> Vec<String> {
    let plan = plan(1);
    let mut memory = Memory::whole(&plan, &COUNTS);
    spoil(&mut memory, &plan);
    let report = examine(&ledger(&plan, &COUNTS), &mut memory).unwrap();
    let found = report.findings();
    assert_eq!(is_good(&report), found.lost == 0);
    let word = |LostRecord { item, .. }: &LostRecord<'_>| {
        let (loss, name) = (item.loss.word(), &item.name[12..]);
        format!("{loss} {name} {}", item.sequence)
    };
    found.items.iter().map(word).collect()
}

#[test]
fn what_is_whole_is_whole() {
    assert!(losses(|_, _| ()).is_empty());
}

#[test]
fn each_loss_has_its_name() {
    type Spoil = fn(&mut Memory, &Plan);
    let cases: [(Spoil, &[&str]); 12] = [
        (
            |m, p| m.spoil(&p.name(0, 0), 7 * 256 + 99),
            &["torn 0000-append 7"],
        ),
        (
            |m, p| {
                m.files
                    .get_mut(&p.name(0, 0))
                    .unwrap()
                    .truncate(38 * 256 + 9)
            },
            &["torn 0000-append 38", "missing 0000-append 39"],
        ),
        (
            |m, p| m.files.get_mut(&p.name(0, 0)).unwrap()[512..768].fill(0),
            &["missing 0000-append 2"],
        ),
        (
            |m, p| {
                m.files
                    .get_mut(&p.name(0, 0))
                    .unwrap()
                    .copy_within(0..256, 256)
            },
            &["misplaced 0000-append 1"],
        ),
        // Slot 7 holds 39, the last; 23 was there before.
        (|m, p| m.put(p, 1, 23), &["stale 0001-ring 39"]),
        (
            |m, p| m.spoil(&p.name(1, 0), 7 * 256),
            &["torn 0001-ring 39"],
        ),
        (
            |m, p| {
                m.files.remove(&p.name(2, 5));
            },
            &["absent 0002-fresh-0005 5"],
        ),
        (
            |m, p| {
                m.files.insert(p.temporary(2, 5), vec![1]);
            },
            &["old-name 0002-tmp-5 5"],
        ),
        (|m, p| m.put(p, 3, 38), &["stale 0003-save 39"]),
        (
            |m, p| m.files.get_mut(&p.name(3, 0)).unwrap().clear(),
            &["missing 0003-save 39"],
        ),
        (
            |m, p| {
                m.files.remove(&format!("{}:verify", p.name(4, 0)));
            },
            &["absent 0004-stream 38", "absent 0004-stream 39"],
        ),
        (
            |m, p| {
                m.broken.insert(p.name(0, 0), 1025);
            },
            &["unreadable 0000-append 4"],
        ),
    ];
    for (spoil, expected) in cases {
        assert_eq!(losses(spoil), expected);
    }
}

/// A server that syncs with fdatasync leaves all data, and the time of an earlier sync.
#[test]
fn a_time_that_went_back_is_a_loss() {
    let told = |file, slot, time| {
        losses(|memory, plan| {
            memory.times.insert(plan.name(file, slot), time);
        })
    };
    assert_eq!(told(1, 0, 5038), ["old-time 0001-ring 39"]);
    assert_eq!(told(2, 7, 5006), ["old-time 0002-fresh-0007 7"]);
    assert!(told(1, 0, 5039).is_empty());
    // A stream's is not looked at.
    assert!(told(4, 0, 0).is_empty());
}

/// A record that was on its way at the cut has replaced one that was flushed before the clock was set back.
#[test]
fn a_time_from_before_the_clock_was_set_back_is_not_compared() {
    let plan = plan(1);
    let fresh = plan.name(2, 0);
    for (set_back_to, lost) in [(6001, 1), (4000, 0)] {
        let mut text = Line::Run(plan.clone()).encode().unwrap();
        for (first, modified) in [(0, 6000), (1, set_back_to)] {
            let ack = Ack {
                file: 2,
                first,
                count: 1,
                time: 1000 + first,
                latency: 1,
                modified: Some(modified),
            };
            text.push_str(&Line::Ack(ack).encode().unwrap());
        }
        let ledger = ledger::read(text.as_bytes(), |_| ()).unwrap();
        let mut memory = Memory::whole(&plan, &[0, 0, 2]);
        memory.times.insert(fresh.clone(), 4001);
        let report = examine(&ledger, &mut memory).unwrap();
        let items = report.findings().items;
        assert_eq!(items.len(), lost, "{set_back_to}");
        assert_eq!(report.times_checked, 1 + lost as u64);
        let words = report.in_words();
        let is_remarked = words.contains("clock was set back");
        assert_eq!(is_remarked, lost == 0, "{words}");
    }
}

#[test]
fn what_came_later_is_no_loss() {
    let lost = losses(|memory, plan| {
        for file in 0..5 {
            memory.put(plan, file, 40);
        }
        memory.files.insert(plan.temporary(2, 40), vec![]);
        memory.files.insert("somebody else's".into(), vec![]);
    });
    assert!(lost.is_empty(), "{lost:?}");
}

#[test]
fn only_what_was_being_overwritten_may_be_torn() {
    let plan = plan(3);
    let ledger = ledger(&plan, &COUNTS);
    // 40, 41 and 42 may be on their way to slots 8, 9 and 10 of the ring, and 40 to the stream's 0.
    for (file, name, slot, excused) in [
        (1, plan.name(1, 0), 8, true),
        (1, plan.name(1, 0), 10, true),
        (1, plan.name(1, 0), 11, false),
        (1, plan.name(1, 0), 7, false),
        (4, format!("{}:verify", plan.name(4, 0)), 0, true),
        (4, format!("{}:verify", plan.name(4, 0)), 1, false),
        (3, plan.name(3, 0), 0, false),
    ] {
        let mut memory = Memory::whole(&plan, &COUNTS);
        memory.spoil(&name, slot * 256 + 70);
        let report = examine(&ledger, &mut memory).unwrap();
        assert_eq!(
            (is_good(&report), report.excused),
            (excused, u64::from(excused)),
            "{file} {slot}"
        );
    }
    // A ledger behind a pipe lags: 45 is there, so 46 to 48 may be on their way.
    let mut memory = Memory::whole(&plan, &COUNTS);
    (40..46).for_each(|sequence| memory.put(&plan, 1, sequence));
    memory.spoil(&plan.name(1, 0), 70);
    let report = examine(&ledger, &mut memory).unwrap();
    assert_eq!((is_good(&report), report.excused), (true, 1));
}

/// A run that ended by itself had no cut: the existing data were never in danger. Missing data are lost all the same.
#[test]
fn without_a_cut_nothing_was_tested() {
    let plan = plan(1);
    for (end, verdict, says) in [
        (None, Verdict::AllThere, "all there"),
        (
            Some(("then the connection broke", true)),
            Verdict::AllThere,
            "all there",
        ),
        (
            Some(("ended as asked", false)),
            Verdict::Untested,
            "NOTHING WAS TESTED",
        ),
        (
            Some(("then it failed: ?", false)),
            Verdict::Untested,
            "NOTHING WAS TESTED",
        ),
    ] {
        let ledger = ledger_ended(&plan, &COUNTS, end);
        let mut memory = Memory::whole(&plan, &COUNTS);
        let report = examine(&ledger, &mut memory).unwrap();
        assert_eq!(report.verdict(), verdict, "{end:?}");
        let words = report.in_words();
        assert!(words.contains(says), "{words}");
        let is_unknown = words.contains("does not say how the run ended");
        assert_eq!(is_unknown, end.is_none(), "{words}");
        // A file each of append, ring and save, and 40 fresh ones.
        assert_eq!(report.times_checked, 43);
        memory.spoil(&plan.name(0, 0), 9 * 256);
        let report = examine(&ledger, &mut memory).unwrap();
        assert_eq!(report.verdict(), Verdict::Lost, "{end:?}");
    }
}

/// The power may have been cut before the first acknowledgement, or the server was never reached.
#[test]
fn without_an_acknowledgement_nothing_was_tested() {
    let plan = plan(1);
    for end in [None, Some(("then the connection broke", true))] {
        let ledger = ledger_ended(&plan, &[0; 5], end);
        let report = examine(&ledger, &mut Memory::default()).unwrap();
        assert_eq!(report.verdict(), Verdict::Untested, "{end:?}");
        assert!(report.in_words().contains("acknowledged nothing"));
    }
}

#[test]
fn the_findings_are_printed_by_name() {
    let plan = plan(1);
    let mut memory = Memory::whole(&plan, &COUNTS);
    memory.spoil(&plan.name(0, 0), 9 * 256);
    let report = examine(&ledger(&plan, &COUNTS), &mut memory).unwrap();
    let printed = serde_json::to_value(report.findings()).unwrap();
    assert_eq!(printed["verdict"], "lost");
    assert_eq!(printed["losses"]["torn"], 1);
    assert_eq!(printed["ledger_tail_torn"], false);
    assert_eq!(printed["overwritten_at_the_cut"], 0);
    assert!(printed["checked"].as_u64() > Some(0));
    assert_eq!(printed["losses"]["old-name"], 0);
    assert_eq!(printed["items"][0]["loss"], "torn");
    assert_eq!(printed["items_left_out"], 0);
}

#[test]
fn the_age_of_a_loss_is_reported() {
    let plan = plan(1);
    let mut memory = Memory::whole(&plan, &COUNTS);
    memory.spoil(&plan.name(0, 0), 9 * 256);
    let mut report = examine(&ledger(&plan, &COUNTS), &mut memory).unwrap();
    let ack = Ack {
        file: 0,
        first: 9,
        count: 1,
        time: 1009,
        latency: 1,
        modified: None,
    };
    report.acknowledged_at(&ack);
    assert_eq!(report.findings().oldest_lost_us, Some(30));
    let words = report.in_words();
    assert!(words.contains("LOST: 1 acknowledged"), "{words}");
    assert!(
        words.contains("record 9, acknowledged 0.0 ms before"),
        "{words}"
    );
}

#[test]
fn what_cannot_be_looked_at_is_no_verdict() {
    struct Closed;
    impl Source for Closed {
        fn read(&mut self, _: &str, _: u64, _: u32) -> Result<Vec<u8>, Fault> {
            Err(Fault::Unknown("ACCESS_DENIED".into()))
        }
        fn read_stream(&mut self, _: &str, _: u64, _: u32) -> Result<Vec<u8>, Fault> {
            Err(Fault::Unknown("ACCESS_DENIED".into()))
        }
        fn modified(&mut self, _: &str) -> Result<u64, Fault> {
            Err(Fault::Unknown("ACCESS_DENIED".into()))
        }
        fn names(&mut self) -> Result<BTreeSet<String>, String> {
            Ok(BTreeSet::new())
        }
        fn piece(&self) -> u32 {
            1000
        }
    }
    assert!(examine(&ledger(&plan(1), &COUNTS), &mut Closed).is_err());
}

proptest! {
    /// A prefix of what was issued, at least what was acknowledged, is right at every length.
    #[test]
    fn an_honest_disk_is_never_accused(
        acknowledged in prop::collection::vec(0_u64..60, 5),
        more in prop::collection::vec(0_u64..3, 5),
        batch in 1_u32..4,
    ) {
        let plan = plan(batch);
        let issued: Vec<u64> = acknowledged.iter().zip(&more).map(|(a, m)| a + m).collect();
        let mut memory = Memory::whole(&plan, &issued);
        let report = examine(&ledger(&plan, &acknowledged), &mut memory).unwrap();
        prop_assert!(report.verdict() != Verdict::Lost, "{}", report.in_words());
    }

    /// A disk that lost the last acknowledged record of any file is found out.
    #[test]
    fn a_lying_disk_is_always_found(counts in prop::collection::vec(1_u64..60, 5), liar in 0_u32..5) {
        let plan = plan(1);
        let mut kept = counts.clone();
        kept[liar as usize] -= 1;
        let mut memory = Memory::whole(&plan, &kept);
        let report = examine(&ledger(&plan, &counts), &mut memory).unwrap();
        prop_assert!(!is_good(&report));
    }
}
