//! How long flushes took, and what that hints at. A hint is no proof: memory with power-loss protection answers as fast
//! as a disk that lies.

use smb_load::Summary;

/// No ordinary SSD without power-loss protection flushes faster, and no disk.
const SUSPICIOUS: u64 = 100;
/// Half a revolution of a disk with 15,000 of them a minute.
const SPINNING: u64 = 2000;

/// The latencies in words, with the hint there is.
pub(super) fn in_words(of: &Summary, what: &str) -> String {
    if of.count == 0 {
        return format!("no {what} was answered\n");
    }
    let p99 = of
        .p99
        .map_or_else(String::new, |us| format!("p99 {us} us, "));
    format!(
        "{what}: {} answered, p50 {} us, {p99}longest {} us\n{}",
        of.count,
        of.p50,
        of.max,
        hint(of.p50)
    )
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
    use std::time::Duration;

    use smb_load::Recorder;

    use super::*;

    #[test]
    fn quantiles_are_close_and_never_above_the_longest() {
        let mut some = Recorder::default();
        let mut others = Recorder::default();
        for micros in 1..=1000 {
            let which = if micros % 2 == 0 {
                &mut some
            } else {
                &mut others
            };
            which.record(Duration::from_micros(micros));
        }
        some.add(&others);
        let half = some.summary().p50;
        assert!((500..=550).contains(&half), "{half}");
        let high = some.summary().p99;
        assert!(high.is_some_and(|high| (990..=1000).contains(&high)));
        assert!(in_words(&some.summary(), "FLUSH").contains(", p99 990 us, longest 1000 us"));
        some.record(Duration::from_secs(1 << 40));
        let mut few = Recorder::default();
        few.record(Duration::from_micros(40));
        assert!(in_words(&few.summary(), "FLUSH").contains(", p50 40 us, longest 40 us"));
        let none = in_words(&Recorder::default().summary(), "FLUSH");
        assert_eq!(none, "no FLUSH was answered\n");
    }

    #[test]
    fn what_cannot_be_is_remarked() {
        assert!(hint(20).contains("reach nothing"));
        assert!(hint(800).contains("spins"));
        assert_eq!(hint(8000), "");
    }
}
