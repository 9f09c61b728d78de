//! `holdfast verify-flush check`: compares what is left with what was acknowledged.
//!
//! A slot is right if it holds the last acknowledged record of the slot or a later one. An overwrite in place may
//! tear the slot of the next records, so such a slot is excused: the records after the last acknowledged one, or
//! after the highest one that is found (a ledger behind a pipe lags, unless it says how the run ended), as many as
//! one FLUSH covers. Nothing else is excused, and a renaming kind never is: its record was flushed before it got its
//! name.
//!
//! A file's modification time is right if it is not older than the one that the server returned after the last
//! acknowledged FLUSH; later WRITEs only make it newer. Where the server's clock was set back during the run, the times
//! from before that are not compared.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    fs::File,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
};

use clap::Args;

use crate::{ReadPassword, print_answer};

use super::{
    Failure, Verdict,
    access::{Access, Place},
    ledger::{self, Ledger},
    plan::{Kind, Plan},
    record::{self, Found},
    report::{Loss, Report},
    source::{Fault, Folder, Share, Source},
};

/// `holdfast verify-flush check ...`
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Where the records are: `//HOST:PORT/SHARE/FOLDER` (without PORT: 445)
    #[arg(required_unless_present = "local", conflicts_with = "local")]
    pub place: Option<Place>,
    #[command(flatten)]
    pub access: Access,
    /// The folder, mounted or the server's own, instead of a share
    #[arg(long, value_name = "PATH")]
    pub local: Option<PathBuf>,
    /// The ledger that `write` made; - is standard input
    #[arg(long, value_name = "FILE")]
    pub ledger: PathBuf,
    /// As JSON, for programs
    #[arg(long)]
    pub json: bool,
}

/// The contents of one slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Slot {
    /// A whole record of this file and slot.
    Whole(u64),
    /// A whole record that belongs elsewhere.
    Misplaced,
    Zeros,
    Torn,
    /// Past the end.
    Missing,
    /// Its file, or its stream, has no name.
    Absent,
    Unreadable,
}

/// `holdfast verify-flush check`.
pub(super) fn check(args: &CheckArgs, password: ReadPassword) -> Result<Verdict, Failure> {
    let text = read_ledger(&args.ledger)?;
    let named = |why: String| of_ledger(&args.ledger, why);
    let ledger = ledger::read(&text[..], |_| ()).map_err(named)?;
    let mut report = match (&args.local, &args.place) {
        (Some(folder), _) => examine(&ledger, &mut Folder(folder.clone()))?,
        (None, Some(place)) => {
            let tree = args.access.login(place, password)?.open()?;
            examine(&ledger, &mut Share::new(tree, place.clone()))?
        }
        (None, None) => return Err("no place is named".into()),
    };
    // Once more, for when the lost ones were acknowledged.
    ledger::read(&text[..], |ack| report.acknowledged_at(ack)).map_err(named)?;
    print_answer(&report.findings(), args.json, || report.in_words())?;
    Ok(report.verdict())
}

/// Largest ledger, bytes: some 20 million acknowledgements.
const LEDGER_MAX: u64 = 2 << 30;

/// The reason why a ledger cannot be used, with a way out.
fn of_ledger(path: &Path, why: impl Display) -> Failure {
    let path = path.display();
    format!("ledger {path}: {why}\n  = name the file that `verify-flush write` made, as it is")
}

fn read_ledger(path: &Path) -> Result<Vec<u8>, Failure> {
    let named = |error: io::Error| of_ledger(path, error);
    let mut from: Box<dyn BufRead> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(BufReader::new(File::open(path).map_err(named)?))
    };
    let mut text = Vec::new();
    let read = io::Read::take(&mut from, LEDGER_MAX + 1);
    io::copy(&mut { read }, &mut text).map_err(named)?;
    if text.len() as u64 > LEDGER_MAX {
        return Err(of_ledger(path, "too large"));
    }
    Ok(text)
}

/// Reads everything that was acknowledged.
fn examine(ledger: &Ledger, source: &mut dyn Source) -> Result<Report, Failure> {
    let names = source.names()?;
    let mut report = Report::new(ledger);
    for (file, next) in (0..).zip(&ledger.next) {
        let one = OneFile {
            plan: &ledger.plan,
            file,
            kind: ledger.plan.kind(file),
            next: *next,
            lags: ledger.torn || ledger.end.is_none(),
        };
        one.judge(&one.read(source)?, &mut report);
        one.old_names(&names, &mut report);
    }
    for ((file, slot), told) in &ledger.times {
        let name = ledger.plan.name(*file, *slot);
        match source.modified(&name) {
            Ok(modified) => {
                report.times_checked += 1;
                if modified < told.modified {
                    report.lose(Loss::OldTime, &name, *file, told.sequence, false);
                }
            }
            // Its records have been reported already.
            Err(Fault::Absent | Fault::Unreadable(_)) => {}
            Err(Fault::Unknown(why)) => return Err(format!("{name}: {why}")),
        }
    }
    Ok(report)
}

/// A file, its acknowledged records below `next`.
struct OneFile<'a> {
    plan: &'a Plan,
    file: u32,
    kind: Kind,
    next: u64,
    /// The ledger may lack acknowledgements that came before the end: it does not say that it has all.
    lags: bool,
}

impl OneFile<'_> {
    /// The last acknowledged record of a slot.
    fn expected(&self, slot: u64) -> Option<u64> {
        let slots = self.kind.slots();
        let last = self.next.checked_sub(1)?;
        let back = (last % slots + slots - slot) % slots;
        last.checked_sub(back)
    }

    /// Whether a record after `highest` was going to this slot.
    fn on_its_way(&self, slot: u64, highest: Option<u64>) -> bool {
        let slots = self.kind.slots();
        let first = self.next;
        let end = highest.map_or(0, |seen| seen.saturating_add(1)).max(first);
        let end = end.saturating_add(self.plan.batch(self.file));
        let ahead = (slot + slots - first % slots) % slots;
        first.saturating_add(ahead) < end
    }

    /// All slots that can hold something.
    fn read(&self, source: &mut dyn Source) -> Result<Vec<Slot>, Failure> {
        let ahead = self.next.saturating_add(self.plan.batch(self.file));
        let count = ahead.min(self.kind.slots());
        if self.next == 0 {
            // Nothing was acknowledged: whatever is there or not is right.
            return Ok(Vec::new());
        }
        let size = self.plan.size(self.file);
        let at_once = match self.kind {
            Kind::Append | Kind::Ring => u64::from((source.piece() / size).max(1)),
            Kind::Fresh | Kind::Save | Kind::Stream => 1,
        };
        let mut slots = Vec::new();
        while (slots.len() as u64) < count {
            let first = slots.len() as u64;
            let some = at_once.min(count - first);
            match self.piece(source, first, some) {
                Ok(more) => slots.extend(more),
                Err(Fault::Unknown(why)) => return Err(self.named(first, &why)),
                Err(Fault::Absent) => slots.extend((0..some).map(|_| Slot::Absent)),
                Err(Fault::Unreadable(_)) => {
                    // The name says which of them it is.
                    for slot in first..first + some {
                        slots.push(self.single(source, slot)?);
                    }
                }
            }
        }
        Ok(slots)
    }

    fn named(&self, slot: u64, why: &str) -> Failure {
        format!("{}: {why}", self.plan.name(self.file, slot))
    }

    fn single(&self, source: &mut dyn Source, slot: u64) -> Result<Slot, Failure> {
        match self.piece(source, slot, 1) {
            Ok(found) => Ok(found.first().copied().unwrap_or(Slot::Missing)),
            Err(Fault::Absent) => Ok(Slot::Absent),
            Err(Fault::Unreadable(_)) => Ok(Slot::Unreadable),
            Err(Fault::Unknown(why)) => Err(self.named(slot, &why)),
        }
    }

    fn piece(&self, source: &mut dyn Source, first: u64, some: u64) -> Result<Vec<Slot>, Fault> {
        let size = self.plan.size(self.file);
        let name = self.plan.name(self.file, first);
        let offset = self.plan.offset(self.file, first);
        let length = size.saturating_mul(u32::try_from(some).unwrap_or(u32::MAX));
        let bytes = match self.kind {
            Kind::Stream => source.read_stream(&name, offset, length)?,
            _ => source.read(&name, offset, length)?,
        };
        let mut parts = bytes.chunks(size as usize);
        Ok((first..first + some)
            .map(|slot| match parts.next() {
                None => Slot::Missing,
                Some(part) if part.len() < size as usize => Slot::Torn,
                Some(part) => self.slot(slot, part),
            })
            .collect())
    }

    fn slot(&self, slot: u64, bytes: &[u8]) -> Slot {
        match record::read(bytes) {
            Found::Zeros => Slot::Zeros,
            Found::Torn => Slot::Torn,
            Found::Whole(found) => {
                let here = found.run == self.plan.run()
                    && found.file == self.file
                    && found.offset == self.plan.offset(self.file, slot)
                    && found.sequence % self.kind.slots() == slot;
                if here {
                    Slot::Whole(found.sequence)
                } else {
                    Slot::Misplaced
                }
            }
        }
    }

    fn judge(&self, slots: &[Slot], report: &mut Report) {
        let highest = slots.iter().filter_map(|slot| match slot {
            Slot::Whole(sequence) => Some(*sequence),
            _ => None,
        });
        let highest = highest.max().filter(|_| self.lags);
        for (slot, found) in (0..).zip(slots) {
            let Some(expected) = self.expected(slot) else {
                if matches!(found, Slot::Whole(_)) {
                    report.later += 1;
                }
                continue;
            };
            report.checked += 1;
            let loss = match found {
                Slot::Whole(sequence) if *sequence >= expected => {
                    report.later += u64::from(*sequence > expected);
                    continue;
                }
                Slot::Whole(_) => Loss::Stale,
                Slot::Misplaced => Loss::Misplaced,
                Slot::Torn => Loss::Torn,
                Slot::Zeros | Slot::Missing => Loss::Missing,
                Slot::Absent => Loss::Absent,
                Slot::Unreadable => Loss::Unreadable,
            };
            let in_place = !self.kind.renames() && matches!(found, Slot::Torn | Slot::Zeros);
            if in_place && self.on_its_way(slot, highest) {
                report.excused += 1;
                continue;
            }
            let name = self.plan.name(self.file, slot);
            report.lose(loss, &name, self.file, expected, *found == Slot::Zeros);
        }
    }

    /// Names that acknowledged renames should have ended.
    fn old_names(&self, names: &BTreeSet<String>, report: &mut Report) {
        if !self.kind.renames() {
            return;
        }
        let old: BTreeMap<u64, &String> = names
            .iter()
            .filter_map(|name| Some((self.plan.sequence_of(self.file, name)?, name)))
            .filter(|(sequence, _)| *sequence < self.next)
            .collect();
        for (sequence, name) in old {
            report.lose(Loss::OldName, name, self.file, sequence, false);
        }
    }
}

#[cfg(test)]
mod tests;
