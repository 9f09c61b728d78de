//! The storage groups of a store and the shares that they fill, as the Jetstress report has groups and disks.

use std::collections::BTreeMap;

use smb_load::{Measured, Summary};

use super::{
    group::{Group, Server},
    page::Page,
    sections::{Sections, text},
};
use crate::bench::result::Run;

/// The requests of a storage group, as the workload names them.
pub(super) const KINDS: [&str; 3] = ["database-read", "database-write", "log-write"];

impl Sections<'_> {
    /// Rates and latencies of each storage group, and of each share if there are several: at the highest number of
    /// threads that passed in every round, or at the highest of all where nothing is judged or nothing passed.
    pub(super) fn storage_groups(&self, page: &mut Page, group: &Group<'_>) {
        let clients = group.clients();
        let (mut rows, mut of_shares) = (Vec::new(), Vec::new());
        for server in &self.servers {
            let passes = |threads: &usize| {
                let (verdicts, rounds) = group.verdicts(server, *threads);
                let passed = verdicts.iter().filter(|verdict| verdict.is_good()).count();
                passed > 0 && passed == rounds
            };
            let passing = clients.iter().copied().filter(passes).max();
            let Some(threads) = passing.or(clients.last().copied()) else {
                continue;
            };
            let runs = group.cells.get(&(server.clone(), threads));
            let runs: Vec<&Run> = runs.into_iter().flatten().copied().collect();
            for (number, name) in parts(&runs).into_iter().enumerate() {
                rows.push(row(group, (server, threads), &name, &|of| {
                    of.parts.get(number)
                }));
            }
            for (number, name) in shares(&runs).into_iter().enumerate() {
                of_shares.push(row(group, (server, threads), &name, &|of| {
                    of.shares.get(number)
                }));
            }
        }
        table(page, "Storage groups", "group", &rows);
        table(page, "Shares of the storage groups", "share", &of_shares);
    }
}

/// The names of the groups: their numbers.
fn parts(runs: &[&Run]) -> Vec<String> {
    let counts = runs.iter().filter_map(|run| {
        let outcome = run.record.outcome.as_ref()?;
        Some(outcome.measured.parts.len())
    });
    let count = counts.max().unwrap_or(0);
    (1..=count).map(|number| number.to_string()).collect()
}

/// The names of the shares, each of which stands for a disk.
fn shares(runs: &[&Run]) -> Vec<String> {
    let measured = runs.iter().find(|run| {
        let outcome = run.record.outcome.as_ref();
        outcome.is_some_and(|of| !of.measured.shares.is_empty())
    });
    measured.map_or_else(Vec::new, |run| run.record.shares.clone())
}

fn table(page: &mut Page, title: &str, first: &str, rows: &[Vec<String>]) {
    if rows.is_empty() {
        return;
    }
    page.smaller_heading(title);
    let head = format!(
        "server | threads | {first} | reads/s | writes/s | log writes/s | read, ms | read 95 % | \
         read 99 % | write, ms | write 95 % | write 99 % | log write, ms | log write 95 % | \
         log write 99 %"
    );
    page.table(&head, rows);
}

/// The latencies by kind of request of one group or share.
type Part<'a> = &'a dyn Fn(&Measured) -> Option<&BTreeMap<String, Summary>>;

fn row(
    group: &Group<'_>,
    (server, threads): (&Server, usize),
    name: &str,
    part: Part<'_>,
) -> Vec<String> {
    let value = |kind: &str, figure: &dyn Fn(&Summary, f64) -> Option<f64>| {
        text(group.value(server, threads, &|run| {
            let measured = &run.record.outcome.as_ref()?.measured;
            let summary = part(measured)?.get(kind)?;
            figure(summary, measured.seconds)
        }))
    };
    let mut cells = vec![server.name.clone(), threads.to_string(), name.to_owned()];
    let rates = KINDS.map(|kind| value(kind, &|of, seconds| Some(of.count as f64 / seconds)));
    cells.extend(rates);
    for kind in KINDS {
        // Where nothing was answered in time there is no mean.
        let mean = |of: &Summary, _: f64| (of.count > 0).then_some(of.mean / 1000.0);
        cells.push(value(kind, &mean));
        cells.push(value(kind, &|of, _| Some(of.p95? as f64 / 1000.0)));
        cells.push(value(kind, &|of, _| Some(of.p99? as f64 / 1000.0)));
    }
    cells
}
