//! Reconnects to a durable open ([MS-SMB2] 3.3.5.9.7, 3.3.5.9.12): the checks, and the state that survives. Which opens
//! outlive their connection is in `durable_preserved.rs`, and events that end the open meanwhile in
//! `durable_meanwhile.rs`.

use smb_client::{Break, CreateArgs, File, Options, Tree};
use smb_tests::durable::{granted_v1, granted_v2, v1, v1_again, v2, v2_again};
use smb_tests::{DATA, HoldfastServer, OTHER_PASSWORD, OTHER_USER, SECOND, SOON, status};
use smb_wire::Status;
use smb_wire::access_mask::AccessMask;
use smb_wire::create_context::{LeaseContext, LeaseFlags, LeaseState, LeaseV2, name};
use smb_wire::ids::{FileId, Guid, LeaseKey};
use smb_wire::msg::{
    CreateDisposition, CreateOptions, Dialect, LockFlags, OplockLevel, ShareAccess,
};

pub(super) const KEY: LeaseKey = LeaseKey([0x33; 16]);
pub(super) const OTHER_KEY: LeaseKey = LeaseKey([0x34; 16]);
pub(super) const CREATE_GUID: Guid = Guid([0x44; 16]);
/// The ClientGuid of the clients of 3.1.1.
const CLIENT_GUID: Guid = Guid([0x11; 16]);
const OTHER_CLIENT: Guid = Guid([0x56; 16]);
pub(super) const RH: LeaseState = LeaseState(3);
pub(super) const RWH: LeaseState = LeaseState::RWH;
pub(super) const EXCLUSIVE: LockFlags = LockFlags(0x12);

/// Connects a client with a dialect; each ClientGuid is limited to one dialect (3.3.5.5.3).
fn of(server: &HoldfastServer, dialect: Dialect) -> Tree {
    let guid = Guid([dialect.0.to_le_bytes()[0]; 16]);
    server.tree_with(Options::dialect(dialect).guid(guid))
}

pub(super) fn modern(server: &HoldfastServer) -> Tree {
    of(server, Dialect::SMB_3_1_1)
}

pub(super) fn other(server: &HoldfastServer) -> Tree {
    server.tree_with(Options::default().guid(OTHER_CLIENT))
}

pub(super) fn batch(name: &str) -> CreateArgs {
    CreateArgs::open_if(name).oplock(OplockLevel::BATCH)
}

pub(super) fn leased(name: &str, state: LeaseState) -> CreateArgs {
    CreateArgs::open_if(name).lease_v2(KEY, state, 0)
}

fn leased_v1(name: &str) -> CreateArgs {
    CreateArgs::open_if(name).lease(KEY, RWH)
}

/// [MS-SMB2] 3.3.5.9.9 has the identity of the file left out of the answer.
#[test]
fn a_reconnect_does_not_get_the_identity_of_the_file() {
    let lost = Lost::new(batch("f"));
    let asks = |args: CreateArgs| args.context(name::QUERY_ON_DISK_ID, &[]);
    let told = |file: &File| file.created().context(name::QUERY_ON_DISK_ID).is_some();
    assert!(!told(&lost.back(asks(batch("f")))));
    assert!(told(
        &other(&lost.server).create(&asks(batch("g"))).unwrap()
    ));
}

/// A durable open whose connection is lost.
pub(super) struct Lost {
    pub(super) server: HoldfastServer,
    pub(super) id: FileId,
}

impl Lost {
    /// Opens a file with a durable request of version 2 and loses the connection.
    pub(super) fn new(args: CreateArgs) -> Self {
        Self::opened(&v2(args, CREATE_GUID, 0), Dialect::SMB_3_1_1)
    }

    pub(super) fn opened(args: &CreateArgs, dialect: Dialect) -> Self {
        let server = HoldfastServer::new();
        let tree = of(&server, dialect);
        let file = tree.create(args).unwrap();
        assert!(granted_v1(&file) || granted_v2(&file).is_some());
        file.write_all(0, b"before").unwrap();
        let id = file.id();
        server.lose(&tree);
        Self { server, id }
    }

    pub(super) fn again(&self, args: CreateArgs) -> CreateArgs {
        v2_again(args, self.id, CREATE_GUID)
    }

    /// Reconnects as the same client.
    pub(super) fn back(&self, args: CreateArgs) -> File {
        modern(&self.server).create(&self.again(args)).unwrap()
    }

    /// Asserts that an attempt ends with a status and leaves the open intact: the right one
    /// succeeds after it.
    fn assert_refused(&self, attempt: &CreateArgs, expected: Status, right: CreateArgs) {
        let tree = modern(&self.server);
        assert_eq!(status(tree.create(attempt)), expected);
        let file = tree.create(&self.again(right)).unwrap();
        assert_eq!(file.read_all().unwrap(), b"before");
        file.close().unwrap();
    }

    /// Asserts that the open does not exist any more.
    pub(super) fn assert_gone(&self, args: CreateArgs) {
        let tree = modern(&self.server);
        assert_eq!(
            status(tree.create(&self.again(args))),
            Status::OBJECT_NAME_NOT_FOUND
        );
    }
}

#[test]
fn version_1_survives_a_lost_connection() {
    for dialect in [Dialect::SMB_2_0_2, Dialect::SMB_2_1, Dialect::SMB_3_1_1] {
        let lost = Lost::opened(&v1(batch("f")), dialect);
        let tree = of(&lost.server, dialect);
        let file = tree.create(&v1_again(batch("f"), lost.id)).unwrap();
        assert_eq!(file.id().persistent, lost.id.persistent);
        assert_eq!(file.created().oplock_level, OplockLevel::BATCH);
        assert_eq!(file.created().facts.end_of_file, 6);
        file.write_all(6, b"after").unwrap();
        file.close().unwrap();
        let found = std::fs::read(lost.server.path("f")).unwrap();
        assert_eq!(found, b"beforeafter");
    }
}

#[test]
fn version_1_survives_under_a_lease() {
    for (args, dialect) in [
        (leased_v1("f"), Dialect::SMB_2_1),
        (leased_v1("f"), Dialect::SMB_3_1_1),
        (leased("f", RH), Dialect::SMB_3_1_1),
    ] {
        let lost = Lost::opened(&v1(args.clone()), dialect);
        let tree = of(&lost.server, dialect);
        let file = tree.create(&v1_again(args.clone(), lost.id)).unwrap();
        assert_eq!(file.created().oplock_level, OplockLevel::LEASE);
        assert_eq!(file.read_all().unwrap(), b"before");
    }
}

#[test]
fn version_2_survives_with_its_oplock() {
    let lost = Lost::new(batch("f"));
    let file = lost.back(batch("f"));
    assert_eq!(file.id().persistent, lost.id.persistent);
    assert_eq!(file.created().oplock_level, OplockLevel::BATCH);
    assert_eq!(file.read_all().unwrap(), b"before");
    file.write_all(6, b"after").unwrap();
    // The break of the oplock is sent to the connection of the reconnected open.
    let stranger = other(&lost.server);
    let id = stranger.send(CreateArgs::open("f").request()).unwrap();
    let broken = file.tree().client().next_break(SOON).unwrap();
    let expected = Break::Oplock {
        file_id: file.id(),
        level: OplockLevel::II,
    };
    assert_eq!(broken, Some(expected));
    file.acknowledge_oplock(OplockLevel::II).unwrap();
    stranger.client().wait(id).unwrap().ok().unwrap();
}

#[test]
fn version_2_survives_with_its_lease() {
    let lost = Lost::new(leased("f", RWH));
    let file = lost.back(leased("f", RWH));
    let lease = file.created().lease().unwrap();
    assert_eq!((lease.lease_key, lease.lease_state), (KEY, RWH));
    assert_eq!(lease.v2.unwrap().epoch, 1);
    let stranger = other(&lost.server);
    let id = stranger.send(CreateArgs::open("f").request()).unwrap();
    let broken = file.tree().client().next_break(SOON).unwrap();
    assert!(
        matches!(
            broken,
            Some(Break::Lease {
                key: KEY,
                current: RWH,
                new: RH,
                epoch: 2,
                ..
            })
        ),
        "{broken:?}"
    );
    file.tree().acknowledge_lease(KEY, RH).unwrap();
    stranger.client().wait(id).unwrap().ok().unwrap();
}

#[test]
fn the_parents_key_is_returned_again() {
    // 3.3.5.9.12: the response contains ParentLeaseKey and its flag if the lease has one.
    let child = || {
        CreateArgs::open_if("f").lease_context(&LeaseContext {
            lease_key: KEY,
            lease_state: RWH,
            flags: LeaseFlags::PARENT_LEASE_KEY_SET,
            v2: Some(LeaseV2 {
                parent_lease_key: OTHER_KEY,
                epoch: 0,
            }),
        })
    };
    let lost = Lost::new(child());
    let lease = lost.back(child()).created().lease().unwrap();
    assert_eq!(lease.parent_lease_key(), Some(OTHER_KEY));
}

#[test]
fn locks_survive() {
    for lease in [false, true] {
        let args = || {
            if lease { leased("f", RWH) } else { batch("f") }
        };
        let server = HoldfastServer::new();
        let tree = modern(&server);
        let file = tree.create(&v2(args(), CREATE_GUID, 0)).unwrap();
        file.write_all(0, &[1; 100]).unwrap();
        file.lock(0, 10, EXCLUSIVE).unwrap();
        let id = file.id();
        server.lose(&tree);
        let tree = modern(&server);
        let file = tree.create(&v2_again(args(), id, CREATE_GUID)).unwrap();
        // The lock still exists: the same range conflicts, and can be unlocked once.
        assert_eq!(
            status(file.lock(0, 10, EXCLUSIVE)),
            Status::LOCK_NOT_GRANTED
        );
        file.unlock(0, 10).unwrap();
        assert_eq!(status(file.unlock(0, 10)), Status::RANGE_NOT_LOCKED);
    }
}

#[test]
fn the_volatile_id_changes_with_the_reconnect() {
    // 3.3.5.9.7: FileId.Volatile is assigned again, unique in the new session.
    let lost = Lost::new(batch("f"));
    let file = lost.back(batch("f"));
    assert_eq!(file.id().persistent, lost.id.persistent);
    if file.id().volatile != lost.id.volatile {
        let stale = smb_client::Request::close(lost.id);
        assert_eq!(status(file.tree().call(stale)), Status::FILE_CLOSED);
    }
    file.close().unwrap();
}

#[test]
fn only_the_persistent_half_of_the_id_is_compared() {
    let lost = Lost::new(batch("f"));
    let half = FileId {
        volatile: lost.id.volatile ^ 0xff,
        ..lost.id
    };
    let tree = modern(&lost.server);
    let args = v2_again(batch("f"), half, CREATE_GUID);
    assert_eq!(tree.create(&args).unwrap().read_all().unwrap(), b"before");
}

#[test]
fn all_other_fields_of_the_create_are_ignored() {
    // 3.3.5.9.7: no path validation, no open execution.
    let lost = Lost::new(batch("f"));
    let odd = CreateArgs::new("no\\such*name", CreateDisposition::CREATE)
        .access(AccessMask::FILE_READ_ATTRIBUTES)
        .share(ShareAccess::empty())
        .options(CreateOptions::DIRECTORY_FILE)
        .oplock(OplockLevel::II);
    let file = lost.back(odd);
    assert_eq!(file.created().oplock_level, OplockLevel::BATCH);
    file.write_all(0, b"BEFORE").unwrap();
    assert_eq!(file.read_all().unwrap(), b"BEFORE");
}

#[test]
fn a_request_beside_the_reconnect_of_version_1_is_ignored() {
    // 3.3.5.9.7
    let lost = Lost::opened(&v1(batch("f")), Dialect::SMB_3_1_1);
    let tree = modern(&lost.server);
    let both = v1_again(v1(batch("f")), lost.id);
    assert_eq!(tree.create(&both).unwrap().read_all().unwrap(), b"before");
}

#[test]
fn version_1_reconnects_to_an_open_of_version_2() {
    let lost = Lost::new(batch("f"));
    let tree = modern(&lost.server);
    let file = tree.create(&v1_again(batch("f"), lost.id)).unwrap();
    assert_eq!(file.read_all().unwrap(), b"before");
}

#[test]
fn version_2_does_not_reconnect_to_an_open_of_version_1() {
    // The open has no CreateGuid.
    let lost = Lost::opened(&v1(batch("f")), Dialect::SMB_3_1_1);
    lost.assert_gone(batch("f"));
    let tree = modern(&lost.server);
    tree.create(&v1_again(batch("f"), lost.id)).unwrap();
}

#[test]
fn an_unknown_id_is_not_found() {
    let lost = Lost::new(batch("f"));
    let wrong = FileId {
        persistent: lost.id.persistent ^ 0x40,
        ..lost.id
    };
    lost.assert_refused(
        &v2_again(batch("f"), wrong, CREATE_GUID),
        Status::OBJECT_NAME_NOT_FOUND,
        batch("f"),
    );
}

#[test]
fn an_unknown_id_is_not_found_by_version_1() {
    let lost = Lost::new(batch("f"));
    for persistent in [lost.id.persistent ^ 0x40, 0, u64::MAX] {
        let wrong = FileId {
            persistent,
            ..lost.id
        };
        let tree = modern(&lost.server);
        assert_eq!(
            status(tree.create(&v1_again(batch("f"), wrong))),
            Status::OBJECT_NAME_NOT_FOUND
        );
    }
    lost.back(batch("f"));
}

#[test]
fn another_create_guid_is_not_found() {
    let lost = Lost::new(batch("f"));
    for guid in [Guid([0x99; 16]), Guid([0; 16])] {
        let tree = modern(&lost.server);
        assert_eq!(
            status(tree.create(&v2_again(batch("f"), lost.id, guid))),
            Status::OBJECT_NAME_NOT_FOUND
        );
    }
    lost.back(batch("f"));
}

#[test]
fn a_leased_open_is_not_found_without_the_lease() {
    let lost = Lost::new(leased("f", RWH));
    let attempt = lost.again(batch("f"));
    lost.assert_refused(&attempt, Status::OBJECT_NAME_NOT_FOUND, leased("f", RWH));
}

#[test]
fn an_open_without_a_lease_is_not_found_with_one() {
    let lost = Lost::new(batch("f"));
    let attempt = lost.again(leased("f", RWH));
    lost.assert_refused(&attempt, Status::OBJECT_NAME_NOT_FOUND, batch("f"));
}

#[test]
fn another_lease_key_is_not_found() {
    let lost = Lost::new(leased("f", RWH));
    let attempt = lost.again(CreateArgs::open_if("f").lease_v2(OTHER_KEY, RWH, 0));
    lost.assert_refused(&attempt, Status::OBJECT_NAME_NOT_FOUND, leased("f", RWH));
}

#[test]
fn another_lease_version_is_not_found() {
    let lost = Lost::new(leased("f", RWH));
    let attempt = lost.again(leased_v1("f"));
    lost.assert_refused(&attempt, Status::OBJECT_NAME_NOT_FOUND, leased("f", RWH));
    let lost = Lost::new(leased_v1("f"));
    let attempt = lost.again(leased("f", RWH));
    lost.assert_refused(&attempt, Status::OBJECT_NAME_NOT_FOUND, leased_v1("f"));
}

#[test]
fn the_requested_lease_state_is_ignored() {
    let lost = Lost::new(leased("f", RWH));
    let file = lost.back(leased("f", LeaseState::empty()));
    assert_eq!(file.created().lease().unwrap().lease_state, RWH);
}

#[test]
fn another_name_under_a_lease_is_refused() {
    let lost = Lost::new(leased("f", RWH));
    let attempt = lost.again(leased("g", RWH));
    lost.assert_refused(&attempt, Status::INVALID_PARAMETER, leased("f", RWH));
    assert!(!lost.server.path("g").exists());
}

#[test]
fn another_name_under_a_lease_is_refused_by_version_1() {
    let lost = Lost::opened(&v1(leased("f", RWH)), Dialect::SMB_3_1_1);
    let tree = modern(&lost.server);
    let wrong = tree.create(&v1_again(leased("g", RWH), lost.id));
    assert_eq!(status(wrong), Status::INVALID_PARAMETER);
    tree.create(&v1_again(leased("f", RWH), lost.id)).unwrap();
}

#[test]
fn another_name_without_a_lease_is_ignored() {
    let lost = Lost::new(batch("f"));
    assert_eq!(lost.back(batch("g")).read_all().unwrap(), b"before");
    assert!(!lost.server.path("g").exists());
}

#[test]
fn another_client_guid_does_not_find_a_leased_open() {
    let lost = Lost::new(leased("f", RWH));
    let stranger = other(&lost.server);
    assert_eq!(
        status(stranger.create(&lost.again(leased("f", RWH)))),
        Status::OBJECT_NAME_NOT_FOUND
    );
    lost.back(leased("f", RWH));
}

#[test]
fn another_client_guid_finds_an_open_without_a_lease() {
    let lost = Lost::new(batch("f"));
    let file = other(&lost.server).create(&lost.again(batch("f"))).unwrap();
    assert_eq!(file.read_all().unwrap(), b"before");
}

#[test]
fn another_user_is_denied() {
    for args in [batch("f"), leased("f", RWH)] {
        let lost = Lost::new(args.clone());
        let options = Options::dialect(Dialect::SMB_3_1_1).guid(CLIENT_GUID);
        let thief = lost.server.client(options);
        let thief = thief.login(OTHER_USER, OTHER_PASSWORD, "").unwrap();
        let thief = thief.tree(DATA).unwrap();
        assert_eq!(
            status(thief.create(&lost.again(args.clone()))),
            Status::ACCESS_DENIED
        );
        lost.back(args);
    }
}

#[test]
fn an_open_that_is_connected_is_not_found() {
    // "Open.Session is not NULL": on its own connection, and on another.
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let file = tree.create(&v2(batch("f"), CREATE_GUID, 0)).unwrap();
    let again = || v2_again(batch("f"), file.id(), CREATE_GUID);
    for tree in [&tree, &modern(&server)] {
        assert_eq!(status(tree.create(&again())), Status::OBJECT_NAME_NOT_FOUND);
        let v1 = v1_again(batch("f"), file.id());
        assert_eq!(status(tree.create(&v1)), Status::OBJECT_NAME_NOT_FOUND);
    }
    file.write_all(0, b"unharmed").unwrap();
}

#[test]
fn a_reconnected_open_is_not_found_again() {
    let lost = Lost::new(batch("f"));
    let file = lost.back(batch("f"));
    lost.assert_gone(batch("f"));
    file.close().unwrap();
    lost.assert_gone(batch("f"));
}

#[test]
fn a_durable_open_is_not_persistent() {
    // 3.3.5.9.12: the PERSISTENT flag on an open that is not persistent.
    let lost = Lost::new(batch("f"));
    let attempt = smb_tests::durable::persistent_again(batch("f"), lost.id, CREATE_GUID);
    lost.assert_refused(&attempt, Status::INVALID_PARAMETER, batch("f"));
}

#[test]
fn an_open_can_be_reconnected_repeatedly() {
    let mut lost = Lost::new(leased("f", RWH));
    for round in 0..5u8 {
        let file = lost.back(leased("f", RWH));
        assert_eq!(file.id().persistent, lost.id.persistent);
        file.write_all(6 + u64::from(round), &[round]).unwrap();
        lost.id = file.id();
        lost.server.lose(file.tree());
    }
    let file = lost.back(leased("f", RWH));
    assert_eq!(file.read_all().unwrap(), b"before\0\x01\x02\x03\x04");
}

#[test]
fn two_opens_of_one_lease_reconnect() {
    // durable-v2-open.two-same-lease
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let guids = [Guid([1; 16]), Guid([2; 16])];
    let ids = guids.map(|guid| {
        let file = tree.create(&v2(leased("f", RWH), guid, 0)).unwrap();
        assert!(granted_v2(&file).is_some());
        file.id()
    });
    server.lose(&tree);
    let tree = modern(&server);
    for (id, guid) in ids.into_iter().zip(guids) {
        let file = tree.create(&v2_again(leased("f", RWH), id, guid)).unwrap();
        assert_eq!(file.created().lease().unwrap().lease_state, RWH);
    }
}

#[test]
fn opens_under_two_leases_reconnect() {
    // durable-v2-open.two-different-lease
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let opens = [KEY, OTHER_KEY].map(|key| {
        let args = CreateArgs::open_if("f").lease_v2(key, RH, 0);
        let guid = Guid(key.0);
        let file = tree.create(&v2(args.clone(), guid, 0)).unwrap();
        assert!(granted_v2(&file).is_some());
        (args, file.id(), guid)
    });
    server.lose(&tree);
    let tree = modern(&server);
    for (args, id, guid) in opens {
        let file = tree.create(&v2_again(args, id, guid)).unwrap();
        assert_eq!(file.created().lease().unwrap().lease_state, RH);
    }
}

#[test]
fn a_reconnect_through_another_share_belongs_to_that_tree() {
    // 3.3.5.9.12 does not check the share: Open.TreeConnect is set to that of the request. A server
    // may refuse; it must not open another file.
    let lost = Lost::new(batch("f"));
    let tree = modern(&lost.server).session().tree(SECOND).unwrap();
    match status(tree.create(&lost.again(batch("f")))) {
        Status::SUCCESS => {}
        refused => {
            assert!(refused.is_error());
            assert_eq!(lost.back(batch("f")).read_all().unwrap(), b"before");
        }
    }
    assert!(!lost.server.share_path(SECOND, "f").exists());
}

#[test]
fn many_disconnected_opens_reconnect() {
    let server = HoldfastServer::new();
    let tree = modern(&server);
    let name = |n: u8| format!("f{n}");
    let opens: Vec<FileId> = (0..50)
        .map(|n| {
            let file = tree
                .create(&v2(batch(&name(n)), Guid([n + 1; 16]), 0))
                .unwrap();
            file.write_all(0, &[n]).unwrap();
            file.id()
        })
        .collect();
    server.lose(&tree);
    let tree = modern(&server);
    for (n, id) in (0u8..).zip(opens) {
        let again = v2_again(batch(&name(n)), id, Guid([n + 1; 16]));
        assert_eq!(tree.create(&again).unwrap().read_all().unwrap(), [n]);
    }
}
