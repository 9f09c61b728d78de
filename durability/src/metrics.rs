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

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)* ; $($(#[$hdoc:meta])* $hist:ident,)*) => {
        /// The counters of one share.
        #[derive(Debug, Default)]
        pub(crate) struct Metrics {
            $(pub(crate) $name: AtomicU64,)*
            $(pub(crate) $hist: Histogram,)*
        }

        /// The values of one share's counters since the server started.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
            $($(#[$hdoc])* pub $hist: HistogramView,)*
        }

        impl Counters {
            /// The plain counters by name, for an exporter.
            pub fn counts(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }

            /// The histograms by name, for an exporter.
            pub fn histograms(&self) -> Vec<(&'static str, &HistogramView)> {
                vec![$((stringify!($hist), &self.$hist),)*]
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
    /// FLUSH requests answered after their barrier.
    flushes_honored,
    /// FLUSH requests answered at once, their effect left dirty under a bound.
    flushes_deferred,
    /// FLUSH requests answered at once, their effect left dirty without a bound.
    flushes_ignored,
    /// FLUSH requests that failed.
    flushes_failed,
    /// Writes done durably (`RWF_DSYNC`).
    writes_durable,
    /// Writes that asked for write-through and did not get it.
    writes_deferred,
    /// Syncs of inodes run with data scope (`fdatasync`).
    syncs_data,
    /// Syncs of inodes run with full scope (`fsync`).
    syncs_all,
    /// Failures of syncs and durable writes, once for each inode that they poisoned.
    syncs_failed,
    /// Syncs started by age, by the bound or by the number of dirty inodes, not by a client.
    syncs_background,
    /// Requests that waited for a sync.
    sync_waiters,
    /// Requests that joined a sync that another one caused.
    sync_joined,
    /// Replies held back to keep a bound or a limit.
    backpressure,
    /// Times that a dirty change was found older than the bound's delay.
    bound_exceeded,
    /// Handles closed while their inode was dirty.
    dirty_at_close,
    /// Times that a latch began or grew.
    latches,
    /// Latches that ended because everything was rewritten and synced.
    repairs,
    /// Times the share went to `honor` by itself after a failed sync or a lost write-back.
    trips,
    ;
    /// Latency of FLUSH, microseconds.
    flush_micros,
    /// Latency of one sync of one inode, microseconds.
    sync_micros,
    /// Dirty bytes of an inode when a FLUSH of it arrived.
    flush_bytes,
    /// Requests that waited when a sync began; those that joined it later are not counted.
    join_factor,
}

/// Adds one.
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
