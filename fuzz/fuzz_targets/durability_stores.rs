//! The state folder after a crash or on a decayed disk: never a panic, and no record that was not written whole.
#![no_main]

use durability::{read_latches, read_log_map, read_segment};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let segment = read_segment(data);
    if segment.other_version {
        assert!(segment.records.is_empty());
    }
    // Zeros behind the end change nothing but what was torn at it.
    let mut longer = data.to_vec();
    longer.resize(data.len().next_multiple_of(512) + 512, 0);
    assert!(read_segment(&longer).records.len() >= segment.records.len());
    if let Ok(read) = read_latches(data) {
        for before in &read.records {
            let mut record = before.clone();
            record.limit();
            assert_eq!(record.unproven, before.unproven);
            assert!(!record.is_repaired());
        }
    }
    if let Ok(read) = read_log_map(data) {
        assert!(read.entries.is_sorted_by(|a, b| a.key < b.key));
        assert!(!read.damage.is_empty() || read.entries.iter().all(|entry| !entry.doubtful));
    }
});
