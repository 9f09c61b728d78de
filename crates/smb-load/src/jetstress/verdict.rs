//! Judges the latencies of a run by the thresholds of the Jetstress report for a mail store.

use serde::{Deserialize, Serialize};

use crate::Measured;

/// A latency that a mail store can live with: the mean of the reads of the database, milliseconds.
pub const READ_MEAN_MS: f64 = 20.0;
/// The mean of the writes of the log, milliseconds.
pub const LOG_MEAN_MS: f64 = 10.0;
/// The mean of either in any sample of at most 15 seconds, milliseconds.
pub const SAMPLE_MS: f64 = 50.0;
/// Reads and writes of the database that a mailbox of the report wants each second.
pub const MAILBOX_IOPS: f64 = 0.5;

/// Whether the latencies of a run are those of a mail store that users can live with.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Verdict {
    /// The mean of the reads of the database, milliseconds.
    pub read_ms: f64,
    /// The mean of the writes of the log, milliseconds.
    pub log_ms: f64,
    /// The highest mean of either in a sample, milliseconds.
    pub worst_ms: f64,
    /// Whether all three are within their thresholds, and pages were read in every sample.
    pub passed: bool,
    /// Reads and writes of the databases each second; 0 in older records.
    #[serde(default)]
    pub iops: f64,
    /// Reads and writes that the mailboxes want each second.
    #[serde(default)]
    pub wanted_iops: f64,
}

impl Verdict {
    /// Whether the latencies passed, and the mailboxes had what they want.
    pub fn is_good(&self) -> bool {
        self.passed && self.iops >= self.wanted_iops
    }

    /// The thresholds that it did not keep, each with what it had instead; none if it is good.
    pub fn faults(&self) -> Vec<String> {
        let limits = [
            ("database read", self.read_ms, READ_MEAN_MS),
            ("log write", self.log_ms, LOG_MEAN_MS),
            ("worst sample", self.worst_ms, SAMPLE_MS),
        ];
        let above = limits.into_iter().filter(|(_, ms, most)| ms > most);
        let mut faults: Vec<String> = above
            .map(|(what, ms, most)| format!("{what} of {ms:.3} ms, above {most} ms"))
            .collect();
        if !self.passed && faults.is_empty() {
            faults.push("a sample without a read of the database".to_owned());
        }
        if self.iops < self.wanted_iops {
            let (iops, wanted) = (self.iops, self.wanted_iops);
            faults.push(format!("{iops:.1} IOPS, below {wanted:.1}"));
        }
        faults
    }

    /// Judges a run by its samples, which are equal steps of at most 15 seconds, and the mailboxes it is for.
    pub fn of(samples: &[Measured], mailboxes: u64) -> Self {
        let mean = |kind| mean_ms(samples, kind);
        let of_samples = samples.iter().flat_map(|sample| {
            let alone = std::slice::from_ref(sample);
            ["database-read", "log-write"].map(|kind| mean_ms(alone, kind))
        });
        let reads =
            |sample: &Measured| sample.latencies.get("database-read").map_or(0, |l| l.count);
        let is_alive = samples.iter().all(|sample| reads(sample) > 0);
        let (read_ms, log_ms) = (mean("database-read"), mean("log-write"));
        let worst_ms = of_samples.fold(0.0, f64::max);
        let of_database = samples.iter().flat_map(|sample| {
            let kinds = ["database-read", "database-write"];
            kinds.map(|kind| sample.latencies.get(kind).map_or(0, |l| l.count))
        });
        let requests: u64 = of_database.sum();
        let seconds: f64 = samples.iter().map(|sample| sample.seconds).sum();
        Self {
            read_ms,
            log_ms,
            worst_ms,
            passed: is_alive
                && read_ms <= READ_MEAN_MS
                && log_ms <= LOG_MEAN_MS
                && worst_ms <= SAMPLE_MS,
            iops: requests as f64 / seconds.max(f64::MIN_POSITIVE),
            wanted_iops: mailboxes as f64 * MAILBOX_IOPS,
        }
    }
}

/// The mean latency of a kind of request in these samples, in milliseconds. The longest one that was answered after its
/// sample counts, too: while a store stands still it may be the only one.
fn mean_ms(samples: &[Measured], kind: &str) -> f64 {
    let (mut count, mut sum) = (0, 0.0);
    for of in samples
        .iter()
        .filter_map(|sample| sample.latencies.get(kind))
    {
        count += of.count + u64::from(of.late > 0);
        sum += of.mean * of.count as f64 + of.late as f64;
    }
    sum / count.max(1) as f64 / 1000.0
}

/// The highest number of threads, at most `most`, whose verdict is good; `None` as soon as a step has none. The threads
/// are doubled until the latencies fail, then the distance is halved: more threads only make those worse, while too few
/// may not ask for as much as the mailboxes want.
pub fn highest_good<E>(
    most: usize,
    mut judge: impl FnMut(usize) -> Result<Option<Verdict>, E>,
) -> Result<Option<usize>, E> {
    let (mut passed, mut failed, mut good) = (0, most + 1, 0);
    let mut threads = 1;
    while passed + 1 < failed {
        let Some(verdict) = judge(threads)? else {
            return Ok(None);
        };
        if verdict.is_good() {
            good = good.max(threads);
        }
        match verdict.passed {
            true => passed = threads,
            false => failed = threads,
        }
        threads = match failed {
            failed if failed > most => (passed * 2).min(most),
            failed => passed.midpoint(failed),
        };
    }
    Ok(Some(good))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Summary;

    fn sample(read_us: f64, log_us: f64) -> Measured {
        let summary = |mean| Summary {
            count: 10,
            mean,
            ..Summary::default()
        };
        let latencies = [("database-read", read_us), ("log-write", log_us)];
        Measured {
            latencies: latencies
                .into_iter()
                .map(|(kind, mean)| (kind.to_owned(), summary(mean)))
                .collect(),
            seconds: 5.0,
            ..Measured::default()
        }
    }

    #[test]
    fn the_thresholds_are_those_of_the_report() {
        assert!(Verdict::of(&[sample(20_000.0, 10_000.0)], 0).passed);
        assert!(!Verdict::of(&[sample(20_100.0, 1000.0)], 0).passed);
        assert!(!Verdict::of(&[sample(1000.0, 10_100.0)], 0).passed);
        let burst = [sample(1000.0, 1000.0), sample(1000.0, 51_000.0)];
        let many = [burst.as_slice(), &vec![sample(1.0, 1.0); 20]].concat();
        let verdict = Verdict::of(&many, 0);
        assert!(!verdict.passed && verdict.log_ms < 10.0, "{verdict:?}");
        let stopped = [sample(1.0, 1.0), Measured::default()];
        assert!(!Verdict::of(&stopped, 0).passed);
    }

    #[test]
    fn a_log_write_that_is_answered_after_its_sample_counts() {
        let mut late = sample(1000.0, 1000.0);
        let log = late.latencies.get_mut("log-write").unwrap();
        log.late = 550_000;
        // 10 of 1 ms and one of 550 ms.
        let verdict = Verdict::of(&[late.clone()], 0);
        assert!(
            (verdict.worst_ms - 560.0 / 11.0).abs() < 0.01,
            "{verdict:?}"
        );
        assert!(!verdict.passed);
        let alone = Summary {
            late: 25_000_000,
            ..Summary::default()
        };
        late.latencies.insert("log-write".to_owned(), alone.clone());
        assert!((Verdict::of(&[late.clone()], 0).log_ms - 25_000.0).abs() < 0.01);
        // A read that comes too late is no sign of life.
        let mut still = sample(1.0, 1.0);
        still.latencies.insert("database-read".to_owned(), alone);
        assert!(!Verdict::of(&[still], 0).passed);
    }

    #[test]
    fn each_threshold_that_was_not_kept_is_named() {
        let faults = |samples: &[Measured], mailboxes| Verdict::of(samples, mailboxes).faults();
        assert!(faults(&[sample(20_000.0, 10_000.0)], 0).is_empty());
        let both = faults(&[sample(20_100.0, 51_000.0)], 5);
        let wanted = [
            "database read of 20.100 ms, above 20 ms",
            "log write of 51.000 ms, above 10 ms",
            "worst sample of 51.000 ms, above 50 ms",
            "2.0 IOPS, below 2.5",
        ];
        assert_eq!(both, wanted);
        let stopped = [sample(1.0, 1.0), Measured::default()];
        assert_eq!(
            faults(&stopped, 0),
            ["a sample without a read of the database"]
        );
    }

    #[test]
    fn mailboxes_want_their_share_of_the_database() {
        // 10 reads in 5 seconds; the log does not count.
        let of = |mailboxes| Verdict::of(&[sample(1000.0, 1000.0)], mailboxes);
        assert!(of(4).is_good());
        assert!(of(5).passed && !of(5).is_good());
        assert!(!Verdict::of(&[sample(21_000.0, 1000.0)], 4).is_good());
    }

    /// Latencies pass up to a number of threads, each of which brings 10 requests a second.
    fn found(passing: usize, mailboxes: u64) -> Option<usize> {
        let judge = |threads: usize| {
            let mut verdict = Verdict::of(&[sample(1000.0, 1000.0)], mailboxes);
            verdict.passed = threads <= passing;
            verdict.iops = threads as f64 * 10.0;
            Ok::<_, ()>(Some(verdict))
        };
        highest_good(256, judge).unwrap()
    }

    #[test]
    fn the_search_demands_the_latencies_and_what_the_mailboxes_want() {
        for passing in [0, 1, 2, 37, 255, 256] {
            assert_eq!(found(passing, 0), Some(passing));
        }
        // One thread is too few for 100 mailboxes, and is no reason to end the search.
        assert_eq!(found(37, 100), Some(37));
        assert_eq!(found(4, 100), Some(0));
        assert_eq!(highest_good(256, |_| Ok::<_, ()>(None)), Ok(None));
    }
}
