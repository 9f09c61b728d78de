//! The machine on which a client ran.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::rig::memory::kib;

/// The machine on which the client ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Machine {
    /// The processor, as Linux names it.
    pub cpu: String,
    /// Cores that the client could use.
    pub cores: usize,
    /// The release of its kernel.
    pub kernel: String,
    /// The load average of the last minute when the step began.
    pub load: String,
    /// Its memory, MiB.
    #[serde(default)]
    pub memory_mib: u64,
    /// How the frequency of the first core is governed; empty where nothing governs it.
    #[serde(default)]
    pub governor: String,
}

impl Machine {
    /// This machine, now; what cannot be read is empty.
    pub fn now() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpu = read("/proc/cpuinfo");
        let model = cpu.lines().find_map(|line| line.strip_prefix("model name"));
        let load = read("/proc/loadavg");
        Self {
            cpu: model.map_or_else(String::new, |m| m.trim_matches([' ', '\t', ':']).to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load: load.split(' ').next().unwrap_or_default().to_owned(),
            memory_mib: kib(&read("/proc/meminfo"), "MemTotal:").unwrap_or(0) / 1024,
            governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
                .trim()
                .to_owned(),
        }
    }
}
