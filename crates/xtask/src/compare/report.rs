//! Makes rows from the measurements of a matrix: medians, ratios with their intervals, verdicts.
//!
//! A ratio is taken within each round, to the Samba (or the limit) whose median over all rounds is the best for
//! that metric; a round without one of the two gives none. A verdict needs an interval, so at
//! least six rounds.

use serde::Serialize;
use smb_load::statistics::{interval, median};

use super::catalogue;
use crate::chore::Run;

/// The subject of a goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Metric {
    /// Server CPU per unit, microseconds; a ratio, less is better.
    Cost,
    /// 99th percentile of latency; a ratio, less is better.
    P99,
    /// Units per second; a ratio, more is better.
    Rate,
    /// Memory per connection; the figure itself, less is better.
    Kib,
}

impl Metric {
    pub(crate) const ALL: [Self; 4] = [Self::Cost, Self::Kib, Self::P99, Self::Rate];

    fn more_is_better(self) -> bool {
        self == Self::Rate
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cost => "CPU",
            Self::P99 => "p99",
            Self::Rate => "rate",
            Self::Kib => "KiB",
        }
    }
}

/// The maker of a server, as its name begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Maker {
    Samba,
    Holdfast,
    Limit,
    /// A server that `--add` names.
    Other,
}

impl Maker {
    pub(crate) fn of(server: &str) -> Self {
        match server.split('-').next() {
            Some("samba") => Self::Samba,
            Some("holdfast") => Self::Holdfast,
            Some("limit") => Self::Limit,
            _ => Self::Other,
        }
    }
}

/// A goal of Holdfast.
#[derive(Clone, Copy)]
pub(crate) struct Goal {
    pub(crate) metric: Metric,
    /// At most this; of [`Metric::Rate`], at least.
    pub(crate) bound: f64,
    /// The best of this maker is what the figure is divided by.
    pub(crate) of: Maker,
}

/// One workload on one server in one round.
#[derive(Clone)]
pub(crate) struct Sample {
    pub(crate) workload: String,
    pub(crate) unit: &'static str,
    pub(crate) goals: Vec<Goal>,
    pub(crate) round: usize,
    pub(crate) cell: Cell,
}

impl Sample {
    /// A measurement that did not fail.
    pub(crate) fn of(run: &Run, rows: &[catalogue::Row], one_disk: bool) -> Option<Self> {
        let measured = &run.record.outcome.as_ref()?.measured;
        let row = rows.iter().find(|row| row.name == run.title);
        let counts = row.and_then(|row| row.counts);
        let latency = measured.latency(counts);
        let units = match counts {
            Some(_) => latency.map_or(0, |latency| latency.count),
            None => measured.operations,
        } as f64;
        // Of a program nothing is known.
        let is_known = run.record.workload.name() != "program";
        let client = measured.client_cpu * measured.seconds * run.record.machine.cores as f64;
        Some(Self {
            workload: match one_disk {
                true => run.title.clone(),
                false => format!("{}, {}", run.title, run.disk.name),
            },
            unit: row.map_or("us/op", |row| row.unit),
            goals: row.map_or_else(Vec::new, |row| row.goals.clone()),
            round: run.round,
            cell: Cell {
                server: run.record.server.clone(),
                maker: Maker::of(&run.record.server),
                cost: run.server_cpu.map(|seconds| seconds * 1e6 / units),
                rate: (units > 0.0).then(|| units / measured.seconds),
                client_cost: is_known.then(|| client * 1e6 / units),
                p50_us: latency.map(|latency| latency.p50 as f64),
                p99_us: latency.and_then(|latency| latency.p99).map(|us| us as f64),
                kib: run.memory_kib,
            },
        })
    }
}

/// One workload.
#[derive(Serialize)]
pub(crate) struct Row {
    pub(crate) workload: String,
    pub(crate) unit: &'static str,
    pub(crate) servers: Vec<Cell>,
    pub(crate) judgements: Vec<Judgement>,
}

/// A workload on one server. Numbers are those of one round or medians over the rounds; absent where not measured.
#[derive(Clone, Serialize)]
pub(crate) struct Cell {
    pub(crate) server: String,
    pub(crate) maker: Maker,
    /// Server CPU per unit, microseconds.
    pub(crate) cost: Option<f64>,
    /// Units per second of wall time.
    pub(crate) rate: Option<f64>,
    /// Client CPU per unit, microseconds.
    pub(crate) client_cost: Option<f64>,
    pub(crate) p50_us: Option<f64>,
    pub(crate) p99_us: Option<f64>,
    pub(crate) kib: Option<f64>,
}

impl Cell {
    pub(crate) fn value(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::Cost => self.cost,
            Metric::P99 => self.p99_us,
            Metric::Rate => self.rate,
            Metric::Kib => self.kib,
        }
    }
}

/// One Holdfast against the best Samba, against the limit, or against a figure.
#[derive(Serialize)]
pub(crate) struct Judgement {
    pub(crate) server: String,
    pub(crate) metric: Metric,
    /// The server that was divided by; none for a figure of its own.
    pub(crate) to: Option<String>,
    /// The maker of that server.
    pub(crate) of: Maker,
    pub(crate) rounds: Vec<f64>,
    pub(crate) median: Option<f64>,
    /// 95 %, of the median.
    pub(crate) interval: Option<(f64, f64)>,
    pub(crate) bound: Option<f64>,
    pub(crate) verdict: &'static str,
}

/// The names of what was measured, in the order in which they were.
fn names<'a>(samples: &[&'a Sample], of: impl Fn(&'a Sample) -> &'a String) -> Vec<&'a String> {
    let mut seen = Vec::new();
    for sample in samples {
        let name = of(sample);
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}

fn cell(server: &str, of: &[&Sample]) -> Cell {
    let value = |value: fn(&Cell) -> Option<f64>| {
        let mine = of.iter().filter(|s| s.cell.server == server);
        median(&mine.filter_map(|s| value(&s.cell)).collect::<Vec<_>>())
    };
    Cell {
        server: server.to_owned(),
        maker: Maker::of(server),
        cost: value(|cell| cell.cost),
        rate: value(|cell| cell.rate),
        client_cost: value(|cell| cell.client_cost),
        p50_us: value(|cell| cell.p50_us),
        p99_us: value(|cell| cell.p99_us),
        kib: value(|cell| cell.kib),
    }
}

/// The server of that maker with the best median.
fn best<'a>(of: &[&'a Sample], maker: Maker, metric: Metric) -> Option<&'a String> {
    let theirs: Vec<&Sample> = of
        .iter()
        .copied()
        .filter(|s| s.cell.maker == maker)
        .collect();
    let ranked = names(&theirs, |s| &s.cell.server);
    let ranked = ranked.into_iter().filter_map(|name| {
        let mine = theirs.iter().filter(|s| s.cell.server == *name);
        let values: Vec<f64> = mine.filter_map(|s| s.cell.value(metric)).collect();
        Some((name, median(&values)?))
    });
    let order = |a: &(&String, f64), b: &(&String, f64)| match metric.more_is_better() {
        true => b.1.total_cmp(&a.1),
        false => a.1.total_cmp(&b.1),
    };
    ranked.min_by(order).map(|(name, _)| name)
}

fn judge(of: &[&Sample], server: &str, goal: Wanted, to: Option<&String>) -> Judgement {
    let (metric, maker, bound) = goal;
    let mine = of.iter().filter(|s| s.cell.server == server);
    let ratio = |sample: &&Sample| {
        let value = sample.cell.value(metric)?;
        let Some(to) = to else {
            return Some(value);
        };
        let mut others = of.iter().filter(|s| s.round == sample.round);
        let other = others.find(|s| s.cell.server == *to)?;
        Some(value / other.cell.value(metric)?)
    };
    let rounds = mine.filter_map(ratio).filter(|ratio| ratio.is_finite());
    let rounds: Vec<f64> = rounds.collect();
    let interval = interval(&rounds);
    Judgement {
        server: server.to_owned(),
        metric,
        to: to.cloned(),
        of: maker,
        median: median(&rounds),
        interval,
        bound,
        verdict: verdict(interval, metric, bound),
        rounds,
    }
}

fn verdict(interval: Option<(f64, f64)>, metric: Metric, bound: Option<f64>) -> &'static str {
    let Some(bound) = bound else {
        return "";
    };
    let Some((low, high)) = interval else {
        return "too few rounds";
    };
    let (better, worse) = match metric.more_is_better() {
        true => (low >= bound, high < bound),
        false => (high <= bound, low > bound),
    };
    match (better, worse) {
        (true, _) => "holds",
        (_, true) => "missed",
        _ => "open",
    }
}

/// A metric, whose server it is divided by, and the goal if there is one.
type Wanted = (Metric, Maker, Option<f64>);

fn judgements(of: &[&Sample]) -> Vec<Judgement> {
    let goals = of.first().map_or(&[][..], |first| &first.goals).iter();
    let goals = goals.map(|goal| (goal.metric, goal.of, Some(goal.bound)));
    let mut goals: Vec<Wanted> = goals.collect();
    // No row may be behind Samba, so one without a goal beside it has its ratios nevertheless.
    for metric in [Metric::Cost, Metric::Rate] {
        let is_there =
            |(of, maker, _): &Wanted| (*of, *maker) == (metric, Maker::Samba) || *of == Metric::Kib;
        if !goals.iter().any(is_there) {
            goals.push((metric, Maker::Samba, None));
        }
    }
    let holdfast: Vec<&Sample> = of
        .iter()
        .copied()
        .filter(|s| s.cell.maker == Maker::Holdfast)
        .collect();
    let mut all = Vec::new();
    for goal in goals {
        let best = match goal.0 {
            Metric::Kib => None,
            metric => match best(of, goal.1, metric) {
                Some(best) => Some(best),
                None => continue,
            },
        };
        for name in names(&holdfast, |s| &s.cell.server) {
            all.push(judge(of, name, goal, best));
        }
    }
    all
}

/// All rows, in the order of `workloads`, and then others.
pub(crate) fn rows(samples: &[Sample], workloads: &[catalogue::Row]) -> Vec<Row> {
    let all: Vec<&Sample> = samples.iter().collect();
    let mut named = names(&all, |s| &s.workload);
    let place = |name: &String| {
        let title = name.split(", ").next().unwrap_or_default();
        let place = workloads.iter().position(|row| row.name == title);
        place.unwrap_or(workloads.len())
    };
    named.sort_by_key(|name| place(name));
    let row = |workload: &String| {
        let of = all.iter().copied().filter(|s| s.workload == *workload);
        let of: Vec<&Sample> = of.collect();
        let mut servers = names(&of, |s| &s.cell.server);
        servers.sort_by_key(|name| (Maker::of(name) != Maker::Samba, *name));
        Row {
            workload: workload.clone(),
            unit: of.first().map_or("", |sample| sample.unit),
            servers: servers.iter().map(|name| cell(name, &of)).collect(),
            judgements: judgements(&of),
        }
    };
    named.into_iter().map(row).collect()
}

#[cfg(test)]
pub(crate) mod tests;
