//! `expected.toml`: what each operation may need, and the judgement by it.
//!
//! ```toml
//! [syscalls.io_uring]
//! "echo" = { epoll_wait = 1, recvfrom = 2, sendto = 1 }
//! [allocations]
//! "echo" = { bytes = 812, count = 9 }
//! [instructions]
//! "echo" = { instructions = 9000 }
//! ```
//!
//! The names of the calls say what an operation does; what is judged is their sum, but for futex,
//! which is judged alone: how often threads wake each other has a little chance in it, a lock that
//! is waited for shows all the same.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::Command;

/// Where the table is.
pub(crate) const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/costs/expected.toml");

const HEAD: &str = "\
# The most that an operation may need: system calls of the server with io_uring and with threads (an operation
# is what the client does, so create-close is two requests), allocations of the server in memory.
# Written by `cargo run --bin costs -- --update`; held to by the same without --update.
# Lower a number whenever it can be; raise one only with a reason in the commit.

";

const FUTEX: &str = "futex";
/// How much more than the table is allowed, as a part of it.
const SLACK: f64 = 0.05;
/// The least that counts as a whole call: a little less than one, because of rounding and of calls
/// outside the batch.
const WHOLE_CALL: f64 = 0.9;
/// The same where another thread has a part in it (there is a futex): whether one has to be woken,
/// and asks its socket again first, takes chance, by a call or so.
const WHOLE_HANDED_OVER: f64 = 1.9;
/// The same on a file system other than the table's, of whose every file another call or two may be asked.
const WHOLE_ELSEWHERE: f64 = 6.0;
const WHOLE_ALLOCATION: f64 = 1.0;
const WHOLE_BYTES: f64 = 1024.0;
const WHOLE_INSTRUCTIONS: f64 = 500.0;
const WHOLE_FUTEX: f64 = 1.5;

/// Numbers by unit: calls by their names, or `count` and `bytes`.
pub(crate) type Cost = BTreeMap<String, f64>;
/// The cost of each operation.
pub(crate) type Costs = BTreeMap<String, Cost>;

/// Passed and failed.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
}

/// Everything, by section: `syscalls.io_uring`, `syscalls.threads`, `allocations`.
#[derive(Debug, Default)]
pub(crate) struct Table {
    file_system: String,
    sections: BTreeMap<String, Costs>,
}

const ALLOCATIONS: &str = "allocations";
const INSTRUCTIONS: &str = "instructions";

impl Table {
    /// An empty one for this machine.
    pub(crate) fn here() -> Self {
        let stat = Command::new("stat")
            .args(["-f", "-c", "%T"])
            .arg(std::env::temp_dir())
            .output();
        let name = stat.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned());
        Self {
            file_system: name.unwrap_or_default(),
            sections: BTreeMap::new(),
        }
    }

    /// Adds the system calls with this `file_io`.
    pub(crate) fn calls(&mut self, way: &str, costs: Costs) {
        self.sections.insert(format!("syscalls.{way}"), costs);
    }

    /// Adds the allocations.
    pub(crate) fn allocations(&mut self, costs: Costs) {
        self.sections.insert(ALLOCATIONS.to_owned(), costs);
    }

    /// Adds the instructions.
    pub(crate) fn instructions(&mut self, costs: Costs) {
        self.sections.insert(INSTRUCTIONS.to_owned(), costs);
    }

    /// Takes over the sections that were not measured now.
    pub(crate) fn keep_others(&mut self, other: Self) {
        for (section, costs) in other.sections {
            self.sections.entry(section).or_insert(costs);
        }
    }

    /// The table in the file.
    pub(crate) fn read() -> Result<Self, String> {
        let text = std::fs::read_to_string(PATH).map_err(|error| format!("{PATH}: {error}"))?;
        let table: toml::Table = text.parse().map_err(|error| format!("{PATH}: {error}"))?;
        let mut this = Self::default();
        for (name, value) in table {
            match (name.as_str(), value) {
                ("file_system", toml::Value::String(name)) => this.file_system = name,
                ("syscalls", toml::Value::Table(ways)) => {
                    for (way, costs) in ways {
                        this.calls(&way, costs.try_into().map_err(|e| format!("{way}: {e}"))?);
                    }
                }
                (ALLOCATIONS, costs) => {
                    this.allocations(costs.try_into().map_err(|e| format!("{name}: {e}"))?);
                }
                (INSTRUCTIONS, costs) => {
                    this.instructions(costs.try_into().map_err(|e| format!("{name}: {e}"))?);
                }
                _ => return Err(format!("{PATH}: what is {name}?")),
            }
        }
        Ok(this)
    }

    /// Puts this table in place of the file's.
    pub(crate) fn write(&self) -> std::io::Result<()> {
        let mut text = format!("{HEAD}file_system = \"{}\"\n", self.file_system);
        for (section, costs) in &self.sections {
            let _ = write!(text, "\n[{section}]\n");
            for (operation, cost) in costs {
                let numbers: Vec<_> = cost
                    .iter()
                    .filter_map(|(unit, number)| {
                        let number = (number * 10.0).round() / 10.0;
                        (number > 0.0).then(|| format!("{unit} = {number}"))
                    })
                    .collect();
                let _ = writeln!(text, "\"{operation}\" = {{ {} }}", numbers.join(", "));
            }
        }
        std::fs::write(PATH, text)
    }

    /// Holds what was measured to this table, and says so line by line.
    pub(crate) fn judge(&self, measured: &Self) -> Tally {
        let elsewhere = self.file_system != measured.file_system;
        if elsewhere {
            println!(
                "note: the table was taken on {}, this is {}: up to {WHOLE_ELSEWHERE} more calls pass",
                self.file_system, measured.file_system
            );
        }
        let mut tally = Tally::default();
        for (section, costs) in &measured.sections {
            let none = Costs::new();
            let expected = self.sections.get(section).unwrap_or(&none);
            for (operation, cost) in costs {
                let verdict = match expected.get(operation) {
                    Some(expected) => compare(expected, cost, elsewhere),
                    None => Err("not in the table (--update)".to_owned()),
                };
                match verdict {
                    Ok(said) => {
                        tally.passed += 1;
                        println!("ok costs {section} {operation}: {said}");
                    }
                    Err(why) => {
                        tally.failed += 1;
                        println!("FAIL costs {section} {operation}: {why}");
                    }
                }
            }
            for operation in expected.keys().filter(|name| !costs.contains_key(*name)) {
                tally.failed += 1;
                println!("FAIL costs {section} {operation}: in the table, but not measured");
            }
        }
        tally
    }
}

/// The parts of a cost that are judged: a name, its number, and the least that counts as one whole.
fn judged(cost: &Cost, elsewhere: bool) -> Vec<(&'static str, f64, f64)> {
    let of = |unit: &str| cost.get(unit).copied().unwrap_or(0.0);
    if cost.contains_key("bytes") {
        return vec![
            ("allocations", of("count"), WHOLE_ALLOCATION),
            ("bytes", of("bytes"), WHOLE_BYTES),
        ];
    }
    if cost.contains_key(INSTRUCTIONS) {
        return vec![(INSTRUCTIONS, of(INSTRUCTIONS), WHOLE_INSTRUCTIONS)];
    }
    let calls = cost.iter().filter(|(name, _)| *name != FUTEX);
    let whole = if elsewhere {
        WHOLE_ELSEWHERE
    } else if of(FUTEX) < 1.0 {
        WHOLE_CALL
    } else {
        WHOLE_HANDED_OVER
    };
    vec![
        ("calls", calls.map(|(_, number)| number).sum(), whole),
        (FUTEX, of(FUTEX), WHOLE_FUTEX),
    ]
}

fn compare(expected: &Cost, cost: &Cost, elsewhere: bool) -> Result<String, String> {
    let (mut said, mut more) = (Vec::new(), false);
    let both = judged(expected, elsewhere).into_iter();
    for ((what, was, whole), (_, is, _)) in both.zip(judged(cost, elsewhere)) {
        let grown = |from: f64, to: f64| to - from >= whole && to > from * (1.0 + SLACK);
        if grown(was, is) {
            more = true;
            said.push(format!("{is:.1} {what}, the table has {was:.1}"));
        } else if grown(is, was) {
            said.push(format!(
                "{is:.1} {what}: LESS than {was:.1}, lower the table"
            ));
        } else if is > 0.0 {
            said.push(format!("{is:.1} {what}"));
        }
    }
    let said = said.join("; ");
    if !more {
        return Ok(said);
    }
    let mut moved = Vec::new();
    let units: std::collections::BTreeSet<_> = expected.keys().chain(cost.keys()).collect();
    for unit in units {
        let of = |cost: &Cost| cost.get(unit).copied().unwrap_or(0.0);
        let (was, is) = (of(expected), of(cost));
        if (was - is).abs() >= 0.2 {
            moved.push(format!("{unit} {was:.1} -> {is:.1}"));
        }
    }
    Err(format!("{said} ({})", moved.join(", ")))
}
