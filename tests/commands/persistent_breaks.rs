//! Breaks of the cached state of a persistent open while its client is disconnected ([MS-SMB2]
//! 3.3.4.7, 3.3.5.9.7, 3.3.5.9.12): Lease.BreakNotification waits for the client, the request that
//! caused the break continues when the client answers or the open expires, and a client with
//! another connection is notified at once. Also the state that a client must not find again after a
//! restart.

use std::time::{Duration, Instant};

use smb_client::{Break, CreateArgs, File, Login, Options, Tree};
use smb_tests::durable::{
    CREATE_GUID, KEY, OTHER_CLIENT, continuously_available, granted_v2, modern, options,
    persistent, persistent_again,
};
use smb_tests::{
    DATA, HoldfastServer, MEANWHILE, PASSWORD, SECOND, SOON, USER, status, wait_until,
};
use smb_wire::Status;
use smb_wire::create_context::{DurableHandleFlags, LeaseFlags, LeaseState};
use smb_wire::header::HeaderFlags;
use smb_wire::ids::{FileId, LeaseKey};
use smb_wire::msg::{CreateOptions, Dialect, LockElement, LockFlags, OplockLevel};

const NONE: LeaseState = LeaseState(0);

const RH: LeaseState = LeaseState(3);
const RWH: LeaseState = LeaseState::RWH;

/// A client of dialect 2.1 that opens files beside a disconnected open: the paragraph in [MS-SMB2]
/// 3.3.5.9 does not apply to it.
fn old(server: &HoldfastServer) -> Tree {
    server.tree_with(Options::dialect(Dialect::SMB_2_1).guid(OTHER_CLIENT))
}

fn leased(state: LeaseState) -> CreateArgs {
    CreateArgs::open_if("f").lease_v2(KEY, state, 0)
}

fn opened(tree: &Tree, args: CreateArgs, timeout_ms: u32) -> File {
    let file = tree
        .create(&persistent(args, CREATE_GUID, timeout_ms))
        .unwrap();
    let granted = granted_v2(&file).unwrap();
    assert!(granted.flags.contains(DurableHandleFlags::PERSISTENT));
    file
}

fn again(args: CreateArgs, id: FileId) -> CreateArgs {
    persistent_again(args, id, CREATE_GUID)
}

/// Asserts that the client is notified of a break from `from` to `to`, and returns the epoch.
#[track_caller]
fn sees_break(tree: &Tree, from: LeaseState, to: LeaseState) -> u16 {
    let heard = tree.client().next_break(SOON).unwrap();
    let Some(Break::Lease {
        key,
        current,
        new,
        ack_required,
        epoch,
    }) = heard
    else {
        panic!("{heard:?}")
    };
    assert_eq!((key, current, new, ack_required), (KEY, from, to, true));
    epoch
}

#[test]
fn a_reconnected_client_is_notified_of_missed_breaks() {
    // 3.3.5.9.12: Lease.BreakNotification is sent; 3.3.4.7: it was stored.
    let server = continuously_available();
    let theirs = old(&server).create(&CreateArgs::open_if("f")).unwrap();
    let tree = modern(&server);
    let first = opened(&tree, leased(RH), 60_000);
    server.lose(&tree);
    // A break of a lease without write caching is not waited for.
    theirs.write_all(0, b"changed").unwrap();
    wait_until("the break waits for the client", || {
        let status = server.status();
        status["server"]["tables"]["breaks_under_way"] == 1
    });
    let tree = modern(&server);
    let file = tree.create(&again(leased(RH), first.id())).unwrap();
    let lease = file.created().lease().unwrap();
    assert_eq!(lease.lease_state, RH);
    assert!(lease.flags.contains(LeaseFlags::BREAK_IN_PROGRESS));
    // 3.2.5.19.2: a client accepts only a newer epoch.
    let epoch = |file: &File| file.created().lease().unwrap().v2.unwrap().epoch;
    assert_eq!(epoch(&file), epoch(&first));
    assert_eq!(sees_break(&tree, RH, NONE), epoch(&first) + 1);
    tree.acknowledge_lease(KEY, NONE).unwrap();
    assert_eq!(file.read_all().unwrap(), b"changed");
    // The notification is sent once.
    assert_eq!(tree.client().next_break(MEANWHILE).unwrap(), None);
}

#[test]
fn a_client_lost_before_its_acknowledgment_is_notified_again() {
    let server = continuously_available();
    let theirs = old(&server).create(&CreateArgs::open_if("f")).unwrap();
    let mut tree = modern(&server);
    let id = opened(&tree, leased(RH), 60_000).id();
    server.lose(&tree);
    theirs.write_all(0, b"changed").unwrap();
    for _ in 0..3 {
        tree = modern(&server);
        tree.create(&again(leased(RH), id)).unwrap();
        sees_break(&tree, RH, NONE);
        server.lose(&tree);
    }
    tree = modern(&server);
    tree.create(&again(leased(RH), id)).unwrap();
    sees_break(&tree, RH, NONE);
    tree.acknowledge_lease(KEY, NONE).unwrap();
}

#[test]
fn a_request_waiting_for_write_caching_continues_when_the_client_reconnects() {
    let server = continuously_available();
    let tree = modern(&server);
    let id = opened(&tree, leased(RWH), 60_000).id();
    server.lose(&tree);
    let stranger = old(&server);
    let waits = stranger.send(CreateArgs::open("f").request()).unwrap();
    std::thread::sleep(MEANWHILE);
    let tree = modern(&server);
    let file = tree.create(&again(leased(RWH), id)).unwrap();
    sees_break(&tree, RWH, RH);
    file.write_all(0, b"written back").unwrap();
    tree.acknowledge_lease(KEY, RH).unwrap();
    let reply = stranger.client().wait(waits).unwrap().ok().unwrap();
    let theirs = stranger.file(&reply).unwrap();
    assert_eq!(theirs.read_all().unwrap(), b"written back");
}

/// The server learns of the loss of a connection late if no packet of the client arrives any more. The client comes
/// back before that, and has not received what was sent meanwhile.
#[test]
fn a_client_that_is_back_before_its_loss_is_noticed_is_notified_again() {
    let batch = CreateArgs::open_if("f").oplock(OplockLevel::BATCH);
    for args in [leased(RWH), batch] {
        let server = continuously_available();
        let unnoticed = modern(&server);
        let id = opened(&unnoticed, args.clone(), 60_000).id();
        let stranger = old(&server);
        let waits = stranger.send(CreateArgs::open("f").request()).unwrap();
        assert!(unnoticed.client().next_break(SOON).unwrap().is_some());
        let login = Login::user(USER, PASSWORD, "").replacing(unnoticed.session().id());
        let session = server.client(options()).login_with(&login).unwrap();
        let tree = session.tree(DATA).unwrap();
        let file = tree.create(&again(args, id)).unwrap();
        let notified = tree.client().next_break(SOON).unwrap();
        assert!(notified.is_some());
        file.write_all(0, b"written back").unwrap();
        match notified {
            Some(Break::Lease { key, new, .. }) => tree.acknowledge_lease(key, new).unwrap(),
            _ => file.acknowledge_oplock(OplockLevel::II).unwrap(),
        }
        let reply = stranger.client().wait(waits).unwrap().ok().unwrap();
        let theirs = stranger.file(&reply).unwrap();
        assert_eq!(theirs.read_all().unwrap(), b"written back");
        // The notification is sent once.
        assert_eq!(tree.client().next_break(MEANWHILE).unwrap(), None);
    }
}

/// A client need not come back to a handle that its program has closed meanwhile.
#[test]
fn a_client_that_opens_the_file_anew_is_notified_of_a_missed_break() {
    let server = continuously_available();
    let tree = modern(&server);
    let first = opened(&tree, leased(RWH), 60_000);
    server.lose(&tree);
    let stranger = old(&server);
    let waits = stranger.send(CreateArgs::open("f").request()).unwrap();
    wait_until("the break waits for the client", || {
        let status = server.status();
        status["server"]["tables"]["breaks_under_way"] == 1
    });
    let tree = modern(&server);
    let file = tree.create(&leased(RWH)).unwrap();
    let lease = file.created().lease().unwrap();
    assert_eq!(lease.lease_state, RWH);
    assert!(lease.flags.contains(LeaseFlags::BREAK_IN_PROGRESS));
    let epoch = |file: &File| file.created().lease().unwrap().v2.unwrap().epoch;
    assert_eq!(epoch(&file), epoch(&first));
    assert_eq!(sees_break(&tree, RWH, RH), epoch(&first) + 1);
    tree.acknowledge_lease(KEY, RH).unwrap();
    let reply = stranger.client().wait(waits).unwrap().ok().unwrap();
    stranger.file(&reply).unwrap();
    // The client may still come back to its handle.
    let back = tree.create(&again(leased(RWH), first.id())).unwrap();
    assert_eq!(back.created().lease().unwrap().lease_state, RH);
    assert_eq!(tree.client().next_break(MEANWHILE).unwrap(), None);
}

#[test]
fn a_request_waiting_for_write_caching_continues_when_the_open_expires() {
    let server = continuously_available();
    let tree = modern(&server);
    opened(&tree, leased(RWH), 1_000);
    let stranger = old(&server);
    let started = Instant::now();
    server.lose(&tree);
    stranger.create(&CreateArgs::open("f")).unwrap();
    let waited = started.elapsed();
    assert!(waited >= Duration::from_millis(900), "{waited:?}");
    assert!(waited < SOON, "{waited:?}");
}

#[test]
fn a_client_with_another_connection_is_notified_when_it_is_back() {
    // It expects the break after the answer to its CREATE, as [MS-SMB2] 3.3.5.9.12 sends it.
    let server = continuously_available();
    let theirs = old(&server).create(&CreateArgs::open_if("f")).unwrap();
    let (tree, beside) = (modern(&server), modern(&server));
    let first = opened(&tree, leased(RH), 60_000);
    server.lose(&tree);
    theirs.write_all(0, b"changed").unwrap();
    assert_eq!(beside.client().next_break(MEANWHILE).unwrap(), None);
    let file = beside.create(&again(leased(RH), first.id())).unwrap();
    let epoch = |file: &File| file.created().lease().unwrap().v2.unwrap().epoch;
    assert_eq!(epoch(&file), epoch(&first));
    assert_eq!(sees_break(&beside, RH, NONE), epoch(&first) + 1);
    beside.acknowledge_lease(KEY, NONE).unwrap();
    assert_eq!(beside.client().next_break(MEANWHILE).unwrap(), None);
}

#[test]
fn breaking_state_is_not_restored_after_a_restart() {
    // The request that caused the break was answered, or will be: the client must not cache as
    // before.
    let mut server = continuously_available();
    let theirs = server.tree().create(&CreateArgs::open_if("f")).unwrap();
    let tree = modern(&server);
    let id = opened(&tree, leased(RH), 60_000).id();
    theirs.write_all(0, b"changed").unwrap();
    sees_break(&tree, RH, NONE);
    server.kill_and_restart();
    let file = modern(&server).create(&again(leased(RH), id)).unwrap();
    assert_eq!(file.created().lease().unwrap().lease_state, NONE);

    let mut server = continuously_available();
    let tree = modern(&server);
    let batch = || CreateArgs::open_if("f").oplock(OplockLevel::BATCH);
    let id = opened(&tree, batch(), 60_000).id();
    let stranger = old(&server);
    stranger.send(CreateArgs::open("f").request()).unwrap();
    assert!(tree.client().next_break(SOON).unwrap().is_some());
    server.kill_and_restart();
    let file = modern(&server).create(&again(batch(), id)).unwrap();
    assert_ne!(file.created().oplock_level, OplockLevel::BATCH);
}

#[test]
fn a_repeated_create_must_have_the_same_share_and_lease() {
    let server = continuously_available();
    let tree = modern(&server);
    let id = opened(&tree, leased(RH), 60_000).id();
    server.lose(&tree);
    let tree = modern(&server);
    let ask = |args| persistent(args, CREATE_GUID, 60_000);
    let elsewhere = tree.session().tree(SECOND).unwrap();
    let other_key = CreateArgs::open_if("f").lease_v2(LeaseKey([1; 16]), RH, 0);
    let stranger = server.tree_with(Options::dialect(Dialect::SMB_3_1_1).guid(OTHER_CLIENT));
    // 3.3.5.9: the client's own open can still be replayed, so its lease counts first.
    let (mismatch, denied) = (Status::CONTEXT_MISMATCH, Status::ACCESS_DENIED);
    for (by, args, expected) in [
        (&elsewhere, leased(RH), mismatch),
        (&tree, other_key, denied),
        (&tree, CreateArgs::open_if("f"), denied),
        (&stranger, leased(RH), mismatch),
    ] {
        let again = ask(args.clone()).request().flag(HeaderFlags::REPLAY);
        let refused = status(by.call(again));
        assert_eq!(refused, expected, "{args:?}");
    }
    assert!(!server.share_path(SECOND, "f").exists());
    let again = ask(leased(RH)).request().flag(HeaderFlags::REPLAY);
    let file = tree.file(&tree.call(again).unwrap()).unwrap();
    assert_eq!(file.id().persistent, id.persistent);
}

#[test]
fn an_open_to_delete_waits_for_a_client_that_is_away() {
    let server = continuously_available();
    let tree = modern(&server);
    opened(&tree, leased(RH), 60_000);
    server.lose(&tree);
    let stranger = server.tree_with(Options::dialect(Dialect::SMB_3_1_1).guid(OTHER_CLIENT));
    let args = CreateArgs::open("f").options(CreateOptions::DELETE_ON_CLOSE);
    let id = stranger.send(args.request()).unwrap();
    // Such an open waits two seconds for a client that is there.
    let long = Duration::from_secs(3);
    assert!(!stranger.client().connection().answered(id, long).unwrap());
}

#[test]
fn pipelined_locks_do_not_exceed_the_limit() {
    /// The limit of the server's records of one open.
    const LIMIT: usize = 4096;
    const EACH: usize = 64;
    let mut server = continuously_available();
    let tree = modern(&server);
    let file = opened(&tree, CreateArgs::open_if("f"), 60_000);
    let request = |number: usize| {
        let elements: Vec<LockElement> = (0..EACH)
            .map(|at| LockElement {
                offset: (number * EACH + at) as u64,
                length: 1,
                flags: LockFlags(0x12),
            })
            .collect();
        file.lock_request(0, &elements)
    };
    let (alone, together) = (56, 16);
    for number in 0..alone {
        tree.call(request(number)).unwrap();
    }
    let sent: Vec<_> = (alone..alone + together)
        .map(|number| tree.send(request(number)).unwrap())
        .collect();
    let mut held = alone * EACH;
    for pending in sent {
        match status(tree.client().wait(pending).unwrap().ok()) {
            Status::SUCCESS => held += EACH,
            refused => assert_eq!(refused, Status::INSUFFICIENT_RESOURCES),
        }
    }
    assert_eq!(held, LIMIT);
    // A released range can be locked again, and a refused one was not counted.
    file.unlock(0, 1).unwrap();
    file.lock(0, 1, LockFlags(0x12)).unwrap();
    let more = file.lock(1 << 40, 1, LockFlags(0x12));
    assert_eq!(status(more), Status::INSUFFICIENT_RESOURCES);
    server.kill_and_restart();
    let tree = modern(&server);
    let back = again(CreateArgs::open_if("f"), file.id());
    let file = tree.create(&back).unwrap();
    let more = file.lock(1 << 40, 1, LockFlags(0x12));
    assert_eq!(status(more), Status::INSUFFICIENT_RESOURCES);
    file.unlock(0, 1).unwrap();
    file.lock(1 << 40, 1, LockFlags(0x12)).unwrap();
}
