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
    ///
    /// # Panics
    /// Never: three digits are a precision that the histogram supports.
    fn default() -> Self {
        Self {
            counted: Histogram::new(3).expect("one to five digits are supported"),
            late: 0,
        }
    }
}

impl Recorder {
    /// Adds a latency.
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
    #[must_use]
    pub fn summary(&self) -> Summary {
        let at = |part| self.counted.value_at_quantile(part);
        Summary {
            count: self.counted.len(),
            mean: self.counted.mean(),
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max: self.counted.max().max(self.late),
            late: self.late,
        }
    }
}

fn micros(latency: Duration) -> u64 {
    u64::try_from(latency.as_micros()).unwrap_or(u64::MAX >> 1)
}

/// Latencies in numbers: all but the count in microseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Operations.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// Half of them took no longer.
    pub p50: u64,
    /// Nine of ten took no longer.
    pub p90: u64,
    /// 95 of a hundred took no longer; 0 in older records.
    #[serde(default)]
    pub p95: u64,
    /// 99 of a hundred took no longer.
    pub p99: u64,
    /// 999 of a thousand took no longer.
    pub p999: u64,
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
        assert_eq!((summary.count, summary.p50, summary.p99), (1000, 500, 990));
        assert_eq!((summary.p90, summary.p999, summary.max), (900, 999, 1000));
        assert_eq!(summary.p95, 950);
        assert!((summary.mean - 500.5).abs() < 0.01);
        assert_eq!(Recorder::default().summary(), Summary::default());
        other.note(Duration::from_micros(7000));
        one.add(&other);
        let summary = one.summary();
        assert_eq!((summary.count, summary.max), (1500, 7000));
    }
}
