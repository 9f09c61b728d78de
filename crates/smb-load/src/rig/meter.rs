//! CPU time of a server with all its descendants.
//!
//! A server of this program's making has a control group (`group.rs`) where there are such; else, and for a peer that
//! runs already, `/proc` has to do. There a process counts with its threads (the kernel's workers of an io_uring ring
//! among them) and with the children it has waited for, so a tree's total never goes back when a child ends.
//! The resolution is the kernel's tick, mostly 10 ms: measure spans of seconds.

use std::{collections::BTreeMap, fs};

use super::{Failure, group::Group};

/// Where a server's CPU time is read.
pub enum Meter {
    Group(Group),
    /// The tree below this process, in `/proc`.
    Tree(u32),
    /// A peer whose process nobody named.
    Nothing,
}

impl Meter {
    /// CPU seconds so far; not a number where they cannot be known.
    pub fn seconds(&self) -> Result<f64, Failure> {
        match self {
            Self::Group(group) => group.seconds(),
            Self::Tree(root) => of_tree(*root),
            Self::Nothing => Ok(f64::NAN),
        }
    }
}

/// Processes looked at; more than this machine will have.
const PROCESSES_MAX: usize = 1 << 16;

/// CPU time of a process in ticks, user and system.
pub(crate) struct Stat {
    parent: u32,
    /// The time of the process itself, all its threads included.
    pub(crate) own: u64,
    /// The time of the children it has waited for, and of theirs.
    pub(crate) ended: u64,
}

pub(crate) fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain anything, but ends with the last parenthesis.
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // proc_pid_stat(5): 3 is state, 4 ppid, 14 to 17 utime, stime, cutime, cstime.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    Some(Stat {
        parent: u32::try_from(field(4)?).ok()?,
        own: field(14)? + field(15)?,
        ended: field(16)? + field(17)?,
    })
}

fn all() -> BTreeMap<u32, Stat> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return BTreeMap::new();
    };
    entries
        .flatten()
        .take(PROCESSES_MAX)
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, stat(pid)?)))
        .collect()
}

/// A process and its descendants, the root first.
pub fn tree(root: u32) -> Vec<u32> {
    let all = all();
    let mut found = vec![root];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        next += 1;
        found.extend(
            all.iter()
                .filter(|(_, s)| s.parent == parent)
                .map(|(p, _)| *p),
        );
    }
    found
}

pub(crate) fn seconds(ticks: u64) -> f64 {
    let per_second = rustix::param::clock_ticks_per_second();
    ticks as f64 / per_second as f64
}

/// CPU seconds of a process, its threads and its descendants, past ones included.
fn of_tree(root: u32) -> Result<f64, Failure> {
    let all = all();
    if !all.contains_key(&root) {
        return Err("the server is gone".into());
    }
    let ticks = tree(root)
        .iter()
        .filter_map(|pid| all.get(pid))
        .map(|stat| stat.own + stat.ended)
        .sum();
    Ok(seconds(ticks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_of_this_process_and_of_its_children_is_counted() {
        let before = of_tree(std::process::id()).unwrap();
        let status = std::process::Command::new("sh")
            .args(["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"])
            .status()
            .unwrap();
        assert!(status.success());
        let after = of_tree(std::process::id()).unwrap();
        assert!(after > before, "{before} {after}");
        assert!(tree(std::process::id()).contains(&std::process::id()));
    }
}
