//! Resilient opens ([MS-SMB2] 3.3.5.15.9, 3.3.7.1, 3.3.5.6, 3.3.6.4): preserved with any caching,
//! and reconnected by version 1 of the durable reconnect (3.3.5.9.7).

use std::time::{Duration, Instant};

use bytes::BytesMut;
use smb_client::{ClientError, CreateArgs, File, Options, Tree};
use smb_tests::durable::{granted_v2, v1_again, v2, v2_again};
use smb_tests::{
    DATA, HoldfastServer, OTHER_PASSWORD, OTHER_USER, PASSWORD, SOON, USER, status, wait_until,
};
use smb_wire::Status;
use smb_wire::fsctl::{FsctlCode, LmrRequestResiliency};
use smb_wire::ids::{FileId, Guid, LeaseKey};
use smb_wire::msg::{
    CreateOptions, Dialect, IoctlResponse, LockElement, LockFlags, OplockLevel, ShareAccess,
};

/// The ClientGuid of the clients of 3.1.1.
const CLIENT_GUID: Guid = Guid([0x11; 16]);
const CREATE_GUID: Guid = Guid([0x44; 16]);
const EXCLUSIVE: LockFlags = LockFlags(0x12);
/// MaxResiliencyTimeout of Windows ([MS-SMB2] appendix A on 3.3.3).
const TIMEOUT_MAX_MS: u32 = 300_000;

/// Connects a client with a dialect; each ClientGuid is limited to one dialect (3.3.5.5.3).
fn of(server: &HoldfastServer, dialect: Dialect) -> Tree {
    let guid = Guid([dialect.0.to_le_bytes()[0]; 16]);
    server.tree_with(Options::dialect(dialect).guid(guid))
}

fn modern(server: &HoldfastServer) -> Tree {
    of(server, Dialect::SMB_3_1_1)
}

fn input(timeout_ms: u32) -> BytesMut {
    let mut data = BytesMut::new();
    LmrRequestResiliency { timeout_ms }.encode(&mut data);
    data
}

fn ask(file: &File, timeout_ms: u32) -> Result<Vec<u8>, ClientError> {
    file.ioctl(FsctlCode::LMR_REQUEST_RESILIENCY, &input(timeout_ms), 0)
}

fn plain() -> CreateArgs {
    CreateArgs::open_if("f")
}

/// Creates a resilient open without an oplock and loses its connection.
fn lost(server: &HoldfastServer, args: &CreateArgs, timeout_ms: u32) -> FileId {
    let tree = modern(server);
    let file = tree.create(args).unwrap();
    file.write_all(0, b"before").unwrap();
    ask(&file, timeout_ms).unwrap();
    server.lose(&tree);
    file.id()
}

#[test]
fn resiliency_is_granted_on_2_1_and_later() {
    let server = HoldfastServer::new();
    for dialect in [Dialect::SMB_2_1, Dialect::SMB_3_0, Dialect::SMB_3_1_1] {
        let tree = of(&server, dialect);
        let file = tree.create(&plain()).unwrap();
        // [MS-SMB2] 3.3.5.15.9 compares the seconds with the maximum.
        for timeout_ms in [1, 60_000, TIMEOUT_MAX_MS, TIMEOUT_MAX_MS + 999, 0] {
            let data = input(timeout_ms);
            let request = file.ioctl_request(FsctlCode::LMR_REQUEST_RESILIENCY, &data, 0);
            let reply = tree.call(request).unwrap();
            let response = IoctlResponse::read(&reply.message).unwrap();
            assert_eq!(
                response.ctl_code,
                FsctlCode::LMR_REQUEST_RESILIENCY.0,
                "{dialect:?}"
            );
            assert_eq!(response.file_id, file.id());
            assert!(response.output.is_empty());
        }
        file.close().unwrap();
    }
}

#[test]
fn smb_2_0_2_may_refuse_resiliency() {
    // "MAY fail the request with STATUS_INVALID_DEVICE_REQUEST"
    let server = HoldfastServer::new();
    let tree = of(&server, Dialect::SMB_2_0_2);
    let file = tree.create(&plain()).unwrap();
    let end = status(ask(&file, 1000));
    assert!(
        [
            Status::SUCCESS,
            Status::INVALID_DEVICE_REQUEST,
            // "does not support FSCTL_LMR_REQUEST_RESILIENCY requests"
            Status::NOT_SUPPORTED
        ]
        .contains(&end),
        "{end}"
    );
    file.write_all(0, b"works on").unwrap();
}

#[test]
fn an_input_that_is_too_short_is_refused() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let file = tree.create(&plain()).unwrap();
    for size in 0..8 {
        let short = &input(1000)[..size];
        let end = file.ioctl(FsctlCode::LMR_REQUEST_RESILIENCY, short, 0);
        assert_eq!(status(end), Status::INVALID_PARAMETER, "{size}");
    }
    // A longer input is accepted: only shorter ones are refused.
    let mut long = input(1000);
    long.extend_from_slice(&[0; 8]);
    file.ioctl(FsctlCode::LMR_REQUEST_RESILIENCY, &long, 0)
        .unwrap();
}

#[test]
fn a_timeout_above_the_maximum_is_refused() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let file = tree.create(&plain()).unwrap();
    for timeout_ms in [TIMEOUT_MAX_MS + 1000, u32::MAX] {
        assert_eq!(
            status(ask(&file, timeout_ms)),
            Status::INVALID_PARAMETER,
            "{timeout_ms}"
        );
    }
    // The open does not become resilient.
    let id = file.id();
    server.lose(&tree);
    let again = modern(&server).create(&v1_again(plain(), id));
    assert_eq!(status(again), Status::OBJECT_NAME_NOT_FOUND);
}

#[test]
fn an_unknown_handle_gives_file_closed() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let file = tree.create(&plain()).unwrap();
    file.close().unwrap();
    assert_eq!(status(ask(&file, 1000)), Status::FILE_CLOSED);
}

#[test]
fn a_resilient_open_survives_without_an_oplock() {
    for (dialect, level) in [
        (Dialect::SMB_2_1, OplockLevel::NONE),
        (Dialect::SMB_3_1_1, OplockLevel::NONE),
        (Dialect::SMB_3_1_1, OplockLevel::II),
    ] {
        let server = HoldfastServer::new();
        let tree = of(&server, dialect);
        let file = tree.create(&plain().oplock(level)).unwrap();
        file.write_all(0, b"before").unwrap();
        ask(&file, 60_000).unwrap();
        server.lose(&tree);
        let tree = of(&server, dialect);
        let again = tree.create(&v1_again(plain(), file.id())).unwrap();
        assert_eq!(again.id().persistent, file.id().persistent);
        assert_eq!(again.read_all().unwrap(), b"before");
        again.write_all(6, b"after").unwrap();
    }
}

#[test]
fn an_exclusive_oplock_is_restored_by_the_reconnect() {
    for level in [OplockLevel::EXCLUSIVE, OplockLevel::BATCH] {
        let server = HoldfastServer::new();
        let tree = modern(&server);
        let file = tree.create(&plain().oplock(level)).unwrap();
        ask(&file, 60_000).unwrap();
        server.lose(&tree);
        let again = v1_again(plain(), file.id());
        let again = modern(&server).create(&again).unwrap();
        assert_eq!(again.created().oplock_level, level);
    }
}

#[test]
fn level_ii_is_restored_by_the_reconnect() {
    // 3.3.7.1 does not change Open.OplockLevel; 3.3.5.9 "Response Construction" returns it.
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let file = tree.create(&plain().oplock(OplockLevel::II)).unwrap();
    ask(&file, 60_000).unwrap();
    server.lose(&tree);
    let again = v1_again(plain(), file.id());
    let again = modern(&server).create(&again).unwrap();
    assert_eq!(again.created().oplock_level, OplockLevel::II);
}

#[test]
fn locks_are_held_and_restored() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let file = tree.create(&plain()).unwrap();
    file.write_all(0, &[1; 100]).unwrap();
    file.lock(0, 10, EXCLUSIVE).unwrap();
    ask(&file, 60_000).unwrap();
    server.lose(&tree);
    let theirs = server.tree().create(&CreateArgs::open("f")).unwrap();
    assert_eq!(
        status(theirs.lock(0, 1, EXCLUSIVE)),
        Status::LOCK_NOT_GRANTED
    );
    assert_eq!(status(theirs.read(0, 1)), Status::FILE_LOCK_CONFLICT);
    let tree = modern(&server);
    let file = tree.create(&v1_again(plain(), file.id())).unwrap();
    file.unlock(0, 10).unwrap();
    theirs.lock(0, 1, EXCLUSIVE).unwrap();
}

#[test]
fn the_share_mode_applies_while_disconnected() {
    let server = HoldfastServer::new();
    let alone = plain().share(ShareAccess::empty());
    let id = lost(&server, &alone, 60_000);
    let stranger = server.tree();
    let open = stranger.create(&CreateArgs::open("f"));
    assert_eq!(status(open), Status::SHARING_VIOLATION);
    let tree = modern(&server);
    let file = tree.create(&v1_again(plain(), id)).unwrap();
    assert_eq!(file.read_all().unwrap(), b"before");
    file.close().unwrap();
    stranger.create(&CreateArgs::open("f")).unwrap();
}

#[test]
fn a_conflicting_open_does_not_close_a_resilient_open() {
    // 3.3.4.6 closes durable opens; this one is not durable ("Open.IsDurable MUST be set to
    // FALSE").
    let server = HoldfastServer::new();
    let batch = plain().oplock(OplockLevel::BATCH);
    let id = lost(&server, &batch, 60_000);
    let started = Instant::now();
    let theirs = server.tree().create(&CreateArgs::open("f")).unwrap();
    assert!(
        started.elapsed() < SOON,
        "the client waited for a lost connection"
    );
    theirs.write_all(0, b"BEFORE").unwrap();
    let tree = modern(&server);
    let file = tree.create(&v1_again(plain(), id)).unwrap();
    assert_eq!(file.read_all().unwrap(), b"BEFORE");
}

#[test]
fn a_logoff_preserves_a_resilient_open() {
    // 3.3.5.6
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let file = tree.create(&plain()).unwrap();
    ask(&file, 60_000).unwrap();
    tree.session().logoff().unwrap();
    let session = tree.client().login(USER, PASSWORD, "").unwrap();
    let tree = session.tree(DATA).unwrap();
    tree.create(&v1_again(plain(), file.id())).unwrap();
}

#[test]
fn another_user_is_denied() {
    let server = HoldfastServer::new();
    let id = lost(&server, &plain(), 60_000);
    let thief = server.client(Options::default().guid(CLIENT_GUID));
    let thief = thief.login(OTHER_USER, OTHER_PASSWORD, "").unwrap();
    let thief = thief.tree(DATA).unwrap();
    assert_eq!(
        status(thief.create(&v1_again(plain(), id))),
        Status::ACCESS_DENIED
    );
    modern(&server).create(&v1_again(plain(), id)).unwrap();
}

#[test]
fn a_connected_open_is_not_found() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let file = tree.create(&plain()).unwrap();
    ask(&file, 60_000).unwrap();
    let again = modern(&server).create(&v1_again(plain(), file.id()));
    assert_eq!(status(again), Status::OBJECT_NAME_NOT_FOUND);
    file.write_all(0, b"unharmed").unwrap();
}

#[test]
fn a_durable_open_made_resilient_reconnects_by_either_version() {
    // 3.3.5.9.12 accepts resilient opens, too; the CreateGuid remains.
    let server = HoldfastServer::new();
    let args = || {
        CreateArgs::open_if("f").lease_v2(
            LeaseKey([9; 16]),
            smb_wire::create_context::LeaseState::RWH,
            0,
        )
    };
    let tree = modern(&server);
    let file = tree.create(&v2(args(), CREATE_GUID, 0)).unwrap();
    assert!(granted_v2(&file).is_some());
    ask(&file, 60_000).unwrap();
    server.lose(&tree);
    let tree = modern(&server);
    let file = tree
        .create(&v2_again(args(), file.id(), CREATE_GUID))
        .unwrap();
    server.lose(&tree);
    let tree = modern(&server);
    tree.create(&v1_again(args(), file.id())).unwrap();
}

#[test]
fn a_resilient_open_is_closed_after_its_timeout_and_not_before() {
    // 3.3.6.4
    let server = HoldfastServer::new();
    let doomed = plain().options(CreateOptions::DELETE_ON_CLOSE);
    let started = Instant::now();
    let id = lost(&server, &doomed, 1000);
    assert!(server.path("f").exists());
    wait_until("the scavenger closes it", || !server.path("f").exists());
    assert!(started.elapsed() >= Duration::from_secs(1));
    let again = modern(&server).create(&v1_again(plain(), id));
    assert_eq!(status(again), Status::OBJECT_NAME_NOT_FOUND);
}

#[test]
fn the_last_requested_timeout_applies() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let doomed = plain().options(CreateOptions::DELETE_ON_CLOSE);
    let file = tree.create(&doomed).unwrap();
    ask(&file, 100).unwrap();
    ask(&file, 60_000).unwrap();
    server.lose(&tree);
    std::thread::sleep(Duration::from_millis(700));
    assert!(server.path("f").exists());
    let tree = modern(&server);
    let file = tree.create(&v1_again(plain(), file.id())).unwrap();
    ask(&file, 100).unwrap();
    server.lose(&tree);
    wait_until("the scavenger closes it", || !server.path("f").exists());
}

#[test]
fn a_lock_repeated_after_the_reconnect_is_not_executed_again() {
    // 3.3.5.14, on 2.1 for resilient opens.
    let server = HoldfastServer::new();
    let tree = of(&server, Dialect::SMB_2_1);
    let file = tree.create(&plain()).unwrap();
    ask(&file, 60_000).unwrap();
    let element = LockElement {
        offset: 0,
        length: 10,
        flags: EXCLUSIVE,
    };
    let sequence = (7 << 4) | 3;
    tree.call(file.lock_request(sequence, &[element])).unwrap();
    server.lose(&tree);
    let tree = of(&server, Dialect::SMB_2_1);
    let file = tree.create(&v1_again(plain(), file.id())).unwrap();
    tree.call(file.lock_request(sequence, &[element])).unwrap();
    let new = file.lock_request(sequence + 1, &[element]);
    assert_eq!(status(tree.call(new)), Status::LOCK_NOT_GRANTED);
}
