//! Whether a mail store could live with the latencies of a run: the thresholds of the Jetstress report.

use serde::{Deserialize, Serialize};

use crate::Measured;

/// A latency that a mail store can live with: the mean of the reads of the database, milliseconds.
pub const READ_MEAN_MS: f64 = 20.0;
/// The mean of the writes of the log, milliseconds.
pub const LOG_MEAN_MS: f64 = 10.0;
/// The mean of either in any sample of 15 seconds, milliseconds.
pub const SAMPLE_MS: f64 = 50.0;

/// Whether the latencies of a run are those of a mail store that users can live with.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// The mean of the reads of the database, milliseconds.
    pub read_ms: f64,
    /// The mean of the writes of the log, milliseconds.
    pub log_ms: f64,
    /// The highest mean of either in a sample, milliseconds.
    pub worst_ms: f64,
    /// Whether all three are within their thresholds, and pages were read in every sample.
    pub passed: bool,
}

impl Verdict {
    /// Judges a run by its samples, which are steps of 15 seconds (the last may be shorter).
    #[must_use]
    pub fn of(samples: &[Measured]) -> Self {
        let mean = |kind| {
            let of_kind = || {
                samples
                    .iter()
                    .filter_map(|sample| sample.latencies.get(kind))
            };
            let count: u64 = of_kind().map(|latencies| latencies.count).sum();
            let sum: f64 = of_kind().map(|l| l.mean * l.count as f64).sum();
            sum / count.max(1) as f64 / 1000.0
        };
        let of_samples = samples.iter().flat_map(|sample| {
            let of_kind = |kind| sample.latencies.get(kind).map_or(0.0, |l| l.mean / 1000.0);
            [of_kind("database-read"), of_kind("log-write")]
        });
        // Of a sample in which the store stood still there is no latency, and the longest one was in it.
        let has_reads = |sample: &Measured| sample.latencies.contains_key("database-read");
        let is_alive = samples.iter().all(has_reads);
        let (read_ms, log_ms) = (mean("database-read"), mean("log-write"));
        let worst_ms = of_samples.fold(0.0, f64::max);
        Self {
            read_ms,
            log_ms,
            worst_ms,
            passed: is_alive
                && read_ms <= READ_MEAN_MS
                && log_ms <= LOG_MEAN_MS
                && worst_ms <= SAMPLE_MS,
        }
    }
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
            ..Measured::default()
        }
    }

    #[test]
    fn the_thresholds_are_those_of_the_report() {
        assert!(Verdict::of(&[sample(20_000.0, 10_000.0)]).passed);
        assert!(!Verdict::of(&[sample(20_100.0, 1000.0)]).passed);
        assert!(!Verdict::of(&[sample(1000.0, 10_100.0)]).passed);
        let burst = [sample(1000.0, 1000.0), sample(1000.0, 51_000.0)];
        let many = [burst.as_slice(), &vec![sample(1.0, 1.0); 20]].concat();
        let verdict = Verdict::of(&many);
        assert!(!verdict.passed && verdict.log_ms < 10.0, "{verdict:?}");
        let stopped = [sample(1.0, 1.0), Measured::default()];
        assert!(!Verdict::of(&stopped).passed);
    }
}
