//! Instructions per request: `benches/allocations.rs`, optimised, under valgrind's callgrind.
//!
//! callgrind collects while the server works on a request that counts (the function `hot` there) and
//! writes a file at the end of each operation (`boundary`), whose total is divided by the runs. The
//! numbers depend on the compiler, not on the machine's load; valgrind counts every byte that a
//! `rep movsb` of memcpy moves as one instruction, so copying weighs much in them. Only with
//! `--instructions`: it needs valgrind and a build in which the server's crates are optimised one by one
//! (`tests/optimised.toml`). Assertions and checks of overflow stay in it, so it counts more than a release would.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::table::{Cost, Costs};

/// Runs that count of each operation, as `TIMES` in `benches/allocations.rs`.
const TIMES: f64 = 64.0;

/// Builds the program and runs it under callgrind.
pub(crate) fn count() -> Result<Costs, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let built = Command::new(cargo)
        .args(["--config", "tests/optimised.toml"])
        .args(["build", "--quiet", "--bin", "allocations"])
        // An incremental build with debug information, as developers have it, inlines less: 3 to 6 % more.
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_PROFILE_DEV_DEBUG", "none")
        .current_dir(&root)
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    if !built.success() {
        return Err("the program does not build".to_owned());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), Into::into);
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no"])
        .args(["--toggle-collect=allocations::hot*"])
        .args(["--dump-after=allocations::boundary*"])
        .arg(format!(
            "--callgrind-out-file={}",
            folder.path().join("out").display()
        ))
        .arg(target.join("debug/allocations"))
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("valgrind (Debian package valgrind): {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("valgrind ended with {}: {said}", output.status));
    }
    let names = String::from_utf8_lossy(&output.stdout);
    let names = names.lines().filter_map(|line| line.split(' ').next());
    let mut costs = Costs::new();
    // The files of a run are numbered from 1.
    for (number, name) in (1..).zip(names) {
        let file = folder.path().join(format!("out.{number}"));
        let total = total(&file).ok_or_else(|| format!("no total for {name}"))?;
        let cost = Cost::from([("instructions".to_owned(), (total / TIMES).round())]);
        costs.insert(name.to_owned(), cost);
    }
    Ok(costs)
}

/// The line `totals: N`, or `summary: N`.
fn total(file: &Path) -> Option<f64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = |l: &str| {
        l.strip_prefix("totals: ")
            .or_else(|| l.strip_prefix("summary: "))
            .and_then(|n| n.trim().parse().ok())
    };
    text.lines()
        .rev()
        .find_map(line)
        .filter(|total| *total > 0.0)
}
