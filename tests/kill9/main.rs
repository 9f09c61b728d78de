//! `kill -9` under load: every acknowledged write, handle, lease and lock is back after a restart.
//!
//! ```text
//! cargo run -p smb-tests --bin kill9 -- [--rounds 10] [--clients 4] [--seed 1]
//! ```
//!
//! Clients on a continuously available share hold persistent handles: under a lease, under a batch
//! oplock, under nothing, and all of them on one shared file. They write, lock, unlock, rename, flush,
//! and open and close further handles, until the server is killed at a moment of its own choosing
//! (`client.rs`). It is started again on the same folders. Before anybody is back, nobody else gets
//! the files whose handles nobody caches; then every client comes back and checks what the server
//! had acknowledged to it; then a stranger tries what the locks and leases are there to prevent
//! (`judge.rs`). A request that was not answered may have been carried out or not. The handles live
//! on into the next round.
//!
//! A round in which anything is missing counts as failed. The last line is "N passed, N failed".
//! Traffic stays on 127.0.0.1; the server is ended by its process id.

mod client;
mod judge;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use smb_tests::durable::continuously_available;
use smb_tests::rng::Rng;
use smb_tests::{HoldfastServer, arguments};

use client::Client;

/// Violations of one round that are shown.
const SHOWN_MAX: usize = 10;

struct Asked {
    rounds: u64,
    clients: u64,
    seed: u64,
}

/// The work of the store of handles until the kills.
#[derive(Default)]
struct Store {
    records: u64,
    writes: u64,
}

impl Store {
    fn look(&mut self, server: &HoldfastServer) {
        let status = server.status();
        let store = &status["server"]["handles"]["persistent"];
        self.records += store["records"].as_u64().expect("a number");
        self.writes += store["writes"].as_u64().expect("a number");
    }
}

impl std::fmt::Display for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (records, writes) = (self.records, self.writes);
        write!(
            f,
            "the store: {records} changes of handles in {writes} durable writes"
        )
    }
}

/// The server and its clients.
struct Run {
    server: HoldfastServer,
    clients: Vec<Client>,
    rng: Rng,
    store: Store,
    /// From the kills until it listens again.
    down: Duration,
}

impl Run {
    /// Load, a kill, a restart; what is wrong afterwards.
    fn round(&mut self) -> Vec<String> {
        let span = Duration::from_millis(20 + self.rng.below(200));
        let (server, clients) = (&mut self.server, &mut self.clients);
        std::thread::scope(|scope| {
            for client in clients.iter_mut() {
                scope.spawn(|| client.load());
            }
            std::thread::sleep(span);
            self.store.look(server);
            let begun = Instant::now();
            server.kill_and_restart();
            self.down += begun.elapsed();
        });
        let mut wrong = Vec::new();
        let said = |clients: &mut Vec<Client>, wrong: &mut Vec<String>| {
            for client in clients {
                wrong.append(&mut client.wrong);
            }
        };
        said(clients, &mut wrong);
        judge::before_anybody_is_back(server, clients, &mut wrong);
        std::thread::scope(|scope| {
            for client in clients.iter_mut() {
                let server = &*server;
                scope.spawn(move || client.come_back(server));
            }
        });
        said(clients, &mut wrong);
        if wrong.is_empty() {
            judge::others_are_kept_out(server, clients, &mut wrong);
        }
        judge::nothing_else_is_there(server, clients, &mut wrong);
        wrong
    }
}

fn asked() -> Asked {
    let mut asked = Asked {
        rounds: 10,
        clients: 4,
        seed: 1,
    };
    arguments::each(
        "kill9 [--rounds N] [--clients N] [--seed N]",
        |word, value| {
            match word {
                "--rounds" => asked.rounds = value.parse().ok()?,
                "--clients" => asked.clients = value.parse::<u64>().ok()?.clamp(1, 60),
                "--seed" => asked.seed = value.parse().ok()?,
                _ => return None,
            }
            Some(())
        },
    );
    asked
}

fn main() -> ExitCode {
    let asked = asked();
    let server = continuously_available();
    let rng = Rng::new(asked.seed);
    let clients: Vec<Client> = (0..asked.clients)
        .map(|number| Client::new(&server, number, asked.seed))
        .collect();
    let mut run = Run {
        server,
        clients,
        rng,
        store: Store::default(),
        down: Duration::ZERO,
    };
    let (mut passed, mut failed) = (0u64, 0u64);
    for round in 1..=asked.rounds {
        let wrong = run.round();
        if wrong.is_empty() {
            passed += 1;
            continue;
        }
        failed += 1;
        println!("FAIL round {round}:");
        for what in wrong.iter().take(SHOWN_MAX) {
            println!("  {what}");
        }
        // Anything missing now would be missing in every round to come.
        break;
    }
    let mut sum = client::Counts::default();
    for client in &run.clients {
        sum.add(&client.counts);
    }
    println!("{sum}");
    if failed == 0
        && [
            sum.back,
            sum.blocks_checked,
            sum.locks_checked,
            sum.leases_checked,
        ]
        .contains(&0)
    {
        println!("FAIL: nothing was there to lose: the run proves nothing");
        failed += 1;
    }
    println!("{}", run.store);
    if passed + failed > 0 {
        let each = run.down.as_millis() / u128::from(passed + failed);
        println!("killed and listening again: {each} ms on average");
    }
    println!("{passed} passed, {failed} failed");
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
