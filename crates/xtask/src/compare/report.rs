//! Medians, ratios, the table and the JSON.

use serde::Serialize;

use super::load::{Sizes, Unit};
use crate::Failure;

/// One workload on one server in one round.
pub(crate) struct Sample {
    pub(crate) workload: &'static str,
    pub(crate) unit: Unit,
    pub(crate) server: &'static str,
    pub(crate) round: usize,
    /// GiB or operations.
    pub(crate) units: f64,
    pub(crate) server_seconds: f64,
    pub(crate) client_seconds: f64,
    pub(crate) wall_seconds: f64,
}

impl Sample {
    /// Server CPU seconds per unit.
    fn cost(&self) -> f64 {
        self.server_seconds / self.units
    }
}

#[derive(Serialize)]
struct Row {
    workload: &'static str,
    unit: &'static str,
    servers: Vec<Cell>,
    /// Each Holdfast against the cheaper Samba.
    ratios: Vec<Ratio>,
}

#[derive(Serialize)]
struct Cell {
    server: &'static str,
    /// Server CPU per unit, median: seconds per GiB or microseconds per operation.
    cost: f64,
    /// The smallest cost: what disturbs a run only adds.
    least: f64,
    /// Largest cost by smallest; absent where the smallest is below the clock's resolution.
    spread: Option<f64>,
    /// Units per second of wall time, median.
    rate: f64,
    /// Client CPU per unit, median, as `cost`.
    client_cost: f64,
    costs: Vec<f64>,
    rounds: Vec<usize>,
}

#[derive(Serialize)]
struct Ratio {
    server: &'static str,
    to: &'static str,
    /// Of the medians.
    ratio: f64,
    /// Of the smallest costs.
    least: f64,
}

#[derive(Serialize)]
struct Everything<'a> {
    quick: bool,
    rounds: usize,
    big_mib: u64,
    load_average: String,
    kernel: String,
    cpu_source: &'a str,
    rows: Vec<Row>,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = values.get(middle).copied().unwrap_or(f64::NAN);
    if values.len() % 2 == 1 {
        return upper;
    }
    let lower = middle.checked_sub(1).and_then(|i| values.get(i).copied());
    lower.map_or(upper, |lower| f64::midpoint(lower, upper))
}

fn names<'a>(samples: &'a [Sample], of: impl Fn(&'a Sample) -> &'static str) -> Vec<&'static str> {
    let mut seen = Vec::new();
    for sample in samples {
        let name = of(sample);
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen.sort_by_key(|name| {
        samples
            .iter()
            .position(|sample| of(sample) == *name)
            .unwrap_or(usize::MAX)
    });
    seen
}

fn cell(server: &'static str, samples: &[&Sample]) -> Cell {
    let scale = match samples.first().map(|sample| sample.unit) {
        Some(Unit::Operation) => 1e6,
        _ => 1.0,
    };
    let of = |value: fn(&Sample) -> f64| -> Vec<f64> { samples.iter().map(|s| value(s)).collect() };
    let costs: Vec<f64> = of(Sample::cost).iter().map(|cost| cost * scale).collect();
    let least = costs.iter().copied().fold(f64::INFINITY, f64::min);
    let most = costs.iter().copied().fold(0.0, f64::max);
    Cell {
        server,
        cost: median(costs.clone()),
        least,
        spread: (least > 0.0).then(|| most / least),
        rate: median(of(|s| s.units / s.wall_seconds)),
        client_cost: median(of(|s| s.client_seconds / s.units)) * scale,
        costs,
        rounds: samples.iter().map(|sample| sample.round).collect(),
    }
}

fn rows(samples: &[Sample]) -> Vec<Row> {
    let mut servers = names(samples, |sample| sample.server);
    servers.sort_by_key(|name| (!name.starts_with("samba"), *name));
    names(samples, |sample| sample.workload)
        .into_iter()
        .map(|workload| {
            let of: Vec<&Sample> = samples.iter().filter(|s| s.workload == workload).collect();
            let cells: Vec<Cell> = servers
                .iter()
                .map(|name| {
                    let mine: Vec<&Sample> =
                        of.iter().copied().filter(|s| s.server == *name).collect();
                    cell(name, &mine)
                })
                .collect();
            let unit = match of.first().map(|sample| sample.unit) {
                Some(Unit::Operation) => "us/op",
                _ => "s/GiB",
            };
            Row {
                workload,
                unit,
                ratios: ratios(&cells),
                servers: cells,
            }
        })
        .collect()
}

fn ratios(cells: &[Cell]) -> Vec<Ratio> {
    let cheapest = cells
        .iter()
        .filter(|cell| cell.server.starts_with("samba"))
        .min_by(|a, b| a.cost.total_cmp(&b.cost));
    let Some(samba) = cheapest else {
        return Vec::new();
    };
    let sambas = cells.iter().filter(|c| c.server.starts_with("samba"));
    let least = sambas.map(|cell| cell.least).fold(f64::INFINITY, f64::min);
    cells
        .iter()
        .filter(|cell| cell.server.starts_with("holdfast") && samba.cost > 0.0)
        .map(|cell| Ratio {
            server: cell.server,
            to: samba.server,
            ratio: cell.cost / samba.cost,
            least: cell.least / least,
        })
        .collect()
}

/// The table for people.
pub(crate) fn table(samples: &[Sample]) -> String {
    use std::fmt::Write;
    let rows = rows(samples);
    let mut text = String::from("\nServer CPU, median of rounds (spread: largest by smallest)\n");
    let head = rows.first().map(|row| &row.servers[..]).unwrap_or_default();
    let _ = write!(text, "{:<22}{:<7}", "", "");
    for cell in head {
        let _ = write!(text, "{:>24}", cell.server);
    }
    text.push_str("   holdfast / cheaper samba (of the least)\n");
    for row in &rows {
        let _ = write!(text, "{:<22}{:<7}", row.workload, row.unit);
        for cell in &row.servers {
            let spread = cell
                .spread
                .map_or("-".to_owned(), |spread| format!("{spread:.2}"));
            let _ = write!(text, "{:>16.3} ({spread:>5})", cell.cost);
        }
        for ratio in &row.ratios {
            let how = ratio.server.trim_start_matches("holdfast-");
            let _ = write!(text, "   {how} {:.2} ({:.2})", ratio.ratio, ratio.least);
        }
        text.push('\n');
    }
    text
}

/// The numbers for programs.
pub(crate) fn json(
    quick: bool,
    rounds: usize,
    sizes: &Sizes,
    samples: &[Sample],
) -> Result<String, Failure> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    Ok(serde_json::to_string_pretty(&Everything {
        quick,
        rounds,
        big_mib: sizes.big_mib,
        load_average: read("/proc/loadavg").trim().to_owned(),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        cpu_source: "/proc/PID/stat: user and system time of all threads, descendants and \
                     children waited for",
        rows: self::rows(samples),
    })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(server: &'static str, round: usize, server_seconds: f64) -> Sample {
        Sample {
            workload: "copy",
            unit: Unit::Gib,
            server,
            round,
            units: 2.0,
            server_seconds,
            client_seconds: 1.0,
            wall_seconds: 4.0,
        }
    }

    #[test]
    fn the_cheaper_samba_is_what_counts() {
        let samples = [
            sample("samba-sync", 0, 1.0),
            sample("samba-uring", 0, 0.8),
            sample("holdfast-threads", 0, 0.4),
            sample("samba-sync", 1, 1.2),
            sample("samba-uring", 1, 0.8),
            sample("holdfast-threads", 1, 0.8),
        ];
        let rows = rows(&samples);
        assert_eq!(rows.len(), 1);
        let ratio = &rows[0].ratios[0];
        assert_eq!(
            (ratio.to, ratio.server),
            ("samba-uring", "holdfast-threads")
        );
        assert!((ratio.ratio - 0.75).abs() < 1e-9, "{}", ratio.ratio);
        assert_eq!(rows[0].servers[0].spread, Some(1.2));
        assert!(table(&samples).contains("threads 0.75"));
    }

    #[test]
    fn medians_of_even_and_odd_counts() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
