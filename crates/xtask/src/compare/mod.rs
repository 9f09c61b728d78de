//! Holdfast beside Samba: the cost of the same work on each server.
//!
//! Every round runs every workload on every server, one server after the other, so that a disturbance of the
//! machine affects all of them; the order rotates from round to round. The server's CPU time counts (user and
//! system, all threads and children, and the kernel's workers of its rings, which are its threads); rate and
//! latency depend on the client and are only reported. The result is the ratio to the cheapest Samba of the same
//! round: its median over the rounds and the interval of that median are compared with the goal of the workload
//! (`load/catalogue.rs`). The limit (the same bytes without a protocol) takes its turn as one more server.

pub(crate) mod limit;
mod load;
mod machine;
mod memory;
mod pin;
mod report;
pub(crate) mod servers;
mod table;

use std::{
    path::{Path, PathBuf},
    str::FromStr,
    time::Instant,
};

use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use smb_load::{
    rig::{meter, server::open_up},
    statistics,
};

use crate::{
    Failure,
    bed::{Bed, Common, is_among},
};
use load::{Context, Sizes, Unit, Workload};
use pin::Pin;
use report::Sample;
use servers::{Kind, Maker, Peer, Server};

/// Descriptors for 10,000 connections of a client or a server, and the rest.
const DESCRIPTORS: u64 = 65_536;

/// The options of a comparison.
#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    common: Common,
    /// Size of the big file in MiB (default 256; quick: 48)
    #[arg(long, value_name = "N")]
    mib: Option<u64>,
    /// Reads and writes of 4 KiB of a workload (default 20000; quick: 2000); of what is larger or dearer the same part
    #[arg(long, value_name = "N")]
    operations: Option<u64>,
    /// Only servers whose name contains one of these ("sync,uring,limit")
    #[arg(long, value_name = "LIST")]
    servers: Option<String>,
    /// Another server that runs already; CPU and memory of PID's tree by /proc
    #[arg(long = "peer", value_name = "HOST:PORT,USER,PASSWORD,SHARE[,PID]", value_parser = read::<Peer>)]
    peers: Vec<Peer>,
    /// Another client as a workload: the shell's COMMAND finds HOST, PORT, SHARE, SMB_USER and SMB_PASSWORD in its
    /// environment, and may print "operations N"
    #[arg(long = "client", value_name = "NAME=COMMAND", value_parser = client)]
    clients: Vec<(String, String)>,
    /// The servers on these cores, the clients on those ("0-1:2,3")
    #[arg(long, value_name = "CORES:CORES", value_parser = read::<Pin>)]
    pin: Option<Pin>,
    /// Put the table between the marks of this page (docs/performance.md)
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// Reads the value of an option.
fn read<T: FromStr<Err = Failure>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|failure: Failure| failure.to_string())
}

/// A client's name and command.
fn client(text: &str) -> Result<(String, String), &'static str> {
    let (name, command) = text.split_once('=').ok_or("NAME=COMMAND")?;
    Ok((name.to_owned(), command.to_owned()))
}

impl Options {
    fn sizes(&self) -> Sizes {
        let mut sizes = if self.common.quick {
            Sizes::QUICK
        } else {
            Sizes::FULL
        };
        if let Some(operations) = self.operations {
            sizes = sizes.with_operations(operations.clamp(100, 1_000_000));
        }
        if let Some(mib) = self.mib {
            sizes.big_mib = mib.clamp(1, 16_384);
        }
        sizes
    }
}

/// Runs the comparison.
pub(crate) fn compare(options: Options) -> Result<(), Failure> {
    let bed = Bed::make(&options.common, "compare", "Samba's smbd does")?;
    more_descriptors();
    if cfg!(debug_assertions) {
        eprintln!("a debug build: rates and latencies are the clients' (cargo run -rp xtask)");
    }
    let sizes = options.sizes();
    let input = load::prepare(bed.path(), &sizes)?;
    let workloads: Vec<Workload> = load::workloads(&options.clients)
        .into_iter()
        .filter(|work| options.common.wants(work.name))
        .collect();
    if workloads.is_empty() {
        return Err("no workload has such a name".into());
    }
    let mut about = machine::About::of(&bed)?;
    let mut running = Vec::new();
    for kind in Kind::ALL {
        let wanted = match kind.maker() {
            Maker::Limit => workloads.iter().any(|work| work.has_limit(false)),
            _ => workloads.iter().any(|work| work.lax == kind.lax()),
        };
        if !wanted || !is_among(options.servers.as_deref(), kind.name()) {
            continue;
        }
        if !kind.possible() {
            eprintln!(
                "left out: {} (apt-get install samba-vfs-modules)",
                kind.name()
            );
            continue;
        }
        let start = || Server::start(kind, bed.path(), &bed.binary);
        running.push(Pin::start(options.pin.as_ref(), start)?);
    }
    for (number, peer) in options.peers.into_iter().enumerate() {
        running.push(Server::peer(peer, number + 1));
    }
    about.servers(&running);
    let table = Table {
        bed: &bed,
        input: &input,
        sizes,
        workloads: &workloads,
        pin: options.pin,
    };
    let mut samples = Vec::new();
    let mut rows = Vec::new();
    let (rounds, file) = (options.common.rounds(10, 2), options.common.json("compare"));
    for round in 0..rounds {
        let begun = Instant::now();
        samples.extend(table.round(round, &mut running, &mut about.failures));
        about.now(options.common.quick, round + 1);
        rows = report::rows(&samples);
        // So that a run that is ended early has its numbers.
        let json = report::json(&about, &rows, sizes.big_mib)?;
        std::fs::write(&file, json)?;
        let took = begun.elapsed().as_secs();
        eprintln!("round {} of {rounds}: {took} s", round + 1);
    }
    for server in running {
        server.running.stop();
    }
    print!("{}", table::text(&rows));
    if let Some(page) = &options.markdown {
        table::insert(page, &table::markdown(&about, &rows))?;
    }
    println!("numbers: {}", file.display());
    match about.failures.len() {
        0 => Ok(()),
        failed => Err(format!("{failed} runs failed").into()),
    }
}

/// As many as the system lets this program and its children have.
fn more_descriptors() {
    let now = getrlimit(Resource::Nofile);
    let most = |limit: Option<u64>| limit.map(|limit| limit.max(DESCRIPTORS));
    let wished = Rlimit {
        current: most(now.current),
        maximum: most(now.maximum),
    };
    if setrlimit(Resource::Nofile, wished).is_err() {
        let all = Rlimit {
            current: now.maximum,
            ..now
        };
        // If the limit cannot be raised, making the connections fails.
        let _ = setrlimit(Resource::Nofile, all);
    }
}

/// Whether this server is given this work.
fn fits(work: &Workload, server: &Server) -> bool {
    match server.maker {
        Maker::Limit => work.has_limit(server.kind != Some(Kind::Limit)),
        Maker::Samba if work.holdfast_only => false,
        _ => server.lax.is_none_or(|lax| lax == work.lax),
    }
}

/// The facts that all rounds share.
struct Table<'a> {
    bed: &'a Bed,
    input: &'a Path,
    sizes: Sizes,
    workloads: &'a [Workload],
    pin: Option<Pin>,
}

impl Table<'_> {
    /// Runs all workloads on all servers. A failure is printed, and leaves a hole.
    fn round(
        &self,
        round: usize,
        running: &mut [Server],
        failures: &mut Vec<String>,
    ) -> Vec<Sample> {
        let mut samples = Vec::new();
        let count = running.len();
        for work in self.workloads {
            for turn in 0..count {
                let Some(server) = running.get_mut((round + turn) % count) else {
                    continue;
                };
                if !fits(work, server) {
                    continue;
                }
                match self.turn(work, server, round) {
                    Ok(sample) => samples.extend(sample),
                    Err(error) => {
                        let (work, server) = (work.name, server.name);
                        let told = format!("round {}, {work} on {server}: {error}", round + 1);
                        eprintln!("{told}");
                        failures.push(told);
                    }
                }
            }
        }
        samples
    }

    fn turn(
        &self,
        work: &Workload,
        server: &mut Server,
        round: usize,
    ) -> Result<Option<Sample>, Failure> {
        let Some(kind) = server.kind.filter(|_| work.unit == Unit::Connection) else {
            return cell(work, server, self.sizes, self.input, round);
        };
        // Memory that other work left in a server's pools would be free of charge.
        let scratch = self.bed.path().join("fresh");
        let _ = std::fs::remove_dir_all(&scratch);
        std::fs::create_dir(&scratch)?;
        open_up(&scratch)?;
        let start = || Server::start(kind, &scratch, &self.bed.binary);
        let mut fresh = Pin::start(self.pin.as_ref(), start)?;
        let sample = cell(work, &mut fresh, self.sizes, self.input, round);
        fresh.running.stop();
        sample
    }
}

/// One workload on one server.
fn cell(
    work: &Workload,
    server: &mut Server,
    sizes: Sizes,
    input: &Path,
    round: usize,
) -> Result<Option<Sample>, Failure> {
    let context = Context {
        access: &server.running.access,
        pid: server.running.pid(),
        input,
        sizes,
    };
    let ready = if server.maker == Maker::Limit {
        match work.ready_limit(&context)? {
            Some(ready) => ready,
            None => return Ok(None),
        }
    } else {
        work.ready(&context)?
    };
    // The work that the preparation left behind does not belong to the workload.
    std::thread::sleep(std::time::Duration::from_millis(30));
    let kib = ready.kib;
    let before = server.running.cpu()?;
    let client = meter::of_clients();
    let start = Instant::now();
    let mut done = ready.run()?;
    let wall_seconds = start.elapsed().as_secs_f64();
    if !done.keeps() {
        // The connections ended with the work, and their end belongs to it.
        server.running.settle()?;
    }
    let server_seconds = server.running.cpu()? - before;
    let client_seconds = meter::of_clients() - client;
    done.latencies.sort_unstable();
    let sample = Sample {
        workload: work.name,
        unit: work.unit,
        goals: work.goals.clone(),
        server: server.name,
        maker: server.maker,
        round,
        units: if work.unit == Unit::Connection {
            f64::NAN
        } else {
            done.units
        },
        server_seconds,
        client_seconds,
        wall_seconds,
        p50_us: statistics::percentile(&done.latencies, 0.5),
        p99_us: statistics::percentile(&done.latencies, 0.99),
        kib: kib.unwrap_or(f64::NAN),
    };
    drop(done);
    server.running.settle()?;
    Ok(Some(sample))
}
