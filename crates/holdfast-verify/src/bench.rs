//! `holdfast bench`: measures any SMB server with the workloads of [`smb_load`].
//!
//! Each step is printed as a line of a table and, with `--output`, appended to a file as a line of JSON. A server
//! that refuses, dies or returns wrong data is reported as such and makes the exit status 1; it has no number.

mod bed;
mod exposure;
mod matrix;
mod plan;
mod program;
mod report;
mod result;
mod scale;
mod shares;

use std::{fs::OpenOptions, io::Write, path::PathBuf, process::ExitCode, time::Duration};

use clap::{Args, Subcommand};
use serde::de::DeserializeOwned;
use smb_load::{
    Home, Step,
    experiment::{self, Machine, Outcome, Record, Target, Workload},
    jetstress::{
        LOG_MEAN_MS, MAILBOX_MIB, Preset, Profile, READ_MEAN_MS, SAMPLE_MS, Stability, highest_good,
    },
    limit::{self, Way},
    netbench::{script, worker::Class},
};

use crate::{
    ReadPassword, print, remark,
    verify_flush::{Access, Login, Place},
};

/// Clients at most; each has a thread and a connection.
const CLIENTS_MAX: usize = 4096;
/// Threads of all groups at most that `--find` tries. Each has a connection, and a Holdfast with its defaults accepts
/// 256 of them from one address.
const FIND_MAX: usize = 240;

/// The end of `holdfast bench --help`.
pub const EXAMPLES: &str = "\
Examples:
  NetBench's curve, on a server that honours FLUSH; the results go to a file, too
    holdfast bench netbench //nas/data/bench --user alice --clients 1,4,8,16,32,60 \\
        --seconds 60 --label honor --output results.jsonl
  The highest number of threads that a mail store of two groups can live with
    holdfast bench jetstress //nas/data/bench --user alice --groups 2 --find
  Four groups, whose databases and logs are dealt out over three disks, each with a share
    holdfast bench jetstress //nas/data/bench --share logs --share more --user alice --groups 4
  What a FLUSH costs
    holdfast bench flush-ladder //nas/data/bench --user alice --clients 1,16,64

  Four policies and both settings of Samba at five load points, in under ten minutes, as root
    holdfast bench matrix short --to results

Exit status: 0 measured; 1 the server refused, ended or returned wrong data; 2 it could not begin.";

/// `holdfast bench ...`
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// NetBench's Enterprise Disk Mix (VeriTest 2003 and 2004, Mindcraft 1999)
    Netbench {
        #[command(flatten)]
        common: Common,
        /// Files in each client's folder, of 64 to 400 KiB
        #[arg(long, value_name = "N", default_value = "24",
              value_parser = clap::value_parser!(u32).range(8..=10_000))]
        documents: u32,
        /// Clients that cache as Windows does: leases, local reads, writes held back, delayed closes
        #[arg(long)]
        caching: bool,
    },
    /// NetBench's mix in the order of dbench's load file (Debian package dbench)
    Replay {
        #[command(flatten)]
        common: Common,
        /// The load file
        #[arg(long, value_name = "FILE", default_value = script::PLACE)]
        load_file: PathBuf,
    },
    /// The I/O of a mail store, a database or virtual machines; `--clients` are the threads of each group
    Jetstress {
        #[command(flatten)]
        common: Common,
        /// The application: exchange, sql-server or hyper-v
        #[arg(long, value_name = "NAME", default_value = "exchange", value_parser = named::<Preset>)]
        preset: Preset,
        /// Storage groups, each with a database and a log
        #[arg(long, value_name = "N", default_value = "1",
              value_parser = clap::value_parser!(u16).range(1..=256))]
        groups: u16,
        /// A further share, on another disk, for a part of the databases and logs; may be given several times
        #[arg(long = "share", value_name = "NAME")]
        shares: Vec<String>,
        /// Pages of 8 KiB of each database; 16384, or as the mailboxes need, unless given
        #[arg(long, value_name = "N",
              value_parser = clap::value_parser!(u64).range(8192..=134_217_728))]
        pages: Option<u64>,
        /// Ask for stable data by FLUSH instead of by write-through opens
        #[arg(long)]
        flush: bool,
        /// Mailboxes that all groups together must carry, each with 0.5 database requests a second
        #[arg(long, value_name = "N")]
        mailboxes: Option<u64>,
        /// The size of each mailbox, MiB
        #[arg(long, value_name = "MIB", default_value_t = MAILBOX_MIB)]
        mailbox_mib: u64,
        /// Search for the highest number of threads that passes
        #[arg(long)]
        find: bool,
    },
    /// WRITEs, each with a FLUSH
    FlushLadder {
        #[command(flatten)]
        common: Common,
        /// All clients open the same file
        #[arg(long)]
        one_file: bool,
        /// Bytes of each WRITE
        #[arg(long, value_name = "N", default_value = "4096",
              value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
        bytes: u32,
    },
    /// Large files, written and read in pieces of 1 MiB
    FileCopy {
        #[command(flatten)]
        common: Common,
        /// The size of each client's file, MiB
        #[arg(long, value_name = "MIB", default_value = "64",
              value_parser = clap::value_parser!(u64).range(1..=1_048_576))]
        mebibytes: u64,
    },
    /// Files of 4 KiB: created, written, read, deleted
    SmallFiles {
        #[command(flatten)]
        common: Common,
    },
    /// Names: created, queried, renamed, listed, deleted
    Metadata {
        #[command(flatten)]
        common: Common,
    },
    /// A whole experiment: servers, workloads, load points, disks; continues where it was interrupted
    Matrix {
        /// `short`, `hour`, `long`, `price`, `dip`, or a file of TOML
        #[arg(value_name = "PLAN")]
        plan: String,
        /// The folder of the results, made if it is not there
        #[arg(long, value_name = "FOLDER")]
        to: PathBuf,
    },
    /// A Holdfast with more and more workers and network cards, pinned and not, in network namespaces
    Scale(scale::ScaleArgs),
    /// A process without a protocol, which a matrix starts
    #[command(hide = true)]
    LimitServer {
        port: u16,
        file: PathBuf,
        #[arg(value_parser = named::<Way>)]
        way: Way,
    },
    /// A page with figures and a CSV file from the results of a matrix
    Report {
        /// The folder of the results
        #[arg(value_name = "FOLDER")]
        results: PathBuf,
    },
}

/// Options of all workloads.
#[derive(Debug, Clone, Args)]
pub struct Common {
    /// A folder of a share: //HOST[:PORT]/SHARE[/FOLDER]; what is left in it stays there
    #[arg(value_name = "PLACE")]
    place: Place,
    #[command(flatten)]
    access: Access,
    /// Clients of each step
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "1,8")]
    clients: Vec<usize>,
    /// Seconds that each step measures
    #[arg(long, value_name = "SECONDS", default_value = "10",
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Seconds of work before, which are not measured
    #[arg(long, value_name = "SECONDS", default_value = "2",
          value_parser = clap::value_parser!(u64).range(0..=3600))]
    warm_up: u64,
    /// The name of the server and its setting in the results; the place, unless given
    #[arg(long, value_name = "NAME")]
    label: Option<String>,
    /// Append each step to this file as a line of JSON
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Why a run could not begin, or not go on.
type Failure = String;

/// Runs the workload; the exit status says how it ended.
#[must_use]
pub fn run(command: BenchCommand, password: ReadPassword) -> ExitCode {
    let mut further = Vec::new();
    let (common, workload, find) = match command {
        BenchCommand::Matrix { plan, to } => {
            let good = matrix::run(&plan, &to, password);
            let good = good.and_then(|good| report::run(&to).map(|()| good));
            return ended(good);
        }
        BenchCommand::Scale(args) => return ended(scale::run(&args)),
        BenchCommand::LimitServer { port, file, way } => {
            let served = limit::serve(port, &file, way);
            return ended(served.map(|()| true).map_err(|error| error.to_string()));
        }
        BenchCommand::Report { results } => return ended(report::run(&results).map(|()| true)),
        BenchCommand::Netbench {
            common,
            documents,
            caching,
        } => {
            let class = match caching {
                true => Class::Caching,
                false => Class::Plain,
            };
            (common, Workload::Netbench { documents, class }, false)
        }
        BenchCommand::Replay { common, load_file } => {
            (common, Workload::Replay { load_file }, false)
        }
        BenchCommand::Jetstress {
            common,
            preset,
            groups,
            shares,
            pages,
            flush,
            mailboxes,
            mailbox_mib,
            find,
        } => {
            further = shares;
            let stability = match flush {
                true => Stability::Flush,
                false => Stability::WriteThrough,
            };
            let profile = Profile {
                preset,
                pages,
                stability,
                mailboxes,
                mailbox_mib,
            };
            let groups = usize::from(groups);
            (common, Workload::Jetstress { groups, profile }, find)
        }
        BenchCommand::FlushLadder {
            common,
            one_file,
            bytes,
        } => (common, Workload::FlushLadder { one_file, bytes }, false),
        BenchCommand::FileCopy { common, mebibytes } => {
            (common, Workload::FileCopy { mebibytes }, false)
        }
        BenchCommand::SmallFiles { common } => (common, Workload::SmallFiles, false),
        BenchCommand::Metadata { common } => (common, Workload::Metadata, false),
    };
    ended(Bench::new(common, workload, find, further, password).and_then(|bench| bench.run(find)))
}

/// A setting by the name that it has in plans.
fn named<T: DeserializeOwned>(name: &str) -> Result<T, Failure> {
    serde_json::from_value(name.into()).map_err(|error| error.to_string())
}

/// The exit status of a run that measured everything, or not, or could not begin.
fn ended(good: Result<bool, Failure>) -> ExitCode {
    match good {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            remark(format_args!("error: {why}"));
            ExitCode::from(2)
        }
    }
}

/// A workload and the server that it measures.
struct Bench {
    common: Common,
    workload: Workload,
    /// The share of the place, and the further ones.
    shares: Vec<String>,
    /// The further ones by their whole paths.
    paths: Vec<String>,
    login: Login,
    label: String,
}

impl Bench {
    fn new(
        common: Common,
        workload: Workload,
        find: bool,
        further: Vec<String>,
        password: ReadPassword,
    ) -> Result<Self, Failure> {
        let clients = &common.clients;
        if clients.is_empty() || clients.iter().any(|n| !(1..=CLIENTS_MAX).contains(n)) {
            return Err(format!("--clients takes numbers from 1 to {CLIENTS_MAX}"));
        }
        if let (true, Workload::Jetstress { profile, .. }) = (find, &workload)
            && profile.preset != Preset::Exchange
        {
            return Err("--find judges by the thresholds of a mail store".to_owned());
        }
        workload.check()?;
        let place = &common.place;
        let paths = further.iter().map(|share| place.path_of(share)).collect();
        let shares = [vec![place.share().to_owned()], further].concat();
        shares::check(&workload, &shares)?;
        let login = common.access.login(&common.place, password)?;
        let label = common.label.clone();
        Ok(Self {
            label: label.unwrap_or_else(|| common.place.to_string()),
            common,
            workload,
            shares,
            paths,
            login,
        })
    }

    /// All steps; whether each has a result.
    fn run(&self, find: bool) -> Result<bool, Failure> {
        let remarks = self.login.make_folders(&self.paths)?;
        if !remarks.is_empty() {
            remark(remarks.trim_end());
        }
        print(&format!(
            "{} on {} ({})\n{HEAD}\n",
            self.workload.name(),
            self.common.place,
            self.label
        ))?;
        if find {
            return self.find();
        }
        let mut good = true;
        for clients in &self.common.clients {
            good &= self.step(*clients)?.is_some();
        }
        Ok(good)
    }

    /// Searches for the highest number of threads that passes.
    fn find(&self) -> Result<bool, Failure> {
        let judge = |threads| -> Result<_, Failure> {
            Ok(self.step(threads)?.and_then(|outcome| outcome.verdict))
        };
        let groups = match &self.workload {
            Workload::Jetstress { groups, .. } => (*groups).max(1),
            _ => 1,
        };
        let Some(threads) = highest_good((FIND_MAX / groups).max(1), judge)? else {
            return Ok(false);
        };
        print(&format!(
            "the highest number of threads of each group that passes: {threads}\n"
        ))?;
        Ok(true)
    }

    /// One step; `None` if the server failed in it.
    fn step(&self, clients: usize) -> Result<Option<Outcome>, Failure> {
        let step = Step {
            warm_up: Duration::from_secs(self.common.warm_up),
            length: Duration::from_secs(self.common.seconds),
        };
        let machine = Machine::now();
        let connect = || {
            let tree = self.login.open()?;
            Ok(Home::new(tree, self.common.place.folder()))
        };
        let target = Target {
            connect: &connect,
            access: None,
            shares: &self.paths,
            is_limit: false,
        };
        let outcome = experiment::run(&self.workload, clients, step, target, &());
        let outcome = outcome.map_err(|error| error.to_string());
        let printed = match &outcome {
            Ok(outcome) => print(&format!(
                "{}{}\n",
                line(clients, outcome),
                shares::lines(&self.shares, &outcome.measured)
            )),
            Err(error) => {
                remark(format_args!("error: {clients} clients: {error}"));
                Ok(())
            }
        };
        let mut record = Record::new(&self.label, &self.workload, clients, step, machine, outcome);
        if !self.paths.is_empty() {
            record.shares.clone_from(&self.shares);
        }
        self.append(&record)?;
        // A table that nobody reads is not continued.
        printed?;
        Ok(record.outcome)
    }

    fn append(&self, record: &Record) -> Result<(), Failure> {
        let Some(path) = &self.common.output else {
            return Ok(());
        };
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let mut text = serde_json::to_string(record).map_err(|error| failed(&error))?;
        text.push('\n');
        let file = OpenOptions::new().append(true).create(true).open(path);
        let mut file = file.map_err(|error| failed(&error))?;
        file.write_all(text.as_bytes())
            .map_err(|error| failed(&error))
    }
}

const HEAD: &str =
    "clients      ops/s       Mbps  client CPU  slowest kinds: median / 99 % / longest, ms";

/// A step as a line of the table.
fn line(clients: usize, outcome: &Outcome) -> String {
    let measured = &outcome.measured;
    let mut kinds: Vec<_> = measured.latencies.iter().collect();
    kinds.sort_by(|(_, one), (_, other)| other.mean.total_cmp(&one.mean));
    let ms = |micros: u64| micros as f64 / 1000.0;
    let slowest = kinds.iter().take(3).map(|(kind, of)| {
        format!(
            "{kind} {:.2} / {} / {:.1}",
            ms(of.p50),
            of.p99
                .map_or_else(|| "-".to_owned(), |p99| format!("{:.2}", ms(p99))),
            ms(of.max)
        )
    });
    let mut line = format!(
        "{clients:7} {:10.0} {:10.1} {:10.0}%  {}",
        measured.per_second,
        measured.mbps,
        measured.client_cpu * 100.0,
        slowest.collect::<Vec<_>>().join(", ")
    );
    if let Some(verdict) = &outcome.verdict {
        let word = match verdict.faults().join("; ") {
            faults if faults.is_empty() => "passed".to_owned(),
            faults => format!("FAILED by {faults}"),
        };
        line += &format!(
            "\n        {word}: database read {:.1} ms (at most {READ_MEAN_MS}), log write {:.1} ms (at most {LOG_MEAN_MS}), \
             worst sample {:.1} ms (at most {SAMPLE_MS}), {:.0} IOPS of {:.0} wanted; \
             {} pages and {} log writes verified",
            verdict.read_ms,
            verdict.log_ms,
            verdict.worst_ms,
            verdict.iops,
            verdict.wanted_iops,
            outcome.verified_pages.unwrap_or(0),
            outcome.verified_log_writes.unwrap_or(0)
        );
    }
    if let Some(sent) = measured.sent {
        let each = sent as f64 / measured.operations.max(1) as f64;
        line += &format!("\n        {each:.2} requests to the server for each operation");
    }
    if measured.is_limited_by_the_client() {
        line +=
            "\n        this client used so much CPU time that the server may have waited for it";
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_has_its_name_in_plans_on_the_command_line_too() {
        assert_eq!(named("hyper-v"), Ok(Preset::HyperV));
        assert_eq!(named("sendfile"), Ok(Way::Sendfile));
        let refused = named::<Preset>("oracle").unwrap_err();
        assert!(refused.contains("`sql-server`"), "{refused}");
    }

    #[test]
    fn the_schema_is_that_of_a_line_of_output() {
        crate::schemas::is_in_file::<Record>("bench-output");
    }
}
