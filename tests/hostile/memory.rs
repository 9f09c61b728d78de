//! Many clients that request much data and read no answers: the server's memory that they occupy is
//! bounded in total, other clients are served meanwhile, and the memory is released afterwards.

use std::{
    io::Write,
    time::{Duration, Instant},
};

use smb_client::{CreateArgs, File, Options, Request, Tree};
use smb_tests::{DATA, HoldfastServer, MEANWHILE, PASSWORD, SOON, USER, status, wait_until};
use smb_wire::Status;
use smb_wire::fscc::FileInformationClass;
use smb_wire::msg::{InfoType, LockElement, LockFlags, OplockLevel, QueryDirectoryFlags};

const MIB: usize = 1 << 20;
const CONNECTIONS: usize = 100;
const READS: usize = 400;
const LENGTH: u32 = 64 << 10;
/// The memory that all connections may occupy beside the budget, 128 KiB each, and the base size of
/// the process: stacks, tables, sessions, receive buffers of its threads.
const BESIDE: usize = CONNECTIONS * (128 << 10) + 48 * MIB;
/// Receive buffers that two workers reserve for the next request, and memory not yet returned to
/// the system.
const KEPT: usize = 24 * MIB;
/// A WRITE of 8 MiB.
const FRAME: usize = 8 * MIB + 112;
const LIMIT: usize = 64 * MIB;

fn server() -> HoldfastServer {
    HoldfastServer::start(&smb_tests::Options {
        tables: format!("[limits]\nbuffer_memory = {LIMIT}\n"),
        ..smb_tests::Options::default()
    })
}

/// Resident memory of the server in bytes.
fn resident(server: &HoldfastServer) -> usize {
    server.memory("VmRSS")
}

/// Sends READs on a connection of its own and never reads the answers.
fn ask_and_take_nothing(server: &HoldfastServer) -> Option<Tree> {
    let options = Options {
        credits: 512,
        ..Options::default()
    };
    let client = smb_client::Client::connect(server.addr(), options).ok()?;
    let session = client.login(USER, PASSWORD, "").ok()?;
    for _ in 0..2 {
        client.echo().ok()?;
    }
    let tree = session.tree(DATA).ok()?;
    let file = tree.create(&CreateArgs::open_if("large")).ok()?;
    for _ in 0..READS {
        let request = tree.address(file.read_request(0, LENGTH, 1));
        let request: Request = request.overriding(|how| how.ignore_credits = true);
        // The server may have closed the connection already.
        client.send(request).ok()?;
    }
    Some(tree)
}

/// Incomplete frames occupy buffers of their announced size.
#[test]
fn incomplete_requests_occupy_bounded_memory() {
    let server = server();
    server.assert_serving();
    let before = resident(&server);
    let part = vec![0; FRAME - MIB];
    let mut hogs = Vec::new();
    for _ in 0..CONNECTIONS / 2 {
        let tree = server.tree();
        let mut connection = tree.client().connection();
        let stream = connection.stream_mut();
        let length = u32::try_from(FRAME).unwrap().to_be_bytes();
        let patience = Some(Duration::from_millis(100));
        stream.set_write_timeout(patience).unwrap();
        // Sends as much as the server accepts.
        let _ = stream
            .write_all(&length)
            .and_then(|()| stream.write_all(&part));
        drop(connection);
        hogs.push(tree);
    }
    let behaved = server.tree();
    let large = vec![9; 8 * MIB];
    behaved.write_file("written", &large).unwrap();
    assert!(behaved.read_file("written").unwrap() == large);
    let grown = resident(&server).saturating_sub(before);
    assert!(grown <= LIMIT / 2 + BESIDE, "{} MiB", grown / MIB);
    drop(hogs);
    server.assert_serving();
}

#[test]
fn a_hundred_clients_that_read_no_answers_occupy_bounded_memory() {
    let server = server();
    std::fs::write(server.path("large"), vec![7; LENGTH as usize]).unwrap();
    let behaved = server.tree();
    behaved.write_file("small", b"yes").unwrap();
    let small = behaved.create(&CreateArgs::open_if("small")).unwrap();
    let is_served = || assert_eq!(small.read(0, 4096).unwrap(), b"yes");
    server.assert_serving();
    let before = resident(&server);
    let mut most = 0;
    let mut hogs = Vec::new();
    for _ in 0..CONNECTIONS {
        hogs.push(ask_and_take_nothing(&server));
        // Small requests of another connection from the same address are still served.
        is_served();
        most = most.max(resident(&server));
    }
    let end = Instant::now() + Duration::from_secs(5);
    while Instant::now() < end {
        is_served();
        most = most.max(resident(&server));
    }
    // Stalled clients that occupy memory are disconnected in favour of large requests too.
    let large = vec![9; 8 * MIB];
    behaved.write_file("written", &large).unwrap();
    assert!(behaved.read_file("written").unwrap() == large);
    let grown = most.saturating_sub(before);
    // All clients have the same address, which may use half of the budget.
    assert!(grown <= LIMIT / 2 + BESIDE, "grown by {} MiB", grown / MIB);
    drop(hogs);
    drop((small, behaved));
    // The memory is released when the server is idle.
    let end = Instant::now() + SOON;
    let mut now = resident(&server);
    while now > before + KEPT && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(250));
        now = resident(&server);
    }
    let (before, now) = (before / MIB, now / MIB);
    assert!(
        now <= before + KEPT / MIB,
        "{before} MiB before, {now} MiB after"
    );
    server.assert_serving();
}

/// A large folder is listed once for all lookups of names that it does not have.
#[test]
fn lookups_of_absent_names_share_their_listings() {
    const NAMES: usize = 20_000;
    const LOOKUPS: usize = 256;
    /// Several listings of the folder: its names as they are, and folded.
    const LISTINGS: usize = 128 * MIB;
    let server = server();
    std::fs::create_dir(server.path("many")).unwrap();
    for number in 0..NAMES {
        let name = format!("many/{}{number:05}", "n".repeat(240));
        std::fs::File::create(server.path(&name)).unwrap();
    }
    let tree = server.tree_with(Options {
        credits: 512,
        ..Options::default()
    });
    for _ in 0..4 {
        tree.client().echo().unwrap();
    }
    let peak = || server.memory("VmHWM");
    let before = peak();
    let ask = |number: usize| {
        let absent = CreateArgs::open(&format!("many\\absent{number}")).request();
        tree.client().send(tree.address(absent)).unwrap()
    };
    let sent: Vec<_> = (0..LOOKUPS).map(ask).collect();
    for id in sent {
        let status = tree.client().wait(id).unwrap().status();
        assert_eq!(status, Status::OBJECT_NAME_NOT_FOUND);
    }
    let grown = peak() - before;
    assert!(grown <= LISTINGS, "{} MiB", grown / MIB);
    server.assert_serving();
}

/// The names of a folder are charged while a pattern is matched with them, though none of them is kept.
#[test]
fn names_that_do_not_match_are_in_the_budget() {
    const NAMES: usize = 10_000;
    let server = HoldfastServer::start(&smb_tests::Options {
        tables: "[limits]\nio_size = 65536\nbuffer_memory = 1048576\n".to_owned(),
        ..smb_tests::Options::default()
    });
    let tree = server.tree();
    for (folder, names) in [("few", 10), ("many", NAMES)] {
        std::fs::create_dir(server.path(folder)).unwrap();
        for number in 0..names {
            let name = format!("{folder}/{}{number:05}", "n".repeat(200));
            std::fs::File::create(server.path(&name)).unwrap();
        }
    }
    let ask = |folder: &str| {
        let folder = tree.create(&CreateArgs::directory(folder)).unwrap();
        let flags = QueryDirectoryFlags::empty();
        let class = FileInformationClass::NAMES;
        let request = Request::query_directory(folder.id(), class, "other*", flags, 4096);
        tree.reply(tree.address(request)).unwrap().status()
    };
    assert_eq!(ask("few"), Status::NO_SUCH_FILE);
    assert_eq!(ask("many"), Status::INSUFFICIENT_RESOURCES);
    server.assert_serving();
}

/// A scan that starts again frees the names that it kept before it lists new ones.
#[test]
fn a_scan_starts_again_in_the_memory_that_it_has() {
    /// More than half as many as there is memory for.
    const NAMES: usize = 650;
    let server = HoldfastServer::start(&smb_tests::Options {
        tables: "[limits]\nio_size = 65536\nbuffer_memory = 1048576\n".to_owned(),
        ..smb_tests::Options::default()
    });
    let tree = server.tree();
    for number in 0..NAMES {
        let name = format!("{}{number:05}", "n".repeat(200));
        std::fs::File::create(server.path(&name)).unwrap();
    }
    let folder = tree.create(&CreateArgs::directory("")).unwrap();
    let ask = |flags: QueryDirectoryFlags| {
        let class = FileInformationClass::NAMES;
        let request = Request::query_directory(folder.id(), class, "n*", flags, 4096);
        tree.reply(tree.address(request)).unwrap().status()
    };
    for _ in 0..3 {
        assert_eq!(ask(QueryDirectoryFlags::RESTART_SCANS), Status::SUCCESS);
        assert_eq!(ask(QueryDirectoryFlags::empty()), Status::SUCCESS);
    }
    server.assert_serving();
}

/// The smallest budget that a configuration may name has room for each request.
#[test]
fn no_request_needs_more_than_the_smallest_budget() {
    let server = HoldfastServer::start(&smb_tests::Options {
        tables: "[limits]\nio_size = 65536\nbuffer_memory = 524288\n".to_owned(),
        ..smb_tests::Options::default()
    });
    let tree = server.tree();
    let file = tree.create(&CreateArgs::open_if("f")).unwrap();
    assert!(!file.query(FileInformationClass::STREAM).unwrap().is_empty());
    let list = file.set_info_request(InfoType::SECURITY, 0, 4, &[0; 60_000]);
    assert_ne!(tree.reply(list).unwrap().status(), Status::SUCCESS);
}

/// Tree connects beyond those of an ordinary session are charged, whatever the limit of each session is.
#[test]
fn tree_connects_are_in_the_budget() {
    let server = HoldfastServer::start(&smb_tests::Options {
        tables: "[limits]\nio_size = 65536\nbuffer_memory = 1048576\n".to_owned(),
        ..smb_tests::Options::default()
    });
    let client = server.client(Options::default());
    let session = client.login(USER, PASSWORD, "").unwrap();
    let connects = |session: &smb_client::Session, most: usize| {
        let tries = (0..most).map(|_| session.tree(DATA).map(|_| ()));
        let mut tries = tries.skip_while(Result::is_ok);
        tries.next().map(|refused| refused.err().unwrap().status())
    };
    assert_eq!(connects(&session, 16), None);
    let refused = Some(Some(Status::INSUFFICIENT_RESOURCES));
    assert_eq!(connects(&session, 1000), refused);
    // A session that has few needs no memory of the budget, and what one had is given back.
    let second = client.login(USER, PASSWORD, "").unwrap();
    assert_eq!(connects(&second, 16), None);
    assert_eq!(connects(&second, 1), refused);
    session.logoff().unwrap();
    wait_until("memory is free", || connects(&second, 1).is_none());
}

/// Byte-range locks beyond those of an ordinary open are charged, and given back when they are unlocked.
#[test]
fn byte_range_locks_are_in_the_budget() {
    const AT_ONCE: u64 = 1000;
    let server = HoldfastServer::start(&smb_tests::Options {
        tables: "[limits]\nio_size = 65536\nbuffer_memory = 1048576\n".to_owned(),
        ..smb_tests::Options::default()
    });
    let tree = server.tree();
    let file = tree.create(&CreateArgs::open_if("f")).unwrap();
    let ask = |time: u64, flags: LockFlags| {
        let range = |number| LockElement {
            offset: time * AT_ONCE + number,
            length: 1,
            flags,
        };
        let ranges: Vec<_> = (0..AT_ONCE).map(range).collect();
        let request = file.lock_request(0, &ranges);
        tree.reply(request).unwrap().status()
    };
    let exclusive = LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY;
    // An open may have 4,096.
    let granted = (0..4).take_while(|time| ask(*time, exclusive) == Status::SUCCESS);
    let granted = u64::try_from(granted.count()).unwrap();
    assert!((1..4).contains(&granted), "{granted}");
    assert_eq!(ask(granted, exclusive), Status::INSUFFICIENT_RESOURCES);
    assert_eq!(ask(0, LockFlags::UNLOCK), Status::SUCCESS);
    assert_eq!(ask(granted, exclusive), Status::SUCCESS);
    server.assert_serving();
}

/// A LOCK that is refused for its memory takes nobody's caching.
#[test]
fn a_lock_without_room_in_the_budget_breaks_no_caching() {
    let server = HoldfastServer::start(&smb_tests::Options {
        tables: "[limits]\nio_size = 65536\nbuffer_memory = 1048576\n".to_owned(),
        ..smb_tests::Options::default()
    });
    let (tree, other) = (server.tree(), server.tree());
    let file = tree.create(&CreateArgs::open_if("f")).unwrap();
    let args = CreateArgs::open("f").oplock(OplockLevel::II);
    let caches = other.create(&args).unwrap();
    assert_eq!(caches.created().oplock_level, OplockLevel::II);
    let ask = |file: &File, from: u64, count: u64| {
        let range = |offset| LockElement {
            offset,
            length: 1,
            flags: LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY,
        };
        let ranges: Vec<_> = (from..from + count).map(range).collect();
        let request = file.lock_request(0, &ranges);
        tree.reply(request).unwrap().status()
    };
    // All the memory that the client may have is taken, up to a few ranges.
    let full = tree.create(&CreateArgs::open_if("full")).unwrap();
    let mut from = 0;
    for count in [1000, 10] {
        while ask(&full, from, count) == Status::SUCCESS {
            from += count;
        }
    }
    assert_eq!(ask(&file, 0, 1000), Status::INSUFFICIENT_RESOURCES);
    assert_eq!(other.client().next_break(MEANWHILE).unwrap(), None);
    server.assert_serving();
}

/// The paths of opens are charged where they are long or deep, whether the open came there by CREATE or by a rename.
#[test]
fn long_paths_are_in_the_budget() {
    const OPENS: usize = 100;
    let server = HoldfastServer::start(&smb_tests::Options {
        tables: "[limits]\nio_size = 65536\nbuffer_memory = 1048576\n".to_owned(),
        ..smb_tests::Options::default()
    });
    let names = vec!["n".repeat(200); 15];
    let deep = names.join("\\");
    let tree = server.tree();
    for depth in 1..=names.len() {
        let folder = CreateArgs::create_directory(&names[..depth].join("\\"));
        tree.create(&folder).unwrap().close().unwrap();
    }
    let open = |name: &str| tree.create(&CreateArgs::directory(name));
    let shallow: Vec<_> = (0..OPENS).map(|_| open(&names[0]).unwrap()).collect();
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    let opens: Vec<_> = (0..OPENS).map_while(|_| open(&deep).ok()).collect();
    assert!((1..OPENS).contains(&opens.len()), "{}", opens.len());
    assert_eq!(status(open(&deep)), Status::INSUFFICIENT_RESOURCES);
    let below = format!("{deep}\\f");
    let renamed = status(file.rename(&below, false));
    assert_eq!(renamed, Status::INSUFFICIENT_RESOURCES);
    for one in opens.iter().take(2) {
        one.close().unwrap();
    }
    file.rename(&below, false).unwrap();
    drop(shallow);
    server.assert_serving();
}

/// The server may have grown by this when all is over: less than 200 bytes for each login.
const LEFT: usize = 8 * MIB;

/// The memory that stays when `act` is done `times` times, after what the first tenth takes for good.
fn left_by(server: &HoldfastServer, times: usize, act: impl Fn()) -> usize {
    let settled = || {
        wait_until("all sessions are gone", || server.sessions().is_empty());
        resident(server)
    };
    for _ in 0..times / 10 {
        act();
    }
    let before = settled();
    for _ in 0..times {
        act();
    }
    // Memory is given back at a quiet moment.
    let end = Instant::now() + SOON;
    while settled() > before + LEFT && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(250));
    }
    settled().saturating_sub(before)
}

/// CVE-2023-32247: first legs of logins, which nobody goes on with.
#[test]
fn logins_that_nobody_finishes_leave_nothing() {
    let server = HoldfastServer::new();
    let grown = left_by(&server, 400, || {
        let client = server.client(Options::default());
        for _ in 0..50 {
            let first_leg = Request::session_setup(
                b"NTLMSSP\0\x01\0\0\0\x97\x82\x08\xe2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            );
            // MORE_PROCESSING_REQUIRED.
            let _challenge = client.call(first_leg);
        }
    });
    assert!(grown <= LEFT, "{} KiB stay", grown / 1024);
}

/// CVE-2022-47941: a NEGOTIATE where there has been one.
#[test]
fn second_negotiates_leave_nothing() {
    let server = HoldfastServer::new();
    let grown = left_by(&server, 8_000, || {
        let client = server.client(Options::default());
        let again = client.connection().core_mut().negotiate_request();
        // The connection ends.
        assert!(client.call(again).is_err());
    });
    assert!(grown <= LEFT, "{} KiB stay", grown / 1024);
}
