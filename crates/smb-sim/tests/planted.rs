//! Each fault planted in the server is found within so many cases on the weakest disk, or by a test
//! of its own, and the same cases pass without it.
#![cfg(feature = "planted-faults")]

use std::{rc::Rc, sync::Arc, time::Instant};

use durability::{Planted, Policy};
use smb_client::{CreateArgs, Options, Signing};
use smb_sim::{
    MemoryOptions, Sim, SimClient, SimServer,
    crashes::{Fault, Neglect, Plan, run_planted},
    memory_disk,
};
use smb_wire::msg::Dialect;
use vfs::{
    Env,
    sim::{Cut, Deceit, FaultAction, Profile, SimOp},
};

/// Within so many cases each fault must show.
const CASES: u64 = 1_000;

/// The first case's seed, 0 unless `PLANTED_FIRST` says otherwise. Any will do: a random case's
/// flavour goes by its number, so that any row of cases asks each question often enough
/// (`crashes/flavour.rs`).
fn first() -> u64 {
    let given = std::env::var("PLANTED_FIRST");
    given.map_or(0, |text| text.parse().expect("PLANTED_FIRST is a number"))
}

fn cases(policy: Policy) -> impl Iterator<Item = Plan> {
    (first()..first() + CASES)
        .map(move |seed| Plan::random(seed, Some(policy), Some(Profile::PosixMin)))
}

/// The test that finds a fault which no case can find.
fn test_of(fault: Fault) -> Option<&'static str> {
    Some(match fault {
        Fault::Store(_) => "a_latch_outlives_a_power_cut",
        Fault::Engine(fault) => match fault {
            // Only the host leaves such a name dirty.
            Planted::DirectoryFlushWithoutParent => {
                "durability: a_flush_of_a_directory_syncs_its_parent"
            }
            // For the oracle, a request without an answer is no promise.
            Planted::FlushBeforeEarlierWrites => "durability: a_flush_covers_the_writes_under_way",
            Planted::FlushBeforeAcceptedWrites => {
                "durability: a_flush_covers_the_writes_that_were_accepted"
            }
            // FLUSH waits for what is under way, so that only a change that begins after it and is
            // answered after the failure will do.
            Planted::WriteBesideFailureTrusted => {
                "durability: a_write_beside_a_failed_sync_is_unproven"
            }
            Planted::ChangeBesideFailureTrusted => {
                "durability: a_change_beside_a_failed_sync_is_unproven"
            }
            // The descriptor that is kept sees the failure once more.
            Planted::FailedThroughTrustsOthers => {
                "durability: a_failed_write_through_leaves_all_that_is_dirty_unproven"
            }
            _ => return None,
        },
        _ => return None,
    })
}

#[test]
fn each_planted_fault_is_found() {
    let mut missed = Vec::new();
    for fault in Fault::all() {
        if let Some(test) = test_of(fault) {
            println!("{fault}: {test}");
            continue;
        }
        let begun = Instant::now();
        let found = cases(fault.policy())
            .position(|plan| !run_planted(&plan, Some(fault)).violations.is_empty());
        println!("{fault}: case {found:?} {:?}", begun.elapsed());
        if found.is_none() {
            missed.push(fault.to_string());
        }
    }
    assert!(
        missed.is_empty(),
        "not found within {CASES} cases: {missed:?}"
    );
}

/// The losses that the oracle finds in so many cases with this fault and with this setting of both shares.
fn losses(fault: Fault, flush_times: bool, count: usize) -> Vec<String> {
    let plans = cases(Policy::Honor).take(count);
    let losses = plans.flat_map(|mut plan| {
        (plan.flush_times, plan.rule_times) = ([flush_times; 2], None);
        run_planted(&plan, Some(fault)).violations
    });
    losses.map(|miss| miss.what).collect()
}

#[test]
fn a_flush_with_times_covers_them_and_one_without_covers_data_size_and_name() {
    let (data, name) = (Deceit::DataSyncSkipped, Deceit::DirectorySyncSkipped);
    let (data, name) = (Fault::Disk(data), Fault::Disk(name));
    let times = Fault::Start(Neglect::TimesLeftOut);
    for (fault, flush_times, miss) in [
        (times, true, "Written of "),
        (data, false, "Object("),
        (data, false, "size of "),
        (name, false, "name "),
    ] {
        let found = losses(fault, flush_times, 300);
        let starts = found.iter().any(|what| what.starts_with(miss));
        assert!(starts, "{fault}: {miss}: {found:?}");
    }
    for (fault, flush_times) in [(times, false), (data, true)] {
        assert_eq!(losses(fault, flush_times, 100), Vec::<String>::new());
    }
}

#[test]
fn without_a_fault_the_same_cases_pass() {
    for policy in Plan::policies() {
        for plan in cases(policy).take(100) {
            let violations = run_planted(&plan, None).violations;
            assert!(violations.is_empty(), "{violations:#?}\n--replay '{plan}'");
        }
    }
}

/// Whether a latch is in force after the power failed, and no client had written again.
fn is_poisoned_after_a_cut(fault: Option<Fault>) -> bool {
    let mut sim = Sim::new(1);
    let env: Arc<dyn Env> = sim.env();
    let plain = || Options::dialect(Dialect::SMB_2_1).signing(Signing::Never);
    let mut options = MemoryOptions {
        signing_required: false,
        planted: fault,
        ..MemoryOptions::default()
    };
    let (disk, state) = (
        memory_disk(&env, 1, &options),
        memory_disk(&env, 2, &options),
    );
    options.state = Some(state.clone());
    let server = Rc::new(SimServer::plain(&mut sim, disk.clone(), &options).unwrap());
    let first = Rc::clone(&server);
    sim.run(async move {
        let mut client = SimClient::enter(&first, plain()).await.unwrap();
        let file = client.create(&CreateArgs::create("f")).await.unwrap();
        client.flush(file).await.unwrap();
        client.write_at(file, 0, &[1; 4096]).await.unwrap();
        first.disk.inject(vfs::sim::Fault {
            on: SimOp::Sync,
            after: 0,
            action: FaultAction::Fail(5),
        });
        client.flush(file).await.unwrap_err();
    })
    .unwrap();
    sim.kill();
    drop(server);
    options.state = Some(state.cut(Cut::Nothing));
    let Ok(server) = SimServer::plain(&mut sim, disk.cut(Cut::Nothing), &options) else {
        // The rest of the store is damaged.
        return false;
    };
    let flushed = sim.run(async {
        let mut client = SimClient::enter(&server, plain()).await.unwrap();
        let file = client.create(&CreateArgs::open("f")).await.unwrap();
        client.flush(file).await
    });
    flushed.unwrap().is_err()
}

#[test]
fn a_latch_outlives_a_power_cut() {
    assert!(is_poisoned_after_a_cut(None));
    for fault in Fault::all().filter(|fault| matches!(fault, Fault::Store(_))) {
        assert!(!is_poisoned_after_a_cut(Some(fault)), "{fault} not found");
    }
}
