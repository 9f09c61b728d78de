//! Requests for durable opens ([MS-SMB2] 3.3.5.9.6, 3.3.5.9.10): the conditions, the timeout, and
//! the contexts that exclude each other. Reconnects are in `durable_reconnect.rs`.

use smb_client::{CreateArgs, Options, Tree};
use smb_tests::durable::{granted_v1, granted_v2, v1, v1_again, v2, v2_again};
use smb_tests::{HoldfastServer, MEANWHILE, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::{DurableHandleFlags, DurableHandleRequestV2, LeaseState, name};
use smb_wire::file_attributes::FileAttributes;
use smb_wire::header::HeaderFlags;
use smb_wire::ids::{FileId, Guid, LeaseKey};
use smb_wire::msg::{CreateDisposition, Dialect, OplockLevel, ShareAccess, WriteFlags};

const KEY: LeaseKey = LeaseKey([0x33; 16]);
const CREATE_GUID: Guid = Guid([0x44; 16]);
const RH: LeaseState = LeaseState(3);
const RW: LeaseState = LeaseState(5);

/// Connects a client with a dialect; each ClientGuid is limited to one dialect (3.3.5.5.3).
fn of(server: &HoldfastServer, dialect: Dialect) -> Tree {
    let guid = Guid([dialect.0.to_le_bytes()[0]; 16]);
    server.tree_with(Options::dialect(dialect).guid(guid))
}

fn modern(server: &HoldfastServer) -> Tree {
    of(server, Dialect::SMB_3_1_1)
}

fn batch(name: &str) -> CreateArgs {
    CreateArgs::open_if(name).oplock(OplockLevel::BATCH)
}

fn leased(name: &str, state: LeaseState) -> CreateArgs {
    CreateArgs::open_if(name).lease_v2(KEY, state, 0)
}

#[test]
fn version_1_is_granted_with_batch_on_every_dialect() {
    let server = HoldfastServer::new();
    for dialect in [
        Dialect::SMB_2_0_2,
        Dialect::SMB_2_1,
        Dialect::SMB_3_0,
        Dialect::SMB_3_1_1,
    ] {
        let tree = of(&server, dialect);
        let file = tree.create(&v1(batch("f"))).unwrap();
        assert_eq!(file.created().oplock_level, OplockLevel::BATCH);
        assert!(granted_v1(&file), "{dialect:?}");
        assert_eq!(granted_v2(&file), None);
        file.close().unwrap();
    }
}

#[test]
fn it_is_granted_with_a_lease_that_has_handle_caching() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    for state in [RH, LeaseState::RWH] {
        let file = tree.create(&v1(leased("f", state))).unwrap();
        assert!(granted_v1(&file), "{state:?}");
        assert_eq!(file.created().lease().unwrap().lease_state, state);
        file.close().unwrap();
        let file = tree
            .create(&v2(leased("f", state), CREATE_GUID, 0))
            .unwrap();
        assert!(granted_v2(&file).is_some(), "{state:?}");
        file.close().unwrap();
        let lease_v1 = CreateArgs::open_if("f").lease(KEY, state);
        let file = tree.create(&v2(lease_v1, CREATE_GUID, 0)).unwrap();
        assert!(granted_v2(&file).is_some(), "{state:?}, lease of version 1");
        file.close().unwrap();
    }
    // 3.3.5.5.3: each ClientGuid is limited to one dialect at a time.
    server.lose(&tree);
    let old = of(&server, Dialect::SMB_2_1);
    let file = old
        .create(&v1(CreateArgs::open_if("g").lease(KEY, RH)))
        .unwrap();
    assert!(granted_v1(&file));
}

#[test]
fn without_batch_or_handle_caching_nothing_is_durable() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    for args in [
        CreateArgs::open_if("f"),
        CreateArgs::open_if("f").oplock(OplockLevel::II),
        CreateArgs::open_if("f").oplock(OplockLevel::EXCLUSIVE),
        leased("f", LeaseState::empty()),
        leased("f", LeaseState::READ),
        leased("f", RW),
    ] {
        let file = tree.create(&v2(args.clone(), CREATE_GUID, 0)).unwrap();
        assert_eq!(granted_v2(&file), None, "{args:?}");
        file.close().unwrap();
        let file = tree.create(&v1(args.clone())).unwrap();
        assert!(!granted_v1(&file), "{args:?}");
        file.close().unwrap();
    }
}

/// [MS-SMB2] 3.3.5.9.6 goes by the state that is asked for, 3.3.5.9.10 with note 342 by the lease's.
#[test]
fn version_1_needs_a_request_for_handle_caching() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let _first = tree.create(&leased("f", LeaseState::RWH)).unwrap();
    let less = || leased("f", LeaseState::READ);
    let file = tree.create(&v1(less())).unwrap();
    assert_eq!(file.created().lease().unwrap().lease_state, LeaseState::RWH);
    assert!(!granted_v1(&file));
    let file = tree.create(&v2(less(), CREATE_GUID, 0)).unwrap();
    assert!(granted_v2(&file).is_some());
}

#[test]
fn a_batch_oplock_that_was_not_granted_makes_no_durable_open() {
    // [MS-SMB2] appendix A on 3.3.5.9.10: the response grants a durable open if BATCH or H is held;
    // the request alone does not suffice.
    let server = HoldfastServer::new();
    let (tree, other) = (modern(&server), server.tree());
    let reader = CreateArgs::open_if("f").oplock(OplockLevel::II);
    let _held = other.create(&reader).unwrap();
    let file = tree.create(&v2(batch("f"), CREATE_GUID, 0)).unwrap();
    assert_ne!(file.created().oplock_level, OplockLevel::BATCH);
    assert_eq!(granted_v2(&file), None);
}

#[test]
fn a_plain_open_has_no_durable_context() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    for args in [batch("f"), leased("f", LeaseState::RWH)] {
        let file = tree.create(&args).unwrap();
        assert!(!granted_v1(&file));
        assert_eq!(granted_v2(&file), None);
        file.close().unwrap();
    }
}

#[test]
fn a_directory_is_not_durable() {
    // 3.3.5.9.6: the context is ignored for a lease on a directory; 3.3.5.9.10: for any open of a
    // directory.
    let server = HoldfastServer::new();
    let tree = modern(&server);
    tree.mkdir("d").unwrap();
    let leased = || CreateArgs::directory("d").lease_v2(KEY, RH, 0);
    let open = tree.create(&v1(leased())).unwrap();
    assert!(!granted_v1(&open));
    open.close().unwrap();
    let args = leased().attributes(FileAttributes::DIRECTORY);
    let open = tree.create(&v2(args, CREATE_GUID, 0)).unwrap();
    assert_eq!(granted_v2(&open), None);
    open.close().unwrap();
}

#[test]
fn a_pipe_is_not_durable() {
    // 3.3.5.9: no oplock is requested on a pipe.
    let server = HoldfastServer::new();
    let session = server.session(Options::default());
    let tree = session.tree("IPC$").unwrap();
    let open = || CreateArgs::open("srvsvc").access(AccessMask::FILE_GENERIC_READ);
    let pipe = tree.create(&v1(open().oplock(OplockLevel::BATCH))).unwrap();
    assert!(!granted_v1(&pipe));
    let pipe = tree
        .create(&v2(open().oplock(OplockLevel::BATCH), CREATE_GUID, 0))
        .unwrap();
    assert_eq!(granted_v2(&pipe), None);
}

#[test]
fn version_2_begins_with_3_0() {
    // 3.3.5.9.10: 3.x only; for other dialects it is an unknown context.
    let server = HoldfastServer::new();
    for dialect in [Dialect::SMB_2_0_2, Dialect::SMB_2_1] {
        let tree = of(&server, dialect);
        let file = tree.create(&v2(batch("f"), CREATE_GUID, 0)).unwrap();
        assert_eq!(granted_v2(&file), None);
        // The CreateGuid is not remembered either.
        let again = tree
            .create(&v2(CreateArgs::open_if("g"), CREATE_GUID, 0))
            .unwrap();
        again.close().unwrap();
        file.close().unwrap();
    }
}

#[test]
fn the_timeout_is_the_requested_one_up_to_300_seconds() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    for (asked, given) in [
        (1, Some(1)),
        (12_345, Some(12_345)),
        (300_000, Some(300_000)),
        (300_001, Some(300_000)),
        (u32::MAX, Some(300_000)),
        // The server chooses.
        (0, None),
    ] {
        let file = tree.create(&v2(batch("f"), CREATE_GUID, asked)).unwrap();
        let granted = granted_v2(&file).unwrap();
        match given {
            Some(given) => assert_eq!(granted.timeout_ms, given, "{asked}"),
            None => assert!((1000..=300_000).contains(&granted.timeout_ms)),
        }
        assert_eq!(granted.flags, DurableHandleFlags::empty());
        file.close().unwrap();
    }
}

#[test]
fn a_persistent_request_is_only_durable_on_other_shares() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let args = smb_tests::durable::persistent(batch("f"), CREATE_GUID, 0);
    let file = tree.create(&args).unwrap();
    let granted = granted_v2(&file).unwrap();
    assert_eq!(granted.flags, DurableHandleFlags::empty());
    file.close().unwrap();
    let args = smb_tests::durable::persistent(CreateArgs::open("f"), CREATE_GUID, 0);
    let file = tree.create(&args).unwrap();
    assert_eq!(granted_v2(&file), None);
}

/// [MS-SMB2] 2.2.13.2.11: Flags has one bit.
#[test]
fn other_flags_of_version_2_mean_nothing() {
    let server = smb_tests::durable::continuously_available();
    let tree = modern(&server);
    for (flags, granted) in [
        (0xffff_fffd, DurableHandleFlags::empty()),
        (u32::MAX, DurableHandleFlags::PERSISTENT),
    ] {
        let args = batch("f").durable_v2(DurableHandleRequestV2 {
            timeout_ms: 0,
            flags: DurableHandleFlags(flags),
            create_guid: CREATE_GUID,
        });
        let file = tree.create(&args).unwrap();
        assert_eq!(granted_v2(&file).unwrap().flags, granted, "{flags:#x}");
        file.close().unwrap();
    }
}

const NO_SUCH: FileId = FileId {
    persistent: 1,
    volatile: 1,
};

/// Asserts that a CREATE fails with INVALID_PARAMETER and creates no file (3.3.5.9.6, .7, .10,
/// .12).
fn assert_excluded(args: &CreateArgs) {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    assert_eq!(tree.create_status(args).unwrap(), Status::INVALID_PARAMETER);
    assert!(!server.path("f").exists());
}

#[test]
fn both_versions_of_the_request_exclude_each_other() {
    assert_excluded(&v2(v1(batch("f")), CREATE_GUID, 0));
}

#[test]
fn both_versions_of_the_reconnect_exclude_each_other() {
    assert_excluded(&v2_again(
        v1_again(batch("f"), NO_SUCH),
        NO_SUCH,
        CREATE_GUID,
    ));
}

#[test]
fn request_and_reconnect_of_version_2_exclude_each_other() {
    let both = v2_again(v2(batch("f"), CREATE_GUID, 0), NO_SUCH, CREATE_GUID);
    assert_excluded(&both);
}

#[test]
fn request_of_version_2_and_reconnect_of_version_1_exclude_each_other() {
    assert_excluded(&v1_again(v2(batch("f"), CREATE_GUID, 0), NO_SUCH));
}

#[test]
fn request_of_version_1_and_reconnect_of_version_2_exclude_each_other() {
    assert_excluded(&v2_again(v1(batch("f")), NO_SUCH, CREATE_GUID));
}

#[test]
fn both_versions_exclude_each_other_on_older_dialects() {
    // 3.3.5.9.6, .7 name no dialect.
    let server = HoldfastServer::new();
    for dialect in [Dialect::SMB_2_0_2, Dialect::SMB_2_1] {
        let tree = of(&server, dialect);
        for args in [
            v2(v1(batch("f")), CREATE_GUID, 0),
            v2_again(v1(batch("f")), NO_SUCH, CREATE_GUID),
            v1_again(v2(batch("f"), CREATE_GUID, 0), NO_SUCH),
            v2_again(v1_again(batch("f"), NO_SUCH), NO_SUCH, CREATE_GUID),
        ] {
            let refused = tree.create_status(&args).unwrap();
            assert_eq!(refused, Status::INVALID_PARAMETER, "{dialect:?}");
        }
        assert!(!server.path("f").exists());
        // Without version 1 they are unknown contexts.
        let unknown = v2_again(v2(batch("g"), CREATE_GUID, 0), NO_SUCH, CREATE_GUID);
        tree.create(&unknown).unwrap().close().unwrap();
    }
}

#[test]
fn contexts_of_another_size_are_refused() {
    // 3.3.5.9 "Create Context Validation"
    let server = HoldfastServer::new();
    let tree = modern(&server);
    for (name, size) in [
        (name::DURABLE_HANDLE_REQUEST, 16),
        (name::DURABLE_HANDLE_RECONNECT, 16),
        (name::DURABLE_HANDLE_REQUEST_V2, 32),
        (name::DURABLE_HANDLE_RECONNECT_V2, 36),
    ] {
        for wrong in [0, 1, size - 1, size + 1, size + 8] {
            let args = batch("f").context(name, &vec![0; wrong]);
            assert_eq!(
                tree.create_status(&args).unwrap(),
                Status::INVALID_PARAMETER,
                "{name:?} of {wrong} bytes"
            );
        }
    }
    assert!(!server.path("f").exists());
}

#[test]
fn a_durable_request_does_not_weaken_the_checks_of_an_open() {
    let server = HoldfastServer::new();
    let (tree, other) = (modern(&server), server.tree());
    let alone = CreateArgs::create("f").share(ShareAccess::empty());
    let held = other.create(&alone).unwrap();
    held.write_all(0, b"theirs").unwrap();
    let take = CreateArgs::new("f", CreateDisposition::OVERWRITE).oplock(OplockLevel::BATCH);
    assert_eq!(
        status(tree.create(&v2(take, CREATE_GUID, 0))),
        Status::SHARING_VIOLATION
    );
    // The CreateGuid of a failed open can be used again.
    held.close().unwrap();
    let file = tree.create(&v2(batch("f"), CREATE_GUID, 0)).unwrap();
    assert_eq!(file.read_all().unwrap(), b"theirs");
    assert!(granted_v2(&file).is_some());
}

#[test]
fn while_connected_a_durable_opens_oplock_breaks_like_any_other() {
    let server = HoldfastServer::new();
    let (tree, other) = (modern(&server), server.tree());
    let file = tree.create(&v2(batch("f"), CREATE_GUID, 0)).unwrap();
    let id = other.send(CreateArgs::open("f").request()).unwrap();
    let broken = tree.client().next_break(smb_tests::SOON).unwrap();
    assert!(broken.is_some());
    let mut connection = other.client().connection();
    assert!(!connection.answered(id, MEANWHILE).unwrap());
    drop(connection);
    file.acknowledge_oplock(OplockLevel::II).unwrap();
    other.client().wait(id).unwrap().ok().unwrap();
    // The open still works.
    file.write_all(0, b"still open").unwrap();
}

#[test]
fn a_closed_durable_open_leaves_nothing() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let before = server.opens();
    for args in [
        v1(batch("f")),
        v2(batch("f"), CREATE_GUID, 60_000),
        v2(leased("f", LeaseState::RWH), CREATE_GUID, 60_000),
    ] {
        let file = tree.create(&args).unwrap();
        assert_eq!(server.opens(), before + 1);
        file.close().unwrap();
        assert_eq!(server.opens(), before);
    }
    let alone = CreateArgs::open("f").share(ShareAccess::empty());
    server.tree().create(&alone).unwrap();
}

#[test]
fn old_requests_of_another_channel_are_refused() {
    // 3.3.5.2.10
    let server = HoldfastServer::new();
    let tree = modern(&server);
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
    // A READ is not refused for this reason.
    let mut read = file.read_request(0, 3, 0);
    read.channel_sequence = 1;
    assert_eq!(tree.reply(read).unwrap().status(), Status::SUCCESS);
}

#[test]
fn the_replay_flag_is_ignored_or_refused_before_3_0() {
    // 2.2.1.2: only valid for 3.x.
    let server = HoldfastServer::new();
    let tree = of(&server, Dialect::SMB_2_1);
    let args = v2(CreateArgs::create("f"), CREATE_GUID, 0);
    let replay = args.request().flag(HeaderFlags::REPLAY);
    let end = tree.reply(replay).unwrap().status();
    assert!(
        [Status::SUCCESS, Status::INVALID_PARAMETER].contains(&end),
        "{end}"
    );
}
