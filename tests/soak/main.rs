//! Mixed load for a long time: memory, descriptors and tables of the server have to stay flat.
//!
//! ```text
//! cargo run -p smb-tests --bin soak -- --minutes 60 [--clients 8] [--load 25] [--seed 1] [--every 10]
//! ```
//!
//! Clients of several dialects, signed and encrypted, come, open, write, read, lock, watch, cache,
//! bind second channels, and go: some in order, some by dropping the connection with everything
//! open (`life.rs`). The host changes files meanwhile. `--load` is the processor time that server
//! and clients may take together, in percent of one core; the pauses between requests follow it during the warm-up,
//! a fifth of the time, and stay as they are afterwards, so that a machine that becomes less busy gets no more load.
//!
//! Every `--every` seconds the server is looked at (`tests/support/sample.rs`); after the warm-up the figures have to
//! be flat, and when everybody is gone nothing may be left
//! (`tests/support/judge.rs` has the tolerances). Exit status 0 if so. Traffic stays on 127.0.0.1.

mod life;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use smb_tests::judge::{self, Verdict};
use smb_tests::rng::Rng;
use smb_tests::sample::Sampler;
use smb_tests::{HoldfastServer, Options, arguments};

use life::World;

/// How long what is left by those who crashed may take to go: durable opens have a time-out.
const DRAIN_MAX: Duration = Duration::from_secs(90);

/// The arguments.
struct Asked {
    minutes: f64,
    clients: u64,
    load: f64,
    seed: u64,
    every: f64,
}

fn asked() -> Asked {
    let mut asked = Asked {
        minutes: 1.0,
        clients: 8,
        load: 25.0,
        seed: 1,
        every: 10.0,
    };
    arguments::each(
        "soak --minutes N [--clients N] [--load PERCENT] [--seed N] [--every S]",
        |word, value| {
            match word {
                "--minutes" => asked.minutes = value.parse().ok()?,
                "--clients" => asked.clients = value.parse().ok()?,
                "--load" => asked.load = value.parse().ok()?,
                "--seed" => asked.seed = value.parse().ok()?,
                "--every" => asked.every = value.parse().ok()?,
                _ => return None,
            }
            Some(())
        },
    );
    asked
}

fn main() -> ExitCode {
    let asked = asked();
    // All clients have one address: the wrong passwords of some would lock out the others.
    let options = Options {
        tables: "[limits]\nfailed_logins = 10000\n".to_owned(),
        ..Options::default()
    };
    let server = HoldfastServer::start(&options);
    if soak(&server, &asked) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn soak(server: &HoldfastServer, asked: &Asked) -> bool {
    let world = World::new(server);
    let stop = AtomicBool::new(false);
    let pause = AtomicU64::new(20_000);
    let mut sampler = Sampler::new(server);
    // The first requests on each worker make things that stay: threads, rings, pipes.
    for _ in 0..8 {
        server.assert_serving();
    }
    std::thread::sleep(Duration::from_secs(1));
    let idle = sampler.sample();
    println!(
        "seed {}, {} clients, {} minutes",
        asked.seed, asked.clients, asked.minutes
    );
    println!("before anybody came: {idle}");
    std::thread::scope(|scope| {
        for number in 0..asked.clients {
            let (world, stop, pause) = (&world, &stop, &pause);
            let mut rng = Rng::new(asked.seed.wrapping_mul(1_000) + number);
            scope.spawn(move || life::lives(world, number, &mut rng, stop, pause));
        }
        let (world, stop, pause) = (&world, &stop, &pause);
        let mut rng = Rng::new(asked.seed ^ 0x5eed);
        scope.spawn(move || life::host(world, &mut rng, stop, pause));
        observe(&mut sampler, asked, pause);
        stop.store(true, Ordering::SeqCst);
    });
    let mut verdict = Verdict::default();
    println!("{}", world.tally());
    for failure in world.failures() {
        verdict.fail(format!("a client failed: {failure}"));
    }
    let (tried, refused) = world.deeds();
    if refused * 2 >= tried {
        verdict.fail(format!("no load: {tried} deeds, {refused} refused"));
    }
    judge::flat(sampler.samples(), &mut verdict);
    let end = Instant::now() + DRAIN_MAX;
    let left = loop {
        let now = sampler.sample();
        let left = judge::left(&idle, &now);
        if left.is_empty() || Instant::now() > end {
            println!("after everybody left: {now}");
            break left;
        }
        std::thread::sleep(Duration::from_secs(1));
    };
    if !left.is_empty() {
        println!("descriptors:\n{}", sampler.descriptors());
    }
    for what in left {
        verdict.fail(format!("left when everybody was gone: {what}"));
    }
    server.assert_serving();
    verdict.print()
}

/// Samples until the time is over, and brings the load near what was asked during the warm-up.
fn observe(sampler: &mut Sampler<'_>, asked: &Asked, pause: &AtomicU64) {
    let whole = Duration::from_secs_f64(asked.minutes * 60.0);
    let begun = Instant::now();
    let (warm, end) = (begun + whole.mul_f64(judge::WARM_UP), begun + whole);
    while Instant::now() < end {
        let left = end.saturating_duration_since(Instant::now());
        std::thread::sleep(Duration::from_secs_f64(asked.every).min(left));
        let sample = sampler.sample();
        println!("{sample}");
        if Instant::now() < warm {
            let was = pause.load(Ordering::Relaxed) as f64;
            let factor = (sample.load / asked.load).clamp(0.5, 2.0);
            // Slowly: one sample says little.
            let next = (was * factor.sqrt()).clamp(500.0, 2_000_000.0);
            pause.store(next as u64, Ordering::Relaxed);
        }
        sampler.keep(sample);
    }
}
