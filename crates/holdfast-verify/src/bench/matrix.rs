//! `holdfast bench matrix`: a whole experiment, as a plan describes it.
//!
//! Each measurement becomes one file of JSON when it has ended. A run that is interrupted goes on where it was: what
//! has its file is not measured again. A server that refuses, dies or returns wrong data has a file that states the
//! error and no number.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use smb_load::{
    Home,
    experiment::{self, Machine, Outcome, Record},
};

use super::{
    bed::{self, Bed, Failure},
    exposure::{self, Seen, Sights},
    plan::{Cell, Plan},
    result::{self, FORMAT, Run},
};
use crate::ReadPassword;

/// The plan beside its results, so that the results of two plans are never mixed.
const PLAN: &str = "plan.toml";
/// Servers, images and mounts, only while the matrix runs.
const SCRATCH: &str = "scratch";
/// The time of a step beside its own, before any was seen: files are filled, and the disk is synced.
const OVERHEAD: Duration = Duration::from_secs(2);

/// Runs what is missing of a plan; whether every measurement has a result.
pub(super) fn run(plan: &str, results: &Path, password: ReadPassword) -> Result<bool, String> {
    let text = Plan::text(plan)?;
    let plan = Plan::parse(&text)?;
    let results = std::path::absolute(results).map_err(|error| error.to_string())?;
    let matrix = Matrix {
        scratch: begin(&results, &text)?,
        results,
        plan,
        password,
    };
    matrix.run().map_err(|error| error.to_string())
}

/// Makes or checks the folder of results, and clears the scratch folder in it.
fn begin(results: &Path, text: &str) -> Result<PathBuf, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", results.display());
    let scratch = results.join(SCRATCH);
    fs::create_dir_all(result::folder(results)).map_err(|error| failed(&error))?;
    let copy = results.join(PLAN);
    match fs::read_to_string(&copy) {
        Ok(before) if before == text => {}
        Ok(_) => return Err(failed(&"holds the results of another plan")),
        Err(_) => fs::write(&copy, text).map_err(|error| failed(&error))?,
    }
    bed::clear(&scratch).map_err(|error| failed(&error))?;
    fs::create_dir_all(&scratch).map_err(|error| failed(&error))?;
    // The user of the shares passes through it.
    smb_load::rig::server::open_up(results).map_err(|error| failed(&error))?;
    smb_load::rig::server::open_up(&scratch).map_err(|error| failed(&error))?;
    Ok(scratch)
}

struct Matrix {
    plan: Plan,
    results: PathBuf,
    scratch: PathBuf,
    password: ReadPassword,
}

impl Matrix {
    fn run(&self) -> Result<bool, Failure> {
        let cells = self.plan.cells();
        let path = |cell: &Cell| result::folder(&self.results).join(&cell.file);
        let missing: Vec<&Cell> = cells.iter().filter(|cell| !path(cell).exists()).collect();
        let mut progress = Progress::new(cells.len(), missing.len(), &self.plan);
        let mut bed: Option<((usize, usize), Bed)> = None;
        for cell in missing {
            let wanted = (cell.round, cell.disk);
            if bed.as_ref().is_none_or(|(of, _)| *of != wanted) {
                if let Some((_, old)) = bed.take() {
                    old.end()?;
                }
                let plan = self.plan.disks.get(cell.disk).ok_or("no such disk")?;
                bed = Some((wanted, Bed::make(plan, &self.scratch)?));
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
        let failed = result::all(&self.results)?
            .iter()
            .filter(|run| run.record.error.is_some())
            .count();
        if failed > 0 {
            eprintln!("{failed} of {} measurements failed", cells.len());
        }
        Ok(failed == 0)
    }

    /// One measurement; what the server does wrong is its result.
    fn measure(&self, cell: &Cell, bed: &mut Bed) -> Result<Run, Failure> {
        let plan = self.plan.servers.get(cell.server).ok_or("no such server")?;
        let machine = Machine::now();
        let step = self.plan.step();
        let (outcome, seen) = self.step(cell, bed);
        if outcome.is_err() {
            bed.stop(cell.server);
        }
        let outcome = outcome.map_err(|error| error.to_string());
        let record = Record::new(
            &plan.name,
            &cell.workload,
            cell.clients,
            step,
            machine,
            outcome,
        );
        Ok(Run {
            format: FORMAT,
            round: cell.round,
            title: cell.title.clone(),
            seed: cell.clients as u64,
            setting: plan.kind.clone(),
            server_version: bed::version(&plan.kind),
            disk: bed.disk.clone(),
            record,
            server_cpu: seen.cpu,
            device: seen.device,
            exposure: seen.exposure,
        })
    }

    fn step(&self, cell: &Cell, bed: &mut Bed) -> (Result<Outcome, Failure>, Seen) {
        let Some(plan) = self.plan.servers.get(cell.server) else {
            return (Err("no such server".into()), Seen::default());
        };
        if let Err(error) = bed.ready(cell.server, plan, self.password) {
            return (Err(error), Seen::default());
        }
        if let Err(error) = bed.settle() {
            return (Err(error), Seen::default());
        }
        let bed = &*bed;
        let Some(running) = bed.running(cell.server) else {
            return (Err("the server is gone".into()), Seen::default());
        };
        let connect = || {
            let tree = running.door.open()?;
            Ok(Home::new(tree, running.folder.folder()))
        };
        let sights = Sights {
            metrics: running.metrics,
            counts: &|| bed.counts(),
            cpu: &|| running.server.as_ref()?.cpu().ok(),
        };
        exposure::watched(&sights, |watch| {
            experiment::run(
                &cell.workload,
                cell.clients,
                self.plan.step(),
                &connect,
                watch,
            )
        })
    }
}

/// Reports each measurement with the time that is left.
struct Progress {
    all: usize,
    left: usize,
    done: u32,
    begun: Instant,
    /// The time of a step, before any was seen.
    planned: Duration,
}

impl Progress {
    fn new(all: usize, left: usize, plan: &Plan) -> Self {
        let step = plan.step();
        let this = Self {
            all,
            left,
            done: 0,
            begun: Instant::now(),
            planned: step.warm_up + step.length + OVERHEAD,
        };
        if left < all {
            eprintln!("{} of {all} measurements are there already", all - left);
        }
        eprintln!("{left} measurements, about {}", minutes(this.time_left()));
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
            (Some(outcome), _) => format!(
                "{:.0} ops/s, {:.1} Mbps",
                outcome.measured.per_second, outcome.measured.mbps
            ),
            (None, error) => {
                let error = error.as_deref().unwrap_or_default();
                let first = error.lines().next().unwrap_or_default();
                format!("FAILED: {first}")
            }
        };
        eprintln!(
            "{} {} left | round {}, {}, {}, {} clients, {}: {measured}",
            bar(self.all - self.left, self.all),
            minutes(self.time_left()),
            run.round + 1,
            run.disk.name,
            run.title,
            record.clients,
            record.server,
        );
    }
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
    fn results_of_another_plan_are_not_continued() {
        let folder = tempfile::tempdir().unwrap();
        begin(folder.path(), "one").unwrap();
        begin(folder.path(), "one").unwrap();
        assert!(begin(folder.path(), "two").is_err());
    }
}
