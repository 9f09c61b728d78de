//! The event table of the design, row by row and policy by policy, against power cuts.
//!
//! Every event is done over SMB on the weakest disk that POSIX permits (nothing survives a cut but
//! what a sync covered). Then either a FLUSH follows, or time passes, or the server stops; then
//! the power fails, and the disk must hold all of the change, or nothing where nothing was paid
//! for. The whole runs in simulated time.

mod errors;
mod events;
mod order;
mod times;
mod world;

use std::time::Duration;

use smb_client::CreateArgs;
use smb_sim::{Sim, SimServer};
use smb_wire::Status;
use vfs::Env;
use vfs::sim::{Cut, Profile, SimDisk};

use events::{EVENTS, Special, act};
use world::{Actor, Times, contents, flush, prepared, served_with};

/// Long enough that a share whose syncs are not known yet begins none at once.
const BOUNDED: &str = "bounded:1s,4MiB";
const HOST: &str = "treat-host-as-stable-storage";
/// A FLUSH need not store times.
const CHEAP: &str = "honor, flush_times = false";

/// The step between the event and the cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Nothing,
    Flush,
    FullSync,
    FlushRoot,
    /// The client is gone at once, and longer than the bound passes.
    GoneAndLater,
    /// The server stops.
    Stop,
    /// The connection breaks, then the server stops.
    GoneAndStop,
    /// The session logs off, then the server stops.
    LogoffAndStop,
}

/// The part of the changes that a cut leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    All,
    Nothing,
}

/// Policy, write-through opens, what follows, what is left.
const CASES: &[(&str, bool, Then, Left)] = &[
    ("honor", false, Then::Nothing, Left::Nothing),
    ("honor", false, Then::Flush, Left::All),
    ("honor", false, Then::FullSync, Left::All),
    ("honor", false, Then::FlushRoot, Left::All),
    ("honor", false, Then::Stop, Left::All),
    ("honor", true, Then::Nothing, Left::All),
    ("strict-sync", false, Then::Nothing, Left::All),
    (HOST, true, Then::Flush, Left::Nothing),
    (HOST, true, Then::FlushRoot, Left::Nothing),
    (HOST, false, Then::FullSync, Left::All),
    (HOST, false, Then::Stop, Left::All),
    (BOUNDED, true, Then::Flush, Left::Nothing),
    (BOUNDED, false, Then::FullSync, Left::All),
    (BOUNDED, false, Then::GoneAndLater, Left::All),
    (BOUNDED, false, Then::Stop, Left::All),
    ("honor", false, Then::GoneAndStop, Left::All),
    (HOST, false, Then::LogoffAndStop, Left::All),
    (CHEAP, false, Then::Flush, Left::All),
    (CHEAP, true, Then::Nothing, Left::All),
    (CHEAP, false, Then::Stop, Left::All),
];

/// The orderly end of the daemon.
async fn stop(server: &SimServer) -> Status {
    let report = server.server.durability.sync_all().await;
    assert_eq!(report.failed, 0);
    assert_eq!(server.server.durability.dirty_inodes(), 0);
    Status::SUCCESS
}

/// One event in one case, in a share that keeps streams in the depot or not; what is wrong with it.
fn one(
    base: &SimDisk,
    event: (&str, Special),
    case: (&str, bool, Then, Left),
    depot: bool,
) -> Result<(), String> {
    let ((name, special), (policy, through, then, left)) = (event, case);
    let what = format!("{name}, {policy}, write-through {through}, {then:?}, depot {depot}");
    // A write-through WRITE leaves the time to later, and nothing is said of what nobody asked for.
    let times = match (special, left) {
        (Special::Times, _) => Times::All,
        _ if policy == CHEAP && then == Then::Flush => Times::No,
        (_, Left::All) if !through => Times::Written,
        _ => Times::No,
    };
    let mut sim = Sim::new(7);
    let server = served_with(&mut sim, base, policy, depot);
    let env = sim.env();
    sim.run(async {
        let mut it = Actor::enter(&server, through).await;
        let file = act(&mut it, name).await;
        let status = match then {
            Then::Flush | Then::FullSync => it.status(flush(file, then == Then::FullSync)).await,
            Then::FlushRoot => {
                it.through = false;
                let root = it.open(CreateArgs::directory("")).await;
                it.status(flush(root, false)).await
            }
            Then::GoneAndLater => {
                it.client.cut();
                env.sleep(Duration::from_millis(1010)).await;
                Status::SUCCESS
            }
            Then::GoneAndStop => {
                it.client.cut();
                env.sleep(Duration::from_millis(60)).await;
                stop(&server).await
            }
            Then::LogoffAndStop => {
                it.client.logoff().await.unwrap();
                stop(&server).await
            }
            Then::Stop => stop(&server).await,
            Then::Nothing => Status::SUCCESS,
        };
        assert_eq!(status, Status::SUCCESS, "{what}");
    })
    .unwrap();
    let live = contents(server.cut_power(Cut::Everything), times);
    let kept = contents(server.cut_power(Cut::Nothing), times);
    let before = contents(base.cut(Cut::Everything), times);
    sim.kill();
    assert_ne!(live, before, "{what}: nothing happened");
    let wrong = match left {
        Left::All => (kept != live).then_some((&live, "something is lost")),
        Left::Nothing if special.syncs(depot) => None,
        Left::Nothing if special == Special::Renames && policy != HOST => None,
        Left::Nothing => (kept != before).then_some((&before, "nobody asked for that")),
    };
    wrong.map_or(Ok(()), |(wanted, why)| {
        let paths = kept.keys().chain(wanted.keys());
        let differ = paths.filter(|path| kept.get(*path) != wanted.get(*path));
        let told = differ.map(|path| (path, kept.get(path), wanted.get(path)));
        let told: std::collections::BTreeSet<_> = told.collect();
        Err(format!("{what}: {why}: (path, kept, wanted) {told:#?}"))
    })
}

fn all(case: (&str, bool, Then, Left)) {
    let base = prepared(Profile::PosixMin);
    let both = EVENTS
        .iter()
        .flat_map(|event| [(event, false), (event, true)]);
    let wrong: Vec<String> = both
        .filter(|(event, depot)| event.1 != Special::OnlyInDepot || *depot)
        .filter_map(|(event, depot)| one(&base, *event, case, depot).err())
        .collect();
    assert!(
        wrong.is_empty(),
        "{} rows:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

macro_rules! cases {
    ($($name:ident: $index:expr;)+) => {
        $(#[test] fn $name() { all(CASES[$index]); })+

        #[test]
        fn every_case_has_a_test() {
            assert_eq!([$($index),+], std::array::from_fn::<usize, { CASES.len() }, _>(|i| i));
        }
    };
}

cases! {
    honor_marks: 0;
    honor_flushes: 1;
    honor_flushes_fully: 2;
    honor_flushes_the_root: 3;
    honor_syncs_on_stop: 4;
    honor_writes_through: 5;
    strict_needs_no_flush: 6;
    host_ignores_flush_and_write_through: 7;
    host_ignores_a_flush_of_the_root: 8;
    host_honors_a_full_sync: 9;
    host_syncs_on_stop: 10;
    bounded_answers_first: 11;
    bounded_honors_a_full_sync: 12;
    bounded_pays_in_time_without_the_client: 13;
    bounded_syncs_on_stop: 14;
    what_a_lost_client_left_is_synced_on_stop: 15;
    what_a_logoff_closed_is_synced_on_stop: 16;
    honor_flushes_without_times: 17;
    honor_writes_through_without_times: 18;
    honor_syncs_times_on_stop: 19;
}
