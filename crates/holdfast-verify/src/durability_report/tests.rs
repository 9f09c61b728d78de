//! The bound of an exposure, stores that cannot be read, and files that were renamed.

use std::{os::unix::fs::MetadataExt, time::Duration};

use durability::{ExposedFile, Exposure, ExposureRecord, FlushRecord, Policy};
use vfs::{FileKey, Timestamp};

use super::*;

#[test]
fn exposure_is_an_upper_bound_in_words() {
    let record = |lease: u64, bytes: u64| ExposureRecord {
        at: Timestamp {
            secs: 100,
            nanos: 0,
        },
        share: "data".into(),
        policy: Policy::TreatHostAsStableStorage,
        exposure: Exposure {
            bytes,
            inodes: bytes.min(1),
            oldest_age: Duration::from_millis(2500),
            ..Exposure::default()
        },
        allowance: 1000,
        lease: Duration::from_millis(lease),
        files: vec![ExposedFile {
            key: FileKey::default(),
            path: "big".into(),
            bytes,
        }],
    };
    let open = exposure_report(&record(3000, 400));
    assert_eq!(open.at_most_bytes, 1000);
    assert_eq!(open.at_most_ms, 5500);
    assert_eq!(open.stable_before_ms, 97_500);
    let mut words = words::Words::default();
    words.exposure_in_words(&open, RunEnd::Machine);
    let text = words.text;
    assert!(
        text.contains("exposure at the end at most 1000 bytes, 5500 ms"),
        "{text}"
    );
    assert!(text.contains("big  400 bytes"), "{text}");
    assert!(!text.contains("does not name"), "{text}");
    let mut crowd = exposure_report(&record(3000, 400));
    crowd.measured_files = 90;
    let mut words = words::Words::default();
    words.exposure_in_words(&crowd, RunEnd::Machine);
    let text = words.text;
    assert!(text.contains("and 89 more with fewer bytes, "), "{text}");
    // The policy has no bound of its own.
    let limit = "the limit that the journal stored in advance; the bound of the policy applies";
    assert!(!text.contains(limit), "{text}");
    let bounded = |lease| {
        let mut words = words::Words::default();
        let report = exposure_report(&ExposureRecord {
            policy: "bounded:50ms,4MiB".parse().unwrap(),
            ..record(lease, 400)
        });
        words.exposure_in_words(&report, RunEnd::Running);
        words.text
    };
    assert!(bounded(3000).contains(limit), "{}", bounded(3000));
    // The exposure that was measured is below the bound.
    assert!(!bounded(0).contains(limit), "{}", bounded(0));
    let closed = exposure_report(&record(0, 400));
    assert_eq!((closed.at_most_bytes, closed.at_most_ms), (400, 2500));
    let nothing = exposure_report(&record(0, 0));
    assert!(nothing.nothing);
    for (end, at) in [(RunEnd::Running, "now"), (RunEnd::Machine, "at the end")] {
        let mut words = words::Words::default();
        words.exposure_in_words(&nothing, end);
        let line = format!("nothing was acknowledged and volatile {at}\n");
        assert!(words.text.contains(&line), "{}", words.text);
    }
}

/// "Nothing failed" is reported only if that is known.
#[test]
fn failed_files_that_cannot_be_read_are_not_none() {
    let state = tempfile::tempdir().unwrap();
    assert_eq!(poisoned(state.path(), None), FailedFiles::Known(Vec::new()));
    let file = state.path().join("latches");
    std::fs::create_dir(&file).unwrap();
    assert!(matches!(
        poisoned(state.path(), None),
        FailedFiles::Unknown(_)
    ));
    std::fs::remove_dir(&file).unwrap();
    let large = std::fs::File::create(&file).unwrap();
    large.set_len(LATCHES_READ_MAX + 1).unwrap();
    assert!(matches!(
        poisoned(state.path(), None),
        FailedFiles::Unknown(_)
    ));
    let read = StoredLatches {
        overflow: true,
        ..StoredLatches::default()
    };
    assert_eq!(failed_files(&read, Some("data")).len(), 1);
}

#[test]
fn names_do_not_control_the_terminal() {
    let odd = "a\u{1b}\n\u{9b}\u{202e}b".to_owned();
    let file = FileReport {
        path: odd.clone(),
        stream: odd.clone(),
        inode: 1,
        device: Some("0x1".to_owned()),
        flushed_s: 0,
        flushed_ms: 0,
        policy: "honor".to_owned(),
        before_the_disk: false,
        size: 0,
        size_now: None,
        path_now: Some(odd),
        now: FileNow::Renamed,
        suspect: false,
    };
    let text = words::file_in_words(&file);
    let shown = "a\\u{1b}\\n\\u{9b}\\u{202e}b";
    assert!(text.starts_with(&format!("{shown}:{shown}  ")), "{text}");
    assert!(text.ends_with(&format!("now {shown}")), "{text}");
}

/// File systems mounted below a share may use the same numbers.
#[test]
fn a_renamed_file_is_found_beside_a_lost_one_with_its_inode_number() {
    let share = tempfile::tempdir().unwrap();
    fs::write(share.path().join("new"), "").unwrap();
    let meta = fs::metadata(share.path().join("new")).unwrap();
    let flushed = |path: &str, generation| runs::LastFlush {
        record: FlushRecord {
            at: Timestamp::default(),
            share: "data".into(),
            key: FileKey {
                fs: meta.dev() + generation,
                ino: meta.ino(),
                generation,
            },
            stream: String::new(),
            path: path.into(),
            size: 0,
            sequence: 1,
            policy: Policy::Honor,
            bytes: 0,
            directory: false,
        },
        promised: false,
        former_root: None,
    };
    // A file system without times of birth, and a file that was born in 1970.
    let files = [flushed("old", 0), flushed("lost", 1)];
    let (lines, _) = files::check(share.path(), &files.iter().collect::<Vec<_>>());
    let now = lines.iter().map(|line| line.now);
    assert_eq!(
        now.collect::<Vec<_>>(),
        [FileNow::Renamed, FileNow::Gone],
        "{lines:?}"
    );
    assert_ne!(lines[0].device, lines[1].device);
    assert_eq!(device(FileKey::default()), None);
}
