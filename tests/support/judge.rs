//! Judges the figures of a long run: whether they stay flat, and whether nothing is left at its
//! end.

use std::collections::BTreeMap;

use crate::sample::Sample;

/// The part of the run that counts as warm-up, in which caches fill and the allocator reserves
/// memory.
pub const WARM_UP: f64 = 0.2;
/// The tolerated growth from the median of the first quarter after the warm-up to that of the last,
/// as a fraction.
const PART_MAX: f64 = 0.10;
/// Growth of memory that is tolerated in addition, in KiB.
const MEMORY_SLACK_KIB: f64 = 4_096.0;
/// Growth of tables and descriptors that is tolerated in addition: clients come and go at random.
const ENTRIES_SLACK: f64 = 24.0;
/// Number of descriptors that may remain after the load: the rings, pools and pipes that the first
/// request created.
const DESCRIPTORS_LEFT_MAX: f64 = 16.0;

/// The failures found.
#[derive(Default)]
pub struct Verdict {
    failures: Vec<String>,
}

impl Verdict {
    /// Adds a failure.
    pub fn fail(&mut self, why: String) {
        self.failures.push(why);
    }

    /// Prints the failures; returns true if there are none.
    pub fn print(&self) -> bool {
        for failure in &self.failures {
            println!("FAILED: {failure}");
        }
        let failed = self.failures.len();
        println!("{} passed, {failed} failed", usize::from(failed == 0));
        failed == 0
    }
}

/// Whether a figure has to stay flat. The resident memory also counts pages of the program, which the kernel takes away
/// and brings back as other programs need room.
fn is_judged(name: &str) -> bool {
    name != "rss_kib"
}

fn is_memory(name: &str) -> bool {
    name.ends_with("_kib")
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// The slope by least squares, in units per hour.
fn slope_per_hour(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let above: f64 = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum();
    let below: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
    if below == 0.0 {
        0.0
    } else {
        3_600.0 * above / below
    }
}

/// Compares the first quarter after the warm-up with the last one, for every figure that is judged.
pub fn flat(samples: &[Sample], verdict: &mut Verdict) {
    let skipped = (samples.len() as f64 * WARM_UP).ceil() as usize;
    let warm = samples.get(skipped..).unwrap_or_default();
    let quarter = (warm.len() / 4).max(1);
    if warm.len() < 4 {
        let few = "too few samples after the warm-up to say whether anything is flat (--every)";
        verdict.fail(few.to_owned());
        return;
    }
    let first = &warm[..quarter];
    let last = &warm[warm.len() - quarter..];
    println!(
        "{:20} {:>10} {:>10} {:>10} {:>12}",
        "figure", "first", "last", "most", "slope /h"
    );
    let of = |samples: &[Sample], name: &str| {
        let values = samples.iter().map(|sample| sample.values[name]);
        median(values.collect::<Vec<_>>().into_iter())
    };
    for name in warm[0].values.keys() {
        let (begin, end) = (of(first, name), of(last, name));
        let points: Vec<(f64, f64)> = warm.iter().map(|s| (s.at, s.values[name])).collect();
        let most = points.iter().map(|point| point.1).fold(0.0, f64::max);
        let slope = slope_per_hour(&points);
        println!("{name:20} {begin:10} {end:10} {most:10} {slope:12.1}");
        let slack = if is_memory(name) {
            MEMORY_SLACK_KIB
        } else {
            ENTRIES_SLACK
        };
        if is_judged(name) && end > begin * (1.0 + PART_MAX) + slack {
            verdict.fail(format!(
                "{name} is not flat: {begin} at first, {end} at last"
            ));
        }
    }
}

/// Lists the figures that exceed those of the idle server.
pub fn left(idle: &Sample, now: &Sample) -> Vec<String> {
    let allowed: BTreeMap<&str, f64> = BTreeMap::from([
        ("fds", DESCRIPTORS_LEFT_MAX),
        // These are bounded by their own limits and retained deliberately.
        ("threads", f64::INFINITY),
        ("change_times", f64::INFINITY),
        ("failed_logins", f64::INFINITY),
        ("dirty_inodes", 0.0),
    ]);
    let mut left = Vec::new();
    for (name, value) in &now.values {
        let before = idle.values.get(name).copied().unwrap_or(0.0);
        let more = allowed.get(name.as_str()).copied().unwrap_or(0.0);
        if !is_memory(name) && *value > before + more {
            left.push(format!("{name}: {value}, before {before}"));
        }
    }
    left
}
