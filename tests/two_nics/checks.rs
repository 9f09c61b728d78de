//! Checks what clients on two interfaces have to see of each other.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use serde_json::Value;
use smb_client::{Break, Client, CreateArgs, Login, Options, Session, Signing, Tree};
use smb_tests::{DATA, PASSWORD, USER};
use smb_wire::Status;
use smb_wire::create_context::LeaseState;
use smb_wire::fscc::FileAction;
use smb_wire::fsctl::{FsctlCode, read_network_interfaces};
use smb_wire::ids::{Guid, LeaseKey};
use smb_wire::msg::{ChangeNotifyFlags, LockFlags, NotifyFilter, OplockLevel, WriteFlags};

use super::net::{PORT, SECOND_SPEED, SERVER, ip, link};

const SOON: Duration = Duration::from_secs(15);
const MEANWHILE: Duration = Duration::from_millis(100);
/// The time that a break has until the server goes on without an acknowledgment.
const BREAK_MAX: Duration = Duration::from_secs(35);
const EXCLUSIVE_NOW: LockFlags = LockFlags(LockFlags::EXCLUSIVE.0 | LockFlags::FAIL_IMMEDIATELY.0);
const NAMES: NotifyFilter = NotifyFilter(3);

/// Where things are.
struct World<'a> {
    server: &'a str,
    folder: &'a Path,
    config: &'a Path,
}

type Check = fn(&World<'_>);

/// Runs all checks; they panic.
pub(crate) fn run(server: &str, folder: &Path, config: &Path) -> ExitCode {
    let world = World {
        server,
        folder,
        config,
    };
    let checks: [(&str, Check); 8] = [
        ("each interface has a worker of its own", workers),
        ("locks", locks),
        ("leases", leases),
        ("notifications", notifications),
        ("both interfaces are announced", announced),
        ("a session over both", one_session),
        ("a link that fails", dead_link),
        ("a break over a link that has failed", dead_break),
    ];
    let mut failed = 0;
    for (name, check) in checks {
        let begun = Instant::now();
        let ended = std::panic::catch_unwind(|| check(&world));
        let word = if ended.is_ok() { "ok" } else { "FAIL" };
        println!(
            "{word} two-nics {name} ({} ms)",
            begun.elapsed().as_millis()
        );
        failed += usize::from(ended.is_err());
    }
    println!("{} passed, {failed} failed", checks.len() - failed);
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn options(machine: u8) -> Options {
    Options::default()
        .signing(Signing::Required)
        .guid(Guid([machine; 16]))
}

fn login() -> Login {
    Login::user(USER, PASSWORD, "")
}

/// A client of one interface.
fn session(nic: usize, machine: u8) -> Session {
    let client = Client::connect((SERVER[nic], PORT), options(machine)).unwrap();
    client.login_with(&login()).unwrap()
}

fn tree(nic: usize, machine: u8) -> Tree {
    session(nic, machine).tree(DATA).unwrap()
}

/// A further channel of a session, over an interface.
fn channel(nic: usize, of: &Tree) -> Tree {
    let options = of.client().options().clone();
    let client = Client::connect((SERVER[nic], PORT), options).unwrap();
    let bound = client
        .bind(of.session().secret().unwrap(), &login())
        .unwrap();
    bound.tree_of(of.id(), *of.info())
}

/// The answer of `holdfast status`.
pub(crate) fn status(config: &Path) -> Value {
    let said = Command::new(smb_tests::binary())
        .args(["status", "--json", "--config"])
        .arg(config)
        .output()
        .unwrap();
    serde_json::from_slice(&said.stdout).unwrap()
}

fn workers(world: &World<'_>) {
    let clients = [tree(0, 1), tree(0, 2), tree(1, 3)];
    let status = status(world.config);
    let mut seen = Vec::new();
    for worker in status["workers"].as_array().unwrap() {
        let listeners = worker["listeners"].to_string();
        let nic = SERVER
            .iter()
            .position(|address| listeners.contains(address))
            .unwrap();
        seen.push((nic, worker["connections"].as_u64().unwrap()));
    }
    seen.sort_unstable();
    drop(clients);
    // On a machine of one core both listeners share the one worker.
    if seen.len() > 1 {
        assert_eq!(seen, [(0, 2), (1, 1)]);
    }
}

fn locks(_: &World<'_>) {
    let (left, right) = (tree(0, 1), tree(1, 2));
    let mine = left.create(&CreateArgs::open_if("locked")).unwrap();
    let theirs = right.create(&CreateArgs::open_if("locked")).unwrap();
    mine.lock(0, 10, EXCLUSIVE_NOW).unwrap();
    let refused = theirs.lock(5, 1, EXCLUSIVE_NOW).unwrap_err();
    assert_eq!(refused.status(), Some(Status::LOCK_NOT_GRANTED));
    let element = smb_wire::msg::LockElement {
        offset: 5,
        length: 1,
        flags: LockFlags::EXCLUSIVE,
    };
    let waits = right.send(theirs.lock_request(0, &[element])).unwrap();
    assert!(
        !right
            .client()
            .connection()
            .answered(waits, MEANWHILE)
            .unwrap()
    );
    mine.unlock(0, 10).unwrap();
    assert!(right.client().wait(waits).unwrap().ok().is_ok());
    let refused = mine.lock(0, 10, EXCLUSIVE_NOW).unwrap_err();
    assert_eq!(refused.status(), Some(Status::LOCK_NOT_GRANTED));
}

fn leases(_: &World<'_>) {
    let (left, right) = (tree(0, 1), tree(1, 2));
    let (ours, others) = (LeaseKey([1; 16]), LeaseKey([2; 16]));
    let leased = |key| CreateArgs::open_if("leased").lease_v2(key, LeaseState::RWH, 1);
    let mine = left.create(&leased(ours)).unwrap();
    assert_eq!(mine.created().lease().unwrap().lease_state, LeaseState::RWH);
    mine.write(0, b"written behind", WriteFlags::empty())
        .unwrap();
    let opens = right.send(leased(others).request()).unwrap();
    let broken = left.client().next_break(SOON).unwrap().expect("no break");
    let Break::Lease { key, new, .. } = broken else {
        panic!("{broken:?}");
    };
    assert_eq!(key, ours);
    assert!(
        !right
            .client()
            .connection()
            .answered(opens, MEANWHILE)
            .unwrap()
    );
    left.acknowledge_lease(ours, new).unwrap();
    let reply = right.client().wait(opens).unwrap().ok().unwrap();
    let theirs = right.file(&reply).unwrap();
    assert_eq!(theirs.read(0, 14).unwrap(), b"written behind");
}

fn notifications(world: &World<'_>) {
    let (left, right) = (tree(0, 1), tree(1, 2));
    let root = right.create(&CreateArgs::directory("")).unwrap();
    let told = |act: &dyn Fn(), name: &str| {
        let id = root
            .notify(NAMES, ChangeNotifyFlags::WATCH_TREE, 65_536)
            .unwrap();
        assert!(right.client().wait_pending(id).unwrap().is_some());
        act();
        let reply = right.client().wait(id).unwrap();
        let list = root.changes(reply).unwrap();
        assert_eq!(
            (list[0].action, list[0].file_name.as_str()),
            (FileAction::ADDED, name)
        );
    };
    told(
        &|| left.mkdir("made-over-there").unwrap(),
        "made-over-there",
    );
    told(
        &|| std::fs::write(world.folder.join("by-the-host"), b"").unwrap(),
        "by-the-host",
    );
}

fn announced(_: &World<'_>) {
    let tree = tree(0, 1);
    let told = tree
        .ioctl(FsctlCode::QUERY_NETWORK_INTERFACE_INFO, &[], 65_536)
        .unwrap();
    let list = read_network_interfaces(&told).unwrap();
    let mut seen: Vec<(String, u64)> = list
        .iter()
        .map(|info| (info.address.to_string(), info.link_speed_bits))
        .collect();
    seen.sort();
    let wanted = [
        (SERVER[0].to_owned(), 10_000_000_000),
        (SERVER[1].to_owned(), SECOND_SPEED),
    ];
    assert_eq!(seen, wanted);
}

fn one_session(world: &World<'_>) {
    let first = tree(0, 1);
    let second = channel(1, &first);
    let status = status(world.config);
    // That of the check before may not be gone yet.
    let id = first.session().id().0;
    let sessions = status["server"]["sessions"].as_array().unwrap();
    let session = sessions.iter().find(|one| one["id"].as_u64() == Some(id));
    let session = session.unwrap();
    assert_eq!(
        session["channels"].as_array().unwrap().len(),
        2,
        "{session}"
    );
    let file = first.create(&CreateArgs::open_if("both")).unwrap();
    file.through(&second)
        .write(0, b"over the second", WriteFlags::empty())
        .unwrap();
    assert_eq!(file.read(0, 15).unwrap(), b"over the second");
    // A lock belongs to the open, whichever way it came.
    file.lock(0, 4, EXCLUSIVE_NOW).unwrap();
    file.through(&second).unlock(0, 4).unwrap();
    // A session's own second channel is no stranger: nothing breaks.
    let held = first.create(&CreateArgs::open_if("held").lease(LeaseKey([9; 16]), LeaseState::RWH));
    held.unwrap()
        .through(&second)
        .write(0, b"mine", WriteFlags::empty())
        .unwrap();
    for tree in [&first, &second] {
        assert_eq!(tree.client().next_break(MEANWHILE).unwrap(), None);
    }
}

/// One link goes down under a session of two channels, and under a client that has only that.
fn dead_link(world: &World<'_>) {
    let first = tree(0, 1);
    let second = channel(1, &first);
    let lonely = tree(0, 5);
    let kept = first.create(&CreateArgs::open_if("kept")).unwrap();
    kept.lock(0, 4, EXCLUSIVE_NOW).unwrap();
    let held = second
        .create(&CreateArgs::open_if("held").oplock(OplockLevel::BATCH))
        .unwrap();
    ip(&format!("-n {} link set {} down", world.server, link(0))).unwrap();
    let down = Instant::now();
    // The session's opens and locks are used over the other channel.
    let again = kept.through(&second);
    again.write(0, b"goes on", WriteFlags::empty()).unwrap();
    assert_eq!(again.read(0, 7).unwrap(), b"goes on");
    let other = tree(1, 2);
    let theirs = other.create(&CreateArgs::open("kept")).unwrap();
    let refused = theirs.lock(0, 4, EXCLUSIVE_NOW).unwrap_err();
    assert_eq!(refused.status(), Some(Status::LOCK_NOT_GRANTED));
    // Breaks of what came by the channel that lives still come.
    let opens = other.send(CreateArgs::open("held").request()).unwrap();
    let broken = second.client().next_break(SOON).unwrap().expect("no break");
    assert!(matches!(broken, Break::Oplock { file_id, .. } if file_id == held.id()));
    held.through(&second)
        .acknowledge_oplock(OplockLevel::NONE)
        .unwrap();
    assert!(other.client().wait(opens).unwrap().ok().is_ok());
    assert!(
        down.elapsed() < SOON,
        "the dead link held things up: {:?}",
        down.elapsed()
    );
    // It comes back: what was sent meanwhile arrives, nobody was thrown out.
    ip(&format!("-n {} link set {} up", world.server, link(0))).unwrap();
    kept.unlock(0, 4).unwrap();
    lonely.client().echo().unwrap();
}

/// The channel by which a file was opened fails, and the server cannot know: the break comes by the other one in time.
fn dead_break(world: &World<'_>) {
    let first = tree(0, 6);
    let second = channel(1, &first);
    let held = first
        .create(&CreateArgs::open_if("broken").oplock(OplockLevel::BATCH))
        .unwrap();
    let other = tree(1, 2);
    ip(&format!("-n {} link set {} down", world.server, link(0))).unwrap();
    let opens = other.send(CreateArgs::open("broken").request()).unwrap();
    let broken = second.client().next_break(BREAK_MAX).unwrap();
    ip(&format!("-n {} link set {} up", world.server, link(0))).unwrap();
    let broken = broken.expect("no break");
    assert!(matches!(broken, Break::Oplock { file_id, .. } if file_id == held.id()));
    held.through(&second)
        .acknowledge_oplock(OplockLevel::II)
        .unwrap();
    assert!(other.client().wait(opens).unwrap().ok().is_ok());
}
