//! The price of a promise: what a FLUSH costs under each policy, beside Samba.
//!
//! For each file system a loop device is made; in each round every server is started anew, and
//! every shape of load is put on every server in turn, so that what disturbs the machine
//! disturbs all of them. Counts (cache flushes and writes of the device, from
//! `/sys/block/loopN/stat`; syncs of inodes, from Holdfast's own counters) do not depend on who
//! else uses the machine; CPU time, latency and throughput do, and are compared within a round.
//! All other writes are kept out: the file system is synced before each cell, and what a lazy
//! policy leaves to the kernel is not waited for, nor counted: it is not what was acknowledged.

mod device;
mod load;
mod report;
mod servers;

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::{
    Failure,
    compare::{self, cpu},
};
use device::{Device, Kind as FileSystem};
use load::Shape;
use report::Sample;
use servers::{Kind, Running};

/// What to do.
pub(crate) struct Options {
    quick: bool,
    rounds: usize,
    cell: Duration,
    lanes: Vec<u32>,
    systems: Vec<FileSystem>,
    /// Part of the name of a shape.
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
            rounds: if quick { 1 } else { 3 },
            cell: Duration::from_millis(if quick { 500 } else { 2000 }),
            lanes: Vec::new(),
            systems: FileSystem::ALL.to_vec(),
            only: None,
            binary: None,
            scratch: None,
            json: PathBuf::from("target/price.json"),
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or(format!("{arg} needs a value"));
            match arg.as_str() {
                "--quick" => {}
                "--rounds" => this.rounds = value()?.parse::<usize>()?.clamp(1, 100),
                "--seconds" => {
                    let seconds: f64 = value()?.parse()?;
                    this.cell = Duration::try_from_secs_f64(seconds.clamp(0.1, 600.0))?;
                }
                "--lanes" => {
                    let lanes = value()?.split(',').map(str::parse::<u32>);
                    this.lanes = lanes.collect::<Result<_, _>>()?;
                }
                "--fs" => {
                    let systems = value()?.split(',').map(FileSystem::named);
                    this.systems = systems.collect::<Result<_, _>>()?;
                }
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

/// Runs it.
pub(crate) fn price(options: &Options) -> Result<(), Failure> {
    if !rustix::process::geteuid().is_root() {
        return Err("price needs root: for loop devices, mounts and Samba".into());
    }
    let binary = match &options.binary {
        Some(binary) => std::path::absolute(binary)?,
        None => compare::build()?,
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix("holdfast-price");
    let scratch = match &options.scratch {
        Some(folder) => builder.tempdir_in(folder)?,
        None => builder.tempdir()?,
    };
    compare::servers::open_up(scratch.path())?;
    let (kinds, shapes) = if options.lanes.is_empty() {
        (Kind::ALL.to_vec(), Shape::ALL.to_vec())
    } else {
        let lanes = options.lanes.iter().copied().map(Kind::Lane);
        (lanes.collect(), Shape::LANES.to_vec())
    };
    let wanted = |shape: &Shape| match &options.only {
        Some(only) => shape.name().contains(only),
        None => true,
    };
    let shapes: Vec<Shape> = shapes.into_iter().filter(wanted).collect();
    let mut samples = Vec::new();
    for system in &options.systems {
        let device = Device::make(*system, scratch.path())?;
        for round in 0..options.rounds {
            let place = scratch.path().join(format!("{}-{round}", system.name()));
            let mut running = Running::start(&kinds, &place, &device, &binary)?;
            for shape in &shapes {
                let count = running.servers.len();
                for turn in 0..count {
                    let number = (round + turn) % count;
                    let sample = cell(options, &device, &mut running, number, *shape, round)?;
                    samples.push(sample);
                }
            }
            running.stop()?;
            eprintln!(
                "{}: round {} of {}",
                system.name(),
                round + 1,
                options.rounds
            );
        }
        device.end()?;
    }
    print!("{}", report::markdown(&samples));
    write_json(options, &samples, &options.json)
}

fn write_json(options: &Options, samples: &[Sample], to: &Path) -> Result<(), Failure> {
    std::fs::write(to, report::json(options.quick, options.rounds, samples)?)?;
    println!("numbers: {}", to.display());
    Ok(())
}

/// How long after the last reply counts still belong to the load.
const SETTLE: Duration = Duration::from_millis(100);

/// One load on one server.
fn cell(
    options: &Options,
    device: &Device,
    running: &mut Running,
    number: usize,
    shape: Shape,
    round: usize,
) -> Result<Sample, Failure> {
    let one = running.servers.get_mut(number).ok_or("no such server")?;
    let named = |error: Failure| format!("{}, {}: {error}", one.kind.name(), shape.name());
    let load = load::Load::prepare(shape, one.server.port).map_err(named)?;
    device.sync()?;
    let before = device.counts()?;
    let syncs = one.syncs()?;
    let cpu_before = cpu::of_tree(one.server.pid())?;
    let begun = Instant::now();
    let done = load.run(options.cell).map_err(named)?;
    let wall = begun.elapsed();
    std::thread::sleep(SETTLE);
    let cpu_after = cpu::of_tree(one.server.pid())?;
    let after = device.counts()?;
    let syncs = match (syncs, one.syncs()?) {
        (Some(before), Some(after)) => Some(after.saturating_sub(before)),
        _ => None,
    };
    let sample = Sample {
        system: device.kind.name(),
        shape,
        server: one.kind.name(),
        round,
        flushes: done.latencies.len() as u64,
        wall_seconds: wall.as_secs_f64(),
        cpu_seconds: cpu_after - cpu_before,
        device_flushes: after.flushes.saturating_sub(before.flushes),
        device_writes: after.writes.saturating_sub(before.writes),
        device_bytes: after.bytes.saturating_sub(before.bytes),
        syncs,
        latency: report::Latency::of(done.latencies),
    };
    load.end();
    one.server.settle()?;
    Ok(sample)
}
