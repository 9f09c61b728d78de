//! A well-behaved client's waits while another client attacks the server.
//!
//! ```text
//! cargo run --release -p smb-tests --bin attacks [-- --seconds 5] [--only NAME] [--table FILE]
//! ```
//!
//! One after the other, each attack of `attack.rs` runs for `--seconds` against a server of its
//! own, with the processor time of this machine shared by both clients and the server. Meanwhile a
//! client of another user and another address (`victim.rs`) does a little of everything. Its longest
//! wait is bounded by [`LONGEST`], and nothing may be refused to it. Exit status 0 if so for
//! every attack. Traffic stays on 127.0.0.0/8.

mod attack;
mod victim;

use std::{
    fmt::Write as _,
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use smb_tests::{HoldfastServer, Options, arguments};

use attack::{ATTACKS, Attack, Target};
use victim::Waits;

/// No request of the well-behaved client may wait longer.
const LONGEST: Duration = Duration::from_secs(1);
/// Before the waits count: the attack has to be under way.
const WARM_UP: Duration = Duration::from_millis(500);

struct Asked {
    seconds: f64,
    only: Option<String>,
    table: Option<String>,
}

fn asked() -> Asked {
    let mut asked = Asked {
        seconds: 5.0,
        only: None,
        table: None,
    };
    arguments::each(
        "attacks [--seconds N] [--only NAME] [--table FILE]",
        |word, value| {
            match word {
                "--seconds" => asked.seconds = value.parse().ok()?,
                "--only" => asked.only = Some(value),
                "--table" => asked.table = Some(value),
                _ => return None,
            }
            Some(())
        },
    );
    asked
}

fn main() -> ExitCode {
    let asked = asked();
    let time = Duration::from_secs_f64(asked.seconds);
    let mut table = String::from(
        "| attack | requests | p50 ms | p99 ms | longest ms | refused |\n|---|--:|--:|--:|--:|--:|\n",
    );
    let mut failed = 0;
    let wanted = |attack: &&Attack| asked.only.as_deref().is_none_or(|only| only == attack.name);
    for attack in ATTACKS.iter().filter(wanted) {
        let (waits, steps) = measure(attack, time);
        let late = !waits.refused.is_empty() || waits.longest() >= LONGEST || waits.count() == 0;
        // A client that nobody disturbs does not wait.
        let idle = attack.threads > 0 && steps == 0;
        failed += u32::from(late || idle);
        let row = row(attack.name, &waits);
        let why = match (late, idle) {
            (_, true) => "NO ATTACK: ",
            (true, _) => "TOO LONG OR REFUSED: ",
            _ => "",
        };
        print!("{why}{row}");
        for refusal in waits.refused.iter().take(5) {
            println!("    {refusal}");
        }
        table.push_str(&row);
    }
    if let Some(file) = asked.table
        && let Err(error) = std::fs::write(&file, table)
    {
        eprintln!("{file}: {error}");
        return ExitCode::FAILURE;
    }
    ExitCode::from(u8::from(failed > 0))
}

fn row(name: &str, waits: &Waits) -> String {
    let mut row = String::new();
    let ms = |wait: Duration| wait.as_secs_f64() * 1e3;
    let (p50, p99, longest) = (
        waits.percentile(0.5),
        waits.percentile(0.99),
        waits.longest(),
    );
    // Writing to a string cannot fail.
    let _ = writeln!(
        row,
        "| {name} | {} | {:.1} | {:.1} | {:.1} | {} |",
        waits.count(),
        ms(p50),
        ms(p99),
        ms(longest),
        waits.refused.len()
    );
    row
}

/// The waits of the client, and the steps of the attack.
fn measure(attack: &Attack, time: Duration) -> (Waits, u64) {
    let server = HoldfastServer::start(&Options {
        tables: attack.tables.to_owned(),
        ..Options::default()
    });
    let target = Target::new(&server);
    (attack.prepare)(&target);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..attack.threads {
            let (target, stop) = (&target, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    (attack.run)(target, number, stop);
                    // The server may have closed the connection: an attacker comes again.
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
        }
        let victim = scope.spawn(|| victim::live(&server, WARM_UP, time));
        let waits = victim.join();
        stop.store(true, Ordering::Relaxed);
        (waits.unwrap_or_default(), target.steps())
    })
}
