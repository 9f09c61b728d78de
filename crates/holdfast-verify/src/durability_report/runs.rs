//! The journal's records, sorted into runs of the server.

use std::collections::BTreeMap;

use durability::{Damage, ExposureRecord, FlushRecord, JournalRecord, Segment, StartRecord};
use vfs::{FileKey, Timestamp};

/// Milliseconds since 1970.
pub(super) fn millis(at: Timestamp) -> i64 {
    at.secs
        .saturating_mul(1000)
        .saturating_add(i64::from(at.nanos / 1_000_000))
}

/// The time by which records may be out of order where nobody set the clock.
const DISORDER_SECS: i64 = 60;

/// The last acknowledged flush of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LastFlush {
    pub(super) record: FlushRecord,
    /// Answered before the disk.
    pub(super) promised: bool,
    /// The folder that the share had then, if a reload has given it another one.
    pub(super) former_root: Option<String>,
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
    /// The last segment ends in a record that was being written.
    pub(super) torn: Option<(u64, u64)>,
    /// A record has an earlier time than one before it.
    pub(super) clock_set_back: bool,
    pub(super) damage: Vec<(u64, Damage)>,
    /// Name and folder.
    pub(super) shares: BTreeMap<String, String>,
    pub(super) files: Vec<LastFlush>,
    pub(super) exposures: BTreeMap<String, ExposureRecord>,
    id: [u8; 16],
    /// Where `files` has a stream of an inode, by the share.
    places: BTreeMap<(String, FileKey, String), usize>,
}

impl Run {
    fn new(start: &StartRecord) -> Self {
        Self {
            id: start.run,
            boot: start.boot.clone(),
            server: start.server.clone(),
            started: start.at,
            last: start.at,
            ..Self::default()
        }
    }

    /// Notes the time of a record. A flush that waited for a slow disk is recorded after later ones.
    fn note(&mut self, at: Timestamp) {
        self.clock_set_back |= at.secs.saturating_add(DISORDER_SECS) < self.last.secs;
        self.last = at;
    }

    fn take(&mut self, record: JournalRecord) {
        match record {
            JournalRecord::Start(start) => {
                self.note(start.at);
                self.whole |= start.first;
                for share in start.shares {
                    self.move_share(share.name, share.root);
                }
            }
            JournalRecord::Flushed(flush) => self.flush(flush, false),
            JournalRecord::Promised(flush) => self.flush(flush, true),
            JournalRecord::Exposure(record) => {
                self.note(record.at);
                self.exposures.insert(record.share.clone(), record);
            }
            JournalRecord::Stop { at, stable } => {
                self.note(at);
                self.end = Some((at, stable));
            }
            JournalRecord::Gap { at, lost } => {
                self.note(at);
                self.lost = self.lost.saturating_add(lost);
            }
        }
    }

    /// Notes the folder of a share. Files that were flushed in another one before are still there.
    fn move_share(&mut self, name: String, root: String) {
        if let Some(former) = self.shares.get(&name).filter(|former| **former != root) {
            let files = self.files.iter_mut();
            for file in files.filter(|file| file.record.share == name) {
                file.former_root.get_or_insert_with(|| former.clone());
            }
        }
        self.shares.insert(name, root);
    }

    fn flush(&mut self, record: FlushRecord, promised: bool) {
        self.note(record.at);
        self.flushes += 1;
        let place = (record.share.clone(), record.key, record.stream.clone());
        let last = LastFlush {
            record,
            promised,
            former_root: None,
        };
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
        // Something was recorded after it: that record was not the last one.
        if let Some((number, offset)) = run.torn.take() {
            let why = "a record was not written to its end";
            run.damage.push((number, Damage { offset, why }));
        }
        run.torn = segment.torn.map(|offset| (number, offset));
        let damage = segment.damage.into_iter();
        run.damage.extend(damage.map(|damage| (number, damage)));
        for record in segment.records {
            run.take(record);
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use durability::{Policy, ShareRoot};

    use super::*;

    fn segment(run: u8, times: &[i64], torn: Option<u64>) -> Segment {
        let at = |secs| Timestamp { secs, nanos: 0 };
        let start = StartRecord {
            at: at(times[0]),
            run: [run; 16],
            ..StartRecord::default()
        };
        let gap = |secs: &i64| JournalRecord::Gap {
            at: at(*secs),
            lost: 0,
        };
        Segment {
            number: Some(times.len() as u64),
            records: [JournalRecord::Start(start)]
                .into_iter()
                .chain(times[1..].iter().map(gap))
                .collect(),
            torn,
            ..Segment::default()
        }
    }

    fn flushed(fs: u64, ino: u64) -> JournalRecord {
        JournalRecord::Flushed(FlushRecord {
            at: Timestamp::default(),
            share: "data".into(),
            key: FileKey {
                fs,
                ino,
                ..FileKey::default()
            },
            stream: String::new(),
            path: String::new(),
            size: 0,
            sequence: 1,
            policy: Policy::Honor,
            bytes: 0,
            directory: false,
        })
    }

    /// As on a share with another file system mounted below, where neither has times of birth.
    #[test]
    fn inodes_of_two_file_systems_are_two_files() {
        let mut run = Run::default();
        for fs in [1, 2, 1] {
            run.take(flushed(fs, 7));
        }
        let systems = run.files.iter().map(|file| file.record.key.fs);
        assert_eq!(systems.collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn only_the_last_record_of_a_run_was_being_written_at_its_end() {
        let runs = gather(vec![
            segment(1, &[10, 11], Some(512)),
            segment(1, &[12], Some(1024)),
            segment(2, &[13], None),
        ]);
        assert_eq!((runs[0].torn, runs[1].torn), (Some((1, 1024)), None));
        let damage = runs[0].damage.iter().map(|(of, at)| (*of, at.offset));
        assert_eq!(damage.collect::<Vec<_>>(), [(2, 512)]);
        assert!(runs[1].damage.is_empty());
    }

    #[test]
    fn a_file_is_looked_for_in_the_folder_that_its_share_had() {
        let start = |root: &str| {
            JournalRecord::Start(StartRecord {
                shares: vec![ShareRoot {
                    name: "data".into(),
                    root: root.into(),
                }],
                ..StartRecord::default()
            })
        };
        let flushed = |ino| flushed(1, ino);
        let runs = gather(vec![Segment {
            records: vec![
                start("/a"),
                flushed(1),
                flushed(2),
                start("/b"),
                flushed(2),
                start("/b"),
            ],
            ..Segment::default()
        }]);
        let roots = runs[0].files.iter().map(|file| file.former_root.as_deref());
        assert_eq!(roots.collect::<Vec<_>>(), [Some("/a"), None]);
        assert_eq!(runs[0].shares["data"], "/b");
    }

    #[test]
    fn a_clock_that_was_set_back_is_noticed() {
        let set_back = |times: &[i64]| gather(vec![segment(1, times, None)])[0].clock_set_back;
        assert!(!set_back(&[1_000, 1_005, 1_004, 950, 1_006]));
        assert!(set_back(&[1_000, 5_000, 1_400, 1_500]));
        // Another run may have begun at any time.
        let runs = gather(vec![segment(1, &[5_000], None), segment(2, &[10], None)]);
        assert!(!runs[1].clock_set_back);
    }
}
