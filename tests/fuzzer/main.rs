//! Random sequences of all commands, by several users over several connections: against the daemon
//! and against the server in the simulator.
//!
//! ```text
//! cargo run -p smb-tests --bin fuzzer -- [--minutes 1] [--seed 1] [--only daemon|simulator] [--cases N]
//! ```
//!
//! A case (`case.rs`) is decided by its seed: two to eight connections of all dialects, signed,
//! sealed and plain, on which three users who are different local users send a few hundred requests
//! (`generate.rs`), of which some are spoilt (`spoil.rs`), on names that are theirs, everybody's, and
//! somebody else's. The time is shared between the two worlds.
//!
//! Asserted (`judge.rs`): nothing panics, nothing hangs, each request gets one final answer, the
//! sandbox refuses no system call, memory and descriptors stay flat and are given back. Every user's
//! private files contain his marker; no answer to anybody else may, and in the end of each case
//! these files are what they were, with their descriptors and times.
//!
//! A case of the simulator is the same for the same seed, byte for byte; against the daemon the
//! requests are alike, and what is left by the cases before matters. `--seed` and `--cases 1` with
//! `--only` repeat a case. Exit status 0 if nothing was found. Traffic stays on 127.0.0.1.

mod case;
mod connection;
mod daemon;
mod generate;
mod history;
mod judge;
mod simulator;
mod spoil;
mod world;

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::process::ExitCode;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use smb_sim::Sim;
use smb_tests::arguments;
use smb_tests::judge::{Verdict, flat, left};
use smb_tests::sample::{Sample, Sampler};

use daemon::Daemon;
use history::{History, Tally};
use simulator::Simulator;
use world::World;

/// How long what clients left may take to go.
const DRAIN_MAX: Duration = Duration::from_secs(60);
/// Between two looks at the daemon's memory, and two lines that say how far it is.
const SAMPLES: Duration = Duration::from_millis(500);
/// Memory the daemon may have kept in the end: pools and receive buffers of its threads.
const MEMORY_LEFT_KIB: f64 = 65_536.0;
/// From so many requests on every command has to have succeeded once: a fuzzer whose requests are
/// all refused finds nothing.
const MANY: u64 = 20_000;

/// The arguments.
struct Asked {
    minutes: f64,
    seed: u64,
    only: Option<String>,
    cases: u64,
}

fn asked() -> Asked {
    let mut asked = Asked {
        minutes: 1.0,
        seed: 1,
        only: None,
        cases: u64::MAX,
    };
    arguments::each(
        "fuzzer [--minutes N] [--seed N] [--only daemon|simulator] [--cases N]",
        |word, value| {
            match word {
                "--minutes" => asked.minutes = value.parse().ok()?,
                "--seed" => asked.seed = value.parse().ok()?,
                "--cases" => asked.cases = value.parse().ok()?,
                "--only" if ["daemon", "simulator"].contains(&value.as_str()) => {
                    asked.only = Some(value)
                }
                _ => return None,
            }
            Some(())
        },
    );
    asked
}

fn main() -> ExitCode {
    let asked = asked();
    let both = if asked.only.is_none() { 2.0 } else { 1.0 };
    let span = Duration::from_secs_f64(asked.minutes * 60.0 / both);
    let mut verdict = Verdict::default();
    let is = |name| asked.only.as_deref().is_none_or(|only| only == name);
    if is("simulator") {
        simulator(&asked, span, &mut verdict);
    }
    if is("daemon") {
        daemon(&asked, span, &mut verdict);
    }
    if verdict.print() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs a future that never waits: all waiting here is the thread's.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
    }
}

/// Describes a finding, with all that is needed to find it again.
fn found(world: &str, seed: u64, why: &str, history: &History) -> String {
    format!(
        "{why}\n  again: fuzzer --only {world} --seed {seed} --cases 1\n{}",
        history.text()
    )
}

fn end(world: &str, tally: &Tally, verdict: &mut Verdict) {
    println!("{world}: {}", tally.text());
    if tally.requests > MANY {
        for command in tally.idle() {
            verdict.fail(format!("{world}: no {command} succeeded"));
        }
    }
}

fn simulator(asked: &Asked, span: Duration, verdict: &mut Verdict) {
    let mut tally = Tally::default();
    let begun = Instant::now();
    for seed in (asked.seed..).take(usize::try_from(asked.cases).unwrap_or(usize::MAX)) {
        if begun.elapsed() > span {
            break;
        }
        let mut history = History::new(asked.cases == 1);
        let run = AssertUnwindSafe(|| simulated(seed, &mut history, &mut tally));
        let outcome = catch_unwind(run).unwrap_or_else(|_| Err("a panic, see above".to_owned()));
        if let Err(why) = outcome {
            verdict.fail(found("simulator", seed, &why, &history));
            break;
        }
    }
    println!("simulator: seeds from {}", asked.seed);
    end("simulator", &tally, verdict);
}

fn simulated(seed: u64, history: &mut History, tally: &mut Tally) -> Result<(), String> {
    let mut sim = Sim::new(seed);
    let mut world = Simulator::new(&mut sim)?;
    let outcome = sim.run(async {
        case::prepare(&mut world).await?;
        let before = world.vault().await;
        case::run(&mut world, seed, &before, history, tally).await
    });
    outcome.map_err(|stuck| format!("the simulation is stuck: {stuck}"))?
}

fn daemon(asked: &Asked, span: Duration, verdict: &mut Verdict) {
    if !rustix::process::geteuid().is_root() {
        smb_tests::missing("root: all users are one on disk");
        return;
    }
    let mut world = Daemon::new();
    let mut tally = Tally::default();
    if let Err(why) = now(case::prepare(&mut world)) {
        verdict.fail(why);
        return;
    }
    let before = now(world.vault());
    // The first requests on each worker make things that stay: threads, rings, pipes.
    for _ in 0..8 {
        world.server.assert_serving();
    }
    std::thread::sleep(Duration::from_secs(1));
    let server = Rc::clone(&world.server);
    let mut sampler = Sampler::new(&server);
    let begun = Instant::now();
    let idle = sampler.sample();
    let mut looked = Instant::now();
    for seed in (asked.seed..).take(usize::try_from(asked.cases).unwrap_or(usize::MAX)) {
        if begun.elapsed() > span {
            break;
        }
        let mut history = History::new(asked.cases == 1);
        let outcome = now(case::run(
            &mut world,
            seed,
            &before,
            &mut history,
            &mut tally,
        ));
        if let Err(why) = outcome.and_then(|()| world.log()) {
            verdict.fail(found("daemon", seed, &why, &history));
            break;
        }
        if looked.elapsed() > SAMPLES {
            looked = Instant::now();
            let sample = sampler.sample();
            sampler.keep(sample);
        }
    }
    println!("daemon: seeds from {}", asked.seed);
    end("daemon", &tally, verdict);
    if asked.cases == u64::MAX {
        flat(sampler.samples(), verdict);
    }
    // Handles that clients might come back for: nobody will.
    for user in &world::USERS {
        let _none = server.close_user(user.name);
    }
    gone(&mut sampler, &idle, verdict);
    if let Err(why) = world.log() {
        verdict.fail(why);
    }
}

/// Whether the daemon has given back what the clients had.
fn gone(sampler: &mut Sampler<'_>, idle: &Sample, verdict: &mut Verdict) {
    let end = Instant::now() + DRAIN_MAX;
    loop {
        let now = sampler.sample();
        let mut what = left(idle, &now);
        let anonymous = |sample: &Sample| sample.values.get("anon_kib").copied();
        let (before, after) = (anonymous(idle), anonymous(&now));
        if after.unwrap_or(0.0) > before.unwrap_or(0.0) + MEMORY_LEFT_KIB {
            what.push(format!("anon_kib: {after:?}, before {before:?}"));
        }
        if what.is_empty() || Instant::now() > end {
            println!("before anybody came: {idle}\nafter everybody left: {now}");
            for what in what {
                verdict.fail(format!("left when everybody was gone: {what}"));
            }
            return;
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}
