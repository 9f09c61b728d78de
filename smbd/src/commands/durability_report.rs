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
mod runs;
mod words;

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use clap::{Args, Subcommand};
use durability::{
    FLUSHES, LATCHES, LatchRecord, SEGMENT_READ_MAX, Segment, StoredLatches, read_latches,
    read_segment, segment_number,
};
use serde_json::{Value, json};

use crate::{
    config,
    state::{flush_journal, state_dir},
};

pub(crate) const EXAMPLES: &str = "\
Examples:
  holdfast durability report --config holdfast.toml
  holdfast durability report --share data --json
  holdfast durability report --state-dir /mnt/old-root/var/lib/holdfast     of another disk

Shares with `flush_journal = true` write down every flush before it is acknowledged. After a crash
this tells what had been promised, and holds it against the files as they are now.";

/// Most segments that are read.
const SEGMENTS_MAX: usize = 4096;

/// Largest file of latches that is read; a server writes less.
const LATCHES_READ_MAX: u64 = 256 << 20;

/// `holdfast durability ...`
#[derive(Debug, Subcommand)]
pub(crate) enum DurabilityCommand {
    /// Tell what had been promised when the last server ended, and what is there now
    #[command(after_help = EXAMPLES)]
    Report(ReportArgs),
}

/// `holdfast durability report`
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
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

/// Does it.
pub(crate) fn run(command: DurabilityCommand) -> Result<(), String> {
    let DurabilityCommand::Report(args) = command;
    let folder = match (&args.state_dir, &args.config) {
        (Some(folder), _) => folder.clone(),
        (None, Some(file)) => {
            let config = config::load(file).map_err(|error| error.to_string())?;
            config.server.state_dir
        }
        (None, None) => state_dir::default(),
    };
    let report = report(&folder, args.share.as_deref(), &flush_journal::boot_id())?;
    if args.json {
        println!("{report:#}");
    } else {
        print!("{}", words::in_words(&report, args.files));
    }
    Ok(())
}

/// The report on what is in a state folder.
pub(crate) fn report(folder: &Path, share: Option<&str>, boot: &str) -> Result<Value, String> {
    let latched = latched(folder, share);
    let journal = folder.join(flush_journal::FOLDER);
    let segments = read_segments(&journal).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!(
            "{}: there is no journal of flushes\n  = set flush_journal = true for a share; from \
             then on its flushes are written down",
            journal.display()
        ),
        _ => format!("{}: {error}", journal.display()),
    })?;
    let alive = is_alive(folder);
    let all = runs::gather(segments);
    let (run, goes_on) = match all.split_last() {
        None => return Err(format!("{}: the journal is empty", journal.display())),
        Some((last, [.., before])) if alive && last.end.is_none() => (before, false),
        Some((last, _)) => (last, alive && last.end.is_none()),
    };
    if let Some(share) = share
        && !run.shares.contains_key(share)
    {
        return Err(format!("the journal knows no share {share:?} in that run"));
    }
    let shares = run
        .shares
        .iter()
        .filter(|(name, _)| share.is_none_or(|wanted| wanted == *name))
        .map(|(name, root)| share_report(run, name, root))
        .collect::<Vec<_>>();
    let end = match (run.end, run.boot == boot) {
        _ if goes_on => "running",
        (Some((_, true)), _) => "stable",
        (Some((_, false)), _) => "unstable",
        (None, true) => "server",
        (None, false) => "machine",
    };
    Ok(json!({
        "journal": journal,
        "runs": all.len(),
        "run": {
            "server": run.server,
            "started_s": run.started.secs,
            "last_record_s": run.last.secs,
            "ended_s": run.end.map(|(at, _)| at.secs),
            "end": end,
            "begins_in_journal": run.whole,
            "flushes": run.flushes,
            "lost_records": run.lost,
            "torn_end": run.torn,
            "damage": run.damage.iter().map(|(segment, damage)| json!({
                "segment": segment,
                "offset": damage.offset,
                "what": damage.why,
            })).collect::<Vec<_>>(),
        },
        "shares": shares,
        "failed_files": latched,
    }))
}

/// The files whose sync failed and which are not repaired, as stored; a text if the store cannot be read.
fn latched(folder: &Path, share: Option<&str>) -> Value {
    // A file of version 0.1 is there until a server has taken it over.
    let old = folder.join(LATCHES.name);
    let file = match segments(folder, LATCHES.name) {
        Ok(mut found) if !old.exists() => found.pop().map_or(old, |(_, newest)| newest),
        _ => old,
    };
    let read = match read_bounded(&file) {
        Ok(None) => return json!([]),
        Ok(Some(bytes)) => read_latches(&bytes).map_err(|why| why.to_string()),
        Err(error) => Err(error.to_string()),
    };
    match read {
        Err(error) => json!(format!("{}: {error}", file.display())),
        Ok(read) => json!(failed_files(&read, share)),
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

fn failed_files(read: &StoredLatches, share: Option<&str>) -> Vec<Value> {
    let wanted = |record: &&LatchRecord| {
        let mut shares = record.shares.iter();
        share.is_none_or(|name| record.shares.is_empty() || shares.any(|one| one == name))
    };
    let known = read.records().filter(wanted).map(|record| {
        json!({
            "path": record.path,
            "inode": record.key.ino,
            "shares": record.shares,
            "error": record.error.to_string(),
            "since_s": record.at.secs,
        })
    });
    let damaged = read.damage.iter().map(|damage| {
        json!({
            "path": "(unknown)",
            "error": format!("the stored latches are damaged at {}: {}", damage.offset, damage.why),
        })
    });
    let overflow = read.overflow.then(|| {
        json!({
            "path": "(more files than are named here)",
            "error": "every flush fails until `holdfast policy clear-latch`",
        })
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

fn share_report(run: &runs::Run, name: &str, root: &str) -> Value {
    let mut wanted = run.files.iter().filter(|file| file.share == name).collect();
    let (files, walked) = files::check(Path::new(root), &mut wanted);
    let suspect = files.iter().filter(|file| file["suspect"] == true).count();
    json!({
        "share": name,
        "path": root,
        "files": files,
        "suspect_files": suspect,
        "all_looked_at": walked,
        "exposure": run.exposures.get(name).map(exposure_report),
    })
}

/// The most that a crash of the machine could take under this record.
fn exposure_report(note: &durability::ExposureNote) -> Value {
    let measured = &note.measured;
    let at_ms = runs::millis(measured.at);
    let exposure = &measured.exposure;
    let span = |span: std::time::Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
    let oldest_ms = at_ms.saturating_sub(span(exposure.oldest_age));
    let until_ms = at_ms.saturating_add(span(note.lease));
    let nothing = exposure.bytes == 0 && exposure.inodes == 0 && note.lease.is_zero();
    json!({
        "policy": measured.policy.to_string(),
        "measured_s": measured.at.secs,
        "measured_bytes": exposure.bytes,
        "measured_files": exposure.inodes,
        "nothing": nothing,
        // The bound: nothing beyond it was acknowledged.
        "at_most_bytes": if note.lease.is_zero() { exposure.bytes } else { note.allowance },
        "at_most_ms": until_ms.saturating_sub(oldest_ms),
        "stable_before_ms": oldest_ms,
        "nothing_after_ms": until_ms,
        "unproven_files": exposure.latched_inodes,
        "files": measured.files.iter().map(|file| json!({
            "path": file.path,
            "inode": file.key.ino,
            "bytes": file.bytes,
        })).collect::<Vec<_>>(),
    })
}

fn read_segments(folder: &Path) -> io::Result<Vec<Segment>> {
    let found = segments(folder, FLUSHES)?;
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

/// Whether a server has the folder.
fn is_alive(folder: &Path) -> bool {
    let Ok(lock) = File::options().write(true).open(folder.join("lock")) else {
        return false;
    };
    let try_lock = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    rustix::fs::flock(&lock, try_lock) == Err(rustix::io::Errno::WOULDBLOCK)
}

#[cfg(test)]
mod tests;
