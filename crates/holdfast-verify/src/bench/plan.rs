//! The plan of a matrix: which servers, workloads, numbers of clients and disks, from a file of TOML.
//!
//! A plan is checked before anything begins. It becomes a list of cells, one for each measurement, in the order in
//! which they run: within a round and a disk every step is taken on all servers, one after the other, so that a
//! disturbance of the machine affects all of them. Which server is first changes from step to step.

use std::{collections::BTreeMap, collections::BTreeSet, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};
use smb_load::{
    experiment::Workload,
    jetstress::{Preset, Profile, Stability},
    netbench::{script, worker::Class},
    rig::slow::Speed,
};

/// Clients at most of a step.
const CLIENTS_MAX: usize = 4096;
/// Measurements of one plan at most.
const CELLS_MAX: usize = 100_000;

/// The plan under ten minutes.
const SHORT: &str = include_str!("short.toml");
/// The plan of one hour.
const HOUR: &str = include_str!("hour.toml");
/// The plan with all load points of the reports.
const LONG: &str = include_str!("long.toml");

/// A whole experiment.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Plan {
    /// Seconds that each step measures.
    seconds: u64,
    /// Seconds of work before, which are not measured.
    #[serde(default = "warm_up")]
    warm_up: u64,
    /// How often everything is done.
    rounds: usize,
    /// Clients of each step, unless a workload has its own.
    clients: Vec<usize>,
    #[serde(rename = "server")]
    pub(super) servers: Vec<ServerPlan>,
    #[serde(rename = "workload")]
    workloads: Vec<WorkloadPlan>,
    #[serde(rename = "disk", default = "one_folder")]
    pub(super) disks: Vec<DiskPlan>,
}

/// One server.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "ServerText")]
pub(super) struct ServerPlan {
    pub(super) name: String,
    pub(super) kind: ServerKind,
}

/// One server as the file has it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ServerText {
    name: String,
    kind: String,
    policy: Option<String>,
    binary: Option<PathBuf>,
    strict_sync: Option<bool>,
    sync_always: Option<bool>,
    place: Option<String>,
    user: Option<String>,
    domain: Option<String>,
    password_file: Option<PathBuf>,
}

impl TryFrom<ServerText> for ServerPlan {
    type Error = String;

    fn try_from(text: ServerText) -> Result<Self, String> {
        let missing = |what: &str| format!("server {:?}: {what} is missing", text.name);
        let kind = match text.kind.as_str() {
            "holdfast" => ServerKind::Holdfast {
                policy: text.policy.ok_or_else(|| missing("policy"))?,
                binary: text.binary,
            },
            "samba" => ServerKind::Samba {
                strict_sync: text.strict_sync.ok_or_else(|| missing("strict_sync"))?,
                sync_always: text.sync_always.unwrap_or(false),
            },
            "address" => ServerKind::Address {
                place: text.place.ok_or_else(|| missing("place"))?,
                user: text.user.ok_or_else(|| missing("user"))?,
                domain: text.domain.unwrap_or_default(),
                password_file: text.password_file.ok_or_else(|| missing("password_file"))?,
            },
            other => return Err(format!("{other}: a server is holdfast, samba or address")),
        };
        Ok(Self {
            name: text.name,
            kind,
        })
    }
}

/// Which server, and how it is set up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(super) enum ServerKind {
    /// A Holdfast that is started on this machine.
    Holdfast {
        policy: String,
        /// Instead of the program that runs the matrix.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        binary: Option<PathBuf>,
    },
    /// A Samba that is started on this machine.
    Samba {
        strict_sync: bool,
        #[serde(default)]
        sync_always: bool,
    },
    /// A server that runs already, here or elsewhere.
    Address {
        /// `//HOST[:PORT]/SHARE[/FOLDER]`
        place: String,
        user: String,
        #[serde(default)]
        domain: String,
        password_file: PathBuf,
    },
}

/// One workload.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkloadPlan {
    kind: WorkloadKind,
    /// The name in results; the kind, unless given.
    name: Option<String>,
    clients: Option<Vec<usize>>,
    documents: Option<u32>,
    #[serde(default)]
    caching: bool,
    load_file: Option<PathBuf>,
    groups: Option<usize>,
    pages: Option<u64>,
    #[serde(default)]
    preset: Preset,
    #[serde(default)]
    flush: bool,
    #[serde(default)]
    one_file: bool,
    mebibytes: Option<u64>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum WorkloadKind {
    Netbench,
    Replay,
    Jetstress,
    FlushLadder,
    FileCopy,
    SmallFiles,
    Metadata,
}

/// The disk below the servers that are started.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DiskPlan {
    pub(super) name: String,
    pub(super) class: DiskClass,
    /// `ext4`, `xfs` or `btrfs`; not for a folder.
    #[serde(default = "ext4")]
    pub(super) file_system: String,
    /// Mount options; the defaults, unless given.
    #[serde(default)]
    pub(super) mount: String,
    /// The folder; that of the results, unless given.
    pub(super) folder: Option<PathBuf>,
    /// Values of `/proc/sys/vm/dirty_*` while this disk is measured.
    #[serde(default)]
    pub(super) vm: BTreeMap<String, u64>,
}

/// How fast a disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum DiskClass {
    /// A folder of a file system that is there.
    Folder,
    /// A file system of its own on a loop device.
    Raw,
    /// The same, as slow as the single IDE disk of a small server of 2003.
    #[serde(rename = "ide-2003")]
    Ide2003,
    /// The same, as slow as four disks behind a controller of that time whose cache has a battery.
    Array,
    /// The same, as slow as an SSD without protection against power loss.
    Ssd,
}

impl DiskClass {
    /// The best that a disk of this class does; models, not measurements of a certain disk.
    pub(super) const fn speed(self) -> Option<Speed> {
        let (flush, requests, bytes) = match self {
            Self::Folder | Self::Raw => return None,
            Self::Ide2003 => (12_000, 160, 45),
            Self::Array => (300, 2_000, 180),
            Self::Ssd => (1_000, 40_000, 450),
        };
        Some(Speed {
            flush: Duration::from_micros(flush),
            requests: Some(requests),
            bytes: Some(bytes * 1_000_000),
        })
    }
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
    pub(super) clients: usize,
    /// The name of its file of results.
    pub(super) file: String,
}

fn warm_up() -> u64 {
    1
}

fn ext4() -> String {
    "ext4".to_owned()
}

fn one_folder() -> Vec<DiskPlan> {
    vec![DiskPlan {
        name: "folder".to_owned(),
        class: DiskClass::Folder,
        file_system: ext4(),
        mount: String::new(),
        folder: None,
        vm: BTreeMap::new(),
    }]
}

impl WorkloadPlan {
    fn title(&self) -> String {
        let name = self.name.clone();
        name.unwrap_or_else(|| self.workload().name().to_owned())
    }

    fn workload(&self) -> Workload {
        match self.kind {
            WorkloadKind::Netbench => Workload::Netbench {
                documents: self.documents.unwrap_or(24).clamp(8, 10_000),
                class: match self.caching {
                    true => Class::Caching,
                    false => Class::Plain,
                },
            },
            WorkloadKind::Replay => {
                let load_file = self.load_file.clone();
                Workload::Replay {
                    load_file: load_file.unwrap_or_else(|| script::PLACE.into()),
                }
            }
            WorkloadKind::Jetstress => Workload::Jetstress {
                groups: self.groups.unwrap_or(1).clamp(1, 256),
                profile: Profile {
                    preset: self.preset,
                    pages: self.pages.unwrap_or(16_384).clamp(8192, 1 << 27),
                    stability: match self.flush {
                        true => Stability::Flush,
                        false => Stability::WriteThrough,
                    },
                },
            },
            WorkloadKind::FlushLadder => Workload::FlushLadder {
                one_file: self.one_file,
            },
            WorkloadKind::FileCopy => Workload::FileCopy {
                mebibytes: self.mebibytes.unwrap_or(64).clamp(1, 1 << 20),
            },
            WorkloadKind::SmallFiles => Workload::SmallFiles,
            WorkloadKind::Metadata => Workload::Metadata,
        }
    }
}

impl Plan {
    /// The text of a plan: `short`, `hour`, `long`, or that of a file.
    pub(super) fn text(name: &str) -> Result<String, String> {
        match name {
            "short" => Ok(SHORT.to_owned()),
            "hour" => Ok(HOUR.to_owned()),
            "long" => Ok(LONG.to_owned()),
            file => std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}")),
        }
    }

    /// Reads and checks a plan.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let this: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        this.check()?;
        Ok(this)
    }

    fn check(&self) -> Result<(), String> {
        if !(1..=86_400).contains(&self.seconds) || self.warm_up > 3600 {
            return Err("seconds is 1 to 86400, warm_up 0 to 3600".to_owned());
        }
        if !(1..=1000).contains(&self.rounds) {
            return Err("rounds is 1 to 1000".to_owned());
        }
        let own = self.workloads.iter().filter_map(|of| of.clients.as_ref());
        for clients in own.chain([&self.clients]) {
            if clients.is_empty() || clients.iter().any(|n| !(1..=CLIENTS_MAX).contains(n)) {
                return Err(format!("clients are numbers from 1 to {CLIENTS_MAX}"));
            }
        }
        let servers = self.servers.iter().map(|server| server.name.clone());
        distinct("server", servers)?;
        distinct("disk", self.disks.iter().map(|disk| disk.name.clone()))?;
        distinct("workload", self.workloads.iter().map(WorkloadPlan::title))?;
        for disk in &self.disks {
            smb_load::rig::device::Kind::named(&disk.file_system)?;
            if let Some(name) = disk.vm.keys().find(|name| !is_vm_setting(name)) {
                return Err(format!("vm.{name}: only vm.dirty_* can be set"));
            }
        }
        if self.cells().len() > CELLS_MAX {
            return Err(format!("more than {CELLS_MAX} measurements"));
        }
        Ok(())
    }

    /// How long a step is.
    pub(super) fn step(&self) -> smb_load::Step {
        smb_load::Step {
            warm_up: Duration::from_secs(self.warm_up),
            length: Duration::from_secs(self.seconds),
        }
    }

    /// All measurements in their order.
    pub(super) fn cells(&self) -> Vec<Cell> {
        let mut cells = Vec::new();
        let count = self.servers.len();
        for round in 0..self.rounds {
            for (disk, of) in self.disks.iter().enumerate() {
                let mut step = round;
                for workload in &self.workloads {
                    for clients in workload.clients.as_ref().unwrap_or(&self.clients) {
                        for turn in 0..count {
                            let server = (step + turn) % count;
                            let name = self.servers.get(server).map_or("", |of| &of.name);
                            let title = workload.title();
                            let (disk_name, server_name) = (slug(&of.name), slug(name));
                            cells.push(Cell {
                                round,
                                disk,
                                server,
                                file: format!(
                                    "{round:03}-{disk_name}-{}-{clients:04}-{server_name}.json",
                                    slug(&title)
                                ),
                                title,
                                workload: workload.workload(),
                                clients: *clients,
                            });
                        }
                        step += 1;
                    }
                }
            }
        }
        cells
    }
}

/// Whether this is the name of a file `/proc/sys/vm/dirty_*`.
fn is_vm_setting(name: &str) -> bool {
    name.starts_with("dirty_") && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
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
        if name.is_empty() || !seen.insert(slug(&name)) {
            return Err(format!("{what} {name:?}: empty, or the same as another"));
        }
    }
    match seen.is_empty() {
        true => Err(format!("there is no {what}")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = r#"
seconds = 2
rounds = 2
clients = [1, 8]
[[server]]
name = "honor"
kind = "holdfast"
policy = "honor"
[[server]]
name = "Samba"
kind = "samba"
strict_sync = true
[[workload]]
kind = "netbench"
[[workload]]
kind = "jetstress"
name = "mail"
clients = [3]
[[disk]]
name = "old"
class = "ide-2003"
mount = "noatime"
vm = { dirty_ratio = 80 }
"#;

    #[test]
    fn every_step_is_taken_on_every_server_in_changing_order() {
        let plan = Plan::parse(PLAN).unwrap();
        let cells = plan.cells();
        assert_eq!(cells.len(), 2 * 3 * 2);
        let order = |of: &[Cell]| of.iter().map(|cell| cell.server).collect::<Vec<_>>();
        assert_eq!(order(&cells[..6]), [0, 1, 1, 0, 0, 1]);
        assert_eq!(order(&cells[6..]), [1, 0, 0, 1, 1, 0]);
        let files: BTreeSet<_> = cells.iter().map(|cell| &cell.file).collect();
        assert_eq!(files.len(), cells.len());
        assert_eq!(cells[0].file, "000-old-netbench-0001-honor.json");
    }

    #[test]
    fn plans_with_mistakes_are_refused() {
        for (from, to) in [
            ("seconds = 2", "seconds = 0"),
            ("rounds = 2", "rounds = 0"),
            ("clients = [1, 8]", "clients = []"),
            ("name = \"Samba\"", "name = \"Honor\""),
            ("kind = \"netbench\"", "kind = \"netbank\""),
            ("name = \"mail\"", "name = \"mail\"\npagez = 5"),
            ("dirty_ratio", "swappiness"),
            (
                "strict_sync = true",
                "strict_sync = true\nsink_always = true",
            ),
            ("\"ide-2003\"", "\"ide-2003\"\nfile_system = \"ntfs\""),
        ] {
            let text = PLAN.replacen(from, to, 1);
            assert_ne!(text, PLAN);
            assert!(Plan::parse(&text).is_err(), "{to}");
        }
    }

    #[test]
    fn the_plans_that_come_along_are_right() {
        for (text, minutes) in [(SHORT, 8), (HOUR, 55)] {
            let plan = Plan::parse(text).unwrap();
            // Beside the step itself, files are filled, pages verified and the disk is synced.
            let each = plan.seconds + plan.warm_up + 4;
            let seconds = plan.cells().len() as u64 * each;
            assert!(seconds < (minutes + 3) * 60, "{seconds} s");
        }
        let long = Plan::parse(LONG).unwrap();
        let clients: BTreeSet<_> = long.cells().iter().map(|cell| cell.clients).collect();
        for point in [1].into_iter().chain((4..=60).step_by(4)) {
            assert!(clients.contains(&point), "{point}");
        }
    }
}
