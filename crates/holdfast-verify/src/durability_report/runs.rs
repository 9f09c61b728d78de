//! The journal's records, sorted into runs of the server.

use std::collections::BTreeMap;

use durability::{Damage, ExposureRecord, FlushRecord, JournalRecord, Segment, StartRecord};
use vfs::Timestamp;

/// Milliseconds since 1970.
pub(super) fn millis(at: Timestamp) -> i64 {
    at.secs
        .saturating_mul(1000)
        .saturating_add(i64::from(at.nanos / 1_000_000))
}

/// The last acknowledged flush of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LastFlush {
    pub(super) record: FlushRecord,
    /// Answered before the disk.
    pub(super) promised: bool,
}

/// One server process, from its start to its end.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub(super) boot: String,
    pub(super) server: String,
    pub(super) started: Timestamp,
    /// Time of the last record.
    pub(super) last: Timestamp,
    /// An orderly end, and whether all was stable then.
    pub(super) end: Option<(Timestamp, bool)>,
    /// Its first segment is still there.
    pub(super) whole: bool,
    pub(super) flushes: u64,
    pub(super) lost: u64,
    pub(super) torn: bool,
    pub(super) damage: Vec<(u64, Damage)>,
    /// Name and folder.
    pub(super) shares: BTreeMap<String, String>,
    pub(super) files: Vec<LastFlush>,
    pub(super) exposures: BTreeMap<String, ExposureRecord>,
    id: [u8; 16],
    places: BTreeMap<(String, u64, u64, String), usize>,
}

impl Run {
    fn new(start: &StartRecord) -> Self {
        Self {
            id: start.run,
            boot: start.boot.clone(),
            server: start.server.clone(),
            started: start.at,
            ..Self::default()
        }
    }

    fn take(&mut self, record: JournalRecord) {
        match record {
            JournalRecord::Start(start) => {
                self.last = start.at;
                self.whole |= start.first;
                for share in start.shares {
                    self.shares.insert(share.name, share.root);
                }
            }
            JournalRecord::Flushed(flush) => self.flush(flush, false),
            JournalRecord::Promised(flush) => self.flush(flush, true),
            JournalRecord::Exposure(record) => {
                self.last = record.at;
                self.exposures.insert(record.share.clone(), record);
            }
            JournalRecord::Stop { at, stable } => {
                self.last = at;
                self.end = Some((at, stable));
            }
            JournalRecord::Gap { at, lost } => {
                self.last = at;
                self.lost = self.lost.saturating_add(lost);
            }
        }
    }

    fn flush(&mut self, record: FlushRecord, promised: bool) {
        self.last = record.at;
        self.flushes += 1;
        let place = (
            record.share.clone(),
            record.key.ino,
            record.key.generation,
            record.stream.clone(),
        );
        let last = LastFlush { record, promised };
        match self.places.get(&place) {
            Some(at) => {
                if let Some(old) = self.files.get_mut(*at) {
                    *old = last;
                }
            }
            None => {
                self.places.insert(place, self.files.len());
                self.files.push(last);
            }
        }
    }
}

/// Runs in their order. Segments of another version or without a start are damage of the run before them.
pub(super) fn gather(segments: Vec<Segment>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for segment in segments {
        let first = segment.records.iter().find_map(|record| match record {
            JournalRecord::Start(start) => Some(start),
            _ => None,
        });
        if let Some(start) = first
            && runs.last().is_none_or(|run| run.id != start.run)
        {
            runs.push(Run::new(start));
        }
        let Some(run) = runs.last_mut() else { continue };
        let number = segment.number.unwrap_or(0);
        if segment.other_version {
            run.damage.push((
                number,
                Damage {
                    offset: 0,
                    why: "written by another version of the server",
                },
            ));
        }
        run.torn |= segment.torn.is_some();
        let damage = segment.damage.into_iter();
        run.damage.extend(damage.map(|damage| (number, damage)));
        for record in segment.records {
            run.take(record);
        }
    }
    runs
}
