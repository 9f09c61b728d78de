//! `holdfast-sim`: crash cases by the million, replayable by seed or by line.
//!
//! ```text
//! holdfast-sim --cases N [--seed S] [--minutes M] [--profile P] [--policy Q] [--keep FILE]
//! holdfast-sim --exhaustive LENGTH [--profile P] [--policy Q]
//! holdfast-sim --replay 'LINE'
//! ```
//!
//! Built with the feature `planted-faults`, `--plant FAULT` breaks the durability engine first.
//!
//! Runs on one core. What fails is shrunk, printed with the command that replays it, and (with
//! `--keep`) appended to a file. The exit status is 0 if no promise was broken.

use std::{
    collections::BTreeMap,
    io::Write as _,
    process::ExitCode,
    time::{Duration, Instant},
};

use durability::Policy;
use smb_sim::crashes::{Alphabet, Outcome, Plan, Tally, run, sequences, shrink};
use vfs::sim::Profile;

/// Failing cases that are shrunk and shown.
const SHOWN_MAX: usize = 20;

#[derive(Default)]
struct Arguments {
    cases: u64,
    seed: u64,
    minutes: Option<u64>,
    exhaustive: Option<usize>,
    profile: Option<Profile>,
    policy: Option<Policy>,
    replay: Option<String>,
    keep: Option<String>,
    shrink: bool,
    verbose: bool,
    #[cfg(feature = "planted-faults")]
    planted: Option<durability::Planted>,
}

impl Arguments {
    fn run(&self, plan: &Plan) -> Outcome {
        #[cfg(feature = "planted-faults")]
        if self.planted.is_some() {
            return smb_sim::crashes::run_planted(plan, self.planted);
        }
        run(plan)
    }
}

fn main() -> ExitCode {
    let arguments = match parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            eprintln!("holdfast-sim: {error}");
            return ExitCode::from(2);
        }
    };
    if let Some(line) = &arguments.replay {
        return replay(line, &arguments);
    }
    let mut report = Report::new(&arguments);
    if let Some(length) = arguments.exhaustive {
        report.exhaustive(length);
    } else {
        report.random();
    }
    report.end()
}

fn parse() -> Result<Arguments, String> {
    let mut arguments = Arguments {
        cases: 1000,
        shrink: true,
        ..Arguments::default()
    };
    let mut given = std::env::args().skip(1);
    while let Some(name) = given.next() {
        let mut value = || given.next().ok_or_else(|| format!("{name} needs a value"));
        let number = |text: String| {
            text.parse::<u64>()
                .map_err(|_| format!("{text}: no number"))
        };
        match name.as_str() {
            "--cases" => arguments.cases = number(value()?)?,
            "--seed" => arguments.seed = number(value()?)?,
            "--minutes" => arguments.minutes = Some(number(value()?)?),
            "--exhaustive" => {
                arguments.exhaustive = usize::try_from(number(value()?)?).ok();
            }
            "--profile" => {
                let text = value()?;
                let plan: Plan = format!("profile={text}").parse()?;
                arguments.profile = Some(plan.profile);
            }
            "--policy" => {
                let text = value()?;
                let of = if text == "bounded" {
                    Plan::policies()[2]
                } else {
                    text.parse().map_err(|error| format!("{text}: {error}"))?
                };
                arguments.policy = Some(of);
            }
            "--replay" => arguments.replay = Some(value()?),
            #[cfg(feature = "planted-faults")]
            "--plant" => {
                let text = value()?;
                let all = durability::Planted::ALL.into_iter();
                let found = all.clone().find(|fault| format!("{fault:?}") == text);
                let known = || format!("{text} is none of {:?}", all.collect::<Vec<_>>());
                arguments.planted = Some(found.ok_or_else(known)?);
            }
            "--keep" => arguments.keep = Some(value()?),
            "--no-shrink" => arguments.shrink = false,
            "--verbose" => arguments.verbose = true,
            other => return Err(format!("{other} is not known")),
        }
    }
    Ok(arguments)
}

fn replay(line: &str, arguments: &Arguments) -> ExitCode {
    let plan: Plan = match line.parse() {
        Ok(plan) => plan,
        Err(error) => {
            eprintln!("holdfast-sim: {error}");
            return ExitCode::from(2);
        }
    };
    for step in &plan.steps {
        println!("  {step:?}");
    }
    let outcome = arguments.run(&plan);
    print!("{}", outcome.history);
    println!("{} calls of the disk, {:?}", outcome.calls, outcome.tally);
    for violation in &outcome.violations {
        println!("VIOLATION {violation}");
    }
    if arguments.shrink && !outcome.violations.is_empty() {
        println!("shrunk: {}", shortest(&plan, &outcome, arguments));
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
            shown: 0,
        }
    }

    fn random(&mut self) {
        let end = self
            .arguments
            .minutes
            .map(|minutes| self.begun + Duration::from_secs(60 * minutes));
        let mut seed = self.arguments.seed;
        while end.map_or(self.tally.cases < self.arguments.cases, |end| {
            Instant::now() < end
        }) {
            let plan = Plan::random(seed, self.arguments.policy, self.arguments.profile);
            self.case(&plan, &format!("seed {seed}"));
            seed += 1;
        }
    }

    fn exhaustive(&mut self, length: usize) {
        let alphabet = if length > 2 {
            Alphabet::Small
        } else {
            Alphabet::Large
        };
        let profiles = [Profile::PosixMin, Profile::Journal, Profile::LogTree];
        for profile in profiles {
            if self
                .arguments
                .profile
                .is_some_and(|wanted| wanted != profile)
            {
                continue;
            }
            for policy in Plan::policies() {
                if self.arguments.policy.is_some_and(|wanted| wanted != policy) {
                    continue;
                }
                for plan in sequences(alphabet, length, policy, profile) {
                    self.case(&plan, "exhaustive");
                }
            }
        }
    }

    fn case(&mut self, plan: &Plan, name: &str) {
        let outcome = self.arguments.run(plan);
        self.tally.add(&outcome.tally);
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
        let shown = if self.arguments.shrink {
            shortest(plan, &outcome, self.arguments)
        } else {
            plan.clone()
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
