//! The findings of `check`, in words and as JSON.
//!
//! The fields of [`Findings`] are an interface for scripts, with a schema as those of `durability report`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    Verdict,
    ledger::{Ack, End, Ledger},
};

/// Losses that are listed one by one as JSON; all are counted.
const LISTED_MAX: usize = 10_000;
/// And in words.
const SHOWN_MAX: usize = 20;

/// Defines the losses, each with its word and its meaning.
macro_rules! losses {
    ($($loss:ident: $word:literal, $meaning:literal;)*) => {
        /// How an acknowledged record was lost.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
        #[cfg_attr(test, derive(schemars::JsonSchema))]
        #[serde(rename_all = "kebab-case")]
        pub(super) enum Loss { $(#[doc = $meaning] $loss,)* }

        impl Loss {
            const ALL: &[Self] = &[$(Self::$loss,)*];

            pub(super) fn word(self) -> &'static str {
                match self { $(Self::$loss => $word,)* }
            }

            fn meaning(self) -> &'static str {
                match self { $(Self::$loss => $meaning,)* }
            }
        }
    };
}

losses! {
    Missing: "missing", "not there: past the end of the file, or only zeros";
    Torn: "torn", "damaged: neither this record nor any other";
    Stale: "stale", "an older record is there, which it had replaced";
    Misplaced: "misplaced", "a record of another place is there";
    Absent: "absent", "its file or stream has no name";
    OldName: "old-name", "the name before an acknowledged rename is still there";
    Unreadable: "unreadable", "cannot be read";
    OldTime: "old-time", "the file's modification time is older than the one returned after its FLUSH";
}

/// A record that is lost.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Item {
    /// How it was lost.
    pub(super) loss: Loss,
    /// The file or stream, below the place.
    pub(super) name: String,
    /// The number of the file in the run.
    file: u32,
    /// The number of the record in its file.
    pub(super) sequence: u64,
    /// Whether there are only zeros in its place.
    zeros: bool,
}

/// The output of `check --json`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Findings<'a> {
    #[serde(flatten)]
    report: &'a Report,
    /// The result.
    pub(super) verdict: Verdict,
    /// Records and times that were acknowledged and are lost.
    pub(super) lost: u64,
    /// Their number by kind of loss; each kind is there.
    losses: BTreeMap<Loss, u64>,
    /// Microseconds from the acknowledgement of the oldest of the listed losses to the last acknowledgement.
    pub(super) oldest_lost_us: Option<u64>,
    /// Why `write` ended; null if the ledger does not say.
    write_ended: Option<&'a str>,
    /// Whether that may have been a cut.
    ended_by_cut: Option<bool>,
    /// The losses, at most 10,000.
    pub(super) items: Vec<LostRecord<'a>>,
    /// Losses that are not listed.
    items_left_out: u64,
}

/// One of its losses.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct LostRecord<'a> {
    #[serde(flatten)]
    pub(super) item: &'a Item,
    /// When it was acknowledged, in microseconds since 1970, if the ledger says so.
    acknowledged_us: Option<u64>,
}

/// All that was found.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Report {
    /// The id of the run.
    run: String,
    /// The place that `write` wrote to.
    place: String,
    /// Records that were acknowledged.
    acknowledged: u64,
    #[serde(skip)]
    last_time: u64,
    /// Whether the ledger's last line was being written when it ended.
    #[serde(rename = "ledger_tail_torn")]
    torn_ledger: bool,
    #[serde(skip)]
    end: Option<End>,
    /// Records that were looked for; the others had been replaced.
    pub(super) checked: u64,
    /// Modification times that were looked at.
    pub(super) times_checked: u64,
    /// Whether the server's clock was set back: times from before that were not looked at.
    clock_set_back: bool,
    /// Slots with records that were not acknowledged, or not yet in the ledger.
    pub(super) later: u64,
    /// Slots that a record on its way at the cut was overwriting.
    #[serde(rename = "overwritten_at_the_cut")]
    pub(super) excused: u64,
    #[serde(skip)]
    counts: BTreeMap<Loss, u64>,
    #[serde(skip)]
    items: Vec<Item>,
    /// When what is in `items` was acknowledged, microseconds since 1970, by file and sequence.
    #[serde(skip)]
    times: BTreeMap<(u32, u64), Option<u64>>,
}

impl Report {
    pub(super) fn new(ledger: &Ledger) -> Self {
        Self {
            run: ledger.plan.run().to_string(),
            place: ledger.plan.place.clone(),
            acknowledged: ledger.acknowledged,
            last_time: ledger.last_time,
            torn_ledger: ledger.torn,
            end: ledger.end.clone(),
            checked: 0,
            times_checked: 0,
            clock_set_back: ledger.clock_set_back,
            later: 0,
            excused: 0,
            counts: BTreeMap::new(),
            items: Vec::new(),
            times: BTreeMap::new(),
        }
    }

    /// Notes that record `sequence` of `file` is lost.
    pub(super) fn lose(&mut self, loss: Loss, name: &str, file: u32, sequence: u64, zeros: bool) {
        *self.counts.entry(loss).or_default() += 1;
        if self.items.len() < LISTED_MAX {
            self.items.push(Item {
                loss,
                name: name.to_owned(),
                file,
                sequence,
                zeros,
            });
            self.times.insert((file, sequence), None);
        }
    }

    /// Notes when records were acknowledged, for those that are lost.
    pub(super) fn acknowledged_at(&mut self, ack: &Ack) {
        let from = (ack.file, ack.first);
        let to = (ack.file, ack.first.saturating_add(ack.count));
        for (_, time) in self.times.range_mut(from..to) {
            *time = Some(ack.time);
        }
    }

    fn time(&self, item: &Item) -> Option<u64> {
        let time = self.times.get(&(item.file, item.sequence));
        time.copied().flatten()
    }

    /// Whether nothing was acknowledged, or no cut can have ended the run: then that all is there proves nothing.
    fn is_untested(&self) -> bool {
        self.acknowledged == 0 || self.end.as_ref().is_some_and(|end| !end.cut)
    }

    pub(super) fn verdict(&self) -> Verdict {
        match self.counts.is_empty() {
            false => Verdict::Lost,
            true if self.is_untested() => Verdict::Untested,
            true => Verdict::AllThere,
        }
    }

    fn lost(&self) -> u64 {
        self.counts.values().sum()
    }

    /// The time in microseconds from the acknowledgement of the oldest lost record to the last acknowledgement.
    fn oldest(&self) -> Option<u64> {
        let times = self.times.values().filter_map(|time| *time);
        times.min().map(|time| self.last_time.saturating_sub(time))
    }

    pub(super) fn findings(&self) -> Findings<'_> {
        let counts = Loss::ALL.iter();
        let counts = counts.map(|loss| (*loss, self.counts.get(loss).copied().unwrap_or(0)));
        let items = self.items.iter();
        let items = items.map(|item| LostRecord {
            item,
            acknowledged_us: self.time(item),
        });
        Findings {
            report: self,
            verdict: self.verdict(),
            lost: self.lost(),
            losses: counts.collect(),
            oldest_lost_us: self.oldest(),
            write_ended: self.end.as_ref().map(|end| &*end.why),
            ended_by_cut: self.end.as_ref().map(|end| end.cut),
            items: items.collect(),
            items_left_out: self.lost() - self.items.len() as u64,
        }
    }

    pub(super) fn in_words(&self) -> String {
        let mut text = format!(
            "run {} to {}\n{} records acknowledged, {} of them not replaced by later ones: \
             looked for\n{} modification times compared\n",
            self.run, self.place, self.acknowledged, self.checked, self.times_checked
        );
        if self.clock_set_back {
            line!(text; "the server's clock was set back during the run: times from before that were not compared");
        }
        if self.torn_ledger {
            line!(text; "the ledger's last line is torn: it was being written");
        }
        if self.end.is_none() {
            line!(text; "the ledger does not say how the run ended: if not by a cut, nothing is tested");
        }
        if self.later > 0 {
            line!(text; "{} places hold records that the ledger has not: nothing wrong", self.later);
        }
        if self.excused > 0 {
            let torn = self.excused;
            line!(text; "{torn} places were being overwritten at the cut, and are torn: nothing wrong");
        }
        match self.verdict() {
            Verdict::AllThere => {
                line!(text; "all there: nothing that was acknowledged is lost");
                if self.end.is_some() {
                    line!(text; "the connection broke, as it does at a cut: if no power was cut, nothing is tested");
                }
            }
            Verdict::Untested if self.acknowledged == 0 => {
                line!(text; "NOTHING WAS TESTED: the server acknowledged nothing");
            }
            Verdict::Untested => {
                let why = self.end.as_ref().map_or("", |end| &end.why);
                line!(text; "NOTHING WAS TESTED: no cut ended the run ({why}). All is there, as it is without \
                      any flush: let `write` run until the power is cut");
            }
            Verdict::Lost => self.losses_in_words(&mut text),
        }
        text
    }

    fn losses_in_words(&self, text: &mut String) {
        line!(*text; "LOST: {} acknowledged records or times", self.lost());
        if self.counts.get(&Loss::Absent) == Some(&self.checked) {
            line!(*text; "none of the files is there: is this their place, and is its disk mounted?");
        }
        for (loss, count) in &self.counts {
            line!(*text; "  {:<11}{count:>8}  {}", loss.word(), loss.meaning());
        }
        for item in self.items.iter().take(SHOWN_MAX) {
            line!(*text; "    {}", item.in_words(self.time(item), self.last_time));
        }
        let more = self.lost().saturating_sub(SHOWN_MAX as u64);
        if more > 0 {
            line!(*text; "    and {more} more (--json lists {LISTED_MAX})");
        }
        if let Some(micros) = self.oldest() {
            let ms = micros as f64 / 1000.0;
            line!(*text; "the oldest of them had been acknowledged {ms:.1} ms before the last");
        }
    }
}

impl Item {
    fn in_words(&self, time: Option<u64>, last: u64) -> String {
        let mut text = format!(
            "{:<11}{} record {}",
            self.loss.word(),
            self.name,
            self.sequence
        );
        if self.zeros {
            text += " (zeros)";
        }
        if let Some(time) = time {
            let before = last.saturating_sub(time) as f64 / 1000.0;
            text += &format!(", acknowledged {before:.1} ms before the last");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_is_that_of_the_type() {
        crate::schemas::is_in_file::<Findings<'_>>("verify-flush-check");
    }
}
