//! On what machine, when, and with which programs a comparison ran.

use std::{fs, process::Command};

use serde::Serialize;

use super::servers::Server;
use crate::{Failure, bed::Bed};

/// All that a reader has to know besides the numbers.
#[derive(Serialize)]
pub(crate) struct About {
    pub(crate) date: String,
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) memory_mib: u64,
    pub(crate) kernel: String,
    pub(crate) file_system: String,
    pub(crate) samba: String,
    pub(crate) holdfast: String,
    /// Of the tree that the clients were built from.
    pub(crate) commit: String,
    /// `false`: rates and latencies are those of clients in a debug build.
    pub(crate) optimized_clients: bool,
    /// Of 1, 5 and 15 minutes, before and after.
    pub(crate) load_before: String,
    pub(crate) load_after: String,
    pub(crate) quick: bool,
    pub(crate) rounds: usize,
    /// Of each server, how its CPU time was read.
    pub(crate) cpu: Vec<(String, String)>,
    /// Runs that gave no numbers, and why.
    pub(crate) failures: Vec<String>,
}

fn read(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}

/// The load average, without what processes there are.
fn load() -> String {
    let text = read("/proc/loadavg");
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// The output of a command, or nothing.
fn said(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.unwrap_or_default()
}

impl About {
    pub(crate) fn of(bed: &Bed) -> Result<Self, Failure> {
        let cpu = read("/proc/cpuinfo");
        let processor = cpu.lines().find_map(|l| l.strip_prefix("model name"));
        let memory = read("/proc/meminfo");
        let kib = memory.lines().find_map(|line| {
            let rest = line.strip_prefix("MemTotal:")?.trim();
            rest.strip_suffix("kB")?.trim().parse::<u64>().ok()
        });
        let binary = bed.binary.to_str().ok_or("a path that is not UTF-8")?;
        let scratch = bed.path().to_str().ok_or("a path that is not UTF-8")?;
        let source = env!("CARGO_MANIFEST_DIR");
        Ok(Self {
            date: said("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
            processor: processor
                .map(|name| name.trim_start_matches([' ', '\t', ':']).to_owned())
                .unwrap_or_default(),
            cores: std::thread::available_parallelism()?.get(),
            memory_mib: kib.unwrap_or(0) / 1024,
            kernel: read("/proc/sys/kernel/osrelease"),
            file_system: said("findmnt", &["-n", "-o", "FSTYPE", "--target", scratch]),
            samba: said("smbd", &["--version"]),
            holdfast: said(binary, &["--version"]),
            commit: said("git", &["-C", source, "rev-parse", "--short", "HEAD"]),
            optimized_clients: !cfg!(debug_assertions),
            load_before: load(),
            load_after: String::new(),
            quick: false,
            rounds: 0,
            cpu: Vec::new(),
            failures: Vec::new(),
        })
    }

    /// Notes who takes part.
    pub(crate) fn servers(&mut self, running: &[Server]) {
        let told = |server: &Server| {
            (
                server.name.to_owned(),
                server.running.meter.name().to_owned(),
            )
        };
        self.cpu = running.iter().map(told).collect();
    }

    /// After a round.
    pub(crate) fn now(&mut self, quick: bool, rounds: usize) {
        self.load_after = load();
        self.quick = quick;
        self.rounds = rounds;
    }
}
