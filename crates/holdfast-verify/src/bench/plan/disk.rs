//! The disks of a plan.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};
use smb_load::rig::{device::Kind, slow::Speed};

/// The disk below the servers that are started.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::bench) struct DiskPlan {
    pub(in crate::bench) name: String,
    pub(in crate::bench) class: DiskClass,
    /// Not for a folder.
    #[serde(default)]
    pub(in crate::bench) file_system: Kind,
    /// Mount options; the defaults, unless given.
    #[serde(default)]
    pub(in crate::bench) mount: String,
    /// The folder; that of the results, unless given.
    pub(in crate::bench) folder: Option<PathBuf>,
    /// The least time that a flush of its cache takes, instead of its class's speed.
    flush_ms: Option<u64>,
    /// Values of `/proc/sys/vm/dirty_*` while this disk is measured.
    #[serde(default)]
    pub(in crate::bench) vm: BTreeMap<String, u64>,
}

/// How fast a disk is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::bench) enum DiskClass {
    /// A folder of a file system that is there.
    #[default]
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
    /// Its name in plans and reports.
    pub(in crate::bench) fn name(self) -> String {
        let name = toml::Value::try_from(self).ok();
        let name = name.as_ref().and_then(toml::Value::as_str);
        name.unwrap_or_default().to_owned()
    }

    /// The best that a disk of this class does; models, not measurements of a certain disk.
    const fn speed(self) -> Option<Speed> {
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

impl DiskPlan {
    /// The best that it does; nothing if it is as fast as what is below it.
    pub(in crate::bench) fn speed(&self) -> Option<Speed> {
        let flush_ms = self.flush_ms.map(Duration::from_millis);
        flush_ms.map(Speed::of_flushes).or(self.class.speed())
    }

    pub(super) fn check(&self) -> Result<(), String> {
        // A key that is not heeded would stand in the results as if it were.
        let ignored = match self.class {
            DiskClass::Folder if self.flush_ms.is_some() => Some("a folder is as fast as it is"),
            DiskClass::Folder if !self.mount.is_empty() => Some("a folder is mounted already"),
            DiskClass::Folder => None,
            _ if self.folder.is_some() => Some("only the class folder has a folder"),
            _ => None,
        };
        if let Some(why) = ignored {
            return Err(format!("disk {:?}: {why}", self.name));
        }
        match self.vm.keys().find(|name| !is_vm_setting(name)) {
            Some(name) => Err(format!("vm.{name}: only vm.dirty_* can be set")),
            None => Ok(()),
        }
    }
}

pub(super) fn one_folder() -> Vec<DiskPlan> {
    vec![DiskPlan {
        name: "folder".to_owned(),
        ..DiskPlan::default()
    }]
}

/// Whether this is the name of a file `/proc/sys/vm/dirty_*`.
fn is_vm_setting(name: &str) -> bool {
    name.starts_with("dirty_") && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
}
