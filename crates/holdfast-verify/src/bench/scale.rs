//! `holdfast bench scale`: a Holdfast with more and more workers and network cards, pinned to cores and not.
//!
//! The program runs itself anew in a network namespace of its own, where the clients are; the server is in a second
//! one. Each network card is a pair of veth between the two, and no packet leaves them. Each listener has the address
//! of one card; workers and clients are shared out among the cards.
//!
//! The results are those of a matrix, whose servers are the shapes, so that a report can be made of them. Where clients
//! and server share the cores only the CPU time of an operation says something.

use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use smb_load::{
    Home, Step,
    experiment::{self, Machine, Record, Target, Workload},
    netbench::worker::Class,
    rig::{
        config::{Holdfast, Listener, configured, connections, holdfast_config},
        device,
        server::{Access, PASSWORD, Place as Folder, SHARE, Server, USER},
    },
};

use super::{
    bed::{self, Failure},
    exposure::{self, Sights},
    matrix,
    plan::{DiskClass, ServerKind, slug},
    program::{self, Build},
    report,
    result::{self, Disk, Run},
};
use crate::{
    remark,
    verify_flush::{Login, Place},
};

/// Set in the program that runs in the namespace.
const INSIDE: &str = "HOLDFAST_BENCH_SCALE";
/// The namespace of the server has this name and the id of the process that made it: two runs have two.
const NAMESPACE: &str = "holdfast-bench-";
/// Where `ip` has the namespaces by their names.
const NAMESPACES: &str = "/run/netns";
const PORT: u16 = 4450;
/// Nothing is made stable: what is measured is the way of a request.
const POLICY: &str = "treat-host-as-stable-storage";
/// Work that is not measured.
const WARM_UP: Duration = Duration::from_secs(1);
/// Files in the folder of each client.
const DOCUMENTS: u32 = 8;

/// The options.
#[derive(Debug, Clone, clap::Args)]
pub struct ScaleArgs {
    /// Workers of each shape, each on a core of its own; more than there are cores are left out
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "1,2")]
    workers: Vec<usize>,
    /// Network cards of each shape; those with fewer workers than cards are left out
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "1,2")]
    nics: Vec<usize>,
    /// Clients in all, shared out among the cards
    #[arg(long, value_name = "N", default_value = "16",
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    clients: u16,
    /// Seconds that each step measures
    #[arg(long, value_name = "SECONDS", default_value = "10",
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// How often everything is done
    #[arg(long, value_name = "N", default_value = "6",
          value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// The folder of the results, made if it is not there
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
}

/// One way to set up the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) workers: usize,
    pub(super) nics: usize,
    pub(super) pin: bool,
}

impl Shape {
    fn name(self) -> String {
        format!("{} workers, {}", self.workers, self.line())
    }

    /// The part of its name that it shares with those of more or fewer workers.
    pub(super) fn line(self) -> String {
        let word = if self.pin { "pinned" } else { "unpinned" };
        format!("{} NICs, {word}", self.nics)
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        let (workers, line) = name.split_once(" workers, ")?;
        let (nics, word) = line.split_once(" NICs, ")?;
        Some(Self {
            workers: workers.parse().ok()?,
            nics: nics.parse().ok()?,
            pin: word == "pinned",
        })
    }

    /// The cores of the listener of a card.
    fn cores(self, nic: usize) -> Vec<usize> {
        (nic..self.workers).step_by(self.nics.max(1)).collect()
    }

    fn listeners(self) -> Vec<Listener> {
        let listener = |nic| Listener {
            address: format!("{}:{PORT}", address(nic, 1)),
            cores: self.cores(nic),
            pin: self.pin,
        };
        (0..self.nics).map(listener).collect()
    }
}

/// The address of one end of a card; the server's is 1.
fn address(nic: usize, end: usize) -> String {
    format!("10.77.{nic}.{end}")
}

/// All shapes that can be on a machine with so many cores.
fn shapes(args: &ScaleArgs, cores: usize) -> Vec<Shape> {
    let mut shapes = Vec::new();
    for workers in args.workers.iter().filter(|workers| **workers <= cores) {
        for nics in &args.nics {
            for pin in [true, false] {
                if (1..=*workers).contains(nics) && *nics < 250 {
                    shapes.push(Shape {
                        workers: *workers,
                        nics: *nics,
                        pin,
                    });
                }
            }
        }
    }
    shapes
}

/// Measures all shapes and makes the report; whether each has a result.
pub(super) fn run(args: &ScaleArgs) -> Result<bool, String> {
    if std::env::var_os(INSIDE).is_none() {
        return outside();
    }
    inside(args).map_err(|error| error.to_string())
}

/// Runs this program anew in a network namespace, in place of this process; returns only why it could not.
fn outside() -> Result<bool, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let failed = Command::new("unshare")
        .args(["--net", "--"])
        .arg(program)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .exec();
    Err(format!("unshare: {failed}"))
}

/// The options that all results of a folder share, in place of a plan. Shapes and rounds may be added later.
fn settings(args: &ScaleArgs) -> String {
    format!(
        "# holdfast bench scale\nclients = [{}]\nseconds = {}\n",
        args.clients, args.seconds
    )
}

fn inside(args: &ScaleArgs) -> Result<bool, Failure> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for workers in args.workers.iter().filter(|workers| **workers > cores) {
        remark(format_args!(
            "left out: {workers} workers, as this machine has {cores} cores"
        ));
    }
    let shapes = shapes(args, cores);
    let most = shapes.iter().map(|shape| shape.nics).max();
    let most = most.ok_or("no shape has as many workers as network cards")?;
    let results = std::path::absolute(&args.to)?;
    let (scratch, _lock) = matrix::begin(&results, &settings(args))?;
    let setting = ServerKind::holdfast(POLICY);
    let build = program::builds(std::iter::once(&setting))?.pop();
    let build = build.unwrap_or_default();
    let before = result::all(&results)?;
    for shape in &shapes {
        program::check(&before, &shape.name(), &build)?;
    }
    let cards = Cards::make(most)?;
    for round in 0..usize::from(args.rounds) {
        for turn in 0..shapes.len() {
            let Some(shape) = shapes.get((round + turn) % shapes.len()) else {
                continue;
            };
            let file = format!("{round:03}-scale-{}.json", slug(&shape.name()));
            let path = result::folder(&results).join(file);
            if path.exists() {
                continue;
            }
            let run = measure(args, *shape, round, (&scratch, &cards, &build))?;
            match (&run.record.outcome, &run.record.error) {
                (Some(outcome), _) => remark(format_args!(
                    "round {}, {}: {:.0} ops/s, {:.1} us of server CPU for each",
                    round + 1,
                    shape.name(),
                    outcome.measured.per_second,
                    run.server_cpu.unwrap_or(f64::NAN) * 1e6
                        / outcome.measured.operations.max(1) as f64
                )),
                (None, error) => remark(format_args!(
                    "{}: FAILED: {}",
                    shape.name(),
                    error.as_deref().unwrap_or("")
                )),
            }
            run.store(&path)?;
        }
    }
    bed::clear(&scratch)?;
    report::run(&results)?;
    Ok(result::failures(&results)? == 0)
}

/// Pairs of veth between this namespace and that of the server, which goes with this value.
struct Cards {
    namespace: String,
}

impl Cards {
    fn make(count: usize) -> Result<Self, Failure> {
        for left in abandoned(Path::new(NAMESPACES), Path::new("/proc")) {
            // Another run may do so at the same moment.
            let _ = ip(&format!("netns delete {left}"));
        }
        let namespace = format!("{NAMESPACE}{}", std::process::id());
        ip(&format!("netns add {namespace}"))?;
        let this = Self { namespace };
        let server_end = &this.namespace;
        ip("link set lo up")?;
        ip(&format!("-n {server_end} link set lo up"))?;
        for nic in 0..count {
            let (server, client) = (format!("srv{nic}"), format!("cli{nic}"));
            ip(&format!(
                "link add {client} type veth peer name {server} netns {server_end}"
            ))?;
            ip(&format!("addr add {}/24 dev {client}", address(nic, 2)))?;
            ip(&format!("link set {client} up"))?;
            ip(&format!(
                "-n {server_end} addr add {}/24 dev {server}",
                address(nic, 1)
            ))?;
            ip(&format!("-n {server_end} link set {server} up"))?;
        }
        Ok(this)
    }
}

impl Drop for Cards {
    fn drop(&mut self) {
        if let Err(error) = ip(&format!("netns delete {}", self.namespace)) {
            remark(format_args!("left behind: {error}"));
        }
    }
}

/// The namespaces of runs that were killed: no process has their number any more.
fn abandoned(namespaces: &Path, processes: &Path) -> Vec<String> {
    let entries = fs::read_dir(namespaces).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let is_left = |name: &String| {
        let id = name.strip_prefix(NAMESPACE);
        let id = id.and_then(|id| id.parse::<u32>().ok());
        id.is_some_and(|id| !processes.join(id.to_string()).exists())
    };
    names.filter(is_left).collect()
}

fn ip(arguments: &str) -> Result<(), Failure> {
    let arguments: Vec<_> = arguments.split(' ').collect();
    device::run("ip", &arguments).map(drop)
}

fn start(shape: Shape, clients: usize, place: &Folder, namespace: &str) -> Result<Server, Failure> {
    let listeners = shape.listeners();
    let settings = Holdfast {
        policy: POLICY,
        flush_times: None,
        file_io: None,
        metrics: None,
        connections: connections(clients),
        listeners: &listeners,
    };
    let program = std::env::current_exe()?;
    let inner = configured(&program, place, &holdfast_config(settings, place))?;
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace]);
    command.arg(inner.get_program()).args(inner.get_args());
    let access = Access::local(&address(0, 1), PORT);
    Server::launch_at(&shape.name(), place, &command, access)
}

fn measure(
    args: &ScaleArgs,
    shape: Shape,
    round: usize,
    (scratch, cards, build): (&Path, &Cards, &Build),
) -> Result<Run, Failure> {
    let name = shape.name();
    let home = scratch.join(slug(&name));
    if home.exists() {
        fs::remove_dir_all(&home)?;
    }
    let place = Folder::new(home.clone(), home.join("share"))?;
    let server = start(shape, args.clients.into(), &place, &cards.namespace)?;
    let login = |nic: usize| {
        let folder: Place = format!("//{}:{PORT}/{SHARE}/bench", address(nic, 1)).parse()?;
        Ok::<_, Failure>((Login::new(&folder, USER, PASSWORD), folder))
    };
    let logins: Vec<_> = (0..shape.nics).map(login).collect::<Result<_, _>>()?;
    if let Some((login, _)) = logins.first() {
        login.make_folders(&[])?;
    }
    let next = AtomicUsize::new(0);
    let connect = || {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let (login, folder) = logins.get(number % logins.len().max(1)).ok_or("no card")?;
        Ok(Home::new(login.open()?, folder.folder()))
    };
    let sights = Sights {
        metrics: None,
        counts: &|| None,
        cpu: &|| server.cpu().ok(),
        memory: &|| None,
        interval: Duration::from_secs(1),
    };
    let workload = Workload::Netbench {
        documents: DOCUMENTS,
        class: Class::Plain,
    };
    let step = Step {
        warm_up: WARM_UP,
        length: Duration::from_secs(args.seconds),
    };
    let clients = usize::from(args.clients);
    let target = Target {
        connect: &connect,
        access: None,
        shares: &[],
        is_limit: false,
    };
    let machine = Machine::now();
    let (outcome, seen) = exposure::watched(&sights, |watch| {
        experiment::run(&workload, clients, step, target, watch)
    });
    let outcome = outcome.map_err(|error| error.to_string());
    let disk = Disk {
        name: "folder".to_owned(),
        class: DiskClass::Folder,
        facts: bed::facts(scratch),
    };
    let record = Record::new(&name, &workload, clients, step, machine, outcome);
    let setting = ServerKind::holdfast(POLICY);
    Ok(seen.of_run(record, (round, "scale"), (&setting, build), disk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_shared_out_among_the_cards() {
        let shape = Shape {
            workers: 3,
            nics: 2,
            pin: false,
        };
        assert_eq!((shape.cores(0), shape.cores(1)), (vec![0, 2], vec![1]));
        assert_eq!(shape.name(), "3 workers, 2 NICs, unpinned");
        for pin in [true, false] {
            let shape = Shape { pin, ..shape };
            assert_eq!(Shape::named(&shape.name()), Some(shape));
        }
        assert_eq!(Shape::named("honor"), None);
    }

    #[test]
    fn only_the_namespaces_of_runs_that_are_gone_are_taken_away() {
        let (namespaces, processes) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in [
            "holdfast-bench-7",
            "holdfast-bench-8",
            "holdfast-bench-mine",
            "9",
        ] {
            fs::write(namespaces.path().join(name), "").unwrap();
        }
        fs::create_dir(processes.path().join("7")).unwrap();
        let left = abandoned(namespaces.path(), processes.path());
        assert_eq!(left, ["holdfast-bench-8"]);
        assert!(abandoned(&namespaces.path().join("none"), processes.path()).is_empty());
    }

    #[test]
    fn without_a_shape_that_fits_no_folder_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let args = ScaleArgs {
            workers: vec![1],
            nics: vec![2],
            clients: 1,
            seconds: 1,
            rounds: 1,
            to: folder.path().join("results"),
        };
        let error = inside(&args).unwrap_err().to_string();
        assert!(error.contains("no shape"), "{error}");
        assert!(!args.to.exists());
    }

    #[test]
    fn no_shape_has_more_workers_than_cores_or_fewer_than_cards() {
        let args = ScaleArgs {
            workers: vec![1, 2, 4],
            nics: vec![1, 2],
            clients: 1,
            seconds: 1,
            rounds: 1,
            to: PathBuf::new(),
        };
        let of = |cores| {
            let pinned = shapes(&args, cores).into_iter().filter(|shape| shape.pin);
            pinned
                .map(|shape| (shape.workers, shape.nics))
                .collect::<Vec<_>>()
        };
        let mut others = args.clone();
        others.workers.clear();
        assert_eq!(settings(&args), settings(&others));
        others.clients = 2;
        assert_ne!(settings(&args), settings(&others));
        assert_eq!(of(1), [(1, 1)]);
        assert_eq!(of(3), [(1, 1), (2, 1), (2, 2)]);
    }
}
