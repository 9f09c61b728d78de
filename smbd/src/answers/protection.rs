//! The storage under a share in the answers: file systems, devices, findings and the verdict.

use serde::{Deserialize, Serialize};

/// The storage under a share.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct ProtectionStatus {
    /// "protected", "unprotected" or "unknown".
    pub verdict: String,
    /// Whether the facts contradict each other or the administrator.
    pub contradictory: bool,
    /// The protection that the administrator asserts: "ups" or "plp".
    pub asserted: Option<String>,
    /// Caches, findings and verdict in one word each.
    pub words: String,
    /// File systems and devices, upper ones first.
    pub stack: String,
    /// A sentence for each finding.
    pub says: Vec<String>,
    /// The file system of the share, then those below it.
    pub file_systems: Vec<FileSystemStatus>,
    /// Layers and disks, upper ones first.
    pub devices: Vec<DeviceStatus>,
    /// The findings.
    pub findings: Vec<FindingStatus>,
}

/// A file system under a share.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FileSystemStatus {
    /// Its type, as the kernel names it.
    #[serde(rename = "type")]
    pub kind: String,
    /// Where it is mounted.
    pub mounted_on: String,
}

/// A device under a share, or a layer between.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DeviceStatus {
    /// Its name in `/sys/block`.
    pub name: String,
    /// "disk", "dm", "md", "loop" or "memory".
    pub kind: String,
    /// Whether other devices are below it.
    pub layered: bool,
    /// "write-through", "volatile-cache" or "cache-unknown".
    pub write_cache: String,
    /// Whether single writes can be made stable; null if that is not known.
    pub fua: Option<bool>,
    /// Whether it has moving parts; null if that is not known.
    pub rotational: Option<bool>,
}

/// A finding that concerns durability.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FindingStatus {
    /// Its name.
    pub finding: String,
    /// The device, mount point, file system or file.
    pub subject: String,
    /// The sentence.
    pub says: String,
    /// Whether a successful sync proves nothing because of it.
    pub breaks_syncs: bool,
}
