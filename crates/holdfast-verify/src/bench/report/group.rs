//! Measurements put together: by disk, workload, number of clients and server.

use std::collections::{BTreeMap, BTreeSet};

use smb_load::{jetstress::Verdict, statistics};

use super::figure::Point;
use crate::bench::{
    plan::{DiskClass, ServerKind},
    result::Run,
};

/// A server, with its place in every figure, table and legend.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Server {
    /// Holdfast before Samba before others, the strictest promise first.
    rank: u32,
    pub(super) name: String,
}

/// All measurements of one workload on one disk.
pub(super) struct Group<'a> {
    pub(super) disk: &'a str,
    pub(super) title: &'a str,
    /// By server and number of clients.
    pub(super) cells: BTreeMap<(Server, usize), Vec<&'a Run>>,
}

/// A value with the interval that its rounds support.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Value {
    pub(super) median: f64,
    pub(super) interval: Option<(f64, f64)>,
}

impl Value {
    /// The median of what is there; none if one is no number, as a rate over no time is: the others are not all rounds.
    pub(super) fn of(values: &[f64]) -> Option<Self> {
        let all = values.iter().all(|value| value.is_finite());
        let values = Some(values).filter(|_| all)?;
        Some(Self {
            median: statistics::median(values)?,
            interval: statistics::widest(values).map(|(low, high, _)| (low, high)),
        })
    }

    pub(super) fn point(self, x: f64) -> Point {
        Point {
            x,
            y: self.median,
            interval: self.interval,
        }
    }
}

impl Server {
    fn of(run: &Run) -> Self {
        let rank = match &run.setting {
            ServerKind::Holdfast { policy, .. } => match policy.as_str() {
                "strict-sync" => 0,
                "honor" => 1,
                "treat-host-as-stable-storage" => 3,
                _ => 2,
            },
            ServerKind::Samba {
                sync_always: true, ..
            } => 4,
            ServerKind::Samba {
                strict_sync: true, ..
            } => 5,
            ServerKind::Samba { .. } => 6,
            ServerKind::Limit { .. } => 7,
            ServerKind::Address { .. } => 8,
        };
        Self {
            rank,
            name: run.record.server.clone(),
        }
    }

    /// Whether this is a Holdfast that the matrix started.
    pub(super) fn is_holdfast(&self) -> bool {
        self.rank < 4
    }
}

/// All servers of the runs, in their order.
pub(super) fn servers(runs: &[Run]) -> Vec<Server> {
    let mut servers: Vec<Server> = runs.iter().map(Server::of).collect();
    servers.sort();
    servers.dedup();
    servers
}

/// The groups in the order in which they were first measured.
pub(super) fn groups(runs: &[Run]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for run in runs {
        let key = (run.disk.name.as_str(), run.title.as_str());
        let place = groups
            .iter()
            .position(|group| (group.disk, group.title) == key);
        let place = place.unwrap_or_else(|| {
            groups.push(Group {
                disk: key.0,
                title: key.1,
                cells: BTreeMap::new(),
            });
            groups.len() - 1
        });
        if let Some(group) = groups.get_mut(place) {
            let cell = group.cells.entry((Server::of(run), run.record.clients));
            cell.or_default().push(run);
        }
    }
    groups
}

/// Whether a server is set up in a certain way.
pub(super) type IsSo<'a> = &'a dyn Fn(&ServerKind) -> bool;

impl Group<'_> {
    /// Whether file data are what counts, not operations.
    pub(super) fn counts_data(&self) -> bool {
        let workload = self.cells.values().flatten().next();
        workload.is_some_and(|run| {
            matches!(
                run.record.workload.name(),
                "netbench" | "replay" | "file-copy"
            )
        })
    }

    /// The unit of [`Group::rate`].
    pub(super) fn unit(&self) -> &'static str {
        match self.counts_data() {
            true => "Mbps",
            false => "operations/s",
        }
    }

    /// The throughput of a server with so many clients.
    pub(super) fn rate(&self, server: &Server, clients: usize) -> Option<Value> {
        self.value(server, clients, &|run| self.throughput(run))
    }

    fn throughput(&self, run: &Run) -> Option<f64> {
        let measured = &run.record.outcome.as_ref()?.measured;
        Some(match self.counts_data() {
            true => measured.mbps,
            false => measured.per_second,
        })
    }

    /// The median of a figure over the rounds that succeeded. All of them must have it: a percentile for which one
    /// round had too few operations would be that of the other rounds only. Of a step that failed, nothing that was
    /// seen is a measurement.
    pub(super) fn value(
        &self,
        server: &Server,
        clients: usize,
        figure: &dyn Fn(&Run) -> Option<f64>,
    ) -> Option<Value> {
        let runs = self.cells.get(&(server.clone(), clients))?;
        let succeeded = runs.iter().filter(|run| run.record.outcome.is_some());
        let values: Option<Vec<f64>> = succeeded.map(|run| figure(run)).collect();
        Value::of(&values?)
    }

    pub(super) fn class(&self) -> Option<DiskClass> {
        let run = self.cells.values().flatten().next();
        run.map(|run| run.disk.class)
    }

    /// The numbers of clients of the steps.
    pub(super) fn clients(&self) -> Vec<usize> {
        let mut clients: Vec<usize> = self.cells.keys().map(|(_, clients)| *clients).collect();
        clients.sort_unstable();
        clients.dedup();
        clients
    }

    /// The throughput of a server by the clients with which it was measured; none where every round failed.
    pub(super) fn rates(&self, server: &Server) -> Vec<(usize, Option<Value>)> {
        let steps = self.cells.keys().filter(|(of, _)| of == server);
        steps
            .map(|(_, clients)| (*clients, self.rate(server, *clients)))
            .collect()
    }

    /// The throughput of a server as a multiple of that with `fewest` clients, in each round in which both succeeded:
    /// the spread of either is in that of the multiple.
    pub(super) fn multiple(&self, server: &Server, clients: usize, fewest: usize) -> Option<Value> {
        let of = |clients| self.cells.get(&(server.clone(), clients));
        let (runs, bases) = (of(clients)?, of(fewest)?);
        let multiples = runs.iter().filter_map(|run| {
            let base = bases.iter().find(|base| base.round == run.round)?;
            Some(self.throughput(run)? / self.throughput(base)?)
        });
        Value::of(&multiples.collect::<Vec<_>>())
    }

    /// The highest throughput of a server, and with how many clients.
    pub(super) fn peak(&self, server: &Server) -> Option<(usize, Value)> {
        let rates = self.rates(server).into_iter();
        let rates = rates.filter_map(|(clients, rate)| Some((clients, rate?)));
        rates.max_by(|(_, one), (_, other)| one.median.total_cmp(&other.median))
    }

    /// The median, 90, 99 and 99.9 percent of a kind of operation, milliseconds.
    pub(super) fn latencies(
        &self,
        server: &Server,
        clients: usize,
        kind: &str,
    ) -> [Option<Value>; 4] {
        let percentile = |of: &dyn Fn(&smb_load::Summary) -> Option<u64>| {
            self.value(server, clients, &|run| {
                let latencies = &run.record.outcome.as_ref()?.measured.latencies;
                Some(of(latencies.get(kind)?)? as f64 / 1000.0)
            })
        };
        [
            percentile(&|of| Some(of.p50)),
            percentile(&|of| of.p90),
            percentile(&|of| of.p99),
            percentile(&|of| of.p999),
        ]
    }

    /// The kind of operation whose latency says most about a promise, of those that were measured.
    pub(super) fn telling_kind(&self) -> Option<&'static str> {
        const KINDS: [&str; 6] = [
            "flush",
            "log-write",
            "write-flush",
            "write",
            "create",
            "rename",
        ];
        let is_there = |kind: &&&str| {
            let mut runs = self.cells.values().flatten();
            runs.any(|run| {
                let outcome = run.record.outcome.as_ref();
                outcome.is_some_and(|of| of.measured.latencies.contains_key(**kind))
            })
        };
        KINDS.iter().find(is_there).copied()
    }

    /// The verdicts of a mail store's runs, and the number of rounds, of which some may have failed before one.
    pub(super) fn verdicts(&self, server: &Server, clients: usize) -> (Vec<Verdict>, usize) {
        let runs = self.cells.get(&(server.clone(), clients));
        let runs = runs.map_or(&[][..], Vec::as_slice);
        let verdict = |run: &&Run| run.record.outcome.as_ref()?.verdict;
        (runs.iter().filter_map(verdict).collect(), runs.len())
    }

    /// How many servers are set up in this way.
    pub(super) fn count(&self, is_so: IsSo<'_>) -> usize {
        let runs = self.cells.values().flatten();
        let runs = runs.filter(|run| is_so(&run.setting));
        let names: BTreeSet<_> = runs.map(|run| &run.record.server).collect();
        names.len()
    }

    /// The peak of one setting divided by that of another, in each round in which every step of both succeeded: the
    /// highest of only some steps may not be the peak. None where several servers have one of the settings, because the
    /// best of them would be taken for all.
    pub(super) fn ratio(&self, one: IsSo<'_>, other: IsSo<'_>) -> Option<Value> {
        if self.count(one) * self.count(other) != 1 {
            return None;
        }
        let rounds = 1 + self.cells.values().flatten().map(|run| run.round).max()?;
        let steps = self.clients().len();
        let peak = |round: usize, is_so: IsSo<'_>| {
            let runs = self.cells.values().flatten();
            let runs = runs.filter(|run| run.round == round && is_so(&run.setting));
            let rates: Vec<_> = runs
                .filter_map(|run| Some((run.record.clients, self.throughput(run)?)))
                .collect();
            let clients: BTreeSet<_> = rates.iter().map(|(clients, _)| *clients).collect();
            let highest = rates.iter().map(|(_, rate)| *rate).reduce(f64::max);
            highest.filter(|rate| clients.len() == steps && *rate > 0.0)
        };
        let ratios = (0..rounds).filter_map(|round| Some(peak(round, one)? / peak(round, other)?));
        Value::of(&ratios.collect::<Vec<_>>())
    }
}
