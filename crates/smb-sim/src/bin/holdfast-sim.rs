//! `holdfast-sim`: runs simulated crashes, millions if asked for, and replays them by seed or by line.
//!
//! ```text
//! holdfast-sim --cases N [--seed S] [--seconds T] [--profile P] [--policy Q] [--rules R] [--second Q]
//!              [--keep FILE]
//! holdfast-sim --exhaustive LENGTH [--small] [--every N] [--profile P] [--policy Q] [--rules R] ...
//! holdfast-sim --replay 'LINE'
//! ```
//!
//! A case is its seed: `--seed S --cases 1` with the same profile, policies and rules is the same run.
//! `--exhaustive` plays every sequence of that many letters, with `--every` one in N of them.
//!
//! `--plant FAULT` breaks the server first; faults within the durability engine need the feature
//! `planted-faults`.
//!
//! Runs on one core. A case that fails is shrunk, printed with the command that replays it, and (with
//! `--keep`) appended to a file. The exit status is 0 if no promise was broken.

use std::{
    collections::BTreeMap,
    io::Write as _,
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Parser;
use durability::Policy;
use smb_sim::crashes::{
    Alphabet, Crash, End, Fault, Kind, Outcome, Pace, Plan, Speech, Step, Tally, run_planted,
    sequences, sequences_count, shrink,
};
use smb_sim::oracle::WANTED;
use vfs::sim::Profile;

/// Cases between two lines that report how far it is.
const PROGRESS: u64 = 100_000;

/// Failing cases that are shrunk and shown.
const SHOWN_MAX: usize = 20;

/// Crash cases by the million, replayable by seed or by line
#[derive(Parser)]
#[command(name = "holdfast-sim", args_override_self = true)]
struct Arguments {
    /// How many cases by chance
    #[arg(long, default_value_t = 1000)]
    cases: u64,
    /// The seed of the first
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// End after so many
    #[arg(long)]
    seconds: Option<u64>,
    /// Every sequence of so many letters instead of cases by chance
    #[arg(long, value_name = "LENGTH")]
    exhaustive: Option<usize>,
    /// Sequences of few letters
    #[arg(long)]
    small: bool,
    /// Play one sequence of so many
    #[arg(long, value_name = "N", default_value_t = 1)]
    every: usize,
    /// The set of rules of all cases
    #[arg(long, value_parser = rules)]
    rules: Option<u8>,
    /// The profile of all cases
    #[arg(long, value_parser = profile)]
    profile: Option<Profile>,
    /// The policy of all cases
    #[arg(long, value_parser = policy)]
    policy: Option<Policy>,
    /// A second share over the folder in all cases, with this policy
    #[arg(long, value_parser = policy)]
    second: Option<Policy>,
    /// Play this case
    #[arg(long, value_name = "LINE")]
    replay: Option<Plan>,
    /// Append cases that fail to this file
    #[arg(long, value_name = "FILE")]
    keep: Option<String>,
    /// Show cases that fail as they are
    #[arg(long)]
    no_shrink: bool,
    /// Show how often each request was refused
    #[arg(long)]
    verbose: bool,
    /// Break the server first
    #[arg(long = "plant", value_name = "FAULT")]
    planted: Option<Fault>,
}

impl Arguments {
    fn run(&self, plan: &Plan) -> Outcome {
        run_planted(plan, self.planted)
    }
}

fn rules(text: &str) -> Result<u8, String> {
    Ok(format!("rules={text}").parse::<Plan>()?.rules)
}

fn profile(text: &str) -> Result<Profile, String> {
    Ok(format!("profile={text}").parse::<Plan>()?.profile)
}

fn policy(text: &str) -> Result<Policy, String> {
    match text {
        "bounded" => Ok(Plan::policies()[2]),
        text => text.parse::<Policy>().map_err(|error| error.to_string()),
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(plan) = &arguments.replay {
        return replay(plan, &arguments);
    }
    let mut report = Report::new(&arguments);
    if let Some(length) = arguments.exhaustive {
        report.exhaustive(length);
    } else {
        report.random();
    }
    report.end()
}

fn replay(plan: &Plan, arguments: &Arguments) -> ExitCode {
    for step in &plan.steps {
        println!("  {step:?}");
    }
    let outcome = arguments.run(plan);
    print!("{}", outcome.history);
    println!("{} calls of the disk, {:?}", outcome.calls, outcome.tally);
    for violation in &outcome.violations {
        println!("VIOLATION {violation}");
    }
    if !arguments.no_shrink && !outcome.violations.is_empty() {
        println!("shrunk: {}", shortest(plan, &outcome, arguments));
    }
    ExitCode::from(u8::from(!outcome.violations.is_empty()))
}

/// The shortest plan that breaks the same rule.
fn shortest(plan: &Plan, outcome: &Outcome, arguments: &Arguments) -> Plan {
    let rule = outcome.violations.first().map(|violation| violation.rule);
    shrink(plan, |candidate| {
        let violations = arguments.run(candidate).violations;
        violations
            .iter()
            .any(|violation| Some(violation.rule) == rule)
    })
}

struct Report<'a> {
    arguments: &'a Arguments,
    begun: Instant,
    tally: Tally,
    failing: u64,
    rules: BTreeMap<String, u64>,
    /// The composition of the cases.
    mixture: BTreeMap<&'static str, u64>,
    shown: usize,
}

impl<'a> Report<'a> {
    fn new(arguments: &'a Arguments) -> Self {
        Self {
            arguments,
            begun: Instant::now(),
            tally: Tally::default(),
            failing: 0,
            rules: BTreeMap::new(),
            mixture: BTreeMap::new(),
            shown: 0,
        }
    }

    /// Whether the time given is over.
    fn is_late(&self) -> bool {
        let limit = self.arguments.seconds.map(Duration::from_secs);
        limit.is_some_and(|limit| self.begun.elapsed() >= limit)
    }

    fn random(&mut self) {
        let mut seed = self.arguments.seed;
        while self.tally.cases < self.arguments.cases && !self.is_late() {
            let mut plan = Plan::random(seed, self.arguments.policy, self.arguments.profile);
            if let Some(rules) = self.arguments.rules {
                plan.rules = rules;
            }
            if let Some(second) = self.arguments.second {
                plan.add_share(second, seed);
            }
            self.case(&plan, &format!("seed {seed}"));
            seed += 1;
        }
    }

    fn exhaustive(&mut self, length: usize) {
        let alphabet = if self.arguments.small {
            Alphabet::Small
        } else {
            Alphabet::Large
        };
        let profiles = [Profile::PosixMin, Profile::Journal, Profile::LogTree];
        let profiles = match self.arguments.profile {
            Some(profile) => vec![profile],
            None => profiles.to_vec(),
        };
        let policies = match self.arguments.policy {
            Some(policy) => vec![policy],
            None => Plan::policies().to_vec(),
        };
        let of_each = sequences_count(alphabet, length);
        let every = self.arguments.every.max(1);
        println!(
            "sequences of {length}: {} cases, of which one in {} is played",
            of_each * profiles.len() * policies.len(),
            every
        );
        // In turn, and another part of them for each: what is played in the time given is a sample of all.
        let mut all = Vec::new();
        for profile in profiles {
            for policy in &policies {
                all.push(sequences(alphabet, length, *policy, profile));
            }
        }
        for number in 0..of_each {
            for (index, plans) in all.iter_mut().enumerate() {
                let Some(mut plan) = plans.next() else {
                    continue;
                };
                if (number + index) % every != 0 {
                    continue;
                }
                if self.is_late() {
                    println!("not all of them: up to {number} of each in the time given");
                    return;
                }
                plan.rules = self.arguments.rules.unwrap_or(0);
                self.case(&plan, "exhaustive");
            }
        }
    }

    fn case(&mut self, plan: &Plan, name: &str) {
        let outcome = self.arguments.run(plan);
        self.tally.add(&outcome.tally);
        self.mix(plan, &outcome);
        if self.tally.cases.is_multiple_of(PROGRESS) {
            let (cases, failing) = (self.tally.cases, self.failing);
            eprintln!(
                "{cases} cases, {failing} failing, {:?}",
                self.begun.elapsed()
            );
        }
        if outcome.violations.is_empty() {
            return;
        }
        self.failing += 1;
        for violation in &outcome.violations {
            let kind = format!("{:?} {} {:?}", violation.rule, plan.policy, plan.profile);
            *self.rules.entry(kind).or_default() += 1;
        }
        if self.shown >= SHOWN_MAX {
            return;
        }
        self.shown += 1;
        println!("-- {name}");
        let shown = if self.arguments.no_shrink {
            plan.clone()
        } else {
            shortest(plan, &outcome, self.arguments)
        };
        for step in &shown.steps {
            println!("     {step:?}");
        }
        for violation in self.arguments.run(&shown).violations.iter().take(3) {
            println!("   {violation}");
        }
        println!("   holdfast-sim --replay '{shown}'");
        if let Some(path) = &self.arguments.keep {
            let file = std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(path);
            if let Err(error) = file.and_then(|mut file| writeln!(file, "{shown}")) {
                eprintln!("holdfast-sim: {path}: {error}");
            }
        }
    }

    fn mix(&mut self, plan: &Plan, outcome: &Outcome) {
        let has = |kind| plan.steps.iter().any(|step| step.kind() == kind);
        let has_reload = |removes| {
            let reload = |step: &Step| step.kind() == Kind::Reload && step.flag() == removes;
            plan.steps.iter().any(reload)
        };
        let parts = [
            ("profile posix-min", plan.profile == Profile::PosixMin),
            ("profile journal", plan.profile == Profile::Journal),
            ("profile log-tree", plan.profile == Profile::LogTree),
            ("policy honor", plan.policy == Policy::Honor),
            ("policy strict-sync", plan.policy == Policy::StrictSync),
            ("policy bounded", matches!(plan.policy, Policy::Bounded(_))),
            (
                "policy host",
                plan.policy == Policy::TreatHostAsStableStorage,
            ),
            ("a second share over the folder", plan.second.is_some()),
            ("one over a folder in it", plan.nested),
            ("a reload of the policy", has_reload(false)),
            ("a share that is removed", has_reload(true)),
            (
                "a change within the other share's bound",
                outcome.history.charges_beside(),
            ),
            ("rules by open", plan.rules > 0),
            ("policy set at run time", has(Kind::Policy)),
            ("security descriptors", has(Kind::Security)),
            ("changes by the host", has(Kind::Host)),
            ("durable-acl", plan.durable_acl),
            ("several clients", plan.clients > 1),
            ("a disk that fails", !plan.troubles.is_empty()),
            ("a failed sync", outcome.tally.failed_syncs > 0),
            ("a failed write-back", has(Kind::WriteBack)),
            ("a restart of the server", has(Kind::Kill)),
            ("latches stored over it", has(Kind::Kill) && plan.stores),
            ("a slow disk", plan.pace == Pace::Slow),
            ("streams in files", plan.depot),
            ("signed or encrypted", plan.speech != Speech::Plain),
            ("end amid a request", plan.end != End::Done),
            ("end by the process", plan.crash == Crash::Process),
        ];
        for (name, _) in parts.into_iter().filter(|(_, is)| *is) {
            *self.mixture.entry(name).or_default() += 1;
        }
    }

    fn end(self) -> ExitCode {
        let seconds = self.begun.elapsed().as_secs_f64();
        let tally = &self.tally;
        println!(
            "{} cases in {seconds:.1} s: {:.0} a minute; {} failing",
            tally.cases,
            tally.cases as f64 * 60.0 / seconds,
            self.failing
        );
        println!(
            "requests: {} done, {} refused, {} failed, {} unanswered; {} promises; {} failed \
             syncs; something acknowledged was lost in {} cases",
            tally.done,
            tally.refused,
            tally.failed,
            tally.unanswered,
            tally.promises,
            tally.failed_syncs,
            tally.lossy
        );
        let mixture = self.mixture.iter();
        let mixture = mixture.map(|(name, count)| format!("{name} {count}"));
        println!("cases with: {}", mixture.collect::<Vec<_>>().join(", "));
        println!("under way at once on one inode:");
        for (one, other) in WANTED {
            let count = tally.meetings.get(&(one, other)).copied().unwrap_or(0);
            println!("{count:10} {one} x {other}");
        }
        let others = tally.meetings.iter();
        for ((one, other), count) in others.filter(|(pair, _)| !WANTED.contains(pair)) {
            println!("{count:10} {one} x {other}");
        }
        for (kind, count) in &self.rules {
            println!("{count} x {kind}");
        }
        if self.arguments.verbose {
            for ((what, status), count) in &tally.refusals {
                println!("{count:8} {what}: {status:#010x}");
            }
        }
        ExitCode::from(u8::from(self.failing > 0))
    }
}
