//! One step of one workload against one server, and its record.
//!
//! A record is one line of JSON in a file that only grows. It says all that is needed to repeat the step and to
//! judge it: the workload with its parameters, the machine, and either what was measured or why the step failed.

use std::{
    fs,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

use crate::{
    Home, LoadError, Measured, Step, Watch, Worker,
    jetstress::{Group, Preset, Profile, Thread, Verdict},
    netbench::{
        client::Client,
        mix::Mix,
        replay::Replayer,
        script::Script,
        worker::{Class, MixWorker},
    },
    simple::{Copier, Flusher, Names, SmallFiles},
    step,
};

/// The samples of a Jetstress run, by which its latencies are judged.
const SAMPLE: Duration = Duration::from_secs(15);

/// The workload that a step runs, with its parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "workload", rename_all = "kebab-case")]
pub enum Workload {
    /// NetBench's Enterprise Disk Mix; a client is one of its clients.
    Netbench {
        /// Documents in the folder of each client.
        documents: u32,
        /// How much the clients cache.
        #[serde(default)]
        class: Class,
    },
    /// The load file of dbench, line by line; a client is one of its clients.
    Replay {
        /// Where it is.
        load_file: PathBuf,
    },
    /// The I/O of a mail store; a client is one thread of each group.
    Jetstress {
        /// Storage groups.
        groups: usize,
        /// Their databases and how stability is asked for.
        profile: Profile,
    },
    /// 4 KiB WRITEs, each with a FLUSH; a client is an open on a connection of its own.
    FlushLadder {
        /// All clients open the same file.
        one_file: bool,
    },
    /// Large files are written and read in pieces of 1 MiB.
    FileCopy {
        /// The size of a file, MiB.
        mebibytes: u64,
    },
    /// Files of 4 KiB are created, written, read and deleted.
    SmallFiles,
    /// Names are created, queried, renamed, listed and deleted.
    Metadata,
}

impl Workload {
    /// The name on the command line.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Netbench { .. } => "netbench",
            Self::Replay { .. } => "replay",
            Self::Jetstress { .. } => "jetstress",
            Self::FlushLadder { .. } => "flush-ladder",
            Self::FileCopy { .. } => "file-copy",
            Self::SmallFiles => "small-files",
            Self::Metadata => "metadata",
        }
    }
}

/// The result of a step that did not fail.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The figures of the measured time.
    pub measured: Measured,
    /// Whether a mail store could live with the latencies: Jetstress only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Pages that were read back and found right at the end: Jetstress only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_pages: Option<u64>,
}

/// The machine on which the client ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor, as Linux names it.
    pub cpu: String,
    /// Cores that the client could use.
    pub cores: usize,
    /// The version of the kernel.
    pub kernel: String,
    /// The load average of the last minute when the step began.
    pub load: String,
    /// Its memory, MiB.
    #[serde(default)]
    pub memory_mib: u64,
    /// How the frequency of the first core is governed; empty where nothing governs it.
    #[serde(default)]
    pub governor: String,
}

impl Machine {
    /// This machine, now; what cannot be read is empty.
    #[must_use]
    pub fn now() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpu = read("/proc/cpuinfo");
        let model = cpu.lines().find_map(|line| line.strip_prefix("model name"));
        let load = read("/proc/loadavg");
        Self {
            cpu: model.map_or_else(String::new, |m| m.trim_matches([' ', '\t', ':']).to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load: load.split(' ').next().unwrap_or_default().to_owned(),
            memory_mib: memory_kib(&read("/proc/meminfo")).unwrap_or(0) / 1024,
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
                .trim()
                .to_owned(),
        }
    }
}

fn memory_kib(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// One line of a file of results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The version of Holdfast's client.
    pub version: String,
    /// The server and its setting, as the experimenter names them.
    pub server: String,
    /// The workload of the step.
    #[serde(flatten)]
    pub workload: Workload,
    /// How many clients ran it.
    pub clients: usize,
    /// Seconds that were measured.
    pub seconds: f64,
    /// Seconds of warm-up before.
    pub warm_up: f64,
    /// When it ended, seconds since 1970.
    pub ended: u64,
    /// The client's machine.
    pub machine: Machine,
    /// The result, unless the step failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Why the step failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Record {
    /// The record of a step that has just ended.
    #[must_use]
    pub fn new(
        server: &str,
        workload: &Workload,
        clients: usize,
        step: Step,
        machine: Machine,
        outcome: Result<Outcome, String>,
    ) -> Self {
        let ended = SystemTime::now().duration_since(UNIX_EPOCH);
        let (outcome, error) = match outcome {
            Ok(outcome) => (Some(outcome), None),
            Err(error) => (None, Some(error)),
        };
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            server: server.to_owned(),
            workload: workload.clone(),
            clients,
            seconds: step.length.as_secs_f64(),
            warm_up: step.warm_up.as_secs_f64(),
            ended: ended.map_or(0, |ended| ended.as_secs()),
            machine,
            outcome,
            error,
        }
    }
}

/// Opens a connection with a session and a tree.
pub type Connect<'a> = &'a dyn Fn() -> Result<Home, String>;

/// Why a step has no outcome.
type Failure = Box<dyn std::error::Error>;

/// Runs one step of a workload.
///
/// # Errors
/// Each answer that a correct server does not give is an error: then there is no number.
pub fn run(
    workload: &Workload,
    clients: usize,
    step: Step,
    connect: Connect<'_>,
    watch: &dyn Watch,
) -> Result<Outcome, Failure> {
    match workload {
        Workload::Netbench { documents, class } => {
            let mix = Arc::new(Mutex::new(Mix::new(clients, *documents)));
            measure(clients, step, (connect, watch), |number, home| {
                let folder = home.path(&format!("mix-{number:03}"));
                let client = Client::prepare(home.tree, &folder, *documents)?;
                MixWorker::new(client, *class, number, Arc::clone(&mix))
            })
        }
        Workload::Replay { load_file } => {
            let script = Arc::new(Script::load(load_file)?);
            measure(clients, step, (connect, watch), |number, home| {
                Replayer::prepare(home, number, Arc::clone(&script))
            })
        }
        Workload::Jetstress { groups, profile } => {
            jetstress(*groups, *profile, clients, step, (connect, watch))
        }
        Workload::FlushLadder { one_file } => {
            measure(clients, step, (connect, watch), |number, home| {
                Flusher::prepare(&home, number as u64, *one_file)
            })
        }
        Workload::FileCopy { mebibytes } => {
            measure(clients, step, (connect, watch), |number, home| {
                Ok(Copier::new(home, number, *mebibytes))
            })
        }
        Workload::SmallFiles => measure(clients, step, (connect, watch), |number, home| {
            SmallFiles::prepare(&home, number)
        }),
        Workload::Metadata => measure(clients, step, (connect, watch), |number, home| {
            Names::prepare(&home, number)
        }),
    }
}

fn measure<W: Worker>(
    clients: usize,
    step: Step,
    (connect, watch): (Connect<'_>, &dyn Watch),
    prepare: impl Fn(usize, Home) -> Result<W, LoadError>,
) -> Result<Outcome, Failure> {
    let mut workers = Vec::with_capacity(clients);
    for number in 0..clients {
        workers.push(prepare(number, connect()?)?);
    }
    let (measured, _) = step::run(workers, step, watch)?;
    Ok(Outcome {
        measured,
        verdict: None,
        verified_pages: None,
    })
}

fn jetstress(
    groups: usize,
    profile: Profile,
    threads: usize,
    step: Step,
    (connect, watch): (Connect<'_>, &dyn Watch),
) -> Result<Outcome, Failure> {
    let home = connect()?;
    let mut prepared = Vec::new();
    let mut workers = Vec::new();
    for number in 0..groups {
        let group = Group::prepare(&home, number as u64, profile)?;
        for _ in 0..threads {
            workers.push(Thread::prepare(Arc::clone(&group), connect()?.tree)?);
        }
        prepared.push(group);
    }
    let mut samples = Vec::new();
    let mut left = step.length;
    let mut warm_up = step.warm_up;
    while !left.is_zero() {
        let length = left.min(SAMPLE);
        let (sample, back) = step::run(workers, Step { warm_up, length }, watch)?;
        workers = back;
        samples.push(sample);
        left -= length;
        warm_up = Duration::ZERO;
    }
    drop(workers);
    let mut verified = 0;
    for group in &prepared {
        verified += group.verify(&home.tree)?;
    }
    Ok(Outcome {
        // The thresholds are those of a mail store.
        verdict: (profile.preset == Preset::Exchange).then(|| Verdict::of(&samples)),
        measured: Measured::sum(&samples),
        verified_pages: Some(verified),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jetstress::Stability;

    #[test]
    fn a_record_is_read_back_as_it_was_written() {
        let workloads = [
            Workload::Netbench {
                documents: 24,
                class: Class::Caching,
            },
            Workload::Jetstress {
                groups: 2,
                profile: Profile {
                    preset: Preset::SqlServer,
                    pages: 100,
                    stability: Stability::WriteThrough,
                },
            },
            Workload::SmallFiles,
        ];
        let step = Step {
            warm_up: Duration::from_secs(1),
            length: Duration::from_secs(5),
        };
        for workload in &workloads {
            let outcome = Outcome {
                measured: Measured::default(),
                verdict: None,
                verified_pages: None,
            };
            for outcome in [
                Ok(outcome),
                Err("the server closed the connection".to_owned()),
            ] {
                let record = Record::new("honor", workload, 3, step, Machine::now(), outcome);
                let line = serde_json::to_string(&record).unwrap();
                assert!(!line.contains('\n'));
                assert_eq!(serde_json::from_str::<Record>(&line).unwrap(), record);
                assert!(line.contains(workload.name()));
            }
        }
    }
}
