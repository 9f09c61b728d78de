//! The ledger: the acknowledged records, one line each, kept away from the server.
//!
//! A line is a JSON object, a space, the CRC-64/XZ of the object's bytes as 16 hexadecimal digits, and a line feed.
//! The first is `{"run":PLAN}`; then `{"ack":{"f":FILE,"s":FIRST,"n":COUNT,
//! "t":MICROSECONDS,"us":LATENCY,"m":TIME}}` for records FIRST to FIRST+COUNT-1, in order and without gaps in each
//! file (TIME: the file's modification time as the server returned it after the FLUSH, 100 ns since 1601; left out
//! where there was no FLUSH); `{"end":{"why":TEXT,"acknowledged":N,"cut":BOOL}}` if `write` could still say why it
//! ended.
//!
//! A tail that is no line is what a cut leaves of a ledger, and is reported, not refused; a bad line before a good
//! one is damage. The ledger does not decide what a loss is.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, Read},
};

use serde::{Deserialize, Serialize};

use super::{
    plan::{Kind, Plan},
    record::crc64,
};

/// Longest line, bytes.
const LINE_MAX: u64 = 8192;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ack {
    #[serde(rename = "f")]
    pub(super) file: u32,
    #[serde(rename = "s")]
    pub(super) first: u64,
    #[serde(rename = "n")]
    pub(super) count: u64,
    /// Microseconds since 1970.
    #[serde(rename = "t")]
    pub(super) time: u64,
    /// The latency of the FLUSH, or of the write-through WRITE, microseconds.
    #[serde(rename = "us")]
    pub(super) latency: u64,
    /// The file's modification time as the server returned it after the FLUSH: a FILETIME.
    #[serde(rename = "m", default, skip_serializing_if = "Option::is_none")]
    pub(super) modified: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Line {
    /// The first.
    Run(Plan),
    /// Records that were acknowledged.
    Ack(Ack),
    /// The last, when there was time for it.
    End {
        /// For people.
        why: String,
        /// Records, of all files.
        acknowledged: u64,
        /// The connection broke, or the server lost its disk. Older ledgers say it in `why` only.
        #[serde(default)]
        cut: bool,
    },
}

/// How [`Line::End`] of ledgers without `cut` begins where the connection broke.
pub(super) const BROKE: &str = "then the connection broke";

/// Why `write` ended, as it said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct End {
    pub(super) why: String,
    /// The connection broke, or the server lost its disk: a cut of either's power looks so.
    pub(super) cut: bool,
}

/// A modification time that the server returned after a FLUSH.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FlushedTime {
    /// The last record under that FLUSH.
    pub(super) sequence: u64,
    /// A FILETIME.
    pub(super) modified: u64,
}

impl Line {
    /// The line, with its checksum and line feed.
    pub(super) fn encode(&self) -> Result<String, String> {
        let text = serde_json::to_string(self).map_err(|error| error.to_string())?;
        Ok(format!("{text} {:016x}\n", crc64([text.as_bytes()])))
    }

    /// Reads a line without its line feed; `None` for anything that is not whole.
    fn decode(line: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?;
        let (text, sum) = line.rsplit_once(' ')?;
        if sum != format!("{:016x}", crc64([text.as_bytes()])) {
            return None;
        }
        serde_json::from_str(text).ok()
    }
}

#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) plan: Plan,
    /// Acknowledged records of each file: sequences 0 to below this.
    pub(super) next: Vec<u64>,
    /// Of all files.
    pub(super) acknowledged: u64,
    /// Time of the last acknowledgement, microseconds since 1970.
    pub(super) last_time: u64,
    /// The last bytes are no line.
    pub(super) torn: bool,
    /// The last time of each file, and of each slot where that is a file of its own.
    pub(super) times: BTreeMap<(u32, u64), FlushedTime>,
    /// The last time of each file, in whichever slot.
    newest: BTreeMap<u32, u64>,
    /// The server's clock was set back: a time that it returned before may be later than that of a WRITE that came
    /// after, so `times` has none of those.
    pub(super) clock_set_back: bool,
    /// Absent where `write` could not say it any more.
    pub(super) end: Option<End>,
}

/// Reads a ledger that anybody may have spoilt; `each` sees all acknowledgements in order.
pub(super) fn read(mut from: impl BufRead, mut each: impl FnMut(&Ack)) -> Result<Ledger, String> {
    let mut ledger: Option<Ledger> = None;
    let mut bad = None;
    let mut number = 0_u64;
    while let Some(bytes) = line(&mut from).map_err(|error| error.to_string())? {
        number += 1;
        let Some(line) = bytes.strip_suffix(b"\n").and_then(Line::decode) else {
            bad.get_or_insert(number);
            continue;
        };
        if let Some(bad) = bad {
            return Err(format!("line {bad} is damaged, and others follow it"));
        }
        let refuse = |why: &str| Err(format!("line {number}: {why}"));
        match (line, &mut ledger) {
            (Line::Run(plan), None) => {
                let plan = plan
                    .checked()
                    .map_err(|why| format!("line {number}: {why}"))?;
                ledger = Some(Ledger {
                    next: vec![0; plan.files as usize],
                    last_time: plan.time,
                    plan,
                    acknowledged: 0,
                    torn: false,
                    times: BTreeMap::new(),
                    newest: BTreeMap::new(),
                    clock_set_back: false,
                    end: None,
                });
            }
            (Line::Run(_), Some(_)) => return refuse("a second run in one ledger"),
            (_, None) => return refuse("the first line does not say what was run"),
            (Line::Ack(ack), Some(ledger)) => {
                if let Err(why) = ledger.add(&ack) {
                    return refuse(why);
                }
                each(&ack);
            }
            (Line::End { why, cut, .. }, Some(ledger)) => {
                let cut = cut || why.starts_with(BROKE);
                ledger.end = Some(End { why, cut });
            }
        }
    }
    let mut ledger = ledger.ok_or("there is no whole line in it")?;
    ledger.torn = bad.is_some();
    Ok(ledger)
}

impl Ledger {
    fn add(&mut self, ack: &Ack) -> Result<(), &'static str> {
        let next = self
            .next
            .get_mut(ack.file as usize)
            .ok_or("no such file in this run")?;
        if ack.first != *next {
            return Err("records are left out or come twice");
        }
        if ack.count == 0 || ack.count > self.plan.batch(ack.file) {
            return Err("more records than there are under one flush, or none");
        }
        *next = next.checked_add(ack.count).ok_or("sequence too large")?;
        if let Some(modified) = ack.modified {
            let sequence = *next - 1;
            let kind = self.plan.kind(ack.file);
            let slot = match kind {
                Kind::Fresh => sequence % kind.slots(),
                _ => 0,
            };
            let before = self.newest.insert(ack.file, modified);
            if before.is_some_and(|before| modified < before) {
                self.clock_set_back = true;
                self.times.clear();
            }
            let told = FlushedTime { sequence, modified };
            self.times.insert((ack.file, slot), told);
        }
        self.acknowledged = self.acknowledged.saturating_add(ack.count);
        self.last_time = self.last_time.max(ack.time);
        Ok(())
    }
}

/// The next line with its line feed; what is longer than [`LINE_MAX`] comes in pieces, none of which is a whole line.
fn line(from: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    from.by_ref().take(LINE_MAX).read_until(b'\n', &mut bytes)?;
    Ok((!bytes.is_empty()).then_some(bytes))
}

#[cfg(test)]
mod tests {
    use super::super::record::RunId;
    use super::*;
    use proptest::prelude::*;

    fn plan() -> Plan {
        let plan = Plan {
            run: RunId([1; 16]).to_string(),
            files: 2,
            batch: 4,
            place: "//h/s/a folder".into(),
            time: 5,
            ..Plan::sample()
        };
        plan.checked().unwrap()
    }

    fn ack(file: u32, first: u64, count: u64) -> Line {
        Line::Ack(Ack {
            file,
            first,
            count,
            time: 100 + first,
            latency: 7,
            modified: (file == 0).then_some(500 + first),
        })
    }

    fn text(lines: &[Line]) -> Vec<u8> {
        let lines: Vec<String> = lines.iter().map(|line| line.encode().unwrap()).collect();
        lines.concat().into_bytes()
    }

    fn parse(bytes: &[u8]) -> Result<Ledger, String> {
        read(bytes, |_| ())
    }

    fn whole() -> Vec<u8> {
        let why = "then the connection broke (why)".into();
        text(&[
            Line::Run(plan()),
            ack(0, 0, 4),
            ack(1, 0, 1),
            ack(0, 4, 2),
            Line::End {
                why,
                acknowledged: 7,
                cut: true,
            },
        ])
    }

    #[test]
    fn what_was_written_is_read() {
        let mut seen = Vec::new();
        let ledger = read(&whole()[..], |ack| seen.push((ack.file, ack.first))).unwrap();
        assert_eq!(ledger.plan, plan());
        assert_eq!((ledger.next, ledger.acknowledged), (vec![6, 1], 7));
        assert_eq!((ledger.last_time, ledger.torn), (104, false));
        assert!(ledger.end.unwrap().cut);
        let told = FlushedTime {
            sequence: 5,
            modified: 504,
        };
        assert_eq!(ledger.times, BTreeMap::from([((0, 0), told)]));
        assert_eq!(seen, [(0, 0), (1, 0), (0, 4)]);
    }

    /// The first format, of early builds: without times, and without a line for the end.
    #[test]
    fn older_ledgers_are_read() {
        let line = |text: &str| format!("{text} {:016x}\n", crc64([text.as_bytes()]));
        for (why, cut) in [
            ("then the connection broke (TimedOut)", true),
            ("ended as asked", false),
        ] {
            let mut text = Line::Run(plan()).encode().unwrap();
            text += &line("{\"ack\":{\"f\":0,\"s\":0,\"n\":1,\"t\":9,\"us\":1}}");
            text += &line(&format!(
                "{{\"end\":{{\"why\":\"{why}\",\"acknowledged\":1}}}}"
            ));
            let ledger = parse(text.as_bytes()).unwrap();
            assert_eq!((ledger.acknowledged, ledger.times.len()), (1, 0));
            assert_eq!(ledger.end.unwrap().cut, cut, "{why}");
        }
    }

    #[test]
    fn a_torn_tail_is_reported() {
        let mut bytes = text(&[Line::Run(plan()), ack(0, 0, 4), ack(0, 4, 1)]);
        let first = text(&[Line::Run(plan()), ack(0, 0, 4)]).len();
        for length in first + 1..bytes.len() {
            let ledger = parse(&bytes[..length]).unwrap();
            assert_eq!((ledger.acknowledged, ledger.torn), (4, true), "{length}");
        }
        // A file system leaves this where the length was saved and the data not.
        bytes.extend([0; 20_000]);
        let ledger = parse(&bytes).unwrap();
        assert_eq!((ledger.acknowledged, ledger.torn), (5, true));
    }

    #[test]
    fn damage_is_refused() {
        let run = Line::Run(plan());
        for (lines, why) in [
            (vec![], "no whole line"),
            (vec![ack(0, 0, 1)], "first line"),
            (vec![run.clone(), run.clone()], "second run"),
            (vec![run.clone(), ack(0, 1, 1)], "left out"),
            (vec![run.clone(), ack(0, 0, 1), ack(0, 0, 1)], "left out"),
            (vec![run.clone(), ack(2, 0, 1)], "no such file"),
            (vec![run.clone(), ack(0, 0, 0)], "or none"),
            (vec![run.clone(), ack(0, 0, u64::MAX)], "more records"),
        ] {
            let said = parse(&text(&lines)).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
        let mut bytes = whole();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        assert!(parse(&bytes).unwrap_err().contains("damaged"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
            prop_assert!(parse(&bytes).is_err());
        }

        #[test]
        fn a_changed_byte_never_adds_an_acknowledgement(at in 0_usize..600, to: u8) {
            let mut bytes = whole();
            let at = at % bytes.len();
            bytes[at] = to;
            if let Ok(ledger) = parse(&bytes) {
                prop_assert!(ledger.next[0] <= 6 && ledger.next[1] <= 1);
            }
        }

        #[test]
        fn hostile_lines_with_right_checksums_are_refused_or_consistent(
            acks in prop::collection::vec((0_u32..4, 0_u64..6, 0_u64..6), 0..12)
        ) {
            let mut lines = vec![Line::Run(plan())];
            lines.extend(acks.iter().map(|(file, first, count)| ack(*file, *first, *count)));
            if let Ok(ledger) = parse(&text(&lines)) {
                prop_assert_eq!(ledger.next.iter().sum::<u64>(), ledger.acknowledged);
            }
        }
    }
}
