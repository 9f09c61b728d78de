//! Allocations per request, as `benches/allocations.rs` counts them: lines of a name, a number of
//! allocations and a number of bytes.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use crate::table::{Cost, Costs};

/// Runs the program and reads what it prints.
pub(crate) fn count() -> Result<Costs, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let output = Command::new(cargo)
        .args(["run", "--quiet", "--bin", "allocations"])
        // From the root, with the features of all packages: `tests/run` has built these already.
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        return Err(format!("the program ended with {}", output.status));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .map(|line| read(line).ok_or_else(|| format!("what is {line:?}?")))
        .collect()
}

fn read(line: &str) -> Option<(String, Cost)> {
    let mut words = line.split_whitespace();
    let name = words.next()?.to_owned();
    let mut cost = Cost::new();
    for unit in ["count", "bytes"] {
        cost.insert(unit.to_owned(), words.next()?.parse().ok()?);
    }
    Some((name, cost))
}
