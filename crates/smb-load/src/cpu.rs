//! The CPU time of this process and of programs that it ran: whether the client is what limits a rate.

use std::{fs, thread};

/// Clock ticks in a second: USER_HZ, which is 100 on every Linux that Rust supports.
const TICKS: f64 = 100.0;

/// Seconds of CPU time that this process has used, all its threads included; 0 where `/proc` does not say.
pub(crate) fn of_this_process() -> f64 {
    // proc_pid_stat(5): 14 is utime and 15 is stime.
    seconds_at(14)
}

/// Seconds of CPU time of all children of this process that have ended, and of theirs.
pub(crate) fn of_ended_children() -> f64 {
    // 16 is cutime and 17 is cstime.
    seconds_at(16)
}

/// The sum of this field of `/proc/self/stat` and the next.
fn seconds_at(field: usize) -> f64 {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name may contain anything, but it ends with the last parenthesis; the first field after it is 3.
    let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = fields.split_whitespace().skip(field - 3).take(2);
    ticks
        .filter_map(|field| field.parse::<f64>().ok())
        .sum::<f64>()
        / TICKS
}

/// The cores that this process may use.
pub(crate) fn cores() -> f64 {
    thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn work_is_counted() {
        let before = of_this_process();
        let begun = Instant::now();
        let mut sum = 0_u64;
        while begun.elapsed() < Duration::from_millis(300) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(of_this_process() > before, "{sum}");
        assert!(cores() >= 1.0);
    }
}
