//! The record of one measurement of a matrix: one file of JSON, which says all that is needed to judge it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use smb_load::{Protection, experiment::Record};

use super::plan::{DiskClass, ServerKind};

/// The version of the format.
pub(super) const FORMAT: u32 = 2;

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) format: u32,
    /// From 0.
    pub(super) round: usize,
    /// The name of the workload.
    pub(super) title: String,
    /// From this the generator of the workload derives everything; the same for every server.
    pub(super) seed: u64,
    pub(super) setting: ServerKind,
    /// As the server's program states it; empty if that is not known.
    pub(super) server_version: String,
    /// Length and checksum of the file of the server's program, which may have been built anew under the same version;
    /// empty of Samba, of which packages have versions, and if it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) server_program: String,
    pub(super) disk: Disk,
    /// The step, and either what was measured or why it failed.
    pub(super) record: Record,
    /// How the connections protected their messages.
    #[serde(default)]
    pub(super) protection: Protection,
    /// CPU seconds of the server in the measured time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) server_cpu: Option<f64>,
    /// KiB (PSS) of the server for each connection that did nothing, where that was looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) memory_kib: Option<f64>,
    /// Syncs of inodes and durable writes in the measured time, as Holdfast's metrics page has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) syncs: Option<u64>,
    /// The requests to the disk in the measured time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) device: Option<Device>,
    /// The loss that a power cut would have caused, each second.
    pub(super) exposure: Vec<Exposure>,
}

/// The disk below a server; of a server elsewhere nothing is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Disk {
    pub(super) name: String,
    pub(super) class: DiskClass,
    /// File system, mount options, scheduler, cache and `vm.dirty_*`, by the names that Linux gives them.
    pub(super) facts: BTreeMap<String, String>,
}

/// Counts of a block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Device {
    /// Flushes of its cache.
    pub(super) flushes: u64,
    pub(super) writes: u64,
    /// Bytes written.
    pub(super) bytes: u64,
}

/// The changes that were not stable at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Exposure {
    /// Seconds since the measured time began.
    pub(super) second: f64,
    /// Bytes that were acknowledged and are not stable, as Holdfast's metrics page has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) bytes: Option<u64>,
    /// The age of the oldest of them, seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) oldest: Option<f64>,
    /// Bytes that the kernel has not written back, of all programs of this machine.
    pub(super) kernel_dirty: u64,
    /// Flushes of the disk's cache since the measured time began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) flushes: Option<u64>,
}

impl Run {
    /// Writes the file as [`write_whole`] does.
    pub(super) fn store(&self, path: &Path) -> Result<(), String> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(&error))?;
        write_whole(path, &text).map_err(|error| failed(&error))
    }

    /// Reads a file that [`Run::store`] wrote.
    pub(super) fn load(path: &Path) -> Result<Self, String> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = fs::read_to_string(path).map_err(|error| failed(&error))?;
        let run: Self = serde_json::from_str(&text).map_err(|error| failed(&error))?;
        match run.format {
            FORMAT => Ok(run),
            other => Err(failed(&format!("format {other} instead of {FORMAT}"))),
        }
    }
}

/// Writes a file as a whole or not at all, so that an interruption leaves no half of one: not even that of the machine,
/// after which an empty file would count as measured, and a shorter plan as another one.
pub(super) fn write_whole(path: &Path, text: &str) -> io::Result<()> {
    let unfinished = path.with_extension("unfinished");
    let mut file = fs::File::create(&unfinished)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&unfinished, path)
}

/// The folder of the files of measurements in a folder of results.
pub(super) fn folder(results: &Path) -> PathBuf {
    results.join("runs")
}

/// The number of measurements in a folder of results that failed, in this run or in an earlier one.
pub(super) fn failures(results: &Path) -> Result<usize, String> {
    let runs = all(results)?;
    let failed = runs.iter().filter(|run| run.record.error.is_some());
    Ok(failed.count())
}

/// The files of the measurements of a folder of results, in the order of their names.
pub(super) fn files(results: &Path) -> Result<Vec<PathBuf>, String> {
    let folder = folder(results);
    let failed = |error: std::io::Error| {
        let folder = folder.display();
        format!(
            "{folder}: {error}\n  = name a folder that `holdfast bench matrix --to FOLDER` has filled"
        )
    };
    let mut paths = Vec::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|end| end == "json") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// All measurements of a folder of results, in the order of their files.
pub(super) fn all(results: &Path) -> Result<Vec<Run>, String> {
    let mut runs: Vec<Run> = Vec::new();
    let mut seen = BTreeSet::new();
    for path in files(results)? {
        let run = Run::load(&path)?;
        let (disk, server) = (run.disk.name.clone(), run.record.server.clone());
        let measurement = (
            run.round,
            disk,
            run.title.clone(),
            run.record.clients,
            server,
        );
        // A copy would count as one more round.
        if !seen.insert(measurement) {
            return Err(format!(
                "{}: another file has the same measurement",
                path.display()
            ));
        }
        runs.push(run);
    }
    Ok(runs)
}
