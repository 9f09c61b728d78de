//! Durable opens and replays in CREATE ([MS-SMB2] 3.3.5.9.6, 3.3.5.9.7, 3.3.5.9.10, 3.3.5.9.12).

use bytes::BytesMut;
use smb_client::{Client, CreateArgs, File, Options, Tree};
use smb_tests::{DATA, HoldfastServer, OTHER_PASSWORD, OTHER_USER, PASSWORD, USER, status};
use smb_wire::Status;
use smb_wire::create_context::{
    DurableHandleFlags, DurableHandleReconnect, DurableHandleReconnectV2, DurableHandleRequestV2,
    LeaseState, name,
};
use smb_wire::header::HeaderFlags;
use smb_wire::ids::{FileId, Guid, LeaseKey};
use smb_wire::msg::{Dialect, LockFlags, OplockLevel, ShareAccess, WriteFlags};

const KEY: LeaseKey = LeaseKey([0x33; 16]);
const CREATE_GUID: Guid = Guid([0x44; 16]);
const CLIENT_GUID: Guid = Guid([0x55; 16]);

fn client(server: &HoldfastServer, dialect: Dialect) -> Client {
    server.client(Options::dialect(dialect).guid(CLIENT_GUID))
}

fn tree(server: &HoldfastServer, dialect: Dialect) -> Tree {
    let session = client(server, dialect).login(USER, PASSWORD, "").unwrap();
    session.tree(DATA).unwrap()
}

fn request_v2(args: CreateArgs, timeout_ms: u32) -> CreateArgs {
    let mut data = BytesMut::new();
    DurableHandleRequestV2 {
        timeout_ms,
        flags: DurableHandleFlags::empty(),
        create_guid: CREATE_GUID,
    }
    .encode(&mut data);
    args.context(name::DURABLE_HANDLE_REQUEST_V2, &data)
}

fn reconnect_v2(args: CreateArgs, file_id: FileId, create_guid: Guid) -> CreateArgs {
    let mut data = BytesMut::new();
    DurableHandleReconnectV2 {
        file_id,
        create_guid,
        flags: DurableHandleFlags::empty(),
    }
    .encode(&mut data);
    args.context(name::DURABLE_HANDLE_RECONNECT_V2, &data)
}

fn reconnect_v1(args: CreateArgs, file_id: FileId) -> CreateArgs {
    let mut data = BytesMut::new();
    DurableHandleReconnect { file_id }.encode(&mut data);
    args.context(name::DURABLE_HANDLE_RECONNECT, &data)
}

fn batch(name: &str) -> CreateArgs {
    CreateArgs::open_if(name).oplock(OplockLevel::BATCH)
}

fn leased(name: &str) -> CreateArgs {
    CreateArgs::open_if(name).lease_v2(KEY, LeaseState::RWH, 0)
}

/// Loses the connection and waits until the server has noticed.
fn lose(server: &HoldfastServer, tree: Tree, file: File) -> FileId {
    let id = file.id();
    tree.client()
        .connection()
        .stream_mut()
        .shutdown(std::net::Shutdown::Both)
        .unwrap();
    drop((tree, file));
    // Another connection's round gives the server time to notice.
    server.assert_serving();
    std::thread::sleep(std::time::Duration::from_millis(100));
    id
}

#[test]
#[ignore = "the server grants no durable opens yet"]
fn version_1_survives_a_lost_connection() {
    let server = HoldfastServer::new();
    for dialect in [Dialect::SMB_2_0_2, Dialect::SMB_2_1, Dialect::SMB_3_1_1] {
        let before = tree(&server, dialect);
        let args = batch("f").context(name::DURABLE_HANDLE_REQUEST, &[0; 16]);
        let file = before.create(&args).unwrap();
        assert!(
            file.created()
                .context(name::DURABLE_HANDLE_REQUEST)
                .is_some()
        );
        file.write_all(0, b"before").unwrap();
        let id = lose(&server, before, file);
        let after = tree(&server, dialect);
        let file = after.create(&reconnect_v1(batch("f"), id)).unwrap();
        assert_eq!(file.id().persistent, id.persistent);
        file.write(6, b"after", WriteFlags::empty()).unwrap();
        file.close().unwrap();
        assert_eq!(std::fs::read(server.path("f")).unwrap(), b"beforeafter");
        after.delete("f").unwrap();
    }
}

#[test]
#[ignore = "the server grants no durable opens yet"]
fn version_2_survives_with_its_locks() {
    let server = HoldfastServer::new();
    for lease in [false, true] {
        let args = || if lease { leased("f") } else { batch("f") };
        let before = tree(&server, Dialect::SMB_3_1_1);
        let file = before.create(&request_v2(args(), 0)).unwrap();
        let granted = file
            .created()
            .context(name::DURABLE_HANDLE_REQUEST_V2)
            .unwrap();
        assert_eq!(granted.len(), 8);
        assert_ne!(granted[..4], [0; 4], "no timeout");
        file.write_all(0, &[1; 100]).unwrap();
        file.lock(0, 10, LockFlags::EXCLUSIVE | LockFlags::FAIL_IMMEDIATELY)
            .unwrap();
        let id = lose(&server, before, file);
        let after = tree(&server, Dialect::SMB_3_1_1);
        let file = after
            .create(&reconnect_v2(args(), id, CREATE_GUID))
            .unwrap();
        // The lock is still there to be unlocked.
        file.unlock(0, 10).unwrap();
        file.close().unwrap();
        after.delete("f").unwrap();
    }
}

#[test]
fn without_batch_or_handle_caching_nothing_is_durable() {
    let server = HoldfastServer::new();
    let tree = tree(&server, Dialect::SMB_3_1_1);
    for args in [
        CreateArgs::open_if("f"),
        CreateArgs::open_if("f").oplock(OplockLevel::II),
        CreateArgs::open_if("f").lease_v2(KEY, LeaseState::READ, 0),
    ] {
        let file = tree.create(&request_v2(args.clone(), 0)).unwrap();
        assert!(
            file.created()
                .context(name::DURABLE_HANDLE_REQUEST_V2)
                .is_none()
        );
        file.close().unwrap();
        let file = tree
            .create(&args.context(name::DURABLE_HANDLE_REQUEST, &[0; 16]))
            .unwrap();
        assert!(
            file.created()
                .context(name::DURABLE_HANDLE_REQUEST)
                .is_none()
        );
        file.close().unwrap();
    }
}

#[test]
fn an_open_that_is_not_durable_dies_with_its_connection() {
    let server = HoldfastServer::new();
    let before = tree(&server, Dialect::SMB_3_1_1);
    let file = before
        .create(&batch("f").share(ShareAccess::empty()))
        .unwrap();
    let id = lose(&server, before, file);
    let after = tree(&server, Dialect::SMB_3_1_1);
    let again = after.create_status(&reconnect_v2(batch("f"), id, CREATE_GUID));
    assert_eq!(again.unwrap(), Status::OBJECT_NAME_NOT_FOUND);
    after.create(&CreateArgs::open("f")).unwrap();
}

#[test]
#[ignore = "the server grants no durable opens yet"]
fn reconnects_that_do_not_fit_are_refused() {
    let server = HoldfastServer::new();
    let before = tree(&server, Dialect::SMB_3_1_1);
    let file = before.create(&request_v2(leased("f"), 0)).unwrap();
    let id = lose(&server, before, file);
    let after = tree(&server, Dialect::SMB_3_1_1);
    let end = |args: &CreateArgs| after.create_status(args).unwrap();
    // Another CreateGuid, another id, no lease, another lease key.
    let other = Guid([0x99; 16]);
    assert_eq!(
        end(&reconnect_v2(leased("f"), id, other)),
        Status::OBJECT_NAME_NOT_FOUND
    );
    let wrong = FileId {
        persistent: id.persistent ^ 0x40,
        ..id
    };
    assert_eq!(
        end(&reconnect_v2(leased("f"), wrong, CREATE_GUID)),
        Status::OBJECT_NAME_NOT_FOUND
    );
    assert_eq!(
        end(&reconnect_v2(batch("f"), id, CREATE_GUID)),
        Status::OBJECT_NAME_NOT_FOUND
    );
    let key = CreateArgs::open_if("f").lease_v2(LeaseKey([1; 16]), LeaseState::RWH, 0);
    assert_eq!(
        end(&reconnect_v2(key, id, CREATE_GUID)),
        Status::OBJECT_NAME_NOT_FOUND
    );
    // Another name under the lease.
    assert_eq!(
        end(&reconnect_v2(leased("g"), id, CREATE_GUID)),
        Status::INVALID_PARAMETER
    );
    // Another user.
    let stranger = client(&server, Dialect::SMB_3_1_1)
        .login(OTHER_USER, OTHER_PASSWORD, "")
        .unwrap()
        .tree(DATA)
        .unwrap();
    let stolen = stranger.create_status(&reconnect_v2(leased("f"), id, CREATE_GUID));
    assert_eq!(stolen.unwrap(), Status::ACCESS_DENIED);
    assert!(!server.path("g").exists());
    // None of this harmed it.
    let file = after
        .create(&reconnect_v2(leased("f"), id, CREATE_GUID))
        .unwrap();
    // And it is connected now.
    assert_eq!(
        end(&reconnect_v2(leased("f"), id, CREATE_GUID)),
        Status::OBJECT_NAME_NOT_FOUND
    );
    file.close().unwrap();
}

#[test]
#[ignore = "the server grants no durable opens yet"]
fn contexts_that_exclude_each_other() {
    let server = HoldfastServer::new();
    let tree = tree(&server, Dialect::SMB_3_1_1);
    let id = FileId {
        persistent: 1,
        volatile: 1,
    };
    for args in [
        request_v2(batch("f"), 0).context(name::DURABLE_HANDLE_REQUEST, &[0; 16]),
        reconnect_v2(request_v2(batch("f"), 0), id, CREATE_GUID),
        reconnect_v2(reconnect_v1(batch("f"), id), id, CREATE_GUID),
        reconnect_v1(request_v2(batch("f"), 0), id),
    ] {
        assert_eq!(
            tree.create_status(&args).unwrap(),
            Status::INVALID_PARAMETER
        );
    }
    assert!(!server.path("f").exists());
}

#[test]
fn a_kept_open_still_counts_for_sharing() {
    let server = HoldfastServer::new();
    let before = tree(&server, Dialect::SMB_3_1_1);
    let exclusive = leased("f").share(ShareAccess::empty());
    let file = before.create(&request_v2(exclusive, 0)).unwrap();
    let id = lose(&server, before, file);
    // The conflict breaks its handle caching; nobody answers, so it is closed.
    let other = server.tree();
    other
        .create(&CreateArgs::open("f"))
        .unwrap()
        .close()
        .unwrap();
    let after = tree(&server, Dialect::SMB_3_1_1);
    let again = after.create_status(&reconnect_v2(leased("f"), id, CREATE_GUID));
    assert_eq!(again.unwrap(), Status::OBJECT_NAME_NOT_FOUND);
}

#[test]
#[ignore = "the server grants no durable opens yet"]
fn a_replayed_create_gives_the_same_open() {
    let server = HoldfastServer::new();
    let tree = tree(&server, Dialect::SMB_3_1_1);
    let args = request_v2(CreateArgs::create("f").oplock(OplockLevel::BATCH), 0);
    let file = tree.create(&args).unwrap();
    let replay = args.request().flag(HeaderFlags::REPLAY);
    let again = tree.file(&tree.call(replay).unwrap()).unwrap();
    assert_eq!(again.id(), file.id());
    // The same CreateGuid without the flag is no replay.
    assert_eq!(
        tree.create_status(&args).unwrap(),
        Status::DUPLICATE_OBJECTID
    );
    file.close().unwrap();
    assert_eq!(status(again.close()), Status::FILE_CLOSED);
}

#[test]
fn old_requests_of_another_channel_are_refused() {
    // [MS-SMB2] 3.3.5.2.10
    let server = HoldfastServer::new();
    let tree = tree(&server, Dialect::SMB_3_1_1);
    let file = tree.create(&CreateArgs::create("f")).unwrap();
    let write = |sequence: u16, data: &[u8]| {
        let mut request = file.write_request(0, data, WriteFlags::empty());
        request.channel_sequence = sequence;
        tree.reply(request).unwrap().status()
    };
    assert_eq!(write(5, b"new"), Status::SUCCESS);
    assert_eq!(write(4, b"old"), Status::FILE_NOT_AVAILABLE);
    assert_eq!(
        write(5u16.wrapping_add(0x8000), b"old"),
        Status::FILE_NOT_AVAILABLE
    );
    assert_eq!(std::fs::read(server.path("f")).unwrap(), b"new");
    assert_eq!(write(6, b"NEW"), Status::SUCCESS);
    // Reading is not refused for that.
    let mut read = file.read_request(0, 3, 0);
    read.channel_sequence = 1;
    assert_eq!(tree.reply(read).unwrap().status(), Status::SUCCESS);
}
