//! Persistent opens of a continuously available share ([MS-SMB2] 3.3.5.9, 3.3.5.9.10, 3.3.5.9.12):
//! the conditions, and the behaviour of a disconnected open towards other clients. Its survival of the
//! server process is in `persistent_restart.rs`.

use std::{
    os::unix::fs::PermissionsExt as _,
    time::{Duration, Instant},
};

use smb_client::{ClientError, CreateArgs, File, Options, Signing, Tree};
use smb_tests::durable::{
    CREATE_GUID, KEY, OTHER_CLIENT, continuously_available, granted_v2, modern, options,
    persistent, persistent_again, v2, v2_again,
};
use smb_tests::{
    DATA, HoldfastServer, OTHER_PASSWORD, OTHER_USER, SECOND, USER, status, wait_until,
};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::{DurableHandleFlags, LeaseState};
use smb_wire::header::HeaderFlags;
use smb_wire::ids::{FileId, Guid};
use smb_wire::msg::{
    Capabilities, CreateOptions, Dialect, OplockLevel, ShareAccess, ShareCapabilities,
};

pub(super) const RH: LeaseState = LeaseState(3);
pub(super) const RWH: LeaseState = LeaseState::RWH;

pub(super) fn other(server: &HoldfastServer) -> Tree {
    server.tree_with(Options::default().guid(OTHER_CLIENT))
}

pub(super) fn plain() -> CreateArgs {
    CreateArgs::open_if("f")
}

pub(super) fn batch() -> CreateArgs {
    plain().oplock(OplockLevel::BATCH)
}

pub(super) fn leased(state: LeaseState) -> CreateArgs {
    plain().lease_v2(KEY, state, 0)
}

fn ask(args: CreateArgs) -> CreateArgs {
    persistent(args, CREATE_GUID, 60_000)
}

/// Repeats a request of [`ask`].
pub(super) fn sent_again(tree: &Tree, args: CreateArgs) -> Result<File, ClientError> {
    let again = ask(args).request().flag(HeaderFlags::REPLAY);
    tree.file(&tree.call(again)?)
}

pub(super) fn is_persistent(file: &File) -> bool {
    granted_v2(file).is_some_and(|g| g.flags.contains(DurableHandleFlags::PERSISTENT))
}

pub(super) fn open(tree: &Tree, args: CreateArgs) -> File {
    let file = tree.create(&ask(args)).unwrap();
    assert!(is_persistent(&file));
    file.write_all(0, b"before").unwrap();
    file
}

pub(super) fn again(args: CreateArgs, id: FileId) -> CreateArgs {
    persistent_again(args, id, CREATE_GUID)
}

/// Opens persistently, then loses the connection; the server keeps running.
fn lost(server: &HoldfastServer, args: CreateArgs) -> FileId {
    let tree = modern(server);
    let file = open(&tree, args);
    server.lose(&tree);
    file.id()
}

pub(super) fn end<T>(result: Result<T, ClientError>) -> Status {
    status(result)
}

#[test]
fn the_share_and_the_server_announce_persistence_on_3x() {
    // 3.3.5.4, 3.3.5.7
    let server = continuously_available();
    for (dialect, expected) in [
        (Dialect::SMB_2_1, false),
        (Dialect::SMB_3_0, true),
        (Dialect::SMB_3_1_1, true),
    ] {
        let tree = server.tree_with(Options::dialect(dialect));
        let capability = tree.client().negotiated().capabilities;
        assert_eq!(
            capability.contains(Capabilities::PERSISTENT_HANDLES),
            expected,
            "{dialect:?}"
        );
        let share = tree.info().capabilities;
        let flag = ShareCapabilities::CONTINUOUS_AVAILABILITY;
        assert_eq!(share.contains(flag), expected, "{dialect:?}");
    }
}

#[test]
fn an_open_closed_by_an_administrator_cannot_be_reconnected() {
    let mut server = continuously_available();
    // Once while its client is connected, once while it is not.
    let tree = modern(&server);
    let id = open(&tree, batch()).id();
    assert!(server.close_user(USER));
    let back = |server: &HoldfastServer| modern(server).create(&again(batch(), id));
    assert_eq!(end(back(&server)), Status::OBJECT_NAME_NOT_FOUND);
    let id = lost(&server, batch());
    assert!(server.close_user(USER));
    let back = |server: &HoldfastServer| modern(server).create(&again(batch(), id));
    assert_eq!(end(back(&server)), Status::OBJECT_NAME_NOT_FOUND);
    let opens = |server: &HoldfastServer| server.status()["server"]["tables"]["opens"].take();
    wait_until("its record is gone", || opens(&server) == 0);
    server.kill_and_restart();
    assert_eq!(end(back(&server)), Status::OBJECT_NAME_NOT_FOUND);
    assert_eq!(other(&server).read_file("f").unwrap(), b"before");
}

#[test]
fn a_persistent_open_is_granted_with_any_caching() {
    let server = continuously_available();
    let tree = modern(&server);
    for args in [
        plain(),
        plain().oplock(OplockLevel::II),
        batch(),
        leased(LeaseState::READ),
        leased(RH),
        leased(RWH),
    ] {
        let file = tree.create(&ask(args.clone())).unwrap();
        assert!(is_persistent(&file), "{args:?}");
        assert_eq!(granted_v2(&file).unwrap().timeout_ms, 60_000);
        file.close().unwrap();
    }
}

#[test]
fn a_persistent_open_is_granted_only_on_request() {
    let server = continuously_available();
    let tree = modern(&server);
    let file = tree.create(&v2(batch(), CREATE_GUID, 0)).unwrap();
    assert!(granted_v2(&file).is_some() && !is_persistent(&file));
    file.close().unwrap();
    let file = tree.create(&v2(plain(), CREATE_GUID, 0)).unwrap();
    assert_eq!(granted_v2(&file), None);
}

#[test]
fn a_client_without_the_capability_gets_no_persistent_open() {
    // "Connection.ServerCapabilities includes SMB2_GLOBAL_CAP_PERSISTENT_HANDLES"
    let server = continuously_available();
    let mut silent = options();
    silent.capabilities = Capabilities::LARGE_MTU | Capabilities::LEASING;
    let tree = server.tree_with(silent);
    let file = tree.create(&ask(batch())).unwrap();
    assert!(!is_persistent(&file));
}

#[test]
fn a_flush_succeeds_at_once() {
    // 3.3.5.11
    let server = continuously_available();
    let file = open(&modern(&server), plain());
    file.flush(false).unwrap();
    file.flush(true).unwrap();
    // The access rights are still checked first.
    let reader = persistent(
        plain().access(AccessMask::FILE_GENERIC_READ),
        Guid([9; 16]),
        0,
    );
    let reader = file.tree().create(&reader).unwrap();
    assert_eq!(end(reader.flush(false)), Status::ACCESS_DENIED);
}

#[test]
fn a_persistent_open_survives_a_lost_connection_with_any_caching() {
    for args in [plain(), batch(), leased(RH), leased(RWH)] {
        let server = continuously_available();
        let id = lost(&server, args.clone());
        let file = modern(&server).create(&again(args.clone(), id)).unwrap();
        assert_eq!(file.id().persistent, id.persistent);
        assert_eq!(file.created().oplock_level, args.oplock_level);
        assert_eq!(file.read_all().unwrap(), b"before");
    }
}

#[test]
fn before_3_0_the_open_is_not_refused_for_availability() {
    // The share mode is decisive then.
    let server = continuously_available();
    let id = lost(&server, plain().share(ShareAccess::empty()));
    let old = server.tree_with(Options::dialect(Dialect::SMB_2_1));
    assert_eq!(
        end(old.create(&CreateArgs::open("f"))),
        Status::SHARING_VIOLATION
    );
    modern(&server).create(&again(plain(), id)).unwrap();
}

#[test]
fn a_reconnect_without_the_flag_is_not_found() {
    // 3.3.5.9.12
    let server = continuously_available();
    let id = lost(&server, plain());
    let tree = modern(&server);
    let durable = tree.create(&v2_again(plain(), id, CREATE_GUID));
    assert_eq!(end(durable), Status::OBJECT_NAME_NOT_FOUND);
    tree.create(&again(plain(), id)).unwrap();
}

#[test]
fn the_create_guid_alone_finds_the_open() {
    // 3.3.5.9.12: the open is looked up by CreateGuid if the id is unknown.
    let server = continuously_available();
    let id = lost(&server, plain());
    let tree = modern(&server);
    let wrong = FileId {
        persistent: id.persistent ^ 0x40,
        volatile: 7,
    };
    let stranger = persistent_again(plain(), wrong, Guid([9; 16]));
    assert_eq!(end(tree.create(&stranger)), Status::OBJECT_NAME_NOT_FOUND);
    let file = tree.create(&again(plain(), wrong)).unwrap();
    assert_eq!(file.id().persistent, id.persistent);
    assert_eq!(file.read_all().unwrap(), b"before");
}

#[test]
fn another_user_is_denied() {
    let server = continuously_available();
    let id = lost(&server, plain());
    let thief = server.client(options());
    let thief = thief.login(OTHER_USER, OTHER_PASSWORD, "").unwrap();
    let thief = thief.tree(DATA).unwrap();
    assert_eq!(
        end(thief.create(&again(plain(), id))),
        Status::ACCESS_DENIED
    );
    // A repeated CREATE is denied, too.
    assert_eq!(end(sent_again(&thief, plain())), Status::ACCESS_DENIED);
    modern(&server).create(&again(plain(), id)).unwrap();
}

#[test]
fn a_repeated_create_finds_the_open() {
    // 3.3.5.9 "Create Context Validation", for a client that lost even the response.
    let server = continuously_available();
    let id = lost(&server, plain());
    let file = sent_again(&modern(&server), plain()).unwrap();
    assert_eq!(file.id().persistent, id.persistent);
    assert!(is_persistent(&file));
    assert_eq!(file.read_all().unwrap(), b"before");
}

#[test]
fn a_repeated_create_must_have_the_same_parameters() {
    let server = continuously_available();
    let id = lost(&server, plain());
    let tree = modern(&server);
    for other in [
        plain().options(CreateOptions::NON_DIRECTORY_FILE),
        plain().access(AccessMask::FILE_GENERIC_READ),
        plain().share(ShareAccess::READ),
    ] {
        assert_eq!(
            end(sent_again(&tree, other.clone())),
            Status::CONTEXT_MISMATCH,
            "{other:?}"
        );
    }
    tree.create(&again(plain(), id)).unwrap();
}

#[test]
fn a_repeated_create_while_connected_is_not_available() {
    // "If Open.Connection is not NULL, ... STATUS_FILE_NOT_AVAILABLE"
    let server = continuously_available();
    let file = open(&modern(&server), plain());
    file.write_all(0, b"unharmed").unwrap();
    let early = sent_again(&modern(&server), plain());
    assert_eq!(end(early), Status::FILE_NOT_AVAILABLE);
    assert_eq!(file.read_all().unwrap(), b"unharmed");
}

#[test]
fn a_create_repeated_by_another_client_while_connected_is_not_available() {
    // 3.3.5.9: the open is looked up by CreateGuid alone.
    let server = continuously_available();
    let stranger = other(&server);
    let file = open(&modern(&server), plain());
    let early = sent_again(&stranger, plain());
    assert_eq!(end(early), Status::FILE_NOT_AVAILABLE);
    file.close().unwrap();
    // No open has this CreateGuid any more, so it is a first CREATE.
    assert!(is_persistent(&sent_again(&stranger, plain()).unwrap()));
}

#[test]
fn a_refused_create_leaves_an_open_its_create_guid() {
    let server = continuously_available();
    let tree = modern(&server);
    // The open was used, so another CREATE may have its CreateGuid.
    let file = open(&tree, plain());
    let missing = tree.create(&ask(CreateArgs::open("missing")));
    assert_eq!(end(missing), Status::OBJECT_NAME_NOT_FOUND);
    let early = sent_again(&other(&server), plain());
    assert_eq!(end(early), Status::FILE_NOT_AVAILABLE);
    file.close().unwrap();
    assert!(is_persistent(&sent_again(&tree, plain()).unwrap()));
}

#[test]
fn another_create_with_the_same_guid_is_refused() {
    // 3.3.5.9.10: an open is found "and the SMB2_FLAGS_REPLAY_OPERATION bit is not set".
    let server = continuously_available();
    let tree = modern(&server);
    let id = tree.create(&ask(plain())).unwrap().id();
    assert_eq!(end(tree.create(&ask(plain()))), Status::DUPLICATE_OBJECTID);
    server.lose(&tree);
    let tree = modern(&server);
    assert_eq!(end(tree.create(&ask(plain()))), Status::DUPLICATE_OBJECTID);
    tree.create(&again(plain(), id)).unwrap();
}

#[test]
fn a_replay_without_the_flag_is_refused() {
    // 3.3.5.9: "Open.IsPersistent is TRUE and the SMB2_DHANDLE_FLAG_PERSISTENT bit is not set"
    let server = continuously_available();
    let tree = modern(&server);
    let file = tree.create(&ask(plain())).unwrap();
    let replay = v2(plain(), CREATE_GUID, 60_000)
        .request()
        .flag(HeaderFlags::REPLAY);
    assert_eq!(end(tree.call(replay)), Status::INVALID_PARAMETER);
    let replay = ask(plain()).request().flag(HeaderFlags::REPLAY);
    let same = tree.file(&tree.call(replay).unwrap()).unwrap();
    assert_eq!(same.id(), file.id());
}

#[test]
fn a_disconnected_open_is_closed_after_its_timeout() {
    let server = continuously_available();
    let tree = modern(&server);
    let args = persistent(plain(), CREATE_GUID, 1000);
    let started = Instant::now();
    let file = tree.create(&args).unwrap();
    server.lose(&tree);
    let stranger = other(&server);
    wait_until("it is closed", || {
        stranger.create(&CreateArgs::open("f")).is_ok()
    });
    assert!(started.elapsed() >= Duration::from_secs(1));
    assert_eq!(
        end(modern(&server).create(&again(plain(), file.id()))),
        Status::OBJECT_NAME_NOT_FOUND
    );
}

/// [MS-SMB2] 3.3.5.9.10: an open of attributes alone can be replayed only if it is persistent.
#[test]
fn an_open_of_attributes_that_is_not_persistent_after_all_is_not_eligible() {
    let server = HoldfastServer::start(&smb_tests::Options {
        server: "signing = \"desired\"\n".to_owned(),
        share: "continuous_availability = true".to_owned(),
        tables: "[[share]]\nname = \"open\"\npath = \"second\"\nguest = true\n\
                 continuous_availability = true\n"
            .to_owned(),
        ..smb_tests::Options::default()
    });
    let folder = server.share_path(SECOND, "");
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    let client = server.client(options().signing(Signing::IfRequired));
    let guest = client.login("no-such-user", "x", "").unwrap();
    let tree = guest.tree("open").unwrap();
    let stat = AccessMask::FILE_READ_ATTRIBUTES | AccessMask::SYNCHRONIZE;
    let args = CreateArgs::create("f").access(stat);
    // A guest could not prove later that it is the same client, so nothing of it is recorded.
    let file = tree.create(&ask(args.clone())).unwrap();
    assert!(!is_persistent(&file));
    let again = sent_again(&tree, args);
    assert_eq!(status(again), Status::OBJECT_NAME_COLLISION);
}
