//! Medians over rounds, as Markdown and as JSON.

use std::fmt::Write as _;

use serde::Serialize;

use super::load::{Done, Shape};
use smb_load::{Summary, statistics::median};

use crate::Failure;

/// The server that the others are compared with.
const BASE: &str = "treat-host-as-stable-storage";

/// One load on one server in one round.
pub(crate) struct Sample {
    pub(crate) system: &'static str,
    /// The least time that a cache flush of the device takes, if it is slowed down.
    pub(crate) flush_ms: Option<u64>,
    /// The greatest age seen of a change that was not stable, where it was looked for.
    pub(crate) oldest_ms: Option<f64>,
    pub(crate) shape: Shape,
    pub(crate) server: &'static str,
    pub(crate) round: usize,
    pub(crate) done: Done,
    /// Of FLUSH.
    pub(crate) latency: Summary,
}

impl Sample {
    fn device(&self) -> (&'static str, Option<u64>) {
        (self.system, self.flush_ms)
    }

    /// Acknowledged, each after one WRITE.
    fn flushes(&self) -> f64 {
        self.latency.count as f64
    }

    fn rate(&self) -> f64 {
        self.flushes() / self.done.measured.seconds
    }

    fn per_flush(&self, count: u64) -> f64 {
        count as f64 / self.flushes()
    }
}

/// Medians of one load on one server.
#[derive(Serialize)]
struct Row {
    system: &'static str,
    flush_ms: Option<u64>,
    /// The greatest of all rounds.
    oldest_ms: Option<f64>,
    openers: usize,
    one_file: bool,
    server: &'static str,
    /// Server CPU of a WRITE and a FLUSH, microseconds.
    cpu_us: f64,
    /// The same by that of [`BASE`], in the same round.
    cpu_ratio: Option<f64>,
    device_flushes_per_flush: f64,
    device_writes_per_flush: f64,
    device_bytes_per_flush: f64,
    flush_p50_us: f64,
    flush_p99_us: f64,
    flushes_per_second: f64,
    /// By that of [`BASE`], in the same round.
    throughput_ratio: Option<f64>,
    /// Merging in the server: client flushes by syncs of inodes.
    flushes_per_sync: Option<f64>,
    /// Merging in server and kernel: client flushes by cache flushes of the device.
    flushes_per_device_flush: Option<f64>,
    flushes: Vec<u64>,
}

fn row(mine: &[&Sample], all: &[Sample]) -> Option<Row> {
    let first = mine.first()?;
    let of = |value: &dyn Fn(&Sample) -> f64| {
        let values: Vec<f64> = mine.iter().map(|s| value(s)).collect();
        median(&values)
    };
    let base = |sample: &Sample| {
        all.iter().find(|other| {
            other.server == BASE
                && other.device() == sample.device()
                && (other.shape, other.round) == (sample.shape, sample.round)
        })
    };
    let ratio = |value: &dyn Fn(&Sample) -> f64| {
        of(&|s| base(s).map_or(f64::NAN, |base| value(s) / value(base)))
    };
    let cpu = |s: &Sample| s.done.cpu_seconds / s.flushes();
    Some(Row {
        system: first.system,
        flush_ms: first.flush_ms,
        oldest_ms: mine.iter().filter_map(|s| s.oldest_ms).reduce(f64::max),
        openers: first.shape.openers,
        one_file: first.shape.one_file,
        server: first.server,
        cpu_us: of(&cpu)? * 1e6,
        cpu_ratio: ratio(&cpu),
        device_flushes_per_flush: of(&|s| s.per_flush(s.done.device.flushes))?,
        device_writes_per_flush: of(&|s| s.per_flush(s.done.device.writes))?,
        device_bytes_per_flush: of(&|s| s.per_flush(s.done.device.bytes))?,
        flush_p50_us: of(&|s| s.latency.p50 as f64)?,
        flush_p99_us: of(&|s| s.latency.p99 as f64)?,
        flushes_per_second: of(&Sample::rate)?,
        throughput_ratio: ratio(&Sample::rate),
        flushes_per_sync: of(&|s| {
            let syncs = s.done.syncs;
            syncs.map_or(f64::NAN, |syncs| s.flushes() / syncs as f64)
        }),
        flushes_per_device_flush: of(&|s| s.flushes() / s.done.device.flushes as f64),
        flushes: mine.iter().map(|s| s.latency.count).collect(),
    })
}

fn rows(samples: &[Sample]) -> Vec<Row> {
    let mut keys = Vec::new();
    for sample in samples {
        let key = (sample.device(), sample.shape, sample.server);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    // As first seen, but in the order of the first round for every shape.
    let servers: Vec<&str> = samples.iter().map(|sample| sample.server).collect();
    let place = |server: &str| servers.iter().position(|other| *other == server);
    let mut ordered = keys.clone();
    ordered.sort_by_key(|(device, shape, server)| {
        let group = keys.iter().position(|k| (k.0, k.1) == (*device, *shape));
        (group, place(server))
    });
    ordered
        .into_iter()
        .filter_map(|key| {
            let mine: Vec<&Sample> = samples
                .iter()
                .filter(|s| (s.device(), s.shape, s.server) == key)
                .collect();
            row(&mine, samples)
        })
        .collect()
}

fn number(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        // Next to no sync at all: the kernel's own write-back, and nobody's merging.
        Some(value) if value >= 2000.0 => ">2000".into(),
        Some(value) if value >= 100.0 => format!("{value:.0}"),
        Some(value) if value >= 10.0 => format!("{value:.1}"),
        Some(value) if value >= 0.995 => format!("{value:.2}"),
        Some(value) => format!("{value:.3}"),
    }
}

/// A table for each file system.
pub(crate) fn markdown(samples: &[Sample]) -> String {
    let mut text = String::new();
    let mut group = None;
    for row in rows(samples) {
        let shape = Shape {
            openers: row.openers,
            one_file: row.one_file,
        };
        if group != Some(row.system) {
            group = Some(row.system);
            let _ = write!(
                text,
                "\n### {}\n\n| load | server | server CPU us/op | (of treat-host) | device flushes \
                 /FLUSH | device writes /FLUSH | FLUSH p50 us | p99 us | throughput (of \
                 treat-host) | FLUSHes by inode sync | FLUSHes by device flush |\n\
                 |---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
                row.system
            );
        }
        let cells = [
            number(Some(row.cpu_us)),
            number(row.cpu_ratio),
            number(Some(row.device_flushes_per_flush)),
            number(Some(row.device_writes_per_flush)),
            format!("{:.0}", row.flush_p50_us),
            format!("{:.0}", row.flush_p99_us),
            number(row.throughput_ratio),
            number(row.flushes_per_sync),
            number(row.flushes_per_device_flush),
        ];
        let _ = writeln!(
            text,
            "| {} | {} | {} |",
            shape.name(),
            row.server,
            cells.join(" | ")
        );
    }
    text.push('\n');
    text
}

/// A table of what was measured on slow devices, as a page shows it.
pub(crate) fn slow_markdown(samples: &[Sample]) -> String {
    let mut text = "| device | load | policy | FLUSHes a second | of `honor` | device flushes for each FLUSH | \
                    FLUSH p50, ms | oldest change seen, ms |\n|---|---|---|--:|--:|--:|--:|--:|\n"
        .to_owned();
    let rows = rows(samples);
    for row in &rows {
        let same = |other: &&Row| {
            other.server == "honor"
                && (other.system, other.flush_ms) == (row.system, row.flush_ms)
                && (other.openers, other.one_file) == (row.openers, row.one_file)
        };
        let honor = rows.iter().find(same);
        let ratio = honor.map(|honor| row.flushes_per_second / honor.flushes_per_second);
        let shape = Shape {
            openers: row.openers,
            one_file: row.one_file,
        };
        let _ = writeln!(
            text,
            "| {}, {} ms | {} | `{}` | {} | {} | {} | {} | {} |",
            row.system,
            row.flush_ms.unwrap_or(0),
            shape.name(),
            row.server,
            number(Some(row.flushes_per_second)),
            number(ratio),
            number(Some(row.device_flushes_per_flush)),
            number(Some(row.flush_p50_us / 1e3)),
            row.oldest_ms
                .map_or("-".to_owned(), |oldest| format!("{oldest:.0}")),
        );
    }
    text
}

#[derive(Serialize)]
struct Everything {
    quick: bool,
    rounds: usize,
    kernel: String,
    load_average: String,
    rows: Vec<Row>,
}

/// The numbers for programs.
pub(crate) fn json(quick: bool, rounds: usize, samples: &[Sample]) -> Result<String, Failure> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    Ok(serde_json::to_string_pretty(&Everything {
        quick,
        rounds,
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        load_average: read("/proc/loadavg").trim().to_owned(),
        rows: self::rows(samples),
    })?)
}

#[cfg(test)]
mod tests {
    use smb_load::{Measured, rig::device::Counts};

    use super::*;

    fn sample(server: &'static str, round: usize, flushes: u64) -> Sample {
        Sample {
            system: "ext4",
            flush_ms: None,
            oldest_ms: None,
            shape: Shape {
                openers: 16,
                one_file: true,
            },
            server,
            round,
            done: Done {
                measured: Measured {
                    seconds: 2.0,
                    ..Measured::default()
                },
                device: Counts {
                    flushes: 25,
                    writes: 50,
                    bytes: 4096,
                },
                syncs: (server != "Samba").then_some(50),
                cpu_seconds: 0.1,
            },
            latency: Summary {
                count: flushes,
                p50: 3,
                p99: 5,
                ..Summary::default()
            },
        }
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        let samples = [
            sample(BASE, 0, 1000),
            sample("honor", 0, 100),
            sample("honor", 1, 400),
            sample(BASE, 1, 2000),
            sample("Samba", 1, 100),
        ];
        let rows = rows(&samples);
        assert_eq!(rows.len(), 3);
        let honor = &rows[1];
        assert_eq!(honor.server, "honor");
        assert!((honor.throughput_ratio.unwrap() - 0.15).abs() < 1e-9);
        assert_eq!(honor.flush_p50_us, 3.0);
        assert!((honor.flushes_per_sync.unwrap() - 5.0).abs() < 1e-9);
        assert_eq!(rows[2].flushes_per_sync, None);
        assert!(markdown(&samples).contains("| 16 openers, one file | honor |"));
    }
}
