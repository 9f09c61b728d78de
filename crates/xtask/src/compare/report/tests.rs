//! Rows from fixed samples.

use super::*;

pub(crate) fn sample(server: &str, round: usize, cost_us: f64) -> Sample {
    Sample {
        workload: "copy".to_owned(),
        unit: "us/MiB",
        goals: vec![Goal {
            metric: Metric::Cost,
            bound: 0.8,
            of: Maker::Samba,
        }],
        round,
        cell: Cell {
            server: server.to_owned(),
            maker: Maker::of(server),
            cost: Some(cost_us),
            rate: Some(1.0 / cost_us),
            client_cost: Some(1.0),
            p50_us: Some(5.0),
            p99_us: Some(9.0),
            kib: None,
        },
    }
}

fn judged(samples: &[Sample]) -> Vec<Judgement> {
    let mut rows = rows(samples, &[]);
    assert_eq!(rows.len(), 1);
    rows.remove(0).judgements
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
    let judgements = judged(&samples);
    let [judgement, rate] = &judgements[..] else {
        panic!("its goal and its rate are to be judged");
    };
    assert_eq!((rate.metric, rate.bound), (Metric::Rate, None));
    assert_eq!(judgement.to.as_deref(), Some("samba-uring"));
    assert_eq!(judgement.rounds, [0.5, 1.0]);
    assert_eq!(judgement.median, Some(0.75));
    assert_eq!(judgement.verdict, "too few rounds");
}

#[test]
fn a_goal_beside_the_limit_is_a_multiple_of_its_cost_in_the_same_round() {
    let goals = vec![Goal {
        metric: Metric::Cost,
        bound: 1.6,
        of: Maker::Limit,
    }];
    let samples: Vec<Sample> = (0..6)
        .flat_map(|round| {
            let cost = 1.0 + round as f64;
            [
                sample("samba-sync", round, 9.0),
                sample("limit", round, cost),
                sample("holdfast-uring", round, cost * 1.5),
            ]
        })
        .map(|sample| Sample {
            goals: goals.clone(),
            ..sample
        })
        .collect();
    let judgements = judged(&samples);
    let beside_limit = judgements.iter().find(|j| j.of == Maker::Limit).unwrap();
    assert_eq!(beside_limit.median, Some(1.5));
    assert_eq!(beside_limit.verdict, "holds");
    let beside_samba = judgements.iter().find(|j| j.of == Maker::Samba).unwrap();
    assert_eq!(beside_samba.verdict, "");
}

#[test]
fn a_verdict_is_the_intervals() {
    let samples: Vec<Sample> = (0..10)
        .flat_map(|round| {
            [
                sample("samba-sync", round, 1.0),
                sample("holdfast-uring", round, 0.5 + round as f64 / 100.0),
            ]
        })
        .collect();
    let judgement = &judged(&samples)[0];
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
fn a_unit_is_the_operation_that_the_row_counts() {
    let json = r#"{"round":1,"title":"write-flush-4k","disk":{"name":"folder","facts":{}},"server_version":"",
        "server_cpu":0.5,"record":{"version":"","server":"samba-sync","workload":"flush-ladder","one_file":false,
        "clients":1,"seconds":2.0,"warm_up":0.1,"ended":0,
        "machine":{"cpu":"","cores":2,"kernel":"","load":""},
        "outcome":{"measured":{"seconds":2.0,"clients":1,"operations":200,"per_second":100.0,"mbps":0.0,"read":0,
        "written":0,"client_cpu":0.25,"latencies":{
        "write":{"count":100,"mean":1,"p50":1,"p90":1,"p99":1,"p999":1,"max":1},
        "flush":{"count":100,"mean":9,"p50":7,"p90":8,"p99":9,"p999":9,"max":9}}}}}}"#;
    let run: Run = serde_json::from_str(json).unwrap();
    let rows = catalogue::rows(catalogue::Sizes::QUICK);
    let sample = Sample::of(&run, &rows, true).unwrap();
    let cell = &sample.cell;
    assert_eq!((cell.cost, cell.rate), (Some(5000.0), Some(50.0)));
    assert_eq!((cell.p50_us, cell.p99_us), (Some(7.0), Some(9.0)));
    assert_eq!(cell.client_cost, Some(10_000.0));
    assert_eq!(sample.goals.len(), 2);
}
