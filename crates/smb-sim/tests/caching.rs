//! Two or three clients with oplocks and leases on few files, from a seed: they open, read, write, rename, list and
//! close at random, acknowledge late or never, and lose connections.
//!
//! A client believes the messages it gets. After every step no two beliefs contradict each other, and every break
//! concerns something that its client was granted before (breaks never overtake). At the end every request has its
//! one answer, no client's cached data differ from the disk, and nothing is left open.
//!
//! `SEED=n cargo test -p smb-sim --test caching one_seed -- --nocapture` replays one seed, `SEEDS=10000 cargo test
//! -p smb-sim --test caching` runs more than CI does.

#[path = "caching/player.rs"]
mod player;
#[path = "caching/requests.rs"]
mod requests;
#[path = "caching/world.rs"]
mod world;

use world::World;

/// Seeds of a run in CI: some 6 s on one core.
const SEEDS: u64 = 250;

fn run(seed: u64, told: bool) -> world::Tally {
    let mut sim = smb_sim::Sim::new(seed);
    World::run(&mut sim, told)
}

#[test]
fn caches_never_contradict() {
    let seeds = std::env::var("SEEDS").map_or(SEEDS, |seeds| seeds.parse().unwrap());
    let mut all = world::Tally::default();
    for seed in 0..seeds {
        let outcome = std::panic::catch_unwind(|| run(seed, false));
        match outcome {
            Ok(tally) => all.add(&tally),
            Err(_) => panic!("SEED={seed}"),
        }
    }
    println!("{seeds} seeds: {all:?}");
    // The runs must have had something to get wrong.
    assert!(all.grants > 10 * seeds && all.breaks > 3 * seeds, "{all:?}");
    assert!(all.compared > seeds / 4 && all.cuts > seeds / 4, "{all:?}");
}

/// Replays one seed.
#[test]
fn one_seed() {
    if let Ok(seed) = std::env::var("SEED") {
        println!("{:?}", run(seed.parse().unwrap(), true));
    }
}

#[test]
fn a_seed_replays() {
    assert_eq!(run(7, false), run(7, false));
}
