//! The rows: the servers, and all workloads as a plan of a matrix has them, each with its goals where it has some.

use super::report::{Goal, Maker, Metric};

/// KiB that an idle connection may cost.
const IDLE_KIB_MAX: f64 = 48.0;

/// A server as a plan has it, without `binary` and `root`. Neighbours in a round are not of one maker.
pub(crate) const SERVERS: [(&str, &str); 13] = [
    ("samba-sync", SAMBA_SYNC),
    (
        "holdfast-threads",
        "kind = \"holdfast\", policy = \"honor\", file_io = \"threads\"",
    ),
    (
        "samba-threads",
        "kind = \"samba\", strict_sync = true, io = \"threads\"",
    ),
    (
        "holdfast-uring",
        "kind = \"holdfast\", policy = \"honor\", file_io = \"io_uring\"",
    ),
    (
        "samba-uring",
        "kind = \"samba\", strict_sync = true, io = \"io-uring\"",
    ),
    ("limit", "kind = \"limit\""),
    ("limit-sendfile", "kind = \"limit\", way = \"sendfile\""),
    ("samba-sync-lax", "kind = \"samba\", strict_sync = false"),
    ("holdfast-threads-lax", HOLDFAST_THREADS_LAX),
    (
        "samba-threads-lax",
        "kind = \"samba\", strict_sync = false, io = \"threads\"",
    ),
    ("holdfast-uring-lax", HOLDFAST_URING_LAX),
    (
        "samba-uring-lax",
        "kind = \"samba\", strict_sync = false, io = \"io-uring\"",
    ),
    ("limit-lax", "kind = \"limit\", way = \"lax\""),
];
const SAMBA_SYNC: &str = "kind = \"samba\", strict_sync = true";
const HOLDFAST_THREADS_LAX: &str =
    "kind = \"holdfast\", policy = \"treat-host-as-stable-storage\", file_io = \"threads\"";
const HOLDFAST_URING_LAX: &str =
    "kind = \"holdfast\", policy = \"treat-host-as-stable-storage\", file_io = \"io_uring\"";

/// Sizes and times.
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    /// Seconds of a step, and of one whose 99th percentile counts.
    pub(crate) seconds: f64,
    pub(crate) phase: f64,
    /// MiB of the file that smbclient copies [`COPIES`] times in a run.
    pub(crate) big_mib: u64,
    pub(crate) small_files: u64,
    pub(crate) sessions: u64,
    pub(crate) documents: u32,
    pub(crate) connections: usize,
    pub(crate) connections_many: usize,
}

impl Sizes {
    pub(crate) const QUICK: Self = Self {
        seconds: 0.3,
        phase: 1.0,
        big_mib: 16,
        small_files: 50,
        sessions: 3,
        documents: 8,
        connections: 100,
        connections_many: 300,
    };
    pub(crate) const FULL: Self = Self {
        seconds: 1.0,
        phase: 30.0,
        big_mib: 1024,
        small_files: 400,
        sessions: 60,
        documents: 24,
        connections: 1000,
        connections_many: 10_000,
    };
}

/// One workload with its goals.
pub(crate) struct Row {
    pub(crate) name: String,
    /// As a plan has it, without name and servers.
    pub(crate) plan: String,
    /// The name of a unit.
    pub(crate) unit: &'static str,
    /// The kind of operation of which each is one unit; all operations, unless given.
    pub(crate) counts: Option<&'static str>,
    pub(crate) goals: Vec<Goal>,
    /// For the servers that answer FLUSH at once.
    lax: bool,
    /// Not for Samba, whose processes would not fit.
    holdfast_only: bool,
}

fn row(name: &str, plan: impl Into<String>) -> Row {
    Row {
        name: name.to_owned(),
        plan: plan.into(),
        unit: "us/op",
        counts: None,
        goals: Vec::new(),
        lax: false,
        holdfast_only: false,
    }
}

impl Row {
    fn goal(mut self, metric: Metric, bound: f64, of: Maker) -> Self {
        self.goals.push(Goal { metric, bound, of });
        self
    }

    /// At most that part of the cheapest Samba's cost.
    fn at_most(self, bound: f64) -> Self {
        self.goal(Metric::Cost, bound, Maker::Samba)
    }

    /// At least that part of the fastest Samba's rate.
    fn at_least(self, bound: f64) -> Self {
        self.goal(Metric::Rate, bound, Maker::Samba)
    }

    /// At most so many times the cost of the limit in the same round.
    fn of_limit(self, bound: f64) -> Self {
        self.goal(Metric::Cost, bound, Maker::Limit)
    }

    /// Each operation of this kind is one unit, not all operations.
    fn counts(mut self, kind: &'static str) -> Self {
        self.counts = Some(kind);
        self
    }

    fn unit(mut self, unit: &'static str) -> Self {
        self.unit = unit;
        self
    }

    fn lax(mut self) -> Self {
        self.lax = true;
        self
    }

    /// Whether this server is given it. (The matrix gives a limit only what has one.)
    pub(crate) fn fits(&self, server: &str) -> bool {
        // Only reads differ by sendfile.
        let is_read = self.plan.starts_with("kind = \"read\"");
        match Maker::of(server) {
            Maker::Samba if self.holdfast_only => false,
            _ if server == "limit-sendfile" => is_read,
            Maker::Other => true,
            _ => self.lax == server.ends_with("-lax"),
        }
    }
}

pub(crate) fn rows(sizes: Sizes) -> Vec<Row> {
    let mut all = pieces(sizes);
    all.extend(names_and_logins());
    all.extend(flushes_and_stores(sizes));
    all.extend(crowds(sizes));
    all.extend(copies(sizes));
    all
}

fn pieces(sizes: Sizes) -> Vec<Row> {
    let of = |kind: &str, bytes: u32, depth: u32| {
        format!("kind = \"{kind}\", bytes = {bytes}, depth = {depth}")
    };
    let with = |plan: String, protection| format!("{plan}, protection = \"{protection}\"");
    let beside = |noise: &str| {
        let seconds = sizes.phase;
        format!("kind = \"read-beside\", noise = \"{noise}\", seconds = {seconds:?}, clients = [2]")
    };
    let p99 = |name: &str, noise| {
        row(name, beside(noise))
            .counts("read")
            .goal(Metric::P99, 0.5, Maker::Samba)
    };
    vec![
        row("echo", "kind = \"echo\""),
        row("read-4k-q1", of("read", 4096, 1)),
        row("read-4k-q16", of("read", 4096, 16)).at_most(0.70),
        row("write-4k-q16", of("write", 4096, 16)),
        row("read-64k-q4", of("read", 65_536, 4))
            .at_most(0.90)
            .at_least(1.0),
        row("write-64k-q4", of("write", 65_536, 4))
            .at_most(0.85)
            .at_least(1.0),
        row("read-1m-q2", of("read", 1 << 20, 2))
            .at_most(0.90)
            .at_least(1.0),
        row("write-1m-q2", of("write", 1 << 20, 2))
            .at_most(0.95)
            .at_least(1.0),
        row("read-4k-q16-gmac", with(of("read", 4096, 16), "gmac")),
        row("read-64k-cmac", with(of("read", 65_536, 4), "cmac")).at_most(0.60),
        row("read-64k-gmac", with(of("read", 65_536, 4), "gmac")).at_most(0.65),
        row("read-64k-gcm", with(of("read", 65_536, 4), "gcm"))
            .at_most(0.55)
            .at_least(1.1),
        row("write-64k-gcm", with(of("write", 65_536, 4), "gcm"))
            .at_most(0.65)
            .at_least(1.0),
        p99("read-beside-stream", "stream"),
        p99("read-beside-flush", "flush"),
    ]
}

fn names_and_logins() -> Vec<Row> {
    let eight = |kind| format!("kind = \"{kind}\", clients = [8]");
    vec![
        row("open-close", "kind = \"open-close\""),
        row("open-close-8-at-once", "kind = \"open-close\", depth = 8"),
        row("create-remove", "kind = \"create-remove\""),
        row("metadata-mix", "kind = \"metadata\"").of_limit(1.6),
        row("metadata-mix-8", eight("metadata")).of_limit(1.6),
        row("small-files", "kind = \"small-files\"")
            .counts("delete")
            .of_limit(1.8),
        row("small-files-8", eight("small-files"))
            .counts("delete")
            .of_limit(1.8),
        row("connection", "kind = \"connection\"").at_most(0.08),
        row("session", "kind = \"session\"").at_most(0.15),
    ]
}

fn flushes_and_stores(sizes: Sizes) -> Vec<Row> {
    let flushes = |name: &str, clients: u32| {
        let plan = format!("kind = \"flush-ladder\", clients = [{clients}]");
        row(name, plan).counts("flush")
    };
    let mail = "kind = \"jetstress\", stability = \"flush\", pages = 8192";
    let phase = |name: &str, plan: &str| {
        let plan = format!("{plan}, seconds = {:?}", sizes.phase);
        row(name, plan).goal(Metric::P99, 1.0, Maker::Samba)
    };
    let mix = |name: &str, clients: u32| {
        let documents = sizes.documents;
        let plan = format!("kind = \"netbench\", documents = {documents}, clients = [{clients}]");
        row(name, plan)
    };
    vec![
        flushes("write-flush-4k", 1).at_most(0.80).at_least(1.3),
        flushes("write-flush-4k-8", 8).at_most(0.65).at_least(1.3),
        flushes("write-flush-4k-lax", 1).lax().of_limit(1.3),
        row("mail-store-4", format!("{mail}, clients = [4]")).at_most(0.70),
        mix("netbench-1", 1),
        mix("netbench-8", 8).at_most(0.45),
        mix("netbench-32", 32),
        mix("netbench-60", 60).at_most(0.30).at_least(3.0),
        mix("netbench-60-lax", 60).lax().at_least(2.0),
        phase("mail-store-4-p99", &format!("{mail}, clients = [4]")),
        phase("netbench-60-p99", &mix("", 60).plan),
    ]
}

fn crowds(sizes: Sizes) -> Vec<Row> {
    let idle = |name: &str, connections: usize| {
        row(name, format!("kind = \"idle\", clients = [{connections}]"))
            .unit("KiB/connection")
            .goal(Metric::Kib, IDLE_KIB_MAX, Maker::Samba)
    };
    let reads = format!(
        "kind = \"read\", bytes = 4096, connections = {}",
        sizes.connections
    );
    let mut many = idle("idle-10000", sizes.connections_many);
    many.holdfast_only = true;
    vec![
        row("read-4k-c1000", reads).at_most(0.25),
        idle("idle-1000", sizes.connections),
        many,
    ]
}

/// How often a large file is copied in a run.
const COPIES: u64 = 4;

/// smbclient's copies.
fn copies(sizes: Sizes) -> Vec<Row> {
    let smbclient = |protection: &str, commands: &str| {
        format!(
            "PASSWD=$SMB_PASSWORD smbclient //$HOST/$SHARE -p $PORT -U $SMB_USER -m SMB3_11 \
             --client-protection={protection} -t 120 -c '{commands}'\n"
        )
    };
    let program = |name: &str, prepare: String, command: String, count: u64, after: String| {
        let command = format!("{command}echo operations {count}\n");
        let program = format!(
            "kind = \"program\", prepare = {prepare:?}, command = {command:?}, after = {after:?}"
        );
        row(name, program)
    };
    let mut all = Vec::new();
    let size = sizes.big_mib;
    for (protection, word) in [
        ("off", "plain"),
        ("sign", "signed"),
        ("encrypt", "encrypted"),
    ] {
        let local = format!("test -e {size} || head -c {size}M /dev/urandom > {size}\n");
        let times = |command: String| [command.as_str(); COPIES as usize].join("; ");
        let put = smbclient(protection, &times(format!("put {size} {size}")));
        let get = smbclient(protection, &times(format!("get {size} /dev/null")));
        let remove = smbclient(protection, &format!("rm {size}"));
        // The first copy is not measured, for a page that a virtual machine touches for the first time costs more than
        // what is copied into it. Each further copy replaces the file, and gets its pages.
        let there = format!(
            "{local}{}",
            smbclient(protection, &format!("put {size} {size}"))
        );
        let copy = |way, command| {
            let name = format!("copy-{way}-{word}");
            let count = size * COPIES;
            let row = program(&name, there.clone(), command, count, remove.clone());
            row.unit("us/MiB").at_most(1.0).at_least(1.0)
        };
        all.push(copy("to", put));
        all.push(copy("from", get));
    }
    let count = sizes.small_files;
    let away = smbclient("sign", "deltree small");
    // A run that failed may have left its files.
    let fresh = format!("{} > /dev/null 2>&1 || true\n", away.trim_end());
    let local = format!(
        "{fresh}mkdir -p small back; for n in $(seq {count}); do head -c 8192 /dev/zero > small/file-$n; done\n"
    );
    let put = smbclient(
        "sign",
        "mkdir small; cd small; lcd small; prompt off; mput file-*",
    );
    let get = smbclient("sign", "cd small; lcd back; prompt off; mget file-*");
    let remove = smbclient("sign", "cd small; del file-*");
    let there = format!("{local}{put}");
    all.push(program("small-files-to", local, put, count, away.clone()));
    all.push(program(
        "small-files-from",
        there.clone(),
        get,
        count,
        away.clone(),
    ));
    all.push(program("small-files-remove", there, remove, count, away));
    let count = sizes.sessions;
    let session = format!(
        "for n in $(seq {count}); do\n{}done\n",
        smbclient("sign", "exit")
    );
    let none = String::new;
    all.push(program("smbclient-session", none(), session, count, none()));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_names_of_their_own_and_each_a_server() {
        let all = rows(Sizes::QUICK);
        let mut names: Vec<_> = all.iter().map(|row| row.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.len());
        for row in &all {
            let fits = SERVERS.iter().filter(|(server, _)| row.fits(server));
            let makers: Vec<Maker> = fits.map(|(server, _)| Maker::of(server)).collect();
            assert!(makers.contains(&Maker::Holdfast), "{}", row.name);
            assert_eq!(makers.contains(&Maker::Samba), row.name != "idle-10000");
        }
        let lax = all.iter().find(|row| row.name == "write-flush-4k-lax");
        let servers = SERVERS
            .iter()
            .filter(|(server, _)| lax.unwrap().fits(server));
        assert_eq!(servers.count(), 6);
    }
}
