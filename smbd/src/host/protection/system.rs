//! The journal and the barriers of one mounted file system.
//!
//! Options are read from the mount table, and for ext4 also from `/proc/fs` and `/sys/fs`, since the table leaves
//! out defaults. `walk.rs` finds the devices below.

use super::{
    finding::FindingKind,
    read::{self, Root, value},
};
use crate::host::mounts::Mount;

/// File systems of other machines.
const NETWORK: &str = "\
    nfs nfs4 cifs smb3 smbfs 9p ceph afs coda glusterfs lustre beegfs orangefs virtiofs vboxsf";
/// File systems in memory.
const MEMORY: [&str; 4] = ["tmpfs", "ramfs", "devtmpfs", "hugetlbfs"];
/// File systems whose syncs were examined (by measurement, and by their documentation).
const KNOWN: [&str; 7] = ["ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "jfs"];
/// File systems without a journal.
const PLAIN: [&str; 6] = ["ext2", "vfat", "msdos", "exfat", "minix", "ufs"];
/// Options that keep flushes from the devices.
const NO_BARRIER: [&str; 4] = [
    "nobarrier",
    "barrier=0",
    "barrier=none",
    "fsync_mode=nobarrier",
];

/// The findings about a mount. `device` is the name of its block device, if it has one.
pub(super) fn look(root: &Root, mount: &Mount, device: Option<&str>) -> Vec<FindingKind> {
    let kind = mount.kind.as_str();
    let mut found = Vec::new();
    if NETWORK.split(' ').any(|one| one == kind) {
        found.push(FindingKind::NetworkFileSystem);
    } else if kind.starts_with("fuse") {
        found.push(FindingKind::Fuse);
    } else if MEMORY.contains(&kind) {
        found.push(FindingKind::Memory);
    } else if kind == "overlay" {
        found.push(FindingKind::Overlay);
        // With this option overlayfs answers each sync at once, and nothing is written for it.
        if mount.has("volatile") {
            found.push(FindingKind::SyncIgnored);
        }
    } else if PLAIN.contains(&kind) {
        found.push(FindingKind::NoJournal);
    } else if !KNOWN.contains(&kind) {
        found.push(FindingKind::FileSystemNotKnown);
    }
    let more = match device {
        Some(device) if matches!(kind, "ext3" | "ext4") => ext4(root, mount, device, &mut found),
        _ => Vec::new(),
    };
    let has = |option: &str| mount.has(option) || more.iter().any(|one| one == option);
    if has("data=writeback") {
        found.push(FindingKind::DataWriteback);
    }
    if NO_BARRIER.iter().any(|option| has(option)) {
        found.push(FindingKind::NoBarrier);
    }
    if kind == "btrfs" && has("notreelog") {
        found.push(FindingKind::NoTreeLog);
    }
    // After a power failure everything is as it was at the last checkpoint, whatever was synced since.
    let checkpoint = mount.value_of("checkpoint").unwrap_or_default();
    if kind == "f2fs" && checkpoint.starts_with("disable") {
        found.push(FindingKind::SyncIgnored);
    }
    found
}

/// The journal of ext3 and ext4, and all their options, defaults included.
fn ext4(root: &Root, mount: &Mount, device: &str, found: &mut Vec<FindingKind>) -> Vec<String> {
    let options = value(&root.proc.join("fs/ext4").join(device).join("options"));
    let options: Vec<String> = options
        .iter()
        .flat_map(|text| text.lines())
        .map(|line| line.trim().to_owned())
        .collect();
    let task = value(&root.sys.join("fs/ext4").join(device).join("journal_task"));
    // An internal journal is "NAME-8", after its inode.
    let journals = read::names(&root.proc.join("fs/jbd2"));
    let ours = format!("{device}-");
    let internal = journals.map(|names| names.iter().any(|name| name.starts_with(&ours)));
    // Shown only where there is a journal.
    let mode = mount.value_of("data").is_some() || options.iter().any(|o| o.starts_with("data="));
    let journal = match (task.as_deref(), internal) {
        (Some("<none>"), _) => Some(false),
        (_, Some(true)) | (Some(_), _) => Some(true),
        (None, _) if mode => Some(true),
        (None, Some(false)) if !options.is_empty() => Some(false),
        (None, _) => None,
    };
    let skipped = mount.has("noload") || mount.has("norecovery");
    match journal {
        Some(false) => found.push(FindingKind::NoJournal),
        Some(true) if skipped => found.push(FindingKind::NoJournal),
        Some(true) if internal == Some(false) => found.push(FindingKind::ExternalJournal),
        Some(true) => {}
        None => found.push(FindingKind::CannotSee),
    }
    options
}
