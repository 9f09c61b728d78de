//! What the machine gives this process, and what of it the limits take that the configuration leaves
//! open.
//!
//! Reading is apart from deciding: the rules are plain functions of numbers.

use std::{fs, path::Path};

/// Part of the memory that buffers get.
const MEMORY_PART: u64 = 8;
/// At least: requests of 8 MiB must go on beside each other.
const BUFFERS_MIN: u64 = 64 << 20;
/// At most: a thousand connections with 2 MiB under way each.
const BUFFERS_MAX: u64 = 2 << 30;

/// Where control groups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Memory for buffers of all connections, in bytes: as configured, else a part of what there is.
pub(crate) fn buffer_memory(configured: Option<u64>) -> usize {
    let bytes = configured.unwrap_or_else(|| {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let of_group = memory_of_group(&groups, Path::new(CGROUPS));
        part_for_buffers(of_group.map_or(machine_memory(), |most| most.min(machine_memory())))
    });
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn part_for_buffers(memory: u64) -> u64 {
    (memory / MEMORY_PART).clamp(BUFFERS_MIN, BUFFERS_MAX)
}

/// As proc_meminfo(5) has it; where that cannot be read, as if there were little.
fn machine_memory() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|total| total.trim().strip_suffix("kB")?.trim().parse().ok());
    kib.map_or(0, |kib: u64| kib.saturating_mul(1024))
}

/// The least that the control group of this process, or one above it, allows (cgroups(7)):
/// `memory.max` of version 2, `memory.limit_in_bytes` of version 1.
fn memory_of_group(groups: &str, mounted: &Path) -> Option<u64> {
    let mut least = None;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let (top, file) = if controllers.is_empty() {
            (mounted.to_owned(), "memory.max")
        } else if controllers.split(',').any(|one| one == "memory") {
            (mounted.join("memory"), "memory.limit_in_bytes")
        } else {
            continue;
        };
        let below = path.trim_start_matches('/');
        for folder in Path::new(below).ancestors() {
            // "max" stands for no limit, and the topmost group has no such file.
            let text = fs::read_to_string(top.join(folder).join(file)).ok();
            let most = text.and_then(|text| text.trim().parse().ok());
            least = match (least, most) {
                (Some(least), Some(most)) => Some(std::cmp::min::<u64>(least, most)),
                (least, most) => least.or(most),
            };
        }
    }
    least
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
        put("memory/d/memory.limit_in_bytes", "4096\n");
        let both = "5:cpu:/x\n4:hugetlb,memory:/d\n0::/a/b\n";
        assert_eq!(memory_of_group(both, top.path()), Some(4096));
        assert_eq!(memory_of_group("nonsense", top.path()), None);
    }
}
