//! One step of one workload against one server, and its record.
//!
//! A record is one line of JSON in a file that only grows. It says all that is needed to repeat the step and to
//! judge it: the workload with its parameters, the machine, and either what was measured or why the step failed.

use std::{
    path::Path,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

pub use crate::{
    machine::Machine,
    workload::{Noise, Workload},
};

use crate::{
    Home, LoadError, Measured, Step, Watch, Worker,
    error::refused,
    jetstress::{Group, Preset, Profile, Thread, Verdict},
    limit,
    logins::{Echo, Logins},
    netbench::{client::Client, mix::Mix, replay::Replayer, script::Script, worker::MixWorker},
    pieces::{Flood, Pieces, Shape, Uncounted},
    rig::{Failure, server::Access},
    simple::{Copier, CreateRemove, Flusher, Names, Opens, SmallFiles},
    step::{self, Tally},
};

/// The longest sample of a Jetstress run, by which its latencies are judged.
const SAMPLE: Duration = Duration::from_secs(15);
/// How long idle connections are looked at, and how long before nothing is asked of the server.
const SETTLE: Duration = Duration::from_millis(500);

/// The result of a step that did not fail.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Outcome {
    /// The figures of the measured time.
    pub measured: Measured,
    /// Whether a mail store could live with the latencies: Jetstress only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// Pages that were read back and found right at the end: Jetstress only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_pages: Option<u64>,
    /// Writes of the logs likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified_log_writes: Option<u64>,
}

impl From<Measured> for Outcome {
    fn from(measured: Measured) -> Self {
        Self {
            measured,
            ..Self::default()
        }
    }
}

/// One line of a file of results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Record {
    /// The version of Holdfast's client.
    pub version: String,
    /// The server and its setting, as the experimenter names them.
    pub server: String,
    #[serde(flatten)]
    pub workload: Workload,
    /// The shares over which databases and logs were dealt out, if there were several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<String>,
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
            shares: Vec::new(),
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

/// The server of a step.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// The function by which workers connect and log in.
    pub connect: Connect<'a>,
    /// The address and account for workers that log in by themselves, and the folder in which programs work; only known
    /// of servers that a matrix measures.
    pub access: Option<(&'a Access, &'a Path)>,
    /// Further shares, `\\server\share`, of which storage groups use the same folder.
    pub shares: &'a [String],
    /// Whether it is a [`limit`] instead of a server.
    pub is_limit: bool,
}

impl Target<'_> {
    /// A new connection, with the folder in each share.
    fn homes(&self) -> Result<Vec<Home>, Failure> {
        let mut homes = vec![(self.connect)()?];
        for share in self.shares {
            let further = homes.first().map(|first| first.on(share)).transpose();
            homes.extend(further.map_err(refused("tree-connect"))?);
        }
        Ok(homes)
    }
}

/// Runs one step of a workload.
pub fn run(
    workload: &Workload,
    clients: usize,
    step: Step,
    target: Target<'_>,
    watch: &dyn Watch,
) -> Result<Outcome, Failure> {
    let access = || {
        let access = target.access;
        access.ok_or("only a matrix has this workload")
    };
    if target.is_limit {
        return answered(limit::run(workload, clients, step, access()?.0, watch)?.into());
    }
    let connect = target.connect;
    let each = (clients, step, (connect, watch));
    match workload {
        Workload::Netbench { documents, class } => {
            let mix = Arc::new(Mutex::new(Mix::new(clients, *documents)));
            measure(each, |number, home| {
                let folder = home.path(&format!("mix-{number:03}"));
                let client = Client::prepare(home.tree, &folder, *documents)?;
                MixWorker::new(client, *class, number, Arc::clone(&mix))
            })
        }
        Workload::Replay { load_file } => {
            let script = Arc::new(Script::load(load_file)?);
            measure(each, |number, home| {
                Replayer::prepare(&home, number, Arc::clone(&script))
            })
        }
        Workload::Jetstress { groups, profile } => {
            jetstress(*groups, *profile, clients, step, (target, watch))
        }
        Workload::FlushLadder { one_file, bytes } => measure(each, |number, home| {
            Flusher::prepare(&home, number as u64, *one_file, *bytes)
        }),
        Workload::FileCopy { mebibytes } => measure(each, |number, home| {
            Ok(Copier::new(home, number, *mebibytes))
        }),
        Workload::SmallFiles => measure(each, |number, home| SmallFiles::prepare(&home, number)),
        Workload::Metadata => measure(each, |number, home| Names::prepare(&home, number)),
        Workload::Read { .. } | Workload::Write { .. } => {
            let (shape, connections) = Shape::of(workload).ok_or(LoadError::NotOpen)?;
            measure(each, |number, home| {
                let mut homes = vec![home];
                for _ in 1..connections {
                    homes.push(connect().map_err(LoadError::Connect)?);
                }
                Pieces::prepare(number, homes, shape)
            })
        }
        Workload::Echo => measure(each, |_, home| Ok(Echo(home.tree))),
        Workload::OpenClose { depth } => {
            measure(each, |number, home| Opens::prepare(&home, number, *depth))
        }
        Workload::CreateRemove => {
            measure(each, |number, home| CreateRemove::prepare(&home, number))
        }
        Workload::Connection | Workload::Session => {
            let access = access()?.0;
            let stays = *workload == Workload::Session;
            measure(each, |_, home| {
                Ok(Logins::new(access.clone(), stays.then_some(home.tree)))
            })
        }
        Workload::ReadBeside { noise } => measure((2, step, (connect, watch)), |number, home| {
            beside(*noise, number, home)
        }),
        Workload::Idle => idle(clients, (connect, watch)),
        Workload::Program(program) => {
            let (access, folder) = access()?;
            answered(program.run(access, folder, watch)?.into())
        }
    }
}

/// The client that counts, and the one that disturbs it.
fn beside(noise: Noise, number: usize, home: Home) -> Result<Box<dyn Worker>, LoadError> {
    let reads = |kind, bytes, depth| Shape {
        kind,
        writes: false,
        bytes,
        depth,
    };
    Ok(match (number, noise) {
        (0, _) => Box::new(Pieces::prepare(0, vec![home], reads("read", 4096, 1))?),
        (_, Noise::Stream) => {
            let shape = reads("stream", 1 << 20, 4);
            Box::new(Uncounted(Pieces::prepare(1, vec![home], shape)?))
        }
        (_, Noise::Flush) => Box::new(Flood::prepare(&home)?),
    })
}

/// Connections that stay for a moment.
fn idle(clients: usize, (connect, watch): (Connect<'_>, &dyn Watch)) -> Result<Outcome, Failure> {
    let homes: Vec<Home> = (0..clients).map(|_| connect()).collect::<Result<_, _>>()?;
    // For work that a server still does after the last connection was made.
    std::thread::sleep(SETTLE);
    watch.begins();
    std::thread::sleep(SETTLE);
    watch.ends();
    // Connections that the server has closed meanwhile would make its memory for each look small.
    for home in &homes {
        home.tree.client().echo().map_err(refused("echo"))?;
    }
    let measured = Measured {
        seconds: SETTLE.as_secs_f64(),
        clients,
        ..Measured::default()
    };
    Ok(measured.into())
}

/// Clients, the step, and how to come in and to watch.
type Each<'a> = (usize, Step, (Connect<'a>, &'a dyn Watch));

fn measure<W: Worker>(
    (clients, step, (connect, watch)): Each<'_>,
    prepare: impl Fn(usize, Home) -> Result<W, LoadError>,
) -> Result<Outcome, Failure> {
    let mut workers = Vec::with_capacity(clients);
    for number in 0..clients {
        workers.push(prepare(number, connect()?)?);
    }
    let (measured, workers) = step::run(workers, step, watch)?;
    step::end(workers)?;
    answered(measured.into())
}

fn jetstress(
    groups: usize,
    profile: Profile,
    threads: usize,
    step: Step,
    (target, watch): (Target<'_>, &dyn Watch),
) -> Result<Outcome, Failure> {
    let homes = target.homes()?;
    let pages = profile.pages_of_each(groups);
    let mut prepared = Vec::new();
    let mut workers = Vec::new();
    for number in 0..groups {
        let shares = profile.preset.shares_of(number, homes.len());
        let group = Group::prepare(&homes[shares[0]], number as u64, pages, profile)?;
        for _ in 0..threads {
            let own = target.homes()?;
            let trees = shares.map(|share| own[share].tree.clone());
            workers.push(Thread::prepare(Arc::clone(&group), trees)?);
        }
        prepared.push((group, shares));
    }
    let mut samples = Vec::new();
    let mut whole: Option<Tally> = None;
    let (count, length) = samples_of(step.length);
    let mut warm_up = step.warm_up;
    for _ in 0..count {
        let (sample, back) = step::sample(workers, Step { warm_up, length }, watch)?;
        workers = back;
        samples.push(sample.figures());
        whole = Some(match whole {
            Some(whole) => whole.with(sample),
            None => sample,
        });
        warm_up = Duration::ZERO;
    }
    drop(workers);
    let whole = whole.unwrap_or_default();
    let mut measured = whole.figures();
    if homes.len() > 1 {
        measured.shares = whole.by_place(homes.len(), |group, kind| {
            profile.preset.share_of(group, kind, homes.len())
        });
    }
    // A server may have closed the connection that had nothing to do all the time.
    let homes = target.homes()?;
    let (mut verified, mut log_writes) = (0, 0);
    for (group, [database, logs]) in &prepared {
        verified += group.verify(&homes[*database].tree)?;
        log_writes += group.verify_log(&homes[*logs].tree)?;
    }
    answered(Outcome {
        // The thresholds are those of a mail store.
        verdict: (profile.preset == Preset::Exchange)
            .then(|| Verdict::of(&samples, profile.mailboxes.unwrap_or(0))),
        measured,
        verified_pages: Some(verified),
        verified_log_writes: Some(log_writes),
    })
}

/// The number of samples of a run and the length of each. They are equal: what is left of a run that is no multiple of
/// a sample may be too short for a single read, and would be judged as a store that stands still.
fn samples_of(length: Duration) -> (u32, Duration) {
    let count = length.as_nanos().div_ceil(SAMPLE.as_nanos());
    let count = u32::try_from(count).unwrap_or(u32::MAX).max(1);
    (count, length / count)
}

/// A server that answered nothing in the measured time has no rate: it stands still, and its rate of 0 would be a
/// number.
fn answered(outcome: Outcome) -> Result<Outcome, Failure> {
    match outcome.measured.operations {
        0 => Err(LoadError::Nothing.into()),
        _ => Ok(outcome),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{jetstress::Stability, netbench::worker::Class, programs::Program};

    #[test]
    fn a_step_without_an_answer_is_an_error() {
        struct Still;
        impl Worker for Still {
            fn turn(&mut self, _: &mut dyn FnMut(step::Sample)) -> Result<(), LoadError> {
                std::thread::sleep(Duration::from_millis(20));
                Ok(())
            }
        }
        let step = Step {
            warm_up: Duration::ZERO,
            length: Duration::from_millis(50),
        };
        let (still, _) = step::run(vec![Still], step, &()).unwrap();
        let error = answered(still.into()).unwrap_err().to_string();
        assert!(error.contains("answered nothing"), "{error}");
        let busy = Measured {
            operations: 1,
            ..Measured::default()
        };
        assert!(answered(busy.into()).is_ok());
    }

    #[test]
    fn the_samples_of_a_run_are_equal() {
        let of = |millis| samples_of(Duration::from_millis(millis));
        for (millis, count, each) in [
            (300, 1, 300),
            (15_000, 1, 15_000),
            (15_001, 2, 7500),
            (40_000, 3, 13_333),
            (7_200_000, 480, 15_000),
        ] {
            assert_eq!(of(millis).0, count);
            assert_eq!(of(millis).1.as_millis(), each);
        }
    }

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
                    pages: Some(100),
                    stability: Stability::WriteThrough,
                    mailboxes: None,
                    mailbox_mib: 100,
                },
            },
            Workload::SmallFiles,
            Workload::Program(Program {
                command: "true".to_owned(),
                prepare: String::new(),
                after: String::new(),
            }),
        ];
        let step = Step {
            warm_up: Duration::from_secs(1),
            length: Duration::from_secs(5),
        };
        for workload in &workloads {
            for outcome in [
                Ok(Measured::default().into()),
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
