//! The price of honouring FLUSH, by disk.

use super::{
    figure::{self, Figure, Point, Series},
    group::IsSo,
    page::Page,
    sections::{Sections, text},
};
use crate::bench::plan::{DiskClass, ServerKind};

/// The disks of 2004, in letters for which there is room beside some others.
const OLD: [&str; 2] = ["array", "1 disk"];

/// How far points of one place stand beside each other.
const ASIDE: f64 = 0.06;

/// The places of the figure with their points, and the rows of the table.
#[derive(Default)]
struct Prices {
    names: Vec<String>,
    holdfast: Vec<Point>,
    samba: Vec<Point>,
    /// Holdfast with a FLUSH that does not cover times.
    cheap: Vec<Point>,
    rows: Vec<Vec<String>>,
    /// The places at which a setting is that of several servers.
    unclear: Vec<String>,
}

impl Sections<'_> {
    /// The part of the peak that is left when FLUSH is honoured, by disk, beside the reports' figures.
    pub(super) fn price(&self, page: &mut Page) -> Result<(), String> {
        let is_of_reports = self.groups.iter().any(|group| group.counts_data());
        let mut prices = self.prices(is_of_reports);
        if prices.names.is_empty() && prices.unclear.is_empty() {
            return Ok(());
        }
        page.heading("The price of honouring FLUSH");
        if !prices.unclear.is_empty() {
            page.paragraph(&format!(
                "Several servers have one of the settings, and none of them stands for it, so there is no ratio of: {}.",
                prices.unclear.join("; ")
            ));
        }
        if prices.names.is_empty() {
            return Ok(());
        }
        page.paragraph(
            "The peak with FLUSH honoured, divided by the peak of the same server with FLUSH answered at once, in each \
             round in which all steps of both succeeded. 1 means that honouring costs nothing. Numbers below the figure \
             are those of the table.",
        );
        let old: &[&str] = if is_of_reports { &OLD } else { &[] };
        if is_of_reports {
            page.paragraph(
                "The last two places are those of VeriTest's report of 2004: a DL380 with an array, and a small server \
                 with one IDE disk.",
            );
        }
        prices.shorten(old.len());
        let mut head = " | class of disk | Holdfast | Samba".to_owned();
        match prices.cheap.is_empty() {
            true => prices.rows.iter_mut().for_each(|row| drop(row.pop())),
            false => head += " | Holdfast, flush_times = false",
        }
        let rows = std::mem::take(&mut prices.rows);
        page.figures(&[price_figure(prices, old)])?;
        page.table(&head, &rows);
        Ok(())
    }

    /// The prices for the workloads that the reports measured, if there is one of those, or else for all.
    fn prices(&self, is_of_reports: bool) -> Prices {
        let mut prices = Prices::default();
        let counted = || {
            let groups = self.groups.iter();
            groups.filter(move |group| group.counts_data() || !is_of_reports)
        };
        let first = counted().next().map(|group| group.title);
        let is_one_workload = counted().all(|group| Some(group.title) == first);
        let honor = |of: &ServerKind| of.policy() == Some(("honor", true));
        let cheap = |of: &ServerKind| of.policy() == Some(("honor", false));
        let lazy = |of: &ServerKind| {
            of.policy()
                .is_some_and(|(policy, _)| policy == "treat-host-as-stable-storage")
        };
        let (strict, lax) = (
            |of: &ServerKind| of.is_samba(true),
            |of: &ServerKind| of.is_samba(false),
        );
        for group in counted() {
            let name = format!("{} on {}", group.title, group.disk);
            let is_unclear =
                |one: IsSo<'_>, other: IsSo<'_>| group.count(one) * group.count(other) > 1;
            if is_unclear(&honor, &lazy) || is_unclear(&strict, &lax) || is_unclear(&cheap, &lazy) {
                prices.unclear.push(name.clone());
            }
            let (ours, theirs) = (group.ratio(&honor, &lazy), group.ratio(&strict, &lax));
            let without = group.ratio(&cheap, &lazy);
            if ours.is_none() && theirs.is_none() && without.is_none() {
                continue;
            }
            let place = prices.names.len() as f64;
            prices.names.push(match is_one_workload {
                true => group.disk.to_owned(),
                false => name.clone(),
            });
            let points = ours.map(|value| value.point(place - ASIDE));
            prices.holdfast.extend(points);
            let points = theirs.map(|value| value.point(place + ASIDE));
            prices.samba.extend(points);
            let points = without.map(|value| value.point(place));
            prices.cheap.extend(points);
            let class = group.class().map(DiskClass::name).unwrap_or_default();
            let row = vec![name, class, text(ours), text(theirs), text(without)];
            prices.rows.push(row);
        }
        prices
    }
}

impl Prices {
    /// Numbers the places if their names have no room beside so many others: names that are cut off could not be
    /// distinguished.
    fn shorten(&mut self, others: usize) {
        let room = figure::room(self.names.len() + others);
        if self.names.iter().all(|name| name.chars().count() <= room) {
            return;
        }
        for (place, (name, row)) in self.names.iter_mut().zip(&mut self.rows).enumerate() {
            *name = (place + 1).to_string();
            if let Some(cell) = row.first_mut() {
                *cell = format!("{name}: {cell}");
            }
        }
    }
}

/// The parts that are left, beside those of 2004 if they are comparable.
fn price_figure(prices: Prices, beside: &[&str]) -> Figure {
    let mut names = prices.names;
    let old = names.len();
    names.extend(beside.iter().map(|name| (*name).to_owned()));
    let point = |place: usize, aside: f64, y: f64| Point {
        x: place as f64 + aside,
        y,
        interval: None,
    };
    let series = |name: &str, colour, dashed, points: Vec<Point>| Series {
        name: name.to_owned(),
        colour,
        dashed,
        scattered: true,
        points: points.into_iter().map(Some).collect(),
    };
    let mut all = vec![
        series(
            "Holdfast: honor / treat-host-as-stable-storage",
            0,
            false,
            prices.holdfast,
        ),
        series("Samba: strict sync yes / no", 5, true, prices.samba),
    ];
    if !prices.cheap.is_empty() {
        all.push(series(
            "Holdfast: honor with flush_times = false / treat-host-as-stable-storage",
            1,
            false,
            prices.cheap,
        ));
    }
    if !beside.is_empty() {
        all.push(series(
            "Windows Server 2003, 2004",
            2,
            false,
            vec![point(old, -ASIDE, 0.913), point(old + 1, -ASIDE, 0.779)],
        ));
        all.push(series(
            "Samba 3.0, 2004",
            4,
            true,
            vec![point(old, ASIDE, 0.937), point(old + 1, ASIDE, 0.770)],
        ));
    }
    Figure {
        title: "Peak with FLUSH honoured, as a part of that with FLUSH ignored".to_owned(),
        x: "disk and workload".to_owned(),
        y: "part".to_owned(),
        logarithmic: false,
        names,
        series: all,
    }
}
