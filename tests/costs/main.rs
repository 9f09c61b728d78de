//! Counts the costs of an operation: system calls of the real server, and allocations of the server
//! in memory, each held to a table (`expected.toml`).
//!
//! ```text
//! cargo run --bin costs [-- --update] [--allow-missing] [--calls] [--allocations] [--instructions]
//! ```
//!
//! Counts can be held, unlike times: those of allocations and instructions on a busy machine, too. There, the caches of
//! names and attributes hold less (they depend on the age of a change), and an operation may need some calls more, so
//! calls are counted while nothing else runs. An operation fails when it needs over 5 % and at least one whole call
//! (allocation, KiB) more than the table says. One that needs that much less is named, so that the table is lowered:
//! `--update` writes what was measured. System calls (`operations.rs`, `trace.rs`) are counted by strace with io_uring
//! and with threads; allocations by `benches/allocations.rs`. The last line is "N passed, N failed".
//!
//! Calls and allocations are counted if nothing is named. Instructions (`instructions.rs`) need an
//! optimised build, run by callgrind.
//!
//! It does not count cache misses or the work of the kernel in a call.

mod allocations;
mod instructions;
mod operations;
mod table;
mod trace;

use std::process::ExitCode;

use operations::Pick;
use table::Table;

/// The ways of file I/O, as `file_io` has them.
const WAYS: [&str; 2] = ["io_uring", "threads"];

/// The arguments.
#[derive(Default)]
struct Asked {
    update: bool,
    allow_missing: bool,
    calls: bool,
    allocations: bool,
    instructions: bool,
}

fn asked() -> Result<Asked, String> {
    let mut asked = Asked::default();
    for word in std::env::args().skip(1) {
        match word.as_str() {
            "--update" => asked.update = true,
            "--allow-missing" => asked.allow_missing = true,
            "--calls" => asked.calls = true,
            "--allocations" => asked.allocations = true,
            "--instructions" => asked.instructions = true,
            _ => {
                return Err(format!(
                    "{word} is unknown (--update, --allow-missing, --calls, --allocations, --instructions)"
                ));
            }
        }
    }
    if !(asked.calls || asked.allocations || asked.instructions) {
        (asked.calls, asked.allocations) = (true, true);
    }
    Ok(asked)
}

fn main() -> ExitCode {
    let asked = match asked() {
        Ok(asked) => asked,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    let mut measured = Table::here();
    let mut missing = Vec::new();
    let pick = if asked.update {
        Pick::Middle
    } else {
        Pick::Cheapest
    };
    for way in WAYS.iter().filter(|_| asked.calls) {
        match operations::count(way, pick) {
            Ok(counts) => measured.calls(way, counts),
            Err(why) => missing.push(format!("system calls with {way}: {why}")),
        }
    }
    if asked.allocations {
        match allocations::count() {
            Ok(counts) => measured.allocations(counts),
            Err(why) => missing.push(format!("allocations: {why}")),
        }
    }
    if asked.instructions {
        match instructions::count() {
            Ok(counts) => measured.instructions(counts),
            Err(why) => missing.push(format!("instructions: {why}")),
        }
    }
    finish(&asked, measured, &missing)
}

fn finish(asked: &Asked, mut measured: Table, missing: &[String]) -> ExitCode {
    for what in missing {
        println!("missing costs {what}");
    }
    if asked.update {
        if !missing.is_empty() {
            eprintln!("not written: what is missing would be lost");
            return ExitCode::FAILURE;
        }
        measured.keep_others(Table::read().unwrap_or_default());
        measured.write().expect("expected.toml cannot be written");
        println!("written: {}", table::PATH);
    }
    let expected = match Table::read() {
        Ok(expected) => expected,
        Err(why) => {
            println!("FAIL costs table: {why}\n0 passed, 1 failed");
            return ExitCode::FAILURE;
        }
    };
    let mut tally = expected.judge(&measured);
    if !asked.allow_missing {
        tally.failed += missing.len();
    }
    println!("{} passed, {} failed", tally.passed, tally.failed);
    if tally.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
