//! Measures the costs of two workers on two cores, each behind a network interface of its own,
//! beside one that serves the same clients, and beside one that serves half of them, as each of the
//! two does (fewer clients for each worker are fewer requests for each turn of it): processor time
//! of the whole server for each operation, how evenly the workers share it, and whether a worker
//! waits for a lock while all clients read and write one file.
//!
//! Clients and server share the cores here, so rates are shown, but mean little.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use smb_client::{Client, CreateArgs, File, Login, Options, Request};
use smb_tests::{DATA, PASSWORD, USER};

use super::net::{PORT, SERVER};

/// Clients of either way: all on one interface, or half on each.
const CLIENTS: usize = 4;
/// Runs of each.
pub(super) const ROUNDS: usize = 10;
const FILE_BYTES: u64 = 16 << 20;
/// The server's process, as this program's other part knows it.
pub(crate) const PID: &str = "HOLDFAST_PID";

/// One kind of work.
pub(super) struct Work {
    pub(super) name: &'static str,
    write: bool,
    bytes: u32,
    outstanding: usize,
    /// Of each client in a run.
    operations: u64,
}

pub(super) const WORKS: [Work; 2] = [
    Work {
        name: "4 KiB READ",
        write: false,
        bytes: 4096,
        outstanding: 16,
        operations: 8_000,
    },
    Work {
        name: "64 KiB WRITE",
        write: true,
        bytes: 65_536,
        outstanding: 4,
        operations: 2_000,
    },
];

/// The cost of a run.
pub(super) struct Cost {
    /// Microseconds of processor time of the whole server for each operation.
    pub(super) each: f64,
    /// The part of the workers' time that the first one had.
    first: f64,
    /// Operations a second.
    rate: f64,
}

/// Measures, and says it.
pub(crate) fn run() {
    let server = Server::new();
    for work in &WORKS {
        let all = Lanes::new(&[0; CLIENTS]);
        let half = Lanes::new(&[0; CLIENTS / 2]);
        let two = Lanes::new(&[0, 1, 0, 1]);
        for lanes in [&all, &half, &two] {
            lanes.run(work); // Caches and pools are filled.
        }
        let mut found: [Vec<f64>; 4] = Default::default();
        for _ in 0..ROUNDS {
            let [all, half, two] = [&all, &half, &two].map(|lanes| server.cost(lanes, work));
            let ratios = [
                two.each / all.each,
                two.each / half.each,
                two.first,
                two.rate / all.rate,
            ];
            for (column, ratio) in found.iter_mut().zip(ratios) {
                column.push(ratio);
            }
        }
        let [all, half, first, rate] = found.map(median_text);
        let waits = server.lock_waits(&two, work);
        println!(
            "{}, two workers, {ROUNDS} rounds: CPU {all} of one's with the same clients, {half} of \
             one's with half of them; rate {rate}; the first has {first} of the load; waits for \
             locks: {waits} in {} operations",
            work.name,
            work.operations * CLIENTS as u64,
        );
    }
}

/// Median, and the second smallest and largest: with ten of them 95 % of all medians lie between.
pub(super) fn median_text(mut values: Vec<f64>) -> String {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values[1], values[values.len() - 2]);
    let middle = f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2]);
    format!("{middle:.2} ({low:.2}-{high:.2})")
}

/// Connections with an open of the same file, and the core that each client's thread is to be on.
pub(super) struct Lanes(Vec<(File, Option<usize>)>);

impl Lanes {
    fn new(nics: &[usize]) -> Self {
        Self::on(nics, |_| None)
    }

    /// To these interfaces, each from the core that `core` says for it.
    pub(super) fn on(nics: &[usize], core: impl Fn(usize) -> Option<usize>) -> Self {
        let login = Login::user(USER, PASSWORD, "");
        let open = |nic: &usize| {
            let client = Client::connect((SERVER[*nic], PORT), Options::default()).unwrap();
            let tree = client.login_with(&login).unwrap().tree(DATA).unwrap();
            let file = tree.create(&CreateArgs::open_if("scale")).unwrap();
            if file.read(FILE_BYTES - 1, 1).is_err() {
                let all = vec![7; usize::try_from(FILE_BYTES).unwrap()];
                file.write_all(0, &all).unwrap();
            }
            (file, core(*nic))
        };
        Self(nics.iter().map(open).collect())
    }

    pub(super) fn run(&self, work: &Work) {
        std::thread::scope(|scope| {
            for (nth, (file, core)) in self.0.iter().enumerate() {
                scope.spawn(move || {
                    core.inspect(|core| super::placement::pin(*core));
                    lane(file, work, nth as u64);
                });
            }
        });
    }
}

/// One client's operations, so many outstanding.
fn lane(file: &File, work: &Work, seed: u64) {
    let data = vec![7; work.bytes as usize];
    let request = |number: u64| -> Request {
        let places = FILE_BYTES / u64::from(work.bytes);
        let at = (number + seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) % places;
        let at = at * u64::from(work.bytes);
        match work.write {
            true => file.write_request(at, &data, smb_wire::msg::WriteFlags::empty()),
            false => file.read_request(at, work.bytes, 0),
        }
    };
    let mut waiting = std::collections::VecDeque::new();
    for number in 0..work.operations {
        if waiting.len() == work.outstanding {
            let id = waiting.pop_front().unwrap();
            file.tree().client().wait(id).unwrap().ok().unwrap();
        }
        waiting.push_back(file.tree().send(request(number)).unwrap());
    }
    for id in waiting {
        file.tree().client().wait(id).unwrap().ok().unwrap();
    }
}

/// The server's threads, as the kernel counts them.
pub(super) struct Server {
    pid: String,
    /// Thread ids of the workers, in their order.
    workers: Vec<String>,
}

impl Server {
    pub(super) fn new() -> Self {
        let pid = std::env::var(PID).expect("the server's process id");
        let mut workers: Vec<(String, String)> = tasks(&pid)
            .into_iter()
            .filter_map(|task| {
                let name = std::fs::read_to_string(task.join("comm")).ok()?;
                let id = task.file_name()?.to_str()?.to_owned();
                name.starts_with("worker").then_some((name, id))
            })
            .collect();
        workers.sort();
        assert_eq!(workers.len(), 2, "workers: {workers:?}");
        let workers = workers.into_iter().map(|(_, id)| id).collect();
        Self { pid, workers }
    }

    /// Nanoseconds of processor time of each worker, and of the whole server.
    fn time(&self) -> ([f64; 2], f64) {
        let (mut workers, mut all) = ([0.0; 2], 0.0);
        for task in tasks(&self.pid) {
            let text = std::fs::read_to_string(task.join("schedstat")).unwrap_or_default();
            let spent: f64 = text
                .split(' ')
                .next()
                .and_then(|ns| ns.parse().ok())
                .unwrap_or(0.0);
            all += spent;
            let id = task.file_name().and_then(|name| name.to_str());
            if let Some(nth) = self.workers.iter().position(|worker| Some(&**worker) == id) {
                workers[nth] = spent;
            }
        }
        (workers, all)
    }

    pub(super) fn cost(&self, lanes: &Lanes, work: &Work) -> Cost {
        let (before, all_before) = self.time();
        let begun = Instant::now();
        lanes.run(work);
        let took = begun.elapsed().as_secs_f64();
        let (after, all_after) = self.time();
        let operations = (work.operations * lanes.0.len() as u64) as f64;
        let spent = [after[0] - before[0], after[1] - before[1]];
        Cost {
            each: (all_after - all_before) / 1e3 / operations,
            first: spent[0] / (spent[0] + spent[1]),
            rate: operations / took,
        }
    }

    /// How often a worker waited for a lock during a run, as strace sees it.
    fn lock_waits(&self, lanes: &Lanes, work: &Work) -> usize {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("strace");
        let mut strace = Command::new("strace")
            .args(["-f", "-e", "trace=futex", "-p", &self.pid, "-o"])
            .arg(&out)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("strace");
        let end = Instant::now() + Duration::from_secs(10);
        while !self.traced() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(self.traced(), "strace does not trace the workers");
        lanes.run(work);
        interrupt(&mut strace);
        let text = std::fs::read_to_string(&out).unwrap();
        let of_worker = |line: &&str| {
            let id = line.split_whitespace().next().unwrap_or_default();
            self.workers.iter().any(|worker| worker == id) && line.contains("FUTEX_WAIT")
        };
        text.lines().filter(of_worker).count()
    }

    fn traced(&self) -> bool {
        self.workers.iter().all(|worker| {
            let path = format!("/proc/{}/task/{worker}/status", self.pid);
            let status = std::fs::read_to_string(path).unwrap_or_default();
            let tracer = status.lines().find_map(|l| l.strip_prefix("TracerPid:"));
            tracer.is_some_and(|id| id.trim() != "0")
        })
    }
}

fn interrupt(child: &mut Child) {
    let pid = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(sent.success());
    child.wait().unwrap();
}

fn tasks(pid: &str) -> Vec<PathBuf> {
    let folder = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    folder.filter_map(|task| Some(task.ok()?.path())).collect()
}
