//! Latencies of one kind of operation.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Collects latencies, in microseconds with three significant digits.
pub struct Recorder {
    counted: Histogram<u64>,
    /// The longest latency that does not count.
    late: u64,
}

impl Default for Recorder {
    /// An empty recorder.
    fn default() -> Self {
        Self {
            counted: Histogram::new(3).expect("one to five digits are supported"),
            late: 0,
        }
    }
}

impl Recorder {
    pub fn record(&mut self, latency: Duration) {
        // A histogram without an upper bound takes every value.
        self.counted += micros(latency);
    }

    /// Notes the latency of an operation that was answered too late to count: it may be the longest one.
    pub fn note(&mut self, latency: Duration) {
        self.late = self.late.max(micros(latency));
    }

    /// Adds what another has collected.
    pub fn add(&mut self, other: &Self) {
        self.counted += &other.counted;
        self.late = self.late.max(other.late);
    }

    /// Returns them in numbers.
    pub fn summary(&self) -> Summary {
        let count = self.counted.len();
        // Of fewer operations the percentile would be the longest latency under another name.
        let at = |part: f64, fewest: u64| {
            (count >= fewest).then(|| self.counted.value_at_quantile(part))
        };
        Summary {
            count,
            mean: self.counted.mean(),
            p50: self.counted.value_at_quantile(0.5),
            p90: at(0.9, 10),
            p95: at(0.95, 20),
            p99: at(0.99, 100),
            p999: at(0.999, 1000),
            max: self.counted.max().max(self.late),
            late: self.late,
        }
    }
}

fn micros(latency: Duration) -> u64 {
    u64::try_from(latency.as_micros()).unwrap_or(u64::MAX >> 1)
}

/// Latencies in numbers: all but the count in microseconds. A percentile is there only if the operations are so many that
/// it is not simply the longest latency: 10 for 90 percent, 20 for 95, 100 for 99 and 1,000 for 99.9.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Summary {
    /// Operations.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// Half of them took no longer.
    pub p50: u64,
    /// Nine of ten took no longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p90: Option<u64>,
    /// 95 of a hundred took no longer; older records lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95: Option<u64>,
    /// 99 of a hundred took no longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99: Option<u64>,
    /// 999 of a thousand took no longer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p999: Option<u64>,
    /// The longest, also of an operation that was answered after the measured time only, and does not count.
    pub max: u64,
    /// The longest of those that were answered after the step and are in no figure but the longest; 0 if there are none.
    #[serde(default)]
    pub late: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_to_three_digits() {
        let (mut one, mut other) = (Recorder::default(), Recorder::default());
        for micros in 1..=500 {
            one.record(Duration::from_micros(micros));
            other.record(Duration::from_micros(micros + 500));
        }
        one.add(&other);
        let summary = one.summary();
        assert_eq!((summary.count, summary.p50, summary.max), (1000, 500, 1000));
        assert_eq!((summary.p90, summary.p95), (Some(900), Some(950)));
        assert_eq!((summary.p99, summary.p999), (Some(990), Some(999)));
        assert!((summary.mean - 500.5).abs() < 0.01);
        assert_eq!(Recorder::default().summary(), Summary::default());
        other.note(Duration::from_micros(7000));
        one.add(&other);
        let summary = one.summary();
        assert_eq!((summary.count, summary.max), (1500, 7000));
    }

    #[test]
    fn a_percentile_that_would_be_the_longest_latency_is_left_out() {
        let of = |count: u64| {
            let mut recorder = Recorder::default();
            (1..=count).for_each(|micros| recorder.record(Duration::from_micros(micros)));
            recorder.summary()
        };
        let all = |of: Summary| [of.p90, of.p95, of.p99, of.p999];
        assert_eq!(all(of(9)), [None; 4]);
        assert_eq!(all(of(19)), [Some(18), None, None, None]);
        assert_eq!(all(of(99)), [Some(90), Some(95), None, None]);
        assert_eq!(all(of(999)), [Some(900), Some(950), Some(990), None]);
        for fewest in [10, 20, 100, 1000] {
            let summary = of(fewest);
            let highest = all(summary.clone()).into_iter().flatten().max();
            assert!(highest < Some(summary.max), "{summary:?}");
        }
        // In a record it is missing, as it is in those that were written before.
        let text = serde_json::to_string(&of(9)).unwrap();
        assert!(!text.contains("p9"), "{text}");
        assert_eq!(serde_json::from_str::<Summary>(&text).unwrap(), of(9));
    }
}
