//! Walks from a path down to the disks: mounts, partitions, dm, md, loop files, btrfs's many
//! devices.
//!
//! Every step is counted: layers above each other, devices in all, each folder once, so that no
//! tree, however contrived, takes long. If a limit ends the walk, that is a finding ("cannot-see").

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use super::{
    Device, Finding, Machine,
    device::{self, Cache},
    finding::FindingKind,
    read::{self, Root, clean, value},
    system,
};
use crate::{
    answers::FileSystemStatus,
    host::mounts::{self, Mount},
};

/// Most layers above each other, file systems and devices together.
const LAYERS_MAX: usize = 24;
/// Most devices that are examined for one share.
const DEVICES_MAX: usize = 512;
/// Most file systems of btrfs, and device-mapper names, that are searched.
const SEARCHED_MAX: usize = 1_024;

/// The findings of a walk.
pub(super) struct Walk<'a> {
    root: &'a Root,
    mounts: &'a [Mount],
    guest: bool,
    /// Folders of devices: whether anything volatile is there or below. `None` while looking.
    seen: BTreeMap<PathBuf, Option<bool>>,
    seen_mounts: BTreeSet<u64>,
    /// Printable.
    pub(super) systems: Vec<FileSystemStatus>,
    pub(super) devices: Vec<Device>,
    pub(super) findings: BTreeSet<Finding>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(machine: &'a Machine) -> Self {
        Self {
            root: &machine.root,
            mounts: &machine.mounts,
            guest: machine.guest,
            seen: BTreeMap::new(),
            seen_mounts: BTreeSet::new(),
            systems: Vec::new(),
            devices: Vec::new(),
            findings: BTreeSet::new(),
        }
    }

    fn add(&mut self, kind: FindingKind, subject: impl Into<String>) {
        let subject = subject.into();
        self.findings.insert(Finding { kind, subject });
    }

    /// The file system that a path is on, and everything below.
    pub(super) fn path(&mut self, mount_id: Option<u64>, path: &Path, layers: usize) {
        let subject = clean(&path.to_string_lossy());
        let Some(mount) = mounts::find(self.mounts, mount_id, path).cloned() else {
            return self.add(FindingKind::CannotSee, subject);
        };
        if layers > LAYERS_MAX {
            return self.add(FindingKind::CannotSee, subject);
        }
        if !self.seen_mounts.insert(mount.id) {
            return;
        }
        let subject = clean(&mount.point.to_string_lossy());
        self.systems.push(FileSystemStatus {
            kind: clean(&mount.kind),
            mounted_on: subject.clone(),
        });
        let below = self.below(&mount);
        let name = below
            .first()
            .filter(|_| mount.device.0 != 0)
            .and_then(|dir| dir.file_name())
            .map(|name| name.to_string_lossy().into_owned());
        for kind in system::look(self.root, &mount, name.as_deref()) {
            self.add(kind, subject.clone());
        }
        if let Some(upper) = mount
            .value_of("upperdir")
            .filter(|_| mount.kind == "overlay")
        {
            return self.path(None, Path::new(upper), layers + 1);
        }
        let needs_device = mount.device.0 != 0 || mount.kind == "btrfs";
        if below.is_empty() && needs_device {
            return self.add(FindingKind::CannotSee, clean(&mount.source));
        }
        for dir in below {
            self.device(&dir, layers + 1);
        }
    }

    /// The folders of the devices that a file system is on.
    fn below(&self, mount: &Mount) -> Vec<PathBuf> {
        let (major, minor) = mount.device;
        if major != 0 {
            let link = self.root.sys.join(format!("dev/block/{major}:{minor}"));
            let own = self.root.resolve(&link).into_iter();
            // XFS may keep its log and its real-time data elsewhere.
            let others = ["logdev", "rtdev"].into_iter();
            let others = others.filter_map(|key| self.by_node(mount.value_of(key)?));
            return own.chain(others).collect();
        }
        if mount.kind == "btrfs" {
            return self.btrfs(&mount.source);
        }
        Vec::new()
    }

    /// The devices of the btrfs that has this one. Its mount shows a number that no device has.
    fn btrfs(&self, source: &str) -> Vec<PathBuf> {
        let Some(own) = self.by_node(source) else {
            return Vec::new();
        };
        let folder = self.root.sys.join("fs/btrfs");
        let ids = read::names(&folder).into_iter().flatten();
        for id in ids.take(SEARCHED_MAX) {
            let devices = folder.join(&id).join("devices");
            let names = read::names(&devices).unwrap_or_default();
            let dirs: Vec<PathBuf> = names
                .iter()
                .filter_map(|name| self.root.resolve(&devices.join(name)))
                .collect();
            // If one cannot be followed, the list is not used.
            if dirs.contains(&own) && dirs.len() == names.len() {
                return dirs;
            }
        }
        Vec::new()
    }

    /// The folder of a device by the name of its node, `/dev/sda1` or `/dev/mapper/x`.
    fn by_node(&self, node: &str) -> Option<PathBuf> {
        let class = self.root.sys.join("class/block");
        let name = Path::new(node).file_name()?.to_str()?;
        // sysfs writes `!` where a device's name has `/`.
        let plain = node.strip_prefix("/dev/")?.replace('/', "!");
        let direct = self.root.resolve(&class.join(plain));
        direct.or_else(|| {
            let mapped = read::names(&class)?
                .into_iter()
                .filter(|name| name.starts_with("dm-"))
                .take(SEARCHED_MAX)
                .find(|dm| value(&class.join(dm).join("dm/name")).as_deref() == Some(name))?;
            self.root.resolve(&class.join(mapped))
        })
    }

    /// Examines a device and everything below it. Returns true if anything there is reported as
    /// volatile.
    fn device(&mut self, dir: &Path, layers: usize) -> bool {
        let subject = read::shown_name(dir);
        if layers > LAYERS_MAX || self.seen.len() >= DEVICES_MAX {
            self.add(FindingKind::CannotSee, subject);
            return false;
        }
        if let Some(known) = self.seen.get(dir).copied() {
            if known.is_none() {
                // The device was found below itself.
                self.add(FindingKind::CannotSee, subject);
            }
            return known.unwrap_or(false);
        }
        self.seen.insert(dir.to_owned(), None);
        let volatile = match dir.parent() {
            // A partition has its disk's cache.
            Some(disk) if dir.join("partition").exists() => self.device(disk, layers + 1),
            _ => self.whole(dir, subject, layers),
        };
        self.seen.insert(dir.to_owned(), Some(volatile));
        volatile
    }

    fn whole(&mut self, dir: &Path, subject: String, layers: usize) -> bool {
        let mut device = device::read(dir);
        let slaves = dir.join("slaves");
        let names = read::names(&slaves).unwrap_or_default();
        device.layered |= !names.is_empty();
        let is_volatile = device.cache == Cache::WriteBack;
        let is_loop = device.kind == "loop";
        self.devices.push(device.clone());
        if is_loop {
            return self.loop_file(dir, subject, device.cache, layers);
        }
        if !device.layered {
            for kind in device::behind(self.root, dir, &device, self.guest) {
                self.add(kind, subject.clone());
            }
            return is_volatile;
        }
        if names.is_empty() {
            // A layer over nothing: dm's "zero" and "error" targets, an md that is not run.
            self.add(FindingKind::CannotSee, subject.clone());
        }
        self.stripes(dir, &subject);
        let mut below = false;
        for name in &names {
            below |= match self.root.resolve(&slaves.join(name)) {
                Some(slave) => self.device(&slave, layers + 1),
                None => {
                    self.add(FindingKind::CannotSee, clean(name));
                    false
                }
            };
        }
        if below && device.cache == Cache::WriteThrough {
            self.add(FindingKind::FlushNotPassedOn, subject);
        }
        below || is_volatile
    }

    /// Examines RAID with parity: without journal or partial parity log a stripe can tear.
    fn stripes(&mut self, dir: &Path, subject: &str) {
        let level = value(&dir.join("md/level")).unwrap_or_default();
        let policy = value(&dir.join("md/consistency_policy")).unwrap_or_default();
        let parity = ["raid4", "raid5", "raid6"].contains(&level.as_str());
        if parity && policy != "journal" && policy != "ppl" {
            self.add(FindingKind::WriteHole, subject);
        }
    }

    /// The file behind a loop device. Its cache is the host's memory.
    fn loop_file(&mut self, dir: &Path, subject: String, cache: Cache, layers: usize) -> bool {
        let Some(file) = value(&dir.join("loop/backing_file")) else {
            self.add(FindingKind::CannotSee, subject);
            return false;
        };
        self.add(FindingKind::Loop, subject.clone());
        // If the device reports "write through", it gets no flush, and so the file gets no fsync.
        let kind = match cache {
            Cache::WriteBack => FindingKind::VolatileCache,
            Cache::WriteThrough => FindingKind::FlushNotPassedOn,
            Cache::Unknown => FindingKind::CannotSee,
        };
        self.add(kind, subject);
        let file = file.strip_suffix(" (deleted)").unwrap_or(&file);
        self.path(None, Path::new(file), layers + 1);
        true
    }
}
