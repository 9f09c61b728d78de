//! Assesses the storage between a share and a power failure: file systems, layers and devices, with a verdict:
//! protected, unprotected or unknown. Never "safe".
//!
//! "Protected" means that everything the kernel has handed to the devices under the share survives a power failure,
//! as each device reports, or as the administrator asserts (`protection`). "Unprotected" is no error: a disk with a
//! volatile cache makes data stable at every flush. It means that only flushed data are stable, and names the findings
//! for which not even a flush is (see [`FindingKind::breaks_syncs`]). "Unknown" covers network, FUSE, hypervisor.
//!
//! Reads `/proc/self/mountinfo` and `/sys`, at a [`Root`] that tests replace; never a device, and no file of a
//! share. It cannot detect a battery behind a RAID controller, the cache mode of a hypervisor, or drives that report
//! wrong values. `holdfast verify-flush` with the plug pulled finds those.

mod device;
mod finding;
mod power;
mod read;
mod system;
mod walk;
mod watch;
mod words;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use rustix::fs::CWD;

use super::mounts::{self, Mount};
use crate::{answers::FileSystemStatus, config::Protection};

pub use device::{Cache, Device};
pub use finding::{Finding, FindingKind, Weight};
pub use power::Power;
pub use read::Root;
pub(crate) use watch::{AGAIN, LatestAssessments, broken_promise, of_config};
pub(crate) use words::metrics;

/// Whether data that the devices have accepted survive a power failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// They survive, as every device reports or the administrator asserts.
    Protected,
    /// Something is known to be volatile, or to keep syncs from the disk.
    Unprotected,
    /// It depends on something that cannot be detected from here.
    Unknown,
}

/// The facts about this machine that hold for every share, read once.
#[derive(Debug, Clone)]
pub struct Machine {
    root: Root,
    mounts: Vec<Mount>,
    guest: bool,
    power: Power,
}

/// A folder to assess.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AssessedFolder {
    /// Absolute, without links.
    pub path: PathBuf,
    /// The id of its mount, where the kernel reports it (since 5.8).
    pub mount_id: Option<u64>,
}

/// The findings under one share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assessment {
    /// The administrator's assertion.
    pub asserted: Protection,
    /// The file system of the share, then those below it.
    pub file_systems: Vec<FileSystemStatus>,
    /// Layers and disks, upper ones first.
    pub devices: Vec<Device>,
    /// The findings that affect the verdict, and those worth knowing.
    pub findings: BTreeSet<Finding>,
}

impl AssessedFolder {
    /// A folder of this machine. It may wait for the file system of a server that does not answer.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        Self {
            mount_id: mounts::id_of(CWD, &path),
            path,
        }
    }
}

impl Machine {
    /// Reads the mount table, the kind of machine and its power source.
    #[must_use]
    pub fn read(root: Root) -> Self {
        let table = read::table(&root.proc.join("self/mountinfo"));
        Self {
            mounts: mounts::parse(table.unwrap_or_default().as_bytes()),
            guest: device::is_guest(&root),
            power: Power::read(&root),
            root,
        }
    }

    /// Assesses the storage below a folder.
    #[must_use]
    pub fn assess(&self, place: &AssessedFolder, asserted: Protection) -> Assessment {
        let mut walk = walk::Walk::new(self);
        walk.path(place.mount_id, &place.path, 0);
        let mut findings = walk.findings;
        findings.extend(self.power.supply().map(|supply| Finding {
            kind: FindingKind::OnBattery,
            subject: supply.to_owned(),
        }));
        Assessment {
            asserted,
            file_systems: walk.systems,
            devices: walk.devices,
            findings,
        }
    }
}

impl Assessment {
    fn has(&self, kinds: &[FindingKind]) -> bool {
        self.findings.iter().any(|one| kinds.contains(&one.kind))
    }

    /// The verdict.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if self.asserted != Protection::None {
            // The assertion concerns this machine's power and drives. Memory is lost even when a UPS shuts the host
            // down in order, and other machines are not covered.
            let elsewhere = [FindingKind::NetworkFileSystem, FindingKind::NetworkDevice];
            return match self {
                _ if self.has(&[FindingKind::Memory]) => Verdict::Unprotected,
                _ if self.has(&elsewhere) => Verdict::Unknown,
                _ => Verdict::Protected,
            };
        }
        match self.findings.iter().map(|one| one.kind.weight()).max() {
            Some(Weight::Unprotected) => Verdict::Unprotected,
            Some(Weight::Unknown) => Verdict::Unknown,
            _ if self.devices.iter().all(|device| device.layered) => Verdict::Unknown,
            _ => Verdict::Protected,
        }
    }

    /// Whether the parts contradict each other: syncs that do not reach the disk, an asserted
    /// protection that does not fit the findings, or a UPS that runs down.
    #[must_use]
    pub fn is_contradictory(&self) -> bool {
        let asserted = self.asserted != Protection::None;
        let syncs = [
            FindingKind::FlushNotPassedOn,
            FindingKind::CacheContradicts,
            FindingKind::NoBarrier,
            FindingKind::SyncIgnored,
        ];
        self.has(&syncs)
            || asserted && self.verdict() != Verdict::Protected
            || asserted && self.has(&[FindingKind::OnBattery])
    }

    /// The finding for which a successful sync proves nothing: only the promise of `treat-host-as-stable-storage` can
    /// then be kept here.
    #[must_use]
    pub fn broken_by(&self) -> Option<&Finding> {
        if self.verdict() == Verdict::Protected {
            return None;
        }
        // A file system mounted without barriers loses nothing where no device has a volatile cache.
        let harmless = self.cache() == Cache::WriteThrough;
        let breaks = |one: &&Finding| {
            one.kind.breaks_syncs() && !(harmless && one.kind == FindingKind::NoBarrier)
        };
        self.findings.iter().find(breaks)
    }

    /// Whether the log reports it as a warning.
    #[must_use]
    pub fn is_alarming(&self) -> bool {
        self.verdict() == Verdict::Unprotected || self.is_contradictory()
    }
}

#[cfg(test)]
mod tests;
