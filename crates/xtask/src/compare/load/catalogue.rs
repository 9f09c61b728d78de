//! All workloads, each with its goals ([`Goal`]) where it has some.

use super::{Protection, Task, Unit, Workload, beside::Noise, copies::Copy, names};
use crate::compare::{
    limit::{Operation, Same},
    report::{Goal, Metric},
    servers::Maker,
};

/// KiB that an idle connection may cost.
const IDLE_KIB_MAX: f64 = 48.0;
/// Name of the row of memory that a crowd of readers gives besides its own.
pub(crate) const IDLE: &str = "idle-1000";

fn work(name: &'static str, task: Task) -> Workload {
    Workload {
        name,
        unit: Unit::Operation,
        goals: Vec::new(),
        lax: false,
        holdfast_only: false,
        limit: None,
        task,
    }
}

impl Workload {
    fn goal(mut self, metric: Metric, bound: f64) -> Self {
        self.goals.push(Goal {
            metric,
            bound,
            of: Maker::Samba,
        });
        self
    }

    /// At most so many times the cost of the limit in the same round.
    fn of_limit(mut self, bound: f64) -> Self {
        self.goals.push(Goal {
            metric: Metric::Cost,
            bound,
            of: Maker::Limit,
        });
        self
    }

    /// At most that part of the cheapest Samba's cost.
    fn at_most(self, bound: f64) -> Self {
        self.goal(Metric::Cost, bound)
    }

    /// At least that part of the fastest Samba's rate.
    fn at_least(self, bound: f64) -> Self {
        self.goal(Metric::Rate, bound)
    }

    fn limit(mut self, operation: Operation, len: u32, depth: usize, connections: usize) -> Self {
        self.limit = Some(Same {
            operation,
            len,
            depth,
            connections,
        });
        self
    }

    fn lax(mut self) -> Self {
        self.lax = true;
        self
    }

    fn of_connections(mut self) -> Self {
        self.unit = Unit::Connection;
        self.goal(Metric::Kib, IDLE_KIB_MAX)
    }
}

/// All of them; `outside` are commands of other clients, each with a name.
pub(crate) fn workloads(outside: &[(String, String)]) -> Vec<Workload> {
    let mut all = pieces();
    all.extend(protected());
    all.extend(names_and_logins());
    all.extend(flushes_and_crowds());
    all.extend(copies());
    for (name, command) in outside {
        let name: &'static str = format!("client-{name}").leak();
        all.push(work(name, Task::Outside(command.clone())));
    }
    all
}

fn pieces() -> Vec<Workload> {
    use Operation::{Ping, Read, Write};
    let read = |name, len, depth| {
        work(name, Task::Read(len, depth, Protection::Plain)).limit(Read, len, depth, 1)
    };
    let write = |name, len, depth| {
        work(name, Task::Write(len, depth, Protection::Plain)).limit(Write, len, depth, 1)
    };
    vec![
        work("echo", Task::Echo).limit(Ping, 0, 1, 1),
        read("read-4k-q1", 4096, 1),
        read("read-4k-q16", 4096, 16).at_most(0.70),
        write("write-4k-q16", 4096, 16),
        read("read-64k-q4", 65_536, 4).at_most(0.90).at_least(1.0),
        write("write-64k-q4", 65_536, 4).at_most(0.85).at_least(1.0),
        read("read-1m-q2", 1 << 20, 2).at_most(0.90).at_least(1.0),
        write("write-1m-q2", 1 << 20, 2).at_most(0.95).at_least(1.0),
    ]
}

fn protected() -> Vec<Workload> {
    use Protection::{Cmac, Gcm, Gmac};
    vec![
        work("read-4k-q16-gmac", Task::Read(4096, 16, Gmac)),
        work("read-64k-cmac", Task::Read(65_536, 4, Cmac)).at_most(0.60),
        work("read-64k-gmac", Task::Read(65_536, 4, Gmac)).at_most(0.65),
        work("read-64k-gcm", Task::Read(65_536, 4, Gcm))
            .at_most(0.55)
            .at_least(1.1),
        work("write-64k-gcm", Task::Write(65_536, 4, Gcm))
            .at_most(0.65)
            .at_least(1.0),
    ]
}

fn names_and_logins() -> Vec<Workload> {
    use names::Kind::{CreateRemove, Mix, OpenClose, SmallFiles};
    let names = |name, kind, clients| work(name, Task::Names(kind, clients));
    vec![
        names("open-close", OpenClose, 1),
        names("create-remove", CreateRemove, 1),
        names("metadata-mix", Mix, 1).of_limit(1.6),
        names("metadata-mix-8", Mix, 8).of_limit(1.6),
        names("small-files", SmallFiles, 1).of_limit(1.8),
        names("small-files-8", SmallFiles, 8).of_limit(1.8),
        work("connection", Task::NewConnection).at_most(0.08),
        work("session", Task::NewSession).at_most(0.15),
    ]
}

fn flushes_and_crowds() -> Vec<Workload> {
    let mut many = work("idle-10000", Task::CrowdIdle { many: true }).of_connections();
    many.holdfast_only = true;
    vec![
        work("write-flush-4k", Task::WriteFlush(20, 1))
            .at_most(0.80)
            .at_least(1.3),
        work("write-flush-4k-8", Task::WriteFlush(20, 8))
            .at_most(0.65)
            .at_least(1.3),
        // No disk to wait for: as many as make a time that can be measured.
        work("write-flush-4k-lax", Task::WriteFlush(1, 1))
            .lax()
            .of_limit(1.3),
        work("mail-store-4", Task::MailStore(4)).at_most(0.70),
        work("netbench-1", Task::Mix(1)),
        work("netbench-8", Task::Mix(8)).at_most(0.45),
        work("netbench-32", Task::Mix(32)),
        work("netbench-60", Task::Mix(60))
            .at_most(0.30)
            .at_least(3.0),
        work("netbench-60-lax", Task::Mix(60)).lax().at_least(2.0),
        work("read-beside-stream", Task::ReadBeside(Noise::Stream)).goal(Metric::P99, 0.5),
        work("read-beside-flush", Task::ReadBeside(Noise::Flush)).goal(Metric::P99, 0.5),
        work("read-4k-c1000", Task::CrowdReads)
            .at_most(0.25)
            .limit(Operation::Read, 4096, 1, 1000),
        work(IDLE, Task::CrowdIdle { many: false }).of_connections(),
        many,
    ]
}

fn copies() -> Vec<Workload> {
    let copy = |name, unit, what, protection| {
        let mut workload = work(name, Task::Copy(what, protection));
        workload.unit = unit;
        workload
    };
    use Unit::{Gib, Operation};
    vec![
        copy("copy-to-plain", Gib, Copy::Put, "off"),
        copy("copy-from-plain", Gib, Copy::Get, "off"),
        copy("copy-to-signed", Gib, Copy::Put, "sign"),
        copy("copy-from-signed", Gib, Copy::Get, "sign"),
        copy("copy-to-encrypted", Gib, Copy::Put, "encrypt"),
        copy("copy-from-encrypted", Gib, Copy::Get, "encrypt"),
        copy("small-files-to", Operation, Copy::PutSmall, "sign"),
        copy("small-files-from", Operation, Copy::GetSmall, "sign"),
        copy("small-files-remove", Operation, Copy::RemoveSmall, "sign"),
        copy("smbclient-session", Operation, Copy::Sessions, "sign"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let outside = [("go".to_owned(), "true".to_owned())];
        let all = workloads(&outside);
        let mut names: Vec<_> = all.iter().map(|work| work.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all.len());
        assert!(names.contains(&"client-go"));
    }
}
