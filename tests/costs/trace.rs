//! strace beside the server, and what it saw between two moments.
//!
//! A call counts when it begins (a call that is interrupted by another thread's line ends on a line
//! of its own, which does not). [`Trace::idle`] waits until every thread of the server sleeps in
//! the kernel: only then does the next request find the same server as the one before, whatever
//! else the machine does, and only then are a request's calls all in the trace.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Calls whose number says nothing: what malloc asks of the kernel depends on what was freed
/// before, the others on the moment.
const NOISE: [&str; 5] = [
    "brk",
    "madvise",
    "mprotect",
    "restart_syscall",
    "sched_yield",
];

/// Calls that are younger than many an strace (6.1 knows none of Linux 6.13), by their numbers.
const YOUNG: [(&str, &str); 2] = [
    ("syscall_0x1d0", "getxattrat"),
    ("syscall_0x1d1", "listxattrat"),
];

/// How long the server may take to come to rest, and strace to attach.
const REST_MAX: Duration = Duration::from_secs(10);
/// Between two looks.
const LOOK: Duration = Duration::from_micros(200);

/// A moment, in seconds since 1970, as strace writes it.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(crate) struct Moment(f64);

impl Moment {
    pub(crate) fn now() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self(since.unwrap_or_default().as_secs_f64())
    }
}

/// Calls by name.
pub(crate) type Calls = BTreeMap<String, u32>;

/// A running strace.
#[derive(Debug)]
pub(crate) struct Trace {
    strace: Child,
    pid: u32,
    folder: tempfile::TempDir,
}

impl Trace {
    /// Attaches to a process.
    pub(crate) fn attach(pid: u32) -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let strace = Command::new("strace")
            .args(["-f", "-ttt", "-s", "0", "-e", "verbose=none", "-o"])
            .arg(folder.path().join("trace"))
            .args(["-p", &pid.to_string()])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("strace (Debian package strace): {error}"))?;
        let mut this = Self {
            strace,
            pid,
            folder,
        };
        let deadline = Instant::now() + REST_MAX;
        while !this.traced().unwrap_or(false) {
            let ended = this.strace.try_wait().ok().flatten();
            if ended.is_some() || Instant::now() > deadline {
                return Err("strace cannot attach (root?)".to_owned());
            }
            sleep(LOOK);
        }
        Ok(this)
    }

    /// Whether strace has every thread.
    fn traced(&self) -> io::Result<bool> {
        every_thread(self.pid, |task| {
            let status = fs::read_to_string(task.join("status"))?;
            let tracer = status.lines().find_map(|l| l.strip_prefix("TracerPid:"));
            Ok(tracer.is_some_and(|pid| pid.trim() == self.strace.id().to_string()))
        })
    }

    /// Waits until the server has nothing to do.
    ///
    /// # Panics
    /// When it always has.
    pub(crate) fn idle(&self) {
        let deadline = Instant::now() + REST_MAX;
        let mut asleep = 0;
        while asleep < 2 {
            // A thread that ended while one looked: look again.
            let now = every_thread(self.pid, |task| {
                let stat = fs::read_to_string(task.join("stat"))?;
                let state = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
                Ok(state.starts_with('S'))
            });
            asleep = if now.unwrap_or(false) { asleep + 1 } else { 0 };
            assert!(Instant::now() < deadline, "the server is never idle");
            sleep(LOOK);
        }
    }

    /// Detaches; what was seen.
    pub(crate) fn end(mut self) -> io::Result<Seen> {
        // strace writes out what it has and lets the server go.
        let pid = self.strace.id().to_string();
        Command::new("kill").args(["-INT", &pid]).status()?;
        self.strace.wait()?;
        let text = fs::read_to_string(self.folder.path().join("trace"))?;
        Ok(Seen(text.lines().filter_map(begun).collect()))
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = self.strace.kill();
        let _ = self.strace.wait();
    }
}

fn every_thread(pid: u32, holds: impl Fn(&Path) -> io::Result<bool>) -> io::Result<bool> {
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        if !holds(&task?.path())? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The call that begins on a line such as `1234  1700000000.123456 read(3, ...`.
fn begun(line: &str) -> Option<(Moment, String)> {
    let mut words = line.split_whitespace();
    let moment = words.nth(1)?.parse().ok()?;
    let (name, _) = words.next()?.split_once('(')?;
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let counts = !name.is_empty() && name.chars().all(word) && !NOISE.contains(&name);
    let young = YOUNG.iter().find(|(number, _)| *number == name);
    let name = young.map_or(name, |(_, name)| name);
    counts.then(|| (Moment(moment), name.to_owned()))
}

/// Every call, in order.
#[derive(Debug)]
pub(crate) struct Seen(Vec<(Moment, String)>);

impl Seen {
    /// The calls that began from one moment to another.
    pub(crate) fn between(&self, from: Moment, to: Moment) -> Calls {
        let mut calls = Calls::new();
        for (_, name) in self.0.iter().filter(|(at, _)| *at >= from && *at < to) {
            *calls.entry(name.clone()).or_default() += 1;
        }
        calls
    }
}
