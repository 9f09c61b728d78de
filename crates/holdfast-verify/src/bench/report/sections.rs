//! The sections of the page.

use smb_load::jetstress::{LOG_MEAN_MS, MAILBOX_IOPS, READ_MEAN_MS, SAMPLE_MS};

use super::{
    figure::{Figure, Point, Series, number},
    group::{Group, Server, Value},
    page::Page,
};
use crate::bench::result::{Exposure, Run};

/// The bytes of a MiB.
const MIB: f64 = 1_048_576.0;

/// The content of all sections.
pub(super) struct Sections<'a> {
    pub(super) servers: Vec<Server>,
    pub(super) groups: Vec<Group<'a>>,
}

/// A number of clients in words.
fn of_clients(count: usize) -> String {
    match count {
        1 => "1 client".to_owned(),
        count => format!("{count} clients"),
    }
}

/// A value with its interval.
pub(super) fn text(value: Option<Value>) -> String {
    match value {
        None => "-".to_owned(),
        Some(Value {
            median,
            interval: Some((low, high)),
        }) => format!("{} ({} to {})", number(median), number(low), number(high)),
        Some(value) => number(value.median),
    }
}

/// Makes the points of a line from the samples of a run.
type OverTime<'a> = &'a dyn Fn(&[Exposure]) -> Vec<Option<(f64, f64)>>;

/// The flushes of each second between two samples.
pub(super) fn flushes(samples: &[Exposure]) -> Vec<Option<(f64, f64)>> {
    let pairs = samples.iter().zip(samples.iter().skip(1));
    let rate = |(before, after): (&Exposure, &Exposure)| {
        let seconds = after.second - before.second;
        let count = after.flushes?.saturating_sub(before.flushes?);
        (seconds > 0.0).then_some((after.second, count as f64 / seconds))
    };
    pairs.map(rate).collect()
}

impl Sections<'_> {
    fn series(&self, place: usize, server: &Server, points: Vec<Option<Point>>) -> Series {
        Series {
            name: server.name.clone(),
            colour: place,
            dashed: !server.is_holdfast(),
            scattered: false,
            points,
        }
    }

    fn each(&self, points: impl Fn(&Server) -> Vec<Option<Point>>) -> Vec<Series> {
        let servers = self.servers.iter().enumerate();
        let series = servers.map(|(place, server)| self.series(place, server, points(server)));
        series.filter(Series::has_value).collect()
    }

    /// One workload on one disk.
    pub(super) fn group(&self, page: &mut Page, group: &Group<'_>) -> Result<(), String> {
        page.heading(&format!("{} on {}", group.title, group.disk));
        let clients = group.clients();
        let most = clients.last().copied().unwrap_or(1);
        let unit = group.unit();
        let throughput = Figure {
            title: format!("Throughput by clients: {} on {}", group.title, group.disk),
            x: "clients".to_owned(),
            y: unit.to_owned(),
            logarithmic: false,
            // A single step is no place on an axis of numbers.
            names: match clients.as_slice() {
                [only] => vec![only.to_string()],
                _ => Vec::new(),
            },
            series: self.each(|server| {
                let points = group.rates(server).into_iter().map(|(number, rate)| {
                    let x = if clients.len() > 1 {
                        number as f64
                    } else {
                        0.0
                    };
                    Some(rate?.point(x))
                });
                points.collect()
            }),
        };
        let mut figures = self.by_workers(group);
        if figures.is_empty() {
            figures.push(throughput);
            figures.extend(self.scaling(group));
            figures.extend(self.latencies(group, most));
            figures.extend(self.exposure(group, most));
        }
        page.figures(&figures)?;
        self.peaks(page, group);
        self.mail_store(page, group);
        self.storage_groups(page, group);
        self.work(page, group);
        Ok(())
    }

    /// How throughput grows with the clients, in multiples of that with the fewest. One step scales to nothing.
    fn scaling(&self, group: &Group<'_>) -> Option<Figure> {
        let clients = group.clients();
        let fewest = clients.first().copied().filter(|_| clients.len() > 1)?;
        let of = |server: &Server| {
            let points = group.rates(server).into_iter().map(|(clients, _)| {
                let multiple = group.multiple(server, clients, fewest)?;
                Some(multiple.point(clients as f64))
            });
            points.collect()
        };
        Some(Figure {
            title: format!(
                "Scaling: multiples of the throughput with {}",
                of_clients(fewest)
            ),
            x: "clients".to_owned(),
            y: "multiple".to_owned(),
            logarithmic: false,
            names: Vec::new(),
            series: self.each(of),
        })
    }

    fn latencies(&self, group: &Group<'_>, clients: usize) -> Option<Figure> {
        let kind = group.telling_kind()?;
        Some(Figure {
            title: format!("Latency of {kind} with {}", of_clients(clients)),
            x: "percent of the operations that took no longer".to_owned(),
            y: "ms".to_owned(),
            logarithmic: true,
            names: ["50", "90", "99", "99.9"].map(str::to_owned).to_vec(),
            series: self.each(|server| {
                let values = group.latencies(server, clients, kind).into_iter();
                let values = values.enumerate();
                values
                    .map(|(place, value)| Some(value?.point(place as f64)))
                    .collect()
            }),
        })
    }

    /// The loss that a power cut would have caused in the first round that was measured: Holdfast's own count, and for
    /// every server what the kernel had not written and how often the disk's cache was flushed.
    fn exposure(&self, group: &Group<'_>, clients: usize) -> Vec<Figure> {
        let with = of_clients(clients);
        let over_time = |title: &str, unit: &str, of: OverTime<'_>| Figure {
            title: format!("{title} with {with}"),
            x: "seconds".to_owned(),
            y: unit.to_owned(),
            logarithmic: false,
            names: Vec::new(),
            series: self.each(|server| {
                let runs = group.cells.get(&(server.clone(), clients));
                let first =
                    runs.and_then(|runs| runs.iter().find(|run| run.record.outcome.is_some()));
                let samples = first.map_or(&[][..], |run| &run.exposure);
                let point = |(x, y)| Point {
                    x,
                    y,
                    interval: None,
                };
                of(samples).into_iter().map(|of| of.map(point)).collect()
            }),
        };
        let mut figures = vec![
            over_time(
                "Acknowledged and not stable, by Holdfast's own count,",
                "MiB",
                &|samples| {
                    let each = samples.iter();
                    each.map(|of| Some((of.second, of.bytes? as f64 / MIB)))
                        .collect()
                },
            ),
            over_time("Dirty pages of the kernel", "MiB", &|samples| {
                let each = samples.iter();
                each.map(|of| Some((of.second, of.kernel_dirty as f64 / MIB)))
                    .collect()
            }),
            over_time("Flushes of the disk's cache", "each second", &flushes),
        ];
        // Only Holdfast counts, so a figure without a value is no sign of a failure.
        figures.retain(Figure::has_value);
        figures
    }

    /// The peaks, and what they are of the highest.
    fn peaks(&self, page: &mut Page, group: &Group<'_>) {
        let peaks: Vec<_> = self
            .servers
            .iter()
            .filter_map(|server| Some((server, group.peak(server)?)))
            .collect();
        let best = peaks
            .iter()
            .map(|(_, (_, value))| value.median)
            .fold(0.0, f64::max);
        let steps = group.clients().len();
        let rows = peaks.iter().map(|(server, (clients, value))| {
            let rates = group.rates(server).into_iter();
            let place = match rates.filter(|(_, rate)| rate.is_some()).count() {
                // The peak may be at a step that failed or was not taken.
                known if known < steps => format!("{clients} (only {known} of {steps} steps)"),
                _ => clients.to_string(),
            };
            vec![
                server.name.clone(),
                text(Some(*value)),
                place,
                format!(
                    "{:.0} %",
                    value.median / best.max(f64::MIN_POSITIVE) * 100.0
                ),
            ]
        });
        page.smaller_heading("Peaks");
        let head = format!("server | {} | clients | of the highest", group.unit());
        page.table(&head, &rows.collect::<Vec<_>>());
    }

    /// Whether a mail store could live with it.
    fn mail_store(&self, page: &mut Page, group: &Group<'_>) {
        let mut rows = Vec::new();
        for server in &self.servers {
            for clients in group.clients() {
                let (verdicts, rounds) = group.verdicts(server, clients);
                let of = |figure: &dyn Fn(&smb_load::jetstress::Verdict) -> f64| {
                    text(Value::of(&verdicts.iter().map(figure).collect::<Vec<_>>()))
                };
                if verdicts.is_empty() {
                    continue;
                }
                let passed = verdicts.iter().filter(|verdict| verdict.is_good()).count();
                let mut faults: Vec<String> = verdicts
                    .iter()
                    .flat_map(smb_load::jetstress::Verdict::faults)
                    .collect();
                let failed = rounds - verdicts.len();
                if failed > 0 {
                    faults.push(format!("measurements that failed: {failed}"));
                }
                rows.push(vec![
                    server.name.clone(),
                    clients.to_string(),
                    of(&|verdict| verdict.read_ms),
                    of(&|verdict| verdict.log_ms),
                    of(&|verdict| verdict.worst_ms),
                    of(&|verdict| verdict.iops),
                    of(&|verdict| verdict.wanted_iops),
                    format!("{passed} of {rounds}"),
                    faults.join("; "),
                ]);
            }
        }
        if rows.is_empty() {
            return;
        }
        page.smaller_heading("The mail store");
        page.paragraph(&format!(
            "A run passes if reads of the database take at most {READ_MEAN_MS} ms in the mean, writes of the log \
             {LOG_MEAN_MS} ms, and neither more than {SAMPLE_MS} ms in any sample of at most 15 seconds, and if each \
             mailbox it is for has {MAILBOX_IOPS} requests of the database a second (IOPS). Every page was read back and \
             verified at the end."
        ));
        let head = "server | threads | read, ms | log write, ms | worst sample, ms | IOPS | \
                    IOPS wanted | passed | failed by";
        page.table(head, &rows);
    }

    /// The work of servers and disk.
    fn work(&self, page: &mut Page, group: &Group<'_>) {
        let clients = group.clients().into_iter();
        let cells = clients.flat_map(|clients| self.servers.iter().map(move |of| (clients, of)));
        let rows = cells.filter_map(|(clients, server)| {
            let value = |figure: &dyn Fn(&Run) -> Option<f64>| group.value(server, clients, figure);
            let measured = |run: &Run| Some(run.record.outcome.as_ref()?.measured.clone());
            // Not by the seconds of the plan: a program takes as long as it takes.
            let per_second = |run: &Run, count: f64| Some(count / measured(run)?.seconds);
            // Merging: of what one FLUSH each asked for, how much one sync or one flush of the device did.
            let merged = |run: &Run, count: Option<u64>| {
                let flushes = measured(run)?.latencies.get("flush")?.count;
                Some(flushes as f64 / count? as f64)
            };
            group.rate(server, clients)?;
            Some(vec![
                server.name.clone(),
                clients.to_string(),
                text(value(&|run| per_second(run, run.device?.flushes as f64))),
                text(value(&|run| {
                    per_second(run, run.device?.bytes as f64 / MIB)
                })),
                text(value(&|run| {
                    let operations = measured(run)?.operations;
                    Some(run.server_cpu? * 1e6 / operations.max(1) as f64)
                })),
                text(value(&|run| Some(measured(run)?.client_cpu * 100.0))),
                text(value(&|run| {
                    let most = run.exposure.iter().filter_map(|sample| sample.bytes).max();
                    Some(most? as f64 / MIB)
                })),
                text(value(&|run| {
                    let most = run.exposure.iter().map(|sample| sample.kernel_dirty).max();
                    Some(most? as f64 / MIB)
                })),
                text(value(&|run| {
                    let oldest = run.exposure.iter().filter_map(|sample| sample.oldest);
                    oldest.reduce(f64::max)
                })),
                text(value(&|run| merged(run, run.syncs))),
                text(value(&|run| merged(run, Some(run.device?.flushes)))),
            ])
        });
        let rows: Vec<_> = rows.collect();
        page.smaller_heading("Disk, processor and exposure");
        let head = "server | clients | device flushes/s | device MiB/s | \
                    server CPU, us/operation | client CPU, % | highest exposure, MiB | \
                    kernel's dirty pages, MiB | oldest change, s | FLUSHes for each sync | \
                    FLUSHes for each device flush";
        page.table(head, &rows);
    }

    /// The reports' own numbers; only ratios can stand beside ours.
    pub(super) fn history(&self, page: &mut Page) {
        page.heading("The numbers of 1999 to 2008");
        page.paragraph(
            "Peaks of 2004 in Mbps, NetBench 7.02 Enterprise Disk Mix. Machines, networks and clients were others, so only \
             the ratios can be held against the figures above.",
        );
        let head = " | DL380, array | Dell 500SC, one disk | honoured / ignored";
        let rows = [
            "Windows Server 2003, FLUSH ignored | 935.8 | 370.3 | ",
            "Windows Server 2003, FLUSH honoured | 854.0 | 288.5 | 0.913; 0.779",
            "Samba 3.0, strict sync = no | 586.4 | 232.4 | ",
            "Samba 3.0, strict sync = yes | 549.5 | 178.9 | 0.937; 0.770",
        ];
        let rows = rows.map(|row| row.split(" | ").map(str::to_owned).collect::<Vec<_>>());
        page.table(head, &rows);
        page.paragraph(
            "2003: 453, 632, 901 and 1,088 Mbps with 1, 2, 4 and 8 processors (Windows), 244, 365, 462 and 657 (Linux). 1999: \
             from 1 to 4 processors +105 % (Windows NT) and +43 % (Linux). 2008, Jetstress: reads 14 to 19 ms, log \
             writes 2 to 3 ms, with 21 and 10 threads of each storage group.",
        );
    }
}
