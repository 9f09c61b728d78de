//! The rows for people: on the terminal, and as a page of the documentation.

use std::{fmt::Write, path::Path};

use super::{
    machine::About,
    report::{Cell, Judgement, Metric, Row},
    servers::Maker,
};
use crate::Failure;

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
            let to = judgement.to.map_or(String::new(), |to| format!(" / {to}"));
            let bound = judgement.bound.map_or(String::new(), |bound| {
                let word = if judgement.metric == Metric::Rate {
                    "at least"
                } else {
                    "at most"
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
    let to = first.and_then(|judgement| judgement.to);
    let value = |cell: &Cell| match metric {
        Metric::Cost => number(cell.cost),
        Metric::P99 => number(cell.p99_us),
        Metric::Rate => number(cell.rate),
        Metric::Kib => number(cell.kib),
    };
    let find = |name: &str| row.servers.iter().find(|cell| cell.server == name);
    let limits = row.servers.iter().filter(|c| c.maker == Maker::Limit);
    let limit = limits.min_by(|a, b| {
        let cost = |cell: &Cell| cell.cost.unwrap_or(f64::INFINITY);
        cost(a).total_cmp(&cost(b))
    });
    let divisor = to.and_then(find);
    let samba = divisor.filter(|c| c.maker == Maker::Samba).or_else(|| {
        let of_samba = row.servers.iter().filter(|c| c.maker == Maker::Samba);
        of_samba.min_by(|a, b| {
            let least = |cell: &Cell| cell.kib.or(cell.cost).unwrap_or(f64::INFINITY);
            least(a).total_cmp(&least(b))
        })
    });
    let mut cells = vec![
        row.workload.to_owned(),
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
        let cell = mine.and_then(|judgement| find(judgement.server));
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

/// Other servers, by address.
fn peers(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        for cell in row.servers.iter().filter(|c| c.maker == Maker::Peer) {
            if text.is_empty() {
                text.push_str(
                    "\n| workload | peer | CPU | per second | p50 / p99, us |\n|---|---|--:|--:|--:|\n",
                );
            }
            let _ = writeln!(
                text,
                "| {} | {} | {} {} | {} | {} / {} |",
                row.workload,
                cell.server,
                number(cell.kib.or(cell.cost)),
                row.unit,
                number(cell.rate),
                number(cell.p50_us),
                number(cell.p99_us)
            );
        }
    }
    text
}

/// When, where and with what.
fn head(about: &About) -> String {
    let mut text = String::new();
    if about.quick {
        text.push_str("**Quick numbers: short runs, few rounds, nothing is proved by them.**\n\n");
    }
    let mut meters: Vec<&str> = about.cpu.iter().map(|(_, how)| how.as_str()).collect();
    meters.sort_unstable();
    meters.dedup();
    let _ = writeln!(
        text,
        "{date}; {cores} x {processor}, {memory} MiB, Linux {kernel}, {fs}; Samba {samba}; {holdfast}; {clients}\
         {rounds} interleaved rounds; load average {before} before, {after} after; CPU by {cpu}.\n",
        date = about.date,
        cores = about.cores,
        processor = about.processor,
        memory = about.memory_mib,
        kernel = about.kernel,
        fs = about.file_system,
        samba = about.samba.trim_start_matches("Version "),
        holdfast = about.holdfast,
        clients = if about.optimized_clients {
            ""
        } else {
            "clients in a debug build; "
        },
        rounds = about.rounds,
        before = about.load_before,
        after = about.load_after,
        cpu = meters.join(", "),
    );
    if !about.failures.is_empty() {
        let _ = writeln!(
            text,
            "{} runs failed and are missing below.\n",
            about.failures.len()
        );
    }
    text
}

/// The page's part.
pub(crate) fn markdown(about: &About, rows: &[Row]) -> String {
    let mut text = head(about);
    text.push_str(
        "| workload | unit | best Samba | limit | goal | threads | ratio (95 %) | p50 / p99 us | \
         io_uring | ratio (95 %) | p50 / p99 us | Samba's p50 / p99 us |\n\
         |---|---|--:|--:|--:|--:|---|--:|--:|---|--:|--:|\n",
    );
    for row in rows.iter().filter(|row| !row.servers.is_empty()) {
        for metric in [Metric::Cost, Metric::Kib, Metric::P99, Metric::Rate] {
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
    for row in rows.iter().filter(|row| row.servers.is_empty()) {
        let _ = writeln!(
            text,
            "\n{}:\n\n| server | of | ratio (95 %) | goal |\n|---|---|--:|--:|",
            row.workload
        );
        for judgement in &row.judgements {
            let goal = judgement.bound.map_or("-".into(), |bound| {
                format!("≥ {bound:.2} {}", judgement.verdict)
            });
            let _ = writeln!(
                text,
                "| {} | {} | {} | {goal} |",
                judgement.server,
                judgement.metric.name(),
                judged(judgement)
            );
        }
    }
    text.push_str(&peers(rows));
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
    fn rows_are_told_with_limit_and_verdict() {
        let samples: Vec<_> = (0..6)
            .flat_map(|round| {
                [
                    sample("samba-sync", round, 1.0),
                    sample("limit", round, 0.2),
                    sample("holdfast-threads", round, 0.5),
                ]
            })
            .collect();
        let rows = rows(&samples);
        let judgements: Vec<&Judgement> = rows[0].judgements.iter().take(1).collect();
        assert_eq!(
            line(&rows[0], Metric::Cost, &judgements),
            "| copy | s/GiB | 0.50 (sync) | 0.10 | ≤ 0.80 | 0.25 | 0.50 (0.50-0.50) holds \
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
