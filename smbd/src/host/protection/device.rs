//! Examines one device of `/sys/dev/block`: its cache, and the kind of hardware behind it.
//!
//! `queue/write_cache` is the kernel's assumption; if the drive reports a value itself, that is read as well.
//! Everything is read from the folder of the whole disk; `walk.rs` walks between devices.

use std::path::Path;

use super::{
    finding::FindingKind,
    read::{self, Root, clean, value},
};

/// The write cache of a device, by the device's own report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cache {
    /// Accepted writes are stable, by the device's own report.
    WriteThrough,
    /// Volatile: stable only after a flush.
    WriteBack,
    /// The device does not report it.
    Unknown,
}

/// A device under a share, or a layer between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// The device's name in `/sys/block`, without characters that cannot be printed.
    pub name: String,
    /// "disk", "dm", "md", "loop" or "memory".
    pub kind: &'static str,
    /// Other devices are below it.
    pub layered: bool,
    /// Its write cache.
    pub cache: Cache,
    /// Single writes can be made stable (FUA).
    pub fua: Option<bool>,
    /// It has moving parts.
    pub rotational: Option<bool>,
}

impl Cache {
    /// The word in logs, metrics and JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::WriteThrough => "write-through",
            Self::WriteBack => "volatile-cache",
            Self::Unknown => "cache-unknown",
        }
    }
}

/// Drivers of controllers with a cache of their own.
const CONTROLLERS: &str = "megaraid_sas megaraid hpsa smartpqi aacraid arcmsr 3w-9xxx 3w-sas";
/// Names that disks of hypervisors report.
const MADE_UP: [&str; 12] = [
    "qemu",
    "vmware",
    "vbox",
    "virtual disk",
    "msft",
    "virtio",
    "amazon elastic block store",
    "amazon ec2 nvme",
    "nvme_card-pd",
    "persistentdisk",
    "blockvolume",
    "kvm",
];

/// Reads a whole disk's or layer's own folder.
pub(super) fn read(dir: &Path) -> Device {
    let name = read::shown_name(dir);
    let flag = |file: &str| match value(&dir.join(file)).as_deref() {
        Some("0") => Some(false),
        Some("1") => Some(true),
        _ => None,
    };
    let has = |file: &str| dir.join(file).exists();
    let kind = match &name {
        _ if has("dm") || name.starts_with("dm-") => "dm",
        _ if has("md") => "md",
        _ if has("loop") || name.starts_with("loop") => "loop",
        _ if is_memory(&name) => "memory",
        _ => "disk",
    };
    Device {
        kind,
        layered: matches!(kind, "dm" | "md" | "loop"),
        cache: match value(&dir.join("queue/write_cache")).as_deref() {
            Some("write through") => Cache::WriteThrough,
            Some("write back") => Cache::WriteBack,
            _ => Cache::Unknown,
        },
        fua: flag("queue/fua"),
        rotational: flag("queue/rotational"),
        name,
    }
}

fn is_memory(name: &str) -> bool {
    numbered(name, "ram") || numbered(name, "zram") || numbered(name, "nullb")
}

/// The hardware behind a device that has no devices below it.
pub(super) fn behind(root: &Root, dir: &Path, device: &Device, guest: bool) -> Vec<FindingKind> {
    let mut found = Vec::new();
    if device.kind == "memory" {
        found.push(FindingKind::Memory);
        return found;
    }
    match device.cache {
        Cache::WriteBack => found.push(FindingKind::VolatileCache),
        Cache::WriteThrough => {
            if drive_says_write_back(dir) {
                found.push(FindingKind::CacheContradicts);
            }
        }
        Cache::Unknown => found.push(FindingKind::CannotSee),
    }
    let parts: Vec<&str> = dir
        .strip_prefix(&root.sys)
        .unwrap_or(dir)
        .components()
        .filter_map(|part| part.as_os_str().to_str())
        .collect();
    if is_of_network(dir, &device.name, &parts) {
        found.push(FindingKind::NetworkDevice);
    }
    if guest || is_made_up(dir, &parts) {
        found.push(FindingKind::Virtual);
    }
    if parts.iter().any(|part| numbered(part, "usb")) {
        found.push(FindingKind::UsbBridge);
    }
    if driver(dir).is_some_and(|driver| CONTROLLERS.split(' ').any(|one| one == driver)) {
        found.push(FindingKind::Controller);
    }
    found
}

fn numbered(part: &str, prefix: &str) -> bool {
    part.strip_prefix(prefix)
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Whether a SCSI or ATA drive itself reports a volatile cache; the kernel's value in the queue can be overwritten.
fn drive_says_write_back(dir: &Path) -> bool {
    let folder = dir.join("device/scsi_disk");
    let names = read::names(&folder).unwrap_or_default();
    names.iter().take(4).any(|name| {
        // "write through", "none", "write back", "write back, no read (daft)"
        value(&folder.join(name).join("cache_type")).is_some_and(|it| it.starts_with("write back"))
    })
}

fn is_of_network(dir: &Path, name: &str, parts: &[&str]) -> bool {
    let by_name = ["nbd", "rbd", "drbd"];
    // NVMe over fabrics has another transport; a PCIe disk has "pcie".
    let fabric = ["device/transport", "device/device/transport"]
        .iter()
        .find_map(|file| value(&dir.join(file)));
    by_name.iter().any(|prefix| numbered(name, prefix))
        || fabric.is_some_and(|transport| transport != "pcie")
        // iSCSI, Fibre Channel.
        || parts.iter().any(|part| numbered(part, "session") || part.starts_with("rport-"))
}

fn is_made_up(dir: &Path, parts: &[&str]) -> bool {
    let bus = parts.iter().any(|part| {
        numbered(part, "virtio") || part.starts_with("vbd-") || part.starts_with("VMBUS:")
    });
    let of = |file: &str| value(&dir.join("device").join(file)).unwrap_or_default();
    let said = format!("{} {}", of("vendor"), of("model")).to_lowercase();
    bus || MADE_UP.iter().any(|word| said.contains(word))
}

/// The driver of the SCSI host that a device belongs to.
fn driver(dir: &Path) -> Option<String> {
    let host = dir.ancestors().find(|above| {
        let name = above.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| numbered(name, "host"))
    })?;
    let path = host.join("scsi_host").join(host.file_name()?);
    value(&path.join("proc_name")).map(|name| clean(&name))
}

/// Whether this whole machine is a guest, as far as it knows.
pub(super) fn is_guest(root: &Root) -> bool {
    // On x86 the flags say so; elsewhere the firmware's tables do.
    let flags = read::table(&root.proc.join("cpuinfo")).unwrap_or_default();
    let cpu = flags
        .lines()
        .find(|line| line.starts_with("flags"))
        .is_some_and(|line| line.split_whitespace().any(|word| word == "hypervisor"));
    let dmi = |file: &str| value(&root.sys.join("class/dmi/id").join(file)).unwrap_or_default();
    let firmware = format!("{} {}", dmi("sys_vendor"), dmi("product_name")).to_lowercase();
    let words = ["qemu", "kvm", "vmware", "innotek", "xen", "virtual machine"];
    cpu || words.iter().any(|word| firmware.contains(word))
        || root.sys.join("hypervisor/type").exists()
}
