//! Rows from fixed samples.

use super::*;

pub(crate) fn sample(server: &'static str, round: usize, server_seconds: f64) -> Sample {
    Sample {
        workload: "copy",
        unit: Unit::Gib,
        goals: vec![Goal {
            metric: Metric::Cost,
            bound: 0.8,
            of: Maker::Samba,
        }],
        server,
        maker: match server.split('-').next() {
            Some("samba") => Maker::Samba,
            Some("limit") => Maker::Limit,
            _ => Maker::Holdfast,
        },
        round,
        units: 2.0,
        server_seconds,
        client_seconds: 1.0,
        wall_seconds: 4.0 * server_seconds,
        p50_us: 5.0,
        p99_us: 9.0,
        kib: f64::NAN,
    }
}

#[test]
fn the_cheapest_samba_is_what_counts() {
    let samples = [
        sample("samba-sync", 0, 1.0),
        sample("samba-uring", 0, 0.8),
        sample("holdfast-threads", 0, 0.4),
        sample("holdfast-threads", 1, 0.8),
        sample("samba-sync", 1, 1.2),
        sample("samba-uring", 1, 0.8),
    ];
    let rows = rows(&samples);
    assert_eq!(rows.len(), 1);
    let [judgement, rate] = &rows[0].judgements[..] else {
        panic!("its goal and its rate are to be judged");
    };
    assert_eq!((rate.metric, rate.bound), (Metric::Rate, None));
    assert_eq!(judgement.to, Some("samba-uring"));
    assert_eq!(judgement.rounds, [0.5, 1.0]);
    assert_eq!(judgement.median, Some(0.75));
    assert_eq!(judgement.verdict, "too few rounds");
    let samba: Vec<&Sample> = samples.iter().collect();
    assert_eq!(
        best(&samba, Maker::Samba, Metric::Rate),
        Some("samba-uring")
    );
}

#[test]
fn a_goal_beside_the_limit_is_a_multiple_of_its_cost_in_the_same_round() {
    let samples: Vec<Sample> = (0..6)
        .flat_map(|round| {
            let cost = 1.0 + round as f64;
            let of = |server, server_seconds| Sample {
                goals: vec![Goal {
                    metric: Metric::Cost,
                    bound: 1.6,
                    of: Maker::Limit,
                }],
                ..sample(server, round, server_seconds)
            };
            [
                of("samba-sync", 9.0),
                of("limit", cost),
                of("holdfast-uring", cost * 1.5),
            ]
        })
        .collect();
    let rows = rows(&samples);
    let judgements = &rows[0].judgements;
    let beside_limit = judgements.iter().find(|j| j.to == Some("limit")).unwrap();
    assert_eq!(beside_limit.median, Some(1.5));
    assert_eq!(beside_limit.verdict, "holds");
    let beside_samba = judgements.iter().find(|j| j.of == Maker::Samba).unwrap();
    assert_eq!(beside_samba.verdict, "");
}

#[test]
fn a_verdict_is_the_intervals() {
    let samples: Vec<Sample> = (0..10)
        .flat_map(|round| {
            let cost = 0.5 + f64::from(round) / 100.0;
            let round = usize::try_from(round).unwrap();
            [
                sample("samba-sync", round, 1.0),
                sample("holdfast-uring", round, cost),
            ]
        })
        .collect();
    let judgement = &rows(&samples)[0].judgements[0];
    let (low, high) = judgement.interval.unwrap();
    assert!((low - 0.51).abs() < 1e-9 && (high - 0.58).abs() < 1e-9);
    assert_eq!(judgement.verdict, "holds");
    let interval = Some((0.5, 0.6));
    assert_eq!(verdict(interval, Metric::Cost, Some(0.55)), "open");
    assert_eq!(verdict(interval, Metric::Cost, Some(0.4)), "missed");
    assert_eq!(verdict(interval, Metric::Rate, Some(0.4)), "holds");
    assert_eq!(verdict(interval, Metric::Rate, None), "");
}

#[test]
fn a_rate_that_falls_with_more_clients_is_told() {
    let of = |workload, seconds| Sample {
        workload,
        ..sample("holdfast-uring", 0, seconds)
    };
    let samples = [of("netbench-8", 1.0), of("netbench-60", 2.0)];
    let rows = rows(&samples);
    assert_eq!(rows.last().unwrap().judgements[0].median, Some(0.5));
}

#[test]
fn flush_has_its_price_beside_the_lax_twin() {
    let of = |server, workload, seconds| Sample {
        workload,
        ..sample(server, 0, seconds)
    };
    let samples = [
        of("holdfast-uring", "netbench-60", 2.0),
        of("holdfast-uring-lax", "netbench-60-lax", 1.0),
    ];
    let rows = rows(&samples);
    let price = rows
        .iter()
        .find(|row| row.workload.contains(" / "))
        .unwrap();
    assert_eq!(price.judgements[0].to, Some("holdfast-uring-lax"));
    assert_eq!(price.judgements[0].median, Some(0.5));
    assert_eq!(price.judgements[1].median, Some(2.0));
}
