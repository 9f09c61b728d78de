//! The common needs of measuring chores: programs that are built and run, and a matrix with its results.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde::Deserialize;
use smb_load::experiment::Record;

use crate::Failure;

/// This tree.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The target folder of this tree.
pub(crate) fn target() -> Result<PathBuf, Failure> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root().join("target"), PathBuf::from);
    Ok(std::path::absolute(target)?)
}

/// `cargo`, with the target folder of this tree.
pub(crate) fn cargo(tree: &Path, profile: &str, what: &[&str]) -> Result<Command, Failure> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(what)
        .args(["--quiet", "--profile", profile, "--target-dir"])
        .arg(target()?)
        .current_dir(tree);
    Ok(command)
}

/// Builds the server of a tree; where it is.
pub(crate) fn build(command: &mut Command, profile: &str) -> Result<PathBuf, Failure> {
    run(command.args(["--bin", "holdfast"]))?;
    let folder = if profile == "dev" { "debug" } else { profile };
    Ok(target()?.join(folder).join("holdfast"))
}

/// Runs a program whose output is for people.
pub(crate) fn run(command: &mut Command) -> Result<(), Failure> {
    let status = command.status()?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("{}: {status}", command.get_program().display()).into()),
    }
}

/// Runs a program for its output.
pub(crate) fn said(command: &mut Command) -> Result<String, Failure> {
    let output = command.output()?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned().into()),
    }
}

/// Runs git in a tree for its output.
pub(crate) fn git(tree: &Path, args: &[&str]) -> Result<String, Failure> {
    said(Command::new("git").arg("-C").arg(tree).args(args))
}

/// One measurement of a matrix, as far as a chore uses it.
#[derive(Deserialize)]
pub(crate) struct Run {
    pub(crate) round: usize,
    /// The name of the workload.
    pub(crate) title: String,
    pub(crate) disk: Disk,
    pub(crate) record: Record,
    pub(crate) server_version: String,
    pub(crate) server_cpu: Option<f64>,
    pub(crate) memory_kib: Option<f64>,
}

/// The disk of a measurement.
#[derive(Deserialize)]
pub(crate) struct Disk {
    pub(crate) name: String,
    pub(crate) facts: std::collections::BTreeMap<String, String>,
}

/// Runs what is missing of a plan, and returns all its measurements in their order, also those that failed.
pub(crate) fn matrix(program: &Path, plan: &str, results: &Path) -> Result<Vec<Run>, Failure> {
    let file = results.with_extension("toml");
    fs::create_dir_all(results)?;
    fs::write(&file, plan)?;
    let mut command = Command::new(program);
    command.args(["bench", "matrix"]).arg(&file);
    let status = command.arg("--to").arg(results).status()?;
    // 1: a server failed, which its measurement states.
    if !matches!(status.code(), Some(0 | 1)) {
        return Err(format!("the matrix did not run: {status}").into());
    }
    let mut paths = Vec::new();
    for entry in fs::read_dir(results.join("runs"))? {
        paths.push(entry?.path());
    }
    paths.sort();
    let read = |path: &PathBuf| Ok(serde_json::from_str(&fs::read_to_string(path)?)?);
    paths.iter().map(read).collect()
}
