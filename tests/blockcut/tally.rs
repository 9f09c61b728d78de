//! Counts over the cuts of one file system under one policy, and what they come to.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::json;

use crate::judge::{Judge, Verdict};
use crate::record::{Cell, DATA, Kind, Promise, Value};
use crate::round::{Outcome, Recorded, Task};
use crate::server::Timeliness;

/// How many requests to the device are listed before and after an operation.
const REQUESTS_AROUND: usize = 12;
/// Most findings that are described in words.
const WORDS_MAX: usize = 60;
/// The gauge's age is in whole milliseconds.
const AGE_GRAIN: Duration = Duration::from_millis(1);

/// The expectation of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Nothing that a FLUSH or write-through answer promised is lost.
    Promises,
    /// Nothing answered is lost.
    Answers,
    /// Nothing answered is lost that is older, and no more bytes. A sync that takes longer than
    /// what is left of the bound cannot be undone: then what is lost is *late*, if the server
    /// counted it as beyond its bound and it is no older than that sync explains.
    Bound(Duration, u64),
    /// Losses, never above the gauge.
    Gauge,
    /// To be counted only.
    Counted,
}

impl Expected {
    /// By the policy's name, as in the configuration.
    pub(crate) fn of(policy: &str) -> Option<Self> {
        Some(match policy {
            "honor" => Self::Promises,
            "strict-sync" => Self::Answers,
            "treat-host-as-stable-storage" => Self::Gauge,
            "strict-sync-yes" | "strict-sync-no" | "sync-always" => Self::Counted,
            bounded => {
                let (delay, bytes) = bounded.strip_prefix("bounded:")?.split_once(',')?;
                let delay = Duration::from_millis(delay.strip_suffix("ms")?.parse().ok()?);
                let bytes: u64 = bytes.strip_suffix("MiB")?.parse().ok()?;
                Self::Bound(delay, bytes << 20)
            }
        })
    }
}

/// Counts.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
    pub(crate) check_seconds: f64,
    pub(crate) operations: usize,
    /// Answers with a promise, by kind: how many, and how many were missing on some image.
    pub(crate) promises: BTreeMap<&'static str, (usize, usize)>,
    pub(crate) flushes: usize,
    pub(crate) writes: usize,
    pub(crate) images: BTreeMap<&'static str, usize>,
    pub(crate) served: usize,
    pub(crate) cuts: usize,
    pub(crate) unreadable: usize,
    /// Answers missing after the death of the process alone.
    pub(crate) died: usize,
    /// Cuts after which a promise (as under `honor`) was broken; anything answered was missing.
    pub(crate) cuts_promise: usize,
    pub(crate) cuts_answer: usize,
    pub(crate) lost_promises: (usize, usize),
    pub(crate) lost_bytes: (u64, u64),
    pub(crate) oldest: Duration,
    pub(crate) gauges: usize,
    pub(crate) gauge_exceeded: usize,
    /// Most bytes reported by the gauge; most lost in percent of what it reported.
    pub(crate) gauge_bytes: u64,
    pub(crate) gauge_percent: u64,
    pub(crate) violations: usize,
    /// Images of which the simulator's oracle was asked, and what it found broken.
    pub(crate) opinions: (usize, usize),
    /// Images that broke a promise of `honor`'s according to one of the two oracles only.
    pub(crate) disagreed: usize,
    /// Losses beyond a bound that a slow sync explains, and the oldest of them.
    pub(crate) late: (usize, Duration),
    /// Times that the server found itself beyond its bound; its slowest sync.
    pub(crate) told_late: u64,
    pub(crate) slowest_sync: Duration,
    pub(crate) foreign: usize,
    pub(crate) failures: BTreeMap<String, usize>,
    /// Where losses are only counted: what was missing first, image by image.
    pub(crate) missing: BTreeMap<String, usize>,
    pub(crate) words: Vec<String>,
}

impl Tally {
    fn say(&mut self, what: String) {
        if self.words.len() < WORDS_MAX {
            self.words.push(what);
        }
    }

    /// Adds what a round recorded, and which of its promises turned out broken.
    pub(crate) fn round(&mut self, recorded: &Recorded, broken: &BTreeSet<usize>) {
        self.rounds += 1;
        self.operations += recorded.history.operations.len();
        self.told_late += recorded.timeliness.exceeded;
        self.slowest_sync = self.slowest_sync.max(recorded.timeliness.slowest_sync);
        self.flushes += recorded.flushes();
        self.writes += recorded.end - recorded.begin - recorded.flushes();
        for (number, operation) in recorded.history.operations.iter().enumerate() {
            if operation.promise != Promise::Nothing && operation.acknowledged.is_some() {
                let count = self.promises.entry(operation.kind.name()).or_default();
                count.0 += 1;
                count.1 += usize::from(broken.contains(&number));
            }
        }
        for (what, count) in &recorded.history.failures {
            *self.failures.entry(what.clone()).or_default() += count;
        }
    }

    /// Adds a cut.
    pub(crate) fn cut(
        &mut self,
        task: &Task,
        expected: Expected,
        timeliness: Timeliness,
        judge: &Judge<'_>,
        outcome: Result<Outcome, String>,
    ) {
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(error) => {
                self.unreadable += 1;
                self.say(format!("seed {}: {error}", task.plan.seed));
                return;
            }
        };
        if outcome.served {
            self.served += 1;
        } else {
            self.cuts += 1;
            *self.images.entry(outcome.kept.name()).or_default() += 1;
            let verdict = &outcome.verdict;
            self.cuts_promise += usize::from(!verdict.promised.is_empty());
            self.cuts_answer += usize::from(!verdict.answered.is_empty());
            let lost = verdict.promised.len();
            self.lost_promises.0 += lost;
            self.lost_promises.1 = self.lost_promises.1.max(lost);
            self.lost_bytes.0 += verdict.bytes;
            self.lost_bytes.1 = self.lost_bytes.1.max(verdict.bytes);
            self.oldest = self.oldest.max(verdict.oldest);
        }
        self.violations(task, expected, timeliness, judge, &outcome);
        self.gauge(task, &outcome);
        self.opinion(task, judge, &outcome);
    }

    fn opinion(&mut self, task: &Task, judge: &Judge<'_>, outcome: &Outcome) {
        let Some((opinion, honor)) = &outcome.opinion else {
            return;
        };
        let (seed, entry) = (task.plan.seed, outcome.cut.entry);
        let place = format!(
            "seed {seed} {} cut before entry {entry}",
            outcome.kept.name()
        );
        self.opinions.0 += 1;
        self.opinions.1 += opinion.len();
        for broken in opinion {
            self.say(format!("{place}: oracle: {broken}"));
            self.story(judge, broken);
        }
        // By the measure of `honor` both must see losses where the policy is laxer.
        let seen = outcome.verdict.promised.len();
        if (seen > 0) == honor.is_empty() {
            self.disagreed += 1;
            self.say(format!(
                "{place}: {seen} promises lost, the other oracle: {} broken; {:?}",
                honor.len(),
                outcome.verdict.missing,
            ));
            for broken in honor {
                self.say(format!("  by the other oracle: {broken}"));
                self.story(judge, broken);
            }
        }
    }

    /// Adds what was done under the names and to the objects that a finding speaks of.
    fn story(&mut self, judge: &Judge<'_>, finding: &str) {
        let words: Vec<&str> = finding
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|word| word.len() >= 7 && word.ends_with(|c: char| c.is_ascii_digit()))
            .collect();
        let about = |(cell, value): &(Cell, Value)| {
            let path =
                matches!(value, Value::Path(path) if words.iter().any(|w| path.ends_with(w)));
            let object = cell.object().to_string();
            matches!(cell, Cell::Name(_)) && (path || words.contains(&&*object))
        };
        for (number, operation) in judge.history.operations.iter().enumerate() {
            let effects: Vec<_> = operation.effects.iter().filter(|e| about(e)).collect();
            if !effects.is_empty() {
                let kind = operation.kind.name();
                let (issued, answered) = (operation.issued, operation.acknowledged);
                let logs = (issued.log, answered.map(|at| at.log));
                self.say(format!("  #{number} {kind}, log {logs:?}: {effects:?}"));
            }
        }
    }

    fn violations(
        &mut self,
        task: &Task,
        expected: Expected,
        timeliness: Timeliness,
        judge: &Judge<'_>,
        outcome: &Outcome,
    ) {
        let verdict = &outcome.verdict;
        let place = format!(
            "seed {} {} cut before entry {} at {:?}{}",
            task.plan.seed,
            outcome.kept.name(),
            outcome.cut.entry,
            outcome.cut.at,
            if outcome.served {
                ", through the server"
            } else {
                ""
            },
        );
        for foreign in &verdict.foreign {
            self.foreign += 1;
            self.say(format!("{place}: foreign: {foreign}"));
        }
        let older = |number: &usize, delay: Duration| {
            let at = judge.history.operations[*number].acknowledged;
            at.is_some_and(|at| at.at + delay < outcome.cut.at)
        };
        let answers = verdict.answered.iter().copied();
        let broken: BTreeSet<usize> = match expected {
            Expected::Promises => verdict.promised.iter().copied().collect(),
            Expected::Answers => answers.chain(verdict.promised.iter().copied()).collect(),
            Expected::Bound(delay, _) => answers.filter(|n| older(n, delay)).collect(),
            Expected::Gauge | Expected::Counted => BTreeSet::new(),
        };
        if expected == Expected::Counted {
            for number in &verdict.promised {
                self.missing(judge, *number, &verdict.missing[number]);
            }
        }
        if let Expected::Bound(_, bytes) = expected
            && verdict.bytes > bytes
        {
            self.violations += 1;
            self.say(format!(
                "{place}: {} bytes lost, bound {bytes}",
                verdict.bytes
            ));
        }
        for number in broken {
            let operation = &judge.history.operations[number];
            let answered = operation.acknowledged.map_or(Duration::ZERO, |at| at.at);
            let age = outcome.cut.at.saturating_sub(answered);
            if let Expected::Bound(delay, _) = expected
                && timeliness.exceeded > 0
                && age <= delay + timeliness.slowest_sync
            {
                self.late = (self.late.0 + 1, self.late.1.max(age));
                continue;
            }
            self.violations += 1;
            let why = verdict.missing.get(&number).map_or("", |(_, why)| why);
            self.say(format!(
                "{place}: LOST #{number} {}, answered {age:?} before: {why}",
                operation.kind.name()
            ));
        }
    }

    /// Adds the operations that promised something while the device made nothing stable. No cut is needed to see them.
    pub(crate) fn unsynced(&mut self, task: &Task, recorded: &Recorded, unsynced: &[usize]) {
        self.violations += unsynced.len();
        let seed = task.plan.seed;
        for number in unsynced {
            let kind = recorded.history.operations[*number].kind.name();
            self.say(format!(
                "seed {seed}: no sync before the answer to #{number} {kind}"
            ));
        }
        self.requests(recorded, unsynced);
    }

    /// Lists the requests to the device around the first of the operations whose promise is `broken`.
    pub(crate) fn requests(&mut self, recorded: &Recorded, broken: &[usize]) {
        let Some(number) = broken.first() else {
            return;
        };
        let operation = &recorded.history.operations[*number];
        let first = operation.issued.log.saturating_sub(REQUESTS_AROUND);
        let end = operation.acknowledged.map_or(first, |at| at.log) + REQUESTS_AROUND;
        let (issued, answered) = (operation.issued, operation.acknowledged);
        self.say(format!(
            "  #{number} issued {issued:?}, answered {answered:?}"
        ));
        let entries = recorded.log.entries().iter().enumerate();
        for (number, entry) in entries.take(end).skip(first) {
            self.say(format!("    request {number}: {entry:?}"));
        }
    }

    /// Adds what the death of the process alone left: nothing answered may be missing, whatever
    /// the policy.
    pub(crate) fn died(&mut self, task: &Task, verdict: Option<Verdict>) {
        let verdict = verdict.unwrap_or_default();
        for number in &verdict.answered {
            self.died += 1;
            let why = &verdict.missing[number].1;
            let seed = task.plan.seed;
            self.say(format!(
                "seed {seed}: the process died: LOST #{number}: {why}"
            ));
        }
        for foreign in &verdict.foreign {
            self.died += 1;
            self.say(format!("the process died: foreign: {foreign}"));
        }
    }

    /// Says of what kind of request what was missing, once for each kind.
    fn missing(&mut self, judge: &Judge<'_>, number: usize, (cell, why): &(Cell, String)) {
        let kind = judge.history.operations[number].kind.name();
        let what = match cell {
            Cell::Name(_) => "name",
            Cell::Size(_, DATA) | Cell::Unit(_, DATA, _) => "data",
            Cell::Size(..) | Cell::Unit(..) => "stream",
            Cell::Attributes(_) => "attributes",
            Cell::Written(_) => "modification time",
            Cell::Mark(_) => "attribute that the host set",
            Cell::Ea(_) => "extended attribute",
            Cell::Descriptor(_) => "security descriptor",
            Cell::Sparse(_) => "sparse",
        };
        let count = self.missing.entry(format!("{kind}: {what}")).or_default();
        *count += 1;
        if *count == 1 {
            self.say(format!("#{number} {kind} lost: {why}"));
        }
    }

    fn gauge(&mut self, task: &Task, outcome: &Outcome) {
        let Some(gauge) = outcome.gauge.filter(|_| !outcome.served) else {
            return;
        };
        self.gauges += 1;
        self.gauge_bytes = self.gauge_bytes.max(gauge.bytes);
        let verdict = &outcome.verdict;
        let percent = verdict.bytes * 100 / gauge.bytes.max(1);
        self.gauge_percent = self.gauge_percent.max(percent);
        if verdict.bytes > gauge.bytes
            || verdict.inodes as u64 > gauge.inodes
            || verdict.oldest > gauge.oldest + AGE_GRAIN
        {
            self.gauge_exceeded += 1;
            self.say(format!(
                "seed {} cut before entry {}: lost {} bytes of {} inodes, oldest {:?}; told {gauge:?}; {:?}",
                task.plan.seed,
                outcome.cut.entry,
                verdict.bytes,
                verdict.inodes,
                verdict.oldest,
                verdict.missing,
            ));
        }
    }

    /// Whether all was as expected.
    pub(crate) fn passed(&self, expected: Expected) -> bool {
        let sound = self.foreign == 0
            && self.unreadable == 0
            && self.died == 0
            && self.opinions.1 == 0
            && self.disagreed == 0
            && self.cuts > 0
            // Nothing promised, nothing proven.
            && self.promised() > 0;
        let told = self.violations == 0 && self.gauge_exceeded == 0 && self.failures.is_empty();
        match expected {
            Expected::Counted => self.cuts > 0,
            // A rig that sees no loss where there must be some proves nothing.
            Expected::Gauge => sound && told && self.cuts_answer > 0 && self.gauges > 0,
            _ => sound && told,
        }
    }

    /// Answers that carried a promise.
    pub(crate) fn promised(&self) -> usize {
        self.promises.values().map(|(all, _)| all).sum()
    }

    fn of(&self, kinds: &[Kind]) -> (usize, usize) {
        let each = kinds
            .iter()
            .filter_map(|kind| self.promises.get(kind.name()));
        each.fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1))
    }

    pub(crate) fn json(&self, fs: &str, server: &str, policy: &str) -> serde_json::Value {
        let promises: serde_json::Value = self
            .promises
            .iter()
            .map(|(kind, (all, lost))| ((*kind).to_owned(), json!({"answered": all, "lost": lost})))
            .collect::<serde_json::Map<_, _>>()
            .into();
        json!({
            "fs": fs, "server": server, "policy": policy,
            "rounds": self.rounds, "seconds": self.seconds, "check_seconds": self.check_seconds,
            "operations": self.operations, "promises": promises,
            "cuts": self.cuts, "images": self.images, "read_through_server": self.served,
            "unreadable": self.unreadable, "foreign": self.foreign,
            "violations": self.violations,
            "oracle_asked": self.opinions.0, "oracle_violations": self.opinions.1,
            "oracles_disagree": self.disagreed, "lost_with_process": self.died,
            "cuts_with_broken_promise": self.cuts_promise,
            "cuts_with_anything_lost": self.cuts_answer,
            "lost_promises_mean": self.lost_promises.0 as f64 / self.cuts.max(1) as f64,
            "lost_promises_max": self.lost_promises.1,
            "lost_bytes_mean": self.lost_bytes.0 / self.cuts.max(1) as u64,
            "lost_bytes_max": self.lost_bytes.1,
            "late": self.late.0, "late_oldest_ms": self.late.1.as_millis() as u64,
            "told_late": self.told_late, "slowest_sync_ms": self.slowest_sync.as_millis() as u64,
            "oldest_lost_ms": self.oldest.as_millis() as u64,
            "gauges": self.gauges, "gauge_exceeded": self.gauge_exceeded,
            "gauge_bytes_max": self.gauge_bytes, "gauge_percent_lost_max": self.gauge_percent,
            "device_flushes": self.flushes, "device_writes": self.writes,
            "device_flushes_per_promise": self.flushes as f64 / self.promised().max(1) as f64,
            "failures": self.failures, "missing": self.missing, "findings": self.words,
        })
    }

    /// A row of [`HEAD`].
    pub(crate) fn row(&self, fs: &str, server: &str, policy: &str) -> String {
        let (flushes, lost) = self.of(&[Kind::FlushFile]);
        let (streams, streams_lost) = self.of(&[Kind::FlushSmallStream, Kind::FlushBigStream]);
        let (dirs, dirs_lost) = self.of(&[Kind::FlushDirectory, Kind::FlushRoot]);
        let (through, through_lost) = self.of(&[Kind::WriteThrough]);
        let percent = |part: usize| 100.0 * part as f64 / self.cuts.max(1) as f64;
        format!(
            "| {server} | {policy} | {fs} | {} | {:.0} % | {lost}/{flushes} | {streams_lost}/{streams} | {dirs_lost}/{dirs} | {through_lost}/{through} | {:.0} % | {} KiB / {} KiB | {} ms | {}/{} | {:.2} |",
            self.cuts,
            percent(self.cuts_promise),
            percent(self.cuts_answer),
            self.lost_bytes.0 / self.cuts.max(1) as u64 / 1024,
            self.lost_bytes.1 / 1024,
            self.oldest.as_millis(),
            self.gauge_exceeded,
            self.gauges,
            self.flushes as f64 / self.promised().max(1) as f64,
        )
    }
}

/// The table's head, Markdown. "Lost" counts answers missing on at least one image.
pub(crate) const HEAD: &str = "\
| server | policy | file system | cuts | cuts with a lost FLUSH or write-through | file FLUSHes lost | stream FLUSHes lost | directory FLUSHes lost | write-through lost | cuts with anything answered lost | bytes lost, mean / most | oldest lost | gauge exceeded | device flushes per promise |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|";
