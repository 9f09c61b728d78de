//! The rows for people: on the terminal, and as a page of the documentation.

use std::{fmt::Write, path::Path};

use super::report::{Cell, Judgement, Maker, Metric, Row};
use crate::{
    Failure,
    chore::{Run, git, root, said},
};

/// Between these lines a page has its table.
const BEGIN: &str = "<!-- cargo xtask compare: begin -->";
const END: &str = "<!-- cargo xtask compare: end -->";

fn number(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

fn judged(judgement: &Judgement) -> String {
    let mut text = number(judgement.median);
    if let Some((low, high)) = judgement.interval {
        let _ = write!(text, " ({}-{})", number(Some(low)), number(Some(high)));
    }
    text
}

/// The terminal's.
pub(crate) fn text(rows: &[Row]) -> String {
    let mut text = String::from(
        "\nMedians of rounds: server CPU (or KiB), units a second, p50/p99 in us, client CPU\n",
    );
    for row in rows {
        let _ = writeln!(text, "{} ({})", row.workload, row.unit);
        for cell in &row.servers {
            let _ = writeln!(
                text,
                "    {:<22}{:>10}{:>12}/s{:>16}{:>12}",
                cell.server,
                number(cell.kib.or(cell.cost)),
                number(cell.rate),
                format!("{}/{}", number(cell.p50_us), number(cell.p99_us)),
                number(cell.client_cost),
            );
        }
        for judgement in &row.judgements {
            let to = judgement.to.as_ref();
            let to = to.map_or(String::new(), |to| format!(" / {to}"));
            let bound = judgement.bound.map_or(String::new(), |bound| {
                let word = match judgement.metric {
                    Metric::Rate => "at least",
                    _ => "at most",
                };
                format!(", {word} {bound:.2}: {}", judgement.verdict)
            });
            let _ = writeln!(
                text,
                "  {}{to}, {}: {}{bound}",
                judgement.server,
                judgement.metric.name(),
                judged(judgement),
            );
        }
    }
    text
}

/// One line of the page: a goal of a workload, by each Holdfast.
fn line(row: &Row, metric: Metric, judgements: &[&Judgement]) -> String {
    let first = judgements.first();
    let to = first.and_then(|judgement| judgement.to.as_ref());
    let value = |cell: &Cell| number(cell.value(metric));
    let find = |name: &str| row.servers.iter().find(|cell| cell.server == name);
    let limits = row.servers.iter().filter(|c| c.maker == Maker::Limit);
    let limit = limits.min_by(|a, b| {
        let cost = |cell: &Cell| cell.cost.unwrap_or(f64::INFINITY);
        cost(a).total_cmp(&cost(b))
    });
    let divisor = to.and_then(|to| find(to));
    let samba = divisor.filter(|c| c.maker == Maker::Samba).or_else(|| {
        let of_samba = row.servers.iter().filter(|c| c.maker == Maker::Samba);
        of_samba.min_by(|a, b| {
            let least = |cell: &Cell| cell.kib.or(cell.cost).unwrap_or(f64::INFINITY);
            least(a).total_cmp(&least(b))
        })
    });
    let mut cells = vec![
        row.workload.clone(),
        match metric {
            Metric::Cost => row.unit.to_owned(),
            Metric::P99 => "p99, us".into(),
            Metric::Rate => "per second".into(),
            Metric::Kib => "KiB".into(),
        },
        samba.map_or("-".into(), |cell| {
            let how = cell.server.trim_start_matches("samba-");
            format!("{} ({how})", value(cell))
        }),
        limit.map_or("-".into(), value),
        first
            .and_then(|judgement| judgement.bound)
            .map_or("-".into(), |bound| {
                let sign = if metric == Metric::Rate { "≥" } else { "≤" };
                let is_limit = divisor.is_some_and(|cell| cell.maker == Maker::Limit);
                let whose = if is_limit { " x limit" } else { "" };
                format!("{sign} {bound:.2}{whose}")
            }),
    ];
    for how in ["threads", "uring"] {
        let mine = judgements.iter().find(|j| j.server.contains(how));
        let cell = mine.and_then(|judgement| find(&judgement.server));
        cells.push(cell.map_or("-".into(), value));
        let word = |judgement: &&&Judgement| format!("{} {}", judged(judgement), judgement.verdict);
        cells.push(mine.as_ref().map_or("-".into(), |judgement| {
            word(judgement).trim_end().to_owned()
        }));
        cells.push(cell.map_or("-".into(), |cell| {
            format!("{} / {}", number(cell.p50_us), number(cell.p99_us))
        }));
    }
    cells.push(samba.map_or("-".into(), |cell| {
        format!("{} / {}", number(cell.p50_us), number(cell.p99_us))
    }));
    format!("| {} |\n", cells.join(" | "))
}

/// When, where and with what.
fn head(quick: bool, runs: &[Run]) -> String {
    let mut text = String::new();
    let (Some(first), Some(last)) = (runs.first(), runs.last()) else {
        return text;
    };
    if quick {
        text.push_str("**Quick numbers: short runs, few rounds, nothing is proved by them.**\n\n");
    }
    let machine = &first.record.machine;
    let commit = git(&root(), &["rev-parse", "--short", "HEAD"]);
    let mut versions: Vec<&str> = runs.iter().map(|run| run.server_version.as_str()).collect();
    versions.sort_unstable();
    versions.dedup();
    versions.retain(|version| !version.is_empty());
    let mut disks: Vec<String> = Vec::new();
    for run in runs {
        let system = run.disk.facts.get("file system").map_or("", String::as_str);
        let disk = format!("{} ({system})", run.disk.name);
        if !disks.contains(&disk) {
            disks.push(disk);
        }
    }
    let loads = runs
        .iter()
        .filter_map(|run| run.record.machine.load.parse::<f64>().ok());
    let _ = writeln!(
        text,
        "{date}; {cores} x {cpu}, {memory} MiB, Linux {kernel}; {disks}; {versions}; commit {commit}; {rounds} interleaved \
         rounds of {seconds} s; load average {load} before, at most {most:.1}.\n",
        date = said(std::process::Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"]))
            .unwrap_or_default(),
        cores = machine.cores,
        cpu = machine.cpu,
        memory = machine.memory_mib,
        kernel = machine.kernel,
        disks = disks.join(", "),
        versions = versions.join("; "),
        commit = commit.unwrap_or_default(),
        rounds = last.round + 1,
        seconds = first.record.seconds,
        load = machine.load,
        most = loads.fold(0.0, f64::max),
    );
    let failed = runs
        .iter()
        .filter(|run| run.record.outcome.is_none())
        .count();
    if failed > 0 {
        let _ = writeln!(text, "{failed} runs failed and are missing below.\n");
    }
    text
}

/// The page's part.
pub(crate) fn markdown(quick: bool, runs: &[Run], rows: &[Row]) -> String {
    let mut text = head(quick, runs);
    text.push_str(
        "| workload | unit | best Samba | limit | goal | threads | ratio (95 %) | p50 / p99 us | \
         io_uring | ratio (95 %) | p50 / p99 us | Samba's p50 / p99 us |\n\
         |---|---|--:|--:|--:|--:|---|--:|--:|---|--:|--:|\n",
    );
    for row in rows {
        for metric in Metric::ALL {
            for maker in [Maker::Samba, Maker::Limit] {
                let mine = row.judgements.iter();
                let mine: Vec<&Judgement> = mine
                    .filter(|j| j.metric == metric && j.of == maker)
                    .collect();
                if !mine.is_empty() {
                    text.push_str(&line(row, metric, &mine));
                }
            }
        }
    }
    text
}

/// Puts the table where a page has its place for it; a file that is not there becomes one.
pub(crate) fn insert(file: &Path, table: &str) -> Result<(), Failure> {
    let page = std::fs::read_to_string(file).unwrap_or_else(|_| format!("{BEGIN}\n{END}\n"));
    let page = replaced(&page, table).ok_or_else(|| {
        let file = file.display();
        format!("{file}: no lines {BEGIN} and {END}")
    })?;
    Ok(std::fs::write(file, page)?)
}

fn replaced(page: &str, table: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::report::{rows, tests::sample};

    #[test]
    fn rows_are_shown_with_limit_and_verdict() {
        let samples: Vec<_> = (0..6)
            .flat_map(|round| {
                [
                    sample("samba-sync", round, 1.0),
                    sample("limit", round, 0.2),
                    sample("holdfast-threads", round, 0.5),
                ]
            })
            .collect();
        let rows = rows(&samples, &[]);
        let judgements: Vec<&Judgement> = rows[0].judgements.iter().take(1).collect();
        assert_eq!(
            line(&rows[0], Metric::Cost, &judgements),
            "| copy | us/MiB | 1.00 (sync) | 0.20 | ≤ 0.80 | 0.50 | 0.50 (0.50-0.50) holds \
             | 5.00 / 9.00 | - | - | - | 5.00 / 9.00 |\n"
        );
        assert!(text(&rows).contains("holdfast-threads / samba-sync, CPU: 0.50"));
    }

    #[test]
    fn a_page_keeps_what_is_round_its_table() {
        let page = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let new = replaced(&page, "new\n").unwrap();
        assert_eq!(new, format!("a\n{BEGIN}\nnew\n{END}\nb\n"));
        assert_eq!(replaced("nothing", "new"), None);
    }
}
