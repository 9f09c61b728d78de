//! Steps of workers that sleep, compute and fail.

use super::*;

struct Sleeper(Option<u32>);

impl Worker for Sleeper {
    fn turn(&mut self, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        let begun = Instant::now();
        thread::sleep(Duration::from_millis(2));
        if let Some(left) = &mut self.0 {
            *left = left.checked_sub(1).ok_or(LoadError::NotOpen)?;
        }
        report(Sample {
            kind: "sleep",
            begun,
            read: 1000,
            written: 500,
        });
        Ok(())
    }
}

const STEP: Step = Step {
    warm_up: Duration::from_millis(30),
    length: Duration::from_millis(600),
};

#[test]
fn only_the_measured_time_counts() {
    let (measured, back) = run(vec![Sleeper(None), Sleeper(None)], STEP, &()).unwrap();
    assert_eq!((back.len(), measured.clients), (2, 2));
    // At most one operation of 2 ms after the other in 600 ms, by each of two.
    assert!((2..=600).contains(&measured.operations), "{measured:?}");
    assert_eq!(measured.read, measured.operations * 1000);
    assert_eq!(measured.written, measured.operations * 500);
    let latencies = &measured.latencies["sleep"];
    assert!(latencies.p50 >= 2000, "{latencies:?}");
    let mbps = measured.operations as f64 * 1500.0 * 8.0 / 1e6 / 0.6;
    assert!((measured.mbps - mbps).abs() < 1e-6);
}

/// One of a part.
struct Member(usize);

impl Worker for Member {
    fn turn(&mut self, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        Sleeper(None).turn(report)
    }

    fn sent(&self) -> Option<u64> {
        (self.0 > 0).then_some(7)
    }

    fn part(&self) -> Option<usize> {
        Some(self.0)
    }
}

#[test]
fn each_part_has_its_own_latencies() {
    let members = vec![Member(0), Member(1), Member(1)];
    let (tally, members) = sample(members, STEP, &()).unwrap();
    let measured = tally.figures();
    let counts: Vec<u64> = measured.parts.iter().map(|p| p["sleep"].count).collect();
    assert_eq!(counts.len(), 2);
    assert_eq!(counts.iter().sum::<u64>(), measured.operations);
    // One of three does not know.
    assert_eq!(measured.sent, None);
    let (next, _) = sample(members, STEP, &()).unwrap();
    let more = next.figures().parts[1]["sleep"].count;
    let both = tally.with(next).figures();
    assert_eq!(both.parts[1]["sleep"].count, counts[1] + more);
}

#[test]
fn percentiles_are_those_of_all_samples_together() {
    let of = |micros: std::ops::RangeInclusive<u64>| {
        let mut recorder = Recorder::default();
        micros.for_each(|micros| recorder.record(Duration::from_micros(micros)));
        Tally {
            measured: Measured {
                seconds: 1.0,
                ..Measured::default()
            },
            latencies: [("read", recorder)].into(),
            parts: Vec::new(),
        }
    };
    // A short disturbance in the second sample is not the median of both.
    let together = of(1..=990).with(of(5001..=5010)).figures();
    let read = &together.latencies["read"];
    assert_eq!((read.count, read.p50, read.p99), (1000, 500, Some(990)));
    assert!(read.max >= 5010 && together.all == *read);
    assert_eq!((together.seconds, together.per_second), (2.0, 500.0));
}

#[test]
fn a_place_has_the_percentiles_of_all_parts_that_are_on_it() {
    let of = |micros: std::ops::RangeInclusive<u64>| {
        let mut recorder = Recorder::default();
        micros.for_each(|micros| recorder.record(Duration::from_micros(micros)));
        recorder
    };
    let part =
        |reads, logs| Latencies::from([("database-read", of(reads)), ("log-write", of(logs))]);
    let tally = Tally {
        parts: vec![part(1..=10, 1..=50), part(11..=20, 51..=100)],
        ..Tally::default()
    };
    // Both logs are on the second place.
    let places = tally.by_place(3, |part, kind| match kind {
        "log-write" => 1,
        _ => part * 2,
    });
    let kinds = |place: usize| places[place].keys().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(kinds(0), ["database-read"]);
    assert_eq!(kinds(1), ["log-write"]);
    let logs = &places[1]["log-write"];
    assert_eq!((logs.count, logs.p95, logs.p99), (100, Some(95), Some(99)));
    assert_eq!(
        (
            places[2]["database-read"].count,
            places[2]["database-read"].max
        ),
        (10, 20)
    );
}

/// One that computes all the time.
struct Spinner;

impl Worker for Spinner {
    fn turn(&mut self, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(2) {
            std::hint::spin_loop();
        }
        report(Sample {
            kind: "spin",
            begun,
            read: 0,
            written: 0,
        });
        Ok(())
    }
}

#[test]
fn a_client_whose_thread_is_busy_is_a_limit_however_many_cores_there_are() {
    let (spun, _) = run(vec![Spinner], STEP, &()).unwrap();
    assert!(spun.client_thread > 0.0);
    // By the figures of a machine with 16 cores.
    let busy = Measured {
        client_cpu: 0.95 / 16.0,
        client_thread: 0.95,
        seconds: 15.0,
        ..Measured::default()
    };
    assert!(busy.is_limited_by_the_client());
    let of_busy = || Tally {
        measured: busy.clone(),
        ..Tally::default()
    };
    let both = of_busy().with(of_busy()).figures();
    assert!(both.is_limited_by_the_client());
    assert!(!Measured::default().is_limited_by_the_client());
}

#[test]
fn a_step_shorter_than_a_tick_of_the_kernel_has_a_clients_share() {
    let short = Step {
        warm_up: Duration::ZERO,
        length: Duration::from_millis(3),
    };
    for _ in 0..10 {
        let (spun, _) = run(vec![Spinner], short, &()).unwrap();
        assert!(spun.client_cpu > 0.0 && spun.client_thread > 0.0);
    }
}

/// Waits for one answer from before the measured time until after it.
struct Standing;

impl Worker for Standing {
    fn turn(&mut self, _: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        thread::sleep(STEP.warm_up + STEP.length + Duration::from_millis(50));
        Ok(())
    }

    fn sent(&self) -> Option<u64> {
        Some(9)
    }
}

#[test]
fn a_client_that_stands_does_not_hide_what_was_sent() {
    let (measured, _) = run(vec![Standing], STEP, &()).unwrap();
    assert_eq!(measured.sent, Some(0));
}

/// Stops for longer than the step, after it has worked for a part of it.
struct Stalling(u32);

impl Worker for Stalling {
    fn turn(&mut self, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        let begun = Instant::now();
        self.0 += 1;
        thread::sleep(Duration::from_millis(if self.0 > 30 { 900 } else { 2 }));
        report(Sample {
            kind: "sleep",
            begun,
            read: 1,
            written: 0,
        });
        Ok(())
    }
}

#[test]
fn the_longest_latency_may_end_after_the_step() {
    let (measured, _) = run(vec![Stalling(0)], STEP, &()).unwrap();
    let sleep = &measured.latencies["sleep"];
    assert!(sleep.max >= 900_000 && measured.all.max == sleep.max);
    assert_eq!(sleep.late, sleep.max);
    assert_eq!(measured.read, sleep.count);
}

#[test]
fn a_worker_that_fails_ends_the_step_without_a_result() {
    let begun = Instant::now();
    let long = Step {
        length: Duration::from_secs(60),
        ..STEP
    };
    assert!(run(vec![Sleeper(None), Sleeper(Some(3))], long, &()).is_err());
    assert!(begun.elapsed() < Duration::from_secs(20));
}

/// Has something left to do at its end, which fails.
struct Late;

impl Worker for Late {
    fn turn(&mut self, report: &mut dyn FnMut(Sample)) -> Result<(), LoadError> {
        Sleeper(None).turn(report)
    }

    fn end(&mut self) -> Result<(), LoadError> {
        Err(LoadError::NotOpen)
    }
}

#[test]
fn an_error_at_the_end_of_a_worker_is_one_of_the_step() {
    assert!(end(vec![Sleeper(None)]).is_ok());
    assert!(end(vec![Late, Late]).is_err());
    let boxed: Vec<Box<dyn Worker>> = vec![Box::new(Sleeper(None)), Box::new(Late)];
    assert!(end(boxed).is_err());
}
