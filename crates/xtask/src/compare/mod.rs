//! Holdfast beside Samba: what the same work costs each server.
//!
//! Every round runs every workload on every server, one server after the other, so that what
//! disturbs the machine disturbs all of them; the order rotates from round to round. What
//! counts is the server's CPU time (user and system, all threads, children, and the kernel's
//! workers of its rings, which are its threads); wall time depends on the client and is told
//! for what it is. Medians are compared, with the spread beside them: on a shared machine a
//! difference under 15 % means nothing.

pub(crate) mod cpu;
mod load;
mod report;
pub(crate) mod servers;

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use crate::Failure;
use load::{Sizes, Workload};
use report::Sample;
use servers::{Kind, Server};

/// What to do.
pub(crate) struct Options {
    quick: bool,
    rounds: usize,
    sizes: Sizes,
    only: Option<String>,
    binary: Option<PathBuf>,
    scratch: Option<PathBuf>,
    json: PathBuf,
}

impl Options {
    /// From the command line.
    pub(crate) fn parse(args: &[String]) -> Result<Self, Failure> {
        let quick = args.iter().any(|arg| arg == "--quick");
        let mut this = Self {
            quick,
            rounds: if quick { 2 } else { 5 },
            sizes: if quick { Sizes::QUICK } else { Sizes::FULL },
            only: None,
            binary: None,
            scratch: None,
            json: PathBuf::from("target/compare.json"),
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or(format!("{arg} needs a value"));
            match arg.as_str() {
                "--quick" => {}
                "--rounds" => this.rounds = value()?.parse::<usize>()?.clamp(1, 100),
                "--mib" => this.sizes.big_mib = value()?.parse::<u64>()?.clamp(1, 16_384),
                "--only" => this.only = Some(value()?.clone()),
                "--binary" => this.binary = Some(value()?.into()),
                "--scratch" => this.scratch = Some(value()?.into()),
                "--json" => this.json = value()?.into(),
                _ => return Err(crate::HELP.into()),
            }
        }
        Ok(this)
    }
}

/// Runs the comparison.
pub(crate) fn compare(options: &Options) -> Result<(), Failure> {
    if !rustix::process::geteuid().is_root() {
        return Err("compare needs root: Samba's smbd does".into());
    }
    let binary = match &options.binary {
        Some(binary) => std::path::absolute(binary)?,
        None => build()?,
    };
    let scratch = match &options.scratch {
        Some(folder) => tempfile::Builder::new()
            .prefix("holdfast-compare")
            .tempdir_in(folder)?,
        None => tempfile::Builder::new()
            .prefix("holdfast-compare")
            .tempdir()?,
    };
    servers::open_up(scratch.path())?;
    let input = load::prepare(scratch.path(), &options.sizes)?;
    let mut running = Vec::new();
    for kind in Kind::ALL {
        if kind == Kind::SambaUring && !servers::samba_has_uring() {
            eprintln!("left out: Samba with io_uring (apt-get install samba-vfs-modules)");
            continue;
        }
        running.push(Server::start(kind, scratch.path(), &binary)?);
    }
    let workloads: Vec<Workload> = load::workloads()
        .into_iter()
        .filter(|work| options.only.as_ref().is_none_or(|o| work.name.contains(o)))
        .collect();
    let samples = rounds(options, &mut running, &workloads, &input)?;
    for server in running {
        server.stop()?;
    }
    print!("{}", report::table(&samples));
    let json = report::json(options.quick, options.rounds, &options.sizes, &samples)?;
    std::fs::write(&options.json, json)?;
    println!("numbers: {}", options.json.display());
    Ok(())
}

fn rounds(
    options: &Options,
    running: &mut [Server],
    workloads: &[Workload],
    input: &Path,
) -> Result<Vec<Sample>, Failure> {
    let mut samples = Vec::new();
    let count = running.len();
    for round in 0..options.rounds {
        for work in workloads {
            for turn in 0..count {
                let Some(server) = running.get_mut((round + turn) % count) else {
                    continue;
                };
                let prepared = load::setup(work, server, input)?;
                let before = cpu::of_tree(server.pid())?;
                let client = cpu::of_clients();
                let start = Instant::now();
                let units = load::run(work, server, input, &options.sizes, prepared)
                    .map_err(|e| format!("{} on {}: {e}", work.name, server.name))?;
                let wall = start.elapsed();
                // A connection's process ends a little after its client.
                server.settle()?;
                samples.push(Sample {
                    workload: work.name,
                    unit: work.unit,
                    server: server.name,
                    round,
                    units,
                    server_seconds: cpu::of_tree(server.pid())? - before,
                    client_seconds: cpu::of_clients() - client,
                    wall_seconds: wall.as_secs_f64(),
                });
            }
        }
        eprintln!("round {} of {}", round + 1, options.rounds);
    }
    Ok(samples)
}

/// A release build of this tree.
pub(crate) fn build() -> Result<PathBuf, Failure> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args([
            "build",
            "--release",
            "--package",
            "smbd",
            "--bin",
            "holdfast",
        ])
        .current_dir(&root)
        .status()?;
    if !status.success() {
        return Err("holdfast does not build".into());
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    Ok(std::path::absolute(target.join("release/holdfast"))?)
}
