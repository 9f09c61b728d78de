//! The plan of a matrix: which servers, workloads, numbers of clients and disks, from a file of TOML.
//!
//! A plan is checked before anything begins. It becomes a list of cells, one for each measurement, in the order in
//! which they run: within a round and a disk every step is taken on all servers, one after the other, so that a
//! disturbance of the machine affects all of them. Which server is first changes from step to step.

mod disk;
mod server;
mod workload;

use std::{collections::BTreeSet, time::Duration};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use smb_load::{Protection, Step, experiment::Workload, rig::pin::Pin};

pub(super) use disk::{DiskClass, DiskPlan};
pub(super) use server::{ServerKind, ServerPlan};
use workload::WorkloadPlan;

/// Clients at most of a step.
const CLIENTS_MAX: usize = 20_000;
/// Measurements of one plan at most.
const CELLS_MAX: usize = 100_000;
/// Bytes at most of a name, so that a file name has room for three of them and the numbers.
const NAME_MAX: usize = 72;

/// The plans that come along.
const PLANS: [(&str, &str); 5] = [
    // Under ten minutes.
    ("short", include_str!("short.toml")),
    // An hour and a half.
    ("hour", include_str!("hour.toml")),
    // All load points of the reports.
    ("long", include_str!("long.toml")),
    // The flush ladder under each policy on each file system.
    ("price", include_str!("price.toml")),
    // Steps of ten minutes at the load points at which the reports have a dip.
    ("dip", include_str!("dip.toml")),
];

/// A whole experiment.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan {
    /// Seconds that each step measures.
    seconds: f64,
    /// Seconds of work before, which are not measured.
    #[serde(default = "warm_up")]
    warm_up: f64,
    /// How often everything is done.
    rounds: usize,
    /// Clients of each step, unless a workload has its own.
    clients: Vec<usize>,
    /// The servers on cores of their own, and the clients on others: `0-1:2,3`.
    #[serde(default, deserialize_with = "pin")]
    pub(super) pin: Option<Pin>,
    /// Milliseconds between two looks at what is exposed.
    #[serde(default = "look_ms")]
    pub(super) look_ms: u64,
    #[serde(rename = "server")]
    pub(super) servers: Vec<ServerPlan>,
    #[serde(rename = "workload")]
    workloads: Vec<WorkloadPlan>,
    #[serde(rename = "disk", default = "disk::one_folder")]
    pub(super) disks: Vec<DiskPlan>,
}

/// One measurement.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    pub(super) round: usize,
    /// Its place in the plan.
    pub(super) disk: usize,
    /// Its place in the plan.
    pub(super) server: usize,
    /// The name of the workload in results.
    pub(super) title: String,
    pub(super) workload: Workload,
    pub(super) protection: Protection,
    pub(super) clients: usize,
    pub(super) step: Step,
    /// The name of its file of results.
    pub(super) file: String,
}

fn warm_up() -> f64 {
    1.0
}

fn look_ms() -> u64 {
    1000
}

fn pin<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Pin>, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(serde::de::Error::custom)
}

/// Takes the name out of a table.
fn name_of(table: &mut toml::Table) -> Result<Option<String>, String> {
    match table.remove("name") {
        None => Ok(None),
        Some(toml::Value::String(name)) => Ok(Some(name)),
        Some(other) => Err(format!("{other} is no name")),
    }
}

/// Reads a value from a table whose keys must all be the value's own.
fn exactly<T: Serialize + DeserializeOwned>(table: toml::Table) -> Result<T, String> {
    let value: T = table
        .clone()
        .try_into()
        .map_err(|error| error.to_string())?;
    let own = toml::Table::try_from(&value).map_err(|error| error.to_string())?;
    match table.keys().find(|key| !own.contains_key(*key)) {
        Some(key) => Err(format!("{key:?} is not known here")),
        None => Ok(value),
    }
}

impl Plan {
    /// The text of a plan that comes along, or of a file.
    pub(super) fn text(name: &str) -> Result<String, String> {
        match PLANS.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => Ok((*text).to_owned()),
            None => std::fs::read_to_string(name).map_err(|error| {
                let known = PLANS.map(|(known, _)| known).join(", ");
                format!("{name}: {error}\n  = the plans that come along are {known}; any other is a file of TOML")
            }),
        }
    }

    /// Reads and checks a plan.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let this: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        this.check()?;
        Ok(this)
    }

    fn check(&self) -> Result<(), String> {
        let own = self.workloads.iter().map(|of| of.seconds(self.seconds));
        let mut seconds = own.chain([self.seconds]);
        if seconds.any(|seconds| !(0.05..=86_400.0).contains(&seconds))
            || !(0.0..=3600.0).contains(&self.warm_up)
        {
            return Err("seconds is 0.05 to 86400, warm_up 0 to 3600".to_owned());
        }
        if !(1..=1000).contains(&self.rounds) || !(1..=60_000).contains(&self.look_ms) {
            return Err("rounds is 1 to 1000, look_ms 1 to 60000".to_owned());
        }
        let servers = self.servers.iter().map(|server| server.name.clone());
        distinct("server", servers)?;
        distinct("disk", self.disks.iter().map(|disk| disk.name.clone()))?;
        let titles = self.workloads.iter().map(|of| of.title.clone());
        distinct("workload", titles)?;
        for workload in &self.workloads {
            workload.check(&self.clients, &self.servers)?;
        }
        self.disks.iter().try_for_each(DiskPlan::check)?;
        let cells = self.cells();
        if cells.len() > CELLS_MAX {
            return Err(format!("more than {CELLS_MAX} measurements"));
        }
        let mut files = BTreeSet::new();
        match cells.iter().find(|cell| !files.insert(&cell.file)) {
            // The one would count as measured when the other is.
            Some(cell) => Err(format!("two measurements have the name {:?}", cell.file)),
            None => Ok(()),
        }
    }

    /// The most connections that a step makes to a server.
    pub(super) fn connections_max(&self) -> usize {
        let of = |cell: &Cell| match cell.workload {
            Workload::Read { connections, .. } => cell.clients.saturating_mul(connections),
            Workload::Jetstress { groups, .. } => cell.clients.saturating_mul(groups),
            _ => cell.clients,
        };
        self.cells().iter().map(of).max().unwrap_or(0)
    }

    /// All measurements in their order.
    pub(super) fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        for round in 0..self.rounds {
            for disk in 0..self.disks.len() {
                let steps = self.workloads.iter().flat_map(|workload| {
                    let clients = workload.clients(&self.clients).iter();
                    clients.map(move |clients| (workload, *clients))
                });
                for (step, (workload, clients)) in steps.enumerate() {
                    for turn in 0..self.servers.len() {
                        let server = (round + step + turn) % self.servers.len();
                        cells.extend(self.cell((round, disk, server), workload, clients));
                    }
                }
            }
        }
        cells
    }

    fn cell(
        &self,
        (round, disk, server): (usize, usize, usize),
        workload: &WorkloadPlan,
        clients: usize,
    ) -> Option<Cell> {
        let of = self.servers.get(server).filter(|of| workload.runs_on(of))?;
        let title = workload.title.clone();
        Some(Cell {
            round,
            disk,
            server,
            file: format!(
                "{round:03}-{}-{}-{clients:04}-{}.json",
                slug(&self.disks.get(disk)?.name),
                slug(&title),
                slug(&of.name)
            ),
            title,
            workload: workload.workload.clone(),
            protection: workload.protection(),
            clients,
            step: Step {
                warm_up: Duration::from_secs_f64(self.warm_up),
                length: Duration::from_secs_f64(workload.seconds(self.seconds)),
            },
        })
    }
}

/// A name as a part of a file's name.
pub(super) fn slug(name: &str) -> String {
    let letters = name.chars().map(|c| match c {
        c if c.is_ascii_alphanumeric() => c.to_ascii_lowercase(),
        _ => '-',
    });
    letters.collect()
}

/// At least one name, and none twice, also as parts of file names.
fn distinct(what: &str, names: impl Iterator<Item = String>) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for name in names {
        if name.is_empty() || name.len() > NAME_MAX || !seen.insert(slug(&name)) {
            return Err(format!(
                "{what} {name:?}: empty, longer than {NAME_MAX} bytes, or the same as another"
            ));
        }
    }
    match seen.is_empty() {
        true => Err(format!("there is no {what}")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests;
