//! A control group (cgroup v2) round a server's process tree.
//!
//! The kernel counts the CPU time of every thread of the group, past ones and the workers of
//! io_uring rings included, in microseconds; `/proc` counts in ticks and loses the time of
//! processes that end between two looks. No controller has to be enabled: `cpu.stat` of a
//! group always has the three base figures.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread::sleep,
    time::Duration,
};

use super::{Failure, device::mounted, left_behind};

/// How often a group is tried to be removed.
const REMOVALS_MAX: u32 = 100;

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A group of this program's making; goes with this value.
pub struct Group(PathBuf);

impl Group {
    /// A new, empty group below this program's own; `None` where that is not to be had.
    pub fn make() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/mounts").ok()?;
        let (_, mount, ..) = mounted(&mounts).find(|(_, _, system, _)| *system == "cgroup2")?;
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("holdfast-compare-{}-{number}", std::process::id());
        let this = Self(mount.join(own).join(name));
        fs::create_dir(&this.0).ok()?;
        usage(&this.0).is_some().then_some(this)
    }

    /// The same command, begun inside the group.
    pub fn around(&self, command: &Command) -> Command {
        let mut inside = Command::new("/bin/sh");
        inside
            .args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
            .arg(self.0.join("cgroup.procs"))
            .arg(command.get_program());
        behind(inside, command)
    }

    /// CPU seconds of all that ever ran in it.
    pub fn seconds(&self) -> Result<f64, Failure> {
        usage(&self.0).ok_or_else(|| format!("{}: no CPU time", self.0.display()).into())
    }
}

/// The first command with the arguments, environment and folder of the second one, whose program it runs.
pub(super) fn behind(mut first: Command, second: &Command) -> Command {
    first.args(second.get_args());
    for (name, value) in second.get_envs() {
        match value {
            Some(value) => first.env(name, value),
            None => first.env_remove(name),
        };
    }
    if let Some(folder) = second.get_current_dir() {
        first.current_dir(folder);
    }
    first
}

fn usage(folder: &Path) -> Option<f64> {
    let text = fs::read_to_string(folder.join("cpu.stat")).ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("usage_usec "))?;
    Some(line.parse::<u64>().ok()? as f64 / 1e6)
}

impl Drop for Group {
    fn drop(&mut self) {
        // The last process may still be on its way out; one that stays is ended (Linux 5.14 and later).
        for turn in 0..REMOVALS_MAX {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            if turn == REMOVALS_MAX / 2 {
                let _ = fs::write(self.0.join("cgroup.kill"), "1");
            }
            sleep(Duration::from_millis(20));
        }
        left_behind(self.0.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A group, where one can be made: only root may, and not everywhere.
    fn made() -> Option<Group> {
        let group = Group::make();
        if group.is_none() {
            eprintln!("missing: a control group that this user may make");
        }
        group
    }

    #[test]
    fn work_of_children_inside_is_counted() {
        let Some(group) = made() else { return };
        let mut command = Command::new("sh");
        command.args([
            "-c",
            "i=0; while [ $i -lt $N ]; do i=$((i+1)); done; exit 3",
        ]);
        command.env("N", "20000");
        let before = group.seconds().unwrap();
        let status = group.around(&command).status().unwrap();
        assert_eq!(status.code(), Some(3));
        assert!(group.seconds().unwrap() > before);
    }

    #[test]
    fn a_process_that_stays_is_ended_with_its_group() {
        let Some(group) = made() else { return };
        if !group.0.join("cgroup.kill").exists() {
            eprintln!("missing: cgroup.kill (Linux 5.14)");
            return;
        }
        let mut command = Command::new("sleep");
        command.arg("600");
        let mut stays = group.around(&command).spawn().unwrap();
        // Before it has joined, the group is empty and simply goes.
        let members = group.0.join("cgroup.procs");
        let has_joined = (0..1000).any(|_| {
            sleep(Duration::from_millis(10));
            fs::read_to_string(&members).is_ok_and(|members| !members.is_empty())
        });
        assert!(has_joined);
        drop(group);
        assert!(!stays.wait().unwrap().success());
    }
}
