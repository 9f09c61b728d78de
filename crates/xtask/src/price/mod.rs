//! The price of a promise: what a FLUSH costs under each policy, beside Samba.
//!
//! For each file system a loop device is made; in each round every server is started anew, and
//! every shape of load is put on every server in turn, so that what disturbs the machine
//! disturbs all of them. Counts (cache flushes and writes of the device, from
//! `/sys/block/loopN/stat`; syncs of inodes, from Holdfast's own counters) do not depend on who
//! else uses the machine; CPU time, latency and throughput do, and are compared within a round.
//! All other writes are kept out: the file system is synced before each cell, and what a lazy
//! policy leaves to the kernel is not waited for, nor counted: it is not what was acknowledged.
//!
//! With `--flush-ms` the device is a slow one (`slow.rs`), and `honor` is compared with `bounded` at
//! several delays.

mod load;
mod report;
mod servers;

use std::{sync::mpsc, time::Duration};

use clap::Args;
use smb_load::rig::{
    device::{Device, Kind as FileSystem, Setting},
    slow::Speed,
};

use crate::{
    Failure,
    bed::{Bed, Common},
};
use load::Shape;
use report::Sample;
use servers::{Kind, Running};

/// The options of the chore.
#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Length of a cell (default 2; quick: 0.5)
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// Instead: honor with so many sync threads each ("8,16,32,64"), 64 openers
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    lanes: Vec<u32>,
    /// Instead: honor and bounded at 10, 50, 200 ms and 1 s, by 1 and 8 openers, on devices whose cache flush takes so
    /// long ("20,40"), and the greatest age of a change that was not stable. Needs qemu-storage-daemon and strace, too
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    flush_ms: Vec<u64>,
    /// File systems
    #[arg(long = "fs", value_name = "LIST", value_delimiter = ',', default_value = "ext4,xfs,btrfs",
          value_parser = FileSystem::named)]
    systems: Vec<FileSystem>,
}

impl Options {
    fn rounds(&self) -> usize {
        self.common.rounds(3, 1)
    }

    /// The length of a cell.
    fn cell(&self) -> Result<Duration, Failure> {
        let usual = if self.common.quick { 0.5 } else { 2.0 };
        let seconds = self.seconds.unwrap_or(usual).clamp(0.1, 600.0);
        Ok(Duration::try_from_secs_f64(seconds)?)
    }
}

/// Runs it.
pub(crate) fn price(options: &Options) -> Result<(), Failure> {
    let bed = Bed::make(
        &options.common,
        "price",
        "for loop devices, mounts and Samba",
    )?;
    let (binary, scratch) = (&bed.binary, bed.path());
    let (kinds, shapes) = if !options.flush_ms.is_empty() {
        (Kind::SLOW.to_vec(), Shape::SLOW.to_vec())
    } else if options.lanes.is_empty() {
        (Kind::ALL.to_vec(), Shape::ALL.to_vec())
    } else {
        let lanes = options.lanes.iter().copied().map(Kind::Lane);
        (lanes.collect(), Shape::LANES.to_vec())
    };
    let wanted = |shape: &Shape| options.common.wants(&shape.name());
    let shapes: Vec<Shape> = shapes.into_iter().filter(wanted).collect();
    let mut samples = Vec::new();
    let mut flushes: Vec<Option<u64>> = options.flush_ms.iter().copied().map(Some).collect();
    if flushes.is_empty() {
        flushes.push(None);
    }
    for (system, flush_ms) in options
        .systems
        .iter()
        .flat_map(|system| flushes.iter().map(move |flush| (*system, *flush)))
    {
        let setting = Setting {
            speed: flush_ms.map(|flush| Speed::of_flushes(Duration::from_millis(flush))),
            options: "",
        };
        let device = Device::make(system, scratch, setting)?;
        for round in 0..options.rounds() {
            let place = scratch.join(format!(
                "{}-{}-{round}",
                system.name(),
                flush_ms.unwrap_or(0)
            ));
            let mut running = Running::start(&kinds, &place, &device, binary)?;
            for shape in &shapes {
                let count = running.servers.len();
                for turn in 0..count {
                    let number = (round + turn) % count;
                    let mut sample = cell(options, &device, &mut running, number, *shape, round)?;
                    sample.flush_ms = flush_ms;
                    samples.push(sample);
                }
            }
            running.stop();
            eprintln!(
                "{}: round {} of {}",
                system.name(),
                round + 1,
                options.rounds()
            );
        }
        device.end()?;
    }
    if !options.flush_ms.is_empty() {
        print!("{}", report::slow_markdown(&samples));
        return write_json(options, &samples);
    }
    print!("{}", report::markdown(&samples));
    write_json(options, &samples)
}

fn write_json(options: &Options, samples: &[Sample]) -> Result<(), Failure> {
    let to = options.common.json("price");
    std::fs::write(
        &to,
        report::json(options.common.quick, options.rounds(), samples)?,
    )?;
    println!("numbers: {}", to.display());
    Ok(())
}

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
    let openers = shape.prepare(one.server.access.port).map_err(named)?;
    device.sync()?;
    let watch = (!options.flush_ms.is_empty()).then(|| Watch::begin(one.oldest()));
    let done = load::measure(openers, options.cell()?, device, one).map_err(named)?;
    let oldest_ms = watch.map(|watch| watch.end() * 1e3);
    let latency = done.measured.latencies.get("flush").cloned();
    let sample = Sample {
        system: device.kind.name(),
        flush_ms: None,
        oldest_ms,
        shape,
        server: one.kind.name(),
        round,
        done,
        latency: latency.unwrap_or_default(),
    };
    one.server.settle()?;
    Ok(sample)
}

/// How often is looked how old the oldest change is that is not stable.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Looks for the oldest change that is not stable, while a load runs.
struct Watch {
    over: mpsc::Sender<()>,
    thread: std::thread::JoinHandle<f64>,
}

impl Watch {
    fn begin(look: impl Fn() -> Option<f64> + Send + 'static) -> Self {
        let (over, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let mut oldest = 0.0_f64;
            while told.recv_timeout(LOOK_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
                oldest = oldest.max(look().unwrap_or(f64::NAN));
            }
            oldest
        });
        Self { over, thread }
    }

    /// The greatest age seen, in seconds.
    fn end(self) -> f64 {
        drop(self.over);
        self.thread.join().unwrap_or(f64::NAN)
    }
}
