//! `holdfast bench matrix`: a whole experiment, as a plan describes it.
//!
//! Each measurement becomes one file of JSON when it has ended. A run that is interrupted goes on where it was: what
//! has its file is not measured again. A server that refuses, dies or returns wrong data has a file that states the
//! error and no number.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use smb_load::{
    Home, Measured,
    experiment::{self, Machine, Outcome, Record, Target, Workload},
    rig::{config::connections, memory},
};

use super::{
    bed::{self, Bed, Failure},
    exposure::{self, Seen, Sights},
    plan::{Cell, Plan, ServerKind, ServerPlan},
    program::{self, Build},
    result::{self, Run},
};
use crate::{ReadPassword, remark};

/// The file of the plan in the folder of results, so that the results of two plans are never mixed.
const PLAN: &str = "plan.toml";
/// Servers, images and mounts, only while the matrix runs.
const SCRATCH: &str = "scratch";
/// The folder in it in which programs work.
const PROGRAMS: &str = "programs";
/// Descriptors for 10,000 connections of a client or a server, and the rest.
const DESCRIPTORS: u64 = 65_536;
/// The time of a step beside its own, before any was seen: files are filled, and the disk is synced.
const OVERHEAD: Duration = Duration::from_secs(2);

/// Runs what is missing of a plan; whether every measurement has a result.
pub(super) fn run(plan: &str, results: &Path, password: ReadPassword) -> Result<bool, String> {
    let text = Plan::text(plan)?;
    let plan = Plan::parse(&text).map_err(|error| format!("plan {plan}: {error}"))?;
    let results = std::path::absolute(results).map_err(|error| error.to_string())?;
    more_descriptors();
    let (scratch, _lock) = begin(&results, &text)?;
    let matrix = Matrix {
        scratch,
        results,
        builds: builds(&plan).map_err(|error| error.to_string())?,
        plan,
        password,
    };
    matrix.run().map_err(|error| error.to_string())
}

/// The programs of the servers, in their order.
fn builds(plan: &Plan) -> Result<Vec<Build>, Failure> {
    program::builds(plan.servers.iter().map(|server| &server.kind))
}

/// Makes or checks the folder of results, and clears the scratch folder in it. The lock of the folder, which is taken
/// before anything in it is read or written, keeps others out: they would take away the disk below the servers.
pub(super) fn begin(results: &Path, text: &str) -> Result<(PathBuf, fs::File), String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", results.display());
    let scratch = results.join(SCRATCH);
    fs::create_dir_all(result::folder(results)).map_err(|error| failed(&error))?;
    let lock = fs::File::open(results).map_err(|error| failed(&error))?;
    // A file system without locks keeps nobody out.
    if let Err(fs::TryLockError::WouldBlock) = lock.try_lock() {
        return Err(failed(&"another run uses this folder"));
    }
    let copy = results.join(PLAN);
    match fs::read_to_string(&copy) {
        Ok(before) if before == text => {}
        Ok(_) => return Err(failed(&"holds the results of another plan")),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(&error)),
        Err(_) if !result::files(results)?.is_empty() => {
            return Err(failed(&"holds results, and the plan is not known"));
        }
        Err(_) => result::write_whole(&copy, text).map_err(|error| failed(&error))?,
    }
    bed::clear(&scratch).map_err(|error| failed(&error))?;
    fs::create_dir_all(scratch.join(PROGRAMS)).map_err(|error| failed(&error))?;
    // The user of the shares passes through it.
    smb_load::rig::server::open_up(results).map_err(|error| failed(&error))?;
    smb_load::rig::server::open_up(&scratch).map_err(|error| failed(&error))?;
    Ok((scratch, lock))
}

/// The number of measurements without a result, and of all, by the plan in the folder of results. Nothing is known if
/// there is no plan of a matrix, or one that this version does not read.
pub(super) fn missing(results: &Path) -> (usize, usize) {
    let text = fs::read_to_string(results.join(PLAN)).unwrap_or_default();
    let Ok(plan) = Plan::parse(&text) else {
        return (0, 0);
    };
    let folder = result::folder(results);
    let cells = plan.cells();
    let missing = cells
        .iter()
        .filter(|cell| !folder.join(&cell.file).exists());
    (missing.count(), cells.len())
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

struct Matrix {
    plan: Plan,
    /// Those of its servers, in their order.
    builds: Vec<Build>,
    results: PathBuf,
    scratch: PathBuf,
    password: ReadPassword,
}

impl Matrix {
    fn run(&self) -> Result<bool, Failure> {
        let cells = self.plan.cells();
        let path = |cell: &Cell| result::folder(&self.results).join(&cell.file);
        let missing: Vec<&Cell> = cells.iter().filter(|cell| !path(cell).exists()).collect();
        let before = result::all(&self.results)?;
        for (number, (server, build)) in self.plan.servers.iter().zip(&self.builds).enumerate() {
            if missing.iter().any(|cell| cell.server == number) {
                program::check(&before, &server.name, build)?;
            }
        }
        let mut progress = Progress::new(cells.len(), &missing);
        let mut bed: Option<((usize, usize), Bed)> = None;
        for cell in missing {
            let wanted = (cell.round, cell.disk);
            if bed.as_ref().is_none_or(|(of, _)| *of != wanted) {
                if let Some((_, old)) = bed.take() {
                    old.end()?;
                }
                // All servers are started anew.
                if builds(&self.plan)? != self.builds {
                    return Err("the program of a server was built anew meanwhile".into());
                }
                let plan = self.plan.disks.get(cell.disk).ok_or("no such disk")?;
                let connections = connections(self.plan.connections_max());
                let made = Bed::make(plan, &self.scratch, self.plan.pin, connections)?;
                bed = Some((wanted, made));
            }
            let Some((_, bed)) = &mut bed else {
                continue;
            };
            let run = self.measure(cell, bed)?;
            progress.done(&run);
            run.store(&path(cell))?;
        }
        if let Some((_, bed)) = bed {
            bed.end()?;
        }
        bed::clear(&self.scratch)?;
        let failed = result::failures(&self.results)?;
        if failed > 0 {
            remark(format_args!(
                "{failed} of {} measurements failed",
                cells.len()
            ));
        }
        Ok(failed == 0)
    }

    /// Makes one measurement. If the server fails, the error is its result.
    fn measure(&self, cell: &Cell, bed: &mut Bed) -> Result<Run, Failure> {
        let plan = self.plan.servers.get(cell.server).ok_or("no such server")?;
        let machine = Machine::now();
        if cell.workload == Workload::Idle {
            // Memory that other work left in a server's pools would be free of charge.
            bed.stop(cell.server);
        }
        let stepped = self.step(cell, plan, bed);
        let (mut outcome, seen) = stepped.unwrap_or_else(|error| (Err(error), Seen::default()));
        if let (Ok(_), Err(error)) = (&outcome, bed.rest(cell.server)) {
            outcome = Err(error);
        }
        if outcome.is_err() || cell.workload == Workload::Idle {
            bed.stop(cell.server);
        }
        let outcome = outcome.map_err(|error| error.to_string());
        let mut record = Record::new(
            &plan.name,
            &cell.workload,
            cell.clients,
            cell.step,
            machine,
            outcome,
        );
        let build = self.builds.get(cell.server).ok_or("no such server")?;
        let shares = plan.kind.shares()?;
        if shares.len() > 1 && matches!(cell.workload, Workload::Jetstress { .. }) {
            record.shares = shares;
        }
        let (place, server) = ((cell.round, cell.title.as_str()), (&plan.kind, build));
        Ok(Run {
            protection: cell.protection,
            ..seen.of_run(record, place, server, bed.disk.clone())
        })
    }

    /// The outcome of a step and what was seen of it, unless it could not begin.
    fn step(
        &self,
        cell: &Cell,
        plan: &ServerPlan,
        bed: &mut Bed,
    ) -> Result<(Result<Outcome, Failure>, Seen), Failure> {
        bed.ready(cell.server, plan, self.password)?;
        bed.settle()?;
        let bed = &*bed;
        let running = bed.running(cell.server).ok_or("the server is gone")?;
        let connect = || {
            let tree = running.login.open_protected(cell.protection)?;
            Ok(Home::new(tree, running.folder.folder()))
        };
        let sights = Sights {
            metrics: running.metrics,
            counts: &|| bed.counts(),
            cpu: &|| running.server.as_ref()?.cpu().ok(),
            memory: &|| match cell.workload {
                Workload::Idle => memory::pss_kib(running.server.as_ref()?.pid()?),
                _ => None,
            },
            interval: Duration::from_millis(self.plan.look_ms),
        };
        let (access, programs) = (running.login.access(), self.scratch.join(PROGRAMS));
        let target = Target {
            connect: &connect,
            access: Some((&access, &programs)),
            shares: &running.further,
            is_limit: matches!(plan.kind, ServerKind::Limit { .. }),
        };
        Ok(exposure::watched(&sights, |watch| {
            experiment::run(&cell.workload, cell.clients, cell.step, target, watch)
        }))
    }
}

/// Reports each measurement with the time that is left.
struct Progress {
    all: usize,
    left: usize,
    done: u32,
    begun: Instant,
    /// The mean time of a step, before any was seen.
    planned: Duration,
}

impl Progress {
    fn new(all: usize, missing: &[&Cell]) -> Self {
        let left = missing.len();
        let time = |cell: &&Cell| cell.step.warm_up + cell.step.length + OVERHEAD;
        let planned: Duration = missing.iter().map(time).sum();
        let this = Self {
            all,
            left,
            done: 0,
            begun: Instant::now(),
            planned: planned / u32::try_from(left.max(1)).unwrap_or(u32::MAX),
        };
        if left < all {
            remark(format_args!(
                "{} of {all} measurements are there already",
                all - left
            ));
        }
        remark(format_args!(
            "{left} measurements, about {}",
            minutes(this.time_left())
        ));
        this
    }

    fn time_left(&self) -> Duration {
        let each = match self.done {
            0 => self.planned,
            done => self.begun.elapsed() / done,
        };
        each * u32::try_from(self.left).unwrap_or(u32::MAX)
    }

    fn done(&mut self, run: &Run) {
        self.done += 1;
        self.left -= 1;
        let record = &run.record;
        let measured = match (&record.outcome, &record.error) {
            (Some(outcome), _) => figures(&outcome.measured),
            (None, error) => {
                let error = error.as_deref().unwrap_or_default();
                let first = error.lines().next().unwrap_or_default();
                format!("FAILED: {first}")
            }
        };
        remark(format_args!(
            "{} {} left | round {}, {}, {}, {} clients, {}: {measured}",
            bar(self.all - self.left, self.all),
            minutes(self.time_left()),
            run.round + 1,
            run.disk.name,
            run.title,
            record.clients,
            record.server,
        ));
    }
}

/// The rate, and whether it may be the client's.
fn figures(measured: &Measured) -> String {
    let warning = match measured.is_limited_by_the_client() {
        true => format!(
            " (this client used {:.0} % of its cores, {:.0} % of one for each client: the server may have waited for it)",
            measured.client_cpu * 100.0,
            measured.client_thread * 100.0
        ),
        false => String::new(),
    };
    format!(
        "{:.0} ops/s, {:.1} Mbps{warning}",
        measured.per_second, measured.mbps
    )
}

fn bar(done: usize, all: usize) -> String {
    const WIDTH: usize = 20;
    let full = done * WIDTH / all.max(1);
    format!(
        "[{}{}] {done}/{all}",
        "#".repeat(full),
        ".".repeat(WIDTH - full.min(WIDTH))
    )
}

fn minutes(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds < 90 => format!("{seconds} s"),
        seconds if seconds < 5400 => format!("{} min", seconds / 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_shown_as_a_part_of_all() {
        assert_eq!(bar(0, 8), "[....................] 0/8");
        assert_eq!(bar(8, 8), "[####################] 8/8");
        assert_eq!(minutes(Duration::from_secs(89)), "89 s");
        assert_eq!(minutes(Duration::from_secs(7260)), "2 h 1 min");
    }

    #[test]
    fn a_client_that_may_be_the_limit_is_named() {
        let mut measured = Measured {
            per_second: 1000.0,
            client_cpu: Measured::BUSY_CLIENT,
            ..Measured::default()
        };
        assert_eq!(figures(&measured), "1000 ops/s, 0.0 Mbps");
        measured.client_cpu = 0.52;
        let line = figures(&measured);
        assert!(line.contains("client used 52 % of its cores"), "{line}");
    }

    #[test]
    fn results_of_another_plan_are_not_continued() {
        let folder = tempfile::tempdir().unwrap();
        begin(folder.path(), "one").unwrap();
        begin(folder.path(), "one").unwrap();
        assert!(begin(folder.path(), "two").is_err());
        let running = begin(folder.path(), "one").unwrap();
        fs::remove_file(folder.path().join(PLAN)).unwrap();
        // Neither the plan of the other run nor one that it has not written yet counts: the folder is in use.
        let error = begin(folder.path(), "two").unwrap_err();
        assert!(error.contains("another run"), "{error}");
        assert!(!folder.path().join(PLAN).exists());
        drop(running);
        begin(folder.path(), "one").unwrap();
        // The plan of these results may have been another one.
        fs::remove_file(folder.path().join(PLAN)).unwrap();
        let run = result::folder(folder.path()).join("000.json");
        fs::write(&run, "{}").unwrap();
        let error = begin(folder.path(), "one").unwrap_err();
        assert!(error.contains("the plan is not known"), "{error}");
        assert!(!folder.path().join(PLAN).exists());
        fs::remove_file(&run).unwrap();
        begin(folder.path(), "one").unwrap();
    }

    #[test]
    fn the_measurements_that_a_plan_lacks_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(missing(folder.path()), (0, 0));
        let text = Plan::text("short").unwrap();
        begin(folder.path(), &text).unwrap();
        let cells = Plan::parse(&text).unwrap().cells();
        let all = cells.len();
        assert_eq!(missing(folder.path()), (all, all));
        let first = result::folder(folder.path()).join(&cells[0].file);
        fs::write(first, "{}").unwrap();
        assert_eq!(missing(folder.path()), (all - 1, all));
        // The settings of `scale` are no plan.
        fs::write(folder.path().join(PLAN), "clients = [16]\nseconds = 10\n").unwrap();
        assert_eq!(missing(folder.path()), (0, 0));
    }
}
