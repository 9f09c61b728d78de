//! How long flushes took, and what that hints at.
//!
//! Buckets are an eighth of an octave wide, so a quantile is at most 9 % off. A hint is no proof:
//! memory with power-loss protection answers as fast as a disk that lies.

use std::time::Duration;

const PER_OCTAVE: f64 = 8.0;
/// Up to 2^32 microseconds: longer than any timeout.
const BUCKETS: usize = 32 * PER_OCTAVE as usize;
/// No ordinary SSD without power-loss protection flushes faster, and no disk.
const SUSPICIOUS: u64 = 100;
/// Half a revolution of a disk with 15,000 of them a minute.
const SPINNING: u64 = 2000;

/// How often which latency was seen.
pub(super) struct Latencies {
    buckets: Vec<u64>,
    count: u64,
    most: u64,
}

impl Latencies {
    pub(super) fn new() -> Self {
        Self {
            buckets: vec![0; BUCKETS + 1],
            count: 0,
            most: 0,
        }
    }

    pub(super) fn add(&mut self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        let bucket = ((micros.max(1) as f64).log2() * PER_OCTAVE) as usize;
        if let Some(count) = self.buckets.get_mut(bucket.min(BUCKETS)) {
            *count += 1;
        }
        self.count += 1;
        self.most = self.most.max(micros);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.count += other.count;
        self.most = self.most.max(other.most);
    }

    /// Microseconds below which that part (0 to 1) of all lay; `None` without any.
    pub(super) fn quantile(&self, part: f64) -> Option<u64> {
        if self.count == 0 {
            return None;
        }
        let rank = (self.count as f64 * part).ceil().max(1.0) as u64;
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        let upper = ((bucket + 1) as f64 / PER_OCTAVE).exp2() as u64;
        Some(upper.min(self.most))
    }

    /// In words, with the hint there is.
    pub(super) fn in_words(&self, what: &str) -> String {
        let (Some(half), Some(most)) = (self.quantile(0.5), self.quantile(0.99)) else {
            return format!("no {what} was answered\n");
        };
        let mut text = format!(
            "{what}: {} answered, p50 {half} us, p99 {most} us, longest {} us\n",
            self.count, self.most
        );
        text.push_str(hint(half));
        text
    }
}

fn hint(half: u64) -> &'static str {
    if half < SUSPICIOUS {
        "remark: that is faster than any disk, and most SSDs, can store something. Either it is \
         memory with\n        power-loss protection, or these flushes reach nothing: cut the power \
         and check.\n"
    } else if half < SPINNING {
        "remark: that fits an SSD or a cache with a battery; it is too fast for a disk that spins.\n"
    } else {
        ""
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_close_and_never_above_the_longest() {
        let mut some = Latencies::new();
        let mut others = Latencies::new();
        for micros in 1..=1000 {
            let which = if micros % 2 == 0 {
                &mut some
            } else {
                &mut others
            };
            which.add(Duration::from_micros(micros));
        }
        some.merge(&others);
        let half = some.quantile(0.5).unwrap();
        assert!((500..=550).contains(&half), "{half}");
        let high = some.quantile(0.99).unwrap();
        assert!((990..=1000).contains(&high), "{high}");
        some.add(Duration::from_secs(1 << 40));
        assert_eq!(Latencies::new().quantile(0.5), None);
    }

    #[test]
    fn what_cannot_be_is_remarked() {
        assert!(hint(20).contains("reach nothing"));
        assert!(hint(800).contains("spins"));
        assert_eq!(hint(8000), "");
    }
}
