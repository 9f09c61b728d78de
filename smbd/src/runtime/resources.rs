//! The resources that the machine gives this process, and the limits that follow from them if the configuration sets
//! none.
//!
//! Reading is separate from deciding: the rules are plain functions of numbers.

use std::{fs, num::NonZeroU64, path::Path};

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::Error;
use crate::config::Config;

/// Part of the memory that buffers get.
const MEMORY_PART: u64 = 8;
/// The least memory for buffers: several requests of 8 MiB must be possible at once.
const BUFFERS_MIN: u64 = 64 << 20;
/// The most memory for buffers: a thousand connections with 2 MiB under way each.
const BUFFERS_MAX: u64 = 2 << 30;

/// Sessions of one connection if none are configured: one for so many bytes of the buffers' memory. A terminal server
/// logs all its users in on one connection, and a session takes some KiB.
const BUFFERS_OF_SESSION: usize = 4 << 20;
/// The least and the most sessions of one connection that follow from the memory.
const SESSIONS_MIN: usize = 64;
const SESSIONS_MAX: usize = 4_096;

/// Where control groups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";
/// The files with a group's limits of memory, in version 2 and in version 1. Above `memory.high` it is slowed down.
const GROUP_FILES: &[&str] = &["memory.max", "memory.high"];
const GROUP_FILES_V1: &[&str] = &["memory.limit_in_bytes"];

/// The part of the descriptors that the server keeps for itself, and its bounds: its own files, rings and sockets,
/// folders opened during a lookup, and files that are being moved between tables.
const OWN_PART: u64 = 16;
const OWN_MIN: u64 = 128;
const OWN_MAX: u64 = 4_096;
/// The most connections, as a part of the descriptors left after those and the configured ones.
const CONNECTIONS_PART: u64 = 8;
const CONNECTIONS_MAX: u64 = 10_000;
/// Dirty inodes are a part of all descriptors, and at most half of what is left.
const DIRTY_PART: u64 = 4;
const DIRTY_MAX: u64 = 262_144;
/// Opens get the rest, two descriptors each: an open that has written holds a second one for the later sync
/// ([`vfs::Volume::keeper`]), and it is not known in advance which will write.
const OF_OPEN: u64 = 2;
const OPENS_MAX: u64 = 262_144;
/// The server does not start with fewer connections, opens or dirty inodes than this.
const LEAST: u32 = 16;

/// The use of the descriptors that the process may have (RLIMIT_NOFILE): each connection holds one, each open up to two,
/// and a dirty inode as many as it counts ([`durability::Limits`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Descriptors {
    pub(crate) connections: u32,
    pub(crate) opens: u32,
    pub(crate) dirty_inodes: u32,
}

impl Descriptors {
    /// Takes the configured numbers, and divides the remaining descriptors among the others.
    pub(crate) fn of(config: &Config) -> Self {
        Self::share(config, descriptor_limit())
    }

    fn share(config: &Config, limit: u64) -> Self {
        let (limits, durability) = (&config.limits, &config.durability);
        let taken = needed([
            limits.connections.unwrap_or(0),
            limits.opens.unwrap_or(0),
            durability.dirty_inodes_max.unwrap_or(0),
        ]);
        let mut left = limit.saturating_sub(own(limit)).saturating_sub(taken);
        let mut take = |configured: Option<u32>, part: u64| {
            configured.unwrap_or_else(|| {
                left -= part.min(left);
                u32::try_from(part).unwrap_or(u32::MAX)
            })
        };
        let free = limit.saturating_sub(own(limit)).saturating_sub(taken);
        let dirty = config.dirty_inodes.map_or_else(
            || (limit / DIRTY_PART).min(free / 2).min(DIRTY_MAX),
            u64::from,
        );
        let dirty_inodes = take(durability.dirty_inodes_max, dirty);
        let connections = (free / CONNECTIONS_PART).min(CONNECTIONS_MAX);
        let connections = take(limits.connections, connections);
        let opens = (limits.opens).map_or((left / OF_OPEN).min(OPENS_MAX), u64::from);
        Self {
            connections,
            opens: u32::try_from(opens).unwrap_or(u32::MAX),
            dirty_inodes,
        }
    }

    /// Whether the process may have as many descriptors as the configuration needs.
    pub(crate) fn check(config: &Config) -> Result<Self, Error> {
        Self::check_within(config, descriptor_limit())
    }

    fn check_within(config: &Config, limit: u64) -> Result<Self, Error> {
        let this = Self::share(config, limit);
        let all = [this.connections, this.opens, this.dirty_inodes];
        let needed = needed(all) + own(limit);
        let limits = &config.limits;
        let derived = [
            limits.connections,
            limits.opens,
            config.durability.dirty_inodes_max,
        ]
        .iter()
        .zip(all)
        .any(|(configured, derived)| configured.is_none() && derived < LEAST);
        if needed <= limit && !derived {
            return Ok(this);
        }
        let restart = match (config.durability.dirty_inodes_max, config.dirty_inodes) {
            (None, Some(_)) => {
                ", or, if the server runs already, restart it, which gives it fewer dirty inodes"
            }
            _ => "",
        };
        fail!(
            "connections = {}, opens = {} (of two descriptors each), dirty_inodes_max = {} and {} \
             descriptors for the server itself do not fit into the {limit} that this process may have \
             (RLIMIT_NOFILE)\n  = raise the limit (`LimitNOFILE=` in the systemd unit, `ulimit -Hn` in a shell), or \
             make those smaller that are configured{restart}",
            this.connections,
            this.opens,
            this.dirty_inodes,
            own(limit)
        )
    }
}

/// The number of descriptors that so many connections, opens and inodes need.
fn needed([connections, opens, dirty_inodes]: [u32; 3]) -> u64 {
    u64::from(connections) + OF_OPEN * u64::from(opens) + u64::from(dirty_inodes)
}

fn own(limit: u64) -> u64 {
    (limit / OWN_PART).clamp(OWN_MIN, OWN_MAX)
}

/// The descriptors that the server keeps for itself.
pub(crate) fn own_descriptors() -> u64 {
    own(descriptor_limit())
}

/// RLIMIT_NOFILE as it is; it was raised at the start.
fn descriptor_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Raises the limit of descriptors, because every open of a client needs one.
pub(crate) fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "RLIMIT_NOFILE cannot be raised to its hard limit: there is room for fewer opens");
    }
}

/// The memory for buffers of all connections, in bytes: as configured, or else a part of the machine's memory.
pub(crate) fn buffer_memory(configured: Option<u64>) -> usize {
    let bytes = configured.unwrap_or_else(|| {
        let of_group = memory_of_group(&own_groups(), Path::new(CGROUPS));
        part_for_buffers(of_group.map_or(machine_memory(), |most| most.min(machine_memory())))
    });
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Sessions of one connection: as configured, or else in proportion to the memory for buffers, in bytes.
pub(crate) fn sessions_per_connection(configured: Option<u32>, buffer_memory: usize) -> usize {
    configured.map_or_else(
        || (buffer_memory / BUFFERS_OF_SESSION).clamp(SESSIONS_MIN, SESSIONS_MAX),
        |most| most as usize,
    )
}

fn part_for_buffers(memory: u64) -> u64 {
    (memory / MEMORY_PART).clamp(BUFFERS_MIN, BUFFERS_MAX)
}

/// The memory of proc_meminfo(5), or a small amount if that cannot be read.
fn machine_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|total| total.trim().strip_suffix("kB")?.trim().parse().ok());
    kib.map_or(0, |kib: u64| kib.saturating_mul(1024))
}

/// The cores whose time the CPU quota of this process allows, rounded up; `None` without a quota.
pub(crate) fn cpu_quota() -> Option<usize> {
    cpu_quota_of_group(&own_groups(), Path::new(CGROUPS))
}

/// The control groups of this process (cgroups(7)).
fn own_groups() -> String {
    fs::read_to_string("/proc/self/cgroup").unwrap_or_default()
}

/// The least memory that these control groups, or those above them, allow.
fn memory_of_group(groups: &str, mounted: &Path) -> Option<u64> {
    // "max" stands for no limit.
    let limit = |text: String| text.trim().parse().ok();
    let limits = [("", GROUP_FILES), ("memory", GROUP_FILES_V1)];
    let all = limits.map(|(controller, files)| group_values(groups, mounted, controller, files));
    all.into_iter().flatten().filter_map(limit).min()
}

/// The least quota of these control groups, or those above them, in cores. A value is a time and the period in which it
/// may be used up, or "max" and a period.
fn cpu_quota_of_group(groups: &str, mounted: &Path) -> Option<usize> {
    let cores = |text: String| {
        let (quota, period) = text.trim().split_once(' ')?;
        let period: NonZeroU64 = period.parse().ok()?;
        let cores = quota.parse::<u64>().ok()?.div_ceil(period.get());
        usize::try_from(cores.max(1)).ok()
    };
    let all = group_values(groups, mounted, "", &["cpu.max"]).into_iter();
    all.filter_map(cores).min()
}

/// The texts of these files of the control group of this controller of version 1, or of the group of version 2 if it
/// is empty, and of the groups above. The topmost group has no file of a limit.
fn group_values(groups: &str, mounted: &Path, controller: &str, files: &[&str]) -> Vec<String> {
    let path = groups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers
            .split(',')
            .any(|one| one == controller)
            .then_some(path)
    });
    let top = mounted.join(controller);
    let folders = path.map(|path| Path::new(path.trim_start_matches('/')).ancestors());
    let folders = folders.into_iter().flatten();
    let files = folders.flat_map(|folder| files.iter().map(move |file| folder.join(file)));
    files
        .filter_map(|file| fs::read_to_string(top.join(file)).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn buffers_get_a_part_of_the_memory_within_bounds() {
        assert_eq!(part_for_buffers(128 * MIB), 64 * MIB);
        assert_eq!(part_for_buffers(4096 * MIB), 512 * MIB);
        assert_eq!(part_for_buffers(1 << 40), 2048 * MIB);
        assert_eq!(buffer_memory(Some(77)), 77);
        assert!(machine_memory() > 64 * MIB);
    }

    #[test]
    fn sessions_of_a_connection_follow_the_memory() {
        let derived =
            |buffers: u64| sessions_per_connection(None, usize::try_from(buffers).unwrap());
        assert_eq!(derived(64 * MIB), 64);
        assert_eq!(derived(512 * MIB), 128);
        assert_eq!(derived(2048 * MIB), 512);
        assert_eq!(derived(1 << 40), 4096);
        assert_eq!(sessions_per_connection(Some(3), 1 << 30), 3);
    }

    fn config(text: &str) -> Config {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "[[share]]\nname = \"a\"\npath = {:?}\n{text}",
            folder.path()
        );
        let config = crate::config::parse(&text, Path::new("h.toml"));
        config.unwrap_or_else(|report| panic!("{report}"))
    }

    #[test]
    fn descriptors_are_shared_and_some_are_kept() {
        let shared = |limit| {
            let shared = Descriptors::check_within(&config(""), limit).unwrap();
            (shared.connections, shared.opens, shared.dirty_inodes)
        };
        assert_eq!(shared(600), (59, 131, 150));
        assert_eq!(shared(20_000), (2_343, 5_703, 5_000));
        assert_eq!(shared(1 << 20), (10_000, 262_144, 262_144));
        assert_eq!(shared(u64::MAX), (10_000, 262_144, 262_144));
    }

    #[test]
    fn what_is_configured_counts_and_must_fit() {
        let two = config("[limits]\nopens = 7500\n[durability]\ndirty_inodes_max = 1000\n");
        let shared = Descriptors::check_within(&two, 20_000).unwrap();
        assert_eq!((shared.opens, shared.dirty_inodes), (7_500, 1_000));
        assert_eq!(shared.connections, 343);
        for limit in [17_000, 16_000, 100] {
            let error = Descriptors::check_within(&two, limit);
            let error = error.unwrap_err().to_string();
            assert!(error.contains("opens = 7500"), "{error}");
            assert!(error.contains("LimitNOFILE="), "{error}");
        }
        Descriptors::check_within(&config(""), 200).unwrap_err();
        let few =
            config("[limits]\nopens = 16\nconnections = 4\n[durability]\ndirty_inodes_max = 16\n");
        Descriptors::check_within(&few, 200).unwrap();
    }

    /// A reload may bring other connections and opens, but the engine keeps its number of dirty inodes.
    #[test]
    fn dirty_inodes_are_those_of_the_start() {
        let started = Descriptors::check_within(&config(""), 20_000).unwrap();
        let kept = |text: &str| {
            let mut config = config(text);
            config.dirty_inodes = Some(started.dirty_inodes);
            Descriptors::check_within(&config, 20_000)
        };
        assert_eq!(kept("").unwrap(), started);
        let shared = kept("[limits]\nopens = 6000\n").unwrap();
        assert_eq!((shared.opens, shared.dirty_inodes), (6_000, 5_000));
        let more = "[limits]\nopens = 7000\n";
        let error = kept(more).unwrap_err().to_string();
        assert!(error.contains(", restart it, "), "{error}");
        let anew = Descriptors::check_within(&config(more), 20_000).unwrap();
        assert_eq!((anew.opens, anew.dirty_inodes), (7_000, 2_375));
    }

    #[test]
    fn the_least_limit_of_the_groups_above_counts() {
        let top = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = top.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("a/b/memory.max", "max\n");
        put("a/memory.max", "1048576\n");
        assert_eq!(memory_of_group("0::/a/b\n", top.path()), Some(MIB));
        assert_eq!(memory_of_group("0::/c\n", top.path()), None);
        put("c/memory.max", "1048576\n");
        put("c/memory.high", "524288\n");
        assert_eq!(memory_of_group("0::/c\n", top.path()), Some(MIB / 2));
        put("memory/d/memory.limit_in_bytes", "4096\n");
        let both = "5:cpu:/x\n4:hugetlb,memory:/d\n0::/a/b\n";
        assert_eq!(memory_of_group(both, top.path()), Some(4096));
        assert_eq!(memory_of_group("nonsense", top.path()), None);
    }

    #[test]
    fn the_least_cpu_quota_of_the_groups_above_counts() {
        let top = tempfile::tempdir().unwrap();
        let quota = |text: &str| {
            fs::write(top.path().join("a/b/cpu.max"), text).unwrap();
            cpu_quota_of_group("1:cpu:/x\n0::/a/b\n", top.path())
        };
        fs::create_dir_all(top.path().join("a/b")).unwrap();
        for none in ["max 100000\n", "", "1", "100 0\n", "-1 100000\n"] {
            assert_eq!(quota(none), None, "{none}");
        }
        assert_eq!(quota("200000 100000\n"), Some(2));
        assert_eq!(quota("150000 100000\n"), Some(2));
        assert_eq!(quota("1000 100000\n"), Some(1));
        // Of the group that a container sees as the topmost one.
        fs::write(top.path().join("cpu.max"), "300000 100000\n").unwrap();
        assert_eq!(quota("max 100000\n"), Some(3));
        assert_eq!(quota("800000 100000\n"), Some(3));
        assert_eq!(quota("50000 50000\n"), Some(1));
        assert_eq!(cpu_quota_of_group("", top.path()), None);
    }
}
