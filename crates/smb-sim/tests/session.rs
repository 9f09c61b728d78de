//! The whole server in a simulation: sessions that replay, connections that die, power that
//! fails.
//!
//! `SEED=n cargo test -p smb-sim one_seed -- --nocapture` runs one seed of the power test and
//! prints what went over the network.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use bytes::BytesMut;
use durability::Policy;
use smb_client::{ClientError, CreateArgs, Encryption, Options, Request, Signing};
use smb_sim::{
    MemoryOptions, PASSWORD, SHARE, Sim, SimClient, SimServer, Trace, USER, write_request,
};
use smb_wire::{
    Status,
    access_mask::AccessMask,
    create_context::name,
    file_attributes::FileAttributes,
    fscc::{DirectoryEntries, DirectoryFormat, FileBasicInformation, FileInformationClass},
    fsctl::CopyChunkResponse,
    ids::{FileId, FileTime, Guid},
    msg::{
        ChangeNotifyFlags, ChangeNotifyRequest, CreateDisposition, Dialect, InfoType,
        IoctlResponse, NotifyFilter, QueryDirectoryFlags, QueryDirectoryResponse, ShareAccess,
    },
};
use vfs::{
    Env,
    sim::{Cut, Fault, FaultAction, SimDisk, SimOp},
};

/// Seeds of the power test.
const SEEDS: u64 = 300;

fn signed() -> Options {
    Options::dialect(Dialect::SMB_3_1_1).signing(Signing::Required)
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut data = vec![0; len];
    smb_sim::SimRng::new(seed).fill(&mut data);
    data
}

/// Runs a test with a client of a server over memory.
fn scene(test: impl AsyncFnOnce(&SimServer, SimClient)) {
    let mut sim = Sim::new(1);
    let server = SimServer::new(&mut sim, &MemoryOptions::default()).unwrap();
    sim.run(async {
        let client = SimClient::enter(&server, signed()).await.unwrap();
        test(&server, client).await;
    })
    .unwrap();
}

/// Connects, writes, flushes, reads back, closes, leaves.
async fn whole_session(server: &SimServer, options: Options, name: &str) {
    let mut client = SimClient::enter(server, options).await.unwrap();
    let file = client.create(&CreateArgs::create(name)).await.unwrap();
    let data = pattern(1, 100_000);
    assert_eq!(client.write_at(file, 0, &data).await.unwrap(), 100_000);
    client.flush(file).await.unwrap();
    assert_eq!(client.read_at(file, 0, 100_000).await.unwrap(), data);
    client.close(file).await.unwrap();
    client.logoff().await.unwrap();
}

/// The server has nothing left of anybody.
fn assert_empty(server: &SimServer) {
    let report = server.server.report();
    assert!(report.sessions.is_empty(), "{:?}", report.sessions);
    assert!(report.connections.is_empty(), "{:?}", report.connections);
}

fn one_client(seed: u64, options: Options) -> Trace {
    let mut sim = Sim::new(seed);
    let server = SimServer::new(&mut sim, &MemoryOptions::default()).unwrap();
    sim.run(whole_session(&server, options, "a file")).unwrap();
    let env = sim.env();
    sim.run(env.sleep(Duration::from_secs(1))).unwrap();
    assert_empty(&server);
    server.trace()
}

#[test]
fn a_session_replays_byte_for_byte() {
    for options in [
        signed(),
        signed().encryption(Encryption::Always),
        Options::dialect(Dialect::SMB_2_1),
    ] {
        let first = one_client(42, options.clone());
        assert!(first.bytes > 200_000, "{} bytes", first.bytes);
        let again = one_client(42, options.clone());
        assert_eq!(first.passages, again.passages);
        assert_eq!(first.digest, again.digest);
        assert_ne!(first.digest, one_client(43, options).digest);
    }
}

fn two_clients(seed: u64) -> Trace {
    let mut sim = Sim::new(seed);
    let server = Rc::new(SimServer::new(&mut sim, &MemoryOptions::default()).unwrap());
    let env = sim.env();
    let tasks: Vec<_> = (0..2)
        .map(|number| {
            let server = Rc::clone(&server);
            env.start(async move {
                let mut client = SimClient::enter(&server, signed()).await.unwrap();
                let file = client.create(&CreateArgs::open_if("both")).await.unwrap();
                let data = [b'a' + number; 5000];
                for block in 0..8 {
                    let at = (block * 2 + u64::from(number)) * 5000;
                    client.write_at(file, at, &data).await.unwrap();
                }
                client.flush(file).await.unwrap();
                client.close(file).await.unwrap();
                let alone =
                    CreateArgs::create(&format!("own {number}")).share(ShareAccess::empty());
                let own = client.create(&alone).await.unwrap();
                let refused = client
                    .create(&CreateArgs::open(&format!("own {number}")))
                    .await;
                assert_eq!(
                    refused.unwrap_err().status(),
                    Some(Status::SHARING_VIOLATION)
                );
                client.close(own).await.unwrap();
                client.logoff().await.unwrap();
            })
        })
        .collect();
    sim.run(async {
        for task in tasks {
            task.await;
        }
        let mut reader = SimClient::enter(&server, signed()).await.unwrap();
        let file = reader.create(&CreateArgs::open("both")).await.unwrap();
        let data = reader.read_at(file, 0, 80_000).await.unwrap();
        assert_eq!(data.len(), 80_000);
        for (index, block) in data.chunks(5000).enumerate() {
            let letter = if index % 2 == 0 { b'a' } else { b'b' };
            assert!(block.iter().all(|byte| *byte == letter), "block {index}");
        }
        env.sleep(Duration::from_secs(1)).await;
        reader.cut();
        env.sleep(Duration::from_secs(1)).await;
    })
    .unwrap();
    assert_empty(&server);
    server.trace()
}

#[test]
fn two_clients_share_a_file_and_replay() {
    let digests: std::collections::BTreeSet<_> =
        (0..20).map(|seed| two_clients(seed).digest).collect();
    assert_eq!(digests.len(), 20);
    assert_eq!(two_clients(5).passages, two_clients(5).passages);
}

/// The connection dies while up to eight requests are under way.
fn dropped(seed: u64) {
    let mut sim = Sim::new(seed);
    let server = SimServer::new(&mut sim, &MemoryOptions::default()).unwrap();
    let env = sim.env();
    sim.run(async {
        let mut client = SimClient::enter(&server, signed()).await.unwrap();
        let file = client.create(&CreateArgs::create("f")).await.unwrap();
        for block in 0..env.choose(8) {
            let request = write_request(file, block * 4096, &[7; 4096]);
            client.send(request).unwrap();
        }
        if env.choose(2) == 0 {
            // Half a message: a header that announces more than ever comes.
            client.end().send(&b"\0\0\x10\0\xfeSMB"[..]).unwrap();
        }
        client.send(CreateArgs::create("g").request()).unwrap();
        env.sleep(Duration::from_micros(env.choose(60_000))).await;
        assert_eq!(server.server.report().sessions.len(), 1);
        client.cut();
        env.sleep(Duration::from_secs(5)).await;
        assert_empty(&server);
        // Nothing holds the file: it can be opened alone, and removed.
        let mut next = SimClient::enter(&server, signed()).await.unwrap();
        let alone = CreateArgs::open("f").share(ShareAccess::empty());
        let file = next.create(&alone).await.unwrap();
        next.close(file).await.unwrap();
        next.logoff().await.unwrap();
    })
    .unwrap();
}

#[test]
fn a_dropped_connection_leaves_nothing_open() {
    for seed in 0..100 {
        dropped(seed);
    }
}

/// A user can have thousands of opens with paths of 30 KiB, and an administrator must be able to read the report.
#[test]
fn a_report_lists_fewer_opens_with_long_paths() {
    const OPENS: usize = 400;
    scene(async |server, mut client| {
        let mut path = String::new();
        for _ in 0..120 {
            path.push_str(&"d".repeat(250));
            let made = CreateArgs::create_directory(&path);
            let folder = client.create(&made).await.unwrap();
            client.close(folder).await.unwrap();
            path.push('\\');
        }
        path.push('f');
        for _ in 0..OPENS {
            client.create(&CreateArgs::open_if(&path)).await.unwrap();
        }
        let report = server.server.report();
        let session = &report.sessions[0];
        assert_eq!(session.open_count, OPENS);
        let bytes: usize = session.opens.iter().map(|open| open.path.len()).sum();
        assert!((5 << 20..11 << 20).contains(&bytes), "{bytes}");
        client.logoff().await.unwrap();
    });
}

/// The promises to a client: the file and the number of its bytes that a FLUSH acknowledged.
type Promises = Rc<RefCell<Vec<(String, usize)>>>;

async fn writer(server: Rc<SimServer>, number: u64, promises: Promises) -> Result<(), ClientError> {
    let mut client = SimClient::enter(&server, signed()).await?;
    for round in 0..3 {
        let name = format!("file {number} {round}");
        let data = pattern(round, 12_000);
        let file = client.create(&CreateArgs::create(&name)).await?;
        for (part, at) in data.chunks(4000).zip((0..).step_by(4000)) {
            client.write_at(file, at as u64, part).await?;
            if server.env().choose(2) == 0 {
                client.flush(file).await?;
                let told = at + part.len();
                promises.borrow_mut().push((name.clone(), told));
            }
        }
        client.close(file).await?;
    }
    Ok(())
}

/// Two clients write and flush until the power fails at a random moment; then everything that a
/// FLUSH acknowledged is on the disk that is left. Returns how much that was.
fn power(seed: u64, cut: Cut) -> (usize, Trace) {
    let options = MemoryOptions::default();
    let mut sim = Sim::new(seed);
    let server = Rc::new(SimServer::new(&mut sim, &options).unwrap());
    let env = sim.env();
    let promises = Promises::default();
    for number in 0..2 {
        let task = writer(Rc::clone(&server), number, Rc::clone(&promises));
        env.spawn(Box::pin(async move {
            // Ends with the power.
            let _ = task.await;
        }));
    }
    let moment = Duration::from_micros(env.choose(3_000_000));
    sim.run(env.sleep(moment)).unwrap();
    let disk = server.cut_power(cut);
    let trace = server.trace();
    sim.kill();
    let promises = promises.take();
    check(seed, disk, &options, &promises);
    (promises.len(), trace)
}

fn check(seed: u64, disk: SimDisk, options: &MemoryOptions, promises: &[(String, usize)]) {
    let mut sim = Sim::new(seed);
    let server = SimServer::plain(&mut sim, disk, options).unwrap();
    sim.run(async {
        let mut client = SimClient::enter(&server, signed()).await.unwrap();
        for (name, len) in promises {
            let round: u64 = name[name.len() - 1..].parse().unwrap();
            let open = CreateArgs::open(name).access(AccessMask::FILE_GENERIC_READ);
            let file = client
                .create(&open)
                .await
                .unwrap_or_else(|error| panic!("SEED={seed}: {name} is lost: {error}"));
            let kept = client.read_at(file, 0, 12_000).await.unwrap_or_default();
            let told = &pattern(round, 12_000)[..*len];
            assert!(
                kept.starts_with(told),
                "SEED={seed}: {name}: {len} bytes were promised"
            );
            client.close(file).await.unwrap();
        }
    })
    .unwrap();
}

#[test]
fn what_flush_acknowledged_survives_power_loss() {
    let mut promises = 0;
    for seed in 0..SEEDS {
        let cut = if seed % 3 == 0 {
            Cut::Nothing
        } else {
            Cut::Seed(seed)
        };
        promises += power(seed, cut).0;
    }
    // The test must have had something to lose.
    assert!(promises > 300, "only {promises} promises");
}

#[test]
fn what_was_not_flushed_can_be_lost() {
    // The same run under the policy that promises nothing: some promise must break, or the
    // simulated disk forgets nothing and the test above shows nothing.
    let options = MemoryOptions {
        policy: durability::Policy::TreatHostAsStableStorage,
        ..MemoryOptions::default()
    };
    let lost = (0..10).any(|seed| {
        let mut sim = Sim::new(seed);
        let server = SimServer::new(&mut sim, &options).unwrap();
        sim.run(whole_session(&server, signed(), "lost")).unwrap();
        let disk = server.cut_power(Cut::Nothing);
        sim.kill();
        let mut sim = Sim::new(seed);
        let server = SimServer::plain(&mut sim, disk, &options).unwrap();
        sim.run(async {
            let mut client = SimClient::enter(&server, signed()).await.unwrap();
            client.create(&CreateArgs::open("lost")).await.is_err()
        })
        .unwrap()
    });
    assert!(lost);
}

/// A kernel that copies by sharing blocks would copy those that the failed sync did not write.
#[test]
fn what_a_failed_sync_lost_is_copied_as_it_is_read() {
    scene(async |server, mut client| {
        let source = client.create(&CreateArgs::create("source")).await.unwrap();
        let target = client.create(&CreateArgs::create("target")).await.unwrap();
        let data = pattern(2, 100);
        client.write_at(source, 0, &data).await.unwrap();
        let reads = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&reads);
        server.disk.set_hook(Some(Arc::new(move |op| {
            counted.fetch_add(usize::from(op == SimOp::Read), SeqCst);
            None
        })));
        let copy = client.copy_request(source, target, 100).await.unwrap();
        client.call(copy).await.unwrap();
        assert_eq!(reads.load(SeqCst), 0, "the disk copies by itself");
        assert!(server.disk.inject(Fault {
            on: SimOp::Sync,
            after: 0,
            action: FaultAction::Fail(5),
        }));
        let flushed = client.flush(source).await.unwrap_err();
        assert_eq!(flushed.status(), Some(Status::IO_DEVICE_ERROR));
        let copy = client.copy_request(source, target, 100).await.unwrap();
        client.call(copy).await.unwrap();
        assert!(reads.load(SeqCst) > 0);
        assert_eq!(client.read_at(target, 0, 100).await.unwrap(), data);
    });
}

/// [MS-SMB2] 3.3.5.15.6.1: a client relies on the bytes that a failed copy reports.
#[test]
fn a_copy_whose_sync_fails_reports_no_bytes() {
    let mut sim = Sim::new(1);
    let options = MemoryOptions {
        policy: Policy::StrictSync,
        ..MemoryOptions::default()
    };
    let server = SimServer::new(&mut sim, &options).unwrap();
    sim.run(async {
        let mut client = SimClient::enter(&server, signed()).await.unwrap();
        let source = client.create(&CreateArgs::create("source")).await.unwrap();
        let target = client.create(&CreateArgs::create("target")).await.unwrap();
        client.write_at(source, 0, &pattern(2, 100)).await.unwrap();
        let copy = client.copy_request(source, target, 100).await.unwrap();
        assert!(server.disk.inject(Fault {
            on: SimOp::Sync,
            after: 0,
            action: FaultAction::Fail(5),
        }));
        let sent = client.send(copy).unwrap();
        let reply = client.wait(sent).await.unwrap();
        assert_eq!(reply.status(), Status::IO_DEVICE_ERROR);
        let output = IoctlResponse::read(&reply.message).unwrap().output;
        let done = CopyChunkResponse::read(output).unwrap();
        assert_eq!((done.chunks_written, done.total_bytes_written), (0, 0));
    })
    .unwrap();
}

/// They were set before the attributes were refused, and a sync in between may have stored them.
#[test]
fn times_that_a_refused_change_restores_are_dirty() {
    let mut sim = Sim::new(1);
    let server = SimServer::new(&mut sim, &MemoryOptions::default()).unwrap();
    sim.run(async {
        let mut client = SimClient::enter(&server, signed()).await.unwrap();
        let args = CreateArgs::create("f").access(AccessMask::FILE_ALL_ACCESS);
        let file = client.create(&args).await.unwrap();
        client.flush(file).await.unwrap();
        let dirty = || server.server.durability.dirty_inodes();
        assert_eq!(dirty(), 0);
        assert!(server.disk.inject(Fault {
            on: SimOp::Change,
            after: 1,
            action: FaultAction::Fail(28),
        }));
        let mut basic = BytesMut::new();
        FileBasicInformation {
            last_write_time: FileTime::from_unix(1_000_000_000, 0),
            file_attributes: FileAttributes::HIDDEN,
            ..FileBasicInformation::default()
        }
        .encode(&mut basic);
        let class = FileInformationClass::BASIC.0;
        let set = Request::set_info(file, InfoType::FILE, class, 0, &basic);
        client.call(set).await.unwrap_err();
        assert_eq!(dirty(), 1);
        client.flush(file).await.unwrap();
        assert_eq!(dirty(), 0);
    })
    .unwrap();
}

/// [MS-FSA] 2.1.4.19: the close reports what a failed copy wrote, as it does for a WRITE.
#[test]
fn a_copy_that_fails_midway_is_reported_at_the_close() {
    scene(async |server, mut client| {
        let source = client.create(&CreateArgs::create("source")).await.unwrap();
        let target = client.create(&CreateArgs::create("target")).await.unwrap();
        client.write_at(source, 0, &pattern(2, 100)).await.unwrap();
        let root = client.create(&CreateArgs::directory("")).await.unwrap();
        let watches = Request::new(&ChangeNotifyRequest {
            flags: ChangeNotifyFlags(0),
            output_buffer_length: 1024,
            file_id: root,
            completion_filter: NotifyFilter::SIZE,
        });
        let watches = client.send(watches).unwrap();
        let copy = client.copy_request(source, target, 100).await.unwrap();
        for (after, action) in [(0, FaultAction::Short), (1, FaultAction::Fail(5))] {
            let on = SimOp::Write;
            assert!(server.disk.inject(Fault { on, after, action }));
        }
        let failed = client.call(copy).await.unwrap_err();
        assert_eq!(failed.status(), Some(Status::IO_DEVICE_ERROR));
        client.close(target).await.unwrap();
        let reported = client.wait(watches).await.unwrap();
        assert_eq!(reported.status(), Status::SUCCESS);
    });
}

/// A rename of a stream stores the new attribute first and then removes the old one.
#[test]
fn a_rename_of_a_stream_that_fails_midway_leaves_its_file_dirty() {
    scene(async |server, mut client| {
        let args = CreateArgs::create("f:old").access(AccessMask::FILE_ALL_ACCESS);
        let stream = client.create(&args).await.unwrap();
        client.write_at(stream, 0, b"data").await.unwrap();
        let shares = server.server.shares();
        let dirty = || shares.find(SHARE).unwrap().gate.exposure().inodes;
        assert_eq!(server.server.durability.sync_all().await.failed, 0);
        assert_eq!(dirty(), 0);
        assert!(server.disk.inject(Fault {
            on: SimOp::Change,
            after: 1,
            action: FaultAction::Fail(5),
        }));
        let renamed = client.call(Request::rename(stream, ":new", false)).await;
        let refused = renamed.unwrap_err().status();
        assert_eq!(refused, Some(Status::IO_DEVICE_ERROR));
        assert!(dirty() > 0);
    });
}

/// The access is checked by calls that only query, of which each is refused once.
#[test]
fn a_rename_of_a_stream_that_is_refused_leaves_its_file_clean() {
    scene(async |server, mut client| {
        let args = CreateArgs::create("f:old").access(AccessMask::FILE_ALL_ACCESS);
        let stream = client.create(&args).await.unwrap();
        let shares = server.server.shares();
        let dirty = || shares.find(SHARE).unwrap().gate.exposure().inodes;
        assert_eq!(server.server.durability.sync_all().await.failed, 0);
        let mut refused = 0;
        for after in 0..100 {
            let (on, action) = (SimOp::Look, FaultAction::Fail(13));
            assert!(server.disk.inject(Fault { on, after, action }));
            let renamed = client.call(Request::rename(stream, ":new", false)).await;
            server.disk.clear_faults();
            let Err(error) = renamed else { break };
            let new = client.create(&CreateArgs::open("f:new")).await;
            let none = Some(Status::OBJECT_NAME_NOT_FOUND);
            if !new.is_err_and(|error| error.status() == none) {
                // It failed between its steps, or after them.
                break;
            }
            if error.status() == Some(Status::ACCESS_DENIED) {
                refused += 1;
                assert_eq!(dirty(), 0, "{after}");
            }
        }
        assert!(refused >= 2, "{refused}");
    });
}

/// The names of a directory, and the number of them that each answer has, 0 for a failure.
async fn listed(client: &mut SimClient, directory: FileId) -> (Vec<String>, Vec<usize>) {
    const CLASS: FileInformationClass = FileInformationClass::NAMES;
    let (mut names, mut counts) = (Vec::new(), Vec::new());
    while counts.len() < 20 {
        let flags = QueryDirectoryFlags::empty();
        let request = Request::query_directory(directory, CLASS, "*", flags, 300);
        let id = client.send(request).unwrap();
        let reply = client.wait(id).await.unwrap();
        let before = names.len();
        match reply.status() {
            Status::SUCCESS => {
                let response = QueryDirectoryResponse::read(&reply.message).unwrap();
                let format = DirectoryFormat::of(CLASS).unwrap();
                let entries = DirectoryEntries::new(format, response.buffer);
                names.extend(entries.map(|entry| entry.unwrap().file_name));
            }
            Status::NO_MORE_FILES => break,
            _ => {}
        }
        counts.push(names.len() - before);
    }
    names.sort();
    (names, counts)
}

#[test]
fn a_listing_that_fails_midway_loses_no_name() {
    scene(async |server, mut client| {
        for name in ["a", "b", "c", "d", "e", "f", "g", "h"] {
            let file = client.create(&CreateArgs::create(name)).await.unwrap();
            client.close(file).await.unwrap();
        }
        let root = CreateArgs::directory("");
        let directory = client.create(&root).await.unwrap();
        let (all, counts) = listed(&mut client, directory).await;
        assert_eq!(counts, [all.len()]);
        client.close(directory).await.unwrap();
        let mut first_answers = BTreeSet::new();
        for after in 0..100 {
            let directory = client.create(&root).await.unwrap();
            assert!(server.disk.inject(Fault {
                on: SimOp::Look,
                after,
                action: FaultAction::Fail(libc::EIO),
            }));
            let (names, counts) = listed(&mut client, directory).await;
            server.disk.clear_faults();
            client.close(directory).await.unwrap();
            assert_eq!(names, all, "fault after {after}");
            assert!(counts.len() <= 2, "fault after {after}: {counts:?}");
            first_answers.extend(counts.first().copied());
        }
        // Each name but the two of the directory itself was the one that failed, and the first answer ended before it.
        assert!((2..all.len()).all(|count| first_answers.contains(&count)));
    });
}

/// The space of the old contents is free by the time that the new ones are written.
#[test]
fn a_file_is_overwritten_by_one_that_needs_its_space() {
    scene(async |server, mut client| {
        let file = client.create(&CreateArgs::create("f")).await.unwrap();
        let data = pattern(1, 100_000);
        for part in 0..10 {
            let written = client.write_at(file, part * 100_000, &data).await;
            assert_eq!(written.unwrap(), 100_000);
        }
        client.close(file).await.unwrap();
        // The file has 245 of these blocks.
        server.disk.set_capacity(300);
        let over = |size: u64| {
            let args = CreateArgs::new("f", CreateDisposition::OVERWRITE);
            args.context(name::ALLOCATION_SIZE, &size.to_le_bytes())
        };
        let refused = client.create(&over(2_000_000)).await;
        assert_eq!(refusal(refused), Some(Status::DISK_FULL));
        client.create(&over(1_000_000)).await.unwrap();
    });
}

fn refusal<T>(outcome: Result<T, ClientError>) -> Option<Status> {
    outcome.err().and_then(|error| error.status())
}

/// [MS-SMB2] 3.3.5.5.3: the session that a new one of the same user replaces makes room for it.
#[test]
fn at_the_limit_a_user_replaces_the_own_session() {
    let mut sim = Sim::new(12);
    let mut memory = MemoryOptions::default();
    // A user may have half of them.
    memory.limits.sessions = 2;
    let server = SimServer::new(&mut sim, &memory).unwrap();
    let full = Some(Status::INSUFFICIENT_RESOURCES);
    sim.run(async {
        let old = SimClient::enter(&server, signed()).await.unwrap();
        let mut new = SimClient::connect(&server, signed()).await.unwrap();
        assert_eq!(refusal(new.login(USER, PASSWORD).await), full);
        new.replace(old.session()).await.unwrap();
        assert_eq!(server.server.report().sessions.len(), 1);
        // The place that it took over is counted until it ends.
        let mut third = SimClient::connect(&server, signed()).await.unwrap();
        assert_eq!(refusal(third.login(USER, PASSWORD).await), full);
        new.logoff().await.unwrap();
        third.login(USER, PASSWORD).await.unwrap();
    })
    .unwrap();
}

/// [MS-SMB2] 3.3.5.5.3: a client uses one dialect; a login that is refused does not decide which.
#[test]
fn a_refused_login_leaves_no_mark_on_its_connection() {
    let mut sim = Sim::new(13);
    let mut memory = MemoryOptions::default();
    memory.limits.sessions = 2;
    let server = SimServer::new(&mut sim, &memory).unwrap();
    let of = |dialect| Options::dialect(dialect).guid(Guid([9; 16]));
    sim.run(async {
        let mut first = SimClient::enter(&server, signed()).await.unwrap();
        let older = SimClient::connect(&server, of(Dialect::SMB_3_0)).await;
        let mut older = older.unwrap();
        let refused = older.login(USER, PASSWORD).await;
        assert_eq!(refusal(refused), Some(Status::INSUFFICIENT_RESOURCES));
        first.logoff().await.unwrap();
        let newer = SimClient::enter(&server, of(Dialect::SMB_3_1_1)).await;
        let _newer = newer.unwrap();
        assert_eq!(server.server.report().connections.len(), 3);
    })
    .unwrap();
}

/// Replays one seed of the power test.
#[test]
fn one_seed() {
    let Ok(seed) = std::env::var("SEED") else {
        return;
    };
    let seed = seed.parse().unwrap();
    let (promises, trace) = power(seed, Cut::Nothing);
    println!("{promises} promises, digest {:016x}", trace.digest);
    for passage in &trace.passages {
        println!(
            "{:?} connection {} {:?} {} bytes",
            passage.at,
            passage.connection,
            passage.direction,
            passage.bytes.len()
        );
    }
}
