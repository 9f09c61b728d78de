//! `holdfast bench report`: one page with figures and tables, and one file for spreadsheets, from the results of a
//! matrix.
//!
//! Every value is the median of its rounds with the interval that so few rounds support ([`statistics::widest`]). A
//! measurement that failed has no value anywhere: lines have a gap there, and the page begins with the list of those.

mod figure;
mod group;
mod page;
mod price;
mod scaling;
mod sections;
mod sheet;
mod stores;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::Path,
};

use smb_load::statistics;

use self::{
    group::{groups, servers},
    page::Page,
    sections::Sections,
};
use super::{
    matrix,
    result::{self, Run},
};
use crate::print;

/// The name of the page.
const PAGE: &str = "report.html";
/// The name of the file for spreadsheets.
const SHEET: &str = "results.csv";
/// The name of that of storage groups, if there are any.
const GROUPS: &str = "groups.csv";

/// Makes both files in the folder of the results.
pub(super) fn run(results: &Path) -> Result<(), String> {
    let runs = result::all(results)?;
    if runs.is_empty() {
        return Err(format!("{}: no results", results.display()));
    }
    let store = |name: &str, text: String| {
        let path = results.join(name);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok::<_, String>(format!("{}\n", path.display()))
    };
    let mut stored = store(SHEET, sheet::text(&runs))?;
    match sheet::groups(&runs) {
        Some(text) => stored += &store(GROUPS, text)?,
        None => remove(&results.join(GROUPS))?,
    }
    stored += &store(PAGE, html(&runs, matrix::missing(results))?)?;
    print(&stored)
}

/// Takes away a file of an earlier report, whose results may be others now.
fn remove(path: &Path) -> Result<(), String> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", path.display()))
        }
        _ => Ok(()),
    }
}

/// The page, of results from which some of the plan's measurements are missing: how many, and of how many.
fn html(runs: &[Run], (missing, planned): (usize, usize)) -> Result<String, String> {
    let mut page = Page::new("What a promise costs: file servers compared");
    if missing > 0 {
        page.warning(&format!(
            "{missing} of {planned} measurements of the plan are missing: the matrix was interrupted, and goes on with \
             the same command."
        ));
    }
    head(&mut page, runs);
    promises(&mut page, runs);
    let sections = Sections {
        servers: servers(runs),
        groups: groups(runs),
    };
    for group in &sections.groups {
        sections.group(&mut page, group)?;
    }
    sections.price(&mut page)?;
    sections.history(&mut page);
    machine(&mut page, runs);
    Ok(page.end())
}

/// A sentence about the values and their intervals. A matrix that was interrupted has more rounds of some than of
/// others.
fn spread(runs: &[Run]) -> String {
    let mut counts: BTreeMap<_, usize> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.record.outcome.is_some()) {
        let record = &run.record;
        let value = (&run.disk.name, &run.title, &record.server, record.clients);
        *counts.entry(value).or_default() += 1;
    }
    let fewest = counts.values().copied().min().unwrap_or(0);
    let most = counts.values().copied().max().unwrap_or(0);
    let (rounds, least) = match fewest == most {
        true => (most.to_string(), ""),
        false => (format!("{fewest} to {most}"), "at least "),
    };
    match statistics::widest(&vec![0.0; fewest]) {
        Some((_, _, confidence)) => format!(
            "Values are medians of {rounds} rounds. The lines through the points, and the numbers in brackets, are \
             intervals that hold the true median with {least}{:.0} %.",
            confidence * 100.0
        ),
        None if most > 1 => format!(
            "Values are medians of {rounds} rounds. Nothing is known about the spread of those that \
             were measured once."
        ),
        None => {
            "There was one round, so nothing is known about the spread of the values.".to_owned()
        }
    }
}

/// Whether both were measured by the same client on the same machine, as far as it is known. The cores of a client
/// differ on one machine, too, where it is pinned.
fn is_alike(one: &Run, other: &Run) -> bool {
    let (of_one, of_other) = (&one.record.machine, &other.record.machine);
    of_one.cpu == of_other.cpu
        && of_one.kernel == of_other.kernel
        && one.record.version == other.record.version
}

/// The servers and disks that were not the same in all their measurements, as where the files of two folders were put
/// together: another program or other settings, another kind of disk or other options.
fn mixed(runs: &[Run]) -> BTreeSet<&str> {
    let (mut servers, mut disks) = (BTreeMap::new(), BTreeMap::new());
    let mut mixed = BTreeSet::new();
    for run in runs {
        let (server, disk) = (run.record.server.as_str(), run.disk.name.as_str());
        let build = (&run.server_version, &run.server_program, &run.setting);
        // A device of the same kind may have another name each time.
        let facts = run.disk.facts.iter().filter(|(name, _)| *name != "source");
        let kind = (run.disk.class, facts.collect::<Vec<_>>());
        if *servers.entry(server).or_insert(build) != build {
            mixed.insert(server);
        }
        if *disks.entry(disk).or_insert_with(|| kind.clone()) != kind {
            mixed.insert(disk);
        }
    }
    mixed
}

fn head(page: &mut Page, runs: &[Run]) {
    page.paragraph(&spread(runs));
    page.link("All measurements as CSV", SHEET);
    if sheet::groups(runs).is_some() {
        page.link(
            "Latencies of the storage groups and their shares as CSV",
            GROUPS,
        );
    }
    let failed = runs.iter();
    let failed: Vec<&Run> = failed.filter(|run| run.record.error.is_some()).collect();
    if !failed.is_empty() {
        page.warning(&format!(
            "{} of {} measurements failed and have no value below.",
            failed.len(),
            runs.len()
        ));
        let row = |run: &&Run| {
            vec![
                run.record.server.clone(),
                run.title.clone(),
                run.record.clients.to_string(),
                run.disk.name.clone(),
                (run.round + 1).to_string(),
                run.record.error.clone().unwrap_or_default(),
            ]
        };
        let rows: Vec<_> = failed.iter().map(row).collect();
        page.table("server | workload | clients | disk | round | error", &rows);
    }
    let first = runs.first();
    if first.is_some_and(|first| runs.iter().any(|run| !is_alike(run, first))) {
        page.warning(
            "These are measurements of different machines, kernels or versions of the client, which the end of this \
             page names: the servers may differ by them.",
        );
    }
    let mixed = mixed(runs);
    if !mixed.is_empty() {
        let names = mixed.into_iter().collect::<Vec<_>>().join(", ");
        page.warning(&format!(
            "Not all measurements of these are of the same program and settings, or of the same disk, so their medians \
             are of different things: {names}."
        ));
    }
    let is_limited = |run: &&Run| {
        let outcome = run.record.outcome.as_ref();
        outcome.is_some_and(|outcome| outcome.measured.is_limited_by_the_client())
    };
    let limited = runs.iter().filter(is_limited).count();
    if limited > 0 {
        page.warning(&format!(
            "In {limited} of {} measurements the client used more than {:.0} % of its machine, or more than {:.0} % of a \
             core for each of its threads, so the servers may have waited for it: the differences between them are \
             larger than these numbers.",
            runs.len(),
            smb_load::Measured::BUSY_CLIENT * 100.0,
            smb_load::Measured::BUSY_THREAD * 100.0
        ));
    }
}

/// The promises of the servers that have a value below.
fn promises(page: &mut Page, runs: &[Run]) {
    let mut rows = Vec::new();
    for run in runs.iter().filter(|run| run.record.outcome.is_some()) {
        let (policy, flush) = run.setting.promise();
        let row = vec![run.record.server.clone(), policy, flush.to_owned()];
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    if !rows.is_empty() {
        page.heading("The servers");
        page.table("server | policy | FLUSH", &rows);
    }
}

/// Everything that a fact was in the runs: steps have different lengths, and a matrix may be continued elsewhere.
fn each(runs: &[Run], fact: impl Fn(&Run) -> String) -> String {
    let mut all: Vec<String> = runs.iter().map(fact).collect();
    all.sort();
    all.dedup();
    all.retain(|fact| !fact.is_empty());
    all.join("; ")
}

/// The machine on which everything ran.
fn machine(page: &mut Page, runs: &[Run]) {
    let Some(first) = runs.first() else {
        return;
    };
    page.heading("The machine");
    let loads = runs
        .iter()
        .filter_map(|run| run.record.machine.load.parse::<f64>().ok());
    let load = loads.fold(0.0, f64::max);
    let mut facts = Vec::new();
    let mut note = |name: &str, fact: &dyn Fn(&Run) -> String| {
        facts.push((name.to_owned(), each(runs, fact)));
    };
    note("processor", &|run| {
        let machine = &run.record.machine;
        format!("{} x {}", machine.cores, machine.cpu)
    });
    note("kernel", &|run| run.record.machine.kernel.clone());
    note("memory, MiB", &|run| {
        run.record.machine.memory_mib.to_string()
    });
    note("governor", &|run| run.record.machine.governor.clone());
    note("highest load average before a step", &|_| {
        format!("{load:.1}")
    });
    note("a step", &|run| {
        let (seconds, warm_up) = (run.record.seconds, run.record.warm_up);
        format!("{seconds} s after a warm-up of {warm_up} s")
    });
    note("client", &|run| format!("holdfast {}", run.record.version));
    note("servers", &|run| run.server_version.clone());
    facts.retain(|(_, fact)| !fact.is_empty());
    page.facts(facts.iter().map(|fact| (&fact.0, &fact.1)));
    let mut seen = Vec::new();
    for run in runs.iter().filter(|run| run.round == first.round) {
        if !seen.contains(&&run.disk.name) {
            seen.push(&run.disk.name);
            page.smaller_heading(&format!("Disk: {}", run.disk.name));
            page.facts(&run.disk.facts);
        }
    }
}

#[cfg(test)]
mod tests;
