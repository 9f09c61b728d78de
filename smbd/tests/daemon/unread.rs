//! Commands whose output nobody reads any more, as behind `| head`.

use std::{io::PipeWriter, process::Command};

use crate::support::{Plan, USER};

/// A pipe whose reader has gone.
fn unread() -> PipeWriter {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer
}

fn holdfast(words: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdfast"));
    command.args(words.split(' '));
    command
}

#[test]
fn no_command_panics_where_nobody_reads() {
    let daemon = Plan {
        share: "flush_journal = true".to_owned(),
        ..Plan::default()
    }
    .start();
    let path = |name: &str| daemon.path(name).display().to_string();
    let (config, password, ledger) = (path("h.toml"), path("password"), path("ledger"));
    let client = format!(
        "//{}/data/bench --user {USER} --password-file {password}",
        daemon.address
    );
    let bench = format!("bench flush-ladder {client} --clients 1,1 --seconds 1 --warm-up 0");
    let done = [
        "--help".to_owned(),
        format!("status --config {config}"),
        format!("policy show --json --config {config}"),
        format!("reload --config {config}"),
        format!("user list --config {config}"),
        format!("check-config {config}"),
        format!("verify-flush write {client} --ledger {ledger} --files 1 --records 2"),
        format!("durability report --config {config}"),
    ];
    let ends_with = |words: &str, code: i32| {
        let ended = holdfast(words).stdout(unread()).stderr(unread()).status();
        // A panic has 101.
        assert_eq!(ended.unwrap().code(), Some(code), "{words}");
    };
    done.iter().for_each(|words| ends_with(words, 0));
    // It may warn that the folder is in memory.
    let warns = daemon.ask(&["status", "--check"]).is_err();
    let check = format!("status --check --config {config}");
    ends_with(&check, i32::from(warns));
    // No cut ended the run.
    ends_with(&format!("verify-flush check {client} --ledger {ledger}"), 3);
    // Arguments that are not understood have the status 2, too, and another message.
    for (words, why) in [
        (
            format!("verify-flush check {client} --ledger {config}"),
            "error: ledger ",
        ),
        // It does not measure on for nobody.
        (bench, "error: standard output: "),
        (
            "bench report /no/such/folder".to_owned(),
            "error: /no/such/folder",
        ),
    ] {
        ends_with(&words, 2);
        let ended = holdfast(&words).stdout(unread()).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(said.contains(why), "{words}: {said}");
    }
}
