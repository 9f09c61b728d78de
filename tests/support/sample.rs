//! One sample of the server's state: the kernel's figures for the process, and the sizes of its
//! tables.

use std::collections::BTreeMap;
use std::fmt;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::HoldfastServer;
use serde_json::Value;

/// The state at one moment.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Seconds since the start.
    pub at: f64,
    /// Load in percent of one core, by server and clients, since the last sample.
    pub load: f64,
    /// The figures by name. Memory in KiB.
    pub values: BTreeMap<String, f64>,
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:6.0} s load {:4.1} %", self.at, self.load)?;
        for (name, value) in &self.values {
            // Zeros are omitted to keep the line readable.
            if *value != 0.0 {
                write!(f, " {name}={value}")?;
            }
        }
        Ok(())
    }
}

/// Takes samples and stores them.
pub struct Sampler<'a> {
    server: &'a HoldfastServer,
    started: Instant,
    last: (Instant, f64),
    samples: Vec<Sample>,
}

impl<'a> Sampler<'a> {
    /// Creates a sampler for a running server.
    pub fn new(server: &'a HoldfastServer) -> Self {
        let now = Instant::now();
        Self {
            server,
            started: now,
            last: (now, 0.0),
            samples: Vec::new(),
        }
    }

    /// The stored samples.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Stores a sample.
    pub fn keep(&mut self, sample: Sample) {
        self.samples.push(sample);
    }

    /// Lists the server's open descriptors, to find out which ones were left.
    pub fn descriptors(&self) -> String {
        let pid = self.server.pid();
        let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("the server");
        let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
        for entry in entries.flatten() {
            let Ok(link) = std::fs::read_link(entry.path()) else {
                continue;
            };
            // Descriptors such as socket:[123] are counted as one kind.
            let text = link.to_string_lossy();
            let kind = text.split(":[").next().unwrap_or_default();
            *kinds.entry(kind.to_owned()).or_default() += 1;
        }
        let each = kinds
            .iter()
            .map(|(kind, count)| format!("  {count} {kind}"));
        each.collect::<Vec<_>>().join("\n")
    }

    /// Takes a sample.
    pub fn sample(&mut self) -> Sample {
        let pid = self.server.pid();
        let now = Instant::now();
        let spent = cpu_seconds(&pid.to_string()) + cpu_seconds("self");
        let (then, before) = std::mem::replace(&mut self.last, (now, spent));
        let wall = now.duration_since(then).as_secs_f64().max(0.001);
        let mut values = process(pid);
        tables(&self.status(), &mut values);
        Sample {
            at: now.duration_since(self.started).as_secs_f64(),
            load: 100.0 * (spent - before) / wall,
            values,
        }
    }

    /// Queries the status as an administrator does.
    fn status(&self) -> Value {
        let mut said = None;
        // The control socket appears a moment after the listeners.
        for _ in 0..50 {
            let asked = Command::new(crate::binary())
                .args(["status", "--json", "--config"])
                .arg(self.server.config())
                .output()
                .expect("holdfast status");
            if asked.status.success() {
                return serde_json::from_slice(&asked.stdout).expect("JSON");
            }
            said = Some(asked);
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("holdfast status: {said:?}");
    }
}

/// Processor time of a process (proc(5), fields 14 and 15), in seconds.
fn cpu_seconds(pid: &str) -> f64 {
    const TICKS_A_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process");
    let after_name = stat.rsplit_once(')').expect("stat").1;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = |at: usize| fields[at].parse::<f64>().expect("a number");
    (ticks(11) + ticks(12)) / TICKS_A_SECOND
}

fn process(pid: u32) -> BTreeMap<String, f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the server");
    let field = |name: &str| {
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix(name));
        let value = line.and_then(|rest| rest.split_whitespace().nth(1));
        value.and_then(|value| value.parse().ok()).unwrap_or(0.0)
    };
    let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("the server");
    BTreeMap::from([
        ("rss_kib".to_owned(), field("VmRSS")),
        ("anon_kib".to_owned(), field("RssAnon")),
        ("threads".to_owned(), field("Threads")),
        ("fds".to_owned(), fds.count() as f64),
    ])
}

/// The sizes of all tables.
fn tables(status: &Value, values: &mut BTreeMap<String, f64>) {
    let server = &status["server"];
    let host = &server["host_changes"];
    let mut put = |name: &str, value: &Value| {
        values.insert(name.to_owned(), value.as_f64().unwrap_or(0.0));
    };
    for (name, value) in server["tables"].as_object().into_iter().flatten() {
        put(name, value);
    }
    put("inotify_watches", &host["watches"]);
    put("inotify_interests", &host["interests"]);
    let sessions = server["sessions"].as_array().map_or(&[][..], Vec::as_slice);
    let each = |key: &str| -> usize {
        let lists = sessions
            .iter()
            .filter_map(|session| session[key].as_array());
        lists.map(Vec::len).sum()
    };
    put("trees", &each("trees").into());
    put("channels", &each("channels").into());
    let opens = sessions
        .iter()
        .filter_map(|s| s["opens"].as_array())
        .flatten();
    let locks: u64 = opens.filter_map(|open| open["locks"].as_u64()).sum();
    put("locks", &locks.into());
}
