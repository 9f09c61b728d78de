//! The CPU time of this process and of programs that it ran: whether the client is what limits a rate.

use std::{process, thread};

use rustix::time::{ClockId, clock_gettime};

use crate::rig::meter::{seconds, stat};

/// Seconds of CPU time that this process has used, all its threads included. `/proc` counts in ticks of mostly 10 ms,
/// which is too coarse for steps of less than a second.
pub(crate) fn of_this_process() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

/// Seconds of CPU time of all children of this process that have ended, and of theirs.
pub(crate) fn of_ended_children() -> f64 {
    stat(process::id()).map_or(0.0, |stat| seconds(stat.ended))
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
    fn work_of_less_than_a_tick_is_counted() {
        let mut sum = 0_u64;
        for _ in 0..20 {
            let before = of_this_process();
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(1) {
                sum = std::hint::black_box(sum.wrapping_add(1));
            }
            assert!(of_this_process() > before, "{sum}");
        }
        assert!(cores() >= 1.0);
    }
}
