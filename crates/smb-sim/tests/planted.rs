//! Each fault planted in the durability engine is found within a hundred cases on the weakest
//! disk, and the same cases pass without it.
#![cfg(feature = "planted-faults")]

use durability::{Planted, Policy};
use smb_sim::crashes::{Plan, run_planted};
use vfs::sim::Profile;

/// Within so many cases each fault must show.
const CASES: u64 = 100;

/// The first case's seed, 0 unless `PLANTED_FIRST` says otherwise. Any will do: a random case's
/// flavour goes by its number, so that any hundred in a row ask each question often enough
/// (`crashes/flavour.rs`).
fn first() -> u64 {
    let given = std::env::var("PLANTED_FIRST");
    given.map_or(0, |text| text.parse().expect("PLANTED_FIRST is a number"))
}

/// The policy whose promise the fault breaks.
fn policy(fault: Planted) -> Policy {
    match fault {
        Planted::BoundExceeded => Plan::policies()[2],
        _ => Policy::Honor,
    }
}

fn cases(policy: Policy) -> impl Iterator<Item = Plan> {
    (first()..first() + CASES)
        .map(move |seed| Plan::random(seed, Some(policy), Some(Profile::PosixMin)))
}

#[test]
fn each_planted_fault_is_found() {
    let mut missed = Vec::new();
    for fault in Planted::ALL {
        let found = cases(policy(fault))
            .position(|plan| !run_planted(&plan, Some(fault)).violations.is_empty());
        println!("{fault:?}: case {found:?}");
        if found.is_none() {
            missed.push(fault);
        }
    }
    assert!(
        missed.is_empty(),
        "not found within {CASES} cases: {missed:?}"
    );
}

#[test]
fn without_a_fault_the_same_cases_pass() {
    for policy in Plan::policies() {
        for plan in cases(policy) {
            let violations = run_planted(&plan, None).violations;
            assert!(violations.is_empty(), "{violations:#?}\n--replay '{plan}'");
        }
    }
}
