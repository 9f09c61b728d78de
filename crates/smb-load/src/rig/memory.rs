//! Memory of a process tree: what it holds alone, and its share of what it shares (PSS).

use std::fs;

use super::meter;

/// KiB of a process and its descendants; `None` when it is gone or not to be read.
pub fn pss_kib(root: u32) -> Option<u64> {
    let mut total = None;
    for pid in meter::tree(root) {
        // It may have ended since it was listed.
        let Ok(text) = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")) else {
            continue;
        };
        if let Some(kib) = kib(&text, "Pss:") {
            total = Some(total.unwrap_or(0) + kib);
        }
    }
    total
}

/// The number in the kernel's line of that name, such as `Pss:`, KiB.
pub fn kib(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_line_is_understood() {
        assert_eq!(
            kib("Rss:  7 kB\nPss:     1234 kB\nPss_Anon: 3 kB\n", "Pss:"),
            Some(1234)
        );
        assert!(pss_kib(std::process::id()).unwrap() > 100);
    }
}
