//! The storage groups of a store, as the Jetstress report has them.

use smb_load::Summary;

use super::{
    group::{Group, Server},
    page::Page,
    sections::{Sections, text},
};

/// The requests of a storage group, as the workload names them.
pub(super) const KINDS: [&str; 3] = ["database-read", "database-write", "log-write"];

impl Sections<'_> {
    /// Rates and latencies of each storage group: at the highest number of threads that passed in every round, or at
    /// the highest of all where nothing is judged or nothing passed.
    pub(super) fn storage_groups(&self, page: &mut Page, group: &Group<'_>) {
        let clients = group.clients();
        let mut rows = Vec::new();
        for server in &self.servers {
            let passes = |threads: &usize| {
                let verdicts = group.verdicts(server, *threads);
                !verdicts.is_empty() && verdicts.iter().all(|verdict| verdict.is_good())
            };
            let passing = clients.iter().copied().filter(passes).max();
            let Some(threads) = passing.or(clients.last().copied()) else {
                continue;
            };
            let runs = group.cells.get(&(server.clone(), threads));
            let parts = runs.into_iter().flatten().filter_map(|run| {
                let outcome = run.record.outcome.as_ref()?;
                Some(outcome.measured.parts.len())
            });
            for number in 0..parts.max().unwrap_or(0) {
                rows.push(row(group, server, threads, number));
            }
        }
        if rows.is_empty() {
            return;
        }
        page.smaller_heading("Storage groups");
        let head = [
            "server",
            "threads",
            "group",
            "reads/s",
            "writes/s",
            "log writes/s",
            "read, ms",
            "read 95 %",
            "read 99 %",
            "write, ms",
            "write 95 %",
            "write 99 %",
            "log write, ms",
            "log write 95 %",
            "log write 99 %",
        ];
        page.table(&head, &rows);
    }
}

fn row(group: &Group<'_>, server: &Server, threads: usize, number: usize) -> Vec<String> {
    let value = |kind: &str, figure: &dyn Fn(&Summary, f64) -> Option<f64>| {
        text(group.value(server, threads, &|run| {
            let measured = &run.record.outcome.as_ref()?.measured;
            let summary = measured.parts.get(number)?.get(kind)?;
            figure(summary, measured.seconds)
        }))
    };
    let mut cells = vec![
        server.name.clone(),
        threads.to_string(),
        (number + 1).to_string(),
    ];
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
