//! Plans the files that a run writes, their names, and the place of each record in them.
//!
//! A file has slots; record `sequence` goes to slot `sequence % slots`, so that after
//! `slots` records the oldest is overwritten. The kinds differ in what a slot is: a place in a
//! file, a file of its own, or a place in a named stream. Everything here follows from the
//! ledger's first line; `write` and `check` cannot disagree.

use serde::{Deserialize, Serialize};

use super::record::{RunId, SIZE_MAX, SIZE_MIN};

/// Most files of one run.
pub(super) const FILES_MAX: u32 = 4096;
/// Most records under one FLUSH.
pub(super) const BATCH_MAX: u32 = 1024;
/// The stream that records go to.
pub(super) const STREAM: &str = "verify";
/// Longest record in a stream, bytes: ext4 gives all extended attributes of a file 4 KiB.
const STREAM_SIZE: u32 = 1024;

/// The operation whose success counts as an acknowledgment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// A WRITE, then a FLUSH
    Flush,
    /// A WRITE with the write-through flag, to an open with the write-through option
    WriteThrough,
}

/// The way in which a file is written; its name is a part of the file's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Grows by each record, up to 65,536 records, then starts again.
    Append,
    /// 16 places that are overwritten in turn.
    Ring,
    /// 1,024 files: each record is written to a temporary name, flushed, renamed, flushed.
    Fresh,
    /// One file, replaced so each time: what editors do when they save.
    Save,
    /// Two places in a named stream.
    Stream,
}

impl Kind {
    /// Records before the first is overwritten.
    pub(super) fn slots(self) -> u64 {
        match self {
            Self::Append => 65_536,
            Self::Ring => 16,
            Self::Fresh => 1024,
            Self::Save => 1,
            Self::Stream => 2,
        }
    }

    /// Whether each record is a file that gets its name when it is whole.
    pub(super) fn renames(self) -> bool {
        matches!(self, Self::Fresh | Self::Save)
    }
}

/// The whole of a run; the ledger's first line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan {
    /// [`RunId`] as text.
    pub(super) run: String,
    pub(super) files: u32,
    /// Bytes of a record.
    pub(super) size: u32,
    /// Records under one FLUSH.
    pub(super) batch: u32,
    pub(super) mode: Mode,
    pub(super) rename: bool,
    pub(super) streams: bool,
    /// `//HOST/SHARE/DIR`, for people.
    pub(super) place: String,
    /// Microseconds since 1970 when it began.
    pub(super) time: u64,
}

impl Plan {
    /// Returns the plan if it is possible.
    ///
    /// # Errors
    /// Names the value that is out of range: a ledger may come from anywhere.
    pub(super) fn checked(self) -> Result<Self, String> {
        self.run.parse::<RunId>()?;
        for (value, least, most, what) in [
            (self.files, 1, FILES_MAX, "files"),
            (self.size, SIZE_MIN, SIZE_MAX, "bytes of a record"),
            (self.batch, 1, BATCH_MAX, "records under a flush"),
        ] {
            if !(least..=most).contains(&value) {
                return Err(format!("{least} to {most} {what}, not {value}"));
            }
        }
        Ok(self)
    }

    /// The id in its records.
    pub(super) fn run(&self) -> RunId {
        self.run.parse().unwrap_or(RunId([0; 16]))
    }

    /// The way in which this file is written.
    pub(super) fn kind(&self, file: u32) -> Kind {
        let mut kinds = vec![Kind::Append, Kind::Ring];
        if self.rename {
            kinds.extend([Kind::Fresh, Kind::Save]);
        }
        if self.streams {
            kinds.push(Kind::Stream);
        }
        let turn = file as usize % kinds.len();
        kinds.get(turn).copied().unwrap_or(Kind::Append)
    }

    /// The size of a record of this file, in bytes.
    pub(super) fn size(&self, file: u32) -> u32 {
        match self.kind(file) {
            Kind::Stream => self.size.min(STREAM_SIZE),
            _ => self.size,
        }
    }

    /// Records of this file under one FLUSH; so many may be on their way at a cut.
    pub(super) fn batch(&self, file: u32) -> u64 {
        match (self.mode, self.kind(file)) {
            (Mode::Flush, Kind::Append | Kind::Ring) => u64::from(self.batch),
            _ => 1,
        }
    }

    /// Where a slot begins in the file or stream it lies in.
    pub(super) fn offset(&self, file: u32, slot: u64) -> u64 {
        if self.kind(file).renames() {
            return 0;
        }
        slot * u64::from(self.size(file))
    }

    fn stem(&self, file: u32) -> String {
        let run = self.run.get(..8).unwrap_or_default();
        format!("hf-{run}-{file:04}")
    }

    /// The file a slot lies in, without its folder.
    pub(super) fn name(&self, file: u32, slot: u64) -> String {
        let (stem, kind) = (self.stem(file), self.kind(file));
        let word = format!("{kind:?}").to_lowercase();
        match kind {
            Kind::Fresh => format!("{stem}-{word}-{slot:04}"),
            _ => format!("{stem}-{word}"),
        }
    }

    /// The name that a record of a renaming kind has before it is whole.
    pub(super) fn temporary(&self, file: u32, sequence: u64) -> String {
        format!("{}-tmp-{sequence}", self.stem(file))
    }

    /// The sequence in a temporary name of this file.
    pub(super) fn sequence_of(&self, file: u32, name: &str) -> Option<u64> {
        let rest = name.strip_prefix(self.stem(file).as_str())?;
        rest.strip_prefix("-tmp-")?.parse().ok()
    }
}

#[cfg(test)]
impl Plan {
    /// A plan that is not checked.
    pub(super) fn sample() -> Self {
        Self {
            run: RunId([0xab; 16]).to_string(),
            files: 5,
            size: 4096,
            batch: 3,
            mode: Mode::Flush,
            rename: false,
            streams: false,
            place: "//h/s/d".into(),
            time: 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(rename: bool, streams: bool) -> Plan {
        let plan = Plan {
            rename,
            streams,
            ..Plan::sample()
        };
        plan.checked().unwrap()
    }

    #[test]
    fn kinds_take_turns() {
        let all = plan(true, true);
        let kinds: Vec<Kind> = (0..5).map(|file| all.kind(file)).collect();
        let expected = [
            Kind::Append,
            Kind::Ring,
            Kind::Fresh,
            Kind::Save,
            Kind::Stream,
        ];
        assert_eq!(kinds, expected);
        assert_eq!(plan(false, false).kind(2), Kind::Append);
        assert_eq!(all.size(4), 1024);
        assert_eq!((all.batch(0), all.batch(2)), (3, 1));
    }

    #[test]
    fn names_are_distinguished() {
        let all = plan(true, true);
        assert_eq!(all.name(0, 7), "hf-abababab-0000-append");
        assert_eq!(all.name(2, 7), "hf-abababab-0002-fresh-0007");
        assert_eq!(all.sequence_of(2, &all.temporary(2, 99)), Some(99));
        assert_eq!(all.sequence_of(3, &all.temporary(2, 99)), None);
        assert_eq!(all.sequence_of(2, "hf-abababab-0002-tmp-"), None);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for change in [
            (|p: &mut Plan| p.files = 0) as fn(&mut Plan),
            |p| p.files = FILES_MAX + 1,
            |p| p.size = SIZE_MIN - 1,
            |p| p.size = u32::MAX,
            |p| p.batch = 0,
            |p| p.run = "x".into(),
        ] {
            let mut bad = plan(true, true);
            change(&mut bad);
            assert!(bad.checked().is_err());
        }
    }
}
