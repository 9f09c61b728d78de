//! From samples to rows: medians, ratios with their intervals, verdicts, the JSON.
//!
//! A ratio is taken within each round, to the Samba (or the limit) whose median over all rounds is the best for
//! that metric; a round without one of the two gives none. A verdict needs an interval, so at
//! least six rounds.

use serde::Serialize;

use smb_load::statistics::{interval, median};

use super::{load::Unit, machine::About, servers::Maker};
use crate::Failure;

/// The subject of a goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Metric {
    /// Server CPU per unit; a ratio, less is better.
    Cost,
    /// 99th percentile of latency; a ratio, less is better.
    P99,
    /// Units per second; a ratio, more is better.
    Rate,
    /// Memory per connection; the figure itself, less is better.
    Kib,
}

impl Metric {
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

/// A goal of Holdfast.
#[derive(Clone, Copy)]
pub(crate) struct Goal {
    pub(crate) metric: Metric,
    /// At most this; of [`Metric::Rate`], at least.
    pub(crate) bound: f64,
    /// The best of this maker is what the figure is divided by.
    pub(crate) of: Maker,
}

/// One workload on one server in one round. A value that was not measured is not a number.
pub(crate) struct Sample {
    pub(crate) workload: &'static str,
    pub(crate) unit: Unit,
    pub(crate) goals: Vec<Goal>,
    pub(crate) server: &'static str,
    pub(crate) maker: Maker,
    pub(crate) round: usize,
    /// GiB or operations.
    pub(crate) units: f64,
    pub(crate) server_seconds: f64,
    pub(crate) client_seconds: f64,
    pub(crate) wall_seconds: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// PSS per idle connection.
    pub(crate) kib: f64,
}

impl Sample {
    fn scale(&self) -> f64 {
        if self.unit == Unit::Operation {
            1e6
        } else {
            1.0
        }
    }

    fn value(&self, metric: Metric) -> f64 {
        match metric {
            Metric::Cost => self.server_seconds / self.units * self.scale(),
            Metric::P99 => self.p99_us,
            Metric::Rate => self.units / self.wall_seconds,
            Metric::Kib => self.kib,
        }
    }

    fn client_cost(&self) -> f64 {
        self.client_seconds / self.units * self.scale()
    }
}

/// One workload.
#[derive(Serialize)]
pub(crate) struct Row {
    pub(crate) workload: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) servers: Vec<Cell>,
    pub(crate) judgements: Vec<Judgement>,
}

/// A workload on one server. Numbers are medians over the rounds; absent where not measured.
#[derive(Serialize)]
pub(crate) struct Cell {
    pub(crate) server: &'static str,
    #[serde(skip)]
    pub(crate) maker: Maker,
    /// Server CPU per unit: seconds per GiB or microseconds per operation.
    pub(crate) cost: Option<f64>,
    /// The smallest: what disturbs a run only adds.
    pub(crate) least: Option<f64>,
    /// Units per second of wall time.
    pub(crate) rate: Option<f64>,
    /// Client CPU per unit, as `cost`.
    pub(crate) client_cost: Option<f64>,
    pub(crate) p50_us: Option<f64>,
    pub(crate) p99_us: Option<f64>,
    pub(crate) kib: Option<f64>,
    /// Of each round; a round that measured none has null.
    costs: Vec<f64>,
    rates: Vec<f64>,
    p99s_us: Vec<f64>,
}

/// One Holdfast against the best Samba, or against a figure.
#[derive(Serialize)]
pub(crate) struct Judgement {
    pub(crate) server: &'static str,
    pub(crate) metric: Metric,
    /// The server that was divided by; none for a figure of its own.
    pub(crate) to: Option<&'static str>,
    /// The maker of that server.
    #[serde(skip)]
    pub(crate) of: Maker,
    /// Of each round.
    pub(crate) rounds: Vec<f64>,
    pub(crate) median: Option<f64>,
    /// 95 %, of the median.
    pub(crate) interval: Option<(f64, f64)>,
    pub(crate) bound: Option<f64>,
    pub(crate) verdict: &'static str,
}

fn names<'a>(samples: &[&'a Sample], of: fn(&'a Sample) -> &'static str) -> Vec<&'static str> {
    let mut seen = Vec::new();
    for sample in samples {
        let name = of(sample);
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}

fn cell(mine: &[&Sample]) -> Option<Cell> {
    let first = mine.first()?;
    let all = |value: &dyn Fn(&Sample) -> f64| mine.iter().map(|s| value(s)).collect::<Vec<_>>();
    let costs = all(&|s| s.value(Metric::Cost));
    let rates = all(&|s| s.value(Metric::Rate));
    let p99s_us = all(&|s| s.p99_us);
    let least = costs.iter().copied().filter(|cost| cost.is_finite());
    Some(Cell {
        server: first.server,
        maker: first.maker,
        cost: median(&costs),
        least: least.min_by(f64::total_cmp),
        rate: median(&rates),
        client_cost: median(&all(&Sample::client_cost)),
        p50_us: median(&all(&|s| s.p50_us)),
        p99_us: median(&p99s_us),
        kib: median(&all(&|s| s.kib)),
        costs,
        rates,
        p99s_us,
    })
}

/// The server of that maker with the best median.
fn best(of: &[&Sample], maker: Maker, metric: Metric) -> Option<&'static str> {
    let theirs: Vec<&Sample> = of.iter().copied().filter(|s| s.maker == maker).collect();
    let ranked = names(&theirs, |s| s.server).into_iter().filter_map(|name| {
        let mine = theirs.iter().filter(|s| s.server == name);
        let values: Vec<f64> = mine.map(|s| s.value(metric)).collect();
        Some((name, median(&values)?))
    });
    let order = |a: &(&str, f64), b: &(&str, f64)| {
        let order = a.1.total_cmp(&b.1);
        if metric.more_is_better() {
            order.reverse()
        } else {
            order
        }
    };
    ranked.min_by(order).map(|(name, _)| name)
}

fn judge(
    of: &[&Sample],
    server: &'static str,
    metric: Metric,
    bound: Option<f64>,
    (of_maker, to): (Maker, Option<&'static str>),
) -> Judgement {
    let mine = of.iter().filter(|s| s.server == server);
    let rounds: Vec<f64> = mine
        .filter_map(|sample| {
            let value = sample.value(metric);
            let Some(to) = to else {
                return Some(value);
            };
            let other = of
                .iter()
                .find(|s| s.server == to && s.round == sample.round)?;
            Some(value / other.value(metric))
        })
        .filter(|ratio| ratio.is_finite())
        .collect();
    let interval = interval(&rounds);
    Judgement {
        server,
        metric,
        to,
        of: of_maker,
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
    let (better, worse) = if metric.more_is_better() {
        (low >= bound, high < bound)
    } else {
        (high <= bound, low > bound)
    };
    match (better, worse) {
        (true, _) => "holds",
        (_, true) => "missed",
        _ => "open",
    }
}

fn judgements(of: &[&Sample]) -> Vec<Judgement> {
    let mut goals: Vec<(Metric, Maker, Option<f64>)> = of.first().map_or_else(Vec::new, |first| {
        let goals = first.goals.iter();
        let goals = goals.map(|goal| (goal.metric, goal.of, Some(goal.bound)));
        goals.collect()
    });
    // No row may be behind Samba, so one without a goal beside it has its ratios nevertheless.
    for metric in [Metric::Cost, Metric::Rate] {
        let is_there = |(of, maker, _): &(Metric, Maker, Option<f64>)| {
            (*of, *maker) == (metric, Maker::Samba) || *of == Metric::Kib
        };
        if !goals.iter().any(is_there) {
            goals.push((metric, Maker::Samba, None));
        }
    }
    let holdfast: Vec<&Sample> = of
        .iter()
        .copied()
        .filter(|s| s.maker == Maker::Holdfast)
        .collect();
    let mut all = Vec::new();
    for (metric, maker, bound) in goals {
        let to = if metric == Metric::Kib {
            None
        } else {
            let Some(best) = best(of, maker, metric) else {
                continue;
            };
            Some(best)
        };
        for name in names(&holdfast, |s| s.server) {
            all.push(judge(of, name, metric, bound, (maker, to)));
        }
    }
    all
}

/// All rows, in the order in which they were measured.
pub(crate) fn rows(samples: &[Sample]) -> Vec<Row> {
    let all: Vec<&Sample> = samples.iter().collect();
    let mut rows: Vec<Row> = names(&all, |s| s.workload)
        .into_iter()
        .map(|workload| {
            let of: Vec<&Sample> = all
                .iter()
                .copied()
                .filter(|s| s.workload == workload)
                .collect();
            let mut servers = names(&of, |s| s.server);
            servers.sort_by_key(|name| (!name.starts_with("samba"), *name));
            let cells = servers.iter().filter_map(|name| {
                let mine: Vec<&Sample> = of.iter().copied().filter(|s| s.server == *name).collect();
                cell(&mine)
            });
            Row {
                workload,
                unit: match of.first().map(|sample| sample.unit) {
                    Some(Unit::Operation) => "us/op",
                    Some(Unit::Connection) => "KiB/connection",
                    _ => "s/GiB",
                },
                servers: cells.collect(),
                judgements: judgements(&of),
            }
        })
        .collect();
    rows.extend(price(&all));
    rows.extend(dip(&all));
    rows
}

/// The mix that FLUSH's price is looked at in; with `-lax` it is answered at once.
const PRICED: &str = "netbench-60";
/// Half of the loss of throughput that the report of 2004 found for Windows on one disk.
const PRICE_MAX: f64 = 0.221 / 2.0;

/// The cost of honouring FLUSH for each server: its rate by the rate of its lax twin.
fn price(all: &[&Sample]) -> Option<Row> {
    let of = |name: &str| {
        let mine = all.iter().copied().filter(|s| s.workload == name);
        mine.collect::<Vec<_>>()
    };
    let (honored, lax) = (of(PRICED), of(&format!("{PRICED}-lax")));
    let both: Vec<&Sample> = honored.iter().chain(&lax).copied().collect();
    let mut judgements = Vec::new();
    for name in names(&honored, |s| s.server) {
        let twin = format!("{name}-lax");
        let Some(twin) = lax.iter().find(|s| s.server == twin) else {
            continue;
        };
        let bound = (twin.maker == Maker::Holdfast).then_some(1.0 - PRICE_MAX);
        let to = (twin.maker, Some(twin.server));
        judgements.push(judge(&both, name, Metric::Rate, bound, to));
        judgements.push(judge(&both, name, Metric::Cost, None, to));
    }
    (!judgements.is_empty()).then_some(Row {
        workload: "netbench-60 honored / ignored",
        unit: "",
        servers: Vec::new(),
        judgements,
    })
}

/// The rate by most clients as a part of the highest that it must reach.
const DIP: f64 = 0.95;

/// Whether the mix's rate falls again with the number of clients.
fn dip(all: &[&Sample]) -> Option<Row> {
    let steps = all.iter().copied();
    let steps: Vec<&Sample> = steps
        .filter(|s| s.workload.starts_with("netbench-") && !s.workload.ends_with("-lax"))
        .collect();
    let judgements: Vec<Judgement> = names(&steps, |s| s.server)
        .into_iter()
        .filter_map(|server| {
            let mine: Vec<&Sample> = steps
                .iter()
                .copied()
                .filter(|s| s.server == server)
                .collect();
            let last = mine.iter().filter(|s| s.workload == PRICED);
            let rounds: Vec<f64> = last
                .map(|last| {
                    let round = mine.iter().filter(|s| s.round == last.round);
                    let rates = round.map(|s| s.value(Metric::Rate));
                    last.value(Metric::Rate) / rates.fold(0.0, f64::max)
                })
                .collect();
            let interval = interval(&rounds);
            let bound = (mine.first()?.maker == Maker::Holdfast).then_some(DIP);
            Some(Judgement {
                server,
                metric: Metric::Rate,
                to: Some("its peak"),
                of: mine.first()?.maker,
                median: Some(median(&rounds)?),
                interval,
                bound,
                verdict: verdict(interval, Metric::Rate, bound),
                rounds,
            })
        })
        .collect();
    (!judgements.is_empty()).then_some(Row {
        workload: "netbench: 60 clients / the peak",
        unit: "",
        servers: Vec::new(),
        judgements,
    })
}

#[derive(Serialize)]
struct Everything<'a> {
    about: &'a About,
    big_mib: u64,
    rows: &'a [Row],
}

/// The numbers for programs.
pub(crate) fn json(about: &About, rows: &[Row], big_mib: u64) -> Result<String, Failure> {
    Ok(serde_json::to_string_pretty(&Everything {
        about,
        big_mib,
        rows,
    })?)
}

#[cfg(test)]
pub(crate) mod tests;
