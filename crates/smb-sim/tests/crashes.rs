//! Crash cases: every policy on every profile of the disk, judged by the oracle.
//!
//! `crates/smb-sim/long-run` runs many more, optimised. A case that failed once is stored as a line in
//! `regressions.txt` and replayed here.

use std::{cell::RefCell, collections::BTreeSet};

use proptest::{
    prelude::*,
    test_runner::{Config, TestCaseError, TestRunner},
};
use smb_sim::crashes::{
    Alphabet, Crash, End, Kind, Mischief, Outcome, Plan, Step, Tally, Trouble, run, sequences,
    sequences_count, shrink,
};
use smb_sim::oracle::WANTED;
use vfs::sim::{Cut, Profile};

/// Seeds for the profile that gates, and for each of the others; `long-run` plays more of them, optimised.
const SEEDS: u64 = 150;
const SEEDS_OTHER: u64 = 60;
/// Seeds under `honor` in which events have to meet: so many as a planted fault has to be found in.
const SEEDS_MEETINGS: u64 = 1_000;

/// Runs a plan; what fails is shrunk and shown with the command that replays it.
fn holds(plan: &Plan) -> Outcome {
    let outcome = run(plan);
    if let Some(first) = outcome.violations.first() {
        let rule = first.rule;
        let shrunk = shrink(plan, |candidate| {
            run(candidate).violations.iter().any(|v| v.rule == rule)
        });
        let violations = run(&shrunk).violations;
        panic!(
            "{violations:#?}\n{:#?}\ncargo run -p smb-sim --bin holdfast-sim -- --replay '{shrunk}'",
            shrunk.steps
        );
    }
    outcome
}

/// Planned events must also happen.
fn assert_meaning(tally: &Tally) {
    assert!(tally.done > 3 * tally.cases, "{tally:?}");
    assert!(tally.promises > tally.cases / 2, "{tally:?}");
    assert!(tally.lossy > tally.cases / 10, "{tally:?}");
    assert!(tally.failed_syncs > 0, "{tally:?}");
    assert!(tally.refused < tally.done / 10, "{tally:?}");
}

#[test]
fn promises_are_kept_on_the_weakest_disk() {
    let mut tally = Tally::default();
    for seed in 0..SEEDS {
        let plan = Plan::random(seed, None, Some(Profile::PosixMin));
        tally.add(&holds(&plan).tally);
    }
    assert_meaning(&tally);
}

#[test]
fn every_wanted_pair_of_events_meets_on_one_inode() {
    let mut tally = Tally::default();
    let mut wanted = Vec::from(WANTED);
    for seed in 0..SEEDS_MEETINGS {
        let honor = Plan::policies()[0];
        tally.add(&holds(&Plan::random(seed, Some(honor), Some(Profile::PosixMin))).tally);
        wanted.retain(|pair| tally.meetings.get(pair).is_none_or(|met| *met == 0));
        if wanted.is_empty() {
            return;
        }
    }
    panic!("never met on one inode: {wanted:?}");
}

#[test]
fn promises_are_kept_on_journals_and_log_trees() {
    for profile in [Profile::Journal, Profile::LogTree] {
        for seed in 0..SEEDS_OTHER {
            holds(&Plan::random(seed, None, Some(profile)));
        }
    }
}

#[test]
fn every_short_sequence_with_every_flush_keeps_its_promise() {
    for policy in Plan::policies() {
        for plan in sequences(Alphabet::Large, 1, policy, Profile::PosixMin) {
            holds(&plan);
        }
    }
}

#[test]
fn the_number_of_sequences_is_reported_before_they_are_made() {
    for alphabet in [Alphabet::Small, Alphabet::Large] {
        for length in 0..=2 {
            let all = sequences(alphabet, length, Plan::policies()[0], Profile::PosixMin);
            assert_eq!(all.count(), sequences_count(alphabet, length));
        }
    }
}

/// A file that a rule holds to `strict-sync` on a share that promises nothing, and the other way.
#[test]
fn rules_and_policies_that_are_set_keep_their_promise() {
    let [honor, _, _, host] = Plan::policies();
    let policy = |number: u8| Step::new(Kind::Policy, 0, 0, 0).with(number, 0);
    let create = |file: u8, name: u8| Step::new(Kind::Create, 0, file, 0).with(name, 0);
    let write = |file: u8| Step::new(Kind::Write, 0, file, 0).with(0, 0x80);
    for (first, rules, steps) in [
        (host, 1, vec![create(0, 0), write(0)]),
        (host, 2, vec![create(0, 3).flagged(), write(0)]),
        (host, 0, vec![create(0, 0), write(0), policy(0), write(0)]),
        (honor, 1, vec![create(0, 1), write(0), policy(1), write(0)]),
        (host, 3, vec![create(0, 2), write(0), policy(2), write(0)]),
    ] {
        let mut plan = Plan::empty(1, first, Profile::PosixMin);
        plan.rules = rules;
        plan.steps = steps;
        let done = holds(&plan);
        for call in 0..done.calls {
            plan.end = End::Call(call);
            holds(&plan);
        }
    }
}

/// Each share has a policy of its own, and files are open through both.
#[test]
fn two_shares_over_one_folder_keep_their_promises() {
    let mut charged_beside = 0;
    for policy in Plan::policies() {
        for seed in 0..SEEDS_OTHER {
            let mut plan = Plan::random(seed, None, Some(Profile::PosixMin));
            plan.add_share(policy, seed);
            charged_beside += u64::from(holds(&plan).history.charges_beside());
        }
    }
    assert!(charged_beside > SEEDS_OTHER / 2, "{charged_beside}");
}

/// The second share lies over a folder of the first, which clients of the first move and fill.
#[test]
fn a_share_over_a_folder_of_another_one_keeps_its_promises() {
    for policy in Plan::policies() {
        for seed in 0..SEEDS_OTHER {
            let mut plan = Plan::random(seed, None, Some(Profile::PosixMin));
            plan.add_share(policy, seed);
            plan.nest(true);
            holds(&plan);
        }
    }
}

/// A reload removes a share through which a client has a dirty file open, and another one brings it back with another
/// policy. Everything from before is stable by then.
#[test]
fn a_share_that_comes_back_has_lost_nothing() {
    let [honor, _, bounded, host] = Plan::policies();
    for (first, next) in [(host, 0), (host, 3), (bounded, 5), (honor, 3)] {
        let mut plan = Plan::empty(1, first, Profile::PosixMin);
        plan.steps = vec![
            Step::new(Kind::Create, 0, 0, 0),
            Step::new(Kind::Write, 0, 0, 0).with(0, 0x80),
            Step::new(Kind::Reload, 0, 0, 0).with(next, 9).flagged(),
            Step::new(Kind::Write, 0, 0, 0).with(1, 0x80),
        ];
        let done = holds(&plan);
        let history = done.history.to_string();
        assert!(history.contains("stable: Some"), "{history}");
        for call in 0..done.calls {
            plan.end = End::Call(call);
            holds(&plan);
        }
    }
}

/// A directory that a flushed file left for a new one is flushed, or the file is: wherever that
/// ends, the file is found where it was or where it went.
#[test]
fn a_flushed_file_that_moves_into_a_new_directory_is_never_gone() {
    let flushed = [
        Step::new(Kind::FlushDir, 0, 0, 1),
        Step::new(Kind::Flush, 0, 0, 0),
        Step::new(Kind::FlushRoot, 0, 0, 0),
    ];
    for (profile, last) in [Profile::PosixMin, Profile::Journal, Profile::LogTree]
        .into_iter()
        .flat_map(|profile| flushed.map(|last| (profile, last)))
    {
        let mut plan = Plan::empty(1, Plan::policies()[0], profile);
        plan.steps = vec![
            Step::new(Kind::MakeDir, 0, 0, 1).with(0, 0),
            Step::new(Kind::Create, 0, 0, 1).with(1, 0),
            Step::new(Kind::Write, 0, 0, 0),
            Step::new(Kind::Flush, 0, 0, 0),
            Step::new(Kind::MakeDir, 0, 0, 2).with(0, 2),
            Step::new(Kind::Rename, 0, 0, 2).with(0, 3),
            last,
        ];
        let done = holds(&plan);
        assert!(done.tally.done >= 6, "{:?}", done.tally);
        for call in 0..done.calls {
            plan.end = End::Call(call);
            holds(&plan);
        }
    }
}

#[test]
fn a_plan_gives_the_same_run_every_time() {
    let mut histories = BTreeSet::new();
    for seed in 0..40 {
        let plan = Plan::random(seed, None, None);
        let (one, two) = (run(&plan), run(&plan));
        assert_eq!(one.history.to_string(), two.history.to_string());
        assert_eq!(one.calls, two.calls);
        histories.insert(one.history.to_string());
    }
    assert!(histories.len() > 30);
}

#[test]
fn a_plan_is_a_line_of_text() {
    for seed in 0..200 {
        let plan = Plan::random(seed, None, None);
        assert_eq!(plan.to_string().parse::<Plan>(), Ok(plan));
    }
    assert!("seed=1 nonsense".parse::<Plan>().is_err());
    assert!("steps=0001".parse::<Plan>().is_ok());
    assert!("policy=none".parse::<Plan>().is_err());
}

#[test]
fn what_failed_once_is_replayed() {
    let lines = include_str!("regressions.txt").lines();
    for line in lines.filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        holds(&line.parse().unwrap());
    }
}

/// Steps and surroundings from proptest, so that it can shrink them.
#[test]
fn promises_are_kept_whatever_proptest_thinks_of() {
    // All but a failed write-back and the death of the process, 23 and 24.
    let steps = proptest::collection::vec((0_u8..25, any::<[u8; 3]>()), 5..40);
    let around = (
        any::<u64>(),
        (0_usize..4, 0_u8..4),
        1_usize..4,
        0_u32..400,
        any::<u64>(),
    );
    let trouble = proptest::option::of((0_u8..4, 0_u16..12));
    let config = Config {
        cases: 150,
        failure_persistence: None,
        ..Config::default()
    };
    let worst = RefCell::new(String::new());
    let result =
        TestRunner::new(config).run(&(steps, around, trouble), |(steps, around, trouble)| {
            let (seed, (policy, rules), clients, end, cut) = around;
            let mut plan = Plan::empty(seed, Plan::policies()[policy], Profile::PosixMin);
            plan.clients = clients;
            plan.rules = rules;
            plan.end = End::Call(end);
            plan.crash = Crash::Power(if cut % 3 == 0 {
                Cut::Nothing
            } else {
                Cut::Seed(cut)
            });
            plan.steps = steps
                .into_iter()
                .map(|(kind, rest)| (kind + if kind < 23 { 0 } else { 2 }, rest))
                .map(|(kind, [a, b, c])| Step([kind, a, b, c]))
                .collect();
            plan.troubles = trouble
                .into_iter()
                .map(|(what, after)| Trouble {
                    what: match what {
                        0 => Mischief::Sync(libc::EIO),
                        1 => Mischief::Write(libc::ENOSPC),
                        2 => Mischief::Short,
                        _ => Mischief::SlowSync,
                    },
                    after,
                })
                .collect();
            let outcome = run(&plan);
            let Some(violation) = outcome.violations.first() else {
                return Ok(());
            };
            *worst.borrow_mut() = plan.to_string();
            Err(TestCaseError::fail(violation.to_string()))
        });
    if let Err(error) = result {
        panic!("{error}\n--replay '{}'", worst.take());
    }
}

/// The regression file's bugs need their tests to be able to fail: shrinking keeps the failure.
#[test]
fn shrinking_keeps_what_matters() {
    let plan = Plan::random(3, None, Some(Profile::PosixMin));
    let wanted = |plan: &Plan| plan.steps.len() >= 3;
    assert_eq!(shrink(&plan, wanted).steps.len(), 3);
}
