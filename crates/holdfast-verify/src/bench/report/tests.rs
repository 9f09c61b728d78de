//! The report from fixed results.

use smb_load::{
    Measured, Protection, Step, Summary,
    experiment::{Machine, Record, Workload},
    jetstress::Verdict,
    netbench::worker::Class,
    rig::config::SambaIo,
};

use super::*;
use crate::bench::{
    plan::{DiskClass, ServerKind},
    program::{self, Build},
    result::{Device, Disk, Exposure, FORMAT},
};

/// The page of a matrix that has ended.
fn html(runs: &[Run]) -> Result<String, String> {
    super::html(runs, (0, 12))
}

fn run(server: &str, setting: ServerKind, round: usize, clients: usize, mbps: f64) -> Run {
    let summary = Summary {
        count: 100,
        p50: 900,
        p90: Some(1500),
        p99: Some(4000),
        p999: Some(9000),
        ..Summary::default()
    };
    let measured = Measured {
        // Half of what the plan asked for, as a program may take.
        seconds: 2.5,
        operations: 5000,
        per_second: 1000.0,
        mbps,
        latencies: [("flush".to_owned(), summary)].into(),
        ..Measured::default()
    };
    let step = Step {
        warm_up: std::time::Duration::from_secs(1),
        length: std::time::Duration::from_secs(5),
    };
    let outcome = match mbps {
        0.0 => Err("the server closed the connection".to_owned()),
        _ => Ok(measured.into()),
    };
    let workload = Workload::Netbench {
        documents: 8,
        class: Class::Plain,
    };
    Run {
        format: FORMAT,
        round,
        title: "netbench".to_owned(),
        seed: clients as u64,
        setting,
        server_version: "1.0".to_owned(),
        server_program: "7 bytes, 0a".to_owned(),
        disk: Disk {
            name: "raw".to_owned(),
            class: DiskClass::Raw,
            facts: [("scheduler".to_owned(), "none".to_owned())].into(),
        },
        record: Record::new(server, &workload, clients, step, Machine::now(), outcome),
        protection: Protection::Plain,
        server_cpu: Some(2.0),
        memory_kib: None,
        syncs: Some(25),
        device: Some(Device {
            flushes: 50,
            writes: 70,
            bytes: 1 << 20,
        }),
        exposure: vec![Exposure {
            second: 1.0,
            bytes: Some(3 << 20),
            oldest: Some(0.04),
            kernel_dirty: 4 << 20,
            flushes: Some(50),
        }],
    }
}

fn fixed() -> Vec<Run> {
    let samba = ServerKind::Samba {
        strict_sync: true,
        sync_always: false,
        io: SambaIo::Sync,
        root: None,
    };
    let mut runs = Vec::new();
    for round in 0..2 {
        for (clients, mbps) in [(1, 100.0), (8, 400.0)] {
            let mbps = mbps + round as f64;
            let lazy = ServerKind::holdfast("treat-host-as-stable-storage");
            runs.push(run(
                "honor",
                ServerKind::holdfast("honor"),
                round,
                clients,
                mbps,
            ));
            runs.push(run("lazy", lazy, round, clients, mbps * 2.0));
            runs.push(run(
                "Samba, <strict>",
                samba.clone(),
                round,
                clients,
                mbps / 2.0,
            ));
        }
    }
    runs
}

#[test]
fn the_page_has_the_figures_and_needs_no_network() {
    let html = html(&fixed()).unwrap();
    // Throughput, scaling, latency, two of exposure, price.
    assert_eq!(html.matches("<figure>").count(), 6);
    assert_eq!(
        html.matches("http").count(),
        html.matches("http://www.w3.org/2000/svg").count()
    );
    assert!(!html.contains("<script") && !html.contains("<strict>"));
    assert!(html.contains("prefers-color-scheme:dark") && html.contains("@media print"));
    // The head of a table is repeated on each page of paper.
    assert_eq!(
        html.matches("<table>").count(),
        html.matches("<thead>").count()
    );
    assert!(html.contains("medians of 2 rounds") && html.contains("with 50 %"));
    // The peak of honor is half of the lazy one's, in each round.
    assert!(html.contains("0.5 (0.5 to 0.5)"), "{html}");
    assert!(html.contains("<td>50 %</td>"));
    // 50 flushes and 1 MiB in the time that was measured.
    assert!(html.contains("<td>20 (20 to 20)</td><td>0.4 (0.4 to 0.4)</td>"));
    assert!(sheet::text(&fixed()).contains("1,raw,netbench,1,honor,2.5,"));
}

#[test]
fn the_promise_of_each_server_and_the_threshold_that_decided_are_named() {
    let mut runs = fixed();
    for run in &mut runs {
        if let Some(outcome) = &mut run.record.outcome {
            let mut slow = outcome.measured.clone();
            let summary = Summary {
                count: 10,
                mean: 21_000.0,
                ..Summary::default()
            };
            slow.latencies = [("database-read".to_owned(), summary)].into();
            outcome.verdict = Some(Verdict::of(&[slow], 0));
        }
    }
    let (html, sheet) = (html(&runs).unwrap(), sheet::text(&runs));
    let fault = "database read of 21.000 ms, above 20 ms";
    let lazy = "<td>treat-host-as-stable-storage</td><td>ignored</td>";
    let samba = "<td>strict sync = yes, sync always = no</td><td>honoured</td>";
    assert_eq!(
        (html.matches(lazy).count(), html.matches(samba).count()),
        (1, 1)
    );
    assert!(html.contains(&format!(
        "<td>0 of 2</td><td class=\"long\">{fault}; {fault}</td>"
    )));
    let line = format!(",honor,honoured,false,\"{fault}\",");
    assert_eq!(sheet.matches(&line).count(), 4, "{sheet}");
    // A round without a verdict is none that passed.
    let at = runs.iter().position(|run| run.record.server == "honor");
    runs[at.unwrap()].record.outcome = None;
    let page = super::html(&runs, (0, 12)).unwrap();
    let failed =
        format!("<td>0 of 2</td><td class=\"long\">{fault}; measurements that failed: 1</td>");
    assert!(page.contains(&failed), "{page}");
}

#[test]
fn the_page_of_an_interrupted_matrix_says_so() {
    let warning = "3 of 15 measurements of the plan are missing";
    assert!(super::html(&fixed(), (3, 15)).unwrap().contains(warning));
    assert!(!html(&fixed()).unwrap().contains("missing"));
}

#[test]
fn a_measurement_that_failed_is_listed_and_has_no_value() {
    let mut runs = fixed();
    runs.push(run(
        "dead",
        ServerKind::holdfast("bounded:50ms,4MiB"),
        0,
        8,
        0.0,
    ));
    let html = html(&runs).unwrap();
    assert!(html.contains("1 of 13 measurements failed"));
    assert!(html.contains("the server closed the connection"));
    // In the list of failures only: no figure, no table of peaks.
    assert_eq!(html.matches(">dead<").count(), 1);
    let sheet = sheet::text(&runs);
    assert_eq!(sheet.lines().count(), 14);
    let line = sheet.lines().last().unwrap();
    // Nothing of what was seen until it failed.
    let empty = ",".repeat(13);
    let start = format!("1,raw,netbench,8,dead,5{empty}\"bounded");
    assert!(line.starts_with(&start), "{line}");
}

#[test]
fn a_round_that_failed_does_not_count_among_those_that_succeeded() {
    let setting = || ServerKind::holdfast("honor");
    let mut runs = vec![
        run("honor", setting(), 0, 8, 400.0),
        run("honor", setting(), 1, 8, 0.0),
    ];
    runs[1].exposure[0].oldest = Some(77.0);
    let html = html(&runs).unwrap();
    assert!(html.contains("<td>0.04</td>"), "{html}");
}

#[test]
fn a_round_without_all_its_steps_has_no_price() {
    let row = "<td>netbench on raw</td><td>raw</td><td>0.5 (0.5 to 0.5)</td>";
    let of_one = "<td>netbench on raw</td><td>raw</td><td>0.5</td>";
    let mut runs = fixed();
    assert!(html(&runs).unwrap().contains(row));
    // The peak failed once, so that round has only the lower step of that server.
    let is_peak = |run: &Run| run.round == 1 && run.record.clients == 8;
    let failed = runs
        .iter()
        .position(|run| is_peak(run) && run.record.server == "honor");
    runs[failed.unwrap()].record.outcome = None;
    assert!(html(&runs).unwrap().contains(of_one));
    // An interruption has the same effect.
    runs.remove(failed.unwrap());
    assert!(html(&runs).unwrap().contains(of_one));
}

#[test]
fn the_price_is_drawn_by_disk_with_its_class() {
    let disks = [
        ("one disk", DiskClass::Ide2003, "ide-2003"),
        ("RAID", DiskClass::Array, "array"),
        ("flash", DiskClass::Ssd, "ssd"),
    ];
    let lax = ServerKind::Samba {
        strict_sync: false,
        sync_always: false,
        io: SambaIo::Sync,
        root: None,
    };
    let mut runs = Vec::new();
    for (name, class, _) in disks {
        let mut of_disk = fixed();
        for (round, clients) in [(0, 1), (0, 8), (1, 1), (1, 8)] {
            // Four times as much as the strict one in each round.
            let mbps = 800.0 + 2.0 * round as f64;
            of_disk.push(run("Samba", lax.clone(), round, clients, mbps));
        }
        for run in &mut of_disk {
            run.disk.name = name.to_owned();
            run.disk.class = class;
        }
        runs.extend(of_disk);
    }
    let page = html(&runs).unwrap();
    let caption = "Peak with FLUSH honoured, as a part of that with FLUSH ignored";
    let (_, figure) = page.split_once(caption).unwrap();
    let (figure, _) = figure.split_once("</figure>").unwrap();
    for (name, _, class) in disks {
        assert!(figure.contains(name), "{name}: {figure}");
        let row = format!(
            "<td>netbench on {name}</td><td>{class}</td><td>0.5 (0.5 to 0.5)</td><td>0.25 (0.25 to 0.25)</td>"
        );
        assert!(page.contains(&row), "{page}");
    }
    assert!(page.contains("The last two places are those of VeriTest"));
}

#[test]
fn the_price_of_other_workloads_does_not_stand_beside_that_of_the_reports() {
    let mut runs = fixed();
    for run in &mut runs {
        run.record.workload = Workload::FlushLadder {
            one_file: true,
            bytes: 4096,
        };
    }
    let page = html(&runs).unwrap();
    assert!(page.contains("<td>netbench on raw</td><td>raw</td><td>1 (1 to 1)</td>"));
    assert!(!page.contains("The last two places"));
}

#[test]
fn a_flush_that_covers_no_times_has_a_price_of_its_own() {
    let mut runs = fixed();
    assert!(!html(&runs).unwrap().contains("flush_times"));
    for (round, clients) in [(0, 1), (0, 8), (1, 1), (1, 8)] {
        let mut setting = ServerKind::holdfast("honor");
        if let ServerKind::Holdfast { flush_times, .. } = &mut setting {
            *flush_times = Some(false);
        }
        let mbps = 600.0 + 1.5 * round as f64;
        runs.push(run("no times", setting, round, clients, mbps));
    }
    let page = html(&runs).unwrap();
    let row = "<td>netbench on raw</td><td>raw</td><td>0.5 (0.5 to 0.5)</td><td>-</td>\
               <td>0.75 (0.75 to 0.75)</td>";
    assert!(page.contains(row), "{page}");
    let promise = "<td>honor, flush_times = false</td><td>honoured but for times</td>";
    assert!(page.contains(promise), "{page}");
}

#[test]
fn two_servers_of_one_setting_have_no_ratio() {
    let mut runs = fixed();
    for (round, clients) in [(0, 1), (0, 8), (1, 1), (1, 8)] {
        let setting = ServerKind::holdfast("honor");
        runs.push(run("honor, too", setting, round, clients, 700.0));
    }
    let page = html(&runs).unwrap();
    assert!(page.contains("no ratio of: netbench on raw"), "{page}");
    assert!(!page.contains("Peak with FLUSH honoured"), "{page}");
}

#[test]
fn what_a_power_cut_would_take_is_drawn_also_of_a_server_that_does_not_count_it() {
    let mut runs = fixed();
    for run in &mut runs {
        let is_samba = run.record.server.starts_with("Samba");
        let mut last = run.exposure[0];
        last.second = 3.0;
        last.flushes = Some(100);
        run.exposure.push(last);
        if is_samba {
            run.exposure
                .iter_mut()
                .for_each(|sample| sample.bytes = None);
        }
    }
    let page = html(&runs).unwrap();
    let figure = |title: &str| {
        let caption = format!("<figcaption>{title} with 8 clients</figcaption>");
        let (_, rest) = page.split_once(&caption).unwrap();
        rest.split_once("</figure>").unwrap().0
    };
    let samba = "</svg>Samba, &lt;strict&gt;</li>";
    let own = figure("Acknowledged and not stable, by Holdfast's own count,");
    assert!(own.contains("</svg>honor</li>") && !own.contains(samba));
    for title in ["Dirty pages of the kernel", "Flushes of the disk's cache"] {
        assert!(figure(title).contains(samba), "{title}");
    }
    // 50 more in two seconds.
    let samples = &runs[0].exposure;
    assert_eq!(sections::flushes(samples), [Some((3.0, 25.0))]);
    // The highest exposure, which Samba does not state, and the kernel's dirty pages.
    assert!(page.contains("<td>3 (3 to 3)</td><td>4 (4 to 4)</td>"));
    assert!(page.contains("<td>-</td><td>4 (4 to 4)</td>"));
}

#[test]
fn a_percentile_that_one_round_lacks_has_no_value() {
    let mut runs = fixed();
    let first = runs.iter_mut().find(|run| run.record.server == "honor");
    let outcome = first.unwrap().record.outcome.as_mut().unwrap();
    let flush = outcome.measured.latencies.get_mut("flush").unwrap();
    (flush.p99, flush.p999) = (None, None);
    let (groups, servers) = (groups(&runs), servers(&runs));
    let honor = servers
        .iter()
        .find(|server| server.name == "honor")
        .unwrap();
    let there = |clients| {
        groups[0]
            .latencies(honor, clients, "flush")
            .map(|of| of.is_some())
    };
    // The first measurement was that with one client.
    assert_eq!(there(1), [true, true, false, false]);
    assert_eq!(there(8), [true; 4]);
}

#[test]
fn results_of_two_builds_or_disks_of_one_name_are_named() {
    let warning = "their medians are of different things: ";
    assert!(!html(&fixed()).unwrap().contains(warning));
    let named = |change: fn(&mut Run), name: &str| {
        let mut runs = fixed();
        change(&mut runs[3]);
        let page = html(&runs).unwrap();
        assert!(page.contains(&format!("{warning}{name}.")), "{page}");
    };
    named(|run| run.server_program.push('1'), "honor");
    named(
        |run| run.setting = ServerKind::holdfast("strict-sync"),
        "honor",
    );
    named(|run| run.disk.class = DiskClass::Ssd, "raw");
    let other = |run: &mut Run| {
        run.disk
            .facts
            .insert("scheduler".to_owned(), "bfq".to_owned());
    };
    named(other, "raw");
    let mut runs = fixed();
    runs[3]
        .disk
        .facts
        .insert("source".to_owned(), "loop7".to_owned());
    assert!(!html(&runs).unwrap().contains(warning));
}

#[test]
fn a_peak_of_some_steps_only_is_called_so() {
    let mut runs = fixed();
    let some = "<td>1 (only 1 of 2 steps)</td>";
    assert!(!html(&runs).unwrap().contains(some));
    runs.retain(|run| run.record.server != "honor" || run.record.clients == 1);
    assert_eq!(html(&runs).unwrap().matches(some).count(), 1);
}

#[test]
fn a_multiple_is_that_of_its_round() {
    // The machine was twice as fast in the second round: that is no spread of the scaling.
    let setting = || ServerKind::holdfast("honor");
    let runs = [(0, 1, 100.0), (0, 8, 400.0), (1, 1, 200.0), (1, 8, 800.0)]
        .map(|(round, clients, mbps)| run("honor", setting(), round, clients, mbps));
    let (groups, servers) = (groups(&runs), servers(&runs));
    let multiple = groups[0].multiple(&servers[0], 8, 1).unwrap();
    let interval = Some((4.0, 4.0));
    let median = 4.0;
    assert_eq!(multiple, group::Value { median, interval });
    assert_eq!(group::Value::of(&[1.0, f64::INFINITY]), None);
}

#[test]
fn results_of_two_machines_and_steps_of_two_lengths_are_named() {
    let warning = "different machines";
    let mut runs = fixed();
    assert!(!html(&runs).unwrap().contains(warning));
    runs[3].record.seconds = 30.0;
    let page = html(&runs).unwrap();
    let lengths = "<dd>30 s after a warm-up of 1 s; 5 s after a warm-up of 1 s</dd>";
    assert!(!page.contains(warning) && page.contains(lengths), "{page}");
    runs[3].record.machine.kernel = "1.2.13-elsewhere".to_owned();
    let page = html(&runs).unwrap();
    assert!(page.contains(warning) && page.contains("<dd>1.2.13-elsewhere; "));
}

#[test]
fn a_figure_whose_steps_all_failed_keeps_its_caption() {
    let of = |clients| run("dead", ServerKind::holdfast("honor"), 0, clients, 0.0);
    let page = html(&[1, 8].map(of)).unwrap();
    for title in [
        "Throughput by clients: netbench on raw",
        "Scaling: multiples of the throughput with 1 client",
    ] {
        let caption = format!("<figcaption>{title}</figcaption>\n<p class=\"soft\">No value: ");
        assert!(page.contains(&caption), "{page}");
    }
    assert!(!page.contains("<svg"));
    // One step has no scaling that could be missing.
    let page = html(&[8].map(of)).unwrap();
    assert_eq!(page.matches("<figure>").count(), 1);
}

#[test]
fn a_step_that_failed_leaves_a_gap_in_its_lines() {
    let lines = |mbps: f64| {
        let points = [(1, 100.0), (8, 200.0), (32, mbps), (44, 300.0), (60, 350.0)];
        let of = |(clients, mbps)| run("honor", ServerKind::holdfast("honor"), 0, clients, mbps);
        let page = html(&points.map(of)).unwrap();
        page.matches("stroke-width=\"2\" points=").count()
    };
    // Those of throughput and scaling are in two parts.
    assert_eq!(lines(0.0), lines(250.0) + 2);
}

#[test]
fn the_confidence_is_that_of_the_value_with_the_fewest_rounds() {
    let mut runs = fixed();
    // A third round that was interrupted.
    let mut third = fixed();
    third.retain(|run| run.round == 0 && run.record.clients == 8);
    third.iter_mut().for_each(|run| run.round = 2);
    runs.extend(third);
    let said = spread(&runs);
    assert!(
        said.contains("2 to 3 rounds") && said.contains("at least 50 %"),
        "{said}"
    );
    runs.retain(|run| run.round != 1);
    assert!(spread(&runs).contains("measured once"));
    runs.retain(|run| run.round == 0);
    assert!(spread(&runs).contains("one round"));
}

#[test]
fn places_whose_names_have_no_room_are_numbered() {
    let mut runs = Vec::new();
    for disk in ["single disk of 2003", "array with a cache"] {
        for title in ["netbench", "netbench, points of 2003"] {
            runs.extend(fixed().into_iter().map(|mut run| {
                run.disk.name = disk.to_owned();
                run.title = title.to_owned();
                run
            }));
        }
    }
    let page = html(&runs).unwrap();
    for row in [
        "<td>1: netbench on single disk of 2003</td>",
        "<td>4: netbench, points of 2003 on array with a cache</td>",
    ] {
        assert!(page.contains(row), "{row}");
    }
    // One disk has room for its name.
    assert!(html(&fixed()).unwrap().contains("<td>netbench on raw</td>"));
}

#[test]
fn a_dip_after_the_peak_is_shown() {
    let points = [(44, 300.0), (52, 400.0), (60, 200.0)];
    let of = |(clients, mbps)| run("honor", ServerKind::holdfast("honor"), 0, clients, mbps);
    let html = html(&points.map(of)).unwrap();
    assert!(html.contains("Throughput by clients: netbench on raw"));
    assert!(html.contains("<td>52</td><td>100 %</td>"), "{html}");
}

#[test]
fn scale_is_drawn_by_workers() {
    let mut runs = Vec::new();
    for (workers, mbps) in [(1, 100.0), (2, 180.0)] {
        for word in ["pinned", "unpinned"] {
            let name = format!("{workers} workers, 1 NICs, {word}");
            let setting = ServerKind::holdfast("treat-host-as-stable-storage");
            runs.push(run(&name, setting, 0, 16, mbps));
        }
    }
    let html = html(&runs).unwrap();
    assert_eq!(html.matches("<figure>").count(), 2);
    assert!(html.contains("Throughput by workers"));
    // Two lines in the legend of each.
    assert_eq!(html.matches("</svg>1 NICs, ").count(), 4);
}

#[test]
fn each_storage_group_has_its_line() {
    let mut runs = fixed();
    for run in &mut runs {
        let part = |count, mean| {
            let summary = Summary {
                count,
                mean,
                p95: Some(7000),
                p99: Some(9000),
                ..Summary::default()
            };
            [("database-read".to_owned(), summary)].into()
        };
        if let Some(outcome) = &mut run.record.outcome {
            outcome.measured.parts = vec![part(500, 3000.0), part(600, 4000.0)];
        }
    }
    let html = html(&runs).unwrap();
    // 500 and 600 in 2.5 s, by three servers; nothing is judged, so with the most clients.
    for (group, rate, ms) in [(1, 200, 3), (2, 240, 4)] {
        let cells =
            format!("<td>8</td><td>{group}</td><td>{rate} ({rate} to {rate})</td><td>-</td>");
        assert_eq!(html.matches(&cells).count(), 3, "{html}");
        let latencies = [ms, 7, 9].map(|ms| format!("<td>{ms} ({ms} to {ms})</td>"));
        assert_eq!(html.matches(&latencies.concat()).count(), 3, "{html}");
    }
    let sheet = sheet::groups(&runs).unwrap();
    // Two groups in 12 measurements.
    assert_eq!(sheet.lines().count(), 1 + 24);
    assert!(sheet.contains("1,raw,netbench,8,honor,2,,database-read,240.0,4.000,7.000,9.000\n"));
    assert_eq!(sheet::groups(&fixed()), None);
    assert!(!html.contains("Shares of the storage groups"));
}

#[test]
fn each_share_of_the_storage_groups_has_its_line() {
    let mut runs = fixed();
    for run in &mut runs {
        let part = |kind: &str, count| {
            let summary = Summary {
                count,
                mean: 2000.0,
                ..Summary::default()
            };
            [(kind.to_owned(), summary)].into()
        };
        run.record.shares = vec!["data".to_owned(), "logs, fast".to_owned()];
        if let Some(outcome) = &mut run.record.outcome {
            outcome.measured.shares = vec![part("database-read", 500), part("log-write", 750)];
        }
    }
    let (html, sheet) = (html(&runs).unwrap(), sheet::groups(&runs).unwrap());
    assert!(html.contains("<h3>Shares of the storage groups</h3>"));
    let data = "<td>8</td><td>data</td><td>200 (200 to 200)</td><td>-</td><td>-</td>";
    let logs = "<td>8</td><td>logs, fast</td><td>-</td><td>-</td><td>300 (300 to 300)</td>";
    for line in [data, logs] {
        assert_eq!(html.matches(line).count(), 3, "{html}");
    }
    let line = "1,raw,netbench,8,honor,,\"logs, fast\",log-write,300.0,2.000,,\n";
    assert!(sheet.contains(line), "{sheet}");
    // Two shares in 12 measurements.
    assert_eq!(sheet.lines().count(), 1 + 24);
}

#[test]
fn the_measurements_of_another_program_are_not_continued() {
    let mut runs = fixed();
    let check = |runs: &[Run], server, version: &str, file: &str| {
        let (version, file) = (version.to_owned(), file.to_owned());
        program::check(runs, server, &Build { version, file })
    };
    assert!(check(&runs, "honor", "1.0", "7 bytes, 0a").is_ok());
    assert!(check(&runs, "new", "2.0", "8 bytes, 0b").is_ok());
    let error = check(&runs, "honor", "1.0", "7 bytes, 0b").unwrap_err();
    assert!(error.contains("\"honor\" was another program"), "{error}");
    assert!(check(&runs, "honor", "1.1", "7 bytes, 0a").is_err());
    // Older results do not say which file it was.
    runs.iter_mut().for_each(|run| run.server_program.clear());
    assert!(check(&runs, "honor", "1.0", "7 bytes, 0b").is_ok());
}

#[test]
fn results_are_read_back_as_they_were_stored() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(result::folder(folder.path())).unwrap();
    let runs = fixed();
    for (number, run) in runs.iter().enumerate() {
        let path = result::folder(folder.path()).join(format!("{number:03}.json"));
        run.store(&path).unwrap();
    }
    // The file of an interruption is no result.
    std::fs::write(result::folder(folder.path()).join("x.unfinished"), "{").unwrap();
    assert_eq!(result::all(folder.path()).unwrap(), runs);
    assert_eq!(result::failures(folder.path()), Ok(0));
    let dead = run("dead", ServerKind::holdfast("honor"), 0, 8, 0.0);
    let path = result::folder(folder.path()).join("dead.json");
    dead.store(&path).unwrap();
    assert_eq!(result::failures(folder.path()), Ok(1));
    std::fs::remove_file(&path).unwrap();
    // Neither is a copy, which would be one more round, nor a damaged file.
    let copy = result::folder(folder.path()).join("copy.json");
    runs[0].store(&copy).unwrap();
    let error = result::all(folder.path()).unwrap_err();
    assert!(error.contains("copy.json: another file"), "{error}");
    std::fs::write(&copy, "{}").unwrap();
    let error = super::run(folder.path()).unwrap_err();
    assert!(error.contains("copy.json"), "{error}");
    std::fs::remove_file(&copy).unwrap();
    // The groups of an earlier report are not among these results.
    std::fs::write(folder.path().join(GROUPS), "old").unwrap();
    super::run(folder.path()).unwrap();
    assert!(!folder.path().join(GROUPS).exists());
    for name in [PAGE, SHEET] {
        assert!(folder.path().join(name).metadata().unwrap().len() > 100);
    }
}
