//! `holdfast durability report` on journals that a server's own store has written.

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt,
};

use durability::{FLUSHES, FlushJournal, FlushRecord, JournalFile, Policy, ShareRoot, StartRecord};
use holdfast_verify::{
    StateFolder,
    durability_report::{DurabilityReport, FileNow, RunEnd, in_words, report},
};
use smbd::{
    runtime::env::TokioEnv,
    state::{flush_journal, state_dir},
};
use vfs::{FileKey, Timestamp, linux::LinuxDisk};

fn state(folder: &std::path::Path, boot: &str) -> StateFolder {
    let journal = folder.join(flush_journal::FOLDER);
    StateFolder {
        path: folder.to_owned(),
        in_use: state_dir::is_owned(&journal),
        journal,
        boot: boot.to_owned(),
    }
}

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

    /// The identity of a file; generations are birth times.
    fn key(&self, name: &str) -> FileKey {
        let meta = fs::metadata(self.data.path().join(name)).unwrap();
        let born = meta.created().unwrap();
        let born = born.duration_since(std::time::UNIX_EPOCH).unwrap();
        FileKey {
            fs: meta.dev(),
            ino: meta.ino(),
            generation: u64::try_from(born.as_nanos()).unwrap(),
        }
    }

    fn state(&self, boot: &str) -> StateFolder {
        state(self.state.path(), boot)
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
        let about = StartRecord {
            boot: boot.into(),
            server: "9.9".into(),
            shares: vec![ShareRoot {
                name: "data".into(),
                root: self.data.path().to_str().unwrap().into(),
            }],
            ..StartRecord::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build_local(tokio::runtime::LocalOptions::default())
            .unwrap();
        runtime.block_on(async {
            let disk = LinuxDisk::open(&folder).unwrap();
            let env = std::sync::Arc::new(TokioEnv::new());
            let journal = JournalFile::open(disk, env, FLUSHES, about).await.unwrap();
            for flush in flushes {
                journal.flushed(flush).await.unwrap();
            }
            if let Some(stable) = stop {
                journal.stop(stable).await.unwrap();
            }
        });
    }

    fn report(&self, boot: &str) -> DurabilityReport {
        report(&self.state(boot), None).unwrap()
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
    let share = &report.shares[0];
    let now = |name: &str| {
        let mut files = share.files.iter();
        let file = files.find(|file| file.path == name && file.stream.is_empty());
        file.unwrap().now
    };
    assert_eq!(now("kept"), FileNow::Present);
    assert_eq!(now("grown"), FileNow::Present);
    assert_eq!(now("cut"), FileNow::Smaller);
    assert_eq!(now("moved"), FileNow::Renamed);
    assert_eq!(now("deleted"), FileNow::Gone);
    assert_eq!(now("replaced"), FileNow::Gone);
    let device = format!("{:#x}", fs::metadata(data.join("kept")).unwrap().dev());
    for file in &share.files {
        assert_eq!(file.device.as_deref(), Some(&*device), "{}", file.path);
    }
    assert_eq!(share.suspect_files, 3);
    assert_eq!(report.run.flushes, 7);
    let text = in_words(&report, 2);
    assert!(
        text.contains("7 flushed files: 3 to be looked at"),
        "{text}"
    );
    assert!(text.contains("and 5 more"), "{text}");
    let text = in_words(&report, 0);
    assert!(
        text.contains(
            "cut  100 bytes, flushed 2026-11-21 16:22:40.005 UTC (stable): SMALLER: 99 bytes now"
        ),
        "{text}"
    );
    assert!(text.contains("now sub/m"), "{text}");
}

#[test]
fn the_end_of_a_run_is_reported_as_it_was() {
    let place = Place::new();
    place.write("f", 10);
    let flush = || vec![place.flush("f", 10)];
    let end = |boot: &str| place.report(boot).run.end;
    place.run("b1", flush(), None);
    assert_eq!(end("b1"), RunEnd::Server);
    assert_eq!(end("b2"), RunEnd::Machine);
    place.run("b1", flush(), Some(true));
    assert_eq!(end("b2"), RunEnd::Stable);
    place.run("b1", flush(), Some(false));
    assert_eq!(end("b1"), RunEnd::Unstable);
    assert_eq!(place.report("b1").runs, 3);
    // A server has the journal: its own run is not the one asked for.
    let owned = state_dir::own(&place.state("b1").journal).unwrap();
    place.run("b1", Vec::new(), None);
    assert_eq!(end("b1"), RunEnd::Unstable);
    // It has begun no run yet, and the last one was of another boot.
    assert_eq!(end("b2"), RunEnd::Machine);
    drop(owned);
    assert_eq!(end("b1"), RunEnd::Server);
    // A server has the state folder, and no journal: the last run in it is the one asked for.
    let owned = state_dir::own(place.state.path()).unwrap();
    assert_eq!(end("b1"), RunEnd::Server);
    drop(owned);
}

#[test]
fn a_folder_without_any_of_the_files_may_be_that_of_a_disk_that_is_not_mounted() {
    let place = Place::new();
    place.write("a", 10);
    place.write("b", 10);
    place.run("b", vec![place.flush("a", 10), place.flush("b", 10)], None);
    let remark = "none of them is there: is the share's disk mounted at this folder?";
    for (file, is_remarked) in [("a", false), ("b", true)] {
        fs::remove_file(place.data.path().join(file)).unwrap();
        let text = in_words(&place.report("b"), 0);
        assert_eq!(text.contains(remark), is_remarked, "{text}");
    }
}

#[test]
fn without_a_journal_the_way_to_one_is_reported() {
    let none = tempfile::tempdir().unwrap();
    let error = report(&state(none.path(), "b"), None).unwrap_err();
    assert!(error.contains("there is no journal"), "{error}");
    assert!(error.contains("flush_journal = true"), "{error}");
    let error = report(&state(&none.path().join("gone"), "b"), None).unwrap_err();
    assert!(error.contains("\n  = name the state folder"), "{error}");
    let place = Place::new();
    let error = report(&place.state("b"), None).unwrap_err();
    assert!(error.contains("the journal is empty"), "{error}");
    place.run("b", Vec::new(), None);
    let error = report(&place.state("b"), Some("other")).unwrap_err();
    assert!(error.contains("\"other\""), "{error}");
    assert!(error.ends_with("= it knows data"), "{error}");
    let found = report(&place.state("b"), Some("DATA")).unwrap();
    assert_eq!(found.shares[0].share, "data");
    // Any bytes under such a name.
    let file = place.state.path().join("flushes/00000000000000ff.flushes");
    fs::write(&file, b"HFJ3\x01\x02\x03").unwrap();
    let text = in_words(&place.report("b"), 5);
    assert!(text.contains("another version"), "{text}");
    let only = Place::new();
    fs::copy(
        &file,
        only.state.path().join("flushes/00000000000000ff.flushes"),
    )
    .unwrap();
    let error = report(&only.state("b"), None).unwrap_err();
    assert!(error.contains("written by another version"), "{error}");
}
