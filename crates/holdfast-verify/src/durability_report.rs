//! `holdfast durability report`: what had been promised when a server ended, and what is there now.
//!
//! Reads the journal of flushes in the state folder; no server need run, and one that runs is not
//! disturbed. It speaks of the last run that is over (of the one that goes on, if there is no
//! other): how it ended, the last acknowledged flush of each file held against the file as it is
//! now, and for the policies that answer before the disk how much could be lost at most.
//!
//! The report names its limits: contents are not checked (only that the file is there and not
//! smaller than it was); a journal is bounded, so flushes older than its first record are not in
//! it. `holdfast verify-flush` checks contents.

mod files;
mod report;
mod runs;
mod words;

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Subcommand};
use durability::{
    FLUSHES, LATCHES, LatchRecord, SEGMENT_READ_MAX, Segment, StoredLatches, is_same_share,
    read_latches, read_segment, segment_number,
};
use vfs::FileKey;

use crate::{print_answer, remark};

pub use report::{
    DurabilityReport, ExposedFileReport, ExposureReport, FailedFile, FailedFiles, FileNow,
    FileReport, JournalDamage, RunEnd, RunReport, ShareReport,
};

pub(crate) const EXAMPLES: &str = "\
Examples:
  holdfast durability report --config holdfast.toml
  holdfast durability report --share data --json
  holdfast durability report --state-dir /mnt/old-root/var/lib/holdfast     of another disk

Shares with `flush_journal = true` record every flush before it is acknowledged. After a crash this
reports what had been promised, and compares it with the files as they are now.";

/// Most segments that are read.
const SEGMENTS_MAX: usize = 4096;

/// Largest file of latches that is read; a server writes less.
const LATCHES_READ_MAX: u64 = 256 << 20;

/// `holdfast durability ...`
#[derive(Debug, Subcommand)]
pub enum DurabilityCommand {
    /// Report what had been promised when the last server ended, and what is there now
    #[command(after_help = EXAMPLES)]
    Report(ReportArgs),
}

/// `holdfast durability report`
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The server's configuration (default: the default state folder)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The state folder itself
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    state_dir: Option<PathBuf>,
    /// One share (default: all with a journal)
    #[arg(long, value_name = "SHARE")]
    share: Option<String>,
    /// Files named for each share (default 20; 0: all)
    #[arg(long, value_name = "N", default_value_t = 20)]
    files: usize,
    /// As JSON, with every file, for programs
    #[arg(long)]
    json: bool,
}

/// The state folder of a server, and the facts about it that a report needs.
#[derive(Debug, Clone)]
pub struct StateFolder {
    /// The folder.
    pub path: PathBuf,
    /// The folder of the journal of flushes.
    pub journal: PathBuf,
    /// Whether a server that runs writes to the journal.
    pub in_use: bool,
    /// The kernel's id of this boot.
    pub boot: String,
}

/// Finds the state folder: that of a configuration, this one, or the default one.
pub type FindState = fn(Option<&Path>, Option<&Path>) -> Result<StateFolder, String>;

/// Carries out the command; prints its own errors.
pub(crate) fn run(command: DurabilityCommand, find: FindState) -> ExitCode {
    let DurabilityCommand::Report(args) = command;
    let found = find(args.config.as_deref(), args.state_dir.as_deref());
    let reported = found.and_then(|state| report(&state, args.share.as_deref()));
    let printed = reported.and_then(|report| {
        let words = || in_words(&report, args.files);
        print_answer(&report, args.json, words)
    });
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            remark(format_args!("error: {}", error.trim_end()));
            ExitCode::FAILURE
        }
    }
}

/// The report in words, with so many files named of each share (0: all).
pub fn in_words(report: &DurabilityReport, files_max: usize) -> String {
    words::Words::default().report(report, files_max)
}

/// The report on what is in a state folder.
pub fn report(state: &StateFolder, share: Option<&str>) -> Result<DurabilityReport, String> {
    let failed_files = poisoned(&state.path, share);
    let journal = state.journal.display();
    let segments = read_segments(&state.journal).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound if !state.path.exists() => format!(
            "{}: {error}\n  = name the state folder of the server by --config FILE or --state-dir DIR",
            state.path.display()
        ),
        io::ErrorKind::NotFound => format!(
            "{journal}: there is no journal of flushes\n  = set flush_journal = true for a share; \
             from then on its flushes are recorded"
        ),
        io::ErrorKind::PermissionDenied => format!(
            "{journal}: {error}\n  = only root and the user who runs the server may read it: use sudo, or become that \
             user"
        ),
        _ => format!(
            "{journal}: {error}\n  = it is the folder `flushes` of a server's state folder, whose disk must answer"
        ),
    })?;
    let other_version = segments.iter().any(|segment| segment.other_version);
    let all = runs::gather(segments);
    // The server that runs may have begun no run yet: one that another boot of the machine ended is not its.
    let is_alive = |run: &runs::Run| state.in_use && run.end.is_none() && run.boot == state.boot;
    let (run, goes_on) = match all.split_last() {
        None if other_version => {
            return Err(format!(
                "{journal}: the journal was written by another version of the server\n  = use that version's holdfast"
            ));
        }
        None => return Err(format!("{journal}: the journal is empty")),
        Some((last, [.., before])) if is_alive(last) => (before, false),
        Some((last, _)) => (last, is_alive(last)),
    };
    let is_wanted = |name: &String| share.is_none_or(|wanted| is_same_share(wanted, name));
    if let Some(share) = share
        && !run.shares.keys().any(is_wanted)
    {
        let known: Vec<&str> = run.shares.keys().map(String::as_str).collect();
        return Err(format!(
            "the journal knows no share {share:?} in that run\n  = it knows {}",
            known.join(", ")
        ));
    }
    let shares = run.shares.iter().filter(|(name, _)| is_wanted(name));
    Ok(DurabilityReport {
        journal: journal.to_string(),
        runs: all.len(),
        run: run_report(run, goes_on, &state.boot),
        shares: shares
            .map(|(name, root)| share_report(run, name, root))
            .collect(),
        failed_files,
    })
}

fn run_report(run: &runs::Run, goes_on: bool, boot: &str) -> RunReport {
    let end = match (run.end, run.boot == boot) {
        _ if goes_on => RunEnd::Running,
        (Some((_, true)), _) => RunEnd::Stable,
        (Some((_, false)), _) => RunEnd::Unstable,
        (None, true) => RunEnd::Server,
        (None, false) => RunEnd::Machine,
    };
    let damage = run.damage.iter().map(|(segment, damage)| JournalDamage {
        segment: *segment,
        offset: damage.offset,
        what: damage.why.to_owned(),
    });
    RunReport {
        server: run.server.clone(),
        started_s: run.started.secs,
        last_record_s: run.last.secs,
        ended_s: run.end.map(|(at, _)| at.secs),
        end,
        begins_in_journal: run.whole,
        flushes: run.flushes,
        lost_records: run.lost,
        torn_end: run.torn.is_some(),
        clock_set_back: run.clock_set_back,
        damage: damage.collect(),
    }
}

/// The files whose sync failed and which are not repaired, as stored; a text if the store cannot be read.
fn poisoned(folder: &Path, share: Option<&str>) -> FailedFiles {
    // A file of an early build is there until a server has taken it over.
    let old = folder.join(LATCHES.shape.kind);
    let file = match segments(folder, LATCHES.shape.kind) {
        Ok(mut found) if !old.exists() => found.pop().map_or(old, |(_, newest)| newest),
        _ => old,
    };
    let read = match read_bounded(&file) {
        Ok(None) => return FailedFiles::Known(Vec::new()),
        Ok(Some(bytes)) => read_latches(&bytes).map_err(|why| why.to_string()),
        Err(error) => Err(error.to_string()),
    };
    match read {
        Err(error) => FailedFiles::Unknown(format!("{}: {error}", file.display())),
        Ok(read) => FailedFiles::Known(failed_files(&read, share)),
    }
}

/// The segments of a store, by number.
fn segments(folder: &Path, kind: &str) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if let Some(number) = segment_number(entry.file_name().as_encoded_bytes(), kind) {
            found.push((number, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

fn failed_files(read: &StoredLatches, share: Option<&str>) -> Vec<FailedFile> {
    let wanted = |record: &&LatchRecord| {
        let mut shares = record.shares.iter();
        share.is_none_or(|name| {
            record.shares.is_empty() || shares.any(|one| is_same_share(one, name))
        })
    };
    let known = read.records.iter().filter(wanted).map(|record| FailedFile {
        path: record.path.clone(),
        inode: Some(record.key.ino),
        shares: Some(record.shares.clone()),
        error: record.error.to_string(),
        since_s: Some(record.at.secs),
    });
    let unknown = |path: &str, error: String| FailedFile {
        path: path.to_owned(),
        error,
        ..FailedFile::default()
    };
    let damaged = read.damage.iter().map(|damage| {
        let (offset, why) = (damage.offset, damage.why);
        let error = format!("the stored latches are damaged at {offset}: {why}");
        unknown("(unknown)", error)
    });
    let overflow = read.overflow.then(|| {
        let error = "every flush fails until `holdfast policy clear-latch`";
        unknown("(more files than are named here)", error.to_owned())
    });
    known.chain(damaged).chain(overflow).collect()
}

/// A file that a server wrote; `None` if there is none.
fn read_bounded(file: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    match File::open(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?.take(LATCHES_READ_MAX + 1).read_to_end(&mut bytes)?,
    };
    if bytes.len() as u64 > LATCHES_READ_MAX {
        return Err(io::Error::from(io::ErrorKind::FileTooLarge));
    }
    Ok(Some(bytes))
}

fn share_report(run: &runs::Run, name: &str, root: &str) -> ShareReport {
    let mut folders: BTreeMap<&str, Vec<&runs::LastFlush>> = BTreeMap::new();
    for file in run.files.iter().filter(|of| of.record.share == name) {
        let folder = file.former_root.as_deref().unwrap_or(root);
        folders.entry(folder).or_default().push(file);
    }
    let (mut files, mut all_looked_at) = (Vec::new(), true);
    for (folder, wanted) in folders {
        let (there, is_whole) = files::check(Path::new(folder), &wanted);
        files.extend(there);
        all_looked_at &= is_whole;
    }
    files.sort_by_key(|file| Reverse(file.flushed_ms));
    ShareReport {
        share: name.to_owned(),
        path: root.to_owned(),
        suspect_files: files.iter().filter(|file| file.suspect).count(),
        files,
        all_looked_at,
        exposure: run.exposures.get(name).map(exposure_report),
    }
}

/// The device of an inode's file system, if it is known: another one may have an inode of the same number.
fn device(key: FileKey) -> Option<String> {
    (key.fs != 0).then(|| format!("{:#x}", key.fs))
}

/// The most that a crash of the machine could take under this record.
fn exposure_report(measured: &durability::ExposureRecord) -> ExposureReport {
    let at_ms = runs::millis(measured.at);
    let exposure = &measured.exposure;
    let span = |span: std::time::Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
    let oldest_ms = at_ms.saturating_sub(span(exposure.oldest_age));
    let until_ms = at_ms.saturating_add(span(measured.lease));
    let files = measured.files.iter().map(|file| ExposedFileReport {
        path: file.path.clone(),
        inode: file.key.ino,
        device: device(file.key),
        bytes: file.bytes,
    });
    ExposureReport {
        policy: measured.policy.to_string(),
        measured_s: measured.at.secs,
        measured_bytes: exposure.bytes,
        measured_files: exposure.inodes,
        nothing: exposure.bytes == 0 && exposure.inodes == 0 && measured.lease.is_zero(),
        // The bound: nothing beyond it was acknowledged.
        at_most_bytes: match measured.lease.is_zero() {
            true => exposure.bytes,
            false => measured.allowance,
        },
        at_most_ms: until_ms.saturating_sub(oldest_ms),
        stable_before_ms: oldest_ms,
        nothing_after_ms: until_ms,
        unproven_files: exposure.poisoned_inodes,
        files: files.collect(),
    }
}

fn read_segments(folder: &Path) -> io::Result<Vec<Segment>> {
    let found = segments(folder, FLUSHES.kind)?;
    // The newest, if there are ever so many.
    let skip = found.len().saturating_sub(SEGMENTS_MAX);
    let mut segments = Vec::new();
    for (_, path) in found.into_iter().skip(skip) {
        let mut bytes = Vec::new();
        match File::open(&path) {
            // A running server removed it meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            file => file?.take(SEGMENT_READ_MAX).read_to_end(&mut bytes)?,
        };
        segments.push(read_segment(&bytes));
    }
    Ok(segments)
}

#[cfg(test)]
mod tests;
