use std::time::Duration;

use durability::{
    ExposedFile, Exposure, ExposureNote, ExposureRecord, FlushJournal, FlushRecord, JournalFile,
    JournalLimits, JournalRun, Policy, ShareRoot,
};
use vfs::{Disk, FileKey, Timestamp, sys::SysDisk};

use super::*;
use crate::{runtime::env::TokioEnv, service::apart};

struct Place {
    state: tempfile::TempDir,
    data: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self {
            state: tempfile::tempdir().unwrap(),
            data: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(place.state.path().join(flush_journal::FOLDER)).unwrap();
        place
    }

    fn key(&self, name: &str) -> FileKey {
        let disk = SysDisk::open(self.data.path()).unwrap();
        apart(async { disk.stat_at(&disk.root(), name.as_bytes()).await })
            .unwrap()
            .key
    }

    fn flush(&self, name: &str, size: u64) -> FlushRecord {
        FlushRecord {
            at: Timestamp {
                secs: 1_795_278_160,
                nanos: 5_000_000,
            },
            share: "data".into(),
            key: self.key(name),
            stream: String::new(),
            path: name.into(),
            size,
            sequence: 1,
            policy: Policy::Honor,
            bytes: size,
            directory: false,
        }
    }

    /// A run with these flushes, stopped or not.
    fn run(&self, boot: &str, flushes: Vec<FlushRecord>, stop: Option<bool>) {
        let folder = self.state.path().join(flush_journal::FOLDER);
        let about = JournalRun {
            boot: boot.into(),
            server: "9.9".into(),
            shares: vec![ShareRoot {
                name: "data".into(),
                root: self.data.path().to_str().unwrap().into(),
            }],
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(tokio::runtime::LocalOptions::default())
            .unwrap();
        runtime.block_on(async {
            let disk = SysDisk::open(&folder).unwrap();
            let env = std::sync::Arc::new(TokioEnv::new());
            let limits = JournalLimits::default();
            let journal = JournalFile::open(disk, env, limits, about).await.unwrap();
            for flush in flushes {
                journal.flushed(flush).await.unwrap();
            }
            if let Some(stable) = stop {
                journal.stop(stable).await.unwrap();
            }
        });
    }

    fn report(&self, boot: &str) -> Value {
        report(self.state.path(), None, boot).unwrap()
    }

    fn write(&self, name: &str, len: usize) {
        fs::write(self.data.path().join(name), vec![1; len]).unwrap();
    }
}

#[test]
fn files_are_held_against_what_was_promised() {
    let place = Place::new();
    for name in ["kept", "grown", "cut", "moved", "deleted", "replaced"] {
        place.write(name, 100);
    }
    fs::create_dir(place.data.path().join("sub")).unwrap();
    let names = ["kept", "grown", "cut", "moved", "deleted", "replaced"];
    let mut flushes: Vec<_> = names.iter().map(|name| place.flush(name, 100)).collect();
    let mut stream = place.flush("kept", 5000);
    stream.stream = "tag".into();
    flushes.push(stream);
    place.run("b", flushes, None);
    let data = place.data.path();
    place.write("grown", 200);
    File::options()
        .write(true)
        .open(data.join("cut"))
        .unwrap()
        .set_len(99)
        .unwrap();
    fs::rename(data.join("moved"), data.join("sub/m")).unwrap();
    fs::remove_file(data.join("deleted")).unwrap();
    place.write("new", 500);
    fs::rename(data.join("new"), data.join("replaced")).unwrap();

    let report = place.report("b");
    let share = &report["shares"][0];
    let now = |name: &str| {
        let mut files = share["files"].as_array().unwrap().iter();
        files
            .find(|file| file["path"] == name && file["stream"] == "")
            .unwrap()["now"]
            .clone()
    };
    assert_eq!(now("kept"), "there");
    assert_eq!(now("grown"), "there");
    assert_eq!(now("cut"), "smaller");
    assert_eq!(now("moved"), "renamed");
    assert_eq!(now("deleted"), "gone");
    assert_eq!(now("replaced"), "gone");
    assert_eq!(share["suspect_files"], 3);
    assert_eq!(report["run"]["flushes"], 7);
    let text = words::in_words(&report, 2);
    assert!(
        text.contains("7 flushed files: 3 to be looked at"),
        "{text}"
    );
    assert!(text.contains("and 5 more"), "{text}");
    let text = words::in_words(&report, 0);
    assert!(
        text.contains(
            "cut  100 bytes, flushed 2026-11-21 16:22:40.005 UTC (stable): SMALLER: 99 bytes now"
        ),
        "{text}"
    );
    assert!(text.contains("now sub/m"), "{text}");
}

#[test]
fn the_end_of_a_run_is_told_as_it_was() {
    let place = Place::new();
    place.write("f", 10);
    let flush = || vec![place.flush("f", 10)];
    let end = |boot: &str| place.report(boot)["run"]["end"].clone();
    place.run("b1", flush(), None);
    assert_eq!(end("b1"), "server");
    assert_eq!(end("b2"), "machine");
    place.run("b1", flush(), Some(true));
    assert_eq!(end("b2"), "stable");
    place.run("b1", flush(), Some(false));
    assert_eq!(end("b1"), "unstable");
    assert_eq!(place.report("b1")["runs"], 3);
    // A server has the folder: its own run is not the one asked for.
    let owned = state_dir::own(place.state.path()).unwrap();
    place.run("b1", Vec::new(), None);
    assert_eq!(end("b1"), "unstable");
    drop(owned);
    assert_eq!(end("b1"), "server");
}

#[test]
fn without_a_journal_the_way_to_one_is_told() {
    let state = tempfile::tempdir().unwrap();
    let error = report(state.path(), None, "b").unwrap_err();
    assert!(error.contains("flush_journal = true"), "{error}");
    let place = Place::new();
    assert!(report(place.state.path(), None, "b").is_err(), "empty");
    place.run("b", Vec::new(), None);
    let error = report(place.state.path(), Some("other"), "b").unwrap_err();
    assert!(error.contains("\"other\""));
    // Any bytes under such a name.
    let file = place.state.path().join("flushes/00000000000000ff.flushes");
    fs::write(file, [0x48, 0x46, 0x4A, 0x32, 1, 2, 3]).unwrap();
    let text = words::in_words(&place.report("b"), 5);
    assert!(text.contains("another version"), "{text}");
}

#[test]
fn exposure_is_an_upper_bound_in_words() {
    let note = |lease: u64, bytes: u64| ExposureNote {
        measured: ExposureRecord {
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
            files: vec![ExposedFile {
                key: FileKey::default(),
                path: "big".into(),
                bytes,
            }],
        },
        allowance: 1000,
        lease: Duration::from_millis(lease),
    };
    let open = exposure_report(&note(3000, 400));
    assert_eq!(open["at_most_bytes"], 1000);
    assert_eq!(open["at_most_ms"], 5500);
    assert_eq!(open["stable_before_ms"], 97_500);
    let mut out = Vec::new();
    words::exposure(&mut out, &open, "machine");
    let text = out.join("\n");
    assert!(
        text.contains("exposure at the end at most 1000 bytes, 5500 ms"),
        "{text}"
    );
    assert!(text.contains("big  400 bytes"), "{text}");
    let closed = exposure_report(&note(0, 400));
    assert_eq!(
        (&closed["at_most_bytes"], &closed["at_most_ms"]),
        (&json!(400), &json!(2500))
    );
    assert_eq!(exposure_report(&note(0, 0))["nothing"], true);
}

/// "Nothing failed" is reported only if that is known.
#[test]
fn failed_files_that_cannot_be_read_are_not_none() {
    let state = tempfile::tempdir().unwrap();
    assert_eq!(latched(state.path(), None), json!([]));
    let file = state.path().join("latches");
    std::fs::create_dir(&file).unwrap();
    assert!(latched(state.path(), None).is_string());
    std::fs::remove_dir(&file).unwrap();
    let large = std::fs::File::create(&file).unwrap();
    large.set_len(LATCHES_READ_MAX + 1).unwrap();
    assert!(latched(state.path(), None).is_string());
    let mut read = StoredLatches::default();
    read.overflow = true;
    assert_eq!(failed_files(&read, Some("data")).len(), 1);
}
