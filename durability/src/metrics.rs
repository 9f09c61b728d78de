//! Counters and histograms: plain atomics, read without a lock, never reset. Buckets of a histogram are powers of two.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// Buckets of a histogram: up to 2^26 (67 s in microseconds, 64 Mi in bytes), then the rest.
pub const BUCKETS: usize = 28;

/// A histogram being filled.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
}

impl Histogram {
    pub(crate) fn add(&self, value: u64) {
        let bucket = (u64::BITS - value.leading_zeros()) as usize;
        if let Some(count) = self.buckets.get(bucket.min(BUCKETS - 1)) {
            count.fetch_add(1, Relaxed);
        }
        self.sum.fetch_add(value, Relaxed);
    }

    pub(crate) fn add_time(&self, span: Duration) {
        self.add(u64::try_from(span.as_micros()).unwrap_or(u64::MAX));
    }

    pub(crate) fn read(&self) -> HistogramView {
        HistogramView {
            buckets: self.buckets.each_ref().map(|count| count.load(Relaxed)),
            sum: self.sum.load(Relaxed),
        }
    }
}

/// A histogram as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistogramView {
    /// Bucket `i` counts the values below `2^i` that no lower bucket counts; the last counts everything larger.
    pub buckets: [u64; BUCKETS],
    /// Sum of all values.
    pub sum: u64,
}

/// A counter, for an exporter: its name, a sentence, and how to read it.
type Count = (&'static str, &'static str, fn(&Counters) -> u64);

/// A histogram, for an exporter: its name, a sentence, the unit of its values, and how to read it.
type Distribution = (
    &'static str,
    &'static str,
    f64,
    fn(&Counters) -> &HistogramView,
);

macro_rules! counters {
    ($($name:ident: $help:literal,)* ; $($hist:ident: $page:literal, $unit:literal, $hist_help:literal;)*) => {
        #[derive(Debug, Default)]
        pub(crate) struct Metrics {
            $(pub(crate) $name: AtomicU64,)*
            $(pub(crate) $hist: Histogram,)*
        }

        /// The values of one share's counters since the server started.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Counters {
            $(#[doc = $help] pub $name: u64,)*
            $(#[doc = $hist_help] pub $hist: HistogramView,)*
        }

        impl Counters {
            /// The plain counters.
            pub const COUNTS: &'static [Count] =
                &[$((stringify!($name), $help, |counters| counters.$name),)*];
            /// The distributions.
            pub const HISTOGRAMS: &'static [Distribution] =
                &[$(($page, $hist_help, $unit, |counters| &counters.$hist),)*];

            /// The values of the plain counters.
            pub fn counts(&self) -> impl Iterator<Item = u64> {
                Self::COUNTS.iter().map(move |(.., read)| read(self))
            }
        }

        impl Metrics {
            pub(crate) fn read(&self) -> Counters {
                Counters {
                    $($name: self.$name.load(Relaxed),)*
                    $($hist: self.$hist.read(),)*
                }
            }
        }
    };
}

counters! {
    flushes_honored: "FLUSH requests answered after their data was stable.",
    flushes_deferred: "FLUSH requests answered at once, to be synced within a bound.",
    flushes_ignored: "FLUSH requests answered at once, without a sync of their own later.",
    flushes_failed: "FLUSH requests answered with an error.",
    writes_durable: "Writes with a sync of their own (RWF_DSYNC).",
    writes_deferred: "Writes that asked for write-through and were answered at once.",
    syncs_data: "Syncs of inodes by fdatasync.",
    syncs_all: "Syncs of inodes by fsync.",
    syncs_failed: "Failures of syncs and durable writes, for each inode that they poisoned.",
    syncs_background: "Syncs by age, bound or number of dirty inodes, not for a request.",
    sync_waiters: "Requests that waited for a sync.",
    sync_joined: "Requests that joined a sync begun for another.",
    backpressure: "Replies held back to keep a bound or a limit.",
    bound_exceeded: "Times something not stable was older than the bound, counted from when it was changed.",
    dirty_at_close: "Handles closed with something not stable.",
    latches: "Times that the latch of an inode began or grew after a failure.",
    repairs: "Latches that ended because all was rewritten and synced.",
    trips: "Times a failed sync or a lost write-back set lazy policies aside for honor.",
    ;
    flush_micros: "flush_seconds", 1e-6, "Time from a FLUSH to its answer.";
    sync_micros: "sync_seconds", 1e-6,
        "Time of each fdatasync and fsync: as many as syncs_data and syncs_all together.";
    flush_bytes: "flush_bytes", 1.0, "Dirty bytes of an inode when a FLUSH of it came.";
    join_factor: "join_factor", 1.0, "Requests that waited for a sync when it began.";
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_powers_of_two() {
        let h = Histogram::default();
        for value in [0, 1, 2, 3, 4, 1023, 1024, u64::MAX / 2] {
            h.add(value);
        }
        let view = h.read();
        assert_eq!(view.buckets[0], 1);
        assert_eq!(view.buckets[1], 1);
        assert_eq!(view.buckets[2], 2);
        assert_eq!(view.buckets[3], 1);
        assert_eq!(view.buckets[10], 1);
        assert_eq!(view.buckets[11], 1);
        assert_eq!(view.buckets[BUCKETS - 1], 1);
        assert_eq!(view.buckets.iter().sum::<u64>(), 8);
    }
}
