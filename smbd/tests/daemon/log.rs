//! Tests that the server serves even if nobody reads its log, and that the journal gets priorities.

use std::{
    fs::File,
    os::{fd::OwnedFd, unix::fs::MetadataExt},
    process::Command,
    time::Duration,
};

use smb_client::CreateArgs;
use smb_wire::msg::WriteFlags;

use crate::support::{Daemon, PASSWORD, Plan};

/// Failed logins, each of which writes a line: as many as one address gets in a minute.
const LINES: usize = 10;

fn write_lines(daemon: &Daemon) {
    for _ in 0..LINES {
        assert!(daemon.client().login("stranger", PASSWORD, "").is_err());
    }
}

fn write_file(daemon: &Daemon) {
    let file = daemon.tree().create(&CreateArgs::create("a"));
    file.unwrap()
        .write(0, b"text", WriteFlags::empty())
        .unwrap();
}

fn serves_without(stderr: File) {
    let mut daemon = Plan {
        stderr: Some(stderr),
        ..Plan::default()
    }
    .start();
    write_lines(&daemon);
    write_file(&daemon);
    let status = daemon.ask(&["status", "--json"]).unwrap();
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let lost = status["log_lines_lost"].as_u64().unwrap();
    assert!(lost >= LINES as u64, "{lost} lines are counted as lost");
    assert!(daemon.ask(&["status"]).unwrap().contains("LOG: "));
    daemon.signal("TERM");
    assert!(daemon.wait(Duration::from_secs(20)).success());
}

#[test]
fn a_full_disk_below_the_log_ends_nothing() {
    serves_without(File::options().write(true).open("/dev/full").unwrap());
}

#[test]
fn a_closed_pipe_behind_the_log_ends_nothing() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    serves_without(File::from(OwnedFd::from(writer)));
}

#[test]
fn a_pipe_that_nobody_reads_delays_nothing() {
    let (reader, writer) = std::io::pipe().unwrap();
    let mut daemon = Plan {
        stderr: Some(File::from(OwnedFd::from(writer))),
        tables: "[log]\nfilter = \"trace\"\n".to_owned(),
        ..Plan::default()
    }
    .start();
    write_lines(&daemon);
    write_file(&daemon);
    daemon.signal("TERM");
    assert!(daemon.wait(Duration::from_secs(20)).success());
    drop(reader);
}

/// An empty value is how a unit takes a variable back. As a filter, it would show errors only.
#[test]
fn an_empty_variable_leaves_the_filter_to_the_configuration() {
    // The start waits for a line of the level `info`.
    let daemon = Plan {
        prefix: ["env", "HOLDFAST_LOG="].map(str::to_owned).to_vec(),
        ..Plan::default()
    }
    .start();
    daemon.tree();
}

/// An error of a command is what ends a start: `journalctl -p warning` must show it.
#[test]
fn an_error_in_the_journal_has_its_priority() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stderr");
    for is_journal in [true, false] {
        let stderr = File::create(&path).unwrap();
        let meta = stderr.metadata().unwrap();
        let journal = match is_journal {
            true => format!("{}:{}", meta.dev(), meta.ino()),
            false => "1:1".to_owned(),
        };
        let mut serve = Command::new(env!("CARGO_BIN_EXE_holdfast"));
        serve.args(["serve", "--config", "/no/such/file"]);
        serve.env("JOURNAL_STREAM", journal).stderr(stderr);
        assert_eq!(serve.status().unwrap().code(), Some(1));
        let said = std::fs::read_to_string(&path).unwrap();
        let lead = if is_journal { "<3>error: " } else { "error: " };
        assert!(said.starts_with(lead), "{said}");
        let mut marks = said.lines().map(|line| line.starts_with("<3>"));
        assert!(marks.all(|mark| mark == is_journal), "{said}");
    }
}
